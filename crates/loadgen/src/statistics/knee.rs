//! What a search has found, as a text and as lines to be drawn.

use std::fmt::Write as _;

use super::search::{Held, Try};
use super::unit::Unit;

/// What a search has found.
#[derive(Clone, PartialEq, Debug)]
pub struct Knee {
    /// The highest rate that held, requests a second; `None`: none did.
    pub best: Option<f64>,
    /// Why there was nothing more to try.
    pub end: SearchEnd,
    /// All tries, in their order.
    pub tries: Vec<Try>,
}

/// Why a search ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum SearchEnd {
    /// The bracket is narrow enough.
    Found,
    /// The highest rate that was allowed holds.
    AllHeld,
    /// Not even the lowest one holds.
    NoneHeld,
    /// The generator was the limit: the server may do more than the best.
    GeneratorLimited,
    /// The last try cannot be judged; it has the reason.
    Unsaid,
    /// Somebody ended it.
    BrokenOff,
}

impl Knee {
    /// Lines over the rate, in the order of rates: `p50` and `p99` in seconds, `answered` in replies a
    /// second. Of a rate that was tried twice the second one counts.
    pub fn lines(&self) -> Vec<(&'static str, Vec<(f64, f64)>)> {
        let mut tries: Vec<&Try> = Vec::new();
        for tried in &self.tries {
            tries.retain(|one| one.rate != tried.rate);
            tries.push(tried);
        }
        tries.sort_by(|one, other| one.rate.total_cmp(&other.rate));
        let points = |value: fn(&Try) -> Option<f64>| {
            let found = tries.iter().filter_map(|one| Some((one.rate, value(one)?)));
            found.collect()
        };
        vec![
            ("p50", points(|one| one.p50_us.map(|us| us / 1e6))),
            ("p99", points(|one| one.p99_us.map(|us| us / 1e6))),
            ("answered", points(|one| Some(one.answered))),
        ]
    }

    /// A table of all tries, and the answer as the last line.
    pub fn text(&self) -> String {
        let mut text = format!(
            "{:>11}  {:>11}  {:>9}  {:>9}  held\n",
            "rate", "answered", "p50", "p99"
        );
        let time = |us: Option<f64>| us.map_or("–".to_owned(), |us| Unit::Time.text(us));
        for tried in &self.tries {
            // Writing to a String cannot fail.
            let _ = writeln!(
                text,
                "{:>11}  {:>11}  {:>9}  {:>9}  {}",
                Unit::PerSecond.text(tried.rate),
                Unit::PerSecond.text(tried.answered),
                time(tried.p50_us),
                time(tried.p99_us),
                match tried.held {
                    Held::Yes => "yes",
                    Held::No => "no",
                    Held::Unsaid => "cannot be said",
                    Held::GeneratorLimited => "generator-limited",
                },
            );
        }
        text.push_str(&self.answer());
        text.push('\n');
        text
    }

    /// Why the last try cannot be judged.
    fn unsaid(&self) -> String {
        let last = self.tries.last();
        let rate = last.map_or(0.0, |last| last.rate);
        let why = last.and_then(|last| last.why_unsaid.as_deref());
        let why = why.unwrap_or("the run gives no such figure");
        // An invalid run has its own remedy in its text.
        let remedy = match why.starts_with("too few") {
            true => ": give it more time (`--duration`), or begin higher (`--rate`)",
            false => "",
        };
        format!(
            "at {}/s it cannot be said: {}{remedy}",
            Unit::PerSecond.text(rate),
            why
        )
    }

    /// The answer in one sentence.
    pub fn answer(&self) -> String {
        let best = match self.best {
            Some(best) => format!("it holds up to {}/s", Unit::PerSecond.text(best)),
            None => "it held at no rate".to_owned(),
        };
        match self.end {
            SearchEnd::Found | SearchEnd::NoneHeld => best,
            SearchEnd::AllHeld => format!("{best}, the highest rate that was allowed"),
            SearchEnd::GeneratorLimited => {
                format!("{best}; then the generator was the limit, the server may do more")
            }
            SearchEnd::Unsaid => format!("{best}; {}", self.unsaid()),
            SearchEnd::BrokenOff => format!("{best}; the search was broken off"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tried(rate: f64, held: Held, p99_us: Option<f64>) -> Try {
        Try {
            rate,
            held,
            answered: rate,
            p50_us: Some(800.0),
            p99_us,
            why_unsaid: None,
        }
    }

    fn knee() -> Knee {
        Knee {
            best: Some(2_000.0),
            end: SearchEnd::GeneratorLimited,
            tries: vec![
                tried(2_000.0, Held::Yes, Some(5_000.0)),
                tried(1_000.0, Held::No, Some(90_000.0)),
                tried(1_000.0, Held::Yes, Some(4_000.0)),
                tried(4_000.0, Held::GeneratorLimited, None),
            ],
        }
    }

    #[test]
    fn gives_lines_in_the_order_of_rates_and_second_tries_only() {
        let lines = knee().lines();
        let (name, points) = &lines[1];
        assert_eq!(*name, "p99");
        assert_eq!(points, &[(1_000.0, 0.004), (2_000.0, 0.005)]);
        assert_eq!(lines[0].1.len(), 3);
        assert_eq!(lines[2].1[2], (4_000.0, 4_000.0));
    }

    #[test]
    fn says_each_try_and_the_answer() {
        let expect = "       rate     answered        p50        p99  held
      2,000        2,000     800 µs       5 ms  yes
      1,000        1,000     800 µs      90 ms  no
      1,000        1,000     800 µs       4 ms  yes
      4,000        4,000     800 µs          –  generator-limited
it holds up to 2,000/s; then the generator was the limit, the server may do more
";
        assert_eq!(knee().text(), expect);
    }
}
