//! Which setting, which text, where: the three forms of writing brought into one.
//!
//! Takes `Sources`, gives readings in rising precedence; unknown names are faults with the nearest known
//! name. Does not look into the texts. Pure.

mod options;

use std::ops::Range;

use toml_edit::{Array, Document, Item, Key, TableLike, Value};

use super::fault::{Fault, Origin};
use super::nearest;
use super::sources::{Sources, TomlText};
use super::written::{
    self, ENVIRONMENT_PREFIX, Entries, SETTINGS, Setting, Shape, Spelling, foreign, setting,
};

/// One setting as one source has it.
#[derive(Clone, Debug)]
pub(super) struct Reading {
    pub setting: &'static Setting,
    /// Exactly one, except for lists.
    pub texts: Vec<Text>,
}

/// A value's text and its place.
#[derive(Clone, Debug)]
pub(super) struct Text {
    pub text: String,
    pub origin: Origin,
}

/// All readings: defaults, TOML, environment, flags.
pub(super) fn read(sources: &Sources) -> (Vec<Reading>, Vec<Fault>) {
    let mut faults = Vec::new();
    let mut readings = defaults();
    if let Some(toml) = &sources.toml {
        let mut file = TomlFile {
            toml,
            readings: &mut readings,
            faults: &mut faults,
        };
        file.read();
    }
    environment(sources, &mut readings, &mut faults);
    flags(sources, &mut readings);
    (readings, faults)
}

fn defaults() -> Vec<Reading> {
    let written = SETTINGS
        .iter()
        .filter(|setting| !setting.default.is_empty());
    let text = |setting: &Setting| Text {
        text: setting.default.to_owned(),
        origin: Origin::Whole,
    };
    written
        .map(|setting| Reading {
            setting,
            texts: vec![text(setting)],
        })
        .collect()
}

fn environment(sources: &Sources, readings: &mut Vec<Reading>, faults: &mut Vec<Fault>) {
    for (name, value) in &sources.environment {
        let Some(key) = name.strip_prefix(ENVIRONMENT_PREFIX) else {
            continue;
        };
        if is_of_others(key) {
            continue;
        }
        let origin = Origin::Environment(name.clone());
        let known = setting(&key.to_ascii_lowercase());
        let Some(setting) = known.filter(|_| !key.contains(char::is_lowercase)) else {
            let near = || {
                let near = nearest(key, names())?.to_ascii_uppercase();
                Some(format!("did you mean `{ENVIRONMENT_PREFIX}{near}`?"))
            };
            let hint = foreign(&key.to_ascii_lowercase(), Spelling::Variable).or_else(near);
            faults.push(Fault::statement(origin, "unknown setting").with_hint_maybe(hint));
            continue;
        };
        // An empty variable is how compose files and shells write "not set".
        if value.is_empty() {
            continue;
        }
        let text = |part: &str| Text {
            text: part.trim().to_owned(),
            origin: origin.clone(),
        };
        let texts = match setting.shape() {
            Shape::List(entries) => entries.split(value).into_iter().map(text).collect(),
            Shape::One | Shape::Joined => vec![text(value)],
        };
        if let Some(first) = first_place(readings, setting, &origin) {
            faults.push(Fault::statement(
                origin,
                format!("the same setting as {first}"),
            ));
            continue;
        }
        readings.push(Reading { setting, texts });
    }
}

/// Variables with our prefix that are not settings: those of the project's own tools, what the supervisor
/// gives its processes (and they, perhaps, the programs that they start), and those that Kubernetes and
/// container links put into every neighbour of a service called "milepost".
fn is_of_others(key: &str) -> bool {
    const OURS: [&str; 6] = [
        "CACHE",
        "FREETHREADED",
        "HANDOVER",
        "JOBS",
        "SNAPSHOTS",
        "WHEEL_PROFILE",
    ];
    let is_link = |prefix| {
        key.strip_prefix(prefix)
            .is_some_and(|rest| rest.is_empty() || rest.starts_with('_'))
    };
    OURS.contains(&key) || is_link("SERVICE") || is_link("PORT")
}

fn flags(sources: &Sources, readings: &mut Vec<Reading>) {
    for setting in SETTINGS {
        let texts: Vec<Text> = sources
            .flags
            .iter()
            .filter(|flag| flag.key == setting.key)
            .map(|flag| Text {
                text: flag.text.clone(),
                origin: Origin::Flag(setting.flag_said()),
            })
            .collect();
        if !texts.is_empty() {
            readings.push(Reading { setting, texts });
        }
    }
}

fn names() -> impl Iterator<Item = &'static str> {
    SETTINGS
        .iter()
        .flat_map(|setting| std::iter::once(setting.key).chain(setting.aliases.iter().copied()))
}

/// Where the same source has a setting under another of its names: neither is obviously the one that
/// counts.
fn first_place(readings: &[Reading], setting: &Setting, origin: &Origin) -> Option<Origin> {
    let same_source =
        |text: &&Text| std::mem::discriminant(&text.origin) == std::mem::discriminant(origin);
    let same_setting = readings
        .iter()
        .filter(|reading| reading.setting.key == setting.key);
    same_setting
        .flat_map(|reading| &reading.texts)
        .find(same_source)
        .map(|text| text.origin.clone())
}

struct TomlFile<'r> {
    toml: &'r TomlText,
    readings: &'r mut Vec<Reading>,
    faults: &'r mut Vec<Fault>,
}

/// What to say of a file that is of another form by its name: those of gunicorn and uWSGI.
fn other_form(file: &str) -> Option<String> {
    let endings = [".py", ".ini", ".json", ".yaml", ".yml", ".xml"];
    let ending = endings.into_iter().find(|ending| file.ends_with(ending))?;
    Some(format!(
        "a configuration file is TOML, not `*{ending}`: `accept_batch = 32` and so on"
    ))
}

impl TomlFile<'_> {
    fn read(&mut self) {
        let document = match Document::parse(self.toml.text.as_str()) {
            Ok(document) => document,
            Err(error) => {
                let origin = self.origin(error.span(), "");
                let message = error.message().replace('\n', ", ");
                let fault = Fault::statement(origin, format!("not TOML: {message}"));
                self.faults
                    .push(fault.with_hint_maybe(other_form(&self.toml.file)));
                return;
            }
        };
        let table = document.as_table();
        for (name, item) in table.iter() {
            let place = table.key(name).and_then(Key::span).or_else(|| item.span());
            match setting(name) {
                Some(setting) if setting.in_toml() => self.setting(setting, name, item, place),
                Some(setting) => {
                    let text = format!("belongs on the command line: `{} FILE`", setting.flag());
                    self.faults
                        .push(Fault::statement(self.origin(place, name), text));
                }
                None => self.unknown(name, item, place),
            }
        }
    }

    fn setting(
        &mut self,
        setting: &'static Setting,
        name: &str,
        item: &Item,
        place: Option<Range<usize>>,
    ) {
        let origin = self.origin(place.clone(), name);
        if let Some(first) = first_place(self.readings, setting, &origin) {
            self.faults.push(Fault::statement(
                origin,
                format!("the same setting as {first}"),
            ));
            return;
        }
        let place = item.span().filter(|_| item.is_value()).or(place);
        let texts = match (item, setting.shape()) {
            (item, Shape::List(Entries::WithOptions { lead, keys })) => {
                self.entries(item, name, (lead, keys))
            }
            (Item::Value(Value::Array(array)), Shape::List(_)) => self.array(array, name),
            (Item::Value(Value::Array(array)), Shape::Joined) => {
                self.joined(array, name, place.clone())
            }
            (_, Shape::List(Entries::Pairs | Entries::WordyPairs)) if item.is_table_like() => item
                .as_table_like()
                .map(|table| self.table(setting, table, name)),
            (Item::Value(value), _) => self
                .scalar(value, name, place.clone())
                .map(|text| vec![text]),
            _ => None,
        };
        match texts {
            Some(texts) => self.readings.push(Reading { setting, texts }),
            None => {
                let found = format!("a TOML {}", item.type_name());
                self.faults.push(Fault::value(
                    self.origin(place, name),
                    &found,
                    setting.expected(),
                ));
            }
        }
    }

    fn array(&self, array: &Array, name: &str) -> Option<Vec<Text>> {
        array
            .iter()
            .map(|value| self.scalar(value, name, value.span()))
            .collect()
    }

    fn joined(&self, array: &Array, name: &str, place: Option<Range<usize>>) -> Option<Vec<Text>> {
        let parts: Vec<String> = self
            .array(array, name)?
            .into_iter()
            .map(|text| text.text)
            .collect();
        Some(vec![Text {
            text: parts.join(","),
            origin: self.origin(place, name),
        }])
    }

    /// `"/url" = "dir"` is the same as `"/url=dir"` in a list.
    fn table(&mut self, setting: &Setting, table: &dyn TableLike, name: &str) -> Vec<Text> {
        let mut texts = Vec::new();
        for (key, item) in table.iter() {
            let place = table.key(key).and_then(Key::span).or_else(|| item.span());
            let key_path = format!("{name}.\"{key}\"");
            let origin = self.origin(place.clone(), &key_path);
            if let Some(stray) = written::setting(key) {
                let text = format!("not a setting within `[{name}]`");
                let hint = format!("settings stand above all tables: `{} = ...`", stray.key);
                self.faults
                    .push(Fault::statement(origin, text).with_hint(hint));
                continue;
            }
            let value = item.as_value();
            match value.and_then(|value| self.scalar(value, &key_path, place)) {
                Some(value) => texts.push(Text {
                    text: format!("{key}={}", value.text),
                    ..value
                }),
                None => {
                    let found = format!("a TOML {}", item.type_name());
                    self.faults
                        .push(Fault::value(origin, &found, setting.expected()));
                }
            }
        }
        texts
    }

    fn scalar(&self, value: &Value, name: &str, place: Option<Range<usize>>) -> Option<Text> {
        Some(Text {
            text: plain(value)?,
            origin: self.origin(place, name),
        })
    }

    fn unknown(&mut self, name: &str, item: &Item, place: Option<Range<usize>>) {
        let fault = Fault::statement(self.origin(place, name), "unknown setting");
        let near = || Some(format!("did you mean `{}`?", nearest(name, names())?));
        let nested = item.as_table_like().and_then(|table| {
            table.iter().find_map(|(key, _)| setting(key)).map(|known| {
                format!(
                    "settings stand at the top of the file, outside of tables: `{} = ...`",
                    known.key
                )
            })
        });
        let hint = nested
            .or_else(|| foreign(name, Spelling::Key))
            .or_else(near);
        self.faults.push(fault.with_hint_maybe(hint));
    }

    fn origin(&self, place: Option<Range<usize>>, key: &str) -> Origin {
        let start = place.map_or(0, |span| span.start).min(self.toml.text.len());
        let newlines = self.toml.text.as_bytes()[..start]
            .iter()
            .filter(|byte| **byte == b'\n')
            .count();
        Origin::Toml {
            file: self.toml.file.clone(),
            line: newlines + 1,
            key: key.to_owned(),
        }
    }
}

/// The text of a value that has no parts.
fn plain(value: &Value) -> Option<String> {
    match value {
        Value::String(text) => Some(text.value().clone()),
        Value::Integer(number) => Some(number.value().to_string()),
        Value::Float(number) => Some(number.value().to_string()),
        Value::Boolean(yes) => Some(yes.value().to_string()),
        Value::Datetime(time) => Some(time.value().to_string()),
        Value::Array(_) | Value::InlineTable(_) => None,
    }
}
