//! Write ownership: whether the driver or a worker may write the response of a stream, and which of them ends
//! its exchange.
//!
//! Touches no socket, no clock, no Python. Built only on `sync`, so that `crates/loom-tests` can check every
//! interleaving of it with loom.

use std::task::{Context, Poll};

use crate::sync::{AtomicU8, Ordering, WakerCell, invariant, violated};

/// Who may write to a stream.
///
/// ```text
///            hand_off             end                 release(Keep)
///   DRIVER ───────────► WORKER ─────────► ENDING ──────────────────────► KEPT ────┐
///    ▲                   │   │               │         release(Close)             │
///    │                   │   │               ├──────────────────────────► CLOSED ─┤
///    │                   │   │               │         release(Reset)             │
///    │                   │   │               └──────────────────────────► RESET ──┤
///    │                   │   │                                                    │ take_back
///    │                   │   └─ pass_to_driver: the driver writes on ──► QUEUED ──┤
///    │                   └───── revoke: a deadline passed ─────────────► REVOKED  │
///    └────────────────────────────────────────────────────────────────────────────┘
/// ```
///
/// Two marks stand beside a state. STARTED, beside WORKER: the worker is about to send the first byte of its
/// response (`mark_started`). A driver that revokes the exchange before may answer in its place, one that does so
/// afterwards can only cut the stream. AWAITED, beside WORKER and ENDING: the driver is to be woken by the release
/// (`poll_return`, or the handing off itself).
///
/// A response that the socket took whole is released without waking the driver: the client's next request
/// does that. The driver is woken only when it has asked (AWAITED), or has something to do. Between `end`
/// and `release` the worker writes the record: the next exchange of the connection cannot overtake it on its
/// way to the log.
#[derive(Default)]
pub(crate) struct WriteOwnership {
    state: AtomicU8,
    waker: WakerCell,
}

const DRIVER: u8 = 0;
const WORKER: u8 = 1;
const ENDING: u8 = 2;
const KEPT: u8 = 3;
const CLOSED: u8 = 4;
const QUEUED: u8 = 5;
const REVOKED: u8 = 6;
const RESET: u8 = 7;
/// Beside WORKER: the response may be on its way.
const STARTED: u8 = 0x10;
/// Beside WORKER and ENDING: the driver has asked to be woken.
const AWAITED: u8 = 0x20;

/// What the driver finds when an exchange that a worker had is its own again.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Returned {
    /// The response is out or given up, and this becomes of the connection.
    Out(After),
    /// The socket did not take everything: the driver writes from here on.
    Queued,
}

/// What becomes of a connection after a response; in numbers, the states that say so.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
pub(crate) enum After {
    /// The next request.
    Keep = KEPT,
    /// An orderly end.
    Close = CLOSED,
    /// A reset: an orderly end would be the sign of completeness, and the response is not complete.
    Reset = RESET,
}

/// The worker came too late: the driver has ended the exchange already.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Revoked;

/// Whether the client may have a part of the response of an exchange that the driver has revoked.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum ResponseStarted {
    /// Nothing was sent: the driver may answer.
    No,
    /// A part may have been sent: nothing else can answer.
    Yes,
}

/// Whether the driver wants to be woken when the exchange comes back.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum WakePolicy {
    /// No: the client's next bytes wake the driver.
    NextInput,
    /// Yes: the driver has more to do at once, such as a pipelined request.
    Return,
}

impl WriteOwnership {
    /// Driver: a worker may write. `context` is remembered for a wake-up.
    pub(crate) fn hand_off(&self, wake: WakePolicy, context: &Context<'_>) {
        // Only the driver leaves DRIVER, so that a look is enough: nothing can change the state in between.
        let before = self.load();
        invariant!(before == DRIVER, "a stream in state {before} is handed off");
        self.watch(context);
        let state = match wake {
            WakePolicy::NextInput => WORKER,
            WakePolicy::Return => WORKER | AWAITED,
        };
        self.state.store(state, Ordering::Release);
    }

    /// Driver: is the stream ours again? If not, the driver is woken when it is; for a response that is out while the
    /// connection lives on, only with `WakePolicy::Return`.
    pub(crate) fn poll_return(&self, wake: WakePolicy, context: &Context<'_>) -> Poll<Returned> {
        if let Some(returned) = self.returned() {
            return Poll::Ready(returned);
        }
        // Registered at each look: the worker of the exchange before may have used the waker up only now, by its
        // wake-up for the end of a response that this driver had seen already. And before the step: a worker that
        // releases behind the step sees AWAITED and wakes this waker; one that was faster is seen by the last look,
        // and refuses the step.
        self.watch(context);
        if wake == WakePolicy::Return {
            let _ = self.step(|state| {
                matches!(without_marks(state), WORKER | ENDING).then_some(state | AWAITED)
            });
        }
        self.returned().map_or(Poll::Pending, Poll::Ready)
    }

    /// Driver: what came back, if anything; asks for nothing.
    pub(crate) fn returned(&self) -> Option<Returned> {
        match self.load() {
            KEPT => Some(Returned::Out(After::Keep)),
            CLOSED => Some(Returned::Out(After::Close)),
            RESET => Some(Returned::Out(After::Reset)),
            QUEUED => Some(Returned::Queued),
            _ => None,
        }
    }

    /// Driver: wishes to be woken by `wake`, without asking for the exchange itself.
    pub(crate) fn watch(&self, context: &Context<'_>) {
        self.waker.register(context.waker());
    }

    /// Driver: takes the stream back after `returned`.
    pub(crate) fn take_back(&self) {
        // No worker steps in these states, so that nothing comes between this look and the store.
        let before = self.load();
        let is_back = self.returned().is_some();
        invariant!(is_back, "a stream in state {before} is taken back");
        self.state.store(DRIVER, Ordering::Release);
    }

    /// Driver: ends an exchange that a worker still has. `None` when the worker was first; else the driver now
    /// has to log it.
    pub(crate) fn revoke(&self) -> Option<ResponseStarted> {
        // One compare and exchange against `end` and `pass_to_driver` of the worker: one of the two sides succeeds,
        // and that side alone logs the exchange.
        let before = self.step_from_worker(|_| REVOKED).ok()?;
        Some(match before & STARTED {
            0 => ResponseStarted::No,
            _ => ResponseStarted::Yes,
        })
    }

    /// Worker: whether the driver has ended the exchange.
    pub(crate) fn is_revoked(&self) -> bool {
        self.load() == REVOKED
    }

    /// Worker: before the first byte of a response is offered to the socket.
    pub(crate) fn mark_started(&self) -> Result<(), Revoked> {
        // Before the first byte, not behind it: a driver that revokes in between must take a byte on its way for
        // sent.
        let before = self.worker_step(|state| state | STARTED)?;
        invariant!(before & STARTED == 0, "a response is started twice");
        Ok(())
    }

    /// Worker: what was offered to the socket is out, and was no part of the response.
    pub(crate) fn unmark_started(&self) -> Result<(), Revoked> {
        self.worker_step(|state| state & !STARTED).map(drop)
    }

    /// Worker: the response is out (or given up), and the record is this thread's to write.
    pub(crate) fn end(&self) -> Result<(), Revoked> {
        // AWAITED stays: the driver sleeps on it, and `release` has to wake it.
        self.worker_step(|state| ENDING | (state & AWAITED))
            .map(drop)
    }

    /// Worker, after `end`: the stream is the driver's again.
    pub(crate) fn release(&self, after: After) {
        // A swap, not a store: a mark AWAITED that the driver has set until now is seen, or the driver would sleep
        // on.
        let before = self.state.swap(after as u8, Ordering::AcqRel);
        invariant!(
            without_marks(before) == ENDING,
            "an exchange in state {before} is released"
        );
        // A stream that is kept wakes the driver only if asked to: the client's next bytes wake the driver. All else it has to
        // act on.
        if before & AWAITED != 0 || after != After::Keep {
            self.waker.wake();
        }
    }

    /// Worker: the socket is full, the driver writes from here on.
    pub(crate) fn pass_to_driver(&self) -> Result<(), Revoked> {
        // The step before the wake-up: a driver that was woken first would find nothing, and its waker used up.
        self.worker_step(|_| QUEUED)?;
        self.waker.wake();
        Ok(())
    }

    /// Worker: wakes the driver once more, such as for a further piece of a queued response. Only after
    /// `pass_to_driver`: a wake-up uses the waker up, and a driver that has not got the exchange back would
    /// not renew it.
    pub(crate) fn wake(&self) {
        self.waker.wake();
    }

    /// A step of the worker fails for one reason alone: the driver has revoked the exchange.
    fn worker_step(&self, next: impl Fn(u8) -> u8) -> Result<u8, Revoked> {
        self.step_from_worker(next).map_err(|state| match state {
            REVOKED => Revoked,
            _ => violated(format_args!("a worker steps on a stream in state {state}")),
        })
    }

    /// A step from WORKER alone: a worker has the stream and has not begun to end the exchange.
    fn step_from_worker(&self, next: impl Fn(u8) -> u8) -> Result<u8, u8> {
        self.step(|state| (without_marks(state) == WORKER).then(|| next(state)))
    }

    fn load(&self) -> u8 {
        self.state.load(Ordering::Acquire)
    }

    fn step(&self, next: impl Fn(u8) -> Option<u8>) -> Result<u8, u8> {
        self.state
            .fetch_update(Ordering::AcqRel, Ordering::Acquire, next)
    }
}

fn without_marks(state: u8) -> u8 {
    state & !(STARTED | AWAITED)
}

#[cfg(all(test, not(loom)))]
mod tests {
    use std::panic::{AssertUnwindSafe, catch_unwind};
    use std::task::Waker;

    use super::*;

    /// Every step of both sides; `None` for one that asks for nothing.
    fn take(ownership: &WriteOwnership, step: &str) {
        let context = Context::from_waker(Waker::noop());
        match step {
            "hand_off" => ownership.hand_off(WakePolicy::NextInput, &context),
            "hand_off(Return)" => ownership.hand_off(WakePolicy::Return, &context),
            "poll_return" => drop(ownership.poll_return(WakePolicy::Return, &context)),
            "take_back" => ownership.take_back(),
            "revoke" => drop(ownership.revoke()),
            "mark_started" => drop(ownership.mark_started()),
            "end" => drop(ownership.end()),
            "release(Keep)" => ownership.release(After::Keep),
            "release(Close)" => ownership.release(After::Close),
            "release(Reset)" => ownership.release(After::Reset),
            "pass_to_driver" => drop(ownership.pass_to_driver()),
            _ => unreachable!("{step}"),
        }
    }

    const STEPS: [&str; 11] = [
        "hand_off",
        "hand_off(Return)",
        "poll_return",
        "take_back",
        "revoke",
        "mark_started",
        "end",
        "release(Keep)",
        "release(Close)",
        "release(Reset)",
        "pass_to_driver",
    ];

    /// Walks every step from every state: `edges` lead somewhere, `refused` are told so, and all others panic.
    #[test]
    fn takes_every_edge_and_no_other() {
        const WORKER_AWAITED: u8 = WORKER | AWAITED;
        const WORKER_STARTED: u8 = WORKER | STARTED;
        const STARTED_AWAITED: u8 = WORKER | STARTED | AWAITED;
        const ENDING_AWAITED: u8 = ENDING | AWAITED;
        let states = [
            DRIVER,
            WORKER,
            WORKER_AWAITED,
            WORKER_STARTED,
            STARTED_AWAITED,
            ENDING,
            ENDING_AWAITED,
            KEPT,
            CLOSED,
            QUEUED,
            REVOKED,
            RESET,
        ];
        let edges: &[(u8, &str, u8)] = &[
            (DRIVER, "hand_off", WORKER),
            (DRIVER, "hand_off(Return)", WORKER_AWAITED),
            (WORKER, "poll_return", WORKER_AWAITED),
            (WORKER_STARTED, "poll_return", STARTED_AWAITED),
            (ENDING, "poll_return", ENDING_AWAITED),
            (WORKER, "revoke", REVOKED),
            (WORKER_AWAITED, "revoke", REVOKED),
            (WORKER_STARTED, "revoke", REVOKED),
            (STARTED_AWAITED, "revoke", REVOKED),
            (WORKER, "mark_started", WORKER_STARTED),
            (WORKER_AWAITED, "mark_started", STARTED_AWAITED),
            (WORKER, "end", ENDING),
            (WORKER_STARTED, "end", ENDING),
            (WORKER_AWAITED, "end", ENDING_AWAITED),
            (STARTED_AWAITED, "end", ENDING_AWAITED),
            (ENDING, "release(Keep)", KEPT),
            (ENDING_AWAITED, "release(Keep)", KEPT),
            (ENDING, "release(Close)", CLOSED),
            (ENDING_AWAITED, "release(Close)", CLOSED),
            (ENDING, "release(Reset)", RESET),
            (ENDING_AWAITED, "release(Reset)", RESET),
            (WORKER, "pass_to_driver", QUEUED),
            (WORKER_AWAITED, "pass_to_driver", QUEUED),
            (WORKER_STARTED, "pass_to_driver", QUEUED),
            (STARTED_AWAITED, "pass_to_driver", QUEUED),
            (KEPT, "take_back", DRIVER),
            (CLOSED, "take_back", DRIVER),
            (RESET, "take_back", DRIVER),
            (QUEUED, "take_back", DRIVER),
        ];
        // These may come at any time, and change nothing where they have nothing to change.
        let may_come_any_time = |state: u8, step: &str| match step {
            "poll_return" | "revoke" => true,
            "mark_started" | "end" | "pass_to_driver" => state == REVOKED,
            _ => false,
        };
        for state in states {
            for step in STEPS {
                let ownership = WriteOwnership::default();
                ownership.state.store(state, Ordering::Relaxed);
                let taken = catch_unwind(AssertUnwindSafe(|| take(&ownership, step)));
                let edge = edges
                    .iter()
                    .find(|(from, by, _)| (*from, *by) == (state, step));
                let expect = match edge {
                    Some((_, _, to)) => Some(*to),
                    None => may_come_any_time(state, step).then_some(state),
                };
                let found = taken.ok().map(|()| ownership.load());
                assert_eq!(found, expect, "{step} in state {state}");
            }
        }
    }

    #[test]
    fn a_revoked_exchange_tells_whether_its_response_has_started() {
        let context = Context::from_waker(Waker::noop());
        for (is_started, expect) in [(false, ResponseStarted::No), (true, ResponseStarted::Yes)] {
            let ownership = WriteOwnership::default();
            ownership.hand_off(WakePolicy::Return, &context);
            if is_started {
                assert_eq!(ownership.mark_started(), Ok(()));
            }
            assert_eq!(ownership.revoke(), Some(expect));
            assert_eq!(ownership.revoke(), None);
            assert_eq!(ownership.end(), Err(Revoked));
        }
    }
}
