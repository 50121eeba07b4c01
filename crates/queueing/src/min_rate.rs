//! A deadline that a trickle does not renew.
//!
//! Takes bytes as they come or go, gives the time at which the other side has fallen too far behind.
//! It must not read a clock, and it closes nothing: the caller enforces the deadline.
//!
//! The model is a balance in time. It begins with the grace, runs down as time passes, and each byte
//! pays for the time that it may take at the least rate; it never holds more than the grace, so that
//! a fast start buys no long silence later. A client that keeps the rate never fails. A client that stops fails
//! after the grace at most. A client that trickles fails once the grace and the time that its bytes paid
//! for are used up.

use telemetry::{Nanos, Stamp};

const NANOS_PER_SEC: u128 = 1_000_000_000;

/// The deadline of one body or response, moved by its progress.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Pace {
    deadline: Stamp,
    grace: Nanos,
    rate_min: u64,
    /// What the deadline has beyond its whole nanoseconds, in parts of `1 / rate_min` ns.
    parts: u64,
    /// When the clock was stopped; `Stamp::ZERO` while it runs.
    held: Stamp,
}

impl Pace {
    /// A pace whose deadline is `grace` after `now`.
    ///
    /// `rate_min` is in bytes a second; with 0 any progress renews the deadline in full.
    pub const fn new(now: Stamp, grace: Nanos, rate_min: u64) -> Pace {
        Pace {
            deadline: now.plus(grace),
            grace,
            rate_min,
            parts: 0,
            held: Stamp::ZERO,
        }
    }

    /// Counts `bytes` of progress at `now`; none at all is no progress.
    ///
    /// The deadline moves by `bytes / rate_min`, but never beyond `now` and the grace, and never back.
    pub fn advance(&mut self, bytes: u64, now: Stamp) {
        let ceiling = self.clock(now).plus(self.grace);
        if bytes == 0 || ceiling <= self.deadline {
            return;
        }
        let (deadline, parts) = self.moved_by(bytes).unwrap_or((ceiling, 0));
        // The ceiling keeps a client from saving up patience by a fast beginning.
        (self.deadline, self.parts) = if deadline < ceiling {
            (deadline, parts)
        } else {
            (ceiling, 0)
        };
    }

    /// When patience ends; [`Stamp::NEVER`] while it is held.
    pub fn deadline(&self) -> Stamp {
        if self.held == Stamp::ZERO {
            self.deadline
        } else {
            Stamp::NEVER
        }
    }

    /// Stops the clock: from `now` on it is not the other side that is waited for. Bytes count as
    /// before. Holding what is held changes nothing.
    pub fn hold(&mut self, now: Stamp) {
        if self.held == Stamp::ZERO {
            self.held = now;
        }
    }

    /// Lets the clock run again: the deadline moves by the time that it was held. Resuming what runs
    /// changes nothing.
    pub fn resume(&mut self, now: Stamp) {
        if self.held != Stamp::ZERO {
            self.deadline = self.deadline.plus(now.since(self.held));
            self.held = Stamp::ZERO;
        }
    }

    /// The present as the balance sees it.
    fn clock(&self, now: Stamp) -> Stamp {
        if self.held == Stamp::ZERO {
            now
        } else {
            self.held
        }
    }

    /// The deadline and its parts after `bytes`; `None`: beyond the clock, or without a rate.
    fn moved_by(&self, bytes: u64) -> Option<(Stamp, u64)> {
        let rate = u128::from(self.rate_min);
        let worth = u128::from(bytes) * NANOS_PER_SEC + u128::from(self.parts);
        let nanos = u64::try_from(worth.checked_div(rate)?).ok()?;
        let deadline = self.deadline.0.checked_add(nanos)?;
        assert!(
            deadline >= self.deadline.0,
            "progress never shortens a deadline"
        );
        let parts =
            u64::try_from(worth % rate).expect("a remainder of what fits 64 bits fits them");
        Some((Stamp(deadline), parts))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const START: Stamp = Stamp(1_000_000_000);

    fn at_ms(ms: u64) -> Stamp {
        START.plus(Nanos::from_ms(ms))
    }

    /// What happens to a pace, at milliseconds after its start.
    #[derive(Clone, Copy, Debug)]
    enum Event {
        Bytes(u64, u64),
        Hold(u64),
        Resume(u64),
    }

    fn after(rate_min: u64, steps: &[Event]) -> Pace {
        let mut pace = Pace::new(START, Nanos::from_secs(10), rate_min);
        for &step in steps {
            match step {
                Event::Bytes(bytes, ms) => pace.advance(bytes, at_ms(ms)),
                Event::Hold(ms) => pace.hold(at_ms(ms)),
                Event::Resume(ms) => pace.resume(at_ms(ms)),
            }
        }
        pace
    }

    /// Ten seconds of grace; where the deadline is after `steps`, in milliseconds.
    fn check(rate_min: u64, steps: &[Event], expect_ms: u64) {
        let found = after(rate_min, steps).deadline();
        assert_eq!(found, at_ms(expect_ms), "{rate_min} B/s, {steps:?}");
    }

    #[test]
    fn a_byte_is_worth_its_time_at_the_least_rate() {
        use Event::Bytes;
        check(100, &[], 10_000);
        check(100, &[Bytes(0, 9_000)], 10_000);
        check(100, &[Bytes(1, 9_000)], 10_010);
        check(100, &[Bytes(100, 5_000)], 11_000);
        check(100, &[Bytes(500, 5_000)], 15_000);
        // Credit ends at the grace.
        check(100, &[Bytes(501, 5_000)], 15_000);
        check(100, &[Bytes(u64::MAX, 5_000)], 15_000);
        check(100, &[Bytes(1_000_000, 0)], 10_000);
        check(100, &[Bytes(1_000_000, 0), Bytes(100, 1_000)], 11_000);
    }

    #[test]
    fn without_a_rate_any_progress_renews() {
        use Event::Bytes;
        check(0, &[], 10_000);
        check(0, &[Bytes(0, 9_000)], 10_000);
        check(0, &[Bytes(1, 9_000)], 19_000);
        check(0, &[Bytes(1, 9_000), Bytes(u64::MAX, 18_000)], 28_000);
    }

    #[test]
    fn time_of_others_does_not_count() {
        use Event::{Bytes, Hold, Resume};
        check(100, &[Hold(1_000), Resume(6_000)], 15_000);
        check(100, &[Hold(1_000), Hold(4_000), Resume(6_000)], 15_000);
        check(100, &[Hold(1_000), Resume(6_000), Resume(9_000)], 15_000);
        check(100, &[Resume(6_000)], 10_000);
        // Five seconds had passed when it was held: that is the room for credit.
        check(
            100,
            &[Hold(5_000), Bytes(900, 7_000), Resume(8_000)],
            18_000,
        );
        check(
            100,
            &[Hold(5_000), Bytes(100, 7_000), Resume(8_000)],
            14_000,
        );
        check(0, &[Hold(5_000), Bytes(1, 7_000), Resume(8_000)], 18_000);
        // Overdue when it was held, overdue when it runs again.
        check(100, &[Hold(11_000), Resume(15_000)], 14_000);
    }

    #[test]
    fn has_no_deadline_while_it_is_held() {
        let held = after(100, &[Event::Hold(1_000), Event::Bytes(10, 2_000)]);
        assert_eq!(held.deadline(), Stamp::NEVER);
    }

    #[test]
    fn a_trickle_dies_at_grace_plus_what_its_bytes_were_worth() {
        // One byte every five seconds at 256 B/s is worth 3.9 ms each.
        let mut pace = Pace::new(START, Nanos::from_secs(30), 256);
        let mut now = START;
        while now < pace.deadline() {
            now = now.plus(Nanos::from_secs(5));
            pace.advance(1, now);
        }
        let lived = pace.deadline().since(START);
        assert_eq!(lived, Nanos(30_000_000_000 + 7 * 3_906_250));
    }

    #[test]
    fn fractions_of_a_nanosecond_are_kept() {
        // A byte is worth a third of a nanosecond.
        let mut pace = Pace::new(Stamp(1), Nanos(1_000), 3_000_000_000);
        for _ in 0..300 {
            pace.advance(1, Stamp(900));
        }
        assert_eq!(pace.deadline(), Stamp(1_101));
    }

    #[test]
    fn is_small() {
        assert!(size_of::<Pace>() <= 40);
    }

    /// The rule as the documentation has it, in parts of `1 / rate` ns, on a clock of its own that
    /// stands still while it is held.
    struct ExactRate {
        rate: u128,
        grace: u128,
        deadline: u128,
        held_in_all: u128,
        held_at: Option<u128>,
    }

    impl ExactRate {
        fn own_clock(&self, now: u128) -> u128 {
            self.held_at.unwrap_or(now) - self.held_in_all
        }

        fn step(&mut self, step: Event) {
            match step {
                Event::Bytes(bytes, now) => {
                    let top = (self.own_clock(u128::from(now)) + self.grace) * self.rate;
                    let moved = self.deadline + u128::from(bytes) * NANOS_PER_SEC;
                    self.deadline = moved.min(top);
                }
                Event::Hold(now) => self.held_at = self.held_at.or(Some(now.into())),
                Event::Resume(now) => {
                    if let Some(since) = self.held_at.take() {
                        self.held_in_all += u128::from(now) - since;
                    }
                }
            }
        }

        fn deadline(&self) -> Stamp {
            match self.held_at {
                Some(_) => Stamp::NEVER,
                None => Stamp((self.deadline / self.rate + self.held_in_all) as u64),
            }
        }
    }

    fn kinds() -> impl Strategy<Value = (u8, u64, u64)> {
        let bytes = prop_oneof![Just(0), 1u64..10, 1u64..100_000, 1u64..1 << 40];
        (0u8..6, bytes, 0u64..20_000_000_000)
    }

    proptest! {
        #[test]
        fn agrees_with_the_naive_rule(
            rate in prop_oneof![1u64..10, 1u64..10_000, 1u64..1 << 40],
            grace in 0u64..60_000_000_000,
            kinds in prop::collection::vec(kinds(), 0..100),
        ) {
            let mut pace = Pace::new(START, Nanos(grace), rate);
            let mut naive = ExactRate {
                rate: rate.into(),
                grace: grace.into(),
                deadline: u128::from(START.0 + grace) * u128::from(rate),
                held_in_all: 0,
                held_at: None,
            };
            let mut now = START;
            for (kind, bytes, passed) in kinds {
                now = now.plus(Nanos(passed));
                match kind {
                    0 => {
                        pace.hold(now);
                        naive.step(Event::Hold(now.0));
                    }
                    1 => {
                        pace.resume(now);
                        naive.step(Event::Resume(now.0));
                    }
                    _ => {
                        pace.advance(bytes, now);
                        naive.step(Event::Bytes(bytes, now.0));
                    }
                }
                prop_assert_eq!(pace.deadline(), naive.deadline());
            }
        }

        #[test]
        fn whoever_keeps_the_rate_never_fails(
            rate in 1u64..1_000_000,
            grace_ms in 1_000u64..60_000,
            // Whatever comes in one go took less than the grace.
            pauses_ms in prop::collection::vec(1u64..1_000, 1..200),
        ) {
            let mut pace = Pace::new(START, Nanos::from_ms(grace_ms), rate);
            let mut ms = 0;
            let mut sent = 0;
            for pause_ms in pauses_ms {
                ms += pause_ms;
                prop_assert!(at_ms(ms) <= pace.deadline());
                let due = (rate * ms).div_ceil(1_000);
                pace.advance(due - sent, at_ms(ms));
                sent = due;
            }
        }

        #[test]
        fn whoever_stops_fails_within_the_grace(
            rate: u64,
            grace: u64,
            bytes in prop::collection::vec(any::<u64>(), 0..20),
            now in 1u64..,
        ) {
            let mut pace = Pace::new(Stamp(now), Nanos(grace), rate);
            for bytes in bytes {
                pace.advance(bytes, Stamp(now));
                prop_assert!(pace.deadline() <= Stamp(now).plus(Nanos(grace)));
            }
        }

        #[test]
        fn no_values_break_it_or_move_it_back(
            rate: u64,
            grace: u64,
            steps in prop::collection::vec((0u8..4, any::<u64>(), any::<u64>()), 0..50),
        ) {
            let mut pace = Pace::new(Stamp(1), Nanos(grace), rate);
            let mut last = pace.deadline;
            for (kind, bytes, now) in steps {
                match kind {
                    0 => pace.hold(Stamp(now)),
                    1 => pace.resume(Stamp(now)),
                    _ => pace.advance(bytes, Stamp(now)),
                }
                prop_assert!(pace.deadline >= last);
                prop_assert!(pace.parts < rate.max(1));
                last = pace.deadline;
            }
        }
    }
}
