//! `wsgi.input`: the complete body of a request, read from memory or from its unnamed file.
//!
//! Takes a body and nothing else; cannot read past its end and cannot touch a socket. Large steps through
//! a file run detached from the interpreter.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;

use pyo3::buffer::PyBuffer;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyList};
use server::exchange::Body;

use crate::raw;

/// Bytes of a spooled body that are read at once while looking for line ends.
const WINDOW_BYTES: usize = 64 << 10;

/// A position in a body.
#[derive(Default)]
pub(crate) struct Reader {
    body: Body,
    position: u64,
    /// Bytes of the file from `window_start` on; empty for a body in memory.
    window: Vec<u8>,
    window_start: u64,
}

impl Reader {
    /// At the beginning of `body`.
    pub(crate) fn new(body: Body) -> Self {
        Self {
            body,
            ..Self::default()
        }
    }

    /// Bytes between the position and the end.
    pub(crate) fn rest_bytes(&self) -> u64 {
        self.body.bytes() - self.position
    }

    /// The next `bytes` bytes when they are in memory; the position moves past them.
    fn borrow(&mut self, bytes: usize) -> Option<&[u8]> {
        let data = match &self.body {
            Body::Empty => &[][..],
            Body::Memory(data) => data,
            Body::File { .. } => return None,
        };
        let start = usize::try_from(self.position).ok()?;
        let taken = data.get(start..start + bytes)?;
        self.position += bytes as u64;
        Some(taken)
    }

    /// Fills `out`, which must not be longer than what is left.
    fn fill(&mut self, out: &mut [u8]) -> io::Result<()> {
        match &self.body {
            Body::Empty => {}
            Body::Memory(data) => {
                let start = self.position as usize;
                out.copy_from_slice(&data[start..start + out.len()]);
            }
            Body::File { file, .. } => file.read_exact_at(out, self.position)?,
        }
        self.position += out.len() as u64;
        Ok(())
    }

    /// The next bytes up to and with a line end, at most `bytes_max` of them, appended to `out`.
    fn line(&mut self, bytes_max: u64, out: &mut Vec<u8>) -> io::Result<()> {
        let mut left = bytes_max.min(self.rest_bytes());
        while left > 0 {
            let seen = self.visible()?;
            let seen = &seen[..seen.len().min(usize::try_from(left).unwrap_or(usize::MAX))];
            let end = seen
                .iter()
                .position(|&byte| byte == b'\n')
                .map(|index| index + 1);
            let taken = end.unwrap_or(seen.len());
            out.extend_from_slice(&seen[..taken]);
            self.position += taken as u64;
            left -= taken as u64;
            if end.is_some() {
                break;
            }
        }
        Ok(())
    }

    /// At least one byte at the position, unless the body is at its end.
    fn visible(&mut self) -> io::Result<&[u8]> {
        match &self.body {
            Body::Empty => Ok(&[]),
            Body::Memory(data) => Ok(&data[self.position as usize..]),
            Body::File { file, bytes } => {
                let offset = self.position.wrapping_sub(self.window_start);
                if offset >= self.window.len() as u64 {
                    let wanted = (bytes - self.position).min(WINDOW_BYTES as u64) as usize;
                    refill(&mut self.window, file, self.position, wanted)?;
                    self.window_start = self.position;
                }
                Ok(&self.window[(self.position - self.window_start) as usize..])
            }
        }
    }
}

fn refill(window: &mut Vec<u8>, file: &File, position: u64, bytes: usize) -> io::Result<()> {
    window.resize(bytes, 0);
    file.read_exact_at(window, position)
        .inspect_err(|_| window.clear())
}

/// The object in `environ["wsgi.input"]`.
#[pyclass(module = "milepost._milepost", name = "Input")]
#[derive(Default)]
pub(crate) struct Input {
    reader: Reader,
}

impl Input {
    /// Begins with another body, or with none.
    pub(crate) fn reset(&mut self, body: Body) {
        match (&self.reader.body, &body) {
            (Body::Empty, Body::Empty) => {}
            _ => self.reader = Reader::new(body),
        }
    }

    /// `size` as Python means it: absent, `None` and negative are everything.
    fn wanted(&self, size: Option<i64>) -> usize {
        let rest = self.reader.rest_bytes();
        let bytes = match size {
            Some(size) if size >= 0 => rest.min(size.cast_unsigned()),
            _ => rest,
        };
        usize::try_from(bytes).unwrap_or(usize::MAX)
    }

    fn next_line<'py>(
        &mut self,
        py: Python<'py>,
        size: Option<i64>,
    ) -> PyResult<Bound<'py, PyBytes>> {
        let bytes_max = self.wanted(size);
        let mut line = Vec::new();
        match &self.reader.body {
            Body::File { .. } => {
                raw::detached(py, || self.reader.line(bytes_max as u64, &mut line))?;
            }
            _ => self.reader.line(bytes_max as u64, &mut line)?,
        }
        Ok(PyBytes::new(py, &line))
    }
}

#[pymethods]
impl Input {
    /// Reads `size` bytes, or all that is left.
    #[pyo3(signature = (size=None, /))]
    fn read<'py>(&mut self, py: Python<'py>, size: Option<i64>) -> PyResult<Bound<'py, PyBytes>> {
        let bytes = self.wanted(size);
        if let Some(data) = self.reader.borrow(bytes) {
            return Ok(PyBytes::new(py, data));
        }
        PyBytes::new_with(py, bytes, |out| {
            Ok(raw::detached(py, || self.reader.fill(out))?)
        })
    }

    /// Fills a writable buffer as far as there are bytes, and returns their number.
    #[expect(clippy::needless_pass_by_value, reason = "arguments come by value")]
    fn readinto(&mut self, py: Python<'_>, buffer: PyBuffer<u8>) -> PyResult<usize> {
        let bytes = self.wanted(i64::try_from(buffer.len_bytes()).ok());
        let mut data = vec![0; bytes.min(WINDOW_BYTES)];
        let target = buffer
            .as_mut_slice(py)
            .filter(|target| target.len() >= bytes);
        let Some(target) = target else {
            return Err(pyo3::exceptions::PyTypeError::new_err(
                "readinto() needs a writable contiguous buffer",
            ));
        };
        for cells in target[..bytes].chunks(WINDOW_BYTES) {
            let data = &mut data[..cells.len()];
            raw::detached(py, || self.reader.fill(data))?;
            cells
                .iter()
                .zip(data.iter())
                .for_each(|(cell, byte)| cell.set(*byte));
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
        self.next_line(py, size)
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
        let start = self.reader.position;
        while self.reader.rest_bytes() > 0 && self.reader.position - start < enough {
            lines.append(self.next_line(py, None)?)?;
        }
        Ok(lines)
    }

    fn __iter__(this: Bound<'_, Self>) -> Bound<'_, Self> {
        this
    }

    fn __next__<'py>(&mut self, py: Python<'py>) -> PyResult<Option<Bound<'py, PyBytes>>> {
        if self.reader.rest_bytes() == 0 {
            return Ok(None);
        }
        self.next_line(py, None).map(Some)
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

    fn lines(body: Body, bytes_max: u64) -> Vec<Vec<u8>> {
        let mut reader = Reader::new(body);
        let mut found = Vec::new();
        while reader.rest_bytes() > 0 {
            let mut line = Vec::new();
            reader.line(bytes_max, &mut line).unwrap();
            found.push(line);
        }
        found
    }

    #[test]
    fn lines_are_the_same_from_memory_and_from_a_file() {
        let long = [vec![b'x'; WINDOW_BYTES + 7], b"\nshort\n".to_vec()].concat();
        for data in [&b"a\nbb\n\nccc"[..], b"\n", b"no end", b"", b"end\n", &long] {
            for bytes_max in [1, 2, 3, 100, u64::MAX] {
                let memory = lines(Body::Memory(data.to_vec()), bytes_max);
                assert_eq!(memory, lines(spooled(data), bytes_max));
                assert_eq!(memory.concat(), data);
            }
        }
        let expect: [&[u8]; 4] = [b"a\n", b"bb\n", b"\n", b"ccc"];
        assert_eq!(
            lines(Body::Memory(b"a\nbb\n\nccc".to_vec()), u64::MAX),
            expect
        );
        let expect: [&[u8]; 5] = [b"a\n", b"bb", b"\n", b"\n", b"cc"];
        assert_eq!(
            lines(Body::Memory(b"a\nbb\n\nccc".to_vec()), 2)[..5],
            expect
        );
    }

    #[test]
    fn reads_and_lines_share_one_position() {
        for body in [
            Body::Memory(b"one\ntwo\nthree".to_vec()),
            spooled(b"one\ntwo\nthree"),
        ] {
            let mut reader = Reader::new(body);
            let mut line = Vec::new();
            reader.line(u64::MAX, &mut line).unwrap();
            let mut two = [0; 2];
            reader.fill(&mut two).unwrap();
            reader.line(u64::MAX, &mut line).unwrap();
            assert_eq!((&line[..], &two), (&b"one\no\n"[..], b"tw"));
            assert_eq!(reader.rest_bytes(), 5);
        }
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
                let mut input = Input::default();
                input.reset(body);
                let names = pyo3::types::PyDict::new(py);
                names.set_item("i", Bound::new(py, input).unwrap()).unwrap();
                py.run(script, Some(&names), None).unwrap();
            }
        });
    }

    #[test]
    fn an_empty_body_reads_as_nothing() {
        Python::initialize();
        Python::attach(|py| {
            let names = pyo3::types::PyDict::new(py);
            names
                .set_item("i", Bound::new(py, Input::default()).unwrap())
                .unwrap();
            py.run(
                c"assert i.read() == i.readline() == b'' and list(i) == []",
                Some(&names),
                None,
            )
            .unwrap();
        });
    }
}
