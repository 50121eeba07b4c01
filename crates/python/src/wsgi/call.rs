//! The application's side of one exchange: `start_response` and `write`.
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

use std::sync::Mutex;
use std::thread::{self, ThreadId};

use pyo3::exceptions::{
    PyAssertionError, PyConnectionResetError, PyRuntimeError, PyTypeError, PyValueError,
};
use pyo3::ffi;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyList, PyString, PyTuple};
use server::config::meant::Rate;
use server::response::{Declared, Piece, ResponseWriter, Taken};
use wire::FieldLines;

use super::lines::{self, Meaning};
use crate::kept::ObjectPiece;
use crate::{fork, raw};

/// Where an exchange is in its reply.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    Idle,
    Silent,
    Named,
    Open,
}

/// What became of bytes that were given to the response writer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Sent {
    /// Go on.
    On,
    /// The client is gone.
    Gone,
}

/// What joined bytes are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Joined {
    /// The whole body.
    Whole,
    /// One of several parts.
    Part,
}

/// What was unusual about a body.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum End {
    /// Nothing.
    Even,
    /// It was longer than its declared length.
    Overrun,
    /// The client did not want all of it.
    Gone,
}

/// State behind `start_response` and `write`, one for each pool thread.
#[pyclass(module = "milepost._milepost", name = "Call")]
pub(crate) struct Call {
    stage: Stage,
    /// In a lock that nobody waits for: PyO3 wants to share the object between threads.
    answering: Mutex<Option<Answering>>,
    code: u16,
    reason: Vec<u8>,
    lines: FieldLines,
    declared: Declared,
    end: End,
    write: Option<Py<PyAny>>,
}

/// The writer of an exchange that the application answers, and the worker that runs it.
struct Answering {
    writer: ResponseWriter,
    thread: ThreadId,
}

/// `start_response` of one pool thread with what belongs to it; used again and again as long as no
/// application keeps it.
pub(crate) struct Caller<'py> {
    pub(crate) start_response: Bound<'py, PyAny>,
    pub(crate) call: Bound<'py, Call>,
}

static START_RESPONSE: raw::Method = raw::Method::new(
    c"start_response",
    c"start_response(status, headers, exc_info=None, /)\n--\n\nBegin the reply (PEP 3333); gives write().",
    start_response,
);

static WRITE: raw::Method = raw::Method::new(
    c"write",
    c"write(data, /)\n--\n\nSend bytes of the body.",
    write,
);

impl<'py> Caller<'py> {
    pub(crate) fn new(py: Python<'py>) -> PyResult<Self> {
        let call = Bound::new(py, Call::idle())?;
        let start_response = START_RESPONSE.bind(call.as_any())?;
        let write = WRITE.bind(call.as_any())?;
        call.borrow_mut().write = Some(write.unbind());
        Ok(Self {
            start_response,
            call,
        })
    }

    /// Whether nobody else holds any of it: ours and that of `start_response` and `write` are all.
    pub(crate) fn is_ours_alone(&self) -> bool {
        let write_is_ours = || match &self.call.borrow().write {
            Some(write) => write.get_refcnt(self.call.py()) == 1,
            None => false,
        };
        self.start_response.get_refcnt() == 1 && self.call.get_refcnt() == 3 && write_is_ours()
    }
}

impl Call {
    fn idle() -> Self {
        Self {
            stage: Stage::Idle,
            answering: Mutex::new(None),
            code: 0,
            reason: Vec::new(),
            lines: FieldLines::with_capacity(1024),
            declared: Declared::default(),
            end: End::Even,
            write: None,
        }
    }

    /// Begins an exchange, with the way to answer it.
    pub(crate) fn begin(&mut self, writer: ResponseWriter) {
        self.stage = Stage::Silent;
        self.end = End::Even;
        *self.answering() = Some(Answering {
            writer,
            thread: thread::current().id(),
        });
    }

    /// Ends the exchange: what the application keeps of it is of no more use. Gives the writer back.
    pub(crate) fn end(&mut self) -> Option<ResponseWriter> {
        self.stage = Stage::Idle;
        self.answering().take().map(|answering| answering.writer)
    }

    fn answering(&mut self) -> &mut Option<Answering> {
        self.answering
            .get_mut()
            .unwrap_or_else(std::sync::PoisonError::into_inner)
    }

    /// Breaks the ring between this and `write`, for one that an application keeps.
    pub(crate) fn retire(&mut self) -> Option<Py<PyAny>> {
        self.write.take()
    }

    /// The reply has been opened: its head cannot be changed.
    pub(crate) fn is_open(&self) -> bool {
        self.stage == Stage::Open
    }

    /// The length that the application declared.
    pub(crate) fn content_length(&self) -> Option<u64> {
        self.declared.content_length
    }

    /// Declares a length that the application left out.
    pub(crate) fn add_content_length(&mut self, bytes: u64) {
        if self.stage == Stage::Named && self.declared.content_length.is_none() && bodied(self.code)
        {
            self.lines.push_decimal(b"Content-Length", bytes);
            self.declared.content_length = Some(bytes);
        }
    }

    /// What has become of the body so far.
    pub(crate) fn end_state(&self) -> End {
        self.end
    }

    /// Gives the head to the writer, so that what comes next opens the response; without bytes of a body it
    /// stays there until the exchange ends.
    pub(crate) fn name(&mut self) -> PyResult<&mut ResponseWriter> {
        fork::refuse_in_child()?;
        let answering = self.answering.get_mut();
        let answering = answering.unwrap_or_else(std::sync::PoisonError::into_inner);
        let Some(answering) = answering
            .as_mut()
            .filter(|answering| answering.thread == thread::current().id())
        else {
            return Err(PyRuntimeError::new_err(
                "the response belongs to the thread that calls the application",
            ));
        };
        let writer = &mut answering.writer;
        match self.stage {
            Stage::Open => {}
            Stage::Named => writer.begin(self.code, &self.reason, &mut self.lines, self.declared),
            Stage::Silent | Stage::Idle => {
                return Err(PyAssertionError::new_err(
                    "the application gave a body before start_response()",
                ));
            }
        }
        Ok(writer)
    }

    /// Sends a part of the body; the head leaves with the first that is not empty.
    pub(crate) fn piece(&mut self, data: &Bound<'_, PyBytes>) -> PyResult<Sent> {
        if data.as_bytes().is_empty() {
            return Ok(Sent::On);
        }
        self.give(data, |writer, piece| writer.piece(piece))
    }

    /// As `piece`, for one of several parts that the application has given together.
    pub(crate) fn piece_of_many(&mut self, data: &Bound<'_, PyBytes>) -> PyResult<Sent> {
        if data.as_bytes().is_empty() {
            return Ok(Sent::On);
        }
        self.give(data, |writer, piece| writer.piece_of_many(piece))
    }

    /// Sends the whole body.
    pub(crate) fn whole(&mut self, data: &Bound<'_, PyBytes>) -> PyResult<Sent> {
        self.give(data, |writer, piece| writer.whole(piece))
    }

    /// Sends bytes that are no object of their own, in the whole or as one part of many.
    pub(crate) fn joined(
        &mut self,
        py: Python<'_>,
        data: &[u8],
        is_whole: Joined,
    ) -> PyResult<Sent> {
        let writer = self.name()?;
        let mut give = || match is_whole {
            Joined::Whole => writer.whole(data),
            Joined::Part => writer.piece_of_many(data),
        };
        let taken = match data.len() <= raw::QUICK_BYTES {
            true => give(),
            false => raw::detached(py, give),
        };
        self.stage = Stage::Open;
        Ok(self.note(taken))
    }

    fn give(
        &mut self,
        data: &Bound<'_, PyBytes>,
        give: impl Fn(&mut ResponseWriter, &dyn Piece) -> Taken,
    ) -> PyResult<Sent> {
        let writer = self.name()?;
        let taken = match writer.is_quick(data.as_bytes().len()) {
            true => give(writer, &ObjectPiece::attached(data)),
            false => {
                let piece = ObjectPiece::to_detach(data);
                raw::detached(data.py(), || give(writer, &piece))
            }
        };
        self.stage = Stage::Open;
        Ok(self.note(taken))
    }

    /// Sends a span of a file.
    pub(crate) fn file(
        &mut self,
        py: Python<'_>,
        file: std::fs::File,
        offset: u64,
        bytes: u64,
    ) -> PyResult<Sent> {
        if bytes == 0 {
            return Ok(Sent::On);
        }
        let writer = self.name()?;
        let taken = match writer.file_is_quick() {
            true => writer.file(file, offset, bytes),
            false => raw::detached(py, || writer.file(file, offset, bytes)),
        };
        self.stage = Stage::Open;
        Ok(self.note(taken))
    }

    fn note(&mut self, taken: Taken) -> Sent {
        match taken {
            Taken::All => Sent::On,
            Taken::Overrun => {
                self.end = End::Overrun;
                Sent::On
            }
            Taken::Gone => {
                self.end = End::Gone;
                Sent::Gone
            }
        }
    }

    fn set_status(&mut self, status: &Bound<'_, PyAny>) -> PyResult<()> {
        let text = latin1_of(status, "status")?;
        let bytes = raw::latin1_bytes(text).ok_or_else(|| not_latin1(text))?;
        let found = lines::status(bytes).map_err(|broken| refused(&broken, text))?;
        self.code = found.code;
        self.reason.clear();
        self.reason.extend_from_slice(&bytes[found.reason]);
        Ok(())
    }

    fn add_header(&mut self, header: &Bound<'_, PyAny>) -> PyResult<()> {
        let pair = header.cast::<PyTuple>().ok().filter(|pair| pair.len() == 2);
        let Some(pair) = pair else {
            return Err(PyTypeError::new_err(format!(
                "a header must be a (name, value) tuple, not {header:?}"
            )));
        };
        let (name, value) = (pair.get_item(0)?, pair.get_item(1)?);
        let name = latin1_of(&name, "header name")?;
        let value = latin1_of(&value, "header value")?;
        let name_bytes = raw::latin1_bytes(name).ok_or_else(|| not_latin1(name))?;
        let value_bytes = raw::latin1_bytes(value).ok_or_else(|| not_latin1(value))?;
        let meaning = lines::append(&mut self.lines, name_bytes, value_bytes)
            .map_err(|broken| refused(&broken, header))?;
        match meaning {
            Meaning::Nothing => {}
            Meaning::Date => self.declared.date = true,
            Meaning::Server => self.declared.server = true,
            Meaning::LimitRate(0) => self.declared.rate = Some(Rate::Unlimited),
            Meaning::LimitRate(rate) => self.declared.rate = Some(Rate::BytesPerSec(rate)),
            // RFC 9110 section 8.6: two lengths leave the client to guess.
            Meaning::ContentLength(_) if self.declared.content_length.is_some() => {
                return Err(PyValueError::new_err("Content-Length is given twice"));
            }
            // RFC 9110 section 8.6: a 204 has none.
            Meaning::ContentLength(_) if self.code == 204 => self
                .lines
                .retain(|name, _| !name.eq_ignore_ascii_case(b"content-length")),
            Meaning::ContentLength(bytes) => self.declared.content_length = Some(bytes),
        }
        Ok(())
    }
}

fn bodied(code: u16) -> bool {
    code != 204 && code != 304
}

fn latin1_of<'a, 'py>(
    object: &'a Bound<'py, PyAny>,
    what: &str,
) -> PyResult<&'a Bound<'py, PyString>> {
    object.cast::<PyString>().map_err(|_| {
        PyTypeError::new_err(format!(
            "{what} must be str, not {}: {object:?}",
            super::type_name(object)
        ))
    })
}

fn not_latin1(text: &Bound<'_, PyString>) -> PyErr {
    PyValueError::new_err(format!("status and headers must be latin-1: {text:?}"))
}

fn refused(broken: &lines::Broken, what: &Bound<'_, PyAny>) -> PyErr {
    PyValueError::new_err(format!("{broken}: {what:?}"))
}

unsafe extern "C" fn start_response(
    owner: *mut ffi::PyObject,
    arguments: *const *mut ffi::PyObject,
    arguments_len: ffi::Py_ssize_t,
    names: *mut ffi::PyObject,
) -> *mut ffi::PyObject {
    // SAFETY: the arguments are CPython's.
    unsafe { raw::enter(owner, arguments, arguments_len, names, started) }
}

unsafe extern "C" fn write(
    owner: *mut ffi::PyObject,
    arguments: *const *mut ffi::PyObject,
    arguments_len: ffi::Py_ssize_t,
    names: *mut ffi::PyObject,
) -> *mut ffi::PyObject {
    // SAFETY: the arguments are CPython's.
    unsafe { raw::enter(owner, arguments, arguments_len, names, written) }
}

fn started(owner: &Bound<'_, PyAny>, arguments: &raw::Arguments<'_>) -> PyResult<Py<PyAny>> {
    let known = ["status", "headers", "response_headers", "exc_info"];
    if let Some(stranger) = arguments.stranger(&known) {
        return Err(PyTypeError::new_err(format!(
            "start_response() has no argument '{stranger}'"
        )));
    }
    let headers = arguments
        .at(1, "headers")
        .or_else(|| arguments.at(1, "response_headers"));
    let (Some(status), Some(headers)) = (arguments.at(0, "status"), headers) else {
        return Err(PyTypeError::new_err(
            "start_response() takes status, headers and perhaps exc_info",
        ));
    };
    if arguments.positional_len() > 3 {
        return Err(PyTypeError::new_err(
            "start_response() takes at most 3 arguments",
        ));
    }
    let exc_info = arguments
        .at(2, "exc_info")
        .filter(|exc_info| !exc_info.is_none());
    let exc_info = exc_info.as_ref().map(triple).transpose()?;
    let mut call = claim(owner)?;
    begin(&mut call, &status, &headers, exc_info)?;
    let write = call.write.as_ref().map(|write| write.clone_ref(owner.py()));
    write.ok_or_else(over)
}

fn begin(
    call: &mut Call,
    status: &Bound<'_, PyAny>,
    headers: &Bound<'_, PyAny>,
    exc_info: Option<&Bound<'_, PyTuple>>,
) -> PyResult<()> {
    match (call.stage, exc_info) {
        (Stage::Silent, _) | (Stage::Named, Some(_)) => {}
        (Stage::Idle, _) => return Err(over()),
        (Stage::Open, Some(exc_info)) => return Err(raised(exc_info)?),
        (Stage::Named | Stage::Open, None) => {
            return Err(PyAssertionError::new_err(
                "start_response() was called again without exc_info",
            ));
        }
    }
    // A start that fails leaves no half of a head behind.
    call.stage = Stage::Silent;
    call.lines.clear();
    call.declared = Declared::default();
    call.set_status(status)?;
    // PEP 3333: a list and nothing else, because middleware appends to it.
    let Ok(list) = headers.cast::<PyList>() else {
        let kind = super::type_name(headers);
        return Err(PyTypeError::new_err(format!(
            "headers must be a list of tuples, not {kind}"
        )));
    };
    for header in list.iter() {
        call.add_header(&header)?;
    }
    call.stage = Stage::Named;
    Ok(())
}

/// What `sys.exc_info()` gives, whether or not its exception is to be raised (PEP 3333).
fn triple<'a, 'py>(exc_info: &'a Bound<'py, PyAny>) -> PyResult<&'a Bound<'py, PyTuple>> {
    let triple = exc_info.cast::<PyTuple>().ok();
    triple.filter(|triple| triple.len() == 3).ok_or_else(|| {
        PyTypeError::new_err(format!(
            "exc_info must be a (type, value, traceback) tuple, not {}",
            super::type_name(exc_info)
        ))
    })
}

/// The exception in an `exc_info` triple.
fn raised(triple: &Bound<'_, PyTuple>) -> PyResult<PyErr> {
    let (kind, value, trace) = (
        triple.get_item(0)?,
        triple.get_item(1)?,
        triple.get_item(2)?,
    );
    if value.is_none() {
        return Ok(PyErr::from_value(kind));
    }
    if !trace.is_none() {
        value.setattr("__traceback__", trace)?;
    }
    Ok(PyErr::from_value(value))
}

fn written(owner: &Bound<'_, PyAny>, arguments: &raw::Arguments<'_>) -> PyResult<Py<PyAny>> {
    let py = owner.py();
    let data = arguments
        .at(0, "data")
        .filter(|_| arguments.positional_len() <= 1);
    let Some(data) = data else {
        return Err(PyTypeError::new_err("write() takes one argument"));
    };
    let Ok(data) = data.cast::<PyBytes>() else {
        return Err(PyTypeError::new_err(format!(
            "write() takes bytes, not {}",
            super::type_name(&data)
        )));
    };
    let mut call = claim(owner)?;
    if call.stage == Stage::Idle {
        return Err(over());
    }
    match call.piece(data)? {
        Sent::On => Ok(py.None()),
        Sent::Gone => Err(PyConnectionResetError::new_err("the client is gone")),
    }
}

fn claim<'py>(owner: &Bound<'py, PyAny>) -> PyResult<PyRefMut<'py, Call>> {
    Ok(owner.cast::<Call>()?.try_borrow_mut()?)
}

fn over() -> PyErr {
    PyRuntimeError::new_err("the exchange that this start_response() belongs to is over")
}

#[cfg(test)]
mod tests {
    use pyo3::types::PyDict;

    use super::*;

    /// Runs `script` with `start_response` as `s`; gives code, reason, lines and the declared length.
    fn run(script: &std::ffi::CStr) -> (u16, String, String, Option<u64>) {
        Python::initialize();
        Python::attach(|py| {
            let caller = Caller::new(py).unwrap();
            caller.call.borrow_mut().stage = Stage::Silent;
            let names = PyDict::new(py);
            names.set_item("s", &caller.start_response).unwrap();
            let helper = c"
def fails(kind, part, *args, **named):
    try: s(*args, **named)
    except kind as e: assert part in str(e), str(e)
    else: raise AssertionError('did not fail')
";
            py.run(helper, Some(&names), None).unwrap();
            py.run(script, Some(&names), None).unwrap();
            let call = caller.call.borrow();
            let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).unwrap();
            (
                call.code,
                text(&call.reason),
                text(call.lines.as_bytes()),
                call.declared.content_length,
            )
        })
    }

    #[test]
    fn keeps_the_head_as_finished_lines() {
        let found = run(c"assert callable(s('200 OK', [('Content-Type', 'text/plain'), ('content-length', '3')]))");
        let lines = "Content-Type: text/plain\r\ncontent-length: 3\r\n";
        assert_eq!(found, (200, "OK".into(), lines.into(), Some(3)));
    }

    #[test]
    fn a_second_start_needs_exc_info_and_replaces_the_first() {
        let found = run(c"
import sys
s('200 OK', [('X-A', 'a')])
fails(AssertionError, 'again', '500 Oops', [])
try: 1/0
except ZeroDivisionError: s('500 Oops', [('X-B', 'b')], sys.exc_info())
s('501 Oops', [('X-C', 'c')], exc_info=(ValueError, ValueError(), None))
");
        assert_eq!(found, (501, "Oops".into(), "X-C: c\r\n".into(), None));
    }

    #[test]
    fn refuses_what_pep_3333_refuses() {
        run(c"
fails(TypeError, 'start_response() takes')
fails(TypeError, 'start_response() takes', '200 OK')
fails(TypeError, 'no argument', '200 OK', [], odd=1)
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
s('200 OK', [('X-Late', 'yes')])
");
    }

    #[test]
    fn takes_lists_of_other_classes_and_exc_info_without_an_exception() {
        let found = run(c"
import sys
class Headers(list): pass
s('200 OK', Headers([('X-A', 'a')]), sys.exc_info())
");
        assert_eq!(found, (200, "OK".into(), "X-A: a\r\n".into(), None));
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
}
