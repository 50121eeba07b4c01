//! Which runs belong together: those that asked for the same, under the same label.
//!
//! Takes sets, gives groups of runs beside each other, and what stands alone.

use super::super::interval::median;
use super::super::metric::Metric;
use super::Set;
use crate::outcome::{Asked, AskedLeg, Outcome, Weight};
use crate::plan::Protocol;

/// Runs of one set at one point, in their order.
#[derive(Clone, Debug)]
pub(super) struct RunGroup<'a> {
    pub(super) set: &'a str,
    pub(super) runs: Vec<&'a Outcome>,
}

impl<'a> RunGroup<'a> {
    fn asked(&self) -> &'a Asked {
        assert!(!self.runs.is_empty(), "a group is made for a run");
        &self.runs[0].asked
    }

    /// What was asked for, in words.
    pub(super) fn point(&self) -> String {
        let asked = self.asked();
        let mut parts = vec![asked.load.clone()];
        if asked.rate.is_some() {
            parts.push(rate(asked));
        }
        parts.push(format!("{} connections", asked.connections));
        match asked.protocol {
            Protocol::Http1 | Protocol::WebSocket if asked.in_flight > 1 => {
                parts.push(format!("{} in flight on each", asked.in_flight));
            }
            Protocol::Http1 | Protocol::WebSocket => {}
            Protocol::Http2 => parts.push(format!("HTTP/2 streams on each: {}", asked.in_flight)),
        }
        if let Some(each) = asked.requests_each {
            parts.push(format!("requests on each: {each}"));
        }
        match asked.requests.as_slice() {
            [] => {}
            [one] => parts.push(one.clone()),
            [first, rest @ ..] => parts.push(format!("{first} and {} more", rest.len())),
        }
        parts.join(", ")
    }

    /// Whether it asked for the same as `other`.
    pub(super) fn is_like(&self, other: &RunGroup<'_>) -> bool {
        is_same(self.asked(), other.asked())
    }

    /// The median of a figure over the runs that have it.
    pub(super) fn median(&self, metric: Metric) -> Option<f64> {
        let mut values: Vec<f64> = self.runs.iter().filter_map(|run| metric.of(run)).collect();
        (!values.is_empty()).then(|| median(&mut values))
    }

    /// How long its runs lasted, seconds.
    fn length(&self) -> f64 {
        median(&mut self.runs.iter().map(|run| run.seconds).collect::<Vec<_>>())
    }

    /// What has to be said of runs that are not valid.
    fn invalid(&self) -> Option<String> {
        let mut remarks = self.runs.iter().filter_map(|run| {
            let mut remarks = run.remarks.iter();
            remarks.find(|remark| remark.weight == Weight::Invalid)
        });
        let first = remarks.next()?;
        let len = 1 + remarks.count();
        let verb = if len == 1 { "is" } else { "are" };
        Some(format!(
            "{len} of {} runs of `{}` {verb} invalid: {}",
            self.runs.len(),
            self.set,
            first.text
        ))
    }
}

/// Runs of different lengths: what is rare happens in the longer ones.
const LONGER: f64 = 1.5;

/// Why the groups of a point cannot be compared with the first one, or not in all figures: the loads differ, a run is
/// invalid, the runs of one lasted longer.
pub(super) fn warnings(groups: &[RunGroup<'_>]) -> Vec<String> {
    let Some((first, others)) = groups.split_first() else {
        return Vec::new();
    };
    let different = others.iter().filter_map(|other| {
        let parts = between(first.asked(), other.asked()).join(", ");
        let (one, two) = (first.set, other.set);
        (!parts.is_empty()).then(|| {
            format!("`{one}` and `{two}` asked for different things: {parts}: ratios of different things are none")
        })
    });
    let longer = others.iter().filter_map(|other| {
        let (one, two) = (first.length(), other.length());
        (one.max(two) > LONGER * one.min(two)).then(|| {
            format!(
                "runs of `{}` lasted {one:.1} s and those of `{}` {two:.1} s: what is rare happens in the longer \
                 ones, so that `max` and far percentiles are not alike",
                first.set, other.set
            )
        })
    });
    let invalid = groups.iter().filter_map(RunGroup::invalid);
    different.chain(longer).chain(invalid).collect()
}

/// In what two loads differ, as far as their results cannot be compared then.
fn between(one: &Asked, other: &Asked) -> Vec<String> {
    let each = |asked: &Asked| {
        let each = asked.requests_each.map(|each| each.to_string());
        each.unwrap_or_else(|| "none".to_owned())
    };
    // Where the load goes to, and with what it is made, is not among these: that is what people compare.
    let facts = |asked: &Asked| {
        [
            ("load", format!("`{}`", asked.load)),
            ("rate", rate(asked)),
            ("protocol", asked.protocol.name().to_owned()),
            ("connections", asked.connections.to_string()),
            ("in flight", asked.in_flight.to_string()),
            ("requests on each connection", each(asked)),
            ("closing", format!("{:?}", asked.closing).to_lowercase()),
            ("requests", format!("`{}`", asked.requests.join(", "))),
            ("timeout", format!("{} s", asked.timeout_s)),
        ]
    };
    let pairs = facts(one).into_iter().zip(facts(other));
    pairs
        .filter(|((_, one), (_, other))| one != other)
        .map(|((name, one), (_, other))| format!("{name} {one} and {other}"))
        .collect()
}

/// Requests a second in words, of steps and ramps as flags say them.
fn rate(asked: &Asked) -> String {
    match (asked.rate, &asked.rate_legs[..]) {
        (None, _) => "none".to_owned(),
        (Some(rate), []) => format!("{rate}/s"),
        (Some(_), legs) => format!("{}/s", AskedLeg::written(legs)),
    }
}

fn is_same(one: &Asked, other: &Asked) -> bool {
    between(one, other).is_empty()
}

/// The runs of a set by their labels; the set itself if there is only one.
pub(super) fn by_label(set: &Set) -> Vec<Set> {
    let groups = groups(set, |one, other| one.label == other.label);
    let named = groups.iter().map(|group| Set {
        name: group.asked().label.clone(),
        runs: group.runs.iter().copied().cloned().collect(),
    });
    let mut sets: Vec<Set> = named.collect();
    if let [one] = sets.as_mut_slice() {
        one.name.clone_from(&set.name);
    }
    sets
}

/// The runs of a set that belong together, in the order of the first run of each group.
fn groups(set: &Set, belong: fn(&Asked, &Asked) -> bool) -> Vec<RunGroup<'_>> {
    let mut groups: Vec<RunGroup<'_>> = Vec::new();
    for run in &set.runs {
        match groups
            .iter_mut()
            .find(|group| belong(group.asked(), &run.asked))
        {
            Some(group) => group.runs.push(run),
            None => groups.push(RunGroup {
                set: &set.name,
                runs: vec![run],
            }),
        }
    }
    groups
}

/// Puts the groups of all sets beside each other, the first set's first; and says which stand alone.
pub(super) fn matched(sets: &[Set]) -> (Vec<Vec<RunGroup<'_>>>, Vec<String>) {
    let same: fn(&Asked, &Asked) -> bool =
        |one, other| one.label == other.label && is_same(one, other);
    let mut all = sets.iter().map(|set| groups(set, same));
    let firsts = all.next().unwrap_or_default();
    let mut others: Vec<Vec<RunGroup<'_>>> = all.collect();
    let (mut points, mut warnings) = (Vec::new(), Vec::new());
    for first in &firsts {
        let mut beside = vec![first.clone()];
        for other in &mut others {
            if let Some(index) = partner(first, &firsts, other) {
                beside.push(other.remove(index));
            }
        }
        match beside.len() {
            1 => warnings.push(alone(first)),
            _ => points.push(beside),
        }
    }
    warnings.extend(others.iter().flatten().map(alone));
    (points, warnings)
}

fn alone(group: &RunGroup<'_>) -> String {
    let label = match group.asked().label.as_str() {
        "" => String::new(),
        label => format!(", `{label}`"),
    };
    format!("`{}` alone has {}{label}", group.set, group.point())
}

/// Which of `others` belongs beside `first`.
fn partner(
    first: &RunGroup<'_>,
    firsts: &[RunGroup<'_>],
    others: &[RunGroup<'_>],
) -> Option<usize> {
    let asked = first.asked();
    let fits = |group: &&RunGroup<'_>| is_same(group.asked(), asked);
    let same_label = |group: &RunGroup<'_>| group.asked().label == asked.label;
    // By label and question before by question alone: a file of several servers has each question several times.
    // Then the only one with its question, because people call the sides by different labels; then the only one of all.
    let exact = others
        .iter()
        .position(|group| fits(&group) && same_label(group));
    if exact.is_some() {
        return exact;
    }
    if firsts.iter().filter(fits).count() == 1 && others.iter().filter(fits).count() == 1 {
        return others.iter().position(|group| fits(&group));
    }
    (firsts.len() == 1 && others.len() == 1).then_some(0)
}
