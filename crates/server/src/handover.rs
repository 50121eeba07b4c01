//! The two places where an exchange changes threads: the pool's queue, and the turnstile that says
//! whether the driver or a pool thread may write to a connection.
//!
//! Takes opaque items, gives them on; touches no socket, no clock, no Python. Built only on `sync`, so
//! that `crates/model` can check every interleaving of it with loom.

use std::collections::VecDeque;
use std::task::{Context, Poll};
use std::time::Duration;

use crate::sync::{
    Arc, AtomicU8, AtomicUsize, Condvar, Mutex, Ordering, WakerCell, lock, wait, wait_timeout,
};

/// A bounded queue, first in first out, in front of threads that idle last in first out.
///
/// Waiting items and idle threads are kept under one lock: "the queue is empty, so I sleep" and "there
/// is an item, so I wake somebody" cannot miss each other.
pub(crate) struct Queue<T> {
    state: Mutex<QueueState<T>>,
    /// Rung when the queue has become short while a producer rests.
    short: Condvar,
    /// Items admitted and not yet taken, those that still wait in a driver's outbox included.
    admitted: AtomicUsize,
    len_max: usize,
}

struct QueueState<T> {
    waiting: VecDeque<T>,
    /// Sleeping threads; the one that went to sleep last has the warmest caches and is called first.
    idle: Vec<Arc<Chair>>,
    /// Producers that rest until the queue is short.
    resting: usize,
    closed: bool,
}

/// With so few items waiting, a resting producer is called: it needs a moment to come back with more.
const SHORT_LEN: usize = 2;

/// Where one pool thread sleeps.
#[derive(Default)]
pub(crate) struct Chair {
    called: Mutex<bool>,
    bell: Condvar,
}

impl<T> Queue<T> {
    /// A queue that admits at most `len_max` waiting items.
    pub(crate) fn new(len_max: usize) -> Self {
        let state = QueueState {
            waiting: VecDeque::new(),
            idle: Vec::new(),
            resting: 0,
            closed: false,
        };
        Self {
            state: Mutex::new(state),
            short: Condvar::new(),
            admitted: AtomicUsize::new(0),
            len_max,
        }
    }

    /// Reserves a place for one item; false when the queue is full. A reserved item must be pushed.
    pub(crate) fn admit(&self) -> bool {
        let before = self.admitted.fetch_add(1, Ordering::Relaxed);
        if before >= self.len_max {
            self.admitted.fetch_sub(1, Ordering::Relaxed);
            return false;
        }
        true
    }

    /// Items admitted and not yet taken.
    pub(crate) fn len(&self) -> usize {
        self.admitted.load(Ordering::Relaxed)
    }

    /// Appends admitted items and wakes as many sleeping threads as there are items for: one lock and at
    /// most one wake-up per sleeping thread, however many items.
    pub(crate) fn push(&self, items: &mut Vec<T>) {
        let mut called = Vec::new();
        {
            let mut state = lock(&self.state);
            let wanted = items.len().min(state.idle.len());
            state.waiting.extend(items.drain(..));
            let keep = state.idle.len() - wanted;
            called.extend(state.idle.drain(keep..).rev());
        }
        for chair in called {
            chair.call();
        }
    }

    /// Takes the oldest item without waiting.
    pub(crate) fn take_now(&self) -> Option<T> {
        let (item, is_short) = lock(&self.state).take()?;
        self.taken(is_short);
        Some(item)
    }

    fn taken(&self, is_short: bool) {
        self.admitted.fetch_sub(1, Ordering::Relaxed);
        if is_short {
            self.short.notify_all();
        }
    }

    /// Producer: rests until the queue is short, at most for `longest`.
    pub(crate) fn rest(&self, longest: Duration) {
        let mut state = lock(&self.state);
        if state.waiting.len() > SHORT_LEN {
            state.resting += 1;
            // Called or not: whoever calls has reset the count; a count that is too high costs one call.
            drop(wait_timeout(&self.short, state, longest));
        }
    }

    /// Takes the oldest item, sleeping in `chair` until there is one. `None` once the queue is closed
    /// and empty.
    pub(crate) fn take(&self, chair: &Arc<Chair>) -> Option<T> {
        loop {
            {
                let mut state = lock(&self.state);
                if let Some((item, is_short)) = state.take() {
                    drop(state);
                    self.taken(is_short);
                    return Some(item);
                }
                if state.closed {
                    return None;
                }
                state.idle.push(Arc::clone(chair));
            }
            chair.sleep();
        }
    }

    /// Threads asleep.
    pub(crate) fn idle_len(&self) -> usize {
        lock(&self.state).idle.len()
    }

    /// Lets the threads end once the queue is empty.
    pub(crate) fn close(&self) {
        let idle = {
            let mut state = lock(&self.state);
            state.closed = true;
            std::mem::take(&mut state.idle)
        };
        for chair in idle {
            chair.call();
        }
    }
}

impl<T> QueueState<T> {
    /// The oldest item, and whether resting producers are to be called.
    fn take(&mut self) -> Option<(T, bool)> {
        let item = self.waiting.pop_front()?;
        let is_short = self.resting > 0 && self.waiting.len() <= SHORT_LEN;
        if is_short {
            self.resting = 0;
        }
        Some((item, is_short))
    }
}

impl Chair {
    fn sleep(&self) {
        let mut called = lock(&self.called);
        while !*called {
            called = wait(&self.bell, called);
        }
        *called = false;
    }

    fn call(&self) {
        *lock(&self.called) = true;
        self.bell.notify_one();
    }
}

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
///    │             └─── seize: the drain deadline passed ───────────► SEIZED   │
///    └─────────────────────────────────────────────────────────────────────────┘
/// ```
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

    /// Driver: ends an exchange that is still away. True when the driver now has to log it, false when
    /// the pool thread was first.
    pub(crate) fn seize(&self) -> bool {
        let away = |state| matches!(state, AWAY | WAITED);
        self.step(|state| away(state).then_some(SEIZED)).is_ok()
    }

    /// Pool thread: whether the driver has ended the exchange.
    pub(crate) fn is_seized(&self) -> bool {
        self.state.load(Ordering::Acquire) == SEIZED
    }

    /// Pool thread: the reply is out (or given up), and the record is this thread's to write.
    pub(crate) fn end(&self) -> Result<(), Seized> {
        let ended = self.step(|state| match state {
            AWAY => Some(ENDING),
            WAITED => Some(ENDING_WAITED),
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
        let away = |state| matches!(state, AWAY | WAITED);
        let flowing = self.step(|state| away(state).then_some(FLOWING));
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
