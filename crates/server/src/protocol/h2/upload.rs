//! A request's body that its application takes while it arrives, on one stream of many: whatever the stream waits for,
//! what has come is given to the `BodyStream` as long as that takes more, and the client gets as much window again.
//!
//! The pace that the client has to keep holds only while the application does not make it wait. A body that breaks a rule
//! is refused as long as no response has begun, and cuts one that has.

use std::sync::Arc;
use std::task::{Context, Poll};

use h2::RecvStream;
use http::{BodyDecoder, BodyFraming, Cause};
use queueing::Pace;
use telemetry::Stamp;

use super::stream::StreamTask;
use crate::exchange::stream::StreamShared;
use crate::exchange::{BodyEnd, BodyStream, Exchange};
use crate::protocol::streamed::{is_streamed, streamed_pace, too_slow};
use crate::refusal::Refusal;

/// A body on its way from the `h2` crate to the application.
pub(super) struct Upload {
    received: RecvStream,
    body: Arc<BodyStream>,
    stream: Arc<StreamShared>,
    /// Of the length that the head declares.
    left: Option<u64>,
    bytes: u64,
    bytes_max: u64,
    pace: Pace,
    /// When bytes of it came last.
    moved: Stamp,
    /// The client is to be told that it may send its body, as soon as that is wanted (RFC 9110 section 10.1.1).
    is_invitation_due: bool,
    /// The response is the application's: it cannot be another one any more.
    is_answered: bool,
    refused: Option<Refusal>,
}

/// How an upload has ended.
enum UploadEnd {
    Body(BodyEnd),
    Refused(Refusal),
}

impl StreamTask {
    /// Gives `exchange` what is to give its body, if it has one that is still arriving.
    ///
    /// # Errors
    /// Its declared length is refused.
    pub(super) fn begin_upload(
        &mut self,
        exchange: &mut Exchange,
        shared: &Arc<StreamShared>,
    ) -> Result<(), Refusal> {
        if self.body.is_none() || !is_streamed(&self.driver, exchange) {
            return Ok(());
        }
        let index = exchange.head().index;
        let limits = self.driver.body_limits(exchange.record.route);
        BodyDecoder::new(index.body, &limits)?;
        let left = match index.body {
            BodyFraming::Length(bytes) => Some(bytes),
            _ => None,
        };
        self.slot.takes_messages.set(exchange.is_grpc());
        let body = BodyStream::new(shared);
        let is_invitation_due = index.expect_continue;
        if is_invitation_due {
            body.await_invitation();
        }
        let Some(received) = self.body.take() else {
            return Ok(());
        };
        let now = telemetry::now();
        let pace = streamed_pace(&self.driver, exchange, now);
        exchange.streamed = Some(Arc::clone(&body));
        *self.upload.borrow_mut() = Some(Upload {
            received,
            body,
            stream: Arc::clone(shared),
            left,
            bytes: 0,
            bytes_max: limits.body_bytes_max,
            pace,
            moved: now,
            is_invitation_due,
            is_answered: false,
            refused: None,
        });
        Ok(())
    }

    /// Nothing more comes of such a body.
    pub(super) fn break_upload(&self) {
        if let Some(upload) = self.upload.borrow_mut().take() {
            upload.body.end(BodyEnd::Broken);
        }
    }

    /// Takes what has come of such a body.
    pub(super) fn receive_streamed(&self, context: &mut Context<'_>) {
        let mut place = self.upload.borrow_mut();
        let Some(upload) = place.as_mut().filter(|upload| upload.refused.is_none()) else {
            return;
        };
        match upload.receive(self, context) {
            None => {}
            Some(UploadEnd::Refused(refusal)) if !upload.is_answered => {
                upload.refused = Some(refusal);
            }
            Some(UploadEnd::Refused(refusal)) => {
                let upload = place.take();
                self.cut_by(upload, refusal);
            }
            Some(UploadEnd::Body(end)) => {
                upload.body.end(end);
                *place = None;
            }
        }
    }

    /// Ends a response that has begun: its request has turned out to be none.
    fn cut_by(&self, upload: Option<Upload>, refusal: Refusal) {
        let Some(Upload { body, stream, .. }) = upload else {
            return;
        };
        // One that its application has finished does not depend on what it has not read.
        let is_finished = stream.pending().is_finished();
        if !is_finished {
            stream.abandon(refusal.cause, &self.driver.shared.replies_memory);
        }
        body.end(BodyEnd::Broken);
    }

    /// Until when the client has to send more of such a body.
    pub(super) fn upload_deadline(&self) -> Stamp {
        let upload = self.upload.borrow();
        let upload = upload.as_ref().filter(|upload| upload.refused.is_none());
        upload.map_or(Stamp::NEVER, |upload| upload.pace.deadline())
    }

    /// Why the request is to be refused although its application runs, if that is so.
    pub(super) fn upload_refusal(&self) -> Option<Refusal> {
        self.upload.borrow().as_ref()?.refused
    }

    /// Whether the client is to be told now that it may send its body. Once.
    pub(super) fn takes_invitation(&self) -> bool {
        let mut upload = self.upload.borrow_mut();
        let Some(upload) = upload.as_mut() else {
            return false;
        };
        let is_due = upload.is_invitation_due && !upload.body.is_uninvited();
        upload.is_invitation_due &= !is_due;
        // A client that has begun did not wait.
        is_due && upload.bytes == 0
    }

    /// A response of the application begins.
    pub(super) fn answer_upload(&self) {
        let mut place = self.upload.borrow_mut();
        let Some(upload) = place.as_mut() else {
            return;
        };
        upload.is_answered = true;
        upload.is_invitation_due = false;
        if let Some(refusal) = upload.refused {
            let upload = place.take();
            self.cut_by(upload, refusal);
        }
    }
}

impl Upload {
    /// `Some`: nothing more comes.
    fn receive(&mut self, task: &StreamTask, context: &mut Context<'_>) -> Option<UploadEnd> {
        loop {
            let now = telemetry::now();
            let takes_more = self.body.takes_more();
            match takes_more && !self.body.is_uninvited() {
                true => self.pace.resume(now),
                false => self.pace.hold(now),
            }
            if !takes_more {
                return None;
            }
            let data = match self.received.poll_data(context) {
                Poll::Ready(Some(Ok(data))) => data,
                // Trailers are not for the application.
                Poll::Ready(None) if self.left.is_none_or(|left| left == 0) => {
                    return Some(UploadEnd::Body(BodyEnd::Complete));
                }
                Poll::Ready(_) => return Some(UploadEnd::Body(BodyEnd::Broken)),
                Poll::Pending if self.pace.deadline() > now => return None,
                Poll::Pending => {
                    return Some(UploadEnd::Refused(too_slow(&task.driver, self.moved, now)));
                }
            };
            if let Some(end) = self.take(task, data.len() as u64, now) {
                return Some(end);
            }
            self.body.push(data.into());
        }
    }

    /// Counts bytes that have come.
    fn take(&mut self, task: &StreamTask, bytes: u64, now: Stamp) -> Option<UploadEnd> {
        self.bytes += bytes;
        self.left = match self.left.map(|left| left.checked_sub(bytes)) {
            // RFC 9113 section 8.1.1.
            Some(None) => return Some(UploadEnd::Body(BodyEnd::Broken)),
            Some(left) => left,
            None => None,
        };
        if self.bytes > self.bytes_max {
            let refusal = http::Refusal::from(Cause::BodyTooLarge);
            return Some(UploadEnd::Refused(refusal.into()));
        }
        (self.moved, _) = (now, self.pace.advance(bytes, now));
        self.body.count(bytes);
        let credit = usize::try_from(bytes).expect("within a frame");
        let _ = self.received.flow_control().release_capacity(credit);
        task.mux.note_upload(self.bytes);
        None
    }
}
