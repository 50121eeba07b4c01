//! The client's role: one reply head, as what a client has to know of it.
//!
//! Takes the bytes of a connection from the first one of a reply on, gives a [`ReplyHead`]. Nothing is kept
//! and nothing allocated; it must not read past the head's end. Interim replies (1xx) are heads of their own:
//! the caller goes on behind them.

use httparse::Status;

use crate::fields::decimal;

/// More field lines than these are refused.
pub(crate) const HEADERS_LEN_MAX: usize = 96;

/// How the end of a reply's body is found, RFC 9112 section 6.3.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ReplyBody {
    /// There is none, whatever the head says.
    None,
    /// So many bytes.
    Length(u64),
    /// Chunked transfer coding.
    Chunked,
    /// Everything up to the end of the connection.
    UntilClose,
}

/// What a client has to know of a reply's head.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ReplyHead {
    /// Three digits.
    pub status: u16,
    /// Of the head, its empty line included.
    pub bytes: usize,
    /// Where the reply ends.
    pub body: ReplyBody,
    /// Whether another request may follow on this connection, RFC 9112 section 9.3.
    pub keeps: bool,
}

/// How far a head is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ReplyHeadStep {
    /// More bytes are needed; the next call gets the same bytes again, and more.
    Partial,
    /// It is whole.
    Complete(ReplyHead),
}

/// What is no reply head. The connection cannot be used further.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct NoReply;

impl ReplyHead {
    /// Reads the head at the beginning of `bytes`.
    ///
    /// Liberal where RFC 9112 lets a client be: a lone LF ends a line, empty lines may precede it, a field may
    /// be folded, a repeated equal length counts once. More bytes behind a head change nothing, so that it may
    /// be given in pieces of any size.
    pub fn parse(bytes: &[u8], asked: Asked) -> Result<ReplyHeadStep, NoReply> {
        let mut headers = [const { std::mem::MaybeUninit::uninit() }; HEADERS_LEN_MAX];
        let mut reply = httparse::Response::new(&mut []);
        let mut config = httparse::ParserConfig::default();
        // RFC 9112 section 5.2: a user agent takes a fold as spaces.
        config.allow_obsolete_multiline_headers_in_responses(true);
        let parsed = config.parse_response_with_uninit_headers(&mut reply, bytes, &mut headers);
        match parsed {
            Ok(Status::Complete(head_bytes)) => ReplyHeadFacts::of(&reply)
                .settle(&reply, head_bytes, asked)
                .map(ReplyHeadStep::Complete),
            Ok(Status::Partial) => Ok(ReplyHeadStep::Partial),
            Err(_) => Err(NoReply),
        }
    }
}

/// What the request was, as far as it tells how its reply ends.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Asked {
    /// HEAD: replies have no bodies.
    Head,
    /// Another protocol on this connection, which a 101 agrees to.
    Upgrade,
    /// Any other method.
    Other,
}

/// What the fields say.
#[derive(Default)]
struct ReplyHeadFacts {
    length: Length,
    /// Whether `chunked` is the last coding; `None`: no coding is named.
    chunked: Option<bool>,
    close: bool,
    keep_alive: bool,
}

/// What the Content-Length fields say together.
#[derive(Clone, Copy, Default)]
enum Length {
    #[default]
    Unsaid,
    Said(u64),
    /// No number, or several.
    Faulty,
}

impl ReplyHeadFacts {
    fn of(reply: &httparse::Response<'_, '_>) -> ReplyHeadFacts {
        let mut facts = ReplyHeadFacts::default();
        for field in reply.headers.iter() {
            let is = |known: &str| field.name.eq_ignore_ascii_case(known);
            match field.name.len() {
                10 if is("connection") => facts.note_connection(field.value),
                14 if is("content-length") => facts.note_length(field.value),
                17 if is("transfer-encoding") => facts.note_coding(field.value),
                _ => {}
            }
        }
        facts
    }

    fn note_connection(&mut self, value: &[u8]) {
        for option in elements(value) {
            self.close |= option.eq_ignore_ascii_case(b"close");
            self.keep_alive |= option.eq_ignore_ascii_case(b"keep-alive");
        }
    }

    /// RFC 9112 section 6.3: the same length may be said twice, another one leaves no way to find the end.
    fn note_length(&mut self, value: &[u8]) {
        for one in value.split(|&byte| byte == b',').map(<[u8]>::trim_ascii) {
            self.length = match (self.length, decimal(one)) {
                (Length::Unsaid, Some(length)) => Length::Said(length),
                (Length::Said(before), Some(length)) if before == length => Length::Said(length),
                _ => Length::Faulty,
            };
        }
    }

    fn note_coding(&mut self, value: &[u8]) {
        if let Some(last) = elements(value).last() {
            self.chunked = Some(last.eq_ignore_ascii_case(b"chunked"));
        }
    }

    fn settle(
        self,
        reply: &httparse::Response<'_, '_>,
        bytes: usize,
        asked: Asked,
    ) -> Result<ReplyHead, NoReply> {
        let status = reply.code.ok_or(NoReply)?;
        // RFC 9110 section 15: no class begins below, and an interim reply is told by its number.
        if status < 100 {
            return Err(NoReply);
        }
        let is_old = reply.version.ok_or(NoReply)? == 0;
        let body = self.body(status, asked)?;
        Ok(ReplyHead {
            status,
            bytes,
            body,
            keeps: self.keeps(status, body, is_old),
        })
    }

    /// RFC 9112 section 6.3, in its order.
    fn body(&self, status: u16, asked: Asked) -> Result<ReplyBody, NoReply> {
        if has_no_body(status, asked) {
            return Ok(ReplyBody::None);
        }
        match (self.chunked, self.length) {
            (Some(true), _) => Ok(ReplyBody::Chunked),
            (Some(false), _) | (None, Length::Unsaid) => Ok(ReplyBody::UntilClose),
            (None, Length::Said(length)) => Ok(ReplyBody::Length(length)),
            (None, Length::Faulty) => Err(NoReply),
        }
    }

    /// RFC 9112 section 9.3: close wins, then the version decides.
    fn keeps(&self, status: u16, body: ReplyBody, is_old: bool) -> bool {
        // Section 6.1: a coding in HTTP/1.0 comes from somebody in between who did not know of it.
        let is_unsound = is_old && self.chunked.is_some();
        // RFC 9110 section 15.2.2: what follows 101 is another protocol.
        let is_other = status == 101;
        let is_ended = self.close || body == ReplyBody::UntilClose || is_unsound || is_other;
        !is_ended && (!is_old || self.keep_alive)
    }
}

/// Whether a reply ends with its head, RFC 9112 section 6.3.
pub(crate) fn has_no_body(status: u16, asked: Asked) -> bool {
    asked == Asked::Head || matches!(status, 100..200 | 204 | 304)
}

/// The elements of a list; empty ones count for nothing, RFC 9110 section 5.6.1.
pub(crate) fn elements(value: &[u8]) -> impl Iterator<Item = &[u8]> {
    value
        .split(|&byte| byte == b',')
        .map(<[u8]>::trim_ascii)
        .filter(|element| !element.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What is expected of a whole head; its bytes are all that are given.
    fn said(status: u16, body: ReplyBody, keeps: bool) -> Option<(u16, ReplyBody, bool)> {
        Some((status, body, keeps))
    }

    /// The head's text up to and with its empty line; `None`: it is none.
    fn check_asked(asked: Asked, text: &str, expect: Option<(u16, ReplyBody, bool)>) {
        let bytes = text.as_bytes();
        let expect = expect.ok_or(NoReply).map(|(status, body, keeps)| {
            ReplyHeadStep::Complete(ReplyHead {
                status,
                bytes: bytes.len(),
                body,
                keeps,
            })
        });
        for given in 0..bytes.len() {
            match ReplyHead::parse(&bytes[..given], asked) {
                Ok(ReplyHeadStep::Partial) => {}
                Err(NoReply) => assert!(expect.is_err(), "{text:?} cut at {given}"),
                other => panic!("{text:?} cut at {given}: {other:?}"),
            }
        }
        assert_eq!(ReplyHead::parse(bytes, asked), expect, "{text:?}");
        // What follows is not looked at, whatever it is.
        for behind in [
            &b"HTTP/1.1 500 No\r\n\r\n"[..],
            b"\0\xff",
            b" folded?",
            b"\r\n",
        ] {
            let more = [bytes, behind].concat();
            assert_eq!(ReplyHead::parse(&more, asked), expect, "{text:?} and more");
        }
        // Lone LFs say the same, RFC 9112 section 2.2.
        let lone = text.replace("\r\n", "\n");
        let step = ReplyHead::parse(lone.as_bytes(), asked);
        match (step, expect) {
            (Ok(ReplyHeadStep::Complete(lone_head)), Ok(ReplyHeadStep::Complete(head))) => {
                assert_eq!(lone_head.bytes, lone.len());
                assert_eq!(
                    ReplyHead {
                        bytes: 0,
                        ..lone_head
                    },
                    ReplyHead { bytes: 0, ..head }
                );
            }
            (step, expect) => assert_eq!(step, expect, "{lone:?}"),
        }
    }

    fn check(text: &str, expect: Option<(u16, ReplyBody, bool)>) {
        check_asked(Asked::Other, text, expect);
    }

    /// A 200 with these fields, in HTTP/1.1.
    fn check_fields(fields: &str, expect: Option<(ReplyBody, bool)>) {
        let expect = expect.map(|(body, keeps)| (200, body, keeps));
        check(&format!("HTTP/1.1 200 OK\r\n{fields}\r\n"), expect);
    }

    #[test]
    fn reads_status_lines() {
        use ReplyBody::{Length, UntilClose};
        let one = "Content-Length: 1\r\n\r\n";
        for (line, status) in [
            ("HTTP/1.1 200 OK", 200),
            ("HTTP/1.1 200 ", 200),
            ("HTTP/1.1 200", 200),
            ("HTTP/1.1 404 Not Found at all", 404),
            ("HTTP/1.1 599 \u{e9}t\u{e9}", 599),
            ("HTTP/1.1 999 Unassigned", 999),
            ("\r\n\r\nHTTP/1.1 200 OK", 200),
        ] {
            check(&format!("{line}\r\n{one}"), said(status, Length(1), true));
        }
        check("HTTP/1.1 200 OK\r\n\r\n", said(200, UntilClose, false));
        for line in [
            "HTTP/1.1 20 OK",
            "HTTP/1.1 2000 OK",
            "HTTP/1.1 2x0 OK",
            "HTTP/1.1 -20 OK",
            "HTTP/1.1 099 Below",
            "HTTP/1.1 000 Nothing",
            "HTTP/1.1200 OK",
            "HTTP/2.0 200 OK",
            "HTTP/1.1 200 O\u{0}K",
            "http/1.1 200 OK",
            "ICY 200 OK",
            "220 mail.test ESMTP",
            "GET / HTTP/1.1",
            "SSH-2.0-OpenSSH_9.2",
            "\u{16}\u{3}\u{1}",
            " HTTP/1.1 200 OK",
        ] {
            check(&format!("{line}\r\n{one}"), None);
        }
    }

    #[test]
    fn finds_no_body_where_there_can_be_none() {
        for fields in [
            "",
            "Content-Length: 5\r\n",
            "Content-Length: x\r\n",
            "Content-Length: 5\r\nContent-Length: 6\r\n",
            "Transfer-Encoding: chunked\r\n",
            "Transfer-Encoding: gzip\r\n",
        ] {
            for status in [100, 102, 103, 199, 204, 304] {
                let text = format!("HTTP/1.1 {status} -\r\n{fields}\r\n");
                check(&text, said(status, ReplyBody::None, true));
            }
            for status in [200, 206, 302, 404, 500] {
                let text = format!("HTTP/1.1 {status} -\r\n{fields}\r\n");
                check_asked(Asked::Head, &text, said(status, ReplyBody::None, true));
            }
        }
        let other_protocol = "HTTP/1.1 101 Switching Protocols\r\nUpgrade: h2c\r\n\r\n";
        check(other_protocol, said(101, ReplyBody::None, false));
    }

    #[test]
    fn puts_codings_before_lengths() {
        use ReplyBody::{Chunked, Length, UntilClose};
        for (fields, body) in [
            ("Transfer-Encoding: chunked\r\n", Chunked),
            ("transfer-encoding:ChunKed\t \r\n", Chunked),
            ("Transfer-Encoding: gzip, chunked\r\n", Chunked),
            ("Transfer-Encoding: gzip,\r\n chunked\r\n", Chunked),
            ("Transfer-Encoding: chunked, \r\n", Chunked),
            (
                "Transfer-Encoding: gzip\r\nTransfer-Encoding: chunked\r\n",
                Chunked,
            ),
            (
                "Transfer-Encoding: chunked\r\nTransfer-Encoding: \r\n",
                Chunked,
            ),
            (
                "Content-Length: 7\r\nTransfer-Encoding: chunked\r\n",
                Chunked,
            ),
            (
                "Transfer-Encoding: chunked\r\nContent-Length: 1x\r\n",
                Chunked,
            ),
            (
                "Transfer-Encoding: chunked\r\nTransfer-Encoding: gzip\r\n",
                UntilClose,
            ),
            ("Transfer-Encoding: chunked, gzip\r\n", UntilClose),
            ("Transfer-Encoding: chunked;q=1\r\n", UntilClose),
            (
                "Transfer-Encoding: identity\r\nContent-Length: 7\r\n",
                UntilClose,
            ),
            ("Transfer-Encoding: \r\nContent-Length: 7\r\n", Length(7)),
            (
                "X-Transfer-Encodin: chunked\r\nContent-Length: 7\r\n",
                Length(7),
            ),
        ] {
            check_fields(fields, Some((body, body != UntilClose)));
        }
    }

    #[test]
    fn takes_one_length_and_no_other() {
        for (fields, expect) in [
            ("Content-Length: 0\r\n", Some(0)),
            ("content-length:\t12 \r\n", Some(12)),
            ("Content-Length: 007\r\n", Some(7)),
            ("Content-Length: 18446744073709551615\r\n", Some(u64::MAX)),
            ("Content-Length: 5\r\nContent-Length: 5\r\n", Some(5)),
            ("Content-Length: 5, 5,5\r\n", Some(5)),
            ("Content-Length: 5\r\ncontent-length: 6\r\n", None),
            ("Content-Length: 5, 6\r\n", None),
            ("Content-Length: x\r\nContent-Length: 5\r\n", None),
            ("Content-Length: 18446744073709551616\r\n", None),
            ("Content-Length: \r\n", None),
            ("Content-Length: 5,\r\n", None),
            ("Content-Length: +5\r\n", None),
            ("Content-Length: -5\r\n", None),
            ("Content-Length: 0x5\r\n", None),
            ("Content-Length: 5 5\r\n", None),
            ("Content-Length: 5\r\n 5\r\n", None),
            ("Content-Length: 5.0\r\n", None),
        ] {
            check_fields(
                fields,
                expect.map(|length| (ReplyBody::Length(length), true)),
            );
        }
    }

    #[test]
    fn tells_whether_another_request_may_follow() {
        for (version, fields, keeps) in [
            ("1.1", "", true),
            ("1.1", "Connection: close\r\n", false),
            ("1.1", "Connection: keep-alive\r\n", true),
            ("1.1", "Connection: keep-alive, Close\r\n", false),
            ("1.1", "Connection: x\r\nConnection: CLOSE\r\n", false),
            ("1.1", "Connection: ,, close,\r\n", false),
            ("1.1", "Connection: closed\r\n", true),
            ("1.1", "Proxy-Connection: close\r\n", true),
            ("1.0", "", false),
            ("1.0", "Connection: Keep-Alive\r\n", true),
            ("1.0", "Connection: keep-alive, close\r\n", false),
        ] {
            let text = format!("HTTP/{version} 200 OK\r\n{fields}Content-Length: 3\r\n\r\n");
            check(&text, said(200, ReplyBody::Length(3), keeps));
        }
        let coded =
            "HTTP/1.0 200 OK\r\nConnection: keep-alive\r\nTransfer-Encoding: chunked\r\n\r\n";
        check(coded, said(200, ReplyBody::Chunked, false));
        let unbounded = "HTTP/1.1 200 OK\r\nConnection: keep-alive\r\n\r\n";
        check(unbounded, said(200, ReplyBody::UntilClose, false));
    }

    #[test]
    fn refuses_fields_that_are_none() {
        for field in [
            "no colon",
            ": no name",
            "spa ce: x",
            "before : x",
            "a: \u{0}",
            "a: b\rc: d",
            "\u{e9}: x",
        ] {
            check_fields(&format!("Content-Length: 1\r\n{field}\r\n"), None);
        }
        check("HTTP/1.1 200 OK\r\n folded at once\r\n\r\n", None);
    }

    #[test]
    fn bounds_the_number_of_fields() {
        let fields = |len: usize| "A: b\r\n".repeat(len - 1) + "Content-Length: 1\r\n";
        check_fields(&fields(HEADERS_LEN_MAX), Some((ReplyBody::Length(1), true)));
        check_fields(&fields(HEADERS_LEN_MAX + 1), None);
    }
}
