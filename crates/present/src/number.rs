//! Numbers with their units, as people read them.
//!
//! Takes a number, gives text: three digits that say something in running text, a chosen number of them in columns.

/// For a number that there is not, or that would be an accident.
pub const NONE: &str = "–";
/// A longer number is written as its magnitude.
const CHARS_MAX: usize = 9;
/// Digits in running text: more of them would claim more than a measurement tells.
const DIGITS: i32 = 3;
/// Cells of a progress bar.
const CELLS_LEN: usize = 16;

const DURATIONS: [(f64, &str); 4] = [(1.0, "s"), (1e-3, "ms"), (1e-6, "µs"), (1e-9, "ns")];
/// Powers of 1024, as in all settings of sizes.
const SIZES: [(f64, &str); 7] = [
    ((1u64 << 60) as f64, "EB"),
    ((1u64 << 50) as f64, "PB"),
    ((1u64 << 40) as f64, "TB"),
    ((1u64 << 30) as f64, "GB"),
    ((1u64 << 20) as f64, "MB"),
    ((1u64 << 10) as f64, "KB"),
    (1.0, "B"),
];

/// 1234567 as `1,234,567`.
pub fn thousands(value: u64) -> String {
    grouped(&value.to_string())
}

/// `1 thread`, `2 threads`.
pub fn counted(len: u64, noun: &str) -> String {
    let ending = if len == 1 { "" } else { "s" };
    format!("{} {noun}{ending}", thousands(len))
}

/// A number in running text: `0`, `0.25`, `12.5`, `1,234`.
pub fn number(value: f64) -> String {
    fitted(trimmed(digits(value, DIGITS, DIGITS)), value, CHARS_MAX)
}

/// A number in a column, with `significant` digits and at most `places_max` places: `0.0523`, `5.230`, `52.30`, `5,230`.
pub fn digits(value: f64, significant: i32, places_max: i32) -> String {
    assert!(significant > 0, "a number has at least one digit");
    if !value.is_finite() {
        return NONE.to_owned();
    }
    // The exponent after rounding: 9.996 has two digits before its point.
    let rounded = format!("{value:.*e}", (significant - 1).max(0) as usize);
    let magnitude = rounded
        .split_once('e')
        .and_then(|(_, power)| power.parse::<i32>().ok())
        .unwrap_or(0);
    // Digits before the point are never cut: they may be more than was asked for, and places are none then.
    let places = (significant - 1 - magnitude).clamp(0, places_max);
    let text = grouped(&format!("{value:.*}", places as usize));
    // What the places cannot show is nothing: `0.000000` would claim to know six digits of it.
    match text.contains(|digit: char| digit.is_ascii_digit() && digit != '0') {
        true => text,
        false => "0".to_owned(),
    }
}

/// A duration in seconds: `250 µs`, `12.5 ms`, `3.2 s`.
pub fn duration(seconds: f64) -> String {
    match seconds {
        0.0 => "0 s".to_owned(),
        _ => scaled(seconds, &DURATIONS),
    }
}

/// Bytes in powers of 1024; a share of a byte is none.
pub fn bytes(value: f64) -> String {
    match value.abs() < 1.0 {
        true => "0 B".to_owned(),
        false => scaled(value, &SIZES),
    }
}

/// A part of a whole in percent.
pub fn percent(part: u64, whole: u64) -> String {
    share(part as f64 / whole as f64)
}

/// A share of 0 to 1 in percent: one place, and more for what would be shown as nothing.
pub fn share(value: f64) -> String {
    match 100.0 * value {
        value if !value.is_finite() => NONE.to_owned(),
        0.0 => "0 %".to_owned(),
        value if value.abs() < 0.05 => {
            let text = digits(value, 2, 6);
            let text = if text == "0" { "< 0.000001" } else { &text };
            format!("{text} %")
        }
        value => format!("{} %", fitted(format!("{value:.1}"), value, CHARS_MAX)),
    }
}

/// A share in a column of shares, where none needs more than one place: `< 0.1 %` for less than the place can show.
pub fn column_share(value: f64) -> String {
    match value.is_finite() && value > 0.0 && value < 0.000_5 {
        true => "< 0.1 %".to_owned(),
        false => share(value),
    }
}

/// `[########........]  50 %`, of a share from 0 to 1.
pub fn progress(done: f64) -> String {
    let done = done.clamp(0.0, 1.0);
    // Rounded down: a bar that is full says that something has ended.
    let cells = (done * CELLS_LEN as f64) as usize;
    let (full, rest) = ("#".repeat(cells), ".".repeat(CELLS_LEN - cells));
    format!("[{full}{rest}] {:3.0} %", done * 100.0)
}

/// The text of a value, or its magnitude where the text is longer than `chars_max`.
pub fn fitted(text: String, value: f64, chars_max: usize) -> String {
    let magnitude = || [format!("{value:.1e}"), format!("{value:.0e}")];
    match text.len() > chars_max {
        // A hostile exponent has three digits: without its place behind the point it fits nearly always.
        true => {
            let [long, short] = magnitude();
            if long.len() > chars_max { short } else { long }
        }
        false => text,
    }
}

/// In the largest unit of which there is one, in falling order.
fn scaled(value: f64, units: &[(f64, &str)]) -> String {
    if !value.is_finite() {
        return NONE.to_owned();
    }
    // Half of the last digit below a unit is that unit: 999.7 µs are 1 ms.
    let holds = |(unit, _): &&(f64, &str)| value.abs() >= unit * 0.9995;
    // What is smaller than the smallest unit is still written in it.
    let found = units.iter().find(holds).or(units.last());
    let (unit, name) = found.copied().unwrap_or((1.0, ""));
    format!("{} {name}", number(value / unit))
}

/// Without noughts behind the last digit that says something.
fn trimmed(text: String) -> String {
    match text.contains('.') {
        true => text.trim_end_matches('0').trim_end_matches('.').to_owned(),
        false => text,
    }
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shows_the_digits_that_count() {
        let check = |value: f64, figures: (i32, i32), expect: &str| {
            assert_eq!(digits(value, figures.0, figures.1), expect);
        };
        check(0.0, (4, 3), "0");
        check(0.052_3, (4, 3), "0.052");
        check(9.999_96, (4, 3), "10.00");
        check(52.301, (4, 3), "52.30");
        check(9_999.7, (4, 3), "10,000");
        check(f64::NAN, (4, 3), NONE);
        check(0.054_7, (4, 6), "0.05470");
        check(0.000_123, (4, 6), "0.000123");
        check(0.000_000_4, (4, 6), "0");
        check(-12_345.6, (3, 3), "-12,346");
    }

    #[test]
    fn shows_numbers_with_their_units() {
        for (text, expect) in [
            (thousands(1_234_567), "1,234,567"),
            (counted(1, "thread"), "1 thread"),
            (counted(0, "thread"), "0 threads"),
            (number(0.25), "0.25"),
            (number(2.0), "2"),
            (number(63_912.3), "63,912"),
            (number(12_345_678.0), "1.2e7"),
            (duration(0.0), "0 s"),
            (duration(1e-7), "100 ns"),
            (duration(0.000_25), "250 µs"),
            (duration(0.000_999_7), "1 ms"),
            (duration(0.005_432), "5.43 ms"),
            (duration(3.0), "3 s"),
            (bytes(0.4), "0 B"),
            (bytes(1_023.0), "1,023 B"),
            (bytes(1_536.0), "1.5 KB"),
            (bytes(u64::MAX as f64), "16 EB"),
            (percent(1, 3), "33.3 %"),
            (percent(0, 0), NONE),
            (share(0.000_012), "0.0012 %"),
            (share(1e-12), "< 0.000001 %"),
            (share(1.0), "100.0 %"),
            (column_share(0.000_000_2), "< 0.1 %"),
            (column_share(0.000_5), "0.1 %"),
            (column_share(0.0), "0 %"),
            (column_share(f64::NAN), NONE),
            (progress(0.5), "[########........]  50 %"),
        ] {
            assert_eq!(text, expect);
        }
    }
}
