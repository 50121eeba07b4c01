//! Everything that `top` can show of one moment, as text and as numbers to sort by.
//!
//! Takes the history, gives an [`Overview`]: lines, series for sparklines, and listings. Knows no terminal and no clock.

use present::{NONE, bytes, column_share, counted, digits, duration, harmless, thousands};
use supervisor::control::status::{DriverStatus, PoolStatus, ProcessStatus, State};
use telemetry::{Nanos, PerPhase};

use super::health::HostLine;
use super::history::{History, Interval, PhaseFigures, per_second};
use super::sample::Sample;
use crate::control::{age, process_name, worker};

/// Columns of a name; a longer one is cut.
const NAME_MAX: usize = 40;
/// Columns of a pool's name beside others.
const POOL_MAX: usize = 12;
/// Columns of a message.
const NOTE_MAX: usize = 200;
/// A fault of the server is shown for so long.
const FAULT_AGE_MAX_S: u64 = 3_600;

/// One moment.
#[derive(Clone, Default)]
pub(super) struct Overview {
    /// Which server, and what it is about.
    pub(super) title: String,
    /// Requests a second.
    pub(super) requests: String,
    /// The same of each interval, the latest last.
    pub(super) requests_series: Vec<u64>,
    /// What else is to be said in a line.
    pub(super) facts: String,
    /// The machine.
    pub(super) host: HostLine,
    /// What is not as it should be.
    pub(super) warnings: Vec<String>,
    pub(super) phases: Vec<PhaseLine>,
    /// All pools of one name as one.
    pub(super) pools: Listing,
    /// By [`Listed`].
    listings: [Listing; Listed::ALL.len()],
}

/// How long one phase takes.
#[derive(Clone, Default)]
pub(super) struct PhaseLine {
    pub(super) name: &'static str,
    pub(super) p50: String,
    pub(super) p99: String,
    /// Of the time of all exchanges.
    pub(super) share: String,
    /// The p99 of each interval in microseconds, the latest last.
    pub(super) p99_series: Vec<u64>,
    /// Whether a small terminal shows it too.
    pub(super) is_essential: bool,
}

/// What is listed at the bottom.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Listed {
    Routes,
    Running,
    Pools,
    Drivers,
    Processes,
    Upstreams,
    Disks,
}

/// A table. The first column is the name of a row.
#[derive(Clone, Default)]
pub(super) struct Listing {
    pub(super) headings: Vec<&'static str>,
    /// The column that it is sorted by at first.
    pub(super) sorted_by: usize,
    pub(super) rows: Vec<ListingRow>,
    /// Rows that the server has not listed.
    pub(super) more: u64,
}

/// A row of a table.
#[derive(Clone, Default)]
pub(super) struct ListingRow {
    /// By which it is found in the next moment: its name, where no other row can have the same.
    pub(super) id: String,
    pub(super) cells: Vec<String>,
    /// What each column is sorted by; the first one is sorted by its text.
    pub(super) keys: Vec<f64>,
    /// Whether something is not as it should be.
    pub(super) is_alarming: bool,
}

impl Listed {
    pub(super) const ALL: [Listed; 7] = [
        Listed::Routes,
        Listed::Running,
        Listed::Pools,
        Listed::Drivers,
        Listed::Processes,
        Listed::Upstreams,
        Listed::Disks,
    ];

    pub(super) fn title(self) -> &'static str {
        match self {
            Listed::Routes => "routes, last minute",
            Listed::Running => "running",
            Listed::Pools => "pools",
            Listed::Drivers => "drivers",
            Listed::Processes => "processes",
            Listed::Upstreams => "upstreams",
            Listed::Disks => "logs",
        }
    }

    /// The one that comes so many places behind it; behind the last comes the first.
    pub(super) fn plus(self, step: usize) -> Listed {
        Listed::ALL[(self as usize + step) % Listed::ALL.len()]
    }
}

impl Overview {
    /// The latest moment; an empty one where there is none.
    pub(super) fn of(history: &History) -> Overview {
        let Some(sample) = history.latest() else {
            return Overview::default();
        };
        let per_interval = |of: fn(&Interval) -> u64| history.intervals().map(of).collect();
        let latest = history.intervals().next_back();
        let comparison = Comparison {
            sample,
            previous: history.previous(),
            span: latest.map_or(Nanos::ZERO, |interval| interval.span),
        };
        let requests = latest.map(|interval| interval.per_second(interval.requests));
        Overview {
            title: title(sample),
            requests: requests.map_or(NONE.to_owned(), rate),
            requests_series: per_interval(|one| one.per_second(one.requests) as u64),
            facts: facts(sample, latest),
            host: HostLine::of(&comparison),
            warnings: warnings(sample),
            phases: phases(history),
            pools: comparison.pools_by_name(),
            listings: [
                routes(history),
                running(sample),
                comparison.pools(),
                comparison.drivers(),
                comparison.processes(),
                comparison.upstreams(),
                comparison.disks(),
            ],
        }
    }

    pub(super) fn listing(&self, listed: Listed) -> &Listing {
        &self.listings[listed as usize]
    }
}

fn title(sample: &Sample) -> String {
    let mut parts = vec![
        format!("milepost {}", harmless(&sample.version, NAME_MAX)),
        format!("process {}", sample.pid),
        format!("up {}", age(sample.uptime_s)),
        harmless(&sample.doing, NAME_MAX),
    ];
    let generations = sample.generations.iter().map(|one| {
        let state = match one.state {
            State::Ready => String::new(),
            state => format!(" ({state})"),
        };
        format!("{}{state}", one.generation)
    });
    let generations: Vec<String> = generations.collect();
    if !generations.is_empty() {
        parts.push(format!("generation {}", generations.join(", ")));
    }
    if sample.version != crate::command::VERSION {
        parts.push(format!("`top` is of {}", crate::command::VERSION));
    }
    parts.retain(|part| !part.is_empty());
    parts.join(", ")
}

/// `1.2 MB/s sent, 0 failed/s, 12 connections: 9 idle, 3 in_pool`
fn facts(sample: &Sample, latest: Option<&Interval>) -> String {
    let mut parts = Vec::new();
    if let Some(interval) = latest {
        parts.push(format!(
            "{} failed/s",
            rate(interval.per_second(interval.failed))
        ));
        let sent = bytes(interval.per_second(interval.sent_bytes));
        parts.push(format!("{sent}/s sent"));
    }
    let open = sample.processes.iter().flat_map(|one| &one.drivers);
    let open: u64 = open.map(|driver| driver.open).sum();
    let doing: Vec<String> = connections(sample)
        .into_iter()
        .filter(|(_, count)| *count > 0)
        .map(|(name, count)| format!("{} {name}", thousands(count)))
        .collect();
    let doing = match doing.is_empty() {
        true => String::new(),
        false => format!(": {}", doing.join(", ")),
    };
    parts.push(format!("{}{doing}", counted(open, "connection")));
    parts.join(", ")
}

/// How many connections are at what.
fn connections(sample: &Sample) -> [(&'static str, u64); 8] {
    let drivers = || sample.counters.drivers.iter().map(|one| &one.connections);
    [
        ("idle", drivers().map(|one| one.idle).sum()),
        ("in handshakes", drivers().map(|one| one.handshaking).sum()),
        ("receiving", drivers().map(|one| one.reading).sum()),
        ("spooling", drivers().map(|one| one.spooling).sum()),
        ("in pools", drivers().map(|one| one.in_pool).sum()),
        ("sending", drivers().map(|one| one.sending).sum()),
        ("WebSocket", drivers().map(|one| one.websocket).sum()),
        ("closing", drivers().map(|one| one.closing).sum()),
    ]
}

fn warnings(sample: &Sample) -> Vec<String> {
    let mut lines = Vec::new();
    if sample.totals.crashes > 0 {
        let crashed = match sample.totals.crashes {
            1 => "1 process has crashed".to_owned(),
            several => format!("{} processes have crashed", thousands(several)),
        };
        lines.push(format!("{crashed} since the server's start"));
    }
    if let Some(fault) = &sample.last_fault
        && fault.age_s <= FAULT_AGE_MAX_S
    {
        let message = harmless(&fault.failure.message, NOTE_MAX);
        lines.push(format!("{} ago: {message}", age(fault.age_s)));
    }
    if let Some(stall) = &sample.host.last_stall
        && stall.age_s <= FAULT_AGE_MAX_S
    {
        let text = harmless(&stall.text, NOTE_MAX);
        lines.push(format!("{} ago: {text}", age(stall.age_s)));
    }
    lines
}

fn phases(history: &History) -> Vec<PhaseLine> {
    let latest = history.intervals().next_back();
    let total = latest.map_or(0, |interval| interval.phases.total.sum.0);
    let line = |name, is_essential, of: fn(&PerPhase<PhaseFigures>) -> &PhaseFigures| {
        let figures = latest.map(|interval| of(&interval.phases));
        // Of no exchanges there is no percentile.
        let figures = figures.filter(|_| total > 0);
        let time =
            |of: fn(&PhaseFigures) -> Nanos| figures.map_or(NONE.to_owned(), |one| time(of(one)));
        PhaseLine {
            name,
            p50: time(|one| one.p50),
            p99: time(|one| one.p99),
            share: figures.map_or(NONE.to_owned(), |one| {
                column_share(one.sum.0 as f64 / total as f64)
            }),
            p99_series: history
                .intervals()
                .map(|one| of(&one.phases).p99.0 / 1_000)
                .collect(),
            is_essential,
        }
    };
    vec![
        line("receive", true, |all| &all.receive),
        line("queue", true, |all| &all.queue),
        line("run", true, |all| &all.run),
        line("  gil", false, |all| &all.gil),
        line("  cpu", false, |all| &all.cpu),
        line("send", true, |all| &all.send),
        line("total", true, |all| &all.total),
    ]
}

fn routes(history: &History) -> Listing {
    let (routes, span) = history.routes();
    let all: u64 = routes
        .iter()
        .map(|one| one.sum.0)
        .fold(0, u64::saturating_add);
    let rows = routes.into_iter().map(|one| {
        let part = match all {
            0 => 0.0,
            _ => one.sum.0 as f64 / all as f64,
        };
        let requests = per_second(one.exchanges, span);
        let mut row = ListingRow::named(&one.name);
        row.add(rate(requests), requests)
            .add(time(one.p50), one.p50.as_secs_f64())
            .add(time(one.p95), one.p95.as_secs_f64())
            .add(time(one.p99), one.p99.as_secs_f64())
            .add(column_share(part), part)
            .count(one.failed);
        row.is_alarming = one.failed > 0;
        row
    });
    Listing {
        headings: vec!["ROUTE", "REQ/S", "P50", "P95", "P99", "TIME", "FAILED"],
        sorted_by: 5,
        rows: rows.collect(),
        more: 0,
    }
}

/// The requests that run.
fn running(sample: &Sample) -> Listing {
    let rows = sample.running.iter().map(|one| {
        let mut row = ListingRow::named(&format!("{} {}", one.method, one.path));
        row.id.clone_from(&one.id);
        row.add(time(Nanos::from_ms(one.ran_ms)), one.ran_ms as f64)
            .add(time(Nanos::from_ms(one.waited_ms)), one.waited_ms as f64)
            .add(harmless(&one.pool, POOL_MAX), 0.0)
            .add(worker(one), f64::from(one.pid));
        row
    });
    Listing {
        headings: vec!["REQUEST", "RUNS FOR", "WAITED", "POOL", "WORKER"],
        sorted_by: 1,
        rows: rows.collect(),
        more: sample.running_more,
    }
}

/// The latest sample, and what to compare it with.
pub(super) struct Comparison<'a> {
    pub(super) sample: &'a Sample,
    pub(super) previous: Option<&'a Sample>,
    pub(super) span: Nanos,
}

impl Comparison<'_> {
    /// The same process in the sample before.
    fn before(&self, process: &ProcessStatus) -> Option<&ProcessStatus> {
        let mut processes = self.previous?.processes.iter();
        processes.find(|one| one.pid == process.pid && process.pid.is_some())
    }

    /// How much a counter grew in a second; `None` where there is nothing to compare it with.
    pub(super) fn growth(&self, now: u64, before: Option<u64>) -> Option<f64> {
        Some(per_second(now.saturating_sub(before?), self.span))
    }

    fn pools_by_name(&self) -> Listing {
        let mut names: Vec<&str> = Vec::new();
        let pools = || self.sample.processes.iter().flat_map(|one| &one.pools);
        for pool in pools() {
            if !names.contains(&pool.name.as_str()) {
                names.push(&pool.name);
            }
        }
        let rows = names.into_iter().map(|name| {
            let of_name = |sample: &Sample| {
                let pools = sample.processes.iter().flat_map(|one| &one.pools);
                summed(pools.filter(|pool| pool.name == name))
            };
            let before = self.previous.map(of_name);
            self.pool(name, &of_name(self.sample), before.as_ref())
        });
        listing_of_pools(rows.collect())
    }

    fn pools(&self) -> Listing {
        let rows = self.sample.processes.iter().flat_map(|process| {
            let before = self.before(process);
            process.pools.iter().map(move |pool| {
                let before = before.and_then(|before| {
                    let mut pools = before.pools.iter();
                    pools.find(|one| one.name == pool.name)
                });
                let name = format!("{}.{}", process_name(process), pool.name);
                self.pool(&name, pool, before)
            })
        });
        listing_of_pools(rows.collect())
    }

    fn pool(&self, name: &str, pool: &PoolStatus, before: Option<&PoolStatus>) -> ListingRow {
        let grown = |of: fn(&PoolStatus) -> u64| self.growth(of(pool), before.map(of));
        let refused = grown(|one| one.refused + one.shed + one.expired);
        let (oldest, target) = (pool.oldest_wait_ms as f64 / 1e3, pool.queue_target_ms / 1e3);
        let mut row = ListingRow::named(name);
        row.add(threads(pool), pool.threads as f64)
            .count(pool.running)
            .count(pool.waiting)
            .add(duration(oldest), oldest)
            .add(duration(target), target)
            .add(pool.pressure.clone(), severity(&pool.pressure))
            .maybe(grown(|one| one.completed), rate)
            .maybe(refused, rate)
            .maybe(
                pool.gil_share_permille.map(|part| part as f64 / 1_000.0),
                column_share,
            );
        row.is_alarming = pool.pressure == "overloaded" || refused.is_some_and(|rate| rate > 0.0);
        row
    }

    fn drivers(&self) -> Listing {
        let rows = self.sample.processes.iter().flat_map(|process| {
            let before = self.before(process);
            process.drivers.iter().map(move |driver| {
                let before = before.and_then(|before| {
                    let mut drivers = before.drivers.iter();
                    drivers.find(|one| one.driver == driver.driver)
                });
                self.driver(process, driver, before)
            })
        });
        Listing {
            headings: vec![
                "DRIVER",
                "OPEN",
                "REQ/S",
                "ACCEPTED/S",
                "QUEUE",
                "BALANCED/S",
                "STALLED/S",
                "FAILED/S",
            ],
            sorted_by: 2,
            rows: rows.collect(),
            more: 0,
        }
    }

    fn driver(
        &self,
        process: &ProcessStatus,
        driver: &DriverStatus,
        before: Option<&DriverStatus>,
    ) -> ListingRow {
        let grown = |of: fn(&DriverStatus) -> u64| self.growth(of(driver), before.map(of));
        let mut row = ListingRow::named(&format!("{}.{}", process_name(process), driver.driver));
        row.count(driver.open)
            .maybe(grown(|one| one.received), rate)
            .maybe(grown(|one| one.accepted), rate)
            .maybe(driver.accept_queue.map(|count| count as f64), |count| {
                thousands(count as u64)
            })
            .maybe(grown(|one| one.balanced_out), rate)
            .maybe(grown(|one| one.stall_takeovers), rate)
            .maybe(grown(|one| one.errors), rate);
        row.is_alarming = process.state == State::Stuck;
        row
    }

    fn processes(&self) -> Listing {
        let rows = self.sample.processes.iter().map(|process| {
            let before = self.before(process);
            let requests = self.growth(process.requests, before.map(|one| one.requests));
            let own_loop = process.event_loop.as_ref();
            let mut row = ListingRow::named(&process_name(process));
            row.add(process.state.to_string(), f64::from(process.state as u8))
                .maybe(process.pid.map(f64::from), |pid| format!("{pid:.0}"))
                .add(age(process.age_s), process.age_s as f64)
                .maybe(requests, rate)
                .maybe(process.resident_bytes.map(|size| size as f64), bytes)
                .count(process.restarts)
                .maybe(
                    own_loop.map(|one| Nanos(one.lag_ns).as_secs_f64()),
                    duration,
                )
                .maybe(
                    own_loop.map(|one| one.busy_permille as f64 / 1_000.0),
                    column_share,
                )
                .maybe(own_loop.map(|one| one.inside as f64), |count| {
                    thousands(count as u64)
                });
            row.is_alarming = matches!(process.state, State::Stuck | State::Waiting);
            row
        });
        Listing {
            headings: vec![
                "PROCESS", "STATE", "PID", "AGE", "REQ/S", "MEMORY", "RESTARTS", "LAG", "BUSY",
                "INSIDE",
            ],
            sorted_by: 0,
            rows: rows.collect(),
            more: 0,
        }
    }
}

impl ListingRow {
    pub(super) fn named(name: &str) -> ListingRow {
        let name = harmless(name, NAME_MAX);
        ListingRow {
            id: name.clone(),
            cells: vec![name],
            keys: vec![0.0],
            is_alarming: false,
        }
    }

    pub(super) fn add(&mut self, text: String, key: f64) -> &mut Self {
        self.cells.push(text);
        self.keys.push(key);
        self
    }

    pub(super) fn count(&mut self, count: u64) -> &mut Self {
        self.add(thousands(count), count as f64)
    }

    /// A number that is not there comes after all others.
    pub(super) fn maybe(&mut self, value: Option<f64>, text: impl Fn(f64) -> String) -> &mut Self {
        match value {
            Some(value) => self.add(text(value), value),
            None => self.add(NONE.to_owned(), -1.0),
        }
    }
}

fn listing_of_pools(rows: Vec<ListingRow>) -> Listing {
    Listing {
        headings: vec![
            "POOL",
            "THREADS",
            "RUN",
            "WAIT",
            "OLDEST",
            "TARGET",
            "STATE",
            "DONE/S",
            "REFUSED/S",
            "GIL",
        ],
        sorted_by: 3,
        rows,
        more: 0,
    }
}

/// Pools of one name in several processes: sums, and the worst of what has none.
fn summed<'a>(pools: impl Iterator<Item = &'a PoolStatus>) -> PoolStatus {
    pools.fold(PoolStatus::default(), |all, one| PoolStatus {
        name: one.name.clone(),
        pressure: match severity(&one.pressure) > severity(&all.pressure) {
            true => one.pressure.clone(),
            false => all.pressure,
        },
        threads: all.threads + one.threads,
        threads_min: all.threads_min + one.threads_min,
        threads_max: all.threads_max + one.threads_max,
        idle: all.idle + one.idle,
        running: all.running + one.running,
        waiting: all.waiting + one.waiting,
        completed: all.completed + one.completed,
        refused: all.refused + one.refused,
        shed: all.shed + one.shed,
        expired: all.expired + one.expired,
        oldest_wait_ms: all.oldest_wait_ms.max(one.oldest_wait_ms),
        queue_target_ms: all.queue_target_ms.max(one.queue_target_ms),
        gil_share_permille: all.gil_share_permille.max(one.gil_share_permille),
    })
}

fn severity(pressure: &str) -> f64 {
    match pressure {
        "" => -1.0,
        "calm" => 0.0,
        "saturated" => 1.0,
        _ => 2.0,
    }
}

/// `8`, or `5 (4:16)` where the number changes by itself.
fn threads(pool: &PoolStatus) -> String {
    match pool.threads_min == pool.threads_max {
        true => thousands(pool.threads),
        false => format!(
            "{} ({}:{})",
            pool.threads, pool.threads_min, pool.threads_max
        ),
    }
}

/// So many a second: `0.2`, `12.5`, `1,234`.
pub(super) fn rate(per_second: f64) -> String {
    digits(per_second, 3, 1)
}

fn time(span: Nanos) -> String {
    duration(span.as_secs_f64())
}
