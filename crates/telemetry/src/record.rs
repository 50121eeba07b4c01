//! What an exchange was: its phases, what it found at its pool's queue, its id, and all of it as the record that becomes
//! a line of the access log.
//!
//! The thread that ends an exchange encodes its record into a buffer, and the log thread decodes and formats it: the bytes
//! between them are this file. It must not read a clock, count or format, nor know where the bytes go.
//!
//! ```text
//! ┌ bytes of the whole record, u32 ┐┌ numbers, fixed ┐┌ 15 lengths, u16 ┐┌ upstream ┐┌ the strings, one after another ┐
//! ```
//! Only a record of an exchange that was sent to an upstream has the facts of that.
//! All numbers are little-endian. The layout lives only inside one process and may change freely.

use std::num::NonZeroU32;

use crate::text::digits::hex_digits;
use crate::upstream_facts::{UPSTREAM_BYTES, UpstreamFacts};
use crate::{
    AuthFacts, LoopFacts, Nanos, Phases, ResetBy, Stamp, StreamFacts, TraceContext, WebSocketFacts,
};

/// How things stood at a pool when an exchange came to its queue.
///
/// A pool that takes exchanges has at least one thread: `threads` of 0 says that this one came to none, and
/// then only `before` means anything ([`Queued::is_known`]).
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Queued {
    /// How long it had waited before it reached this server, as a proxy in front says; zero when nobody
    /// says so. No part of any phase.
    pub before: Nanos,
    /// Exchanges that waited in the queue already.
    pub waiting: u32,
    /// Threads that the pool had.
    pub threads: u32,
    /// Threads of them that had nothing to do.
    pub idle: u32,
    /// No thread was free for it: it waited in the queue until one was.
    pub from_queue: bool,
}

impl Queued {
    /// Whether it came to a pool's queue at all.
    pub const fn is_known(&self) -> bool {
        self.threads > 0
    }
}

/// How an exchange ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Ending {
    /// The reply was fully taken by the kernel.
    Complete,
    /// Answered by the server itself before a handler ran.
    Refused,
    /// The client left or reset the connection.
    PeerGone,
    /// The server cut it: the application died in mid-body or gave a short body.
    Cut,
    /// The application took longer than it may: the client got a 504, or the response was cut.
    Timeout,
    /// The client did not take the reply in time.
    SendTimeout,
    /// Cut at the end of `drain_timeout`.
    Shutdown,
    /// Nobody said how it ended: a bug of the server.
    #[default]
    Lost,
}

impl Ending {
    pub(crate) const ALL: [Ending; 8] = [
        Ending::Complete,
        Ending::Refused,
        Ending::PeerGone,
        Ending::Cut,
        Ending::Timeout,
        Ending::SendTimeout,
        Ending::Shutdown,
        Ending::Lost,
    ];

    /// The word in the log.
    pub const fn text(self) -> &'static str {
        match self {
            Ending::Complete => "complete",
            Ending::Refused => "refused",
            Ending::PeerGone => "peer-gone",
            Ending::Cut => "cut",
            Ending::Timeout => "timeout",
            Ending::SendTimeout => "send-timeout",
            Ending::Shutdown => "shutdown",
            Ending::Lost => "lost",
        }
    }
}

/// A record's pool when the exchange went through none.
pub const NO_POOL: u16 = u16::MAX;

/// What the access log knows about an exchange. Strings are borrowed; an empty one means "not known".
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Record<'a> {
    /// Number of the exchange, unique in its process; the text form is made of it.
    pub id: u64,
    /// The id that a trusted client gave; empty: the id is made of `id`.
    pub request_id: &'a [u8],
    /// Its place in a trace.
    pub trace: TraceContext,
    /// The client sees HTTPS.
    pub is_https: bool,
    /// When it passed each point of its way.
    pub phases: Phases,
    /// What it found at its pool's queue.
    pub queued: Queued,
    /// Its stream.
    pub stream: StreamFacts,
    /// The WebSocket connection that it became.
    pub websocket: WebSocketFacts,
    /// Its steps on an event loop.
    pub event_loop: LoopFacts,
    /// The upstream that has answered it.
    pub upstream: UpstreamFacts,
    /// The server that was asked whether it may pass.
    pub auth: AuthFacts,
    /// Wall time of `phases.arrived`, nanoseconds since 1970 UTC. The log thread fills it before
    /// formatting; it is 0 when encoded.
    pub wall_arrived_ns: u64,
    /// The client's address without port, or `unix:`.
    pub client: &'a [u8],
    /// The address of the connection's other end, without port, or `unix:`: the client's, or that of a proxy.
    pub peer: &'a [u8],
    /// The method.
    pub method: &'a [u8],
    /// The request target as it was received.
    pub target: &'a [u8],
    /// The protocol version, for example `HTTP/1.1`.
    pub version: &'a [u8],
    /// Only for a refused head that could not be parsed: its raw first line, at most 256 bytes.
    pub request_line: &'a [u8],
    /// The Host header or authority.
    pub host: &'a [u8],
    /// The Referer header.
    pub referer: &'a [u8],
    /// The User-Agent header.
    pub user_agent: &'a [u8],
    /// The authenticated user.
    pub user: &'a [u8],
    /// Status code; 0 when no reply was begun.
    pub status: u16,
    /// Bytes of the reply's body that the kernel really took.
    pub body_bytes: u64,
    /// All bytes that the kernel took, heads and framing included.
    pub sent_bytes: u64,
    /// Bytes of the request, head included.
    pub request_bytes: u64,
    /// How it ended.
    pub ending: Ending,
    /// Index of the route; its name is given to the writer of the log.
    pub route: u16,
    /// Index of the pool that it went through; [`NO_POOL`] for an inline reply.
    pub pool: u16,
    /// Index of the driver.
    pub driver: u16,
    /// Why it was refused or cut; else empty.
    pub cause: &'a [u8],
    /// The words of a [`TlsRecord`](crate::TlsRecord); empty without TLS.
    pub tls: &'a [u8],
}

impl Default for Record<'_> {
    fn default() -> Self {
        Record {
            id: 0,
            request_id: b"",
            trace: TraceContext::default(),
            is_https: false,
            phases: Phases::default(),
            queued: Queued::default(),
            stream: StreamFacts::default(),
            websocket: WebSocketFacts::default(),
            event_loop: LoopFacts::default(),
            upstream: UpstreamFacts::default(),
            auth: AuthFacts::default(),
            wall_arrived_ns: 0,
            client: b"",
            peer: b"",
            method: b"",
            target: b"",
            version: b"",
            request_line: b"",
            host: b"",
            referer: b"",
            user_agent: b"",
            user: b"",
            status: 0,
            body_bytes: 0,
            sent_bytes: 0,
            request_bytes: 0,
            ending: Ending::Lost,
            route: 0,
            pool: NO_POOL,
            driver: 0,
            cause: b"",
            tls: b"",
        }
    }
}

/// Bytes of everything before the strings.
const FIXED_BYTES: usize = 4 + 7 * 8 + 14 * 8 + 7 * 4 + 5 * 2 + 6 + STRINGS_LEN * 2;
const STRINGS_LEN: usize = 15;
/// Where `phases.sent` is: behind the length and four stamps.
const SENT_AT: usize = 4 + 4 * 8;
/// Longer strings are cut: the length field is a `u16`.
const STRING_BYTES_MAX: usize = u16::MAX as usize;
/// A line that is no HTTP may be anything; its beginning tells enough.
const REQUEST_LINE_BYTES_MAX: usize = 256;

impl<'a> Record<'a> {
    /// Appends the record to `out`: at most one reservation, then copies.
    ///
    /// Strings over 64 KiB and a request line over 256 bytes are cut.
    pub fn encode(&self, out: &mut Vec<u8>) {
        let trace = self.trace.is_known().then(|| self.trace.to_bytes());
        let trace = trace.as_ref().map_or(&[][..], |bytes| bytes);
        let auth = self.auth.is_known().then(|| self.auth.to_bytes());
        let auth = auth.as_ref().map_or(&[][..], |bytes| bytes);
        let strings = self.strings(trace, auth);
        let text_bytes: usize = strings.iter().map(|string| string.len()).sum();
        let upstream = self.upstream.is_known().then(|| self.upstream.to_bytes());
        let upstream = upstream.as_ref().map_or(&[][..], |bytes| bytes);
        let record_bytes = FIXED_BYTES + upstream.len() + text_bytes;
        // Once for all: a request must not pay for a buffer that grows in steps.
        out.reserve(record_bytes);
        out.extend_from_slice(&self.fixed(&strings, record_bytes));
        out.extend_from_slice(upstream);
        // Most are empty, and a copy is a call.
        for string in strings.iter().filter(|string| !string.is_empty()) {
            out.extend_from_slice(string);
        }
    }

    /// Reads the record at the start of `input`; also gives the number of bytes that it took.
    ///
    /// `None` when the record is not whole, or was not written by [`Record::encode`].
    pub fn decode(input: &'a [u8]) -> Option<(Record<'a>, usize)> {
        let bytes = input.first_chunk::<FIXED_BYTES>()?;
        let mut fixed = Fixed { rest: bytes };
        let record_bytes = usize::try_from(u32::from_le_bytes(fixed.take())).ok()?;
        // A record that is not whole yet ends before it says.
        let mut text = input.get(FIXED_BYTES..record_bytes)?;
        let mut record = fixed.numbers()?;
        if record.upstream.is_known() {
            let (upstream, strings) = text.split_first_chunk::<UPSTREAM_BYTES>()?;
            record.upstream = UpstreamFacts::from_bytes(record.upstream.attempts, upstream);
            text = strings;
        }
        record.take_strings(fixed, text)?;
        Some((record, record_bytes))
    }

    /// When the record at the start of `input` was sent, and the number of bytes that it takes.
    ///
    /// Looks at nothing else, for whoever merges buffers by that time: [`Record::decode`] may still give
    /// `None` for what `encode` did not write. `None` when the record is not whole.
    pub fn peek(input: &[u8]) -> Option<(Stamp, usize)> {
        let bytes = input.first_chunk::<FIXED_BYTES>()?;
        let mut fixed = Fixed { rest: bytes };
        let record_bytes = usize::try_from(u32::from_le_bytes(fixed.take())).ok()?;
        let mut sent = Fixed {
            rest: &bytes[SENT_AT..],
        };
        let whole = (FIXED_BYTES..=input.len()).contains(&record_bytes);
        whole.then(|| (Stamp(sent.u64()), record_bytes))
    }

    fn strings<'b>(&'b self, trace: &'b [u8], auth: &'b [u8]) -> [&'b [u8]; STRINGS_LEN] {
        let cut = |string: &'b [u8]| &string[..string.len().min(STRING_BYTES_MAX)];
        let line = &self.request_line[..self.request_line.len().min(REQUEST_LINE_BYTES_MAX)];
        [
            cut(self.client),
            cut(self.peer),
            cut(self.method),
            cut(self.target),
            cut(self.version),
            line,
            cut(self.host),
            cut(self.referer),
            cut(self.user_agent),
            cut(self.user),
            cut(self.cause),
            cut(self.request_id),
            cut(self.tls),
            trace,
            auth,
        ]
    }

    fn take_strings(&mut self, mut fixed: Fixed<'_>, mut text: &'a [u8]) -> Option<()> {
        let (mut trace, mut auth) = (&b""[..], &b""[..]);
        for string in [
            &mut self.client,
            &mut self.peer,
            &mut self.method,
            &mut self.target,
            &mut self.version,
            &mut self.request_line,
            &mut self.host,
            &mut self.referer,
            &mut self.user_agent,
            &mut self.user,
            &mut self.cause,
            &mut self.request_id,
            &mut self.tls,
            &mut trace,
            &mut auth,
        ] {
            (*string, text) = text.split_at_checked(usize::from(fixed.u16()))?;
        }
        self.trace = TraceContext::from_bytes(trace)?;
        self.auth = AuthFacts::from_bytes(auth)?;
        text.is_empty().then_some(())
    }

    fn fixed(&self, strings: &[&[u8]; STRINGS_LEN], record_bytes: usize) -> [u8; FIXED_BYTES] {
        let mut fixed = [0; FIXED_BYTES];
        let mut rest = &mut fixed[..];
        let phases = &self.phases;
        // At most 15 strings of 64 KiB, so the sum fits.
        put(&mut rest, (record_bytes as u32).to_le_bytes());
        for number in [
            phases.arrived.0,
            phases.queued.0,
            phases.started.0,
            phases.replied.0,
            phases.sent.0,
            phases.gil.0,
            phases.cpu.0,
            self.wall_arrived_ns,
            self.body_bytes,
            self.sent_bytes,
            self.request_bytes,
            self.id,
            self.queued.before.0,
            self.stream.blocked_stream.0,
            self.stream.blocked_connection.0,
            self.websocket.received,
            self.websocket.sent,
            self.event_loop.wait.0,
            self.event_loop.busy.0,
            self.event_loop.longest.0,
            // No exchange has the last number there is.
            self.event_loop.blocked_by.unwrap_or(u64::MAX),
        ] {
            put(&mut rest, number.to_le_bytes());
        }
        // Workers are numbered from 1: 0 stands for none.
        let worker = phases.worker.map_or(0, NonZeroU32::get);
        let queued = &self.queued;
        let stream = &self.stream;
        for number in [
            queued.waiting,
            queued.threads,
            queued.idle,
            worker,
            stream.number,
            stream.reset_code,
            self.event_loop.steps,
        ] {
            put(&mut rest, number.to_le_bytes());
        }
        let close_code = self.websocket.close_code;
        for number in [self.status, self.route, self.driver, self.pool, close_code] {
            put(&mut rest, number.to_le_bytes());
        }
        let from_queue = u8::from(self.queued.from_queue);
        let reset_by = stream.reset_by as u8;
        let is_event_stream = u8::from(self.event_loop.is_event_stream);
        put(
            &mut rest,
            [
                from_queue,
                self.ending as u8,
                reset_by,
                is_event_stream,
                self.upstream.attempts,
                u8::from(self.is_https),
            ],
        );
        for string in strings {
            // `strings` was cut to the u16.
            put(&mut rest, (string.len() as u16).to_le_bytes());
        }
        assert!(rest.is_empty(), "each place has its number");
        fixed
    }
}

/// Writes the next bytes. As an array of known size they are a move; a copy of slices would be a call.
#[inline]
fn put<const N: usize>(rest: &mut &mut [u8], bytes: [u8; N]) {
    let all = std::mem::take(rest);
    let (place, after) = all
        .split_first_chunk_mut()
        .expect("each number has its place");
    *place = bytes;
    *rest = after;
}

/// A reader of the fixed part, in the order in which `Record::fixed` wrote it.
struct Fixed<'f> {
    rest: &'f [u8],
}

impl Fixed<'_> {
    fn numbers<'a>(&mut self) -> Option<Record<'a>> {
        let phases = Phases {
            arrived: Stamp(self.u64()),
            queued: Stamp(self.u64()),
            started: Stamp(self.u64()),
            replied: Stamp(self.u64()),
            sent: Stamp(self.u64()),
            gil: Nanos(self.u64()),
            cpu: Nanos(self.u64()),
            ..Phases::default()
        };
        let [wall_arrived_ns, body_bytes, sent_bytes, request_bytes] = self.u64s();
        let [id, before, blocked_stream, blocked_connection] = self.u64s();
        let [received, sent] = self.u64s();
        let [wait, busy, longest, blocked_by] = self.u64s();
        let mut record = Record {
            wall_arrived_ns,
            body_bytes,
            sent_bytes,
            request_bytes,
            id,
            queued: Queued {
                before: Nanos(before),
                waiting: self.u32(),
                threads: self.u32(),
                idle: self.u32(),
                from_queue: false,
            },
            phases: Phases {
                worker: NonZeroU32::new(self.u32()),
                ..phases
            },
            stream: StreamFacts {
                number: self.u32(),
                reset_by: ResetBy::None,
                reset_code: self.u32(),
                blocked_stream: Nanos(blocked_stream),
                blocked_connection: Nanos(blocked_connection),
            },
            event_loop: LoopFacts {
                wait: Nanos(wait),
                steps: self.u32(),
                busy: Nanos(busy),
                longest: Nanos(longest),
                blocked_by: (blocked_by != u64::MAX).then_some(blocked_by),
                is_event_stream: false,
            },
            status: self.u16(),
            route: self.u16(),
            driver: self.u16(),
            pool: self.u16(),
            websocket: WebSocketFacts {
                received,
                sent,
                close_code: self.u16(),
            },
            ..Record::default()
        };
        self.marks(&mut record)?;
        Some(record)
    }

    /// The numbers of one byte.
    fn marks(&mut self, record: &mut Record<'_>) -> Option<()> {
        let [
            from_queue,
            ending,
            reset_by,
            is_event_stream,
            attempts,
            is_https,
        ] = self.take();
        record.is_https = is_https != 0;
        record.upstream.attempts = attempts;
        record.event_loop.is_event_stream = is_event_stream != 0;
        record.queued.from_queue = from_queue != 0;
        record.ending = *Ending::ALL.get(usize::from(ending))?;
        record.stream.reset_by = *ResetBy::ALL.get(usize::from(reset_by))?;
        Some(())
    }

    #[inline]
    fn u64s<const N: usize>(&mut self) -> [u64; N] {
        std::array::from_fn(|_| self.u64())
    }

    #[inline]
    fn u64(&mut self) -> u64 {
        u64::from_le_bytes(self.take())
    }

    #[inline]
    fn u32(&mut self) -> u32 {
        u32::from_le_bytes(self.take())
    }

    #[inline]
    fn u16(&mut self) -> u16 {
        u16::from_le_bytes(self.take())
    }

    #[inline]
    fn take<const N: usize>(&mut self) -> [u8; N] {
        let (taken, rest) = (self.rest.split_first_chunk()).expect("each number has its place");
        self.rest = rest;
        *taken
    }
}

/// The id of exchange `id` of the process whose seed is `seed`: 16 hexadecimal digits.
///
/// Different numbers of one process never share an id: every step of the mix can be undone. It is no
/// secret: who knows the seed and an id knows the number.
pub fn made_id(seed: u64, id: u64) -> [u8; 16] {
    hex_digits(made_number(seed, id))
}

/// The number whose digits [`made_id`] gives.
pub const fn made_number(seed: u64, id: u64) -> u64 {
    // The seed comes before the mix: numbers that follow each other have nothing in common after it.
    mix(id ^ seed)
}

/// The finaliser of splitmix64 (Steele, Lea, Flood, "Fast splittable pseudorandom number generators",
/// 2014, with Stafford's variant 13 of the constants).
pub(crate) const fn mix(value: u64) -> u64 {
    let value = (value ^ (value >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let value = (value ^ (value >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    value ^ (value >> 31)
}

#[cfg(test)]
mod tests;
