//! The streams of a connection: what its task and their tasks share of each.
//!
//! Takes resets, turns and deadlines from the connection's task, gives them to the tasks of the streams, which it wakes.
//! Touches neither the client nor the `h2` crate.

use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Context, Waker};

use telemetry::{ResetBy, Stamp};
use tokio::sync::OwnedSemaphorePermit;

use super::priority::Priority;
use crate::exchange::stream::StreamShared;

/// Priorities that came before their streams are remembered for so many (RFC 9218 section 7.1).
const EARLY_PRIORITIES_MAX: usize = 16;

/// One stream.
pub(super) struct StreamSlot {
    pub(super) number: u32,
    pub(super) priority: Cell<Priority>,
    pub(super) turn: Cell<Turn>,
    /// Who reset it, and for which reason.
    reset: Cell<(ResetBy, u32)>,
    /// Until when its task waits.
    pub(super) deadline: Cell<Stamp>,
    /// The deadline has passed.
    pub(super) is_due: Cell<bool>,
    /// What the client sends are messages: small ones are no odd work.
    pub(super) takes_messages: Cell<bool>,
    waker: RefCell<Option<Waker>>,
}

/// Whether a stream may send.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Turn {
    /// It has not asked.
    Idle,
    Waiting,
    /// So many bytes.
    Granted(usize),
}

/// What still works for a stream whose client is gone.
pub(super) struct Abandoned {
    /// Shared with the queue or the worker until that lets go of it.
    pub(super) stream: Arc<StreamShared>,
    /// Its place among those that may be at a pool.
    pub(super) _place: OwnedSemaphorePermit,
}

/// The streams that a connection has, and those whose work has not ended.
#[derive(Default)]
pub(super) struct StreamTable {
    slots: HashMap<u32, Rc<StreamSlot>>,
    abandoned: Vec<Abandoned>,
    early_priorities: Vec<(u32, Priority)>,
}

impl StreamSlot {
    /// Its task waits: it is woken by this context.
    pub(super) fn watch(&self, context: &Context<'_>) {
        let mut waker = self.waker.borrow_mut();
        if waker
            .as_ref()
            .is_none_or(|known| !known.will_wake(context.waker()))
        {
            *waker = Some(context.waker().clone());
        }
    }

    /// One end has reset the stream; the first one counts.
    pub(super) fn note_reset(&self, by: ResetBy, code: u32) {
        if !self.is_reset() {
            self.reset.set((by, code));
        }
    }

    pub(super) fn is_reset(&self) -> bool {
        self.reset.get().0 != ResetBy::None
    }

    pub(super) fn reset(&self) -> (ResetBy, u32) {
        self.reset.get()
    }

    pub(super) fn wake(&self) {
        // By reference: a task registers once.
        if let Some(waker) = &*self.waker.borrow() {
            waker.wake_by_ref();
        }
    }
}

impl StreamTable {
    /// Streams that count toward the limit: a reset one until the work that it has caused has ended (CVE-2023-44487).
    pub(super) fn len(&self) -> usize {
        self.slots.len() + self.abandoned.len()
    }

    /// A slot for a new stream, which counts from its entrance on.
    pub(super) fn open(&mut self, number: u32, priority: Priority) -> Rc<StreamSlot> {
        let early = self
            .early_priorities
            .iter()
            .position(|(stream, _)| *stream == number);
        let priority = early.map_or(priority, |index| self.early_priorities.swap_remove(index).1);
        Rc::new(StreamSlot {
            number,
            priority: Cell::new(priority),
            turn: Cell::new(Turn::Idle),
            reset: Cell::new((ResetBy::None, 0)),
            deadline: Cell::new(Stamp::NEVER),
            is_due: Cell::default(),
            takes_messages: Cell::default(),
            waker: RefCell::default(),
        })
    }

    pub(super) fn enter(&mut self, slot: Rc<StreamSlot>) {
        self.slots.insert(slot.number, slot);
    }

    pub(super) fn leave(&mut self, number: u32) {
        self.slots.remove(&number);
    }

    pub(super) fn get(&self, number: u32) -> Option<&Rc<StreamSlot>> {
        self.slots.get(&number)
    }

    /// A stream has ended whose work has not.
    pub(super) fn keep_abandoned(&mut self, abandoned: Abandoned) {
        self.abandoned.push(abandoned);
    }

    /// Lets go of those whose work has ended; whether others are left.
    pub(super) fn look_at_abandoned(&mut self) -> bool {
        // The queue drops what was revoked, and a worker its end when it is done: nobody else has one.
        self.abandoned
            .retain(|abandoned| Arc::strong_count(&abandoned.stream) > 1);
        !self.abandoned.is_empty()
    }

    /// The client reprioritises a stream, perhaps before it begins.
    pub(super) fn set_priority(&mut self, number: u32, priority: Priority) {
        match self.slots.get(&number) {
            Some(slot) => slot.priority.set(priority),
            None => {
                self.early_priorities
                    .retain(|(stream, _)| *stream != number);
                if self.early_priorities.len() == EARLY_PRIORITIES_MAX {
                    self.early_priorities.remove(0);
                }
                self.early_priorities.push((number, priority));
            }
        }
    }

    pub(super) fn wake_all(&self) {
        self.slots.values().for_each(|slot| slot.wake());
    }

    /// The earliest deadline.
    pub(super) fn deadline(&self) -> Stamp {
        let deadlines = self.slots.values().map(|slot| slot.deadline.get());
        deadlines.min().unwrap_or(Stamp::NEVER)
    }

    /// Wakes the streams whose deadline has passed.
    pub(super) fn wake_due(&self, now: Stamp) {
        for slot in self.slots.values() {
            if slot.deadline.get() <= now {
                slot.deadline.set(Stamp::NEVER);
                slot.is_due.set(true);
                slot.wake();
            }
        }
    }
}
