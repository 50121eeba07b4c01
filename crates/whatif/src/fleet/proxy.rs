//! A proxy of a fleet: what waits there, and who gets it.
//!
//! Takes requests by number and what comes back from servers, gives requests with their servers. It must not know how
//! long anything takes.

use std::cell::Cell;
use std::collections::VecDeque;

use queueing::balancing::{
    Ask, Choice, Group, GroupSettings, LoadReport, MemberSettings, Outcome, SlotCounters,
};
use telemetry::{Nanos, Stamp};

use super::{Balance, Fleet, Limits};

/// More than any server ever has.
const UNLIMITED: u32 = 1 << 24;

/// Requests that a proxy has at each server.
#[derive(Debug)]
struct InFlight(Vec<Cell<u32>>);

impl SlotCounters for InFlight {
    fn in_flight(&self, member: usize) -> u32 {
        self.0[member].get()
    }

    fn try_take(&self, member: usize, limit: u32) -> bool {
        let is_free = self.0[member].get() < limit;
        self.0[member].update(|count| count + u32::from(is_free));
        is_free
    }
}

/// A proxy at a moment.
#[derive(Debug)]
pub(super) struct Proxy {
    /// `None`: the central queue.
    group: Option<Group>,
    in_flight: InFlight,
    waiting: VecDeque<usize>,
    /// When it next looks although nothing has happened.
    wakes_at: Stamp,
}

impl Proxy {
    pub(super) fn new(fleet: &Fleet) -> Proxy {
        let members = fleet.servers.iter().enumerate().map(|(index, _)| {
            let name = format!("server {}", index + 1);
            MemberSettings {
                name,
                weight: 1,
                slots: (fleet.limits == Limits::None).then_some(UNLIMITED),
                backup: false,
            }
        });
        let group = match fleet.balance {
            Balance::Central => None,
            Balance::By(rule) => {
                let settings = GroupSettings {
                    rule,
                    slots_max: match fleet.limits {
                        Limits::None => UNLIMITED,
                        Limits::Reported | Limits::Learnt => GroupSettings::default().slots_max,
                    },
                    ..GroupSettings::default()
                };
                Some(Group::new(settings, members.collect()))
            }
        };
        Proxy {
            group,
            in_flight: InFlight(vec![Cell::new(0); fleet.servers.len()]),
            waiting: VecDeque::new(),
            wakes_at: Stamp::NEVER,
        }
    }

    /// A request has come.
    pub(super) fn push(&mut self, request: usize) {
        self.waiting.push_back(request);
    }

    /// The request that goes to a server now, and which.
    pub(super) fn next(
        &mut self,
        now: Stamp,
        fleet: &Fleet,
        random: &mut fastrand::Rng,
    ) -> Option<(usize, usize)> {
        let request = self.waiting.pop_front()?;
        let server = match &mut self.group {
            None => self.central(fleet, random),
            Some(group) => {
                let ask = Ask {
                    now,
                    excluded: &[],
                    key_hash: None,
                    sticky: None,
                    waiting: u32::try_from(self.waiting.len()).unwrap_or(u32::MAX),
                };
                match group.choose(&ask, &self.in_flight, random) {
                    Choice::Taken(server) => Some(server),
                    Choice::Wait | Choice::Nobody => None,
                }
            }
        };
        if server.is_none() {
            self.waiting.push_front(request);
        }
        Some((request, server?))
    }

    /// The fastest server with a free thread, of equal ones any.
    fn central(&self, fleet: &Fleet, random: &mut fastrand::Rng) -> Option<usize> {
        let (mut best, mut equal) = (None, 0);
        for (index, server) in fleet.servers.iter().enumerate() {
            if self.in_flight.in_flight(index) >= server.threads {
                continue;
            }
            let slower = |other: usize| fleet.servers[other].slower;
            let is_faster = best.is_none_or(|best| server.slower < slower(best));
            let is_equal = best.is_some_and(|best| server.slower == slower(best));
            equal = if is_faster {
                1
            } else {
                equal + u32::from(is_equal)
            };
            if is_faster || (is_equal && random.u32(0..equal) == 0) {
                best = Some(index);
            }
        }
        let best = best?;
        self.in_flight.0[best].update(|count| count + 1);
        Some(best)
    }

    /// A response has come after `latency`.
    pub(super) fn ended(&mut self, now: Stamp, server: usize, latency: Nanos) {
        let in_flight = self.in_flight.in_flight(server);
        assert!(in_flight > 0, "what comes back was sent");
        if let Some(group) = &mut self.group {
            let served = Outcome::Served {
                latency,
                status: 200,
            };
            group.ended(server, now, in_flight, served);
        }
        self.in_flight.0[server].set(in_flight - 1);
    }

    /// A report has come.
    pub(super) fn reported(&mut self, server: usize, load: LoadReport) {
        if let Some(group) = &mut self.group {
            group.reported(server, load);
        }
    }

    /// When to look again although nothing happens, where that is sooner than was said before.
    pub(super) fn wake(&mut self, now: Stamp) -> Option<Stamp> {
        let group = self.group.as_ref().filter(|_| !self.waiting.is_empty())?;
        let next = group.next_change(now);
        let is_due = self.wakes_at <= now;
        if next == Stamp::NEVER || (!is_due && self.wakes_at <= next) {
            return None;
        }
        self.wakes_at = next;
        Some(next)
    }
}
