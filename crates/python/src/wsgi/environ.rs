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
    /// `milepost.worker`
    pub(crate) worker: Bound<'py, PyString>,
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

/// At least 22 keys, so that the dictionary has room for 18 headers before it must grow, and its copy too.
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
    dict.set_item(intern!(py, "milepost.worker"), &fixed.worker)?;
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
mod tests;
