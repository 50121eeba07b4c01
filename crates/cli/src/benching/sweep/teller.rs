//! The teller: what a sweep says on a terminal while it runs, and that it hears when it is to end.
//!
//! Takes steps and seconds. Writes to standard error alone.

use std::io::{self, IsTerminal};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use loadgen::engine::Watch;
use loadgen::experiment::{Progress, Step};
use loadgen::outcome::Second;
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};

use crate::message::{self, Message};

/// Tells on a terminal how it goes on, and hears that it is to end.
pub(super) struct Teller {
    is_quiet: bool,
    is_terminal: bool,
    point: String,
    over: Arc<AtomicBool>,
}

impl Teller {
    /// Signals end the sweep properly from now on, however often they come: servers have to be stopped.
    pub(super) fn new(is_quiet: bool) -> Result<Teller, Message> {
        let over = Arc::new(AtomicBool::new(false));
        for signal in [SIGINT, SIGTERM, SIGHUP] {
            let heard = signal_hook::flag::register(signal, Arc::clone(&over));
            heard.map_err(|error| Message::new("signals", error))?;
        }
        Ok(Teller {
            is_quiet,
            is_terminal: io::stderr().is_terminal(),
            point: String::new(),
            over,
        })
    }

    fn line(&self, text: &str) {
        if self.is_terminal && !self.is_quiet {
            message::talk(&format!("\r{text}\x1b[K"));
        }
    }

    pub(super) fn clear(&self) {
        self.line("");
    }
}

impl Watch for Teller {
    fn second(&mut self, second: &Second) {
        self.line(&format!("{}: {} a second", self.point, second.answered));
    }

    fn is_over(&mut self) -> bool {
        self.over.load(Ordering::Relaxed)
    }
}

impl Progress for Teller {
    fn step(&mut self, step: &Step<'_>) {
        match step {
            Step::Skips { server, why } => {
                self.clear();
                Message::new(&format!("`{server}` is left out"), why).say();
                return;
            }
            Step::Starts {
                server,
                repetition,
                repeat,
            } => {
                self.point = format!("repetition {repetition} of {repeat}: {server}");
            }
            Step::Measures {
                server,
                point,
                done,
                all,
            } => {
                self.point = format!("{} of {all}: {server}, {point}", done + 1);
            }
            Step::Repeats { server, point } => {
                self.point = format!("once more, others used the processors: {server}, {point}");
            }
        }
        self.line(&self.point);
    }
}
