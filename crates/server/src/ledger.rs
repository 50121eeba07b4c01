//! The ledger: where every exchange ends, exactly once, in the counters, the histograms and the log.
//!
//! One per thread that ends exchanges. Takes the facts of an ended exchange by reference.

use std::sync::Arc;

use measure::{Ending, NO_POOL, Phases, Queued, Record};
use wire::HeadView;

use crate::exchange::{Ends, Id};
use crate::log::{Log, Patience, Pen};
use crate::stats::Stats;

/// One thread's way to end exchanges.
pub(crate) struct Ledger {
    pen: Option<Pen>,
    stats: Arc<Stats>,
}

/// All that is known of an exchange at its end.
pub(crate) struct Closing<'a> {
    pub(crate) id: Id,
    /// Index of the pool that it went through.
    pub(crate) pool: Option<u16>,
    /// The head; `None` when it never became one.
    pub(crate) head: Option<HeadView<'a>>,
    /// The first line as received, for a head that was refused.
    pub(crate) request_line: &'a [u8],
    pub(crate) ends: &'a Ends,
    pub(crate) phases: &'a Phases,
    /// What it found at its pool's queue.
    pub(crate) queued: Queued,
    pub(crate) route: u16,
    pub(crate) driver: u16,
    pub(crate) request_bytes: u64,
    pub(crate) outcome: Outcome<'a>,
}

/// How an exchange ended.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Outcome<'a> {
    /// Status of the reply; 0 when there was none.
    pub(crate) status: u16,
    /// Bytes that the kernel took, head included.
    pub(crate) sent_bytes: u64,
    /// Bytes of the reply's head.
    pub(crate) head_bytes: u64,
    pub(crate) ending: Ending,
    /// Why, when it was refused or cut.
    pub(crate) cause: &'a str,
}

impl Ledger {
    pub(crate) fn new(log: &Arc<Log>, stats: Arc<Stats>, patience: Patience) -> Self {
        Self {
            pen: log.pen(patience),
            stats,
        }
    }

    /// Ends an exchange.
    pub(crate) fn close(&self, closing: &Closing<'_>) {
        let outcome = &closing.outcome;
        let spans = closing.phases.spans();
        let route = self.stats.route(closing.route);
        route.record(&spans, outcome.status, outcome.ending, outcome.sent_bytes);
        let Some(pen) = &self.pen else { return };
        let mut record = Record {
            id: closing.id.number(),
            request_id: b"",
            phases: *closing.phases,
            queued: closing.queued,
            wall_arrived_ns: 0,
            peer: closing.ends.peer_host.as_bytes(),
            method: b"",
            target: b"",
            version: b"",
            request_line: closing.request_line,
            host: b"",
            referer: b"",
            user_agent: b"",
            user: b"",
            status: outcome.status,
            body_bytes: outcome.sent_bytes.saturating_sub(outcome.head_bytes),
            sent_bytes: outcome.sent_bytes,
            request_bytes: closing.request_bytes,
            ending: outcome.ending,
            route: closing.route,
            pool: closing.pool.unwrap_or(NO_POOL),
            driver: closing.driver,
            cause: outcome.cause.as_bytes(),
        };
        if let Some(head) = closing.head {
            record.request_id = closing.id.given(head).unwrap_or_default();
            fill_from_head(&mut record, head);
        }
        pen.write(&record);
    }
}

fn fill_from_head<'a>(record: &mut Record<'a>, head: HeadView<'a>) {
    record.method = head.method();
    record.target = head.target();
    record.version = match head.index.version {
        wire::Version::Http10 => b"HTTP/1.0",
        wire::Version::Http11 => b"HTTP/1.1",
    };
    for (name, value) in head.headers() {
        match name.len() {
            4 if name.eq_ignore_ascii_case(b"host") => record.host = value,
            7 if name.eq_ignore_ascii_case(b"referer") => record.referer = value,
            10 if name.eq_ignore_ascii_case(b"user-agent") => record.user_agent = value,
            _ => {}
        }
    }
}
