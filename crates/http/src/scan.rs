//! The slow way of a head: finding its end in bytes that arrive piece by piece, and the first fault of one that
//! is refused.
//!
//! Takes the bytes so far and how many of them an earlier call has searched; gives the end of the head, or
//! which rule is broken. Every fault found here depends only on the bytes before it, so that a head is refused
//! alike however it was cut into pieces.

use memchr::{memchr_iter, memrchr};

use crate::fields::{is_token, is_value};
use crate::head::{method_bytes, target_bytes};
use crate::limits::Limits;
use crate::refusal::Cause;

/// Judges a line whose end has not arrived: the first `bytes` of it.
pub(crate) fn check_unfinished(bytes: &[u8], seen: usize, limits: &Limits) -> Result<(), Cause> {
    let Some(method_bytes) = method_bytes(bytes)? else {
        return Ok(());
    };
    // Once, when the bound is crossed: an earlier call has judged everything before `seen`.
    let bound = method_bytes + 1 + limits.target_bytes_max;
    if bytes.len() > bound && seen <= bound {
        target_bytes(&bytes[method_bytes + 1..], limits)?;
    }
    Ok(())
}

/// End of the head in `bytes`, its empty line included, or `None` when that has not arrived.
///
/// `fields_start` is where the first field line starts, `seen` how many bytes an earlier call has
/// searched. Each byte is searched once, apart from a look back to the start of an unfinished line, at
/// most `header_bytes_max` a call.
pub(crate) fn head_end(
    bytes: &[u8],
    fields_start: usize,
    seen: usize,
    limits: &Limits,
) -> Result<Option<usize>, Cause> {
    let (mut line_start, from) = if seen <= fields_start {
        (fields_start, fields_start)
    } else {
        let line_feed =
            memrchr(b'\n', &bytes[..seen]).expect("the request line ends before `seen`");
        (line_feed + 1, seen)
    };
    for line_feed in memchr_iter(b'\n', &bytes[from..]) {
        let line_feed = from + line_feed;
        if line_feed + 1 - line_start > limits.header_bytes_max {
            return Err(Cause::FieldTooLarge);
        }
        // A lone LF as line end is what one recipient takes for a line end and another for whitespace,
        // RFC 9112 section 2.2.
        if bytes[line_feed - 1] != b'\r' {
            return Err(Cause::BareLf);
        }
        if line_feed - 1 == line_start {
            return Ok(Some(line_feed + 1));
        }
        line_start = line_feed + 1;
    }
    if bytes.len() - line_start >= limits.header_bytes_max {
        return Err(Cause::FieldTooLarge);
    }
    Ok(None)
}

/// Finds out which rule a section broke that httparse refused.
#[cold]
pub(crate) fn fault(section: &[u8]) -> Cause {
    section
        .split_inclusive(|&b| b == b'\n')
        .find_map(|line| check_line(line.strip_suffix(b"\r\n").unwrap_or(line)).err())
        .unwrap_or(Cause::FieldNameByte)
}

/// One field line without its CRLF, RFC 9112 section 5; the head's empty line passes.
fn check_line(line: &[u8]) -> Result<(), Cause> {
    if matches!(line, [b' ' | b'\t', ..]) {
        // RFC 9112 section 5.2.
        return Err(Cause::FieldFold);
    }
    let mut parts = line.splitn(2, |&b| b == b':');
    let name = parts.next().unwrap_or_default();
    let Some(value) = parts.next() else {
        return if line.is_empty() {
            Ok(())
        } else {
            Err(Cause::FieldColon)
        };
    };
    match name {
        [] => Err(Cause::FieldNameEmpty),
        // RFC 9112 section 5.1: this whitespace has let requests be smuggled.
        [.., b' ' | b'\t'] => Err(Cause::FieldNameSpace),
        name if !name.iter().copied().all(is_token) => Err(Cause::FieldNameByte),
        _ => match value.iter().find(|&&b| !is_value(b)) {
            None => Ok(()),
            Some(b'\r') => Err(Cause::BareCr),
            Some(_) => Err(Cause::FieldValueByte),
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LINE: &[u8] = b"GET / HTTP/1.1\r\n";

    fn check(fields: &str, expect: Result<Option<usize>, Cause>) {
        let limits = Limits {
            header_bytes_max: 8,
            ..Limits::default()
        };
        let bytes = [LINE, fields.as_bytes()].concat();
        let start = LINE.len();
        let expect = expect.map(|end| end.map(|end| start + end));
        assert_eq!(head_end(&bytes, start, 0, &limits), expect, "{fields:?}");
        for seen in start..bytes.len() {
            let early = head_end(&bytes[..seen], start, 0, &limits);
            let result = match early {
                Ok(None) => head_end(&bytes, start, seen, &limits),
                early => early,
            };
            assert_eq!(result, expect, "{fields:?} after {seen}");
        }
    }

    #[test]
    fn finds_the_empty_line_from_wherever_the_search_stopped() {
        check("", Ok(None));
        check("\r", Ok(None));
        check("\r\n", Ok(Some(2)));
        check("a: b\r\n\r\n", Ok(Some(8)));
        check("a: b\r\n\r\nGET \n", Ok(Some(8)));
        check("a: b\r\nc: d\r\n\r", Ok(None));
        check("a: 345\r\n\r\n", Ok(Some(10)));
    }

    #[test]
    fn refuses_bare_line_feeds_and_long_lines_at_their_byte() {
        check("\n", Err(Cause::BareLf));
        check("a: b\n", Err(Cause::BareLf));
        check("a: b\r\n\n", Err(Cause::BareLf));
        check("a: 3456\r\n", Err(Cause::FieldTooLarge));
        check("a: 34567", Err(Cause::FieldTooLarge));
        check("a: b\r\na: 34567", Err(Cause::FieldTooLarge));
    }
}
