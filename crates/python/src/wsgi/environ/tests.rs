//! Names and values of environs. What an application finds in them is tested in tests/test_environ.py.

use std::sync::Arc;

use http::{HeadIndex, HeadStep, Limits, RequestHead};
use server::exchange::{Body, ExchangeRecord, Id};
use telemetry::Stamp;

use super::*;

fn exchange(head: &str) -> Exchange {
    let mut index = HeadIndex::new();
    let step = index.parse(head.as_bytes(), &mut 0, &Limits::default());
    assert!(matches!(step, Ok(HeadStep::Complete)), "{head:?}");
    Exchange {
        head: Arc::new(RequestHead::take(HeadView {
            bytes: head.as_bytes(),
            index: &index,
        })),
        rewritten: None,
        body: Body::Empty,
        streamed: None,
        permit: None,
        ends: Arc::new(Ends {
            client_host: "192.0.2.7".into(),
            client_port: "54321".into(),
            peer_host: "192.0.2.7".into(),
            is_trusted: false,
            local_host: "127.0.0.1".into(),
            local_port: "8000".into(),
            host: None,
            prefix: "".into(),
            scheme: "http",
            tls: None,
            listener: 0,
        }),
        record: ExchangeRecord::new(Id::made(0, 0), 0, Stamp::ZERO),
    }
}

#[test]
fn names_that_clients_choose_are_not_interned() {
    // The last one is too long to be learned.
    let long = "x".repeat(100);
    let head = format!("GET / HTTP/1.1\r\nHost: h\r\nX-Odd: 1\r\nX-Odd-{long}: 1\r\n\r\n");
    Python::initialize();
    Python::attach(|py| {
        let mut environs = Environs::new(&PyDict::new(py), b"", None).unwrap();
        environs.build(&exchange(&head)).unwrap();
        let names = PyDict::new(py);
        names
            .set_item("e", environs.build(&exchange(&head)).unwrap())
            .unwrap();
        let script = c"
import sys
def is_interned(key): return sys.intern(bytes(key, 'ascii').decode()) is key
headers = [key for key in e if key.startswith('HTTP_')]
assert [is_interned(key) for key in headers] == [True, False, False], headers
";
        py.run(script, Some(&names), None).unwrap();
    });
}

fn with<R>(body: impl FnOnce(&mut Names<'_>) -> R) -> R {
    Python::initialize();
    Python::attach(|py| body(&mut Names::new(py)))
}

#[test]
fn every_common_name_has_a_place() {
    with(|names| {
        for text in COMMON {
            let name = names.find(text.to_ascii_uppercase().as_bytes());
            assert!(
                name.is_some_and(|name| *name.text == *text.as_bytes()),
                "{text}"
            );
        }
        assert_eq!(names.len, COMMON.len());
    });
}

#[test]
fn names_become_keys_whatever_their_case() {
    let check = |text: &str, expect: &str, usage: Use| {
        with(|names| {
            let name = names.find(text.as_bytes()).unwrap();
            assert_eq!((name.key.to_string().as_str(), name.usage), (expect, usage));
        });
    };
    check("Host", "HTTP_HOST", Use::Plain);
    check("HOST", "HTTP_HOST", Use::Plain);
    check("coOkie", "HTTP_COOKIE", Use::Cookie);
    check("Content-Type", "CONTENT_TYPE", Use::Plain);
    check("Content-Length", "CONTENT_LENGTH", Use::Hidden);
    check("Transfer-Encoding", "HTTP_TRANSFER_ENCODING", Use::Hidden);
    check("Proxy", "HTTP_PROXY", Use::Hidden);
    check("X-Own-Name", "HTTP_X_OWN_NAME", Use::Plain);
    check("X_Forwarded-For", "HTTP_X_FORWARDED_FOR", Use::Hidden);
    check("!odd", "HTTP_!ODD", Use::Plain);
}

#[test]
fn learns_a_bounded_number_of_names() {
    with(|names| {
        for number in 0..10_000 {
            names.find(format!("x-{number}").as_bytes());
        }
        assert!(names.len <= COMMON.len() + LEARNED_LEN_MAX);
        assert!(names.len > COMMON.len() + LEARNED_LEN_MAX / 2);
        assert!(names.find(b"x-forwarded-for").is_some());
        assert!(names.find(&[b'x'; 65]).is_none());
    });
}

#[test]
fn the_same_value_is_the_same_object() {
    with(|names| {
        let py = names.py;
        let kept = &mut names.find(b"accept").unwrap().last;
        let first = reuse(py, kept, b"text/html");
        assert!(first.is(reuse(py, kept, b"text/html")));
        assert_eq!(reuse(py, kept, b"text/plain"), "text/plain");
        assert_eq!(first, "text/html");
        let long = [b'x'; 513];
        assert!(!reuse(py, kept, &long).is(reuse(py, kept, &long)));
    });
}

#[test]
fn latin1_text_keeps_every_byte() {
    let every: Vec<u8> = (0..=255).collect();
    Python::initialize();
    Python::attach(|py| {
        for bytes in [&every[..], b"", b"x", b"plain ascii", "\u{e9}".as_bytes()] {
            let text = latin1(py, bytes);
            assert_eq!(text.len().unwrap(), bytes.len());
            assert_eq!(latin1_bytes(&text), Some(bytes));
            let points: Vec<u32> = text.to_string().chars().map(u32::from).collect();
            assert!(
                points
                    .into_iter()
                    .eq(bytes.iter().map(|byte| u32::from(*byte)))
            );
        }
        for wide in ["\u{20ac}", "\u{1f40e}"] {
            assert_eq!(latin1_bytes(&PyString::new(py, wide)), None);
        }
    });
}
