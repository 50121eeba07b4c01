//! The calendar, for times as people write them; `jiff` does the arithmetic. Knows no time zone but an offset that it
//! is given.

use jiff::Timestamp;
use jiff::civil::DateTime;
use jiff::tz::Offset;

/// Seconds since 1970 of a moment in UTC, given as year, month, day, hour, minute and second; `None` when there is no
/// such moment, or none after 1970.
pub fn unix_from_civil(parts: [u64; 6]) -> Option<u64> {
    let [year, month, day, hour, minute, second] = parts;
    let small = |part| i8::try_from(part).ok();
    let year = i16::try_from(year).ok()?;
    let (month, day) = (small(month)?, small(day)?);
    let at = DateTime::new(
        year,
        month,
        day,
        small(hour)?,
        small(minute)?,
        small(second)?,
        0,
    );
    let at = Offset::UTC.to_timestamp(at.ok()?).ok()?;
    u64::try_from(at.as_second()).ok()
}

/// Year, month, day, hour, minute and second in UTC of a number of seconds since 1970.
pub fn civil_from_unix(secs: u64) -> [u64; 6] {
    let at = local(secs, Offset::UTC);
    let year = u64::try_from(at.year()).unwrap_or(0);
    let parts = [at.month(), at.day(), at.hour(), at.minute(), at.second()];
    let [month, day, hour, minute, second] = parts.map(|part| part.unsigned_abs().into());
    [year, month, day, hour, minute, second]
}

/// A number of seconds since 1970 at an offset.
pub(crate) fn local(secs: u64, offset: Offset) -> DateTime {
    let secs = i64::try_from(secs).unwrap_or(i64::MAX);
    // Times beyond what `jiff` knows are its last, in the year 9999.
    let at = Timestamp::from_second(secs).unwrap_or(Timestamp::MAX);
    offset.to_datetime(at)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn knows_no_moments_that_do_not_exist() {
        for parts in [
            [2000, 2, 30, 0, 0, 0],
            [1900, 2, 29, 0, 0, 0],
            [2000, 13, 1, 0, 0, 0],
            [2000, 0, 1, 0, 0, 0],
            [2000, 1, 1, 24, 0, 0],
            [2000, 1, 1, 0, 0, 60],
            [1969, 12, 31, 23, 59, 59],
            [99_999, 1, 1, 0, 0, 0],
            [2000, 1, u64::MAX, 0, 0, 0],
        ] {
            assert_eq!(unix_from_civil(parts), None, "{parts:?}");
        }
        assert_eq!(civil_from_unix(u64::MAX)[0], 9999);
    }

    proptest! {
        #[test]
        fn moments_go_there_and_back(secs in 0..250_000_000_000u64) {
            prop_assert_eq!(unix_from_civil(civil_from_unix(secs)), Some(secs));
        }
    }
}
