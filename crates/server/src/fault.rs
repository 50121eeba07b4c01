//! Faults, sorted by who is at fault. One function maps a fault to a status.

use std::fmt;

use serde::{Deserialize, Serialize};

/// Why an exchange did not get the reply its handler meant to give.
#[derive(Debug)]
pub enum Fault {
    /// The client: gone, or broke the protocol after its head was accepted.
    Peer(String),
    /// The application raised, or broke the rules of its interface. The text (a traceback) goes to the
    /// error log only.
    App(String),
    /// It was interrupted because it took too long; its client has its answer already.
    Overdue,
    /// The operating system.
    System(std::io::Error),
    /// Milepost itself.
    Bug(String),
}

impl Fault {
    /// The status to answer with when nothing has been sent yet.
    pub fn status(&self) -> u16 {
        match self {
            Fault::Peer(_) => 400,
            Fault::Overdue => 504,
            Fault::App(_) | Fault::System(_) | Fault::Bug(_) => 500,
        }
    }
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Fault::Peer(text) => write!(f, "client: {text}"),
            Fault::App(text) => write!(f, "application: {text}"),
            Fault::Overdue => f.write_str("interrupted: it took longer than request_timeout"),
            Fault::System(error) => write!(f, "system: {error}"),
            Fault::Bug(text) => write!(f, "bug: {text}"),
        }
    }
}

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
