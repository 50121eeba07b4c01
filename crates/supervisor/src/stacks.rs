//! Stacks of running requests, for clients of the control socket: which request is meant, its process is asked, and the
//! client gets the answer, or hears at the deadline that there is none.
//!
//! The supervisor never waits: a process that does not answer costs its client a second, and nobody else anything.

use std::os::fd::{AsFd, OwnedFd};
use std::time::{Duration, Instant};

use config::failure::Failure;
use ipc::{StackReport, SupervisorCommand, payload};

use super::Supervisor;
use super::control::status::RunningRequest;
use super::control::{ClientId, Outcome};

/// How long a process has to answer.
const ANSWER_WITHIN: Duration = Duration::from_secs(1);
/// Ids that are named where more than one is meant.
const NAMED_LEN_MAX: usize = 5;

/// Clients that wait for a stack, in the order of their deadlines.
#[derive(Default)]
pub(super) struct PendingStacks {
    pending: Vec<PendingStack>,
    /// Of the last order.
    last_number: u64,
}

struct PendingStack {
    client: ClientId,
    number: u64,
    /// The process that is to answer.
    serial: u64,
    request: RunningRequest,
    deadline: Instant,
}

/// Which request is meant.
#[derive(Debug, PartialEq, Eq)]
enum Meant<'r> {
    One(&'r RunningRequest),
    Nobody,
    /// So many, of which these are the first.
    Many(usize, Vec<&'r str>),
}

impl PendingStacks {
    /// Numbers from `last_number` on: a process may answer what the program before an upgrade has asked.
    pub(super) fn new(last_number: u64) -> Self {
        Self {
            pending: Vec::new(),
            last_number,
        }
    }

    /// When [`Supervisor::answer_late_stacks`] is due.
    pub(super) fn deadline(&self) -> Option<Instant> {
        self.pending.first().map(|first| first.deadline)
    }

    /// The one that an answer of this process is for.
    fn take(&mut self, serial: u64, number: u64) -> Option<PendingStack> {
        let mut all = self.pending.iter();
        let place = all.position(|one| (one.serial, one.number) == (serial, number))?;
        Some(self.pending.remove(place))
    }
}

impl Supervisor<'_> {
    /// A client wants the stack of the running request whose id begins so.
    pub(super) fn find_stack(&mut self, client: ClientId, id: &str) {
        let all = self.all_running();
        let requests: Vec<&RunningRequest> = all.iter().map(|(_, request)| request).collect();
        let request = match meant(&requests, id) {
            Meant::One(request) => request.clone(),
            Meant::Nobody => return self.refuse(Some(client), nobody(id)),
            Meant::Many(len, first) => return self.refuse(Some(client), many(id, len, &first)),
        };
        let serial = all.iter().find(|(_, one)| *one == request);
        let process = serial.and_then(|(serial, _)| self.by_serial(*serial));
        let Some(process) = process else {
            return self.refuse(Some(client), nobody(id));
        };
        let serial = process.serial;
        self.stacks.last_number += 1;
        let number = self.stacks.last_number;
        self.stacks.pending.push(PendingStack {
            client,
            number,
            serial,
            request: request.clone(),
            deadline: Instant::now() + ANSWER_WITHIN,
        });
        let order = SupervisorCommand::Stack {
            number,
            id: request.id,
        };
        if let Some(process) = self.by_serial(serial) {
            process.tell(order, Vec::new());
        }
    }

    /// A process has answered.
    pub(super) fn take_stack(&mut self, serial: u64, number: u64, file: Option<&OwnedFd>) {
        let Some(pending) = self.stacks.take(serial, number) else {
            return;
        };
        let read = file.map(|file| payload::from_file(file.as_fd()));
        let report = match read {
            Some(Ok(report)) => report,
            _ => StackReport::Missing("its process has sent nothing that is a stack".to_owned()),
        };
        let name = name(&pending.request);
        match report {
            StackReport::Stack { title, frames } => {
                let text = format!("{name}\n{title}:\n{}\n", frames.trim_end());
                self.done(pending.client, &Outcome::Done(Some(text)));
            }
            StackReport::Missing(cause) => {
                let failure = Failure::new(format!("stack: {cause}: {name}"));
                self.refuse(Some(pending.client), failure);
            }
        }
    }

    /// Answers clients whose time is up, and those of processes that have ended.
    pub(super) fn answer_late_stacks(&mut self, now: Instant) {
        let living: Vec<u64> = self.processes.iter().map(|one| one.serial).collect();
        let is_late = |one: &mut PendingStack| now >= one.deadline || !living.contains(&one.serial);
        let late: Vec<PendingStack> = self.stacks.pending.extract_if(.., is_late).collect();
        for one in late {
            let pid = one.request.pid;
            let failure = match living.contains(&one.serial) {
                true => Failure::new(format!(
                    "stack: process {pid} does not answer within {} s: {}",
                    ANSWER_WITHIN.as_secs(),
                    name(&one.request)
                ))
                .with_hint(format!(
                    "it may be stopped (SIGSTOP) or have no processor; `py-spy dump --pid {pid}` looks from outside"
                )),
                false => Failure::new(format!("stack: process {pid} has ended meanwhile")),
            };
            self.refuse(Some(one.client), failure);
        }
    }

    /// The program becomes another one, which knows nothing of these.
    pub(super) fn refuse_stacks(&mut self) {
        for one in std::mem::take(&mut self.stacks.pending) {
            let failure = Failure::new("stack: the server is upgraded meanwhile");
            self.refuse(Some(one.client), failure.with_hint("ask again"));
        }
    }
}

/// A whole id, or the beginning of one.
fn meant<'r>(all: &[&'r RunningRequest], id: &str) -> Meant<'r> {
    if let Some(whole) = all.iter().find(|one| one.id == id) {
        return Meant::One(whole);
    }
    let begin: Vec<_> = all.iter().filter(|one| one.id.starts_with(id)).collect();
    match begin[..] {
        [] => Meant::Nobody,
        [one] => Meant::One(one),
        _ => {
            let ids = begin.iter().map(|one| one.id.as_str());
            Meant::Many(begin.len(), ids.take(NAMED_LEN_MAX).collect())
        }
    }
}

fn nobody(id: &str) -> Failure {
    let failure = Failure::new(format!("stack: no running request has the id `{id}`"));
    failure.with_hint(
        "it has ended, or never began; `milepost status` lists requests that run for long",
    )
}

fn many(id: &str, len: usize, first: &[&str]) -> Failure {
    let mut ids: Vec<String> = first.iter().map(|id| format!("`{id}`")).collect();
    if len > first.len() {
        ids.push(format!("{} more", len - first.len()));
    }
    let failure = Failure::new(format!(
        "stack: the ids of {len} running requests begin with `{id}`"
    ));
    failure.with_hint(format!("one of {}", ids.join(", ")))
}

/// `GET /slow [id 8f00]: runs for 3.204 s on worker 2 of process 4711 (pool default)`
fn name(request: &RunningRequest) -> String {
    let RunningRequest {
        id,
        method,
        path,
        pool,
        pid,
        worker,
        ran_ms,
        ..
    } = request;
    let worker = worker.map_or_else(String::new, |number| format!("worker {number} of "));
    let (secs, ms) = (ran_ms / 1_000, ran_ms % 1_000);
    format!(
        "{method} {path} [id {id}]: runs for {secs}.{ms:03} s on {worker}process {pid} (pool {pool})"
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn request(id: &str) -> RunningRequest {
        RunningRequest {
            id: id.to_owned(),
            ..RunningRequest::default()
        }
    }

    #[test]
    fn a_request_is_meant_by_its_id_or_a_beginning_that_no_other_has() {
        let all = ["a", "ab", "abc", "b1", "c1", "c2", "c3", "c4", "c5", "c6"].map(request);
        let all: Vec<_> = all.iter().collect();
        let check = |id: &str, expect: &str| {
            let found = match meant(&all, id) {
                Meant::One(request) => request.id.clone(),
                Meant::Nobody => String::new(),
                Meant::Many(len, first) => format!("{len}: {}", first.join(" ")),
            };
            assert_eq!(found, expect, "{id}");
        };
        check("a", "a");
        check("ab", "ab");
        check("abc", "abc");
        check("abcd", "");
        check("b", "b1");
        check("c", "6: c1 c2 c3 c4 c5");
        check("x", "");
    }

    #[test]
    fn names_the_request_and_those_that_may_be_meant() {
        let request = RunningRequest {
            id: "8f00".to_owned(),
            method: "GET".to_owned(),
            path: "/slow".to_owned(),
            pool: "default".to_owned(),
            pid: 4_711,
            worker: Some(2),
            ran_ms: 3_004,
            ..RunningRequest::default()
        };
        let expect =
            "GET /slow [id 8f00]: runs for 3.004 s on worker 2 of process 4711 (pool default)";
        assert_eq!(name(&request), expect);
        let failure = many("c", 6, &["c1", "c2"]);
        assert_eq!(failure.hint.as_deref(), Some("one of `c1`, `c2`, 4 more"));
    }
}
