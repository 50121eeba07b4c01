//! Away: an exchange is with the pool. The driver hands it over and goes on with other connections; it
//! hears of this one again when the reply is out and the client sends more, or when the socket was full.

use std::future::poll_fn;
use std::sync::Arc;
use std::task::{Context, Poll};

use measure::{Ending, Nanos, Stamp};
use wire::RequestHead;

use super::answer::{About, After, Tail};
use super::connection::{Connection, Step, Woken};
use super::refused::Refused;
use super::sending::{LOOK, Outflow, Stop};
use crate::delivery::{Chain, Finished, FirstWay};
use crate::exchange::{Body, Exchange};
use crate::handover::{Returned, Said, Wish};
use crate::pool::{Job, Unadmitted};
use crate::stats::Doing;

/// Why an exchange ends without its application.
const OVERDUE: &str = "the application took longer than request_timeout";

/// What the connection keeps of an exchange that is away, for the log in case it does not come back in time.
struct Absent {
    head: Arc<RequestHead>,
    tail: Tail,
    /// How long the application may take.
    timeout: Option<Nanos>,
}

impl Connection {
    /// Hands an exchange to the pool and waits for its reply to be out.
    pub(super) async fn away(&mut self, exchange: Box<Exchange>) -> Step {
        let queued = exchange.phases.queued;
        if let Err(unadmitted) = self.admit(&exchange) {
            self.arrived = exchange.phases.arrived;
            let (id, head, route) = (exchange.id, Arc::clone(&exchange.head), exchange.route);
            let refused = Refused::unadmitted(unadmitted);
            let step = self.refuse(id, head.view(), route, exchange.request_bytes, refused);
            self.let_go(exchange);
            return step;
        }
        let pool = self
            .driver
            .shared
            .pools
            .get(usize::from(exchange.queue.pool));
        let absent = Absent {
            head: Arc::clone(&exchange.head),
            tail: Tail::absent(&exchange),
            timeout: pool.and_then(|pool| pool.request_timeout()),
        };
        let keep_alive = exchange.head().index.keep_alive && self.driver.serving();
        let mut job = Some(Job {
            exchange,
            door: Arc::clone(self.door()),
            keep_alive,
            first: self.first_way(absent.tail.route),
        });
        let mut wish = if self.buffer.is_empty() {
            Wish::Silent
        } else {
            Wish::Woken
        };
        // A look after a while: when the reply is out by then, the connection is idle and is to be watched
        // as such.
        let look = queued.plus(LOOK).plus(LOOK);
        let due = absent.timeout.map_or(look, |timeout| queued.plus(timeout));
        self.now_doing(Doing::Away, look.min(due));
        let returned = poll_fn(|context| {
            if let Some(job) = job.take() {
                self.door().turnstile.lend(wish, context);
                self.driver.hand_over(job);
            }
            self.poll_away(&absent, &mut wish, context)
        })
        .await;
        match returned {
            Ok(returned) => self.back(returned, &absent).await,
            Err(given @ Given::Cut(said)) => {
                self.end_absent(&absent, given, self.sent_by_pool(said))
            }
            Err(given @ Given::Overdue(said)) => {
                self.door().set_overdue();
                match said {
                    Said::Nothing => self.answer_overdue(&absent),
                    Said::Something => {
                        let sent_bytes = self.sent_by_pool(said);
                        if self.door().is_whole(sent_bytes) {
                            return self.end_answered(&absent, sent_bytes);
                        }
                        self.cut_off();
                        self.end_absent(&absent, given, sent_bytes)
                    }
                }
            }
        }
    }

    /// What the pool thread has sent of an exchange that was seized; the door's numbers are those of an earlier
    /// one while it has sent nothing.
    fn sent_by_pool(&self, said: Said) -> u64 {
        match said {
            Said::Nothing => 0,
            Said::Something => self.door().sent_bytes(),
        }
    }

    fn first_way(&self, route: u16) -> FirstWay {
        match self.driver.shared.rates.is_limited(route) {
            true => FirstWay::Driver,
            false => FirstWay::Socket,
        }
    }

    fn admit(&self, exchange: &Exchange) -> Result<(), Unadmitted> {
        let pool = &self.driver.shared.pools[usize::from(exchange.queue.pool)];
        pool.admit(exchange.queue.class)
    }

    /// Waits for the exchange to come back: by the client's next bytes when nobody needs to know earlier,
    /// else by a wake-up.
    fn poll_away(
        &self,
        absent: &Absent,
        wish: &mut Wish,
        context: &mut Context<'_>,
    ) -> Poll<Result<Returned, Given>> {
        let turnstile = &self.door().turnstile;
        let fired = self.take_fired();
        if fired == Some(Woken::Cut)
            && let Some(said) = turnstile.seize()
        {
            return Poll::Ready(Err(Given::Cut(said)));
        }
        // The reply may be long out. If it is not, it is to wake us from now on, and no look is needed.
        if fired.is_some() {
            *wish = Wish::Woken;
            let due = self.due(absent, measure::now());
            if due == Stamp::ZERO
                && let Some(said) = turnstile.seize()
            {
                return Poll::Ready(Err(Given::Overdue(said)));
            }
            let next = if due == Stamp::ZERO {
                Stamp::NEVER
            } else {
                due
            };
            self.now_doing(Doing::Away, next);
        }
        if let Some(returned) = turnstile.returned() {
            if fired == Some(Woken::Crowded) {
                self.still_crowded();
            }
            return Poll::Ready(Ok(returned));
        }
        // Readable (or failed): what the client sent waits in the socket until the reply is out.
        if *wish == Wish::Silent && self.io.poll_read_ready(context).is_pending() {
            return Poll::Pending;
        }
        *wish = Wish::Woken;
        turnstile.poll_return(context).map(Ok)
    }

    /// Its place is needed although it is back: the wait for the next request is to hear of it, or it would
    /// keep its place until the next look, and by then those that were idle for the longest time have asked
    /// again.
    fn still_crowded(&self) {
        if self.buffer.is_empty() {
            let mut table = self.driver.table.borrow_mut();
            table.mark_crowded(self.seat);
        }
    }

    /// When the time of the application is up: ZERO when it is, NEVER when there is no bound. An exchange that
    /// still waits for a thread has all of its time before it.
    fn due(&self, absent: &Absent, now: Stamp) -> Stamp {
        let Some(timeout) = absent.timeout else {
            return Stamp::NEVER;
        };
        let due = match self.started(absent) {
            Some(started) => started.plus(timeout),
            None => now.plus(timeout),
        };
        if due <= now { Stamp::ZERO } else { due }
    }

    /// When a pool thread took it, if one has.
    fn started(&self, absent: &Absent) -> Option<Stamp> {
        let started = self.door().started();
        (started >= absent.tail.phases.queued).then_some(started)
    }

    /// Answers in the place of the application, which is still at it: 504 (RFC 9110 section 15.6.5), and the
    /// end of the connection, whose door the pool thread still has.
    fn answer_overdue(&mut self, absent: &Absent) -> Step {
        let refused = Refused::because(504, OVERDUE);
        let mut phases = absent.tail.phases;
        phases.started = self.started(absent).unwrap_or(phases.queued);
        self.driver.stats().errors.add();
        let about = About {
            id: absent.tail.id,
            view: Some(absent.head.view()),
            line: b"",
            pool: absent.tail.pool,
            phases,
            route: absent.tail.route,
            request_bytes: absent.tail.request_bytes,
            ending: Ending::Refused,
            cause: OVERDUE,
            after: After::Linger,
        };
        self.answer(&about, refused.reply()).unwrap_or(Step::Linger)
    }

    async fn back(&mut self, returned: Returned, absent: &Absent) -> Step {
        match returned {
            Returned::Keep => {
                self.idle_since = self.door().delivered();
                self.door().turnstile.reclaim();
                Step::Receive
            }
            Returned::Close => Step::Leave,
            Returned::Flow => Box::pin(self.flow(absent)).await,
        }
    }

    /// Sends what a pool thread could not, until it has finished the reply and all is out.
    async fn flow(&mut self, absent: &Absent) -> Step {
        let mut chain = Chain::default();
        let (sent_before, rate) = {
            let flow = self.door().flow();
            (flow.sent_before, flow.rate)
        };
        let limit = self.limit(absent.tail.route, rate);
        let mut outflow = Outflow::new(self, limit, measure::now());
        let stop = loop {
            if chain.is_empty() {
                match self.next_of_flow(absent, &mut chain, &mut outflow).await {
                    Ok(Next::Parts) => {}
                    Ok(Next::Finished) => break None,
                    Err(stop) => break Some(stop),
                }
            }
            let before = chain.bytes();
            let sent = self.send_some(&mut chain, &mut outflow).await;
            self.made_room(before, chain.bytes());
            if let Err(stop) = sent {
                break Some(stop);
            }
        };
        self.keep_limit(&mut outflow, rate);
        self.discard(chain);
        self.end_flow(stop, sent_before + outflow.sent, absent)
            .await
    }

    fn made_room(&self, before: (usize, u64), after: (usize, u64)) {
        let mut flow = self.door().flow();
        flow.memory_bytes -= before.0 - after.0;
        flow.file_bytes -= before.1 - after.1;
        drop(flow);
        self.driver
            .shared
            .replies_memory
            .give_back(before.0 - after.0);
        self.door().made_room();
    }

    /// Waits for parts, or for the end of the reply.
    async fn next_of_flow(
        &self,
        absent: &Absent,
        chain: &mut Chain,
        outflow: &mut Outflow,
    ) -> Result<Next, Stop> {
        let mut is_held = false;
        let part = poll_fn(|context| {
            if self.take_fired() == Some(Woken::Cut) {
                return Poll::Ready(Err(Woken::Cut.stop()));
            }
            self.door().turnstile.watch(context);
            let due = self.due(absent, measure::now());
            let mut flow = self.door().flow();
            if due == Stamp::ZERO && flow.finished.is_none() {
                return Poll::Ready(Err(STOP_OVERDUE));
            }
            if !flow.chain.is_empty() {
                chain.append(&mut flow.chain);
                return Poll::Ready(Ok(Next::Parts));
            }
            if flow.finished.is_some() {
                return Poll::Ready(Ok(Next::Finished));
            }
            if !is_held {
                is_held = true;
                drop(flow);
                self.hold_outflow(outflow);
                self.now_doing(Doing::Sending, due);
            }
            Poll::Pending
        });
        let next = self.unless_reset(part).await?;
        if is_held {
            self.resume_outflow(outflow);
        }
        next
    }

    /// Ends the exchange of a flow once the pool thread is done with it; `given_up` when the client did
    /// not get everything.
    async fn end_flow(
        &mut self,
        mut given_up: Option<Stop>,
        sent_bytes: u64,
        absent: &Absent,
    ) -> Step {
        if given_up == Some(STOP_OVERDUE) && self.door().is_whole(sent_bytes) {
            if self.seize_flow() {
                self.door().set_overdue();
                return self.end_answered(absent, sent_bytes);
            }
            given_up = None;
        }
        if let Some(stop) = given_up {
            self.count_stop(stop);
            let unsent = {
                let mut flow = self.door().flow();
                flow.gone = true;
                std::mem::take(&mut flow.chain)
            };
            self.discard(unsent);
            self.door().made_room();
            self.cut_off();
        }
        let finished = match self.finished(absent).await {
            Ok(finished) => finished,
            Err(given) => return self.end_absent(absent, given, sent_bytes),
        };
        let keep_alive = finished.keep_alive;
        let mut tail = Tail::absent(&finished.exchange);
        tail.status = finished.status;
        tail.head_bytes = finished.head_bytes;
        tail.sent_bytes = sent_bytes;
        tail.ending = given_up.map_or(finished.ending, |stop| stop.ending);
        tail.cause = given_up.map_or(finished.cause, |stop| stop.cause);
        tail.phases.delivered = measure::now();
        self.idle_since = tail.phases.delivered;
        self.end(Some(finished.exchange.head()), b"", &tail);
        self.let_go(finished.exchange);
        if given_up.is_some() {
            return Step::Close;
        }
        if !keep_alive {
            return Step::Leave;
        }
        *self.door().flow() = crate::delivery::Flow::default();
        self.door().turnstile.reclaim();
        Step::Receive
    }

    /// Lets go of an exchange; closing the file of its body may wait for a disk.
    fn let_go(&self, exchange: Box<Exchange>) {
        if let Body::File { .. } = exchange.body {
            self.driver.shared.spoolers.discard(exchange);
        }
    }

    /// Whether the exchange of a flow was not finished yet; then it is this driver's to log.
    fn seize_flow(&self) -> bool {
        let mut flow = self.door().flow();
        flow.seized = flow.finished.is_none();
        flow.seized
    }

    /// Logs an exchange whose reply is out, while the application is still at it when its time is up. The client
    /// has what it asked for, and only the connection ends, whose door the pool thread still has.
    fn end_answered(&self, absent: &Absent, sent_bytes: u64) -> Step {
        let mut tail = absent.tail;
        let now = measure::now();
        tail.phases.started = self.started(absent).unwrap_or(tail.phases.queued);
        tail.phases.replied = now;
        tail.phases.delivered = now;
        (tail.status, tail.head_bytes) = (self.door().status(), self.door().head_bytes());
        (tail.sent_bytes, tail.ending) = (sent_bytes, Ending::Complete);
        self.end(Some(absent.head.view()), b"", &tail);
        Step::Linger
    }

    /// Logs an exchange that has not come back in time.
    fn end_absent(&self, absent: &Absent, given: Given, sent_bytes: u64) -> Step {
        let mut tail = absent.tail;
        let now = measure::now();
        // Taken by a pool thread, it ran until now; else it waited until now.
        tail.phases.started = self.started(absent).unwrap_or(now);
        tail.phases.replied = now;
        tail.phases.delivered = now;
        tail.sent_bytes = sent_bytes;
        if sent_bytes > 0 {
            (tail.status, tail.head_bytes) = (self.door().status(), self.door().head_bytes());
        }
        if let Given::Overdue(_) = given {
            self.driver.stats().errors.add();
            (tail.status, tail.ending, tail.cause) = (self.door().status(), Ending::Cut, OVERDUE);
        }
        self.end(Some(absent.head.view()), b"", &tail);
        Step::Close
    }

    /// The exchange, once the pool thread is done with it. It is given up at the drain deadline, and when the
    /// application's time is up.
    async fn finished(&self, absent: &Absent) -> Result<Finished, Given> {
        poll_fn(|context| {
            let is_cut = self.take_fired() == Some(Woken::Cut) || self.cutting();
            self.door().turnstile.watch(context);
            let due = self.due(absent, measure::now());
            self.now_doing(Doing::Sending, due);
            let mut flow = self.door().flow();
            if let Some(finished) = flow.finished.take() {
                return Poll::Ready(Ok(finished));
            }
            let given = match () {
                () if due == Stamp::ZERO => Given::Overdue(Said::Something),
                () if is_cut => Given::Cut(Said::Something),
                () => return Poll::Pending,
            };
            flow.seized = true;
            drop(flow);
            if let Given::Overdue(_) = given {
                self.door().set_overdue();
            }
            Poll::Ready(Err(given))
        })
        .await
    }
}

/// Why an exchange that is away is not waited for any longer.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Given {
    /// The drain deadline passed.
    Cut(Said),
    /// The application took longer than it may.
    Overdue(Said),
}

/// How a reply ends in its middle whose application took longer than it may.
const STOP_OVERDUE: Stop = Stop {
    ending: Ending::Cut,
    cause: OVERDUE,
};

enum Next {
    Parts,
    Finished,
}
