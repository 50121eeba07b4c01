//! The exchanges that a driver has at upstreams: the task of each, what wakes it, and its deadline.
//!
//! A task serves one exchange after the other: a new one for each would cost an allocation and a copy of all that it
//! holds. Deadlines are numbers, which the driver looks at four times a second: a new one costs a store.

use std::cell::{Cell, RefCell};
use std::future::poll_fn;
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Poll, Waker};

use telemetry::{Nanos, Stamp};

use super::group::UpstreamSlot;
use crate::exchange::stream::{StreamEvent, StreamObserver, TaskSignals};
use crate::pool::Assignment;
use crate::sync::invariant;

/// Those that are kept for the next exchanges.
const SPARE_LEN_MAX: usize = 64;

/// An exchange that a task is to serve.
pub(super) struct AssignedRun {
    /// Index of its pool.
    pub(super) pool: usize,
    pub(super) assignment: Assignment,
    /// Its place, where that does not depend on the request.
    pub(super) slot: Option<UpstreamSlot>,
}

/// One exchange at an upstream, and then the next one.
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
    /// What its task is to serve next.
    assigned: RefCell<Option<AssignedRun>>,
    /// Its task, which waits for the next exchange.
    waiting: RefCell<Option<Waker>>,
    /// Its task is to end.
    is_over: Cell<bool>,
}

/// Those of one driver.
#[derive(Default)]
pub(super) struct UpstreamRuns {
    running: RefCell<Vec<Rc<UpstreamRun>>>,
    spare: RefCell<Vec<Rc<UpstreamRun>>>,
}

impl UpstreamRun {
    /// The next exchange for its task, which waits for one; `None`: the task is to end.
    pub(super) async fn next(&self) -> Option<AssignedRun> {
        poll_fn(|context| {
            if let Some(assigned) = self.assigned.borrow_mut().take() {
                return Poll::Ready(Some(assigned));
            }
            if self.is_over.get() {
                return Poll::Ready(None);
            }
            *self.waiting.borrow_mut() = Some(context.waker().clone());
            Poll::Pending
        })
        .await
    }

    fn wake(&self) {
        // A task that comes to its next exchange by itself needs no waking.
        if let Some(waiting) = self.waiting.borrow_mut().take() {
            waiting.wake();
        }
    }

    fn end(&self) {
        self.is_over.set(true);
        self.wake();
    }

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
    /// Has a task serve an exchange. Gives one that needs a task yet.
    pub(super) fn begin(&self, assigned: AssignedRun) -> Option<Rc<UpstreamRun>> {
        let spare = self.spare.borrow_mut().pop();
        // One of which another thread still has the signals would hear of an exchange that has ended.
        let spare = spare.filter(|one| {
            let is_free = Arc::strong_count(&one.signals) == 1;
            if !is_free {
                one.end();
            }
            is_free
        });
        let is_new = spare.is_none();
        let one = spare.unwrap_or_else(|| {
            Rc::new(UpstreamRun {
                signals: Arc::default(),
                due: Cell::new(Stamp::NEVER),
                is_endless: Cell::new(false),
                drains: Cell::new(Stamp::NEVER),
                place: Cell::new(0),
                assigned: RefCell::default(),
                waiting: RefCell::default(),
                is_over: Cell::new(false),
            })
        });
        one.signals.renew();
        one.due.set(Stamp::NEVER);
        one.is_endless.set(false);
        one.drains.set(Stamp::NEVER);
        let before = one.assigned.replace(Some(assigned));
        invariant!(
            before.is_none(),
            "a task at an upstream gets a second exchange"
        );
        let mut running = self.running.borrow_mut();
        one.place.set(running.len());
        running.push(Rc::clone(&one));
        one.wake();
        is_new.then_some(one)
    }

    /// Its exchange has ended: it may get another one.
    pub(super) fn leave(&self, one: &Rc<UpstreamRun>) {
        let mut running = self.running.borrow_mut();
        let place = one.place.get();
        running.swap_remove(place);
        if let Some(moved) = running.get(place) {
            moved.place.set(place);
        }
        let mut spare = self.spare.borrow_mut();
        match spare.len() < SPARE_LEN_MAX {
            true => spare.push(Rc::clone(one)),
            false => one.end(),
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
