//! The simulation against the formulas of queueing theory, within its own confidence interval.

#[path = "../common/mod.rs"]
mod common;
mod formulas;

use common::{alone, fixed};
use formulas::{EqualRuns, Load};
use telemetry::Nanos;
use whatif::{ArrivalProcess, Laws, Rate, Route, Service, Trace, simulate_traced};

const RUN: Nanos = Nanos::from_ms(1);
/// The first batch is left out: it begins with an empty queue.
const BATCHES: usize = 21;
const BATCH_LEN: u64 = 5_000;
/// Student's t for 19 degrees of freedom and 99 of 100 intervals.
const T_BATCHES: f64 = 2.861;
const SEEDS: u64 = 6;
/// And for 5.
const T_SEEDS: f64 = 4.032;

/// A mean and the half of its interval.
#[derive(Clone, Copy, Debug)]
struct Interval {
    mean: f64,
    half: f64,
}

impl Interval {
    fn of(values: &[f64], t: f64) -> Interval {
        let len = values.len() as f64;
        let mean = values.iter().sum::<f64>() / len;
        let squares = values.iter().map(|value| (value - mean).powi(2));
        let variance = squares.sum::<f64>() / (len - 1.0);
        Interval {
            mean,
            half: t * (variance / len).sqrt(),
        }
    }

    fn has(&self, value: f64) -> bool {
        (self.mean - value).abs() <= self.half
    }
}

/// Something that is said of each wait, in run times, and its mean in theory.
type Saying<'s> = (&'s dyn Fn(f64) -> f64, f64);

/// What is said of each wait, as the means of batches.
fn batches(load: Load, service: Service, seed: u64, sayings: &[Saying<'_>]) -> Vec<Vec<f64>> {
    let laws = Laws {
        rates: vec![Rate::steady(
            load.offered / RUN.as_secs_f64(),
            Nanos::from_secs(1_000_000),
        )],
        process: ArrivalProcess::Poisson,
        routes: vec![Route::only(service)],
    };
    let mut means = vec![vec![0.0; BATCHES]; sayings.len()];
    let mut add = |trace: &Trace| {
        let wait = (trace.started.0 - trace.arrived.0) as f64 / RUN.0 as f64;
        let batch = (trace.number / BATCH_LEN) as usize;
        for (means, (say, _)) in means.iter_mut().zip(sayings) {
            means[batch] += say(wait) / BATCH_LEN as f64;
        }
    };
    let requests = BATCHES * BATCH_LEN as usize;
    let mut arrivals = laws.arrivals(seed).take(requests);
    simulate_traced(
        &alone(fixed(load.servers, 100_000)),
        &mut arrivals,
        seed,
        &mut add,
    );
    means.iter().map(|means| means[1..].to_vec()).collect()
}

/// The theory's value is within the interval of all seeds together, and within those of single seeds as
/// often as intervals are right.
fn check(load: Load, service: Service, sayings: &[Saying<'_>]) {
    let mut intervals = vec![Vec::new(); sayings.len()];
    for seed in 1..=SEEDS {
        let batches = batches(load, service, seed, sayings);
        for (intervals, batches) in intervals.iter_mut().zip(batches) {
            intervals.push(Interval::of(&batches, T_BATCHES));
        }
    }
    for (intervals, &(_, theory)) in intervals.iter().zip(sayings) {
        let right = intervals.iter().filter(|one| one.has(theory)).count() as u64;
        let means: Vec<_> = intervals.iter().map(|one| one.mean).collect();
        let all = Interval::of(&means, T_SEEDS);
        assert!(all.has(theory), "{load:?}: {all:?} for {theory}");
        // Wide intervals would prove nothing.
        assert!(all.half < 0.2 * theory, "{load:?}: {all:?}");
        assert!(
            right + 1 >= SEEDS,
            "{load:?}: {theory} is not in {intervals:?}"
        );
    }
}

fn itself(wait: f64) -> f64 {
    wait
}

#[test]
fn waits_at_exponential_servers_are_erlangs() {
    for (servers, offered) in [(2, 1.6), (5, 4.0), (10, 8.0)] {
        let load = Load { servers, offered };
        let p95 = load.wait_quantile(0.95);
        let sayings: [Saying<'_>; 3] = [
            (&itself, load.wait_mean()),
            (&|wait| f64::from(wait > 0.0), load.wait_probability()),
            (&|wait| f64::from(wait > p95), 0.05),
        ];
        check(load, Service::Exponential { mean: RUN }, &sayings);
    }
}

#[test]
fn waits_at_one_server_of_equal_runs_are_exact() {
    let load = Load {
        servers: 1,
        offered: 0.8,
    };
    let theory = EqualRuns::new(load.offered, 100).unwrap();
    let longer = |than: f64| 1.0 - theory.wait_at_most(than).unwrap();
    let sayings: [Saying<'_>; 5] = [
        (&itself, theory.wait_mean()),
        (&|wait| f64::from(wait > 0.0), longer(0.0)),
        (&|wait| f64::from(wait > 0.5), longer(0.5)),
        (&|wait| f64::from(wait > 1.0), longer(1.0)),
        (&|wait| f64::from(wait > 3.7), longer(3.7)),
    ];
    check(load, Service::Constant(RUN), &sayings);
}

#[test]
fn waits_at_one_server_of_uneven_runs_are_pollaczeks() {
    let load = Load {
        servers: 1,
        offered: 0.6,
    };
    let service = Service::LogNormal {
        mean: RUN,
        cs2: 3.0,
    };
    check(load, service, &[(&itself, load.wait_mean_uneven(1.0, 3.0))]);
}
