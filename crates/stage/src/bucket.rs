//! A bandwidth limit: a token bucket that gives out reservations.
//!
//! Takes bytes that somebody wants to send, gives the time from which it may. It must not read a clock
//! or wait: whoever reserves waits by itself.
//!
//! This is virtual scheduling (the generic cell rate algorithm, ITU-T I.371 annex A): the bucket knows
//! only when all that was reserved will have gone at the rate, and that time may be ahead of the
//! present by as much as the burst is worth. A reservation is never taken back, so several senders that
//! share a bucket are served in the order of their reservations, and none starves.

use measure::{Nanos, Stamp};

const NANOS_PER_SEC: u128 = 1_000_000_000;

/// Bytes of a burst at least: a page's worth of small replies goes unhindered.
const BURST_BYTES_MIN: u64 = 16 << 10;
/// Bytes of a burst at most, while that is not less than timers need.
const BURST_BYTES_MAX: u64 = 1 << 20;
/// A burst is this part of a second of the rate.
const BURSTS_PER_SEC: u64 = 4;
/// A fast bucket holds at least this part of a second: a sender that its timer woke late catches up
/// out of the burst, and less than that would make a limit of 1 GB/s one of 500 MB/s.
const BURSTS_PER_SEC_MAX: u64 = 50;
/// Reservations a second of a sender that is alone.
const CHUNKS_PER_SEC: u64 = 20;
/// Reservations that a full bucket holds at least: what is beyond one of them is the slack for late
/// wake-ups.
const CHUNKS_PER_BURST: u64 = 4;

/// A bandwidth limit, full at first.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Bucket {
    bytes_per_sec: u64,
    burst_bytes: u64,
    /// When all that was reserved will have gone at the rate.
    empty_at: Stamp,
    /// What `empty_at` has beyond its whole nanoseconds, in parts of `1 / bytes_per_sec` ns.
    parts: u64,
}

impl Bucket {
    /// A full bucket. A rate of 0 is taken as 1.
    pub const fn new(bytes_per_sec: u64, burst_bytes: u64) -> Bucket {
        Bucket {
            bytes_per_sec: if bytes_per_sec == 0 { 1 } else { bytes_per_sec },
            burst_bytes,
            empty_at: Stamp::ZERO,
            parts: 0,
        }
    }

    /// A burst that suits a rate: a quarter of a second, at least 16 KB and at most 1 MB, or 20 ms
    /// where that is more.
    pub fn burst_for(bytes_per_sec: u64) -> u64 {
        (bytes_per_sec / BURSTS_PER_SEC)
            .clamp(BURST_BYTES_MIN, BURST_BYTES_MAX)
            .max(bytes_per_sec / BURSTS_PER_SEC_MAX)
    }

    /// Bytes to reserve at a time, at least 1, so that a turn lasts no longer than 50 ms at the rate
    /// and a quarter of [`Bucket::burst_for`] at most.
    pub fn chunk_for(bytes_per_sec: u64) -> u64 {
        (bytes_per_sec / CHUNKS_PER_SEC)
            .min(Bucket::burst_for(bytes_per_sec) / CHUNKS_PER_BURST)
            .max(1)
    }

    /// Reserves `bytes`; they may be sent, all of them, from the stamp on that it gives, which is `now`
    /// when they may be sent at once, and [`Stamp::NEVER`] beyond the clock.
    ///
    /// Over any span at most `rate * span + burst` bytes are granted. A single reservation of more than
    /// the burst waits for what is beyond it and then goes as a whole, so keep to [`Bucket::chunk_for`].
    pub fn reserve(&mut self, bytes: u64, now: Stamp) -> Stamp {
        if self.empty_at < now {
            (self.empty_at, self.parts) = (now, 0);
        }
        let rate = u128::from(self.bytes_per_sec);
        let worth = u128::from(bytes) * NANOS_PER_SEC + u128::from(self.parts);
        let nanos = u64::try_from(worth / rate).unwrap_or(u64::MAX);
        self.empty_at = self.empty_at.plus(Nanos(nanos));
        self.parts =
            u64::try_from(worth % rate).expect("a remainder of what fits 64 bits fits them");
        self.burst_ahead_of_empty().max(now)
    }

    /// The first whole nanosecond at which what was reserved is within the burst.
    fn burst_ahead_of_empty(&self) -> Stamp {
        if self.empty_at == Stamp::NEVER {
            return Stamp::NEVER;
        }
        let rate = u128::from(self.bytes_per_sec);
        let burst = u128::from(self.burst_bytes) * NANOS_PER_SEC;
        match burst.checked_sub(u128::from(self.parts)) {
            Some(ahead) => {
                let ahead = u64::try_from(ahead / rate).unwrap_or(u64::MAX);
                Stamp(self.empty_at.0.saturating_sub(ahead))
            }
            // Less than a nanosecond is missing.
            None => self.empty_at.plus(Nanos(1)),
        }
    }
}
