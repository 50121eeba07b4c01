//! The head of a response, as an application gives it in `http.response.start`.
//!
//! Takes the event, checks it, gives status, finished lines and what is declared. Runs no application code but the
//! iteration of the headers.

use http::{FieldLines, InvalidField};
use pyo3::exceptions::{PyTypeError, PyValueError};
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyDict, PyInt, PyTuple};
use server::response::{Declared, ResponseWriter};

use crate::wsgi::{decimal, is_hop_by_hop, rate, type_name};

/// Status and fields of a response.
#[derive(Default)]
pub(super) struct ResponseStart {
    pub(super) status: u16,
    lines: FieldLines,
    declared: Declared,
    /// The head leaves at once, and little of the body waits: `text/event-stream`.
    pub(super) is_event_stream: bool,
}

impl ResponseStart {
    /// Reads the event.
    pub(super) fn read(event: &Bound<'_, PyDict>) -> PyResult<Self> {
        let mut start = Self {
            status: status(event)?,
            ..Self::default()
        };
        start.add_all(event, "http.response.start")?;
        if let Some(trailers) = event.get_item(intern!(event.py(), "trailers"))? {
            start.declared.has_trailers = trailers.is_truthy()?;
        }
        Ok(start)
    }

    fn add_all(&mut self, event: &Bound<'_, PyDict>, kind: &str) -> PyResult<()> {
        let Some(headers) = event.get_item(intern!(event.py(), "headers"))? else {
            return Ok(());
        };
        each_header(&headers, kind, |name, value| self.add(name, value))
    }

    fn add(&mut self, name: &[u8], value: &[u8]) -> PyResult<()> {
        let is = |known: &[u8]| name.eq_ignore_ascii_case(known);
        match name.len() {
            4 if is(b"date") => self.declared.date = true,
            6 if is(b"server") => self.declared.server = true,
            // The application names its trailer fields itself.
            7 if is(b"trailer") => {}
            10 if is(b"connection") => {
                let mut options = value.split(|&byte| byte == b',').map(<[u8]>::trim_ascii);
                self.declared.close |= options.any(|option| option.eq_ignore_ascii_case(b"close"));
                return Ok(());
            }
            12 if is(b"content-type") => {
                let kind = value.get(..17).unwrap_or_default();
                self.is_event_stream |= kind.eq_ignore_ascii_case(b"text/event-stream");
            }
            14 if is(b"content-length") => return self.add_length(value),
            18 if is(b"x-accel-limit-rate") => {
                let rate = rate(value).map_err(|broken| refused(broken, name, value))?;
                self.declared.rate = Some(rate);
                return Ok(());
            }
            // The connection is the server's.
            _ if is_hop_by_hop(name) => return Ok(()),
            _ => {}
        }
        self.push(name, value)
    }

    fn add_length(&mut self, value: &[u8]) -> PyResult<()> {
        let name = b"content-length";
        let bytes = decimal(value);
        let bytes =
            bytes.ok_or_else(|| refused("`content-length` must be a number", name, value))?;
        // RFC 9110 section 8.6: a 204 has none, and two leave the client to guess.
        if self.status == 204 {
            return Ok(());
        }
        if self.declared.content_length.replace(bytes).is_some() {
            return Err(refused("`content-length` is given twice", name, value));
        }
        self.push(b"Content-Length", value.trim_ascii())
    }

    fn push(&mut self, name: &[u8], value: &[u8]) -> PyResult<()> {
        push(&mut self.lines, name, value)
    }

    /// Whether trailer fields are to follow the body.
    pub(super) fn has_trailers(&self) -> bool {
        self.declared.has_trailers
    }

    /// Bytes that the body must have, as far as its client gets them.
    pub(super) fn body_bytes(&self, is_head: bool) -> Option<u64> {
        let has_body = !(is_head || matches!(self.status, 204 | 304));
        self.declared.content_length.filter(|_| has_body)
    }

    /// Begins the response.
    pub(super) fn begin(&mut self, writer: &mut ResponseWriter) {
        let reason = http::reason(self.status).as_bytes();
        writer.begin(self.status, reason, &mut self.lines, self.declared);
    }
}

/// The fields of an event that follow a body.
pub(super) fn read_trailers(event: &Bound<'_, PyDict>, kind: &str) -> PyResult<FieldLines> {
    let mut lines = FieldLines::default();
    if let Some(headers) = event.get_item(intern!(event.py(), "headers"))? {
        each_header(&headers, kind, |name, value| {
            if http::is_trailer_name(name) {
                return push(&mut lines, name, value);
            }
            let broken = "a trailer must not have this name (RFC 9110 section 6.5.1)";
            Err(refused(broken, name, value))
        })?;
    }
    Ok(lines)
}

/// The fields of an event that has no status of its own.
pub(super) fn read_fields(event: &Bound<'_, PyDict>, kind: &str) -> PyResult<FieldLines> {
    let mut start = ResponseStart::default();
    start.add_all(event, kind)?;
    // Those of the handshake are the server's (RFC 6455 section 4.2.2).
    start
        .lines
        .retain(|name, _| !name.to_ascii_lowercase().starts_with(b"sec-websocket-"));
    Ok(start.lines)
}

fn status(event: &Bound<'_, PyDict>) -> PyResult<u16> {
    let status = event.get_item(intern!(event.py(), "status"))?;
    let number = status
        .as_ref()
        .filter(|status| status.is_instance_of::<PyInt>())
        .and_then(|status| status.extract::<u16>().ok());
    number
        .filter(|status| (200..=999).contains(status))
        .ok_or_else(|| {
            let given = status.map_or_else(|| "nothing".to_owned(), |status| format!("{status:?}"));
            PyValueError::new_err(format!(
                "`status` of `http.response.start` must be an integer from 200 to 999, not {given}"
            ))
        })
}

fn each_header(
    headers: &Bound<'_, PyAny>,
    kind: &str,
    mut take: impl FnMut(&[u8], &[u8]) -> PyResult<()>,
) -> PyResult<()> {
    for header in headers.try_iter().map_err(|_| {
        let given = type_name(headers);
        PyTypeError::new_err(format!(
            "`headers` of `{kind}` must be an iterable of pairs, not {given}"
        ))
    })? {
        let header = header?;
        let (name, value) = pair(&header)?;
        let (name, value) = (header_bytes(&name, "name")?, header_bytes(&value, "value")?);
        take(name.as_bytes(), value.as_bytes())?;
    }
    Ok(())
}

fn push(lines: &mut FieldLines, name: &[u8], value: &[u8]) -> PyResult<()> {
    let pushed = lines.try_push(name, value);
    pushed.map_err(|invalid| match invalid {
        InvalidField::Name => refused(
            "a header name must be a token of RFC 9110 section 5.6.2",
            name,
            value,
        ),
        InvalidField::Value => refused(
            "a header value must not contain control characters",
            name,
            value,
        ),
    })
}

fn pair<'py>(header: &Bound<'py, PyAny>) -> PyResult<(Bound<'py, PyAny>, Bound<'py, PyAny>)> {
    if let Ok(tuple) = header.cast::<PyTuple>()
        && tuple.len() == 2
    {
        return Ok((tuple.get_item(0)?, tuple.get_item(1)?));
    }
    let wrong = |_| {
        PyTypeError::new_err(format!(
            "a header must be a pair of name and value, not {header:?}"
        ))
    };
    if header.len().map_err(wrong)? != 2 {
        return Err(wrong(PyTypeError::new_err("")));
    }
    Ok((
        header.get_item(0).map_err(wrong)?,
        header.get_item(1).map_err(wrong)?,
    ))
}

fn header_bytes<'a, 'py>(
    object: &'a Bound<'py, PyAny>,
    what: &str,
) -> PyResult<&'a Bound<'py, PyBytes>> {
    object.cast::<PyBytes>().map_err(|_| {
        let kind = type_name(object);
        PyTypeError::new_err(format!(
            "a header {what} must be bytes, not {kind}: {object:?}"
        ))
    })
}

fn refused(broken: &str, name: &[u8], value: &[u8]) -> PyErr {
    let [name, value] = [name, value].map(|text| text.escape_ascii().to_string());
    PyValueError::new_err(format!("{broken}: `{name}: {value}`"))
}
