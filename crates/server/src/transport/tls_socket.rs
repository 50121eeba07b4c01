//! A socket under TLS: the session that enciphers, and the part of it that a worker may write to.
//!
//! ```text
//! there ──lend──► with one thread ──the loan is dropped──► there
//! ```
//! Records are numbered: they are enciphered and offered by one thread at a time, and ciphertext that the socket does
//! not take stays with the session and goes first. The lock is held to move a pointer, never while anything is
//! enciphered or sent. A worker borrows the session behind `mark_started` of its stream and before `end` or
//! `pass_to_driver`, its driver at all other times: neither finds it away, and neither would wait for it.

use std::io::{self, ErrorKind, IoSlice};
use std::ops::{Deref, DerefMut};
use std::sync::{Arc, Mutex};

use ::tls::{Ciphertext, Session};
use rustix::net::SendFlags;

use super::plain::{self, PlainSocket};
use crate::sync::lock;

/// Plaintext of one call: four full records.
pub(super) const PLAINTEXT_BYTES: usize = 64 << 10;
/// Room for their ciphertext. It grows where an answer of TLS itself comes along.
const OUTPUT_BYTES: usize = PLAINTEXT_BYTES + (4 << 10);
/// Calls of a worker for one piece. The rest of a larger one is its driver's, which lets others have their turn.
const CALLS_MAX: usize = 4;

/// A client's socket with its TLS session. Shared by its driver and a worker that answers through it.
pub(crate) struct TlsSocket {
    socket: Arc<PlainSocket>,
    /// `None` while a thread has it, and for good once one has panicked with it.
    session: Mutex<Option<Box<TlsSession>>>,
}

/// What numbers the records of a connection.
#[derive(Default)]
pub(super) struct TlsSession {
    pub(super) session: Session,
    /// Ciphertext that the socket has not taken: of one call, and answers of TLS itself.
    pub(super) unsent: Vec<u8>,
    /// The socket was full at the last call.
    pub(super) is_full: bool,
}

/// The session, in the hands of one thread until this is dropped.
pub(super) struct SessionLoan<'a> {
    owner: &'a TlsSocket,
    session: Option<Box<TlsSession>>,
}

/// Buffers of a thread that enciphers; nothing is in them between two calls.
pub(crate) struct SendBuffers {
    pub(super) plaintext: Box<[u8]>,
    pub(super) output: Ciphertext,
}

/// What a worker's offer achieved.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Offered {
    /// Bytes of the response that were taken.
    pub(crate) bytes: usize,
    /// Some of them still wait for the socket, as ciphertext: the driver is to send it.
    pub(crate) has_unsent: bool,
}

impl TlsSocket {
    pub(super) fn new(socket: Arc<PlainSocket>) -> Self {
        Self {
            socket,
            session: Mutex::new(Some(Box::default())),
        }
    }

    /// The session; `None`: another thread has it, or lost it by a panic.
    pub(super) fn lend(&self) -> Option<SessionLoan<'_>> {
        let session = lock(&self.session).take()?;
        Some(SessionLoan {
            owner: self,
            session: Some(session),
        })
    }

    /// Worker: enciphers the front of the buffers and offers it to the socket, without waiting. Nothing is taken where
    /// the session is away, or something before it is unsent.
    pub(crate) fn send(
        &self,
        buffers: &[IoSlice<'_>],
        scratch: &mut Option<Box<SendBuffers>>,
    ) -> io::Result<Offered> {
        let mut offered = Offered::default();
        let Some(mut session) = self.lend() else {
            return Ok(offered);
        };
        if session.is_full {
            return Ok(offered);
        }
        let scratch = scratch.get_or_insert_default();
        for _ in 0..CALLS_MAX {
            let bytes = gather(buffers, offered.bytes, &mut scratch.plaintext);
            if bytes == 0 {
                break;
            }
            session.offer(&self.socket, scratch, bytes)?;
            offered.bytes += bytes;
            offered.has_unsent = session.is_full;
            if session.is_full {
                break;
            }
        }
        Ok(offered)
    }
}

impl TlsSession {
    /// Enciphers `bytes` bytes of the plaintext buffer and offers them, behind what is unsent, in one call.
    pub(super) fn offer(
        &mut self,
        socket: &PlainSocket,
        buffers: &mut SendBuffers,
        bytes: usize,
    ) -> io::Result<()> {
        let SendBuffers { plaintext, output } = buffers;
        output.clear();
        let sent = self.session.send(&plaintext[..bytes], output);
        sent.map_err(|fault| io::Error::new(ErrorKind::ConnectionAborted, fault))?;
        let before = self.unsent.len();
        let offered = before + output.filled().len();
        if offered == 0 {
            return Ok(());
        }
        let slices = [IoSlice::new(&self.unsent), IoSlice::new(output.filled())];
        // Empty buffers are walked by the kernel too.
        let slices = &slices[usize::from(before == 0)..];
        let sent = plain::send(socket, slices, SendFlags::empty())?;
        let of_output = sent.saturating_sub(before);
        self.unsent.drain(..sent.min(before));
        self.unsent.extend_from_slice(&output.filled()[of_output..]);
        self.is_full = sent < offered;
        if !self.is_full {
            self.unsent = Vec::new();
        }
        Ok(())
    }

    /// Offers what is unsent, if there is any; whether all of it is out.
    pub(super) fn flush(&mut self, socket: &PlainSocket) -> io::Result<bool> {
        if self.unsent.is_empty() {
            self.is_full = false;
            return Ok(true);
        }
        let slices = [IoSlice::new(&self.unsent)];
        let sent = plain::send(socket, &slices, SendFlags::empty())?;
        self.unsent.drain(..sent);
        self.is_full = !self.unsent.is_empty();
        if !self.is_full {
            self.unsent = Vec::new();
        }
        Ok(!self.is_full)
    }
}

impl Default for SendBuffers {
    fn default() -> Self {
        Self {
            plaintext: vec![0; PLAINTEXT_BYTES].into_boxed_slice(),
            output: Ciphertext::with_capacity(OUTPUT_BYTES),
        }
    }
}

const IS_LENT: &str = "the loan has the session until it is dropped";

impl Deref for SessionLoan<'_> {
    type Target = TlsSession;

    fn deref(&self) -> &TlsSession {
        self.session.as_ref().expect(IS_LENT)
    }
}

impl DerefMut for SessionLoan<'_> {
    fn deref_mut(&mut self) -> &mut TlsSession {
        self.session.as_mut().expect(IS_LENT)
    }
}

impl Drop for SessionLoan<'_> {
    fn drop(&mut self) {
        // A session that was left in the middle of a step enciphers nothing more: the connection has failed.
        if !std::thread::panicking() {
            *lock(&self.owner.session) = self.session.take();
        }
    }
}

/// Copies buffers from their byte `skip` on, as far as there is room; how many bytes.
pub(super) fn gather(buffers: &[IoSlice<'_>], mut skip: usize, room: &mut [u8]) -> usize {
    let mut filled = 0;
    for buffer in buffers {
        let skipped = skip.min(buffer.len());
        skip -= skipped;
        let room = &mut room[filled..];
        let bytes = (buffer.len() - skipped).min(room.len());
        room[..bytes].copy_from_slice(&buffer[skipped..skipped + bytes]);
        filled += bytes;
    }
    filled
}

#[cfg(test)]
mod tests {
    use std::os::unix::net::UnixStream;
    use std::panic::{AssertUnwindSafe, catch_unwind};

    use super::*;

    fn socket() -> (TlsSocket, UnixStream) {
        let (here, there) = UnixStream::pair().unwrap();
        (
            TlsSocket::new(Arc::new(PlainSocket::plain(here.into()))),
            there,
        )
    }

    /// Takes nothing, and makes no buffers for it.
    fn check_takes_nothing(socket: &TlsSocket) {
        let mut scratch = None;
        let offered = socket.send(&[IoSlice::new(b"abc")], &mut scratch).unwrap();
        assert_eq!(offered, Offered::default());
        assert!(scratch.is_none());
    }

    #[test]
    fn one_thread_at_a_time_has_the_session() {
        let (socket, _client) = socket();
        let loan = socket.lend().unwrap();
        assert!(socket.lend().is_none());
        check_takes_nothing(&socket);
        drop(loan);
        assert!(socket.lend().is_some());
    }

    #[test]
    fn a_worker_sends_nothing_in_front_of_what_is_unsent() {
        let (socket, _client) = socket();
        let mut loan = socket.lend().unwrap();
        loan.unsent.extend_from_slice(b"a part of a record");
        loan.is_full = true;
        drop(loan);
        check_takes_nothing(&socket);
        let mut loan = socket.lend().unwrap();
        assert!(loan.flush(&socket.socket).unwrap());
        assert!(loan.unsent.is_empty() && !loan.is_full);
    }

    #[test]
    fn a_session_is_lost_with_a_panic_in_the_middle_of_a_step() {
        let (socket, _client) = socket();
        let lost = catch_unwind(AssertUnwindSafe(|| {
            let _loan = socket.lend().unwrap();
            panic!("on purpose");
        }));
        assert!(lost.is_err());
        assert!(socket.lend().is_none());
        check_takes_nothing(&socket);
    }

    #[test]
    fn gathers_from_any_byte_on_as_much_as_there_is_room_for() {
        let buffers = [&b"abc"[..], b"", b"defg", b"h"].map(IoSlice::new);
        for skip in 0..=8 {
            for room in 0..=9 {
                let mut filled = vec![0; room];
                let bytes = gather(&buffers, skip, &mut filled);
                let expect = &b"abcdefgh"[skip..];
                let expect = &expect[..expect.len().min(room)];
                assert_eq!(&filled[..bytes], expect, "{skip} {room}");
            }
        }
    }
}
