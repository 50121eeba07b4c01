//! A group by tables, by random sequences of what can happen to it, and by simulated fleets.

mod fleet;
mod learning;
mod random_events;
mod tables;

use std::cell::RefCell;

use telemetry::{Nanos, Stamp};

use super::*;

/// Counters as one process has them.
#[derive(Default)]
struct Counters(RefCell<Vec<u32>>);

impl Counters {
    fn new(len: usize) -> Counters {
        Counters(RefCell::new(vec![0; len]))
    }

    fn release(&self, member: usize) {
        self.0.borrow_mut()[member] -= 1;
    }
}

impl SlotCounters for Counters {
    fn in_flight(&self, member: usize) -> u32 {
        self.0.borrow()[member]
    }

    fn try_take(&self, member: usize, limit: u32) -> bool {
        let count = &mut self.0.borrow_mut()[member];
        let is_free = *count < limit;
        *count += u32::from(is_free);
        is_free
    }
}

fn member(name: &str, slots: Option<u32>) -> MemberSettings {
    MemberSettings {
        name: name.to_owned(),
        weight: 1,
        slots,
        backup: false,
    }
}

fn members(len: usize, slots: Option<u32>) -> Vec<MemberSettings> {
    (0..len)
        .map(|number| member(&format!("s{number}"), slots))
        .collect()
}

fn at_ms(ms: u64) -> Stamp {
    Stamp::ZERO.plus(Nanos::from_ms(1_000_000 + ms))
}

fn ask(now: Stamp) -> Ask<'static> {
    Ask {
        now,
        excluded: &[],
        key_hash: None,
        sticky: None,
        waiting: 0,
    }
}

fn served(ms: u64) -> Outcome {
    Outcome::Served {
        latency: Nanos::from_ms(ms),
        status: 200,
    }
}
