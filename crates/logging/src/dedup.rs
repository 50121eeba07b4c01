//! Deduplication of error lines: of equal lines the first few are written, the others counted.
//!
//! Pure: the time is an argument.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use config::typed::Level;

/// How long equal lines are counted before their count is written.
const WINDOW: Duration = Duration::from_secs(10);
/// Equal lines in a window that are written as they are.
const WRITTEN_LEN: u64 = 5;
/// Different lines that are remembered at once; further ones are written.
const REPEATED_LEN_MAX: usize = 256;
/// Longer texts are written: they would take too much memory.
const REPEATED_BYTES_MAX: usize = 16 << 10;
/// Characters of a text that stand beside its count.
const NAMED_CHARS_MAX: usize = 200;

#[derive(Debug, Default)]
pub(super) struct Deduplicator {
    repeated: HashMap<(Level, String), RepeatedLine>,
}

#[derive(Debug)]
struct RepeatedLine {
    since: Instant,
    len: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum DedupAction {
    Write,
    Count,
}

impl Deduplicator {
    pub(super) fn is_empty(&self) -> bool {
        self.repeated.is_empty()
    }

    /// What to do with a line.
    pub(super) fn check(&mut self, level: Level, text: &str, now: Instant) -> DedupAction {
        if text.len() > REPEATED_BYTES_MAX {
            return DedupAction::Write;
        }
        let key = (level, without_id(text));
        if let Some(repeated) = self.repeated.get_mut(&key) {
            repeated.len += 1;
            return if repeated.len > WRITTEN_LEN {
                DedupAction::Count
            } else {
                DedupAction::Write
            };
        }
        // Beyond the bound lines are written and not counted: many different lines are no flood of one.
        if self.repeated.len() < REPEATED_LEN_MAX {
            self.repeated
                .insert(key, RepeatedLine { since: now, len: 1 });
        }
        DedupAction::Write
    }

    /// The counts of lines whose window is over, as lines, the oldest first; of all lines when `is_last`.
    pub(super) fn expired(&mut self, now: Instant, is_last: bool) -> Vec<(Level, String)> {
        let is_over =
            |repeated: &RepeatedLine| is_last || now.duration_since(repeated.since) >= WINDOW;
        let mut over: Vec<_> = self
            .repeated
            .extract_if(|_, repeated| is_over(repeated))
            .filter(|(_, repeated)| repeated.len > WRITTEN_LEN)
            .collect();
        // A map has no order, and counts are read by their time.
        over.sort_by_key(|(_, repeated)| repeated.since);
        over.into_iter()
            .map(|((level, text), repeated)| (level, count_line(&text, &repeated, now)))
            .collect()
    }
}

fn count_line(text: &str, repeated: &RepeatedLine, now: Instant) -> String {
    let first = text.lines().next().unwrap_or_default();
    let named: String = first.chars().take(NAMED_CHARS_MAX).collect();
    let more = if named.len() < text.trim_end().len() {
        " ..."
    } else {
        ""
    };
    let seconds = now.duration_since(repeated.since).as_secs().max(1);
    let len = repeated.len - WRITTEN_LEN;
    format!("{len} more in {seconds} s: {named}{more}")
}

/// The text without the first id in it, that of its exchange, which makes equal lines different.
fn without_id(text: &str) -> String {
    let id = text.split_once("[id ").and_then(|(before, after)| {
        // A later id is the application's text.
        let (_, behind) = after.split_once(']')?;
        Some((before.trim_end_matches(' '), behind))
    });
    match id {
        Some((before, behind)) => [before, behind].concat(),
        None => text.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn written(dedup: &mut Deduplicator, text: &str, len: usize, now: Instant) -> usize {
        (0..len)
            .filter(|_| dedup.check(Level::Error, text, now) == DedupAction::Write)
            .count()
    }

    #[test]
    fn the_first_are_written_and_the_others_counted() {
        let (mut dedup, now) = (Deduplicator::default(), Instant::now());
        assert_eq!(written(&mut dedup, "no\nway", 1005, now), 5);
        assert_eq!(written(&mut dedup, "other", 5, now), 5);
        assert!(dedup.expired(now + WINDOW / 2, false).is_empty());
        let ended = dedup.expired(now + WINDOW, false);
        assert_eq!(
            ended,
            [(Level::Error, "1000 more in 10 s: no ...".to_owned())]
        );
        assert!(dedup.is_empty());
        assert_eq!(written(&mut dedup, "no\nway", 1, now + WINDOW), 1);
    }

    #[test]
    fn ids_make_no_difference() {
        let (mut dedup, now) = (Deduplicator::default(), Instant::now());
        let texts = (0..20).map(|id| format!("application failed [id {id:016x}]: why"));
        let written =
            texts.filter(|text| dedup.check(Level::Error, text, now) == DedupAction::Write);
        assert_eq!(written.count(), 5);
        let ended = dedup.expired(now, true);
        assert_eq!(ended[0].1, "15 more in 1 s: application failed: why");
    }

    #[test]
    fn what_an_application_calls_an_id_makes_a_difference() {
        let (mut dedup, now) = (Deduplicator::default(), Instant::now());
        let texts = (0..20).map(|order| format!("GET / [id 0a]: lost [id {order}]"));
        let written =
            texts.filter(|text| dedup.check(Level::Error, text, now) == DedupAction::Write);
        assert_eq!(written.count(), 20);
    }

    #[test]
    fn long_texts_are_not_kept() {
        let (mut dedup, now) = (Deduplicator::default(), Instant::now());
        let text = "x".repeat(REPEATED_BYTES_MAX + 1);
        assert_eq!(written(&mut dedup, &text, 20, now), 20);
        assert!(dedup.is_empty());
    }

    #[test]
    fn different_lines_are_no_memory_leak() {
        let (mut dedup, now) = (Deduplicator::default(), Instant::now());
        for index in 0..10_000 {
            assert_eq!(written(&mut dedup, &index.to_string(), 1, now), 1);
        }
        assert_eq!(dedup.repeated.len(), REPEATED_LEN_MAX);
    }
}
