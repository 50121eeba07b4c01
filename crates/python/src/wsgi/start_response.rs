//! `start_response` and `write`: the application's side of one exchange, and the head that it names.
//!
//! Takes status and headers from the application, checks them (PEP 3333) and keeps them as finished lines
//! until the first byte of the body opens the response. Owns the response writer while the application runs, and
//! uses it only on the worker that does.
//!
//! ```text
//! IDLE ──begin─► SILENT ──start_response──► NAMED ──first byte of the body──► OPEN ──end──► IDLE
//!                                            │  ▲ start_response(exc_info)     │ start_response(exc_info)
//!                                            └──┘ replaces                     └─► raises that exception
//! ```

use std::sync::{Mutex, PoisonError};
use std::thread::{self, ThreadId};

use config::typed::Rate;
use http::{FieldLines, InvalidField};
use pyo3::exceptions::{
    PyAssertionError, PyConnectionResetError, PyRuntimeError, PyTypeError, PyValueError,
};
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyList, PyString, PyTuple};
use server::fork;
use server::response::{Amount, Declared, ResponseWriter, Taken};

use super::environ::latin1_bytes;
use super::{response, type_name};

/// Where an exchange is in its response.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    Idle,
    Silent,
    Named,
    Open,
}

/// State behind `start_response` and `write`, one for each pool thread.
#[pyclass(module = "milepost._milepost", name = "Call")]
pub(super) struct Call {
    stage: Stage,
    /// In a lock that nobody waits for: PyO3 wants to share the object between threads.
    writer: Mutex<Option<ResponseWriter>>,
    /// The worker's.
    thread: ThreadId,
    head: Head,
    /// No body is wanted; only what it says about the head.
    pub(super) is_head: bool,
    /// What was unusual about the body: it was too long, or the client did not want all of it.
    pub(super) taken: Taken,
    /// Where parts of a body are joined.
    pub(super) scratch: Vec<u8>,
    pub(super) write: Option<Py<PyAny>>,
}

/// `start_response` of one pool thread with what belongs to it; used again and again as long as no
/// application keeps it.
pub(super) struct Caller<'py> {
    pub(super) start_response: Bound<'py, PyAny>,
    pub(super) call: Bound<'py, Call>,
}

impl<'py> Caller<'py> {
    /// For the pool thread that calls this.
    pub(super) fn new(py: Python<'py>) -> PyResult<Self> {
        let call = Bound::new(py, Call::idle())?;
        let write = call.getattr(intern!(py, "write"))?;
        call.borrow_mut().write = Some(write.unbind());
        Ok(Self {
            start_response: call.getattr(intern!(py, "start_response"))?,
            call,
        })
    }

    /// Breaks the ring between the call and its `write`, which nothing else would: the collector does not look inside.
    pub(super) fn discard(self) {
        if let Ok(mut call) = self.call.try_borrow_mut() {
            call.write = None;
        }
    }

    /// Whether nobody else holds any of it: ours and that of `start_response` and `write` are all.
    pub(super) fn is_ours_alone(&self) -> bool {
        let is_alone = |write: &Py<PyAny>| write.get_refcnt(self.call.py()) == 1;
        let write_is_ours = self.call.borrow().write.as_ref().is_some_and(is_alone);
        write_is_ours && self.start_response.get_refcnt() == 1 && self.call.get_refcnt() == 3
    }
}

#[pymethods]
impl Call {
    /// Begin the reply (PEP 3333); gives write().
    #[pyo3(signature = (status, headers=None, exc_info=None, *, response_headers=None))]
    fn start_response(
        &mut self,
        status: &Bound<'_, PyAny>,
        headers: Option<&Bound<'_, PyAny>>,
        exc_info: Option<&Bound<'_, PyAny>>,
        response_headers: Option<&Bound<'_, PyAny>>,
    ) -> PyResult<Py<PyAny>> {
        let exc_info = exc_info.map(triple).transpose()?;
        match (self.stage, exc_info) {
            (Stage::Silent, _) | (Stage::Named, Some(_)) => {}
            (Stage::Idle, _) => return Err(over()),
            (Stage::Open, Some(exc_info)) => return Err(raised(exc_info)?),
            (Stage::Named | Stage::Open, None) => {
                return Err(PyAssertionError::new_err(
                    "start_response() was called again without exc_info",
                ));
            }
        }
        // A start that fails leaves no half of a head behind: back to SILENT first, so that an error inside `read`
        // leaves a stage from which the application may start once more.
        self.stage = Stage::Silent;
        self.head.read(status, headers.or(response_headers))?;
        self.stage = Stage::Named;
        let write = self.write.as_ref();
        write
            .map(|write| write.clone_ref(status.py()))
            .ok_or_else(over)
    }

    /// Tell the client early which header fields the response will have: 103 Early Hints (RFC 8297).
    fn early_hints(&mut self, headers: &Bound<'_, PyAny>) -> PyResult<()> {
        let mut head = Head::default();
        head.read_fields(Some(headers))?;
        if self.thread != thread::current().id() || self.stage == Stage::Idle {
            return Err(over());
        }
        if let Some(writer) = self.writer() {
            writer.early_hints(head.lines);
        }
        Ok(())
    }

    /// Send bytes of the body.
    fn write(&mut self, data: &Bound<'_, PyAny>) -> PyResult<()> {
        let Ok(data) = data.cast::<PyBytes>() else {
            let cause = format!("write() takes bytes, not {}", type_name(data));
            return Err(PyTypeError::new_err(cause));
        };
        if self.stage == Stage::Idle {
            return Err(over());
        }
        // The head leaves with the first bytes.
        if data.as_bytes().is_empty() {
            return Ok(());
        }
        match response::give(self, data, Amount::Piece)? {
            Taken::All | Taken::Overrun => Ok(()),
            Taken::Gone => Err(PyConnectionResetError::new_err("the client is gone")),
        }
    }
}

impl Call {
    fn idle() -> Self {
        Self {
            stage: Stage::Idle,
            writer: Mutex::new(None),
            thread: thread::current().id(),
            head: Head::default(),
            is_head: false,
            taken: Taken::All,
            scratch: Vec::new(),
            write: None,
        }
    }

    /// Begins an exchange, with the way to answer it.
    pub(super) fn begin(&mut self, writer: ResponseWriter, is_head: bool) {
        assert!(
            self.stage == Stage::Idle,
            "an exchange begins inside another"
        );
        self.stage = Stage::Silent;
        self.is_head = is_head;
        self.taken = Taken::All;
        let before = self.writer().replace(writer);
        assert!(before.is_none(), "a worker has two response writers");
    }

    /// Ends the exchange: what the application keeps of it is of no more use. Gives the writer back.
    pub(super) fn end(&mut self) -> ResponseWriter {
        // From here on a kept `start_response` or `write` raises: the writer belongs to the next exchange.
        self.stage = Stage::Idle;
        let writer = self.writer().take();
        writer.expect("the exchange was begun with one, which nothing else takes")
    }

    fn writer(&mut self) -> &mut Option<ResponseWriter> {
        self.writer
            .get_mut()
            .unwrap_or_else(PoisonError::into_inner)
    }

    /// The response has been opened: its head cannot be changed.
    pub(super) fn is_open(&self) -> bool {
        self.stage == Stage::Open
    }

    /// Whether nobody has said yet how long the body is, and it can still be said.
    pub(super) fn is_length_open(&self) -> bool {
        !self.is_open() && self.head.declared.content_length.is_none()
    }

    /// How long the application says that the body is, before any of it was given.
    pub(super) fn declared_length(&self) -> Option<u64> {
        let declared = self.head.declared.content_length;
        declared.filter(|bytes| *bytes > 0 && !self.is_open())
    }

    /// Declares a length that the application left out.
    pub(super) fn add_content_length(&mut self, bytes: u64) {
        let has_body = self.head.code != 204 && self.head.code != 304;
        if self.stage == Stage::Named && self.is_length_open() && has_body {
            self.head.lines.push_decimal(b"Content-Length", bytes);
            self.head.declared.content_length = Some(bytes);
        }
    }

    /// Sends by what `give` does with the writer, which has the head by then: the response is open afterwards.
    pub(super) fn send(
        &mut self,
        give: impl FnOnce(&mut ResponseWriter) -> Taken,
    ) -> PyResult<Taken> {
        if fork::is_child() {
            return Err(PyRuntimeError::new_err(
                "this process was forked in the middle of a request: only the one that took the request answers it",
            ));
        }
        // Another thread of the application may call write() too; the sink's order of bytes is that of one thread.
        let is_ours = self.thread == thread::current().id();
        let writer = self
            .writer
            .get_mut()
            .unwrap_or_else(PoisonError::into_inner);
        let Some(writer) = writer.as_mut().filter(|_| is_ours) else {
            return Err(PyRuntimeError::new_err(
                "the response belongs to the thread that calls the application",
            ));
        };
        match self.stage {
            Stage::Open => {}
            Stage::Named => {
                let head = &mut self.head;
                writer.begin(head.code, &head.reason, &mut head.lines, head.declared);
            }
            Stage::Silent | Stage::Idle => {
                return Err(PyAssertionError::new_err(
                    "the application gave a body before start_response()",
                ));
            }
        }
        let taken = give(writer);
        // Behind `give`, which may detach: whoever calls start_response() meanwhile finds this object borrowed.
        self.stage = Stage::Open;
        if taken != Taken::All {
            self.taken = taken;
        }
        Ok(taken)
    }
}

/// What `sys.exc_info()` gives, whether or not its exception is to be raised (PEP 3333).
fn triple<'a, 'py>(exc_info: &'a Bound<'py, PyAny>) -> PyResult<&'a Bound<'py, PyTuple>> {
    let triple = exc_info.cast::<PyTuple>().ok();
    triple.filter(|triple| triple.len() == 3).ok_or_else(|| {
        let kind = type_name(exc_info);
        PyTypeError::new_err(format!(
            "exc_info must be a (type, value, traceback) tuple, not {kind}"
        ))
    })
}

/// The exception in an `exc_info` triple.
fn raised(triple: &Bound<'_, PyTuple>) -> PyResult<PyErr> {
    let (value, trace) = (triple.get_item(1)?, triple.get_item(2)?);
    if value.is_none() {
        return Ok(PyErr::from_value(triple.get_item(0)?));
    }
    if !trace.is_none() {
        value.setattr("__traceback__", trace)?;
    }
    Ok(PyErr::from_value(value))
}

fn over() -> PyErr {
    PyRuntimeError::new_err("the exchange that this start_response() belongs to is over")
}

/// A rule that the application broke.
pub(crate) type Broken = &'static str;

const STATUS_FORM: Broken = "status must be three digits, a space and a reason, like '200 OK'";
const STATUS_INTERIM: Broken = "a 1xx status is no reply";
const STATUS_TEXT: Broken = "status must not contain control characters";
const NAME: Broken = "header name must be a token of RFC 9110 section 5.6.2";
const VALUE: Broken = "header value must not contain control characters";
const HOP_BY_HOP: Broken = "hop-by-hop headers belong to the server (PEP 3333)";
const LENGTH: Broken = "Content-Length must be a decimal number";
const LENGTH_TWICE: Broken = "Content-Length is given twice";
const RATE: Broken = "X-Accel-Limit-Rate must be a decimal number of bytes a second, or off";

/// Status and headers as the application says them, with what the server has to know about.
#[derive(Default)]
struct Head {
    code: u16,
    reason: Vec<u8>,
    lines: FieldLines,
    declared: Declared,
}

impl Head {
    /// Begins anew.
    fn read(
        &mut self,
        status: &Bound<'_, PyAny>,
        headers: Option<&Bound<'_, PyAny>>,
    ) -> PyResult<()> {
        self.lines.clear();
        self.declared = Declared::default();
        self.set_status(latin1(status, "status")?)
            .map_err(|broken| refused(broken, status))?;
        self.read_fields(headers)
    }

    fn read_fields(&mut self, headers: Option<&Bound<'_, PyAny>>) -> PyResult<()> {
        // PEP 3333: a list and nothing else, because middleware appends to it.
        let Some(headers) = headers.and_then(|headers| headers.cast::<PyList>().ok()) else {
            let kind = headers.map_or_else(|| "NoneType".to_owned(), type_name);
            return Err(PyTypeError::new_err(format!(
                "headers must be a list of tuples, not {kind}"
            )));
        };
        for header in headers.iter() {
            let pair = header.cast::<PyTuple>().ok().filter(|pair| pair.len() == 2);
            let Some(pair) = pair else {
                return Err(PyTypeError::new_err(format!(
                    "a header must be a (name, value) tuple, not {header:?}"
                )));
            };
            let (name, value) = (pair.get_item(0)?, pair.get_item(1)?);
            let name = latin1(&name, "header name")?;
            self.add(name, latin1(&value, "header value")?)
                .map_err(|broken| refused(broken, &header))?;
        }
        Ok(())
    }

    /// Takes `NNN reason`; the space and the reason may be absent (RFC 9112 section 4 allows an empty reason).
    fn set_status(&mut self, text: &[u8]) -> Result<(), Broken> {
        let [a @ b'0'..=b'9', b @ b'0'..=b'9', c @ b'0'..=b'9', rest @ ..] = text else {
            return Err(STATUS_FORM);
        };
        let code = u16::from(a - b'0') * 100 + u16::from(b - b'0') * 10 + u16::from(c - b'0');
        if code < 100 || !(rest.is_empty() || rest[0] == b' ') {
            return Err(STATUS_FORM);
        }
        // RFC 9110 section 15.2: the client would go on waiting for the final reply.
        if code < 200 {
            return Err(STATUS_INTERIM);
        }
        if !http::is_field_value(rest) {
            return Err(STATUS_TEXT);
        }
        self.code = code;
        self.reason.clear();
        self.reason
            .extend_from_slice(rest.get(1..).unwrap_or_default());
        Ok(())
    }

    /// Appends one header line; one that is meant for the server alone leaves none.
    fn add(&mut self, name: &[u8], value: &[u8]) -> Result<(), Broken> {
        let is = |known: &[u8]| name.eq_ignore_ascii_case(known);
        match name.len() {
            4 if is(b"date") => self.declared.date = true,
            6 if is(b"server") => self.declared.server = true,
            14 if is(b"content-length") => {
                let bytes = decimal(value).ok_or(LENGTH)?;
                // RFC 9110 section 8.6: a 204 has none, and two leave the client to guess.
                if self.code == 204 {
                    return Ok(());
                }
                if self.declared.content_length.replace(bytes).is_some() {
                    return Err(LENGTH_TWICE);
                }
            }
            18 if is(b"x-accel-limit-rate") => {
                self.declared.rate = Some(rate(value)?);
                return Ok(());
            }
            _ if is_hop_by_hop(name) => return Err(HOP_BY_HOP),
            _ => {}
        }
        let pushed = self.lines.try_push(name, value);
        pushed.map_err(|invalid| match invalid {
            InvalidField::Name => NAME,
            InvalidField::Value => VALUE,
        })
    }
}

pub(crate) fn is_hop_by_hop(name: &[u8]) -> bool {
    let is = |known: &[u8]| name.eq_ignore_ascii_case(known);
    match name.len() {
        2 => is(b"te"),
        7 => is(b"trailer") || is(b"upgrade"),
        8 => is(b"trailers"),
        10 => is(b"connection") || is(b"keep-alive"),
        16 => is(b"proxy-connection"),
        17 => is(b"transfer-encoding"),
        18 => is(b"proxy-authenticate"),
        19 => is(b"proxy-authorization"),
        _ => false,
    }
}

/// Bytes a second that this response may have, as nginx has it: 0 and `off` are no limit.
pub(crate) fn rate(value: &[u8]) -> Result<Rate, Broken> {
    if !http::is_field_value(value) {
        return Err(VALUE);
    }
    match decimal(value) {
        Some(0) => Ok(Rate::Unlimited),
        Some(rate) => Ok(Rate::BytesPerSec(rate)),
        None if value.trim_ascii().eq_ignore_ascii_case(b"off") => Ok(Rate::Unlimited),
        None => Err(RATE),
    }
}

pub(crate) fn decimal(value: &[u8]) -> Option<u64> {
    let digits = value.trim_ascii();
    let is_decimal = (1..=19).contains(&digits.len()) && digits.iter().all(u8::is_ascii_digit);
    let add = |sum, digit: &u8| sum * 10 + u64::from(digit - b'0');
    is_decimal.then(|| digits.iter().fold(0, add))
}

/// The bytes of a `str`; `what` says what it is for.
fn latin1<'a>(object: &'a Bound<'_, PyAny>, what: &str) -> PyResult<&'a [u8]> {
    let Ok(text) = object.cast::<PyString>() else {
        let kind = type_name(object);
        return Err(PyTypeError::new_err(format!(
            "{what} must be str, not {kind}: {object:?}"
        )));
    };
    latin1_bytes(text).ok_or_else(|| {
        PyValueError::new_err(format!("status and headers must be latin-1: {text:?}"))
    })
}

fn refused(broken: Broken, what: &Bound<'_, PyAny>) -> PyErr {
    PyValueError::new_err(format!("{broken}: {what:?}"))
}

#[cfg(test)]
mod tests;
