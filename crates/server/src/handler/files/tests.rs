//! The room as a driver sees it: requests in, replies out, over real folders and a clock of our own.

mod bad_input;
mod conditions;
mod fallback;
mod listing;
mod looks;
mod rules;
mod siblings;

use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};

use measure::{Nanos, Stamp};
use wire::{HeadIndex, HeadStep, HeadView, Limits};

use super::*;
use crate::config::meant::{CacheRule, Coding, Config, FileCache, FileServing, StaticMount};
use crate::response::{Edition, Part, Reply, ReplyBody};

/// A folder served at `/s`, and the time.
struct House {
    dir: tempfile::TempDir,
    files: Files,
    now: Stamp,
    looks: usize,
}

/// A reply with its body read.
#[derive(Debug, PartialEq, Eq)]
struct Got {
    status: u16,
    lines: String,
    body: Vec<u8>,
}

impl Got {
    fn line(&self, name: &str) -> Option<&str> {
        self.lines
            .split("\r\n")
            .find_map(|line| line.strip_prefix(name)?.strip_prefix(": "))
    }

    fn text(&self) -> &str {
        std::str::from_utf8(&self.body).unwrap()
    }
}

impl House {
    fn new() -> House {
        House::configured(|_| {})
    }

    fn with(cache: FileCache) -> House {
        House::configured(|config| config.file_cache = cache)
    }

    /// A cache with entries of at most 1 KiB, looked at again after a second; larger files are sent from
    /// their descriptors.
    fn configured(change: impl FnOnce(&mut Config)) -> House {
        let dir = tempfile::tempdir().unwrap();
        fs::create_dir(dir.path().join("web")).unwrap();
        let cache = FileCache {
            bytes_max: 1 << 20,
            entry_bytes_max: 1024,
            revalidate: Nanos::from_secs(1),
            stale_max: Nanos::from_secs(10),
        };
        let mut config = config(vec![mount(dir.path().join("web"))], cache);
        change(&mut config);
        let files = Files::open(&config).unwrap();
        House {
            dir,
            files,
            now: Stamp(1_000_000_000),
            looks: 0,
        }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join("web").join(name)
    }

    fn write(&self, name: &str, text: impl AsRef<[u8]>) {
        fs::create_dir_all(self.path(name).parent().unwrap()).unwrap();
        fs::write(self.path(name), text).unwrap();
    }

    fn wait_ms(&mut self, ms: u64) {
        self.now = self.now.plus(Nanos::from_ms(ms));
    }

    fn reply(&mut self, method: &str, target: &str, fields: &str) -> Reply {
        let bytes = format!("{method} {target} HTTP/1.1\r\nHost: a\r\n{fields}\r\n").into_bytes();
        let mut index = HeadIndex::new();
        let step = index.parse(&bytes, &mut 0, &Limits::default()).unwrap();
        assert_eq!(step, HeadStep::Complete);
        let head = HeadView {
            bytes: &bytes,
            index: &index,
        };
        let rest = head.path().strip_prefix(b"/s").unwrap();
        match self.files.ask(0, head, rest, self.now) {
            Given::Ready(reply) => reply,
            Given::Stale(reply, look) => {
                self.looks += 1;
                self.files.learn(look.look(), self.now);
                reply
            }
            Given::Look(look) => {
                self.looks += 1;
                settle(&mut self.files, look.look(), head, self.now)
            }
        }
    }

    /// Looks that were needed for `asked`.
    fn looks(&mut self, asked: impl FnOnce(&mut House)) -> usize {
        let before = self.looks;
        asked(self);
        self.looks - before
    }

    fn ask(&mut self, method: &str, target: &str, fields: &str) -> Got {
        let reply = self.reply(method, target, fields);
        let body = read_body(&reply.body);
        let got = Got {
            status: reply.status,
            lines: String::from_utf8(reply.fields.as_bytes().to_vec()).unwrap(),
            body,
        };
        if let Some(length) = got.line("Content-Length").filter(|_| method != "HEAD") {
            assert_eq!(length, got.body.len().to_string());
        }
        assert!(
            got.lines.ends_with("\r\n") && !got.lines.contains("\r\n\r\n"),
            "{}",
            got.lines
        );
        got
    }

    fn status(&mut self, target: &str) -> u16 {
        self.ask("GET", target, "").status
    }

    fn body(&mut self, target: &str) -> String {
        let got = self.ask("GET", target, "");
        assert_eq!(got.status, 200, "{target}");
        got.text().to_owned()
    }
}

pub(super) fn with_head<T>(text: &str, step: impl FnOnce(HeadView<'_>) -> T) -> T {
    let mut index = HeadIndex::new();
    let parsed = index.parse(text.as_bytes(), &mut 0, &Limits::default());
    assert_eq!(parsed, Ok(HeadStep::Complete));
    step(HeadView {
        bytes: text.as_bytes(),
        index: &index,
    })
}

/// Asks, and looks on the spot where a look is needed.
fn answer(files: &mut Files, mount: usize, head: HeadView<'_>, rest: &[u8], now: Stamp) -> Reply {
    match files.ask(mount, head, rest, now) {
        Given::Ready(reply) => reply,
        Given::Look(look) => settle(files, look.look(), head, now),
        Given::Stale(..) => panic!("the folder for temporary files is local"),
    }
}

/// `cache`, and files larger than its entries sent from their descriptors.
fn config(statics: Vec<StaticMount>, cache: FileCache) -> Config {
    Config {
        statics,
        file_serving: FileServing {
            writer_bytes_min: 0,
            ..FileServing::default()
        },
        file_cache: cache,
        ..Config::default()
    }
}

fn mount(dir: PathBuf) -> StaticMount {
    StaticMount {
        url: "/s".to_owned(),
        dir,
        index: "index.html".to_owned(),
        fallback: None,
    }
}

fn read_body(body: &ReplyBody) -> Vec<u8> {
    use std::os::unix::fs::FileExt;
    let read = |part: &Part| match part {
        Part::Memory(data) => data.to_vec(),
        Part::File {
            file,
            offset,
            bytes,
            ..
        } => {
            let mut data = vec![0; *bytes as usize];
            file.read_exact_at(&mut data, *offset).unwrap();
            data
        }
    };
    match body {
        ReplyBody::Empty => Vec::new(),
        ReplyBody::One(part) => read(part),
        ReplyBody::Many(parts) => parts.iter().flat_map(read).collect(),
    }
}

fn is_file(body: &ReplyBody) -> bool {
    matches!(body, ReplyBody::One(Part::File { .. }))
}

/// Puts another file in the place of `path` at once, as deployments do.
fn replace(path: &Path, text: &str) {
    let beside = path.with_extension("new");
    fs::write(&beside, text).unwrap();
    fs::rename(beside, path).unwrap();
}

#[test]
fn serves_a_file_and_its_index() {
    let mut house = House::new();
    house.write("css/a.css", "a{}");
    house.write("index.html", "<p>");
    let got = house.ask("GET", "/s/css/a.css?v=1", "");
    assert_eq!((got.status, got.text()), (200, "a{}"));
    assert_eq!(got.line("Content-Type"), Some("text/css; charset=utf-8"));
    assert_eq!(got.line("Accept-Ranges"), Some("bytes"));
    let got = house.ask("GET", "/s/", "");
    assert_eq!((got.status, got.text()), (200, "<p>"));
    assert_eq!(got.line("Content-Type"), Some("text/html; charset=utf-8"));
}

#[test]
fn head_has_the_lines_of_get_and_no_body() {
    let mut house = House::new();
    house.write("a.txt", "hello");
    house.write("large.bin", [7; 2000]);
    for target in ["/s/a.txt", "/s/large.bin", "/s/missing", "/s"] {
        let get = house.ask("GET", target, "");
        let head = house.ask("HEAD", target, "");
        assert_eq!(
            (head.status, &head.lines, head.body.len()),
            (get.status, &get.lines, 0),
            "{target}"
        );
    }
}

#[test]
fn other_methods_are_told_which_are_allowed() {
    let mut house = House::new();
    house.write("a.txt", "hello");
    for method in ["POST", "PUT", "DELETE", "OPTIONS", "PATCH", "TRACE"] {
        let got = house.ask(method, "/s/a.txt", "");
        assert_eq!(
            (got.status, got.line("Allow")),
            (405, Some("GET, HEAD")),
            "{method}"
        );
    }
}

#[test]
fn unknown_methods_are_not_implemented() {
    let mut house = House::new();
    house.write("a.txt", "hello");
    for method in ["PURGE", "PROPFIND", "get", "TRACES", "X"] {
        for target in ["/s/a.txt", "/s/missing", "/s"] {
            let got = house.ask(method, target, "");
            assert_eq!(
                (got.status, got.line("Allow"), got.text()),
                (501, None, "501 Not Implemented\n"),
                "{method} {target}"
            );
        }
    }
}

#[test]
fn redirects_a_folder_to_its_slash() {
    let mut house = House::new();
    house.write("css/sub/a.css", "a{}");
    house.write("a\\b/c", "c");
    for (target, location) in [
        ("/s", "/s/"),
        ("/s?x=1", "/s/?x=1"),
        ("/s/css", "/s/css/"),
        ("/s/css/sub?a=b&c", "/s/css/sub/?a=b&c"),
        ("/s/css?", "/s/css/?"),
        ("/s/c%73s", "/s/c%73s/"),
        ("/s/a%5Cb", "/s/a%5Cb/"),
        ("http://a/s/css?x", "/s/css/?x"),
    ] {
        if target.starts_with("http") {
            let bytes = format!("GET {target} HTTP/1.1\r\nHost: a\r\n\r\n").into_bytes();
            let mut index = HeadIndex::new();
            index.parse(&bytes, &mut 0, &Limits::default()).unwrap();
            let reply = answer(
                &mut house.files,
                0,
                HeadView {
                    bytes: &bytes,
                    index: &index,
                },
                b"/css",
                house.now,
            );
            assert!(
                String::from_utf8_lossy(reply.fields.as_bytes())
                    .contains(&format!("Location: {location}\r\n"))
            );
            continue;
        }
        let got = house.ask("GET", target, "");
        assert_eq!(
            (got.status, got.line("Location")),
            (301, Some(location)),
            "{target}"
        );
    }
}

#[test]
fn an_index_that_is_a_folder_is_no_index() {
    let mut house = House::new();
    house.write("index.html/a.txt", "a");
    assert_eq!(house.status("/s/"), 404);
    assert_eq!(house.status("/s/index.html"), 301);
    assert_eq!(house.body("/s/index.html/a.txt"), "a");
}

#[test]
fn hides_what_is_not_to_be_seen() {
    let mut house = House::new();
    house.write("a.txt", "hello");
    house.write(".env", "secret");
    house.write(".git/config", "secret");
    house.write("sub/.htaccess", "secret");
    house.write(".well-known/security.txt", "hello");
    house.write("../secret", "secret");
    symlink("../../secret", house.path("sub/out")).unwrap();
    symlink("../a.txt", house.path("sub/in")).unwrap();
    assert_eq!(house.body("/s/sub/in"), "hello");
    assert_eq!(house.body("/s/.well-known/security.txt"), "hello");
    for target in [
        "/s/.env",
        "/s/%2eenv",
        "/s/.git/config",
        "/s/.git",
        "/s/.git/",
        "/s/sub/.htaccess",
        "/s/sub/out",
        "/s/sub/",
        "/s/../secret",
        "/s/..%2fsecret",
        "/s/%2e%2e/secret",
        "/s/sub/../a.txt",
        "/s/./a.txt",
        "/s//a.txt",
        "/s/a.txt/",
        "/s/a.txt%00",
        "/s/sub%2fin",
        "/s/missing",
        "/s/",
        "/s/a.txt/b",
    ] {
        assert_eq!(house.status(target), 404, "{target}");
    }
}

#[test]
fn sees_a_replaced_file_after_the_interval_and_not_before() {
    let mut house = House::new();
    house.write("a.txt", "one");
    house.write("large.txt", "1".repeat(2000));
    assert_eq!(house.body("/s/a.txt"), "one");
    assert_eq!(house.body("/s/large.txt")[..1], *"1");
    replace(&house.path("a.txt"), "two");
    replace(&house.path("large.txt"), &"2".repeat(2000));
    house.wait_ms(999);
    assert_eq!(house.body("/s/a.txt"), "one");
    assert_eq!(house.body("/s/large.txt")[..1], *"1");
    house.wait_ms(1);
    assert_eq!(house.body("/s/a.txt"), "two");
    assert_eq!(house.body("/s/large.txt")[..1], *"2");
}

#[test]
fn sees_removal_and_return() {
    let mut house = House::new();
    house.write("a.txt", "one");
    assert_eq!(house.body("/s/a.txt"), "one");
    fs::remove_file(house.path("a.txt")).unwrap();
    house.wait_ms(1000);
    assert_eq!(house.status("/s/a.txt"), 404);
    // That it was missing is not remembered.
    house.write("a.txt", "two");
    assert_eq!(house.body("/s/a.txt"), "two");
}

#[test]
fn sees_a_file_that_changes_its_size_class_or_becomes_a_folder() {
    let mut house = House::new();
    house.write("a", "small");
    assert!(!is_file(&house.reply("GET", "/s/a", "").body));
    replace(&house.path("a"), &"x".repeat(2000));
    house.wait_ms(1000);
    assert!(is_file(&house.reply("GET", "/s/a", "").body));
    replace(&house.path("a"), "small again");
    house.wait_ms(1000);
    assert_eq!(house.body("/s/a"), "small again");
    fs::remove_file(house.path("a")).unwrap();
    fs::create_dir(house.path("a")).unwrap();
    house.wait_ms(1000);
    assert_eq!(house.status("/s/a"), 301);
}

#[test]
fn sees_a_change_of_equal_length_whose_date_was_put_back() {
    let mut house = House::new();
    house.write("a.txt", "one");
    let date = fs::metadata(house.path("a.txt"))
        .unwrap()
        .modified()
        .unwrap();
    assert_eq!(house.body("/s/a.txt"), "one");
    house.write("a.txt", "two");
    fs::File::options()
        .write(true)
        .open(house.path("a.txt"))
        .unwrap()
        .set_modified(date)
        .unwrap();
    house.wait_ms(1000);
    assert_eq!(house.body("/s/a.txt"), "two");
}

#[test]
fn without_a_cache_every_request_looks_at_the_file() {
    let off = FileCache {
        bytes_max: 0,
        entry_bytes_max: 1024,
        revalidate: Nanos::from_secs(1),
        stale_max: Nanos::ZERO,
    };
    let eager = FileCache {
        bytes_max: 1 << 20,
        entry_bytes_max: 1024,
        revalidate: Nanos(0),
        stale_max: Nanos::ZERO,
    };
    for cache in [off, eager] {
        let mut house = House::with(cache);
        house.write("a.txt", "one");
        assert_eq!(house.body("/s/a.txt"), "one");
        replace(&house.path("a.txt"), "two");
        assert_eq!(house.body("/s/a.txt"), "two");
    }
}

#[test]
fn a_replaced_large_file_is_sent_to_its_end_as_it_was() {
    let mut house = House::new();
    house.write("large.txt", "1".repeat(2000));
    let reply = house.reply("GET", "/s/large.txt", "");
    replace(&house.path("large.txt"), "2");
    assert_eq!(read_body(&reply.body), "1".repeat(2000).as_bytes());
}

#[test]
fn mounts_do_not_see_each_other() {
    let dir = tempfile::tempdir().unwrap();
    for name in ["one", "two"] {
        fs::create_dir(dir.path().join(name)).unwrap();
        fs::write(dir.path().join(name).join("a.txt"), name).unwrap();
    }
    let mounts = [mount(dir.path().join("one")), mount(dir.path().join("two"))];
    let mut files = Files::open(&config(mounts.to_vec(), FileCache::default())).unwrap();
    let bytes = b"GET /a.txt HTTP/1.1\r\nHost: a\r\n\r\n";
    let mut index = HeadIndex::new();
    index.parse(bytes, &mut 0, &Limits::default()).unwrap();
    for (mount, text) in [(0, "one"), (1, "two"), (0, "one"), (1, "two")] {
        let reply = answer(
            &mut files,
            mount,
            HeadView {
                bytes,
                index: &index,
            },
            b"/a.txt",
            Stamp(1),
        );
        assert_eq!(read_body(&reply.body), text.as_bytes());
    }
}

#[test]
fn names_the_folder_that_cannot_be_opened() {
    let dir = tempfile::tempdir().unwrap();
    let mounts = vec![mount(dir.path().join("missing"))];
    let fault = Files::open(&config(mounts, FileCache::default()))
        .err()
        .unwrap();
    let text = fault.to_string();
    assert!(
        text.starts_with("static folder `") && text.contains("/missing` of `/s/`: No such file"),
        "{text}"
    );
}

#[test]
fn moves_to_its_driver_thread() {
    fn is_send<T: Send>() {}
    is_send::<Files>();
    is_send::<Look>();
    is_send::<Looked>();
}

/// As a driver does for one request that waited.
fn settle(files: &mut Files, looked: Looked, head: HeadView<'_>, now: Stamp) -> Reply {
    let reply = files.reply(&looked, head);
    files.learn(looked, now);
    reply
}
