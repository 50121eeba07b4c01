//! Certificates and keys of session tickets: read when a generation is made and when their files change, handed to all
//! processes of the generation.
//!
//! The first generation's are read by this thread, before anything serves. All later ones are read by `file_reader`:
//! a generation that is to serve waits for them for a bounded time, and nothing else does. `changes` says what becomes
//! of files that have changed.

mod changes;
mod shown;

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::PathBuf;
use std::time::{Duration, Instant, SystemTime};

use config::failure::{Failure, StartFault, plain};
use config::typed::{Config, KeyPassword, Tls};
use ipc::{Role, SupervisorCommand, payload};
use serde::{Deserialize, Serialize};
use telemetry::{Nanos, Stamp};
use tls::{Credentials, TicketKeyRing};

use super::file_reader::{FileReader, PreparedCredentials};
use super::generation::Generation;
use super::process::ProcessState;
use super::stderr::say;
use super::{SLEEP_MAX, Supervisor, SupervisorEnvironment};
use changes::RenewalState;

pub use shown::certificate_status;

/// Time that files have to answer. A generation that is to serve waits for its certificates for no longer.
const ANSWER_TIME: Duration = Duration::from_secs(5);
/// Time between two lines about certificates that end soon.
const REMINDER_INTERVAL: Duration = Duration::from_secs(86_400);

/// What the supervisor keeps beside the credentials of each generation.
#[derive(Default)]
pub(super) struct Certificates {
    /// Keys of session tickets, from the first generation with TLS on, through all later ones.
    ring: Option<TicketKeyRing>,
    /// From the first generation with TLS on.
    reader: Option<FileReader>,
    /// What the reader watches.
    watched: Vec<PathBuf>,
    state: RenewalState,
    /// Faults of files that were said, and are still there.
    said: Vec<String>,
    /// Files are to be read, or are being read, since this moment.
    asked: Option<Instant>,
    /// That a file has not answered since this moment was said.
    hang_said: Option<Stamp>,
    /// What was wrong with the files of this generation at the last look, by their places in its configuration.
    faults: (u64, Vec<(usize, String)>),
    /// Something has changed that status pages show.
    pub(super) is_news: bool,
    reminder_due: Option<Instant>,
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
        let read = (around.certificate_files.read)(&generation.config.tls);
        let read = read.whole().map_err(|faults| {
            let first = faults.into_iter().next().map(Failure::from);
            let cause = first.unwrap_or_default().message;
            StartFault::new("cannot use the certificates", cause)
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
        let turn = self.ring.as_ref().map(|ring| {
            let left = Duration::from_secs(ring.next_turn().saturating_sub(unix_now()));
            now + left.min(SLEEP_MAX)
        });
        // While files are read, there is nothing to look at yet.
        let look = self.state.due().filter(|_| self.asked.is_none());
        let all = [self.hang_due(now), turn, look, self.reminder_due];
        all.into_iter().flatten().min()
    }

    /// When a file has not answered in time; none where that was said.
    fn hang_due(&self, now: Instant) -> Option<Instant> {
        let since = self.reader.as_ref()?.busy_since()?;
        let waited = telemetry::now().since(since);
        (self.hang_said != Some(since)).then(|| now + ANSWER_TIME.saturating_sub(span(waited)))
    }

    /// Files do not answer.
    fn is_hanging(&self) -> bool {
        let since = self.reader.as_ref().and_then(FileReader::busy_since);
        since.is_some_and(|since| span(telemetry::now().since(since)) >= ANSWER_TIME)
    }

    /// Readable with a finding.
    pub(super) fn fd(&self) -> Option<BorrowedFd<'_>> {
        self.reader.as_ref().map(FileReader::fd)
    }

    fn reader(&mut self, around: &SupervisorEnvironment<'_>) -> io::Result<&FileReader> {
        let reader = match self.reader.take() {
            Some(reader) => reader,
            None => FileReader::start(around.certificate_files)?,
        };
        Ok(self.reader.insert(reader))
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
    /// Has the credentials of a generation read, which is to serve. It starts no process before they are there.
    pub(super) fn ask_credentials(
        &mut self,
        generation: &mut Generation,
    ) -> Result<(), Vec<Failure>> {
        if generation.config.tls.identities.is_empty() {
            return Ok(());
        }
        let now = Instant::now();
        let patience = match self.certificates.is_hanging() {
            true => Duration::ZERO,
            false => ANSWER_TIME,
        };
        let reader = self.certificates.reader(&self.around);
        let reader = reader
            .map_err(|error| vec![Failure::new(format!("certificates: {}", plain(&error)))])?;
        reader.prepare(generation.id, generation.config.clone());
        generation.awaited_until = Some(now + patience);
        Ok(())
    }

    /// The credentials of a generation were read. One with the same settings as the one that serves goes on with its
    /// certificates, whatever is wrong with the files.
    pub(super) fn credentials_read(
        &mut self,
        id: u64,
        read: Result<PreparedCredentials, Vec<Failure>>,
    ) {
        let Some(mut generation) = self.generations.remove(&id) else {
            return;
        };
        let given = self.give_read(&mut generation, read);
        generation.awaited_until = None;
        self.generations.insert(id, generation);
        if let Err(failures) = given {
            self.next_lacks(&failures);
        }
    }

    fn give_read(
        &mut self,
        generation: &mut Generation,
        read: Result<PreparedCredentials, Vec<Failure>>,
    ) -> Result<(), Vec<Failure>> {
        let tls = &generation.config.tls;
        let serving = self.serving().filter(|serving| {
            let old = &serving.config.tls;
            (&old.identities, &old.ticket_keys) == (&tls.identities, &tls.ticket_keys)
        });
        let kept =
            serving.and_then(|serving| Some(serving.credentials.as_ref()?.credentials.clone()));
        let stays = |fault: &str| format!("{fault}: the certificates stay as they were");
        let credentials = match (read, kept) {
            (Ok(read), None) => {
                generation.notes.extend(read.notes);
                read.credentials
            }
            (Ok(read), Some(kept)) => {
                generation.notes.extend(read.notes);
                // An operator who reloads may want a certificate that has expired, but no placeholder.
                let (credentials, worse) = self.not_placeholders(&kept, read.credentials);
                let notes = worse.iter().map(|(_, fault)| stays(fault));
                generation.notes.extend(notes);
                credentials
            }
            (Err(failures), Some(kept)) => {
                let notes = failures.iter().map(|failure| stays(&failure.message));
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
        let has_some = !files.is_empty();
        if self.certificates.watched != files {
            self.certificates.watched.clone_from(&files);
            self.certificates.state = RenewalState::Good;
            match self.certificates.reader(&self.around) {
                Ok(reader) => reader.watch(files),
                Err(error) => say(&format!("cannot watch the certificates: {}", plain(&error))),
            }
        }
        let own = &mut self.certificates;
        own.reminder_due = match own.reminder_due {
            None if has_some => Some(Instant::now() + REMINDER_INTERVAL),
            due => due.filter(|_| has_some),
        };
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
        self.certificates.is_news = true;
    }

    fn remind(&mut self, now: Instant) {
        if self.certificates.reminder_due.is_none_or(|due| due > now) {
            return;
        }
        self.certificates.reminder_due = Some(now + REMINDER_INTERVAL);
        let serving = self.serving();
        let handed = serving.and_then(|serving| serving.credentials.as_ref());
        let lines = handed.map(|handed| ending(&handed.credentials));
        for text in lines.into_iter().flatten() {
            say(&text);
        }
    }
}

/// What is worth saying of the ends of certificates.
fn ending(credentials: &Credentials) -> Vec<String> {
    let now = unix_now();
    let identities = credentials.identities.iter();
    identities.filter_map(|one| one.warning(now)).collect()
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

fn span(Nanos(nanos): Nanos) -> Duration {
    Duration::from_nanos(nanos)
}

fn unix_now() -> u64 {
    let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
    since.unwrap_or_default().as_secs()
}

#[cfg(test)]
mod tests {
    use config::typed::TlsIdentity;

    use super::*;

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
