//! The part of a relay that concerns HTTP/2: the parts of a response, as its stream gives them.
//!
//! A body ends with its stream alone, whatever its length: trailers may follow.

use std::task::{Context, Poll, ready};

use bytes::Bytes;
use http::FieldLines;
use http::upstream::UpstreamFault as Broken;

use super::fault::UpstreamFault;
use super::http2_stream::ResponsePart;
use super::relay::{Receiving, Relay, UpstreamLink, write_piece};

impl Relay<'_, '_> {
    /// Takes one part of the response.
    pub(super) fn poll_stream(
        &mut self,
        context: &mut Context<'_>,
    ) -> Poll<Result<(), UpstreamFault>> {
        let UpstreamLink::Http2(stream) = &mut self.link else {
            return Poll::Pending;
        };
        let part = match (ready!(stream.poll_part(context)), &self.receiving) {
            (Ok(part), _) => part,
            (Err(UpstreamFault::Closed), Receiving::Body { .. }) => {
                return Poll::Ready(Err(UpstreamFault::Malformed(Broken::BodyCut)));
            }
            (Err(fault), _) => return Poll::Ready(Err(fault)),
        };
        self.note_received();
        Poll::Ready(match part {
            ResponsePart::Interim(head) => self.receive_head(&head).map(drop),
            ResponsePart::Head(head) => self.receive_head(&head).map(|_| self.open_live()),
            ResponsePart::Data(data) => self.receive_data(&data),
            ResponsePart::End(trailers) => self.receive_trailers(&trailers),
        })
    }

    fn receive_data(&mut self, data: &Bytes) -> Result<(), UpstreamFault> {
        if let Receiving::Body { body, .. } = &mut self.receiving {
            let decoded = body.decode(data).map_err(UpstreamFault::Malformed)?;
            if decoded.data.len() != data.len() {
                // RFC 9113 section 8.1.1: longer than its head says.
                return Err(UpstreamFault::Http2Violation);
            }
            write_piece(&mut self.exchange.assignment.writer, data)?;
        }
        if let UpstreamLink::Http2(stream) = &mut self.link {
            // `has_room` is asked before the next part: what has no room stays within the window of the stream.
            stream.release(data.len());
        }
        Ok(())
    }

    fn receive_trailers(&mut self, trailers: &FieldLines) -> Result<(), UpstreamFault> {
        if let Receiving::Body { body, .. } = &mut self.receiving {
            body.close().map_err(UpstreamFault::Malformed)?;
        }
        self.exchange.assignment.writer.trailers(trailers);
        self.receiving = Receiving::Whole { keeps: false };
        Ok(())
    }
}
