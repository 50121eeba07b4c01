//! Tests of the line: order, patience and what was seen of waits.

mod admission;
mod runs;

use super::*;
use crate::PoolShape;
use proptest::prelude::*;

const TARGET_MS: u64 = 50;
const TIMEOUT_MS: u64 = 1_000;
const OVERLOAD_TIMEOUT_MS: u64 = 100;

fn settings(reserve_threads: usize) -> PoolSettings {
    PoolSettings {
        shape: PoolShape {
            threads_min: 1,
            threads_max: 8,
            queue_len_max: 1_000,
        },
        queue_target: Nanos::from_ms(TARGET_MS),
        queue_timeout: Nanos::from_ms(TIMEOUT_MS),
        overload_timeout: None,
        reserve_threads,
        reserve_len: 0,
    }
}

fn at(ms: u64) -> Stamp {
    Stamp::ZERO.plus(Nanos::from_ms(ms))
}

fn entry(item: usize, class: Class, queued_ms: u64, before_ms: u64) -> Entry<usize> {
    Entry {
        item,
        class,
        queued: at(queued_ms),
        before: Nanos::from_ms(before_ms),
    }
}

fn state(pressure: Pressure) -> PoolState {
    PoolState {
        pressure,
        completed_per_second: None,
        overload_timeout: Nanos::from_ms(OVERLOAD_TIMEOUT_MS),
    }
}

/// A queue of entries (class, when it came, its wait before), numbered in this order.
fn line(pressure: Pressure, entries: &[(Class, u64, u64)]) -> Line<usize> {
    let mut line = Line::new(&settings(0));
    line.set_state(state(pressure));
    for (item, &(class, queued_ms, before_ms)) in entries.iter().enumerate() {
        line.push(entry(item, class, queued_ms, before_ms));
    }
    line
}

fn taken(line: &mut Line<usize>, now_ms: u64) -> Vec<usize> {
    std::iter::from_fn(|| line.take(at(now_ms), 0, 8))
        .map(|entry| entry.item)
        .collect()
}

fn expired(line: &mut Line<usize>, now_ms: u64) -> Vec<usize> {
    std::iter::from_fn(|| line.take_expired(at(now_ms)))
        .map(|entry| entry.item)
        .collect()
}

#[test]
fn better_classes_go_first_and_within_a_class_the_oldest() {
    use Class::{Health, High, Low, Normal};
    let entries = [
        (Low, 0, 0),
        (Normal, 1, 0),
        (High, 2, 0),
        (Normal, 3, 0),
        (Health, 4, 0),
        (High, 5, 0),
    ];
    let mut line = line(Pressure::Saturated, &entries);
    assert_eq!(line.len(), 6);
    assert_eq!(taken(&mut line, 6), [4, 2, 5, 1, 3, 0]);
    assert!(line.is_empty());
}

#[test]
fn while_overloaded_the_newest_goes_first_and_the_rest_keep_their_order() {
    use Class::{High, Normal};
    let entries = [(Normal, 0, 0), (High, 1, 0), (Normal, 2, 0), (High, 3, 0)];
    let mut line = line(Pressure::Overloaded, &entries);
    assert_eq!(line.take(at(9), 0, 8).map(|entry| entry.item), Some(3));
    line.set_state(state(Pressure::Saturated));
    assert_eq!(line.take(at(9), 0, 8).map(|entry| entry.item), Some(1));
    assert_eq!(line.take(at(9), 0, 8).map(|entry| entry.item), Some(0));
    line.push(entry(4, Normal, 9, 0));
    line.set_state(state(Pressure::Overloaded));
    assert_eq!(taken(&mut line, 10), [4, 2]);
    assert_eq!(line.joined(), 5);
}

#[test]
fn a_wait_before_the_queue_counts() {
    use Class::Normal;
    let entries = [(Normal, 10, 0), (Normal, 20, 15), (Normal, 30, 990)];
    let mut line = line(Pressure::Calm, &entries);
    assert_eq!(line.oldest_wait(at(35)), Nanos::from_ms(995));
    assert_eq!(line.next_expiry(), at(40));
    assert_eq!(taken(&mut line, 40), [1, 0]);
    assert_eq!(expired(&mut line, 40), [2]);
}

#[test]
fn who_waited_too_long_is_refused_and_never_run() {
    let entries = [
        (Class::Normal, 0, 0),
        (Class::Low, 5, 0),
        (Class::High, 950, 0),
    ];
    for pressure in [Pressure::Calm, Pressure::Saturated] {
        let mut line = line(pressure, &entries);
        assert_eq!(line.next_expiry(), at(TIMEOUT_MS));
        assert!(expired(&mut line, TIMEOUT_MS - 1).is_empty());
        assert_eq!(expired(&mut line, TIMEOUT_MS), [0]);
        assert_eq!(taken(&mut line, TIMEOUT_MS + 5), [2]);
        assert_eq!(line.next_expiry(), Stamp::ZERO);
        assert_eq!(line.len(), 1);
        assert_eq!(expired(&mut line, TIMEOUT_MS + 5), [1]);
        assert_eq!(line.next_expiry(), Stamp::NEVER);
    }
    let mut line = line(Pressure::Overloaded, &entries);
    assert_eq!(line.next_expiry(), at(OVERLOAD_TIMEOUT_MS));
    assert_eq!(taken(&mut line, 960), [2]);
    assert_eq!(expired(&mut line, 960), [1, 0]);
}

#[test]
fn reserved_threads_are_for_health_alone_and_never_the_last_thread() {
    let check = |reserve_threads, running, threads, takes_normal| {
        let mut line = Line::new(&settings(reserve_threads));
        line.push(entry(0, Class::Normal, 0, 0));
        let found = line.take(at(0), running, threads).is_some();
        assert_eq!(found, takes_normal, "{running} of {threads}");
        line.push(entry(1, Class::Health, 0, 0));
        let found = line.take(at(0), running, threads).map(|entry| entry.item);
        assert_eq!(found, Some(1));
    };
    check(0, 7, 8, true);
    check(1, 6, 8, true);
    check(1, 7, 8, false);
    check(3, 4, 8, true);
    check(3, 5, 8, false);
    check(1, 0, 1, true);
    check(2, 0, 2, true);
    check(2, 1, 2, false);
    check(9, 0, 8, true);
    check(9, 1, 8, false);
}

#[test]
fn waits_that_began_before_the_last_change_of_size_do_not_count() {
    let mut line = Line::new(&settings(0));
    for queued_ms in [0, 0, 10] {
        line.push(entry(0, Class::Normal, queued_ms, 0));
    }
    assert!(line.take(at(60), 0, 8).is_some());
    line.resized(at(60));
    for queued_ms in [60, 70, 80, 120] {
        line.push(entry(0, Class::Normal, queued_ms, 0));
    }
    for _ in 0..3 {
        assert!(line.take(at(90), 0, 8).is_some());
    }
    line.ran(Nanos::from_ms(3));
    let expect = WaitsSeen {
        taken: 1,
        over_target: 0,
        over_half: 1,
        wait_min: Some(Nanos::from_ms(30)),
        waiting_over_target: 2,
        run_median: Some(Nanos::from_ms(3)),
    };
    assert_eq!(line.look(at(131)), expect);
    let expect = WaitsSeen {
        waiting_over_target: 3,
        run_median: Some(Nanos::from_ms(3)),
        ..WaitsSeen::default()
    };
    assert_eq!(line.look(at(171)), expect);
}

#[test]
fn the_least_wait_is_that_of_the_standing_queue_whoever_goes_ahead_of_it() {
    use Class::{Health, Low, Normal};
    let mut newest = line(Pressure::Overloaded, &[(Normal, 0, 0), (Normal, 80, 0)]);
    assert_eq!(newest.take(at(80), 0, 8).map(|entry| entry.item), Some(1));
    assert_eq!(newest.look(at(80)).wait_min, Some(Nanos::from_ms(80)));
    let mut behind = line(Pressure::Saturated, &[(Low, 0, 0), (Normal, 70, 0)]);
    assert_eq!(behind.take(at(70), 0, 8).map(|entry| entry.item), Some(1));
    assert_eq!(behind.look(at(70)).wait_min, Some(Nanos::from_ms(70)));
    let mut health = line(Pressure::Saturated, &[(Normal, 0, 0), (Health, 70, 0)]);
    assert_eq!(health.take(at(70), 0, 8).map(|entry| entry.item), Some(1));
    assert_eq!(health.look(at(70)).wait_min, None);
}

#[derive(Clone, Debug)]
enum Operation {
    Push { class: Class, before_ms: u64 },
    Take,
    Expire,
    Pass { ms: u64 },
    PoolState(Pressure),
}

fn steps() -> impl Strategy<Value = Vec<Operation>> {
    let class = prop::sample::select(&Class::ALL[..]);
    let pressure = prop::sample::select(vec![
        Pressure::Calm,
        Pressure::Saturated,
        Pressure::Overloaded,
    ]);
    let before = prop_oneof![4 => Just(0_u64), 1 => 0..1_200_u64];
    let push = (class, before).prop_map(|(class, before_ms)| Operation::Push { class, before_ms });
    let step = prop_oneof![
        6 => push,
        4 => Just(Operation::Take),
        1 => Just(Operation::Expire),
        3 => (0..150_u64).prop_map(|ms| Operation::Pass { ms }),
        1 => pressure.prop_map(Operation::PoolState),
    ];
    prop::collection::vec(step, 1..300)
}

proptest! {
    /// The queue beside a plain list of all that wait.
    #[test]
    fn gives_everybody_once_in_order_and_nobody_too_late(steps in steps()) {
        let mut line = Line::new(&settings(0));
        let mut model: Vec<Entry<usize>> = Vec::new();
        let (mut now_ms, mut pressure) = (0, Pressure::Calm);
        for (item, step) in steps.into_iter().enumerate() {
            let now = at(now_ms);
            let timeout_ms = match pressure {
                Pressure::Overloaded => OVERLOAD_TIMEOUT_MS,
                Pressure::Calm | Pressure::Saturated => TIMEOUT_MS,
            };
            let in_time = |entry: &Entry<usize>| entry.wait(now) < Nanos::from_ms(timeout_ms);
            match step {
                Operation::Push { class, before_ms } => {
                    let entry = entry(item, class, now_ms, before_ms);
                    line.push(entry);
                    model.push(entry);
                }
                Operation::Take => {
                    let found = line.take(now, 0, 8);
                    let served = model.iter().filter(|entry| in_time(entry));
                    let age = |entry: &Entry<usize>| match pressure {
                        Pressure::Overloaded => entry.wait(now).0,
                        _ => u64::MAX - entry.wait(now).0,
                    };
                    let best = served.map(|entry| (entry.class, age(entry))).min();
                    prop_assert_eq!(found.as_ref().map(|entry| (entry.class, age(entry))), best);
                    if let Some(found) = found {
                        model.retain(|entry| entry.item != found.item);
                    }
                }
                Operation::Expire => {
                    let late = model.iter().any(|entry| !in_time(entry));
                    prop_assert_eq!(line.next_expiry() <= now, late);
                    while let Some(found) = line.take_expired(now) {
                        let known = model.iter().position(|entry| entry.item == found.item);
                        prop_assert!(known.is_some(), "given twice");
                        model.remove(known.unwrap());
                    }
                    prop_assert!(model.iter().all(in_time));
                }
                Operation::Pass { ms } => now_ms += ms,
                Operation::PoolState(next) => {
                    // Whoever stepped aside under one state is refused under the next, too.
                    while let Some(found) = line.take_expired(now) {
                        model.retain(|entry| entry.item != found.item);
                    }
                    pressure = next;
                    line.set_state(state(next));
                }
            }
            prop_assert_eq!(line.len(), model.len());
        }
        let end = at(now_ms + 10 * TIMEOUT_MS);
        let mut rest: Vec<usize> = std::iter::from_fn(|| line.take_expired(end)).map(|entry| entry.item).collect();
        rest.sort_unstable();
        prop_assert_eq!(rest, model.iter().map(|entry| entry.item).collect::<Vec<_>>());
        prop_assert!(line.is_empty());
    }

    #[test]
    fn a_line_that_is_as_long_as_before_takes_no_memory(rounds in 1_usize..50) {
        let mut line = Line::new(&settings(0));
        let mut capacity = None;
        for round in 0..rounds {
            let queued_ms = 10 * round as u64;
            for item in 0..100 {
                line.push(entry(item, Class::Normal, queued_ms, 0));
            }
            prop_assert_eq!(taken(&mut line, queued_ms).len(), 100);
            let found = line.waiting[Class::Normal as usize].capacity();
            prop_assert_eq!(*capacity.get_or_insert(found), found);
        }
    }
}
