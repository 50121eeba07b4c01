//! The steps that PyO3 has no fast word for: text from and as latin-1 bytes, and detaching around something that
//! stays on its thread.
//!
//! Takes and gives PyO3's own types. Must not know what the steps are for.

use std::ffi::CStr;
use std::slice;

use pyo3::conversion::FromPyObjectOwned;
use pyo3::ffi;
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyString};

/// A `str` with one code point per byte (PEP 3333, "Unicode Issues").
///
/// Panics when Python has no memory.
pub(crate) fn latin1<'py>(py: Python<'py>, bytes: &[u8]) -> Bound<'py, PyString> {
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
pub(crate) fn latin1_bytes<'a>(text: &'a Bound<'_, PyString>) -> Option<&'a [u8]> {
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

/// Runs `script` with these names, and gives what it calls `found`.
pub(crate) fn run_script<'py, T>(names: &Bound<'py, PyDict>, script: &CStr) -> PyResult<T>
where
    T: FromPyObjectOwned<'py, Error = PyErr>,
{
    names.py().run(script, Some(names), None)?;
    names.as_any().get_item("found")?.extract()
}

/// Runs `body` detached from the interpreter, on this very thread.
pub(crate) fn detached<T>(py: Python<'_>, body: impl FnOnce() -> T) -> T {
    let body = Here(body);
    py.detach(move || Here(body.open()())).open()
}

/// Marks what does not leave its thread: PyO3 asks for `Send` only to keep its token out of the closure,
/// and this crate's closures hold none.
struct Here<T>(T);

impl<T> Here<T> {
    fn open(self) -> T {
        self.0
    }
}

// SAFETY: `Python::detach` runs its closure on the calling thread.
unsafe impl<T> Send for Here<T> {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn latin1_text_keeps_every_byte() {
        let every: Vec<u8> = (0..=255).collect();
        Python::initialize();
        Python::attach(|py| {
            for bytes in [&every[..], b"", b"x", b"plain ascii", "\u{e9}".as_bytes()] {
                let text = latin1(py, bytes);
                assert_eq!(text.len().unwrap(), bytes.len());
                assert_eq!(latin1_bytes(&text), Some(bytes));
                let points: Vec<u32> = text.to_string().chars().map(u32::from).collect();
                assert_eq!(
                    points,
                    bytes
                        .iter()
                        .map(|byte| u32::from(*byte))
                        .collect::<Vec<_>>()
                );
            }
        });
    }

    #[test]
    fn wide_text_is_no_latin1() {
        Python::initialize();
        Python::attach(|py| {
            assert_eq!(latin1_bytes(&PyString::new(py, "\u{20ac}")), None);
            assert_eq!(latin1_bytes(&PyString::new(py, "\u{1f40e}")), None);
        });
    }
}
