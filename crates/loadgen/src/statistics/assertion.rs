//! What a run is to hold: `p99 < 5ms and failures < 0.1%`.
//!
//! Takes a text, then outcomes; gives a verdict with the measured values. What cannot be said does not hold.

use super::metric::{Figure, Metric, Span, Unsaid, quantile};
use crate::engine::Fault;
use crate::outcome::{Outcome, Weight};

/// Conditions that all have to hold.
///
/// A request without the right reply is never a quick one: quantiles of the latency count it as slower than
/// all that were answered, and so one that was due and never sent.
#[derive(Clone, PartialEq, Debug)]
pub struct Assertion {
    conditions: Vec<Condition>,
}

#[derive(Clone, PartialEq, Debug)]
struct Condition {
    /// As it was written.
    text: String,
    metric: Metric,
    relation: Relation,
    bound: f64,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Relation {
    Less,
    AtMost,
    Equal,
    AtLeast,
    More,
}

/// Longer signs first: `<` begins `<=`.
const RELATIONS: [(&str, Relation); 8] = [
    ("<=", Relation::AtMost),
    (">=", Relation::AtLeast),
    ("==", Relation::Equal),
    ("≤", Relation::AtMost),
    ("≥", Relation::AtLeast),
    ("<", Relation::Less),
    (">", Relation::More),
    ("=", Relation::Equal),
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
    /// In the metric's unit; `None`: it cannot be said.
    pub measured: Option<f64>,
    /// Whether it holds.
    pub answer: Answer,
}

/// Whether a condition holds.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Answer {
    /// It does.
    Holds,
    /// It does not.
    Fails,
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
        let (relation, bound) = found.ok_or_else(no_form)?;
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
            relation,
            bound,
        })
    }

    fn judged(&self, outcome: &Outcome) -> Judged {
        let measured = self.measured(outcome);
        let answer = match &measured {
            Err(Unsaid(why)) => Answer::Unsaid(why.clone()),
            Ok(value) if self.relation.holds(*value, self.bound) => Answer::Holds,
            Ok(_) => Answer::Fails,
        };
        Judged {
            condition: self.text.clone(),
            metric: self.metric,
            // The slowest of all are not known, only that they are too slow.
            measured: measured.ok().filter(|value| value.is_finite()),
            answer,
        }
    }

    fn measured(&self, outcome: &Outcome) -> Result<f64, Unsaid> {
        let invalid = |remark: &&crate::outcome::Remark| remark.weight == Weight::Invalid;
        if let Some(remark) = outcome.remarks.iter().find(invalid) {
            return Err(Unsaid(format!("the run is invalid: {}", remark.text)));
        }
        let Metric::Time(Span::Latency, figure) = self.metric else {
            return self.metric.said(outcome);
        };
        match figure {
            Figure::Quantile(percent) => missing_aware(outcome, percent),
            Figure::Min => self.metric.said(outcome),
            // The longest of all is one of those: a time-out of 30 s is no maximum of 5 ms.
            Figure::Max if missing(outcome) > 0 => Ok(f64::INFINITY),
            Figure::Mean | Figure::Stdev if outcome.counts.unsent > 0 => Err(Unsaid(format!(
                "{} requests that were due were never sent, and would have been the slowest",
                outcome.counts.unsent
            ))),
            // Closed loads end with requests under way: the oldest one takes that long at least.
            Figure::Max => {
                let longest_us = outcome.counts.unfinished_longest_us;
                Ok(self.metric.said(outcome)?.max(longest_us))
            }
            Figure::Mean | Figure::Stdev => self.metric.said(outcome),
        }
    }
}

/// The quantile of all requests, with those that have no right reply at its far end; infinite among them.
fn missing_aware(outcome: &Outcome, percent: f64) -> Result<f64, Unsaid> {
    let missing = missing(outcome);
    let answered = outcome.times.latency.count;
    // Those without a reply are the slowest: where they reach over the quantile, it is one of theirs.
    let beyond = (1.0 - percent / 100.0) * (answered + missing) as f64;
    if missing as f64 > beyond + 1e-6 {
        return Ok(f64::INFINITY);
    }
    quantile(&outcome.times.latency, percent, missing)
}

/// Requests without a right reply. In an open load one that is under way at the end was due like the others; a
/// closed load always ends with some, and how long they would have taken nobody knows.
fn missing(outcome: &Outcome) -> u64 {
    let counts = &outcome.counts;
    let is_by_due = outcome.times.late.is_some();
    let unfinished = if is_by_due { counts.unfinished } else { 0 };
    counts.failures.sum() + counts.unsent + unfinished
}

impl Relation {
    fn holds(self, value: f64, bound: f64) -> bool {
        match self {
            Relation::Less => value < bound,
            Relation::AtMost => value <= bound,
            Relation::Equal => value == bound,
            Relation::AtLeast => value >= bound,
            Relation::More => value > bound,
        }
    }
}

impl Verdict {
    /// Whether all of it holds.
    pub fn is_held(&self) -> bool {
        let mut answers = self.conditions.iter().map(|judged| &judged.answer);
        answers.all(|answer| *answer == Answer::Holds)
    }

    /// Why it cannot be said whether all of it holds; `None`: it can.
    pub fn why_unsaid(&self) -> Option<&str> {
        let mut answers = self.conditions.iter().map(|judged| &judged.answer);
        if answers.clone().any(|answer| *answer == Answer::Fails) {
            return None;
        }
        answers.find_map(|answer| match answer {
            Answer::Unsaid(why) => Some(why.as_str()),
            Answer::Holds | Answer::Fails => None,
        })
    }

    /// A line for each condition: `p99 < 5ms: holds, 3.2 ms`.
    pub fn text(&self) -> String {
        self.conditions.iter().map(Judged::line).collect()
    }
}

impl Judged {
    fn line(&self) -> String {
        let measured = match self.measured {
            Some(value) => self.metric.unit().text(value),
            None => "the requests in question have no right reply".to_owned(),
        };
        match &self.answer {
            Answer::Holds => format!("{}: holds, {measured}\n", self.condition),
            Answer::Fails => format!("{}: does not hold, {measured}\n", self.condition),
            Answer::Unsaid(why) => format!("{}: cannot be said: {why}\n", self.condition),
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
        assert_eq!(verdict.is_held(), !expect.contains("not"), "{text}");
    }

    #[test]
    fn holds_or_does_not_with_the_measured_value() {
        for (text, expect) in [
            ("p50 < 5.1ms", "p50 < 5.1ms: holds, 5.00 ms\n"),
            ("p99<=9ms", "p99<=9ms: does not hold, 9.90 ms\n"),
            ("rps ≥ 1K", "rps ≥ 1K: holds, 1,000\n"),
            ("rps > 1000", "rps > 1000: does not hold, 1,000\n"),
            (
                "p99 < 1s and failures = 0, cpu ≤ 20us",
                "p99 < 1s: holds, 9.90 ms\nfailures = 0: holds, 0 %\ncpu ≤ 20us: holds, 10.0 µs\n",
            ),
        ] {
            check(text, &run(), expect);
        }
    }

    #[test]
    fn does_not_hold_what_cannot_be_said() {
        check(
            "p99.99 < 1s",
            &run(),
            "p99.99 < 1s: cannot be said: too few values: fewer than ten of 10000 lie beyond p99.99, \
             it takes 100000\n",
        );
        let mut invalid = run();
        invalid.remarks.push(Remark {
            weight: Weight::Invalid,
            word: "late".into(),
            text: "requests left too late".into(),
        });
        check(
            "rps > 1",
            &invalid,
            "rps > 1: cannot be said: the run is invalid: requests left too late\n",
        );
    }

    #[test]
    fn takes_no_failure_for_a_quick_reply() {
        let mut run = run();
        run.counts.failures.reset = 90;
        check("p99 < 10ms", &run, "p99 < 10ms: holds, 9.99 ms\n");
        run.counts.failures.reset = 200;
        let none = "the requests in question have no right reply";
        check(
            "p99 < 1s",
            &run,
            &format!("p99 < 1s: does not hold, {none}\n"),
        );
        check("p50 < 6ms", &run, "p50 < 6ms: holds, 5.10 ms\n");
    }

    #[test]
    fn takes_no_request_that_never_left_for_a_quick_one() {
        let mut run = run();
        run.counts.unsent = 5_000;
        let verdict = Assertion::parse("p90 < 1s, max < 1s, mean < 1s").expect("three conditions");
        let verdict = verdict.holds(&run);
        assert!(!verdict.is_held());
        assert_eq!(verdict.conditions[0].answer, Answer::Fails);
        assert_eq!(verdict.conditions[1].answer, Answer::Fails);
        assert!(matches!(verdict.conditions[2].answer, Answer::Unsaid(_)));
    }

    #[test]
    fn takes_a_server_that_answers_nobody_for_no_quick_one() {
        let mut run = outcome(&[], 10);
        for failed in [1, 999, 50_000] {
            run.counts.failures.connect = failed;
            for text in ["p50 < 20ms", "p99 < 20ms", "max < 1s"] {
                let verdict = Assertion::parse(text).expect(text).holds(&run);
                assert_eq!(
                    verdict.conditions[0].answer,
                    Answer::Fails,
                    "{text}, {failed}"
                );
            }
        }
    }

    #[test]
    fn takes_no_time_out_for_less_than_the_longest_reply() {
        let mut run = run();
        check("max < 1s", &run, "max < 1s: holds, 10.0 ms\n");
        run.counts.failures.timeout = 1;
        let none = "the requests in question have no right reply";
        let expect = format!("max < 1s: does not hold, {none}\n");
        check("max < 1s", &run, &expect);
    }

    #[test]
    fn knows_that_the_longest_is_as_long_as_what_is_still_under_way() {
        let mut run = run();
        run.counts.unfinished = 64;
        run.counts.unfinished_longest_us = 7e6;
        check("max < 1s", &run, "max < 1s: does not hold, 7.00 s\n");
    }

    #[test]
    fn counts_what_an_open_load_has_left_under_way() {
        let mut run = run();
        run.counts.unfinished = 200;
        check("p99 < 1s", &run, "p99 < 1s: holds, 9.90 ms\n");
        run.times.late = Some(run.times.latency.clone());
        let none = "the requests in question have no right reply";
        let expect = format!("p99 < 1s: does not hold, {none}\n");
        check("p99 < 1s", &run, &expect);
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
