//! From the raw path of a request to a path beneath a folder: bytes in, bytes out, no file touched.
//!
//! Nothing is normalised: a path that is not already in its plain form names nothing. So there is one
//! reading of each path, and no sequence of dots, slashes and escapes can mean something else to the
//! kernel than it means here. The folder's own `RESOLVE_BENEATH` is the second wall, for symbolic links.

/// The one hidden name that is served, at the top of a mount: RFC 8615.
const WELL_KNOWN: &[u8] = b".well-known";

/// What a raw path means.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Place {
    /// The mount itself, asked for without its slash.
    Top,
    /// A path beneath the folder, now in `out`.
    Beneath,
    /// Nothing that could be served.
    Nowhere,
}

/// Decodes `rest` (empty, or starting with a slash) into `out`, without the leading slash. A folder's
/// path gets the name of its `index` file; an empty `index` means that folders have none.
pub(super) fn beneath(rest: &[u8], index: &[u8], out: &mut Vec<u8>) -> Place {
    out.clear();
    let Some((slash, path)) = rest.split_first() else {
        return Place::Top;
    };
    if *slash != b'/' {
        return Place::Nowhere;
    }
    let mut segments = path.split(|byte| *byte == b'/').peekable();
    while let Some(segment) = segments.next() {
        if segment.is_empty() && segments.peek().is_none() && !index.is_empty() {
            out.extend_from_slice(index);
            return Place::Beneath;
        }
        let start = out.len();
        if !wire::target::decode(segment, out) || is_hidden(&out[start..], start == 0) {
            return Place::Nowhere;
        }
        if segments.peek().is_some() {
            out.push(b'/');
        }
    }
    Place::Beneath
}

/// Empty and dotted names are hidden, the latter with `.` and `..` among them; a decoded slash would
/// start a segment that nobody looked at, and NUL would end the path early in the kernel.
fn is_hidden(segment: &[u8], is_top: bool) -> bool {
    match segment.first() {
        None => true,
        Some(b'.') => !(is_top && segment == WELL_KNOWN),
        Some(_) => memchr::memchr2(b'/', 0, segment).is_some(),
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn check(rest: &str, expect: Option<&str>) {
        let mut out = b"left over".to_vec();
        let place = beneath(rest.as_bytes(), b"index.html", &mut out);
        match expect {
            Some(path) => {
                assert_eq!(place, Place::Beneath, "{rest}");
                assert_eq!(String::from_utf8_lossy(&out), path, "{rest}");
            }
            None => assert_eq!(place, Place::Nowhere, "{rest}"),
        }
    }

    #[test]
    fn decodes_plain_paths() {
        check("/a.css", Some("a.css"));
        check("/css/a.css", Some("css/a.css"));
        check("/", Some("index.html"));
        check("/css/", Some("css/index.html"));
        check("/a%20b/%C3%BC.txt", Some("a b/ü.txt"));
        check("/a+b", Some("a+b"));
        check("/%2525", Some("%25"));
        check("/a\\b", Some("a\\b"));
        check("/a..b/c.", Some("a..b/c."));
        check(
            "/.well-known/acme-challenge/x",
            Some(".well-known/acme-challenge/x"),
        );
    }

    #[test]
    fn a_mount_without_its_slash_is_the_top() {
        assert_eq!(beneath(b"", b"index.html", &mut Vec::new()), Place::Top);
    }

    #[test]
    fn hides_what_is_not_plain() {
        for rest in [
            "//",
            "//a",
            "/a//b",
            "/a//",
            "/.",
            "/..",
            "/./a",
            "/../a",
            "/a/..",
            "/a/../b",
            "/a/.",
            "/%2e%2e/a",
            "/%2e/a",
            "/.%2e/a",
            "/%2E%2E/etc/passwd",
            "/a%2fb",
            "/a%2Fb",
            "/%2f",
            "/%2f%2fa",
            "/..%2fa",
            "/a%00",
            "/a%00.css",
            "/%00",
            "/%",
            "/%2",
            "/%zz",
            "/a%g0b",
            "a",
            "*",
            "/.git/config",
            "/.env",
            "/a/.htaccess",
            "/%2egit/config",
            "/a/.well-known/x",
            "/.well-known/.x",
            "/.well-knownx/a",
        ] {
            check(rest, None);
        }
    }

    #[test]
    fn without_an_index_a_folder_is_nothing() {
        assert_eq!(beneath(b"/", b"", &mut Vec::new()), Place::Nowhere);
        assert_eq!(beneath(b"/css/", b"", &mut Vec::new()), Place::Nowhere);
    }

    proptest! {
        #[test]
        fn never_gives_a_path_that_could_climb(rest in "(/|%2[fFeE]|\\.|%00|%|[a-z]|\\\\|[0-9A-F]){0,24}") {
            let mut out = Vec::new();
            if beneath(rest.as_bytes(), b"index", &mut out) == Place::Beneath {
                for (place, segment) in out.split(|byte| *byte == b'/').enumerate() {
                    prop_assert!(!is_hidden(segment, place == 0), "{out:?}");
                }
                let slashes = |bytes: &[u8]| bytes.iter().filter(|byte| **byte == b'/').count();
                prop_assert_eq!(slashes(&out) + 1, slashes(rest.as_bytes()));
            }
        }

        #[test]
        fn survives_any_bytes(rest in proptest::collection::vec(any::<u8>(), 0..40)) {
            let mut out = Vec::new();
            beneath(&rest, b"index", &mut out);
            prop_assert!(out.len() <= rest.len() + 5);
        }
    }
}
