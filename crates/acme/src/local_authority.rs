//! The local certificate authority: a root of this machine's own for `localhost` and what is below it.
//!
//! The root may sign nothing else (name constraints, RFC 5280 section 4.2.1.10): who trusts it for development does
//! not trust it for any site. Key and certificate of the root are one file; `root.pem` beside it is the certificate
//! alone, for trust stores.

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::time::{Duration, SystemTime};

use rcgen::{
    BasicConstraints, CertificateParams, CidrSubnet, DistinguishedName, DnType,
    ExtendedKeyUsagePurpose, GeneralSubtree, IsCa, Issuer, KeyPair, KeyUsagePurpose,
    NameConstraints, SanType,
};
use time::OffsetDateTime;

use crate::bundle::Held;
use crate::name::is_local;
use crate::storage::{Storage, read};
use os::invariant;

/// The root's common name.
pub const ROOT_NAME: &str = "Milepost local authority";
const DAY: Duration = Duration::from_secs(86_400);
/// Whoever trusts the root does so once.
const ROOT_LIFE: Duration = Duration::from_secs(3_650 * 86_400);
/// A root that ends before this is replaced, and has to be trusted anew.
const ROOT_LEFT_MIN: Duration = Duration::from_secs(30 * 86_400);
/// A certificate is made within a millisecond, so that it may be short-lived.
const LEAF_LIFE: Duration = Duration::from_secs(7 * 86_400);

/// The root certificate as PEM; it is made where there is none.
///
/// # Errors
/// The storage folder cannot be used.
pub fn root(storage: &Storage) -> io::Result<String> {
    let pem = root_with_key(storage, SystemTime::now())?;
    let start = pem.find("-----BEGIN CERTIFICATE").unwrap_or(0);
    Ok(pem[start..].to_owned())
}

/// Key and certificate for a local name, as one text.
pub(crate) fn issue(storage: &Storage, name: &str, now: SystemTime) -> io::Result<String> {
    invariant!(is_local(name), "the local authority is to certify `{name}`");
    let root = root_with_key(storage, now)?;
    let key = KeyPair::from_pem(&root).map_err(io::Error::other)?;
    let start = root.find("-----BEGIN CERTIFICATE").unwrap_or(0);
    let issuer = Issuer::from_ca_cert_pem(&root[start..], key).map_err(io::Error::other)?;

    let key = KeyPair::generate().map_err(io::Error::other)?;
    let mut params = CertificateParams::new(vec![name.to_owned()]).map_err(io::Error::other)?;
    params.distinguished_name = DistinguishedName::new();
    if name == "localhost" {
        let addresses = [
            IpAddr::V4(Ipv4Addr::LOCALHOST),
            IpAddr::V6(Ipv6Addr::LOCALHOST),
        ];
        params
            .subject_alt_names
            .extend(addresses.map(SanType::IpAddress));
    }
    params.use_authority_key_identifier_extension = true;
    params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
    params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
    set_life(&mut params, now, LEAF_LIFE);
    let leaf = params.signed_by(&key, &issuer).map_err(io::Error::other)?;
    Ok(format!("{}{}", key.serialize_pem(), leaf.pem()))
}

fn root_with_key(storage: &Storage, now: SystemTime) -> io::Result<String> {
    storage.prepare()?;
    let path = storage.local_root_key();
    let usable = |pem: String| {
        let held = Held::read(&pem).ok()?;
        (held.facts.not_after > now + ROOT_LEFT_MIN).then_some(pem)
    };
    let kept = read(&path)?;
    let is_unusable = kept.is_some();
    let pem = match kept.and_then(usable) {
        Some(pem) => pem,
        None => {
            let made = make_root(now).map_err(io::Error::other)?;
            match is_unusable {
                true => storage.save(&path, made.as_bytes())?,
                false => storage.save_first(&path, made.as_bytes())?,
            }
            // Another process may have been first.
            read(&path)?.ok_or(io::ErrorKind::NotFound)?
        }
    };
    let certificate = &pem[pem.find("-----BEGIN CERTIFICATE").unwrap_or(0)..];
    if read(&storage.local_root())?.as_deref() != Some(certificate) {
        storage.save(&storage.local_root(), certificate.as_bytes())?;
    }
    Ok(pem)
}

fn make_root(now: SystemTime) -> Result<String, rcgen::Error> {
    let key = KeyPair::generate()?;
    let mut params = CertificateParams::default();
    params.distinguished_name = DistinguishedName::new();
    params
        .distinguished_name
        .push(DnType::CommonName, ROOT_NAME);
    params.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
    params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
    let v4 = CidrSubnet::from_addr_prefix(IpAddr::V4(Ipv4Addr::new(127, 0, 0, 0)), 8);
    let v6 = CidrSubnet::from_addr_prefix(IpAddr::V6(Ipv6Addr::LOCALHOST), 128);
    params.name_constraints = Some(NameConstraints {
        permitted_subtrees: vec![
            GeneralSubtree::DnsName("localhost".to_owned()),
            GeneralSubtree::IpAddress(v4),
            GeneralSubtree::IpAddress(v6),
        ],
        excluded_subtrees: Vec::new(),
    });
    set_life(&mut params, now, ROOT_LIFE);
    let root = params.self_signed(&key)?;
    Ok(format!("{}{}", key.serialize_pem(), root.pem()))
}

/// From a little before now on: the clock of a container or a client may be behind.
fn set_life(params: &mut CertificateParams, now: SystemTime, life: Duration) {
    params.not_before = OffsetDateTime::from(now - DAY / 24);
    params.not_after = OffsetDateTime::from(now + life);
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::sync::Arc;

    use rustls::client::WebPkiServerVerifier;
    use rustls::client::danger::ServerCertVerifier as _;
    use rustls::crypto::aws_lc_rs;
    use rustls::pki_types::{ServerName, UnixTime};
    use rustls_pki_types::CertificateDer;
    use rustls_pki_types::pem::PemObject as _;

    use super::*;

    fn storage() -> (tempfile::TempDir, Storage) {
        let dir = tempfile::tempdir().unwrap();
        let storage = Storage::new(dir.path());
        (dir, storage)
    }

    fn verify(root: &str, leaf: &str, name: &str) -> Result<(), rustls::Error> {
        let mut roots = rustls::RootCertStore::empty();
        roots
            .add(CertificateDer::from_pem_slice(root.as_bytes()).unwrap())
            .unwrap();
        let provider = Arc::new(aws_lc_rs::default_provider());
        let verifier = WebPkiServerVerifier::builder_with_provider(roots.into(), provider);
        let leaf = CertificateDer::from_pem_slice(leaf.as_bytes()).unwrap();
        let name = ServerName::try_from(name.to_owned()).unwrap();
        let verifier = verifier.build().unwrap();
        let verified = verifier.verify_server_cert(&leaf, &[], &name, &[], UnixTime::now());
        verified.map(drop)
    }

    #[test]
    fn certifies_local_names_with_one_root() {
        let (_dir, storage) = storage();
        let now = SystemTime::now();
        let root = root(&storage).unwrap();
        let check = |name: &str, asked: &str| {
            let leaf = issue(&storage, name, now).unwrap();
            verify(&root, &leaf, asked).unwrap();
            let held = Held::read_for(&leaf, name).unwrap();
            assert_eq!(held.facts.issuer, ROOT_NAME);
        };
        check("localhost", "localhost");
        check("localhost", "127.0.0.1");
        check("localhost", "::1");
        check("shop.localhost", "shop.localhost");
        let file = fs::read_to_string(storage.local_root()).unwrap();
        assert_eq!(file, root);
        assert!(!file.contains("PRIVATE KEY"));
    }

    #[test]
    fn the_root_can_certify_nothing_else() {
        let (_dir, storage) = storage();
        let now = SystemTime::now();
        let pem = root_with_key(&storage, now).unwrap();
        let root = root(&storage).unwrap();
        let issuer = Issuer::from_ca_cert_pem(&root, KeyPair::from_pem(&pem).unwrap()).unwrap();
        for (name, asked) in [
            ("shop.example", "shop.example"),
            ("notlocalhost", "notlocalhost"),
        ] {
            let key = KeyPair::generate().unwrap();
            let params = CertificateParams::new(vec![name.to_owned()]).unwrap();
            let leaf = params.signed_by(&key, &issuer).unwrap();
            assert!(verify(&root, &leaf.pem(), asked).is_err(), "{name}");
        }
    }

    #[test]
    #[should_panic(expected = "the local authority is to certify `shop.example`")]
    fn a_public_name_is_a_bug() {
        let (_dir, storage) = storage();
        let _ = issue(&storage, "shop.example", SystemTime::now());
    }

    #[test]
    fn a_root_that_ends_or_cannot_be_read_is_replaced() {
        let (_dir, storage) = storage();
        let now = SystemTime::now();
        let first = root_with_key(&storage, now).unwrap();
        assert_eq!(root_with_key(&storage, now).unwrap(), first);
        let later = now + ROOT_LIFE - ROOT_LEFT_MIN;
        let second = root_with_key(&storage, later).unwrap();
        assert_ne!(second, first);
        storage.save(&storage.local_root_key(), b"torn").unwrap();
        assert_ne!(root_with_key(&storage, now).unwrap(), "torn");
    }
}
