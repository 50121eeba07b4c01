//! From the raw path of a request to a path beneath a folder: bytes in, bytes out, no file touched.
//!
//! Nothing is normalised: a path that is not already in its plain form names nothing. So there is one
//! reading of each path, and no sequence of dots, slashes and escapes can mean something else to the
//! kernel than it means here. The folder's own `RESOLVE_BENEATH` is the second wall, for symbolic links.

/// The one hidden name that is served, at the top of a mount: RFC 8615.
const WELL_KNOWN: &[u8] = b".well-known";

/// What a raw path means.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum PathTarget {
    /// The mount itself, asked for without its slash.
    Top,
    /// A file's path beneath the folder, now in `out`.
    File,
    /// A folder's, without its slash; empty for the mount's own.
    Folder,
    /// Nothing that could be served.
    Nowhere,
}

/// Decodes `rest` (empty, or starting with a slash) into `out`, without the leading slash.
pub(super) fn beneath(rest: &[u8], out: &mut Vec<u8>) -> PathTarget {
    out.clear();
    let Some((slash, path)) = rest.split_first() else {
        return PathTarget::Top;
    };
    if *slash != b'/' {
        return PathTarget::Nowhere;
    }
    let mut segments = path.split(|byte| *byte == b'/').peekable();
    while let Some(segment) = segments.next() {
        if segment.is_empty() && segments.peek().is_none() {
            return PathTarget::Folder;
        }
        if !out.is_empty() {
            out.push(b'/');
        }
        let start = out.len();
        // Decoded before it is looked at: `%2e%2e` hides as `..` does.
        if !http::target::decode(segment, out) || is_hidden(&out[start..], start == 0) {
            return PathTarget::Nowhere;
        }
    }
    PathTarget::File
}

/// Whether a decoded segment names nothing that is served: empty and dotted names are hidden, the latter with `.` and
/// `..` among them.
pub(super) fn is_hidden(segment: &[u8], is_top: bool) -> bool {
    match segment.first() {
        None => true,
        Some(b'.') => !(is_top && segment == WELL_KNOWN),
        // A decoded slash would start a segment that was not checked, and NUL would end the path early in the kernel.
        Some(_) => memchr::memchr2(b'/', 0, segment).is_some(),
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn hides_what_is_not_plain() {
        let words = "
            // //a /a//b /a// /. /.. /./a /../a /a/.. /a/../b /a/. /%2e%2e/a /%2e/a /.%2e/a
            /%2E%2E/etc/passwd /a%2fb /a%2Fb /%2f /%2f%2fa /..%2fa /a%00 /a%00.css /%00 /% /%2 /%zz
            /a%g0b a * /.git/config /.env /a/.htaccess /%2egit/config /a/.well-known/x
            /.well-known/.x /.well-knownx/a
        ";
        for rest in words.split_whitespace() {
            let found = beneath(rest.as_bytes(), &mut Vec::new());
            assert_eq!(found, PathTarget::Nowhere, "{rest}");
        }
    }

    proptest! {
        #[test]
        fn never_gives_a_path_that_could_climb(rest in "(/|%2[fFeE]|\\.|%00|%|[a-z]|\\\\|[0-9A-F]){0,24}") {
            let mut out = Vec::new();
            let place = beneath(rest.as_bytes(), &mut out);
            if place == PathTarget::File || (place == PathTarget::Folder && !out.is_empty()) {
                for (place, segment) in out.split(|byte| *byte == b'/').enumerate() {
                    prop_assert!(!is_hidden(segment, place == 0), "{out:?}");
                }
                let slashes = |bytes: &[u8]| bytes.iter().filter(|byte| **byte == b'/').count();
                let last = usize::from(place == PathTarget::Folder);
                prop_assert_eq!(slashes(&out) + 1 + last, slashes(rest.as_bytes()));
            }
        }

        #[test]
        fn survives_any_bytes(rest in proptest::collection::vec(any::<u8>(), 0..40)) {
            let mut out = Vec::new();
            beneath(&rest, &mut out);
            prop_assert!(out.len() <= rest.len());
        }
    }
}
