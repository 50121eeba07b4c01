//! Another server says whether a request may pass: `forward_auth` of a route.
//!
//! Before the body of a request is received and anything of it waits, the other one is asked by a GET with the fields of
//! the request and without its body. With a status of 2xx it gives fields for the request; any other response is the
//! client's. Whatever goes wrong here, the request does not pass. Must not know what becomes of a request that passes.

use std::future::poll_fn;
use std::rc::Rc;
use std::task::Poll;
use std::time::Duration;

use bytes::Bytes;
use config::typed::{ForwardAuth, Level};
use files::{Part, Reply, ReplyBody};
use http::upstream::{
    HostField, UpstreamBody, UpstreamHeadStep, UpstreamRequest, UpstreamResponse,
};
use http::{Asked, BodyFraming, FieldLines, HeadView, Marks, RequestHead};
use queueing::balancing::{FailureKind, Outcome};
use telemetry::{AuthFacts, AuthFailure, Ending, TraceContext};
use tokio::time::timeout;

use super::connection::UpstreamConnection;
use super::exchange::forwarding;
use super::fault::UpstreamFault;
use super::group::{NoSlot, PlacingKey, UpstreamSlot};
use super::http2::StreamPlace;
use super::http2_stream::{Http2Stream, ResponsePart, final_response};
use super::{DriverUpstream, fault_reply};
use crate::driver::Driver;
use crate::exchange::{self, Ends, ExchangeRecord, TRACEPARENT, TRACESTATE};
use crate::protocol::{CheckVerdict, Look};
use crate::refusal::Refusal;

/// Longest body of a response that is passed on to the client.
const BODY_BYTES_MAX: usize = 64 << 10;
const DENIED: &str = "the server of forward_auth refused the request";

/// A response in the place of the route's.
pub(crate) struct Denial {
    pub(crate) reply: Reply,
    pub(crate) ending: Ending,
    /// For the log.
    pub(crate) cause: &'static str,
}

/// What the other server has answered.
struct AuthAnswer {
    status: u16,
    fields: FieldLines,
    body: Vec<u8>,
}

/// The request that is asked about.
#[derive(Clone, Copy)]
struct AskedRequest<'a> {
    head: HeadView<'a>,
    /// What it is for, in origin form. That of the head may be spelled otherwise, and then another path would be judged than
    /// the one that the route's server gets.
    target: &'a [u8],
    ends: &'a Ends,
    trace: Option<&'a TraceContext>,
}

/// The question about one request.
struct AuthQuestion<'a> {
    driver: &'a Rc<Driver>,
    /// The group of the server that decides.
    own: &'a DriverUpstream,
    /// The question as it is sent.
    written: Vec<u8>,
    ends: &'a Ends,
}

impl Driver {
    /// Asks the server that decides about a request for `target`; its record gets to know of that.
    pub(crate) async fn authorize(
        self: &Rc<Self>,
        auth: &ForwardAuth,
        target: &[u8],
        head: HeadView<'_>,
        ends: &Ends,
        record: &mut ExchangeRecord,
    ) -> CheckVerdict {
        if names_copied(auth, head) {
            return CheckVerdict::Refuse(Refusal::NAMES_COPIED);
        }
        let own = self
            .upstreams
            .own(self.config().upstreams[auth.upstream].pool);
        let began = telemetry::now();
        let mut server = None;
        let trace = Some(record.id.trace()).filter(|trace| trace.is_known());
        let about = AskedRequest {
            head,
            target,
            ends,
            trace,
        };
        let asked = self.ask_auth_server(own, auth, about, &mut server);
        let asked = asked.await;
        let (status, failure) = match &asked {
            Ok(answer) => (answer.status, AuthFailure::None),
            Err(fault) => (0, failure_of(*fault)),
        };
        let times = (began, telemetry::now());
        let arrived = record.phases.arrived;
        record.auth = AuthFacts::new(arrived, times, server, status, failure);
        let fault = match asked {
            Ok(answer) if (200..300).contains(&answer.status) => {
                let granted = answer.granted(auth);
                let head = RequestHead::replacing(head, &auth.copied, &granted);
                return CheckVerdict::Pass(Look::Authorized, Some(head));
            }
            Ok(answer) => return CheckVerdict::Deny(answer.denial()),
            Err(fault) => fault,
        };
        let name = exchange::name(record.id, head);
        let text = format!("{name}: forward_auth: {}", fault.cause());
        self.shared.log.error(Level::Error, &text);
        CheckVerdict::Deny(Denial {
            reply: fault_reply(fault, &own.group.settings),
            ending: fault.ending(false),
            cause: fault.cause(),
        })
    }

    async fn ask_auth_server(
        self: &Rc<Self>,
        own: &DriverUpstream,
        auth: &ForwardAuth,
        about: AskedRequest<'_>,
        server: &mut Option<u16>,
    ) -> Result<AuthAnswer, UpstreamFault> {
        let slot = self.slot_for_auth(own).await?;
        *server = Some(slot.name());
        let written = question(own, &slot, auth, about);
        let question = AuthQuestion {
            driver: self,
            own,
            // The server has not been asked.
            written: written.inspect_err(|_| slot.ended(telemetry::now(), Outcome::Abandoned))?,
            ends: about.ends,
        };
        let longest = Duration::from_nanos(own.group.settings.response_timeout.0);
        let asked = timeout(longest, question.ask(&slot)).await;
        let asked = asked.unwrap_or(Err(UpstreamFault::Silent));
        let now = telemetry::now();
        slot.ended(
            now,
            match &asked {
                Ok(answer) => Outcome::Served {
                    latency: now.since(slot.taken),
                    status: answer.status,
                },
                Err(fault) => fault.failure().map_or(Outcome::Abandoned, Outcome::Failed),
            },
        );
        drop(slot);
        self.look_for_exchanges(own);
        asked
    }

    async fn slot_for_auth(
        self: &Rc<Self>,
        own: &DriverUpstream,
    ) -> Result<UpstreamSlot, UpstreamFault> {
        let due = telemetry::now().plus(own.queue_timeout);
        poll_fn(|context| {
            let now = telemetry::now();
            match own.group.take_slot(now, &[], &PlacingKey::default(), 0) {
                Ok(slot) => Poll::Ready(Ok(slot)),
                Err(NoSlot::Nobody) => Poll::Ready(Err(UpstreamFault::NoneLeft)),
                Err(NoSlot::Busy) if now >= due => Poll::Ready(Err(UpstreamFault::NoneFree)),
                Err(NoSlot::Busy) => {
                    own.wait_for_slot(context);
                    self.look_again(own.pool);
                    Poll::Pending
                }
            }
        })
        .await
    }
}

/// What a span says of the server, or of why there was none to ask.
fn failure_of(fault: UpstreamFault) -> AuthFailure {
    match fault.failure() {
        Some(FailureKind::Connect) => AuthFailure::Connect,
        Some(FailureKind::Timeout) => AuthFailure::Timeout,
        Some(FailureKind::Closed) => AuthFailure::Closed,
        Some(FailureKind::Malformed) => AuthFailure::Malformed,
        None => AuthFailure::NotAsked,
    }
}

/// Whether a client calls one of these fields a field of its connection, by which the route's own server might drop it
/// (RFC 9110 section 7.6.1).
fn names_copied(auth: &ForwardAuth, head: HeadView<'_>) -> bool {
    let is_copied = |option: &[u8]| {
        let option = option.trim_ascii();
        let mut copied = auth.copied.iter();
        copied.any(|name| option.eq_ignore_ascii_case(name.as_bytes()))
    };
    head.index.marks.contains(Marks::CONNECTION_FIELDS)
        && head
            .headers()
            .filter(|(name, _)| name.eq_ignore_ascii_case(b"connection"))
            .any(|(_, value)| value.split(|byte| *byte == b',').any(is_copied))
}

fn question(
    own: &DriverUpstream,
    slot: &UpstreamSlot,
    auth: &ForwardAuth,
    about: AskedRequest<'_>,
) -> Result<Vec<u8>, UpstreamFault> {
    let AskedRequest {
        head, ends, trace, ..
    } = about;
    let method: (&[u8], &[u8]) = (b"X-Forwarded-Method", head.method());
    let target: (&[u8], &[u8]) = (b"X-Forwarded-Uri", about.target);
    let context = trace.map(TraceContext::auth_header);
    let set = match &context {
        Some(context) => &[method, target, (TRACEPARENT, &context[..])][..],
        None => &[method, target],
    };
    let removed: &[&[u8]] = match trace {
        // What vendors said belongs to another trace.
        Some(trace) if !trace.has_parent() => &[b"content-type", b"content-encoding", TRACESTATE],
        _ => &[b"content-type", b"content-encoding"],
    };
    let request = UpstreamRequest {
        head,
        method: Some(b"GET"),
        rewritten: Some(auth.path.as_bytes()),
        host: HostField::Client {
            otherwise: own.authority(slot.endpoint.server).as_bytes(),
        },
        framing: BodyFraming::None,
        forwarding: forwarding(ends, head),
        set,
        removed,
        upgrade: None,
    };
    let mut written = Vec::new();
    request
        .write(&mut written)
        .map_err(UpstreamFault::Unwritable)?;
    Ok(written)
}

impl AuthQuestion<'_> {
    async fn ask(&self, slot: &UpstreamSlot) -> Result<AuthAnswer, UpstreamFault> {
        let endpoint = &slot.endpoint;
        let own = self.own;
        let now = telemetry::now();
        if let Some(http2) = &own.http2 {
            if let Some(place) = http2.take(endpoint, now) {
                match self.ask_by_stream(place, slot).await {
                    // As below: the connection was about to end.
                    Err(UpstreamFault::Closed | UpstreamFault::GoneAway) => {}
                    asked => return asked,
                }
            }
            let place = http2.connect(endpoint).await?;
            return self.ask_by_stream(place, slot).await;
        }
        let idle = own.idle.borrow_mut().take(endpoint, now, true);
        if let Some(connection) = idle {
            match self.ask_over(connection, slot).await {
                // Too old a connection; a GET may be sent once more.
                Err(UpstreamFault::Closed) => {}
                asked => return asked,
            }
        }
        let connector = &own.group.connector;
        let made = connector.connect(endpoint, Some(self.ends)).await?;
        self.ask_over(made, slot).await
    }

    async fn ask_by_stream(
        &self,
        place: StreamPlace,
        slot: &UpstreamSlot,
    ) -> Result<AuthAnswer, UpstreamFault> {
        let scheme = self.own.group.settings.servers[slot.endpoint.server].scheme();
        let mut stream = Http2Stream::open(place, &self.written, scheme, false)?;
        let asked = self.receive_parts(&mut stream).await;
        if let Err(fault) = &asked {
            stream.retire_after(*fault);
        }
        asked
    }

    async fn ask_over(
        &self,
        mut connection: UpstreamConnection,
        slot: &UpstreamSlot,
    ) -> Result<AuthAnswer, UpstreamFault> {
        let sent = connection.send_all(&self.written).await;
        sent.map_err(|_| UpstreamFault::Closed)?;
        let (answer, keeps) = self.receive_answer(&mut connection).await?;
        // One that has named its client is of no use to another one.
        if keeps && !self.own.group.settings.sends_proxy_header {
            let mut idle = self.own.idle.borrow_mut();
            let endpoint = std::sync::Arc::clone(&slot.endpoint);
            idle.put(endpoint, connection, telemetry::now());
        }
        Ok(answer)
    }

    /// Reads a response over HTTP/2, of which no more than the beginning of a long body counts.
    async fn receive_parts(&self, stream: &mut Http2Stream) -> Result<AuthAnswer, UpstreamFault> {
        let head = stream.final_head().await?;
        let limits = &self.driver.config().limits;
        let (response, fields) = final_response(&head, Asked::Other, limits)?;
        let mut body = Vec::new();
        while body.len() <= BODY_BYTES_MAX
            && let ResponsePart::Data(data) = poll_fn(|context| stream.poll_part(context)).await?
        {
            stream.release(data.len());
            body.extend_from_slice(&data);
        }
        body.truncate(BODY_BYTES_MAX);
        Ok(AuthAnswer {
            status: response.status,
            fields,
            body,
        })
    }

    /// Reads a response, of which no more than the beginning of a long body counts; and whether its connection can be
    /// used again.
    async fn receive_answer(
        &self,
        connection: &mut UpstreamConnection,
    ) -> Result<(AuthAnswer, bool), UpstreamFault> {
        let limits = &self.driver.config().limits;
        let (mut received, mut fields, mut seen) = (Vec::new(), FieldLines::new(), 0);
        let response = loop {
            let parsed =
                UpstreamResponse::parse(&received, &mut seen, Asked::Other, limits, &mut fields);
            match parsed.map_err(UpstreamFault::Malformed)? {
                UpstreamHeadStep::Complete(response) if response.is_interim() => {
                    received.drain(..response.head_bytes);
                }
                UpstreamHeadStep::Complete(response) => break response,
                UpstreamHeadStep::Partial if self.receive_more(connection, &mut received).await => {
                }
                UpstreamHeadStep::Partial => return Err(UpstreamFault::Closed),
            }
        };
        let mut body = UpstreamBody::new(response.body, limits);
        let mut input = received.split_off(response.head_bytes);
        let mut content = Vec::new();
        while !body.is_done() && content.len() <= BODY_BYTES_MAX {
            let decoded = body.decode(&input).map_err(UpstreamFault::Malformed)?;
            content.extend_from_slice(&input[decoded.data.clone()]);
            input.drain(..decoded.consumed);
            let is_stuck = decoded.consumed == 0 || input.is_empty();
            if is_stuck && !body.is_done() && !self.receive_more(connection, &mut input).await {
                body.close().map_err(UpstreamFault::Malformed)?;
            }
        }
        let keeps = response.keeps && body.is_done() && input.is_empty();
        content.truncate(BODY_BYTES_MAX);
        let answer = AuthAnswer {
            status: response.status,
            fields,
            body: content,
        };
        Ok((answer, keeps))
    }

    /// Whether something has come before the end.
    async fn receive_more(
        &self,
        connection: &mut UpstreamConnection,
        received: &mut Vec<u8>,
    ) -> bool {
        poll_fn(|context| self.driver.poll_more(connection, context, received))
            .await
            .is_ok()
    }
}

impl AuthAnswer {
    /// The fields that a request gets.
    fn granted(&self, auth: &ForwardAuth) -> FieldLines {
        let mut granted = FieldLines::new();
        for name in &auth.copied {
            let name = name.as_bytes();
            let lines = self.fields.iter();
            for (_, value) in lines.filter(|(found, _)| found.eq_ignore_ascii_case(name)) {
                granted.push(name, value);
            }
        }
        granted
    }

    /// The response for the client.
    fn denial(self) -> Denial {
        let mut fields = self.fields;
        fields.push_decimal(b"Content-Length", self.body.len() as u64);
        let reply = Reply {
            status: self.status,
            fields: fields.freeze(),
            body: ReplyBody::One(Part::Memory(Bytes::from(self.body))),
        };
        Denial {
            reply,
            ending: Ending::Refused,
            cause: DENIED,
        }
    }
}
