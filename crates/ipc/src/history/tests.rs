//! Histories in files of their own: what writers leave in them, read back.

use std::fs::File;
use std::os::fd::AsFd;
use std::os::unix::fs::FileExt;

use telemetry::Nanos;
use telemetry::history::{
    BLOCK_RECORDS, BLOCKS, HeldHistory, HeldMark, HeldMinute, HeldRequest, HeldSecond,
    HistoryFault, MarkKind, PATHS, PathSum, header,
};

use super::*;
use crate::stats::Shape;

fn shape(route: &str) -> Shape {
    Shape {
        drivers: 1,
        routes: vec![route.to_owned()],
        pools: vec!["default".to_owned()],
        servers: Vec::new(),
    }
}

fn opened(file: &HistoryFile, names: u32) -> &'static RequestHistory {
    Box::leak(Box::new(RequestHistory::open(file.file(), names).unwrap()))
}

fn bytes(file: &HistoryFile) -> Vec<u8> {
    let mut bytes = vec![0; HISTORY_BYTES];
    let file = File::from(file.read_only().unwrap());
    file.read_exact_at(&mut bytes, 0).unwrap();
    bytes
}

fn held(file: &HistoryFile) -> HeldHistory {
    HeldHistory::read(bytes(file), 0, wall_us()).unwrap()
}

fn request(ms: u64) -> HeldRequest {
    HeldRequest {
        arrived_us: telemetry::now().0 / 1_000,
        pool: Some(0),
        status: 200,
        run: Nanos::from_ms(ms),
        ..HeldRequest::default()
    }
}

/// One request, whose words were written as `change` leaves them.
fn written(change: impl FnOnce(&[HistoryWord])) -> Result<usize, HistoryFault> {
    let mut file = HistoryFile::new().unwrap();
    let names = file.number_of(&shape("/")).unwrap();
    let history = opened(&file, names);
    HistoryWriter::new(history).write(request(1), b"GET", b"/");
    change(history.words());
    HeldHistory::read(bytes(&file), 0, wall_us()).map(|held| held.len())
}

#[test]
fn gives_the_requests_of_all_processes_in_the_order_of_their_ends() {
    let mut file = HistoryFile::new().unwrap();
    let names = ["/", "/shop"].map(|route| file.number_of(&shape(route)).unwrap());
    assert_eq!(file.number_of(&shape("/")).unwrap(), names[0]);
    let writers = names.map(|number| HistoryWriter::new(opened(&file, number)));
    for ms in 0..200_u64 {
        let writer = &writers[(ms % 2) as usize];
        writer.write(request(ms * 10), b"GET", format!("/orders/{ms}").as_bytes());
    }
    let held = held(&file);
    assert_eq!(held.len(), 200);
    for (ms, found) in (0..).zip(held.requests()) {
        assert_eq!(found.route, ["/", "/shop"][(ms % 2) as usize]);
        assert_eq!(found.pool, "default");
        assert_eq!(found.path, b"GET /orders/*");
        assert_eq!(found.process, std::process::id());
        let (run, expect) = (found.request.run, Nanos::from_ms(ms * 10));
        assert!(
            run.0.abs_diff(expect.0) <= expect.0 / 1_000,
            "{run} {expect}"
        );
        assert!(found.wall_us.abs_diff(wall_us()) < 60_000_000);
    }
}

/// As if all blocks of the ring had been taken once.
fn turn_round(history: &RequestHistory) {
    history.words()[telemetry::history::header::TAKEN_AT].set(BLOCKS as u64);
}

#[test]
fn says_until_when_requests_were_lost_once_the_ring_is_full() {
    let mut file = HistoryFile::new().unwrap();
    let names = file.number_of(&shape("/")).unwrap();
    let history = opened(&file, names);
    let writer = HistoryWriter::new(history);
    for ms in 0..3 * BLOCK_RECORDS as u64 {
        writer.write(request(ms), b"", b"");
    }
    let before = held(&file);
    assert_eq!(before.len(), 3 * BLOCK_RECORDS);
    assert!(before.since_us() <= before.requests().next().unwrap().wall_us);
    let last_lost = before.requests().nth(BLOCK_RECORDS - 1).unwrap();
    let last_lost_us = last_lost.wall_us + last_lost.request.run.0 / 1_000;
    turn_round(history);
    writer.write(request(0), b"", b"");
    let after = held(&file);
    assert_eq!(after.len(), 2 * BLOCK_RECORDS + 1);
    // The end that is known of a block is exact, the run that was read back is rounded by 0.05 % at most.
    let rounding_us = (last_lost.request.run.0 >> 11) / 1_000 + 1;
    let apart_us = after.since_us().abs_diff(last_lost_us);
    assert!(apart_us <= rounding_us, "{apart_us} us apart");
}

#[test]
fn a_thread_whose_block_was_taken_meanwhile_takes_another_one() {
    let mut file = HistoryFile::new().unwrap();
    let names = file.number_of(&shape("/")).unwrap();
    let history = opened(&file, names);
    let (slow, fast) = (HistoryWriter::new(history), HistoryWriter::new(history));
    slow.write(request(9), b"", b"");
    turn_round(history);
    for _ in 0..BLOCK_RECORDS {
        fast.write(request(0), b"", b"");
    }
    slow.write(request(7), b"", b"");
    let held = held(&file);
    let slow_ones = held.requests().filter(|one| one.request.run.0 > 0);
    let runs: Vec<Nanos> = slow_ones.map(|one| one.request.run).collect();
    assert!(runs.len() == 1 && runs[0] < Nanos::from_ms(8), "{runs:?}");
    assert_eq!(held.len(), BLOCK_RECORDS + 1);
}

#[test]
fn leaves_out_what_is_not_whole() {
    let record = block_word(0, 1);
    assert_eq!(written(|_| {}), Ok(1));
    for word in 0..4 {
        let change = |words: &[HistoryWord]| {
            let word = &words[record + word];
            word.set(word.get() ^ 1 << 40);
        };
        assert_eq!(written(change), Ok(0), "word {word}");
    }
    assert_eq!(written(|words| words[block_word(0, 0)].set(0)), Ok(0));
    assert_eq!(written(|words| words[block_word(0, 0)].set(9)), Ok(0));
}

fn block_word(number: u64, record: usize) -> usize {
    telemetry::history::block_at(number) + record * telemetry::history::RECORD_WORDS
}

#[test]
fn refuses_the_history_of_another_version() {
    use telemetry::history::header::{MAGIC_AT, VERSION_AT};
    let set = |at: usize| move |words: &[HistoryWord]| words[at].set(99);
    assert_eq!(written(set(VERSION_AT)), Err(HistoryFault::OtherVersion));
    assert_eq!(written(set(MAGIC_AT)), Err(HistoryFault::Unknown));
    let adopted = |change: &dyn Fn(&HistoryFile)| {
        let file = HistoryFile::new().unwrap();
        change(&file);
        let fd = file.file().as_fd().try_clone_to_owned().unwrap();
        HistoryFile::adopt(fd)
            .map(drop)
            .map_err(|error| error.to_string())
    };
    assert_eq!(adopted(&|_| {}), Ok(()));
    let other = adopted(&|file| words(&file.mapping)[VERSION_AT].set(0));
    assert_eq!(other, Err("another version has made it".to_owned()));
    let none = adopted(&|file| words(&file.mapping)[MAGIC_AT].set(0));
    assert_eq!(none, Err("it is no history".to_owned()));
}

#[test]
fn the_next_program_goes_on_with_names_and_requests() {
    let mut file = HistoryFile::new().unwrap();
    let names = file.number_of(&shape("/a")).unwrap();
    HistoryWriter::new(opened(&file, names)).write(request(1), b"GET", b"/x");
    let fd = file.file().as_fd().try_clone_to_owned().unwrap();
    drop(file);
    let mut file = HistoryFile::adopt(fd).unwrap();
    assert_eq!(file.number_of(&shape("/a")).unwrap(), names);
    let other = file.number_of(&shape("/b")).unwrap();
    assert_ne!(other, names);
    HistoryWriter::new(opened(&file, other)).write(request(2), b"PUT", b"/y");
    let held = held(&file);
    let found = held.requests().map(|one| (one.route, one.path));
    let expect: [(&str, &[u8]); 2] = [("/a", b"GET /x"), ("/b", b"PUT /y")];
    assert_eq!(found.collect::<Vec<_>>(), expect);
}

#[test]
fn paths_that_clients_invent_do_not_fill_the_table() {
    let mut file = HistoryFile::new().unwrap();
    let names = file.number_of(&shape("/")).unwrap();
    let writer = HistoryWriter::new(opened(&file, names));
    let path_of = |status: u16, path: &str| {
        let request = HeldRequest {
            status,
            ..request(0)
        };
        writer.write(request, b"GET", path.as_bytes());
        let held = held(&file);
        held.requests().last().unwrap().path.to_vec()
    };
    assert_eq!(path_of(404, "/wp-login"), b"");
    assert_eq!(path_of(200, "/known"), b"GET /known");
    assert_eq!(path_of(422, "/known"), b"GET /known");
    for number in 0..2 * PATHS {
        writer.write(request(0), b"GET", format!("/user-{number}").as_bytes());
    }
    let held = held(&file);
    let named = held.requests().filter(|one| !one.path.is_empty()).count();
    assert!((PATHS / 2..PATHS + 2).contains(&named), "{named}");
    file.forget_paths(wall_us() + 25 * 3_600_000_000);
    assert_eq!(path_of(200, "/after"), b"GET /after");
}

#[test]
fn keeps_a_bounded_number_of_names() {
    let mut file = HistoryFile::new().unwrap();
    let long = "x".repeat(300_000);
    let numbers = (0..6).map(|index| file.number_of(&shape(&format!("/{index}{long}"))).unwrap());
    let numbers: Vec<u32> = numbers.collect();
    HistoryWriter::new(opened(&file, numbers[0])).write(request(1), b"", b"");
    HistoryWriter::new(opened(&file, numbers[5])).write(request(2), b"", b"");
    let held = held(&file);
    let routes: Vec<&str> = held.requests().map(|one| one.route).collect();
    assert_eq!(routes[0], "");
    assert!(routes[1].starts_with("/5x"), "{}", &routes[1][..5]);
}

fn taken(ended: &mut EndedRequests, file: &HistoryFile) -> Vec<(u32, u64)> {
    let mut all = Vec::new();
    ended.take(file, &mut |one| {
        // Within 0.05 %.
        all.push((one.names, (one.request.run.0 + 500_000) / 1_000_000));
    });
    all
}

#[test]
fn each_request_is_handed_out_once_as_it_ends() {
    let mut file = HistoryFile::new().unwrap();
    let names = ["/", "/shop"].map(|route| file.number_of(&shape(route)).unwrap());
    let mut ended = EndedRequests::new(&file);
    assert_eq!(taken(&mut ended, &file), []);
    let writers = names.map(|number| HistoryWriter::new(opened(&file, number)));
    writers[0].write(request(1), b"GET", b"/");
    writers[1].write(request(2), b"GET", b"/");
    assert_eq!(taken(&mut ended, &file), [(names[0], 1), (names[1], 2)]);
    assert_eq!(taken(&mut ended, &file), []);
    // More than a block has room for.
    let len = 3 * BLOCK_RECORDS;
    (0..len).for_each(|_| writers[1].write(request(3), b"GET", b"/"));
    assert_eq!(taken(&mut ended, &file), vec![(names[1], 3); len]);
    writers[0].write(request(4), b"GET", b"/");
    assert_eq!(taken(&mut ended, &file), [(names[0], 4)]);
}

#[test]
fn requests_that_were_overwritten_before_anybody_looked_are_not_handed_out() {
    let mut file = HistoryFile::new().unwrap();
    let names = file.number_of(&shape("/")).unwrap();
    let mut ended = EndedRequests::new(&file);
    let history = opened(&file, names);
    let writer = HistoryWriter::new(history);
    writer.write(request(1), b"GET", b"/");
    assert_eq!(taken(&mut ended, &file).len(), 1);
    // Others take all blocks, the one that is looked at too.
    history.words()[header::TAKEN_AT].set(BLOCKS as u64);
    let other = HistoryWriter::new(history);
    other.write(request(2), b"GET", b"/");
    writer.write(request(3), b"GET", b"/");
    assert_eq!(taken(&mut ended, &file), [(names, 2), (names, 3)]);
    assert_eq!(ended.open_len(), BLOCKS);
}

#[test]
fn a_program_that_goes_on_adds_nothing_twice() {
    let mut file = HistoryFile::new().unwrap();
    let names = file.number_of(&shape("/")).unwrap();
    let writer = HistoryWriter::new(opened(&file, names));
    let mut ended = EndedRequests::new(&file);
    (0..BLOCK_RECORDS + 5).for_each(|_| writer.write(request(0), b"GET", b"/"));
    assert_eq!(taken(&mut ended, &file).len(), BLOCK_RECORDS + 5);
    let minute = HeldMinute {
        at_s: wall_us() / 60_000_000 * 60,
        rows: vec![PathSum {
            ended: 5,
            ..PathSum::default()
        }],
    };
    // Those that end in the same microsecond as the sums were written would be added again.
    std::thread::sleep(std::time::Duration::from_millis(2));
    file.write_sums(&HeldSecond::default(), &minute, false, &[]);
    let left = file.file().try_clone_to_owned().unwrap();
    let next = HistoryFile::adopt(left).unwrap();
    let mut ended = EndedRequests::new(&next);
    writer.write(request(7), b"GET", b"/");
    let last = taken(&mut ended, &next);
    assert_eq!(last, [(names, 7)]);
    // Its first minute is beside the one that lasted.
    next.write_sums(&HeldSecond::default(), &minute, false, &[]);
    let file = File::from(next.read_only().unwrap());
    assert_eq!(sums(&file).unwrap().minutes(0), [minute.clone(), minute]);
}

#[test]
fn sums_are_read_back_oldest_first_and_the_oldest_give_way() {
    let file = HistoryFile::new().unwrap();
    let now_s = wall_us() / 1_000_000;
    let begin_s = now_s - 1_000;
    let marks = [HeldMark {
        at_s: begin_s,
        kind: MarkKind::Reload,
    }];
    for number in 0..1_000 {
        let second = HeldSecond {
            at_s: begin_s + number,
            span_ms: 1_000,
            ..HeldSecond::default()
        };
        let minute = HeldMinute {
            at_s: (begin_s + number) / 60 * 60,
            rows: Vec::new(),
        };
        let is_last = (begin_s + number) % 60 == 59;
        let marks = if number == 0 { &marks[..] } else { &[] };
        file.write_sums(&second, &minute, is_last, marks);
    }
    let file = File::from(file.read_only().unwrap());
    let sums = sums(&file).unwrap();
    let seconds: Vec<u64> = sums.seconds(0).iter().map(|one| one.at_s).collect();
    assert_eq!(seconds, (now_s - 900..now_s).collect::<Vec<_>>());
    assert_eq!(sums.seconds(now_s - 10).len(), 10);
    let minutes: Vec<u64> = sums.minutes(0).iter().map(|one| one.at_s).collect();
    let expect = (begin_s / 60)..=((now_s - 1) / 60);
    assert_eq!(minutes, expect.map(|one| one * 60).collect::<Vec<_>>());
    assert_eq!(sums.marks(0), marks);
}

#[test]
fn sums_that_change_all_the_time_are_told_from_sums_of_another_version() {
    let file = HistoryFile::new().unwrap();
    let read = File::from(file.read_only().unwrap());
    words(&file.mapping)[header::SUMS_TURN_AT].set(1);
    let fault = sums(&read).map(|_| ()).unwrap_err();
    assert!(matches!(fault, CopyFault::History(HistoryFault::Changing)));
    words(&file.mapping)[header::VERSION_AT].set(1);
    let fault = sums(&read).map(|_| ()).unwrap_err();
    assert!(matches!(
        fault,
        CopyFault::History(HistoryFault::OtherVersion)
    ));
}

#[test]
fn a_path_that_a_thread_remembers_is_the_one_that_was_asked_for() {
    let mut file = HistoryFile::new().unwrap();
    let names = file.number_of(&shape("/")).unwrap();
    let writer = HistoryWriter::new(opened(&file, names));
    let long = format!("/{}", "x".repeat(300));
    let asked = [
        ("GET", "/a/1"),
        ("GET", "/a/1"),
        ("GET", "/a/2"),
        ("POST", "/a/1"),
        ("GET", "/b/1"),
        ("GET", &long),
        ("GET", "/a/1"),
    ];
    for (method, path) in asked {
        writer.write(request(1), method.as_bytes(), path.as_bytes());
    }
    let held = held(&file);
    let mut paths: Vec<String> = held
        .requests()
        .map(|one| String::from_utf8_lossy(one.path).into_owned())
        .collect();
    paths.sort();
    let cut = format!("GET /{}", "x".repeat(107));
    let expect = [
        "GET /a/*",
        "GET /a/*",
        "GET /a/*",
        "GET /a/*",
        "GET /b/*",
        &cut,
        "POST /a/*",
    ];
    assert_eq!(paths, expect);
}
