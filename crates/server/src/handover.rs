//! The place where an exchange changes hands: the turnstile that says whether the driver or a pool thread
//! may write to a connection.
//!
//! Touches no socket, no clock, no Python. Built only on `sync`, so that `crates/model` can check every
//! interleaving of it with loom.

use std::task::{Context, Poll};

use crate::sync::{AtomicU8, Ordering, WakerCell};

/// Who may write to a connection, and who ends its exchange.
///
/// ```text
///          lend                  end                  give_back(Keep)
///   MINE ───────► AWAY ─────────────────► ENDING ───────────────────► KEPT ────┐
///    ▲             │ │ poll_return          │ poll_return                      │
///    │             │ ▼                      ▼         give_back(Close)         │
///    │             │ WAITED ────────► ENDING_WAITED ────────────────► CLOSED   │
///    │             │ │    end                                                  │ reclaim
///    │             ├─┴─ start_flow: the driver writes on ───────────► FLOWING ─┤
///    │             └─── seize: a deadline passed ───────────────────► SEIZED   │
///    └─────────────────────────────────────────────────────────────────────────┘
/// ```
///
/// AWAY and WAITED each have a twin (`SPOKEN`, `SPOKEN_WAITED`) from when the pool thread is about to send the
/// first byte of its reply (`speak`): a driver that seizes the exchange before may answer in its place, one
/// that does so afterwards can only cut the connection.
///
/// A reply that the socket took whole is given back without waking the driver: the client's next request
/// does that. Only when the driver has asked (WAITED), or has something to do, is it woken. Between `end`
/// and `give_back` the pool thread writes the record: the next exchange of the connection cannot overtake
/// it on its way to the log.
pub(crate) struct Turnstile {
    state: AtomicU8,
    waker: WakerCell,
}

const MINE: u8 = 0;
const AWAY: u8 = 1;
const WAITED: u8 = 2;
const ENDING: u8 = 3;
const ENDING_WAITED: u8 = 4;
const KEPT: u8 = 5;
const CLOSED: u8 = 6;
const FLOWING: u8 = 7;
const SEIZED: u8 = 8;
/// As AWAY, with a reply that may be on its way.
const SPOKEN: u8 = 9;
/// As WAITED, with a reply that may be on its way.
const SPOKEN_WAITED: u8 = 10;

/// What the driver finds when an exchange that was away is its own again.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Returned {
    /// The reply is out; the connection goes on.
    Keep,
    /// The reply is out or given up; the connection ends.
    Close,
    /// The socket did not take everything: the driver writes from here on.
    Flow,
}

/// What follows an exchange that a pool thread has ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Onward {
    Keep,
    Close,
}

/// The pool thread came too late: the driver has ended the exchange already.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Seized;

/// What the client may have of the reply of an exchange that the driver has seized.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Said {
    /// Nothing: the driver may answer.
    Nothing,
    /// A part of it: nobody else can answer.
    Something,
}

/// Whether the driver wants to be woken when the exchange comes back.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Wish {
    /// No: the client's next bytes wake the driver.
    Silent,
    /// Yes: there is more to do at once, such as a pipelined request.
    Woken,
}

impl Turnstile {
    pub(crate) fn new() -> Self {
        Self {
            state: AtomicU8::new(MINE),
            waker: WakerCell::new(),
        }
    }

    /// Driver: the pool may write. `context` is remembered for a wake-up.
    pub(crate) fn lend(&self, wish: Wish, context: &Context<'_>) {
        self.watch(context);
        let state = match wish {
            Wish::Silent => AWAY,
            Wish::Woken => WAITED,
        };
        self.state.store(state, Ordering::Release);
    }

    /// Driver: is the connection ours again? If not, asks to be woken when it is.
    pub(crate) fn poll_return(&self, context: &Context<'_>) -> Poll<Returned> {
        if let Some(returned) = self.returned() {
            return Poll::Ready(returned);
        }
        self.watch(context);
        // Refused when the pool thread was faster, or when a wake-up is wished for already.
        let _ = self.step(|state| match state {
            AWAY => Some(WAITED),
            SPOKEN => Some(SPOKEN_WAITED),
            ENDING => Some(ENDING_WAITED),
            _ => None,
        });
        self.returned().map_or(Poll::Pending, Poll::Ready)
    }

    /// Driver: what came back, if anything; asks for nothing.
    pub(crate) fn returned(&self) -> Option<Returned> {
        match self.state.load(Ordering::Acquire) {
            KEPT => Some(Returned::Keep),
            CLOSED => Some(Returned::Close),
            FLOWING => Some(Returned::Flow),
            _ => None,
        }
    }

    /// Driver: wishes to be woken by `wake`, without asking for the exchange itself.
    pub(crate) fn watch(&self, context: &Context<'_>) {
        self.waker.register(context.waker());
    }

    /// Driver: takes the connection back after `returned`.
    pub(crate) fn reclaim(&self) {
        self.state.store(MINE, Ordering::Release);
    }

    /// Driver: ends an exchange that is still away. `None` when the pool thread was first; else the driver now
    /// has to log it.
    pub(crate) fn seize(&self) -> Option<Said> {
        let before = self.step(|state| is_away(state).then_some(SEIZED)).ok()?;
        Some(match before {
            AWAY | WAITED => Said::Nothing,
            _ => Said::Something,
        })
    }

    /// Pool thread: whether the driver has ended the exchange.
    pub(crate) fn is_seized(&self) -> bool {
        self.state.load(Ordering::Acquire) == SEIZED
    }

    /// Pool thread: before the first byte of a reply is offered to the socket.
    pub(crate) fn speak(&self) -> Result<(), Seized> {
        let spoken = self.step(|state| match state {
            AWAY => Some(SPOKEN),
            WAITED => Some(SPOKEN_WAITED),
            _ => None,
        });
        spoken.map(drop).map_err(|_| Seized)
    }

    /// Pool thread: the reply is out (or given up), and the record is this thread's to write.
    pub(crate) fn end(&self) -> Result<(), Seized> {
        let ended = self.step(|state| match state {
            AWAY | SPOKEN => Some(ENDING),
            WAITED | SPOKEN_WAITED => Some(ENDING_WAITED),
            _ => None,
        });
        ended.map(drop).map_err(|_| Seized)
    }

    /// Pool thread, after `end`: the connection is the driver's again.
    pub(crate) fn give_back(&self, onward: Onward) {
        let state = match onward {
            Onward::Keep => KEPT,
            Onward::Close => CLOSED,
        };
        let before = self.state.swap(state, Ordering::AcqRel);
        if before == ENDING_WAITED || onward == Onward::Close {
            self.waker.wake();
        }
    }

    /// Pool thread: the socket is full, the driver writes from here on.
    pub(crate) fn start_flow(&self) -> Result<(), Seized> {
        let flowing = self.step(|state| is_away(state).then_some(FLOWING));
        flowing.map_err(|_| Seized)?;
        self.waker.wake();
        Ok(())
    }

    /// Pool thread: wakes the driver once more, such as for a further piece of a flowing reply. Only
    /// after `start_flow`: a wake-up uses the waker up, and a driver that has not got the exchange back
    /// would not renew it.
    pub(crate) fn wake(&self) {
        self.waker.wake();
    }

    fn step(&self, next: impl Fn(u8) -> Option<u8>) -> Result<u8, u8> {
        self.state
            .fetch_update(Ordering::AcqRel, Ordering::Acquire, next)
    }
}

/// Whether a pool thread has the exchange and has not begun to end it.
fn is_away(state: u8) -> bool {
    matches!(state, AWAY | WAITED | SPOKEN | SPOKEN_WAITED)
}
