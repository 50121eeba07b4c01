//! `start_response` as applications call it, and the rules for what they say in it.

use pyo3::types::PyDict;

use super::*;

/// Runs `script` with `start_response` as `s`.
fn run(script: &std::ffi::CStr) {
    Python::initialize();
    Python::attach(|py| {
        let caller = Caller::new(py).unwrap();
        caller.call.borrow_mut().stage = Stage::Silent;
        let names = PyDict::new(py);
        names.set_item("s", &caller.start_response).unwrap();
        let helper = c"
import sys
class Headers(list): pass
def fails(kind, part, *args, **named):
    try: s(*args, **named)
    except kind as e: assert part in str(e), str(e)
    else: raise AssertionError('did not fail')
";
        py.run(helper, Some(&names), None).unwrap();
        py.run(script, Some(&names), None).unwrap();
    });
}

#[test]
fn nothing_holds_a_call_that_is_discarded() {
    Python::initialize();
    Python::attach(|py| {
        let caller = Caller::new(py).unwrap();
        let call = caller.call.clone();
        caller.discard();
        assert_eq!(call.get_refcnt(), 1);
    });
}

#[test]
fn refuses_what_pep_3333_refuses() {
    run(c"
fails(TypeError, 'start_response() missing 1 required positional argument')
fails(TypeError, 'list of tuples, not NoneType', '200 OK')
fails(TypeError, 'unexpected keyword argument', '200 OK', [], odd=1)
fails(TypeError, 'positional arguments', '200 OK', [], None, [])
fails(TypeError, 'status must be str', b'200 OK', [])
fails(ValueError, 'three digits', 'OK', [])
fails(ValueError, 'control', '200 OK\\r\\nX: y', [])
fails(ValueError, 'latin-1', '200 \\u20ac', [])
fails(TypeError, 'list of tuples, not dict', '200 OK', {'a': 'b'})
fails(TypeError, 'list of tuples, not tuple', '200 OK', (('a', 'b'),))
fails(TypeError, 'list of tuples, not tuple', '200 OK', ())
fails(TypeError, 'list of tuples, not generator', '200 OK', (pair for pair in []))
fails(TypeError, 'list of tuples, not NoneType', '200 OK', None)
for odd in [ValueError(), [ValueError, ValueError(), None], 'x', 0, True, False, (), (ValueError,), {}]:
    fails(TypeError, 'exc_info must be a (type, value, traceback) tuple, not ' + type(odd).__name__, '200 OK', [], odd)
    fails(TypeError, 'exc_info must be', '200 OK', [], exc_info=odd)
fails(TypeError, '(name, value)', '200 OK', ['ab'])
fails(TypeError, '(name, value)', '200 OK', [('a', 'b', 'c')])
fails(TypeError, 'header name must be str', '200 OK', [(b'a', 'b')])
fails(TypeError, 'header value must be str, not int', '200 OK', [('Content-Length', 3)])
fails(ValueError, 'latin-1', '200 OK', [('a', '\\u20ac')])
fails(ValueError, 'token', '200 OK', [('a b', 'b')])
fails(ValueError, 'control', '200 OK', [('a', 'b\\r\\nc: d')])
fails(ValueError, 'hop-by-hop', '200 OK', [('Connection', 'close')])
fails(ValueError, 'twice', '200 OK', [('Content-Length', '3'), ('Content-Length', '3')])
s('200 OK', Headers([('X-Late', 'yes')]), sys.exc_info())
");
}

#[test]
fn a_kept_start_response_is_of_no_use_afterwards() {
    Python::initialize();
    Python::attach(|py| {
        let caller = Caller::new(py).unwrap();
        assert!(caller.is_ours_alone());
        let kept = caller.start_response.clone();
        assert!(!caller.is_ours_alone());
        let error = kept.call1(("200 OK", PyList::empty(py))).unwrap_err();
        assert!(error.to_string().contains("is over"), "{error}");
        drop((kept, error));
        assert!(caller.is_ours_alone());
        let write = caller
            .call
            .borrow()
            .write
            .as_ref()
            .map(|write| write.clone_ref(py));
        assert!(!caller.is_ours_alone());
        drop(write);
        let owner = caller.start_response.getattr("__self__").unwrap();
        assert!(!caller.is_ours_alone());
        drop(owner);
    });
}

#[test]
fn reads_statuses_and_names_the_broken_rule() {
    let check = |text: &str, expect: Result<(u16, &str), Broken>| {
        let mut head = Head::default();
        let found = head.set_status(text.as_bytes());
        let reason = std::str::from_utf8(&head.reason).unwrap();
        assert_eq!(found.map(|()| (head.code, reason)), expect, "{text:?}");
    };
    check("200 OK", Ok((200, "OK")));
    check("200 ", Ok((200, "")));
    check("204", Ok((204, "")));
    check("999 Odd", Ok((999, "Odd")));
    check("200OK", Err(STATUS_FORM));
    check(" 200 OK", Err(STATUS_FORM));
    check("000 Nil", Err(STATUS_FORM));
    check("101 Switching Protocols", Err(STATUS_INTERIM));
    check("200 OK\n", Err(STATUS_TEXT));
}

#[test]
fn writes_header_lines_and_tells_what_they_mean() {
    let check = |name: &str, value: &str, expect: Result<Declared, Broken>| {
        let mut head = Head::default();
        let added = head.add(name.as_bytes(), value.as_bytes());
        let found = added.map(|()| format!("{:?}", head.declared));
        let expect = expect.map(|declared| format!("{declared:?}"));
        assert_eq!(found, expect, "{name}: {value}");
        let line = format!("{name}: {value}\r\n");
        let line = if expect.is_ok() { line.as_bytes() } else { b"" };
        assert_eq!(head.lines.as_bytes(), line);
    };
    let nothing = Declared::default();
    check("Content-Type", "text/plain", Ok(nothing));
    check("X-Empty", "", Ok(nothing));
    check("X-Tab", "a\tb", Ok(nothing));
    let declared = Declared {
        content_length: Some(1234),
        ..nothing
    };
    check("content-LENGTH", "1234", Ok(declared));
    let declared = Declared {
        date: true,
        ..nothing
    };
    check("Date", "x", Ok(declared));
    let declared = Declared {
        server: true,
        ..nothing
    };
    check("server", "x", Ok(declared));
    check("Content-Length", "0x10", Err(LENGTH));
    check("Content-Length", "99999999999999999999", Err(LENGTH));
    check("X-Accel-Limit-Rate", "1k", Err(RATE));
    check("X-Accel-Limit-Rate", "1000\r\n", Err(VALUE));
    check("X-A", "a\x7fb", Err(VALUE));
    let hop_by_hop = "Connection keep-alive Proxy-Authenticate Proxy-Authorization TE Trailer Trailers \
        Transfer-Encoding Upgrade Proxy-Connection";
    for name in hop_by_hop.split_whitespace() {
        check(name, "x", Err(HOP_BY_HOP));
    }
}

#[test]
fn a_bandwidth_is_meant_for_the_server_alone() {
    let mut head = Head::default();
    // As nginx has it.
    for (value, expect) in [
        ("1000", Rate::BytesPerSec(1000)),
        ("off", Rate::Unlimited),
        ("0", Rate::Unlimited),
    ] {
        head.add(b"x-accel-limit-rate", value.as_bytes()).unwrap();
        assert_eq!(head.declared.rate, Some(expect));
    }
    assert!(head.lines.is_empty());
}

#[test]
fn a_status_without_a_body_has_no_length() {
    let mut head = Head::default();
    head.set_status(b"204 No Content").unwrap();
    for _ in 0..2 {
        head.add(b"Content-Length", b"3").unwrap();
    }
    assert!(head.lines.is_empty() && head.declared.content_length.is_none());
}
