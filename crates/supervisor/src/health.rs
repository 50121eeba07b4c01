//! Health of running processes: whether their drivers answer heartbeats, whether connections wait without being
//! accepted, whether a process has reached a limit of `process_*_max`.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use os::invariant;

use super::commands::{Ending, duration};
use super::listener_assignment::Holder;
use super::recycling::Wear;
use super::service_manager::Manager;
use super::sockets::SocketKey;
use super::{Supervisor, say};
use ipc::SupervisorCommand;
use ipc::stats::Placed;
use telemetry::counters::DriverStats;

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
    /// Sockets that others accept from as well, and these.
    rescues: BTreeMap<SocketKey, Vec<Holder>>,
}

/// Since when connections wait in a socket without being accepted.
#[derive(Clone, Copy, Debug)]
struct Wait {
    /// What its driver had accepted by then.
    accepted: u64,
    /// What those had accepted who come to its rescue.
    helped: u64,
    since: Instant,
}

impl Supervisor<'_> {
    /// Does what is due.
    pub(super) fn check_health(&mut self, now: Instant) {
        if let Some(every) = self.manager.watchdog_interval()
            && is_due(&mut self.health.watchdog_due, now, every)
        {
            self.tell_manager(Manager::is_alive);
        }
        self.health.retire_due = self.sockets.retire(now);
        if self.plan.is_stopping() {
            return;
        }
        self.answer_waiting(now);
        self.answer_late_stacks(now);
        let Some(serving) = self.serving() else {
            return;
        };
        let heartbeat = duration(serving.config.processes.heartbeat_timeout);
        let stall = duration(serving.config.listen.driver_stall);
        // No other driver could help the only one.
        let is_alone = serving.sockets_len() == 1;
        if heartbeat == Duration::ZERO {
            self.health.beats_due = None;
        } else if is_due(&mut self.health.beats_due, now, heartbeat / 3) {
            self.check_heartbeats(heartbeat);
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
        at(self.file_watcher.as_ref().map(|watch| {
            let left = watch.deadline().since(telemetry::now());
            now + Duration::from_nanos(left.0).min(super::SLEEP_MAX)
        }));
        at(self.certificates.due(now));
        at(self
            .generations
            .values()
            .filter_map(|one| one.awaited_until)
            .min());
        at(self.plan.probe().map(|probe| probe.deadline));
        at(self.answers.deadline());
        at(self.stacks.deadline());
        at(self.acme_client_due(now));
        at(self.admin_due(now));
        at(self.history.as_ref().map(super::history::History::due));
        // Nobody beats before the first generation serves, and who stops may be silent.
        if self.plan.serving().is_some() && !self.plan.is_stopping() {
            at(self.health.beats_due);
            at(self.health.looks_due);
            at(self.health.wear_due);
        }
        at(self.fleet().due(now));
        due
    }

    /// Counts who has answered the last beat, and sends the next.
    fn check_heartbeats(&mut self, timeout: Duration) {
        for process in &mut self.processes {
            if !process.is_serving() {
                continue;
            }
            let beats = process.drivers().iter().map(|one| one.heartbeat.count());
            let answered = beats.min();
            let pulse = &mut process.pulse;
            match answered {
                // A beat that is not answered by the next one is missed; an answer to the last one starts the count
                // anew.
                Some(beat) if beat < pulse.sent => pulse.missed += 1,
                _ => pulse.missed = 0,
            }
            // Its connections are lost, but they are stuck already; those that wait in its sockets are not, because the
            // sockets are the supervisor's.
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
            process.tell(SupervisorCommand::Heartbeat(next), Vec::new());
        }
    }

    fn look_for_wear(&mut self, now: Instant) {
        for process in &mut self.processes {
            if !process.is_serving() || process.worn.is_some() || !process.bounds.is_any() {
                continue;
            }
            let wear = Wear {
                requests: (process.drivers().iter())
                    .map(|one| one.received.count())
                    .sum(),
                age: now.saturating_duration_since(process.started),
                resident_bytes: process.pid().map_or(0, super::status::resident_bytes),
            };
            // Only noted: the fleet decides when its successor may start, one at a time.
            process.worn = process.bounds.passed(&wear);
        }
    }

    /// A connection that waits although its driver has accepted nothing for a while is given to another driver.
    fn look_for_stalls(&mut self, now: Instant, stall: Duration) {
        // A rescuer that does not come either gets another one beside it.
        let holders = self.holders();
        let mut stuck = Vec::new();
        for (socket, depth) in self.sockets.waiting() {
            if let Some(holder) = holders.get(&socket)
                && self.is_stuck(socket, holder, depth.waiting, now, stall)
            {
                stuck.push((socket, *holder));
            }
        }
        // A driver that is late with one socket is likely to be late with another: it is asked last.
        let under_rescue = self.health.rescues.keys();
        let suspects = under_rescue.filter_map(|socket| holders.get(socket));
        let suspects = suspects.chain(stuck.iter().map(|(_, holder)| holder));
        let suspects: BTreeSet<u64> = suspects.map(|holder| holder.process).collect();
        for (socket, holder) in stuck {
            let Some(rescue) = self.rescuer(socket, &holder, &suspects) else {
                continue;
            };
            let rescues = self.health.rescues.entry(socket).or_default();
            // Asked twice, a driver would count as two that help.
            invariant!(
                !rescues.contains(&rescue),
                "driver {} of process {} is to rescue a socket twice",
                rescue.driver,
                rescue.process
            );
            rescues.push(rescue);
            let helped = self.helped(socket);
            if let Some(wait) = self.health.waiting.get_mut(&socket) {
                (wait.helped, wait.since) = (helped, now);
            }
            self.tell_start_accepting(rescue.process, &[rescue.listener(socket)]);
        }
    }

    /// Whether connections have waited in a socket for so long.
    fn is_stuck(
        &mut self,
        socket: SocketKey,
        holder: &Holder,
        waiting: u32,
        now: Instant,
        stall: Duration,
    ) -> bool {
        // When its driver is back, its rescue ends.
        let is_rescued = self.health.rescues.contains_key(&socket);
        if waiting == 0 && !is_rescued {
            self.health.waiting.remove(&socket);
            return false;
        }
        let seen = Wait {
            accepted: self.accepted_by(holder),
            helped: self.helped(socket),
            since: now,
        };
        let wait = self.health.waiting.entry(socket).or_insert(seen);
        // Any accept by the driver itself shows that it is back, however many still wait.
        if wait.accepted != seen.accepted {
            *wait = Wait { helped: 0, ..seen };
            for rescue in self.health.rescues.remove(&socket).unwrap_or_default() {
                self.tell_stop_accepting(rescue.process, &[rescue.listener(socket)]);
            }
            return false;
        }
        // A rescuer that accepts is given the whole time again: only one that does not come either gets another beside it.
        if waiting == 0 || wait.helped != seen.helped {
            *wait = seen;
        }
        now.saturating_duration_since(wait.since) >= stall
    }

    /// No driver accepts from another's socket any more.
    pub(super) fn end_rescues(&mut self) {
        // What was seen is about holders that may have changed: the next look begins anew.
        self.health.waiting.clear();
        for (socket, rescues) in std::mem::take(&mut self.health.rescues) {
            for rescue in rescues {
                self.tell_stop_accepting(rescue.process, &[rescue.listener(socket)]);
            }
        }
    }

    /// What a driver has accepted from its own sockets.
    fn accepted_by(&self, holder: &Holder) -> u64 {
        self.driver(holder).map_or(0, |driver| {
            let accepted = driver.accepted.count();
            accepted - driver.stall_takeovers.count().min(accepted)
        })
    }

    /// What those have accepted, from wherever, who come to a socket's rescue.
    fn helped(&self, socket: SocketKey) -> u64 {
        let rescues = self.health.rescues.get(&socket);
        let rescues = rescues.into_iter().flatten();
        rescues
            .filter_map(|rescue| Some(self.driver(rescue)?.accepted.count()))
            .sum()
    }

    fn driver(&self, holder: &Holder) -> Option<&Placed<DriverStats>> {
        let mut all = self.processes.iter();
        let process = all.find(|one| one.serial == holder.process)?;
        process.drivers().get(usize::from(holder.driver))
    }

    /// The driver with the fewest connections that has not come to this socket's rescue yet; another process's if
    /// there is one, and best one that is not stuck itself.
    fn rescuer(
        &self,
        socket: SocketKey,
        stuck: &Holder,
        suspects: &BTreeSet<u64>,
    ) -> Option<Holder> {
        let asked = self.health.rescues.get(&socket);
        let asked = asked.map_or(&[][..], Vec::as_slice);
        let mut best = None;
        for process in self.processes.iter().filter(|one| one.is_serving()) {
            let serial = process.serial;
            let is_asked = asked.iter().any(|rescue| rescue.process == serial);
            let is_suspect = is_asked || suspects.contains(&serial);
            let is_same = serial == stuck.process;
            for (driver, counted) in (0_u16..).zip(process.drivers()) {
                let rescue = Holder {
                    process: serial,
                    driver,
                };
                if (is_same && driver == stuck.driver) || asked.contains(&rescue) {
                    continue;
                }
                // In this order: one that is stuck itself would not come, and of the others another process is the
                // surest to be alive.
                let rank = (is_suspect, is_same, counted.open.load(Ordering::Relaxed));
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
            // The first time only begins the count: nothing has happened yet that could be looked at.
            !first
        }
    }
}
