//! Folders without an index file.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;

use super::*;

fn open_house() -> House {
    House::configured(|config| config.file_serving.listing = true)
}

const JSON: &str = "Accept: application/json\r\n";

#[test]
fn lists_only_where_it_is_switched_on_and_there_is_no_index() {
    let mut house = House::new();
    house.write("sub/a.txt", "a");
    assert_eq!(house.status("/s/sub/"), 404);
    let mut house = open_house();
    house.write("sub/a.txt", "a");
    let got = house.ask("GET", "/s/sub/", "");
    assert_eq!(got.status, 200);
    assert_eq!(got.line("Content-Type"), Some("text/html; charset=utf-8"));
    assert_eq!(got.line("Cache-Control"), Some("no-cache"));
    assert_eq!(got.line("Vary"), Some("Accept"));
    assert!(got.text().contains("<bdi>a.txt</bdi>"), "{}", got.text());
    let head = house.ask("HEAD", "/s/sub/", "");
    assert_eq!(
        (head.status, head.lines, head.body.len()),
        (200, got.lines, 0)
    );
    assert_eq!(house.status("/s/sub"), 301);
    assert_eq!(house.status("/s/missing/"), 404);
    assert_eq!(house.status("/s/sub/a.txt/"), 404);
    house.write("sub/index.html", "<p>");
    assert_eq!(house.body("/s/sub/"), "<p>");
}

#[test]
fn programs_get_json() {
    let mut house = open_house();
    house.write("b.txt", "12345");
    house.write("a/x", "");
    let got = house.ask("GET", "/s/", JSON);
    assert_eq!(got.line("Content-Type"), Some("application/json"));
    let text = got.text();
    assert!(
        text.starts_with("{\"path\":\"/s/\",\"is_cut\":false,"),
        "{text}"
    );
    let (folder, file) = (
        text.find("\"a/\"").unwrap(),
        text.find("\"b.txt\"").unwrap(),
    );
    assert!(folder < file, "folders come first");
    assert!(text.contains("\"bytes\":5"), "{text}");
}

#[test]
fn shows_only_what_could_be_served() {
    let mut house = open_house();
    house.write("../secret", "secret");
    house.write("sub/shown.txt", "shown");
    house.write(".env", "");
    house.write(".well-known/x", "");
    house.write("sub/.well-known/x", "");
    house.write("sub/.htaccess", "");
    for (target, name) in [
        ("../../secret", "sub/leads-out"),
        ("shown.txt", "sub/leads-in"),
        ("../sub", "sub/leads-to-folder"),
        ("/etc/passwd", "sub/leads-to-passwd"),
        ("nothing", "sub/leads-nowhere"),
    ] {
        symlink(target, house.path(name)).unwrap();
    }
    drop(std::os::unix::net::UnixListener::bind(house.path("sub/socket")).unwrap());
    let text = house.ask("GET", "/s/sub/", JSON).text().to_owned();
    let shown = ["leads-in", "leads-to-folder", "shown.txt"];
    for name in shown {
        assert!(
            text.contains(&format!("\"name\":\"{name}\"")),
            "{name} in {text}"
        );
        let target = format!("/s/sub/{name}");
        let expect = if name == "leads-to-folder" { 301 } else { 200 };
        assert_eq!(house.status(&target), expect, "{target}");
    }
    assert_eq!(text.matches("\"name\"").count(), shown.len(), "{text}");
    assert!(
        text.contains("\"name\":\"leads-in\",\"href\":\"leads-in\",\"type\":\"file\",\"bytes\":5")
    );
    let text = house.ask("GET", "/s/", JSON).text().to_owned();
    assert!(
        text.contains(".well-known") && !text.contains(".env"),
        "{text}"
    );
    assert_eq!(house.status("/s/.git/"), 404);
}

#[test]
fn the_links_lead_to_the_files_whatever_their_names() {
    let mut house = open_house();
    let names: [&[u8]; 9] = [
        b"a b",
        b"new\nline",
        b"\"quotes'",
        b"<b>&amp;",
        b"javascript:alert(1)",
        b"\xff\xfe",
        b"a?b#c%41",
        b"back\\slash",
        "\u{202e}txt.exe".as_bytes(),
    ];
    for name in names {
        fs::write(house.path("").join(OsStr::from_bytes(name)), name).unwrap();
    }
    let page = house.ask("GET", "/s/", "").text().to_owned();
    let mut found = Vec::new();
    for part in page.split("href=\"./").skip(1) {
        let href = part.split('"').next().unwrap();
        let got = house.ask("GET", &format!("/s/{href}"), "");
        assert_eq!(got.status, 200, "{href}");
        found.push(got.body);
    }
    found.sort();
    let mut expect: Vec<_> = names.map(<[u8]>::to_vec).to_vec();
    expect.sort();
    assert_eq!(found, expect);
}

#[test]
fn says_when_there_are_too_many() {
    let mut house = open_house();
    fs::create_dir(house.path("many")).unwrap();
    for n in 0..=10_000 {
        fs::File::create(house.path("many").join(n.to_string())).unwrap();
    }
    let got = house.ask("GET", "/s/many/", JSON);
    assert!(got.text().contains("\"is_cut\":true"));
    assert_eq!(got.text().matches("\"name\"").count(), 10_000);
    fs::remove_file(house.path("many/7")).unwrap();
    let got = house.ask("GET", "/s/many/", JSON);
    assert!(got.text().contains("\"is_cut\":false"));
    assert_eq!(got.text().matches("\"name\"").count(), 10_000);
}

#[test]
fn a_listing_is_not_remembered() {
    let mut house = open_house();
    house.write("a.txt", "a");
    assert!(house.ask("GET", "/s/", "").text().contains("a.txt"));
    house.write("b.txt", "b");
    assert!(house.ask("GET", "/s/", "").text().contains("b.txt"));
}

#[test]
fn a_folder_that_exists_is_listed_before_the_shell_is_sent() {
    let mut house = House::configured(|config| {
        config.file_serving.listing = true;
        config.statics[0].fallback = Some("shell.html".to_owned());
    });
    house.write("shell.html", "<shell>");
    house.write("sub/a.txt", "a");
    assert!(house.body("/s/sub/").contains("a.txt"));
    assert_eq!(house.body("/s/none/"), "<shell>");
}

#[test]
fn without_an_index_every_folder_is_listed() {
    let mut house = House::configured(|config| {
        config.file_serving.listing = true;
        config.statics[0].index = String::new();
    });
    house.write("index.html", "<p>");
    house.write("sub/a.txt", "a");
    assert!(house.body("/s/").contains("<bdi>index.html</bdi>"));
    assert!(house.body("/s/sub/").contains("<bdi>a.txt</bdi>"));
    assert_eq!(house.status("/s/sub/a.txt/"), 404);
    assert_eq!(house.status("/s/none/"), 404);
}
