//! Kinds of settings: how a text or a table becomes a value, what it may be, and the words for that.
//!
//! Taken by `builder`, which reads texts and tables by it. Pure.

use telemetry::Nanos;

use super::Setting;
use crate::builder::Draft;
use crate::fault::ConfigFault;
use crate::parse::value::{Unit, duration_text, size_text};
use crate::parse::{Hint, quoted};
use crate::reading::SettingText;
use crate::tables::SettingTable;

/// How a setting's text is understood, and where the value goes.
#[derive(Clone, Copy, Debug)]
pub(crate) enum SettingKind {
    /// A number from `min` to `max`.
    Number {
        unit: Unit,
        min: u64,
        max: u64,
        set: fn(&mut Draft, u64),
    },
    /// Yes or no.
    Switch { set: fn(&mut Draft, bool) },
    /// One of some names; the setter gets its index.
    Choice {
        names: &'static [&'static str],
        set: fn(&mut Draft, usize),
    },
    /// Anything that its setter understands.
    Text {
        expected: &'static str,
        form: TextForm,
        set: Setter<str>,
    },
    /// Any number of texts; a source that names any replaces those before.
    List {
        expected: &'static str,
        clear: fn(&mut Draft),
        add: Setter<SettingText>,
        /// In TOML an entry may be more than a text.
        toml: ListForm,
    },
    /// Any number of tables, in TOML alone.
    Tables {
        /// One of them, as TOML.
        example: &'static str,
        clear: fn(&mut Draft),
        add: TableSetter,
    },
}

/// Puts a text into the draft.
pub(crate) type Setter<T> = fn(&mut Draft, &T) -> Result<(), Hint>;

/// Puts a table into the draft.
pub(crate) type TableSetter = fn(&mut Draft, &SettingTable, &mut Vec<ConfigFault>);

/// What a text looks like.
#[derive(Clone, Copy, Debug)]
pub(crate) enum TextForm {
    Plain,
    /// One of some names, or anything else that its setter understands.
    Named(&'static [&'static str]),
    /// `MIN:MAX` or one number.
    Range,
    /// Parts between commas, in TOML an array.
    Joined,
}

/// What TOML may have in the place of a list's texts.
#[derive(Clone, Copy, Debug)]
pub(crate) enum ListForm {
    /// Nothing.
    Texts,
    /// For texts of the form `THIS=THAT` a table, `"THIS" = "THAT"`.
    Pairs,
    /// The same for `THIS=THAT,THAT`, `"THIS" = ["THAT", "THAT"]`. In a variable, entries stand between spaces.
    Lists,
    /// A table in the place of each text, as the example.
    Tables {
        example: &'static str,
        add: TableSetter,
    },
}

impl Setting {
    /// What a right value looks like, as a noun.
    pub fn expected(&self) -> String {
        let (unit, min, max) = match self.kind {
            SettingKind::Number { unit, min, max, .. } => (unit, min, max),
            SettingKind::Switch { .. } => return "`true` or `false`".to_owned(),
            SettingKind::Choice { names, .. } => return format!("one of {}", quoted(names)),
            SettingKind::Text { expected, .. } | SettingKind::List { expected, .. } => {
                return expected.to_owned();
            }
            SettingKind::Tables { .. } => return "a table".to_owned(),
        };
        assert!(min <= max, "the bounds of `{}` hold nothing", self.key);
        let sizes = || (size_text(min), size_text(max));
        match unit {
            Unit::Count => format!("a count from {min} to {max}"),
            Unit::Size if max == u64::MAX => "a size (as `64K`, `10M`, `1GiB`)".to_owned(),
            Unit::Size => {
                let (min, max) = sizes();
                format!("a size from {min} to {max} (as `64K`, `10M`)")
            }
            Unit::Rate => format!(
                "bytes a second from {min} to {} (as `256`, `1K`)",
                sizes().1
            ),
            Unit::Duration => {
                let (min, max) = (duration_text(Nanos(min)), duration_text(Nanos(max)));
                format!("a duration from {min} to {max} (as `30s`, `250ms`, `2m`, or seconds)")
            }
        }
    }

    /// What stands for the value in help texts.
    pub fn placeholder(&self) -> &'static str {
        match self.placeholder {
            "" => self.words().0,
            placeholder => placeholder,
        }
    }

    /// What a value looks like in TOML.
    pub fn toml_form(&self) -> &'static str {
        self.words().1
    }

    /// In TOML its parts may be an array.
    pub fn is_joined(&self) -> bool {
        self.kind.is_joined()
    }

    /// It takes names with a value each.
    pub fn has_pairs(&self) -> bool {
        self.kind.has_pairs()
    }

    /// The type of a value in Python's notation; nothing for tables. `Text` is `str | int | PathLike[str]`.
    pub fn python_type(&self) -> Option<String> {
        let text = match self.kind {
            SettingKind::Number {
                unit: Unit::Count, ..
            } => "int",
            SettingKind::Number { .. } => "float | str",
            SettingKind::Switch { .. } => "bool",
            SettingKind::Choice { names, .. } => {
                let names: Vec<String> = names.iter().map(|name| format!("\"{name}\"")).collect();
                return Some(format!("Literal[{}]", names.join(", ")));
            }
            SettingKind::Text { form, .. } => match form {
                TextForm::Joined => "Text | Sequence[str]",
                TextForm::Plain | TextForm::Named(_) | TextForm::Range => "Text",
            },
            SettingKind::List { toml, .. } => match toml {
                ListForm::Pairs | ListForm::Lists => {
                    "Text | Sequence[Text] | Mapping[str, Text | Sequence[Text]]"
                }
                ListForm::Texts | ListForm::Tables { .. } => "Text | Sequence[Text]",
            },
            SettingKind::Tables { .. } => return None,
        };
        Some(text.to_owned())
    }

    /// Texts as a value of TOML.
    pub fn toml_value(&self, texts: &[&str]) -> String {
        let quoted = |text: &&str| toml_edit::Value::from(*text).to_string();
        let last = texts.last().copied().unwrap_or_default();
        let is_bare = match self.kind {
            SettingKind::Switch { .. } => matches!(last, "true" | "false"),
            // One text needs no brackets: a list is read from a single string too.
            SettingKind::List { .. } if texts.len() > 1 => {
                let texts: Vec<String> = texts.iter().map(quoted).collect();
                return format!("[{}]", texts.join(", "));
            }
            _ => last
                .parse::<u32>()
                // `007` and `+7` are numbers to Rust and faults or other values in TOML: they stay text.
                .is_ok_and(|number| number.to_string() == last),
        };
        match is_bare {
            true => last.to_owned(),
            false => quoted(&last),
        }
    }

    /// The placeholder of its kind, and what a value looks like in TOML.
    fn words(&self) -> (&'static str, &'static str) {
        match self.kind {
            SettingKind::Number { unit, .. } => match unit {
                Unit::Count => ("N", "integer"),
                Unit::Size => ("SIZE", "string with unit, or bytes"),
                Unit::Rate => ("RATE", "string with unit, or bytes"),
                Unit::Duration => ("DURATION", "string with unit, or seconds"),
            },
            SettingKind::Switch { .. } => ("BOOL", "boolean"),
            SettingKind::Choice { .. } => ("HOW", "string"),
            SettingKind::Text { form, .. } => match form {
                TextForm::Plain => ("TEXT", "string"),
                TextForm::Named(_) => ("NAME", "string"),
                TextForm::Range => ("MIN:MAX", "string, or one integer"),
                TextForm::Joined => ("LIST", "array, or string with commas"),
            },
            SettingKind::List { toml, .. } => match toml {
                ListForm::Texts => ("TEXT", "array of strings"),
                ListForm::Pairs | ListForm::Lists => ("TEXT", "array of strings, or table"),
                ListForm::Tables { .. } => ("TEXT", "string, or array of strings and tables"),
            },
            SettingKind::Tables { .. } => ("TABLES", "array of tables"),
        }
    }
}

impl SettingKind {
    /// In TOML its parts may be an array.
    pub(crate) fn is_joined(&self) -> bool {
        matches!(
            self,
            SettingKind::Text {
                form: TextForm::Joined,
                ..
            }
        )
    }

    /// In TOML it may be a table of pairs.
    pub(crate) fn has_pairs(&self) -> bool {
        matches!(
            self,
            SettingKind::List {
                toml: ListForm::Pairs | ListForm::Lists,
                ..
            }
        )
    }

    /// Empties its list, so that a source that names it replaces those before.
    pub(crate) fn clear(&self) -> Option<fn(&mut Draft)> {
        match *self {
            SettingKind::List { clear, .. } | SettingKind::Tables { clear, .. } => Some(clear),
            _ => None,
        }
    }

    /// What a table of it looks like, and what reads it.
    pub(crate) fn table(&self) -> Option<(&'static str, TableSetter)> {
        match *self {
            SettingKind::Tables { example, add, .. }
            | SettingKind::List {
                toml: ListForm::Tables { example, add },
                ..
            } => Some((example, add)),
            _ => None,
        }
    }
}
