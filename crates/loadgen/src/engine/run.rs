//! A run from its first thread to its outcome: the composition root of the load generator.
//!
//! Takes a plan, prepares the host's side of it, starts threads and meters, listens to seconds, and joins what
//! everybody has counted. Only here do the parts of the crate meet.

use std::collections::BTreeMap;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::thread::{self, Scope, ScopedJoinHandle};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use nix::sched::{CloneFlags, unshare};
use telemetry::{Nanos, Stamp, now};

use super::schedule::is_by_due;
use super::tally::{SecondShare, Sum, Tally};
use super::tls::TlsClient;
use super::worker::{RunShared, Worker, WorkerResult};
use super::{Fault, Watch, event_loop};
use crate::adversaries::AdversaryThread;
use crate::distribution::Summary;
use crate::machine::{self, HostMeter, KernelCounters, ServerMeter, ThreadMeter};
use crate::outcome::{Asked, AskedLeg, Generator, Outcome, SCHEMA, Second, ThreadUse, Times};
use crate::plan::{Arrivals, Length, Load, Plan, Scheme, Tables, Timestamps};

/// Between two questions whether the run is to end.
const LOOK: Duration = Duration::from_millis(50);
/// All threads begin together, when the slowest has made its tables.
const LEAD: Nanos = Nanos::from_ms(50);
/// Kinds of requests that an outcome names: a recording may have a million.
const KINDS_SAID: usize = 20;

/// Makes the load and counts what comes back.
///
/// The counted time begins and ends as the plan says, or when `watch` wants it to end. The outcome's `asked`
/// has the target's URL; a label is the caller's.
///
/// # Errors
/// What this host or the plan does not allow. A server that fails is an outcome.
pub fn run(plan: &Plan, watch: &mut dyn Watch) -> Result<Outcome, Fault> {
    if let Some(text) = plan.fault() {
        return Err(Fault::new(text));
    }
    let mut plan = plan.clone();
    let mut remarks = machine::prepare(&mut plan)?;
    // After the tables of descriptors were chosen, which the thread has one of; before the load, which it disturbs.
    let adversaries = AdversaryThread::start(&plan)?;
    let measured = measured(&plan, watch);
    let bad_clients = adversaries.stop();
    let measured = measured?;
    let (stalled, processors) = (measured.stalled, measured.meters.early.host.processors());
    let mut outcome = measured.outcome(&plan);
    outcome.bad_clients = bad_clients;
    remarks.extend(machine::judge(&outcome, stalled, processors));
    remarks.sort_by_key(|remark| remark.weight);
    outcome.remarks = remarks;
    Ok(outcome)
}

/// What was counted and metered, not yet put together.
struct Measured {
    tally: Tally,
    start: Stamp,
    begin: Stamp,
    end: Stamp,
    threads: Vec<ThreadUse>,
    stalled: Nanos,
    seconds: Sum,
    meters: Meters,
}

/// Has the library of cryptography do what it does once in a process: at its first use it gathers entropy, which would
/// take 30 ms of the first handshake that is measured.
fn settle_tls(plan: &Plan) -> Result<(), Fault> {
    if let Scheme::Https(tls) = &plan.target.scheme {
        TlsClient::new(tls, plan.connections.protocol)?.begin();
    }
    Ok(())
}

fn measured(plan: &Plan, watch: &mut dyn Watch) -> Result<Measured, Fault> {
    settle_tls(plan)?;
    let mut meters = Meters::begin(&plan.machine.server_pids)?;
    let shared = RunShared::new(plan, now().plus(LEAD));
    let (sender, receiver) = channel();
    let mut seconds = Sum::default();
    let joined = thread::scope(|scope| {
        let threads: Vec<_> = (0..plan.machine.threads)
            .map(|number| start(scope, plan, &shared, number, &sender))
            .collect();
        // Without this sender the channel ends with the last thread's.
        drop(sender);
        listen(&receiver, &shared, &mut seconds, watch, &mut meters);
        meters.end();
        let panicked = |_| Err(Fault::new("a thread of the generator panicked"));
        let parts = threads
            .into_iter()
            .map(|thread| thread.join().unwrap_or_else(panicked));
        parts.collect::<Result<Vec<_>, Fault>>()
    })?;
    let end = now();
    let mut measured = Measured {
        tally: Worker::of(plan, &shared, 0, channel().0).tally(),
        start: shared.start,
        begin: shared.begin().min(end),
        end,
        threads: Vec::new(),
        stalled: Nanos::ZERO,
        seconds,
        meters,
    };
    for (driven, used) in joined {
        measured.tally.merge(&driven.tally);
        measured.stalled = measured.stalled.max(driven.stalled);
        measured.threads.push(used);
    }
    measured.settle_end(plan);
    Ok(measured)
}

/// Starts a thread, which gives what it counted and what it took.
fn start<'scope, 'env>(
    scope: &'scope Scope<'scope, 'env>,
    plan: &'env Plan,
    shared: &'env RunShared,
    number: usize,
    seconds: &Sender<SecondShare>,
) -> ScopedJoinHandle<'scope, Result<(WorkerResult, ThreadUse), Fault>> {
    let seconds = seconds.clone();
    scope.spawn(move || {
        settle_thread(plan, number)?;
        let worker = Worker::of(plan, shared, number, seconds);
        // Tables are made by now: no thread begins later because it has more connections.
        thread::sleep(Duration::from_nanos(shared.start.since(now()).0));
        let meter = ThreadMeter::begin();
        let began = now();
        // One thread that cannot go on ends the run for all.
        let driven = event_loop::drive(&worker).inspect_err(|_| shared.end())?;
        Ok((driven, meter.end(now().since(began))))
    })
}

/// A thread's own side: its processor, its table of descriptors, how exactly it is woken.
fn settle_thread(plan: &Plan, number: usize) -> Result<(), Fault> {
    if plan.machine.tables == Tables::Own {
        let cannot = "a thread cannot have a table of descriptors of its own";
        unshare(CloneFlags::CLONE_FILES)
            .map_err(|error| Fault::new(format!("{cannot}: {error}")))?;
    }
    let cpus = &plan.machine.cpus;
    if let Some(cpu) = cpus.get(number % cpus.len().max(1)) {
        machine::run_on(&[*cpu]).map_err(|error| {
            Fault::with_hint(
                format!("cannot run on processor {cpu}: {}", error.desc()),
                "`--cpus` wants processors that `taskset -p $$` allows and `lscpu -e` shows as online",
            )
        })?;
    }
    // Wake-ups that are due are not put off to be taken together with others. Without it they are 50 µs late.
    let _ = rustix::thread::set_current_timer_slack(std::num::NonZeroU64::new(1));
    Ok(())
}

/// What is metered of a run.
struct Meters {
    server: Option<ServerMeter>,
    /// Values at the beginning of the counted time; until it is known, of the run.
    early: EarlyValues,
    is_marked: bool,
    /// Processor time of this process since then; nothing until the end.
    own_s: f64,
    /// What grew of the kernel's counters; empty until the end.
    grown: BTreeMap<String, u64>,
}

struct EarlyValues {
    host: HostMeter,
    own_s: f64,
    kernel: KernelCounters,
    resident_bytes: u64,
    unix_ms: u64,
}

impl EarlyValues {
    fn read() -> EarlyValues {
        let since = SystemTime::now().duration_since(UNIX_EPOCH);
        EarlyValues {
            host: HostMeter::begin(),
            own_s: machine::own_cpu_s(),
            kernel: KernelCounters::read(),
            resident_bytes: machine::resident_bytes(),
            unix_ms: since.unwrap_or_default().as_millis() as u64,
        }
    }
}

impl Meters {
    fn begin(server_pids: &[u32]) -> Result<Meters, Fault> {
        let server = (!server_pids.is_empty()).then(|| ServerMeter::open(server_pids));
        Ok(Meters {
            server: server.transpose()?,
            early: EarlyValues::read(),
            is_marked: false,
            own_s: 0.0,
            grown: BTreeMap::new(),
        })
    }

    /// The counted time has begun.
    fn mark(&mut self) {
        self.is_marked = true;
        self.early = EarlyValues::read();
        self.mark_server();
    }

    fn mark_server(&mut self) {
        if let Some(server) = &mut self.server {
            server.mark();
        }
    }

    /// The run has ended.
    fn end(&mut self) {
        self.mark_server();
        self.own_s = machine::own_cpu_s() - self.early.own_s;
        // Before the misbehaving clients are reset: what that makes grow is no part of the run.
        self.grown = KernelCounters::read().since(&self.early.kernel);
    }
}

/// Listens until all threads have ended.
fn listen(
    seconds: &Receiver<SecondShare>,
    shared: &RunShared,
    sum: &mut Sum,
    watch: &mut dyn Watch,
    meters: &mut Meters,
) {
    loop {
        let at = now();
        if !meters.is_marked && shared.begin() <= at {
            meters.mark();
        }
        if watch.is_over() {
            shared.end();
        }
        match seconds.recv_timeout(LOOK) {
            Ok(share) => sum.add(&share),
            Err(RecvTimeoutError::Timeout) => {}
            Err(RecvTimeoutError::Disconnected) => return,
        }
        // A second is reported when the next one is half over: no thread is later than that.
        let passed = now().since(shared.start).0;
        let until = passed.saturating_sub(500_000_000) / 1_000_000_000;
        for second in sum.ended(until, begin_second(shared.begin(), shared.start)) {
            watch.second(&second);
            // What ends unwaited for is lost since the last look alone.
            if meters.is_marked {
                meters.mark_server();
            }
        }
    }
}

/// The number of the first counted second.
fn begin_second(begin: Stamp, start: Stamp) -> u64 {
    if begin == Stamp::NEVER {
        u64::MAX
    } else {
        begin.since(start).0.div_ceil(1_000_000_000)
    }
}

impl Measured {
    /// Where the counted time ended: as planned, or earlier because everything was done or it was broken off.
    fn settle_end(&mut self, plan: &Plan) {
        let Length {
            duration, requests, ..
        } = plan.length;
        let planned = duration.map_or(Stamp::NEVER, |lasts| self.begin.plus(lasts));
        let is_done = match &plan.load {
            Load::Recorded { .. } | Load::Burst => true,
            Load::Closed | Load::Open { .. } => {
                requests.is_some_and(|most| self.tally.ended >= most)
            }
        };
        // What was due within the time is waited for beyond it, which is no part of the time that rates are of.
        self.end = if self.end >= planned && !is_done {
            planned
        } else if is_done && self.tally.last_end > self.begin {
            self.tally.last_end.min(planned)
        } else {
            self.end
        };
        assert!(
            self.begin <= self.end,
            "the counted time ends after it began"
        );
    }

    fn outcome(self, plan: &Plan) -> Outcome {
        let elapsed = self.end.since(self.begin);
        let series = self.seconds.finish(begin_second(self.begin, self.start));
        let cpu_s: f64 = self.threads.iter().map(|thread| thread.cpu_s).sum();
        let meters = &self.meters;
        let server = meters.server.as_ref();
        let server = server.map(|server| server.used(self.tally.ended, elapsed));
        let server_s =
            server.as_ref().map_or(0.0, |server| server.cpu_share) * elapsed.as_secs_f64();
        Outcome {
            schema: SCHEMA,
            milepost: env!("CARGO_PKG_VERSION").to_owned(),
            asked: asked(plan),
            began_unix_ms: meters.early.unix_ms,
            seconds: elapsed.as_secs_f64(),
            counts: self.tally.counts(),
            times: times(&self.tally, plan),
            series: without_empty_end(series, elapsed),
            generator: Generator {
                cpu_us_per_request: cpu_s * 1e6 / self.tally.all_ended.max(1) as f64,
                resident_bytes: machine::resident_bytes(),
                resident_early_bytes: meters.early.resident_bytes,
                stalled_s: self.stalled.as_secs_f64(),
                foreign_cpu_share: meters.early.host.foreign_share(meters.own_s, server_s),
                threads: self.threads,
            },
            server,
            kernel: self.meters.grown,
            ..Outcome::default()
        }
    }
}

/// The seconds of the counted time.
fn without_empty_end(mut series: Vec<Second>, elapsed: Nanos) -> Vec<Second> {
    // A request that ended at the very end begins one more second, and so does a thread that ends a moment later: one in
    // which nothing ended would look as if the server had stopped.
    let is_empty = |last: &mut Second| {
        last.at_s as f64 >= elapsed.as_secs_f64() && last.answered + last.failed == 0
    };
    let _ = series.pop_if(is_empty);
    series
}

fn asked(plan: &Plan) -> Asked {
    let (load, rate) = match &plan.load {
        Load::Closed => ("closed", None),
        Load::Open { arrivals, rate } => match arrivals {
            Arrivals::Constant => ("open, constant", Some(rate)),
            Arrivals::Poisson { .. } => ("open, poisson", Some(rate)),
        },
        Load::Recorded { .. } => ("recorded", None),
        Load::Burst => ("burst", None),
    };
    let connections = &plan.connections;
    let named = plan.requests.iter().take(KINDS_SAID);
    Asked {
        url: plan.target.url.clone(),
        label: String::new(),
        load: load.to_owned(),
        rate: rate.map(|rate| rate.at(Nanos(u64::MAX))),
        rate_legs: rate.map(AskedLeg::all).unwrap_or_default(),
        connections: connections.len,
        protocol: connections.protocol,
        in_flight: connections.in_flight,
        requests_each: connections.requests_each.map(Into::into),
        closing: connections.closing,
        timestamps: plan.machine.timestamps,
        threads: plan.machine.threads,
        requests: named.map(|kind| kind.name.clone()).collect(),
        timeout_s: connections.timeout.as_secs_f64(),
    }
}

fn times(tally: &Tally, plan: &Plan) -> Times {
    // Of a closed load each request is due when the one before has ended.
    let by_due = is_by_due(&plan.load);
    let latency = if by_due {
        &tally.latency
    } else {
        &tally.last_byte
    };
    Times {
        latency: Summary::from(latency),
        connect: Summary::from(&tally.connect),
        first_byte: Summary::from(&tally.first_byte),
        last_byte: Summary::from(&tally.last_byte),
        cycle: Summary::from(&tally.cycle),
        late: by_due.then(|| Summary::from(&tally.late)),
        unread: (plan.machine.timestamps == Timestamps::Kernel)
            .then(|| Summary::from(&tally.unread)),
    }
}

#[cfg(test)]
mod tests;
