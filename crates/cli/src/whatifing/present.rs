//! What is known of the present: what a log says, and what was learnt of it.
//!
//! Takes a wish and what was read, gives the basis of all answers and the facts that are told first.

use measure::Nanos;
use whatif::asking::{
    Basis, Calibration, PoolAsked, Requests, Steering, Threads, Times, Variant, calibrate,
};
use whatif::recorded::{Costs, LockFit, SharingFit, Workload, stalls};
use whatif::{Laws, Lock, Pause, Sharing};

use super::fitting::{self, FittedFacts};
use super::flags::Wish;
use super::reading::Read;
use crate::message::Message;

/// Waits and runs that are this much alike have risen together.
pub(super) const CORRELATION_MAX: f64 = 0.2;

/// The present, and what follows from it.
#[derive(Debug)]
pub(super) struct Present {
    pub(super) basis: Basis,
    /// The server of the log; of a law the first one that is asked about.
    pub(super) variant: Variant,
    pub(super) log: Option<LogFacts>,
    /// `None` where nothing was measured.
    pub(super) calibration: Option<Calibration>,
    /// The laws that stand in place of the log's requests.
    pub(super) fitted: Option<FittedFacts>,
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
}

/// Who says how many threads there were.
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
            ThreadsFrom::Flag => "as said",
            ThreadsFrom::Log => "as the log says",
            ThreadsFrom::Estimate => "the most that ran at once",
        }
    }
}

/// Of a log. `--run` takes the place of its run times, `--law fitted` of all its requests, unless it cannot be
/// repeated.
///
/// # Errors
/// There are no laws of such a log.
pub(super) fn of_log(wish: &Wish, read: &Read) -> Result<Present, Message> {
    let mut present = recorded(wish, read);
    let is_repeated = present.calibration.as_ref().is_none_or(|found| found.holds);
    if let Some(asked) = wish.fitted.filter(|_| is_repeated || wish.is_forced) {
        fitting::replace(&mut present, wish, asked, read)?;
    }
    Ok(present)
}

fn recorded(wish: &Wish, read: &Read) -> Present {
    let recording = &read.recording;
    let has_runs = wish.run.is_none();
    // Begins that are a guess say nothing about who ran beside whom.
    let is_exact = has_runs && !recording.is_by_second();
    let stalls = if is_exact {
        stalls(recording)
    } else {
        Vec::new()
    };
    let lock = is_exact.then(|| LockFit::of(recording, &stalls)).flatten();
    let fit = is_exact
        .then(|| SharingFit::of(recording, lock.as_ref(), wish.seed))
        .flatten();
    let sharing = fit.as_ref().map_or(Sharing::default(), |fit| fit.sharing);
    let costs = if has_runs {
        Costs::of(recording, &stalls)
    } else {
        Costs::default()
    };
    let mut workload = Workload::of(recording, lock.as_ref(), sharing, &stalls, wish.seed);
    if let Some(law) = &wish.run {
        workload.set_runs(law, wish.seed);
    }
    let (variant, threads_from) = variant_now(wish, read);
    let log_pools = read.routes.pools();
    let mut basis = basis(wish, Requests::Recorded(workload));
    basis.pool_of_route = read.routes.now(&log_pools);
    (basis.costs, basis.sharing) = (costs.clone(), sharing);
    basis.lock = lock.as_ref().map(|fit| fit.lock);
    let running_max = || recording.running_max(log_pools[0].1);
    basis.running_seen = has_runs.then(|| {
        fit.as_ref()
            .map_or_else(running_max, |fit| fit.running_seen)
    });
    let log = LogFacts {
        requests: recording.len() as u64,
        refused: if has_runs { recording.refused() } else { 0 },
        seconds: read.lasted().as_secs_f64(),
        correlation: recording.correlation(),
        threads_from,
        costs,
        lock,
        fit,
        stalls,
        queue: Times::of(recording.queue()),
        total: Times::of(recording.total()),
        has_runs,
    };
    let calibration = has_runs.then(|| calibrate(&basis, &variant, log.queue, wish.error_max));
    basis.pool_of_route = read.routes.separated(&log_pools);
    Present {
        basis,
        variant,
        log: Some(log),
        calibration,
        fitted: None,
    }
}

/// Of a law.
pub(super) fn of_law(wish: &Wish, laws: &Laws) -> Present {
    let threads = wish.threads.first().copied().unwrap_or(Threads::fixed(1));
    let pool = PoolAsked {
        name: "default".to_owned(),
        threads,
    };
    let mut basis = basis(wish, Requests::Made(laws.clone()));
    let computes = laws.routes.iter().any(|route| route.computing > 0.0);
    basis.lock = computes.then(Lock::default);
    Present {
        basis,
        variant: Variant {
            pools: vec![pool],
            processes: 1,
            rate: 1.0,
            steering: Steering::On,
        },
        log: None,
        calibration: None,
        fitted: None,
    }
}

fn basis(wish: &Wish, requests: Requests) -> Basis {
    Basis {
        requests,
        pool_of_route: Vec::new(),
        costs: Costs::default(),
        sharing: Sharing::default(),
        lock: None,
        running_seen: None,
        queue_target: wish.queue_target,
        queue_timeout: wish.queue_timeout,
        overload_timeout: wish.overload_timeout,
        queue_len_max: wish.queue_len_max,
        reserve: wish.reserve,
        seed: wish.seed,
    }
}

/// The server that wrote the log, its busiest pool first.
fn variant_now(wish: &Wish, read: &Read) -> (Variant, ThreadsFrom) {
    let recording = &read.recording;
    let mut threads_from = ThreadsFrom::Estimate;
    let pools: Vec<PoolAsked> = read
        .routes
        .pools()
        .into_iter()
        .enumerate()
        .map(|(place, (name, number))| {
            let said = wish.threads_now.filter(|_| place == 0);
            let found = recording
                .threads_found(number)
                .map(|(min, max)| Threads { min, max });
            if place == 0 {
                threads_from = match (said, found) {
                    (Some(_), _) => ThreadsFrom::Flag,
                    (None, Some(_)) => ThreadsFrom::Log,
                    (None, None) => ThreadsFrom::Estimate,
                };
            }
            let estimate = || Threads::fixed(recording.running_max(number));
            let threads = said.or(found).unwrap_or_else(estimate);
            PoolAsked { name, threads }
        })
        .collect();
    // Whoever says what requests found is Milepost, which turns a queue that stands for half a second around
    // and refuses what would wait in vain, however fixed its threads are.
    let is_ours = (0..pools.len()).any(|pool| recording.threads_found(pool).is_some());
    let is_elastic = pools.iter().any(|pool| pool.threads.min < pool.threads.max);
    let is_refusing = wish.run.is_none() && recording.refused() > 0;
    let is_steered = is_ours || is_elastic || is_refusing;
    let variant = Variant {
        pools,
        processes: recording.processes(),
        rate: 1.0,
        steering: if is_steered {
            Steering::On
        } else {
            Steering::Off
        },
    };
    (variant, threads_from)
}

impl LogFacts {
    pub(super) fn per_second(&self) -> f64 {
        self.requests as f64 / self.seconds
    }

    pub(super) fn stalled(&self) -> Nanos {
        Nanos(self.stalls.iter().map(|pause| pause.lasts.0).sum())
    }
}
