//! Connections of HTTP/2 of one driver to the servers of one group, and which of them the next stream is opened on.
//!
//! One connection to a server carries as many streams as the server allows; a further one is made when all are taken.
//! Exchanges that need a connection at the same time wait for the same one. Knows neither requests nor responses.

use std::cell::{Cell, RefCell};
use std::future::poll_fn;
use std::pin::Pin;
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use bytes::Bytes;
use h2::Reason;
use h2::client::{Builder, SendRequest};
use telemetry::Stamp;
use tokio::sync::watch;
use tokio::time::timeout;

use super::connection::UpstreamConnection;
use super::fault::UpstreamFault;
use super::group::{Endpoint, UpstreamGroup};

/// Bytes of one response that may come before its client has taken them. They bound the memory of a connection, together
/// with the number of its streams.
const STREAM_WINDOW_BYTES: u32 = 256 << 10;
/// The same of all responses of a connection: as large as RFC 9113 section 6.9.1 allows. Where fewer streams than there
/// are could use it up, that many clients that read slowly would stop all others.
const CONNECTION_WINDOW_BYTES: u32 = (1 << 31) - 1;
/// Streams of one connection, whose windows are all within that of the connection.
const STREAMS_MAX: usize = (CONNECTION_WINDOW_BYTES / STREAM_WINDOW_BYTES) as usize;
/// Bytes of one request that wait for the socket.
const SEND_BUFFER_BYTES: usize = 128 << 10;

/// The connections of one driver to the servers of one group.
pub(super) struct Http2Connections {
    group: Arc<UpstreamGroup>,
    /// Largest head of a response.
    head_bytes_max: u32,
    servers: RefCell<Vec<Http2Server>>,
}

/// Those to one address.
struct Http2Server {
    endpoint: Arc<Endpoint>,
    connections: Vec<Rc<Http2Connection>>,
    /// One is being made.
    making: Option<watch::Receiver<Option<Made>>>,
}

/// What has become of a connection that was to be made.
type Made = Result<(), UpstreamFault>;

/// One connection; its frames are read and written by a task of its own.
pub(super) struct Http2Connection {
    send: SendRequest<Bytes>,
    /// Streams that are open.
    streams_len: Cell<usize>,
    /// It gets no further streams.
    is_retired: Cell<bool>,
    /// When its last stream ended; before that, when it was made.
    idle_since: Cell<Stamp>,
}

/// A place for one stream on a connection; given back when it is dropped.
pub(super) struct StreamPlace(Rc<Http2Connection>);

impl Http2Connections {
    pub(super) fn new(group: &Arc<UpstreamGroup>, head_bytes_max: usize) -> Rc<Self> {
        Rc::new(Self {
            group: Arc::clone(group),
            head_bytes_max: u32::try_from(head_bytes_max).unwrap_or(u32::MAX),
            servers: RefCell::default(),
        })
    }

    /// A place on a connection that is there, and has not been idle for too long.
    pub(super) fn take(&self, endpoint: &Arc<Endpoint>, now: Stamp) -> Option<StreamPlace> {
        let timeout = self.group.settings.idle_timeout;
        let mut servers = self.servers.borrow_mut();
        let mut known = servers.iter_mut();
        let server = known.find(|server| Arc::ptr_eq(&server.endpoint, endpoint))?;
        let is_usable =
            |one: &Http2Connection| !one.is_idle() || now.since(one.idle_since.get()) < timeout;
        server.connections.retain(|one| is_usable(one));
        drop(servers);
        self.take_place(endpoint)
    }

    fn take_place(&self, endpoint: &Arc<Endpoint>) -> Option<StreamPlace> {
        let mut servers = self.servers.borrow_mut();
        let server = servers
            .iter_mut()
            .find(|server| Arc::ptr_eq(&server.endpoint, endpoint))?;
        server.connections.retain(|one| !one.is_over());
        let free = server.connections.iter().find(|one| one.has_room())?;
        free.streams_len.set(free.streams_len.get() + 1);
        Some(StreamPlace(Rc::clone(free)))
    }

    /// A place on a connection that is made for it, or for others at the same time.
    ///
    /// # Errors
    /// Why there is no connection.
    pub(super) async fn connect(
        self: &Rc<Self>,
        endpoint: &Arc<Endpoint>,
    ) -> Result<StreamPlace, UpstreamFault> {
        loop {
            let mut making = self.making(endpoint);
            let made = making.wait_for(Option::is_some).await;
            // The task that makes it ends with its driver alone.
            made.map_or(Err(UpstreamFault::Closed), |made| made.unwrap_or(Ok(())))?;
            if let Some(place) = self.take_place(endpoint) {
                return Ok(place);
            }
            // Others have taken all places, or the server takes no streams: it would have said so again.
            if !self.has_some(endpoint) {
                return Err(UpstreamFault::GoneAway);
            }
        }
    }

    fn has_some(&self, endpoint: &Arc<Endpoint>) -> bool {
        let servers = self.servers.borrow();
        let mut servers = servers.iter();
        servers.any(|one| Arc::ptr_eq(&one.endpoint, endpoint) && !one.connections.is_empty())
    }

    /// What becomes of the connection that is being made, which is begun where none is.
    fn making(self: &Rc<Self>, endpoint: &Arc<Endpoint>) -> watch::Receiver<Option<Made>> {
        let mut servers = self.servers.borrow_mut();
        let known = servers
            .iter()
            .position(|server| Arc::ptr_eq(&server.endpoint, endpoint));
        let at = known.unwrap_or_else(|| {
            servers.push(Http2Server {
                endpoint: Arc::clone(endpoint),
                connections: Vec::new(),
                making: None,
            });
            servers.len() - 1
        });
        if let Some(making) = &servers[at].making {
            return making.clone();
        }
        let (sender, receiver) = watch::channel(None);
        servers[at].making = Some(receiver.clone());
        let (connections, endpoint) = (Rc::clone(self), Arc::clone(endpoint));
        // Not in the task of an exchange, whose client may leave while others wait.
        tokio::task::spawn_local(async move {
            let made = connect(&connections.group, &endpoint, connections.head_bytes_max).await;
            sender.send_replace(Some(connections.add(&endpoint, made)));
        });
        receiver
    }

    fn add(&self, endpoint: &Arc<Endpoint>, made: Result<Http2Connection, UpstreamFault>) -> Made {
        let mut servers = self.servers.borrow_mut();
        let mut servers = servers.iter_mut();
        let server = servers.find(|server| Arc::ptr_eq(&server.endpoint, endpoint));
        let server = server.expect("a server is kept while a connection to it is being made");
        server.making = None;
        server.connections.push(Rc::new(made?));
        Ok(())
    }

    /// Whether there is no connection, and none is being made.
    pub(super) fn is_empty(&self) -> bool {
        self.servers.borrow().is_empty()
    }

    /// Lets go of connections that have ended, have been idle for too long, or are idle and too many.
    pub(super) fn close_old(&self, now: Stamp) {
        let settings = &self.group.settings;
        let mut servers = self.servers.borrow_mut();
        for server in &mut *servers {
            let mut idle_len = 0;
            server.connections.retain(|one| {
                let is_idle = one.is_idle();
                idle_len += usize::from(is_idle);
                let is_young = now.since(one.idle_since.get()) < settings.idle_timeout;
                !one.is_over() && (!is_idle || (is_young && idle_len <= settings.idle_max))
            });
        }
        servers.retain(|server| !server.connections.is_empty() || server.making.is_some());
    }
}

impl Http2Connection {
    /// Whether it takes no further streams: it has failed, or its server has sent GOAWAY.
    fn is_over(&self) -> bool {
        let context = &mut Context::from_waker(Waker::noop());
        let mut send = self.send.clone();
        self.is_retired.get() || matches!(send.poll_ready(context), Poll::Ready(Err(_)))
    }

    fn is_idle(&self) -> bool {
        self.streams_len.get() == 0
    }

    fn has_room(&self) -> bool {
        self.streams_len.get() < self.send.current_max_send_streams().min(STREAMS_MAX)
    }
}

impl StreamPlace {
    /// What the stream is opened with.
    pub(super) fn send(&self) -> SendRequest<Bytes> {
        self.0.send.clone()
    }

    /// The connection gets no further streams: what is wrong with one may be wrong with all.
    pub(super) fn retire(&self) {
        self.0.is_retired.set(true);
    }
}

impl Drop for StreamPlace {
    fn drop(&mut self) {
        let streams_len = self.0.streams_len.get() - 1;
        self.0.streams_len.set(streams_len);
        if streams_len == 0 {
            self.0.idle_since.set(telemetry::now());
        }
    }
}

/// A connection of its own, which takes no other stream.
pub(super) async fn connect_alone(
    group: &UpstreamGroup,
    endpoint: &Endpoint,
    head_bytes_max: usize,
) -> Result<StreamPlace, UpstreamFault> {
    let head_bytes_max = u32::try_from(head_bytes_max).unwrap_or(u32::MAX);
    let connection = connect(group, endpoint, head_bytes_max).await?;
    connection.streams_len.set(1);
    Ok(StreamPlace(Rc::new(connection)))
}

async fn connect(
    group: &UpstreamGroup,
    endpoint: &Endpoint,
    head_bytes_max: u32,
) -> Result<Http2Connection, UpstreamFault> {
    let longest = Duration::from_nanos(group.settings.connect_timeout.0);
    let made = timeout(longest, async {
        let connection = group.connector.connect(endpoint, None).await?;
        shake_hands(connection, head_bytes_max).await
    });
    made.await.unwrap_or(Err(UpstreamFault::ConnectTimeout))
}

/// Exchanges the prefaces (RFC 9113 section 3.4): a server that sends no SETTINGS does not speak HTTP/2, and gets no
/// request.
async fn shake_hands(
    connection: UpstreamConnection,
    head_bytes_max: u32,
) -> Result<Http2Connection, UpstreamFault> {
    let mut builder = Builder::new();
    builder
        .enable_push(false)
        .initial_window_size(STREAM_WINDOW_BYTES)
        .initial_connection_window_size(CONNECTION_WINDOW_BYTES)
        .max_send_buffer_size(SEND_BUFFER_BYTES)
        // Small frames that wait for a slow client must not end the connection for all others: windows bound them.
        .data_frame_budget(u32::MAX as usize)
        .max_header_list_size(head_bytes_max)
        // More than none tells that the SETTINGS of the server have come.
        .initial_max_send_streams(0);
    let shaken = builder.handshake::<_, Bytes>(connection).await;
    let (send, mut frames) = shaken.map_err(|error| fault_of(&error))?;
    poll_fn(|context| match Pin::new(&mut frames).poll(context) {
        Poll::Ready(Ok(())) => Poll::Ready(Err(UpstreamFault::Closed)),
        Poll::Ready(Err(error)) => Poll::Ready(Err(fault_of(&error))),
        Poll::Pending if send.current_max_send_streams() > 0 => Poll::Ready(Ok(())),
        Poll::Pending => Poll::Pending,
    })
    .await?;
    tokio::task::spawn_local(async move {
        // Its streams are told the same.
        let _ = frames.await;
    });
    Ok(Http2Connection {
        send,
        streams_len: Cell::new(0),
        is_retired: Cell::new(false),
        idle_since: Cell::new(telemetry::now()),
    })
}

/// Why a stream has failed, or a connection.
pub(super) fn fault_of(error: &h2::Error) -> UpstreamFault {
    match error.reason() {
        _ if error.is_io() => UpstreamFault::Closed,
        _ if !error.is_remote() => UpstreamFault::Http2Violation,
        // RFC 9113 sections 6.8 and 8.7: streams above the last one of a GOAWAY, and refused ones, were not processed.
        _ if error.is_go_away() => UpstreamFault::GoneAway,
        Some(Reason::REFUSED_STREAM) => UpstreamFault::Refused,
        _ => UpstreamFault::Reset,
    }
}
