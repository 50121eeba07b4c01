//! environ: the request as a dictionary (PEP 3333).
//!
//! Takes an exchange, gives a dict: a copy of a template that holds what does not change from request to
//! request, and in it what does. Templates and strings belong to one pool thread: nothing here is shared, so that
//! free-threaded interpreters have nothing to contend for. Must not run application code, and must not intern what a
//! client sent: where interned strings are immortal, each name would stay until the process ends.

use std::slice;
use std::sync::Arc;

use http::{BodyFraming, HeadView, Version};
use pyo3::ffi;
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyString};
use server::exchange::{Ends, Exchange, HandshakeFacts};

/// Templates kept: one for each local address, scheme and path prefix that clients used.
const TEMPLATES_LEN_MAX: usize = 16;
/// Ports kept as `str`, a power of two.
const PORTS_LEN: usize = 256;
/// Longest value that is kept for the next request.
const KEPT_BYTES_MAX: usize = 512;
/// Names learned from clients, for each thread, beside those known from the beginning.
const LEARNED_LEN_MAX: usize = 256;
/// Longest name that is learned.
const LEARNED_BYTES_MAX: usize = 64;
/// Places in the table of names: at most 3/4 are ever taken, a power of two.
const PLACES_LEN: usize = 512;
/// Places looked at before a name counts as unknown; a client that picks colliding names gains nothing.
const PROBES_LEN: usize = 8;
/// Methods that have a `str` of their own; another one is made each time.
const METHODS: [&str; 8] = [
    "GET", "HEAD", "POST", "PUT", "DELETE", "OPTIONS", "PATCH", "TRACE",
];

/// Builds environs on one pool thread.
pub(super) struct Environs<'py> {
    py: Python<'py>,
    /// environ of a `GET` over HTTP/1.1 without query and headers, and without what a template adds.
    base: Bound<'py, PyDict>,
    /// Bases that know the server's end of a connection.
    templates: Vec<(Arc<Ends>, Bound<'py, PyDict>)>,
    script_name: Vec<u8>,
    /// Key of the header that names a request's id, where one is configured.
    request_id_key: Option<Bound<'py, PyString>>,
    names: Names<'py>,
    methods: [Bound<'py, PyString>; METHODS.len()],
    ports: Vec<Option<Bound<'py, PyString>>>,
    peer: Option<Bound<'py, PyString>>,
    /// Exchanges so far, to know a repeated header from one of an earlier exchange.
    turn: u64,
    decoded: Vec<u8>,
}

impl<'py> Environs<'py> {
    /// `own` holds what every environ of the thread has, whatever the request; `script_name` is decoded.
    pub(super) fn new(
        own: &Bound<'py, PyDict>,
        script_name: &[u8],
        request_id_header: Option<&str>,
    ) -> PyResult<Self> {
        let py = own.py();
        let base = base(py, script_name)?;
        base.update(own.as_mapping())?;
        Ok(Self {
            py,
            base,
            templates: Vec::new(),
            script_name: script_name.to_owned(),
            request_id_key: request_id_header.map(|name| common_key(py, name)),
            names: Names::new(py),
            methods: METHODS.map(|method| PyString::intern(py, method)),
            ports: vec![None; PORTS_LEN],
            peer: None,
            turn: 0,
            decoded: Vec::new(),
        })
    }

    /// Has all templates give other objects, because an application keeps the old ones.
    pub(super) fn replace(
        &self,
        input: &Bound<'py, PyAny>,
        phases: &Bound<'py, PyAny>,
    ) -> PyResult<()> {
        let templates = self.templates.iter().map(|(_, template)| template);
        for dict in templates.chain([&self.base]) {
            dict.set_item(intern!(self.py, "wsgi.input"), input)?;
            dict.set_item(intern!(self.py, "milepost.phases"), phases)?;
        }
        Ok(())
    }

    /// Number of references to an object that all environs have: those of the templates and their base.
    pub(super) fn references_len(&self) -> usize {
        self.templates.len() + 1
    }

    /// The environ of `exchange`.
    pub(super) fn build(&mut self, exchange: &Exchange) -> PyResult<Bound<'py, PyDict>> {
        let py = self.py;
        let head = exchange.head();
        let ends = &exchange.ends;
        let environ = self.template(ends)?.copy()?;
        self.set_request_line(&environ, exchange)?;
        let port = &ends.client_port;
        // A client on a unix socket has no address.
        let host = match ends.client_host.as_str() {
            "unix:" => "",
            host => host,
        };
        let host = reuse(py, &mut self.peer, host.as_bytes());
        environ.set_item(intern!(py, "REMOTE_ADDR"), host)?;
        let kept = &mut self.ports[port.parse().unwrap_or(0) % PORTS_LEN];
        let port = reuse(py, kept, port.as_bytes());
        environ.set_item(intern!(py, "REMOTE_PORT"), port)?;
        if let Some(tls) = &ends.tls {
            set_handshake(&environ, &tls.handshake)?;
        }
        self.set_headers(&environ, head, ends)?;
        // The id also in the place of whatever the client sent in the header for it.
        let id = latin1(py, &exchange.request_id());
        if let Some(key) = &self.request_id_key {
            environ.set_item(key, &id)?;
        }
        environ.set_item(intern!(py, "milepost.request_id"), id)?;
        if let Some(trace) = exchange.trace() {
            let key = intern!(py, "HTTP_TRACEPARENT");
            environ.set_item(key, latin1(py, &trace.header()))?;
            let key = intern!(py, "HTTP_TRACESTATE");
            // Of another trace, or of one that is not believed.
            if !trace.has_parent() && environ.contains(key)? {
                environ.del_item(key)?;
            }
        }
        if head.index.body != BodyFraming::None {
            let bytes = exchange.body.bytes().to_string();
            let bytes = latin1(py, bytes.as_bytes());
            environ.set_item(intern!(py, "CONTENT_LENGTH"), bytes)?;
        }
        Ok(environ)
    }

    fn template(&mut self, ends: &Arc<Ends>) -> PyResult<&Bound<'py, PyDict>> {
        let is_same = |(known, _): &(Arc<Ends>, _)| {
            known.listener == ends.listener
                && known.local_port == ends.local_port
                && known.local_host == ends.local_host
                && known.scheme == ends.scheme
                && known.prefix == ends.prefix
        };
        let index = match self.templates.iter().position(is_same) {
            Some(index) => index,
            None => {
                // A client may choose among the addresses of this machine; it must not make us keep all.
                if self.templates.len() == TEMPLATES_LEN_MAX {
                    self.templates.remove(0);
                }
                let template = template(&self.base, ends, &self.script_name)?;
                self.templates.push((Arc::clone(ends), template));
                self.templates.len() - 1
            }
        };
        Ok(&self.templates[index].1)
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
            let method =
                known.map_or_else(|| latin1(py, method), |index| self.methods[index].clone());
            environ.set_item(intern!(py, "REQUEST_METHOD"), method)?;
        }
        let protocol = match head.index.version {
            Version::Http11 => None,
            Version::Http10 => Some(intern!(py, "HTTP/1.0")),
            Version::Http2 => Some(intern!(py, "HTTP/2")),
        };
        if let Some(protocol) = protocol {
            environ.set_item(intern!(py, "SERVER_PROTOCOL"), protocol)?;
        }
        let target = latin1(py, head.target());
        environ.set_item(intern!(py, "RAW_URI"), &target)?;
        environ.set_item(intern!(py, "REQUEST_URI"), &target)?;
        if let Some(query) = exchange.query().filter(|query| !query.is_empty()) {
            environ.set_item(intern!(py, "QUERY_STRING"), latin1(py, query))?;
        }
        let mut path = exchange.path();
        if path.contains(&b'%') {
            self.decoded.clear();
            // Each `%` begins an escape: another one is refused, and what a rule makes has none.
            http::target::decode(path, &mut self.decoded);
            path = &self.decoded;
        }
        let path = below(path, &self.script_name);
        // An origin-form target without query is its own path, unless it had to be decoded, cut or rewritten.
        let path = if path == head.target() {
            target
        } else {
            latin1(py, path)
        };
        environ.set_item(intern!(py, "PATH_INFO"), path)
    }

    fn set_headers(
        &mut self,
        environ: &Bound<'py, PyDict>,
        head: HeadView<'_>,
        ends: &Ends,
    ) -> PyResult<()> {
        let py = self.py;
        self.turn += 1;
        for (text, bytes) in head.headers() {
            let Some(name) = self.names.find(text) else {
                if ends.is_trusted || usage(&text.to_ascii_lowercase()) != Use::Forwarding {
                    set_unknown(environ, text, bytes)?;
                }
                continue;
            };
            match name.usage {
                Use::Hidden => continue,
                Use::Forwarding if !ends.is_trusted => continue,
                _ => {}
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
            let value = reuse(py, &mut name.last, bytes);
            environ.set_item(&name.key, value)?;
        }
        // RFC 9112 section 3.2.2: the authority of an absolute target stands above the Host field.
        if !head.target().starts_with(b"/")
            && let Some(authority) = head.authority()
        {
            environ.set_item(intern!(py, "HTTP_HOST"), latin1(py, authority))?;
        }
        if let Some(host) = &ends.host {
            environ.set_item(intern!(py, "HTTP_HOST"), latin1(py, host.as_bytes()))?;
        }
        Ok(())
    }
}

/// What the TLS handshake has agreed on, by the names of mod_ssl: a header cannot have them, because its key begins
/// with `HTTP_`.
fn set_handshake(environ: &Bound<'_, PyDict>, facts: &HandshakeFacts) -> PyResult<()> {
    let py = environ.py();
    environ.set_item(intern!(py, "HTTPS"), intern!(py, "on"))?;
    environ.set_item(intern!(py, "SSL_PROTOCOL"), facts.version)?;
    environ.set_item(intern!(py, "SSL_CIPHER"), facts.cipher)?;
    let resumed = match facts.is_resumed {
        true => intern!(py, "Resumed"),
        false => intern!(py, "Initial"),
    };
    environ.set_item(intern!(py, "SSL_SESSION_RESUMED"), resumed)?;
    if let Some(name) = &facts.server_name {
        environ.set_item(intern!(py, "SSL_TLS_SNI"), name)?;
    }
    let Some(client) = &facts.client_certificate else {
        return environ.set_item(intern!(py, "SSL_CLIENT_VERIFY"), intern!(py, "NONE"));
    };
    environ.set_item(intern!(py, "SSL_CLIENT_VERIFY"), intern!(py, "SUCCESS"))?;
    environ.set_item(intern!(py, "SSL_CLIENT_S_DN"), &client.subject)?;
    environ.set_item(intern!(py, "SSL_CLIENT_I_DN"), &client.issuer)?;
    environ.set_item(intern!(py, "SSL_CLIENT_M_SERIAL"), &client.serial)?;
    environ.set_item(intern!(py, "SSL_CLIENT_CERT"), &client.pem)
}

/// What the server's end of a connection adds to a base.
fn template<'py>(
    base: &Bound<'py, PyDict>,
    ends: &Ends,
    script_name: &[u8],
) -> PyResult<Bound<'py, PyDict>> {
    let py = base.py();
    let dict = base.copy()?;
    // A unix socket has neither name nor port, and PEP 3333 lets neither be empty.
    let (name, port) = match ends.local_port.as_str() {
        "" if ends.scheme == "https" => ("localhost", "443"),
        "" => ("localhost", "80"),
        port => (ends.local_host.as_str(), port),
    };
    dict.set_item(intern!(py, "SERVER_NAME"), name)?;
    dict.set_item(intern!(py, "SERVER_PORT"), port)?;
    dict.set_item(intern!(py, "wsgi.url_scheme"), ends.scheme)?;
    if !ends.prefix.is_empty() {
        let whole = [ends.prefix.as_bytes(), script_name].concat();
        dict.set_item(intern!(py, "SCRIPT_NAME"), latin1(py, &whole))?;
    }
    Ok(dict)
}

/// At least 22 keys, so that the dictionary has room for 18 headers before it must grow, and its copy too.
fn base<'py>(py: Python<'py>, script_name: &[u8]) -> PyResult<Bound<'py, PyDict>> {
    let base = PyDict::new(py);
    for (key, value) in [
        ("REQUEST_METHOD", "GET"),
        ("SERVER_PROTOCOL", "HTTP/1.1"),
        (
            "SERVER_SOFTWARE",
            concat!("milepost/", env!("CARGO_PKG_VERSION")),
        ),
    ] {
        base.set_item(PyString::intern(py, key), PyString::intern(py, value))?;
    }
    // What each request has, and each connection; in the place of these there is a value always.
    for key in [
        "PATH_INFO",
        "QUERY_STRING",
        "RAW_URI",
        "REQUEST_URI",
        "REMOTE_ADDR",
        "REMOTE_PORT",
        "SERVER_NAME",
        "SERVER_PORT",
        "wsgi.url_scheme",
        "milepost.request_id",
    ] {
        base.set_item(PyString::intern(py, key), intern!(py, ""))?;
    }
    base.set_item(intern!(py, "SCRIPT_NAME"), latin1(py, script_name))?;
    base.set_item(intern!(py, "wsgi.version"), (1, 0))?;
    base.set_item(intern!(py, "wsgi.input_terminated"), true)?;
    base.set_item(intern!(py, "wsgi.run_once"), false)?;
    Ok(base)
}

/// A `str` with one code point per byte (PEP 3333, "Unicode Issues").
///
/// Panics when Python has no memory.
fn latin1<'py>(py: Python<'py>, bytes: &[u8]) -> Bound<'py, PyString> {
    let bytes_len = bytes.len().cast_signed();
    // SAFETY: attached; pointer and length belong to one slice.
    let text =
        unsafe { ffi::PyUnicode_DecodeLatin1(bytes.as_ptr().cast(), bytes_len, std::ptr::null()) };
    // SAFETY: an owned reference or null, which panics.
    let text = unsafe { Bound::from_owned_ptr(py, text) };
    // SAFETY: decoding makes an exact `str`.
    unsafe { text.cast_into_unchecked() }
}

/// The bytes of a `str` whose code points all fit a byte; `None` for any other.
pub(super) fn latin1_bytes<'a>(text: &'a Bound<'_, PyString>) -> Option<&'a [u8]> {
    let object = text.as_ptr();
    // SAFETY: a live `str`. Before 3.12 a string of the old API is brought into its final form here.
    if unsafe { ffi::PyUnicode_READY(object) } != 0 {
        drop(PyErr::take(text.py()));
        return None;
    }
    // SAFETY: a live `str` that is ready.
    if unsafe { ffi::PyUnicode_KIND(object) } != ffi::PyUnicode_1BYTE_KIND {
        return None;
    }
    // SAFETY: a live `str` that is ready.
    let bytes = unsafe { ffi::PyUnicode_GET_LENGTH(object) };
    // SAFETY: its kind is one byte.
    let data = unsafe { ffi::PyUnicode_1BYTE_DATA(object) };
    // SAFETY: strings are immutable, and the borrow keeps this one alive.
    Some(unsafe { slice::from_raw_parts(data, bytes.cast_unsigned()) })
}

/// The very `str` of an earlier request when the bytes are the same; a new one else, which is kept for the next.
fn reuse<'py>(
    py: Python<'py>,
    kept: &mut Option<Bound<'py, PyString>>,
    bytes: &[u8],
) -> Bound<'py, PyString> {
    if let Some(text) = kept
        && latin1_bytes(text) == Some(bytes)
    {
        return text.clone();
    }
    let text = latin1(py, bytes);
    if bytes.len() <= KEPT_BYTES_MAX {
        *kept = Some(text.clone());
    }
    text
}

/// A header whose name is not kept: its key is made for this request.
fn set_unknown(environ: &Bound<'_, PyDict>, text: &[u8], bytes: &[u8]) -> PyResult<()> {
    if text.contains(&b'_') {
        return Ok(());
    }
    let key = latin1(environ.py(), &key_bytes(text));
    if environ.contains(&key)? {
        return join(environ, &key, b",", bytes);
    }
    environ.set_item(key, latin1(environ.py(), bytes))
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
    let before = before.and_then(latin1_bytes).unwrap_or_default();
    environ.set_item(
        key,
        latin1(environ.py(), &[before, separator, bytes].concat()),
    )
}

/// The path below the mount point; the whole path when it does not lie there.
fn below<'a>(path: &'a [u8], script_name: &[u8]) -> &'a [u8] {
    // Even to compare nothing would be a call into the C library: 1 % of a short request's time.
    if script_name.is_empty() {
        return path;
    }
    match path.strip_prefix(script_name) {
        Some(rest) if rest.is_empty() || rest[0] == b'/' => rest,
        _ => path,
    }
}

/// What a header becomes in environ.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Use {
    /// `HTTP_...`; repeated values are joined by a comma (RFC 9110 section 5.3).
    Plain,
    /// `HTTP_COOKIE`; repeated values are joined by a semicolon (RFC 9113 section 8.2.3).
    Cookie,
    /// Not shown under its own name.
    Hidden,
    /// As `Plain`, from trusted proxies alone: a client could make itself another one.
    Forwarding,
}

/// A header name that is known.
struct Name<'py> {
    /// In lower case.
    text: Box<[u8]>,
    /// As a client wrote it last: most write it as the one before did, and comparing is then one step.
    spelling: Box<[u8]>,
    /// Key in environ; interned when the name is a common one.
    key: Bound<'py, PyString>,
    /// How it is shown.
    usage: Use,
    /// The exchange that had it last, by its number on this thread.
    seen: u64,
    /// Its last value.
    last: Option<Bound<'py, PyString>>,
}

/// Names of request headers as keys of environ, and the last value of each as a ready `str`.
struct Names<'py> {
    py: Python<'py>,
    places: Vec<Option<Name<'py>>>,
    len: usize,
}

impl<'py> Names<'py> {
    /// Knows the names that are common.
    fn new(py: Python<'py>) -> Self {
        let mut names = Self {
            py,
            places: std::iter::repeat_with(|| None).take(PLACES_LEN).collect(),
            len: 0,
        };
        for text in COMMON {
            if let Some(name) = names.find(text.as_bytes()) {
                name.key = common_key(py, text);
            }
        }
        names
    }

    /// The name, learned when there is room; `None` when its key has to be made each time.
    fn find(&mut self, text: &[u8]) -> Option<&mut Name<'py>> {
        let is_free_or_its = |place: &usize| match &self.places[*place] {
            Some(name) => *name.spelling == *text || name.text.eq_ignore_ascii_case(text),
            None => true,
        };
        let start = hash(text) as usize;
        let mut probes = (0..PROBES_LEN).map(|step| (start + step) % PLACES_LEN);
        let index = probes.find(is_free_or_its)?;
        let place = &mut self.places[index];
        if place.is_none()
            && (self.len == COMMON.len() + LEARNED_LEN_MAX || text.len() > LEARNED_BYTES_MAX)
        {
            return None;
        }
        let name = place.get_or_insert_with(|| {
            self.len += 1;
            let lower = text.to_ascii_lowercase();
            Name {
                usage: usage(&lower),
                text: lower.into(),
                spelling: text.into(),
                key: latin1(self.py, &key_bytes(text)),
                seen: 0,
                last: None,
            }
        });
        if *name.spelling != *text {
            name.spelling.copy_from_slice(text);
        }
        Some(name)
    }
}

/// The key of a common header, interned: comparing it with a constant of the application is then one step.
fn common_key<'py>(py: Python<'py>, text: &str) -> Bound<'py, PyString> {
    PyString::intern(py, &String::from_utf8_lossy(&key_bytes(text.as_bytes())))
}

/// The key of a header in environ: `HTTP_ACCEPT`, and `CONTENT_TYPE` and `CONTENT_LENGTH` as they are.
fn key_bytes(text: &[u8]) -> Vec<u8> {
    let upper = text.iter().map(|byte| {
        if *byte == b'-' {
            b'_'
        } else {
            byte.to_ascii_uppercase()
        }
    });
    let bare =
        text.eq_ignore_ascii_case(b"content-type") || text.eq_ignore_ascii_case(b"content-length");
    let prefix: &[u8] = if bare { b"" } else { b"HTTP_" };
    prefix.iter().copied().chain(upper).collect()
}

/// Whether a header, in lower case, is believed of trusted proxies alone.
pub(crate) fn is_forwarding(text: &[u8]) -> bool {
    usage(text) == Use::Forwarding
}

fn usage(text: &[u8]) -> Use {
    match text {
        b"cookie" => Use::Cookie,
        // The body is complete and its length known: what environ says is the body, not its transfer.
        b"transfer-encoding" | b"content-length" => Use::Hidden,
        // As HTTP_PROXY it would steer programs that environ is handed to (CVE-2016-5385).
        b"proxy" => Use::Hidden,
        // `X_A` and `X-A` would become one key, so that a client could forge what a proxy sets (CVE-2015-0219).
        text if text.contains(&b'_') => Use::Hidden,
        b"forwarded" | b"x-real-ip" => Use::Forwarding,
        text if text.starts_with(b"x-forwarded-") => Use::Forwarding,
        _ => Use::Plain,
    }
}

/// Of all letters in eights, without regard to their case.
pub(crate) fn hash(text: &[u8]) -> u64 {
    const FOLD: u64 = 0x2020_2020_2020_2020;
    const ODD: u64 = 0x9e37_79b9_7f4a_7c15;
    let mix = |sum: u64, word: u64| (sum.rotate_left(23) ^ word).wrapping_mul(ODD);
    let (words, rest) = text.as_chunks::<8>();
    let sum = words.iter().fold(text.len() as u64, |sum, word| {
        mix(sum, u64::from_le_bytes(*word) | FOLD)
    });
    let last = rest
        .iter()
        .fold(0, |word, byte| (word << 8) | u64::from(byte | 0x20));
    mix(sum, last) >> 48
}

/// Names that browsers, proxies and tools are known to send.
#[rustfmt::skip]
const COMMON: [&str; 104] = [
    "host", "user-agent", "accept", "accept-encoding", "accept-language", "accept-charset", "connection", "cookie",
    "content-type", "content-length", "content-encoding", "content-language", "content-location",
    "content-disposition", "content-md5", "content-range", "transfer-encoding", "te", "trailer", "upgrade",
    "upgrade-insecure-requests", "keep-alive", "expect", "date", "via", "warning", "pragma", "cache-control",
    "authorization", "proxy", "proxy-authorization", "proxy-connection", "www-authenticate", "if-match",
    "if-none-match", "if-modified-since", "if-unmodified-since", "if-range", "range", "referer", "origin", "from",
    "max-forwards", "dnt", "sec-gpc", "sec-fetch-site", "sec-fetch-mode", "sec-fetch-user", "sec-fetch-dest",
    "sec-ch-ua", "sec-ch-ua-mobile", "sec-ch-ua-platform", "sec-ch-ua-arch", "sec-ch-ua-model",
    "sec-ch-prefers-color-scheme", "sec-purpose", "purpose", "priority", "save-data", "device-memory", "downlink",
    "ect", "rtt", "early-data", "access-control-request-method", "access-control-request-headers",
    "access-control-request-private-network", "forwarded", "x-forwarded-for", "x-forwarded-host",
    "x-forwarded-proto", "x-forwarded-port", "x-forwarded-server", "x-forwarded-prefix", "x-forwarded-ssl",
    "x-forwarded-scheme", "x-real-ip", "x-client-ip", "x-scheme", "x-request-id", "x-correlation-id",
    "x-request-start", "x-queue-start", "x-requested-with", "x-csrf-token", "x-csrftoken", "x-xsrf-token",
    "x-api-key", "x-http-method-override", "x-original-url", "x-amzn-trace-id", "x-amz-cf-id", "x-cloud-trace-context",
    "x-b3-traceid", "x-b3-spanid", "x-b3-sampled", "traceparent", "tracestate", "baggage", "cf-connecting-ip",
    "cf-ray", "cf-ipcountry", "cf-visitor", "true-client-ip",
];

#[cfg(test)]
mod tests;
