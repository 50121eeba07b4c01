//! A run as it is watched: one line on a terminal, and Ctrl-C.
//!
//! Takes seconds that are over, gives them to the terminal; nothing where standard error is none. The first
//! SIGINT or SIGTERM ends the run, whose results are then shown; the second one ends the program.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use loadgen::engine::Watch;
use loadgen::outcome::Second;
use loadgen::plan::{Length, Plan};
use present::{duration, harmless, progress, thousands, width};
use signal_hook::consts::{SIGINT, SIGTERM};
use signal_hook::iterator::Signals;

use crate::progress::ProgressScreen;

/// Whether somebody has asked for the end.
#[derive(Clone, Debug, Default)]
pub(crate) struct Stop(Arc<AtomicBool>);

impl Stop {
    /// Listens for signals from now on.
    ///
    /// # Errors
    /// The system's.
    pub(crate) fn listen() -> io::Result<Stop> {
        let stop = Stop::default();
        for signal in [SIGINT, SIGTERM] {
            // The order matters: the second signal finds what the first one has set.
            let asked = Arc::clone(&stop.0);
            // 130, as a shell says it of a program that SIGINT has ended.
            signal_hook::flag::register_conditional_shutdown(signal, 130, asked)?;
            signal_hook::flag::register(signal, Arc::clone(&stop.0))?;
        }
        Ok(stop)
    }

    /// The same, where something must be ended with the program: the first signal has `first` run, and the second one
    /// has `last` run before it ends the program. Both run on a thread of their own.
    ///
    /// # Errors
    /// The system's.
    pub(crate) fn listen_with(
        first: impl FnOnce() + Send + 'static,
        last: impl FnOnce() + Send + 'static,
    ) -> io::Result<Stop> {
        let stop = Stop::default();
        let asked = stop.clone();
        let mut signals = Signals::new([SIGINT, SIGTERM])?;
        let thread = thread::Builder::new().name("signals".to_owned());
        thread.spawn(move || {
            let mut come = signals.forever();
            if come.next().is_some() {
                asked.0.store(true, Ordering::Relaxed);
                first();
            }
            if come.next().is_some() {
                last();
                // 130, as a shell says it of a program that SIGINT has ended.
                signal_hook::low_level::exit(130);
            }
        })?;
        Ok(stop)
    }

    pub(crate) fn is_asked_for(&self) -> bool {
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
    pub(super) screen: ProgressScreen,
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

    /// How the run goes.
    fn line(&self, second: &Second, columns: usize) -> String {
        let us = |value: f64| duration(value / 1e6);
        let (done, left_s) = self.progress(second.at_s);
        // Seconds before the counted ones have no share of the run.
        let stage = match done {
            _ if second.at_s < 0 => "warming up".to_owned(),
            Some(done) if done.is_finite() => progress(done),
            _ => format!("{} s", second.at_s.saturating_add(1)),
        };
        let failed = (self.failed > 0).then(|| format!("FAILED {}", thousands(self.failed)));
        let left = left_s.map(|left| format!("{} s left", thousands(left.round() as u64)));
        let name = (!self.name.is_empty()).then(|| harmless(&self.name, 30));
        // By importance, with their places in the line: of what does not fit into the columns, the least important
        // is left out first.
        let parts = [
            (1, Some(stage)),
            (2, Some(format!("{}/s", thousands(second.answered)))),
            (6, failed),
            (4, Some(format!("p99 {}", us(second.p99_us)))),
            (3, Some(format!("p50 {}", us(second.p50_us)))),
            (8, left),
            (5, Some(format!("max {}", us(second.max_us)))),
            (7, Some(format!("{} answered", thousands(self.answered)))),
            (0, name),
        ];
        let mut kept: Vec<(usize, String)> = Vec::new();
        let mut used = 0;
        for (place, text) in parts {
            let Some(text) = text else { continue };
            let gap = if kept.is_empty() { 0 } else { 2 };
            if used + gap + width(&text) <= columns {
                used += gap + width(&text);
                kept.push((place, text));
            }
        }
        assert!(used <= columns, "a longer line would scroll the terminal");
        kept.sort_by_key(|(place, _)| *place);
        let texts: Vec<String> = kept.into_iter().map(|(_, text)| text).collect();
        texts.join("  ")
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
        // Nothing ended yet: the end is infinitely far, and nobody knows when it is.
        let left_s = Some(left_s.max(0.0)).filter(|left| left.is_finite());
        (Some(done.min(1.0)), left_s)
    }
}

impl Watch for Watcher {
    fn second(&mut self, second: &Second) {
        // What warms up does not count.
        if second.at_s >= 0 {
            self.answered += second.answered;
            self.failed += second.failed;
        }
        // A copy, because the line borrows the watcher while it is made.
        let mut screen = self.screen;
        screen.show(|columns| self.line(second, columns));
        self.screen = screen;
    }

    fn is_over(&mut self) -> bool {
        self.stop.is_asked_for()
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
    fn leaves_out_what_does_not_fit() {
        let mut watcher = watcher(Some(10), None);
        watcher.name = "nginx, 3 of 5".to_owned();
        (watcher.answered, watcher.failed) = (319_560, 12);
        let second = Second {
            failed: 12,
            p50_us: 950.0,
            p99_us: 2_300.0,
            max_us: 12_500.0,
            ..second(4, 63_912)
        };
        for (columns, expect) in [
            (
                130,
                "nginx, 3 of 5  [########........]  50 %  63,912/s  p50 950 µs  p99 2.3 ms  max 12.5 ms  FAILED 12  319,560 answered  5 s left",
            ),
            (
                60,
                "[########........]  50 %  63,912/s  p99 2.3 ms  FAILED 12",
            ),
            (0, ""),
        ] {
            assert_eq!(watcher.line(&second, columns), expect);
        }
        (watcher.length.duration, watcher.name) = (None, String::new());
        assert!(watcher.line(&second, 90).starts_with("5 s  63,912/s"));
        let warming = Second { at_s: -2, ..second };
        assert!(
            watcher
                .line(&warming, 90)
                .starts_with("warming up  63,912/s")
        );
    }

    #[test]
    fn is_over_when_somebody_asks_for_it() {
        let mut watcher = watcher(Some(1), None);
        assert!(!watcher.is_over());
        watcher.stop.0.store(true, Ordering::Relaxed);
        assert!(watcher.is_over());
    }
}
