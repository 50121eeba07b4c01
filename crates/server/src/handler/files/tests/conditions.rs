//! Conditions and ranges.

use super::*;

#[test]
fn validators_are_honoured_and_sent_again() {
    let mut house = House::new();
    house.write("a.txt", "hello");
    let first = house.ask("GET", "/s/a.txt", "");
    let etag = first.line("ETag").unwrap();
    let modified = first.line("Last-Modified").unwrap();
    for fields in [
        format!("If-None-Match: {etag}\r\n"),
        format!(
            "If-None-Match: \"other\", W/{etag}\r\nIf-Modified-Since: Sun, 06 Nov 1994 08:49:37 GMT\r\n"
        ),
        format!("If-Modified-Since: {modified}\r\n"),
    ] {
        for method in ["GET", "HEAD"] {
            let got = house.ask(method, "/s/a.txt", &fields);
            assert_eq!(got.status, 304, "{fields}");
            assert_eq!(
                got.lines,
                format!("ETag: {etag}\r\nLast-Modified: {modified}\r\n")
            );
            assert!(got.body.is_empty());
        }
    }
    assert_eq!(
        house
            .ask("GET", "/s/a.txt", "If-Match: \"other\"\r\n")
            .status,
        412
    );
    assert_eq!(
        house
            .ask("GET", "/s/a.txt", &format!("If-Match: {etag}\r\n"))
            .status,
        200
    );
    assert_eq!(
        house
            .ask("GET", "/s/missing", "If-None-Match: *\r\n")
            .status,
        404
    );
}

#[test]
fn sends_single_ranges_of_small_and_large_files() {
    let mut house = House::new();
    let content: Vec<u8> = (0..2000u32).map(|n| (n % 251) as u8).collect();
    house.write("small.bin", &content[..1000]);
    house.write("large.bin", &content);
    for (target, bytes) in [("/s/small.bin", 1000), ("/s/large.bin", 2000)] {
        let got = house.ask("GET", target, "Range: bytes=10-19\r\n");
        assert_eq!((got.status, &got.body[..]), (206, &content[10..20]));
        assert_eq!(
            got.line("Content-Range"),
            Some(format!("bytes 10-19/{bytes}").as_str())
        );
        assert_eq!(got.line("Content-Type"), Some("application/octet-stream"));
        assert!(got.line("ETag").is_some() && got.line("Last-Modified").is_some());
        let got = house.ask("GET", target, "Range: bytes=-10\r\n");
        assert_eq!(
            (got.status, &got.body[..]),
            (206, &content[bytes - 10..bytes])
        );
        // Two that touch become one, and one is no multipart.
        let got = house.ask("GET", target, "Range: bytes=0-4,5-9\r\n");
        assert_eq!((got.status, &got.body[..]), (206, &content[..10]));
        let got = house.ask("GET", target, "Range: bytes=5000-\r\n");
        assert_eq!(
            (got.status, got.line("Content-Range")),
            (416, Some(format!("bytes */{bytes}").as_str()))
        );
        for (method, fields) in [
            ("HEAD", "Range: bytes=10-19\r\n"),
            ("GET", "Range: bytes=10-19\r\nRange: bytes=20-29\r\n"),
            ("GET", "Range: lines=10-19\r\n"),
            ("GET", "Range: bytes=10-19\r\nIf-Range: \"other\"\r\n"),
        ] {
            let got = house.ask(method, target, fields);
            assert_eq!(
                (got.status, got.line("Content-Range")),
                (200, None),
                "{fields}"
            );
        }
    }
}

#[test]
fn sends_several_ranges_as_multipart() {
    let mut house = House::new();
    house.write("small.txt", "0123456789");
    house.write("large.txt", "0123456789".repeat(200));
    for (target, bytes) in [("/s/small.txt", 10), ("/s/large.txt", 2000)] {
        let got = house.ask("GET", target, "Range: bytes=1-2,-3\r\n");
        assert_eq!(got.status, 206);
        assert_eq!(got.line("Content-Range"), None);
        let boundary = got
            .line("Content-Type")
            .unwrap()
            .strip_prefix("multipart/byteranges; boundary=")
            .unwrap();
        let head = |range: &str| {
            format!(
                "\r\n--{boundary}\r\nContent-Type: text/plain; charset=utf-8\r\nContent-Range: bytes {range}/{bytes}\r\n\r\n"
            )
        };
        let last = format!("{}-{}", bytes - 3, bytes - 1);
        assert_eq!(
            got.text(),
            format!("{}12{}789\r\n--{boundary}--\r\n", head("1-2"), head(&last))
        );
        let again = house.ask("GET", target, "Range: bytes=1-2,-3\r\n");
        assert_ne!(
            again.line("Content-Type"),
            got.line("Content-Type"),
            "the boundary is random"
        );
    }
}

#[test]
fn if_range_decides_over_the_range() {
    let mut house = House::new();
    house.write("a.txt", "0123456789");
    let first = house.ask("GET", "/s/a.txt", "");
    for (value, status) in [
        (first.line("ETag").unwrap().to_owned(), 206),
        (first.line("Last-Modified").unwrap().to_owned(), 206),
        (format!("W/{}", first.line("ETag").unwrap()), 200),
        ("Sun, 06 Nov 1994 08:49:37 GMT".to_owned(), 200),
    ] {
        let fields = format!("Range: bytes=0-1\r\nIf-Range: {value}\r\n");
        assert_eq!(
            house.ask("GET", "/s/a.txt", &fields).status,
            status,
            "{value}"
        );
    }
}

#[test]
fn an_empty_file_has_no_part() {
    let mut house = House::new();
    house.write("empty.txt", "");
    assert_eq!(house.body("/s/empty.txt"), "");
    assert_eq!(
        house
            .ask("GET", "/s/empty.txt", "Range: bytes=0-\r\n")
            .status,
        416
    );
    assert_eq!(
        house
            .ask("GET", "/s/empty.txt", "Range: bytes=-1\r\n")
            .status,
        200
    );
}
