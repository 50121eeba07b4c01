//! The scope of a request: what the client asked for, as a dictionary (ASGI 3, HTTP connection scope).
//!
//! Takes an exchange, gives a dict of its own: an application may change it, and what is in it. Names of headers, and
//! values that clients repeat, are kept as objects. Must not run application code.

use std::sync::Arc;

use http::{HeadView, Version};
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyDict, PyList, PyString, PyTuple};
use server::exchange::{Ends, Exchange, HandshakeFacts, TRACEPARENT, TRACESTATE};
use telemetry::TraceContext;

use crate::wsgi::{decoded_path, hash, is_forwarding};

/// Names of headers that are kept, at most 3/4 of the places.
const NAMES_LEN_MAX: usize = 384;
/// Places in the table of names, a power of two.
const PLACES_LEN: usize = 512;
/// Places that are looked at before a name counts as unknown.
const PROBES_LEN: usize = 8;
/// Longest name that is kept.
const NAME_BYTES_MAX: usize = 64;
/// Longest value that is kept for the next request.
const VALUE_BYTES_MAX: usize = 512;
/// Methods that have a `str` of their own.
const METHODS: [&str; 8] = [
    "GET", "HEAD", "POST", "PUT", "DELETE", "OPTIONS", "PATCH", "TRACE",
];

/// Builds the scopes of one loop.
pub(super) struct Scopes {
    /// Of a `GET` over HTTP/1.1 to the server's end that the last request came to, without what else differs from request
    /// to request.
    base: Py<PyDict>,
    asgi: Py<PyDict>,
    /// The application's own, of its lifespan; `None` where that is off.
    state: Option<Py<PyDict>>,
    /// The prefix of all paths of the application, decoded and as it is configured.
    script_name: String,
    raw_script_name: String,
    /// Name of the header with the request's id, where one is configured.
    request_id_name: Option<Py<PyBytes>>,
    /// The server's end that the last request came to.
    last_server: Option<Arc<Ends>>,
    last_client: Option<(String, Py<PyString>)>,
    methods: Vec<Py<PyString>>,
    names: HeaderNames,
    decoded: Vec<u8>,
}

impl Scopes {
    pub(super) fn new(
        py: Python<'_>,
        version: &str,
        spec: &str,
        script_name: &str,
        request_id_header: Option<&str>,
        state: Option<Py<PyDict>>,
    ) -> PyResult<Self> {
        let asgi = PyDict::new(py);
        asgi.set_item(intern!(py, "version"), version)?;
        asgi.set_item(intern!(py, "spec_version"), spec)?;
        let base = PyDict::new(py);
        base.set_item(intern!(py, "type"), intern!(py, "http"))?;
        for key in ["asgi", "http_version", "server", "client", "scheme"] {
            base.set_item(PyString::intern(py, key), py.None())?;
        }
        base.set_item(intern!(py, "http_version"), intern!(py, "1.1"))?;
        base.set_item(intern!(py, "method"), intern!(py, "GET"))?;
        for key in ["root_path", "path", "raw_path"] {
            base.set_item(PyString::intern(py, key), py.None())?;
        }
        base.set_item(intern!(py, "query_string"), PyBytes::new(py, b""))?;
        for key in ["headers", "extensions"] {
            base.set_item(PyString::intern(py, key), py.None())?;
        }
        Ok(Self {
            base: base.unbind(),
            asgi: asgi.unbind(),
            state,
            script_name: String::from_utf8_lossy(&decoded_path(script_name)).into_owned(),
            raw_script_name: script_name.to_owned(),
            request_id_name: request_id_header
                .map(|name| PyBytes::new(py, name.as_bytes()).unbind()),
            last_server: None,
            last_client: None,
            methods: METHODS
                .map(|method| PyString::intern(py, method).unbind())
                .into(),
            names: HeaderNames::new(),
            decoded: Vec::new(),
        })
    }

    /// The scope of `exchange`.
    pub(super) fn build<'py>(
        &mut self,
        py: Python<'py>,
        exchange: &Exchange,
        subprotocols: Option<&[&str]>,
    ) -> PyResult<Bound<'py, PyDict>> {
        let head = exchange.head();
        self.set_server(py, &exchange.ends)?;
        let scope = self.base.bind(py).copy()?;
        let asgi = self.asgi.bind(py).copy()?;
        if subprotocols.is_some() {
            asgi.set_item(intern!(py, "spec_version"), "2.5")?;
        }
        scope.set_item(intern!(py, "asgi"), asgi)?;
        if let Some(state) = &self.state {
            scope.set_item(intern!(py, "state"), state.bind(py).copy()?)?;
        }
        let extensions = match subprotocols {
            None => extensions(py, head)?,
            Some(_) => denial(py)?,
        };
        if let Some(tls) = &exchange.ends.tls {
            extensions.set_item(intern!(py, "tls"), tls_facts(py, &tls.handshake)?)?;
        }
        scope.set_item(intern!(py, "extensions"), extensions)?;
        match head.index.version {
            Version::Http11 => {}
            Version::Http10 => {
                scope.set_item(intern!(py, "http_version"), intern!(py, "1.0"))?;
            }
            Version::Http2 => scope.set_item(intern!(py, "http_version"), intern!(py, "2"))?,
        }
        self.set_client(&scope, &exchange.ends)?;
        self.set_target(&scope, exchange)?;
        scope.set_item(intern!(py, "headers"), self.headers(py, exchange)?)?;
        if let Some(subprotocols) = subprotocols {
            make_websocket(&scope, subprotocols, exchange.ends.scheme)?;
        }
        Ok(scope)
    }

    /// Puts the server's end into `base`, where it stays: most requests come to the same one as the last.
    fn set_server(&mut self, py: Python<'_>, ends: &Arc<Ends>) -> PyResult<()> {
        let is_same = |known: &Arc<Ends>| {
            Arc::ptr_eq(known, ends)
                || known.local_port == ends.local_port
                    && known.local_host == ends.local_host
                    && known.scheme == ends.scheme
                    && known.prefix == ends.prefix
        };
        if self.last_server.as_ref().is_some_and(is_same) {
            return Ok(());
        }
        // None until all of it is there.
        self.last_server = None;
        set_server_end(self.base.bind(py), ends, &self.script_name)?;
        self.last_server = Some(Arc::clone(ends));
        Ok(())
    }

    fn set_client(&mut self, scope: &Bound<'_, PyDict>, ends: &Ends) -> PyResult<()> {
        let py = scope.py();
        // A client on a unix socket has no address, and one that a proxy names may have no port.
        let host = ends.client_host.as_str();
        if host == "unix:" || host.is_empty() {
            return Ok(());
        }
        if self
            .last_client
            .as_ref()
            .is_none_or(|(last, _)| last != host)
        {
            self.last_client = Some((host.to_owned(), PyString::new(py, host).unbind()));
        }
        let (_, host) = self.last_client.as_ref().expect("just set");
        let port: u16 = ends.client_port.parse().unwrap_or(0);
        scope.set_item(intern!(py, "client"), (host, port))
    }

    /// Method, path and query; a rewritten target is the application's.
    fn set_target(&mut self, scope: &Bound<'_, PyDict>, exchange: &Exchange) -> PyResult<()> {
        let py = scope.py();
        let method = exchange.head().method();
        if method != b"GET" {
            match METHODS.iter().position(|known| known.as_bytes() == method) {
                Some(index) => scope.set_item(intern!(py, "method"), &self.methods[index])?,
                None => {
                    let text = String::from_utf8_lossy(method);
                    scope.set_item(intern!(py, "method"), text)?;
                }
            }
        }
        let raw = exchange.path();
        self.decoded.clear();
        if raw.contains(&b'%') {
            // Each `%` begins an escape: another one is refused, and what a rule makes has none.
            http::target::decode(raw, &mut self.decoded);
        } else {
            self.decoded.extend_from_slice(raw);
        }
        let path = String::from_utf8_lossy(&self.decoded);
        // What the path lacks of the one that the client asked for, which has `root_path` at its beginning: what a proxy
        // took away, and the application's own prefix where it is not there.
        let prefix = &exchange.ends.prefix;
        let (own, raw_own) = match is_below(&self.decoded, &self.script_name) {
            true => ("", ""),
            false => (&*self.script_name, &*self.raw_script_name),
        };
        if prefix.is_empty() && own.is_empty() {
            scope.set_item(intern!(py, "path"), path)?;
            scope.set_item(intern!(py, "raw_path"), PyBytes::new(py, raw))?;
        } else {
            let raw = [prefix.as_bytes(), raw_own.as_bytes(), raw].concat();
            scope.set_item(intern!(py, "path"), format!("{prefix}{own}{path}"))?;
            scope.set_item(intern!(py, "raw_path"), PyBytes::new(py, &raw))?;
        }
        if let Some(query) = exchange.query().filter(|query| !query.is_empty()) {
            scope.set_item(intern!(py, "query_string"), PyBytes::new(py, query))?;
        }
        Ok(())
    }

    fn headers<'py>(
        &mut self,
        py: Python<'py>,
        exchange: &Exchange,
    ) -> PyResult<Bound<'py, PyList>> {
        let (head, ends) = (exchange.head(), &exchange.ends);
        let list = PyList::empty(py);
        let trace = exchange.trace();
        let authority = authority(head, ends);
        if let Some(authority) = authority {
            list.append((PyBytes::new(py, b"host"), PyBytes::new(py, authority)))?;
        }
        for (name, value) in head.headers() {
            if authority.is_some() && name.eq_ignore_ascii_case(b"host") {
                continue;
            }
            if trace.is_some_and(|trace| is_replaced(trace, name)) {
                continue;
            }
            let pair = self.names.pair(py, name, value, ends.is_trusted);
            if let Some(pair) = pair?
                && !self.is_request_id(py, &pair)
            {
                list.append(pair)?;
            }
        }
        if let Some(name) = &self.request_id_name {
            // Whatever the client sent in it.
            list.append((name, PyBytes::new(py, &exchange.request_id())))?;
        }
        if let Some(trace) = trace {
            let value = PyBytes::new(py, &trace.header());
            list.append((PyBytes::new(py, TRACEPARENT), value))?;
        }
        Ok(list)
    }

    fn is_request_id(&self, py: Python<'_>, pair: &Bound<'_, PyTuple>) -> bool {
        let Some(id_name) = &self.request_id_name else {
            return false;
        };
        let name = pair.get_item(0).ok();
        let name = name
            .as_ref()
            .and_then(|name| name.cast::<PyBytes>().ok())
            .map(|name| name.as_bytes());
        name == Some(id_name.as_bytes(py))
    }
}

/// Whether a field of the client gives way to the place of the request in its trace.
fn is_replaced(trace: &TraceContext, name: &[u8]) -> bool {
    name.eq_ignore_ascii_case(TRACEPARENT)
        || (!trace.has_parent() && name.eq_ignore_ascii_case(TRACESTATE))
}

fn extensions<'py>(py: Python<'py>, head: HeadView<'_>) -> PyResult<Bound<'py, PyDict>> {
    let extensions = PyDict::new(py);
    extensions.set_item(intern!(py, "http.response.pathsend"), PyDict::new(py))?;
    extensions.set_item(intern!(py, "http.response.zerocopysend"), PyDict::new(py))?;
    if head.takes_trailers() {
        extensions.set_item(intern!(py, "http.response.trailers"), PyDict::new(py))?;
    }
    if head.index.version == Version::Http2 {
        extensions.set_item(intern!(py, "http.response.early_hint"), PyDict::new(py))?;
    }
    Ok(extensions)
}

/// The extension for TLS of the ASGI specification. The server's certificate is not among it.
fn tls_facts<'py>(py: Python<'py>, facts: &HandshakeFacts) -> PyResult<Bound<'py, PyDict>> {
    let known = |number: u16| (number != 0).then_some(number);
    let client = facts.client_certificate.as_deref();
    let chain = client.map(|client| client.pem.as_str());
    let tls = PyDict::new(py);
    tls.set_item(intern!(py, "server_cert"), py.None())?;
    tls.set_item(intern!(py, "client_cert_chain"), PyList::new(py, chain)?)?;
    tls.set_item(
        intern!(py, "client_cert_name"),
        client.map(|client| &client.subject),
    )?;
    tls.set_item(intern!(py, "client_cert_error"), py.None())?;
    tls.set_item(intern!(py, "tls_version"), known(facts.version_number))?;
    tls.set_item(intern!(py, "cipher_suite"), known(facts.cipher_number))?;
    Ok(tls)
}

fn denial(py: Python<'_>) -> PyResult<Bound<'_, PyDict>> {
    let extensions = PyDict::new(py);
    extensions.set_item(intern!(py, "websocket.http.response"), PyDict::new(py))?;
    Ok(extensions)
}

/// Makes the scope of a WebSocket connection of that of an HTTP request.
fn make_websocket(scope: &Bound<'_, PyDict>, subprotocols: &[&str], scheme: &str) -> PyResult<()> {
    let py = scope.py();
    scope.set_item(intern!(py, "type"), intern!(py, "websocket"))?;
    scope.set_item(
        intern!(py, "scheme"),
        match scheme {
            "https" => intern!(py, "wss"),
            _ => intern!(py, "ws"),
        },
    )?;
    scope.del_item(intern!(py, "method"))?;
    scope.set_item(intern!(py, "subprotocols"), PyList::new(py, subprotocols)?)
}

fn set_server_end(base: &Bound<'_, PyDict>, ends: &Ends, script_name: &str) -> PyResult<()> {
    let py = base.py();
    let host = ends.local_host.as_str();
    match ends.local_port.parse::<u16>() {
        Ok(port) => base.set_item(intern!(py, "server"), (host, port))?,
        // A unix socket: its path.
        Err(_) => base.set_item(intern!(py, "server"), (host, py.None()))?,
    }
    base.set_item(intern!(py, "scheme"), PyString::intern(py, ends.scheme))?;
    let root_path = format!("{}{script_name}", ends.prefix);
    base.set_item(intern!(py, "root_path"), root_path)
}

/// The host that stands above the field of the head: the authority of an absolute target (RFC 9112 section 3.2.2), or
/// what a trusted proxy says.
fn authority<'a>(head: HeadView<'a>, ends: &'a Ends) -> Option<&'a [u8]> {
    if let Some(host) = &ends.host {
        return Some(host.as_bytes());
    }
    match head.target().starts_with(b"/") {
        true => None,
        false => head.authority(),
    }
}

/// Whether a path has this prefix at its beginning.
fn is_below(path: &[u8], prefix: &str) -> bool {
    // Most servers have none. An empty string of Rust has the address 1, and glibc's memcmp of no bytes takes 80 ns for an
    // address that is not mapped.
    prefix.is_empty()
        || (path.strip_prefix(prefix.as_bytes()))
            .is_some_and(|rest| rest.is_empty() || rest[0] == b'/')
}

/// A name that a client has sent.
struct HeaderName {
    /// As it was written.
    spelling: Box<[u8]>,
    /// In lower case.
    name: Py<PyBytes>,
    is_forwarding: bool,
    /// The last pair, where its value is short.
    last: Option<(Vec<u8>, Py<PyTuple>)>,
}

/// Names of request headers as objects, and the last field of each.
struct HeaderNames {
    places: Vec<Option<HeaderName>>,
    len: usize,
}

impl HeaderNames {
    fn new() -> Self {
        Self {
            places: std::iter::repeat_with(|| None).take(PLACES_LEN).collect(),
            len: 0,
        }
    }

    /// The field; `None` for one that only trusted proxies may send.
    fn pair<'py>(
        &mut self,
        py: Python<'py>,
        name: &[u8],
        value: &[u8],
        is_trusted: bool,
    ) -> PyResult<Option<Bound<'py, PyTuple>>> {
        let Some(known) = self.find(py, name) else {
            let lower = name.to_ascii_lowercase();
            if is_forwarding(&lower) && !is_trusted {
                return Ok(None);
            }
            let pair = (PyBytes::new(py, &lower), PyBytes::new(py, value));
            return pair.into_pyobject(py).map(Some);
        };
        if known.is_forwarding && !is_trusted {
            return Ok(None);
        }
        if let Some((last, pair)) = &known.last
            && last == value
        {
            return Ok(Some(pair.bind(py).clone()));
        }
        let pair = (&known.name, PyBytes::new(py, value)).into_pyobject(py)?;
        if value.len() <= VALUE_BYTES_MAX {
            let (last, kept) = known
                .last
                .get_or_insert_with(|| (Vec::new(), pair.clone().unbind()));
            last.clear();
            last.extend_from_slice(value);
            *kept = pair.clone().unbind();
        }
        Ok(Some(pair))
    }

    /// The name, kept where there is room.
    fn find(&mut self, py: Python<'_>, name: &[u8]) -> Option<&mut HeaderName> {
        let is_free_or_its = |place: &usize| match &self.places[*place] {
            Some(known) => *known.spelling == *name,
            None => true,
        };
        let start = hash(name) as usize;
        let mut probes = (0..PROBES_LEN).map(|step| (start + step) % PLACES_LEN);
        let index = probes.find(is_free_or_its)?;
        let is_new = self.places[index].is_none();
        if is_new && (self.len >= NAMES_LEN_MAX || name.len() > NAME_BYTES_MAX) {
            return None;
        }
        self.len += usize::from(is_new);
        Some(self.places[index].get_or_insert_with(|| {
            let lower = name.to_ascii_lowercase();
            HeaderName {
                spelling: name.into(),
                is_forwarding: is_forwarding(&lower),
                name: PyBytes::new(py, &lower).unbind(),
                last: None,
            }
        }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_prefix_ends_at_a_slash() {
        let check = |path: &str, prefix: &str, expect| {
            assert_eq!(is_below(path.as_bytes(), prefix), expect, "{path} {prefix}");
        };
        check("/a", "", true);
        check("/shop/a", "/shop", true);
        check("/shop", "/shop", true);
        check("/shopping", "/shop", false);
        check("/a", "/shop", false);
    }

    #[test]
    fn names_are_kept_up_to_a_bound_and_all_are_given() {
        Python::initialize();
        Python::attach(|py| {
            let mut names = HeaderNames::new();
            for number in 0..2000 {
                let name = format!("X-Name-{number}");
                let pair = names
                    .pair(py, name.as_bytes(), b"1", false)
                    .unwrap()
                    .unwrap();
                let (found, value): (Vec<u8>, Vec<u8>) = pair.extract().unwrap();
                assert_eq!(found, name.to_ascii_lowercase().as_bytes());
                assert_eq!(value, b"1");
            }
            assert!(names.len <= NAMES_LEN_MAX);
            let forwarded = b"X-Forwarded-For";
            assert!(names.pair(py, forwarded, b"1", false).unwrap().is_none());
            assert!(names.pair(py, forwarded, b"1", true).unwrap().is_some());
        });
    }
}
