//! Faults of a configuration: where it was written, what was found, what was expected, and a hint.
//!
//! Takes values from the readers and the checks; gives the text of `milepost: what: cause` without its
//! first word. Decides nothing.

use std::fmt;

use crate::options_table::ENVIRONMENT_PREFIX;

/// One thing that is wrong with the configuration.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConfigFault {
    /// Where it was written.
    pub origin: Origin,
    /// What is wrong, as a sentence without a capital and without a full stop.
    pub cause: String,
    /// What to do about it, where that can be said.
    pub hint: Option<String>,
}

/// Where a value was written.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub enum Origin {
    /// Nowhere: it concerns the configuration as a whole, or a default.
    #[default]
    Whole,
    /// A line of a TOML file.
    Toml {
        /// The file's name as it was given.
        file: String,
        /// Counted from 1.
        line: usize,
        /// Dotted key; empty for a fault of the file's syntax.
        key: String,
    },
    /// An environment variable's name.
    Environment(String),
    /// A flag with its dashes, or the name of a positional argument.
    Flag(String),
}

impl ConfigFault {
    /// A value that its setting does not take; `expected` is a noun, as "a count from 1 to 64".
    pub fn value(origin: Origin, found: &str, expected: &str) -> Self {
        Self::statement(origin, unexpected(found, expected))
    }

    /// Something that is wrong without a single value being at fault.
    pub fn statement(origin: Origin, cause: impl Into<String>) -> Self {
        Self {
            origin,
            cause: cause.into(),
            hint: None,
        }
    }

    /// The same with a hint.
    #[must_use]
    pub fn with_hint(self, hint: impl Into<String>) -> Self {
        Self {
            hint: Some(hint.into()),
            ..self
        }
    }

    /// The same with a hint, where there is one.
    #[must_use]
    pub fn with_hint_maybe(self, hint: Option<String>) -> Self {
        Self { hint, ..self }
    }
}

impl fmt::Display for ConfigFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.origin, self.cause)
    }
}

impl Origin {
    /// A variable that is not ours.
    pub(crate) fn is_of_others(&self) -> bool {
        matches!(self, Origin::Environment(name) if !name.starts_with(ENVIRONMENT_PREFIX))
    }

    /// The name of the flag, the variable or the key; empty for the whole.
    pub(crate) fn name(&self) -> String {
        match self {
            Origin::Whole => String::new(),
            Origin::Toml { key, .. } => key.clone(),
            Origin::Environment(name) | Origin::Flag(name) => name.clone(),
        }
    }
}

impl fmt::Display for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Origin::Whole => write!(f, "configuration"),
            Origin::Toml { file, line, key } if key.is_empty() => write!(f, "{file}:{line}"),
            Origin::Toml { file, line, key } => write!(f, "{file}:{line}: `{key}`"),
            Origin::Environment(name) | Origin::Flag(name) => write!(f, "`{name}`"),
        }
    }
}

/// The cause for a value, with control characters escaped, so that it cannot draw on the terminal.
pub(crate) fn unexpected(found: &str, expected: &str) -> String {
    let mut printable = String::new();
    // A value may come from a variable or a file of somebody else, and goes to a terminal.
    for c in found.chars() {
        match c.is_control() {
            true => printable.extend(c.escape_default()),
            false => printable.push(c),
        }
    }
    format!("expected {expected}, found `{printable}`")
}
