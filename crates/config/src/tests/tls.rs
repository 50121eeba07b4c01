//! Which addresses speak TLS.

use super::{faults, good};
use crate::typed::Bind;

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
    check(&[cert, ("bind", ":443 tls=off")], &[false]);
    check(&[cert, ("bind", "unix:/run/a")], &[false]);
    check(&[cert, ("bind", "unix:/run/a tls=on")], &[true]);
    check(&[cert, ("bind", "systemd")], &[false]);
    let config = good("", &[], &[cert, ("bind", "systemd:web tls=on")]).config;
    assert_eq!(config.tls.binds, [Bind::Inherited(Some("web".to_owned()))]);
    assert_eq!(config.tls.key_file(), config.tls.certificate.as_ref());
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
