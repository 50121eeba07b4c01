//! Receiving: heads and bodies, from the socket or from what a pipelining client sent ahead.

use std::rc::Rc;
use std::sync::Arc;

use bytes::Bytes;
use measure::{Ending, Nanos, Phases, Stamp};
use wire::{BodyDecoder, BodyFraming, HeadIndex, HeadStep, HeadView, RequestHead};

use super::Scratch;
use super::answer::{About, After};
use super::connection::{Connection, Step, Woken};
use super::refused::Refused;
use crate::exchange::{Body, Exchange};
use crate::reply::{Reply, ReplyBody};
use crate::route::{Router, Target};
use crate::spool::Spooled;
use crate::stats::Doing;

/// Requests of one client that are answered in one turn before the other connections get theirs.
const REQUESTS_A_TURN: usize = 32;
/// While draining, how long a connection that was accepted and has sent nothing is given.
const FIRST_BYTE_GRACE: Nanos = Nanos(1_000_000_000);
/// Bytes of a body that go to a spooler at once.
const ERRAND_BYTES: usize = 64 << 10;

/// A request whose head is complete and whose body is not.
pub(super) struct Incoming {
    head: Arc<RequestHead>,
    decoder: BodyDecoder,
    /// The body, or what of it has not gone to the file yet.
    memory: Vec<u8>,
    spooled: Option<Spooled>,
    route: u16,
    request_bytes: u64,
    /// When the first byte of its head came.
    arrived: Stamp,
}

impl Connection {
    /// Receives until there is something to do that is not done on the spot.
    pub(super) async fn receive_head(&mut self) -> Step {
        if !self.buffer.is_empty()
            && let Some(step) = self.use_buffer(measure::now())
        {
            return step;
        }
        self.wait_for_head(false);
        // The mood may have changed while the last exchange was under way.
        if !self.driver.serving()
            && let Some(step) = self.no_bytes(Woken::Draining)
        {
            return step;
        }
        loop {
            let was_partial = self.has_begun();
            let step = match self.read().await {
                Ok(bytes) => self.use_input(bytes, measure::now()),
                Err(woken) => self.no_bytes(woken),
            };
            if let Some(step) = step {
                return step;
            }
            self.wait_for_head(was_partial);
        }
    }

    /// Sets the deadline for the next head: from its first byte if there is one, else the idle time. The
    /// first head's runs from the accept on.
    fn wait_for_head(&mut self, was_partial: bool) {
        let driver = Rc::clone(&self.driver);
        let timeouts = &driver.config().timeouts;
        if !self.has_begun() {
            if self.received > 0 {
                let since = std::mem::take(&mut self.idle_since);
                let since = if since == Stamp::ZERO {
                    measure::now()
                } else {
                    since
                };
                self.now_doing(Doing::Idle, since.plus(timeouts.idle));
            }
        } else if !was_partial {
            self.driver.stats().partial.add();
            // What came with the last request may have waited for its reply.
            let since = if self.received > 0 {
                measure::now()
            } else {
                self.arrived
            };
            self.now_doing(Doing::Reading, since.plus(timeouts.head));
        }
    }

    /// Whether bytes of a head are there. An empty line before it is not its beginning (RFC 9112 section
    /// 2.2).
    fn has_begun(&self) -> bool {
        self.buffer
            .iter()
            .any(|byte| !matches!(byte, b'\r' | b'\n'))
    }

    /// What to do when no bytes came. `None`: wait on.
    fn no_bytes(&mut self, woken: Woken) -> Option<Step> {
        if !self.has_begun() {
            return self.no_first_byte(woken);
        }
        let ending = match woken {
            Woken::Draining => return None,
            Woken::Deadline => {
                let line = std::mem::take(&mut self.buffer);
                return Some(self.refuse_line(&line, Refused::HEAD_TIMEOUT));
            }
            Woken::Cut => Ending::Drained,
            Woken::End | Woken::Failed => Ending::PeerGone,
        };
        let line = std::mem::take(&mut self.buffer);
        self.end_unanswered(None, &line, ending);
        Some(Step::Close)
    }

    fn no_first_byte(&mut self, woken: Woken) -> Option<Step> {
        match woken {
            // What is on its way already is served; a connection that never sent anything gets a moment.
            Woken::Draining => match self.read_now() {
                Some(bytes) => self.use_input(bytes, measure::now()),
                None if self.received > 0 => Some(Step::Close),
                None => {
                    self.deadline_in(Doing::Idle, FIRST_BYTE_GRACE);
                    None
                }
            },
            Woken::Failed => {
                self.driver.stats().errors.add();
                Some(Step::Close)
            }
            Woken::Deadline | Woken::Cut | Woken::End => Some(Step::Close),
        }
    }

    /// Uses `bytes` bytes in the scratch buffer; keeps what is left over.
    fn use_input(&mut self, bytes: usize, now: Stamp) -> Option<Step> {
        let driver = Rc::clone(&self.driver);
        driver.flush_due(now);
        let mut scratch = driver.scratch.borrow_mut();
        let Scratch { input, head } = &mut *scratch;
        let input = &input[..bytes];
        if !self.buffer.is_empty() {
            self.buffer.extend_from_slice(input);
            drop(scratch);
            return self.use_buffer(now);
        }
        if self.received > 0 {
            self.arrived = now;
        }
        let (used, step) = self.advance(input, head, now);
        self.buffer.extend_from_slice(&input[used..]);
        step
    }

    /// Uses what is in the connection's own buffer.
    fn use_buffer(&mut self, now: Stamp) -> Option<Step> {
        if self.buffer.is_empty() {
            return None;
        }
        let driver = Rc::clone(&self.driver);
        let mut scratch = driver.scratch.borrow_mut();
        let mut input = std::mem::take(&mut self.buffer);
        let (used, step) = self.advance(&input, &mut scratch.head, now);
        if used < input.len() {
            input.drain(..used);
            self.buffer = input;
        }
        step
    }

    /// Takes complete heads from `input` and does what is done on the spot; gives the bytes used and what
    /// is to be done next, if anything but waiting for more.
    fn advance(&mut self, input: &[u8], head: &mut HeadIndex, now: Stamp) -> (usize, Option<Step>) {
        let mut used = 0;
        for _ in 0..REQUESTS_A_TURN {
            let rest = &input[used..];
            if rest.is_empty() {
                return (used, None);
            }
            match head.parse(rest, &mut self.searched, &self.driver.shared.config.limits) {
                Ok(HeadStep::Complete) => {}
                Ok(HeadStep::Partial) => return (used, None),
                Err(refusal) => {
                    let step = self.refuse_line(rest, refusal.into());
                    return (input.len(), Some(step));
                }
            }
            self.searched = 0;
            self.received += 1;
            self.driver.stats().received.add();
            used += head.bytes;
            let view = HeadView {
                bytes: &rest[..head.bytes],
                index: head,
            };
            let step = self.begin(view, now);
            self.arrived = now;
            if step.is_some() {
                return (used, step);
            }
        }
        (used, Some(Step::Pause))
    }

    /// Begins an exchange whose head is complete. `None`: it is answered already.
    fn begin(&mut self, view: HeadView<'_>, now: Stamp) -> Option<Step> {
        let target = self.driver.shared.router.find(view.path());
        let route = Router::index(target);
        let has_body = !matches!(view.index.body, BodyFraming::None | BodyFraming::Length(0));
        if target == Target::Pool {
            if has_body {
                return Some(self.expect_body(view, route));
            }
            let head = Arc::new(RequestHead::take(view));
            let request_bytes = view.bytes.len() as u64;
            let exchange = self.exchange(head, Body::Empty, self.arrived, (route, request_bytes));
            return Some(Step::Pool(exchange));
        }
        let reply = self.inline_reply(view, target, now);
        let about = About {
            view: Some(view),
            line: b"",
            phases: self.inline_phases(now),
            route,
            request_bytes: view.bytes.len() as u64,
            ending: Ending::Complete,
            cause: "",
            // Nobody will read that body: its bytes must not be taken for a request.
            after: if has_body { After::Linger } else { After::Next },
        };
        self.answer(&about, reply)
    }

    fn inline_reply(&self, view: HeadView<'_>, target: Target, now: Stamp) -> Reply {
        match target {
            Target::Files { mount, rest_from } => {
                self.driver
                    .files
                    .borrow_mut()
                    .answer(mount, view, &view.path()[rest_from..], now)
            }
            Target::Status => self.driver.status_page(),
            Target::Server => server_options(),
            Target::Nothing | Target::Pool => Refused::because(404, "no route").reply(),
        }
    }

    fn expect_body(&mut self, view: HeadView<'_>, route: u16) -> Step {
        let decoder = match BodyDecoder::new(view.index.body, &self.driver.config().limits) {
            Ok(decoder) => decoder,
            Err(refusal) => {
                return self.refuse(view, route, view.bytes.len() as u64, refusal.into());
            }
        };
        Step::Body(Box::new(Incoming {
            head: Arc::new(RequestHead::take(view)),
            decoder,
            memory: Vec::new(),
            spooled: None,
            route,
            request_bytes: view.bytes.len() as u64,
            arrived: self.arrived,
        }))
    }

    fn exchange(
        &self,
        head: Arc<RequestHead>,
        body: Body,
        arrived: Stamp,
        (route, request_bytes): (u16, u64),
    ) -> Box<Exchange> {
        let phases = Phases {
            arrived,
            queued: measure::now(),
            ..Phases::default()
        };
        let ends = Arc::clone(&self.ends);
        let driver = self.driver.index;
        Box::new(Exchange {
            head,
            body,
            phases,
            ends,
            request_bytes,
            route,
            driver,
        })
    }

    /// Receives a body, into memory up to `readahead` and into a file beyond.
    pub(super) async fn receive_body(&mut self, mut incoming: Box<Incoming>) -> Step {
        if incoming.head.view().index.expect_continue && self.buffer.is_empty() {
            // A socket too full for 25 bytes is one whose client reads nothing: it gets no invitation.
            let _ =
                crate::delivery::send(self.door(), &[std::io::IoSlice::new(wire::CONTINUE_100)]);
        }
        let timeout = self.driver.config().timeouts.body;
        while !incoming.decoder.is_done() {
            self.deadline_in(incoming.doing(), timeout);
            if let Err(stop) = self.receive_some(&mut incoming).await {
                return self.no_body(&incoming, stop);
            }
            if let Err(refused) = self.spool(&mut incoming).await {
                return self.no_body(&incoming, Stop::Refused(refused));
            }
        }
        let Incoming {
            head,
            memory,
            spooled,
            route,
            request_bytes,
            arrived,
            ..
        } = *incoming;
        let body = match spooled {
            Some(spooled) => Body::File {
                file: spooled.file,
                bytes: spooled.bytes,
            },
            None if memory.is_empty() => Body::Empty,
            None => Body::Memory(memory),
        };
        Step::Pool(self.exchange(head, body, arrived, (route, request_bytes)))
    }

    async fn receive_some(&mut self, incoming: &mut Incoming) -> Result<(), Stop> {
        if !self.buffer.is_empty() {
            let mut input = std::mem::take(&mut self.buffer);
            let used = incoming.take(&input)?;
            // What is left over is the next request's: the decoder takes all that is the body's.
            input.drain(..used);
            if !input.is_empty() {
                self.buffer = input;
            }
            return Ok(());
        }
        let bytes = loop {
            match self.read().await {
                Err(Woken::Draining) => {}
                other => break other?,
            }
        };
        let scratch = self.driver.scratch.borrow();
        let input = &scratch.input[..bytes];
        let used = incoming.take(input)?;
        if used < input.len() {
            self.buffer.extend_from_slice(&input[used..]);
            self.arrived = measure::now();
        }
        Ok(())
    }

    /// Sends what is too much for memory to a spooler. Nothing is read from this client meanwhile.
    async fn spool(&mut self, incoming: &mut Incoming) -> Result<(), Refused> {
        let len = incoming.memory.len();
        let due = match &incoming.spooled {
            None => len > self.driver.config().spool.readahead_bytes,
            Some(_) => len >= ERRAND_BYTES || (incoming.decoder.is_done() && len > 0),
        };
        if !due {
            return Ok(());
        }
        if incoming.spooled.is_none() {
            self.driver.stats().spooled.add();
        }
        // The disk has its own time: the deadline is about the client.
        self.now_doing(Doing::Spooling, Stamp::NEVER);
        let spoolers = self.driver.shared.spoolers.clone();
        let data = std::mem::take(&mut incoming.memory);
        match spoolers
            .append(self.seat, incoming.spooled.take(), data)
            .await
        {
            Ok((spooled, buffer)) => {
                incoming.spooled = Some(spooled);
                incoming.memory = buffer;
                Ok(())
            }
            Err(error) => Err(self.spool_fault(&error)),
        }
    }

    fn spool_fault(&self, error: &std::io::Error) -> Refused {
        let text = format!("request body could not be stored: {error}");
        self.driver
            .shared
            .log
            .error(crate::log::Level::Error, &text);
        match error.kind() {
            std::io::ErrorKind::StorageFull | std::io::ErrorKind::QuotaExceeded => {
                Refused::SPOOL_FULL
            }
            _ => Refused::SPOOL_FAILED,
        }
    }

    fn no_body(&mut self, incoming: &Incoming, stop: Stop) -> Step {
        let ending = match stop {
            Stop::Refused(refused) => {
                let view = incoming.head.view();
                return self.refuse(view, incoming.route, incoming.request_bytes, refused);
            }
            Stop::Woken(Woken::Deadline) => {
                return self.no_body(incoming, Stop::Refused(Refused::BODY_TIMEOUT));
            }
            Stop::Woken(Woken::Cut) => Ending::Drained,
            Stop::Woken(_) => Ending::PeerGone,
        };
        self.end_unanswered(
            Some((incoming.head.view(), incoming.request_bytes)),
            b"",
            ending,
        );
        Step::Close
    }
}

fn server_options() -> Reply {
    let lines = b"Allow: GET, HEAD, POST, PUT, PATCH, DELETE, OPTIONS\r\nContent-Length: 0\r\n";
    Reply {
        status: 200,
        lines: Bytes::from_static(lines),
        body: ReplyBody::Empty,
    }
}

/// Why a body was not received.
#[derive(Clone, Copy)]
enum Stop {
    Refused(Refused),
    Woken(Woken),
}

impl From<wire::Refusal> for Stop {
    fn from(refusal: wire::Refusal) -> Self {
        Stop::Refused(refusal.into())
    }
}

impl From<Woken> for Stop {
    fn from(woken: Woken) -> Self {
        Stop::Woken(woken)
    }
}

impl Incoming {
    /// Decodes what it can of `input`; gives the bytes used.
    fn take(&mut self, input: &[u8]) -> Result<usize, wire::Refusal> {
        let mut used = 0;
        while !self.decoder.is_done() && used < input.len() {
            let decoded = self.decoder.decode(&input[used..])?;
            let data = used + decoded.data.start..used + decoded.data.end;
            self.memory.extend_from_slice(&input[data]);
            used += decoded.consumed;
        }
        self.request_bytes += used as u64;
        Ok(used)
    }

    fn doing(&self) -> Doing {
        if self.spooled.is_some() {
            Doing::Spooling
        } else {
            Doing::Reading
        }
    }
}
