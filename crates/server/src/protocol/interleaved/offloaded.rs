//! Offloaded: a worker has the exchange of a stream. What it gives waits in the stream's pending response, and leaves
//! it a frame at a time, as the client's window allows.

use std::future::poll_fn;
use std::sync::Arc;
use std::task::Poll;

use measure::{Ending, Stamp};

use super::Kind;
use super::send::{Hears, Sending};
use super::stream::{Stream, destination};
use crate::exchange::Exchange;
use crate::exchange::ownership::{ResponseStarted, Returned, WakePolicy};
use crate::exchange::stream::{Abandoned, Finished, Next, StreamShared};
use crate::pool::Job;
use crate::protocol::offloaded::{GivenUp, OVERDUE, Offloaded, STOP_OVERDUE};
use crate::protocol::{Stop, Woken};
use crate::recorder::Received;
use crate::refusal::Refusal;
use crate::response::ResponseHead;

impl Stream {
    /// Hands an exchange to its pool, and sends what comes of it.
    pub(super) async fn offload(&self, exchange: Box<Exchange>) {
        let pool = self.driver.shared.pool_of(&exchange);
        if let Err(refusal) = pool.admit(exchange.record.class) {
            let head = Arc::clone(&exchange.head);
            self.refuse(exchange.record, Received::Head(head.view()), refusal)
                .await;
            return;
        }
        let offloaded = Offloaded::new(&exchange, pool.request_timeout());
        let stream = Arc::new(StreamShared::new());
        let mut job = Some(Job {
            exchange,
            to: destination(Some(Arc::clone(&stream))),
            keep_alive: true,
        });
        poll_fn(|context| {
            if let Some(job) = job.take() {
                stream.ownership.hand_off(WakePolicy::Return, context);
                self.driver.hand_over(job);
            }
            Poll::Ready(())
        })
        .await;
        match self.returned(&offloaded, &stream).await {
            Ok(Returned::Queued) => self.send_pending(&offloaded, &stream).await,
            // The worker has ended the exchange without a response.
            Ok(Returned::Kept | Returned::Closed | Returned::Reset) => {
                self.stop(Stop::peer_gone()).await;
            }
            Err(GivenUp::Overdue(_)) => self.respond_overdue(&offloaded, &stream).await,
            Err(given_up) => {
                self.mux
                    .connection
                    .end_given_up(&offloaded, &stream, given_up, 0);
            }
        }
    }

    /// Waits for a worker's response to begin.
    async fn returned(
        &self,
        offloaded: &Offloaded,
        stream: &StreamShared,
    ) -> Result<Returned, GivenUp> {
        loop {
            let due = offloaded.due(stream, measure::now());
            let returned = self.wait(due, Hears::Both, |context| {
                match stream.ownership.poll_return(WakePolicy::Return, context) {
                    Poll::Ready(returned) => Some(returned),
                    Poll::Pending => None,
                }
            });
            let given_up: fn(ResponseStarted) -> GivenUp = match returned.await {
                Ok(returned) => return Ok(returned),
                Err(Woken::Deadline) if offloaded.due(stream, measure::now()) != Stamp::ZERO => {
                    continue;
                }
                Err(Woken::Deadline) => GivenUp::Overdue,
                Err(Woken::Cut) => GivenUp::Cut,
                Err(_) => GivenUp::ClientGone,
            };
            return match stream.ownership.revoke() {
                Some(started) => Err(given_up(started)),
                // The worker was first.
                None => {
                    Ok(
                        poll_fn(|context| {
                            stream.ownership.poll_return(WakePolicy::Return, context)
                        })
                        .await,
                    )
                }
            };
        }
    }

    /// Answers in the place of the application, which is still at it.
    async fn respond_overdue(&self, offloaded: &Offloaded, stream: &StreamShared) {
        stream.set_overdue();
        self.driver.stats().errors.add();
        let record = offloaded.overdue_record(stream);
        let reply = Refusal::because(504, OVERDUE).reply();
        let head = offloaded.head.view();
        let reply = self.mux.connection.with_error_page(reply, Some(head));
        self.respond(record, offloaded.received(), reply).await;
    }

    /// Sends what a worker gives, until it has given all.
    async fn send_pending(&self, offloaded: &Offloaded, stream: &Arc<StreamShared>) {
        let (head, rate) = {
            let mut pending = stream.pending();
            (pending.head.take(), pending.rate)
        };
        let mut sending = self.sending(offloaded.record.route, rate);
        match self.send_given(head, offloaded, stream, &mut sending).await {
            Ok(finished) => self.end_sent(finished, stream, &sending).await,
            Err(stop) => self.end_unsent(stop, offloaded, stream, &sending).await,
        }
        self.driver.shared.replies_memory.leave(stream);
    }

    async fn send_given(
        &self,
        head: Option<ResponseHead>,
        offloaded: &Offloaded,
        stream: &StreamShared,
        sending: &mut Sending,
    ) -> Result<Finished, Stop> {
        let head = head.ok_or(Stop::cut("a response without a head"))?;
        self.send_head(&head).await?;
        loop {
            match self.next(offloaded, stream, sending).await? {
                Next::Parts(..) => {}
                Next::Nothing => continue,
                Next::Finished(finished) => return Ok(finished),
                Next::Abandoned(why) => return Err(Stop::cut(why.cause())),
            }
            let most = self.allowance(sending, Some(stream)).await?;
            // While the client is waited for, they are where a thread may move them to a file.
            let Some(mut parts) = stream.pending().take() else {
                continue;
            };
            let data = parts.read(most);
            let unsent = stream.put_back(parts);
            self.driver.shared.replies_memory.discard(unsent);
            let data = data.map_err(|error| Stop::of_send(&error))?;
            self.send_data(&data, sending).await?;
            stream.set_progress_at(measure::now());
        }
    }

    /// Waits for parts, or for the end of the response.
    async fn next(
        &self,
        offloaded: &Offloaded,
        stream: &StreamShared,
        sending: &mut Sending,
    ) -> Result<Next, Stop> {
        let due = offloaded.due(stream, measure::now());
        sending.pace.hold(measure::now());
        let next = self.wait(due, Hears::Both, |context| {
            stream.ownership.watch(context);
            match stream.pending().next() {
                Next::Nothing => None,
                next => Some(next),
            }
        });
        let next = next.await;
        sending.pace.resume(measure::now());
        match next {
            Err(Woken::Deadline) => Err(STOP_OVERDUE),
            next => next.map_err(Woken::stop),
        }
    }

    /// Ends an exchange of which everything was sent but the end.
    async fn end_sent(&self, finished: Finished, stream: &StreamShared, sending: &Sending) {
        let mut exchange = finished.exchange;
        let kind = match exchange.record.ending {
            Ending::Complete | Ending::Refused => Kind::End,
            _ => Kind::Reset,
        };
        if let Err(stop) = self.send_frame(kind, &[]).await {
            exchange.record.end_as(stop.ending, stop.cause);
        }
        self.end_with(exchange, sending);
        let unsent = stream.pending().renew();
        self.driver.shared.replies_memory.discard(unsent);
    }

    /// Ends an exchange whose client does not get everything, once the worker is done with it.
    async fn end_unsent(
        &self,
        stop: Stop,
        offloaded: &Offloaded,
        stream: &StreamShared,
        sending: &Sending,
    ) {
        let connection = &self.mux.connection;
        if stop == STOP_OVERDUE && stream.is_whole(sending.sent) && stream.pending().revoke() {
            stream.set_overdue();
            let _ = self.send_frame(Kind::End, &[]).await;
            return connection.end_answered(offloaded, stream, sending.sent);
        }
        connection.log_abandoned(offloaded, stream);
        let unsent = stream.abandon(Abandoned::ClientGone);
        self.driver.shared.replies_memory.discard(unsent);
        self.stop(stop).await;
        match self.finished(offloaded, stream).await {
            Ok(Finished { mut exchange, .. }) => {
                exchange.record.end_as(stop.ending, stop.cause);
                self.end_with(exchange, sending);
            }
            Err(given_up) => connection.end_given_up(offloaded, stream, given_up, sending.sent),
        }
    }

    fn end_with(&self, mut exchange: Box<Exchange>, sending: &Sending) {
        let connection = &self.mux.connection;
        exchange.record.sent_bytes = sending.sent;
        exchange.record.phases.sent = measure::now();
        connection.end(&exchange.record, Received::Head(exchange.head()));
    }

    /// The exchange, once the worker is done with it.
    async fn finished(
        &self,
        offloaded: &Offloaded,
        stream: &StreamShared,
    ) -> Result<Finished, GivenUp> {
        let due = offloaded.due(stream, measure::now());
        let finished = self.wait(due, Hears::Driver, |context| {
            stream.ownership.watch(context);
            stream.pending().take_finished()
        });
        let given_up = match finished.await {
            Ok(finished) => return Ok(finished),
            Err(Woken::Deadline) => GivenUp::Overdue(ResponseStarted::Yes),
            Err(_) => GivenUp::Cut(ResponseStarted::Yes),
        };
        let mut pending = stream.pending();
        if let Some(finished) = pending.take_finished() {
            return Ok(finished);
        }
        pending.revoke();
        if let GivenUp::Overdue(_) = given_up {
            stream.set_overdue();
        }
        Err(given_up)
    }
}
