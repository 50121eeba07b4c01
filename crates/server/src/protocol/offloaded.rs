//! What a driver keeps of an exchange that a worker has: enough to end it where it does not come back in time.

use std::sync::Arc;

use measure::{Ending, Nanos, Stamp};
use wire::RequestHead;

use super::{Connection, Stop};
use crate::exchange::ownership::ResponseStarted;
use crate::exchange::stream::{Abandoned, StreamShared};
use crate::exchange::{self, Exchange, ExchangeRecord};
use crate::log::Level;
use crate::recorder::Received;
use crate::stats::Timeout;

/// Why an exchange ends without its application.
pub(crate) const OVERDUE: &str = "the application took longer than request_timeout";
/// How a response ends in its middle whose application took longer than it may.
pub(crate) const STOP_OVERDUE: Stop = Stop {
    ending: Ending::Cut,
    cause: OVERDUE,
};

/// What the driver keeps of an exchange that a worker has.
pub(crate) struct Offloaded {
    pub(crate) head: Arc<RequestHead>,
    pub(crate) record: ExchangeRecord,
    /// How long the application may take.
    pub(crate) timeout: Option<Nanos>,
}

/// Why an exchange that a worker has is not waited for any longer.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum GivenUp {
    /// The drain deadline passed.
    Cut(ResponseStarted),
    /// The application took longer than it may.
    Overdue(ResponseStarted),
    /// The client does not want it any more.
    #[cfg_attr(not(feature = "faults"), expect(dead_code))]
    ClientGone(ResponseStarted),
}

impl Offloaded {
    pub(crate) fn new(exchange: &Exchange, timeout: Option<Nanos>) -> Self {
        Self {
            head: Arc::clone(&exchange.head),
            record: exchange.record,
            timeout,
        }
    }

    pub(crate) fn received(&self) -> Received<'_> {
        Received::Head(self.head.view())
    }

    /// When the time of the application is up: ZERO when it is, NEVER when there is no bound. An exchange that
    /// still waits for a worker has all of its time before it.
    pub(crate) fn due(&self, stream: &StreamShared, now: Stamp) -> Stamp {
        let Some(timeout) = self.timeout else {
            return Stamp::NEVER;
        };
        let due = match self.started(stream) {
            Some(started) => started.plus(timeout),
            None => now.plus(timeout),
        };
        if due <= now { Stamp::ZERO } else { due }
    }

    /// When a worker took it, if one has.
    fn started(&self, stream: &StreamShared) -> Option<Stamp> {
        let started = stream.started_at();
        // Until one has, a stream that is used again has the stamp of its last exchange.
        (started >= self.record.phases.queued).then_some(started)
    }

    /// The record with the worker that took the exchange, and when; `otherwise` when none has.
    fn started_record(&self, stream: &StreamShared, otherwise: Stamp) -> ExchangeRecord {
        let mut record = self.record;
        let started = self.started(stream);
        record.phases.started = started.unwrap_or(otherwise);
        record.phases.worker = started.and_then(|_| stream.worker());
        record
    }

    /// The record of one that is answered in the place of its application, which is still at it.
    pub(crate) fn overdue_record(&self, stream: &StreamShared) -> ExchangeRecord {
        let mut record = self.started_record(stream, self.record.phases.queued);
        record.end_as(Ending::Refused, OVERDUE);
        record
    }
}

impl Connection {
    /// Logs an exchange whose response is out, while the application is still at it when its time is up. The
    /// client has what it asked for, and only the stream ends, which the worker still has.
    pub(crate) fn end_answered(
        &self,
        offloaded: &Offloaded,
        stream: &StreamShared,
        sent_bytes: u64,
    ) {
        let mut record = offloaded.started_record(stream, offloaded.record.phases.queued);
        record.end_at(measure::now());
        (record.status, record.head_bytes) = (stream.status(), stream.head_bytes());
        record.sent_bytes = sent_bytes;
        self.end(&record, offloaded.received());
    }

    /// Logs an exchange that has not come back in time. Taken by a worker, it ran until now; else it waited
    /// until now.
    pub(crate) fn end_given_up(
        &self,
        offloaded: &Offloaded,
        stream: &StreamShared,
        given_up: GivenUp,
        sent_bytes: u64,
    ) {
        let now = measure::now();
        let mut record = offloaded.started_record(stream, now);
        record.end_at(now);
        record.sent_bytes = sent_bytes;
        record.end_as(Ending::Drained, "");
        if sent_bytes > 0 {
            (record.status, record.head_bytes) = (stream.status(), stream.head_bytes());
        }
        match given_up {
            GivenUp::Cut(_) => {}
            GivenUp::ClientGone(_) => record.end_as(Ending::PeerGone, ""),
            GivenUp::Overdue(_) => {
                self.driver.stats().errors.add();
                record.status = stream.status();
                record.end_as(Ending::Cut, OVERDUE);
            }
        }
        self.end(&record, offloaded.received());
    }

    /// Names a response that was given up on our side.
    pub(crate) fn log_abandoned(&self, offloaded: &Offloaded, stream: &StreamShared) {
        let Some(why) = stream.pending().abandoned() else {
            return;
        };
        if why == Abandoned::MemoryFull {
            self.driver.stats().timed_out(Timeout::Memory);
        }
        let name = exchange::name(offloaded.record.id, offloaded.head.view());
        let text = format!("{name}: the response was cut: {}", why.cause());
        self.driver.shared.log.error(Level::Warning, &text);
    }
}
