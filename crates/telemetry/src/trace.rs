//! The trace that an exchange belongs to: the header `traceparent` (W3C Trace Context, level 2) read and written, and
//! the decision which traces are recorded.
//!
//! Takes bytes of headers and numbers, gives values and texts. Makes no random numbers.

use crate::text::digits::{hex_digits, put};

/// Bytes of `traceparent` in version 00: `00-TRACE-SPAN-FLAGS`.
pub const TRACEPARENT_BYTES: usize = 55;
/// Bytes of a context in a record.
pub(crate) const CONTEXT_BYTES: usize = 16 + 8 + 8 + 1;

/// Bytes of ` trace_id=TRACE span_id=SPAN`.
const LOG_FIELDS_BYTES: usize = 10 + 32 + 9 + 16;

/// The number of the child span of a request at its upstream.
pub(crate) const UPSTREAM_CHILD: u8 = 5;
/// That of the question to the server of `forward_auth`.
pub(crate) const AUTH_CHILD: u8 = 6;

const SAMPLED: u8 = 1;
/// The last seven bytes of the trace id are random (level 2).
const RANDOM: u8 = 2;

/// The place of an exchange in a trace. Without one, all of it is zero.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct TraceContext {
    trace: [u8; 16],
    /// The span that has caused this one; zero for the first of a trace.
    parent: u64,
    span: u64,
    flags: u8,
}

/// What a client says in `traceparent`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct TraceParent {
    trace: [u8; 16],
    span: u64,
    flags: u8,
}

/// Decides which traces are recorded, by a share of all trace ids.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Sampler {
    /// Trace ids below it are taken, of 2^56.
    below: u64,
    /// A trace that another server has begun is recorded where that one says so.
    follows_parent: bool,
}

impl TraceParent {
    /// Reads the value of the header.
    ///
    /// `None` for what the specification calls invalid: another length, digits in upper case, ids of zeros, version
    /// `ff`. A later version may have more behind the flags; what version 00 has is taken from it.
    pub fn parse(value: &[u8]) -> Option<TraceParent> {
        let (known, more) = value.split_at_checked(TRACEPARENT_BYTES)?;
        let version = hex_byte(&known[..2])?;
        let is_whole = more.is_empty() || (version > 0 && more[0] == b'-');
        let dashes = [known[2], known[35], known[52]];
        if version == 0xff || !is_whole || dashes != [b'-'; 3] {
            return None;
        }
        let mut trace = [0; 16];
        for (byte, digits) in trace.iter_mut().zip(known[3..35].chunks_exact(2)) {
            *byte = hex_byte(digits)?;
        }
        let mut span = 0;
        for digits in known[36..52].chunks_exact(2) {
            span = span << 8 | u64::from(hex_byte(digits)?);
        }
        let flags = hex_byte(&known[53..])? & (SAMPLED | RANDOM);
        let is_meant = trace != [0; 16] && span != 0;
        is_meant.then_some(TraceParent { trace, span, flags })
    }
}

impl TraceContext {
    /// Of an exchange whose span is `span`: in the trace of `parent`, or, without one, the first of the trace `made`.
    pub fn new(
        parent: Option<TraceParent>,
        made: impl FnOnce() -> [u64; 2],
        span: u64,
        sampler: &Sampler,
    ) -> TraceContext {
        // Zero is no id; a number that is mixed is zero once in 2^64.
        let span = span.max(1);
        let Some(parent) = parent else {
            let [high, low] = made();
            let number = u128::from(high) << 64 | u128::from(low.max(1));
            let trace = number.to_be_bytes();
            let flags = RANDOM | sampler.flag(&trace);
            return TraceContext {
                trace,
                parent: 0,
                span,
                flags,
            };
        };
        let flags = match sampler.follows_parent {
            true => parent.flags,
            false => (parent.flags & RANDOM) | sampler.flag(&parent.trace),
        };
        TraceContext {
            trace: parent.trace,
            parent: parent.span,
            span,
            flags,
        }
    }

    /// Whether there is one.
    pub const fn is_known(&self) -> bool {
        self.span != 0
    }

    /// Whether the trace is recorded.
    pub const fn is_sampled(&self) -> bool {
        self.flags & SAMPLED != 0
    }

    /// Whether another server, or the client, has begun the trace.
    pub const fn has_parent(&self) -> bool {
        self.parent != 0
    }

    /// The header as the application gets it: the span of this exchange is the parent of its spans.
    pub fn header(&self) -> [u8; TRACEPARENT_BYTES] {
        self.header_of(&self.span_id())
    }

    /// The header as an upstream gets it: its parent is the span of the exchange at the upstream.
    pub fn upstream_header(&self) -> [u8; TRACEPARENT_BYTES] {
        self.header_of(&self.child_id(UPSTREAM_CHILD))
    }

    /// The header as the server of `forward_auth` gets it: its parent is the span of the question.
    pub fn auth_header(&self) -> [u8; TRACEPARENT_BYTES] {
        self.header_of(&self.child_id(AUTH_CHILD))
    }

    fn header_of(&self, span: &[u8; 16]) -> [u8; TRACEPARENT_BYTES] {
        let ([high, low], _) = self.numbers();
        let mut text = *b"00-                                -                -00";
        put(&mut text[3..], hex_digits(high));
        put(&mut text[19..], hex_digits(low));
        put(&mut text[36..], *span);
        // Of the flags that are known, none is in the first digit.
        text[54] += self.flags;
        text
    }

    /// The ids of the trace, as two numbers, and of the exchange's span.
    pub(crate) fn numbers(&self) -> ([u64; 2], u64) {
        let trace = u128::from_be_bytes(self.trace);
        ([(trace >> 64) as u64, trace as u64], self.span)
    }

    /// The ids of the trace and of the exchange's span, as a line of a log has them.
    pub(crate) fn log_fields(&self) -> [u8; LOG_FIELDS_BYTES] {
        let ([high, low], span) = self.numbers();
        let mut text = *b" trace_id=                                 span_id=                ";
        put(&mut text[10..], hex_digits(high));
        put(&mut text[26..], hex_digits(low));
        put(&mut text[51..], hex_digits(span));
        text
    }

    /// The id of the trace, 32 hexadecimal digits.
    #[inline]
    pub fn trace_id(&self) -> [u8; 32] {
        let mut text = [0; 32];
        let ([high, low], _) = self.numbers();
        put(&mut text, hex_digits(high));
        put(&mut text[16..], hex_digits(low));
        text
    }

    /// The id of the exchange's span, 16 hexadecimal digits.
    pub fn span_id(&self) -> [u8; 16] {
        hex_digits(self.span)
    }

    /// The id of the span that has caused it; `None` for the first of a trace.
    pub fn parent_id(&self) -> Option<[u8; 16]> {
        self.has_parent().then(|| hex_digits(self.parent))
    }

    /// The id of the child span with this number, which no other span of the exchange has.
    pub fn child_id(&self, number: u8) -> [u8; 16] {
        let mixed = crate::record::mix(self.span ^ u64::from(number) << 56).max(1);
        hex_digits(mixed)
    }

    /// The flags as OpenTelemetry's spans have them.
    pub const fn flags(&self) -> u8 {
        self.flags
    }

    pub(crate) fn to_bytes(self) -> [u8; CONTEXT_BYTES] {
        let mut bytes = [0; CONTEXT_BYTES];
        put(&mut bytes, self.trace);
        put(&mut bytes[16..], self.parent.to_le_bytes());
        put(&mut bytes[24..], self.span.to_le_bytes());
        bytes[32] = self.flags;
        bytes
    }

    /// What `to_bytes` has written; nothing is no context.
    pub(crate) fn from_bytes(bytes: &[u8]) -> Option<TraceContext> {
        if bytes.is_empty() {
            return Some(TraceContext::default());
        }
        let (trace, rest) = bytes.split_first_chunk::<16>()?;
        let (parent, rest) = rest.split_first_chunk::<8>()?;
        let (span, rest) = rest.split_first_chunk::<8>()?;
        let [flags] = *rest else { return None };
        Some(TraceContext {
            trace: *trace,
            parent: u64::from_le_bytes(*parent),
            span: u64::from_le_bytes(*span),
            flags: flags & (SAMPLED | RANDOM),
        })
    }
}

impl Sampler {
    /// Takes this share of traces, from 0 to 1. With `follows_parent`, a trace that was begun elsewhere is recorded
    /// where its flags say so.
    pub fn new(share: f64, follows_parent: bool) -> Sampler {
        let share = share.clamp(0.0, 1.0);
        Sampler {
            below: (share * (1_u64 << 56) as f64) as u64,
            follows_parent,
        }
    }

    /// By the last seven bytes, which are random: each server with the same share takes the same traces.
    fn flag(&self, trace: &[u8; 16]) -> u8 {
        let random = trace[9..]
            .iter()
            .fold(0_u64, |number, byte| number << 8 | u64::from(*byte));
        match random < self.below {
            true => SAMPLED,
            false => 0,
        }
    }
}

/// Two hexadecimal digits; the specification has no upper case.
fn hex_byte(digits: &[u8]) -> Option<u8> {
    let digit = |digit: u8| match digit {
        b'0'..=b'9' => Some(digit - b'0'),
        b'a'..=b'f' => Some(digit - b'a' + 10),
        _ => None,
    };
    match *digits {
        [high, low] => Some(digit(high)? << 4 | digit(low)?),
        _ => None,
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    pub(crate) const NONE: TraceContext = TraceContext {
        trace: [0; 16],
        parent: 0,
        span: 0,
        flags: 0,
    };

    pub(crate) fn sample() -> TraceContext {
        let parent = TraceParent::parse(format!("00-{TRACE}-{SPAN}-01").as_bytes());
        TraceContext::new(parent, || [0, 0], 7, &Sampler::new(1.0, true))
    }

    const TRACE: &str = "0af7651916cd43dd8448eb211c80319c";
    const SPAN: &str = "b7ad6b7169203331";

    fn said(value: &str) -> String {
        let Some(parent) = TraceParent::parse(value.as_bytes()) else {
            return "invalid".to_owned();
        };
        let sampler = Sampler::new(0.0, true);
        let made = || unreachable!("there is a parent");
        let context = TraceContext::new(Some(parent), made, 0x1234, &sampler);
        String::from_utf8(context.header().to_vec()).unwrap()
    }

    /// The cases of the test suite of W3C (`test/test.py`), by their names there.
    #[test]
    fn reads_what_the_specification_calls_valid_and_nothing_else() {
        let check = |value: String, expect: &str| assert_eq!(said(&value), expect, "{value}");
        let taken = format!("00-{TRACE}-0000000000001234-01");
        check(format!("00-{TRACE}-{SPAN}-01"), &taken);
        // test_traceparent_trace_flags_*: flags that are not known are not handed on.
        check(
            format!("00-{TRACE}-{SPAN}-ff"),
            &taken.replace("-01", "-03"),
        );
        check(
            format!("00-{TRACE}-{SPAN}-00"),
            &taken.replace("-01", "-00"),
        );
        // test_traceparent_version_0xcc and _0xff.
        check(format!("cc-{TRACE}-{SPAN}-01"), &taken);
        check(format!("cc-{TRACE}-{SPAN}-01-what-the-future"), &taken);
        for invalid in [
            String::new(),
            format!("cc-{TRACE}-{SPAN}-01.what"),
            format!("ff-{TRACE}-{SPAN}-01"),
            // test_traceparent_version_illegal_characters, _too_long, _too_short.
            format!(".0-{TRACE}-{SPAN}-01"),
            format!("0.-{TRACE}-{SPAN}-01"),
            format!("000-{TRACE}-{SPAN}-01"),
            format!("0000-{TRACE}-{SPAN}-01"),
            format!("0-{TRACE}-{SPAN}-01"),
            // test_traceparent_trace_id_all_zero, _illegal_characters, _too_long, _too_short.
            format!("00-{}-{SPAN}-01", "0".repeat(32)),
            format!("00-.{}-{SPAN}-01", &TRACE[1..]),
            format!("00-{}.-{SPAN}-01", &TRACE[1..]),
            format!("00-{TRACE}00-{SPAN}-01"),
            format!("00-{}-{SPAN}-01", &TRACE[2..]),
            format!("00-{}-{SPAN}-01", TRACE.to_uppercase()),
            // test_traceparent_parent_id_*.
            format!("00-{TRACE}-{}-01", "0".repeat(16)),
            format!("00-{TRACE}-.{}-01", &SPAN[1..]),
            format!("00-{TRACE}-{SPAN}00-01"),
            format!("00-{TRACE}-{}-01", &SPAN[2..]),
            format!("00-{TRACE}-{}-01", SPAN.to_uppercase()),
            // test_traceparent_trace_flags_illegal_characters, _too_long, _too_short.
            format!("00-{TRACE}-{SPAN}-.0"),
            format!("00-{TRACE}-{SPAN}-0."),
            format!("00-{TRACE}-{SPAN}-001"),
            format!("00-{TRACE}-{SPAN}-1"),
            format!("00-{TRACE}-{SPAN}-01-what-the-future"),
            format!("00_{TRACE}-{SPAN}-01"),
            format!("00-{TRACE}_{SPAN}-01"),
            format!("00-{TRACE}-{SPAN}_01"),
        ] {
            check(invalid, "invalid");
        }
    }

    #[test]
    fn a_new_trace_has_ids_that_are_not_zero_and_no_parent() {
        let sampler = Sampler::new(1.0, true);
        let context = TraceContext::new(None, || [0, 0], 0, &sampler);
        let header = context.header();
        assert!(TraceParent::parse(&header).is_some());
        assert!(header.ends_with(b"-03") && context.is_sampled() && context.is_known());
        assert_eq!(context.parent_id(), None);
        assert!(!TraceContext::default().is_known());
        let children = [0, 1, 2].map(|number| context.child_id(number));
        assert!(children[0] != children[1] && children[1] != children[2]);
    }

    #[test]
    fn samples_the_share_that_was_asked_for() {
        let taken = |share: f64| {
            let sampler = Sampler::new(share, true);
            let all = (0..10_000_u64).map(|number| {
                let made = || [1, crate::record::mix(number + 1)];
                TraceContext::new(None, made, 1, &sampler)
            });
            all.filter(TraceContext::is_sampled).count()
        };
        assert_eq!((taken(0.0), taken(1.0)), (0, 10_000));
        assert!((60..140).contains(&taken(0.01)), "{}", taken(0.01));
    }

    #[test]
    fn a_sampler_follows_its_parent_or_does_not() {
        let parent = |flags: &str| {
            let header = format!("00-{TRACE}-{SPAN}-{flags}");
            TraceParent::parse(header.as_bytes()).unwrap()
        };
        let check = |flags: &str, share: f64, follows: bool, expect: bool| {
            let sampler = Sampler::new(share, follows);
            let context = TraceContext::new(Some(parent(flags)), || [1, 1], 1, &sampler);
            assert_eq!(context.is_sampled(), expect, "{flags} {share} {follows}");
        };
        check("01", 0.0, true, true);
        check("00", 1.0, true, false);
        check("01", 0.0, false, false);
        check("00", 1.0, false, true);
    }

    #[test]
    fn comes_back_from_its_bytes() {
        let sampler = Sampler::new(1.0, true);
        let context = TraceContext::new(None, || [3, 4], 5, &sampler);
        assert_eq!(TraceContext::from_bytes(&context.to_bytes()), Some(context));
        let none = TraceContext::default();
        assert_eq!(TraceContext::from_bytes(b""), Some(none));
        assert_eq!(TraceContext::from_bytes(&context.to_bytes()[1..]), None);
    }
}
