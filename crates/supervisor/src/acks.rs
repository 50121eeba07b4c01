//! Answers that wait for acknowledgements of processes: that a pool has another size, and, after a reload, that
//! the processes of the generation before have stopped accepting.

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use super::Supervisor;
use super::commands::counted;
use super::control::{ClientId, Outcome};
use super::process::ChildProcess;
use super::resize::said;
use config::failure::Failure;
use ipc::SupervisorCommand;

/// A process that takes longer to confirm is named in the answer. What the application does does not hold it up.
const CONFIRMED_WITHIN: Duration = Duration::from_secs(5);

/// Something that not all processes have confirmed yet.
pub(super) struct PendingAck {
    asked: AwaitedChange,
    /// In the orders, and in what confirms them.
    number: u64,
    /// Processes that have not confirmed, by serial.
    awaited: BTreeSet<u64>,
    confirmed: usize,
    /// Later ones have later deadlines.
    pub(super) deadline: Instant,
}

/// What was asked for, and by whom.
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

impl Supervisor<'_> {
    /// The clients of a reload, and the service manager, have their answer when the processes of the old generation
    /// have stopped accepting.
    pub(super) fn answer_when_old_stopped_accepting(
        &mut self,
        generation: u64,
        clients: Vec<ClientId>,
        text: String,
    ) {
        self.last_ack_number += 1;
        let number = self.last_ack_number;
        let mut awaited = BTreeSet::new();
        for process in &mut self.processes {
            if process.generation == generation && process.is_serving() {
                process.tell(SupervisorCommand::Confirm(number), Vec::new());
                awaited.insert(process.serial);
            }
        }
        let asked = AwaitedChange::Generation { clients, text };
        let one = PendingAck::new(asked, number, awaited, Instant::now());
        self.acks.push(one);
    }

    /// A process has confirmed an order.
    pub(super) fn confirmed(&mut self, serial: u64, number: u64) {
        let mut all = self.acks.iter_mut();
        if let Some(one) = all.find(|one| one.number == number)
            && one.awaited.remove(&serial)
        {
            one.confirmed += 1;
        }
    }

    /// Clients have their answer when all processes that still can have confirmed, or when the time is up.
    pub(super) fn answer_acks(&mut self, now: Instant) {
        for mut one in std::mem::take(&mut self.acks) {
            one.awaited.retain(|serial| {
                let mut all = self.processes.iter();
                all.any(|process| process.serial == *serial && one.asked.may_confirm(process))
            });
            if !one.awaited.is_empty() && now < one.deadline {
                self.acks.push(one);
                continue;
            }
            let names = self.processes.iter();
            let names = names.filter(|process| one.awaited.contains(&process.serial));
            let names: Vec<String> = names.map(ChildProcess::name).collect();
            self.answer(one, &names);
        }
    }

    fn answer(&mut self, one: PendingAck, unconfirmed: &[String]) {
        match one.asked {
            AwaitedChange::Size {
                client,
                pool,
                threads,
            } if unconfirmed.is_empty() => {
                let text = format!(
                    "pool `{pool}` has {} in {}",
                    said(threads),
                    counted(one.confirmed, "process", "processes")
                );
                self.report_done(Some(client), text);
            }
            AwaitedChange::Size {
                client,
                pool,
                threads,
            } => {
                let text = format!(
                    "scale: {} not confirmed within {} s that pool `{pool}` has {}: {}",
                    counted(unconfirmed.len(), "process has", "processes have"),
                    CONFIRMED_WITHIN.as_secs(),
                    said(threads),
                    unconfirmed.join(", ")
                );
                let failure = Failure::new(text).with_hint("`milepost status` shows what each has");
                self.refuse(Some(client), failure);
            }
            AwaitedChange::Generation { clients, mut text } => {
                if !unconfirmed.is_empty() {
                    text.push_str("; may still accept: ");
                    text.push_str(&unconfirmed.join(", "));
                }
                // The next reload tells that it has begun, and then that it is over.
                if self.plan.next().is_none() {
                    self.tell_ready();
                }
                for client in clients {
                    self.done(client, &Outcome::Done(Some(text.clone())));
                }
            }
        }
    }

    /// Answers all clients that wait for confirmations.
    pub(super) fn end_acks(&mut self, why: &str) {
        for one in std::mem::take(&mut self.acks) {
            match one.asked {
                AwaitedChange::Size { client, .. } => {
                    self.refuse(Some(client), Failure::new(format!("scale: {why}")));
                }
                AwaitedChange::Generation { .. } => self.answer(one, &[]),
            }
        }
    }
}

impl PendingAck {
    pub(super) fn new(
        asked: AwaitedChange,
        number: u64,
        awaited: BTreeSet<u64>,
        now: Instant,
    ) -> Self {
        Self {
            asked,
            number,
            awaited,
            confirmed: 0,
            deadline: now + CONFIRMED_WITHIN,
        }
    }
}

impl AwaitedChange {
    /// Whether a process that got the command can still confirm it.
    fn may_confirm(&self, process: &ChildProcess) -> bool {
        match self {
            AwaitedChange::Size { .. } => process.is_serving(),
            AwaitedChange::Generation { .. } => process.is_serving() || process.is_draining(),
        }
    }
}
