//! Experiments: servers that are started for the measurement, loads that each of them gets, in turns.
//!
//! Takes an [`Experiment`], gives [`Findings`]. A load is kept in its text form ([`LoadText`]); whoever calls
//! [`run`] says how it becomes a plan and how a plan is run, so that nothing here needs a network to be tested.
//!
//! ```text
//! repetition 1:  A: all points │ rest │ B: all points │ rest │ C: all points
//! repetition 2:  C: all points │ rest │ B: all points │ rest │ A: all points
//! ```

mod actions;
mod asking;
mod findings;
mod load_text;
#[cfg(test)]
mod made;
mod matrix;
pub mod original;
pub mod paper;
mod pins;
mod place;
mod process;
mod run;
pub mod scenario;
mod server;
mod sweep;

use measure::Nanos;

pub use findings::{Finding, Findings, Host, SCHEMA};
pub use load_text::LoadText;
pub use matrix::{Combination, Dimension, combinations, milepost, other, words};
pub use run::run;
pub use sweep::{SWEPT_KEYS, SweepLine, SweepTable, Swept};

use crate::engine::{Fault, Watch};
use crate::outcome::Outcome;
use crate::plan::Plan;

/// Servers, loads and how often each is measured.
#[derive(Clone, Debug, PartialEq)]
pub struct Experiment {
    /// What people call it.
    pub name: String,
    /// Repetitions; at least 1.
    pub repeat: usize,
    /// In the order of the first repetition; at least one.
    pub servers: Vec<ServerSpec>,
    /// In the order in which each server gets them; at least one.
    pub points: Vec<Point>,
    /// Who runs where.
    pub pins: Pins,
    /// Between two points, and between two servers.
    pub rest: Nanos,
}

/// Which processors belong to whom; empty: any.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Pins {
    /// Of servers, of what runs beside them and of actions.
    pub server: Vec<usize>,
    /// Of the generator, where a plan names none itself.
    pub generator: Vec<usize>,
}

/// A server as it is started. In all its texts `{port}` (one that is free), `{folder}` (of its own, removed
/// afterwards) and `{cpus}` (as `0,1`) are replaced, and `{python}` and `{milepost}` by the programs of
/// [`Programs`]; an argument that is `{milepost}` becomes as many arguments as that has words.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ServerSpec {
    /// Unique in the experiment.
    pub name: String,
    /// Program and arguments; empty: nothing is started, the loads' own addresses hold.
    pub start: Vec<String>,
    /// Where it and everything of it is run; `None`: where the caller is.
    pub cwd: Option<String>,
    /// Variables beside those of the caller.
    pub env: Vec<(String, String)>,
    /// Files by their paths in `{folder}`, and their texts, written before anything is run.
    pub files: Vec<(String, String)>,
    /// Commands that are run to their end before it is started.
    pub prepare: Vec<Vec<String>>,
    /// Processes that run as long as it does, started before it.
    pub beside: Vec<Beside>,
    /// Programs that have to be there, `python:NAME` for a Python module, `library:NAME` for a shared library;
    /// without them it is skipped.
    pub needs: Vec<String>,
    /// A command whose first line says which version it is; empty: nobody asks.
    pub version: Vec<String>,
    /// When it is ready.
    pub ready: Ready,
    /// What is done to it while it is measured; the times begin anew with each point.
    pub actions: Vec<Action>,
    /// What is asked after each point.
    pub facts: Vec<FactSpec>,
}

/// A process beside a server. It may end before the server does.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Beside {
    /// What an action calls it.
    pub name: String,
    /// Program and arguments.
    pub start: Vec<String>,
}

/// When a server is ready: its port takes a connection and, with a path, answers a GET with 200 to 399.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ready {
    /// What is asked for.
    pub path: Option<String>,
    /// It has so much time.
    pub timeout: Nanos,
}

impl Default for Ready {
    fn default() -> Ready {
        Ready {
            path: None,
            timeout: Nanos::from_secs(30),
        }
    }
}

/// Something that is done while a point is measured. That it fails is a fact of the finding, not its end.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Action {
    /// After the beginning of the point's run, its warm-up included.
    pub at: Nanos,
    /// And then so often.
    pub every: Option<Nanos>,
    /// At most so many times in a point; without `every` it is once.
    pub times: usize,
    /// What.
    pub what: Do,
}

/// What an action does.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Do {
    /// Runs a command to its end; `{pid}` is the server's first process.
    Run(Vec<String>),
    /// Sends a signal.
    Signal {
        /// `server`, or the name of a process beside it. Only its first process is meant.
        whom: String,
        /// `STOP` or `SIGSTOP`.
        signal: String,
    },
}

/// A command that is run after each point; its output becomes facts of the finding.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FactSpec {
    /// The fact, when the output is a number; else before each key and a dot: lines of `key value` are facts
    /// each. Empty: the keys alone.
    pub name: String,
    /// Program and arguments; `{pid}` as in actions.
    pub command: Vec<String>,
}

/// A load by which each server is measured.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Point {
    /// Unique in the experiment.
    pub name: String,
    /// In its texts `{port}` and `{folder}` are replaced.
    pub load: LoadText,
    /// Names of the servers that get it; `None`: all.
    pub servers: Option<Vec<String>>,
}

/// How programs are called that no path names.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Programs {
    /// This very program: the plain binary, or the interpreter and what stands behind it.
    pub milepost: Vec<String>,
    /// A Python interpreter.
    pub python: String,
}

/// Who is told how an experiment goes on, and may end it.
pub trait Progress: Watch {
    /// Something begins.
    fn step(&mut self, step: &Step<'_>);
}

/// What begins.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Step<'a> {
    /// A server cannot be measured.
    Skips {
        /// Its name.
        server: &'a str,
        /// Why.
        why: &'a str,
    },
    /// A server is started for its turn.
    Starts {
        /// Its name.
        server: &'a str,
        /// From 1 on.
        repetition: usize,
        /// Of all.
        repeat: usize,
    },
    /// A point is measured.
    Measures {
        /// The server's name.
        server: &'a str,
        /// The point's name.
        point: &'a str,
        /// Runs before this one, as planned.
        done: usize,
        /// All runs, as planned.
        all: usize,
    },
    /// Others used the processors: it is measured once more.
    Repeats {
        /// The server's name.
        server: &'a str,
        /// The point's name.
        point: &'a str,
    },
}

/// How an experiment is run: what others can do.
pub struct Means<'a> {
    /// Programs that no path names.
    pub programs: &'a Programs,
    /// Makes a plan of a load; all faults at once.
    pub make_plan: &'a mut dyn FnMut(&LoadText) -> Result<Plan, Vec<Fault>>,
    /// Runs a plan.
    pub run_plan: &'a mut dyn FnMut(&Plan, &mut dyn Watch) -> Result<Outcome, Fault>,
    /// Is told, and may end it.
    pub progress: &'a mut dyn Progress,
}
