//! The reply that is being read on one connection: where it ends, and whether it is right.
//!
//! Takes bytes as they arrive, gives the end of each reply and the bytes used. Pure but for the first bodies
//! that several threads agree on. A connection allocates when a head comes in pieces, of which it keeps a part for
//! the replies to come, and for each body that is decoded or checked.

use std::sync::OnceLock;

use http::{Asked, BodyDecoder, BodyFraming, Limits, ReplyBody, ReplyHead, ReplyHeadStep};
use sha2::{Digest, Sha256};

use crate::outcome::Failure;
use crate::plan::{Expect, ExpectBody, Request};

/// A head that is longer is no reply.
const HEAD_BYTES_MAX: usize = 64 * 1024;
/// An idle connection keeps no more than this of the memory for heads in pieces.
const KEPT_BYTES_MAX: usize = 512;

/// What a reply to one kind of request has to be; shared by all threads.
#[derive(Debug)]
pub(crate) struct Expected {
    pub(crate) asked: Asked,
    pub(crate) expect: Expect,
    /// The checksum of the first body, where all have to be the same.
    first: OnceLock<[u8; 32]>,
}

impl Expected {
    /// For one kind; `general` is what the plan says of all kinds.
    pub(crate) fn of(request: &Request, general: &Expect) -> Expected {
        Expected {
            asked: request.method,
            expect: request.expect.as_ref().unwrap_or(general).clone(),
            first: OnceLock::new(),
        }
    }

    /// Whether a body is summed; replies to HEAD have none that could be right or wrong.
    pub(super) fn has_sum(&self) -> bool {
        self.asked != Asked::Head && self.expect.body != ExpectBody::Any
    }

    /// The end of a reply with this status and so many bytes of body, behind which the connection is kept.
    #[inline]
    pub(super) fn verdict(&self, status: u16, bytes: u64, sum: Option<Sha256>) -> Ended {
        let is_right_status = match self.expect.statuses.as_slice() {
            [] => (200..400).contains(&status),
            statuses => statuses.contains(&status),
        };
        let body_bytes = self.expect.body_bytes.filter(|_| self.asked != Asked::Head);
        let is_right_sum = |sum: [u8; 32]| match self.expect.body {
            ExpectBody::Any => true,
            ExpectBody::SameAsFirst => *self.first.get_or_init(|| sum) == sum,
            ExpectBody::Sha256(expect) => expect == sum,
        };
        let wrong = if !is_right_status {
            // Before the sum is taken: a body that came with a wrong status is no first one for the others.
            Some(Failure::Status)
        } else if body_bytes.is_some_and(|expect| expect != bytes)
            || sum.is_some_and(|sum| !is_right_sum(sum.finalize().into()))
        {
            Some(Failure::Body)
        } else {
            None
        };
        Ended {
            status,
            keeps: true,
            wrong,
        }
    }
}

/// A reply at its end.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Ended {
    pub(crate) status: u16,
    /// Whether another request may be sent on this connection.
    pub(crate) keeps: bool,
    /// What is wrong with it: [`Failure::Short`], [`Failure::Status`] or [`Failure::Body`].
    pub(crate) wrong: Option<Failure>,
}

/// Bytes of the input that belong to this reply, and the reply's end, if it is there.
pub(crate) type Parsed = (usize, Option<Ended>);

/// The reply that is being read on one connection.
#[derive(Debug, Default)]
pub(crate) struct ResponseParser {
    /// The body that is being read; `None`: the next byte belongs to a head.
    body: Option<Box<Body>>,
    /// The beginning of a head that came in pieces.
    begun: Vec<u8>,
}

/// A body that is decoded or checked, or was not there as a whole.
#[derive(Debug)]
struct Body {
    head: ReplyHead,
    decoder: BodyDecoder,
    sum: Option<Sha256>,
}

impl ResponseParser {
    /// Forgets everything: the connection is another one.
    pub(crate) fn reset(&mut self) {
        self.body = None;
        self.forget_begun();
    }

    /// Whether not a byte of a reply was read.
    pub(crate) fn is_untouched(&self) -> bool {
        self.body.is_none() && self.begun.is_empty()
    }

    /// Reads on, up to the end of the reply. After an end the next call reads the next reply.
    #[inline]
    pub(crate) fn feed(&mut self, input: &[u8], standard: &Expected) -> Parsed {
        let mut used = 0;
        // A loop, not a recursion: a peer may send any number of interim replies.
        while used < input.len() {
            let rest = &input[used..];
            let (more, ended) = match &mut self.body {
                None => self.head(rest, standard),
                Some(body) => body.feed(rest, standard),
            };
            used += more;
            if ended.is_some() {
                self.body = None;
                return (used, ended);
            }
        }
        (used, None)
    }

    /// The connection has ended: the end of a reply without a length, or a short one. Not to be called
    /// before the first byte of a reply.
    pub(crate) fn close(&mut self, standard: &Expected) -> Ended {
        let ended = match &mut self.body {
            Some(body) if body.head.body == ReplyBody::UntilClose => body.verdict(standard),
            Some(body) => short(body.head.status),
            None => short(0),
        };
        self.reset();
        ended
    }

    #[inline]
    fn head(&mut self, input: &[u8], standard: &Expected) -> Parsed {
        let before = self.begun.len();
        let parsed = if before == 0 {
            ReplyHead::parse(input, standard.asked)
        } else {
            self.begun.extend_from_slice(input);
            // A head ends with a line: a server that sends it byte by byte is not to cost its square.
            match input.contains(&b'\n') {
                true => ReplyHead::parse(&self.begun, standard.asked),
                false => Ok(ReplyHeadStep::Partial),
            }
        };
        match parsed {
            Ok(ReplyHeadStep::Complete(head)) if head.bytes <= HEAD_BYTES_MAX => {
                self.forget_begun();
                // The bytes before were no whole head, so that its end lies within the new ones.
                assert!(
                    head.bytes > before,
                    "a head ends in the piece that completes it"
                );
                let used = head.bytes - before;
                self.headed(head, &input[used..], used, standard)
            }
            Ok(ReplyHeadStep::Partial) if before + input.len() <= HEAD_BYTES_MAX => {
                if before == 0 {
                    self.begun.extend_from_slice(input);
                }
                (input.len(), None)
            }
            _ => {
                self.forget_begun();
                (input.len(), Some(short(0)))
            }
        }
    }

    fn forget_begun(&mut self) {
        self.begun.clear();
        self.begun.shrink_to(KEPT_BYTES_MAX);
    }

    /// Behind a head: `rest` is what follows the `used` bytes of the input.
    #[inline]
    fn headed(&mut self, head: ReplyHead, rest: &[u8], used: usize, standard: &Expected) -> Parsed {
        // An interim reply: the real one follows. Behind 101 there is none, RFC 9110 section 15.2.2.
        if head.status < 200 && head.status != 101 {
            return (used, None);
        }
        // The common case without a block: a body that is there as a whole and is not looked at.
        let body_bytes = match head.body {
            ReplyBody::None => Some(0),
            ReplyBody::Length(bytes) => Some(bytes).filter(|bytes| *bytes <= rest.len() as u64),
            ReplyBody::Chunked | ReplyBody::UntilClose => None,
        };
        if let Some(bytes) = body_bytes.filter(|_| !standard.has_sum()) {
            let ended = Ended {
                keeps: head.keeps,
                ..standard.verdict(head.status, bytes, None)
            };
            return (used + bytes as usize, Some(ended));
        }
        let body = self.body.insert(Box::new(Body::new(head, standard)));
        // What is empty ends here: no further byte would be needed for that, and none may come.
        let is_done = body.decoder.is_done();
        (used, is_done.then(|| body.verdict(standard)))
    }
}

impl Body {
    fn new(head: ReplyHead, standard: &Expected) -> Body {
        // Bodies of any size are right here: nothing of them is kept.
        let limits = Limits {
            body_bytes_max: u64::MAX,
            ..Limits::default()
        };
        let framing = match head.body {
            ReplyBody::None => BodyFraming::None,
            ReplyBody::Length(bytes) => BodyFraming::Length(bytes),
            ReplyBody::Chunked => BodyFraming::Chunked,
            // No connection lives long enough for so many bytes: its end ends the body.
            ReplyBody::UntilClose => BodyFraming::Length(u64::MAX),
        };
        let decoder = BodyDecoder::new(framing, &limits);
        Body {
            head,
            decoder: decoder.expect("no length is over the greatest number"),
            sum: standard.has_sum().then(Sha256::new),
        }
    }

    fn feed(&mut self, input: &[u8], standard: &Expected) -> Parsed {
        let mut used = 0;
        while used < input.len() {
            let Ok(decoded) = self.decoder.decode(&input[used..]) else {
                return (input.len(), Some(short(self.head.status)));
            };
            if let Some(sum) = &mut self.sum {
                sum.update(&input[used..][decoded.data]);
            }
            used += decoded.consumed;
            if self.decoder.is_done() {
                return (used, Some(self.verdict(standard)));
            }
        }
        (used, None)
    }

    fn verdict(&mut self, standard: &Expected) -> Ended {
        let bytes = self.decoder.bytes_out();
        Ended {
            keeps: self.head.keeps,
            ..standard.verdict(self.head.status, bytes, self.sum.take())
        }
    }
}

/// A reply that is none, or that ended before its end.
fn short(status: u16) -> Ended {
    Ended {
        status,
        // What follows is not known to be a reply, so that the connection is of no use any more.
        keeps: false,
        wrong: Some(Failure::Short),
    }
}

#[cfg(test)]
mod tests;
