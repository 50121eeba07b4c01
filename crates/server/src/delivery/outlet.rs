//! The outlet: what a handler on a pool thread answers through.
//!
//! Takes a head and body pieces and frames them; `exit` offers them to the socket once without waiting
//! and passes what it does not take to the connection's driver, so that the thread is free as soon as
//! the handler is done, however slow the client. Bodies that are compressed on the way go through
//! `coded`.

mod coded;

use std::fs::File;
use std::io::{self, Read};
use std::os::unix::fs::FileExt;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use bytes::Bytes;
use measure::{Ending, Phases, Stamp};
use socket2::SockRef;
use wire::{ReplyFacts, ReplyFraming, ReplyPlan, Version};

use super::coding::{self, Accepted, Treatment};
use super::exit::{Bounds, Exit};
use super::{Chain, Desk, Door, EndOfHead};
use crate::config::meant::{Coding, Rate};
use crate::exchange::Exchange;
use crate::log::Level;
use crate::reply::Part;

/// Why a reply is cut whose unnamed file failed.
pub(crate) const UNSTORED: &str = "the reply could not be stored for its slow client";
/// Spans of files up to this size are read.
const READ_BYTES_MAX: u64 = 64 << 10;

/// What the handler's header lines said, so that the outlet need not parse them.
#[derive(Clone, Copy, Debug, Default)]
pub struct Declared {
    /// The value of `Content-Length`.
    pub content_length: Option<u64>,
    /// A `Date` line is there.
    pub date: bool,
    /// A `Server` line is there.
    pub server: bool,
    /// The connection is to end after this reply.
    pub close: bool,
    /// The bandwidth that this reply may have, whatever is configured.
    pub rate: Option<Rate>,
}

/// What became of a piece.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Taken {
    /// Sent, or kept for the driver to send.
    All,
    /// The declared `Content-Length` was reached: the excess was dropped.
    Overrun,
    /// The client is gone, or was given up: nothing more will be sent.
    Gone,
}

/// What the outlet has to know of the request.
#[derive(Clone, Copy)]
pub(crate) struct Asked {
    pub(crate) version: Version,
    pub(crate) is_head: bool,
    /// The connection may go on afterwards, unless `draining` has become true by then.
    pub(crate) keep_alive: bool,
    /// Stamps that have passed, for `Server-Timing`.
    pub(crate) phases: Phases,
    /// Content codings of the client; `None` when nothing is compressed.
    pub(crate) accepted: Option<Accepted>,
}

/// A handler's way to answer one exchange.
pub struct Outlet<'a> {
    exit: Exit<'a>,
    desk: &'a mut Desk,
    asked: Asked,
    stage: Stage,
    status: u16,
    declared: Declared,
    treatment: Treatment,
    /// Why the body cannot go on.
    failed: Option<&'static str>,
    head_bytes: u64,
    replied: Stamp,
    delivered: Stamp,
}

/// ```text
/// SILENT ──begin──► BEGUN ──first bytes──► OPEN ──► CLOSED
///                     │  ▲ begin             ▲
///                     └──┘                   └ pieces
/// ```
#[derive(Clone, Copy)]
enum Stage {
    Silent,
    /// The head's lines are in the desk's buffer.
    Begun,
    /// The head is out. `left`: bytes of the declared length still to come from the handler; `coding`:
    /// what they go through.
    Open {
        plan: ReplyPlan,
        left: Option<u64>,
        coding: Option<Coding>,
    },
}

/// A reply's end, for the pool corridor.
pub(crate) struct Close {
    pub(crate) status: u16,
    pub(crate) head_bytes: u64,
    pub(crate) sent_bytes: u64,
    pub(crate) keep_alive: bool,
    pub(crate) ending: Ending,
    pub(crate) cause: &'static str,
    pub(crate) replied: Stamp,
    pub(crate) delivered: Stamp,
    /// The driver sends the rest and ends the exchange.
    pub(crate) flowing: bool,
}

impl<'a> Outlet<'a> {
    pub(crate) fn new(
        door: &'a Arc<Door>,
        desk: &'a mut Desk,
        asked: Asked,
        bounds: Bounds<'a>,
    ) -> Self {
        Self {
            exit: Exit::new(door, bounds),
            desk,
            asked,
            stage: Stage::Silent,
            status: 0,
            declared: Declared::default(),
            treatment: Treatment::Untouched,
            failed: None,
            head_bytes: 0,
            replied: Stamp::ZERO,
            delivered: Stamp::ZERO,
        }
    }

    /// Starts the head, or starts it anew until it has been sent. Append finished `Name: value\r\n` lines
    /// to the buffer given back, then call `declare`.
    ///
    /// # Panics
    /// When the head has been sent, or for a status outside 200 to 999: an interim status is no reply.
    pub fn begin(&mut self, status: u16, reason: &[u8]) -> &mut Vec<u8> {
        assert!(!self.head_is_sent(), "the head has been sent");
        assert!(
            (200..=999).contains(&status),
            "status {status} is no final status"
        );
        self.stage = Stage::Begun;
        self.status = status;
        self.exit.set_status(status);
        self.declared = Declared::default();
        self.treatment = Treatment::Untouched;
        self.desk.out.clear();
        wire::write_status_line_with(&mut self.desk.out, status, reason);
        &mut self.desk.out
    }

    /// Says what the lines written after `begin` contained; they are complete.
    pub fn declare(&mut self, declared: Declared) {
        self.declared = declared;
        self.exit.set_rate(declared.rate);
        if let (Some(accepted), Some(bench)) = (self.asked.accepted, &self.desk.bench) {
            let types = &bench.config.types;
            self.treatment = coding::treatment(self.status, &self.desk.out, accepted, types);
        }
    }

    /// Whether the head has left, so that neither status nor headers can be changed.
    pub fn head_is_sent(&self) -> bool {
        matches!(self.stage, Stage::Open { .. })
    }

    /// Tells the error log about an exchange whose reply is good nevertheless, such as a body that was
    /// longer than its `Content-Length`.
    pub fn report(&self, exchange: &Exchange, text: &str) {
        let text = format!("{}: {text}", exchange.name());
        self.exit.bounds.log.error_from_pool(Level::Warning, &text);
    }

    /// Whether no head has been started.
    pub(crate) fn is_silent(&self) -> bool {
        matches!(self.stage, Stage::Silent)
    }

    /// True when `piece` or `whole` would only do a short step that neither waits, nor touches a disk, nor
    /// compresses much.
    pub fn is_quick(&self, bytes: usize) -> bool {
        self.is_coded_quickly(bytes) && self.exit.is_quick(bytes)
    }

    /// True when a span of `bytes` bytes would only be handed on; false when it would be read, see `file`.
    pub fn file_is_quick(&self, bytes: u64) -> bool {
        bytes > READ_BYTES_MAX
            && !matches!(
                self.stage,
                Stage::Open {
                    coding: Some(_),
                    ..
                }
            )
    }

    /// The head and the whole body at once. Adds `Content-Length` when none was declared. The body is
    /// copied only where the socket does not take it, unless it is compressed.
    pub fn whole(&mut self, body: &[u8]) -> Taken {
        self.replied = measure::now();
        let taken = match self.coding_for(Some(body.len() as u64)) {
            Some(coding) => self.whole_coded(coding, body),
            None => self.whole_plain(body),
        };
        self.delivered = measure::now();
        taken
    }

    /// One piece of a stream; the head goes out with the first that is not empty.
    ///
    /// May wait, and may write to a disk, when the client is slow: see `is_quick`.
    pub fn piece(&mut self, data: &[u8]) -> Taken {
        match self.stage {
            _ if data.is_empty() => self.state_of_client(),
            Stage::Open {
                coding: Some(_), ..
            } => self.press(Head::Sent, data),
            Stage::Open { plan, .. } => self.offer_body(plan.framing, Head::Sent, data),
            Stage::Silent | Stage::Begun => match self.coding_for(None) {
                Some(coding) => self.first_coded(coding, data),
                None => {
                    let plan = self.open(None, measure::now());
                    self.offer_body(plan.framing, Head::Unsent, data)
                }
            },
        }
    }

    /// A span of a file as (the next part of) the body, sent by a writer without a copy; a short one is read
    /// here, because three threads would have to take turns for it, and so is one behind a piece that was
    /// compressed: see `file_is_quick`.
    pub fn file(&mut self, file: File, offset: u64, bytes: u64) -> Taken {
        match self.stage {
            _ if bytes == 0 => return self.state_of_client(),
            Stage::Open {
                coding: Some(_), ..
            } => return self.press_file(&file, offset, bytes),
            Stage::Open { .. } => {}
            // The reply is the file's.
            Stage::Silent | Stage::Begun => self.treatment = Treatment::Untouched,
        }
        if bytes <= READ_BYTES_MAX {
            return self.short_file(&file, offset, bytes);
        }
        let mut chain = Chain::default();
        if !self.head_is_sent() {
            self.open(Some(bytes), measure::now());
            chain.push_copy(&self.desk.out);
        }
        let Stage::Open { plan, left, .. } = &mut self.stage else {
            return Taken::Gone;
        };
        let fitting = left.map_or(bytes, |left| left.min(bytes));
        if let Some(left) = left {
            *left -= fitting;
        }
        let part = Part::File {
            file: Arc::new(file),
            offset,
            bytes: fitting,
            edition: None,
        };
        match plan.framing {
            ReplyFraming::NoBody => {}
            ReplyFraming::Chunked => {
                let count = usize::try_from(fitting).expect("a 64-bit machine");
                chain.push_copy(wire::chunk_prefix(count).as_bytes());
                chain.push(part);
                chain.push(Part::Memory(Bytes::from_static(wire::CHUNK_SUFFIX)));
            }
            _ => chain.push(part),
        }
        self.exit.pass(chain);
        match self.exit.was_refused() {
            true => Taken::Gone,
            false if fitting < bytes => Taken::Overrun,
            false => Taken::All,
        }
    }

    /// A span that is read. When the file ends before it, the reply stays short of what was announced.
    fn short_file(&mut self, file: &File, offset: u64, bytes: u64) -> Taken {
        let mut data = Vec::with_capacity(usize::try_from(bytes).expect("at most 64 KiB"));
        // What cannot be read is missing at the end, and the reply is cut there.
        let _ = SpanReader { file, offset }
            .take(bytes)
            .read_to_end(&mut data);
        match self.stage {
            Stage::Open { plan, .. } => self.offer_body(plan.framing, Head::Sent, &data),
            Stage::Silent | Stage::Begun => {
                let plan = self.open(Some(bytes), measure::now());
                self.offer_body(plan.framing, Head::Unsent, &data)
            }
        }
    }

    /// Ends the reply as far as the handler is concerned.
    pub(crate) fn close(mut self) -> Close {
        if matches!(self.stage, Stage::Begun) {
            self.whole(b"");
        }
        let Stage::Open { plan, left, coding } = self.stage else {
            return self.closed(Ending::Lost, "no reply", false);
        };
        if let Some(cause) = self.failed {
            return self.broken(cause);
        }
        // A handler may stop once its client is gone.
        if left.is_some_and(|left| left > 0) && !self.exit.is_closed() {
            return self.broken("body shorter than its Content-Length");
        }
        if coding.is_some() {
            self.end_coded(plan.framing);
        } else if plan.framing == ReplyFraming::Chunked {
            self.exit.offer(&[wire::LAST_CHUNK]);
        }
        self.closed(Ending::Complete, "", plan.keep_alive)
    }

    /// Ends a reply that cannot be completed: it must not look complete to the client.
    pub(crate) fn broken(self, cause: &'static str) -> Close {
        self.closed(Ending::Cut, cause, false)
    }

    fn closed(mut self, ending: Ending, cause: &'static str, keep_alive: bool) -> Close {
        let failed = match self.exit.unstored {
            true => Some(UNSTORED),
            false => self.failed,
        };
        let (ending, cause) = failed.map_or((ending, cause), |cause| (Ending::Cut, cause));
        if let Some(bench) = &mut self.desk.bench {
            bench.press.rest();
        }
        if let Stage::Open { plan, .. } = self.stage
            && (plan.framing, ending) == (ReplyFraming::UntilClose, Ending::Cut)
        {
            // An ordinary end would be the sign of completeness here: the close must be a reset.
            let _ = SockRef::from(&**self.exit.door).set_linger(Some(Duration::ZERO));
        }
        // For a reply given whole the handler was done when it gave it; a stream is done now.
        if self.replied == Stamp::ZERO {
            self.replied = measure::now();
            self.delivered = self.replied;
        }
        let gone = self.exit.was_refused() && ending == Ending::Complete;
        Close {
            status: self.status,
            head_bytes: self.head_bytes,
            sent_bytes: self.exit.sent_bytes,
            keep_alive: keep_alive && !gone && ending == Ending::Complete,
            ending: if gone { Ending::PeerGone } else { ending },
            cause,
            replied: self.replied,
            delivered: self.delivered,
            flowing: self.exit.flowing,
        }
    }

    fn whole_plain(&mut self, body: &[u8]) -> Taken {
        let plan = self.open(Some(body.len() as u64), self.replied);
        self.offer_body(plan.framing, Head::Unsent, body)
    }

    /// Decides the framing and ends the head of a body as the handler gives it. `known`: its length, when
    /// the handler gives the whole.
    fn open(&mut self, known: Option<u64>, now: Stamp) -> ReplyPlan {
        if self.treatment != Treatment::Untouched {
            self.rewrite_head();
        }
        let length = match self.declared.content_length {
            Some(_) => Length::Told,
            None => Length::Untold,
        };
        // A HEAD reply whose handler gave a body tells that body's length; one that gave none and declared
        // none tells nothing.
        let may_tell = self.asked.is_head && !matches!(self.status, 204 | 304);
        if let Some(known) =
            known.filter(|bytes| may_tell && length == Length::Untold && *bytes > 0)
        {
            wire::write_content_length(&mut self.desk.out, known);
        }
        let plan = self.plan(self.declared.content_length.or(known));
        let left = match plan.framing {
            ReplyFraming::Length(bytes) => Some(bytes),
            _ => None,
        };
        let coding = None;
        self.stage = Stage::Open { plan, left, coding };
        self.end_head(&plan, length, now);
        plan
    }

    fn plan(&self, content_length: Option<u64>) -> ReplyPlan {
        wire::plan_reply(&ReplyFacts {
            version: self.asked.version,
            method_is_head: self.asked.is_head,
            status: self.status,
            content_length,
            keep_alive: self.keep_alive(),
        })
    }

    fn keep_alive(&self) -> bool {
        let draining = self.exit.bounds.draining.load(Ordering::Relaxed);
        self.asked.keep_alive && !self.declared.close && !draining
    }

    fn end_head(&mut self, plan: &ReplyPlan, length: Length, now: Stamp) {
        let end = EndOfHead {
            plan,
            version: self.asked.version,
            has_date: self.declared.date,
            has_server: self.declared.server,
            write_length: length == Length::Untold
                && matches!(plan.framing, ReplyFraming::Length(_)),
        };
        let phases = Phases {
            replied: now,
            ..self.asked.phases
        };
        self.desk.end_head(&end, &phases);
        self.head_bytes = self.desk.out.len() as u64;
        let body_bytes = match plan.framing {
            ReplyFraming::NoBody => Some(0),
            ReplyFraming::Length(bytes) => Some(bytes),
            ReplyFraming::Chunked | ReplyFraming::UntilClose => None,
        };
        self.exit.set_head(self.head_bytes, body_bytes);
    }

    /// Offers a piece of the body as far as the declared length goes, after the head where that has not
    /// been sent.
    fn offer_body(&mut self, framing: ReplyFraming, head: Head, data: &[u8]) -> Taken {
        let (data, taken) = self.fit(data);
        match self.offer_framed(framing, head, data) {
            Taken::All => taken,
            gone => gone,
        }
    }

    fn offer_framed(&mut self, framing: ReplyFraming, head: Head, data: &[u8]) -> Taken {
        let head = match head {
            Head::Unsent => self.desk.out.as_slice(),
            Head::Sent => &[],
        };
        match framing {
            ReplyFraming::NoBody => self.exit.offer(&[head]),
            ReplyFraming::Chunked if !data.is_empty() => {
                let prefix = wire::chunk_prefix(data.len());
                self.exit
                    .offer(&[head, prefix.as_bytes(), data, wire::CHUNK_SUFFIX]);
            }
            _ => self.exit.offer(&[head, data]),
        }
        if self.exit.was_refused() {
            Taken::Gone
        } else {
            Taken::All
        }
    }

    /// Cuts `data` to what the declared length leaves, and counts it.
    fn fit<'d>(&mut self, data: &'d [u8]) -> (&'d [u8], Taken) {
        let Stage::Open {
            left: Some(left), ..
        } = &mut self.stage
        else {
            return (data, Taken::All);
        };
        let fitting = usize::try_from(*left).unwrap_or(usize::MAX).min(data.len());
        *left -= fitting as u64;
        let cut = fitting < data.len();
        (
            &data[..fitting],
            if cut { Taken::Overrun } else { Taken::All },
        )
    }

    fn state_of_client(&self) -> Taken {
        if self.head_is_sent() && self.exit.is_closed() {
            Taken::Gone
        } else {
            Taken::All
        }
    }
}

/// Whether the head goes out with a piece.
#[derive(Clone, Copy)]
enum Head {
    Unsent,
    Sent,
}

/// Whether the handler's lines tell the length of the body as it leaves.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Length {
    Told,
    Untold,
}

/// Reads a file from an offset and leaves its cursor alone.
struct SpanReader<'f> {
    file: &'f File,
    offset: u64,
}

impl Read for SpanReader<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let bytes = self.file.read_at(buffer, self.offset)?;
        self.offset += bytes as u64;
        Ok(bytes)
    }
}
