//! Sending: a chain goes out as its client takes it, from this thread or from a writer, at the pace that the
//! client has to keep and within the bandwidth that it may have.
//!
//! The pace counts what the client's side has acknowledged, not what our kernel has buffered: a large
//! send buffer neither hides a client that stopped reading nor makes an honest slow one look dead. The
//! kernel is asked twice a second while a client makes us wait, never on the way of a quick one.

use std::future::{Future, poll_fn};
use std::io::{self, ErrorKind};
use std::pin::pin;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use measure::{Ending, Nanos, Stamp};
use stage::Pace;
use tokio::io::Interest;
use tokio::io::unix::AsyncFdReadyGuard;

use super::connection::{Connection, Woken};
use crate::config::meant::Rate;
use crate::delivery::{self, Chain, Door, Progress, UNSTORED};
use crate::rates::Limit;
use crate::stats::{Doing, Timeout};
use crate::sys;

/// How often the kernel is asked what a client has taken while we wait for it.
pub(super) const LOOK: Nanos = Nanos(500_000_000);
/// When it is asked first. What a client's kernel takes of itself comes at once; asked for later, it would
/// count as progress of that moment.
const FIRST_LOOK: Nanos = Nanos(100_000_000);
/// Sends of one reply in a turn, before the other connections get theirs.
const SENDS_A_TURN: usize = 8;
/// Bytes of a file that a driver offers in one call where there are no writers.
const SPAN_BYTES: u64 = 256 << 10;

/// Why a reply was not sent to its end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Stop {
    pub(super) ending: Ending,
    pub(super) cause: &'static str,
}

/// One reply's way to one client.
pub(super) struct Outflow {
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

impl Outflow {
    /// A way that begins now; the client is to blame for time from `since` on.
    pub(super) fn new(connection: &Connection, limit: Option<Box<Limit>>, since: Stamp) -> Self {
        let timeouts = &connection.driver.config().timeouts;
        let before = sys::unacknowledged(connection.door());
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
    pub(super) fn look(&mut self, door: &Door, now: Stamp) -> Result<Stamp, Stop> {
        if self.due > now {
            return Ok(self.due);
        }
        let waiting = sys::unacknowledged(door);
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
            "the client took the reply too slowly"
        } else {
            "the client took nothing of the reply"
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

    fn hold(&mut self, now: Stamp) {
        self.pace.hold(now);
    }

    fn resume(&mut self, now: Stamp) {
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

impl Connection {
    /// Sends some of a chain; waits for the client only when it took nothing more. What was sent is
    /// counted in `outflow` even when the rest fails.
    pub(super) async fn send_some(
        &mut self,
        chain: &mut Chain,
        outflow: &mut Outflow,
    ) -> Result<(), Stop> {
        let (memory_bytes, file_bytes) = chain.bytes();
        let most = self
            .allowance(outflow, memory_bytes as u64 + file_bytes)
            .await?;
        if file_bytes > 0 && !self.driver.shared.writers.is_empty() {
            return self.send_by_writer(chain, outflow, most).await;
        }
        match self.send_turn(chain, outflow, most)? {
            Progress::Done => Ok(()),
            Progress::More => {
                tokio::task::yield_now().await;
                Ok(())
            }
            Progress::Blocked => {
                self.is_full();
                self.room(outflow).await.map(drop)
            }
        }
    }

    /// A turn's worth of sends from this thread.
    fn send_turn(
        &self,
        chain: &mut Chain,
        outflow: &mut Outflow,
        most: u64,
    ) -> Result<Progress, Stop> {
        let mut left = most;
        let mut progress = Progress::More;
        for _ in 0..SENDS_A_TURN {
            let (now, sent) = chain
                .send(self.door(), left.min(SPAN_BYTES))
                .map_err(|error| fault(&error))?;
            progress = now;
            left -= sent;
            outflow.took(sent);
            if progress != Progress::More || left == 0 {
                break;
            }
        }
        self.driver.flush_due(measure::now());
        Ok(progress)
    }

    /// A chain with spans of files: a writer sends until the socket is full, because reading may have to wait
    /// for a disk.
    async fn send_by_writer(
        &mut self,
        chain: &mut Chain,
        outflow: &mut Outflow,
        most: u64,
    ) -> Result<(), Stop> {
        // The readiness of before: an edge that comes while the writer finds the socket full must not be
        // wiped out with it.
        let mut readiness = self.room(outflow).await?;
        outflow.hold(measure::now());
        self.now_doing(Doing::Sending, Stamp::NEVER);
        let errand = delivery::write(std::mem::take(chain), Arc::clone(self.door()), most);
        let writers = &self.driver.shared.writers;
        let written = self.unless_cut(writers.run_on(errand)).await;
        outflow.resume(measure::now());
        let written = written
            .ok_or(Woken::Cut.stop())?
            .map_err(|error| fault(&error))?;
        *chain = written.chain;
        outflow.took(written.sent);
        match written.last.map_err(|error| fault(&error))? {
            Progress::Blocked => readiness.clear_ready(),
            Progress::Done | Progress::More => readiness.retain_ready(),
        }
        Ok(())
    }

    /// Waits until the socket may take more.
    async fn room<'c>(
        &'c self,
        outflow: &mut Outflow,
    ) -> Result<AsyncFdReadyGuard<'c, Arc<Door>>, Stop> {
        let mut is_armed = false;
        poll_fn(|context| {
            let woken = self.take_fired();
            if !is_armed || woken == Some(Woken::Deadline) {
                is_armed = true;
                match outflow.look(self.door(), measure::now()) {
                    Ok(next) => self.now_doing(Doing::Sending, next),
                    Err(stop) => return Poll::Ready(Err(stop)),
                }
            }
            match woken {
                None | Some(Woken::Deadline | Woken::Crowded | Woken::Draining) => {}
                Some(woken) => return Poll::Ready(Err(woken.stop())),
            }
            // The rest of the reply could not be stored: what there is of it keeps its space no longer.
            if self.door().flow().gone {
                return Poll::Ready(Err(Stop {
                    ending: Ending::Cut,
                    cause: UNSTORED,
                }));
            }
            let ready = std::task::ready!(self.io.poll_write_ready(context));
            Poll::Ready(ready.map_err(|_| Woken::Failed.stop()))
        })
        .await
    }

    /// Bytes that may be sent now; waits for the reply's share of the bandwidth.
    async fn allowance(&mut self, outflow: &mut Outflow, want: u64) -> Result<u64, Stop> {
        let Some(limit) = &mut outflow.limit else {
            return Ok(u64::MAX);
        };
        if outflow.granted == 0 {
            let now = measure::now();
            let (from, bytes) = limit.reserve(want, now);
            outflow.granted = bytes;
            if from > now {
                // It is our limit that makes the client wait.
                outflow.hold(now);
                self.now_doing(Doing::Sending, Stamp::NEVER);
                let pause = tokio::time::sleep(Duration::from_nanos(from.since(now).0));
                let rested = self.unless_cut(self.unless_reset(pause)).await;
                outflow.resume(measure::now());
                rested.ok_or(Woken::Cut.stop())?.inspect_err(|_| {
                    outflow.give_back();
                })?;
            }
        }
        Ok(outflow.granted)
    }

    /// The bandwidth limit of a reply of `route`; `own`: what the application gave it. A connection's own is
    /// taken out until `keep_limit`.
    pub(super) fn limit(&mut self, route: u16, own: Option<Rate>) -> Option<Box<Limit>> {
        let rates = &self.driver.shared.rates;
        let last = match own {
            None => self.limit.take(),
            Some(_) => None,
        };
        rates
            .limit(last.map(|last| *last), route, own)
            .map(Box::new)
    }

    /// Keeps what is left of a connection's own share for its next reply.
    pub(super) fn keep_limit(&mut self, outflow: &mut Outflow, own: Option<Rate>) {
        if own.is_none() {
            self.limit = outflow.limit.take();
        }
    }

    /// Waits for work that may take as long as it wants, but not longer than this driver: `None` when the
    /// driver is told to end at once.
    pub(super) async fn unless_cut<T>(&self, work: impl Future<Output = T>) -> Option<T> {
        let mut work = pin!(work);
        poll_fn(|context| {
            if self.cutting() {
                return Poll::Ready(None);
            }
            work.as_mut().poll(context).map(Some)
        })
        .await
    }

    /// Waits for work as long as the connection holds: one that was reset is not to keep its place, nor its
    /// application at work, until we would have sent something.
    pub(super) async fn unless_reset<T>(&self, work: impl Future<Output = T>) -> Result<T, Stop> {
        let mut work = pin!(work);
        let mut reset = pin!(self.io.ready(Interest::ERROR));
        poll_fn(|context| {
            if let Poll::Ready(done) = work.as_mut().poll(context) {
                return Poll::Ready(Ok(done));
            }
            let reset = reset.as_mut().poll(context);
            reset.map(|_| Err(Stop::peer_gone()))
        })
        .await
    }

    /// Lets go of what will not be sent.
    pub(super) fn discard(&self, chain: Chain) {
        if chain.bytes().1 > 0 {
            self.driver.shared.writers.discard(chain);
        }
    }

    /// Counts a reply that was given up because of its client's pace.
    pub(super) fn count_stop(&self, stop: Stop) {
        if stop.ending == Ending::SendTimeout {
            self.driver.stats().timed_out(Timeout::Send);
        }
    }

    /// Nothing waits to be sent: it is the application that makes the client wait.
    pub(super) fn hold_outflow(&self, outflow: &mut Outflow) {
        outflow.hold(measure::now());
        self.now_doing(Doing::Sending, Stamp::NEVER);
    }

    /// There is something to send again.
    pub(super) fn resume_outflow(&self, outflow: &mut Outflow) {
        outflow.resume(measure::now());
    }
}

impl Stop {
    pub(super) fn peer_gone() -> Self {
        Self {
            ending: Ending::PeerGone,
            cause: "",
        }
    }
}

impl Woken {
    /// How an exchange ends whose reply was being sent.
    pub(super) fn stop(self) -> Stop {
        let ending = match self {
            Woken::Deadline => Ending::SendTimeout,
            Woken::Cut => Ending::Drained,
            Woken::Draining | Woken::Crowded | Woken::End | Woken::Failed => Ending::PeerGone,
        };
        Stop { ending, cause: "" }
    }
}

fn fault(error: &io::Error) -> Stop {
    match error.kind() {
        // What was announced cannot be kept.
        ErrorKind::UnexpectedEof => Stop {
            ending: Ending::Cut,
            cause: "the file was changed while it was sent",
        },
        // A network that lost its client says why it could not be reached (tcp(7), "Error handling").
        ErrorKind::BrokenPipe
        | ErrorKind::ConnectionReset
        | ErrorKind::ConnectionAborted
        | ErrorKind::NotConnected
        | ErrorKind::HostUnreachable
        | ErrorKind::NetworkUnreachable
        | ErrorKind::NetworkDown
        | ErrorKind::TimedOut => Stop::peer_gone(),
        _ => Stop {
            ending: Ending::Cut,
            cause: "the file could not be read",
        },
    }
}

#[cfg(test)]
mod tests {
    use rustix::io::Errno;

    use super::*;

    #[test]
    fn a_client_that_cannot_be_reached_is_gone_and_no_file_is_blamed() {
        let check = |errno: Errno, expect| {
            assert_eq!(fault(&errno.into()).ending, expect, "{errno:?}");
        };
        check(Errno::PIPE, Ending::PeerGone);
        check(Errno::CONNRESET, Ending::PeerGone);
        check(Errno::TIMEDOUT, Ending::PeerGone);
        check(Errno::HOSTUNREACH, Ending::PeerGone);
        check(Errno::NETUNREACH, Ending::PeerGone);
        check(Errno::IO, Ending::Cut);
        check(Errno::STALE, Ending::Cut);
    }
}
