//! The six workloads under our controller, under the controllers of other servers, and in fixed pools.
//!
//! A cell is the mean of three seeds of ten minutes each: average threads / p95 of the queue time in ms / share
//! of requests that were answered within a second.

use queueing::{Control, PoolSettings, PoolShape};
use research::controllers::{Fixed, FrankenPhp, Gradient2, Granian, NaviServer, Prefork};
use research::workloads;
use telemetry::Nanos;
use whatif::{Policy, PoolPlan, RunsOn, simulate};

const LASTS: Nanos = Nanos::from_secs(600);
const SEEDS: std::ops::RangeInclusive<u64> = 1..=3;
/// A queue without a practical limit.
const LEN_MAX: usize = 100_000;
const SIZES: [usize; 10] = [2, 4, 6, 8, 12, 16, 24, 32, 48, 64];

type Make = fn(&PoolSettings) -> Box<dyn Policy>;

struct Rule {
    name: String,
    settings: PoolSettings,
    make: Make,
}

/// Prints the table.
pub(crate) fn print() {
    let rules = rules();
    let names = workloads::six(LASTS, 1).map(|workload| workload.name);
    println!("| | {} |", names.join(" | "));
    println!("|---|{}", "---|".repeat(names.len()));
    for rule in &rules {
        let cells: Vec<String> = (0..names.len()).map(|index| cell(rule, index)).collect();
        println!("| {} | {} |", rule.name, cells.join(" | "));
    }
}

fn cell(rule: &Rule, index: usize) -> String {
    let (mut threads, mut p95_ms, mut good) = (0.0, 0.0, 0.0);
    for seed in SEEDS {
        let workload = &workloads::six(LASTS, seed)[index];
        let setting = workload.setting(plan(rule));
        let outcome = simulate(&setting, &mut workload.laws.arrivals(seed), seed);
        let pool = &outcome.pools[0];
        threads += pool.thread_seconds / outcome.lasted.as_secs_f64();
        p95_ms += pool.queue.value_at_quantile(0.95) as f64 / 1e6;
        good += 100.0 * pool.goodput();
    }
    let of = SEEDS.count() as f64;
    format!("{:.0}/{:.0}/{:.1}", threads / of, p95_ms / of, good / of)
}

fn plan(rule: &Rule) -> PoolPlan {
    let (settings, make) = (rule.settings, rule.make);
    PoolPlan {
        runs_on: RunsOn::Threads,
        settings,
        threads: settings.shape.threads_min,
        policy: Box::new(move || make(&settings)),
    }
}

fn rules() -> Vec<Rule> {
    let patient = Nanos::from_secs(100_000);
    let rule = |name: &str, threads: (usize, usize), queue_len_max, make: Make| Rule {
        name: name.to_owned(),
        settings: settings(threads, queue_len_max, patient, None),
        make,
    };
    let steered = |name: String, threads| Rule {
        name,
        settings: settings(
            threads,
            LEN_MAX,
            Nanos::from_secs(1),
            Some(Nanos::from_ms(100)),
        ),
        make: |settings| Box::new(Control::new(settings)),
    };
    // As the server has them where nothing is said, but for the number of threads.
    let unsaid = |name: String, threads, overload_timeout| Rule {
        settings: PoolSettings {
            queue_target: Nanos::from_ms(5),
            ..settings(threads, 1_024, Nanos::from_secs(30), overload_timeout)
        },
        ..steered(name, threads)
    };
    let mut rules = vec![
        rule("fixed 8", (8, 8), LEN_MAX, |_| Box::new(Fixed)),
        rule("fixed 64", (64, 64), LEN_MAX, |_| Box::new(Fixed)),
    ];
    rules.extend(SIZES.map(|len| steered(format!("fixed {len} + CoDel"), (len, len))));
    rules.extend([
        rule("NaviServer 5..64, queue 100", (5, 64), 100, |settings| {
            Box::new(NaviServer::new(settings))
        }),
        rule("FrankenPHP 8..64", (8, 64), LEN_MAX, |settings| {
            Box::new(FrankenPhp::new(settings))
        }),
        rule("granian 1..64", (1, 64), LEN_MAX, |settings| {
            Box::new(Granian::new(settings))
        }),
        rule("Apache prefork 5..64", (5, 64), 511, |settings| {
            Box::new(Prefork::new(settings))
        }),
        rule("Gradient2 2..64", (2, 64), LEN_MAX, |settings| {
            Box::new(Gradient2::new(settings))
        }),
        steered("**steered 2..64**".to_owned(), (2, 64)),
    ]);
    let patient = Some(Nanos::from_secs(10));
    rules.extend([8, 16].map(|len| {
        let name = format!("fixed {len}, defaults, `overload_timeout` 10 s");
        unsaid(name, (len, len), patient)
    }));
    rules.extend(
        [4, 8, 16, 64].map(|len| unsaid(format!("fixed {len}, defaults"), (len, len), None)),
    );
    rules.push(unsaid(
        "**steered 2..64, defaults**".to_owned(),
        (2, 64),
        None,
    ));
    rules
}

fn settings(
    threads: (usize, usize),
    queue_len_max: usize,
    queue_timeout: Nanos,
    overload_timeout: Option<Nanos>,
) -> PoolSettings {
    PoolSettings {
        shape: PoolShape {
            threads_min: threads.0,
            threads_max: threads.1,
            queue_len_max,
        },
        queue_target: Nanos::from_ms(50),
        queue_timeout,
        overload_timeout,
        reserve_threads: 0,
        reserve_len: 0,
    }
}
