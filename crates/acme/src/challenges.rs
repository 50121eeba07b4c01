//! Answers to challenges: files in the storage folder, written by the process that works for a name and read by
//! every process that serves, on every machine that shares the folder.
//!
//! The main loop of each machine looks once each [`LOOK_EVERY`], and says what it sees; an authority is asked to check
//! only after [`SETTLED_AFTER`], when all processes that serve have heard of the answer.

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use rcgen::{CertificateParams, CustomExtension, DistinguishedName, KeyPair};

use crate::fault::IssueFault;
use crate::name::folder_of_name;
use crate::plan::ChallengeKind;
use crate::storage::{Storage, read};

/// How often a process that serves looks for challenges.
pub const LOOK_EVERY: Duration = Duration::from_secs(1);
/// Time from the answer's file to the request for the check: two looks, and as long again for a slow file system.
pub(crate) const SETTLED_AFTER: Duration = Duration::from_secs(4);
/// Answers of one kind that are read; one process works for one name at a time, and machines are few.
const ANSWERS_LEN_MAX: usize = 256;
/// Characters of a token; Let's Encrypt's have 43.
const TOKEN_CHARS_MAX: usize = 128;
/// What a process that died has left is removed after this.
const LEFT_AFTER: Duration = Duration::from_secs(3_600);
/// A folder that was changed so short a time ago may change again within the same tick of its clock.
const TICK_MAX: Duration = Duration::from_secs(2);

/// All answers that are wanted just now.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ChallengeTable {
    /// HTTP-01: the body to answer with, `application/octet-stream`, by the last segment of the path
    /// `/.well-known/acme-challenge/TOKEN`, whatever the Host field says.
    pub http: BTreeMap<String, String>,
    /// TLS-ALPN-01: key and certificate as PEM, by the server name, for handshakes whose only protocol is `acme-tls/1`.
    pub tls: BTreeMap<String, String>,
}

/// Looks for challenges.
#[derive(Debug)]
pub struct ChallengeWatch {
    storage: Storage,
    seen: Option<[Option<SystemTime>; 2]>,
}

impl ChallengeWatch {
    /// A watch that has seen nothing yet.
    pub fn new(storage: Storage) -> Self {
        Self {
            storage,
            seen: None,
        }
    }

    /// The answers that are wanted, when they may have changed since the last call: two system calls otherwise.
    ///
    /// # Errors
    /// The folder cannot be read; the next call tries again.
    pub fn look(&mut self, now: SystemTime) -> io::Result<Option<ChallengeTable>> {
        let (http, tls) = (
            self.storage.http_challenges(),
            self.storage.tls_challenges(),
        );
        let changed = [changed(&http)?, changed(&tls)?];
        if self.seen == Some(changed) {
            return Ok(None);
        }
        let table = ChallengeTable {
            http: answers(&http)?,
            tls: answers(&tls)?,
        };
        let is_young = |at: &SystemTime| now.duration_since(*at).map_or(true, |age| age < TICK_MAX);
        let is_settled = !changed.iter().flatten().any(is_young);
        self.seen = is_settled.then_some(changed);
        Ok(Some(table))
    }
}

/// When a folder was changed; `None` where there is none.
fn changed(folder: &Path) -> io::Result<Option<SystemTime>> {
    match fs::metadata(folder) {
        Ok(facts) => facts.modified().map(Some),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error),
    }
}

fn answers(folder: &Path) -> io::Result<BTreeMap<String, String>> {
    let mut answers = BTreeMap::new();
    let entries = match fs::read_dir(folder) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(answers),
        entries => entries?,
    };
    for entry in entries.take(ANSWERS_LEN_MAX) {
        let entry = entry?;
        // Another process may have removed it meanwhile.
        if let (Ok(name), Some(content)) = (entry.file_name().into_string(), read(&entry.path())?) {
            answers.insert(name, content);
        }
    }
    Ok(answers)
}

/// An answer that is there for readers until it is dropped.
#[derive(Debug)]
pub(crate) struct Answer {
    path: PathBuf,
}

impl Answer {
    /// Puts the answer to one challenge where readers find it. `authorization` is the key authorization, `digest` its
    /// SHA-256.
    pub(crate) fn publish(
        storage: &Storage,
        kind: ChallengeKind,
        name: &str,
        token: &str,
        authorization: &str,
        digest: &[u8],
    ) -> Result<Answer, IssueFault> {
        let (path, content) = match kind {
            ChallengeKind::Http01 => {
                let token = checked_token(token)?;
                (
                    storage.http_challenges().join(token),
                    authorization.to_owned(),
                )
            }
            ChallengeKind::TlsAlpn01 => {
                let path = storage.tls_challenges().join(folder_of_name(name));
                (path, challenge_certificate(name, digest)?)
            }
        };
        storage.save(&path, content.as_bytes())?;
        Ok(Answer { path })
    }
}

impl Drop for Answer {
    fn drop(&mut self) {
        // What stays answers a challenge that nobody asks any more, and is swept later.
        let _ = fs::remove_file(&self.path);
    }
}

/// A token becomes a file's name, and it comes from outside (RFC 8555 section 8.3: base64url).
fn checked_token(token: &str) -> Result<&str, IssueFault> {
    let is_good = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'-' || byte == b'_';
    let is_token =
        !token.is_empty() && token.len() <= TOKEN_CHARS_MAX && token.bytes().all(is_good);
    match is_token {
        true => Ok(token),
        false => Err(IssueFault::Answer("a token is not base64url".to_owned())),
    }
}

/// RFC 8737 section 3: self-signed, for the one name, with the digest in a critical extension.
fn challenge_certificate(name: &str, digest: &[u8]) -> Result<String, IssueFault> {
    // What rcgen's constructor of the extension asserts.
    if digest.len() != 32 {
        return Err(IssueFault::Answer("a digest is not SHA-256".to_owned()));
    }
    let mut params = CertificateParams::new(vec![name.to_owned()])?;
    params.distinguished_name = DistinguishedName::new();
    params.custom_extensions = vec![CustomExtension::new_acme_identifier(digest)];
    let key = KeyPair::generate()?;
    let certificate = params.self_signed(&key)?;
    Ok(format!("{}{}", key.serialize_pem(), certificate.pem()))
}

/// Removes answers that a process has left which died.
pub(crate) fn sweep(storage: &Storage, now: SystemTime) {
    for folder in [storage.http_challenges(), storage.tls_challenges()] {
        let Ok(entries) = fs::read_dir(folder) else {
            continue;
        };
        for entry in entries.flatten() {
            let changed = entry.metadata().and_then(|facts| facts.modified());
            let is_left =
                changed.is_ok_and(|at| now.duration_since(at).is_ok_and(|age| age >= LEFT_AFTER));
            if is_left {
                // What cannot be removed does no harm.
                let _ = fs::remove_file(entry.path());
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn storage() -> (tempfile::TempDir, Storage) {
        let dir = tempfile::tempdir().unwrap();
        let storage = Storage::new(dir.path());
        storage.prepare().unwrap();
        (dir, storage)
    }

    fn publish(storage: &Storage, kind: ChallengeKind, token: &str) -> Result<Answer, IssueFault> {
        let digest = [7; 32];
        Answer::publish(storage, kind, "shop.example", token, "token.thumb", &digest)
    }

    #[test]
    fn answers_are_there_until_they_are_dropped() {
        let (_dir, storage) = storage();
        let mut watch = ChallengeWatch::new(storage.clone());
        let now = SystemTime::now();
        assert_eq!(watch.look(now).unwrap(), Some(ChallengeTable::default()));
        assert_eq!(watch.look(now).unwrap(), None);
        let http = publish(&storage, ChallengeKind::Http01, "token").unwrap();
        let tls = publish(&storage, ChallengeKind::TlsAlpn01, "token").unwrap();
        let table = watch.look(now).unwrap().unwrap();
        assert_eq!(table.http["token"], "token.thumb");
        assert!(table.tls["shop.example"].contains("PRIVATE KEY"));
        drop((http, tls));
        let table = watch.look(now).unwrap().unwrap();
        assert_eq!(table, ChallengeTable::default());
    }

    #[test]
    fn looks_again_at_a_folder_that_has_just_changed() {
        let (_dir, storage) = storage();
        let answer = publish(&storage, ChallengeKind::Http01, "token").unwrap();
        let mut watch = ChallengeWatch::new(storage);
        let now = SystemTime::now();
        assert!(watch.look(now).unwrap().is_some());
        assert!(watch.look(now).unwrap().is_some());
        let later = now + TICK_MAX * 2;
        assert!(watch.look(later).unwrap().is_some());
        assert_eq!(watch.look(later).unwrap(), None);
        drop(answer);
        assert!(watch.look(later).unwrap().is_some());
    }

    #[test]
    fn the_certificate_of_a_challenge_has_the_digest_in_a_critical_extension() {
        use rustls_pki_types::CertificateDer;
        use rustls_pki_types::pem::PemObject as _;

        let pem = challenge_certificate("shop.example", &[9; 32]).unwrap();
        let der = CertificateDer::from_pem_slice(pem.as_bytes()).unwrap();
        let (_, parsed) = x509_parser::parse_x509_certificate(&der).unwrap();
        let id_pe_acme_identifier = "1.3.6.1.5.5.7.1.31";
        let found = parsed
            .extensions()
            .iter()
            .find(|one| one.oid.to_id_string() == id_pe_acme_identifier)
            .unwrap();
        assert!(found.critical);
        assert_eq!(found.value[..2], [4, 32]);
        assert_eq!(found.value[2..], [9; 32]);
    }

    #[test]
    fn a_token_never_leaves_its_folder() {
        let (_dir, storage) = storage();
        for token in ["", "..", "a/b", "a.b", "a\0b", &"x".repeat(129)] {
            let published = publish(&storage, ChallengeKind::Http01, token);
            assert!(matches!(published, Err(IssueFault::Answer(_))), "{token}");
        }
    }

    #[test]
    fn sweeps_what_was_left() {
        let (_dir, storage) = storage();
        let answer = publish(&storage, ChallengeKind::Http01, "token").unwrap();
        let now = SystemTime::now();
        sweep(&storage, now);
        assert!(answer.path.exists());
        sweep(&storage, now + LEFT_AFTER * 2);
        assert!(!answer.path.exists());
    }
}
