//! HTTP/1: one request at a time on a connection, from its first byte to the last of its response.
//!
//! ```text
//!            ┌────────────────────────────── next request ──────────────────────────────┐
//!            ▼                                                                          │
//! accept ─► Receive ── complete, answered here, taken by the socket ────────────────────┤
//!            ├─ complete, answered here, socket full ─► Send ───────────────────────────┤
//!            ├─ complete, for a file that must be looked up ─► Lookup ─► Send ──────────┤
//!            ├─ head complete, body to come ─► Body ─┐                                  │
//!            ├─ complete, for a pool ────────────────┴► Pool ── response out ───────────┤
//!            │                                           └── socket full ─► queued ─────┘
//!            ├─ refused ─► Send ─► Linger ─► end
//!            └─ idle too long, client gone, drained ─► end
//! ```
//!
//! The steps are in `receive`, `body`, `respond`, `offloaded` and `send`; here is what they share, and the way
//! out.

mod body;
mod offloaded;
mod receive;
mod respond;
mod send;

use std::rc::Rc;
use std::sync::Arc;

use measure::Stamp;

use super::{Connection, Woken};
use crate::driver::Driver;
use crate::driver::handoff::Opened;
use crate::exchange::Exchange;
use crate::exchange::stream::StreamShared;
use crate::rates::Limit;
use crate::stats::Doing;

use body::Incoming;
use respond::{Lookup, Sending};
use send::SendMonitor;

/// Bytes of a refused body that are read and thrown away at most, so that the client gets to read the
/// refusal instead of a reset.
const LINGER_BYTES_MAX: usize = 4 << 20;

/// A connection that speaks HTTP/1.
pub(crate) struct H1 {
    connection: Connection,
    stream: Arc<StreamShared>,
    /// Received and not yet used; empty and without memory while the connection is idle.
    buffer: Vec<u8>,
    /// Bytes of `buffer` that hold no end of a head.
    searched: usize,
    /// When the exchange that is being received arrived; the accept for the first one.
    arrived: Stamp,
    /// When the last response of a worker was out; ZERO when the driver knows nothing of one.
    idle_since: Stamp,
    /// Requests received so far.
    received: u64,
    /// The last response, as long as the client has not taken all that the kernel has of it.
    stalled: Option<Box<SendMonitor>>,
    /// What is left of its own share of the bandwidth, between two responses.
    limit: Option<Box<Limit>>,
}

/// What comes next. Large ones are boxed: an idle connection is as small as this type.
enum Step {
    Receive,
    /// Let the other connections have their turn, then receive.
    Pause,
    Body(Box<Incoming>),
    Pool(Box<Exchange>),
    Lookup(Box<Lookup>),
    Send(Box<Sending>),
    /// The last response is complete.
    Leave,
    Linger,
    Close,
}

/// How far the bytes that have come lead.
enum Progress {
    /// The request is answered, and the next one may come.
    Answered,
    /// Nothing is left to do before more bytes come.
    NeedInput,
    /// This is to be done.
    Next(Step),
}

impl H1 {
    pub(crate) fn open(driver: Rc<Driver>, opened: Opened) -> Self {
        let arrived = opened.accepted;
        let stream = Arc::new(StreamShared::new());
        let shared = Some(Arc::clone(&stream));
        Self {
            connection: Connection::open(driver, opened, shared),
            stream,
            buffer: Vec::new(),
            searched: 0,
            arrived,
            idle_since: Stamp::ZERO,
            received: 0,
            stalled: None,
            limit: None,
        }
    }

    pub(crate) async fn serve(mut self) {
        self.connection.enter_task().await;
        let mut step = Step::Receive;
        loop {
            step = match step {
                Step::Receive => self.receive_head().await,
                Step::Pause => {
                    tokio::task::yield_now().await;
                    Step::Receive
                }
                // A task is as large as its largest step, however long it idles: the rare ones live
                // outside of it.
                Step::Body(incoming) => Box::pin(self.receive_body(incoming)).await,
                Step::Pool(exchange) => self.offload(exchange).await,
                Step::Lookup(lookup) => Box::pin(self.look_up(lookup)).await,
                Step::Send(sending) => Box::pin(self.send_rest(sending)).await,
                Step::Leave if self.has_unread() => Box::pin(self.linger()).await,
                Step::Linger => Box::pin(self.linger()).await,
                Step::Leave | Step::Close => return,
            }
        }
    }

    /// Whether the client has sent something that nobody will read: closing now would reset the connection
    /// and take the end of the response with it.
    fn has_unread(&mut self) -> bool {
        !self.buffer.is_empty() || {
            let read = self.connection.read_now();
            let has_come = read.is_some();
            if let Some((scratch, _)) = read {
                self.connection.driver.put_scratch(scratch);
            }
            has_come
        }
    }

    /// Reads and throws away what still comes, for a bounded time, after the last response.
    async fn linger(&mut self) -> Step {
        let connection = &self.connection;
        // The client sees the end of our side and can read the response in peace (RFC 9112 section 9.6).
        connection.transport.close_write();
        self.buffer = Vec::new();
        connection.deadline_in(Doing::Closing, connection.driver.config().timeouts.linger);
        let mut bytes = 0;
        while bytes < LINGER_BYTES_MAX {
            match connection.read().await {
                Ok((scratch, more)) => {
                    connection.driver.put_scratch(scratch);
                    bytes += more;
                }
                Err(Woken::Draining | Woken::Crowded) => {}
                Err(_) => break,
            }
        }
        Step::Close
    }
}
