//! Numbers, times and foreign text as people read them.

use telemetry::civil_from_unix;

use crate::filter::local_ns;

/// Digits that are shown of a duration: quantiles are within 1.6 %.
const DIGITS: i32 = 4;
/// Logs have microseconds.
const PLACES_MAX: i32 = 6;

/// 1234567 as `1,234,567`.
pub fn thousands(value: u64) -> String {
    let digits = value.to_string();
    let mut text = String::new();
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && (digits.len() - index).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

/// Seconds with four digits that say something, and no place beyond microseconds.
pub(super) fn seconds(value: f64) -> String {
    if value < 0.000_000_5 {
        return "0".to_owned();
    }
    let places = (DIGITS - 1 - value.log10().floor() as i32).clamp(0, PLACES_MAX);
    format!("{value:.*}", places as usize)
}

/// A duration for a label: `250 µs`, `12.5 ms`, `3.2 s`.
pub(super) fn short_seconds(value: f64) -> String {
    let (value, unit) = match value {
        value if value < 0.000_999_5 => (value * 1e6, "µs"),
        value if value < 0.999_5 => (value * 1e3, "ms"),
        value => (value, "s"),
    };
    let places = if value >= 99.95 || value.fract() == 0.0 {
        0
    } else {
        1
    };
    let number = format!("{value:.places$}");
    let number = number.strip_suffix(".0").unwrap_or(&number);
    format!("{number} {unit}")
}

/// A rate: `0.25`, `12.3`, `1,234`.
pub(super) fn rate(value: f64) -> String {
    match value {
        value if value < 9.995 => format!("{value:.2}"),
        value if value < 99.95 => format!("{value:.1}"),
        value => thousands(value.round() as u64),
    }
}

/// Bytes in powers of 1024.
pub(super) fn bytes(value: u64) -> String {
    let mut scaled = value as f64;
    let mut units = ["B", "KB", "MB", "GB", "TB", "PB", "EB"].iter();
    let mut unit = units.next();
    while scaled >= 1_023.95 {
        let Some(next) = units.next() else { break };
        scaled /= 1_024.0;
        unit = Some(next);
    }
    let places = usize::from(value >= 1_024 && scaled < 99.95);
    format!("{scaled:.places$} {}", unit.unwrap_or(&"B"))
}

/// A mean of whole numbers: `0`, `1.25`, `12.5`, `1,234`.
pub(super) fn mean(value: f64) -> String {
    match value {
        0.0 => "0".to_owned(),
        value => rate(value),
    }
}

/// A share of 0 to 1 in percent.
pub(super) fn percent(part: u64, whole: u64) -> String {
    if whole == 0 {
        return "-".to_owned();
    }
    let value = 100.0 * part as f64 / whole as f64;
    match value {
        0.0 => "0 %".to_owned(),
        value if value < 0.05 => "< 0.1 %".to_owned(),
        value => format!("{value:.1} %"),
    }
}

/// `2026-11-21 12:07:39` on the log's own clock.
pub(super) fn time(wall_ns: u64, utc_offset_secs: i32) -> String {
    let [year, month, day, hour, minute, second] =
        civil_from_unix(local_ns(wall_ns, utc_offset_secs) / 1_000_000_000);
    format!("{year:04}-{month:02}-{day:02} {hour:02}:{minute:02}:{second:02}")
}

/// `+0100`
pub(super) fn zone(utc_offset_secs: i32) -> String {
    let sign = if utc_offset_secs < 0 { '-' } else { '+' };
    let minutes = utc_offset_secs.unsigned_abs() / 60;
    format!("{sign}{:02}{:02}", minutes / 60, minutes % 60)
}

/// The hour of this number since 1970.
pub(crate) fn hour_text(hour: u64) -> String {
    let [year, month, day, hour, ..] = civil_from_unix(hour.min(u64::MAX / 3_600) * 3_600);
    format!("{year:04}-{month:02}-{day:02} {hour:02}:00")
}

/// Text out of a log that no terminal obeys: what is not printable is `\xHH`, cut at `chars_max`.
pub(crate) fn harmless(text: &[u8], chars_max: usize) -> String {
    let mut shown = String::new();
    for chunk in text.utf8_chunks() {
        for character in chunk.valid().chars() {
            if is_harmful(character) {
                shown.push_str(&format!("\\x{:02x}", u32::from(character)));
            } else {
                shown.push(character);
            }
        }
        for byte in chunk.invalid() {
            shown.push_str(&format!("\\x{byte:02x}"));
        }
    }
    if shown.chars().count() > chars_max {
        shown = shown.chars().take(chars_max.saturating_sub(1)).collect();
        shown.push('…');
    }
    shown
}

/// Control characters, and those that turn the direction of writing or have no width.
fn is_harmful(character: char) -> bool {
    character.is_control()
        || matches!(character, '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2060}'..='\u{206f}' | '\u{feff}')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shows_durations_with_the_digits_that_count() {
        let check = |value: f64, expect: &str| assert_eq!(seconds(value), expect);
        check(0.0, "0");
        check(0.000_000_4, "0");
        check(0.000_123, "0.000123");
        check(0.054_7, "0.05470");
        check(0.320_312, "0.3203");
        check(4.144_876, "4.145");
        check(21.959_4, "21.96");
        check(12_345.6, "12346");
    }

    #[test]
    fn shows_numbers_for_people() {
        assert_eq!(thousands(0), "0");
        assert_eq!(thousands(999), "999");
        assert_eq!(thousands(1_234_567), "1,234,567");
        assert_eq!(bytes(0), "0 B");
        assert_eq!(bytes(1_023), "1023 B");
        assert_eq!(bytes(1_536), "1.5 KB");
        assert_eq!(bytes(u64::MAX), "16.0 EB");
        assert_eq!(short_seconds(0.000_25), "250 µs");
        assert_eq!(short_seconds(0.0125), "12.5 ms");
        assert_eq!(short_seconds(3.0), "3 s");
        assert_eq!(rate(0.25), "0.25");
        assert_eq!(rate(1_234.4), "1,234");
        assert_eq!(
            (mean(0.0), mean(2.0), mean(0.004)),
            ("0".into(), "2.00".into(), "0.00".into())
        );
        assert_eq!(percent(1, 3), "33.3 %");
        assert_eq!(percent(1, 100_000), "< 0.1 %");
    }

    #[test]
    fn no_terminal_obeys_a_log() {
        assert_eq!(
            harmless(b"/a\x1b[2J\n\xff\xe2\x80\xae", 40),
            "/a\\x1b[2J\\x0a\\xff\\x202e"
        );
        assert_eq!(harmless("caf\u{e9}".as_bytes(), 40), "caf\u{e9}");
        assert_eq!(harmless(b"abcdef", 4), "abc\u{2026}");
    }
}
