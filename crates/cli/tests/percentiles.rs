//! One definition of percentiles in all tools: the nearest rank.
//!
//! The percentile `q` of `n` values is the smallest of them that at least `q` of all do not exceed: number
//! `ceil(q * n)` in ascending order. So the median of an even number is the lower one of the middle two, and a
//! percentile is always a value that was measured, to the precision of the histogram.

#![allow(clippy::unwrap_used, reason = "helpers of tests are tests")]

use std::fmt::Write as _;
use std::fs;
use std::path::Path;
use std::process::Command;

use loadgen::distribution::Distribution;
use serde_json::Value;
use telemetry::Nanos;

/// The histogram of the report has the widest buckets.
const PRECISION: f64 = 0.016;
const SHARES: [(f64, &str, &str); 4] = [
    (0.5, "median", "p50_ms"),
    (0.9, "p90", "p90_ms"),
    (0.95, "p95", "p95_ms"),
    (0.99, "p99", "p99_ms"),
];

/// A log of requests that waited for 10 ms, 20 ms, 30 ms and so on.
fn log(len: u64) -> String {
    let mut log = String::new();
    for nth in 1..=len {
        let at = 1_795_262_400 + nth;
        let queue = format!("{}.{:03}", nth / 100, nth % 100 * 10);
        writeln!(
            log,
            "10.0.0.1 - - [21/Nov/2026:12:00:00 +0000] \"GET / HTTP/1.1\" 200 5 \"-\" \"-\" \
             \"{at}.000000 0.000050 {queue} 0.000000 0.001000\""
        )
        .unwrap();
    }
    log
}

fn told(folder: &Path, arguments: &[&str]) -> Value {
    let done = Command::new(env!("CARGO_BIN_EXE_milepost"))
        .args(arguments)
        .current_dir(folder)
        .env_clear()
        .output()
        .unwrap();
    assert!(done.status.success(), "{done:?}");
    serde_json::from_slice(&done.stdout).unwrap()
}

#[test]
fn all_tools_take_the_nearest_rank_of_few_values() {
    let folder = tempfile::tempdir().unwrap();
    for len in [1_u64, 2, 3, 4, 6, 10, 20, 40, 100] {
        fs::write(folder.path().join("a.log"), log(len)).unwrap();
        let report = told(folder.path(), &["report", "a.log", "--json"]);
        let flags = ["whatif", "a.log", "--json", "--force", "--threads", "4"];
        let whatif = told(folder.path(), &flags);
        let mut bench = Distribution::new();
        for nth in 1..=len {
            bench.record(Nanos::from_ms(10 * nth));
        }
        for (share, report_key, whatif_key) in SHARES {
            let expect_ms = 10.0 * (share * len as f64).ceil();
            let found_ms = [
                1e3 * report["all"]["seconds"]["queue"][report_key]
                    .as_f64()
                    .unwrap(),
                whatif["log"]["queue"][whatif_key].as_f64().unwrap(),
                bench.quantile(share).0 as f64 / 1e6,
            ];
            for (tool, found_ms) in ["report", "whatif", "bench"].into_iter().zip(found_ms) {
                assert!(
                    (found_ms / expect_ms - 1.0).abs() <= PRECISION,
                    "{tool}, {share} of {len}: {found_ms} ms, expected {expect_ms} ms"
                );
            }
        }
    }
}
