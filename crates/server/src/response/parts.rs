//! Parts: the rest of a response that its client has not taken yet, an owned list of buffers and file spans.

use std::collections::VecDeque;
use std::fs::File;
use std::io::{self, IoSlice};
use std::os::fd::AsFd;
use std::os::unix::fs::MetadataExt;

use bytes::Buf;

use crate::reply::{Part, ReplyBody};
use crate::sync::invariant;
use crate::transport::{self, Followed};

/// Buffers offered in one call.
const BUFFERS_MAX: usize = 16;

/// Parts in order; what has been sent is gone from the front.
#[derive(Default, Debug)]
pub(crate) struct Parts {
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

impl Parts {
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

    #[cfg(test)]
    pub(crate) fn push_copy(&mut self, data: &[u8]) {
        self.push(Part::Memory(bytes::Bytes::copy_from_slice(data)));
    }

    pub(crate) fn push_body(&mut self, body: ReplyBody) {
        match body {
            ReplyBody::Empty => {}
            ReplyBody::One(part) => self.push(part),
            ReplyBody::Many(parts) => parts.into_iter().for_each(|part| self.push(part)),
        }
    }

    /// The parts one by one; no count is kept of them.
    pub(super) fn into_parts(self) -> VecDeque<Part> {
        self.parts
    }

    /// Lets go of all buffers; spans of files stay.
    pub(crate) fn drop_buffers(&mut self) {
        self.parts.retain(|part| matches!(part, Part::File { .. }));
        self.memory_bytes = 0;
    }

    pub(crate) fn append(&mut self, other: &mut Parts) {
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
    pub(crate) fn send(&mut self, socket: &impl AsFd, most: u64) -> io::Result<(Progress, u64)> {
        let most = usize::try_from(most).unwrap_or(usize::MAX);
        let (is_full, sent) = match self.parts.front() {
            None => (false, 0),
            Some(Part::Memory(_)) => self.send_memory(socket, most)?,
            Some(span) => send_file(socket, span, most)?,
        };
        self.advance(sent as u64);
        let progress = match is_full {
            _ if self.parts.is_empty() => Progress::Done,
            true => Progress::Blocked,
            false => Progress::More,
        };
        Ok((progress, sent as u64))
    }

    /// Whether the socket is full, and the bytes that it took.
    fn send_memory(&self, socket: &impl AsFd, most: usize) -> io::Result<(bool, usize)> {
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
        let sent = transport::send(socket, &slices[..len], followed)?;
        Ok((sent < offered, sent))
    }

    /// Takes some of the front out as bytes, at most `most`; fails as `send` does.
    #[cfg(feature = "faults")]
    pub(crate) fn read(&mut self, most: usize) -> io::Result<Vec<u8>> {
        use std::os::unix::fs::FileExt;
        let data = match self.parts.front() {
            None => return Ok(Vec::new()),
            Some(Part::Memory(data)) => data[..data.len().min(most)].to_vec(),
            Some(span) => {
                let (file, offset, bytes) = unchanged(span)?;
                let mut data = vec![0; bytes.min(most)];
                let read = file.read_at(&mut data, offset)?;
                if read == 0 && !data.is_empty() {
                    return Err(io::ErrorKind::UnexpectedEof.into());
                }
                data.truncate(read);
                data
            }
        };
        self.advance(data.len() as u64);
        Ok(data)
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
                    invariant!(self.memory_bytes >= taken, "a list of parts has lost count");
                    self.memory_bytes -= taken;
                }
                Part::File { offset, bytes, .. } => {
                    *offset += taken;
                    *bytes -= taken;
                    invariant!(self.file_bytes >= taken, "a list of parts has lost count");
                    self.file_bytes -= taken;
                }
            }
            if front.bytes() == 0 {
                self.parts.pop_front();
            }
        }
    }
}

/// As `send_memory`. A short count may mean a full socket or a file that ends early; the next call
/// tells.
fn send_file(socket: &impl AsFd, span: &Part, most: usize) -> io::Result<(bool, usize)> {
    let (file, offset, bytes) = unchanged(span)?;
    match transport::send_span(socket, file, offset, bytes.min(most)) {
        Ok(Some(0)) => Err(io::ErrorKind::UnexpectedEof.into()),
        Ok(sent) => Ok((sent.is_none(), sent.unwrap_or(0))),
        Err(error) if error.kind() == io::ErrorKind::Interrupted => Ok((false, 0)),
        Err(error) => Err(error),
    }
}

/// The file, the offset and the bytes of a span, if the file is still what was announced. One that has only grown
/// at its end is: what was promised of it is still there.
fn unchanged(span: &Part) -> io::Result<(&File, u64, usize)> {
    let Part::File {
        file,
        offset,
        bytes,
        edition,
    } = span
    else {
        unreachable!("a buffer is no span of a file");
    };
    if let Some(edition) = edition {
        let is_unchanged = file.metadata().is_ok_and(|now| {
            let modified = (now.mtime(), now.mtime_nsec());
            let is_as_old = modified == (edition.modified_unix_secs, edition.modified_nanos);
            now.len() >= offset + bytes && (is_as_old || now.len() != edition.bytes)
        });
        if !is_unchanged {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
    }
    Ok((file, *offset, usize::try_from(*bytes).unwrap_or(usize::MAX)))
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
            let mut chain = Parts::default();
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

    /// A chain of parts in memory and in files, and its bytes.
    fn chain_of(sizes: &[(usize, bool)]) -> (Parts, Vec<u8>) {
        let mut chain = Parts::default();
        let mut bytes = Vec::new();
        for (index, (size, in_file)) in sizes.iter().enumerate() {
            let data: Vec<u8> = (0..*size).map(|at| (at * 7 + index * 29) as u8).collect();
            bytes.extend_from_slice(&data);
            if *in_file {
                chain.push(Part::File {
                    file: file_of(&[b"xx", &data[..], b"yy"].concat()),
                    offset: 2,
                    bytes: *size as u64,
                    edition: None,
                });
            } else {
                chain.push_copy(&data);
            }
        }
        (chain, bytes)
    }

    /// Sends once; the client takes it at once, so that the socket is never full.
    fn send_to(client: &mut Client, chain: &mut Parts, most: u64) -> io::Result<(Progress, u64)> {
        let sent = chain.send(&client.server, most)?;
        let bytes = usize::try_from(sent.1).unwrap();
        let start = client.received.len();
        client.received.resize(start + bytes, 0);
        client.stream.read_exact(&mut client.received[start..])?;
        Ok(sent)
    }

    struct Client {
        server: UnixStream,
        stream: UnixStream,
        received: Vec<u8>,
    }

    fn client() -> Client {
        let (server, stream) = UnixStream::pair().unwrap();
        server.set_nonblocking(true).unwrap();
        stream.set_nonblocking(true).unwrap();
        let received = Vec::new();
        Client {
            server,
            stream,
            received,
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(128))]
        #[test]
        fn sends_no_more_than_it_may_and_says_what_is_left(
            sizes in proptest::collection::vec((0_usize..60, any::<bool>()), 1..40),
            mosts in proptest::collection::vec(prop_oneof![Just(1_u64), 2_u64..9, 9_u64..500], 1..6),
        ) {
            let mut client = client();
            let (mut chain, expected) = chain_of(&sizes);
            let mut left = expected.len() as u64;
            for most in mosts.iter().cycle() {
                let (progress, sent) = send_to(&mut client, &mut chain, *most).unwrap();
                prop_assert!(sent <= *most);
                left -= sent;
                let (memory_bytes, file_bytes) = chain.bytes();
                prop_assert_eq!(memory_bytes as u64 + file_bytes, left);
                prop_assert_eq!(chain.is_empty(), left == 0);
                // This socket takes everything: what it was offered is what is gone.
                let wanted = if left == 0 { Progress::Done } else { Progress::More };
                prop_assert_eq!(&progress, &wanted);
                prop_assert!(sent > 0 || left == 0);
                if progress == Progress::Done {
                    break;
                }
            }
            prop_assert!(client.received == expected);
        }

        #[test]
        fn goes_on_behind_what_was_sent_before(
            sizes in proptest::collection::vec((0_usize..60, any::<bool>()), 1..40),
            before in 0.0..=1.0_f64,
        ) {
            let mut client = client();
            let (mut chain, expected) = chain_of(&sizes);
            let before = (expected.len() as f64 * before) as usize;
            chain.advance(before as u64);
            let (memory_bytes, file_bytes) = chain.bytes();
            prop_assert_eq!(memory_bytes + file_bytes as usize, expected.len() - before);
            while send_to(&mut client, &mut chain, u64::MAX).unwrap().0 != Progress::Done {}
            prop_assert!(client.received == expected[before..]);
        }

        #[test]
        fn sends_nothing_behind_the_end_of_a_file_that_became_shorter(
            before in 0_usize..60,
            promised in 1_u64..60,
            kept in 0.0..1.0_f64,
            most in prop_oneof![Just(1_u64), 2_u64..80],
        ) {
            let kept = (promised as f64 * kept) as u64;
            let mut client = client();
            let (mut chain, mut expected) = chain_of(&[(before, false)]);
            let file = file_of(&vec![b'f'; usize::try_from(promised).unwrap()]);
            file.set_len(kept).unwrap();
            expected.resize(before + usize::try_from(kept).unwrap(), b'f');
            chain.push(Part::File { file, offset: 0, bytes: promised, edition: None });
            chain.push_copy(b"behind it");
            let error = loop {
                match send_to(&mut client, &mut chain, most) {
                    Ok((progress, _)) => prop_assert_eq!(progress, Progress::More),
                    Err(error) => break error,
                }
            };
            prop_assert_eq!(error.kind(), io::ErrorKind::UnexpectedEof);
            prop_assert!(client.received == expected);
        }
    }

    #[test]
    fn a_full_socket_blocks_it_and_a_reset_ends_it() {
        for in_file in [false, true] {
            let (server, client) = UnixStream::pair().unwrap();
            server.set_nonblocking(true).unwrap();
            let (mut chain, expected) = chain_of(&[(3 << 20, in_file)]);
            let mut sent_in_all = 0;
            let full = loop {
                let (progress, sent) = chain.send(&server, 64 << 10).unwrap();
                sent_in_all += sent;
                if progress != Progress::More {
                    break progress;
                }
            };
            assert_eq!(full, Progress::Blocked);
            assert_eq!(chain.send(&server, 1).unwrap(), (Progress::Blocked, 0));
            let (memory_bytes, file_bytes) = chain.bytes();
            let left = memory_bytes as u64 + file_bytes;
            assert_eq!(left, expected.len() as u64 - sent_in_all);
            drop(client);
            let error = chain.send(&server, 1).unwrap_err();
            assert_eq!(error.kind(), io::ErrorKind::BrokenPipe);
        }
    }

    #[test]
    fn refuses_a_file_that_became_shorter() {
        let (server, _client) = UnixStream::pair().unwrap();
        let mut chain = Parts::default();
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
