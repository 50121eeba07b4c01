//! What a run is to hold: `p99 < 5ms and failures < 0.1%`.
//!
//! Takes a text, then outcomes; gives a verdict with the measured values. What cannot be said does not hold.

use super::metric::{Figure, Metric, quantile};
use crate::engine::Fault;
use crate::outcome::{Outcome, Weight};

/// Conditions that all have to hold.
///
/// A request without the right reply is never a quick one: quantiles of the latency count it as slower than
/// all that were answered, and so one that was due and never sent.
#[derive(Clone, Debug)]
pub struct Assertion {
    conditions: Vec<Condition>,
}

#[derive(Clone, Debug)]
struct Condition {
    /// As it was written.
    text: String,
    metric: Metric,
    holds: Relation,
    bound: f64,
}

/// Whether the first number is to the second as a sign says.
type Relation = fn(&f64, &f64) -> bool;

/// Longer signs first: `<` begins `<=`.
const RELATIONS: [(&str, Relation); 8] = [
    ("<=", f64::le),
    (">=", f64::ge),
    ("==", f64::eq),
    ("≤", f64::le),
    ("≥", f64::ge),
    ("<", f64::lt),
    (">", f64::gt),
    ("=", f64::eq),
];

const FORM: &str =
    "a condition is `p99 < 5ms`, `failures = 0` or `rps >= 2000`; join them by `and` or `,`";

/// What an assertion says of a run.
#[derive(Clone, PartialEq, Debug)]
pub struct Verdict {
    /// Each condition, in the order in which they were written.
    pub conditions: Vec<Judged>,
}

/// What one condition says of a run.
#[derive(Clone, PartialEq, Debug)]
pub struct Judged {
    /// As it was written.
    pub condition: String,
    /// What it is about.
    pub metric: Metric,
    /// Whether it holds.
    pub answer: Answer,
}

/// Whether a condition holds, with the measured value in the metric's unit.
#[derive(Clone, PartialEq, Debug)]
pub enum Answer {
    /// It does.
    Holds(f64),
    /// It does not. Infinite: the slowest of all are not known, only that they are too slow.
    Fails(f64),
    /// It cannot be said, so it does not count as holding, and why.
    Unsaid(String),
}

impl Assertion {
    /// What a text demands.
    ///
    /// # Errors
    /// Names, signs, numbers and units that are none, with the remedy.
    pub fn parse(text: &str) -> Result<Assertion, Fault> {
        let mut conditions = Vec::new();
        for part in text.split(',') {
            // By whole words: the name of no figure is cut at an `and` within it.
            let words: Vec<&str> = part.split_whitespace().collect();
            for words in words.split(|word| word.eq_ignore_ascii_case("and")) {
                conditions.push(Condition::parse(&words.join(" "))?);
            }
        }
        Ok(Assertion { conditions })
    }

    /// Whether it holds for a run.
    pub fn holds(&self, outcome: &Outcome) -> Verdict {
        let judged = self.conditions.iter().map(|one| one.judged(outcome));
        Verdict {
            conditions: judged.collect(),
        }
    }
}

impl Condition {
    fn parse(text: &str) -> Result<Condition, Fault> {
        let no_form = || Fault::with_hint(format!("`{text}`: is no condition"), FORM);
        let at = text.find(['<', '>', '=', '≤', '≥']).ok_or_else(no_form)?;
        let (name, rest) = text.split_at(at);
        let found = RELATIONS
            .iter()
            .find_map(|(sign, relation)| Some((*relation, rest.strip_prefix(sign)?)));
        let (holds, bound) = found.ok_or_else(no_form)?;
        if name.trim().is_empty() || name.contains('!') || bound.contains(['<', '>', '=', '≤', '≥'])
        {
            return Err(no_form());
        }
        let metric = Metric::parse(name)?;
        let bound = metric.unit().read(bound).map_err(|fault| Fault {
            text: format!("`{text}`: {}", fault.text),
            hint: fault.hint,
        })?;
        Ok(Condition {
            text: text.to_owned(),
            metric,
            holds,
            bound,
        })
    }

    fn judged(&self, outcome: &Outcome) -> Judged {
        Judged {
            condition: self.text.clone(),
            metric: self.metric,
            answer: match self.measured(outcome) {
                Err(why) => Answer::Unsaid(why),
                Ok(value) if (self.holds)(&value, &self.bound) => Answer::Holds(value),
                Ok(value) => Answer::Fails(value),
            },
        }
    }

    fn measured(&self, outcome: &Outcome) -> Result<f64, String> {
        let mut remarks = outcome.remarks.iter();
        if let Some(remark) = remarks.find(|remark| remark.weight == Weight::Invalid) {
            return Err(format!("the run is invalid: {}", remark.text));
        }
        match self.metric {
            Metric::Time("", Figure::Quantile(percent)) => missing_aware(outcome, percent),
            // The longest of all is one of those: a time-out of 30 s is no maximum of 5 ms.
            Metric::Time("", Figure::Max) if missing(outcome) > 0 => Ok(f64::INFINITY),
            Metric::Time("", Figure::Mean | Figure::Stdev) if outcome.counts.unsent > 0 => {
                let unsent = outcome.counts.unsent;
                Err(format!(
                    "{unsent} requests that were due were never sent, and would have been the slowest"
                ))
            }
            // Closed loads end with requests under way: the oldest one takes that long at least.
            Metric::Time("", Figure::Max) => {
                let longest_us = outcome.counts.unfinished_longest_us;
                Ok(self.metric.said(outcome)?.max(longest_us))
            }
            _ => self.metric.said(outcome),
        }
    }
}

/// The quantile of all requests, with those that have no right reply at its far end; infinite among them.
fn missing_aware(outcome: &Outcome, percent: f64) -> Result<f64, String> {
    let missing = missing(outcome);
    let answered = outcome.times.latency.count;
    // Those without a reply are the slowest: where they reach over the quantile, it is one of theirs.
    let beyond = (1.0 - percent / 100.0) * (answered + missing) as f64;
    if missing as f64 > beyond + 1e-6 {
        return Ok(f64::INFINITY);
    }
    quantile(&outcome.times.latency, percent, missing)
}

/// Requests without a right reply.
fn missing(outcome: &Outcome) -> u64 {
    let counts = &outcome.counts;
    // In an open load a request that is under way at the end was due like the others. A closed load always ends with
    // some, and how long they would have taken is not known.
    let is_by_due = outcome.times.late.is_some();
    let unfinished = if is_by_due { counts.unfinished } else { 0 };
    counts.failures.sum() + counts.unsent + unfinished
}

impl Verdict {
    /// Whether all of it holds.
    pub fn is_held(&self) -> bool {
        let mut answers = self.conditions.iter().map(|judged| &judged.answer);
        answers.all(|answer| matches!(answer, Answer::Holds(_)))
    }

    /// Why it cannot be said whether all of it holds; `None`: it can.
    pub fn why_unsaid(&self) -> Option<&str> {
        let mut answers = self.conditions.iter().map(|judged| &judged.answer);
        if answers
            .clone()
            .any(|answer| matches!(answer, Answer::Fails(_)))
        {
            return None;
        }
        answers.find_map(|answer| match answer {
            Answer::Unsaid(why) => Some(why.as_str()),
            Answer::Holds(_) | Answer::Fails(_) => None,
        })
    }

    /// A line for each condition: `assertion holds: p99 < 5ms (measured 3.2 ms)`.
    pub fn text(&self) -> String {
        self.conditions.iter().map(Judged::line).collect()
    }
}

impl Judged {
    fn line(&self) -> String {
        let condition = &self.condition;
        let measured = |value: f64| match value.is_finite() {
            true => format!("measured {}", self.metric.unit().text(value)),
            false => "the requests in question have no right reply".to_owned(),
        };
        match &self.answer {
            Answer::Holds(value) => {
                format!("assertion holds: {condition} ({})\n", measured(*value))
            }
            Answer::Fails(value) => {
                format!("assertion fails: {condition} ({})\n", measured(*value))
            }
            Answer::Unsaid(why) => format!("assertion cannot be decided: {condition}: {why}\n"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::outcome::Remark;
    use crate::tests::outcome;

    fn run() -> Outcome {
        let nanos: Vec<u64> = (1..=10_000).map(|step| step * 1_000).collect();
        outcome(&nanos, 10)
    }

    #[track_caller]
    fn check(text: &str, run: &Outcome, expect: &str) {
        let verdict = Assertion::parse(text).expect(text).holds(run);
        assert_eq!(verdict.text(), expect, "{text}");
        let is_other = expect.contains("assertion fails") || expect.contains("cannot");
        assert_eq!(verdict.is_held(), !is_other, "{text}");
    }

    #[test]
    fn holds_or_does_not_with_the_measured_value() {
        for (text, expect) in [
            (
                "p50 < 5.1ms",
                "assertion holds: p50 < 5.1ms (measured 5 ms)\n",
            ),
            ("p99<=9ms", "assertion fails: p99<=9ms (measured 9.9 ms)\n"),
            ("rps ≥ 1K", "assertion holds: rps ≥ 1K (measured 1,000)\n"),
            (
                "rps > 1000",
                "assertion fails: rps > 1000 (measured 1,000)\n",
            ),
            (
                "p99.99 < 1s",
                "assertion cannot be decided: p99.99 < 1s: too few values: fewer than ten of 10000 lie beyond \
                 p99.99, it takes 100000\n",
            ),
            (
                "p99 < 1s and failures = 0, cpu ≤ 20us",
                "assertion holds: p99 < 1s (measured 9.9 ms)\nassertion holds: failures = 0 (measured 0 %)\n\
                 assertion holds: cpu ≤ 20us (measured 10 µs)\n",
            ),
        ] {
            check(text, &run(), expect);
        }
    }

    #[test]
    fn says_nothing_of_an_invalid_run() {
        let mut invalid = run();
        invalid.remarks.push(Remark {
            weight: Weight::Invalid,
            word: "late".into(),
            text: "requests left too late".into(),
        });
        let expect =
            "assertion cannot be decided: rps > 1: the run is invalid: requests left too late\n";
        check("rps > 1", &invalid, expect);
    }

    #[test]
    fn takes_no_request_without_a_right_reply_for_a_quick_one() {
        type Change = fn(&mut Outcome);
        const NONE: &str = "assertion fails: {} (the requests in question have no right reply)";
        let failed: Change = |run| run.counts.failures.reset = 200;
        let unsent: Change = |run| run.counts.unsent = 5_000;
        let unfinished: Change = |run| run.counts.unfinished = 200;
        let open: Change = |run| {
            run.counts.unfinished = 200;
            run.times.late = Some(run.times.latency.clone());
        };
        let unfinished_long: Change = |run| {
            run.counts.unfinished = 64;
            run.counts.unfinished_longest_us = 7e6;
        };
        let cases: [(Change, &str, &str); 12] = [
            (
                |run| run.counts.failures.reset = 90,
                "p99 < 10ms",
                "assertion holds: {} (measured 9.99 ms)",
            ),
            (failed, "p99 < 1s", NONE),
            (failed, "p50 < 6ms", "assertion holds: {} (measured 5.1 ms)"),
            (unsent, "p90 < 1s", NONE),
            (unsent, "max < 1s", NONE),
            (
                unsent,
                "mean < 1s",
                "assertion cannot be decided: {}: 5000 requests that were due were never sent, and would have been the \
                 slowest",
            ),
            (|_| {}, "max < 1s", "assertion holds: {} (measured 10 ms)"),
            (|run| run.counts.failures.timeout = 1, "max < 1s", NONE),
            // The longest is as long as what is still under way.
            (
                unfinished_long,
                "max < 1s",
                "assertion fails: {} (measured 7 s)",
            ),
            (
                unfinished,
                "p99 < 1s",
                "assertion holds: {} (measured 9.9 ms)",
            ),
            (open, "p99 < 1s", NONE),
            (
                |run| *run = outcome(&[], 10),
                "rps = 0",
                "assertion holds: {} (measured 0)",
            ),
        ];
        for (change, text, expect) in cases {
            let mut run = run();
            change(&mut run);
            check(text, &run, &format!("{}\n", expect.replace("{}", text)));
        }
        let mut run = outcome(&[], 10);
        for failed in [1, 999, 50_000] {
            run.counts.failures.connect = failed;
            for text in ["p50 < 20ms", "p99 < 20ms", "max < 1s"] {
                check(text, &run, &format!("{}\n", NONE.replace("{}", text)));
            }
        }
    }

    #[test]
    fn refuses_what_is_no_condition() {
        for (text, expect) in [
            ("", "``: is no condition"),
            ("p99", "`p99`: is no condition"),
            ("p99 < 5ms and", "``: is no condition"),
            ("p99 < 5ms,,rps > 1", "``: is no condition"),
            ("rps >= 2,000", "`000`: is no condition"),
            ("1ms < p99 < 5ms", "`1ms < p99 < 5ms`: is no condition"),
            ("p99 != 5ms", "`p99 != 5ms`: is no condition"),
            ("< 5ms", "`< 5ms`: is no condition"),
            ("p98x < 5ms", "`p98x`: unknown figure"),
            ("p99 < 5", "`p99 < 5`: `5`: has no unit"),
            ("rps > 5ms", "`rps > 5ms`: `5ms`: `ms` is no unit of a rate"),
            ("p99 <", "`p99 <`: ``: is no number"),
        ] {
            let fault = Assertion::parse(text).expect_err(text);
            assert_eq!(fault.text, expect, "{text}");
            assert!(fault.hint.is_some(), "{text}");
        }
    }
}
