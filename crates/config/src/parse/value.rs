//! Texts as values: sizes, durations, counts, ranges, switches, lists of processors.
//!
//! Takes one text without its surroundings and gives the value, or nothing: what was expected is said by
//! the setting's kind, in `options_table`. Pure.

use telemetry::Nanos;

use super::Hint;
use crate::options_table::{HOUR, MS, SECOND};

/// What a number is a number of, and so how its text is read.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Unit {
    Count,
    /// Bytes.
    Size,
    /// Bytes a second.
    Rate,
    /// Nanoseconds.
    Duration,
}

impl Unit {
    /// The number that a text stands for.
    ///
    /// # Errors
    /// What was probably meant, where that can be said.
    pub(crate) fn number(self, text: &str) -> Result<u64, Hint> {
        match self {
            Unit::Count => count(text).ok_or(None),
            Unit::Size => size(text).ok_or_else(|| size_hint(text)),
            Unit::Rate => per_second(text).ok_or_else(|| rate_hint(text)),
            Unit::Duration => duration(text).map(|span| span.0).ok_or(None),
        }
    }
}

/// A whole number; underscores may group its digits.
pub(crate) fn count(text: &str) -> Option<u64> {
    let digits = text.trim().replace('_', "");
    let plain = !digits.is_empty() && digits.bytes().all(|b| b.is_ascii_digit());
    plain.then(|| digits.parse().ok())?
}

/// Bytes: a count, or a number followed by K, M, G or T (powers of 1024), or KiB, MiB and so on.
///
/// `KB` is refused rather than guessed: half of its users mean 1000.
pub(crate) fn size(text: &str) -> Option<u64> {
    let (number, unit) = number_and_unit(text);
    let shift = match unit.to_ascii_lowercase().as_str() {
        "" | "b" => 0,
        "k" | "kib" => 10,
        "m" | "mib" => 20,
        "g" | "gib" => 30,
        "t" | "tib" => 40,
        _ => return None,
    };
    scaled(number, 1 << shift)
}

/// Bytes a second: a size, with or without `/s`.
pub(crate) fn per_second(text: &str) -> Option<u64> {
    let text = text.trim();
    size(text.strip_suffix("/s").unwrap_or(text))
}

/// What was probably meant by a text that is no size.
pub(crate) fn size_hint(written: &str) -> Hint {
    let unit_at = written.len().checked_sub(2)?;
    let unit = written.get(unit_at..)?.to_ascii_lowercase();
    let is_decimal = ["kb", "mb", "gb", "tb"].contains(&unit.as_str());
    let without_b = &written[..written.len() - 1];
    is_decimal.then(|| format!("units are powers of 1024: `{without_b}`"))
}

/// What was probably meant by a text that is no number of bytes a second.
pub(crate) fn rate_hint(written: &str) -> Hint {
    let lower = written.trim().to_ascii_lowercase();
    let number: &str = lower.trim_end_matches(|c: char| !c.is_ascii_digit());
    let unit = lower[number.len()..].trim();
    let in_bits = unit.contains("bit") || unit.ends_with("bps");
    if in_bits && !number.is_empty() {
        return Some("rates are bytes, not bits: 8 Mbit/s are `1M`".to_owned());
    }
    size_hint(written.strip_suffix("/s").unwrap_or(written))
}

/// A duration: seconds, or a number followed by us, ms, s, m, h or d. Decimals are welcome (`1.5s`).
pub(crate) fn duration(text: &str) -> Option<Nanos> {
    let (number, unit) = number_and_unit(text);
    let nanos = match unit {
        "us" => 1_000,
        "ms" => MS,
        "" | "s" => SECOND,
        "m" | "min" => 60 * SECOND,
        "h" => HOUR,
        "d" => 24 * HOUR,
        _ => return None,
    };
    scaled(number, nanos).map(Nanos)
}

/// Statuses: `404`, `5xx` or `400-499`, the first and the last; which there are is the caller's business.
pub(crate) fn statuses(text: &str) -> Option<(u16, u16)> {
    let text = text.trim();
    let class = text.strip_suffix("xx").or_else(|| text.strip_suffix("XX"));
    if let Some(class) = class {
        let first: u16 = count(class)?.checked_mul(100)?.try_into().ok()?;
        return Some((first, first.checked_add(99)?));
    }
    let (first, last) = text.split_once('-').unwrap_or((text, text));
    Some((
        count(first)?.try_into().ok()?,
        count(last)?.try_into().ok()?,
    ))
}

/// One status; which there are is the caller's business.
pub(crate) fn status(text: &str) -> Option<u16> {
    count(text)?.try_into().ok()
}

/// `MIN:MAX`, or one number for both.
pub(crate) fn range(text: &str) -> Option<(u64, u64)> {
    match text.split_once(':') {
        Some((min, max)) => Some((count(min)?, count(max)?)),
        None => count(text).map(|both| (both, both)),
    }
}

/// A share in percent, as `10%` or `2.5%`, at most 100: 0.1 for the first. Nothing needs no sign.
pub(crate) fn percent(text: &str) -> Option<f64> {
    let number = match text.trim() {
        "0" => "0",
        text => text.strip_suffix('%')?.trim_end(),
    };
    // In thousandths of a percent, so that what is read is what was written.
    let thousandths = scaled(number, 1_000).filter(|share| *share <= 100_000)?;
    Some(thousandths as f64 / 100_000.0)
}

/// Yes or no, as TOML, shells and people write it.
pub(crate) fn switch(text: &str) -> Option<bool> {
    match text.trim().to_ascii_lowercase().as_str() {
        "true" | "yes" | "on" | "1" => Some(true),
        "false" | "no" | "off" | "0" => Some(false),
        _ => None,
    }
}

/// Numbers of processors: `0,2-3`. Sorted as written, each at most once; `highest` bounds the list.
pub(crate) fn cpus(text: &str, highest: usize) -> Option<Vec<usize>> {
    let mut cpus = Vec::new();
    for part in text.split(',') {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        let (first, last) = (count(first)? as usize, count(last)? as usize);
        if first > last || last > highest {
            return None;
        }
        for cpu in first..=last {
            if cpus.contains(&cpu) {
                return None;
            }
            cpus.push(cpu);
        }
    }
    Some(cpus)
}

/// "64K" for 65536: the shortest text that [`size`] reads back.
pub(crate) fn size_text(bytes: u64) -> String {
    shortest(
        bytes,
        [
            (1 << 40, "T"),
            (1 << 30, "G"),
            (1 << 20, "M"),
            (1 << 10, "K"),
        ],
    )
    .unwrap_or_else(|| bytes.to_string())
}

/// "250ms" for a quarter of a second: the shortest text that [`duration`] reads back.
pub(crate) fn duration_text(span: Nanos) -> String {
    shortest(
        span.0,
        [
            (HOUR, "h"),
            (60 * SECOND, "m"),
            (SECOND, "s"),
            (MS, "ms"),
            (1_000, "us"),
        ],
    )
    .unwrap_or_else(|| "0s".to_owned())
}

/// A number in the greatest unit that it is a multiple of.
fn shortest<const N: usize>(number: u64, units: [(u64, &str); N]) -> Option<String> {
    let fits = |(unit, _): &&(u64, &str)| number >= *unit && number.is_multiple_of(*unit);
    let (unit, name) = units.iter().find(fits)?;
    Some(format!("{}{name}", number / unit))
}

fn number_and_unit(text: &str) -> (&str, &str) {
    let text = text.trim();
    let end = text
        .find(|c: char| !(c.is_ascii_digit() || c == '.' || c == '_'))
        .unwrap_or(text.len());
    (&text[..end], text[end..].trim_start())
}

/// `number` times `unit`, exactly: "1.5" of 1000 is 1500. At most nine decimals, no overflow.
fn scaled(number: &str, unit: u64) -> Option<u64> {
    let (whole, fraction) = number.split_once('.').unwrap_or((number, "0"));
    let fraction_is_good =
        (1..=9).contains(&fraction.len()) && fraction.bytes().all(|b| b.is_ascii_digit());
    if !fraction_is_good {
        return None;
    }
    let parts = 10_u128.pow(fraction.len() as u32);
    let part = u128::from(unit) * fraction.parse::<u128>().ok()? / parts;
    let total = u128::from(count(whole)?) * u128::from(unit) + part;
    u64::try_from(total).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_sizes_with_binary_units() {
        let table = [
            ("0", Some(0)),
            ("100", Some(100)),
            ("65_536", Some(65_536)),
            ("64K", Some(64 << 10)),
            ("64k", Some(64 << 10)),
            ("10MiB", Some(10 << 20)),
            ("10 MiB", Some(10 << 20)),
            ("1.5M", Some(3 << 19)),
            ("1G", Some(1 << 30)),
            ("2T", Some(2 << 40)),
            ("100b", Some(100)),
            ("64KB", None),
            ("", None),
            ("K", None),
            (".5K", None),
            ("1.K", None),
            ("-1", None),
            ("1e3", None),
            ("99999999999T", None),
            ("true", None),
        ];
        for (text, expect) in table {
            assert_eq!(size(text), expect, "{text}");
        }
    }

    #[test]
    fn reads_bytes_a_second() {
        let table = [
            ("0", Some(0)),
            ("256", Some(256)),
            ("1.5M", Some(3 << 19)),
            ("10 MiB/s", Some(10 << 20)),
            ("10M/m", None),
            ("10Mbit", None),
            ("10 mbps", None),
            ("/s", None),
            ("", None),
        ];
        for (text, expect) in table {
            assert_eq!(per_second(text), expect, "{text}");
        }
    }

    #[test]
    fn reads_durations_with_seconds_as_the_unit_left_out() {
        let table = [
            ("30", Some(30_000_000_000)),
            ("0.5", Some(500_000_000)),
            ("30s", Some(30_000_000_000)),
            ("250ms", Some(250_000_000)),
            ("10us", Some(10_000)),
            ("2m", Some(120_000_000_000)),
            ("2min", Some(120_000_000_000)),
            ("1h", Some(3_600_000_000_000)),
            ("1.5 s", Some(1_500_000_000)),
            ("1d", Some(86_400_000_000_000)),
            ("1w", None),
            ("", None),
            ("s", None),
            ("-1s", None),
            ("inf", None),
            ("30S", None),
            ("99999999999h", None),
        ];
        for (text, expect) in table {
            assert_eq!(duration(text).map(|span| span.0), expect, "{text}");
        }
    }

    #[test]
    fn reads_statuses() {
        let table = [
            ("404", Some((404, 404))),
            (" 5xx", Some((500, 599))),
            ("4XX", Some((400, 499))),
            ("400-404", Some((400, 404))),
            ("404-400", Some((404, 400))),
            ("xx", None),
            ("4x", None),
            ("-4", None),
            ("4-", None),
            ("4-5-6", None),
            ("99999xx", None),
            ("655xx", None),
            ("654xx", Some((65_400, 65_499))),
            ("", None),
        ];
        for (text, expect) in table {
            assert_eq!(statuses(text), expect, "{text}");
        }
    }

    #[test]
    fn reads_ranges_switches_and_counts() {
        assert_eq!(range("4"), Some((4, 4)));
        assert_eq!(range("2:8"), Some((2, 8)));
        assert_eq!(range("2:"), None);
        assert_eq!(range("2-8"), None);
        assert_eq!(switch("Yes"), Some(true));
        assert_eq!(switch("off"), Some(false));
        assert_eq!(switch("maybe"), None);
        assert_eq!(count("+5"), None);
        assert_eq!(count("18446744073709551616"), None);
        assert_eq!(count("_"), None);
    }

    #[test]
    fn reads_shares_in_percent() {
        let table = [
            ("10%", Some(0.1)),
            (" 2.5 % ", Some(0.025)),
            ("0%", Some(0.0)),
            ("0", Some(0.0)),
            ("100%", Some(1.0)),
            ("100.1%", None),
            ("101%", None),
            ("10", None),
            ("0.1", None),
            ("-1%", None),
            ("%", None),
            ("", None),
        ];
        for (text, expect) in table {
            assert_eq!(percent(text), expect, "{text}");
        }
    }

    #[test]
    fn reads_lists_of_processors() {
        assert_eq!(cpus("0", 7), Some(vec![0]));
        assert_eq!(cpus("0,2-3", 7), Some(vec![0, 2, 3]));
        assert_eq!(cpus("3,1", 7), Some(vec![3, 1]));
        for bad in ["", "0,", "3-2", "0,0", "8", "a", "0--1", "0-99999999999"] {
            assert_eq!(cpus(bad, 7), None, "{bad}");
        }
    }

    #[test]
    fn writes_what_it_reads() {
        for bytes in [
            0,
            1,
            1023,
            1024,
            65_536,
            3 << 19,
            16 << 20,
            1 << 30,
            5 << 40,
        ] {
            assert_eq!(size(&size_text(bytes)), Some(bytes));
        }
        for nanos in [
            0,
            1_000,
            250_000_000,
            1_000_000_000,
            90_000_000_000,
            7_200_000_000_000,
        ] {
            assert_eq!(duration(&duration_text(Nanos(nanos))), Some(Nanos(nanos)));
        }
    }
}
