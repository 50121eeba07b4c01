//! What processes say, and that they have ended.

use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::process::ExitStatusExt;
use std::process::ExitStatus;
use std::time::Instant;

use rustix::process::{Pid, WaitOptions};

use super::process::{Body, Process, State};
use super::{Supervisor, say};
use crate::channel::Notice;
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
        let is_it = |process: &Process| process.pid() == Some(pid);
        if let Some(process) = self.processes.iter().find(|process| is_it(process)) {
            // What it said last is still in its channel.
            let serial = process.serial;
            self.take_notices_of(serial);
            if let Some(index) = self.index_of(serial) {
                let process = self.processes.remove(index);
                self.bury(&process, Some(status));
            }
        } else if self.probe.as_ref().is_some_and(|probe| probe.pid == pid) {
            self.probed(status);
        } else if self
            .processes
            .iter()
            .any(|process| matches!(process.body, Body::Unborn))
        {
            self.unknown_ends.insert(pid, status);
        }
    }

    pub(super) fn take_notices(&mut self) {
        // A notice may be of the end of another process.
        let serials: Vec<u64> = self.processes.iter().map(|one| one.serial).collect();
        for serial in serials {
            if let Some(index) = self.index_of(serial) {
                self.processes[index].flush();
            }
            self.take_notices_of(serial);
        }
    }

    fn take_notices_of(&mut self, serial: u64) {
        while let Some(index) = self.index_of(serial)
            && let Some(received) = self.processes[index].hear()
        {
            self.notice(index, received.message, received.fds);
        }
    }

    fn index_of(&self, serial: u64) -> Option<usize> {
        self.processes.iter().position(|one| one.serial == serial)
    }

    fn notice(&mut self, index: usize, notice: Notice, mut fds: Vec<OwnedFd>) {
        match notice {
            Notice::Ready { python, modules } => {
                let process = &mut self.processes[index];
                if process.state == State::Starting {
                    process.state = State::Ready;
                    process.ready = Some(Instant::now());
                    process.python = python;
                }
                if let Some(watch) = &mut self.watch {
                    watch.extend(&[], &modules, measure::now());
                }
            }
            Notice::Failed => {
                let failure = fds.first().map(|file| payload::from_file(file.as_fd()));
                let failure = failure.and_then(Result::ok);
                self.processes[index].failure =
                    failure.or_else(|| Some(Failure::new("a process could not start")));
            }
            Notice::Drained { cut, stuck_threads } => {
                self.processes[index].cut = cut;
                if stuck_threads > 0 {
                    let name = self.processes[index].name();
                    say(&format!(
                        "{name}: pool threads: {stuck_threads} still in the application: left without waiting"
                    ));
                }
            }
            Notice::Forked { pid } => {
                let pid = i32::try_from(pid).ok().and_then(Pid::from_raw);
                if let (Some(pid), Some(pidfd)) = (pid, fds.pop()) {
                    self.forked(index, Body::Alive { pid, pidfd });
                }
            }
            Notice::NotForked { cause } => {
                let failure = Failure::new(format!("the template cannot fork: {cause}"))
                    .with_hint("without `preload` each process imports the application itself");
                self.not_forked(index, failure);
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
    pub(super) fn forked(&mut self, template: usize, body: Body) {
        let generation = self.processes[template].generation;
        let unborn = self.processes.iter_mut().find(|process| {
            process.generation == generation && matches!(process.body, Body::Unborn)
        });
        let Some(process) = unborn else { return };
        process.body = body;
        let Some(pid) = process.pid() else { return };
        if let State::Killed(ending) = process.state {
            process.kill_for(ending);
        }
        if let Some(status) = self.unknown_ends.remove(&pid) {
            self.ended(pid, status);
        }
    }

    pub(super) fn not_forked(&mut self, template: usize, failure: Failure) {
        let generation = self.processes[template].generation;
        let unborn = self.processes.iter().position(|process| {
            process.generation == generation && matches!(process.body, Body::Unborn)
        });
        if let Some(index) = unborn {
            let mut process = self.processes.remove(index);
            process.failure = Some(failure);
            self.bury(&process, None);
        }
    }
}
