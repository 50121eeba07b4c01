//! What the supervisor and the processes that serve have in common.
//!
//! The `channel` between them and its messages, the `payload` that a process reads at its start, sockets before they
//! serve (`listen`, `unix_listen`), and the counters in shared memory (`stats`), which the processes write and the supervisor reads,
//! and the last requests (`history`).
//! `pidfile` names the supervisor to other programs. Starts no process and serves no client.

#![deny(unsafe_code)]

mod acme;
mod certificate;
mod channel;
pub mod history;
mod host;
pub mod listen;
mod live;
pub mod payload;
pub mod pidfile;
mod stack;
pub mod stats;
pub mod unix_listen;

pub use acme::{Challenges, ManagedCertificate};
pub use certificate::CertificateStatus;
pub use channel::{
    AdminQuery, Channel, FDS_LEN_MAX, Identity, KILL_GRACE, ListenAddr, ListenerId, ListenerInfo,
    ProcessEvent, ReceivedMessage, Role, SupervisorCommand,
};
pub use host::{GroupMemory, GroupThrottling, HostStatus, PressureStatus, StallStatus};
pub use live::{LiveFault, LiveHeat, LiveProcess, LiveRoute, LiveRunning, LiveSample};
pub use stack::StackReport;

/// Environment variable that names the descriptor which was handed over to a process at its start.
pub const HANDOVER: &str = "MILEPOST_HANDOVER";
