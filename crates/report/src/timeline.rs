//! What happened when, in at most a few hundred steps whatever the time that the log covers.
//!
//! Takes lines, keeps one bucket for each step of time. A line outside the steps that fit makes all steps
//! twice as long, and their buckets merge by two; so memory is bounded and nothing has to be known before.

use std::collections::VecDeque;

use telemetry::{Line, Snapshot};

use crate::tally::{PHASES, phases_of, status_class};

/// Most steps kept.
pub(crate) const STEPS_LEN_MAX: u64 = 240;

/// One step of time.
#[derive(Clone, Debug, Default)]
pub(crate) struct Step {
    pub(crate) len: u64,
    /// By class; 0 is "no reply".
    pub(crate) classes: [u64; 10],
    /// Empty until a phase is known: a histogram is 10 KB.
    pub(crate) phases: [Option<Snapshot>; PHASES.len()],
}

/// All steps.
#[derive(Clone, Debug)]
pub(crate) struct Timeline {
    width_secs: u64,
    /// Of the first step: its time divided by the width.
    first: u64,
    steps: VecDeque<Step>,
}

impl Default for Timeline {
    fn default() -> Timeline {
        Timeline {
            width_secs: 1,
            first: 0,
            steps: VecDeque::new(),
        }
    }
}

impl Timeline {
    #[inline]
    pub(crate) fn take(&mut self, line: &Line<'_>) {
        let Some(wall_ns) = line.wall_ns else {
            return;
        };
        let place = self.place_of(wall_ns / 1_000_000_000);
        let step = &mut self.steps[place];
        step.len += 1;
        step.classes[status_class(line.status)] += 1;
        for (shape, span) in step.phases.iter_mut().zip(phases_of(&line.spans)) {
            if let Some(span) = span {
                shape.get_or_insert_default().record(span);
            }
        }
    }

    pub(crate) fn width_secs(&self) -> u64 {
        self.width_secs
    }

    /// The steps, each with the second since 1970 at which it begins.
    pub(crate) fn steps(&self) -> impl Iterator<Item = (u64, &Step)> {
        let begins = (self.first..).map(|index| index * self.width_secs);
        begins.zip(self.steps.iter())
    }

    fn place_of(&mut self, second: u64) -> usize {
        loop {
            let index = second / self.width_secs;
            if self.steps.is_empty() {
                self.first = index;
            }
            let last = self.first + (self.steps.len() as u64).max(1) - 1;
            // Both ends may move: logs are read in any order of time.
            if last.max(index) - self.first.min(index) < STEPS_LEN_MAX {
                while index < self.first {
                    self.steps.push_front(Step::default());
                    self.first -= 1;
                }
                let place = (index - self.first) as usize;
                while self.steps.len() <= place {
                    self.steps.push_back(Step::default());
                }
                assert!(place < self.steps.len(), "each second has its step");
                return place;
            }
            self.double();
        }
    }

    #[cold]
    fn double(&mut self) {
        let mut wider: VecDeque<Step> = VecDeque::new();
        for (offset, step) in self.steps.drain(..).enumerate() {
            let index = self.first + offset as u64;
            match wider.back_mut() {
                Some(back) if index % 2 == 1 => back.merge(step),
                _ => wider.push_back(step),
            }
        }
        self.steps = wider;
        self.first /= 2;
        self.width_secs *= 2;
    }
}

impl Step {
    fn merge(&mut self, other: Step) {
        self.len += other.len;
        for (count, more) in self.classes.iter_mut().zip(other.classes) {
            *count += more;
        }
        for (shape, more) in self.phases.iter_mut().zip(other.phases) {
            match (shape.as_mut(), more) {
                (Some(shape), Some(more)) => shape.merge(&more),
                (None, more) => *shape = more,
                (Some(_), None) => {}
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use telemetry::{KnownSpans, Nanos};

    proptest! {
        #[test]
        fn nothing_is_lost_whatever_the_order(
            seconds in prop::collection::vec(prop::sample::select(vec![0u64, 1, 2, 100, 239, 240, 241, 5_000, 86_400, 971_186_136]), 1..50),
        ) {
            let mut timeline = Timeline::default();
            for &second in &seconds {
                let spans = KnownSpans { run: Some(Nanos(second + 1)), ..KnownSpans::default() };
                timeline.take(&Line {
                    wall_ns: Some(second * 1_000_000_000 + 5),
                    status: Some(200),
                    spans,
                    ..Line::default()
                });
            }
            prop_assert!(timeline.steps.len() as u64 <= STEPS_LEN_MAX);
            prop_assert!(timeline.width_secs.is_power_of_two());
            for (begin, step) in timeline.steps() {
                let expect = seconds.iter().filter(|&&second| (begin..begin + timeline.width_secs).contains(&second)).count() as u64;
                prop_assert_eq!(step.len, expect);
                prop_assert_eq!(step.classes[2], expect);
                prop_assert_eq!(step.phases[2].as_ref().map_or(0, Snapshot::len), expect);
                prop_assert!(step.phases[0].is_none());
            }
            prop_assert_eq!(timeline.steps().map(|(_, step)| step.len).sum::<u64>(), seconds.len() as u64);
        }
    }
}
