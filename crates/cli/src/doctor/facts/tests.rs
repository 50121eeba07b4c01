//! Machines as folders of files.

use super::*;

/// A folder that stands for a machine.
fn machine(files: &[(&str, &str)]) -> tempfile::TempDir {
    let root = tempfile::tempdir().expect("a folder");
    for (name, text) in files {
        let path = root.path().join(name);
        fs::create_dir_all(path.parent().expect("it is in a folder")).expect("a folder");
        fs::write(path, text).expect("a file");
    }
    root
}

#[test]
fn a_machine_that_says_everything() {
    let root = machine(&[
        ("proc/sys/net/core/somaxconn", "128\n"),
        (
            "sys/kernel/mm/transparent_hugepage/enabled",
            "[always] madvise never\n",
        ),
        (
            "sys/devices/system/clocksource/clocksource0/current_clocksource",
            "hpet\n",
        ),
        (
            "sys/devices/system/cpu/cpu0/cpufreq/scaling_governor",
            "powersave\n",
        ),
        (
            "proc/net/netstat",
            "TcpExt: SyncookiesSent ListenOverflows ListenDrops\nTcpExt: 1 2 3\nIpExt: InNoRoutes\nIpExt: 4\n",
        ),
        (
            "proc/stat",
            "cpu  100 0 100 700 0 0 0 100 50 0\ncpu0 1 1 1 1 1 1 1 1 1 1\n",
        ),
        (
            "proc/pressure/cpu",
            "some avg10=9.00 avg60=1.25 avg300=0.00 total=1\nfull avg10=0.00 avg60=7.00 avg300=0.00 total=0\n",
        ),
        ("proc/meminfo", "MemTotal:        2048 kB\nMemFree: 1 kB\n"),
        ("proc/self/cgroup", "0::/a/b\n"),
        ("sys/fs/cgroup/a/cpu.max", "50000 100000\n"),
        (
            "sys/fs/cgroup/a/cpu.stat",
            "usage_usec 5\nnr_periods 100\nnr_throttled 7\n",
        ),
        ("sys/fs/cgroup/a/b/cpu.max", "max 100000\n"),
        ("sys/fs/cgroup/a/b/memory.max", "max\n"),
        ("sys/fs/cgroup/a/memory.max", "1048576\n"),
        ("sys/fs/cgroup/a/b/pids.max", "50\n"),
        ("sys/fs/cgroup/pids.max", "99\n"),
    ]);
    let facts = HostFacts::read(root.path());
    let expect = HostFacts {
        cpus: facts.cpus,
        open_files_max: facts.open_files_max,
        somaxconn: Some(128),
        huge_pages: Some("always".to_owned()),
        clock_source: Some("hpet".to_owned()),
        governor: Some("powersave".to_owned()),
        cgroup: CgroupFacts {
            cpus: Some(0.5),
            periods: Some((100, 7)),
            memory_max: Some(1 << 20),
            tasks_max: Some(50),
        },
        listen_drops: Some(3),
        stolen: Some(0.1),
        pressure: [Some(1.25), None, None],
        memory_bytes: Some(2 << 20),
        has_allocator: facts.has_allocator,
    };
    assert_eq!(facts, expect);
}

#[test]
fn a_machine_that_says_nothing_or_nonsense() {
    let facts = HostFacts::read(machine(&[]).path());
    let nothing = HostFacts {
        cpus: facts.cpus,
        open_files_max: facts.open_files_max,
        has_allocator: facts.has_allocator,
        ..HostFacts::default()
    };
    assert_eq!(facts, nothing);
    let root = machine(&[
        ("proc/sys/net/core/somaxconn", "many"),
        ("sys/kernel/mm/transparent_hugepage/enabled", "always never"),
        ("proc/net/netstat", "TcpExt: ListenDrops\n"),
        ("proc/stat", "cpu  0 0 0 0 0 0 0 0\n"),
        ("proc/pressure/cpu", "some\n"),
        ("proc/meminfo", "MemTotal: 5 pages\n"),
        ("proc/self/cgroup", "0::/../../..\n"),
        ("sys/fs/cgroup/cpu.max", "5"),
    ]);
    assert_eq!(HostFacts::read(root.path()), nothing);
}
