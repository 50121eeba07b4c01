//! Upstreams: exchanges that servers elsewhere answer.
//!
//! An upstream group is a pool whose threads are elsewhere: exchanges wait in the pool's queue, under the same rules as
//! those for workers, until a server of the group has a free slot. Then a task of a driver sends the request and writes the
//! response, as a worker would, through a `ResponseWriter`; any driver may take any exchange. Neither a slow client nor a
//! slow upstream holds a driver.
//!
//! ```text
//! driver ── push ──► Queue ── a slot is free ──► task ── UpstreamConnection ──► server
//!                                                 │
//!                                                 └── ResponseWriter ──► client, or its driver
//! ```
//!
//! `group` knows the servers and counts their exchanges, `exchange` is the life of one at them: its tries, each of them a
//! `relay` of a `request` and its response over one `connection`. `idle` keeps connections between exchanges.

mod connection;
mod exchange;
mod fault;
mod group;
mod idle;
mod relay;
mod request;
mod run;

use std::cell::{Cell, RefCell};
use std::future::poll_fn;
use std::pin::pin;
use std::rc::Rc;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use files::Reply;
use http::FieldLines;
use logging::Level;
use queueing::Entry;
use telemetry::{Ending, Stamp};

use crate::driver::Driver;
use crate::exchange::stream::StreamEvent;
use crate::pool::{Assignment, Job, Pool, UpstreamWorker};
pub(crate) use group::UpstreamGroup;

use fault::UpstreamFault;
use group::UpstreamSlot;
use idle::IdleConnections;
use run::{UpstreamRun, UpstreamRuns};

/// How soon a queue is looked at again for which there was no slot, beside the looks when one becomes free: slots may
/// become free in another process, or by time.
const LOOK_AGAIN: Duration = Duration::from_millis(2);

/// One driver's ends of all upstream groups.
pub(crate) struct Upstreams {
    /// By the pool's index.
    by_pool: Vec<Option<DriverUpstream>>,
    running: UpstreamRuns,
}

/// One driver's end of one group.
struct DriverUpstream {
    group: Arc<UpstreamGroup>,
    worker: RefCell<UpstreamWorker>,
    idle: RefCell<IdleConnections>,
    /// The queue is looked at again soon.
    is_look_due: Cell<bool>,
    /// Used again from response to response.
    fields: Cell<FieldLines>,
}

/// Why an exchange ends without the rest of its response: nobody waits for it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Stopped {
    ClientGone,
    Overdue,
}

impl Upstreams {
    pub(crate) fn new(pools: &[Arc<Pool>]) -> Self {
        Self {
            by_pool: pools.iter().map(DriverUpstream::of_pool).collect(),
            running: UpstreamRuns::default(),
        }
    }

    /// Exchanges that this driver has at upstreams.
    pub(crate) fn running_len(&self) -> usize {
        self.running.len()
    }

    /// Acts on deadlines.
    pub(crate) fn look_at_deadlines(&self, now: Stamp) {
        self.running.fire_due(now);
        for own in self.by_pool.iter().flatten() {
            own.idle.borrow_mut().close_old(now);
        }
    }

    fn of_pool(&self, pool: usize) -> Option<&DriverUpstream> {
        self.by_pool[pool].as_ref()
    }

    fn own(&self, pool: usize) -> &DriverUpstream {
        let own = self.of_pool(pool);
        own.expect("an exchange of an upstream's pool")
    }
}

impl DriverUpstream {
    fn of_pool(pool: &Arc<Pool>) -> Option<Self> {
        let group = pool.upstream()?;
        let settings = &group.settings;
        let idle = IdleConnections::new(
            settings.servers.len(),
            settings.idle_max,
            settings.idle_timeout,
        );
        Some(Self {
            group: Arc::clone(group),
            worker: RefCell::new(UpstreamWorker::new(pool)),
            idle: RefCell::new(idle),
            is_look_due: Cell::new(false),
            fields: Cell::default(),
        })
    }
}

impl Driver {
    /// Has an upstream answer an exchange, if its pool is that of one; else gives it back.
    pub(crate) fn hand_to_upstream(
        self: &Rc<Self>,
        pool: usize,
        entry: Entry<Job>,
    ) -> Option<Entry<Job>> {
        let Some(own) = self.upstreams.of_pool(pool) else {
            return Some(entry);
        };
        own.worker.borrow().push(entry);
        self.begin_upstream_exchanges(pool);
        None
    }

    /// Begins as many waiting exchanges as there are free slots.
    fn begin_upstream_exchanges(self: &Rc<Self>, pool: usize) {
        let own = self.upstreams.own(pool);
        loop {
            let mut worker = own.worker.borrow_mut();
            if !worker.has_waiting() {
                return;
            }
            if worker.waits_for_log() {
                break;
            }
            let Some(slot) = own.group.take_slot(telemetry::now(), &[]) else {
                break;
            };
            let Some(assignment) = worker.take() else {
                // Those that wait are kept for others, or were taken by another driver.
                return;
            };
            drop(worker);
            let running = self.upstreams.running.enter();
            // Deadlines are looked at while there is something that has one.
            self.arrival.notify_one();
            let driver = Rc::clone(self);
            tokio::task::spawn_local(driver.serve_from_upstream(pool, assignment, slot, running));
        }
        self.look_again(pool);
    }

    /// Looks at a queue again soon.
    fn look_again(self: &Rc<Self>, pool: usize) {
        if self.upstreams.own(pool).is_look_due.replace(true) {
            return;
        }
        let driver = Rc::clone(self);
        tokio::task::spawn_local(async move {
            tokio::time::sleep(LOOK_AGAIN).await;
            driver.upstreams.own(pool).is_look_due.set(false);
            driver.begin_upstream_exchanges(pool);
        });
    }

    /// The life of one exchange at an upstream.
    async fn serve_from_upstream(
        self: Rc<Self>,
        pool: usize,
        mut assignment: Assignment,
        mut slot: UpstreamSlot,
        running: Rc<UpstreamRun>,
    ) {
        let own = self.upstreams.own(pool);
        UpstreamWorker::observe(&assignment, &running.observer());
        let ended = {
            let work = exchange::run(&self, own, &running, &mut assignment, &mut slot);
            let mut work = pin!(work);
            poll_fn(|context| {
                running.signals.listen(context);
                if running.signals.has(StreamEvent::Overdue) {
                    return Poll::Ready(Err(Stopped::Overdue));
                }
                if running.signals.has(StreamEvent::ClientGone) {
                    return Poll::Ready(Err(Stopped::ClientGone));
                }
                work.as_mut().poll(context).map(Ok)
            })
            .await
        };
        self.upstreams.running.leave(running);
        drop(slot);
        let mut worker = own.worker.borrow_mut();
        match ended {
            Ok(Ok(())) => worker.finish(assignment),
            Ok(Err(fault)) => end_without_response(&mut worker, assignment, fault),
            Err(Stopped::ClientGone) => worker.abandon(assignment, Ending::PeerGone),
            Err(Stopped::Overdue) => worker.abandon(assignment, Ending::Timeout),
        }
        drop(worker);
        self.begin_upstream_exchanges(pool);
        if !self.serving() && self.upstreams.running_len() == 0 {
            self.changed.notify_one();
        }
    }
}

/// The upstream gave no response, or not all of it.
fn end_without_response(worker: &mut UpstreamWorker, assignment: Assignment, fault: UpstreamFault) {
    let has_begun = assignment.writer.head_is_sent();
    worker.log(&assignment.exchange, Level::Error, fault.cause());
    let reply = Reply::refusal(fault.status(), None);
    worker.fail(assignment, reply, fault.ending(has_begun), fault.cause());
}
