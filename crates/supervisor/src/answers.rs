//! Clients that wait for processes: until as many serve as `scale` asked for, until a pool has another size in each of
//! them, or, after a reload, until those of the generation before have stopped accepting.
//!
//! Takes events, gives the next state and the answers. Pure: no I/O, no clock; processes are named by their serials.

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use config::failure::Failure;
use ipc::Role;
use os::invariant;

use super::control::ClientId;
use super::fleet::ProcessFacts;
use super::process::ProcessState;

/// A process that takes longer to confirm is named in the answer. What the application does does not hold it up.
pub(super) const CONFIRMED_WITHIN: Duration = Duration::from_secs(5);

/// All that wait.
#[derive(Clone, Debug)]
pub(super) struct PendingAnswers {
    /// Clients that wait for another number of processes.
    scaling: Vec<ClientId>,
    /// In the order in which they were asked for, which is that of their deadlines.
    acks: Vec<PendingAck>,
    /// Of the last order that is to be confirmed.
    last_number: u64,
}

/// Something that not all processes have confirmed yet.
#[derive(Clone, Debug)]
struct PendingAck {
    change: AwaitedChange,
    /// In the orders, and in what confirms them.
    number: u64,
    /// Processes that have not confirmed.
    awaited: BTreeSet<u64>,
    confirmed: usize,
    deadline: Instant,
}

/// What was asked for, and by whom.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum AwaitedChange {
    /// A pool of another size.
    Size {
        client: ClientId,
        pool: String,
        threads: (usize, usize),
    },
    /// Another generation, which serves; its predecessor's processes are to have stopped accepting.
    Generation {
        clients: Vec<ClientId>,
        text: String,
    },
}

/// What has happened.
#[derive(Clone, Debug)]
pub(super) enum AnswerEvent {
    /// A client waits for the number of processes that is wanted now.
    Scaled(ClientId),
    /// These processes have an order of this number to confirm.
    Asked {
        number: u64,
        change: AwaitedChange,
        awaited: BTreeSet<u64>,
        now: Instant,
    },
    Confirmed {
        process: u64,
        number: u64,
    },
    /// How things are now; to be told whenever they may have changed, and at the deadline.
    Looked {
        processes: Vec<ProcessFacts>,
        scale: ScaleProgress,
        now: Instant,
    },
    /// The server is about to end.
    Stopped,
    /// Another generation serves, with another number of processes than the one before was to have.
    Reloaded,
    /// The server is about to become another program, which begins with what is configured.
    Upgraded,
}

/// Whether there are as many processes as are wanted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum ScaleProgress {
    UnderWay,
    /// So many serve, which are all.
    Whole(usize),
    /// Some slot stays empty.
    Hopeless(Failure),
}

/// An answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Answered {
    /// So many processes serve.
    Scaled(ClientId, usize),
    Refused(ClientId, Failure),
    /// What was asked for is confirmed by so many processes, and not by these.
    Changed {
        change: AwaitedChange,
        confirmed: usize,
        unconfirmed: BTreeSet<u64>,
    },
}

impl PendingAnswers {
    /// Nobody waits; orders are numbered from `last_number` on.
    pub(super) fn new(last_number: u64) -> Self {
        Self {
            scaling: Vec::new(),
            acks: Vec::new(),
            last_number,
        }
    }

    /// The number of an order that is to be confirmed: one more each time.
    pub(super) fn next_number(&mut self) -> u64 {
        self.last_number += 1;
        self.last_number
    }

    /// When [`AnswerEvent::Looked`] is due.
    pub(super) fn deadline(&self) -> Option<Instant> {
        self.acks.first().map(|first| first.deadline)
    }

    /// Clients of `scale`.
    pub(super) fn scaling(&self) -> &[ClientId] {
        &self.scaling
    }

    /// What follows from an event.
    pub(super) fn step(mut self, event: AnswerEvent) -> (Self, Vec<Answered>) {
        let answers = match event {
            AnswerEvent::Scaled(client) => {
                self.scaling.push(client);
                Vec::new()
            }
            AnswerEvent::Asked {
                number,
                change,
                awaited,
                now,
            } => {
                let deadline = now + CONFIRMED_WITHIN;
                // The first deadline is the one that the supervisor wakes for.
                let last = self.acks.last();
                invariant!(
                    last.is_none_or(|last| last.number < number && last.deadline <= deadline),
                    "order {number} is asked for after a later one"
                );
                self.acks.push(PendingAck {
                    change,
                    number,
                    awaited,
                    confirmed: 0,
                    deadline,
                });
                Vec::new()
            }
            AnswerEvent::Confirmed { process, number } => {
                let mut all = self.acks.iter_mut();
                // A process confirms once: what it says again is counted no second time.
                if let Some(one) = all.find(|one| one.number == number)
                    && one.awaited.remove(&process)
                {
                    one.confirmed += 1;
                }
                Vec::new()
            }
            AnswerEvent::Looked {
                processes,
                scale,
                now,
            } => [self.scaled(&scale), self.changed(&processes, now)].concat(),
            AnswerEvent::Stopped => self.end_all("the server was told to stop meanwhile"),
            AnswerEvent::Reloaded => {
                self.refuse_scaling("a later command has loaded the configuration again")
            }
            AnswerEvent::Upgraded => {
                self.end_all("the server is upgraded meanwhile, and has what is written again")
            }
        };
        (self, answers)
    }

    fn scaled(&mut self, scale: &ScaleProgress) -> Vec<Answered> {
        let answer = |client| match scale {
            ScaleProgress::UnderWay => None,
            ScaleProgress::Whole(count) => Some(Answered::Scaled(client, *count)),
            ScaleProgress::Hopeless(failure) => Some(Answered::Refused(client, failure.clone())),
        };
        let answers: Vec<Answered> = self.scaling.iter().copied().filter_map(answer).collect();
        if !answers.is_empty() {
            // All of them at once: they wait for the same number, the last one that was asked for.
            self.scaling.clear();
        }
        answers
    }

    /// Changes that all processes have confirmed which still can, or for which the time is up.
    fn changed(&mut self, processes: &[ProcessFacts], now: Instant) -> Vec<Answered> {
        for one in &mut self.acks {
            let change = &one.change;
            // A process that ended, or drains where it should confirm a size, will never answer: without this its
            // client waited until the deadline.
            one.awaited.retain(|serial| {
                let mut all = processes.iter();
                all.any(|process| process.serial == *serial && change.may_confirm(process))
            });
        }
        let is_over = |one: &mut PendingAck| one.awaited.is_empty() || now >= one.deadline;
        let over = self.acks.extract_if(.., is_over);
        over.map(|one| Answered::Changed {
            change: one.change,
            confirmed: one.confirmed,
            unconfirmed: one.awaited,
        })
        .collect()
    }

    fn end_all(&mut self, why: &str) -> Vec<Answered> {
        [self.refuse_scaling(why), self.end_acks(why)].concat()
    }

    fn refuse_scaling(&mut self, why: &str) -> Vec<Answered> {
        let failure = Failure::new(format!("scale: {why}"));
        let scaling = std::mem::take(&mut self.scaling).into_iter();
        scaling
            .map(|client| Answered::Refused(client, failure.clone()))
            .collect()
    }

    fn end_acks(&mut self, why: &str) -> Vec<Answered> {
        let acks = std::mem::take(&mut self.acks).into_iter();
        acks.map(|one| match one.change {
            AwaitedChange::Size { client, .. } => {
                Answered::Refused(client, Failure::new(format!("scale: {why}")))
            }
            // The generation serves all the same.
            change @ AwaitedChange::Generation { .. } => Answered::Changed {
                change,
                confirmed: one.confirmed,
                unconfirmed: BTreeSet::new(),
            },
        })
        .collect()
    }
}

impl AwaitedChange {
    /// Whether a process that got the order can still confirm it.
    fn may_confirm(&self, process: &ProcessFacts) -> bool {
        let is_asked = match self {
            AwaitedChange::Size { .. } => matches!(process.state, ProcessState::Ready),
            AwaitedChange::Generation { .. } => matches!(
                process.state,
                ProcessState::Ready | ProcessState::Draining { .. }
            ),
        };
        process.role == Role::Serving && is_asked
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[derive(Clone, Copy, Debug)]
    enum Happening {
        Scale,
        Resize,
        Reload(usize),
        /// Index of the process, and how many orders ago.
        Confirm(u64, u64),
        End(u64),
        Look(Option<bool>),
        Wait(u64),
        Reloaded,
        Upgrade,
    }

    fn happening() -> impl Strategy<Value = Happening> {
        prop_oneof![
            1 => Just(Happening::Scale),
            2 => Just(Happening::Resize),
            2 => (0..3_usize).prop_map(Happening::Reload),
            6 => (0..4_u64, 0..4_u64).prop_map(|(process, ago)| Happening::Confirm(process, ago)),
            1 => (0..4_u64).prop_map(Happening::End),
            4 => any::<Option<bool>>().prop_map(Happening::Look),
            1 => (1..6_u64).prop_map(Happening::Wait),
            1 => Just(Happening::Reloaded),
            1 => Just(Happening::Upgrade),
        ]
    }

    fn client(number: u64) -> ClientId {
        serde_json::from_value(number.into()).unwrap()
    }

    struct World {
        answers: PendingAnswers,
        asked: u64,
        answered: BTreeSet<ClientId>,
        living: BTreeSet<u64>,
        now: Instant,
    }

    impl World {
        fn step(&mut self, event: AnswerEvent) -> Result<(), TestCaseError> {
            let (answers, given) = self.answers.clone().step(event);
            self.answers = answers;
            for answer in given {
                let clients = match answer {
                    Answered::Scaled(client, _) | Answered::Refused(client, _) => vec![client],
                    Answered::Changed {
                        change,
                        confirmed,
                        unconfirmed,
                    } => {
                        prop_assert!(confirmed + unconfirmed.len() <= 4);
                        prop_assert!(unconfirmed.is_subset(&self.living));
                        match change {
                            AwaitedChange::Size { client, .. } => vec![client],
                            AwaitedChange::Generation { clients, .. } => clients,
                        }
                    }
                };
                for client in clients {
                    prop_assert!(self.answered.insert(client), "{:?} has two answers", client);
                }
            }
            Ok(())
        }

        fn clients(&mut self, len: usize) -> Vec<ClientId> {
            let first = self.asked + 1;
            self.asked += len as u64;
            (first..=self.asked).map(client).collect()
        }

        fn look(&mut self, scale: ScaleProgress) -> Result<(), TestCaseError> {
            let living = self.living.iter();
            let facts = living.map(|serial| ProcessFacts {
                serial: *serial,
                role: Role::Serving,
                generation: 1,
                slot: 0,
                state: ProcessState::Ready,
                started: self.now,
                is_worn: false,
            });
            let (processes, now) = (facts.collect(), self.now);
            self.step(AnswerEvent::Looked {
                processes,
                scale,
                now,
            })
        }

        fn ask(&mut self, change: AwaitedChange) -> Result<(), TestCaseError> {
            let number = self.answers.next_number();
            let (awaited, now) = (self.living.clone(), self.now);
            self.step(AnswerEvent::Asked {
                number,
                change,
                awaited,
                now,
            })
        }

        fn happen(&mut self, happening: Happening) -> Result<(), TestCaseError> {
            match happening {
                Happening::Scale => {
                    let client = self.clients(1)[0];
                    self.step(AnswerEvent::Scaled(client))
                }
                Happening::Resize => {
                    let client = self.clients(1)[0];
                    let (pool, threads) = ("default".to_owned(), (1, 2));
                    self.ask(AwaitedChange::Size {
                        client,
                        pool,
                        threads,
                    })
                }
                Happening::Reload(len) => {
                    let clients = self.clients(len);
                    let text = String::new();
                    self.ask(AwaitedChange::Generation { clients, text })
                }
                Happening::Confirm(process, ago) => {
                    let number = self.answers.last_number.saturating_sub(ago);
                    self.step(AnswerEvent::Confirmed { process, number })
                }
                Happening::End(process) => {
                    self.living.remove(&process);
                    Ok(())
                }
                Happening::Look(None) => self.look(ScaleProgress::UnderWay),
                Happening::Look(Some(true)) => self.look(ScaleProgress::Whole(4)),
                Happening::Look(Some(false)) => {
                    self.look(ScaleProgress::Hopeless(Failure::default()))
                }
                Happening::Wait(secs) => {
                    self.now += Duration::from_secs(secs);
                    Ok(())
                }
                Happening::Reloaded => self.step(AnswerEvent::Reloaded),
                Happening::Upgrade => self.step(AnswerEvent::Upgraded),
            }
        }
    }

    proptest! {
        #[test]
        fn each_client_has_one_answer(
            all in proptest::collection::vec(happening(), 0..60),
            stops in any::<bool>(),
        ) {
            let mut world = World {
                answers: PendingAnswers::new(7),
                asked: 0,
                answered: BTreeSet::new(),
                living: (0..4).collect(),
                now: Instant::now(),
            };
            for happening in all {
                world.happen(happening)?;
            }
            if stops {
                world.step(AnswerEvent::Stopped)?;
            } else {
                world.now += CONFIRMED_WITHIN;
                world.look(ScaleProgress::Whole(4))?;
            }
            prop_assert_eq!(world.answered.len() as u64, world.asked);
            prop_assert_eq!(world.answers.deadline(), None);
        }
    }
}
