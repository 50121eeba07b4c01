//! Which addresses speak TLS.

use super::{faults, good};
use crate::typed::{Bind, ClientAuth, ClientDemand, TlsIdentity, TlsVersion};

#[test]
fn tcp_addresses_speak_tls_where_there_is_a_certificate() {
    let check = |flags: &[(&str, &str)], expect: &[bool]| {
        let config = good("", &[], flags).config;
        let found = config
            .binds
            .iter()
            .map(|bind| config.tls.binds.contains(bind));
        assert_eq!(found.collect::<Vec<_>>(), expect, "{flags:?}");
    };
    let cert = ("tls_cert", "a.pem");
    check(&[("bind", ":443")], &[false]);
    check(&[cert, ("bind", ":443")], &[true]);
    check(&[cert, ("bind", ":80"), ("bind", ":443")], &[false, true]);
    check(&[cert, ("bind", ":80 tls=on")], &[true]);
    check(
        &[cert, ("bind", ":443 tls=off"), ("bind", ":444")],
        &[false, true],
    );
    check(
        &[cert, ("bind", "unix:/run/a"), ("bind", ":444")],
        &[false, true],
    );
    check(&[cert, ("bind", "unix:/run/a tls=on")], &[true]);
    check(
        &[cert, ("bind", "systemd"), ("bind", ":444")],
        &[false, true],
    );
    let config = good("", &[], &[cert, ("bind", "systemd:web tls=on")]).config;
    assert_eq!(config.tls.binds, [Bind::Inherited(Some("web".to_owned()))]);
    assert_eq!(config.tls.identities[0].key, config.tls.identities[0].cert);
}

#[test]
fn refuses_tls_without_a_certificate() {
    let check = |flags: &[(&str, &str)], expect: &str| {
        let found = faults("app = 'a:b'", &[], flags).join("\n");
        assert!(found.contains(expect), "{found}");
    };
    check(
        &[("bind", ":443 tls=on")],
        "`:443 tls=on`: there is no certificate",
    );
    check(
        &[("tls_key", "a.pem")],
        "there is a key, and no certificate",
    );
    let cert = ("tls_cert", "a.pem");
    check(
        &[cert, ("bind", ":0 tls=off"), ("bind", ":0")],
        "`:0` is in the list with TLS and without",
    );
}

#[test]
fn finds_every_slip_of_a_table_at_its_line() {
    said! { r#"
    [[tls]]
    name = 'shop.example'
    cert = ''
    client_auth = 'maybe'
        m.toml:3: `tls.name`: unknown key > did you mean `names`?
        m.toml:4: `tls.cert`: expected a file in PEM, found `` > name a file
        m.toml:5: `tls.client_auth`: expected one of `require`, `request`, found `maybe`
    [[tls]]
    names = ['https://shop.example', 'a b']
    cert = 'a.pem'
        m.toml:3: `tls.names`: expected names of servers (as `shop.example`, `*.shop.example`), found `https://shop.example` > a name alone, without scheme and path
    [[tls]]
    names = 'shop.example'
    key = 'a.key'
        m.toml:2: `tls`: `cert` is missing > as in | [[tls]] | names = ["shop.example", "*.shop.example"] | cert = "shop.pem" | key = "shop.key"
    [[tls]]
    cert = 'a.pem'
    client_auth = 'require'
        m.toml:4: `tls.client_auth`: there is no `client_ca` > name the authority of the clients' certificates: `client_ca`
    [[tls]]
    cert = 'a.pem'
    crl = 'a.crl'
        m.toml:4: `tls.crl`: there is no `client_ca` > name the authority of the clients' certificates: `client_ca`
    tls_client_auth = 'require'
        m.toml:2: `tls_client_auth`: there is no `tls_client_ca` > name the authority of the clients' certificates: `tls_client_ca`
    "# }
}

#[test]
fn blames_the_setting_whose_file_is_at_fault() {
    said! { r#"
    tls_cert = 'missing'
    tls_key = 'also/missing'
        m.toml:2: `tls_cert`: `/srv/missing`: no such file or directory
        m.toml:3: `tls_key`: `/srv/also/missing`: no such file or directory
    tls_cert = 'a.pem'
    [[tls]]
    cert = 'b.pem'
    [[tls]]
    key = 'missing'
    cert = 'c.pem'
        m.toml:6: `tls.key`: `/srv/missing`: no such file or directory
    [[tls]]
    cert = 'missing'
        m.toml:3: `tls.cert`: `/srv/missing`: no such file or directory
        m.toml:3: `tls.cert`: `/srv/missing`: no such file or directory
    "# }
}

#[test]
fn refuses_settings_of_https_without_https() {
    said! { r#"
    --https-redirect=on => no TCP address speaks TLS > name a certificate (`tls_cert`), or the port of HTTPS in place of `on`
    --https-redirect=0 => expected `on`, `off`, or the port of HTTPS as clients see it, found `0`
    --hsts=1x => expected a duration (as `1y`), perhaps with `subdomains` and `preload` behind it, or `off`, found `1x`
    --tls-versions=1.1 => expected some of `1.2`, `1.3`, found `1.1` > TLS 1.0 and 1.1 are no longer safe (RFC 8996)
    --tls-key=a.key => there is a key, and no certificate > name the certificate as well: `tls_cert`
    --tls-crl=a.crl => there is no `tls_client_ca` > name the authority of the clients' certificates: `tls_client_ca`
    tls_cert = 'a.pem'
    bind = ['0.0.0.0:443 tls=off']
        m.toml:2: `tls_cert`: no address speaks TLS > write `tls=on` behind the address that is to have it
    "# }
    let notes = |flags: &[(&str, &str)]| good("", &[], flags).notes.join("\n");
    let vain = notes(&[("tls_versions", "1.3")]);
    assert!(vain.contains("tls_versions has no effect"), "{vain}");
    let cert = ("tls_cert", "a.pem");
    let vain = notes(&[cert, ("https_redirect", "on"), ("bind", ":443")]);
    assert!(vain.contains("https_redirect has no effect"), "{vain}");
    let kept = notes(&[
        cert,
        ("https_redirect", "on"),
        ("bind", ":80"),
        ("bind", ":443"),
    ]);
    assert!(!kept.contains("no effect"), "{kept}");
}

#[test]
fn takes_the_flags_of_gunicorn_and_uvicorn() {
    let (cert, key) = (("certfile", "a.pem"), ("ssl_keyfile", "a.key"));
    let loaded = good(
        "",
        &[],
        &[
            cert,
            key,
            ("ca_certs", "ca.pem"),
            ("cert_reqs", "1"),
            ("ssl_version", "2"),
        ],
    );
    let [identity] = &loaded.config.tls.identities[..] else {
        panic!("{:?}", loaded.config.tls);
    };
    let expect = TlsIdentity {
        cert: "/srv/a.pem".into(),
        key: "/srv/a.key".into(),
        client_auth: Some(ClientAuth {
            demand: ClientDemand::Request,
            ca: "/srv/ca.pem".into(),
            crl: None,
        }),
        ..TlsIdentity::default()
    };
    assert_eq!(*identity, expect);
    let newest = good("", &[], &[cert, ("ssl_version", "TLSv1_3")])
        .config
        .tls;
    assert_eq!(newest.versions, [TlsVersion::V13]);
    for (flag, reason) in [
        (("ciphers", "HIGH"), "the cipher suites cannot be chosen"),
        (
            ("ssl_keyfile_password", "x"),
            "visible to every user of the machine",
        ),
        (("ssl_version", "3"), "TLS 1.2 and 1.3 are spoken"),
        (("https", ":443,a,b"), "give the address with `--bind`"),
    ] {
        let found = faults("", &[], &[("app", "a:b"), flag]).join("\n");
        assert!(found.contains(reason), "{found}");
    }
}
