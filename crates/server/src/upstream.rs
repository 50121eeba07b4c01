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
//! `relay` of a `request` and its response over one `connection`. `idle` keeps connections between exchanges. Where the
//! servers speak HTTP/2, a relay goes over an `http2_stream`, of which a connection of `http2` carries many.

mod check;
mod connect;
mod connection;
mod counters;
mod exchange;
mod fault;
mod forward_auth;
mod given_body;
mod group;
mod http2;
mod http2_relay;
mod http2_stream;
mod idle;
mod own_fields;
mod placing;
mod relay;
mod request;
mod resolver;
mod run;

use std::cell::{Cell, RefCell};
use std::future::poll_fn;
use std::pin::pin;
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use config::typed::{Config, Upstream, UpstreamProtocol};
use files::Reply;
use http::FieldLines;
use logging::Level;
use queueing::Entry;
use queueing::balancing::Outcome;
use telemetry::{Ending, Nanos, Stamp};

use crate::driver::Driver;
use crate::exchange::stream::StreamEvent;
use crate::pool::{Assignment, Job, Pool, UpstreamWorker};
use crate::tunnel::Tunnel;
pub(crate) use connection::{UnwatchedConnection, UpstreamConnection};
pub(crate) use forward_auth::Denial;
pub(crate) use group::UpstreamGroup;
pub(crate) use resolver::start_resolvers;

use exchange::{Answered, Switched, UpstreamExchange};
use fault::UpstreamFault;
use group::{NoSlot, PlacingKey, UpstreamSlot};
use http2::Http2Connections;
use idle::IdleConnections;
use run::{AssignedRun, UpstreamRun, UpstreamRuns};

/// How soon a queue is looked at again for which there was no slot, beside the looks when one becomes free: slots may
/// become free in another process, or by time.
const LOOK_AGAIN: Duration = Duration::from_millis(2);

/// Names of all servers, as the log knows them by number.
pub(crate) fn server_names(config: &Config) -> Vec<String> {
    let servers = config.upstreams.iter().flat_map(|one| &one.servers);
    servers.map(|server| server.address.to_string()).collect()
}

/// One driver's ends of all upstream groups.
pub(crate) struct Upstreams {
    /// By the pool's index.
    by_pool: Vec<Option<DriverUpstream>>,
    runs: UpstreamRuns,
}

/// One driver's end of one group.
struct DriverUpstream {
    /// Index of its pool.
    pool: usize,
    group: Arc<UpstreamGroup>,
    worker: RefCell<UpstreamWorker>,
    /// Longest wait for a slot.
    queue_timeout: Nanos,
    /// By server: what Host says where a client says nothing.
    authorities: Vec<String>,
    idle: RefCell<IdleConnections>,
    /// Where the servers speak HTTP/2.
    http2: Option<Rc<Http2Connections>>,
    /// The queue is looked at again soon.
    is_look_due: Cell<bool>,
    /// Exchanges that wait for a certain slot, or for one after a failed try. They come before those in the queue.
    waiting: RefCell<Vec<Waker>>,
    /// Used again from response to response.
    fields: Cell<FieldLines>,
}

/// Why an exchange ends without the rest of its response: nobody waits for it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Stopped {
    ClientGone,
    Overdue,
    Drained,
}

impl Upstreams {
    /// `head_bytes_max` bounds the heads of responses.
    pub(crate) fn new(pools: &[Arc<Pool>], head_bytes_max: usize) -> Self {
        let of_pool = |pool| DriverUpstream::of_pool(pool, head_bytes_max);
        Self {
            by_pool: pools.iter().map(of_pool).collect(),
            runs: UpstreamRuns::default(),
        }
    }

    /// Exchanges that this driver has at upstreams.
    pub(crate) fn running_len(&self) -> usize {
        self.runs.len()
    }

    /// The process drains: ends what has no end of its own within `drain`.
    pub(crate) fn drain(&self, now: Stamp, drain: Nanos) {
        self.runs.drain(now, drain);
    }

    /// Whether there is nothing that has a deadline: neither an exchange nor an idle connection.
    pub(crate) fn is_at_rest(&self) -> bool {
        let has_idle = |own: &DriverUpstream| {
            let http2 = own.http2.as_ref();
            !own.idle.borrow().is_empty() || http2.is_some_and(|http2| !http2.is_empty())
        };
        self.running_len() == 0 && !self.by_pool.iter().flatten().any(has_idle)
    }

    /// Acts on deadlines.
    pub(crate) fn look_at_deadlines(&self, now: Stamp) {
        self.runs.fire_due(now);
        for own in self.by_pool.iter().flatten() {
            own.idle.borrow_mut().close_old(now);
            if let Some(http2) = &own.http2 {
                http2.close_old(now);
            }
        }
    }

    /// The time of the process is up.
    pub(crate) fn stop_all(&self) {
        self.runs.stop_all();
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
    fn of_pool(pool: &Arc<Pool>, head_bytes_max: usize) -> Option<Self> {
        let group = pool.upstream()?;
        let settings = &group.settings;
        let servers = settings.servers.iter();
        Some(Self {
            pool: settings.pool,
            authorities: servers.map(|server| server.authority()).collect(),
            queue_timeout: pool.queue_timeout(),
            worker: RefCell::new(UpstreamWorker::new(pool)),
            idle: RefCell::new(IdleConnections::new(
                settings.idle_max,
                settings.idle_timeout,
            )),
            http2: (settings.protocol == UpstreamProtocol::Http2)
                .then(|| Http2Connections::new(group, head_bytes_max)),
            is_look_due: Cell::new(false),
            waiting: RefCell::default(),
            fields: Cell::default(),
            group: Arc::clone(group),
        })
    }

    /// Host and port of a server.
    fn authority(&self, server: usize) -> &str {
        &self.authorities[server]
    }

    /// The task of `context` is woken when there may be a slot.
    fn wait_for_slot(&self, context: &Context<'_>) {
        self.waiting.borrow_mut().push(context.waker().clone());
    }

    /// Wakes those that have waited in the queue already; whether there are any.
    fn wake_waiting(&self) -> bool {
        // The tasks run later: they may wait again.
        let waiting = std::mem::take(&mut *self.waiting.borrow_mut());
        let has_some = !waiting.is_empty();
        waiting.into_iter().for_each(Waker::wake);
        has_some
    }

    /// The next exchange with its slot, as far as there is one.
    fn next(&self) -> NextExchange {
        let mut worker = self.worker.borrow_mut();
        let waiting = worker.waiting_len();
        if waiting == 0 {
            self.group.none_waits();
            return NextExchange::None;
        }
        let now = telemetry::now();
        if worker.waits_for_log() {
            return NextExchange::Later;
        }
        let slot = match self.group.is_keyed() {
            true if !self.group.has_free(now) => return NextExchange::Later,
            true => None,
            false => {
                let key = PlacingKey::default();
                match self.group.take_slot(now, &[], &key, waiting - 1) {
                    Ok(slot) => Some(slot),
                    Err(NoSlot::Busy) => return NextExchange::Later,
                    // It is told so.
                    Err(NoSlot::Nobody) => None,
                }
            }
        };
        match worker.take(now) {
            Some(assignment) => NextExchange::Begin(assignment, slot),
            // Those that wait are kept for others, or were taken by another driver.
            None => NextExchange::None,
        }
    }
}

/// What there is for a driver to begin.
enum NextExchange {
    /// This exchange, with its slot where it does not depend on the request.
    Begin(Assignment, Option<UpstreamSlot>),
    /// Nothing now, but exchanges wait.
    Later,
    /// Nothing.
    None,
}

impl Driver {
    /// Keeps addresses and checks of all groups true; one driver of a process does.
    pub(crate) fn look_after_upstreams(self: &Rc<Self>) {
        for own in self.upstreams.by_pool.iter().flatten() {
            let resolving = Rc::clone(self).keep_resolving(Arc::clone(&own.group));
            tokio::task::spawn_local(resolving);
            tokio::task::spawn_local(Rc::clone(self).keep_checking(Arc::clone(&own.group)));
        }
    }

    /// Has an upstream answer an exchange, if its pool is that of one; else gives it back.
    pub(crate) fn hand_to_upstream(
        self: &Rc<Self>,
        pool: usize,
        entry: Entry<Job>,
    ) -> Option<Entry<Job>> {
        let Some(own) = self.upstreams.of_pool(pool) else {
            return Some(entry);
        };
        own.worker.borrow_mut().push(entry);
        self.begin_upstream_exchanges(own);
        None
    }

    /// Begins as many waiting exchanges as there are free slots.
    fn begin_upstream_exchanges(self: &Rc<Self>, own: &DriverUpstream) {
        loop {
            match own.next() {
                NextExchange::Begin(assignment, slot) => {
                    let pool = own.pool;
                    let assigned = AssignedRun {
                        pool,
                        assignment,
                        slot,
                    };
                    // Deadlines are looked at while there is something that has one.
                    self.arrival.notify_one();
                    if let Some(run) = self.upstreams.runs.begin(assigned) {
                        tokio::task::spawn_local(Rc::clone(self).serve_from_upstreams(run));
                    }
                }
                NextExchange::Later => return self.look_again(own.pool),
                NextExchange::None => return,
            }
        }
    }

    /// Looks at a queue again soon.
    fn look_again(self: &Rc<Self>, pool: usize) {
        if self.upstreams.own(pool).is_look_due.replace(true) {
            return;
        }
        let driver = Rc::clone(self);
        tokio::task::spawn_local(async move {
            tokio::time::sleep(LOOK_AGAIN).await;
            let own = driver.upstreams.own(pool);
            own.is_look_due.set(false);
            driver.look_for_exchanges(own);
        });
    }

    /// A slot may be free: those look first that have waited in the queue already.
    fn look_for_exchanges(self: &Rc<Self>, own: &DriverUpstream) {
        if !own.wake_waiting() {
            return self.begin_upstream_exchanges(own);
        }
        let (driver, pool) = (Rc::clone(self), own.pool);
        // Tasks run in the order in which they were woken.
        tokio::task::spawn_local(async move {
            driver.begin_upstream_exchanges(driver.upstreams.own(pool));
        });
    }

    /// A task that serves one exchange after the other.
    async fn serve_from_upstreams(self: Rc<Self>, run: Rc<UpstreamRun>) {
        while let Some(assigned) = run.next().await {
            self.serve_from_upstream(assigned, &run).await;
        }
    }

    /// The life of one exchange at an upstream.
    async fn serve_from_upstream(self: &Rc<Self>, assigned: AssignedRun, run: &Rc<UpstreamRun>) {
        let AssignedRun {
            pool,
            mut assignment,
            mut slot,
        } = assigned;
        let own = self.upstreams.own(pool);
        UpstreamWorker::observe(&assignment, &run.observer());
        let ended = {
            let exchange = UpstreamExchange {
                driver: self,
                own,
                run,
                assignment: &mut assignment,
                slot: &mut slot,
                tried: Vec::new(),
                failed: 0,
                status: 0,
                full: None,
                upgrade: None,
            };
            let mut work = pin!(exchange.run());
            poll_fn(|context| {
                run.signals.listen(context);
                if run.signals.has(StreamEvent::Overdue) {
                    return Poll::Ready(Err(Stopped::Overdue));
                }
                if run.signals.has(StreamEvent::ClientGone) {
                    return Poll::Ready(Err(Stopped::ClientGone));
                }
                if run.signals.has(StreamEvent::Drained) {
                    return Poll::Ready(Err(Stopped::Drained));
                }
                work.as_mut().poll(context).map(Ok)
            })
            .await
        };
        self.upstreams.runs.leave(run);
        if let (Err(_), Some(slot)) = (&ended, &slot) {
            slot.ended(telemetry::now(), Outcome::Abandoned);
        }
        drop(slot);
        let mut worker = own.worker.borrow_mut();
        match ended {
            Ok(Ok(Answered::Response)) => worker.finish(assignment),
            Ok(Ok(Answered::Switched(switched))) => {
                begin_tunnel(&mut worker, assignment, switched, &own.group.settings);
            }
            Ok(Err(UpstreamFault::Unwanted)) => worker.abandon(assignment, Ending::PeerGone),
            Ok(Err(fault)) => {
                end_without_response(&mut worker, assignment, fault, &own.group.settings);
            }
            Err(Stopped::ClientGone) => worker.abandon(assignment, Ending::PeerGone),
            Err(Stopped::Overdue) => worker.abandon(assignment, Ending::Timeout),
            Err(Stopped::Drained) => worker.abandon(assignment, Ending::Shutdown),
        }
        drop(worker);
        self.look_for_exchanges(own);
        if !self.serving() && self.upstreams.running_len() == 0 {
            self.changed.notify_one();
        }
    }
}

/// The upstream has changed the protocol: the client's driver has the rest.
fn begin_tunnel(
    worker: &mut UpstreamWorker,
    assignment: Assignment,
    switched: Switched,
    settings: &Upstream,
) {
    let Switched {
        connection,
        fields,
        rest,
        permit,
    } = switched;
    match connection.unwatch() {
        Ok(upstream) => {
            worker.begin_tunnel(assignment, fields, rest, |exchange, head, first| Tunnel {
                exchange,
                upstream,
                head,
                first,
                idle: settings.tunnel_idle,
                permit,
            });
        }
        Err(_) => end_without_response(worker, assignment, UpstreamFault::Closed, settings),
    }
}

/// The upstream gave no response, or not all of it.
fn end_without_response(
    worker: &mut UpstreamWorker,
    assignment: Assignment,
    fault: UpstreamFault,
    settings: &Upstream,
) {
    let has_begun = assignment.writer.head_is_sent();
    let facts = &assignment.exchange.record.upstream;
    let asked = worker.upstream_name(facts);
    let text = asked.map_or_else(
        || fault.cause().to_owned(),
        |server| format!("{} ({server})", fault.cause()),
    );
    worker.log(&assignment.exchange, Level::Error, &text);
    let reply = fault_reply(fault, settings);
    worker.fail(assignment, reply, fault.ending(has_begun), fault.cause());
}

/// The response in the place of one that did not come.
fn fault_reply(fault: UpstreamFault, settings: &Upstream) -> Reply {
    // Both may be otherwise in a moment.
    let retry_after_secs = (fault.status() == 503).then_some(1);
    let error = fault.error_type().filter(|_| settings.says_proxy_status);
    Reply::refusal_with(fault.status(), |fields| {
        if let Some(secs) = retry_after_secs {
            fields.push_decimal(b"Retry-After", secs);
        }
        if let Some(error) = error {
            fields.push_parts(b"Proxy-Status", &[b"milepost; error=", error.as_bytes()]);
        }
    })
}
