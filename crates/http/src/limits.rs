//! The bounds on what a peer may send: one value, read by every machine of this crate, changed by none.

/// Upper bounds on one exchange's incoming bytes. A bound is the largest value still accepted.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Limits {
    /// Whole head in bytes, from the first byte of the request line (or the empty line tolerated
    /// before it) to its empty line inclusive. Passing it is a 431.
    pub head_bytes_max: usize,
    /// Request target in bytes. Passing it is a 414.
    pub target_bytes_max: usize,
    /// One field line in bytes, its CRLF included. Passing it is a 431.
    pub header_bytes_max: usize,
    /// Number of field lines. Passing it is a 431.
    pub headers_len_max: usize,
    /// Size line of one chunk in bytes, extensions and CRLF included. Passing it is a 400.
    ///
    /// Small because no client needs extensions, and because a chunk of one byte behind a long line
    /// makes the server read a multiple of what counts as body.
    pub chunk_line_bytes_max: usize,
    /// Whole trailer section of a chunked body in bytes, its empty line included. Passing it is a 431.
    pub trailer_bytes_max: usize,
    /// Decoded body in bytes. Passing it is a 413.
    pub body_bytes_max: u64,
}

impl Default for Limits {
    /// What browsers and frameworks stay well below: 32 KiB of head, 8 KiB of target, 100 fields,
    /// 16 MiB of body.
    fn default() -> Self {
        Limits {
            head_bytes_max: 32 * 1024,
            target_bytes_max: 8 * 1024,
            header_bytes_max: 16 * 1024,
            headers_len_max: 100,
            chunk_line_bytes_max: 256,
            trailer_bytes_max: 8 * 1024,
            body_bytes_max: 256 << 20,
        }
    }
}
