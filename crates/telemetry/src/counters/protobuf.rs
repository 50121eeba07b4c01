//! Metrics as messages of Prometheus' protobuf format, the only one that has native histograms: `MetricFamily` of
//! `io.prometheus.client`, one after the other, each behind its length.
//!
//! Takes the families and samples that `exposition` is given. Written by hand: six kinds of messages are fewer lines than
//! their types and conversions for an encoder of a crate would be, labels are written from where they are, and no process
//! gets a dependency for it. Fields are numbered as in `metrics.proto` of github.com/prometheus/client_model.

use super::Exemplar;
use super::exposition::{Bucket, HistogramSample, MetricKind, MetricValue};
use super::native::{NativeBuckets, SCHEMA, ZERO_THRESHOLD};

/// Wire types.
const VARINT: u32 = 0;
const FIXED64: u32 = 1;
const BYTES: u32 = 2;

/// Writes families.
#[derive(Default)]
pub(super) struct ProtobufWriter {
    text: Vec<u8>,
    /// The family whose samples are written, without its length; empty before the first one.
    family: Vec<u8>,
    kind: Option<MetricKind>,
    /// Kept for their memory: the message of a sample, those within it, and the buckets of a native histogram.
    metric: Vec<u8>,
    value: Vec<u8>,
    part: Vec<u8>,
    leaf: Vec<u8>,
    native: NativeBuckets,
}

impl ProtobufWriter {
    /// Begins a family. Its name has what names of samples end with.
    pub(super) fn family(&mut self, name: [&str; 2], kind: MetricKind, help: &str) {
        self.end_family();
        self.leaf.clear();
        name.iter()
            .for_each(|part| self.leaf.extend_from_slice(part.as_bytes()));
        push_bytes(&mut self.family, 1, &self.leaf);
        push_bytes(&mut self.family, 2, help.as_bytes());
        let number = match kind {
            MetricKind::Counter => 0,
            MetricKind::Gauge | MetricKind::Info => 1,
            MetricKind::Histogram => 4,
        };
        push_uint(&mut self.family, 3, number);
        self.kind = Some(kind);
    }

    /// A sample of a counter or a gauge.
    pub(super) fn sample(&mut self, labels: &[(&str, &str)], value: MetricValue) {
        let field = match self.kind {
            Some(MetricKind::Counter) => 3,
            _ => 2,
        };
        self.value.clear();
        push_double(
            &mut self.value,
            1,
            match value {
                MetricValue::Whole(count) => count as f64,
                MetricValue::Fraction(value) => value,
            },
        );
        self.end_metric(labels, field);
    }

    /// A sample of a histogram, with classic and native buckets.
    pub(super) fn histogram<'b>(
        &mut self,
        labels: &[(&str, &str)],
        buckets: impl Iterator<Item = Bucket<'b>>,
        sample: &HistogramSample<'b>,
    ) {
        // Both kinds of buckets share the count, which a scraper compares with the native ones.
        let len = sample.seen.len();
        self.value.clear();
        push_uint(&mut self.value, 1, len);
        push_double(&mut self.value, 2, sample.seen.sum().as_secs_f64());
        let infinite = Bucket {
            bound: f64::INFINITY,
            text: "",
            count: len,
            exemplar: sample.above,
        };
        for bucket in buckets.chain([infinite]) {
            self.part.clear();
            push_uint(&mut self.part, 1, bucket.count.min(len));
            push_double(&mut self.part, 2, bucket.bound);
            if let Some(exemplar) = bucket.exemplar {
                self.push_exemplar(exemplar);
            }
            push_bytes(&mut self.value, 3, &self.part);
        }
        self.native.fill(sample.seen);
        push_native(&mut self.value, &mut self.part, &self.native);
        self.end_metric(labels, 7);
    }

    /// Adds it to the bucket in `part`.
    fn push_exemplar(&mut self, exemplar: &Exemplar) {
        let mut message = Vec::with_capacity(128);
        for (name, id) in [
            ("trace_id", exemplar.trace_id()),
            ("span_id", exemplar.span_id()),
        ] {
            push_pair(&mut message, &mut self.leaf, 1, name, &id);
        }
        push_double(&mut message, 2, exemplar.value().as_secs_f64());
        self.leaf.clear();
        push_uint(&mut self.leaf, 1, exemplar.unix_ms() / 1_000);
        push_uint(&mut self.leaf, 2, exemplar.unix_ms() % 1_000 * 1_000_000);
        push_bytes(&mut message, 3, &self.leaf);
        push_bytes(&mut self.part, 3, &message);
    }

    /// Adds the sample to the family: its labels, and `value` as this field.
    fn end_metric(&mut self, labels: &[(&str, &str)], field: u32) {
        self.metric.clear();
        for (name, value) in labels {
            push_pair(&mut self.metric, &mut self.leaf, 1, name, value);
        }
        push_bytes(&mut self.metric, field, &self.value);
        push_bytes(&mut self.family, 4, &self.metric);
    }

    fn end_family(&mut self) {
        if self.kind.take().is_some() {
            push_varint(&mut self.text, self.family.len() as u64);
            self.text.append(&mut self.family);
        }
    }

    /// All families.
    pub(super) fn finish(mut self) -> Vec<u8> {
        self.end_family();
        self.text
    }
}

fn push_native(value: &mut Vec<u8>, part: &mut Vec<u8>, native: &NativeBuckets) {
    push_uint(value, 5, zigzag(SCHEMA));
    push_double(value, 6, ZERO_THRESHOLD);
    push_uint(value, 7, native.zero);
    for (skipped, len) in &native.spans {
        part.clear();
        push_uint(part, 1, zigzag(*skipped));
        push_uint(part, 2, *len);
        push_bytes(value, 12, part);
    }
    part.clear();
    for delta in &native.deltas {
        push_varint(part, zigzag(*delta));
    }
    push_bytes(value, 13, part);
}

/// A message with a name and a value.
fn push_pair(text: &mut Vec<u8>, leaf: &mut Vec<u8>, field: u32, name: &str, value: &str) {
    leaf.clear();
    push_bytes(leaf, 1, name.as_bytes());
    push_bytes(leaf, 2, value.as_bytes());
    push_bytes(text, field, leaf);
}

fn push_tag(text: &mut Vec<u8>, field: u32, wire: u32) {
    push_varint(text, (field << 3 | wire).into());
}

fn push_uint(text: &mut Vec<u8>, field: u32, number: u64) {
    push_tag(text, field, VARINT);
    push_varint(text, number);
}

fn push_double(text: &mut Vec<u8>, field: u32, number: f64) {
    push_tag(text, field, FIXED64);
    text.extend_from_slice(&number.to_le_bytes());
}

fn push_bytes(text: &mut Vec<u8>, field: u32, bytes: &[u8]) {
    push_tag(text, field, BYTES);
    push_varint(text, bytes.len() as u64);
    text.extend_from_slice(bytes);
}

fn push_varint(text: &mut Vec<u8>, mut number: u64) {
    while number >= 0x80 {
        text.push(number as u8 | 0x80);
        number >>= 7;
    }
    text.push(number as u8);
}

/// Numbers near zero are short, whatever their sign.
fn zigzag(number: i64) -> u64 {
    ((number << 1) ^ (number >> 63)).cast_unsigned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_as_the_encoding_says() {
        let check = |number, expect: &[u8]| {
            let mut text = Vec::new();
            push_varint(&mut text, number);
            assert_eq!(text, expect);
        };
        check(0, &[0]);
        check(127, &[127]);
        check(150, &[0x96, 1]);
        check(u64::MAX, &[255, 255, 255, 255, 255, 255, 255, 255, 255, 1]);
        let pairs = [(0, 0), (-1, 1), (1, 2), (-2, 3), (i64::MAX, u64::MAX - 1)];
        for (number, expect) in pairs.into_iter().chain([(i64::MIN, u64::MAX)]) {
            assert_eq!(zigzag(number), expect);
        }
    }

    #[test]
    fn a_family_stands_behind_its_length() {
        let mut writer = ProtobufWriter::default();
        writer.family(["a", "_total"], MetricKind::Counter, "H");
        writer.sample(&[("b", "c")], MetricValue::Whole(1));
        writer.family(["d", ""], MetricKind::Gauge, "");
        let one = 1.0_f64.to_le_bytes();
        let sample = [
            &[0x0a, 6, 0x0a, 1, b'b', 0x12, 1, b'c', 0x1a, 9, 9][..],
            &one,
        ]
        .concat();
        let family = [&b"\x0a\x07a_total\x12\x01H\x18\x00\x22\x13"[..], &sample].concat();
        let text = [
            &[family.len() as u8][..],
            &family,
            b"\x07\x0a\x01d\x12\x00\x18\x01",
        ]
        .concat();
        assert_eq!(writer.finish(), text);
    }
}
