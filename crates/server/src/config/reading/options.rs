//! Entries with options in TOML: `{to = "slow.log", slower = "1s"}` is `"slow.log slower=1s"`.
//!
//! Takes an item of the file and gives the entries' texts; keys that no entry has are faults with their
//! lines. Does not look into the values. Pure.

use toml_edit::{Item, Key, TableLike, Value};

use super::super::entry;
use super::super::fault::Fault;
use super::super::nearest;
use super::super::written;
use super::{Text, TomlFile};

/// What the keys of a table are called: the first text's, and the options'.
type Names = (&'static str, &'static [&'static str]);

impl TomlFile<'_> {
    /// The entries of a string, a table, or an array of either; `None` when it is something else.
    pub(super) fn entries(&mut self, item: &Item, name: &str, names: Names) -> Option<Vec<Text>> {
        match item {
            Item::Value(Value::Array(array)) => {
                let mut texts = Vec::new();
                for value in array {
                    match value {
                        Value::InlineTable(table) => {
                            texts.extend(self.entry(table, name, names, value.span()));
                        }
                        value => texts.push(self.scalar(value, name, value.span())?),
                    }
                }
                Some(texts)
            }
            Item::ArrayOfTables(tables) => {
                let mut texts = Vec::new();
                for table in tables {
                    texts.extend(self.entry(table, name, names, table.span()));
                }
                Some(texts)
            }
            Item::Value(value) if !value.is_inline_table() => self
                .scalar(value, name, value.span())
                .map(|text| vec![text]),
            item => {
                let table = item.as_table_like()?;
                let text = self.entry(table, name, names, item.span());
                Some(text.into_iter().collect())
            }
        }
    }

    /// One table as a text; `None` when it does not say what it is about, which is a fault by then.
    fn entry(
        &mut self,
        table: &dyn TableLike,
        name: &str,
        (lead, keys): Names,
        place: Option<std::ops::Range<usize>>,
    ) -> Option<Text> {
        let mut first = None;
        let mut options = String::new();
        for (key, item) in table.iter() {
            let at = table.key(key).and_then(Key::span).or_else(|| item.span());
            let origin = self.origin(at, &format!("{name}.{key}"));
            if key != lead && !keys.contains(&key) {
                self.faults.push(unknown(origin, name, key, (lead, keys)));
                continue;
            }
            match value(item) {
                Some(text) if key == lead => first = Some(entry::quoted(&text).into_owned()),
                Some(text) => options.push_str(&format!(" {key}={}", entry::quoted(&text))),
                None => {
                    let found = format!("a TOML {}", item.type_name());
                    let expected = "a string, a number, or an array of them";
                    self.faults.push(Fault::value(origin, &found, expected));
                }
            }
        }
        let origin = self.origin(place, name);
        let Some(first) = first else {
            if !table.contains_key(lead) {
                let meaning = match lead {
                    "to" => "where it goes",
                    _ => "which one is meant",
                };
                let hint = format!("`{lead} = \"...\"` says {meaning}");
                let fault = Fault::statement(origin, format!("a table without `{lead}`"));
                self.faults.push(fault.with_hint(hint));
            }
            return None;
        };
        Some(Text {
            text: first + &options,
            origin,
        })
    }
}

fn unknown(
    origin: super::super::fault::Origin,
    name: &str,
    key: &str,
    (lead, keys): Names,
) -> Fault {
    let all = || std::iter::once(lead).chain(keys.iter().copied());
    let stray = written::setting(key).map(|stray| {
        let hint = format!("settings stand above all tables: `{} = ...`", stray.key);
        let text = format!("not a setting within `[{name}]`");
        Fault::statement(origin.clone(), text).with_hint(hint)
    });
    stray.unwrap_or_else(|| {
        let hint = match nearest(key, all()) {
            Some(near) => format!("did you mean `{near}`?"),
            None => {
                let all: Vec<String> = all().map(|key| format!("`{key}`")).collect();
                format!("the keys are {}", all.join(", "))
            }
        };
        Fault::statement(origin, "unknown key").with_hint(hint)
    })
}

/// A value's text; of an array, with commas between.
fn value(item: &Item) -> Option<String> {
    match item.as_value()? {
        Value::Array(array) => {
            let parts: Option<Vec<String>> = array.iter().map(super::plain).collect();
            parts.map(|parts| parts.join(","))
        }
        value => super::plain(value),
    }
}
