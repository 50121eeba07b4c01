//! Bodies of every framing, and chunk extensions.

use super::*;

fn limits() -> Limits {
    Limits {
        body_bytes_max: 1 << 20,
        chunk_line_bytes_max: 24,
        trailer_bytes_max: 16,
        ..Limits::default()
    }
}

/// Payload, bytes consumed, whether the body is done; the input in pieces of `piece` bytes.
fn decode(
    framing: BodyFraming,
    input: &[u8],
    piece: usize,
) -> Result<(String, usize, bool), Cause> {
    let mut decoder = BodyDecoder::new(framing, &limits()).map_err(|refusal| refusal.cause)?;
    let mut payload = Vec::new();
    let mut consumed = 0;
    for end in (0..=input.len()).step_by(piece).chain([input.len()]) {
        loop {
            let rest = &input[consumed..end.max(consumed)];
            let step = decoder.decode(rest).map_err(|refusal| refusal.cause)?;
            payload.extend_from_slice(&rest[step.data.clone()]);
            assert!(step.data.end <= step.consumed && step.consumed <= rest.len());
            consumed += step.consumed;
            if step.consumed == 0 {
                break;
            }
        }
    }
    assert_eq!(decoder.bytes_out(), payload.len() as u64);
    let payload = String::from_utf8(payload).expect("the tests' payload is text");
    Ok((payload, consumed, decoder.is_done()))
}

fn check(framing: BodyFraming, input: &str, expect: Result<(&str, usize, bool), Cause>) {
    let expect = expect.map(|(payload, consumed, done)| (payload.to_owned(), consumed, done));
    for piece in [input.len().max(1), 1, 2, 3, 7] {
        let got = decode(framing, input.as_bytes(), piece);
        assert_eq!(got, expect, "{input:?} in pieces of {piece}");
    }
}

fn check_chunked(input: &str, expect: Result<(&str, usize, bool), Cause>) {
    check(BodyFraming::Chunked, input, expect);
}

#[test]
fn counts_a_declared_length_and_leaves_the_rest() {
    check(BodyFraming::None, "GET", Ok(("", 0, true)));
    check(BodyFraming::Length(0), "GET", Ok(("", 0, true)));
    check(BodyFraming::Length(3), "", Ok(("", 0, false)));
    check(BodyFraming::Length(3), "ab", Ok(("ab", 2, false)));
    check(BodyFraming::Length(3), "abcGET", Ok(("abc", 3, true)));
}

#[test]
fn refuses_a_declared_length_over_the_bound_at_once() {
    check(
        BodyFraming::Length((1 << 20) + 1),
        "",
        Err(Cause::BodyTooLarge),
    );
    check(BodyFraming::Length(u64::MAX), "", Err(Cause::BodyTooLarge));
    check(BodyFraming::Length(1 << 20), "", Ok(("", 0, false)));
}

#[test]
fn takes_chunks_apart_and_leaves_the_rest() {
    check_chunked("0\r\n\r\nGET", Ok(("", 5, true)));
    check_chunked("5\r\nhello\r\n0\r\n\r\nGET", Ok(("hello", 15, true)));
    check_chunked(
        "5\r\nhello\r\n6\r\n world\r\n0\r\n\r\n",
        Ok(("hello world", 26, true)),
    );
    check_chunked(
        "A\r\n0123456789\r\na\r\n0123456789\r\n0\r\n\r\n",
        Ok(("01234567890123456789", 35, true)),
    );
    check_chunked(
        "0000000000000005\r\nhello\r\n00\r\n\r\n",
        Ok(("hello", 31, true)),
    );
    check_chunked("5\r\nhel", Ok(("hel", 6, false)));
    check_chunked("2\r\n\r\n\r\n0\r\n\r\n", Ok(("\r\n", 12, true)));
}

#[test]
fn skips_extensions_within_their_bound() {
    check_chunked("1;a=b\r\nx\r\n0;c\r\n\r\n", Ok(("x", 17, true)));
    check_chunked("1; a = \"b c\"\r\nx\r\n0\r\n\r\n", Ok(("x", 22, true)));
    check_chunked("1 ;a;b=\"\\\"\"\r\nx\r\n0\t;c\r\n\r\n", Ok(("x", 24, true)));
    let fits = format!("1;{}\r\nx\r\n0\r\n\r\n", "a".repeat(20));
    check_chunked(&fits, Ok(("x", fits.len(), true)));
    check_chunked(
        &format!("1;{}\r\nx", "a".repeat(21)),
        Err(Cause::ChunkLineTooLong),
    );
    check_chunked(
        &format!("1;{}", "a".repeat(99)),
        Err(Cause::ChunkLineTooLong),
    );
}

#[test]
fn refuses_malformed_size_lines() {
    for size in ["", ";a", "g", "+5", "-5", " 5", "\n5"] {
        check_chunked(&format!("{size}\r\n"), Err(Cause::ChunkSize));
    }
    for size in ["00000000000000005", "fffffffffffffffff"] {
        check_chunked(&format!("{size}\r\n"), Err(Cause::ChunkSize));
    }
    for line in [
        "0x5",
        "5 ",
        "5\t",
        "5_0",
        "5\nhello",
        "5\rhello",
        "5;",
        "5;;",
        "5;=b",
        "5;a=",
        "5;a=b;",
        "5;a=b,c",
        "5;a=\"b",
        "5;a=\"b\\",
        "5;a ",
        "0;\r\n",
        "5;a\nh",
        "5;a\rb",
        "5;\0",
        "5;\x7f",
    ] {
        check_chunked(&format!("{line}\r\n"), Err(Cause::ChunkExtensionForm));
    }
    check_chunked("5;a=\"b\r\n\"\r\n", Err(Cause::ChunkExtensionForm));
}

#[test]
fn refuses_data_without_its_line_end() {
    for input in [
        "1\r\nxx",
        "1\r\nx\n",
        "1\r\nx\rx",
        "1\r\nx0\r\n\r\n",
        "1\r\nx\r\r\n",
    ] {
        check_chunked(input, Err(Cause::ChunkEnd));
    }
}

#[test]
fn refuses_chunks_over_the_bound_before_their_data() {
    check_chunked("100001\r\n", Err(Cause::BodyTooLarge));
    check_chunked("ffffffffffffffff\r\n", Err(Cause::BodyTooLarge));
    check_chunked("1\r\nx\r\nffffffffffffffff\r\n", Err(Cause::BodyTooLarge));
    check_chunked("1\r\nx\r\n100000\r\n", Err(Cause::BodyTooLarge));
    check_chunked("100000\r\nx", Ok(("x", 9, false)));
}

#[test]
fn drops_trailers_and_holds_them_to_the_rules_of_fields() {
    check_chunked("0\r\na: b\r\n\r\nGET", Ok(("", 11, true)));
    check_chunked("0\r\na:\r\nb:c\r\n\r\n", Ok(("", 14, true)));
    check_chunked("0\r\na: 4567890123\r\n\r\n", Err(Cause::TrailerTooLarge));
    check_chunked("0\r\na: 456789012\r\n\r\n", Ok(("", 19, true)));
    for trailers in [
        "\n",
        "\rx",
        ":\r\n",
        "a\r\n",
        "a : b\r\n",
        " a: b\r\n",
        "a: b\n",
        "a: b\r\r",
        "a: \0",
        "a: b\r\n\n",
        "a: b\r\n c\r\n",
        "a\x7f",
        "\u{e9}: a",
    ] {
        check_chunked(&format!("0\r\n{trailers}"), Err(Cause::TrailerByte));
    }
}

mod extensions {
    use super::super::*;

    /// Whether these bytes may stand between a chunk size and its line end.
    fn is_well_formed(text: &[u8]) -> bool {
        let Some((first, rest)) = text.split_first() else {
            return true;
        };
        let first = ChunkExtension::begin(*first);
        let last = rest
            .iter()
            .try_fold(first, |state, &byte| Some(state?.step(byte)));
        last.flatten().is_some_and(ChunkExtension::may_end)
    }

    fn check(text: &str, expect: bool) {
        assert_eq!(is_well_formed(text.as_bytes()), expect, "{text:?}");
    }

    #[test]
    fn takes_names_with_and_without_values() {
        for text in [
            "",
            ";a",
            ";a=b",
            ";a;b",
            ";a=b;c=d;e",
            ";a=\"\"",
            ";a=\"b;c=d,e\"",
            ";a=\"b\\\"c\\\\\"",
            ";a=\"\t \u{e9}\\\u{e9}\"",
            ";a=\"b\";c",
            ";!#$%&'*+-.^_`|~=!#$%&'*+-.^_`|~",
        ] {
            check(text, true);
        }
    }

    #[test]
    fn takes_whitespace_around_the_signs_and_nowhere_else() {
        for text in [
            " ;a",
            "\t; \ta",
            ";a ;b",
            ";a =b",
            ";a= \tb",
            "; a = \"b\" ; c",
        ] {
            check(text, true);
        }
        for text in [
            " ",
            "\t",
            ";a ",
            ";a=b ",
            ";a=\"b\"\t",
            ";a b",
            ";a=b c",
            ";a=\"b\" c",
            " a",
            ";a\x0b=b",
        ] {
            check(text, false);
        }
    }

    #[test]
    fn refuses_what_has_no_name_or_no_value() {
        for text in [
            ";", ";;", ";a;", ";;a", ";=b", "; =b", ";a=", ";a=;b", ";a==b", ";a=b;", ";a=b=c",
            "=b",
        ] {
            check(text, false);
        }
    }

    #[test]
    fn refuses_other_signs_and_unclosed_quotes() {
        for text in [
            ";a=b,c",
            ";a,b",
            ";\"a\"=b",
            ";a=\"",
            ";a=\"b",
            ";a=\"b\\\"",
            ";a=\"b\\",
            ";a=b\"c\"",
            ";a=\"b\"c",
            ";a=\"b\"\"c\"",
            ";a=\"\0\"",
            ";a=\"\\\r\"",
            ";a=\"\n\"",
            ";\u{e9}",
            "x",
            "\"a\"",
        ] {
            check(text, false);
        }
    }
}
