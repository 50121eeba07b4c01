//! Serving processes as they are meant: how many, who they are, when they are replaced, who may command them.

use std::path::PathBuf;

use telemetry::Nanos;

/// Most serving processes.
pub const PROCESSES_MAX: usize = 512;
/// Most drivers of all processes: each has a socket of each address, and the kernel looks through a group of
/// sockets for every connection.
const DRIVERS_IN_ALL_MAX: usize = 1024;

/// So many processes with so many drivers each are too many: what is wrong, and what to do.
pub fn too_many_drivers(processes: usize, drivers: usize) -> Option<(String, String)> {
    assert!(processes > 0, "drivers of no process");
    let all = processes * drivers;
    if all <= DRIVERS_IN_ALL_MAX {
        return None;
    }
    let text = format!(
        "{processes} processes with {drivers} drivers each are {all} drivers: more than {DRIVERS_IN_ALL_MAX}"
    );
    let hint = format!("at most {} drivers", DRIVERS_IN_ALL_MAX / processes);
    Some((text, hint))
}

defaults! {
    /// Serving processes and their supervisor.
    #[derive(Clone, Debug)]
    pub struct Processes {
        /// How many serve.
        pub count: usize = 1,
        /// User whose rights are kept once everything is bound; empty: nothing is given up.
        pub user: String,
        /// Group whose rights are kept; empty: the user's own.
        pub group: String,
        /// File mode creation mask of the serving processes; `None`: what it was at the start.
        pub umask: Option<u32>,
        /// A template process imports the application and forks the serving ones.
        pub preload: bool,
        /// A new process must serve this long after its start; zero: however long it takes.
        pub start_timeout: Nanos = Nanos::from_secs(120),
        /// A process whose drivers do not answer for this long is replaced; zero: never.
        pub heartbeat_timeout: Nanos = Nanos::from_secs(30),
        /// When processes are replaced in good health.
        pub recycling: Recycling = Recycling { jitter: 0.1, ..Recycling::default() },
        /// Restarting when the code changes, for development.
        pub development: Option<Development>,
        /// Where commands are taken.
        pub control: ControlConfig = ControlConfig::Auto,
    }
}

/// When a process is replaced in good health. Each bound is moved by up to the jitter, upwards, for each
/// process anew.
#[derive(Clone, Debug, Default)]
pub struct Recycling {
    /// After so many requests.
    pub requests_max: Option<u64>,
    /// After so much time.
    pub age_max: Option<Nanos>,
    /// At so many bytes of resident memory.
    pub resident_bytes_max: Option<u64>,
    /// Share of each bound, 0.0 to 1.0.
    pub jitter: f64,
}

/// `reload`: restarting when the code changes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Development {
    /// Folders that are watched beside the application's own; absolute.
    pub dirs: Vec<PathBuf>,
    /// Files that are watched whatever their names; absolute.
    pub files: Vec<PathBuf>,
}

/// Where commands are taken (`milepost reload` and so on).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum ControlConfig {
    /// A socket in the runtime folder, named after the configuration file, or after the process.
    #[default]
    Auto,
    /// This socket.
    At(PathBuf),
    /// Nowhere: only signals.
    Off,
}
