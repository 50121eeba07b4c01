//! Counters: what each driver received and what its connections are doing, and how long the exchanges
//! of each route took.
//!
//! Each counter has one writing thread (or is a relaxed atomic); anybody may read. Written out as JSON
//! for the status page.

use std::fmt::Write;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use measure::{Ending, PhaseHistograms, Spans};

/// Where the counters of one process are in the file of all counters.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct Segment {
    /// Bytes from the start of the file.
    pub offset: u64,
    /// Its length.
    pub bytes: u64,
}

/// All counters of one process.
pub(crate) struct Stats {
    pub(crate) drivers: Vec<DriverStats>,
    routes: Vec<RouteStats>,
}

/// One driver's counters.
#[derive(Default)]
pub(crate) struct DriverStats {
    /// Connections accepted.
    pub(crate) accepted: Counter,
    /// Complete requests received.
    pub(crate) received: Counter,
    /// Requests whose body went to a file.
    pub(crate) spooled: Counter,
    /// Heads that arrived in more than one piece.
    pub(crate) partial: Counter,
    /// Requests refused for breaking the protocol or a limit, and connections that failed.
    pub(crate) errors: Counter,
    /// Connections that a deadline ended, by `Timeout`.
    timeouts: [Counter; Timeout::COUNT],
    /// Connections refused because their client had too many.
    pub(crate) crowded_clients: Counter,
    /// What the connections are doing, by `Doing`; a few hundred milliseconds old.
    pub(crate) doing: [AtomicU32; Doing::COUNT],
}

/// A counter with a single writing thread: no locked instruction is needed to add.
#[derive(Default)]
pub(crate) struct Counter(AtomicU64);

impl Counter {
    /// Adds one. Only the owning thread may call it.
    pub(crate) fn add(&self) {
        self.0
            .store(self.0.load(Ordering::Relaxed) + 1, Ordering::Relaxed);
    }

    pub(crate) fn count(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

/// Which deadline ended a connection.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Timeout {
    /// Its head was not complete in time.
    Head,
    /// Its body came too slowly.
    Body,
    /// It took its reply too slowly.
    Send,
    /// It was idle for too long.
    Idle,
    /// It was idle, and others needed its place before its time was up.
    Crowded,
}

impl Timeout {
    const COUNT: usize = 5;
    const NAMES: [&'static str; Timeout::COUNT] = ["head", "body", "send", "idle", "crowded"];
}

/// What a connection is doing.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Doing {
    /// Idle between requests, or new and silent.
    Idle,
    /// Receiving a head or a body into memory.
    Reading,
    /// Receiving a body into a file.
    Spooling,
    /// Its exchange waits for a pool thread or runs on one.
    Away,
    /// Its reply is being sent by the driver.
    Sending,
    /// Its last bytes are read and thrown away before it closes.
    Closing,
}

impl Doing {
    pub(crate) const COUNT: usize = 6;
    const NAMES: [&'static str; Doing::COUNT] =
        ["idle", "reading", "spooling", "away", "sending", "closing"];
}

/// One route's exchanges.
struct RouteStats {
    name: String,
    phases: PhaseHistograms,
    /// By hundreds of the status; index 0: no reply.
    statuses: [AtomicU64; 6],
    /// Exchanges that did not end complete.
    incomplete: AtomicU64,
    sent_bytes: AtomicU64,
}

impl Stats {
    pub(crate) fn new(drivers: usize, route_names: &[String]) -> Self {
        let route = |name: &String| RouteStats {
            name: name.clone(),
            phases: PhaseHistograms::default(),
            statuses: Default::default(),
            incomplete: AtomicU64::new(0),
            sent_bytes: AtomicU64::new(0),
        };
        Self {
            drivers: (0..drivers).map(|_| DriverStats::default()).collect(),
            routes: route_names.iter().map(route).collect(),
        }
    }

    pub(crate) fn route(&self, index: u16) -> RouteRef<'_> {
        RouteRef(&self.routes[usize::from(index)])
    }

    /// Exchanges ended so far.
    pub(crate) fn exchanges(&self) -> u64 {
        let statuses = self.routes.iter().flat_map(|route| &route.statuses);
        statuses.map(|count| count.load(Ordering::Relaxed)).sum()
    }

    /// Everything as one JSON object; `pool`, `waiting` and `log` are finished members.
    pub(crate) fn json(&self, pool: &str, waiting: &str, log: &str) -> String {
        let mut out = String::from("{\"drivers\":[");
        for (index, driver) in self.drivers.iter().enumerate() {
            out.push_str(if index == 0 { "" } else { "," });
            driver.write_json(index, &mut out);
        }
        let _ = write!(
            out,
            "],\"waiting\":{waiting},\"log\":{log},\"pool\":{pool},\"routes\":["
        );
        for (index, route) in self.routes.iter().enumerate() {
            out.push_str(if index == 0 { "" } else { "," });
            route.write_json(&mut out);
        }
        out.push_str("]}\n");
        out
    }
}

/// A route's counters, to record into.
pub(crate) struct RouteRef<'a>(&'a RouteStats);

impl RouteRef<'_> {
    pub(crate) fn record(&self, spans: &Spans, status: u16, ending: Ending, sent_bytes: u64) {
        let route = self.0;
        route.phases.record(spans);
        let class = usize::from(status / 100).min(5);
        route.statuses[class].fetch_add(1, Ordering::Relaxed);
        route.sent_bytes.fetch_add(sent_bytes, Ordering::Relaxed);
        if ending != Ending::Complete && ending != Ending::Refused {
            route.incomplete.fetch_add(1, Ordering::Relaxed);
        }
    }
}

impl DriverStats {
    pub(crate) fn timed_out(&self, timeout: Timeout) {
        self.timeouts[timeout as usize].add();
    }

    fn write_json(&self, index: usize, out: &mut String) {
        let _ = write!(
            out,
            "{{\"driver\":{index},\"accepted\":{},\"received\":{},\"spooled\":{},\"partial\":{},\"errors\":{},\"crowded_clients\":{},\"timeouts\":{{",
            self.accepted.count(),
            self.received.count(),
            self.spooled.count(),
            self.partial.count(),
            self.errors.count(),
            self.crowded_clients.count()
        );
        for (index, (name, count)) in Timeout::NAMES.iter().zip(&self.timeouts).enumerate() {
            let comma = if index == 0 { "" } else { "," };
            let _ = write!(out, "{comma}\"{name}\":{}", count.count());
        }
        out.push_str("},\"connections\":{");
        for (index, (name, count)) in Doing::NAMES.iter().zip(&self.doing).enumerate() {
            let comma = if index == 0 { "" } else { "," };
            let _ = write!(out, "{comma}\"{name}\":{}", count.load(Ordering::Relaxed));
        }
        out.push_str("}}");
    }
}

impl RouteStats {
    fn write_json(&self, out: &mut String) {
        let name = measure::json_text(self.name.as_bytes());
        let _ = write!(out, "{{\"route\":\"{}\"", String::from_utf8_lossy(&name));
        for (class, count) in self.statuses.iter().enumerate() {
            let name = if class == 0 {
                "none".to_owned()
            } else {
                format!("{class}xx")
            };
            let _ = write!(out, ",\"{name}\":{}", count.load(Ordering::Relaxed));
        }
        let _ = write!(
            out,
            ",\"incomplete\":{},\"sent_bytes\":{},\"seconds\":{{",
            self.incomplete.load(Ordering::Relaxed),
            self.sent_bytes.load(Ordering::Relaxed)
        );
        let phases = &self.phases;
        let named = [
            ("accept", &phases.accept),
            ("queue", &phases.queue),
            ("run", &phases.run),
            ("deliver", &phases.deliver),
            ("total", &phases.total),
            ("gil", &phases.gil),
        ];
        for (index, (name, histogram)) in named.into_iter().enumerate() {
            let comma = if index == 0 { "" } else { "," };
            let seen = histogram.snapshot();
            let quantile = |q| seen.quantile(q).as_secs_f64();
            let _ = write!(
                out,
                "{comma}\"{name}\":{{\"count\":{},\"mean\":{:.6},\"p50\":{:.6},\"p99\":{:.6},\"max\":{:.6}}}",
                seen.len(),
                seen.mean().as_secs_f64(),
                quantile(0.5),
                quantile(0.99),
                seen.max().as_secs_f64()
            );
        }
        out.push_str("}}");
    }
}
