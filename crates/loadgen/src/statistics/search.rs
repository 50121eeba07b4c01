//! The highest rate at which an assertion holds: which rate to try next.
//!
//! Takes what each try has said, gives the next rate or the knee. Pure: the
//! caller makes the runs.
//!
//! ```text
//!          holds: twice as much                fails twice: the middle
//! first ──────────────────────► ... ─────────► bisection, until the bracket is within 5 % ─► knee
//!   └── fails twice: half as much, down to 1/s
//! ```
//!
//! A try that does not hold is made once more before it counts: one stall of the machine is not the server's
//! knee. When the generator was the limit, the search ends: higher rates would say nothing of the server. So it
//! does when a try cannot be judged, as a run that is invalid or too short for the percentile: to call that a
//! rate at which it does not hold would give a wrong knee.

use std::ops::ControlFlow;

use present::{NONE, Table, WIDTH_MAX};

use super::assertion::{Assertion, Verdict};
use super::metric::Metric;
use super::unit::Unit;
use crate::outcome::Outcome;

/// Bisection ends when the bracket is so narrow, as a share of its lower end.
const BRACKET_SHARE: f64 = 0.05;
/// And after so many steps.
const BISECTIONS_LEN_MAX: usize = 8;
/// No lower rate is tried, requests a second.
const RATE_MIN: f64 = 1.0;

/// A search that is going on.
#[derive(Clone, PartialEq, Debug)]
pub struct Search {
    first: f64,
    most: f64,
    /// The highest rate that held.
    low: Option<f64>,
    /// The lowest that did not.
    high: Option<f64>,
    tries: Vec<Try>,
    bisections_len: usize,
}

/// What came of a try.
#[derive(Clone, PartialEq, Debug)]
pub struct Try {
    /// Requests a second that were asked for.
    pub rate: f64,
    /// Whether the assertion held.
    pub held: Held,
    /// Right replies in a second.
    pub answered: f64,
    /// Median latency; `None`: it cannot be said.
    pub p50_us: Option<f64>,
    /// 99 %, likewise.
    pub p99_us: Option<f64>,
}

/// Whether an assertion held.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Held {
    /// It did.
    Yes,
    /// It did not.
    No,
    /// It cannot be said, and why: the run is invalid, or too short for what is asked.
    Unsaid(String),
    /// It did not, and the generator was the limit: this says nothing of the server.
    GeneratorLimited,
}

impl Try {
    /// What came of a run at `rate`: `assertion` is what the search is for.
    pub fn of(rate: f64, outcome: &Outcome, assertion: &Assertion) -> Try {
        Try {
            rate,
            held: Held::of(outcome, &assertion.holds(outcome)),
            answered: outcome.per_second(),
            p50_us: Metric::P50.of(outcome),
            p99_us: Metric::P99.of(outcome),
        }
    }
}

impl Held {
    /// Remarks by these words say that the generator did not keep up.
    const LIMITED: [&str; 3] = ["generator-limited", "late", "ports"];

    fn of(outcome: &Outcome, verdict: &Verdict) -> Held {
        let mut words = outcome.remarks.iter().map(|remark| remark.word.as_str());
        if verdict.is_held() {
            Held::Yes
        } else if words.any(|word| Held::LIMITED.contains(&word)) {
            Held::GeneratorLimited
        } else {
            let why = verdict.why_unsaid().map(str::to_owned);
            why.map_or(Held::No, Held::Unsaid)
        }
    }
}

impl Search {
    /// Begins at `first_rate` and tries nothing over `most`; both in requests a second. A first rate outside
    /// 1 to `most` is taken to the nearer end.
    pub fn new(first_rate: f64, most: f64) -> Search {
        let most = most.max(RATE_MIN);
        Search {
            first: first_rate.max(RATE_MIN).min(most),
            most,
            low: None,
            high: None,
            tries: Vec::new(),
            bisections_len: 0,
        }
    }

    /// The rate of the next try, requests a second, or the knee where there is nothing more to try; the same until
    /// something is said.
    pub fn next(&self) -> ControlFlow<Knee, f64> {
        if let Some(last) = self.tries.last() {
            // A single stall of the host must not lower the knee.
            if last.held != Held::Yes && !self.is_second() {
                return ControlFlow::Continue(last.rate);
            }
        }
        let end = match (
            self.tries.last().map(|last| &last.held),
            self.low,
            self.high,
        ) {
            (Some(Held::GeneratorLimited), ..) => SearchEnd::GeneratorLimited,
            (Some(Held::Unsaid(_)), ..) => SearchEnd::Unsaid,
            (_, None, None) => return ControlFlow::Continue(self.first),
            (_, Some(low), None) if low >= self.most => SearchEnd::AllHeld,
            (_, Some(low), None) => return ControlFlow::Continue((low * 2.0).min(self.most)),
            (_, None, Some(high)) if high <= RATE_MIN => SearchEnd::NoneHeld,
            (_, None, Some(high)) => return ControlFlow::Continue((high / 2.0).max(RATE_MIN)),
            (_, Some(low), Some(high)) => {
                let is_narrow = high - low <= BRACKET_SHARE * low;
                if !is_narrow && self.bisections_len < BISECTIONS_LEN_MAX {
                    return ControlFlow::Continue(low.midpoint(high));
                }
                SearchEnd::Found
            }
        };
        ControlFlow::Break(self.knee(end))
    }

    /// What came of the try that [`Search::next`] asked for.
    pub fn said(&mut self, tried: Try) {
        assert!(
            (RATE_MIN..=self.most).contains(&tried.rate),
            "no rate is tried that was not asked for"
        );
        let is_bisection = self.low.is_some() && self.high.is_some();
        let is_again = self
            .tries
            .last()
            .is_some_and(|last| last.rate == tried.rate);
        if is_bisection && !is_again {
            self.bisections_len += 1;
        }
        match tried.held {
            Held::Yes => self.low = Some(tried.rate),
            Held::No if is_again => self.high = Some(tried.rate),
            Held::No | Held::Unsaid(_) | Held::GeneratorLimited => {}
        }
        self.tries.push(tried);
        // A rate between the two narrows the bracket from the side that it fell on, and never turns it over.
        assert!(
            self.low.zip(self.high).is_none_or(|(low, high)| low < high),
            "what held is below what did not"
        );
    }

    /// The knee as far as it is known: for a search that is broken off.
    pub fn knee(&self, end: SearchEnd) -> Knee {
        Knee {
            best: self.low,
            end,
            tries: self.tries.clone(),
        }
    }

    /// Whether the last try was the second one at its rate.
    fn is_second(&self) -> bool {
        matches!(self.tries.as_slice(), [.., before, last] if before.rate == last.rate)
    }
}

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
    /// A table of all tries, and the answer as the last line.
    pub fn text(&self) -> String {
        let tries = || self.tries.iter();
        let rate = |of: fn(&Try) -> f64| tries().map(move |tried| Unit::PerSecond.text(of(tried)));
        let time = |of: fn(&Try) -> Option<f64>| {
            let text = |us: Option<f64>| us.map_or(NONE.to_owned(), |us| Unit::Time.text(us));
            tries().map(move |tried| text(of(tried)))
        };
        let held = tries().map(|tried| match &tried.held {
            Held::Yes => "yes",
            Held::No => "no",
            Held::Unsaid(_) => "cannot be said",
            Held::GeneratorLimited => "generator-limited",
        });
        let mut table = Table::default();
        table
            .numbers("rate", rate(|tried| tried.rate))
            .numbers("answered", rate(|tried| tried.answered))
            .numbers("p50", time(|tried| tried.p50_us))
            .numbers("p99", time(|tried| tried.p99_us))
            .text("held", WIDTH_MAX, held);
        let mut text = table.to_text();
        text.push_str(&self.answer());
        text.push('\n');
        text
    }

    /// Why the last try cannot be judged.
    fn unsaid(&self) -> String {
        let Some(Try {
            rate,
            held: Held::Unsaid(why),
            ..
        }) = self.tries.last()
        else {
            return "the last try cannot be judged".to_owned();
        };
        // An invalid run has its own remedy in its text.
        let remedy = if why.starts_with("too few") {
            ": give it more time (`--duration`), or begin higher (`--rate`)"
        } else {
            ""
        };
        format!(
            "at {}/s it cannot be said: {why}{remedy}",
            Unit::PerSecond.text(*rate)
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
    use proptest::prelude::*;

    use super::*;
    use crate::outcome::{Remark, Weight};
    use crate::tests::outcome;

    fn tried(rate: f64, held: Held) -> Try {
        Try {
            rate,
            held,
            answered: rate,
            p50_us: Some(800.0),
            p99_us: Some(5_000.0),
        }
    }

    fn searched(mut search: Search, mut server: impl FnMut(f64) -> Held) -> Knee {
        for _ in 0..200 {
            match search.next() {
                ControlFlow::Break(knee) => return knee,
                ControlFlow::Continue(rate) => search.said(tried(rate, server(rate))),
            }
        }
        panic!("no end after 200 tries");
    }

    fn held(holds: bool) -> Held {
        if holds { Held::Yes } else { Held::No }
    }

    proptest! {
        #[test]
        fn finds_a_sharp_knee(first in 1.0..1e5f64, knee in 2.0..1e6f64) {
            let found = searched(Search::new(first, 2e6), |rate| held(rate < knee));
            let best = found.best.expect("1/s holds");
            prop_assert_eq!(found.end, SearchEnd::Found);
            prop_assert!(best < knee && knee <= best * 1.05 + 1e-9, "{} of {}", best, knee);
            let mut rates: Vec<u64> = found.tries.iter().map(|one| one.rate.to_bits()).collect();
            let len = rates.len();
            rates.dedup();
            let failed = found.tries.iter().filter(|one| one.held == Held::No).count();
            prop_assert_eq!(len - rates.len(), failed / 2, "each failure is tried exactly twice");
            prop_assert_eq!(failed % 2, 0);
        }

        #[test]
        fn ends_whatever_the_server_does(seed: u64, first in -1.0..1e7f64, most in -1.0..1e7f64) {
            let mut rng = fastrand::Rng::with_seed(seed);
            let found = searched(Search::new(first, most), |_| held(rng.bool()));
            prop_assert!(found.tries.iter().all(|one| one.rate >= 1.0 && one.rate <= most.max(1.0)));
        }
    }

    #[test]
    fn finds_a_noisy_knee_nearly_always() {
        let mut near = 0;
        for seed in 0..200 {
            let mut rng = fastrand::Rng::with_seed(seed);
            // One run in ten is spoilt, and the last tenth before the knee holds only now and then.
            let found = searched(Search::new(100.0, 1e6), |rate| {
                let chance = ((10_000.0 - rate) / 1_000.0).clamp(0.0, 1.0);
                held(rng.f64() < 0.9 * chance)
            });
            let best = found.best.expect("low rates hold");
            assert!(best < 10_000.0, "{seed}: {best}");
            near += u32::from(best > 8_500.0);
        }
        assert!(near >= 170, "{near} of 200");
    }

    #[test]
    fn tries_these_rates_and_ends() {
        use Held::{GeneratorLimited as Limited, No, Yes};
        let unsaid = || Held::Unsaid(String::new());
        let check = |most, held: &[Held], rates: &[f64], best, end| {
            let mut script = held.iter();
            let last = held.last().expect("a try");
            let found = searched(Search::new(rates[0], most), |_| {
                script.next().unwrap_or(last).clone()
            });
            let tried: Vec<f64> = found.tries.iter().map(|one| one.rate).collect();
            assert_eq!(
                (&tried[..], found.best, found.end),
                (rates, best, end),
                "{held:?}"
            );
        };
        check(
            400.0,
            &[Yes],
            &[100.0, 200.0, 400.0],
            Some(400.0),
            SearchEnd::AllHeld,
        );
        check(
            400.0,
            &[No],
            &[2.0, 2.0, 1.0, 1.0],
            None,
            SearchEnd::NoneHeld,
        );
        let twice = [100.0, 200.0, 200.0];
        check(
            1e6,
            &[Yes, Limited],
            &twice,
            Some(100.0),
            SearchEnd::GeneratorLimited,
        );
        check(
            1e6,
            &[Yes, unsaid()],
            &twice,
            Some(100.0),
            SearchEnd::Unsaid,
        );
        let again = [100.0, 200.0, 200.0, 400.0];
        check(
            400.0,
            &[Yes, Limited, Yes],
            &again,
            Some(400.0),
            SearchEnd::AllHeld,
        );
        let rates = [
            100.0, 200.0, 200.0, 400.0, 400.0, 300.0, 350.0, 375.0, 387.5,
        ];
        check(
            1e6,
            &[Yes, No, Yes, No, No, Yes],
            &rates,
            Some(387.5),
            SearchEnd::Found,
        );
    }

    #[test]
    fn takes_a_run_too_short_for_its_percentile_for_no_failure_of_the_server() {
        let assertion = Assertion::parse("p99 < 20ms").expect("a condition");
        let short = Try::of(100.0, &outcome(&[1_000_000; 100], 1), &assertion);
        let knee = searched(Search::new(100.0, 1e6), |_| short.held.clone());
        assert_eq!(
            knee.answer(),
            "it held at no rate; at 100/s it cannot be said: too few values: fewer than ten of 100 lie \
             beyond p99, it takes 1000: give it more time (`--duration`), or begin higher (`--rate`)"
        );
        let slow = Try::of(100.0, &outcome(&[30_000_000; 1_000], 10), &assertion);
        assert_eq!(slow.held, Held::No);
    }

    #[test]
    fn tells_the_generator_s_limit_from_the_server_s() {
        let assertion = Assertion::parse("rps > 1000").expect("a condition");
        let mut run = outcome(&[1_000_000; 2_000], 10);
        assert_eq!(Try::of(5_000.0, &run, &assertion).held, Held::No);
        run.remarks.push(Remark {
            weight: Weight::Doubtful,
            word: "generator-limited".into(),
            text: "a thread used 97 % of a processor".into(),
        });
        let tried = Try::of(5_000.0, &run, &assertion);
        assert_eq!(tried.held, Held::GeneratorLimited);
        assert_eq!((tried.answered, tried.p50_us), (200.0, Some(1_000.0)));
    }

    #[test]
    fn says_each_try_and_the_answer() {
        let knee = Knee {
            best: Some(2_000.0),
            end: SearchEnd::GeneratorLimited,
            tries: vec![
                tried(2_000.0, Held::Yes),
                tried(1_000.0, Held::No),
                Try {
                    p99_us: None,
                    ..tried(4_000.0, Held::GeneratorLimited)
                },
            ],
        };
        let expect = " rate  answered     p50   p99  held
2,000     2,000  800 µs  5 ms  yes
1,000     1,000  800 µs  5 ms  no
4,000     4,000  800 µs     –  generator-limited
it holds up to 2,000/s; then the generator was the limit, the server may do more
";
        assert_eq!(knee.text(), expect);
    }
}
