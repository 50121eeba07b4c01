//! Sets of runs beside each other: which is better, and what is noise.
//!
//! Takes sets of outcomes, gives a [`Comparison`] to the first set. Intervals come from whole runs;
//! what they cannot carry is not said.
//!
//! ```text
//! sets ─► groups: runs that asked for the same ─► panels: groups of all sets beside each other
//!                                                   └─► estimate: each figure, each set against the first
//! ```

mod comparison;
mod estimate;
mod group;

use serde::Serialize;

use super::metric::Metric;
use crate::outcome::Outcome;

pub use comparison::{Comparison, Panel, Row, Side};
pub use estimate::{Against, Change, Estimate, EstimateForm, IntervalMethod, Why};

use estimate::against;
use group::RunGroup;

/// Runs that are compared with other ones.
#[derive(Clone, PartialEq, Debug)]
pub struct Set {
    /// For people: a file's name, or a label.
    pub name: String,
    /// In the order in which they were made: the n-th run of one set is paired with the n-th of another one.
    pub runs: Vec<Outcome>,
}

/// How many runs a set has at one point.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct Members {
    /// The set's name.
    pub name: String,
    /// Its runs.
    pub runs_len: usize,
}

/// Compares all sets with the first one: by these figures in this order, or by those of the usual ones that some
/// run has.
///
/// A single set whose runs have several labels is taken apart by them.
pub fn compare(sets: &[Set], metrics: Option<&[Metric]>) -> Comparison {
    let by_label;
    let sets = match sets {
        [one] => {
            by_label = group::by_label(one);
            &by_label
        }
        _ => sets,
    };
    let (points, warnings) = group::matched(sets);
    Comparison {
        schema: comparison::SCHEMA,
        sets: sets.iter().map(|set| set.name.clone()).collect(),
        panels: points.iter().map(|groups| panel(groups, metrics)).collect(),
        warnings,
    }
}

fn panel(groups: &[RunGroup<'_>], metrics: Option<&[Metric]>) -> Panel {
    let is_known = |row: &Row| row.sides.iter().any(|side| side.median.is_some());
    let usual = Metric::usual();
    let rows = metrics.unwrap_or(&usual).iter();
    let rows = rows.map(|metric| row(*metric, groups));
    let members = |group: &RunGroup<'_>| Members {
        name: group.set.to_owned(),
        runs_len: group.runs.len(),
    };
    Panel {
        point: groups.first().map(RunGroup::point).unwrap_or_default(),
        members: groups.iter().map(members).collect(),
        rows: rows
            .filter(|row| metrics.is_some() || is_known(row))
            .collect(),
        warnings: group::warnings(groups),
    }
}

/// A figure of all groups. One that asked for something else than the first takes nothing away from the others.
fn row(metric: Metric, groups: &[RunGroup<'_>]) -> Row {
    let side = |(index, group): (usize, &RunGroup<'_>)| Side {
        median: group.median(metric),
        against_first: match index {
            0 => None,
            _ if group.is_like(&groups[0]) => Some(against(metric, &groups[0].runs, &group.runs)),
            _ => Some(Against::unsaid(
                "not alike",
                "they asked for different things",
            )),
        },
    };
    Row {
        metric,
        unit: metric.unit().name(),
        better: metric.better(),
        sides: groups.iter().enumerate().map(side).collect(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::outcome::{Asked, AskedLeg, Remark, Weight};
    use crate::tests::outcome;

    fn compare(sets: &[Set]) -> Comparison {
        super::compare(sets, None)
    }

    fn runs(label: &str, rates: &[usize]) -> Vec<Outcome> {
        let run = |answered: &usize| {
            let mut run = outcome(&vec![1_000_000; *answered], 1);
            run.asked.label = label.into();
            run
        };
        rates.iter().map(run).collect()
    }

    /// Runs at one rate, of which each asked for something else.
    fn others(change: impl Fn(&mut Asked)) -> Vec<Outcome> {
        let mut runs = runs("", &[2_000; 5]);
        runs.iter_mut().for_each(|run| change(&mut run.asked));
        runs
    }

    fn set(name: &str, runs: Vec<Outcome>) -> Set {
        Set {
            name: name.into(),
            runs,
        }
    }

    fn change(comparison: &Comparison, panel: usize, metric: Metric) -> Change {
        let rows = &comparison.panels[panel].rows;
        let row = rows.iter().find(|row| row.metric == metric);
        let side = &row.expect("a row of this figure").sides[1];
        side.against_first.as_ref().expect("not the first").change
    }

    const RPS: Metric = Metric::Plain("rps");

    #[test]
    fn says_better_worse_and_noise() {
        let base = set("a", runs("", &[1_000, 1_010, 990, 1_005, 995]));
        for (rates, expect) in [
            ([1_100, 1_115, 1_090, 1_108, 1_093], Change::Better),
            ([900, 905, 890, 902, 897], Change::Worse),
            ([1_001, 1_005, 996, 1_000, 997], Change::Noise),
        ] {
            let found = compare(&[base.clone(), set("b", runs("", &rates))]);
            assert_eq!(change(&found, 0, RPS), expect, "{rates:?}");
            assert_eq!(change(&found, 0, Metric::P50), Change::Noise);
            assert!(found.is_worse() == (expect == Change::Worse));
        }
    }

    #[test]
    fn compares_each_point_with_its_own() {
        let sweep = |rates: [usize; 2]| {
            let mut all = Vec::new();
            for _ in 0..5 {
                for (connections, rate) in [10, 20].into_iter().zip(rates) {
                    let mut run = runs("", &[rate]).remove(0);
                    run.asked.connections = connections;
                    all.push(run);
                }
            }
            all
        };
        let found = compare(&[set("a", sweep([100, 200])), set("b", sweep([100, 300]))]);
        assert_eq!(found.panels.len(), 2);
        assert!(found.warnings.is_empty());
        assert_eq!(change(&found, 0, RPS), Change::Noise);
        assert_eq!(change(&found, 1, RPS), Change::Better);
        assert_eq!(found.panels[1].members[1].runs_len, 5);
    }

    #[test]
    fn takes_one_file_apart_by_its_labels() {
        let mut all = runs("epoll", &[1_000; 5]);
        all.extend(runs("kqueue", &[1_200; 5]));
        let found = compare(&[set("all.json", all)]);
        assert_eq!(found.sets, ["epoll", "kqueue"]);
        assert_eq!(change(&found, 0, RPS), Change::Better);
    }

    #[test]
    fn gives_no_ratio_of_different_things() {
        let more = others(|asked| asked.connections = 128);
        let constant = others(|asked| asked.rate = Some(64.0));
        let leg = AskedLeg {
            from: 2.0,
            to: 64.0,
            lasts_s: 3.0,
        };
        let ramp = others(|asked| {
            asked.rate = Some(64.0);
            asked.rate_legs = vec![leg];
        });
        for (first, other, parts) in [
            (runs("", &[1_000; 5]), more, "connections 64 and 128"),
            // With the same end.
            (constant, ramp, "rate 64/s and 2..64:3s/s"),
        ] {
            let first = set("a", first);
            assert!(compare(&[first.clone(), first.clone()]).is_judged());
            let found = compare(&[first, set("b", other)]);
            assert_eq!(change(&found, 0, RPS), Change::Unsaid);
            assert!(!found.is_judged() && !found.is_worse());
            let warning = format!(
                "`a` and `b` asked for different things: {parts}: ratios of different things are none"
            );
            assert_eq!(found.panels[0].warnings, [warning]);
        }
    }

    #[test]
    fn compares_what_is_alike_beside_what_is_not() {
        let found = compare(&[
            set("a", runs("", &[1_000; 5])),
            set("b", runs("", &[900; 5])),
            set("c", others(|asked| asked.connections = 128)),
        ]);
        assert_eq!(change(&found, 0, RPS), Change::Worse);
        assert!(found.is_worse());
        let rows = &found.panels[0].rows;
        let unlike = |row: &Row| row.sides[2].against_first.as_ref().map(|side| side.change);
        assert!(rows.iter().all(|row| unlike(row) == Some(Change::Unsaid)));
        assert_eq!(found.panels[0].warnings.len(), 1);
    }

    #[test]
    fn warns_of_what_is_invalid_or_alone() {
        let mut other = runs("", &[1_000; 5]);
        other[2].remarks.push(Remark {
            weight: Weight::Invalid,
            word: "late".into(),
            text: "requests left too late".into(),
        });
        let mut alone = runs("", &[50]).remove(0);
        alone.asked.connections = 7;
        other.push(alone);
        let found = compare(&[set("a", runs("", &[1_000; 5])), set("b", other)]);
        let invalid = "1 of 5 runs of `b` is invalid: requests left too late";
        assert_eq!(found.panels[0].warnings, [invalid]);
        let alone = "`b` alone has closed, 7 connections, GET /";
        assert_eq!(found.warnings, [alone]);
    }

    #[test]
    fn warns_of_runs_that_lasted_longer() {
        let lasting = |seconds: f64| {
            let mut all = runs("", &[1_000; 5]);
            all.iter_mut().for_each(|run| run.seconds = seconds);
            all
        };
        for (seconds, expect) in [(1.0, 0), (1.4, 0), (0.1, 1), (60.0, 1)] {
            let found = compare(&[set("a", runs("", &[1_000; 5])), set("b", lasting(seconds))]);
            assert_eq!(found.panels[0].warnings.len(), expect, "{seconds}");
        }
    }

    #[test]
    fn compares_nothing_with_nothing() {
        for sets in [
            vec![],
            vec![set("a", vec![])],
            vec![set("a", vec![]), set("b", vec![])],
        ] {
            assert!(compare(&sets).panels.is_empty());
        }
    }
}
