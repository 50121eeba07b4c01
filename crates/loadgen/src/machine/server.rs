//! What the server takes: processor time, memory and context switches of its processes and all their children.

use telemetry::Nanos;

use super::proc::{ProcReader, numbers};
use super::tree::{ProcessTree, ProcessUse};
use super::uses::{TICKS_PER_S, share};
use crate::engine::Fault;
use crate::outcome::ServerUse;

/// Watches processes with their children and grandchildren, also those that come and go.
///
/// The first [`ServerMeter::mark`] begins to count, each further one counts until then. Marks in between make the
/// numbers of those exacter that end without being waited for. Processor time is exact to 10 ms a process.
#[derive(Debug)]
pub struct ServerMeter {
    /// Those that are watched even if their parent is gone.
    known: Vec<ProcessUse>,
    before: ProcessTree,
    now: ProcessTree,
    reading: ProcReader,
    marks_len: u64,
    ticks: u64,
    switches: u64,
}

impl ServerMeter {
    /// For these processes.
    ///
    /// # Errors
    /// When one of them does not exist.
    pub fn open(pids: &[u32]) -> Result<ServerMeter, Fault> {
        let mut reading = ProcReader::new();
        let mut known = Vec::with_capacity(pids.len());
        for pid in pids {
            let stat = reading.text(format_args!("/proc/{pid}/stat"));
            let process = stat
                .and_then(ProcessUse::of)
                .filter(|process| !process.has_ended);
            known.push(process.ok_or_else(|| {
                Fault::with_hint(
                    format!("the server's process {pid} does not exist"),
                    "`--server-pid` wants the id of a process of this host that runs",
                )
            })?);
        }
        Ok(ServerMeter {
            known,
            before: ProcessTree::default(),
            now: ProcessTree::default(),
            reading,
            marks_len: 0,
            ticks: 0,
            switches: 0,
        })
    }

    /// Begins to count, or counts until now.
    pub fn mark(&mut self) {
        std::mem::swap(&mut self.before, &mut self.now);
        self.now.look(&self.known, &mut self.reading);
        if self.marks_len > 0 {
            self.ticks += self.now.ticks_since(&self.before);
            self.switches += self.now.switches_since(&self.before);
        }
        self.marks_len += 1;
        // A child whose parent ends belongs to the server all the same.
        self.known.clear();
        self.known.extend_from_slice(&self.now.processes);
    }

    /// Processor time from the first mark to the last.
    pub fn cpu_s(&self) -> f64 {
        self.ticks as f64 / TICKS_PER_S
    }

    /// What was taken from the first mark to the last, `elapsed` later, by so many requests that ended.
    pub fn used(&self, requests: u64, elapsed: Nanos) -> ServerUse {
        let each = |sum: f64| {
            if requests > 0 {
                sum / requests as f64
            } else {
                0.0
            }
        };
        let live = self
            .now
            .processes
            .iter()
            .filter(|process| !process.has_ended);
        let pages: u64 = live.clone().map(|process| process.resident_pages).sum();
        ServerUse {
            processes: live.count(),
            cpu_us_per_request: each(self.cpu_s() * 1e6),
            cpu_share: share(self.cpu_s(), elapsed),
            resident_bytes: pages * rustix::param::page_size() as u64,
            switches_per_request: each(self.switches as f64),
        }
    }
}

/// How many descriptors each of the processes and their children may have open; those that cannot be asked are
/// left out.
pub(super) fn descriptor_limits(pids: &[u32]) -> Vec<u64> {
    let Ok(mut meter) = ServerMeter::open(pids) else {
        return Vec::new();
    };
    meter.mark();
    let limit = |process: &ProcessUse| {
        let limits = meter
            .reading
            .text(format_args!("/proc/{}/limits", process.id))?;
        let mut lines = limits.lines();
        lines.find_map(|line| numbers(line.strip_prefix("Max open files")?).next())
    };
    meter.now.processes.iter().filter_map(limit).collect()
}
