//! How long idle connections last as the table of connections fills.
//!
//! Takes how many are open and how many there may be, gives a time and a count. It must not know a
//! connection: whoever asks closes the oldest idle ones.
//!
//! Patience costs nothing in an empty house, so up to half of the bound it is whole; from there it falls
//! in a straight line, so that idle clients leave before new ones find the door shut. What is left at
//! the bound goes at once, a sixteenth of the table at a time, so that not every accept has to look for
//! somebody to close.
//!
//! ```text
//! idle_timeout ────────────────╮
//!                               ╲
//!                                ╲
//! 1 s                             ╰─────
//!      0          1/2          15/16   1   of the bound open
//! ```

use measure::Nanos;

/// An idle connection lasts this long in a full house, unless it is configured to last less.
const FLOOR: Nanos = Nanos::from_secs(1);

/// How long an idle connection lasts while `open` of at most `max` connections are open.
///
/// `idle_timeout` up to half of `max`, then falling linearly to 1 s (`idle_timeout` if that is less) at
/// 15/16 of it. Never longer for more connections.
pub fn idle_limit(open: usize, max: usize, idle_timeout: Nanos) -> Nanos {
    let (open, max) = (open as u128, max as u128);
    let floor = FLOOR.min(idle_timeout);
    if open * 2 <= max {
        return idle_timeout;
    }
    if open * 16 >= max * 15 {
        return floor;
    }
    let span = u128::from(idle_timeout.0 - floor.0);
    let fallen = span * (open * 16 - max * 8) / (max * 7);
    Nanos(idle_timeout.0 - u64::try_from(fallen).expect("a part of a span is no longer than it"))
}

/// How many of the oldest idle connections have to go at once: none below the bound; at it so many that
/// a sixteenth of `max`, at least one place, is free again.
pub fn evictions(open: usize, max: usize) -> usize {
    if open < max {
        return 0;
    }
    open - (max - max.div_ceil(16))
}
