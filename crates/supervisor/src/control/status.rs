//! How things are: what `milepost status` shows, as plain values.
//!
//! Filled by the supervisor, written as JSON, read by clients. Members may be added; a client of another
//! version takes missing ones for empty.

use std::fmt;

use config::failure::Failure;
use ipc::ManagedCertificate;
use serde::{Deserialize, Serialize};
use telemetry::counters::{EventLoopFigures, HandshakeTotals};

pub use ipc::{
    CertificateStatus, GroupMemory, GroupThrottling, HostStatus, PressureStatus, StallStatus,
};

/// The whole.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Status {
    /// The supervisor's process id.
    pub pid: u32,
    /// The supervisor's version.
    pub version: String,
    /// "CPython 3.11.7 (GIL)", where there is one.
    pub python: Option<String>,
    /// Seconds since 1970 at the supervisor's start.
    pub started_unix_s: u64,
    /// Seconds since then; an upgrade does not begin anew.
    pub uptime_s: u64,
    /// The configuration file, absolute.
    pub config_file: Option<String>,
    /// The control socket.
    pub control: Option<String>,
    /// What it is about just now: "serving", "reloading", "stopping", ...
    pub doing: String,
    /// Oldest first.
    pub generations: Vec<GenerationStatus>,
    /// By generation and slot.
    pub processes: Vec<ProcessStatus>,
    /// Requests that run, in all processes: those that have run for longest first, at most 200.
    pub running: Vec<RunningRequest>,
    /// Requests that run and are not in `running`.
    pub running_more: u64,
    /// What is listened on.
    pub addresses: Vec<AddressStatus>,
    /// Names with automatic certificates.
    pub automatic_certificates: Vec<ManagedCertificate>,
    /// Certificates, the default first.
    pub certificates: Vec<CertificateStatus>,
    /// Sums over all processes that there ever were.
    pub totals: Totals,
    /// TLS handshakes of the same.
    pub handshakes: HandshakeTotals,
    /// What the kernel counts of the machine and of the control group.
    pub host: HostStatus,
    /// All counters and histograms, over all processes that there ever were, in the form of the status page.
    pub counters: serde_json::Value,
    /// With `steering = "cpu"`: the share of connections that arrived on their driver's processor.
    pub steering: Option<String>,
    /// What went wrong last.
    pub last_fault: Option<LastFault>,
}

impl Status {
    /// When it was written, in seconds since 1970, by the supervisor's clock.
    pub fn now_unix_s(&self) -> u64 {
        self.started_unix_s.saturating_add(self.uptime_s)
    }
}

/// One configuration and its processes.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct GenerationStatus {
    /// Its number, from 1.
    pub generation: u64,
    /// What it is about.
    pub state: State,
    /// Processes that it is to have.
    pub processes: usize,
    /// Drivers of each.
    pub drivers: usize,
    /// Seconds since it was begun.
    pub age_s: u64,
}

/// What a process or a generation is about.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum State {
    /// It imports the application.
    #[default]
    Starting,
    /// It serves.
    Ready,
    /// It ends with its connections.
    Draining,
    /// Its drivers do not answer.
    Stuck,
    /// It has ended, and waits to be started anew.
    Waiting,
}

/// One process.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct ProcessStatus {
    /// Its place within the generation, from 0.
    pub slot: usize,
    /// Its generation.
    pub generation: u64,
    /// Its id; none while it waits to be started.
    pub pid: Option<u32>,
    /// What it is about.
    pub state: State,
    /// Seconds since its start.
    pub age_s: u64,
    /// Complete requests received.
    pub requests: u64,
    /// Memory that it has in the machine, shared or not.
    pub resident_bytes: Option<u64>,
    /// The same, where each shared page counts in parts (Pss).
    pub proportional_bytes: Option<u64>,
    /// How often a process in this place was started anew.
    pub restarts: u64,
    /// Its drivers.
    pub drivers: Vec<DriverStatus>,
    /// Its pools, where it has an application; the first takes what no rule gives to another.
    pub pools: Vec<PoolStatus>,
    /// Its event loop, where it has one.
    pub event_loop: Option<EventLoopFigures>,
}

/// One driver.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct DriverStatus {
    /// Its number within the process.
    pub driver: usize,
    /// Connections accepted.
    pub accepted: u64,
    /// Complete requests received.
    pub received: u64,
    /// Connections given to a sibling.
    pub balanced_out: u64,
    /// Connections accepted from another driver's socket.
    pub stall_takeovers: u64,
    /// Open connections.
    pub open: u64,
    /// Requests refused, connections failed.
    pub errors: u64,
    /// Connections that wait to be accepted; none where the kernel does not say.
    pub accept_queue: Option<u64>,
    /// Most that may wait.
    pub accept_queue_max: Option<u64>,
}

/// One pool.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct PoolStatus {
    /// Its name.
    pub name: String,
    /// `calm`, `saturated` or `overloaded`.
    pub pressure: String,
    /// Its threads.
    pub threads: u64,
    /// Fewest threads that there are to be.
    pub threads_min: u64,
    /// Most threads that there may be.
    pub threads_max: u64,
    /// Threads that wait for work.
    pub idle: u64,
    /// Exchanges that run.
    pub running: u64,
    /// Exchanges that wait for a thread.
    pub waiting: u64,
    /// How long the exchange that came first has waited for a thread, in milliseconds.
    pub oldest_wait_ms: u64,
    /// The wait that the pool aims at (`queue_target`), in milliseconds: it is overloaded while all wait longer, and more
    /// arrive than it runs.
    pub queue_target_ms: f64,
    /// Exchanges that have run.
    pub completed: u64,
    /// Exchanges refused because too many waited.
    pub refused: u64,
    /// Exchanges refused because the pool was overloaded.
    pub shed: u64,
    /// Exchanges refused because they had waited too long for a thread.
    pub expired: u64,
    /// Of a thousand parts of the threads' time at work, those in which they wait for the interpreter; `None`
    /// where nobody measures it, because the pool's size is fixed or nothing runs.
    pub gil_share_permille: Option<u64>,
}

/// A request that runs: an application or an upstream has it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct RunningRequest {
    /// Its id, of which the log and the response have the same; at most the first 40 bytes.
    pub id: String,
    /// The method; at most the first 16 bytes.
    pub method: String,
    /// The path as received, without its query; at most the first 96 bytes.
    pub path: String,
    /// The route that took it.
    pub route: String,
    /// The pool that runs it.
    pub pool: String,
    /// Its process.
    pub pid: u32,
    /// Number of the worker in the process; none of a request that an upstream has.
    pub worker: Option<u32>,
    /// How long it had waited before it ran, in milliseconds.
    pub waited_ms: u64,
    /// How long it has run, in milliseconds.
    pub ran_ms: u64,
}

/// One address.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct AddressStatus {
    /// `http://127.0.0.1:8000` or `unix:/run/shop.sock`.
    pub url: String,
    /// Sockets that listen on it.
    pub sockets: usize,
    /// Length of each one's accept queue, after the kernel's own bound; 0 where the service manager has set it.
    pub backlog: u32,
    /// Connections that wait in all of them; none where the kernel does not say.
    pub accept_queue: Option<u64>,
}

/// Sums over all processes that there ever were.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Totals {
    /// Connections accepted.
    pub accepted: u64,
    /// Complete requests received.
    pub received: u64,
    /// Connections given to a sibling.
    pub balanced_out: u64,
    /// Connections accepted from another driver's socket.
    pub stall_takeovers: u64,
    /// Requests refused, connections failed.
    pub errors: u64,
    /// Exchanges that did not end complete.
    pub incomplete: u64,
    /// Processes that ended without being told.
    pub crashes: u64,
    /// Processes that were replaced in good health.
    pub recycled: u64,
}

/// What went wrong last.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct LastFault {
    /// What it was.
    #[serde(flatten)]
    pub failure: Failure,
    /// Seconds since then.
    pub age_s: u64,
}

impl fmt::Display for State {
    /// As it is written.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.serialize(f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn is_read_from_a_supervisor_that_says_less() {
        let text = r#"{"pid":7,"processes":[{"slot":1,"state":"stuck","new":[]}]}"#;
        let status: Status = serde_json::from_str(text).unwrap();
        assert_eq!(status.pid, 7);
        assert_eq!(status.processes[0].state, State::Stuck);
        assert_eq!(status.processes[0].pid, None);
    }
}
