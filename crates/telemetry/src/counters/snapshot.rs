//! A snapshot of the counters: snapshots add up over processes and generations, and are written as JSON.
//!
//! The serde form keeps everything, the distributions included; the status page shows a few quantiles of each.

use crate::{Nanos, PerPhase, Snapshot as HistogramSnapshot};
use serde::{Deserialize, Serialize};

use super::requests::add_series;
use super::{
    ConnectionCounts, DriverFigures, EventLoopFigures, LogSnapshot, PoolFigures, RequestSeries,
    RouteCounters, RouteFigures, SpoolFigures, StatsSum, TimeoutCounts, UpstreamSnapshot,
};

/// What one process, or many together, have counted.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct StatsSnapshot {
    /// By the driver's number.
    pub drivers: Vec<DriverSnapshot>,
    /// By the pool's name.
    pub pools: Vec<PoolSnapshot>,
    /// The event loops, together.
    #[serde(default)]
    pub event_loop: EventLoopFigures,
    /// By the route's name.
    pub routes: Vec<RouteSnapshot>,
    /// By group and server.
    #[serde(default)]
    pub upstreams: Vec<UpstreamSnapshot>,
    /// By name.
    #[serde(default)]
    pub logs: Vec<LogSnapshot>,
    /// The folder of request bodies and waiting responses, of all processes together.
    #[serde(default)]
    pub spool: SpoolFigures,
}

/// What one driver has counted, or all of the same number.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct DriverSnapshot {
    /// Its number.
    pub driver: usize,
    /// Its figures.
    #[serde(flatten)]
    pub figures: DriverFigures,
    /// Gauge: open connections.
    pub open: u64,
    /// Connections that a deadline ended.
    pub timeouts: TimeoutCounts,
    /// Gauges: what the connections are doing.
    pub connections: ConnectionCounts,
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

/// How the exchanges of one route ended, or of all routes of the same name.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct RouteSnapshot {
    /// Its name.
    pub route: String,
    /// Its figures.
    #[serde(flatten)]
    pub figures: RouteFigures,
    /// How long its exchanges took.
    pub seconds: PerPhase<Distribution>,
    /// Whole durations by method, scheme and status, in coarser buckets.
    pub requests: Vec<RequestSeries>,
}

/// TLS handshakes of all drivers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct HandshakeTotals {
    /// Made in full.
    pub full: u64,
    /// Those that resumed an earlier session.
    pub resumed: u64,
    /// Those that failed.
    pub failed: u64,
    /// Those that were refused because too many others waited.
    pub refused: u64,
    /// Seconds of processor time that one took, on average.
    pub mean_cpu_seconds: f64,
}

/// A distribution of durations. As JSON: the figures that people read, in seconds, and the exact ones with
/// all counts, which alone are read back.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
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
struct StatusPage<'a, W, L, C> {
    drivers: &'a [DriverSnapshot],
    waiting: W,
    log: L,
    /// The first one, which was the only one once.
    pool: Option<&'a PoolFigures>,
    pools: &'a [PoolSnapshot],
    event_loop: Option<&'a EventLoopFigures>,
    handshakes: HandshakeTotals,
    certificates: C,
    routes: Vec<ShownRoute<'a>>,
}

/// A route on the status page.
#[derive(Serialize)]
struct ShownRoute<'a> {
    route: &'a str,
    #[serde(flatten)]
    figures: &'a RouteFigures,
    seconds: PerPhase<Figures>,
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
        let mut sum = StatsSum::from(std::mem::take(self));
        sum.add(other);
        *self = sum.finish();
    }

    /// Without what was only true at one time: of a process that has died, nothing of that is left.
    #[must_use]
    pub fn without_gauges(mut self) -> StatsSnapshot {
        for driver in &mut self.drivers {
            driver.figures.forget_gauges();
            driver.open = 0;
            driver.connections = ConnectionCounts::default();
        }
        for pool in &mut self.pools {
            pool.figures.forget_gauges();
        }
        self.event_loop.forget_gauges();
        for route in &mut self.routes {
            route.figures.forget_gauges();
        }
        for server in &mut self.upstreams {
            server.figures.forget_gauges();
        }
        for log in &mut self.logs {
            log.figures.forget_gauges();
        }
        self.spool.forget_gauges();
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
        let received = self.drivers.iter().map(|driver| driver.figures.received);
        let received = received.fold(0, u64::saturating_add);
        // Requests that have no end yet, bounded by the connections that could have them.
        let endless = received.saturating_sub(self.exchanges());
        published.max(endless.min(self.open()))
    }

    /// All drivers together.
    pub fn all_drivers(&self) -> DriverSnapshot {
        let mut all = DriverSnapshot::default();
        self.drivers.iter().for_each(|driver| all.add(driver));
        all
    }

    /// Open connections.
    pub fn open(&self) -> u64 {
        let open = self.drivers.iter().map(|driver| driver.open);
        open.fold(0, u64::saturating_add)
    }

    /// Exchanges ended.
    pub fn exchanges(&self) -> u64 {
        let counts = self.routes.iter().map(|route| route.figures.exchanges());
        counts.fold(0, u64::saturating_add)
    }

    /// TLS handshakes.
    pub fn handshakes(&self) -> HandshakeTotals {
        let sum = |of: fn(&DriverFigures) -> u64| {
            let all = self.drivers.iter().map(|driver| of(&driver.figures));
            all.fold(0, u64::saturating_add)
        };
        let (full, resumed) = (sum(|one| one.handshakes), sum(|one| one.handshakes_resumed));
        let failed = sum(|one| one.handshakes_failed);
        let ended = full.saturating_add(resumed).saturating_add(failed);
        let took = Nanos(sum(|one| one.handshake_cpu_ns)).as_secs_f64();
        HandshakeTotals {
            full,
            resumed,
            failed,
            refused: sum(|one| one.handshakes_refused),
            mean_cpu_seconds: if ended == 0 { 0.0 } else { took / ended as f64 },
        }
    }

    /// The status page: drivers, the first pool, all pools, TLS, and quantiles of routes. `waiting`, `log` and
    /// `certificates` are what the rest of the process says.
    pub fn page(
        &self,
        waiting: impl Serialize,
        log: impl Serialize,
        certificates: impl Serialize,
    ) -> String {
        let page = StatusPage {
            drivers: &self.drivers,
            waiting,
            log,
            pool: self.pools.first().map(|pool| &pool.figures),
            pools: &self.pools,
            event_loop: Some(&self.event_loop).filter(|figures| figures.is_there()),
            handshakes: self.handshakes(),
            certificates,
            routes: self.routes.iter().map(RouteSnapshot::shown).collect(),
        };
        let mut text = serde_json::to_string(&page).expect("numbers by name are always JSON");
        text.push('\n');
        text
    }
}

impl DriverSnapshot {
    pub(super) fn add(&mut self, other: &DriverSnapshot) {
        self.figures.add(&other.figures);
        self.open = self.open.saturating_add(other.open);
        self.timeouts.add(&other.timeouts);
        self.connections.add(&other.connections);
    }
}

impl RouteFigures {
    /// Exchanges ended.
    pub fn exchanges(&self) -> u64 {
        let counts = self.by_class().map(|(_, count)| count);
        counts.into_iter().fold(0, u64::saturating_add)
    }

    /// Exchanges ended, by the class of their status.
    pub(super) fn by_class(&self) -> [(&'static str, u64); 6] {
        [
            ("none", self.none),
            ("1xx", self.informational),
            ("2xx", self.successful),
            ("3xx", self.redirection),
            ("4xx", self.client_error),
            ("5xx", self.server_error),
        ]
    }
}

impl RouteSnapshot {
    /// Nothing of a route with this name.
    pub(super) fn named(name: &str) -> RouteSnapshot {
        RouteSnapshot {
            route: name.to_owned(),
            ..RouteSnapshot::default()
        }
    }

    pub(super) fn add(&mut self, other: &RouteSnapshot) {
        self.figures.add(&other.figures);
        for (ours, theirs) in self
            .seconds
            .each_mut()
            .into_iter()
            .zip(other.seconds.each())
        {
            ours.0.merge(&theirs.0);
        }
        add_series(&mut self.requests, &other.requests);
    }

    /// Adds what a process has counted of it.
    pub(super) fn add_counted(&mut self, counters: RouteCounters<'_>) {
        let figures = counters.stats.numbers();
        // Most of many routes have had no request: their distributions take thousands of pages that nobody has touched.
        if figures.exchanges() > 0 {
            let durations = counters.durations;
            durations.phases.add_to(&mut self.seconds);
            durations.requests.add_to(&mut self.requests);
        }
        self.figures.add(&figures);
    }

    /// Whole durations are counted by their labels alone: those of the route are all series together.
    pub(super) fn sum_series(&mut self) {
        let mut total = HistogramSnapshot::default();
        for series in &self.requests {
            total.merge(&series.durations.0);
        }
        self.seconds.total.0 = total;
    }

    /// The distributions of the phases, by name.
    pub(super) fn phases(&self) -> [(&'static str, &HistogramSnapshot); 6] {
        let seconds = &self.seconds;
        [
            ("receive", &seconds.receive.0),
            ("queue", &seconds.queue.0),
            ("run", &seconds.run.0),
            ("send", &seconds.send.0),
            ("gil", &seconds.gil.0),
            ("cpu", &seconds.cpu.0),
        ]
    }

    fn shown(&self) -> ShownRoute<'_> {
        ShownRoute {
            route: &self.route,
            figures: &self.figures,
            seconds: self.seconds.map(|spread| Figures::of(&spread.0)),
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

impl AsMut<HistogramSnapshot> for Distribution {
    fn as_mut(&mut self) -> &mut HistogramSnapshot {
        &mut self.0
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
