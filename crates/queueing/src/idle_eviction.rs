//! How long idle connections last as the table of connections fills.
//!
//! Takes how many are open and how many there may be, gives a time and a count. It must not know a
//! connection: the caller closes the oldest idle ones.
//!
//! Idle connections cost nothing while the table has room, so up to half of the bound the limit is the whole
//! `idle_timeout`. From there it falls in a straight line, so that idle connections are closed before new ones
//! are refused. At the bound a sixteenth of the table is closed at once, so that not every accept has to look
//! for a connection to close.
//!
//! ```text
//! idle_timeout ────────────────╮
//!                               ╲
//!                                ╲
//! 1 s                             ╰─────
//!      0          1/2          15/16   1   of the bound open
//! ```

use telemetry::Nanos;

/// An idle connection lasts this long when the server is full, unless it is configured to last less.
const FLOOR: Nanos = Nanos::from_secs(1);
/// An idle connection keeps its place for so long at the bound: its client may be about to send the next request.
const BETWEEN_REQUESTS_MIN: Nanos = Nanos::from_ms(100);
/// While the server drains or its places are taken, a connection that was accepted and has sent nothing is given
/// so long: its client has been promised an answer by the handshake, and is not asked to try again as a client
/// that was served once is.
pub const FIRST_BYTE_GRACE: Nanos = Nanos::from_secs(1);

/// What an idle connection waits for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Awaited {
    /// The first byte of all.
    FirstRequest,
    /// Another request behind those that were answered.
    NextRequest,
}

/// How long connections keep their places without sending anything.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Idling {
    first_max: Nanos,
    next_max: Nanos,
}

impl Idling {
    /// While `open` of at most `max` connections are open. The first request has `head_timeout`, the next one
    /// `idle_timeout`.
    pub fn new(open: usize, max: usize, head_timeout: Nanos, idle_timeout: Nanos) -> Idling {
        Idling {
            first_max: idle_limit(open, max, head_timeout),
            next_max: idle_limit(open, max, idle_timeout),
        }
    }

    /// How long a connection may be idle.
    pub fn max(self, awaited: Awaited) -> Nanos {
        match awaited {
            Awaited::FirstRequest => self.first_max,
            Awaited::NextRequest => self.next_max,
        }
    }

    /// How long it has been idle at least when it is closed at the bound to make room.
    pub fn surplus_min(self, awaited: Awaited) -> Nanos {
        match awaited {
            Awaited::FirstRequest => FIRST_BYTE_GRACE,
            Awaited::NextRequest => BETWEEN_REQUESTS_MIN,
        }
    }
}

/// How long an idle connection lasts while `open` of at most `max` connections are open.
///
/// `idle_timeout` up to half of `max`, then falling linearly to 1 s (`idle_timeout` if that is less) at
/// 15/16 of it. Never longer for more connections.
pub fn idle_limit(open: usize, max: usize, idle_timeout: Nanos) -> Nanos {
    // No process has more descriptors than these; with them the products fit.
    let [open, max] = [open, max].map(|count| count.min(1 << 32) as u128);
    let floor = FLOOR.min(idle_timeout);
    if open * 2 <= max {
        return idle_timeout;
    }
    if open * 16 >= max * 15 {
        return floor;
    }
    // From 8/16 to 15/16 of the bound: seven sixteenths of it are the whole fall.
    let span = u128::from(idle_timeout.0 - floor.0);
    let fallen = span * (open * 16 - max * 8) / (max * 7);
    assert!(fallen <= span, "a limit never falls below its floor");
    Nanos(idle_timeout.0 - u64::try_from(fallen).expect("a part of a span is no longer than it"))
}

/// How many of the oldest idle connections have to go at once while new ones find the door shut: so many
/// that it opens again.
pub fn evictions(open: usize, max: usize) -> usize {
    open.saturating_sub(reopening_len(max))
}

/// With how many connections the door opens that was shut at `max`: a sixteenth, at least one place, is free.
pub fn reopening_len(max: usize) -> usize {
    max - max.div_ceil(16)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn patience_falls_from_half_to_fifteen_sixteenths() {
        let check = |open, max, idle_ms, expect_ms| {
            let found = idle_limit(open, max, Nanos::from_ms(idle_ms));
            assert_eq!(found, Nanos::from_ms(expect_ms), "{open} of {max}");
        };
        check(0, 16_000, 60_000, 60_000);
        check(8_000, 16_000, 60_000, 60_000);
        check(11_500, 16_000, 60_000, 30_500);
        check(14_999, 16_000, 8_000, 1_001);
        check(15_000, 16_000, 60_000, 1_000);
        check(16_000, 16_000, 60_000, 1_000);
        check(99_999, 16_000, 60_000, 1_000);
        check(16_000, 16_000, 300, 300);
        check(8_001, 16_000, 0, 0);
        check(0, 0, 60_000, 60_000);
        check(1, 0, 60_000, 1_000);
        check(usize::MAX, usize::MAX, 60_000, 1_000);
        // Of one place a taken one is more than half.
        check(1, 1, 60_000, 1_000);
        check(1, 2, 60_000, 60_000);
    }

    #[test]
    fn a_sixteenth_is_free_after_the_evictions() {
        let check = |open, max, expect| assert_eq!(evictions(open, max), expect, "{open} of {max}");
        check(0, 16, 0);
        check(15, 16, 0);
        check(16, 16, 1);
        check(1_599, 1_600, 99);
        check(1_500, 1_600, 0);
        check(18, 16, 3);
        check(1_600, 1_600, 100);
        check(10_000, 10_000, 625);
        check(1, 1, 1);
        check(17, 17, 2);
        check(3, 0, 3);
        check(0, 0, 0);
        check(usize::MAX, usize::MAX, 1 << 60);
    }

    #[test]
    fn who_has_sent_nothing_has_its_second_at_the_bound() {
        let [head, idle] = [30_000, 60_000].map(Nanos::from_ms);
        let check = |open, first_ms, next_ms| {
            let idling = Idling::new(open, 16_000, head, idle);
            let maxima = [Awaited::FirstRequest, Awaited::NextRequest].map(|a| idling.max(a));
            assert_eq!(maxima, [first_ms, next_ms].map(Nanos::from_ms), "{open}");
            assert_eq!(idling.surplus_min(Awaited::FirstRequest), FIRST_BYTE_GRACE);
            assert!(idling.surplus_min(Awaited::NextRequest) < FIRST_BYTE_GRACE);
        };
        check(0, 30_000, 60_000);
        check(11_500, 15_500, 30_500);
        check(16_000, 1_000, 1_000);
    }

    proptest! {
        #[test]
        fn patience_has_its_bounds_and_never_grows_with_the_crowd(
            open: usize,
            max: usize,
            idle: u64,
        ) {
            let idle = Nanos(idle);
            let found = idle_limit(open, max, idle);
            prop_assert!(found <= idle && found >= FLOOR.min(idle));
            prop_assert!(idle_limit(open.saturating_add(1), max, idle) <= found);
        }

        #[test]
        fn evictions_leave_fewer_than_the_bound(open: usize, max in 1usize..) {
            let left = open - evictions(open, max);
            prop_assert!(left < max);
            prop_assert!(left == open || max - left == max.div_ceil(16));
        }
    }
}
