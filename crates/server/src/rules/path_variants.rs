//! The ways in which a program behind this server may read a path.
//!
//! Takes a path as sent, gives every variant of it that a rule has to hold for. Pure.
//!
//! An application sees its path with all escapes decoded, an encoded slash too (PEP 3333). What it makes
//! of double slashes and dot segments is its own affair: some frameworks merge, some resolve, most do
//! neither. A rule that looked at one of these variants only could be passed by asking in another.

use std::borrow::Cow;

/// A path as a program may read it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct PathVariant<'p> {
    /// Decoded bytes.
    pub(super) bytes: Cow<'p, [u8]>,
    /// Which of them were sent as escapes; empty when none was.
    escaped: Vec<bool>,
}

/// All variants of one path, the most literal first.
pub(super) enum PathVariants<'p> {
    /// There is only one, which is what was sent.
    One(PathVariant<'p>),
    /// None equals an earlier one.
    Several(Vec<PathVariant<'p>>),
}

/// The part of a variant behind the beginning that a rule names.
#[derive(Clone, Copy, Debug)]
pub(super) struct PathRest<'r> {
    pub(super) bytes: &'r [u8],
    escaped: &'r [bool],
}

/// One byte of a decoded path, and whether it was sent as an escape.
type DecodedByte = (u8, bool);

impl<'p> PathVariants<'p> {
    /// The variants of `path`, which begins with a slash. A plain one costs no allocation.
    pub(super) fn of(path: &'p [u8]) -> Self {
        if is_plain(path) {
            return PathVariants::One(PathVariant {
                bytes: Cow::Borrowed(path),
                escaped: Vec::new(),
            });
        }
        let decoded = decode(path);
        let merged = merge(&decoded);
        let resolved = resolve(&decoded);
        // Both orders, because `/a//../b` is `/b` in one and `/a/b` in the other.
        let merged_then_resolved = resolve(&merged);
        let resolved_then_merged = merge(&resolved);
        let mut variants: Vec<PathVariant<'p>> = Vec::with_capacity(5);
        for decoded_bytes in [
            decoded,
            merged,
            resolved,
            merged_then_resolved,
            resolved_then_merged,
        ] {
            let variant = PathVariant::of(&decoded_bytes);
            if !variants.contains(&variant) {
                variants.push(variant);
            }
        }
        PathVariants::Several(variants)
    }

    pub(super) fn as_slice(&self) -> &[PathVariant<'p>] {
        match self {
            PathVariants::One(variant) => std::slice::from_ref(variant),
            PathVariants::Several(variants) => variants,
        }
    }
}

impl PathVariant<'_> {
    fn of(decoded_bytes: &[DecodedByte]) -> Self {
        let (bytes, escaped): (Vec<u8>, Vec<bool>) = decoded_bytes.iter().copied().unzip();
        PathVariant {
            bytes: Cow::Owned(bytes),
            escaped,
        }
    }

    /// What follows the first `from` bytes.
    pub(super) fn rest(&self, from: usize) -> PathRest<'_> {
        PathRest {
            bytes: &self.bytes[from..],
            escaped: self.escaped.get(from..).unwrap_or_default(),
        }
    }
}

impl PathRest<'_> {
    /// Each byte, and whether it was sent as an escape.
    pub(super) fn decoded_bytes(&self) -> impl Iterator<Item = (u8, bool)> {
        let escaped = self.escaped.iter().copied().chain(std::iter::repeat(false));
        self.bytes.iter().copied().zip(escaped)
    }
}

/// The bytes that `text` stands for; an escape that is none stays as it is, as it does in PATH_INFO.
pub(super) fn decoded(text: &[u8]) -> Vec<u8> {
    decode(text).into_iter().map(|(byte, _)| byte).collect()
}

/// Whether the path has neither escapes nor double slashes nor segments that begin with a dot.
fn is_plain(path: &[u8]) -> bool {
    let mut before = 0;
    path.iter().all(|byte| {
        let odd = *byte == b'%' || (before == b'/' && matches!(byte, b'/' | b'.'));
        before = *byte;
        !odd
    })
}

fn decode(path: &[u8]) -> Vec<DecodedByte> {
    let digit = |byte: u8| char::from(byte).to_digit(16);
    let mut decoded_bytes = Vec::with_capacity(path.len());
    let mut rest = path;
    while let Some((&byte, after)) = rest.split_first() {
        let escape = match rest {
            [b'%', high, low, ..] => digit(*high).zip(digit(*low)),
            _ => None,
        };
        let byte = escape.map_or(byte, |(high, low)| (high * 16 + low) as u8);
        decoded_bytes.push((byte, escape.is_some()));
        rest = if escape.is_some() { &after[2..] } else { after };
    }
    decoded_bytes
}

/// One slash for each run of them.
fn merge(path: &[DecodedByte]) -> Vec<DecodedByte> {
    let mut merged = path.to_vec();
    merged.dedup_by(|next, kept| next.0 == b'/' && kept.0 == b'/');
    merged
}

/// Without dot segments, RFC 3986 section 5.2.4.
fn resolve(path: &[DecodedByte]) -> Vec<DecodedByte> {
    let mut resolved: Vec<DecodedByte> = Vec::with_capacity(path.len());
    let mut start = 0;
    while start < path.len() {
        // A slash and the segment behind it.
        let mut after = path[start + 1..].iter();
        let bytes_after = after.position(|(byte, _)| *byte == b'/');
        let end = bytes_after.map_or(path.len(), |bytes| start + 1 + bytes);
        let (slash, segment) = (path[start], &path[start + 1..end]);
        let is_dot = segment.iter().all(|(byte, _)| *byte == b'.') && !segment.is_empty();
        if is_dot && segment.len() <= 2 {
            if segment.len() == 2 {
                let parent = resolved.iter().rposition(|(byte, _)| *byte == b'/');
                resolved.truncate(parent.unwrap_or(0));
            }
            if end == path.len() {
                resolved.push(slash);
            }
        } else {
            resolved.extend_from_slice(&path[start..end]);
        }
        start = end;
    }
    resolved
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn check(path: &str, expect: &[&str]) {
        let variants = PathVariants::of(path.as_bytes());
        let texts: Vec<_> = variants
            .as_slice()
            .iter()
            .map(|variant| String::from_utf8_lossy(&variant.bytes).into_owned())
            .collect();
        assert_eq!(texts, expect, "{path}");
    }

    #[test]
    fn a_plain_path_is_read_in_one_way() {
        for path in ["/", "/a", "/a/b.c/", "/a+b;c=d", "/a..b", "/a\\b", "/a./b"] {
            check(path, &[path]);
            assert!(matches!(
                PathVariants::of(path.as_bytes()),
                PathVariants::One(_)
            ));
        }
        check("/.well-known/x", &["/.well-known/x"]);
        check("/...", &["/..."]);
    }

    #[test]
    fn decodes_once_and_keeps_what_is_no_escape() {
        check("/%61dmin", &["/admin"]);
        check("/a%2fb%2Fc", &["/a/b/c"]);
        check("/%2561", &["/%61"]);
        check("/%zz%6", &["/%zz%6"]);
        check("/%+1%", &["/%+1%"]);
    }

    #[test]
    fn merges_and_resolves_in_both_orders() {
        check("//a", &["//a", "/a"]);
        check("/%2fa", &["//a", "/a"]);
        check("/x/../a", &["/x/../a", "/a"]);
        check("/x/%2E%2e/a", &["/x/../a", "/a"]);
        check("/./a/.", &["/./a/.", "/a/"]);
        check("/a/..", &["/a/..", "/"]);
        check("/../../a", &["/../../a", "/a"]);
        check("/a//../b", &["/a//../b", "/a/../b", "/a/b", "/b"]);
        check(
            "/a//../b//c",
            &["/a//../b//c", "/a/../b/c", "/a/b//c", "/b/c", "/a/b/c"],
        );
    }

    #[test]
    fn remembers_what_was_an_escape() {
        let variants = PathVariants::of(b"/a%2Fb");
        let rest = variants.as_slice()[0].rest(2);
        let decoded_bytes: Vec<_> = rest.decoded_bytes().collect();
        assert_eq!(decoded_bytes, [(b'/', true), (b'b', false)]);
    }

    proptest! {
        #[test]
        fn the_last_reading_is_plain(path in "/(/|\\.|%2[eEfF]|%|[a-z]){0,24}") {
            let variants = PathVariants::of(path.as_bytes());
            let plain = variants.as_slice().iter().any(|variant| {
                let mut segments: Vec<&[u8]> = variant.bytes.split(|byte| *byte == b'/').collect();
                // The empty ones at both ends are those of the leading and of a trailing slash.
                let last = segments.pop().unwrap();
                !segments[1..].iter().chain([&last]).any(|segment| matches!(*segment, b"." | b".."))
                    && !segments[1..].contains(&&b""[..])
            });
            prop_assert!(plain, "{path}");
            for variant in variants.as_slice() {
                prop_assert_eq!(variant.bytes.first(), Some(&b'/'));
            }
        }
    }
}
