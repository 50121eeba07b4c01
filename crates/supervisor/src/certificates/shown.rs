//! How certificates stand, for people: in `milepost status`, and told to processes for their status pages.

use std::io;
use std::os::fd::OwnedFd;

use super::super::Supervisor;
use super::super::generation::Generation;
use super::super::process::{ChildProcess, ProcessState};
use super::unix_now;
use ipc::{CertificateStatus, Role, SupervisorCommand, payload};
use tls::Identity;

/// A certificate that no file is known to be at fault of.
pub fn certificate_status(identity: &Identity) -> CertificateStatus {
    let status = CertificateStatus {
        names: identity.served_names().to_vec(),
        issuer: identity.facts.issuer.clone(),
        ends_unix_s: identity.facts.not_after,
        ends: identity.facts.ends(),
        ..CertificateStatus::default()
    };
    status.at(unix_now())
}

impl Supervisor<'_> {
    /// The certificates of the generation that serves.
    pub(in super::super) fn certificate_lines(&self) -> Vec<CertificateStatus> {
        let serving = self.serving();
        serving.map_or_else(Vec::new, |serving| self.certificate_lines_of(serving))
    }

    fn certificate_lines_of(&self, generation: &Generation) -> Vec<CertificateStatus> {
        let handed = generation.credentials.as_ref();
        let identities = handed.map_or(&[][..], |handed| &handed.credentials.identities);
        let configured = &generation.config.tls.identities;
        let all = identities.iter().zip(configured).enumerate();
        all.map(|(place, (identity, configured))| CertificateStatus {
            is_automatic: configured.is_automatic,
            last_fault: self.fault_of_file(generation.id, place).or_else(|| {
                let name = configured
                    .names
                    .first()
                    .filter(|_| configured.is_automatic)?;
                self.acme_client.last_error(name)
            }),
            ..certificate_status(identity)
        })
        .collect()
    }

    fn fault_of_file(&self, generation: u64, place: usize) -> Option<String> {
        let (of, faults) = &self.certificates.faults;
        let mut faults = faults.iter().filter(|_| *of == generation);
        let (_, fault) = faults.find(|(of, _)| *of == place)?;
        Some(fault.clone())
    }

    /// Tells all processes how their certificates stand, if that has changed.
    pub(in super::super) fn show_certificates(&mut self) {
        if !std::mem::take(&mut self.certificates.is_news) {
            return;
        }
        let ids: Vec<u64> = self.generations.keys().copied().collect();
        for id in ids {
            let Ok(Some(file)) = self.shown_certificates(id) else {
                continue;
            };
            for process in self.processes.iter_mut().filter(|one| one.generation == id) {
                if matches!(process.state, ProcessState::Starting | ProcessState::Ready) {
                    show(process, &file);
                }
            }
        }
    }

    /// The same to a process that starts.
    pub(in super::super) fn show_certificates_to(&self, process: &mut ChildProcess) {
        if let Ok(Some(file)) = self.shown_certificates(process.generation) {
            show(process, &file);
        }
    }

    fn shown_certificates(&self, id: u64) -> io::Result<Option<OwnedFd>> {
        let generation = self.generations.get(&id);
        let speaking = generation.filter(|one| one.credentials.is_some());
        let lines = speaking.map(|one| self.certificate_lines_of(one));
        lines.map(|lines| payload::to_file(&lines)).transpose()
    }
}

/// Without a descriptor left, a status page shows what it has shown before.
fn show(process: &mut ChildProcess, file: &OwnedFd) {
    if process.role == Role::Serving
        && let Ok(file) = file.try_clone()
    {
        process.tell(SupervisorCommand::TakeCertificates, vec![file]);
    }
}
