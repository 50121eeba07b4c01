//! Loads of made pools at made times.

use ipc::stats::Shape;

use super::*;

fn config(processes: usize) -> Config {
    let mut config = Config::default();
    config.processes.count = processes;
    config
}

fn server_load(processes: usize) -> Arc<ServerLoad> {
    let config = config(processes);
    let stats = Stats::new(&Shape::of(&config)).expect("there is memory for counters");
    ServerLoad::new(&config, &Arc::new(stats))
}

const WORKLOAD: Workload = Workload {
    running: 3,
    waiting: 2,
    threads: 4,
    completed_per_second: 50.0,
};

/// A moment so many ms after the start.
fn at(ms: u64) -> Stamp {
    Stamp(Nanos::from_secs(7).0).plus(Nanos::from_ms(ms))
}

#[test]
fn says_what_pools_have_to_do_in_all_processes() {
    for (processes, running, waiting, threads) in [(1, 3, 2, 4), (3, 9, 6, 12)] {
        let load = server_load(processes);
        load.ask(|| WORKLOAD);
        let found = load.at(at(0));
        assert_eq!(
            (found.running, found.waiting, found.threads),
            (running, waiting, threads)
        );
        // Two that wait for four threads which complete fifty in a second.
        assert_eq!(found.queue, Nanos::from_ms(40));
    }
}

#[test]
fn a_server_without_pools_has_no_threads() {
    let found = server_load(1).at(at(0));
    assert_eq!(found.threads, 0);
    assert_eq!(found.queue, Nanos::ZERO);
}

#[test]
fn asks_once_in_ten_milliseconds() {
    let load = server_load(1);
    let asked = Arc::new(std::sync::atomic::AtomicUsize::new(0));
    let counted = Arc::clone(&asked);
    load.ask(move || {
        let before = counted.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
        Workload {
            running: before,
            ..WORKLOAD
        }
    });
    let mut field = LoadField::new(&config(1), &load).expect("it is on by default");
    for (ms, running) in [(0, 0), (9, 0), (10, 1), (19, 1), (500, 2)] {
        assert_eq!(load.at(at(ms)).running, running, "at {ms} ms");
        let text = field.value(&Phases::default(), at(ms));
        let expect = format!("named_metrics.running={running},");
        let text = str::from_utf8(text).expect("it is text");
        assert!(text.contains(&expect), "at {ms} ms: {text}");
    }
    assert_eq!(asked.load(std::sync::atomic::Ordering::Relaxed), 3);
}

#[test]
fn measures_rates_over_a_second_and_more() {
    let mut latest = LatestLoad::default();
    let totals = |ms: u64, answered, errors, cpu_ms| Totals {
        at: at(ms),
        answered,
        errors,
        cpu: Nanos::from_ms(cpu_ms),
    };
    let mut check = |totals: Totals, answered: f64, errors: f64, processors: f64| {
        latest.refresh(&totals);
        let Rates {
            answered: found,
            errors: failed,
            processors: used,
        } = latest.rates;
        assert_eq!((found, failed, used), (answered, errors, processors));
    };
    // The first look begins the window; what was before it is not of it.
    check(totals(0, 1_000, 10, 500), 0.0, 0.0, 0.0);
    check(totals(999, 2_000, 10, 900), 0.0, 0.0, 0.0);
    check(totals(1_000, 2_000, 12, 1_000), 1_000.0, 2.0, 0.5);
    check(totals(1_500, 9_000, 99, 1_500), 1_000.0, 2.0, 0.5);
    check(totals(3_000, 6_000, 12, 4_000), 2_000.0, 0.0, 1.5);
}

#[test]
fn each_response_has_its_own_phases_behind_the_load() {
    let load = server_load(1);
    load.ask(|| WORKLOAD);
    let mut field = LoadField::new(&config(1), &load).expect("it is on by default");
    let phases = |queued, started| Phases {
        arrived: at(0),
        queued: at(queued),
        started: at(started),
        ..Phases::default()
    };
    let mut told = |phases, now| telemetry::ToldLoad::parse(field.value(&phases, now));
    for (phases, now, queue, run) in [
        (phases(1, 3), at(8), 2, 5),
        (phases(2, 2), at(9), 0, 7),
        (phases(20, 25), at(95), 5, 70),
    ] {
        let told = told(phases, now);
        let own = UpstreamPhases {
            queue: Nanos::from_ms(queue),
            run: Nanos::from_ms(run),
        };
        assert_eq!(told.own, Some(own));
        assert_eq!(told.load.map(|load| load.threads), Some(4));
    }
}

#[test]
fn is_off_where_it_is_turned_off() {
    let mut config = config(1);
    config.headers.load_report = LoadReports::Off;
    assert!(LoadField::new(&config, &server_load(1)).is_none());
}
