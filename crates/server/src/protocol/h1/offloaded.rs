//! Offloaded: a worker has the exchange. The driver hands it over and serves other connections; it hears of this
//! one again when the response is out and the client sends more, or when the socket was full.

use std::future::poll_fn;
use std::sync::Arc;
use std::task::{Context, Poll};

use measure::Stamp;

use super::respond::Then;
use super::send::{LOOK, SendMonitor};
use super::{H1, Progress, Step};
use crate::exchange::Exchange;
use crate::exchange::ownership::{ResponseStarted, Returned, WakePolicy};
use crate::exchange::stream::{Abandoned, After, Finished, Next};
use crate::pool::Job;
use crate::protocol::offloaded::{GivenUp, OVERDUE, Offloaded, STOP_OVERDUE};
use crate::protocol::{Stop, Woken};
use crate::recorder::Received;
use crate::refusal::Refusal;
use crate::response::{Destination, Encoding};
use crate::stats::Doing;

impl H1 {
    /// Hands an exchange to its pool and waits for its response to be out.
    pub(super) async fn offload(&mut self, exchange: Box<Exchange>) -> Step {
        let shared = &self.connection.driver.shared;
        let pool = shared.pool_of(&exchange);
        if let Err(refusal) = pool.admit(exchange.record.class) {
            let head = Arc::clone(&exchange.head);
            let step = self.refuse(exchange.record, Received::Head(head.view()), refusal);
            return step;
        }
        let offloaded = Offloaded::new(&exchange, pool.request_timeout());
        let mut job = Some(self.job(exchange));
        let mut wake = match self.buffer.is_empty() {
            true => WakePolicy::NextInput,
            false => WakePolicy::Return,
        };
        // A look after a while: when the response is out by then, the connection is idle and is to be watched
        // as such.
        let queued = offloaded.record.phases.queued;
        let look = queued.plus(LOOK).plus(LOOK);
        let due = offloaded
            .timeout
            .map_or(look, |timeout| queued.plus(timeout));
        self.connection.now_doing(Doing::Away, look.min(due));
        let returned = poll_fn(|context| {
            if let Some(job) = job.take() {
                self.stream.ownership.hand_off(wake, context);
                self.connection.driver.hand_over(job);
            }
            self.poll_offloaded(&offloaded, &mut wake, context)
        })
        .await;
        match returned {
            Ok(returned) => self.take_back(returned, &offloaded).await,
            Err(given_up) => self.give_up(given_up, &offloaded),
        }
    }

    fn job(&self, exchange: Box<Exchange>) -> Job {
        let driver = &self.connection.driver;
        let rates = &driver.shared.rates;
        let is_limited = !rates.is_empty && rates.is_limited(exchange.record.route);
        let direct = self.connection.transport.direct();
        Job {
            keep_alive: exchange.head().index.keep_alive && driver.serving(),
            exchange,
            to: Destination {
                stream: Some(Arc::clone(&self.stream)),
                direct: direct.cloned(),
                is_limited,
                encoding: Encoding::Http1,
            },
        }
    }

    /// Waits for the exchange to come back: by the client's next bytes when nothing needs to know earlier,
    /// else by a wake-up.
    fn poll_offloaded(
        &self,
        offloaded: &Offloaded,
        wake: &mut WakePolicy,
        context: &mut Context<'_>,
    ) -> Poll<Result<Returned, GivenUp>> {
        let ownership = &self.stream.ownership;
        let fired = self.connection.take_fired();
        if fired == Some(Woken::Cut)
            && let Some(started) = ownership.revoke()
        {
            return Poll::Ready(Err(GivenUp::Cut(started)));
        }
        // The response may be long out. If it is not, it is to wake us from now on, and no look is needed.
        if fired.is_some() {
            *wake = WakePolicy::Return;
            let due = offloaded.due(&self.stream, measure::now());
            if due == Stamp::ZERO
                && let Some(started) = ownership.revoke()
            {
                return Poll::Ready(Err(GivenUp::Overdue(started)));
            }
            let next = match due {
                Stamp::ZERO => Stamp::NEVER,
                due => due,
            };
            self.connection.now_doing(Doing::Away, next);
        }
        if let Some(returned) = ownership.returned() {
            if fired == Some(Woken::Crowded) {
                self.still_crowded();
            }
            return Poll::Ready(Ok(returned));
        }
        // Readable (or failed): what the client sent waits in the socket until the response is out.
        if *wake == WakePolicy::NextInput
            && self.connection.transport.poll_readable(context).is_ready()
        {
            *wake = WakePolicy::Return;
        }
        ownership.poll_return(*wake, context).map(Ok)
    }

    /// Its place is needed although it is back: the wait for the next request is to hear of it, or it would
    /// keep its place until the next look, and by then those that were idle for the longest time have asked
    /// again.
    fn still_crowded(&self) {
        if self.buffer.is_empty() {
            let mut table = self.connection.driver.table.borrow_mut();
            table.mark_crowded(self.connection.slot);
        }
    }

    async fn take_back(&mut self, returned: Returned, offloaded: &Offloaded) -> Step {
        match returned {
            Returned::Kept => {
                self.idle_since = self.stream.progress_at();
                self.stream.ownership.take_back();
                Step::Receive
            }
            Returned::Closed => Step::Leave,
            Returned::Reset => {
                self.connection.transport.reset_on_close();
                Step::Close
            }
            Returned::Queued => Box::pin(self.send_pending(offloaded)).await,
        }
    }

    /// The worker still has the exchange: answers in its place, or ends what it has begun to answer.
    fn give_up(&mut self, given_up: GivenUp, offloaded: &Offloaded) -> Step {
        match given_up {
            GivenUp::Cut(started) | GivenUp::ClientGone(started) => {
                self.end_given_up(offloaded, given_up, self.sent_by_worker(started))
            }
            GivenUp::Overdue(started) => {
                self.stream.set_overdue();
                match started {
                    ResponseStarted::No => self.respond_overdue(offloaded),
                    ResponseStarted::Yes => {
                        let sent_bytes = self.sent_by_worker(started);
                        if self.stream.is_whole(sent_bytes) {
                            return self.end_answered(offloaded, sent_bytes);
                        }
                        self.connection.transport.reset();
                        self.end_given_up(offloaded, given_up, sent_bytes)
                    }
                }
            }
        }
    }

    /// What the worker has sent of an exchange that was revoked; the numbers of the stream are those of an
    /// earlier one while it has sent nothing.
    fn sent_by_worker(&self, started: ResponseStarted) -> u64 {
        match started {
            ResponseStarted::No => 0,
            ResponseStarted::Yes => self.stream.sent_bytes(),
        }
    }

    /// Answers in the place of the application, which is still at it: 504 (RFC 9110 section 15.6.5), and the
    /// end of the connection, whose stream the worker still has.
    fn respond_overdue(&mut self, offloaded: &Offloaded) -> Step {
        self.connection.driver.stats().errors.add();
        let record = offloaded.overdue_record(&self.stream);
        let reply = Refusal::because(504, OVERDUE).reply();
        match self.respond(record, offloaded.received(), Then::Linger, reply) {
            Progress::Next(step) => step,
            Progress::Answered | Progress::NeedInput => Step::Linger,
        }
    }

    /// Sends what the worker could not, until it has finished the response and all is out.
    async fn send_pending(&mut self, offloaded: &Offloaded) -> Step {
        let (sent_before, rate) = {
            let pending = self.stream.pending();
            (pending.sent_before, pending.rate)
        };
        let limit = self.limit(offloaded.record.route, rate);
        let mut monitor = SendMonitor::new(&self.connection, limit, measure::now());
        let sent = loop {
            match self.send_pending_step(offloaded, &mut monitor).await {
                Ok(None) => {}
                Ok(Some(finished)) => break Ok(finished),
                Err(stop) => break Err(stop),
            }
        };
        self.keep_limit(&mut monitor, rate);
        let sent_bytes = sent_before + monitor.sent;
        let step = match sent {
            Ok(finished) => self.end_sent(finished, sent_bytes),
            Err(stop) => self.end_unsent(stop, sent_bytes, offloaded).await,
        };
        self.connection
            .driver
            .shared
            .replies_memory
            .leave(&self.stream);
        step
    }

    /// One step: the exchange when it was the last.
    async fn send_pending_step(
        &self,
        offloaded: &Offloaded,
        monitor: &mut SendMonitor,
    ) -> Result<Option<Finished>, Stop> {
        let (memory_bytes, file_bytes) = match self.next_pending(offloaded, monitor).await? {
            Next::Parts(memory_bytes, file_bytes) => (memory_bytes, file_bytes),
            Next::Finished(finished) => return Ok(Some(finished)),
            Next::Nothing => return Ok(None),
            Next::Abandoned(why) => return Err(Stop::cut(why.cause())),
        };
        let most = self
            .allowance(monitor, memory_bytes as u64 + file_bytes)
            .await?;
        let readiness = self.readiness_for(file_bytes, monitor).await?;
        // While this driver waits, the parts are where a thread may move them to a file: it has them now where
        // there are none.
        let Some(mut parts) = self.stream.pending().take() else {
            return Ok(None);
        };
        let before = monitor.sent;
        let step = self.send_step(&mut parts, monitor, most, readiness).await;
        if monitor.sent > before {
            self.stream.set_progress_at(measure::now());
        }
        let unsent = self.stream.put_back(parts);
        self.connection.driver.shared.replies_memory.discard(unsent);
        self.after_step(step?, monitor).await?;
        Ok(None)
    }

    /// Waits for parts, or for the end of the response.
    async fn next_pending(
        &self,
        offloaded: &Offloaded,
        monitor: &mut SendMonitor,
    ) -> Result<Next, Stop> {
        let mut is_held = false;
        let next = poll_fn(|context| {
            if self.connection.take_fired() == Some(Woken::Cut) {
                return Poll::Ready(Err(Woken::Cut.stop()));
            }
            self.stream.ownership.watch(context);
            let due = offloaded.due(&self.stream, measure::now());
            let mut pending = self.stream.pending();
            if due == Stamp::ZERO && !pending.is_finished() {
                return Poll::Ready(Err(STOP_OVERDUE));
            }
            match pending.next() {
                Next::Nothing => {}
                next => return Poll::Ready(Ok(next)),
            }
            drop(pending);
            if !is_held {
                is_held = true;
                // Nothing waits to be sent: it is the application, or a disk, that makes the client wait.
                monitor.hold(measure::now());
                self.connection.now_doing(Doing::Sending, due);
            }
            Poll::Pending
        });
        let next = self.connection.unless_reset(next).await?;
        if is_held {
            monitor.resume(measure::now());
        }
        next
    }

    /// Ends an exchange of which everything was sent.
    fn end_sent(&mut self, finished: Finished, sent_bytes: u64) -> Step {
        let Finished {
            mut exchange,
            after,
        } = finished;
        exchange.record.sent_bytes = sent_bytes;
        exchange.record.phases.sent = measure::now();
        self.idle_since = exchange.record.phases.sent;
        self.connection
            .end(&exchange.record, Received::Head(exchange.head()));
        match after {
            After::Keep => {
                let unsent = self.stream.pending().renew();
                self.connection.driver.shared.replies_memory.discard(unsent);
                self.stream.ownership.take_back();
                Step::Receive
            }
            After::Close => Step::Leave,
            After::Reset => {
                self.connection.transport.reset_on_close();
                Step::Close
            }
        }
    }

    /// Ends an exchange whose client does not get everything, once the worker is done with it.
    async fn end_unsent(&mut self, stop: Stop, sent_bytes: u64, offloaded: &Offloaded) -> Step {
        let is_overdue = stop == STOP_OVERDUE && self.stream.is_whole(sent_bytes);
        if is_overdue {
            let finished = {
                let mut pending = self.stream.pending();
                pending.revoke();
                pending.take_finished()
            };
            let Some(finished) = finished else {
                self.stream.set_overdue();
                return self.end_answered(offloaded, sent_bytes);
            };
            return self.end_sent(finished, sent_bytes);
        }
        self.connection.count_stop(stop);
        self.connection.log_abandoned(offloaded, &self.stream);
        let unsent = self.stream.abandon(Abandoned::ClientGone);
        self.connection.driver.shared.replies_memory.discard(unsent);
        self.connection.transport.reset();
        let finished = match self.finished(offloaded).await {
            Ok(finished) => finished,
            Err(given_up) => return self.end_given_up(offloaded, given_up, sent_bytes),
        };
        let mut exchange = finished.exchange;
        exchange.record.sent_bytes = sent_bytes;
        exchange.record.end_as(stop.ending, stop.cause);
        exchange.record.phases.sent = measure::now();
        self.connection
            .end(&exchange.record, Received::Head(exchange.head()));
        Step::Close
    }

    /// The exchange, once the worker is done with it. It is given up at the drain deadline, and when the
    /// application's time is up.
    async fn finished(&self, offloaded: &Offloaded) -> Result<Finished, GivenUp> {
        poll_fn(|context| {
            let connection = &self.connection;
            let is_cut = connection.take_fired() == Some(Woken::Cut) || connection.cutting();
            self.stream.ownership.watch(context);
            let due = offloaded.due(&self.stream, measure::now());
            connection.now_doing(Doing::Sending, due);
            let mut pending = self.stream.pending();
            if let Some(finished) = pending.take_finished() {
                return Poll::Ready(Ok(finished));
            }
            let given_up = match () {
                () if due == Stamp::ZERO => GivenUp::Overdue(ResponseStarted::Yes),
                () if is_cut => GivenUp::Cut(ResponseStarted::Yes),
                () => return Poll::Pending,
            };
            pending.revoke();
            drop(pending);
            if let GivenUp::Overdue(_) = given_up {
                self.stream.set_overdue();
            }
            Poll::Ready(Err(given_up))
        })
        .await
    }

    /// Ends the connection behind a response that is out, whose application is still at it.
    fn end_answered(&self, offloaded: &Offloaded, sent_bytes: u64) -> Step {
        self.connection
            .end_answered(offloaded, &self.stream, sent_bytes);
        Step::Linger
    }

    /// Ends the connection of an exchange that has not come back in time.
    fn end_given_up(&self, offloaded: &Offloaded, given_up: GivenUp, sent_bytes: u64) -> Step {
        self.connection
            .end_given_up(offloaded, &self.stream, given_up, sent_bytes);
        Step::Close
    }
}
