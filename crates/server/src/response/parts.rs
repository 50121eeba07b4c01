//! Parts: the rest of a response that its client has not taken yet, an owned list of buffers and file spans.
//!
//! It is offered to a socket from its front, by the driver or, with spans of files, by a thread that may wait for a
//! disk. That one sends until the socket is full, the parts are gone or the allowance is used up, in steps: after
//! each, the other connections' tasks have their turn. Neither waits for a client.

use std::collections::VecDeque;
use std::fs::File;
use std::io::{self, IoSlice};
use std::os::fd::AsFd;
use std::os::unix::fs::MetadataExt;
use std::sync::Arc;

use bytes::{Buf, Bytes};
use files::{Part, ReplyBody};
use rustix::io::{Errno, ReadWriteFlags, retry_on_intr};
use rustix::net::SendFlags;
use telemetry::Nanos;

use crate::sync::invariant;
use crate::transport::{self, PlainSocket};

/// Buffers offered in one call.
const BUFFERS_MAX: usize = 16;

/// Bytes of a span offered in the first call. Storage that needs 50 ms for each 128 KB takes that long for
/// them that nobody else has his turn.
const SPAN_BYTES_MIN: u64 = 256 << 10;
/// Bytes of a span offered in one call at most, once the storage has proved to be quick.
const SPAN_BYTES_MAX: u64 = 2 << 20;
/// A call that took no longer was served from memory.
const QUICK: Nanos = Nanos(2_000_000);
/// Bytes that one task sends at most, so that the driver hears of a client that takes everything.
const TASK_BYTES_MAX: u64 = 32 << 20;

/// Parts in order; what has been sent is gone from the front.
#[derive(Default, Debug)]
pub(crate) struct Parts {
    parts: VecDeque<Part>,
    memory_bytes: u64,
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
    /// The next bytes are of a file and not in memory: a thread that may wait for its disk has to read them, with
    /// `load_file`. Only where the bytes are read before they are sent.
    OnDisk,
}

/// What was taken out of parts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Gathered {
    /// So many bytes; 0 where there are none, or no room.
    Bytes(usize),
    /// None: the first are of a file and not in memory.
    OnDisk,
}

impl Parts {
    pub(crate) fn is_empty(&self) -> bool {
        self.parts.is_empty()
    }

    /// Appends a part; an empty one is dropped, because a file span of 0 bytes would look truncated.
    pub(crate) fn push(&mut self, part: Part) {
        match &part {
            _ if part.bytes() == 0 => return,
            Part::Memory(_) => self.memory_bytes += part.bytes(),
            Part::File { .. } => self.file_bytes += part.bytes(),
        }
        self.parts.push_back(part);
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

    #[cfg(test)]
    pub(super) fn iter(&self) -> impl Iterator<Item = &Part> {
        self.parts.iter()
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
        // Moved, not copied: a buffer keeps its one charge.
        self.parts.append(&mut other.parts);
        self.memory_bytes += std::mem::take(&mut other.memory_bytes);
        self.file_bytes += std::mem::take(&mut other.file_bytes);
    }

    /// Bytes in memory and bytes in files that are still to go.
    pub(crate) fn bytes(&self) -> (usize, u64) {
        let memory_bytes = usize::try_from(self.memory_bytes);
        (memory_bytes.expect("within memory"), self.file_bytes)
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
            // Consecutive buffers in one call; a span of a file is a call of its own.
            Some(Part::Memory(_)) => self.send_memory(socket, most)?,
            Some(span) => send_span(socket, span, most)?,
        };
        // Before the progress is told: `Done` is about what is left now.
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
        for (slice, part) in slices.iter_mut().zip(&self.parts) {
            // The order of the body: what lies behind a span must not overtake it.
            let Part::Memory(data) = part else { break };
            *slice = IoSlice::new(&data[..data.len().min(most - offered)]);
            offered += slice.len();
            len += 1;
        }
        // A head leaves in one packet with the beginning of the file that follows it.
        let mut flags = SendFlags::empty();
        flags.set(SendFlags::MORE, self.parts.len() > len && offered < most);
        let sent = transport::send(socket, &slices[..len], flags)?;
        // Fewer bytes than offered is how a full socket shows; asking it again would cost a system call.
        Ok((sent < offered, sent))
    }

    /// Takes bytes out of the front, as many as `buffer` has room for, without waiting for a disk; fails as `send` does.
    pub(crate) fn gather(&mut self, buffer: &mut [u8]) -> io::Result<Gathered> {
        let mut filled = 0;
        while filled < buffer.len()
            && let Some(front) = self.parts.front()
        {
            let room = &mut buffer[filled..];
            let taken = match front {
                Part::Memory(data) => {
                    let taken = data.len().min(room.len());
                    room[..taken].copy_from_slice(&data[..taken]);
                    taken
                }
                span => match read_span(span, room, ReadWriteFlags::NOWAIT) {
                    Ok(Some(bytes)) => bytes,
                    // What precedes it is sent first; the next call finds it again.
                    Ok(None) | Err(_) if filled > 0 => break,
                    Ok(None) => return Ok(Gathered::OnDisk),
                    Err(error) => return Err(error),
                },
            };
            filled += taken;
            self.advance(taken as u64);
        }
        Ok(Gathered::Bytes(filled))
    }

    /// How many parts there are.
    pub(crate) fn len(&self) -> usize {
        self.parts.len()
    }

    /// Takes some of the front out, at most `most` bytes, where that needs no disk; `None`: it does. Fails as `send`
    /// does.
    pub(crate) fn take_cached(&mut self, most: usize) -> io::Result<Option<Bytes>> {
        self.take(most, ReadWriteFlags::NOWAIT)
    }

    /// As `take_cached`, on a thread that may wait for a disk.
    pub(crate) fn take_waiting(&mut self, most: usize) -> io::Result<Bytes> {
        let data = self.take(most, ReadWriteFlags::empty())?;
        Ok(data.unwrap_or_default())
    }

    fn take(&mut self, most: usize, flags: ReadWriteFlags) -> io::Result<Option<Bytes>> {
        let data = match self.parts.front() {
            None => Bytes::new(),
            // By reference: its charge lives until the last piece is sent.
            Some(Part::Memory(data)) => data.slice(..data.len().min(most)),
            Some(span) => {
                let bytes = usize::try_from(span.bytes()).unwrap_or(usize::MAX);
                let mut data = vec![0; bytes.min(most)];
                let Some(read) = read_span(span, &mut data, flags)? else {
                    return Ok(None);
                };
                data.truncate(read);
                data.into()
            }
        };
        self.advance(data.len() as u64);
        Ok(Some(data))
    }

    /// Puts bytes in the place of the span of a file at the front, `most` of it; waits for its disk.
    fn load(&mut self, most: usize) -> io::Result<()> {
        let Some(span @ Part::File { .. }) = self.parts.front() else {
            return Ok(());
        };
        let bytes = usize::try_from(span.bytes()).unwrap_or(usize::MAX);
        let mut data = vec![0; bytes.min(most)];
        let read = read_span(span, &mut data, ReadWriteFlags::empty())?.unwrap_or_default();
        data.truncate(read);
        self.advance(read as u64);
        self.memory_bytes += read as u64;
        self.parts.push_front(Part::Memory(data.into()));
        Ok(())
    }

    /// Drops `sent` bytes from the front.
    pub(crate) fn advance(&mut self, mut sent: u64) {
        while sent > 0
            && let Some(front) = self.parts.front_mut()
        {
            let taken = sent.min(front.bytes());
            sent -= taken;
            let left = match front {
                Part::Memory(data) => {
                    data.advance(usize::try_from(taken).expect("within a buffer"));
                    &mut self.memory_bytes
                }
                Part::File { offset, bytes, .. } => {
                    *offset += taken;
                    *bytes -= taken;
                    &mut self.file_bytes
                }
            };
            invariant!(*left >= taken, "a list of parts has lost count");
            *left -= taken;
            if front.bytes() == 0 {
                self.parts.pop_front();
            }
        }
    }
}

/// What became of a task.
pub(crate) struct Written {
    /// What is still to go.
    pub(crate) parts: Parts,
    /// Bytes that the socket took.
    pub(crate) sent: u64,
    /// How the last call went.
    pub(crate) last: io::Result<Progress>,
}

/// The task of sending at most `most` bytes of `parts`, in steps; the last one gives the answer.
pub(crate) fn send_file(
    mut parts: Parts,
    socket: Arc<PlainSocket>,
    most: u64,
) -> impl FnMut() -> Option<Written> {
    let mut left = most.min(TASK_BYTES_MAX);
    let mut span = SPAN_BYTES_MIN;
    let mut sent_in_all = 0;
    move || {
        let began = telemetry::now();
        // A small span first: how long it takes tells whether the file is in memory. Meanwhile this thread serves
        // no other task.
        let last = parts.send(&*socket, span.min(left));
        if let Ok((progress, sent)) = &last {
            sent_in_all += sent;
            left -= sent;
            // Behind the tasks that wait: a quick client of a large file must not keep the others from this thread.
            if *progress == Progress::More && left > 0 {
                span = next_span(span, telemetry::now().since(began));
                return None;
            }
        }
        Some(Written {
            parts: std::mem::take(&mut parts),
            sent: sent_in_all,
            last: last.map(|(progress, _)| progress),
        })
    }
}

fn next_span(span: u64, took: Nanos) -> u64 {
    if took <= QUICK {
        (span * 2).min(SPAN_BYTES_MAX)
    } else {
        SPAN_BYTES_MIN
    }
}

/// As `send_memory`. A short count may mean a full socket or a file that ends early; the next call
/// tells.
fn send_span(socket: &impl AsFd, span: &Part, most: usize) -> io::Result<(bool, usize)> {
    let (file, offset, bytes) = unchanged(span)?;
    match transport::send_span(socket, file, offset, bytes.min(most)) {
        Ok(Some(0)) => Err(io::ErrorKind::UnexpectedEof.into()),
        Ok(sent) => Ok((sent.is_none(), sent.unwrap_or(0))),
        Err(error) if error.kind() == io::ErrorKind::Interrupted => Ok((false, 0)),
        Err(error) => Err(error),
    }
}

/// Reads the front of a span; `None`: not without waiting for a disk, which the flag NOWAIT forbids.
fn read_span(span: &Part, buffer: &mut [u8], flags: ReadWriteFlags) -> io::Result<Option<usize>> {
    let (file, offset, bytes) = unchanged(span)?;
    let bytes = bytes.min(buffer.len());
    let mut slice = io::IoSliceMut::new(&mut buffer[..bytes]);
    // RWF_NOWAIT: nothing is read that is not in memory (preadv2(2)).
    let read = retry_on_intr(|| {
        rustix::io::preadv2(file, std::slice::from_mut(&mut slice), offset, flags)
    });
    match read {
        Ok(0) if bytes > 0 => Err(io::ErrorKind::UnexpectedEof.into()),
        Ok(read) => Ok(Some(read)),
        // A file system that does not know the flag would wait, as for a cold page.
        Err(Errno::AGAIN | Errno::OPNOTSUPP) if flags == ReadWriteFlags::NOWAIT => Ok(None),
        Err(error) => Err(error.into()),
    }
}

/// The task of reading the front of `parts`, a span of a file, into memory: at most `most` bytes of it.
pub(crate) fn load_file(mut parts: Parts, most: u64) -> impl FnMut() -> Option<io::Result<Parts>> {
    move || {
        let loaded = parts.load(usize::try_from(most).unwrap_or(usize::MAX));
        Some(loaded.map(|()| std::mem::take(&mut parts)))
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
    use proptest::prelude::*;
    use std::io::{Read, Write};
    use std::os::unix::net::UnixStream;

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
            let (mut chain, expected) = chain_of(&sizes);
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

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(128))]
        #[test]
        fn gathers_every_byte_in_order_whether_files_are_in_memory_or_loaded(
            sizes in proptest::collection::vec((0_usize..60, any::<bool>()), 1..40),
            rooms in proptest::collection::vec((1_usize..200, any::<bool>()), 1..6),
        ) {
            let (mut chain, expected) = chain_of(&sizes);
            let mut gathered = Vec::new();
            for (room, is_loaded) in rooms.iter().cycle() {
                if *is_loaded {
                    let mut task = load_file(std::mem::take(&mut chain), *room as u64);
                    chain = task().unwrap().unwrap();
                }
                let mut buffer = vec![0; *room];
                match chain.gather(&mut buffer).unwrap() {
                    Gathered::Bytes(bytes) => gathered.extend_from_slice(&buffer[..bytes]),
                    Gathered::OnDisk => {
                        let mut task = load_file(std::mem::take(&mut chain), 7);
                        chain = task().unwrap().unwrap();
                    }
                }
                let (memory_bytes, file_bytes) = chain.bytes();
                let left = memory_bytes as u64 + file_bytes;
                prop_assert_eq!(left, (expected.len() - gathered.len()) as u64);
                if chain.is_empty() {
                    break;
                }
            }
            prop_assert!(gathered == expected);
        }
    }

    #[test]
    fn a_file_that_became_shorter_is_gathered_to_its_end_and_no_further() {
        let mut chain = Parts::default();
        chain.push_copy(b"head");
        chain.push(Part::File {
            file: file_of(b"12345"),
            offset: 0,
            bytes: 10,
            edition: None,
        });
        let mut buffer = [0; 100];
        assert_eq!(chain.gather(&mut buffer).unwrap(), Gathered::Bytes(9));
        assert_eq!(buffer[..9], *b"head12345");
        let error = chain.gather(&mut buffer).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::UnexpectedEof);
        let error = load_file(chain, 100)().unwrap().unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::UnexpectedEof);
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

    #[test]
    fn offers_more_only_while_the_storage_is_quick() {
        let mut span = SPAN_BYTES_MIN;
        for _ in 0..10 {
            span = next_span(span, QUICK);
        }
        assert_eq!(span, SPAN_BYTES_MAX);
        assert_eq!(next_span(span, Nanos(QUICK.0 + 1)), SPAN_BYTES_MIN);
    }
}
