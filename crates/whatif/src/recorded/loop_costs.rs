//! What it costs to give an event loop its work.
//!
//! Takes a recording, gives what a sleeping loop needs to look at its queue, and what it costs the loop to begin a request
//! beside the steps that the log shows: to look, to make its task, to send its response.

use telemetry::{Nanos, nearest_rank};

use super::{Kept, KeptSteps, Recording};

/// What it costs to give an event loop its work.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct LoopCosts {
    /// What a sleeping loop needs to look at its queue, mostly: a median.
    pub wake: Nanos,
    /// What sleeping loops needed, from the shortest to the longest, as many as tell: on a machine that is short of
    /// processors some need milliseconds.
    pub wakes: Vec<Nanos>,
    /// What it costs the loop to begin a request: a mean, because it is lost to all that wait.
    pub begin: Nanos,
}

/// Of all waits: the shortest are those for a loop that slept.
const SHORTEST: f64 = 0.01;
/// With fewer, a mean is an accident.
const LEN_MIN: u64 = 30;
/// A request without a longer step holds the loop for no time that matters.
const LONG_STEP_NS: u64 = 1_000_000;
/// With fewer wakes, all count as the median.
const TAIL_LEN_MIN: usize = 200;
/// Wakes that are kept.
const WAKES_LEN_MAX: usize = 1_000;
/// A longer wait was one for the loop.
const WAKE_MAX_NS: u64 = 1_000_000;
/// Between two begins that are farther apart something else happened.
const SPAN_MAX_NS: u64 = 50_000_000;
/// More was spent otherwise: by tasks that the application has made itself.
const BEGIN_MAX_NS: u64 = 5_000_000;

impl LoopCosts {
    /// From the waits of a recording of requests that ran on event loops.
    pub fn of(recording: &Recording) -> LoopCosts {
        let mut wakes = wakes(recording);
        if (wakes.len() as u64) < LEN_MIN {
            // Where the loop hardly ever slept, what it needs then hardly matters.
            wakes = shortest(recording).into_iter().collect();
        }
        let wake = match wakes.len() as u64 {
            0 => 0,
            len => wakes[nearest_rank(0.5, len) as usize - 1],
        };
        if (1..TAIL_LEN_MIN).contains(&wakes.len()) {
            // The longest of a few are accidents, and each would count for many requests.
            wakes = vec![wake];
        }
        let begin = match recording.is_by_second() {
            // Arrivals within a second are a guess, and so are begins.
            true => None,
            false => begin_ns(recording),
        };
        LoopCosts {
            wake: Nanos(wake),
            wakes: typical(&wakes),
            begin: Nanos(begin.unwrap_or(0).min(BEGIN_MAX_NS)),
        }
    }
}

/// The waits, in order, of requests that came while nothing with a long step was inside, and there was room: the loop slept,
/// or nearly so.
fn wakes(recording: &Recording) -> Vec<u64> {
    let room = room(recording);
    let mut found = Vec::new();
    for process in 0..recording.processes() {
        let own = || ran(recording).filter(|(one, _)| usize::from(one.process) == process);
        let long = || own().filter(|(_, steps)| steps.steps().longest.0 >= LONG_STEP_NS);
        // Those that wait already get the places before it.
        let all = Inside::of(own().map(|(one, _)| (one.at, one.ended())));
        let long = Inside::of(long().map(|(one, _)| (one.began(), one.ended())));
        for (one, _) in own() {
            if all.len(one.at, one.at) < room && long.len(one.at, one.began()) == 0 {
                found.push(one.queue_ns());
            }
        }
    }
    found.sort_unstable();
    found
}

/// With one place left, the next request may have waited for a place.
fn room(recording: &Recording) -> usize {
    recording.inside_max().saturating_sub(1).max(1)
}

/// When requests were there.
struct Inside {
    begins: Vec<u64>,
    ends: Vec<u64>,
}

impl Inside {
    fn of(spans: impl Iterator<Item = (u64, u64)>) -> Inside {
        let (mut begins, mut ends): (Vec<u64>, Vec<u64>) = spans.unzip();
        begins.sort_unstable();
        ends.sort_unstable();
        Inside { begins, ends }
    }

    /// How many of them were there at any moment behind `from` and before `until`.
    fn len(&self, from: u64, until: u64) -> usize {
        let begun = self.begins.partition_point(|begin| *begin < until);
        begun.saturating_sub(self.ends.partition_point(|end| *end <= from))
    }
}

/// The shortest waits of all.
fn shortest(recording: &Recording) -> Option<u64> {
    let mut waits: Vec<u64> = ran(recording).map(|(one, _)| one.queue_ns()).collect();
    waits.sort_unstable();
    let rank = nearest_rank(SHORTEST, waits.len() as u64).max(1);
    let found = waits.get(rank as usize - 1)?;
    Some(*found.min(&WAKE_MAX_NS))
}

/// As many of them as tell, evenly.
fn typical(wakes: &[u64]) -> Vec<Nanos> {
    let step = wakes.len().div_ceil(WAKES_LEN_MAX).max(1);
    let from = wakes.len().saturating_sub(1) % step;
    let kept = wakes.iter().skip(from).step_by(step);
    kept.map(|ns| Nanos(*ns)).collect()
}

fn ran(recording: &Recording) -> impl Iterator<Item = (&Kept, &KeptSteps)> {
    let both = recording.kept.iter().zip(&recording.steps);
    both.filter(|(one, _)| one.has_run())
}

/// While requests waited for a loop that had room for them, it did nothing but work: what is left of that time beside the
/// steps is what it costs to begin the requests that began in it.
fn begin_ns(recording: &Recording) -> Option<u64> {
    let room = room(recording);
    let (mut begun_len, mut left_ns) = (0, 0);
    for process in 0..recording.processes() {
        let own = ran(recording).filter(|(one, _)| usize::from(one.process) == process);
        let mut runs: Vec<LoopRun> = own
            .map(|(one, steps)| LoopRun {
                began: one.began(),
                came: one.at,
                ended: one.ended(),
                busy: steps.steps().busy.0,
            })
            .collect();
        runs.sort_unstable_by_key(|run| run.began);
        let mut ends: Vec<u64> = runs.iter().map(|run| run.ended).collect();
        ends.sort_unstable();
        let mut span = BusySpan::default();
        for (index, pair) in runs.windows(2).enumerate() {
            let [run, next] = [pair[0], pair[1]];
            let inside = (index + 1).saturating_sub(ends.partition_point(|end| *end <= next.began));
            let is_within = next.came <= run.began && inside < room;
            if !is_within || next.began - run.began > SPAN_MAX_NS {
                span.close(&mut begun_len, &mut left_ns);
                continue;
            }
            span.extend(run, next.began);
        }
        span.close(&mut begun_len, &mut left_ns);
    }
    (begun_len >= LEN_MIN).then(|| left_ns / begun_len)
}

#[derive(Clone, Copy)]
struct LoopRun {
    began: u64,
    came: u64,
    ended: u64,
    busy: u64,
}

/// A time in which a loop did nothing but work: from the begin of a request to that of the last that waited for it.
#[derive(Default)]
struct BusySpan {
    /// Requests that began in it, the last one apart.
    runs: Vec<LoopRun>,
    until: u64,
}

impl BusySpan {
    fn extend(&mut self, run: LoopRun, until: u64) {
        self.runs.push(run);
        self.until = until;
    }

    fn close(&mut self, begun_len: &mut u64, left_ns: &mut u64) {
        // The steps of those inside at its ends lie partly outside: in a short span that is all there is.
        if self.runs.len() as u64 >= LEN_MIN {
            let took = self.until - self.runs[0].began;
            let busy: u64 = self.runs.iter().map(|run| run.busy).sum();
            // As much is still to do of those that began late as was to do of those that began before.
            *begun_len += self.runs.len() as u64;
            *left_ns += took.saturating_sub(busy);
        }
        self.runs.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::super::Seen;
    use super::super::tests::{recording, seen};
    use super::*;
    use crate::LoopSteps;

    /// 20 bursts of 40 requests that come together; each takes 200 us of the loop, and 50 more to begin.
    fn bursts(waits_us: u64) -> Vec<Seen> {
        let one = |index: u64| {
            let (burst, place) = (index / 40, index % 40);
            let run_us = 200 + waits_us;
            Seen {
                steps: Some(LoopSteps {
                    len: 2,
                    busy: Nanos::from_us(200),
                    longest: Nanos::from_us(100),
                    ..LoopSteps::default()
                }),
                ..seen(1 + burst * 100_000, 80 + place * 250, run_us)
            }
        };
        (0..800).map(one).collect()
    }

    #[test]
    fn costs_are_what_is_left_of_the_time_between_two_begins() {
        let costs = LoopCosts::of(&recording(&bursts(0)));
        // Those of a burst find it at work as well, in steps that are too short to tell.
        assert_eq!(
            (costs.wakes[0], costs.wakes.len()),
            (Nanos::from_us(80), 800)
        );
        assert!(costs.begin.0.abs_diff(50_000) < 2_000, "{costs:?}");
        // With most places taken, requests may have waited for one.
        let costs = LoopCosts::of(&recording(&bursts(300)));
        assert_eq!(costs.begin, Nanos::ZERO);
    }

    #[test]
    fn who_waits_for_a_place_does_not_wait_for_a_sleeping_loop() {
        // Three places, of which each is taken for 50 ms; four come together, and the last one waits for a place.
        let one = |index: u64| {
            let (burst, place) = (index / 4, index % 4);
            let queue_us = if place == 3 { 50_200 } else { 100 };
            Seen {
                steps: Some(LoopSteps {
                    len: 2,
                    busy: Nanos::from_us(100),
                    longest: Nanos::from_us(50),
                    ..LoopSteps::default()
                }),
                ..seen(1 + burst * 500_000 + place, queue_us, 50_000)
            }
        };
        let all: Vec<Seen> = (0..200).map(one).collect();
        let costs = LoopCosts::of(&recording(&all));
        assert_eq!(costs.wakes.last(), Some(&Nanos::from_us(100)));
    }

    #[test]
    fn few_requests_tell_nothing() {
        let costs = LoopCosts::of(&recording(&bursts(0)[..20]));
        assert_eq!(costs.begin, Nanos::ZERO);
        assert_eq!(LoopCosts::of(&recording(&[])), LoopCosts::default());
    }

    #[test]
    fn a_sleeping_loop_needs_what_requests_waited_that_found_nothing_long_inside() {
        // A step of 50 ms every second, during which one comes; two others find the loop asleep.
        let step = |at_us, queue_us, busy_us| Seen {
            steps: Some(LoopSteps {
                len: 1,
                busy: Nanos::from_us(busy_us),
                longest: Nanos::from_us(busy_us),
                ..LoopSteps::default()
            }),
            ..seen(at_us, queue_us, busy_us)
        };
        let second = |index: u64| {
            let at = 1 + index * 1_000_000;
            [
                step(at, 90, 50_000),
                step(at + 20_000, 30_090, 100),
                step(at + 200_000, 100, 100),
                step(at + 400_000, 4_000, 100),
            ]
        };
        let of = |seconds| {
            let all: Vec<Seen> = (0..seconds).flat_map(second).collect();
            LoopCosts::of(&recording(&all))
        };
        let costs = of(100);
        assert_eq!(costs.wakes.len(), 300);
        let us = |at: usize| costs.wakes[at].0 / 1_000;
        assert_eq!([us(0), us(150), us(299)], [90, 100, 4_000]);
        assert_eq!(costs.wake, costs.wakes[149]);
        // Of few, the median alone tells.
        assert_eq!(of(20).wakes, [Nanos::from_us(100)]);
    }
}
