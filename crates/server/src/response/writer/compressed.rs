//! The part of the response writer that compresses bodies, in front of their framing.
//!
//! Nothing is held back: every piece is flushed through the encoder, and what a slow client does not take waits
//! compressed, as any other response. Lengths that the application declares are counted before compression, and
//! the time counts as the application's: a response is handed over when it is compressed.

use std::fs::File;
use std::os::unix::fs::FileExt;

use super::{Data, Piece, Taken, WriterInner, WriterState};
use crate::response::compressor::EncodeStep;
use crate::response::content_encoding::Treatment;
use config::typed::Coding;

/// Bodies given whole up to this size are compressed before their head leaves, and have a length; of
/// larger ones this much decides whether compression is worth it. Bounds what waits compressed in memory.
const WHOLE_BYTES_MAX: usize = 1 << 20;
/// Largest input of one step, so that what comes of it is bounded too.
const SLICE_BYTES: usize = 64 << 10;

/// Why a body is cut that its encoder, or its file, has failed.
pub(super) const UNCODED: &str = "the reply could not be compressed";

impl WriterInner {
    /// The coding of a response that is about to be opened. `known`: the body's length, when the handler gives the
    /// whole.
    pub(super) fn coding(&mut self, known: Option<u64>) -> Option<Coding> {
        // A handler that gives nothing for HEAD says nothing of what GET would get.
        let told = known.filter(|bytes| *bytes > 0 || !self.head.is_head);
        let length = self.head.declared.content_length.or(told);
        let bytes_min = (self.compressor.config.bytes_min as u64).max(1);
        match self.response.treatment {
            Treatment::Revalidated => {}
            _ if length.is_some_and(|bytes| bytes < bytes_min) => {
                self.response.treatment = Treatment::Untouched;
            }
            Treatment::Coded(coding) => return Some(coding),
            Treatment::Untouched | Treatment::Varies => {}
        }
        None
    }

    /// The first piece of a body. One that is there whole, as most frameworks give a page, gets a length, and goes
    /// plain if that is smaller.
    pub(super) fn open_coded<P: Piece>(
        &mut self,
        coding: Coding,
        piece: &P,
        known: Option<u64>,
    ) -> Taken {
        if self.head.is_head {
            // The lines that the body of a GET would have; it has no length.
            self.open(None);
            return self.offer(Data::NOTHING, EncodeStep::More);
        }
        let body = piece.bytes();
        let length = self.head.declared.content_length.or(known);
        let fitting = length.unwrap_or(u64::MAX).min(body.len() as u64);
        let first_bytes = usize::try_from(fitting).expect("within a buffer");
        let first = &body[..first_bytes.min(WHOLE_BYTES_MAX)];
        // One that is short of its declared length may be cut, and must not look complete until then.
        let is_all = length == Some(fitting);
        let step = match is_all && first.len() == first_bytes {
            true => EncodeStep::End,
            false => EncodeStep::Flush,
        };
        let begun = self.compressor.begin(coding, length);
        let out = match begun.and_then(|()| self.compressor.run(first, step)) {
            Ok(out) if out.len() < first.len() || !(is_all || known.is_some()) => out,
            _ => {
                self.response.treatment = Treatment::Varies;
                self.open(known);
                return self.go_on(piece, EncodeStep::Flush);
            }
        };
        self.open((step == EncodeStep::End).then_some(out.len() as u64));
        if let WriterState::Open { left, .. } = &mut self.response.state {
            *left = length.map(|bytes| bytes - first.len() as u64);
        }
        let taken = self.offer_coded(out, step);
        if step != EncodeStep::End {
            self.response.treatment = Treatment::Coded(coding);
        }
        match &body[first.len()..] {
            rest if taken == Taken::All && !rest.is_empty() => self.go_on(&rest, EncodeStep::Flush),
            _ => taken,
        }
    }

    /// Compresses data and offers it. `EncodeStep::End` ends the encoder's frame, and the framing of the response with it.
    pub(super) fn compress(&mut self, mut data: &[u8], last: EncodeStep) -> Taken {
        loop {
            // An encoder would be busy for no client.
            if self.sink.is_closed || self.response.is_broken {
                return Taken::Gone;
            }
            let (slice, rest) = data.split_at(data.len().min(SLICE_BYTES));
            let step = if rest.is_empty() {
                last
            } else {
                EncodeStep::More
            };
            let Ok(out) = self.compressor.run(slice, step) else {
                self.response.is_broken = true;
                return Taken::Gone;
            };
            let taken = self.offer_coded(out, step);
            if rest.is_empty() {
                return taken;
            }
            data = rest;
        }
    }

    /// Reads a span of a file into a body that is compressed already.
    pub(super) fn compress_file(&mut self, file: &File, offset: u64, bytes: u64) -> Taken {
        let mut buffer = vec![0; SLICE_BYTES];
        for at in (0..bytes).step_by(SLICE_BYTES) {
            let count = usize::try_from(bytes - at).unwrap_or(usize::MAX);
            let slice = &mut buffer[..count.min(SLICE_BYTES)];
            if file.read_exact_at(slice, offset + at).is_err() {
                self.response.is_broken = true;
                return Taken::Gone;
            }
            match self.go_on(&&*slice, EncodeStep::Flush) {
                Taken::All => {}
                other => return other,
            }
        }
        Taken::All
    }

    /// Offers what the encoder has made. The encoder gets the buffer back, unless it has to wait for the client.
    fn offer_coded(&mut self, mut out: Vec<u8>, step: EncodeStep) -> Taken {
        let taken = self.offer(Data::Buffer(&mut out), step);
        self.compressor.give_back(out);
        taken
    }
}
