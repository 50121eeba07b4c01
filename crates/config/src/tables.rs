//! Structured settings: arrays of tables in TOML, such as `[[redirect]]`, read by serde.
//!
//! Takes one table with the places of its keys and gives a typed value, or every fault of the table at
//! once, each with its line and its key. What the values mean is written beside the types, in
//! `parse`. Pure.

use std::ops::Range;

use serde::de::{DeserializeOwned, Error as _, IgnoredAny, IntoDeserializer};
use serde::{Deserialize, Deserializer};
use toml_edit::Value;

use super::fault::{ConfigFault, Origin, unexpected};
use super::options_table::setting;
use super::parse::{Hint, did_you_mean, quoted};

/// Between a cause and its hint in the one text that a serde error carries.
const HINT: &str = "\nhint: ";

/// One table of a structured setting.
#[derive(Clone, Debug)]
pub(crate) struct SettingTable {
    /// The setting's key, as it is written.
    pub name: String,
    /// Where the table begins.
    pub origin: Origin,
    /// Keys and values.
    pub items: toml_edit::Table,
    /// Where the keys are.
    pub keys: Vec<KeyPlace>,
    /// The tables in it, such as `[[upstream.server]]`; `items` has them as well.
    pub inner: Vec<SettingTable>,
}

/// Where a key of a table is.
#[derive(Clone, Debug)]
pub(crate) struct KeyPlace {
    pub key: String,
    /// Bytes of the file, from the key to the end of its value.
    pub span: Range<usize>,
    pub origin: Origin,
}

/// What a table of a setting is read into, by its keys.
pub(crate) trait Structure: DeserializeOwned {
    /// Keys whose values contradict each other.
    fn contradiction(&self) -> Option<Contradiction> {
        None
    }
}

/// A value that does not fit the others of its table.
#[derive(Debug)]
pub(crate) struct Contradiction {
    /// The key to blame.
    pub key: &'static str,
    /// A sentence without a capital and without a full stop.
    pub cause: String,
    /// What to do about it.
    pub hint: String,
}

/// What a table says; nothing if it has a fault.
///
/// Serde stops at the first fault: the faulty key is left out and the rest read again, until all are found.
pub(crate) fn read<S: Structure>(table: &SettingTable, faults: &mut Vec<ConfigFault>) -> Option<S> {
    // The form that serde takes; places stay what they are.
    let mut items = table.items.clone().into_inline_table();
    let mut is_good = true;
    loop {
        let deserializer = Value::InlineTable(items.clone()).into_deserializer();
        let error = match S::deserialize(deserializer) {
            Ok(structure) if is_good => {
                let Some(found) = structure.contradiction() else {
                    return Some(structure);
                };
                faults.push(table.contradicted(&found));
                return None;
            }
            Ok(_) => return None,
            Err(error) => error,
        };
        is_good = false;
        // Each round leaves out one key or ends: a key that is not there any more cannot be at fault again.
        let place = table.place_of(error.span());
        match place.filter(|place| items.remove(&place.key).is_some()) {
            Some(place) => faults.push(table.fault(place, error.message())),
            None => {
                faults.extend(table.fault_of_whole(error.message()));
                return None;
            }
        }
    }
}

impl SettingTable {
    /// Takes a key that stands for tables out; gives those tables.
    pub(crate) fn take_tables(
        &mut self,
        key: &str,
        faults: &mut Vec<ConfigFault>,
    ) -> Vec<SettingTable> {
        let place = self.keys.iter().position(|place| place.key == key);
        let Some(place) = place.map(|index| self.keys.remove(index)) else {
            return Vec::new();
        };
        self.items.remove(key);
        let name = format!("{}.{key}", self.name);
        let is_its = |table: &SettingTable| table.name == name;
        let (tables, inner) = self.inner.drain(..).partition(is_its);
        self.inner = inner;
        let tables: Vec<SettingTable> = tables;
        if tables.is_empty() {
            let cause = unexpected("a value without keys", "a table");
            let fault = ConfigFault::statement(place.origin, cause);
            faults.push(fault.with_hint(format!("as in `{key} = {{ KEY = ... }}`")));
        }
        tables
    }

    /// The same for a key that stands for one table.
    pub(crate) fn take_table(
        &mut self,
        key: &str,
        faults: &mut Vec<ConfigFault>,
    ) -> Option<SettingTable> {
        let mut tables = self.take_tables(key, faults).into_iter();
        let first = tables.next()?;
        if let Some(second) = tables.next() {
            let fault = ConfigFault::statement(second.origin, "there is one already");
            faults.push(fault.with_hint("leave out one of them"));
        }
        Some(first)
    }

    /// At the key to blame, or at the table where it has no such key.
    fn contradicted(&self, found: &Contradiction) -> ConfigFault {
        let place = self.keys.iter().find(|place| place.key == found.key);
        let origin = place.map_or(&self.origin, |place| &place.origin);
        ConfigFault::statement(origin.clone(), &found.cause).with_hint(&found.hint)
    }

    /// The key that a span of the file belongs to.
    fn place_of(&self, span: Option<Range<usize>>) -> Option<&KeyPlace> {
        let start = span?.start;
        self.keys.iter().find(|place| place.span.contains(&start))
    }

    fn fault(&self, place: &KeyPlace, message: &str) -> ConfigFault {
        // Serde has no other way to tell this fault from those of values, whose texts begin with "expected".
        if let Some(known) = message.strip_prefix("unknown field ") {
            return self.unknown_key(place, known);
        }
        let (cause, hint) = match message.split_once(HINT) {
            Some((cause, hint)) => (cause, Some(hint.to_owned())),
            None => (message, None),
        };
        ConfigFault::statement(place.origin.clone(), cause).with_hint_maybe(hint)
    }

    /// `known` is serde's list: the unknown key, then the known ones, each in backticks.
    fn unknown_key(&self, place: &KeyPlace, known: &str) -> ConfigFault {
        let (key, name) = (place.key.as_str(), &self.name);
        let known: Vec<&str> = known.split('`').skip(3).step_by(2).collect();
        if let Some(hint) = did_you_mean(key, known.iter().copied()) {
            return ConfigFault::statement(place.origin.clone(), "unknown key").with_hint(hint);
        }
        // In TOML every key below a header belongs to its table, so settings at the end of a file land in it.
        if let Some(stray) = setting(key) {
            let text = format!("not a key of `[[{name}]]`");
            let hint = format!("settings stand above all tables: `{} = ...`", stray.key);
            return ConfigFault::statement(place.origin.clone(), text).with_hint(hint);
        }
        let hint = format!("the keys are {}", quoted(known));
        ConfigFault::statement(place.origin.clone(), "unknown key").with_hint(hint)
    }

    /// A key that is missing, unless it is there and was left out for its fault.
    fn fault_of_whole(&self, message: &str) -> Option<ConfigFault> {
        // Serde's own message is the only sign of a missing key.
        let missing = message
            .strip_prefix("missing field `")
            .and_then(|rest| rest.strip_suffix('`'));
        let Some(key) = missing else {
            return Some(ConfigFault::statement(self.origin.clone(), message));
        };
        // It was left out because of its own fault, which is reported already.
        if self.keys.iter().any(|place| place.key == key) {
            return None;
        }
        // A table within another has the example of the whole.
        let name = self.name.split('.').next().unwrap_or_default();
        let example = setting(name)?.example();
        let fault = ConfigFault::statement(self.origin.clone(), format!("`{key}` is missing"));
        Some(fault.with_hint_maybe(example.map(|example| format!("as in\n{example}"))))
    }
}

/// A value of TOML that has no parts, as text.
#[derive(Deserialize)]
#[serde(untagged)]
enum Scalar {
    Text(String),
    Whole(i64),
    Fraction(f64),
    Switch(bool),
    Other(IgnoredAny),
}

impl Scalar {
    fn text(self) -> Option<String> {
        match self {
            Scalar::Text(text) => Some(text),
            Scalar::Whole(number) => Some(number.to_string()),
            Scalar::Fraction(number) => Some(number.to_string()),
            Scalar::Switch(yes) => Some(yes.to_string()),
            Scalar::Other(_) => None,
        }
    }
}

#[derive(Deserialize)]
#[serde(untagged)]
enum OneOrMany {
    Many(Vec<Scalar>),
    One(Scalar),
}

/// Reads a key with one value, by a function from its text; the function's error is a hint.
pub(crate) fn one<'de, D: Deserializer<'de>, T>(
    deserializer: D,
    expected: &str,
    parse: fn(&str) -> Result<T, Hint>,
) -> Result<T, D::Error> {
    parsed(Scalar::deserialize(deserializer)?, expected, parse)
}

/// The same for a key with one value or an array of them.
pub(crate) fn many<'de, D: Deserializer<'de>, T>(
    deserializer: D,
    expected: &str,
    parse: fn(&str) -> Result<T, Hint>,
) -> Result<Vec<T>, D::Error> {
    let values = match OneOrMany::deserialize(deserializer)? {
        OneOrMany::Many(values) => values,
        OneOrMany::One(value) => vec![value],
    };
    if values.is_empty() {
        return Err(D::Error::custom(unexpected("[]", expected)));
    }
    let values = values.into_iter();
    values.map(|value| parsed(value, expected, parse)).collect()
}

fn parsed<T, E: serde::de::Error>(
    value: Scalar,
    expected: &str,
    parse: fn(&str) -> Result<T, Hint>,
) -> Result<T, E> {
    let Some(text) = value.text() else {
        return Err(E::custom(unexpected("a TOML table or array", expected)));
    };
    parse(&text).map_err(|hint| {
        let hint = hint.map(|hint| format!("{HINT}{hint}")).unwrap_or_default();
        E::custom(unexpected(&text, expected) + &hint)
    })
}

/// For a key whose tables are taken out before: its name is known, and no more.
pub(crate) fn taken<'de, D: Deserializer<'de>, T: Default>(deserializer: D) -> Result<T, D::Error> {
    IgnoredAny::deserialize(deserializer).map(|_| T::default())
}

/// Functions for serde's `deserialize_with`: a key's value, what is expected of it, and what understands its
/// text. Their result is the type or an `Option` of it.
macro_rules! keys {
    ($($name:ident: $read:ident($parse:expr) -> $type:ty, $expected:expr;)*) => {$(
        pub(crate) fn $name<'de, D, T>(deserializer: D) -> Result<T, D::Error>
        where
            D: serde::Deserializer<'de>,
            T: From<$type>,
        {
            $crate::tables::$read(deserializer, $expected, $parse).map(T::from)
        }
    )*};
}
pub(crate) use keys;
