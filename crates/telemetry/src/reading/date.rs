//! Times as logs have them, read back into nanoseconds since 1970 UTC.
//!
//! Takes the text of a time. Lines of one second follow each other, so the last text and what it meant
//! are kept, and lines of one day are the next best. Must not read a clock or time zone files.

use jiff::fmt::strtime;
use jiff::fmt::temporal::Pieces;
use jiff::tz::Offset;

const NANOS_PER_SEC: u64 = 1_000_000_000;
/// `10/Oct/2000:13:55:36 +0000`
const CLF_BYTES: usize = 26;
/// `2000-10-10T13:55:36`
const ISO_BYTES: usize = 19;

/// A point of time, and the offset at which it was written.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(super) struct Moment {
    pub(super) wall_ns: u64,
    pub(super) utc_offset_secs: i32,
}

/// Reads times, and remembers the last.
#[derive(Clone, Debug, Default)]
pub(super) struct DateReader {
    clf: [u8; CLF_BYTES],
    clf_moment: Moment,
    iso: [u8; ISO_BYTES],
    iso_zone: Vec<u8>,
    iso_moment: Moment,
    ctime: Vec<u8>,
    ctime_moment: Moment,
}

impl DateReader {
    /// A time of the common log format at the start of `text`, the opening bracket taken; the rest begins after the
    /// closing one.
    #[inline]
    pub(super) fn bracketed<'a>(&mut self, text: &'a [u8]) -> Option<(Moment, &'a [u8])> {
        if let Some((head, [b']', rest @ ..])) = text.split_first_chunk::<CLF_BYTES>() {
            return Some((self.unbracketed(head)?, rest));
        }
        // NaviServer can write bare seconds.
        let (secs, rest) = super::cursor::until(b']', text)?;
        let wall_ns = super::cursor::number(secs)?.checked_mul(NANOS_PER_SEC)?;
        let moment = Moment {
            wall_ns,
            utc_offset_secs: 0,
        };
        Some((moment, rest))
    }

    /// A time of the common log format without its brackets.
    pub(super) fn unbracketed(&mut self, text: &[u8]) -> Option<Moment> {
        let text: [u8; CLF_BYTES] = text.try_into().ok()?;
        // Most lines are of the same second as the line before.
        if text != self.clf {
            self.clf_moment = clf(&text)?;
            self.clf = text;
        }
        Some(self.clf_moment)
    }

    /// `Mon Nov 23 12:00:01 2026`, as C's `ctime` writes it. It has no offset, so the time counts as UTC.
    pub(super) fn ctime(&mut self, text: &[u8]) -> Option<Moment> {
        // Lines of the same second follow one another: most times are read once.
        if text != self.ctime {
            let parsed = strtime::parse("%a %b %e %H:%M:%S %Y", text).ok()?;
            let at = Offset::UTC.to_timestamp(parsed.to_datetime().ok()?).ok()?;
            let secs = u64::try_from(at.as_second()).ok()?;
            self.ctime_moment.wall_ns = secs.checked_mul(NANOS_PER_SEC)?;
            self.ctime = text.to_vec();
        }
        Some(self.ctime_moment)
    }

    /// A time of RFC 3339 section 5.6; the seconds may have up to nine places.
    #[inline]
    pub(super) fn rfc3339(&mut self, text: &[u8]) -> Option<Moment> {
        let (head, rest) = text.split_first_chunk::<ISO_BYTES>()?;
        let is_place = |byte: &u8| byte.is_ascii_digit() || *byte == b'.';
        let (places, zone) = rest.split_at(rest.iter().position(|byte| !is_place(byte))?);
        let ns = match places {
            [] => 0,
            [b'.', digits @ ..] => fraction(digits)?,
            _ => return None,
        };
        // Lines of one second follow each other, and a log has one zone or two: the calendar is asked once a second.
        if *head != self.iso || *zone != *self.iso_zone {
            self.iso_moment = iso(head, zone)?;
            self.iso = *head;
            self.iso_zone = zone.to_vec();
        }
        Some(Moment {
            wall_ns: self.iso_moment.wall_ns.checked_add(ns)?,
            ..self.iso_moment
        })
    }
}

fn clf(text: &[u8; CLF_BYTES]) -> Option<Moment> {
    let parsed = strtime::parse("%d/%b/%Y:%H:%M:%S %z", text).ok()?;
    // A moment before 1970 is none that a log has.
    let secs = u64::try_from(parsed.to_timestamp().ok()?.as_second()).ok()?;
    Some(Moment {
        wall_ns: secs.checked_mul(NANOS_PER_SEC)?,
        utc_offset_secs: parsed.offset()?.seconds(),
    })
}

/// Of a time without its places, and its zone: `Z`, `+0100` or `+01:00`.
fn iso(head: &[u8; ISO_BYTES], zone: &[u8]) -> Option<Moment> {
    let text = [&head[..], zone].concat();
    let pieces = Pieces::parse(std::str::from_utf8(&text).ok()?).ok()?;
    let offset = pieces.to_numeric_offset()?;
    // The civil time is that of the offset; what is asked for is the moment.
    let at = offset.to_timestamp(pieces.date().to_datetime(pieces.time()?));
    let secs = u64::try_from(at.ok()?.as_second()).ok()?;
    Some(Moment {
        wall_ns: secs.checked_mul(NANOS_PER_SEC)?,
        utc_offset_secs: offset.seconds(),
    })
}

fn fraction(digits: &[u8]) -> Option<u64> {
    if digits.is_empty() || digits.len() > 9 {
        return None;
    }
    let value = super::cursor::number(digits)?;
    Some(value * 10u64.pow(9 - digits.len() as u32))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of_clf(text: &str) -> Option<Moment> {
        let text = format!("{text}] rest");
        let (moment, rest) = DateReader::default().bracketed(text.as_bytes())?;
        assert_eq!(rest, b" rest");
        Some(moment)
    }

    #[test]
    fn reads_times_of_the_common_log_format() {
        let check = |text: &str, secs: u64, offset_secs: i32| {
            let expect = Moment {
                wall_ns: secs * NANOS_PER_SEC,
                utc_offset_secs: offset_secs,
            };
            assert_eq!(of_clf(text), Some(expect), "{text}");
        };
        check("10/Oct/2000:13:55:36 +0000", 971_186_136, 0);
        check("10/Oct/2000:06:55:36 -0700", 971_186_136, -25_200);
        check("10/Oct/2000:19:40:36 +0545", 971_186_136, 20_700);
        check("29/Feb/2000:00:00:00 +0000", 951_782_400, 0);
        check("01/Jan/1970:00:00:00 +0000", 0, 0);
        check("971186136", 971_186_136, 0);
    }

    #[test]
    fn refuses_times_that_are_none() {
        for text in [
            "31/Feb/2000:00:00:00 +0000",
            "00/Oct/2000:00:00:00 +0000",
            "10/Okt/2000:13:55:36 +0000",
            "10/Oct/2000:24:55:36 +0000",
            "10/Oct/2000:13:55:36  0000",
            "10/Oct/2000:13:55:3x +0000",
            "01/Jan/1970:00:00:00 +0100",
            "",
            "99999999999999",
        ] {
            assert_eq!(of_clf(text), None, "{text}");
        }
    }

    #[test]
    fn reads_rfc3339_with_and_without_places() {
        let check = |text: &str, expect: Option<(u64, i32)>| {
            let found = DateReader::default().rfc3339(text.as_bytes());
            let found = found.map(|moment| (moment.wall_ns, moment.utc_offset_secs));
            assert_eq!(found, expect, "{text}");
        };
        check(
            "2000-10-10T13:55:36.000123+00:00",
            Some((971_186_136_000_123_000, 0)),
        );
        check(
            "2000-10-10T06:55:36-07:00",
            Some((971_186_136_000_000_000, -25_200)),
        );
        check("2000-10-10 13:55:36Z", Some((971_186_136_000_000_000, 0)));
        check("2000-10-10T13:55:36.Z", None);
        check("2000-10-10T13:55:36", None);
        check("2000-13-10T13:55:36Z", None);
        check("2000-10-10T13:55:36.1234567890Z", None);
    }

    #[test]
    fn a_kept_date_is_never_taken_for_another() {
        let mut reader = DateReader::default();
        for (text, secs) in [
            ("10/Oct/2000:13:55:36 +0000]", 971_186_136),
            ("10/Oct/2000:13:55:37 +0000]", 971_186_137),
            ("10/Oct/2000:13:55:37 +0100]", 971_182_537),
            ("10/Oct/2000:13:55:36 +0000]", 971_186_136),
        ] {
            let (moment, _) = reader.bracketed(text.as_bytes()).unwrap();
            assert_eq!(moment.wall_ns / NANOS_PER_SEC, secs);
        }
        assert!(reader.bracketed(b"10/Okt/2000:13:55:36 +0000]").is_none());
        assert!(reader.bracketed(b"10/Oct/2000:13:55:36 +0000]").is_some());
    }
}
