//! What proxies say, read from heads: chains of addresses, lists over several lines, faults, and anything at random.

use proptest::prelude::*;

use super::*;
use crate::{HeadIndex, HeadStep, Limits};

/// Proxies in 10.0.0.0/8 are trusted.
fn is_trusted(ip: IpAddr) -> bool {
    matches!(ip, IpAddr::V4(ip) if ip.octets()[0] == 10)
}

#[derive(Debug, PartialEq, Default)]
struct Owned {
    client: Option<String>,
    is_https: Option<bool>,
    host: Option<String>,
    port: Option<u16>,
    prefix: Option<String>,
}

const ALL_X: ForwardedFields = ForwardedFields(0b1_1111);
const RFC: ForwardedFields = ForwardedFields(0).with(ForwardedField::Rfc7239);

fn read(fields_that_count: ForwardedFields, fields: &str) -> Owned {
    let (owned, _) = read_with_fault(fields_that_count, fields);
    owned
}

fn read_with_fault(
    fields_that_count: ForwardedFields,
    fields: &str,
) -> (Owned, Option<ForwardedFault>) {
    let head = format!("GET / HTTP/1.1\r\nHost: h\r\n{fields}\r\n");
    let mut index = HeadIndex::new();
    let step = index.parse(head.as_bytes(), &mut 0, &Limits::default());
    assert!(matches!(step, Ok(HeadStep::Complete)), "{fields:?}");
    let view = HeadView {
        bytes: head.as_bytes(),
        index: &index,
    };
    let lines = fields_that_count.in_head(view);
    let said = forwarded(lines, fields_that_count, is_trusted);
    let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).unwrap();
    let owned = Owned {
        client: said.client.map(|ip| match said.client_port {
            Some(port) => format!("{ip} {port}"),
            None => ip.to_string(),
        }),
        is_https: said.is_https,
        host: said.host.map(text),
        port: said.port,
        prefix: said.prefix.map(text),
    };
    (owned, said.fault)
}

#[track_caller]
fn check_client(form: ForwardedFields, fields: &str, expect: Option<&str>) {
    assert_eq!(read(form, fields).client.as_deref(), expect, "{fields:?}");
}

#[test]
fn the_client_is_the_rightmost_who_is_not_trusted() {
    let check = |value: &str, expect| {
        check_client(ALL_X, &format!("X-Forwarded-For: {value}\r\n"), expect);
    };
    check("192.0.2.1", Some("192.0.2.1"));
    check("192.0.2.1, 10.0.0.2", Some("192.0.2.1"));
    check("192.0.2.1, 10.0.0.2, 10.9.9.9", Some("192.0.2.1"));
    // A client may write what it likes on the left.
    check("203.0.113.9, 192.0.2.1", Some("192.0.2.1"));
    check("10.0.0.1, 192.0.2.1, 10.0.0.2", Some("192.0.2.1"));
    // All of them are proxies: a request of one of ours.
    check("10.0.0.1, 10.0.0.2", Some("10.0.0.1"));
    // What cannot be read ends the chain.
    check("192.0.2.1, unknown, 10.0.0.2", Some("10.0.0.2"));
    check("192.0.2.1, ", None);
    check("unknown", None);
    check("", None);
    check("192.0.2.1:4711", Some("192.0.2.1 4711"));
    check("2001:db8::1", Some("2001:db8::1"));
    check("[2001:db8::1]", Some("2001:db8::1"));
    check("::ffff:192.0.2.1", Some("192.0.2.1"));
    check("[2001:db8::1]:4711", Some("2001:db8::1 4711"));
    check("192.0.2.1:0", None);
    check("192.0.2.1:65536", None);
    check("192.0.2.1:+80", None);
    check("192.0.2.256", None);
    check("[192.0.2.1]", None);
    check("[2001:db8::1]x", None);
    check("\"192.0.2.1\"", None);
}

#[test]
fn lines_of_one_field_are_one_list() {
    let fields = "X-Forwarded-For: 203.0.113.9\r\nx-forwarded-for: 192.0.2.1, 10.0.0.1\r\nX-FORWARDED-FOR: 10.0.0.2\r\n";
    check_client(ALL_X, fields, Some("192.0.2.1"));
    let many = "10.0.0.1, ".repeat(40);
    let fields = format!("X-Forwarded-For: 192.0.2.1, {many}10.0.0.1\r\n");
    check_client(ALL_X, &fields, None);
}

#[test]
fn a_chain_that_ends_early_has_a_fault() {
    let long = vec!["10.0.0.1"; ENTRIES_MAX].join(", ");
    for (fields, form, expect) in [
        (format!("X-Forwarded-For: {long}"), ALL_X, None),
        (
            format!("X-Forwarded-For: 192.0.2.1, {long}"),
            ALL_X,
            Some(ForwardedFault::TooLong),
        ),
        (
            format!("Forwarded: for=192.0.2.1{}", ", for=10.0.0.1".repeat(32)),
            RFC,
            Some(ForwardedFault::TooLong),
        ),
        (
            "X-Forwarded-For: x".to_owned(),
            ALL_X,
            Some(ForwardedFault::Malformed),
        ),
        (
            "Forwarded: for".to_owned(),
            RFC,
            Some(ForwardedFault::Malformed),
        ),
        ("Forwarded: for=unknown".to_owned(), RFC, None),
    ] {
        let (_, fault) = read_with_fault(form, &format!("{fields}\r\n"));
        assert_eq!(fault, expect, "{fields}");
    }
}

#[test]
fn only_the_fields_that_count_are_read() {
    let head = "X-Forwarded-For: 192.0.2.1\r\nX-Forwarded-Proto: https\r\nX-Forwarded-Host: evil\r\n\
                X-Forwarded-Port: 9\r\nX-Forwarded-Prefix: /evil\r\nForwarded: for=192.0.2.9\r\n";
    let usual = ForwardedFields::default()
        .with(ForwardedField::For)
        .with(ForwardedField::Proto);
    let expect = Owned {
        client: Some("192.0.2.1".to_owned()),
        is_https: Some(true),
        ..Owned::default()
    };
    assert_eq!(read(usual, head), expect);
    assert_eq!(read(ForwardedFields::default(), head), Owned::default());
    for (index, (field, name)) in ForwardedField::NAMED.into_iter().enumerate() {
        assert_eq!(field as usize, index);
        assert_eq!(
            ForwardedField::named(name.to_ascii_uppercase().as_bytes()),
            Some(field)
        );
    }
    assert_eq!(ForwardedField::named(b"x-forwarded_for"), None);
}

#[test]
fn the_rest_is_the_word_of_the_proxy_that_the_client_talked_to() {
    let check = |fields: &str, expect: Owned| {
        assert_eq!(read(ALL_X, fields), expect, "{fields:?}");
    };
    check(
        "X-Forwarded-Proto: https\r\nX-Forwarded-Host: shop.example:8443\r\nX-Forwarded-Port: 8443\r\n\
         X-Forwarded-Prefix: /shop/\r\n",
        Owned {
            client: None,
            is_https: Some(true),
            host: Some("shop.example:8443".to_owned()),
            port: Some(8443),
            prefix: Some("/shop".to_owned()),
        },
    );
    let two = "X-Forwarded-For: 192.0.2.1, 10.0.0.2\r\nX-Forwarded-Proto: ";
    let with = |is_https| Owned {
        client: Some("192.0.2.1".to_owned()),
        is_https,
        ..Owned::default()
    };
    check(&format!("{two}https, http\r\n"), with(Some(true)));
    check(&format!("{two}http, https, http\r\n"), with(Some(true)));
    check(&format!("{two}HTTPS\r\n"), with(Some(true)));
    check(&format!("{two}ws\r\n"), with(Some(false)));
    check(&format!("{two}ftp\r\n"), with(None));
    check(
        "X-Forwarded-Host: a b\r\nX-Forwarded-Port: 8e3\r\nX-Forwarded-Prefix: shop\r\n",
        Owned::default(),
    );
    for prefix in ["/", "//evil.example", "/a/../b", "/a%2fb", "/a?b", ""] {
        check(
            &format!("X-Forwarded-Prefix: {prefix}\r\n"),
            Owned::default(),
        );
    }
    // The other form says nothing here.
    check("Forwarded: for=192.0.2.1;proto=https\r\n", Owned::default());
}

#[test]
fn reads_the_standard_form() {
    let check = |value: &str, client: Option<&str>, is_https, host: Option<&str>| {
        let expect = Owned {
            client: client.map(str::to_owned),
            is_https,
            host: host.map(str::to_owned),
            ..Owned::default()
        };
        let fields = format!("Forwarded: {value}\r\n");
        assert_eq!(read(RFC, &fields), expect, "{value}");
    };
    check("for=192.0.2.1", Some("192.0.2.1"), None, None);
    check(
        "For=\"[2001:db8::1]:4711\";PROTO=https;by=10.0.0.1;host=\"shop.example:443\"",
        Some("2001:db8::1 4711"),
        Some(true),
        Some("shop.example:443"),
    );
    check(
        "for=203.0.113.9;proto=http, for=192.0.2.1;proto=https, for=10.0.0.1;proto=http",
        Some("192.0.2.1"),
        Some(true),
        None,
    );
    check(
        "for=203.0.113.9, for=unknown;proto=https, for=10.0.0.1",
        Some("10.0.0.1"),
        Some(true),
        None,
    );
    check("for=_hidden", None, None, None);
    check("for=\"192.0.2.1:_x\"", Some("192.0.2.1"), None, None);
    check("for=\"a,b\";proto=https", None, Some(true), None);
    check("for=192.0.2.1;for=192.0.2.2", None, None, None);
    for faulty in [
        "for",
        "for=",
        "for=\"192.0.2.1",
        "for=192.0.2.1\"",
        "",
        ";",
        "for=\"\\192.0.2.1\"",
    ] {
        check(faulty, None, None, None);
    }
    check("for=192.0.2.1, for=", None, None, None);
}

proptest! {
    #[test]
    fn whoever_is_named_was_named_by_a_trusted_proxy(
        hops in prop::collection::vec((0..4u8, 0..2u8), 1..8), is_rfc in any::<bool>(),
    ) {
        let ips: Vec<IpAddr> = hops
            .iter()
            .map(|(last, net)| IpAddr::from([if *net == 0 { 10 } else { 192 }, 0, 2, *last]))
            .collect();
        let (form, name, prefix) = match is_rfc {
            true => (RFC, "Forwarded", "for="),
            false => (ALL_X, "X-Forwarded-For", ""),
        };
        let value: Vec<_> = ips.iter().map(|ip| format!("{prefix}{ip}")).collect();
        let expect = ips.iter().rev().find(|ip| !is_trusted(**ip)).unwrap_or(&ips[0]);
        check_client(form, &format!("{name}: {}\r\n", value.join(", ")), Some(&expect.to_string()));
    }

    #[test]
    fn garbage_never_panics(bytes in "[ -~]{0,80}", is_rfc in any::<bool>()) {
        let form = if is_rfc { RFC } else { ALL_X };
        let name = if is_rfc { "Forwarded" } else { "X-Forwarded-For" };
        read(form, &format!("{name}: {bytes}\r\nX-Forwarded-Prefix: {bytes}\r\nX-Forwarded-Host: {bytes}\r\n"));
    }
}
