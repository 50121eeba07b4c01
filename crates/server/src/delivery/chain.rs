//! A reply that the socket has not taken yet: an owned list of buffers and file spans with a cursor.

use std::collections::VecDeque;
use std::io::{self, IoSlice};
use std::os::fd::{AsFd, BorrowedFd};

use bytes::{Buf, Bytes};

use super::Followed;
use crate::reply::{Part, ReplyBody};

/// Buffers offered in one call.
const BUFFERS_MAX: usize = 16;
/// Bytes of a file offered in one call, so that one fast client with a large file does not keep a
/// driver to itself.
const FILE_BYTES_A_CALL: u64 = 256 << 10;

/// Parts in order; what has been sent is gone from the front.
#[derive(Default, Debug)]
pub(crate) struct Chain {
    parts: VecDeque<Part>,
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
    }

    /// Bytes in memory and bytes in files that are still to go.
    pub(crate) fn bytes(&self) -> (usize, u64) {
        self.parts
            .iter()
            .fold((0, 0), |(memory, file), part| match part {
                Part::Memory(data) => (memory + data.len(), file),
                Part::File { bytes, .. } => (memory, file + bytes),
            })
    }

    /// Offers the front to the socket once; gives what happened and the bytes taken.
    ///
    /// The socket must be non-blocking: sendfile has no flag for it.
    ///
    /// A file that is shorter than its span is an `UnexpectedEof`: the reply cannot be completed.
    pub(crate) fn send(&mut self, socket: impl AsFd) -> io::Result<(Progress, u64)> {
        let socket = socket.as_fd();
        let (blocked, sent) = match self.parts.front() {
            None => return Ok((Progress::Done, 0)),
            Some(Part::Memory(_)) => self.send_memory(socket)?,
            Some(Part::File { .. }) => self.send_file(socket)?,
        };
        let progress = match blocked {
            _ if self.parts.is_empty() => Progress::Done,
            true => Progress::Blocked,
            false => Progress::More,
        };
        Ok((progress, sent))
    }

    /// Whether the socket is full, and the bytes that it took.
    fn send_memory(&mut self, socket: BorrowedFd<'_>) -> io::Result<(bool, u64)> {
        let mut slices = [IoSlice::new(&[]); BUFFERS_MAX];
        let mut len = 0;
        let mut offered = 0;
        for part in self.parts.iter().take(BUFFERS_MAX) {
            let Part::Memory(data) = part else { break };
            slices[len] = IoSlice::new(data);
            len += 1;
            offered += data.len();
        }
        // A head leaves in one packet with the beginning of the file that follows it.
        let followed = if self.parts.len() > len {
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
    fn send_file(&mut self, socket: BorrowedFd<'_>) -> io::Result<(bool, u64)> {
        let Some(Part::File {
            file,
            offset,
            bytes,
            ..
        }) = self.parts.front()
        else {
            return Ok((false, 0));
        };
        let offered = (*bytes).min(FILE_BYTES_A_CALL);
        let mut position = *offset;
        let count = usize::try_from(offered).expect("256 KiB fit");
        let sent = match rustix::fs::sendfile(socket, file.as_fd(), Some(&mut position), count) {
            Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
            Ok(sent) => sent as u64,
            Err(rustix::io::Errno::INTR) => return Ok((false, 0)),
            Err(rustix::io::Errno::AGAIN) => 0,
            Err(error) => return Err(error.into()),
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
                    data.advance(usize::try_from(taken).expect("within a buffer"));
                }
                Part::File { offset, bytes, .. } => {
                    *offset += taken;
                    *bytes -= taken;
                }
            }
            if front.bytes() == 0 {
                self.parts.pop_front();
            }
        }
    }
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
                let (progress, sent) = chain.send(&server).unwrap();
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
        assert_eq!(chain.send(&server).unwrap(), (Progress::More, 5));
        let error = chain.send(&server).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::UnexpectedEof);
    }
}
