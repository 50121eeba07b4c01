//! What `status` says.

use std::time::{Instant, SystemTime};

use rustix::process::Pid;

use super::Supervisor;
use super::control::{ProcessStatus, Status};

/// Bytes of physical memory that a process uses, pages that it shares included.
pub(super) fn resident_bytes(pid: Pid) -> u64 {
    let pid = pid.as_raw_nonzero();
    let text = std::fs::read_to_string(format!("/proc/{pid}/statm"));
    let pages = text.ok().and_then(|text| {
        let resident = text.split_ascii_whitespace().nth(1)?;
        resident.parse::<u64>().ok()
    });
    pages.unwrap_or(0) * rustix::param::page_size() as u64
}

/// The same with each shared page divided by the processes that share it; `None` where the kernel does not
/// say.
fn proportional_bytes(pid: Pid) -> Option<u64> {
    let pid = pid.as_raw_nonzero();
    let text = std::fs::read_to_string(format!("/proc/{pid}/smaps_rollup")).ok()?;
    let line = text.lines().find_map(|line| line.strip_prefix("Pss:"))?;
    let kib: u64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
    Some(kib << 10)
}
