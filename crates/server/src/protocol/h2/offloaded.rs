//! Offloaded: a worker has the exchange of a stream. What it gives waits in the stream's pending response, and leaves it
//! a turn at a time.

use std::future::poll_fn;
use std::sync::Arc;
use std::task::Poll;

use h2::Reason;
use http::FieldLines;
use http_types::StatusCode;
use telemetry::{Ending, Stamp};
use tokio::sync::OwnedSemaphorePermit;

use super::fields;
use super::mux::EndedHead;
use super::send::{Last, StreamSender, reason_of};
use super::stream::{Interrupts, StreamTask, destination};
use super::stream_table::Abandoned;
use crate::exchange::Exchange;
use crate::exchange::ownership::{Returned, WakePolicy};
use crate::exchange::stream::{Finished, Next, StreamShared};
use crate::pool::Job;
use crate::protocol::offloaded::{Offloaded, STOP_OVERDUE};
use crate::protocol::{Stop, Woken};
use crate::refusal::Refusal;

impl StreamTask {
    /// Hands an exchange to its pool, and sends what comes of it.
    pub(super) async fn offload(&mut self, mut exchange: Box<Exchange>) {
        let mux = std::rc::Rc::clone(&self.mux);
        let connection = &mux.connection;
        // Nothing runs for a client that has reset its request.
        if self.slot.is_reset() {
            self.note_reset(&mut exchange.record.stream);
            return connection.end_unanswered((&*exchange).into(), Ending::PeerGone);
        }
        let place = match self.place().await {
            Ok(place) => place,
            Err(stop) => return connection.end_unanswered((&*exchange).into(), stop.ending),
        };
        let shared = Arc::new(StreamShared::default());
        if let Err(refusal) = self.begin_upload(&mut exchange, &shared) {
            return self.refuse((&*exchange).into(), refusal).await;
        }
        let mut offloaded = match Offloaded::admit(connection, &shared, &mut exchange) {
            Ok(offloaded) => offloaded,
            Err(refusal) => return self.refuse((&*exchange).into(), refusal).await,
        };
        offloaded.hand_off(WakePolicy::Return).await;
        offloaded.hand_over(Job {
            exchange,
            to: destination(Some(Arc::clone(&shared))),
        });
        match self.returned(&offloaded).await {
            Ok(Returned::Queued) => {
                drop(place);
                self.answer_upload();
                let tunnel = offloaded.stream.pending().take_tunnel();
                match (offloaded.accepted(), tunnel) {
                    (Some(channel), _) => self.serve_websocket(&mut offloaded, channel).await,
                    (None, Some(tunnel)) => self.serve_tunnel(*tunnel).await,
                    (None, None) => self.send_pending(&mut offloaded).await,
                }
            }
            // The worker has ended the exchange without a response.
            Ok(Returned::Out(_)) => self.stop(Woken::Failed.stop(), Reason::INTERNAL_ERROR),
            Err(Unanswered::Refused(refusal)) => {
                self.respond_to_body(&offloaded, refusal).await;
                self.abandon_work(&shared, place);
            }
            Err(Unanswered::Stopped(STOP_OVERDUE)) => {
                let (request, reply) = offloaded.overdue();
                self.respond(request, reply, None).await;
                self.abandon_work(&shared, place);
            }
            Err(Unanswered::Stopped(stop)) => {
                self.stop(stop, Reason::CANCEL);
                self.end_offloaded(&mut offloaded, Some(stop), 0);
                self.abandon_work(&shared, place);
            }
        }
    }

    /// A place among the exchanges of this connection that may wait for a worker at once.
    async fn place(&self) -> Result<OwnedSemaphorePermit, Stop> {
        let places = &self.mux.pool_places;
        if let Ok(place) = Arc::clone(places).try_acquire_owned() {
            return Ok(place);
        }
        let mut place = std::pin::pin!(Arc::clone(places).acquire_owned());
        let place =
            self.wait(
                Stamp::NEVER,
                Interrupts::Any,
                |context| match std::future::Future::poll(place.as_mut(), context) {
                    Poll::Ready(place) => Some(place.expect("the places are never closed")),
                    Poll::Pending => None,
                },
            );
        place.await.map_err(Woken::stop)
    }

    /// The client is gone, or has its answer: what still works for the stream counts among its connection's streams.
    fn abandon_work(&self, shared: &Arc<StreamShared>, place: OwnedSemaphorePermit) {
        self.mux.streams.borrow_mut().keep_abandoned(Abandoned {
            stream: Arc::clone(shared),
            _place: place,
        });
    }

    fn end_offloaded(&self, offloaded: &mut Offloaded<'_>, stop: Option<Stop>, sent_bytes: u64) {
        self.note_reset(&mut offloaded.admitted.stream);
        offloaded.end(stop, sent_bytes);
    }

    /// Waits for a worker's response to begin.
    async fn returned(&mut self, offloaded: &Offloaded<'_>) -> Result<Returned, Unanswered> {
        let ownership = &offloaded.stream.ownership;
        loop {
            let due = offloaded.due(telemetry::now());
            let returned = self.wait(due, Interrupts::Any, |context| {
                let polled = ownership.poll_return(WakePolicy::Return, context);
                // Behind the look, which registers: hints that come later wake this task.
                let hints = offloaded.stream.take_interim();
                match polled {
                    _ if !hints.is_empty() => Some(Moved::Hints(hints)),
                    Poll::Ready(returned) => Some(Moved::Returned(returned)),
                    Poll::Pending if self.takes_invitation() => Some(Moved::Invitation),
                    Poll::Pending => self.upload_refusal().map(Moved::Refused),
                }
            });
            let moved = match returned.await {
                Ok(Moved::Returned(returned)) => return Ok(returned),
                Ok(Moved::Hints(hints)) => {
                    self.send_hints(hints);
                    continue;
                }
                Ok(Moved::Invitation) => {
                    self.send_invitation();
                    continue;
                }
                Ok(Moved::Refused(refusal)) => Unanswered::Refused(refusal),
                Err(Woken::Deadline) if offloaded.due(telemetry::now()) != Stamp::ZERO => continue,
                Err(Woken::Deadline) => Unanswered::Stopped(STOP_OVERDUE),
                Err(woken) => Unanswered::Stopped(woken.stop()),
            };
            return match ownership.revoke() {
                Some(_) => Err(moved),
                // The worker was first.
                None => {
                    Ok(poll_fn(|context| ownership.poll_return(WakePolicy::Return, context)).await)
                }
            };
        }
    }

    /// Refuses a request whose body breaks a rule, in the place of its application.
    async fn respond_to_body(&mut self, offloaded: &Offloaded<'_>, refusal: Refusal) {
        // First: an application that hears of the body may end the exchange at once.
        offloaded.stream.set_overdue();
        self.break_upload();
        self.refuse(offloaded.refused(), refusal).await;
    }

    /// Sends early hints (RFC 8297).
    fn send_hints(&mut self, hints: Vec<FieldLines>) {
        for fields in hints {
            let response = fields::interim_with(StatusCode::EARLY_HINTS, &fields.freeze());
            // A stream that cannot have it is gone, which the next wait finds.
            let _ = self.respond.send_informational(response);
        }
        self.mux.has_moved();
    }

    /// Sends what a worker gives, until it has given all.
    async fn send_pending(&mut self, offloaded: &mut Offloaded<'_>) {
        let stream = offloaded.stream;
        let (head, rate) = {
            let mut pending = stream.pending();
            let start = pending.start();
            (start.head.take(), start.rate)
        };
        let ended = match head {
            Some(head) => {
                let is_head = offloaded.head.view().is_head();
                let is_bodiless = fields::is_bodiless(&head, is_head);
                let sending = self.send_head(&head, offloaded.admitted.route, rate, is_bodiless);
                sending.map(|sending| (sending, is_bodiless))
            }
            None => Err(Stop::cut("a response without a head")),
        };
        match ended {
            Ok((mut sending, is_bodiless)) => {
                match self.send_given(offloaded, &mut sending, is_bodiless).await {
                    Ok(finished) => self.end_sent(finished, &mut sending, is_bodiless).await,
                    Err(stop) => self.end_unsent(stop, offloaded, Some(&mut sending)).await,
                }
            }
            Err(stop) => self.end_unsent(stop, offloaded, None).await,
        }
        self.driver.shared.replies_memory.leave(stream);
    }

    async fn send_given(
        &self,
        offloaded: &Offloaded<'_>,
        sending: &mut StreamSender,
        is_bodiless: bool,
    ) -> Result<Sent, Stop> {
        let stream = offloaded.stream;
        // The client of a response without a body has all of it with the head, and may leave before its application ends.
        let interrupts = match is_bodiless {
            true => Interrupts::DriverEnd,
            false => Interrupts::Any,
        };
        loop {
            let (memory_bytes, file_bytes) = match self.next(offloaded, interrupts).await? {
                Next::Parts(memory_bytes, file_bytes) => (memory_bytes, file_bytes),
                Next::Nothing => continue,
                Next::Finished(finished) => {
                    return Ok(Sent {
                        finished,
                        last: Last::No,
                        trailers: stream.pending().start().trailers.take(),
                    });
                }
                Next::Abandoned(why) => return Err(Stop::cut(why)),
            };
            let want = memory_bytes as u64 + file_bytes;
            let most = self.allowance(sending, Some(stream), want).await?;
            // While the client is waited for, they are where a thread may move them to a file.
            let Some(mut parts) = stream.pending().take() else {
                continue;
            };
            let data = self.read(&mut parts, most).await;
            stream.put_back(parts, &self.driver.shared.replies_memory);
            let data = data?;
            // The end goes with the last piece where it is known by then.
            let next = stream.pending().next();
            if let Next::Finished(finished) = next {
                let trailers = stream.pending().start().trailers.take();
                let is_good = !is_bodiless && trailers.is_none() && is_end(&finished);
                let last = if is_good { Last::Yes } else { Last::No };
                return match self.send_data(sending, data, last) {
                    Ok(()) => Ok(Sent {
                        finished,
                        last,
                        trailers,
                    }),
                    // Put back: it is ended by what finds the client gone.
                    Err(stop) => {
                        drop(stream.finish(finished));
                        Err(stop)
                    }
                };
            }
            self.send_data(sending, data, Last::No)?;
            stream.set_progress_at(telemetry::now());
        }
    }

    /// Waits for parts, or for the end of the response.
    async fn next(&self, offloaded: &Offloaded<'_>, interrupts: Interrupts) -> Result<Next, Stop> {
        let stream = offloaded.stream;
        let due = offloaded.due(telemetry::now());
        let next = self.wait(due, interrupts, |context| {
            stream.ownership.watch(context);
            match stream.pending().next() {
                Next::Nothing => None,
                next => Some(next),
            }
        });
        match next.await {
            Err(Woken::Deadline) if offloaded.due(telemetry::now()) == Stamp::ZERO => {
                Err(STOP_OVERDUE)
            }
            Err(Woken::Deadline) => Ok(Next::Nothing),
            next => next.map_err(Woken::stop),
        }
    }

    /// Ends an exchange of which everything was sent but the end.
    async fn end_sent(&mut self, sent: Sent, sending: &mut StreamSender, is_bodiless: bool) {
        let Sent {
            finished,
            last,
            trailers,
        } = sent;
        let is_good = is_end(&finished);
        let mut exchange = finished.exchange;
        let ended = match (is_good, is_bodiless || last == Last::Yes) {
            (true, true) => Ok(()),
            (true, false) => {
                self.mux.has_moved();
                match trailers {
                    Some(fields) if !fields.as_bytes().is_empty() => sending.send_trailers(fields),
                    _ => sending.send_end(),
                }
            }
            (false, _) => {
                // In another turn: the crate drops what it has not written of a stream that is reset.
                tokio::task::yield_now().await;
                self.respond.send_reset(Reason::INTERNAL_ERROR);
                self.mux.has_moved();
                Ok(())
            }
        };
        if let Err(stop) = ended {
            exchange.record.end_as(stop.ending, stop.cause);
        }
        sending.end(self, exchange.record, EndedHead::Exchange(exchange));
    }

    /// Ends an exchange whose client does not get everything, once the worker is done with it.
    async fn end_unsent(
        &mut self,
        stop: Stop,
        offloaded: &mut Offloaded<'_>,
        sending: Option<&mut StreamSender>,
    ) {
        let stream = offloaded.stream;
        let sent_bytes = sending.as_ref().map_or(0, |sending| sending.sent);
        if stop == STOP_OVERDUE
            && stream.is_whole(sent_bytes)
            && let Some(sending) = sending
        {
            // All of it is out but its end.
            return match offloaded.take_over(stop) {
                Ok(finished) => {
                    let sent = Sent {
                        finished,
                        last: Last::No,
                        trailers: None,
                    };
                    self.end_sent(sent, sending, false).await;
                }
                Err(_) => {
                    let _ = sending.send_end();
                    self.mux.has_moved();
                    self.end_offloaded(offloaded, None, sent_bytes);
                }
            };
        }
        if let Some(sending) = sending {
            sending.note_blocked(&mut offloaded.admitted.stream);
        }
        offloaded.abandon();
        self.stop(stop, reason_of(stop));
        match self.finished(offloaded).await {
            Ok(Finished { mut exchange, .. }) => {
                exchange.record.end_as(stop.ending, stop.cause);
                exchange.record.stream = offloaded.admitted.stream;
                self.note_reset(&mut exchange.record.stream);
                self.mux.connection.end_exchange(exchange, sent_bytes);
            }
            Err(stop) => self.end_offloaded(offloaded, Some(stop), sent_bytes),
        }
    }

    /// The exchange, once the worker is done with it.
    async fn finished(&self, offloaded: &Offloaded<'_>) -> Result<Finished, Stop> {
        let stream = offloaded.stream;
        let due = offloaded.due(telemetry::now());
        let finished = self.wait(due, Interrupts::DriverEnd, |context| {
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

/// Why no response of a worker is waited for.
enum Unanswered {
    /// The body breaks a rule.
    Refused(Refusal),
    Stopped(Stop),
}

/// What has come of a worker, or of the client's body.
enum Moved {
    Returned(Returned),
    /// The application wants the body.
    Invitation,
    /// The body breaks a rule.
    Refused(Refusal),
    /// Fields of early hints.
    Hints(Vec<FieldLines>),
}

/// A response that was given to the crate.
struct Sent {
    finished: Finished,
    /// Whether the end of the stream went with the last piece.
    last: Last,
    /// Fields behind the body.
    trailers: Option<FieldLines>,
}

/// Whether the response may look complete.
fn is_end(finished: &Finished) -> bool {
    let record = &finished.exchange.record;
    match record.ending {
        Ending::Complete | Ending::Refused => true,
        Ending::Timeout => record.status == 504,
        _ => false,
    }
}
