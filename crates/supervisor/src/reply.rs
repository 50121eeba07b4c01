//! Answers to clients that have waited for processes: performs what `answers` has decided.

use std::collections::BTreeSet;
use std::time::Instant;

use config::failure::Failure;
use ipc::SupervisorCommand;
use os::invariant;

use super::Supervisor;
use super::answers::{
    AnswerEvent, Answered, AwaitedChange, CONFIRMED_WITHIN, PendingAnswers, ScaleProgress,
};
use super::commands::counted;
use super::control::Outcome;
use super::process::ChildProcess;
use super::resize::said;

impl Supervisor<'_> {
    /// Takes the answers one step further and gives those that are due.
    pub(super) fn note_answers(&mut self, event: AnswerEvent) {
        let before = std::mem::replace(&mut self.answers, PendingAnswers::new(0));
        let (answers, given) = before.step(event);
        // Before the answers are given: giving one can lead to the next event.
        self.answers = answers;
        for answer in given {
            self.give_answer(answer);
        }
    }

    /// Has the processes that serve in a generation confirm an order of this number.
    pub(super) fn ask(
        &mut self,
        generation: u64,
        number: u64,
        order: &SupervisorCommand,
        change: AwaitedChange,
    ) {
        // A process does not confirm an order of number 0: the client would wait until the deadline.
        invariant!(number > 0, "an order without a number is to be confirmed");
        let awaited = self.tell_serving_of(generation, order);
        let now = Instant::now();
        self.note_answers(AnswerEvent::Asked {
            number,
            change,
            awaited,
            now,
        });
    }

    /// Gives an order to the processes that serve in a generation; gives these.
    pub(super) fn tell_serving_of(
        &mut self,
        generation: u64,
        order: &SupervisorCommand,
    ) -> BTreeSet<u64> {
        let its = |one: &&mut ChildProcess| one.generation == generation && one.is_serving();
        let told = self.processes.iter_mut().filter(its).map(|process| {
            process.tell(order.clone(), Vec::new());
            process.serial
        });
        told.collect()
    }

    /// Answers the clients that wait no longer.
    pub(super) fn answer_waiting(&mut self, now: Instant) {
        let processes = self.processes.iter().map(ChildProcess::facts).collect();
        let scale = self.scale_progress(now);
        self.note_answers(AnswerEvent::Looked {
            processes,
            scale,
            now,
        });
    }

    fn scale_progress(&self, now: Instant) -> ScaleProgress {
        let Some(serving) = self
            .serving()
            .filter(|_| !self.answers.scaling().is_empty())
        else {
            return ScaleProgress::UnderWay;
        };
        let (id, count) = (serving.id, serving.count());
        // By slots: two processes in one of them, an old and a new one, are not two of those that were asked for.
        if (0..count).all(|slot| self.at(id, slot).any(ChildProcess::is_serving)) {
            return ScaleProgress::Whole(count);
        }
        match serving.slots().has_gaps_for_good(now) {
            true => ScaleProgress::Hopeless(self.last_failure().unwrap_or_default()),
            false => ScaleProgress::UnderWay,
        }
    }

    fn give_answer(&mut self, answer: Answered) {
        match answer {
            Answered::Scaled(client, count) => {
                self.report_done(Some(client), so_many_serve(count));
            }
            Answered::Refused(client, failure) => self.refuse(Some(client), failure),
            Answered::Changed {
                change,
                confirmed,
                unconfirmed,
            } => {
                let late = self.processes.iter();
                let late = late.filter(|process| unconfirmed.contains(&process.serial));
                let late: Vec<String> = late.map(ChildProcess::name).collect();
                self.answer_change(change, confirmed, &late);
            }
        }
    }

    fn answer_change(&mut self, change: AwaitedChange, confirmed: usize, late: &[String]) {
        match change {
            AwaitedChange::Size {
                client,
                pool,
                threads,
            } if late.is_empty() => {
                let text = format!(
                    "pool `{pool}` has {} in {}",
                    said(threads),
                    counted(confirmed, "process", "processes")
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
                    counted(late.len(), "process has", "processes have"),
                    CONFIRMED_WITHIN.as_secs(),
                    said(threads),
                    late.join(", ")
                );
                let failure = Failure::new(text).with_hint("`milepost status` shows what each has");
                self.refuse(Some(client), failure);
            }
            AwaitedChange::Generation { clients, mut text } => {
                if !late.is_empty() {
                    text.push_str("; may still accept: ");
                    text.push_str(&late.join(", "));
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
}

/// `1 process serves`, `2 processes serve`
fn so_many_serve(len: usize) -> String {
    let verb = if len == 1 { "serves" } else { "serve" };
    format!("{} {verb}", counted(len, "process", "processes"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_process_serves_and_two_serve() {
        assert_eq!(so_many_serve(1), "1 process serves");
        assert_eq!(so_many_serve(2), "2 processes serve");
    }
}
