//! What it costs to give a thread its work.
//!
//! Takes a recording, gives what an idle thread needs to begin and what a busy one needs from one request to
//! the next. Both are in the waits that were measured, and a simulation without them would come out too good.

use telemetry::{Nanos, nearest_rank, share_of_rank};

use super::work::{Event, walk};
use super::{FROM_IDLE, FROM_QUEUE, Kept, Recording};
use crate::Pause;

/// What it costs to give a thread its work.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Costs {
    /// What an idle thread needs to begin, mostly: a median.
    pub wake: Nanos,
    /// What idle threads needed to begin, from the shortest to the longest, as many as tell: on a machine that is
    /// short of processors some need milliseconds.
    pub wakes: Vec<Nanos>,
    /// What a thread needs from one request to the next: a mean, because time lost between requests is lost
    /// to all waiting ones; a median where durations are rounded.
    pub fetch: Nanos,
}

/// With fewer, a median is an accident.
const LEN_MIN: usize = 10;
/// A thread that began so much later than another one was done did something else in between.
const FETCH_MAX_NS: u64 = 50_000_000;
/// Rounded spans that are longer than this together say nothing of a fetch: to 0.05 % they are wrong by up to 50 µs.
const ROUNDED_MAX_NS: u64 = 100_000_000;
/// Wakes that are kept.
const WAKES_LEN_MAX: usize = 1_000;
/// A longer wait was one in the queue.
const WAKE_MAX_NS: u64 = 1_000_000;
/// A wait of so many wakes was one in the queue, where the log does not say so.
const WAKES: u64 = 5;

impl Costs {
    /// From the waits of a recording. Where a log says which requests found an idle thread, `wake` is the median of their
    /// waits, else what the shortest tenth of all waits is within, unless even those have waited in the queue.
    /// A request that waited during one of the `pauses` waited for its end.
    pub fn of(recording: &Recording, pauses: &[Pause]) -> Costs {
        let wakes = wakes(&recording.kept, pauses);
        let wake = match wakes.len() {
            ..LEN_MIN => shortest(recording),
            len => wakes[nearest_rank(0.5, len as u64) as usize - 1],
        };
        // Within a second arrivals are a guess, and so are begins.
        // Their differences would be noise of half a second.
        let fetches = match recording.is_by_second {
            true => Vec::new(),
            false => fetches(recording, wake),
        };
        Costs {
            wake: Nanos(wake),
            wakes: typical(&wakes, wake),
            fetch: Nanos(fetch(fetches, recording.has_rounded).unwrap_or(wake)),
        }
    }
}

/// The waits of requests that found an idle thread, in order.
fn wakes(kept: &[Kept], pauses: &[Pause]) -> Vec<u64> {
    let stood_still = |one: &&Kept| {
        let begun = pauses.partition_point(|pause| pause.at.0 < one.began());
        let last = begun.checked_sub(1).map(|last| pauses[last]);
        last.is_some_and(|pause| pause.at.0 + pause.lasts.0 > one.at)
    };
    let idle = kept
        .iter()
        .filter(|one| one.has_run() && one.pool_and_origin & FROM_IDLE != 0);
    let mut found: Vec<u64> = idle
        .filter(|one| !stood_still(one))
        .map(Kept::queue_ns)
        .collect();
    found.sort_unstable();
    found
}

/// As many of them as tell, evenly; `wake` where too few are known.
fn typical(wakes: &[u64], wake: u64) -> Vec<Nanos> {
    match wakes.len() {
        ..LEN_MIN => vec![Nanos(wake)],
        len => {
            let step = len.div_ceil(WAKES_LEN_MAX);
            let from = (len - 1) % step;
            wakes[from..]
                .iter()
                .step_by(step)
                .map(|ns| Nanos(*ns))
                .collect()
        }
    }
}

fn shortest(recording: &Recording) -> u64 {
    match recording
        .queue
        .value_at_quantile(share_of_rank(0.1, recording.queue.len()))
    {
        tenth if tenth <= WAKE_MAX_NS => tenth,
        _ => recording.queue.min().min(WAKE_MAX_NS),
    }
}

/// From the end of one request to the begin of the next that waited for it.
fn fetches(recording: &Recording, wake: u64) -> Vec<u64> {
    let kept = &recording.kept;
    let has_waited = |one: &Kept| match one.pool_and_origin & (FROM_IDLE | FROM_QUEUE) {
        0 => one.queue_ns() > WAKES * wake,
        origin => origin == FROM_QUEUE,
    };
    let spans = |one: &Kept| one.queue_ns().saturating_add(one.run_ns());
    let is_told = |ended: usize, one: &Kept| {
        !recording.has_rounded
            || one.queue_ns().saturating_add(spans(&kept[ended])) <= ROUNDED_MAX_NS
    };
    let mut found = Vec::new();
    for process in 0..recording.processes() {
        // By pool, because their threads do not help each other.
        let mut last_end = [None; super::POOLS_LEN_MAX];
        walk(
            kept,
            |one| usize::from(one.process) == process,
            &mut |step| {
                let one = &kept[step.index];
                let last = &mut last_end[usize::from(one.pool())];
                match (step.event, *last) {
                    (Event::Ends, _) => *last = Some((step.now, step.index)),
                    (Event::Begins, Some((end, ended))) if has_waited(one) && end > one.at => {
                        let fetch = step.now - end;
                        let counts = fetch <= FETCH_MAX_NS && is_told(ended, one);
                        found.extend(counts.then_some(fetch));
                    }
                    (Event::Begins, _) => {}
                }
            },
        );
    }
    found
}

fn fetch(mut spans: Vec<u64>, are_rounded: bool) -> Option<u64> {
    let len = spans.len() as u64;
    if spans.len() < LEN_MIN {
        return None;
    }
    if !are_rounded {
        return Some(spans.iter().sum::<u64>() / len);
    }
    // An end that seems to be behind the begin of the next run has another end in its place, and no error to the other
    // side makes up for that.
    spans.sort_unstable();
    Some(spans[nearest_rank(0.5, len) as usize - 1])
}

#[cfg(test)]
mod tests {
    use super::super::tests::{recording, rounded_recording, seen};
    use super::super::{Found, Seen};
    use super::*;

    /// Four threads, and eight requests at once every two seconds: four of them begin 30 µs after the end of one before.
    /// Spans are said to `digits` binary digits.
    fn busy(digits: u32) -> Vec<Seen> {
        let rounded = |us: u64| {
            let step = 1 << (us.max(1).ilog2() + 1).saturating_sub(digits);
            (us + step / 2) / step * step
        };
        let mut free = [0_u64; 4];
        let each = |index: u64| {
            let at = 1 + index / 8 * 2_000_000 + index % 8;
            let thread = free.iter_mut().min().unwrap();
            let began = (*thread).max(at) + 30;
            let from_queue = *thread > at;
            let run = match index % 40 {
                4 => 1_500_000 + index,
                _ => 10_000 + index * 7_919 % 150_000,
            };
            *thread = began + run;
            Seen {
                found: Some(Found {
                    threads: 4,
                    from_queue,
                }),
                ..seen(at, rounded(began - at), rounded(run))
            }
        };
        (0..400).map(each).collect()
    }

    #[test]
    fn rounded_durations_cost_nothing() {
        let exact = Costs::of(&recording(&busy(64)), &[]).fetch;
        let rounded = Costs::of(&rounded_recording(&busy(11)), &[]).fetch;
        assert!(exact.0.abs_diff(30_000) < 5_000, "{exact:?}");
        assert!(rounded.0.abs_diff(30_000) < 30_000, "{rounded:?}");
    }

    /// One thread: every second request comes while the one before runs, and begins 30 µs after its end; the
    /// others find it idle and begin after 90 µs.
    fn pairs(found: fn(bool) -> Option<Found>) -> Vec<Seen> {
        let pair = |index: u64| {
            let at = index * 100_000 + 1;
            let first = Seen {
                found: found(false),
                ..seen(at, 90, 10_000)
            };
            let second = Seen {
                found: found(true),
                ..seen(at + 5_000, 5_120, 10_000)
            };
            [first, second]
        };
        (0..50).flat_map(pair).collect()
    }

    fn check(all: &[Seen]) {
        let costs = Costs::of(&recording(all), &[]);
        let close = |found: Nanos, us: u64| found.0.abs_diff(us * 1_000) < 1_000;
        assert!(close(costs.wake, 90) && close(costs.fetch, 30), "{costs:?}");
    }

    #[test]
    fn idle_and_queue_are_measured_apart() {
        check(&pairs(|from_queue| {
            Some(Found {
                threads: 1,
                from_queue,
            })
        }));
    }

    #[test]
    fn where_the_log_does_not_say_the_shortest_waits_do() {
        check(&pairs(|_| None));
    }

    #[test]
    fn where_everybody_waits_a_wake_is_short_nevertheless() {
        let all: Vec<Seen> = (0..50)
            .map(|index| seen(1 + index, 50_000 + index, 10))
            .collect();
        assert!(Costs::of(&recording(&all), &[]).wake <= Nanos(WAKE_MAX_NS));
    }

    #[test]
    fn without_a_queue_both_cost_the_same() {
        let all: Vec<Seen> = (0..50)
            .map(|index| seen(index * 1_000 + 1, 40, 10))
            .collect();
        let costs = Costs::of(&recording(&all), &[]);
        assert_eq!(costs.wake, costs.fetch);
    }
}
