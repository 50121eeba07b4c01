//! Request bodies: into memory up to `body_memory_max`, through a body-spool thread into a file beyond, at the pace that
//! the client has to keep.
//!
//! Takes an exchange without its body, gives it back with it. Every protocol stores bodies by this; `receive` is for
//! a connection of one stream at a time, whose bodies are framed as HTTP/1 does it.

use std::io::ErrorKind;

use http::BodyDecoder;
use logging::Level;
use queueing::Pace;
use telemetry::{Ending, Stamp};

use super::{Connection, Stop, Woken};
use crate::driver::Driver;
use crate::exchange::{Body, BodyFile, Exchange};
use crate::refusal::Refusal;
use crate::spool::Spooled;
use telemetry::counters::{Doing, Timeout};

/// Bytes of a body that are written at once.
const WRITE_BYTES: usize = 64 << 10;

/// A request whose head is complete and whose body is not.
pub(crate) struct IncomingBody {
    /// Without its body.
    pub(crate) exchange: Box<Exchange>,
    decoder: BodyDecoder,
    /// The body, or what of it has not gone to the file yet.
    memory: Vec<u8>,
    spooled: Option<Spooled>,
    pub(crate) pace: Pace,
    /// When bytes last came.
    pub(crate) moved: Stamp,
}

/// Why a body was not received.
#[derive(Clone, Copy)]
pub(crate) enum NoBody {
    Refused(Refusal),
    /// The exchange ends so, without a response.
    Ended(Ending),
}

impl IncomingBody {
    /// Of a request whose head is complete now.
    pub(crate) fn new(exchange: Box<Exchange>, driver: &Driver) -> Result<Self, http::Refusal> {
        let now = telemetry::now();
        let timeouts = &driver.config().timeouts;
        let limits = driver.body_limits(exchange.record.route);
        Ok(Self {
            decoder: BodyDecoder::new(exchange.head().index.body, &limits)?,
            exchange,
            memory: Vec::new(),
            spooled: None,
            pace: Pace::new(now, timeouts.body, timeouts.body_rate_min),
            moved: now,
        })
    }

    /// Receives the body, of which `input` has come with the head; gives what has come behind it, which is the next
    /// request's.
    pub(super) async fn receive(
        &mut self,
        connection: &Connection,
        mut input: Vec<u8>,
    ) -> Result<Vec<u8>, NoBody> {
        // What came with the head first: it may be the whole body, and then no byte follows that would end a wait.
        if !input.is_empty() {
            let used = self.decode(&input)?;
            input = input.split_off(used);
            self.spool(connection, self.decoder.is_done()).await?;
        }
        while !self.decoder.is_done() {
            let doing = match &self.spooled {
                None => Doing::Reading,
                Some(_) => Doing::Spooling,
            };
            connection.now_doing(doing, self.pace.deadline());
            let (scratch, bytes) = match connection.read().await {
                Ok(read) => read,
                // A request that has begun is received; the pace of its body bounds that.
                Err(Woken::Draining | Woken::Crowded) => continue,
                Err(woken) => return Err(self.no_body(connection, woken)),
            };
            let data = &scratch.input[..bytes];
            let used = self.decode(data);
            if let Ok(used) = used {
                input.extend_from_slice(&data[used..]);
            }
            // Before an error leaves this function: the driver has one such buffer.
            connection.driver.put_scratch(scratch);
            used?;
            self.spool(connection, self.decoder.is_done()).await?;
        }
        Ok(input)
    }

    /// Decodes what it can of `input`; gives the bytes used.
    fn decode(&mut self, input: &[u8]) -> Result<usize, http::Refusal> {
        let mut used = 0;
        while !self.decoder.is_done() && used < input.len() {
            let decoded = self.decoder.decode(&input[used..])?;
            let data = used + decoded.data.start..used + decoded.data.end;
            self.memory.extend_from_slice(&input[data]);
            used += decoded.consumed;
        }
        // Framing counts too: the pace is about what the client sends.
        self.has_come(used);
        Ok(used)
    }

    /// Takes some of the body as it is.
    pub(crate) fn push(&mut self, data: &[u8]) {
        self.memory.extend_from_slice(data);
        self.has_come(data.len());
    }

    fn has_come(&mut self, bytes: usize) {
        self.moved = telemetry::now();
        self.exchange.record.request_bytes += bytes as u64;
        self.pace.advance(bytes as u64, self.moved);
    }

    /// Has what is too much for memory written. Nothing is read from this client meanwhile.
    pub(crate) async fn spool(
        &mut self,
        connection: &Connection,
        is_complete: bool,
    ) -> Result<(), NoBody> {
        let driver = &connection.driver;
        let bytes = self.memory.len();
        let is_due = match &self.spooled {
            None => bytes > driver.config().spool.body_memory_bytes,
            Some(_) => bytes >= WRITE_BYTES || (is_complete && bytes > 0),
        };
        if !is_due {
            return Ok(());
        }
        if self.spooled.is_none() {
            driver.stats().spooled.add();
        }
        // The disk has its own time: the pace is about the client.
        self.pace.hold(telemetry::now());
        connection.now_doing(Doing::Spooling, Stamp::NEVER);
        // The buffer goes along and comes back empty, so that a large body is one buffer after the other in the
        // same memory.
        let data = std::mem::take(&mut self.memory);
        let written = driver.shared.spoolers.append(self.spooled.take(), data);
        let written = connection.unless_cut(written).await?;
        self.pace.resume(telemetry::now());
        let (spooled, buffer) = written.map_err(|error| {
            let name = self.exchange.name();
            let text = format!("{name}: request body could not be stored: {error}");
            driver.shared.log.error(Level::Error, &text);
            NoBody::Refused(match error.kind() {
                ErrorKind::StorageFull | ErrorKind::QuotaExceeded => Refusal::SPOOL_FULL,
                _ => Refusal::SPOOL_FAILED,
            })
        })?;
        self.spooled = Some(spooled);
        self.memory = buffer;
        Ok(())
    }

    /// Why the body does not come any more.
    pub(crate) fn no_body(&self, connection: &Connection, woken: Woken) -> NoBody {
        if woken != Woken::Deadline {
            return woken.stop().into();
        }
        // The client has not kept its pace.
        let driver = &connection.driver;
        driver.stats().timed_out(Timeout::Body);
        let silent = telemetry::now().since(self.moved);
        NoBody::Refused(match silent >= driver.config().timeouts.body {
            true => Refusal::BODY_SILENT,
            false => Refusal::BODY_SLOW,
        })
    }

    /// The exchange with what has come of its body. The file of one that is not wanted any more is closed where that
    /// may wait for the disk.
    pub(crate) fn finish(mut self, driver: &Driver) -> Box<Exchange> {
        self.exchange.body = match self.spooled {
            Some(spooled) => Body::File {
                file: BodyFile::new(spooled.file, &driver.shared.spoolers.pool),
                bytes: spooled.bytes,
            },
            None if self.memory.is_empty() => Body::Empty,
            None => Body::Memory(self.memory),
        };
        self.exchange
    }
}

impl From<http::Refusal> for NoBody {
    fn from(refusal: http::Refusal) -> Self {
        NoBody::Refused(refusal.into())
    }
}

impl From<Stop> for NoBody {
    fn from(stop: Stop) -> Self {
        NoBody::Ended(stop.ending)
    }
}
