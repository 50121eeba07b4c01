//! The inbox of an event loop: what happens to the exchanges that are inside, from any thread, and how a sleeping loop is
//! woken.

use std::fs::File;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use rustix::event::EventfdFlags;

use crate::loop_load::LoopLoad;
use crate::loop_wakeup::LoopWakeup;
use crate::sync::lock;
use telemetry::{Nanos, Stamp};

/// Something that has happened to an exchange inside the loop, by its key, or to all of them.
#[derive(Debug)]
pub enum LoopEvent {
    /// The client has ended its side, or was given up.
    ClientGone(u64),
    /// The driver has answered in place of the application, which took too long.
    Overdue(u64),
    /// The client has taken enough for more to be sent.
    Room(u64),
    /// Bytes of a body that were asked for.
    Body(u64, io::Result<Vec<u8>>),
    /// A file that was to be opened, with its length.
    Opened(u64, io::Result<(File, u64)>),
    /// Bytes of a span of a file that were asked for.
    Span(u64, io::Result<Vec<u8>>),
    /// A message of a WebSocket connection has come, or its end.
    Message(u64),
    /// The WebSocket connection of a task has ended, and its application has not, for long enough.
    Cancel(u64),
    /// The process drains: responses that have no end of their own are to end, one after the other.
    Drain,
    /// All that is inside is to end: the time of the process is up.
    CancelAll,
}

/// Events of the exchanges inside one loop. Of each exchange a few wait: they happen once, or are asked for, or are those of
/// a client that has gone, which its driver finds at each of its looks while the loop takes none.
#[derive(Debug)]
pub(crate) struct LoopInbox {
    events: Mutex<Vec<LoopEvent>>,
    wakeup: LoopWakeup,
    /// Written when the loop is to be woken.
    fd: OwnedFd,
    /// Something has come: a driver on the same processor is to let the loop go first.
    is_called: AtomicBool,
    /// When the process is to have ended; 0 while nothing ends it.
    end: AtomicU64,
    pub(crate) load: LoopLoad,
}

impl LoopInbox {
    pub(crate) fn new() -> io::Result<Self> {
        let flags = EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK;
        Ok(Self {
            events: Mutex::default(),
            wakeup: LoopWakeup::new(),
            fd: rustix::event::eventfd(0, flags)?,
            is_called: AtomicBool::new(false),
            end: AtomicU64::new(0),
            load: LoopLoad::default(),
        })
    }

    /// From any thread.
    pub(crate) fn send(&self, event: LoopEvent) {
        self.post(event);
        self.wake();
    }

    /// From any thread: an event of which a loop that is awake hears at once, and one that sleeps by the `wake` that is
    /// to follow.
    pub(crate) fn post(&self, event: LoopEvent) {
        lock(&self.events).push(event);
        self.load.await_look();
    }

    /// Adds what has come to `events`.
    pub(crate) fn take(&self, events: &mut Vec<LoopEvent>) {
        events.append(&mut lock(&self.events));
    }

    /// The process is to have ended by then.
    pub(crate) fn end_by(&self, end: Stamp) {
        self.end.store(end.0, Ordering::Relaxed);
    }

    /// When the process is to have ended, if something ends it.
    pub(crate) fn end(&self) -> Option<Stamp> {
        let end = Stamp(self.end.load(Ordering::Relaxed));
        (end != Stamp::ZERO).then_some(end)
    }

    /// Something else has come for the loop.
    pub(crate) fn wake(&self) {
        self.load.await_look();
        self.is_called.store(true, Ordering::Relaxed);
        if self.wakeup.call() {
            // It cannot be full: the counter holds far more than one.
            let _ = rustix::io::write(&self.fd, &1_u64.to_ne_bytes());
        }
    }

    /// Whether something has come for the loop since this was asked last.
    pub(crate) fn take_called(&self) -> bool {
        self.is_called.load(Ordering::Relaxed) && self.is_called.swap(false, Ordering::Relaxed)
    }

    /// Readable once there is something to do after `sleep`.
    pub(crate) fn wakeup(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }

    /// Empties the descriptor.
    pub(crate) fn clear_wakeup(&self) {
        // Without a byte in it, it is empty.
        let _ = rustix::io::read(&self.fd, &mut [0; 8]);
    }

    /// The loop begins to look: what comes from now on is seen, or keeps it from sleeping. How long it was waited for.
    pub(crate) fn begin_look(&self, now: Stamp) -> Nanos {
        self.wakeup.begin_look();
        self.load.begin_look(now)
    }

    /// Whether the loop may sleep: nothing has come since it began to look.
    pub(crate) fn sleep(&self) -> bool {
        self.wakeup.sleep()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn written(inbox: &LoopInbox) -> u64 {
        let mut count = [0; 8];
        let read = rustix::io::read(&inbox.fd, &mut count);
        read.map_or(0, |_| u64::from_ne_bytes(count))
    }

    #[test]
    fn the_descriptor_is_written_once_and_only_while_the_loop_sleeps() {
        let inbox = LoopInbox::new().unwrap();
        inbox.send(LoopEvent::Room(1));
        assert_eq!(written(&inbox), 0);
        inbox.begin_look(Stamp::ZERO);
        assert!(inbox.take_called());
        assert!(inbox.sleep());
        assert!(!inbox.take_called());
        for key in 0..3 {
            inbox.send(LoopEvent::ClientGone(key));
        }
        assert_eq!(written(&inbox), 1);
        inbox.begin_look(Stamp::ZERO);
        assert!(inbox.sleep());
        inbox.post(LoopEvent::Message(3));
        assert_eq!(written(&inbox), 0);
        inbox.wake();
        assert_eq!(written(&inbox), 1);
        assert_eq!([(); 2].map(|()| inbox.take_called()), [true, false]);
    }

    #[test]
    fn what_comes_during_a_look_keeps_the_loop_awake() {
        let inbox = LoopInbox::new().unwrap();
        inbox.begin_look(Stamp::ZERO);
        inbox.send(LoopEvent::Room(1));
        assert!(!inbox.sleep());
        inbox.begin_look(Stamp::ZERO);
        assert!(inbox.sleep());
        assert_eq!(written(&inbox), 0);
    }
}
