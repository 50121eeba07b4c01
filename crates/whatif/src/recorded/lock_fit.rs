//! How long requests waited for the lock of their process: the interpreter's.
//!
//! Takes a recording that says how much of each run was processor time, gives each run without its waits for the
//! lock. A log does not contain these waits, so this module estimates them: it sends all requests through the
//! simulated lock, at the times at which they began, and subtracts the simulated waits from the runs. The rest
//! beside the computing is what a request did without the lock. A test decides whether such a lock exists at
//! all: without one, requests that should have waited did not. The part of the computing that came before the
//! rest is unknown too: of several candidates the one counts whose waits leave the least unexplained.

use std::collections::BTreeMap;

use telemetry::{Nanos, Stamp};

use super::stalls::Moving;
use super::{Kept, Recording, shuffled_by_route};
use crate::engine::{Need, Process, Runner, Step};
use crate::{Lock, Pause, Sharing};

/// So many of all runs have to say what they computed.
const KNOWN_SHARE: f64 = 0.9;
/// Each round's waits change what is done between them, and that changes the waits: after a few nothing moves.
const ROUNDS: usize = 6;
/// With less of their time spent on waiting, nothing tells whether they did wait.
const TELLING_SHARE: f64 = 0.02;
/// What a wait that the lock makes adds to a run: 1 with it, 0 without. Waits are not known to the request, so
/// that less than 1 comes out.
const SLOPE_MIN: f64 = 0.4;

/// Candidates for the part of the computing that comes before the part without the lock, other than half. Never
/// all or nothing: a thread needs the interpreter before and after it releases the lock.
const BEFORE: [f64; 4] = [0.02, 0.25, 0.75, 0.98];
/// So many requests, the first, tell which it is.
const TELLING_LEN: usize = 20_000;
/// What is left unexplained counts so many times where it is not half: chance does as much.
const NOT_HALF: f64 = 1.01;

/// A route that does less outside of the lock, beside its computing, only computes: a thread that was off its
/// processor for a moment had the lock all the same.
const FREE_SHARE_MIN: f64 = 0.1;

/// The lock of the processes of a recording, and the runs without it.
#[derive(Clone, PartialEq, Debug)]
pub struct LockFit {
    /// The lock.
    pub lock: Lock,
    /// Of all time at work, what was computing.
    pub computing_share: f64,
    /// Of all time at work, what was waiting for the lock.
    pub waiting_share: f64,
    /// What each kept request needed; nothing for those that have not run.
    needs: Vec<Need>,
}

impl LockFit {
    /// From a recording; `None` when it does not say what was computed, or when no request seems to have waited
    /// for a lock.
    pub fn of(recording: &Recording, pauses: &[Pause]) -> Option<LockFit> {
        let kept = &recording.kept;
        let ran = kept.iter().filter(|one| one.has_run());
        let (len, known) = ran.fold((0.0, 0.0), |(len, known), one| {
            (len + 1.0, known + f64::from(u8::from(one.cpu_s >= 0.0)))
        });
        if !recording.has_lock || len == 0.0 || known < KNOWN_SHARE * len {
            return None;
        }
        let lock = Lock::default();
        let moving = Moving::new(pauses);
        let runs: Vec<Run> = kept.iter().map(|one| Run::of(one, &moving)).collect();
        let alone = waits(recording, lock, &runs, &computing_alone(&runs));
        if !is_waited_for(kept, &runs, &alone) {
            return None;
        }
        // A vector of all requests less while the next steps make theirs.
        drop(alone);
        let lock = fitted(recording, &runs);
        let (needs, waits) = settled(recording, lock, &runs);
        assert_eq!(needs.len(), kept.len(), "each request has its need");
        let sum = |of: &dyn Fn(&Run) -> u64| runs.iter().map(of).sum::<u64>() as f64;
        let at_work = sum(&|run| run.lasted).max(1.0);
        Some(LockFit {
            lock,
            computing_share: sum(&|run| run.computing) / at_work,
            waiting_share: (waits.iter().sum::<u64>() as f64 / at_work).min(1.0),
            needs,
        })
    }

    /// What that request needed, without waits for the lock.
    pub(super) fn need(&self, index: usize) -> Need {
        self.needs[index]
    }
}

/// One run, on the server's own time.
struct Run {
    began: u64,
    lasted: u64,
    /// Part of `lasted`.
    computing: u64,
}

impl Run {
    fn of(one: &Kept, moving: &Moving) -> Run {
        let began = moving.at(one.began());
        let lasted = match one.has_run() {
            true => moving.at(one.ended()) - began,
            false => 0,
        };
        Run {
            began,
            lasted,
            computing: one.cpu_ns().min(lasted),
        }
    }

    /// With so much outside of the lock.
    fn need(&self, free: f64) -> Need {
        Need {
            run: Nanos(self.computing + free as u64),
            computing: Nanos(self.computing),
        }
    }

    /// What is left beside its computing and so long a wait; below 0 where the wait was not so long.
    fn left(&self, wait: u64) -> f64 {
        self.lasted as f64 - (self.computing + wait) as f64
    }
}

/// As if there were nothing but computing.
fn computing_alone(runs: &[Run]) -> Vec<Need> {
    runs.iter().map(|run| run.need(0.0)).collect()
}

/// What each of `runs`, the first of the recording, needed and waited.
fn settled(recording: &Recording, lock: Lock, runs: &[Run]) -> (Vec<Need>, Vec<u64>) {
    let together = together(recording, runs);
    let mut random = fastrand::Rng::with_seed(1);
    let mut needs = computing_alone(runs);
    let mut waits = waits_within(&together, waits(recording, lock, runs, &needs));
    for _ in 0..ROUNDS {
        refine(&mut needs, &recording.kept, runs, &waits);
        let dealt = dealt(&needs, &recording.kept, &mut random);
        waits = waits_within(&together, self::waits(recording, lock, runs, &dealt));
    }
    (needs, waits)
}

/// No wait is longer than the others ran.
fn waits_within(together: &[u64], waits: Vec<u64>) -> Vec<u64> {
    let pairs = together.iter().zip(waits);
    pairs.map(|(together, wait)| wait.min(*together)).collect()
}

/// How long others of its process were at work during each run.
fn together(recording: &Recording, runs: &[Run]) -> Vec<u64> {
    let mut together = vec![0; runs.len()];
    for number in 0..recording.processes() {
        let of_process = |index: &usize| {
            let one = &recording.kept[*index];
            // One that fell into a pause took no time of its own, and met no other.
            runs[*index].lasted > 0 && usize::from(one.process) == number
        };
        // Ends before begins at the same time: those have not met.
        let mut turns: Vec<(u64, bool, usize)> = (0..runs.len())
            .filter(of_process)
            .flat_map(|index| {
                let (began, ended) = (runs[index].began, runs[index].began + runs[index].lasted);
                [(began, true, index), (ended, false, index)]
            })
            .collect();
        turns.sort_unstable();
        let (mut at_work, mut since, mut met) = (0_usize, 0, 0_u64);
        for (at, begins, index) in turns {
            met += if at_work > 1 { at - since } else { 0 };
            since = at;
            match begins {
                true => {
                    at_work += 1;
                    together[index] = met;
                }
                false => {
                    at_work -= 1;
                    together[index] = met - together[index];
                }
            }
        }
    }
    together
}

/// The same needs, but what each does without the lock is that of another one of its route. By its own it would
/// come back to the lock when it did, which was when the lock was free: what it waited would be taken for work.
fn dealt(needs: &[Need], kept: &[Kept], random: &mut fastrand::Rng) -> Vec<Need> {
    let others = shuffled_by_route(&kept[..needs.len()], random);
    let pairs = needs.iter().zip(others);
    let dealt = pairs.map(|(own, other)| {
        let other = needs[other];
        Need {
            run: Nanos(own.computing.0 + (other.run.0 - other.computing.0)),
            computing: own.computing,
        }
    });
    dealt.collect()
}

/// The lock with the part of computing before the rest that explains most.
fn fitted(recording: &Recording, runs: &[Run]) -> Lock {
    let runs = &runs[..runs.len().min(TELLING_LEN)];
    let left = |lock| {
        let (_, waits) = settled(recording, lock, runs);
        unexplained(&recording.kept, runs, &waits)
    };
    // Half is assumed where nothing tells, so another one has to explain more than chance does.
    let half = Lock::default();
    let mut best = (left(half), half);
    for before in BEFORE {
        let lock = Lock { before, ..half };
        let left = NOT_HALF * left(lock);
        if left < best.0 {
            best = (left, lock);
        }
    }
    best.1
}

/// What waits leave of the runs, beside their computing and what is the same for all of a route: the sum of all
/// distances from that.
fn unexplained(kept: &[Kept], runs: &[Run], waits: &[u64]) -> f64 {
    let mut routes = BTreeMap::<u16, Vec<f64>>::new();
    for ((one, run), wait) in kept.iter().zip(runs).zip(waits) {
        if one.has_run() {
            routes.entry(one.route).or_default().push(run.left(*wait));
        }
    }
    let distances = |mut left: Vec<f64>| {
        let middle = left.len() / 2;
        let (_, median, _) = left.select_nth_unstable_by(middle, f64::total_cmp);
        let median = *median;
        left.iter().map(|one| (one - median).abs()).sum::<f64>()
    };
    routes.into_values().map(distances).sum()
}

/// Sums over a route.
#[derive(Default)]
struct RouteSums {
    computing: f64,
    left: f64,
    /// Of those that have something left.
    positive: f64,
}

/// What is left beside waits is done outside of the lock. The waits are estimated for a route and not for
/// each request, so what is left too much of some counts against what is missing of others.
fn refine(needs: &mut [Need], kept: &[Kept], runs: &[Run], waits: &[u64]) {
    let mut routes = BTreeMap::<u16, RouteSums>::new();
    let all = || kept.iter().zip(runs).zip(waits);
    for ((one, run), wait) in all().filter(|((one, _), _)| one.has_run()) {
        let route = routes.entry(one.route).or_default();
        let left = run.left(*wait);
        route.computing += run.computing as f64;
        // Negative ones count here: they are what others of the route have too much.
        route.left += left;
        route.positive += left.max(0.0);
    }
    for (need, ((one, run), wait)) in needs.iter_mut().zip(all()) {
        let Some(route) = routes.get(&one.route).filter(|_| one.has_run()) else {
            continue;
        };
        let left = route.left.max(0.0);
        // It is made computing, so that the run of the route stays what it was.
        *need = if left < FREE_SHARE_MIN * route.computing {
            let computing = run.computing as f64 * (1.0 + left / route.computing);
            let computing = Nanos(computing as u64);
            Need {
                run: computing,
                computing,
            }
        } else {
            // Only those that have something left share in what the route has left, so that its sum stays.
            let share = left / route.positive.max(1.0);
            run.need(share * run.left(*wait).max(0.0))
        };
    }
}

/// What the lock makes each wait when they begin as recorded.
fn waits(recording: &Recording, lock: Lock, runs: &[Run], needs: &[Need]) -> Vec<u64> {
    let mut waits = vec![0; runs.len()];
    for number in 0..recording.processes() {
        let mut begins: Vec<usize> = (0..runs.len())
            .filter(|&index| {
                let one = &recording.kept[index];
                one.has_run() && usize::from(one.process) == number
            })
            .collect();
        begins.sort_unstable_by_key(|&index| runs[index].began);
        let mut process = Process::new(Sharing::default(), Some(lock));
        // A simulated process stands still until it is resumed, and a stamp of 0 is no moment.
        process.resume(Stamp(1));
        let mut begins = begins.into_iter().peekable();
        loop {
            let begin = begins
                .peek()
                .map_or(Stamp::NEVER, |&index| Stamp(1 + runs[index].began));
            let next = process.next();
            if begin == Stamp::NEVER && next == Stamp::NEVER {
                break;
            }
            // At the same moment what is due comes first: a lock that is let go then is free for this one.
            if begin < next {
                let index = begins.next().expect("a request begins");
                let runner = Runner {
                    pool: 0,
                    thread: index as u32,
                };
                process.start(begin, needs[index], runner);
            } else if let Step::Part(runner, part) = process.step(next) {
                let index = runner.thread as usize;
                if !process.go_on(next, needs[index], runner, part) {
                    // Nothing else makes a run longer here, so all beyond the need is a wait for the lock.
                    let lasted = next.since(Stamp(1 + runs[index].began)).0;
                    waits[index] = lasted.saturating_sub(needs[index].run.0);
                }
            }
        }
    }
    waits
}

/// Whether those for whom the lock makes longer waits have run longer, within their routes.
fn is_waited_for(kept: &[Kept], runs: &[Run], waits: &[u64]) -> bool {
    let waited = waits.iter().sum::<u64>() as f64;
    let at_work = runs.iter().map(|run| run.lasted).sum::<u64>() as f64;
    if waited < TELLING_SHARE * at_work {
        return true;
    }
    let mut sums = BTreeMap::<u16, [f64; 5]>::new();
    for ((one, run), wait) in kept.iter().zip(runs).zip(waits) {
        if one.has_run() {
            let (wait, rest) = (*wait as f64, (run.lasted - run.computing) as f64);
            let sums = sums.entry(one.route).or_default();
            for (sum, more) in sums
                .iter_mut()
                .zip([1.0, wait, rest, wait * wait, wait * rest])
            {
                *sum += more;
            }
        }
    }
    let (mut variance, mut covariance) = (0.0, 0.0);
    for [len, wait, rest, squares, products] in sums.into_values() {
        // Within the routes: a slow route that also computes much would look like waiting otherwise.
        variance += squares - wait * wait / len;
        covariance += products - wait * rest / len;
    }
    variance <= 0.0 || covariance / variance >= SLOPE_MIN
}

#[cfg(test)]
mod tests {
    use super::super::Seen;
    use super::super::tests::{recording, seen};
    use super::*;

    const GAP_US: f64 = 8_000.0;

    fn runs(recording: &Recording) -> Vec<Run> {
        let moving = Moving::new(&[]);
        let kept = recording.kept.iter();
        kept.map(|one| Run::of(one, &moving)).collect()
    }

    /// What a server of endless threads would log of requests that come by chance, compute for `cpu_us` and do
    /// something else for `free_us`: through the lock, or each on a processor of its own.
    fn logged(cpu_us: u64, free_us: u64, lock: Option<Lock>) -> Recording {
        let mut random = fastrand::Rng::with_seed(5);
        let mut at = 1.0;
        let mut all: Vec<Seen> = (0..4_000)
            .map(|_| {
                at -= GAP_US * random.f64().max(1e-9).ln();
                // What it does without the lock is never quite the same.
                let free = free_us as f64 * (0.8 + 0.4 * random.f64());
                Seen {
                    cpu: Some(Nanos::from_us(cpu_us)),
                    gil: Some(Nanos(500)),
                    ..seen(at as u64, 0, cpu_us + free as u64)
                }
            })
            .collect();
        if let Some(lock) = lock {
            let plain = recording(&all);
            let runs = runs(&plain);
            let needs: Vec<Need> = runs
                .iter()
                .map(|run| run.need((run.lasted - run.computing) as f64))
                .collect();
            let waits = waits(&plain, lock, &runs, &needs);
            for (one, wait) in all.iter_mut().zip(waits) {
                one.run = one.run.map(|run| Nanos(run.0 + wait));
            }
        }
        recording(&all)
    }

    #[test]
    fn waits_for_the_lock_are_taken_out() {
        let lock = Lock::default();
        let check = |cpu_us: u64, free_us: u64| {
            let found = LockFit::of(&logged(cpu_us, free_us, Some(lock)), &[]).unwrap();
            let runs: u64 = found.needs.iter().map(|need| need.run.0).sum();
            let mean = runs as f64 / found.needs.len() as f64 / 1e3;
            let off = (mean - (cpu_us + free_us) as f64).abs();
            assert!(off < 0.03 * (cpu_us + free_us) as f64, "{cpu_us}: {mean}");
            assert!(found.waiting_share > 0.01, "{found:?}");
        };
        check(5_000, 0);
        check(4_000, 16_000);
        check(2_500, 2_500);
    }

    #[test]
    fn the_part_that_comes_before_is_found_out() {
        let check = |before, expect: &[f64]| {
            let lock = Lock {
                before,
                ..Lock::default()
            };
            let found = LockFit::of(&logged(4_000, 16_000, Some(lock)), &[]).unwrap();
            assert!(expect.contains(&found.lock.before), "{before}: {found:?}");
        };
        check(0.98, &[0.98]);
        check(0.75, &[0.75]);
        check(0.5, &[0.5]);
        // What comes late comes at a time that is known less well.
        check(0.02, &[0.02, 0.25, 0.5]);
    }

    #[test]
    fn who_never_met_another_did_not_wait() {
        let mut random = fastrand::Rng::with_seed(3);
        let mut at = 1;
        let all: Vec<Seen> = (0..2_000)
            .map(|_| {
                let run = 4_000 + random.u64(0..30_000);
                let one = Seen {
                    cpu: Some(Nanos::from_us(4_000)),
                    gil: Some(Nanos(500)),
                    ..seen(at, 0, run)
                };
                at += run + 100;
                one
            })
            .collect();
        let found = LockFit::of(&recording(&all), &[]).unwrap();
        assert!(found.waiting_share < 0.005, "{found:?}");
    }

    #[test]
    fn those_at_work_at_the_same_time_have_met() {
        // The second one takes no time; the third begins when the first ends, and meets the fourth.
        let all = [(100, 50), (120, 0), (150, 40), (170, 100)].map(|(at, run)| seen(at, 0, run));
        let recording = recording(&all);
        let met = together(&recording, &runs(&recording));
        assert_eq!(met, [0, 0, 20_000, 20_000]);
    }

    #[test]
    fn where_nobody_waits_there_is_no_lock() {
        assert_eq!(LockFit::of(&logged(5_000, 0, None), &[]), None);
        assert_eq!(LockFit::of(&logged(4_000, 16_000, None), &[]), None);
    }

    #[test]
    fn who_never_attaches_to_an_interpreter_has_no_lock() {
        let mut one = seen(1, 0, 1_000);
        one.cpu = Some(Nanos::from_us(900));
        assert_eq!(LockFit::of(&recording(&[one]), &[]), None);
        one.gil = Some(Nanos(100));
        assert!(LockFit::of(&recording(&[one]), &[]).is_some());
        one.cpu = None;
        assert_eq!(LockFit::of(&recording(&[one]), &[]), None);
    }
}
