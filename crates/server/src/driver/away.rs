//! Away: an exchange is with the pool. The driver hands it over and goes on with other connections; it
//! hears of this one again when the reply is out and the client sends more, or when the socket was full.

use std::future::poll_fn;
use std::sync::Arc;
use std::task::{Context, Poll};

use measure::Stamp;
use wire::RequestHead;

use super::answer::Tail;
use super::connection::{Connection, Step, Woken};
use super::refused::Refused;
use super::sending::{LOOK, Outflow, Stop};
use crate::delivery::{Chain, Finished, FirstWay};
use crate::exchange::{Body, Exchange};
use crate::handover::{Returned, Wish};
use crate::pool::{Job, Pool};
use crate::stats::Doing;

/// What the connection keeps of an exchange that is away, for the log in case the drain deadline passes.
struct Absent {
    head: Arc<RequestHead>,
    tail: Tail,
}

impl Connection {
    /// Hands an exchange to the pool and waits for its reply to be out.
    pub(super) async fn away(&mut self, exchange: Box<Exchange>) -> Step {
        let Some(pool) = self.driver.shared.pool.clone() else {
            return Step::Close;
        };
        let queued = exchange.phases.queued;
        if let Err(retry_after_secs) = self.admit(&pool, queued) {
            self.arrived = exchange.phases.arrived;
            let (id, head, route) = (exchange.id, Arc::clone(&exchange.head), exchange.route);
            let refused = Refused::queue_full(retry_after_secs);
            let step = self.refuse(id, head.view(), route, exchange.request_bytes, refused);
            self.let_go(exchange);
            return step;
        }
        let absent = Absent {
            head: Arc::clone(&exchange.head),
            tail: Tail::absent(&exchange),
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
        self.now_doing(Doing::Away, queued.plus(LOOK).plus(LOOK));
        let returned = poll_fn(|context| {
            if let Some(job) = job.take() {
                self.door().turnstile.lend(wish, context);
                self.driver.hand_over(job);
            }
            self.poll_away(&mut wish, context)
        })
        .await;
        match returned {
            Ok(returned) => self.back(returned, &absent).await,
            Err(Cut) => self.end_absent(&absent),
        }
    }

    fn first_way(&self, route: u16) -> FirstWay {
        match self.driver.shared.rates.is_limited(route) {
            true => FirstWay::Driver,
            false => FirstWay::Socket,
        }
    }

    fn admit(&self, pool: &Pool, now: Stamp) -> Result<(), u32> {
        let mut watch = self.driver.drain_watch.borrow_mut();
        pool.admit(watch.look(pool, now))
    }

    /// Waits for the exchange to come back: by the client's next bytes when nobody needs to know earlier,
    /// else by a wake-up.
    fn poll_away(&self, wish: &mut Wish, context: &mut Context<'_>) -> Poll<Result<Returned, Cut>> {
        let turnstile = &self.door().turnstile;
        match self.take_fired() {
            Some(Woken::Cut) if turnstile.seize() => return Poll::Ready(Err(Cut)),
            // The reply may be long out. If it is not, it is to wake us from now on, and no look is needed.
            Some(_) => {
                *wish = Wish::Woken;
                self.now_doing(Doing::Away, Stamp::NEVER);
            }
            None => {}
        }
        if let Some(returned) = turnstile.returned() {
            return Poll::Ready(Ok(returned));
        }
        // Readable (or failed): what the client sent waits in the socket until the reply is out.
        if *wish == Wish::Silent && self.io.poll_read_ready(context).is_pending() {
            return Poll::Pending;
        }
        *wish = Wish::Woken;
        turnstile.poll_return(context).map(Ok)
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
                match self.next_of_flow(&mut chain, &mut outflow).await {
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
    async fn next_of_flow(&self, chain: &mut Chain, outflow: &mut Outflow) -> Result<Next, Stop> {
        let mut is_held = false;
        let part = poll_fn(|context| {
            if self.take_fired() == Some(Woken::Cut) {
                return Poll::Ready(Err(Woken::Cut.stop()));
            }
            self.door().turnstile.watch(context);
            let mut flow = self.door().flow();
            if !flow.chain.is_empty() {
                chain.append(&mut flow.chain);
                return Poll::Ready(Ok(Next::Parts));
            }
            if flow.finished.is_some() {
                return Poll::Ready(Ok(Next::Finished));
            }
            if !is_held {
                is_held = true;
                self.hold_outflow(outflow);
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
    async fn end_flow(&mut self, given_up: Option<Stop>, sent_bytes: u64, absent: &Absent) -> Step {
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
        self.now_doing(Doing::Sending, Stamp::NEVER);
        let Some(finished) = self.finished().await else {
            return self.end_absent(absent);
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

    /// Logs an exchange that has not come back by the drain deadline.
    fn end_absent(&self, absent: &Absent) -> Step {
        let mut tail = absent.tail;
        let now = measure::now();
        // Taken by a pool thread, it ran until now; else it waited until now.
        let started = self.door().started();
        let is_running = started >= tail.phases.queued;
        tail.phases.started = if is_running { started } else { now };
        tail.phases.replied = now;
        tail.phases.delivered = now;
        self.end(Some(absent.head.view()), b"", &tail);
        Step::Close
    }

    /// The exchange, once the pool thread is done with it. `None` when the drain deadline passed first.
    async fn finished(&self) -> Option<Finished> {
        poll_fn(|context| {
            let cut = self.take_fired() == Some(Woken::Cut) || self.cutting();
            self.door().turnstile.watch(context);
            let mut flow = self.door().flow();
            match flow.finished.take() {
                Some(finished) => Poll::Ready(Some(finished)),
                None if cut => {
                    flow.seized = true;
                    Poll::Ready(None)
                }
                None => Poll::Pending,
            }
        })
        .await
    }
}

/// The drain deadline passed.
struct Cut;

enum Next {
    Parts,
    Finished,
}
