//! Load reports: what trusted proxies get to know of this server's load in each response, so that they can hold requests
//! back instead of letting them wait here. A trusted peer that forwards nothing is no proxy: local clients are trusted by
//! default, and 250 bytes more would be a large part of a small response.
//!
//! Takes what pools run and what waits for them, the counters and the processor time of the process; gives the value of
//! `endpoint-load-metrics`, and the same as JSON. The load is worked out at most once in 10 ms, and each thread makes the
//! text of it as often, so that a response costs a copy. Must not know connections or who is trusted.
//!
//! A process knows its own pools alone. With several processes behind the same addresses a proxy counts the requests of
//! all of them, so each reports what it has times their number.

use std::sync::{Arc, Mutex, OnceLock};
use std::thread;

use config::typed::{Config, LoadReports};
use ipc::stats::Stats;
use nix::time::{ClockId, clock_gettime};
use telemetry::{EndpointLoad, Nanos, Phases, Stamp, UpstreamPhases};

use crate::sync::lock;

/// How long a report is given unchanged.
const REPORT_AGE_MAX: Nanos = Nanos::from_ms(10);
/// What rates and shares are measured over, at least.
const WINDOW: Nanos = Nanos::from_secs(1);

/// What pools have to do.
#[derive(Clone, Copy, PartialEq, Default, Debug)]
pub(crate) struct Workload {
    /// Exchanges that run.
    pub(crate) running: usize,
    /// Exchanges that wait for a thread.
    pub(crate) waiting: usize,
    /// Threads, or exchanges that event loops take at once.
    pub(crate) threads: usize,
    /// Exchanges completed in a second while there was enough to do.
    pub(crate) completed_per_second: f64,
}

impl Workload {
    /// Both together.
    pub(crate) fn with(self, other: Workload) -> Workload {
        Workload {
            running: self.running + other.running,
            waiting: self.waiting + other.waiting,
            threads: self.threads + other.threads,
            completed_per_second: self.completed_per_second + other.completed_per_second,
        }
    }

    /// How long an exchange that comes now will wait.
    fn queue(&self) -> Nanos {
        match self.completed_per_second > 0.0 {
            true => Nanos((self.waiting as f64 / self.completed_per_second * 1e9) as u64),
            false => Nanos::ZERO,
        }
    }
}

/// The load of this process, for all of its threads.
pub(crate) struct ServerLoad {
    /// Processes that serve the same addresses.
    processes: usize,
    processors: usize,
    stats: Arc<Stats>,
    /// Asks the pools; none before they are there.
    workload: OnceLock<Box<dyn Fn() -> Workload + Send + Sync>>,
    latest: Mutex<LatestLoad>,
}

/// The load as of a while ago, and the window that rates are measured over.
#[derive(Default)]
struct LatestLoad {
    load: EndpointLoad,
    until: Stamp,
    rates: Rates,
    began: Totals,
}

/// What the last window has shown.
#[derive(Clone, Copy, Default)]
struct Rates {
    answered: f64,
    errors: f64,
    /// Processors that were at work.
    processors: f64,
}

/// What only grows.
#[derive(Clone, Copy, Default)]
struct Totals {
    at: Stamp,
    answered: u64,
    errors: u64,
    cpu: Nanos,
}

impl ServerLoad {
    pub(crate) fn new(config: &Config, stats: &Arc<Stats>) -> Arc<Self> {
        Arc::new(Self {
            processes: config.processes.count.max(1),
            processors: thread::available_parallelism().map_or(1, usize::from),
            stats: Arc::clone(stats),
            workload: OnceLock::new(),
            latest: Mutex::default(),
        })
    }

    /// From now on there are pools, which this asks.
    pub(crate) fn ask(&self, workload: impl Fn() -> Workload + Send + Sync + 'static) {
        // Asked once, at the start: a second answer would be of the same pools.
        let _ = self.workload.set(Box::new(workload));
    }

    /// The load, at most 10 ms old.
    pub(crate) fn at(&self, now: Stamp) -> EndpointLoad {
        let mut latest = lock(&self.latest);
        if now >= latest.until {
            let workload = self.workload.get().map_or(Workload::default(), |ask| ask());
            latest.refresh(&self.totals(now));
            latest.load = self.of_all(workload, latest.rates);
            latest.until = now.plus(REPORT_AGE_MAX);
        }
        latest.load
    }

    /// The load as JSON.
    pub(crate) fn json(&self, now: Stamp) -> Vec<u8> {
        let mut json = Vec::with_capacity(256);
        self.at(now).push_json(&mut json);
        json.push(b'\n');
        json
    }

    fn totals(&self, now: Stamp) -> Totals {
        let cpu = clock_gettime(ClockId::CLOCK_PROCESS_CPUTIME_ID);
        Totals {
            at: now,
            answered: self.stats.exchanges(),
            errors: self.stats.server_errors(),
            cpu: cpu.map_or(Nanos::ZERO, |time| {
                Nanos((time.tv_sec() as u64) * 1_000_000_000 + time.tv_nsec() as u64)
            }),
        }
    }

    /// What this process has, times the number of processes.
    fn of_all(&self, own: Workload, rates: Rates) -> EndpointLoad {
        let count = |len: usize| u32::try_from(len * self.processes).unwrap_or(u32::MAX);
        let processes = self.processes as f64;
        EndpointLoad {
            running: count(own.running),
            waiting: count(own.waiting),
            threads: count(own.threads),
            queue: own.queue(),
            cpu: (rates.processors * processes / self.processors as f64).min(1.0),
            per_second: rates.answered * processes,
            errors_per_second: rates.errors * processes,
        }
    }
}

impl LatestLoad {
    /// Rates and shares of the time since the window began, once that is long enough.
    fn refresh(&mut self, totals: &Totals) {
        let span = totals.at.since(self.began.at);
        if self.began.at == Stamp::ZERO {
            self.began = *totals;
        } else if span >= WINDOW {
            let secs = span.as_secs_f64();
            let per_second = |now: u64, then: u64| now.saturating_sub(then) as f64 / secs;
            self.rates = Rates {
                answered: per_second(totals.answered, self.began.answered),
                errors: per_second(totals.errors, self.began.errors),
                processors: per_second(totals.cpu.0, self.began.cpu.0) / 1e9,
            };
            self.began = *totals;
        }
    }
}

/// One thread's text of the load.
pub(crate) struct LoadField {
    source: Arc<ServerLoad>,
    text: Vec<u8>,
    /// Of the part that all responses of a while share.
    shared_bytes: usize,
    until: Stamp,
}

impl LoadField {
    /// `None` where no load is reported.
    pub(crate) fn new(config: &Config, source: &Arc<ServerLoad>) -> Option<Self> {
        match config.headers.load_report {
            LoadReports::Off => None,
            LoadReports::Trusted => Some(Self {
                source: Arc::clone(source),
                text: Vec::new(),
                shared_bytes: 0,
                until: Stamp::ZERO,
            }),
        }
    }

    /// The value for a response whose head is complete at `now`.
    pub(crate) fn value(&mut self, phases: &Phases, now: Stamp) -> &[u8] {
        if now >= self.until {
            self.text.clear();
            self.source.at(now).push_text(&mut self.text);
            self.shared_bytes = self.text.len();
            self.until = now.plus(REPORT_AGE_MAX);
        }
        self.text.truncate(self.shared_bytes);
        let replied = Phases {
            replied: now,
            ..*phases
        };
        let spans = replied.spans();
        let own = UpstreamPhases {
            queue: spans.queue,
            run: spans.run,
        };
        telemetry::push_own_phases(own, &mut self.text);
        &self.text
    }
}

#[cfg(test)]
mod tests;
