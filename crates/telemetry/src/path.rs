//! Paths that name one of many things, as one: `/orders/17` and `/orders/18` are `/orders/*`.
//!
//! Takes the bytes of a path without its query, gives what is common to all paths of its kind. The server counts run
//! times by it, and the tools group requests by it. Knows neither routes nor frameworks.

/// A shorter word of these letters may well be a word.
const HEX_BYTES_MIN: usize = 8;
/// Bytes kept of a method and path.
const NAME_BYTES_MAX: usize = 200;

/// A segment of a path, or `*` for one that names one thing of many: digits, a hex number, a UUID.
pub fn folded_segment(segment: &[u8]) -> &[u8] {
    let has_digit = segment.iter().any(u8::is_ascii_digit);
    let is_number = segment.iter().all(u8::is_ascii_digit);
    let is_hex = segment.len() >= HEX_BYTES_MIN && segment.iter().all(u8::is_ascii_hexdigit);
    match has_digit && (is_number || is_hex || is_uuid(segment)) {
        true => b"*",
        false => segment,
    }
}

/// Appends `GET /orders/*`, at most 200 bytes of it; nothing where both are empty.
pub fn push_folded(method: &[u8], path: &[u8], out: &mut Vec<u8>) {
    let begin = out.len();
    out.extend_from_slice(method);
    for (index, segment) in path.split(|byte| *byte == b'/').enumerate() {
        let before = match (index, method.is_empty() || path.is_empty()) {
            (0, true) => &b""[..],
            (0, false) => b" ",
            _ => b"/",
        };
        out.extend_from_slice(before);
        out.extend_from_slice(folded_segment(segment));
        // A client chooses the length of a path; what is cut off anyway is not folded.
        if out.len() - begin > NAME_BYTES_MAX {
            break;
        }
    }
    out.truncate(begin + NAME_BYTES_MAX);
}

/// RFC 9562 section 4.
fn is_uuid(text: &[u8]) -> bool {
    let fits = |(at, byte): (usize, &u8)| match at {
        8 | 13 | 18 | 23 => *byte == b'-',
        _ => byte.is_ascii_hexdigit(),
    };
    text.len() == 36 && text.iter().enumerate().all(fits)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn folded(method: &str, path: &str) -> String {
        let mut out = b"before ".to_vec();
        push_folded(method.as_bytes(), path.as_bytes(), &mut out);
        String::from_utf8_lossy(&out["before ".len()..]).into_owned()
    }

    #[test]
    fn takes_paths_for_one_that_differ_in_numbers_only() {
        for (path, expect) in [
            ("/", "/"),
            ("/users/17", "/users/*"),
            ("/users/17/", "/users/*/"),
            ("/17/18", "/*/*"),
            ("/v2/x", "/v2/x"),
            ("/a/deadbeef", "/a/deadbeef"),
            ("/a/deadbee5", "/a/*"),
            ("/a/f00", "/a/f00"),
            ("/a/9F8E7D6C5B4A", "/a/*"),
            ("/a/123e4567-e89b-12d3-a456-426614174000/b", "/a/*/b"),
            (
                "/a/123e4567-e89b-12d3-a456-42661417400g",
                "/a/123e4567-e89b-12d3-a456-42661417400g",
            ),
        ] {
            assert_eq!(folded("GET", path), format!("GET {expect}"), "{path}");
            assert_eq!(folded("", path), expect, "{path}");
        }
        assert_eq!(folded("GET", ""), "GET");
        assert_eq!(folded("", ""), "");
    }

    #[test]
    fn names_are_short_whatever_is_asked_for() {
        for path in ["/".repeat(5_000), "/a".repeat(5_000), "b".repeat(5_000)] {
            assert_eq!(folded("GET", &path).len(), NAME_BYTES_MAX);
        }
    }
}
