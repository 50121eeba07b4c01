//! Processor time of exchanges: what their thread computes for them, and nothing of what it waits.

use std::sync::Arc;
use std::thread;
use std::time::Duration;

use measure::Nanos;
use server::exchange::Exchange;
use server::pool::Meter;
use server::response::ResponseWriter;

use super::support::*;

const COMPUTED: Nanos = Nanos::from_ms(100);

/// Computes until this thread has used that much.
fn compute(cpu: Nanos) {
    let meter = Meter::start();
    while meter.used().unwrap() < cpu {}
}

fn answer(exchange: &mut Exchange, writer: &mut ResponseWriter) -> Answer {
    match exchange.head().path() {
        b"/computes" => compute(COMPUTED),
        b"/sleeps" => thread::sleep(Duration::from_millis(100)),
        b"/streams" => {
            writer.begin_ok("");
            for _ in 0..4 {
                compute(Nanos(COMPUTED.0 / 4));
                writer.give(b"part");
            }
            return Ok(());
        }
        _ => {}
    }
    whole(writer, b"")
}

/// Microseconds under a key of the only line with `path`.
fn us_of(lines: &[String], path: &str, key: &str) -> Option<u64> {
    let mut of_path = lines.iter().filter(|line| line.contains(path));
    let (line, None) = (of_path.next().unwrap(), of_path.next()) else {
        panic!("more than one: {lines:?}")
    };
    let (_, value) = line.split_once(&format!(" {key}="))?;
    let value = value.split(' ').next().unwrap();
    let (secs, us) = value.split_once('.').unwrap();
    Some(secs.parse::<u64>().unwrap() * 1_000_000 + us.parse::<u64>().unwrap())
}

#[test]
fn each_exchange_has_the_processor_time_of_its_own_run() {
    let (mut config, dir) = config();
    (config.pools[0].threads_min, config.pools[0].threads_max) = (1, 1);
    config.status_path = Some("/-/status".to_owned());
    let running = run(config, dir, Some(Arc::new(answer)));
    // One thread runs them all: what one has used is not the next one's.
    for path in ["/computes", "/sleeps", "/streams", "/nothing"] {
        running.get(path);
    }
    running.get("/-/status");
    let (_, lines) = running.stop();
    let computed_us = COMPUTED.0 / 1_000;
    for path in ["/computes", "/streams"] {
        let (cpu, run) = (us_of(&lines, path, "cpu"), us_of(&lines, path, "run"));
        assert!(cpu >= Some(computed_us) && cpu <= run, "{lines:?}");
    }
    for path in ["/sleeps", "/nothing"] {
        let cpu = us_of(&lines, path, "cpu").unwrap();
        assert!(cpu < computed_us / 5, "{lines:?}");
    }
    // Answered on a driver.
    assert_eq!(us_of(&lines, "/-/status", "cpu"), None, "{lines:?}");
}
