//! The six workloads that rules for the size of a pool are tried on.
//!
//! Takes a length and a seed, gives laws and what the simulated server is like. Each is a way in which one
//! rule or another goes wrong: a queue that is long for a moment only, threads that are held, a server that
//! stands still, work that more threads slow down, and more work than any number of threads can do.

use queueing::Class;
use telemetry::Nanos;
use whatif::{
    ArrivalProcess, Laws, LoopPlan, Pause, PoolPlan, Rate, Route, Service, Setting, Sharing,
};

/// Requests, and what the server is like that they come to.
#[derive(Clone, PartialEq, Debug)]
pub struct Workload {
    /// What tables call it.
    pub name: &'static str,
    /// What comes.
    pub laws: Laws,
    /// How those at work slow each other down.
    pub sharing: Sharing,
    /// When all stands still.
    pub pauses: Vec<Pause>,
}

/// A reply after this time is worth nothing.
const PATIENCE: Nanos = Nanos::from_secs(1);
/// What a new thread needs: one with an interpreter's state in it.
const THREAD_START: Nanos = Nanos::from_ms(5);

impl Workload {
    /// A server with this pool to run it on.
    pub fn setting(&self, pool: PoolPlan) -> Setting {
        Setting {
            processes: 1,
            pools: vec![pool],
            pool_of_route: Vec::new(),
            wakes: Vec::new(),
            fetch: Nanos::ZERO,
            thread_start: THREAD_START,
            event_loop: LoopPlan::default(),
            loop_wakes: Vec::new(),
            sharing: self.sharing,
            lock: None,
            pauses: self.pauses.clone(),
            patience: PATIENCE,
        }
    }
}

/// How long more comes than can be done.
const PEAK: Nanos = Nanos::from_secs(60);
/// What comes before and after it, of what can be done.
const BASE_SHARE: f64 = 0.7;

/// All six, `lasts` long, at least three minutes. The same seed gives the same pauses.
pub fn six(lasts: Nanos, seed: u64) -> [Workload; 6] {
    [
        bursts(lasts),
        slow(lasts),
        stalls(lasts, seed),
        gil(lasts),
        down(lasts),
        over(lasts),
    ]
}

/// Pages of 15 requests; run times as uneven as those of a site with some slow pages.
fn bursts(lasts: Nanos) -> Workload {
    let service = Service::LogNormal {
        mean: Nanos::from_ms(35),
        cs2: 8.0,
    };
    let process = ArrivalProcess::Bursts {
        len_mean: 15.0,
        gap: Nanos::from_ms(5),
    };
    plain("bursts", vec![Rate::steady(150.0, lasts)], process, service)
}

/// One of 100 requests holds a thread for 3 to 20 s, as a slow client or a hanging service does.
fn slow(lasts: Nanos) -> Workload {
    let quick = Service::Exponential {
        mean: Nanos::from_ms(40),
    };
    let holding = Service::Uniform {
        least: Nanos::from_secs(3),
        most: Nanos::from_secs(20),
    };
    let route = |weight, service| Route {
        weight,
        service,
        computing: 0.0,
        class: Class::Normal,
    };
    let rates = vec![Rate::steady(30.0, lasts)];
    let mut workload = plain("slow", rates, ArrivalProcess::Poisson, quick);
    workload.laws.routes = vec![route(0.99, quick), route(0.01, holding)];
    workload
}

/// The whole server stands still for 1 to 4 s, once a minute in the mean.
fn stalls(lasts: Nanos, seed: u64) -> Workload {
    let service = Service::Exponential {
        mean: Nanos::from_ms(30),
    };
    let rates = vec![Rate::steady(150.0, lasts)];
    let mut workload = plain("stalls", rates, ArrivalProcess::Poisson, service);
    let mut random = fastrand::Rng::with_seed(seed);
    let mut at = 0;
    loop {
        at += random.u64(Nanos::from_secs(20).0..Nanos::from_secs(100).0);
        if at >= lasts.0 {
            return workload;
        }
        let pause = Nanos(random.u64(Nanos::from_secs(1).0..Nanos::from_secs(4).0));
        workload.pauses.push(Pause {
            at: Nanos(at),
            lasts: pause,
        });
        at += pause.0;
    }
}

/// Work under one lock nearly all the time; for a minute half as much again as can be done.
fn gil(lasts: Nanos) -> Workload {
    let sharing = Sharing {
        sigma: 0.95,
        kappa: 0.001,
    };
    peaked("GIL", lasts, sharing, Nanos::from_ms(10), 1.5)
}

/// Work in a database that serves ten at once best; for a minute 1.45 times as much as it can do.
fn down(lasts: Nanos) -> Workload {
    let sharing = Sharing {
        sigma: 0.02,
        kappa: 0.01,
    };
    peaked("down", lasts, sharing, Nanos::from_ms(30), 1.45)
}

/// Work that any number of threads share evenly; for a minute more than 64 can do.
fn over(lasts: Nanos) -> Workload {
    let mut workload = peaked("over", lasts, Sharing::default(), Nanos::from_ms(100), 1.3);
    for rate in [0, 2] {
        workload.laws.rates[rate] = Rate::steady(
            0.3 * capacity(Sharing::default(), Nanos::from_ms(100)),
            workload.laws.rates[rate].lasts,
        );
    }
    workload
}

fn plain(
    name: &'static str,
    rates: Vec<Rate>,
    process: ArrivalProcess,
    service: Service,
) -> Workload {
    Workload {
        name,
        laws: Laws {
            rates,
            process,
            routes: vec![Route::only(service)],
        },
        sharing: Sharing::default(),
        pauses: Vec::new(),
    }
}

/// For a minute in the middle so many times as much as the best number of threads can do.
fn peaked(name: &'static str, lasts: Nanos, sharing: Sharing, mean: Nanos, times: f64) -> Workload {
    let capacity = capacity(sharing, mean);
    let around = Nanos(lasts.0.saturating_sub(PEAK.0) / 2);
    let rates = vec![
        Rate::steady(BASE_SHARE * capacity, around),
        Rate::steady(times * capacity, PEAK),
        Rate::steady(BASE_SHARE * capacity, around),
    ];
    let service = Service::Exponential { mean };
    let mut workload = plain(name, rates, ArrivalProcess::Poisson, service);
    workload.sharing = sharing;
    workload
}

/// Requests a second that the best number of up to 64 threads completes.
fn capacity(sharing: Sharing, mean: Nanos) -> f64 {
    let rates = (1..=64).map(|threads| threads as f64 * sharing.speed(threads));
    rates.fold(0.0, f64::max) / mean.as_secs_f64()
}
