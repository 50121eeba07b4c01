//! Replies without a file: refusals as a line of plain text, and the redirect to a folder's slash.
//!
//! Takes a head, gives a reply made of static bytes.

use bytes::Bytes;
use wire::{HeadView, Method};

use crate::reply::{Part, Reply, ReplyBody};

use super::folder::Miss;

/// A refusal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Plain {
    Forbidden,
    NotFound,
    /// Nothing for this client; one that names HTML gets a page.
    NotFoundByAccept,
    MethodNotAllowed,
    PreconditionFailed,
    InternalServerError,
    ServiceUnavailable,
}

impl Plain {
    /// The refusal as a reply to `head`.
    pub(super) fn reply(self, head: HeadView<'_>) -> Reply {
        let (status, lines, text) = self.parts();
        Reply {
            status,
            lines: Bytes::from_static(lines.as_bytes()),
            body: body(head, text),
        }
    }

    fn parts(self) -> (u16, &'static str, &'static str) {
        match self {
            Plain::Forbidden => (
                403,
                "Content-Type: text/plain; charset=utf-8\r\nContent-Length: 14\r\n",
                "403 Forbidden\n",
            ),
            Plain::NotFound => (
                404,
                "Content-Type: text/plain; charset=utf-8\r\nContent-Length: 14\r\n",
                "404 Not Found\n",
            ),
            // RFC 9110 section 15.5.5: a 404 may be stored as well.
            Plain::NotFoundByAccept => (
                404,
                "Content-Type: text/plain; charset=utf-8\r\nContent-Length: 14\r\nVary: Accept\r\n",
                "404 Not Found\n",
            ),
            // RFC 9110 section 15.5.6: with the methods that are allowed.
            Plain::MethodNotAllowed => (
                405,
                "Content-Type: text/plain; charset=utf-8\r\nContent-Length: 23\r\nAllow: GET, HEAD\r\n",
                "405 Method Not Allowed\n",
            ),
            Plain::PreconditionFailed => (
                412,
                "Content-Type: text/plain; charset=utf-8\r\nContent-Length: 24\r\n",
                "412 Precondition Failed\n",
            ),
            Plain::InternalServerError => (
                500,
                "Content-Type: text/plain; charset=utf-8\r\nContent-Length: 26\r\n",
                "500 Internal Server Error\n",
            ),
            Plain::ServiceUnavailable => (
                503,
                "Content-Type: text/plain; charset=utf-8\r\nContent-Length: 24\r\nRetry-After: 1\r\n",
                "503 Service Unavailable\n",
            ),
        }
    }
}

impl From<Miss> for Plain {
    fn from(miss: Miss) -> Plain {
        match miss {
            Miss::Absent => Plain::NotFound,
            Miss::Forbidden => Plain::Forbidden,
            Miss::Busy => Plain::ServiceUnavailable,
            Miss::Broken => Plain::InternalServerError,
        }
    }
}

/// Sends a folder's URL to the one with its slash, so that the page's relative links work. Where the client
/// has written that slash and a rewrite took it away, another one would lead in a circle.
pub(super) fn redirect_to_folder(head: HeadView<'_>) -> Reply {
    const TEXT: &str = "301 Moved Permanently\n";
    let path = head.path();
    if path.ends_with(b"/") {
        return Plain::NotFound.reply(head);
    }
    let mut lines = Vec::with_capacity(path.len() + 128);
    lines.extend_from_slice(
        b"Content-Type: text/plain; charset=utf-8\r\nContent-Length: 22\r\nLocation: ",
    );
    // A rewrite finds folders behind `//host/../` too, and that begins with a host for browsers.
    let slashes = path.iter().take_while(|byte| **byte == b'/').count();
    for byte in &path[slashes.max(1) - 1..] {
        match byte {
            // Browsers read `/\host/` as `//host/`: another site.
            b'\\' => lines.extend_from_slice(b"%5C"),
            _ => lines.push(*byte),
        }
    }
    lines.push(b'/');
    if let Some(query) = head.query() {
        lines.push(b'?');
        lines.extend_from_slice(query);
    }
    lines.extend_from_slice(b"\r\n");
    Reply {
        status: 301,
        lines: Bytes::from(lines),
        body: body(head, TEXT),
    }
}

fn body(head: HeadView<'_>, text: &'static str) -> ReplyBody {
    match head.index.method {
        Method::Head => ReplyBody::Empty,
        _ => ReplyBody::One(Part::Memory(Bytes::from_static(text.as_bytes()))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn announces_the_length_of_each_text() {
        for plain in [
            Plain::Forbidden,
            Plain::NotFound,
            Plain::NotFoundByAccept,
            Plain::MethodNotAllowed,
            Plain::PreconditionFailed,
            Plain::InternalServerError,
            Plain::ServiceUnavailable,
        ] {
            let (status, lines, text) = plain.parts();
            assert!(
                lines.contains(&format!("Content-Length: {}\r\n", text.len())),
                "{status}"
            );
            assert!(
                text.starts_with(&format!("{status} {}", wire::reason(status))),
                "{status}"
            );
            assert!(lines.ends_with("\r\n"));
        }
    }
}
