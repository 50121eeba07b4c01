//! Tests of the exchange, its id and its end.

use std::collections::HashSet;

use http::{HeadIndex, HeadStep, Limits};

use super::*;

fn exchange(target: &str, rewritten: Option<&str>) -> Exchange {
    let ends = Ends {
        peer_host: SmolStr::default(),
        peer_port: SmolStr::default(),
        local_host: SmolStr::default(),
        local_port: SmolStr::default(),
        scheme: "http",
        listener: 0,
    };
    Exchange {
        head: Arc::new(head(target, "")),
        rewritten: rewritten.map(|target| target.as_bytes().into()),
        body: Body::Empty,
        ends: Arc::new(ends),
        record: ExchangeRecord::new(Id::made(0, 0), 0, Stamp::ZERO),
    }
}

#[test]
fn a_rewritten_target_takes_the_place_of_the_one_sent() {
    let check = |rewritten, path: &str, query: Option<&str>| {
        let exchange = exchange("http://h/sent?s", rewritten);
        assert_eq!(exchange.path(), path.as_bytes());
        assert_eq!(exchange.query(), query.map(str::as_bytes));
        assert_eq!(
            exchange.target(),
            rewritten.unwrap_or("http://h/sent?s").as_bytes()
        );
        assert_eq!(exchange.name(), "GET http://h/sent [id 0000000000000000]");
    };
    check(None, "/sent", Some("s"));
    check(Some("/new"), "/new", None);
    check(Some("/new?"), "/new", Some(""));
    check(Some("/new?a?b"), "/new", Some("a?b"));
}

fn ids(trust: &[(&str, u8)]) -> Ids {
    let network = |(ip, prefix): &(&str, u8)| (ip.parse().unwrap(), *prefix);
    Ids::new(&RequestIds {
        header: Some("x-request-id".to_owned()),
        trust: trust.iter().map(network).collect(),
    })
}

#[test]
fn trusts_the_networks_it_is_told_and_unix_sockets() {
    let check = |trust: &[(&str, u8)], peer: &str, expect: bool| {
        let found = ids(trust).are_trusted_of(Some(peer.parse().unwrap()));
        assert_eq!(found, expect, "{trust:?} {peer}");
    };
    check(&[], "127.0.0.1", false);
    check(&[("127.0.0.1", 32)], "127.0.0.1", true);
    check(&[("127.0.0.1", 32)], "127.0.0.2", false);
    check(&[("10.1.2.3", 8)], "10.200.0.1", true);
    check(&[("10.1.2.3", 8)], "11.0.0.1", false);
    check(&[("10.0.0.0", 8)], "::ffff:10.9.9.9", true);
    check(&[("::ffff:10.0.0.0", 104)], "10.9.9.9", true);
    check(&[("0.0.0.0", 0)], "203.0.113.9", true);
    check(&[("0.0.0.0", 0)], "2001:db8::1", false);
    check(&[("2001:db8::", 32), ("::1", 128)], "2001:db8:9::1", true);
    check(&[("2001:db8::", 32), ("::1", 128)], "::1", true);
    check(&[("2001:db8::", 32), ("::1", 128)], "2001:db9::1", false);
    check(&[("::", 0)], "2001:db8::1", true);
    assert!(ids(&[]).are_trusted_of(None));
    assert!(!Ids::new(&RequestIds::default()).are_trusted_of(None));
}

#[test]
fn drivers_never_give_the_same_number() {
    let drivers = [0, 1, 1_023].map(Numbers::of_driver);
    let numbers = drivers
        .iter()
        .flat_map(|driver| (0..1_000).map(|_| driver.next()));
    let distinct: HashSet<u64> = numbers.collect();
    assert_eq!(distinct.len(), 3_000);
}

#[test]
fn every_start_has_a_seed_of_its_own() {
    assert_ne!(ids(&[]).seed(), ids(&[]).seed());
}

fn head(target: &str, lines: &str) -> RequestHead {
    let bytes = format!("GET {target} HTTP/1.1\r\nHost: h\r\n{lines}\r\n");
    let mut index = HeadIndex::new();
    let step = index.parse(bytes.as_bytes(), &mut 0, &Limits::default());
    assert!(matches!(step, Ok(HeadStep::Complete)), "{target} {lines:?}");
    RequestHead::take(HeadView {
        bytes: bytes.as_bytes(),
        index: &index,
    })
}

#[test]
fn takes_what_a_client_gave_once_and_in_form() {
    let check = |lines: &str, expect: Option<&str>| {
        let head = head("/", lines);
        let id = ids(&[]).id(2, Some(head.view()));
        let given = id.given(head.view()).map(String::from_utf8_lossy);
        assert_eq!(given.as_deref(), expect, "{lines:?}");
        let text = id.text(head.view());
        match expect {
            Some(expect) => assert_eq!(&*text, expect.as_bytes()),
            None => assert!(matches!(text, IdText::Made(_))),
        }
    };
    let long = |bytes: usize| format!("X-Request-Id: {}\r\n", "a".repeat(bytes));
    check("", None);
    check("X-Request-Id: a-1\r\n", Some("a-1"));
    check("A: b\r\nx-REQUEST-id:   ~!z   \r\nC: d\r\n", Some("~!z"));
    check("X-Request-Id:\r\n", None);
    check("X-Request-Id: a\r\nX-Request-Id: a\r\n", None);
    check("X-Request-Id: a\r\nx-request-id:\r\n", None);
    check("X_Request_Id: a\r\n", None);
    check(&long(128), Some(&"a".repeat(128)));
    check(&long(129), None);
    for odd in [
        "a b", "a\tb", "a,b", "a\"b", "a'b", "a\\b", "[a", "a]", "\u{e9}",
    ] {
        check(&format!("X-Request-Id: {odd}\r\n"), None);
    }
}

#[test]
fn no_other_byte_than_visible_ones_can_be_in_an_id() {
    for byte in 0..=255_u8 {
        let fits = (0x21..=0x7e).contains(&byte) && !b"\"'\\,[]".contains(&byte);
        assert_eq!(can_be_an_id(&[b'a', byte]), fits, "{byte:#x}");
    }
}

#[test]
fn made_texts_differ_and_are_hexadecimal() {
    let mut seen = HashSet::new();
    let head = head("/", "");
    for driver in 0..4_u64 {
        for count in 0..10_000 {
            let text = Id::made(7, driver << 53 | count).text(head.view());
            assert!(text.iter().all(u8::is_ascii_hexdigit), "{text:?}");
            assert!(seen.insert(text.to_vec()), "{text:?}");
        }
    }
}

#[test]
#[should_panic(expected = "invariant violated")]
fn a_request_is_not_run_before_it_arrives() {
    check_order(&Phases {
        arrived: Stamp(2),
        queued: Stamp(1),
        ..Phases::default()
    });
}
