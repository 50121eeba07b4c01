//! One exchange at an upstream: its tries, one after the other, until a response has come or may come no more.
//!
//! A request is sent again only where nothing can be done twice: it never left, or it is idempotent (RFC 9110 section
//! 9.2.2) and no byte of a response has come. What has reached the client is never replaced.

use std::future::poll_fn;
use std::rc::Rc;
use std::task::Poll;

use config::typed::Balance;
use http::upstream::{
    ForwardingChain, ForwardingFields, HostField, UpstreamRequest, UpstreamResponse, WantedUpgrade,
};
use http::{FieldLines, HeadView};
use queueing::balancing::{LoadReport, Outcome, Progress, RetryCase, may_retry};
use telemetry::{Nanos, Stamp, ToldLoad, UpstreamFacts};

use super::DriverUpstream;
use super::connection::UpstreamConnection;
use super::fault::UpstreamFault;
use super::group::{NoSlot, UpstreamSlot};
use super::http2::Http2Connections;
use super::http2_stream::Http2Stream;
use super::own_fields::RequestFields;
use super::placing::{placing_key, sticky_mark};
use super::relay::{Relay, Relayed, UpstreamLink};
use super::request::RequestBody;
use super::run::UpstreamRun;
use crate::driver::Driver;
use crate::exchange::{Ends, TRACESTATE};
use crate::guards::RouteGuard;
use crate::pool::Assignment;
use crate::tunnel::TunnelPermit;

/// A try that gave no whole response.
pub(super) struct FailedTry {
    pub(super) fault: UpstreamFault,
    /// How far it came, for the question whether there may be another one.
    pub(super) progress: Progress,
    /// It has met the end of a connection that was kept, and its server has not had the request.
    pub(super) is_stale: bool,
}

/// Has an upstream answer an exchange. The response is written, but for its end.
pub(super) struct UpstreamExchange<'a> {
    pub(super) driver: &'a Rc<Driver>,
    pub(super) own: &'a DriverUpstream,
    pub(super) run: &'a UpstreamRun,
    pub(super) assignment: &'a mut Assignment,
    /// The place that it has; where the request decides about it, it is to be had yet.
    pub(super) slot: &'a mut Option<UpstreamSlot>,
    /// The members that have failed at it.
    pub(super) tried: Vec<usize>,
    /// Tries that have failed, those apart that met the end of a kept connection.
    pub(super) failed: u32,
    /// Of the last response that has come.
    pub(super) status: u16,
    /// Its server had no room for the request, and asks for such a pause.
    pub(super) full: Option<Nanos>,
    /// The change of the protocol that its client wants.
    pub(super) upgrade: Option<PendingUpgrade>,
}

/// A change of the protocol that is asked for.
pub(super) struct PendingUpgrade {
    pub(super) wanted: WantedUpgrade,
    pub(super) permit: TunnelPermit,
}

/// What an upstream has given.
pub(super) enum Answered {
    /// A response, which is written but for its end.
    Response,
    /// A change of the protocol.
    Switched(Switched),
}

/// An upstream's end of a tunnel.
pub(super) struct Switched {
    pub(super) connection: UpstreamConnection,
    /// Fields of its 101, for the client.
    pub(super) fields: FieldLines,
    /// Bytes of the other protocol that came with them.
    pub(super) rest: Vec<u8>,
    pub(super) permit: TunnelPermit,
}

impl UpstreamExchange<'_> {
    /// # Errors
    /// Why there is no whole response.
    pub(super) async fn run(mut self) -> Result<Answered, UpstreamFault> {
        self.prepare_upgrade()?;
        let body = RequestBody::take(&mut self.assignment.exchange);
        self.take_slot().await?;
        // A connection that waits may have ended by the time that a request comes to it; a new one has not.
        let mut uses_idle = true;
        let mut attempts = 0_u8;
        loop {
            attempts = attempts.saturating_add(1);
            let facts = &mut self.assignment.exchange.record.upstream;
            // What the try before has met is not true of this one, whose server is named when it begins.
            *facts = UpstreamFacts {
                attempts,
                ..UpstreamFacts::default()
            };
            let failed = match self.try_once(&body, uses_idle).await {
                Ok(answered) => return Ok(answered),
                Err(failed) => failed,
            };
            let is_stale = failed.is_stale;
            // The next one has a new connection: that happens once at each server.
            self.failed += u32::from(!is_stale);
            self.report(&failed);
            // One with a status was asked about when its head came.
            let is_status = matches!(failed.fault, UpstreamFault::Status(_));
            if !is_status && !self.may_retry(&failed, self.failed, &body) {
                return Err(failed.fault);
            }
            match is_stale {
                // The server is there: its connection was too old.
                true => uses_idle = false,
                false => {
                    uses_idle = true;
                    let slot = self.slot.take();
                    self.tried.extend(slot.map(|slot| slot.member()));
                    let another = self.take_slot().await;
                    another.map_err(|_| failed.fault)?;
                }
            }
        }
    }

    /// One try at the server of the slot.
    async fn try_once(
        &mut self,
        body: &RequestBody,
        uses_idle: bool,
    ) -> Result<Answered, FailedTry> {
        let slot = self.slot.as_ref().expect("a try has a slot");
        let began = telemetry::now();
        let endpoint = std::sync::Arc::clone(&slot.endpoint);
        self.assignment.exchange.record.upstream.server = slot.name();
        let own = self.own;
        let linked = match &own.http2 {
            Some(http2) => self.open_stream(http2, body, uses_idle, began).await,
            None => self.link(body, uses_idle, began).await,
        };
        let is_reused = self.assignment.exchange.record.upstream.reused;
        let (link, head) = linked.map_err(|fault| FailedTry {
            fault,
            progress: Progress::NotConnected,
            is_stale: is_reused && matches!(fault, UpstreamFault::Closed | UpstreamFault::GoneAway),
        })?;
        let relay = Relay::new(self, link, head, body, began);
        let relayed = relay.run().await?;
        let now = self.report_served();
        match (relayed, self.upgrade.take()) {
            // One that has named its client is of no use to another one.
            (Relayed::Kept(_), _) if self.own.group.settings.sends_proxy_header => {}
            (Relayed::Kept(connection), _) => {
                let mut idle = self.own.idle.borrow_mut();
                idle.put(endpoint, connection, now);
            }
            (Relayed::Switched(connection, fields, rest), Some(upgrade)) => {
                return Ok(Answered::Switched(Switched {
                    connection,
                    fields,
                    rest,
                    permit: upgrade.permit,
                }));
            }
            (Relayed::Ended | Relayed::Switched(..), _) => {}
        }
        Ok(Answered::Response)
    }

    /// A connection of HTTP/1.1 for a try that began at `began`, and the head that it is to send.
    async fn link(
        &mut self,
        body: &RequestBody,
        uses_idle: bool,
        began: Stamp,
    ) -> Result<(UpstreamLink, Vec<u8>), UpstreamFault> {
        let slot = self.slot.as_ref().expect("a try has a slot");
        let idle = match uses_idle {
            true => {
                let may_meet_end = self.may_meet_end(body);
                let mut idle = self.own.idle.borrow_mut();
                idle.take(&slot.endpoint, began, may_meet_end)
            }
            false => None,
        };
        let facts = &mut self.assignment.exchange.record.upstream;
        facts.reused = idle.is_some();
        let connection = match idle {
            Some(connection) => {
                let counters = self.own.group.counters(&slot.endpoint);
                counters.reused.add_from_any();
                connection
            }
            None => {
                let ends = &self.assignment.exchange.ends;
                let connector = &self.own.group.connector;
                let made = connector.connect(&slot.endpoint, Some(ends)).await?;
                facts.connect = telemetry::now().since(began);
                made
            }
        };
        let head = self.request_head(body, began)?;
        Ok((UpstreamLink::Http1(connection), head))
    }

    /// A stream of HTTP/2 for a try that began at `began`. All of its head has been sent.
    async fn open_stream(
        &mut self,
        http2: &Rc<Http2Connections>,
        body: &RequestBody,
        uses_idle: bool,
        began: Stamp,
    ) -> Result<(UpstreamLink, Vec<u8>), UpstreamFault> {
        let slot = self.slot.as_ref().expect("a try has a slot");
        let place = http2.take(&slot.endpoint, began);
        let facts = &mut self.assignment.exchange.record.upstream;
        // A connection that another exchange has made meanwhile is as good as a new one.
        facts.reused = uses_idle && place.is_some();
        let place = match place {
            Some(place) => {
                let counters = self.own.group.counters(&slot.endpoint);
                counters.reused.add_from_any();
                place
            }
            None => {
                let made = http2.connect(&slot.endpoint).await?;
                facts.connect = telemetry::now().since(began);
                made
            }
        };
        let head = self.request_head(body, began)?;
        let scheme = self.own.group.settings.servers[slot.endpoint.server].scheme();
        let stream = Http2Stream::open(place, &head, scheme, !body.is_empty())?;
        Ok((UpstreamLink::Http2(stream), Vec::new()))
    }

    /// Finds out whether the client wants to change the protocol, and takes a place for its tunnel.
    fn prepare_upgrade(&mut self) -> Result<(), UpstreamFault> {
        let head = self.assignment.exchange.head();
        let nonce = || fastrand::u128(..).to_ne_bytes();
        if let Some(wanted) = WantedUpgrade::of(head, nonce) {
            if self.own.http2.is_some() {
                return Err(UpstreamFault::NoUpgrade);
            }
            let permit = self.own.group.tunnels.take();
            let permit = permit.ok_or(UpstreamFault::TooManyTunnels)?;
            self.upgrade = Some(PendingUpgrade { wanted, permit });
        }
        Ok(())
    }

    /// Waits for a place, where the exchange has none.
    async fn take_slot(&mut self) -> Result<(), UpstreamFault> {
        if self.slot.is_some() {
            return Ok(());
        }
        let key = placing_key(&self.own.group, &self.assignment.exchange);
        let due = telemetry::now().plus(self.own.queue_timeout);
        let mut place = None;
        let taken = poll_fn(|context| {
            let now = telemetry::now();
            let waiting = self.own.worker.borrow().waiting_len();
            match self.own.group.take_slot(now, &self.tried, &key, waiting) {
                Ok(slot) => Poll::Ready(Ok(slot)),
                Err(NoSlot::Nobody) => Poll::Ready(Err(UpstreamFault::NoneLeft)),
                Err(NoSlot::Busy) if now >= due => Poll::Ready(Err(UpstreamFault::NoneFree)),
                Err(NoSlot::Busy) => {
                    // It has left the queue, because slots are free elsewhere. The bound of the queue holds all the same.
                    if self.tried.is_empty() && place.is_none() {
                        place = self.own.worker.borrow().wait_for_bound();
                        if place.is_none() {
                            return Poll::Ready(Err(UpstreamFault::QueueFull));
                        }
                    }
                    self.own.wait_for_slot(context);
                    self.driver.look_again(self.own.pool);
                    Poll::Pending
                }
            }
        });
        let slot = taken.await?;
        if self.tried.is_empty() {
            // Its wait was one in the queue.
            let started = slot.taken;
            self.assignment.exchange.record.phases.started = started;
            if let Some(stream) = self.assignment.writer.stream() {
                stream.set_started_at(started, None);
            }
        }
        *self.slot = Some(slot);
        Ok(())
    }

    /// Whether it does no harm that the connection ends before the response: the request may be sent once more then.
    fn may_meet_end(&self, body: &RequestBody) -> bool {
        let closed = Progress::NoResponse { is_written: true };
        body.stays_replayable() && self.may_follow(closed, self.failed + 1, body)
    }

    fn may_retry(&self, failed: &FailedTry, attempts: u32, body: &RequestBody) -> bool {
        let FailedTry {
            fault, progress, ..
        } = *failed;
        if fault == UpstreamFault::Body || !self.may_follow(progress, attempts, body) {
            return false;
        }
        // A budget keeps retries from becoming the load that a group in trouble does not need. Where there was no
        // connection any more, a server has had no work of the request.
        let is_free = progress == Progress::NotConnected || failed.is_stale;
        is_free || self.own.group.take_retry(telemetry::now())
    }

    /// Whether another try may follow one that came so far, by the request alone.
    fn may_follow(&self, progress: Progress, attempts: u32, body: &RequestBody) -> bool {
        let exchange = &*self.assignment.exchange;
        let head = exchange.head();
        let settings = &self.own.group.settings;
        let case = RetryCase {
            progress,
            method: head.method(),
            has_key: head.header("idempotency-key").is_some(),
            is_replayable: body.is_replayable(),
            attempts,
            retries_max: settings.retries,
            statuses: &settings.retry_status,
        };
        may_retry(&case).is_ok()
    }

    /// Whether a response with this status, of which nothing has reached the client, is to be replaced by that of another
    /// server. Where there is no other one, the client gets this response.
    pub(super) fn may_retry_status(&self, status: u16, body: &RequestBody) -> bool {
        let has_other = || {
            let slot = self.slot.as_ref().expect("a try has a slot");
            let mut tried = self.tried.clone();
            tried.push(slot.member());
            self.own.group.has_other(telemetry::now(), &tried)
        };
        let failed = FailedTry {
            fault: UpstreamFault::Status(status),
            progress: Progress::Answered { status },
            is_stale: false,
        };
        // The budget is asked last.
        self.own.group.settings.retry_status.contains(&status)
            && has_other()
            && self.may_retry(&failed, self.failed + 1, body)
    }

    /// What a response's head says beside what the client gets: of the server's load, and of its own way with the
    /// request. `head` has the spans of `response`.
    pub(super) fn note_response(&mut self, response: &UpstreamResponse, head: &[u8]) {
        self.status = response.status;
        self.assignment.exchange.record.upstream.status = response.status;
        self.full = None;
        let settings = &self.own.group.settings;
        let Some(report) = response.load_report.filter(|_| settings.trusts_reports) else {
            return;
        };
        let told = ToldLoad::parse(report.of(head));
        self.assignment.exchange.record.upstream.own = told.own;
        // A server that queues by itself refuses what it has not begun.
        self.full = (response.status == 503)
            .then_some(response.retry_after_secs)
            .flatten()
            .map(|secs| Nanos::from_secs(u64::from(secs)));
        if let Some(load) = told.load {
            let facts = &self.assignment.exchange.record.upstream;
            let round_trip = told.own.map(|own| {
                // What the server did not have it for, up to the head of its response.
                let there = own.queue.0.saturating_add(own.run.0);
                let asked = facts.ttfb.0.saturating_sub(facts.connect.0);
                Nanos(asked.saturating_sub(there))
            });
            let slot = self.slot.as_ref().expect("a try has a slot");
            let report = LoadReport {
                running: load.running,
                waiting: load.waiting,
                threads: load.threads,
                queue: load.queue,
                round_trip,
            };
            slot.reported(report);
        }
    }

    /// Changes the fields of a response for the client.
    pub(super) fn change_fields(&self, response: &UpstreamResponse, fields: &mut FieldLines) {
        if response.load_report.is_some() {
            // It was for this server.
            fields.retain(|name, _| !name.eq_ignore_ascii_case(b"endpoint-load-metrics"));
        }
        self.bind_client(fields);
    }

    /// Binds the client to the server, where that is asked for and new.
    fn bind_client(&self, fields: &mut FieldLines) {
        let Balance::Sticky { cookie } = &self.own.group.settings.balance else {
            return;
        };
        let slot = self.slot.as_ref().expect("a try has a slot");
        let mark = slot.endpoint.mark();
        if sticky_mark(self.assignment.exchange.head(), cookie) != Some(mark.as_bytes()) {
            let value = format!("{cookie}={mark}; Path=/; HttpOnly; SameSite=Lax");
            // The name of the cookie is checked.
            let _ = fields.try_push(b"Set-Cookie", value.as_bytes());
        }
    }

    /// Tells the group of a response; gives the time of it.
    fn report_served(&self) -> Stamp {
        let now = telemetry::now();
        let slot = self.slot.as_ref().expect("a try has a slot");
        slot.ended(now, self.outcome_of(self.status, now));
        now
    }

    /// What a response with this status, the last that has come, says of its server.
    fn outcome_of(&self, status: u16, now: Stamp) -> Outcome {
        let slot = self.slot.as_ref().expect("a try has a slot");
        match self.full {
            Some(retry_after) => Outcome::Full { retry_after },
            None => Outcome::Served {
                latency: now.since(slot.taken),
                status,
            },
        }
    }

    /// Tells the group of a try that failed.
    fn report(&self, failed: &FailedTry) {
        let slot = self.slot.as_ref().expect("a try has a slot");
        let outcome = match failed.fault {
            _ if failed.is_stale => Outcome::Abandoned,
            UpstreamFault::Status(status) => self.outcome_of(status, telemetry::now()),
            fault => fault.failure().map_or(Outcome::Abandoned, Outcome::Failed),
        };
        slot.ended(telemetry::now(), outcome);
    }

    /// The head of the request as this server gets it.
    fn request_head(&self, body: &RequestBody, now: Stamp) -> Result<Vec<u8>, UpstreamFault> {
        let exchange = &*self.assignment.exchange;
        let slot = self.slot.as_ref().expect("a try has a slot");
        let head = exchange.head();
        let upstream = self.own.authority(slot.endpoint.server);
        let route = exchange.record.route;
        let changes = self.driver.shared.request_changes.of(route);
        let id_name = self.driver.config().request_ids.header.as_deref();
        let guard = self.driver.shared.guards.of(route);
        let auth = guard.and_then(RouteGuard::forward_auth);
        let copied = auth.map_or(&[][..], |auth| &auth.copied);
        let fields = RequestFields::of(exchange, copied, id_name, changes, now);
        let set = fields.set();
        let removed = changes.map_or(&[][..], |changes| &changes.removed);
        let mut removed: Vec<&[u8]> = removed.iter().map(String::as_bytes).collect();
        if exchange.trace().is_some_and(|trace| !trace.has_parent()) {
            removed.push(TRACESTATE);
        }
        let request = UpstreamRequest {
            head,
            method: None,
            rewritten: exchange.rewritten.as_deref(),
            host: HostField::Client {
                otherwise: upstream.as_bytes(),
            },
            framing: body.framing(head.index.body),
            forwarding: forwarding(&exchange.ends, head),
            set: &set,
            removed: &removed,
            upgrade: self.upgrade.as_ref().map(|upgrade| &upgrade.wanted),
        };
        let mut written = Vec::new();
        request
            .write(&mut written)
            .map_err(UpstreamFault::Unwritable)?;
        Ok(written)
    }
}

/// What a server is told of the client of a request.
pub(super) fn forwarding<'a>(ends: &'a Ends, head: HeadView<'a>) -> ForwardingFields<'a> {
    let asked = head.authority().unwrap_or_default();
    ForwardingFields {
        chain: match ends.is_trusted {
            true => ForwardingChain::Appended,
            false => ForwardingChain::Replaced,
        },
        client: ends.client_host.as_bytes(),
        peer: ends.peer_host.as_bytes(),
        scheme: ends.scheme.as_bytes(),
        host: ends.host.as_deref().map_or(asked, str::as_bytes),
        prefix: ends.prefix.as_bytes(),
    }
}
