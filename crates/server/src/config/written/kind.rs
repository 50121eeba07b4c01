//! Kinds of settings: how a text becomes a value, what it may be, and the words for that.
//!
//! Taken by `draft`, which reads texts by it. Pure.

use measure::Nanos;

use super::super::draft::Draft;
use super::super::entry;
use super::super::reading::Text;
use super::super::value::{duration_text, size_text};

/// How a setting's text is understood, and where the value goes.
#[derive(Clone, Copy, Debug)]
pub(in super::super) enum Kind {
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
    /// Any number of them; a source that names any replaces those before.
    List {
        expected: &'static str,
        entries: Entries,
        clear: fn(&mut Draft),
        add: Setter<Text>,
    },
}

/// Puts a text into the draft; the error is a hint, where there is one.
pub(in super::super) type Setter<T> = fn(&mut Draft, &T) -> Result<(), Option<String>>;

/// What the entries of a list look like, and so how TOML and the environment write them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in super::super) enum Entries {
    /// An array in TOML; in the environment separated by commas.
    Plain,
    /// `THIS=THAT`: in TOML also a table; in the environment separated by commas.
    Pairs,
    /// Pairs whose values may well hold commas: in the environment separated by line breaks where there is
    /// one, and else by `;`.
    WordyPairs,
    /// A text and options behind it, as `crate::config::entry` takes them apart: in TOML also a table or an
    /// array of tables, in which the text has the name `lead`.
    WithOptions {
        lead: &'static str,
        keys: &'static [&'static str],
    },
}

/// How a setting stands in TOML and in the environment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in super::super) enum Shape {
    /// One value.
    One,
    /// An array of values.
    List(Entries),
    /// One text with commas; TOML may write it as an array.
    Joined,
}

impl Entries {
    /// The entries of one variable's text.
    pub(in super::super) fn split(self, text: &str) -> Vec<&str> {
        let separator = match self {
            Entries::Plain | Entries::Pairs => ',',
            Entries::WordyPairs if text.contains('\n') => '\n',
            Entries::WordyPairs => ';',
            Entries::WithOptions { .. } => return entry::split(text),
        };
        let parts = text.split(separator).map(str::trim);
        // A separator at the end is no entry more: how blocks of lines end.
        parts
            .filter(|part| self != Entries::WordyPairs || !part.is_empty())
            .collect()
    }
}

impl Kind {
    pub(super) fn expected(&self) -> String {
        match *self {
            Kind::Count { min, max, .. } => format!("a count from {min} to {max}"),
            Kind::Size { max: u64::MAX, .. } => "a size (as `64K`, `10M`, `1GiB`)".to_owned(),
            Kind::Size { min, max, .. } => {
                format!(
                    "a size from {} to {} (as `64K`, `10M`)",
                    size_text(min),
                    size_text(max)
                )
            }
            Kind::PerSecond { max, .. } => {
                format!(
                    "bytes a second from 0 to {} (as `256`, `1K`)",
                    size_text(max)
                )
            }
            Kind::Duration { min, max, .. } => {
                let (min, max) = (duration_text(min), duration_text(max));
                format!("a duration from {min} to {max} (as `30s`, `250ms`, `2m`, or seconds)")
            }
            Kind::Range { max, .. } => format!("MIN:MAX or one number, from 1 to {max}"),
            Kind::Switch { .. } => "`true` or `false`".to_owned(),
            Kind::Choice { names, .. } => {
                let names: Vec<String> = names.iter().map(|name| format!("`{name}`")).collect();
                format!("one of {}", names.join(", "))
            }
            Kind::Named { expected, .. }
            | Kind::Text { expected, .. }
            | Kind::Joined { expected, .. }
            | Kind::List { expected, .. } => expected.to_owned(),
        }
    }

    pub(super) fn toml_form(&self) -> &'static str {
        match self {
            Kind::Count { .. } => "integer",
            Kind::Size { .. } | Kind::PerSecond { .. } => "string with unit, or bytes",
            Kind::Duration { .. } => "string with unit, or seconds",
            Kind::Range { .. } => "string, or one integer",
            Kind::Switch { .. } => "boolean",
            Kind::Choice { .. } | Kind::Named { .. } | Kind::Text { .. } => "string",
            Kind::Joined { .. } => "array, or string with commas",
            Kind::List {
                entries: Entries::Plain,
                ..
            } => "array of strings",
            Kind::List {
                entries: Entries::WithOptions { .. },
                ..
            } => "string, table, or array of them",
            Kind::List { .. } => "array of strings, or table",
        }
    }

    pub(super) fn shape(&self) -> Shape {
        match *self {
            Kind::List { entries, .. } => Shape::List(entries),
            Kind::Joined { .. } => Shape::Joined,
            _ => Shape::One,
        }
    }
}
