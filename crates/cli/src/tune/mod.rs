//! `milepost tune`: how many processes and threads an application needs, by measuring it on this machine.
//!
//! Takes flags, starts servers of its own one after the other, loads them, and prints what was found. 0: done. 1: the
//! objective was not met. 2: it could not be done.
//!
//! ```text
//! capacity ─► a load at the rate ─► access log ─► whatif: other sizes ─► the promising ones, for real
//! ```

mod choice;
mod file;
mod flags;
mod load;
mod output;
mod server;

use std::cell::RefCell;
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::thread::available_parallelism;

use clap::ArgMatches;
use loadgen::outcome::{Outcome, Remark, Weight};
use whatif::prediction::{Answer, Times};

use crate::bench::Stop;
use crate::environment::cause;
use crate::host::AppHost;
use crate::message::{self, Message};
use crate::whatif::tuning::LogModel;
use crate::{COULD_NOT, DONE, NO};
use choice::{Figures, RunnerKind, ServerSize, Speedup, TuneGoal, TuneTry};
use file::{ServedApp, TunedSettings};
use flags::TuneOptions;
pub(crate) use flags::command;
use load::{GetMix, LoadKind};
use output::TuneFinding;
use server::{OwnServer, StartSize, WorkFolder};

/// The part of the capacity that is the load.
const LOAD_PART: f64 = 0.7;
/// The default of the setting `asgi_concurrency`, which every try has had.
const CONCURRENCY: &str = "100:1000";
/// The longest load by one client.
const ALONE_SECONDS_MAX: u64 = 3;
/// Tries until one keeps up with the load.
const GROWING_MAX: usize = 4;
/// With fewer processors, the generator takes a good part of what the server could have.
const FEW_CORES: usize = 4;

/// Tunes and gives the exit code.
pub(crate) fn run(matches: &ArgMatches, host: Option<&dyn AppHost>) -> i32 {
    let tuned = flags::options(matches).and_then(|options| tuned(&options, host));
    match tuned {
        Ok(true) => DONE,
        Ok(false) => NO,
        Err(messages) => {
            message::say_all(&messages);
            COULD_NOT
        }
    }
}

/// Whether the goal is met.
fn tuned(options: &TuneOptions, host: Option<&dyn AppHost>) -> Result<bool, Vec<Message>> {
    let one = |message: Message| vec![message];
    if let Some(output) = options.output.as_deref().filter(|_| !options.is_forced)
        && output.exists()
    {
        let what = format!("`{}`", output.display());
        let message = Message::new(&what, "is there already; nothing was measured");
        return Err(one(
            message.with_hint("`--force` sets the settings in it and keeps the rest")
        ));
    }
    let folder = WorkFolder::new().map_err(one)?;
    let told =
        || message::talk("milepost: tune: ends the server; a second Ctrl-C does so at once\n");
    let stop = Stop::listen_with(told, folder.ending());
    let stop = stop.map_err(|error| one(Message::new("signals", cause(&error))))?;
    let app = ServedApp::of(&options.app, &folder).map_err(one)?;
    let fields = options.fields.clone();
    let mix = match &options.log {
        Some(log) => GetMix::of_log(log, fields),
        None => GetMix::of_paths(&options.paths, fields),
    };
    let mix = mix.map_err(one)?;
    let cores = available_parallelism().map_or(1, usize::from);
    let tuning = Tuning {
        options,
        host,
        folder,
        app,
        mix,
        stop,
        cores,
        told: RefCell::default(),
    };
    tuning.tell_warnings();
    tuning.tune().map_err(one)
}

/// One use of the command.
struct Tuning<'t> {
    options: &'t TuneOptions,
    host: Option<&'t dyn AppHost>,
    folder: WorkFolder,
    app: ServedApp,
    mix: GetMix,
    stop: Stop,
    cores: usize,
    /// The kinds of doubts that were told.
    told: RefCell<BTreeSet<String>>,
}

/// What the application does for one client.
#[derive(Clone, Copy, Debug)]
struct AloneFigures {
    /// Requests a second.
    per_second: f64,
    /// The part of its time in which a request computes.
    computing: f64,
}

/// A run and its log.
struct TuneRun {
    size: ServerSize,
    outcome: Outcome,
    log: PathBuf,
}

impl Tuning<'_> {
    fn tell_warnings(&self) {
        let warn = |text: &str| message::talk(&format!("milepost: tune: {text}\n"));
        warn("the GETs run the real application, with its real database");
        if self.cores < FEW_CORES {
            warn(&format!(
                "generator and server share {} here: with a generator elsewhere the server would answer more",
                present::counted(self.cores as u64, "processor")
            ));
        }
    }

    fn tune(&self) -> Result<bool, Message> {
        let (kind, alone) = self.alone()?;
        let probed = self.capacities(kind)?;
        let speedup = Speedup {
            times: probed[0].1 / alone.per_second,
            clients: self.options.clients,
            computing: alone.computing,
        };
        let (first, rate) = match self.options.rate {
            Some(rate) => choice::for_rate(&probed, rate).map(|size| (size, rate)),
            None => {
                let found = choice::base(&probed);
                found.map(|(size, capacity)| (size, rounded(LOAD_PART * capacity)))
            }
        }
        .ok_or_else(unanswered)?;
        let first = choice::with_useful_threads(first, kind, speedup);
        let (run, rate) = self.grown(kind, first, rate, speedup)?;
        let model = self.model(kind, &run)?;
        let predictions = self.predictions(kind, &model, run.size);
        let mut tries = vec![self.tried(&run, rate, None)];
        while let Some(size) = choice::next(&tries, &predictions, self.options.goal) {
            let run = self.one(kind, size, LoadKind::Rate(rate))?;
            let predicted = predictions.iter().find(|(known, _)| *known == size);
            tries.push(self.tried(&run, rate, predicted.map(|(_, figures)| *figures)));
        }
        self.finish(kind, &tries, speedup, &model)
    }

    /// What runs the application, and what it does for one client; also whether it answers.
    fn alone(&self) -> Result<(RunnerKind, AloneFigures), Message> {
        let size = StartSize {
            processes: 1,
            threads: None,
        };
        let server = self.start(size)?;
        let checked = self.mix.check(&server);
        self.check_stop()?;
        let doubts = checked.map_err(|message| message.with_detail(server.said(&self.app)))?;
        message::say_all(&doubts);
        let seconds = self.options.seconds.min(ALONE_SECONDS_MAX);
        let name = "one client".to_owned();
        let load = LoadKind::Clients(1);
        let outcome = self.mix.run(&server, load, seconds, name, &self.stop)?;
        let log = server.access_log.clone();
        let ready_s = server.ready_s();
        server.end();
        self.check_stop()?;
        let kind = match LogModel::of(&log, None).map_err(first_of)?.is_on_loop() {
            true => RunnerKind::EventLoop,
            false => RunnerKind::Threads,
        };
        let per_second = outcome.per_second();
        if per_second <= 0.0 {
            return Err(unanswered());
        }
        let computing = computing_part(&log, ready_s);
        Ok((
            kind,
            AloneFigures {
                per_second,
                computing,
            },
        ))
    }

    /// How many requests a second one process answers, and one for each processor; one process first.
    fn capacities(&self, kind: RunnerKind) -> Result<Vec<(ServerSize, f64)>, Message> {
        let clients = self.options.clients;
        let mut probed = Vec::new();
        for size in choice::probes(kind, self.cores, clients) {
            let run = self.one(kind, size, LoadKind::Clients(clients))?;
            let per_second = run.outcome.per_second();
            message::talk(&format!(
                "milepost: tune: {} for {}: {} requests a second\n",
                output::named(size, kind),
                present::counted(clients as u64, "client"),
                present::number(per_second)
            ));
            probed.push((size, per_second));
        }
        assert!(!probed.is_empty(), "one process is always measured");
        Ok(probed)
    }

    /// A run that keeps up with the rate, and the rate. A rate that was given is kept: the server grows. The part of the
    /// capacity becomes smaller instead: a capacity is more than what keeps response times short.
    fn grown(
        &self,
        kind: RunnerKind,
        first: ServerSize,
        mut rate: f64,
        speedup: Speedup,
    ) -> Result<(TuneRun, f64), Message> {
        let mut run = self.one(kind, first, LoadKind::Rate(rate))?;
        for _ in 0..GROWING_MAX {
            if self.tried(&run, rate, None).keeps_up() {
                break;
            }
            let size = match self.options.rate {
                None => {
                    rate = rounded(LOAD_PART * rate);
                    run.size
                }
                Some(_) => match choice::larger(run.size, kind, self.cores, speedup.limit()) {
                    Some(larger) => larger,
                    None => break,
                },
            };
            run = self.one(kind, size, LoadKind::Rate(rate))?;
        }
        Ok((run, rate))
    }

    fn model(&self, kind: RunnerKind, run: &TuneRun) -> Result<LogModel, Message> {
        let threads = (kind == RunnerKind::Threads).then_some(run.size.threads);
        let model = LogModel::of(&run.log, threads).map_err(first_of)?;
        if !["", "default"].contains(&model.pool()) {
            let text = format!(
                "most of these GETs run in the pool `{}`, and `threads` is about the pool `default`",
                model.pool()
            );
            return Err(Message::new("load", text).with_hint("name paths of the pool `default`"));
        }
        if !model.holds() {
            message::talk(
                "milepost: tune: the simulation does not repeat this run well: predictions are rough\n",
            );
        }
        Ok(model)
    }

    fn predictions(
        &self,
        kind: RunnerKind,
        model: &LogModel,
        base: ServerSize,
    ) -> Vec<(ServerSize, Figures)> {
        let sizes = choice::ladder(kind, self.cores, base.threads);
        let pairs: Vec<(usize, usize)> = sizes
            .iter()
            .map(|size| (size.processes, size.threads))
            .collect();
        let answers = model.answers(&pairs);
        let figures = answers.iter().map(|answer| self.predicted(answer));
        sizes.iter().copied().zip(figures).collect()
    }

    fn predicted(&self, answer: &Answer) -> Figures {
        Figures {
            p50_ms: answer.total.p50_ms,
            p99_ms: answer.total.p99_ms,
            aimed_ms: of_times(&answer.total, self.options.aimed_at.name),
            failed: answer.refused_share(),
        }
    }

    fn tried(&self, run: &TuneRun, rate: f64, predicted: Option<Figures>) -> TuneTry {
        let (outcome, latency) = (&run.outcome, &run.outcome.times.latency);
        let part = |count: u64, of: u64| count as f64 / of.max(1) as f64;
        let counts = &outcome.counts;
        let refused = counts.statuses.get(&503).copied().unwrap_or(0);
        let due = counts.ended() + counts.unsent + counts.unfinished;
        let p50_s = latency.p50_us / 1e6;
        TuneTry {
            size: run.size,
            measured: Figures {
                p50_ms: latency.p50_us / 1e3,
                p99_ms: latency.percentile_us(99.0) / 1e3,
                aimed_ms: latency.percentile_us(self.options.aimed_at.percent()) / 1e3,
                failed: part(counts.failures.sum(), counts.ended()),
            },
            predicted,
            per_second: outcome.per_second(),
            rate,
            kept: choice::kept_share(counts.within(), due, outcome.seconds, p50_s),
            refused: part(refused, counts.ended()),
            cpus: outcome.server.as_ref().map(|server| server.cpu_share),
        }
    }

    /// One load on a server of its own.
    fn one(&self, kind: RunnerKind, size: ServerSize, load: LoadKind) -> Result<TuneRun, Message> {
        let server = self.start(StartSize {
            processes: size.processes,
            threads: (kind == RunnerKind::Threads).then_some(size.threads),
        })?;
        let name = format!("{size}");
        let seconds = self.options.seconds;
        let outcome = self.mix.run(&server, load, seconds, name, &self.stop)?;
        let access_log = server.access_log.clone();
        server.end();
        self.check_stop()?;
        self.tell_doubts(&outcome);
        let log = self.folder.file("counted.log");
        load::counted_lines(&access_log, outcome.began_unix_ms, &log)
            .map_err(|error| Message::new("the log of the run", cause(&error)))?;
        Ok(TuneRun { size, outcome, log })
    }

    fn check_stop(&self) -> Result<(), Message> {
        match self.stop.is_asked_for() {
            true => Err(Message::new(
                "tune",
                "it was interrupted; nothing is written",
            )),
            false => Ok(()),
        }
    }

    /// Each kind of doubt once: a busy machine has the same in all runs.
    fn tell_doubts(&self, outcome: &Outcome) {
        let is_bad = |remark: &&Remark| remark.weight == Weight::Invalid;
        for remark in outcome.remarks.iter().filter(is_bad) {
            if self.told.borrow_mut().insert(remark.word.clone()) {
                let what = remark.text.split(": ").next().unwrap_or_default();
                message::talk(&format!(
                    "milepost: tune: the figures are doubtful, {what}; stop what else runs here\n"
                ));
            }
        }
    }

    fn start(&self, size: StartSize) -> Result<OwnServer, Message> {
        let (host, first) = (self.host, self.mix.first());
        let started = OwnServer::start(&self.app, size, &self.folder, host, &first, &self.stop);
        self.check_stop()?;
        started
    }

    fn finish(
        &self,
        kind: RunnerKind,
        tries: &[TuneTry],
        speedup: Speedup,
        model: &LogModel,
    ) -> Result<bool, Message> {
        let options = self.options;
        let verdict = choice::verdict(tries, options.goal);
        let verdict = verdict.ok_or_else(|| Message::new("tune", "nothing was tried"))?;
        let best = &tries[verdict.best];
        let finding = TuneFinding {
            kind,
            tries,
            verdict,
            goal: options.goal,
            aimed_at: options.aimed_at,
            speedup,
            rate_within: (!verdict.holds)
                .then(|| self.rate_within(model, best))
                .flatten(),
        };
        let text = format!(
            "{} at {} requests a second, {} s each\n\n{}\n{}",
            self.mix.name(),
            present::number(best.rate),
            options.seconds,
            output::table(kind, tries, options.aimed_at),
            output::sentences(&finding)
        );
        message::result(&text)?;
        let settings = TunedSettings {
            processes: best.size.processes,
            threads: (kind == RunnerKind::Threads).then_some(best.size.threads),
            concurrency: (kind == RunnerKind::EventLoop).then_some(CONCURRENCY),
        };
        let usual = self.app.output();
        let path: &Path = options.output.as_deref().unwrap_or(&usual);
        let written = file::write(&settings, &self.app, path, options.is_forced)?;
        message::talk(&format!("milepost: {written}"));
        Ok(verdict.holds)
    }

    /// The highest rate that is predicted to be within the objective.
    fn rate_within(&self, model: &LogModel, best: &TuneTry) -> Option<f64> {
        let TuneGoal::Below(below) = self.options.goal else {
            return None;
        };
        let size = (best.size.processes, best.size.threads);
        let holds = |factor: f64| {
            let found = self.predicted(&model.at_rate(size, factor));
            found.aimed_ms <= below && found.failed <= 0.001
        };
        let (mut within, mut beyond) = (0.0, 1.0);
        for _ in 0..6 {
            let middle = (within + beyond) / 2.0;
            match holds(middle) {
                true => within = middle,
                false => beyond = middle,
            }
        }
        (within > 0.0).then_some(within * best.rate)
    }
}

fn first_of(messages: Vec<Message>) -> Message {
    let first = messages.into_iter().next();
    first.unwrap_or_else(|| Message::new("the log of the run", "nothing can be read from it"))
}

/// Two digits: what was measured is not known better.
fn rounded(rate: f64) -> f64 {
    let unit = 10f64.powf(rate.log10().floor() - 1.0);
    ((rate / unit).round() * unit).max(0.1)
}

fn of_times(times: &Times, name: &str) -> f64 {
    match name {
        "p50" => times.p50_ms,
        "p90" => times.p90_ms,
        "p95" => times.p95_ms,
        "p99.9" => times.p99_9_ms,
        _ => times.p99_ms,
    }
}

/// For which part of their runs the requests of a log computed. They would have run for less time if no other program had
/// used the processors: so long, threads were ready to run.
fn computing_part(log: &Path, ready_s: f64) -> f64 {
    let (mut run_s, mut cpu_s) = (0.0, 0.0);
    let input = report::Input::File(log.to_owned());
    let read = report::lines(&input, None, &mut |line| {
        let span = |span: Option<telemetry::Nanos>| span.map_or(0.0, |span| span.as_secs_f64());
        run_s += span(line.spans.run);
        cpu_s += span(line.spans.cpu).max(span(line.event_loop.busy));
        Some(std::ops::ControlFlow::Continue(()))
    });
    match read.is_ok() && run_s > 0.0 {
        true => cpu_s / (run_s - ready_s).max(cpu_s).max(f64::MIN_POSITIVE),
        false => 0.0,
    }
}

fn unanswered() -> Message {
    let hint = "a longer try may have some: `--seconds 30`";
    Message::new("load", "not a single request was answered in time").with_hint(hint)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rates_have_two_digits() {
        for (rate, expect) in [(1_234.0, 1_200.0), (87.4, 87.0), (3.18, 3.2), (0.012, 0.1)] {
            assert!((rounded(rate) - expect).abs() < 1e-6, "{rate}");
        }
    }

    #[test]
    fn knows_how_much_requests_compute() {
        let folder = tempfile::tempdir().expect("a folder");
        let log = folder.path().join("log");
        let line = "unix: - - [28/Nov/2026:07:53:58 +0000] \"GET / HTTP/1.1\" 200 3 \"-\" \"-\" \
                    receive=0.000000 queue=0.000000 run=0.010000 send=0.000000 total=0.010000 \
                    cpu=0.004000 gil=0.002000 at=1795852438.871443\n";
        std::fs::write(&log, line.repeat(3)).expect("written");
        let is = |ready_s: f64, part: f64| {
            assert!(
                (computing_part(&log, ready_s) - part).abs() < 1e-6,
                "{ready_s}"
            );
        };
        is(0.0, 0.4);
        is(0.015, 0.8);
        is(1.0, 1.0);
        assert!(computing_part(&folder.path().join("none"), 0.0).abs() < 1e-6);
    }
}
