//! What a name has before its first certificate: a server that speaks TLS needs some certificate to begin with.
//!
//! Local names get theirs at once, from the local authority. Public names get a placeholder, signed by itself, which
//! browsers warn of; it is no certificate in the eyes of the main loop, and the first one takes its place. A file that is
//! there is never replaced.

use std::io;
use std::time::{Duration, SystemTime};

use rcgen::{CertificateParams, DistinguishedName, DnType, KeyPair};
use time::OffsetDateTime;

use crate::bundle::Held;
use crate::local_authority;
use crate::name::is_local;
use crate::plan::Plan;
use crate::storage::{Storage, read};

/// Issuer and subject of a placeholder.
pub(crate) const PLACEHOLDER_NAME: &str = "Milepost placeholder";
/// Nobody is to be reminded that a placeholder ends.
const LIFE: Duration = Duration::from_secs(10 * 365 * 86_400);

/// Sees to it that the file of each name holds a certificate and its key.
///
/// # Errors
/// The storage folder cannot be used.
pub fn ensure_certificates(plan: &Plan) -> io::Result<()> {
    let storage = Storage::new(&plan.storage);
    storage.prepare()?;
    let now = SystemTime::now();
    for name in &plan.names {
        let directory = (!is_local(name)).then_some(&plan.authority.directory);
        let path = storage.certificate(directory, name);
        let kept = read(&path)?;
        if kept.as_deref().is_some_and(Held::is_whole) {
            continue;
        }
        let pem = match directory {
            Some(_) => placeholder(name, now).map_err(io::Error::other)?,
            None => local_authority::issue(&storage, name, now)?,
        };
        match kept {
            // Of no use to anybody.
            Some(_) => storage.save(&path, pem.as_bytes())?,
            None => storage.save_first(&path, pem.as_bytes())?,
        }
    }
    Ok(())
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
        assert!(Held::is_whole(&public));
        assert!(Held::read_for(&public, "shop.example").is_err());
        assert!(Held::read_for(&local, "shop.localhost").is_ok());
        ensure_certificates(&plan).unwrap();
        assert_eq!(texts(&plan), [public, local]);
    }

    #[test]
    fn a_torn_file_is_replaced() {
        let dir = tempfile::tempdir().unwrap();
        let plan = plan(&dir);
        let storage = Storage::new(&plan.storage);
        storage.prepare().unwrap();
        let path = storage.certificate(Some(&plan.authority.directory), "shop.example");
        storage.save(&path, b"torn").unwrap();
        ensure_certificates(&plan).unwrap();
        assert!(Held::is_whole(&texts(&plan)[0]));
    }
}
