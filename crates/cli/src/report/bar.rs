//! The progress bar: how much is read, how fast, how long it still takes.
//!
//! On standard error, only when that is a terminal, only after a moment, a few times a second.

use std::time::{Duration, Instant};

use present::{progress, thousands};
use report::Progress;

use crate::progress::ProgressScreen;

/// Shorter reading needs no bar.
const PATIENCE: Duration = Duration::from_millis(300);
const STEP: Duration = Duration::from_millis(100);

pub(super) struct Bar {
    begun: Instant,
    next: Instant,
    screen: ProgressScreen,
}

impl Bar {
    pub(super) fn new() -> Bar {
        let begun = Instant::now();
        Bar {
            begun,
            next: begun + PATIENCE,
            screen: ProgressScreen::of_talk(),
        }
    }

    pub(super) fn show(&mut self, progress: &Progress) {
        let now = Instant::now();
        if now >= self.next {
            self.next = now + STEP;
            self.screen.show(|_| text(progress, now - self.begun));
        }
    }

    pub(super) fn clear(&mut self) {
        self.screen.clear();
    }
}

fn text(read: &Progress, spent: Duration) -> String {
    let secs = spent.as_secs_f64().max(0.001);
    let lines = thousands(read.lines_len);
    let rate = thousands((read.lines_len as f64 / secs) as u64);
    let read_mb = read.read_bytes >> 20;
    match read.total_bytes {
        Some(total_bytes) if total_bytes > 0 => {
            let share = (read.read_bytes as f64 / total_bytes as f64).min(1.0);
            // By bytes as they are stored: the lines of a compressed file are not known before its end.
            let rest_secs = if share > 0.0 {
                secs / share - secs
            } else {
                0.0
            };
            format!(
                "{}  {} of {} MB  {lines} lines, {rate} a second, {rest_secs:.0} s left",
                progress(share),
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
            "[############....]  75 %  3,072 of 4,096 MB  6,000,000 lines, 2,000,000 a second, 1 s left"
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
