//! What hears of a stream while something other than its driver's connection has the exchange: an event loop, or a task
//! of a driver that waits for an upstream.

use std::sync::Arc;

use crate::loop_inbox::{LoopEvent, LoopInbox};
use crate::sync::{AtomicU8, Ordering, WakerCell};

/// Something that has happened to a stream.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
pub(crate) enum StreamEvent {
    /// The client has ended its side, or was given up.
    ClientGone = 1,
    /// The driver has answered in place of the one who has the exchange, who took too long.
    Overdue = 2,
    /// The client has taken enough for more to be sent.
    Room = 4,
    /// A piece of the body has come, or its end.
    Body = 8,
    /// A deadline of the task has passed.
    Due = 16,
    /// The process ends, and with it what has no end of its own.
    Drained = 32,
}

/// What hears of one stream.
#[derive(Clone)]
pub(crate) enum StreamObserver {
    /// An event loop, which knows the exchange by this number.
    Loop(Arc<LoopInbox>, u64),
    /// A task of a driver.
    Task(Arc<TaskSignals>),
}

/// Events on their way to one task of a driver, from any thread.
#[derive(Default)]
pub(crate) struct TaskSignals {
    events: AtomicU8,
    waker: WakerCell,
}

impl StreamObserver {
    pub(crate) fn notify(&self, event: StreamEvent) {
        match self {
            StreamObserver::Loop(inbox, key) => inbox.send(match event {
                StreamEvent::ClientGone => LoopEvent::ClientGone(*key),
                StreamEvent::Overdue => LoopEvent::Overdue(*key),
                StreamEvent::Room => LoopEvent::Room(*key),
                StreamEvent::Body => LoopEvent::Message(*key),
                StreamEvent::Due | StreamEvent::Drained => return,
            }),
            StreamObserver::Task(signals) => signals.send(event),
        }
    }
}

impl TaskSignals {
    /// From any thread.
    pub(crate) fn send(&self, event: StreamEvent) {
        self.events.fetch_or(event as u8, Ordering::AcqRel);
        self.waker.wake();
    }

    /// Task: it is woken by what comes from now on.
    pub(crate) fn listen(&self, context: &std::task::Context<'_>) {
        self.waker.register(context.waker());
    }

    /// Task: whether this has happened, since it was taken last.
    pub(crate) fn take(&self, event: StreamEvent) -> bool {
        let bit = event as u8;
        self.events.load(Ordering::Acquire) & bit != 0
            && self.events.fetch_and(!bit, Ordering::AcqRel) & bit != 0
    }

    /// Task: whether this has happened.
    pub(crate) fn has(&self, event: StreamEvent) -> bool {
        self.events.load(Ordering::Acquire) & event as u8 != 0
    }

    /// Task: it is for another exchange now.
    pub(crate) fn renew(&self) {
        self.events.store(0, Ordering::Release);
    }
}
