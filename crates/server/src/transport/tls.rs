//! A stream under TLS: a socket with ciphertext, and the session that makes plaintext of it.
//!
//! Takes and gives plaintext without waiting. One call enciphers up to 64 KB into full records and offers them to the
//! socket at once. The session is part of a `TlsSocket`, which lends it to the worker that answers. While a worker may
//! have it, its driver asks only what stands here: whether plaintext is left, and whether the client hears more. All
//! buffers are those of the driver, so that an idle connection has none.

use std::cell::Cell;
use std::io::{self, ErrorKind, IoSlice};
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use ::tls::{CurrentTls, HELD_BYTES_MAX, HandshakeFacts, HandshakeInput, Received, SessionFault};

use super::plain::{WatchedSocket, WriteReadiness};
use super::tls_socket::{PLAINTEXT_BYTES, SendBuffers, SessionLoan, TlsSession, TlsSocket, gather};
use crate::response::{Gathered, Parts, Progress};

/// Ciphertext of one read.
const INPUT_BYTES: usize = 64 << 10;
/// It is less where a part of a record waits for its rest, but not less than this.
const INPUT_BYTES_MIN: usize = 16 << 10;

/// A client's stream under TLS.
pub(crate) struct TlsStream {
    socket: WatchedSocket,
    /// What the handshake is accepted with, whenever it begins.
    current: Arc<CurrentTls>,
    buffers: Rc<TlsBuffers>,
    shared: Arc<TlsSocket>,
    /// The session has plaintext, or the end of the client's side, that was not read.
    has_unread: Cell<bool>,
    /// Nothing more is said to the client, not even that the stream ends: it was cut, or has ended.
    is_silent: Cell<bool>,
}

/// Buffers of a driver that only live within one call; each is out while a stream uses it.
#[derive(Default)]
pub(crate) struct TlsBuffers(Cell<Option<Box<TlsScratch>>>);

struct TlsScratch {
    input: Box<[u8]>,
    send: SendBuffers,
}

/// Why a handshake ends without a connection.
#[derive(Debug)]
pub(crate) enum HandshakeFault {
    /// The client has left, or the connection has failed.
    Gone,
    /// The client speaks something else, which begins with this byte.
    NotTls(u8),
    Tls(SessionFault),
}

impl TlsStream {
    pub(super) fn new(
        socket: WatchedSocket,
        current: Arc<CurrentTls>,
        buffers: Rc<TlsBuffers>,
    ) -> Self {
        let shared = Arc::new(TlsSocket::new(Arc::clone(socket.socket())));
        Self {
            socket,
            current,
            buffers,
            shared,
            has_unread: Cell::new(false),
            is_silent: Cell::new(false),
        }
    }

    /// The way of a worker to this stream.
    pub(super) fn shared(&self) -> &Arc<TlsSocket> {
        &self.shared
    }

    pub(super) fn is_handshaking(&self) -> bool {
        (self.shared.lend()).is_some_and(|tls| tls.session.is_handshaking())
    }

    /// Reads until a step of the handshake can be made. Sends what is left of the last one.
    pub(crate) fn poll_handshake_input(
        &self,
        context: &mut Context<'_>,
    ) -> Poll<Result<(), HandshakeFault>> {
        let mut tls = self.session().map_err(|_| HandshakeFault::Gone)?;
        loop {
            if !tls.unsent.is_empty()
                && let Poll::Ready(ready) = self.socket.poll_writable(context)
            {
                let readiness = ready.map_err(|_| HandshakeFault::Gone)?;
                let is_sent = tls.flush(self.socket.socket());
                if !is_sent.map_err(|_| HandshakeFault::Gone)? {
                    readiness.clear();
                    continue;
                }
            }
            let mut scratch = self.buffers.take();
            let read = self
                .socket
                .poll_read(context, &mut scratch.input[..INPUT_BYTES_MIN]);
            let held = match read {
                Poll::Ready(Ok(bytes @ 1..)) => Some(tls.session.hold(&scratch.input[..bytes])),
                _ => None,
            };
            self.buffers.put(scratch);
            match held {
                Some(Ok(HandshakeInput::Ready)) => return Poll::Ready(Ok(())),
                Some(Ok(HandshakeInput::Partial)) => {}
                Some(Ok(HandshakeInput::NotTls)) => {
                    let first = tls.session.held().first().copied();
                    return Poll::Ready(Err(HandshakeFault::NotTls(first.unwrap_or(0))));
                }
                Some(Err(fault)) => return Poll::Ready(Err(HandshakeFault::Tls(fault))),
                None => {
                    ready!(read).map_err(|_| HandshakeFault::Gone)?;
                    return Poll::Ready(Err(HandshakeFault::Gone));
                }
            }
        }
    }

    /// Reads what comes before the handshake: bytes that are no TLS.
    pub(crate) fn poll_preface(
        &self,
        context: &mut Context<'_>,
    ) -> Poll<Result<Vec<u8>, HandshakeFault>> {
        let mut tls = self.session().map_err(|_| HandshakeFault::Gone)?;
        let mut scratch = self.buffers.take();
        let read = self
            .socket
            .poll_read(context, &mut scratch.input[..INPUT_BYTES_MIN]);
        let held = match read {
            Poll::Ready(Ok(bytes @ 1..)) => Some(tls.session.hold(&scratch.input[..bytes])),
            _ => None,
        };
        self.buffers.put(scratch);
        let Some(held) = held else {
            ready!(read).map_err(|_| HandshakeFault::Gone)?;
            return Poll::Ready(Err(HandshakeFault::Gone));
        };
        held.map_err(HandshakeFault::Tls)?;
        Poll::Ready(Ok(tls.session.held().to_vec()))
    }

    /// The first `bytes` bytes are no part of the handshake. Whether a step can be made with those behind them.
    pub(crate) fn skip_preface(&self, bytes: usize) -> Result<bool, HandshakeFault> {
        let mut tls = self.session().map_err(|_| HandshakeFault::Gone)?;
        tls.session.skip(bytes);
        match tls.session.hold(&[]).map_err(HandshakeFault::Tls)? {
            HandshakeInput::Ready => Ok(true),
            HandshakeInput::Partial => Ok(false),
            HandshakeInput::NotTls => {
                let first = tls.session.held().first().copied();
                Err(HandshakeFault::NotTls(first.unwrap_or(0)))
            }
        }
    }

    /// Makes a step of the handshake with what was read. What it has agreed on, once it is over.
    pub(crate) fn step_handshake(&self) -> Result<Option<HandshakeFacts>, HandshakeFault> {
        let mut tls = self.session().map_err(|_| HandshakeFault::Gone)?;
        let server = self.current.load();
        let mut scratch = self.buffers.take();
        let stepped = tls.session.step(&server, &mut scratch.send.output);
        self.has_unread.set(tls.session.has_unread());
        let is_waited_for = match &stepped {
            // Tickets, which a client of TLS 1.3 does not wait for: they leave with the first response.
            Ok(Some(facts)) => facts.version != "TLSv1.3",
            _ => true,
        };
        tls.unsent.extend_from_slice(scratch.send.output.filled());
        self.buffers.put(scratch);
        let sent = match is_waited_for {
            true => tls.flush(self.socket.socket()).map(drop),
            false => Ok(()),
        };
        let facts = stepped.map_err(HandshakeFault::Tls)?;
        sent.map_err(|_| HandshakeFault::Gone)?;
        Ok(facts)
    }

    /// Answers a client that does not speak TLS in its own words, and ends our side.
    pub(crate) fn answer_plainly(&self, answer: &[u8]) {
        let _ = self.socket.send(&[IoSlice::new(answer)]);
        self.socket.close_write();
    }

    /// Reads what such a client still sends, and throws it away; how many bytes.
    pub(crate) fn poll_discard(&self, context: &mut Context<'_>) -> Poll<io::Result<usize>> {
        let mut scratch = self.buffers.take();
        let read = self.socket.poll_read(context, &mut scratch.input);
        self.buffers.put(scratch);
        read
    }

    pub(super) fn poll_read(
        &self,
        context: &mut Context<'_>,
        buffer: &mut [u8],
    ) -> Poll<io::Result<usize>> {
        let mut tls = self.session()?;
        loop {
            if tls.session.has_unread()
                && let Some(read) = self.decipher(&mut tls, 0, buffer)
            {
                return Poll::Ready(read);
            }
            let mut scratch = self.buffers.take();
            let held = tls.session.held().len();
            let room = INPUT_BYTES.saturating_sub(held).max(INPUT_BYTES_MIN);
            let read = self
                .socket
                .poll_read(context, &mut scratch.input[held..held + room]);
            self.buffers.put(scratch);
            let bytes = ready!(read)?;
            // The end of the connection without close_notify: whether something is missing is seen by its length.
            if bytes == 0 {
                return Poll::Ready(Ok(0));
            }
            if let Some(read) = self.decipher(&mut tls, bytes, buffer) {
                return Poll::Ready(read);
            }
        }
    }

    /// Makes plaintext of `new` bytes that are in the input buffer; `None`: nothing has come of them.
    fn decipher(
        &self,
        tls: &mut TlsSession,
        new: usize,
        buffer: &mut [u8],
    ) -> Option<io::Result<usize>> {
        let mut scratch = self.buffers.take();
        let TlsScratch { input, send } = &mut *scratch;
        let input = &mut input[..tls.session.held().len() + new];
        let received = tls.session.receive(input, buffer, &mut send.output);
        self.has_unread.set(tls.session.has_unread());
        // The answer to a change of keys, or an alert. If it cannot leave now, it does with the next bytes.
        tls.unsent.extend_from_slice(send.output.filled());
        self.buffers.put(scratch);
        if !tls.unsent.is_empty() && received.is_err() {
            let _ = tls.flush(self.socket.socket());
        }
        match received {
            Ok(Received::Plaintext(bytes)) => Some(Ok(bytes)),
            Ok(Received::Nothing) => None,
            Ok(Received::End) => Some(Ok(0)),
            Err(fault) => Some(Err(io::Error::new(ErrorKind::InvalidData, fault))),
        }
    }

    pub(super) fn read_now(&self, buffer: &mut [u8]) -> Option<usize> {
        let mut tls = self.shared.lend()?;
        let mut new = 0;
        if !tls.session.has_unread() {
            let mut scratch = self.buffers.take();
            let held = tls.session.held().len();
            let room = &mut scratch.input[held..held + INPUT_BYTES_MIN];
            let read = self.socket.read_now(room);
            self.buffers.put(scratch);
            new = read?;
        }
        let read = self.decipher(&mut tls, new, buffer)?.ok();
        read.filter(|bytes| *bytes > 0)
    }

    pub(super) fn has_ended(&self, context: &mut Context<'_>) -> bool {
        self.socket.has_ended(context)
    }

    pub(super) fn poll_readable(&self, context: &mut Context<'_>) -> Poll<()> {
        match self.has_unread.get() {
            true => Poll::Ready(()),
            false => self.socket.poll_readable(context),
        }
    }

    pub(super) fn poll_writable(
        &self,
        context: &mut Context<'_>,
    ) -> Poll<io::Result<WriteReadiness<'_>>> {
        self.socket.poll_writable(context)
    }

    pub(super) fn is_full(&self) {
        self.socket.is_full();
    }

    pub(super) async fn failed(&self) {
        self.socket.failed().await;
    }

    /// Enciphers as much of the buffers as one call may take, and offers it to the socket. Without buffers, only what
    /// is left of earlier calls.
    pub(super) fn send(&self, buffers: &[IoSlice<'_>]) -> io::Result<usize> {
        let mut tls = self.session()?;
        if tls.is_full && !tls.flush(self.socket.socket())? {
            return Ok(0);
        }
        let mut scratch = self.buffers.take();
        let taken = gather(buffers, 0, &mut scratch.send.plaintext);
        let offered = tls.offer(self.socket.socket(), &mut scratch.send, taken);
        self.buffers.put(scratch);
        offered.map(|()| taken)
    }

    /// As `send`, with the front of `parts`. What is taken counts as sent when it is enciphered: whoever sends the last
    /// of it waits until nothing is unsent.
    pub(super) fn send_parts(&self, parts: &mut Parts, most: u64) -> io::Result<(Progress, u64)> {
        let mut tls = self.session()?;
        if tls.is_full && !tls.flush(self.socket.socket())? {
            return Ok((Progress::Blocked, 0));
        }
        let mut scratch = self.buffers.take();
        let bytes = usize::try_from(most).unwrap_or(usize::MAX);
        let bytes = bytes.min(PLAINTEXT_BYTES);
        let gathered = parts.gather(&mut scratch.send.plaintext[..bytes]);
        let sent = gathered.and_then(|gathered| {
            let taken = match gathered {
                Gathered::Bytes(bytes) => bytes,
                Gathered::OnDisk => 0,
            };
            tls.offer(self.socket.socket(), &mut scratch.send, taken)?;
            let progress = match gathered {
                _ if tls.is_full => Progress::Blocked,
                Gathered::OnDisk => Progress::OnDisk,
                Gathered::Bytes(_) if parts.is_empty() => Progress::Done,
                Gathered::Bytes(_) => Progress::More,
            };
            Ok((progress, taken as u64))
        });
        self.buffers.put(scratch);
        sent
    }

    pub(super) fn has_unsent(&self) -> bool {
        let tls = self.shared.lend();
        tls.is_some_and(|tls| tls.is_full && !tls.unsent.is_empty())
    }

    pub(super) fn unacknowledged(&self) -> u64 {
        let unsent = self.shared.lend().map_or(0, |tls| tls.unsent.len());
        self.socket.unacknowledged() + unsent as u64
    }

    pub(super) fn close_write(&self) {
        self.close();
        self.socket.close_write();
    }

    /// Says that nothing more comes, once, and unless the stream was cut.
    pub(super) fn close(&self) {
        if self.is_silent.replace(true) {
            return;
        }
        let Some(mut tls) = self.shared.lend() else {
            return;
        };
        let mut scratch = self.buffers.take();
        tls.session.close(&mut scratch.send.output);
        tls.unsent.extend_from_slice(scratch.send.output.filled());
        self.buffers.put(scratch);
        if !tls.unsent.is_empty() {
            // A client that takes nothing is not waited for, nor is its own close_notify.
            let _ = tls.flush(self.socket.socket());
        }
    }

    pub(super) fn reset_on_close(&self) {
        // Without close_notify, which would make what was cut look complete (RFC 8446 section 6.1).
        self.is_silent.set(true);
        self.socket.reset_on_close();
    }

    pub(super) fn reset(&self) {
        self.is_silent.set(true);
        self.socket.reset();
    }

    /// The session, which the driver finds away only when a worker has panicked with it.
    fn session(&self) -> io::Result<SessionLoan<'_>> {
        let lost = || io::Error::new(ErrorKind::ConnectionAborted, "the TLS session is lost");
        self.shared.lend().ok_or_else(lost)
    }
}

impl TlsBuffers {
    fn take(&self) -> Box<TlsScratch> {
        // Made at the first use, and anew should a panic have lost them.
        self.0.take().unwrap_or_else(|| {
            Box::new(TlsScratch {
                input: vec![0; HELD_BYTES_MAX + INPUT_BYTES_MIN].into_boxed_slice(),
                send: SendBuffers::default(),
            })
        })
    }

    fn put(&self, mut scratch: Box<TlsScratch>) {
        scratch.send.output.clear();
        self.0.set(Some(scratch));
    }
}
