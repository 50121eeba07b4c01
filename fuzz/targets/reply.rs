//! Any bytes as a reply's head: no panic, the same outcome however they are cut and whatever follows, and an
//! end of the body that a plain reading of the lines finds too.

#![no_main]

use libfuzzer_sys::fuzz_target;
use http::{Asked, NoReply, ReplyBody, ReplyHead, ReplyHeadStep};

fuzz_target!(|input: &[u8]| {
    for asked in [Asked::Other, Asked::Head] {
        let whole = parse(input, input.len().max(1), asked);
        for piece in [1, 7] {
            assert_eq!(parse(input, piece, asked), whole, "in pieces of {piece}");
        }
        if let Ok(Some(head)) = whole {
            check_accepted(input, &head, asked);
        }
    }
});

/// The head that begins `input`, given in pieces of `piece` bytes; `None` when it has no end.
fn parse(input: &[u8], piece: usize, asked: Asked) -> Result<Option<ReplyHead>, NoReply> {
    let mut given = 0;
    while given < input.len() {
        given = (given + piece).min(input.len());
        if let ReplyHeadStep::Complete(head) = ReplyHead::parse(&input[..given], asked)? {
            return Ok(Some(head));
        }
    }
    Ok(None)
}

fn check_accepted(input: &[u8], head: &ReplyHead, asked: Asked) {
    let bytes = &input[..head.bytes];
    assert_eq!(parse(bytes, bytes.len(), asked), Ok(Some(*head)), "alone");
    assert!(bytes.ends_with(b"\n\n") || bytes.ends_with(b"\n\r\n"));
    assert!((100..1000).contains(&head.status));
    let lines = lines(bytes);
    let start = &lines[0];
    assert!(start.starts_with(b"HTTP/1."));
    assert_eq!(&start[9..12], head.status.to_string().as_bytes());
    assert_eq!(head.body, expected_body(&lines[1..], head.status, asked));

    let options = values(&lines[1..], "connection");
    let is_old = start[7] == b'0';
    let has_coding = !values(&lines[1..], "transfer-encoding").is_empty();
    let keeps = !options.contains(&b"close".to_vec())
        && (!is_old || options.contains(&b"keep-alive".to_vec()) && !has_coding)
        && head.body != ReplyBody::UntilClose
        && head.status != 101;
    assert_eq!(head.keeps, keeps);
}

/// RFC 9112 section 6.3, from lists of lower-case elements.
fn expected_body(fields: &[Vec<u8>], status: u16, asked: Asked) -> ReplyBody {
    if asked == Asked::Head || status < 200 || status == 204 || status == 304 {
        return ReplyBody::None;
    }
    if let Some(last) = values(fields, "transfer-encoding").last() {
        return if last == b"chunked" {
            ReplyBody::Chunked
        } else {
            ReplyBody::UntilClose
        };
    }
    let lengths = values(fields, "content-length");
    let Some(first) = lengths.first() else {
        return ReplyBody::UntilClose;
    };
    let number = |digits: &[u8]| {
        assert!(digits.iter().all(u8::is_ascii_digit), "{digits:?}");
        let text = str::from_utf8(digits).expect("digits are text");
        text.parse::<u64>().expect("what was accepted is a number")
    };
    assert!(lengths.iter().all(|other| number(other) == number(first)));
    ReplyBody::Length(number(first))
}

/// Lines without their ends, empty ones left out, folds joined with a space.
fn lines(bytes: &[u8]) -> Vec<Vec<u8>> {
    let mut lines: Vec<Vec<u8>> = Vec::new();
    for line in bytes.split(|&byte| byte == b'\n') {
        let line = line.strip_suffix(b"\r").unwrap_or(line);
        match lines.last_mut() {
            Some(last) if line.starts_with(b" ") || line.starts_with(b"\t") => {
                last.push(b' ');
                last.extend_from_slice(line);
            }
            _ if line.is_empty() => {}
            _ => lines.push(line.to_vec()),
        }
    }
    lines
}

/// The elements of all fields of this name, in lower case, empty ones left out.
fn values(fields: &[Vec<u8>], name: &str) -> Vec<Vec<u8>> {
    let mut elements = Vec::new();
    for field in fields {
        let colon = field.iter().position(|&byte| byte == b':');
        let (before, value) = field.split_at(colon.expect("every field has a colon"));
        if before.eq_ignore_ascii_case(name.as_bytes()) {
            let all = value[1..].split(|&byte| byte == b',');
            let trimmed = all.map(|element| element.trim_ascii().to_ascii_lowercase());
            elements.extend(trimmed.filter(|element| !element.is_empty()));
        }
    }
    elements
}
