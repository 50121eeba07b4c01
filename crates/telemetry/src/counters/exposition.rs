//! Metrics for those who scrape them: as text, OpenMetrics 1.0 or the older format of Prometheus, or as the messages of
//! `protobuf`.
//!
//! Takes numbers with their names, gives lines. All samples of a family stand together behind its HELP and TYPE, as all
//! formats demand. Names are those of OpenTelemetry where it has some, and begin with `milepost_` elsewhere.

use std::io::Write;

use serde::{Deserialize, Serialize};

use super::Exemplar;
use super::protobuf::ProtobufWriter;
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
    /// `application/vnd.google.protobuf`: messages `MetricFamily`, with native histograms.
    Protobuf,
}

/// Writes metrics, family by family.
pub struct MetricWriter {
    text: Vec<u8>,
    form: Exposition,
    /// That of the samples that follow.
    family: String,
    kind: MetricKind,
    /// The labels of a distribution, which are the same for all its lines; kept for its memory.
    start: Vec<u8>,
    /// Instead of the text, for clients that accept it.
    protobuf: ProtobufWriter,
    /// Distributions that were written.
    distributions: usize,
    /// Called after some of them.
    pause: fn(),
}

/// A classic bucket of a histogram.
pub(super) struct Bucket<'s> {
    /// Upper bound in seconds, as a number and as text.
    pub(super) bound: f64,
    pub(super) text: &'static str,
    /// Durations up to it.
    pub(super) count: u64,
    pub(super) exemplar: Option<&'s Exemplar>,
}

/// A histogram beside its classic buckets.
pub(super) struct HistogramSample<'s> {
    pub(super) seen: &'s HistogramSnapshot,
    /// Durations, as the classic buckets have counted them.
    pub(super) len: u64,
    /// The exemplar of durations above all bounds.
    pub(super) above: Option<&'s Exemplar>,
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

/// Distributions between two pauses: some 40 us.
const DISTRIBUTIONS_AT_ONCE: usize = 16;

/// Upper bounds of buckets: in microseconds, and as text in seconds.
pub(super) type Bounds = [(u64, &'static str)];

impl Exposition {
    /// That of a client that accepts these media types: of those with the greatest weight, the one named first.
    pub fn accepted_by(accept: &str) -> Exposition {
        let mut best = (0, Exposition::Prometheus);
        for range in accept.split(',') {
            let mut parts = range.split(';').map(str::trim);
            let form = match parts.next().unwrap_or_default() {
                "application/openmetrics-text" => Exposition::OpenMetrics,
                "text/plain" => Exposition::Prometheus,
                "application/vnd.google.protobuf" => Exposition::Protobuf,
                _ => continue,
            };
            let mut parameters = parts.filter_map(|part| part.split_once('='));
            // Of other messages, and of messages as text, there are none.
            let is_ours = |(name, value): (&str, &str)| match name {
                "proto" => value == "io.prometheus.client.MetricFamily",
                "encoding" => value == "delimited",
                _ => true,
            };
            if form == Exposition::Protobuf && !parameters.clone().all(is_ours) {
                continue;
            }
            let weight = parameters.find(|(name, _)| *name == "q");
            let weight = weight.map_or(Ok(1.0), |(_, weight)| weight.parse::<f64>());
            let thousandths = (weight.unwrap_or(0.0).clamp(0.0, 1.0) * 1e3) as u32;
            if thousandths > best.0 {
                best = (thousandths, form);
            }
        }
        best.1
    }

    /// What Content-Type says.
    pub fn content_type(self) -> &'static str {
        match self {
            Exposition::OpenMetrics => "application/openmetrics-text; version=1.0.0; charset=utf-8",
            Exposition::Prometheus => "text/plain; version=0.0.4; charset=utf-8",
            Exposition::Protobuf => {
                "application/vnd.google.protobuf; proto=io.prometheus.client.MetricFamily; encoding=delimited"
            }
        }
    }
}

impl MetricKind {
    fn name(self, form: Exposition) -> &'static str {
        match (self, form) {
            (MetricKind::Counter, _) => "counter",
            (MetricKind::Histogram, _) => "histogram",
            (MetricKind::Info, Exposition::OpenMetrics) => "info",
            (MetricKind::Gauge | MetricKind::Info, _) => "gauge",
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
            protobuf: ProtobufWriter::default(),
            distributions: 0,
            pause: || (),
        }
    }

    /// The same, which calls `pause` every 40 us: all of it takes milliseconds, in which others may want the processor.
    pub fn pausing(self, pause: fn()) -> MetricWriter {
        MetricWriter { pause, ..self }
    }

    /// Begins a family, whose samples follow. The name of a counter has no `_total`.
    pub fn family(&mut self, name: &str, kind: MetricKind, help: &str) {
        name.clone_into(&mut self.family);
        self.kind = kind;
        let help = help_text(help);
        // OpenMetrics alone does not know a family by the name of its samples.
        let suffix = match self.form {
            Exposition::OpenMetrics => "",
            Exposition::Prometheus => kind.suffix(),
            Exposition::Protobuf => {
                return self.protobuf.family([name, kind.suffix()], kind, &help);
            }
        };
        let help = escaped(&help);
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
        match self.form {
            Exposition::Protobuf => self.protobuf.sample(labels, value.into()),
            _ => self.one(self.kind.suffix(), labels, value.into()),
        }
    }

    /// A distribution of the family, with classic buckets up to these bounds.
    pub(super) fn distribution(
        &mut self,
        labels: &[Label<'_>],
        seen: &HistogramSnapshot,
        bounds: &Bounds,
    ) {
        let counts = seen.counts_up_to(bounds.iter().map(|(us, _)| Nanos::from_us(*us)));
        let buckets = bounds.iter().zip(counts).map(|((us, text), count)| Bucket {
            bound: *us as f64 / 1e6,
            text,
            count,
            exemplar: None,
        });
        let sample = HistogramSample {
            seen,
            len: seen.len(),
            above: None,
        };
        self.histogram(labels, buckets, &sample);
    }

    /// A distribution of the family, which has labels: its buckets but the infinite one, and what it is beside them.
    pub(super) fn histogram<'b>(
        &mut self,
        labels: &[Label<'_>],
        buckets: impl Iterator<Item = Bucket<'b>>,
        sample: &HistogramSample<'b>,
    ) {
        self.distributions += 1;
        if self.distributions.is_multiple_of(DISTRIBUTIONS_AT_ONCE) {
            (self.pause)();
        }
        if self.form == Exposition::Protobuf {
            return self.protobuf.histogram(labels, buckets, sample);
        }
        // There are many of these lines, and their labels are the same: they are escaped once.
        let mut start = std::mem::take(&mut self.start);
        start.clear();
        for (name, value) in labels {
            push_pair(&mut start, name, value);
            start.push(b',');
        }
        let infinite = Bucket {
            bound: f64::INFINITY,
            text: "+Inf",
            count: sample.len,
            exemplar: sample.above,
        };
        for bucket in buckets.chain([infinite]) {
            self.text.extend_from_slice(self.family.as_bytes());
            self.text.extend_from_slice(b"_bucket{");
            self.text.extend_from_slice(&start);
            self.text.extend_from_slice(b"le=\"");
            self.text.extend_from_slice(bucket.text.as_bytes());
            self.text.extend_from_slice(b"\"} ");
            push_u64(&mut self.text, bucket.count);
            let exemplar = bucket.exemplar;
            // The older format has no place for them.
            if let Some(exemplar) = exemplar.filter(|_| self.form == Exposition::OpenMetrics) {
                self.push_exemplar(exemplar);
            }
            self.text.push(b'\n');
        }
        // Behind the last label there is nothing more.
        start.pop();
        for (suffix, value) in [
            (
                "_sum{",
                MetricValue::Fraction(sample.seen.sum().as_secs_f64()),
            ),
            ("_count{", MetricValue::Whole(sample.len)),
        ] {
            self.text.extend_from_slice(self.family.as_bytes());
            self.text.extend_from_slice(suffix.as_bytes());
            self.text.extend_from_slice(&start);
            self.text.push(b'}');
            self.end(value);
        }
        self.start = start;
    }

    fn push_exemplar(&mut self, exemplar: &Exemplar) {
        let (trace, span) = (exemplar.trace_id(), exemplar.span_id());
        let (secs, ms) = (exemplar.unix_ms() / 1_000, exemplar.unix_ms() % 1_000);
        let value = exemplar.value().as_secs_f64();
        write!(
            self.text,
            " # {{trace_id=\"{trace}\",span_id=\"{span}\"}} {value} {secs}.{ms:03}"
        )
        .expect("a vector takes all bytes");
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

    /// The whole: text as UTF-8, or messages.
    pub fn finish(mut self) -> Vec<u8> {
        match self.form {
            Exposition::OpenMetrics => self.text.extend_from_slice(b"# EOF\n"),
            Exposition::Prometheus => {}
            Exposition::Protobuf => return self.protobuf.finish(),
        }
        self.text
    }

    /// The numbers of one table, each of several things that labels tell apart.
    pub(super) fn table<const LABELS: usize, const LEN: usize>(
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
    pub(super) fn by_name<const N: usize>(
        &mut self,
        label: &str,
        names: [&str; N],
        numbers: [u64; N],
    ) {
        for (name, number) in names.into_iter().zip(numbers) {
            self.sample(&[(label, name)], number);
        }
    }
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
    // As nearly all values are.
    if !value
        .bytes()
        .any(|byte| matches!(byte, b'\\' | b'"' | b'\n'))
    {
        text.extend_from_slice(value.as_bytes());
        text.push(b'"');
        return;
    }
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

/// A doc comment as the help of a metric.
fn help_text(doc: &str) -> String {
    let doc = doc.trim().strip_prefix("Gauge: ").unwrap_or(doc.trim());
    let mut characters = doc.trim_end_matches('.').chars();
    let first = characters.next().map(|first| first.to_ascii_uppercase());
    first.into_iter().chain(characters).collect()
}

/// As it stands in a comment.
fn escaped(text: &str) -> String {
    text.replace('\\', "\\\\")
        .replace('\n', "\\n")
        .replace('"', "\\\"")
}

#[cfg(test)]
mod tests;
