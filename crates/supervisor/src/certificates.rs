//! Certificates and keys of session tickets: read when a generation is made and when their files change, handed to all
//! processes of the generation.
//!
//! ```text
//!        files change, and        still at fault after 1 s: it is said once
//!        are at fault
//! GOOD ─────────────────► CHANGING ────────────────────────────────────► FAULTY, looked at again each minute
//!   ▲                        │                                             │
//!   └────────────────────────┴────────── files are good: handed out ───────┘
//! ```
//! Renewers write the certificate and its key one after the other, so that files which do not fit each other are
//! expected for a moment. Whatever is wrong with them, processes go on with what they have.

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::path::PathBuf;
use std::time::{Duration, Instant, SystemTime};

use config::failure::{Failure, StartFault, plain};
use config::typed::{Config, KeyPassword, Tls, TlsIdentity};
use ipc::{Role, SupervisorCommand, payload};
use serde::{Deserialize, Serialize};
use tls::{Credentials, Identity, TicketKeyRing, Validity};

use super::control::status::CertificateStatus;
use super::file_watcher::FileWatcher;
use super::generation::Generation;
use super::process::ProcessState;
use super::stderr::say;
use super::{SLEEP_MAX, Supervisor, SupervisorEnvironment};

/// Time between the two files of one renewal, at most.
const RENEWAL_TIME: Duration = Duration::from_secs(1);
/// Time between two looks at files that stay at fault, where nothing reports a change.
const RETRY_INTERVAL: Duration = Duration::from_secs(60);
/// Time between two lines about certificates that end soon.
const REMINDER_INTERVAL: Duration = Duration::from_secs(86_400);

/// What the supervisor keeps beside the credentials of each generation.
#[derive(Default)]
pub(super) struct Certificates {
    /// Keys of session tickets, from the first generation with TLS on, through all later ones.
    ring: Option<TicketKeyRing>,
    watcher: Option<FileWatcher>,
    /// What it watches.
    watched: Vec<PathBuf>,
    state: RenewalState,
    reminder_due: Option<Instant>,
}

/// See the drawing above.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum RenewalState {
    #[default]
    Good,
    /// With the moment of the next look.
    Changing(Instant),
    Faulty(Instant),
}

/// The credentials of a generation, and the file that its processes read them from.
pub(super) struct HandedCredentials {
    pub(super) credentials: Credentials,
    file: OwnedFd,
}

/// What the program that takes this one's place goes on with: the files may be at fault just then.
#[derive(Clone, Default, Serialize, Deserialize)]
pub(super) struct CertificateSuccession {
    ring: Option<TicketKeyRing>,
    credentials: Option<Credentials>,
}

impl HandedCredentials {
    fn new(credentials: Credentials) -> io::Result<Self> {
        let file = payload::to_file(&credentials)?;
        Ok(Self { credentials, file })
    }

    /// For a process.
    pub(super) fn file(&self) -> io::Result<OwnedFd> {
        self.file.as_fd().try_clone_to_owned()
    }
}

impl RenewalState {
    /// After a look at files that are at fault; says whether to say so. `is_due`: the time for the second file is over.
    fn at_fault(self, is_due: bool, now: Instant) -> (Self, bool) {
        match self {
            RenewalState::Good => (RenewalState::Changing(now + RENEWAL_TIME), false),
            RenewalState::Changing(until) if !is_due => (RenewalState::Changing(until), false),
            RenewalState::Changing(_) => (RenewalState::Faulty(now + RETRY_INTERVAL), true),
            RenewalState::Faulty(_) => (RenewalState::Faulty(now + RETRY_INTERVAL), false),
        }
    }

    fn due(self) -> Option<Instant> {
        match self {
            RenewalState::Good => None,
            RenewalState::Changing(at) | RenewalState::Faulty(at) => Some(at),
        }
    }
}

impl Certificates {
    /// Reads the credentials of the first generation.
    ///
    /// # Errors
    /// The files cannot be used.
    pub(super) fn open(
        generation: &mut Generation,
        around: &SupervisorEnvironment<'_>,
    ) -> Result<Self, StartFault> {
        let mut own = Self::default();
        if generation.config.tls.identities.is_empty() {
            return Ok(own);
        }
        let read = (around.credentials)(&generation.config.tls);
        let read = read.map_err(|failures| {
            let first = failures.into_iter().next().unwrap_or_default();
            StartFault::new("cannot use the certificates", first.message)
        })?;
        let given = own.give(generation, read);
        given.map_err(|error| StartFault::of_io("cannot keep the certificates", &error))?;
        Ok(own)
    }

    /// Those of the program before, for the generation that it has left.
    ///
    /// # Errors
    /// There is no memory for them.
    pub(super) fn adopt(
        generation: &mut Generation,
        handed: CertificateSuccession,
    ) -> io::Result<Self> {
        let mut own = Self {
            ring: handed.ring,
            ..Self::default()
        };
        if let Some(credentials) = handed.credentials {
            own.give(generation, credentials)?;
        }
        Ok(own)
    }

    fn give(&mut self, generation: &mut Generation, credentials: Credentials) -> io::Result<()> {
        let credentials = self.with_ticket_keys(&generation.config.tls, credentials);
        generation.notes.extend(ending(&credentials));
        generation.credentials = Some(HandedCredentials::new(credentials)?);
        Ok(())
    }

    /// When to look, although nothing is readable.
    pub(super) fn due(&self, now: Instant) -> Option<Instant> {
        let scan = self.watcher.as_ref().map(|watcher| {
            let left = watcher.deadline().since(telemetry::now());
            now + Duration::from_nanos(left.0).min(SLEEP_MAX)
        });
        let turn = self.ring.as_ref().map(|ring| {
            let left = Duration::from_secs(ring.next_turn().saturating_sub(unix_now()));
            now + left.min(SLEEP_MAX)
        });
        let all = [scan, turn, self.state.due(), self.reminder_due];
        all.into_iter().flatten().min()
    }

    /// Readable with a change.
    pub(super) fn fd(&self) -> Option<std::os::fd::BorrowedFd<'_>> {
        self.watcher.as_ref().and_then(FileWatcher::fd)
    }

    /// With the keys of session tickets that this server makes, unless they are read from a file.
    fn with_ticket_keys(&mut self, tls: &Tls, credentials: Credentials) -> Credentials {
        if tls.ticket_keys.is_some() {
            return credentials;
        }
        // Without random bytes there are no tickets: every handshake is a full one.
        if self.ring.is_none() {
            self.ring = TicketKeyRing::new(unix_now());
        }
        let keys = self.ring.as_ref().map(TicketKeyRing::keys);
        credentials.with_ticket_keys(keys.unwrap_or_default())
    }
}

impl Supervisor<'_> {
    /// The credentials of a generation that is to serve. `faults`: what is wrong with the files; a generation with the
    /// same settings as the one that serves goes on with its certificates.
    pub(super) fn renew_credentials(
        &mut self,
        generation: &mut Generation,
        faults: Vec<Failure>,
    ) -> Result<(), Vec<Failure>> {
        let tls = &generation.config.tls;
        if tls.identities.is_empty() {
            return Ok(());
        }
        let read = match faults.is_empty() {
            true => (self.around.credentials)(tls),
            false => Err(faults),
        };
        let serving = self.serving().filter(|serving| {
            let old = &serving.config.tls;
            (&old.identities, &old.ticket_keys) == (&tls.identities, &tls.ticket_keys)
        });
        let kept =
            serving.and_then(|serving| Some(serving.credentials.as_ref()?.credentials.clone()));
        let credentials = match (read, kept) {
            (Ok(read), _) => read,
            (Err(failures), Some(kept)) => {
                let faults = failures.iter().map(|failure| &failure.message);
                let notes =
                    faults.map(|fault| format!("{fault}: the certificates stay as they were"));
                generation.notes.extend(notes);
                kept
            }
            (Err(failures), None) => return Err(failures),
        };
        let given = self.certificates.give(generation, credentials);
        given.map_err(|error| vec![Failure::new(format!("reload: {}", plain(&error)))])
    }

    /// What a successor needs.
    pub(super) fn certificate_succession(&self) -> CertificateSuccession {
        let serving = self
            .serving()
            .and_then(|serving| serving.credentials.as_ref());
        CertificateSuccession {
            ring: self.certificates.ring.clone(),
            credentials: serving.map(|handed| handed.credentials.clone()),
        }
    }

    /// Watches the files of all generations that serve or are to serve.
    pub(super) fn watch_certificates(&mut self) {
        let all = self.generations.values();
        let mut files: Vec<PathBuf> = all.flat_map(|one| files_of(&one.config)).collect();
        files.sort();
        files.dedup();
        let own = &mut self.certificates;
        let has_some = !files.is_empty();
        if own.watched != files {
            let now = telemetry::now();
            own.watcher = has_some.then(|| FileWatcher::new(&[], &files, now));
            own.watched = files;
            own.state = RenewalState::Good;
        }
        own.reminder_due = match own.reminder_due {
            None if has_some => Some(Instant::now() + REMINDER_INTERVAL),
            due => due.filter(|_| has_some),
        };
    }

    /// Does what is due: files that have changed, keys that are to be turned, certificates that end soon.
    pub(super) fn look_after_certificates(&mut self, now: Instant) {
        self.turn_ticket_keys();
        let own = &mut self.certificates;
        let mut has_changed = false;
        if let Some(watcher) = &mut own.watcher {
            has_changed = watcher.changed(telemetry::now()).is_some();
            if let Some(warning) = watcher.warning() {
                say(&format!("certificates: {warning}"));
            }
        }
        let is_due = own.state.due().is_some_and(|due| due <= now);
        if has_changed || is_due {
            self.take_changed_files(is_due, now);
        }
        if self.certificates.reminder_due.is_some_and(|due| due <= now) {
            self.certificates.reminder_due = Some(now + REMINDER_INTERVAL);
            self.remind();
        }
    }

    fn turn_ticket_keys(&mut self) {
        let Some(ring) = &mut self.certificates.ring else {
            return;
        };
        if !ring.turn(unix_now()) {
            return;
        }
        let keys = ring.keys();
        let ids: Vec<u64> = self.generations.keys().copied().collect();
        for id in ids {
            let generation = self.generations.get(&id);
            let handed = generation
                .filter(|one| one.config.tls.ticket_keys.is_none())
                .and_then(|one| one.credentials.as_ref());
            if let Some(handed) = handed {
                let next = handed.credentials.clone().with_ticket_keys(keys.clone());
                self.hand_out(id, next);
            }
        }
    }

    fn take_changed_files(&mut self, is_due: bool, now: Instant) {
        let mut faults = Vec::new();
        let ids: Vec<u64> = self.generations.keys().copied().collect();
        for id in ids {
            let Some(generation) = self.generations.get(&id) else {
                continue;
            };
            let Some(handed) = &generation.credentials else {
                continue;
            };
            let tls = generation.config.tls.clone();
            let old = handed.credentials.clone();
            let read = (self.around.credentials)(&tls);
            let read = read.unwrap_or_else(|failures| {
                faults.extend(failures);
                self.read_each(&tls, &old)
            });
            let (read, worse) = not_worse(&old, read);
            faults.extend(worse);
            let next = self.certificates.with_ticket_keys(&tls, read);
            if next != old {
                // First: whoever reads the line may connect at once.
                self.hand_out(id, next.clone());
                say(&changed(&old, &next));
            }
        }
        let own = &mut self.certificates;
        if faults.is_empty() {
            own.state = RenewalState::Good;
            return;
        }
        let (state, is_said) = own.state.at_fault(is_due, now);
        own.state = state;
        if is_said {
            for fault in faults {
                say(&format!(
                    "{}: the certificates stay as they were",
                    fault.message
                ));
            }
        }
    }

    /// What can be used of files of which some are at fault: a certificate at fault keeps no other one from being
    /// renewed.
    fn read_each(&self, tls: &Tls, old: &Credentials) -> Credentials {
        let alone = |one: &TlsIdentity| Tls {
            identities: vec![one.clone()],
            ticket_keys: None,
            ..tls.clone()
        };
        let read = tls.identities.iter();
        let read = read.map(|one| {
            (self.around.credentials)(&alone(one))
                .ok()?
                .identities
                .pop()
        });
        let read: Vec<_> = read.collect();
        // None of them alone: they do not go together, or the keys of session tickets are at fault.
        if read.iter().all(Option::is_some) {
            return old.clone();
        }
        let both = read.into_iter().zip(&old.identities);
        Credentials {
            identities: both
                .map(|(read, old)| read.unwrap_or_else(|| old.clone()))
                .collect(),
            ..old.clone()
        }
    }

    /// A generation has other credentials from now on, in processes that are still to come too.
    fn hand_out(&mut self, id: u64, credentials: Credentials) {
        let handed = match HandedCredentials::new(credentials) {
            Ok(handed) => handed,
            Err(error) => {
                // The next change or turn tries again.
                return say(&format!("cannot hand out certificates: {}", plain(&error)));
            }
        };
        for process in self.processes.iter_mut().filter(|one| one.generation == id) {
            let is_told = matches!(process.state, ProcessState::Starting | ProcessState::Ready);
            if process.role == Role::Serving
                && is_told
                && let Ok(file) = handed.file()
            {
                process.tell(SupervisorCommand::TakeCredentials, vec![file]);
            }
        }
        if let Some(generation) = self.generations.get_mut(&id) {
            generation.credentials = Some(handed);
        }
    }

    fn remind(&self) {
        let handed = self
            .serving()
            .and_then(|serving| serving.credentials.as_ref());
        if let Some(handed) = handed {
            ending(&handed.credentials)
                .iter()
                .for_each(|text| say(text));
        }
    }

    /// The certificates of the generation that serves.
    pub(super) fn certificate_lines(&self) -> Vec<CertificateStatus> {
        let handed = self
            .serving()
            .and_then(|serving| serving.credentials.as_ref());
        let identities = handed.map_or(&[][..], |handed| &handed.credentials.identities);
        identities.iter().map(CertificateStatus::from).collect()
    }
}

/// A certificate that has expired takes the place of none that has not: the old one stays, and that is a fault.
fn not_worse(old: &Credentials, mut read: Credentials) -> (Credentials, Vec<Failure>) {
    let now = unix_now();
    let is_expired = |one: &Identity| one.facts.validity(now) == Validity::Expired;
    let mut faults = Vec::new();
    for (read, old) in read.identities.iter_mut().zip(&old.identities) {
        if is_expired(read) && !is_expired(old) {
            faults.push(Failure::new(read.warning(now).unwrap_or_default()));
            *read = old.clone();
        }
    }
    (read, faults)
}

/// What is worth saying of the ends of certificates.
fn ending(credentials: &Credentials) -> Vec<String> {
    let now = unix_now();
    let identities = credentials.identities.iter();
    identities.filter_map(|one| one.warning(now)).collect()
}

fn changed(old: &Credentials, next: &Credentials) -> String {
    let fresh = next.identities.iter().zip(&old.identities);
    let fresh = fresh.filter(|(next, old)| next != old);
    let said: Vec<String> = fresh.map(|(next, _)| next.summary()).collect();
    match said.is_empty() {
        true => "the keys of session tickets have changed".to_owned(),
        false => format!("certificates have changed: {}", said.join("; ")),
    }
}

/// All files that certificates are made of.
fn files_of(config: &Config) -> Vec<PathBuf> {
    let tls = &config.tls;
    let mut files: Vec<PathBuf> = tls.ticket_keys.iter().cloned().collect();
    for one in &tls.identities {
        files.extend([one.cert.clone(), one.key.clone()]);
        files.extend(one.ocsp.clone());
        if let Some(KeyPassword::File(file)) = &one.key_password {
            files.push(file.clone());
        }
        if let Some(auth) = &one.client_auth {
            files.push(auth.ca.clone());
            files.extend(auth.crl.clone());
        }
    }
    files
}

fn unix_now() -> u64 {
    let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
    since.unwrap_or_default().as_secs()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_fault_is_said_once_when_the_second_file_has_not_come() {
        let start = Instant::now();
        let (state, is_said) = RenewalState::Good.at_fault(false, start);
        assert_eq!(
            (state, is_said),
            (RenewalState::Changing(start + RENEWAL_TIME), false)
        );
        // Another change, still at fault: the time runs from the first.
        let soon = start + Duration::from_millis(300);
        let (state, is_said) = state.at_fault(false, soon);
        assert_eq!(
            (state, is_said),
            (RenewalState::Changing(start + RENEWAL_TIME), false)
        );
        let late = start + RENEWAL_TIME;
        let (state, is_said) = state.at_fault(true, late);
        assert_eq!(
            (state, is_said),
            (RenewalState::Faulty(late + RETRY_INTERVAL), true)
        );
        for is_due in [true, false] {
            let (_, is_said) = state.at_fault(is_due, late);
            assert!(!is_said, "it was said");
        }
        assert_eq!(state.due(), Some(late + RETRY_INTERVAL));
        assert_eq!(RenewalState::Good.due(), None);
    }

    #[test]
    fn watches_every_file_of_a_certificate() {
        use config::typed::{ClientAuth, ClientDemand};
        let mut config = Config::default();
        config.tls.ticket_keys = Some("tickets".into());
        config.tls.identities = vec![TlsIdentity {
            cert: "a.pem".into(),
            key: "a.key".into(),
            key_password: Some(KeyPassword::File("password".into())),
            ocsp: Some("a.ocsp".into()),
            client_auth: Some(ClientAuth {
                demand: ClientDemand::Require,
                ca: "ca.pem".into(),
                crl: Some("crl.pem".into()),
            }),
            ..TlsIdentity::default()
        }];
        let expect = [
            "tickets", "a.pem", "a.key", "a.ocsp", "password", "ca.pem", "crl.pem",
        ];
        assert_eq!(files_of(&config), expect.map(PathBuf::from));
    }
}
