//! Configuration: what people wrote, in flags, the environment and TOML, becomes what the server means.
//!
//! ```text
//! Sources ─► reading (which setting, which text, where) ─► written (the table: what the text says)
//!                        ─► check (does it hold together on this machine) ─► typed::Config
//! ```
//!
//! Takes every text and every fact about the machine as a value and gives either one whole
//! configuration or all faults at once. Reads no file, no environment and no clock: `cli` does that.

#![forbid(unsafe_code)]

pub mod failure;
pub mod fault;
pub mod options_table;
pub mod sources;
pub mod typed;

mod builder;
mod check;
mod foreign;
mod parse;
mod reading;
mod route_names;
mod tables;

use std::path::PathBuf;

pub use check::{CertificateCheck, CertificateFault, Machine, open_files_needed};
pub use fault::{ConfigFault, Origin};
pub use foreign::{Conversion, GUNICORN_FLAGS, convert};
pub use sources::{FlagText, Sources, TomlText};
pub use telemetry::nearest;

use builder::Draft;
use parse::traces::OtelVariables;

/// A good configuration and what is worth saying about it.
#[derive(Clone, Debug)]
pub struct Loaded {
    /// Ready for use.
    pub config: typed::Config,
    /// What was changed to fit this machine, has no effect or looks like a slip, one sentence each; not
    /// faults.
    pub notes: Vec<String>,
}

/// What could be understood, faults or not: `check` goes on with it to find further faults.
#[derive(Clone, Debug)]
pub struct Understood {
    /// Usable as a whole only when there are no faults.
    pub loaded: Loaded,
    /// Every fault of every source at once, those of overridden values included, in the order of the
    /// sources; what does not hold together comes last.
    pub faults: Vec<ConfigFault>,
    /// What is wrong with the files of certificates. Apart from the others, because a server that runs goes on with
    /// the certificates that it has.
    pub certificate_faults: Vec<ConfigFault>,
}

impl Understood {
    /// All faults, those of certificates last.
    pub fn all_faults(&self) -> impl Iterator<Item = &ConfigFault> {
        self.faults.iter().chain(&self.certificate_faults)
    }
}

/// Reads all sources over the defaults, in rising precedence: defaults, TOML, environment, flags.
///
/// The last source that names a setting decides it alone (lists are replaced, not joined).
///
/// # Errors
/// All faults, as in [`Understood`].
pub fn load(sources: &Sources, machine: &Machine<'_>) -> Result<Loaded, Vec<ConfigFault>> {
    let Understood {
        loaded,
        mut faults,
        certificate_faults,
    } = understand(sources, machine);
    faults.extend(certificate_faults);
    if faults.is_empty() {
        Ok(loaded)
    } else {
        Err(faults)
    }
}

/// [`load`] for those who want to go on after a fault.
pub fn understand(sources: &Sources, machine: &Machine<'_>) -> Understood {
    let (draft, mut faults) = draft_of(sources);
    // An application that was not understood is a fault already, and no reason to ask for one.
    if faults.is_empty() {
        faults.extend(check::nothing_to_serve(&draft));
    }
    let checked = check::finish(&draft, machine);
    faults.extend(checked.faults);
    Understood {
        loaded: checked.loaded,
        faults,
        certificate_faults: checked.certificate_faults,
    }
}

/// The folder to change to before anything else is looked at (`chdir`); faults wait for [`load`].
pub fn chdir(sources: &Sources) -> Option<PathBuf> {
    draft_of(sources).0.chdir
}

/// The file that names the process (`pid_file`), where one is set.
///
/// # Errors
/// What is wrong with the sources, when that may be why none is.
pub fn pid_file(sources: &Sources) -> Result<Option<PathBuf>, Vec<ConfigFault>> {
    let (draft, faults) = draft_of(sources);
    match draft.config.pid_file {
        None if !faults.is_empty() => Err(faults),
        file => Ok(file),
    }
}

/// Where commands are taken (`control`), as it is written: a file may be relative to `chdir`.
///
/// # Errors
/// What is wrong with the sources, when that may be why no place is named.
pub fn control(sources: &Sources) -> Result<typed::ControlConfig, Vec<ConfigFault>> {
    let (draft, faults) = draft_of(sources);
    match draft.config.processes.control {
        typed::ControlConfig::Auto if !faults.is_empty() => Err(faults),
        control => Ok(control),
    }
}

/// Flags of other servers that are refused, for those who have no use for the rest.
pub fn refused_flags(flags: &[FlagText]) -> Vec<ConfigFault> {
    foreign::translate(flags, foreign::FlagSource::CommandLine).faults
}

fn draft_of(sources: &Sources) -> (Draft, Vec<ConfigFault>) {
    let read = reading::read(sources);
    let mut faults = read.faults;
    let mut draft = Draft::default();
    draft.notes.extend(read.notes);
    for reading in &read.readings {
        // In rising precedence, and past a fault: all faults are found at once.
        draft.take(reading, &mut faults);
    }
    draft.expand_proxies();
    draft.otel = OtelVariables::read(&sources.environment);
    (draft, faults)
}

#[cfg(test)]
mod tests;
