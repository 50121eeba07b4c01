//! Whole loads: every key, its good and its bad values, and what does not go together.

use telemetry::Nanos;

use super::*;
use crate::plan::{Arrivals, Begin, Closing, ExpectBody, Load, Misbehaviour, Profile};

/// `body` holds `abc`; `log` has two requests, `posts` one that may change something.
struct Folder;

impl Files for Folder {
    fn read(&self, path: &Path) -> io::Result<Vec<u8>> {
        match path.to_str() {
            Some("body") => Ok(b"abc".to_vec()),
            Some("mix") => Ok(b"[[request]]\ntarget = '/m'\n".to_vec()),
            _ => Err(io::Error::from_raw_os_error(2)),
        }
    }

    fn recording(&self, path: &Path) -> Result<Recording, Fault> {
        let mut recording = Recording::default();
        let second = match path.to_str() {
            Some("log") => "HEAD",
            Some("posts") => "POST",
            _ => return Err(Fault::new("`no`: cannot be read")),
        };
        recording.push(Nanos::from_ms(500), "GET", "/a").unwrap();
        recording.push(Nanos::from_ms(1_500), second, "/b").unwrap();
        Ok(recording)
    }
}

/// `key=value` for each word; words are separated by ` | `.
fn written(line: &str) -> LoadSpec {
    let mut written = LoadSpec::default();
    for word in line.split(" | ").filter(|word| !word.is_empty()) {
        let (name, text) = word.split_once('=').unwrap();
        assert!(written.put(name, text), "{name}");
    }
    if written.texts("url").is_empty() {
        written.put("url", "http://127.0.0.1:8000/x");
    }
    written
}

#[track_caller]
fn plan(line: &str) -> Plan {
    match written(line).plan(&Folder) {
        Ok(plan) => plan,
        Err(faults) => panic!("{line}: {faults:?}"),
    }
}

#[track_caller]
fn check_fault(line: &str, expect: &str) {
    let faults = written(line).plan(&Folder).map(|_| ()).unwrap_err();
    let said: Vec<String> = faults
        .into_iter()
        .map(|fault| match fault.hint {
            Some(hint) => format!("{} > {hint}", fault.text),
            None => fault.text,
        })
        .collect();
    assert_eq!(said.join("\n"), expect, "{line}");
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8(bytes.to_vec()).unwrap()
}

#[test]
fn has_the_defaults_that_the_table_says() {
    let plain = plan("");
    let mut said = LoadSpec::default();
    for key in keys().iter().filter(|key| !key.default.is_empty()) {
        // They mean something only beside another one.
        if !["arrivals", "seed", "replay_speed", "replay_methods", "spin"].contains(&key.name) {
            assert!(said.put(key.name, key.default), "{}", key.name);
        }
    }
    said.put("url", "http://127.0.0.1:8000/x");
    let said = said.plan(&Folder).unwrap();
    let shown = |plan: &Plan| {
        let mut plan = plan.clone();
        // Two ways to say the same.
        if plan.expect.statuses.is_empty() {
            plan.expect.statuses = (200..400).collect();
        }
        format!("{plan:?}")
    };
    assert_eq!(shown(&plain), shown(&said));
    assert_eq!(plain.length.duration, Some(Nanos::from_secs(10)));
    assert_eq!((plain.connections.len, plain.machine.threads), (50, 1));
    let open = plan("rate=5");
    let same = plan("rate=5 | arrivals=constant | spin=0");
    assert_eq!(format!("{open:?}"), format!("{same:?}"));
    let replay = plan("replay=log");
    let same = plan("replay=log | replay_speed=1 | replay_methods=safe");
    assert_eq!(format!("{replay:?}"), format!("{same:?}"));
}

#[test]
fn understands_loads() {
    assert!(matches!(plan("").load, Load::Closed));
    assert!(matches!(plan("burst=true").load, Load::Burst));
    let Load::Open { arrivals, rate } = plan("rate=2000 | arrivals=poisson | seed=7").load else {
        panic!("no open load");
    };
    assert_eq!(arrivals, Arrivals::Poisson { seed: 7 });
    assert_eq!(rate, Profile::constant(2000.0));
    let Load::Recorded { arrivals } = plan("replay=log | replay_speed=2").load else {
        panic!("no recorded load");
    };
    assert_eq!(
        (arrivals[1].offset, arrivals[1].kind),
        (Nanos::from_ms(500), 1)
    );
}

#[test]
fn always_has_a_duration_or_a_count() {
    let secs = |secs| Some(Nanos::from_secs(secs));
    for (line, duration, requests) in [
        ("", secs(10), None),
        ("duration=3", secs(3), None),
        ("requests=5", None, Some(5)),
        ("duration=1m | requests=5", secs(60), Some(5)),
        ("rate=5", secs(10), None),
        ("rate=5:20s,6:10s", secs(30), None),
        ("rate=5:20s | warm_up=5s", secs(15), None),
        ("burst=true | connections=7 | pipeline=2", None, Some(14)),
        ("replay=log", None, Some(2)),
        ("replay=log | warm_up=500ms", None, Some(1)),
        ("replay=log | duration=3s", secs(3), None),
    ] {
        let length = plan(line).length;
        assert_eq!(
            (length.duration, length.requests),
            (duration, requests),
            "{line}"
        );
    }
}

#[test]
fn understands_when_it_begins_to_count() {
    for (line, expect) in [
        ("", Begin::AtOnce),
        ("begin=now", Begin::AtOnce),
        ("begin=open", Begin::AllOpen),
        ("warm_up=2s", Begin::After(Nanos::from_secs(2))),
        (
            "warm_up=2s | begin=warm-up",
            Begin::After(Nanos::from_secs(2)),
        ),
    ] {
        assert_eq!(plan(line).length.begin, expect, "{line}");
    }
}

#[test]
fn understands_connections() {
    let found = plan(
        "connections=250 | pipeline=4 | requests_per_connection=8 | close=server | \
         connect_rate=0.5 | timeout=2s | source=127.0.0.2-127.0.0.3"
            .replace("         ", "")
            .as_str(),
    )
    .connections;
    assert_eq!((found.len, found.in_flight), (250, 4));
    assert_eq!(found.requests_each.map(Into::<u64>::into), Some(8));
    assert_eq!(
        (found.closing, found.opened_per_s),
        (Closing::Server, Some(0.5))
    );
    assert_eq!(
        (found.timeout, found.sources.len()),
        (Nanos::from_secs(2), 2)
    );
}

#[test]
fn makes_the_request() {
    for (line, expect) in [
        ("", "GET /x HTTP/1.1\r\nHost: 127.0.0.1:8000\r\n\r\n"),
        (
            "method=DELETE",
            "DELETE /x HTTP/1.1\r\nHost: 127.0.0.1:8000\r\n\r\n",
        ),
        (
            "header=A:b:c | header=Host: z",
            "GET /x HTTP/1.1\r\nA: b:c\r\nHost: z\r\n\r\n",
        ),
        (
            "body=",
            "POST /x HTTP/1.1\r\nHost: 127.0.0.1:8000\r\nContent-Length: 0\r\n\r\n",
        ),
        (
            "body_file=body | method=PUT",
            "PUT /x HTTP/1.1\r\nHost: 127.0.0.1:8000\r\nContent-Length: 3\r\n\r\nabc",
        ),
        (
            "body_size=38",
            "POST /x HTTP/1.1\r\nHost: 127.0.0.1:8000\r\nContent-Length: 38\r\n\r\nabcdefghijklmnopqrstuvwxyz0123456789ab",
        ),
        (
            "requests_file=mix",
            "GET /m HTTP/1.1\r\nHost: 127.0.0.1:8000\r\n\r\n",
        ),
    ] {
        let kinds = plan(line).requests;
        assert_eq!(text(&kinds[0].bytes), expect, "{line}");
    }
    let kinds = plan("replay=posts | replay_methods=all | body=q").requests;
    let bytes: Vec<String> = kinds.iter().map(|kind| text(&kind.bytes)).collect();
    assert_eq!(
        bytes,
        [
            "GET /a HTTP/1.1\r\nHost: 127.0.0.1:8000\r\n\r\n",
            "POST /b HTTP/1.1\r\nHost: 127.0.0.1:8000\r\nContent-Length: 1\r\n\r\nq",
        ]
    );
}

#[test]
fn understands_what_a_reply_has_to_be() {
    let sum = "00ff".repeat(16);
    let found = plan(&format!(
        "expect_status=200,204 | expect_length=1K | expect_body=sha256:{sum}"
    ))
    .expect;
    assert_eq!(
        (found.statuses, found.body_bytes),
        (vec![200, 204], Some(1024))
    );
    let ExpectBody::Sha256(bytes) = found.body else {
        panic!("no checksum");
    };
    assert_eq!((bytes[0], bytes[31]), (0, 0xff));
    assert_eq!(
        plan("expect_body=same").expect.body,
        ExpectBody::SameAsFirst
    );
    assert_eq!(plan("expect_body=any").expect.body, ExpectBody::Any);
}

#[test]
fn understands_the_machine_and_the_misbehaving_clients() {
    let found = plan(
        "threads=4 | cpus=1,2 | rate=9 | spin=60us | server_pid=7 | server_pid=8 | bad_clients=3:idle | timestamps=read",
    );
    let machine = found.machine;
    assert_eq!((machine.threads, machine.cpus), (4, vec![1, 2]));
    assert_eq!(machine.spin, Nanos::from_us(60));
    assert_eq!(machine.server_pids, [7, 8]);
    assert_eq!(found.bad_clients[0].misbehaviour, Misbehaviour::Idle);
}

#[test]
#[expect(clippy::too_many_lines, reason = "a table of cases")]
fn says_for_every_key_what_it_expected() {
    let time = "a time as `10s` or `500ms`, at most 30d";
    let body = "same, any, or sha256: and 64 hexadecimal digits";
    for (key, found, expected) in [
        ("duration", "soon", time),
        ("duration", "0", "a time of more than 0"),
        ("requests", "0", "a count from 1 to 1000000000000"),
        (
            "rate",
            "fast",
            "a number up to 100000000, steps as `500:10s,1000:10s` or a ramp as `100..2000:30s`",
        ),
        ("warm_up", "x", time),
        ("begin", "later", "one of now, warm-up, open"),
        ("connections", "many", "a count from 1 to 4000000"),
        ("connections", "1.5", "a count from 1 to 4000000"),
        ("pipeline", "0", "a count from 1 to 1024"),
        (
            "requests_per_connection",
            "0",
            "a count from 1 to 1000000000000",
        ),
        ("close", "gently", "one of rst, fin, server"),
        (
            "connect_rate",
            "0",
            "a number of more than 0, at most 100000000",
        ),
        ("timeout", "0", "a time of more than 0"),
        ("header", "nothing", "a header as `Name: value`"),
        ("header", " A: b", "a header as `Name: value`"),
        (
            "body_size",
            "1G",
            "bytes as `1024` or `64K`, at most 268435456",
        ),
        (
            "expect_status",
            "ok",
            "statuses as `200,304`, `2xx` or `200-204`",
        ),
        (
            "expect_length",
            "-1",
            "bytes as `1024` or `64K`, at most 1099511627776",
        ),
        ("expect_body", "sha256:00", body),
        ("expect_body", "md5:0", body),
        ("threads", "0", "a count from 1 to 1024"),
        ("cpus", "all", "processors as `0,2-3`"),
        ("server_pid", "0", "a process id"),
    ] {
        let said = format!(
            "`--{}`: expected {expected}, found `{found}`",
            key.replace('_', "-")
        );
        let faults = written(&format!("{key}={found}"))
            .plan(&Folder)
            .map(|_| ())
            .unwrap_err();
        assert!(
            faults.iter().any(|fault| fault.text == said),
            "{said}: {faults:?}"
        );
    }
    let sum = format!("sha256:{}é", "0".repeat(62));
    check_fault(
        &format!("expect_body={sum}"),
        &format!("`--expect-body`: expected {body}, found `{sum}`"),
    );
    check_fault(
        "rate=1 | arrivals=often",
        "`--arrivals`: expected one of constant, poisson, found `often`",
    );
    check_fault(
        "rate=1 | spin=long",
        &format!("`--spin`: expected {time}, found `long`"),
    );
    check_fault(
        "replay=log | replay_speed=0 | replay_methods=some",
        "`--replay-speed`: expected a number of more than 0, at most 1000000, found `0`\n\
         `--replay-methods`: expected one of safe, all, found `some`",
    );
}

#[test]
#[expect(clippy::too_many_lines, reason = "a table of cases")]
fn refuses_what_does_not_go_together() {
    for (line, expect) in [
        (
            "rate=5 | burst=true",
            "`--rate` and `--burst`: exclude each other > requests leave by a clock, by a recording, or all at once: keep one of them",
        ),
        (
            "arrivals=poisson",
            "`--arrivals`: means nothing without `--rate` > `--rate 2000` has requests leave by a clock",
        ),
        (
            "rate=5 | seed=1",
            "`--seed`: constant arrivals have none > `--arrivals poisson` has gaps that come from a seed",
        ),
        (
            "spin=1ms",
            "`--spin`: means nothing without `--rate` > requests of a rate are due at a time, others are not",
        ),
        (
            "replay_speed=2",
            "`--replay-speed`: means nothing without `--replay` > `--replay FILE` names a recording",
        ),
        (
            "replay=log | method=GET",
            "`--method` and `--replay`: exclude each other > a recording has its own methods",
        ),
        (
            "replay=log | requests_file=mix",
            "`--requests-file` and `--replay`: exclude each other > each says what is asked for: keep one of them",
        ),
        (
            "requests_file=mix | body=x",
            "`--body` and `--requests-file`: exclude each other > write the bodies into the file",
        ),
        (
            "body=x | body_file=body",
            "`--body` and `--body-file`: exclude each other > a request has one body: keep one of them",
        ),
        (
            "replay=posts",
            "`--replay`: requests that may change something: 1 POST > `--replay-methods all` sends them with the body of `--body`, or an empty one",
        ),
        (
            "close=server",
            "`--close`: means nothing without `--requests-per-connection` > the server ends a connection after its last request: `--requests-per-connection 1`",
        ),
        (
            "burst=true | requests=5",
            "`--requests`: a burst has as many as connections may have in flight > more connections, or `--pipeline`",
        ),
        (
            "begin=warm-up",
            "`--begin warm-up`: how long is not said > `--warm-up 2s`, for example",
        ),
        (
            "begin=open | warm_up=1s",
            "`--begin open` and `--warm-up`: exclude each other > leave one of them out",
        ),
        (
            "rate=5:1s | warm_up=1s",
            "`--warm-up`: the last step is over before > a shorter one, or `--duration`",
        ),
        (
            "replay=log | warm_up=2s",
            "`--warm-up`: the recording is over before > a shorter one, or none",
        ),
        (
            "threads=3 | connections=2",
            "load: more threads than connections: give fewer threads or more connections",
        ),
    ] {
        check_fault(line, expect);
    }
}

#[test]
fn says_what_cannot_be_sent_or_read() {
    for (line, expect) in [
        ("method=G T", "request: `G T` is no method"),
        (
            "method=CONNECT",
            "request: CONNECT is not sent > it makes a tunnel of the connection",
        ),
        (
            "header=Expect: 100-continue",
            "request: `Expect` is made by the generator itself",
        ),
        (
            "body_file=no",
            "`--body-file`: `no` cannot be read: no such file or directory > it has to be a file that this user may read",
        ),
        (
            "requests_file=no",
            "`--requests-file`: `no` cannot be read: no such file or directory > it has to be a file that this user may read",
        ),
        ("replay=no", "`no`: cannot be read"),
    ] {
        check_fault(line, expect);
    }
}

#[test]
fn says_all_faults_at_once() {
    check_fault(
        "url=ftp://a/ | connections=0 | timeout=never | header=x | bad_clients=some",
        "`ftp://a/`: `ftp` is not spoken here > http and https are; `--unix PATH` names a unix socket\n\
         `--header`: expected a header as `Name: value`, found `x`\n\
         `--connections`: expected a count from 1 to 4000000, found `0`\n\
         `--timeout`: expected a time as `10s` or `500ms`, at most 30d, found `never`\n\
         `--bad-clients`: expected N:WHAT, where WHAT is never-reads, reads-at=SIZE, trickles=TIME, idle, half-closes or resets=TIME, and may be followed by :receive-buffer=SIZE, found `some`",
    );
}

#[test]
fn resolves_names_of_this_machine() {
    let found = plan("url=http://localhost:8000/").target;
    assert_eq!(found.host, "localhost:8000");
    let resolved = Folder.resolve("127.0.0.1", 80);
    assert_eq!(resolved.unwrap(), ["127.0.0.1:80".parse().unwrap()]);
}

#[test]
fn says_something_about_every_key() {
    for key in keys() {
        assert!(
            !key.help.is_empty() && !key.help.ends_with('.'),
            "{}",
            key.name
        );
        assert!(key.doc.is_empty() || key.doc.ends_with('.'), "{}", key.name);
        let has_value = key.form != FlagForm::Switch;
        assert_eq!(has_value, !key.placeholder.is_empty(), "{}", key.name);
        let same = keys()
            .iter()
            .filter(|other| other.short == key.short && key.short.is_some());
        assert!(same.count() <= 1, "{}: its letter is taken", key.name);
    }
}
