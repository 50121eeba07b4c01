//! Which setting, which text or table, where: the three forms of writing brought into one.
//!
//! Takes `Sources`, gives readings in rising precedence; unknown names are faults with the nearest known
//! name. Does not look into texts and tables. Pure.

use std::ops::Range;

use toml_edit::{Document, Item, Key, Table, TableLike, Value};

use super::fault::{ConfigFault, Origin};
use super::nearest;
use super::options_table::{
    self, ENVIRONMENT_PREFIX, ListForm, SETTINGS, Setting, SettingKind, Spelling, TextForm,
    migration_hint, setting,
};
use super::parse::did_you_mean;
use super::sources::{Sources, TomlText};
use super::tables::{KeyPlace, SettingTable};

/// One setting as one source has it.
#[derive(Clone, Debug)]
pub(super) struct SettingReading {
    pub setting: &'static Setting,
    /// Exactly one text, except for lists and tables.
    pub entries: Vec<SettingValue>,
}

/// One value of a setting.
#[derive(Clone, Debug)]
pub(super) enum SettingValue {
    Text(SettingText),
    Table(Box<SettingTable>),
}

/// A value's text and its place.
#[derive(Clone, Debug)]
pub(super) struct SettingText {
    pub text: String,
    pub origin: Origin,
}

impl SettingValue {
    fn text(text: impl Into<String>, origin: Origin) -> Self {
        let text = text.into();
        SettingValue::Text(SettingText { text, origin })
    }

    pub(super) fn origin(&self) -> &Origin {
        match self {
            SettingValue::Text(text) => &text.origin,
            SettingValue::Table(table) => &table.origin,
        }
    }
}

/// All readings: defaults, TOML, environment, flags.
pub(super) fn read(sources: &Sources) -> (Vec<SettingReading>, Vec<ConfigFault>) {
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

fn defaults() -> Vec<SettingReading> {
    let written = SETTINGS
        .iter()
        .filter(|setting| !setting.default.is_empty());
    written
        .map(|setting| SettingReading {
            setting,
            entries: vec![SettingValue::text(setting.default, Origin::Whole)],
        })
        .collect()
}

fn environment(
    sources: &Sources,
    readings: &mut Vec<SettingReading>,
    faults: &mut Vec<ConfigFault>,
) {
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
            let hint = migration_hint(&key.to_ascii_lowercase(), Spelling::Variable).or_else(near);
            faults.push(ConfigFault::statement(origin, "unknown setting").with_hint_maybe(hint));
            continue;
        };
        // An empty variable is how compose files and shells write "not set".
        if value.is_empty() {
            continue;
        }
        if let Some(hint) = setting.table_hint().filter(|_| !setting.in_flags()) {
            let text = "there is no variable for a setting of several parts";
            faults.push(ConfigFault::statement(origin, text).with_hint(hint));
            continue;
        }
        if let Some(fault) = named_twice(readings, setting, &origin) {
            faults.push(fault);
            continue;
        }
        let entry = |part: &str| SettingValue::text(part.trim(), origin.clone());
        let entries = match setting.kind {
            SettingKind::List { .. } => value.split(',').map(entry).collect(),
            _ => vec![entry(value)],
        };
        readings.push(SettingReading { setting, entries });
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

fn flags(sources: &Sources, readings: &mut Vec<SettingReading>) {
    for setting in SETTINGS {
        let used = sources.flags.iter().filter(|flag| flag.key == setting.key);
        let origin = || Origin::Flag(setting.flag_said());
        let entries: Vec<_> = used
            .map(|flag| SettingValue::text(&flag.text, origin()))
            .collect();
        if !entries.is_empty() {
            readings.push(SettingReading { setting, entries });
        }
    }
}

fn names() -> impl Iterator<Item = &'static str> {
    SETTINGS
        .iter()
        .flat_map(|setting| std::iter::once(setting.key).chain(setting.aliases.iter().copied()))
}

/// The same source has a setting under another of its names: neither is obviously the one that counts.
fn named_twice(
    readings: &[SettingReading],
    setting: &Setting,
    origin: &Origin,
) -> Option<ConfigFault> {
    let source = std::mem::discriminant(origin);
    let same_setting = readings
        .iter()
        .filter(|reading| reading.setting.key == setting.key);
    let first = same_setting
        .flat_map(|reading| &reading.entries)
        .map(SettingValue::origin)
        .find(|other| std::mem::discriminant(*other) == source)?;
    let text = format!("the same setting as {first}");
    Some(ConfigFault::statement(origin.clone(), text))
}

struct TomlFile<'r> {
    toml: &'r TomlText,
    readings: &'r mut Vec<SettingReading>,
    faults: &'r mut Vec<ConfigFault>,
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
                let fault = ConfigFault::statement(origin, format!("not TOML: {message}"));
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
                        .push(ConfigFault::statement(self.origin(place, name), text));
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
        if let Some(fault) = named_twice(self.readings, setting, &self.origin(place.clone(), name))
        {
            self.faults.push(fault);
            return;
        }
        let place = item.span().filter(|_| item.is_value()).or(place);
        match self.entries(setting, name, item, place.clone()) {
            Some(entries) => self.readings.push(SettingReading { setting, entries }),
            None => {
                let found = format!("a TOML {}", item.type_name());
                let origin = self.origin(place, name);
                let fault = ConfigFault::value(origin, &found, &setting.expected());
                let hint = setting.example().map(|example| format!("as in\n{example}"));
                self.faults.push(fault.with_hint_maybe(hint));
            }
        }
    }

    /// What an item says of a setting; nothing when it is of another shape.
    fn entries(
        &mut self,
        setting: &Setting,
        name: &str,
        item: &Item,
        place: Option<Range<usize>>,
    ) -> Option<Vec<SettingValue>> {
        let has_tables = setting.kind.table().is_some();
        match (item, setting.kind) {
            // An array of tables, in either of TOML's forms, or one table alone.
            (Item::ArrayOfTables(tables), _) if has_tables => {
                Some(tables.iter().map(|table| self.table(table, name)).collect())
            }
            (Item::Table(table), _) if has_tables => Some(vec![self.table(table, name)]),
            (
                Item::Value(Value::Array(array)),
                SettingKind::List { .. } | SettingKind::Tables { .. },
            ) => array
                .iter()
                .map(|value| self.entry(setting, name, value, value.span()))
                .collect(),
            (
                Item::Value(Value::Array(array)),
                SettingKind::Text {
                    form: TextForm::Joined,
                    ..
                },
            ) => {
                let parts: Option<Vec<String>> = array.iter().map(plain).collect();
                let origin = self.origin(place, name);
                Some(vec![SettingValue::text(parts?.join(","), origin)])
            }
            (
                _,
                SettingKind::List {
                    toml: ListForm::Pairs,
                    ..
                },
            ) if item.is_table_like() => Some(self.pairs(setting, item.as_table_like()?, name)),
            (Item::Value(value), _) => Some(vec![self.entry(setting, name, value, place)?]),
            _ => None,
        }
    }

    /// One value, as a table where the setting has tables, else as a text.
    fn entry(
        &self,
        setting: &Setting,
        name: &str,
        value: &Value,
        place: Option<Range<usize>>,
    ) -> Option<SettingValue> {
        let origin = self.origin(place, name);
        match value.as_inline_table() {
            Some(table) if setting.kind.table().is_some() => {
                Some(self.table_at(table.clone().into_table(), name, origin))
            }
            _ if setting.in_flags() => Some(SettingValue::text(plain(value)?, origin)),
            _ => None,
        }
    }

    fn table(&self, table: &Table, name: &str) -> SettingValue {
        self.table_at(table.clone(), name, self.origin(table.span(), name))
    }

    fn table_at(&self, items: Table, name: &str, origin: Origin) -> SettingValue {
        let place = |(key, item): (&str, &Item)| {
            let at = items.key(key).and_then(Key::span);
            let start = at.clone().or_else(|| item.span()).map_or(0, |at| at.start);
            let end = item.span().or(at.clone()).map_or(start, |at| at.end);
            KeyPlace {
                key: key.to_owned(),
                span: start..end,
                origin: self.origin(at, &format!("{name}.{key}")),
            }
        };
        let keys = items.iter().map(place).collect();
        SettingValue::Table(Box::new(SettingTable {
            name: name.to_owned(),
            origin,
            keys,
            items,
        }))
    }

    /// `"/url" = "dir"` is the same as `"/url=dir"` in a list.
    fn pairs(&mut self, setting: &Setting, table: &dyn TableLike, name: &str) -> Vec<SettingValue> {
        let mut entries = Vec::new();
        for (key, item) in table.iter() {
            let place = table.key(key).and_then(Key::span).or_else(|| item.span());
            let origin = self.origin(place, &format!("{name}.\"{key}\""));
            if let Some(stray) = options_table::setting(key) {
                let text = format!("not a setting within `[{name}]`");
                let hint = format!("settings stand above all tables: `{} = ...`", stray.key);
                self.faults
                    .push(ConfigFault::statement(origin, text).with_hint(hint));
                continue;
            }
            match item.as_value().and_then(plain) {
                Some(value) => entries.push(SettingValue::text(format!("{key}={value}"), origin)),
                None => {
                    let found = format!("a TOML {}", item.type_name());
                    self.faults
                        .push(ConfigFault::value(origin, &found, &setting.expected()));
                }
            }
        }
        entries
    }

    fn unknown(&mut self, name: &str, item: &Item, place: Option<Range<usize>>) {
        let fault = ConfigFault::statement(self.origin(place, name), "unknown setting");
        let nested = item
            .as_table_like()
            .and_then(|table| table.iter().find_map(|(key, _)| setting(key)));
        let top = "settings stand at the top of the file, outside of tables";
        let hint = nested
            .map(|known| format!("{top}: `{} = ...`", known.key))
            .or_else(|| migration_hint(name, Spelling::Key))
            .or_else(|| did_you_mean(name, names()));
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
