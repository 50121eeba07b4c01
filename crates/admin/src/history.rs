//! The last hours as JSON: sums of seconds, of minutes and of folded paths, and marks. Durations are seconds, times are
//! seconds since 1970. Sizes are bounded, whatever the server has.

use std::collections::HashMap;

use serde::Serialize;
use telemetry::Nanos;
use telemetry::history::{HeldMinute, HeldSecond, HeldSums, MarkKind, PathSum};

/// Paths in an answer: those that took the most time.
const PATHS_LEN_MAX: usize = 50;

/// How far back an answer goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum HistorySpan {
    Quarter,
    Hour,
    Day,
}

impl HistorySpan {
    /// The value of `span` in a query; `None`: it has another one.
    pub(crate) fn of_query(query: &str) -> Option<HistorySpan> {
        let mut values = query
            .split('&')
            .filter_map(|pair| pair.strip_prefix("span="));
        match values.next_back().unwrap_or("15m") {
            "15m" => Some(HistorySpan::Quarter),
            "1h" => Some(HistorySpan::Hour),
            "24h" => Some(HistorySpan::Day),
            _ => None,
        }
    }

    pub(crate) fn secs(self) -> u64 {
        match self {
            HistorySpan::Quarter => 900,
            HistorySpan::Hour => 3_600,
            HistorySpan::Day => 86_400,
        }
    }
}

/// An answer.
#[derive(Serialize)]
struct HistoryAnswer<'h> {
    now: u64,
    /// Seconds that were asked for.
    span_s: u64,
    /// When the history begins.
    since: u64,
    /// Of a quarter of an hour alone: more are not kept.
    seconds: Vec<SecondLine>,
    minutes: Vec<MinuteLine>,
    paths: Vec<PathLine<'h>>,
    marks: Vec<MarkLine>,
}

#[derive(Serialize)]
struct SecondLine {
    at: u64,
    span_s: f64,
    pools: Vec<PoolSecondLine>,
}

#[derive(Serialize)]
struct PoolSecondLine {
    pool: String,
    requests: u32,
    failed: u32,
    refused: u32,
    running: u32,
    waiting: u32,
    threads: u32,
    receive_p99: f64,
    queue_p50: f64,
    queue_p99: f64,
    run_p50: f64,
    run_p99: f64,
    send_p99: f64,
    p50: f64,
    p99: f64,
}

#[derive(Serialize)]
struct MinuteLine {
    at: u64,
    #[serde(flatten)]
    figures: Option<Figures>,
}

/// What one row of a minute says.
#[derive(Serialize)]
struct Figures {
    requests: u32,
    failed: u32,
    p50: f64,
    p95: f64,
    p99: f64,
    max: f64,
    receive: f64,
    queue: f64,
    run: f64,
    send: f64,
}

/// A folded path in the whole span.
#[derive(Serialize)]
struct PathLine<'h> {
    /// Empty: all paths that have no row of their own.
    path: &'h str,
    requests: u64,
    failed: u64,
    /// Of all requests together.
    sum: f64,
    mean: f64,
    queue: f64,
    run: f64,
    max: f64,
    /// The minute in which 95 of 100 were the slowest, and how long they took.
    slowest_at: u64,
    slowest_p95: f64,
}

#[derive(Serialize)]
struct MarkLine {
    at: u64,
    kind: MarkKind,
}

/// The text of an answer.
pub(crate) fn json(sums: &HeldSums, span: HistorySpan, now_s: u64) -> String {
    let from_s = now_s.saturating_sub(span.secs());
    let minutes = sums.minutes(from_s);
    let seconds = match span {
        HistorySpan::Quarter => sums.seconds(from_s),
        HistorySpan::Hour | HistorySpan::Day => Vec::new(),
    };
    let answer = HistoryAnswer {
        now: now_s,
        span_s: span.secs(),
        since: sums.since_s(),
        seconds: { seconds.iter() }.map(|one| second(sums, one)).collect(),
        minutes: minutes.iter().map(minute).collect(),
        paths: paths(sums, &minutes),
        marks: { sums.marks(from_s).into_iter() }
            .map(|mark| MarkLine {
                at: mark.at_s,
                kind: mark.kind,
            })
            .collect(),
    };
    serde_json::to_string(&answer).expect("names are texts, and numbers are finite")
}

fn second(sums: &HeldSums, second: &HeldSecond) -> SecondLine {
    let names = sums.pools(second.names);
    let pools = second
        .pools
        .iter()
        .zip(names)
        .map(|(pool, name)| PoolSecondLine {
            pool: name.clone(),
            requests: pool.ended,
            failed: pool.failed,
            refused: pool.refused,
            running: pool.running,
            waiting: pool.waiting,
            threads: pool.threads,
            receive_p99: pool.receive.as_secs_f64(),
            queue_p50: pool.queue[0].as_secs_f64(),
            queue_p99: pool.queue[1].as_secs_f64(),
            run_p50: pool.run[0].as_secs_f64(),
            run_p99: pool.run[1].as_secs_f64(),
            send_p99: pool.send.as_secs_f64(),
            p50: pool.total[0].as_secs_f64(),
            p99: pool.total[1].as_secs_f64(),
        });
    SecondLine {
        at: second.at_s,
        span_s: f64::from(second.span_ms) / 1_000.0,
        pools: pools.collect(),
    }
}

fn minute(minute: &HeldMinute) -> MinuteLine {
    MinuteLine {
        at: minute.at_s,
        figures: minute.rows.first().map(figures),
    }
}

fn figures(row: &PathSum) -> Figures {
    let [p50, p95, p99] = row.total.map(Nanos::as_secs_f64);
    let means = row.means.map(|mean| mean.as_secs_f64());
    Figures {
        requests: row.ended,
        failed: row.failed,
        p50,
        p95,
        p99,
        max: row.longest.as_secs_f64(),
        receive: means.receive,
        queue: means.queue,
        run: means.run,
        send: means.send,
    }
}

fn paths<'h>(sums: &'h HeldSums, minutes: &[HeldMinute]) -> Vec<PathLine<'h>> {
    let mut lines: HashMap<u16, PathLine<'h>> = HashMap::new();
    for minute in minutes {
        for row in minute.rows.iter().skip(1) {
            // A path that is not valid text is shown among the others.
            let path = std::str::from_utf8(sums.path(row.path)).unwrap_or_default();
            let line = lines.entry(row.path).or_insert_with(|| PathLine {
                path,
                requests: 0,
                failed: 0,
                sum: 0.0,
                mean: 0.0,
                queue: 0.0,
                run: 0.0,
                max: 0.0,
                slowest_at: minute.at_s,
                slowest_p95: 0.0,
            });
            line.add(row, minute.at_s);
        }
    }
    let mut lines: Vec<PathLine<'h>> = lines.into_values().collect();
    lines.sort_by(|one, other| other.sum.total_cmp(&one.sum).then(one.path.cmp(other.path)));
    lines.truncate(PATHS_LEN_MAX);
    for line in &mut lines {
        let len = line.requests.max(1) as f64;
        line.mean = line.sum / len;
        (line.queue, line.run) = (line.queue / len, line.run / len);
    }
    lines
}

impl PathLine<'_> {
    fn add(&mut self, row: &PathSum, at_s: u64) {
        let len = f64::from(row.ended);
        self.requests += u64::from(row.ended);
        self.failed += u64::from(row.failed);
        self.sum += row.means.total.as_secs_f64() * len;
        self.queue += row.means.queue.as_secs_f64() * len;
        self.run += row.means.run.as_secs_f64() * len;
        self.max = self.max.max(row.longest.as_secs_f64());
        let most = row.total[1].as_secs_f64();
        if most > self.slowest_p95 {
            (self.slowest_at, self.slowest_p95) = (at_s, most);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_span_is_one_of_three() {
        let check = |query, expect| assert_eq!(HistorySpan::of_query(query), expect, "{query}");
        check("", Some(HistorySpan::Quarter));
        check("span=1h", Some(HistorySpan::Hour));
        check("a=b&span=24h", Some(HistorySpan::Day));
        check("span=2h", None);
        check("span=", None);
    }
}
