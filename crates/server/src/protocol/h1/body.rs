//! Request bodies: into memory up to `readahead`, through a body-spool thread into a file beyond, at the pace that
//! the client has to keep.

use std::io::IoSlice;
use std::sync::Arc;

use bytes::Bytes;
use measure::{Ending, Stamp};
use stage::Pace;
use wire::{BodyDecoder, HeadView, RequestHead};

use super::send::SendMonitor;
use super::{H1, Step};
use crate::config::meant::Config;
use crate::exchange::{Body, BodyFile, ExchangeRecord};
use crate::protocol::{Stop, Woken};
use crate::recorder::Received;
use crate::refusal::Refusal;
use crate::reply::Part;
use crate::response::Parts;
use crate::spool::Spooled;
use crate::stats::{Doing, Timeout};

/// Bytes of a body that are written at once.
const WRITE_BYTES: usize = 64 << 10;

/// A request whose head is complete and whose body is not.
pub(super) struct Incoming {
    head: Arc<RequestHead>,
    decoder: BodyDecoder,
    /// The body, or what of it has not gone to the file yet.
    memory: Vec<u8>,
    spooled: Option<Spooled>,
    record: ExchangeRecord,
    rewritten: Option<Box<[u8]>>,
    pace: Pace,
    /// When bytes last came.
    moved: Stamp,
}

/// Why a body was not received.
#[derive(Clone, Copy)]
enum NoBody {
    Refused(Refusal),
    Woken(Woken),
}

impl H1 {
    /// Receives a body, into memory up to `readahead` and into a file beyond.
    pub(super) async fn receive_body(&mut self, mut incoming: Box<Incoming>) -> Step {
        if incoming.head.view().index.expect_continue && self.buffer.is_empty() {
            incoming.pace.hold(measure::now());
            let invited = self.invite().await;
            incoming.pace.resume(measure::now());
            if let Err(stop) = invited {
                self.connection.count_stop(stop);
                self.connection.transport.reset_on_close();
                let received = Received::Head(incoming.head.view());
                self.connection
                    .end_unanswered(incoming.record, received, stop.ending);
                return Step::Close;
            }
        }
        while !incoming.decoder.is_done() {
            self.connection
                .now_doing(incoming.doing(), incoming.pace.deadline());
            let received = match self.receive_some(&mut incoming).await {
                Ok(()) => self.spool(&mut incoming).await,
                Err(stop) => Err(stop),
            };
            if let Err(stop) = received {
                if let Some(spooled) = incoming.spooled.take() {
                    self.connection.driver.shared.spoolers.discard(spooled);
                }
                return self.no_body(&incoming, stop);
            }
        }
        let Incoming {
            head,
            memory,
            spooled,
            record,
            rewritten,
            ..
        } = *incoming;
        let body = match spooled {
            Some(spooled) => Body::File {
                file: BodyFile::new(spooled.file, &self.connection.driver.shared.spoolers),
                bytes: spooled.bytes,
            },
            None if memory.is_empty() => Body::Empty,
            None => Body::Memory(memory),
        };
        Step::Pool(self.connection.exchange(head, body, record, rewritten))
    }

    /// Invites the client to send its body (RFC 9110 section 15.2.1). A socket too full for it is one whose
    /// client reads nothing: it gets no invitation; but one that has begun is sent to its end, or what is
    /// missing of it would be taken from the response.
    async fn invite(&mut self) -> Result<(), Stop> {
        let whole = [IoSlice::new(wire::CONTINUE_100)];
        // Reading will tell of a client that is gone.
        let sent = self.connection.transport.send(&whole).unwrap_or(0);
        let mut parts = Parts::default();
        if sent > 0 {
            let rest = Bytes::from_static(&wire::CONTINUE_100[sent..]);
            parts.push(Part::Memory(rest));
        }
        let mut monitor = SendMonitor::new(&self.connection, None, measure::now());
        while !parts.is_empty() {
            self.send_some(&mut parts, &mut monitor).await?;
        }
        Ok(())
    }

    async fn receive_some(&mut self, incoming: &mut Incoming) -> Result<(), NoBody> {
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
        let (scratch, bytes) = loop {
            match self.connection.read().await {
                Err(Woken::Draining | Woken::Crowded) => {}
                other => break other?,
            }
        };
        let now = measure::now();
        let input = &scratch.input[..bytes];
        let taken = incoming.take(input, now);
        if let Ok(used) = taken
            && used < input.len()
        {
            self.buffer.extend_from_slice(&input[used..]);
            self.arrived = now;
        }
        self.connection.driver.put_scratch(scratch);
        Ok(taken.map(drop)?)
    }

    /// Has what is too much for memory written. Nothing is read from this client meanwhile.
    async fn spool(&mut self, incoming: &mut Incoming) -> Result<(), NoBody> {
        let driver = &self.connection.driver;
        let len = incoming.memory.len();
        let due = match &incoming.spooled {
            None => len > driver.config().spool.readahead_bytes,
            Some(_) => len >= WRITE_BYTES || (incoming.decoder.is_done() && len > 0),
        };
        if !due {
            return Ok(());
        }
        if incoming.spooled.is_none() {
            driver.stats().spooled.add();
        }
        // The disk has its own time: the pace is about the client.
        incoming.pace.hold(measure::now());
        self.connection.now_doing(Doing::Spooling, Stamp::NEVER);
        let data = std::mem::take(&mut incoming.memory);
        let written = driver.shared.spoolers.append(incoming.spooled.take(), data);
        let written = self.connection.unless_cut(written).await;
        incoming.pace.resume(measure::now());
        let written = written.ok_or(NoBody::Woken(Woken::Cut))?;
        let fault = |error| {
            let head = incoming.head.view();
            NoBody::Refused(self.connection.spool_fault(&incoming.record, head, &error))
        };
        let (spooled, buffer) = written.map_err(fault)?;
        incoming.spooled = Some(spooled);
        incoming.memory = buffer;
        Ok(())
    }

    fn no_body(&mut self, incoming: &Incoming, why: NoBody) -> Step {
        let received = Received::Head(incoming.head.view());
        let ending = match why {
            NoBody::Refused(refusal) => return self.refuse(incoming.record, received, refusal),
            NoBody::Woken(Woken::Deadline) => {
                let driver = &self.connection.driver;
                driver.stats().timed_out(Timeout::Body);
                let silent = measure::now().since(incoming.moved);
                let refusal = match silent >= driver.config().timeouts.body {
                    true => Refusal::BODY_SILENT,
                    false => Refusal::BODY_SLOW,
                };
                return self.refuse(incoming.record, received, refusal);
            }
            NoBody::Woken(Woken::Cut) => Ending::Drained,
            NoBody::Woken(_) => Ending::PeerGone,
        };
        self.connection
            .end_unanswered(incoming.record, received, ending);
        Step::Close
    }
}

impl Incoming {
    /// A request whose head is complete now.
    pub(super) fn new(
        head: HeadView<'_>,
        record: ExchangeRecord,
        rewritten: Option<Box<[u8]>>,
        config: &Config,
    ) -> Result<Self, wire::Refusal> {
        let now = measure::now();
        let timeouts = &config.timeouts;
        Ok(Self {
            decoder: BodyDecoder::new(head.index.body, &config.limits)?,
            head: Arc::new(RequestHead::take(head)),
            memory: Vec::new(),
            spooled: None,
            record,
            rewritten,
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
        self.record.request_bytes += used as u64;
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

impl From<wire::Refusal> for NoBody {
    fn from(refusal: wire::Refusal) -> Self {
        NoBody::Refused(refusal.into())
    }
}

impl From<Woken> for NoBody {
    fn from(woken: Woken) -> Self {
        NoBody::Woken(woken)
    }
}
