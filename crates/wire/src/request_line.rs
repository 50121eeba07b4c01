//! The request line: method, target and version, and the four forms of a target.
//!
//! Takes the line's bytes, gives spans into them. Every fault is decided by the bytes before it, so that
//! a line that is already too long or cannot be one is refused before its end arrives. It must not look
//! at field lines.

use memchr::{memchr, memchr_iter};

use crate::bytes::{is_target, is_token};
use crate::head::{HeadIndex, Method, Scheme, Span, Version};
use crate::host::is_host;
use crate::limits::Limits;
use crate::refusal::Cause;

/// Longest method that is read as one; the longest registered one has 17 bytes.
const METHOD_BYTES_MAX: usize = 32;

/// Reads the complete line `bytes[start..end]`, line end included, into `index`.
pub(crate) fn parse(
    index: &mut HeadIndex,
    bytes: &[u8],
    start: usize,
    end: usize,
    limits: &Limits,
) -> Result<(), Cause> {
    let line = &bytes[start..end];
    let method_bytes = method_bytes(line)?.ok_or(Cause::MethodByte)?;
    let rest = &line[method_bytes + 1..];
    let target_bytes = target_bytes(rest, limits)?.ok_or(match rest {
        [.., b'\r', b'\n'] => Cause::VersionForm,
        _ => Cause::BareLf,
    })?;
    check_target_bytes(&rest[..target_bytes])?;
    index.version = version(&rest[target_bytes + 1..])?;

    index.method_span = Span::at(start, method_bytes);
    index.target = Span::at(start + method_bytes + 1, target_bytes);
    let method = index.method_span.of(bytes);
    if method == b"CONNECT" {
        return Err(Cause::MethodConnect);
    }
    index.method = Method::of(method);
    split_target(index, bytes)?;
    check_path(index.path.of(bytes))
}

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

/// Length of the method that begins `line` and is followed by a space; `None` while it may go on.
fn method_bytes(line: &[u8]) -> Result<Option<usize>, Cause> {
    let head = &line[..line.len().min(METHOD_BYTES_MAX + 1)];
    match head.iter().position(|&b| !is_token(b)) {
        Some(len) if len > 0 && head[len] == b' ' => Ok(Some(len)),
        // RFC 9112 section 3: no whitespace before the method, one space after it.
        Some(len) if head[len] == b'\n' && (len == 0 || head[len - 1] != b'\r') => {
            Err(Cause::BareLf)
        }
        Some(_) => Err(Cause::MethodByte),
        None if head.len() > METHOD_BYTES_MAX => Err(Cause::MethodTooLong),
        None => Ok(None),
    }
}

/// Length of the target that begins `rest`, up to its first space; `None` when there is no space yet.
fn target_bytes(rest: &[u8], limits: &Limits) -> Result<Option<usize>, Cause> {
    let within = rest.len().min(limits.target_bytes_max.saturating_add(1));
    match memchr(b' ', &rest[..within]) {
        Some(len) => Ok(Some(len)),
        None if rest.len() > limits.target_bytes_max => Err(Cause::TargetTooLong),
        None => Ok(None),
    }
}

/// RFC 3986 section 2: a URI is visible ASCII, and RFC 9112 section 3.2 sends it without a fragment.
fn check_target_bytes(target: &[u8]) -> Result<(), Cause> {
    // One pass without a way out of it, which the compiler turns into vector instructions.
    let bad = target.iter().fold(false, |bad, &b| {
        bad | !(0x21..=0x7e).contains(&b) | (b == b'#')
    });
    if !bad && !target.is_empty() {
        return Ok(());
    }
    match target.iter().find(|&&b| b == b'#' || !is_target(b)) {
        Some(b'#') => Err(Cause::TargetFragment),
        Some(b'\r') => Err(Cause::BareCr),
        _ => Err(Cause::TargetByte),
    }
}

/// `HTTP-version CRLF`, RFC 9112 section 2.3. A minor version above 1 is served as 1.1, RFC 9110 section
/// 2.5; another major version is not served at all, RFC 9110 section 15.6.6.
fn version(rest: &[u8]) -> Result<Version, Cause> {
    match rest {
        b"HTTP/1.1\r\n" => Ok(Version::Http11),
        b"HTTP/1.0\r\n" => Ok(Version::Http10),
        [
            b'H',
            b'T',
            b'T',
            b'P',
            b'/',
            major,
            b'.',
            minor,
            b'\r',
            b'\n',
        ] if major.is_ascii_digit() && minor.is_ascii_digit() => {
            if *major == b'1' {
                Ok(Version::Http11)
            } else {
                Err(Cause::VersionMajor)
            }
        }
        [.., b'\r', b'\n'] => Err(Cause::VersionForm),
        _ => Err(Cause::BareLf),
    }
}

/// The forms of RFC 9112 section 3.2. Authority-form belongs to CONNECT, which is not served.
fn split_target(index: &mut HeadIndex, bytes: &[u8]) -> Result<(), Cause> {
    let (start, end) = (index.target.start as usize, index.target.end as usize);
    let target = index.target.of(bytes);
    let mut path_start = start;
    (index.scheme, index.authority) = (None, None);
    if target == b"*" {
        // RFC 9112 section 3.2.4: asterisk-form is for OPTIONS alone.
        if index.method != Method::Options {
            return Err(Cause::TargetAsterisk);
        }
    } else if target[0] != b'/' {
        let (scheme, scheme_bytes) = scheme(target).ok_or(Cause::TargetForm)?;
        let after = &target[scheme_bytes..];
        let authority_end = after.iter().position(|&b| b == b'/' || b == b'?');
        let authority = Span::at(start + scheme_bytes, authority_end.unwrap_or(after.len()));
        // RFC 9110 section 4.2.1: an http URI with an empty host is invalid.
        if !is_host(authority.of(bytes)) {
            return Err(Cause::AuthorityInvalid);
        }
        path_start = authority.end as usize;
        (index.scheme, index.authority) = (Some(scheme), Some(authority));
    }
    let query_mark = memchr(b'?', &bytes[path_start..end]).map(|at| path_start + at);
    let path_end = query_mark.unwrap_or(end);
    index.query = query_mark.map(|at| Span::new(at + 1, end));
    index.path = match index.authority {
        // An empty path is `/` (RFC 9110 section 4.2.3); the last slash of the scheme lends its byte.
        Some(authority) if path_end == path_start => Span::at(authority.start as usize - 1, 1),
        _ => Span::new(path_start, path_end),
    };
    Ok(())
}

/// The scheme at the start of `target`, in any case, and its length with `://`.
fn scheme(target: &[u8]) -> Option<(Scheme, usize)> {
    [
        (Scheme::Http, &b"http://"[..]),
        (Scheme::Https, b"https://"),
    ]
    .into_iter()
    .find(|(_, text)| {
        target
            .get(..text.len())
            .is_some_and(|start| start.eq_ignore_ascii_case(text))
    })
    .map(|(scheme, text)| (scheme, text.len()))
}

/// RFC 3986 sections 2.1 and 3.3, as far as every client keeps to them: browsers escape these four bytes in
/// paths, and what two recipients decode differently is never sent. In a query both are common (`?q=100%`).
fn check_path(path: &[u8]) -> Result<(), Cause> {
    // One pass without a way out of it, which the compiler turns into vector instructions.
    let is_unusual = path.iter().fold(false, |is_unusual, &b| {
        is_unusual | (b == b'"') | (b == b'<') | (b == b'>') | (b == b'\\') | (b == b'%')
    });
    if is_unusual {
        check_unusual_path(path)
    } else {
        Ok(())
    }
}

fn check_unusual_path(path: &[u8]) -> Result<(), Cause> {
    if path.iter().any(|b| b"\"<>\\".contains(b)) {
        return Err(Cause::PathByte);
    }
    let is_escape = |at: usize| match path.get(at + 1..at + 3) {
        Some(digits) => digits.iter().all(u8::is_ascii_hexdigit),
        None => false,
    };
    if memchr_iter(b'%', path).all(is_escape) {
        Ok(())
    } else {
        Err(Cause::PathEscape)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(line: &str) -> Result<HeadIndex, Cause> {
        let limits = Limits {
            target_bytes_max: 40,
            ..Limits::default()
        };
        let mut index = HeadIndex::new();
        parse(&mut index, line.as_bytes(), 0, line.len(), &limits).map(|()| index)
    }

    fn check(line: &str, expect: Result<(&str, Option<&str>, Option<&str>), Cause>) {
        let text = |span: Span| &line[span.start as usize..span.end as usize];
        let got = parsed(line).map(|index| {
            (
                text(index.path),
                index.query.map(text),
                index.authority.map(text),
            )
        });
        assert_eq!(got, expect, "{line:?}");
    }

    #[test]
    fn splits_targets_of_every_form() {
        check("GET / HTTP/1.1\r\n", Ok(("/", None, None)));
        check("GET /a?b?c HTTP/1.1\r\n", Ok(("/a", Some("b?c"), None)));
        check("GET /? HTTP/1.1\r\n", Ok(("/", Some(""), None)));
        check(
            "GET //a/%7a|^`{} HTTP/1.1\r\n",
            Ok(("//a/%7a|^`{}", None, None)),
        );
        check("OPTIONS * HTTP/1.1\r\n", Ok(("*", None, None)));
        check(
            "GET http://a:1/b?c HTTP/1.1\r\n",
            Ok(("/b", Some("c"), Some("a:1"))),
        );
        check("GET HTTPS://a HTTP/1.1\r\n", Ok(("/", None, Some("a"))));
        check(
            "GET http://a?q HTTP/1.1\r\n",
            Ok(("/", Some("q"), Some("a"))),
        );
        check(
            "GET http://[::1]:8/ HTTP/1.1\r\n",
            Ok(("/", None, Some("[::1]:8"))),
        );
    }

    #[test]
    fn refuses_targets_by_rule() {
        check("GET * HTTP/1.1\r\n", Err(Cause::TargetAsterisk));
        check("OPTIONS *? HTTP/1.1\r\n", Err(Cause::TargetForm));
        check("GET a HTTP/1.1\r\n", Err(Cause::TargetForm));
        check("GET a.example:80 HTTP/1.1\r\n", Err(Cause::TargetForm));
        check("GET ftp://a/ HTTP/1.1\r\n", Err(Cause::TargetForm));
        check("GET http:/a HTTP/1.1\r\n", Err(Cause::TargetForm));
        check("GET http:///a HTTP/1.1\r\n", Err(Cause::AuthorityInvalid));
        check("GET http://u@a/ HTTP/1.1\r\n", Err(Cause::AuthorityInvalid));
        check(
            "GET http://a\\b/ HTTP/1.1\r\n",
            Err(Cause::AuthorityInvalid),
        );
        check("CONNECT a:1 HTTP/1.1\r\n", Err(Cause::MethodConnect));
        check("GET /a#b HTTP/1.1\r\n", Err(Cause::TargetFragment));
        check("GET /\u{e9} HTTP/1.1\r\n", Err(Cause::TargetByte));
        check("GET /\0 HTTP/1.1\r\n", Err(Cause::TargetByte));
        check("GET /\x7f HTTP/1.1\r\n", Err(Cause::TargetByte));
        check("GET /\t HTTP/1.1\r\n", Err(Cause::TargetByte));
        check("GET /\rb HTTP/1.1\r\n", Err(Cause::BareCr));
        check("GET  / HTTP/1.1\r\n", Err(Cause::TargetByte));
        let long = "/".repeat(41);
        check(
            &format!("GET {long} HTTP/1.1\r\n"),
            Err(Cause::TargetTooLong),
        );
        check(&format!("GET {long}\r\n"), Err(Cause::TargetTooLong));
        assert!(parsed(&format!("GET {} HTTP/1.1\r\n", &long[1..])).is_ok());
    }

    #[test]
    fn refuses_in_paths_what_queries_may_hold() {
        for (part, cause) in [
            ("%", Cause::PathEscape),
            ("%2", Cause::PathEscape),
            ("%zz", Cause::PathEscape),
            ("%2g", Cause::PathEscape),
            ("%%20", Cause::PathEscape),
            ("%2%20", Cause::PathEscape),
            ("%20%", Cause::PathEscape),
            ("%u0041", Cause::PathEscape),
            ("\"", Cause::PathByte),
            ("<", Cause::PathByte),
            (">", Cause::PathByte),
            ("\\", Cause::PathByte),
            ("%\"", Cause::PathByte),
        ] {
            for path in [
                format!("/{part}"),
                format!("/a{part}/b?c"),
                format!("/a/{part}?"),
            ] {
                check(&format!("GET {path} HTTP/1.1\r\n"), Err(cause));
                check(&format!("GET http://a{path} HTTP/1.1\r\n"), Err(cause));
            }
            let query = format!("{part}&a={part}?{part}");
            let line = |before: &str| format!("GET {before}?{query} HTTP/1.1\r\n");
            check(&line("/a%20"), Ok(("/a%20", Some(&query), None)));
            check(&line("http://a"), Ok(("/", Some(&query), Some("a"))));
        }
        let browsers = "q=100%&f={a|b}";
        let line = format!("GET /?{browsers} HTTP/1.1\r\n");
        check(&line, Ok(("/", Some(browsers), None)));
        for path in ["/%20", "/%fF%00", "/a%41", "/%2520"] {
            check(&format!("GET {path} HTTP/1.1\r\n"), Ok((path, None, None)));
        }
    }

    #[test]
    fn says_which_scheme_an_absolute_target_has() {
        for (target, expect) in [
            ("/", None),
            ("http://a/", Some(Scheme::Http)),
            ("HTTP://a", Some(Scheme::Http)),
            ("https://a/", Some(Scheme::Https)),
            ("httpS://a?b", Some(Scheme::Https)),
        ] {
            let line = format!("GET {target} HTTP/1.1\r\n");
            assert_eq!(
                parsed(&line).map(|line| line.scheme),
                Ok(expect),
                "{target}"
            );
        }
    }

    #[test]
    fn refuses_methods_by_rule() {
        check(" GET / HTTP/1.1\r\n", Err(Cause::MethodByte));
        check("\r\n", Err(Cause::MethodByte));
        check("\n", Err(Cause::BareLf));
        check("GET\r\n", Err(Cause::MethodByte));
        check("GET\t/ HTTP/1.1\r\n", Err(Cause::MethodByte));
        check("G\0T / HTTP/1.1\r\n", Err(Cause::MethodByte));
        check("G(T / HTTP/1.1\r\n", Err(Cause::MethodByte));
        check("G\u{e9}T / HTTP/1.1\r\n", Err(Cause::MethodByte));
        let long = "M".repeat(33);
        check(&format!("{long} / HTTP/1.1\r\n"), Err(Cause::MethodTooLong));
        assert_eq!(
            parsed(&format!("{} / HTTP/1.1\r\n", &long[1..])).map(|line| line.method),
            Ok(Method::Other)
        );
        assert_eq!(
            parsed("get / HTTP/1.1\r\n").map(|line| line.method),
            Ok(Method::Other)
        );
    }

    #[test]
    fn reads_versions_by_rule() {
        for (version, expect) in [
            ("HTTP/1.1\r\n", Ok(Version::Http11)),
            ("HTTP/1.0\r\n", Ok(Version::Http10)),
            ("HTTP/1.2\r\n", Ok(Version::Http11)),
            ("HTTP/1.9\r\n", Ok(Version::Http11)),
            ("HTTP/2.0\r\n", Err(Cause::VersionMajor)),
            ("HTTP/0.9\r\n", Err(Cause::VersionMajor)),
            ("HTTP/1.10\r\n", Err(Cause::VersionForm)),
            ("HTTP/11\r\n", Err(Cause::VersionForm)),
            ("HTTP/2\r\n", Err(Cause::VersionForm)),
            ("HTTP/+1.1\r\n", Err(Cause::VersionForm)),
            ("http/1.1\r\n", Err(Cause::VersionForm)),
            ("HTTP/1.1 \r\n", Err(Cause::VersionForm)),
            (" HTTP/1.1\r\n", Err(Cause::VersionForm)),
            ("HTTP/1.1\r\r\n", Err(Cause::VersionForm)),
            ("HTTP/1.x\r\n", Err(Cause::VersionForm)),
            ("\r\n", Err(Cause::VersionForm)),
            ("HTTP/1.1\n", Err(Cause::BareLf)),
            ("\n", Err(Cause::BareLf)),
        ] {
            let line = format!("GET / {version}");
            assert_eq!(parsed(&line).map(|line| line.version), expect, "{line:?}");
        }
        check("GET /\r\n", Err(Cause::VersionForm));
        check("GET /\n", Err(Cause::BareLf));
        check("PRI * HTTP/2.0\r\n", Err(Cause::VersionMajor));
    }

    #[test]
    fn refuses_unfinished_lines_at_the_bound_and_not_before() {
        let limits = Limits {
            target_bytes_max: 3,
            ..Limits::default()
        };
        for (bytes, expect) in [
            (&b"GET"[..], Ok(())),
            (b"GET /ab", Ok(())),
            (b"GET /abc", Err(Cause::TargetTooLong)),
            (b"GET /ab HTT", Ok(())),
            (b"\x16\x03\x01", Err(Cause::MethodByte)),
            (&[b'M'; 32], Ok(())),
            (&[b'M'; 33], Err(Cause::MethodTooLong)),
        ] {
            assert_eq!(check_unfinished(bytes, 0, &limits), expect, "{bytes:?}");
        }
    }
}
