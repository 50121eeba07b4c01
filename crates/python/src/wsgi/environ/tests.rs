//! Environs as applications find them: heads in, what a script in the interpreter sees.

use std::sync::Arc;

use measure::Stamp;
use server::exchange::{Body, ExchangeRecord, Id};
use wire::{HeadIndex, HeadStep, Limits, RequestHead};

use super::*;

/// The first line of `head` may name a second target, which the first was rewritten to.
fn exchange(head: &str, body: Body) -> Exchange {
    let (head, rewritten) = match head.split_once(" -> ") {
        Some((line, rest)) => {
            let (target, rest) = rest.split_once(' ').unwrap();
            (format!("{line} {rest}"), Some(target.as_bytes().into()))
        }
        None => (head.to_owned(), None),
    };
    let mut index = HeadIndex::new();
    let step = index.parse(head.as_bytes(), &mut 0, &Limits::default());
    assert!(matches!(step, Ok(HeadStep::Complete)), "{head:?}");
    let ends = Ends {
        peer_host: "192.0.2.7".into(),
        peer_port: "54321".into(),
        local_host: "127.0.0.1".into(),
        local_port: "8000".into(),
        scheme: "http",
        listener: 0,
    };
    Exchange {
        head: Arc::new(RequestHead::take(HeadView {
            bytes: head.as_bytes(),
            index: &index,
        })),
        rewritten,
        body,
        ends: Arc::new(ends),
        record: ExchangeRecord::new(Id::made(0, 0), 0, Stamp::ZERO),
    }
}

/// Runs `script` with the environs of `heads` as `e`, or as `all`.
fn run(script_name: &str, heads: &[&str], script: &std::ffi::CStr) {
    run_with_ids(script_name, None, heads, script);
}

/// As `run`, where a header is configured for ids.
fn run_with_ids(script_name: &str, header: Option<&str>, heads: &[&str], script: &std::ffi::CStr) {
    Python::initialize();
    Python::attach(|py| {
        let fill = c"
own = dict.fromkeys(['wsgi.input', 'wsgi.errors', 'wsgi.file_wrapper', 'milepost.phases'])
own.update({'wsgi.multithread': True, 'wsgi.multiprocess': False, 'milepost.worker': '4711.3'})
";
        let names = PyDict::new(py);
        py.run(fill, Some(&names), None).unwrap();
        let own = names.get_item("own").unwrap().unwrap();
        let mut environs =
            Environs::new(own.cast().unwrap(), script_name.as_bytes(), header).unwrap();
        let mut build = |head: &&str| {
            let body = Body::Memory(b"12345".to_vec());
            environs.build(&exchange(head, body)).unwrap()
        };
        let all: Vec<_> = heads.iter().map(&mut build).collect();
        let names = PyDict::new(py);
        names.set_item("e", &all[0]).unwrap();
        names.set_item("all", all).unwrap();
        py.run(script, Some(&names), None).unwrap();
    });
}

#[test]
fn environ_has_what_pep_3333_asks_for() {
    run(
            "",
            &["GET /a%20b/%C3%A9%2F?x=%201 HTTP/1.1\r\nHost: h:1\r\nAccept: */*\r\n\r\n"],
            c"
assert e == {
    'REQUEST_METHOD': 'GET', 'SCRIPT_NAME': '', 'PATH_INFO': '/a b/\\xc3\\xa9/', 'QUERY_STRING': 'x=%201',
    'RAW_URI': '/a%20b/%C3%A9%2F?x=%201', 'REQUEST_URI': '/a%20b/%C3%A9%2F?x=%201',
    'SERVER_NAME': '127.0.0.1', 'SERVER_PORT': '8000', 'SERVER_PROTOCOL': 'HTTP/1.1',
    'SERVER_SOFTWARE': e['SERVER_SOFTWARE'], 'REMOTE_ADDR': '192.0.2.7', 'REMOTE_PORT': '54321',
    'wsgi.version': (1, 0), 'wsgi.url_scheme': 'http', 'wsgi.input': None, 'wsgi.input_terminated': True,
    'wsgi.errors': None, 'wsgi.file_wrapper': None, 'wsgi.multithread': True, 'wsgi.multiprocess': False,
    'wsgi.run_once': False, 'milepost.phases': None, 'milepost.worker': '4711.3',
    'milepost.request_id': '0000000000000000', 'HTTP_HOST': 'h:1', 'HTTP_ACCEPT': '*/*',
}, e
assert type(e) is dict
",
        );
}

#[test]
fn methods_and_versions_are_told() {
    run(
        "",
        &[
            "POST / HTTP/1.0\r\n\r\n",
            "PURGE / HTTP/1.1\r\nHost: h\r\n\r\n",
            "GET / HTTP/1.1\r\nHost: h\r\n\r\n",
        ],
        c"
assert [(e['REQUEST_METHOD'], e['SERVER_PROTOCOL']) for e in all] == [
    ('POST', 'HTTP/1.0'), ('PURGE', 'HTTP/1.1'), ('GET', 'HTTP/1.1')]
assert 'HTTP_HOST' not in all[0] and 'CONTENT_LENGTH' not in e
",
    );
}

#[test]
fn repeated_headers_are_joined_and_ambiguous_ones_dropped() {
    run(
        "",
        &[
            "GET / HTTP/1.1\r\nHost: h\r\nX-A: 1\r\nCookie: a=1\r\nx-a: 2\r\ncookie: b=2\r\nX_A: 3\r\nProxy: p\r\nX-A: 4\r\nX-B: é\r\n\r\n",
        ],
        c"
assert e['HTTP_X_A'] == '1,2,4' and e['HTTP_COOKIE'] == 'a=1; b=2' and 'HTTP_PROXY' not in e, e
assert e['HTTP_X_B'] == '\\xc3\\xa9', e
",
    );
}

#[test]
fn names_that_clients_choose_are_not_interned() {
    // The last one is too long to be learned.
    let head = format!(
        "GET / HTTP/1.1\r\nHost: h\r\nX-Odd: 1\r\nX-Odd-{}: 1\r\n\r\n",
        "x".repeat(100)
    );
    run(
        "",
        &[&head, &head],
        c"
import sys
def is_interned(key): return sys.intern(bytes(key, 'ascii').decode()) is key
headers = [key for key in e if key.startswith('HTTP_')]
assert [is_interned(key) for key in headers] == [True, False, False], headers
",
    );
}

#[test]
fn environs_of_one_thread_do_not_mix() {
    run(
            "",
            &["GET /1?q HTTP/1.1\r\nHost: h\r\nX-A: 1\r\n\r\n", "GET /2 HTTP/1.1\r\nHost: h\r\nX-B: 1\r\n\r\n"],
            c"
assert [e['PATH_INFO'] for e in all] == ['/1', '/2'] and [e['QUERY_STRING'] for e in all] == ['q', '']
assert 'HTTP_X_B' not in all[0] and 'HTTP_X_A' not in all[1]
",
        );
}

#[test]
fn a_rewritten_target_is_the_applications_and_the_one_sent_is_told() {
    run(
        "/app",
        &[
            "GET /old?a -> /app/n%20w?b=%201 HTTP/1.1\r\nHost: h\r\n\r\n",
            "GET /app/new?a HTTP/1.1\r\nHost: h\r\n\r\n",
            "GET /old?a -> /new HTTP/1.1\r\nHost: h\r\n\r\n",
            "GET /old -> /old HTTP/1.1\r\nHost: h\r\n\r\n",
            "GET /old HTTP/1.1\r\nHost: h\r\n\r\n",
            "GET http://x/old -> /app HTTP/1.1\r\nHost: h\r\n\r\n",
        ],
        c"
seen = [(e['PATH_INFO'], e['QUERY_STRING'], e['RAW_URI']) for e in all]
assert seen == [
    ('/n w', 'b=%201', '/old?a'), ('/new', 'a', '/app/new?a'), ('/new', '', '/old?a'),
    ('/old', '', '/old'), ('/old', '', '/old'), ('', '', 'http://x/old')], seen
assert [e['REQUEST_URI'] for e in all] == [e['RAW_URI'] for e in all]
assert all[5]['HTTP_HOST'] == 'x'
",
    );
}

#[test]
fn the_id_takes_the_place_of_what_the_client_sent() {
    let heads = [
        "GET / HTTP/1.1\r\nHost: h\r\n\r\n",
        "GET / HTTP/1.1\r\nHost: h\r\nX-Own-Id: forged\r\n\r\n",
        "GET / HTTP/1.1\r\nHost: h\r\nx-own-id: forged\r\nX_Own_Id: x\r\nX-OWN-ID: again\r\n\r\n",
    ];
    let script = c"
for e in all:
    assert e['HTTP_X_OWN_ID'] == e['milepost.request_id'] == '0000000000000000', e
";
    run_with_ids("", Some("x-own-id"), &heads, script);
    let script = c"
assert [e.get('HTTP_X_OWN_ID') for e in all] == [None, 'forged', 'forged,again'], all
assert e['milepost.request_id'] == '0000000000000000'
";
    run_with_ids("", None, &heads, script);
}

#[test]
fn a_complete_body_has_its_length_however_it_came() {
    run(
            "",
            &[
                "POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 5\r\nContent-Type: a/b\r\n\r\n",
                "POST / HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n",
            ],
            c"
assert [e['CONTENT_LENGTH'] for e in all] == ['5', '5'] and e['CONTENT_TYPE'] == 'a/b'
assert not {'HTTP_CONTENT_TYPE', 'HTTP_CONTENT_LENGTH', 'HTTP_TRANSFER_ENCODING'} & (set(all[0]) | set(all[1]))
",
        );
}

#[test]
fn the_mount_point_leaves_the_path() {
    run(
            "/app",
            &[
                "GET /app/x HTTP/1.1\r\nHost: h\r\n\r\n",
                "GET /app HTTP/1.1\r\nHost: h\r\n\r\n",
                "GET /apple HTTP/1.1\r\nHost: h\r\n\r\n",
                "OPTIONS * HTTP/1.1\r\nHost: h\r\n\r\n",
                "GET http://h/app/%7a HTTP/1.1\r\nHost: h\r\n\r\n",
            ],
            c"
assert [e['PATH_INFO'] for e in all] == ['/x', '', '/apple', '*', '/z'], [e['PATH_INFO'] for e in all]
assert {e['SCRIPT_NAME'] for e in all} == {'/app'} and all[4]['RAW_URI'] == 'http://h/app/%7a'
",
        );
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
            assert_eq!(
                points,
                bytes
                    .iter()
                    .map(|byte| u32::from(*byte))
                    .collect::<Vec<_>>()
            );
        }
    });
}

#[test]
fn wide_text_is_no_latin1() {
    Python::initialize();
    Python::attach(|py| {
        assert_eq!(latin1_bytes(&PyString::new(py, "\u{20ac}")), None);
        assert_eq!(latin1_bytes(&PyString::new(py, "\u{1f40e}")), None);
    });
}
