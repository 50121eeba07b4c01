//! What `top` reads of one answer to `status`.
//!
//! Takes the line that came over the control socket, gives values. Members that `top` does not show are skipped as they
//! are read, because the answer is read every second; a member that a server of another version does not have counts as
//! empty.

use serde::Deserialize;
use supervisor::control::status::{
    GenerationStatus, HostStatus, LastFault, ProcessStatus, RunningRequest, Totals,
};
use telemetry::PerPhase;
use telemetry::counters::{ConnectionCounts, LogSnapshot, SpoolFigures, UpstreamSnapshot};

/// How a server is at one moment. The counters are those of all processes that there ever were.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct Sample {
    pub(super) pid: u32,
    pub(super) version: String,
    pub(super) started_unix_s: u64,
    pub(super) uptime_s: u64,
    pub(super) doing: String,
    pub(super) generations: Vec<GenerationStatus>,
    pub(super) processes: Vec<ProcessStatus>,
    pub(super) running: Vec<RunningRequest>,
    pub(super) running_more: u64,
    pub(super) totals: Totals,
    pub(super) counters: SampleCounters,
    pub(super) last_fault: Option<LastFault>,
    pub(super) host: HostStatus,
}

/// What all processes have counted.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct SampleCounters {
    pub(super) drivers: Vec<DriverDoing>,
    pub(super) routes: Vec<RouteCounts>,
    pub(super) upstreams: Vec<UpstreamSnapshot>,
    pub(super) logs: Vec<LogSnapshot>,
    pub(super) spool: SpoolFigures,
}

/// What the connections of one driver are doing.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct DriverDoing {
    pub(super) connections: ConnectionCounts,
}

/// How the exchanges of one route ended, and how long each phase took.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct RouteCounts {
    pub(super) route: String,
    /// Exchanges without a reply.
    pub(super) none: u64,
    #[serde(rename = "5xx")]
    pub(super) server_error: u64,
    pub(super) sent_bytes: u64,
    pub(super) seconds: PerPhase<DurationCounts>,
}

/// A distribution of durations: only the buckets that have counts, the shortest durations first.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(default)]
pub(super) struct DurationCounts {
    pub(super) sum_ns: u64,
    /// Number and count of each.
    pub(super) buckets: Vec<(u16, u64)>,
}

/// An answer, as far as `top` reads it.
#[derive(Deserialize)]
struct StatusAnswer {
    #[serde(default)]
    message: Option<String>,
    #[serde(default)]
    status: Option<Box<Sample>>,
}

impl Sample {
    /// Reads a line of the control socket.
    ///
    /// # Errors
    /// Why there is no sample in it, in words.
    pub(super) fn read(line: &[u8]) -> Result<Box<Sample>, String> {
        match serde_json::from_slice::<StatusAnswer>(line) {
            Ok(answer) => match (answer.status, answer.message) {
                (Some(status), _) => Ok(status),
                (None, Some(message)) => Err(message),
                (None, None) => Err("what answers there is no milepost".to_owned()),
            },
            Err(error) => Err(format!(
                "the answer is not understood; the server may be of another version ({error})"
            )),
        }
    }

    /// Whether both come from one start of the server. Counters never fall until a supervisor starts anew.
    pub(super) fn is_continued_by(&self, next: &Sample) -> bool {
        self.pid == next.pid
            && self.started_unix_s == next.started_unix_s
            && self.totals.received <= next.totals.received
            && self.totals.accepted <= next.totals.accepted
    }
}

impl DurationCounts {
    /// What has come since `earlier`.
    pub(super) fn since(&self, earlier: &DurationCounts) -> DurationCounts {
        let mut before = earlier.buckets.iter().copied().peekable();
        let mut grown = |&(bucket, count): &(u16, u64)| {
            while before.next_if(|(other, _)| *other < bucket).is_some() {}
            let known = before.next_if(|(other, _)| *other == bucket);
            let more = count.saturating_sub(known.map_or(0, |(_, count)| count));
            (more > 0).then_some((bucket, more))
        };
        DurationCounts {
            buckets: self.buckets.iter().filter_map(&mut grown).collect(),
            sum_ns: self.sum_ns.saturating_sub(earlier.sum_ns),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_an_answer_of_the_supervisor() {
        let status = supervisor::control::Status {
            pid: 7,
            counters: serde_json::json!({"routes": [{
                "route": "/shop", "2xx": 3, "5xx": 1,
                "seconds": {"total": {"count": 4, "p50": 0.1, "sum_ns": 9, "min_ns": 1, "max_ns": 5, "buckets": [[1, 3], [5, 1]]}},
            }]}),
            ..Default::default()
        };
        let line = supervisor::control::messages::Outcome::Status(Box::new(status)).line();
        let sample = Sample::read(line.as_bytes()).unwrap();
        assert_eq!(sample.pid, 7);
        let route = &sample.counters.routes[0];
        assert_eq!((route.route.as_str(), route.server_error), ("/shop", 1));
        assert_eq!(route.seconds.total.buckets, [(1, 3), (5, 1)]);
        assert_eq!(route.seconds.queue, DurationCounts::default());
    }

    #[test]
    fn says_why_an_answer_holds_no_sample() {
        let check = |line: &str, expect: &str| {
            let cause = Sample::read(line.as_bytes()).unwrap_err();
            assert!(cause.contains(expect), "{line}: {cause}");
        };
        check(
            r#"{"done":false,"message":"not permitted"}"#,
            "not permitted",
        );
        check(r#"{"done":true}"#, "no milepost");
        check("HTTP/1.1 400", "another version");
        check(r#"{"status":{"pid":"seven"}}"#, "another version");
    }

    #[test]
    fn reads_a_server_that_says_less() {
        let sample = Sample::read(br#"{"done":true,"status":{"pid":7,"new":[1]}}"#).unwrap();
        assert_eq!((sample.pid, sample.counters.routes.len()), (7, 0));
    }

    #[test]
    fn subtracts_distributions() {
        let counts = |buckets: &[(u16, u64)], sum_ns| DurationCounts {
            buckets: buckets.to_vec(),
            sum_ns,
        };
        let earlier = counts(&[(2, 5), (4, 1), (9, 1)], 30);
        let later = counts(&[(1, 1), (2, 5), (4, 3), (9, 1), (12, 2)], 90);
        let expect = counts(&[(1, 1), (4, 2), (12, 2)], 60);
        assert_eq!(later.since(&earlier), expect);
        assert_eq!(later.since(&DurationCounts::default()), later);
        assert_eq!(later.since(&later), counts(&[], 0));
    }
}
