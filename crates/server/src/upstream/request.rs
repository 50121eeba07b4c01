//! A request on its way to an upstream: its head and its body, as far as the connection, or its stream, takes them.
//!
//! The body is in memory, in an unnamed file that a blocking pool reads, or arrives from the client meanwhile.

use std::cell::RefCell;
use std::future::Future;
use std::io::{self, IoSlice};
use std::os::unix::fs::FileExt;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use h2::SendStream;
use http::{BodyFraming, CHUNK_SUFFIX, LAST_CHUNK, chunk_prefix};

use super::connection::UpstreamConnection;
use super::given_body::{GivenBody, GivenPlace};
use super::http2_stream::Http2Stream;
use crate::blocking_pool::BlockingPool;
use crate::exchange::{Body, BodyFile, BodyStream, Exchange, StreamPiece};

/// Bytes of a body that are read from its file at once.
const PIECE_BYTES: u64 = 256 << 10;

/// The body of a request, for one try or several.
pub(super) enum RequestBody {
    Memory(Vec<u8>),
    File {
        file: Arc<BodyFile>,
        bytes: u64,
    },
    /// It arrives meanwhile, and can be sent again as long as little of it was given to a try.
    Stream {
        body: Arc<BodyStream>,
        is_chunked: bool,
        given: RefCell<GivenBody>,
    },
}

impl RequestBody {
    /// The body of an exchange, which has none afterwards.
    pub(super) fn take(exchange: &mut Exchange) -> Self {
        if let Some(body) = &exchange.streamed {
            return RequestBody::Stream {
                body: Arc::clone(body),
                is_chunked: exchange.head().index.body == BodyFraming::Chunked,
                given: RefCell::default(),
            };
        }
        match std::mem::take(&mut exchange.body) {
            Body::Empty => RequestBody::Memory(Vec::new()),
            Body::Memory(data) => RequestBody::Memory(data),
            Body::File { file, bytes } => RequestBody::File {
                file: Arc::new(file),
                bytes,
            },
        }
    }
}

impl RequestBody {
    /// Whether it can be sent again from its beginning.
    pub(super) fn is_replayable(&self) -> bool {
        match self {
            RequestBody::Memory(_) | RequestBody::File { .. } => true,
            RequestBody::Stream { given, .. } => given.borrow().is_here(),
        }
    }

    /// The response has begun: it is not sent again.
    pub(super) fn let_go(&self) {
        if let RequestBody::Stream { given, .. } = self {
            given.borrow_mut().let_go();
        }
    }

    /// Whether it can be sent again whatever a try has had of it.
    pub(super) fn stays_replayable(&self) -> bool {
        !matches!(self, RequestBody::Stream { .. })
    }

    /// Whether nothing of it is to be sent.
    pub(super) fn is_empty(&self) -> bool {
        matches!(self, RequestBody::Memory(data) if data.is_empty())
    }

    /// How the body is framed, of a client that framed it so.
    pub(super) fn framing(&self, sent: BodyFraming) -> BodyFraming {
        match self {
            // The client's own framing is kept apart: a GET without a body says no length, and an empty POST does.
            RequestBody::Memory(data) if data.is_empty() && sent == BodyFraming::None => {
                BodyFraming::None
            }
            RequestBody::Memory(data) => BodyFraming::Length(data.len() as u64),
            RequestBody::File { bytes, .. } => BodyFraming::Length(*bytes),
            RequestBody::Stream { .. } => sent,
        }
    }
}

/// How pieces of a body without a length are told apart.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum PieceFraming {
    /// By chunks.
    Http1,
    /// By frames of the stream.
    Http2,
}

type Reading = Pin<Box<dyn Future<Output = io::Result<Vec<u8>>>>>;

/// What of a request is still to be sent.
///
/// ```text
/// head ──► bytes in memory ──► (pieces of a file, or of what arrives) ──► sent
/// ```
pub(super) struct OutgoingRequest<'a> {
    /// The head, or a piece of the body that was read.
    piece: Vec<u8>,
    piece_sent: usize,
    /// Bytes of a body in memory.
    memory: &'a [u8],
    source: BodySource<'a>,
    body: &'a RequestBody,
    /// Bytes of the request that have left.
    pub(super) sent_bytes: u64,
}

/// Where pieces of a body come from, behind those in memory.
enum BodySource<'a> {
    None,
    File {
        file: &'a Arc<BodyFile>,
        offset: u64,
        bytes: u64,
        reading: Option<Reading>,
        pool: BlockingPool,
    },
    Stream {
        body: &'a Arc<BodyStream>,
        is_chunked: bool,
        given: &'a RefCell<GivenBody>,
        place: GivenPlace,
        /// Pieces stay as they are, and may be sent again.
        keeps: bool,
        /// The last piece was taken.
        is_over: bool,
    },
}

/// Why the rest of a request does not follow.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Unsent {
    /// The connection takes no more. A response may be there all the same.
    Connection,
    /// The body broke off, or could not be read.
    Body,
}

/// What a request that is not sent yet waits for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Awaited {
    /// The upstream, to take more.
    Upstream,
    /// The client or a disk, to give more.
    Body,
    /// The client, which sends its body when it is told to.
    Invitation,
}

/// How far a request is.
pub(super) enum Sending {
    Sent,
    Waits(Awaited),
}

impl<'a> OutgoingRequest<'a> {
    /// The request with this head; `pool` reads a body in a file.
    pub(super) fn new(
        head: Vec<u8>,
        body: &'a RequestBody,
        framing: PieceFraming,
        pool: BlockingPool,
    ) -> Self {
        let (memory, source) = match body {
            RequestBody::Memory(data) => (data.as_slice(), BodySource::None),
            RequestBody::File { file, bytes } => {
                let source = BodySource::File {
                    file,
                    offset: 0,
                    bytes: *bytes,
                    reading: None,
                    pool,
                };
                (&[][..], source)
            }
            RequestBody::Stream {
                body,
                is_chunked,
                given,
            } => {
                // Only over HTTP/2 does a server say that it has not processed a request whose body it was sent.
                let source = BodySource::Stream {
                    body,
                    is_chunked: *is_chunked && framing == PieceFraming::Http1,
                    given,
                    place: GivenPlace::default(),
                    keeps: framing == PieceFraming::Http2,
                    is_over: false,
                };
                (&[][..], source)
            }
        };
        Self {
            piece: head,
            piece_sent: 0,
            memory,
            source,
            body,
            sent_bytes: 0,
        }
    }

    /// The whole body.
    pub(super) fn body(&self) -> &'a RequestBody {
        self.body
    }

    /// Sends as much as the connection takes.
    pub(super) fn poll_send(
        &mut self,
        connection: &mut UpstreamConnection,
        context: &mut Context<'_>,
    ) -> Result<Sending, Unsent> {
        loop {
            while self.piece_sent < self.piece.len() || !self.memory.is_empty() {
                let both = [
                    IoSlice::new(&self.piece[self.piece_sent..]),
                    IoSlice::new(self.memory),
                ];
                // Most requests have no body.
                let buffers = &both[..1 + usize::from(!self.memory.is_empty())];
                match connection.poll_write(context, buffers) {
                    Poll::Ready(Ok(bytes @ 1..)) => self.advance(bytes),
                    Poll::Ready(_) => return Err(Unsent::Connection),
                    Poll::Pending => return Ok(Sending::Waits(Awaited::Upstream)),
                }
            }
            match self.poll_next(context) {
                Poll::Ready(Ok(true)) => {}
                Poll::Ready(Ok(false)) => return Ok(Sending::Sent),
                Poll::Ready(Err(awaited_or)) => return awaited_or.map(Sending::Waits),
                Poll::Pending => return Ok(Sending::Waits(Awaited::Body)),
            }
        }
    }

    /// Sends as much of the body as the stream takes; the head has left. Not once all of it is sent.
    pub(super) fn poll_send_frames(
        &mut self,
        stream: &mut Http2Stream,
        context: &mut Context<'_>,
    ) -> Result<Sending, Unsent> {
        let Some(stream) = stream.body() else {
            return Ok(Sending::Sent);
        };
        loop {
            let left = match &self.piece[self.piece_sent..] {
                [] => self.memory,
                piece => piece,
            };
            if left.is_empty() {
                match self.poll_next(context) {
                    Poll::Ready(Ok(true)) => continue,
                    Poll::Ready(Ok(false)) => {
                        let ended = stream.send_data(Bytes::new(), true);
                        return ended.map_or(Err(Unsent::Connection), |()| Ok(Sending::Sent));
                    }
                    Poll::Ready(Err(awaited_or)) => return awaited_or.map(Sending::Waits),
                    Poll::Pending => return Ok(Sending::Waits(Awaited::Body)),
                }
            }
            let bytes = match poll_room(stream, left.len(), context) {
                Poll::Ready(Ok(bytes)) => bytes,
                Poll::Ready(Err(unsent)) => return Err(unsent),
                Poll::Pending => return Ok(Sending::Waits(Awaited::Upstream)),
            };
            let sent = stream.send_data(Bytes::copy_from_slice(&left[..bytes]), false);
            sent.map_err(|_| Unsent::Connection)?;
            self.advance(bytes);
        }
    }

    fn advance(&mut self, bytes: usize) {
        self.sent_bytes += bytes as u64;
        let of_piece = bytes.min(self.piece.len() - self.piece_sent);
        self.piece_sent += of_piece;
        self.memory = &self.memory[bytes - of_piece..];
    }

    /// The next piece: whether there is one. An error is a wait for an invitation, or the end of the body.
    fn poll_next(
        &mut self,
        context: &mut Context<'_>,
    ) -> Poll<Result<bool, Result<Awaited, Unsent>>> {
        match &mut self.source {
            BodySource::None => Poll::Ready(Ok(false)),
            BodySource::File {
                file,
                offset,
                bytes,
                reading,
                pool,
            } => {
                if *offset == *bytes {
                    return Poll::Ready(Ok(false));
                }
                let wanted = (*bytes - *offset).min(PIECE_BYTES);
                let next = reading.get_or_insert_with(|| read(pool, file, *offset, wanted));
                let piece = ready!(next.as_mut().poll(context));
                *reading = None;
                let Ok(piece) = piece else {
                    return Poll::Ready(Err(Err(Unsent::Body)));
                };
                *offset += wanted;
                (self.piece, self.piece_sent) = (piece, 0);
                Poll::Ready(Ok(true))
            }
            BodySource::Stream {
                body,
                is_chunked,
                given,
                place,
                keeps,
                is_over,
            } => {
                let mut given = given.borrow_mut();
                given.put_back(place, std::mem::take(&mut self.piece));
                self.piece_sent = 0;
                if *is_over {
                    return Poll::Ready(Ok(false));
                }
                let (data, has_more) = match given.again(place) {
                    Some(again) => again,
                    None => match body.take() {
                        StreamPiece::Here(data, has_more) => {
                            given.take(&data, has_more, *keeps, place);
                            (data, has_more)
                        }
                        StreamPiece::Awaited => return Poll::Pending,
                        StreamPiece::Uninvited => return Poll::Ready(Err(Ok(Awaited::Invitation))),
                        StreamPiece::Broken => return Poll::Ready(Err(Err(Unsent::Body))),
                    },
                };
                self.piece = match *is_chunked {
                    true => chunk(&data, has_more),
                    false => data,
                };
                *is_over = !has_more;
                Poll::Ready(Ok(true))
            }
        }
    }
}

impl Drop for OutgoingRequest<'_> {
    /// What is on its way may be sent again by the next try.
    fn drop(&mut self) {
        if let BodySource::Stream { given, place, .. } = &mut self.source {
            let piece = std::mem::take(&mut self.piece);
            given.borrow_mut().put_back(place, piece);
        }
    }
}

/// Bytes that the stream takes now, at most `wanted` and at least one.
fn poll_room(
    stream: &mut SendStream<Bytes>,
    wanted: usize,
    context: &mut Context<'_>,
) -> Poll<Result<usize, Unsent>> {
    stream.reserve_capacity(wanted);
    while stream.capacity() == 0 {
        match ready!(stream.poll_capacity(context)) {
            Some(Ok(_)) => {}
            Some(Err(_)) | None => return Poll::Ready(Err(Unsent::Connection)),
        }
    }
    Poll::Ready(Ok(wanted.min(stream.capacity())))
}

/// Reads a piece of a file on a thread that may wait for its disk.
fn read(pool: &BlockingPool, file: &Arc<BodyFile>, offset: u64, bytes: u64) -> Reading {
    let (pool, file) = (pool.clone(), Arc::clone(file));
    Box::pin(async move {
        let read = move || {
            let mut data = vec![0; usize::try_from(bytes).expect("a small piece")];
            file.read_exact_at(&mut data, offset).map(|()| data)
        };
        pool.run(read).await?
    })
}

/// A piece of a body as a chunk (RFC 9112 section 7.1), with the end of the body behind its last one.
fn chunk(data: &[u8], has_more: bool) -> Vec<u8> {
    let mut chunk = Vec::with_capacity(data.len() + 32);
    if !data.is_empty() {
        chunk.extend_from_slice(chunk_prefix(data.len()).as_bytes());
        chunk.extend_from_slice(data);
        chunk.extend_from_slice(CHUNK_SUFFIX);
    }
    if !has_more {
        chunk.extend_from_slice(LAST_CHUNK);
    }
    chunk
}
