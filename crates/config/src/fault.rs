//! Faults of a configuration: where it was written, what was found, what was expected, and a hint.
//!
//! Takes values from the readers and the checks; gives the text of `milepost: what: cause` without its
//! first word. Decides nothing.

use std::fmt;

/// One thing that is wrong with the configuration.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConfigFault {
    /// Where it was written.
    pub origin: Origin,
    /// What is wrong.
    pub cause: Cause,
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

/// What is wrong.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Cause {
    /// A value is not what its setting takes.
    Value {
        /// The value as written.
        found: String,
        /// What would have been right, as a noun: "a count from 1 to 64".
        expected: String,
    },
    /// Anything else, as a sentence without a capital and without a full stop.
    Statement(String),
}

impl ConfigFault {
    /// A value that its setting does not take.
    pub fn value(origin: Origin, found: &str, expected: impl Into<String>) -> Self {
        let cause = Cause::Value {
            found: found.to_owned(),
            expected: expected.into(),
        };
        Self {
            origin,
            cause,
            hint: None,
        }
    }

    /// Something that is wrong without a single value being at fault.
    pub fn statement(origin: Origin, text: impl Into<String>) -> Self {
        Self {
            origin,
            cause: Cause::Statement(text.into()),
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

impl fmt::Display for Cause {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Cause::Value { found, expected } => {
                write!(f, "expected {expected}, found `{}`", printable(found))
            }
            Cause::Statement(text) => write!(f, "{text}"),
        }
    }
}

/// Control characters escaped, so that a value cannot draw on the terminal.
fn printable(text: &str) -> String {
    text.chars()
        .flat_map(|c| {
            if c.is_control() {
                c.escape_default().collect()
            } else {
                vec![c]
            }
        })
        .collect()
}
