//! Counters of the servers of upstream groups, by the servers of the configuration.

use serde::{Deserialize, Serialize};

use super::exposition::{MetricKind, TableMetric};
use super::table::{kinds, numbers};
use super::{Counter, Nanos};

numbers! {
    /// One server's counters in one process. All threads of the process count.
    UpstreamStats =>
    /// A server's figures.
    UpstreamFigures {
        /// Requests sent to this server after a try at another one had failed.
        sum retries,
        /// Connections opened to the server; those of health checks included.
        sum opened as "connections_opened",
        /// Requests that used an open connection.
        sum reused as "connections_reused",
        /// Time that it took to open connections, in nanoseconds; with TLS handshakes.
        sum connect_ns,
        /// Time until the last byte of the server's responses, in nanoseconds; of requests that it has answered.
        sum response_ns,
        /// Gauge: requests that the server has at present.
        gauge in_flight,
        /// Gauge: most requests that the server may have at present, from all processes; 0: it is not used.
        most slots as "limit",
        /// Gauge: addresses of the server that get no requests for a while because requests have failed there.
        most ejected,
    }
    + {
        results: [Counter; UpstreamResult::COUNT],
    }
}

kinds! {
    /// How a try at a server ended.
    UpstreamResult =>
    /// Tries by how they ended.
    UpstreamResultCounts {
        /// It has answered, and not with 5xx.
        Answered answered,
        /// It has answered with 5xx.
        ServerError server_error,
        /// It has refused because it is full.
        Full full,
        /// No connection could be opened.
        Connect connect,
        /// Nothing came in time.
        Timeout timeout,
        /// The connection ended before the response.
        Closed closed,
        /// The response was none.
        Malformed malformed,
        /// The client has left, or a kept connection was closed already.
        Abandoned abandoned,
    }
}

/// What one server of an upstream group has had, from all processes.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct UpstreamSnapshot {
    /// Name of the group.
    pub upstream: String,
    /// Address of the server, as the configuration has it.
    pub server: String,
    /// Its figures.
    #[serde(flatten)]
    pub figures: UpstreamFigures,
    /// How tries at it ended.
    pub results: UpstreamResultCounts,
}

impl UpstreamStats {
    /// A try at the server has ended.
    pub fn ended(&self, result: UpstreamResult) {
        self.results[result as usize].add_from_any();
    }

    /// The server has answered a request completely, which took so long.
    pub fn answered_in(&self, took: Nanos) {
        self.response_ns.add_many_from_any(took.0);
    }

    /// A connection was opened, which took so long.
    pub fn connected(&self, took: Nanos) {
        self.opened.add_from_any();
        self.connect_ns.add_many_from_any(took.0);
    }
}

impl UpstreamSnapshot {
    /// Requests that the server has answered, with whatever status.
    pub fn answers(&self) -> u64 {
        (self.results.answered).saturating_add(self.results.server_error)
    }

    /// Tries that failed: the server has answered with 5xx, or not at all. One that is full, and clients that have
    /// left, are none.
    pub fn failures(&self) -> u64 {
        let results = &self.results;
        let failed = [
            results.server_error,
            results.connect,
            results.timeout,
            results.closed,
            results.malformed,
        ];
        failed.into_iter().fold(0, u64::saturating_add)
    }

    pub(super) fn add(&mut self, other: &UpstreamSnapshot) {
        self.figures.add(&other.figures);
        self.results.add(&other.results);
    }

    pub(super) fn add_counted(&mut self, counters: &UpstreamStats) {
        self.figures.add(&counters.numbers());
        self.results
            .add(&UpstreamResultCounts::of(&counters.results));
    }

    /// How tries ended, by name.
    pub(super) fn by_result(&self) -> impl Iterator<Item = (&'static str, u64)> {
        let names = UpstreamResultCounts::NAMES.into_iter();
        names.zip(self.results.values())
    }
}
