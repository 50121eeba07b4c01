//! What the generator itself and all others take: processor time and memory.

use nix::sys::resource::{Usage, UsageWho, getrusage};
use nix::sys::time::TimeValLike as _;
use telemetry::Nanos;

use super::proc::{ProcReader, numbers, resident_of};
use crate::outcome::ThreadUse;

/// The kernel's unit of processor time in texts: `USER_HZ` is 100 on every architecture that Linux has today.
pub(super) const TICKS_PER_S: f64 = 100.0;

/// What a thread takes, from [`ThreadMeter::begin`] to [`ThreadMeter::end`], both called on it.
#[derive(Debug)]
pub struct ThreadMeter {
    begin: ThreadTimes,
}

/// What a thread has taken since it began.
#[derive(Clone, Copy, Debug)]
struct ThreadTimes {
    user_ns: i64,
    system_ns: i64,
    involuntary_switches: u64,
    waited_ns: u64,
}

/// Processor time of this process since it began, in seconds.
pub fn own_cpu_s() -> f64 {
    let usage = getrusage(UsageWho::RUSAGE_SELF).expect("it fails for no process of ours");
    let ns = usage.user_time().num_nanoseconds() + usage.system_time().num_nanoseconds();
    Nanos(ns.max(0).unsigned_abs()).as_secs_f64()
}

impl ThreadMeter {
    /// From now on, of this thread.
    pub fn begin() -> ThreadMeter {
        ThreadMeter {
            begin: ThreadTimes::now(),
        }
    }

    /// What this thread has taken since the beginning, `elapsed` ago.
    pub fn end(&self, elapsed: Nanos) -> ThreadUse {
        let (begin, now) = (&self.begin, ThreadTimes::now());
        let seconds = |ns: i64| Nanos(ns.max(0).unsigned_abs()).as_secs_f64();
        let user_s = seconds(now.user_ns - begin.user_ns);
        let cpu_s = user_s + seconds(now.system_ns - begin.system_ns);
        ThreadUse {
            cpu_share: share(cpu_s, elapsed),
            cpu_s,
            user_s,
            waited_s: Nanos(now.waited_ns.saturating_sub(begin.waited_ns)).as_secs_f64(),
            involuntary_switches: now.involuntary_switches - begin.involuntary_switches,
        }
    }
}

impl ThreadTimes {
    fn now() -> ThreadTimes {
        let usage = getrusage(UsageWho::RUSAGE_THREAD).expect("it fails for no thread of ours");
        // On a processor, ready for one, time slices. A kernel without it lets us wait for nothing.
        let mut reading = ProcReader::new();
        let schedule = reading.text(format_args!("/proc/thread-self/schedstat"));
        ThreadTimes {
            user_ns: usage.user_time().num_nanoseconds(),
            system_ns: usage.system_time().num_nanoseconds(),
            involuntary_switches: switches(&usage),
            waited_ns: schedule.and_then(|text| numbers(text).nth(1)).unwrap_or(0),
        }
    }
}

fn switches(usage: &Usage) -> u64 {
    usage.involuntary_context_switches().max(0).unsigned_abs()
}

/// Processor time of wall time; zero of none.
pub(super) fn share(cpu_s: f64, elapsed: Nanos) -> f64 {
    if elapsed.0 > 0 {
        cpu_s / elapsed.as_secs_f64()
    } else {
        0.0
    }
}

/// What everybody on this host takes, from [`HostMeter::begin`] on.
#[derive(Debug)]
pub struct HostMeter {
    begin: HostTicks,
}

/// The first line of `/proc/stat`, and how many processors follow it.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
struct HostTicks {
    busy: u64,
    idle: u64,
    processors: u64,
}

impl HostMeter {
    /// From now on.
    pub fn begin() -> HostMeter {
        HostMeter {
            begin: HostTicks::now(),
        }
    }

    /// Processor time of everybody but the generator (`own_s`) and the server (`server_s`) since the beginning,
    /// of all processors' time: 0 to 1. Time that a hypervisor gave to others counts as theirs.
    pub fn foreign_share(&self, own_s: f64, server_s: f64) -> f64 {
        HostTicks::now().foreign_share(&self.begin, own_s + server_s)
    }

    /// Processors of this host, at least 1.
    pub fn processors(&self) -> usize {
        self.begin.processors.max(1) as usize
    }
}

impl HostTicks {
    fn now() -> HostTicks {
        let mut reading = ProcReader::new();
        reading
            .text(format_args!("/proc/stat"))
            .map(HostTicks::of)
            .unwrap_or_default()
    }

    fn of(text: &str) -> HostTicks {
        let mut lines = text.lines();
        // user nice system idle iowait irq softirq steal; guests are in user already.
        let ticks: Vec<u64> = lines
            .next()
            .map(|all| numbers(all).take(8).collect())
            .unwrap_or_default();
        let idle = ticks.iter().skip(3).take(2).sum();
        HostTicks {
            busy: ticks.iter().sum::<u64>() - idle,
            idle,
            processors: lines.take_while(|line| line.starts_with("cpu")).count() as u64,
        }
    }

    fn foreign_share(&self, begin: &HostTicks, known_s: f64) -> f64 {
        let busy = self.busy.saturating_sub(begin.busy) as f64;
        let all = busy + self.idle.saturating_sub(begin.idle) as f64;
        if all == 0.0 {
            return 0.0;
        }
        (busy - known_s * TICKS_PER_S).max(0.0) / all
    }
}

/// Resident memory of this process, 0 where it cannot be read.
pub fn resident_bytes() -> u64 {
    let mut reading = ProcReader::new();
    let statm = reading.text(format_args!("/proc/self/statm"));
    statm.and_then(resident_of).unwrap_or(0)
}
