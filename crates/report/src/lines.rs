//! Bytes cut into lines.
//!
//! Takes a reader, gives each whole line without its end, in bounded memory: a line over 1 MB is passed
//! over and told. What has no end yet waits for it. Must not know what is in a line.

use std::io::{self, Read};

use memchr::{memchr, memchr_iter};

/// Longest line that is looked at.
pub(crate) const LINE_BYTES_MAX: usize = 1 << 20;
/// Read at once while lines are short: small enough for the processor's cache.
const BLOCK_BYTES: usize = 256 << 10;

/// One line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Piece<'a> {
    /// Without its end.
    Line(&'a [u8]),
    /// It was longer than [`LINE_BYTES_MAX`].
    TooLong,
}

/// The bytes between the reader and the lines.
#[derive(Debug, Default)]
pub(crate) struct Lines {
    buffer: Vec<u8>,
    /// Bytes at the start of the buffer that wait for the end of their line.
    held_bytes: usize,
    /// The rest of a line that is too long is still coming.
    is_skipping: bool,
}

impl Lines {
    /// Reads once and gives all lines that are whole now; 0 when there was nothing to read.
    pub(crate) fn turn(
        &mut self,
        reader: &mut dyn Read,
        take: &mut dyn FnMut(Piece<'_>),
    ) -> io::Result<usize> {
        self.make_room(take);
        let read_bytes = loop {
            match reader.read(&mut self.buffer[self.held_bytes..]) {
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                result => break result?,
            }
        };
        let end = self.held_bytes + read_bytes;
        assert!(
            end <= self.buffer.len(),
            "a reader gives no more than there is room for"
        );
        let mut from = 0;
        let mut searched = self.held_bytes;
        if self.is_skipping {
            let Some(at) = memchr(b'\n', &self.buffer[..end]) else {
                self.held_bytes = 0;
                return Ok(read_bytes);
            };
            self.is_skipping = false;
            from = at + 1;
            searched = from;
        }
        for at in memchr_iter(b'\n', &self.buffer[searched..end]) {
            let at = searched + at;
            take(Piece::Line(&self.buffer[from..at]));
            from = at + 1;
        }
        // What has no end yet moves to the front: a line is always in one piece when it is given.
        self.buffer.copy_within(from..end, 0);
        self.held_bytes = end - from;
        Ok(read_bytes)
    }

    /// Whether the last line has no end.
    pub(crate) fn has_unended(&self) -> bool {
        self.held_bytes > 0 || self.is_skipping
    }

    /// Forgets what has no end.
    pub(crate) fn forget(&mut self) {
        self.held_bytes = 0;
        self.is_skipping = false;
    }

    fn make_room(&mut self, take: &mut dyn FnMut(Piece<'_>)) {
        if self.held_bytes > LINE_BYTES_MAX {
            self.held_bytes = 0;
            self.is_skipping = true;
            take(Piece::TooLong);
        }
        // At least half a block, so that a long line is not read byte by byte.
        if self.buffer.len() - self.held_bytes < BLOCK_BYTES / 2 {
            self.buffer.resize(self.buffer.len() + BLOCK_BYTES, 0);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// Gives its bytes in the given portions.
    struct Portions<'a> {
        rest: &'a [u8],
        sizes: Vec<usize>,
    }

    impl Read for Portions<'_> {
        fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
            let size = self.sizes.pop().unwrap_or(usize::MAX).max(1);
            let size = size.min(buffer.len()).min(self.rest.len());
            let (now, rest) = self.rest.split_at(size);
            buffer[..size].copy_from_slice(now);
            self.rest = rest;
            Ok(size)
        }
    }

    fn lines_of(text: &[u8], sizes: Vec<usize>) -> (Vec<Option<Vec<u8>>>, bool) {
        let mut found = Vec::new();
        let mut lines = Lines::default();
        let mut reader = Portions { rest: text, sizes };
        while lines
            .turn(&mut reader, &mut |piece| {
                found.push(match piece {
                    Piece::Line(line) => Some(line.to_vec()),
                    Piece::TooLong => None,
                });
            })
            .unwrap()
            > 0
        {}
        (found, lines.has_unended())
    }

    #[test]
    fn passes_over_a_line_that_is_too_long() {
        let long = vec![b'x'; LINE_BYTES_MAX * 3];
        let text = [b"one\n", &long[..], b"\ntwo\n"].concat();
        let (found, has_unended) = lines_of(&text, Vec::new());
        assert_eq!(found, [Some(b"one".to_vec()), None, Some(b"two".to_vec())]);
        assert!(!has_unended);
    }

    #[test]
    fn takes_a_line_of_a_megabyte() {
        let long = vec![b'x'; LINE_BYTES_MAX];
        let (found, _) = lines_of(&[&long[..], b"\n"].concat(), Vec::new());
        assert_eq!(found, [Some(long)]);
    }

    #[test]
    fn keeps_what_has_no_end() {
        let (found, has_unended) = lines_of(b"one\ntw", Vec::new());
        assert_eq!((found.len(), has_unended), (1, true));
    }

    proptest! {
        #[test]
        fn portions_change_nothing(
            text in prop::collection::vec(prop::sample::select(&b"ab\n"[..]), 0..60),
            sizes in prop::collection::vec(1..7usize, 60),
        ) {
            let (found, has_unended) = lines_of(&text, sizes);
            let mut expect: Vec<_> = text.split(|&byte| byte == b'\n').map(|line| Some(line.to_vec())).collect();
            let last = expect.pop().flatten().unwrap_or_default();
            prop_assert_eq!(found, expect);
            prop_assert_eq!(has_unended, !last.is_empty());
        }
    }
}
