//! The span of a file that an `http.response.zerocopysend` names.
//!
//! Takes the event, gives the span with a descriptor of its own, so that the application may close its file at once. Reads
//! none of it.

use std::fs::File;
use std::io::{Seek, SeekFrom};
use std::os::fd::{BorrowedFd, RawFd};

use pyo3::exceptions::{PyTypeError, PyValueError};
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::types::{PyBool, PyDict, PyInt};

use crate::wsgi::{FileSpan, type_name};

/// Reads the event.
pub(super) fn read(event: &Bound<'_, PyDict>) -> PyResult<FileSpan> {
    let py = event.py();
    let filelike = event.get_item(intern!(py, "file"))?;
    let filelike = filelike
        .ok_or_else(|| PyValueError::new_err("`http.response.zerocopysend` has no `file`"))?;
    let file = duplicate(&filelike)?;
    // What a file that can be written holds back is not on the disk yet.
    if let Some(flush) = filelike.getattr_opt(intern!(filelike.py(), "flush"))? {
        flush.call0()?;
    }
    let about = file.metadata()?;
    if !about.is_file() {
        return Err(PyValueError::new_err(
            "`file` of `http.response.zerocopysend` must be a regular file",
        ));
    }
    let (asked, count) = (number(event, "offset")?, number(event, "count")?);
    let offset = match asked {
        Some(offset) => offset,
        None => position(&filelike, &file)?,
    };
    let rest = about.len().checked_sub(offset);
    let bytes = count.or(rest).unwrap_or(0);
    if rest.is_none_or(|rest| bytes > rest) {
        return Err(PyValueError::new_err(format!(
            "`http.response.zerocopysend` asks for {bytes} bytes from offset {offset} on, and the file has {}",
            about.len()
        )));
    }
    if asked.is_none() {
        // As sendfile(2) does: the next event without an offset is about what follows.
        set_position(&filelike, &file, offset + bytes)?;
    }
    Ok(FileSpan {
        file,
        offset,
        bytes,
    })
}

fn duplicate(filelike: &Bound<'_, PyAny>) -> PyResult<File> {
    let py = filelike.py();
    let fd = match filelike.is_instance_of::<PyInt>() {
        true => filelike.clone(),
        false => match filelike.getattr_opt(intern!(py, "fileno"))? {
            Some(fileno) => fileno.call0().map_err(|error| no_file(filelike, &error))?,
            None => {
                return Err(PyTypeError::new_err(format!(
                    "`file` of `http.response.zerocopysend` must be an open file or its descriptor, not {}",
                    type_name(filelike)
                )));
            }
        },
    };
    let fd: RawFd = fd.extract().map_err(|error| no_file(filelike, &error))?;
    if fd < 0 {
        let error = PyValueError::new_err(format!("the descriptor is {fd}"));
        return Err(no_file(filelike, &error));
    }
    // SAFETY: not negative, and nothing of Python runs before it is duplicated; one that is not open is refused there.
    let borrowed = unsafe { BorrowedFd::borrow_raw(fd) };
    let own = borrowed.try_clone_to_owned();
    own.map(File::from)
        .map_err(|error| no_file(filelike, &error.into()))
}

fn no_file(filelike: &Bound<'_, PyAny>, why: &PyErr) -> PyErr {
    let (kind, why) = (type_name(filelike), why.value(filelike.py()));
    PyValueError::new_err(format!(
        "`file` of `http.response.zerocopysend` is no open file, but {kind}: {why}"
    ))
}

fn number(event: &Bound<'_, PyDict>, name: &str) -> PyResult<Option<u64>> {
    let Some(number) = event.get_item(name)?.filter(|number| !number.is_none()) else {
        return Ok(None);
    };
    let is_number = number.is_instance_of::<PyInt>() && !number.is_instance_of::<PyBool>();
    let value = is_number.then(|| number.extract::<u64>().ok()).flatten();
    let value = value.filter(|value| i64::try_from(*value).is_ok());
    value.map(Some).ok_or_else(|| {
        PyValueError::new_err(format!(
            "`{name}` of `http.response.zerocopysend` must be an integer from 0 on, not {number:?}"
        ))
    })
}

/// The position that the application sees: a buffered reader has read ahead in its descriptor.
fn position(filelike: &Bound<'_, PyAny>, mut file: &File) -> PyResult<u64> {
    match filelike.getattr_opt(intern!(filelike.py(), "tell"))? {
        Some(tell) => tell.call0()?.extract(),
        None => Ok(file.stream_position()?),
    }
}

fn set_position(filelike: &Bound<'_, PyAny>, mut file: &File, at: u64) -> PyResult<()> {
    match filelike.getattr_opt(intern!(filelike.py(), "seek"))? {
        Some(seek) => seek.call1((at,)).map(drop),
        // A duplicate has its position with the descriptor that it was made of.
        None => Ok(file.seek(SeekFrom::Start(at)).map(drop)?),
    }
}
