//! What processes say, and that they have ended.

use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::process::ExitStatusExt;
use std::process::ExitStatus;
use std::time::Instant;

use rustix::io::Errno;
use rustix::process::{Pid, WaitOptions};

use super::process::{Body, Process, State};
use super::{Supervisor, say};
use crate::channel::{Notice, Role};
use crate::fault::Failure;
use crate::payload;

impl Supervisor<'_> {
    /// Takes note of all processes that have ended, whoever's they were.
    pub(super) fn reap(&mut self) {
        while let Ok(Some((pid, status))) = rustix::process::wait(WaitOptions::NOHANG) {
            self.ended(pid, ExitStatus::from_raw(status.as_raw()));
        }
    }

    pub(super) fn ended(&mut self, pid: Pid, status: ExitStatus) {
        let mut all = self.processes.iter();
        let found = all.find(|process| process.pid() == Some(pid));
        if let Some(serial) = found.map(|process| process.serial) {
            // What it said last is still in its channel.
            self.take_notices_of(serial);
            self.gone(serial, Some(status));
        } else if self.probe.as_ref().is_some_and(|probe| probe.pid == pid) {
            self.probed(status);
        } else if self.processes.iter().any(Process::is_unborn) {
            self.unknown_ends.insert(pid, status);
        }
    }

    /// A process is no more, and whatever depended on it.
    fn gone(&mut self, serial: u64, status: Option<ExitStatus>) {
        let Some(place) = self.processes.iter().position(|one| one.serial == serial) else {
            return;
        };
        let process = self.processes.remove(place);
        self.bury(&process, status);
        if process.role == Role::Template {
            self.forget_unborn(process.generation);
            self.bury_vanished(process.generation);
        }
        self.forget_unknown_ends();
    }

    /// What a template has not forked, nobody will. One that it has, but did not tell of, finds its channel
    /// closed and ends.
    fn forget_unborn(&mut self, generation: u64) {
        let is_meant =
            |process: &mut Process| process.generation == generation && process.is_unborn();
        let unborn: Vec<Process> = self.processes.extract_if(.., is_meant).collect();
        for process in unborn {
            self.keep_counts(&process);
        }
    }

    /// Of processes whose end a template has seen and did not live to tell, nobody else will hear.
    fn bury_vanished(&mut self, generation: u64) {
        let is_gone = |process: &&Process| {
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

    /// Ends of strangers are forgotten when they can no longer turn out to be those of processes: their ids
    /// are given anew.
    fn forget_unknown_ends(&mut self) {
        if !self.processes.iter().any(Process::is_unborn) {
            self.unknown_ends.clear();
        }
    }

    pub(super) fn take_notices(&mut self) {
        // By their own numbers: what one says can be that another has ended.
        let all: Vec<u64> = self.processes.iter().map(|one| one.serial).collect();
        for serial in all {
            if let Some(process) = self.by_serial(serial) {
                process.flush();
            }
            self.take_notices_of(serial);
        }
    }

    fn take_notices_of(&mut self, serial: u64) {
        while let Some(received) = self.by_serial(serial).and_then(Process::hear) {
            self.notice(serial, received.message, received.fds);
        }
    }

    fn notice(&mut self, serial: u64, notice: Notice, mut fds: Vec<OwnedFd>) {
        let Some(process) = self.by_serial(serial) else {
            return;
        };
        let generation = process.generation;
        match notice {
            Notice::Ready { python, modules } => {
                if process.state == State::Starting {
                    process.state = State::Ready;
                    process.ready = Some(Instant::now());
                    process.python = python;
                    self.tell_shapes(serial, generation);
                }
                if let Some(watch) = &mut self.watch {
                    watch.extend(&[], &modules, measure::now());
                }
            }
            Notice::Failed => {
                let failure = fds.first().map(|file| payload::from_file(file.as_fd()));
                let failure = failure.and_then(Result::ok);
                process.failure =
                    failure.or_else(|| Some(Failure::new("a process could not start")));
            }
            Notice::Confirmed { number } => self.confirmed(serial, number),
            Notice::Worn { reason } => process.worn = Some(reason),
            Notice::Drained { cut, stuck_threads } => {
                process.cut = cut;
                if stuck_threads > 0 {
                    let name = process.name();
                    say(&format!(
                        "{name}: pool threads: {stuck_threads} still in the application: left without waiting"
                    ));
                }
            }
            Notice::Forked { pid } => {
                let pid = i32::try_from(pid).ok().and_then(Pid::from_raw);
                if let (Some(pid), Some(pidfd)) = (pid, fds.pop()) {
                    self.forked(generation, Body::Alive { pid, pidfd });
                }
            }
            Notice::NotForked { cause } => {
                let failure = Failure::new(format!("the template cannot fork: {cause}"))
                    .with_hint("without `preload` each process imports the application itself");
                self.not_forked(generation, failure);
            }
            Notice::ChildEnded { pid, wait_status } => {
                let pid = i32::try_from(pid).ok().and_then(Pid::from_raw);
                if let Some(pid) = pid {
                    self.ended(pid, ExitStatus::from_raw(wait_status));
                }
            }
        }
    }

    /// The template has forked the process that it was told to first of those that are not born yet.
    fn forked(&mut self, generation: u64, body: Body) {
        let unborn = self
            .processes
            .iter_mut()
            .find(|process| process.generation == generation && process.is_unborn());
        let Some(process) = unborn else { return };
        process.body = body;
        let Some(pid) = process.pid() else { return };
        if let State::Killed(ending) = process.state {
            process.kill_for(ending);
        }
        if let Some(status) = self.unknown_ends.remove(&pid) {
            self.ended(pid, status);
        }
        self.forget_unknown_ends();
    }

    fn not_forked(&mut self, generation: u64, failure: Failure) {
        let unborn = self
            .processes
            .iter()
            .position(|process| process.generation == generation && process.is_unborn());
        if let Some(index) = unborn {
            let mut process = self.processes.remove(index);
            process.failure = Some(failure);
            self.bury(&process, None);
            self.forget_unknown_ends();
        }
    }
}
