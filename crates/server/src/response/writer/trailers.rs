//! The part of the response writer that ends a body by trailer fields (RFC 9110 section 6.5).
//!
//! Over HTTP/1 they leave in the last chunk (RFC 9112 section 7.1.2); other protocols have a frame for them, and their
//! driver finds them in the stream. A response without a body has none.

use http::ReplyFraming;

use super::{Data, Encoding, Frame, WriterInner, WriterState};

/// Why a response is cut whose trailer fields did not come.
pub(super) const MISSING: &str = "the trailers that the response declares are missing";

impl WriterInner {
    /// Whether trailer fields are to follow the body at hand.
    pub(super) fn has_trailers(&self) -> bool {
        let WriterState::Open { plan, .. } = self.response.state else {
            return false;
        };
        self.head.declared.has_trailers && plan.framing != ReplyFraming::NoBody
    }

    /// Ends the body by its trailer fields; false where the application has given none.
    pub(super) fn end_by_trailers(&mut self) -> bool {
        let Some(fields) = self.response.trailers.take() else {
            return false;
        };
        if self.sink.to.encoding == Encoding::Frames {
            if let Some(stream) = &self.sink.to.stream {
                // Before the response is finished: the driver that ends the stream looks for them.
                stream.pending().start().trailers = Some(fields);
            }
            return true;
        }
        // They stand before the empty line of the last chunk.
        let (size, end) = http::LAST_CHUNK.split_at(3);
        let last = [size, fields.as_bytes()].concat();
        let frame = Frame {
            before: [&self.head.text, &last],
            data: Data::NOTHING,
            after: end,
        };
        self.sink.offer(frame, &self.memory);
        self.head.text.clear();
        true
    }
}
