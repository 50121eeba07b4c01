//! The time of a line as text, made once a second.
//!
//! Takes nanoseconds since 1970 UTC, gives `[10/Oct/2000:13:55:36 +0000]` or the beginning of an
//! RFC 3339 time. The offset is an argument of the start: this file must not read time zone files.

use std::io::Write;

use jiff::tz::Offset;

use super::digits::push_micros;
use crate::calendar::local;

const NANOS_PER_SEC: u64 = 1_000_000_000;

/// The text of the second that was asked for last.
#[derive(Debug)]
pub(super) struct DateText {
    offset: Offset,
    /// Seconds since 1970 UTC that `text` shows; `None` before the first.
    second: Option<u64>,
    text: Vec<u8>,
    /// `+0000` or `+00:00`.
    zone: String,
}

impl DateText {
    /// Times in the common log format.
    pub(super) fn clf(offset_secs: i32) -> DateText {
        DateText::with_zone(offset_secs, "")
    }

    /// Times in the form of RFC 3339 section 5.6.
    pub(super) fn rfc3339(offset_secs: i32) -> DateText {
        DateText::with_zone(offset_secs, ":")
    }

    fn with_zone(offset_secs: i32, separator: &str) -> DateText {
        // Neither form has seconds in its offset, so the time must not have them either. No zone is further from UTC
        // than an offset can say.
        let minutes = offset_secs / 60;
        let offset = Offset::from_seconds(minutes * 60).unwrap_or(Offset::UTC);
        let sign = if minutes < 0 { '-' } else { '+' };
        let (hour, minute) = (minutes.abs() / 60, minutes.abs() % 60);
        DateText {
            offset,
            second: None,
            text: Vec::new(),
            zone: format!("{sign}{hour:02}{separator}{minute:02}"),
        }
    }

    /// `[10/Oct/2000:13:55:36 +0000]`, brackets included.
    pub(super) fn clf_at(&mut self, wall_ns: u64) -> &[u8] {
        if self.is_new_second(wall_ns) {
            // Once a second: lines of one second have the same text.
            let at = local(wall_ns / NANOS_PER_SEC, self.offset);
            let date = at.strftime("%d/%b/%Y:%H:%M:%S");
            write!(self.text, "[{date} {}]", self.zone).expect("a vector takes all");
        }
        &self.text
    }

    /// Appends `2000-10-10T13:55:36.000123+00:00`.
    pub(super) fn push_rfc3339(&mut self, wall_ns: u64, out: &mut Vec<u8>) {
        if self.is_new_second(wall_ns) {
            let at = local(wall_ns / NANOS_PER_SEC, self.offset);
            write!(self.text, "{}", at.strftime("%Y-%m-%dT%H:%M:%S")).expect("a vector takes all");
        }
        out.extend_from_slice(&self.text);
        push_micros(out, wall_ns % NANOS_PER_SEC / 1_000);
        out.extend_from_slice(self.zone.as_bytes());
    }

    /// Whether the text is of another second; empties it then.
    fn is_new_second(&mut self, wall_ns: u64) -> bool {
        let second = Some(wall_ns / NANOS_PER_SEC);
        if self.second == second {
            return false;
        }
        self.second = second;
        self.text.clear();
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tests::check_cases;

    /// The time and the offset of a line such as `971186136 -25200`, in both forms.
    fn said(line: &str) -> String {
        let (unix_secs, offset_secs) = line.split_once(' ').expect("two numbers");
        let wall_ns = unix_secs.parse::<u64>().expect("seconds") * NANOS_PER_SEC + 123_999;
        let offset_secs = offset_secs.parse().expect("seconds");
        let mut out = DateText::clf(offset_secs).clf_at(wall_ns).to_vec();
        out.push(b' ');
        DateText::rfc3339(offset_secs).push_rfc3339(wall_ns, &mut out);
        String::from_utf8(out).expect("it is ASCII")
    }

    #[test]
    fn shows_dates_that_calendars_trip_over_and_the_offset_that_it_was_given() {
        let cases = "
0 0
    [01/Jan/1970:00:00:00 +0000] 1970-01-01T00:00:00.000123+00:00
951782400 0
    [29/Feb/2000:00:00:00 +0000] 2000-02-29T00:00:00.000123+00:00
951868800 0
    [01/Mar/2000:00:00:00 +0000] 2000-03-01T00:00:00.000123+00:00
1735689599 0
    [31/Dec/2024:23:59:59 +0000] 2024-12-31T23:59:59.000123+00:00
4107542400 0
    [01/Mar/2100:00:00:00 +0000] 2100-03-01T00:00:00.000123+00:00
971186136 -25200
    [10/Oct/2000:06:55:36 -0700] 2000-10-10T06:55:36.000123-07:00
971186136 20700
    [10/Oct/2000:19:40:36 +0545] 2000-10-10T19:40:36.000123+05:45
971186136 59
    [10/Oct/2000:13:55:36 +0000] 2000-10-10T13:55:36.000123+00:00
971186136 -1800
    [10/Oct/2000:13:25:36 -0030] 2000-10-10T13:25:36.000123-00:30
";
        check_cases(cases, said);
    }
}
