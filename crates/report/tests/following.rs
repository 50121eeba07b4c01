//! Logs that grow while they are read: renamed, emptied, replaced, and pipes.

#![allow(clippy::unwrap_used, reason = "helpers of tests are tests")]

use std::fs::{self, File, OpenOptions};
use std::io::Write;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use report::{Filter, Follow, Input, KeepTimeline, Plan};

fn line(number: u32) -> String {
    format!(
        "192.0.2.7 - - [21/Nov/2026:12:00:00 +0000] \"GET /{number} HTTP/1.1\" 200 {number} \"-\" \"-\" receive=0.000001 \
         queue=0.000002 run=0.000003 send=0.000004 total=0.000010 id=1 route=app\n"
    )
}

fn lines(numbers: std::ops::Range<u32>) -> String {
    numbers.map(line).collect()
}

fn follow(inputs: &[Input]) -> Follow {
    let plan = Plan {
        pattern: None,
        filter: Filter::default(),
        by: None,
        slowest_len: 3,
        timeline: KeepTimeline::No,
    };
    Follow::open(inputs, &plan)
}

struct Place {
    folder: tempfile::TempDir,
    follow: Follow,
    begun: Instant,
}

impl Place {
    fn new(text: &str) -> Place {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a.log");
        fs::write(&path, text).unwrap();
        let mut place = Place {
            follow: follow(&[Input::File(path)]),
            folder,
            begun: Instant::now(),
        };
        place.turn_at(0);
        place
    }

    fn path(&self) -> PathBuf {
        self.folder.path().join("a.log")
    }

    fn append(&self, path: &Path, text: &str) {
        let mut file = OpenOptions::new()
            .append(true)
            .create(true)
            .open(path)
            .unwrap();
        file.write_all(text.as_bytes()).unwrap();
    }

    /// Reads until nothing is new, at so many seconds after the start.
    fn turn_at(&mut self, secs: u64) {
        while self.follow.turn(self.begun + Duration::from_secs(secs)) {}
    }

    /// What was counted in all, as the number of requests and of bytes, which are the lines' numbers.
    #[track_caller]
    fn check(&mut self, expect: std::ops::Range<u32>) {
        let (total, _) = self.follow.view();
        let found = (total.all().len, total.all().body_bytes, total.misread().0);
        let len = u64::from(expect.end - expect.start);
        assert_eq!(found, (len, expect.map(u64::from).sum(), 0));
        assert_eq!(self.follow.take_faults(), []);
    }
}

#[test]
fn counts_what_is_appended_even_in_pieces() {
    let mut place = Place::new(&lines(0..10));
    place.check(0..10);
    let (begin, end) = (&line(10)[..50], &line(10)[50..]);
    place.append(&place.path(), begin);
    place.turn_at(1);
    place.check(0..10);
    place.append(&place.path(), end);
    place.append(&place.path(), &lines(11..13));
    place.turn_at(2);
    place.check(0..13);
}

#[test]
fn the_interval_has_only_what_is_new() {
    let mut place = Place::new(&lines(0..10));
    let len = |place: &mut Place| place.follow.view().1.map(|interval| interval.all().len);
    assert_eq!(len(&mut place), Some(0));
    place.append(&place.path(), &lines(10..14));
    place.turn_at(1);
    assert_eq!(len(&mut place), Some(4));
    assert_eq!(len(&mut place), Some(0));
}

#[test]
fn survives_renaming_and_late_lines_in_the_old_file() {
    let mut place = Place::new(&lines(0..5));
    let old = place.folder.path().join("a.log.1");
    fs::rename(place.path(), &old).unwrap();
    place.turn_at(1);
    // The writer has not noticed yet.
    place.append(&old, &lines(5..8));
    place.turn_at(2);
    place.check(0..8);
    place.append(&place.path(), &lines(9..11));
    place.append(&old, &line(8));
    place.turn_at(3);
    place.append(&old, &line(11));
    place.append(&place.path(), &line(12));
    place.turn_at(4);
    place.check(0..13);
    // Long after, nobody writes to the old one.
    place.turn_at(60);
    place.append(&old, &lines(100..200));
    place.append(&place.path(), &line(13));
    place.turn_at(61);
    place.check(0..14);
}

#[test]
fn survives_truncation_in_place() {
    let mut place = Place::new(&lines(0..5));
    // As `copytruncate` does; shorter than before.
    File::options()
        .write(true)
        .open(place.path())
        .unwrap()
        .set_len(0)
        .unwrap();
    place.append(&place.path(), &line(5));
    place.turn_at(1);
    place.check(0..6);
    // Emptied, and already longer than what was read.
    File::options()
        .write(true)
        .open(place.path())
        .unwrap()
        .set_len(0)
        .unwrap();
    place.append(&place.path(), &lines(6..30));
    place.turn_at(2);
    place.check(0..30);
}

#[test]
fn survives_a_hundred_rotations_of_both_kinds() {
    let mut place = Place::new("");
    let mut number = 0;
    for round in 0..100 {
        let next = number + round % 7;
        place.append(&place.path(), &lines(number..next));
        number = next;
        place.turn_at(u64::from(round));
        if round % 2 == 0 {
            fs::rename(
                place.path(),
                place.folder.path().join(format!("a.log.{round}")),
            )
            .unwrap();
            File::create(place.path()).unwrap();
        } else {
            File::options()
                .write(true)
                .open(place.path())
                .unwrap()
                .set_len(0)
                .unwrap();
        }
    }
    place.turn_at(100);
    place.check(0..number);
}

#[test]
fn waits_for_a_file_that_does_not_exist_yet() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a.log");
    let mut follow = follow(&[Input::File(path.clone())]);
    assert!(!follow.turn(Instant::now()));
    fs::write(&path, lines(0..3)).unwrap();
    while follow.turn(Instant::now()) {}
    assert_eq!(follow.view().0.all().len, 3);
    assert!(!follow.has_ended());
    assert_eq!(follow.take_faults(), []);
}

#[test]
fn reads_a_pipe_as_it_comes_and_ends_with_it() {
    let (reader, mut writer) = std::io::pipe().unwrap();
    // A pipe by its name, as a shell's `<(...)`.
    let reader: OwnedFd = reader.into();
    let name = format!("/dev/fd/{}", std::os::fd::AsRawFd::as_raw_fd(&reader));
    let mut follow = follow(&[Input::File(name.into())]);
    drop(reader);
    let until = |follow: &mut Follow, is_reached: &dyn Fn(&mut Follow) -> bool| {
        let patience = Instant::now() + Duration::from_secs(60);
        while !is_reached(follow) {
            assert!(Instant::now() < patience);
            follow.turn(Instant::now());
            std::thread::yield_now();
        }
    };
    writer.write_all(lines(0..3).as_bytes()).unwrap();
    until(&mut follow, &|follow| follow.view().0.all().len == 3);
    assert!(!follow.has_ended());
    writer.write_all(lines(3..5).as_bytes()).unwrap();
    drop(writer);
    until(&mut follow, &|follow| follow.has_ended());
    assert_eq!(follow.view().0.all().len, 5);
}

#[test]
fn tells_of_what_cannot_be_opened() {
    let folder = tempfile::tempdir().unwrap();
    let mut follow = follow(&[
        Input::File(folder.path().join("none/a.log")),
        Input::File(folder.path().into()),
    ]);
    while follow.turn(Instant::now()) {}
    let patience = Instant::now() + Duration::from_secs(60);
    let mut faults = follow.take_faults();
    while faults.is_empty() {
        assert!(Instant::now() < patience);
        follow.turn(Instant::now());
        faults = follow.take_faults();
    }
    assert_eq!(faults[0].cause, "it is a folder");
}
