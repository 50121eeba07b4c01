//! What the kernel counts of the machine and of this server's control group, as metrics and for the status.
//!
//! Takes the folder that stands for the root, gives [`HostStatus`]; what the kernel does not say is absent. Judges nothing:
//! that is `stall`'s.

use std::fs;
use std::path::Path;

use os::host::{
    control_groups, named_number, pressure_total_us, some_pressure, stolen_ticks, table_number,
};
use telemetry::counters::{MetricKind, MetricWriter};

use super::control::status::{GroupMemory, GroupThrottling, HostStatus, PressureStatus};

/// What programs wait for, by the names of the kernel.
const RESOURCES: [&str; 3] = ["cpu", "memory", "io"];
/// What happened to the memory of a control group, by the names of the kernel.
const MEMORY_EVENTS: [&str; 4] = ["high", "max", "oom", "oom_kill"];

/// As it is now.
pub(super) fn read(root: &Path) -> HostStatus {
    // Of the network namespace, as the sockets of this server are.
    let netstat = fs::read_to_string(root.join("proc/self/net/netstat")).unwrap_or_default();
    let groups = control_groups(root);
    HostStatus {
        listen_overflows: table_number(&netstat, "TcpExt", "ListenOverflows"),
        listen_drops: table_number(&netstat, "TcpExt", "ListenDrops"),
        memory: groups.first().and_then(|own| memory(own, &groups)),
        ..waits(root)
    }
}

/// What this server may have had to wait for, alone: some files fewer.
pub(super) fn waits(root: &Path) -> HostStatus {
    let text = |path: &str| fs::read_to_string(root.join(path)).unwrap_or_default();
    let pressure = RESOURCES.iter().filter_map(|resource| {
        let text = text(&format!("proc/pressure/{resource}"));
        Some(PressureStatus {
            resource: (*resource).to_owned(),
            some_us: pressure_total_us(&text, "some")?,
            full_us: pressure_total_us(&text, "full"),
            some_percent: some_pressure(&text, "avg60").unwrap_or(0.0),
        })
    });
    let ticks = rustix::param::clock_ticks_per_second().max(1);
    let in_ms = |of_ticks: u64| of_ticks.saturating_mul(1_000) / ticks;
    let stolen = stolen_ticks(&text("proc/stat"));
    HostStatus {
        pressure: pressure.collect(),
        stolen_ms: stolen.map(|(stolen, _)| in_ms(stolen)),
        processors_ms: stolen.map(|(_, all)| in_ms(all)),
        throttling: control_groups(root)
            .iter()
            .filter_map(|group| throttling(group))
            // A quota of a group above holds this one up as well: the one that did so most.
            .max_by_key(|one| one.throttled_us),
        ..HostStatus::default()
    }
}

fn throttling(group: &Path) -> Option<GroupThrottling> {
    let stat = fs::read_to_string(group.join("cpu.stat")).ok()?;
    Some(GroupThrottling {
        periods: named_number(&stat, "nr_periods")?,
        throttled_periods: named_number(&stat, "nr_throttled")?,
        throttled_us: named_number(&stat, "throttled_usec")?,
    })
}

fn memory(own: &Path, groups: &[std::path::PathBuf]) -> Option<GroupMemory> {
    let number = |group: &Path, name: &str| -> Option<u64> {
        let text = fs::read_to_string(group.join(name)).ok()?;
        text.trim().parse().ok()
    };
    let events = fs::read_to_string(own.join("memory.events")).unwrap_or_default();
    let counted = |name: &&str| Some(((*name).to_owned(), named_number(&events, name)?));
    Some(GroupMemory {
        bytes: number(own, "memory.current")?,
        // `max` is none; the smallest of the groups above counts too.
        bytes_max: groups
            .iter()
            .filter_map(|group| number(group, "memory.max"))
            .min(),
        events: MEMORY_EVENTS.iter().filter_map(counted).collect(),
    })
}

/// As metrics. A family without a sample is one that this machine does not count.
pub(super) fn expose(host: &HostStatus, writer: &mut MetricWriter) {
    let seconds = |us: u64| us as f64 / 1e6;
    writer.family(
        "milepost_host_pressure_seconds",
        MetricKind::Counter,
        "Time in which some or all programs of the machine waited for a processor, for memory or for storage (PSI)",
    );
    for one in &host.pressure {
        writer.sample(
            &[("resource", &one.resource), ("waiting", "some")],
            seconds(one.some_us),
        );
        if let Some(full_us) = one.full_us {
            let labels = [("resource", one.resource.as_str()), ("waiting", "full")];
            writer.sample(&labels, seconds(full_us));
        }
    }
    let mut counter = |name: &str, help: &str, value: Option<f64>| {
        writer.family(name, MetricKind::Counter, help);
        if let Some(value) = value {
            writer.sample(&[], value);
        }
    };
    counter(
        "milepost_host_cpu_stolen_seconds",
        "Processor time that the hypervisor gave to other machines, of all processors",
        host.stolen_ms.map(|ms| ms as f64 / 1e3),
    );
    counter(
        "milepost_host_listen_overflows",
        "Connections that found a full accept queue, of all programs of the network namespace",
        host.listen_overflows.map(|count| count as f64),
    );
    counter(
        "milepost_host_listen_drops",
        "Connections that were dropped before they were accepted, for any reason, of the same programs",
        host.listen_drops.map(|count| count as f64),
    );
    let throttling = host.throttling.as_ref();
    counter(
        "milepost_cgroup_cpu_periods",
        "Periods of the processor quota of the control group in which it wanted to run",
        throttling.map(|one| one.periods as f64),
    );
    counter(
        "milepost_cgroup_cpu_throttled_periods",
        "Of these, periods in which the quota was used up",
        throttling.map(|one| one.throttled_periods as f64),
    );
    counter(
        "milepost_cgroup_cpu_throttled_seconds",
        "Time in which the control group had to wait because its processor quota was used up",
        throttling.map(|one| seconds(one.throttled_us)),
    );
    expose_memory(host.memory.as_ref(), writer);
}

fn expose_memory(memory: Option<&GroupMemory>, writer: &mut MetricWriter) {
    let mut gauge = |name: &str, help: &str, value: Option<u64>| {
        writer.family(name, MetricKind::Gauge, help);
        if let Some(value) = value {
            writer.sample(&[], value);
        }
    };
    gauge(
        "milepost_cgroup_memory_bytes",
        "Memory of the control group, caches of files included",
        memory.map(|one| one.bytes),
    );
    gauge(
        "milepost_cgroup_memory_max_bytes",
        "Most memory that the control group may have; absent without a limit",
        memory.and_then(|one| one.bytes_max),
    );
    writer.family(
        "milepost_cgroup_memory_events",
        MetricKind::Counter,
        "Events of the control group's memory: held back at memory.high, at the limit (max), out of memory (oom), processes killed (oom_kill)",
    );
    for (event, count) in memory.into_iter().flat_map(|one| &one.events) {
        writer.sample(&[("event", event)], *count);
    }
}

#[cfg(test)]
mod tests {
    use telemetry::counters::Exposition;

    use super::*;

    fn machine() -> tempfile::TempDir {
        let root = tempfile::tempdir().expect("a folder");
        let write = |path: &str, text: &str| {
            let path = root.path().join(path);
            fs::create_dir_all(path.parent().expect("a folder")).expect("made");
            fs::write(path, text).expect("written");
        };
        for resource in RESOURCES {
            let text = "some avg10=1.00 avg60=12.50 avg300=0.00 total=1500000\n\
                        full avg10=0.00 avg60=0.00 avg300=0.00 total=250000\n";
            write(&format!("proc/pressure/{resource}"), text);
        }
        write("proc/stat", "cpu  1 2 3 4 5 6 7 250 9 10\n");
        write(
            "proc/self/net/netstat",
            "TcpExt: SyncookiesSent ListenOverflows ListenDrops\nTcpExt: 1 22 33\n\
             IpExt: InOctets\nIpExt: 5\n",
        );
        write("proc/self/cgroup", "0::/shop/web\n");
        let stat = |periods: u64, us: u64| {
            format!("usage_usec 9\nnr_periods {periods}\nnr_throttled 4\nthrottled_usec {us}\n")
        };
        write("sys/fs/cgroup/shop/cpu.stat", &stat(80, 3_000_000));
        write("sys/fs/cgroup/shop/web/cpu.stat", &stat(50, 20));
        write("sys/fs/cgroup/shop/memory.max", "1000000\n");
        write("sys/fs/cgroup/shop/web/memory.max", "max\n");
        write("sys/fs/cgroup/shop/web/memory.current", "400000\n");
        write(
            "sys/fs/cgroup/shop/web/memory.events",
            "low 0\nhigh 3\nmax 2\noom 1\noom_kill 1\noom_group_kill 0\n",
        );
        root
    }

    #[test]
    fn reads_what_the_kernel_counts() {
        let root = machine();
        let found = read(root.path());
        let names: Vec<&str> = found
            .pressure
            .iter()
            .map(|one| one.resource.as_str())
            .collect();
        assert_eq!(names, RESOURCES);
        assert_eq!(found.pressure[0].some_us, 1_500_000);
        assert_eq!(found.pressure[0].full_us, Some(250_000));
        assert!((found.pressure[0].some_percent - 12.5).abs() < 1e-9);
        let ticks = rustix::param::clock_ticks_per_second();
        assert_eq!(found.stolen_ms, Some(250_000 / ticks));
        assert_eq!(found.processors_ms, Some(278_000 / ticks));
        assert_eq!(
            (found.listen_overflows, found.listen_drops),
            (Some(22), Some(33))
        );
        let throttling = found.throttling.expect("a quota");
        assert_eq!(
            (throttling.periods, throttling.throttled_us),
            (80, 3_000_000)
        );
        let memory = found.memory.expect("a group");
        assert_eq!((memory.bytes, memory.bytes_max), (400_000, Some(1_000_000)));
        assert_eq!(memory.events["high"], 3);
        assert_eq!(memory.events.len(), 4);
        let waits = waits(root.path());
        assert_eq!(waits.pressure, found.pressure);
        assert_eq!((waits.listen_drops, waits.memory), (None, None));
    }

    #[test]
    fn a_machine_that_counts_nothing_has_families_without_samples() {
        let root = tempfile::tempdir().expect("a folder");
        let found = read(root.path());
        assert_eq!(found, HostStatus::default());
        let text = |host: &HostStatus| {
            let mut writer = MetricWriter::new(Exposition::OpenMetrics);
            expose(host, &mut writer);
            String::from_utf8(writer.finish()).expect("metrics are text")
        };
        let lines = text(&found);
        assert!(lines.lines().all(|line| line.starts_with('#')), "{lines}");
        let lines = text(&read(machine().path()));
        for line in [
            "milepost_host_pressure_seconds_total{resource=\"memory\",waiting=\"full\"} 0.25",
            "milepost_host_listen_overflows_total 22",
            "milepost_cgroup_cpu_throttled_seconds_total 3",
            "milepost_cgroup_memory_max_bytes 1000000",
            "milepost_cgroup_memory_events_total{event=\"oom_kill\"} 1",
        ] {
            assert!(lines.lines().any(|one| one == line), "{line}\n{lines}");
        }
    }
}
