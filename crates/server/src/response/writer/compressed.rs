//! The part of the response writer that compresses bodies on their way.
//!
//! Takes what the application gives, gives compressed bytes to the sink, framed. Nothing is held back: every
//! piece is flushed through the encoder, and what a slow client does not take waits compressed, as any
//! other response. Lengths that the application declares are counted before compression, and the time counts as
//! the application's: a response is handed over when it is compressed.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;

use measure::Stamp;
use wire::{ReplyFraming, ReplyPlan};

use super::{Frame, Head, Inner, Length, Piece, State, Taken};
use crate::config::meant::Coding;
use crate::response::compressor::{Compressor, Step};
use crate::response::content_encoding::{self, Treatment};

/// Bodies given whole up to this size are compressed before their head leaves, and have a length; of
/// larger ones this much decides whether compression is worth it. Bounds what waits compressed in memory.
const WHOLE_BYTES_MAX: usize = 1 << 20;
/// Largest input of one step, so that what comes of it is bounded too.
const SLICE_BYTES: usize = 64 << 10;

const UNCODED: &str = "the reply could not be compressed";

impl Inner {
    /// Whether compressing `bytes` bytes, if it comes to that, is a short step.
    pub(super) fn is_coded_quickly(&self, bytes: usize) -> bool {
        let coding = match (self.state, self.treatment) {
            (State::Open { coding, .. }, _) => coding,
            (State::Silent | State::Begun, Treatment::Coded(coding)) => Some(coding),
            (State::Silent | State::Begun, _) => None,
        };
        match (coding, &self.compression) {
            (Some(coding), Some(tools)) => tools.compressor.is_quick(coding, bytes),
            _ => true,
        }
    }

    /// The coding of a reply that is about to be opened. `known`: the body's length, when the handler
    /// gives the whole.
    pub(super) fn coding_for(&mut self, known: Option<u64>) -> Option<Coding> {
        let tools = self.compression.as_ref()?;
        // A handler that gives nothing for HEAD says nothing of what GET would get.
        let told = known.filter(|bytes| *bytes > 0 || !self.request.is_head);
        let bytes_min = (tools.config.bytes_min as u64).max(1);
        let is_small = match self.declared.content_length.or(told) {
            Some(bytes) => bytes < bytes_min,
            None => false,
        };
        match self.treatment {
            Treatment::Coded(_) | Treatment::Varies if is_small => {
                self.treatment = Treatment::Untouched;
                None
            }
            Treatment::Coded(coding) => Some(coding),
            Treatment::Untouched | Treatment::Varies | Treatment::Revalidated => None,
        }
    }

    pub(super) fn rewrite_head(&mut self) {
        if let Some(tools) = &mut self.compression {
            content_encoding::rewrite(&mut self.lines, &mut tools.scratch, self.treatment);
        }
    }

    /// The whole body at once; plain when compression does not make it smaller.
    pub(super) fn whole_coded(&mut self, coding: Coding, piece: &dyn Piece) -> Taken {
        let body = piece.bytes();
        if self.request.is_head {
            return self.head_coded();
        }
        let declared = self.declared.content_length.unwrap_or(body.len() as u64);
        let fitting = usize::try_from(declared)
            .unwrap_or(usize::MAX)
            .min(body.len());
        // One that is short of its declared length will be cut, and must not look complete until then.
        let is_complete = fitting as u64 == declared && fitting <= WHOLE_BYTES_MAX;
        let (first, step) = match is_complete {
            true => (&body[..fitting], Step::End),
            false => (&body[..fitting.min(WHOLE_BYTES_MAX)], Step::Flush),
        };
        let pressed = self
            .begin_frame(coding, Some(declared))
            .and_then(|()| self.run(first, step));
        let out = match pressed {
            Ok(out) if out.len() < first.len() => out,
            _ => {
                self.treatment = Treatment::Varies;
                self.replied = measure::now();
                return self.whole_plain(piece);
            }
        };
        // The thread was busy with the reply until now.
        self.replied = measure::now();
        let left = declared - first.len() as u64;
        let wire_bytes = (step == Step::End).then_some(out.len() as u64);
        let plan = self.open_coded(wire_bytes, Some(left), self.replied);
        if step != Step::End {
            self.code_on(coding);
        }
        let taken = self.offer_framed(plan.framing, Head::Unsent, &out.as_slice(), out.len());
        self.give_back(out);
        match (taken, &body[first.len()..]) {
            (Taken::Gone, _) => Taken::Gone,
            (taken, []) => taken,
            (_, rest) => {
                let taken = self.compress(Head::Sent, rest);
                self.replied = measure::now();
                taken
            }
        }
    }

    /// The first piece of a stream.
    pub(super) fn first_coded(&mut self, coding: Coding, piece: &dyn Piece) -> Taken {
        if self.request.is_head {
            return self.head_coded();
        }
        let data = piece.bytes();
        let left = self.declared.content_length;
        // Most frameworks give a page like this. It gets a length, and goes plain if that is smaller.
        if left == Some(data.len() as u64) {
            let taken = self.whole_coded(coding, piece);
            // The handler may go on all the same: a stream is replied at its end.
            self.replied = Stamp::ZERO;
            return taken;
        }
        if self.begin_frame(coding, left).is_err() {
            self.treatment = Treatment::Varies;
            let plan = self.open(None, measure::now());
            return self.offer_body(plan.framing, Head::Unsent, piece);
        }
        self.open_coded(None, left, measure::now());
        self.code_on(coding);
        self.compress(Head::Unsent, data)
    }

    /// Compresses a piece and offers it, flushed.
    pub(super) fn compress(&mut self, head: Head, data: &[u8]) -> Taken {
        let (bytes, taken) = self.fit(data.len());
        let data = &data[..bytes];
        let mut head = head;
        let mut slices = data.chunks(SLICE_BYTES).peekable();
        while let Some(slice) = slices.next() {
            let step = match slices.peek() {
                Some(_) => Step::More,
                None => Step::Flush,
            };
            if self.compress_slice(head, slice, step) == Taken::Gone {
                return Taken::Gone;
            }
            head = Head::Sent;
        }
        taken
    }

    /// Reads a span of a file into a body that is compressed already.
    pub(super) fn compress_file(&mut self, file: &File, offset: u64, bytes: u64) -> Taken {
        let mut buffer = vec![0; SLICE_BYTES];
        let mut at = 0;
        while at < bytes {
            let count = usize::try_from(bytes - at).unwrap_or(usize::MAX);
            let slice = &mut buffer[..count.min(SLICE_BYTES)];
            if file.read_exact_at(slice, offset + at).is_err() {
                self.failed = Some(UNCODED);
                return Taken::Gone;
            }
            at += slice.len() as u64;
            match self.compress(Head::Sent, slice) {
                Taken::All => {}
                other => return other,
            }
        }
        Taken::All
    }

    /// Ends the encoder's frame, and the framing of the reply with it; not for a body that is cut.
    pub(super) fn end_coded(&mut self, framing: ReplyFraming) {
        if self.sink.was_refused() || self.failed.is_some() {
            return;
        }
        let Ok(out) = self.run(&[], Step::End) else {
            self.failed = Some(UNCODED);
            return;
        };
        let prefix = wire::chunk_prefix(out.len().max(1));
        // A chunk without bytes would be the last one (RFC 9112 section 7.1).
        let (prefix, after) = match self.is_chunked(framing) {
            true if out.is_empty() => (&[][..], wire::LAST_CHUNK),
            true => (prefix.as_bytes(), wire::CHUNK_SUFFIX_AND_LAST),
            false => (&[][..], &[][..]),
        };
        self.offer(&Frame {
            before: [b"", prefix],
            piece: &out.as_slice(),
            range: 0..out.len(),
            after,
        });
        self.give_back(out);
    }

    /// The head alone, with the lines that the body of a GET would have; it has no length.
    fn head_coded(&mut self) -> Taken {
        let plan = self.open_coded(None, None, measure::now());
        self.offer_framed(plan.framing, Head::Unsent, &[].as_slice(), 0)
    }

    /// Decides the framing and ends the head of a compressed body of `wire_bytes` bytes, if that is known.
    fn open_coded(&mut self, wire_bytes: Option<u64>, left: Option<u64>, now: Stamp) -> ReplyPlan {
        self.rewrite_head();
        let plan = self.plan(wire_bytes);
        let coding = None;
        self.state = State::Open { plan, left, coding };
        self.end_head(&plan, Length::Untold, now);
        plan
    }

    /// What the handler gives from now on belongs to the encoder's frame.
    fn code_on(&mut self, by: Coding) {
        if let State::Open { coding, .. } = &mut self.state {
            *coding = Some(by);
        }
    }

    /// Begins a frame of `bytes` bytes, if that is known.
    fn begin_frame(&mut self, coding: Coding, bytes: Option<u64>) -> io::Result<()> {
        self.encoder()?.begin(coding, bytes)
    }

    fn compress_slice(&mut self, head: Head, slice: &[u8], step: Step) -> Taken {
        let State::Open { plan, .. } = self.state else {
            return Taken::Gone;
        };
        // An encoder would be busy for nobody.
        if self.sink.was_refused() || self.failed.is_some() {
            return Taken::Gone;
        }
        let Ok(out) = self.run(slice, step) else {
            self.failed = Some(UNCODED);
            return Taken::Gone;
        };
        let taken = self.offer_framed(plan.framing, head, &out.as_slice(), out.len());
        self.give_back(out);
        taken
    }

    /// One step of the encoder; give the buffer back.
    fn run(&mut self, data: &[u8], step: Step) -> io::Result<Vec<u8>> {
        let compressor = self.encoder()?;
        compressor.run(data, step)?;
        Ok(std::mem::take(&mut compressor.out))
    }

    fn give_back(&mut self, mut out: Vec<u8>) {
        if let Ok(compressor) = self.encoder() {
            out.clear();
            compressor.out = out;
        }
    }

    fn encoder(&mut self) -> io::Result<&mut Compressor> {
        let tools = self.compression.as_mut();
        tools
            .map(|tools| &mut tools.compressor)
            .ok_or_else(|| io::Error::other("nothing is compressed here"))
    }
}
