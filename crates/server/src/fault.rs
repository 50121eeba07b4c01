//! Faults, sorted by who is at fault. One function maps a fault to a status.

use std::fmt;

/// Why an exchange did not get the reply its handler meant to give.
#[derive(Debug)]
pub enum Fault {
    /// The client: gone, or broke the protocol after its head was accepted.
    Peer(String),
    /// The application raised, or broke the rules of its interface. The text (a traceback) goes to the
    /// error log only.
    App(String),
    /// It was interrupted because it took too long; its client has its answer already.
    Overdue,
    /// The operating system.
    System(std::io::Error),
    /// Milepost itself.
    Bug(String),
}

impl Fault {
    /// The status to answer with when nothing has been sent yet.
    pub fn status(&self) -> u16 {
        match self {
            Fault::Peer(_) => 400,
            Fault::Overdue => 504,
            Fault::App(_) | Fault::System(_) | Fault::Bug(_) => 500,
        }
    }
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Fault::Peer(text) => write!(f, "client: {text}"),
            Fault::App(text) => write!(f, "application: {text}"),
            Fault::Overdue => f.write_str("interrupted: it took longer than request_timeout"),
            Fault::System(error) => write!(f, "system: {error}"),
            Fault::Bug(text) => write!(f, "bug: {text}"),
        }
    }
}
