//! One name of the plan: what it has, and when something is to be done for it. Decides; does no more than read its
//! files.

use std::io;
use std::time::SystemTime;

use crate::account::unix_s;
use crate::bundle::Held;
use crate::lock::SeenLock;
use crate::name::is_local;
use crate::plan::{ChallengeKind, Directory, Plan};
use crate::renewal_info::Suggestion;
use crate::report::{NameState, SaidFailure};
use crate::retry::RetryRecord;
use crate::storage::{Storage, read};

/// A name and its state.
#[derive(Debug)]
pub(crate) struct ManagedName {
    pub(crate) name: String,
    /// `None`: the local authority.
    pub(crate) directory: Option<Directory>,
    /// What it has.
    pub(crate) held: Option<Held>,
    /// What its authority suggests for that.
    pub(crate) suggestion: Option<Suggestion>,
    /// Failed tries in a row.
    pub(crate) retry: Option<RetryRecord>,
    pub(crate) seen_lock: SeenLock,
    pub(crate) said: SaidFailure,
    /// Another process works for it: nothing is done before.
    pub(crate) looked_again: Option<SystemTime>,
}

impl ManagedName {
    pub(crate) fn new(name: &str, plan: &Plan) -> Self {
        let directory = (!is_local(name)).then(|| plan.authority.directory.clone());
        Self {
            name: name.to_owned(),
            directory,
            held: None,
            suggestion: None,
            retry: None,
            seen_lock: SeenLock::default(),
            said: SaidFailure::default(),
            looked_again: None,
        }
    }

    /// Takes what the storage folder has: another process may have put it there.
    ///
    /// # Errors
    /// The folder cannot be read. A certificate that is of no use is none.
    pub(crate) fn refresh(&mut self, storage: &Storage) -> io::Result<()> {
        let before = self.held.take();
        if let Some(pem) = read(&storage.certificate(self.directory.as_ref(), &self.name))? {
            self.held = Held::read_for(&pem, &self.name).ok();
        }
        let facts = |held: &Option<Held>| held.as_ref().map(|held| held.facts.clone());
        if facts(&before) != facts(&self.held) {
            // It was about another certificate.
            self.suggestion = None;
        }
        if let Some(directory) = &self.directory {
            let text = read(&storage.retry(directory, &self.name))?;
            // A record that cannot be read counts nothing; the next failure writes another.
            self.retry = text.and_then(|text| serde_json::from_str(&text).ok());
        }
        Ok(())
    }

    /// When it needs a certificate; `None`: not before the next start.
    pub(crate) fn due(&self, started: SystemTime, now: SystemTime) -> Option<SystemTime> {
        let needed = match &self.held {
            Some(held) => {
                let window = self.suggestion.and_then(|suggestion| suggestion.window);
                held.validity().renewal(window, held.chance())
            }
            None => now,
        };
        let due = match &self.retry {
            Some(retry) => retry.next(started, now)?.max(needed),
            None => needed,
        };
        Some(self.looked_again.map_or(due, |at| at.max(due)))
    }

    /// When its authority is to be asked about the renewal; `None` where there is nothing to ask.
    pub(crate) fn asked(&self, now: SystemTime) -> Option<SystemTime> {
        let is_asked = self.directory.is_some() && self.held.is_some();
        let at = || {
            self.suggestion
                .map_or(now, |suggestion| suggestion.asked_again)
        };
        is_asked.then(at)
    }

    /// The challenge of the next try: each failure goes on to the next kind, because one port may be closed.
    pub(crate) fn kind(&self, kinds: &[ChallengeKind]) -> ChallengeKind {
        let failures = self.retry.as_ref().map_or(0, |retry| retry.failures);
        let index = usize::try_from(failures).unwrap_or(0) % kinds.len().max(1);
        kinds.get(index).copied().unwrap_or(ChallengeKind::Http01)
    }

    /// For people.
    pub(crate) fn state(&self, started: SystemTime, now: SystemTime) -> NameState {
        let facts = self.held.as_ref().map(|held| &held.facts);
        let authority = self.directory.as_ref().map_or("local", Directory::host);
        // A first try that is under way has not failed.
        let failed = self.retry.as_ref().filter(|retry| retry.failures > 0);
        NameState {
            name: self.name.clone(),
            authority: authority.to_owned(),
            issuer: facts.map(|facts| facts.issuer.clone()),
            not_after_unix_s: facts.map(|facts| unix_s(facts.not_after)),
            next_try_unix_s: self.due(started, now).map(unix_s),
            failures: self.retry.as_ref().map_or(0, |retry| retry.failures),
            last_error: failed.map(|retry| retry.cause.clone()),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::local_authority;
    use crate::plan::Authority;
    use crate::schedule::RenewalWindow;

    fn plan(dir: &tempfile::TempDir) -> Plan {
        Plan {
            names: vec!["shop.localhost".to_owned(), "shop.example".to_owned()],
            authority: Authority {
                directory: Directory::new("https://ca.example/dir"),
                staging: None,
                email: None,
                roots: None,
                challenges: vec![ChallengeKind::Http01, ChallengeKind::TlsAlpn01],
            },
            storage: dir.path().to_owned(),
        }
    }

    #[test]
    fn a_name_without_a_certificate_is_due_at_once() {
        let dir = tempfile::tempdir().unwrap();
        let now = SystemTime::now();
        let name = ManagedName::new("shop.example", &plan(&dir));
        assert_eq!(name.due(now, now), Some(now));
        assert_eq!(name.asked(now), None);
    }

    #[test]
    fn a_name_is_due_when_its_certificate_is_to_be_renewed() {
        let dir = tempfile::tempdir().unwrap();
        let plan = plan(&dir);
        let storage = Storage::new(&plan.storage);
        let now = SystemTime::now();
        let pem = local_authority::issue(&storage, "shop.localhost", now).unwrap();
        let path = storage.certificate(None, "shop.localhost");
        storage.save(&path, pem.as_bytes()).unwrap();
        let mut name = ManagedName::new("shop.localhost", &plan);
        name.refresh(&storage).unwrap();
        let due = name.due(now, now).unwrap();
        let day = Duration::from_secs(86_400);
        assert!(due > now + day * 4 && due < now + day * 5);
        // Local names are asked of nobody.
        assert_eq!(name.asked(now), None);
        let past = RenewalWindow {
            start: now - day,
            end: now - day / 2,
        };
        name.suggestion = Some(Suggestion {
            window: Some(past),
            asked_again: now,
        });
        assert!(name.due(now, now).unwrap() < now);
        storage.save(&path, b"torn").unwrap();
        name.refresh(&storage).unwrap();
        assert_eq!(name.due(now, now), Some(now));
        assert_eq!(name.suggestion, None);
    }

    #[test]
    fn failures_wait_and_change_the_challenge() {
        let dir = tempfile::tempdir().unwrap();
        let plan = plan(&dir);
        let now = SystemTime::now();
        let mut name = ManagedName::new("shop.example", &plan);
        let kinds = &plan.authority.challenges;
        assert_eq!(name.kind(kinds), ChallengeKind::Http01);
        name.retry = Some(RetryRecord::failed(None, now, "refused".to_owned()));
        assert_eq!(name.kind(kinds), ChallengeKind::TlsAlpn01);
        assert_eq!(name.due(now, now), Some(now + Duration::from_secs(60)));
        let state = name.state(now, now);
        assert_eq!(state.failures, 1);
        assert_eq!(state.last_error.as_deref(), Some("refused"));
        assert_eq!(state.authority, "ca.example");
        assert_eq!(state.next_try_unix_s, Some(unix_s(now) + 60));
    }
}
