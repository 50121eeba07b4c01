//! Classes of bytes, as tables: which may stand in a token, a target, a field value; and numbers as bytes.
//!
//! Takes bytes, gives yes or no; knows nothing of what is being parsed or written.

const TOKEN: u8 = 1;
const TARGET: u8 = 2;
const VALUE: u8 = 4;
const HOST: u8 = 8;

/// The most digits that a `u64` has.
pub(crate) const DECIMAL_BYTES_MAX: usize = 20;

const CLASSES: [u8; 256] = classes();

const fn classes() -> [u8; 256] {
    let mut table = [0; 256];
    let mut byte = 0;
    while byte < 256 {
        let b = byte as u8;
        if b.is_ascii_alphanumeric() {
            table[byte] |= TOKEN | HOST;
        }
        if b.is_ascii_graphic() {
            table[byte] |= TARGET;
        }
        if b == b'\t' || (b >= b' ' && b != 0x7f) {
            table[byte] |= VALUE;
        }
        byte += 1;
    }
    // The punctuation of `tchar`, RFC 9110 section 5.6.2.
    add(&mut table, b"!#$%&'*+-.^_`|~", TOKEN);
    // The punctuation of `unreserved` and `sub-delims`, RFC 3986 sections 2.2 and 2.3.
    add(&mut table, b"-._~!$&'()*+,;=", HOST);
    table
}

const fn add(table: &mut [u8; 256], bytes: &[u8], class: u8) {
    let mut at = 0;
    while at < bytes.len() {
        table[bytes[at] as usize] |= class;
        at += 1;
    }
}

/// May stand in a method or a field name: `tchar`, RFC 9110 section 5.6.2.
#[inline]
pub(crate) fn is_token(b: u8) -> bool {
    CLASSES[b as usize] & TOKEN != 0
}

/// May stand in a target: visible ASCII. Wider than RFC 3986, because browsers send `|` and `"` raw in
/// queries and nothing behind us is confused by them; narrower than most parsers, which let bytes above
/// 0x7f through.
#[inline]
pub(crate) fn is_target(b: u8) -> bool {
    CLASSES[b as usize] & TARGET != 0
}

/// May stand in a field value: `field-vchar`, space, tab and `obs-text`, RFC 9110 section 5.5.
#[inline]
pub(crate) fn is_value(b: u8) -> bool {
    CLASSES[b as usize] & VALUE != 0
}

/// May stand unescaped in the name of a host: `unreserved` and `sub-delims`, RFC 3986 section 3.2.2.
#[inline]
pub(crate) fn is_host_name(b: u8) -> bool {
    CLASSES[b as usize] & HOST != 0
}

/// Whether `name` may be a field's: a token, RFC 9110 section 5.6.2.
pub(crate) fn is_field_name(name: &[u8]) -> bool {
    !name.is_empty() && name.iter().fold(true, |good, &b| good & is_token(b))
}

/// Whether `value` may be a field's, or a reason phrase: no control character but the tab, RFC 9110 section 5.5
/// and RFC 9112 section 4.
///
/// Without a branch or a table per byte, so that the compiler makes vectors of it.
#[inline]
pub fn is_field_value(value: &[u8]) -> bool {
    !value.iter().fold(false, |bad, &b| {
        bad | ((b < 0x20) & (b != b'\t')) | (b == 0x7f)
    })
}

/// Appends a number in decimal.
pub(crate) fn write_decimal(out: &mut Vec<u8>, number: u64) {
    let mut digits = [0; DECIMAL_BYTES_MAX];
    let mut start = DECIMAL_BYTES_MAX;
    let mut left = number;
    loop {
        start -= 1;
        digits[start] = b'0' + (left % 10) as u8;
        left /= 10;
        if left == 0 {
            break;
        }
    }
    out.extend_from_slice(&digits[start..]);
}

/// `value` without the optional whitespace around it, RFC 9110 section 5.6.3.
pub(crate) fn trim(value: &[u8]) -> &[u8] {
    let Some(start) = value.iter().position(|&b| b != b' ' && b != b'\t') else {
        return &[];
    };
    let end = value
        .iter()
        .rposition(|&b| b != b' ' && b != b'\t')
        .map_or(start, |last| last + 1);
    &value[start..end]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn classes_agree_with_the_grammar_for_every_byte() {
        for b in 0..=255u8 {
            let token = b.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&b);
            assert_eq!(is_token(b), token, "{b:#x}");
            assert_eq!(is_target(b), (0x21..=0x7e).contains(&b), "{b:#x}");
            let value = b == 9 || (0x20..=0x7e).contains(&b) || b >= 0x80;
            assert_eq!(is_value(b), value, "{b:#x}");
            assert_eq!(is_field_value(&[b'a', b, b'a']), value, "{b:#x}");
            assert_eq!(is_field_name(&[b'a', b, b'a']), token, "{b:#x}");
            let host = b.is_ascii_alphanumeric() || b"-._~!$&'()*+,;=".contains(&b);
            assert_eq!(is_host_name(b), host, "{b:#x}");
        }
    }

    #[test]
    fn trims_spaces_and_tabs_only() {
        for (value, expect) in [
            (&b" \t a b\t"[..], &b"a b"[..]),
            (b"", b""),
            (b" \t", b""),
            (b"\x0ba", b"\x0ba"),
        ] {
            assert_eq!(trim(value), expect);
        }
    }
}
