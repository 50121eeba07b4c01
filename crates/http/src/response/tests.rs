//! Framing, status lines, field lines, chunks: all by the bytes that come out.

mod framing {
    use super::super::*;
    use Version::{Http10, Http11};

    const FACTS: ReplyFacts = ReplyFacts {
        version: Http11,
        method_is_head: false,
        status: 200,
        content_length: None,
        keep_alive: true,
    };

    fn check(facts: ReplyFacts, framing: ReplyFraming, keep_alive: bool) {
        let expect = ReplyPlan {
            framing,
            keep_alive,
        };
        assert_eq!(plan_reply(&facts), expect, "{facts:?}");
    }

    #[test]
    fn plans_by_version_and_length() {
        let known = Some(5);
        for (version, content_length, keep_alive, framing, lives) in [
            (Http11, known, true, ReplyFraming::Length(5), true),
            (Http11, known, false, ReplyFraming::Length(5), false),
            (Http11, Some(0), true, ReplyFraming::Length(0), true),
            (Http11, None, true, ReplyFraming::Chunked, true),
            (Http11, None, false, ReplyFraming::Chunked, false),
            (Http10, known, true, ReplyFraming::Length(5), true),
            (Http10, known, false, ReplyFraming::Length(5), false),
            (Http10, None, true, ReplyFraming::UntilClose, false),
            (Http10, None, false, ReplyFraming::UntilClose, false),
        ] {
            let facts = ReplyFacts {
                version,
                content_length,
                keep_alive,
                ..FACTS
            };
            check(facts, framing, lives);
        }
    }

    #[test]
    fn plans_no_body_for_head_and_for_statuses_that_have_none() {
        for version in [Http10, Http11] {
            for content_length in [None, Some(5)] {
                let facts = ReplyFacts {
                    version,
                    content_length,
                    ..FACTS
                };
                check(
                    ReplyFacts {
                        method_is_head: true,
                        ..facts
                    },
                    ReplyFraming::NoBody,
                    true,
                );
                for status in [100, 101, 204, 304] {
                    check(ReplyFacts { status, ..facts }, ReplyFraming::NoBody, true);
                }
            }
        }
        check(
            ReplyFacts {
                status: 205,
                ..FACTS
            },
            ReplyFraming::Chunked,
            true,
        );
    }

    fn ended(facts: ReplyFacts, length: Option<u64>) -> String {
        let mut out = Vec::new();
        crate::write_status_line(&mut out, facts.status);
        out.extend_from_slice(b"Content-Type: text/plain\r\n");
        end_head(&mut out, &plan_reply(&facts), facts.version, length);
        String::from_utf8(out).expect("heads are ASCII here")
    }

    #[test]
    fn ends_heads_as_recorded() {
        let known = |content_length| ReplyFacts {
            content_length: Some(content_length),
            ..FACTS
        };
        let version = Http10;
        let (mut closing, mut unmodified) = (known(0), known(9));
        closing.keep_alive = false;
        unmodified.status = 304;
        for (facts, length, status_line, lines) in [
            (
                known(1024),
                Some(1024),
                "200 OK",
                "Content-Length: 1024\r\n",
            ),
            (FACTS, None, "200 OK", "Transfer-Encoding: chunked\r\n"),
            (closing, None, "200 OK", "Connection: close\r\n"),
            (
                ReplyFacts {
                    version,
                    ..known(7)
                },
                Some(7),
                "200 OK",
                "Connection: keep-alive\r\nContent-Length: 7\r\n",
            ),
            (
                ReplyFacts { version, ..FACTS },
                None,
                "200 OK",
                "Connection: close\r\n",
            ),
            (unmodified, None, "304 Not Modified", ""),
        ] {
            let kind = "Content-Type: text/plain\r\n";
            let expect = format!("HTTP/1.1 {status_line}\r\n{kind}{lines}\r\n");
            assert_eq!(ended(facts, length), expect);
        }
    }

    #[test]
    fn writes_lengths_of_every_size() {
        for length in [0, 9, 10, 1024, u64::MAX] {
            let mut out = Vec::new();
            write_content_length(&mut out, length);
            assert_eq!(out, format!("Content-Length: {length}\r\n").as_bytes());
        }
    }
}

mod status_line {
    use super::super::*;

    fn check(write: impl Fn(&mut Vec<u8>), expect: &str) {
        let mut out = Vec::new();
        write(&mut out);
        assert_eq!(String::from_utf8_lossy(&out), expect);
    }

    #[test]
    fn writes_registered_and_unregistered_statuses() {
        check(|out| write_status_line(out, 200), "HTTP/1.1 200 OK\r\n");
        check(
            |out| write_status_line(out, 431),
            "HTTP/1.1 431 Request Header Fields Too Large\r\n",
        );
        check(|out| write_status_line(out, 299), "HTTP/1.1 299 \r\n");
        check(
            |out| write_status_line(out, 99),
            "HTTP/1.1 500 Internal Server Error\r\n",
        );
        check(
            |out| write_status_line(out, 1000),
            "HTTP/1.1 500 Internal Server Error\r\n",
        );
    }

    #[test]
    fn writes_a_handlers_reason_unless_it_could_end_the_line() {
        check(
            |out| write_status_line_with(out, 200, b"Fine"),
            "HTTP/1.1 200 Fine\r\n",
        );
        check(
            |out| write_status_line_with(out, 299, b""),
            "HTTP/1.1 299 \r\n",
        );
        check(
            |out| write_status_line_with(out, 404, b"No\r\nX: y"),
            "HTTP/1.1 404 Not Found\r\n",
        );
    }

    #[test]
    fn every_rendered_line_agrees_with_the_written_one() {
        for status in 100..=599 {
            let Some(line) = line(status) else {
                assert_eq!(reason(status), "");
                continue;
            };
            let mut out = Vec::new();
            write_status_line_with(&mut out, status, reason(status).as_bytes());
            assert_eq!(out, line);
        }
    }
}

mod field_lines {
    use proptest::prelude::*;

    use super::super::*;

    fn lines(fields: &[(&str, &str)]) -> FieldLines {
        let mut lines = FieldLines::new();
        for (name, value) in fields {
            lines.push(name.as_bytes(), value.as_bytes());
        }
        lines
    }

    fn text(bytes: &[u8]) -> &str {
        std::str::from_utf8(bytes).unwrap()
    }

    #[test]
    fn writes_one_line_a_field() {
        let check = |write: fn(&mut FieldLines), expect: &str| {
            let mut lines = FieldLines::with_capacity(7);
            write(&mut lines);
            assert_eq!(text(lines.as_bytes()), expect);
            assert_eq!(text(lines.freeze().as_bytes()), expect);
        };
        check(|_| {}, "");
        check(|lines| lines.push(b"A", b"b"), "A: b\r\n");
        check(|lines| lines.push(b"A", b""), "A: \r\n");
        check(
            |lines| lines.push_parts(b"A", &[b"b", b"", b"; c"]),
            "A: b; c\r\n",
        );
        check(|lines| lines.push_parts(b"A", &[]), "A: \r\n");
        check(|lines| lines.push_decimal(b"A", 0), "A: 0\r\n");
        check(
            |lines| lines.push_decimal(b"A", u64::MAX),
            "A: 18446744073709551615\r\n",
        );
        check(
            |lines| {
                lines.push(b"A", b"b");
                lines.clear();
                assert!(lines.is_empty());
                lines.push(b"C", b"d\te \xc3\xa9");
            },
            "C: d\te \u{e9}\r\n",
        );
    }

    #[test]
    fn appends_the_lines_of_others() {
        let mut all = lines(&[("A", "a")]);
        all.append(&lines(&[("B", "b")]));
        all.append(&lines(&[("C", "c")]).freeze());
        all.append(&SharedFields::default());
        assert_eq!(text(all.as_bytes()), "A: a\r\nB: b\r\nC: c\r\n");
    }

    #[test]
    fn reads_names_in_any_case_and_values_without_their_whitespace() {
        let lines = lines(&[("Vary", "a"), ("X", "\t b : c "), ("vary", "d"), ("E", " ")]);
        let check = |name: &str, expect: Option<&str>| {
            assert_eq!(lines.get(name.as_bytes()).map(text), expect, "{name}");
            let shared = lines.clone().freeze();
            assert_eq!(shared.get(name.as_bytes()).map(text), expect, "{name}");
        };
        check("VARY", Some("a"));
        check("x", Some("b : c"));
        check("e", Some(""));
        check("b", None);
        check("", None);
        let values: Vec<_> = lines.iter().map(|(_, value)| text(value)).collect();
        assert_eq!(values, ["a", "b : c", "d", ""]);
    }

    #[test]
    fn replaces_every_line_of_a_name() {
        let check = |fields: &[(&str, &str)], expect: &str| {
            let mut lines = lines(fields);
            lines.set(b"Vary", b"new");
            assert_eq!(text(lines.as_bytes()), expect);
        };
        check(&[], "Vary: new\r\n");
        check(&[("Vary", "a")], "Vary: new\r\n");
        check(&[("Varied", "a")], "Varied: a\r\nVary: new\r\n");
        check(
            &[("vary", "a"), ("B", "b"), ("VARY", "c"), ("D", "d")],
            "B: b\r\nD: d\r\nVary: new\r\n",
        );
    }

    #[test]
    fn keeps_the_lines_behind_the_first() {
        let lines = lines(&[("A", "a"), ("B", "b"), ("C", "c")]).freeze();
        for (len, expect) in [
            (0, "A: a\r\nB: b\r\nC: c\r\n"),
            (2, "C: c\r\n"),
            (3, ""),
            (4, ""),
        ] {
            assert_eq!(text(lines.skip(len).as_bytes()), expect, "{len}");
            // A cached reply is cloned for each request: its bytes are not.
            let same = lines.skip(len).clone();
            assert!(
                lines
                    .as_bytes()
                    .as_ptr_range()
                    .contains(&same.as_bytes().as_ptr())
                    || len > 2
            );
        }
    }

    #[test]
    fn refuses_what_is_no_field() {
        let check = |name: &[u8], value: &[u8], expect: Result<(), InvalidField>| {
            let mut lines = lines(&[("A", "a")]);
            assert_eq!(lines.try_push(name, value), expect, "{name:?}: {value:?}");
            if expect.is_err() {
                assert_eq!(lines.as_bytes(), b"A: a\r\n");
            }
        };
        check(b"B", b"", Ok(()));
        check(b"!#$%&'*+-.^_`|~09AZaz", b"\tb \x80\xff", Ok(()));
        for name in [&b""[..], b"B ", b" B", b"B:", b"B\r\nC", b"B\0", b"\xe9"] {
            check(name, b"b", Err(InvalidField::Name));
        }
        for value in [
            &b"b\r\nC: c"[..],
            b"b\n",
            b"b\r",
            b"\0",
            b"\x7f",
            b"\x1b[0m",
        ] {
            check(b"B", value, Err(InvalidField::Value));
        }
    }

    #[test]
    fn a_field_of_the_servers_own_that_is_none_is_a_bug() {
        let is_refused = |name: &'static [u8], value: &'static [u8]| {
            std::panic::catch_unwind(|| FieldLines::new().push(name, value)).is_err()
        };
        for (name, value) in [
            (&b""[..], &b"b"[..]),
            (b"A B", b"b"),
            (b"A:", b"b"),
            (b"A\n", b"b"),
            (b"A", b"b\r"),
            (b"A", b"b\nC: c"),
            (b"A", b"\0"),
        ] {
            assert!(is_refused(name, value), "{name:?}: {value:?}");
        }
    }

    /// Bytes among which those are frequent that could make another line.
    fn sharp_bytes() -> impl Strategy<Value = Vec<u8>> {
        let byte = prop_oneof![
            4 => prop::sample::select(&b"aZ0-"[..]),
            2 => prop::sample::select(&b"\r\n\0:\t "[..]),
            1 => any::<u8>(),
        ];
        prop::collection::vec(byte, 0..12)
    }

    fn fields() -> impl Strategy<Value = Vec<(String, String)>> {
        prop::collection::vec(("[a-cA-C!-]{1,3}", "[\t -~]{0,9}"), 0..12)
    }

    fn written(fields: &[(String, String)]) -> FieldLines {
        let mut lines = FieldLines::new();
        for (name, value) in fields {
            lines.push(name.as_bytes(), value.as_bytes());
        }
        lines
    }

    proptest! {
        #[test]
        fn what_is_pushed_is_what_is_read(fields in fields()) {
            let lines = written(&fields);
            let expect: Vec<_> = fields
                .iter()
                .map(|(name, value)| (name.as_bytes(), trim(value.as_bytes())))
                .collect();
            prop_assert_eq!(lines.iter().collect::<Vec<_>>(), expect);
        }

        #[test]
        fn nothing_pushed_makes_another_line(
            tries in prop::collection::vec((sharp_bytes(), sharp_bytes()), 0..12),
        ) {
            let mut lines = FieldLines::new();
            let mut taken = Vec::new();
            for (name, value) in &tries {
                let before = lines.as_bytes().len();
                if lines.try_push(name, value).is_ok() {
                    taken.push((name.as_slice(), trim(value)));
                } else {
                    prop_assert_eq!(lines.as_bytes().len(), before);
                }
            }
            // Read by a parser that is not ours.
            let block = [lines.as_bytes(), b"\r\n"].concat();
            let mut headers = [httparse::EMPTY_HEADER; 16];
            let parsed = httparse::parse_headers(&block, &mut headers);
            let Ok(httparse::Status::Complete((bytes, found))) = parsed else {
                return Err(TestCaseError::fail(format!("{parsed:?}")));
            };
            prop_assert_eq!(bytes, block.len());
            let found: Vec<_> = found
                .iter()
                .map(|header| (header.name.as_bytes(), header.value))
                .collect();
            prop_assert_eq!(&found, &taken);
            prop_assert_eq!(lines.iter().collect::<Vec<_>>(), taken);
        }

        #[test]
        fn retains_what_is_wanted_in_its_order(fields in fields(), keep in any::<[bool; 12]>()) {
            let mut lines = written(&fields);
            let mut at = 0;
            lines.retain(|name, value| {
                assert_eq!((name, value), (fields[at].0.as_bytes(), trim(fields[at].1.as_bytes())));
                at += 1;
                keep[at - 1]
            });
            prop_assert_eq!(at, fields.len());
            let kept: Vec<_> = fields
                .iter()
                .zip(keep)
                .filter(|(_, keep)| *keep)
                .map(|(field, _)| field.clone())
                .collect();
            prop_assert_eq!(lines, written(&kept));
        }
    }
}

mod chunks {
    use super::super::*;

    #[test]
    fn writes_sizes_as_the_formatter_of_the_standard_library_does() {
        for len in [1, 9, 10, 15, 16, 255, 256, 500, 65_536, usize::MAX] {
            let expect = format!("{len:x}\r\n");
            assert_eq!(chunk_prefix(len).as_bytes(), expect.as_bytes());
        }
    }

    #[test]
    #[should_panic(expected = "an empty chunk ends the body")]
    fn refuses_to_end_a_body_by_accident() {
        chunk_prefix(0);
    }
}
