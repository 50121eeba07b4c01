//! Logs from files to the printed report: every form and packing, what is wrong with them, the page.

#![allow(clippy::unwrap_used, reason = "helpers of tests are tests")]

use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};

use report::{
    By, Fault, Filter, Input, KeepTimeline, Plan, Tally, When, json, page, read, statuses, table,
};
use telemetry::{Nanos, Pattern, Template};

fn data(name: &str) -> PathBuf {
    [env!("CARGO_MANIFEST_DIR"), "tests/data", name]
        .iter()
        .collect()
}

fn plan() -> Plan {
    Plan {
        pattern: None,
        filter: Filter::default(),
        by: None,
        slowest_len: 10,
        timeline: KeepTimeline::No,
    }
}

fn tally_of(files: &[&Path], plan: &Plan) -> (Tally, Vec<Fault>) {
    let inputs: Vec<_> = files
        .iter()
        .map(|path| Input::File(path.to_path_buf()))
        .collect();
    read(&inputs, plan, &mut |_| {})
}

fn parsed(tally: &Tally) -> serde_json::Value {
    serde_json::from_str(&json(tally)).unwrap()
}

/// Compares with a file beside this one; `MILEPOST_SNAPSHOTS=write` writes it instead.
#[track_caller]
fn check_snapshot(name: &str, text: &str) {
    let file: PathBuf = [env!("CARGO_MANIFEST_DIR"), "tests/snapshots", name]
        .iter()
        .collect();
    if std::env::var_os("MILEPOST_SNAPSHOTS").is_some_and(|wish| wish == "write") {
        fs::write(&file, text).unwrap();
    }
    let expect = fs::read_to_string(&file).unwrap_or_default();
    assert!(text == expect, "{name} differs:\n{text}");
}

fn gzip(text: &[u8]) -> Vec<u8> {
    let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    encoder.write_all(text).unwrap();
    encoder.finish().unwrap()
}

#[test]
fn prints_the_table() {
    let (tally, faults) = tally_of(&[&data("small.log")], &plan());
    assert_eq!(faults, []);
    let (misread_len, first) = tally.misread();
    let first = first.unwrap();
    assert_eq!((misread_len, first.line, tally.lines_len()), (1, 8, 8));
    assert!(first.name.ends_with("small.log"));
    check_snapshot("small.txt", &table(&tally));
}

#[test]
fn prints_each_group() {
    let plan = Plan {
        by: Some(By::Route),
        slowest_len: 0,
        ..plan()
    };
    check_snapshot(
        "by_route.txt",
        &table(&tally_of(&[&data("small.log")], &plan).0),
    );
    let plan = Plan {
        by: Some(By::Hour),
        slowest_len: 2,
        ..plan
    };
    check_snapshot(
        "by_hour.txt",
        &table(&tally_of(&[&data("small.log")], &plan).0),
    );
}

/// The observation that this project began with, printed by one command.
#[test]
fn says_whose_runs_the_six_requests_waited_for() {
    let (tally, _) = tally_of(&[&data("six.log")], &plan());
    check_snapshot("six.txt", &table(&tally));
    check_snapshot("six.json", &json(&tally));
    let sentence = "the queue time of /4, /5, /6 is the run time of /2, /3, /4";
    assert!(table(&tally).contains(sentence));
    let page = page(&tally, "six.log");
    for part in [
        sentence,
        "<tr><td>GET /*</td><td class=n>1,156</td><td class=n>100.0 %</td><td class=n>3</td>",
        "<td><div class=t>122.1 ms for GET /2 0000000000000002  (freed the thread)<br>122.1 ms for GET /3 ",
    ] {
        assert!(page.contains(part), "{part:?} in\n{page}");
    }
}

#[test]
fn says_what_a_log_does_not_say_of_its_waits() {
    let (tally, _) = tally_of(&[&data("queued.log")], &plan());
    assert!(table(&tally).contains("the lines do not name them (`worker=`)"));
    let expect = serde_json::json!({ "missing": "workers" });
    assert_eq!(parsed(&tally)["waiting"], expect);
    // Where none waited, nothing is said.
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("log");
    let quick = fs::read_to_string(data("six.log")).unwrap();
    let quick: String = quick
        .lines()
        .take(2)
        .map(|line| format!("{line}\n"))
        .collect();
    fs::write(&file, quick).unwrap();
    let (tally, _) = tally_of(&[&file], &plan());
    assert!(!table(&tally).contains("worker") && !page(&tally, "log").contains("made others wait"));
}

#[test]
fn shows_what_requests_found_at_the_queue() {
    let plan = Plan {
        timeline: KeepTimeline::Yes,
        ..plan()
    };
    // The last line is of a version that did not write it down.
    let (tally, _) = tally_of(&[&data("queued.log")], &plan);
    assert_eq!((tally.all().len, tally.all().at_queue.known_len), (7, 6));
    check_snapshot("queued.txt", &table(&tally));
    check_snapshot("queued.json", &json(&tally));
    let text = page(&tally, "queued.log");
    for part in [
        "<b>50.0 %</b><span>had to wait for a thread</span>",
        "<th class=n>queued</th><th>when</th>",
        "<td class=n>2</td><td class=n>2</td><td class=n>0</td><td class=n>yes</td>",
        "<td class=n>–</td><td class=n>–</td><td class=n>–</td><td class=n>–</td>",
    ] {
        assert!(text.contains(part), "{part}");
    }
    let (tally, _) = tally_of(&[&data("small.log")], &plan);
    let text = page(&tally, "small.log");
    assert!(!text.contains("<th class=n>queued"));
}

#[test]
fn shows_how_much_of_the_runs_was_processor_time() {
    // A line of a version that did not write it down, one of this, and one that waited all the while.
    let line = |run: &str, end: &str| {
        format!(
            "192.0.2.1 - - [21/Nov/2026:12:00:00 +0000] \"GET /{run} HTTP/1.1\" 200 9 \"-\" \"-\" receive=0.000000 \
             queue=0.000000 run={run} send=0.000000 total={run} id=1 route=app pool=default{end}\n"
        )
    };
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("log");
    let text = [
        line("9.000000", ""),
        line("2.000000", " waiting=0 threads=2 idle=2 cpu=1.900000"),
        line("1.000000", " cpu=0.100000"),
    ];
    fs::write(&file, text.concat()).unwrap();
    let (tally, _) = tally_of(&[&file], &plan());
    assert_eq!(tally.all().cpu.len(), 2);
    let shown = table(&tally);
    for part in [
        "total      cpu\navg",
        "cpu is processor time, a part of run, of the requests whose lines contain it\n",
        "9,000  9,000 for the application ",
        "2,000  1,900 for the application, to compute ",
        "1,000  1,000 for the application ",
    ] {
        assert!(shown.contains(part), "{part:?} in\n{shown}");
    }
    let shown = parsed(&tally);
    let cpu = &shown["all"]["seconds"]["cpu"];
    assert_eq!((&cpu["count"], &cpu["avg"]), (&2.into(), &1.0.into()));
    let computing = |slow: &&serde_json::Value| slow["cpu"] == 1.9;
    let slowest = shown["slowest"].as_array().unwrap();
    let slow = slowest.iter().find(computing).unwrap();
    assert_eq!((&slow["run"], &slow["send"]), (&2.0.into(), &0.0.into()));
    assert!(page(&tally, "log").contains("<th class=n>total</th><th class=n>cpu</th></tr>"));
    let (tally, _) = tally_of(&[&data("small.log")], &plan());
    assert!(!table(&tally).contains("cpu") && !page(&tally, "log").contains(">cpu"));
    assert!(parsed(&tally)["all"]["seconds"]["cpu"].is_null());
}

#[test]
fn prints_json() {
    let plan = Plan {
        by: Some(By::Status),
        ..plan()
    };
    let text = json(&tally_of(&[&data("small.log")], &plan).0);
    check_snapshot(
        "small.json",
        &text.replace(&data("small.log").display().to_string(), "small.log"),
    );
}

#[test]
fn reads_every_form_in_one_file() {
    let template = Template::parse("template {peer} {path} {total} {status}").unwrap();
    let plan = Plan {
        pattern: Some(Pattern::of(&template).unwrap()),
        by: Some(By::Method),
        ..plan()
    };
    let (tally, _) = tally_of(&[&data("mixed.log")], &plan);
    assert_eq!(tally.misread(), (0, None));
    check_snapshot("mixed.txt", &table(&tally));
}

#[test]
fn counts_what_came_before_the_damage() {
    let folder = tempfile::tempdir().unwrap();
    let text = fs::read(data("small.log")).unwrap();
    let packed = gzip(&text);
    let cut = folder.path().join("cut.gz");
    fs::write(
        &cut,
        [&gzip(&text)[..], &packed[..packed.len() - 9]].concat(),
    )
    .unwrap();
    let missing = folder.path().join("missing.log");
    let (tally, faults) = tally_of(
        &[&missing, &cut, folder.path(), &data("small.log")],
        &plan(),
    );
    let causes: Vec<_> = faults.iter().map(|fault| fault.cause.as_str()).collect();
    let expect = [
        "no such file",
        "the compressed data is cut off; what came before it was read",
        "it is a folder",
    ];
    assert_eq!(causes, expect);
    assert!(tally.all().len >= 14);
}

#[test]
fn leaves_out_a_last_line_without_end() {
    let folder = tempfile::tempdir().unwrap();
    let text = fs::read(data("small.log")).unwrap();
    let path = folder.path().join("cut.log");
    // Only the last digits are missing: it would be understood, and wrong.
    let second_end = text
        .iter()
        .enumerate()
        .filter(|(_, byte)| **byte == b'\n')
        .nth(1)
        .unwrap()
        .0;
    fs::write(&path, &text[..second_end - 4]).unwrap();
    let (tally, _) = tally_of(&[&path], &plan());
    assert_eq!((tally.all().len, tally.misread().0), (1, 0));
    assert_eq!(tally.cut_off_inputs(), [path.display().to_string()]);
}

#[test]
fn counts_only_what_passes_the_filter() {
    let check = |change: &dyn Fn(&mut Filter), expect: u64| {
        let mut plan = plan();
        change(&mut plan.filter);
        let (tally, _) = tally_of(&[&data("small.log")], &plan);
        assert_eq!(tally.all().len, expect, "{:?}", plan.filter);
    };
    let noon = || When::parse("2026-11-21T12:00", 0);
    check(&|filter| filter.since = noon(), 5);
    check(&|filter| filter.until = noon(), 2);
    let routes = ["app", "/static"].map(str::to_owned);
    check(&|filter| filter.routes = routes.to_vec(), 5);
    let some = statuses("4xx,none,201").unwrap();
    check(&|filter| filter.statuses.clone_from(&some), 3);
    check(&|filter| filter.slower_than = Some(Nanos(500_000_000)), 3);
}

#[test]
fn the_page_stands_alone_and_obeys_no_log() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a<b>.log");
    let evil = "192.0.2.7 - - [21/Nov/2026:12:00:00 +0000] \"GET /<script>alert('1')</script>&\\x1b HTTP/1.1\" 200 5 \
                \"-\" \"-\" receive=0.000001 queue=0.000002 run=9.000003 send=0.000004 total=9.000010 id=\\x3cb\\x3e \
                route=\\x3cimg\\x20src=x\\x3e\n";
    fs::write(
        &path,
        [
            fs::read_to_string(data("small.log")).unwrap(),
            evil.to_owned(),
        ]
        .concat(),
    )
    .unwrap();
    let plan = Plan {
        by: Some(By::Route),
        timeline: KeepTimeline::Yes,
        ..plan()
    };
    let (tally, _) = tally_of(&[&path], &plan);
    let text = page(&tally, &path.display().to_string());
    for outside in [
        "<script>alert",
        "<img",
        "http:",
        "https:",
        "url(",
        "@import",
        "src=x>",
        "\x1b",
    ] {
        assert!(!text.contains(outside), "{outside}");
    }
    assert!(text.contains("&lt;script&gt;alert(&#39;1&#39;)&lt;/script&gt;&amp;"));
    for part in [
        "prefers-color-scheme: dark",
        "width=device-width",
        "<svg",
        "of which it waited",
        "9,000 for the server",
    ] {
        assert!(text.contains(part), "{part}");
    }
    assert_eq!(text.matches("<script").count(), 1, "its own");
    assert_eq!(text.matches("<svg").count(), 11);
    assert_eq!(text.matches("<svg").count(), text.matches("</svg>").count());
}

#[test]
fn the_page_of_logs_without_phases_has_rates_alone() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("nginx.log");
    let lines: String = (0..500)
        .map(|second: u32| {
            let (minute, second) = (second / 60, second % 60);
            format!("192.0.2.7 - - [21/Nov/2026:12:{minute:02}:{second:02} +0000] \"GET / HTTP/1.1\" 200 5 \"-\" \"-\"\n")
        })
        .collect();
    fs::write(&path, lines).unwrap();
    let plan = Plan {
        timeline: KeepTimeline::Yes,
        ..plan()
    };
    let (tally, _) = tally_of(&[&path], &plan);
    let text = page(&tally, "nginx.log");
    assert_eq!(text.matches("<svg").count(), 1);
    assert!(text.contains("in steps of 4 seconds"));
    assert!(table(&tally).contains("no phases: the lines do not contain run times"));
}

#[test]
fn an_empty_log_has_an_empty_report() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("empty.log");
    fs::write(&path, "").unwrap();
    let plan = Plan {
        timeline: KeepTimeline::Yes,
        by: Some(By::Peer),
        ..plan()
    };
    let (tally, faults) = tally_of(&[&path], &plan);
    assert_eq!(faults, []);
    assert_eq!(table(&tally), "0 requests\n");
    assert!(page(&tally, "empty").contains("requests"));
    assert_eq!(parsed(&tally)["lines"], 0);
}

#[test]
fn connections_that_stay_open_are_in_a_part_of_their_own() {
    let folder = tempfile::tempdir().unwrap();
    let log = folder.path().join("asgi.log");
    let line = |target: &str, status: u16, run: &str, more: &str| {
        format!(
            "192.0.2.7 - - [21/Nov/2026:12:00:01 +0000] \"GET {target} HTTP/1.1\" {status} 5 \"-\" \"-\" receive=0.000069 \
             queue=0.000034 run={run} send=0.000044 total={run} id=a route=app pool=default waiting=0 threads=1 idle=1 \
             {more}loop=0.000012 steps=3 busy=0.000450 longest=0.000300 worker=7.1 at=1795262401.482193\n"
        )
    };
    let websocket = "messages_in=5 messages_out=6 close_code=1001 ";
    let mut text = line("/a", 200, "0.020000", "");
    text += &line("/chat/17", 101, "61.000000", websocket);
    text += &line("/chat/18", 101, "1.000000", websocket);
    text += &line("/events", 200, "90.000000", "").replace(" worker", " event_stream=yes worker");
    fs::write(&log, &text).unwrap();
    let (tally, faults) = tally_of(&[&log], &plan());
    assert_eq!(faults, []);
    let all = tally.all();
    assert_eq!((all.len, all.loop_len, tally.lines_len()), (1, 1, 4));
    assert!(all.total().max_secs() < 0.1);
    let shown = table(&tally);
    for part in [
        "1 request ran on an event loop",
        "/chat/*  WebSocket               2  31.0     61.0           10   12",
        "/events  event stream            1  90.0     90.0",
        "close codes of WebSockets: 1001 2",
        "no request waited longer than 1 ms for the event loop",
    ] {
        assert!(
            shown.to_lowercase().contains(&part.to_lowercase()),
            "{part}: {shown}"
        );
    }
    assert!(!shown.contains("a thread"), "{shown}");
    assert_eq!(parsed(&tally)["event_loops"]["close_codes"]["1001"], 2);
    // A log of nothing else has its part, too.
    fs::write(&log, line("/chat/17", 101, "61.000000", websocket)).unwrap();
    let (tally, _) = tally_of(&[&log], &plan());
    assert_eq!(tally.all().len, 0);
    assert!(table(&tally).contains("close codes"), "{}", table(&tally));
}

#[test]
fn what_upstream_servers_did_is_in_a_part_of_its_own() {
    let folder = tempfile::tempdir().unwrap();
    let log = folder.path().join("front.log");
    let line = |server: &str, ttfb: &str, more: &str| {
        format!(
            "192.0.2.7 - - [10/Oct/2000:13:55:36 +0000] \"GET /x HTTP/1.1\" 200 5 \"-\" \"-\" receive=0.000100 \
             queue=0.000000 run=0.150000 send=0.000100 total=0.150200 id=1 route=app pool=shop upstream={server} \
             attempts=1 reused=yes connect=0.000000 ttfb={ttfb}{more} worker=- at=971186136.000000\n"
        )
    };
    let own = " upstream_queue=0.100000 upstream_run=0.020000";
    let slow = line("10.0.0.3:80", "0.128000", own).repeat(25);
    let slow = slow.replace("total=0.150200", "total=0.150300");
    let fast = line("10.0.0.1:80", "0.016000", "").repeat(75);
    fs::write(&log, slow + &fast).unwrap();
    let by = Some(By::Upstream);
    let (tally, _) = tally_of(&[&log], &Plan { by, ..plan() });
    let text = table(&tally);
    assert!(
        text.starts_with(
            "10.0.0.3:80 took 128 ms to the first byte (median of 25 requests), all other upstream servers up to\n\
             16 ms; most of it was its own queue.\n"
        ),
        "{text}"
    );
    let expect = "\
upstream servers; times in ms: to the first byte, and in the server's own queue
server       requests  attempts   reused  no response  median     p99  queue median    p99
10.0.0.1:80        75        75  100.0 %            0   16.00   16.00
10.0.0.3:80        25        25  100.0 %            0  128.0   128.0          100.0  100.0
";
    assert!(text.contains(expect), "{text}");
    let report = parsed(&tally);
    assert!(
        text.contains("100.0 for the upstream, in its own queue"),
        "{text}"
    );
    assert_eq!(report["slowest"][0]["upstream"], "10.0.0.3:80");
    assert_eq!(report["groups"][1]["name"], "10.0.0.3:80");
    let servers = &report["upstreams"];
    assert_eq!(servers[0]["name"], "10.0.0.1:80");
    assert_eq!(servers[0]["queue"], serde_json::Value::Null);
    assert_eq!(servers[1]["reused_share"], 1.0);
    assert_eq!(servers[1]["queue"]["max"], 0.1);
    assert_eq!(servers[1]["run"]["max"], 0.02);
    assert!(page(&tally, "front").contains("Upstream servers"));
    // A log without upstreams says nothing of any.
    let (tally, _) = tally_of(&[&data("six.log")], &plan());
    assert_eq!(parsed(&tally)["upstreams"], serde_json::Value::Null);
    assert!(!table(&tally).contains("upstream"));
}
