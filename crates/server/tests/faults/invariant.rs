//! A failed invariant costs its process: one line that says which, then SIGABRT, whichever thread met it. The
//! supervisor replaces a process that ends so (`tests/test_processes.py`).

use std::env;
use std::os::unix::process::ExitStatusExt;
use std::process::{Command, Output};

use server::transport::faults::{Plan, Temper};

use super::tested::{Tested, alone};
use super::visit::Visit;

/// The case that this process is to die of; the test starts itself again with it.
const CASE: &str = "MILEPOST_TEST_INVARIANT_CASE";
/// `libc::SIGABRT`.
const SIGABRT: i32 = 6;

#[test]
fn a_failed_invariant_ends_its_process_with_one_line() {
    if let Ok(name) = env::var(CASE) {
        violate(&name);
        return;
    }
    // The pipes to the child are descriptors of this process.
    let _alone = alone();
    // One is sent by a worker, the other by a driver.
    for name in ["small", "cached file"] {
        let died = again(name);
        let errors = String::from_utf8_lossy(&died.stderr);
        assert_eq!(died.status.signal(), Some(SIGABRT), "{name}: {errors}");
        let named: Vec<&str> = errors
            .lines()
            .filter(|line| line.contains("invariant"))
            .collect();
        let [line] = named[..] else {
            panic!("{name}: {errors}");
        };
        assert!(
            line.starts_with("milepost: bug: invariant violated: a socket took "),
            "{name}: {line}"
        );
    }
}

/// This very test in a process of its own.
fn again(case: &str) -> Output {
    Command::new(env::current_exe().unwrap())
        .args([
            "invariant::a_failed_invariant_ends_its_process_with_one_line",
            "--exact",
            "--nocapture",
        ])
        .env(CASE, case)
        .output()
        .unwrap()
}

/// Has a call claim that the socket took more than it was offered.
fn violate(name: &str) {
    let tested = Tested::open(0);
    let index = tested
        .cases
        .iter()
        .position(|case| case.name == name)
        .unwrap();
    let mut visit = Visit::begin(&tested.running, Plan::new(Temper::Beyond, 0), 2);
    visit.ask(&tested.requests(&[index]).bytes);
    let (bytes, end) = visit.read_to_end();
    panic!("{} bytes came, and then {end:?}", bytes.len());
}
