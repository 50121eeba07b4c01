//! One stream: a request that was given to the `h2` crate, and the reply to it as far as it is there.
//!
//! ```text
//!   (send) ─► Head ─ final head ─► Body ─ last byte, trailers ─► StreamEnd::Reply
//!               └──── reset, GOAWAY, end of the connection ────► StreamEnd::Failed, StreamEnd::Unprocessed
//! ```

use std::collections::VecDeque;
use std::future::Future as _;
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll, Wake, Waker};

use h2::client::ResponseFuture;
use h2::{Reason, RecvStream};
use sha2::{Digest as _, Sha256};

use crate::engine::response::{Ended, Expected};
use crate::outcome::Failure;

/// How a stream has ended.
#[derive(Debug)]
pub(crate) enum StreamEnd {
    /// With a reply.
    Reply(Ended),
    /// Without one, or with a part of one.
    Failed {
        why: Failure,
        /// With which the server has reset the stream.
        code: Option<Reason>,
    },
    /// By a GOAWAY of the server that says that it has not looked at the request, RFC 9113 section 6.8.
    Unprocessed,
}

/// The streams that have moved, by their identifiers; one may be there twice.
#[derive(Default, Debug)]
pub(super) struct MovedStreams(Mutex<VecDeque<u32>>);

impl MovedStreams {
    /// One of them.
    pub(super) fn take(&self) -> Option<u32> {
        let mut moved = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        moved.pop_front()
    }
}

/// What the crate wakes when a stream has moved.
struct StreamWaker {
    id: u32,
    moved: Arc<MovedStreams>,
}

impl Wake for StreamWaker {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        let moved = self.moved.0.lock();
        moved
            .unwrap_or_else(PoisonError::into_inner)
            .push_back(self.id);
    }
}

/// A stream that has not ended.
#[derive(Debug)]
pub(super) struct Stream {
    pub(super) id: u32,
    waker: Waker,
    state: StreamState,
}

#[derive(Debug)]
enum StreamState {
    Head(ResponseFuture),
    Body(Reply),
}

#[derive(Debug)]
struct Reply {
    status: u16,
    bytes: u64,
    sum: Option<Sha256>,
    body: RecvStream,
}

impl Stream {
    /// Of a request that was sent.
    pub(super) fn new(response: ResponseFuture, moved: &Arc<MovedStreams>) -> Stream {
        let id = response.stream_id().as_u32();
        let moved = Arc::clone(moved);
        let mut stream = Stream {
            id,
            waker: Arc::new(StreamWaker { id, moved }).into(),
            state: StreamState::Head(response),
        };
        stream.await_head();
        stream
    }

    /// Has the crate know whom to wake.
    fn await_head(&mut self) {
        if let StreamState::Head(response) = &mut self.state {
            let context = &mut Context::from_waker(&self.waker);
            // What is there at once is there for the next poll as well.
            if Pin::new(response).poll(context).is_ready() {
                self.waker.wake_by_ref();
            }
        }
    }

    /// Whether the head of the reply has come.
    pub(super) fn has_head(&self) -> bool {
        matches!(self.state, StreamState::Body(_))
    }

    /// Takes what has come of the reply; `None`: more of it will.
    pub(super) fn poll(&mut self, standard: &Expected) -> Option<StreamEnd> {
        let context = &mut Context::from_waker(&self.waker);
        if let StreamState::Head(response) = &mut self.state {
            match Pin::new(response).poll(context) {
                Poll::Pending => return None,
                Poll::Ready(Err(error)) => return Some(failed(&error, Failure::Reset)),
                Poll::Ready(Ok(response)) => {
                    self.state = StreamState::Body(Reply {
                        status: response.status().as_u16(),
                        bytes: 0,
                        sum: standard.has_sum().then(Sha256::new),
                        body: response.into_body(),
                    });
                }
            }
        }
        let StreamState::Body(reply) = &mut self.state else {
            return None;
        };
        match reply.poll_body(context) {
            Poll::Pending => None,
            Poll::Ready(Err(error)) => Some(failed(&error, Failure::Short)),
            Poll::Ready(Ok(())) => {
                let sum = reply.sum.take();
                let ended = standard.verdict(reply.status, reply.bytes, sum);
                Some(StreamEnd::Reply(ended))
            }
        }
    }
}

impl Reply {
    /// Takes the body up to the end of the stream.
    fn poll_body(&mut self, context: &mut Context<'_>) -> Poll<Result<(), h2::Error>> {
        while let Some(data) = std::task::ready!(self.body.poll_data(context)) {
            let data = match data {
                Err(error) if is_enough(&error) => break,
                data => data?,
            };
            self.bytes += data.len() as u64;
            if let Some(sum) = &mut self.sum {
                sum.update(&data);
            }
            // Nothing is kept: the server may send as much again.
            self.body.flow_control().release_capacity(data.len())?;
        }
        match self.body.poll_trailers(context) {
            Poll::Ready(Err(error)) if is_enough(&error) => Poll::Ready(Ok(())),
            ended => ended.map_ok(drop),
        }
    }
}

/// Whether the server has ended the stream behind a whole reply, so that the rest of the request is not sent: RFC 9113
/// section 8.1.
fn is_enough(error: &h2::Error) -> bool {
    error.is_reset() && error.is_remote() && error.reason() == Some(Reason::NO_ERROR)
}

/// Why a stream has no whole reply; `otherwise`: where it is the server that has ended it.
fn failed(error: &h2::Error, otherwise: Failure) -> StreamEnd {
    // The crate gives this error to the streams beyond the last one of a GOAWAY, and to no other.
    if error.is_go_away() && error.is_remote() {
        return StreamEnd::Unprocessed;
    }
    StreamEnd::Failed {
        // What the crate has ended was not what HTTP/2 allows.
        why: match error.is_library() {
            true => Failure::Short,
            false => otherwise,
        },
        code: error.reason().filter(|_| error.is_remote()),
    }
}
