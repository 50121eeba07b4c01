//! A line on standard error that says how far something is, drawn anew in its place.
//!
//! Takes text, gives it to the terminal; nothing where standard error is none.

use std::io::{self, IsTerminal};

use crate::message;

/// Where the line goes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum ProgressScreen {
    /// Nobody would see it.
    Nowhere,
    /// A terminal.
    Terminal {
        /// Whether the line is there now.
        is_drawn: bool,
    },
}

impl ProgressScreen {
    /// Standard error, unless it is no terminal.
    pub(crate) fn of_talk() -> ProgressScreen {
        match io::stderr().is_terminal() {
            true => ProgressScreen::Terminal { is_drawn: false },
            false => ProgressScreen::Nowhere,
        }
    }

    /// Draws what fits into so many columns.
    pub(crate) fn show(&mut self, text: impl FnOnce(usize) -> String) {
        if let ProgressScreen::Terminal { is_drawn } = self {
            *is_drawn = true;
            message::talk(&format!("\r{}\x1b[K", text(columns())));
        }
    }

    /// The line is no longer there.
    pub(crate) fn clear(&mut self) {
        if let ProgressScreen::Terminal { is_drawn } = self
            && std::mem::take(is_drawn)
        {
            message::talk("\r\x1b[K");
        }
    }
}

/// One less than there are: a full line moves the cursor to the next one.
fn columns() -> usize {
    match rustix::termios::tcgetwinsize(io::stderr()) {
        Ok(size) if size.ws_col > 1 => usize::from(size.ws_col) - 1,
        _ => 79,
    }
}
