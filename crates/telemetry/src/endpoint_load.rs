//! Load reports: what a server tells a balancer of its load in each response, in the form of ORCA (Open Request Cost
//! Aggregation, `endpoint-load-metrics`), which Envoy and gRPC read as well.
//!
//! Takes numbers, gives the text of the field or a JSON object; takes such a text, gives the numbers. What others measure
//! and no balancer of ours asks for is passed over. It must not count anything itself.

use serde::Deserialize;

use crate::text::digits::{push_thousandths, push_u64};
use crate::{Nanos, UpstreamPhases};

/// The load of a server.
#[derive(Clone, Copy, PartialEq, Default, Debug)]
pub struct EndpointLoad {
    /// Requests that threads run.
    pub running: u32,
    /// Requests that wait for a thread.
    pub waiting: u32,
    /// Threads, or requests that an event loop takes at once; 0: the server has none, or does not say.
    pub threads: u32,
    /// How long a request that comes now is expected to wait for a thread.
    pub queue: Nanos,
    /// Share of the processors that the server uses, 0 to 1.
    pub cpu: f64,
    /// Requests answered in a second.
    pub per_second: f64,
    /// Those of them with 5xx.
    pub errors_per_second: f64,
}

/// What a load report tells.
#[derive(Clone, Copy, PartialEq, Default, Debug)]
pub struct ToldLoad {
    /// The load of the server; `None` where nothing is said of requests or threads.
    pub load: Option<EndpointLoad>,
    /// The phases of the request that was answered.
    pub own: Option<UpstreamPhases>,
}

impl EndpointLoad {
    /// Appends the field's value: `TEXT application_utilization=0.710,…,named_metrics.threads=16`. The utilisation counts
    /// what waits, so that it may exceed 1.
    pub fn push_text(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(b"TEXT ");
        let mut separator: &[u8] = b"";
        self.each(|name, is_named, value| {
            out.extend_from_slice(separator);
            if is_named {
                out.extend_from_slice(b"named_metrics.");
            }
            out.extend_from_slice(name.as_bytes());
            out.push(b'=');
            value.push(out);
            separator = b",";
        });
    }

    /// Appends the same as a JSON object.
    pub fn push_json(&self, out: &mut Vec<u8>) {
        out.push(b'{');
        self.each(|name, is_named, value| {
            if !is_named {
                push_key(name, out);
                value.push(out);
                out.push(b',');
            }
        });
        out.extend_from_slice(b"\"named_metrics\":{");
        let mut is_first = true;
        self.each(|name, is_named, value| {
            if is_named {
                if !std::mem::take(&mut is_first) {
                    out.push(b',');
                }
                push_key(name, out);
                value.push(out);
            }
        });
        out.extend_from_slice(b"}}");
    }

    /// The metrics in their order: name, whether it is among `named_metrics`, value.
    fn each(&self, mut write: impl FnMut(&str, bool, Metric)) {
        let busy = u64::from(self.running) + u64::from(self.waiting);
        if self.threads > 0 {
            let utilisation = busy * 1_000 / u64::from(self.threads);
            write(
                "application_utilization",
                false,
                Metric::Thousandths(utilisation),
            );
        }
        write("cpu_utilization", false, Metric::of(self.cpu));
        write("rps_fractional", false, Metric::of(self.per_second));
        write("eps", false, Metric::of(self.errors_per_second));
        if self.threads > 0 {
            write("queue_ms", true, Metric::millis(self.queue));
            write("waiting", true, Metric::Whole(self.waiting));
            write("running", true, Metric::Whole(self.running));
            write("threads", true, Metric::Whole(self.threads));
        }
    }
}

/// Appends the phases of the request that is being answered to the text of a load report.
pub fn push_own_phases(own: UpstreamPhases, out: &mut Vec<u8>) {
    out.extend_from_slice(b",named_metrics.request_queue_ms=");
    Metric::millis(own.queue).push(out);
    out.extend_from_slice(b",named_metrics.request_run_ms=");
    Metric::millis(own.run).push(out);
}

fn push_key(name: &str, out: &mut Vec<u8>) {
    out.push(b'"');
    out.extend_from_slice(name.as_bytes());
    out.extend_from_slice(b"\":");
}

/// A number as it is written.
#[derive(Clone, Copy)]
enum Metric {
    Whole(u32),
    Thousandths(u64),
}

impl Metric {
    /// What is no number is written as 0.
    fn of(value: f64) -> Metric {
        Metric::Thousandths((value * 1_000.0) as u64)
    }

    fn millis(span: Nanos) -> Metric {
        Metric::Thousandths(span.0 / 1_000)
    }

    fn push(self, out: &mut Vec<u8>) {
        match self {
            Metric::Whole(number) => push_u64(out, number.into()),
            Metric::Thousandths(number) => push_thousandths(out, number),
        }
    }
}

impl ToldLoad {
    /// What the value of an `endpoint-load-metrics` field says: behind `TEXT ` or nothing, pairs with `=` or `:`; behind
    /// `JSON ` or nothing, an object. Pairs that are none are passed over; an object that is none says nothing.
    pub fn parse(value: &[u8]) -> ToldLoad {
        let value = value.trim_ascii();
        let metrics = match value {
            [b'J', b'S', b'O', b'N', b' ', json @ ..] => object(json),
            [b'T', b'E', b'X', b'T', b' ', text @ ..] => pairs(text),
            [b'B', b'I', b'N', b' ', ..] => NamedMetrics::default(),
            [b'{', ..] => object(value),
            text => pairs(text),
        };
        metrics.told()
    }
}

/// The metrics that count, as numbers that may be anything.
#[derive(Default, Deserialize)]
#[serde(default)]
struct NamedMetrics {
    running: Option<f64>,
    waiting: Option<f64>,
    threads: Option<f64>,
    queue_ms: Option<f64>,
    request_queue_ms: Option<f64>,
    request_run_ms: Option<f64>,
}

/// A report as JSON.
#[derive(Default, Deserialize)]
#[serde(default)]
struct WrittenLoad {
    named_metrics: NamedMetrics,
}

impl NamedMetrics {
    fn told(&self) -> ToldLoad {
        // Numbers that are none, or below 0, are not said; `as` keeps the rest within bounds.
        let known = |value: Option<f64>| value.filter(|value| *value >= 0.0);
        let count = |value: Option<f64>| known(value).map(|value| value as u32);
        let span = |value: Option<f64>| known(value).map(|ms| Nanos((ms * 1e6).round() as u64));
        let (running, waiting, threads) = (
            count(self.running),
            count(self.waiting),
            count(self.threads),
        );
        let is_load = running.or(waiting).or(threads).is_some();
        let own = span(self.request_queue_ms).zip(span(self.request_run_ms));
        ToldLoad {
            load: is_load.then(|| EndpointLoad {
                running: running.unwrap_or(0),
                waiting: waiting.unwrap_or(0),
                threads: threads.unwrap_or(0),
                queue: span(self.queue_ms).unwrap_or_default(),
                ..EndpointLoad::default()
            }),
            own: own.map(|(queue, run)| UpstreamPhases { queue, run }),
        }
    }
}

fn object(json: &[u8]) -> NamedMetrics {
    let written: Option<WrittenLoad> = serde_json::from_slice(json.trim_ascii()).ok();
    written.unwrap_or_default().named_metrics
}

fn pairs(text: &[u8]) -> NamedMetrics {
    let mut metrics = NamedMetrics::default();
    for pair in text.split(|&byte| byte == b',') {
        let Some(end) = pair.iter().position(|byte| matches!(byte, b'=' | b':')) else {
            continue;
        };
        let (name, value) = (pair[..end].trim_ascii(), pair[end + 1..].trim_ascii());
        let place = match name.strip_prefix(b"named_metrics.") {
            Some(b"running") => &mut metrics.running,
            Some(b"waiting") => &mut metrics.waiting,
            Some(b"threads") => &mut metrics.threads,
            Some(b"queue_ms") => &mut metrics.queue_ms,
            Some(b"request_queue_ms") => &mut metrics.request_queue_ms,
            Some(b"request_run_ms") => &mut metrics.request_run_ms,
            _ => continue,
        };
        let number = std::str::from_utf8(value)
            .ok()
            .and_then(|text| text.parse().ok());
        *place = number.or(*place);
    }
    metrics
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const LOAD: EndpointLoad = EndpointLoad {
        running: 3,
        waiting: 9,
        threads: 16,
        queue: Nanos(3_100_000),
        cpu: 0.4,
        per_second: 812.5,
        errors_per_second: 0.2,
    };

    fn text(push: impl FnOnce(&mut Vec<u8>)) -> String {
        let mut out = Vec::new();
        push(&mut out);
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn writes_text_and_json() {
        assert_eq!(
            text(|out| LOAD.push_text(out)),
            "TEXT application_utilization=0.750,cpu_utilization=0.400,rps_fractional=812.500,eps=0.200,\
             named_metrics.queue_ms=3.100,named_metrics.waiting=9,named_metrics.running=3,named_metrics.threads=16"
        );
        assert_eq!(
            text(|out| LOAD.push_json(out)),
            r#"{"application_utilization":0.750,"cpu_utilization":0.400,"rps_fractional":812.500,"eps":0.200,"named_metrics":{"queue_ms":3.100,"waiting":9,"running":3,"threads":16}}"#
        );
        // A server of files alone has no threads to speak of; what cannot be measured is no number.
        let files = EndpointLoad {
            threads: 0,
            cpu: f64::NAN,
            ..LOAD
        };
        assert_eq!(
            text(|out| files.push_text(out)),
            "TEXT cpu_utilization=0.000,rps_fractional=812.500,eps=0.200"
        );
        assert_eq!(
            text(|out| files.push_json(out)),
            r#"{"cpu_utilization":0.000,"rps_fractional":812.500,"eps":0.200,"named_metrics":{}}"#
        );
        let own = UpstreamPhases {
            queue: Nanos(10_999),
            run: Nanos(4_000_000),
        };
        assert_eq!(
            text(|out| push_own_phases(own, out)),
            ",named_metrics.request_queue_ms=0.010,named_metrics.request_run_ms=4.000"
        );
    }

    #[test]
    fn reads_every_spelling() {
        let load = Some(EndpointLoad {
            running: 3,
            threads: 16,
            queue: Nanos(3_100_000),
            ..EndpointLoad::default()
        });
        let own = Some(UpstreamPhases {
            queue: Nanos(10_000),
            run: Nanos(4_000_000),
        });
        for (value, load, own) in [
            (
                "TEXT named_metrics.running=3,named_metrics.threads=16,named_metrics.queue_ms=3.1",
                load,
                None,
            ),
            (
                "TEXT named_metrics.running:3, named_metrics.threads : 16,named_metrics.queue_ms=3.1",
                load,
                None,
            ),
            (
                "named_metrics.running=3,named_metrics.threads=16,named_metrics.queue_ms=3.1",
                load,
                None,
            ),
            (
                r#"JSON {"named_metrics":{"running":3,"threads":16.0,"queue_ms":3.1}}"#,
                load,
                None,
            ),
            (
                r#" {"cpu_utilization":1,"named_metrics":{"running":3,"threads":16,"queue_ms":3.1,"x":1}} "#,
                load,
                None,
            ),
            (
                "TEXT named_metrics.request_queue_ms=0.01,named_metrics.request_run_ms=4",
                None,
                own,
            ),
            ("TEXT named_metrics.request_queue_ms=0.01", None, None),
        ] {
            assert_eq!(
                ToldLoad::parse(value.as_bytes()),
                ToldLoad { load, own },
                "{value}"
            );
        }
    }

    #[test]
    fn makes_nothing_of_what_it_does_not_know() {
        for value in [
            "",
            "TEXT",
            "TEXT cpu_utilization=0.4,rps_fractional=3",
            "TEXT running=3",
            "TEXT named_metrics.running=-1",
            "TEXT named_metrics.running=NaN",
            "TEXT named_metrics.running=three",
            "TEXT named_metrics.running",
            "BIN CZqZmZmZmbk/",
            "JSON named_metrics.running=3",
            r#"JSON {"named_metrics":{"running":"3"}}"#,
            r#"JSON {"named_metrics":3}"#,
            r#"JSON {"named_metrics":{"running":3}"#,
            "text named_metrics=3",
        ] {
            assert_eq!(
                ToldLoad::parse(value.as_bytes()),
                ToldLoad::default(),
                "{value}"
            );
        }
        let huge = ToldLoad::parse(b"TEXT named_metrics.threads=1e99,named_metrics.queue_ms=inf");
        let expect = EndpointLoad {
            threads: u32::MAX,
            queue: Nanos(u64::MAX),
            ..EndpointLoad::default()
        };
        assert_eq!(huge.load, Some(expect));
    }

    proptest! {
        #[test]
        fn what_is_written_is_read_back(running: u32, waiting: u32, threads in 1..u32::MAX, queue_us in 0..1u64 << 40) {
            let queue = Nanos(queue_us * 1_000);
            let load = EndpointLoad { running, waiting, threads, queue, ..LOAD };
            let own = UpstreamPhases { queue, run: Nanos(7_000) };
            let expect = EndpointLoad { cpu: 0.0, per_second: 0.0, errors_per_second: 0.0, ..load };
            let told = text(|out| {
                load.push_text(out);
                push_own_phases(own, out);
            });
            let expect_own = ToldLoad { load: Some(expect), own: Some(own) };
            prop_assert_eq!(ToldLoad::parse(told.as_bytes()), expect_own);
            let told = text(|out| load.push_json(out));
            prop_assert_eq!(ToldLoad::parse(told.as_bytes()), ToldLoad { own: None, ..expect_own });
        }

        #[test]
        fn garbage_never_panics(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
            let _ = ToldLoad::parse(&bytes);
        }
    }
}
