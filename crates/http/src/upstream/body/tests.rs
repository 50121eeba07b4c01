//! Bodies of every framing, in pieces of every size, with and without what must not follow.

use super::*;

/// Payload, bytes left over, trailers, and whether the body has ended before the connection did.
type Outcome = Result<(String, usize, String, bool), UpstreamFault>;

fn decode(body: ReplyBody, input: &[u8], piece: usize) -> Outcome {
    let limits = Limits {
        trailer_bytes_max: 40,
        ..Limits::default()
    };
    let mut decoder = UpstreamBody::new(body, &limits);
    let (mut payload, mut consumed) = (Vec::new(), 0);
    for end in (0..input.len()).step_by(piece).chain([input.len()]) {
        loop {
            let rest = &input[consumed..end.max(consumed)];
            let step = decoder.decode(rest)?;
            assert!(step.data.end <= step.consumed && step.consumed <= rest.len());
            payload.extend_from_slice(&rest[step.data.clone()]);
            consumed += step.consumed;
            if step.consumed == 0 {
                break;
            }
        }
    }
    let is_done = decoder.is_done();
    decoder.close()?;
    assert!(decoder.is_done());
    let trailers = String::from_utf8_lossy(decoder.trailers().as_bytes()).replace("\r\n", "\n");
    let payload = String::from_utf8(payload).expect("the tests' payload is text");
    Ok((payload, input.len() - consumed, trailers, is_done))
}

#[track_caller]
fn check(body: ReplyBody, input: &str, expect: Result<(&str, usize, &str, bool), UpstreamFault>) {
    let input = input.replace('\n', "\r\n");
    let expect = expect.map(|(payload, left, trailers, is_done)| {
        (payload.to_owned(), left, trailers.to_owned(), is_done)
    });
    for piece in [input.len().max(1), 1, 2, 3, 7] {
        let got = decode(body, input.as_bytes(), piece);
        assert_eq!(got, expect, "{input:?} in pieces of {piece}");
    }
}

#[test]
fn counts_a_length_and_tells_excess() {
    check(ReplyBody::None, "", Ok(("", 0, "", true)));
    check(ReplyBody::None, "HTTP", Ok(("", 4, "", true)));
    check(ReplyBody::Length(0), "x", Ok(("", 1, "", true)));
    check(ReplyBody::Length(3), "abc", Ok(("abc", 0, "", true)));
    check(ReplyBody::Length(3), "abcHTTP", Ok(("abc", 4, "", true)));
    check(
        ReplyBody::Length(u64::MAX),
        "abc",
        Err(UpstreamFault::BodyCut),
    );
    check(ReplyBody::Length(3), "ab", Err(UpstreamFault::BodyCut));
}

#[test]
fn a_body_until_the_end_is_over_when_the_connection_is() {
    check(ReplyBody::UntilClose, "", Ok(("", 0, "", false)));
    check(ReplyBody::UntilClose, "0", Ok(("0", 0, "", false)));
}

#[test]
fn takes_chunks_apart_and_tells_excess() {
    check(
        ReplyBody::Chunked,
        "3\nabc\n0\n\n",
        Ok(("abc", 0, "", true)),
    );
    check(
        ReplyBody::Chunked,
        "1;a=b\na\n2\nbc\n0\n\nHTTP",
        Ok(("abc", 4, "", true)),
    );
    check(
        ReplyBody::Chunked,
        "3\nabc\n0\n",
        Err(UpstreamFault::BodyCut),
    );
    check(ReplyBody::Chunked, "3\nabc\n", Err(UpstreamFault::BodyCut));
    check(ReplyBody::Chunked, "", Err(UpstreamFault::BodyCut));
    check(
        ReplyBody::Chunked,
        "3\nabcd\n",
        Err(UpstreamFault::ChunkEnd),
    );
    check(
        ReplyBody::Chunked,
        "0x3\nabc\n",
        Err(UpstreamFault::ChunkExtensionForm),
    );
    check(
        ReplyBody::Chunked,
        " 3\nabc\n",
        Err(UpstreamFault::ChunkSize),
    );
    check(ReplyBody::Chunked, "-1\n", Err(UpstreamFault::ChunkSize));
    check(
        ReplyBody::Chunked,
        "00000000000000003\nabc\n",
        Err(UpstreamFault::ChunkSize),
    );
    check(
        ReplyBody::Chunked,
        "3 \nabc\n",
        Err(UpstreamFault::ChunkExtensionForm),
    );
    check(
        ReplyBody::Chunked,
        &format!("3;{}", "a".repeat(300)),
        Err(UpstreamFault::ChunkLineTooLong),
    );
    check(
        ReplyBody::Chunked,
        "1\na\nffffffffffffffff\n",
        Err(UpstreamFault::ChunkOverflow),
    );
}

#[test]
fn keeps_trailers_that_may_be_some() {
    check(
        ReplyBody::Chunked,
        "1\na\n0\nGrpc-Status: 0\nx:  y\t\n\nHTTP",
        Ok(("a", 4, "Grpc-Status: 0\nx: y\n", true)),
    );
    check(
        ReplyBody::Chunked,
        "0\nContent-Length: 5\nx: y\nHost: h\n\n",
        Ok(("", 0, "x: y\n", true)),
    );
    check(ReplyBody::Chunked, "0\nx: y\n", Err(UpstreamFault::BodyCut));
    check(
        ReplyBody::Chunked,
        "0\n folded\n\n",
        Err(UpstreamFault::TrailerByte),
    );
    check(
        ReplyBody::Chunked,
        "0\nx: y\n fold\n\n",
        Err(UpstreamFault::TrailerByte),
    );
    check(
        ReplyBody::Chunked,
        "0\nx : y\n\n",
        Err(UpstreamFault::TrailerByte),
    );
    let long = format!("0\nx: {}\n\n", "y".repeat(40));
    check(
        ReplyBody::Chunked,
        &long,
        Err(UpstreamFault::TrailerTooLarge),
    );
}
