//! The pipe: a transport in memory between the `h2` crate and the client's real one.
//!
//! Bytes that came from the client wait here until they are fed, frame by frame; bytes that the crate writes are
//! collected here and leave in one send a turn. Both directions pass a frame scanner, whose frames the connection
//! takes from `take_events`. Never waits: where there is nothing to read, or no room, the crate is told `Pending`,
//! and the connection calls it again.

use std::cell::RefCell;
use std::collections::VecDeque;
use std::io;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use super::scan::{self, FrameScanner, ScannedFrame};
use crate::sync::invariant;

/// Bytes that wait for the client's transport at most, beside one frame of the crate.
pub(super) const OUTPUT_BYTES_MAX: usize = 80 << 10;
/// An idle output keeps a buffer of up to this size.
const KEPT_OUTPUT_BYTES: usize = 4 << 10;
/// A setting in a SETTINGS frame.
const SETTING_BYTES: usize = 6;
/// SETTINGS_NO_RFC7540_PRIORITIES = 1 (RFC 9218 section 2.1), which the crate does not know.
const NO_RFC7540_PRIORITIES: [u8; SETTING_BYTES] = [0, 9, 0, 0, 0, 1];

/// The crate's end.
pub(super) struct CodecPipe(Rc<RefCell<PipeState>>);

/// The connection's end.
#[derive(Clone)]
pub(super) struct PipeEnd(Rc<RefCell<PipeState>>);

/// A frame that has passed, as far as the connection has to know of it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum FrameEvent {
    /// The client has sent one.
    Received(FrameNote),
    /// The crate has written one.
    Written(FrameNote),
}

/// What is noted of a frame.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct FrameNote {
    pub(super) kind: u8,
    pub(super) flags: u8,
    pub(super) stream: u32,
    pub(super) payload_bytes: usize,
    /// The first four bytes of its payload, where it has them and they mean something.
    pub(super) number: Option<u32>,
    /// Of PRIORITY_UPDATE.
    pub(super) priority: Option<super::priority::Priority>,
}

#[derive(Default)]
struct PipeState {
    input: Vec<u8>,
    /// Bytes of `input` that the crate has read.
    read: usize,
    /// Bytes of `input` that the crate may read.
    fed: usize,
    input_scan: FrameScanner,
    is_ended: bool,
    output: Vec<u8>,
    /// Bytes of `output` that the transport has taken.
    sent: usize,
    output_scan: FrameScanner,
    /// Bytes written since the beginning.
    written_bytes: u64,
    /// Bytes of DATA written since the last look.
    data_bytes: usize,
    /// The crate found no room since the last look.
    is_blocked: bool,
    events: VecDeque<FrameEvent>,
}

/// Both ends of a new pipe.
pub(super) fn pipe() -> (CodecPipe, PipeEnd) {
    let state = Rc::<RefCell<PipeState>>::default();
    (CodecPipe(Rc::clone(&state)), PipeEnd(state))
}

impl PipeEnd {
    /// Bytes have come from the client.
    pub(super) fn put(&self, bytes: &[u8]) {
        let state = &mut *self.0.borrow_mut();
        state.forget_read();
        state.input.extend_from_slice(bytes);
    }

    /// The first bytes of the connection, which are no frame, are for the crate as they are.
    pub(super) fn feed_preface(&self, bytes: usize) {
        let state = &mut *self.0.borrow_mut();
        state.fed += bytes;
        invariant!(
            state.fed <= state.input.len(),
            "a preface is fed that has not come"
        );
    }

    /// Lets the crate read up to so many frames more; gives how many there were.
    pub(super) fn feed(&self, frames_max: usize) -> usize {
        let state = &mut *self.0.borrow_mut();
        let mut frames_len = 0;
        let events = &mut state.events;
        let unfed = &state.input[state.fed..];
        let used = state.input_scan.scan(unfed, frames_max, |frame| {
            frames_len += 1;
            events.push_back(FrameEvent::Received(FrameNote::of(&frame)));
        });
        state.fed += used;
        frames_len
    }

    /// Whether bytes wait to be fed.
    pub(super) fn has_unfed(&self) -> bool {
        let state = self.0.borrow();
        state.fed < state.input.len()
    }

    /// What the frame of the client's is that is there in part.
    pub(super) fn partial_frame(&self) -> Option<u8> {
        self.0.borrow().input_scan.partial()
    }

    /// The client sends no more.
    pub(super) fn end_input(&self) {
        self.0.borrow_mut().is_ended = true;
    }

    /// The next frame that has passed.
    pub(super) fn next_event(&self) -> Option<FrameEvent> {
        self.0.borrow_mut().events.pop_front()
    }

    /// Bytes that more frames may have.
    pub(super) fn output_room(&self) -> usize {
        OUTPUT_BYTES_MAX.saturating_sub(self.0.borrow().waiting_bytes())
    }

    /// Whether bytes wait for the transport.
    pub(super) fn has_output(&self) -> bool {
        self.0.borrow().waiting_bytes() > 0
    }

    /// Whether the crate has more to write than there was room; asked once, it is forgotten.
    pub(super) fn take_blocked(&self) -> bool {
        std::mem::take(&mut self.0.borrow_mut().is_blocked)
    }

    /// Bytes that the crate has written, and of them those that the transport has taken.
    pub(super) fn positions(&self) -> (u64, u64) {
        let state = self.0.borrow();
        let waiting = state.waiting_bytes() as u64;
        (state.written_bytes, state.written_bytes - waiting)
    }

    /// Bytes of DATA that the crate has written; asked once, they are forgotten.
    pub(super) fn take_data_bytes(&self) -> usize {
        std::mem::take(&mut self.0.borrow_mut().data_bytes)
    }

    /// Has `send` take what waits; it gives how many bytes it took.
    pub(super) fn send<E>(&self, send: impl FnOnce(&[u8]) -> Result<usize, E>) -> Result<usize, E> {
        let state = &mut *self.0.borrow_mut();
        let sent = send(&state.output[state.sent..])?;
        state.sent += sent;
        invariant!(
            state.sent <= state.output.len(),
            "more of the output is sent than there was"
        );
        if state.sent == state.output.len() {
            state.output.clear();
            state.sent = 0;
            // An idle connection owns no large buffer.
            state.output.shrink_to(KEPT_OUTPUT_BYTES);
        }
        Ok(sent)
    }

    /// Lets go of buffers that an idle connection does not need.
    pub(super) fn rest(&self) {
        let state = &mut *self.0.borrow_mut();
        state.forget_read();
        if state.input.is_empty() {
            state.input = Vec::new();
        }
        if state.output.is_empty() {
            state.output = Vec::new();
        }
    }
}

impl PipeState {
    fn waiting_bytes(&self) -> usize {
        self.output.len() - self.sent
    }

    fn forget_read(&mut self) {
        if self.read > 0 {
            self.input.drain(..self.read);
            self.fed -= self.read;
            self.read = 0;
        }
    }

    /// Takes what the crate writes; `None` where there is no room.
    fn write(&mut self, slices: &[io::IoSlice<'_>]) -> Option<usize> {
        if self.waiting_bytes() >= OUTPUT_BYTES_MAX {
            self.is_blocked = true;
            return None;
        }
        if self.sent > 0 && self.sent * 2 > self.output.len() {
            self.output.drain(..self.sent);
            self.sent = 0;
        }
        let before = self.output.len();
        let is_first = self.written_bytes == 0;
        for slice in slices {
            let events = &mut self.events;
            let data_bytes = &mut self.data_bytes;
            self.output_scan.scan(slice, usize::MAX, |frame| {
                if frame.kind == scan::DATA {
                    *data_bytes += frame.payload_bytes;
                } else if matters(&frame) {
                    events.push_back(FrameEvent::Written(FrameNote::of(&frame)));
                }
            });
            self.output.extend_from_slice(slice);
        }
        let written = self.output.len() - before;
        if is_first {
            add_setting(&mut self.output);
        }
        self.written_bytes += (self.output.len() - before) as u64;
        Some(written)
    }
}

/// What the crate writes is interesting where it ends a stream: a head that it refuses gets one frame.
fn matters(frame: &ScannedFrame<'_>) -> bool {
    match frame.kind {
        scan::RST_STREAM | scan::GOAWAY => true,
        scan::HEADERS => frame.flags & scan::END_STREAM != 0,
        _ => false,
    }
}

/// Adds a setting to the first frame of the connection, which is a SETTINGS frame (RFC 9113 section 3.4).
fn add_setting(output: &mut Vec<u8>) {
    let Some([a, b, c, kind, ..]) = output.first_chunk::<4>().copied() else {
        return;
    };
    let bytes = u32::from_be_bytes([0, a, b, c]) as usize;
    let end = scan::FRAME_HEADER_BYTES + bytes;
    // Only if the crate writes the frame whole, as it does; else the client hears of one setting less.
    if kind != scan::SETTINGS || output.len() < end {
        return;
    }
    output.splice(end..end, NO_RFC7540_PRIORITIES);
    let length = ((bytes + SETTING_BYTES) as u32).to_be_bytes();
    output[..3].copy_from_slice(&length[1..]);
}

impl FrameNote {
    fn of(frame: &ScannedFrame<'_>) -> Self {
        let is_update = frame.kind == scan::PRIORITY_UPDATE;
        let field = frame.start.get(4..).filter(|_| is_update);
        Self {
            kind: frame.kind,
            flags: frame.flags,
            stream: frame.stream,
            payload_bytes: frame.payload_bytes,
            number: frame.number(),
            priority: field.map(super::priority::Priority::read),
        }
    }
}

impl AsyncRead for CodecPipe {
    fn poll_read(
        self: Pin<&mut Self>,
        _: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let state = &mut *self.0.borrow_mut();
        let bytes = (state.fed - state.read).min(buffer.remaining());
        if bytes == 0 {
            // Without bytes it is the end of the stream, which comes behind all that has come.
            let is_over = state.is_ended && state.fed == state.input.len();
            return if is_over {
                Poll::Ready(Ok(()))
            } else {
                Poll::Pending
            };
        }
        buffer.put_slice(&state.input[state.read..state.read + bytes]);
        state.read += bytes;
        Poll::Ready(Ok(()))
    }
}

impl AsyncWrite for CodecPipe {
    fn poll_write(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &[u8],
    ) -> Poll<io::Result<usize>> {
        self.poll_write_vectored(context, &[io::IoSlice::new(buffer)])
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        _: &mut Context<'_>,
        slices: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        match self.0.borrow_mut().write(slices) {
            Some(written) => Poll::Ready(Ok(written)),
            None => Poll::Pending,
        }
    }

    fn is_write_vectored(&self) -> bool {
        true
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }
}

#[cfg(test)]
mod tests {
    use std::task::Waker;

    use super::*;

    fn frame(kind: u8, payload: &[u8]) -> Vec<u8> {
        let length = u32::try_from(payload.len()).unwrap().to_be_bytes();
        let mut frame = length[1..].to_vec();
        frame.extend([kind, 0, 0, 0, 0, 1]);
        frame.extend(payload);
        frame
    }

    fn read(pipe: &mut CodecPipe) -> Vec<u8> {
        let context = &mut Context::from_waker(Waker::noop());
        let mut memory = [0; 64];
        let mut all = Vec::new();
        loop {
            let mut buffer = ReadBuf::new(&mut memory);
            match Pin::new(&mut *pipe).poll_read(context, &mut buffer) {
                Poll::Ready(Ok(())) if !buffer.filled().is_empty() => all.extend(buffer.filled()),
                _ => return all,
            }
        }
    }

    fn write(pipe: &mut CodecPipe, bytes: &[u8]) -> Poll<usize> {
        let context = &mut Context::from_waker(Waker::noop());
        Pin::new(pipe)
            .poll_write(context, bytes)
            .map(Result::unwrap)
    }

    #[test]
    fn frames_are_fed_one_by_one() {
        let (mut pipe, end) = pipe();
        let frames = [frame(scan::DATA, &[1; 100]), frame(scan::PING, &[2; 8])];
        end.put(&frames.concat());
        assert_eq!(read(&mut pipe), b"");
        assert_eq!(end.feed(1), 1);
        assert_eq!(read(&mut pipe), frames[0]);
        assert!(end.has_unfed());
        assert_eq!(end.feed(5), 1);
        assert_eq!(read(&mut pipe), frames[1]);
        let kinds = std::iter::from_fn(|| end.next_event());
        let kinds: Vec<_> = kinds
            .map(|event| match event {
                FrameEvent::Received(note) => note.kind,
                FrameEvent::Written(note) => panic!("{note:?}"),
            })
            .collect();
        assert_eq!(kinds, [scan::DATA, scan::PING]);
    }

    #[test]
    fn the_first_frame_written_gets_a_setting_more() {
        let (mut pipe, end) = pipe();
        let settings = frame(scan::SETTINGS, &[7; 12]);
        assert_eq!(write(&mut pipe, &settings), Poll::Ready(21));
        let mut sent = Vec::new();
        let taken: Result<usize, ()> = end.send(|bytes| {
            sent.extend_from_slice(bytes);
            Ok(bytes.len())
        });
        assert_eq!(taken, Ok(27));
        assert_eq!(sent[..3], [0, 0, 18]);
        assert_eq!(sent[21..], NO_RFC7540_PRIORITIES);
        assert_eq!(end.positions(), (27, 27));
    }

    #[test]
    fn written_data_is_counted_once() {
        let (mut pipe, end) = pipe();
        for (payload, expect) in [(&[1; 100][..], 100), (&[], 0)] {
            assert!(write(&mut pipe, &frame(scan::DATA, payload)).is_ready());
            assert!(write(&mut pipe, &frame(scan::PING, &[2; 8])).is_ready());
            assert_eq!((end.take_data_bytes(), end.take_data_bytes()), (expect, 0));
        }
    }

    #[test]
    fn the_output_is_bounded_and_moves_as_it_is_sent() {
        let (mut pipe, end) = pipe();
        let data = frame(scan::DATA, &[3; 16 << 10]);
        let mut written = 0;
        while write(&mut pipe, &data).is_ready() {
            written += data.len();
        }
        assert!((OUTPUT_BYTES_MAX..OUTPUT_BYTES_MAX + data.len()).contains(&written));
        assert!(end.take_blocked() && !end.take_blocked());
        assert_eq!(end.output_room(), 0);
        assert_eq!(end.send(|_| Ok::<_, ()>(50_000)), Ok(50_000));
        assert_eq!(end.positions(), (written as u64, 50_000));
        assert!(write(&mut pipe, &data).is_ready());
        let all = end.send(|bytes| Ok::<_, ()>(bytes.len()));
        assert_eq!(all, Ok(written + data.len() - 50_000));
        assert!(!end.has_output());
    }
}
