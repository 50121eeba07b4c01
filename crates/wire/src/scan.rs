//! Finding the end of a head in bytes that arrive piece by piece, and refusing bad line ends on the way.
//!
//! Takes the bytes so far and how many of them an earlier call has searched; gives the end of the request
//! line and the end of the head. Every fault found here depends only on the bytes before it, so that a
//! head is refused alike however it was cut into pieces. It must not look at what the lines say.

use memchr::{memchr_iter, memrchr};

use crate::limits::Limits;
use crate::refusal::Cause;

/// Where the request line starts: behind at most one empty line, which a server should tolerate because
/// some clients send a line end after a body that does not count it (RFC 9112 section 2.2).
///
/// `None` while this cannot be known yet.
pub(crate) fn request_line_start(bytes: &[u8]) -> Option<usize> {
    match bytes {
        [b'\r', b'\n', _, ..] => Some(2),
        [] | [b'\r'] | [b'\r', b'\n'] => None,
        _ => Some(0),
    }
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

    #[test]
    fn skips_one_empty_line_before_the_request() {
        for (bytes, expect) in [
            (&b"GET"[..], Some(0)),
            (b"\r\nGET", Some(2)),
            (b"\r\n\r\nGET", Some(2)),
            (b"\n", Some(0)),
            (b"\rG", Some(0)),
            (b"", None),
            (b"\r", None),
            (b"\r\n", None),
        ] {
            assert_eq!(request_line_start(bytes), expect, "{bytes:?}");
        }
    }
}
