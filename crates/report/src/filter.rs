//! Which lines count.
//!
//! Takes the texts of filters and gives their meaning; then takes lines and answers yes or no. Reads no
//! clock: the caller passes `now` in.

use std::ops::RangeInclusive;

use jiff::fmt::temporal::Pieces;
use jiff::tz::Offset;
use telemetry::{Line, Nanos};

const NANOS_PER_SEC: u64 = 1_000_000_000;

/// Lines that fit all parts count; an empty part fits all.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Filter {
    /// From this time on.
    pub since: Option<When>,
    /// Before this time.
    pub until: Option<When>,
    /// Names of routes.
    pub routes: Vec<String>,
    /// Statuses; 0 is "no reply".
    pub statuses: Vec<RangeInclusive<u16>>,
    /// Only what took longer in all.
    pub slower_than: Option<Nanos>,
}

/// A point of time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum When {
    /// Nanoseconds since 1970 UTC.
    Utc(u64),
    /// The same on the log's own clock, whatever its offset.
    Local(u64),
}

impl When {
    /// `2026-11-21`, `2026-11-21T12:07`, `2026-11-21 12:07:39`, each also with `Z` or `+01:00`: without
    /// them the time is the log's. `2h` is two hours before `now_ns`.
    pub fn parse(text: &str, now_ns: u64) -> Option<When> {
        if let Some(span) = duration(text) {
            return Some(When::Utc(now_ns.saturating_sub(span.0)));
        }
        let pieces = Pieces::parse(text).ok()?;
        let at = pieces.date().to_datetime(pieces.time().unwrap_or_default());
        let offset = pieces.to_numeric_offset();
        let utc = offset.unwrap_or(Offset::UTC).to_timestamp(at).ok()?;
        let ns = u64::try_from(utc.as_second()).ok()? * NANOS_PER_SEC;
        // Without an offset the clock is the log's, which is known only line by line.
        Some(match offset {
            None => When::Local(ns),
            Some(_) => When::Utc(ns),
        })
    }

    #[inline]
    fn is_after(self, line: &Line<'_>) -> bool {
        let Some(wall_ns) = line.wall_ns else {
            // Without a time it cannot be said to be within.
            return true;
        };
        match self {
            When::Utc(at_ns) => wall_ns < at_ns,
            When::Local(at_ns) => local_ns(wall_ns, line.utc_offset_secs) < at_ns,
        }
    }
}

impl Filter {
    /// Whether the line counts.
    #[inline]
    pub(crate) fn passes(&self, line: &Line<'_>) -> bool {
        self.passes_time(line)
            && (self.statuses.is_empty() || self.passes_status(line))
            && (self.routes.is_empty() || self.passes_route(line))
            && self
                .slower_than
                .is_none_or(|least| line.spans.total.is_some_and(|total| total > least))
    }

    #[inline]
    fn passes_time(&self, line: &Line<'_>) -> bool {
        let is_late_enough = self.since.is_none_or(|since| !since.is_after(line));
        is_late_enough
            && self
                .until
                .is_none_or(|until| line.wall_ns.is_some() && until.is_after(line))
    }

    fn passes_status(&self, line: &Line<'_>) -> bool {
        let status = line.status.unwrap_or(0);
        self.statuses.iter().any(|range| range.contains(&status))
    }

    fn passes_route(&self, line: &Line<'_>) -> bool {
        let route = line.plain(line.route);
        self.routes
            .iter()
            .any(|wanted| wanted.as_bytes() == &*route)
    }
}

/// A time on the clock that shows `offset_secs` more than UTC.
pub(crate) fn local_ns(wall_ns: u64, offset_secs: i32) -> u64 {
    wall_ns.saturating_add_signed(i64::from(offset_secs) * NANOS_PER_SEC as i64)
}

/// A duration with its unit: `500ms`, `1.5s`, `2h`, `3d`, `250us`.
pub fn duration(text: &str) -> Option<Nanos> {
    let unit_at = text.find(|character: char| character.is_ascii_alphabetic())?;
    let (number, unit) = text.split_at(unit_at);
    let unit_ns: f64 = match unit {
        "us" => 1e3,
        "ms" => 1e6,
        "s" => 1e9,
        "m" => 60e9,
        "h" => 3_600e9,
        "d" => 86_400e9,
        _ => return None,
    };
    // `inf`, `1e9` and a sign would be numbers to Rust.
    if !number
        .bytes()
        .all(|byte| byte.is_ascii_digit() || byte == b'.')
    {
        return None;
    }
    let ns = number.parse::<f64>().ok()? * unit_ns;
    (ns < 9e18).then_some(Nanos(ns as u64))
}

/// Statuses as in `5xx,404,400-499,none`.
pub fn statuses(text: &str) -> Option<Vec<RangeInclusive<u16>>> {
    text.split(',')
        .map(|part| status_range(part.trim()))
        .collect()
}

fn status_range(text: &str) -> Option<RangeInclusive<u16>> {
    let code = |text: &str| text.parse().ok().filter(|code| (100..=999).contains(code));
    if text == "none" {
        return Some(0..=0);
    }
    if let Some(class) = text.strip_suffix("xx") {
        let class: u16 = class.parse().ok().filter(|class| (1..=9).contains(class))?;
        return Some(class * 100..=class * 100 + 99);
    }
    if let Some((first, last)) = text.split_once('-') {
        let (first, last) = (code(first)?, code(last)?);
        return (first <= last).then_some(first..=last);
    }
    code(text).map(|code| code..=code)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn understands_times() {
        let check = |text: &str, expect: Option<When>| {
            assert_eq!(When::parse(text, 10_000_000_000_000), expect, "{text}");
        };
        let (utc, local) = (
            |secs: u64| Some(When::Utc(secs * NANOS_PER_SEC)),
            |secs: u64| Some(When::Local(secs * NANOS_PER_SEC)),
        );
        check("2000-10-10", local(971_136_000));
        check("2000-10-10T13:55", local(971_186_100));
        check("2000-10-10 13:55:36", local(971_186_136));
        check("2000-10-10T13:55:36Z", utc(971_186_136));
        check("2000-10-10T06:55:36-07:00", utc(971_186_136));
        check("2000-10-10T19:40:36+0545", utc(971_186_136));
        check("1h", utc(6_400));
        for bad in [
            "",
            "yesterday",
            "2000-02-31",
            "2000-10-10T25:00",
            "2000-10",
            "2000-10-10T1",
            "-1h",
            "h",
        ] {
            check(bad, None);
        }
    }

    #[test]
    fn understands_durations_and_statuses() {
        assert_eq!(duration("500ms"), Some(Nanos(500_000_000)));
        assert_eq!(duration("1.5s"), Some(Nanos(1_500_000_000)));
        assert_eq!(duration("5"), None);
        assert_eq!(duration("5 s"), None);
        assert_eq!(
            statuses("5xx,404, 400-410"),
            Some(vec![500..=599, 404..=404, 400..=410])
        );
        assert_eq!(statuses("none"), Some(vec![0..=0]));
        for bad in ["", "xx", "5x", "99", "404-400", "404,"] {
            assert_eq!(statuses(bad), None, "{bad}");
        }
    }

    #[test]
    fn lines_must_fit_every_part() {
        let spans = telemetry::KnownSpans {
            total: Some(Nanos(500_000_000)),
            ..telemetry::KnownSpans::default()
        };
        let line = Line {
            spans,
            wall_ns: Some(971_186_136 * NANOS_PER_SEC),
            utc_offset_secs: 3_600,
            status: Some(404),
            route: b"/a\\x20b",
            ..Line::default()
        };
        let check = |change: &dyn Fn(&mut Filter), expect: bool| {
            let mut filter = Filter::default();
            change(&mut filter);
            assert_eq!(filter.passes(&line), expect, "{filter:?}");
        };
        let when = |text| When::parse(text, 0);
        check(&|_| {}, true);
        check(&|filter| filter.since = when("2000-10-10T14:55:36"), true);
        check(&|filter| filter.since = when("2000-10-10T14:55:37"), false);
        check(&|filter| filter.until = when("2000-10-10T13:55:36Z"), false);
        check(&|filter| filter.until = when("2000-10-10T13:55:37Z"), true);
        check(&|filter| filter.statuses = vec![500..=599], false);
        check(&|filter| filter.statuses = vec![500..=599, 404..=404], true);
        for (route, expect) in [("/a b", true), ("/a", false)] {
            check(&|filter| filter.routes = vec![route.to_owned()], expect);
        }
        for (ns, expect) in [(499_000_000, true), (500_000_000, false)] {
            check(&|filter| filter.slower_than = Some(Nanos(ns)), expect);
        }
    }
}
