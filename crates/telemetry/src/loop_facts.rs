//! Loop facts: what a record has of an exchange that ran on an event loop. Holds values, decides nothing.

use crate::Nanos;

/// What is known of the steps of an exchange's task on an event loop; all zero of other exchanges.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct LoopFacts {
    /// The part of `queue` between the moment when the loop took the exchange and the first step of its task.
    pub wait: Nanos,
    /// Steps that the task took until its response was handed over.
    pub steps: u32,
    /// How long they took together.
    pub busy: Nanos,
    /// The longest of them.
    pub longest: Nanos,
    /// Number of the exchange whose step has blocked the loop while this one waited; `None` for none.
    pub blocked_by: Option<u64>,
    /// The response has no end of its own: `text/event-stream`.
    pub is_event_stream: bool,
}
