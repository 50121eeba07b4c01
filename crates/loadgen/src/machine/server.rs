//! What the server takes: processor time, memory and context switches of its processes and all their children.
//!
//! A process's time is in its own line of `/proc` while it lives (or waits for its parent), and in its parent's
//! line when that has waited for it: so the time of those that come and go between two looks is found with those
//! that live. Only of a process whose parent does not wait for it (because it ignores SIGCHLD) the time since the
//! last look is lost.

use std::collections::BTreeMap;
use std::fs;

use telemetry::Nanos;

use super::proc::{ids, keyed};
use super::uses::{TICKS_PER_S, share};
use crate::engine::Fault;
use crate::outcome::ServerUse;

/// Watches processes with their children and grandchildren, also those that come and go.
///
/// The first [`ServerMeter::mark`] begins to count, each further one counts until then. Marks in between make the
/// numbers of those exacter that end without being waited for. Processor time is exact to 10 ms a process.
#[derive(Debug)]
pub struct ServerMeter {
    latest: Family,
    is_begun: bool,
    ticks: u64,
    switches: u64,
}

impl ServerMeter {
    /// For these processes.
    ///
    /// # Errors
    /// When one of them does not exist.
    pub fn open(pids: &[u32]) -> Result<ServerMeter, Fault> {
        let mut latest = Family::default();
        for pid in pids {
            let process = ProcessUse::read(*pid).filter(|(_, process)| !process.has_ended);
            let (key, process) = process.ok_or_else(|| {
                Fault::with_hint(
                    format!("the server's process {pid} does not exist"),
                    "`--server-pid` wants the id of a process of this host that runs",
                )
            })?;
            latest.processes.insert(key, process);
        }
        Ok(ServerMeter {
            latest,
            is_begun: false,
            ticks: 0,
            switches: 0,
        })
    }

    /// Begins to count, or counts until now.
    pub fn mark(&mut self) {
        let now = Family::look(&self.latest);
        // What was taken before the first mark is not the run's.
        if self.is_begun {
            self.ticks += now.ticks_since(&self.latest);
            self.switches += now.switches_since(&self.latest);
        }
        self.is_begun = true;
        self.latest = now;
    }

    /// Processor time from the first mark to the last.
    pub fn cpu_s(&self) -> f64 {
        self.ticks as f64 / TICKS_PER_S
    }

    /// What was taken from the first mark to the last, `elapsed` later, by so many requests that ended.
    pub fn used(&self, requests: u64, elapsed: Nanos) -> ServerUse {
        assert!(self.is_begun, "a meter is marked before it is read");
        let each = |sum: f64| match requests {
            0 => 0.0,
            _ => sum / requests as f64,
        };
        let all = self.latest.processes.values();
        // What has ended keeps its line until its parent has waited, and no memory.
        let live = all.filter(|process| !process.has_ended);
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

/// How many descriptors each of the processes and their children may have open.
pub(super) fn descriptor_limits(pids: &[u32]) -> Vec<u64> {
    // Processes that cannot be asked are left out: the meter will say what is wrong with them.
    let Ok(meter) = ServerMeter::open(pids) else {
        return Vec::new();
    };
    let family = Family::look(&meter.latest);
    let limit = |(id, _): &(u32, u64)| {
        let limits = fs::read_to_string(format!("/proc/{id}/limits")).ok()?;
        keyed(&limits, "Max open files")
    };
    family.processes.keys().filter_map(limit).collect()
}

/// A process at one time.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct ProcessUse {
    pub(super) parent: u32,
    /// Its own processor time, of threads that have ended too.
    pub(super) own_ticks: u64,
    /// That of children that it has waited for, and of theirs.
    pub(super) reaped_ticks: u64,
    pub(super) resident_pages: u64,
    /// It has ended, and its parent has not waited for it yet.
    pub(super) has_ended: bool,
}

impl ProcessUse {
    fn read(id: u32) -> Option<((u32, u64), ProcessUse)> {
        ProcessUse::of(&fs::read_to_string(format!("/proc/{id}/stat")).ok()?)
    }

    /// From a line of `/proc/PID/stat`, with its id and when it started.
    pub(super) fn of(stat: &str) -> Option<((u32, u64), ProcessUse)> {
        let id = stat.split_once(' ')?.0.parse().ok()?;
        // A program's name may hold anything, parentheses too.
        let mut words = stat.rsplit_once(')')?.1.split_ascii_whitespace();
        let state = words.next()?;
        let mut number = |skipped: usize| words.nth(skipped)?.parse::<u64>().ok();
        let parent = u32::try_from(number(0)?).ok()?;
        let own_ticks = number(9)? + number(0)?;
        let reaped_ticks = number(0)? + number(0)?;
        // In ticks since the boot: by it a process differs from a later one of the same id.
        let started = number(4)?;
        let process = ProcessUse {
            parent,
            own_ticks,
            reaped_ticks,
            resident_pages: number(1)?,
            has_ended: matches!(state, "Z" | "X"),
        };
        Some(((id, started), process))
    }
}

/// Some processes with all their children, at one time.
#[derive(Debug, Default)]
pub(super) struct Family {
    /// By id and start.
    pub(super) processes: BTreeMap<(u32, u64), ProcessUse>,
    /// Context switches by process and thread.
    pub(super) switches: BTreeMap<(u32, u32), u64>,
}

impl Family {
    /// Looks at the processes of `known` that still live, and at all their children and grandchildren.
    fn look(known: &Family) -> Family {
        // The whole list at once: children are found by their parents, and both may change between two looks.
        let all: BTreeMap<_, _> = ids("/proc").filter_map(ProcessUse::read).collect();
        // A child whose parent has ended belongs to the server all the same: its key is known.
        let mut family = Family::default();
        let mut found: Vec<_> = all
            .iter()
            .filter(|(key, _)| known.processes.contains_key(key))
            .collect();
        while let Some((key, process)) = found.pop() {
            // Each process is looked at once, so that this ends whatever ids the kernel gave again meanwhile.
            if family.processes.insert(*key, *process).is_none() {
                // This process and its own children are no part of it, unless they are known.
                let is_child = |((id, _), child): &(&(u32, u64), &ProcessUse)| {
                    child.parent == key.0 && *id != std::process::id()
                };
                found.extend(all.iter().filter(is_child));
                family.look_at_threads(key.0);
            }
        }
        family
    }

    fn look_at_threads(&mut self, process: u32) {
        let folder = format!("/proc/{process}/task");
        let switches = |thread| {
            let status = fs::read_to_string(format!("{folder}/{thread}/status")).ok()?;
            let wanted = keyed(&status, "voluntary_ctxt_switches:")?;
            let unwanted = keyed(&status, "nonvoluntary_ctxt_switches:")?;
            Some(((process, thread), wanted + unwanted))
        };
        self.switches.extend(ids(&folder).filter_map(switches));
    }

    /// Processor time since `before`, in ticks.
    pub(super) fn ticks_since(&self, before: &Family) -> u64 {
        let (mut own, mut all) = (0, 0);
        for (key, now) in &self.processes {
            // Without one it began since then, and all its children did.
            let then = before.processes.get(key);
            let then = then.map_or((0, 0), |then| (then.own_ticks, then.reaped_ticks));
            let grown = now.own_ticks.saturating_sub(then.0);
            own += grown;
            all += grown + now.reaped_ticks.saturating_sub(then.1);
        }
        let gone = before.processes.iter();
        let gone = gone.filter(|(key, _)| !self.processes.contains_key(key));
        let known: u64 = gone.map(|(_, one)| one.own_ticks + one.reaped_ticks).sum();
        // What was known of those that are gone has moved to those that waited for them. Where nobody did it has
        // not, and what the others took themselves is still right.
        own.max(all.saturating_sub(known))
    }

    /// Context switches since `before`, of threads that live.
    pub(super) fn switches_since(&self, before: &Family) -> u64 {
        let grown = |(thread, now): (&(u32, u32), &u64)| {
            let then = before.switches.get(thread).copied().unwrap_or(0);
            // Fewer than before: another thread with the same id.
            now.checked_sub(then).unwrap_or(*now)
        };
        self.switches.iter().map(grown).sum()
    }
}
