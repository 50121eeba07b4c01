//! A run as it is watched: one line on a terminal, and Ctrl-C.
//!
//! Takes seconds that are over, gives them to the terminal; nothing where standard error is none. The first
//! SIGINT or SIGTERM ends the run, whose results are then shown; the second one ends the program.

use std::io::{self, IsTerminal};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use loadgen::engine::Watch;
use loadgen::outcome::Second;
use loadgen::output::{self, LiveFacts};
use loadgen::plan::{Length, Plan};
use signal_hook::consts::{SIGINT, SIGTERM};

use crate::message;

/// As a shell says it of a program that SIGINT has ended.
const INTERRUPTED: i32 = 130;

/// Whether somebody has asked for the end.
#[derive(Clone, Debug, Default)]
pub(super) struct Stop(Arc<AtomicBool>);

impl Stop {
    /// Listens for signals from now on.
    ///
    /// # Errors
    /// The system's.
    pub(super) fn listen() -> io::Result<Stop> {
        let stop = Stop::default();
        for signal in [SIGINT, SIGTERM] {
            // The order matters: the second signal finds what the first one has set.
            let asked = Arc::clone(&stop.0);
            signal_hook::flag::register_conditional_shutdown(signal, INTERRUPTED, asked)?;
            signal_hook::flag::register(signal, Arc::clone(&stop.0))?;
        }
        Ok(stop)
    }

    pub(super) fn is_asked_for(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }
}

/// Who watches one run.
pub(super) struct Watcher {
    stop: Stop,
    name: String,
    length: Length,
    answered: u64,
    failed: u64,
    screen: ProgressScreen,
}

/// Where the line goes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum ProgressScreen {
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
    pub(super) fn of_talk() -> ProgressScreen {
        match io::stderr().is_terminal() {
            true => ProgressScreen::Terminal { is_drawn: false },
            false => ProgressScreen::Nowhere,
        }
    }
}

impl Watcher {
    pub(super) fn new(plan: &Plan, name: String, stop: &Stop, screen: ProgressScreen) -> Watcher {
        Watcher {
            stop: stop.clone(),
            name,
            length: plan.length,
            answered: 0,
            failed: 0,
            screen,
        }
    }

    /// The line is no longer there.
    pub(super) fn clear(&mut self) {
        if let ProgressScreen::Terminal { is_drawn } = &mut self.screen
            && std::mem::take(is_drawn)
        {
            message::talk("\r\x1b[K");
        }
    }

    fn count(&mut self, second: &Second) {
        // What warms up does not count.
        if second.at_s >= 0 {
            self.answered += second.answered;
            self.failed += second.failed;
        }
    }

    /// How much of the run is over, and how many seconds are left.
    fn progress(&self, at_s: i64) -> (Option<f64>, Option<f64>) {
        let passed = (at_s + 1) as f64;
        let by_time = self.length.duration.map(|all| {
            let all = all.as_secs_f64();
            (passed.max(0.0) / all, all - passed)
        });
        let by_count = self.length.requests.map(|all| {
            let done = (self.answered + self.failed) as f64 / all as f64;
            (done, passed * (1.0 - done) / done)
        });
        // What is reached first ends it.
        let (done, left_s) = match (by_time, by_count) {
            (Some(time), Some(count)) if count.0 > time.0 => count,
            (Some(time), _) => time,
            (None, Some(count)) => count,
            (None, None) => return (None, None),
        };
        let left_s = Some(left_s.max(0.0)).filter(|left| left.is_finite());
        (Some(done.min(1.0)), left_s)
    }
}

impl Watch for Watcher {
    fn second(&mut self, second: &Second) {
        self.count(second);
        let ProgressScreen::Terminal { is_drawn } = &mut self.screen else {
            return;
        };
        *is_drawn = true;
        let (done, left_s) = self.progress(second.at_s);
        let line = output::live(&LiveFacts {
            name: &self.name,
            second,
            answered: self.answered,
            failed: self.failed,
            done,
            left_s,
            columns: columns(),
        });
        message::talk(&format!("\r{line}\x1b[K"));
    }

    fn is_over(&mut self) -> bool {
        self.stop.is_asked_for()
    }
}

/// One less than there are: a full line moves the cursor to the next one.
fn columns() -> usize {
    match rustix::termios::tcgetwinsize(io::stderr()) {
        Ok(size) if size.ws_col > 1 => usize::from(size.ws_col) - 1,
        _ => 79,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use loadgen::plan::Begin;
    use telemetry::Nanos;

    fn watcher(secs: Option<u64>, requests: Option<u64>) -> Watcher {
        Watcher {
            stop: Stop::default(),
            name: String::new(),
            length: Length {
                begin: Begin::AtOnce,
                duration: secs.map(Nanos::from_secs),
                requests,
            },
            answered: 0,
            failed: 0,
            screen: ProgressScreen::Nowhere,
        }
    }

    fn second(at_s: i64, answered: u64) -> Second {
        Second {
            at_s,
            answered,
            ..Second::default()
        }
    }

    #[test]
    fn says_how_much_is_over() {
        for (secs, requests, at_s, expect) in [
            (Some(10), None, 4, (Some(0.5), Some(5.0))),
            (Some(10), None, -3, (Some(0.0), Some(12.0))),
            (None, Some(200), 0, (Some(0.5), Some(1.0))),
            (Some(100), Some(200), 0, (Some(0.5), Some(1.0))),
            (Some(1), Some(200), 1, (Some(1.0), Some(0.0))),
        ] {
            let mut watcher = watcher(secs, requests);
            watcher.second(&second(-1, 1_000));
            watcher.second(&second(0, 100));
            assert_eq!(
                watcher.progress(at_s),
                expect,
                "{secs:?} {requests:?} {at_s}"
            );
        }
        // Nothing is answered yet: nobody knows how long it takes.
        assert_eq!(watcher(None, Some(5)).progress(0), (Some(0.0), None));
    }

    #[test]
    fn is_over_when_somebody_asks_for_it() {
        let mut watcher = watcher(Some(1), None);
        assert!(!watcher.is_over());
        watcher.stop.0.store(true, Ordering::Relaxed);
        assert!(watcher.is_over());
    }
}
