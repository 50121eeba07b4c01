//! No record can forge a line or a field, in any form, with any byte in any string.

use proptest::prelude::*;

use super::*;

/// A record with `text` in all of its strings.
fn filled_with<'a>(text: &'a [u8], request: Request) -> Record<'a> {
    let (parsed, raw) = match request {
        Request::Parsed => (text, &b""[..]),
        Request::Raw => (&b""[..], text),
    };
    Record {
        request_id: text,
        client: text,
        peer: text,
        method: parsed,
        target: parsed,
        version: parsed,
        request_line: raw,
        host: text,
        referer: text,
        user_agent: text,
        user: text,
        cause: text,
        queued: QUEUED,
        ..SAMPLE
    }
}

#[derive(Clone, Copy)]
enum Request {
    Parsed,
    Raw,
}

/// The fields of a line as a reader splits it, at spaces but not in quotes or brackets; without
/// quotes and escapes.
fn split_fields(line: &str) -> Vec<Vec<u8>> {
    let (mut fields, mut from, mut until) = (Vec::new(), 0, None);
    for (at, byte) in line.bytes().enumerate() {
        match (until, byte) {
            (None, b'"') => until = Some(b'"'),
            (None, b'[') => until = Some(b']'),
            (None, b' ') => {
                fields.push(unescaped(&line[from..at]));
                from = at + 1;
            }
            (Some(end), _) if end == byte => until = None,
            _ => {}
        }
    }
    assert_eq!(until, None, "a field is left open: {line}");
    fields.push(unescaped(&line[from..]));
    fields
}

/// Takes quotes away and undoes `\xHH`.
fn unescaped(field: &str) -> Vec<u8> {
    let plain = field.replace('"', "");
    let mut parts = plain.split("\\x");
    let mut out = parts.next().unwrap().as_bytes().to_vec();
    for part in parts {
        out.push(u8::from_str_radix(&part[..2], 16).unwrap());
        out.extend_from_slice(&part.as_bytes()[2..]);
    }
    out
}

/// The strings of a JSON object of numbers, truths and strings, in order, keys included.
fn json_strings(object: &str) -> Vec<Vec<u8>> {
    let (mut strings, mut open): (Vec<Vec<u8>>, Option<Vec<u8>>) = (Vec::new(), None);
    let mut rest = object.chars();
    while let Some(c) = rest.next() {
        match (&mut open, c) {
            (None, '"') => open = Some(Vec::new()),
            (None, 't' | 'f') => {
                let word = rest
                    .as_str()
                    .find([',', '}'])
                    .map(|end| &rest.as_str()[..end]);
                let word = word.expect("something follows a truth");
                assert!(["rue", "alse"].contains(&word), "{c:?}{word}: {object}");
                rest.nth(word.len() - 1);
            }
            (None, c) => assert!("{}:,.".contains(c) || c.is_ascii_digit(), "{c:?}: {object}"),
            (Some(_), '"') => strings.extend(open.take()),
            (Some(text), '\\') => match rest.next().unwrap() {
                'u' => {
                    let code: String = rest.by_ref().take(4).collect();
                    text.push(u8::from_str_radix(&code, 16).unwrap());
                }
                c => text.push(c as u8),
            },
            (Some(text), c) => text.extend_from_slice(c.encode_utf8(&mut [0; 4]).as_bytes()),
        }
    }
    assert_eq!(open, None, "a string is left open: {object}");
    strings
}

/// What a bare or quoted field of a template shows of `record`; `None` for what is no text of a client.
fn shown_text(field: Field, record: &Record<'_>) -> Option<Vec<u8>> {
    let target = record.target;
    let query = target.iter().position(|&byte| byte == b'?');
    let text = match field {
        Field::Client => record.client,
        Field::Peer => record.peer,
        Field::User => record.user,
        Field::Request if record.method.is_empty() => record.request_line,
        Field::Request => {
            return Some([record.method, target, record.version].join(&b' '));
        }
        Field::Method => record.method,
        Field::Target => target,
        Field::Path => &target[..query.unwrap_or(target.len())],
        Field::Query => query.map_or(&b""[..], |at| &target[at + 1..]),
        Field::Protocol => record.version,
        Field::Host => record.host,
        Field::Referer => record.referer,
        Field::Agent => record.user_agent,
        Field::Id => record.request_id,
        Field::Cause => record.cause,
        _ => return None,
    };
    Some(escape::or_dash(text).to_vec())
}

/// Compares the line of a record that has `text` in all of its strings with that of one that has `~?~`.
#[track_caller]
fn check_unforgeable(text: &[u8], request: Request) {
    let (forged, honest) = (filled_with(text, request), filled_with(b"~?~", request));
    let quoted = all_fields("\"{", "}\" ") + "{end}";
    let bare = all_fields("{", "} ") + "{end}";
    for form in all_forms(&quoted).into_iter().chain([template(&bare)]) {
        let (shown, expect) = (line(form.clone(), &forged), line(form.clone(), &honest));
        let (shown, newline) = shown.split_at(shown.len() - 1);
        assert_eq!(newline, "\n");
        assert!(!shown.chars().any(char::is_control), "{shown:?}");
        let (found, expect) = match form {
            Form::Json => (json_strings(shown), json_strings(expect.trim_end())),
            _ => (split_fields(shown), split_fields(expect.trim_end())),
        };
        assert_eq!(found.len(), expect.len(), "{shown}");
        for (found, expect) in found.iter().zip(&expect) {
            assert!(expect.contains(&b'~') || found == expect, "{shown}");
        }
        if let Form::Template(_) = form {
            for (field, found) in Field::all().zip(found) {
                let expect = shown_text(field, &forged).unwrap_or_else(|| found.clone());
                assert_eq!(found, expect, "{}: {shown}", field.name());
            }
        }
    }
}

/// As `check_unforgeable`, for lines whose fields are separated by punctuation, and for lines from which
/// something is hidden.
#[track_caller]
fn check_unforgeable_otherwise(text: &[u8], request: Request, separator: char) {
    let (forged, honest) = (filled_with(text, request), filled_with(b"~?~", request));
    let form = template(&all_fields("{", &format!("}}{separator}")));
    let separators = |record| line(form.clone(), record).matches(separator).count();
    assert_eq!(
        separators(&forged),
        separators(&honest),
        "{separator} {text:?}"
    );
    let style = Style {
        prefix_v4: 8,
        prefix_v6: 8,
        query: false,
        ..Style::default()
    };
    for form in all_forms(&all_fields("{", "} ")) {
        let shown = styled(form.clone(), style, &forged);
        assert!(!shown.trim_end_matches('\n').chars().any(char::is_control));
        let expect = styled(form.clone(), style, &honest);
        match form {
            Form::Json => drop(json_strings(shown.trim_end())),
            _ => assert_eq!(
                split_fields(&shown).len(),
                split_fields(&expect).len(),
                "{shown}"
            ),
        }
    }
}

/// Punctuation that can stand between fields: not what a template takes for its own, and not the dash,
/// which stands for what is not there.
fn separators() -> Vec<char> {
    let all = (0..128u8).map(char::from);
    all.filter(|c| c.is_ascii_punctuation() && !"{}\"\\-".contains(*c))
        .collect()
}

#[test]
fn no_byte_ends_a_line_or_a_field() {
    let separators = separators();
    for byte in 0..=255u8 {
        let separator = separators[usize::from(byte) % separators.len()];
        for text in [
            &[byte][..],
            &[b'a', byte, b'a'],
            &[b'\\', byte],
            &[byte, byte],
        ] {
            for request in [Request::Parsed, Request::Raw] {
                check_unforgeable(text, request);
                check_unforgeable_otherwise(text, request, separator);
            }
        }
    }
    for separator in separators {
        check_unforgeable_otherwise(&[b'a', separator as u8], Request::Parsed, separator);
    }
}

proptest! {
    #[test]
    fn no_text_ends_a_line_or_a_field(
        text in prop::collection::vec(any::<u8>(), 1..40),
        separator in prop::sample::select(separators()),
    ) {
        for request in [Request::Parsed, Request::Raw] {
            check_unforgeable(&text, request);
            check_unforgeable_otherwise(&text, request, separator);
        }
    }
}
