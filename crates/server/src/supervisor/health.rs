//! Looking after processes that run: whether their drivers answer, whether connections wait in vain, whether
//! they are worn.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use super::commands::{Ending, duration};
use super::life::Next;
use super::process::{Process, State};
use super::recycling::Wear;
use super::{Supervisor, say};
use crate::channel::{EarKey, Order};

/// Beats that a driver has to miss in a row: after one alone, the machine may have stood still.
const MISSED_MAX: u32 = 3;
/// How often processes with bounds are looked at.
const WEAR_EVERY: Duration = Duration::from_secs(1);

/// What was seen when.
#[derive(Debug, Default)]
pub(super) struct Health {
    beats_due: Option<Instant>,
    looks_due: Option<Instant>,
    wear_due: Option<Instant>,
    /// Sockets in which connections wait: what their driver had accepted when that was first seen.
    waiting: BTreeMap<(u16, u16), Wait>,
    /// Sockets that somebody else accepts from as well: place of that process, and as which driver.
    rescues: BTreeMap<(u16, u16), Rescue>,
}

#[derive(Clone, Copy, Debug)]
struct Wait {
    accepted: u64,
    since: Instant,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Rescue {
    pub(super) generation: u64,
    pub(super) slot: usize,
    pub(super) driver: u16,
}

/// A driver that accepts from a socket.
struct Holder {
    generation: u64,
    slot: usize,
    driver: u16,
}

impl Supervisor<'_> {
    /// Does what is due.
    pub(super) fn look_after(&mut self, now: Instant) {
        self.notifier.watchdog(now);
        self.sockets.retire(now);
        if self.stopping.is_some() {
            return;
        }
        self.answer_scaling();
        let Some(serving) = &self.serving else { return };
        let heartbeat = duration(serving.config.processes.heartbeat_timeout);
        let stall = duration(serving.config.listen.driver_stall);
        if heartbeat > Duration::ZERO && is_due(&mut self.health.beats_due, now, heartbeat / 3) {
            self.beat(heartbeat);
        }
        if stall > Duration::ZERO && is_due(&mut self.health.looks_due, now, stall / 2) {
            self.look_for_stalls(now, stall);
        }
        let has_bounds = self.processes.iter().any(|one| one.bounds.is_any());
        if has_bounds && is_due(&mut self.health.wear_due, now, WEAR_EVERY) {
            self.look_for_wear(now);
        }
    }

    /// When something is due next.
    pub(super) fn due(&self, now: Instant) -> Instant {
        let far = now + super::SLEEP_MAX;
        let mut due = far;
        let mut at = |time: Option<Instant>| due = due.min(time.unwrap_or(far));
        at(self.notifier.due());
        at(self.sockets.due());
        at(self.control.as_ref().and_then(super::Control::deadline));
        at(self.watch.as_ref().and_then(super::Watch::due));
        at(self.probe.as_ref().map(|probe| probe.deadline));
        if self.serving.is_some() {
            at(self.health.beats_due);
            at(self.health.looks_due);
            at(self.health.wear_due);
        }
        for process in &self.processes {
            at(match process.state {
                State::Draining { deadline } => Some(deadline),
                State::Starting => self
                    .start_limit(process)
                    .map(|limit| process.started + limit),
                State::Ready | State::Killed(_) => None,
            });
        }
        if self.stopping.is_none() {
            let both = [&self.serving, &self.coming];
            for generation in both.into_iter().flatten() {
                for life in generation.lives.iter().chain([&generation.template]) {
                    if let Next::Wait(until) = life.next(now) {
                        at(Some(until));
                    }
                }
            }
        }
        due
    }

    /// Counts who has answered the last beat, and sends the next.
    fn beat(&mut self, timeout: Duration) {
        let counters = &self.counters;
        for process in &mut self.processes {
            if !process.is_serving() {
                continue;
            }
            let answered = process
                .segment
                .and_then(|segment| counters.beat_of(&segment).ok());
            let pulse = &mut process.pulse;
            match answered {
                Some(beat) if beat < pulse.sent => pulse.missed += 1,
                _ => pulse.missed = 0,
            }
            if pulse.missed >= MISSED_MAX {
                say(&format!(
                    "{}: a driver has not answered for {:.0} s: the process is killed and replaced",
                    process.name(),
                    timeout.as_secs_f64()
                ));
                process.kill_for(Ending::Fault);
                continue;
            }
            let next = process.pulse.sent + 1;
            process.pulse.sent = next;
            process.tell(Order::Beat(next), Vec::new());
        }
    }

    fn look_for_wear(&mut self, now: Instant) {
        for process in &mut self.processes {
            if !process.is_serving() || process.worn.is_some() || !process.bounds.is_any() {
                continue;
            }
            let requests = process
                .segment
                .and_then(|segment| self.counters.received_of(&segment).ok());
            let wear = Wear {
                requests: requests.unwrap_or(0),
                age: now.saturating_duration_since(process.started),
                resident_bytes: process.pid().map_or(0, super::reports::resident_bytes),
            };
            process.worn = process.bounds.passed(&wear);
        }
    }

    /// A connection that waits although its driver has accepted nothing for a while is somebody else's.
    fn look_for_stalls(&mut self, now: Instant, stall: Duration) {
        let depths = self.sockets.waiting();
        let mut changed = Vec::new();
        for depth in depths {
            let socket = (depth.address, depth.index);
            let Some(holder) = self.holder(socket) else {
                continue;
            };
            let accepted = self.accepted_by(&holder);
            let is_rescued = self.health.rescues.contains_key(&socket);
            if depth.waiting == 0 && !is_rescued {
                self.health.waiting.remove(&socket);
                continue;
            }
            let wait = self.health.waiting.entry(socket).or_insert(Wait {
                accepted,
                since: now,
            });
            if wait.accepted != accepted {
                *wait = Wait {
                    accepted,
                    since: now,
                };
                if is_rescued {
                    changed.push((socket, None));
                }
            } else if !is_rescued && now.saturating_duration_since(wait.since) >= stall {
                changed.push((socket, self.rescuer(&holder)));
            }
        }
        for (socket, rescue) in changed {
            match rescue {
                Some(rescue) => {
                    self.health.rescues.insert(socket, rescue);
                }
                None => {
                    self.health.rescues.remove(&socket);
                }
            }
        }
    }

    /// Rescues whose rescuer still serves.
    pub(super) fn rescues(&self) -> impl Iterator<Item = ((u16, u16), Rescue)> + '_ {
        self.health
            .rescues
            .iter()
            .map(|(socket, rescue)| (*socket, *rescue))
            .filter(|(_, rescue)| {
                self.at(rescue.generation, rescue.slot)
                    .any(Process::is_serving)
            })
    }

    fn holder(&self, (address, index): (u16, u16)) -> Option<Holder> {
        let rescue = self.health.rescues.get(&(address, index));
        self.processes
            .iter()
            .filter(|one| one.is_serving())
            .find_map(|one| {
                let key = one.heard.iter().find(|key: &&EarKey| {
                    let is_rescuer = rescue.is_some_and(|rescue| {
                        rescue.slot == one.slot
                            && rescue.generation == one.generation
                            && rescue.driver == key.driver
                    });
                    (key.address, key.index) == (address, index) && !is_rescuer
                })?;
                Some(Holder {
                    generation: one.generation,
                    slot: one.slot,
                    driver: key.driver,
                })
            })
    }

    fn accepted_by(&self, holder: &Holder) -> u64 {
        let process = self
            .at(holder.generation, holder.slot)
            .find(|one| one.is_serving());
        let counted = process
            .and_then(|one| one.segment)
            .and_then(|segment| self.counters.drivers_of(&segment).ok());
        let driver = counted.and_then(|drivers| drivers.into_iter().nth(holder.driver.into()));
        driver.map_or(0, |driver| driver.accepted)
    }

    /// The driver with the fewest connections, another process's if there is one.
    fn rescuer(&self, stuck: &Holder) -> Option<Rescue> {
        let mut best: Option<((bool, u64), Rescue)> = None;
        for process in self.processes.iter().filter(|one| one.is_serving()) {
            let Some(drivers) = process
                .segment
                .and_then(|segment| self.counters.drivers_of(&segment).ok())
            else {
                continue;
            };
            let is_same = (process.generation, process.slot) == (stuck.generation, stuck.slot);
            for (driver, counted) in (0_u16..).zip(&drivers) {
                if is_same && driver == stuck.driver {
                    continue;
                }
                let rank = (is_same, u64::from(counted.open));
                let rescue = Rescue {
                    generation: process.generation,
                    slot: process.slot,
                    driver,
                };
                if best.is_none_or(|(least, _)| rank < least) {
                    best = Some((rank, rescue));
                }
            }
        }
        best.map(|(_, rescue)| rescue)
    }
}

/// Whether it is time, and when the next time is.
fn is_due(due: &mut Option<Instant>, now: Instant, every: Duration) -> bool {
    match due {
        Some(at) if *at > now => false,
        _ => {
            let every = every.max(Duration::from_millis(20));
            let first = due.is_none();
            *due = Some(now + every);
            !first
        }
    }
}
