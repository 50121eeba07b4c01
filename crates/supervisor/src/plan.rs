//! GenerationPlan of the supervisor: which generation serves, and what is to take its place.
//!
//! Takes events, gives the next plan and the actions that lead to it, in order. Pure: no I/O, no clock. The
//! supervisor performs the actions; whether one succeeded comes back as an event.
//!
//! ```text
//!             next serves              prepared               next serves
//! STARTING ──────────────► STEADY ──────────────► ROLLING ──────────────────► STEADY
//!     │                     │  ▲                     │  (or next failed: the old one goes on serving)
//!     │       probe started │  │ probe failed, or the new program could not take over
//!     │ next failed         ▼  │
//!     │                   UPGRADING ─── probe passed ───► the new program runs in this process
//!     ▼
//! STOPPING ◄──── stop, from every state
//! ```
//!
//! A reload that is asked for in STARTING, ROLLING or UPGRADING waits until that is over. All that wait are
//! answered by one reload; a `scale` among them that a later request undoes is refused.

#[cfg(test)]
mod tests;

use std::mem::take;
use std::time::Instant;

use os::invariant;
use rustix::process::Pid;
use serde::{Deserialize, Serialize};

use super::control::ClientId;
use config::failure::Failure;

/// What the supervisor is doing, and what waits until that is over.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct GenerationPlan {
    state: PlanState,
    /// Empty in STEADY and STOPPING.
    queue: ReloadQueue,
}

/// What the supervisor is doing. Generations are named by their numbers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum PlanState {
    /// The first generation has not served yet.
    Starting { next: u64 },
    /// One generation serves; nothing is to take its place.
    Steady { serving: u64 },
    /// One generation serves while the next one starts beside it.
    Rolling {
        serving: u64,
        next: u64,
        request: ReloadRequest,
    },
    /// One generation serves while the new program shows whether it can take over.
    Upgrading { serving: u64, probe: UpgradeProbe },
    /// All processes are ending.
    Stopping {
        served: Option<u64>,
        clients: Vec<ClientId>,
        urgency: StopMode,
    },
}

/// What has happened.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum PlanEvent {
    /// A signal, a client or changed code asks for a reload.
    Reload(ReloadRequest),
    /// The configuration is read, and generation `next` exists.
    Prepared {
        next: u64,
        request: ReloadRequest,
    },
    /// All processes of the next generation serve, and it has its sockets.
    NextServes,
    /// Generation `next` shows why the application failed, in place of the next generation.
    NextReplaced {
        next: u64,
    },
    NextFailed(Failure),
    /// No process of the generation can be started any more.
    Hopeless,
    Upgrade(Option<ClientId>),
    ProbeStarted(UpgradeProbe),
    ProbePassed,
    ProbeFailed(Failure),
    /// Stop; without a client it was a signal, whose repetition cuts what is still running.
    Stop(Option<ClientId>),
    /// Stop, and cut what is still running.
    Quit,
}

/// What the supervisor is to do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum PlanAction {
    /// Read the configuration, and make a generation of it.
    Prepare(ReloadRequest),
    /// The generation that the plan names serves now, in place of `old`.
    TakeOver {
        old: Option<u64>,
        request: Option<ReloadRequest>,
    },
    /// End the processes of a generation, and forget it.
    Discard(u64),
    /// Say that the generation that serves goes on after a reload failed.
    KeepServing,
    /// No client: to standard error.
    Refuse {
        clients: Vec<ClientId>,
        failure: Failure,
    },
    StartProbe(Option<ClientId>),
    KillProbe(Pid),
    /// Become the new program, which answers those who wait for a reload. On failure the client is refused.
    BecomeNew {
        client: Option<ClientId>,
        waiting: Vec<ClientId>,
    },
    /// Let all processes drain, within the time that this generation has for it.
    BeginStop {
        generation: u64,
    },
    /// Cut what is still running.
    Cut,
    /// Exit with the code for a server that could not serve.
    ExitWithFault,
}

/// A reload, and those who wait for it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct ReloadRequest {
    pub(super) clients: Vec<ClientId>,
    pub(super) overrides: Overrides,
    pub(super) sizes: PoolSizes,
    pub(super) cause: ReloadCause,
}

/// What `scale` asks for in place of the configuration.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Overrides {
    /// Processes; as configured without.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub processes: Option<usize>,
    /// Drivers of each; as configured without.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub drivers: Option<usize>,
}

/// Which sizes the pools of a new generation have.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum PoolSizes {
    /// Those of the configuration.
    #[default]
    Configured,
    /// Those that `scale --pool` gave them, where it did.
    Kept,
}

/// Why a reload happens.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum ReloadCause {
    #[default]
    Command,
    /// Code has changed, under development.
    ChangedCode,
}

/// Reloads that wait until another reload or an upgrade is over.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct ReloadQueue(Vec<ReloadRequest>);

/// The new program, started beside this one to show whether it can take over.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct UpgradeProbe {
    pub(super) pid: Pid,
    pub(super) deadline: Instant,
    pub(super) client: Option<ClientId>,
}

/// How processes end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum StopMode {
    /// After what they are doing.
    Drain,
    /// At once.
    Cut,
}

impl Default for PlanState {
    /// Nothing was ever begun.
    fn default() -> PlanState {
        PlanState::Stopping {
            served: None,
            clients: Vec::new(),
            urgency: StopMode::Drain,
        }
    }
}

impl From<PlanState> for GenerationPlan {
    fn from(state: PlanState) -> GenerationPlan {
        let queue = ReloadQueue::default();
        GenerationPlan { state, queue }
    }
}

impl GenerationPlan {
    /// What follows from an event. An event that does not concern the plan changes nothing.
    pub(super) fn step(mut self, event: PlanEvent) -> (GenerationPlan, Vec<PlanAction>) {
        let actions = match event {
            PlanEvent::Reload(request) => self.reload(request),
            PlanEvent::Prepared { next, request } => self.roll(next, request),
            PlanEvent::NextServes => self.take_over(),
            PlanEvent::NextReplaced { next } => self.replace_next(next),
            PlanEvent::NextFailed(failure) => self.fall_back(failure),
            PlanEvent::Hopeless => self.give_up(),
            PlanEvent::Upgrade(client) => self.upgrade(client),
            PlanEvent::ProbeStarted(probe) => self.begin_upgrade(probe),
            PlanEvent::ProbePassed => self.end_upgrade(None),
            PlanEvent::ProbeFailed(failure) => self.end_upgrade(Some(failure)),
            PlanEvent::Stop(client) => self.stop(client),
            PlanEvent::Quit => self.quit(),
        };
        // A reload that waits for nothing would wait for ever, and its clients with it.
        let is_idle = matches!(
            self.state,
            PlanState::Steady { .. } | PlanState::Stopping { .. }
        );
        invariant!(
            self.queue.0.is_empty() || !is_idle,
            "reloads wait in {:?}",
            self.state
        );
        (self, actions)
    }

    pub(super) fn state(&self) -> &PlanState {
        &self.state
    }

    /// The generation that serves, or served when the stop began.
    pub(super) fn serving(&self) -> Option<u64> {
        match self.state {
            PlanState::Starting { .. } => None,
            PlanState::Steady { serving }
            | PlanState::Rolling { serving, .. }
            | PlanState::Upgrading { serving, .. } => Some(serving),
            PlanState::Stopping { served, .. } => served,
        }
    }

    /// The generation that is to serve.
    pub(super) fn next(&self) -> Option<u64> {
        match self.state {
            PlanState::Starting { next } | PlanState::Rolling { next, .. } => Some(next),
            _ => None,
        }
    }

    pub(super) fn is_stopping(&self) -> bool {
        matches!(self.state, PlanState::Stopping { .. })
    }

    pub(super) fn probe(&self) -> Option<&UpgradeProbe> {
        match &self.state {
            PlanState::Upgrading { probe, .. } => Some(probe),
            _ => None,
        }
    }

    /// Whether the next generation has the pool sizes of the one that serves.
    pub(super) fn next_keeps_sizes(&self) -> bool {
        matches!(&self.state, PlanState::Rolling { request, .. } if request.sizes == PoolSizes::Kept)
    }

    fn reload(&mut self, request: ReloadRequest) -> Vec<PlanAction> {
        match &mut self.state {
            PlanState::Steady { .. } => vec![PlanAction::Prepare(request)],
            // Code that has changed again makes what is starting useless.
            PlanState::Rolling {
                serving,
                next,
                request: before,
            } if request.cause == ReloadCause::ChangedCode => {
                let (serving, clients) = (*serving, take(&mut before.clients));
                let mut actions = vec![PlanAction::Discard(*next)];
                let why = "reload: the code changed again meanwhile";
                actions.extend(refusal(clients, why));
                self.state = PlanState::Steady { serving };
                actions.extend(take(&mut self.queue).merged_with(request));
                actions
            }
            PlanState::Stopping { .. } => {
                let failure = Failure::new("reload: the server is about to end");
                vec![refuse(request.clients, failure)]
            }
            _ => {
                self.queue.push(request);
                Vec::new()
            }
        }
    }

    fn roll(&mut self, next: u64, request: ReloadRequest) -> Vec<PlanAction> {
        let PlanState::Steady { serving } = self.state else {
            let mut actions = vec![PlanAction::Discard(next)];
            let why = "reload: something else came first";
            actions.extend(refusal(request.clients, why));
            return actions;
        };
        self.state = PlanState::Rolling {
            serving,
            next,
            request,
        };
        Vec::new()
    }

    fn take_over(&mut self) -> Vec<PlanAction> {
        let (next, old, request) = match &mut self.state {
            PlanState::Starting { next } => (*next, None, None),
            PlanState::Rolling {
                serving,
                next,
                request,
            } => (*next, Some(*serving), Some(take(request))),
            _ => return Vec::new(),
        };
        // The reload that waits is begun after this one has taken over: it would otherwise replace a generation that
        // never served.
        self.state = PlanState::Steady { serving: next };
        let mut actions = vec![PlanAction::TakeOver { old, request }];
        actions.extend(self.queued());
        actions
    }

    /// One reload for all that have waited.
    fn queued(&mut self) -> Vec<PlanAction> {
        take(&mut self.queue).merged()
    }

    fn replace_next(&mut self, other: u64) -> Vec<PlanAction> {
        let replaced = match &mut self.state {
            PlanState::Starting { next } | PlanState::Rolling { next, .. } => {
                std::mem::replace(next, other)
            }
            _ => other,
        };
        // Also where nothing was replaced: a page of faults that came too late is forgotten itself.
        vec![PlanAction::Discard(replaced)]
    }

    fn fall_back(&mut self, failure: Failure) -> Vec<PlanAction> {
        let (serving, next, clients) = match &mut self.state {
            PlanState::Starting { .. } => return self.give_up(),
            PlanState::Rolling {
                serving,
                next,
                request,
            } => (*serving, *next, take(&mut request.clients)),
            _ => return Vec::new(),
        };
        self.state = PlanState::Steady { serving };
        let mut actions = vec![PlanAction::Discard(next), PlanAction::KeepServing];
        if !clients.is_empty() {
            actions.push(refuse(clients, failure));
        }
        actions.extend(self.queued());
        actions
    }

    /// While the next generation starts, it may be the remedy.
    fn give_up(&mut self) -> Vec<PlanAction> {
        if matches!(
            self.state,
            PlanState::Rolling { .. } | PlanState::Stopping { .. }
        ) {
            return Vec::new();
        }
        let mut actions = self.begin_stop(Vec::new(), StopMode::Drain);
        actions.push(PlanAction::ExitWithFault);
        actions
    }

    fn upgrade(&mut self, client: Option<ClientId>) -> Vec<PlanAction> {
        // Refused and not queued: the new program would take over a state that is about to change.
        let obstacle = match self.state {
            PlanState::Steady { .. } => return vec![PlanAction::StartProbe(client)],
            PlanState::Starting { .. } => "the server has not begun to serve yet",
            PlanState::Rolling { .. } => "a reload is under way",
            PlanState::Upgrading { .. } => "another upgrade is under way",
            PlanState::Stopping { .. } => "the server is about to end",
        };
        vec![refuse(client, Failure::new(format!("upgrade: {obstacle}")))]
    }

    fn begin_upgrade(&mut self, probe: UpgradeProbe) -> Vec<PlanAction> {
        let PlanState::Steady { serving } = self.state else {
            let mut actions = vec![PlanAction::KillProbe(probe.pid)];
            let client = probe.client.into_iter().collect();
            actions.extend(refusal(client, "upgrade: something else came first"));
            return actions;
        };
        self.state = PlanState::Upgrading { serving, probe };
        Vec::new()
    }

    fn end_upgrade(&mut self, failure: Option<Failure>) -> Vec<PlanAction> {
        let PlanState::Upgrading { serving, probe } = &self.state else {
            return Vec::new();
        };
        let client = probe.client;
        self.state = PlanState::Steady { serving: *serving };
        let mut actions = Vec::new();
        if failure.is_none() {
            // The reload by which the new program begins has what is configured.
            let unmet = self.queue.take_unmet(&Overrides::default());
            actions.extend(refusal(unmet, "scale: the server is upgraded meanwhile"));
        }
        actions.push(match failure {
            None => PlanAction::BecomeNew {
                client,
                waiting: self.queue.clients(),
            },
            Some(failure) => refuse(client, failure),
        });
        // Performed only where this program goes on.
        actions.extend(self.queued());
        actions
    }

    fn stop(&mut self, client: Option<ClientId>) -> Vec<PlanAction> {
        match (&mut self.state, client) {
            (PlanState::Stopping { clients, .. }, Some(client)) => clients.push(client),
            (PlanState::Stopping { .. }, None) => return self.quit(),
            _ => return self.begin_stop(client.into_iter().collect(), StopMode::Drain),
        }
        Vec::new()
    }

    fn quit(&mut self) -> Vec<PlanAction> {
        let PlanState::Stopping { urgency, .. } = &mut self.state else {
            let mut actions = self.begin_stop(Vec::new(), StopMode::Cut);
            actions.push(PlanAction::Cut);
            return actions;
        };
        // A second one changes nothing: what is cut cannot be cut again.
        match std::mem::replace(urgency, StopMode::Cut) {
            StopMode::Drain => vec![PlanAction::Cut],
            StopMode::Cut => Vec::new(),
        }
    }

    /// From every state but the one that it leads to.
    fn begin_stop(&mut self, clients: Vec<ClientId>, urgency: StopMode) -> Vec<PlanAction> {
        let (served, next) = (self.serving(), self.next());
        let stopping = PlanState::Stopping {
            served,
            clients,
            urgency,
        };
        let mut waiting = take(&mut self.queue).clients();
        let mut actions = Vec::new();
        let generation = served.or(next);
        actions.extend(generation.map(|generation| PlanAction::BeginStop { generation }));
        // The next one has no connections yet, and is forgotten.
        actions.extend(next.map(PlanAction::Discard));
        let why = "the server was told to stop meanwhile";
        match std::mem::replace(&mut self.state, stopping) {
            PlanState::Rolling { request, .. } => {
                waiting = [request.clients, waiting].concat();
            }
            PlanState::Upgrading { probe, .. } => {
                actions.push(PlanAction::KillProbe(probe.pid));
                let failure = Failure::new(format!("upgrade: {why}"));
                actions.push(refuse(probe.client, failure));
            }
            _ => {}
        }
        actions.extend(refusal(waiting, &format!("reload: {why}")));
        actions
    }
}

impl ReloadQueue {
    /// One more, behind all others; two that ask for the same are one.
    fn push(&mut self, mut request: ReloadRequest) {
        let is_same = |other: &ReloadRequest| {
            (&other.overrides, other.sizes, other.cause)
                == (&request.overrides, request.sizes, request.cause)
        };
        if let Some(index) = self.0.iter().position(is_same) {
            request.clients.extend(self.0.remove(index).clients);
        }
        self.0.push(request);
    }

    fn clients(&self) -> Vec<ClientId> {
        let all = self.0.iter().flat_map(|request| &request.clients);
        all.copied().collect()
    }

    /// Takes out those that ask for something else than a reload with `overrides` gives, and gives their clients.
    fn take_unmet(&mut self, overrides: &Overrides) -> Vec<ClientId> {
        let is_unmet = |request: &mut ReloadRequest| {
            request.overrides != Overrides::default() && request.overrides != *overrides
        };
        let unmet = self.0.extract_if(.., is_unmet);
        unmet.flat_map(|request| request.clients).collect()
    }

    /// One reload for all that wait, as the last one asked for it.
    fn merged(mut self) -> Vec<PlanAction> {
        match self.0.pop() {
            Some(last) => self.merged_with(last),
            None => Vec::new(),
        }
    }

    fn merged_with(mut self, mut last: ReloadRequest) -> Vec<PlanAction> {
        let mut earlier = self.0.iter();
        if earlier.any(|request| request.sizes == PoolSizes::Configured) {
            last.sizes = PoolSizes::Configured;
        }
        let unmet = self.take_unmet(&last.overrides);
        last.clients.extend(self.clients());
        let why = "scale: a later command has loaded the configuration again";
        let refused = refusal(unmet, why).into_iter();
        refused.chain([PlanAction::Prepare(last)]).collect()
    }
}

fn refuse(clients: impl IntoIterator<Item = ClientId>, failure: Failure) -> PlanAction {
    let clients = clients.into_iter().collect();
    PlanAction::Refuse { clients, failure }
}

/// Without clients nothing is said.
fn refusal(clients: Vec<ClientId>, why: &str) -> Option<PlanAction> {
    (!clients.is_empty()).then(|| refuse(clients, Failure::new(why)))
}
