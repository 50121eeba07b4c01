//! What the generator itself and all others take: processor time and memory.

use std::fs;

use nix::sys::resource::{Usage, UsageWho, getrusage};
use nix::sys::time::TimeValLike as _;
use telemetry::Nanos;

use super::proc::numbers;
use crate::outcome::ThreadUse;

/// The kernel's unit of processor time in texts: `USER_HZ` is 100 on every architecture that Linux has today.
pub(super) const TICKS_PER_S: f64 = 100.0;

/// Processor time of this process since it began, in seconds.
pub fn own_cpu_s() -> f64 {
    let usage = getrusage(UsageWho::RUSAGE_SELF).expect("it fails for no process of ours");
    let (user_s, system_s) = seconds(&usage);
    user_s + system_s
}

/// In user mode and in the kernel.
fn seconds(usage: &Usage) -> (f64, f64) {
    let seconds = |ns: i64| Nanos(ns.max(0).unsigned_abs()).as_secs_f64();
    (
        seconds(usage.user_time().num_nanoseconds()),
        seconds(usage.system_time().num_nanoseconds()),
    )
}

/// What a thread takes, from [`ThreadMeter::begin`] to [`ThreadMeter::end`], both called on it.
#[derive(Debug)]
pub struct ThreadMeter {
    /// Since the thread began.
    begin: ThreadUse,
}

impl ThreadMeter {
    /// From now on, of this thread.
    pub fn begin() -> ThreadMeter {
        let usage = getrusage(UsageWho::RUSAGE_THREAD).expect("it fails for no thread of ours");
        let (user_s, system_s) = seconds(&usage);
        // On a processor, ready for one, time slices. A kernel without it lets us wait for nothing.
        let schedule = fs::read_to_string("/proc/thread-self/schedstat").unwrap_or_default();
        ThreadMeter {
            begin: ThreadUse {
                cpu_share: 0.0,
                cpu_s: user_s + system_s,
                user_s,
                waited_s: Nanos(numbers(&schedule).nth(1).unwrap_or(0)).as_secs_f64(),
                involuntary_switches: usage.involuntary_context_switches().max(0).unsigned_abs(),
            },
        }
    }

    /// What this thread has taken since the beginning, `elapsed` ago.
    pub fn end(&self, elapsed: Nanos) -> ThreadUse {
        // Both looks give what the thread has taken since it was started.
        let (begin, now) = (&self.begin, ThreadMeter::begin().begin);
        let cpu_s = now.cpu_s - begin.cpu_s;
        ThreadUse {
            cpu_share: share(cpu_s, elapsed),
            cpu_s,
            user_s: now.user_s - begin.user_s,
            waited_s: now.waited_s - begin.waited_s,
            involuntary_switches: now.involuntary_switches - begin.involuntary_switches,
        }
    }
}

/// Processor time of wall time.
pub(super) fn share(cpu_s: f64, elapsed: Nanos) -> f64 {
    // Of no time it is zero, because a stored number is finite.
    match elapsed {
        Nanos::ZERO => 0.0,
        _ => cpu_s / elapsed.as_secs_f64(),
    }
}

/// What everybody on this host takes, from [`HostMeter::begin`] on: the first line of `/proc/stat`, and how many
/// processors follow it.
#[derive(Debug)]
pub struct HostMeter {
    busy: u64,
    idle: u64,
    processors: usize,
}

impl HostMeter {
    /// From now on.
    pub fn begin() -> HostMeter {
        let text = fs::read_to_string("/proc/stat").unwrap_or_default();
        let mut lines = text.lines();
        // user nice system idle iowait irq softirq steal; guests are in user already.
        let ticks: Vec<u64> = numbers(lines.next().unwrap_or_default()).take(8).collect();
        let idle = ticks.iter().skip(3).take(2).sum();
        HostMeter {
            busy: ticks.iter().sum::<u64>() - idle,
            idle,
            processors: lines.take_while(|line| line.starts_with("cpu")).count(),
        }
    }

    /// Processor time of everybody but the generator (`own_s`) and the server (`server_s`) since the beginning,
    /// of all processors' time: 0 to 1.
    pub fn foreign_share(&self, own_s: f64, server_s: f64) -> f64 {
        // Time that a hypervisor gave to others (steal) is busy, and counts as theirs.
        let now = HostMeter::begin();
        let busy = now.busy.saturating_sub(self.busy) as f64;
        let all = busy + now.idle.saturating_sub(self.idle) as f64;
        if all == 0.0 {
            return 0.0;
        }
        (busy - (own_s + server_s) * TICKS_PER_S).max(0.0) / all
    }

    /// Processors of this host, at least 1.
    pub fn processors(&self) -> usize {
        self.processors.max(1)
    }
}

/// Resident memory of this process, 0 where it cannot be read.
pub fn resident_bytes() -> u64 {
    let statm = fs::read_to_string("/proc/self/statm").unwrap_or_default();
    numbers(&statm).nth(1).unwrap_or(0) * rustix::param::page_size() as u64
}
