//! Replies without a file: refusals as a line of plain text, and the redirect to a folder's slash.
//!
//! Takes a head, gives a reply.

use bytes::Bytes;
use http::HeadView;

use crate::reply::{Part, Reply, ReplyBody, status_text, text_fields};

use super::root_dir::LookupError;

/// A refusal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ErrorReply {
    Forbidden,
    NotFound,
    /// Nothing for this client; one that names HTML gets a page.
    NotFoundByAccept,
    MethodNotAllowed,
    PreconditionFailed,
    InternalServerError,
    NotImplemented,
    ServiceUnavailable,
}

impl ErrorReply {
    /// The refusal as a reply to `head`.
    pub(super) fn reply(self, head: HeadView<'_>) -> Reply {
        let mut reply = self.to_get();
        if head.is_head() {
            reply.body = ReplyBody::Empty;
        }
        reply
    }

    fn to_get(self) -> Reply {
        match self {
            ErrorReply::Forbidden => Reply::refusal(403, None),
            ErrorReply::NotFound => Reply::refusal(404, None),
            // RFC 9110 section 15.5.5: a 404 may be stored as well.
            ErrorReply::NotFoundByAccept => {
                Reply::refusal_with(404, |fields| fields.push(b"Vary", b"Accept"))
            }
            // RFC 9110 section 15.5.6: with the methods that are allowed.
            ErrorReply::MethodNotAllowed => {
                Reply::refusal_with(405, |fields| fields.push(b"Allow", b"GET, HEAD"))
            }
            ErrorReply::PreconditionFailed => Reply::refusal(412, None),
            ErrorReply::InternalServerError => Reply::refusal(500, None),
            // RFC 9110 section 9.1: a method that the server does not know is not one that the file forbids.
            ErrorReply::NotImplemented => Reply::refusal(501, None),
            ErrorReply::ServiceUnavailable => Reply::refusal(503, Some(1)),
        }
    }
}

impl From<LookupError> for ErrorReply {
    fn from(error: LookupError) -> ErrorReply {
        match error {
            LookupError::Absent => ErrorReply::NotFound,
            LookupError::Forbidden => ErrorReply::Forbidden,
            LookupError::Busy => ErrorReply::ServiceUnavailable,
            LookupError::Broken => ErrorReply::InternalServerError,
        }
    }
}

/// Sends a folder's URL to the one with its slash, so that the page's relative links work. Where the client
/// has written that slash and a rewrite took it away, another one would lead in a circle.
pub(super) fn redirect_to_folder(head: HeadView<'_>) -> Reply {
    let path = head.path();
    if path.ends_with(b"/") {
        return ErrorReply::NotFound.reply(head);
    }
    let text = status_text(301);
    let mut fields = text_fields(text.len());
    // The parser lets nothing into a target that could not stand in a field.
    if fields
        .try_push(b"Location", &with_slash(path, head.query()))
        .is_err()
    {
        return ErrorReply::NotFound.reply(head);
    }
    let body = match head.is_head() {
        true => ReplyBody::Empty,
        false => ReplyBody::One(Part::Memory(Bytes::from(text))),
    };
    Reply {
        status: 301,
        fields: fields.freeze(),
        body,
    }
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
    use super::*;

    #[test]
    fn announces_the_length_of_each_text_and_what_its_status_needs() {
        let check = |plain: ErrorReply, status: u16, needed: Option<(&str, &str)>| {
            let reply = plain.to_get();
            assert_eq!(reply.status, status);
            let ReplyBody::One(Part::Memory(text)) = reply.body else {
                panic!("{plain:?}");
            };
            assert_eq!(text, format!("{status} {}\n", http::reason(status)));
            let length = text.len().to_string();
            let expect = [
                ("Content-Type", "text/plain; charset=utf-8"),
                ("Content-Length", &length),
            ];
            let expect: Vec<_> = expect.into_iter().chain(needed).collect();
            let found: Vec<_> = reply
                .fields
                .iter()
                .map(|(name, value)| (str::from_utf8(name), str::from_utf8(value)))
                .map(|(name, value)| (name.unwrap(), value.unwrap()))
                .collect();
            assert_eq!(found, expect);
        };
        check(ErrorReply::Forbidden, 403, None);
        check(ErrorReply::NotFound, 404, None);
        check(ErrorReply::NotFoundByAccept, 404, Some(("Vary", "Accept")));
        check(
            ErrorReply::MethodNotAllowed,
            405,
            Some(("Allow", "GET, HEAD")),
        );
        check(ErrorReply::PreconditionFailed, 412, None);
        check(ErrorReply::InternalServerError, 500, None);
        check(
            ErrorReply::ServiceUnavailable,
            503,
            Some(("Retry-After", "1")),
        );
    }
}
