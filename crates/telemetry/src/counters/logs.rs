//! Counters of the threads that write logs.

use serde::{Deserialize, Serialize};

use super::Counter;
use super::exposition::{MetricKind, TableMetric};
use super::table::numbers;

/// The logs of a process, by the number of their counters.
pub const LOG_NAMES: [&str; 2] = ["access", "error"];

numbers! {
    /// The counters of all access logs or all error logs of a process. The thread that writes them counts.
    LogStats =>
    /// What has become of lines.
    LogFigures {
        /// Records that were made lines, or are in none of the logs.
        sum formatted as "",
        /// Lines written.
        sum lines,
        /// Lines dropped because the memory of the log was full.
        sum dropped,
        /// Writes after which lines were left, because the target was slow or failed; they are tried again.
        sum incomplete as "writes_incomplete",
        /// Gauge: bytes of lines that wait to be written.
        gauge waiting_bytes,
        /// Time that writes took, in nanoseconds.
        sum write_ns,
        /// Gauge: the longest write since the process started, the one under way included, in nanoseconds.
        most slowest_write_ns,
    }
}

/// The access logs or the error logs of all processes.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct LogSnapshot {
    /// Which of [`LOG_NAMES`].
    pub log: String,
    /// Its figures.
    #[serde(flatten)]
    pub figures: LogFigures,
}
