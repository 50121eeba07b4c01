//! What a configuration depends on outside of it: the file, the environment variables, the folder, the machine.
//!
//! Does the reading that `config` may not do and gives values; changes the working folder and the
//! soft limit of open files, and nothing else that stays.

use std::fs;
use std::io::{self, IsTerminal};
use std::net::{SocketAddr, ToSocketAddrs};
use std::path::{Path, PathBuf};
use std::thread::available_parallelism;

use clap::ArgMatches;
use config::options_table::ENVIRONMENT_PREFIX;
use config::sources::{OTEL_PREFIX, OTHERS_VARIABLES};
use config::{FlagText, GUNICORN_FLAGS, Machine, Sources, TomlText, Understood, understand};
use rustix::process::{Resource, Rlimit, geteuid, getrlimit, setrlimit};
use rustix::thread::{CapabilitySet, CpuSet, capabilities, sched_getaffinity};
use supervisor::control::place::Who;
use supervisor::probe_dir::spooled_file;

use crate::message::Message;
use crate::{acme_client, certificates, command};

/// Reads everything that was written and changes to the folder that it names.
///
/// # Errors
/// The configuration file or the folder cannot be used; nothing can be said about the rest.
pub(crate) fn sources(matches: &ArgMatches) -> Result<Sources, Message> {
    let mut sources = Sources {
        // The file is read in the folder of the start, because `chdir` may be one of its keys.
        toml: None,
        environment: environment()?,
        gunicorn_flags: gunicorn_flags()?,
        flags: command::flags(matches),
    };
    if let Some(file) = config_file(matches) {
        sources.toml = Some(toml(&file)?);
    }
    if let Some(dir) = config::chdir(&sources) {
        std::env::set_current_dir(&dir).map_err(|error| {
            Message::new(
                "`chdir`",
                format!("cannot change to `{}`: {}", dir.display(), cause(&error)),
            )
            .with_hint("it must be a folder that this user may enter")
        })?;
    }
    Ok(sources)
}

/// Whose control sockets are meant.
pub(crate) fn who() -> Who {
    Who {
        uid: geteuid().as_raw(),
        runtime_dir: std::env::var_os("XDG_RUNTIME_DIR").map(PathBuf::from),
    }
}

/// The configuration file that a flag or the environment names, as it is written there: it starts from the
/// folder that [`sources`] leaves.
pub(crate) fn config_file(matches: &ArgMatches) -> Option<PathBuf> {
    let from_environment = || {
        let file = std::env::var_os(format!("{ENVIRONMENT_PREFIX}CONFIG"));
        file.filter(|file| !file.is_empty()).map(PathBuf::from)
    };
    command::config_file(matches).or_else(from_environment)
}

/// What becomes of the files of certificates.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum CertificateFiles {
    /// They are read and checked.
    Checked,
    /// The supervisor has read them: this process may not be able to.
    HandedOver,
}

/// What the sources say on this machine.
///
/// # Errors
/// The machine does not say what must be known about it.
pub(crate) fn understood(
    sources: &Sources,
    certificate_files: CertificateFiles,
) -> Result<Understood, Message> {
    let current_dir = current_dir()?;
    let machine = Machine {
        cores: available_parallelism().map_or(1, usize::from),
        cpus: cpus(),
        open_files_max: getrlimit(Resource::Nofile)
            .maximum
            .unwrap_or(u64::from(u32::MAX)),
        current_dir,
        has_terminal: std::io::stdout().is_terminal(),
        resolve: &resolve,
        folder: &folder,
        account: &supervisor::check_account,
        spooled_file: &spooled_file,
        file: &file,
        may_bind: &may_bind,
        storage_dir: &storage_dir,
        has_ipv6: has_ipv6(),
        certificate_file: &acme_client::certificate_file,
        certificates: match certificate_files {
            CertificateFiles::Checked => Some(&certificates::faults),
            CertificateFiles::HandedOver => None,
        },
    };
    Ok(understand(sources, &machine))
}

/// The usual folder for certificates, for a server that becomes `user` (empty: none).
///
/// A server that gives up root finds the folder of its start again, when it reads its configuration anew as that user.
pub(crate) fn storage_dir(user: &str) -> Option<PathBuf> {
    const OF_SYSTEM: &str = "/var/lib/milepost";
    const OF_USER: &str = "milepost";
    // Of systemd: one folder or more, between colons.
    let of_service = std::env::var("STATE_DIRECTORY").ok();
    let of_service = of_service.and_then(|dirs| dirs.split(':').next().map(PathBuf::from));
    if let Some(dir) = of_service.filter(|dir| dir.is_absolute()) {
        return Some(dir);
    }
    if geteuid().is_root() || !user.is_empty() {
        return Some(PathBuf::from(OF_SYSTEM));
    }
    let absolute = |name: &str| {
        let dir = std::env::var_os(name).map(PathBuf::from);
        dir.filter(|dir| dir.is_absolute())
    };
    let data = absolute("XDG_DATA_HOME").or_else(|| Some(absolute("HOME")?.join(".local/share")));
    Some(data?.join(OF_USER))
}

/// Whether this process may listen on a port, ip(7) and capabilities(7).
fn may_bind(port: u16) -> bool {
    const FIRST: &str = "/proc/sys/net/ipv4/ip_unprivileged_port_start";
    let first = fs::read_to_string(FIRST).ok();
    let first = first.and_then(|text| text.trim().parse().ok());
    let has_right = || {
        let sets = capabilities(None);
        sets.is_ok_and(|sets| sets.effective.contains(CapabilitySet::NET_BIND_SERVICE))
    };
    port == 0 || port >= first.unwrap_or(1024) || has_right()
}

/// Whether sockets of IPv6 can be made; a kernel may be without it.
fn has_ipv6() -> bool {
    use rustix::net::{AddressFamily, SocketType, socket};
    socket(AddressFamily::INET6, SocketType::STREAM, None).is_ok()
}

/// The working folder.
///
/// # Errors
/// It is gone, or cannot be named.
pub(crate) fn current_dir() -> Result<PathBuf, Message> {
    std::env::current_dir().map_err(|error| {
        Message::new("working folder", cause(&error)).with_hint("it may have been removed")
    })
}

/// Raises the soft limit of open files to what is needed, as far as the hard one lets it.
///
/// Not simply to the hard one: programs that the application starts inherit it, and some close every
/// descriptor up to it.
pub(crate) fn raise_open_files(needed: u64) {
    assert!(needed > 0, "a process without a file");
    let limit = getrlimit(Resource::Nofile);
    let wanted = limit.maximum.map_or(needed, |hard| needed.min(hard));
    if limit.current.is_some_and(|soft| soft < wanted) {
        let raised = Rlimit {
            current: Some(wanted),
            maximum: limit.maximum,
        };
        // Refused (a sandbox): accepting pauses earlier, which is said when it happens.
        let _ = setrlimit(Resource::Nofile, raised);
    }
}

fn environment() -> Result<std::collections::BTreeMap<String, String>, Message> {
    let ours = std::env::vars_os().filter_map(|(name, value)| {
        // Those of OpenTelemetry are for all programs: what is wrong with one is no reason not to start.
        let is_text = value.to_str().is_some();
        let is_read = |name: &String| {
            name.starts_with(ENVIRONMENT_PREFIX)
                || (name.starts_with(OTEL_PREFIX) && is_text)
                || OTHERS_VARIABLES.iter().any(|(other, _)| other == name)
        };
        // Other variables may hold anything; only the value of one that is read has to be text.
        let name = name.into_string().ok().filter(is_read)?;
        Some((name, value))
    });
    ours.map(|(name, value)| match value.into_string() {
        Ok(value) => Ok((name, value)),
        Err(_) => Err(Message::new(&format!("`{name}`"), "the value is not UTF-8")),
    })
    .collect()
}

/// What gunicorn takes as further flags.
fn gunicorn_flags() -> Result<Vec<FlagText>, Message> {
    let Some(text) = std::env::var_os(GUNICORN_FLAGS) else {
        return Ok(Vec::new());
    };
    let what = format!("`{GUNICORN_FLAGS}`");
    let found = text
        .into_string()
        .map_err(|_| Message::new(&what, "the value is not UTF-8"))
        .and_then(|text| command::flags_in(&text).map_err(|message| message.within(&what)));
    match found? {
        (flags, None) => Ok(flags),
        (_, Some(file)) => {
            let cause = format!("`{}` is not read", file.display());
            let hint = "name the configuration file with `--config`, or with MILEPOST_CONFIG";
            Err(Message::new(&what, cause).with_hint(hint))
        }
    }
}

/// Where a path starts that could not be found as it was meant.
fn start_of(file: &Path) -> Option<String> {
    let folder = std::env::current_dir().ok()?;
    file.is_relative()
        .then(|| format!("relative paths start at `{}`", folder.display()))
}

fn toml(file: &Path) -> Result<TomlText, Message> {
    let name = file.display().to_string();
    let bytes = fs::read(file).map_err(|error| {
        let message = Message::new(
            &name,
            format!("the configuration file cannot be read: {}", cause(&error)),
        );
        message.with_hint_maybe(start_of(file))
    })?;
    let text = String::from_utf8(bytes).map_err(|error| {
        let line = error.as_bytes()[..error.utf8_error().valid_up_to()]
            .iter()
            .filter(|b| **b == b'\n')
            .count()
            + 1;
        Message::new(&format!("{name}:{line}"), "not TOML: the text is not UTF-8")
    })?;
    Ok(TomlText { file: name, text })
}

fn cpus() -> Vec<usize> {
    let set = sched_getaffinity(None).unwrap_or_else(|_| CpuSet::new());
    (0..CpuSet::MAX_CPU)
        .filter(|cpu| set.is_set(*cpu))
        .collect()
}

fn resolve(host: &str, port: u16) -> io::Result<Vec<SocketAddr>> {
    Ok((host, port).to_socket_addrs()?.collect())
}

/// Opened for reading, because only that shows every obstacle.
fn folder(dir: &Path) -> io::Result<PathBuf> {
    if !fs::metadata(dir)?.is_dir() {
        return Err(io::Error::new(io::ErrorKind::NotADirectory, "not a folder"));
    }
    fs::read_dir(dir)?;
    dir.canonicalize()
}

/// Opened for reading for the same reason. Anything but a plain file could keep the reader waiting.
fn file(path: &Path) -> io::Result<u64> {
    let facts = fs::metadata(path)?;
    if facts.is_dir() {
        return Err(io::ErrorKind::IsADirectory.into());
    }
    if !facts.is_file() {
        return Err(io::Error::other("not a plain file"));
    }
    fs::File::open(path).map(|_| facts.len())
}

/// The system's words without Rust's "(os error 2)".
pub(crate) fn cause(error: &io::Error) -> String {
    config::failure::plain(error).to_lowercase()
}
