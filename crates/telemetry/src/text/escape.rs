//! Bytes from outside made harmless for a line of text.
//!
//! A log line is read by people, shells and parsers: a newline in a header would forge a second
//! line, an escape sequence would drive the reader's terminal, a quote would end a field. Almost
//! every string is clean, so each goes out by one copy after one scan. It must not cut or drop bytes.

/// What a byte needs: nothing, or an escape in unquoted text only, or everywhere.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Class {
    Clean,
    /// Would shift the fields of a line when it stands outside quotes.
    Shifts,
    Dirty,
}

const CLASSES: [Class; 256] = classes();
const HEX: &[u8; 16] = b"0123456789abcdef";

/// Appends text that stands between quotes.
#[inline]
pub(super) fn push_quoted(out: &mut Vec<u8>, text: &[u8]) {
    if is_clean(text) {
        out.extend_from_slice(text);
    } else {
        push_escaped(out, text, |byte| CLASSES[usize::from(byte)] == Class::Dirty);
    }
}

/// Appends text that stands between spaces.
#[inline]
pub(super) fn push_bare(out: &mut Vec<u8>, text: &[u8]) {
    push_escaped(out, text, |byte| CLASSES[usize::from(byte)] != Class::Clean);
}

/// Text that stands between spaces, in a buffer of its own.
pub(super) fn bare(text: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(text.len());
    push_bare(&mut out, text);
    out
}

/// Appends text whose `listed` bytes are escaped; the list has at least those of [`bare_bytes`].
#[inline]
pub(super) fn push_listed(out: &mut Vec<u8>, text: &[u8], listed: &[bool; 256]) {
    push_escaped(out, text, |byte| listed[usize::from(byte)]);
}

/// Whether each byte is escaped in text that stands between spaces.
pub(super) fn bare_bytes() -> [bool; 256] {
    CLASSES.map(|class| class != Class::Clean)
}

/// What stands for a text that is not known.
#[inline]
pub(super) fn or_dash(text: &[u8]) -> &[u8] {
    if text.is_empty() { b"-" } else { text }
}

/// Appends text that stands between the quotes of a JSON string (RFC 8259 section 7).
///
/// UTF-8 stays; a byte that is no UTF-8 becomes the character of the same number, `\u00HH`.
#[inline]
pub(super) fn push_json(out: &mut Vec<u8>, text: &[u8]) {
    if is_clean(text) {
        out.extend_from_slice(text);
    } else {
        push_json_escaped(out, text);
    }
}

/// Text between the quotes of a JSON string, in a buffer of its own.
pub fn json(text: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(text.len());
    push_json(&mut out, text);
    out
}

/// Whether no byte needs an escape.
#[inline]
fn is_clean(text: &[u8]) -> bool {
    let by_parts = || parts_are_clean::<16>(text).or_else(|| parts_are_clean::<8>(text));
    by_parts().unwrap_or_else(|| !text.iter().any(|&byte| is_dirty(byte)))
}

/// By `LEN` bytes at a time, the last of which may overlap those before; `None` for a shorter text. Without a way out of
/// a part, so that it becomes a few vector instructions: 10 ns instead of the table's 28 for an ordinary User-Agent.
#[inline]
fn parts_are_clean<const LEN: usize>(text: &[u8]) -> Option<bool> {
    let has_dirty =
        |part: &[u8; LEN]| (part.iter()).fold(false, |dirty, &byte| dirty | is_dirty(byte));
    let last = text.last_chunk::<LEN>()?;
    let (parts, _) = text.as_chunks::<LEN>();
    Some(!(parts.iter().any(has_dirty) || has_dirty(last)))
}

#[inline]
const fn is_dirty(byte: u8) -> bool {
    // 0x20..=0x7e moved to 0..=0x5e: one comparison for both ends.
    (byte.wrapping_sub(0x20) > 0x5e) | (byte == b'"') | (byte == b'\\')
}

#[inline]
fn push_escaped(out: &mut Vec<u8>, text: &[u8], is_escaped: impl Fn(u8) -> bool) {
    let mut rest = text;
    while let Some(at) = rest.iter().position(|&byte| is_escaped(byte)) {
        out.extend_from_slice(&rest[..at]);
        let [high, low] = hex(rest[at]);
        out.extend_from_slice(&[b'\\', b'x', high, low]);
        rest = &rest[at + 1..];
    }
    out.extend_from_slice(rest);
}

#[cold]
fn push_json_escaped(out: &mut Vec<u8>, text: &[u8]) {
    for chunk in text.utf8_chunks() {
        for character in chunk.valid().chars() {
            push_json_char(out, character);
        }
        // As the character of the same number: nothing is lost, and the line stays UTF-8.
        for &byte in chunk.invalid() {
            push_json_code(out, byte);
        }
    }
}

fn push_json_char(out: &mut Vec<u8>, character: char) {
    match character {
        '"' | '\\' => out.extend_from_slice(&[b'\\', character as u8]),
        // Also DEL and U+0080 to U+009F: legal in JSON, but some terminals obey them.
        '\0'..='\x1f' | '\x7f'..='\u{9f}' => push_json_code(out, character as u8),
        _ => out.extend_from_slice(character.encode_utf8(&mut [0; 4]).as_bytes()),
    }
}

fn push_json_code(out: &mut Vec<u8>, byte: u8) {
    let [high, low] = hex(byte);
    out.extend_from_slice(&[b'\\', b'u', b'0', b'0', high, low]);
}

const fn hex(byte: u8) -> [u8; 2] {
    [HEX[(byte >> 4) as usize], HEX[(byte & 15) as usize]]
}

const fn classes() -> [Class; 256] {
    let mut table = [Class::Clean; 256];
    let mut byte = 0;
    while byte < 256 {
        table[byte] = match byte as u8 {
            b' ' | b'[' | b']' => Class::Shifts,
            value if is_dirty(value) => Class::Dirty,
            _ => Class::Clean,
        };
        byte += 1;
    }
    table
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(push: fn(&mut Vec<u8>, &[u8]), text: &[u8], expect: &str) {
        let mut out = Vec::new();
        push(&mut out, text);
        assert_eq!(String::from_utf8(out).unwrap(), expect);
    }

    #[test]
    fn escapes_what_could_end_a_field() {
        check(
            push_quoted,
            b"Mozilla/5.0 (X11) [en]",
            "Mozilla/5.0 (X11) [en]",
        );
        check(push_quoted, b"", "");
        check(
            push_quoted,
            b"a\"b\\c\r\nd\x7f\xc3\xa9\0",
            "a\\x22b\\x5cc\\x0d\\x0ad\\x7f\\xc3\\xa9\\x00",
        );
        check(push_bare, b"a b]c\"", "a\\x20b\\x5dc\\x22");
    }

    #[test]
    fn json_keeps_utf8_and_shows_every_other_byte() {
        check(push_json, b"plain /path?x=1", "plain /path?x=1");
        check(push_json, "\u{e9}\u{1f600}".as_bytes(), "\u{e9}\u{1f600}");
        check(push_json, b"\"\\\n\x7f", "\\\"\\\\\\u000a\\u007f");
        check(push_json, "\u{9b}31m".as_bytes(), "\\u009b31m");
        check(push_json, b"\xff\xc3", "\\u00ff\\u00c3");
        // A surrogate and an overlong slash are no UTF-8.
        check(
            push_json,
            b"\xed\xa0\x80\xc0\xaf",
            "\\u00ed\\u00a0\\u0080\\u00c0\\u00af",
        );
    }

    #[test]
    fn every_byte_is_clean_or_escaped() {
        for byte in 0..=255u8 {
            let plain = (0x20..0x7f).contains(&byte) && byte != b'"' && byte != b'\\';
            let mut out = Vec::new();
            push_quoted(&mut out, &[byte]);
            let expect = if plain {
                vec![byte]
            } else {
                format!("\\x{byte:02x}").into_bytes()
            };
            assert_eq!(out, expect);
        }
    }
}
