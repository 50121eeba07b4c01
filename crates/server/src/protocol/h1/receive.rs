//! Receiving: heads, from the transport or from what a pipelining client sent ahead; what a complete head leads
//! to; and the time between two requests.

use std::rc::Rc;
use std::sync::Arc;

use measure::{Ending, Nanos, Stamp};
use stage::FIRST_BYTE_GRACE;
use wire::{BodyFraming, HeadIndex, HeadStep, HeadView, RequestHead};

use super::body::Incoming;
use super::respond::{Lookup, Then};
use super::send::SendMonitor;
use super::{H1, Progress, Step};
use crate::driver::{Mood, Scratch};
use crate::exchange::{Body, ExchangeRecord};
use crate::handler::files::Given;
use crate::protocol::Woken;
use crate::recorder::Received;
use crate::refusal::Refusal;
use crate::reply::Reply;
use crate::service::{self, Backend, Disposition};
use crate::stats::{Doing, Timeout};

/// Requests of one client that are answered in one turn before the other connections get theirs.
const REQUESTS_A_TURN: usize = 32;
/// After so long without a request the kernel is asked whether the client has taken the last response.
const IDLE_LOOK: Nanos = Nanos(1_000_000_000);

impl H1 {
    /// Receives until there is something to do that is not done on the spot.
    pub(super) async fn receive_head(&mut self) -> Step {
        if let Progress::Next(step) = self.use_buffer(measure::now()) {
            return step;
        }
        self.wait_for_head();
        // The state may have changed while the last exchange was under way.
        if self.connection.driver.mood.get() >= Mood::Draining
            && let Progress::Next(step) = self.no_bytes(Woken::Draining)
        {
            return step;
        }
        loop {
            let progress = match self.connection.read().await {
                Ok((scratch, bytes)) => self.receive_bytes(scratch, bytes),
                Err(woken) => self.no_bytes(woken),
            };
            if let Progress::Next(step) = progress {
                return step;
            }
        }
    }

    /// Uses `bytes` bytes in the scratch buffer; sets the deadline for what is missing, unless it has one: more
    /// of the same head does not renew it, nor does an empty line before a head.
    fn receive_bytes(&mut self, scratch: Box<Scratch>, bytes: usize) -> Progress {
        let before = self.progress();
        let progress = self.use_input(scratch, bytes, measure::now());
        if !matches!(progress, Progress::Next(_)) && self.progress() != before {
            self.wait_for_head();
        }
        progress
    }

    /// Sets the deadline for the next head: from its first byte if there is one, else the idle time. The
    /// first head's runs from the accept on.
    fn wait_for_head(&mut self) {
        self.stalled = None;
        let driver = Rc::clone(&self.connection.driver);
        let timeouts = &driver.config().timeouts;
        if !self.has_begun() {
            if self.received > 0 {
                let since = std::mem::take(&mut self.idle_since);
                let since = match since {
                    Stamp::ZERO => measure::now(),
                    since => since,
                };
                // After a while, a look whether the client has taken the last response.
                let deadline = timeouts.idle.min(IDLE_LOOK);
                self.now_idle(since, since.plus(deadline));
            }
            return;
        }
        driver.stats().partial.add();
        // What came with the last request may have waited for its response.
        let since = match self.received {
            0 => self.arrived,
            _ => measure::now(),
        };
        self.connection
            .now_doing(Doing::Reading, since.plus(timeouts.head));
    }

    /// Heads received, and whether another one has begun.
    fn progress(&self) -> (u64, bool) {
        (self.received, self.has_begun())
    }

    /// Whether bytes of a head are there. An empty line before it is not its beginning (RFC 9112 section
    /// 2.2).
    fn has_begun(&self) -> bool {
        let mut bytes = self.buffer.iter();
        bytes.any(|byte| !matches!(byte, b'\r' | b'\n'))
    }

    /// What to do when no bytes came.
    fn no_bytes(&mut self, woken: Woken) -> Progress {
        if !self.has_begun() {
            return self.no_first_byte(woken);
        }
        let ending = match woken {
            Woken::Draining | Woken::Crowded => return Progress::NeedInput,
            Woken::Deadline => {
                self.connection.driver.stats().timed_out(Timeout::Head);
                let line = std::mem::take(&mut self.buffer);
                return Progress::Next(self.refuse_beginning(&line, Refusal::HEAD_TIMEOUT));
            }
            Woken::Cut => Ending::Drained,
            Woken::End | Woken::Failed => Ending::PeerGone,
        };
        let line = std::mem::take(&mut self.buffer);
        let mut record = self.connection.record(None, self.arrived);
        record.request_bytes = line.len() as u64;
        let received = Received::Beginning(&line);
        self.connection.end_unanswered(record, received, ending);
        Progress::Next(Step::Close)
    }

    fn no_first_byte(&mut self, woken: Woken) -> Progress {
        match woken {
            Woken::Draining | Woken::Deadline | Woken::Crowded => {}
            Woken::Cut | Woken::End => return Progress::Next(Step::Close),
            Woken::Failed => {
                self.connection.driver.stats().errors.add();
                return Progress::Next(Step::Close);
            }
        }
        // What came at the last moment is served.
        let before = self.progress();
        if let Some((scratch, bytes)) = self.connection.read_now() {
            let progress = self.receive_bytes(scratch, bytes);
            if matches!(progress, Progress::Next(_)) || self.progress() != before {
                return progress;
            }
        }
        match woken {
            Woken::Draining if self.received > 0 => Progress::Next(Step::Close),
            // A connection that never sent anything gets a moment.
            Woken::Draining => {
                self.connection.deadline_in(Doing::Idle, FIRST_BYTE_GRACE);
                Progress::NeedInput
            }
            _ => self.look_at_idle(woken, measure::now()),
        }
    }

    /// A look at a connection on which nothing comes: whether its time is up, and whether its client still
    /// takes the last response.
    fn look_at_idle(&mut self, woken: Woken, now: Stamp) -> Progress {
        let driver = &self.connection.driver;
        let stats = driver.stats();
        if woken == Woken::Crowded {
            stats.timed_out(Timeout::Crowded);
            return Progress::Next(match self.received {
                0 => self.refuse_silent(),
                _ => Step::Close,
            });
        }
        if self.received == 0 {
            stats.timed_out(Timeout::Head);
            return Progress::Next(Step::Close);
        }
        let (is_idle, since) = driver.table.borrow_mut().idle_since(self.connection.slot);
        let timeout = driver.config().timeouts.idle;
        if is_idle && since.plus(timeout) <= now {
            stats.timed_out(Timeout::Idle);
            return Progress::Next(Step::Close);
        }
        let mut stalled = self.stalled.take().unwrap_or_else(|| {
            // What the client took before this first look is not known: it has half of the time to show.
            let patience = Nanos(driver.config().timeouts.send.0 / 2);
            let latest = Stamp(now.0.saturating_sub(patience.0));
            Box::new(SendMonitor::new(&self.connection, None, since.max(latest)))
        });
        match stalled.look(&self.connection.transport, now) {
            Ok(_) if stalled.is_out() && is_idle => self.now_idle(since, since.plus(timeout)),
            Ok(_) if stalled.is_out() => self.now_idle(now, now.plus(timeout)),
            Ok(next) => {
                self.connection.now_doing(Doing::Sending, next);
                self.stalled = Some(stalled);
            }
            Err(stop) => {
                self.connection.count_stop(stop);
                self.connection.transport.reset_on_close();
                return Progress::Next(Step::Close);
            }
        }
        Progress::NeedInput
    }

    fn now_idle(&self, since: Stamp, deadline: Stamp) {
        let mut table = self.connection.driver.table.borrow_mut();
        table.set_idle(self.connection.slot, since, deadline);
    }

    /// Uses `bytes` bytes in the scratch buffer; keeps what is left over.
    fn use_input(&mut self, mut scratch: Box<Scratch>, bytes: usize, now: Stamp) -> Progress {
        let driver = Rc::clone(&self.connection.driver);
        driver.flush_due(now);
        if !self.buffer.is_empty() {
            self.buffer.extend_from_slice(&scratch.input[..bytes]);
            driver.put_scratch(scratch);
            return self.use_buffer(now);
        }
        if self.received > 0 {
            self.arrived = now;
        }
        let Scratch { input, head } = &mut *scratch;
        let input = &input[..bytes];
        let (used, progress) = self.advance(input, head, now);
        self.buffer.extend_from_slice(&input[used..]);
        driver.put_scratch(scratch);
        progress
    }

    /// Uses what is in the connection's own buffer.
    fn use_buffer(&mut self, now: Stamp) -> Progress {
        if self.buffer.is_empty() {
            return Progress::NeedInput;
        }
        let driver = Rc::clone(&self.connection.driver);
        let mut scratch = driver.take_scratch();
        let mut input = std::mem::take(&mut self.buffer);
        let (used, progress) = self.advance(&input, &mut scratch.head, now);
        driver.put_scratch(scratch);
        if used < input.len() {
            input.drain(..used);
            self.buffer = input;
        }
        progress
    }

    /// Takes complete heads from `input` and does what is done on the spot; gives the bytes used.
    fn advance(&mut self, input: &[u8], head: &mut HeadIndex, now: Stamp) -> (usize, Progress) {
        let mut used = 0;
        for _ in 0..REQUESTS_A_TURN {
            let rest = &input[used..];
            if rest.is_empty() {
                return (used, Progress::NeedInput);
            }
            let driver = &self.connection.driver;
            match head.parse(rest, &mut self.searched, &driver.config().limits) {
                Ok(HeadStep::Complete) => {}
                Ok(HeadStep::Partial) => return (used, Progress::NeedInput),
                Err(refusal) => {
                    let step = self.refuse_beginning(rest, refusal.into());
                    return (input.len(), Progress::Next(step));
                }
            }
            self.searched = 0;
            self.received += 1;
            driver.stats().received.add();
            used += head.bytes;
            let view = HeadView {
                bytes: &rest[..head.bytes],
                index: head,
            };
            let progress = self.begin(view, now);
            self.arrived = now;
            if let Progress::Next(_) = progress {
                return (used, progress);
            }
        }
        (used, Progress::Next(Step::Pause))
    }

    /// Begins an exchange whose head is complete.
    fn begin(&mut self, head: HeadView<'_>, now: Stamp) -> Progress {
        let mut record = self.connection.record(Some(head), self.arrived);
        record.request_bytes = head.bytes.len() as u64;
        let driver = Rc::clone(&self.connection.driver);
        let Disposition {
            route,
            rewritten,
            backend,
        } = driver.shared.service.dispatch(head, &self.connection.ends);
        record.route = route;
        if let Backend::Pool { pool, class } = backend {
            (record.pool, record.class) = (Some(pool), class);
            return Progress::Next(self.begin_for_pool(head, record, rewritten));
        }
        record.begin_inline(now);
        let then = match has_body(head) {
            // Nobody will read its body: those bytes must not be taken for a request.
            true => Then::Linger,
            false => Then::Next,
        };
        let received = Received::Head(head);
        match backend {
            Backend::Refuse(refusal) => Progress::Next(self.refuse(record, received, refusal)),
            Backend::Respond(reply) => self.respond(record, received, then, reply),
            Backend::RespondAsIs(reply) => self.respond_as_is(record, received, then, reply),
            Backend::Status => self.respond(record, received, then, driver.status_page()),
            Backend::Files { mount, rest_from } => {
                let rest = &service::path(head, rewritten.as_deref())[rest_from..];
                let given = driver.files.borrow_mut().ask(mount, head, rest, now);
                self.respond_with_file(record, head, then, given)
            }
            Backend::Pool { .. } => Progress::NeedInput,
        }
    }

    fn respond_with_file(
        &mut self,
        record: ExchangeRecord,
        head: HeadView<'_>,
        then: Then,
        given: Given,
    ) -> Progress {
        let reply: Reply = match given {
            Given::Ready(reply) => reply,
            Given::Stale(reply, look) => {
                self.connection.driver.look_behind(look);
                reply
            }
            Given::Look(look) => {
                let lookup = Lookup::new(look, record, RequestHead::take(head), then);
                return Progress::Next(Step::Lookup(Box::new(lookup)));
            }
        };
        self.respond(record, Received::Head(head), then, reply)
    }

    fn begin_for_pool(
        &mut self,
        head: HeadView<'_>,
        record: ExchangeRecord,
        rewritten: Option<Box<[u8]>>,
    ) -> Step {
        if !has_body(head) {
            let head = Arc::new(RequestHead::take(head));
            return Step::Pool(
                self.connection
                    .exchange(head, Body::Empty, record, rewritten),
            );
        }
        let config = self.connection.driver.config();
        match Incoming::new(head, record, rewritten, config) {
            Ok(incoming) => Step::Body(Box::new(incoming)),
            Err(refusal) => self.refuse(record, Received::Head(head), refusal.into()),
        }
    }
}

fn has_body(head: HeadView<'_>) -> bool {
    !matches!(head.index.body, BodyFraming::None | BodyFraming::Length(0))
}
