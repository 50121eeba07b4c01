//! How a run goes on, in one line for a terminal.
//!
//! Takes what is known of the second that is over, gives text without a line's end. Whoever prints it moves
//! to the line's beginning and clears its rest.

use super::text::{harmless, short_seconds, thousands, width};
use crate::outcome::Second;

const CELLS_LEN: usize = 16;

/// What the line tells.
#[derive(Clone, Copy, Debug)]
pub struct LiveFacts<'a> {
    /// The run, where there are several; empty: nothing.
    pub name: &'a str,
    /// The second that is over.
    pub second: &'a Second,
    /// Right replies so far.
    pub answered: u64,
    /// Other ends so far.
    pub failed: u64,
    /// How much of the run is over, 0 to 1; `None`: not known.
    pub done: Option<f64>,
    /// Seconds that are left; `None`: not known.
    pub left_s: Option<f64>,
    /// Columns of the terminal; what does not fit is left out, the least important first.
    pub columns: usize,
}

/// The line.
pub fn live(facts: &LiveFacts<'_>) -> String {
    let second = facts.second;
    let us = |value: f64| short_seconds(value / 1e6);
    let left_s = facts.left_s.filter(|left| left.is_finite());
    // By importance, with their places in the line.
    let parts = [
        (1, Some(stage(facts))),
        (2, Some(format!("{}/s", thousands(second.answered)))),
        (
            6,
            (facts.failed > 0).then(|| format!("FAILED {}", thousands(facts.failed))),
        ),
        (4, Some(format!("p99 {}", us(second.p99_us)))),
        (3, Some(format!("p50 {}", us(second.p50_us)))),
        (
            8,
            left_s.map(|left| format!("{} s left", thousands(left.max(0.0).round() as u64))),
        ),
        (5, Some(format!("max {}", us(second.max_us)))),
        (7, Some(format!("{} answered", thousands(facts.answered)))),
        (
            0,
            (!facts.name.is_empty()).then(|| harmless(facts.name, 30)),
        ),
    ];
    let mut kept: Vec<(usize, String)> = Vec::new();
    let mut used = 0;
    for (place, text) in parts {
        let Some(text) = text else { continue };
        let gap = if kept.is_empty() { 0 } else { 2 };
        if used + gap + width(&text) <= facts.columns {
            used += gap + width(&text);
            kept.push((place, text));
        }
    }
    kept.sort_by_key(|(place, _)| *place);
    let texts: Vec<String> = kept.into_iter().map(|(_, text)| text).collect();
    texts.join("  ")
}

fn stage(facts: &LiveFacts<'_>) -> String {
    if facts.second.at_s < 0 {
        return "warming up".to_owned();
    }
    match facts.done.filter(|done| done.is_finite()) {
        Some(done) => {
            let done = done.clamp(0.0, 1.0);
            let cells = (done * CELLS_LEN as f64) as usize;
            format!(
                "[{}{}] {:3.0} %",
                "#".repeat(cells),
                ".".repeat(CELLS_LEN - cells),
                done * 100.0
            )
        }
        None => format!("{} s", facts.second.at_s.saturating_add(1)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Second = Second {
        at_s: 4,
        answered: 63_912,
        failed: 12,
        read_bytes: 0,
        p50_us: 950.0,
        p99_us: 2_300.0,
        max_us: 12_500.0,
    };

    #[test]
    fn says_how_it_goes() {
        let check = |facts: &LiveFacts<'_>, expect: &str| assert_eq!(live(facts), expect);
        let facts = LiveFacts {
            name: "nginx, 3 of 5",
            second: &SECOND,
            answered: 319_560,
            failed: 12,
            done: Some(0.5),
            left_s: Some(5.2),
            columns: 130,
        };
        check(
            &facts,
            "nginx, 3 of 5  [########........]  50 %  63,912/s  p50 950 µs  p99 2.3 ms  max 12.5 ms  FAILED 12  319,560 answered  5 s left",
        );
        check(
            &LiveFacts {
                columns: 60,
                ..facts
            },
            "[########........]  50 %  63,912/s  p99 2.3 ms  FAILED 12",
        );
        check(
            &LiveFacts {
                columns: 0,
                ..facts
            },
            "",
        );
        let unknown = LiveFacts {
            name: "",
            failed: 0,
            done: None,
            left_s: None,
            ..facts
        };
        check(
            &unknown,
            "5 s  63,912/s  p50 950 µs  p99 2.3 ms  max 12.5 ms  319,560 answered",
        );
        let warming = Second { at_s: -2, ..SECOND };
        assert!(
            live(&LiveFacts {
                second: &warming,
                ..unknown
            })
            .starts_with("warming up  63,912/s")
        );
    }
}
