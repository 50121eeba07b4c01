//! The life of one connection on its driver: receive, answer or hand over, and again.
//!
//! ```text
//!            ┌────────────────────────────── next request ──────────────────────────────┐
//!            ▼                                                                          │
//! accept ─► Receive ── complete, answered here, taken by the socket ────────────────────┤
//!            ├─ complete, answered here, socket full ─► Send ───────────────────────────┤
//!            ├─ complete, for a file that must be looked up ─► Look ─► Send ────────────┤
//!            ├─ head complete, body to come ─► Body ─┐                                  │
//!            ├─ complete, for the pool ──────────────┴► Pool ── reply out ──────────────┤
//!            │                                           └── socket full ─► Flow ───────┘
//!            ├─ refused ─► Send ─► Linger ─► end
//!            └─ idle too long, client gone, drained ─► end
//! ```
//!
//! The steps are in `receive`, `begin`, `body`, `look`, `answer`, `sending` and `away`; here is what they share:
//! the socket, the deadline, and the way out.

use std::future::poll_fn;
use std::io;
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use measure::{Nanos, Stamp};
use rustix::io::Errno;
use rustix::net::{RecvFlags, Shutdown};
use socket2::SockRef;
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;
use wire::HeadView;

use super::answer::Sending;
use super::body::Incoming;
use super::look::Looking;
use super::newcomer::{NewConnection, Presence};
use super::sending::Outflow;
use super::table::Fired;
use super::{Driver, Mood};
use crate::clients::Place;
use crate::delivery::Door;
use crate::exchange::{Ends, Exchange, Id};
use crate::ids::Trust;
use crate::rates::Limit;
use crate::stats::Doing;
use crate::sys;

/// Bytes of a refused body that are read and thrown away at most, so that the client gets to read the
/// refusal instead of a reset.
const LINGER_BYTES_MAX: usize = 4 << 20;

pub(super) struct Connection {
    pub(super) driver: Rc<Driver>,
    pub(super) io: AsyncFd<Arc<Door>>,
    pub(super) ends: Arc<Ends>,
    /// Whether the ids that its client gives count.
    trust: Trust,
    /// Index in the driver's table.
    pub(super) seat: usize,
    /// Received and not yet used; empty and without memory while the connection is idle.
    pub(super) buffer: Vec<u8>,
    /// Bytes of `buffer` that hold no end of a head.
    pub(super) searched: usize,
    /// When the exchange that is being received arrived; the accept for the first one.
    pub(super) arrived: Stamp,
    /// When the last reply of a pool thread was out; ZERO when the driver knows nothing of one.
    pub(super) idle_since: Stamp,
    /// Requests received so far.
    pub(super) received: u64,
    /// The last reply, as long as the client has not taken all that the kernel has of it.
    pub(super) stalled: Option<Box<Outflow>>,
    /// What is left of its own share of the bandwidth, between two replies.
    pub(super) limit: Option<Box<Limit>>,
    /// When it was accepted.
    accepted: Stamp,
    /// Its client's place among those of one address, where these are counted.
    _place: Option<Place>,
    /// Last: it counts until its socket is closed.
    _presence: Presence,
}

/// What comes next. Large ones are boxed: an idle connection is as small as this type.
pub(super) enum Step {
    Receive,
    /// Let the other connections have their turn, then receive.
    Pause,
    Body(Box<Incoming>),
    Pool(Box<Exchange>),
    Look(Box<Looking>),
    Send(Box<Sending>),
    /// The last reply is complete.
    Leave,
    Linger,
    Close,
}

/// Why waiting for a socket ended without it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Woken {
    /// The deadline passed.
    Deadline,
    /// It is idle, and others need its place.
    Crowded,
    /// The driver drains.
    Draining,
    /// The driver ends at once.
    Cut,
    /// The client closed its side.
    End,
    /// The connection failed.
    Failed,
}

impl Connection {
    pub(super) fn open(
        driver: Rc<Driver>,
        new: NewConnection,
        ends: Arc<Ends>,
        trust: Trust,
    ) -> io::Result<Self> {
        let accepted = new.arrived;
        let door = Arc::new(Door::new(new.socket));
        let io = sys::watch_door(Arc::clone(&door))?;
        let deadline = accepted.plus(driver.config().timeouts.head);
        let seat = driver.table.borrow_mut().enter(door, accepted, deadline);
        driver.arrival.notify_one();
        Ok(Self {
            driver,
            io,
            ends,
            trust,
            seat,
            buffer: Vec::new(),
            searched: 0,
            arrived: accepted,
            idle_since: Stamp::ZERO,
            received: 0,
            stalled: None,
            limit: None,
            accepted,
            _place: new.place,
            _presence: new.presence,
        })
    }

    pub(super) async fn serve(mut self) {
        poll_fn(|context| {
            self.driver
                .table
                .borrow_mut()
                .set_waker(self.seat, context.waker());
            Poll::Ready(())
        })
        .await;
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
                Step::Pool(exchange) => self.away(exchange).await,
                Step::Look(looking) => Box::pin(self.look(looking)).await,
                Step::Send(sending) => Box::pin(self.send_rest(sending)).await,
                Step::Leave if self.has_unread() => Box::pin(self.linger()).await,
                Step::Linger => Box::pin(self.linger()).await,
                Step::Leave | Step::Close => return,
            }
        }
    }

    /// The id of the next exchange; `head` is `None` when it never became one. Once an exchange.
    pub(super) fn new_id(&self, head: Option<HeadView<'_>>) -> Id {
        let number = self.driver.numbers.next();
        self.driver.shared.ids.id(number, self.trust, head)
    }

    pub(super) fn door(&self) -> &Arc<Door> {
        self.io.get_ref()
    }

    pub(super) fn now_doing(&self, doing: Doing, deadline: Stamp) {
        self.driver
            .table
            .borrow_mut()
            .set(self.seat, doing, deadline);
    }

    pub(super) fn deadline_in(&self, doing: Doing, time: Nanos) {
        self.now_doing(doing, measure::now().plus(time));
    }

    pub(super) fn cutting(&self) -> bool {
        self.driver.mood.get() == Mood::Cutting
    }

    /// Whether the table woke this connection, and what for. A wake-up for a deadline that was moved
    /// since counts for nothing.
    pub(super) fn take_fired(&self) -> Option<Woken> {
        if self.cutting() {
            return Some(Woken::Cut);
        }
        let mut table = self.driver.table.borrow_mut();
        let fired = table.take_fired(self.seat);
        if fired == Fired::No {
            return None;
        }
        match self.driver.mood.get() {
            _ if table.deadline(self.seat) <= measure::now() => Some(Woken::Deadline),
            Mood::Draining => Some(Woken::Draining),
            Mood::Serving | Mood::Leaving if fired == Fired::Crowded => Some(Woken::Crowded),
            Mood::Serving | Mood::Leaving | Mood::Cutting => None,
        }
    }

    /// Reads into the driver's scratch buffer; gives the number of bytes there. They are gone at the next
    /// await.
    pub(super) async fn read(&mut self) -> Result<usize, Woken> {
        poll_fn(|context| self.poll_read(context)).await
    }

    fn poll_read(&self, context: &mut Context<'_>) -> Poll<Result<usize, Woken>> {
        if let Some(woken) = self.take_fired() {
            return Poll::Ready(Err(woken));
        }
        let mut scratch = self.driver.scratch.borrow_mut();
        loop {
            let Ok(mut guard) = ready!(self.io.poll_read_ready(context)) else {
                return Poll::Ready(Err(Woken::Failed));
            };
            match receive(self.door(), &mut scratch.input) {
                Ok(0) => return Poll::Ready(Err(Woken::End)),
                Ok(bytes) => {
                    // A read that did not fill the buffer emptied the socket; asking again would cost a
                    // system call per request. More bytes make a new edge, and a closed peer stays marked.
                    if bytes < scratch.input.len() {
                        guard.clear_ready();
                    }
                    return Poll::Ready(Ok(bytes));
                }
                Err(Errno::AGAIN) => guard.clear_ready(),
                Err(Errno::INTR) => {}
                Err(_) => return Poll::Ready(Err(Woken::Failed)),
            }
        }
    }

    /// As `read`, but only what is there already.
    pub(super) fn read_now(&mut self) -> Option<usize> {
        let mut scratch = self.driver.scratch.borrow_mut();
        receive(self.door(), &mut scratch.input)
            .ok()
            .filter(|bytes| *bytes > 0)
    }

    /// The socket was full: wait for the edge that says it no longer is.
    pub(super) fn is_full(&self) {
        let full = |_: &Arc<Door>| Err::<(), _>(io::ErrorKind::WouldBlock.into());
        let _ = self.io.try_io(Interest::WRITABLE, full);
    }

    /// Makes the close a reset: the client must not take a reply that was given up for a complete one.
    pub(super) fn abandon(&self) {
        let _ = SockRef::from(&**self.door()).set_linger(Some(Duration::ZERO));
    }

    /// Resets the connection now, although a pool thread still has its door: the application may be silent for
    /// as long as it wants, and the client's time is up.
    pub(super) fn cut_off(&self) {
        self.abandon();
        // connect(2): TCP answers a dissolved association with a reset. Unix sockets know neither.
        if rustix::net::connect_unspec(self.door()).is_err() {
            let _ = rustix::net::shutdown(self.door(), Shutdown::Both);
        }
    }

    /// Whether the client has sent something that nobody will read: closing now would reset the connection
    /// and take the end of the reply with it. A reply that is to end in a reset gets its reset.
    fn has_unread(&mut self) -> bool {
        let unread = !self.buffer.is_empty() || self.read_now().is_some();
        let linger = || SockRef::from(&**self.door()).linger();
        unread && !matches!(linger(), Ok(Some(Duration::ZERO)))
    }

    /// Reads and throws away what still comes, for a bounded time, after the last reply.
    async fn linger(&mut self) -> Step {
        // The client sees the end of our side and can read the reply in peace (RFC 9112 section 9.6).
        let _ = rustix::net::shutdown(self.door(), Shutdown::Write);
        self.buffer = Vec::new();
        self.deadline_in(Doing::Closing, self.driver.config().timeouts.linger);
        let mut bytes = 0;
        while bytes < LINGER_BYTES_MAX {
            match self.read().await {
                Ok(more) => bytes += more,
                Err(Woken::Draining | Woken::Crowded) => {}
                Err(_) => break,
            }
        }
        Step::Close
    }
}

impl Drop for Connection {
    fn drop(&mut self) {
        self.driver.table.borrow_mut().leave(self.seat);
        self.driver.has_ended(self.accepted);
        let unsent = std::mem::take(&mut self.door().flow().memory_bytes);
        self.driver.shared.replies_memory.give_back(unsent);
        // A panic in a task would otherwise cost this connection silently; it is to cost the process.
        if std::thread::panicking() {
            self.driver.broken.set(true);
            self.driver.changed.notify_one();
        }
        if !self.driver.serving() {
            self.driver.changed.notify_one();
        }
    }
}

fn receive(door: &Arc<Door>, buffer: &mut [u8]) -> Result<usize, Errno> {
    let (bytes, _) = rustix::net::recv(door, buffer, RecvFlags::DONTWAIT)?;
    Ok(bytes)
}
