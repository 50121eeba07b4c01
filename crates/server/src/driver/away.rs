//! Away: an exchange is with the pool. The driver hands it over and goes on with other connections; it
//! hears of this one again when the reply is out and the client sends more, or when the socket was full.

use std::future::poll_fn;
use std::sync::Arc;
use std::task::{Context, Poll};

use measure::{Ending, Stamp};
use wire::RequestHead;

use super::answer::Tail;
use super::connection::{Connection, Step, Woken};
use super::refused::Refused;
use crate::delivery::{Chain, Finished, Progress};
use crate::exchange::Exchange;
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
            let (head, route) = (Arc::clone(&exchange.head), exchange.route);
            let refused = Refused::queue_full(retry_after_secs);
            return self.refuse(head.view(), route, exchange.request_bytes, refused);
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
        });
        let mut wish = if self.buffer.is_empty() {
            Wish::Silent
        } else {
            Wish::Woken
        };
        self.now_doing(Doing::Away, queued.plus(self.driver.config().timeouts.idle));
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
            // The reply may be long out. If it is not, it is to wake us from now on.
            Some(_) => *wish = Wish::Woken,
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
            Returned::Flow => self.flow(absent).await,
        }
    }

    /// Sends what a pool thread could not, until it has finished the reply and all is out.
    async fn flow(&mut self, absent: &Absent) -> Step {
        let mut chain = Chain::default();
        let mut sent_bytes = self.door().flow().sent_before;
        self.deadline_in(Doing::Sending, self.driver.config().timeouts.send);
        let ending = loop {
            if chain.is_empty() {
                match self.next_of_flow(&mut chain).await {
                    Ok(Next::Parts) => {}
                    Ok(Next::Finished) => break None,
                    Err(woken) => break Some(woken.ending()),
                }
            }
            match self.send_flow(&mut chain) {
                Ok((progress, sent)) => {
                    sent_bytes += sent;
                    match progress {
                        Progress::Done => {}
                        Progress::More => tokio::task::yield_now().await,
                        Progress::Blocked => {
                            if let Err(woken) = self.writable().await {
                                break Some(woken.ending());
                            }
                        }
                    }
                }
                Err(ending) => break Some(ending),
            }
        };
        self.end_flow(ending, sent_bytes, absent).await
    }

    fn send_flow(&self, chain: &mut Chain) -> Result<(Progress, u64), Ending> {
        let before = chain.bytes();
        let (progress, sent) = self.send_chain(chain)?;
        let after = chain.bytes();
        let mut flow = self.door().flow();
        flow.memory_bytes -= before.0 - after.0;
        flow.file_bytes -= before.1 - after.1;
        drop(flow);
        self.door().made_room();
        Ok((progress, sent))
    }

    /// Waits for parts, or for the end of the reply.
    async fn next_of_flow(&self, chain: &mut Chain) -> Result<Next, Woken> {
        poll_fn(|context| {
            match self.take_fired() {
                Some(Woken::Cut) => return Poll::Ready(Err(Woken::Cut)),
                // Nothing waits to be sent: it is the application that is slow, not the client.
                Some(Woken::Deadline) => self.now_doing(Doing::Sending, Stamp::NEVER),
                _ => {}
            }
            self.door().turnstile.watch(context);
            let mut flow = self.door().flow();
            if !flow.chain.is_empty() {
                chain.append(&mut flow.chain);
                drop(flow);
                self.deadline_in(Doing::Sending, self.driver.config().timeouts.send);
                return Poll::Ready(Ok(Next::Parts));
            }
            if flow.finished.is_some() {
                return Poll::Ready(Ok(Next::Finished));
            }
            Poll::Pending
        })
        .await
    }

    /// Ends the exchange of a flow once the pool thread is done with it; `given_up` when the client did
    /// not get everything.
    async fn end_flow(
        &mut self,
        given_up: Option<Ending>,
        sent_bytes: u64,
        absent: &Absent,
    ) -> Step {
        if given_up.is_some() {
            self.door().flow().gone = true;
            self.door().made_room();
            self.abandon();
        }
        self.now_doing(Doing::Sending, Stamp::NEVER);
        let Some(finished) = self.finished().await else {
            return self.end_absent(absent);
        };
        let mut tail = Tail::absent(&finished.exchange);
        tail.status = finished.status;
        tail.head_bytes = finished.head_bytes;
        tail.sent_bytes = sent_bytes;
        tail.ending = given_up.unwrap_or(finished.ending);
        tail.cause = finished.cause;
        tail.phases.delivered = measure::now();
        self.end(Some(finished.exchange.head()), b"", &tail);
        if given_up.is_some() {
            return Step::Close;
        }
        if !finished.keep_alive {
            return Step::Leave;
        }
        *self.door().flow() = crate::delivery::Flow::default();
        self.door().turnstile.reclaim();
        Step::Receive
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
