//! `Cache-Control` by glob: on each kind of reply. Which rule it is, is tested in `mounts` and in
//! tests/test_static_complete.py.

use super::*;

fn ruled() -> Fixture {
    Fixture::configured(|config| {
        let rule = |glob: &str, value: &str| CacheRule {
            glob: Glob::new(glob).unwrap(),
            value: value.to_owned(),
        };
        config.file_serving.cache_control =
            vec![rule("/s/assets/**", "public, max-age=31536000, immutable")];
    })
}

#[test]
fn files_get_the_cache_control_of_their_rule() {
    let mut fixture = ruled();
    fixture.write("assets/a.css", "0123456789");
    fixture.write("assets/a.css.br", "0123456789");
    let immutable = "public, max-age=31536000, immutable";
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
