//! Streams that end early: resets by either end, and heads that never become requests because the `h2` crate refuses
//! them or the connection ends before.
//!
//! Takes frames as they pass. A reset is charged to its connection, and its stream hears of it; a head that the crate
//! has refused is one record.

use std::collections::VecDeque;

use h2::Reason;
use http::{HeadIndex, HeadView};
use telemetry::{Ending, ResetBy};

use super::connection::Http2;
use super::pipe::FrameNote;
use super::scan;
use crate::protocol::Woken;

/// Reasons for which the server ends a stream of its own accord.
const OWN_REASONS: [Reason; 3] = [Reason::NO_ERROR, Reason::CANCEL, Reason::INTERNAL_ERROR];
/// Heads for which an idle connection keeps memory.
const KEPT_HEADS: usize = 16;

/// Streams whose heads have come, and that the crate has not given yet, in the order of their numbers.
#[derive(Default)]
pub(super) struct UnbegunStreams {
    streams: VecDeque<UnbegunStream>,
    highest: u32,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct UnbegunStream {
    number: u32,
    /// The client had acknowledged the limit of streams before it sent the head.
    knew_limit: bool,
}

/// How a head ends that becomes no request.
#[derive(Clone, Copy)]
struct HeadEnd {
    status: u16,
    ending: Ending,
    cause: &'static str,
    reset: (ResetBy, u32),
}

impl UnbegunStreams {
    /// A header block has come: the head of a stream if its number is a new one, else trailers.
    pub(super) fn note_head(&mut self, number: u32, knew_limit: bool) {
        // The crate ends the connection for a number that no client may use.
        if number > self.highest && number % 2 == 1 {
            self.highest = number;
            self.streams.push_back(UnbegunStream { number, knew_limit });
        }
    }

    /// The stream is unbegun no longer; gives it if it was.
    pub(super) fn take(&mut self, number: u32) -> Option<UnbegunStream> {
        let at = self
            .streams
            .binary_search_by_key(&number, |stream| stream.number);
        let taken = self.streams.remove(at.ok()?);
        if self.streams.is_empty() {
            self.streams.shrink_to(KEPT_HEADS);
        }
        taken
    }

    /// The client hears that streams above are not served: it may send their requests again elsewhere.
    fn forget_above(&mut self, last: u32) {
        self.streams.retain(|stream| stream.number <= last);
    }
}

impl Http2 {
    /// The crate has written a frame.
    pub(super) fn written(&mut self, note: &FrameNote) {
        match note.kind {
            scan::RST_STREAM => self.written_reset(note),
            scan::HEADERS => {
                if let Some(stream) = self.unbegun.take(note.stream) {
                    self.mux.odd_work.borrow_mut().reset_early();
                    self.end_head(stream, HeadEnd::TOO_LARGE);
                }
            }
            scan::GOAWAY if self.failed.is_none() => {
                let last = note.number.unwrap_or(u32::MAX);
                self.unbegun.forget_above(last);
            }
            _ => {}
        }
    }

    fn written_reset(&mut self, note: &FrameNote) {
        let Some(stream) = self.unbegun.take(note.stream) else {
            return self.reset(note, ResetBy::Server);
        };
        let code = note.number.unwrap_or(0);
        let is_refused = Reason::from(code) == Reason::REFUSED_STREAM;
        // A client that does not know the limit yet obeys it as it can (RFC 9113 section 5.1.2).
        if !is_refused || stream.knew_limit {
            self.reset(note, ResetBy::Server);
        }
        let cause = match is_refused {
            true => "more streams at once than http2_streams_max",
            false => "the head is malformed",
        };
        self.end_head(stream, HeadEnd::reset(cause, code));
    }

    /// A stream was reset. One that ends early is charged to its connection, whoever has reset it: a client can have
    /// the server do it (CVE-2025-8671).
    pub(super) fn reset(&self, note: &FrameNote, by: ResetBy) {
        let code = note.number.unwrap_or(0);
        let slot = self.mux.streams.borrow().get(note.stream).cloned();
        let is_early = match by {
            ResetBy::Client => slot.is_some() || note.stream > self.last_stream,
            _ => !OWN_REASONS.contains(&Reason::from(code)),
        };
        if is_early {
            self.mux.odd_work.borrow_mut().reset_early();
            self.mux.connection.driver.stats().http2_resets.add();
        }
        if let Some(slot) = slot {
            slot.note_reset(by, code);
            slot.wake();
        }
    }

    /// The connection has ended: heads that are left never become requests.
    pub(super) fn end_unbegun(&mut self, why: Woken) {
        let end = match self.failed {
            Some(reason) => HeadEnd::reset("its connection ended by an error", reason.into()),
            None => HeadEnd {
                ending: why.stop().ending,
                ..HeadEnd::UNANSWERED
            },
        };
        for stream in std::mem::take(&mut self.unbegun.streams) {
            self.end_head(stream, end);
        }
    }

    /// Writes the record of a head of which nothing is known but its stream.
    fn end_head(&self, stream: UnbegunStream, end: HeadEnd) {
        let connection = &self.mux.connection;
        let now = telemetry::now();
        let index = &HeadIndex::of_beginning(0);
        let mut request = connection.request(HeadView { bytes: b"", index }, now);
        let record = &mut request.record;
        record.stream.number = stream.number;
        (record.stream.reset_by, record.stream.reset_code) = end.reset;
        record.status = end.status;
        record.begin_inline(now);
        record.end_at(now);
        record.end_as(end.ending, end.cause);
        connection.driver.stats().errors.add();
        connection.end(&request.record, request.head);
    }
}

impl HeadEnd {
    const UNANSWERED: Self = Self {
        status: 0,
        ending: Ending::PeerGone,
        cause: "",
        reset: (ResetBy::None, 0),
    };
    const TOO_LARGE: Self = Self {
        status: 431,
        ending: Ending::Refused,
        cause: "the header list is too large",
        ..Self::UNANSWERED
    };

    const fn reset(cause: &'static str, code: u32) -> Self {
        Self {
            ending: Ending::Refused,
            cause,
            reset: (ResetBy::Server, code),
            ..Self::UNANSWERED
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn numbers(streams: &UnbegunStreams) -> Vec<u32> {
        streams.streams.iter().map(|stream| stream.number).collect()
    }

    #[test]
    fn heads_are_known_until_they_begin_or_are_refused() {
        let mut streams = UnbegunStreams::default();
        for (number, knew_limit) in [(1, false), (3, true), (1, true), (4, true), (9, true)] {
            streams.note_head(number, knew_limit);
        }
        assert_eq!(numbers(&streams), [1, 3, 9]);
        let first = streams.take(1).map(|stream| stream.knew_limit);
        assert_eq!(first, Some(false));
        assert_eq!(streams.take(1), None);
        streams.forget_above(8);
        assert_eq!(numbers(&streams), [3]);
        assert!(streams.take(3).is_some() && streams.take(9).is_none());
    }
}
