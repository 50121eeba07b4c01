//! `wsgi.file_wrapper`: an iterable over a file, which leaves by sendfile when the file is a real one.
//!
//! Takes whatever the application wraps; gives its blocks, or the span of a file that may be sent instead.
//! Must not trust `fileno()`: that of a `GzipFile` is its compressed file's.

use std::fs::File;
use std::os::fd::{BorrowedFd, RawFd};
use std::os::unix::fs::MetadataExt;

use pyo3::exceptions::{PyTypeError, PyValueError};
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::PyType;

/// Bytes of a block unless the application says otherwise.
const BLOCK_BYTES: usize = 64 << 10;

/// A file as an iterable of its blocks.
#[pyclass(module = "milepost._milepost", name = "FileWrapper", frozen)]
pub(crate) struct FileWrapper {
    filelike: Py<PyAny>,
    block_bytes: usize,
}

/// A span of a file on disk.
pub(crate) struct FileSpan {
    pub(crate) file: File,
    pub(crate) offset: u64,
    pub(crate) bytes: u64,
}

#[pymethods]
impl FileWrapper {
    #[new]
    #[pyo3(signature = (filelike, block_size=BLOCK_BYTES, /))]
    fn new(filelike: Bound<'_, PyAny>, block_size: usize) -> PyResult<Self> {
        if !filelike.hasattr("read")? {
            let kind = super::type_name(&filelike);
            return Err(PyTypeError::new_err(format!(
                "file_wrapper takes an object with read(), not {kind}"
            )));
        }
        if block_size == 0 {
            return Err(PyValueError::new_err("block_size must be positive"));
        }
        Ok(Self {
            filelike: filelike.unbind(),
            block_bytes: block_size,
        })
    }

    fn __iter__(this: Bound<'_, Self>) -> Bound<'_, Self> {
        this
    }

    fn __next__<'py>(&self, py: Python<'py>) -> PyResult<Option<Bound<'py, PyAny>>> {
        let block = self
            .filelike
            .bind(py)
            .call_method1("read", (self.block_bytes,))?;
        Ok(block.is_truthy()?.then_some(block))
    }

    /// Closes the file, if it can be closed.
    fn close(&self, py: Python<'_>) -> PyResult<()> {
        if let Some(close) = self.filelike.bind(py).getattr_opt("close")? {
            close.call0()?;
        }
        Ok(())
    }
}

impl FileWrapper {
    /// The rest of the file from its position, when it is a regular file that is read as it lies on disk.
    /// `None` when nothing of it does: an empty file, or one that the kernel makes up as it is read, whose
    /// length is not what is read (`/proc` says 0, `/sys` a page).
    ///
    /// A file that refuses to tell is none: reading it raises the error that the application knows.
    pub(crate) fn span(&self, py: Python<'_>) -> Option<FileSpan> {
        let plain = plain_file(self.filelike.bind(py)).ok().flatten()?;
        // What a file that can be written holds back is not on the disk yet.
        plain.call_method0("flush").ok()?;
        // The position that the application sees: a buffered reader has read ahead in its descriptor.
        let offset: u64 = plain.call_method0("tell").ok()?.extract().ok()?;
        let fd: RawFd = plain.call_method0("fileno").ok()?.extract().ok()?;
        // SAFETY: `plain` holds the descriptor open, and nothing of Python runs before it is duplicated.
        let borrowed = unsafe { BorrowedFd::borrow_raw(fd) };
        // A descriptor of its own: the application closes its file as soon as `close()` is called, and the span is
        // sent later.
        let file = File::from(borrowed.try_clone_to_owned().ok()?);
        let about = file.metadata().ok()?;
        let bytes = about.len().saturating_sub(offset);
        let lies_on_disk = about.is_file() && about.blocks() > 0 && bytes > 0;
        lies_on_disk.then_some(FileSpan {
            file,
            offset,
            bytes,
        })
    }
}

/// The object of module `io` that reads the very bytes of a descriptor, looked for within the wrappers
/// that only pass it on.
fn plain_file<'py>(filelike: &Bound<'py, PyAny>) -> PyResult<Option<Bound<'py, PyAny>>> {
    static RAW: PyOnceLock<Py<PyType>> = PyOnceLock::new();
    static READER: PyOnceLock<Py<PyType>> = PyOnceLock::new();
    static RANDOM: PyOnceLock<Py<PyType>> = PyOnceLock::new();
    let py = filelike.py();
    let mut found = filelike.clone();
    for _ in 0..3 {
        if found.is_exact_instance(RAW.import(py, "io", "FileIO")?) {
            return Ok(Some(found));
        }
        if found.is_exact_instance(READER.import(py, "io", "BufferedReader")?)
            || found.is_exact_instance(RANDOM.import(py, "io", "BufferedRandom")?)
        {
            let raw = found.getattr("raw")?;
            return Ok(raw
                .is_exact_instance(RAW.import(py, "io", "FileIO")?)
                .then_some(found));
        }
        // Classes whose `file` is what they read, byte for byte.
        let kind = found.get_type();
        match (kind.module()?.to_str()?, kind.name()?.to_str()?) {
            ("tempfile", "_TemporaryFileWrapper") | ("django.core.files.base", "File") => {}
            _ => return Ok(None),
        }
        found = found.getattr("file")?;
    }
    Ok(None)
}

#[cfg(test)]
mod tests {
    use pyo3::types::PyDict;

    use super::*;

    /// Offset and length of the span of the file that `script` leaves in `f`.
    fn span(script: &std::ffi::CStr) -> Option<(u64, u64)> {
        Python::initialize();
        Python::attach(|py| {
            let names = PyDict::new(py);
            py.run(c"import io, gzip, tempfile, os", Some(&names), None)
                .unwrap();
            py.run(script, Some(&names), None).unwrap();
            let filelike = names.get_item("f").unwrap().unwrap();
            let wrapper = FileWrapper::new(filelike, 10).unwrap();
            wrapper.span(py).map(|span| (span.offset, span.bytes))
        })
    }

    #[test]
    fn only_what_reads_a_file_as_it_lies_is_sent_as_a_file() {
        assert_eq!(
            span(c"f = tempfile.TemporaryFile(); f.write(b'x' * 100); f.seek(30)"),
            Some((30, 70))
        );
        assert_eq!(
            span(c"f = tempfile.NamedTemporaryFile(); f.write(b'x' * 100); f.seek(0)"),
            Some((0, 100))
        );
        // What was written within the buffer of a file that is read as well.
        assert_eq!(span(c"f = tempfile.TemporaryFile(); f.write(b'old'); f.flush(); f.seek(0); f.read(2); f.seek(0); f.write(b'newer'); f.seek(0)"), Some((0, 5)));
        assert_eq!(span(c"t = tempfile.NamedTemporaryFile(); t.write(b'x' * 100); t.flush(); f = open(t.name, 'rb'); f.read(5)"), Some((5, 95)));
        assert_eq!(span(c"t = tempfile.NamedTemporaryFile(); t.write(b'x' * 9); t.flush(); f = open(t.name, 'rb', buffering=0)"), Some((0, 9)));
        assert_eq!(span(c"t = tempfile.NamedTemporaryFile(); g = gzip.open(t.name, 'wb'); g.write(b'x'); g.close(); f = gzip.open(t.name)"), None);
        assert_eq!(
            span(c"r, w = os.pipe(); os.close(w); f = open(r, 'rb', buffering=0)"),
            None
        );
        assert_eq!(span(c"f = io.BytesIO(b'abc')"), None);
    }

    #[test]
    fn reads_blocks_and_closes() {
        Python::initialize();
        Python::attach(|py| {
            let names = PyDict::new(py);
            names.set_item("W", py.get_type::<FileWrapper>()).unwrap();
            let script = c"
import io
f = io.BytesIO(b'abcdefgh')
w = W(f, 3)
assert list(w) == [b'abc', b'def', b'gh']
w.close(); assert f.closed
class R:
    def read(self, n): return b''
W(R()).close()
for wrong in (3, None):
    try: W(wrong)
    except TypeError: pass
    else: raise AssertionError
";
            py.run(script, Some(&names), None).unwrap();
        });
    }
}
