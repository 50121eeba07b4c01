//! Spans: each field of a record at its place, texts of any bytes, and the size of what is written.

use proptest::prelude::*;
use serde_json::{Value, json};

use super::*;
use crate::{AuthFacts, AuthFailure, Sampler, TraceContext, TraceParent};

const TRACE: &str = "0af7651916cd43dd8448eb211c80319c";
const PARENT: &str = "b7ad6b7169203331";
const ARRIVED_NS: u64 = 971_186_136_000_123_000;

/// The seventh span below another server's, in a trace that is recorded.
fn context() -> TraceContext {
    let parent = TraceParent::parse(format!("00-{TRACE}-{PARENT}-01").as_bytes());
    TraceContext::new(parent, || [0, 0], 7, &Sampler::new(1.0, true))
}

fn traced() -> Record<'static> {
    Record {
        trace: context(),
        ..SAMPLE
    }
}

/// An exchange with everything that a span can tell.
fn whole() -> Record<'static> {
    let at = |us: u64| Stamp(SAMPLE.phases.arrived.0 + us * 1_000);
    Record {
        request_id: b"given-7",
        is_https: true,
        phases: Phases {
            worker: NonZeroU32::new(3),
            cpu: Nanos(2_000_000),
            ..SAMPLE.phases
        },
        upstream: UpstreamFacts {
            server: 0,
            attempts: 3,
            status: 503,
            connect: Nanos(250_000),
            ttfb: Nanos(1_250_000),
            ..UpstreamFacts::default()
        },
        auth: AuthFacts::new(at(0), (at(20), at(120)), Some(1), 204, AuthFailure::None),
        client: b"203.0.113.9",
        target: b"/x?token=secret",
        version: b"HTTP/2.0",
        status: 502,
        route: 0,
        pool: 1,
        cause: b"why \"so\"",
        ..traced()
    }
}

fn written(records: &[Record<'_>], style: Style) -> (String, usize) {
    let resource = [("service.name".to_owned(), "a \"shop\"".to_owned())];
    let mut writer = SpanWriter::new(style, names(), &resource, "1.2.3");
    let mut out = Vec::new();
    writer.begin(&mut out);
    let spans = records
        .iter()
        .map(|record| writer.write(record, &mut out))
        .sum();
    writer.finish(&mut out);
    (String::from_utf8(out).expect("JSON is UTF-8"), spans)
}

/// The spans of a message, which must be JSON and have as many as the writer says.
fn spans(records: &[Record<'_>], style: Style) -> Vec<Value> {
    let (text, len) = written(records, style);
    let message: Value = serde_json::from_str(&text).expect("JSON");
    let spans = message["resourceSpans"][0]["scopeSpans"][0]["spans"].clone();
    let Value::Array(spans) = spans else {
        panic!("no spans in {text}");
    };
    assert_eq!(spans.len(), len);
    spans
}

fn named<'s>(spans: &'s [Value], name: &str) -> &'s Value {
    let mut found = spans.iter().filter(|span| span["name"] == name);
    found.next().unwrap_or_else(|| panic!("no span `{name}`"))
}

/// The attributes of a span in their order: keys, and values as OTLP has them.
fn attributes(span: &Value) -> Vec<(&str, &Value)> {
    let pairs = span["attributes"].as_array().expect("attributes");
    let pairs = pairs
        .iter()
        .map(|pair| (pair["key"].as_str().expect("a key"), &pair["value"]));
    pairs.collect()
}

#[track_caller]
fn check_attributes(span: &Value, expect: &[(&str, Value)]) {
    let expect: Vec<(&str, &Value)> = expect.iter().map(|(key, value)| (*key, value)).collect();
    assert_eq!(attributes(span), expect);
}

fn text(value: &str) -> Value {
    json!({ "stringValue": value })
}

/// 64-bit numbers are texts in protobuf's JSON.
fn number(value: u64) -> Value {
    json!({ "intValue": value.to_string() })
}

fn seconds(value: f64) -> Value {
    json!({ "doubleValue": value })
}

#[test]
fn a_message_has_the_service_and_the_program_once() {
    let (text, spans) = written(&[traced(), traced()], Style::default());
    assert!(
        text.starts_with(
            "{\"resourceSpans\":[{\"resource\":{\"attributes\":[\
             {\"key\":\"service.name\",\"value\":{\"stringValue\":\"a \\\"shop\\\"\"}},\
             {\"key\":\"process.pid\",\"value\":{\"intValue\":\"4711\"}}]},\
             \"scopeSpans\":[{\"scope\":{\"name\":\"milepost\",\"version\":\"1.2.3\"},\"spans\":[{\"traceId\""
        ),
        "{text}"
    );
    assert!(text.ends_with("}]}]}]}"), "{text}");
    assert_eq!(text.matches("service.name").count(), 1);
    // The request, receive, run and send.
    assert_eq!(spans, 8);
}

#[test]
fn a_request_tells_each_of_its_fields() {
    let record = whole();
    let spans = spans(&[record], Style::default());
    let span = named(&spans, "GET /");
    assert_eq!(span["traceId"], TRACE);
    assert_eq!(span["spanId"], "0000000000000007");
    assert_eq!(span["parentSpanId"], PARENT);
    // Sampled, its parent is known, and another server's.
    assert_eq!(span["flags"], 0x301);
    assert_eq!(span["kind"], 2);
    assert_eq!(span["startTimeUnixNano"], ARRIVED_NS.to_string());
    let total = record.phases.spans().total.0;
    assert_eq!(span["endTimeUnixNano"], (ARRIVED_NS + total).to_string());
    assert_eq!(span["status"], json!({ "code": 2 }));
    check_attributes(
        span,
        &[
            ("http.request.method", text("GET")),
            ("url.path", text("/x")),
            ("url.scheme", text("https")),
            ("http.route", text("/")),
            ("http.response.status_code", number(502)),
            ("network.protocol.name", text("http")),
            ("network.protocol.version", text("2")),
            ("client.address", text("203.0.113.9")),
            ("network.peer.address", text("192.0.2.7")),
            ("server.address", text("example.org")),
            ("user_agent.original", text("agent")),
            ("http.response.body.size", number(2326)),
            ("milepost.route", text("/")),
            ("milepost.request_id", text("given-7")),
            ("milepost.end", text("complete")),
            ("milepost.cause", text("why \"so\"")),
            ("error.type", text("502")),
        ],
    );
}

#[test]
fn phases_fill_the_time_of_the_request_one_behind_the_other() {
    let spans = spans(&[whole()], Style::default());
    let time = |span: &Value, key: &str| -> u64 {
        let text = span[key].as_str().expect("a text");
        text.parse().expect("a number")
    };
    let mut at = ARRIVED_NS;
    for name in ["receive", "queue", "run", "send"] {
        let phase = named(&spans, name);
        assert_eq!(phase["kind"], 1, "{name}");
        assert_eq!(phase["traceId"], TRACE);
        assert_eq!(phase["parentSpanId"], "0000000000000007");
        // Its parent is of this server.
        assert_eq!(phase["flags"], 0x101);
        assert_eq!(time(phase, "startTimeUnixNano"), at, "{name}");
        at = time(phase, "endTimeUnixNano");
    }
    assert_eq!(at, time(named(&spans, "GET /"), "endTimeUnixNano"));
    check_attributes(
        named(&spans, "run"),
        &[
            ("milepost.pool", text("slow [x]")),
            ("milepost.worker", text("4711.3")),
            ("milepost.gil", seconds(0.000_001)),
            ("milepost.cpu", seconds(0.002)),
        ],
    );
    for name in ["receive", "queue", "send"] {
        check_attributes(named(&spans, name), &[]);
    }
}

#[test]
fn the_span_of_a_server_that_did_not_answer_has_the_cause() {
    let record = Record {
        upstream: UpstreamFacts {
            attempts: 1,
            ..UpstreamFacts::default()
        },
        cause: b"connect",
        ..whole()
    };
    let spans = spans(&[record], Style::default());
    let at_upstream = named(&spans, "GET");
    assert_eq!(at_upstream["status"]["code"], 2);
    let attributes = at_upstream["attributes"].as_array().expect("attributes");
    let error = attributes.iter().find(|one| one["key"] == "error.type");
    assert_eq!(error.expect("an error")["value"], text("connect"));
    let is_status = |one: &&Value| one["key"] == "http.response.status_code";
    assert!(!attributes.iter().any(|one| is_status(&one)));
}

#[test]
fn other_servers_have_client_spans_with_the_ids_that_they_were_given() {
    let spans = spans(&[whole()], Style::default());
    let id = |header: [u8; 55]| String::from_utf8(header[36..52].to_vec()).expect("digits");
    let at_upstream = named(&spans, "GET");
    assert_eq!(at_upstream["spanId"], id(context().upstream_header()));
    assert_eq!(at_upstream["kind"], 3);
    check_attributes(
        at_upstream,
        &[
            ("http.request.method", text("GET")),
            ("server.address", text("127.0.0.1:9001")),
            ("http.request.resend_count", number(2)),
            ("milepost.connect", seconds(0.000_25)),
            ("milepost.ttfb", seconds(0.001_25)),
            ("http.response.status_code", number(503)),
            ("error.type", text("503")),
        ],
    );
    assert_eq!(at_upstream["status"]["code"], 2);
    let question = named(&spans, "forward_auth");
    assert_eq!(question["spanId"], id(context().auth_header()));
    assert_eq!(question["kind"], 3);
    assert_eq!(
        question["startTimeUnixNano"],
        (ARRIVED_NS + 20_000).to_string()
    );
    assert_eq!(
        question["endTimeUnixNano"],
        (ARRIVED_NS + 120_000).to_string()
    );
    assert_eq!(question.get("status"), None);
    check_attributes(
        question,
        &[
            ("http.request.method", text("GET")),
            ("server.address", text("unix:/run/my app.sock")),
            ("http.response.status_code", number(204)),
        ],
    );
    let mut ids: Vec<&Value> = spans.iter().map(|span| &span["spanId"]).collect();
    ids.sort_by_key(|id| id.to_string());
    ids.dedup();
    assert_eq!(ids.len(), spans.len());
}

#[test]
fn a_question_fails_by_its_status_or_without_one() {
    let check = |server: Option<u16>, status: u16, failure: AuthFailure, expect: &str| {
        let times = (SAMPLE.phases.arrived, SAMPLE.phases.queued);
        let record = Record {
            auth: AuthFacts::new(SAMPLE.phases.arrived, times, server, status, failure),
            ..traced()
        };
        let spans = spans(&[record], Style::default());
        let question = named(&spans, "forward_auth");
        let pairs = attributes(question);
        let of = |key: &str| {
            let found = pairs.iter().find(|(found, _)| *found == key);
            found.map(|(_, value)| (*value).clone())
        };
        let error = (!expect.is_empty()).then(|| text(expect));
        assert_eq!(of("error.type"), error, "{status} {failure:?}");
        let code = error.map(|_| json!({ "code": 2 }));
        assert_eq!(question.get("status"), code.as_ref());
        assert_eq!(of("server.address").is_some(), server.is_some());
        assert_eq!(of("http.response.status_code").is_some(), status > 0);
    };
    check(Some(0), 200, AuthFailure::None, "");
    check(Some(0), 302, AuthFailure::None, "");
    check(Some(0), 401, AuthFailure::None, "401");
    check(Some(0), 503, AuthFailure::None, "503");
    check(Some(0), 0, AuthFailure::Connect, "connect");
    check(Some(0), 0, AuthFailure::Timeout, "timeout");
    check(Some(0), 0, AuthFailure::Closed, "closed");
    check(Some(0), 0, AuthFailure::Malformed, "malformed");
    check(None, 0, AuthFailure::NotAsked, "not_asked");
}

#[test]
fn what_is_not_known_is_left_out() {
    let bare = Record {
        trace: TraceContext::new(None, || [1, 2], 7, &Sampler::new(0.0, true)),
        wall_arrived_ns: ARRIVED_NS,
        ending: Ending::PeerGone,
        ..Record::default()
    };
    let spans = spans(&[bare], Style::default());
    // Without a method that the conventions know, and with a route of the server's own.
    let span = named(&spans, "HTTP /");
    assert_eq!(span.get("parentSpanId"), None);
    assert_eq!(span["flags"], 0x102);
    assert_eq!(span.get("status"), None);
    check_attributes(
        span,
        &[
            ("http.request.method", text("_OTHER")),
            ("url.scheme", text("http")),
            ("http.route", text("/")),
            ("network.protocol.name", text("http")),
            ("http.response.body.size", number(0)),
            ("milepost.route", text("/")),
            ("milepost.request_id", text(ID_OF_0)),
            ("milepost.end", text("peer-gone")),
        ],
    );
    let names: Vec<&Value> = spans.iter().map(|span| &span["name"]).collect();
    assert_eq!(names, ["HTTP /", "receive", "run", "send"]);
    check_attributes(named(&spans, "run"), &[]);
}

/// The mix of 0 with the seed 0.
const ID_OF_0: &str = "0000000000000000";

#[test]
fn methods_that_are_not_known_and_routes_without_a_path_name_no_span() {
    let record = Record {
        method: b"BREW\"",
        route: 2,
        ..traced()
    };
    let spans = spans(&[record], Style::default());
    let span = named(&spans, "HTTP");
    let pairs = attributes(span);
    assert_eq!(pairs[0], ("http.request.method", &text("_OTHER")));
    assert_eq!(pairs[1], ("http.request.method_original", &text("BREW\"")));
    assert!(pairs.iter().all(|(key, _)| *key != "http.route"));
    assert!(pairs.contains(&("milepost.route", &text("two words"))));
}

#[test]
fn a_request_fails_by_its_status_or_by_its_end() {
    let check = |status: u16, ending: Ending, expect: Option<&str>| {
        let record = Record {
            status,
            ending,
            route: 0,
            ..traced()
        };
        let spans = spans(&[record], Style::default());
        let span = named(&spans, "GET /");
        let pairs = attributes(span);
        let error = pairs.iter().find(|(key, _)| *key == "error.type");
        let error = error.map(|(_, value)| (*value).clone());
        assert_eq!(error, expect.map(text), "{status} {ending:?}");
        assert_eq!(span.get("status").is_some(), expect.is_some());
    };
    check(200, Ending::Complete, None);
    check(404, Ending::Refused, None);
    check(500, Ending::Complete, Some("500"));
    check(503, Ending::Refused, Some("503"));
    check(200, Ending::PeerGone, None);
    check(200, Ending::SendTimeout, None);
    check(200, Ending::Cut, Some("cut"));
    check(200, Ending::Timeout, Some("timeout"));
    check(504, Ending::Timeout, Some("504"));
    check(0, Ending::Lost, Some("lost"));
}

#[test]
fn hides_what_the_style_hides() {
    let style = Style {
        prefix_v4: 24,
        ..Style::default()
    };
    let spans = spans(&[whole(), traced()], style);
    for span in spans.iter().filter(|span| span["kind"] == 2) {
        let pairs = attributes(span);
        let of = |key: &str| {
            let found = pairs.iter().find(|(found, _)| *found == key);
            found.map(|(_, value)| (*value).clone())
        };
        assert_eq!(of("network.peer.address"), Some(text("192.0.2.0")));
        assert_ne!(of("client.address"), Some(text("203.0.113.9")));
        // Queries are never told.
        assert_eq!(of("url.path"), Some(text("/x")));
    }
}

proptest! {
    /// Texts of a client cannot end the string that they stand in, whatever they are; and what they are comes back,
    /// byte by byte as the characters of the same numbers where they are no UTF-8.
    #[test]
    fn any_bytes_are_a_text(
        texts in prop::collection::vec(prop::collection::vec(any::<u8>(), 0..40), 6),
        len in 1_usize..4,
    ) {
        let record = Record {
            method: &texts[0],
            target: &texts[1],
            host: &texts[2],
            user_agent: &texts[3],
            cause: &texts[4],
            request_id: &texts[5],
            ..whole()
        };
        let spans = spans(&vec![record; len], Style::default());
        prop_assert_eq!(spans.len(), 7 * len);
        let pairs = attributes(&spans[0]);
        let agent = pairs.iter().find(|(key, _)| *key == "user_agent.original");
        let found = agent.map(|(_, value)| value["stringValue"].as_str().expect("a text").to_owned());
        let said: String = texts[3].utf8_chunks().fold(String::new(), |said, chunk| {
            let wrong = chunk.invalid().iter().map(|&byte| char::from(byte));
            said + chunk.valid() + &wrong.collect::<String>()
        });
        prop_assert_eq!(found, (!said.is_empty()).then_some(said));
    }

    /// What a queue of records becomes: each byte of a text is at most six in JSON, and the rest of a request is less
    /// than 4 KB.
    #[test]
    fn a_message_is_not_much_larger_than_its_records(byte in any::<u8>(), bytes in 0_usize..70_000) {
        let long = vec![byte; bytes];
        let record = Record {
            target: &long,
            user_agent: &long,
            ..whole()
        };
        let mut encoded = Vec::new();
        record.encode(&mut encoded);
        let (kept, _) = Record::decode(&encoded).expect("a record");
        let (text, _) = written(&[kept], Style::default());
        prop_assert!(text.len() <= 6 * encoded.len() + 4_096, "{} of {}", text.len(), encoded.len());
    }
}
