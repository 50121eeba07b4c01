//! The progress bar: how much is read, how fast, how long it still takes.
//!
//! On standard error, only when that is a terminal, only after a moment, a few times a second.

use std::io::{self, IsTerminal};
use std::time::{Duration, Instant};

use report::{Progress, thousands};

use crate::message;

/// Shorter reading needs no bar.
const PATIENCE: Duration = Duration::from_millis(300);
const STEP: Duration = Duration::from_millis(100);
const CELLS_LEN: u64 = 24;

pub(super) struct Bar {
    begun: Instant,
    /// `None`: standard error is no terminal.
    next: Option<Instant>,
    is_drawn: bool,
}

impl Bar {
    pub(super) fn new() -> Bar {
        let begun = Instant::now();
        Bar {
            begun,
            next: io::stderr().is_terminal().then(|| begun + PATIENCE),
            is_drawn: false,
        }
    }

    pub(super) fn show(&mut self, progress: &Progress) {
        let Some(next) = self.next else {
            return;
        };
        let now = Instant::now();
        if now >= next {
            message::talk(&format!("\r{}\x1b[K", text(progress, now - self.begun)));
            self.next = Some(now + STEP);
            self.is_drawn = true;
        }
    }

    pub(super) fn clear(&mut self) {
        if std::mem::take(&mut self.is_drawn) {
            message::talk("\r\x1b[K");
        }
    }
}

fn text(progress: &Progress, spent: Duration) -> String {
    let secs = spent.as_secs_f64().max(0.001);
    let lines = thousands(progress.lines_len);
    let rate = thousands((progress.lines_len as f64 / secs) as u64);
    let read_mb = progress.read_bytes >> 20;
    match progress.total_bytes {
        Some(total_bytes) if total_bytes > 0 => {
            let share = (progress.read_bytes as f64 / total_bytes as f64).min(1.0);
            let cells = (share * CELLS_LEN as f64) as usize;
            let rest_secs = if share > 0.0 {
                secs / share - secs
            } else {
                0.0
            };
            format!(
                "[{}{}] {:3.0} %  {} of {} MB  {lines} lines, {rate} a second, {rest_secs:.0} s left",
                "#".repeat(cells),
                ".".repeat(CELLS_LEN as usize - cells),
                share * 100.0,
                thousands(read_mb),
                thousands(total_bytes >> 20),
            )
        }
        _ => format!("{} MB  {lines} lines, {rate} a second", thousands(read_mb)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn says_how_far_it_is() {
        let progress = Progress {
            read_bytes: 3 << 30,
            total_bytes: Some(4 << 30),
            lines_len: 6_000_000,
        };
        assert_eq!(
            text(&progress, Duration::from_secs(3)),
            "[##################......]  75 %  3,072 of 4,096 MB  6,000,000 lines, 2,000,000 a second, 1 s left"
        );
        let unknown = Progress {
            total_bytes: None,
            ..progress
        };
        assert_eq!(
            text(&unknown, Duration::from_secs(3)),
            "3,072 MB  6,000,000 lines, 2,000,000 a second"
        );
    }
}
