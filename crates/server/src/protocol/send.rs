//! Sending: parts leave as their client takes them, from this thread or from one that sends files, at the pace that
//! the client has to keep and within the bandwidth that it may have.
//!
//! The pace counts what the client's side has acknowledged, not what our kernel has buffered: a large
//! send buffer neither hides a client that stopped reading nor makes an honest slow one look dead. The
//! kernel is asked twice a second while a client makes us wait, never on the way of a quick one.

use std::future::poll_fn;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use queueing::Pace;
use telemetry::{Ending, Nanos, Stamp};

use super::{Connection, Stop, Woken};
use crate::bandwidth::BandwidthLimit;
use crate::exchange::stream::StreamShared;
use crate::response::{self, Parts, Progress};
use crate::transport::{PlainSocket, Transport, WriteReadiness};
use config::typed::Rate;
use telemetry::counters::Doing;

/// How often the kernel is asked what a client has taken while we wait for it.
pub(crate) const LOOK: Nanos = Nanos(500_000_000);
/// When it is asked first. What a client's kernel takes of itself comes at once; asked for later, it would
/// count as progress of that moment.
const FIRST_LOOK: Nanos = Nanos(100_000_000);
/// Sends of one reply in a turn, before the other connections get theirs.
const SENDS_A_TURN: usize = 8;
/// Bytes of a file that a driver offers in one call where there are no writers.
const SPAN_BYTES: u64 = 256 << 10;

/// What a client has acknowledged of one response, at the pace that it has to keep.
pub(crate) struct SendMonitor {
    pace: Pace,
    /// Bytes that the socket took, even when the rest failed.
    pub(crate) sent: u64,
    /// Bytes in the kernel before them.
    before: u64,
    /// Of both, what the client had acknowledged at the last look; `None` before the first.
    acknowledged: Option<i64>,
    /// When the kernel is asked next.
    due: Stamp,
    /// Whether the client has taken anything since the first look.
    has_moved: bool,
}

/// Sends one response to one client.
pub(crate) struct ResponseSender<'a> {
    connection: &'a Connection,
    stream: &'a StreamShared,
    pub(crate) monitor: SendMonitor,
    /// Whether the application gave the response a bandwidth of its own.
    has_own_rate: bool,
    limit: Option<Box<BandwidthLimit>>,
    /// Up to how many bytes the limit has granted.
    granted: u64,
}

/// What may be sent in one turn.
pub(crate) struct SendTurn<'a> {
    bytes_max: u64,
    /// The socket for a thread that sends files; `None` where the driver sends.
    by_thread: Option<(Arc<PlainSocket>, WriteReadiness<'a>)>,
}

impl SendMonitor {
    /// Of a response whose client is to blame for time from `since` on.
    pub(crate) fn new(connection: &Connection, since: Stamp) -> Self {
        let timeouts = &connection.driver.config().timeouts;
        Self {
            pace: Pace::new(since, timeouts.send, timeouts.send_rate_min),
            sent: 0,
            before: connection.transport.unacknowledged(),
            acknowledged: None,
            due: since.plus(FIRST_LOOK),
            has_moved: false,
        }
    }

    /// When the next look is due; looks if that is now: asks the kernel what the client has taken.
    pub(crate) fn check(&mut self, transport: &Transport, now: Stamp) -> Result<Stamp, Stop> {
        if self.due > now {
            return Ok(self.due);
        }
        let waiting = transport.unacknowledged();
        // Unix sockets count their own overhead, so the difference may be negative at first.
        let acknowledged = (self.before + self.sent) as i64 - waiting as i64;
        if let Ok(more @ 1..) = u64::try_from(acknowledged - self.acknowledged.unwrap_or(0)) {
            self.pace.advance(more, now);
            // What came before the first look, the kernel of a client takes that reads nothing.
            self.has_moved |= self.acknowledged.is_some();
        }
        self.acknowledged = Some(acknowledged);
        if self.pace.deadline() > now {
            self.due = self.pace.deadline().min(now.plus(LOOK));
            return Ok(self.due);
        }
        let cause = if self.has_moved {
            "the client took the response too slowly"
        } else {
            "the client took nothing of the response"
        };
        Err(Stop::new(Ending::SendTimeout, cause))
    }

    /// From now on it is not the client that is waited for, but something else, until `deadline` at most.
    pub(crate) fn hold(&mut self, connection: &Connection, deadline: Stamp) {
        self.pace.hold(telemetry::now());
        connection.now_doing(Doing::Sending, deadline);
    }

    /// The client is waited for again.
    pub(crate) fn resume(&mut self) {
        self.pace.resume(telemetry::now());
    }

    /// Whether everything that the socket took has reached the client.
    pub(crate) fn is_out(&self) -> bool {
        self.acknowledged.unwrap_or(0) >= (self.before + self.sent) as i64
    }
}

impl<'a> ResponseSender<'a> {
    /// Of a response of `route` that begins now to wait for its client; `rate`: the bandwidth that the application
    /// gave it.
    pub(crate) fn new(
        connection: &'a Connection,
        stream: &'a StreamShared,
        route: u16,
        rate: Option<Rate>,
    ) -> Self {
        let bandwidth = &connection.driver.shared.bandwidth;
        let last = match rate {
            None => connection.limit.take(),
            Some(_) => None,
        };
        let limit = bandwidth.limit(last.map(|last| *last), route, rate);
        connection.now_doing(Doing::Sending, Stamp::NEVER);
        Self {
            connection,
            stream,
            monitor: SendMonitor::new(connection, telemetry::now()),
            has_own_rate: rate.is_some(),
            limit: limit.map(Box::new),
            granted: 0,
        }
    }

    /// Sends all of `parts`, as the client takes them.
    pub(crate) async fn send_all(&mut self, parts: &mut Parts) -> Result<(), Stop> {
        while !parts.is_empty() {
            let turn = self.turn(parts.bytes()).await?;
            let progress = self.send(parts, turn).await?;
            self.end_turn(progress).await?;
        }
        self.flush().await
    }

    /// Waits until the socket has everything that its transport has taken.
    pub(crate) async fn flush(&mut self) -> Result<(), Stop> {
        let transport = &self.connection.transport;
        while transport.has_unsent() {
            let readiness = self.writable().await?;
            let sent = transport.send(&[]);
            sent.map_err(|error| Stop::of_send(&error))?;
            if transport.has_unsent() {
                readiness.clear();
            }
        }
        Ok(())
    }

    /// The next turn of a response with so many bytes in memory and in files. Waits for its share of the
    /// bandwidth; a thread that sends files needs a socket that may take more, too.
    pub(crate) async fn turn(
        &mut self,
        (memory_bytes, file_bytes): (usize, u64),
    ) -> Result<SendTurn<'a>, Stop> {
        let bytes_max = self.allowance(memory_bytes as u64 + file_bytes).await?;
        let has_threads = !self.connection.driver.shared.writers.is_empty();
        let by_thread = match self.connection.transport.plain_socket() {
            Some(socket) if file_bytes > 0 && has_threads => {
                Some((Arc::clone(socket), self.writable().await?))
            }
            _ => None,
        };
        Ok(SendTurn {
            bytes_max,
            by_thread,
        })
    }

    /// Sends until the socket is full or the turn is over. Waits for no client.
    pub(crate) async fn send(
        &mut self,
        parts: &mut Parts,
        turn: SendTurn<'_>,
    ) -> Result<Progress, Stop> {
        let Some((socket, readiness)) = turn.by_thread else {
            let progress = self.send_here(parts, turn.bytes_max)?;
            if progress == Progress::OnDisk {
                self.load(parts).await?;
            }
            return Ok(progress);
        };
        // Reading a file may have to wait for its disk. The readiness is of before: an edge that comes while that
        // thread finds the socket full must not be wiped out with it.
        self.monitor.hold(self.connection, Stamp::NEVER);
        let task = response::send_file(std::mem::take(parts), socket, turn.bytes_max);
        let threads = &self.connection.driver.shared.writers;
        let written = self.connection.unless_cut(threads.run_on(task)).await;
        self.monitor.resume();
        let written = written?.map_err(|error| Stop::of_send(&error))?;
        *parts = written.parts;
        self.monitor.sent += written.sent;
        let progress = written.last.map_err(|error| Stop::of_send(&error))?;
        match progress {
            Progress::Blocked => readiness.clear(),
            Progress::Done | Progress::More | Progress::OnDisk => {}
        }
        Ok(progress)
    }

    /// Has the front of `parts` read by a thread that may wait for its disk.
    async fn load(&mut self, parts: &mut Parts) -> Result<(), Stop> {
        self.monitor.hold(self.connection, Stamp::NEVER);
        let task = response::load_file(std::mem::take(parts), SPAN_BYTES);
        let threads = &self.connection.driver.shared.writers;
        let loaded = self.connection.unless_cut(threads.run_on(task)).await;
        self.monitor.resume();
        let loaded = loaded?.and_then(|loaded| loaded);
        *parts = loaded.map_err(|error| Stop::of_send(&error))?;
        Ok(())
    }

    fn send_here(&mut self, parts: &mut Parts, bytes_max: u64) -> Result<Progress, Stop> {
        let mut left = bytes_max;
        let mut progress = Progress::More;
        for _ in 0..SENDS_A_TURN {
            let step = left.min(SPAN_BYTES);
            let sent = self.connection.transport.send_parts(parts, step);
            let (now, sent) = sent.map_err(|error| Stop::of_send(&error))?;
            progress = now;
            left -= sent;
            self.monitor.sent += sent;
            if progress != Progress::More || left == 0 {
                break;
            }
        }
        self.connection.driver.flush_due(telemetry::now());
        if progress == Progress::Blocked {
            self.connection.transport.is_full();
        }
        Ok(progress)
    }

    /// Waits for the client only when it took nothing more.
    pub(crate) async fn end_turn(&mut self, progress: Progress) -> Result<(), Stop> {
        match progress {
            Progress::Done => {}
            Progress::More | Progress::OnDisk => tokio::task::yield_now().await,
            Progress::Blocked => self.writable().await.map(drop)?,
        }
        Ok(())
    }

    /// Waits until the socket may take more.
    async fn writable(&mut self) -> Result<WriteReadiness<'a>, Stop> {
        let (connection, stream) = (self.connection, self.stream);
        let mut is_armed = false;
        poll_fn(|context| {
            let woken = connection.take_fired();
            if !is_armed || woken == Some(Woken::Deadline) {
                is_armed = true;
                match self.monitor.check(&connection.transport, telemetry::now()) {
                    Ok(next) => connection.now_doing(Doing::Sending, next),
                    Err(stop) => return Poll::Ready(Err(stop)),
                }
            }
            match woken {
                None | Some(Woken::Deadline | Woken::Crowded | Woken::Draining) => {}
                Some(woken) => return Poll::Ready(Err(woken.stop())),
            }
            // Registered anew at each look: a wake-up uses the waker up, and the next one may be the last.
            stream.ownership.watch(context);
            if let Some(why) = stream.pending().abandoned() {
                return Poll::Ready(Err(Stop::cut(why)));
            }
            let ready = std::task::ready!(connection.transport.poll_writable(context));
            Poll::Ready(ready.map_err(|_| Woken::Failed.stop()))
        })
        .await
    }

    /// Bytes that may be sent now; waits for the response's share of the bandwidth.
    async fn allowance(&mut self, want: u64) -> Result<u64, Stop> {
        let Some(limit) = &mut self.limit else {
            return Ok(u64::MAX);
        };
        if self.granted <= self.monitor.sent {
            let connection = self.connection;
            let now = telemetry::now();
            let (from, bytes) = limit.reserve(want, now);
            if from > now {
                // It is our limit that makes the client wait.
                self.monitor.hold(connection, Stamp::NEVER);
                let pause = tokio::time::sleep(Duration::from_nanos(from.since(now).0));
                let rested = connection.unless_cut(connection.unless_reset(pause)).await;
                self.monitor.resume();
                let rested = rested.and_then(|rested| rested);
                // What the limit has granted will not be sent.
                rested.inspect_err(|_| limit.give_back(bytes))?;
            }
            self.granted = self.monitor.sent + bytes;
        }
        Ok(self.granted - self.monitor.sent)
    }
}

impl Drop for ResponseSender<'_> {
    fn drop(&mut self) {
        if !self.has_own_rate {
            // A client would else get as many bursts as it asks for responses.
            self.connection.limit.set(self.limit.take());
        }
    }
}
