//! Any bytes as a request head: no panic, the same outcome however they are cut, and no head accepted that
//! another recipient could read in two ways.

#![no_main]

use libfuzzer_sys::fuzz_target;
use http::{AcceptEncoding, Cause, HeadIndex, HeadStep, HeadView, Limits, RequestHead};

/// Bounds that short inputs reach.
const TIGHT: Limits = Limits {
    head_bytes_max: 200,
    target_bytes_max: 30,
    header_bytes_max: 40,
    headers_len_max: 4,
    chunk_line_bytes_max: 16,
    trailer_bytes_max: 32,
    body_bytes_max: 64,
};

fuzz_target!(|input: &[u8]| {
    for limits in [Limits::default(), TIGHT] {
        let whole = parse(input, input.len().max(1), &limits);
        for piece in [1, 7] {
            assert_eq!(parse(input, piece, &limits), whole, "in pieces of {piece}");
        }
        if let Ok(Some(index)) = whole {
            check_accepted(input, &index, &limits);
        }
    }
});

/// The head that begins `input`, given in pieces of `piece` bytes; `None` when it has no end.
fn parse(input: &[u8], piece: usize, limits: &Limits) -> Result<Option<HeadIndex>, Cause> {
    let mut index = HeadIndex::new();
    let mut seen = 0;
    let mut given = 0;
    while given < input.len() {
        given = (given + piece).min(input.len());
        match index.parse(&input[..given], &mut seen, limits) {
            Ok(HeadStep::Partial) => assert_eq!(seen, given),
            Ok(HeadStep::Complete) => return Ok(Some(index)),
            Err(refusal) => return Err(refusal.cause),
        }
    }
    Ok(None)
}

fn check_accepted(input: &[u8], index: &HeadIndex, limits: &Limits) {
    assert!(index.bytes <= input.len() && index.bytes <= limits.head_bytes_max);
    let bytes = &input[..index.bytes];
    assert!(bytes.ends_with(b"\r\n\r\n"));
    for at in 0..bytes.len() {
        let after_cr = at > 0 && bytes[at - 1] == b'\r';
        assert_eq!(
            bytes[at] == b'\n',
            after_cr,
            "bare CR or LF before byte {at}"
        );
    }

    let view = HeadView { bytes, index };
    assert!(view.path().starts_with(b"/") || view.target() == b"*");
    assert!(!view.path().iter().any(|byte| b"\"<>\\".contains(byte)));
    assert!(http::target::decode(view.path(), &mut Vec::new()));
    assert!(view.authority().is_none_or(|host| !host.is_empty()));
    assert!(view.target().len() <= limits.target_bytes_max);
    assert!(index.headers.len() <= limits.headers_len_max);
    let framing = [&b"content-length"[..], b"transfer-encoding"];
    let named = |names: &[&[u8]]| {
        let fields = view.headers();
        fields
            .filter(|(name, _)| names.iter().any(|known| known.eq_ignore_ascii_case(name)))
            .count()
    };
    assert!(named(&framing[..1]) <= 1 && (named(&framing[..1]) == 0 || named(&framing[1..]) == 0));
    for single in [&b"host"[..], b"content-type", b"authorization"] {
        assert!(named(&[single]) <= 1);
    }
    assert_eq!(RequestHead::take(view).view().bytes, bytes);
    check_codings(view);
    check_against_httparse(view);
}

/// What is chosen among codings is acceptable, and nothing on offer is wanted more.
fn check_codings(view: HeadView<'_>) {
    let accept = AcceptEncoding::read(view);
    let weights = ["br", "zstd", "gzip"].map(|coding| accept.weight(coding));
    let most = weights.into_iter().max().unwrap_or(0);
    assert!(most <= 1000);
    let identity = accept.weight("identity");
    match accept.choose(["br", "zstd", "gzip"]) {
        Some(place) => assert!(weights[place] == most && most > 0 && most >= identity),
        None => assert!(most == 0 || most < identity),
    }
}

/// A second opinion on names and values; httparse knows 1.0 and 1.1 only.
fn check_against_httparse(view: HeadView<'_>) {
    let mut headers = [httparse::EMPTY_HEADER; 128];
    let mut request = httparse::Request::new(&mut headers);
    match request.parse(view.bytes) {
        Ok(status) => assert_eq!(status, httparse::Status::Complete(view.bytes.len())),
        Err(httparse::Error::Version) => return,
        Err(error) => panic!("httparse refuses what was accepted: {error}"),
    }
    assert_eq!(request.method.map(str::as_bytes), Some(view.method()));
    assert_eq!(request.path.map(str::as_bytes), Some(view.target()));
    let theirs = request
        .headers
        .iter()
        .map(|header| (header.name.as_bytes(), header.value));
    assert!(view.headers().eq(theirs));
}
