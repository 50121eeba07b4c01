//! What an application returned becomes the reply's body.
//!
//! Takes the iterable of bytes, gives its parts to the call in the fastest way that keeps their order and
//! holds nothing back (PEP 3333, "Buffering and Streaming"), and closes it once, whatever happened.

use pyo3::exceptions::{PyAttributeError, PyNotImplementedError, PyTypeError};
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyList, PyString, PyTuple};

use super::call::{Call, Joined, Sent};
use super::wrapper::{FileSpan, FileWrapper, block};
use crate::fork;

/// Neighbours in a list that together are no longer than this leave as one.
const JOIN_BYTES_MAX: usize = 64 << 10;

/// What a reply goes through.
pub(crate) struct Given<'a, 'py> {
    pub(crate) call: &'a Bound<'py, Call>,
    /// No body is wanted; only what it says about the head.
    pub(crate) is_head: bool,
    pub(crate) scratch: &'a mut Vec<u8>,
}

/// Sends the body and closes `result`. Gives the error of `close()` when the reply itself went well.
pub(crate) fn send(given: Given<'_, '_>, result: &Bound<'_, PyAny>) -> PyResult<Option<PyErr>> {
    let py = result.py();
    let body = given.body(result);
    match (body, fork::unless_child(py, close(result))) {
        (Ok(()), Ok(())) => Ok(None),
        (Ok(()), Err(error)) => Ok(Some(error)),
        (Err(error), Ok(())) => Err(error),
        (Err(error), Err(second)) => {
            // As Python does it for an error in `finally`.
            drop(
                second
                    .value(py)
                    .setattr("__context__", error.into_value(py)),
            );
            Err(second)
        }
    }
}

fn close(result: &Bound<'_, PyAny>) -> PyResult<()> {
    if result.is_exact_instance_of::<PyList>() || result.is_exact_instance_of::<PyTuple>() {
        return Ok(());
    }
    if let Some(close) = result.getattr_opt(intern!(result.py(), "close"))? {
        close.call0()?;
    }
    Ok(())
}

impl<'py> Given<'_, 'py> {
    fn body(self, result: &Bound<'py, PyAny>) -> PyResult<()> {
        if let Ok(list) = result.cast_exact::<PyList>() {
            return match list.len() {
                1 => self.only(&list.get_item(0)?),
                _ => self.parts(&list.to_tuple()),
            };
        }
        if let Ok(tuple) = result.cast_exact::<PyTuple>() {
            return match tuple.len() {
                1 => self.only(&tuple.get_item(0)?),
                _ => self.parts(tuple),
            };
        }
        if let Ok(wrapper) = result.cast_exact::<FileWrapper>()
            && let Some(span) = wrapper.get().span(result.py())
        {
            return self.file(span);
        }
        self.pieces(result)
    }

    /// The only part.
    fn only(self, item: &Bound<'py, PyAny>) -> PyResult<()> {
        let data = block(item)?;
        let mut call = self.call.try_borrow_mut()?;
        match call.is_open() {
            false => call.whole(data)?,
            // write() came first.
            true => call.piece_of_many(data)?,
        };
        Ok(())
    }

    /// Parts that are all there already: their sum is known.
    fn parts(self, items: &Bound<'py, PyTuple>) -> PyResult<()> {
        let parts: Vec<Bound<'py, PyBytes>> = items
            .iter()
            .map(|item| block(&item).cloned())
            .collect::<PyResult<_>>()?;
        let bytes = parts
            .iter()
            .map(|part| part.as_bytes().len())
            .sum::<usize>();
        if bytes <= JOIN_BYTES_MAX {
            let py = self.call.py();
            let data = join(self.scratch, &parts);
            let mut call = self.call.try_borrow_mut()?;
            let what = match call.is_open() {
                false => Joined::Whole,
                true => Joined::Part,
            };
            call.joined(py, data, what)?;
            return Ok(());
        }
        self.call.try_borrow_mut()?.add_content_length(bytes as u64);
        let mut rest = parts.as_slice();
        while let [first, ..] = rest {
            let run_len = run_len(rest);
            let mut call = self.call.try_borrow_mut()?;
            let sent = match run_len {
                1 => call.piece_of_many(first)?,
                _ => {
                    let data = join(self.scratch, &rest[..run_len]);
                    call.joined(self.call.py(), data, Joined::Part)?
                }
            };
            drop(call);
            if sent == Sent::Gone || self.is_head {
                break;
            }
            rest = &rest[run_len..];
        }
        Ok(())
    }

    /// Whatever can be iterated: each part leaves before the next is asked for.
    fn pieces(self, result: &Bound<'py, PyAny>) -> PyResult<()> {
        let py = result.py();
        let mut items = iterate(result)?;
        let mut first = true;
        while let Some(item) = fork::unless_child(py, items.next().transpose())? {
            let data = block(&item)?;
            let bytes = data.as_bytes().len() as u64;
            if bytes == 0 {
                continue;
            }
            if first && self.is_single(result)? {
                self.call.try_borrow_mut()?.add_content_length(bytes);
            }
            first = false;
            if self.piece(data)? == Sent::Gone || self.is_head {
                return Ok(());
            }
        }
        self.end()
    }

    /// Whether `result` says that it has one part, whose length is then the body's (PEP 3333, "Handling
    /// the Content-Length Header").
    fn is_single(&self, result: &Bound<'py, PyAny>) -> PyResult<bool> {
        let length_is_open = {
            let call = self.call.try_borrow_mut()?;
            !call.is_open() && call.content_length().is_none()
        };
        Ok(length_is_open && known_len(result)? == Some(1))
    }

    fn piece(&self, data: &Bound<'py, PyBytes>) -> PyResult<Sent> {
        self.call.try_borrow_mut()?.piece(data)
    }

    fn file(self, span: FileSpan) -> PyResult<()> {
        let mut call = self.call.try_borrow_mut()?;
        call.file(self.call.py(), span.file, span.offset, span.bytes)?;
        drop(call);
        self.end()
    }

    /// Opens a reply whose body was empty.
    fn end(&self) -> PyResult<()> {
        let mut call = self.call.try_borrow_mut()?;
        if !call.is_open() {
            call.joined(self.call.py(), b"", Joined::Whole)?;
        }
        Ok(())
    }
}

/// Number of parts, at least one, that leave together: each step of its own would cost a system call, or
/// the end of a block in a compressed reply.
fn run_len(parts: &[Bound<'_, PyBytes>]) -> usize {
    let mut bytes = 0;
    let fitting = parts.iter().take_while(|part| {
        bytes += part.as_bytes().len();
        bytes <= JOIN_BYTES_MAX
    });
    fitting.count().max(1)
}

fn join<'s>(scratch: &'s mut Vec<u8>, parts: &[Bound<'_, PyBytes>]) -> &'s [u8] {
    scratch.clear();
    for part in parts {
        scratch.extend_from_slice(part.as_bytes());
    }
    scratch
}

/// Number of parts; `None` when `result` has no length, or one that it cannot tell.
fn known_len(result: &Bound<'_, PyAny>) -> PyResult<Option<usize>> {
    let py = result.py();
    // Most iterables have none, and looking costs less than an exception.
    if !result.hasattr(intern!(py, "__len__"))? {
        return Ok(None);
    }
    match result.len() {
        Ok(parts_len) => Ok(Some(parts_len)),
        // As wsgiref does it, which is what applications are tried with.
        Err(error)
            if error.is_instance_of::<PyTypeError>(py)
                || error.is_instance_of::<PyAttributeError>(py)
                || error.is_instance_of::<PyNotImplementedError>(py) =>
        {
            Ok(None)
        }
        Err(error) => Err(error),
    }
}

fn iterate<'py>(result: &Bound<'py, PyAny>) -> PyResult<Bound<'py, pyo3::types::PyIterator>> {
    let kind = || super::type_name(result);
    if result.is_instance_of::<PyBytes>() || result.is_instance_of::<PyString>() {
        let cause = format!(
            "the application returned {}; it must return an iterable of bytes, like [b'...']",
            kind()
        );
        return Err(PyTypeError::new_err(cause));
    }
    result.try_iter().map_err(|error| {
        if error.is_instance_of::<PyTypeError>(result.py())
            && !result.hasattr("__iter__").unwrap_or(true)
        {
            let cause = format!(
                "the application returned {}; it must return an iterable of bytes",
                kind()
            );
            return PyTypeError::new_err(cause);
        }
        error
    })
}
