//! Another server says whether a request may pass: `forward_auth` of a route.
//!
//! Before a request waits for its own server, the other one is asked by a GET with the fields of the request and without
//! its body. With a status of 2xx it gives fields for the request; any other response is the client's. Whatever goes wrong
//! here, the request does not pass.

use std::future::poll_fn;
use std::task::Poll;
use std::time::Duration;

use bytes::Bytes;
use config::typed::ForwardAuth;
use files::{Part, Reply, ReplyBody};
use http::upstream::{
    HostField, UpstreamBody, UpstreamHeadStep, UpstreamRequest, UpstreamResponse,
};
use http::{Asked, BodyFraming, FieldLines};
use queueing::balancing::{FailureKind, Outcome};
use tokio::time::timeout;

use super::DriverUpstream;
use super::connection::UpstreamConnection;
use super::exchange::{UpstreamExchange, forwarding};
use super::fault::UpstreamFault;
use super::group::{NoSlot, PlacingKey, UpstreamSlot};
use super::http2_stream::{Http2Stream, ResponsePart, final_response};

/// Longest body of a response that is passed on to the client.
const BODY_BYTES_MAX: usize = 64 << 10;

/// What the other server has answered.
struct AuthAnswer {
    status: u16,
    fields: FieldLines,
    body: Vec<u8>,
}

impl UpstreamExchange<'_> {
    /// Asks the server that decides about this request, where one does. A response that it gives is the client's.
    ///
    /// # Errors
    /// It could not be asked.
    pub(super) async fn authorize(&mut self) -> Result<Option<Reply>, UpstreamFault> {
        let driver = self.driver;
        let route = self.assignment.exchange.record.route;
        let Some(auth) = driver.shared.guards.forward_auth(route) else {
            return Ok(None);
        };
        // The own server has no work of the request meanwhile.
        if let Some(slot) = self.slot.take() {
            slot.ended(telemetry::now(), Outcome::Abandoned);
        }
        let pool = driver.config().upstreams[auth.upstream].pool;
        let own = driver.upstreams.own(pool);
        let slot = self.slot_of(own).await?;
        let longest = Duration::from_nanos(own.group.settings.response_timeout.0);
        let asked = timeout(longest, self.ask(own, &slot, auth)).await;
        let asked = asked.unwrap_or(Err(UpstreamFault::Silent));
        let now = telemetry::now();
        slot.ended(
            now,
            match &asked {
                Ok(verdict) => Outcome::Served {
                    latency: now.since(slot.taken),
                    status: verdict.status,
                },
                Err(UpstreamFault::Silent) => Outcome::Failed(FailureKind::Timeout),
                Err(_) => Outcome::Failed(FailureKind::Closed),
            },
        );
        let verdict = asked?;
        if !(200..300).contains(&verdict.status) {
            return Ok(Some(verdict.reply()));
        }
        self.granted = auth
            .copied
            .iter()
            .filter_map(|name| {
                let value = verdict.fields.get(name.as_bytes())?;
                Some((name.as_bytes().to_vec(), value.to_vec()))
            })
            .collect();
        Ok(None)
    }

    /// A slot of another group than the request's own.
    async fn slot_of(&self, own: &DriverUpstream) -> Result<UpstreamSlot, UpstreamFault> {
        let due = telemetry::now().plus(own.queue_timeout);
        poll_fn(|context| {
            let now = telemetry::now();
            match own.group.take_slot(now, &[], &PlacingKey::default(), 0) {
                Ok(slot) => Poll::Ready(Ok(slot)),
                Err(NoSlot::Nobody) => Poll::Ready(Err(UpstreamFault::NoneLeft)),
                Err(NoSlot::Busy) if now >= due => Poll::Ready(Err(UpstreamFault::NoneFree)),
                Err(NoSlot::Busy) => {
                    own.wait_for_slot(context);
                    self.driver.look_again(own.pool);
                    Poll::Pending
                }
            }
        })
        .await
    }

    async fn ask(
        &self,
        own: &DriverUpstream,
        slot: &UpstreamSlot,
        auth: &ForwardAuth,
    ) -> Result<AuthAnswer, UpstreamFault> {
        let exchange = &*self.assignment.exchange;
        let request = UpstreamRequest {
            head: exchange.head(),
            method: Some(b"GET"),
            rewritten: Some(auth.path.as_bytes()),
            host: HostField::Client {
                otherwise: own.authority(slot.endpoint.server).as_bytes(),
            },
            framing: BodyFraming::None,
            forwarding: forwarding(exchange),
            set: &[
                (b"X-Forwarded-Method", exchange.head().method()),
                (b"X-Forwarded-Uri", exchange.head().target()),
            ],
            removed: &[b"content-type", b"content-encoding"],
            upgrade: None,
        };
        let mut head = Vec::new();
        request
            .write(&mut head)
            .map_err(UpstreamFault::Unwritable)?;
        let endpoint = &slot.endpoint;
        if let Some(http2) = &own.http2 {
            let place = match http2.take(endpoint) {
                Some(place) => place,
                None => http2.connect(endpoint).await?,
            };
            let scheme = own.group.settings.servers[endpoint.server].scheme();
            return self
                .receive_parts(Http2Stream::open(place, &head, scheme, false)?)
                .await;
        }
        let mut connection = own
            .group
            .connector
            .connect(endpoint, Some(&exchange.ends))
            .await?;
        let sent = connection.send_all(&head).await;
        sent.map_err(|_| UpstreamFault::Closed)?;
        self.receive_verdict(&mut connection).await
    }

    /// Reads a response over HTTP/2, of which no more than the beginning of a long body counts.
    async fn receive_parts(&self, mut stream: Http2Stream) -> Result<AuthAnswer, UpstreamFault> {
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

    /// Reads a response, of which no more than the beginning of a long body counts.
    async fn receive_verdict(
        &self,
        connection: &mut UpstreamConnection,
    ) -> Result<AuthAnswer, UpstreamFault> {
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
        content.truncate(BODY_BYTES_MAX);
        Ok(AuthAnswer {
            status: response.status,
            fields,
            body: content,
        })
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
    /// The response for the client.
    fn reply(self) -> Reply {
        let mut fields = self.fields;
        fields.push_decimal(b"Content-Length", self.body.len() as u64);
        Reply {
            status: self.status,
            fields: fields.freeze(),
            body: ReplyBody::One(Part::Memory(Bytes::from(self.body))),
        }
    }
}
