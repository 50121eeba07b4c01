//! Replies without a file: refusals as a line of plain text, and the redirect to a folder's slash.
//!
//! Takes a head, gives a reply.

use bytes::Bytes;
use http::HeadView;

use crate::reply::{Part, Reply, ReplyBody, status_text, text_fields};

/// The refusal of `head` with a status, and with the fields that the status needs.
pub(super) fn refuse(head: HeadView<'_>, status: u16) -> Reply {
    let needed: (&[u8], &[u8]) = match status {
        // RFC 9110 section 15.5.6: with the methods that are allowed.
        405 => (b"Allow", b"GET, HEAD"),
        503 => (b"Retry-After", b"1"),
        _ => return to_head(head, Reply::refusal(status, None)),
    };
    to_head(
        head,
        Reply::refusal_with(status, |fields| fields.push(needed.0, needed.1)),
    )
}

/// There is nothing for this client; one that names HTML gets a page.
pub(super) fn refuse_by_accept(head: HeadView<'_>) -> Reply {
    to_head(
        head,
        // RFC 9110 section 15.5.5: a 404 may be stored as well.
        Reply::refusal_with(404, |fields| fields.push(b"Vary", b"Accept")),
    )
}

/// RFC 9110 section 9.3.2: the reply to a HEAD has the fields of a GET and no content.
pub(super) fn to_head(head: HeadView<'_>, mut reply: Reply) -> Reply {
    if head.is_head() {
        reply.body = ReplyBody::Empty;
    }
    reply
}

/// Sends a folder's URL to the one with its slash, so that the page's relative links work.
pub(super) fn redirect_to_folder(head: HeadView<'_>) -> Reply {
    let path = head.path();
    // Where the client has written that slash and a rewrite took it away, another one would lead in a circle.
    if path.ends_with(b"/") {
        return refuse(head, 404);
    }
    // Permanent: the folder has no other URL.
    let text = status_text(301);
    let mut fields = text_fields(text.len());
    // The parser lets nothing into a target that could not stand in a field.
    if fields
        .try_push(b"Location", &with_slash(path, head.query()))
        .is_err()
    {
        return refuse(head, 404);
    }
    let reply = Reply {
        status: 301,
        fields: fields.freeze(),
        body: ReplyBody::One(Part::Memory(Bytes::from(text))),
    };
    to_head(head, reply)
}

fn with_slash(path: &[u8], query: Option<&[u8]>) -> Vec<u8> {
    let mut target = Vec::with_capacity(path.len() + query.map_or(0, <[u8]>::len) + 8);
    // A rewrite finds folders behind `//host/../` too, and that begins with a host for browsers.
    let slashes = path.iter().take_while(|byte| **byte == b'/').count();
    for byte in &path[slashes.max(1) - 1..] {
        match byte {
            // Browsers read `/\host/` as `//host/`: another site.
            b'\\' => target.extend_from_slice(b"%5C"),
            _ => target.push(*byte),
        }
    }
    target.push(b'/');
    if let Some(query) = query {
        target.push(b'?');
        target.extend_from_slice(query);
    }
    target
}

#[cfg(test)]
mod tests {
    use super::super::tests::with_head;
    use super::*;

    #[test]
    fn announces_the_length_of_each_text_and_what_its_status_needs() {
        with_head("GET / HTTP/1.1\r\nHost: a\r\n\r\n", |head| {
            for (reply, status, needed) in [
                (refuse(head, 403), 403, None),
                (refuse_by_accept(head), 404, Some(("Vary", "Accept"))),
                (refuse(head, 405), 405, Some(("Allow", "GET, HEAD"))),
                (refuse(head, 503), 503, Some(("Retry-After", "1"))),
            ] {
                let text = format!("{status} {}\n", http::reason(status));
                let length = text.len().to_string();
                let expect = [
                    ("Content-Type", "text/plain; charset=utf-8"),
                    ("Content-Length", &length),
                ];
                let expect: Vec<_> = (expect.into_iter().chain(needed))
                    .map(|(name, value)| (name.as_bytes(), value.as_bytes()))
                    .collect();
                let found: Vec<_> = reply.fields.iter().collect();
                assert_eq!((reply.status, found), (status, expect));
                assert!(matches!(reply.body, ReplyBody::One(Part::Memory(body)) if body == text));
            }
        });
    }
}
