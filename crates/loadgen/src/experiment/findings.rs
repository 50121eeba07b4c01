//! What an experiment has found: outcomes of all runs, and what they have to be read with.
//!
//! Plain values that serde writes and reads; the file has [`SCHEMA`].

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::outcome::Outcome;

/// The form of [`Findings`]; it grows when a field changes its meaning or goes.
pub const SCHEMA: u32 = 1;

/// All runs of an experiment.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Findings {
    /// [`SCHEMA`].
    pub schema: u32,
    /// Its name.
    pub experiment: String,
    /// In the order of time.
    pub findings: Vec<Finding>,
    /// Servers that were not measured, or no longer, and why.
    pub skipped: Vec<(String, String)>,
    /// What each server says its version is.
    pub versions: BTreeMap<String, String>,
    /// Where it was.
    pub host: Host,
    /// Runs that others had disturbed and that were made a second time.
    pub repeated: usize,
    /// It was ended before its end.
    pub interrupted: bool,
}

/// One run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Finding {
    /// The server's name.
    pub server: String,
    /// The point's name.
    pub point: String,
    /// From 1 on.
    pub repetition: usize,
    /// What was found, or why it was not: `{"done": ...}`, `{"fault": "..."}`.
    #[serde(with = "result")]
    pub outcome: Result<Outcome, String>,
    /// Numbers beside it, by name: `actions_run`, `actions_failed`, and what was asked.
    pub facts: BTreeMap<String, f64>,
    /// What went wrong beside it: actions and questions that failed.
    pub notes: Vec<String>,
    /// Others used more than 8 % of a processor, the second time too.
    pub disturbed: bool,
}

/// The machine.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Host {
    /// That may be used.
    pub processors: usize,
    /// What it calls itself.
    pub processor: String,
    /// Release.
    pub kernel: String,
}

impl Findings {
    /// The good outcomes of a server at a point, in the order of the repetitions.
    pub fn outcomes(&self, server: &str, point: &str) -> Vec<&Outcome> {
        let matching = self
            .findings
            .iter()
            .filter(|finding| finding.server == server && finding.point == point);
        matching
            .filter_map(|finding| finding.outcome.as_ref().ok())
            .collect()
    }
}

mod result {
    use super::*;
    use serde::{Deserializer, Serializer};

    #[derive(Serialize, Deserialize)]
    #[serde(rename_all = "lowercase")]
    enum Stored<O> {
        Done(O),
        Fault(String),
    }

    pub(super) fn serialize<S: Serializer>(
        outcome: &Result<Outcome, String>,
        serializer: S,
    ) -> Result<S::Ok, S::Error> {
        let stored = match outcome {
            Ok(outcome) => Stored::Done(outcome),
            Err(fault) => Stored::Fault(fault.clone()),
        };
        stored.serialize(serializer)
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(
        deserializer: D,
    ) -> Result<Result<Outcome, String>, D::Error> {
        Ok(match Stored::<Outcome>::deserialize(deserializer)? {
            Stored::Done(outcome) => Ok(outcome),
            Stored::Fault(fault) => Err(fault),
        })
    }
}
