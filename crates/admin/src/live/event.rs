//! What a page gets each second, and what it gets first: server-sent events with JSON. Sizes are bounded, whatever the
//! server has.

use bytes::Bytes;
use ipc::{LiveProcess, LiveRunning, LiveSample};
use serde::Serialize;
use telemetry::Nanos;
use telemetry::counters::{ConnectionCounts, EventLoopFigures};
use telemetry::history::HEAT_BOUNDS;

use super::health::HealthLines;
use super::sentences::sentences;
use super::spread::Spread;
use super::window::{Activity, HeatColumn, LiveWindow, Refusals, RouteActivity, TimeMark};

/// Routes in an event: those that took the most time.
const ROUTES_LEN_MAX: usize = 50;
/// Columns of the heat map in an event: the new one, and those of events that a reader may have missed.
const COLUMNS_LEN_MAX: usize = 8;
/// Pools and processes in an event.
const LINES_LEN_MAX: usize = 64;

/// What a page shows.
#[derive(Serialize)]
struct LiveEvent<'a> {
    /// In seconds since 1970.
    at: u64,
    version: &'a str,
    python: Option<&'a str>,
    started_unix_s: u64,
    doing: &'a str,
    generation: u64,
    crashes: u64,
    /// Seconds that the figures below are of, at most a minute.
    span_s: f64,
    requests: u64,
    failed: u64,
    refused: u64,
    sentences: Vec<String>,
    phases: Vec<PhaseLine>,
    pools: Vec<PoolLine<'a>>,
    event_loop: Option<&'a EventLoopFigures>,
    open: u64,
    connections: &'a ConnectionCounts,
    accept_queue: Option<u64>,
    processes: &'a [LiveProcess],
    processes_len: usize,
    routes: Vec<RouteLine<'a>>,
    /// Routes that have had a request in the last minute.
    routes_len: usize,
    running: &'a [LiveRunning],
    running_more: u64,
    /// The latest seconds of the heat map, the oldest first.
    columns: Vec<&'a HeatColumn>,
    #[serde(flatten)]
    health: HealthLines<'a>,
    marks: Vec<&'a TimeMark>,
}

/// How long one phase takes; seconds.
#[derive(Serialize)]
struct PhaseLine {
    name: &'static str,
    mean: f64,
    p50: f64,
    p99: f64,
    /// Since the start of the server.
    start_p50: f64,
    start_p99: f64,
}

#[derive(Serialize)]
struct PoolLine<'a> {
    name: &'a str,
    pressure: u64,
    threads: u64,
    threads_max: u64,
    idle: u64,
    running: u64,
    waiting: u64,
    waiting_max: u64,
    /// How long the request that came first to the queue has waited, and the wait that the pool aims at; seconds.
    oldest_wait: f64,
    queue_target: f64,
    gil_share_permille: Option<u64>,
    /// In the last minute.
    #[serde(flatten)]
    refusals: Refusals,
}

#[derive(Serialize)]
struct RouteLine<'a> {
    route: &'a str,
    requests: u64,
    failed: u64,
    sum: f64,
    mean: f64,
    p50: f64,
    p99: f64,
}

/// What a page gets when it begins: the time line until now.
#[derive(Serialize)]
struct PastEvent<'a> {
    /// Upper ends of the rows of the heat map in seconds; one row more is above them.
    bounds: Vec<f64>,
    columns: Vec<&'a HeatColumn>,
}

/// The `status` event.
pub(super) fn status(sample: &LiveSample, window: &LiveWindow, at_s: u64) -> Bytes {
    let minute = window.minute();
    let refused = minute.pools.values().map(|pool| pool.all());
    let event = LiveEvent {
        at: at_s,
        version: &sample.version,
        python: sample.python.as_deref(),
        started_unix_s: sample.started_unix_s,
        doing: &sample.doing,
        generation: sample.generation,
        crashes: sample.crashes,
        span_s: minute.span.as_secs_f64(),
        requests: minute.phases.total.len,
        failed: minute.routes.values().map(|route| route.failed).sum(),
        refused: refused.fold(0, u64::saturating_add),
        sentences: sentences(sample, minute, window.health().sentences()),
        phases: phase_lines(sample, minute),
        pools: pool_lines(sample, minute),
        event_loop: Some(&sample.event_loop).filter(|figures| figures.is_there()),
        open: sample.open,
        connections: &sample.connections,
        accept_queue: sample.accept_queue,
        processes: &sample.processes[..sample.processes.len().min(LINES_LEN_MAX)],
        processes_len: sample.processes.len(),
        routes: route_lines(minute),
        routes_len: minute.routes.len(),
        running: &sample.running,
        running_more: sample.running_more,
        columns: latest_columns(window),
        health: window.health().lines(),
        marks: window.marks().iter().collect(),
    };
    sent_event("status", &event)
}

fn latest_columns(window: &LiveWindow) -> Vec<&HeatColumn> {
    let columns = window.columns();
    let from = columns.len().saturating_sub(COLUMNS_LEN_MAX);
    columns.range(from..).collect()
}

/// The `past` event.
pub(super) fn past(window: &LiveWindow) -> Bytes {
    let event = PastEvent {
        bounds: HEAT_BOUNDS
            .iter()
            .map(|bound| bound.as_secs_f64())
            .collect(),
        columns: window.columns().iter().collect(),
    };
    sent_event("past", &event)
}

/// The event of a second in which the supervisor has not answered.
pub(super) fn silent() -> Bytes {
    sent_event("silent", &())
}

/// JSON has no line break within, so that it is one line of data.
fn sent_event(name: &str, data: &impl Serialize) -> Bytes {
    let data = serde_json::to_string(data).expect("names are texts, and numbers are finite");
    format!("event: {name}\ndata: {data}\n\n").into()
}

fn phase_lines(sample: &LiveSample, minute: &Activity) -> Vec<PhaseLine> {
    const NAMES: [&str; 7] = ["receive", "queue", "run", "send", "total", "gil", "cpu"];
    let phases = minute.phases.each().into_iter().zip(sample.phases.each());
    NAMES
        .into_iter()
        .zip(phases)
        .map(|(name, (minute, start))| {
            let [p50, p99] = minute.quantiles_secs([0.5, 0.99]);
            let [start_p50, start_p99] =
                [0.5, 0.99].map(|share| start.0.quantile(share).as_secs_f64());
            PhaseLine {
                name,
                mean: minute.mean_secs(),
                p50,
                p99,
                start_p50,
                start_p99,
            }
        })
        .collect()
}

fn pool_lines<'a>(sample: &'a LiveSample, minute: &Activity) -> Vec<PoolLine<'a>> {
    // Pools of configurations that are gone have no thread.
    let pools = sample
        .pools
        .iter()
        .filter(|pool| pool.figures.threads_max > 0);
    pools
        .take(LINES_LEN_MAX)
        .map(|pool| {
            let figures = &pool.figures;
            PoolLine {
                name: &pool.name,
                pressure: figures.pressure,
                threads: figures.threads,
                threads_max: figures.threads_max,
                idle: figures.idle,
                running: figures.running,
                waiting: figures.waiting,
                waiting_max: figures.waiting_max,
                oldest_wait: Nanos(figures.oldest_wait_ns).as_secs_f64(),
                queue_target: Nanos(figures.queue_target_ns).as_secs_f64(),
                gil_share_permille: figures.gil_share_permille(),
                refusals: minute.pools.get(&pool.name).copied().unwrap_or_default(),
            }
        })
        .collect()
}

fn route_lines(minute: &Activity) -> Vec<RouteLine<'_>> {
    let mut routes: Vec<(&str, &RouteActivity)> = minute
        .routes
        .iter()
        .map(|(name, route)| (&**name, route))
        .collect();
    let by_time = |route: &(&str, &RouteActivity)| std::cmp::Reverse(route.1.total.sum_ns);
    routes.sort_unstable_by(|one, other| {
        let times = by_time(one).cmp(&by_time(other));
        times.then_with(|| one.0.cmp(other.0))
    });
    routes.truncate(ROUTES_LEN_MAX);
    routes
        .into_iter()
        .map(|(route, activity)| {
            let total: &Spread = &activity.total;
            let [p50, p99] = total.quantiles_secs([0.5, 0.99]);
            RouteLine {
                route,
                requests: total.len,
                failed: activity.failed,
                sum: total.mean_secs() * total.len as f64,
                mean: total.mean_secs(),
                p50,
                p99,
            }
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use ipc::LiveRoute;
    use std::time::Duration;

    fn sample(requests: u64) -> LiveSample {
        let routes = (0..10_000).map(|number| LiveRoute {
            route: format!("/route/{number}\n\ndata: <script>"),
            failed: 0,
            sum_ns: number * requests,
            buckets: vec![(40, requests)],
        });
        LiveSample {
            routes: routes.collect(),
            processes: vec![LiveProcess::default(); 500],
            running: vec![
                LiveRunning {
                    path: "/<b>\n\n".to_owned(),
                    ran_ms: 7,
                    ..LiveRunning::default()
                };
                50
            ],
            running_more: 3,
            ..LiveSample::default()
        }
    }

    #[test]
    fn is_small_with_ten_thousand_routes_and_begins_with_the_slowest() {
        let mut window = LiveWindow::default();
        window.observe(&sample(1), 1, Duration::from_secs(1));
        let now = sample(3);
        window.observe(&now, 2, Duration::from_secs(1));
        let event = status(&now, &window, 2);
        assert!(event.len() < 32 << 10, "{} bytes", event.len());
        let text = std::str::from_utf8(&event).unwrap();
        let lines: Vec<&str> = text.split('\n').collect();
        // One event whatever a name has in it.
        assert_eq!((lines.len(), lines[0]), (4, "event: status"));
        let data: serde_json::Value =
            serde_json::from_str(lines[1].strip_prefix("data: ").unwrap()).unwrap();
        assert_eq!(data["routes_len"], 10_000);
        assert_eq!(data["processes_len"], 500);
        assert_eq!(data["running"].as_array().unwrap().len(), 50);
        assert_eq!(data["running"][0]["path"], "/<b>\n\n");
        assert_eq!(
            (&data["running"][0]["ran_ms"], &data["running_more"]),
            (&7.into(), &3.into())
        );
        let routes = data["routes"].as_array().unwrap();
        assert_eq!(routes.len(), ROUTES_LEN_MAX);
        assert_eq!(routes[0]["route"], "/route/9999\n\ndata: <script>");
        assert_eq!(routes[0]["requests"], 2);
    }

    #[test]
    fn the_past_has_a_column_for_each_second() {
        let mut window = LiveWindow::default();
        for at in 0..4 {
            window.observe(&sample(at), at, Duration::from_secs(1));
        }
        let event = past(&window);
        let text = std::str::from_utf8(&event).unwrap();
        let data = text.strip_prefix("event: past\ndata: ").unwrap().trim_end();
        let data: serde_json::Value = serde_json::from_str(data).unwrap();
        assert_eq!(data["columns"].as_array().unwrap().len(), 3);
        assert_eq!(data["bounds"].as_array().unwrap().len(), HEAT_BOUNDS.len());
        assert_eq!(
            data["columns"][0][1].as_array().unwrap().len(),
            HEAT_BOUNDS.len() + 1
        );
    }
}
