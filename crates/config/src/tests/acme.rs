//! Automatic certificates: names, agreement, storage, ports.

use super::*;
use crate::typed::{AcmeChallenge, AcmeConfig, LETS_ENCRYPT, LETS_ENCRYPT_STAGING};

const AGREED: [(&str, &str); 2] = [("domain", "Shop.Example"), ("acme_terms", "true")];

fn acme(flags: &[(&str, &str)]) -> AcmeConfig {
    good("bind = '127.0.0.1:8443'", &[], flags)
        .config
        .acme
        .expect("a name")
}

#[test]
fn a_name_alone_is_a_site() {
    let config = acme(&AGREED);
    assert_eq!(
        config,
        AcmeConfig {
            names: vec!["shop.example".to_owned()],
            directory: LETS_ENCRYPT.to_owned(),
            staging: Some(LETS_ENCRYPT_STAGING.to_owned()),
            email: None,
            roots: None,
            challenges: vec![AcmeChallenge::Http01, AcmeChallenge::TlsAlpn01],
            storage: "/state/".into(),
        }
    );
    assert_eq!(good("", &[], &[]).config.acme, None);
}

/// The addresses of a machine that may bind all ports.
fn binds(has_ipv6: bool, flags: &[(&str, &str)]) -> Vec<String> {
    let loaded = on_machine(|machine| {
        let machine = Machine {
            has_ipv6,
            may_bind: &|_| true,
            cpus: machine.cpus.clone(),
            current_dir: "/srv".into(),
            ..*machine
        };
        load(
            &sources("app = 'a:b'\nacme_terms = true", &[], flags),
            &machine,
        )
    });
    let binds = loaded.expect("good").config.binds;
    let text = |bind: Bind| match bind {
        Bind::Tcp(addresses) => addresses[0].to_string(),
        other => format!("{other:?}"),
    };
    binds.into_iter().map(text).collect()
}

#[test]
fn a_public_site_listens_on_both_ports_where_no_address_is_given() {
    let check = |has_ipv6, flags: &[(&str, &str)], expect: &[&str]| {
        assert_eq!(binds(has_ipv6, flags), expect, "{flags:?}");
    };
    check(
        true,
        &[("domain", "shop.example")],
        &["[::]:80", "[::]:443"],
    );
    check(
        false,
        &[("domain", "shop.example")],
        &["0.0.0.0:80", "0.0.0.0:443"],
    );
    check(true, &[("domain", "localhost")], &["127.0.0.1:8443"]);
    let both = [("domain", "localhost"), ("domain", "shop.example")];
    check(true, &both, &["[::]:80", "[::]:443"]);
    let own = [("domain", "shop.example"), ("bind", ":8080")];
    check(true, &own, &["0.0.0.0:8080"]);
}

#[test]
fn what_is_missing_is_said() {
    let check = |toml: &str, expect: &[&str]| {
        let toml = format!("app = 'a:b'\n{toml}");
        assert_eq!(faults(&toml, &[], &[]), expect, "{toml}");
    };
    let terms = "m.toml:3: `domain`: a certificate for `shop.example` needs your agreement to the terms of service \
        of acme-v02.api.letsencrypt.org > read them, and then set `acme_terms = true` (`--acme-terms`); those of \
        Let's Encrypt are at https://letsencrypt.org/repository/";
    check("bind = ':8080'\ndomain = ['shop.example']", &[terms]);
    // This machine agrees with itself.
    check("domain = ['shop.localhost']", &[]);
    let ports = "m.toml:2: `domain`: this user may not listen on ports 80 and 443 > one of: start as root with \
        `--user NAME`, which gives up root once the ports are bound; \
        AmbientCapabilities=CAP_NET_BIND_SERVICE in the systemd unit; sockets of systemd (`--bind systemd`); other \
        ports (`--bind`)";
    check("domain = ['shop.example']\nacme_terms = true", &[ports]);
    check(
        "domain = ['shop.example']\nacme_terms = true\nbind = 'systemd tls=on'",
        &[],
    );
    let storage = "m.toml:5: `acme_storage`: folder `/srv/closed`, for certificates and keys, cannot be written: \
        permission denied > the user that runs milepost needs the right to write in `/srv/closed`; or name another \
        folder with `acme_storage`";
    let start = "domain = ['shop.example']\nacme_terms = true\nbind = ':8080'\n";
    check(&format!("{start}acme_storage = 'closed'"), &[storage]);
    // A folder that is missing is made.
    check(&format!("{start}acme_storage = 'missing'"), &[]);
    let roots = "m.toml:5: `acme_ca`: file `missing` cannot be read: no such file or directory > relative paths start \
        at `/srv`";
    check(&format!("{start}acme_ca = 'missing'"), &[roots]);
}

#[test]
fn names_that_nobody_certifies() {
    said! { r"
    --domain=https://shop.example/a => expected a name of the DNS (as `shop.example`), found `https://shop.example/a` > the name alone: `shop.example`
    --domain=shop.example:443 => expected a name of the DNS (as `shop.example`), found `shop.example:443` > the name alone, `shop.example`; ports belong to `bind`
    --domain=*.shop.example => expected a name of the DNS (as `shop.example`), found `*.shop.example` > a wildcard needs a challenge in the DNS, which the server cannot answer: name each host
    --domain=192.0.2.7 => expected a name of the DNS (as `shop.example`), found `192.0.2.7` > a name of the DNS that leads to this address
    --domain=shop => expected a name of the DNS (as `shop.example`), found `shop` > the whole name, as `shop.example`; for development, `localhost` or `shop.localhost`
    --acme-email=mailto:ops@shop.example => expected an address (as `ops@shop.example`), or `off`, found `mailto:ops@shop.example` > the address alone, without `mailto:`
    --acme-directory=http://ca.example => expected an https URL, found `http://ca.example` > ACME needs https; `acme_ca` names the roots of a private authority
    --acme-challenges=dns-01 => expected `http-01`, `tls-alpn-01`, or both, found `dns-01` > the server does not write into the DNS
    --acme-challenges=http01 => expected `http-01`, `tls-alpn-01`, or both, found `http01` > did you mean `http-01`?
    --acme-challenges=http-01,http-01 => expected `http-01`, `tls-alpn-01`, or both, found `http-01,http-01` > `http-01` is there twice
    " }
    let twice =
        "app = 'a:b'\nbind = ':8080'\nacme_terms = true\ndomain = ['a.example', 'A.example.']";
    let expect =
        "m.toml:4: `domain`: `a.example` is already in the list > each name has one certificate";
    assert_eq!(faults(twice, &[], &[]), [expect]);
}

#[test]
fn what_has_no_effect_is_noted() {
    let notes = good("acme_email = 'ops@shop.example'", &[], &[]).notes;
    assert_eq!(notes, ["acme_email has no effect: no domain is set"]);
}

#[test]
fn storage_that_may_not_answer_is_not_looked_at() {
    let text = "app = 'a:b'\nbind = '127.0.0.1:8443'\ndomain = 'shop.example'\nacme_terms = true\n\
                acme_storage = 'closed'\nacme_ca = 'missing'";
    let loaded = on_machine(|machine| {
        let machine = Machine {
            certificates: None,
            cpus: machine.cpus.clone(),
            current_dir: "/srv".into(),
            ..*machine
        };
        load(&sources(text, &[], &[]), &machine)
    });
    let config = loaded.expect("good").config.acme.expect("a name");
    assert_eq!(config.storage, Path::new("/srv/closed"));
}
