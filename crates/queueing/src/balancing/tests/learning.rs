//! Slots that nobody tells.

use super::super::slot_search::{Lowering, SlotSearch};
use super::fleet::{Arriving, Demand, Found, ServerKind, run};
use super::*;

fn alone(threads: u32, mean_us: f64, clients: usize, secs: u64) -> Found {
    let kind = ServerKind {
        threads,
        slower: 1.0,
        reports: false,
    };
    let load = Arriving::Clients(clients);
    let demand = Demand {
        mean_us,
        load,
        secs,
    };
    run(Rule::Queue, &[kind], None, demand)
}

#[test]
fn a_fast_server_soon_has_all_that_it_can_use() {
    // It answers all 64 clients at once: every slot fewer costs throughput.
    let found = alone(64, 200.0, 64, 2);
    assert!(
        found.group.slots(0, found.end) >= 64,
        "{:?}",
        found.completed
    );
    let best = 64.0 / 200e-6 * 0.2;
    let last = found.completed[9] as f64;
    assert!(
        last > 0.98 * best,
        "{last} of {best}: {:?}",
        found.completed
    );
    // After a second it is nearly there.
    assert!(
        found.completed[5] as f64 > 0.95 * best,
        "{:?}",
        found.completed
    );
}

#[test]
fn a_server_may_have_what_it_answers_within_a_millisecond() {
    // One thread, 10 us each: 64 requests there wait for 0.64 ms.
    let found = alone(1, 10.0, 64, 1);
    let slots = found.group.slots(0, found.end);
    assert!((64..=110).contains(&slots), "{slots}");
    // A server that is slower has those that were found, whatever waits.
    let found = alone(1, 1_000.0, 64, 1);
    let slots = found.group.slots(0, found.end);
    assert!(slots <= 16, "{slots}");
}

#[test]
fn a_quick_server_that_becomes_slow_has_what_was_found_before() {
    let mut search = SlotSearch::new(256);
    let found = search.limit();
    let mut now = Stamp(1_000_000_000);
    let mut complete = |search: &mut SlotSearch, times: u32, every: Nanos| {
        for _ in 0..times {
            now = now.plus(every);
            search.completed(now, found, Lowering::Allowed);
        }
    };
    complete(&mut search, 2_000, Nanos(10_000));
    assert_eq!(search.limit(), 100);
    assert!(!search.is_lowered());
    complete(&mut search, 2, Nanos::from_ms(10));
    assert_eq!(search.limit(), found);
    // No more than the settings allow.
    let mut bounded = SlotSearch::new(32);
    complete(&mut bounded, 2_000, Nanos(10_000));
    assert_eq!(bounded.limit(), 32);
}

#[test]
fn threads_that_are_not_told_are_found() {
    for (threads, secs) in [(1, 900), (4, 60), (4, 120), (6, 60), (16, 30)] {
        let found = alone(threads, 20_000.0, 64, secs);
        let (_, member) = found.group.members().next().expect("there is one");
        let (slots, most) = (member.search.found(), threads + (threads / 2).max(1));
        assert!((threads..=most).contains(&slots), "{slots} for {threads}");
        let best = f64::from(threads) / 0.02 * secs as f64;
        let all = found.completed.iter().sum::<u64>() as f64;
        // Looking for fewer costs some, the less the longer.
        assert!(all > 0.85 * best, "{all} of {best}: {:?}", found.completed);
    }
}

#[test]
fn what_came_is_not_taken_for_what_a_server_can_do() {
    // 16 threads, two of which are enough.
    let kind = ServerKind {
        threads: 16,
        slower: 1.0,
        reports: false,
    };
    let demand = Demand {
        mean_us: 20_000.0,
        load: Arriving::PerSecond(100.0),
        secs: 300,
    };
    let found = run(Rule::Queue, &[kind], None, demand);
    assert!(found.group.slots(0, found.end) >= 6);
}
