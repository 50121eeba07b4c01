//! How many requests the simulator takes a second: ten million at random through pools of eight
//! threads.
//!
//! `cargo run --release -p milepost-whatif --example speed`

use std::time::Instant;

use measure::Nanos;
use stage::{Control, PoolSettings, PoolShape};
use whatif::{Coming, Laws, PoolPlan, Rate, Route, Service, Setting, Sharing, simulate};

const REQUESTS: f64 = 10_000_000.0;
const THREADS: usize = 8;
/// Of the eight threads' time.
const LOAD: f64 = 0.8;
const RUN: Nanos = Nanos::from_ms(1);

fn main() {
    let plain = setting("one pool", 1, 1);
    let mut shared = setting("one pool, sharing", 1, 1);
    shared.sharing.sigma = 0.001;
    let mut several = setting("three pools in four processes", 4, 3);
    several.pool_of_route = vec![0, 1, 2];
    (several.wakes, several.fetch) = (vec![Nanos::from_us(50)], Nanos::from_us(3));
    [plain, shared, several].iter().for_each(time);
}

fn time(setting: &Setting) {
    let pools = setting.pools.len() * setting.processes;
    let per_second = LOAD * (THREADS * pools) as f64 / RUN.as_secs_f64();
    let route = Route::only(Service::Exponential { mean: RUN });
    let laws = Laws {
        rates: vec![Rate::steady(
            per_second,
            Nanos((REQUESTS / per_second * 1e9) as u64),
        )],
        coming: Coming::Poisson,
        routes: vec![route; setting.pools.len()],
    };
    let (clock, before) = (Instant::now(), at_work_secs());
    let outcome = simulate(setting, &mut laws.arrivals(1), 1);
    let secs = match (before, at_work_secs()) {
        (Some(before), Some(after)) => after - before,
        _ => clock.elapsed().as_secs_f64(),
    };
    let arrived: u64 = outcome.pools.iter().map(|pool| pool.arrived).sum();
    println!(
        "{}: {arrived} requests in {secs:.2} s at work: {:.2} million a second; mean wait {} s",
        outcome.name,
        arrived as f64 / secs / 1e6,
        outcome.pools[0].wait_mean(),
    );
}

/// The time that this process has had on a processor, which others on a busy machine do not change.
fn at_work_secs() -> Option<f64> {
    let schedule = std::fs::read_to_string("/proc/self/schedstat").ok()?;
    let at_work_ns: u64 = schedule.split_whitespace().next()?.parse().ok()?;
    Some(at_work_ns as f64 / 1e9)
}

fn setting(name: &str, processes: usize, pools: usize) -> Setting {
    let settings = PoolSettings {
        shape: PoolShape {
            threads_min: THREADS,
            threads_max: THREADS,
            queue_len_max: 1_000,
        },
        queue_target: Nanos::from_ms(5),
        queue_timeout: Nanos::from_secs(30),
        overload_timeout: Nanos::from_ms(500),
        reserve_threads: 0,
        reserve_len: 0,
    };
    let pool = |index: usize| PoolPlan {
        name: index.to_string(),
        settings,
        threads: THREADS,
        policy: Box::new(move || Box::new(Control::new(&settings))),
    };
    Setting {
        name: name.to_owned(),
        processes,
        pools: (0..pools).map(pool).collect(),
        pool_of_route: Vec::new(),
        wakes: Vec::new(),
        fetch: Nanos::ZERO,
        thread_start: Nanos::ZERO,
        sharing: Sharing::default(),
        lock: None,
        pauses: Vec::new(),
        patience: Nanos::from_secs(1),
    }
}
