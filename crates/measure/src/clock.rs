//! Time as numbers: a stamp on the monotonic clock, a duration, and the clocks that give stamps.
//!
//! Only the corridors read a clock; every other room takes `now` as an argument. This file must not
//! know the wall clock: a record gets its wall time on the log thread.

use std::fmt;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

const NANOS_PER_SEC: u64 = 1_000_000_000;

/// A point on a monotonic clock, in nanoseconds.
///
/// Stamps of one process can be compared with each other and with nothing else.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct Stamp(pub u64);

impl Stamp {
    /// "Not yet": no clock ever gives it.
    pub const ZERO: Stamp = Stamp(0);
    /// Later than every stamp that a clock gives: a deadline that does not come.
    pub const NEVER: Stamp = Stamp(u64::MAX);

    /// The time from `earlier` to here; zero when `earlier` is later.
    #[inline]
    pub const fn since(self, earlier: Stamp) -> Nanos {
        Nanos(self.0.saturating_sub(earlier.0))
    }

    /// The stamp `span` later; [`Stamp::NEVER`] when that is beyond the clock.
    #[inline]
    pub const fn plus(self, span: Nanos) -> Stamp {
        Stamp(self.0.saturating_add(span.0))
    }
}

/// A duration in nanoseconds. Its text is seconds with microseconds, truncated: `0.000123`.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct Nanos(pub u64);

impl Nanos {
    /// No time at all.
    pub const ZERO: Nanos = Nanos(0);

    /// A duration of whole microseconds; saturates.
    pub const fn from_us(us: u64) -> Nanos {
        Nanos(us.saturating_mul(1_000))
    }

    /// A duration of whole milliseconds; saturates.
    pub const fn from_ms(ms: u64) -> Nanos {
        Nanos(ms.saturating_mul(1_000_000))
    }

    /// A duration of whole seconds; saturates.
    pub const fn from_secs(secs: u64) -> Nanos {
        Nanos(secs.saturating_mul(NANOS_PER_SEC))
    }

    /// The duration in seconds, exact up to 104 days (2^53 ns).
    pub fn as_secs_f64(self) -> f64 {
        self.0 as f64 / NANOS_PER_SEC as f64
    }
}

impl fmt::Display for Nanos {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{}.{:06}",
            self.0 / NANOS_PER_SEC,
            self.0 % NANOS_PER_SEC / 1_000
        )
    }
}

/// Where stamps come from: the machine's clock in the server, a virtual one in simulations.
pub trait Clock {
    /// The present. Never earlier than an answer before, never [`Stamp::ZERO`].
    fn now(&self) -> Stamp;
}

/// Where every clock starts, so that a stamp taken in the first nanosecond is not "not yet".
const START: Stamp = Stamp(NANOS_PER_SEC);

static ORIGIN: OnceLock<Instant> = OnceLock::new();

/// The machine's monotonic clock; it reads one second when the process first asks.
#[derive(Clone, Copy, Debug, Default)]
pub struct RealClock;

impl Clock for RealClock {
    #[inline]
    fn now(&self) -> Stamp {
        let passed = ORIGIN.get_or_init(Instant::now).elapsed();
        START.plus(Nanos(
            passed.as_secs() * NANOS_PER_SEC + u64::from(passed.subsec_nanos()),
        ))
    }
}

/// The present on the machine's clock: `RealClock.now()` in short.
#[inline]
pub fn now() -> Stamp {
    RealClock.now()
}

/// A clock that stands still until it is told to advance. Shareable between threads.
#[derive(Debug)]
pub struct VirtualClock(AtomicU64);

impl VirtualClock {
    /// A clock that reads one second, as the real one does at its first call.
    pub const fn new() -> VirtualClock {
        VirtualClock(AtomicU64::new(START.0))
    }

    /// Moves the clock on.
    pub fn advance(&self, span: Nanos) {
        self.0.fetch_add(span.0, Ordering::Relaxed);
    }
}

impl Default for VirtualClock {
    fn default() -> VirtualClock {
        VirtualClock::new()
    }
}

impl Clock for VirtualClock {
    fn now(&self) -> Stamp {
        Stamp(self.0.load(Ordering::Relaxed))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn differences_saturate_at_both_ends() {
        assert_eq!(Stamp(5).since(Stamp(3)), Nanos(2));
        assert_eq!(Stamp(3).since(Stamp(5)), Nanos::ZERO);
        assert_eq!(Stamp(3).plus(Nanos(4)), Stamp(7));
        assert_eq!(Stamp(3).plus(Nanos(u64::MAX)), Stamp::NEVER);
        assert_eq!(Nanos::from_secs(u64::MAX), Nanos(u64::MAX));
    }

    #[test]
    fn shows_seconds_with_truncated_microseconds() {
        let check = |nanos: u64, expect: &str| assert_eq!(Nanos(nanos).to_string(), expect);
        check(0, "0.000000");
        check(999, "0.000000");
        check(123_999, "0.000123");
        check(4_144_876_000, "4.144876");
        check(Nanos::from_secs(3_600).0, "3600.000000");
    }

    #[test]
    fn converts_between_units() {
        assert_eq!(Nanos::from_ms(1_500), Nanos(1_500_000_000));
        assert_eq!(Nanos::from_us(7), Nanos(7_000));
        assert!((Nanos::from_ms(1_500).as_secs_f64() - 1.5).abs() < 1e-12);
    }

    #[test]
    fn real_clock_starts_after_zero_and_never_goes_back() {
        let first = now();
        assert!(first >= START);
        let mut last = first;
        for _ in 0..10_000 {
            let next = RealClock.now();
            assert!(next >= last);
            last = next;
        }
    }

    #[test]
    fn virtual_clock_moves_only_when_told() {
        let clock = VirtualClock::new();
        let first = clock.now();
        assert_eq!(clock.now(), first);
        clock.advance(Nanos::from_ms(3));
        assert_eq!(clock.now().since(first), Nanos::from_ms(3));
    }
}
