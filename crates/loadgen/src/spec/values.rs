//! Texts as values: counts, durations, bytes, numbers over time, lists.
//!
//! Takes a text, gives its value or what was expected instead ("a duration as `10s` or `500ms`"). Pure.

use std::collections::HashSet;
use std::ops::RangeInclusive;

use telemetry::Nanos;

use crate::plan::{Leg, Profile};

/// What was expected.
pub(super) type ExpectedText = String;

/// Longest time that a load may be given.
pub(super) const TIME_MAX: Nanos = Nanos::from_secs(30 * 86_400);
/// Greatest rate.
pub(super) const RATE_MAX: f64 = 1e8;

/// A whole number within bounds.
pub(super) fn count(text: &str, min: u64, max: u64) -> Result<u64, ExpectedText> {
    let number = digits(text).filter(|number| (min..=max).contains(number));
    number.ok_or_else(|| format!("a count from {min} to {max}"))
}

/// Seconds, or with `ns us ms s m h d`; at most [`TIME_MAX`].
pub(super) fn time(text: &str) -> Result<Nanos, ExpectedText> {
    let units = [
        ("ns", 1.0),
        ("us", 1e3),
        ("ms", 1e6),
        ("s", 1e9),
        ("m", 60e9),
        ("h", 3_600e9),
        ("d", 86_400e9),
    ];
    let found = units
        .iter()
        .find_map(|(unit, ns)| Some(decimal(text.strip_suffix(unit)?)? * ns))
        .or_else(|| Some(decimal(text)? * 1e9));
    found
        .filter(|ns| *ns <= TIME_MAX.0 as f64)
        .map(|ns| Nanos(ns.round() as u64))
        .ok_or_else(|| "a time as `10s` or `500ms`, at most 30d".to_owned())
}

/// A time that is more than none.
pub(super) fn some_time(text: &str) -> Result<Nanos, ExpectedText> {
    let found = time(text)?;
    let more = Some(found).filter(|found| *found > Nanos::ZERO);
    more.ok_or_else(|| "a time of more than 0".to_owned())
}

/// Bytes, or with `K M G` (powers of 1024).
pub(super) fn bytes(text: &str, max: u64) -> Result<u64, ExpectedText> {
    let units = [("K", 10), ("M", 20), ("G", 30)];
    let upper = text.to_ascii_uppercase();
    // `KiB` and `KB` mean what `K` does.
    let plain = upper.strip_suffix("IB").or_else(|| upper.strip_suffix('B'));
    let plain = plain.unwrap_or(&upper);
    let found = units
        .iter()
        .find_map(|(unit, shift)| digits(plain.strip_suffix(unit)?)?.checked_mul(1 << shift))
        .or_else(|| digits(plain));
    found
        .filter(|bytes| *bytes <= max)
        .ok_or_else(|| format!("bytes as `1024` or `64K`, at most {max}"))
}

/// A number of more than 0.
pub(super) fn positive(text: &str, max: f64) -> Result<f64, ExpectedText> {
    let number = decimal(text).filter(|number| *number > 0.0 && *number <= max);
    number.ok_or_else(|| format!("a number of more than 0, at most {max}"))
}

/// `2000`, `500:10s,1000:10s`, `100..2000:30s`: numbers up to `max`.
pub(super) fn profile(text: &str, max: f64) -> Result<Profile, ExpectedText> {
    let expected = || {
        format!("a number up to {max}, steps as `500:10s,1000:10s` or a ramp as `100..2000:30s`")
    };
    let number = |text: &str| decimal(text).filter(|number| *number <= max);
    if let Some(constant) = number(text).filter(|number| *number > 0.0) {
        return Ok(Profile::constant(constant));
    }
    let leg = |text: &str| {
        let (numbers, lasts) = text.trim().split_once(':')?;
        let (from, to) = numbers.split_once("..").unwrap_or((numbers, numbers));
        Some(Leg {
            from: number(from)?,
            to: number(to)?,
            lasts: some_time(lasts).ok()?,
        })
    };
    let legs: Option<Vec<Leg>> = text.split(',').map(leg).collect();
    let profile = legs.map(Profile::of).ok_or_else(expected)?;
    // Of zeros alone nothing would ever be sent.
    let is_some = profile.most() > 0.0 && profile.lasts() <= TIME_MAX;
    is_some.then_some(profile).ok_or_else(expected)
}

/// `200,304`, `2xx`, `200-204`; sorted, each once.
pub(super) fn statuses(text: &str) -> Result<Vec<u16>, ExpectedText> {
    let range = |text: &str| {
        let hundreds = text.strip_suffix("xx").and_then(digits);
        match hundreds.filter(|digit| (1..=5).contains(digit)) {
            Some(hundreds) => Some(hundreds * 100..=hundreds * 100 + 99),
            None => from_to(text, |code| (100..=599).contains(&code)),
        }
    };
    let mut statuses: Vec<u16> =
        list(text, range).ok_or_else(|| "statuses as `200,304`, `2xx` or `200-204`".to_owned())?;
    statuses.sort_unstable();
    statuses.dedup();
    Ok(statuses)
}

/// `0,2-3`, each once.
pub(super) fn cpus(text: &str) -> Result<Vec<usize>, ExpectedText> {
    // What a set of processors of the kernel's can hold.
    let mut cpus: Vec<usize> = list(text, |text| from_to(text, |cpu| cpu < 1_024))
        .ok_or_else(|| "processors as `0,2-3`".to_owned())?;
    // In the order given: the first thread takes the first one.
    let mut seen = HashSet::new();
    cpus.retain(|cpu| seen.insert(*cpu));
    Ok(cpus)
}

/// The numbers of ranges with commas between them.
fn list<T: TryFrom<u64>>(
    text: &str,
    range: impl Fn(&str) -> Option<RangeInclusive<u64>>,
) -> Option<Vec<T>> {
    let ranges: Option<Vec<_>> = text.split(',').map(|part| range(part.trim())).collect();
    let numbers = ranges?.into_iter().flatten();
    // None is cut off: a number that does not fit makes the whole list wrong.
    numbers.map(|number| T::try_from(number).ok()).collect()
}

/// `5` or `5-9`, of numbers that fit.
fn from_to(text: &str, fits: impl Fn(u64) -> bool) -> Option<RangeInclusive<u64>> {
    let (from, to) = text.split_once('-').unwrap_or((text, text));
    let one = |text: &str| digits(text).filter(|number| fits(*number));
    let range = one(from)?..=one(to)?;
    (!range.is_empty()).then_some(range)
}

/// One of some names.
pub(super) fn choice<T: Copy>(text: &str, known: &[(&str, T)]) -> Result<T, ExpectedText> {
    let found = known.iter().find(|(name, _)| *name == text);
    found.map(|(_, value)| *value).ok_or_else(|| {
        let names: Vec<&str> = known.iter().map(|(name, _)| *name).collect();
        format!("one of {}", names.join(", "))
    })
}

/// Digits and nothing else.
pub(super) fn digits(text: &str) -> Option<u64> {
    // `parse` alone would take a sign.
    let is_plain = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    is_plain.then(|| text.parse().ok()).flatten()
}

/// Digits with at most one point.
fn decimal(text: &str) -> Option<f64> {
    // `parse` alone would take a sign, an exponent and `inf`.
    let is_digit = |byte: u8| byte.is_ascii_digit();
    let is_plain =
        text.bytes().any(is_digit) && text.bytes().all(|byte| is_digit(byte) || byte == b'.');
    is_plain.then(|| text.parse().ok()).flatten()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check<T: std::fmt::Debug + PartialEq>(
        understand: impl Fn(&str) -> Result<T, ExpectedText>,
        good: &[(&str, T)],
        bad: &str,
        expect: &str,
    ) {
        for (text, value) in good {
            assert_eq!(understand(text).as_ref(), Ok(value), "{text}");
        }
        for text in bad.split('|') {
            assert_eq!(understand(text), Err(expect.to_owned()), "{text}");
        }
    }

    #[test]
    fn understands_counts() {
        check(
            |text| count(text, 1, 100),
            &[("1", 1), ("100", 100), ("007", 7)],
            "0|101||-1|+1| 1|1.0|1e2|ten|99999999999999999999",
            "a count from 1 to 100",
        );
    }

    #[test]
    fn understands_times() {
        let good = [
            ("10", Nanos::from_secs(10)),
            ("0.5", Nanos::from_ms(500)),
            ("60us", Nanos::from_us(60)),
            ("1.5ms", Nanos::from_us(1_500)),
            ("7ns", Nanos(7)),
            ("2m", Nanos::from_secs(120)),
            ("1h", Nanos::from_secs(3_600)),
            ("30d", TIME_MAX),
            ("0", Nanos::ZERO),
        ];
        let bad = "|s|-1s|1 s|31d|1e3|inf|NaN|1.2.3s|10min";
        check(time, &good, bad, "a time as `10s` or `500ms`, at most 30d");
        check(some_time, &good[..8], "0|0s|0.0ms", "a time of more than 0");
    }

    #[test]
    fn understands_bytes() {
        let good = [
            ("0", 0),
            ("1024", 1024),
            ("64K", 65_536),
            ("1kib", 1024),
            ("1M", 1 << 20),
        ];
        let bad = "|K|1.5K|-1|1T|2G|99999999999999999999G|17179869184G";
        let max = 1 << 30;
        check(
            |text| bytes(text, max),
            &good,
            bad,
            "bytes as `1024` or `64K`, at most 1073741824",
        );
    }

    #[test]
    fn understands_numbers() {
        check(
            |text| positive(text, 100.0),
            &[("2.5", 2.5), ("100", 100.0), (".5", 0.5)],
            "0|0.0|-1|101|x||.",
            "a number of more than 0, at most 100",
        );
    }

    #[test]
    fn understands_steps_and_ramps() {
        let leg = |from, to, secs| Leg {
            from,
            to,
            lasts: Nanos::from_secs(secs),
        };
        let good = [
            ("200", Profile::constant(200.0)),
            ("0.5", Profile::constant(0.5)),
            (
                "50:10s,100:5",
                Profile::of(vec![leg(50.0, 50.0, 10), leg(100.0, 100.0, 5)]),
            ),
            ("1..200:30s", Profile::of(vec![leg(1.0, 200.0, 30)])),
            (
                "0..200:30s, 200..0:30s",
                Profile::of(vec![leg(0.0, 200.0, 30), leg(200.0, 0.0, 30)]),
            ),
        ];
        let bad = "0||1..2|201|1..201:1s|5:0s|5:1s,6|5:|:5s|0:5s|1..2..3:1s|1:30d,1:1s";
        check(
            |text| profile(text, 200.0),
            &good,
            bad,
            "a number up to 200, steps as `500:10s,1000:10s` or a ramp as `100..2000:30s`",
        );
    }

    #[test]
    fn understands_lists() {
        let all: Vec<u16> = (200..=299).collect();
        check(
            statuses,
            &[
                ("304,200,200", vec![200, 304]),
                ("2xx", all),
                ("500-502", vec![500, 501, 502]),
            ],
            "|99|600|204-200|6xx|200,|ok",
            "statuses as `200,304`, `2xx` or `200-204`",
        );
        check(
            cpus,
            &[("3,0-1,0", vec![3, 0, 1])],
            "|1-|3-1|1024|a",
            "processors as `0,2-3`",
        );
    }
}
