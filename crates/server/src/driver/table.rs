//! The table of a driver's connections: deadlines, what each is doing, and how to wake it.
//!
//! Deadlines are plain numbers that a connection overwrites, which costs a store per request; a scan a
//! few times a second wakes those that have passed. Ten thousand connections are 500 KB in a row: tens
//! of microseconds a scan.

use std::sync::Arc;
use std::task::Waker;

use measure::Stamp;

use crate::delivery::Door;
use crate::handover::Returned;
use crate::stats::Doing;

/// A driver's connections.
#[derive(Default)]
pub(super) struct Table {
    slots: Vec<Option<Slot>>,
    free: Vec<usize>,
}

struct Slot {
    deadline: Stamp,
    doing: Doing,
    /// Woken by its deadline or by a change of the driver's mood; reset by the connection.
    fired: bool,
    waker: Option<Waker>,
    door: Arc<Door>,
}

impl Table {
    pub(super) fn enter(&mut self, door: Arc<Door>, deadline: Stamp) -> usize {
        let slot = Slot {
            deadline,
            doing: Doing::Idle,
            fired: false,
            waker: None,
            door,
        };
        match self.free.pop() {
            Some(index) => {
                self.slots[index] = Some(slot);
                index
            }
            None => {
                self.slots.push(Some(slot));
                self.slots.len() - 1
            }
        }
    }

    pub(super) fn leave(&mut self, index: usize) {
        self.slots[index] = None;
        self.free.push(index);
    }

    pub(super) fn len(&self) -> usize {
        self.slots.len() - self.free.len()
    }

    /// Remembers how to wake the connection's task; once per task is enough.
    pub(super) fn set_waker(&mut self, index: usize, waker: &Waker) {
        self.slot(index).waker = Some(waker.clone());
    }

    pub(super) fn set(&mut self, index: usize, doing: Doing, deadline: Stamp) {
        let slot = self.slot(index);
        slot.doing = doing;
        slot.deadline = deadline;
    }

    /// Whether the connection was woken by its deadline or by the driver; resets it.
    pub(super) fn take_fired(&mut self, index: usize) -> bool {
        std::mem::take(&mut self.slot(index).fired)
    }

    pub(super) fn deadline(&mut self, index: usize) -> Stamp {
        self.slot(index).deadline
    }

    /// Wakes every connection whose deadline has passed.
    pub(super) fn fire_due(&mut self, now: Stamp) {
        for slot in self.slots.iter_mut().flatten() {
            if slot.deadline <= now {
                slot.fire();
            }
        }
    }

    /// Wakes every connection.
    pub(super) fn fire_all(&mut self) {
        self.slots.iter_mut().flatten().for_each(Slot::fire);
    }

    /// How many connections are doing what. One whose reply came back silently is idle.
    pub(super) fn count(&self) -> [u32; Doing::COUNT] {
        let mut counts = [0; Doing::COUNT];
        for slot in self.slots.iter().flatten() {
            let back =
                slot.doing == Doing::Away && slot.door.turnstile.returned() == Some(Returned::Keep);
            let doing = if back { Doing::Idle } else { slot.doing };
            counts[doing as usize] += 1;
        }
        counts
    }

    fn slot(&mut self, index: usize) -> &mut Slot {
        self.slots[index]
            .as_mut()
            .expect("a connection's slot is its own until it leaves")
    }
}

impl Slot {
    fn fire(&mut self) {
        self.fired = true;
        if let Some(waker) = &self.waker {
            waker.wake_by_ref();
        }
    }
}
