//! What is worth a change, of a machine and a server that are known.
//!
//! Takes facts, gives findings. Reads nothing.

use present::thousands;

use super::facts::{HostFacts, ServerPlan};

/// Clock sources that are read without a system call.
const QUICK_CLOCKS: [&str; 6] = [
    "tsc",
    "kvm-clock",
    "arch_sys_counter",
    "hyperv_clocksource_tsc_page",
    "riscv_clocksource",
    "tb",
];
/// Part of the periods of a quota that may be used up before it is worth a word.
const THROTTLED_PART: f64 = 0.01;
/// Part of the processor time that others may take.
const STOLEN_PART: f64 = 0.02;
/// Percent of a minute in which somebody may wait for a processor, for memory, for storage.
const PRESSURE_MAX: [f64; 3] = [50.0, 10.0, 20.0];
/// Threads that a process needs beside those of its pools and its drivers.
const OTHER_THREADS: usize = 16;
/// Threads of a process from which on their arenas count.
const ARENA_THREADS: usize = 32;
/// Memory of a process with an application is at least this.
const PROCESS_BYTES: u64 = 64 << 20;

/// What there is to say about one setting.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Finding {
    pub(super) name: &'static str,
    pub(super) judgement: Judgement,
    pub(super) found: String,
    /// Empty where all is well.
    pub(super) why: String,
    /// The command or the setting; of something to look at, the command that shows more.
    pub(super) set: Option<String>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Judgement {
    Good,
    /// It costs something.
    Change,
    /// It may concern this server or another program.
    Look,
    /// The machine does not say.
    Unknown,
}

impl Judgement {
    pub(super) fn name(self) -> &'static str {
        match self {
            Judgement::Good => "ok",
            Judgement::Change => "change",
            Judgement::Look => "look",
            Judgement::Unknown => "unknown",
        }
    }
}

impl Finding {
    fn good(name: &'static str, found: impl Into<String>) -> Self {
        Self {
            name,
            judgement: Judgement::Good,
            found: found.into(),
            why: String::new(),
            set: None,
        }
    }

    fn unknown(name: &'static str) -> Self {
        Self {
            judgement: Judgement::Unknown,
            ..Self::good(name, "the kernel does not say")
        }
    }

    fn change(self, why: impl Into<String>, set: impl Into<String>) -> Self {
        Self {
            judgement: Judgement::Change,
            why: why.into(),
            set: Some(set.into()),
            ..self
        }
    }

    fn look(self, why: impl Into<String>, command: impl Into<String>) -> Self {
        Self {
            judgement: Judgement::Look,
            ..self.change(why, command)
        }
    }
}

/// All findings, in the order in which they are shown.
pub(super) fn judge(host: &HostFacts, plan: &ServerPlan) -> Vec<Finding> {
    let mut findings = vec![
        backlog(host, plan),
        listen_drops(host),
        open_files(host, plan),
        processes(host, plan),
        throttling(host),
        tasks(host, plan),
        memory(host, plan),
        allocator(host, plan),
        clock(host),
        huge_pages(host),
        governor(host),
        stolen(host),
    ];
    findings.extend(pressure(host));
    findings
}

fn backlog(host: &HostFacts, plan: &ServerPlan) -> Finding {
    const NAME: &str = "listen queue";
    let Some(somaxconn) = host.somaxconn else {
        return Finding::unknown(NAME);
    };
    let wanted = plan.backlog;
    let found = format!("backlog {wanted}, net.core.somaxconn {somaxconn}");
    let good = Finding::good(NAME, found);
    match somaxconn < wanted {
        false => good,
        true => good.change(
            format!(
                "the kernel shortens the listen queue to {somaxconn}; in a burst it drops connections, which clients \
                 repeat after a second"
            ),
            format!("sysctl -w net.core.somaxconn={wanted}"),
        ),
    }
}

fn listen_drops(host: &HostFacts) -> Finding {
    const NAME: &str = "listen drops";
    let Some(drops) = host.listen_drops else {
        return Finding::unknown(NAME);
    };
    let good = Finding::good(NAME, format!("{} since start-up", thousands(drops)));
    match drops {
        0 => good,
        _ => good.look(
            "listening sockets of this machine have dropped connections, of this server or of others; those clients \
             waited a second or longer",
            "nstat -z TcpExtListenDrops    # run it twice: does the number grow?",
        ),
    }
}

fn open_files(host: &HostFacts, plan: &ServerPlan) -> Finding {
    const NAME: &str = "open files";
    let Some(most) = host.open_files_max else {
        return Finding::unknown(NAME);
    };
    let limit = match most {
        u64::MAX => "none".to_owned(),
        most => thousands(most),
    };
    let needed = plan.open_files;
    let found = format!("{} needed, hard limit {limit}", thousands(needed));
    let good = Finding::good(NAME, found);
    match most < needed {
        false => good,
        true => good.change(
            "with fewer files, a process takes fewer connections than `connections_max`",
            format!("LimitNOFILE={needed}    # in the systemd unit, or `ulimit -n {needed}`"),
        ),
    }
}

/// Processors that the server may use, by their number and by the quota.
fn usable_cpus(host: &HostFacts) -> f64 {
    let cpus = host.cpus as f64;
    host.cgroup.cpus.map_or(cpus, |quota| quota.min(cpus))
}

fn processes(host: &HostFacts, plan: &ServerPlan) -> Finding {
    const NAME: &str = "processes";
    let cpus = usable_cpus(host);
    let many = |count: f64, one: &str, more: &str| match count == 1.0 {
        true => format!("1 {one}"),
        false => format!("{count} {more}"),
    };
    let found = format!(
        "{}, {}",
        many(plan.processes as f64, "process", "processes"),
        many(cpus, "processor", "processors")
    );
    let good = Finding::good(NAME, found);
    let most = (cpus * 2.0).ceil() as usize + 1;
    match plan.processes > most {
        false => good,
        true => good.change(
            "more processes than that wait for processors rather than for work, and each has its memory",
            format!("--processes {}", (cpus.ceil() as usize).max(1)),
        ),
    }
}

fn throttling(host: &HostFacts) -> Finding {
    const NAME: &str = "processor quota";
    let Some(cpus) = host.cgroup.cpus else {
        return Finding::good(NAME, "none");
    };
    let Some((periods, throttled)) = host.cgroup.periods.filter(|(periods, _)| *periods > 0) else {
        return Finding::good(NAME, format!("{cpus} processors"));
    };
    let part = throttled as f64 / periods as f64;
    let found = format!(
        "{cpus} processors, used up in {:.1} % of the periods",
        part * 100.0
    );
    let good = Finding::good(NAME, found);
    match part > THROTTLED_PART {
        false => good,
        true => good.change(
            "when the quota is used up, all threads stand still until the next period: up to 0.1 s, which is in \
             `queue` or `run` of all requests",
            "a higher limit of processors (`cpu.max`, `--cpus`, `resources.limits.cpu`), or none",
        ),
    }
}

fn tasks(host: &HostFacts, plan: &ServerPlan) -> Finding {
    const NAME: &str = "threads";
    let needed = plan.processes * (plan.threads_max + OTHER_THREADS);
    let needed_text = format!("up to {needed} needed");
    let Some(most) = host.cgroup.tasks_max else {
        return Finding::good(NAME, format!("{needed_text}, no limit"));
    };
    let good = Finding::good(NAME, format!("{needed_text}, pids.max {most}"));
    // A reload has two generations.
    match most < 2 * needed as u64 {
        false => good,
        true => good.change(
            "during a reload the old and the new processes run: a process that cannot start a thread ends",
            format!("pids.max of at least {} (`TasksMax` in systemd)", 2 * needed),
        ),
    }
}

fn memory(host: &HostFacts, plan: &ServerPlan) -> Finding {
    const NAME: &str = "memory";
    let (limit, what) = match (host.cgroup.memory_max, host.memory_bytes) {
        (Some(limit), _) => (limit, "memory.max"),
        (None, Some(all)) => (all, "of the machine"),
        (None, None) => return Finding::unknown(NAME),
    };
    let good = Finding::good(NAME, format!("{} MB, {what}", thousands(limit >> 20)));
    let least = plan.processes as u64 * PROCESS_BYTES;
    match limit < 2 * least {
        false => good,
        true => good.change(
            format!(
                "{} processes of {} MB and their successors during a reload do not fit: the kernel kills one of them",
                plan.processes,
                PROCESS_BYTES >> 20
            ),
            format!("--processes {}", (limit / 2 / PROCESS_BYTES).max(1)),
        ),
    }
}

fn allocator(host: &HostFacts, plan: &ServerPlan) -> Finding {
    const NAME: &str = "allocator";
    let good = Finding::good(
        NAME,
        match host.has_allocator {
            true => "set by the environment",
            false => "that of the system",
        },
    );
    match host.has_allocator || plan.threads_max <= ARENA_THREADS {
        true => good,
        false => good.change(
            "the allocator of glibc keeps freed memory for each of many threads: a process takes much more memory than \
             its objects need",
            "MALLOC_ARENA_MAX=2",
        ),
    }
}

fn clock(host: &HostFacts) -> Finding {
    const NAME: &str = "clock source";
    let Some(source) = &host.clock_source else {
        return Finding::unknown(NAME);
    };
    let good = Finding::good(NAME, source);
    match QUICK_CLOCKS.contains(&source.as_str()) {
        true => good,
        false => good.change(
            "reading the clock is a system call with this source, and the server reads it several times a request",
            "clocksource=tsc on the kernel's command line, where the processor's counter is reliable",
        ),
    }
}

fn huge_pages(host: &HostFacts) -> Finding {
    const NAME: &str = "huge pages";
    let Some(mode) = &host.huge_pages else {
        return Finding::unknown(NAME);
    };
    let good = Finding::good(NAME, mode);
    match mode == "always" {
        false => good,
        true => good.change(
            "with transparent huge pages for everything, a process takes more memory, a forked one copies 2 MB for \
             a change of one byte, and the kernel may stop it to join pages",
            "echo madvise > /sys/kernel/mm/transparent_hugepage/enabled",
        ),
    }
}

fn governor(host: &HostFacts) -> Finding {
    const NAME: &str = "frequency";
    let Some(governor) = &host.governor else {
        // Virtual machines have none.
        return Finding::good(NAME, "not set here");
    };
    let good = Finding::good(NAME, format!("governor {governor}"));
    match governor == "powersave" {
        false => good,
        true => good.change(
            "processors stay slow while requests come one by one: each takes longer than under load",
            "cpupower frequency-set -g performance",
        ),
    }
}

fn stolen(host: &HostFacts) -> Finding {
    const NAME: &str = "stolen time";
    let Some(part) = host.stolen else {
        return Finding::unknown(NAME);
    };
    let good = Finding::good(NAME, format!("{:.1} % since start-up", part * 100.0));
    match part > STOLEN_PART {
        false => good,
        true => good.change(
            "the hypervisor gives processor time of this machine to others: requests stand still meanwhile",
            "another size or kind of machine, with processors of its own",
        ),
    }
}

fn pressure(host: &HostFacts) -> Vec<Finding> {
    let kinds = [
        (
            "processor pressure",
            "threads wait for a processor most of the time: `run` has that wait in it",
            "fewer programs beside the server, or more processors",
        ),
        (
            "memory pressure",
            "programs wait for memory that has to be freed or read back first",
            "fewer processes, or more memory",
        ),
        (
            "storage pressure",
            "programs wait for storage: logs and uploaded files may wait with them",
            "`iostat -x 1` shows which disk is busy",
        ),
    ];
    let all = kinds.into_iter().zip(host.pressure).zip(PRESSURE_MAX);
    all.map(|(((name, why, set), percent), most)| match percent {
        None => Finding::unknown(name),
        Some(percent) => {
            let good = Finding::good(name, format!("{percent:.0} % of the last minute"));
            match percent > most {
                false => good,
                true => good.change(why, set),
            }
        }
    })
    .collect()
}

#[cfg(test)]
mod tests;
