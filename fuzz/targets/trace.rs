//! Any bytes as a `traceparent` and, behind its line, as texts of a request: what is valid is what the specification
//! says, a trace that goes on keeps its id, and spans are JSON that says so.

#![no_main]

use libfuzzer_sys::fuzz_target;
use telemetry::{Names, Record, Sampler, SpanWriter, Style, TraceContext, TraceParent};

fuzz_target!(|input: &[u8]| {
    let (line, texts) = match input.iter().position(|&byte| byte == b'\n') {
        Some(at) => (&input[..at], &input[at + 1..]),
        None => (input, &b""[..]),
    };
    let parent = TraceParent::parse(line);
    assert_eq!(parent.is_some(), is_valid(line), "{line:?}");
    let sampler = Sampler::new(0.5, texts.len() % 2 == 0);
    let context = TraceContext::new(parent, || [0, 3], 7, &sampler);
    if parent.is_some() {
        assert_eq!(context.trace_id(), line[3..35]);
        assert_eq!(
            context.parent_id().as_ref().map(|id| &id[..]),
            Some(&line[36..52])
        );
    }
    assert_eq!(context.has_parent(), parent.is_some());
    for header in [
        context.header(),
        context.upstream_header(),
        context.auth_header(),
    ] {
        let next = TraceParent::parse(&header).expect("what is written is valid");
        let next = TraceContext::new(Some(next), || [0, 0], 9, &Sampler::new(0.0, true));
        assert_eq!(next.trace_id(), context.trace_id());
        assert_eq!(next.is_sampled(), context.is_sampled());
    }
    check_spans(context, texts);
});

/// The grammar of version 00 (W3C Trace Context, section 3.2.2), and of later ones, which may have more behind a dash.
fn is_valid(line: &[u8]) -> bool {
    let Ok(text) = std::str::from_utf8(line) else {
        // What is no text may follow the fields of a later version.
        return line.len() > 55
            && line[55] == b'-'
            && !line.starts_with(b"00")
            && is_valid(&line[..55]);
    };
    let mut fields = text.splitn(5, '-');
    let mut digits = |len: usize| {
        let field = fields.next()?;
        let is_hex = |byte: u8| byte.is_ascii_digit() || (b'a'..=b'f').contains(&byte);
        (field.len() == len && field.bytes().all(is_hex)).then_some(field)
    };
    let (Some(version), Some(trace), Some(span), Some(_flags)) =
        (digits(2), digits(32), digits(16), digits(2))
    else {
        return false;
    };
    let is_zero = |field: &str| field.bytes().all(|byte| byte == b'0');
    let has_more = fields.next().is_some();
    version != "ff" && !is_zero(trace) && !is_zero(span) && !(has_more && version == "00")
}

fn check_spans(trace: TraceContext, texts: &[u8]) {
    let mut texts = texts.split(|&byte| byte == b'\n');
    let mut next = || texts.next().unwrap_or_default();
    let record = Record {
        trace,
        method: next(),
        target: next(),
        host: next(),
        user_agent: next(),
        request_id: next(),
        cause: next(),
        ..Record::default()
    };
    let mut bytes = Vec::new();
    record.encode(&mut bytes);
    let (decoded, length) = Record::decode(&bytes).expect("what is written is a record");
    assert_eq!((decoded, length), (record, bytes.len()));
    let names = Names {
        routes: vec!["/a\"b".to_owned()],
        ..Names::default()
    };
    let mut writer = SpanWriter::new(Style::default(), names, &[], "1");
    let mut out = Vec::new();
    writer.begin(&mut out);
    let len = writer.write(&decoded, &mut out) + writer.write(&decoded, &mut out);
    writer.finish(&mut out);
    let message: serde_json::Value = serde_json::from_slice(&out).expect("JSON");
    let spans = message["resourceSpans"][0]["scopeSpans"][0]["spans"].as_array();
    let spans = spans.expect("spans");
    assert_eq!(spans.len(), len);
    let trace_id = trace.trace_id();
    for span in spans {
        let found = span["traceId"].as_str().expect("an id");
        assert_eq!(found.as_bytes(), trace_id);
    }
}
