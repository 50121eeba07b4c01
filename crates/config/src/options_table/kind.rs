//! Kinds of settings: how a text or a table becomes a value, what it may be, and the words for that.
//!
//! Taken by `builder`, which reads texts and tables by it. Pure.

use telemetry::Nanos;

use super::super::builder::Draft;
use super::super::fault::ConfigFault;
use super::super::reading::SettingText;
use super::super::tables::SettingTable;
use super::super::value::{duration_text, size_text};

/// How a setting's text is understood, and where the value goes.
#[derive(Clone, Copy, Debug)]
pub(in super::super) enum SettingKind {
    /// A whole number.
    Count {
        min: u64,
        max: u64,
        set: fn(&mut Draft, u64),
    },
    /// Bytes.
    Size {
        min: u64,
        max: u64,
        set: fn(&mut Draft, u64),
    },
    /// Bytes a second.
    PerSecond { max: u64, set: fn(&mut Draft, u64) },
    /// A span of time.
    Duration {
        min: Nanos,
        max: Nanos,
        set: fn(&mut Draft, Nanos),
    },
    /// Fewest and most, at least 1.
    Range {
        max: u64,
        set: fn(&mut Draft, u64, u64),
    },
    /// Yes or no.
    Switch { set: fn(&mut Draft, bool) },
    /// One of some names; the setter gets its index.
    Choice {
        names: &'static [&'static str],
        set: fn(&mut Draft, usize),
    },
    /// One of some names, or anything else that its setter understands.
    Named {
        names: &'static [&'static str],
        expected: &'static str,
        set: Setter<str>,
    },
    /// Anything that its setter understands.
    Text {
        expected: &'static str,
        set: Setter<str>,
    },
    /// One text that its setter takes apart at its commas.
    Joined {
        expected: &'static str,
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

/// What stands for a hint: what to write instead, where that can be said.
pub(in super::super) type Hint = Option<String>;

/// Puts a text into the draft.
pub(in super::super) type Setter<T> = fn(&mut Draft, &T) -> Result<(), Hint>;

/// Puts a table into the draft.
pub(in super::super) type TableSetter = fn(&mut Draft, &SettingTable, &mut Vec<ConfigFault>);

/// What TOML may have in the place of a list's texts.
#[derive(Clone, Copy, Debug)]
pub(in super::super) enum ListForm {
    /// Nothing.
    Texts,
    /// For texts of the form `THIS=THAT` a table, `"THIS" = "THAT"`.
    Pairs,
    /// A table in the place of each text, as the example.
    Tables {
        example: &'static str,
        add: TableSetter,
    },
}

impl SettingKind {
    pub(super) fn expected(&self) -> String {
        match *self {
            SettingKind::Count { min, max, .. } => format!("a count from {min} to {max}"),
            SettingKind::Size { max: u64::MAX, .. } => {
                "a size (as `64K`, `10M`, `1GiB`)".to_owned()
            }
            SettingKind::Size { min, max, .. } => {
                format!(
                    "a size from {} to {} (as `64K`, `10M`)",
                    size_text(min),
                    size_text(max)
                )
            }
            SettingKind::PerSecond { max, .. } => {
                format!(
                    "bytes a second from 0 to {} (as `256`, `1K`)",
                    size_text(max)
                )
            }
            SettingKind::Duration { min, max, .. } => {
                let (min, max) = (duration_text(min), duration_text(max));
                format!("a duration from {min} to {max} (as `30s`, `250ms`, `2m`, or seconds)")
            }
            SettingKind::Range { max, .. } => format!("MIN:MAX or one number, from 1 to {max}"),
            SettingKind::Switch { .. } => "`true` or `false`".to_owned(),
            SettingKind::Choice { names, .. } => {
                let names: Vec<String> = names.iter().map(|name| format!("`{name}`")).collect();
                format!("one of {}", names.join(", "))
            }
            SettingKind::Named { expected, .. }
            | SettingKind::Text { expected, .. }
            | SettingKind::Joined { expected, .. }
            | SettingKind::List { expected, .. } => expected.to_owned(),
            SettingKind::Tables { .. } => "a table".to_owned(),
        }
    }

    pub(super) fn toml_form(&self) -> &'static str {
        match self {
            SettingKind::Count { .. } => "integer",
            SettingKind::Size { .. } | SettingKind::PerSecond { .. } => {
                "string with unit, or bytes"
            }
            SettingKind::Duration { .. } => "string with unit, or seconds",
            SettingKind::Range { .. } => "string, or one integer",
            SettingKind::Switch { .. } => "boolean",
            SettingKind::Choice { .. } | SettingKind::Named { .. } | SettingKind::Text { .. } => {
                "string"
            }
            SettingKind::Joined { .. } => "array, or string with commas",
            SettingKind::List { toml, .. } => match toml {
                ListForm::Texts => "array of strings",
                ListForm::Pairs => "array of strings, or table",
                ListForm::Tables { .. } => "string, or array of strings and tables",
            },
            SettingKind::Tables { .. } => "array of tables",
        }
    }

    /// Empties its list, so that a source that names it replaces those before.
    pub(in super::super) fn clear(&self) -> Option<fn(&mut Draft)> {
        match *self {
            SettingKind::List { clear, .. } | SettingKind::Tables { clear, .. } => Some(clear),
            _ => None,
        }
    }

    /// What a table of it looks like, and what reads it.
    pub(in super::super) fn table(&self) -> Option<(&'static str, TableSetter)> {
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
