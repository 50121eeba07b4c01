//! Percent-encoding in targets, RFC 3986 section 2.1.
//!
//! Takes a path as sent, gives its bytes. What a path may then contain (NUL, `..`, other separators) is
//! for its handler to judge.

use memchr::memchr;

/// Appends the bytes that `src` stands for. False, and nothing appended, when a `%` is not followed by two
/// hexadecimal digits. A `+` stays a `+`: it means a space in forms only.
pub fn decode(src: &[u8], out: &mut Vec<u8>) -> bool {
    let kept = out.len();
    let mut rest = src;
    while let Some(percent) = memchr(b'%', rest) {
        let (plain, escape) = rest.split_at(percent);
        out.extend_from_slice(plain);
        let [_, high, low, after @ ..] = escape else {
            out.truncate(kept);
            return false;
        };
        let (Some(high), Some(low)) = (hex(*high), hex(*low)) else {
            out.truncate(kept);
            return false;
        };
        out.push(high << 4 | low);
        rest = after;
    }
    out.extend_from_slice(rest);
    true
}

fn hex(digit: u8) -> Option<u8> {
    match digit {
        b'0'..=b'9' => Some(digit - b'0'),
        b'a'..=b'f' => Some(digit - b'a' + 10),
        b'A'..=b'F' => Some(digit - b'A' + 10),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(src: &str, expect: Option<&[u8]>) {
        let mut out = b"kept".to_vec();
        assert_eq!(decode(src.as_bytes(), &mut out), expect.is_some(), "{src}");
        assert_eq!(out, [b"kept", expect.unwrap_or_default()].concat(), "{src}");
    }

    #[test]
    fn decodes_escapes_and_leaves_the_rest() {
        check("", Some(b""));
        check("/a/b", Some(b"/a/b"));
        check("/a%20b%2Fc%2f+", Some(b"/a b/c/+"));
        check("%00%ff", Some(b"\0\xff"));
        check("%2520", Some(b"%20"));
    }

    #[test]
    fn refuses_bad_escapes_and_appends_nothing() {
        for src in [
            "%", "a%", "a%2", "a%2%20", "%g0", "%0g", "%%20", "a%20%", "% 1", "%+1",
        ] {
            check(src, None);
        }
    }
}
