//! Why the server could not start, or something else could not be done: what, the cause, a hint.

use std::fmt;

use serde::{Deserialize, Serialize};

/// Why the server could not be opened.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StartFault {
    /// What was tried.
    pub what: String,
    /// Why it failed.
    pub cause: String,
    /// What to do about it.
    pub hint: Option<String>,
}

impl StartFault {
    /// What was tried, and why it failed.
    pub fn new(what: impl Into<String>, cause: impl Into<String>) -> Self {
        Self {
            what: what.into(),
            cause: cause.into(),
            hint: None,
        }
    }

    /// What was tried, and what the system said.
    pub fn of_io(what: impl Into<String>, error: &std::io::Error) -> Self {
        Self::new(what, plain(error))
    }

    /// The same with what to do about it.
    #[must_use]
    pub fn with_hint(self, hint: impl Into<String>) -> Self {
        Self {
            hint: Some(hint.into()),
            ..self
        }
    }

    /// What to do about it, where that is known.
    pub fn hint(&self) -> Option<&str> {
        self.hint.as_deref()
    }
}

impl fmt::Display for StartFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.what, self.cause)
    }
}

/// Why something could not be done, for people.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Failure {
    /// `what: cause`
    pub message: String,
    /// What to do about it.
    pub hint: Option<String>,
    /// The traceback, when the application raised.
    pub detail: Option<String>,
}

impl Failure {
    /// One line of what and why.
    pub fn new(message: impl Into<String>) -> Self {
        Self {
            message: message.into(),
            ..Self::default()
        }
    }

    /// The same with what to do about it.
    pub fn with_hint(self, hint: impl Into<String>) -> Self {
        Self {
            hint: Some(hint.into()),
            ..self
        }
    }

    /// As it is printed: the traceback, what went wrong, what to do.
    pub fn text(&self) -> String {
        let mut text = String::new();
        if let Some(detail) = &self.detail {
            text.push_str(detail.trim_end());
            text.push('\n');
        }
        text.push_str(&format!("milepost: {}\n", self.message));
        if let Some(hint) = &self.hint {
            text.push_str(&format!("hint: {hint}\n"));
        }
        text
    }
}

impl From<&StartFault> for Failure {
    fn from(fault: &StartFault) -> Self {
        Self {
            message: fault.to_string(),
            hint: fault.hint.clone(),
            detail: None,
        }
    }
}

/// What the system said, without the number that Rust adds.
pub fn plain(error: &std::io::Error) -> String {
    let text = error.to_string();
    match text.find(" (os error ") {
        Some(end) => text[..end].to_owned(),
        None => text,
    }
}
