//! What a driver is told by other threads: sockets to accept from, connections of its siblings, heartbeats.
//!
//! Takes calls from any thread, gives them to one driver in order, with one wake-up for as many as come before
//! it looks. A driver that ends closes its inbox, so that no connection is left lying in it. Its length is
//! bounded by what calls are about: sockets, open connections, and one beat.

use std::fmt;
use std::sync::{Arc, Mutex};

use measure::Nanos;
use tokio::sync::Notify;

use super::handoff::AcceptedConnection;
use super::shared::Ear;
use crate::channel::EarKey;
use crate::sync::lock;

/// A driver that has left a connection waiting for so long is not given another one.
const LATE: Nanos = Nanos::from_ms(100);

/// Something that a driver is told.
#[derive(Debug)]
pub(crate) enum Call {
    /// Accept from this socket as well.
    Hear(Ear),
    /// Accept from it no longer.
    Deafen(EarKey),
    /// All before this has been done.
    Confirm(Confirmation),
    /// Note this number in the counters.
    Beat(u64),
    /// Serve this connection.
    Take(AcceptedConnection),
    /// Serve a connection that lies in memory.
    #[cfg(feature = "faults")]
    TakeMemory(super::handoff::MemoryConnection),
}

/// Says that all who were told of it have come to it, or never will: with the end of its last clone.
#[derive(Clone)]
pub(crate) struct Confirmation {
    _said_at_end: Arc<AtEnd>,
}

struct AtEnd(Option<Box<dyn FnOnce() + Send + Sync>>);

impl Confirmation {
    pub(crate) fn new(say: impl FnOnce() + Send + Sync + 'static) -> Self {
        Self {
            _said_at_end: Arc::new(AtEnd(Some(Box::new(say)))),
        }
    }
}

impl Drop for AtEnd {
    fn drop(&mut self) {
        if let Some(say) = self.0.take() {
            say();
        }
    }
}

impl fmt::Debug for Confirmation {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("Confirmation")
    }
}

/// One driver's inbox.
#[derive(Debug, Default)]
pub(crate) struct Inbox {
    waiting: Mutex<Waiting>,
    /// Told when something comes into an empty inbox.
    told: Notify,
}

#[derive(Debug, Default)]
struct Waiting {
    calls: Vec<Call>,
    /// The latest beat; of those before nobody needs to know.
    beat: Option<u64>,
    is_closed: bool,
}

impl Inbox {
    /// Tells the driver; gives the call back if it has ended.
    pub(crate) fn send(&self, call: Call) -> Result<(), Call> {
        let was_empty = {
            let mut waiting = lock(&self.waiting);
            if waiting.is_closed {
                return Err(call);
            }
            waiting.put(call)
        };
        if was_empty {
            self.told.notify_one();
        }
        Ok(())
    }

    /// Gives the driver a connection; gives it back if the driver has ended.
    pub(super) fn give(&self, new: AcceptedConnection) -> Result<(), AcceptedConnection> {
        self.give_unless(new, |_, _| false)
    }

    /// As `give`, but gives it back too if the driver is late with those before.
    pub(super) fn offer(&self, new: AcceptedConnection) -> Result<(), AcceptedConnection> {
        self.give_unless(new, Waiting::is_late)
    }

    fn give_unless(
        &self,
        new: AcceptedConnection,
        refuses: impl Fn(&Waiting, &AcceptedConnection) -> bool,
    ) -> Result<(), AcceptedConnection> {
        let was_empty = {
            let mut waiting = lock(&self.waiting);
            if waiting.is_closed || refuses(&waiting, &new) {
                return Err(new);
            }
            waiting.put(Call::Take(new))
        };
        if was_empty {
            self.told.notify_one();
        }
        Ok(())
    }

    /// What has come since the last look.
    pub(super) fn take(&self) -> Vec<Call> {
        let mut waiting = lock(&self.waiting);
        let mut calls = std::mem::take(&mut waiting.calls);
        calls.extend(waiting.beat.take().map(Call::Beat));
        calls
    }

    /// Until something has come, or `remind` was called.
    pub(super) async fn told(&self) {
        self.told.notified().await;
    }

    /// Lets the driver look around, although nothing has come.
    pub(super) fn remind(&self) {
        self.told.notify_one();
    }

    /// Nothing comes any more; `false` when something has, and has to be seen to first.
    pub(super) fn close_if_empty(&self) -> bool {
        let mut waiting = lock(&self.waiting);
        waiting.is_closed = waiting.calls.is_empty();
        waiting.is_closed
    }
}

impl Waiting {
    /// Whether it was empty before.
    fn put(&mut self, call: Call) -> bool {
        let was_empty = self.calls.is_empty() && self.beat.is_none();
        match call {
            Call::Beat(number) => self.beat = Some(number),
            call => self.calls.push(call),
        }
        was_empty
    }

    /// Whether a connection waits that came much earlier than `new`.
    fn is_late(&self, new: &AcceptedConnection) -> bool {
        let mut taken = self.calls.iter().filter_map(|call| match call {
            Call::Take(waiting) => Some(waiting.arrived),
            _ => None,
        });
        taken
            .next()
            .is_some_and(|first| new.arrived.since(first) > LATE)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(index: u16) -> EarKey {
        EarKey {
            address: 0,
            index,
            driver: 0,
        }
    }

    #[test]
    fn keeps_the_order_of_calls_and_the_latest_beat() {
        let inbox = Inbox::default();
        for call in [
            Call::Beat(1),
            Call::Deafen(key(1)),
            Call::Beat(2),
            Call::Deafen(key(2)),
        ] {
            inbox.send(call).unwrap();
        }
        let calls = inbox.take();
        assert!(
            matches!(
                calls[..],
                [Call::Deafen(first), Call::Deafen(second), Call::Beat(2)]
                    if (first, second) == (key(1), key(2))
            ),
            "{calls:?}"
        );
        assert!(inbox.take().is_empty());
    }

    #[test]
    fn nothing_is_left_in_an_inbox_that_has_closed() {
        let inbox = Inbox::default();
        inbox.send(Call::Deafen(key(1))).unwrap();
        assert!(!inbox.close_if_empty());
        inbox.send(Call::Deafen(key(2))).unwrap();
        assert_eq!(inbox.take().len(), 2);
        assert!(inbox.close_if_empty());
        let refused = inbox.send(Call::Deafen(key(3))).unwrap_err();
        assert!(matches!(refused, Call::Deafen(found) if found == key(3)));
    }
}
