//! A stream under TLS: a socket with ciphertext, and the session that makes plaintext of it.
//!
//! Takes and gives plaintext without waiting. One call enciphers up to 64 KB into full records and offers them to the
//! socket at once; ciphertext that the socket does not take stays here and goes first, because records are numbered:
//! none may be left out or sent twice. All other buffers are those of the driver, so that an idle connection has none.

use std::cell::{Cell, RefCell};
use std::io::{self, ErrorKind, IoSlice};
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use ::tls::{
    Ciphertext, CurrentTls, HELD_BYTES_MAX, HandshakeFacts, HandshakeInput, Received, Session,
    SessionFault,
};
use rustix::net::SendFlags;

use super::plain::{self, WatchedSocket, WriteReadiness};
use crate::response::{Gathered, Parts, Progress};

/// Ciphertext of one read.
const INPUT_BYTES: usize = 64 << 10;
/// It is less where a part of a record waits for its rest, but not less than this.
const INPUT_BYTES_MIN: usize = 16 << 10;
/// Plaintext of one call: four full records.
const PLAINTEXT_BYTES: usize = 64 << 10;
/// Room for their ciphertext. It grows where an answer of TLS itself comes along.
const OUTPUT_BYTES: usize = PLAINTEXT_BYTES + (4 << 10);

/// A client's stream under TLS.
pub(crate) struct TlsStream {
    socket: WatchedSocket,
    /// What the handshake is accepted with, whenever it begins.
    current: Arc<CurrentTls>,
    buffers: Rc<TlsBuffers>,
    // Borrowed within a call; no call waits.
    state: RefCell<TlsState>,
}

struct TlsState {
    session: Session,
    /// Ciphertext that the socket has not taken: of one call, and answers of TLS itself.
    unsent: Vec<u8>,
    /// The socket was full at the last call.
    is_full: bool,
    /// Nothing more is said to the client, not even that the stream ends: it was cut, or has ended.
    is_silent: bool,
}

/// Buffers of a driver that only live within one call; each is out while a stream uses it.
#[derive(Default)]
pub(crate) struct TlsBuffers(Cell<Option<Box<TlsScratch>>>);

struct TlsScratch {
    input: Box<[u8]>,
    plaintext: Box<[u8]>,
    output: Ciphertext,
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
        Self {
            socket,
            current,
            buffers,
            state: RefCell::new(TlsState {
                session: Session::default(),
                unsent: Vec::new(),
                is_full: false,
                is_silent: false,
            }),
        }
    }

    pub(super) fn is_handshaking(&self) -> bool {
        self.state.borrow().session.is_handshaking()
    }

    /// Reads until a step of the handshake can be made. Sends what is left of the last one.
    pub(crate) fn poll_handshake_input(
        &self,
        context: &mut Context<'_>,
    ) -> Poll<Result<(), HandshakeFault>> {
        let mut state = self.state.borrow_mut();
        loop {
            if !state.unsent.is_empty()
                && let Poll::Ready(ready) = self.socket.poll_writable(context)
            {
                let readiness = ready.map_err(|_| HandshakeFault::Gone)?;
                let is_sent = self.flush(&mut state);
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
                Poll::Ready(Ok(bytes @ 1..)) => Some(state.session.hold(&scratch.input[..bytes])),
                _ => None,
            };
            self.buffers.put(scratch);
            match held {
                Some(Ok(HandshakeInput::Ready)) => return Poll::Ready(Ok(())),
                Some(Ok(HandshakeInput::Partial)) => {}
                Some(Ok(HandshakeInput::NotTls)) => {
                    let first = state.session.held().first().copied();
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
        let mut state = self.state.borrow_mut();
        let mut scratch = self.buffers.take();
        let read = self
            .socket
            .poll_read(context, &mut scratch.input[..INPUT_BYTES_MIN]);
        let held = match read {
            Poll::Ready(Ok(bytes @ 1..)) => Some(state.session.hold(&scratch.input[..bytes])),
            _ => None,
        };
        self.buffers.put(scratch);
        let Some(held) = held else {
            ready!(read).map_err(|_| HandshakeFault::Gone)?;
            return Poll::Ready(Err(HandshakeFault::Gone));
        };
        held.map_err(HandshakeFault::Tls)?;
        Poll::Ready(Ok(state.session.held().to_vec()))
    }

    /// The first `bytes` bytes are no part of the handshake. Whether a step can be made with those behind them.
    pub(crate) fn skip_preface(&self, bytes: usize) -> Result<bool, HandshakeFault> {
        let mut state = self.state.borrow_mut();
        state.session.skip(bytes);
        match state.session.hold(&[]).map_err(HandshakeFault::Tls)? {
            HandshakeInput::Ready => Ok(true),
            HandshakeInput::Partial => Ok(false),
            HandshakeInput::NotTls => {
                let first = state.session.held().first().copied();
                Err(HandshakeFault::NotTls(first.unwrap_or(0)))
            }
        }
    }

    /// Makes a step of the handshake with what was read. What it has agreed on, once it is over.
    pub(crate) fn step_handshake(&self) -> Result<Option<HandshakeFacts>, HandshakeFault> {
        let mut state = self.state.borrow_mut();
        let server = self.current.load();
        let mut scratch = self.buffers.take();
        let stepped = state.session.step(&server, &mut scratch.output);
        let is_waited_for = match &stepped {
            // Tickets, which a client of TLS 1.3 does not wait for: they leave with the first response.
            Ok(Some(facts)) => facts.version != "TLSv1.3",
            _ => true,
        };
        state.unsent.extend_from_slice(scratch.output.filled());
        self.buffers.put(scratch);
        let sent = match is_waited_for {
            true => self.flush(&mut state).map(drop),
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
        loop {
            let mut state = self.state.borrow_mut();
            if state.session.has_unread()
                && let Some(read) = self.decipher(&mut state, 0, buffer)
            {
                return Poll::Ready(read);
            }
            let mut scratch = self.buffers.take();
            let held = state.session.held().len();
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
            if let Some(read) = self.decipher(&mut state, bytes, buffer) {
                return Poll::Ready(read);
            }
        }
    }

    /// Makes plaintext of `new` bytes that are in the input buffer; `None`: nothing has come of them.
    fn decipher(
        &self,
        state: &mut TlsState,
        new: usize,
        buffer: &mut [u8],
    ) -> Option<io::Result<usize>> {
        let mut scratch = self.buffers.take();
        let TlsScratch { input, output, .. } = &mut *scratch;
        let input = &mut input[..state.session.held().len() + new];
        let received = state.session.receive(input, buffer, output);
        // The answer to a change of keys, or an alert. If it cannot leave now, it does with the next bytes.
        state.unsent.extend_from_slice(output.filled());
        self.buffers.put(scratch);
        if !state.unsent.is_empty() && received.is_err() {
            let _ = self.flush(state);
        }
        match received {
            Ok(Received::Plaintext(bytes)) => Some(Ok(bytes)),
            Ok(Received::Nothing) => None,
            Ok(Received::End) => Some(Ok(0)),
            Err(fault) => Some(Err(io::Error::new(ErrorKind::InvalidData, fault))),
        }
    }

    pub(super) fn read_now(&self, buffer: &mut [u8]) -> Option<usize> {
        let mut state = self.state.borrow_mut();
        let mut new = 0;
        if !state.session.has_unread() {
            let mut scratch = self.buffers.take();
            let held = state.session.held().len();
            let room = &mut scratch.input[held..held + INPUT_BYTES_MIN];
            let read = self.socket.read_now(room);
            self.buffers.put(scratch);
            new = read?;
        }
        let read = self.decipher(&mut state, new, buffer)?.ok();
        read.filter(|bytes| *bytes > 0)
    }

    pub(super) fn has_ended(&self, context: &mut Context<'_>) -> bool {
        self.socket.has_ended(context)
    }

    pub(super) fn poll_readable(&self, context: &mut Context<'_>) -> Poll<()> {
        match self.state.borrow().session.has_unread() {
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
        let mut state = self.state.borrow_mut();
        if state.is_full && !self.flush(&mut state)? {
            return Ok(0);
        }
        let mut scratch = self.buffers.take();
        let mut taken = 0;
        for buffer in buffers {
            let bytes = buffer.len().min(PLAINTEXT_BYTES - taken);
            scratch.plaintext[taken..taken + bytes].copy_from_slice(&buffer[..bytes]);
            taken += bytes;
        }
        let offered = state.offer(&self.socket, &mut scratch, taken);
        self.buffers.put(scratch);
        offered.map(|()| taken)
    }

    /// As `send`, with the front of `parts`. What is taken counts as sent when it is enciphered: whoever sends the last
    /// of it waits until nothing is unsent.
    pub(super) fn send_parts(&self, parts: &mut Parts, most: u64) -> io::Result<(Progress, u64)> {
        let mut state = self.state.borrow_mut();
        if state.is_full && !self.flush(&mut state)? {
            return Ok((Progress::Blocked, 0));
        }
        let mut scratch = self.buffers.take();
        let bytes = usize::try_from(most).unwrap_or(usize::MAX);
        let bytes = bytes.min(PLAINTEXT_BYTES);
        let gathered = parts.gather(&mut scratch.plaintext[..bytes]);
        let sent = gathered.and_then(|gathered| {
            let taken = match gathered {
                Gathered::Bytes(bytes) => bytes,
                Gathered::OnDisk => 0,
            };
            state.offer(&self.socket, &mut scratch, taken)?;
            let progress = match gathered {
                _ if state.is_full => Progress::Blocked,
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
        let state = self.state.borrow();
        state.is_full && !state.unsent.is_empty()
    }

    pub(super) fn unacknowledged(&self) -> u64 {
        let unsent = self.state.borrow().unsent.len();
        self.socket.unacknowledged() + unsent as u64
    }

    pub(super) fn close_write(&self) {
        self.close();
        self.socket.close_write();
    }

    /// Says that nothing more comes, once, and unless the stream was cut.
    pub(super) fn close(&self) {
        let mut state = self.state.borrow_mut();
        if std::mem::replace(&mut state.is_silent, true) {
            return;
        }
        let mut scratch = self.buffers.take();
        state.session.close(&mut scratch.output);
        state.unsent.extend_from_slice(scratch.output.filled());
        self.buffers.put(scratch);
        if !state.unsent.is_empty() {
            // A client that takes nothing is not waited for, nor is its own close_notify.
            let _ = self.flush(&mut state);
        }
    }

    pub(super) fn reset_on_close(&self) {
        // Without close_notify, which would make what was cut look complete (RFC 8446 section 6.1).
        self.state.borrow_mut().is_silent = true;
        self.socket.reset_on_close();
    }

    pub(super) fn reset(&self) {
        self.state.borrow_mut().is_silent = true;
        self.socket.reset();
    }

    /// Offers what is unsent; whether all of it is out.
    fn flush(&self, state: &mut TlsState) -> io::Result<bool> {
        let sent = self.socket.send(&[IoSlice::new(&state.unsent)])?;
        state.unsent.drain(..sent);
        state.is_full = !state.unsent.is_empty();
        if !state.is_full {
            state.unsent = Vec::new();
        }
        Ok(!state.is_full)
    }
}

impl TlsState {
    /// Enciphers `bytes` bytes of the plaintext buffer and offers them, behind what is unsent, in one call.
    fn offer(
        &mut self,
        socket: &WatchedSocket,
        scratch: &mut TlsScratch,
        bytes: usize,
    ) -> io::Result<()> {
        let TlsScratch {
            plaintext, output, ..
        } = scratch;
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
        let sent = plain::send(&**socket.socket(), slices, SendFlags::empty())?;
        let of_output = sent.saturating_sub(before);
        self.unsent.drain(..sent.min(before));
        self.unsent.extend_from_slice(&output.filled()[of_output..]);
        self.is_full = sent < offered;
        if !self.is_full {
            self.unsent = Vec::new();
        }
        Ok(())
    }
}

impl TlsBuffers {
    fn take(&self) -> Box<TlsScratch> {
        // Made at the first use, and anew should a panic have lost them.
        self.0.take().unwrap_or_else(|| {
            Box::new(TlsScratch {
                input: vec![0; HELD_BYTES_MAX + INPUT_BYTES_MIN].into_boxed_slice(),
                plaintext: vec![0; PLAINTEXT_BYTES].into_boxed_slice(),
                output: Ciphertext::with_capacity(OUTPUT_BYTES),
            })
        })
    }

    fn put(&self, mut scratch: Box<TlsScratch>) {
        scratch.output.clear();
        self.0.set(Some(scratch));
    }
}
