//! An experiment from its beginning to its end: who is started when, what is measured, what is kept.
//!
//! Takes an experiment and the [`Means`] to run it, gives findings. A server that does not start, a run that
//! cannot be made, an action that fails are findings; only an experiment that makes no sense is a fault.

use std::collections::BTreeMap;
use std::fs;
use std::sync::mpsc::channel;
use std::thread;
use std::time::{Duration, Instant};

use measure::Nanos;

use super::findings::SCHEMA;
use super::server::{GRACE, Server};
use super::{
    Experiment, Finding, Findings, Host, Means, Point, ServerSpec, Step, actions, asking, pins,
};
use crate::engine::Fault;
use crate::outcome::Outcome;
use crate::plan::Plan;

/// Others that use more of one processor disturb a run.
const FOREIGN_MAX: f64 = 0.08;
/// How often a rest looks whether it is to end.
const REST_LOOK: Duration = Duration::from_millis(50);

/// Runs an experiment. Repetition 1 takes the servers in their order, repetition 2 in the opposite one, and
/// so on, so that what drifts falls on all alike; a server is started anew for each turn.
///
/// Once [`Watch::is_over`](crate::engine::Watch::is_over) says so it has to go on saying so: then the run is
/// thrown away, the server ended, and what was found before is given.
///
/// # Errors
/// What is asked for makes no sense; nothing was started then.
pub fn run(experiment: &Experiment, means: &mut Means<'_>) -> Result<Findings, Fault> {
    if let Some(fault) = experiment.fault() {
        return Err(fault);
    }
    check_loads(experiment, means)?;
    let mut course = Course::new(experiment, means);
    course.meet_servers();
    for repetition in 1..=experiment.repeat {
        for server in order(experiment, repetition) {
            if course.is_over() {
                return Ok(course.findings);
            }
            course.turn(server, repetition);
        }
    }
    Ok(course.findings)
}

/// The servers in the order of a repetition.
fn order(experiment: &Experiment, repetition: usize) -> Vec<&ServerSpec> {
    let servers = experiment.servers.iter();
    if repetition.is_multiple_of(2) {
        servers.rev().collect()
    } else {
        servers.collect()
    }
}

/// Better a fault now than after minutes. What is in a folder cannot be looked at before there is one.
fn check_loads(experiment: &Experiment, means: &mut Means<'_>) -> Result<(), Fault> {
    let Some(spec) = experiment.servers.first() else {
        return Ok(());
    };
    let server = Server::in_folder(spec, &experiment.pins, means.programs)?;
    for point in &experiment.points {
        let mut texts = point.load.entries().flat_map(|(_, values)| values);
        if texts.any(|text| text.contains("{folder}")) {
            continue;
        }
        let made = (means.make_plan)(&server.place.load(&point.load));
        made.map_err(|faults| joined(&point.name, &faults))?;
    }
    Ok(())
}

fn joined(point: &str, faults: &[Fault]) -> Fault {
    let texts: Vec<&str> = faults.iter().map(|fault| fault.text.as_str()).collect();
    Fault {
        text: format!("point `{point}`: {}", texts.join("; ")),
        hint: faults.iter().find_map(|fault| fault.hint.clone()),
    }
}

/// An experiment under way.
struct Course<'e, 'm, 'p> {
    experiment: &'e Experiment,
    means: &'m mut Means<'p>,
    findings: Findings,
    done: usize,
    all: usize,
}

impl<'e, 'm, 'p> Course<'e, 'm, 'p> {
    fn new(experiment: &'e Experiment, means: &'m mut Means<'p>) -> Course<'e, 'm, 'p> {
        let servers = experiment.servers.iter();
        let points: usize = servers.map(|spec| experiment.points_of(spec).count()).sum();
        Course {
            experiment,
            means,
            findings: Findings {
                schema: SCHEMA,
                experiment: experiment.name.clone(),
                host: host(),
                ..Findings::default()
            },
            done: 0,
            all: points * experiment.repeat,
        }
    }

    /// Asks each for its version, and leaves out those that cannot be measured here.
    fn meet_servers(&mut self) {
        for spec in &self.experiment.servers {
            let programs = self.means.programs;
            if let Some(why) = asking::missing(spec, programs) {
                self.skip(spec, why);
            } else if let Some(version) = asking::version(spec, &self.experiment.pins, programs) {
                self.findings.versions.insert(spec.name.clone(), version);
            }
        }
    }

    /// One server, started anew, with all its points.
    fn turn(&mut self, spec: &'e ServerSpec, repetition: usize) {
        let points: Vec<&Point> = self.experiment.points_of(spec).collect();
        let is_skipped = self
            .findings
            .skipped
            .iter()
            .any(|(name, _)| *name == spec.name);
        if is_skipped || points.is_empty() {
            self.done += points.len();
            return;
        }
        let step = Step::Starts {
            server: &spec.name,
            repetition,
            repeat: self.experiment.repeat,
        };
        self.means.progress.step(&step);
        self.rest();
        let progress = &mut *self.means.progress;
        let pins = &self.experiment.pins;
        let started = Server::start(spec, pins, self.means.programs, &mut || progress.is_over());
        match started {
            Ok(server) => self.measure_all(server, &points, repetition),
            Err(fault) => {
                if !self.is_over() {
                    self.done += points.len();
                    self.skip(spec, fault.text);
                }
            }
        }
    }

    fn measure_all(&mut self, server: Server<'_>, points: &[&Point], repetition: usize) {
        for (index, point) in points.iter().enumerate() {
            if index > 0 {
                self.rest();
            }
            if self.is_over() {
                break;
            }
            let finding = self.measure(&server, point, repetition);
            // What was ended early is no measurement.
            if self.is_over() {
                break;
            }
            self.findings.findings.push(finding);
            self.done += 1;
            if let Some(how) = server.ended() {
                self.done += points.len() - index - 1;
                self.skip(server.spec, how);
                break;
            }
        }
        let name = server.spec.name.clone();
        for cause in server.stop(GRACE) {
            self.findings.skipped.push((name.clone(), cause));
        }
    }

    /// One point, and once more if others disturbed it; the run that was disturbed less is kept.
    fn measure(&mut self, server: &Server<'_>, point: &Point, repetition: usize) -> Finding {
        let names = (server.spec.name.as_str(), point.name.as_str());
        let step = Step::Measures {
            server: names.0,
            point: names.1,
            done: self.done,
            all: self.all,
        };
        self.means.progress.step(&step);
        let first = self.measure_once(server, point, repetition);
        if !first.disturbed || self.is_over() || server.ended().is_some() {
            return first;
        }
        self.findings.repeated += 1;
        let step = Step::Repeats {
            server: names.0,
            point: names.1,
        };
        self.means.progress.step(&step);
        self.rest();
        let second = self.measure_once(server, point, repetition);
        match (&first.outcome, &second.outcome) {
            (Ok(before), Ok(after)) if foreign(after) <= foreign(before) => second,
            _ => first,
        }
    }

    fn measure_once(&mut self, server: &Server<'_>, point: &Point, repetition: usize) -> Finding {
        let mut finding = Finding {
            server: server.spec.name.clone(),
            point: point.name.clone(),
            repetition,
            outcome: Err(String::new()),
            facts: BTreeMap::new(),
            notes: Vec::new(),
            disturbed: false,
        };
        finding.outcome = self.outcome(server, point, &mut finding.facts, &mut finding.notes);
        if let Ok(outcome) = &finding.outcome {
            finding.disturbed = foreign(outcome) > FOREIGN_MAX;
            let (facts, notes) = asking::facts(server);
            finding.facts.extend(facts);
            finding.notes.extend(notes);
        }
        if let Some(how) = server.ended() {
            finding.notes.push(format!("the server {how}"));
        }
        finding
    }

    /// The run itself, with the server's actions beside it.
    fn outcome(
        &mut self,
        server: &Server<'_>,
        point: &Point,
        facts: &mut BTreeMap<String, f64>,
        notes: &mut Vec<String>,
    ) -> Result<Outcome, String> {
        let made = (self.means.make_plan)(&server.place.load(&point.load));
        let mut plan = made.map_err(|faults| joined(&point.name, &faults).text)?;
        self.settle(&mut plan, server);
        let (over, until) = channel::<()>();
        let run = thread::scope(|scope| {
            let acting = scope.spawn(move || actions::perform(server, &until));
            let run = (self.means.run_plan)(&plan, &mut *self.means.progress);
            drop(over);
            let done = acting.join().unwrap_or_default();
            if !server.spec.actions.is_empty() {
                facts.insert("actions_run".to_owned(), done.run as f64);
                facts.insert("actions_failed".to_owned(), done.failed as f64);
            }
            notes.extend(done.notes);
            run
        });
        let mut outcome = run.map_err(|fault| fault.text)?;
        if !server.spec.start.is_empty() {
            outcome.asked.url = server.spec.name.clone();
        }
        if outcome.asked.label.is_empty() {
            outcome.asked.label = point.name.clone();
        }
        Ok(outcome)
    }

    /// What only this place knows of a plan: who is watched, and where the generator runs.
    fn settle(&self, plan: &mut Plan, server: &Server<'_>) {
        plan.machine.server_pids.extend(server.pids());
        if plan.machine.cpus.is_empty() {
            plan.machine
                .cpus
                .clone_from(&self.experiment.pins.generator);
        }
    }

    fn skip(&mut self, spec: &ServerSpec, why: String) {
        let step = Step::Skips {
            server: &spec.name,
            why: &why,
        };
        self.means.progress.step(&step);
        self.findings.skipped.push((spec.name.clone(), why));
    }

    fn is_over(&mut self) -> bool {
        self.findings.interrupted |= self.means.progress.is_over();
        self.findings.interrupted
    }

    fn rest(&mut self) {
        let until = Instant::now() + Duration::from_nanos(self.experiment.rest.0);
        while !self.is_over() {
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return;
            }
            thread::sleep(left.min(REST_LOOK));
        }
    }
}

/// How much of one processor others used.
fn foreign(outcome: &Outcome) -> f64 {
    let processors = thread::available_parallelism().map_or(1, usize::from);
    outcome.generator.foreign_cpu_share * all_processors().unwrap_or(processors) as f64
}

/// Processors that are switched on, whoever may use them: shares of the host's time are shares of theirs.
fn all_processors() -> Option<usize> {
    let stat = fs::read_to_string("/proc/stat").ok()?;
    let is_one = |line: &&str| {
        let name = line.strip_prefix("cpu");
        name.is_some_and(|name| name.starts_with(|letter: char| letter.is_ascii_digit()))
    };
    Some(stat.lines().filter(is_one).count()).filter(|len| *len > 0)
}

fn host() -> Host {
    let cpuinfo = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let model = cpuinfo.lines().find_map(|line| {
        let (key, value) = line.split_once(':')?;
        (key.trim() == "model name").then(|| value.trim().to_owned())
    });
    let kernel = fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
    Host {
        processors: pins::available().len(),
        processor: model.unwrap_or_default(),
        kernel: kernel.trim().to_owned(),
    }
}

impl Experiment {
    /// The points that a server gets.
    pub fn points_of<'a>(&'a self, spec: &'a ServerSpec) -> impl Iterator<Item = &'a Point> {
        let is_for = |point: &&Point| {
            let names = point.servers.as_ref();
            names.is_none_or(|names| names.contains(&spec.name))
        };
        self.points.iter().filter(is_for)
    }

    /// Why the parts do not fit together, with the remedy; `None`: they do.
    pub fn fault(&self) -> Option<Fault> {
        let said = |text: &str| Some(Fault::new(format!("experiment `{}`: {text}", self.name)));
        if self.repeat == 0 || self.servers.is_empty() || self.points.is_empty() {
            return said("repetitions, servers and points are at least 1");
        }
        let names: Vec<&str> = self.servers.iter().map(|spec| spec.name.as_str()).collect();
        if let Some(name) = doubled(&names) {
            return said(&format!("two servers are called `{name}`"));
        }
        let points: Vec<&str> = self
            .points
            .iter()
            .map(|point| point.name.as_str())
            .collect();
        if let Some(name) = doubled(&points) {
            return said(&format!("two points are called `{name}`"));
        }
        for point in &self.points {
            let mut meant = point.servers.iter().flatten();
            if let Some(name) = meant.find(|name| !names.contains(&name.as_str())) {
                return said(&format!(
                    "point `{}` is for `{name}`, which is no server",
                    point.name
                ));
            }
        }
        let faults = self.servers.iter().filter_map(ServerSpec::fault);
        faults.chain(self.pins.fault()).next()
    }
}

impl ServerSpec {
    fn fault(&self) -> Option<Fault> {
        let said = |text: String| Some(Fault::new(format!("server `{}`: {text}", self.name)));
        if !self.start.is_empty() && !self.texts().any(|text| text.contains("{port}")) {
            let hint =
                "write `{port}` where its port belongs: the number is chosen when it is started";
            let text = format!("server `{}`: nothing tells it its port", self.name);
            return Some(Fault::with_hint(text, hint));
        }
        let beside: Vec<&str> = self
            .beside
            .iter()
            .map(|beside| beside.name.as_str())
            .collect();
        if let Some(name) = doubled(&beside) {
            return said(format!("two processes beside it are called `{name}`"));
        }
        for action in &self.actions {
            if action.every.is_some_and(|every| every == Nanos::ZERO) {
                return said("an action is done every 0 s".to_owned());
            }
            if let super::Do::Signal { whom, signal } = &action.what {
                if whom != super::server::SERVER && !beside.contains(&whom.as_str()) {
                    return said(format!(
                        "an action means `{whom}`, which is no process of it"
                    ));
                }
                if actions::signal(signal).is_none() {
                    return said(format!("there is no signal `{signal}`"));
                }
            }
        }
        None
    }

    fn texts(&self) -> impl Iterator<Item = &String> {
        let values = self.env.iter().chain(&self.files).map(|(_, value)| value);
        self.start.iter().chain(values)
    }
}

fn doubled<'a>(names: &[&'a str]) -> Option<&'a str> {
    let mut sorted = names.to_vec();
    sorted.sort_unstable();
    let mut pairs = sorted.windows(2);
    pairs.find(|pair| pair[0] == pair[1]).map(|pair| pair[0])
}

#[cfg(test)]
mod tests;
