//! Folders without an index file.

use super::*;

fn listing_fixture() -> Fixture {
    Fixture::configured(|config| config.file_serving.listing = true)
}

const JSON: &str = "Accept: application/json\r\n";

#[test]
fn says_when_there_are_too_many() {
    let mut fixture = listing_fixture();
    fs::create_dir(fixture.path("many")).unwrap();
    for n in 0..=10_000 {
        fs::File::create(fixture.path("many").join(n.to_string())).unwrap();
    }
    let got = fixture.ask("GET", "/s/many/", JSON);
    assert!(got.text().contains("\"is_cut\":true"));
    assert_eq!(got.text().matches("\"name\"").count(), 10_000);
    fs::remove_file(fixture.path("many/7")).unwrap();
    let got = fixture.ask("GET", "/s/many/", JSON);
    assert!(got.text().contains("\"is_cut\":false"));
    assert_eq!(got.text().matches("\"name\"").count(), 10_000);
}

#[test]
fn a_listing_is_not_remembered() {
    let mut fixture = listing_fixture();
    fixture.write("a.txt", "a");
    assert!(fixture.ask("GET", "/s/", "").text().contains("a.txt"));
    fixture.write("b.txt", "b");
    assert!(fixture.ask("GET", "/s/", "").text().contains("b.txt"));
}

#[test]
fn a_folder_that_exists_is_listed_before_the_shell_is_sent() {
    let mut fixture = Fixture::configured(|config| {
        config.file_serving.listing = true;
        config.statics[0].fallback = Some("shell.html".to_owned());
    });
    fixture.write("shell.html", "<shell>");
    fixture.write("sub/a.txt", "a");
    assert!(fixture.body("/s/sub/").contains("a.txt"));
    assert_eq!(fixture.body("/s/none/"), "<shell>");
}

#[test]
fn without_an_index_every_folder_is_listed() {
    let mut fixture = Fixture::configured(|config| {
        config.file_serving.listing = true;
        config.statics[0].index = String::new();
    });
    fixture.write("index.html", "<p>");
    fixture.write("sub/a.txt", "a");
    assert!(fixture.body("/s/").contains("<bdi>index.html</bdi>"));
    assert!(fixture.body("/s/sub/").contains("<bdi>a.txt</bdi>"));
    assert_eq!(fixture.status("/s/sub/a.txt/"), 404);
    assert_eq!(fixture.status("/s/none/"), 404);
}
