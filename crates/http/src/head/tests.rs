//! Request lines of every form, and the faults of each part.

use super::*;

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
fn knows_clients_that_read_trailers() {
    for (head, expect) in [
        ("HTTP/1.1\r\nHost: h\r\nTE: trailers", true),
        ("HTTP/1.1\r\nHost: h\r\nTE: deflate;q=0.5 ,\tTrailers", true),
        ("HTTP/1.1\r\nHost: h\r\nTE: deflate\r\nte: trailers", true),
        ("HTTP/1.1\r\nHost: h\r\nTE: trailersx", false),
        ("HTTP/1.1\r\nHost: h\r\nX: trailers", false),
        ("HTTP/1.0\r\nTE: trailers", false),
    ] {
        let text = format!("GET / {head}\r\n\r\n");
        let mut index = HeadIndex::new();
        let step = index.parse(text.as_bytes(), &mut 0, &Limits::default());
        assert_eq!(step, Ok(HeadStep::Complete), "{head}");
        let (bytes, index) = (text.as_bytes(), &index);
        assert_eq!(HeadView { bytes, index }.takes_trailers(), expect, "{head}");
    }
}

#[test]
fn splits_targets_of_every_form() {
    for (line, path, query, authority) in [
        ("GET /", "/", None, None),
        ("GET /a?b?c", "/a", Some("b?c"), None),
        ("GET /?", "/", Some(""), None),
        ("GET //a/%7a|^`{}", "//a/%7a|^`{}", None, None),
        ("OPTIONS *", "*", None, None),
        ("GET http://a:1/b?c", "/b", Some("c"), Some("a:1")),
        ("GET HTTPS://a", "/", None, Some("a")),
        ("GET http://a?q", "/", Some("q"), Some("a")),
        ("GET http://[::1]:8/", "/", None, Some("[::1]:8")),
    ] {
        let expect = Ok((path, query, authority));
        check(&format!("{line} HTTP/1.1\r\n"), expect);
    }
}

#[test]
fn refuses_targets_by_rule() {
    for (line, cause) in [
        ("GET *", Cause::TargetAsterisk),
        ("OPTIONS *?", Cause::TargetForm),
        ("GET a", Cause::TargetForm),
        ("GET a.example:80", Cause::TargetForm),
        ("GET ftp://a/", Cause::TargetForm),
        ("GET http:/a", Cause::TargetForm),
        ("GET http:///a", Cause::AuthorityInvalid),
        ("GET http://u@a/", Cause::AuthorityInvalid),
        ("GET http://a\\b/", Cause::AuthorityInvalid),
        ("CONNECT a:1", Cause::MethodConnect),
        ("GET /a#b", Cause::TargetFragment),
        ("GET /\u{e9}", Cause::TargetByte),
        ("GET /\0", Cause::TargetByte),
        ("GET /\x7f", Cause::TargetByte),
        ("GET /\t", Cause::TargetByte),
        ("GET /\rb", Cause::BareCr),
        ("GET  /", Cause::TargetByte),
    ] {
        check(&format!("{line} HTTP/1.1\r\n"), Err(cause));
    }
    let long = "/".repeat(41);
    for line in [
        format!("GET {long} HTTP/1.1\r\n"),
        format!("GET {long}\r\n"),
    ] {
        check(&line, Err(Cause::TargetTooLong));
    }
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
fn a_head_with_other_fields_has_them_in_place_of_its_own() {
    let bytes =
        b"GET /a?b HTTP/1.1\r\nHost: x\r\nX-User: root\r\nAccept: y\r\nx-user: admin\r\n\r\nrest";
    let mut index = HeadIndex::default();
    let step = index.parse(bytes, &mut 0, &Limits::default());
    assert_eq!(step, Ok(HeadStep::Complete));
    let view = HeadView {
        bytes,
        index: &index,
    };
    let mut fields = FieldLines::new();
    fields.push(b"X-User", b"ann");
    fields.push(b"Authorization", b"Basic YQ==");
    let replaced = ["x-user".to_owned(), "x-role".to_owned()];
    let head = RequestHead::replacing(view, &replaced, &fields);
    let expect: [(&[u8], &[u8]); 4] = [
        (b"Host", b"x"),
        (b"Accept", b"y"),
        (b"X-User", b"ann"),
        (b"Authorization", b"Basic YQ=="),
    ];
    assert_eq!(head.view().headers().collect::<Vec<_>>(), expect);
    assert_eq!(
        (head.view().path(), head.view().authority()),
        (&b"/a"[..], Some(&b"x"[..]))
    );
    let marks = head.view().index.marks;
    assert!(marks.contains(Marks::AUTHORIZATION) && !marks.contains(Marks::RANGE));
    // It is a head like others: taken again, it is the same.
    assert_eq!(RequestHead::take(head.view()), head);
}
