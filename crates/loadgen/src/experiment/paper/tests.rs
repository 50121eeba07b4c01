//! Tables in the form of the originals, from findings made up here.

use super::*;
use crate::experiment::original::original;
use crate::experiment::{Finding, Host};
use crate::outcome::Outcome;

/// An outcome with as many answers in 2 seconds, and one latency.
fn outcome(answered: u64, latency_ms: u64) -> Outcome {
    use crate::distribution::{Distribution, Summary};
    let mut all = Distribution::new();
    for _ in 0..2_000 {
        all.record(measure::Nanos::from_ms(latency_ms));
    }
    let summary = serde_json::to_value(Summary::from(&all)).unwrap();
    let empty = serde_json::to_value(Summary::from(&Distribution::new())).unwrap();
    let counts = serde_json::to_value(crate::outcome::Counts {
        answered,
        failures: crate::outcome::Failures {
            reset: 3,
            ..Default::default()
        },
        ..Default::default()
    });
    let outcome = serde_json::json!({
        "schema": 1, "milepost": "0", "began_unix_ms": 0, "seconds": 2.0, "series": [],
        "asked": {
            "url": "", "label": "", "load": "closed", "rate": null, "connections": 1, "in_flight": 1,
            "requests_each": null, "closing": "rst", "engine": "epoll", "threads": 1, "requests": [],
            "timeout_s": 1.0
        },
        "counts": counts.unwrap(),
        "times": {
            "latency": summary, "connect": empty, "first_byte": empty, "last_byte": empty, "cycle": empty,
            "late": null
        },
        "generator": {
            "threads": [], "cpu_us_per_request": 12.0, "resident_bytes": 0, "resident_early_bytes": 0,
            "stalled_s": 0.0, "foreign_cpu_share": 0.0
        },
        "server": null, "kernel": {}, "company": [],
        "remarks": [{"weight": "doubtful", "word": "stalled", "text": "it stood still"}]
    });
    serde_json::from_value(outcome).unwrap()
}

fn finding(
    server: &str,
    point: &str,
    repetition: usize,
    outcome: Result<Outcome, String>,
) -> Finding {
    Finding {
        server: server.to_owned(),
        point: point.to_owned(),
        repetition,
        outcome,
        facts: [("queue.avg".to_owned(), 0.3), ("queue.max".to_owned(), 0.0)].into(),
        notes: Vec::new(),
        disturbed: false,
    }
}

fn findings() -> Findings {
    Findings {
        experiment: "e".to_owned(),
        findings: vec![
            finding("A", "10", 1, Ok(outcome(200_000, 5))),
            finding("B", "10", 1, Ok(outcome(100_000, 20))),
            finding("B", "10", 2, Ok(outcome(50_000, 20))),
            finding("A", "10", 2, Ok(outcome(110_000, 5))),
            finding("B", "20", 1, Err("it died".to_owned())),
        ],
        skipped: vec![("nginx".to_owned(), "there is no program `nginx`".to_owned())],
        versions: [("A".to_owned(), "A 1.0".to_owned())].into(),
        host: Host {
            processors: 2,
            processor: "A processor".to_owned(),
            kernel: "6.18".to_owned(),
        },
        ..Findings::default()
    }
}

fn names(texts: &[&str]) -> Vec<String> {
    texts.iter().map(|text| (*text).to_owned()).collect()
}

fn figure(value: &str, factor: f64, over: Over) -> Figure {
    Figure {
        value: value.to_owned(),
        factor,
        digits: 1,
        suffix: String::new(),
        over,
        against: None,
    }
}

fn column(head: &str, shows: Shows) -> Column {
    Column {
        head: head.to_owned(),
        shows,
    }
}

#[test]
fn puts_servers_beside_each_other_in_a_grid_behind_the_original() {
    let mut theirs = *original("drivers").unwrap();
    theirs.rows = &theirs.rows[..1];
    let table = Table {
        title: "Drivers".to_owned(),
        original: Some(Box::leak(Box::new(theirs))),
        points: names(&["10", "20"]),
        servers: names(&["1 driver", "A", "B"]),
        layout: Layout::Grid {
            head: "clients".to_owned(),
            cell: figure("per-second", 1e-3, Over::Spread),
        },
        notes: names(&["A note."]),
    };
    assert_eq!(table.absent_heads(), ["2 drivers", "10 drivers"]);
    let expect = "\
# A title

A processor with 2 processors, kernel 6.18; 2 interleaved repetitions.
A: A 1.0.

## Drivers

| clients | 1 driver | A | B |
| --- | --- | --- | --- |
| **NaviServer, driver threads on one port (SO_REUSEPORT), 2016, 8 cores, weighttp, keep-alive** |  |  |  |
| 10 | 41,623 | – | – |
| **here** |  |  |  |
| 10 | – | 77.5 (55.0 – 100.0) | 37.5 (25.0 – 50.0) |
| 20 | – | – | – |

The original's cells are averages of several runs of 100,000 requests.

A note.

## What has to be known

- nginx was not measured: there is no program `nginx`
- DOUBTFUL (stalled): A, 10: it stood still (and so 4 of 5 runs)
- B, 20: it died
";
    assert_eq!(paper("A title", &[table], &findings()), expect);
}

#[test]
fn makes_a_row_of_each_server_point_and_key_that_says_something() {
    let against = Figure {
        against: Some("B".to_owned()),
        ..figure("per-second", 1.0, Over::Median)
    };
    let table = Table {
        title: "Rows".to_owned(),
        original: None,
        points: names(&["10", "20"]),
        servers: names(&["A", "B", "C"]),
        layout: Layout::List {
            by: By::Server,
            rows: names(&["avg", "max"]),
            columns: vec![
                column("who", Shows::Text("{server} | {point} {row}".to_owned())),
                column(
                    "ms",
                    Shows::Number(figure("latency.{row}", 1e3, Over::Median)),
                ),
                column(
                    "lost",
                    Shows::Number(figure("failed.reset", 1.0, Over::Sum)),
                ),
                column(
                    "queue",
                    Shows::Number(figure("fact.queue.{row}", 1.0, Over::Max)),
                ),
                column(
                    "waited",
                    Shows::Whether {
                        value: "fact.queue.{row}".to_owned(),
                        above: 0.005,
                    },
                ),
                column("against B", Shows::Number(against)),
            ],
        },
        notes: Vec::new(),
    };
    let found = paper("A title", &[table], &findings());
    let rows: Vec<_> = found
        .lines()
        .filter(|line| line.starts_with('|'))
        .skip(2)
        .collect();
    let expect = [
        "| A \\| 10 avg | 5.0 | 6.0 | 0.3 | yes | +110 % |",
        "| A \\| 10 max | 5.0 | 6.0 | 0.0 | no | +110 % |",
        "| B \\| 10 avg | 20.0 | 6.0 | 0.3 | yes | +0 % |",
        "| B \\| 10 max | 20.0 | 6.0 | 0.0 | no | +0 % |",
        // Its run failed, its facts were told all the same.
        "| B \\| 20 avg | – | – | 0.3 | yes | – |",
        "| B \\| 20 max | – | – | 0.0 | no | – |",
    ];
    assert_eq!(rows, expect);
}

#[test]
fn says_that_nothing_was_measured() {
    let text = paper("A title", &[], &Findings::default());
    assert!(text.contains("nothing was measured"), "{text}");
}
