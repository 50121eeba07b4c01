//! Decoded fields of every kind, and what becomes of them.

use proptest::prelude::*;

use super::*;

/// `name=value`, one a word; `~` stands for a space in a value.
fn fields(text: &str) -> Vec<(Vec<u8>, Vec<u8>)> {
    let field = |word: &str| {
        let at = word[1..].find('=').unwrap() + 1;
        let value = word[at + 1..].replace('~', " ");
        (word.as_bytes()[..at].to_vec(), value.into_bytes())
    };
    text.split_whitespace().map(field).collect()
}

fn judged(
    fields: &[(Vec<u8>, Vec<u8>)],
    body: BodyState,
    limits: &Limits,
) -> Result<(HeadIndex, String), Refusal> {
    let mut index = HeadIndex::new();
    let mut block = Vec::new();
    let fields = || fields.iter().map(|(name, value)| (&name[..], &value[..]));
    index.parse_decoded(fields, body, limits, &mut block)?;
    Ok((index, String::from_utf8_lossy(&block).into_owned()))
}

const REQUEST: &str = ":method=GET :scheme=http :authority=a :path=/";

fn check(text: &str, expect: Result<&str, Cause>) {
    let found = judged(&fields(text), BodyState::Ended, &Limits::default());
    let found = found.map(|(_, block)| block.replace("\r\n", "|"));
    let found = found.as_deref().map_err(|refusal| refusal.cause);
    assert_eq!(found, expect, "{text}");
}

#[test]
fn a_request_becomes_a_head_of_http1() {
    check(REQUEST, Ok("GET / HTTP/1.1|host: a||"));
    check(
        ":method=GET :scheme=http :path=/x?y host=b accept=*/*",
        Ok("GET /x?y HTTP/1.1|host: b|accept: */*||"),
    );
    check(
        &format!("{REQUEST} host=A te=trailers x="),
        Ok("GET / HTTP/1.1|host: a|te: trailers|x: ||"),
    );
    check(
        &format!("{REQUEST} cookie=a=1 x=y cookie=b=2 cookie=c"),
        Ok("GET / HTTP/1.1|host: a|x: y|cookie: a=1; b=2; c||"),
    );
    check(
        ":method=OPTIONS :scheme=http :authority=a :path=*",
        Ok("OPTIONS * HTTP/1.1|host: a||"),
    );
}

#[test]
fn pseudo_header_fields_are_refused_by_rule() {
    for (text, cause) in [
        (":scheme=http :authority=a :path=/", Cause::PseudoField),
        (":method=GET :authority=a :path=/", Cause::PseudoField),
        (":method=GET :scheme=http :authority=a", Cause::PseudoField),
        (
            ":method=GET :scheme= :authority=a :path=/",
            Cause::PseudoField,
        ),
        (":method=GET :scheme=http :path=/", Cause::HostMissing),
        (
            ":method=GET :scheme=http :authority=a :path=",
            Cause::TargetForm,
        ),
        (
            ":method=GET :scheme=http :authority=a :path=x",
            Cause::TargetForm,
        ),
        (
            ":method=GET :scheme=http :authority=a :path=http://a/",
            Cause::TargetForm,
        ),
        (
            ":method=GET :scheme=http :authority=a :path=*",
            Cause::TargetAsterisk,
        ),
        (
            ":method=GET :scheme=http :authority=u@a :path=/",
            Cause::HostInvalid,
        ),
        (
            ":method=GET :scheme=http :authority= :path=/",
            Cause::HostInvalid,
        ),
        (
            ":method=GET :scheme=http :authority=a :path=/#f",
            Cause::TargetFragment,
        ),
        (
            ":method=GET :scheme=http :authority=a :path=/~HTTP/1.1",
            Cause::VersionForm,
        ),
        (
            ":method=GET~/x :scheme=http :authority=a :path=/",
            Cause::VersionForm,
        ),
        (":method=CONNECT :authority=a:1", Cause::MethodConnect),
        (
            ":method=CONNECT :scheme=http :authority=a:1 :path=/",
            Cause::PseudoField,
        ),
    ] {
        check(text, Err(cause));
    }
}

#[test]
fn other_fields_are_refused_by_rule() {
    for (more, cause) in [
        (":path=/", Cause::PseudoField),
        (":status=200", Cause::PseudoField),
        (":other=1", Cause::PseudoField),
        ("x=1 :authority=a", Cause::PseudoField),
        ("X=1", Cause::FieldNameByte),
        ("x(=1", Cause::FieldNameByte),
        ("x=~1", Cause::FieldValueByte),
        ("x=1~", Cause::FieldValueByte),
        ("connection=close", Cause::ConnectionField),
        ("keep-alive=1", Cause::ConnectionField),
        ("proxy-connection=close", Cause::ConnectionField),
        ("transfer-encoding=chunked", Cause::ConnectionField),
        ("upgrade=h2c", Cause::ConnectionField),
        ("te=gzip", Cause::ConnectionField),
        ("host=b", Cause::HostDiffers),
        ("host=a host=a", Cause::HostRepeated),
        ("content-length=1", Cause::LengthWithoutBody),
        ("content-length=0 content-length=0", Cause::LengthRepeated),
        ("content-length=-1", Cause::LengthInvalid),
        ("expect=other", Cause::ExpectUnknown),
    ] {
        check(&format!("{REQUEST} {more}"), Err(cause));
    }
}

#[test]
fn no_byte_ends_a_line() {
    for byte in ["\r\n", "\r", "\n", "\0"] {
        for place in 0..6 {
            let mut fields = fields(&format!("{REQUEST} x=1"));
            let (name, value) = &mut fields[place.min(4)];
            let target = if place == 5 { name } else { value };
            target.extend_from_slice(byte.as_bytes());
            target.extend_from_slice(b"y");
            let found = judged(&fields, BodyState::Ended, &Limits::default());
            assert!(found.is_err() || place == 1, "{byte:?} in {place}");
        }
    }
}

#[test]
fn a_body_is_told_by_frames() {
    for (more, body, expect) in [
        ("", BodyState::Ended, BodyFraming::None),
        ("", BodyState::Open, BodyFraming::Chunked),
        ("content-length=3", BodyState::Open, BodyFraming::Length(3)),
        ("content-length=0", BodyState::Open, BodyFraming::Length(0)),
        ("content-length=0", BodyState::Ended, BodyFraming::Length(0)),
    ] {
        let fields = fields(&format!("{REQUEST} {more}"));
        let (index, _) = judged(&fields, body, &Limits::default()).unwrap();
        assert_eq!(
            (index.body, index.version),
            (expect, Version::Http2),
            "{more}"
        );
    }
}

#[test]
fn fields_are_bounded_by_count_and_bytes_crumbs_included() {
    let limits = Limits {
        headers_len_max: 10,
        head_bytes_max: 500,
        header_bytes_max: 300,
        trailer_bytes_max: 100,
        ..Limits::default()
    };
    let check = |more: &str, len: usize, expect: Option<Cause>| {
        let text = format!("{REQUEST} {}", format!("{more} ").repeat(len));
        let found = judged(&fields(&text), BodyState::Ended, &limits);
        assert_eq!(
            found.err().map(|refusal| refusal.cause),
            expect,
            "{len} {more}"
        );
    };
    check("cookie=", 10, None);
    check("cookie=", 11, Some(Cause::TooManyFields));
    check("a=", 9, None);
    check(&format!("a={}", "x".repeat(290)), 1, None);
    check(
        &format!("a={}", "x".repeat(300)),
        1,
        Some(Cause::FieldTooLarge),
    );
    check(
        &format!("a={}", "x".repeat(250)),
        2,
        Some(Cause::HeadTooLarge),
    );
    let check = |more: &str, len: usize, is_accepted: bool| {
        let fields = fields(&format!("{more} ").repeat(len));
        let fields = fields.iter().map(|(name, value)| (&name[..], &value[..]));
        assert_eq!(
            check_trailers(fields, &limits).is_ok(),
            is_accepted,
            "{len} {more}"
        );
    };
    check("a=b", 2, true);
    check("a=b", 3, false);
    check(":path=/", 1, false);
    check("connection=a", 1, false);
}

#[test]
fn a_client_waits_to_be_told_where_it_has_a_body() {
    for (more, body, expect) in [
        ("expect=100-continue", BodyState::Open, true),
        (
            "expect=100-continue content-length=5",
            BodyState::Open,
            true,
        ),
        ("expect=100-continue", BodyState::Ended, false),
        ("content-length=5", BodyState::Open, false),
        ("", BodyState::Open, false),
    ] {
        let fields = fields(&format!("{REQUEST} {more}"));
        let (index, _) = judged(&fields, body, &Limits::default()).unwrap();
        assert_eq!(index.expect_continue, expect, "{more} {body:?}");
    }
}

#[test]
fn trailers_are_not_what_is_needed_before_the_body() {
    for (name, expect) in [
        ("server-timing", true),
        ("grpc-status", true),
        ("ETag", true),
        ("content", true),
        ("Content-Length", false),
        ("transfer-encoding", false),
        ("HOST", false),
        ("trailer", false),
        ("set-cookie", false),
    ] {
        assert_eq!(is_trailer_name(name.as_bytes()), expect, "{name}");
    }
}

proptest! {
    #[test]
    fn never_panics_and_writes_one_head_of_what_was_sent(
        names in proptest::collection::vec(
            prop_oneof![
                Just(":method".to_owned()), Just(":path".to_owned()), Just(":scheme".to_owned()),
                Just(":authority".to_owned()), Just("host".to_owned()), Just("cookie".to_owned()),
                Just("content-length".to_owned()), "[a-zA-Z:\r\n -]{0,12}",
            ],
            0..12,
        ),
        values in proptest::collection::vec(
            prop_oneof![Just("GET".to_owned()), Just("/".to_owned()), Just("a".to_owned()), "[ -~\r\n\t]{0,20}"],
            12,
        ),
        is_open in any::<bool>(),
    ) {
        let fields: Vec<_> = names
            .iter()
            .zip(&values)
            .map(|(name, value)| (name.clone().into_bytes(), value.clone().into_bytes()))
            .collect();
        let body = if is_open { BodyState::Open } else { BodyState::Ended };
        if let Ok((index, block)) = judged(&fields, body, &Limits::default()) {
            let regular = fields.iter().filter(|(name, _)| !name.starts_with(b":")).count();
            prop_assert!(index.headers.len() <= regular + 1);
            prop_assert_eq!(block.matches("\r\n").count(), index.headers.len() + 2);
            let mut again = HeadIndex::new();
            let step = again.parse(block.as_bytes(), &mut 0, &Limits::default());
            prop_assert_eq!(step, Ok(HeadStep::Complete));
            prop_assert_eq!(again.headers, index.headers);
        }
    }
}
