//! The ACME client: the one process that obtains and renews automatic certificates.
//!
//! What it obtains are files: no process that serves waits for it. It is never given up: a site whose certificate ends is
//! down.

use std::os::fd::OwnedFd;
use std::process::ExitStatus;
use std::time::Instant;

use rustix::process::Pid;

use super::Supervisor;
use super::helper_process::HelperProcess;
use super::process::ChildProcess;
use config::typed::AcmeConfig;
use ipc::{ManagedCertificate, ProcessEvent, Role, SupervisorCommand};

/// The client, and what it has said.
#[derive(Default)]
pub(super) struct AcmeClient {
    pub(super) process: HelperProcess<AcmeConfig>,
    states: Vec<ManagedCertificate>,
    /// Challenges that every process is to answer, as the client has written them.
    challenges: Option<OwnedFd>,
}

impl AcmeClient {
    /// How its names stand, in the order of the configuration.
    pub(super) fn states(&self) -> &[ManagedCertificate] {
        &self.states
    }

    /// Why the last try for a name failed.
    pub(super) fn last_error(&self, name: &str) -> Option<String> {
        let state = self.states.iter().find(|one| one.name == name)?;
        state.last_error.clone()
    }

    fn note(&mut self, state: ManagedCertificate) {
        match self.states.iter_mut().find(|one| one.name == state.name) {
            Some(before) => *before = state,
            None => self.states.push(state),
        }
    }
}

impl Supervisor<'_> {
    /// Starts, ends or kills the client, as what serves wants it.
    pub(super) fn keep_acme_client(&mut self, now: Instant) {
        let wanted = self.lasting().and_then(|config| config.acme.clone());
        let client = &mut self.acme_client;
        if wanted.is_none() && client.process.is_gone() {
            client.states.clear();
        }
        if let Some(config) = client.process.keep(wanted, now) {
            client.states.clear();
            let begun = self.start_helper(Role::AcmeClient);
            self.acme_client.process.begun(begun, config, now);
        }
    }

    /// When something is due for it.
    pub(super) fn acme_client_due(&self, now: Instant) -> Option<Instant> {
        let is_wanted = self.lasting().is_some_and(|config| config.acme.is_some());
        self.acme_client.process.due(is_wanted, now)
    }

    /// Takes what the client has said.
    pub(super) fn take_acme_events(&mut self) {
        while let Some(received) = self.acme_client.process.receive() {
            match received.message {
                ProcessEvent::Certificate(state) => {
                    self.acme_client.note(state);
                    self.certificates.is_news = true;
                }
                ProcessEvent::Challenges => {
                    self.acme_client.challenges = received.fds.into_iter().next();
                    self.hand_out_challenges();
                }
                ProcessEvent::Failed => self.acme_client.process.failed(&received.fds),
                // It serves nobody, and so says nothing else.
                _ => {}
            }
        }
    }

    /// Every process is to answer the challenges of this moment: any of them may be asked.
    fn hand_out_challenges(&mut self) {
        let Some(file) = &self.acme_client.challenges else {
            return;
        };
        for process in &mut self.processes {
            tell_challenges(process, file);
        }
    }

    /// A process that begins later than a challenge is to answer it as well.
    pub(super) fn hand_challenges_to(&self, process: &mut ChildProcess) {
        if let Some(file) = &self.acme_client.challenges {
            tell_challenges(process, file);
        }
    }

    /// Whether it was the client that has ended.
    pub(super) fn acme_client_ended(&mut self, pid: Pid, status: ExitStatus) -> bool {
        if !self.acme_client.process.is_process(pid) {
            return false;
        }
        // What it said last is still in its channel.
        self.take_acme_events();
        self.acme_client.process.ended(status);
        true
    }
}

fn tell_challenges(process: &mut ChildProcess, file: &OwnedFd) {
    if process.role != Role::Serving {
        return;
    }
    // Without a descriptor left, a challenge fails and is tried again.
    if let Ok(file) = file.try_clone() {
        process.tell(SupervisorCommand::TakeChallenges, vec![file]);
    }
}
