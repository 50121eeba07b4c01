//! Exchanges that the servers of a group have, counted for all processes of the host.
//!
//! Each member of the group has a column of the `SharedSlots`, found by its name. Knows no rule: `group` decides.

use std::hash::{BuildHasher, BuildHasherDefault, DefaultHasher};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, AtomicUsize, Ordering};

use config::typed::UPSTREAM_SERVERS_MAX;
use ipc::stats::{SharedSlots, SlotTry};
use queueing::balancing::SlotCounters;
use telemetry::{Nanos, Stamp};

use crate::sync::invariant;

/// Servers of one group at once, those included that only end what they have.
pub(super) const MEMBERS_MAX: usize = 2 * UPSTREAM_SERVERS_MAX;

/// For so long the last slot of a member is left to other processes that wait. One that works looks within this time. One
/// that stands still, or knows of a reason not to use the member, must not keep the slot from all others.
const YIELD_MAX: Nanos = Nanos::from_ms(5);

/// Exchanges that members have, of all processes of the host.
pub(super) struct Counters {
    slots: Arc<SharedSlots>,
    /// By member: its column among the slots; `NO_COLUMN` where there is no member, or all are taken by others.
    columns: Vec<AtomicUsize>,
    /// By member: what this process has taken while there was no column.
    own: Vec<AtomicU32>,
    /// By member: since when its last slot is left to other processes; 0: it is not.
    yields_since: Vec<AtomicU64>,
    /// The column in which processes say how many of their exchanges wait.
    waiting: Option<usize>,
}

/// What the counters are at one time.
pub(super) struct CountersAt<'a> {
    counters: &'a Counters,
    now: Stamp,
}

const NO_COLUMN: usize = usize::MAX;

impl Counters {
    pub(super) fn new(group: &str, slots: &Arc<SharedSlots>) -> Self {
        Self {
            columns: (0..MEMBERS_MAX)
                .map(|_| AtomicUsize::new(NO_COLUMN))
                .collect(),
            own: (0..MEMBERS_MAX).map(|_| AtomicU32::new(0)).collect(),
            yields_since: (0..MEMBERS_MAX).map(|_| AtomicU64::new(0)).collect(),
            waiting: slots.column(hash_of(group)),
            slots: Arc::clone(slots),
        }
    }

    /// A member has this name from now on. The member that had its place had nothing more.
    pub(super) fn name(&self, member: usize, name: &str) {
        let column = self.slots.column(hash_of(name));
        self.set_column(member, column.unwrap_or(NO_COLUMN));
    }

    /// There is no such member any more, and it had nothing.
    pub(super) fn forget(&self, member: usize) {
        self.set_column(member, NO_COLUMN);
    }

    fn set_column(&self, member: usize, column: usize) {
        let before = self.columns[member].swap(column, Ordering::Relaxed);
        if before != column && before != NO_COLUMN {
            self.slots.release(before);
        }
    }

    /// Whether a member is counted for this process alone.
    pub(super) fn is_alone(&self, member: usize) -> bool {
        self.column(member) == NO_COLUMN
    }

    /// So many exchanges of this process wait.
    pub(super) fn set_waiting(&self, waiting: usize) {
        if let Some(column) = self.waiting {
            let waiting = u32::try_from(waiting).unwrap_or(u32::MAX);
            self.slots.set(column, waiting);
        }
    }

    /// The column of a member, for `give_back`.
    pub(super) fn column(&self, member: usize) -> usize {
        self.columns[member].load(Ordering::Relaxed)
    }

    /// Gives one back that was taken while the member had this column.
    pub(super) fn give_back(&self, member: usize, column: usize) {
        if column != NO_COLUMN {
            return self.slots.give_back(column);
        }
        let before = self.own[member].fetch_sub(1, Ordering::AcqRel);
        invariant!(before > 0, "a slot of an upstream is given back twice");
    }

    /// What a member has of all processes.
    pub(super) fn in_flight(&self, member: usize) -> u32 {
        // What was taken before there was a column is still there.
        let own = self.own[member].load(Ordering::Relaxed);
        match self.column(member) {
            NO_COLUMN => own,
            column => own + self.slots.count(column),
        }
    }

    pub(super) fn at(&self, now: Stamp) -> CountersAt<'_> {
        CountersAt {
            counters: self,
            now,
        }
    }

    fn try_take(&self, member: usize, limit: u32, now: Stamp) -> bool {
        let column = self.column(member);
        if column == NO_COLUMN {
            let more = |count: u32| (count < limit).then_some(count + 1);
            let taken = self.own[member].fetch_update(Ordering::AcqRel, Ordering::Relaxed, more);
            return taken.is_ok();
        }
        let others_wait = || {
            let waiting = self.waiting;
            waiting.is_some_and(|waiting| self.slots.others_have(waiting))
        };
        let since = &self.yields_since[member];
        let yields = others_wait() && !has_yielded(Stamp(since.load(Ordering::Relaxed)), now);
        let own = self.own[member].load(Ordering::Relaxed);
        match (self.slots).try_take(column, limit.saturating_sub(own), yields) {
            SlotTry::Yielded => {
                // Only the first refused look begins the time.
                let _ = since.compare_exchange(0, now.0, Ordering::Relaxed, Ordering::Relaxed);
                false
            }
            taken => {
                since.store(0, Ordering::Relaxed);
                taken == SlotTry::Taken
            }
        }
    }
}

/// Whether a slot has been left to others for long enough, since this time.
fn has_yielded(since: Stamp, now: Stamp) -> bool {
    since != Stamp::ZERO && now.since(since) >= YIELD_MAX
}

impl SlotCounters for CountersAt<'_> {
    fn in_flight(&self, member: usize) -> u32 {
        self.counters.in_flight(member)
    }

    fn try_take(&self, member: usize, limit: u32) -> bool {
        self.counters.try_take(member, limit, self.now)
    }
}

/// The same in all processes of this program, and after a restart.
pub(super) fn hash_of(name: &str) -> u64 {
    BuildHasherDefault::<DefaultHasher>::default().hash_one(name)
}

#[cfg(test)]
mod tests {
    use ipc::stats::CounterFile;

    use super::*;

    /// The counters of a group with one member, in each of two processes.
    fn two_processes(file: &CounterFile) -> [Counters; 2] {
        [0, 1].map(|row| {
            let slots = SharedSlots::shared(file.file(), row).unwrap();
            let counters = Counters::new("group", &Arc::new(slots));
            counters.name(0, "member");
            counters
        })
    }

    fn takes(counters: &Counters, now: Stamp) -> bool {
        let taken = counters.try_take(0, 1, now);
        if taken {
            counters.give_back(0, counters.column(0));
        }
        taken
    }

    #[test]
    fn a_process_that_waits_and_does_not_look_holds_no_slot_for_long() {
        let file = CounterFile::new().unwrap();
        let [one, other] = two_processes(&file);
        let mut now = Stamp(1_000_000_000);
        other.set_waiting(1);
        assert!(takes(&one, now));
        for _ in 0..3 {
            assert!(!takes(&one, now));
            assert!(!takes(&one, now.plus(Nanos(YIELD_MAX.0 - 1))));
            now = now.plus(YIELD_MAX);
            assert!(takes(&one, now));
        }
    }

    #[test]
    fn a_slot_that_another_process_has_had_is_left_to_it_again() {
        let file = CounterFile::new().unwrap();
        let [one, other] = two_processes(&file);
        let now = Stamp(1_000_000_000);
        other.set_waiting(1);
        assert!(takes(&one, now));
        assert!(!takes(&one, now));
        // While the other one has it, nothing is left to it.
        assert!(other.try_take(0, 1, now));
        let later = now.plus(YIELD_MAX);
        assert!(!takes(&one, later));
        other.give_back(0, other.column(0));
        assert!(takes(&one, later));
        assert!(!takes(&one, later));
    }
}
