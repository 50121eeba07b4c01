//! What the command says: `milepost: what: cause` and `hint: ...` on standard error, data on standard output.
//!
//! The only place that prints.

use std::io::{self, IsTerminal as _, Write as _};
use std::process::{Command, Stdio};
use std::sync::Arc;

use config::ConfigFault;
use config::failure::Failure;

use crate::environment::cause;

/// One thing that went wrong, ready to be said.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Message(Failure);

impl Message {
    /// `what: cause`
    pub(crate) fn new(what: &str, cause: impl std::fmt::Display) -> Self {
        Self::from_text(format!("{what}: {cause}"))
    }

    /// A text that has the form `what: cause` already.
    pub(crate) fn from_text(text: impl Into<String>) -> Self {
        Self(Failure::new(text))
    }

    /// The same with a place before it.
    pub(crate) fn within(self, what: &str) -> Self {
        let message = format!("{what}: {}", self.0.message);
        Self(Failure { message, ..self.0 })
    }

    pub(crate) fn with_hint(self, hint: impl Into<String>) -> Self {
        Self(self.0.with_hint(hint))
    }

    pub(crate) fn with_hint_maybe(self, hint: Option<String>) -> Self {
        Self(Failure { hint, ..self.0 })
    }

    /// Lines that come before it: a traceback comes first, because the last lines are those that stay on the screen.
    pub(crate) fn with_detail(self, detail: impl Into<String>) -> Self {
        let detail = Some(detail.into());
        Self(Failure { detail, ..self.0 })
    }

    /// The text as it is printed, with its line ends.
    pub(crate) fn text(&self) -> String {
        self.0.text()
    }

    /// The text without what comes before and after it.
    pub(crate) fn cause(&self) -> &str {
        &self.0.message
    }

    pub(crate) fn say(&self) {
        talk(&self.text());
    }
}

impl From<&ConfigFault> for Message {
    fn from(fault: &ConfigFault) -> Self {
        Self::from_text(fault.to_string()).with_hint_maybe(fault.hint.clone())
    }
}

impl From<Failure> for Message {
    fn from(failure: Failure) -> Self {
        Self(failure)
    }
}

impl From<Message> for Failure {
    fn from(message: Message) -> Self {
        message.0
    }
}

/// Says all of them in one write, so that nothing comes between.
pub(crate) fn say_all(messages: &[Message]) {
    talk(&messages.iter().map(Message::text).collect::<String>());
}

/// To standard error. A closed one is nobody's fault and nobody's loss.
pub(crate) fn talk(text: &str) {
    let _ = io::stderr().lock().write_all(text.as_bytes());
}

/// To standard output. A reader that left early (`| head`) has seen what it wanted.
pub(crate) fn data(text: &str) {
    let _ = try_data(text);
}

/// To standard output; on a terminal through the pager, which `PAGER` names, as man(1) does it.
pub(crate) fn page(text: &str) {
    let is_shown = io::stdout().is_terminal() && paged(text);
    if !is_shown {
        data(text);
    }
}

/// Whether there was a pager that took it.
fn paged(text: &str) -> bool {
    const USUAL: &str = "command -v less >/dev/null || exit 127; exec less";
    // Through a shell, because the variable may hold arguments.
    let pager = std::env::var_os("PAGER").unwrap_or_else(|| USUAL.into());
    let mut command = Command::new("sh");
    command.arg("-c").arg(&pager).stdin(Stdio::piped());
    if std::env::var_os("LESS").is_none() {
        // As git has it: a text that fits on the screen stays there, and no key has to be pressed.
        command.env("LESS", "FRX");
    }
    let started = match pager.is_empty() {
        true => None,
        false => command.spawn().ok(),
    };
    let Some(mut child) = started else {
        return false;
    };
    // The pager takes SIGINT for its own, and must not lose the terminal to the shell because of it.
    let _ = signal_hook::flag::register(signal_hook::consts::SIGINT, Arc::default());
    if let Some(mut input) = child.stdin.take() {
        // A reader that leaves early has seen what it wanted.
        let _ = input.write_all(text.as_bytes());
    }
    // 127 is the shell's, which has found no such program.
    child.wait().is_ok_and(|status| status.code() != Some(127))
}

/// To standard output, what somebody has waited for: unlike text that can be asked for again, it must not be lost
/// without a word. A reader that left early has seen what it wanted.
///
/// # Errors
/// What kept it from being written, as on a full disk.
pub(crate) fn result(text: &str) -> Result<(), Message> {
    match try_data(text) {
        Err(error) if error.kind() != io::ErrorKind::BrokenPipe => {
            let cause = format!("cannot be written: {}", cause(&error));
            Err(Message::new("standard output", cause))
        }
        Ok(()) | Err(_) => Ok(()),
    }
}

/// To standard output, for those who would go on for ever.
///
/// # Errors
/// When nobody reads any more.
pub(crate) fn try_data(text: &str) -> io::Result<()> {
    let mut out = io::stdout().lock();
    out.write_all(text.as_bytes())?;
    out.flush()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn has_the_traceback_first_and_the_hint_last() {
        let fault = Failure {
            message: "`shop:app`: the module raised".into(),
            hint: Some("see the traceback above".into()),
            detail: Some("Traceback (most recent call last):\n  ...\nValueError: no\n".into()),
        };
        let expect = "Traceback (most recent call last):\n  ...\nValueError: no\n\
                      milepost: `shop:app`: the module raised\nhint: see the traceback above\n";
        assert_eq!(Message::from(fault).text(), expect);
        assert_eq!(Message::new("`a`", "is b").text(), "milepost: `a`: is b\n");
    }
}
