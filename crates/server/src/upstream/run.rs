//! The exchanges that a driver has at upstreams: what wakes the task of each, and its deadline.
//!
//! Deadlines are numbers, which the driver looks at four times a second: a new one costs a store.

use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::sync::Arc;

use telemetry::{Nanos, Stamp};

use crate::exchange::stream::{StreamEvent, StreamObserver, TaskSignals};

/// Those that are kept for the next exchanges.
const SPARE_LEN_MAX: usize = 64;

/// One exchange at an upstream.
pub(super) struct UpstreamRun {
    pub(super) signals: Arc<TaskSignals>,
    /// When `StreamEvent::Due` follows; NEVER: not.
    due: Cell<Stamp>,
    /// Its response has no end of its own.
    is_endless: Cell<bool>,
    /// When it is ended because the process drains.
    drains: Cell<Stamp>,
    /// Its place among those of its driver.
    place: Cell<usize>,
}

/// Those of one driver.
#[derive(Default)]
pub(super) struct UpstreamRuns {
    running: RefCell<Vec<Rc<UpstreamRun>>>,
    spare: RefCell<Vec<Rc<UpstreamRun>>>,
}

impl UpstreamRun {
    pub(super) fn observer(&self) -> StreamObserver {
        StreamObserver::Task(Arc::clone(&self.signals))
    }

    /// `StreamEvent::Due` follows soon after `due`, and not before it.
    pub(super) fn set_due(&self, due: Stamp) {
        self.due.set(due);
    }

    /// Whether it has to be ended while the process drains.
    pub(super) fn set_endless(&self, is_endless: bool) {
        self.is_endless.set(is_endless);
    }
}

impl UpstreamRuns {
    pub(super) fn enter(&self) -> Rc<UpstreamRun> {
        let one = self.spare.borrow_mut().pop();
        // One of which another thread still has the signals would hear of an exchange that has ended.
        let one = one.filter(|one| Arc::strong_count(&one.signals) == 1);
        let one = one.unwrap_or_else(|| {
            Rc::new(UpstreamRun {
                signals: Arc::default(),
                due: Cell::new(Stamp::NEVER),
                is_endless: Cell::new(false),
                drains: Cell::new(Stamp::NEVER),
                place: Cell::new(0),
            })
        });
        one.signals.renew();
        one.due.set(Stamp::NEVER);
        one.is_endless.set(false);
        one.drains.set(Stamp::NEVER);
        let mut running = self.running.borrow_mut();
        one.place.set(running.len());
        running.push(Rc::clone(&one));
        one
    }

    pub(super) fn leave(&self, one: Rc<UpstreamRun>) {
        let mut running = self.running.borrow_mut();
        let place = one.place.get();
        running.swap_remove(place);
        if let Some(moved) = running.get(place) {
            moved.place.set(place);
        }
        let mut spare = self.spare.borrow_mut();
        if spare.len() < SPARE_LEN_MAX {
            spare.push(one);
        }
    }

    /// Ends all: their clients are gone, or are about to be.
    pub(super) fn stop_all(&self) {
        for one in &*self.running.borrow() {
            one.signals.send(StreamEvent::ClientGone);
        }
    }

    pub(super) fn len(&self) -> usize {
        self.running.borrow().len()
    }

    /// Wakes those whose deadlines have passed.
    pub(super) fn fire_due(&self, now: Stamp) {
        for one in &*self.running.borrow() {
            if one.due.get() <= now {
                one.due.set(Stamp::NEVER);
                one.signals.send(StreamEvent::Due);
            }
        }
    }

    /// The process drains: ends what has no end of its own, one after the other within `drain`, so that not all clients
    /// come again at once.
    pub(super) fn drain(&self, now: Stamp, drain: Nanos) {
        let running = self.running.borrow();
        let share = drain.0 / running.len().max(1) as u64;
        for (place, one) in running.iter().enumerate() {
            if !one.is_endless.get() {
                continue;
            }
            if one.drains.get() == Stamp::NEVER {
                one.drains.set(now.plus(Nanos(share * place as u64)));
            }
            if one.drains.get() <= now {
                one.is_endless.set(false);
                one.signals.send(StreamEvent::Drained);
            }
        }
    }
}
