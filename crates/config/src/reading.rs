//! Which setting, which text or table, where: the three forms of writing brought into one.
//!
//! Takes `Sources`, gives readings in rising precedence; unknown names are faults with the nearest known
//! name. Does not look into texts and tables. Pure.

use std::ops::Range;

use toml_edit::{Document, Item, Key, Table, TableLike, Value};

use super::fault::{ConfigFault, Origin};
use super::foreign::{FlagSource, translate};
use super::nearest;
use super::options_table::{
    self, ENVIRONMENT_PREFIX, ListForm, SETTINGS, Setting, SettingKind, Spelling, migration_hint,
    setting,
};
use super::parse::did_you_mean;
use super::sources::{FlagText, OTHERS_VARIABLES, Sources, TomlText};
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
    pub(super) fn text(text: impl Into<String>, origin: Origin) -> Self {
        let text = text.into();
        SettingValue::Text(SettingText { text, origin })
    }

    fn table(table: SettingTable) -> Self {
        SettingValue::Table(Box::new(table))
    }

    pub(super) fn origin(&self) -> &Origin {
        match self {
            SettingValue::Text(text) => &text.origin,
            SettingValue::Table(table) => &table.origin,
        }
    }
}

/// What all sources say.
#[derive(Default)]
pub(super) struct Readings {
    /// In rising precedence.
    pub readings: Vec<SettingReading>,
    pub faults: Vec<ConfigFault>,
    /// What is worth saying of flags of other servers.
    pub notes: Vec<String>,
}

/// All readings: defaults, PORT and WEB_CONCURRENCY, TOML, GUNICORN_CMD_ARGS, our variables, flags.
pub(super) fn read(sources: &Sources) -> Readings {
    let mut all = Readings {
        readings: defaults(),
        ..Readings::default()
    };
    all.readings.extend(variables_of_others(sources));
    if let Some(toml) = &sources.toml {
        let mut file = TomlFile {
            toml,
            newlines: toml.text.match_indices('\n').map(|(at, _)| at).collect(),
            readings: &mut all.readings,
            faults: &mut all.faults,
        };
        file.read();
    }
    // The order of these steps is the precedence: a later reading of a setting replaces an earlier one.
    flags(&sources.gunicorn_flags, FlagSource::Variable, &mut all);
    for (name, value) in &sources.environment {
        match variable(name, value, &all.readings) {
            Ok(reading) => all.readings.extend(reading),
            Err(fault) => all.faults.push(fault),
        }
    }
    flags(&sources.flags, FlagSource::CommandLine, &mut all);
    all
}

/// What platforms such as Heroku set: an address on all interfaces, a number of processes.
fn variables_of_others(sources: &Sources) -> impl Iterator<Item = SettingReading> {
    OTHERS_VARIABLES.into_iter().filter_map(|(name, key)| {
        let value = sources.environment.get(name)?.trim();
        let text = match name {
            _ if value.is_empty() => return None,
            // Such a platform forwards requests from outside of the container, where loopback is not reached.
            "PORT" => format!("0.0.0.0:{value}"),
            _ => value.to_owned(),
        };
        let origin = Origin::Environment(name.to_owned());
        let setting = setting(key).expect("the variables of others are settings of ours");
        let entries = vec![SettingValue::text(text, origin)];
        Some(SettingReading { setting, entries })
    })
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

/// What one variable says; nothing if it is not ours.
fn variable(
    name: &str,
    value: &str,
    readings: &[SettingReading],
) -> Result<Option<SettingReading>, ConfigFault> {
    let ours = name.strip_prefix(ENVIRONMENT_PREFIX);
    let Some(key) = ours.filter(|key| !is_of_others(key)) else {
        return Ok(None);
    };
    let origin = Origin::Environment(name.to_owned());
    let lower = key.to_ascii_lowercase();
    // Names of variables are case-sensitive: another spelling would be read on no other machine.
    let known = setting(&lower).filter(|_| !key.contains(char::is_lowercase));
    let Some(setting) = known else {
        let near = || {
            let near = nearest(key, names())?.to_ascii_uppercase();
            Some(format!("did you mean `{ENVIRONMENT_PREFIX}{near}`?"))
        };
        let hint = migration_hint(&lower, Spelling::Variable).or_else(near);
        return Err(ConfigFault::statement(origin, "unknown setting").with_hint_maybe(hint));
    };
    // An empty variable is how compose files and shells write "not set".
    if value.is_empty() {
        return Ok(None);
    }
    if !setting.in_flags() {
        let text = "there is no variable for a setting of several parts";
        return Err(ConfigFault::statement(origin, text).with_hint_maybe(setting.table_hint()));
    }
    named_twice(readings, setting, &origin)?;
    let entry = |part: &str| SettingValue::text(part.trim(), origin.clone());
    let entries = match setting.kind {
        // Commas are within the entries.
        SettingKind::List {
            toml: ListForm::Lists,
            ..
        } => value.split_whitespace().map(entry).collect(),
        SettingKind::List { .. } => value.split(',').map(entry).collect(),
        _ => vec![entry(value)],
    };
    Ok(Some(SettingReading { setting, entries }))
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

fn flags(used: &[FlagText], source: FlagSource, all: &mut Readings) {
    let translation = translate(used, source);
    all.faults.extend(translation.faults);
    all.notes.extend(translation.notes);
    for setting in SETTINGS {
        let used = translation
            .flags
            .iter()
            .filter(|flag| flag.key == setting.key);
        // All texts of a setting are one reading, so that a repeated flag is a list and not a replacement.
        let entries: Vec<_> = used
            .map(|flag| SettingValue::text(&flag.text, flag.origin.clone()))
            .collect();
        if !entries.is_empty() {
            all.readings.push(SettingReading { setting, entries });
        }
    }
}

fn names() -> impl Iterator<Item = &'static str> {
    SETTINGS
        .iter()
        .flat_map(|setting| std::iter::once(setting.key).chain(setting.aliases.iter().copied()))
}

/// A fault where the same source has the setting under another of its names: neither is obviously the one that
/// counts.
fn named_twice(
    readings: &[SettingReading],
    setting: &Setting,
    origin: &Origin,
) -> Result<(), ConfigFault> {
    // Of the origin only the kind counts: a flag may well replace the line of a file.
    let source = std::mem::discriminant(origin);
    let same_setting = readings
        .iter()
        .filter(|reading| reading.setting.key == setting.key);
    let first = same_setting
        .flat_map(|reading| &reading.entries)
        .map(SettingValue::origin)
        .filter(|other| !other.is_of_others())
        .find(|other| std::mem::discriminant(*other) == source);
    first.map_or(Ok(()), |first| {
        let text = format!("the same setting as {first}");
        Err(ConfigFault::statement(origin.clone(), text))
    })
}

struct TomlFile<'r> {
    toml: &'r TomlText,
    /// Where its lines end.
    newlines: Vec<usize>,
    readings: &'r mut Vec<SettingReading>,
    faults: &'r mut Vec<ConfigFault>,
}

/// What to say of a file that is of another form by its name: those of gunicorn and uWSGI.
fn other_form(file: &str) -> Option<String> {
    let endings = [".ini", ".json", ".yaml", ".yml", ".xml"];
    let ending = endings.into_iter().find(|ending| file.ends_with(ending))?;
    Some(format!(
        "a configuration file is TOML, not `*{ending}`: `accept_batch = 32` and so on"
    ))
}

/// What to say of `bind = 127.0.0.1:8000`: a text without quotation marks in the line with this byte.
fn unquoted(text: &str, at: usize) -> Option<String> {
    let before = text.get(..at)?;
    let line = text[before.rfind('\n').map_or(0, |end| end + 1)..]
        .lines()
        .next()?;
    let (key, value) = line.split_once('=')?;
    let (key, value) = (key.trim(), value.split('#').next()?.trim());
    // With quotation marks or brackets the fault is another one.
    let is_text = !value.is_empty() && !value.contains(['"', '\'', '[', '{', '\\']);
    setting(key).filter(|_| is_text)?;
    Some(format!(
        "text stands in quotation marks: `{key} = \"{value}\"`"
    ))
}

impl TomlFile<'_> {
    fn read(&mut self) {
        let file = &self.toml.file;
        // Simple lines of Python are TOML as well: they would be read with half of their meaning.
        if file.ends_with(".py") {
            let hint = format!(
                "`milepost convert {file}` writes a milepost.toml of gunicorn's configuration"
            );
            let fault = self.fault(None, "", "not TOML: this is a Python file");
            self.faults.push(fault.with_hint(hint));
            return;
        }
        let document = match Document::parse(self.toml.text.as_str()) {
            Ok(document) => document,
            Err(error) => {
                let message = error.message().replace('\n', ", ");
                let fault = self.fault(error.span(), "", format!("not TOML: {message}"));
                let hint = other_form(&self.toml.file)
                    .or_else(|| unquoted(&self.toml.text, error.span()?.start));
                self.faults.push(fault.with_hint_maybe(hint));
                return;
            }
        };
        self.keys(document.as_table());
    }

    fn keys(&mut self, table: &dyn TableLike) {
        for (name, item) in table.iter() {
            let place = table.key(name).and_then(Key::span).or_else(|| item.span());
            let reading = match setting(name) {
                Some(setting) if setting.in_toml() => self.setting(setting, name, item, place),
                Some(setting) => {
                    let text = format!("belongs on the command line: `{} FILE`", setting.flag());
                    Err(self.fault(place, name, text))
                }
                None => Err(self.unknown(name, item, place)),
            };
            match reading {
                Ok(reading) => self.readings.push(reading),
                Err(fault) => {
                    self.faults.push(fault);
                    // Settings in a table of this name are not lost on the reader: their faults are told as well.
                    if let Some(inner) = item.as_table_like().filter(|_| setting(name).is_none()) {
                        self.keys(inner);
                    }
                }
            }
        }
    }

    fn setting(
        &mut self,
        setting: &'static Setting,
        name: &str,
        item: &Item,
        place: Option<Range<usize>>,
    ) -> Result<SettingReading, ConfigFault> {
        // TOML refuses a key twice, but not its alias beside it.
        named_twice(self.readings, setting, &self.origin(place.clone(), name))?;
        // Faults of a value point at the value, which may stand on a later line than its key.
        let place = item.span().filter(|_| item.is_value()).or(place);
        if let Some(entries) = self.entries(setting, name, item, place.clone()) {
            return Ok(SettingReading { setting, entries });
        }
        let hint = setting.example().map(|example| format!("as in\n{example}"));
        let fault = wrong_type(self.origin(place, name), item, setting);
        Err(fault.with_hint_maybe(hint))
    }

    /// What an item says of a setting; nothing when it is of another shape.
    fn entries(
        &mut self,
        setting: &Setting,
        name: &str,
        item: &Item,
        place: Option<Range<usize>>,
    ) -> Option<Vec<SettingValue>> {
        let kind = setting.kind;
        let has_tables = kind.table().is_some();
        let has_many = kind.clear().is_some();
        match item {
            // An array of tables, in either of TOML's forms, or one table alone.
            Item::ArrayOfTables(tables) if has_tables => Some(
                tables
                    .iter()
                    .map(|table| SettingValue::table(self.table(table, name)))
                    .collect(),
            ),
            Item::Table(table) if has_tables => {
                Some(vec![SettingValue::table(self.table(table, name))])
            }
            Item::Value(Value::Array(array)) if has_many => {
                let entry = |value: &Value| self.entry(setting, name, value, value.span());
                array.iter().map(entry).collect()
            }
            Item::Value(Value::Array(array)) if kind.is_joined() => {
                let parts: Option<Vec<String>> = array.iter().map(plain).collect();
                let origin = self.origin(place, name);
                Some(vec![SettingValue::text(parts?.join(","), origin)])
            }
            item if kind.has_pairs() && item.is_table_like() => {
                Some(self.pairs(setting, item.as_table_like()?, name))
            }
            Item::Value(value) => Some(vec![self.entry(setting, name, value, place)?]),
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
            Some(table) if setting.kind.table().is_some() => Some(SettingValue::table(
                self.table_at(table.clone().into_table(), name, origin),
            )),
            _ if setting.in_flags() => Some(SettingValue::text(plain(value)?, origin)),
            _ => None,
        }
    }

    fn table(&self, table: &Table, name: &str) -> SettingTable {
        self.table_at(table.clone(), name, self.origin(table.span(), name))
    }

    fn table_at(&self, items: Table, name: &str, origin: Origin) -> SettingTable {
        let place = |(key, item): (&str, &Item)| {
            let at = items.key(key).and_then(Key::span);
            let start = at.clone().or_else(|| item.span()).map_or(0, |at| at.start);
            // A table that is written as dotted keys has no span of its own: then the key has to do.
            let end = item.span().or(at.clone()).map_or(start, |at| at.end);
            KeyPlace {
                key: key.to_owned(),
                span: start..end,
                origin: self.origin(at, &format!("{name}.{key}")),
            }
        };
        SettingTable {
            name: name.to_owned(),
            origin,
            keys: items.iter().map(place).collect(),
            inner: items
                .iter()
                .flat_map(|(key, item)| self.inner_tables(&format!("{name}.{key}"), item))
                .collect(),
            items,
        }
    }

    /// The table, or the tables of an array of tables, that a key stands for, in either of TOML's forms.
    fn inner_tables(&self, name: &str, item: &Item) -> Vec<SettingTable> {
        if let Some(table) = item.as_table() {
            return vec![self.table(table, name)];
        }
        if let Some(table) = item.as_inline_table() {
            let origin = self.origin(table.span(), name);
            return vec![self.table_at(table.clone().into_table(), name, origin)];
        }
        if let Some(tables) = item.as_array_of_tables() {
            return tables.iter().map(|table| self.table(table, name)).collect();
        }
        let values = item.as_array().into_iter().flatten();
        let tables = values.filter_map(|value| Some((value.as_inline_table()?, value.span())));
        let read = |(table, span): (&toml_edit::InlineTable, Option<Range<usize>>)| {
            self.table_at(table.clone().into_table(), name, self.origin(span, name))
        };
        tables.map(read).collect()
    }

    /// `"/url" = "dir"` is the same as `"/url=dir"` in a list, and an array of texts is several of them.
    fn pairs(&mut self, setting: &Setting, table: &dyn TableLike, name: &str) -> Vec<SettingValue> {
        let mut entries = Vec::new();
        for (key, item) in table.iter() {
            let place = table.key(key).and_then(Key::span).or_else(|| item.span());
            let origin = self.origin(place, &format!("{name}.\"{key}\""));
            // URLs begin with a slash: a setting here was meant for the top of the file.
            if let Some(stray) = options_table::setting(key) {
                let text = format!("not a setting within `[{name}]`");
                let hint = format!("settings stand above all tables: `{} = ...`", stray.key);
                let fault = ConfigFault::statement(origin, text);
                self.faults.push(fault.with_hint(hint));
                continue;
            }
            let text = |value: &Value| value.as_str().map(str::to_owned);
            let values: Option<Vec<String>> = match item.as_value() {
                Some(Value::Array(array)) => array.iter().map(text).collect(),
                value => value.and_then(plain).map(|value| vec![value]),
            };
            let Some(values) = values else {
                self.faults.push(wrong_type(origin, item, setting));
                continue;
            };
            let entry =
                |value: &String| SettingValue::text(format!("{key}={value}"), origin.clone());
            entries.extend(values.iter().map(entry));
        }
        entries
    }

    fn unknown(&self, name: &str, item: &Item, place: Option<Range<usize>>) -> ConfigFault {
        let nested = item
            .as_table_like()
            .and_then(|table| table.iter().find_map(|(key, _)| setting(key)));
        let top = "settings stand at the top of the file, outside of tables";
        // The frequent slip is a setting that follows a `[table]`, and so belongs to it.
        let hint = nested
            .map(|known| format!("{top}: `{} = ...`", known.key))
            .or_else(|| migration_hint(name, Spelling::Key))
            .or_else(|| did_you_mean(name, names()));
        self.fault(place, name, "unknown setting")
            .with_hint_maybe(hint)
    }

    fn fault(
        &self,
        place: Option<Range<usize>>,
        key: &str,
        text: impl Into<String>,
    ) -> ConfigFault {
        ConfigFault::statement(self.origin(place, key), text)
    }

    fn origin(&self, place: Option<Range<usize>>, key: &str) -> Origin {
        let start = place.map_or(0, |span| span.start);
        let lines_before = self.newlines.partition_point(|newline| *newline < start);
        Origin::Toml {
            file: self.toml.file.clone(),
            line: lines_before + 1,
            key: key.to_owned(),
        }
    }
}

fn wrong_type(origin: Origin, item: &Item, setting: &Setting) -> ConfigFault {
    let found = format!("a TOML {}", item.type_name());
    ConfigFault::value(origin, &found, &setting.expected())
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
