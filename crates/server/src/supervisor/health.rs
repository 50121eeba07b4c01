//! Looking after processes that run: whether their drivers answer, whether connections wait in vain, whether
//! they are worn.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use super::assign::Holder;
use super::commands::{Ending, duration};
use super::life::Next;
use super::notify::Manager;
use super::process::{Process, State};
use super::recycling::Wear;
use super::sockets::SocketKey;
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
    watchdog_due: Option<Instant>,
    retire_due: Option<Instant>,
    /// Sockets in which connections wait: what their driver had accepted when that was first seen.
    waiting: BTreeMap<SocketKey, Wait>,
    /// Sockets that somebody else accepts from as well.
    rescues: BTreeMap<SocketKey, Rescue>,
}

#[derive(Clone, Copy, Debug)]
struct Wait {
    accepted: u64,
    since: Instant,
}

/// Who accepts from a socket as well.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Rescue {
    /// Number of the process.
    pub(super) process: u64,
    pub(super) driver: u16,
}

impl Rescue {
    pub(super) fn key(self, socket: SocketKey) -> EarKey {
        socket.ear(self.driver)
    }
}

impl Supervisor<'_> {
    /// Does what is due.
    pub(super) fn look_after(&mut self, now: Instant) {
        if let Some(every) = self.manager.watchdog_interval()
            && is_due(&mut self.health.watchdog_due, now, every)
        {
            self.tell_manager(Manager::is_alive);
        }
        self.health.retire_due = self.sockets.retire(now).next;
        if self.stopping.is_some() {
            return;
        }
        self.answer_scaling();
        self.answer_confirmed(now);
        let Some(serving) = &self.serving else { return };
        let heartbeat = duration(serving.config.processes.heartbeat_timeout);
        let stall = duration(serving.config.listen.driver_stall);
        // A driver that is alone has nobody to help it.
        let is_alone = serving.sockets_len() == 1;
        if heartbeat == Duration::ZERO {
            self.health.beats_due = None;
        } else if is_due(&mut self.health.beats_due, now, heartbeat / 3) {
            self.beat(heartbeat);
        }
        if stall == Duration::ZERO || is_alone {
            self.health.looks_due = None;
        } else if is_due(&mut self.health.looks_due, now, stall / 2) {
            self.look_for_stalls(now, stall);
        }
        // What is not looked at is never due: the supervisor would not sleep any more.
        if !self.processes.iter().any(|one| one.bounds.is_any()) {
            self.health.wear_due = None;
        } else if is_due(&mut self.health.wear_due, now, WEAR_EVERY) {
            self.look_for_wear(now);
        }
    }

    /// When something is due next.
    pub(super) fn due(&self, now: Instant) -> Instant {
        let far = now + super::SLEEP_MAX;
        let mut due = far;
        let mut at = |time: Option<Instant>| due = due.min(time.unwrap_or(far));
        at(self.health.watchdog_due);
        at(self.health.retire_due);
        at(self.control.as_ref().and_then(super::Control::deadline));
        at(self.watch.as_ref().map(|watch| {
            let left = watch.deadline().since(measure::now());
            now + Duration::from_nanos(left.0).min(super::SLEEP_MAX)
        }));
        at(self.probe.as_ref().map(|probe| probe.deadline));
        at(self.confirming.first().map(|first| first.deadline));
        if self.serving.is_some() && self.stopping.is_none() {
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
        for process in &mut self.processes {
            if !process.is_serving() {
                continue;
            }
            let answered = process
                .view
                .as_ref()
                .and_then(|view| view.beats().into_iter().min());
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
            let wear = Wear {
                requests: process.glances().iter().map(|one| one.received).sum(),
                age: now.saturating_duration_since(process.started),
                resident_bytes: process.pid().map_or(0, super::reports::resident_bytes),
            };
            process.worn = process.bounds.passed(&wear);
        }
    }

    /// A connection that waits although its driver has accepted nothing for a while is somebody else's.
    fn look_for_stalls(&mut self, now: Instant, stall: Duration) {
        let holders = self.holders();
        for (socket, depth) in self.sockets.waiting() {
            let Some(holder) = holders.get(&socket) else {
                continue;
            };
            let accepted = self.accepted_by(holder);
            let rescue = self.health.rescues.get(&socket).copied();
            if depth.waiting == 0 && rescue.is_none() {
                self.health.waiting.remove(&socket);
                continue;
            }
            let since_now = Wait {
                accepted,
                since: now,
            };
            let wait = self.health.waiting.entry(socket).or_insert(since_now);
            if wait.accepted != accepted {
                *wait = since_now;
                if let Some(rescue) = self.health.rescues.remove(&socket) {
                    self.end_rescue(socket, rescue);
                }
            } else if rescue.is_none()
                && now.saturating_duration_since(wait.since) >= stall
                && let Some(rescue) = self.rescuer(holder)
            {
                self.health.rescues.insert(socket, rescue);
                self.begin_rescue(socket, rescue);
            }
        }
    }

    /// All rescues, which end.
    pub(super) fn take_rescues(&mut self) -> BTreeMap<SocketKey, Rescue> {
        self.health.waiting.clear();
        std::mem::take(&mut self.health.rescues)
    }

    /// What a driver has accepted from its own sockets.
    fn accepted_by(&self, holder: &Holder) -> u64 {
        let process = self
            .processes
            .iter()
            .find(|one| one.serial == holder.process);
        let glances = process.map(Process::glances).unwrap_or_default();
        let driver = glances.get(usize::from(holder.driver));
        driver.map_or(0, |driver| {
            driver.accepted - driver.rescued.min(driver.accepted)
        })
    }

    /// The driver with the fewest connections, another process's if there is one.
    fn rescuer(&self, stuck: &Holder) -> Option<Rescue> {
        let mut best: Option<((bool, u64), Rescue)> = None;
        for process in self.processes.iter().filter(|one| one.is_serving()) {
            let is_same = process.serial == stuck.process;
            for (driver, counted) in (0_u16..).zip(process.glances()) {
                if is_same && driver == stuck.driver {
                    continue;
                }
                let rank = (is_same, u64::from(counted.open));
                let rescue = Rescue {
                    process: process.serial,
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
