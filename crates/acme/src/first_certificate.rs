//! What a name has before its first certificate: a server that speaks TLS needs some certificate to begin with.
//!
//! Local names get theirs at once, from the local authority. Public names get a placeholder, signed by itself, which
//! browsers warn of; it is no certificate in the eyes of the main loop, and the first one takes its place. A file that can
//! be served is never replaced.

use std::io;
use std::path::Path;
use std::time::{Duration, SystemTime};

use rcgen::{CertificateParams, DistinguishedName, DnType, KeyPair};
use time::OffsetDateTime;

use crate::bundle::Held;
use crate::local_authority;
use crate::name::is_local;
use crate::plan::Plan;
use crate::storage::{Storage, read};

/// Issuer and subject of a placeholder.
pub const PLACEHOLDER_NAME: &str = "Milepost placeholder";
/// Nobody is to be reminded that a placeholder ends.
const LIFE: Duration = Duration::from_secs(10 * 365 * 86_400);

/// Sees to it that the file of each name holds a certificate and its key. Gives a line for each file that was there and
/// could not be used.
///
/// # Errors
/// The storage folder cannot be used.
pub fn ensure_certificates(plan: &Plan) -> io::Result<Vec<String>> {
    let storage = Storage::new(&plan.storage);
    storage.prepare()?;
    let now = SystemTime::now();
    let mut lines = Vec::new();
    for name in &plan.names {
        let directory = (!is_local(name)).then_some(&plan.authority.directory);
        let path = storage.certificate(directory, name);
        let fault = match read(&path) {
            Ok(None) => None,
            Ok(Some(pem)) => match Held::read_served(&pem, name) {
                Ok(_) => continue,
                Err(fault) => Some(fault),
            },
            // It is no text, or too large for a chain.
            Err(error) if error.kind() == io::ErrorKind::InvalidData => Some(error.to_string()),
            Err(error) => return Err(error),
        };
        let (pem, instead) = match directory {
            Some(_) => (
                placeholder(name, now).map_err(io::Error::other)?,
                "a placeholder takes its place until a new certificate is issued",
            ),
            None => (
                local_authority::issue(&storage, name, now)?,
                "a new certificate of the local authority takes its place",
            ),
        };
        match fault {
            Some(fault) => {
                storage.save(&path, pem.as_bytes())?;
                let path = path.display();
                lines.push(format!(
                    "`{name}`: `{path}` cannot be used: {fault}: {instead}"
                ));
            }
            None => storage.save_first(&path, pem.as_bytes())?,
        }
    }
    Ok(lines)
}

/// Whether [`ensure_certificates`] leaves this file of a name as it is.
pub fn is_kept(file: &Path, name: &str) -> bool {
    match read(file) {
        Ok(pem) => pem.is_some_and(|pem| Held::read_served(&pem, name).is_ok()),
        // What cannot be read, for want of rights, cannot be mended either.
        Err(error) => error.kind() != io::ErrorKind::InvalidData,
    }
}

fn placeholder(name: &str, now: SystemTime) -> Result<String, rcgen::Error> {
    let key = KeyPair::generate()?;
    let mut params = CertificateParams::new(vec![name.to_owned()])?;
    params.distinguished_name = DistinguishedName::new();
    params
        .distinguished_name
        .push(DnType::CommonName, PLACEHOLDER_NAME);
    params.not_before = OffsetDateTime::from(now - Duration::from_secs(3_600));
    params.not_after = OffsetDateTime::from(now + LIFE);
    let certificate = params.self_signed(&key)?;
    Ok(format!("{}{}", key.serialize_pem(), certificate.pem()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plan::{Authority, ChallengeKind, Directory};

    fn plan(dir: &tempfile::TempDir) -> Plan {
        Plan {
            names: vec!["shop.localhost".to_owned(), "shop.example".to_owned()],
            authority: Authority {
                directory: Directory::new("https://ca.example/dir"),
                staging: None,
                email: None,
                roots: None,
                challenges: vec![ChallengeKind::Http01],
            },
            storage: dir.path().to_owned(),
        }
    }

    fn texts(plan: &Plan) -> [String; 2] {
        let storage = Storage::new(&plan.storage);
        let public = storage.certificate(Some(&plan.authority.directory), "shop.example");
        let local = storage.certificate(None, "shop.localhost");
        [public, local].map(|path| read(&path).unwrap().unwrap())
    }

    #[test]
    fn every_name_has_a_certificate_and_its_key() {
        let dir = tempfile::tempdir().unwrap();
        let plan = plan(&dir);
        ensure_certificates(&plan).unwrap();
        let [public, local] = texts(&plan);
        // A placeholder is served, and is none where a certificate is wanted.
        assert!(Held::read_served(&public, "shop.example").is_ok());
        assert!(Held::read_for(&public, "shop.example").is_err());
        assert!(Held::read_for(&local, "shop.localhost").is_ok());
        ensure_certificates(&plan).unwrap();
        assert_eq!(texts(&plan), [public, local]);
    }

    #[test]
    fn a_file_that_cannot_be_used_is_replaced_and_said() {
        let dir = tempfile::tempdir().unwrap();
        let plan = plan(&dir);
        let storage = Storage::new(&plan.storage);
        storage.prepare().unwrap();
        let public = storage.certificate(Some(&plan.authority.directory), "shop.example");
        let local = storage.certificate(None, "shop.localhost");
        assert!(!is_kept(&public, "shop.example"));
        assert!(ensure_certificates(&plan).unwrap().is_empty());
        let [made, own] = texts(&plan);
        let (key, _) = own.split_once("-----BEGIN CERT").unwrap();
        let foreign = placeholder("other.example", SystemTime::now()).unwrap();
        let (_, other_chain) = made.split_once("-----BEGIN CERT").unwrap();
        let check = |content: &[u8], expect: &str| {
            storage.save(&public, content).unwrap();
            assert!(!is_kept(&public, "shop.example"), "{expect}");
            let lines = ensure_certificates(&plan).unwrap();
            let [line] = lines.as_slice() else {
                panic!("{lines:?}");
            };
            assert!(line.starts_with("`shop.example`: `"), "{line}");
            assert!(line.contains(expect), "{line}");
            assert!(line.contains("a placeholder takes its place"), "{line}");
            assert!(is_kept(&public, "shop.example"));
        };
        check(b"torn", "there is no certificate");
        check(&made.as_bytes()[..made.len() - 40], "no certificate in PEM");
        check(b"\xff\xfe", "valid UTF-8");
        check(&vec![b'x'; 300 << 10], "too large");
        check(foreign.as_bytes(), "for other.example");
        let mixed = format!("{key}-----BEGIN CERT{other_chain}");
        check(mixed.as_bytes(), "the key does not belong");
        storage.save(&local, b"torn").unwrap();
        let lines = ensure_certificates(&plan).unwrap();
        assert!(
            lines[0].contains("a new certificate of the local authority"),
            "{lines:?}"
        );
        assert!(Held::read_for(&texts(&plan)[1], "shop.localhost").is_ok());
    }
}
