//! The table of a driver's connections: deadlines, what each is doing, and how to wake it.
//!
//! Deadlines are plain numbers that a connection overwrites, which costs a store per request; a scan a
//! few times a second wakes those that have passed. Ten thousand connections are 500 KB in a row: tens
//! of microseconds a scan.

use std::sync::Arc;
use std::task::Waker;

use queueing::{Awaited, Idling};
use telemetry::Stamp;

use crate::exchange::ownership::{After, Returned};
use crate::exchange::stream::StreamShared;
use crate::sync::invariant;
use telemetry::counters::Doing;

/// A driver's connections.
#[derive(Default)]
pub(crate) struct Table {
    slots: Vec<Option<Slot>>,
    free: Vec<usize>,
}

struct Slot {
    deadline: Stamp,
    /// Since when it does what it does.
    since: Stamp,
    doing: Doing,
    /// What it waits for while it is idle.
    awaited: Awaited,
    /// Woken by its deadline or by a change of the driver's state; reset by the connection.
    fired: Fired,
    waker: Option<Waker>,
    /// What it shares with workers, where it has one stream at a time.
    stream: Option<Arc<StreamShared>>,
}

/// Whether the driver has woken a connection.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) enum Fired {
    #[default]
    No,
    Yes,
    /// It is idle, and others need its place.
    Crowded,
}

impl Table {
    pub(crate) fn enter(
        &mut self,
        stream: Option<Arc<StreamShared>>,
        now: Stamp,
        deadline: Stamp,
    ) -> usize {
        let slot = Slot {
            deadline,
            since: now,
            doing: Doing::Idle,
            awaited: Awaited::FirstRequest,
            fired: Fired::No,
            waker: None,
            stream,
        };
        // The slot that was freed last is in the cache still, and the table stays as short as it can.
        let Some(index) = self.free.pop() else {
            self.slots.push(Some(slot));
            return self.slots.len() - 1;
        };
        let before = self.slots[index].replace(slot);
        invariant!(before.is_none(), "slot {index} of the table is taken twice");
        index
    }

    pub(crate) fn leave(&mut self, index: usize) {
        let left = self.slots[index].take();
        invariant!(left.is_some(), "slot {index} of the table is left twice");
        let has_taken = self.free.len() < self.slots.len();
        invariant!(has_taken, "more slots of the table are free than it has");
        // Only now: a slot on the free list twice would be given to two connections, which would wake and cut each
        // other.
        self.free.push(index);
    }

    pub(crate) fn len(&self) -> usize {
        self.slots.len() - self.free.len()
    }

    /// Remembers how to wake the connection's task; once per task is enough.
    pub(crate) fn set_waker(&mut self, index: usize, waker: &Waker) {
        self.slot(index).waker = Some(waker.clone());
    }

    pub(crate) fn set(&mut self, index: usize, doing: Doing, deadline: Stamp) {
        let slot = self.slot(index);
        if doing != Doing::Idle {
            slot.awaited = Awaited::NextRequest;
        }
        slot.doing = doing;
        slot.deadline = deadline;
    }

    /// As `set` for a connection that has been idle since `since`.
    pub(crate) fn set_idle(&mut self, index: usize, since: Stamp, deadline: Stamp) {
        let slot = self.slot(index);
        slot.doing = Doing::Idle;
        slot.awaited = Awaited::NextRequest;
        slot.since = since;
        slot.deadline = deadline;
    }

    /// Whether the connection was woken by its deadline or by the driver, which is reset; and its deadline.
    pub(crate) fn take_fired(&mut self, index: usize) -> (Fired, Stamp) {
        let slot = self.slot(index);
        (std::mem::take(&mut slot.fired), slot.deadline)
    }

    /// Whether the connection is idle, and since when it does what it does.
    pub(crate) fn idle_since(&mut self, index: usize) -> (bool, Stamp) {
        let slot = self.slot(index);
        (slot.doing == Doing::Idle, slot.since)
    }

    /// Connections that are to be woken at `now`: those whose deadline has passed, those that have been idle
    /// for longer than they may, and the `surplus` that have been idle for the longest time.
    pub(crate) fn due(&self, now: Stamp, idling: Idling, surplus: usize) -> Vec<usize> {
        let mut due = Vec::new();
        let mut idle = Vec::new();
        let mut leaving = 0;
        for (index, slot) in self.slots.iter().enumerate() {
            let Some(slot) = slot else { continue };
            let idle_since = slot.idle_since();
            if slot.deadline <= now {
                // Perhaps only to be looked at: where requests take long there always is one, and none of
                // them makes room.
                due.push(index);
            } else if idle_since.is_some_and(|since| since.plus(idling.max(slot.awaited)) <= now) {
                due.push(index);
                leaving += 1;
            } else if surplus > 0
                && let Some(since) = idle_since
                && since.plus(idling.surplus_min(slot.awaited)) <= now
            {
                idle.push((since, index));
            }
        }
        // By time, then by index: those that have been idle for longest come first.
        idle.sort_unstable();
        let oldest = idle.into_iter().take(surplus.saturating_sub(leaving));
        due.extend(oldest.map(|(_, index)| index));
        due
    }

    /// Wakes one of those that were due at `now`, unless it has done something since.
    pub(crate) fn fire(&mut self, index: usize, now: Stamp) {
        // It has ended since `due`, in a batch before this one.
        let Some(slot) = &mut self.slots[index] else {
            return;
        };
        if slot.deadline <= now {
            slot.fire(Fired::Yes);
        } else if slot.idle_since().is_some_and(|since| since <= now) {
            slot.fire(Fired::Crowded);
        }
    }

    /// Puts back that others need the place of a connection, which is awake.
    pub(crate) fn mark_crowded(&mut self, index: usize) {
        self.slot(index).fired = Fired::Crowded;
    }

    /// Wakes every connection.
    pub(crate) fn fire_all(&mut self) {
        for slot in self.slots.iter_mut().flatten() {
            slot.fire(Fired::Yes);
        }
    }

    /// Wakes those that have become WebSocket connections, and those that may have streams that have.
    pub(crate) fn fire_websockets(&mut self) {
        let slots = self.slots.iter_mut().flatten();
        slots
            .filter(|slot| slot.doing == Doing::WebSocket || slot.stream.is_none())
            .for_each(|slot| slot.fire(Fired::Yes));
    }

    /// How many connections are doing what.
    pub(crate) fn count(&self) -> [u32; Doing::COUNT] {
        let mut counts = [0; Doing::COUNT];
        for slot in self.slots.iter().flatten() {
            let doing = slot.idle_since().map_or(slot.doing, |_| Doing::Idle);
            counts[doing as usize] += 1;
        }
        counts
    }

    fn slot(&mut self, index: usize) -> &mut Slot {
        self.slots[index]
            .as_mut()
            .expect("a connection's slot is its own until it leaves")
    }
}

impl Slot {
    /// Since when it has been idle, if it is: one whose reply came back silently is, though its task has not
    /// seen it.
    fn idle_since(&self) -> Option<Stamp> {
        match self.doing {
            Doing::Idle => Some(self.since),
            Doing::Away => {
                let stream = self.stream.as_ref()?;
                let is_kept = stream.ownership.returned() == Some(Returned::Out(After::Keep));
                is_kept.then(|| stream.progress_at())
            }
            _ => None,
        }
    }

    fn fire(&mut self, fired: Fired) {
        self.fired = fired;
        // By reference: a task is woken many times and registers once.
        if let Some(waker) = &self.waker {
            waker.wake_by_ref();
        }
    }
}

#[cfg(test)]
mod tests {
    use telemetry::Nanos;

    use super::*;

    const NOW: Stamp = Stamp(10_000_000_000);

    fn before(ms: u64) -> Stamp {
        Stamp(NOW.0 - Nanos::from_ms(ms).0)
    }

    fn enter(table: &mut Table) -> usize {
        let stream = Arc::new(StreamShared::default());
        table.enter(Some(stream), before(9_000), Stamp::NEVER)
    }

    fn idle(table: &mut Table, ms: u64, deadline: Stamp) -> usize {
        let index = enter(table);
        table.set_idle(index, before(ms), deadline);
        index
    }

    #[test]
    #[should_panic(expected = "invariant violated")]
    fn a_slot_is_left_once() {
        let mut table = Table::default();
        let index = enter(&mut table);
        table.leave(index);
        table.leave(index);
    }

    #[test]
    #[should_panic(expected = "slot 0 of the table is taken twice")]
    fn a_slot_has_one_connection() {
        let mut table = Table::default();
        let index = enter(&mut table);
        // As if it had been left.
        table.free.push(index);
        enter(&mut table);
    }

    #[test]
    fn a_look_at_somebody_makes_no_room_for_others() {
        let mut table = Table::default();
        for _ in 0..3 {
            let away = enter(&mut table);
            table.set(away, Doing::Away, NOW);
        }
        let looked_at = idle(&mut table, 1_000, NOW);
        let [older, younger] = [500, 400].map(|ms| idle(&mut table, ms, Stamp::NEVER));
        let due = table.due(NOW, idling(30_000, 60_000), 1);
        assert!(due.contains(&looked_at) && due.contains(&older), "{due:?}");
        assert!(!due.contains(&younger), "{due:?}");
        // A connection that leaves for another reason does.
        let due = table.due(NOW, idling(30_000, 500), 1);
        assert!(due.contains(&older) && !due.contains(&younger), "{due:?}");
    }

    fn idling(head_ms: u64, idle_ms: u64) -> Idling {
        Idling::new(0, 1, Nanos::from_ms(head_ms), Nanos::from_ms(idle_ms))
    }

    #[test]
    fn who_has_sent_nothing_yet_keeps_its_place_for_a_second() {
        let mut table = Table::default();
        let silent = |table: &mut Table, ms| table.enter(None, before(ms), Stamp::NEVER);
        let newer = silent(&mut table, 999);
        assert!(table.due(NOW, idling(30_000, 60_000), 9).is_empty());
        let older = silent(&mut table, 1_000);
        assert_eq!(table.due(NOW, idling(30_000, 60_000), 9), [older]);
        // The time between two requests is no bound for the first one.
        assert!(table.due(NOW, idling(30_000, 1), 0).is_empty());
        // While the server drains it is still one that has sent nothing.
        table.set(newer, Doing::Idle, Stamp::NEVER);
        assert_eq!(table.due(NOW, idling(30_000, 60_000), 9), [older]);
        table.set(newer, Doing::Reading, Stamp::NEVER);
        table.set_idle(newer, before(100), Stamp::NEVER);
        assert_eq!(table.due(NOW, idling(30_000, 60_000), 9), [older, newer]);
    }

    #[test]
    fn who_has_only_just_become_idle_keeps_its_place() {
        let mut table = Table::default();
        idle(&mut table, 99, Stamp::NEVER);
        let away = enter(&mut table);
        table.set(away, Doing::Away, Stamp::NEVER);
        assert!(table.due(NOW, idling(30_000, 60_000), 2).is_empty());
        let old = idle(&mut table, 100, Stamp::NEVER);
        assert_eq!(table.due(NOW, idling(30_000, 60_000), 2), [old]);
    }
}
