//! An upstream group: its members, and how many exchanges each has.
//!
//! All drivers of a process share it. It decides which member answers an exchange, by the arithmetic of
//! `queueing`, and counts the exchanges that members have: a `UpstreamSlot` is a place at one of them.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use config::typed::{Upstream, UpstreamServer};
use telemetry::Stamp;

use crate::sync::invariant;

/// One group of upstreams, as a process knows it.
pub(crate) struct UpstreamGroup {
    pub(super) settings: Upstream,
    /// By member: exchanges that it has.
    in_flight: Vec<AtomicU32>,
}

/// A place of one exchange at a member; given back when it is dropped.
pub(crate) struct UpstreamSlot {
    group: Arc<UpstreamGroup>,
    pub(super) member: usize,
}

impl UpstreamGroup {
    pub(crate) fn new(settings: &Upstream) -> Arc<Self> {
        Arc::new(Self {
            in_flight: settings.servers.iter().map(|_| AtomicU32::new(0)).collect(),
            settings: settings.clone(),
        })
    }

    /// A place at the member that is to answer next, none of which was tried; `None`: each one has as many exchanges as it
    /// may have.
    pub(super) fn take_slot(
        self: &Arc<Self>,
        _now: Stamp,
        tried: &[usize],
    ) -> Option<UpstreamSlot> {
        let in_flight = |member: usize| self.in_flight[member].load(Ordering::Relaxed);
        loop {
            let members = (0..self.in_flight.len()).filter(|member| !tried.contains(member));
            let free = members.filter(|&member| in_flight(member) < self.limit(member));
            let member = free.min_by_key(|&member| in_flight(member))?;
            if let Some(slot) = self.try_take(member, self.limit(member)) {
                return Some(slot);
            }
        }
    }

    /// A place at this member, unless it has `limit` exchanges.
    fn try_take(self: &Arc<Self>, member: usize, limit: u32) -> Option<UpstreamSlot> {
        let more = |count: u32| (count < limit).then_some(count + 1);
        let taken = self.in_flight[member].fetch_update(Ordering::AcqRel, Ordering::Relaxed, more);
        taken.is_ok().then(|| UpstreamSlot {
            group: Arc::clone(self),
            member,
        })
    }

    /// How many exchanges a member may have.
    fn limit(&self, member: usize) -> u32 {
        let slots = self.settings.servers[member].slots;
        slots.unwrap_or(self.settings.slots_max)
    }

    pub(super) fn server(&self, member: usize) -> &UpstreamServer {
        &self.settings.servers[member]
    }

    /// Exchanges that the members have together.
    pub(crate) fn in_flight(&self) -> usize {
        let counts = self.in_flight.iter();
        let counts = counts.map(|count| count.load(Ordering::Relaxed) as usize);
        counts.sum()
    }
}

impl Drop for UpstreamSlot {
    fn drop(&mut self) {
        let before = self.group.in_flight[self.member].fetch_sub(1, Ordering::AcqRel);
        invariant!(before > 0, "a slot of an upstream is given back twice");
    }
}
