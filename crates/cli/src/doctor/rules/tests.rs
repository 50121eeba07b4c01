//! Machines and servers, and what is said of them.

use super::super::facts::CgroupFacts;
use super::*;

fn host() -> HostFacts {
    HostFacts {
        cpus: 4,
        somaxconn: Some(4096),
        open_files_max: Some(1 << 20),
        huge_pages: Some("madvise".to_owned()),
        clock_source: Some("tsc".to_owned()),
        governor: None,
        cgroup: CgroupFacts::default(),
        listen_drops: Some(0),
        stolen: Some(0.0),
        pressure: [Some(0.0); 3],
        memory_bytes: Some(8 << 30),
        has_allocator: false,
    }
}

fn plan() -> ServerPlan {
    ServerPlan {
        processes: 4,
        threads_max: 10,
        backlog: 4096,
        open_files: 20_000,
    }
}

/// Exactly these ask for a change, with these settings.
#[track_caller]
fn check(host: &HostFacts, plan: &ServerPlan, expect: &[(&str, &str)]) {
    let findings = judge(host, plan);
    let asked = findings
        .iter()
        .filter(|one| one.judgement == Judgement::Change);
    let asked: Vec<(&str, &str)> = asked
        .map(|one| (one.name, one.set.as_deref().expect("something to set")))
        .collect();
    assert_eq!(asked, expect);
    for one in &findings {
        assert_eq!(one.why.is_empty(), one.judgement != Judgement::Change);
    }
}

#[test]
fn a_good_machine_needs_nothing() {
    check(&host(), &plan(), &[]);
    assert!(
        judge(&host(), &plan())
            .iter()
            .all(|one| one.judgement == Judgement::Good)
    );
}

#[test]
fn limits_below_what_the_server_needs() {
    let narrow = HostFacts {
        somaxconn: Some(128),
        open_files_max: Some(1024),
        ..host()
    };
    check(
        &narrow,
        &plan(),
        &[
            ("listen queue", "sysctl -w net.core.somaxconn=4096"),
            (
                "open files",
                "LimitNOFILE=20000    # in the systemd unit, or `ulimit -n 20000`",
            ),
        ],
    );
    let small_backlog = ServerPlan {
        backlog: 128,
        open_files: 1024,
        ..plan()
    };
    check(&narrow, &small_backlog, &[]);
}

#[test]
fn a_container_that_is_too_small() {
    let cgroup = CgroupFacts {
        cpus: Some(1.0),
        periods: Some((1000, 11)),
        memory_max: Some(256 << 20),
        tasks_max: Some(100),
    };
    let small = HostFacts { cgroup, ..host() };
    check(
        &small,
        &plan(),
        &[
            ("processes", "--processes 1"),
            (
                "processor quota",
                "a higher limit of processors (`cpu.max`, `--cpus`, `resources.limits.cpu`), or none",
            ),
            (
                "threads",
                "pids.max of at least 208 (`TasksMax` in systemd)",
            ),
            ("memory", "--processes 2"),
        ],
    );
    let quiet = CgroupFacts {
        cpus: Some(2.0),
        periods: Some((1000, 10)),
        memory_max: Some(512 << 20),
        tasks_max: Some(208),
    };
    check(
        &HostFacts {
            cgroup: quiet,
            ..host()
        },
        &plan(),
        &[],
    );
}

#[test]
fn a_machine_that_stands_still_now_and_then() {
    let slow = HostFacts {
        huge_pages: Some("always".to_owned()),
        clock_source: Some("acpi_pm".to_owned()),
        governor: Some("powersave".to_owned()),
        listen_drops: Some(1),
        stolen: Some(0.03),
        pressure: [Some(51.0), Some(11.0), Some(21.0)],
        ..host()
    };
    let found = judge(&slow, &plan());
    let marked = |judgement| {
        let marked = found.iter().filter(|one| one.judgement == judgement);
        marked.map(|one| one.name).collect::<Vec<&str>>()
    };
    // Others' sockets may have dropped them.
    assert_eq!(marked(Judgement::Look), ["listen drops"]);
    assert_eq!(
        marked(Judgement::Change),
        [
            "clock source",
            "huge pages",
            "frequency",
            "stolen time",
            "processor pressure",
            "memory pressure",
            "storage pressure"
        ]
    );
}

#[test]
fn many_threads_keep_memory() {
    let many = ServerPlan {
        threads_max: 33,
        ..plan()
    };
    check(&host(), &many, &[("allocator", "MALLOC_ARENA_MAX=2")]);
    let bounded = HostFacts {
        has_allocator: true,
        ..host()
    };
    check(&bounded, &many, &[]);
}

#[test]
fn what_is_not_known_is_no_fault() {
    let findings = judge(&HostFacts::default(), &ServerPlan::default());
    let unknown = findings
        .iter()
        .filter(|one| one.judgement == Judgement::Unknown);
    assert_eq!(unknown.count(), 10);
    assert!(
        findings
            .iter()
            .all(|one| one.judgement != Judgement::Change)
    );
}
