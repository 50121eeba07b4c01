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

use measure::{Ending, Nanos, Stamp};
use stage::Pace;

use super::H1;
use crate::config::meant::Rate;
use crate::protocol::{Connection, Stop, Woken};
use crate::rates::Limit;
use crate::response::{self, Parts, Progress};
use crate::stats::Doing;
use crate::transport::{PlainSocket, Transport, WriteReadiness};

/// How often the kernel is asked what a client has taken while we wait for it.
pub(super) const LOOK: Nanos = Nanos(500_000_000);
/// When it is asked first. What a client's kernel takes of itself comes at once; asked for later, it would
/// count as progress of that moment.
const FIRST_LOOK: Nanos = Nanos(100_000_000);
/// Sends of one reply in a turn, before the other connections get theirs.
const SENDS_A_TURN: usize = 8;
/// Bytes of a file that a driver offers in one call where there are no writers.
const SPAN_BYTES: u64 = 256 << 10;

/// One response's way to one client.
pub(super) struct SendMonitor {
    pace: Pace,
    limit: Option<Box<Limit>>,
    /// Bytes that the limit has granted and that were not sent yet.
    granted: u64,
    /// Bytes that the socket took.
    pub(super) sent: u64,
    /// Bytes in the kernel before them.
    before: u64,
    /// Of both, what the client had acknowledged at the last look; `None` before the first.
    acknowledged: Option<i64>,
    /// When the kernel is asked next.
    due: Stamp,
    /// Whether the client has taken anything since the first look.
    has_moved: bool,
}

impl SendMonitor {
    /// A way that begins now; the client is to blame for time from `since` on.
    pub(super) fn new(connection: &Connection, limit: Option<Box<Limit>>, since: Stamp) -> Self {
        let timeouts = &connection.driver.config().timeouts;
        let before = connection.transport.unacknowledged();
        Self {
            pace: Pace::new(since, timeouts.send, timeouts.send_rate_min),
            limit,
            granted: 0,
            sent: 0,
            before,
            acknowledged: None,
            due: since.plus(FIRST_LOOK),
            has_moved: false,
        }
    }

    /// When the next look is due; looks if that is now: asks the kernel what the client has taken.
    pub(super) fn look(&mut self, transport: &Transport, now: Stamp) -> Result<Stamp, Stop> {
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
        Err(Stop {
            ending: Ending::SendTimeout,
            cause,
        })
    }

    /// Whether everything that the socket took has reached the client.
    pub(super) fn is_out(&self) -> bool {
        self.acknowledged.unwrap_or(0) >= (self.before + self.sent) as i64
    }

    pub(super) fn hold(&mut self, now: Stamp) {
        self.pace.hold(now);
    }

    pub(super) fn resume(&mut self, now: Stamp) {
        self.pace.resume(now);
    }

    /// What the limit has granted will not be sent.
    fn give_back(&mut self) {
        let unused = std::mem::take(&mut self.granted);
        if let Some(limit) = &mut self.limit {
            limit.give_back(unused);
        }
    }

    fn took(&mut self, sent: u64) {
        self.sent += sent;
        self.granted = self.granted.saturating_sub(sent);
    }
}

impl H1 {
    /// Sends some of `parts`; waits for the client only when it took nothing more. What was sent is
    /// counted in `monitor` even when the rest fails.
    pub(super) async fn send_some(
        &self,
        parts: &mut Parts,
        monitor: &mut SendMonitor,
    ) -> Result<(), Stop> {
        let (memory_bytes, file_bytes) = parts.bytes();
        let most = self
            .allowance(monitor, memory_bytes as u64 + file_bytes)
            .await?;
        let readiness = self.readiness_for(file_bytes, monitor).await?;
        let progress = self.send_step(parts, monitor, most, readiness).await?;
        self.after_step(progress, monitor).await
    }

    /// What follows a step: another one, or waiting for the client.
    pub(super) async fn after_step(
        &self,
        progress: Progress,
        monitor: &mut SendMonitor,
    ) -> Result<(), Stop> {
        match progress {
            Progress::Done => Ok(()),
            Progress::More => {
                tokio::task::yield_now().await;
                Ok(())
            }
            Progress::Blocked => self.writable(monitor).await.map(drop),
        }
    }

    /// The readiness that a thread needs which sends files; `None` where this thread sends.
    pub(super) async fn readiness_for(
        &self,
        file_bytes: u64,
        monitor: &mut SendMonitor,
    ) -> Result<Option<WriteReadiness<'_>>, Stop> {
        let has_threads = !self.connection.driver.shared.writers.is_empty();
        let has_socket = self.connection.transport.direct().is_some();
        match file_bytes > 0 && has_threads && has_socket {
            true => self.writable(monitor).await.map(Some),
            false => Ok(None),
        }
    }

    /// Sends until the socket is full or a turn is over. With a `readiness` another thread does, because reading
    /// a file may have to wait for its disk. Waits for no client.
    pub(super) async fn send_step(
        &self,
        parts: &mut Parts,
        monitor: &mut SendMonitor,
        most: u64,
        readiness: Option<WriteReadiness<'_>>,
    ) -> Result<Progress, Stop> {
        if let Some(readiness) = readiness
            && let Some(socket) = self.connection.transport.direct()
        {
            let socket = Arc::clone(socket);
            return self
                .send_by_thread(socket, parts, monitor, (most, readiness))
                .await;
        }
        let progress = self.send_turn(parts, monitor, most)?;
        if progress == Progress::Blocked {
            self.connection.transport.is_full();
        }
        Ok(progress)
    }

    /// A turn's worth of sends from this thread.
    fn send_turn(
        &self,
        parts: &mut Parts,
        monitor: &mut SendMonitor,
        most: u64,
    ) -> Result<Progress, Stop> {
        let mut left = most;
        let mut progress = Progress::More;
        for _ in 0..SENDS_A_TURN {
            let step = left.min(SPAN_BYTES);
            let sent = self.connection.transport.send_parts(parts, step);
            let (now, sent) = sent.map_err(|error| Stop::of_send(&error))?;
            progress = now;
            left -= sent;
            monitor.took(sent);
            if progress != Progress::More || left == 0 {
                break;
            }
        }
        self.connection.driver.flush_due(measure::now());
        Ok(progress)
    }

    /// Has another thread send. The readiness is of before: an edge that comes while that thread finds the
    /// socket full must not be wiped out with it.
    async fn send_by_thread(
        &self,
        socket: Arc<PlainSocket>,
        parts: &mut Parts,
        monitor: &mut SendMonitor,
        (most, readiness): (u64, WriteReadiness<'_>),
    ) -> Result<Progress, Stop> {
        monitor.hold(measure::now());
        self.connection.now_doing(Doing::Sending, Stamp::NEVER);
        let task = response::send_file(std::mem::take(parts), socket, most);
        let threads = &self.connection.driver.shared.writers;
        let written = self.connection.unless_cut(threads.run_on(task)).await;
        monitor.resume(measure::now());
        let written = written
            .ok_or(Woken::Cut.stop())?
            .map_err(|error| Stop::of_send(&error))?;
        *parts = written.parts;
        monitor.took(written.sent);
        let progress = written.last.map_err(|error| Stop::of_send(&error))?;
        match progress {
            Progress::Blocked => readiness.clear(),
            Progress::Done | Progress::More => readiness.keep(),
        }
        Ok(progress)
    }

    /// Waits until the socket may take more.
    async fn writable<'c>(&'c self, monitor: &mut SendMonitor) -> Result<WriteReadiness<'c>, Stop> {
        let connection = &self.connection;
        let mut is_armed = false;
        poll_fn(|context| {
            let woken = connection.take_fired();
            if !is_armed || woken == Some(Woken::Deadline) {
                is_armed = true;
                match monitor.look(&connection.transport, measure::now()) {
                    Ok(next) => connection.now_doing(Doing::Sending, next),
                    Err(stop) => return Poll::Ready(Err(stop)),
                }
            }
            match woken {
                None | Some(Woken::Deadline | Woken::Crowded | Woken::Draining) => {}
                Some(woken) => return Poll::Ready(Err(woken.stop())),
            }
            // Registered anew at each look: a wake-up uses the waker up, and the next one may be the last.
            self.stream.ownership.watch(context);
            if let Some(why) = self.stream.pending().abandoned() {
                return Poll::Ready(Err(Stop::cut(why.cause())));
            }
            let ready = std::task::ready!(connection.transport.poll_writable(context));
            Poll::Ready(ready.map_err(|_| Woken::Failed.stop()))
        })
        .await
    }

    /// Bytes that may be sent now; waits for the response's share of the bandwidth.
    pub(super) async fn allowance(
        &self,
        monitor: &mut SendMonitor,
        want: u64,
    ) -> Result<u64, Stop> {
        let Some(limit) = &mut monitor.limit else {
            return Ok(u64::MAX);
        };
        if monitor.granted == 0 {
            let now = measure::now();
            let (from, bytes) = limit.reserve(want, now);
            monitor.granted = bytes;
            if from > now {
                // It is our limit that makes the client wait.
                monitor.hold(now);
                self.connection.now_doing(Doing::Sending, Stamp::NEVER);
                let pause = tokio::time::sleep(Duration::from_nanos(from.since(now).0));
                let connection = &self.connection;
                let rested = connection.unless_cut(connection.unless_reset(pause)).await;
                monitor.resume(measure::now());
                rested.ok_or(Woken::Cut.stop())?.inspect_err(|_| {
                    monitor.give_back();
                })?;
            }
        }
        Ok(monitor.granted)
    }

    /// The bandwidth limit of a response of `route`; `own`: what the application gave it. A connection's own is
    /// taken out until `keep_limit`.
    pub(super) fn limit(&mut self, route: u16, own: Option<Rate>) -> Option<Box<Limit>> {
        let rates = &self.connection.driver.shared.rates;
        if rates.is_empty && own.is_none() {
            return None;
        }
        let last = match own {
            None => self.limit.take(),
            Some(_) => None,
        };
        rates
            .limit(last.map(|last| *last), route, own)
            .map(Box::new)
    }

    /// Keeps what is left of a connection's own share for its next response.
    pub(super) fn keep_limit(&mut self, monitor: &mut SendMonitor, own: Option<Rate>) {
        if own.is_none() {
            self.limit = monitor.limit.take();
        }
    }
}
