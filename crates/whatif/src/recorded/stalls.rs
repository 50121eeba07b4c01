//! Times in which the whole server stood still.
//!
//! Takes a recording, gives pauses: garbage collections, a disk that did not answer, a lock that all
//! requests want, a machine that was suspended. More threads do not remove them, so they are subtracted from the
//! run times and replayed for the whole server. Chance must not look like one: all running requests have to end
//! together right after it, whatever their routes, and to have run much longer than their routes do.

use std::collections::BTreeMap;

use telemetry::{Nanos, nearest_rank};

use super::work::{Event, WorkStep, walk};
use super::{Kept, Recording};
use crate::Pause;

/// A shorter one is a hiccup.
const LEAST_NS: u64 = 30_000_000;
/// Hanging requests end within this part of the pause after it, or within [`AFTER_NS_MIN`].
const AFTER_SHARE: u64 = 10;
const AFTER_NS_MIN: u64 = 10_000_000;
/// At least so many have hung.
const HUNG_LEN_MIN: usize = 3;
/// And have run so many times longer than the median of their route.
const TIMES_LONGER: u64 = 3;
/// Of those that were at work, so many of ten end together.
const TENTHS: usize = 8;
/// Run times of a route that its median is made of.
const MEDIAN_LEN: usize = 2_001;

/// The pauses, in the order of time; none overlaps another.
pub fn stalls(recording: &Recording) -> Vec<Pause> {
    let kept = &recording.kept;
    let medians = run_medians(kept);
    let is_odd = |one: &Kept| {
        let median = medians.get(&one.route).copied().unwrap_or(0);
        one.run_ns() > TIMES_LONGER * median
    };
    let mut search = StallSearch::default();
    walk(kept, |_| true, &mut |step| {
        search.see(step, &kept[step.index], is_odd(&kept[step.index]));
    });
    search.settle();
    // As many as chance makes of requests that are long by themselves are none.
    let is_beyond_chance = search.found.len() as f64 > 3.0 * search.by_chance + 0.5;
    match is_beyond_chance {
        true => search.found,
        false => Vec::new(),
    }
}

fn run_medians(kept: &[Kept]) -> BTreeMap<u16, u64> {
    let mut runs: BTreeMap<u16, Vec<u64>> = BTreeMap::new();
    for one in kept.iter().filter(|one| one.has_run()) {
        let runs = runs.entry(one.route).or_default();
        if runs.len() < MEDIAN_LEN {
            runs.push(one.run_ns());
        }
    }
    let median = |mut runs: Vec<u64>| {
        let middle = nearest_rank(0.5, runs.len() as u64) as usize - 1;
        *runs.select_nth_unstable(middle).1
    };
    runs.into_iter()
        .map(|(route, runs)| (route, median(runs)))
        .collect()
}

/// A gap without an end, while it is not known who ends after it.
#[derive(Clone, Copy)]
struct Candidate {
    from: u64,
    to: u64,
    /// At work for at least its second half.
    running: usize,
    /// Of these, those that ended since, oddly late.
    hung: usize,
}

#[derive(Default)]
struct StallSearch {
    last_end: u64,
    /// When those began that are at work now: how many at which moment.
    begins: BTreeMap<u64, usize>,
    candidate: Option<Candidate>,
    found: Vec<Pause>,
    /// How many would be found if those that ran long ended independently of each other.
    by_chance: f64,
}

impl StallSearch {
    fn see(&mut self, step: WorkStep, one: &Kept, is_odd: bool) {
        // What ends so much later than the gap did not hang in it.
        if let Some(candidate) = self.candidate
            && step.now > candidate.to + after_ns(candidate)
        {
            self.settle();
        }
        match step.event {
            Event::Begins => *self.begins.entry(step.now).or_default() += 1,
            Event::Ends => {
                self.notice_gap(step);
                if let Some(candidate) = &mut self.candidate
                    // As `running` counts them; one that began late in the gap may just be short.
                    && one.began() < middle(candidate.from, candidate.to)
                {
                    candidate.hung += usize::from(is_odd);
                }
                self.last_end = step.now;
                self.forget(one.began());
            }
        }
    }

    fn notice_gap(&mut self, step: WorkStep) {
        let oldest = self.begins.keys().next().copied().unwrap_or(step.now);
        // Nothing has ended since `last_end`; but while nothing ran either, nothing could end.
        let from = self.last_end.max(oldest);
        if step.now - from >= LEAST_NS && self.candidate.is_none() {
            self.candidate = Some(Candidate {
                from,
                to: step.now,
                running: self
                    .begins
                    .range(..middle(from, step.now))
                    .map(|(_, len)| len)
                    .sum(),
                hung: 0,
            });
        }
    }

    fn forget(&mut self, began: u64) {
        if let Some(len) = self.begins.get_mut(&began) {
            *len -= 1;
            if *len == 0 {
                self.begins.remove(&began);
            }
        }
    }

    /// Decides about the candidate.
    fn settle(&mut self) {
        let Some(candidate) = self.candidate.take() else {
            return;
        };
        let lasted = candidate.to - candidate.from;
        if candidate.running >= HUNG_LEN_MIN {
            // The first one ends the gap; each other one ends in time with this chance.
            let chance = after_ns(candidate) as f64 / lasted as f64;
            self.by_chance += chance.min(1.0).powi(candidate.running as i32 - 1);
        }
        if candidate.hung >= HUNG_LEN_MIN && candidate.hung * 10 >= candidate.running * TENTHS {
            self.found.push(Pause {
                at: Nanos(candidate.from),
                lasts: Nanos(lasted),
            });
        }
    }
}

fn middle(from: u64, to: u64) -> u64 {
    from + (to - from) / 2
}

fn after_ns(candidate: Candidate) -> u64 {
    ((candidate.to - candidate.from) / AFTER_SHARE).max(AFTER_NS_MIN)
}

/// The server's own time, which leaves pauses out.
pub(super) struct Moving {
    /// Begin and length of each pause, and what was lost before it.
    pauses: Vec<(u64, u64, u64)>,
}

impl Moving {
    pub(super) fn new(pauses: &[Pause]) -> Moving {
        let are_apart = |pair: &[Pause]| pair[0].at.0 + pair[0].lasts.0 <= pair[1].at.0;
        assert!(
            pauses.windows(2).all(are_apart),
            "pauses are in order, and none overlaps another"
        );
        let mut lost = 0;
        let each = pauses.iter().map(|pause| {
            let before = lost;
            lost += pause.lasts.0;
            (pause.at.0, pause.lasts.0, before)
        });
        Moving {
            pauses: each.collect(),
        }
    }

    pub(super) fn at(&self, now: u64) -> u64 {
        let begun = self.pauses.partition_point(|pause| pause.0 <= now);
        match begun.checked_sub(1).map(|last| self.pauses[last]) {
            None => now,
            Some((at, lasts, before)) => now - before - lasts.min(now - at),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::Seen;
    use super::super::tests::{recording, seen};
    use super::*;

    /// Requests of 5 ms of three routes, one each millisecond; what runs between 500 and 900 ms hangs.
    fn hanging(is_hung: fn(u64) -> bool) -> Vec<Seen> {
        let one = |index: u64| {
            let at_us = 1 + index * 1_000;
            let hangs = (495_000..900_000).contains(&at_us) && is_hung(index);
            let run_us = if hangs {
                900_000 - at_us + 5_000 + index
            } else {
                5_000
            };
            Seen {
                route: (index % 3) as u16,
                ..seen(at_us, 0, run_us)
            }
        };
        // Nothing begins while everything hangs for lack of threads.
        (0..2_000u64)
            .filter(|index| !(510..900).contains(index))
            .map(one)
            .collect()
    }

    #[test]
    fn finds_a_pause_of_all_routes() {
        let found = stalls(&recording(&hanging(|_| true)));
        let [pause] = found[..] else {
            panic!("{found:?}")
        };
        let ms = |span: Nanos| span.0 / 1_000_000;
        assert!((495..=510).contains(&ms(pause.at)), "{pause:?}");
        assert!((390..=410).contains(&ms(pause.lasts)), "{pause:?}");
    }

    #[test]
    fn a_quiet_time_is_none() {
        let all: Vec<Seen> = (0..200)
            .map(|index| seen(1 + index * 500_000, 0, 5_000))
            .collect();
        assert_eq!(stalls(&recording(&all)), []);
    }

    #[test]
    fn a_slow_route_is_none() {
        // Four of them begin and end together, as they always do, and nothing else goes on.
        let all: Vec<Seen> = (0..200)
            .map(|index| Seen {
                route: 7,
                ..seen(1 + index / 4 * 1_000_000, 0, 400_000)
            })
            .collect();
        assert_eq!(stalls(&recording(&all)), []);
    }

    #[test]
    fn long_tails_are_none() {
        // Three threads that are always at work, with runs from 5 ms to seconds.
        let mut random = fastrand::Rng::with_seed(5);
        let mut free = [1u64; 3];
        let all: Vec<Seen> = (0..6_000)
            .map(|index| {
                let run_us = (5_000.0 / random.f64().max(1e-4).powf(0.7)) as u64;
                let begin = free[index % 3];
                free[index % 3] += run_us;
                seen(begin, 0, run_us)
            })
            .collect();
        assert_eq!(stalls(&recording(&all)), []);
    }

    #[test]
    fn who_hangs_alone_does_not_stop_the_others() {
        let all: Vec<Seen> = (0..2_000u64)
            .map(|index| {
                let run_us = if index % 100 == 50 { 400_000 } else { 2_000 };
                seen(1 + index * 1_000, 0, run_us)
            })
            .collect();
        assert_eq!(stalls(&recording(&all)), []);
    }

    #[test]
    fn own_time_leaves_pauses_out() {
        let pause = |at: u64, lasts: u64| Pause {
            at: Nanos(at),
            lasts: Nanos(lasts),
        };
        let moving = Moving::new(&[pause(100, 50), pause(200, 10)]);
        let found = [0, 100, 130, 150, 199, 205, 210, 300].map(|now| moving.at(now));
        assert_eq!(found, [0, 100, 100, 100, 149, 150, 150, 240]);
    }
}
