//! The clerk: what a thread needs to answer an exchange and to end it. Each seat has one, and the steward one
//! for each pool.
//!
//! Takes jobs from the queue, answers through the outlet, writes one record. Never waits for a client.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use bytes::Bytes;
use measure::{Ending, Stamp};

use super::{Job, Pool};
use crate::delivery::{Asked, Bounds, Close, Declared, Desk, Door, Finished, FirstWay, Outlet};
use crate::exchange::Exchange;
use crate::fault::Fault;
use crate::handover::Onward;
use crate::ledger::{Closing, Ledger, Outcome};
use crate::log::{Level, Patience};
use crate::pages::Pages;
use crate::reply::{Part, Reply, ReplyBody};

/// Why an exchange was refused that was in the queue.
const WAITED_TOO_LONG: &str = "waited too long for a thread";

/// One thread's tools to answer exchanges of a pool and to end them.
pub(super) struct Clerk {
    pub(super) pool: Arc<Pool>,
    desk: Desk,
    ledger: Ledger,
}

/// What is kept of a job while its exchange is with a handler.
pub(super) struct Held {
    pub(super) door: Arc<Door>,
    pub(super) keep_alive: bool,
    pub(super) first: FirstWay,
}

impl Clerk {
    pub(super) fn new(pool: Arc<Pool>) -> Self {
        let desk = Desk::new(&pool.config.headers)
            .naming(&pool.config.request_ids)
            .compressing(&pool.config.compression);
        let ledger = Ledger::new(&pool.log, Arc::clone(&pool.stats), Patience::Later);
        Self { pool, desk, ledger }
    }

    /// Answers one exchange by `answer`, which gives the reply's end.
    pub(super) fn answer(
        &mut self,
        exchange: &mut Exchange,
        held: &Held,
        answer: impl FnOnce(&mut Exchange, Outlet<'_>, &Pages) -> Close,
    ) -> Close {
        let view = exchange.head();
        let asked = Asked {
            version: view.index.version,
            is_head: view.is_head(),
            keep_alive: held.keep_alive,
            phases: exchange.phases,
            accepted: self.desk.accepted(view),
        };
        self.desk.name_exchange(exchange.id, Some(view));
        let config = &*self.pool.config;
        let bounds = Bounds {
            draining: &self.pool.draining,
            delivery: &config.delivery,
            memory: &self.pool.memory,
            first: held.first,
            spool: &config.spool,
            log: &self.pool.log,
        };
        let outlet = Outlet::new(&held.door, &mut self.desk, asked, bounds);
        answer(exchange, outlet, &self.pool.pages)
    }

    /// Tells an exchange that it has waited too long; it ends unless the drain deadline has ended it.
    pub(super) fn refuse(&mut self, job: Job, now: Stamp) {
        let (mut exchange, held) = job.part();
        if held.door.turnstile.is_seized() {
            return;
        }
        self.pool.counters.expired.fetch_add(1, Ordering::Relaxed);
        // One that has waited in front of the server may have come after the steward looked at the clock.
        let now = now.max(exchange.phases.queued);
        exchange.phases.started = now;
        held.door.set_started(now);
        let retry_after_secs =
            stage::retry_after_secs(self.pool.queue.len(), &self.pool.mood.load());
        let close = self.answer(&mut exchange, &held, |_, outlet, pages| {
            let mut reply = Reply::plain(503);
            let mut lines = reply.lines.to_vec();
            lines.extend_from_slice(format!("Retry-After: {retry_after_secs}\r\n").as_bytes());
            reply.lines = Bytes::from(lines);
            let close = give(outlet, reply, pages);
            match close.ending {
                Ending::Complete => Close {
                    ending: Ending::Refused,
                    cause: WAITED_TOO_LONG,
                    ..close
                },
                _ => close,
            }
        });
        self.end(exchange, &held.door, &close);
    }

    pub(super) fn report(&self, exchange: &Exchange, fault: Option<&Fault>, close: &Close) {
        let text = match fault {
            Some(Fault::Peer(_) | Fault::Overdue) => return,
            Some(fault) => fault.to_string(),
            None if close.ending == Ending::Cut => close.cause.to_owned(),
            None => return,
        };
        let text = format!("{}: {text}", exchange.name());
        self.pool.log.error_from_pool(Level::Error, &text);
    }

    /// Gives the connection back to its driver, or the rest of the reply with it, and ends the exchange.
    pub(super) fn end(&self, mut exchange: Box<Exchange>, door: &Arc<Door>, close: &Close) {
        exchange.phases.replied = close.replied;
        if close.flowing {
            let finished = Finished {
                exchange,
                status: close.status,
                head_bytes: close.head_bytes,
                keep_alive: close.keep_alive,
                ending: close.ending,
                cause: close.cause,
            };
            // What is given back unused is dropped behind the lock: it may hold the file of a body.
            let seized = door.finish(finished);
            if seized.is_none() {
                door.turnstile.wake();
            }
            return;
        }
        exchange.phases.delivered = close.delivered;
        door.set_delivered(close.delivered);
        if door.turnstile.end().is_err() {
            // The drain deadline passed: the driver has ended this exchange.
            return;
        }
        self.log(&exchange, close);
        let onward = if close.keep_alive {
            Onward::Keep
        } else {
            Onward::Close
        };
        door.turnstile.give_back(onward);
    }

    fn log(&self, exchange: &Exchange, close: &Close) {
        self.ledger.close(&Closing {
            id: exchange.id,
            pool: Some(exchange.queue.pool),
            head: Some(exchange.head()),
            request_line: b"",
            ends: &exchange.ends,
            phases: &exchange.phases,
            queued: exchange.queue.queued,
            route: exchange.route,
            driver: exchange.driver,
            request_bytes: exchange.request_bytes,
            outcome: Outcome {
                status: close.status,
                sent_bytes: close.sent_bytes,
                head_bytes: close.head_bytes,
                ending: close.ending,
                cause: close.cause,
            },
        });
    }
}

impl Job {
    pub(super) fn part(self) -> (Box<Exchange>, Held) {
        let Job {
            exchange,
            door,
            keep_alive,
            first,
        } = self;
        let held = Held {
            door,
            keep_alive,
            first,
        };
        (exchange, held)
    }
}

/// Ends the reply of an exchange that failed: a plain page when nothing has been sent, else a cut.
pub(super) fn give_up(outlet: Outlet<'_>, fault: &Fault, pages: &Pages) -> Close {
    if outlet.head_is_sent() {
        return outlet.broken("the application failed while its reply was being sent");
    }
    give(outlet, Reply::plain(fault.status()), pages)
}

/// Gives a reply of the house.
fn give(mut outlet: Outlet<'_>, reply: Reply, pages: &Pages) -> Close {
    let Reply {
        status,
        lines,
        body,
    } = pages.dress(reply, None);
    let body = match body {
        ReplyBody::One(Part::Memory(body)) => body,
        _ => Bytes::new(),
    };
    let out = outlet.begin(status, wire::reason(status).as_bytes());
    out.extend_from_slice(&lines);
    outlet.declare(Declared {
        content_length: Some(body.len() as u64),
        ..Declared::default()
    });
    outlet.whole(&body);
    outlet.close()
}
