//! Metrics as text for those who scrape them: OpenMetrics 1.0, or the older format of Prometheus.
//!
//! Takes numbers with their names, gives lines. All samples of a family stand together behind its HELP and TYPE, as both
//! formats demand. Names are those of OpenTelemetry where it has some, and begin with `milepost_` elsewhere.

use std::io::Write;

use serde::{Deserialize, Serialize};

use super::requests::DURATION_BOUNDS;
use super::{
    ConnectionCounts, DriverFigures, EventLoopFigures, LogFigures, PoolFigures, RequestSeries,
    RouteFigures, SpoolFigures, StatsSnapshot, TimeoutCounts, UpstreamFigures, UpstreamSnapshot,
};
use crate::text::digits::push_u64;
use crate::{Nanos, Snapshot as HistogramSnapshot};

/// A number of a table, as a metric.
#[derive(Clone, Copy, Debug)]
pub(super) struct TableMetric {
    /// Without the prefix of its table. Empty: it is no metric of its own.
    pub(super) name: &'static str,
    pub(super) kind: MetricKind,
    pub(super) help: &'static str,
}

/// What may become of a metric.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum MetricKind {
    /// It only grows, over reloads and ends of processes too.
    Counter,
    /// It is what it is now.
    Gauge,
    /// A distribution of durations.
    Histogram,
    /// Facts, as labels of a sample that is 1.
    Info,
}

/// The format of the text.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Serialize, Deserialize)]
pub enum Exposition {
    /// `application/openmetrics-text; version=1.0.0`.
    OpenMetrics,
    /// `text/plain; version=0.0.4`.
    Prometheus,
}

/// Writes metrics, family by family.
pub struct MetricWriter {
    text: Vec<u8>,
    form: Exposition,
    /// That of the samples that follow.
    family: String,
    kind: MetricKind,
    /// What the buckets of a distribution begin with, which is the same for all; kept for its memory.
    start: Vec<u8>,
}

/// Name and value of a label.
type Label<'a> = (&'a str, &'a str);

/// The value of a sample.
#[derive(Clone, Copy, Debug)]
pub enum MetricValue {
    /// A count.
    Whole(u64),
    /// Something in a unit, such as seconds.
    Fraction(f64),
}

impl From<u64> for MetricValue {
    fn from(count: u64) -> MetricValue {
        MetricValue::Whole(count)
    }
}

impl From<f64> for MetricValue {
    fn from(value: f64) -> MetricValue {
        MetricValue::Fraction(value)
    }
}

/// Upper bounds of buckets: in microseconds, and as text in seconds.
type Bounds = [(u64, &'static str)];

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

impl Exposition {
    /// That of a client that accepts these media types.
    pub fn accepted_by(accept: &str) -> Exposition {
        match accept.contains("application/openmetrics-text") {
            true => Exposition::OpenMetrics,
            false => Exposition::Prometheus,
        }
    }

    /// What Content-Type says.
    pub fn content_type(self) -> &'static str {
        match self {
            Exposition::OpenMetrics => "application/openmetrics-text; version=1.0.0; charset=utf-8",
            Exposition::Prometheus => "text/plain; version=0.0.4; charset=utf-8",
        }
    }
}

impl MetricKind {
    fn name(self, form: Exposition) -> &'static str {
        match (self, form) {
            (MetricKind::Counter, _) => "counter",
            (MetricKind::Histogram, _) => "histogram",
            (MetricKind::Info, Exposition::OpenMetrics) => "info",
            (MetricKind::Gauge, _) | (MetricKind::Info, Exposition::Prometheus) => "gauge",
        }
    }

    /// What the names of its samples end with.
    fn suffix(self) -> &'static str {
        match self {
            MetricKind::Counter => "_total",
            MetricKind::Info => "_info",
            MetricKind::Gauge | MetricKind::Histogram => "",
        }
    }
}

impl MetricWriter {
    /// A text without metrics.
    pub fn new(form: Exposition) -> MetricWriter {
        MetricWriter {
            text: Vec::new(),
            form,
            family: String::new(),
            kind: MetricKind::Gauge,
            start: Vec::new(),
        }
    }

    /// Begins a family, whose samples follow. The name of a counter has no `_total`.
    pub fn family(&mut self, name: &str, kind: MetricKind, help: &str) {
        name.clone_into(&mut self.family);
        self.kind = kind;
        // The older format knows a family by the name of its samples.
        let suffix = match self.form {
            Exposition::Prometheus => kind.suffix(),
            Exposition::OpenMetrics => "",
        };
        let help = help_text(help);
        self.comment(&["# HELP ", name, suffix, " ", &help]);
        self.comment(&["# TYPE ", name, suffix, " ", kind.name(self.form)]);
        let unit = ["seconds", "bytes", "ratio"].into_iter().find(|unit| {
            let start = name.strip_suffix(unit);
            start.is_some_and(|start| start.ends_with('_'))
        });
        if let (Some(unit), Exposition::OpenMetrics) = (unit, self.form) {
            self.comment(&["# UNIT ", name, " ", unit]);
        }
    }

    fn comment(&mut self, parts: &[&str]) {
        for part in parts {
            self.text.extend_from_slice(part.as_bytes());
        }
        self.text.push(b'\n');
    }

    /// A sample of the family. Names of labels are plain; their values may be anything.
    pub fn sample(&mut self, labels: &[(&str, &str)], value: impl Into<MetricValue>) {
        self.one(self.kind.suffix(), labels, value.into());
    }

    /// A distribution of the family.
    fn histogram(&mut self, labels: &[(&str, &str)], seen: &HistogramSnapshot, bounds: &Bounds) {
        let counts = seen.counts_up_to(bounds.iter().map(|(us, _)| Nanos::from_us(*us)));
        let bounds = bounds.iter().map(|(_, text)| *text);
        self.buckets(labels, bounds.zip(counts), seen.len(), seen.sum());
    }

    /// A distribution of the family: counts up to each bound, all of them, and the sum.
    fn buckets<'b>(
        &mut self,
        labels: &[(&str, &str)],
        buckets: impl Iterator<Item = (&'b str, u64)>,
        len: u64,
        sum: Nanos,
    ) {
        // There are many of these lines, and what they begin with is the same.
        let mut start = std::mem::take(&mut self.start);
        start.clear();
        start.extend_from_slice(self.family.as_bytes());
        start.extend_from_slice(b"_bucket{");
        for (name, value) in labels {
            push_pair(&mut start, name, value);
            start.push(b',');
        }
        start.extend_from_slice(b"le=\"");
        for (bound, count) in buckets.chain([("+Inf", len)]) {
            self.text.extend_from_slice(&start);
            self.text.extend_from_slice(bound.as_bytes());
            self.text.extend_from_slice(b"\"}");
            self.end(MetricValue::Whole(count));
        }
        self.start = start;
        self.one("_sum", labels, sum.as_secs_f64().into());
        self.one("_count", labels, len.into());
    }

    fn one(&mut self, suffix: &str, labels: &[(&str, &str)], value: MetricValue) {
        self.text.extend_from_slice(self.family.as_bytes());
        self.text.extend_from_slice(suffix.as_bytes());
        for (index, (name, value)) in labels.iter().enumerate() {
            self.text.push(if index == 0 { b'{' } else { b',' });
            push_pair(&mut self.text, name, value);
        }
        if !labels.is_empty() {
            self.text.push(b'}');
        }
        self.end(value);
    }

    /// Ends a line with its value.
    fn end(&mut self, value: MetricValue) {
        self.text.push(b' ');
        match value {
            MetricValue::Whole(count) => push_u64(&mut self.text, count),
            MetricValue::Fraction(value) => {
                write!(self.text, "{value}").expect("a vector takes all bytes");
            }
        }
        self.text.push(b'\n');
    }

    /// The whole text, as UTF-8.
    pub fn finish(mut self) -> Vec<u8> {
        if self.form == Exposition::OpenMetrics {
            self.text.extend_from_slice(b"# EOF\n");
        }
        self.text
    }

    /// The numbers of one table, each of several things that labels tell apart.
    fn table<const LABELS: usize, const LEN: usize>(
        &mut self,
        prefix: &str,
        metrics: &[TableMetric],
        rows: &[([Label<'_>; LABELS], [u64; LEN])],
    ) {
        for (index, metric) in metrics.iter().enumerate() {
            if metric.name.is_empty() {
                continue;
            }
            let (name, scale) = in_base_units(metric.name);
            self.family(
                &format!("milepost_{prefix}{name}"),
                metric.kind,
                // It is in the unit of its name.
                &metric
                    .help
                    .replace(", in nanoseconds", "")
                    .replace(", in thousandths", ""),
            );
            for (labels, numbers) in rows {
                match scale {
                    1.0 => self.sample(labels, numbers[index]),
                    _ => self.sample(labels, numbers[index] as f64 / scale),
                }
            }
        }
    }

    /// The samples of a family with one label, which has these values.
    fn by_name<const N: usize>(&mut self, label: &str, names: [&str; N], numbers: [u64; N]) {
        for (name, number) in names.into_iter().zip(numbers) {
            self.sample(&[(label, name)], number);
        }
    }
}

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
                writer.histogram(&[("route", name), ("phase", phase)], seen, PHASE_BOUNDS);
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
    let buckets = DURATION_BOUNDS.iter().zip(series.counts);
    let buckets = buckets.map(|((_, bound), count)| {
        passed = u64::saturating_add(passed, count);
        (*bound, passed)
    });
    let (len, sum) = (series.len(), series.durations.0.sum());
    let Some(labels) = series.labels else {
        // The name that OpenTelemetry gives it.
        let rest = ("otel_metric_overflow", "true");
        return writer.buckets(&[route, rest], buckets, len, sum);
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
    writer.buckets(labelled, buckets, len, sum);
}

fn upstream_labels(server: &UpstreamSnapshot) -> [(&'static str, &str); 2] {
    [("upstream", &server.upstream), ("server", &server.server)]
}

/// The name of a number in the unit that metrics have, and how many of its own units one of these is.
fn in_base_units(name: &str) -> (String, f64) {
    let units = [("_ns", "_seconds", 1e9), ("_permille", "_ratio", 1e3)];
    for (own, base, scale) in units {
        if let Some(start) = name.strip_suffix(own) {
            return (format!("{start}{base}"), scale);
        }
    }
    (name.to_owned(), 1.0)
}

/// A label, with what both formats escape in its value.
fn push_pair(text: &mut Vec<u8>, name: &str, value: &str) {
    text.extend_from_slice(name.as_bytes());
    text.extend_from_slice(b"=\"");
    for byte in value.bytes() {
        match byte {
            b'\\' => text.extend_from_slice(b"\\\\"),
            b'"' => text.extend_from_slice(b"\\\""),
            b'\n' => text.extend_from_slice(b"\\n"),
            other => text.push(other),
        }
    }
    text.push(b'"');
}

/// A doc comment as the text of a HELP line.
fn help_text(doc: &str) -> String {
    let doc = doc.trim().strip_prefix("Gauge: ").unwrap_or(doc.trim());
    let mut characters = doc.trim_end_matches('.').chars();
    let first = characters.next().map(|first| first.to_ascii_uppercase());
    let text: String = first.into_iter().chain(characters).collect();
    text.replace('\\', "\\\\")
        .replace('\n', "\\n")
        .replace('"', "\\\"")
}

#[cfg(test)]
mod tests;
