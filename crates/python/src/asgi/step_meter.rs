//! What the steps of one task take of the event loop.
//!
//! Takes stamps of the begin and the end of each step; gives what the record of the exchange has of them. Steps of tasks
//! that the application makes itself are not among them.

use telemetry::{LoopFacts, Nanos, Stamp};

/// The steps of a task, one of which may be under way.
#[derive(Debug, Default)]
pub(super) struct StepMeter {
    done: LoopFacts,
    /// When the step that is under way began; ZERO between two steps.
    began: Stamp,
}

impl StepMeter {
    /// The loop has taken the exchange at `taken`, and its first step begins at `now`.
    pub(super) fn start(&mut self, taken: Stamp, now: Stamp, blocked_by: Option<u64>) {
        self.done.wait = now.since(taken);
        self.done.blocked_by = blocked_by;
    }

    pub(super) fn begin(&mut self, now: Stamp) {
        self.began = now;
    }

    /// Gives how long the step took.
    pub(super) fn end(&mut self, now: Stamp) -> Nanos {
        let took = now.since(self.began);
        self.done = added(self.done, took);
        self.began = Stamp::ZERO;
        took
    }

    /// All steps until `now`, with the one that is under way.
    pub(super) fn facts(&self, now: Stamp) -> LoopFacts {
        match self.began {
            Stamp::ZERO => self.done,
            began => added(self.done, now.since(began)),
        }
    }
}

fn added(facts: LoopFacts, took: Nanos) -> LoopFacts {
    LoopFacts {
        steps: facts.steps.saturating_add(1),
        busy: Nanos(facts.busy.0 + took.0),
        longest: facts.longest.max(took),
        ..facts
    }
}

/// A step that has blocked the loop for long.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct OverlongStep {
    /// Number of the exchange.
    pub(super) number: u64,
    pub(super) began: Stamp,
    pub(super) ended: Stamp,
}

impl OverlongStep {
    /// Whether an exchange that waited from `queued` until `started` has waited for it.
    pub(super) fn has_blocked(&self, queued: Stamp, started: Stamp) -> bool {
        queued < self.ended && self.ended <= started
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_steps_and_the_one_that_is_under_way() {
        let mut meter = StepMeter::default();
        meter.start(Stamp(5), Stamp(10), Some(3));
        meter.begin(Stamp(10));
        assert_eq!(meter.facts(Stamp(14)).steps, 1);
        assert_eq!(meter.end(Stamp(30)), Nanos(20));
        meter.begin(Stamp(100));
        assert_eq!(meter.end(Stamp(107)), Nanos(7));
        let expect = LoopFacts {
            wait: Nanos(5),
            steps: 2,
            busy: Nanos(27),
            longest: Nanos(20),
            blocked_by: Some(3),
            is_event_stream: false,
        };
        assert_eq!(meter.facts(Stamp(999)), expect);
        meter.begin(Stamp(1_000));
        let facts = meter.facts(Stamp(1_050));
        assert_eq!((facts.steps, facts.longest), (3, Nanos(50)));
    }

    #[test]
    fn a_step_blocks_those_that_waited_while_it_ended() {
        let step = OverlongStep {
            number: 1,
            began: Stamp(10),
            ended: Stamp(20),
        };
        let check = |queued, started, expect| {
            let has_blocked = step.has_blocked(Stamp(queued), Stamp(started));
            assert_eq!(has_blocked, expect, "{queued} {started}");
        };
        check(5, 20, true);
        check(15, 30, true);
        check(20, 30, false);
        check(5, 15, false);
    }
}
