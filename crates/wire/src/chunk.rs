//! Chunked coding on its way out: the bytes before, between and after pieces of payload.
//!
//! Takes lengths, gives bytes; the payload itself never passes through here.

/// What follows a chunk's data.
pub const CHUNK_SUFFIX: &[u8] = b"\r\n";

/// What ends a chunked body, without trailers. It is sent only when the whole body has been: a cut body
/// must not look complete.
pub const LAST_CHUNK: &[u8] = b"0\r\n\r\n";

/// The end of a chunk's data and of the chunked body in one.
pub const CHUNK_SUFFIX_AND_LAST: &[u8] = b"\r\n0\r\n\r\n";

const DIGITS_MAX: usize = 16;

/// The size line before a chunk's data.
#[derive(Clone, Copy, Debug)]
pub struct ChunkPrefix {
    bytes: [u8; DIGITS_MAX + 2],
    start: usize,
}

impl ChunkPrefix {
    /// The line, its CRLF included: `1f4\r\n`.
    pub fn as_bytes(&self) -> &[u8] {
        &self.bytes[self.start..]
    }
}

/// The size line before `len` bytes of data. `len` 0 would end the body: skip empty pieces instead;
/// panics for it.
pub fn chunk_prefix(len: usize) -> ChunkPrefix {
    assert!(len > 0, "an empty chunk ends the body");
    let mut bytes = [b'\n'; DIGITS_MAX + 2];
    bytes[DIGITS_MAX] = b'\r';
    let mut start = DIGITS_MAX;
    let mut left = len;
    while left > 0 {
        start -= 1;
        bytes[start] = b"0123456789abcdef"[left & 0xf];
        left >>= 4;
    }
    ChunkPrefix { bytes, start }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn writes_sizes_as_the_formatter_of_the_standard_library_does() {
        for len in [1, 9, 10, 15, 16, 255, 256, 500, 65_536, usize::MAX] {
            let expect = format!("{len:x}\r\n");
            assert_eq!(chunk_prefix(len).as_bytes(), expect.as_bytes());
        }
    }

    #[test]
    #[should_panic(expected = "an empty chunk ends the body")]
    fn refuses_to_end_a_body_by_accident() {
        chunk_prefix(0);
    }
}
