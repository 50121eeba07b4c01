//! The mailbox of a thread that accepts: commands from other threads, connections among them.
//!
//! Takes commands from any thread and gives them to one thread in order, with one wake-up for all that come
//! before that thread looks. A thread that ends closes its mailbox, so that no connection is left in it. The
//! length is bounded by what commands are about: sockets and open connections. The latest heartbeat is a number
//! beside them.

use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};

use telemetry::Nanos;
use tokio::sync::Notify;

use super::handoff::AcceptedConnection;
use crate::sync::lock;
use ipc::{ListenerId, ListenerInfo};

/// A driver that has left a connection waiting for this long is not given another one.
const LATE: Nanos = Nanos::from_ms(100);

/// What a thread that accepts is to do.
pub(crate) enum Command {
    /// Accept from this socket as well.
    StartAccepting(ListenerInfo, OwnedFd),
    /// Accept from it no longer, if it is this thread's.
    StopAccepting(ListenerId),
    /// Drop this: all commands before it have been carried out.
    Acknowledge(Arc<Ack>),
    /// Serve this connection; a driver only.
    Serve(AcceptedConnection),
}

/// Calls its function when every thread that holds a clone has carried out all commands before it, or has ended:
/// with the end of the last clone.
pub(crate) struct Ack(pub(crate) Box<dyn Fn() + Send + Sync>);

impl Drop for Ack {
    fn drop(&mut self) {
        (self.0)();
    }
}

/// One thread's mailbox.
#[derive(Default)]
pub(crate) struct Mailbox {
    waiting: Mutex<Waiting>,
    /// Notified when a command comes into an empty mailbox, or by `wake`.
    pub(super) notify: Notify,
    /// The number of the latest heartbeat.
    beat: AtomicU64,
}

#[derive(Default)]
struct Waiting {
    commands: Vec<Command>,
    is_closed: bool,
}

impl Mailbox {
    /// Leaves a command; `false`, and the command is dropped, if the thread has ended.
    pub(crate) fn send(&self, command: Command) -> bool {
        let waiting = lock(&self.waiting);
        // Under the lock of `close_if_empty`: either the thread sees this command, or the command sees that the
        // thread has ended.
        let is_open = !waiting.is_closed;
        if is_open {
            self.push(waiting, command);
        }
        is_open
    }

    /// Leaves a connection; gives it back if the driver has ended, or is late with those before.
    #[allow(
        clippy::result_large_err,
        reason = "it goes back as it came; which features make it large differs"
    )]
    pub(super) fn offer(&self, new: AcceptedConnection) -> Result<(), AcceptedConnection> {
        let waiting = lock(&self.waiting);
        if waiting.is_closed || waiting.is_late(&new) {
            return Err(new);
        }
        self.push(waiting, Command::Serve(new));
        Ok(())
    }

    fn push(&self, mut waiting: MutexGuard<'_, Waiting>, command: Command) {
        let was_empty = waiting.commands.is_empty();
        waiting.commands.push(command);
        // First, because the woken thread takes this lock. And only into an empty mailbox: a thread that was woken
        // takes all commands that are there when it looks.
        drop(waiting);
        if was_empty {
            self.wake();
        }
    }

    /// Has the driver note this number in its counters.
    pub(crate) fn send_beat(&self, number: u64) {
        // Behind the commands that were sent before: see `take`.
        self.beat.store(number, Ordering::Release);
        self.wake();
    }

    /// What has come since the last look, and the latest heartbeat. The heartbeat is read first: it is as new as
    /// the commands at most, so that a heartbeat that is noted means that the commands before it are carried out.
    pub(super) fn take(&self) -> (Vec<Command>, u64) {
        let beat = self.beat.load(Ordering::Acquire);
        (std::mem::take(&mut lock(&self.waiting).commands), beat)
    }

    /// Lets the driver look around, although nothing has come.
    pub(super) fn wake(&self) {
        self.notify.notify_one();
    }

    /// Takes no more; `false` when there are commands, which are to be carried out first.
    pub(super) fn close_if_empty(&self) -> bool {
        let mut waiting = lock(&self.waiting);
        // One step under the lock: a connection that came in between would be left in a mailbox without a reader.
        waiting.is_closed = waiting.commands.is_empty();
        waiting.is_closed
    }
}

impl Waiting {
    /// Whether a connection waits that came much earlier than `new`.
    fn is_late(&self, new: &AcceptedConnection) -> bool {
        let mut arrivals = self.commands.iter().filter_map(|command| match command {
            Command::Serve(waiting) => Some(waiting.opened.accepted),
            _ => None,
        });
        let first = arrivals.next();
        first.is_some_and(|first| new.opened.accepted.since(first) > LATE)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn stop(index: u16) -> Command {
        Command::StopAccepting(ListenerId {
            address: 0,
            index,
            driver: 0,
        })
    }

    fn indices(commands: &[Command]) -> Vec<u16> {
        let index = |command: &Command| match command {
            Command::StopAccepting(key) => key.index,
            _ => panic!("no such command was sent"),
        };
        commands.iter().map(index).collect()
    }

    #[test]
    fn keeps_the_order_of_commands_and_the_latest_beat() {
        let mailbox = Mailbox::default();
        mailbox.send_beat(1);
        assert!(mailbox.send(stop(1)));
        mailbox.send_beat(2);
        assert!(mailbox.send(stop(2)));
        let (commands, beat) = mailbox.take();
        assert_eq!((indices(&commands), beat), (vec![1, 2], 2));
        assert!(mailbox.take().0.is_empty());
    }

    #[test]
    fn nothing_is_left_in_a_mailbox_that_has_closed() {
        let mailbox = Mailbox::default();
        assert!(mailbox.send(stop(1)));
        assert!(!mailbox.close_if_empty());
        assert!(mailbox.send(stop(2)));
        assert_eq!(indices(&mailbox.take().0), [1, 2]);
        assert!(mailbox.close_if_empty());
        assert!(!mailbox.send(stop(3)));
        assert!(mailbox.take().0.is_empty());
    }

    #[test]
    fn an_ack_calls_when_its_last_clone_is_gone() {
        let calls = Arc::new(AtomicU64::new(0));
        let counted = Arc::clone(&calls);
        let count = move || _ = counted.fetch_add(1, Ordering::Relaxed);
        let ack = Arc::new(Ack(Box::new(count)));
        let mailboxes = [Mailbox::default(), Mailbox::default()];
        assert!(mailboxes[1].close_if_empty());
        for mailbox in &mailboxes {
            mailbox.send(Command::Acknowledge(Arc::clone(&ack)));
        }
        drop(ack);
        assert_eq!(calls.load(Ordering::Relaxed), 0);
        drop(mailboxes[0].take());
        assert_eq!(calls.load(Ordering::Relaxed), 1);
    }
}
