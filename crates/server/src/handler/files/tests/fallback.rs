//! The shell of a single-page application, where there is no file.

use super::*;

fn app() -> House {
    let house = House::configured(|config| {
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
    house.write("app/shell.html", "<shell>");
    house.write("app/main.js", "js");
    house
}

const BROWSER: &str = "Accept: text/html,application/xhtml+xml,*/*;q=0.8\r\n";

#[test]
fn sends_the_shell_where_there_is_no_file() {
    let mut house = app();
    for (target, fields, expect) in [
        ("/s/users/17", "", 200),
        ("/s/users/17/", "", 200),
        ("/s/", "", 200),
        ("/s/app/", "", 200),
        ("/s/app/main.js/more", "", 200),
        ("/s/users/jane.doe", BROWSER, 200),
        ("/s/users/jane.doe", "", 404),
        ("/s/users/jane.doe", "Accept: */*\r\n", 404),
        ("/s/missing.js", "", 404),
        ("/s/missing.js", "Accept: */*\r\n", 404),
        ("/s/.env", BROWSER, 404),
        ("/s/.git/config", "", 404),
        ("/s/../users", BROWSER, 404),
        ("/s/users%2f17", BROWSER, 404),
        ("/s/users%00", BROWSER, 404),
    ] {
        let got = house.ask("GET", target, fields);
        assert_eq!(got.status, expect, "{target} {fields}");
        if expect == 200 {
            assert_eq!(got.text(), "<shell>");
            assert_eq!(got.line("Content-Type"), Some("text/html; charset=utf-8"));
            assert_eq!(got.line("Cache-Control"), Some("no-cache"), "{target}");
            let head = house.ask("HEAD", target, fields);
            assert_eq!(
                (head.status, head.lines, head.body.len()),
                (200, got.lines, 0)
            );
        }
    }
    assert_eq!(house.body("/s/app/main.js"), "js");
    assert_eq!(house.status("/s/app"), 301);
    assert_eq!(house.ask("POST", "/s/users/17", "").status, 405);
}

/// RFC 9111 section 4.1: else a shared cache gives a browser the 404 that a script got.
#[test]
fn what_depends_on_accept_says_so_even_if_it_is_nothing() {
    let mut house = app();
    for (target, fields, expect) in [
        ("/s/users/jane.doe", "", Some("Accept")),
        ("/s/users/jane.doe", BROWSER, Some("Accept")),
        ("/s/users/jane", "", None),
        ("/s/.env", "", None),
    ] {
        let got = house.ask("GET", target, fields);
        assert_eq!(got.line("Vary"), expect, "{target} {fields}");
    }
    assert_eq!(House::new().ask("GET", "/s/a.js", "").line("Vary"), None);
}

#[test]
fn the_shell_is_a_file_like_others() {
    let mut house = app();
    house.write("app/shell.html.br", "brotli");
    let brotli = "Accept-Encoding: br\r\n";
    let got = house.ask("GET", "/s/users/17", brotli);
    assert_eq!(
        (got.text(), got.line("Content-Encoding")),
        ("brotli", Some("br"))
    );
    assert_eq!(got.line("Vary"), Some("Accept-Encoding"));
    let tag = got.line("ETag").unwrap();
    let fields = format!("{brotli}If-None-Match: {tag}\r\n");
    assert_eq!(house.ask("GET", "/s/users/18", &fields).status, 304);
    let got = house.ask("GET", "/s/users/jane.doe", BROWSER);
    assert_eq!(got.line("Vary"), Some("Accept, Accept-Encoding"));
    let got = house.ask("GET", "/s/users/17", "Range: bytes=1-2\r\n");
    assert_eq!((got.status, got.text()), (206, "sh"));
}

#[test]
fn a_file_that_comes_takes_its_place_from_the_shell() {
    let mut house = app();
    assert_eq!(house.body("/s/about"), "<shell>");
    house.write("about", "about");
    assert_eq!(house.body("/s/about"), "about");
    fs::remove_file(house.path("about")).unwrap();
    house.wait_ms(1000);
    assert_eq!(house.body("/s/about"), "<shell>");
}

#[test]
fn a_missing_shell_is_a_missing_file() {
    let mut house = app();
    fs::remove_file(house.path("app/shell.html")).unwrap();
    assert_eq!(house.ask("GET", "/s/users/17", BROWSER).status, 404);
    fs::create_dir(house.path("app/shell.html")).unwrap();
    assert_eq!(house.ask("GET", "/s/users/17", BROWSER).status, 404);
}

#[test]
fn a_shell_outside_of_the_folder_is_none() {
    for fallback in ["../secret", "/etc/passwd", ""] {
        let mut house =
            House::configured(|config| config.statics[0].fallback = Some(fallback.to_owned()));
        house.write("../secret", "secret");
        assert_eq!(house.status("/s/users"), 404, "{fallback}");
    }
}

#[test]
fn what_may_not_be_read_is_not_replaced_by_the_shell() {
    use std::os::unix::fs::PermissionsExt;
    let mut house = app();
    house.write("private", "private");
    fs::set_permissions(house.path("private"), fs::Permissions::from_mode(0o0)).unwrap();
    // Root may read everything.
    let expect = if fs::read(house.path("private")).is_ok() {
        200
    } else {
        403
    };
    assert_eq!(house.ask("GET", "/s/private", BROWSER).status, expect);
}
