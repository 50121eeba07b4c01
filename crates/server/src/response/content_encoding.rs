//! What a content coding means for a reply's fields: whether the body may be compressed, and how the fields
//! change when it is. Pure.
//!
//! Takes what the request accepts and the fields of the handler; gives a treatment and applies it.
//! It must not look at bodies, and where it is in doubt a reply stays as it is.

use http::{AcceptEncoding, FieldLines, HeadView, Marks};
use memchr::memmem;

use config::typed::{Coding, Compression};

/// What a request lets be done with its reply.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Accepted {
    /// The coding to use; `None`: the client wants plain bytes.
    coding: Option<Coding>,
    /// The client holds a reply with a weak ETag, which may be one of ours.
    holds_weak: bool,
}

/// What becomes of a reply's fields and body.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub(crate) enum Treatment {
    /// Nothing.
    #[default]
    Untouched,
    /// Another client might get it compressed.
    Varies,
    /// A 304 for a reply that was compressed: its ETag has to be that of what the client holds.
    Revalidated,
    /// The body is compressed.
    Coded(Coding),
}

/// Fields that tell something of the very bytes that the handler gave: a coding, a range, a checksum. RFC 9530
/// section 2: a Content-Digest is over the bytes with their coding.
const FIELDS_OF_BYTES: [&str; 6] = [
    "content-encoding",
    "content-range",
    "content-md5",
    "content-digest",
    "repr-digest",
    "digest",
];

impl Accepted {
    /// Reads a request's head. `codings` that are empty would accept nothing: do not ask then.
    pub(crate) fn read(head: HeadView<'_>, config: &Compression) -> Self {
        let offered = config.codings.iter();
        let place = AcceptEncoding::read(head).choose(offered.map(|coding| coding.name()));
        let coding = place.map(|place| config.codings[place]);
        let any = |known: &str, holds: fn(&[u8]) -> bool| {
            let mut fields = head.headers();
            fields.any(|(name, value)| is(name, known) && holds(value))
        };
        Self {
            // RFC 9111 section 5.2.1.6.
            coding: coding.filter(|_| !any("cache-control", forbids_transform)),
            holds_weak: head.index.marks.contains(Marks::CONDITIONAL)
                && any("if-none-match", |value| {
                    memmem::find(value, b"W/").is_some()
                }),
        }
    }
}

/// What may be done with a reply of these fields; its length is the caller's to judge.
pub(crate) fn treatment(
    status: u16,
    fields: &FieldLines,
    accepted: Accepted,
    types: &[String],
) -> Treatment {
    match status {
        304 if accepted.holds_weak => return Treatment::Revalidated,
        // RFC 9110 sections 15.3.5, 15.3.6, 15.3.7 and 15.4.5: no content, or a part of what another
        // reply holds.
        204 | 205 | 206 | 304 => return Treatment::Untouched,
        _ => {}
    }
    let mut fits = false;
    for (name, value) in fields.iter() {
        if is(name, "content-type") {
            fits = is_of_types(value, types);
        }
        // RFC 9111 section 5.2.2.6.
        let is_fixed = is(name, "cache-control") && forbids_transform(value);
        if is_fixed || FIELDS_OF_BYTES.iter().any(|known| is(name, known)) {
            return Treatment::Untouched;
        }
    }
    match accepted.coding {
        _ if !fits => Treatment::Untouched,
        None => Treatment::Varies,
        Some(coding) => Treatment::Coded(coding),
    }
}

/// Changes `fields` as the treatment demands; `scratch` holds any fields, and does afterwards.
pub(crate) fn rewrite(fields: &mut FieldLines, scratch: &mut FieldLines, treatment: Treatment) {
    if treatment == Treatment::Untouched {
        return;
    }
    let is_coded = matches!(treatment, Treatment::Coded(_));
    let is_weaker = treatment != Treatment::Varies;
    let mut varies = fields.iter().any(|(name, value)| {
        is(name, "vary") && (lists(value, "*") || lists(value, "accept-encoding"))
    });
    scratch.clear();
    for (name, value) in fields.iter() {
        // Ranges of what is made anew each time do not fit together.
        if is_coded && (is(name, "content-length") || is(name, "accept-ranges")) {
            continue;
        }
        if is_weaker && is(name, "etag") && value.starts_with(b"\"") {
            // RFC 9110 section 8.8.1: the same meaning, other bytes.
            scratch.push_parts(name, &[b"W/", value]);
        } else if !varies && is(name, "vary") {
            varies = true;
            let comma: &[u8] = if value.is_empty() { b"" } else { b", " };
            scratch.push_parts(name, &[value, comma, b"Accept-Encoding"]);
        } else {
            scratch.push(name, value);
        }
    }
    if !varies {
        scratch.push(b"Vary", b"Accept-Encoding");
    }
    if let Treatment::Coded(coding) = treatment {
        scratch.push(b"Content-Encoding", coding.name().as_bytes());
    }
    std::mem::swap(fields, scratch);
}

/// Whether a Content-Type is one of `types`; its parameters do not count.
fn is_of_types(value: &[u8], types: &[String]) -> bool {
    let end = memchr::memchr(b';', value).unwrap_or(value.len());
    let media_type = value[..end].trim_ascii();
    types.iter().any(|known| match known.strip_suffix('*') {
        // The slash belongs to what has to be alike: `text/*` is not `textual/x`.
        Some(kind) if kind.ends_with('/') => media_type
            .get(..kind.len())
            .is_some_and(|start| is(start, kind)),
        _ => is(media_type, known),
    })
}

fn forbids_transform(value: &[u8]) -> bool {
    lists(value, "no-transform")
}

/// Whether a list has this member.
fn lists(value: &[u8], known: &str) -> bool {
    let mut members = value.split(|byte| *byte == b',');
    members.any(|member| is(member.trim_ascii(), known))
}

fn is(text: &[u8], known: &str) -> bool {
    text.eq_ignore_ascii_case(known.as_bytes())
}

#[cfg(test)]
mod tests {
    use super::*;

    const GZIP: Accepted = Accepted {
        coding: Some(Coding::Gzip),
        holds_weak: false,
    };
    const PLAIN: Accepted = Accepted {
        coding: None,
        holds_weak: false,
    };

    fn fields(lines: &[&str]) -> FieldLines {
        let mut fields = FieldLines::new();
        for line in lines {
            let (name, value) = line.split_once(':').unwrap();
            fields.push(name.as_bytes(), value.as_bytes());
        }
        fields
    }

    fn treated(status: u16, lines: &[&str], accepted: Accepted) -> Treatment {
        treatment(
            status,
            &fields(lines),
            accepted,
            &Compression::default().types,
        )
    }

    #[test]
    fn reads_what_a_request_lets_be_done() {
        let config = Compression {
            codings: vec![Coding::Zstd, Coding::Gzip],
            ..Compression::default()
        };
        let check = |lines: &str, coding: Option<Coding>, holds_weak: bool| {
            let text = format!("GET / HTTP/1.1\r\nHost: a\r\n{lines}\r\n");
            let found = Accepted::read(crate::tests::head(&text).view(), &config);
            assert_eq!(found, Accepted { coding, holds_weak }, "{text}");
        };
        let accepts = "Accept-Encoding: gzip, br\r\n";
        check("", None, false);
        check(accepts, Some(Coding::Gzip), false);
        check("Accept-Encoding: br\r\n", None, false);
        check("Accept-Encoding: gzip, zstd\r\n", Some(Coding::Zstd), false);
        for value in ["no-transform", "max-age=0, No-Transform ,x"] {
            check(&format!("{accepts}cache-control: {value}\r\n"), None, false);
        }
        let other = format!("{accepts}Cache-Control: no-transformation, max-age=\"1\"\r\n");
        check(&other, Some(Coding::Gzip), false);
        check("If-None-Match: \"a\", W/\"b\"\r\n", None, true);
        check("If-None-Match: \"a\"\r\n", None, false);
        // RFC 9110 section 5.3: several lines are one list.
        let lines = "If-None-Match: \"a\"\r\nIf-None-Match: W/\"b\"\r\n";
        check(lines, None, true);
    }

    #[test]
    fn compresses_what_is_compressible_and_nothing_else() {
        let check = |lines: &[&str], is_fit: bool| {
            let expect = |fit| if is_fit { fit } else { Treatment::Untouched };
            let coded = expect(Treatment::Coded(Coding::Gzip));
            assert_eq!(treated(200, lines, GZIP), coded, "{lines:?}");
            let varies = expect(Treatment::Varies);
            assert_eq!(treated(200, lines, PLAIN), varies, "{lines:?}");
        };
        check(&["Content-Type: text/html"], true);
        check(&["content-type:TEXT/Event-Stream ; charset=utf-8"], true);
        check(&["Content-Type: application/json;x=y"], true);
        check(&["X-A: b", "Content-Type: image/svg+xml"], true);
        check(&["Content-Type: image/png"], false);
        check(&["Content-Type: textual/html"], false);
        check(&["Content-Type: text"], false);
        check(&["Content-Type: application/json5"], false);
        check(&["Content-Type:"], false);
        check(&["X-Content-Type: text/html"], false);
        check(&[], false);
        let text = "Content-Type: text/plain";
        check(&[text, "Cache-Control: public, max-age=60"], true);
        check(&[text, "Cache-Control: public, NO-transform"], false);
        check(&["Cache-Control: no-transform", text], false);
        check(&[text, "Content-Encoding: gzip"], false);
        check(&[text, "content-encoding: identity"], false);
        check(&[text, "Content-Range: bytes 0-1/5"], false);
        check(&[text, "Content-MD5: x"], false);
        check(&[text, "Content-Digest: sha-256=:x:"], false);
        check(&[text, "Repr-Digest: sha-256=:x:"], false);
        check(&[text, "Digest: sha-256=x"], false);
    }

    #[test]
    fn leaves_statuses_without_content_and_parts_alone() {
        let lines = ["Content-Type: text/plain"];
        for status in [204, 205, 206, 304] {
            assert_eq!(
                treated(status, &lines, GZIP),
                Treatment::Untouched,
                "{status}"
            );
        }
        for status in [200, 201, 301, 404, 500] {
            let coded = Treatment::Coded(Coding::Gzip);
            assert_eq!(treated(status, &lines, GZIP), coded, "{status}");
        }
        let holder = Accepted {
            holds_weak: true,
            ..PLAIN
        };
        assert_eq!(treated(304, &[], holder), Treatment::Revalidated);
    }

    /// What is done, the fields before it, and after it; ` / ` stands between two of them.
    const REWRITTEN: &str = r#"
        coded | | Vary: Accept-Encoding / Content-Encoding: br
        coded | Content-Length: 7 / X-A: b / accept-ranges: bytes | X-A: b / Vary: Accept-Encoding / Content-Encoding: br
        coded | ETag: "a:b" / X-A:b | ETag: W/"a:b" / X-A: b / Vary: Accept-Encoding / Content-Encoding: br
        coded | etag: W/"a" / Vary: Cookie | etag: W/"a" / Vary: Cookie, Accept-Encoding / Content-Encoding: br
        coded | Vary: Cookie / vary: accept-encoding | Vary: Cookie / vary: accept-encoding / Content-Encoding: br
        coded | Vary: * | Vary: * / Content-Encoding: br
        coded | Vary: | Vary: Accept-Encoding / Content-Encoding: br
        coded | Vary: a / Vary: b | Vary: a, Accept-Encoding / Vary: b / Content-Encoding: br
        varies | ETag: "a" / Content-Length: 7 | ETag: "a" / Content-Length: 7 / Vary: Accept-Encoding
        varies | Accept-Ranges: bytes | Accept-Ranges: bytes / Vary: Accept-Encoding
        revalidated | ETag: "a" | ETag: W/"a" / Vary: Accept-Encoding
        untouched | Content-Length: 7 / Accept-Ranges: bytes | Content-Length: 7 / Accept-Ranges: bytes
    "#;

    #[test]
    fn rewrites_fields() {
        for row in REWRITTEN.trim().lines() {
            let columns: Vec<&str> = row.split('|').map(str::trim).collect();
            let treatment = match columns[0] {
                "coded" => Treatment::Coded(Coding::Brotli),
                "varies" => Treatment::Varies,
                "revalidated" => Treatment::Revalidated,
                _ => Treatment::Untouched,
            };
            let [mut found, expect] = [columns[1], columns[2]].map(|lines| {
                let lines: Vec<&str> = lines.split(" / ").filter(|line| !line.is_empty()).collect();
                fields(&lines)
            });
            rewrite(&mut found, &mut fields(&["X-Rubbish: r"]), treatment);
            assert!(found.iter().eq(expect.iter()), "{row}: {found:?}");
        }
    }
}
