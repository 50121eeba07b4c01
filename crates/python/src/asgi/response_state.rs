//! The response of one request: which events may come, and what of them goes to the response writer.
//!
//! Takes heads and pieces of bodies in the order in which the application sends them; a wrong order, and a body longer
//! than its declared length, is refused with a sentence. Runs no Python code.
//!
//! ```text
//! SILENT ──start──► STARTED ──first body event──► OPEN ──last body event──► OVER
//!                      │                                                      ▲
//!                      ├── pathsend ──► OPENING ── the file was opened ───────┤
//!                      └── the only body event ───────────────────────────────┘
//! ```
//!
//! A span of a file behind a compressed piece is read on another thread: READING until all of it is written, then what
//! would have followed at once.
//!
//! A response that declares trailers is TRAILING between the end of its body and OVER, until the last of them.

use std::fs::File;
use std::io;
use std::sync::Arc;

use http::FieldLines;
use pyo3::prelude::*;
use pyo3::types::PyBytes;
use server::exchange::ExchangeName;
use server::pool::LoopAssignment;
use server::response::{Amount, ResponseWriter, Taken};

use super::response::ResponseStart;
use crate::wsgi::{FileSpan, ObjectPiece};

/// Unsent bytes of an event stream beyond which `send` waits.
const EVENT_STREAM_BYTES_MAX: u64 = 64 << 10;

/// A response, with the exchange as long as it is not handed over.
pub(super) struct ResponseState {
    assignment: Option<LoopAssignment>,
    /// What the exchange is called in the log, once it is gone.
    name: Option<ExchangeName>,
    stage: ResponseStage,
    is_head: bool,
    /// Bytes that the body must still have; `None` where that is not declared.
    left: Option<u64>,
    is_event_stream: bool,
    /// Trailer fields are to follow the body.
    has_trailers: bool,
}

enum ResponseStage {
    Silent,
    /// The head is kept until the first event of the body.
    Started(Box<ResponseStart>),
    Open,
    /// The file that is the body is being opened.
    Opening(Box<ResponseStart>),
    /// A span of a file is being read, because the body is compressed.
    Reading(Box<SpanReading>),
    /// The body is complete, and trailer fields are to come.
    Trailing,
    Over,
}

/// The rest of a span that is read.
struct SpanReading {
    file: Arc<File>,
    offset: u64,
    bytes: u64,
    /// A piece of it was asked for.
    is_asked: bool,
    /// What follows it.
    after: ResponseStage,
}

/// A piece of a span that is to be read: as much of these bytes as one piece has.
pub(super) struct SpanPiece {
    pub(super) file: Arc<File>,
    pub(super) offset: u64,
    pub(super) bytes: u64,
}

/// Where a piece of a body stands.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum PiecePlace {
    /// It is the response.
    Only,
    First,
    Later,
}

impl PiecePlace {
    /// A piece without bytes.
    fn write_nothing(self, writer: &mut ResponseWriter) -> Taken {
        match self {
            PiecePlace::Only => writer.write(&&b""[..], Amount::Whole),
            // An application that sends nothing, and more later, wants its head to leave.
            PiecePlace::First => writer.open_stream(),
            PiecePlace::Later => Taken::All,
        }
    }
}

impl ResponseState {
    pub(super) fn new(begun: LoopAssignment) -> Self {
        Self {
            is_head: begun.assignment.exchange.head().is_head(),
            assignment: Some(begun),
            name: None,
            stage: ResponseStage::Silent,
            left: None,
            is_event_stream: false,
            has_trailers: false,
        }
    }

    /// The exchange, as long as its response is not handed over.
    pub(super) fn assignment(&mut self) -> Option<&mut LoopAssignment> {
        self.assignment.as_mut()
    }

    /// Takes the exchange out: its response is handed over, or will not be.
    pub(super) fn take(&mut self) -> Option<LoopAssignment> {
        let taken = self.assignment.take()?;
        self.name = Some(ExchangeName::of(&taken.assignment.exchange));
        Some(taken)
    }

    /// What the exchange is called in the log, once it was taken out.
    pub(super) fn name(&self) -> Option<ExchangeName> {
        self.name.clone()
    }

    /// No event may come any more.
    pub(super) fn end(&mut self) {
        self.stage = ResponseStage::Over;
    }

    pub(super) fn is_silent(&self) -> bool {
        matches!(self.stage, ResponseStage::Silent)
    }

    pub(super) fn is_trailing(&self) -> bool {
        matches!(self.stage, ResponseStage::Trailing)
    }

    pub(super) fn is_over(&self) -> bool {
        matches!(self.stage, ResponseStage::Over)
    }

    /// Whether it is an event stream, under way or not.
    pub(super) fn is_event_stream(&self) -> bool {
        self.is_event_stream
    }

    /// Whether it is under way and has no end of its own: an event stream.
    pub(super) fn is_endless(&self) -> bool {
        self.is_event_stream && matches!(self.stage, ResponseStage::Open)
    }

    /// Whether more may be sent.
    pub(super) fn has_room(&self) -> bool {
        match &self.stage {
            ResponseStage::Opening(_) | ResponseStage::Reading(_) => false,
            _ => self.client_has_room(),
        }
    }

    fn client_has_room(&self) -> bool {
        let bytes_max = self.is_event_stream.then_some(EVENT_STREAM_BYTES_MAX);
        let own = self.assignment.as_ref();
        own.is_none_or(|own| own.assignment.writer.has_room(bytes_max))
    }

    /// The head.
    pub(super) fn start(&mut self, mut start: ResponseStart) -> Result<Taken, String> {
        if !self.is_silent() {
            return Err("`http.response.start` was sent twice for one request".to_owned());
        }
        if start.has_trailers() && self.takes_no_trailers() {
            return Err(
                "`http.response.start` has `trailers: True`, and the scope of this request has no \
                 extension `http.response.trailers`"
                    .to_owned(),
            );
        }
        self.has_trailers = start.has_trailers();
        self.left = start.body_bytes(self.is_head);
        self.is_event_stream = start.is_event_stream;
        if !start.is_event_stream {
            self.stage = ResponseStage::Started(Box::new(start));
            return Ok(Taken::All);
        }
        self.stage = ResponseStage::Open;
        let Some(own) = &mut self.assignment else {
            return Ok(Taken::Gone);
        };
        start.begin(&mut own.assignment.writer);
        Ok(own.assignment.writer.open_stream())
    }

    /// A piece of the body; the last one, unless `has_more`.
    pub(super) fn body(
        &mut self,
        body: Option<&Bound<'_, PyBytes>>,
        has_more: bool,
    ) -> Result<Taken, String> {
        let body = body.filter(|body| !body.as_bytes().is_empty());
        let bytes = body.map_or(0, |body| body.as_bytes().len() as u64);
        let place = self.begin_piece("http.response.body", bytes, has_more)?;
        let Some(own) = &mut self.assignment else {
            return Ok(Taken::Gone);
        };
        let writer = &mut own.assignment.writer;
        Ok(match (body, place) {
            (Some(body), PiecePlace::Only) => writer.write(&ObjectPiece::new(body), Amount::Whole),
            (Some(body), _) => writer.write(&ObjectPiece::new(body), Amount::OneOfMany),
            (None, place) => place.write_nothing(writer),
        })
    }

    /// A span of a file as a piece of the body; the last one, unless `has_more`. `None`: it has to be read
    /// (`span_to_read`).
    pub(super) fn span(&mut self, span: FileSpan, has_more: bool) -> Result<Option<Taken>, String> {
        let place = self.begin_piece("http.response.zerocopysend", span.bytes, has_more)?;
        let Some(own) = &mut self.assignment else {
            return Ok(Some(Taken::Gone));
        };
        let writer = &mut own.assignment.writer;
        let amount = match place {
            // An empty span is none.
            _ if span.bytes == 0 => return Ok(Some(place.write_nothing(writer))),
            _ if writer.is_compressing() => {
                self.read(span);
                return Ok(None);
            }
            PiecePlace::Only => Amount::Whole,
            PiecePlace::First | PiecePlace::Later => Amount::OneOfMany,
        };
        let FileSpan {
            file,
            offset,
            bytes,
        } = span;
        Ok(Some(writer.file(file, offset, bytes, amount)))
    }

    fn read(&mut self, span: FileSpan) {
        let after = std::mem::replace(&mut self.stage, ResponseStage::Over);
        self.stage = ResponseStage::Reading(Box::new(SpanReading {
            file: Arc::new(span.file),
            offset: span.offset,
            bytes: span.bytes,
            is_asked: false,
            after,
        }));
    }

    pub(super) fn is_reading(&self) -> bool {
        matches!(self.stage, ResponseStage::Reading(_))
    }

    /// The next piece of a span that is to be read, once its client has taken enough for more.
    pub(super) fn span_to_read(&mut self) -> Option<SpanPiece> {
        let has_room = self.client_has_room();
        let ResponseStage::Reading(reading) = &mut self.stage else {
            return None;
        };
        if !has_room || std::mem::replace(&mut reading.is_asked, true) {
            return None;
        }
        Some(SpanPiece {
            file: Arc::clone(&reading.file),
            offset: reading.offset,
            bytes: reading.bytes,
        })
    }

    /// A piece of a span was read; `None`: nobody waits for it any more. A file that ends before its span cuts the
    /// response.
    pub(super) fn span_read(&mut self, read: io::Result<Vec<u8>>) -> Option<Taken> {
        let ResponseStage::Reading(reading) = &mut self.stage else {
            return None;
        };
        reading.is_asked = false;
        let taken = match (&mut self.assignment, read) {
            // Its exchange has ended meanwhile: `send()` waits for nothing more.
            (None, _) => Taken::Gone,
            (Some(own), Ok(data)) => {
                let bytes = data.len() as u64;
                reading.offset += bytes;
                reading.bytes -= bytes;
                let writer = &mut own.assignment.writer;
                writer.write(&data.as_slice(), Amount::OneOfMany)
            }
            (Some(own), Err(_)) => {
                own.assignment.writer.cut_body();
                Taken::Gone
            }
        };
        if taken != Taken::All || reading.bytes == 0 {
            let after = std::mem::replace(&mut reading.after, ResponseStage::Over);
            self.stage = after;
        }
        Some(taken)
    }

    /// Counts a piece of the body, and begins the response with the first one.
    fn begin_piece(
        &mut self,
        event: &str,
        bytes: u64,
        has_more: bool,
    ) -> Result<PiecePlace, String> {
        if !matches!(self.stage, ResponseStage::Started(_) | ResponseStage::Open) {
            return Err(self.out_of_order(event));
        }
        self.count(bytes)?;
        let after = match has_more {
            true => ResponseStage::Open,
            false => self.after_body(),
        };
        let start = match std::mem::replace(&mut self.stage, after) {
            ResponseStage::Started(start) => Some(start),
            _ => None,
        };
        let Some(mut start) = start else {
            return Ok(PiecePlace::Later);
        };
        if let Some(own) = &mut self.assignment {
            start.begin(&mut own.assignment.writer);
        }
        Ok(match self.stage {
            ResponseStage::Over => PiecePlace::Only,
            _ => PiecePlace::First,
        })
    }

    /// A file is the body. Whether it is to be opened: nobody wants it where the exchange is gone.
    pub(super) fn begin_file(&mut self) -> Result<bool, String> {
        let after = self.after_body();
        match std::mem::replace(&mut self.stage, after) {
            ResponseStage::Started(start) => {
                let is_wanted = self.assignment.is_some();
                if is_wanted {
                    self.stage = ResponseStage::Opening(start);
                }
                Ok(is_wanted)
            }
            stage => {
                self.stage = stage;
                Err(self.out_of_order("http.response.pathsend"))
            }
        }
    }

    /// The file that was to be opened, with its length; `None` where it could not be. Gives the exchange where it was
    /// waiting for that, and nothing else of the response is to come.
    pub(super) fn file_opened(&mut self, opened: Option<(File, u64)>) -> Option<LoopAssignment> {
        if !matches!(self.stage, ResponseStage::Opening(_)) {
            return None;
        }
        let after = self.after_body();
        let ResponseStage::Opening(mut start) = std::mem::replace(&mut self.stage, after) else {
            unreachable!("just looked at");
        };
        let Some((file, bytes)) = opened else {
            return self.take();
        };
        let writer = &mut self.assignment.as_mut()?.assignment.writer;
        start.begin(writer);
        // An empty file is no span.
        match bytes {
            0 if self.has_trailers => writer.open_stream(),
            0 => writer.write(&&b""[..], Amount::Whole),
            _ => writer.file(file, 0, bytes, Amount::Whole),
        };
        match self.has_trailers {
            true => None,
            false => self.take(),
        }
    }

    /// Fields behind the body; the last ones, unless `has_more`.
    pub(super) fn trailers(
        &mut self,
        fields: &FieldLines,
        has_more: bool,
    ) -> Result<Taken, String> {
        if !self.is_trailing() {
            return Err(match self.has_trailers {
                true => self.out_of_order("http.response.trailers"),
                false => "`http.response.trailers` was sent, and `http.response.start` has no \
                          `trailers: True`"
                    .to_owned(),
            });
        }
        if !has_more {
            self.stage = ResponseStage::Over;
        }
        let Some(own) = &mut self.assignment else {
            return Ok(Taken::Gone);
        };
        own.assignment.writer.trailers(fields);
        Ok(Taken::All)
    }

    /// What follows the end of the body.
    fn after_body(&self) -> ResponseStage {
        match self.has_trailers {
            true => ResponseStage::Trailing,
            false => ResponseStage::Over,
        }
    }

    fn takes_no_trailers(&self) -> bool {
        let own = self.assignment.as_ref();
        own.is_some_and(|own| !own.assignment.exchange.head().takes_trailers())
    }

    /// Fields that the response is likely to have.
    pub(super) fn hint(&mut self, fields: FieldLines) {
        if let Some(own) = &mut self.assignment {
            own.assignment.writer.early_hints(fields);
        }
    }

    /// Counts bytes of the body against its declared length.
    fn count(&mut self, bytes: u64) -> Result<(), String> {
        let Some(left) = &mut self.left else {
            return Ok(());
        };
        let rest = left.checked_sub(bytes).ok_or_else(|| {
            format!(
                "the body is longer than its Content-Length: {left} bytes are left, and {bytes} were sent"
            )
        })?;
        *left = rest;
        Ok(())
    }

    fn out_of_order(&self, event: &str) -> String {
        let when = match self.stage {
            ResponseStage::Silent => "before `http.response.start`",
            ResponseStage::Over => "after the response was complete",
            ResponseStage::Trailing => "after the last event of the body",
            ResponseStage::Reading(_) => "before the `send()` of a span of a file was done",
            _ if event == "http.response.trailers" => "before the last event of the body",
            _ => "in the middle of a body",
        };
        format!("`{event}` was sent {when}")
    }
}
