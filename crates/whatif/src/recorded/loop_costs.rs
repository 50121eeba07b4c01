//! What it costs to give an event loop its work.
//!
//! Takes a recording, gives what a sleeping loop needs to look at its queue, and what it costs the loop to begin a request
//! beside the steps that the log shows: to look, to make its task, to send its response.

use std::num::NonZeroU32;

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
/// So many begins in turn have a mean of their own where steps of others may lie between them; else each has its own.
const OWN_LEN: usize = 16;
/// With fewer, the steps of tasks that began before tell too little, and the mean of all counts.
const OWN_LEN_MIN: usize = 8;
/// Between two begins that are farther apart something else happened.
const SPAN_MAX_NS: u64 = 50_000_000;
/// More was spent otherwise: by tasks that the application has made itself.
const BEGIN_MAX_NS: u64 = 5_000_000;

impl LoopCosts {
    /// From the waits of a recording of requests that ran on event loops.
    pub fn of(recording: &Recording) -> LoopCosts {
        let mut wakes = wakes(recording);
        if (wakes.len() as u64) < LEN_MIN {
            // The loop hardly ever slept. At its limit even the shortest waits are those for others, and would delay all
            // of a simulation in which it never sleeps again.
            let found = wakes.first().copied().into_iter();
            wakes = found.chain(shortest(recording)).min().into_iter().collect();
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
            false => {
                let mut mean = MeanBegin::default();
                busy_spans(recording, &mut |span| mean.add(span));
                mean.ns()
            }
        };
        LoopCosts {
            wake: Nanos(wake),
            wakes: typical(&wakes),
            begin: Nanos(begin.unwrap_or(0).min(BEGIN_MAX_NS)),
        }
    }
}

/// The waits, in order, of requests that found a sleeping loop.
fn wakes(recording: &Recording) -> Vec<u64> {
    let mut found: Vec<u64> = own_wakes(recording).into_iter().map(|(_, ns)| ns).collect();
    found.sort_unstable();
    found
}

/// The requests that came while nothing with a long step was inside, nobody waited and there was room, by their places, and
/// what they waited: the loop slept, or nearly so.
///
/// A loop that needs long for that lies where it lay as well: clients that wait for their answers ask nothing meanwhile.
pub(super) fn own_wakes(recording: &Recording) -> Vec<(usize, u64)> {
    let room = room(recording);
    let mut found = Vec::new();
    for process in 0..recording.processes() {
        let all = || recording.kept.iter().zip(&recording.steps).enumerate();
        let is_own = |one: &Kept| one.has_run() && usize::from(one.process) == process;
        let own = || all().filter(|(_, (one, _))| is_own(one));
        let inside = Inside::of(own().map(|(_, (one, _))| (one.at, one.ended())));
        let long = own().filter(|(_, (_, steps))| steps.steps().longest.0 >= LONG_STEP_NS);
        let long = Inside::of(long.map(|(_, (one, _))| (one.began(), one.ended())));
        // A loop that others wait for does not sleep, however short the steps are that it is at.
        let waiting = Inside::of(own().map(|(_, (one, _))| (one.at, one.began())));
        for (index, (one, _)) in own() {
            // Those that wait already get the places before it.
            let has_place = waiting.len(one.at, one.at) == 0 && inside.len(one.at, one.at) < room;
            if has_place && long.len(one.at, one.began()) == 0 {
                found.push((index, one.queue_ns()));
            }
        }
    }
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

/// What it cost the loop to begin each request, where the log says that: while the loop did nothing but work, the time from
/// one begin to the next, without the step.
///
/// The mean of all does not repeat a loop at its limit. Nothing is idle there, so that an error of a microsecond for each
/// request adds to the waits of all that follow, 40,000 times a second, and a moment in which something else held the loop
/// must lie where it lay: clients that wait for their answers ask nothing meanwhile.
pub(super) fn begins(recording: &Recording) -> Vec<Option<NonZeroU32>> {
    let mut own = vec![None; recording.kept.len()];
    if recording.is_by_second() {
        return own;
    }
    busy_spans(recording, &mut |span| span.own_begins(&mut own));
    own
}

/// Gives each time in which a loop did nothing but work: while requests waited for it, and it had room for them.
fn busy_spans(recording: &Recording, take: &mut dyn FnMut(&BusySpan)) {
    let room = room(recording);
    for process in 0..recording.processes() {
        let all = recording.kept.iter().zip(&recording.steps).enumerate();
        let own = all.filter(|(_, (one, _))| one.has_run() && usize::from(one.process) == process);
        let mut runs: Vec<LoopRun> = own
            .map(|(index, (one, steps))| LoopRun {
                index,
                began: one.began(),
                came: one.at,
                ended: one.ended(),
                busy: steps.steps().busy.0,
            })
            .collect();
        runs.sort_by_key(|run| (run.began, run.came));
        let mut ends: Vec<u64> = runs.iter().map(|run| run.ended).collect();
        ends.sort_unstable();
        let mut span = BusySpan::default();
        for (index, pair) in runs.windows(2).enumerate() {
            let [run, next] = [pair[0], pair[1]];
            let inside = (index + 1).saturating_sub(ends.partition_point(|end| *end <= next.began));
            let is_awaited =
                next.came <= run.began || inside == 0 && next.began - next.came > WAKE_MAX_NS;
            let is_within = is_awaited && inside < room;
            if !is_within || next.began - run.began > SPAN_MAX_NS {
                take(&span);
                span = BusySpan::default();
                continue;
            }
            span.runs.push(run);
            span.has_tasks |= inside > 0;
            span.until = next.began;
        }
        take(&span);
    }
}

#[derive(Clone, Copy)]
struct LoopRun {
    /// Among all of the recording.
    index: usize,
    began: u64,
    came: u64,
    ended: u64,
    busy: u64,
}

/// A time in which a loop did nothing but work: from the begin of a request to that of the last that waited for it. What is
/// left of it beside the steps is what it cost to begin the requests that began in it.
#[derive(Default)]
struct BusySpan {
    /// Requests that began in it, the last one apart.
    runs: Vec<LoopRun>,
    /// When the last one began.
    until: u64,
    /// Some had not ended when the next one began: their other steps may lie in this time or outside.
    has_tasks: bool,
}

impl BusySpan {
    /// Gives the requests of this span their begins.
    fn own_begins(&self, own: &mut [Option<NonZeroU32>]) {
        if self.runs.is_empty() || self.has_tasks && self.runs.len() < OWN_LEN_MIN {
            return;
        }
        // Steps of those that began before, and still to do: they are taken from what follows.
        let mut owed = 0;
        let mut rest = &self.runs[..];
        while !rest.is_empty() {
            let len = match self.has_tasks {
                false => 1,
                // The last few belong to those before them.
                true if rest.len() < 2 * OWN_LEN => rest.len(),
                true => OWN_LEN,
            };
            let (few, later) = rest.split_at(len);
            let until = later.first().map_or(self.until, |run| run.began);
            let took = until - few[0].began;
            let busy: u64 = few.iter().map(|run| run.busy).sum::<u64>() + owed;
            owed = busy.saturating_sub(took);
            let most = if self.has_tasks {
                BEGIN_MAX_NS
            } else {
                SPAN_MAX_NS
            };
            let each = (took.saturating_sub(busy) / len as u64).clamp(1, most);
            let each = u32::try_from(each).ok().and_then(NonZeroU32::new);
            for run in few {
                own[run.index] = each;
            }
            rest = later;
        }
    }
}

/// The mean of all begins.
#[derive(Default)]
struct MeanBegin {
    len: u64,
    left_ns: u64,
}

impl MeanBegin {
    fn add(&mut self, span: &BusySpan) {
        // The steps of those inside at its ends lie partly outside: in a short span that is all there is.
        if span.runs.len() as u64 >= LEN_MIN {
            let took = span.until - span.runs[0].began;
            let busy: u64 = span.runs.iter().map(|run| run.busy).sum();
            // As much is still to do of those that began late as was to do of those that began before.
            self.len += span.runs.len() as u64;
            self.left_ns += took.saturating_sub(busy);
        }
    }

    fn ns(&self) -> Option<u64> {
        (self.len >= LEN_MIN).then(|| self.left_ns / self.len)
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
