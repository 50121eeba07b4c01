//! What is answered at once and what needs a look.

use std::sync::Arc;

use super::super::instead::Instead;
use super::super::ranking::Ranking;
use super::super::site::Asked;
use super::*;

/// What `files` gives for a GET of `rest`: a reply's status, or a look.
fn ask(house: &mut House, rest: &str) -> Result<u16, Box<Look>> {
    with_head(
        &format!("GET /s{rest} HTTP/1.1\r\nHost: a\r\n\r\n"),
        |head| match house.files.ask(0, head, rest.as_bytes(), house.now) {
            Given::Ready(reply) => Ok(reply.status),
            Given::Stale(reply, look) => {
                house.files.learn(look.look(), house.now);
                Ok(reply.status)
            }
            Given::Look(look) => Err(look),
        },
    )
}

fn settle(house: &mut House, looked: Looked) -> Reply {
    with_head("GET / HTTP/1.1\r\nHost: a\r\n\r\n", |head| {
        super::settle(&mut house.files, looked, head, house.now)
    })
}

#[test]
fn needs_no_look_for_what_is_fresh() {
    let mut house = House::new();
    house.write("a.txt", "hello");
    assert_eq!(house.looks(|house| drop(house.body("/s/a.txt"))), 1);
    house.wait_ms(999);
    assert_eq!(house.looks(|house| drop(house.body("/s/a.txt"))), 0);
}

#[test]
fn needs_no_look_for_what_names_nothing() {
    let mut house = House::new();
    for rest in ["/..", "/.env", "/a%2fb", "/a%00", "//"] {
        assert_eq!(ask(&mut house, rest).unwrap(), 404, "{rest}");
    }
    assert_eq!(ask(&mut house, "").unwrap(), 301);
}

/// The folder for temporary files is on a local file system that remembers missing names, or this says
/// which looks a glance cannot spare.
#[test]
fn a_glance_confirms_what_is_unchanged() {
    for encodings in [Vec::new(), vec![Coding::Gzip]] {
        let mut house = House::configured(|config| config.file_serving.encodings = encodings);
        house.write("a.txt", "hello");
        house.write("a.txt.gz", "gzip");
        house.write("large.txt.gz", "gzip");
        house.write("large.txt", "1".repeat(2000));
        let ask = |house: &mut House| {
            assert_eq!(house.body("/s/a.txt"), "hello");
            assert_eq!(house.body("/s/large.txt").len(), 2000);
        };
        assert_eq!(house.looks(ask), 2);
        house.wait_ms(1000);
        house.looks(ask);
        for _ in 0..10 {
            house.wait_ms(1000);
            assert_eq!(house.looks(ask), 0);
        }
        replace(&house.path("a.txt"), "other");
        house.wait_ms(999);
        assert_eq!(house.body("/s/a.txt"), "hello");
        house.wait_ms(1);
        assert_eq!(
            house.looks(|house| assert_eq!(house.body("/s/a.txt"), "other")),
            1
        );
    }
}

#[test]
fn a_look_at_an_unchanged_file_reads_nothing() {
    let mut house = House::new();
    house.write("a.txt", "hello");
    let kept = |house: &mut House| match house.reply("GET", "/s/a.txt", "").body {
        ReplyBody::One(Part::Memory(data)) => data,
        body => panic!("{body:?}"),
    };
    kept(&mut house);
    house.wait_ms(1000);
    let second = kept(&mut house);
    let Some(known) = house
        .files
        .cache
        .doubted(0, b"/a.txt", house.now)
        .map(Arc::clone)
    else {
        panic!("it was read twice");
    };
    let look = {
        let key = LookKey {
            mount: 0,
            rest: b"/a.txt"[..].into(),
            ranking: Ranking::default(),
            instead: Instead::default(),
            ticket: 0,
        };
        let path = Asked::new(b"a.txt", None);
        Look::new(key, &house.files.site, path, Some(known), house.now)
    };
    settle(&mut house, look.look());
    let third = kept(&mut house);
    assert_eq!(
        second.as_ptr(),
        third.as_ptr(),
        "the same bytes, not read again"
    );
}

#[test]
fn requests_for_the_same_can_share_a_look() {
    let mut house = House::new();
    house.write("a.txt", "hello");
    let first = ask(&mut house, "/a.txt").unwrap_err();
    let second = ask(&mut house, "/a.txt").unwrap_err();
    let other = ask(&mut house, "/b.txt").unwrap_err();
    assert!(first.key() == second.key() && first.key() != other.key());
    let looked = first.look();
    assert_eq!(looked.key(), second.key());
    for _ in 0..2 {
        let reply = settle(&mut house, looked.clone());
        assert_eq!(read_body(&reply.body), b"hello");
    }
    assert_eq!(ask(&mut house, "/a.txt").unwrap(), 200);
}

#[test]
fn each_request_has_its_own_look_where_nothing_may_be_old() {
    let mut house = House::configured(|config| config.file_cache.revalidate = Nanos(0));
    let first = ask(&mut house, "/a.txt").unwrap_err();
    let second = ask(&mut house, "/a.txt").unwrap_err();
    assert_ne!(first.key(), second.key());
}

#[test]
fn what_a_look_saw_is_as_old_as_its_beginning() {
    let mut house = House::new();
    house.write("a.txt", "hello");
    let look = ask(&mut house, "/a.txt").unwrap_err();
    house.wait_ms(600);
    settle(&mut house, look.look());
    house.wait_ms(399);
    assert_eq!(ask(&mut house, "/a.txt").unwrap(), 200);
    house.wait_ms(1);
    assert!(house.files.cache.fresh(0, b"/a.txt", house.now).is_none());
}

#[test]
fn a_look_that_comes_late_does_not_bring_the_old_back() {
    let mut house = House::new();
    house.write("a.txt", "old");
    let late = ask(&mut house, "/a.txt").unwrap_err().look();
    house.wait_ms(10);
    replace(&house.path("a.txt"), "new");
    let early = ask(&mut house, "/a.txt").unwrap_err().look();
    settle(&mut house, early);
    let reply = settle(&mut house, late);
    assert_eq!(read_body(&reply.body), b"old", "it began before the change");
    assert_eq!(house.body("/s/a.txt"), "new");
}

#[test]
fn a_file_between_the_sizes_is_read_and_not_kept() {
    let mut house = House::configured(|config| config.file_serving.writer_bytes_min = 3000);
    for (bytes, is_kept, is_open) in [
        (1024, true, false),
        (1025, false, false),
        (2999, false, false),
        (3000, true, true),
    ] {
        let name = format!("{bytes}.bin");
        house.write(&name, vec![7; bytes]);
        let target = format!("/s/{name}");
        let reply = house.reply("GET", &target, "");
        assert_eq!(is_file(&reply.body), is_open, "{bytes}");
        assert_eq!(read_body(&reply.body), vec![7; bytes]);
        let looks = house.looks(|house| drop(house.reply("GET", &target, "")));
        assert_eq!(looks == 0, is_kept, "{bytes}");
    }
}

#[test]
fn a_span_says_which_edition_of_the_file_it_is_of() {
    use std::os::unix::fs::MetadataExt;
    let mut house = House::new();
    house.write("large.bin", [7; 2000]);
    let metadata = fs::metadata(house.path("large.bin")).unwrap();
    let expect = Edition {
        bytes: 2000,
        modified_unix_secs: metadata.mtime(),
        modified_nanos: metadata.mtime_nsec(),
    };
    for fields in ["", "Range: bytes=5-9\r\n", "Range: bytes=5-9,20-29\r\n"] {
        let body = house.reply("GET", "/s/large.bin", fields).body;
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
    let mut house = House::new();
    house.write("log.txt", "1".repeat(2000));
    assert_eq!(house.body("/s/log.txt").len(), 2000);
    for bytes in [2500, 3000, 1500] {
        fs::File::options()
            .write(true)
            .open(house.path("log.txt"))
            .unwrap()
            .set_len(bytes)
            .unwrap();
        assert_eq!(house.body("/s/log.txt").len() as u64, bytes, "at once");
    }
    assert_eq!(house.looks(|house| drop(house.body("/s/log.txt"))), 0);
}

#[test]
fn what_is_forgotten_is_handed_out_to_be_closed() {
    let mut house = House::new();
    house.write("a.txt", "hello");
    house.write("large.txt", "1".repeat(2000));
    house.body("/s/a.txt");
    house.body("/s/large.txt");
    assert!(house.files.take_gone().is_none());
    replace(&house.path("a.txt"), "other");
    replace(&house.path("large.txt"), &"2".repeat(2000));
    house.wait_ms(1000);
    house.body("/s/a.txt");
    house.body("/s/large.txt");
    let gone = house.files.take_gone().unwrap();
    assert_eq!(gone.open_len(), 1, "small files have no descriptor");
    assert!(house.files.take_gone().is_none());
    house.wait_ms(60_000);
    house.files.close_idle(house.now);
    assert_eq!(house.files.take_gone().unwrap().open_len(), 1);
}

#[test]
fn slow_storage_is_asked_behind_a_reply_from_what_was_known_a_moment_ago() {
    let mut house = House::new();
    house.write("a.txt", "hello");
    let device = fs::metadata(house.path("a.txt")).unwrap();
    house.files.site.devices.take_for_remote(&device);
    assert_eq!(house.body("/s/a.txt"), "hello");
    replace(&house.path("a.txt"), "other");
    house.wait_ms(1000);
    // The first request learns it for the second.
    assert_eq!(house.body("/s/a.txt"), "hello");
    assert_eq!(house.body("/s/a.txt"), "other");
    // What nobody asked for in a while is not given before it was looked at.
    replace(&house.path("a.txt"), "third");
    house.wait_ms(10_000);
    assert_eq!(house.body("/s/a.txt"), "third");
    fs::remove_file(house.path("a.txt")).unwrap();
    house.wait_ms(1000);
    assert_eq!(ask(&mut house, "/a.txt").unwrap(), 200);
    assert!(
        ask(&mut house, "/a.txt").is_err(),
        "the look said that it is gone"
    );
}

#[test]
fn one_look_at_slow_storage_is_enough_for_all_that_are_answered_without_it() {
    let mut house = House::new();
    house.write("a.txt", "hello");
    house.write("a.txt.gz", "gzip");
    let device = fs::metadata(house.path("a.txt")).unwrap();
    house.files.site.devices.take_for_remote(&device);
    house.body("/s/a.txt");
    house.wait_ms(1000);
    let looks = |house: &mut House, accept: &str| {
        let head = format!("GET / HTTP/1.1\r\nHost: a\r\nAccept-Encoding: {accept}\r\n\r\n");
        with_head(&head, |head| {
            match house.files.ask(0, head, b"/a.txt", house.now) {
                Given::Ready(_) => 0,
                Given::Stale(..) => 1,
                Given::Look(_) => panic!("it is not so old"),
            }
        })
    };
    assert_eq!(looks(&mut house, "gzip"), 1);
    for accept in ["gzip", "", "gzip;q=0"] {
        assert_eq!(looks(&mut house, accept), 0, "{accept}");
    }
    // The storage does not answer: it is asked again as often as it would be anyhow.
    house.wait_ms(999);
    assert_eq!(looks(&mut house, ""), 0);
    house.wait_ms(1);
    assert_eq!(looks(&mut house, ""), 1);
    house.wait_ms(8000);
    assert!(ask(&mut house, "/a.txt").is_err(), "now everybody waits");
}

/// As on a kernel without `openat2`, and on file systems that forget what was removed, tmpfs for one.
#[test]
fn local_storage_is_waited_for_where_a_glance_sees_nothing() {
    let mut house = House::new();
    let site = Arc::get_mut(&mut house.files.site).unwrap();
    site.mounts[0].folder.see_nothing();
    house.write("a.txt", "hello");
    assert_eq!(house.body("/s/a.txt"), "hello");
    replace(&house.path("a.txt"), "other");
    house.wait_ms(1000);
    assert_eq!(house.body("/s/a.txt"), "other");
    fs::remove_file(house.path("a.txt")).unwrap();
    house.wait_ms(1000);
    assert_eq!(house.status("/s/a.txt"), 404);
}
