//! Any sequence of events, with a supervisor that performs actions in memory.

use std::collections::BTreeMap;

use proptest::prelude::*;

use super::*;
use crate::commands::Ending;
use crate::plan::{PlanAction, PlanEvent, PlanState, ReloadRequest};
use config::failure::Failure;

/// A generation in memory.
#[derive(Clone, Debug)]
struct Wanted {
    lives: Vec<RestartHistory>,
    template: Option<RestartHistory>,
}

/// What a supervisor would have.
struct World {
    plan: GenerationPlan,
    generations: BTreeMap<u64, Wanted>,
    processes: Vec<ProcessFacts>,
    made: u64,
    serial: u64,
    now: Instant,
    is_preloaded: bool,
    /// Starts that cannot even begin, from here on.
    failing_starts: usize,
}

#[derive(Clone, Debug)]
enum Happening {
    /// The process of this index, modulo their number, reports that it can serve.
    Ready(usize),
    AllReady,
    Crash(usize),
    Wear(usize),
    Scale(usize),
    Reload(usize),
    Wait(u64),
    FailStarts(usize),
    Stop,
}

fn happening() -> impl Strategy<Value = Happening> {
    prop_oneof![
        8 => any::<usize>().prop_map(Happening::Ready),
        4 => Just(Happening::AllReady),
        4 => any::<usize>().prop_map(Happening::Crash),
        3 => any::<usize>().prop_map(Happening::Wear),
        2 => (1..5_usize).prop_map(Happening::Scale),
        2 => (1..5_usize).prop_map(Happening::Reload),
        3 => (1..60_000_u64).prop_map(Happening::Wait),
        1 => (1..7_usize).prop_map(Happening::FailStarts),
        1 => Just(Happening::Stop),
    ]
}

const LIMIT: Duration = Duration::from_secs(30);
const DRAIN: Duration = Duration::from_secs(20);

impl World {
    fn new(count: usize, is_preloaded: bool) -> World {
        let mut world = World {
            plan: PlanState::Starting { next: 1 }.into(),
            generations: BTreeMap::new(),
            processes: Vec::new(),
            made: 0,
            serial: 0,
            now: Instant::now(),
            is_preloaded,
            failing_starts: 0,
        };
        world.make(count);
        world
    }

    fn make(&mut self, count: usize) -> u64 {
        self.made += 1;
        let wanted = Wanted {
            lives: vec![RestartHistory::default(); count],
            template: self.is_preloaded.then(RestartHistory::default),
        };
        self.generations.insert(self.made, wanted);
        self.made
    }

    fn fleet(&self) -> Fleet<'_> {
        let generations = self.generations.iter();
        Fleet {
            plan: &self.plan,
            generations: generations
                .map(|(generation, wanted)| Slots {
                    generation: *generation,
                    lives: &wanted.lives,
                    template: wanted.template.as_ref(),
                    is_awaited: false,
                    start_limit: Some(LIMIT),
                })
                .collect(),
            processes: self.processes.clone(),
        }
    }

    /// Slots of the generation that serves which a process serves in.
    fn ready_slots(&self) -> usize {
        let fleet = self.fleet();
        let Some(slots) = self.plan.serving().and_then(|id| fleet.slots(id)) else {
            return 0;
        };
        let ready = (0..slots.lives.len()).filter(|slot| {
            let mut there = fleet.at(slots.generation, *slot);
            there.any(ProcessFacts::is_ready)
        });
        ready.count()
    }

    /// As the supervisor does, until there is nothing more to do.
    fn reconcile(&mut self) -> Result<(), TestCaseError> {
        for _ in 0..1000 {
            let actions = self.fleet().next(self.now);
            if actions.is_empty() {
                return self.check();
            }
            for action in actions {
                let (serving, before) = (self.plan.serving(), self.ready_slots());
                self.perform(action)?;
                if self.plan.serving() == serving && !self.plan.is_stopping() {
                    let after = self.ready_slots();
                    prop_assert!(
                        after >= before,
                        "{:?} leaves {} of {}",
                        action,
                        after,
                        before
                    );
                }
            }
        }
        Err(TestCaseError::fail("actions never end"))
    }

    /// Whatever is lacking has been started, or may not be started yet.
    fn check(&self) -> Result<(), TestCaseError> {
        let fleet = self.fleet();
        if self.plan.is_stopping() {
            return Ok(());
        }
        for slots in &fleet.generations {
            let has_template = slots.template.is_none() || fleet.can_start(slots);
            for (slot, life) in slots.lives.iter().enumerate().filter(|_| has_template) {
                let is_there = fleet
                    .at(slots.generation, slot)
                    .any(ProcessFacts::is_coming_or_ready);
                let may_start = life.next(self.now) == RestartDecision::Start;
                prop_assert!(is_there || !may_start, "slot {} stays empty", slot);
            }
        }
        if let Some(next) = self.plan.next().and_then(|id| fleet.slots(id)) {
            prop_assert!(
                !fleet.is_whole(next),
                "generation {} waits",
                next.generation
            );
        }
        // Each wait has an end that wakes the supervisor.
        let histories = fleet.generations.iter().flat_map(Slots::histories);
        for life in histories {
            if let RestartDecision::Wait(until) = life.next(self.now) {
                prop_assert!(fleet.due(self.now).is_some_and(|due| due <= until));
            }
        }
        Ok(())
    }

    fn find(&mut self, serial: u64) -> Result<&mut ProcessFacts, TestCaseError> {
        let found = self.processes.iter_mut().find(|one| one.serial == serial);
        match found.filter(|one| !matches!(one.state, ProcessState::Killed(_))) {
            Some(found) => Ok(found),
            None => Err(TestCaseError::fail("an action on a process that has ended")),
        }
    }

    fn perform(&mut self, action: ProcessAction) -> Result<(), TestCaseError> {
        match action {
            ProcessAction::Start {
                generation,
                role,
                slot,
            } => self.start(generation, role, slot),
            ProcessAction::Replace(serial) => {
                let worn = *self.find(serial)?;
                self.start(worn.generation, Role::Serving, worn.slot);
            }
            ProcessAction::Drain(serial) | ProcessAction::DrainReplaced(serial) => {
                let deadline = self.now + DRAIN;
                let process = self.find(serial)?;
                prop_assert!(process.is_coming_or_ready(), "{:?} is drained", process);
                drain(process, deadline);
            }
            ProcessAction::EndLateDrain(serial) => {
                self.find(serial)?.state = ProcessState::Killed(Ending::Meant);
            }
            ProcessAction::EndLateStart(serial) => {
                self.find(serial)?.state = ProcessState::Killed(Ending::Fault);
            }
            ProcessAction::Promote => self.handle(PlanEvent::NextServes),
            ProcessAction::GiveUp => {
                self.handle(PlanEvent::Hopeless);
                prop_assert!(self.plan.is_stopping());
            }
        }
        Ok(())
    }

    fn start(&mut self, generation: u64, role: Role, slot: usize) {
        if self.failing_starts > 0 {
            self.failing_starts -= 1;
            return self.failed(generation, role, slot, None);
        }
        self.serial += 1;
        self.processes.push(ProcessFacts {
            serial: self.serial,
            role,
            generation,
            slot,
            state: ProcessState::Starting,
            started: self.now,
            is_worn: false,
        });
    }

    /// A start has failed, or a process that served for so long has crashed.
    fn failed(&mut self, generation: u64, role: Role, slot: usize, served: Option<Duration>) {
        let now = self.now;
        let wanted = self.generations.get_mut(&generation);
        let life = wanted.and_then(|wanted| match role {
            Role::Template => wanted.template.as_mut(),
            Role::Serving => wanted.lives.get_mut(slot),
            Role::AcmeClient | Role::Admin => None,
        });
        if let Some(life) = life {
            life.ended(served, now);
        }
        let is_next = self.plan.next() == Some(generation) && self.plan.serving().is_some();
        if served.is_none() && is_next {
            self.handle(PlanEvent::NextFailed(Failure::default()));
        }
    }

    fn handle(&mut self, event: PlanEvent) {
        let (plan, actions) = std::mem::take(&mut self.plan).step(event);
        self.plan = plan;
        for action in actions {
            match action {
                PlanAction::Prepare(request) => {
                    let count = request.overrides.processes.unwrap_or(1);
                    let next = self.make(count);
                    self.handle(PlanEvent::Prepared { next, request });
                }
                PlanAction::TakeOver { old, .. } => {
                    old.map(|old| self.generations.remove(&old));
                }
                PlanAction::BeginStop { .. } => {
                    let deadline = self.now + DRAIN;
                    let all = self.processes.iter_mut();
                    all.filter(|one| one.is_coming_or_ready())
                        .for_each(|one| drain(one, deadline));
                }
                PlanAction::Discard(id) => drop(self.generations.remove(&id)),
                _ => {}
            }
        }
    }

    /// The process of an index has ended; what was killed, is killed by then.
    fn end(&mut self, index: usize) {
        let one = self.processes.remove(index);
        let served = Some(self.now - one.started).filter(|_| one.is_ready());
        let is_fault = one.is_coming_or_ready() || one.state == ProcessState::Killed(Ending::Fault);
        if is_fault {
            self.failed(one.generation, one.role, one.slot, served);
        }
    }

    fn happen(&mut self, happening: &Happening) {
        let len = self.processes.len().max(1);
        match *happening {
            Happening::Ready(index) => {
                if let Some(one) = self.processes.get_mut(index % len)
                    && one.state == ProcessState::Starting
                {
                    one.state = ProcessState::Ready;
                }
            }
            Happening::AllReady => (0..len).for_each(|index| self.happen(&Happening::Ready(index))),
            Happening::Crash(index) if index % len < self.processes.len() => self.end(index % len),
            Happening::Crash(_) => {}
            Happening::Wear(index) => {
                if let Some(one) = self.processes.get_mut(index % len) {
                    one.is_worn = one.is_ready() && one.role == Role::Serving;
                }
            }
            Happening::Scale(count) => {
                let serving = self.plan.serving().filter(|_| self.plan.next().is_none());
                if let Some(wanted) = serving.and_then(|id| self.generations.get_mut(&id)) {
                    wanted.lives.resize(count, RestartHistory::default());
                }
            }
            Happening::Reload(count) => {
                let mut request = ReloadRequest::default();
                request.overrides.processes = Some(count);
                self.handle(PlanEvent::Reload(request));
            }
            Happening::Wait(ms) => self.now += Duration::from_millis(ms),
            Happening::FailStarts(len) => self.failing_starts = len,
            Happening::Stop => self.handle(PlanEvent::Stop(None)),
        }
    }
}

/// As the supervisor does: what has no connections is killed.
fn drain(process: &mut ProcessFacts, deadline: Instant) {
    process.state = match (process.state, process.role) {
        (ProcessState::Ready, Role::Serving) => ProcessState::Draining { deadline },
        _ => ProcessState::Killed(Ending::Meant),
    };
}

#[test]
fn a_worn_process_is_replaced_however_often_a_start_has_failed() {
    let mut world = World::new(1, false);
    world.reconcile().unwrap();
    world.happen(&Happening::AllReady);
    world.reconcile().unwrap();
    world.failing_starts = 20;
    world.happen(&Happening::Wear(0));
    while world.failing_starts > 0 {
        world.reconcile().unwrap();
        let due = world.fleet().due(world.now);
        world.now = due.expect("another start is tried");
    }
    world.reconcile().unwrap();
    world.happen(&Happening::AllReady);
    world.reconcile().unwrap();
    let ready = world.processes.iter().filter(|one| one.is_ready());
    assert_eq!(ready.map(|one| one.serial).collect::<Vec<_>>(), [2]);
}

#[test]
fn a_generation_that_is_awaited_starts_nothing() {
    for is_preloaded in [false, true] {
        let world = World::new(2, is_preloaded);
        let mut fleet = world.fleet();
        assert!(!fleet.next(world.now).is_empty());
        fleet.generations[0].is_awaited = true;
        assert_eq!(fleet.next(world.now), []);
    }
}

proptest! {
    #[test]
    fn no_sequence_of_events_leaves_fewer_processes_than_can_be(
        all in proptest::collection::vec(happening(), 0..60),
        count in 1..4_usize,
        is_preloaded: bool,
    ) {
        let mut world = World::new(count, is_preloaded);
        world.reconcile()?;
        for happening in &all {
            world.happen(happening);
            world.reconcile()?;
        }
        // When nothing fails any more, all that is promised serves in the end, or the server has given up.
        world.failing_starts = 0;
        for _ in 0..200 {
            world.happen(&Happening::Wait(10_000));
            world.reconcile()?;
            world.processes.retain(|one| !matches!(one.state, ProcessState::Killed(Ending::Meant)));
            while let Some(killed) = world.processes.iter().position(|one| {
                matches!(one.state, ProcessState::Killed(Ending::Fault))
            }) {
                world.end(killed);
            }
            world.happen(&Happening::AllReady);
            world.reconcile()?;
        }
        let fleet = world.fleet();
        if let Some(slots) = world.plan.serving().and_then(|id| fleet.slots(id))
            && !world.plan.is_stopping()
        {
            let given_up = slots.has_gaps_for_good(world.now);
            prop_assert!(fleet.is_whole(slots) || given_up);
            // Where a successor can be started, however often that has failed, no worn process is left.
            let can_replace = fleet.is_whole(slots) && fleet.can_start(slots);
            prop_assert!(!can_replace || !fleet.ready(slots.generation).any(|one| one.is_worn));
        }
        let is_old = |one: &&ProcessFacts| {
            world.plan.is_stopping() || fleet.slots(one.generation).is_none()
        };
        let of_others = world.processes.iter().filter(is_old);
        prop_assert_eq!(of_others.count(), 0, "an old process was never ended");
    }
}
