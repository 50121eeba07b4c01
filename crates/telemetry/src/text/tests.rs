//! Lines of every form.

mod documented;
mod forged;
mod otlp;

use std::num::NonZeroU32;

use super::*;
use crate::{
    AuthFacts, Ending, LoopFacts, NO_POOL, Nanos, Phases, Queued, ResetBy, Stamp, StreamFacts,
    UpstreamFacts, UpstreamPhases, WebSocketFacts,
};

const SAMPLE: Record<'static> = Record {
    id: 0x9e37_79b9_7f4a_7c15,
    request_id: b"",
    trace: crate::trace::tests::NONE,
    is_https: false,
    phases: Phases {
        arrived: Stamp(1_000_000_999),
        queued: Stamp(1_000_124_100),
        started: Stamp(1_000_134_050),
        replied: Stamp(1_004_134_998),
        sent: Stamp(1_004_154_999),
        gil: Nanos(1_500),
        cpu: Nanos::ZERO,
        worker: None,
    },
    queued: Queued {
        before: Nanos::ZERO,
        waiting: 0,
        threads: 0,
        idle: 0,
        from_queue: false,
    },
    stream: StreamFacts {
        number: 0,
        reset_by: ResetBy::None,
        reset_code: 0,
        blocked_stream: Nanos::ZERO,
        blocked_connection: Nanos::ZERO,
    },
    event_loop: LoopFacts {
        wait: Nanos::ZERO,
        steps: 0,
        busy: Nanos::ZERO,
        longest: Nanos::ZERO,
        blocked_by: None,
        is_event_stream: false,
    },
    websocket: WebSocketFacts {
        received: 0,
        sent: 0,
        close_code: 0,
    },
    upstream: UpstreamFacts {
        server: 0,
        attempts: 0,
        reused: false,
        status: 0,
        connect: Nanos::ZERO,
        ttfb: Nanos::ZERO,
        own: None,
    },
    auth: AuthFacts::NONE,
    wall_arrived_ns: 971_186_136_000_123_000,
    client: b"192.0.2.7",
    peer: b"192.0.2.7",
    method: b"GET",
    target: b"/x",
    version: b"HTTP/1.1",
    request_line: b"",
    host: b"example.org",
    referer: b"http://a/",
    user_agent: b"agent",
    user: b"",
    status: 200,
    body_bytes: 2326,
    sent_bytes: 2500,
    request_bytes: 90,
    ending: Ending::Complete,
    route: 1,
    pool: NO_POOL,
    driver: 3,
    cause: b"",
    tls: b"",
};

/// The fourth of six that came at once to two threads, half a pause after another server had it.
const QUEUED: Queued = Queued {
    before: Nanos(1_500_999),
    waiting: 3,
    threads: 2,
    idle: 0,
    from_queue: true,
};

const DATED: &str = "192.0.2.7 - - [10/Oct/2000:13:55:36 +0000]";
/// What stands at the end of every line with phases.
const LAST: &str = " worker=- at=971186136.000123";
const ID: &str = "e220a8397b1dcdaf";

fn names() -> Names {
    Names {
        routes: vec!["/".into(), "/a\"pi".into(), "two words".into()],
        pools: vec!["default".into(), "slow [x]".into()],
        upstreams: vec!["127.0.0.1:9001".into(), "unix:/run/my app.sock".into()],
        process: 4711,
        id_seed: 0,
    }
}

fn template(text: &str) -> Form {
    Form::Template(Template::parse(text).unwrap())
}

fn styled(form: Form, style: Style, record: &Record<'_>) -> String {
    let mut out = Vec::new();
    Writer::new(form, style, names()).write(record, &mut out);
    String::from_utf8(out).expect("every form is valid UTF-8")
}

fn line(form: Form, record: &Record<'_>) -> String {
    styled(form, Style::default(), record)
}

#[track_caller]
fn check(form: Form, record: &Record<'_>, expect: &str) {
    assert_eq!(line(form, record), format!("{expect}\n"));
}

#[track_caller]
fn check_filled(text: &str, record: &Record<'_>, expect: &str) {
    check(template(text), record, expect);
}

#[test]
fn the_first_request_under_tls_tells_of_the_handshake() {
    let first = Record {
        route: 0,
        tls: b"1.3 TLS13_AES_128_GCM_SHA256 no shop.example http/1.1 412",
        ..SAMPLE
    };
    let later = Record {
        tls: b"1.2 c yes - - -",
        ..first
    };
    let text = line(Form::CombinedPhases, &first);
    let expect = format!("id={ID} route=/ tls=1.3 resumed=no handshake=0.000412{LAST}\n");
    assert!(text.ends_with(&expect), "{text}");
    let text = line(Form::CombinedPhases, &later);
    assert!(text.ends_with(&format!("route=/{LAST}\n")), "{text}");
    let text = line(Form::Json, &first);
    let expect = "\"end\":\"complete\",\"tls\":\"1.3\",\"cipher\":\"TLS13_AES_128_GCM_SHA256\",\"resumed\":false,\
                  \"server_name\":\"shop.example\",\"alpn\":\"http/1.1\",\"handshake\":0.000412}\n";
    assert!(text.ends_with(expect), "{text}");
    let fields = "{tls} {cipher} {resumed} {server_name} {alpn} {handshake}";
    let expect = "1.3 TLS13_AES_128_GCM_SHA256 no shop.example http/1.1 0.000412";
    check_filled(fields, &first, expect);
    check_filled(fields, &later, "1.2 c yes - - -");
    check_filled(fields, &SAMPLE, "- - - - - -");
}

#[test]
fn says_only_what_is_not_as_it_always_is() {
    let end = |record: &Record<'_>| {
        let text = line(Form::CombinedPhases, record);
        let (_, end) = text.split_once("total=0.004154").unwrap();
        end.trim_end().strip_suffix(LAST).unwrap().to_owned()
    };
    let with = |ending, cause: &'static [u8]| Record {
        ending,
        cause,
        route: 0,
        ..SAMPLE
    };
    let usual = format!(" id={ID} route=/");
    assert_eq!(end(&with(Ending::Complete, b"")), usual);
    assert_eq!(
        end(&with(Ending::PeerGone, b"")),
        format!("{usual} end=peer-gone")
    );
    assert_eq!(
        end(&with(Ending::Refused, b"two \"Hosts\"")),
        format!("{usual} end=refused cause=\"two \\x22Hosts\\x22\"")
    );
    let pooled = Record {
        pool: 0,
        ..with(Ending::Cut, b"")
    };
    assert_eq!(end(&pooled), format!("{usual} pool=default end=cut"));
}

#[test]
fn tells_what_there_was_at_the_queue_behind_everything_else() {
    let end = |queued: Queued, ending, cause: &'static [u8]| {
        let record = Record {
            queued,
            ending,
            cause,
            pool: 0,
            ..SAMPLE
        };
        let text = line(Form::CombinedPhases, &record);
        let (_, end) = text.split_once(" pool=default").unwrap();
        end.trim_end().strip_suffix(LAST).unwrap().to_owned()
    };
    let free = Queued {
        before: Nanos(999),
        waiting: 0,
        threads: 8,
        idle: 7,
        from_queue: false,
    };
    assert_eq!(
        end(free, Ending::Complete, b""),
        " waiting=0 threads=8 idle=7"
    );
    let full = " waiting=3 threads=2 idle=0 queued=yes before=0.001500";
    assert_eq!(end(QUEUED, Ending::Complete, b""), full);
    assert_eq!(
        end(QUEUED, Ending::Cut, b"the disk"),
        format!(" end=cut cause=\"the disk\"{full}")
    );
    let nowhere = Queued {
        threads: 0,
        ..QUEUED
    };
    assert_eq!(end(nowhere, Ending::Complete, b""), " before=0.001500");
    let record = Record {
        queued: QUEUED,
        ..SAMPLE
    };
    let json = line(Form::Json, &record);
    let expect = r#""gil":0.000001,"cpu":0.000000,"before":0.001500,"waiting":3,"threads":2,"idle":0,"queued":true,"end":"#;
    assert!(json.contains(expect), "{json}");
    check_filled(
        "{queued}",
        &Record {
            queued: free,
            ..SAMPLE
        },
        "no",
    );
}

#[test]
fn tells_the_processor_time_of_what_a_thread_ran() {
    let check = |cpu_ns, phases: &str, json: &str, filled: &str| {
        let record = Record {
            phases: Phases {
                cpu: Nanos(cpu_ns),
                ..SAMPLE.phases
            },
            queued: QUEUED,
            cause: b"the disk",
            ..SAMPLE
        };
        let text = line(Form::CombinedPhases, &record);
        let (_, end) = text.trim_end().split_once(" before=0.001500").unwrap();
        assert_eq!(end, format!("{phases}{LAST}"));
        let text = line(Form::Json, &record);
        let expect = format!(r#""gil":0.000001,"cpu":{json},"before":"#);
        assert!(text.contains(&expect), "{text}");
        check_filled("{cpu}", &record, filled);
    };
    check(3_901_999, " cpu=0.003901", "0.003901", "0.003901");
    check(999, " cpu=0.000000", "0.000000", "0.000000");
    check(0, "", "0.000000", "-");
    // Never more than the run.
    check(4_001_000, " cpu=0.004000", "0.004000", "0.004000");
}

#[test]
fn names_the_worker_that_ran_it() {
    let check = |worker, text: &str, json: &str, filled: &str| {
        let record = Record {
            phases: Phases {
                worker: NonZeroU32::new(worker),
                ..SAMPLE.phases
            },
            ..SAMPLE
        };
        let found = line(Form::CombinedPhases, &record);
        assert!(found.contains(&format!(" worker={text}")), "{found}");
        let found = line(Form::Json, &record);
        assert!(
            found.contains(&format!(r#","worker":"{json}","#)),
            "{found}"
        );
        check_filled("{worker}", &record, filled);
    };
    check(0, "-", "-", "-");
    check(1, "4711.1", "4711.1", "4711.1");
    check(
        u32::MAX,
        "4711.4294967295",
        "4711.4294967295",
        "4711.4294967295",
    );
}

#[test]
fn names_cannot_shift_fields() {
    let record = Record {
        route: 2,
        pool: 1,
        request_id: b"a b\"c",
        ..SAMPLE
    };
    let text = line(Form::CombinedPhases, &record);
    assert!(
        text.contains(" id=a\\x20b\\x22c route=two\\x20words pool=slow\\x20\\x5bx\\x5d worker="),
        "{text}"
    );
    check_filled(
        "{route} {pool} \"{route}\"",
        &record,
        "two\\x20words slow\\x20\\x5bx\\x5d \"two words\"",
    );
    let nameless = Record {
        route: 9,
        pool: 9,
        ..SAMPLE
    };
    let text = line(Form::CombinedPhases, &nameless);
    assert!(text.contains(" route=- pool=- worker="), "{text}");
}

#[test]
fn ids_are_mixed_with_the_seed_of_the_process() {
    let mut out = Vec::new();
    let names = Names {
        id_seed: SAMPLE.id,
        ..names()
    };
    Writer::new(template("{id}"), Style::default(), names).write(&SAMPLE, &mut out);
    assert_eq!(out, b"0000000000000000\n");
}

#[test]
fn marks_missing_fields_with_a_dash() {
    let bare = Record {
        wall_arrived_ns: SAMPLE.wall_arrived_ns,
        ..Record::default()
    };
    let combined = "- - - [10/Oct/2000:13:55:36 +0000] \"-\" - 0 \"-\" \"-\"";
    check(Form::Combined, &bare, combined);
    for field in [
        "peer", "user", "method", "path", "query", "status", "host", "pool", "cause", "cpu",
        "before", "waiting", "threads", "idle", "queued",
    ] {
        check_filled(&format!("{{{field}}}|\"{{{field}}}\""), &bare, "-|\"-\"");
    }
    check_filled("{request} \"{request}\"", &bare, "- \"-\"");
}

#[test]
fn shows_the_raw_line_of_an_unparsable_head() {
    let refused = Record {
        method: b"",
        request_line: b"\x16\x03\x01 \"",
        status: 400,
        ..SAMPLE
    };
    let shown = "\\x16\\x03\\x01 \\x22";
    check(
        Form::Common,
        &refused,
        &format!("{DATED} \"{shown}\" 400 2326"),
    );
    check_filled("\"{request}\"", &refused, &format!("\"{shown}\""));
    check_filled("{request}", &refused, "\\x16\\x03\\x01\\x20\\x22");
    assert!(line(Form::Json, &refused).contains(r#""request_line":"\u0016\u0003\u0001 \"""#));
}

#[test]
fn json_has_texts_that_are_missing_or_need_escapes() {
    let refused = Record {
        ending: Ending::Refused,
        cause: b"no",
        route: 9,
        pool: 1,
        request_id: b"\"\n",
        ..SAMPLE
    };
    let text = line(Form::Json, &refused);
    assert!(text.contains(r#""route":"","pool":"slow [x]","#), "{text}");
    assert!(text.contains(r#""id":"\"\u000a","#), "{text}");
    assert!(
        text.ends_with("\"end\":\"refused\",\"cause\":\"no\"}\n"),
        "{text}"
    );
}

#[test]
fn fills_every_field() {
    let record = Record {
        target: b"/a?b?c",
        user: b"bob",
        pool: 0,
        queued: QUEUED,
        cause: b"why not",
        ..SAMPLE
    };
    for (field, expect) in [
        ("client", "192.0.2.7"),
        ("peer", "192.0.2.7"),
        ("user", "bob"),
        ("time", "[10/Oct/2000:13:55:36 +0000]"),
        ("time_iso", "2000-10-10T13:55:36.000123+00:00"),
        ("at", "971186136.000123"),
        ("request", "GET\\x20/a?b?c\\x20HTTP/1.1"),
        ("method", "GET"),
        ("target", "/a?b?c"),
        ("path", "/a"),
        ("query", "b?c"),
        ("protocol", "HTTP/1.1"),
        ("status", "200"),
        ("bytes", "2326"),
        ("sent", "2500"),
        ("request_bytes", "90"),
        ("host", "example.org"),
        ("referer", "http://a/"),
        ("agent", "agent"),
        ("route", "/a\\x22pi"),
        ("pool", "default"),
        ("driver", "3"),
        ("process", "4711"),
        ("worker", "-"),
        ("id", ID),
        ("receive", "0.000123"),
        ("queue", "0.000010"),
        ("run", "0.004000"),
        ("send", "0.000021"),
        ("total", "0.004154"),
        ("gil", "0.000001"),
        ("cpu", "-"),
        ("before", "0.001500"),
        ("waiting", "3"),
        ("threads", "2"),
        ("idle", "0"),
        ("queued", "yes"),
        ("end", "complete"),
        ("cause", "why\\x20not"),
    ] {
        check_filled(&format!("<<{{{field}}}"), &record, &format!("<<{expect}"));
    }
    check_filled(
        "{{{peer}}} \"{request}\" {cause} \"{cause}\"",
        &record,
        "{192.0.2.7} \"GET /a?b?c HTTP/1.1\" why\\x20not \"why not\"",
    );
}

#[test]
fn a_template_can_be_any_text_form() {
    let combined =
        "{peer} - {user} {time} \"{request}\" {status} {bytes} \"{referer}\" \"{agent}\"";
    let phases = "receive={receive} queue={queue} run={run} send={send} total={total} id={id} \
                  route={route} worker={worker} at={at}";
    let forged = Record {
        user: b"a b [c]",
        target: b"/\"\n",
        status: 0,
        version: b"",
        ..SAMPLE
    };
    for record in [SAMPLE, forged] {
        check_filled(combined, &record, line(Form::Combined, &record).trim_end());
        check_filled(
            &format!("{combined} {phases}"),
            &record,
            line(Form::CombinedPhases, &record).trim_end(),
        );
    }
}

#[test]
fn one_writer_follows_the_clock_back_and_forth() {
    let style = Style {
        utc_offset_secs: 19_800,
        ..Style::default()
    };
    let mut writer = Writer::new(template("{time} {time_iso}"), style, Names::default());
    let mut out = Vec::new();
    for secs in [971_186_136u64, 971_186_137, 971_186_136] {
        let record = Record {
            wall_arrived_ns: secs * 1_000_000_000,
            ..SAMPLE
        };
        writer.write(&record, &mut out);
    }
    let text = String::from_utf8(out).unwrap();
    let lines: Vec<_> = text.lines().collect();
    let first = "[10/Oct/2000:19:25:36 +0530] 2000-10-10T19:25:36.000000+05:30";
    assert_eq!(lines, [first, &first.replace(":36", ":37"), first]);
}

/// Everything that hides something, in every form.
#[test]
fn hides_addresses_and_queries_in_every_form() {
    let discreet = Style {
        prefix_v4: 24,
        prefix_v6: 48,
        query: false,
        ..Style::default()
    };
    let open = Record {
        target: b"/x?secret",
        referer: b"http://a/?secret",
        ..SAMPLE
    };
    let refused = Record {
        method: b"",
        target: b"",
        version: b"",
        request_line: b"GET /x?secret HTTP/1.1",
        ..open
    };
    let everything = all_fields("\"{", "}\" ");
    for form in all_forms(&everything) {
        for (record, request) in [(open, "/x"), (refused, "GET /x HTTP/1.1")] {
            let text = styled(form.clone(), discreet, &record);
            assert!(text.contains("192.0.2.0"), "{text}");
            assert!(text.contains(request), "{text}");
            assert!(text.contains("HTTP/1.1"), "{text}");
            for hidden in ["192.0.2.7", "secret", "?"] {
                assert!(!text.contains(hidden), "{text}");
            }
        }
    }
}

#[test]
fn the_writer_forgets_what_it_hid_before() {
    let discreet = Style {
        prefix_v4: 8,
        query: false,
        ..Style::default()
    };
    let mut writer = Writer::new(template("{client} {request}"), discreet, names());
    let mut out = Vec::new();
    for peer in [&b"192.0.2.7"[..], b"unix:", b"10.1.2.3", b""] {
        let (method, request_line) = (&b""[..], peer);
        let record = Record {
            client: peer,
            method,
            request_line,
            ..SAMPLE
        };
        writer.write(&record, &mut out);
    }
    let text = String::from_utf8(out).unwrap();
    assert_eq!(
        text,
        "192.0.0.0 192.0.2.7\nunix: unix:\n10.0.0.0 10.1.2.3\n- -\n"
    );
}

fn all_fields(before: &str, after: &str) -> String {
    Template::field_names()
        .map(|name| format!("{before}{name}{after}"))
        .collect()
}

fn all_forms(template_text: &str) -> [Form; 6] {
    [
        Form::CombinedPhases,
        Form::Combined,
        Form::Common,
        Form::Json,
        Form::NaviServer,
        template(template_text),
    ]
}

#[test]
fn a_stream_shows_its_number_and_what_was_unusual() {
    let stream = |reset_by, blocked_ns| Record {
        stream: StreamFacts {
            number: 5,
            reset_by,
            reset_code: 8,
            blocked_stream: Nanos(blocked_ns),
            blocked_connection: Nanos::ZERO,
        },
        ..SAMPLE
    };
    let plain = line(Form::CombinedPhases, &stream(ResetBy::None, 0));
    assert!(plain.contains(" stream=5 "), "{plain}");
    assert!(
        !plain.contains("reset") && !plain.contains("blocked"),
        "{plain}"
    );
    let reset = line(Form::CombinedPhases, &stream(ResetBy::Client, 1_500_000));
    let expect = " stream=5 reset_by=client reset_code=8 blocked_stream=0.001500 ";
    assert!(reset.contains(expect), "{reset}");
    let json = line(Form::Json, &stream(ResetBy::Server, 0));
    let expect = r#","stream":5,"reset_by":"server","reset_code":8,"blocked_stream":0.000000,"#;
    assert!(json.contains(expect), "{json}");
    assert!(!line(Form::Json, &SAMPLE).contains("stream"));
    let named = template("{stream} {reset_by} {reset_code} {blocked_stream} {blocked_connection}");
    assert_eq!(
        line(named.clone(), &stream(ResetBy::Client, 0)),
        "5 client 8 - -\n"
    );
    assert_eq!(line(named, &SAMPLE), "- - - - -\n");
}

#[test]
fn an_exchange_of_an_event_loop_shows_its_steps() {
    let ran = Record {
        event_loop: LoopFacts {
            wait: Nanos(12_000),
            steps: 3,
            busy: Nanos(450_000),
            longest: Nanos(300_000),
            blocked_by: Some(7),
            is_event_stream: true,
        },
        websocket: WebSocketFacts {
            received: 5,
            sent: 6,
            close_code: 1001,
        },
        ..SAMPLE
    };
    let text = line(Form::CombinedPhases, &ran);
    let expect = " messages_in=5 messages_out=6 close_code=1001 loop=0.000012 steps=3 busy=0.000450 \
                  longest=0.000300 blocked_by=";
    assert!(text.contains(expect), "{text}");
    let json = line(Form::Json, &ran);
    let expect = r#","messages_in":5,"messages_out":6,"close_code":1001,"loop":0.000012,"steps":3,"busy":0.000450,"longest":0.000300,"blocked_by":""#;
    assert!(json.contains(expect), "{json}");
    assert!(text.contains(" event_stream=yes "), "{text}");
    assert!(json.contains(r#"","event_stream":true,"#), "{json}");
    let named = template(
        "{messages_in} {messages_out} {close_code} {loop} {steps} {busy} {longest} {event_stream}",
    );
    assert_eq!(
        line(named.clone(), &ran),
        "5 6 1001 0.000012 3 0.000450 0.000300 yes\n"
    );
    assert_eq!(line(named, &SAMPLE), "- - - - - - - -\n");
    for plain in [Form::CombinedPhases, Form::Json].map(|form| line(form, &SAMPLE)) {
        assert!(
            !plain.contains("steps") && !plain.contains("messages"),
            "{plain}"
        );
    }
}

#[test]
fn an_exchange_that_went_to_an_upstream_shows_how() {
    let sent = |reused, ttfb_us: u64, own| Record {
        upstream: UpstreamFacts {
            server: 0,
            attempts: 1,
            reused,
            status: 0,
            connect: Nanos(if reused { 0 } else { 250_999 }),
            ttfb: Nanos(ttfb_us * 1_000),
            own,
        },
        ..SAMPLE
    };
    let own = UpstreamPhases {
        queue: Nanos::ZERO,
        run: Nanos(1_100_000),
    };
    for (record, text, json, filled) in [
        (
            sent(true, 1_200, Some(own)),
            " upstream=127.0.0.1:9001 attempts=1 reused=yes connect=0.000000 ttfb=0.001200 \
             upstream_queue=0.000000 upstream_run=0.001100 worker=",
            r#","upstream":"127.0.0.1:9001","attempts":1,"reused":true,"connect":0.000000,"ttfb":0.001200,"upstream_queue":0.000000,"upstream_run":0.001100,"end":"#,
            "127.0.0.1:9001 1 yes 0.000000 0.001200 0.000000 0.001100\n",
        ),
        (
            sent(false, 0, None),
            " upstream=127.0.0.1:9001 attempts=1 reused=no connect=0.000250 worker=",
            r#","upstream":"127.0.0.1:9001","attempts":1,"reused":false,"connect":0.000250,"end":"#,
            "127.0.0.1:9001 1 no 0.000250 - - -\n",
        ),
    ] {
        let found = line(Form::CombinedPhases, &record);
        assert!(found.contains(text), "{found}");
        let found = line(Form::Json, &record);
        assert!(found.contains(json), "{found}");
        let named =
            "{upstream} {attempts} {reused} {connect} {ttfb} {upstream_queue} {upstream_run}";
        assert_eq!(line(template(named), &record), filled);
        assert_eq!(line(template(named), &SAMPLE), "- - - - - - -\n");
    }
    let mut record = sent(true, 1_200, None);
    record.upstream.server = 1;
    let found = line(Form::CombinedPhases, &record);
    assert!(
        found.contains(" upstream=unix:/run/my\\x20app.sock "),
        "{found}"
    );
    // Without a name, and of an exchange that went to none.
    record.upstream.server = 2;
    let found = line(Form::CombinedPhases, &record);
    assert!(found.contains(" upstream=- attempts=1 "), "{found}");
    for plain in [Form::CombinedPhases, Form::Json].map(|form| line(form, &SAMPLE)) {
        assert!(
            !plain.contains("upstream") && !plain.contains("attempts"),
            "{plain}"
        );
    }
}
