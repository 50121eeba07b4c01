//! The time of a line as text, made once a second.
//!
//! Takes nanoseconds since 1970 UTC, gives `[10/Oct/2000:13:55:36 +0000]` or the beginning of an
//! RFC 3339 time. The offset is an argument of the start: this file must not read time zone files.

use super::digits::{pair, push_micros};
use crate::calendar::{MONTHS, SECS_PER_DAY, civil_from_unix};

const NANOS_PER_SEC: u64 = 1_000_000_000;
/// The text of the second that was asked for last.
#[derive(Debug)]
pub(super) struct DateText {
    offset_secs: i64,
    /// Seconds since 1970 UTC that `text` shows; `None` before the first.
    second: Option<u64>,
    text: Vec<u8>,
    /// `+0000` or `+00:00`.
    zone: Vec<u8>,
}

impl DateText {
    /// Times in the common log format.
    pub(super) fn clf(offset_secs: i32) -> DateText {
        DateText::with_zone(offset_secs, b"")
    }

    /// Times in the form of RFC 3339 section 5.6.
    pub(super) fn rfc3339(offset_secs: i32) -> DateText {
        DateText::with_zone(offset_secs, b":")
    }

    fn with_zone(offset_secs: i32, separator: &[u8]) -> DateText {
        // Neither form has seconds in its offset, so the time must not have them either.
        let minutes = i64::from(offset_secs) / 60;
        let sign = if minutes < 0 { b'-' } else { b'+' };
        let (hour, minute) = (minutes.unsigned_abs() / 60, minutes.unsigned_abs() % 60);
        let zone = [&[sign], &pair(hour)[..], separator, &pair(minute)].concat();
        DateText {
            offset_secs: minutes * 60,
            second: None,
            text: Vec::new(),
            zone,
        }
    }

    /// `[10/Oct/2000:13:55:36 +0000]`, brackets included.
    pub(super) fn clf_at(&mut self, wall_ns: u64) -> &[u8] {
        let second = wall_ns / NANOS_PER_SEC;
        if self.second != Some(second) {
            let at = Moment::of(second, self.offset_secs);
            let [day, year, time] = [&pair(at.day)[..], &at.year_text(), &at.time_text()];
            let month = at.month_text();
            self.text = [
                b"[", day, b"/", month, b"/", year, b":", time, b" ", &self.zone, b"]",
            ]
            .concat();
            self.second = Some(second);
        }
        &self.text
    }

    /// Appends `2000-10-10T13:55:36.000123+00:00`.
    pub(super) fn push_rfc3339(&mut self, wall_ns: u64, out: &mut Vec<u8>) {
        let second = wall_ns / NANOS_PER_SEC;
        if self.second != Some(second) {
            let at = Moment::of(second, self.offset_secs);
            let [month, day] = [at.month, at.day].map(pair);
            self.text = [
                &at.year_text()[..],
                b"-",
                &month,
                b"-",
                &day,
                b"T",
                &at.time_text(),
            ]
            .concat();
            self.second = Some(second);
        }
        out.extend_from_slice(&self.text);
        push_micros(out, wall_ns % NANOS_PER_SEC / 1_000);
        out.extend_from_slice(&self.zone);
    }
}

/// A second of the Gregorian calendar.
struct Moment {
    year: u64,
    month: u64,
    day: u64,
    second_of_day: u64,
}

impl Moment {
    fn of(second: u64, offset_secs: i64) -> Moment {
        // A wall clock before 1970 with a negative offset is no time that a server sees.
        let local = second.saturating_add_signed(offset_secs);
        let [year, month, day, ..] = civil_from_unix(local);
        Moment {
            year,
            month,
            day,
            second_of_day: local % SECS_PER_DAY as u64,
        }
    }

    fn month_text(&self) -> &'static [u8; 3] {
        MONTHS[(self.month - 1) as usize]
    }

    fn year_text(&self) -> [u8; 4] {
        let ([a, b], [c, d]) = (pair(self.year / 100), pair(self.year));
        [a, b, c, d]
    }

    fn time_text(&self) -> [u8; 8] {
        let [hour, minute, second] = [
            self.second_of_day / 3_600,
            self.second_of_day / 60 % 60,
            self.second_of_day % 60,
        ]
        .map(pair);
        [
            hour[0], hour[1], b':', minute[0], minute[1], b':', second[0], second[1],
        ]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(unix_secs: u64, offset_secs: i32, clf: &str, rfc3339: &str) {
        let wall_ns = unix_secs * NANOS_PER_SEC + 123_999;
        assert_eq!(DateText::clf(offset_secs).clf_at(wall_ns), clf.as_bytes());
        let mut out = Vec::new();
        DateText::rfc3339(offset_secs).push_rfc3339(wall_ns, &mut out);
        assert_eq!(String::from_utf8(out).unwrap(), rfc3339);
    }

    #[test]
    fn shows_dates_that_calendars_trip_over() {
        check(
            0,
            0,
            "[01/Jan/1970:00:00:00 +0000]",
            "1970-01-01T00:00:00.000123+00:00",
        );
        check(
            951_782_400,
            0,
            "[29/Feb/2000:00:00:00 +0000]",
            "2000-02-29T00:00:00.000123+00:00",
        );
        check(
            951_868_800,
            0,
            "[01/Mar/2000:00:00:00 +0000]",
            "2000-03-01T00:00:00.000123+00:00",
        );
        check(
            1_735_689_599,
            0,
            "[31/Dec/2024:23:59:59 +0000]",
            "2024-12-31T23:59:59.000123+00:00",
        );
        check(
            4_107_542_400,
            0,
            "[01/Mar/2100:00:00:00 +0000]",
            "2100-03-01T00:00:00.000123+00:00",
        );
    }

    #[test]
    fn shows_the_offset_that_it_was_given() {
        check(
            971_186_136,
            -25_200,
            "[10/Oct/2000:06:55:36 -0700]",
            "2000-10-10T06:55:36.000123-07:00",
        );
        check(
            971_186_136,
            20_700,
            "[10/Oct/2000:19:40:36 +0545]",
            "2000-10-10T19:40:36.000123+05:45",
        );
        check(
            971_186_136,
            59,
            "[10/Oct/2000:13:55:36 +0000]",
            "2000-10-10T13:55:36.000123+00:00",
        );
        check(
            971_186_136,
            -1_800,
            "[10/Oct/2000:13:25:36 -0030]",
            "2000-10-10T13:25:36.000123-00:30",
        );
    }

    #[test]
    fn counts_days_without_a_gap_for_two_centuries() {
        let (mut year, mut month, mut day) = (1970, 1, 1);
        for days in 0..73_000 {
            let at = Moment::of(days * 86_400 + 1, 0);
            assert_eq!((at.year, at.month, at.day), (year, month, day));
            let leap = year % 4 == 0 && (year % 100 != 0 || year % 400 == 0);
            let last = match month {
                2 => 28 + u64::from(leap),
                4 | 6 | 9 | 11 => 30,
                _ => 31,
            };
            day += 1;
            if day > last {
                (day, month) = (1, month + 1);
            }
            if month > 12 {
                (month, year) = (1, year + 1);
            }
        }
    }
}
