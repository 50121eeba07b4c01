//! Request bodies: into memory up to `readahead`, through a spooler into a file beyond, at the pace that the
//! client has to keep.

use std::io::IoSlice;
use std::sync::Arc;

use bytes::Bytes;
use measure::{Ending, Stamp};
use stage::Pace;
use wire::{BodyDecoder, HeadView, RequestHead};

use super::begin::Request;
use super::connection::{Connection, Step, Woken};
use super::refused::Refused;
use super::sending::Outflow;
use crate::config::meant::Config;
use crate::delivery::{self, Chain};
use crate::exchange::{self, Body};
use crate::reply::Part;
use crate::spool::Spooled;
use crate::stats::{Doing, Timeout};

/// Bytes of a body that go to a spooler at once.
const ERRAND_BYTES: usize = 64 << 10;

/// A request whose head is complete and whose body is not.
pub(super) struct Incoming {
    head: Arc<RequestHead>,
    decoder: BodyDecoder,
    /// The body, or what of it has not gone to the file yet.
    memory: Vec<u8>,
    spooled: Option<Spooled>,
    request: Request,
    pace: Pace,
    /// When bytes last came.
    moved: Stamp,
}

/// Why a body was not received.
#[derive(Clone, Copy)]
enum Stop {
    Refused(Refused),
    Woken(Woken),
}

impl Connection {
    /// Receives a body, into memory up to `readahead` and into a file beyond.
    pub(super) async fn receive_body(&mut self, mut incoming: Box<Incoming>) -> Step {
        if incoming.head.view().index.expect_continue && self.buffer.is_empty() {
            incoming.pace.hold(measure::now());
            let invited = self.invite().await;
            incoming.pace.resume(measure::now());
            if let Err(stop) = invited {
                self.count_stop(stop);
                self.abandon();
                self.arrived = incoming.request.arrived;
                let about = Some((incoming.head.view(), incoming.request.request_bytes));
                self.end_unanswered(incoming.request.id, about, b"", stop.ending);
                return Step::Close;
            }
        }
        while !incoming.decoder.is_done() {
            self.now_doing(incoming.doing(), incoming.pace.deadline());
            let received = match self.receive_some(&mut incoming).await {
                Ok(()) => self.spool(&mut incoming).await,
                Err(stop) => Err(stop),
            };
            if let Err(stop) = received {
                if let Some(spooled) = incoming.spooled.take() {
                    self.driver.shared.spoolers.discard(spooled);
                }
                return self.no_body(&incoming, stop);
            }
        }
        let Incoming {
            head,
            memory,
            spooled,
            request,
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
        Step::Pool(self.exchange(head, body, request))
    }

    /// Invites the client to send its body (RFC 9110 section 15.2.1). A socket too full for it is one whose
    /// client reads nothing: it gets no invitation; but one that has begun is sent to its end, or what is
    /// missing of it would be taken from the reply.
    async fn invite(&mut self) -> Result<(), super::sending::Stop> {
        let whole = [IoSlice::new(wire::CONTINUE_100)];
        // Reading will tell of a client that is gone.
        let sent = delivery::send(self.door(), &whole).unwrap_or(0);
        let mut chain = Chain::default();
        if sent > 0 {
            let rest = Bytes::from_static(&wire::CONTINUE_100[sent..]);
            chain.push(Part::Memory(rest));
        }
        let mut outflow = Outflow::new(self, None, measure::now());
        while !chain.is_empty() {
            self.send_some(&mut chain, &mut outflow).await?;
        }
        Ok(())
    }

    async fn receive_some(&mut self, incoming: &mut Incoming) -> Result<(), Stop> {
        if !self.buffer.is_empty() {
            let mut input = std::mem::take(&mut self.buffer);
            let used = incoming.take(&input, measure::now())?;
            // What is left over is the next request's: the decoder takes all that is the body's.
            input.drain(..used);
            if !input.is_empty() {
                self.buffer = input;
            }
            return Ok(());
        }
        let bytes = loop {
            match self.read().await {
                Err(Woken::Draining | Woken::Crowded) => {}
                other => break other?,
            }
        };
        let now = measure::now();
        let scratch = self.driver.scratch.borrow();
        let input = &scratch.input[..bytes];
        let used = incoming.take(input, now)?;
        if used < input.len() {
            self.buffer.extend_from_slice(&input[used..]);
            self.arrived = now;
        }
        Ok(())
    }

    /// Sends what is too much for memory to a spooler. Nothing is read from this client meanwhile.
    async fn spool(&mut self, incoming: &mut Incoming) -> Result<(), Stop> {
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
        // The disk has its own time: the pace is about the client.
        incoming.pace.hold(measure::now());
        self.now_doing(Doing::Spooling, Stamp::NEVER);
        let data = std::mem::take(&mut incoming.memory);
        let spoolers = &self.driver.shared.spoolers;
        let errand = spoolers.append(incoming.spooled.take(), data);
        let written = self.unless_cut(errand).await;
        incoming.pace.resume(measure::now());
        let written = written.ok_or(Stop::Woken(Woken::Cut))?;
        let fault = |error| Stop::Refused(self.spool_fault(incoming, &error));
        let (spooled, buffer) = written.map_err(fault)?;
        incoming.spooled = Some(spooled);
        incoming.memory = buffer;
        Ok(())
    }

    fn spool_fault(&self, incoming: &Incoming, error: &std::io::Error) -> Refused {
        let name = exchange::name(incoming.request.id, incoming.head.view());
        let text = format!("{name}: request body could not be stored: {error}");
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
        let request = &incoming.request;
        self.arrived = request.arrived;
        let ending = match stop {
            Stop::Refused(refused) => {
                let view = incoming.head.view();
                let (route, bytes) = (request.route, request.request_bytes);
                return self.refuse(request.id, view, route, bytes, refused);
            }
            Stop::Woken(Woken::Deadline) => {
                self.driver.stats().timed_out(Timeout::Body);
                let silent = measure::now().since(incoming.moved);
                let refused = if silent >= self.driver.config().timeouts.body {
                    Refused::BODY_SILENT
                } else {
                    Refused::BODY_SLOW
                };
                return self.no_body(incoming, Stop::Refused(refused));
            }
            Stop::Woken(Woken::Cut) => Ending::Drained,
            Stop::Woken(_) => Ending::PeerGone,
        };
        self.end_unanswered(
            request.id,
            Some((incoming.head.view(), request.request_bytes)),
            b"",
            ending,
        );
        Step::Close
    }
}

impl Incoming {
    /// A request whose head is complete now.
    pub(super) fn new(
        view: HeadView<'_>,
        request: Request,
        config: &Config,
    ) -> Result<Self, wire::Refusal> {
        let now = measure::now();
        let timeouts = &config.timeouts;
        Ok(Self {
            decoder: BodyDecoder::new(view.index.body, &config.limits)?,
            head: Arc::new(RequestHead::take(view)),
            memory: Vec::new(),
            spooled: None,
            request,
            pace: Pace::new(now, timeouts.body, timeouts.body_rate_min),
            moved: now,
        })
    }

    /// Decodes what it can of `input`; gives the bytes used.
    fn take(&mut self, input: &[u8], now: Stamp) -> Result<usize, wire::Refusal> {
        let mut used = 0;
        while !self.decoder.is_done() && used < input.len() {
            let decoded = self.decoder.decode(&input[used..])?;
            let data = used + decoded.data.start..used + decoded.data.end;
            self.memory.extend_from_slice(&input[data]);
            used += decoded.consumed;
        }
        self.request.request_bytes += used as u64;
        self.pace.advance(used as u64, now);
        self.moved = now;
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
