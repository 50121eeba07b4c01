//! The primitive steps through a line: numbers, seconds, quoted text.
//!
//! Each takes bytes and gives what it found with the rest, or nothing. Knows no field.

use memchr::memchr;

use crate::Nanos;

/// What stands before the first `byte`, and what after it.
#[inline]
pub(super) fn until(byte: u8, text: &[u8]) -> Option<(&[u8], &[u8])> {
    let at = memchr(byte, text)?;
    Some((&text[..at], &text[at + 1..]))
}

/// What stands before the first `byte`, or all; the rest begins after it.
#[inline]
pub(super) fn word(byte: u8, text: &[u8]) -> (&[u8], &[u8]) {
    until(byte, text).unwrap_or((text, b""))
}

/// Quoted text whose opening quote was taken: up to the closing one, which is the first that no backslash
/// escapes; the rest begins after it.
#[inline]
pub(super) fn quoted(text: &[u8]) -> Option<(&[u8], &[u8])> {
    let mut from = 0;
    loop {
        let at = from + memchr(b'"', &text[from..])?;
        // Our own lines have no backslash before a quote; httpd and NaviServer write `\"` and `\\`.
        let slashes = text[from..at]
            .iter()
            .rev()
            .take_while(|&&byte| byte == b'\\')
            .count();
        if slashes % 2 == 0 {
            return Some((&text[..at], &text[at + 1..]));
        }
        from = at + 1;
    }
}

/// A whole number in decimal digits and nothing else.
#[inline]
pub(super) fn number(text: &[u8]) -> Option<u64> {
    // Nineteen digits fit into 64 bits whatever they are, so that no digit has to be checked for overflow.
    if text.is_empty() || text.len() > 19 {
        return None;
    }
    let mut value = 0;
    for &byte in text {
        let digit = byte.wrapping_sub(b'0');
        if digit > 9 {
            return None;
        }
        // 19 digits fit.
        value = value * 10 + u64::from(digit);
    }
    Some(value)
}

/// A number of things that are never many.
#[inline]
pub(super) fn count(text: &[u8]) -> Option<u32> {
    u32::try_from(number(text)?).ok()
}

/// Seconds as a decimal number with at most nine places that count: `12.000345`.
#[inline]
pub(super) fn seconds(text: &[u8]) -> Option<Nanos> {
    if let &[whole, b'.', a, b, c, d, e, f] = text {
        // How our own lines have almost all of them; all digits at once.
        let digits = [whole, a, b, c, d, e, f].map(|byte| byte.wrapping_sub(b'0'));
        // Without an early exit, so that the compiler checks all digits at once.
        if digits.iter().fold(false, |bad, &digit| bad | (digit > 9)) {
            return None;
        }
        let [whole, a, b, c, d, e, f] = digits.map(u64::from);
        let us = (a * 10 + b) * 10_000 + (c * 10 + d) * 100 + e * 10 + f;
        return Some(Nanos(whole * 1_000_000_000 + us * 1_000));
    }
    any_seconds(text)
}

fn any_seconds(text: &[u8]) -> Option<Nanos> {
    if text.iter().any(|byte| matches!(byte, b'e' | b'E')) {
        return with_exponent(text);
    }
    let (whole, places) = match until(b'.', text) {
        Some((_, b"")) => return None,
        Some(parts) => parts,
        None => (text, &b""[..]),
    };
    let secs = number(whole)?;
    let mut ns = 0;
    let mut unit = 100_000_000;
    for &byte in places {
        let digit = byte.wrapping_sub(b'0');
        if digit > 9 {
            return None;
        }
        // The tenth place and later ones count nothing: the unit is zero by then.
        ns += u64::from(digit) * unit;
        unit /= 10;
    }
    Some(Nanos(secs.checked_mul(1_000_000_000)?.checked_add(ns)?))
}

/// As `5.7e-05`, which programs that pass JSON lines on write; to the nanosecond.
#[cold]
fn with_exponent(text: &[u8]) -> Option<Nanos> {
    let secs: f64 = std::str::from_utf8(text).ok()?.parse().ok()?;
    let is_duration = (0.0..1e9).contains(&secs);
    is_duration.then(|| Nanos((secs * 1e9).round() as u64))
}

/// A status code; also whether it is one: `-` and 0 mean that there was no reply.
#[inline]
pub(super) fn status(text: &[u8]) -> Option<Option<u16>> {
    if text == b"-" {
        return Some(None);
    }
    match number(text)? {
        0 => Some(None),
        code @ 100..=999 => Some(Some(code as u16)),
        _ => None,
    }
}

/// The parts of a request line; a text that has none of them is given back as the last part.
#[inline]
pub(super) fn request(text: &[u8]) -> [&[u8]; 4] {
    let Some((method, rest)) = until(b' ', text) else {
        // NaviServer leaves only the path when it leaves out the query.
        return match text {
            b"-" => [b"", b"", b"", b""],
            [b'/', ..] => [b"", text, b"", b""],
            _ => [b"", b"", b"", text],
        };
    };
    // The last space: a target may have spaces where another server wrote it as it came.
    let (target, version) = match memchr::memrchr(b' ', rest) {
        Some(at) if rest[at + 1..].starts_with(b"HTTP/") => (&rest[..at], &rest[at + 1..]),
        _ => (rest, &b""[..]),
    };
    let is_method = !method.is_empty() && method.iter().all(|&byte| is_method_byte(byte));
    if is_method && !target.is_empty() && (!version.is_empty() || memchr(b' ', target).is_none()) {
        [method, super::known(target), version, b""]
    } else {
        [b"", b"", b"", text]
    }
}

/// RFC 9110 section 5.6.2, without what is escaped in logs.
#[inline]
fn is_method_byte(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&byte)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn ends_quoted_text_at_the_first_unescaped_quote() {
        let check = |text: &'static str, expect: Option<(&str, &str)>| {
            let found = quoted(text.as_bytes());
            let expect = expect.map(|(one, two)| (one.as_bytes(), two.as_bytes()));
            assert_eq!(found, expect, "{text}");
        };
        check("a\" b", Some(("a", " b")));
        check("\"", Some(("", "")));
        check("a\\\"b\"c", Some(("a\\\"b", "c")));
        check("a\\\\\"b\"c", Some(("a\\\\", "b\"c")));
        check("\\\"\\\"\"", Some(("\\\"\\\"", "")));
        check("never", None);
        check("never\\\"", None);
    }

    #[test]
    fn reads_seconds_of_every_length() {
        let check = |text: &str, expect: Option<u64>| {
            assert_eq!(seconds(text.as_bytes()), expect.map(Nanos), "{text}");
        };
        check("0.000123", Some(123_000));
        check("9.999999", Some(9_999_999_000));
        check("12.5", Some(12_500_000_000));
        check("3", Some(3_000_000_000));
        check("1448022459.317562", Some(1_448_022_459_317_562_000));
        check("0.1234567891", Some(123_456_789));
        check("5.7e-05", Some(57_000));
        for bad in [
            "",
            ".",
            "1.",
            ".5",
            "-0.000001",
            "0.00012x",
            "x.000123",
            "1e",
            "0.0001 3",
            "99999999999999999999",
        ] {
            check(bad, None);
        }
    }

    #[test]
    fn takes_request_lines_apart() {
        let check = |text: &'static str, expect: [&str; 4]| {
            assert_eq!(
                request(text.as_bytes()),
                expect.map(str::as_bytes),
                "{text}"
            );
        };
        check("GET /x HTTP/1.1", ["GET", "/x", "HTTP/1.1", ""]);
        check("GET /x y HTTP/1.1", ["GET", "/x y", "HTTP/1.1", ""]);
        check("GET /old", ["GET", "/old", "", ""]);
        check("OPTIONS * HTTP/1.1", ["OPTIONS", "*", "HTTP/1.1", ""]);
        check("GET - HTTP/1.1", ["GET", "", "HTTP/1.1", ""]);
        check("-", ["", "", "", ""]);
        check("", ["", "", "", ""]);
        check("/only/path", ["", "/only/path", "", ""]);
        check(
            "\\x16\\x03\\x01 \\x22",
            ["", "", "", "\\x16\\x03\\x01 \\x22"],
        );
        check("what is this", ["", "", "", "what is this"]);
    }

    proptest! {
        #[test]
        fn seconds_are_exact(us in 0..100_000_000_000u64) {
            let text = format!("{}.{:06}", us / 1_000_000, us % 1_000_000);
            prop_assert_eq!(seconds(text.as_bytes()), Some(Nanos(us * 1_000)));
        }
    }
}
