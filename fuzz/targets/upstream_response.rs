//! Any bytes as an upstream's response: no panic, the same outcome however they are cut and whatever follows, and what
//! a client gets of it is the same response by another reader.

#![no_main]

use http::upstream::{UpstreamBody, UpstreamFault, UpstreamHeadStep, UpstreamResponse};
use http::{
    Asked, FieldLines, Limits, ReplyBody, ReplyHead, ReplyHeadStep, write_status_line_with,
};
use libfuzzer_sys::fuzz_target;

/// Bounds that short inputs reach.
const TIGHT: Limits = Limits {
    head_bytes_max: 300,
    target_bytes_max: 30,
    header_bytes_max: 80,
    headers_len_max: 6,
    chunk_line_bytes_max: 24,
    trailer_bytes_max: 32,
    body_bytes_max: 0,
};

type Head = Result<Option<(UpstreamResponse, Vec<u8>)>, UpstreamFault>;

fuzz_target!(|input: &[u8]| {
    for limits in [Limits::default(), TIGHT] {
        for asked in [Asked::Other, Asked::Head, Asked::Upgrade] {
            let whole = head(input, input.len().max(1), asked, &limits);
            for piece in [1, 7] {
                assert_eq!(
                    head(input, piece, asked, &limits),
                    whole,
                    "in pieces of {piece}"
                );
            }
            if let Ok(Some((response, fields))) = whole {
                check_head(input, &response, &fields, asked);
                check_body(&input[response.head_bytes..], response.body, &limits);
            }
        }
    }
});

/// The head that begins `input`, given in pieces of `piece` bytes; `None` when it has no end.
fn head(input: &[u8], piece: usize, asked: Asked, limits: &Limits) -> Head {
    let mut fields = FieldLines::new();
    let (mut seen, mut given) = (0, 0);
    while given < input.len() {
        given = (given + piece).min(input.len());
        match UpstreamResponse::parse(&input[..given], &mut seen, asked, limits, &mut fields)? {
            UpstreamHeadStep::Partial => assert_eq!(seen, given),
            UpstreamHeadStep::Complete(response) => {
                return Ok(Some((response, fields.as_bytes().to_vec())));
            }
        }
    }
    Ok(None)
}

fn check_head(input: &[u8], response: &UpstreamResponse, fields: &[u8], asked: Asked) {
    let bytes = &input[..response.head_bytes];
    assert!(bytes.ends_with(b"\r\n\r\n"));
    // The liberal reader finds the same end, or is not sure either whether the connection can be used further.
    let Ok(ReplyHeadStep::Complete(liberal)) = ReplyHead::parse(bytes, asked) else {
        // It knows 1.0 and 1.1 only, and has room for fewer fields.
        assert!(bytes[7] > b'1' || bytes.split(|byte| *byte == b'\n').count() > 96);
        return;
    };
    assert_eq!(
        (liberal.status, liberal.bytes),
        (response.status, bytes.len())
    );
    assert_eq!(liberal.body, response.body);
    assert!(liberal.keeps || !response.keeps);
    // What is left of it is one head, whose framing is to be written by the server.
    let mut out = Vec::new();
    write_status_line_with(&mut out, response.status, response.reason.of(bytes));
    out.extend_from_slice(fields);
    out.extend_from_slice(b"\r\n");
    let mut headers = [httparse::EMPTY_HEADER; 128];
    let mut theirs = httparse::Response::new(&mut headers);
    assert_eq!(
        theirs.parse(&out),
        Ok(httparse::Status::Complete(out.len()))
    );
    assert_eq!(theirs.code, Some(response.status));
    let is_switch = response.status == 101;
    for header in theirs.headers.iter() {
        let name = header.name.to_ascii_lowercase();
        let is_own = matches!(&*name, "connection" | "upgrade");
        assert!(is_switch || !is_own, "{name}");
        assert!(
            !matches!(
                &*name,
                "content-length" | "transfer-encoding" | "keep-alive"
            ),
            "{name}"
        );
        assert!(!name.starts_with("x-accel-"), "{name}");
    }
}

/// What came out of a body: payload, bytes used, trailers, and the fault at its end.
type Outcome = (Vec<u8>, usize, Vec<u8>, Option<UpstreamFault>);

fn check_body(input: &[u8], body: ReplyBody, limits: &Limits) {
    let whole = decode(input, input.len().max(1), body, limits);
    for piece in [1, 3] {
        assert_eq!(
            decode(input, piece, body, limits),
            whole,
            "in pieces of {piece}"
        );
    }
    let (payload, used, trailers, fault) = whole;
    match body {
        ReplyBody::None => assert_eq!((payload.len(), used, fault), (0, 0, None)),
        ReplyBody::Length(length) => {
            assert_eq!(payload.len() as u64, length.min(input.len() as u64));
            assert_eq!(fault.is_none(), payload.len() as u64 == length);
        }
        ReplyBody::UntilClose => assert_eq!((&*payload, fault), (input, None)),
        ReplyBody::Chunked if fault.is_none() => {
            assert!(input[..used].ends_with(b"\r\n\r\n") || input[..used].ends_with(b"0\r\n\r\n"));
        }
        ReplyBody::Chunked => {}
    }
    assert!(trailers.is_empty() || body == ReplyBody::Chunked && fault.is_none());
}

fn decode(input: &[u8], piece: usize, body: ReplyBody, limits: &Limits) -> Outcome {
    let mut decoder = UpstreamBody::new(body, limits);
    let (mut payload, mut used, mut given) = (Vec::new(), 0, 0);
    while given < input.len() {
        given = (given + piece).min(input.len());
        loop {
            let step = match decoder.decode(&input[used..given]) {
                Ok(step) => step,
                // How many bytes before the bad one a call has taken depends on the cut.
                Err(fault) => return (payload, 0, Vec::new(), Some(fault)),
            };
            payload.extend_from_slice(&input[used..given][step.data]);
            used += step.consumed;
            if step.consumed == 0 {
                break;
            }
        }
    }
    let fault = decoder.close().err();
    (payload, used, decoder.trailers().as_bytes().to_vec(), fault)
}
