//! Departure: how an HTTP/2 connection ends. A client that is asked to go hears of it in time, so that no request is
//! lost (RFC 9113 section 6.8): a GOAWAY that names no last stream, another one with the last stream once a PING has
//! come back, and the end when all streams below are served.

use h2::Reason;
use telemetry::{Nanos, Stamp};

use super::connection::Http2;
use crate::protocol::Connection;

/// How long the client has to answer the PING between both GOAWAYs.
const GRACE: Nanos = Nanos(1_000_000_000);

/// How the transport ends.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Departure {
    /// The client gets time to read what was sent last.
    Linger,
    Close,
}

impl Departure {
    pub(super) async fn take(self, connection: &Connection) {
        if self == Departure::Linger {
            connection.linger().await;
        }
    }
}

/// ```text
/// No ── drain, idle, age, recycling ──► Since ── PING answered, or its time is up; no streams left ──► Now
///  └──────────────── crowded, error, flood ─────────────────────────────────────────────────────►─┘
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Leaving {
    No,
    /// The first GOAWAY is out since then.
    Since(Stamp),
    /// The last GOAWAY is out.
    Now,
}

impl Leaving {
    /// When a client that does not answer is looked at again.
    pub(super) fn ends(since: Stamp, now: Stamp) -> Stamp {
        let end = since.plus(GRACE);
        // Streams may be under way for longer.
        if end <= now { now.plus(GRACE) } else { end }
    }
}

impl Http2 {
    /// Asks the client to go; what it has sent is served.
    pub(super) fn leave(&mut self, now: Stamp) {
        if self.leaving == Leaving::No && !self.closed {
            self.leaving = Leaving::Since(now);
            self.codec.graceful_shutdown();
            self.has_more = true;
        }
    }

    /// Ends a connection on which nothing is under way.
    pub(super) fn leave_now(&mut self) {
        self.end_by_error(Reason::NO_ERROR);
    }

    /// Ends the connection of a client that was asked to go, once it has had its time and nothing is under way.
    pub(super) fn look_at_leaving(&mut self, now: Stamp) {
        if let Leaving::Since(since) = self.leaving
            && since.plus(GRACE) <= now
            && self.is_idle()
        {
            self.leave_now();
        }
    }

    /// Ends the connection by a GOAWAY; streams that are under way end with it.
    pub(super) fn end_by_error(&mut self, reason: Reason) {
        if self.leaving != Leaving::Now && !self.closed {
            self.leaving = Leaving::Now;
            self.failed = Some(reason).filter(|reason| *reason != Reason::NO_ERROR);
            self.codec.abrupt_shutdown(reason);
            self.has_more = true;
        }
    }

    /// Ends the connection of a client that makes too much odd work.
    pub(super) fn end_for_odd_work(&mut self) {
        if self.leaving == Leaving::Now || self.closed {
            return;
        }
        let connection = &self.mux.connection;
        connection.driver.stats().http2_floods.add();
        connection.tell_of_odd_work(self.mux.odd_work.borrow().last());
        self.end_by_error(Reason::ENHANCE_YOUR_CALM);
    }
}
