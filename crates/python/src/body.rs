//! `wsgi.input`: the complete body of a request, read from memory or from its unnamed file.
//!
//! Takes a body and nothing else; cannot read past its end and cannot touch a socket. A file is read detached from
//! the interpreter.

use std::os::unix::fs::FileExt;

use pyo3::buffer::PyBuffer;
use pyo3::exceptions::PyTypeError;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyList};
use server::exchange::Body;

/// Bytes of a spooled body that are read at once while looking for line ends.
const WINDOW_BYTES: usize = 64 << 10;

/// The object in `environ["wsgi.input"]`: a body, and a position in it.
#[pyclass(module = "milepost._milepost", name = "Input")]
#[derive(Default)]
pub(crate) struct Input {
    body: Body,
    position: u64,
    /// Bytes of the file from `window_start` on; empty for a body in memory.
    window: Vec<u8>,
    window_start: u64,
}

impl Input {
    /// At the beginning of `body`.
    pub(crate) fn new(body: Body) -> Self {
        Self {
            body,
            ..Self::default()
        }
    }

    /// Bytes between the position and the end.
    fn rest_bytes(&self) -> u64 {
        let bytes = self.body.bytes();
        assert!(
            self.position <= bytes,
            "a request's body is read past its end"
        );
        bytes - self.position
    }

    /// `size` as Python means it: absent, `None` and negative are everything.
    fn wanted(&self, size: Option<i64>) -> usize {
        let wanted = size.and_then(|size| u64::try_from(size).ok());
        self.rest_bytes().min(wanted.unwrap_or(u64::MAX)) as usize
    }

    /// At least one byte at the position, unless the body is at its end.
    fn visible(&mut self, py: Python<'_>) -> PyResult<&[u8]> {
        let (file, bytes) = match &self.body {
            Body::Empty => return Ok(&[]),
            Body::Memory(data) => return Ok(&data[self.position as usize..]),
            Body::File { file, bytes } => (file, *bytes),
        };
        // Wraps where the window lies behind the position: that is beyond the window too.
        let offset = self.position.wrapping_sub(self.window_start);
        if offset >= self.window.len() as u64 {
            let wanted = (bytes - self.position).min(WINDOW_BYTES as u64) as usize;
            self.window.resize(wanted, 0);
            py.detach(|| file.read_exact_at(&mut self.window, self.position))
                .inspect_err(|_| self.window.clear())?;
            self.window_start = self.position;
        }
        Ok(&self.window[(self.position - self.window_start) as usize..])
    }
}

#[pymethods]
impl Input {
    /// Reads `size` bytes, or all that is left.
    #[pyo3(signature = (size=None, /))]
    fn read<'py>(&mut self, py: Python<'py>, size: Option<i64>) -> PyResult<Bound<'py, PyBytes>> {
        let bytes = self.wanted(size);
        let data = match &self.body {
            Body::Empty => PyBytes::new(py, &[]),
            Body::Memory(data) => PyBytes::new(py, &data[self.position as usize..][..bytes]),
            Body::File { file, .. } => PyBytes::new_with(py, bytes, |out| {
                Ok(py.detach(|| file.read_exact_at(out, self.position))?)
            })?,
        };
        // Behind the reading: an error of the disk leaves the position where it was, and the application may try again.
        self.position += bytes as u64;
        Ok(data)
    }

    /// Fills a writable buffer as far as there are bytes, and returns their number.
    #[expect(clippy::needless_pass_by_value, reason = "arguments come by value")]
    fn readinto(&mut self, py: Python<'_>, buffer: PyBuffer<u8>) -> PyResult<usize> {
        let bytes = self.wanted(i64::try_from(buffer.len_bytes()).ok());
        let Some(target) = buffer.as_mut_slice(py) else {
            return Err(PyTypeError::new_err(
                "readinto() needs a writable contiguous buffer",
            ));
        };
        let mut left = &target[..bytes];
        while !left.is_empty() {
            let seen = self.visible(py)?;
            let (cells, others) = left.split_at(seen.len().min(left.len()));
            for (cell, byte) in cells.iter().zip(seen) {
                cell.set(*byte);
            }
            self.position += cells.len() as u64;
            left = others;
        }
        Ok(bytes)
    }

    /// Reads a line with its end, at most `size` bytes of it.
    #[pyo3(signature = (size=None, /))]
    fn readline<'py>(
        &mut self,
        py: Python<'py>,
        size: Option<i64>,
    ) -> PyResult<Bound<'py, PyBytes>> {
        let mut left = self.wanted(size);
        let mut line = Vec::new();
        while left > 0 {
            let seen = self.visible(py)?;
            let seen = &seen[..seen.len().min(left)];
            let end = seen.iter().position(|&byte| byte == b'\n');
            let taken = end.map_or(seen.len(), |index| index + 1);
            line.extend_from_slice(&seen[..taken]);
            self.position += taken as u64;
            left = if end.is_some() { 0 } else { left - taken };
        }
        Ok(PyBytes::new(py, &line))
    }

    /// Reads lines until about `hint` bytes are read, or all lines.
    #[pyo3(signature = (hint=None, /))]
    fn readlines<'py>(
        &mut self,
        py: Python<'py>,
        hint: Option<i64>,
    ) -> PyResult<Bound<'py, PyList>> {
        let enough = hint
            .filter(|hint| *hint > 0)
            .map_or(u64::MAX, i64::cast_unsigned);
        let lines = PyList::empty(py);
        let start = self.position;
        while self.rest_bytes() > 0 && self.position - start < enough {
            lines.append(self.readline(py, None)?)?;
        }
        Ok(lines)
    }

    fn __iter__(this: Bound<'_, Self>) -> Bound<'_, Self> {
        this
    }

    fn __next__<'py>(&mut self, py: Python<'py>) -> PyResult<Option<Bound<'py, PyBytes>>> {
        match self.rest_bytes() {
            0 => Ok(None),
            _ => self.readline(py, None).map(Some),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use super::*;

    fn spooled(data: &[u8]) -> Body {
        let mut file = tempfile::tempfile().unwrap();
        file.write_all(data).unwrap();
        Body::File {
            file: file.into(),
            bytes: data.len() as u64,
        }
    }

    fn lines(body: Body, bytes_max: i64) -> Vec<Vec<u8>> {
        let mut input = Input::new(body);
        let mut found = Vec::new();
        Python::initialize();
        Python::attach(|py| {
            while input.rest_bytes() > 0 {
                let line = input.readline(py, Some(bytes_max)).unwrap();
                found.push(line.as_bytes().to_vec());
            }
        });
        found
    }

    #[test]
    fn lines_are_the_same_from_memory_and_from_a_file() {
        let long = [vec![b'x'; WINDOW_BYTES + 7], b"\nshort\n".to_vec()].concat();
        for data in [&b"a\nbb\n\nccc"[..], b"\n", b"no end", b"", b"end\n", &long] {
            for bytes_max in [1, 2, 3, 100, i64::MAX] {
                let memory = lines(Body::Memory(data.to_vec()), bytes_max);
                assert_eq!(memory, lines(spooled(data), bytes_max));
                assert_eq!(memory.concat(), data);
            }
        }
        let expect: [&[u8]; 4] = [b"a\n", b"bb\n", b"\n", b"ccc"];
        assert_eq!(
            lines(Body::Memory(b"a\nbb\n\nccc".to_vec()), i64::MAX),
            expect
        );
        let expect: [&[u8]; 5] = [b"a\n", b"bb", b"\n", b"\n", b"cc"];
        assert_eq!(
            lines(Body::Memory(b"a\nbb\n\nccc".to_vec()), 2)[..5],
            expect
        );
    }

    #[test]
    fn reads_as_a_file_does() {
        let script = c"
assert i.read(0) == b''
assert i.read(3) == b'one'
assert i.readline() == b'\\n'
assert i.readline(2) == b'tw'
assert i.readlines(1) == [b'o\\n']
b = bytearray(5); assert i.readinto(b) == 5 and b == b'three', b
assert next(i) == b'\\n'
assert list(i) == [b'four']
assert i.read() == i.read(-1) == i.read(None) == i.read(9) == i.readline() == b''
assert i.readlines() == []
assert i.readinto(bytearray(3)) == 0
";
        Python::initialize();
        Python::attach(|py| {
            for body in [
                Body::Memory(b"one\ntwo\nthree\nfour".to_vec()),
                spooled(b"one\ntwo\nthree\nfour"),
            ] {
                let input = Input::new(body);
                let names = pyo3::types::PyDict::new(py);
                names.set_item("i", Bound::new(py, input).unwrap()).unwrap();
                py.run(script, Some(&names), None).unwrap();
            }
        });
    }
}
