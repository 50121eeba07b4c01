//! Which numbers of processes and threads are tried, and which of those that were tried is the best.
//!
//! Pure: takes figures of tries and predictions, gives the next try or the answer.

use std::fmt;

/// Refused or failed requests up to this share count as none.
const FAILED_MAX: f64 = 0.001;
/// A server that answers less than this share of the load does not keep up.
const KEPT_MIN: f64 = 0.95;
/// A longer backlog at the end of a run is none of requests that take long, but of a server that does not keep up.
const UNDER_WAY_MAX: f64 = 0.1;
/// Without an objective: how much longer than the shortest a time may be and still count as short.
const PREDICTED_TIMES: f64 = 1.1;
const PREDICTED_MS: f64 = 1.0;
/// Two runs of the same server differ by more than two simulations.
const MEASURED_TIMES: f64 = 1.25;
const MEASURED_MS: f64 = 3.0;
/// A server with less than this share of the greatest capacity has less capacity.
const SAME_CAPACITY: f64 = 0.9;
/// Tries beside the first one.
const MORE_TRIES_MAX: usize = 4;
/// Threads of each process that are ever tried.
pub(super) const THREADS_MAX: usize = 256;
/// Threads of a process in which more are of no use.
const THREADS_FEW: usize = 4;
/// Processes that are ever tried.
const PROCESSES_MAX: usize = 64;

/// What runs the requests of the application.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum RunnerKind {
    /// Worker threads (WSGI).
    Threads,
    /// An event loop in each process (ASGI).
    EventLoop,
}

/// How many processes, and how many threads in each. Smaller ones come first: a process takes more memory than threads.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct ServerSize {
    pub(super) processes: usize,
    /// Of each process; 1 where an event loop runs the requests.
    pub(super) threads: usize,
}

impl fmt::Display for ServerSize {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} × {}", self.processes, self.threads)
    }
}

/// What is wanted.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum TuneGoal {
    /// The percentile that is looked at has to be shorter.
    Below(f64),
    /// As short as it gets.
    Shortest,
}

/// Times and failures of a load, measured or predicted.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct Figures {
    pub(super) p50_ms: f64,
    pub(super) p99_ms: f64,
    /// The percentile of the objective.
    pub(super) aimed_ms: f64,
    /// The share of requests without a right answer.
    pub(super) failed: f64,
}

/// A load that a server had.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct TuneTry {
    pub(super) size: ServerSize,
    pub(super) measured: Figures,
    /// Of the same size, before it was tried.
    pub(super) predicted: Option<Figures>,
    /// Right answers a second.
    pub(super) per_second: f64,
    /// Requests a second that were to be sent.
    pub(super) rate: f64,
    /// The share of them that was answered in time ([`kept_share`]).
    pub(super) kept: f64,
    /// The share of responses that were 503.
    pub(super) refused: f64,
    /// Processors that the server used.
    pub(super) cpus: Option<f64>,
}

impl TuneTry {
    /// Whether the server answered the whole load.
    pub(super) fn keeps_up(&self) -> bool {
        self.kept >= KEPT_MIN && self.measured.failed <= FAILED_MAX
    }
}

/// Which share of the requests that were `due` in a run was answered `within` it, apart from those that were still under
/// way at its end because each takes so long.
pub(super) fn kept_share(within: u64, due: u64, seconds: f64, p50_s: f64) -> f64 {
    let due = due.max(1) as f64;
    let under_way = (p50_s / seconds).clamp(0.0, UNDER_WAY_MAX);
    (within as f64 / due + under_way).min(1.0)
}

/// What came out.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Verdict {
    /// Index of the try.
    pub(super) best: usize,
    /// Whether it meets the goal.
    pub(super) holds: bool,
}

/// The most processes worth a try: one for each processor.
pub(super) fn processes_max(cores: usize) -> usize {
    cores.clamp(1, PROCESSES_MAX)
}

/// The sizes whose capacity is measured where no rate is given.
pub(super) fn probes(kind: RunnerKind, cores: usize, clients: usize) -> Vec<ServerSize> {
    // A thread for each client: then no client waits for a thread.
    let threads = match kind {
        RunnerKind::Threads => clients.clamp(1, THREADS_MAX),
        RunnerKind::EventLoop => 1,
    };
    let mut sizes: Vec<ServerSize> = [1, processes_max(cores)]
        .map(|processes| ServerSize { processes, threads })
        .into();
    sizes.dedup();
    sizes
}

/// The smallest of the probed sizes that has about the greatest capacity, with that capacity.
pub(super) fn base(probed: &[(ServerSize, f64)]) -> Option<(ServerSize, f64)> {
    let greatest = probed.iter().map(|(_, rate)| *rate).fold(0.0, f64::max);
    let mut good: Vec<&(ServerSize, f64)> = probed
        .iter()
        .filter(|(_, rate)| *rate > 0.0 && *rate >= SAME_CAPACITY * greatest)
        .collect();
    good.sort_by_key(|(size, _)| *size);
    good.first().map(|found| **found)
}

/// The size to begin with for a rate that was given: the smallest probed one that has room for it, else the one with the
/// greatest capacity.
pub(super) fn for_rate(probed: &[(ServerSize, f64)], rate: f64) -> Option<ServerSize> {
    let with_room = probed
        .iter()
        .filter(|(_, capacity)| SAME_CAPACITY * capacity >= rate)
        .map(|(size, _)| *size)
        .min();
    let greatest = probed.iter().max_by(|one, other| one.1.total_cmp(&other.1));
    with_room.or(greatest.map(|(size, _)| *size))
}

/// The same with as many threads as can be of use, as far as that is known.
pub(super) fn with_useful_threads(
    size: ServerSize,
    kind: RunnerKind,
    speedup: Speedup,
) -> ServerSize {
    let useful = match (kind, speedup.limit()) {
        (RunnerKind::EventLoop, _) | (_, LimitKind::Waiting) => size.threads,
        (_, LimitKind::Interpreter | LimitKind::Exclusive) => THREADS_FEW,
        // More threads than these have no computing time left; twice as many leave room for chance.
        (_, LimitKind::Both) => {
            let most = 2.0 / speedup.computing.max(0.01);
            (most.ceil() as usize).max(THREADS_FEW)
        }
    };
    ServerSize {
        threads: useful.min(size.threads),
        ..size
    }
}

/// A larger size to begin with, where one does not keep up with a rate that was given.
pub(super) fn larger(
    size: ServerSize,
    kind: RunnerKind,
    cores: usize,
    limit: LimitKind,
) -> Option<ServerSize> {
    let more_threads = ServerSize {
        threads: (2 * size.threads).min(THREADS_MAX),
        ..size
    };
    let more_processes = ServerSize {
        processes: (2 * size.processes).min(processes_max(cores)),
        ..size
    };
    // Requests that hold each other up have nothing of more threads in the same process.
    let order = match (kind, limit) {
        (RunnerKind::Threads, LimitKind::Waiting) => [more_threads, more_processes],
        _ => [more_processes, more_processes],
    };
    order.into_iter().find(|next| *next != size)
}

/// All sizes that are predicted.
pub(super) fn ladder(kind: RunnerKind, cores: usize, threads_max: usize) -> Vec<ServerSize> {
    const STEPS: [usize; 16] = [
        1,
        2,
        3,
        4,
        6,
        8,
        10,
        12,
        16,
        20,
        24,
        32,
        48,
        64,
        128,
        THREADS_MAX,
    ];
    let most = processes_max(cores);
    let mut processes: Vec<usize> = (0..7).map(|power| 1 << power).collect();
    processes.retain(|count| *count < most);
    processes.push(most);
    let mut threads: Vec<usize> = match kind {
        RunnerKind::Threads => STEPS.into(),
        RunnerKind::EventLoop => vec![1],
    };
    threads.retain(|count| *count <= threads_max.max(1));
    let with = |processes: usize| {
        let sizes = threads.iter();
        sizes.map(move |threads| ServerSize {
            processes,
            threads: *threads,
        })
    };
    processes.into_iter().flat_map(with).collect()
}

/// The predicted sizes that are worth a try, the smallest first.
fn promising(predictions: &[(ServerSize, Figures)], goal: TuneGoal) -> Vec<ServerSize> {
    let keeps = |figures: &Figures| figures.failed <= FAILED_MAX;
    let shortest = |only_kept: bool| {
        let all = predictions.iter().map(|(_, figures)| figures);
        let all = all.filter(|figures| !only_kept || keeps(figures));
        all.map(|figures| figures.aimed_ms)
            .fold(f64::INFINITY, f64::min)
    };
    let good = |below: f64, only_kept: bool| {
        let mut sizes: Vec<ServerSize> = predictions
            .iter()
            .filter(|(_, figures)| figures.aimed_ms <= below && (!only_kept || keeps(figures)))
            .map(|(size, _)| *size)
            .collect();
        sizes.sort();
        sizes
    };
    let near = |best: f64| PREDICTED_TIMES * best + PREDICTED_MS;
    if let TuneGoal::Below(below) = goal {
        let sizes = good(below, true);
        if !sizes.is_empty() {
            return sizes;
        }
    }
    // No size is predicted to reach the objective, or there is none: then those that come nearest.
    match good(near(shortest(true)), true) {
        sizes if sizes.is_empty() => good(near(shortest(false)), false),
        sizes => sizes,
    }
}

/// The next size to try; `None`: enough were tried.
pub(super) fn next(
    tries: &[TuneTry],
    predictions: &[(ServerSize, Figures)],
    goal: TuneGoal,
) -> Option<ServerSize> {
    if tries.len() > MORE_TRIES_MAX {
        return None;
    }
    let holding = holding(tries, goal);
    for size in promising(predictions, goal) {
        match tries.iter().position(|one| one.size == size) {
            // The smallest that is promising keeps its promise: larger ones cost more.
            Some(at) if holding.contains(&at) => return None,
            Some(_) => continue,
            None => {}
        }
        // Little more than what has failed fails as well.
        let is_hopeless = |(at, one): (usize, &TuneTry)| {
            !holding.contains(&at)
                && one.size.processes == size.processes
                && one.size.threads <= size.threads
                && 4 * size.threads < 5 * one.size.threads
        };
        if !tries.iter().enumerate().any(is_hopeless) {
            return Some(size);
        }
    }
    None
}

/// Indices of the tries that meet the goal.
fn holding(tries: &[TuneTry], goal: TuneGoal) -> Vec<usize> {
    let kept = || tries.iter().filter(|one| one.keeps_up());
    let shortest = kept()
        .map(|one| one.measured.aimed_ms)
        .fold(f64::INFINITY, f64::min);
    let below = match goal {
        TuneGoal::Below(below) => below,
        TuneGoal::Shortest => MEASURED_TIMES * shortest + MEASURED_MS,
    };
    let holds = |one: &TuneTry| one.keeps_up() && one.measured.aimed_ms <= below;
    let indices = 0..tries.len();
    indices.filter(|at| holds(&tries[*at])).collect()
}

/// The smallest that meets the goal; else the smallest that is about as quick as the quickest; else, where none keeps up,
/// the one that answers most. `None` of no tries.
pub(super) fn verdict(tries: &[TuneTry], goal: TuneGoal) -> Option<Verdict> {
    let smallest = |goal: TuneGoal| {
        let held = holding(tries, goal).into_iter();
        held.min_by_key(|at| tries[*at].size)
    };
    if let Some(best) = smallest(goal) {
        return Some(Verdict { best, holds: true });
    }
    let rate = |at: &usize| tries[*at].per_second;
    let most = (0..tries.len()).max_by(|one, other| rate(one).total_cmp(&rate(other)));
    let best = smallest(TuneGoal::Shortest).or(most)?;
    Some(Verdict { best, holds: false })
}

/// How much more one process answers for many clients at once than for one.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Speedup {
    /// Requests a second with all clients, as a multiple of those with one.
    pub(super) times: f64,
    /// The clients.
    pub(super) clients: usize,
    /// Of a single request, the part of its time in which it computes.
    pub(super) computing: f64,
}

/// What limits one process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum LimitKind {
    /// One thread of a process computes at a time.
    Interpreter,
    /// Requests wait for something that one of them has at a time, and do not compute.
    Exclusive,
    /// Requests wait for something else, so each thread is one more request at once.
    Waiting,
    /// Some of both.
    Both,
}

/// Less is no gain by threads.
const SPEEDUP_MIN: f64 = 2.0;
/// More shows that requests wait without holding each other up.
const SPEEDUP_OF_WAITING: f64 = 8.0;
/// A request that computes for less of its time leaves room for many others. Far less than half, because a processor that
/// others use as well makes the part small.
const COMPUTING_MIN: f64 = 0.1;
/// An interpreter that computes for so much of the time has little left: so many times as many requests as one client's,
/// each with its computing time.
const INTERPRETER_BUSY: f64 = 0.5;

impl Speedup {
    pub(super) fn limit(self) -> LimitKind {
        let waiting = SPEEDUP_OF_WAITING.min(self.clients as f64 / 2.0);
        // Where many clients get less done than one, the interpreter is as busy with them.
        let busy = self.times.max(1.0) * self.computing;
        match self.times {
            _ if self.computing >= COMPUTING_MIN && busy >= INTERPRETER_BUSY => {
                LimitKind::Interpreter
            }
            times if times >= waiting => LimitKind::Waiting,
            times if times >= SPEEDUP_MIN => LimitKind::Both,
            _ => LimitKind::Exclusive,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn size(processes: usize, threads: usize) -> ServerSize {
        ServerSize { processes, threads }
    }

    fn figures(aimed_ms: f64, failed: f64) -> Figures {
        Figures {
            aimed_ms,
            failed,
            p99_ms: aimed_ms,
            p50_ms: aimed_ms / 2.0,
        }
    }

    fn tried(size: ServerSize, aimed_ms: f64, per_second: f64) -> TuneTry {
        TuneTry {
            size,
            measured: figures(aimed_ms, 0.0),
            predicted: None,
            per_second,
            rate: 100.0,
            kept: per_second / 100.0,
            refused: 0.0,
            cpus: None,
        }
    }

    #[test]
    fn capacity_is_measured_with_one_process_and_with_one_for_each_processor() {
        use RunnerKind::{EventLoop, Threads};
        assert_eq!(probes(Threads, 4, 32), [size(1, 32), size(4, 32)]);
        assert_eq!(probes(Threads, 1, 32), [size(1, 32)]);
        assert_eq!(probes(EventLoop, 4, 32), [size(1, 1), size(4, 1)]);
        let (one, four) = (size(1, 32), size(4, 32));
        let found = |rates: [f64; 2]| base(&[(four, rates[1]), (one, rates[0])]);
        assert_eq!(found([100.0, 105.0]), Some((one, 100.0)));
        assert_eq!(found([100.0, 180.0]), Some((four, 180.0)));
        assert_eq!(found([0.0, 0.0]), None);
    }

    #[test]
    fn a_rate_that_is_too_high_gets_what_the_requests_need() {
        use LimitKind::{Both, Interpreter, Waiting};
        let threads = |size, limit| larger(size, RunnerKind::Threads, 4, limit);
        assert_eq!(threads(size(1, 32), Waiting), Some(size(1, 64)));
        assert_eq!(threads(size(1, 32), Interpreter), Some(size(2, 32)));
        assert_eq!(threads(size(1, 32), Both), Some(size(2, 32)));
        assert_eq!(threads(size(1, 256), Waiting), Some(size(2, 256)));
        assert_eq!(threads(size(4, 32), Interpreter), None);
        let event_loop = larger(size(2, 1), RunnerKind::EventLoop, 4, Waiting);
        assert_eq!(event_loop, Some(size(4, 1)));
    }

    #[test]
    fn has_no_more_threads_than_are_of_use() {
        let threads = |kind, times, computing| {
            let speedup = Speedup {
                times,
                clients: 32,
                computing,
            };
            with_useful_threads(size(2, 32), kind, speedup).threads
        };
        assert_eq!(threads(RunnerKind::Threads, 1.1, 0.9), 4);
        assert_eq!(threads(RunnerKind::Threads, 1.1, 0.01), 4);
        assert_eq!(threads(RunnerKind::Threads, 25.0, 0.01), 32);
        assert_eq!(threads(RunnerKind::Threads, 4.0, 0.1), 20);
        assert_eq!(threads(RunnerKind::EventLoop, 1.1, 0.9), 32);
    }

    #[test]
    fn long_requests_under_way_do_not_count_as_unanswered() {
        let kept = |within, seconds, p50_s| kept_share(within, 100, seconds, p50_s);
        assert!((kept(97, 5.0, 0.0) - 0.97).abs() < 1e-9);
        assert!((kept(92, 5.0, 0.4) - 1.0).abs() < 1e-9);
        assert!((kept(60, 5.0, 2.0) - 0.7).abs() < 1e-9);
    }

    #[test]
    fn begins_with_room_for_the_rate() {
        let probed = [(size(1, 32), 100.0), (size(2, 32), 190.0)];
        assert_eq!(for_rate(&probed, 80.0), Some(size(1, 32)));
        assert_eq!(for_rate(&probed, 95.0), Some(size(2, 32)));
        assert_eq!(for_rate(&probed, 500.0), Some(size(2, 32)));
        assert_eq!(for_rate(&[], 500.0), None);
    }

    #[test]
    fn predicts_no_more_processes_than_processors() {
        let all = ladder(RunnerKind::Threads, 6, 4);
        let processes: Vec<usize> = all.chunks(4).map(|same| same[0].processes).collect();
        assert_eq!(processes, [1, 2, 4, 6]);
        assert_eq!(all[..4], [1, 2, 3, 4].map(|threads| size(1, threads)));
        let loops = ladder(RunnerKind::EventLoop, 2, 1);
        assert_eq!(loops, [size(1, 1), size(2, 1)]);
    }

    #[test]
    fn tries_the_smallest_that_is_predicted_to_do() {
        let predictions = [
            (size(1, 4), figures(900.0, 0.2)),
            (size(1, 8), figures(90.0, 0.0)),
            (size(1, 16), figures(40.0, 0.0)),
            (size(2, 8), figures(40.0, 0.0)),
        ];
        let first = [tried(size(1, 32), 42.0, 100.0)];
        assert_eq!(
            next(&first, &predictions, TuneGoal::Below(100.0)),
            Some(size(1, 8))
        );
        assert_eq!(
            next(&first, &predictions, TuneGoal::Shortest),
            Some(size(1, 16))
        );
        // It does not keep its promise: the next one.
        let second = [first[0].clone(), tried(size(1, 8), 150.0, 100.0)];
        assert_eq!(
            next(&second, &predictions, TuneGoal::Below(100.0)),
            Some(size(1, 16))
        );
        let third = [first[0].clone(), tried(size(1, 8), 80.0, 100.0)];
        assert_eq!(next(&third, &predictions, TuneGoal::Below(100.0)), None);
        assert_eq!(
            verdict(&third, TuneGoal::Below(100.0)),
            Some(Verdict {
                best: 1,
                holds: true
            })
        );
    }

    #[test]
    fn an_objective_out_of_reach_has_the_nearest_tried() {
        let predictions = [
            (size(1, 4), figures(900.0, 0.2)),
            (size(1, 8), figures(90.0, 0.0)),
            (size(1, 16), figures(40.0, 0.0)),
        ];
        let tries = [tried(size(1, 32), 42.0, 100.0)];
        let goal = TuneGoal::Below(10.0);
        assert_eq!(next(&tries, &predictions, goal), Some(size(1, 16)));
        // About as quick as the quickest, and smaller.
        let tries = [tries[0].clone(), tried(size(1, 16), 43.0, 100.0)];
        assert_eq!(
            verdict(&tries, goal),
            Some(Verdict {
                best: 1,
                holds: false
            })
        );
        // Where all refuse, the shortest all the same.
        let refusing = [(size(1, 1), figures(5.0, 0.5))];
        assert_eq!(next(&tries, &refusing, goal), Some(size(1, 1)));
    }

    #[test]
    fn the_smallest_that_is_as_good_as_the_best_wins() {
        let tries = [
            tried(size(2, 32), 40.0, 100.0),
            tried(size(1, 8), 44.0, 100.0),
            // Short because it answers half.
            tried(size(1, 2), 5.0, 50.0),
        ];
        let found = verdict(&tries, TuneGoal::Shortest);
        assert_eq!(
            found,
            Some(Verdict {
                best: 1,
                holds: true
            })
        );
        assert_eq!(verdict(&[], TuneGoal::Shortest), None);
        let slow = [tried(size(1, 2), 5.0, 50.0), tried(size(1, 4), 9.0, 60.0)];
        let found = verdict(&slow, TuneGoal::Shortest).expect("a verdict");
        assert_eq!((found.best, found.holds), (1, false));
    }

    #[test]
    fn ends_after_some_tries() {
        let predictions: Vec<(ServerSize, Figures)> = ladder(RunnerKind::Threads, 2, THREADS_MAX)
            .into_iter()
            .map(|size| (size, figures(10.0, 0.0)))
            .collect();
        let mut tries = vec![tried(size(2, 32), 90.0, 100.0)];
        while let Some(size) = next(&tries, &predictions, TuneGoal::Below(20.0)) {
            assert!(!tries.iter().any(|one| one.size == size));
            tries.push(tried(size, 90.0, 100.0));
        }
        assert_eq!(tries.len(), MORE_TRIES_MAX + 1);
    }

    #[test]
    fn names_what_limits() {
        let limit = |times, clients, computing| {
            let speedup = Speedup {
                times,
                clients,
                computing,
            };
            speedup.limit()
        };
        assert_eq!(limit(1.1, 32, 0.9), LimitKind::Interpreter);
        assert_eq!(limit(1.1, 32, 0.01), LimitKind::Exclusive);
        assert_eq!(limit(27.0, 32, 0.02), LimitKind::Waiting);
        assert_eq!(limit(3.0, 32, 0.1), LimitKind::Both);
        // Two thirds of the time are spent on other programs: the interpreter is the limit all the same.
        assert_eq!(limit(2.8, 32, 0.3), LimitKind::Interpreter);
        // Threads that compute hinder each other.
        assert_eq!(limit(0.4, 32, 0.7), LimitKind::Interpreter);
        // Few clients cannot be answered many times as fast.
        assert_eq!(limit(3.5, 4, 0.02), LimitKind::Waiting);
    }
}
