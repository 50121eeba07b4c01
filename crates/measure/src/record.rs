//! One line of the access log to be: what an exchange was, how long it took, how it ended.
//!
//! The thread that ends an exchange encodes its record into a buffer, and the log thread decodes and
//! formats it: the bytes between them are this file. It must not format text and must not know where
//! the bytes go.
//!
//! ```text
//! ┌ bytes of the whole record, u32 ┐┌ numbers, fixed ┐┌ 11 lengths, u16 ┐┌ the strings, one after another ┐
//! ```
//! All numbers are little-endian. The layout lives only inside one process and may change freely.

use std::num::NonZeroU32;

use crate::{Nanos, Phases, Queued, Stamp};

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
    /// The client did not take the reply in time.
    SendTimeout,
    /// Cut by the drain deadline.
    Drained,
    /// Nobody said how it ended: a bug of the server.
    #[default]
    Lost,
}

impl Ending {
    const ALL: [Ending; 7] = [
        Ending::Complete,
        Ending::Refused,
        Ending::PeerGone,
        Ending::Cut,
        Ending::SendTimeout,
        Ending::Drained,
        Ending::Lost,
    ];

    /// The word in the log.
    pub const fn text(self) -> &'static str {
        match self {
            Ending::Complete => "complete",
            Ending::Refused => "refused",
            Ending::PeerGone => "peer-gone",
            Ending::Cut => "cut",
            Ending::SendTimeout => "send-timeout",
            Ending::Drained => "drained",
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
    /// When it passed each point of its way.
    pub phases: Phases,
    /// What it found at its pool's queue.
    pub queued: Queued,
    /// Wall time of `phases.arrived`, nanoseconds since 1970 UTC. The log thread fills it before
    /// formatting; it is 0 when encoded.
    pub wall_arrived_ns: u64,
    /// The client's address without port, or `unix:`.
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
}

impl Default for Record<'_> {
    fn default() -> Self {
        Record {
            id: 0,
            request_id: b"",
            phases: Phases::default(),
            queued: Queued::default(),
            wall_arrived_ns: 0,
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
        }
    }
}

/// Bytes of everything before the strings.
const FIXED_BYTES: usize = 4 + 7 * 8 + 6 * 8 + 4 * 4 + 4 * 2 + 2 + STRINGS_LEN * 2;
const STRINGS_LEN: usize = 11;
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
        let strings = self.strings();
        let text_bytes: usize = strings.iter().map(|string| string.len()).sum();
        let record_bytes = FIXED_BYTES + text_bytes;
        out.reserve(record_bytes);
        out.extend_from_slice(&self.fixed(&strings, record_bytes));
        for string in strings {
            out.extend_from_slice(string);
        }
    }

    /// Reads the record at the start of `input`; also gives the number of bytes that it took.
    ///
    /// `None` when the record is not whole, or was not written by [`Record::encode`].
    pub fn decode(input: &'a [u8]) -> Option<(Record<'a>, usize)> {
        let mut fixed = Fixed {
            bytes: input.first_chunk::<FIXED_BYTES>()?,
            at: 0,
        };
        let record_bytes = usize::try_from(u32::from_le_bytes(fixed.take())).ok()?;
        let text = input.get(FIXED_BYTES..record_bytes)?;
        let mut record = fixed.numbers()?;
        record.take_strings(fixed, text)?;
        Some((record, record_bytes))
    }

    /// When the record at the start of `input` was sent, and the number of bytes that it takes.
    ///
    /// Looks at nothing else, for whoever merges buffers by that time: [`Record::decode`] may still give
    /// `None` for what `encode` did not write. `None` when the record is not whole.
    pub fn peek(input: &[u8]) -> Option<(Stamp, usize)> {
        let mut fixed = Fixed {
            bytes: input.first_chunk::<FIXED_BYTES>()?,
            at: 0,
        };
        let record_bytes = usize::try_from(u32::from_le_bytes(fixed.take())).ok()?;
        fixed.at = SENT_AT;
        let whole = (FIXED_BYTES..=input.len()).contains(&record_bytes);
        whole.then(|| (Stamp(fixed.u64()), record_bytes))
    }

    fn strings(&self) -> [&'a [u8]; STRINGS_LEN] {
        let cut = |string: &'a [u8]| &string[..string.len().min(STRING_BYTES_MAX)];
        let line = &self.request_line[..self.request_line.len().min(REQUEST_LINE_BYTES_MAX)];
        [
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
        ]
    }

    fn take_strings(&mut self, mut fixed: Fixed<'_>, mut text: &'a [u8]) -> Option<()> {
        for string in [
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
        ] {
            (*string, text) = text.split_at_checked(usize::from(fixed.u16()))?;
        }
        text.is_empty().then_some(())
    }

    fn fixed(&self, strings: &[&[u8]; STRINGS_LEN], record_bytes: usize) -> [u8; FIXED_BYTES] {
        let mut fixed = [0; FIXED_BYTES];
        let mut at = 0;
        let phases = &self.phases;
        // At most 11 strings of 64 KiB, so the sum fits.
        put(&mut fixed, &mut at, (record_bytes as u32).to_le_bytes());
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
        ] {
            put(&mut fixed, &mut at, number.to_le_bytes());
        }
        // Workers are numbered from 1: 0 stands for none.
        let worker = phases.worker.map_or(0, NonZeroU32::get);
        let queued = &self.queued;
        for number in [queued.waiting, queued.threads, queued.idle, worker] {
            put(&mut fixed, &mut at, number.to_le_bytes());
        }
        for number in [self.status, self.route, self.driver, self.pool] {
            put(&mut fixed, &mut at, number.to_le_bytes());
        }
        let from_queue = u8::from(self.queued.from_queue);
        put(&mut fixed, &mut at, [from_queue, self.ending as u8]);
        for string in strings {
            // `strings` was cut to the u16.
            put(&mut fixed, &mut at, (string.len() as u16).to_le_bytes());
        }
        fixed
    }
}

#[inline]
fn put<const N: usize>(fixed: &mut [u8; FIXED_BYTES], at: &mut usize, bytes: [u8; N]) {
    fixed[*at..*at + N].copy_from_slice(&bytes);
    *at += N;
}

/// A reader of the fixed part, in the order in which `Record::fixed` wrote it.
struct Fixed<'f> {
    bytes: &'f [u8; FIXED_BYTES],
    at: usize,
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
        let mut record = Record {
            wall_arrived_ns: self.u64(),
            body_bytes: self.u64(),
            sent_bytes: self.u64(),
            request_bytes: self.u64(),
            id: self.u64(),
            queued: Queued {
                before: Nanos(self.u64()),
                waiting: self.u32(),
                threads: self.u32(),
                idle: self.u32(),
                from_queue: false,
            },
            phases: Phases {
                worker: NonZeroU32::new(self.u32()),
                ..phases
            },
            status: self.u16(),
            route: self.u16(),
            driver: self.u16(),
            pool: self.u16(),
            ..Record::default()
        };
        let [from_queue, ending] = self.take();
        record.queued.from_queue = from_queue != 0;
        record.ending = *Ending::ALL.get(usize::from(ending))?;
        Some(record)
    }

    fn u64(&mut self) -> u64 {
        u64::from_le_bytes(self.take())
    }

    fn u32(&mut self) -> u32 {
        u32::from_le_bytes(self.take())
    }

    fn u16(&mut self) -> u16 {
        u16::from_le_bytes(self.take())
    }

    #[inline]
    fn take<const N: usize>(&mut self) -> [u8; N] {
        let mut taken = [0; N];
        taken.copy_from_slice(&self.bytes[self.at..self.at + N]);
        self.at += N;
        taken
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn sample() -> Record<'static> {
        Record {
            id: 13,
            request_id: b"r-1",
            phases: Phases {
                arrived: Stamp(1),
                queued: Stamp(2),
                started: Stamp(3),
                replied: Stamp(4),
                sent: Stamp(5),
                gil: Nanos(6),
                cpu: Nanos(19),
                worker: NonZeroU32::new(20),
            },
            queued: Queued {
                before: Nanos(15),
                waiting: 16,
                threads: 17,
                idle: 18,
                from_queue: true,
            },
            wall_arrived_ns: 7,
            peer: b"127.0.0.1",
            method: b"GET",
            target: b"/x",
            version: b"HTTP/1.1",
            request_line: b"\x16\x03",
            host: b"example.org",
            referer: b"",
            user_agent: b"curl/8",
            user: b"bob",
            status: 200,
            body_bytes: 8,
            sent_bytes: 9,
            request_bytes: 10,
            ending: Ending::PeerGone,
            route: 11,
            driver: 12,
            pool: 14,
            cause: b"why",
        }
    }

    fn check(record: &Record<'_>) {
        let mut bytes = Vec::new();
        record.encode(&mut bytes);
        let whole = bytes.len();
        bytes.extend_from_slice(b"the next record");
        assert_eq!(Record::decode(&bytes), Some((*record, whole)));
        assert_eq!(Record::peek(&bytes), Some((record.phases.sent, whole)));
    }

    #[test]
    fn comes_back_as_it_was_written() {
        check(&sample());
        check(&Record::default());
        for ending in Ending::ALL {
            check(&Record { ending, ..sample() });
        }
    }

    #[test]
    fn is_not_decoded_until_whole() {
        let mut bytes = Vec::new();
        sample().encode(&mut bytes);
        for end in 0..bytes.len() {
            assert_eq!(Record::decode(&bytes[..end]), None, "cut at {end}");
            assert_eq!(Record::peek(&bytes[..end]), None, "cut at {end}");
        }
    }

    #[test]
    fn cuts_long_strings() {
        let long = vec![b'a'; 70_000];
        let mut bytes = Vec::new();
        Record {
            target: &long,
            request_line: &long,
            ..sample()
        }
        .encode(&mut bytes);
        let (record, _) = Record::decode(&bytes).unwrap();
        assert_eq!(record.target.len(), STRING_BYTES_MAX);
        assert_eq!(record.request_line.len(), REQUEST_LINE_BYTES_MAX);
        assert_eq!(record.cause, b"why");
    }

    #[test]
    fn records_follow_each_other() {
        let mut bytes = Vec::new();
        for driver in 0..100 {
            Record { driver, ..sample() }.encode(&mut bytes);
        }
        let mut rest = &bytes[..];
        for driver in 0..100 {
            let (record, taken) = Record::decode(rest).unwrap();
            assert_eq!(record.driver, driver);
            rest = &rest[taken..];
        }
        assert!(rest.is_empty());
    }

    proptest! {
        #[test]
        fn garbage_never_panics(bytes in prop::collection::vec(any::<u8>(), 0..400)) {
            let _ = (Record::decode(&bytes), Record::peek(&bytes));
        }

        #[test]
        fn damage_never_panics(at in 0usize..FIXED_BYTES, value in any::<u8>()) {
            let mut bytes = Vec::new();
            sample().encode(&mut bytes);
            bytes[at] = value;
            if let Some((_, taken)) = Record::decode(&bytes) {
                prop_assert!(taken <= bytes.len());
                prop_assert_eq!(Record::peek(&bytes).map(|(_, peeked)| peeked), Some(taken));
            }
        }
    }
}
