//! What becomes of files of certificates that have changed.
//!
//! ```text
//!        files change, and        still at fault after 1 s: it is said once
//!        are at fault
//! GOOD ─────────────────► CHANGING ────────────────────────────────────► FAULTY, looked at again each minute
//!   ▲                        │  ▲                                          │ │
//!   │                        │  └── another fault ─────────────────────────┘ │
//!   └────────────────────────┴────────── files are good: handed out ─────────┘
//! ```
//! Renewers write the certificate and its key one after the other, so that files which do not fit each other are
//! expected for a moment. Whatever is wrong with them, processes go on with what they have: each certificate for itself,
//! and the keys of session tickets for themselves.

use std::time::{Duration, Instant};

use super::super::Supervisor;
use super::super::file_reader::FileFinding;
use super::super::stderr::say;
use super::{ANSWER_TIME, unix_now};
use config::failure::Failure;
use tls::{CredentialFiles, Credentials, Identity, Validity};

/// Time between the two files of one renewal, at most.
const RENEWAL_TIME: Duration = Duration::from_secs(1);
/// Time between two looks at files that stay at fault, where nothing reports a change.
const RETRY_INTERVAL: Duration = Duration::from_secs(60);

/// See the drawing above.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum RenewalState {
    #[default]
    Good,
    /// With the moment of the next look.
    Changing(Instant),
    Faulty(Instant),
}

/// What a look at files has found that are at fault.
#[derive(Clone, Copy, Debug)]
struct FaultyLook {
    /// The time for the second file is over.
    is_due: bool,
    /// A fault that was not said.
    has_news: bool,
}

impl RenewalState {
    /// After a look at files that are at fault; says whether to say so.
    fn at_fault(self, look: FaultyLook, now: Instant) -> (Self, bool) {
        let FaultyLook { is_due, has_news } = look;
        match self {
            RenewalState::Good => (RenewalState::Changing(now + RENEWAL_TIME), false),
            RenewalState::Changing(until) if !is_due => (RenewalState::Changing(until), false),
            RenewalState::Changing(_) => (RenewalState::Faulty(now + RETRY_INTERVAL), true),
            RenewalState::Faulty(_) if has_news => {
                (RenewalState::Changing(now + RENEWAL_TIME), false)
            }
            RenewalState::Faulty(_) => (RenewalState::Faulty(now + RETRY_INTERVAL), false),
        }
    }

    pub(super) fn due(self) -> Option<Instant> {
        match self {
            RenewalState::Good => None,
            RenewalState::Changing(at) | RenewalState::Faulty(at) => Some(at),
        }
    }
}

impl Supervisor<'_> {
    /// Does what is due: files that have changed, keys that are to be turned, certificates that end soon.
    pub(in super::super) fn look_after_certificates(&mut self, now: Instant) {
        self.turn_ticket_keys();
        self.take_findings(now);
        self.end_late_reads(now);
        let own = &self.certificates;
        if own.asked.is_none() && own.state.due().is_some_and(|due| due <= now) {
            self.ask_changed_files(now);
        }
        self.remind(now);
        self.show_certificates();
    }

    fn take_findings(&mut self, now: Instant) {
        let reader = self.certificates.reader.as_ref();
        let found = reader.map(|reader| reader.take_found());
        for finding in found.into_iter().flatten() {
            match finding {
                FileFinding::Changed => self.ask_changed_files(now),
                FileFinding::Warning(warning) => say(&format!("certificates: {warning}")),
                FileFinding::Read(asked, read) => self.take_changed_files(asked, read, now),
                FileFinding::Prepared(id, read) => {
                    let generation = self.generations.get(&id);
                    match generation.is_some_and(|one| one.awaited_until.is_some()) {
                        true => self.credentials_read(id, read),
                        // It was not waited for: what the files hold is taken as a change.
                        false => self.ask_changed_files(now),
                    }
                }
            }
        }
        if self.certificates.hang_said.is_some() && !self.certificates.is_hanging() {
            self.certificates.hang_said = None;
            say("certificates: the files answer again");
        }
    }

    /// Nothing waits longer for files that do not answer.
    fn end_late_reads(&mut self, now: Instant) {
        let own = &mut self.certificates;
        if own.hang_due(now).is_some_and(|due| due <= now) {
            own.hang_said = own.reader.as_ref().and_then(|reader| reader.busy_since());
            let what = unanswered();
            say(&format!(
                "certificates: {what}: the certificates stay as they were until it does"
            ));
        }
        let mut all = self.generations.values();
        let late = all.find(|one| one.awaited_until.is_some_and(|until| until <= now));
        if let Some(id) = late.map(|one| one.id) {
            let failure = Failure::new(format!("certificates: {}", unanswered()));
            let failure = failure.with_hint("is the storage that they are on reachable?");
            self.credentials_read(id, Err(vec![failure]));
        }
    }

    /// A generation serves from now on: what is wrong with its files is shown.
    pub(in super::super) fn look_at_certificates(&mut self) {
        self.ask_changed_files(Instant::now());
    }

    fn ask_changed_files(&mut self, now: Instant) {
        let own = self.generations.values();
        let own = own.filter(|one| one.credentials.is_some());
        let all = own.map(|one| (one.id, one.config.tls.clone())).collect();
        if let Some(reader) = &self.certificates.reader {
            self.certificates.asked = Some(now);
            reader.read(now, all);
        }
    }

    fn take_changed_files(
        &mut self,
        asked: Instant,
        read: Vec<(u64, CredentialFiles)>,
        now: Instant,
    ) {
        let mut faults = Vec::new();
        for (id, files) in read {
            let generation = self.generations.get(&id);
            let Some((handed, tls)) =
                generation.and_then(|one| Some((one.credentials.as_ref()?, &one.config.tls)))
            else {
                continue;
            };
            let (old, tls) = (handed.credentials.clone(), tls.clone());
            let place =
                |one: &tls::IdentityFault| (one.identity, Failure::from(one.clone()).message);
            let mut found: Vec<_> = files.faults.iter().map(place).collect();
            let (read, worse) = self.not_worse(&old, files.over(&old));
            found.extend(worse);
            faults.extend(found.iter().map(|(_, fault)| fault.clone()));
            if self.plan.serving() == Some(id) {
                let found = (id, found);
                self.certificates.is_news |= self.certificates.faults != found;
                self.certificates.faults = found;
            }
            let next = self.certificates.with_ticket_keys(&tls, read);
            if next != old {
                // First: whoever reads the line may connect at once.
                self.hand_out(id, next.clone());
                say(&changed(&old, &next));
            }
        }
        self.note_faults(asked, faults, now);
    }

    fn note_faults(&mut self, asked: Instant, faults: Vec<String>, now: Instant) {
        let own = &mut self.certificates;
        own.asked = own.asked.filter(|latest| *latest != asked);
        // What was mended and breaks again is said again.
        own.said.retain(|fault| faults.contains(fault));
        if faults.is_empty() {
            own.state = RenewalState::Good;
            return;
        }
        let is_due = own.state.due().is_some_and(|due| due <= asked);
        let news: Vec<&String> = faults
            .iter()
            .filter(|one| !own.said.contains(one))
            .collect();
        let look = FaultyLook {
            is_due,
            has_news: !news.is_empty(),
        };
        let (state, is_said) = own.state.at_fault(look, now);
        own.state = state;
        if is_said {
            for fault in news {
                say(&format!("{fault}: the certificates stay as they were"));
            }
            own.said = faults;
        }
    }

    /// A certificate that has expired takes the place of none that has not, and a placeholder that of no certificate: the
    /// old one stays, and that is a fault.
    fn not_worse(
        &self,
        old: &Credentials,
        read: Credentials,
    ) -> (Credentials, Vec<(usize, String)>) {
        let now = unix_now();
        let is_expired = |one: &Identity| one.facts.validity(now) == Validity::Expired;
        let (read, mut faults) = self.not_placeholders(old, read);
        let (read, expired) = kept_where(old, read, |old, read| {
            let is_worse = is_expired(read) && !is_expired(old);
            is_worse.then(|| read.warning(now).unwrap_or_default())
        });
        faults.extend(expired);
        (read, faults)
    }

    /// The same for placeholders alone.
    pub(super) fn not_placeholders(
        &self,
        old: &Credentials,
        read: Credentials,
    ) -> (Credentials, Vec<(usize, String)>) {
        let is_placeholder = |one: &Identity| one.facts.issuer == self.around.placeholder_issuer;
        kept_where(old, read, |old, read| {
            let is_worse = is_placeholder(read) && !is_placeholder(old);
            is_worse.then(|| {
                let names = read.served_names().join(", ");
                format!("the file of {names} has a placeholder")
            })
        })
    }
}

/// The old one wherever there is a fault, with these faults by their places.
fn kept_where(
    old: &Credentials,
    mut read: Credentials,
    fault: impl Fn(&Identity, &Identity) -> Option<String>,
) -> (Credentials, Vec<(usize, String)>) {
    let mut faults = Vec::new();
    let both = read.identities.iter_mut().zip(&old.identities);
    for (place, (read, old)) in both.enumerate() {
        if let Some(fault) = fault(old, read) {
            faults.push((place, fault));
            *read = old.clone();
        }
    }
    (read, faults)
}

fn unanswered() -> String {
    let secs = ANSWER_TIME.as_secs();
    format!("a file or its folder has not answered for {secs} s")
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_fault_is_said_once_when_the_second_file_has_not_come() {
        let start = Instant::now();
        let look = |is_due, has_news| FaultyLook { is_due, has_news };
        let (state, is_said) = RenewalState::Good.at_fault(look(false, true), start);
        assert_eq!(
            (state, is_said),
            (RenewalState::Changing(start + RENEWAL_TIME), false)
        );
        // Another change, still at fault: the time runs from the first.
        let soon = start + Duration::from_millis(300);
        let (state, is_said) = state.at_fault(look(false, true), soon);
        assert_eq!(
            (state, is_said),
            (RenewalState::Changing(start + RENEWAL_TIME), false)
        );
        let late = start + RENEWAL_TIME;
        let (state, is_said) = state.at_fault(look(true, true), late);
        assert_eq!(
            (state, is_said),
            (RenewalState::Faulty(late + RETRY_INTERVAL), true)
        );
        for is_due in [true, false] {
            let (same, is_said) = state.at_fault(look(is_due, false), late);
            assert_eq!((same, is_said), (state, false));
        }
        // Another file is at fault as well.
        let (other, is_said) = state.at_fault(look(false, true), late);
        assert_eq!(
            (other, is_said),
            (RenewalState::Changing(late + RENEWAL_TIME), false)
        );
        assert_eq!(state.due(), Some(late + RETRY_INTERVAL));
        assert_eq!(RenewalState::Good.due(), None);
    }
}
