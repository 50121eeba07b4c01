//! Compressed siblings: which of them a client gets, and what is said of it.

use super::*;

/// `a.css` with all three siblings, each with its own text.
fn dressed() -> House {
    let house = House::new();
    for (name, text) in [
        ("a.css", "plain{}"),
        ("a.css.br", "brotli"),
        ("a.css.zst", "zst!"),
        ("a.css.gz", "gzip!"),
    ] {
        house.write(name, text);
    }
    house
}

fn etag(house: &mut House, accept: &str) -> String {
    let got = house.ask("GET", "/s/a.css", accept);
    got.line("ETag").unwrap().to_owned()
}

#[test]
fn sends_what_the_client_wants_most() {
    let mut house = dressed();
    for (accept, coding, text) in [
        ("", None, "plain{}"),
        (
            "Accept-Encoding: gzip, deflate, br, zstd\r\n",
            Some("br"),
            "brotli",
        ),
        ("Accept-Encoding: gzip, zstd\r\n", Some("zstd"), "zst!"),
        (
            "Accept-Encoding: br;q=0.5, gzip;q=0.6\r\n",
            Some("gzip"),
            "gzip!",
        ),
        ("Accept-Encoding: *\r\n", Some("br"), "brotli"),
        ("Accept-Encoding: *, br;q=0\r\n", Some("zstd"), "zst!"),
        (
            "Accept-Encoding: identity;q=0, gzip\r\n",
            Some("gzip"),
            "gzip!",
        ),
        ("Accept-Encoding: identity, gzip;q=0.5\r\n", None, "plain{}"),
        ("Accept-Encoding: deflate\r\n", None, "plain{}"),
        ("Accept-Encoding: identity;q=0\r\n", None, "plain{}"),
        (
            "Accept-Encoding: br;q=0, zstd;q=0, gzip;q=0\r\n",
            None,
            "plain{}",
        ),
    ] {
        for method in ["GET", "HEAD"] {
            let got = house.ask(method, "/s/a.css", accept);
            let text = if method == "HEAD" { "" } else { text };
            assert_eq!((got.status, got.text()), (200, text), "{accept}");
            assert_eq!(got.line("Content-Encoding"), coding, "{accept}");
            assert_eq!(got.line("Content-Type"), Some("text/css; charset=utf-8"));
            assert_eq!(got.line("Vary"), Some("Accept-Encoding"));
        }
    }
}

#[test]
fn every_coding_has_its_own_tag() {
    let mut house = dressed();
    let mut tags: Vec<_> = ["", "br", "zstd", "gzip"]
        .iter()
        .map(|coding| etag(&mut house, &format!("Accept-Encoding: {coding}\r\n")))
        .collect();
    assert!(
        tags[1].ends_with("-br\"") && tags[3].ends_with("-gzip\""),
        "{tags:?}"
    );
    assert!(tags.iter().all(|tag| tag.starts_with('"')), "strong");
    tags.sort();
    tags.dedup();
    assert_eq!(tags.len(), 4);
}

#[test]
fn conditions_are_about_the_representation_that_is_chosen() {
    let mut house = dressed();
    let brotli = "Accept-Encoding: br\r\n";
    let (plain_tag, brotli_tag) = (etag(&mut house, ""), etag(&mut house, brotli));
    for (accept, tag, status) in [
        ("", &plain_tag, 304),
        (brotli, &brotli_tag, 304),
        (brotli, &plain_tag, 200),
        ("", &brotli_tag, 200),
    ] {
        let got = house.ask(
            "GET",
            "/s/a.css",
            &format!("{accept}If-None-Match: {tag}\r\n"),
        );
        assert_eq!(got.status, status, "{accept} {tag}");
        assert_eq!(got.line("Vary"), Some("Accept-Encoding"));
        if status == 304 {
            assert_eq!(got.line("ETag"), Some(tag.as_str()));
            assert_eq!(got.line("Content-Encoding"), None);
        }
    }
    let fields = format!("{brotli}If-Match: {plain_tag}\r\n");
    assert_eq!(house.ask("GET", "/s/a.css", &fields).status, 412);
}

#[test]
fn ranges_are_of_the_representation_that_is_chosen() {
    let mut house = dressed();
    let brotli = "Accept-Encoding: br\r\n";
    let (plain_tag, brotli_tag) = (etag(&mut house, ""), etag(&mut house, brotli));
    let got = house.ask("GET", "/s/a.css", &format!("{brotli}Range: bytes=1-3\r\n"));
    assert_eq!((got.status, got.text()), (206, "rot"));
    assert_eq!(got.line("Content-Range"), Some("bytes 1-3/6"));
    assert_eq!(got.line("Content-Encoding"), Some("br"));
    assert_eq!(got.line("ETag"), Some(brotli_tag.as_str()));
    assert_eq!(got.line("Vary"), Some("Accept-Encoding"));
    let got = house.ask("GET", "/s/a.css", "Range: bytes=1-3\r\n");
    assert_eq!((got.status, got.text()), (206, "lai"));
    assert_eq!(got.line("Content-Encoding"), None);
    assert_eq!(got.line("Vary"), Some("Accept-Encoding"));
    // The beginning that the client has is of another representation: it gets the whole of this one.
    let fields = format!("{brotli}Range: bytes=3-\r\nIf-Range: {plain_tag}\r\n");
    let got = house.ask("GET", "/s/a.css", &fields);
    assert_eq!((got.status, got.text()), (200, "brotli"));
    let fields = format!("{brotli}Range: bytes=3-\r\nIf-Range: {brotli_tag}\r\n");
    assert_eq!(house.ask("GET", "/s/a.css", &fields).text(), "tli");
    let got = house.ask("GET", "/s/a.css", &format!("{brotli}Range: bytes=6-\r\n"));
    assert_eq!(
        (got.status, got.line("Content-Range")),
        (416, Some("bytes */6"))
    );
}

#[test]
fn several_ranges_of_a_compressed_file_get_the_whole() {
    let mut house = dressed();
    let fields = "Accept-Encoding: br\r\nRange: bytes=0-0,3-3\r\n";
    let got = house.ask("GET", "/s/a.css", fields);
    assert_eq!((got.status, got.text()), (200, "brotli"));
    assert_eq!(got.line("Content-Encoding"), Some("br"));
    let got = house.ask("GET", "/s/a.css", "Range: bytes=0-0,3-3\r\n");
    assert_eq!(
        (got.status, got.line("Vary")),
        (206, Some("Accept-Encoding"))
    );
    let thousand = (0..1000).map(|n| format!("{}-{}", 2 * n, 2 * n));
    let list = thousand.collect::<Vec<_>>().join(",");
    for accept in ["", "Accept-Encoding: br\r\n"] {
        let got = house.ask(
            "GET",
            "/s/a.css",
            &format!("{accept}Range: bytes={list}\r\n"),
        );
        assert_eq!(got.status, 200, "{accept}");
    }
}

#[test]
fn without_siblings_nothing_varies() {
    let mut house = House::new();
    house.write("a.css", "plain{}");
    let got = house.ask("GET", "/s/a.css", "Accept-Encoding: br\r\n");
    assert_eq!(
        (got.line("Vary"), got.line("Content-Encoding")),
        (None, None)
    );
    // Siblings that the configuration does not name are files like others.
    let mut house = House::configured(|config| config.file_serving.encodings = vec![Coding::Gzip]);
    house.write("a.css", "plain{}");
    house.write("a.css.br", "brotli");
    let got = house.ask("GET", "/s/a.css", "Accept-Encoding: br\r\n");
    assert_eq!((got.text(), got.line("Vary")), ("plain{}", None));
    assert_eq!(house.body("/s/a.css.br"), "brotli");
}

#[test]
fn a_sibling_is_also_a_file_of_its_own() {
    let mut house = dressed();
    let got = house.ask("GET", "/s/a.css.gz", "Accept-Encoding: gzip\r\n");
    assert_eq!((got.status, got.text()), (200, "gzip!"));
    assert_eq!(got.line("Content-Type"), Some("application/gzip"));
    assert_eq!(
        (got.line("Content-Encoding"), got.line("Vary")),
        (None, None)
    );
    fs::remove_file(house.path("a.css")).unwrap();
    house.wait_ms(1000);
    let got = house.ask("GET", "/s/a.css", "Accept-Encoding: gzip\r\n");
    assert_eq!(got.status, 404, "a sibling alone stands for nothing");
}

#[test]
fn an_outdated_sibling_is_not_used() {
    let mut house = dressed();
    let brotli = "Accept-Encoding: br\r\n";
    assert_eq!(house.ask("GET", "/s/a.css", brotli).text(), "brotli");
    let later = fs::metadata(house.path("a.css.br"))
        .unwrap()
        .modified()
        .unwrap()
        + std::time::Duration::from_secs(5);
    replace(&house.path("a.css"), "newer{}");
    let file = fs::File::options()
        .write(true)
        .open(house.path("a.css"))
        .unwrap();
    file.set_modified(later).unwrap();
    house.wait_ms(1000);
    let got = house.ask("GET", "/s/a.css", brotli);
    assert_eq!((got.text(), got.line("Vary")), ("newer{}", None));
    let file = fs::File::options()
        .write(true)
        .open(house.path("a.css.br"))
        .unwrap();
    file.set_modified(later).unwrap();
    house.wait_ms(1000);
    let got = house.ask("GET", "/s/a.css", brotli);
    assert_eq!(
        (got.text(), got.line("Vary")),
        ("brotli", Some("Accept-Encoding"))
    );
}

#[test]
fn sees_siblings_come_change_and_go() {
    let mut house = House::new();
    house.write("a.css", "plain{}");
    let text = |house: &mut House| {
        house.wait_ms(1000);
        let got = house.ask("GET", "/s/a.css", "Accept-Encoding: gzip\r\n");
        got.text().to_owned()
    };
    for _ in 0..3 {
        assert_eq!(text(&mut house), "plain{}");
    }
    house.write("a.css.gz", "one");
    assert_eq!(text(&mut house), "one");
    assert_eq!(text(&mut house), "one");
    replace(&house.path("a.css.gz"), "two");
    assert_eq!(text(&mut house), "two");
    fs::remove_file(house.path("a.css.gz")).unwrap();
    assert_eq!(text(&mut house), "plain{}");
}

#[test]
fn a_sibling_that_is_no_file_or_leads_outside_is_none() {
    let mut house = House::new();
    house.write("a.css", "plain{}");
    house.write("../secret", "secret");
    fs::create_dir(house.path("a.css.br")).unwrap();
    symlink("../secret", house.path("a.css.gz")).unwrap();
    for _ in 0..2 {
        let got = house.ask("GET", "/s/a.css", "Accept-Encoding: br, gzip\r\n");
        assert_eq!((got.status, got.text()), (200, "plain{}"));
        house.wait_ms(1000);
    }
}

#[test]
fn only_the_chosen_one_is_read_where_nothing_is_kept() {
    let mut house = House::configured(|config| config.file_serving.writer_bytes_min = 1 << 20);
    house.write("a.css", "p".repeat(5000));
    house.write("a.css.gz", "g".repeat(2000));
    house.write("a.css.br", "b");
    for (coding, bytes) in [
        ("identity", 5000),
        ("gzip", 2000),
        ("br", 1),
        ("zstd", 5000),
    ] {
        let fields = format!("Accept-Encoding: {coding}\r\n");
        let mut got = None;
        let looks = house.looks(|house| got = Some(house.ask("GET", "/s/a.css", &fields)));
        let got = got.unwrap();
        assert_eq!((looks, got.body.len()), (1, bytes), "{coding}");
        assert_eq!(got.line("Vary"), Some("Accept-Encoding"));
    }
}

#[test]
fn large_and_small_siblings_go_together() {
    let mut house = House::new();
    house.write("a.css", "p".repeat(5000));
    house.write("a.css.gz", "g".repeat(2000));
    house.write("a.css.br", "b");
    for _ in 0..2 {
        for (coding, bytes, is_open) in [
            ("identity", 5000, true),
            ("gzip", 2000, true),
            ("br", 1, false),
        ] {
            let fields = format!("Accept-Encoding: {coding}\r\n");
            let reply = house.reply("GET", "/s/a.css", &fields);
            assert_eq!(
                (reply.body.bytes(), is_file(&reply.body)),
                (bytes, is_open),
                "{coding}"
            );
        }
    }
    assert_eq!(
        house.looks(|house| drop(house.reply("GET", "/s/a.css", ""))),
        0
    );
}

#[test]
fn the_configured_order_decides_among_equals_and_a_coding_counts_once() {
    let mut house = House::configured(|config| {
        config.file_serving.encodings = vec![Coding::Gzip, Coding::Brotli, Coding::Gzip];
    });
    for name in ["a.css", "a.css.gz", "a.css.br", "a.css.zst"] {
        house.write(name, name);
    }
    for (accept, expect) in [
        ("gzip, br, zstd", "a.css.gz"),
        ("gzip;q=0.5, br", "a.css.br"),
        ("zstd", "a.css"),
    ] {
        let got = house.ask("GET", "/s/a.css", &format!("Accept-Encoding: {accept}\r\n"));
        assert_eq!(got.text(), expect, "{accept}");
    }
}
