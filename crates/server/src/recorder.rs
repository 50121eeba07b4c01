//! The recorder: every exchange ends here, exactly once, in the counters, the histograms and the log.
//!
//! One for each thread that ends exchanges. Takes an ended record by reference.

use std::sync::Arc;

use measure::{NO_POOL, Phases, Record};
use wire::HeadView;

use crate::exchange::{Ends, ExchangeRecord};
use crate::log::{Log, Patience, Pen};
use crate::stats::Stats;
use crate::sync::invariant;

/// Bytes of a refused head that the log shows at most.
const LINE_BYTES_MAX: usize = 256;

/// One thread's way to end exchanges.
pub(crate) struct Recorder {
    pen: Option<Pen>,
    stats: Arc<Stats>,
}

/// What was received of a request.
#[derive(Clone, Copy)]
pub(crate) enum Received<'a> {
    /// A complete head.
    Head(HeadView<'a>),
    /// The beginning of one that was refused, or that never came to its end.
    Beginning(&'a [u8]),
}

impl Recorder {
    pub(crate) fn new(log: &Arc<Log>, stats: Arc<Stats>, patience: Patience) -> Self {
        Self {
            pen: log.pen(patience),
            stats,
        }
    }

    /// Ends an exchange.
    pub(crate) fn close(&self, ended: &ExchangeRecord, received: Received<'_>, ends: &Ends) {
        check_order(&ended.phases);
        let spans = ended.phases.spans();
        let route = self.stats.route(ended.route);
        route.record(&spans, ended.status, ended.ending, ended.sent_bytes);
        let Some(pen) = &self.pen else { return };
        let mut record = Record {
            id: ended.id.number(),
            phases: ended.phases,
            queued: ended.queued,
            peer: ends.peer_host.as_bytes(),
            status: ended.status,
            body_bytes: ended.sent_bytes.saturating_sub(ended.head_bytes),
            sent_bytes: ended.sent_bytes,
            request_bytes: ended.request_bytes,
            ending: ended.ending,
            route: ended.route,
            pool: ended.pool.unwrap_or(NO_POOL),
            driver: ended.driver,
            cause: ended.cause.as_bytes(),
            ..Record::default()
        };
        match received {
            Received::Head(head) => {
                record.request_id = ended.id.given(head).unwrap_or_default();
                fill_from_head(&mut record, head);
            }
            Received::Beginning(bytes) => record.request_line = first_line(bytes),
        }
        pen.write(&record);
    }
}

impl<'a> Received<'a> {
    /// The head, if it was complete.
    pub(crate) fn head(self) -> Option<HeadView<'a>> {
        match self {
            Received::Head(head) => Some(head),
            Received::Beginning(_) => None,
        }
    }
}

fn check_order(phases: &Phases) {
    invariant!(
        phases.are_in_order(),
        "the phases of an exchange are out of order: {phases:?}"
    );
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

fn first_line(received: &[u8]) -> &[u8] {
    let head = &received[..received.len().min(LINE_BYTES_MAX)];
    let end = memchr::memchr2(b'\r', b'\n', head).unwrap_or(head.len());
    &head[..end]
}

#[cfg(test)]
mod tests {
    use measure::Stamp;

    use super::*;

    #[test]
    #[should_panic(expected = "invariant violated")]
    fn a_request_is_not_run_before_it_arrives() {
        check_order(&Phases {
            arrived: Stamp(2),
            queued: Stamp(1),
            ..Phases::default()
        });
    }
}
