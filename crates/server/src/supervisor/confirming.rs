//! Answers that wait until processes have confirmed what they were told: that a pool has another size, and, after a
//! reload, that those of the generation before accept no more.

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use super::Supervisor;
use super::commands::counted;
use super::control::{ClientId, Outcome};
use super::process::Process;
use super::reshaping::said;
use crate::channel::Order;
use crate::fault::Failure;

/// A process that takes longer to confirm is named in the answer. What the application does does not hold it up.
const CONFIRMED_WITHIN: Duration = Duration::from_secs(5);

/// Something that not all processes have confirmed yet.
pub(super) struct Confirming {
    asked: Asked,
    /// In the orders, and in what confirms them.
    number: u64,
    /// Processes that have not confirmed, by serial.
    awaited: BTreeSet<u64>,
    confirmed: usize,
    /// Later ones have later deadlines.
    pub(super) deadline: Instant,
}

/// What was asked for, and by whom.
pub(super) enum Asked {
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
    /// Those who asked for a generation that serves now, and the service manager, are told so when the processes of
    /// the one before accept no more.
    pub(super) fn answer_when_deaf(
        &mut self,
        generation: u64,
        clients: Vec<ClientId>,
        text: String,
    ) {
        self.last_confirmation += 1;
        let number = self.last_confirmation;
        let mut awaited = BTreeSet::new();
        for process in &mut self.processes {
            if process.generation == generation && process.is_serving() {
                process.tell(Order::Confirm(number), Vec::new());
                awaited.insert(process.serial);
            }
        }
        let asked = Asked::Generation { clients, text };
        let one = Confirming::new(asked, number, awaited, Instant::now());
        self.confirming.push(one);
    }

    /// A process has confirmed an order.
    pub(super) fn confirmed(&mut self, serial: u64, number: u64) {
        let mut all = self.confirming.iter_mut();
        if let Some(one) = all.find(|one| one.number == number)
            && one.awaited.remove(&serial)
        {
            one.confirmed += 1;
        }
    }

    /// Those who asked are told when all processes have confirmed that are still there to do so, or when their
    /// time is up.
    pub(super) fn answer_confirmed(&mut self, now: Instant) {
        for mut one in std::mem::take(&mut self.confirming) {
            one.awaited.retain(|serial| {
                let mut all = self.processes.iter();
                all.any(|process| process.serial == *serial && one.asked.may_confirm(process))
            });
            if !one.awaited.is_empty() && now < one.deadline {
                self.confirming.push(one);
                continue;
            }
            let names = self.processes.iter();
            let names = names.filter(|process| one.awaited.contains(&process.serial));
            let names: Vec<String> = names.map(Process::name).collect();
            self.answer(one, &names);
        }
    }

    fn answer(&mut self, one: Confirming, unconfirmed: &[String]) {
        match one.asked {
            Asked::Size {
                client,
                pool,
                threads,
            } if unconfirmed.is_empty() => {
                let text = format!(
                    "pool `{pool}` has {} in {}",
                    said(threads),
                    counted(one.confirmed, "process", "processes")
                );
                self.accomplished(Some(client), text);
            }
            Asked::Size {
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
            Asked::Generation { clients, mut text } => {
                if !unconfirmed.is_empty() {
                    text.push_str("; may still accept: ");
                    text.push_str(&unconfirmed.join(", "));
                }
                // The next reload tells that it has begun, and then that it is over.
                if self.coming.is_none() {
                    self.tell_ready();
                }
                for client in clients {
                    self.done(client, &Outcome::Done(Some(text.clone())));
                }
            }
        }
    }

    /// Nobody waits for confirmations any longer.
    pub(super) fn end_confirming(&mut self, why: &str) {
        for one in std::mem::take(&mut self.confirming) {
            match one.asked {
                Asked::Size { client, .. } => {
                    self.refuse(Some(client), Failure::new(format!("scale: {why}")));
                }
                Asked::Generation { .. } => self.answer(one, &[]),
            }
        }
    }
}

impl Confirming {
    pub(super) fn new(asked: Asked, number: u64, awaited: BTreeSet<u64>, now: Instant) -> Self {
        Self {
            asked,
            number,
            awaited,
            confirmed: 0,
            deadline: now + CONFIRMED_WITHIN,
        }
    }
}

impl Asked {
    /// Whether a process that was told can still do what was asked.
    fn may_confirm(&self, process: &Process) -> bool {
        match self {
            Asked::Size { .. } => process.is_serving(),
            Asked::Generation { .. } => process.is_serving() || process.is_draining(),
        }
    }
}
