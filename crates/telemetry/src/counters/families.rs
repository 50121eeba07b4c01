//! What is counted, family by family, as `exposition` writes it.

use super::exposition::{Bounds, Bucket, HistogramSample, MetricKind, MetricWriter};
use super::requests::DURATION_BOUNDS;
use super::{
    ConnectionCounts, DriverFigures, EventLoopFigures, LogFigures, PoolFigures, RequestSeries,
    RouteFigures, SpoolFigures, StatsSnapshot, TimeoutCounts, UpstreamFigures, UpstreamSnapshot,
};
use crate::text::digits::push_u64;

/// Those of phases, some of which are shorter by far.
const PHASE_BOUNDS: &Bounds = &[
    (100, "0.0001"),
    (1_000, "0.001"),
    (5_000, "0.005"),
    (10_000, "0.01"),
    (25_000, "0.025"),
    (100_000, "0.1"),
    (250_000, "0.25"),
    (1_000_000, "1"),
    (2_500_000, "2.5"),
    (10_000_000, "10"),
];

impl StatsSnapshot {
    /// All of it as metrics.
    pub fn expose(&self, writer: &mut MetricWriter) {
        self.expose_routes(writer);
        self.expose_pools(writer);
        if self.event_loop.is_there() {
            let numbers = self.event_loop.values();
            writer.table("loop_", EventLoopFigures::METRICS, &[([], numbers)]);
        }
        self.expose_upstreams(writer);
        self.expose_connections(writer);
        let rows: Vec<_> = (self.logs.iter())
            .map(|log| ([("log", &*log.log)], log.figures.values()))
            .collect();
        writer.table("log_", LogFigures::METRICS, &rows);
        let numbers = self.spool.values();
        writer.table("spool_", SpoolFigures::METRICS, &[([], numbers)]);
    }

    fn expose_routes(&self, writer: &mut MetricWriter) {
        let routes = || self.routes.iter().map(|route| (&*route.route, route));
        writer.family(
            "http_server_request_duration_seconds",
            MetricKind::Histogram,
            "Whole duration of requests, from the first byte to the last one of the response",
        );
        for (name, route) in routes() {
            for series in &route.requests {
                expose_series(writer, name, series);
            }
        }
        writer.family(
            "milepost_request_phase_seconds",
            MetricKind::Histogram,
            "Duration of the phases of requests: receive, queue, run, send; gil and cpu are parts of run",
        );
        for (name, route) in routes() {
            // Many routes have had no request, or never measure a phase.
            for (phase, seen) in route
                .phases()
                .into_iter()
                .filter(|(_, seen)| !seen.is_empty())
            {
                writer.distribution(&[("route", name), ("phase", phase)], seen, PHASE_BOUNDS);
            }
        }
        writer.family(
            "milepost_requests",
            MetricKind::Counter,
            "Requests that have ended, by the class of their status; none: without a response",
        );
        for (name, route) in routes() {
            for (code, count) in route.figures.by_class() {
                writer.sample(&[("route", name), ("code", code)], count);
            }
        }
        let rows: Vec<_> = routes()
            .map(|(name, route)| ([("route", name)], route.figures.values()))
            .collect();
        writer.table("", RouteFigures::METRICS, &rows);
    }

    fn expose_pools(&self, writer: &mut MetricWriter) {
        let pools = || self.pools.iter().map(|pool| (&*pool.name, &pool.figures));
        writer.family(
            "milepost_pool_requests_refused",
            MetricKind::Counter,
            "Requests refused with 503: the queue was full, the pool was overloaded, or they had waited too long",
        );
        for (name, pool) in pools() {
            let reasons = [
                ("full", pool.refused),
                ("overload", pool.shed),
                ("timeout", pool.expired),
            ];
            for (reason, count) in reasons {
                writer.sample(&[("pool", name), ("reason", reason)], count);
            }
        }
        writer.family(
            "milepost_pool_gil_wait_ratio",
            MetricKind::Gauge,
            "Part of the threads' time at work in which they wait for the interpreter",
        );
        for (name, pool) in pools() {
            if let Some(share) = pool.gil_share_permille() {
                writer.sample(&[("pool", name)], share as f64 / 1000.0);
            }
        }
        let rows = pools().map(|(name, pool)| ([("pool", name)], pool.values()));
        let rows: Vec<_> = rows.collect();
        writer.table("pool_", PoolFigures::METRICS, &rows);
    }

    fn expose_upstreams(&self, writer: &mut MetricWriter) {
        writer.family(
            "milepost_upstream_requests",
            MetricKind::Counter,
            "Requests that were sent to a server of an upstream, by their result",
        );
        for server in &self.upstreams {
            for (result, count) in server.by_result() {
                let [upstream, address] = upstream_labels(server);
                writer.sample(&[upstream, address, ("result", result)], count);
            }
        }
        let rows: Vec<_> = (self.upstreams.iter())
            .map(|server| (upstream_labels(server), server.figures.values()))
            .collect();
        writer.table("upstream_", UpstreamFigures::METRICS, &rows);
    }

    fn expose_connections(&self, writer: &mut MetricWriter) {
        let all = self.all_drivers();
        let numbers = all.figures.values();
        writer.table("", DriverFigures::METRICS, &[([], numbers)]);
        writer.family(
            "milepost_connections_timed_out",
            MetricKind::Counter,
            "Connections that a deadline ended, by what they were at",
        );
        writer.by_name("at", TimeoutCounts::NAMES, all.timeouts.values());
        writer.family(
            "milepost_connections",
            MetricKind::Gauge,
            "Open connections by what they are doing, a few hundred milliseconds ago",
        );
        writer.by_name("state", ConnectionCounts::NAMES, all.connections.values());
        writer.family(
            "milepost_connections_open",
            MetricKind::Gauge,
            "Open connections",
        );
        writer.sample(&[], all.open);
    }
}

/// One series of a route, by OpenTelemetry's HTTP conventions.
fn expose_series(writer: &mut MetricWriter, route: &str, series: &RequestSeries) {
    let route = ("http_route", route);
    let mut passed = 0;
    let buckets = DURATION_BOUNDS.iter().zip(series.counts).enumerate();
    let buckets = buckets.map(|(index, ((us, text), count))| {
        passed = u64::saturating_add(passed, count);
        Bucket {
            bound: *us as f64 / 1e6,
            text,
            count: passed,
            exemplar: series.exemplar(index),
        }
    });
    let sample = HistogramSample {
        seen: &series.durations.0,
        len: series.len(),
        above: series.exemplar(DURATION_BOUNDS.len()),
    };
    let Some(labels) = series.labels else {
        // The name that OpenTelemetry gives it.
        let rest = ("otel_metric_overflow", "true");
        return writer.histogram(&[route, rest], buckets, &sample);
    };
    let mut digits = Vec::with_capacity(3);
    push_u64(&mut digits, labels.status.into());
    let status = String::from_utf8_lossy(&digits);
    let labelled = [
        route,
        ("http_request_method", labels.method.name()),
        ("url_scheme", if labels.is_https { "https" } else { "http" }),
        ("http_response_status_code", &*status),
    ];
    // Without a response there is no status.
    let labelled = match labels.status {
        0 => &labelled[..3],
        _ => &labelled[..],
    };
    writer.histogram(labelled, buckets, &sample);
}

fn upstream_labels(server: &UpstreamSnapshot) -> [(&'static str, &str); 2] {
    [("upstream", &server.upstream), ("server", &server.server)]
}
