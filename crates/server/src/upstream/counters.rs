//! Exchanges that the servers of a group have, counted for all processes of the host.
//!
//! Each member of the group has a column of the `SharedSlots`, found by its name. Knows no rule: `group` decides.

use std::hash::{BuildHasher, BuildHasherDefault, DefaultHasher};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicUsize, Ordering};

use ipc::stats::SharedSlots;
use queueing::balancing::SlotCounters;

use crate::sync::invariant;

/// Servers of one group at once, those included that only end what they have: names may stand for many addresses.
pub(super) const MEMBERS_MAX: usize = 256;

/// Exchanges that members have, of all processes of the host.
pub(super) struct Counters {
    slots: Arc<SharedSlots>,
    /// By member: its column among the slots; `NO_COLUMN` where all are taken by others.
    columns: Vec<AtomicUsize>,
    /// By member without a column: what this process has.
    own: Vec<AtomicU32>,
    /// The column in which processes say how many of their exchanges wait.
    waiting: Option<usize>,
}

const NO_COLUMN: usize = usize::MAX;

impl Counters {
    pub(super) fn new(group: &str, slots: &Arc<SharedSlots>) -> Self {
        Self {
            columns: (0..MEMBERS_MAX)
                .map(|_| AtomicUsize::new(NO_COLUMN))
                .collect(),
            own: (0..MEMBERS_MAX).map(|_| AtomicU32::new(0)).collect(),
            waiting: slots.column(hash_of(group)),
            slots: Arc::clone(slots),
        }
    }

    /// A member has this name from now on.
    pub(super) fn name(&self, member: usize, name: &str) {
        let column = self.slots.column(hash_of(name));
        self.columns[member].store(column.unwrap_or(NO_COLUMN), Ordering::Relaxed);
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
}

impl SlotCounters for Counters {
    fn in_flight(&self, member: usize) -> u32 {
        match self.column(member) {
            NO_COLUMN => self.own[member].load(Ordering::Relaxed),
            column => self.slots.count(column),
        }
    }

    fn try_take(&self, member: usize, limit: u32) -> bool {
        let column = self.column(member);
        if column != NO_COLUMN {
            let waiting = self.waiting;
            let yields = waiting.is_some_and(|waiting| self.slots.others_have(waiting));
            return self.slots.try_take(column, limit, yields);
        }
        let more = |count: u32| (count < limit).then_some(count + 1);
        let taken = self.own[member].fetch_update(Ordering::AcqRel, Ordering::Relaxed, more);
        taken.is_ok()
    }
}

/// The same in all processes of this program, and after a restart.
pub(super) fn hash_of(name: &str) -> u64 {
    BuildHasherDefault::<DefaultHasher>::default().hash_one(name)
}
