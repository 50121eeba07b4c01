//! The framing of a reply and the end of its head, RFC 9112 section 6.
//!
//! Takes what is known of request and reply, gives the one framing that is right, and writes the fields
//! that carry it. It must not write the handler's own fields or any of the body.

use crate::bytes::write_decimal;
use crate::head::Version;

/// What decides a reply's framing.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ReplyFacts {
    /// Version of the request.
    pub version: Version,
    /// Whether the request's method is HEAD.
    pub method_is_head: bool,
    /// Status of the reply.
    pub status: u16,
    /// Length of the body in bytes, declared or known.
    pub content_length: Option<u64>,
    /// Whether the connection may live on: the request's wish and ours.
    pub keep_alive: bool,
}

/// How the client finds the end of the reply's body.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ReplyFraming {
    /// Reply to HEAD, 1xx, 204 or 304: ends with its head, nothing may follow.
    NoBody,
    /// That many bytes.
    Length(u64),
    /// Chunked transfer coding.
    Chunked,
    /// Everything up to the end of the connection.
    UntilClose,
}

/// A reply's framing and what becomes of the connection after it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ReplyPlan {
    /// How the body ends.
    pub framing: ReplyFraming,
    /// Whether the connection lives on; never with [`ReplyFraming::UntilClose`].
    pub keep_alive: bool,
}

/// Decides the framing, RFC 9112 section 6.3: no body where none may be, a length where one is known, else
/// chunked for 1.1 and the end of the connection for 1.0.
pub fn plan_reply(facts: &ReplyFacts) -> ReplyPlan {
    let framing = match (facts.content_length, facts.version) {
        _ if facts.method_is_head || matches!(facts.status, 100..=199 | 204 | 304) => {
            ReplyFraming::NoBody
        }
        (Some(length), _) => ReplyFraming::Length(length),
        (None, Version::Http11) => ReplyFraming::Chunked,
        (None, Version::Http10) => ReplyFraming::UntilClose,
    };
    ReplyPlan {
        framing,
        keep_alive: facts.keep_alive && framing != ReplyFraming::UntilClose,
    }
}

/// Ends the head of a reply with this plan: appends Connection, Content-Length (`length`, where the reply's own
/// fields do not tell it) or Transfer-Encoding, and the empty line. HTTP/1.0 clients must be told that the
/// connection lives on, 1.1 clients that it does not.
///
/// A reply without a body gets neither of the last two fields. In a reply to HEAD (and in a 304) Content-Length
/// may tell what GET would have sent, among the reply's own fields.
pub fn end_head(out: &mut Vec<u8>, plan: &ReplyPlan, version: Version, length: Option<u64>) {
    // RFC 9112 section 9.3.
    match (plan.keep_alive, version) {
        (true, Version::Http11) => {}
        (true, Version::Http10) => out.extend_from_slice(b"Connection: keep-alive\r\n"),
        (false, _) => out.extend_from_slice(b"Connection: close\r\n"),
    }
    if plan.framing == ReplyFraming::Chunked {
        out.extend_from_slice(b"Transfer-Encoding: chunked\r\n");
    }
    if let Some(length) = length {
        write_content_length(out, length);
    }
    out.extend_from_slice(b"\r\n");
}

/// Appends a Content-Length field.
pub fn write_content_length(out: &mut Vec<u8>, length: u64) {
    out.extend_from_slice(b"Content-Length: ");
    write_decimal(out, length);
    out.extend_from_slice(b"\r\n");
}

#[cfg(test)]
mod tests {
    use super::*;
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
        assert_eq!(
            ended(
                ReplyFacts {
                    content_length: Some(1024),
                    ..FACTS
                },
                Some(1024)
            ),
            "HTTP/1.1 200 OK\r\n\
             Content-Type: text/plain\r\n\
             Content-Length: 1024\r\n\
             \r\n"
        );
        assert_eq!(
            ended(FACTS, None),
            "HTTP/1.1 200 OK\r\n\
             Content-Type: text/plain\r\n\
             Transfer-Encoding: chunked\r\n\
             \r\n"
        );
        assert_eq!(
            ended(
                ReplyFacts {
                    content_length: Some(0),
                    keep_alive: false,
                    ..FACTS
                },
                None
            ),
            "HTTP/1.1 200 OK\r\n\
             Content-Type: text/plain\r\n\
             Connection: close\r\n\
             \r\n"
        );
        assert_eq!(
            ended(
                ReplyFacts {
                    content_length: Some(7),
                    version: Http10,
                    ..FACTS
                },
                Some(7)
            ),
            "HTTP/1.1 200 OK\r\n\
             Content-Type: text/plain\r\n\
             Connection: keep-alive\r\n\
             Content-Length: 7\r\n\
             \r\n"
        );
        assert_eq!(
            ended(
                ReplyFacts {
                    version: Http10,
                    ..FACTS
                },
                None
            ),
            "HTTP/1.1 200 OK\r\n\
             Content-Type: text/plain\r\n\
             Connection: close\r\n\
             \r\n"
        );
        assert_eq!(
            ended(
                ReplyFacts {
                    status: 304,
                    content_length: Some(9),
                    ..FACTS
                },
                None
            ),
            "HTTP/1.1 304 Not Modified\r\n\
             Content-Type: text/plain\r\n\
             \r\n"
        );
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
