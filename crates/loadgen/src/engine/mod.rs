//! The engine: threads that make the load and count what comes back.
//!
//! Takes a plan, gives an outcome. Each thread has its own event loop, its own connections and its own tally;
//! they share a few atomics and meet at the end.
//!
//! ```text
//! run ──► worker, thread 0 ─► event loop ─┐   answer: bytes ─► the end of a reply, right or wrong
//!     ├─► worker, thread 1 ─► event loop ─┼─► tally ─► outcome
//!     └─► ...                           │   schedule: when what is due
//!                                       └─► http2, websocket: the same of a connection with streams, with messages
//! ```

mod run;
mod worker;

mod event_loop;

mod schedule;
pub(crate) mod socket;
mod tls;

mod http2;
mod receive_stamps;
mod response;
mod stalls;
mod tally;
mod websocket;

use rustix::event::Timespec;
use telemetry::Nanos;

use crate::outcome::Second;

pub(crate) use http2::Http2Request;
pub use run::run;
pub(crate) use websocket::SWITCHING_PROTOCOLS;

/// As the kernel takes a time to sleep.
pub(crate) fn timespec(span: Nanos) -> Timespec {
    Timespec {
        tv_sec: (span.0 / 1_000_000_000) as i64,
        tv_nsec: (span.0 % 1_000_000_000) as i64,
    }
}

/// Follows a run while it is made, and may end it.
pub trait Watch {
    /// A second is over: of all threads together.
    fn second(&mut self, second: &Second);

    /// Whether the run is to end now; asked about ten times a second.
    fn is_over(&mut self) -> bool;
}

/// Why a run could not be made.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fault {
    /// What and why.
    pub text: String,
    /// What helps.
    pub hint: Option<String>,
}

impl Fault {
    /// Without a remedy.
    pub fn new(text: impl Into<String>) -> Fault {
        Fault {
            text: text.into(),
            hint: None,
        }
    }

    /// With a remedy.
    pub fn with_hint(text: impl Into<String>, hint: impl Into<String>) -> Fault {
        Fault {
            text: text.into(),
            hint: Some(hint.into()),
        }
    }
}
