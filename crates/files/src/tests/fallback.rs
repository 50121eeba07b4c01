//! The shell of a single-page application, where there is no file.

use super::*;

fn app() -> Fixture {
    let fixture = Fixture::configured(|config| {
        config.statics[0].fallback = Some("app/shell.html".to_owned());
        config.file_serving.cache_control = vec![
            CacheRule {
                glob: "/s/app/shell.html".to_owned(),
                value: "no-cache".to_owned(),
            },
            CacheRule {
                glob: "/**".to_owned(),
                value: "immutable".to_owned(),
            },
        ];
    });
    fixture.write("app/shell.html", "<shell>");
    fixture.write("app/main.js", "js");
    fixture
}

const BROWSER: &str = "Accept: text/html,application/xhtml+xml,*/*;q=0.8\r\n";

/// RFC 9111 section 4.1: else a shared cache gives a browser the 404 that a script got.
#[test]
fn what_depends_on_accept_says_so_even_if_it_is_nothing() {
    let mut fixture = app();
    for (target, fields, expect) in [
        ("/s/users/jane.doe", "", Some("Accept")),
        ("/s/users/jane.doe", BROWSER, Some("Accept")),
        ("/s/users/jane", "", None),
        ("/s/.env", "", None),
    ] {
        let got = fixture.ask("GET", target, fields);
        assert_eq!(got.line("Vary"), expect, "{target} {fields}");
    }
    assert_eq!(Fixture::new().ask("GET", "/s/a.js", "").line("Vary"), None);
}

#[test]
fn the_shell_is_a_file_like_others() {
    let mut fixture = app();
    fixture.write("app/shell.html.br", "brotli");
    let brotli = "Accept-Encoding: br\r\n";
    let got = fixture.ask("GET", "/s/users/17", brotli);
    assert_eq!(
        (got.text(), got.line("Content-Encoding")),
        ("brotli", Some("br"))
    );
    assert_eq!(got.line("Vary"), Some("Accept-Encoding"));
    let tag = got.line("ETag").unwrap();
    let fields = format!("{brotli}If-None-Match: {tag}\r\n");
    assert_eq!(fixture.ask("GET", "/s/users/18", &fields).status, 304);
    let got = fixture.ask("GET", "/s/users/jane.doe", BROWSER);
    assert_eq!(got.line("Vary"), Some("Accept, Accept-Encoding"));
    let got = fixture.ask("GET", "/s/users/17", "Range: bytes=1-2\r\n");
    assert_eq!((got.status, got.text()), (206, "sh"));
}

#[test]
fn a_file_that_comes_takes_its_place_from_the_shell() {
    let mut fixture = app();
    assert_eq!(fixture.body("/s/about"), "<shell>");
    fixture.write("about", "about");
    assert_eq!(fixture.body("/s/about"), "about");
    fs::remove_file(fixture.path("about")).unwrap();
    fixture.wait_ms(1000);
    assert_eq!(fixture.body("/s/about"), "<shell>");
}

#[test]
fn a_missing_shell_is_a_missing_file() {
    let mut fixture = app();
    fs::remove_file(fixture.path("app/shell.html")).unwrap();
    assert_eq!(fixture.ask("GET", "/s/users/17", BROWSER).status, 404);
    fs::create_dir(fixture.path("app/shell.html")).unwrap();
    assert_eq!(fixture.ask("GET", "/s/users/17", BROWSER).status, 404);
}

#[test]
fn a_shell_outside_of_the_folder_is_none() {
    for fallback in ["../secret", "/etc/passwd", ""] {
        let mut fixture =
            Fixture::configured(|config| config.statics[0].fallback = Some(fallback.to_owned()));
        fixture.write("../secret", "secret");
        assert_eq!(fixture.status("/s/users"), 404, "{fallback}");
    }
}

#[test]
fn what_may_not_be_read_is_not_replaced_by_the_shell() {
    use std::os::unix::fs::PermissionsExt;
    let mut fixture = app();
    fixture.write("private", "private");
    fs::set_permissions(fixture.path("private"), fs::Permissions::from_mode(0o0)).unwrap();
    // Root may read everything.
    let expect = if fs::read(fixture.path("private")).is_ok() {
        200
    } else {
        403
    };
    assert_eq!(fixture.ask("GET", "/s/private", BROWSER).status, expect);
}
