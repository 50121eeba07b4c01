//! A reply that the socket has not taken yet: an owned list of buffers and file spans with a cursor.

use std::collections::VecDeque;
use std::fs::File;
use std::io::{self, IoSlice};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::fs::MetadataExt;

use bytes::{Buf, Bytes};

use super::Followed;
use crate::reply::{Edition, Part, ReplyBody};

/// Buffers offered in one call.
const BUFFERS_MAX: usize = 16;

/// Parts in order; what has been sent is gone from the front.
#[derive(Default, Debug)]
pub(crate) struct Chain {
    parts: VecDeque<Part>,
    memory_bytes: usize,
    file_bytes: u64,
}

/// What one call achieved.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Progress {
    /// Everything is out.
    Done,
    /// The socket is full for now.
    Blocked,
    /// Some went out; there is more, and the socket may take it.
    More,
}

impl Chain {
    pub(crate) fn is_empty(&self) -> bool {
        self.parts.is_empty()
    }

    /// Appends a part; an empty one is dropped, because a file span of 0 bytes would look truncated.
    pub(crate) fn push(&mut self, part: Part) {
        match &part {
            Part::Memory(data) => self.memory_bytes += data.len(),
            Part::File { bytes, .. } => self.file_bytes += bytes,
        }
        if part.bytes() > 0 {
            self.parts.push_back(part);
        }
    }

    pub(crate) fn push_copy(&mut self, data: &[u8]) {
        self.push(Part::Memory(Bytes::copy_from_slice(data)));
    }

    pub(crate) fn push_body(&mut self, body: ReplyBody) {
        match body {
            ReplyBody::Empty => {}
            ReplyBody::One(part) => self.push(part),
            ReplyBody::Many(parts) => parts.into_iter().for_each(|part| self.push(part)),
        }
    }

    pub(crate) fn append(&mut self, other: &mut Chain) {
        self.parts.append(&mut other.parts);
        self.memory_bytes += std::mem::take(&mut other.memory_bytes);
        self.file_bytes += std::mem::take(&mut other.file_bytes);
    }

    /// Bytes in memory and bytes in files that are still to go.
    pub(crate) fn bytes(&self) -> (usize, u64) {
        (self.memory_bytes, self.file_bytes)
    }

    /// Offers the front to the socket once, at most `most` bytes (not 0) of it; gives what happened and
    /// the bytes taken.
    ///
    /// The socket must be non-blocking: sendfile has no flag for it.
    ///
    /// A file that is shorter than its span, or was changed since its length was announced, is an
    /// `UnexpectedEof`: the reply cannot be completed.
    pub(crate) fn send(&mut self, socket: impl AsFd, most: u64) -> io::Result<(Progress, u64)> {
        let socket = socket.as_fd();
        let (blocked, sent) = match self.parts.front() {
            None => return Ok((Progress::Done, 0)),
            Some(Part::Memory(_)) => self.send_memory(socket, most)?,
            Some(Part::File { .. }) => self.send_file(socket, most)?,
        };
        let progress = match blocked {
            _ if self.parts.is_empty() => Progress::Done,
            true => Progress::Blocked,
            false => Progress::More,
        };
        Ok((progress, sent))
    }

    /// Whether the socket is full, and the bytes that it took.
    fn send_memory(&mut self, socket: BorrowedFd<'_>, most: u64) -> io::Result<(bool, u64)> {
        let most = usize::try_from(most).unwrap_or(usize::MAX);
        let mut slices = [IoSlice::new(&[]); BUFFERS_MAX];
        let mut len = 0;
        let mut offered = 0;
        for part in self.parts.iter().take(BUFFERS_MAX) {
            let Part::Memory(data) = part else { break };
            if offered == most {
                break;
            }
            let fitting = data.len().min(most - offered);
            slices[len] = IoSlice::new(&data[..fitting]);
            len += 1;
            offered += fitting;
        }
        // A head leaves in one packet with the beginning of the file that follows it.
        let followed = if self.parts.len() > len && offered < most {
            Followed::Yes
        } else {
            Followed::No
        };
        let sent = super::send_followed(socket, &slices[..len], followed)?;
        self.advance(sent as u64);
        Ok((sent < offered, sent as u64))
    }

    /// As `send_memory`. A short count may mean a full socket or a file that ends early; the next call
    /// tells.
    fn send_file(&mut self, socket: BorrowedFd<'_>, most: u64) -> io::Result<(bool, u64)> {
        let Some(Part::File {
            file,
            offset,
            bytes,
            edition,
        }) = self.parts.front()
        else {
            return Ok((false, 0));
        };
        let ends_at = offset + bytes;
        if edition.is_some_and(|edition| was_changed(file, &edition, ends_at)) {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        let offered = usize::try_from((*bytes).min(most)).unwrap_or(usize::MAX);
        let sent = match super::send_span(socket, file, *offset, offered) {
            Ok(Some(0)) => return Err(io::ErrorKind::UnexpectedEof.into()),
            Ok(sent) => sent.unwrap_or(0) as u64,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => return Ok((false, 0)),
            Err(error) => return Err(error),
        };
        self.advance(sent);
        Ok((sent == 0, sent))
    }

    /// Drops `sent` bytes from the front.
    pub(crate) fn advance(&mut self, mut sent: u64) {
        while sent > 0 {
            let Some(front) = self.parts.front_mut() else {
                return;
            };
            let taken = sent.min(front.bytes());
            sent -= taken;
            match front {
                Part::Memory(data) => {
                    let taken = usize::try_from(taken).expect("within a buffer");
                    data.advance(taken);
                    self.memory_bytes -= taken;
                }
                Part::File { offset, bytes, .. } => {
                    *offset += taken;
                    *bytes -= taken;
                    self.file_bytes -= taken;
                }
            }
            if front.bytes() == 0 {
                self.parts.pop_front();
            }
        }
    }
}

/// Whether a file is no longer what was announced. One that has only grown at its end is: what was promised
/// of it is still there.
fn was_changed(file: &File, edition: &Edition, ends_at: u64) -> bool {
    let Ok(now) = file.metadata() else {
        return true;
    };
    let is_as_long = now.len() == edition.bytes;
    let is_as_old =
        (now.mtime(), now.mtime_nsec()) == (edition.modified_unix_secs, edition.modified_nanos);
    now.len() < ends_at || (is_as_long && !is_as_old)
}

#[cfg(test)]
mod tests {
    use std::io::{Read, Write};
    use std::os::unix::net::UnixStream;
    use std::sync::Arc;

    use proptest::prelude::*;

    use super::*;

    fn file_of(data: &[u8]) -> Arc<std::fs::File> {
        let mut file = tempfile::tempfile().unwrap();
        file.write_all(data).unwrap();
        Arc::new(file)
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]
        #[test]
        fn sends_every_byte_in_order_whatever_the_reader_takes(
            sizes in proptest::collection::vec((0_usize..40_000, any::<bool>()), 1..12),
            reads in proptest::collection::vec(1_usize..30_000, 1..8),
        ) {
            let (server, mut client) = UnixStream::pair().unwrap();
            let mut chain = Chain::default();
            let mut expected = Vec::new();
            for (index, (size, in_file)) in sizes.iter().enumerate() {
                let data: Vec<u8> = (0..*size).map(|byte| (byte * 7 + index) as u8).collect();
                if *in_file {
                    let mut padded = vec![0xee; 13];
                    padded.extend_from_slice(&data);
                    chain.push(Part::File { file: file_of(&padded), offset: 13, bytes: *size as u64, edition: None });
                } else {
                    chain.push_copy(&data);
                }
                expected.extend_from_slice(&data);
            }
            let mut received = Vec::new();
            let mut turn = 0;
            let mut sent_in_all = 0;
            server.set_nonblocking(true).unwrap();
            client.set_nonblocking(true).unwrap();
            loop {
                let (progress, sent) = chain.send(&server, 50_000).unwrap();
                sent_in_all += sent;
                let mut buffer = vec![0; reads[turn % reads.len()]];
                turn += 1;
                if let Ok(n) = client.read(&mut buffer) {
                    received.extend_from_slice(&buffer[..n]);
                }
                if progress == Progress::Done {
                    break;
                }
            }
            drop(server);
            client.set_nonblocking(false).unwrap();
            client.read_to_end(&mut received).unwrap();
            prop_assert_eq!(sent_in_all, expected.len() as u64);
            prop_assert!(received == expected);
        }
    }

    #[test]
    fn refuses_a_file_that_became_shorter() {
        let (server, _client) = UnixStream::pair().unwrap();
        let mut chain = Chain::default();
        chain.push(Part::File {
            file: file_of(b"12345"),
            offset: 0,
            bytes: 10,
            edition: None,
        });
        assert_eq!(chain.send(&server, 100).unwrap(), (Progress::More, 5));
        let error = chain.send(&server, 100).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::UnexpectedEof);
    }
}
