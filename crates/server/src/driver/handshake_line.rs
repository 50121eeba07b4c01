//! The line of TLS handshakes of one driver: how much of a turn they may take from everybody else.
//!
//! A handshake costs as much processor time as a hundred requests, and any client can ask for one. What is bounded is
//! that time, not the number of open handshakes, which silent clients would use up: a step of a handshake waits here
//! until it may be made. A turn lasts until all tasks that were ready have run and the sockets were looked at.

use std::cell::Cell;

use telemetry::Nanos;
use tokio::sync::{AcquireError, Notify, Semaphore, SemaphorePermit};

use crate::sync::invariant;

/// Steps of handshakes in one turn.
const STEPS_A_TURN: usize = 8;
/// After so much time for them, the others come first: a step with a large RSA key takes as long alone.
const TURN_TIME: Nanos = Nanos(1_000_000);
/// Handshakes that wait for their step. The next one is refused: it would wait longer than its client does.
const LEN_MAX: usize = 1_024;

/// Who may make a step of a handshake, and when.
#[derive(Debug)]
pub(crate) struct HandshakeLine {
    /// Steps that may be made in this turn.
    steps: Semaphore,
    /// Time that they have taken in this turn.
    spent: Cell<Nanos>,
    waiting: Cell<usize>,
    /// Notified when a handshake begins to wait.
    wanted: Notify,
}

/// The line is full.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct LineFull;

/// One that waits is counted.
struct WaitingHandshake<'a>(&'a Cell<usize>);

impl HandshakeLine {
    pub(crate) fn new() -> Self {
        Self {
            steps: Semaphore::new(STEPS_A_TURN),
            spent: Cell::new(Nanos::ZERO),
            waiting: Cell::new(0),
            wanted: Notify::new(),
        }
    }

    /// Waits until a step may be made, first come, first served. Dropped before, it leaves the line.
    pub(crate) async fn enter(&self) -> Result<(), LineFull> {
        if let Ok(permit) = self.steps.try_acquire() {
            permit.forget();
            return Ok(());
        }
        if self.waiting.get() >= LEN_MAX {
            return Err(LineFull);
        }
        let _waiting = WaitingHandshake::new(&self.waiting);
        self.wanted.notify_one();
        let permit: Result<SemaphorePermit<'_>, AcquireError> = self.steps.acquire().await;
        permit.map_err(|_| LineFull)?.forget();
        Ok(())
    }

    /// A step has taken so long.
    pub(crate) fn spend(&self, took: Nanos) {
        let spent = Nanos(self.spent.get().0.saturating_add(took.0));
        self.spent.set(spent);
        if spent >= TURN_TIME {
            self.steps.forget_permits(STEPS_A_TURN);
        }
    }

    /// A turn begins. Nobody waits longer than one turn for the first of the line.
    pub(super) fn begin_turn(&self) {
        self.spent.set(Nanos::ZERO);
        let left = self.steps.available_permits();
        invariant!(left <= STEPS_A_TURN, "a turn has more steps than it may");
        self.steps.add_permits(STEPS_A_TURN - left);
    }

    /// Lets turns begin while handshakes wait; for a task of the driver's own.
    pub(super) async fn run(&self) {
        loop {
            self.wanted.notified().await;
            while self.waiting.get() > 0 {
                // Behind all tasks that are ready, and a look at the sockets.
                tokio::task::yield_now().await;
                self.begin_turn();
            }
        }
    }
}

impl<'a> WaitingHandshake<'a> {
    fn new(count: &'a Cell<usize>) -> Self {
        count.set(count.get() + 1);
        Self(count)
    }
}

impl Drop for WaitingHandshake<'_> {
    fn drop(&mut self) {
        let before = self.0.get();
        invariant!(before > 0, "a handshake leaves a line that nobody is in");
        self.0.set(before - 1);
    }
}

#[cfg(test)]
mod tests {
    use std::future::Future;
    use std::pin::pin;
    use std::task::{Context, Poll, Waker};

    use super::*;

    /// Whether a step may be made at once.
    fn may(line: &HandshakeLine) -> bool {
        let context = &mut Context::from_waker(Waker::noop());
        pin!(line.enter()).poll(context) == Poll::Ready(Ok(()))
    }

    #[test]
    fn a_turn_has_so_many_steps_and_the_next_one_as_many() {
        let line = HandshakeLine::new();
        for _ in 0..3 {
            for _ in 0..STEPS_A_TURN {
                assert!(may(&line));
            }
            assert!(!may(&line));
            line.begin_turn();
        }
    }

    #[test]
    fn a_step_that_takes_long_is_the_last_of_its_turn() {
        let line = HandshakeLine::new();
        assert!(may(&line));
        line.spend(Nanos(TURN_TIME.0 - 1));
        assert!(may(&line));
        line.spend(Nanos(1));
        assert!(!may(&line));
        line.begin_turn();
        assert!(may(&line));
    }

    #[test]
    fn the_line_is_first_come_first_served_and_ends_somewhere() {
        let line = HandshakeLine::new();
        let context = &mut Context::from_waker(Waker::noop());
        line.spend(TURN_TIME);
        let mut first = Box::pin(line.enter());
        assert!(first.as_mut().poll(context).is_pending());
        let mut others: Vec<_> = (1..LEN_MAX).map(|_| Box::pin(line.enter())).collect();
        for other in &mut others {
            assert!(other.as_mut().poll(context).is_pending());
        }
        assert_eq!(pin!(line.enter()).poll(context), Poll::Ready(Err(LineFull)));
        // One leaves before its time: its place is free.
        drop(others.pop());
        assert!(pin!(line.enter()).poll(context).is_pending());
        line.begin_turn();
        assert_eq!(first.as_mut().poll(context), Poll::Ready(Ok(())));
        let served = others
            .iter_mut()
            .map(|other| other.as_mut().poll(context).is_ready());
        assert_eq!(served.filter(|served| *served).count(), STEPS_A_TURN - 1);
    }
}
