//! One connection of the load: what is on its way, and the reply that is being read.
//!
//! Plain state; the loop moves it. A place lives as long as the run and is a slot of the ring's table of
//! files, its socket may be another one each time: `generation` tells completions of a former one.
//!
//! ```text
//!            begin                established
//!   Closed ─────────► Connecting ─────────────► Open ──last reply──► Closed
//!     ▲                   │                      │
//!     └──failed, paused───┘                      └─the server is to close─► Lingering ──► Closed
//! ```

use measure::Stamp;

use super::queue::Tag;
use crate::engine::answer::Answer;

/// Where a connection stands.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum State {
    /// There is none.
    Closed,
    /// Not known to be established.
    Connecting,
    /// Requests may be sent.
    Open,
    /// The last reply was read; the server is to close.
    Lingering,
}

/// What lies in the place's slot while it is closed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Slot {
    /// Nothing.
    Empty,
    /// A socket that was reset and may be connected again.
    Reset,
}

/// A place for a connection.
#[derive(Debug)]
pub(super) struct Connection {
    pub(super) state: State,
    pub(super) slot: Slot,
    pub(super) generation: u32,
    /// Whether it has had a reply, or has failed to, at least once.
    pub(super) is_warm: bool,
    /// Whether it waits for a request of an open load.
    pub(super) is_queued: bool,
    /// Whether a receive is under way.
    pub(super) is_receiving: bool,
    /// Whether a send is under way whose end will be told.
    pub(super) is_sending: bool,
    pub(super) answer: Answer,
    /// When what is going on takes too long.
    pub(super) deadline: Stamp,
    /// When its opening began.
    pub(super) began: Stamp,
    /// When a free place for a request became free.
    pub(super) turn: Stamp,
    /// Requests that may still be begun on it.
    pub(super) left: u64,
    /// The oldest request under way, as a place of the ring of flights.
    pub(super) head: u32,
    /// Requests under way, unsent ones included.
    pub(super) len: u32,
    /// Of these the last ones are not given to the kernel.
    pub(super) unsent: u32,
}

impl Connection {
    pub(super) fn new() -> Connection {
        Connection {
            state: State::Closed,
            slot: Slot::Empty,
            generation: 0,
            is_warm: false,
            is_queued: false,
            is_receiving: false,
            is_sending: false,
            answer: Answer::default(),
            deadline: Stamp::NEVER,
            began: Stamp::ZERO,
            turn: Stamp::ZERO,
            left: 0,
            head: 0,
            len: 0,
            unsent: 0,
        }
    }

    /// Requests under way that were given to the kernel: the oldest ones.
    pub(super) fn sent_len(&self) -> u32 {
        self.len - self.unsent
    }

    /// What its steps are told by.
    pub(super) fn tag(&self, place: u32) -> Tag {
        Tag {
            place,
            generation: self.generation,
        }
    }
}
