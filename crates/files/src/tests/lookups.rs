//! What is answered at once and what needs a lookup.

use std::sync::Arc;

use super::super::encoding_preference::EncodingPreference;
use super::super::fallback::FallbackChoice;
use super::super::mounts::RequestedPath;
use super::*;

/// What `files` gives for a GET of `rest`: a reply's status, or a lookup.
fn ask(fixture: &mut Fixture, rest: &str) -> Result<u16, Box<Lookup>> {
    with_head(
        &format!("GET /s{rest} HTTP/1.1\r\nHost: a\r\n\r\n"),
        |head| match fixture.files.ask(0, head, rest.as_bytes(), fixture.now) {
            FileAnswer::Ready(reply) => Ok(reply.status),
            FileAnswer::Stale(reply, lookup) => {
                fixture.files.learn(lookup.run(), fixture.now);
                Ok(reply.status)
            }
            FileAnswer::Lookup(lookup) => Err(lookup),
        },
    )
}

fn settle(fixture: &mut Fixture, looked: LookupResult) -> Reply {
    with_head("GET / HTTP/1.1\r\nHost: a\r\n\r\n", |head| {
        super::settle(&mut fixture.files, looked, head, fixture.now)
    })
}

#[test]
fn needs_no_look_for_what_is_fresh() {
    let mut fixture = Fixture::new();
    fixture.write("a.txt", "hello");
    assert_eq!(fixture.looks(|fixture| drop(fixture.body("/s/a.txt"))), 1);
    fixture.wait_ms(999);
    assert_eq!(fixture.looks(|fixture| drop(fixture.body("/s/a.txt"))), 0);
}

#[test]
fn needs_no_look_for_what_names_nothing() {
    let mut fixture = Fixture::new();
    for rest in ["/..", "/.env", "/a%2fb", "/a%00", "//"] {
        assert_eq!(ask(&mut fixture, rest).unwrap(), 404, "{rest}");
    }
    assert_eq!(ask(&mut fixture, "").unwrap(), 301);
}

/// The folder for temporary files is on a local file system that remembers missing names, or this says
/// which lookups a probe cannot spare.
#[test]
fn a_glance_confirms_what_is_unchanged() {
    for encodings in [Vec::new(), vec![Coding::Gzip]] {
        let mut fixture = Fixture::configured(|config| config.file_serving.encodings = encodings);
        fixture.write("a.txt", "hello");
        fixture.write("a.txt.gz", "gzip");
        fixture.write("large.txt.gz", "gzip");
        fixture.write("large.txt", "1".repeat(2000));
        let ask = |fixture: &mut Fixture| {
            assert_eq!(fixture.body("/s/a.txt"), "hello");
            assert_eq!(fixture.body("/s/large.txt").len(), 2000);
        };
        assert_eq!(fixture.looks(ask), 2);
        fixture.wait_ms(1000);
        fixture.looks(ask);
        for _ in 0..10 {
            fixture.wait_ms(1000);
            assert_eq!(fixture.looks(ask), 0);
        }
        replace(&fixture.path("a.txt"), "other");
        fixture.wait_ms(999);
        assert_eq!(fixture.body("/s/a.txt"), "hello");
        fixture.wait_ms(1);
        assert_eq!(
            fixture.looks(|fixture| assert_eq!(fixture.body("/s/a.txt"), "other")),
            1
        );
    }
}

#[test]
fn a_look_at_an_unchanged_file_reads_nothing() {
    let mut fixture = Fixture::new();
    fixture.write("a.txt", "hello");
    let kept = |fixture: &mut Fixture| match fixture.reply("GET", "/s/a.txt", "").body {
        ReplyBody::One(Part::Memory(data)) => data,
        body => panic!("{body:?}"),
    };
    kept(&mut fixture);
    fixture.wait_ms(1000);
    let second = kept(&mut fixture);
    let Some(known) = fixture
        .files
        .cache
        .unconfirmed(0, b"/a.txt", fixture.now)
        .map(Arc::clone)
    else {
        panic!("it was read twice");
    };
    let lookup = {
        let key = LookupKey {
            mount: 0,
            rest: b"/a.txt"[..].into(),
            preference: EncodingPreference::default(),
            fallback: FallbackChoice::default(),
            ticket: 0,
        };
        let path = RequestedPath::new(b"a.txt", None);
        Lookup::new(key, &fixture.files.mounts, path, Some(known), fixture.now)
    };
    settle(&mut fixture, lookup.run());
    let third = kept(&mut fixture);
    assert_eq!(
        second.as_ptr(),
        third.as_ptr(),
        "the same bytes, not read again"
    );
}

#[test]
fn requests_for_the_same_can_share_a_look() {
    let mut fixture = Fixture::new();
    fixture.write("a.txt", "hello");
    let first = ask(&mut fixture, "/a.txt").unwrap_err();
    let second = ask(&mut fixture, "/a.txt").unwrap_err();
    let other = ask(&mut fixture, "/b.txt").unwrap_err();
    assert!(first.key() == second.key() && first.key() != other.key());
    let looked = first.run();
    assert_eq!(looked.key(), second.key());
    for _ in 0..2 {
        let reply = settle(&mut fixture, looked.clone());
        assert_eq!(read_body(&reply.body), b"hello");
    }
    assert_eq!(ask(&mut fixture, "/a.txt").unwrap(), 200);
}

#[test]
fn each_request_has_its_own_look_where_nothing_may_be_old() {
    let mut fixture = Fixture::configured(|config| config.file_cache.revalidate = Nanos(0));
    let first = ask(&mut fixture, "/a.txt").unwrap_err();
    let second = ask(&mut fixture, "/a.txt").unwrap_err();
    assert_ne!(first.key(), second.key());
}

#[test]
fn what_a_look_saw_is_as_old_as_its_beginning() {
    let mut fixture = Fixture::new();
    fixture.write("a.txt", "hello");
    let lookup = ask(&mut fixture, "/a.txt").unwrap_err();
    fixture.wait_ms(600);
    settle(&mut fixture, lookup.run());
    fixture.wait_ms(399);
    assert_eq!(ask(&mut fixture, "/a.txt").unwrap(), 200);
    fixture.wait_ms(1);
    assert!(
        fixture
            .files
            .cache
            .fresh(0, b"/a.txt", fixture.now)
            .is_none()
    );
}

#[test]
fn a_look_that_comes_late_does_not_bring_the_old_back() {
    let mut fixture = Fixture::new();
    fixture.write("a.txt", "old");
    let late = ask(&mut fixture, "/a.txt").unwrap_err().run();
    fixture.wait_ms(10);
    replace(&fixture.path("a.txt"), "new");
    let early = ask(&mut fixture, "/a.txt").unwrap_err().run();
    settle(&mut fixture, early);
    let reply = settle(&mut fixture, late);
    assert_eq!(read_body(&reply.body), b"old", "it began before the change");
    assert_eq!(fixture.body("/s/a.txt"), "new");
}

#[test]
fn a_file_between_the_sizes_is_read_and_not_kept() {
    let mut fixture = Fixture::configured(|config| config.file_serving.writer_bytes_min = 3000);
    for (bytes, is_kept, is_open) in [
        (1024, true, false),
        (1025, false, false),
        (2999, false, false),
        (3000, true, true),
    ] {
        let name = format!("{bytes}.bin");
        fixture.write(&name, vec![7; bytes]);
        let target = format!("/s/{name}");
        let reply = fixture.reply("GET", &target, "");
        assert_eq!(is_file(&reply.body), is_open, "{bytes}");
        assert_eq!(read_body(&reply.body), vec![7; bytes]);
        let looks = fixture.looks(|fixture| drop(fixture.reply("GET", &target, "")));
        assert_eq!(looks == 0, is_kept, "{bytes}");
    }
}

#[test]
fn a_span_says_which_edition_of_the_file_it_is_of() {
    use std::os::unix::fs::MetadataExt;
    let mut fixture = Fixture::new();
    fixture.write("large.bin", [7; 2000]);
    let metadata = fs::metadata(fixture.path("large.bin")).unwrap();
    let expect = Edition {
        bytes: 2000,
        modified_unix_secs: metadata.mtime(),
        modified_nanos: metadata.mtime_nsec(),
    };
    for fields in ["", "Range: bytes=5-9\r\n", "Range: bytes=5-9,20-29\r\n"] {
        let body = fixture.reply("GET", "/s/large.bin", fields).body;
        let parts = match body {
            ReplyBody::One(part) => vec![part],
            ReplyBody::Many(parts) => parts,
            ReplyBody::Empty => panic!("{fields}"),
        };
        let mut files_len = 0;
        for part in parts {
            if let Part::File { edition, .. } = part {
                assert_eq!(edition, Some(expect));
                files_len += 1;
            }
        }
        assert!(files_len > 0);
    }
}

#[test]
fn a_large_file_that_is_written_in_place_is_announced_as_it_is() {
    let mut fixture = Fixture::new();
    fixture.write("log.txt", "1".repeat(2000));
    assert_eq!(fixture.body("/s/log.txt").len(), 2000);
    for bytes in [2500, 3000, 1500] {
        fs::File::options()
            .write(true)
            .open(fixture.path("log.txt"))
            .unwrap()
            .set_len(bytes)
            .unwrap();
        assert_eq!(fixture.body("/s/log.txt").len() as u64, bytes, "at once");
    }
    assert_eq!(fixture.looks(|fixture| drop(fixture.body("/s/log.txt"))), 0);
}

#[test]
fn what_is_forgotten_is_handed_out_to_be_closed() {
    let mut fixture = Fixture::new();
    fixture.write("a.txt", "hello");
    fixture.write("large.txt", "1".repeat(2000));
    fixture.body("/s/a.txt");
    fixture.body("/s/large.txt");
    assert!(fixture.files.take_evicted().is_none());
    replace(&fixture.path("a.txt"), "other");
    replace(&fixture.path("large.txt"), &"2".repeat(2000));
    fixture.wait_ms(1000);
    fixture.body("/s/a.txt");
    fixture.body("/s/large.txt");
    let evicted = fixture.files.take_evicted().unwrap();
    assert_eq!(evicted.open_len(), 1, "small files have no descriptor");
    assert!(fixture.files.take_evicted().is_none());
    fixture.wait_ms(60_000);
    fixture.files.close_idle(fixture.now);
    assert_eq!(fixture.files.take_evicted().unwrap().open_len(), 1);
}

#[test]
fn slow_storage_is_asked_behind_a_reply_from_what_was_known_a_moment_ago() {
    let mut fixture = Fixture::new();
    fixture.write("a.txt", "hello");
    let device = fs::metadata(fixture.path("a.txt")).unwrap();
    fixture.files.mounts.devices.take_for_remote(&device);
    assert_eq!(fixture.body("/s/a.txt"), "hello");
    replace(&fixture.path("a.txt"), "other");
    fixture.wait_ms(1000);
    // The first request learns it for the second.
    assert_eq!(fixture.body("/s/a.txt"), "hello");
    assert_eq!(fixture.body("/s/a.txt"), "other");
    // What had no request for a while is not given before a lookup.
    replace(&fixture.path("a.txt"), "third");
    fixture.wait_ms(10_000);
    assert_eq!(fixture.body("/s/a.txt"), "third");
    fs::remove_file(fixture.path("a.txt")).unwrap();
    fixture.wait_ms(1000);
    assert_eq!(ask(&mut fixture, "/a.txt").unwrap(), 200);
    assert!(
        ask(&mut fixture, "/a.txt").is_err(),
        "the lookup said that it is evicted"
    );
}

#[test]
fn one_look_at_slow_storage_is_enough_for_all_that_are_answered_without_it() {
    let mut fixture = Fixture::new();
    fixture.write("a.txt", "hello");
    fixture.write("a.txt.gz", "gzip");
    let device = fs::metadata(fixture.path("a.txt")).unwrap();
    fixture.files.mounts.devices.take_for_remote(&device);
    fixture.body("/s/a.txt");
    fixture.wait_ms(1000);
    let looks = |fixture: &mut Fixture, accept: &str| {
        let head = format!("GET / HTTP/1.1\r\nHost: a\r\nAccept-Encoding: {accept}\r\n\r\n");
        with_head(&head, |head| {
            match fixture.files.ask(0, head, b"/a.txt", fixture.now) {
                FileAnswer::Ready(_) => 0,
                FileAnswer::Stale(..) => 1,
                FileAnswer::Lookup(_) => panic!("it is not so old"),
            }
        })
    };
    assert_eq!(looks(&mut fixture, "gzip"), 1);
    for accept in ["gzip", "", "gzip;q=0"] {
        assert_eq!(looks(&mut fixture, accept), 0, "{accept}");
    }
    // The storage does not answer: it is asked again as often as it would be anyhow.
    fixture.wait_ms(999);
    assert_eq!(looks(&mut fixture, ""), 0);
    fixture.wait_ms(1);
    assert_eq!(looks(&mut fixture, ""), 1);
    fixture.wait_ms(8000);
    assert!(ask(&mut fixture, "/a.txt").is_err(), "now everybody waits");
}

/// As on a kernel without `openat2`, and on file systems that forget what was removed, tmpfs for one.
#[test]
fn local_storage_is_waited_for_where_a_glance_sees_nothing() {
    let mut fixture = Fixture::new();
    let mounts = Arc::get_mut(&mut fixture.files.mounts).unwrap();
    mounts.list[0].folder.disable_probe();
    fixture.write("a.txt", "hello");
    assert_eq!(fixture.body("/s/a.txt"), "hello");
    replace(&fixture.path("a.txt"), "other");
    fixture.wait_ms(1000);
    assert_eq!(fixture.body("/s/a.txt"), "other");
    fs::remove_file(fixture.path("a.txt")).unwrap();
    fixture.wait_ms(1000);
    assert_eq!(fixture.status("/s/a.txt"), 404);
}
