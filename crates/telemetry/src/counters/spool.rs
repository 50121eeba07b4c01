//! Counters of the folder for request bodies and waiting responses (`spool_dir`).

use serde::{Deserialize, Serialize};

use super::exposition::{MetricKind, TableMetric};
use super::table::numbers;
use super::{Counter, Nanos};

numbers! {
    /// The counters of the spool folder in one process. The threads that write there count.
    SpoolStats =>
    /// What has become of writes to the spool folder, and how full the folder is.
    SpoolFigures {
        /// Bytes of request bodies and of responses to slow clients that were written to files.
        sum written_bytes,
        /// Writes to these files that failed, because the disk was full or for another reason.
        sum failed as "writes_failed",
        /// Time that these writes took, in nanoseconds.
        sum write_ns,
        /// Gauge: the longest of these writes since the process started, in nanoseconds.
        most slowest_write_ns,
        /// Gauge: tasks that wait for a thread that writes these files.
        gauge waiting,
        /// Gauge: bytes that are free in the folder of these files; at most 10 seconds old while there are connections.
        most free_bytes,
        /// Gauge: bytes that the file system of the folder has; 0: not known.
        most size_bytes,
    }
}

/// A folder with less free space is nearly full.
const FREE_BYTES_MIN: u64 = 1 << 30;

impl SpoolFigures {
    /// Whether uploads may soon have no room; never where it is not known.
    pub fn is_nearly_full(&self) -> bool {
        self.size_bytes > 0 && self.free_bytes <= FREE_BYTES_MIN
    }
}

impl SpoolStats {
    /// A write has ended, which took so long: the bytes that it wrote, `None` where it failed. From any thread.
    pub fn wrote(&self, bytes: Option<u64>, took: Nanos) {
        match bytes {
            Some(bytes) => self.written_bytes.add_many_from_any(bytes),
            None => self.failed.add_from_any(),
        }
        self.write_ns.add_many_from_any(took.0);
        self.slowest_write_ns.raise_to(took.0);
    }
}
