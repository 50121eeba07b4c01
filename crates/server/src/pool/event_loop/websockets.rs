//! WebSocket connections of an event loop: their handshakes are exchanges like others, and behind those they are no
//! longer among the requests that the loop has inside.

use std::sync::Arc;

use config::typed::WebSocketConfig;
use files::{Part, Reply};
use http::FieldLines;
use http::websocket::{DeflateAgreement, HandshakeFault};
use logging::Level;
use telemetry::{Ending, LoopFacts};

use super::{LoopAssignment, LoopWorker};
use crate::exchange::stream::{After, Finished};
use crate::exchange::{Exchange, ExchangeName};
use crate::fault::Fault;
use crate::pool::Assignment;
use crate::response::{Encoding, Parts, ResponseHead};
use crate::sync::invariant;
use crate::websocket::{WebSocketChannel, WebSocketPermit};

/// Code of a close frame where the application has ended without one.
const NORMAL: u16 = 1000;
/// Code of a close frame where the application has failed.
const INTERNAL_ERROR: u16 = 1011;
/// Why a handshake is refused.
const TOO_MANY: &str = "as many WebSocket connections are open as may be (ws_max)";
/// When its client is to come back: these connections live long, and a second would often be too short.
const RETRY_AFTER_SECS: u32 = 10;

/// A WebSocket connection whose handshake was accepted.
pub struct WebSocketAssignment {
    exchange: Box<Exchange>,
    /// Index of its pool.
    pool: usize,
    /// What its driver and the loop share.
    pub channel: Arc<WebSocketChannel>,
}

impl LoopWorker {
    /// Lets a WebSocket handshake go on to its application, or answers with 503 where too many connections are open.
    pub fn admit_websocket(&mut self, mut asking: LoopAssignment) -> Option<LoopAssignment> {
        let max = self.websocket_config().open_max;
        if let Some(permit) = WebSocketPermit::take(self.stats(), max) {
            asking.permit = Some(permit);
            return Some(asking);
        }
        let reply = Reply::refusal(503, Some(RETRY_AFTER_SECS));
        self.answer_for(asking, reply, Some(TOO_MANY));
        None
    }

    /// Bounds and times of WebSocket connections.
    pub fn websocket_config(&self) -> WebSocketConfig {
        self.pools[0].responder.pool.shared.config.websocket()
    }

    /// Accepts a WebSocket connection, with these fields of the response. It leaves the requests inside the loop.
    ///
    /// # Errors
    /// Gives the exchange back where its client is gone.
    pub fn accept(
        &mut self,
        mut accepted: LoopAssignment,
        fields: FieldLines,
        deflate: Option<DeflateAgreement>,
    ) -> Result<WebSocketAssignment, LoopAssignment> {
        let Assignment {
            exchange, writer, ..
        } = &mut accepted.assignment;
        let (stream, direct, encoding) = writer.way();
        let pool = &self.pools[accepted.pool].responder.pool;
        let channel = Arc::new(WebSocketChannel::new(
            Arc::clone(&stream),
            Arc::clone(&pool.shared.memory),
            direct,
            deflate,
            Arc::clone(&self.inbox),
            accepted.key,
            accepted.permit.take(),
        ));
        let (mut parts, mut head) = (Parts::default(), None);
        match encoding {
            Encoding::Http1 => {
                let text = http::switching_protocols(&fields);
                (exchange.record.status, exchange.record.head_bytes) = (101, text.len() as u64);
                parts.push(Part::Memory(text.into()));
            }
            Encoding::Frames => {
                let fields = fields.freeze();
                exchange.record.status = 200;
                exchange.record.head_bytes = fields.as_bytes().len() as u64;
                head = Some(ResponseHead {
                    status: 200,
                    fields,
                    has_trailers: false,
                });
            }
        }
        let record = &exchange.record;
        stream.set_head(record.status, record.head_bytes, None);
        {
            let mut pending = stream.pending();
            let start = pending.start();
            start.head = head;
            start.websocket = Some(Arc::clone(&channel));
            if pending.push(parts).is_err() {
                channel.leave();
                return Err(accepted);
            }
        }
        if stream.ownership.pass_to_driver().is_err() {
            // The driver has answered in its place, or its client is gone.
            drop(stream.pending().withdraw());
            channel.leave();
            return Err(accepted);
        }
        self.inside -= 1;
        self.websockets += 1;
        self.set_free();
        let LoopAssignment {
            mut assignment,
            pool,
            ..
        } = accepted;
        self.pools[pool].responder.leave_place(&mut assignment);
        let Assignment {
            exchange,
            mut writer,
            ..
        } = assignment;
        writer.leave();
        // A silent connection does not keep it.
        self.pools[pool].responder.keep(writer);
        Ok(WebSocketAssignment {
            exchange,
            pool,
            channel,
        })
    }

    /// The application of a WebSocket connection has ended: the connection closes, if it is not closing.
    pub fn finish_websocket(&mut self, ended: WebSocketAssignment, fault: Option<Fault>) {
        let WebSocketAssignment {
            mut exchange,
            pool,
            channel,
        } = ended;
        let code = match fault {
            None => NORMAL,
            Some(_) => INTERNAL_ERROR,
        };
        // It may have ended before.
        let _ = channel.close(code, "");
        let stream = channel.stream();
        stream.unobserve();
        let responder = &mut self.pools[pool].responder;
        if let Some(fault) = fault {
            responder.log(Level::Error, &exchange, &fault.to_string());
        }
        exchange.record.phases.replied = telemetry::now();
        exchange.record.end_as(Ending::Complete, "");
        // How long a connection lives says nothing of how long requests of its route run.
        responder.pool.count_left();
        let after = After::Close;
        if stream.finish(Finished { exchange, after }).is_none() {
            stream.ownership.wake();
        }
    }

    /// The task of a WebSocket connection that was accepted has ended.
    pub fn leave_websocket(&mut self) {
        invariant!(
            self.websockets > 0,
            "a WebSocket leaves a loop that has none"
        );
        self.websockets -= 1;
    }

    /// Answers with the response of the server's own for this status.
    pub fn answer_status(&mut self, answered: LoopAssignment, status: u16) {
        self.answer(answered, Reply::refusal(status, None));
    }

    /// Refuses a request whose WebSocket handshake is malformed.
    pub fn refuse_handshake(&mut self, refused: LoopAssignment, fault: HandshakeFault) {
        let reply = Reply::refusal_with(fault.status(), |fields| fault.push_fields(fields));
        self.answer(refused, reply);
    }
}

impl WebSocketAssignment {
    /// Notes what the steps of its task took, for the record.
    pub fn note(&mut self, facts: LoopFacts) {
        self.exchange.record.event_loop = facts;
    }

    /// What the exchange is called in the log.
    pub fn name(&self) -> ExchangeName {
        ExchangeName::of(&self.exchange)
    }
}
