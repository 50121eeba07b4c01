//! A snapshot of the counters: snapshots add up over processes and generations, and are written as JSON.
//!
//! The serde form keeps everything, the distributions included; the status page shows a few quantiles of each.

use serde::{Deserialize, Serialize};
use telemetry::{Nanos, Snapshot as HistogramSnapshot};

/// What one process, or many together, have counted.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct StatsSnapshot {
    /// By the driver's number.
    pub drivers: Vec<DriverSnapshot>,
    /// By the pool's name.
    pub pools: Vec<PoolSnapshot>,
    /// By the route's name.
    pub routes: Vec<RouteSnapshot>,
}

/// What one driver has counted, or all of the same number.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct DriverSnapshot {
    /// Its number.
    pub driver: usize,
    /// Connections accepted.
    pub accepted: u64,
    /// Complete requests received.
    pub received: u64,
    /// Requests whose body went to a file.
    pub spooled: u64,
    /// Heads that arrived in more than one piece.
    pub partial: u64,
    /// Requests refused for breaking the protocol or a limit, and connections that failed.
    pub errors: u64,
    /// Connections refused because their client had too many.
    pub crowded_clients: u64,
    /// Connections accepted and given to another driver of the process.
    pub balanced_out: u64,
    /// Connections that another driver of the process has accepted.
    pub balanced_in: u64,
    /// Connections accepted from the socket of a driver that did not come to it.
    pub stall_takeovers: u64,
    /// Connections that arrived on the processor that the driver is pinned to; only where they are steered so.
    pub local_cpu: u64,
    /// Gauge: the last heartbeat that was answered; of many, the last.
    pub heartbeat: u64,
    /// Gauge: open connections.
    pub open: u64,
    /// Connections that a deadline ended.
    pub timeouts: TimeoutCounts,
    /// Gauges: what the connections are doing.
    pub connections: ConnectionCounts,
}

/// Connections that a deadline ended, by what they were at.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[allow(missing_docs, reason = "the words are those of the time-outs")]
#[serde(default)]
pub struct TimeoutCounts {
    pub head: u64,
    pub body: u64,
    pub send: u64,
    pub idle: u64,
    pub evicted_idle: u64,
    /// Their responses were cut: `reply_memory_max` was used up, and their clients had taken nothing for longest.
    pub memory: u64,
}

/// Connections by what they are doing.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct ConnectionCounts {
    /// Idle between requests, or new and silent.
    pub idle: u64,
    /// Receiving a head or a body into memory.
    pub reading: u64,
    /// Receiving a body into a file.
    pub spooling: u64,
    /// With the pool.
    pub in_pool: u64,
    /// Sending a reply.
    pub sending: u64,
    /// Their last bytes are thrown away before they close.
    pub closing: u64,
}

/// What one pool has counted, or all of the same name.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct PoolSnapshot {
    /// Its name.
    pub name: String,
    /// Its figures.
    #[serde(flatten)]
    pub figures: PoolFigures,
}

/// A pool's figures.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct PoolFigures {
    /// Gauge: how hard it is: 0 calm, 1 saturated, 2 overloaded; of many, the hardest.
    pub pressure: u64,
    /// Gauge: threads that there are.
    pub threads: u64,
    /// Gauge: fewest threads that there are to be.
    pub threads_min: u64,
    /// Gauge: most threads that there may be.
    pub threads_max: u64,
    /// Gauge: threads asleep.
    pub idle: u64,
    /// Gauge: exchanges that threads are running.
    pub running: u64,
    /// Gauge: exchanges in the queue.
    pub waiting: u64,
    /// Gauge: exchanges that the queue takes.
    pub waiting_max: u64,
    /// Gauge: of a thousand parts of the threads' time at work, those in which they wait for the interpreter; of
    /// several processes the greatest. `None` where it is not measured: the pool's size is fixed, or nothing runs.
    pub gil_share_permille: Option<u64>,
    /// Exchanges that threads have finished.
    pub completed: u64,
    /// Exchanges refused because the queue was full.
    pub refused: u64,
    /// Exchanges refused because the pool was overloaded.
    pub shed: u64,
    /// Exchanges refused because they had waited too long for a thread.
    pub expired: u64,
    /// Streamed responses whose worker had to wait for the client.
    pub stream_waits: u64,
    /// Routes that were sent here because they are slow.
    pub routes_moved: u64,
    /// Those of them that have left again.
    pub routes_returned: u64,
    /// Threads that have begun.
    pub threads_started: u64,
    /// Threads that have ended, those that were lost included.
    pub threads_ended: u64,
}

/// How the exchanges of one route ended, or of all routes of the same name.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct RouteSnapshot {
    /// Its name.
    pub route: String,
    /// Exchanges without a reply.
    pub none: u64,
    /// Replies by the class of their status (RFC 9110 section 15).
    #[serde(rename = "1xx")]
    pub informational: u64,
    /// 2xx.
    #[serde(rename = "2xx")]
    pub successful: u64,
    /// 3xx.
    #[serde(rename = "3xx")]
    pub redirection: u64,
    /// 4xx.
    #[serde(rename = "4xx")]
    pub client_error: u64,
    /// 5xx.
    #[serde(rename = "5xx")]
    pub server_error: u64,
    /// Exchanges that ended neither complete nor refused.
    pub incomplete: u64,
    /// Bytes that the kernel took.
    pub sent_bytes: u64,
    /// How long its exchanges took.
    pub seconds: Seconds,
}

/// How long exchanges took, by phase.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Seconds {
    /// From arrival to the queue.
    pub receive: Distribution,
    /// In the queue.
    pub queue: Distribution,
    /// In the handler.
    pub run: Distribution,
    /// Until the last byte was taken.
    pub send: Distribution,
    /// All of it.
    pub total: Distribution,
    /// The part of the run spent waiting for the interpreter.
    pub gil: Distribution,
    /// The part of the run that was processor time.
    pub cpu: Distribution,
}

/// A distribution of durations. As JSON: the figures that people read, in seconds, and the exact ones with
/// all counts, which alone are read back.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(try_from = "WrittenDistribution", into = "WrittenDistribution")]
pub struct Distribution(pub HistogramSnapshot);

/// A distribution as JSON.
#[derive(Serialize, Deserialize)]
struct WrittenDistribution {
    #[serde(flatten, skip_deserializing)]
    figures: Figures,
    sum_ns: u64,
    min_ns: u64,
    max_ns: u64,
    /// Number and count of each bucket that is not empty.
    buckets: Vec<(u16, u64)>,
}

/// The status page.
#[derive(Serialize)]
struct StatusPage<'a, W, L> {
    drivers: &'a [DriverSnapshot],
    waiting: W,
    log: L,
    /// The first one, which was the only one once.
    pool: Option<&'a PoolFigures>,
    pools: &'a [PoolSnapshot],
    routes: Vec<ShownRoute<'a>>,
}

/// A route on the status page.
#[derive(Serialize)]
struct ShownRoute<'a> {
    route: &'a str,
    none: u64,
    #[serde(rename = "1xx")]
    informational: u64,
    #[serde(rename = "2xx")]
    successful: u64,
    #[serde(rename = "3xx")]
    redirection: u64,
    #[serde(rename = "4xx")]
    client_error: u64,
    #[serde(rename = "5xx")]
    server_error: u64,
    incomplete: u64,
    sent_bytes: u64,
    seconds: ShownSeconds,
}

#[derive(Serialize)]
struct ShownSeconds {
    receive: Figures,
    queue: Figures,
    run: Figures,
    send: Figures,
    total: Figures,
    gil: Figures,
    cpu: Figures,
}

/// What people read of a distribution; seconds.
#[derive(Default, Serialize)]
struct Figures {
    count: u64,
    mean: f64,
    p50: f64,
    p99: f64,
    max: f64,
}

impl StatsSnapshot {
    /// Adds what others have counted: drivers of the same number, pools and routes of the same name. Gauges are
    /// added too: of processes that have ended, use [`StatsSnapshot::without_gauges`].
    pub fn add(&mut self, other: &StatsSnapshot) {
        for theirs in &other.drivers {
            match self
                .drivers
                .iter_mut()
                .find(|ours| ours.driver == theirs.driver)
            {
                Some(ours) => ours.add(theirs),
                None => self.drivers.push(theirs.clone()),
            }
        }
        for theirs in &other.pools {
            match self.pools.iter_mut().find(|ours| ours.name == theirs.name) {
                Some(ours) => ours.figures.add(&theirs.figures),
                None => self.pools.push(theirs.clone()),
            }
        }
        for theirs in &other.routes {
            match self
                .routes
                .iter_mut()
                .find(|ours| ours.route == theirs.route)
            {
                Some(ours) => ours.add(theirs),
                None => self.routes.push(theirs.clone()),
            }
        }
    }

    /// Without what was only true at one time: of a process that has died, nothing of that is left.
    #[must_use]
    pub fn without_gauges(mut self) -> StatsSnapshot {
        for driver in &mut self.drivers {
            driver.heartbeat = 0;
            driver.open = 0;
            driver.connections = ConnectionCounts::default();
        }
        for pool in &mut self.pools {
            pool.figures = PoolFigures {
                completed: pool.figures.completed,
                refused: pool.figures.refused,
                shed: pool.figures.shed,
                expired: pool.figures.expired,
                stream_waits: pool.figures.stream_waits,
                routes_moved: pool.figures.routes_moved,
                routes_returned: pool.figures.routes_returned,
                threads_started: pool.figures.threads_started,
                threads_ended: pool.figures.threads_ended,
                ..PoolFigures::default()
            };
        }
        self
    }

    /// Exchanges under way, as far as is known: at least those when the gauges were published, which is a
    /// quarter of a second ago at most; a request that has been received since then and kills the process
    /// shows only as one without an end.
    pub fn under_way(&self) -> u64 {
        let doing = self.drivers.iter().map(|driver| &driver.connections);
        let published = doing
            .map(|doing| doing.reading + doing.spooling + doing.in_pool + doing.sending)
            .fold(0, u64::saturating_add);
        let received = self.drivers.iter().map(|driver| driver.received);
        let received = received.fold(0, u64::saturating_add);
        let endless = received.saturating_sub(self.exchanges());
        published.max(endless.min(self.open()))
    }

    /// Open connections.
    pub fn open(&self) -> u64 {
        let open = self.drivers.iter().map(|driver| driver.open);
        open.fold(0, u64::saturating_add)
    }

    /// Exchanges ended.
    pub fn exchanges(&self) -> u64 {
        self.routes
            .iter()
            .map(RouteSnapshot::exchanges)
            .fold(0, u64::saturating_add)
    }

    /// The status page: drivers, the first pool, all pools, and quantiles of routes. `waiting` and `log` are what the
    /// rest of the process says.
    pub fn page(&self, waiting: impl Serialize, log: impl Serialize) -> String {
        let page = StatusPage {
            drivers: &self.drivers,
            waiting,
            log,
            pool: self.pools.first().map(|pool| &pool.figures),
            pools: &self.pools,
            routes: self.routes.iter().map(RouteSnapshot::shown).collect(),
        };
        let mut text = serde_json::to_string(&page).expect("numbers by name are always JSON");
        text.push('\n');
        text
    }
}

/// Adds each to its partner.
fn add_each<const N: usize>(pairs: [(&mut u64, u64); N]) {
    for (ours, theirs) in pairs {
        *ours = ours.saturating_add(theirs);
    }
}

impl DriverSnapshot {
    fn add(&mut self, other: &DriverSnapshot) {
        self.heartbeat = self.heartbeat.max(other.heartbeat);
        add_each([
            (&mut self.accepted, other.accepted),
            (&mut self.received, other.received),
            (&mut self.spooled, other.spooled),
            (&mut self.partial, other.partial),
            (&mut self.errors, other.errors),
            (&mut self.crowded_clients, other.crowded_clients),
            (&mut self.balanced_out, other.balanced_out),
            (&mut self.balanced_in, other.balanced_in),
            (&mut self.stall_takeovers, other.stall_takeovers),
            (&mut self.local_cpu, other.local_cpu),
            (&mut self.open, other.open),
        ]);
        let (ours, theirs) = (&mut self.timeouts, &other.timeouts);
        add_each([
            (&mut ours.head, theirs.head),
            (&mut ours.body, theirs.body),
            (&mut ours.send, theirs.send),
            (&mut ours.idle, theirs.idle),
            (&mut ours.evicted_idle, theirs.evicted_idle),
            (&mut ours.memory, theirs.memory),
        ]);
        let (ours, theirs) = (&mut self.connections, &other.connections);
        add_each([
            (&mut ours.idle, theirs.idle),
            (&mut ours.reading, theirs.reading),
            (&mut ours.spooling, theirs.spooling),
            (&mut ours.in_pool, theirs.in_pool),
            (&mut ours.sending, theirs.sending),
            (&mut ours.closing, theirs.closing),
        ]);
    }
}

impl PoolFigures {
    fn add(&mut self, other: &PoolFigures) {
        self.pressure = self.pressure.max(other.pressure);
        add_each([
            (&mut self.threads, other.threads),
            (&mut self.threads_min, other.threads_min),
            (&mut self.threads_max, other.threads_max),
            (&mut self.idle, other.idle),
            (&mut self.running, other.running),
            (&mut self.waiting, other.waiting),
            (&mut self.waiting_max, other.waiting_max),
            (&mut self.completed, other.completed),
            (&mut self.refused, other.refused),
            (&mut self.shed, other.shed),
            (&mut self.expired, other.expired),
            (&mut self.stream_waits, other.stream_waits),
            (&mut self.routes_moved, other.routes_moved),
            (&mut self.routes_returned, other.routes_returned),
            (&mut self.threads_started, other.threads_started),
            (&mut self.threads_ended, other.threads_ended),
        ]);
        self.gil_share_permille = self.gil_share_permille.max(other.gil_share_permille);
    }
}

impl RouteSnapshot {
    /// Exchanges ended.
    pub fn exchanges(&self) -> u64 {
        let counts = [
            self.none,
            self.informational,
            self.successful,
            self.redirection,
            self.client_error,
            self.server_error,
        ];
        counts.into_iter().fold(0, u64::saturating_add)
    }

    fn add(&mut self, other: &RouteSnapshot) {
        add_each([
            (&mut self.none, other.none),
            (&mut self.informational, other.informational),
            (&mut self.successful, other.successful),
            (&mut self.redirection, other.redirection),
            (&mut self.client_error, other.client_error),
            (&mut self.server_error, other.server_error),
            (&mut self.incomplete, other.incomplete),
            (&mut self.sent_bytes, other.sent_bytes),
        ]);
        let (ours, theirs) = (&mut self.seconds, &other.seconds);
        ours.receive.0.merge(&theirs.receive.0);
        ours.queue.0.merge(&theirs.queue.0);
        ours.run.0.merge(&theirs.run.0);
        ours.send.0.merge(&theirs.send.0);
        ours.total.0.merge(&theirs.total.0);
        ours.gil.0.merge(&theirs.gil.0);
        ours.cpu.0.merge(&theirs.cpu.0);
    }

    fn shown(&self) -> ShownRoute<'_> {
        let of = |distribution: &Distribution| Figures::of(&distribution.0);
        ShownRoute {
            route: &self.route,
            none: self.none,
            informational: self.informational,
            successful: self.successful,
            redirection: self.redirection,
            client_error: self.client_error,
            server_error: self.server_error,
            incomplete: self.incomplete,
            sent_bytes: self.sent_bytes,
            seconds: ShownSeconds {
                receive: of(&self.seconds.receive),
                queue: of(&self.seconds.queue),
                run: of(&self.seconds.run),
                send: of(&self.seconds.send),
                total: of(&self.seconds.total),
                gil: of(&self.seconds.gil),
                cpu: of(&self.seconds.cpu),
            },
        }
    }
}

impl Figures {
    fn of(seen: &HistogramSnapshot) -> Figures {
        let quantile = |q| seen.quantile(q).as_secs_f64();
        Figures {
            count: seen.len(),
            mean: seen.mean().as_secs_f64(),
            p50: quantile(0.5),
            p99: quantile(0.99),
            max: seen.max().as_secs_f64(),
        }
    }
}

impl From<Distribution> for WrittenDistribution {
    fn from(distribution: Distribution) -> WrittenDistribution {
        let seen = distribution.0;
        WrittenDistribution {
            figures: Figures::of(&seen),
            sum_ns: seen.sum().0,
            min_ns: seen.min().0,
            max_ns: seen.max().0,
            buckets: seen.counts().collect(),
        }
    }
}

impl TryFrom<WrittenDistribution> for Distribution {
    type Error = &'static str;

    fn try_from(written: WrittenDistribution) -> Result<Distribution, &'static str> {
        let [sum, min, max] = [written.sum_ns, written.min_ns, written.max_ns].map(Nanos);
        let seen = HistogramSnapshot::from_counts(&written.buckets, sum, min, max);
        seen.map(Distribution)
            .ok_or("a distribution has no such bucket")
    }
}
