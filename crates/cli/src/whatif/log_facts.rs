//! What is known of the present: what a log says, and what was learnt of it.
//!
//! Takes a options and what was read, gives the basis of all answers and the facts that are findings first.

use telemetry::Nanos;
use whatif::prediction::{
    Basis, Calibration, ControlMode, PoolVariant, Requests, Threads, Times, Variant, calibrate,
    take_out_loop_waits,
};
use whatif::recorded::{Costs, LockFit, LoopCosts, Recording, SharingFit, Workload, stalls};
use whatif::{Concurrency, Laws, Lock, Pause, RunsOn, Sharing};

use super::flags::WhatifOptions;
use super::reading::ReadLog;
use super::routes::Routes;

/// Waits and runs that are this much alike have risen together.
pub(super) const CORRELATION_MAX: f64 = 0.2;

/// The present, and what follows from it.
#[derive(Debug)]
pub(super) struct Present {
    pub(super) basis: Basis,
    /// The server of the log; of synthetic requests the first variant.
    pub(super) variant: Variant,
    pub(super) log: Option<LogFacts>,
    /// `None` where nothing was measured.
    pub(super) calibration: Option<Calibration>,
}

/// What a log says.
#[derive(Debug)]
pub(super) struct LogFacts {
    pub(super) requests: u64,
    pub(super) refused: u64,
    pub(super) seconds: f64,
    pub(super) correlation: Option<f64>,
    pub(super) threads_from: ThreadsFrom,
    pub(super) costs: Costs,
    pub(super) lock: Option<LockFit>,
    pub(super) fit: Option<SharingFit>,
    pub(super) stalls: Vec<Pause>,
    pub(super) queue: Times,
    pub(super) total: Times,
    pub(super) has_runs: bool,
    /// Whether the log says how long requests waited.
    pub(super) has_waits: bool,
    /// The route that holds the threads most, if one does so for the others.
    pub(super) heavy: Option<HeavyRoute>,
    /// `None` of a log without an event loop.
    pub(super) event_loop: Option<LoopLog>,
    pub(super) is_by_second: bool,
}

/// A route with few and long runs, or with long steps on an event loop.
#[derive(Clone, PartialEq, Debug)]
pub(super) struct HeavyRoute {
    pub(super) number: u16,
    pub(super) path: String,
    /// The mean of its runs, or of its longest steps.
    pub(super) mean_ms: f64,
}

/// The source of the number of threads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ThreadsFrom {
    Flag,
    Log,
    /// The most that ran at once.
    Estimate,
}

impl ThreadsFrom {
    pub(super) fn text(self) -> &'static str {
        match self {
            ThreadsFrom::Flag => "from --threads-now",
            ThreadsFrom::Log => "from the log",
            ThreadsFrom::Estimate => "most requests running at once",
        }
    }
}

/// What a log says of event loops.
#[derive(Clone, PartialEq, Debug)]
pub(super) struct LoopLog {
    pub(super) concurrency: Concurrency,
    pub(super) concurrency_from: ConcurrencyFrom,
    /// The most requests that were inside one loop at once.
    pub(super) inside_max: usize,
    pub(super) costs: LoopCosts,
    /// The route whose steps hold the loop most, if any of them holds it for long.
    pub(super) blocker: Option<HeavyRoute>,
}

/// The source of the number of requests inside.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ConcurrencyFrom {
    Flag,
    Default,
    /// The most that were inside at once, because that repeats the log and the default does not.
    Estimate,
}

impl ConcurrencyFrom {
    pub(super) fn text(self) -> &'static str {
        match self {
            ConcurrencyFrom::Flag => "from --concurrency-now",
            ConcurrencyFrom::Default => "the server's default",
            ConcurrencyFrom::Estimate => {
                "most requests inside at once, which repeats the log better than the default"
            }
        }
    }
}

/// A shorter step holds no request up for long: half of it is what one waits for it in the mean.
const LONG_STEP: Nanos = Nanos::from_ms(20);
/// What the loop has of each step whose work threads do.
const STEP_REST: Nanos = Nanos::from_us(100);

/// What the requests of threads have told.
#[derive(Default)]
struct ThreadFits {
    stalls: Vec<Pause>,
    lock: Option<LockFit>,
    fit: Option<SharingFit>,
    costs: Costs,
}

impl ThreadFits {
    fn of(options: &WhatifOptions, recording: &Recording) -> ThreadFits {
        let has_runs = options.run.is_none();
        if recording.is_empty() {
            return ThreadFits::default();
        }
        // Begins that are a guess do not tell which requests ran at once.
        let is_exact = has_runs && !recording.is_by_second();
        let stalls = match is_exact {
            true => stalls(recording),
            false => Vec::new(),
        };
        let lock = is_exact.then(|| LockFit::of(recording, &stalls)).flatten();
        // The fit needs the lock: what one thread at a time computes must not be taken for threads that slow each other.
        let fit = is_exact
            .then(|| SharingFit::of(recording, lock.as_ref(), options.seed))
            .flatten();
        let costs = match has_runs {
            true => Costs::of(recording, &stalls),
            false => Costs::default(),
        };
        ThreadFits {
            stalls,
            lock,
            fit,
            costs,
        }
    }

    fn sharing(&self) -> Sharing {
        let fit = self.fit.as_ref();
        fit.map_or(Sharing::default(), |fit| fit.sharing)
    }
}

/// Of a log. `--run` replaces its run times.
pub(super) fn of_log(options: &WhatifOptions, read: &ReadLog) -> Present {
    let recording = &read.recording;
    let has_runs = options.run.is_none();
    // What is known of threads must not be learnt from an event loop, on which requests run at once and hold nothing.
    let parts = recording.has_loop().then(|| recording.parted());
    let on_threads = parts
        .as_ref()
        .map_or(recording, |(on_threads, _)| on_threads);
    let fits = ThreadFits::of(options, on_threads);
    let (lock, sharing) = (fits.lock.as_ref(), fits.sharing());
    let mut workload = Workload::of(on_threads, lock, sharing, &fits.stalls, options.seed);
    if let Some((_, on_loop)) = &parts {
        workload = workload.merged(Workload::of_loop(on_loop, options.seed));
    }
    if let Some(law) = &options.run {
        workload.set_runs(law, options.seed);
    }
    let (mut variant, threads_from) = variant_now(options, read);
    let log_pools = read.routes.pools();
    let is_first_on_loop = recording.is_on_loop(log_pools[0].1);
    let mut basis = basis(options, Requests::Recorded(workload));
    // Once as the log had its pools, for the comparison with what was measured, and below once as asked for.
    basis.pool_of_route = read.routes.now(&log_pools);
    (basis.costs, basis.sharing) = (fits.costs.clone(), sharing);
    basis.lock = lock.map(|fit| fit.lock);
    let running_max = || recording.running_max(log_pools[0].1);
    basis.running_seen = (has_runs && !is_first_on_loop).then(|| {
        let fit = fits.fit.as_ref();
        fit.map_or_else(running_max, |fit| fit.running_seen)
    });
    let measured = Times::of(recording.queue());
    let has_waits = recording.knows_waits();
    let event_loop = parts
        .as_ref()
        .map(|(_, on_loop)| loop_log(options, read, on_loop, &mut basis, &mut variant));
    let calibration =
        (has_runs && has_waits).then(|| calibrate(&basis, &variant, measured, options.error_max));
    let log = LogFacts {
        requests: recording.len() as u64,
        refused: if has_runs { recording.refused() } else { 0 },
        seconds: read.lasted().as_secs_f64(),
        // On a loop both rise together whenever a step is long, and more of anything else helps.
        correlation: match is_first_on_loop {
            true => None,
            false => on_threads.correlation(),
        },
        threads_from,
        costs: fits.costs,
        lock: fits.lock,
        fit: fits.fit,
        stalls: fits.stalls,
        queue: measured,
        total: Times::of(recording.total()),
        has_runs,
        has_waits,
        heavy: (has_runs && !is_first_on_loop)
            .then(|| heavy_route(&recording.runs_by_route(log_pools[0].1), &read.routes))
            .flatten(),
        event_loop,
        is_by_second: recording.is_by_second(),
    };
    basis.pool_of_route = read.routes.separated(&log_pools);
    if let Requests::Recorded(workload) = &mut basis.requests {
        move_to_threads(workload, &|route| read.routes.is_in_threads(route));
    }
    Present {
        basis,
        variant,
        log: Some(log),
        calibration,
    }
}

/// Threads do what the steps of these routes did.
pub(super) fn move_to_threads(workload: &mut Workload, routes: &dyn Fn(u16) -> bool) {
    workload.move_to_threads(routes, STEP_REST);
}

/// Puts into the basis what its loop costs and what its tasks need alone, and into the variant how many requests may be
/// inside. No log says the latter: the default counts, unless only the number that was seen repeats the log.
fn loop_log(
    options: &WhatifOptions,
    read: &ReadLog,
    on_loop: &Recording,
    basis: &mut Basis,
    variant: &mut Variant,
) -> LoopLog {
    basis.loop_costs = LoopCosts::of(on_loop);
    let inside_max = read.recording.inside_max();
    let seen = Concurrency {
        min: inside_max,
        max: inside_max,
    };
    let tries = match options.concurrency_now {
        Some(said) => vec![(said, ConcurrencyFrom::Flag)],
        None => vec![
            (Concurrency::default(), ConcurrencyFrom::Default),
            (seen, ConcurrencyFrom::Estimate),
        ],
    };
    let before = basis.requests.clone();
    let measured = Times::of(read.recording.queue());
    let mut first = None;
    for (concurrency, from) in tries {
        variant.concurrency = concurrency;
        basis.requests = before.clone();
        take_out_loop_waits(basis, variant);
        if calibrate(basis, variant, measured, options.error_max).holds {
            first = Some((concurrency, from, basis.requests.clone()));
            break;
        }
        first.get_or_insert_with(|| (concurrency, from, basis.requests.clone()));
    }
    let (concurrency, concurrency_from, requests) = first.expect("one was tried");
    variant.concurrency = concurrency;
    basis.requests = requests;
    LoopLog {
        concurrency,
        concurrency_from,
        inside_max,
        costs: basis.loop_costs.clone(),
        blocker: blocker(on_loop, &read.routes),
    }
}

/// The route whose long steps hold the loop most.
fn blocker(on_loop: &Recording, routes: &Routes) -> Option<HeavyRoute> {
    let long = on_loop.long_steps_by_route(LONG_STEP);
    let (number, len, sum) = long.into_iter().max_by_key(|(_, _, sum)| *sum)?;
    Some(HeavyRoute {
        number,
        path: routes.path(number)?.to_owned(),
        mean_ms: 1e3 * sum.as_secs_f64() / len as f64,
    })
}

/// Runs of a route that holds the threads: at least so large a part of all run time, by at most such a part of the
/// requests, each so many times as long as the others.
const HEAVY_TIME_MIN: f64 = 0.1;
const HEAVY_LEN_MAX: f64 = 0.25;
const HEAVY_TIMES: f64 = 4.0;

/// The one with the most run time of those that are heavy.
fn heavy_route(runs: &[(u16, u64, Nanos)], routes: &Routes) -> Option<HeavyRoute> {
    let len: u64 = runs.iter().map(|(_, len, _)| len).sum();
    let sum_s: f64 = runs.iter().map(|(_, _, sum)| sum.as_secs_f64()).sum();
    let is_heavy = |(_, own_len, own): &&(u16, u64, Nanos)| {
        let own_s = own.as_secs_f64();
        let (rest_len, rest_s) = ((len - own_len) as f64, sum_s - own_s);
        own_s >= HEAVY_TIME_MIN * sum_s
            && *own_len as f64 <= HEAVY_LEN_MAX * len as f64
            // The means of both sides are compared, multiplied out: the rest may have no requests.
            && own_s * rest_len >= HEAVY_TIMES * rest_s * *own_len as f64
    };
    let (number, own_len, sum) = runs
        .iter()
        .filter(is_heavy)
        .max_by_key(|(_, _, sum)| *sum)?;
    Some(HeavyRoute {
        number: *number,
        path: routes.path(*number)?.to_owned(),
        mean_ms: 1e3 * sum.as_secs_f64() / *own_len as f64,
    })
}

/// Of synthetic requests.
pub(super) fn of_laws(options: &WhatifOptions, laws: &Laws) -> Present {
    let threads = options
        .threads
        .first()
        .copied()
        .unwrap_or(Threads::fixed(1));
    let pool = PoolVariant::of_threads("default", threads);
    let mut basis = basis(options, Requests::Made(laws.clone()));
    // Without computing nobody asks for the lock, and a simulation with one takes longer for the same answer.
    let computes = laws.routes.iter().any(|route| route.computing > 0.0);
    basis.lock = computes.then(Lock::default);
    Present {
        basis,
        variant: Variant {
            pools: vec![pool],
            processes: 1,
            concurrency: Concurrency::default(),
            rate: 1.0,
            control: ControlMode::On,
        },
        log: None,
        calibration: None,
    }
}

fn basis(options: &WhatifOptions, requests: Requests) -> Basis {
    Basis {
        requests,
        pool_of_route: Vec::new(),
        costs: Costs::default(),
        loop_costs: LoopCosts::default(),
        sharing: Sharing::default(),
        lock: None,
        running_seen: None,
        queue_target: options.queue_target,
        queue_timeout: options.queue_timeout,
        overload_timeout: options.overload_timeout,
        queue_len_max: options.queue_len_max,
        reserve: options.reserve,
        seed: options.seed,
    }
}

/// The server that wrote the log, its busiest pool first.
fn variant_now(options: &WhatifOptions, read: &ReadLog) -> (Variant, ThreadsFrom) {
    let recording = &read.recording;
    let mut threads_from = ThreadsFrom::Estimate;
    let pools: Vec<PoolVariant> = read
        .routes
        .pools()
        .into_iter()
        .enumerate()
        .map(|(place, (name, number))| {
            if recording.is_on_loop(number) {
                return PoolVariant {
                    runs_on: RunsOn::EventLoop,
                    ..PoolVariant::of_threads(&name, Threads::fixed(1))
                };
            }
            let said = options.threads_now.filter(|_| place == 0);
            let found = recording
                .threads_found(number)
                .map(|(min, max)| Threads { min, max });
            // Answers vary the busiest pool, so its number of threads is the one whose source matters.
            if place == 0 {
                threads_from = match (said, found) {
                    (Some(_), _) => ThreadsFrom::Flag,
                    (None, Some(_)) => ThreadsFrom::Log,
                    (None, None) => ThreadsFrom::Estimate,
                };
            }
            let estimate = || Threads::fixed(recording.running_max(number));
            let threads = said.or(found).unwrap_or_else(estimate);
            PoolVariant::of_threads(&name, threads)
        })
        .collect();
    // Only Milepost logs what requests found at the queue. It serves the newest requests first in an overload and
    // refuses requests, even in a pool of constant size.
    let is_known = |pool| recording.threads_found(pool).is_some() || recording.is_on_loop(pool);
    let is_ours = (0..pools.len()).any(is_known);
    let is_elastic = pools.iter().any(|pool| pool.threads.min < pool.threads.max);
    let is_refusing = options.run.is_none() && recording.refused() > 0;
    let is_steered = is_ours || is_elastic || is_refusing;
    let variant = Variant {
        pools,
        processes: recording.processes(),
        concurrency: Concurrency::default(),
        rate: 1.0,
        control: if is_steered {
            ControlMode::On
        } else {
            ControlMode::Off
        },
    };
    (variant, threads_from)
}

impl Present {
    /// Whether the pool with the most requests is on an event loop.
    pub(super) fn is_on_loop(&self) -> bool {
        self.variant.pools[0].runs_on == RunsOn::EventLoop
    }
}

impl LogFacts {
    pub(super) fn per_second(&self) -> f64 {
        self.requests as f64 / self.seconds
    }

    pub(super) fn stalled(&self) -> Nanos {
        Nanos(self.stalls.iter().map(|pause| pause.lasts.0).sum())
    }
}
