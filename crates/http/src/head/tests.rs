//! Request lines of every form, and the faults of each part.

use super::*;
use crate::scan::check_unfinished;

fn parsed(line: &str) -> Result<HeadIndex, Cause> {
    let limits = Limits {
        target_bytes_max: 40,
        ..Limits::default()
    };
    let mut index = HeadIndex::new();
    parse_request_line(&mut index, line.as_bytes(), 0, line.len(), &limits).map(|()| index)
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
