//! Any sequence of events, with a supervisor that performs actions in memory.

use std::collections::BTreeSet;

use proptest::prelude::*;

use super::*;

/// What a supervisor would have: generations, the probe, and clients with their answers.
struct World {
    plan: GenerationPlan,
    generations: BTreeSet<u64>,
    made: u64,
    probe: Option<Pid>,
    asked: u64,
    answered: BTreeSet<ClientId>,
    stops: usize,
    /// Whether the next action that can fail does.
    fails: bool,
}

fn client(number: u64) -> ClientId {
    serde_json::from_value(number.into()).unwrap()
}

fn failure() -> Failure {
    Failure::new("test")
}

impl World {
    fn new() -> World {
        World {
            plan: PlanState::Starting { next: 1 }.into(),
            generations: [1].into(),
            made: 1,
            probe: None,
            asked: 0,
            answered: BTreeSet::new(),
            stops: 0,
            fails: false,
        }
    }

    fn new_client(&mut self) -> ClientId {
        self.asked += 1;
        client(self.asked)
    }

    fn new_generation(&mut self) -> u64 {
        self.made += 1;
        self.generations.insert(self.made);
        self.made
    }

    fn handle(&mut self, event: PlanEvent) {
        let (plan, actions) = self.plan.clone().step(event);
        self.plan = plan;
        for action in actions {
            self.perform(action);
        }
    }

    fn perform(&mut self, action: PlanAction) {
        match action {
            PlanAction::Prepare(request) if self.fails => self.answer(&request.clients),
            PlanAction::Prepare(request) => {
                let next = self.new_generation();
                self.handle(PlanEvent::Prepared { next, request });
            }
            PlanAction::TakeOver { old, request } => {
                if let Some(old) = old {
                    assert!(self.generations.remove(&old));
                }
                self.answer(&request.unwrap_or_default().clients);
            }
            PlanAction::Discard(generation) => assert!(self.generations.remove(&generation)),
            PlanAction::Refuse { clients, .. } => self.answer(&clients),
            PlanAction::StartProbe(client) if self.fails => self.answer_one(client),
            PlanAction::StartProbe(client) => {
                let probe = probe(client);
                assert_eq!(self.probe.replace(probe.pid), None);
                self.handle(PlanEvent::ProbeStarted(probe));
            }
            PlanAction::KillProbe(pid) => assert_eq!(self.probe.take(), Some(pid)),
            PlanAction::BecomeNew { client, .. } => self.answer_one(client),
            PlanAction::BeginStop { generation } => {
                assert!(self.generations.contains(&generation));
                self.stops += 1;
            }
            PlanAction::Cut | PlanAction::ExitWithFault => assert!(self.plan.is_stopping()),
            PlanAction::KeepServing => assert!(self.plan.serving().is_some()),
        }
    }

    fn answer(&mut self, clients: &[ClientId]) {
        for client in clients {
            assert!(self.answered.insert(*client), "{client:?} has two answers");
        }
    }

    fn answer_one(&mut self, client: Option<ClientId>) {
        self.answer(client.as_slice());
    }

    /// Clients that wait for what the plan is at.
    fn waiting(&self) -> Vec<ClientId> {
        let own = match &self.plan.state {
            PlanState::Starting { .. } | PlanState::Steady { .. } => Vec::new(),
            PlanState::Rolling { request, .. } => request.clients.clone(),
            PlanState::Upgrading { probe, .. } => Vec::from_iter(probe.client),
            PlanState::Stopping { clients, .. } => clients.clone(),
        };
        [own, self.plan.queue.clients()].concat()
    }

    fn check(&self, before: &GenerationPlan) {
        let named = self.plan.serving().into_iter().chain(self.plan.next());
        assert_eq!(named.collect::<BTreeSet<u64>>(), self.generations);
        assert_eq!(self.plan.probe().map(|probe| probe.pid), self.probe);
        if before.serving().is_some() {
            assert!(self.plan.serving().is_some(), "nothing serves any more");
        }
        if before.is_stopping() {
            assert!(self.plan.is_stopping());
        }
        assert_eq!(self.stops, usize::from(self.plan.is_stopping()));
        let mut all: Vec<ClientId> = self.waiting();
        all.extend(&self.answered);
        all.sort_unstable();
        let expect: Vec<ClientId> = (1..=self.asked).map(client).collect();
        assert_eq!(all, expect, "each client waits or has one answer");
    }
}

fn probe(client: Option<ClientId>) -> UpgradeProbe {
    UpgradeProbe {
        pid: Pid::from_raw(7).unwrap(),
        deadline: Instant::now(),
        client,
    }
}

/// What may happen to a supervisor.
#[derive(Clone, Copy, Debug)]
enum Happening {
    Reload(ReloadCause, PoolSizes),
    Scale(usize),
    NextServes,
    NextFailed,
    NextReplaced,
    Hopeless,
    Upgrade,
    ProbePassed,
    ProbeFailed,
    Stop,
    Signal,
    Quit,
}

fn happening() -> impl Strategy<Value = Happening> {
    let cause = prop_oneof![Just(ReloadCause::Command), Just(ReloadCause::ChangedCode)];
    let sizes = prop_oneof![Just(PoolSizes::Configured), Just(PoolSizes::Kept)];
    prop_oneof![
        8 => (cause, sizes).prop_map(|(cause, sizes)| Happening::Reload(cause, sizes)),
        2 => (1..3_usize).prop_map(Happening::Scale),
        6 => Just(Happening::NextServes),
        3 => Just(Happening::NextFailed),
        2 => Just(Happening::NextReplaced),
        4 => Just(Happening::Upgrade),
        2 => Just(Happening::ProbePassed),
        2 => Just(Happening::ProbeFailed),
        1 => prop_oneof![
            Just(Happening::Hopeless),
            Just(Happening::Stop),
            Just(Happening::Signal),
            Just(Happening::Quit)
        ],
    ]
}

impl World {
    fn happen(&mut self, happening: Happening) {
        let event = match happening {
            Happening::Reload(cause, sizes) => PlanEvent::Reload(ReloadRequest {
                clients: vec![self.new_client()],
                sizes,
                cause,
                ..ReloadRequest::default()
            }),
            Happening::Scale(processes) => {
                let mut request = waiting(0, Some(processes));
                request.clients = vec![self.new_client()];
                PlanEvent::Reload(request)
            }
            Happening::NextServes => PlanEvent::NextServes,
            Happening::NextFailed => PlanEvent::NextFailed(failure()),
            Happening::NextReplaced => PlanEvent::NextReplaced {
                next: self.new_generation(),
            },
            Happening::Hopeless => PlanEvent::Hopeless,
            Happening::Upgrade => PlanEvent::Upgrade(Some(self.new_client())),
            Happening::ProbePassed | Happening::ProbeFailed => {
                // It has ended.
                self.probe = None;
                match happening {
                    Happening::ProbePassed => PlanEvent::ProbePassed,
                    _ => PlanEvent::ProbeFailed(failure()),
                }
            }
            Happening::Stop => PlanEvent::Stop(Some(self.new_client())),
            Happening::Signal => PlanEvent::Stop(None),
            Happening::Quit => PlanEvent::Quit,
        };
        self.handle(event);
    }
}

proptest! {
    #[test]
    fn no_sequence_of_events_loses_what_serves_or_a_client(
        all in proptest::collection::vec((happening(), any::<bool>()), 0..60)
    ) {
        let mut world = World::new();
        for (happening, fails) in all {
            let before = world.plan.clone();
            world.fails = fails;
            world.happen(happening);
            world.check(&before);
        }
        // Whatever is under way ends, and what waited for it is begun and ends as well.
        world.fails = true;
        for last in [Happening::ProbeFailed, Happening::NextFailed] {
            world.happen(last);
        }
        let is_over = matches!(world.plan.state, PlanState::Steady { .. } | PlanState::Stopping { .. });
        prop_assert!(is_over, "{:?}", world.plan);
        world.happen(Happening::Stop);
        world.happen(Happening::Quit);
        let is_cut = matches!(world.plan.state, PlanState::Stopping { urgency: StopMode::Cut, .. });
        prop_assert!(is_cut);
    }
}

/// Each edge of the diagram.
#[test]
fn walks_the_diagram() {
    use Happening::*;
    let reload = Reload(ReloadCause::Command, PoolSizes::Configured);
    let check = |happenings: &[Happening], expect: &str| {
        let mut world = World::new();
        for happening in happenings {
            world.happen(*happening);
        }
        let name = format!("{:?}", world.plan.state);
        assert!(name.starts_with(expect), "{happenings:?}: {name}");
    };
    check(&[], "Starting { next: 1");
    check(&[reload], "Starting { next: 1");
    check(&[Upgrade], "Starting { next: 1");
    check(&[NextFailed], "Stopping { served: None");
    check(&[NextServes], "Steady { serving: 1 }");
    check(&[NextServes, reload], "Rolling { serving: 1, next: 2");
    check(&[reload, NextServes], "Rolling { serving: 1, next: 2");
    check(&[NextServes, reload, NextServes], "Steady { serving: 2 }");
    check(&[NextServes, reload, NextFailed], "Steady { serving: 1 }");
    check(
        &[NextServes, reload, NextReplaced],
        "Rolling { serving: 1, next: 3",
    );
    check(
        &[NextServes, reload, reload, NextServes],
        "Rolling { serving: 2, next: 3",
    );
    check(
        &[NextServes, reload, Upgrade],
        "Rolling { serving: 1, next: 2",
    );
    let changed = Reload(ReloadCause::ChangedCode, PoolSizes::Configured);
    check(
        &[NextServes, reload, changed],
        "Rolling { serving: 1, next: 3",
    );
    check(&[NextServes, Upgrade], "Upgrading { serving: 1");
    check(&[NextServes, Upgrade, ProbeFailed], "Steady { serving: 1 }");
    check(&[NextServes, Upgrade, ProbePassed], "Steady { serving: 1 }");
    check(
        &[NextServes, Upgrade, reload, ProbeFailed],
        "Rolling { serving: 1, next: 2",
    );
    check(&[NextServes, Hopeless], "Stopping { served: Some(1)");
    check(&[NextServes, reload, Hopeless], "Rolling { serving: 1");
    check(&[NextServes, Upgrade, Stop], "Stopping { served: Some(1)");
    check(
        &[Stop, reload, Upgrade, NextServes],
        "Stopping { served: None",
    );
}

#[test]
fn two_reloads_that_wait_are_one_and_the_configured_sizes_win() {
    let request = |number, sizes| ReloadRequest {
        clients: vec![client(number)],
        sizes,
        ..ReloadRequest::default()
    };
    let mut queue = ReloadQueue::default();
    queue.push(request(1, PoolSizes::Configured));
    queue.push(request(2, PoolSizes::Configured));
    queue.push(request(3, PoolSizes::Kept));
    assert_eq!(queue.0.len(), 2);
    let expect = ReloadRequest {
        clients: [3, 2, 1].map(client).to_vec(),
        ..ReloadRequest::default()
    };
    assert_eq!(queue.merged(), [PlanAction::Prepare(expect)]);
}

/// A reload of client `number`, or a `scale` to so many processes.
fn waiting(number: u64, processes: Option<usize>) -> ReloadRequest {
    let mut request = ReloadRequest {
        clients: vec![client(number)],
        ..ReloadRequest::default()
    };
    request.overrides.processes = processes;
    request
}

#[test]
fn a_scale_that_a_later_request_undoes_is_refused() {
    let check = |all: &[Option<usize>], processes: Option<usize>, refused: &[u64]| {
        let mut queue = ReloadQueue::default();
        for (number, processes) in (1..).zip(all) {
            queue.push(waiting(number, *processes));
        }
        let mut done = None;
        let mut left = Vec::new();
        for action in queue.merged() {
            match action {
                PlanAction::Prepare(request) => done = Some(request.overrides.processes),
                PlanAction::Refuse { clients, .. } => left.extend(clients),
                other => panic!("{other:?}"),
            }
        }
        let refused: Vec<ClientId> = refused.iter().map(|number| client(*number)).collect();
        assert_eq!((done, left), (Some(processes), refused), "{all:?}");
    };
    check(&[None, Some(3)], Some(3), &[]);
    check(&[Some(3), None], None, &[1]);
    check(&[Some(3), Some(4)], Some(4), &[1]);
    check(&[Some(3), Some(3)], Some(3), &[]);
    // The same again is the last word.
    check(&[Some(3), None, Some(3)], Some(3), &[]);
}

#[test]
fn a_scale_that_waits_for_an_upgrade_is_refused_by_it() {
    let mut world = World::new();
    world.happen(Happening::NextServes);
    world.happen(Happening::Upgrade);
    for request in [waiting(7, None), waiting(8, Some(3))] {
        world.handle(PlanEvent::Reload(request));
    }
    let (_, actions) = world.plan.step(PlanEvent::ProbePassed);
    let [
        PlanAction::Refuse { clients, .. },
        PlanAction::BecomeNew { waiting, .. },
        ..,
    ] = &actions[..]
    else {
        panic!("{actions:?}");
    };
    assert_eq!((clients, waiting), (&vec![client(8)], &vec![client(7)]));
}
