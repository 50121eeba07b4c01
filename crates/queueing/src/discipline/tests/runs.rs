//! Tests of the median of run times.

use super::super::*;

fn check(runs_ms: &[u64], expect_ms: Option<u64>) {
    let mut runs = Runs::new();
    for &ms in runs_ms {
        runs.add(Nanos::from_ms(ms));
    }
    assert_eq!(runs.median(), expect_ms.map(Nanos::from_ms), "{runs_ms:?}");
}

#[test]
fn one_slow_client_does_not_move_the_median() {
    check(&[], None);
    check(&[7], Some(7));
    check(&[1, 2, 30_000], Some(2));
    check(&[3, 1, 2, 20_000, 2], Some(2));
}

#[test]
fn old_run_times_are_forgotten() {
    let mut runs = vec![1_000; 100];
    runs.extend([5; RUNS_LEN]);
    check(&runs, Some(5));
}
