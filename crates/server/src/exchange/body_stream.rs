//! A request's body while it arrives: what its driver has received and its application has not taken.
//!
//! The driver adds pieces and stops reading beyond a bound; the event loop takes them, and wakes the driver when there is
//! room again. Touches no socket.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};

use super::stream::{StreamEvent, StreamObserver, StreamShared};
use crate::sync::lock;

/// Bytes that the application has not taken, beyond which the driver reads no more.
const UNREAD_BYTES_MAX: usize = 64 << 10;
/// Pieces up to this size together are one: that bounds their number, and what they take beside their bytes.
const JOINED_BYTES_MAX: usize = 16 << 10;

/// A body of which a part may be still to come.
pub struct BodyStream {
    stream: Arc<StreamShared>,
    state: Mutex<StreamState>,
    received_bytes: AtomicU64,
}

#[derive(Default)]
struct StreamState {
    pieces: VecDeque<Vec<u8>>,
    unread_bytes: usize,
    end: Option<BodyEnd>,
    /// The event loop or the task, once it has the exchange.
    observer: Option<StreamObserver>,
    is_piece_awaited: bool,
    is_room_awaited: bool,
    /// The application takes no more: what comes is dropped.
    is_unwanted: bool,
    /// The client sends it when it is told to (RFC 9110 section 10.1.1).
    is_uninvited: bool,
}

/// How a body has ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum BodyEnd {
    /// All of it has come.
    Complete,
    /// The rest will not come.
    Broken,
}

/// What there is of a body.
#[derive(Debug, PartialEq, Eq)]
pub enum StreamPiece {
    /// Its next bytes, and whether more may follow. Empty only at the end.
    Here(Vec<u8>, bool),
    /// None yet; `StreamEvent::Body` follows when there is.
    Awaited,
    /// The same, and the client is to be told that it may send the body. Once.
    Uninvited,
    /// None any more: the client is gone, or has broken a rule.
    Broken,
}

impl BodyStream {
    pub(crate) fn new(stream: &Arc<StreamShared>) -> Arc<Self> {
        Arc::new(Self {
            stream: Arc::clone(stream),
            state: Mutex::default(),
            received_bytes: AtomicU64::new(0),
        })
    }

    fn state(&self) -> MutexGuard<'_, StreamState> {
        lock(&self.state)
    }

    /// Driver: the client sends nothing until the application wants it.
    pub(crate) fn await_invitation(&self) {
        self.state().is_uninvited = true;
    }

    /// Driver: whether the client is still waiting to be told.
    pub(crate) fn is_uninvited(&self) -> bool {
        self.state().is_uninvited
    }

    /// Event loop or task: it has the exchange.
    pub(crate) fn observe(&self, observer: StreamObserver) {
        self.state().observer = Some(observer);
    }

    /// Event loop: the next piece.
    pub fn take(&self) -> StreamPiece {
        let mut state = self.state();
        let Some(piece) = state.pieces.pop_front() else {
            return match state.end {
                Some(BodyEnd::Complete) => StreamPiece::Here(Vec::new(), false),
                Some(BodyEnd::Broken) => StreamPiece::Broken,
                None => {
                    state.is_piece_awaited = true;
                    let is_uninvited = std::mem::take(&mut state.is_uninvited);
                    drop(state);
                    if !is_uninvited {
                        return StreamPiece::Awaited;
                    }
                    // The time for the body begins now.
                    self.stream.ownership.wake();
                    StreamPiece::Uninvited
                }
            };
        };
        state.unread_bytes -= piece.len();
        let has_more = !state.pieces.is_empty() || state.end != Some(BodyEnd::Complete);
        let wakes = state.is_room_awaited && state.unread_bytes <= UNREAD_BYTES_MAX / 2;
        state.is_room_awaited &= !wakes;
        drop(state);
        if wakes {
            self.stream.ownership.wake();
        }
        StreamPiece::Here(piece, has_more)
    }

    /// Event loop: the application has ended, and takes no more.
    pub fn leave(&self) {
        let mut state = self.state();
        state.is_unwanted = true;
        let unread = std::mem::take(&mut state.pieces);
        state.unread_bytes = 0;
        state.observer = None;
        let wakes = std::mem::take(&mut state.is_room_awaited);
        drop(state);
        drop(unread);
        if wakes {
            self.stream.ownership.wake();
        }
    }

    /// Driver: whether more is to be read. If not, the driver is woken when it is.
    pub(crate) fn takes_more(&self) -> bool {
        let mut state = self.state();
        state.is_room_awaited = state.unread_bytes > UNREAD_BYTES_MAX;
        !state.is_room_awaited
    }

    /// Bytes that have come, framing included.
    pub(crate) fn received_bytes(&self) -> u64 {
        self.received_bytes.load(Ordering::Relaxed)
    }

    /// Driver: so many bytes have come, framing included.
    pub(crate) fn count(&self, bytes: u64) {
        self.received_bytes.fetch_add(bytes, Ordering::Relaxed);
    }

    /// Driver: a piece has come.
    pub(crate) fn push(&self, piece: Vec<u8>) {
        let mut state = self.state();
        if state.is_unwanted || piece.is_empty() {
            return;
        }
        // A client need not wait.
        state.is_uninvited = false;
        state.unread_bytes += piece.len();
        match state.pieces.back_mut() {
            Some(last) if last.len() + piece.len() <= JOINED_BYTES_MAX => {
                last.extend_from_slice(&piece);
            }
            _ => state.pieces.push_back(piece),
        }
        self.notify(state);
    }

    /// Driver: the body has ended. The first end counts.
    pub(crate) fn end(&self, end: BodyEnd) {
        let mut state = self.state();
        state.end.get_or_insert(end);
        self.notify(state);
    }

    fn notify(&self, mut state: MutexGuard<'_, StreamState>) {
        if !std::mem::take(&mut state.is_piece_awaited) {
            return;
        }
        let observer = state.observer.clone();
        drop(state);
        if let Some(observer) = observer {
            observer.notify(StreamEvent::Body);
        }
    }
}

impl std::fmt::Debug for BodyStream {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("BodyStream")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn body() -> Arc<BodyStream> {
        BodyStream::new(&Arc::default())
    }

    #[test]
    fn says_with_the_last_piece_that_nothing_follows_if_that_is_known() {
        let body = body();
        assert_eq!(body.take(), StreamPiece::Awaited);
        body.push(b"a".to_vec());
        assert_eq!(body.take(), StreamPiece::Here(b"a".to_vec(), true));
        body.push(b"b".to_vec());
        body.end(BodyEnd::Complete);
        assert_eq!(body.take(), StreamPiece::Here(b"b".to_vec(), false));
        assert_eq!(body.take(), StreamPiece::Here(Vec::new(), false));
    }

    #[test]
    fn a_body_that_breaks_gives_what_has_come_first() {
        let body = body();
        body.push(b"a".to_vec());
        body.end(BodyEnd::Broken);
        body.end(BodyEnd::Complete);
        assert_eq!(body.take(), StreamPiece::Here(b"a".to_vec(), true));
        assert_eq!(body.take(), StreamPiece::Broken);
    }

    #[test]
    fn is_full_beyond_its_bound_until_half_of_it_was_taken() {
        let body = body();
        body.push(vec![0; UNREAD_BYTES_MAX]);
        assert!(body.takes_more());
        body.push(vec![0; 1]);
        assert!(!body.takes_more());
        assert!(matches!(body.take(), StreamPiece::Here(_, true)));
        assert!(body.takes_more());
    }

    #[test]
    fn small_pieces_are_one() {
        let body = body();
        (0..60_000).for_each(|_| body.push(vec![7]));
        for bytes in [JOINED_BYTES_MAX, JOINED_BYTES_MAX, JOINED_BYTES_MAX, 10_848] {
            assert_eq!(body.take(), StreamPiece::Here(vec![7; bytes], true));
        }
        assert_eq!(body.take(), StreamPiece::Awaited);
        body.push(vec![7; JOINED_BYTES_MAX]);
        body.push(vec![7]);
        let first = StreamPiece::Here(vec![7; JOINED_BYTES_MAX], true);
        assert_eq!(body.take(), first);
    }

    #[test]
    fn the_first_that_wants_a_piece_invites_the_client() {
        let body = body();
        body.await_invitation();
        assert!(body.is_uninvited());
        assert_eq!(body.take(), StreamPiece::Uninvited);
        assert!(!body.is_uninvited());
        assert_eq!(body.take(), StreamPiece::Awaited);
        // Nobody has to wait for an invitation.
        body.await_invitation();
        body.push(b"a".to_vec());
        assert!(!body.is_uninvited());
    }

    #[test]
    fn drops_what_nobody_wants() {
        let body = body();
        body.push(vec![0; UNREAD_BYTES_MAX + 1]);
        body.leave();
        body.push(vec![0; UNREAD_BYTES_MAX + 1]);
        assert!(body.takes_more());
    }
}
