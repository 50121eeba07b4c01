//! Tests of the exchange, its id and its end. Which ids are taken from clients is tested in tests/test_request_id.py.

use std::collections::HashSet;

use super::*;
use crate::tests;

fn exchange(target: &str, rewritten: Option<&str>) -> Exchange {
    Exchange {
        rewritten: rewritten.map(|target| target.as_bytes().into()),
        ..tests::exchange(&format!("GET {target} HTTP/1.1\r\nHost: h\r\n\r\n"))
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

#[test]
fn a_call_of_grpc_comes_by_http2() {
    let check = |fields: &str, stream: u32, expect: bool| {
        let head = format!("POST / HTTP/1.1\r\nHost: h\r\n{fields}\r\n");
        let mut exchange = tests::exchange(&head);
        exchange.record.stream.number = stream;
        assert_eq!(exchange.is_grpc(), expect, "{fields} {stream}");
    };
    check("Content-Type: application/grpc+proto\r\n", 1, true);
    check("Content-Type: application/grpc\r\n", 0, false);
    check("Content-Type: application/json\r\n", 1, false);
    check("", 1, false);
}

fn ids() -> Ids {
    let header = Some("x-request-id".to_owned());
    Ids::new(&RequestIds { header }, &Traces::default())
}

/// What an exchange says further on of a client's head, in `traceparent`.
fn said_on(fields: &str, parents: TraceParents, is_trusted: bool) -> (String, bool) {
    let traces = Traces {
        has_ids: true,
        share: TraceShare::ParentBased(0.0),
        parents,
        ..Traces::default()
    };
    let ids = Ids::new(&RequestIds::default(), &traces);
    let head = tests::head(&format!("GET / HTTP/1.1\r\nHost: h\r\n{fields}\r\n"));
    let id = ids.id(3, head.view(), is_trusted);
    let trace = id.trace();
    let span = String::from_utf8_lossy(&trace.span_id()).into_owned();
    let text = String::from_utf8_lossy(&id.text(head.view())).into_owned();
    assert_eq!(span, text, "the span is called as the exchange is");
    let said = String::from_utf8_lossy(&trace.header()).replace(&span, "SPAN");
    (said, trace.has_parent())
}

#[test]
fn continues_the_trace_of_a_client_that_may_say_so() {
    const PARENT: &str = "traceparent: 00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01\r\n";
    let continued = (
        "00-0af7651916cd43dd8448eb211c80319c-SPAN-01".to_owned(),
        true,
    );
    let check = |fields: &str, parents: TraceParents, is_trusted: bool, continues: bool| {
        let said = said_on(fields, parents, is_trusted);
        assert_eq!(said == continued, continues, "{fields} {said:?}");
        assert_eq!(said.1, continues, "{fields}");
        assert!(continues || said.0.ends_with("-02"), "{fields} {said:?}");
    };
    check(PARENT, TraceParents::All, false, true);
    check(
        &PARENT.replace("traceparent", "TraceParent"),
        TraceParents::All,
        false,
        true,
    );
    check(PARENT, TraceParents::Trusted, true, true);
    check(PARENT, TraceParents::Trusted, false, false);
    check("", TraceParents::All, true, false);
    check(&PARENT.repeat(2), TraceParents::All, true, false);
    check(&PARENT.to_uppercase(), TraceParents::All, true, false);
}

#[test]
fn without_traces_there_is_no_context_and_names_have_the_id_alone() {
    let head = tests::head("GET / HTTP/1.1\r\nHost: h\r\n\r\n");
    let id = ids().id(3, head.view(), true);
    assert!(!id.trace().is_known());
    assert!(!name(id, head.view()).contains("trace"));
    let traces = Traces {
        has_ids: true,
        ..Traces::default()
    };
    let id = Ids::new(&RequestIds::default(), &traces).id(3, head.view(), true);
    let trace = String::from_utf8_lossy(&id.trace().trace_id()).into_owned();
    assert!(name(id, head.view()).ends_with(&format!(" trace {trace}]")));
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
    assert_ne!(ids().seed(), ids().seed());
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
    let head = tests::head("GET / HTTP/1.1\r\nHost: h\r\n\r\n");
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

#[test]
fn addresses_are_written_as_everywhere() {
    for text in [
        "0.0.0.0",
        "9.10.99.100",
        "255.255.255.255",
        "192.0.2.7",
        "2001:db8::1",
        "::1",
    ] {
        assert_eq!(host_text(text.parse().unwrap()), text);
    }
    assert_eq!(host_text("::ffff:192.0.2.7".parse().unwrap()), "192.0.2.7");
}
