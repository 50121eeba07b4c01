//! A driver's end of the pool of an upstream group: it takes exchanges from the queue and ends them, as a worker does.
//!
//! Any driver may take any exchange: its response leaves through a `ResponseWriter`, whichever driver has the client's
//! connection. Never waits. What an exchange needs of its upstream is in `upstream`.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use files::Reply;
use http::FieldLines;
use logging::Level;
use queueing::Entry;
use telemetry::{Ending, Nanos, Stamp, UpstreamFacts};

use super::worker::Responder;
use super::{Assignment, Job, Pool};
use crate::exchange::Exchange;
use crate::exchange::stream::{StreamEvent, StreamObserver};
use crate::queue::DequeueReason;
use crate::response::{Encoding, ResponseHead};
use crate::sync::invariant;
use crate::tunnel::Tunnel;

/// One driver's end of one pool.
pub(crate) struct UpstreamWorker {
    responder: Responder,
    /// How long the last exchange has run, until the queue knows.
    ran: Option<Nanos>,
    /// Empty between two calls; kept for its memory.
    pushed: Vec<Entry<Job>>,
}

/// A place of an exchange that has left the queue and waits for a certain server; given back when it is dropped.
pub(crate) struct BoundPlace(Arc<Pool>);

impl UpstreamWorker {
    pub(crate) fn new(pool: &Arc<Pool>) -> Self {
        Self {
            responder: Responder::new(Arc::clone(pool)),
            ran: None,
            pushed: Vec::new(),
        }
    }

    fn pool(&self) -> &Pool {
        &self.responder.pool
    }

    /// Appends an admitted exchange to the queue.
    pub(crate) fn push(&mut self, job: Entry<Job>) {
        self.pushed.push(job);
        self.responder.pool.push(&mut self.pushed);
    }

    /// Exchanges that wait.
    pub(crate) fn waiting_len(&self) -> usize {
        self.pool().waiting_len()
    }

    /// A place for an exchange that is to wait for a certain server. It counts as one that waits, and not as one that runs.
    /// `None`: as many wait so as may wait in the queue.
    pub(crate) fn wait_for_bound(&self) -> Option<BoundPlace> {
        let pool = &self.responder.pool;
        let len_max = pool.config().queue_len_max;
        let more = |len: usize| (len < len_max).then_some(len + 1);
        let len = &pool.bound_len;
        if (len.fetch_update(Ordering::Relaxed, Ordering::Relaxed, more)).is_err() {
            pool.counters.refused.add_from_any();
            return None;
        }
        pool.counters.running.take_from_any();
        Some(BoundPlace(Arc::clone(pool)))
    }

    /// Whether exchanges wait for a log that is to lose no line.
    pub(crate) fn waits_for_log(&self) -> bool {
        let log = &self.pool().shared.log;
        log.keeps_all && log.is_awaited()
    }

    /// The next waiting exchange; those that have waited too long are refused on the way. End it by `finish` or
    /// `abandon`.
    pub(crate) fn take(&mut self, now: Stamp) -> Option<Assignment> {
        loop {
            let queue = &self.responder.pool.queue;
            let taken = queue.take_now(&mut self.ran, || now)?;
            if taken.reason == DequeueReason::Expired {
                self.responder.refuse(taken.item, taken.now);
                continue;
            }
            if let Some(mut assignment) = self.responder.begin(taken.item, taken.now, None) {
                self.responder.count_begun(&mut assignment);
                return Some(assignment);
            }
        }
    }

    /// `observer` hears of the client and of the body of an exchange from now on.
    pub(crate) fn observe(assignment: &Assignment, observer: &StreamObserver) {
        let stream = assignment.writer.stream().expect(super::worker::HAS_STREAM);
        stream.observe(observer.clone());
        if let Some(body) = &assignment.exchange.streamed {
            body.observe(observer.clone());
        }
        if stream.ownership.is_revoked() {
            // Its driver may have been too early to find the observer.
            observer.notify(StreamEvent::ClientGone);
        }
    }

    /// The upstream's whole response was written.
    pub(crate) fn finish(&mut self, mut assignment: Assignment) {
        leave_stream(&mut assignment);
        let ended = self.responder.conclude(&mut assignment, Ok(()));
        self.count_run(&assignment.exchange);
        self.responder.end(assignment, ended);
    }

    /// The upstream has changed the protocol, with these fields of its 101 and `rest` behind them: the client's driver has
    /// the exchange from here on, and gets what `tunnel` makes of it, of the head for a protocol that writes heads itself,
    /// and of what the client gets first.
    pub(crate) fn begin_tunnel(
        &mut self,
        mut assignment: Assignment,
        fields: FieldLines,
        rest: Vec<u8>,
        tunnel: impl FnOnce(Box<Exchange>, Option<ResponseHead>, Vec<u8>) -> Tunnel,
    ) {
        leave_stream(&mut assignment);
        self.responder.leave_place(&mut assignment);
        let Assignment {
            mut exchange,
            mut writer,
            ..
        } = assignment;
        let (stream, _, encoding) = writer.way();
        let record = &mut exchange.record;
        let (head, first) = match encoding {
            Encoding::Http1 => {
                let mut text = http::switching_protocols(&fields);
                (record.status, record.head_bytes) = (101, text.len() as u64);
                text.extend_from_slice(&rest);
                (None, text)
            }
            Encoding::Frames => {
                let fields = fields.freeze();
                (record.status, record.head_bytes) = (200, fields.as_bytes().len() as u64);
                let head = ResponseHead {
                    status: 200,
                    fields,
                    has_trailers: false,
                };
                (Some(head), rest)
            }
        };
        record.phases.replied = telemetry::now();
        stream.set_head(record.status, record.head_bytes, None);
        self.count_ended(&exchange);
        let tunnel = Box::new(tunnel(exchange, head, first));
        stream.pending().start().tunnel = Some(tunnel);
        if stream.ownership.pass_to_driver().is_err() {
            // The driver has ended the exchange in the meantime.
            drop(stream.pending().take_tunnel());
        }
        writer.leave();
        self.responder.keep(writer);
    }

    /// The upstream gave no response, or not all of it: the client gets `reply` where nothing has left yet, else a
    /// response that does not look complete. The record ends so.
    pub(crate) fn fail(
        &mut self,
        mut assignment: Assignment,
        reply: Reply,
        ending: Ending,
        cause: &'static str,
    ) {
        leave_stream(&mut assignment);
        let ended = match assignment.writer.head_is_sent() {
            true => {
                let record = &mut assignment.exchange.record;
                assignment.writer.cut(record, cause)
            }
            false => self.responder.respond(&mut assignment, reply),
        };
        let record = &mut assignment.exchange.record;
        // A client that is gone stays gone.
        if record.ending != Ending::PeerGone {
            record.end_as(ending, cause);
        }
        self.count_ended(&assignment.exchange);
        self.responder.end(assignment, ended);
    }

    /// Nobody waits for the response any more.
    pub(crate) fn abandon(&mut self, mut assignment: Assignment, ending: Ending) {
        leave_stream(&mut assignment);
        let ended = self.responder.abandon(&mut assignment, ending);
        self.count_ended(&assignment.exchange);
        self.responder.end(assignment, ended);
    }

    /// The server that an exchange was sent to last, if it was to any.
    pub(crate) fn upstream_name(&self, facts: &UpstreamFacts) -> Option<String> {
        let config = &self.pool().shared.config;
        let mut servers = config.upstreams.iter().flat_map(|one| &one.servers);
        let server = servers.nth(usize::from(facts.server));
        let server = server.filter(|_| facts.is_known());
        server.map(|server| server.address.to_string())
    }

    /// Adds to the error log about an exchange.
    pub(crate) fn log(&self, exchange: &Exchange, level: Level, text: &str) {
        self.responder.log(level, exchange, text);
    }

    fn count_ended(&mut self, exchange: &Exchange) {
        self.pool().count_left();
        self.count_run(exchange);
    }

    fn count_run(&mut self, exchange: &Exchange) {
        let phases = &exchange.record.phases;
        self.ran = Some(phases.replied.since(phases.started));
    }
}

impl Drop for BoundPlace {
    fn drop(&mut self) {
        let before = self.0.bound_len.fetch_sub(1, Ordering::Relaxed);
        invariant!(before > 0, "a place outside the queue is given back twice");
        self.0.counters.running.add_from_any();
    }
}

impl Pool {
    /// Whether what answers its exchanges may accept WebSocket connections.
    pub(crate) fn takes_websockets(&self) -> bool {
        self.has_event_loop() || self.upstream().is_some()
    }
}

/// Before the stream may be another exchange's. No more of the body is taken.
fn leave_stream(assignment: &mut Assignment) {
    let stream = assignment.writer.stream().expect(super::worker::HAS_STREAM);
    stream.unobserve();
    if let Some(body) = assignment.exchange.streamed.take() {
        body.leave();
        assignment.exchange.record.request_bytes += body.received_bytes();
    }
}
