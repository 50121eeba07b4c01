//! Escapes undone.
//!
//! Takes text as it was written, gives it as it was meant; what needs no change is borrowed. Knows our
//! `\xHH`, the short escapes of httpd and NaviServer, and JSON's. A wrong escape stays as it is.

use std::borrow::Cow;

use memchr::memchr;

/// From between the quotes of a JSON string; one with a wrong escape stays as it is.
pub(super) fn json(field: &[u8]) -> Cow<'_, [u8]> {
    // Nearly all fields: nothing to undo, and nothing to allocate.
    if memchr(b'\\', field).is_none() {
        return Cow::Borrowed(field);
    }
    let quoted = [b"\"", field, b"\""].concat();
    match serde_json::from_slice::<String>(&quoted) {
        Ok(plain) => Cow::Owned(plain.into_bytes()),
        Err(_) => Cow::Borrowed(field),
    }
}

/// Of a text form.
pub(super) fn text(field: &[u8]) -> Cow<'_, [u8]> {
    let Some(first) = memchr(b'\\', field) else {
        return Cow::Borrowed(field);
    };
    let mut out = Vec::with_capacity(field.len());
    out.extend_from_slice(&field[..first]);
    let mut rest = &field[first..];
    while !rest.is_empty() {
        let taken = text_escape(rest, &mut out);
        // What the escape took is behind us; up to the next backslash all is as it was meant.
        rest = &rest[taken..];
        let (plain, more) = match taken {
            // A backslash that begins no escape.
            0 => rest.split_at(1),
            _ => (&b""[..], rest),
        };
        out.extend_from_slice(plain);
        let at = memchr(b'\\', more).unwrap_or(more.len());
        out.extend_from_slice(&more[..at]);
        rest = &more[at..];
    }
    Cow::Owned(out)
}

/// Appends what the escape at the start of `rest` means, and gives the bytes that it took; 0 for none.
fn text_escape(rest: &[u8], out: &mut Vec<u8>) -> usize {
    let (byte, taken) = match *rest {
        [_, b'x', high, low, ..] => match (digit(high), digit(low)) {
            (Some(high), Some(low)) => (high << 4 | low, 4),
            _ => return 0,
        },
        [_, byte @ (b'"' | b'\\'), ..] => (byte, 2),
        [_, b'n', ..] => (b'\n', 2),
        [_, b'r', ..] => (b'\r', 2),
        [_, b't', ..] => (b'\t', 2),
        [_, b'v', ..] => (b'\x0b', 2),
        [_, b'b', ..] => (b'\x08', 2),
        _ => return 0,
    };
    out.push(byte);
    taken
}

fn digit(byte: u8) -> Option<u8> {
    char::from(byte).to_digit(16).map(|value| value as u8)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn undoes_the_escapes_of_text() {
        let check = |written: &str, expect: &[u8]| {
            assert_eq!(text(written.as_bytes()), expect, "{written}");
        };
        check("plain", b"plain");
        check("a\\x22b\\x5Cc\\xff", b"a\"b\\c\xff");
        check("\\\"quoted\\\" \\\\ \\n\\t", b"\"quoted\" \\ \n\t");
        check("\\x2", b"\\x2");
        check("\\xzz\\", b"\\xzz\\");
        check("\\q\\x41", b"\\qA");
    }

    #[test]
    fn undoes_the_escapes_of_json() {
        let check = |written: &str, expect: &str| {
            assert_eq!(json(written.as_bytes()), expect.as_bytes(), "{written}");
        };
        check("a\\\"b\\\\c\\/d\\n", "a\"b\\c/d\n");
        check("caf\\u00e9 \\ud83d\\ude00", "caf\u{e9} \u{1f600}");
        check("\\ud83d alone", "\\ud83d alone");
        check("\\u12", "\\u12");
    }

    proptest! {
        #[test]
        fn garbage_never_panics(bytes in prop::collection::vec(prop::sample::select(&b"\\xu0adn\"\xff"[..]), 0..40)) {
            let _ = (text(&bytes), json(&bytes));
        }
    }
}
