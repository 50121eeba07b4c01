//! What the machine says of itself, and what the server is to be.
//!
//! Reads `/proc` and `/sys` beneath a folder that stands for the root. A file that is not there is a fact that is not
//! known. Judges nothing.

use std::fs;
use std::path::Path;

use config::open_files_needed;
use config::typed::Config;
use os::host::{control_groups, named_number, some_pressure, stolen_ticks};
use rustix::process::{Resource, getrlimit};

/// The machine.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct HostFacts {
    /// Processors that this process may use.
    pub(super) cpus: usize,
    /// net.core.somaxconn
    pub(super) somaxconn: Option<u64>,
    /// The hard limit of open files; `u64::MAX` for none.
    pub(super) open_files_max: Option<u64>,
    /// `always`, `madvise` or `never`.
    pub(super) huge_pages: Option<String>,
    pub(super) clock_source: Option<String>,
    /// Of processor 0.
    pub(super) governor: Option<String>,
    pub(super) cgroup: CgroupFacts,
    /// Connections that listening sockets have dropped since the machine began, all programs together.
    pub(super) listen_drops: Option<u64>,
    /// Part of the processor time since the machine began that the hypervisor gave to others, 0 to 1.
    pub(super) stolen: Option<f64>,
    /// Percent of the last minute in which somebody waited: processors, memory, storage.
    pub(super) pressure: [Option<f64>; 3],
    pub(super) memory_bytes: Option<u64>,
    /// Whether the environment names another allocator, or bounds the arenas of this one.
    pub(super) has_allocator: bool,
}

/// The limits of the control group, version 2.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct CgroupFacts {
    /// Processors that its quota is worth; `None`: no quota, or not known.
    pub(super) cpus: Option<f64>,
    /// Periods of the quota that there were, and those of them in which it was used up.
    pub(super) periods: Option<(u64, u64)>,
    pub(super) memory_max: Option<u64>,
    pub(super) tasks_max: Option<u64>,
}

/// What the server is to be.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct ServerPlan {
    pub(super) processes: usize,
    /// Of one process, at most.
    pub(super) threads_max: usize,
    pub(super) backlog: u64,
    pub(super) open_files: u64,
}

impl ServerPlan {
    pub(super) fn of(config: &Config) -> Self {
        let threads = config.pools.iter().map(|pool| pool.threads_max);
        Self {
            processes: config.processes.count,
            threads_max: threads.sum::<usize>() + config.listen.drivers,
            backlog: config.listen.backlog.into(),
            open_files: open_files_needed(config),
        }
    }
}

impl HostFacts {
    pub(super) fn read(root: &Path) -> Self {
        let word = |path: &str| {
            let text = fs::read_to_string(root.join(path)).ok()?;
            Some(text.trim().to_owned())
        };
        let pressure = |what: &str| {
            word(&format!("proc/pressure/{what}")).and_then(|it| some_pressure(&it, "avg60"))
        };
        Self {
            cpus: std::thread::available_parallelism().map_or(1, usize::from),
            somaxconn: word("proc/sys/net/core/somaxconn").and_then(|it| it.parse().ok()),
            open_files_max: Some(getrlimit(Resource::Nofile).maximum.unwrap_or(u64::MAX)),
            huge_pages: word("sys/kernel/mm/transparent_hugepage/enabled")
                .and_then(|it| chosen(&it)),
            clock_source: word("sys/devices/system/clocksource/clocksource0/current_clocksource"),
            governor: word("sys/devices/system/cpu/cpu0/cpufreq/scaling_governor"),
            cgroup: CgroupFacts::read(root),
            listen_drops: word("proc/net/netstat")
                .and_then(|it| pair_of(&it, "TcpExt:", "ListenDrops")),
            stolen: word("proc/stat").and_then(|it| stolen(&it)),
            pressure: ["cpu", "memory", "io"].map(pressure),
            memory_bytes: word("proc/meminfo").and_then(|it| memory_bytes(&it)),
            has_allocator: has_allocator(),
        }
    }
}

impl CgroupFacts {
    /// Of the group that this process is in; the narrowest limit of it and of those above counts.
    fn read(root: &Path) -> Self {
        let mut facts = Self::default();
        for group in control_groups(root) {
            facts.narrow(&group);
        }
        facts
    }

    fn narrow(&mut self, folder: &Path) {
        let text = |name: &str| fs::read_to_string(folder.join(name)).ok();
        let number = |name: &str| text(name)?.trim().parse::<u64>().ok();
        if let Some(cpus) = text("cpu.max").and_then(|it| quota(&it))
            && self.cpus.is_none_or(|known| cpus < known)
        {
            self.cpus = Some(cpus);
            self.periods = text("cpu.stat").and_then(|it| {
                let of = |name: &str| named_number(&it, name);
                Some((of("nr_periods")?, of("nr_throttled")?))
            });
        }
        let least = |known: Option<u64>, found: Option<u64>| match (known, found) {
            (Some(known), Some(found)) => Some(known.min(found)),
            (known, found) => known.or(found),
        };
        self.memory_max = least(self.memory_max, number("memory.max"));
        self.tasks_max = least(self.tasks_max, number("pids.max"));
    }
}

/// A preloaded library is taken for an allocator when it is called like one.
fn has_allocator() -> bool {
    let preloaded = std::env::var("LD_PRELOAD").unwrap_or_default();
    preloaded.contains("malloc") || std::env::var_os("MALLOC_ARENA_MAX").is_some()
}

/// The word in brackets: `always [madvise] never`.
fn chosen(text: &str) -> Option<String> {
    let (_, rest) = text.split_once('[')?;
    Some(rest.split_once(']')?.0.to_owned())
}

/// `50000 100000` is half a processor; `max 100000` none.
fn quota(text: &str) -> Option<f64> {
    let (quota, period) = text.trim().split_once(' ')?;
    let (quota, period) = (quota.parse::<f64>().ok()?, period.parse::<f64>().ok()?);
    (period > 0.0).then_some(quota / period)
}

/// Of two lines that begin with `kind`, one of names and one of numbers, the number below a name.
fn pair_of(text: &str, kind: &str, name: &str) -> Option<u64> {
    let mut lines = text.lines().filter_map(|line| line.strip_prefix(kind));
    let (names, numbers) = (lines.next()?, lines.next()?);
    let at = names.split_ascii_whitespace().position(|one| one == name)?;
    numbers.split_ascii_whitespace().nth(at)?.parse().ok()
}

fn stolen(text: &str) -> Option<f64> {
    let (stolen, all) = stolen_ticks(text)?;
    (all > 0).then(|| stolen as f64 / all as f64)
}

fn memory_bytes(text: &str) -> Option<u64> {
    let line = text
        .lines()
        .find_map(|line| line.strip_prefix("MemTotal:"))?;
    let kb: u64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
    kb.checked_mul(1024)
}

#[cfg(test)]
mod tests;
