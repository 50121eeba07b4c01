//! The steps that PyO3 has no fast word for: text from and as latin-1 bytes, functions called by vector,
//! and detaching around something that stays on its thread.
//!
//! Takes and gives PyO3's own types. Must not know what the steps are for.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::slice;

use pyo3::exceptions::PySystemError;
use pyo3::ffi;
use pyo3::prelude::*;
use pyo3::types::{PyString, PyTuple};

/// A `str` with one code point per byte (PEP 3333, "Unicode Issues").
///
/// Panics when Python has no memory.
pub(crate) fn latin1<'py>(py: Python<'py>, bytes: &[u8]) -> Bound<'py, PyString> {
    let bytes_len = bytes.len().cast_signed();
    let text = if bytes.is_ascii() {
        // SAFETY: attached; a new string of that length is nobody else's yet.
        let text = unsafe { ffi::PyUnicode_New(bytes_len, 127) };
        if !text.is_null() && !bytes.is_empty() {
            // SAFETY: `text` is a compact ASCII string, made on the line above.
            let data = unsafe { ffi::PyUnicode_1BYTE_DATA(text) };
            // SAFETY: `data` has room for `bytes_len` bytes and cannot overlap borrowed Rust memory.
            unsafe { data.copy_from_nonoverlapping(bytes.as_ptr(), bytes.len()) };
        }
        text
    } else {
        // SAFETY: attached; pointer and length belong to one slice.
        unsafe { ffi::PyUnicode_DecodeLatin1(bytes.as_ptr().cast(), bytes_len, std::ptr::null()) }
    };
    // SAFETY: an owned reference or null, which panics.
    let text = unsafe { Bound::from_owned_ptr(py, text) };
    // SAFETY: both branches make an exact `str`.
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

/// Definition of a function that takes a vector of arguments.
pub(crate) struct Method(ffi::PyMethodDef);

// SAFETY: never written after it was made; CPython only reads it.
unsafe impl Sync for Method {}

impl Method {
    /// A method named `name` with the text `doc`.
    pub(crate) const fn new(
        name: &'static std::ffi::CStr,
        doc: &'static std::ffi::CStr,
        function: ffi::PyCFunctionFastWithKeywords,
    ) -> Self {
        Self(ffi::PyMethodDef {
            ml_name: name.as_ptr(),
            ml_meth: ffi::PyMethodDefPointer {
                PyCFunctionFastWithKeywords: function,
            },
            ml_flags: ffi::METH_FASTCALL | ffi::METH_KEYWORDS,
            ml_doc: doc.as_ptr(),
        })
    }

    /// A function object bound to `owner`.
    pub(crate) fn bind<'py>(
        &'static self,
        owner: &Bound<'py, PyAny>,
    ) -> PyResult<Bound<'py, PyAny>> {
        let definition = (&raw const self.0).cast_mut();
        // SAFETY: the definition is static, `owner` is alive; CPython takes its own reference.
        let function =
            unsafe { ffi::PyCFunction_NewEx(definition, owner.as_ptr(), std::ptr::null_mut()) };
        // SAFETY: an owned reference, or null with an exception set.
        unsafe { Bound::from_owned_ptr_or_err(owner.py(), function) }
    }
}

/// Arguments of a call by vector.
pub(crate) struct Arguments<'py> {
    py: Python<'py>,
    positional: &'py [*mut ffi::PyObject],
    named: &'py [*mut ffi::PyObject],
    names: Option<Bound<'py, PyTuple>>,
}

impl<'py> Arguments<'py> {
    /// Number of positional arguments.
    pub(crate) fn positional_len(&self) -> usize {
        self.positional.len()
    }

    /// The argument at `position`, or the one called `name`.
    pub(crate) fn at(&self, position: usize, name: &str) -> Option<Bound<'py, PyAny>> {
        let object = match self.positional.get(position) {
            Some(object) => *object,
            None => self.named(name)?,
        };
        // SAFETY: the caller of the function keeps its arguments alive during the call.
        Some(unsafe { Bound::from_borrowed_ptr(self.py, object) })
    }

    /// A keyword that is none of `known`.
    pub(crate) fn stranger(&self, known: &[&str]) -> Option<String> {
        let names = self.names.as_ref()?;
        names
            .iter()
            .map(|name| name.to_string())
            .find(|name| !known.contains(&name.as_str()))
    }

    fn named(&self, name: &str) -> Option<*mut ffi::PyObject> {
        let names = self.names.as_ref()?;
        let index = names
            .iter()
            .position(|known| known.cast::<PyString>().is_ok_and(|known| known == name))?;
        self.named.get(index).copied()
    }
}

/// Enters Rust from a function called by vector: attaches, and turns errors and panics into exceptions.
///
/// # Safety
/// The arguments are those that CPython gave to a `PyCFunctionFastWithKeywords`.
pub(crate) unsafe fn enter(
    owner: *mut ffi::PyObject,
    arguments: *const *mut ffi::PyObject,
    arguments_len: ffi::Py_ssize_t,
    names: *mut ffi::PyObject,
    body: fn(&Bound<'_, PyAny>, &Arguments<'_>) -> PyResult<Py<PyAny>>,
) -> *mut ffi::PyObject {
    Python::attach(|py| {
        // SAFETY: `owner` lives as long as the function that is called.
        let owner = unsafe { Bound::from_borrowed_ptr(py, owner) };
        // SAFETY: null or a tuple of `str`.
        let names = unsafe { Bound::from_borrowed_ptr_or_opt(py, names) };
        // SAFETY: see above.
        let names: Option<Bound<'_, PyTuple>> =
            names.map(|names| unsafe { names.cast_into_unchecked() });
        let named_len = names.as_ref().map_or(0, |names| names.len());
        let all: &[*mut ffi::PyObject] = if arguments.is_null() {
            &[]
        } else {
            // SAFETY: positional arguments are followed by those that `names` names.
            unsafe { slice::from_raw_parts(arguments, arguments_len.cast_unsigned() + named_len) }
        };
        let (positional, named) = all.split_at(arguments_len.cast_unsigned().min(all.len()));
        let arguments = Arguments {
            py,
            positional,
            named,
            names,
        };
        let result = catch_unwind(AssertUnwindSafe(|| body(&owner, &arguments)))
            .unwrap_or_else(|_| Err(PySystemError::new_err("milepost: panic in the server")));
        match result {
            Ok(object) => object.into_ptr(),
            Err(error) => {
                error.restore(py);
                std::ptr::null_mut()
            }
        }
    })
}

/// Bytes that are sent without making way for other threads.
pub(crate) const QUICK_BYTES: usize = 64 << 10;

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
