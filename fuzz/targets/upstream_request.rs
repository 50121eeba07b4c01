//! Any head of a client, and any bytes as what a route sets: the head that an upstream gets is one head by two other
//! readers, with one framing, and has nothing that ends at the client's connection.

#![no_main]

use http::upstream::{ForwardingChain, ForwardingFields, HostField, UpstreamRequest, WantedUpgrade,};
use http::{BodyFraming, HeadIndex, HeadStep, HeadView, Limits};
use libfuzzer_sys::fuzz_target;

/// Between the parts of an input.
const SEPARATOR: u8 = 0xff;

fuzz_target!(|input: &[u8]| {
    let [choice, input @ ..] = input else {
        return;
    };
    let mut parts = input.split(|byte| *byte == SEPARATOR);
    let bytes = parts.next().unwrap_or_default();
    let mut index = HeadIndex::new();
    if index.parse(bytes, &mut 0, &Limits::default()) != Ok(HeadStep::Complete) {
        return;
    }
    let head = HeadView {
        bytes,
        index: &index,
    };
    let mut part = || parts.next().unwrap_or_default();
    let (name, value, other) = (part(), part(), part());
    let set = [(name, value)];
    let is = |bit: u8| choice & 1 << bit != 0;
    let upgrade = WantedUpgrade::to(value);
    let request = UpstreamRequest {
        head,
        method: None,
        rewritten: is(0).then_some(other),
        host: match is(1) {
            true => HostField::Upstream(other),
            false => HostField::Client { otherwise: b"up" },
        },
        framing: match (is(2), is(3)) {
            (true, _) => BodyFraming::Chunked,
            (false, true) => BodyFraming::Length(7),
            (false, false) => BodyFraming::None,
        },
        forwarding: ForwardingFields {
            chain: match is(4) {
                true => ForwardingChain::Appended,
                false => ForwardingChain::Replaced,
            },
            client: b"192.0.2.7",
            peer: b"192.0.2.8",
            scheme: b"http",
            host: head.authority().unwrap_or_default(),
            prefix: other,
        },
        set: if is(5) { &set } else { &[] },
        removed: if is(6) { &[name] } else { &[] },
        upgrade: is(7).then_some(&upgrade),
    };
    let mut out = b"kept".to_vec();
    match request.write(&mut out) {
        Ok(()) => check(&request, &out[4..]),
        Err(_) => assert_eq!(out, b"kept"),
    }
});

fn check(request: &UpstreamRequest<'_>, out: &[u8]) {
    let limits = Limits {
        head_bytes_max: 1 << 20,
        target_bytes_max: 1 << 16,
        header_bytes_max: 1 << 16,
        headers_len_max: 200,
        ..Limits::default()
    };
    let mut index = HeadIndex::new();
    // A path that a route has put there is judged by the upstream; all else has to pass here.
    if request.rewritten.is_none() {
        let step = index.parse(out, &mut 0, &limits);
        assert_eq!(step, Ok(HeadStep::Complete), "{}", out.escape_ascii());
        assert_eq!(index.bytes, out.len());
        assert_eq!(index.body, request.framing);
    }
    let mut headers = [httparse::EMPTY_HEADER; 256];
    let mut theirs = httparse::Request::new(&mut headers);
    assert_eq!(theirs.parse(out), Ok(httparse::Status::Complete(out.len())));
    assert_eq!(
        theirs.method.map(str::as_bytes),
        Some(request.head.method())
    );
    let count = |name: &str| {
        let named = theirs.headers.iter();
        named
            .filter(|header| header.name.eq_ignore_ascii_case(name))
            .count()
    };
    assert_eq!(count("host"), 1);
    let (lengths, codings) = (count("content-length"), count("transfer-encoding"));
    assert_eq!(
        lengths,
        usize::from(matches!(request.framing, BodyFraming::Length(_)))
    );
    assert_eq!(
        codings,
        usize::from(request.framing == BodyFraming::Chunked)
    );
    assert!(count("connection") <= 1 && count("te") <= 1);
    assert_eq!(count("upgrade"), usize::from(request.upgrade.is_some()));
    for name in [
        "keep-alive",
        "proxy-connection",
        "proxy-authorization",
        "http2-settings",
        "expect",
        "trailer",
        "proxy",
    ] {
        assert_eq!(count(name), 0, "{name}");
    }
    if request.set.is_empty() {
        assert_eq!(count("x-forwarded-for"), 1);
        assert_eq!(count("forwarded") + count("x-real-ip"), 0);
    }
    for header in theirs.headers.iter() {
        assert!(!header.name.contains('_'), "{}", header.name);
    }
}
