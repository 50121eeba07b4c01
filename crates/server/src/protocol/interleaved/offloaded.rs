//! Offloaded: a worker has the exchange of a stream. What it gives waits in the stream's pending response, and leaves
//! it a frame at a time, as the client's window allows.

use std::future::poll_fn;
use std::sync::Arc;
use std::task::Poll;

use telemetry::{Ending, Stamp};

use super::FrameKind;
use super::send::{FrameSender, Hears};
use super::stream::{Stream, destination};
use crate::exchange::Exchange;
use crate::exchange::ownership::{Returned, WakePolicy};
use crate::exchange::stream::{Finished, Next, StreamShared};
use crate::pool::Job;
use crate::protocol::offloaded::{Offloaded, STOP_OVERDUE};
use crate::protocol::{Stop, Woken};
use crate::response::ResponseHead;

impl Stream {
    /// Hands an exchange to its pool, and sends what comes of it.
    pub(super) async fn offload(&self, mut exchange: Box<Exchange>) {
        let shared = Arc::new(StreamShared::default());
        let connection = &self.mux.connection;
        let offloaded = match Offloaded::admit(connection, &shared, &mut exchange) {
            Ok(offloaded) => offloaded,
            Err(refusal) => return self.refuse((&*exchange).into(), refusal).await,
        };
        let job = Job {
            exchange,
            to: destination(Some(Arc::clone(&shared))),
        };
        offloaded.hand_over(job, WakePolicy::Return).await;
        match self.returned(&offloaded).await {
            Ok(Returned::Queued) => self.send_pending(&offloaded).await,
            // The worker has ended the exchange without a response.
            Ok(Returned::Out(_)) => {
                self.stop(Woken::Failed.stop()).await;
            }
            Err(STOP_OVERDUE) => {
                let (request, reply) = offloaded.overdue();
                self.respond(request, reply).await;
            }
            Err(stop) => offloaded.end(Some(stop), 0),
        }
    }

    /// Waits for a worker's response to begin.
    async fn returned(&self, offloaded: &Offloaded<'_>) -> Result<Returned, Stop> {
        let ownership = &offloaded.stream.ownership;
        loop {
            let due = offloaded.due(telemetry::now());
            let returned = self.wait(due, Hears::Both, |context| {
                match ownership.poll_return(WakePolicy::Return, context) {
                    Poll::Ready(returned) => Some(returned),
                    Poll::Pending => None,
                }
            });
            let stop = match returned.await {
                Ok(returned) => return Ok(returned),
                Err(Woken::Deadline) if offloaded.due(telemetry::now()) != Stamp::ZERO => continue,
                Err(Woken::Deadline) => STOP_OVERDUE,
                Err(woken) => woken.stop(),
            };
            return match ownership.revoke() {
                Some(_) => Err(stop),
                // The worker was first.
                None => {
                    Ok(poll_fn(|context| ownership.poll_return(WakePolicy::Return, context)).await)
                }
            };
        }
    }

    /// Sends what a worker gives, until it has given all.
    async fn send_pending(&self, offloaded: &Offloaded<'_>) {
        let stream = offloaded.stream;
        let (head, rate) = {
            let mut pending = stream.pending();
            let start = pending.start();
            (start.head.take(), start.rate)
        };
        let mut sending = self.sending(offloaded.record.route, rate);
        match self.send_given(head, offloaded, &mut sending).await {
            Ok(finished) => self.end_sent(finished, stream, &sending).await,
            Err(stop) => self.end_unsent(stop, offloaded, &sending).await,
        }
        self.driver.shared.replies_memory.leave(stream);
    }

    async fn send_given(
        &self,
        head: Option<ResponseHead>,
        offloaded: &Offloaded<'_>,
        sending: &mut FrameSender,
    ) -> Result<Finished, Stop> {
        let stream = offloaded.stream;
        let head = head.ok_or(Stop::cut("a response without a head"))?;
        self.send_head(&head).await?;
        loop {
            match self.next(offloaded, sending).await? {
                Next::Parts(..) => {}
                Next::Nothing => continue,
                Next::Finished(finished) => return Ok(finished),
                Next::Abandoned(why) => return Err(Stop::cut(why)),
            }
            let most = self.allowance(sending, Some(stream)).await?;
            // While the client is waited for, they are where a thread may move them to a file.
            let Some(mut parts) = stream.pending().take() else {
                continue;
            };
            let data = parts.take_waiting(most);
            stream.put_back(parts, &self.driver.shared.replies_memory);
            let data = data.map_err(|error| Stop::of_send(&error))?;
            self.send_data(&data, sending).await?;
            stream.set_progress_at(telemetry::now());
        }
    }

    /// Waits for parts, or for the end of the response.
    async fn next(
        &self,
        offloaded: &Offloaded<'_>,
        sending: &mut FrameSender,
    ) -> Result<Next, Stop> {
        let stream = offloaded.stream;
        let due = offloaded.due(telemetry::now());
        sending.pace.hold(telemetry::now());
        let next = self.wait(due, Hears::Both, |context| {
            stream.ownership.watch(context);
            match stream.pending().next() {
                Next::Nothing => None,
                next => Some(next),
            }
        });
        let next = next.await;
        sending.pace.resume(telemetry::now());
        match next {
            Err(Woken::Deadline) => Err(STOP_OVERDUE),
            next => next.map_err(Woken::stop),
        }
    }

    /// Ends an exchange of which everything was sent but the end.
    async fn end_sent(&self, finished: Finished, stream: &StreamShared, sending: &FrameSender) {
        let mut exchange = finished.exchange;
        let kind = match exchange.record.ending {
            Ending::Complete | Ending::Refused => FrameKind::End,
            Ending::Timeout if exchange.record.status == 504 => FrameKind::End,
            _ => FrameKind::Reset,
        };
        if let Err(stop) = self.send_frame(kind, &[]).await {
            exchange.record.end_as(stop.ending, stop.cause);
        }
        self.mux.connection.end_exchange(exchange, sending.sent);
        stream.pending().renew();
    }

    /// Ends an exchange whose client does not get everything, once the worker is done with it.
    async fn end_unsent(&self, stop: Stop, offloaded: &Offloaded<'_>, sending: &FrameSender) {
        let connection = &self.mux.connection;
        let stream = offloaded.stream;
        if stop == STOP_OVERDUE && stream.is_whole(sending.sent) {
            return match offloaded.take_over(stop) {
                Ok(finished) => self.end_sent(finished, stream, sending).await,
                Err(_) => {
                    let _ = self.send_frame(FrameKind::End, &[]).await;
                    offloaded.end(None, sending.sent);
                }
            };
        }
        offloaded.abandon();
        self.stop(stop).await;
        match self.finished(offloaded).await {
            Ok(Finished { mut exchange, .. }) => {
                exchange.record.end_as(stop.ending, stop.cause);
                connection.end_exchange(exchange, sending.sent);
            }
            Err(stop) => offloaded.end(Some(stop), sending.sent),
        }
    }

    /// The exchange, once the worker is done with it.
    async fn finished(&self, offloaded: &Offloaded<'_>) -> Result<Finished, Stop> {
        let stream = offloaded.stream;
        let due = offloaded.due(telemetry::now());
        let finished = self.wait(due, Hears::Driver, |context| {
            stream.ownership.watch(context);
            stream.pending().take_finished()
        });
        match finished.await {
            Ok(finished) => Ok(finished),
            Err(Woken::Deadline) => offloaded.take_over(STOP_OVERDUE),
            Err(woken) => offloaded.take_over(woken.stop()),
        }
    }
}
