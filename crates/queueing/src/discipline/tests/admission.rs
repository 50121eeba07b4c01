//! Tests of admission: places, pressure, and what refused clients are told.

use super::super::*;
use proptest::prelude::*;

fn settings(queue_len_max: usize) -> PoolSettings {
    PoolSettings {
        shape: PoolShape {
            threads_min: 1,
            threads_max: 8,
            queue_len_max,
        },
        queue_target: Nanos::from_ms(5),
        queue_timeout: Nanos::from_secs(30),
        overload_timeout: None,
        reserve_threads: 0,
        reserve_len: 0,
    }
}

fn draining(per_second: u64) -> PoolState {
    PoolState {
        completed_per_second: Some(per_second as f64),
        ..PoolState::default()
    }
}

/// So many wait, and all go before who comes.
fn all(waiting: usize) -> Waiting {
    Waiting {
        len: waiting,
        ahead: waiting,
    }
}

#[test]
fn admits_until_the_queue_is_full() {
    let check = |waiting, queue_len_max, enqueues| {
        let found = admit(
            all(waiting),
            Class::Normal,
            &settings(queue_len_max),
            &draining(10),
        );
        assert_eq!(
            found == Admission::Enqueue,
            enqueues,
            "{waiting} of {queue_len_max}"
        );
    };
    check(0, 1, true);
    check(1, 1, false);
    check(99, 100, true);
    check(100, 100, false);
    check(101, 100, false);
    check(0, 0, false);
}

#[test]
fn tells_refused_clients_when_the_queue_will_have_drained() {
    let check = |waiting, state: PoolState, retry_after_secs| {
        let found = admit(all(waiting), Class::Normal, &settings(0), &state);
        assert_eq!(
            found,
            Admission::Refuse { retry_after_secs },
            "{waiting} at {state:?}"
        );
    };
    check(100, draining(1_000), 1);
    check(100, draining(50), 2);
    check(101, draining(50), 3);
    check(100, draining(1), 60);
    check(100, draining(0), 60);
    check(0, draining(0), 60);
    check(0, draining(50), 1);
    check(100, PoolState::default(), 1);
}

fn pressed(pressure: Pressure, per_second: f64) -> PoolState {
    PoolState {
        pressure,
        completed_per_second: Some(per_second),
        overload_timeout: Nanos::from_ms(500),
    }
}

/// The number of those that may wait under a state: all below are admitted, none from there on.
fn check_len(class: Class, state: PoolState, reserve_len: usize, expect: usize) {
    let settings = PoolSettings {
        reserve_len,
        ..settings(1_000)
    };
    let admits = |waiting| admit(all(waiting), class, &settings, &state) == Admission::Enqueue;
    let found = (0..=1_000).take_while(|waiting| admits(*waiting)).count();
    assert_eq!(found, expect, "{class:?} under {state:?}");
    assert!((found..=2_000).all(|waiting| !admits(waiting)));
}

#[test]
fn refuses_at_once_what_would_wait_in_vain() {
    use Class::{Health, High, Low, Normal};
    use Pressure::{Calm, Overloaded, Saturated};
    check_len(Normal, pressed(Calm, 1.0), 0, 1_000);
    check_len(Normal, pressed(Saturated, 20.0), 0, 300);
    check_len(Low, pressed(Saturated, 20.0), 0, 300);
    check_len(High, pressed(Overloaded, 200.0), 0, 25);
    check_len(Normal, pressed(Overloaded, 200.0), 0, 25);
    check_len(Low, pressed(Overloaded, 200.0), 0, 13);
    check_len(Health, pressed(Overloaded, 200.0), 0, 1_000);
    check_len(Normal, pressed(Overloaded, 1e9), 0, 1_000);
}

#[test]
fn as_many_as_there_may_be_threads_may_wait_whatever_the_rate() {
    check_len(Class::Normal, pressed(Pressure::Overloaded, 0.0), 0, 8);
    check_len(Class::Normal, pressed(Pressure::Saturated, 0.0), 0, 8);
    check_len(Class::Low, pressed(Pressure::Overloaded, 0.0), 0, 4);
    let unknown = PoolState {
        pressure: Pressure::Overloaded,
        ..PoolState::default()
    };
    check_len(Class::Normal, unknown, 0, 1_000);
}

#[test]
fn who_goes_before_those_that_wait_is_not_refused_for_them() {
    let overloaded = pressed(Pressure::Overloaded, 200.0);
    let check = |len, ahead, expect| {
        let found = admit(
            Waiting { len, ahead },
            Class::High,
            &settings(100),
            &overloaded,
        );
        assert_eq!(found == Admission::Enqueue, expect, "{ahead} of {len}");
    };
    check(60, 60, false);
    check(60, 24, true);
    check(99, 0, true);
    check(100, 0, false);
}

/// What is refused keeps an overload going: a class that is refused whatever waits would never be served
/// again by a pool that has nothing to do.
#[test]
fn whoever_comes_to_an_empty_queue_may_wait() {
    for class in Class::ALL {
        for pressure in [Pressure::Calm, Pressure::Saturated, Pressure::Overloaded] {
            let settings = PoolSettings {
                shape: PoolShape {
                    threads_min: 1,
                    threads_max: 1,
                    queue_len_max: 1,
                },
                ..settings(1)
            };
            let found = admit(all(0), class, &settings, &pressed(pressure, 1.0));
            assert_eq!(found, Admission::Enqueue, "{class:?} under {pressure:?}");
        }
    }
}

#[test]
fn the_last_places_are_for_health_and_never_all_of_them() {
    let calm = PoolState::default();
    check_len(Class::Normal, calm, 10, 990);
    check_len(Class::High, calm, 10, 990);
    check_len(Class::Health, calm, 10, 1_000);
    check_len(Class::Normal, calm, 5_000, 1);
}

proptest! {
    #[test]
    fn retry_after_stays_in_its_bounds(waiting in any::<usize>(), rate in any::<u32>()) {
        match admit(all(waiting), Class::Normal, &settings(0), &draining(u64::from(rate))) {
            Admission::Refuse { retry_after_secs } => {
                prop_assert!((1..=60).contains(&retry_after_secs));
            }
            Admission::Enqueue => prop_assert!(false, "a queue without room admitted"),
        }
    }
}
