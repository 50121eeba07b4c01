//! Phases: the five stamps of an exchange and the durations between them.
//!
//! Takes stamps as they were set, in any state of completeness; gives durations that always add up. Reads no clock.
//!
//! ```text
//! arrived ──receive──► queued ──queue──► started ──run──► replied ──send──► sent
//!    └────────────────────────────── total ─────────────────────────────────┘
//! ```

use std::num::NonZeroU32;
use std::sync::atomic::{AtomicU64, Ordering};

use serde::{Deserialize, Serialize};

use crate::histogram::HistogramBank;
use crate::{Nanos, Snapshot, Stamp};

/// When an exchange passed each point of its way; [`Stamp::ZERO`] where it has not been yet.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Phases {
    /// Accept of the connection for its first exchange, first byte for each later one.
    pub arrived: Stamp,
    /// Complete, handed to the pool or begun inline.
    pub queued: Stamp,
    /// A pool thread took it; equal to `queued` for an inline reply.
    pub started: Stamp,
    /// The handler handed over its reply, or was done with a streamed one.
    pub replied: Stamp,
    /// The last byte was taken by the kernel, or the client is gone.
    pub sent: Stamp,
    /// The part of the run that a Python thread spent waiting to attach to the interpreter.
    pub gil: Nanos,
    /// Processor time that the pool thread used for it; zero where none ran it to its end.
    pub cpu: Nanos,
    /// Number of the worker that took it at `started`, unique in its process; `None` where no worker ran it.
    pub worker: Option<NonZeroU32>,
}

/// A value for each phase, for all of them together, and for the two parts of the run that are measured as well.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug, Serialize, Deserialize)]
#[serde(default)]
#[repr(C)]
pub struct PerPhase<T> {
    /// From `arrived` to `queued`.
    pub receive: T,
    /// From `queued` to `started`.
    pub queue: T,
    /// From `started` to `replied`; contains `gil` and `cpu`.
    pub run: T,
    /// From `replied` to `sent`.
    pub send: T,
    /// From `arrived` to the last stamp that passed.
    pub total: T,
    /// The part of `run` spent waiting for the interpreter.
    pub gil: T,
    /// The part of `run` that was processor time of the thread that ran it.
    pub cpu: T,
}

/// How long each phase took. `receive + queue + run + send == total`, always.
pub type Spans = PerPhase<Nanos>;

/// One distribution for each phase: 44 KB. How long exchanges took as a whole is counted elsewhere, by more labels.
#[derive(Default)]
#[repr(C)]
pub struct PhaseHistograms {
    /// Exchanges of which only the sending took time: most of cached files. One atomic addition here stands for one in
    /// each distribution but that of `send`.
    only_sent: AtomicU64,
    bank: HistogramBank<6>,
}

/// Index of `send` among the distributions.
const SEND: usize = 3;

impl<T> PerPhase<T> {
    /// Of each value what `of` gives for it.
    pub fn map<U>(&self, of: impl Fn(&T) -> U) -> PerPhase<U> {
        let [receive, queue, run, send, total, gil, cpu] = self.each().map(of);
        PerPhase {
            receive,
            queue,
            run,
            send,
            total,
            gil,
            cpu,
        }
    }

    /// All values, in the order of the fields.
    pub fn each(&self) -> [&T; 7] {
        [
            &self.receive,
            &self.queue,
            &self.run,
            &self.send,
            &self.total,
            &self.gil,
            &self.cpu,
        ]
    }

    /// As `each`, to change them.
    pub fn each_mut(&mut self) -> [&mut T; 7] {
        [
            &mut self.receive,
            &mut self.queue,
            &mut self.run,
            &mut self.send,
            &mut self.total,
            &mut self.gil,
            &mut self.cpu,
        ]
    }
}

impl PhaseHistograms {
    /// Counts one exchange.
    pub fn record(&self, spans: &Spans) {
        let Spans {
            receive,
            queue,
            run,
            send,
            total: _,
            gil,
            cpu,
        } = *spans;
        if receive.0 | queue.0 | run.0 | gil.0 | cpu.0 == 0 {
            self.only_sent.fetch_add(1, Ordering::Relaxed);
            return self.bank.record_at(SEND, send);
        }
        for (index, span) in [receive, queue, run, send, gil, cpu]
            .into_iter()
            .enumerate()
        {
            self.bank.record_at(index, span);
        }
    }

    /// The distributions, in the order of the fields of [`PerPhase`], without the whole.
    pub(crate) fn bank(&self) -> &HistogramBank<6> {
        &self.bank
    }

    /// Adds what has been recorded until now to the distributions of all phases but the whole.
    pub(crate) fn add_to<'s>(&self, sum: &'s mut PerPhase<impl AsMut<Snapshot> + 's>) {
        let PerPhase {
            receive,
            queue,
            run,
            send,
            total: _,
            gil,
            cpu,
        } = sum;
        let mut sums = [receive, queue, run, send, gil, cpu].map(AsMut::as_mut);
        let only_sent = self.only_sent.load(Ordering::Relaxed);
        for (_, sum) in (sums.iter_mut().enumerate()).filter(|(index, _)| *index != SEND) {
            sum.add_zeros(only_sent);
        }
        self.bank.add_to(sums);
    }
}

impl Phases {
    /// Whether each stamp that has passed is no earlier than those before it.
    pub fn are_in_order(&self) -> bool {
        let mut latest = Stamp::ZERO;
        self.stamps().into_iter().all(|stamp| {
            let is_in_order = stamp == Stamp::ZERO || stamp >= latest;
            // A stamp that was not set does not move it.
            latest = latest.max(stamp);
            is_in_order
        })
    }

    /// The durations between the stamps.
    ///
    /// A phase that was never reached, or whose stamp is earlier than the one before, counts zero,
    /// and the next phase begins where the last reached one ended. Without `arrived` the way begins
    /// at the first stamp there is. A room that answers an exchange by itself must therefore set
    /// every stamp that it passes, or the time goes to the next phase that has one.
    ///
    /// The two clocks that `run` and `cpu` come from are read a moment apart, so `cpu` is cut to `run`.
    pub fn spans(&self) -> Spans {
        let mut passed = self.stamps().into_iter();
        let start = passed.find(|&stamp| stamp != Stamp::ZERO);
        let start = start.unwrap_or(Stamp::ZERO);
        // Each point is at least where the one before was: a stamp that was never set, or is too early, makes its phase
        // zero.
        let queued = start.max(self.queued);
        let started = queued.max(self.started);
        let replied = started.max(self.replied);
        let sent = replied.max(self.sent);
        let run = replied.since(started);
        Spans {
            receive: queued.since(start),
            queue: started.since(queued),
            run,
            send: sent.since(replied),
            total: sent.since(start),
            gil: self.gil,
            cpu: self.cpu.min(run),
        }
    }

    fn stamps(&self) -> [Stamp; 5] {
        [
            self.arrived,
            self.queued,
            self.started,
            self.replied,
            self.sent,
        ]
    }
}

/// Phases in whole microseconds that still add up to the total.
///
/// Each point's distance from `arrived` is truncated, not each phase: truncated phases would lose up
/// to 3 µs against a truncated total, and a reader of the log would see a sum that is wrong.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct WholeMicros {
    pub(crate) receive: u64,
    pub(crate) queue: u64,
    pub(crate) run: u64,
    pub(crate) send: u64,
    pub(crate) total: u64,
}

impl WholeMicros {
    pub(crate) fn of(spans: &Spans) -> WholeMicros {
        let queued_ns = spans.receive.0;
        let started_ns = queued_ns.saturating_add(spans.queue.0);
        let replied_ns = started_ns.saturating_add(spans.run.0);
        let sent_ns = replied_ns.saturating_add(spans.send.0);
        // Cut at the same points: each phase is the distance of two of them, so that their sum is exact.
        let (queued, started) = (queued_ns / 1_000, started_ns / 1_000);
        let (replied, sent) = (replied_ns / 1_000, sent_ns / 1_000);
        WholeMicros {
            receive: queued,
            queue: started - queued,
            run: replied - started,
            send: sent - replied,
            total: sent,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::counters::Distribution;
    use proptest::prelude::*;

    fn phases(stamps: [u64; 5]) -> Phases {
        let [arrived, queued, started, replied, sent] = stamps.map(Stamp);
        Phases {
            arrived,
            queued,
            started,
            replied,
            sent,
            ..Phases::default()
        }
    }

    fn check(stamps: [u64; 5], expect: [u64; 5]) {
        let spans = phases(stamps).spans();
        let found = [
            spans.receive,
            spans.queue,
            spans.run,
            spans.send,
            spans.total,
        ];
        assert_eq!(found, expect.map(Nanos), "stamps {stamps:?}");
    }

    #[test]
    fn takes_differences_and_skips_what_was_never_reached() {
        check([10, 15, 17, 50, 60], [5, 2, 33, 10, 50]);
        check([10, 15, 15, 50, 60], [5, 0, 35, 10, 50]);
        // Refused at the head: only the first and the last stamp.
        check([10, 0, 0, 0, 60], [0, 0, 0, 50, 50]);
        // Refused by a full queue.
        check([10, 15, 0, 20, 60], [5, 0, 5, 40, 50]);
        // Still running.
        check([10, 15, 17, 0, 0], [5, 2, 0, 0, 7]);
        check([10, 0, 0, 0, 0], [0, 0, 0, 0, 0]);
        check([0, 0, 0, 0, 0], [0, 0, 0, 0, 0]);
        // Nobody stamped the arrival: the way begins at the first stamp there is.
        check([0, 15, 17, 50, 60], [0, 2, 33, 10, 45]);
        // Stamps in a wrong order never give a negative phase.
        check([10, 15, 12, 50, 40], [5, 0, 35, 0, 40]);
    }

    #[test]
    fn carries_the_wait_for_the_interpreter() {
        let spans = Phases {
            gil: Nanos(7),
            ..phases([1, 2, 3, 4, 5])
        }
        .spans();
        assert_eq!(spans.gil, Nanos(7));
    }

    #[test]
    fn processor_time_is_within_the_run() {
        let check = |stamps, cpu, expect| {
            let phases = Phases {
                cpu: Nanos(cpu),
                ..phases(stamps)
            };
            assert_eq!(phases.spans().cpu, Nanos(expect), "stamps {stamps:?}");
        };
        check([10, 15, 17, 50, 60], 30, 30);
        check([10, 15, 17, 50, 60], 34, 33);
        check([10, 15, 17, 50, 60], 0, 0);
        check([10, 15, 0, 0, 60], 30, 0);
    }

    #[test]
    fn counts_each_phase_apart() {
        let phases = PhaseHistograms::default();
        phases.record(&Spans {
            receive: Nanos(1),
            queue: Nanos(2),
            run: Nanos(3),
            send: Nanos(4),
            total: Nanos(10),
            gil: Nanos(5),
            cpu: Nanos(6),
        });
        let mut seen = PerPhase::<Distribution>::default();
        phases.add_to(&mut seen);
        assert_eq!(
            seen.map(|one| one.0.max().0).each(),
            [&1, &2, &3, &4, &0, &5, &6]
        );
    }

    #[test]
    fn exchanges_that_were_only_sent_count_in_every_phase() {
        let phases = PhaseHistograms::default();
        let mut apart = PerPhase::<Distribution>::default();
        for (run, send) in [(0, 4), (0, 0), (3, 4), (0, 9)] {
            let spans = Spans {
                run: Nanos(run),
                send: Nanos(send),
                ..Spans::default()
            };
            phases.record(&spans);
            let pairs = apart.each_mut().into_iter().zip(spans.each());
            // The whole is not counted there.
            for (_, (one, span)) in (pairs.enumerate()).filter(|(index, _)| *index != 4) {
                one.0.record(*span);
            }
        }
        let mut seen = PerPhase::<Distribution>::default();
        phases.add_to(&mut seen);
        assert_eq!(seen, apart);
    }

    proptest! {
        #[test]
        fn phases_add_up_to_the_total(stamps in prop::array::uniform5(0..u64::MAX)) {
            let spans = phases(stamps).spans();
            let sum = spans.receive.0 + spans.queue.0 + spans.run.0 + spans.send.0;
            prop_assert_eq!(sum, spans.total.0);
            let us = WholeMicros::of(&spans);
            prop_assert_eq!(us.receive + us.queue + us.run + us.send, us.total);
            prop_assert_eq!(us.total, spans.total.0 / 1_000);
            for (whole, exact) in [(us.queue, spans.queue), (us.run, spans.run)] {
                prop_assert!(whole.abs_diff(exact.0 / 1_000) <= 1);
            }
        }
    }
}
