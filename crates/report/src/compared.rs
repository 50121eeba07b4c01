//! Two logs side by side: what changed, as far as it is more than chance.
//!
//! Takes two tallies, gives sentences; each may be absent. Two percentiles differ where the intervals of their ranks do
//! not touch: those follow from the number of requests alone, whatever the shape of the distribution. Pure.

use present::{duration, number, share};

use crate::spread::Spread;
use crate::tally::{Group, Tally};

/// Deviations of a rank: requests of one log are not independent of each other, so two would be too few.
const DEVIATIONS: f64 = 4.0;
/// A smaller change says nothing about the cure, however certain it is.
const CHANGE_MIN: f64 = 1.15;
/// The same in seconds.
const CHANGE_MIN_SECS: f64 = 0.001;
/// Requests that must lie beyond a percentile.
const BEYOND_MIN: f64 = 10.0;
/// Pages whose share of the requests changed by more make the whole of two logs incomparable.
const MIX_MAX: f64 = 0.1;
/// Two rates of requests that differ by more.
const RATE_MAX: f64 = 1.25;
const SENTENCES_LEN_MAX: usize = 4;

/// The sentences, the most important first; at least one.
pub(crate) fn verdict(before: &Tally, after: &Tally) -> Vec<String> {
    let pages = pairs(before, after);
    let (all_before, all_after) = (before.all(), after.all());
    let mut sentences = Vec::new();
    let is_same_mix = mix(all_before.len, all_after.len, &pages);
    if is_same_mix {
        sentences.extend(changed("all requests", all_before, all_after));
    }
    let of_pages = pages
        .iter()
        .filter_map(|page| changed(&page.name, page.before?, page.after?));
    // A page alone is the whole.
    sentences.extend(of_pages.filter(|_| pages.len() > 1));
    sentences.truncate(SENTENCES_LEN_MAX);
    sentences.extend(failed(all_before, all_after));
    if sentences.is_empty() {
        sentences.push("no difference that is more than chance".to_owned());
    }
    if !is_same_mix {
        sentences.push(
            "the logs have other shares of pages: compare the pages, not the whole".to_owned(),
        );
    }
    sentences.extend(rates(before.per_second(), after.per_second()));
    sentences
}

/// A page in both logs, or in one of them.
#[derive(Clone, Debug)]
pub(crate) struct PagePair<'t> {
    pub(crate) name: String,
    pub(crate) before: Option<&'t Group>,
    pub(crate) after: Option<&'t Group>,
}

/// The pages of both, those that took the most time before first; new ones last.
pub(crate) fn pairs<'t>(before: &'t Tally, after: &'t Tally) -> Vec<PagePair<'t>> {
    let mut news = after.pages().named;
    let mut pairs: Vec<PagePair<'t>> = Vec::new();
    for (name, group) in before.pages().named {
        // What is found is taken out, so that the rest are the pages that are new.
        let found = news.iter().position(|(new, _)| *new == name);
        let after = found.map(|at| news.remove(at).1);
        let before = Some(group);
        pairs.push(PagePair {
            name,
            before,
            after,
        });
    }
    pairs.extend(news.into_iter().map(|(name, group)| PagePair {
        name,
        before: None,
        after: Some(group),
    }));
    pairs
}

/// What changed most of some requests: their wait for a thread, or how long they took.
fn changed(name: &str, before: &Group, after: &Group) -> Option<String> {
    // The wait first: it is what threads and pools change.
    let wait = format!("p99 of the wait for {}", before.runner());
    let measures = [
        (1, 0.99, wait.as_str()),
        (4, 0.99, "p99"),
        (4, 0.5, "median"),
    ];
    measures.into_iter().find_map(|(phase, q, what)| {
        let (old, new) = (&before.phases[phase], &after.phases[phase]);
        is_other(interval(old, q)?, interval(new, q)?).then(|| {
            let [old, new] = [old, new].map(|spread| duration(spread.quantile_secs(q)));
            format!("{name}: {what} {old} before, {new} after")
        })
    })
}

/// Between which values a percentile lies, in seconds; `None` where too few requests are beyond it.
fn interval(spread: &Spread, q: f64) -> Option<(f64, f64)> {
    let len = spread.len() as f64;
    if len * (1.0 - q) < BEYOND_MIN {
        return None;
    }
    let deviation = DEVIATIONS * (q * (1.0 - q) / len).sqrt();
    let at = |q: f64| spread.quantile_secs(q.clamp(0.0, 1.0));
    Some((at(q - deviation), at(q + deviation)))
}

/// Whether two intervals are apart by more than chance and the histogram's width.
fn is_other(one: (f64, f64), other: (f64, f64)) -> bool {
    let (low, high) = match one.1 < other.0 {
        true => (one.1, other.0),
        false => (other.1, one.0),
    };
    high >= CHANGE_MIN * low && high - low >= CHANGE_MIN_SECS
}

/// Whether the share of 5xx changed.
fn failed(before: &Group, after: &Group) -> Option<String> {
    let part = |group: &Group| group.classes[5] as f64 / group.len.max(1) as f64;
    // Two shares of a sample differ by chance as well: by how much follows from what both sides have together.
    let all =
        (before.classes[5] + after.classes[5]) as f64 / (before.len + after.len).max(1) as f64;
    let lens = 1.0 / before.len.max(1) as f64 + 1.0 / after.len.max(1) as f64;
    let deviation = (all * (1.0 - all) * lens).sqrt();
    let is_other = (part(before) - part(after)).abs() > DEVIATIONS * deviation;
    (is_other && before.len > 0 && after.len > 0).then(|| {
        let [before, after] = [before, after].map(|group| share(part(group)));
        format!("5xx: {before} before, {after} after")
    })
}

/// Whether both logs are of about the same pages.
fn mix(before_len: u64, after_len: u64, pages: &[PagePair<'_>]) -> bool {
    let part = |group: Option<&Group>, all: u64| {
        group.map_or(0.0, |group| group.len as f64 / all.max(1) as f64)
    };
    pages.iter().all(|page| {
        let (old, new) = (part(page.before, before_len), part(page.after, after_len));
        (old - new).abs() <= MIX_MAX
    })
}

/// That one log has more requests a second, to which waits are due as well.
fn rates(before: Option<f64>, after: Option<f64>) -> Option<String> {
    let (before, after) = (before?, after?);
    let ratio = after / before;
    let is_other = !(1.0 / RATE_MAX..=RATE_MAX).contains(&ratio);
    is_other.then(|| {
        let (before, after) = (number(before), number(after));
        format!("the load differs: {before} requests a second before, {after} after")
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use telemetry::{KnownSpans, Line, Nanos};

    /// So many requests, of them with 5xx, from one to another duration in microseconds.
    fn group(len: u64, failed_len: u64, from_us: u64, until_us: u64) -> Group {
        let mut group = Group::default();
        for number in 0..len {
            let us = from_us + (until_us - from_us) * number / len;
            group.add(&Line {
                status: Some(if number < failed_len { 503 } else { 200 }),
                spans: KnownSpans {
                    queue: Some(Nanos::ZERO),
                    total: Some(Nanos::from_us(us)),
                    ..KnownSpans::default()
                },
                ..Line::default()
            });
        }
        group
    }

    #[test]
    fn says_what_changed_by_more_than_chance() {
        let check = |before: (u64, u64), after: (u64, u64), len: u64, expect: Option<&str>| {
            let before = group(len, 0, before.0, before.1);
            let after = group(len, 0, after.0, after.1);
            assert_eq!(changed("GET /a", &before, &after).as_deref(), expect);
        };
        let fast = (1_000, 50_000);
        check(
            (1_000, 400_000),
            fast,
            2_000,
            Some("GET /a: p99 398 ms before, 49.8 ms after"),
        );
        check(
            fast,
            (1_000, 400_000),
            2_000,
            Some("GET /a: p99 49.8 ms before, 398 ms after"),
        );
        // Too few for a p99, enough for a median.
        check(
            (1_000, 400_000),
            fast,
            200,
            Some("GET /a: median 199 ms before, 25.4 ms after"),
        );
        check((1_000, 400_000), fast, 15, None);
        check(fast, fast, 2_000, None);
        check((1_000, 52_000), fast, 2_000, None);
        // Four times as long, and nobody would notice.
        check((100, 1_000), (100, 250), 2_000, None);
    }

    #[test]
    fn says_how_many_more_failed() {
        let check = |before: (u64, u64), after: (u64, u64), expect: Option<&str>| {
            let before = group(before.0, before.1, 1, 2);
            let after = group(after.0, after.1, 1, 2);
            assert_eq!(failed(&before, &after).as_deref(), expect);
        };
        check(
            (1_000, 100),
            (1_000, 10),
            Some("5xx: 10.0 % before, 1.0 % after"),
        );
        check((1_000, 12), (1_000, 10), None);
        check((10, 1), (10, 0), None);
        check((0, 0), (1_000, 500), None);
        check((1_000, 0), (1_000, 0), None);
    }

    #[test]
    fn warns_of_logs_that_are_of_something_else() {
        let groups = [group(900, 0, 1, 2), group(100, 0, 1, 2)];
        let pages = |before: [usize; 2], after: [usize; 2]| {
            [0, 1].map(|at| PagePair {
                name: at.to_string(),
                before: Some(&groups[before[at]]),
                after: Some(&groups[after[at]]),
            })
        };
        assert!(mix(1_000, 1_000, &pages([0, 1], [0, 1])));
        assert!(!mix(1_000, 1_000, &pages([0, 1], [1, 0])));
        assert_eq!(rates(Some(40.0), Some(44.0)), None);
        assert_eq!(rates(None, Some(44.0)), None);
        assert_eq!(
            rates(Some(40.0), Some(61.0)).as_deref(),
            Some("the load differs: 40 requests a second before, 61 after")
        );
    }
}
