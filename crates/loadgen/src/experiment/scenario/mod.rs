//! Scenarios: whole experiments as TOML, with the tables that come of them.
//!
//! Takes texts, gives a [`Scenario`] or why it is none, with the line. Those of the project are part of the
//! program ([`EMBEDDED`]), so that they are there wherever it is. Reads no file, starts nothing.

mod form;
mod words;

use std::collections::BTreeSet;

use super::paper::{Layout, Shows, Table, Value};
use super::{Do, Experiment, ServerSpec};
use crate::engine::Fault;

macro_rules! embedded {
    ($name:literal) => {
        (
            $name,
            include_str!(concat!("../../../../../benches/scenarios/", $name, ".toml")),
        )
    };
}
/// The scenarios of the project: names and texts, in the order in which they are listed.
pub const EMBEDDED: [(&str, &str); 9] = [
    embedded!("drivers-sweep"),
    embedded!("short-lived-30k"),
    embedded!("prefork-buckets"),
    embedded!("six-requests"),
    embedded!("thousand-at-once"),
    embedded!("slow-readers"),
    embedded!("stalled-log"),
    embedded!("reload"),
    embedded!("allocators"),
];

/// An experiment and what is made of it.
#[derive(Clone, Debug)]
pub struct Scenario {
    /// A sentence: what is to be seen.
    pub shows: String,
    /// How long it takes, in words: `3 minutes`.
    pub takes: String,
    /// What is measured.
    pub experiment: Experiment,
    /// What is made of it; at least one.
    pub tables: Vec<Table>,
}

/// The text of one of the project's scenarios.
pub fn embedded_text(name: &str) -> Option<&'static str> {
    let found = EMBEDDED.iter().find(|(each, _)| *each == name);
    found.map(|(_, text)| *text)
}

impl Scenario {
    /// Reads one. `name` is what it is called if it does not say so itself.
    ///
    /// # Errors
    /// What is wrong first, with its line where it has one.
    pub fn read(name: &str, text: &str) -> Result<Scenario, Fault> {
        let scenario = form::read(name, text)?;
        scenario
            .fault()
            .map_or(Ok(scenario), |text| Err(Fault::new(text)))
    }

    /// Programs that its servers need, each once; `python:NAME` is a module of Python.
    pub fn needs(&self) -> BTreeSet<&str> {
        let servers = self.experiment.servers.iter();
        servers
            .flat_map(|server| server.needs.iter().map(String::as_str))
            .collect()
    }

    /// Keeps these servers alone.
    ///
    /// # Errors
    /// There is no server of such a name, or no point would be left.
    pub fn keep_servers(&mut self, names: &[String]) -> Result<(), Fault> {
        let known: Vec<&str> = self
            .experiment
            .servers
            .iter()
            .map(|server| server.name.as_str())
            .collect();
        if let Some(unknown) = names.iter().find(|name| !known.contains(&name.as_str())) {
            let there: Vec<_> = known.iter().map(|name| format!("`{name}`")).collect();
            let hint = format!("its servers are {}", there.join(", "));
            return Err(Fault::with_hint(
                format!("there is no server `{unknown}` in this scenario"),
                hint,
            ));
        }
        let is_kept = |name: &String| names.contains(name);
        self.experiment
            .servers
            .retain(|server| is_kept(&server.name));
        for point in &mut self.experiment.points {
            if let Some(servers) = &mut point.servers {
                servers.retain(is_kept);
            }
        }
        let is_empty = |servers: &Option<Vec<String>>| servers.as_ref().is_some_and(Vec::is_empty);
        self.experiment
            .points
            .retain(|point| !is_empty(&point.servers));
        if self.experiment.points.is_empty() {
            return Err(Fault::new("no load is left for these servers"));
        }
        for table in &mut self.tables {
            // A grid keeps its columns: the original's stand in them.
            if !matches!(table.layout, Layout::Grid { .. }) {
                table.servers.retain(is_kept);
            }
        }
        Ok(())
    }

    /// Gives every load that has a duration this one.
    ///
    /// # Errors
    /// None has one.
    pub fn last(&mut self, seconds: f64) -> Result<(), Fault> {
        let points = self.experiment.points.iter_mut();
        let timed: Vec<_> = points
            .filter(|point| point.load.value("duration").is_some())
            .collect();
        if timed.is_empty() {
            let text = "the loads of this scenario are numbers of requests: there is no duration to change";
            return Err(Fault::new(text));
        }
        for point in timed {
            point.load.set("duration", format!("{seconds}s"));
        }
        Ok(())
    }

    /// What does not fit together; `None`: it does.
    fn fault(&self) -> Option<String> {
        let experiment = &self.experiment;
        let servers: Vec<&String> = experiment
            .servers
            .iter()
            .map(|server| &server.name)
            .collect();
        let points: Vec<&String> = experiment.points.iter().map(|point| &point.name).collect();
        if servers.is_empty() || points.is_empty() || self.tables.is_empty() {
            return Some(
                "a scenario has at least one [[server]], one [[point]] and one [[table]]"
                    .to_owned(),
            );
        }
        twice("server", &servers)
            .or_else(|| twice("point", &points))
            .or_else(|| {
                let named = experiment.points.iter().flat_map(|point| {
                    let names = point.servers.iter().flatten();
                    names.map(move |name| (format!("point `{}`", point.name), name))
                });
                absent("server", &servers, named)
            })
            .or_else(|| experiment.servers.iter().find_map(unknown_process))
            .or_else(|| {
                self.tables
                    .iter()
                    .find_map(|table| table_fault(table, &servers, &points))
            })
    }
}

/// An action whose signal goes to nobody.
fn unknown_process(server: &ServerSpec) -> Option<String> {
    let beside: Vec<&str> = server
        .beside
        .iter()
        .map(|beside| beside.name.as_str())
        .collect();
    server.actions.iter().find_map(|action| match &action.what {
        Do::Signal { whom, .. } if whom != "server" && !beside.contains(&whom.as_str()) => Some(format!(
            "an action of server `{}` signals `{whom}`, and no process of that name runs beside it",
            server.name
        )),
        _ => None,
    })
}

fn table_fault(table: &Table, servers: &[&String], points: &[&String]) -> Option<String> {
    let place = format!("table `{}`", table.title);
    let named = |name| (place.clone(), name);
    let fault = absent("server", servers, table.servers.iter().map(named));
    let fault = fault.or_else(|| absent("point", points, table.points.iter().map(named)));
    if fault.is_some() {
        return fault;
    }
    if let [first, ..] = table.absent_heads()[..] {
        return Some(format!(
            "{place} has not the column `{first}` of its original"
        ));
    }
    let (rows, columns) = match &table.layout {
        Layout::List { rows, columns, .. } => (rows, columns),
        Layout::Grid { cell, .. } => {
            let fault = Value::parse(&cell.value).err();
            return fault.map(|text| format!("{place}: {text}"));
        }
    };
    let keys: Vec<&str> = match &rows[..] {
        [] => vec![""],
        rows => rows.iter().map(String::as_str).collect(),
    };
    columns.iter().find_map(|column| {
        let (value, against) = match &column.shows {
            Shows::Text(_) => return None,
            Shows::Number(figure) => (&figure.value, figure.against.as_ref()),
            Shows::Whether { value, .. } => (value, None),
        };
        let fault = keys
            .iter()
            .find_map(|key| Value::parse(&value.replace("{row}", key)).err());
        let against = against.into_iter().map(named);
        fault
            .map(|text| format!("{place}, column `{}`: {text}", column.head))
            .or_else(|| absent("server", servers, against))
    })
}

fn twice(what: &str, names: &[&String]) -> Option<String> {
    let mut seen = BTreeSet::new();
    let again = names.iter().find(|name| !seen.insert(**name));
    again.map(|name| format!("there are two {what}s with the name `{name}`"))
}

fn absent<'a>(
    what: &str,
    known: &[&String],
    mut named: impl Iterator<Item = (String, &'a String)>,
) -> Option<String> {
    let (place, name) = named.find(|(_, name)| !known.contains(name))?;
    Some(format!(
        "{place} names the {what} `{name}`, and there is none of that name"
    ))
}

#[cfg(test)]
mod tests;
