//! Files as a driver sees them: requests in, replies out, over real folders and a clock of our own. What a client
//! sees whatever the time is tested in tests/test_files.py, test_static_complete.py and test_bad_input.py.

mod fallback;
mod listing;
mod lookups;
mod siblings;

use std::fs;
use std::path::{Path, PathBuf};

use http::{HeadIndex, HeadStep, HeadView, Limits};
use telemetry::{Nanos, Stamp};

use super::*;
use crate::reply::{Edition, Part, Reply, ReplyBody};
use config::typed::{CacheRule, Coding, Config, FileCache, FileServing, StaticMount};

/// A folder served at `/s`, and the time.
struct Fixture {
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

impl Fixture {
    fn new() -> Fixture {
        Fixture::configured(|_| {})
    }

    /// A cache with entries of at most 1 KiB, looked at again after a second; larger files are sent from
    /// their descriptors.
    fn configured(change: impl FnOnce(&mut Config)) -> Fixture {
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
        Fixture {
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
        let text = format!("{method} {target} HTTP/1.1\r\nHost: a\r\n{fields}\r\n");
        with_head(&text, |head| {
            let rest = head.path().strip_prefix(b"/s").unwrap();
            match self.files.ask(0, head, rest, self.now) {
                FileAnswer::Ready(reply) => reply,
                FileAnswer::Stale(reply, lookup) => {
                    self.looks += 1;
                    self.files.learn(lookup.run(), self.now);
                    reply
                }
                FileAnswer::Lookup(lookup) => {
                    self.looks += 1;
                    settle(&mut self.files, lookup.run(), head, self.now)
                }
            }
        })
    }

    /// Looks that were needed for `asked`.
    fn looks(&mut self, asked: impl FnOnce(&mut Fixture)) -> usize {
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
fn sees_a_replaced_file_after_the_interval_and_not_before() {
    let mut fixture = Fixture::new();
    fixture.write("a.txt", "one");
    fixture.write("large.txt", "1".repeat(2000));
    assert_eq!(fixture.body("/s/a.txt"), "one");
    assert_eq!(fixture.body("/s/large.txt")[..1], *"1");
    replace(&fixture.path("a.txt"), "two");
    replace(&fixture.path("large.txt"), &"2".repeat(2000));
    fixture.wait_ms(999);
    assert_eq!(fixture.body("/s/a.txt"), "one");
    assert_eq!(fixture.body("/s/large.txt")[..1], *"1");
    fixture.wait_ms(1);
    assert_eq!(fixture.body("/s/a.txt"), "two");
    assert_eq!(fixture.body("/s/large.txt")[..1], *"2");
}

#[test]
fn sees_a_file_that_changes_its_size_class_or_becomes_a_folder() {
    let mut fixture = Fixture::new();
    fixture.write("a", "small");
    assert!(!is_file(&fixture.reply("GET", "/s/a", "").body));
    replace(&fixture.path("a"), &"x".repeat(2000));
    fixture.wait_ms(1000);
    assert!(is_file(&fixture.reply("GET", "/s/a", "").body));
    replace(&fixture.path("a"), "small again");
    fixture.wait_ms(1000);
    assert_eq!(fixture.body("/s/a"), "small again");
    fs::remove_file(fixture.path("a")).unwrap();
    fs::create_dir(fixture.path("a")).unwrap();
    fixture.wait_ms(1000);
    assert_eq!(fixture.status("/s/a"), 301);
}

#[test]
fn sees_a_change_of_equal_length_whose_date_was_put_back() {
    let mut fixture = Fixture::new();
    fixture.write("a.txt", "one");
    let date = fs::metadata(fixture.path("a.txt"))
        .unwrap()
        .modified()
        .unwrap();
    assert_eq!(fixture.body("/s/a.txt"), "one");
    fixture.write("a.txt", "two");
    fs::File::options()
        .write(true)
        .open(fixture.path("a.txt"))
        .unwrap()
        .set_modified(date)
        .unwrap();
    fixture.wait_ms(1000);
    assert_eq!(fixture.body("/s/a.txt"), "two");
}

#[test]
fn without_a_cache_every_request_looks_at_the_file() {
    for (bytes_max, revalidate) in [(0, Nanos::from_secs(1)), (1 << 20, Nanos(0))] {
        let mut fixture = Fixture::configured(|config| {
            config.file_cache = FileCache {
                bytes_max,
                entry_bytes_max: 1024,
                revalidate,
                stale_max: Nanos::ZERO,
            };
        });
        fixture.write("a.txt", "one");
        assert_eq!(fixture.body("/s/a.txt"), "one");
        replace(&fixture.path("a.txt"), "two");
        assert_eq!(fixture.body("/s/a.txt"), "two");
    }
}

#[test]
fn names_the_folder_or_the_rule_that_it_cannot_open() {
    let dir = tempfile::tempdir().unwrap();
    let missing = vec![mount(dir.path().join("missing"))];
    let mut bad_rule = config(vec![mount(dir.path().to_owned())], FileCache::default());
    bad_rule.file_serving.cache_control = vec![CacheRule {
        glob: "/s/{a".to_owned(),
        value: "no-cache".to_owned(),
    }];
    for (config, part) in [
        (
            config(missing, FileCache::default()),
            "/missing`: No such file",
        ),
        (bad_rule, "/s/{a"),
    ] {
        let text = Files::open(&config).err().unwrap().to_string();
        assert!(text.contains(part), "{text}");
    }
}

#[test]
fn moves_to_its_driver_thread() {
    fn is_send<T: Send>() {}
    is_send::<Files>();
    is_send::<Lookup>();
    is_send::<LookupResult>();
}

/// As a driver does for one request that waited.
fn settle(files: &mut Files, looked: LookupResult, head: HeadView<'_>, now: Stamp) -> Reply {
    let reply = files.reply(&looked, head);
    files.learn(looked, now);
    reply
}
