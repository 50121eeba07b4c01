//! The reply that is being read on one connection: where it ends, and whether it is right.
//!
//! Takes bytes as they arrive, gives the end of each reply and the bytes used. Pure but for the first bodies
//! that several threads agree on. A connection allocates when a head comes in pieces and when a body is
//! decoded or checked, and keeps both blocks for the replies to come (of a long head's block a part).

use std::sync::OnceLock;

use http::{Asked, BodyDecoder, BodyFraming, Limits, ReplyBody, ReplyHead, ReplyHeadStep};
use sha2::{Digest, Sha256};

use crate::plan::{Expect, ExpectBody, Method, Request};

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
            asked: match request.method {
                Method::Head => Asked::Head,
                Method::Other => Asked::Other,
            },
            expect: request.expect.as_ref().unwrap_or(general).clone(),
            first: OnceLock::new(),
        }
    }

    /// Replies to HEAD have no bodies that could be right or wrong.
    fn check(&self) -> Check {
        match (self.asked, self.expect.body) {
            (Asked::Head, _) | (_, ExpectBody::Any) => Check::Bytes,
            (_, ExpectBody::SameAsFirst | ExpectBody::Sha256(_)) => Check::Sum,
        }
    }

    fn is_right_length(&self, bytes: u64) -> bool {
        self.asked == Asked::Head || self.expect.body_bytes.is_none_or(|expect| expect == bytes)
    }

    fn is_right_status(&self, status: u16) -> bool {
        match self.expect.statuses.as_slice() {
            [] => (200..400).contains(&status),
            statuses => statuses.contains(&status),
        }
    }

    fn is_right_sum(&self, sum: [u8; 32]) -> bool {
        match self.expect.body {
            ExpectBody::Any => true,
            ExpectBody::SameAsFirst => *self.first.get_or_init(|| sum) == sum,
            ExpectBody::Sha256(expect) => expect == sum,
        }
    }
}

/// How a body is looked at.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Check {
    /// Counted.
    Bytes,
    /// Counted and summed.
    Sum,
}

/// What is wrong with a reply that was read to its end, or could not be.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Wrong {
    /// It ended before its end, or is no HTTP.
    Short,
    /// Another status.
    Status,
    /// Another length or checksum.
    Body,
}

/// A reply at its end.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Ended {
    pub(crate) status: u16,
    /// Whether another request may be sent on this connection.
    pub(crate) keeps: bool,
    pub(crate) wrong: Option<Wrong>,
}

/// What one call took.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Parsed {
    /// Bytes of the input that belong to this reply.
    pub(crate) used: usize,
    /// The reply's end, if it is there.
    pub(crate) ended: Option<Ended>,
}

impl Parsed {
    fn all_of(input: &[u8], ended: Option<Ended>) -> Parsed {
        Parsed {
            used: input.len(),
            ended,
        }
    }
}

/// The reply that is being read on one connection.
#[derive(Debug, Default)]
pub(crate) struct ResponseParser {
    state: ParserState,
    /// The beginning of a head that came in pieces.
    begun: Vec<u8>,
    /// The block of an earlier body, for the next one.
    spare: Option<Box<Body>>,
}

#[derive(Debug, Default)]
enum ParserState {
    #[default]
    Head,
    Body(Box<Body>),
    /// The common case without a block of its own: a plain length, any body.
    Length {
        left: u64,
        head: ReplyHead,
    },
}

/// A body that is decoded or checked.
#[derive(Debug)]
struct Body {
    head: ReplyHead,
    rest: BodyRest,
    bytes: u64,
    sum: Option<Sha256>,
}

#[derive(Debug)]
enum BodyRest {
    Length(u64),
    Chunked(BodyDecoder),
    UntilClose,
}

impl ResponseParser {
    /// Forgets everything: the connection is another one.
    pub(crate) fn reset(&mut self) {
        self.begin_next();
        self.forget_begun();
    }

    /// Whether not a byte of a reply was read.
    pub(crate) fn is_untouched(&self) -> bool {
        matches!(self.state, ParserState::Head) && self.begun.is_empty()
    }

    /// Reads on, up to the end of the reply. After an end the next call reads the next reply.
    #[inline]
    pub(crate) fn feed(&mut self, input: &[u8], standard: &Expected) -> Parsed {
        let mut used = 0;
        // A loop, not a recursion: a peer may send any number of interim replies.
        while used < input.len() {
            let parsed = self.step(&input[used..], standard);
            used += parsed.used;
            if parsed.ended.is_some() {
                self.begin_next();
                return Parsed {
                    used,
                    ended: parsed.ended,
                };
            }
        }
        Parsed { used, ended: None }
    }

    /// The next byte is the first one of a reply.
    #[inline]
    fn begin_next(&mut self) {
        if let ParserState::Body(body) = std::mem::take(&mut self.state) {
            self.spare = Some(body);
        }
    }

    #[inline]
    fn step(&mut self, input: &[u8], standard: &Expected) -> Parsed {
        match &mut self.state {
            ParserState::Head => self.head(input, standard),
            ParserState::Length { left, head } => {
                let used = part(*left, input);
                *left -= used as u64;
                let ended = (*left == 0).then(|| verdict(head, standard, length_of(head), None));
                Parsed { used, ended }
            }
            ParserState::Body(body) => body.feed(input, standard),
        }
    }

    /// The connection has ended: the end of a reply without a length, or a short one. Not to be called
    /// before the first byte of a reply.
    pub(crate) fn close(&mut self, standard: &Expected) -> Ended {
        let ended = match &mut self.state {
            ParserState::Body(body) if matches!(body.rest, BodyRest::UntilClose) => {
                body.verdict(standard)
            }
            ParserState::Body(body) => short(body.head.status),
            ParserState::Length { head, .. } => short(head.status),
            ParserState::Head => short(0),
        };
        self.reset();
        ended
    }

    #[inline]
    fn head(&mut self, input: &[u8], standard: &Expected) -> Parsed {
        if !self.begun.is_empty() {
            return self.head_in_pieces(input, standard);
        }
        match ReplyHead::parse(input, standard.asked) {
            Ok(ReplyHeadStep::Complete(head)) if head.bytes <= HEAD_BYTES_MAX => {
                self.headed(head, &input[head.bytes..], head.bytes, standard)
            }
            Ok(ReplyHeadStep::Partial) if input.len() <= HEAD_BYTES_MAX => {
                self.begun.extend_from_slice(input);
                Parsed::all_of(input, None)
            }
            _ => Parsed::all_of(input, Some(short(0))),
        }
    }

    #[cold]
    fn head_in_pieces(&mut self, input: &[u8], standard: &Expected) -> Parsed {
        let before = self.begun.len();
        self.begun.extend_from_slice(input);
        // A head ends with a line: whoever sends it byte by byte is not to cost its square.
        let parsed = if input.contains(&b'\n') {
            ReplyHead::parse(&self.begun, standard.asked)
        } else {
            Ok(ReplyHeadStep::Partial)
        };
        match parsed {
            Ok(ReplyHeadStep::Complete(head)) if head.bytes <= HEAD_BYTES_MAX => {
                self.forget_begun();
                let used = head.bytes - before;
                self.headed(head, &input[used..], used, standard)
            }
            Ok(ReplyHeadStep::Partial) if self.begun.len() <= HEAD_BYTES_MAX => {
                Parsed::all_of(input, None)
            }
            _ => {
                self.forget_begun();
                Parsed::all_of(input, Some(short(0)))
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
            return Parsed { used, ended: None };
        }
        let check = standard.check();
        let (body_bytes, left) = match (head.body, check) {
            (ReplyBody::None | ReplyBody::Length(0), Check::Bytes) => (0, 0),
            (ReplyBody::Length(length), Check::Bytes) => (part(length, rest), length),
            (body, check) => return self.bodied(head, body, check, used, standard),
        };
        let left = left - body_bytes as u64;
        if left > 0 {
            self.state = ParserState::Length { left, head };
        }
        Parsed {
            used: used + body_bytes,
            ended: (left == 0).then(|| verdict(&head, standard, length_of(&head), None)),
        }
    }

    /// Before a body that is decoded or checked.
    fn bodied(
        &mut self,
        head: ReplyHead,
        body: ReplyBody,
        check: Check,
        used: usize,
        standard: &Expected,
    ) -> Parsed {
        let body = Body::new(head, body, check);
        let mut block = match self.spare.take() {
            Some(mut block) => {
                *block = body;
                block
            }
            None => Box::new(body),
        };
        // What is empty ends here: no further byte would be needed for that, and none may come.
        let is_done = matches!(block.rest, BodyRest::Length(0));
        let ended = is_done.then(|| block.verdict(standard));
        self.state = ParserState::Body(block);
        Parsed { used, ended }
    }
}

impl Body {
    fn new(head: ReplyHead, body: ReplyBody, check: Check) -> Body {
        // Bodies of any size are right here: nothing of them is kept.
        let limits = Limits {
            body_bytes_max: u64::MAX,
            ..Limits::default()
        };
        let rest = match body {
            ReplyBody::None => BodyRest::Length(0),
            ReplyBody::Length(left) => BodyRest::Length(left),
            ReplyBody::UntilClose => BodyRest::UntilClose,
            ReplyBody::Chunked => {
                let decoder = BodyDecoder::new(BodyFraming::Chunked, &limits);
                BodyRest::Chunked(decoder.expect("no length is declared that could be refused"))
            }
        };
        Body {
            head,
            rest,
            bytes: 0,
            sum: (check == Check::Sum).then(Sha256::new),
        }
    }

    fn feed(&mut self, input: &[u8], standard: &Expected) -> Parsed {
        let (used, is_done) = match &mut self.rest {
            BodyRest::UntilClose => (input.len(), false),
            BodyRest::Length(left) => {
                let used = part(*left, input);
                *left -= used as u64;
                (used, *left == 0)
            }
            BodyRest::Chunked(_) => return self.feed_chunked(input, standard),
        };
        self.take(&input[..used]);
        Parsed {
            used,
            ended: is_done.then(|| self.verdict(standard)),
        }
    }

    fn feed_chunked(&mut self, input: &[u8], standard: &Expected) -> Parsed {
        let mut used = 0;
        while used < input.len() {
            let BodyRest::Chunked(decoder) = &mut self.rest else {
                break;
            };
            let Ok(decoded) = decoder.decode(&input[used..]) else {
                return Parsed {
                    used: input.len(),
                    ended: Some(short(self.head.status)),
                };
            };
            let is_done = decoder.is_done();
            let data = used + decoded.data.start..used + decoded.data.end;
            used += decoded.consumed;
            self.take(&input[data]);
            if is_done {
                return Parsed {
                    used,
                    ended: Some(self.verdict(standard)),
                };
            }
        }
        Parsed { used, ended: None }
    }

    fn take(&mut self, data: &[u8]) {
        self.bytes += data.len() as u64;
        if let Some(sum) = &mut self.sum {
            sum.update(data);
        }
    }

    fn verdict(&mut self, standard: &Expected) -> Ended {
        verdict(&self.head, standard, self.bytes, self.sum.take())
    }
}

/// How many of `left` bytes are here.
#[inline]
fn part(left: u64, input: &[u8]) -> usize {
    usize::try_from(left).map_or(input.len(), |left| left.min(input.len()))
}

fn length_of(head: &ReplyHead) -> u64 {
    match head.body {
        ReplyBody::Length(length) => length,
        _ => 0,
    }
}

#[inline]
fn verdict(head: &ReplyHead, standard: &Expected, bytes: u64, sum: Option<Sha256>) -> Ended {
    let wrong = if !standard.is_right_status(head.status) {
        Some(Wrong::Status)
    } else if !standard.is_right_length(bytes)
        || sum.is_some_and(|sum| !standard.is_right_sum(sum.finalize().into()))
    {
        Some(Wrong::Body)
    } else {
        None
    };
    Ended {
        status: head.status,
        keeps: head.keeps,
        wrong,
    }
}

/// What follows is not known to be a reply, so that the connection is of no use any more.
fn short(status: u16) -> Ended {
    Ended {
        status,
        keeps: false,
        wrong: Some(Wrong::Short),
    }
}

#[cfg(test)]
mod tests;
