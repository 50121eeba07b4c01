//! Paths of requests in their normal form: no dot segments, and no escapes of characters that need none.
//!
//! Takes a path as sent, gives the one that routes are matched with. Pure. An upstream or an application may resolve
//! `/public/../admin` and decode `/%61dmin`: a route that looked at the path as sent would let such requests pass by the
//! user or the addresses that it asks for. Escaped slashes, double slashes and parameters (`;x`) stay as they are.

use memchr::memchr2_iter;

/// A path as routes are matched with it.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum NormalPath {
    /// It was sent so.
    AsSent,
    /// Not as it was sent; `had_dots`: with dot segments.
    Changed { path: Vec<u8>, had_dots: bool },
    /// It has more `..` than segments before them.
    AboveRoot,
}

impl NormalPath {
    /// The normal form of `path`, which begins with a slash. Costs one search where it was sent so.
    pub(crate) fn of(path: &[u8]) -> Self {
        let is_odd = |at: usize| match path[at] {
            b'%' => unreserved(&path[at..]).is_some(),
            _ => path[at - 1] == b'/' && is_dot_segment(segment(&path[at..])),
        };
        if !memchr2_iter(b'%', b'.', path).any(is_odd) {
            return NormalPath::AsSent;
        }
        let decoded = with_unreserved(path);
        let had_dots = decoded[1..].split(|byte| *byte == b'/').any(is_dot_segment);
        if !had_dots {
            return NormalPath::Changed {
                path: decoded,
                had_dots,
            };
        }
        match without_dots(&decoded) {
            Some(path) => NormalPath::Changed { path, had_dots },
            None => NormalPath::AboveRoot,
        }
    }
}

/// The bytes up to the next slash.
fn segment(path: &[u8]) -> &[u8] {
    let end = memchr::memchr(b'/', path).unwrap_or(path.len());
    &path[..end]
}

fn is_dot_segment(segment: &[u8]) -> bool {
    matches!(segment, b"." | b"..")
}

/// The unreserved character that the escape at the beginning of `text` stands for (RFC 3986 section 6.2.2.2).
fn unreserved(text: &[u8]) -> Option<u8> {
    let digit = |byte: u8| char::from(byte).to_digit(16);
    let [b'%', high, low, ..] = text else {
        return None;
    };
    let byte = (digit(*high)? * 16 + digit(*low)?) as u8;
    (byte.is_ascii_alphanumeric() || b"-._~".contains(&byte)).then_some(byte)
}

/// Decodes escapes of unreserved characters alone.
fn with_unreserved(path: &[u8]) -> Vec<u8> {
    let mut decoded = Vec::with_capacity(path.len());
    let mut rest = path;
    while let Some((first, after)) = rest.split_first() {
        match unreserved(rest) {
            Some(byte) => {
                decoded.push(byte);
                rest = &rest[3..];
            }
            None => {
                decoded.push(*first);
                rest = after;
            }
        }
    }
    decoded
}

/// RFC 3986 section 5.2.4; `None` where `..` would lead above the root, which only an attack asks for.
fn without_dots(path: &[u8]) -> Option<Vec<u8>> {
    let mut kept: Vec<&[u8]> = Vec::new();
    let mut segments = path[1..].split(|byte| *byte == b'/').peekable();
    while let Some(segment) = segments.next() {
        if segment == b".." {
            kept.pop()?;
        }
        match is_dot_segment(segment) {
            // The folder that is left ends with a slash.
            true if segments.peek().is_none() => kept.push(b""),
            true => {}
            false => kept.push(segment),
        }
    }
    let mut normal = Vec::with_capacity(path.len());
    for segment in kept {
        normal.push(b'/');
        normal.extend_from_slice(segment);
    }
    Some(normal)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn check(paths: &[(&str, &str)]) {
        for (path, expect) in paths {
            let found = match NormalPath::of(path.as_bytes()) {
                NormalPath::AsSent => (*path).to_owned(),
                NormalPath::Changed { path, .. } => String::from_utf8(path).unwrap(),
                NormalPath::AboveRoot => "above the root".to_owned(),
            };
            assert_eq!(found, *expect, "{path}");
        }
    }

    #[test]
    fn a_plain_path_stays_as_it_was_sent() {
        for path in [
            "/",
            "//",
            "/a//b/",
            "/a.b",
            "/a..",
            "/...",
            "/.well-known/x",
            "/a%2fb",
            "/a%20b;c=%C3%A4",
            "/%",
            "/%2",
            "/%zz",
            "/..;/a",
            "/a.%2fb",
        ] {
            let found = NormalPath::of(path.as_bytes());
            assert_eq!(found, NormalPath::AsSent, "{path}");
        }
    }

    #[test]
    fn dot_segments_are_resolved() {
        check(&[
            ("/api/../admin", "/admin"),
            ("/api/%2e%2e/admin", "/admin"),
            ("/api/.%2E/admin", "/admin"),
            ("/api/./x/.", "/api/x/"),
            ("/api/x/..", "/api/"),
            ("/api/..", "/"),
            ("/.", "/"),
            ("/a//../b", "/a/b"),
            ("/a/..//b", "//b"),
            ("/a/%2e%2e%2fb", "/a/..%2fb"),
            ("/..", "above the root"),
            ("/a/../../b", "above the root"),
            ("/%2e%2e/a", "above the root"),
        ]);
    }

    #[test]
    fn characters_that_need_no_escape_are_decoded_once() {
        check(&[
            ("/%61dmin", "/admin"),
            ("/%7Euser/%2D", "/~user/-"),
            ("/%2561", "/%2561"),
            ("/%2f%41", "/%2fA"),
        ]);
    }

    proptest! {
        #[test]
        fn a_normal_path_stays_so(path in "(/|\\.|%2[eEfF]|%|[a-c]|%6[1-3]|;){0,20}") {
            let path = format!("/{path}");
            if let NormalPath::Changed { path, .. } = NormalPath::of(path.as_bytes()) {
                prop_assert!(path.starts_with(b"/"));
                // Of `%%61` the escape is decoded once, and what is left may look like one.
                if !path.contains(&b'%') {
                    prop_assert_eq!(NormalPath::of(&path), NormalPath::AsSent);
                }
            }
        }
    }
}
