//! HTTP dates, RFC 9110 section 5.6.7.
//!
//! Takes and gives seconds since 1970-01-01 UTC. It must not read the clock.

const DAY_NAMES: [&[u8; 3]; 7] = [b"Sun", b"Mon", b"Tue", b"Wed", b"Thu", b"Fri", b"Sat"];
const LONG_DAY_NAMES: [&[u8]; 7] = [
    b"Sunday",
    b"Monday",
    b"Tuesday",
    b"Wednesday",
    b"Thursday",
    b"Friday",
    b"Saturday",
];
const MONTH_NAMES: [&[u8; 3]; 12] = [
    b"Jan", b"Feb", b"Mar", b"Apr", b"May", b"Jun", b"Jul", b"Aug", b"Sep", b"Oct", b"Nov", b"Dec",
];

const DAY_SECS: u64 = 86_400;
/// The last second of the year 9999: the format has four digits for a year.
const LAST_SECS: u64 = 253_402_300_799;

/// Formats as IMF-fixdate: `Sun, 06 Nov 1994 08:49:37 GMT`. Times after the year 9999 are written as its
/// last second.
pub fn format(unix_secs: u64) -> [u8; 29] {
    let [year, month, day, hour, minute, second] = parts(unix_secs);
    let days = unix_secs.min(LAST_SECS) / DAY_SECS;
    let mut out = *b"Thu, 01 Jan 1970 00:00:00 GMT";
    // 1970-01-01 was a Thursday.
    out[0..3].copy_from_slice(DAY_NAMES[((days + 4) % 7) as usize]);
    put_two(&mut out, 5, day);
    out[8..11].copy_from_slice(MONTH_NAMES[month as usize - 1]);
    put_two(&mut out, 12, year / 100);
    put_two(&mut out, 14, year % 100);
    put_two(&mut out, 17, hour);
    put_two(&mut out, 20, minute);
    put_two(&mut out, 23, second);
    out
}

/// Year, month (1 to 12), day, hour, minute and second of a moment, in UTC. Times after the year 9999 are
/// its last second.
pub fn parts(unix_secs: u64) -> [u64; 6] {
    let secs = unix_secs.min(LAST_SECS);
    let (days, second) = (secs / DAY_SECS, secs % DAY_SECS);
    let (year, month, day) = civil(days);
    [
        year,
        month,
        day,
        second / 3600,
        second / 60 % 60,
        second % 60,
    ]
}

/// The inverse of [`parts`]; `None` for what no calendar or clock shows, and outside the years 1970 to 9999.
pub fn from_parts([year, month, day, hour, minute, second]: [u64; 6]) -> Option<u64> {
    let valid = year <= 9999 && (1..=12).contains(&month) && day <= 31;
    let valid = valid && hour < 24 && minute < 60 && second < 60;
    valid.then_some(())?;
    unix_secs((year, month, day), hour * 3600 + minute * 60 + second)
}

/// Reads a date in any of the three formats that a recipient must accept: IMF-fixdate, RFC 850 and
/// asctime. `None` for anything else and for times before 1970.
///
/// Names are case-sensitive; the day of the week must be one, but is not compared with the date. A year of
/// two digits is 1970 to 2069: the rule of the RFC, at most 50 years ahead of now, without a now.
pub fn parse(text: &[u8]) -> Option<u64> {
    match text {
        [_, _, _, b',', b' ', ..] => imf_fixdate(text),
        [_, _, _, b' ', ..] => asctime(text),
        _ => rfc_850(text),
    }
}

/// `Sun, 06 Nov 1994 08:49:37 GMT`
fn imf_fixdate(text: &[u8]) -> Option<u64> {
    let text: &[u8; 29] = text.try_into().ok()?;
    day_name(&text[0..3])?;
    let shape = text[7] == b' ' && text[11] == b' ' && text[16] == b' ' && &text[25..] == b" GMT";
    let year = two(&text[12..14])? * 100 + two(&text[14..16])?;
    let date = (year, month(&text[8..11])?, two(&text[5..7])?);
    shape.then_some(())?;
    unix_secs(date, clock(&text[17..25])?)
}

/// `Sunday, 06-Nov-94 08:49:37 GMT`
fn rfc_850(text: &[u8]) -> Option<u64> {
    let comma = memchr::memchr(b',', text)?;
    LONG_DAY_NAMES
        .iter()
        .find(|name| **name == &text[..comma])?;
    let text: &[u8; 24] = text[comma..].try_into().ok()?;
    let shape = &text[..2] == b", " && text[4] == b'-' && text[8] == b'-' && text[11] == b' ';
    let year = match two(&text[9..11])? {
        year @ 70.. => 1900 + year,
        year => 2000 + year,
    };
    let date = (year, month(&text[5..8])?, two(&text[2..4])?);
    (shape && &text[20..] == b" GMT").then_some(())?;
    unix_secs(date, clock(&text[12..20])?)
}

/// `Sun Nov  6 08:49:37 1994`
fn asctime(text: &[u8]) -> Option<u64> {
    let text: &[u8; 24] = text.try_into().ok()?;
    day_name(&text[0..3])?;
    let shape = text[7] == b' ' && text[10] == b' ' && text[19] == b' ';
    let day = match text[8..10] {
        [b' ', digit] => two(&[b'0', digit])?,
        ref digits => two(digits)?,
    };
    let year = two(&text[20..22])? * 100 + two(&text[22..24])?;
    shape.then_some(())?;
    unix_secs((year, month(&text[4..7])?, day), clock(&text[11..19])?)
}

fn day_name(name: &[u8]) -> Option<()> {
    DAY_NAMES
        .iter()
        .any(|known| known[..] == *name)
        .then_some(())
}

fn month(name: &[u8]) -> Option<u64> {
    let index = MONTH_NAMES.iter().position(|known| known[..] == *name)?;
    Some(index as u64 + 1)
}

fn two(digits: &[u8]) -> Option<u64> {
    match digits {
        [a @ b'0'..=b'9', b @ b'0'..=b'9'] => Some(u64::from(a - b'0') * 10 + u64::from(b - b'0')),
        _ => None,
    }
}

/// Second of the day in `08:49:37`; a leap second counts as the one before it.
fn clock(text: &[u8]) -> Option<u64> {
    let [h1, h2, b':', m1, m2, b':', s1, s2] = *text else {
        return None;
    };
    let (hour, minute, second) = (two(&[h1, h2])?, two(&[m1, m2])?, two(&[s1, s2])?);
    let valid = hour < 24 && minute < 60 && second <= 60;
    valid.then_some(hour * 3600 + minute * 60 + second.min(59))
}

fn unix_secs((year, month, day): (u64, u64, u64), second: u64) -> Option<u64> {
    if year < 1970 || day == 0 {
        return None;
    }
    let days = days_since_1970(year, month, day);
    // A 31st of April would have become a 1st of May.
    (civil(days) == (year, month, day)).then_some(days * DAY_SECS + second)
}

/// Year, month and day of a day since 1970-01-01: Howard Hinnant, "chrono-compatible low-level date
/// algorithms", `civil_from_days`. Years begin in March there, so that a leap day is a year's last.
fn civil(days: u64) -> (u64, u64, u64) {
    let days = days + 719_468;
    let era = days / 146_097;
    let day_of_era = days % 146_097;
    let year_of_era =
        (day_of_era - day_of_era / 1_460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let month_from_march = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * month_from_march + 2) / 5 + 1;
    let month = (month_from_march + 2) % 12 + 1;
    (year_of_era + era * 400 + u64::from(month <= 2), month, day)
}

/// The inverse of [`civil`], for years from 1970 on: `days_from_civil` of the same source.
fn days_since_1970(year: u64, month: u64, day: u64) -> u64 {
    let year = year - u64::from(month <= 2);
    let (era, year_of_era) = (year / 400, year % 400);
    let day_of_year = (153 * ((month + 9) % 12) + 2) / 5 + day - 1;
    let day_of_era = year_of_era * 365 + year_of_era / 4 - year_of_era / 100 + day_of_year;
    era * 146_097 + day_of_era - 719_468
}

fn put_two(out: &mut [u8; 29], at: usize, number: u64) {
    out[at] = b'0' + (number / 10) as u8;
    out[at + 1] = b'0' + (number % 10) as u8;
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn check(text: &str, expect: Option<u64>) {
        assert_eq!(parse(text.as_bytes()), expect, "{text}");
    }

    #[test]
    fn formats_known_moments() {
        for (secs, expect) in [
            (0, "Thu, 01 Jan 1970 00:00:00 GMT"),
            (784_111_777, "Sun, 06 Nov 1994 08:49:37 GMT"),
            (951_782_400, "Tue, 29 Feb 2000 00:00:00 GMT"),
            (951_868_799, "Tue, 29 Feb 2000 23:59:59 GMT"),
            (1_735_689_599, "Tue, 31 Dec 2024 23:59:59 GMT"),
            (1_740_787_200, "Sat, 01 Mar 2025 00:00:00 GMT"),
            (4_107_542_400, "Mon, 01 Mar 2100 00:00:00 GMT"),
            (LAST_SECS, "Fri, 31 Dec 9999 23:59:59 GMT"),
            (u64::MAX, "Fri, 31 Dec 9999 23:59:59 GMT"),
        ] {
            assert_eq!(String::from_utf8_lossy(&format(secs)), expect);
        }
    }

    #[test]
    fn parses_the_three_formats_of_one_moment() {
        check("Sun, 06 Nov 1994 08:49:37 GMT", Some(784_111_777));
        check("Sunday, 06-Nov-94 08:49:37 GMT", Some(784_111_777));
        check("Sun Nov  6 08:49:37 1994", Some(784_111_777));
        check("Wednesday, 01-Jan-69 00:00:00 GMT", Some(3_124_224_000));
        check("Thu Jan 01 00:00:00 1970", Some(0));
        check("Sat, 31 Dec 2016 23:59:60 GMT", Some(1_483_228_799));
    }

    #[test]
    fn parses_nothing_else() {
        for text in [
            "",
            "0",
            "Sun",
            "Sun,",
            "Sun, 06 Nov 1994 08:49:37 UTC",
            "Sun, 06 Nov 1994 08:49:37",
            "Sun, 06 Nov 1994 08:49:37 GMT ",
            " Sun, 06 Nov 1994 08:49:37 GMT",
            "Son, 06 Nov 1994 08:49:37 GMT",
            "sun, 06 nov 1994 08:49:37 GMT",
            "Sun, 6 Nov 1994 08:49:37 GMT",
            "Sun, 31 Apr 1994 08:49:37 GMT",
            "Sun, 29 Feb 1900 08:49:37 GMT",
            "Sun, 29 Feb 2100 08:49:37 GMT",
            "Sun, 00 Nov 1994 08:49:37 GMT",
            "Sun, 06 Nov 1994 24:00:00 GMT",
            "Sun, 06 Nov 1994 08:60:37 GMT",
            "Sun, 06 Nov 1994 08:49:61 GMT",
            "Sun, 06 Nov 1994 08-49-37 GMT",
            "Wed, 31 Dec 1969 23:59:59 GMT",
            "Sunday, 06-Nov-1994 08:49:37 GMT",
            "Sun, 06-Nov-94 08:49:37 GMT",
            "Sunday, 06 Nov 94 08:49:37 GMT",
            "Sun Nov 6 08:49:37 1994",
            "Sun Nov  6 08:49:37 94  ",
            "Sun Nov \u{e9} 08:49:37 1994",
        ] {
            check(text, None);
        }
    }

    proptest! {
        #[test]
        fn parses_what_it_formats(secs in 0..=LAST_SECS) {
            prop_assert_eq!(parse(&format(secs)), Some(secs));
        }

        #[test]
        fn finds_a_moment_by_its_parts(secs in 0..=LAST_SECS) {
            prop_assert_eq!(from_parts(parts(secs)), Some(secs));
        }

        #[test]
        fn finds_only_moments_that_exist(parts_given in [0..10_100u64, 0..14, 0..33, 0..26, 0..62, 0..62]) {
            if let Some(secs) = from_parts(parts_given) {
                prop_assert_eq!(parts(secs), parts_given);
            }
        }

        #[test]
        fn parses_any_bytes_without_a_panic(text in proptest::collection::vec(any::<u8>(), 0..40)) {
            parse(&text);
        }
    }
}
