//! The next thing to do about the processes: which of them are started, replaced, drained or killed, and when the next
//! generation takes over. Pure: values in, actions out; the supervisor performs them and asks again.
//!
//! ```text
//!            start                ready                drain, or worn and replaced
//!  (a slot) ───────► STARTING ──────────► READY ─────────────────────────────────► DRAINING ──► ended
//!     ▲                 │                   │                                         │
//!     └── policy ◄──────┴─ fails, too late ─┴── crashes                               └─ too late: killed
//! ```
//!
//! No process that serves in a wanted slot is drained before another serves there. The property test walks it.

use std::time::{Duration, Instant};

use ipc::Role;

use super::plan::GenerationPlan;
use super::process::ProcessState;
use super::restart_policy::{RestartDecision, RestartHistory};

/// What a decision needs to know of all processes, at one moment.
pub(super) struct Fleet<'f> {
    pub(super) plan: &'f GenerationPlan,
    /// Of the generations that the plan names, the one that serves first.
    pub(super) generations: Vec<Slots<'f>>,
    pub(super) processes: Vec<ProcessFacts>,
}

/// What a generation is to have, and what has become of it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Slots<'f> {
    pub(super) generation: u64,
    /// By slot.
    pub(super) lives: &'f [RestartHistory],
    /// Of the process that forks the others, where one does.
    pub(super) template: Option<&'f RestartHistory>,
    /// Something is waited for before any process is started.
    pub(super) is_awaited: bool,
    /// Time that a start may take.
    pub(super) start_limit: Option<Duration>,
}

/// One process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct ProcessFacts {
    pub(super) serial: u64,
    pub(super) role: Role,
    pub(super) generation: u64,
    pub(super) slot: usize,
    pub(super) state: ProcessState,
    pub(super) started: Instant,
    /// It is to be replaced.
    pub(super) is_worn: bool,
}

/// What is to be done. Processes are named by their serials.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ProcessAction {
    /// Start what is missing.
    Start {
        generation: u64,
        role: Role,
        slot: usize,
    },
    /// Start a successor in the slot of this one, which is worn.
    Replace(u64),
    /// Let this one, which is worn, end when its connections have: its successor serves.
    DrainReplaced(u64),
    /// Let it end when its connections have.
    Drain(u64),
    /// It drains for too long.
    EndLateDrain(u64),
    /// It starts for too long.
    EndLateStart(u64),
    /// All of the next generation serves.
    Promote,
    /// No process serves, and none is started any more.
    GiveUp,
}

impl Fleet<'_> {
    /// The most urgent things to do, all of one kind; none, when only an event or a deadline brings more.
    pub(super) fn next(&self, now: Instant) -> Vec<ProcessAction> {
        let late = self.late(now);
        if !late.is_empty() || self.plan.is_stopping() {
            return late;
        }
        // What is missing is started before anything ends, because a start takes longest.
        let missing = self.missing(now);
        if !missing.is_empty() {
            return missing;
        }
        let one = self
            .promotion()
            .or_else(|| self.replaced())
            .or_else(|| self.replacement(now));
        if let Some(action) = one {
            return vec![action];
        }
        // After all that must be started: what drains may be needed as long as its successor is not there.
        let surplus = self.surplus();
        if surplus.is_empty() && self.is_hopeless(now) {
            return vec![ProcessAction::GiveUp];
        }
        surplus
    }

    /// When the next of its deadlines is.
    pub(super) fn due(&self, now: Instant) -> Option<Instant> {
        let deadlines = self.processes.iter().filter_map(|one| self.deadline(one));
        let histories = self.generations.iter().flat_map(Slots::histories);
        // Also where starts are given up: a worn process in the slot may have a successor then.
        let waits = histories.filter_map(|life| life.resting_until(now));
        let waits = waits.filter(|_| !self.plan.is_stopping());
        // A start that may happen now is no deadline: it has been done before the supervisor sleeps.
        deadlines.chain(waits).min()
    }

    fn deadline(&self, process: &ProcessFacts) -> Option<Instant> {
        match process.state {
            ProcessState::Draining { deadline } => Some(deadline),
            ProcessState::Starting => {
                let limit = self.slots(process.generation)?.start_limit?;
                Some(process.started + limit)
            }
            ProcessState::Ready | ProcessState::Killed(_) => None,
        }
    }

    fn late(&self, now: Instant) -> Vec<ProcessAction> {
        let is_late = |one: &&ProcessFacts| self.deadline(one).is_some_and(|end| end <= now);
        let late = self.processes.iter().filter(is_late);
        late.map(|one| match one.state {
            ProcessState::Draining { .. } => ProcessAction::EndLateDrain(one.serial),
            _ => ProcessAction::EndLateStart(one.serial),
        })
        .collect()
    }

    /// What the generations lack and may start now.
    fn missing(&self, now: Instant) -> Vec<ProcessAction> {
        let may_start = |life: &RestartHistory| life.next(now) == RestartDecision::Start;
        let mut missing = Vec::new();
        for slots in self.generations.iter().filter(|slots| !slots.is_awaited) {
            let generation = slots.generation;
            let mut start = |role, slot| {
                missing.push(ProcessAction::Start {
                    generation,
                    role,
                    slot,
                });
            };
            if let Some(life) = slots.template
                && self.template(generation).is_none()
                && may_start(life)
            {
                start(Role::Template, 0);
            }
            // A template that is not ready cannot fork: its `Ready` brings this decision again.
            for (slot, life) in slots
                .lives
                .iter()
                .enumerate()
                .filter(|_| self.can_start(slots))
            {
                let mut there = self.at(generation, slot);
                if !there.any(ProcessFacts::is_coming_or_ready) && may_start(life) {
                    start(Role::Serving, slot);
                }
            }
        }
        missing
    }

    fn promotion(&self) -> Option<ProcessAction> {
        let next = self.slots(self.plan.next()?)?;
        // Whole or not at all: half a generation would serve with two versions of the application at once.
        self.is_whole(next).then_some(ProcessAction::Promote)
    }

    /// A worn process whose successor serves.
    fn replaced(&self) -> Option<ProcessAction> {
        let serving = self.plan.serving()?;
        let has_successor = |worn: &&ProcessFacts| {
            let mut there = self.at(serving, worn.slot);
            worn.is_worn && there.any(|one| one.is_ready() && !one.is_worn)
        };
        // The successor may have worn out as well before it could take over: then a third one is started first.
        let mut ready = self.ready(serving);
        Some(ProcessAction::DrainReplaced(
            ready.find(has_successor)?.serial,
        ))
    }

    /// A worn process that may have a successor: one at a time, and only when nothing else is out of order.
    fn replacement(&self, now: Instant) -> Option<ProcessAction> {
        let slots = self.slots(self.plan.serving()?)?;
        let is_starting = |one: &ProcessFacts| one.state == ProcessState::Starting;
        // A successor beside each worn process would double the memory of the server at once.
        let is_busy = self.processes.iter().any(is_starting) || self.plan.next().is_some();
        if is_busy || !self.is_whole(slots) || !self.can_start(slots) {
            return None;
        }
        // Never given up: what is at fault may be mended while the worn process serves.
        let may_start = |slot: usize| {
            let life = slots.lives.get(slot);
            life.is_some_and(|life| life.resting_until(now).is_none())
        };
        let mut ready = self.ready(slots.generation);
        let worn = ready.find(|one| one.is_worn && may_start(one.slot))?;
        Some(ProcessAction::Replace(worn.serial))
    }

    /// Processes of old generations, and those beyond the count.
    fn surplus(&self) -> Vec<ProcessAction> {
        let is_wanted = |one: &ProcessFacts| {
            let slots = self.slots(one.generation);
            slots.is_some_and(|slots| one.role == Role::Template || one.slot < slots.lives.len())
        };
        let there = self.processes.iter();
        let surplus = there.filter(|one| one.is_coming_or_ready() && !is_wanted(one));
        surplus
            .map(|one| ProcessAction::Drain(one.serial))
            .collect()
    }

    /// No slot has a process, and none is tried any more.
    fn is_hopeless(&self, now: Instant) -> bool {
        let slots = |id: Option<u64>| self.slots(id?);
        // A generation that is discarded meanwhile has no slots any more, and decides nothing.
        match (slots(self.plan.serving()), slots(self.plan.next())) {
            // The next one may be the remedy.
            (Some(_), Some(_)) | (None, None) => false,
            (Some(serving), None) => {
                let mut all = self.processes.iter();
                serving.has_given_up(now)
                    && !all.any(|one| one.role == Role::Serving && one.is_ready())
            }
            // It takes over whole or not at all.
            (None, Some(next)) => next.has_gaps_for_good(now),
        }
    }

    /// Whether all slots have a process that serves.
    fn is_whole(&self, slots: &Slots<'_>) -> bool {
        (0..slots.lives.len())
            .all(|slot| self.at(slots.generation, slot).any(ProcessFacts::is_ready))
    }

    fn can_start(&self, slots: &Slots<'_>) -> bool {
        let template = self.template(slots.generation);
        slots.template.is_none() || template.is_some_and(ProcessFacts::is_ready)
    }

    fn template(&self, generation: u64) -> Option<&ProcessFacts> {
        self.processes.iter().find(|one| {
            (one.generation, one.role) == (generation, Role::Template) && one.is_coming_or_ready()
        })
    }

    fn slots(&self, generation: u64) -> Option<&Slots<'_>> {
        let mut all = self.generations.iter();
        all.find(|slots| slots.generation == generation)
    }

    fn at(&self, generation: u64, slot: usize) -> impl Iterator<Item = &ProcessFacts> {
        self.processes.iter().filter(move |one| {
            (one.role, one.generation, one.slot) == (Role::Serving, generation, slot)
        })
    }

    fn ready(&self, generation: u64) -> impl Iterator<Item = &ProcessFacts> {
        self.processes.iter().filter(move |one| {
            (one.role, one.generation) == (Role::Serving, generation) && one.is_ready()
        })
    }
}

impl<'f> Slots<'f> {
    fn histories(&self) -> impl Iterator<Item = &'f RestartHistory> + use<'f> {
        self.lives.iter().chain(self.template)
    }

    /// Whether nothing more is tried for some slot.
    pub(super) fn has_gaps_for_good(&self, now: Instant) -> bool {
        // The generation will never be whole then.
        self.histories()
            .any(|life| life.next(now) == RestartDecision::GiveUp)
    }

    /// Whether nothing more is tried for any slot.
    fn has_given_up(&self, now: Instant) -> bool {
        let given_up = |life: &RestartHistory| life.next(now) == RestartDecision::GiveUp;
        self.template.is_some_and(given_up) || self.lives.iter().all(given_up)
    }
}

impl ProcessFacts {
    fn is_ready(&self) -> bool {
        self.state == ProcessState::Ready
    }

    fn is_coming_or_ready(&self) -> bool {
        matches!(self.state, ProcessState::Starting | ProcessState::Ready)
    }
}

#[cfg(test)]
mod tests;
