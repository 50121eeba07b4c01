//! What an application returned becomes the response's body.
//!
//! Takes the iterable of bytes, gives its parts to the response writer in the fastest way that keeps their order and
//! holds nothing back (PEP 3333, "Buffering and Streaming"), and closes it once, whatever happened.

use std::cell::Cell;
use std::ops::Range;
use std::sync::Arc;

use bytes::Bytes;
use pyo3::exceptions::{PyAttributeError, PyNotImplementedError, PyTypeError};
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::pybacked::PyBackedBytes;
use pyo3::types::{PyBytes, PyIterator, PyList, PyString, PyTuple};
use server::response::{Amount, Piece, ReplyMemory, Taken};

use super::file_wrapper::{FileSpan, FileWrapper};
use super::start_response::Call;
use super::type_name;
use crate::{fork, release};

/// Neighbours in a list that together are no longer than this leave as one.
const JOIN_BYTES_MAX: usize = 64 << 10;
/// Pieces up to this size are copied where they wait: a reference costs more than that.
const COPY_BYTES_MAX: usize = 4 << 10;

/// Sends the body and closes `result`. Gives the error of `close()` when the response itself went well.
pub(super) fn send(call: &Bound<'_, Call>, result: &Bound<'_, PyAny>) -> PyResult<Option<PyErr>> {
    let py = result.py();
    // `close()` in any case, and after the last piece: PEP 3333 promises it, and locks of applications depend on it.
    let sent = body(call, result);
    match (sent, unless_child(py, close(result))) {
        (Ok(()), closed) => Ok(closed.err()),
        (Err(error), Ok(())) => Err(error),
        (Err(error), Err(second)) => {
            // As Python does it for an error in `finally`.
            let value = second.value(py);
            drop(value.setattr("__context__", error.into_value(py)));
            Err(second)
        }
    }
}

/// What code of the application has given, in the process that serves. A child that it has forked meanwhile does
/// not come back.
pub(super) fn unless_child<T>(py: Python<'_>, given: PyResult<T>) -> PyResult<T> {
    if server::fork::is_child() {
        fork::leave(py, given.err());
    }
    given
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

fn body(call: &Bound<'_, Call>, result: &Bound<'_, PyAny>) -> PyResult<()> {
    if let Ok(list) = result.cast_exact::<PyList>() {
        return match list.len() {
            1 => only_part(call, &list.get_item(0)?),
            _ => parts(call, &list.to_tuple()),
        };
    }
    if let Ok(tuple) = result.cast_exact::<PyTuple>() {
        return match tuple.len() {
            1 => only_part(call, &tuple.get_item(0)?),
            _ => parts(call, tuple),
        };
    }
    if let Ok(wrapper) = result.cast_exact::<FileWrapper>()
        && let Some(span) = wrapper.get().span(result.py())
    {
        return file(call, span);
    }
    pieces(call, result)
}

fn only_part(call: &Bound<'_, Call>, item: &Bound<'_, PyAny>) -> PyResult<()> {
    let data = block(item)?;
    let mut call = call.try_borrow_mut()?;
    if call.is_open() {
        // write() came first.
        give(&mut call, data, Amount::OneOfMany)?;
    } else {
        give(&mut call, data, Amount::Whole)?;
    }
    Ok(())
}

/// Parts that are all there already: their sum is known.
fn parts(call: &Bound<'_, Call>, items: &Bound<'_, PyTuple>) -> PyResult<()> {
    let parts: Vec<Bound<'_, PyBytes>> = items
        .iter()
        .map(|item| block(&item).cloned())
        .collect::<PyResult<_>>()?;
    let bytes: usize = parts.iter().map(|part| part.as_bytes().len()).sum();
    let mut call = call.try_borrow_mut()?;
    if bytes <= JOIN_BYTES_MAX && !call.is_open() {
        give_joined(&mut call, &parts, Amount::Whole)?;
        return Ok(());
    }
    call.add_content_length(bytes as u64);
    // Small neighbours are joined, large ones are kept by reference: a copy of them would cost more than a call.
    let mut rest = parts.as_slice();
    while let [first, ..] = rest {
        let (together, others) = rest.split_at(run_len(rest));
        let taken = match together {
            [_] => give(&mut call, first, Amount::OneOfMany)?,
            _ => give_joined(&mut call, together, Amount::OneOfMany)?,
        };
        if taken == Taken::Gone || call.is_head {
            break;
        }
        rest = others;
    }
    Ok(())
}

/// Whatever can be iterated: each part leaves before the next is asked for.
fn pieces(call: &Bound<'_, Call>, result: &Bound<'_, PyAny>) -> PyResult<()> {
    let py = result.py();
    let mut items = iterate(result)?;
    let mut is_first = true;
    while let Some(item) = unless_child(py, items.next().transpose())? {
        let data = block(&item)?;
        let bytes = data.as_bytes().len() as u64;
        if bytes == 0 {
            continue;
        }
        // One part: its length is the body's (PEP 3333, "Handling the Content-Length Header").
        if is_first && call.try_borrow_mut()?.is_length_open() && known_len(result)? == Some(1) {
            call.try_borrow_mut()?.add_content_length(bytes);
        }
        is_first = false;
        let mut call = call.try_borrow_mut()?;
        if give(&mut call, data, Amount::Piece)? == Taken::Gone || call.is_head {
            return Ok(());
        }
    }
    let mut call = call.try_borrow_mut()?;
    if !call.is_open() {
        call.send(|writer| writer.write(&&b""[..], Amount::Whole))?;
    }
    Ok(())
}

fn file(call: &Bound<'_, Call>, span: FileSpan) -> PyResult<()> {
    let mut borrowed = call.try_borrow_mut()?;
    // PEP 3333 has an application say by its length where a file ends for the client.
    let declared = borrowed.declared_length();
    let bytes = declared.map_or(span.bytes, |declared| declared.min(span.bytes));
    borrowed.send(|writer| {
        let is_quick = writer.file_is_quick();
        let give = || writer.file(span.file, span.offset, bytes, Amount::Whole);
        match is_quick {
            true => give(),
            false => call.py().detach(give),
        }
    })?;
    Ok(())
}

/// Gives an object of the application to the writer; detached where that takes a while.
pub(super) fn give(call: &mut Call, data: &Bound<'_, PyBytes>, amount: Amount) -> PyResult<Taken> {
    let bytes = data.as_bytes();
    let piece = ObjectPiece::new(data);
    call.send(|writer| {
        if writer.is_quick(bytes.len()) {
            return writer.write(&piece, amount);
        }
        // The piece comes back: its reference ends while this thread is attached.
        let give = move || (writer.write(&piece, amount), piece);
        data.py().detach(give).0
    })
}

/// Gives several objects as one: each of its own would cost a system call, or the end of a block in a compressed
/// response.
fn give_joined(call: &mut Call, parts: &[Bound<'_, PyBytes>], amount: Amount) -> PyResult<Taken> {
    // Out of the call, which `send` borrows; what waits for a slow client is a copy, so that the buffer comes back.
    let mut data = std::mem::take(&mut call.scratch);
    data.clear();
    for part in parts {
        data.extend_from_slice(part.as_bytes());
    }
    let taken = call.send(|writer| writer.write(&data.as_slice(), amount));
    call.scratch = data;
    taken
}

/// Number of parts, at least one, that leave together.
fn run_len(parts: &[Bound<'_, PyBytes>]) -> usize {
    let mut bytes = 0;
    let fitting = parts.iter().take_while(|part| {
        bytes += part.as_bytes().len();
        bytes <= JOIN_BYTES_MAX
    });
    fitting.count().max(1)
}

/// A piece of a body: an object of the application.
pub(crate) struct ObjectPiece<'a> {
    bytes: &'a [u8],
    address: usize,
    /// Made while this thread is attached, for an object that may be kept; `None` once it is.
    reference: Cell<Option<PyBackedBytes>>,
}

impl<'a> ObjectPiece<'a> {
    /// To be made while the thread is attached.
    pub(crate) fn new(data: &'a Bound<'_, PyBytes>) -> Self {
        let bytes = data.as_bytes();
        let is_long = bytes.len() > COPY_BYTES_MAX;
        Self {
            bytes,
            address: data.as_ptr() as usize,
            reference: Cell::new(is_long.then(|| PyBackedBytes::from(data.clone()))),
        }
    }
}

impl Piece for ObjectPiece<'_> {
    fn bytes(&self) -> &[u8] {
        self.bytes
    }

    fn keep(&self, range: Range<usize>, memory: &Arc<ReplyMemory>) -> Bytes {
        if range.len() > COPY_BYTES_MAX
            && let Some(kept) = release::keep(self.address, || self.reference.take(), memory)
        {
            return kept.slice(range);
        }
        self.bytes.keep(range, memory)
    }
}

/// The bytes of a block, or what is wrong with it.
fn block<'a, 'py>(item: &'a Bound<'py, PyAny>) -> PyResult<&'a Bound<'py, PyBytes>> {
    item.cast::<PyBytes>().map_err(|_| {
        let kind = type_name(item);
        PyTypeError::new_err(format!(
            "the application's body must be made of bytes, not {kind}"
        ))
    })
}

/// Number of parts; `None` when `result` has no length, or one that it cannot tell.
fn known_len(result: &Bound<'_, PyAny>) -> PyResult<Option<usize>> {
    let py = result.py();
    // Most iterables have none, and looking costs less than an exception.
    if !result.hasattr(intern!(py, "__len__"))? {
        return Ok(None);
    }
    match result.len() {
        // As wsgiref does it, which is what applications are tried with.
        Err(error)
            if error.is_instance_of::<PyTypeError>(py)
                || error.is_instance_of::<PyAttributeError>(py)
                || error.is_instance_of::<PyNotImplementedError>(py) =>
        {
            Ok(None)
        }
        known => known.map(Some),
    }
}

fn iterate<'py>(result: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyIterator>> {
    let refused = |hint: &str| {
        let kind = type_name(result);
        PyTypeError::new_err(format!(
            "the application returned {kind}; it must return an iterable of bytes{hint}"
        ))
    };
    if result.is_instance_of::<PyBytes>() || result.is_instance_of::<PyString>() {
        return Err(refused(", like [b'...']"));
    }
    result.try_iter().map_err(|error| {
        let is_type_error = error.is_instance_of::<PyTypeError>(result.py());
        match is_type_error && !result.hasattr("__iter__").unwrap_or(true) {
            true => refused(""),
            false => error,
        }
    })
}
