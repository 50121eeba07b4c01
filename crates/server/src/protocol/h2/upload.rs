//! A request's body that its application takes while it arrives, on one stream of many: whatever the stream waits for,
//! what has come is given to the `BodyStream` as long as that takes more, and the client gets as much window again.

use std::sync::Arc;
use std::task::{Context, Poll};

use h2::RecvStream;
use http::BodyFraming;

use super::stream::StreamTask;
use crate::exchange::stream::StreamShared;
use crate::exchange::{BodyEnd, BodyStream, Exchange};
use crate::protocol::streamed::is_streamed;

/// A body on its way from the `h2` crate to the application.
pub(super) struct Upload {
    received: RecvStream,
    body: Arc<BodyStream>,
    /// Of the length that the head declares.
    left: Option<u64>,
    bytes: u64,
}

impl StreamTask {
    /// Gives `exchange` what is to give its body, if it has one that is still arriving.
    pub(super) fn begin_upload(&mut self, exchange: &mut Exchange, shared: &Arc<StreamShared>) {
        let is_upload = is_streamed(&self.driver, exchange);
        let Some(received) = self.body.take_if(|_| is_upload) else {
            return;
        };
        let body = BodyStream::new(shared);
        exchange.streamed = Some(Arc::clone(&body));
        let left = match exchange.head().index.body {
            BodyFraming::Length(bytes) => Some(bytes),
            _ => None,
        };
        *self.upload.borrow_mut() = Some(Upload {
            received,
            body,
            left,
            bytes: 0,
        });
    }

    /// Nothing more comes of such a body.
    pub(super) fn break_upload(&self) {
        if let Some(upload) = self.upload.borrow_mut().take() {
            upload.body.end(BodyEnd::Broken);
        }
    }

    /// Takes what has come of such a body.
    pub(super) fn receive_streamed(&self, context: &mut Context<'_>) {
        let mut upload = self.upload.borrow_mut();
        let bytes_max = self.driver.config().limits.body_bytes_max;
        let end = upload
            .as_mut()
            .and_then(|upload| upload.receive(bytes_max, self, context));
        if let Some(end) = end
            && let Some(upload) = upload.take()
        {
            upload.body.end(end);
        }
    }
}

impl Upload {
    /// `Some`: nothing more comes.
    fn receive(
        &mut self,
        bytes_max: u64,
        task: &StreamTask,
        context: &mut Context<'_>,
    ) -> Option<BodyEnd> {
        while self.body.takes_more() {
            let data = match self.received.poll_data(context) {
                Poll::Pending => return None,
                Poll::Ready(Some(Ok(data))) => data,
                // Trailers are not for the application.
                Poll::Ready(None) if self.left.is_none_or(|left| left == 0) => {
                    return Some(BodyEnd::Complete);
                }
                Poll::Ready(_) => return Some(BodyEnd::Broken),
            };
            self.bytes += data.len() as u64;
            self.left = match self.left.map(|left| left.checked_sub(data.len() as u64)) {
                // RFC 9113 section 8.1.1.
                Some(None) => return Some(BodyEnd::Broken),
                Some(left) => left,
                None => None,
            };
            if self.bytes > bytes_max {
                return Some(BodyEnd::Broken);
            }
            self.body.count(data.len() as u64);
            let _ = self.received.flow_control().release_capacity(data.len());
            task.mux.note_upload(self.bytes);
            self.body.push(data.into());
        }
        None
    }
}
