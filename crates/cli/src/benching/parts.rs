//! The parts of the load generator that a run is made of: the one place where the command calls them.
//!
//! Takes plans and outcomes, gives outcomes and texts. Decides nothing.

use loadgen::engine::{self, Fault, Watch};
use loadgen::experiment::{LoadText, SweepLine};
use loadgen::outcome::Outcome;
use loadgen::plan::Plan;
use loadgen::show::{self, picture};
use loadgen::written::Written;

use super::replay::Disk;

pub(super) use loadgen::show::{LiveFacts, Tone};
pub(super) use loadgen::statistics::{Assertion, End, Knee, Search, Step, Try};
use picture::{Axis, Line, Scale};

/// Makes a run.
pub(super) fn run(plan: &Plan, watch: &mut dyn Watch) -> Result<Outcome, Fault> {
    engine::run(plan, watch)
}

/// A run for people.
pub(super) fn table(outcome: &Outcome, tone: Tone) -> String {
    show::table(outcome, tone)
}

/// How a run goes on, in one line.
pub(super) fn live(facts: &LiveFacts<'_>) -> String {
    show::live(facts)
}

/// The tries of a search and its answer, and the knee as a picture of characters.
pub(super) fn knee(knee: &Knee) -> String {
    let lines = knee
        .lines()
        .into_iter()
        .filter(|(name, _)| *name != "answered");
    let lines: Vec<Line> = lines
        .map(|(name, points)| Line {
            name: name.to_owned(),
            points,
            low_high: None,
        })
        .collect();
    let mut scale = Scale::of(Axis::Linear, Axis::Durations);
    if let Some(best) = knee.best {
        scale = scale.marked(best, "the knee");
    }
    let picture = picture::text_curve("Latency", "requests a second", "latency", &lines, &scale);
    format!("{}\n{picture}", knee.text())
}

/// A form that outcomes are written in.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Form {
    Json,
    Csv,
    Series,
    HdrLog,
    Page,
}

/// Outcomes in a form; `title` is for pages.
pub(super) fn written(outcomes: &[Outcome], form: Form, title: &str) -> Result<String, Fault> {
    match form {
        Form::Json => Ok(show::json(outcomes)),
        Form::Csv => Ok(show::csv(outcomes)),
        Form::Series => Ok(show::series_csv(outcomes)),
        Form::HdrLog => show::hdr_log(outcomes),
        Form::Page => Ok(show::page(outcomes, title)),
    }
}

/// The plan of a load as an experiment has it.
pub(super) fn plan(text: &LoadText) -> Result<Plan, Vec<Fault>> {
    let mut written = Written::default();
    for (key, values) in text.entries() {
        for value in values {
            if !written.put(key, value) {
                return Err(vec![Fault::new(format!(
                    "there is no key `{key}` of a load"
                ))]);
            }
        }
    }
    written.plan(&Disk { pattern: None })
}

/// How a picture is drawn.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Drawn {
    /// For pages.
    Svg,
    /// For terminals.
    Letters,
}

/// The picture of a sweep.
pub(super) fn curve(title: &str, x_label: &str, lines: &[SweepLine], drawn: Drawn) -> String {
    let lines: Vec<Line> = lines
        .iter()
        .map(|line| Line {
            name: line.name.clone(),
            points: line.points.clone(),
            low_high: Some(line.low_high.clone()),
        })
        .collect();
    let scale = Scale::of(Axis::Linear, Axis::Linear);
    let draw = match drawn {
        Drawn::Svg => picture::curve,
        Drawn::Letters => picture::text_curve,
    };
    draw(title, x_label, "requests a second", &lines, &scale)
}
