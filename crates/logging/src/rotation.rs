//! When a log file is rotated: arithmetic on times and sizes.
//!
//! Takes the setting and, for each line, the time that decides in which file it is. Renames nothing and reads no
//! clock.

use config::typed::Rotation;

/// Time for which a failed rotation is not tried again because of the size.
const POSTPONED_NS: u64 = 60_000_000_000;

/// One file's rotations.
#[derive(Clone, Debug)]
pub(super) struct Schedule {
    bytes: Option<u64>,
    every_ns: Option<u64>,
    /// The first moment whose lines belong into the next file.
    next_ns: u64,
    /// The size is ignored before this time.
    ignored_until_ns: u64,
}

impl Schedule {
    /// The rotations of a file whose last line is from `since_ns`, nanoseconds since 1970 UTC; of an empty file: now.
    pub(super) fn new(rotation: &Rotation, since_ns: u64) -> Self {
        let every_ns = rotation.every.map(|every| every.0).filter(|ns| *ns > 0);
        Self {
            bytes: rotation.bytes,
            every_ns,
            next_ns: every_ns.map_or(u64::MAX, |every| boundary_after(since_ns, every)),
            ignored_until_ns: 0,
        }
    }

    /// Whether a line of `wall_ns` is the first of a new file: gives the boundary that lies before it, once.
    pub(super) fn crossed(&mut self, wall_ns: u64) -> Option<u64> {
        let every = self.every_ns?;
        if wall_ns >= self.next_ns {
            self.next_ns = boundary_after(wall_ns, every);
            return Some(self.next_ns.saturating_sub(every));
        }
        // Times may go back a little around a boundary without a second rotation. A clock that was set back by more
        // than two periods starts a new count.
        if self.next_ns - wall_ns > every.saturating_mul(2) {
            self.next_ns = boundary_after(wall_ns, every);
        }
        None
    }

    /// Whether a file of `bytes` is rotated because of its size at `wall_ns`.
    pub(super) fn is_large(&self, bytes: u64, wall_ns: u64) -> bool {
        // A clock that was set back must not make the pause longer.
        let is_ignored =
            wall_ns < self.ignored_until_ns && self.ignored_until_ns - wall_ns <= POSTPONED_NS;
        self.bytes.is_some_and(|most| bytes > 0 && bytes >= most) && !is_ignored
    }

    /// Ignores the size for a minute after a failed rotation; the time still counts.
    pub(super) fn postpone(&mut self, wall_ns: u64) {
        self.ignored_until_ns = wall_ns.saturating_add(POSTPONED_NS);
    }
}

/// The first multiple of `every` after `ns`.
fn boundary_after(ns: u64, every: u64) -> u64 {
    (ns - ns % every).saturating_add(every)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use telemetry::Nanos;

    use super::*;

    const HOUR: u64 = 3_600_000_000_000;
    const DAY: u64 = 24 * HOUR;

    fn every(ns: u64) -> Rotation {
        Rotation {
            every: Some(Nanos(ns)),
            ..Rotation::default()
        }
    }

    /// Periods are hours here: of a file begun at `start`, what is crossed at each time.
    fn check(start: u64, crossings: &[(u64, Option<u64>)]) {
        let mut schedule = Schedule::new(&every(HOUR), start);
        for (at, expect) in crossings {
            assert_eq!(schedule.crossed(*at), *expect, "{at}");
        }
    }

    #[test]
    fn crosses_each_boundary_once() {
        let (two, six, seven) = (2 * HOUR, 6 * HOUR, 7 * HOUR);
        check(six - 1, &[(six - 1, None), (six, Some(six)), (six, None)]);
        check(six + 7, &[(seven - 1, None), (seven + 5, Some(seven))]);
        // After a quiet time.
        check(two, &[(seven + 1, Some(seven)), (seven + 2, None)]);
        // Lines come out of order.
        check(HOUR, &[(two, Some(two)), (two - 5, None), (two + 1, None)]);
        // The clock was set back.
        check(1_000 * HOUR, &[(two + 1, None), (six, Some(six))]);
    }

    #[test]
    fn begins_a_day_at_midnight_utc_and_a_month_too() {
        let secs = |parts| telemetry::unix_from_civil(parts).unwrap() * 1_000_000_000;
        let mut schedule = Schedule::new(&every(DAY), secs([2026, 12, 31, 23, 59, 59]));
        let new_year = secs([2027, 1, 1, 0, 0, 0]);
        assert_eq!(schedule.crossed(new_year - 1), None);
        assert_eq!(schedule.crossed(new_year), Some(new_year));
        assert_eq!(schedule.crossed(secs([2027, 1, 1, 23, 59, 59])), None);
    }

    #[test]
    fn is_large_from_its_size_on_but_never_when_empty() {
        let rotation = Rotation {
            bytes: Some(100),
            ..Rotation::default()
        };
        let schedule = Schedule::new(&rotation, 0);
        for (bytes, expect) in [(0, false), (99, false), (100, true), (u64::MAX, true)] {
            assert_eq!(schedule.is_large(bytes, 1), expect, "{bytes}");
        }
        let zero = Rotation {
            bytes: Some(0),
            ..Rotation::default()
        };
        assert!(!Schedule::new(&zero, 0).is_large(0, 1));
    }

    #[test]
    fn waits_a_minute_after_a_failure_but_not_for_a_clock_that_was_set_back() {
        let rotation = Rotation {
            bytes: Some(100),
            ..Rotation::default()
        };
        let mut schedule = Schedule::new(&rotation, 0);
        schedule.postpone(10 * HOUR);
        assert!(!schedule.is_large(100, 10 * HOUR));
        assert!(!schedule.is_large(100, 10 * HOUR + POSTPONED_NS - 1));
        assert!(schedule.is_large(100, 10 * HOUR + POSTPONED_NS));
        assert!(schedule.is_large(100, 9 * HOUR));
    }

    #[test]
    fn without_settings_nothing_is_rotated() {
        let mut schedule = Schedule::new(&Rotation::default(), 0);
        assert_eq!(schedule.crossed(u64::MAX), None);
        assert!(!schedule.is_large(u64::MAX, 0));
    }

    proptest! {
        /// Of lines in order each is in the file of its period, and files are begun in order.
        #[test]
        fn lines_in_order_are_in_the_file_of_their_period(
            every_ns in 1..5_000u64, start in 0..10_000u64, steps in proptest::collection::vec(0..9_000u64, 1..50)
        ) {
            let mut schedule = Schedule::new(&every(every_ns), start);
            let (mut at, mut file) = (start, start / every_ns);
            for step in steps {
                at += step;
                if let Some(from) = schedule.crossed(at) {
                    prop_assert_eq!(from % every_ns, 0);
                    file = from / every_ns;
                }
                prop_assert_eq!(file, at / every_ns);
            }
        }
    }
}
