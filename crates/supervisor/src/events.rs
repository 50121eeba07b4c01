//! Events of processes: what they report over their channels, and their exits.

use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::process::ExitStatusExt;
use std::process::ExitStatus;

use rustix::io::Errno;
use rustix::process::{Pid, WaitOptions};

use super::answers::AnswerEvent;
use super::process::{ChildProcess, ProcessHandle, ProcessState};
use super::{Supervisor, say};
use config::failure::Failure;
use ipc::payload;
use ipc::{ProcessEvent, Role};

/// Most templates that cannot fork have threads, such as those that export spans.
const UNFORKED_HINT: &str = "start them in the hook `post_fork`, which runs in each process after the fork:\n\
    [hooks]\n\
    post_fork = \"MODULE:FUNCTION\"\n\
    or leave out `preload`: then each process imports the application itself";

impl Supervisor<'_> {
    /// Takes note of all children that have exited, the grandchildren of templates included.
    pub(super) fn reap(&mut self) {
        while let Ok(Some((pid, status))) = rustix::process::wait(WaitOptions::NOHANG) {
            self.ended(pid, ExitStatus::from_raw(status.as_raw()));
        }
    }

    pub(super) fn ended(&mut self, pid: Pid, status: ExitStatus) {
        let mut all = self.processes.iter();
        let found = all.find(|process| process.pid() == Some(pid));
        if let Some(serial) = found.map(|process| process.serial) {
            // What it said last is still in its channel: that it failed, and why, or how much it cut. After `gone` nobody
            // would read it.
            self.take_events_of(serial);
            self.gone(serial, Some(status));
        } else if self.acme_client_ended(pid, status) || self.admin_ended(pid, status) {
            // Nothing depends on it.
        } else if self.plan.probe().is_some_and(|probe| probe.pid == pid) {
            self.probed(status);
        } else if self.processes.iter().any(ChildProcess::is_unforked) {
            // The kernel may tell of an end before the template could report the start: kept until it does.
            self.unknown_ends.insert(pid, status);
        }
    }

    /// A process is no more, and whatever depended on it.
    fn gone(&mut self, serial: u64, status: Option<ExitStatus>) {
        let Some(place) = self.processes.iter().position(|one| one.serial == serial) else {
            return;
        };
        let process = self.processes.remove(place);
        self.note_exit(&process, status);
        if process.role == Role::Template {
            self.drop_unforked(process.generation);
            self.note_vanished(process.generation);
        }
        self.forget_unknown_ends();
    }

    /// No other process forks what a template has not forked.
    fn drop_unforked(&mut self, generation: u64) {
        let is_meant =
            |process: &mut ChildProcess| process.generation == generation && process.is_unforked();
        let unforked: Vec<ChildProcess> = self.processes.extract_if(.., is_meant).collect();
        // A process that it forked without a report finds its channel closed and exits.
        for process in unforked {
            self.keep_counts(&process);
        }
    }

    /// The exit of a process that its template has seen, but died before it could report it, is found here.
    fn note_vanished(&mut self, generation: u64) {
        // By signal 0: a process whose end nobody has collected would still be found, and then its own event follows.
        let is_gone = |process: &&ChildProcess| {
            let is_there = process.pid().map(rustix::process::test_kill_process);
            process.generation == generation && is_there == Some(Err(Errno::SRCH))
        };
        let gone: Vec<u64> = self
            .processes
            .iter()
            .filter(is_gone)
            .map(|process| process.serial)
            .collect();
        gone.into_iter().for_each(|serial| self.gone(serial, None));
    }

    /// Ends of strangers are forgotten when they can no longer turn out to be those of processes.
    fn forget_unknown_ends(&mut self) {
        if !self.processes.iter().any(ChildProcess::is_unforked) {
            // Their ids are given anew: a later process of the same number would be taken for dead.
            self.unknown_ends.clear();
        }
    }

    pub(super) fn take_events(&mut self) {
        // By their own numbers: what one says can be that another has ended.
        let all: Vec<u64> = self.processes.iter().map(|one| one.serial).collect();
        for serial in all {
            if let Some(process) = self.by_serial(serial) {
                process.flush();
            }
            self.take_events_of(serial);
        }
    }

    fn take_events_of(&mut self, serial: u64) {
        // Until there is nothing left: an event can take the process out of the list, so that it is looked up each
        // time.
        while let Some(received) = self.by_serial(serial).and_then(ChildProcess::receive) {
            self.process_event(serial, received.message, received.fds);
        }
    }

    fn process_event(&mut self, serial: u64, notice: ProcessEvent, mut fds: Vec<OwnedFd>) {
        let Some(process) = self.by_serial(serial) else {
            return;
        };
        let generation = process.generation;
        match notice {
            ProcessEvent::Ready {
                python,
                event_loops,
                modules,
            } => {
                if process.state == ProcessState::Starting {
                    // Its start is timed no longer; sockets follow with the next assignment.
                    process.state = ProcessState::Ready;
                    process.ready = Some(process.started.elapsed());
                    process.python = python;
                    process.event_loops = event_loops;
                    self.tell_pool_sizes(serial, generation);
                }
                if let Some(watch) = &mut self.file_watcher {
                    watch.extend(&[], &modules, telemetry::now());
                }
            }
            ProcessEvent::Failed => {
                let failure = fds.first().map(|file| payload::from_file(file.as_fd()));
                let failure = failure.and_then(Result::ok);
                process.failure =
                    failure.or_else(|| Some(Failure::new("a process could not start")));
            }
            ProcessEvent::Confirmed { number } => {
                let process = serial;
                self.note_answers(AnswerEvent::Confirmed { process, number });
            }
            ProcessEvent::Stack { number } => self.take_stack(serial, number, fds.first()),
            ProcessEvent::Worn { reason } => process.worn = Some(reason),
            ProcessEvent::Drained { cut, stuck_threads } => {
                process.cut = cut;
                if stuck_threads > 0 {
                    let name = process.name();
                    say(&format!(
                        "{name}: pool threads: {stuck_threads} still in the application: left without waiting"
                    ));
                }
            }
            ProcessEvent::Forked { pid } => {
                if let (Ok(pid), Some(pidfd)) = (i32::try_from(pid), fds.pop()) {
                    self.forked(generation, ProcessHandle::Alive { pid, pidfd });
                }
            }
            ProcessEvent::NotForked { cause } => {
                let failure = Failure::new(format!("the template cannot fork: {cause}"))
                    .with_hint(UNFORKED_HINT);
                self.not_forked(generation, failure);
            }
            // Only the ACME client and the admin process say these, over channels of their own.
            ProcessEvent::Certificate(_)
            | ProcessEvent::Challenges
            | ProcessEvent::AdminQuery(..)
            | ProcessEvent::AdminClientDropped => {}
            ProcessEvent::ChildEnded { pid, wait_status } => {
                let pid = i32::try_from(pid).ok().and_then(Pid::from_raw);
                if let Some(pid) = pid {
                    self.ended(pid, ExitStatus::from_raw(wait_status));
                }
            }
        }
    }

    fn forked(&mut self, generation: u64, body: ProcessHandle) {
        // Templates fork in the order of the commands, so that the first process which is not forked yet is meant.
        let unforked = self
            .processes
            .iter_mut()
            .find(|process| process.generation == generation && process.is_unforked());
        let Some(process) = unforked else { return };
        process.body = body;
        let Some(pid) = process.pid() else { return };
        if let ProcessState::Killed(ending) = process.state {
            process.kill_for(ending);
        }
        if let Some(status) = self.unknown_ends.remove(&pid) {
            self.ended(pid, status);
        }
        self.forget_unknown_ends();
    }

    fn not_forked(&mut self, generation: u64, failure: Failure) {
        let unforked = self
            .processes
            .iter()
            .position(|process| process.generation == generation && process.is_unforked());
        if let Some(index) = unforked {
            let mut process = self.processes.remove(index);
            process.failure = Some(failure);
            self.note_exit(&process, None);
            self.forget_unknown_ends();
        }
    }
}
