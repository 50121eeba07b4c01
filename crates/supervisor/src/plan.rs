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
//! answered by one reload.

#[cfg(test)]
mod tests;

use std::time::Instant;

use rustix::process::Pid;

use super::control::ClientId;
use config::failure::Failure;

/// What the supervisor is doing. Generations are named by their numbers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum GenerationPlan {
    /// The first generation has not served yet.
    Starting { next: u64, queue: ReloadQueue },
    /// One generation serves; nothing is to take its place.
    Steady { serving: u64 },
    /// One generation serves while the next one starts beside it.
    Rolling {
        serving: u64,
        next: u64,
        request: ReloadRequest,
        queue: ReloadQueue,
    },
    /// One generation serves while the new program shows whether it can take over.
    Upgrading {
        serving: u64,
        probe: UpgradeProbe,
        queue: ReloadQueue,
    },
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
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Overrides {
    /// Processes.
    pub processes: Option<usize>,
    /// Drivers of each.
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

impl Default for GenerationPlan {
    /// Nothing was ever begun.
    fn default() -> GenerationPlan {
        GenerationPlan::Stopping {
            served: None,
            clients: Vec::new(),
            urgency: StopMode::Drain,
        }
    }
}

impl GenerationPlan {
    /// What follows from an event. An event that does not concern the plan changes nothing.
    pub(super) fn step(self, event: PlanEvent) -> (GenerationPlan, Vec<PlanAction>) {
        match event {
            PlanEvent::Reload(request) => self.reload(request),
            PlanEvent::Prepared { next, request } => self.roll(next, request),
            PlanEvent::NextServes => self.take_over(),
            PlanEvent::NextReplaced { next } => self.replace_next(next),
            PlanEvent::NextFailed(failure) => self.fall_back(&failure),
            PlanEvent::Hopeless => self.give_up(),
            PlanEvent::Upgrade(client) => self.upgrade(client),
            PlanEvent::ProbeStarted(probe) => self.begin_upgrade(probe),
            PlanEvent::ProbePassed => self.end_upgrade(None),
            PlanEvent::ProbeFailed(failure) => self.end_upgrade(Some(failure)),
            PlanEvent::Stop(client) => self.stop(client),
            PlanEvent::Quit => self.quit(),
        }
    }

    /// The generation that serves, or served when the stop began.
    pub(super) fn serving(&self) -> Option<u64> {
        match self {
            GenerationPlan::Starting { .. } => None,
            GenerationPlan::Steady { serving }
            | GenerationPlan::Rolling { serving, .. }
            | GenerationPlan::Upgrading { serving, .. } => Some(*serving),
            GenerationPlan::Stopping { served, .. } => *served,
        }
    }

    /// The generation that is to serve.
    pub(super) fn next(&self) -> Option<u64> {
        match self {
            GenerationPlan::Starting { next, .. } | GenerationPlan::Rolling { next, .. } => {
                Some(*next)
            }
            GenerationPlan::Steady { .. }
            | GenerationPlan::Upgrading { .. }
            | GenerationPlan::Stopping { .. } => None,
        }
    }

    pub(super) fn is_stopping(&self) -> bool {
        matches!(self, GenerationPlan::Stopping { .. })
    }

    pub(super) fn probe(&self) -> Option<&UpgradeProbe> {
        match self {
            GenerationPlan::Upgrading { probe, .. } => Some(probe),
            _ => None,
        }
    }

    /// Whether the next generation has the pool sizes of the one that serves.
    pub(super) fn next_keeps_sizes(&self) -> bool {
        matches!(self, GenerationPlan::Rolling { request, .. } if request.sizes == PoolSizes::Kept)
    }

    fn reload(self, request: ReloadRequest) -> (GenerationPlan, Vec<PlanAction>) {
        match self {
            GenerationPlan::Steady { .. } => (self, vec![PlanAction::Prepare(request)]),
            // Code that has changed again makes what is starting useless.
            GenerationPlan::Rolling {
                serving,
                next,
                request: before,
                queue,
            } if request.cause == ReloadCause::ChangedCode => {
                let mut actions = vec![PlanAction::Discard(next)];
                let why = "reload: the code changed again meanwhile";
                actions.extend(refusal(before.clients, why));
                actions.push(PlanAction::Prepare(queue.merged_with(request)));
                (GenerationPlan::Steady { serving }, actions)
            }
            GenerationPlan::Starting { next, queue } => {
                let queue = queue.with(request);
                (GenerationPlan::Starting { next, queue }, Vec::new())
            }
            GenerationPlan::Rolling {
                serving,
                next,
                request: before,
                queue,
            } => {
                let plan = GenerationPlan::Rolling {
                    serving,
                    next,
                    request: before,
                    queue: queue.with(request),
                };
                (plan, Vec::new())
            }
            GenerationPlan::Upgrading {
                serving,
                probe,
                queue,
            } => {
                let plan = GenerationPlan::Upgrading {
                    serving,
                    probe,
                    queue: queue.with(request),
                };
                (plan, Vec::new())
            }
            GenerationPlan::Stopping { .. } => {
                let failure = Failure::new("reload: the server is about to end");
                let clients = request.clients;
                (self, vec![PlanAction::Refuse { clients, failure }])
            }
        }
    }

    fn roll(self, next: u64, request: ReloadRequest) -> (GenerationPlan, Vec<PlanAction>) {
        let GenerationPlan::Steady { serving } = self else {
            let mut actions = vec![PlanAction::Discard(next)];
            actions.extend(refusal(
                request.clients,
                "reload: something else came first",
            ));
            return (self, actions);
        };
        let queue = ReloadQueue::default();
        let plan = GenerationPlan::Rolling {
            serving,
            next,
            request,
            queue,
        };
        (plan, Vec::new())
    }

    fn take_over(self) -> (GenerationPlan, Vec<PlanAction>) {
        let (next, old, request, queue) = match self {
            GenerationPlan::Starting { next, queue } => (next, None, None, queue),
            GenerationPlan::Rolling {
                serving,
                next,
                request,
                queue,
            } => (next, Some(serving), Some(request), queue),
            plan => return (plan, Vec::new()),
        };
        let mut actions = vec![PlanAction::TakeOver { old, request }];
        actions.extend(queue.merged().map(PlanAction::Prepare));
        (GenerationPlan::Steady { serving: next }, actions)
    }

    fn replace_next(mut self, other: u64) -> (GenerationPlan, Vec<PlanAction>) {
        let replaced = match &mut self {
            GenerationPlan::Starting { next, .. } | GenerationPlan::Rolling { next, .. } => {
                std::mem::replace(next, other)
            }
            _ => other,
        };
        (self, vec![PlanAction::Discard(replaced)])
    }

    fn fall_back(self, failure: &Failure) -> (GenerationPlan, Vec<PlanAction>) {
        match self {
            GenerationPlan::Starting { .. } => self.give_up(),
            GenerationPlan::Rolling {
                serving,
                next,
                request,
                queue,
            } => {
                let mut actions = vec![PlanAction::Discard(next), PlanAction::KeepServing];
                if !request.clients.is_empty() {
                    actions.push(PlanAction::Refuse {
                        clients: request.clients,
                        failure: failure.clone(),
                    });
                }
                actions.extend(queue.merged().map(PlanAction::Prepare));
                (GenerationPlan::Steady { serving }, actions)
            }
            plan => (plan, Vec::new()),
        }
    }

    /// While the next generation starts, it may be the remedy.
    fn give_up(self) -> (GenerationPlan, Vec<PlanAction>) {
        if matches!(
            self,
            GenerationPlan::Rolling { .. } | GenerationPlan::Stopping { .. }
        ) {
            return (self, Vec::new());
        }
        let (plan, mut actions) = self.begin_stop(Vec::new(), StopMode::Drain);
        actions.push(PlanAction::ExitWithFault);
        (plan, actions)
    }

    fn upgrade(self, client: Option<ClientId>) -> (GenerationPlan, Vec<PlanAction>) {
        let obstacle = match &self {
            GenerationPlan::Steady { .. } => return (self, vec![PlanAction::StartProbe(client)]),
            GenerationPlan::Starting { .. } => "the server has not begun to serve yet",
            GenerationPlan::Rolling { .. } => "a reload is under way",
            GenerationPlan::Upgrading { .. } => "another upgrade is under way",
            GenerationPlan::Stopping { .. } => "the server is about to end",
        };
        let failure = Failure::new(format!("upgrade: {obstacle}"));
        let clients = client.into_iter().collect();
        (self, vec![PlanAction::Refuse { clients, failure }])
    }

    fn begin_upgrade(self, probe: UpgradeProbe) -> (GenerationPlan, Vec<PlanAction>) {
        let GenerationPlan::Steady { serving } = self else {
            let mut actions = vec![PlanAction::KillProbe(probe.pid)];
            let client = probe.client.into_iter().collect();
            actions.extend(refusal(client, "upgrade: something else came first"));
            return (self, actions);
        };
        let queue = ReloadQueue::default();
        let plan = GenerationPlan::Upgrading {
            serving,
            probe,
            queue,
        };
        (plan, Vec::new())
    }

    fn end_upgrade(self, failure: Option<Failure>) -> (GenerationPlan, Vec<PlanAction>) {
        let GenerationPlan::Upgrading {
            serving,
            probe,
            queue,
        } = self
        else {
            return (self, Vec::new());
        };
        let client = probe.client;
        let mut actions = vec![match failure {
            None => PlanAction::BecomeNew {
                client,
                waiting: queue.clients(),
            },
            Some(failure) => PlanAction::Refuse {
                clients: client.into_iter().collect(),
                failure,
            },
        }];
        // Performed only where this program goes on.
        actions.extend(queue.merged().map(PlanAction::Prepare));
        (GenerationPlan::Steady { serving }, actions)
    }

    fn stop(mut self, client: Option<ClientId>) -> (GenerationPlan, Vec<PlanAction>) {
        match (&mut self, client) {
            (GenerationPlan::Stopping { clients, .. }, Some(client)) => clients.push(client),
            (GenerationPlan::Stopping { .. }, None) => return self.quit(),
            _ => return self.begin_stop(client.into_iter().collect(), StopMode::Drain),
        }
        (self, Vec::new())
    }

    fn quit(mut self) -> (GenerationPlan, Vec<PlanAction>) {
        let GenerationPlan::Stopping { urgency, .. } = &mut self else {
            let (plan, mut actions) = self.begin_stop(Vec::new(), StopMode::Cut);
            actions.push(PlanAction::Cut);
            return (plan, actions);
        };
        match std::mem::replace(urgency, StopMode::Cut) {
            StopMode::Drain => (self, vec![PlanAction::Cut]),
            StopMode::Cut => (self, Vec::new()),
        }
    }

    /// From every state but the one that it leads to.
    fn begin_stop(
        self,
        clients: Vec<ClientId>,
        urgency: StopMode,
    ) -> (GenerationPlan, Vec<PlanAction>) {
        let (served, next) = (self.serving(), self.next());
        let mut actions = Vec::new();
        let generation = served.or(next);
        actions.extend(generation.map(|generation| PlanAction::BeginStop { generation }));
        actions.extend(next.map(PlanAction::Discard));
        let why = "the server was told to stop meanwhile";
        let reload = format!("reload: {why}");
        match self {
            GenerationPlan::Starting { queue, .. } => {
                actions.extend(refusal(queue.clients(), &reload));
            }
            GenerationPlan::Rolling { request, queue, .. } => {
                let clients = [request.clients, queue.clients()].concat();
                actions.extend(refusal(clients, &reload));
            }
            GenerationPlan::Upgrading { probe, queue, .. } => {
                actions.push(PlanAction::KillProbe(probe.pid));
                actions.push(PlanAction::Refuse {
                    clients: probe.client.into_iter().collect(),
                    failure: Failure::new(format!("upgrade: {why}")),
                });
                actions.extend(refusal(queue.clients(), &reload));
            }
            GenerationPlan::Steady { .. } | GenerationPlan::Stopping { .. } => {}
        }
        let plan = GenerationPlan::Stopping {
            served,
            clients,
            urgency,
        };
        (plan, actions)
    }
}

impl ReloadQueue {
    /// With one more; two that ask for the same are one.
    fn with(mut self, request: ReloadRequest) -> ReloadQueue {
        let is_same = |other: &&mut ReloadRequest| {
            (&other.overrides, other.sizes, other.cause)
                == (&request.overrides, request.sizes, request.cause)
        };
        match self.0.iter_mut().find(is_same) {
            Some(other) => other.clients.extend(request.clients),
            None => self.0.push(request),
        }
        self
    }

    fn clients(&self) -> Vec<ClientId> {
        let all = self.0.iter().flat_map(|request| &request.clients);
        all.copied().collect()
    }

    /// One reload for all that wait, as the last one asked for it.
    fn merged(mut self) -> Option<ReloadRequest> {
        let last = self.0.pop()?;
        Some(self.merged_with(last))
    }

    fn merged_with(self, mut last: ReloadRequest) -> ReloadRequest {
        let mut earlier = self.0.iter();
        if earlier.any(|request| request.sizes == PoolSizes::Configured) {
            last.sizes = PoolSizes::Configured;
        }
        last.clients.extend(self.clients());
        last
    }
}

/// Without clients nothing is said.
fn refusal(clients: Vec<ClientId>, why: &str) -> Option<PlanAction> {
    let failure = Failure::new(why);
    (!clients.is_empty()).then_some(PlanAction::Refuse { clients, failure })
}
