//! `Cache-Control` by glob.

use super::*;

fn ruled() -> Fixture {
    Fixture::configured(|config| {
        let rule = |glob: &str, value: &str| CacheRule {
            glob: glob.to_owned(),
            value: value.to_owned(),
        };
        config.file_serving.cache_control = vec![
            rule("/s/assets/**", "public, max-age=31536000, immutable"),
            rule("/s/**/index.html", "no-cache"),
            rule("/s/ä.txt", "max-age=1"),
        ];
    })
}

#[test]
fn files_get_the_cache_control_of_their_rule() {
    let mut fixture = ruled();
    for name in [
        "assets/a.css",
        "assets/a.css.br",
        "index.html",
        "sub/index.html",
        "ä.txt",
        "b.txt",
    ] {
        fixture.write(name, "0123456789");
    }
    let immutable = "public, max-age=31536000, immutable";
    for (target, expect) in [
        ("/s/assets/a.css?v=2", Some(immutable)),
        ("/s/%61ssets/a.css", Some(immutable)),
        ("/s/", Some("no-cache")),
        ("/s/sub/", Some("no-cache")),
        ("/s/sub/index.html", Some("no-cache")),
        ("/s/%C3%A4.txt", Some("max-age=1")),
        ("/s/b.txt", None),
        ("/s/missing", None),
    ] {
        let got = fixture.ask("GET", target, "");
        assert_eq!(got.line("Cache-Control"), expect, "{target}");
    }
    for (fields, status) in [
        ("", 200),
        ("Accept-Encoding: br\r\n", 200),
        ("If-None-Match: *\r\n", 304),
        ("Range: bytes=0-1\r\n", 206),
        ("Range: bytes=0-1,4-5\r\n", 206),
    ] {
        let got = fixture.ask("GET", "/s/assets/a.css", fields);
        assert_eq!(
            (got.status, got.line("Cache-Control")),
            (status, Some(immutable)),
            "{fields}"
        );
        assert_eq!(got.lines.matches("Cache-Control").count(), 1);
    }
}

#[test]
fn names_the_rule_that_cannot_be_read() {
    let dir = tempfile::tempdir().unwrap();
    let mut config = config(vec![mount(dir.path().to_owned())], FileCache::default());
    config.file_serving.cache_control = vec![CacheRule {
        glob: "/s/{a".to_owned(),
        value: "no-cache".to_owned(),
    }];
    let fault = Files::open(&config).err().unwrap().to_string();
    assert!(fault.contains("/s/{a"), "{fault}");
}
