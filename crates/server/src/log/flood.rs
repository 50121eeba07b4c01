//! Floods of equal error lines: the first few are written, the others counted.
//!
//! Pure: the time is an argument.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use crate::config::meant::Level;

/// How long equal lines are counted before their count is written.
const WINDOW: Duration = Duration::from_secs(10);
/// Equal lines in a window that are written as they are.
const WRITTEN_LEN: u64 = 5;
/// Different lines that are watched at once; what comes beyond is written.
const WATCHED_LEN_MAX: usize = 256;
/// A longer text is written: watching it would keep it in memory.
const WATCHED_BYTES_MAX: usize = 16 << 10;
/// Of a longer text only the beginning is named with the count.
const NAMED_CHARS_MAX: usize = 200;

#[derive(Debug, Default)]
pub(super) struct Floods {
    watched: HashMap<(Level, String), Watched>,
}

#[derive(Debug)]
struct Watched {
    since: Instant,
    len: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Verdict {
    Write,
    Count,
}

impl Floods {
    pub(super) fn is_empty(&self) -> bool {
        self.watched.is_empty()
    }

    /// What to do with a line.
    pub(super) fn judge(&mut self, level: Level, text: &str, now: Instant) -> Verdict {
        if text.len() > WATCHED_BYTES_MAX {
            return Verdict::Write;
        }
        let key = (level, without_id(text));
        if let Some(watched) = self.watched.get_mut(&key) {
            watched.len += 1;
            return if watched.len > WRITTEN_LEN {
                Verdict::Count
            } else {
                Verdict::Write
            };
        }
        if self.watched.len() < WATCHED_LEN_MAX {
            self.watched.insert(key, Watched { since: now, len: 1 });
        }
        Verdict::Write
    }

    /// The counts of those whose window is over, as lines, the oldest first; of all when it is the end.
    pub(super) fn ended(&mut self, now: Instant, is_last: bool) -> Vec<(Level, String)> {
        let is_over = |watched: &Watched| is_last || now.duration_since(watched.since) >= WINDOW;
        let mut over: Vec<_> = self
            .watched
            .extract_if(|_, watched| is_over(watched))
            .filter(|(_, watched)| watched.len > WRITTEN_LEN)
            .collect();
        over.sort_by_key(|(_, watched)| watched.since);
        over.into_iter()
            .map(|((level, text), watched)| (level, count_line(&text, &watched, now)))
            .collect()
    }
}

fn count_line(text: &str, watched: &Watched, now: Instant) -> String {
    let first = text.lines().next().unwrap_or_default();
    let named: String = first.chars().take(NAMED_CHARS_MAX).collect();
    let more = if named.len() < text.trim_end().len() {
        " ..."
    } else {
        ""
    };
    let seconds = now.duration_since(watched.since).as_secs().max(1);
    let len = watched.len - WRITTEN_LEN;
    format!("{len} more in {seconds} s: {named}{more}")
}

/// The text without the id of its exchange, which makes equal lines different: the first one. What looks
/// like one in the words of an application may be all that tells its lines apart.
fn without_id(text: &str) -> String {
    let id = text.split_once("[id ").and_then(|(before, after)| {
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

    fn judged(floods: &mut Floods, text: &str, len: usize, now: Instant) -> usize {
        (0..len)
            .filter(|_| floods.judge(Level::Error, text, now) == Verdict::Write)
            .count()
    }

    #[test]
    fn the_first_are_written_and_the_others_counted() {
        let (mut floods, now) = (Floods::default(), Instant::now());
        assert_eq!(judged(&mut floods, "no\nway", 1005, now), 5);
        assert_eq!(judged(&mut floods, "other", 5, now), 5);
        assert!(floods.ended(now + WINDOW / 2, false).is_empty());
        let ended = floods.ended(now + WINDOW, false);
        assert_eq!(
            ended,
            [(Level::Error, "1000 more in 10 s: no ...".to_owned())]
        );
        assert!(floods.is_empty());
        assert_eq!(judged(&mut floods, "no\nway", 1, now + WINDOW), 1);
    }

    #[test]
    fn ids_make_no_difference() {
        let (mut floods, now) = (Floods::default(), Instant::now());
        let texts = (0..20).map(|id| format!("application failed [id {id:016x}]: why"));
        let written = texts.filter(|text| floods.judge(Level::Error, text, now) == Verdict::Write);
        assert_eq!(written.count(), 5);
        let ended = floods.ended(now, true);
        assert_eq!(ended[0].1, "15 more in 1 s: application failed: why");
    }

    #[test]
    fn what_an_application_calls_an_id_makes_a_difference() {
        let (mut floods, now) = (Floods::default(), Instant::now());
        let texts = (0..20).map(|order| format!("GET / [id 0a]: lost [id {order}]"));
        let written = texts.filter(|text| floods.judge(Level::Error, text, now) == Verdict::Write);
        assert_eq!(written.count(), 20);
    }

    #[test]
    fn long_texts_are_not_kept() {
        let (mut floods, now) = (Floods::default(), Instant::now());
        let text = "x".repeat(WATCHED_BYTES_MAX + 1);
        assert_eq!(judged(&mut floods, &text, 20, now), 20);
        assert!(floods.is_empty());
    }

    #[test]
    fn a_flood_of_different_lines_is_no_memory_leak() {
        let (mut floods, now) = (Floods::default(), Instant::now());
        for index in 0..10_000 {
            assert_eq!(judged(&mut floods, &index.to_string(), 1, now), 1);
        }
        assert_eq!(floods.watched.len(), WATCHED_LEN_MAX);
    }
}
