//! Numbers and foreign text as people read them.

/// Digits that are shown of a measured number; quantiles are within 0.1 %.
const DIGITS: i32 = 4;
/// Places behind the point at most.
const PLACES_MAX: i32 = 3;
/// Ten of them stand beside each other.
const CELL_CHARS_MAX: usize = 7;
/// For a number that there is not, or that would be an accident.
pub(super) const NONE: &str = "–";

/// 1234567 as `1,234,567`.
pub fn thousands(value: u64) -> String {
    grouped(&value.to_string())
}

/// A duration in seconds for a label: `250 µs`, `12.5 ms`, `3.2 s`.
pub fn short_seconds(value: f64) -> String {
    let (scaled, unit) = match value.abs() {
        size if !size.is_finite() => return NONE.to_owned(),
        0.0 => return "0 s".to_owned(),
        size if size < 0.000_000_999_5 => (value * 1e9, "ns"),
        size if size < 0.000_999_5 => (value * 1e6, "µs"),
        size if size < 0.999_5 => (value * 1e3, "ms"),
        _ => (value, "s"),
    };
    let places = usize::from(scaled.abs() < 99.95);
    let number = format!("{scaled:.places$}");
    let number = number.strip_suffix(".0").unwrap_or(&number);
    format!("{} {unit}", fitted(grouped(number), scaled))
}

/// Four digits that say something and at most three places: `0.052`, `5.230`, `52.30`, `5,230`, `52,301`; of
/// what needs more than seven characters the magnitude.
pub(super) fn digits(value: f64) -> String {
    if !value.is_finite() {
        return NONE.to_owned();
    }
    if value == 0.0 {
        return "0".to_owned();
    }
    let magnitude = value.abs().log10().floor();
    let places = (DIGITS - 1 - magnitude.clamp(-9.0, 9.0) as i32).clamp(0, PLACES_MAX);
    let texts = [
        grouped(&format!("{value:.*}", places as usize)),
        format!("{value:.1e}"),
    ];
    let fits = |text: &String| text.len() <= CELL_CHARS_MAX;
    texts
        .into_iter()
        .find(fits)
        .unwrap_or_else(|| format!("{value:.0e}"))
}

/// A rate or another number that is not a duration: `0.25`, `12.3`, `1,234`.
pub(super) fn number(value: f64) -> String {
    let places = match value.abs() {
        size if !size.is_finite() => return NONE.to_owned(),
        size if size < 9.995 => 2,
        size if size < 99.95 => 1,
        _ => 0,
    };
    fitted(grouped(&format!("{value:.places$}")), value)
}

/// Bytes in powers of 1024; a share of a byte is none.
pub(super) fn bytes(value: f64) -> String {
    if !value.is_finite() {
        return NONE.to_owned();
    }
    let mut scaled = value;
    let mut units = ["B", "KB", "MB", "GB", "TB", "PB", "EB"].iter();
    let mut unit = units.next();
    while scaled.abs() >= 1_023.95 {
        let Some(next) = units.next() else { break };
        scaled /= 1_024.0;
        unit = Some(next);
    }
    let places = usize::from(value.abs() >= 1_024.0 && scaled.abs() < 99.95);
    let number = fitted(format!("{scaled:.places$}"), scaled);
    format!("{number} {}", unit.unwrap_or(&"B"))
}

/// A part of a whole in percent.
pub(super) fn percent(part: u64, whole: u64) -> String {
    if whole == 0 {
        return NONE.to_owned();
    }
    share(part as f64 / whole as f64)
}

/// A share of 0 to 1 in percent.
pub(super) fn share(value: f64) -> String {
    match 100.0 * value {
        value if !value.is_finite() => NONE.to_owned(),
        0.0 => "0 %".to_owned(),
        value if value > 0.0 && value < 0.05 => "< 0.1 %".to_owned(),
        value => format!("{} %", fitted(format!("{value:.1}"), value)),
    }
}

/// `1 thread`, `2 threads`.
pub(super) fn counted(len: u64, noun: &str) -> String {
    let ending = if len == 1 { "" } else { "s" };
    format!("{} {noun}{ending}", thousands(len))
}

/// A number as text of digits, with commas before its point.
fn grouped(text: &str) -> String {
    let (sign, text) = match text.strip_prefix('-') {
        Some(rest) => ("-", rest),
        None => ("", text),
    };
    let (whole, rest) = text.split_at(text.find('.').unwrap_or(text.len()));
    let mut out = sign.to_owned();
    for (index, digit) in whole.chars().enumerate() {
        if index > 0 && (whole.len() - index).is_multiple_of(3) {
            out.push(',');
        }
        out.push(digit);
    }
    out + rest
}

/// The text of a value, or its magnitude where the text is too long to stand in a column.
fn fitted(text: String, value: f64) -> String {
    if text.len() > 9 {
        format!("{value:.1e}")
    } else {
        text
    }
}

/// Text from outside that no terminal obeys: what is not printable is `\xHH`, cut at `columns_max`.
pub(super) fn harmless(text: &str, columns_max: usize) -> String {
    let mut shown = String::new();
    for character in text.chars() {
        if is_harmful(character) {
            shown.push_str(&format!("\\x{:02x}", u32::from(character)));
        } else {
            shown.push(character);
        }
    }
    if width(&shown) > columns_max {
        let mut left = columns_max.saturating_sub(1);
        let fits = |character: &char| {
            let wide = width(character.encode_utf8(&mut [0; 4]));
            let has_room = wide <= left;
            left = left.saturating_sub(wide);
            has_room
        };
        shown = shown.chars().take_while(fits).collect();
        shown.push('…');
    }
    shown
}

/// Control characters, and those that turn the direction of writing or have no width.
fn is_harmful(character: char) -> bool {
    character.is_control()
        || matches!(character, '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2060}'..='\u{206f}' | '\u{feff}')
}

/// Text from outside that ends neither an element nor an attribute, and drives no terminal.
pub(super) fn escaped(text: &str, columns_max: usize) -> String {
    let mut out = String::new();
    for character in harmless(text, columns_max).chars() {
        match character {
            '&' => out.push_str("&amp;"),
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '"' => out.push_str("&quot;"),
            '\'' => out.push_str("&#39;"),
            other => out.push(other),
        }
    }
    out
}

/// Columns of a terminal that a character takes: two for those of East Asia and for pictures.
pub(super) fn width(text: &str) -> usize {
    let wide = |character: char| {
        matches!(u32::from(character), 0x1100..=0x115f | 0x2e80..=0xa4cf | 0xac00..=0xd7a3 | 0xf900..=0xfaff
            | 0xfe30..=0xfe6f | 0xff00..=0xff60 | 0xffe0..=0xffe6 | 0x1f300..=0x1faff | 0x2_0000..=0x3_fffd)
    };
    text.chars()
        .map(|character| 1 + usize::from(wide(character)))
        .sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shows_numbers_with_the_digits_that_count() {
        let check = |value: f64, expect: &str| assert_eq!(digits(value), expect);
        check(0.0, "0");
        check(0.000_04, "0.000");
        check(0.052_3, "0.052");
        check(5.23, "5.230");
        check(52.301, "52.30");
        check(9_999.7, "10,000");
        check(5_230.4, "5,230");
        check(999_999.0, "999,999");
        check(12_345_678.0, "1.2e7");
        check(-1e300, "-1e300");
        check(f64::NAN, "–");
    }

    #[test]
    fn shows_rates_bytes_shares_and_labels() {
        assert_eq!(thousands(1_234_567), "1,234,567");
        assert_eq!(thousands(999), "999");
        assert_eq!(number(0.25), "0.25");
        assert_eq!(number(63_912.3), "63,912");
        assert_eq!(bytes(1_023.0), "1023 B");
        assert_eq!(bytes(1_536.0), "1.5 KB");
        assert_eq!(bytes(u64::MAX as f64), "16.0 EB");
        assert_eq!(percent(1, 3), "33.3 %");
        assert_eq!(percent(1, 100_000), "< 0.1 %");
        assert_eq!(percent(0, 0), "–");
        assert_eq!(short_seconds(0.000_25), "250 µs");
        assert_eq!(short_seconds(0.0125), "12.5 ms");
        assert_eq!(short_seconds(3.0), "3 s");
        assert_eq!(short_seconds(1e-7), "100 ns");
        assert_eq!(counted(1, "thread"), "1 thread");
        assert_eq!(counted(0, "thread"), "0 threads");
    }

    #[test]
    fn obeys_no_text_from_outside() {
        assert_eq!(
            harmless("/a\x1b[2J\n\u{202e}", 40),
            "/a\\x1b[2J\\x0a\\x202e"
        );
        assert_eq!(harmless("abcdef", 4), "abc…");
        assert_eq!(harmless("日本語", 4), "日…");
        assert_eq!(
            escaped("<b title='x'>&\"", 99),
            "&lt;b title=&#39;x&#39;&gt;&amp;&quot;"
        );
    }
}
