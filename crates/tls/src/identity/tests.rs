//! Identities of files that fit and of files that do not.

use std::fs;

use config::typed::{ClientAuth, ClientDemand, KeyPassword};

use super::*;
use crate::certificate::KeyKind;
use crate::crypto::provider;
use crate::test_pki::{TestPki, key, rsa_key, set_mode};

fn read(config: &TlsIdentity) -> Result<Identity, Vec<TlsFileFault>> {
    let variable = |name: &str| (name == "SHOP_KEY").then(|| "secret".to_owned());
    Identity::read(config, &variable, &provider())
}

/// The settings at fault with the causes; paths are cut to the names of files.
#[track_caller]
fn check(config: &TlsIdentity, expect: &[&str]) {
    let faults = read(config).err().unwrap_or_default();
    let dir = config.cert.parent().unwrap().display().to_string() + "/";
    let said = |fault: &TlsFileFault| format!("{:?} {fault}", fault.setting).replace(&dir, "");
    let found: Vec<String> = faults.iter().map(said).collect();
    assert_eq!(found, expect);
}

#[test]
fn takes_a_chain_with_its_key() {
    let pki = TestPki::new();
    let config = pki.identity("a", &["Shop.example", "*.shop.example"]);
    let identity = read(&config).unwrap();
    assert_eq!(identity.served_names(), ["shop.example", "*.shop.example"]);
    assert_eq!(identity.facts.issuer, "Test Issuer");
    assert_eq!(identity.facts.key, KeyKind::Ecdsa);
    assert_eq!(identity.chain.len(), 2);
    let rsa = read(&pki.identity_of("b", &["shop.example"], &rsa_key())).unwrap();
    assert_eq!(rsa.facts.key, KeyKind::Rsa);
    // The root behind the chain does no harm.
    let whole = fs::read_to_string(&config.cert).unwrap() + &pki.root_pem();
    fs::write(&config.cert, whole).unwrap();
    assert_eq!(read(&config).unwrap().chain.len(), 3);
}

#[test]
fn travels_whole() {
    let pki = TestPki::new();
    let identity = read(&pki.identity("a", &["shop.example"])).unwrap();
    let written = serde_json::to_string(&identity).unwrap();
    assert_eq!(
        serde_json::from_str::<Identity>(&written).unwrap(),
        identity
    );
    assert!(!format!("{identity:?}").contains("BEGIN"));
}

#[test]
fn refuses_a_key_of_another_certificate() {
    let pki = TestPki::new();
    let mut config = pki.identity("a", &["shop.example"]);
    config.key = pki.identity("b", &["shop.example"]).key;
    check(
        &config,
        &["Key `b.key`: the key is not that of the certificate `a.pem`"],
    );
}

#[test]
fn refuses_a_chain_in_another_order() {
    let pki = TestPki::new();
    let own = key();
    let mut config = pki.identity_of("a", &["shop.example"], &own);
    let leaf = pki.server(&["shop.example"], &own);
    config.cert = pki.write("reversed.pem", &(pki.issuer_pem() + &leaf));
    check(
        &config,
        &["Cert `reversed.pem`: certificate 2 is not that of the issuer of certificate 1"],
    );
    config.cert = pki.write("gap.pem", &(leaf.clone() + &pki.root_pem()));
    check(
        &config,
        &["Cert `gap.pem`: certificate 2 is not that of the issuer of certificate 1"],
    );
    // From the root down each one fits the next in a file of two authorities.
    config.cert = pki.write("wrong.pem", &(pki.issuer_pem() + &pki.root_pem()));
    check(
        &config,
        &["Key `a.key`: the key is not that of the certificate `wrong.pem`"],
    );
}

#[test]
fn gives_the_faults_of_all_files_at_once() {
    let pki = TestPki::new();
    let mut config = pki.identity("a", &["shop.example"]);
    config.cert = pki.write("empty.pem", "");
    set_mode(&config.key, 0o644);
    config.ocsp = Some(pki.write("staple", "text"));
    config.client_auth = Some(ClientAuth {
        demand: ClientDemand::Require,
        ca: pki.path("missing.pem"),
        crl: Some(pki.write("crl.pem", "text")),
    });
    check(
        &config,
        &[
            "Cert `empty.pem`: there is no certificate in PEM in the file",
            "Key `a.key`: every user of this machine may use the file (mode 644)",
            "Ocsp `staple`: it is no OCSP response in DER",
            "ClientCa `missing.pem`: no such file or directory",
            "Crl `crl.pem`: there is no list of revoked certificates in the file",
        ],
    );
}

#[test]
fn refuses_names_that_the_certificate_is_not_for() {
    let pki = TestPki::new();
    let mut config = pki.identity("a", &["shop.example", "*.shop.example"]);
    config.names = vec!["www.shop.example".into(), "*.shop.example".into()];
    assert_eq!(read(&config).unwrap().served_names(), config.names);
    config.names = vec!["a.b.shop.example".into()];
    check(
        &config,
        &["Names `a.pem`: the certificate is not for `a.b.shop.example`"],
    );
}

#[test]
fn opens_encrypted_keys_with_their_password() {
    let pki = TestPki::new();
    let text = include_str!("../test_pki/encrypted.key");
    let plain = rcgen::KeyPair::from_pem(include_str!("../test_pki/opened.key")).unwrap();
    let mut config = pki.identity_of("a", &["shop.example"], &plain);
    config.key = pki.write("encrypted.key", text);
    check(
        &config,
        &["Key `encrypted.key`: a password has encrypted the key"],
    );
    config.key_password = Some(KeyPassword::File(pki.write("password", "secret\n")));
    read(&config).unwrap();
    config.key_password = Some(KeyPassword::Variable("SHOP_KEY".into()));
    read(&config).unwrap();
    config.key_password = Some(KeyPassword::Variable("OTHER".into()));
    check(
        &config,
        &["KeyPassword the environment has no variable `OTHER`"],
    );
    config.key_password = Some(KeyPassword::File(pki.write("wrong", "Secret")));
    check(
        &config,
        &["KeyPassword `encrypted.key`: the password does not open the key"],
    );
    config.key = pki.write("old.key", include_str!("../test_pki/old_form.key"));
    check(
        &config,
        &["Key `old.key`: the key is encrypted in a form of old that protects it badly"],
    );
    config.key = pki.write("none.key", "text");
    check(
        &config,
        &["Key `none.key`: there is no private key in PEM in the file"],
    );
}
