//! Odd work: one account a connection of what a client makes the server do that serves no request.
//!
//! Takes frames as they pass, in both directions, and what was useful; gives whether the client is to be slowed or to
//! go. Pure. Rapid Reset (CVE-2023-44487), MadeYouReset (CVE-2025-8671), floods of PING, SETTINGS, empty frames and
//! CONTINUATION (CVE-2019-9511 to 9518, CVE-2024-27316) are all such work; none has a limit of its own.

use telemetry::Stamp;

use super::pipe::FrameNote;
use super::scan;

/// Tokens of a new connection, and the most that it can have.
const TOKENS_MAX: u32 = 2_000;
/// With fewer, a client is slowed.
const TOKENS_SOFT: u32 = TOKENS_MAX / 2;
/// A stream that ended early, whoever reset it: a request was begun for nothing.
const RESET_COST: u32 = 10;
/// A frame that changes all streams.
const SETTINGS_COST: u32 = 10;
/// Any other frame that carries nothing.
const FRAME_COST: u32 = 2;
/// A request that was answered to its end.
const COMPLETE_WORTH: u32 = 10;
/// Bytes of bodies, either way, that earn a token.
const BYTES_A_TOKEN: u64 = 1_024;
/// Smaller steps of a window are a drip.
const WINDOW_STEP_MIN: u32 = 1_024;
/// Smaller pieces of a body that goes on cost more than they bring; lines of text are longer.
const DATA_BYTES_MIN: usize = 16;
/// Tokens that come back each second: keep-alives of a connection that lasts for days are no flood.
const TOKENS_A_SECOND: u64 = 10;

/// The account.
#[derive(Debug)]
pub(super) struct OddWork {
    tokens: u32,
    /// Useful bytes that have not made a token.
    bytes: u64,
    /// When tokens came back last.
    refilled: Stamp,
    /// What the account has been charged most for.
    last: &'static str,
    /// DATA was sent to the client since its last PING.
    has_sent: bool,
}

/// What follows from an account.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Verdict {
    Fine,
    /// The client is read later.
    Slow,
    /// The client is to go.
    Leave,
}

/// Whether a frame is a small piece of a body that goes on.
pub(super) fn is_small_data(frame: &FrameNote) -> bool {
    let ends = frame.flags & scan::END_STREAM != 0;
    frame.kind == scan::DATA && (1..DATA_BYTES_MIN).contains(&frame.payload_bytes) && !ends
}

impl OddWork {
    pub(super) fn new() -> Self {
        Self {
            tokens: TOKENS_MAX,
            bytes: 0,
            refilled: Stamp::ZERO,
            last: "nothing",
            has_sent: false,
        }
    }

    pub(super) fn verdict(&self) -> Verdict {
        match self.tokens {
            0 => Verdict::Leave,
            1..TOKENS_SOFT => Verdict::Slow,
            _ => Verdict::Fine,
        }
    }

    /// Gives back what the time since the last call is worth.
    pub(super) fn refill(&mut self, now: Stamp) {
        let seconds = now.since(self.refilled).0 / 1_000_000_000;
        if seconds > 0 {
            self.refilled = now;
            let tokens = seconds.saturating_mul(TOKENS_A_SECOND);
            self.earn(u32::try_from(tokens).unwrap_or(TOKENS_MAX));
        }
    }

    /// The kind of work that the account was charged for last.
    pub(super) fn last(&self) -> &'static str {
        self.last
    }

    /// A frame of the client's, unless it is a small piece of a body of messages.
    pub(super) fn received(&mut self, frame: &FrameNote) {
        let ends = frame.flags & scan::END_STREAM != 0;
        match frame.kind {
            scan::DATA if frame.payload_bytes == 0 && !ends => {
                self.charge(FRAME_COST, "empty DATA");
            }
            scan::DATA if is_small_data(frame) => self.charge(FRAME_COST, "small DATA"),
            scan::DATA => self.earn_bytes(frame.payload_bytes as u64),
            // Clients of gRPC find out how much is on its way by a PING for what they get, one at a time.
            scan::PING if std::mem::take(&mut self.has_sent) => {}
            scan::PING => self.charge(FRAME_COST, "PING"),
            scan::SETTINGS if frame.flags & scan::ACK == 0 => {
                self.charge(SETTINGS_COST, "SETTINGS");
            }
            scan::CONTINUATION => self.charge(FRAME_COST, "CONTINUATION"),
            scan::PRIORITY | scan::PRIORITY_UPDATE => self.charge(FRAME_COST, "PRIORITY"),
            scan::WINDOW_UPDATE if frame.number.is_none_or(|step| step < WINDOW_STEP_MIN) => {
                self.charge(FRAME_COST, "WINDOW_UPDATE");
            }
            scan::HEADERS => {}
            // Large steps, unknown frames, and what the crate ends the connection for.
            _ => self.charge(1, "frames"),
        }
    }

    /// A stream was reset before its response was complete.
    pub(super) fn reset_early(&mut self) {
        self.charge(RESET_COST, "resets");
    }

    /// A request was answered to its end.
    pub(super) fn completed(&mut self) {
        self.earn(COMPLETE_WORTH);
    }

    /// DATA is sent to the client.
    pub(super) fn sent_data(&mut self, bytes: u64) {
        self.has_sent = true;
        self.earn_bytes(bytes);
    }

    /// Bytes of a body have passed.
    pub(super) fn earn_bytes(&mut self, bytes: u64) {
        self.bytes += bytes;
        let tokens = self.bytes / BYTES_A_TOKEN;
        self.bytes %= BYTES_A_TOKEN;
        self.earn(u32::try_from(tokens).unwrap_or(TOKENS_MAX));
    }

    fn earn(&mut self, tokens: u32) {
        // One that has run out stays so: the connection is ending.
        if self.tokens > 0 {
            self.tokens = self.tokens.saturating_add(tokens).min(TOKENS_MAX);
        }
    }

    fn charge(&mut self, tokens: u32, kind: &'static str) {
        self.tokens = self.tokens.saturating_sub(tokens);
        self.last = kind;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn note(kind: u8, flags: u8, payload_bytes: usize, number: u32) -> FrameNote {
        FrameNote {
            kind,
            flags,
            stream: 1,
            payload_bytes,
            number: Some(number),
            priority: None,
        }
    }

    #[test]
    fn keep_alives_of_days_are_no_flood() {
        let mut work = OddWork::new();
        for second in 1..86_400_u64 {
            work.refill(Stamp(second * 1_000_000_000));
            work.received(&note(scan::PING, 0, 8, 0));
            assert_eq!(work.verdict(), Verdict::Fine);
        }
    }

    #[test]
    fn one_ping_for_what_was_sent_costs_nothing() {
        let mut work = OddWork::new();
        for _ in 0..100_000 {
            work.sent_data(1);
            work.received(&note(scan::PING, 0, 8, 0));
        }
        assert_eq!(work.verdict(), Verdict::Fine);
        work.sent_data(1);
        (0..1_000).for_each(|_| work.received(&note(scan::PING, 0, 8, 0)));
        assert_eq!(work.verdict(), Verdict::Slow);
        work.received(&note(scan::PING, 0, 8, 0));
        assert_eq!((work.verdict(), work.last()), (Verdict::Leave, "PING"));
    }

    #[test]
    fn every_flood_ends_its_connection() {
        for (frame, frames_max) in [
            (note(scan::PING, 0, 8, 0), 1_000),
            (note(scan::PING, scan::ACK, 8, 0), 1_000),
            (note(scan::SETTINGS, 0, 0, 0), 200),
            (note(scan::DATA, 0, 0, 0), 1_000),
            (note(scan::DATA, 0, 1, 0), 1_000),
            (note(scan::CONTINUATION, 0, 1, 0), 1_000),
            (note(scan::PRIORITY, 0, 5, 0), 1_000),
            (note(scan::PRIORITY_UPDATE, 0, 9, 0), 1_000),
            (note(scan::WINDOW_UPDATE, 0, 4, 1), 1_000),
            (note(scan::WINDOW_UPDATE, 0, 4, 5_000), 2_000),
            (note(0x42, 0, 4, 1), 2_000),
        ] {
            let mut work = OddWork::new();
            let mut frames = 0;
            while work.verdict() != Verdict::Leave {
                work.received(&frame);
                frames += 1;
            }
            assert_eq!(frames, frames_max, "{frame:?}");
            work.completed();
            assert_eq!(work.verdict(), Verdict::Leave);
        }
    }

    #[test]
    fn resets_slow_a_client_before_they_end_its_connection() {
        let mut work = OddWork::new();
        (0..100).for_each(|_| work.reset_early());
        assert_eq!(work.verdict(), Verdict::Fine);
        work.reset_early();
        assert_eq!(work.verdict(), Verdict::Slow);
        (0..99).for_each(|_| work.reset_early());
        assert_eq!((work.verdict(), work.last()), (Verdict::Leave, "resets"));
    }

    #[test]
    fn useful_work_pays_for_what_comes_with_it() {
        let mut work = OddWork::new();
        for _ in 0..100_000 {
            work.reset_early();
            work.completed();
            work.received(&note(scan::DATA, 0, 16_384, 0));
            work.received(&note(scan::WINDOW_UPDATE, 0, 4, 65_536));
            work.received(&note(scan::PING, 0, 8, 0));
        }
        assert_eq!(work.verdict(), Verdict::Fine);
    }
}
