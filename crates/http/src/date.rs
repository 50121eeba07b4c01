//! HTTP dates, RFC 9110 section 5.6.7, as seconds since 1970-01-01 UTC. Must not read the clock.

use std::io::Write;
use std::time::{Duration, UNIX_EPOCH};

use httpdate::HttpDate;

/// The last second of the year 9999: the format has four digits for a year.
const LAST_SECS: u64 = 253_402_300_799;

/// Formats as IMF-fixdate: `Sun, 06 Nov 1994 08:49:37 GMT`. Times after the year 9999 are written as its
/// last second.
pub fn format(unix_secs: u64) -> [u8; 29] {
    let date = HttpDate::from(UNIX_EPOCH + Duration::from_secs(unix_secs.min(LAST_SECS)));
    let mut out = [0; 29];
    write!(out.as_mut_slice(), "{date}").expect("a date with a year of four digits has 29 bytes");
    out
}

/// Reads a date in any of the three formats that a recipient must accept: IMF-fixdate, RFC 850 and
/// asctime. `None` for anything else and for times before 1970.
///
/// Names are case-sensitive, and the day of the week must be that of the date. A year of two digits is 1970 to 2069:
/// the rule of the RFC, at most 50 years ahead of now, without a now. White space around the date is ignored.
pub fn parse(text: &[u8]) -> Option<u64> {
    let date = httpdate::parse_http_date(std::str::from_utf8(text).ok()?).ok()?;
    Some(date.duration_since(UNIX_EPOCH).ok()?.as_secs())
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
        check("Tuesday, 01-Jan-69 00:00:00 GMT", Some(3_124_224_000));
        check("Thu Jan 01 00:00:00 1970", Some(0));
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
            "Sat, 31 Dec 2016 23:59:60 GMT",
            "Wednesday, 01-Jan-69 00:00:00 GMT",
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
        fn parses_any_bytes_without_a_panic(text in proptest::collection::vec(any::<u8>(), 0..40)) {
            parse(&text);
        }
    }
}
