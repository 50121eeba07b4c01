//! What the writer writes is what the reader reads: every fact of every form, whatever the bytes.

use std::num::NonZeroU32;

use super::*;
use crate::tests::check_cases;
use crate::{
    AuthFacts, Ending, Form, LoopFacts, NO_POOL, Names, Phases, Queued, Record, Stamp, StreamFacts,
    Style, Template, TraceContext, UpstreamFacts, UpstreamPhases, WebSocketFacts, Writer, made_id,
};
use proptest::prelude::*;

const SEED: u64 = 7;
fn names() -> Names {
    Names {
        routes: vec!["/".into(), "/a \"pi\"".into(), "app".into()],
        pools: vec!["default".into(), "slow [x]".into()],
        upstreams: vec!["127.0.0.1:9001".into(), "unix:/run/a \"b\".sock".into()],
        process: 1,
        id_seed: SEED,
    }
}

fn written(form: Form, record: &Record<'_>, utc_offset_secs: i32) -> Vec<u8> {
    let style = Style {
        utc_offset_secs,
        ..Style::default()
    };
    let mut out = Vec::new();
    Writer::new(form, style, names()).write(record, &mut out);
    assert_eq!(out.pop(), Some(b'\n'));
    out
}

/// Everything that a test record may hold, owned.
#[derive(Debug, Clone)]
struct Facts {
    texts: Vec<Vec<u8>>,
    numbers: [u64; 3],
    stamps: [u64; 5],
    wall_us: u64,
    status: u16,
    choice: (usize, u16, bool, bool),
    queued: Queued,
    /// Of an event loop or not.
    event_loop: LoopFacts,
    websocket: WebSocketFacts,
    upstream: UpstreamFacts,
    offset_minutes: i32,
}

fn queued() -> impl Strategy<Value = Queued> {
    let before_ns = prop_oneof![Just(0), 0..2_000u64, 0..1_000_000_000_000u64];
    (
        before_ns,
        any::<u32>(),
        0..3u32,
        any::<u32>(),
        any::<bool>(),
    )
        .prop_map(|(before_ns, waiting, threads, idle, from_queue)| Queued {
            before: Nanos(before_ns),
            waiting,
            threads,
            idle,
            from_queue,
        })
}

fn event_loop() -> impl Strategy<Value = LoopFacts> {
    let span = || 0..100_000_000_000u64;
    let blocked_by = prop::option::of(0..1u64 << 60);
    (
        prop::array::uniform3(span()),
        0..3u32,
        blocked_by,
        any::<bool>(),
    )
        .prop_map(
            |([wait, busy, longest], steps, blocked_by, is_event_stream)| LoopFacts {
                wait: Nanos(wait),
                steps,
                busy: Nanos(busy),
                longest: Nanos(longest),
                blocked_by,
                is_event_stream,
            },
        )
}

fn websocket() -> impl Strategy<Value = WebSocketFacts> {
    let code = prop_oneof![Just(0), 1000..5000u16];
    (0..1u64 << 60, 0..9u64, code).prop_map(|(received, sent, close_code)| WebSocketFacts {
        received,
        sent,
        close_code,
    })
}

fn upstream() -> impl Strategy<Value = UpstreamFacts> {
    let span = || 0..100_000_000_000u64;
    let own = prop::option::of((span(), span()));
    (0..2u16, 0..3u8, any::<bool>(), span(), span(), own).prop_map(
        |(server, attempts, reused, connect, ttfb, own)| UpstreamFacts {
            server,
            attempts,
            reused,
            // No log has it.
            status: 0,
            connect: Nanos(connect),
            ttfb: Nanos(ttfb),
            own: own.map(|(queue, run)| UpstreamPhases {
                queue: Nanos(queue),
                run: Nanos(run),
            }),
        },
    )
}

fn facts() -> impl Strategy<Value = Facts> {
    let text = prop_oneof![
        "[a-z/.?=&%A-Z0-9-]{1,20}".prop_map(String::into_bytes),
        prop::collection::vec(any::<u8>(), 1..20),
        Just(Vec::new()),
    ];
    (
        prop::collection::vec(text, 8),
        prop::array::uniform3(0..1u64 << 60),
        prop::array::uniform5(0..100_000_000_000u64),
        // Until the year 2100.
        86_400_000_000..4_102_444_800_000_000u64,
        prop_oneof![Just(0u16), 100..600u16],
        (0..Ending::ALL.len(), 0..3u16, any::<bool>(), any::<bool>()),
        -720..840i32,
        (queued(), event_loop(), websocket(), upstream()),
    )
        .prop_map(
            |(texts, numbers, mut stamps, wall_us, status, choice, offset_minutes, at_pool)| {
                let (queued, event_loop, websocket, upstream) = at_pool;
                stamps.sort_unstable();
                Facts {
                    texts,
                    numbers,
                    stamps,
                    wall_us,
                    status,
                    choice,
                    queued,
                    event_loop,
                    websocket,
                    upstream,
                    offset_minutes,
                }
            },
        )
}

impl Facts {
    fn record(&self) -> Record<'_> {
        let (ending, route, is_pooled, is_parsed) = self.choice;
        // A lone `-` reads back as nothing, which is what it means in a log.
        let text = |index: usize| match &self.texts[index][..] {
            b"-" => &b""[..],
            text => text,
        };
        let head: [&[u8]; 4] = match is_parsed {
            true => [b"GET", text(1), b"HTTP/1.1", b""],
            false => [b"", b"", b"", text(1)],
        };
        let [arrived, queued, started, replied, sent] = self.stamps.map(|ns| Stamp(ns + 1));
        Record {
            id: self.numbers[0],
            request_id: text(7),
            trace: match is_pooled {
                true => crate::trace::tests::sample(),
                false => TraceContext::default(),
            },
            is_https: is_pooled,
            phases: Phases {
                arrived,
                queued,
                started,
                replied,
                sent,
                gil: Nanos(5_000),
                // Zero where no thread ran it.
                cpu: Nanos(self.numbers[2] % 1_000_000_000 * u64::from(is_pooled)),
                worker: NonZeroU32::new(self.numbers[0] as u32 % 99).filter(|_| is_pooled),
            },
            queued: self.queued,
            stream: StreamFacts {
                number: u32::from(route),
                ..StreamFacts::default()
            },
            event_loop: self.event_loop,
            websocket: self.websocket,
            upstream: self.upstream,
            auth: AuthFacts::NONE,
            wall_arrived_ns: self.wall_us * 1_000,
            client: text(0),
            peer: text(0),
            method: head[0],
            target: head[1],
            version: head[2],
            request_line: head[3],
            host: text(2),
            referer: text(3),
            user_agent: text(4),
            user: text(5),
            status: self.status,
            body_bytes: self.numbers[1],
            sent_bytes: self.numbers[2],
            request_bytes: 99,
            ending: Ending::ALL[ending],
            route,
            pool: if is_pooled { 1 } else { NO_POOL },
            driver: 3,
            cause: text(6),
            tls: b"",
        }
    }
}

/// Compares what all forms have.
fn check_common(line: &Line<'_>, record: &Record<'_>, wall_ns: u64) {
    assert_eq!(line.wall_ns, Some(wall_ns));
    assert_eq!(&*line.plain(line.client), record.client);
    assert_eq!(&*line.plain(line.user), record.user);
    assert_eq!(line.status, (record.status > 0).then_some(record.status));
    assert_eq!(line.body_bytes, Some(record.body_bytes));
}

fn check_request(line: &Line<'_>, record: &Record<'_>) {
    if record.method.is_empty() {
        // Garbage may look like a request; then its parts are what it said.
        let parts =
            [line.method, line.target, line.version].map(|part| line.plain(part).into_owned());
        let parts = parts
            .iter()
            .filter(|part| !part.is_empty())
            .map(|part| &part[..]);
        let joined = parts.collect::<Vec<_>>().join(&b' ');
        let raw = line.plain(line.request_line);
        assert!(
            *record.request_line == *raw || *record.request_line == *joined,
            "{line:?}"
        );
    } else {
        assert_eq!(&*line.plain(line.method), record.method);
        assert_eq!(&*line.plain(line.target), record.target);
        assert_eq!(&*line.plain(line.version), record.version);
    }
}

fn check_agents(line: &Line<'_>, record: &Record<'_>) {
    assert_eq!(&*line.plain(line.referer), record.referer);
    assert_eq!(&*line.plain(line.user_agent), record.user_agent);
}

fn check_spans(line: &Line<'_>, record: &Record<'_>) {
    let run = record.phases.spans();
    let us = crate::phases::WholeMicros::of(&run);
    let KnownSpans {
        receive,
        queue,
        run: ran,
        send,
        total,
        cpu,
        ..
    } = line.spans;
    let expect = [us.receive, us.queue, us.run, us.send, us.total];
    let expect = expect.map(|us| Some(Nanos(us * 1_000)));
    assert_eq!([receive, queue, ran, send, total], expect);
    let cpu_us = run.cpu.0 / 1_000;
    assert_eq!(cpu, (cpu_us > 0).then_some(Nanos(cpu_us * 1_000)));
}

/// A form says what it knows, and not that it is 0.
fn check_queued(line: &Line<'_>, record: &Record<'_>) {
    let queued = record.queued;
    let (before_us, has_queue) = (queued.before.0 / 1_000, queued.threads > 0);
    let expect = KnownQueued {
        before: (before_us > 0).then_some(Nanos(before_us * 1_000)),
        waiting: has_queue.then_some(queued.waiting),
        threads: has_queue.then_some(queued.threads),
        idle: has_queue.then_some(queued.idle),
        from_queue: has_queue.then_some(queued.from_queue),
    };
    assert_eq!(line.queued, expect);
}

/// Facts of an event loop are there together, and those of a WebSocket connection.
fn check_loop(line: &Line<'_>, record: &Record<'_>) {
    let (facts, us) = (record.event_loop, |span: Nanos| {
        Nanos(span.0 / 1_000 * 1_000)
    });
    let has_loop = facts.steps > 0;
    let blocked_by = facts.blocked_by.map(|other| made_id(SEED, other));
    let expect = KnownLoop {
        wait: has_loop.then_some(us(facts.wait)),
        steps: has_loop.then_some(facts.steps),
        busy: has_loop.then_some(us(facts.busy)),
        longest: has_loop.then_some(us(facts.longest)),
        blocked_by: match (&blocked_by, has_loop) {
            (Some(id), true) => id,
            _ => b"",
        },
        is_event_stream: has_loop && facts.is_event_stream,
    };
    assert_eq!(line.event_loop, expect);
    let facts = record.websocket;
    let is_websocket = facts.close_code > 0;
    let expect = KnownWebSocket {
        received: is_websocket.then_some(facts.received),
        sent: is_websocket.then_some(facts.sent),
        close_code: is_websocket.then_some(facts.close_code),
    };
    assert_eq!(line.websocket, expect);
    assert_eq!(line.is_websocket(), is_websocket);
}

/// Facts of an upstream are there together.
fn check_upstream(line: &Line<'_>, record: &Record<'_>) {
    let facts = record.upstream;
    let is_known = facts.attempts > 0;
    assert_eq!(line.is_proxied(), is_known);
    let names = names().upstreams;
    let server = if is_known {
        &*names[usize::from(facts.server)]
    } else {
        ""
    };
    assert_eq!(&*line.plain(line.upstream.server), server.as_bytes());
    let us = |span: Nanos| is_known.then_some(Nanos(span.0 / 1_000 * 1_000));
    let expect = KnownUpstream {
        server: line.upstream.server,
        attempts: is_known.then_some(u32::from(facts.attempts)),
        reused: is_known.then_some(facts.reused),
        connect: us(facts.connect),
        ttfb: us(facts.ttfb).filter(|_| facts.ttfb.0 > 0),
        queue: facts.own.and_then(|own| us(own.queue)),
        run: facts.own.and_then(|own| us(own.run)),
    };
    assert_eq!(line.upstream, expect);
}

fn check_names(line: &Line<'_>, record: &Record<'_>) {
    let names = names();
    assert_eq!(
        &*line.plain(line.route),
        names.routes[usize::from(record.route)].as_bytes()
    );
    let pool = names
        .pools
        .get(usize::from(record.pool))
        .map_or("", |name| name);
    assert_eq!(&*line.plain(line.pool), pool.as_bytes());
    let made = made_id(SEED, record.id);
    let id = if record.request_id.is_empty() {
        &made
    } else {
        record.request_id
    };
    assert_eq!(&*line.plain(line.id), id);
    assert_eq!(&*line.plain(line.end), record.ending.text().as_bytes());
    assert_eq!(&*line.plain(line.cause), record.cause);
    let number = record.phases.worker;
    let worker = number.map_or_else(String::new, |number| format!("1.{number}"));
    assert_eq!(line.worker, Some(worker.as_bytes()));
}

/// JSON shows bytes that are no UTF-8 as the characters of the same number.
fn as_json_has_it(text: &[u8]) -> Vec<u8> {
    let mut out = Vec::new();
    for chunk in text.utf8_chunks() {
        out.extend_from_slice(chunk.valid().as_bytes());
        for &byte in chunk.invalid() {
            out.extend_from_slice(char::from(byte).encode_utf8(&mut [0; 4]).as_bytes());
        }
    }
    out
}

#[test]
fn common_words_of_another_program_are_no_facts_of_an_event_loop() {
    let head = concat!(
        r#"192.0.2.7 - - [10/Oct/2000:13:55:36 +0000] "GET /x HTTP/1.1" 200 5 "-" "-" "#,
        "receive=0.1 queue=0.0 run=0.1 send=0.0 total=0.2 "
    );
    let mut reader = Reader::default();
    let mut check = |rest: &str, is_of_loop, is_websocket| {
        let text = format!("{head}{rest}");
        let line = reader.line(text.as_bytes()).expect(rest);
        assert_eq!(
            (line.is_of_loop(), line.is_websocket()),
            (is_of_loop, is_websocket),
            "{rest}"
        );
    };
    check("loop=0.0 steps=2 busy=0.1 longest=0.1", true, false);
    check("steps=2", false, false);
    check("loop=main steps=two busy=yes longest=no", false, false);
    check("loop=0.0 steps=0 busy=0.0 longest=0.0", false, false);
    check("messages_in=1 messages_out=0 close_code=1000", false, true);
    check("messages_in=many close_code=1000", false, false);
    check(
        "messages_in=1 messages_out=0 close_code=70000",
        false,
        false,
    );
}

#[test]
fn common_words_of_another_program_are_no_facts_of_an_upstream() {
    let head = concat!(
        r#"192.0.2.7 - - [10/Oct/2000:13:55:36 +0000] "GET /x HTTP/1.1" 200 5 "-" "-" "#,
        "receive=0.1 queue=0.0 run=0.1 send=0.0 total=0.2 "
    );
    let mut reader = Reader::default();
    let mut check = |rest: &str, expect: bool| {
        let text = format!("{head}{rest}");
        let line = reader.line(text.as_bytes()).expect(rest);
        assert_eq!(line.is_proxied(), expect, "{rest}");
        assert!(
            expect || line.upstream == KnownUpstream::default(),
            "{rest}"
        );
    };
    check(
        "upstream=a:1 attempts=2 reused=no connect=0.1 ttfb=0.2",
        true,
    );
    check("upstream=a:1 attempts=1 reused=? connect=0.1", true);
    check("upstream=a:1", false);
    check("upstream=a:1 attempts=many connect=0.1", false);
    check("upstream=a:1 attempts=0 connect=0.1", false);
    check("upstream=- attempts=1 connect=0.1", false);
    check("upstream=a:1 attempts=1 connect=local", false);
    check("connect=0.1 ttfb=0.2", false);
}

proptest! {
    #[test]
    fn text_forms_come_back_as_they_were_written(facts in facts()) {
        let record = facts.record();
        let offset_secs = facts.offset_minutes * 60;
        let whole_second = facts.wall_us / 1_000_000 * 1_000_000_000;
        let mut reader = Reader::default();
        for form in [Form::Common, Form::Combined, Form::CombinedPhases, Form::NaviServer] {
            let text = written(form.clone(), &record, offset_secs);
            let line = reader.line(&text).unwrap_or_else(|| panic!("{}", text.escape_ascii()));
            prop_assert_eq!(line.utc_offset_secs, offset_secs);
            let is_fine = matches!(form, Form::CombinedPhases | Form::NaviServer);
            check_common(&line, &record, if is_fine { record.wall_arrived_ns } else { whole_second });
            check_request(&line, &record);
            if form != Form::Common {
                check_agents(&line, &record);
            }
            if form != Form::CombinedPhases {
                prop_assert_eq!(line.queued, KnownQueued::default());
            }
            match form {
                Form::CombinedPhases => {
                    prop_assert_eq!(line.form, LineForm::Phases);
                    check_spans(&line, &record);
                    check_queued(&line, &record);
                    check_loop(&line, &record);
                    check_upstream(&line, &record);
                    check_names(&line, &record);
                }
                Form::NaviServer => {
                    let us = crate::phases::WholeMicros::of(&record.phases.spans());
                    prop_assert_eq!(line.form, LineForm::NaviServer);
                    prop_assert_eq!(line.spans.total, Some(Nanos(us.total * 1_000)));
                    prop_assert_eq!(line.spans.run, Some(Nanos((us.run + us.send) * 1_000)));
                }
                _ => prop_assert_eq!(line.spans, KnownSpans::default()),
            }
        }
    }

    #[test]
    fn json_comes_back_as_it_was_written(facts in facts()) {
        let record = facts.record();
        let shown: Vec<_> = [
            record.client, record.target, record.request_line, record.host, record.referer,
            record.user_agent, record.user, record.cause, record.request_id,
        ].map(as_json_has_it).into();
        let expect = Record {
            client: &shown[0], peer: &shown[0], target: &shown[1], request_line: &shown[2], host: &shown[3],
            referer: &shown[4], user_agent: &shown[5], user: &shown[6], cause: &shown[7],
            request_id: &shown[8], ..record
        };
        let text = written(Form::Json, &record, facts.offset_minutes * 60);
        let line = Reader::default().line(&text).expect("a line of ours");
        check_common(&line, &expect, record.wall_arrived_ns);
        check_agents(&line, &expect);
        check_spans(&line, &expect);
        check_queued(&line, &expect);
        check_loop(&line, &expect);
        check_upstream(&line, &expect);
        check_names(&line, &expect);
        check_request(&line, &expect);
        prop_assert_eq!(&*line.plain(line.host), expect.host);
        prop_assert_eq!(line.sent_bytes, Some(record.sent_bytes));
        prop_assert_eq!(line.request_bytes, Some(99));
        prop_assert_eq!(line.driver, Some(3));
        prop_assert_eq!(line.process, b"1");
        prop_assert_eq!(line.spans.gil, Some(Nanos(5_000)));
        prop_assert_eq!(line.utc_offset_secs, facts.offset_minutes * 60);
    }

    #[test]
    fn templates_come_back_as_they_were_written(facts in facts()) {
        let record = facts.record();
        let template = Template::parse(concat!(
            "{client} {peer} {user};{time}{at}|{status} {receive}-{queue} {run},{send}/{total} ({gil} {cpu}) ",
            "\"{request}\" {bytes}:{sent} {request_bytes} {host} {driver} {process}/{worker} \"{agent}\" \"{referer}\" ",
            "{id} {route} {pool} {waiting}/{threads} {idle} {queued} {before} {end} {cause} {loop} {steps} {busy} ",
            "{longest} {blocked_by} {event_stream} {messages_in} {messages_out} {close_code} \"{upstream}\" {attempts} ",
            "{reused} {connect} {ttfb} {upstream_queue} {upstream_run}",
        )).unwrap();
        let pattern = Pattern::of(&template).unwrap();
        let text = written(Form::Template(template), &record, facts.offset_minutes * 60);
        let line = Reader::new(Some(pattern)).line(&text).expect("a line of ours");
        prop_assert_eq!(line.form, LineForm::Template);
        check_loop(&line, &record);
        check_upstream(&line, &record);
        // `{at}` follows `{time}` and is finer.
        check_common(&line, &record, record.wall_arrived_ns);
        check_request(&line, &record);
        check_agents(&line, &record);
        check_spans(&line, &record);
        check_queued(&line, &record);
        check_names(&line, &record);
        prop_assert_eq!(&*line.plain(line.host), record.host);
        prop_assert_eq!(line.sent_bytes, Some(record.sent_bytes));
    }

    #[test]
    fn garbage_never_panics(
        bytes in prop::collection::vec(any::<u8>(), 0..300),
        likely in prop::collection::vec(prop::sample::select(&b" \"[]{}:,=-.\\09azT/"[..]), 0..100),
    ) {
        let template = Template::parse("{peer} {time_iso} \"{request}\" {total}").unwrap();
        let mut reader = Reader::new(Some(Pattern::of(&template).unwrap()));
        for bytes in [bytes, likely] {
            if let Some(line) = reader.line(&bytes) {
                let _ = (line.plain(line.target), line.plain(line.cause));
            }
        }
    }

    #[test]
    fn damage_never_panics_and_never_lies_about_length(
        at in 0usize..640, byte in any::<u8>(), cut in 0usize..640,
    ) {
        let facts = Facts {
            texts: vec![b"text".to_vec(); 8],
            numbers: [1, 2, 3],
            stamps: [1_000, 2_000, 3_000, 4_000, 5_000],
            wall_us: 971_186_136_000_123,
            status: 200,
            choice: (2, 1, true, true),
            queued: Queued {
                before: Nanos(7_000),
                waiting: 3,
                threads: 2,
                idle: 0,
                from_queue: true,
            },
            event_loop: LoopFacts {
                wait: Nanos(8_000),
                steps: 2,
                busy: Nanos(9_000),
                longest: Nanos(9_000),
                blocked_by: Some(4),
                is_event_stream: true,
            },
            websocket: WebSocketFacts {
                received: 5,
                sent: 6,
                close_code: 1000,
            },
            upstream: UpstreamFacts {
                attempts: 2,
                own: Some(UpstreamPhases::default()),
                ..UpstreamFacts::default()
            },
            offset_minutes: 60,
        };
        for form in [Form::CombinedPhases, Form::Json, Form::NaviServer] {
            let mut text = written(form, &facts.record(), 0);
            text.truncate(cut);
            if let Some(place) = text.get_mut(at) {
                *place = byte;
            }
            if let Some(line) = Reader::default().line(&text) {
                let _ = line.plain(line.target);
            }
        }
    }
}

#[test]
fn lines_of_before_there_were_queue_facts_have_none() {
    let combined = r#"a - - [10/Oct/2000:13:55:36 +0000] "GET /x HTTP/1.1" 200 5 "-" "-""#;
    let phases = "receive=0.1 queue=0.2 run=0.3 send=0.0 total=0.6 id=1 route=app pool=default";
    let json = r#""time":"2000-10-10T13:55:36Z","status":200,"total":0.6,"gil":0.0,"end":"cut""#;
    let mut reader = Reader::default();
    let mut check = |text: String, waiting: Option<u32>, before: Option<Nanos>| {
        let line = reader.line(text.as_bytes()).expect(&text);
        assert_eq!(line.spans.total, Some(Nanos(600_000_000)), "{text}");
        let expect = KnownQueued {
            waiting,
            before,
            ..KnownQueued::default()
        };
        assert_eq!(line.queued, expect, "{text}");
    };
    check(
        format!("{combined} {phases} end=cut cause=\"x\""),
        None,
        None,
    );
    check(format!("{{{json}}}"), None, None);
    // The words of other programs, which may mean anything.
    check(
        format!("{combined} {phases} waiting=4 threads=auto idle=-1 before=noon"),
        Some(4),
        None,
    );
    check(
        format!("{{{json},\"threads\":1.5,\"idle\":null,\"before\":\"x\",\"queued\":1}}"),
        None,
        None,
    );
    check(
        format!("{{{json},\"waiting\":5000000000,\"before\":0.5}}"),
        None,
        Some(Nanos(500_000_000)),
    );
}

#[test]
fn processor_time_is_known_only_where_it_was_measured() {
    let combined = r#"a - - [10/Oct/2000:13:55:36 +0000] "GET /x HTTP/1.1" 200 5 "-" "-""#;
    let phases = "receive=0.1 queue=0.2 run=0.3 send=0.0 total=0.6 id=1 route=app pool=default";
    let json = r#""time":"2000-10-10T13:55:36Z","status":200,"total":0.6"#;
    let mut reader = Reader::default();
    let mut check = |behind: &str, expect: Option<u64>| {
        let (key, value) = behind.split_once('=').unwrap_or(("none", "0"));
        for text in [
            format!("{combined} {phases} {behind}"),
            format!("{{{json},\"{key}\":{value}}}"),
        ] {
            let line = reader.line(text.as_bytes()).expect(&text);
            assert_eq!(line.spans.cpu, expect.map(Nanos), "{text}");
            assert_eq!(line.spans.total, Some(Nanos(600_000_000)), "{text}");
        }
    };
    check("cpu=0.250001", Some(250_001_000));
    check("cpu=0.000000", None);
    check("", None);
    // Another program's word.
    check("cpu=\"most\"", None);
}

#[test]
fn a_path_stands_in_for_the_target() {
    let template = Template::parse("{time_iso} {path} {query} {total}").unwrap();
    let pattern = Pattern::of(&template).unwrap();
    let mut reader = Reader::new(Some(pattern));
    let line = reader
        .line(b"2000-10-10T13:55:36.000123+00:00 /x - 0.001000")
        .unwrap();
    assert_eq!(
        (line.target, line.spans.total),
        (&b"/x"[..], Some(Nanos(1_000_000)))
    );
    assert_eq!(line.wall_ns, Some(971_186_136_000_123_000));
}

#[test]
fn other_lines_are_read_beside_those_of_a_template() {
    let template = Template::parse("{peer}|{total}").unwrap();
    let mut reader = Reader::new(Some(Pattern::of(&template).unwrap()));
    assert_eq!(reader.line(b"a|0.5").unwrap().form, LineForm::Template);
    let common = b"a - - [10/Oct/2000:13:55:36 +0000] \"GET /x HTTP/1.1\" 200 5\r";
    assert_eq!(reader.line(common).unwrap().form, LineForm::Common);
}

#[test]
fn refuses_templates_that_cannot_be_taken_apart() {
    let check = |text: &str, expect: &str| {
        let fault = Pattern::of(&Template::parse(text).unwrap()).unwrap_err();
        assert_eq!(fault.to_string(), expect);
    };
    check(
        "{peer}{status}",
        "nothing between `{peer}` and `{status}` says where the first ends",
    );
    check(
        "{status}{bytes}",
        "nothing between `{status}` and `{bytes}` says where the first ends",
    );
    check("{{peer}}", "there is no field in the template");
    assert!(Pattern::of(&Template::parse("{time}{time_iso}{peer}").unwrap()).is_ok());
}

#[test]
fn reads_json_of_others_and_refuses_what_is_no_access_line() {
    // `T` stands for a time.
    let cases = r#"
{ T , "status" : 404 , "tls":{"v":[1,"}"]}, "up":null }
    Some(Some(404))
{"status":0,T}
    Some(None)
{"level":"info"}
    None
{}
    None
{"status":200,T
    None
{"status":200,T} more
    None
{"status":200,T,"total":"x"}
    Some(Some(200))
{"status":200,T,"total":1e}
    None
{"status":200,T,"total":-1e-3}
    None
{"status":200,T,"total":1e400}
    None
{"status":200,T,"total":1e9}
    None
{"status":200,T,"total":1ex}
    None
"#;
    check_cases(cases, |text| {
        let text = text.replace('T', r#""time":"2000-10-10T13:55:36Z""#) + " ";
        let status = Reader::default()
            .line(text.as_bytes())
            .map(|line| line.status);
        format!("{status:?}")
    });
}
