//! environ: the request as a dictionary (PEP 3333).
//!
//! Takes an exchange, gives a dict: a copy of a template that holds what does not change from request to
//! request, and in it what does. Templates and strings belong to one pool thread. Must not run application
//! code.

use pyo3::intern;
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyString};
use server::exchange::{Ends, Exchange};
use wire::{BodyFraming, HeadView, Version};

use super::names::{self, Names, Use};
use crate::raw;

/// Templates kept: one for each pair of listener and local address that clients used.
const TEMPLATES_LEN_MAX: usize = 16;
/// Ports kept as `str`, a power of two.
const PORTS_LEN: usize = 256;
/// Methods that have a `str` of their own; another one is made each time.
const METHODS: [&str; 8] = [
    "GET", "HEAD", "POST", "PUT", "DELETE", "OPTIONS", "PATCH", "TRACE",
];

/// What every environ of an application has, whatever the request.
pub(crate) struct Fixed<'py> {
    /// `wsgi.errors`
    pub(crate) errors: Bound<'py, PyAny>,
    /// `wsgi.file_wrapper`
    pub(crate) file_wrapper: Bound<'py, PyAny>,
    /// `wsgi.multithread`
    pub(crate) multithread: bool,
    /// `wsgi.multiprocess`
    pub(crate) multiprocess: bool,
    /// `SCRIPT_NAME`, decoded.
    pub(crate) script_name: Vec<u8>,
    /// Key of the header that names a request's id, where one is configured.
    pub(crate) request_id_key: Option<Bound<'py, PyString>>,
}

/// Builds environs on one pool thread.
pub(crate) struct Environs<'py> {
    py: Python<'py>,
    fixed: Fixed<'py>,
    templates: Vec<Template<'py>>,
    names: Names<'py>,
    methods: Vec<Bound<'py, PyString>>,
    http10: Bound<'py, PyString>,
    ports: Vec<Option<Bound<'py, PyString>>>,
    peer: Bound<'py, PyString>,
    /// Exchanges so far, to know a repeated header from one of an earlier exchange.
    turn: u64,
    decoded: Vec<u8>,
}

/// environ of a `GET` over HTTP/1.1 without query and headers.
struct Template<'py> {
    ends: Ends,
    dict: Bound<'py, PyDict>,
}

/// The objects of a request that live as long as it does.
pub(crate) struct Tools<'a, 'py> {
    pub(crate) input: &'a Bound<'py, PyAny>,
    pub(crate) phases: &'a Bound<'py, PyAny>,
}

impl<'py> Environs<'py> {
    pub(crate) fn new(py: Python<'py>, fixed: Fixed<'py>) -> Self {
        Self {
            py,
            fixed,
            templates: Vec::new(),
            names: Names::new(py),
            methods: METHODS
                .iter()
                .map(|method| PyString::intern(py, method))
                .collect(),
            http10: PyString::intern(py, "HTTP/1.0"),
            ports: vec![None; PORTS_LEN],
            peer: PyString::intern(py, ""),
            turn: 0,
            decoded: Vec::new(),
        }
    }

    /// Puts other tools into the templates, because an application keeps the old ones.
    pub(crate) fn replace_tools(&mut self, tools: &Tools<'_, 'py>) {
        let py = self.py;
        self.templates.retain(|template| {
            let input = template
                .dict
                .set_item(intern!(py, "wsgi.input"), tools.input);
            let phases = template
                .dict
                .set_item(intern!(py, "milepost.phases"), tools.phases);
            input.is_ok() && phases.is_ok()
        });
    }

    /// Number of references to each tool that the templates hold.
    pub(crate) fn templates_len(&self) -> usize {
        self.templates.len()
    }

    /// The environ of `exchange`, whose body has been moved into `tools.input`.
    pub(crate) fn build(
        &mut self,
        exchange: &Exchange,
        body_bytes: u64,
        tools: &Tools<'_, 'py>,
    ) -> PyResult<Bound<'py, PyDict>> {
        let py = self.py;
        let head = exchange.head();
        let environ = self.template(&exchange.ends, tools)?.copy()?;
        self.set_request_line(&environ, exchange)?;
        let peer = self.peer(&exchange.ends);
        environ.set_item(intern!(py, "REMOTE_ADDR"), peer)?;
        environ.set_item(
            intern!(py, "REMOTE_PORT"),
            self.port(&exchange.ends.peer_port),
        )?;
        self.set_headers(&environ, head)?;
        self.set_request_id(&environ, exchange)?;
        if head.index.body != BodyFraming::None {
            let bytes = raw::latin1(py, body_bytes.to_string().as_bytes());
            environ.set_item(intern!(py, "CONTENT_LENGTH"), bytes)?;
        }
        Ok(environ)
    }

    fn template(&mut self, ends: &Ends, tools: &Tools<'_, 'py>) -> PyResult<&Bound<'py, PyDict>> {
        let same = |template: &Template<'_>| {
            let known = &template.ends;
            known.listener == ends.listener
                && known.local_port == ends.local_port
                && known.local_host == ends.local_host
                && known.scheme == ends.scheme
        };
        let index = match self.templates.iter().position(same) {
            Some(index) => index,
            None => {
                // A client may choose among the addresses of this machine; it must not make us keep all.
                if self.templates.len() == TEMPLATES_LEN_MAX {
                    self.templates.remove(0);
                }
                let dict = template(self.py, &self.fixed, ends, tools)?;
                self.templates.push(Template {
                    ends: ends.clone(),
                    dict,
                });
                self.templates.len() - 1
            }
        };
        Ok(&self.templates[index].dict)
    }

    /// Method, target and version, where they differ from the template's. A rewritten target is the
    /// application's path and query; RAW_URI and REQUEST_URI tell what was sent.
    fn set_request_line(
        &mut self,
        environ: &Bound<'py, PyDict>,
        exchange: &Exchange,
    ) -> PyResult<()> {
        let py = self.py;
        let head = exchange.head();
        let method = head.method();
        if method != b"GET" {
            let known = METHODS.iter().position(|known| known.as_bytes() == method);
            let method = known.map_or_else(
                || raw::latin1(py, method),
                |index| self.methods[index].clone(),
            );
            environ.set_item(intern!(py, "REQUEST_METHOD"), method)?;
        }
        if head.index.version == Version::Http10 {
            environ.set_item(intern!(py, "SERVER_PROTOCOL"), &self.http10)?;
        }
        let target = raw::latin1(py, head.target());
        environ.set_item(intern!(py, "RAW_URI"), &target)?;
        environ.set_item(intern!(py, "REQUEST_URI"), &target)?;
        if let Some(query) = exchange.query().filter(|query| !query.is_empty()) {
            environ.set_item(intern!(py, "QUERY_STRING"), raw::latin1(py, query))?;
        }
        let path = decode(exchange.path(), &mut self.decoded);
        let path = below(path, &self.fixed.script_name);
        // An origin-form target without query is its own path, unless it had to be decoded, cut or rewritten.
        let path = if path == head.target() {
            target
        } else {
            raw::latin1(py, path)
        };
        environ.set_item(intern!(py, "PATH_INFO"), path)
    }

    fn set_headers(&mut self, environ: &Bound<'py, PyDict>, head: HeadView<'_>) -> PyResult<()> {
        let py = self.py;
        self.turn += 1;
        for (text, bytes) in head.headers() {
            let Some(name) = self.names.find(text) else {
                set_unknown(environ, text, bytes)?;
                continue;
            };
            if name.usage == Use::Hidden {
                continue;
            }
            if name.seen == self.turn {
                let separator: &[u8] = if name.usage == Use::Cookie {
                    b"; "
                } else {
                    b","
                };
                join(environ, &name.key, separator, bytes)?;
                continue;
            }
            name.seen = self.turn;
            let value = name.value(py, bytes);
            environ.set_item(&name.key, value)?;
        }
        // RFC 9112 section 3.2.2: the authority of an absolute target stands above the Host field.
        if !head.target().starts_with(b"/")
            && let Some(authority) = head.authority()
        {
            environ.set_item(intern!(py, "HTTP_HOST"), raw::latin1(py, authority))?;
        }
        Ok(())
    }

    /// The id under its own key, and in the place of whatever the client sent in the header for it.
    fn set_request_id(&self, environ: &Bound<'py, PyDict>, exchange: &Exchange) -> PyResult<()> {
        let id = raw::latin1(self.py, &exchange.request_id());
        if let Some(key) = &self.fixed.request_id_key {
            environ.set_item(key, &id)?;
        }
        environ.set_item(intern!(self.py, "milepost.request_id"), id)
    }

    fn peer(&mut self, ends: &Ends) -> Bound<'py, PyString> {
        // A peer on a unix socket has no address.
        let host = if ends.peer_port.is_empty() {
            ""
        } else {
            &ends.peer_host
        };
        if raw::latin1_bytes(&self.peer) != Some(host.as_bytes()) {
            self.peer = raw::latin1(self.py, host.as_bytes());
        }
        self.peer.clone()
    }

    fn port(&mut self, port: &str) -> Bound<'py, PyString> {
        let number = port
            .bytes()
            .fold(0_usize, |sum, digit| sum * 10 + usize::from(digit & 15));
        let kept = &mut self.ports[number % PORTS_LEN];
        if let Some(kept) = kept
            && raw::latin1_bytes(kept) == Some(port.as_bytes())
        {
            return kept.clone();
        }
        kept.insert(raw::latin1(self.py, port.as_bytes())).clone()
    }
}

/// At least 22 keys, so that the dictionary has room for 19 headers before it must grow, and its copy too.
fn template<'py>(
    py: Python<'py>,
    fixed: &Fixed<'py>,
    ends: &Ends,
    tools: &Tools<'_, 'py>,
) -> PyResult<Bound<'py, PyDict>> {
    let dict = PyDict::new(py);
    // A unix socket has neither name nor port, and PEP 3333 lets neither be empty.
    let (name, port) = match ends.local_port.as_str() {
        "" => ("localhost", "80"),
        port => (ends.local_host.as_str(), port),
    };
    dict.set_item(intern!(py, "REQUEST_METHOD"), intern!(py, "GET"))?;
    dict.set_item(
        intern!(py, "SCRIPT_NAME"),
        raw::latin1(py, &fixed.script_name),
    )?;
    dict.set_item(intern!(py, "PATH_INFO"), intern!(py, ""))?;
    dict.set_item(intern!(py, "QUERY_STRING"), intern!(py, ""))?;
    dict.set_item(intern!(py, "RAW_URI"), intern!(py, ""))?;
    dict.set_item(intern!(py, "REQUEST_URI"), intern!(py, ""))?;
    dict.set_item(intern!(py, "SERVER_NAME"), name)?;
    dict.set_item(intern!(py, "SERVER_PORT"), port)?;
    dict.set_item(intern!(py, "SERVER_PROTOCOL"), intern!(py, "HTTP/1.1"))?;
    dict.set_item(
        intern!(py, "SERVER_SOFTWARE"),
        concat!("milepost/", env!("CARGO_PKG_VERSION")),
    )?;
    dict.set_item(intern!(py, "REMOTE_ADDR"), intern!(py, ""))?;
    dict.set_item(intern!(py, "REMOTE_PORT"), intern!(py, ""))?;
    dict.set_item(intern!(py, "wsgi.version"), (1, 0))?;
    dict.set_item(intern!(py, "wsgi.url_scheme"), ends.scheme)?;
    dict.set_item(intern!(py, "wsgi.input"), tools.input)?;
    dict.set_item(intern!(py, "wsgi.input_terminated"), true)?;
    dict.set_item(intern!(py, "wsgi.errors"), &fixed.errors)?;
    dict.set_item(intern!(py, "wsgi.file_wrapper"), &fixed.file_wrapper)?;
    dict.set_item(intern!(py, "wsgi.multithread"), fixed.multithread)?;
    dict.set_item(intern!(py, "wsgi.multiprocess"), fixed.multiprocess)?;
    dict.set_item(intern!(py, "wsgi.run_once"), false)?;
    dict.set_item(intern!(py, "milepost.phases"), tools.phases)?;
    dict.set_item(intern!(py, "milepost.request_id"), intern!(py, ""))?;
    Ok(dict)
}

/// A header whose name is not kept: its key is made for this request.
fn set_unknown(environ: &Bound<'_, PyDict>, text: &[u8], bytes: &[u8]) -> PyResult<()> {
    if text.contains(&b'_') {
        return Ok(());
    }
    let key = names::key(environ.py(), text);
    if environ.contains(&key)? {
        return join(environ, &key, b",", bytes);
    }
    environ.set_item(key, raw::latin1(environ.py(), bytes))
}

/// Adds the value of a repeated header.
fn join(
    environ: &Bound<'_, PyDict>,
    key: &Bound<'_, PyString>,
    separator: &[u8],
    bytes: &[u8],
) -> PyResult<()> {
    let before = environ.get_item(key)?;
    let before = before
        .as_ref()
        .and_then(|value| value.cast::<PyString>().ok());
    let before = before.and_then(raw::latin1_bytes).unwrap_or_default();
    environ.set_item(
        key,
        raw::latin1(environ.py(), &[before, separator, bytes].concat()),
    )
}

/// Percent-decodes a path; an escape that is none stays as it is.
fn decode<'a>(path: &'a [u8], decoded: &'a mut Vec<u8>) -> &'a [u8] {
    if !path.contains(&b'%') {
        return path;
    }
    decoded.clear();
    let mut rest = path;
    while let Some((&first, after)) = rest.split_first() {
        let digit = |index: usize| {
            after
                .get(index)
                .and_then(|&byte| char::from(byte).to_digit(16))
        };
        match (first, digit(0), digit(1)) {
            (b'%', Some(high), Some(low)) => {
                decoded.push((high * 16 + low) as u8);
                rest = &after[2..];
            }
            _ => {
                decoded.push(first);
                rest = after;
            }
        }
    }
    decoded
}

/// The path below the mount point; the whole path when it does not lie there.
fn below<'a>(path: &'a [u8], script_name: &[u8]) -> &'a [u8] {
    match path.strip_prefix(script_name) {
        Some(rest) if rest.is_empty() || rest[0] == b'/' => rest,
        _ => path,
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use measure::Phases;
    use server::exchange::{Body, Id};
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
            id: Id::made(0, 0),
            head: Arc::new(RequestHead::take(HeadView {
                bytes: head.as_bytes(),
                index: &index,
            })),
            rewritten,
            body,
            phases: Phases::default(),
            ends: Arc::new(ends),
            request_bytes: 0,
            route: 0,
            driver: 0,
        }
    }

    /// Runs `script` with the environs of `heads` as `e`, or as `all`.
    fn run(script_name: &str, heads: &[&str], script: &std::ffi::CStr) {
        run_with_ids(script_name, None, heads, script);
    }

    /// As `run`, where a header is configured for ids.
    fn run_with_ids(
        script_name: &str,
        header: Option<&str>,
        heads: &[&str],
        script: &std::ffi::CStr,
    ) {
        Python::initialize();
        Python::attach(|py| {
            let nothing = py.None().into_bound(py);
            let fixed = Fixed {
                errors: nothing.clone(),
                file_wrapper: nothing.clone(),
                multithread: true,
                multiprocess: false,
                script_name: script_name.into(),
                request_id_key: header.map(|name| names::common_key(py, name.as_bytes())),
            };
            let mut environs = Environs::new(py, fixed);
            let tools = Tools {
                input: &nothing,
                phases: &nothing,
            };
            let mut build = |head: &&str| {
                environs
                    .build(&exchange(head, Body::Empty), 5, &tools)
                    .unwrap()
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
    'wsgi.run_once': False, 'milepost.phases': None,
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
                "GET http://h/app/%zz HTTP/1.1\r\nHost: h\r\n\r\n",
            ],
            c"
assert [e['PATH_INFO'] for e in all] == ['/x', '', '/apple', '*', '/%zz'], [e['PATH_INFO'] for e in all]
assert {e['SCRIPT_NAME'] for e in all} == {'/app'} and all[4]['RAW_URI'] == 'http://h/app/%zz'
",
        );
    }
}
