//! The text of a scenario as serde reads it, and what is made of it.
//!
//! An unknown key is a fault with its line, wherever it stands; those of loads alone are known to others.

use std::collections::BTreeMap;

use measure::Nanos;
use serde::Deserialize;

use super::Scenario;
use super::words::{OriginalWord, OverWord, Span, Unit};
use crate::engine::Fault;
use crate::experiment::paper::{By, Column, Figure, Layout, Over, Shows, Table};
use crate::experiment::{
    Action, Beside, Do, Experiment, FactSpec, LoadText, Pins, Point, Ready, ServerSpec,
};

const REPEAT: usize = 3;
const REST: Nanos = Nanos::from_ms(500);
/// More bytes in one file would be a mistake.
const FILL_BYTES_MAX: usize = 1 << 30;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Form {
    name: Option<String>,
    shows: String,
    #[serde(default)]
    takes: String,
    repeat: Option<usize>,
    rest: Option<Span>,
    pins: Option<PinsForm>,
    #[serde(default)]
    load: LoadText,
    #[serde(default)]
    file: Vec<FileForm>,
    server: Vec<ServerForm>,
    point: Vec<PointForm>,
    table: Vec<TableForm>,
}

#[derive(Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct PinsForm {
    server: Vec<usize>,
    generator: Vec<usize>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct FileForm {
    path: String,
    text: Option<String>,
    fill: Option<usize>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct ServerForm {
    name: String,
    start: Vec<String>,
    cwd: Option<String>,
    #[serde(default)]
    env: BTreeMap<String, String>,
    #[serde(default)]
    file: Vec<FileForm>,
    #[serde(default)]
    prepare: Vec<Vec<String>>,
    #[serde(default)]
    beside: Vec<BesideForm>,
    #[serde(default)]
    needs: Vec<String>,
    #[serde(default)]
    version: Vec<String>,
    #[serde(default)]
    ready: ReadyForm,
    #[serde(default)]
    action: Vec<ActionForm>,
    #[serde(default)]
    fact: Vec<FactForm>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct BesideForm {
    name: String,
    start: Vec<String>,
}

#[derive(Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct ReadyForm {
    path: Option<String>,
    timeout: Option<Span>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct ActionForm {
    at: Span,
    every: Option<Span>,
    times: Option<usize>,
    run: Option<Vec<String>>,
    signal: Option<String>,
    whom: Option<String>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct FactForm {
    #[serde(default)]
    name: String,
    command: Vec<String>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct PointForm {
    name: String,
    each: Option<BTreeMap<String, Vec<Word>>>,
    servers: Option<Vec<String>>,
    #[serde(default)]
    load: LoadText,
}

/// A number or a text, as text.
#[derive(Clone, Deserialize)]
#[serde(untagged)]
enum Word {
    Whole(i64),
    Text(String),
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct TableForm {
    title: String,
    original: Option<OriginalWord>,
    points: Option<Vec<String>>,
    servers: Option<Vec<String>>,
    grid: Option<GridForm>,
    by: Option<ByForm>,
    #[serde(default)]
    rows: Vec<String>,
    #[serde(default)]
    column: Vec<ColumnForm>,
    #[serde(default)]
    notes: Vec<String>,
}

#[derive(Clone, Copy, Deserialize)]
#[serde(rename_all = "lowercase")]
enum ByForm {
    Point,
    Server,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct GridForm {
    head: String,
    value: String,
    unit: Option<Unit>,
    #[serde(default)]
    digits: usize,
    over: Option<OverWord>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct ColumnForm {
    head: String,
    text: Option<String>,
    value: Option<String>,
    unit: Option<Unit>,
    digits: Option<usize>,
    over: Option<OverWord>,
    against: Option<String>,
    yes_above: Option<f64>,
}

/// Reads the text; whether its names fit together is for others to say.
pub(super) fn read(name: &str, text: &str) -> Result<Scenario, Fault> {
    let form: Form = toml_edit::de::from_str(text).map_err(|error| {
        let line = error
            .span()
            .map(|span| text[..span.start.min(text.len())].matches('\n').count() + 1);
        let place = line.map_or(String::new(), |line| format!("line {line}: "));
        Fault::new(format!("{place}{}", error.message().trim_end()))
    })?;
    form.scenario(name).map_err(Fault::new)
}

impl Form {
    fn scenario(self, name: &str) -> Result<Scenario, String> {
        let repeat = self.repeat.unwrap_or(REPEAT);
        if repeat == 0 {
            return Err("`repeat` is at least 1".to_owned());
        }
        let shared = files(self.file)?;
        let servers: Vec<ServerSpec> = self
            .server
            .into_iter()
            .map(|server| server.spec(&shared))
            .collect::<Result<_, _>>()?;
        let points: Vec<Point> = self
            .point
            .into_iter()
            .flat_map(|point| point.points(&self.load))
            .collect();
        let server_names: Vec<_> = servers.iter().map(|server| server.name.clone()).collect();
        let point_names: Vec<_> = points.iter().map(|point| point.name.clone()).collect();
        let tables = self
            .table
            .into_iter()
            .map(|table| table.table(&server_names, &point_names));
        Ok(Scenario {
            shows: self.shows,
            takes: self.takes,
            tables: tables.collect::<Result<_, _>>()?,
            experiment: Experiment {
                name: self.name.unwrap_or_else(|| name.to_owned()),
                repeat,
                servers,
                points,
                pins: self.pins.map_or_else(Pins::usual, |pins| Pins {
                    server: pins.server,
                    generator: pins.generator,
                }),
                rest: self.rest.map_or(REST, |span| span.0),
            },
        })
    }
}

fn files(forms: Vec<FileForm>) -> Result<Vec<(String, String)>, String> {
    let one = |form: FileForm| match (form.text, form.fill) {
        (Some(text), None) => Ok((form.path, text)),
        (None, Some(bytes)) if bytes <= FILL_BYTES_MAX => Ok((form.path, "x".repeat(bytes))),
        (None, Some(bytes)) => Err(format!("file `{}`: {bytes} bytes are too many", form.path)),
        _ => Err(format!(
            "file `{}`: give it `text` or `fill` (bytes), one of them",
            form.path
        )),
    };
    forms.into_iter().map(one).collect()
}

impl ServerForm {
    fn spec(self, shared: &[(String, String)]) -> Result<ServerSpec, String> {
        let place = format!("server `{}`", self.name);
        let own = files(self.file).map_err(|fault| format!("{place}, {fault}"))?;
        let actions = self
            .action
            .into_iter()
            .map(ActionForm::action)
            .collect::<Result<_, _>>();
        let beside = |form: BesideForm| Beside {
            name: form.name,
            start: form.start,
        };
        let fact = |form: FactForm| FactSpec {
            name: form.name,
            command: form.command,
        };
        Ok(ServerSpec {
            name: self.name,
            start: self.start,
            cwd: self.cwd,
            env: self.env.into_iter().collect(),
            files: shared.iter().cloned().chain(own).collect(),
            prepare: self.prepare,
            beside: self.beside.into_iter().map(beside).collect(),
            needs: self.needs,
            version: self.version,
            ready: Ready {
                path: self.ready.path,
                timeout: self
                    .ready
                    .timeout
                    .map_or(Ready::default().timeout, |span| span.0),
            },
            actions: actions.map_err(|fault| format!("{place}, {fault}"))?,
            facts: self.fact.into_iter().map(fact).collect(),
        })
    }
}

impl ActionForm {
    fn action(self) -> Result<Action, String> {
        let what = match (self.run, self.signal) {
            (Some(argv), None) if self.whom.is_none() => Do::Run(argv),
            (None, Some(signal)) => {
                let whom = self.whom.unwrap_or_else(|| "server".to_owned());
                Do::Signal { whom, signal }
            }
            _ => return Err("action: give it `run`, or `signal` and `whom`".to_owned()),
        };
        if self.every.is_some_and(|every| every.0 == Nanos::ZERO) {
            return Err("action: `every` is more than nothing".to_owned());
        }
        Ok(Action {
            at: self.at.0,
            every: self.every.map(|span| span.0),
            times: self
                .times
                .unwrap_or(if self.every.is_some() { usize::MAX } else { 1 }),
            what,
        })
    }
}

impl PointForm {
    /// One, or one for each combination of the values of `each`.
    fn points(self, base: &LoadText) -> Vec<Point> {
        let mut points = vec![Point {
            name: self.name,
            load: self.load.over(base),
            servers: self.servers,
        }];
        for (key, words) in self.each.unwrap_or_default() {
            let key = format!("{{{key}}}");
            let with = |point: &Point, word: &Word| Point {
                name: point.name.replace(&key, &word.text()),
                load: point.load.mapped(|value| value.replace(&key, &word.text())),
                servers: point.servers.clone(),
            };
            points = points
                .iter()
                .flat_map(|point| words.iter().map(|word| with(point, word)))
                .collect();
        }
        points
    }
}

impl Word {
    fn text(&self) -> String {
        match self {
            Word::Whole(number) => number.to_string(),
            Word::Text(text) => text.clone(),
        }
    }
}

impl TableForm {
    fn table(self, servers: &[String], points: &[String]) -> Result<Table, String> {
        let place = format!("table `{}`", self.title);
        let layout = match (self.grid, self.column) {
            (Some(grid), columns) if columns.is_empty() && self.rows.is_empty() => grid.layout(),
            (None, columns) if !columns.is_empty() => Layout::List {
                by: match self.by {
                    Some(ByForm::Server) => By::Server,
                    Some(ByForm::Point) | None => By::Point,
                },
                rows: self.rows,
                columns: columns
                    .into_iter()
                    .map(ColumnForm::column)
                    .collect::<Result<_, _>>()
                    .map_err(|fault| format!("{place}, {fault}"))?,
            },
            _ => {
                return Err(format!(
                    "{place}: give it `grid`, or `column` and perhaps `rows`"
                ));
            }
        };
        Ok(Table {
            title: self.title,
            original: self.original.map(|word| word.0),
            points: self.points.unwrap_or_else(|| points.to_vec()),
            servers: self.servers.unwrap_or_else(|| servers.to_vec()),
            layout,
            notes: self.notes,
        })
    }
}

impl GridForm {
    fn layout(self) -> Layout {
        let unit = self.unit.unwrap_or(Unit::PLAIN);
        Layout::Grid {
            head: self.head,
            cell: Figure {
                value: self.value,
                factor: unit.factor,
                digits: self.digits,
                suffix: unit.suffix,
                over: self.over.map_or(Over::Spread, Over::from),
                against: None,
            },
        }
    }
}

impl ColumnForm {
    fn column(self) -> Result<Column, String> {
        let has_form = self.unit.is_some() || self.digits.is_some() || self.over.is_some();
        let is_number = has_form || self.against.is_some();
        let shows = match (self.text, self.value, self.yes_above) {
            (Some(text), None, None) if !is_number => Shows::Text(text),
            (None, Some(value), Some(above)) if !is_number => Shows::Whether { value, above },
            (None, Some(value), None) => {
                let unit = self.unit.unwrap_or(Unit::PLAIN);
                Shows::Number(Figure {
                    value,
                    factor: unit.factor,
                    digits: self.digits.unwrap_or(0),
                    suffix: unit.suffix,
                    over: self.over.map_or(Over::Median, Over::from),
                    against: self.against,
                })
            }
            _ => {
                return Err(format!(
                    "column `{}`: give it `text`, or `value` with `unit`, `digits`, `over` and `against`, or \
                     `value` with `yes_above`",
                    self.head
                ));
            }
        };
        Ok(Column {
            head: self.head,
            shows,
        })
    }
}
