//! Which driver a fresh connection goes to: the one that accepted it, or the least loaded of its siblings.
//!
//! Takes how many connections are open where, and how long connections last; gives a decision. It must not
//! know a connection: whoever asks moves it, before a byte of it is read.
//!
//! The kernel spreads connections by a hash, which is even in the long run and by accident over a few:
//! sixteen clients that stay for hours are easily seven on one driver and one on another. Moving one costs a
//! message and a wake-up of another thread. It is paid where a connection stays long enough to be worth it,
//! and where the difference is more than the hash's own noise:
//!
//! ```text
//! slack
//!   n/4 ┤                 ╱
//!     4 ┤          ╭─────╯
//!     0 ┼──────────╯             the accepting driver keeps a connection while it has at most
//!       0          16            so many more than the least loaded one
//! ```

use telemetry::{Nanos, Stamp};

/// Drivers beyond the processors come into use only when those before them have so many each: they add no
/// processor, and make smaller batches of the same requests. With one processor, ten clients cost 11 % more
/// processor time on three drivers than on one, and half as much again where two of them have a second one.
const FILL_LEN: u32 = 12;
/// Three and four drivers are few enough that sixteen long connections can be spread exactly.
const FEW_DRIVERS: usize = 4;
/// These.
const SPREAD_LEN: u32 = 16;
/// With fewer connections than these at the least loaded driver the spread is exact.
const EXACT_LEN: u32 = 16;
/// Beyond, a driver is clearly busier with a quarter more.
const SLACK_SHARE: u32 = 4;
/// Connections that do not even last so long are gone before an uneven spread of them matters.
const SHORT: Nanos = Nanos::from_ms(20);
/// Weight of one more connection in the mean is one of so many.
const MEMORY: u64 = 16;
/// What the mean begins with: some sixty short ones have to end before connections count as short. A single one,
/// a question about health, says nothing of those that come right behind it.
const FIRST: Nanos = Nanos::from_secs(1);

/// What happens to a fresh connection.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Placement {
    /// The driver that accepted it has it.
    Keep,
    /// The least loaded one gets it.
    HandOver,
}

/// How loaded a driver is, to be compared: the least of several is to have the next connection.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct Load {
    len: u32,
    /// Among drivers that are equally loaded: those that wait to be filled come first, begun ones before others.
    turn: u32,
}

impl Load {
    /// No driver has more.
    pub const MAX: Load = Load {
        len: u32::MAX,
        turn: u32::MAX,
    };
    /// No driver has less.
    pub const NONE: Load = Load { len: 0, turn: 0 };

    /// Of the driver with this number with `open` connections.
    pub fn new(open: u32, driver: usize, drivers: Drivers) -> Load {
        let fill = drivers.fill();
        if driver >= drivers.processors && open < fill {
            Load {
                len: fill,
                turn: fill - open,
            }
        } else {
            Load {
                len: open,
                turn: u32::MAX,
            }
        }
    }
}

/// The drivers of a process.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Drivers {
    /// How many; at least 1.
    pub len: usize,
    /// Processors that they have to themselves.
    pub processors: usize,
}

impl Drivers {
    /// How many connections each one has before another one beyond the processors comes into use.
    fn fill(self) -> u32 {
        match self.len {
            3..=FEW_DRIVERS => SPREAD_LEN / self.len as u32,
            _ => FILL_LEN,
        }
    }

    /// Whether they take turns on the processors.
    pub fn share_processors(self) -> bool {
        self.share_processors_with(0)
    }

    /// Whether they do while so many other threads have something to do.
    pub fn share_processors_with(self, others: usize) -> bool {
        self.len + others > self.processors
    }
}

/// Where a fresh connection goes: `mine` is the driver that accepted it, `least` the least loaded of its
/// siblings, and this driver's connections last for `lifetime`.
pub fn placement(mine: Load, least: Load, lifetime: Nanos) -> Placement {
    let is_busier = match least.len {
        0..EXACT_LEN => mine > least,
        len => mine.len > len.saturating_add(len / SLACK_SHARE),
    };
    if lifetime >= SHORT && is_busier {
        Placement::HandOver
    } else {
        Placement::Keep
    }
}

/// How long a driver's connections last: the mean of those that have ended, the latest the most.
#[derive(Clone, Copy, Debug, Default)]
pub struct Lifetimes {
    /// `None`: none has ended.
    mean: Option<Nanos>,
    last_end: Stamp,
}

impl Lifetimes {
    /// One has ended at `now` after `lifetime`.
    pub fn ended(&mut self, lifetime: Nanos, now: Stamp) {
        let mean = self.mean.unwrap_or(FIRST);
        let more = lifetime.0.saturating_sub(mean.0) / MEMORY;
        let less = mean.0.saturating_sub(lifetime.0) / MEMORY;
        self.mean = Some(Nanos(mean.0 - less + more));
        self.last_end = now;
    }

    /// How long connections last, as far as is known at `now`. Where none has ended for longer than they used
    /// to last, those that are open last longer; where none has ended yet, they may last for ever.
    pub fn at(&self, now: Stamp) -> Nanos {
        match self.mean {
            Some(mean) => mean.max(now.since(self.last_end)),
            None => Nanos(u64::MAX),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const LONG: Nanos = Nanos::from_secs(60);

    #[test]
    fn one_thread_more_shares_where_each_driver_has_a_processor() {
        let check = |len, processors, others, expect| {
            let drivers = Drivers { len, processors };
            let found = drivers.share_processors_with(others);
            assert_eq!(found, expect, "{len} + {others} on {processors}");
        };
        check(1, 1, 0, false);
        check(1, 1, 1, true);
        check(1, 2, 1, false);
        check(2, 2, 1, true);
        check(3, 2, 0, true);
    }

    #[test]
    fn few_are_spread_exactly_and_many_with_slack() {
        let check = |mine, least, expect| {
            let alone = Drivers {
                len: 1,
                processors: 1,
            };
            let load = |open| Load::new(open, 0, alone);
            let found = placement(load(mine), load(least), LONG);
            assert_eq!(found == Placement::HandOver, expect, "{mine} to {least}");
        };
        check(0, 0, false);
        check(1, 0, true);
        check(3, 3, false);
        check(4, 3, true);
        check(2, 3, false);
        check(16, 15, true);
        check(20, 16, false);
        check(21, 16, true);
        check(1_250, 1_000, false);
        check(1_251, 1_000, true);
        check(u32::MAX, u32::MAX, false);
    }

    #[test]
    fn those_that_come_and_go_stay_where_they_are() {
        let (most, least) = (Load::MAX, Load::NONE);
        assert_eq!(placement(most, least, Nanos::from_ms(19)), Placement::Keep);
        let found = placement(most, least, Nanos::from_ms(20));
        assert_eq!(found, Placement::HandOver);
    }

    #[test]
    fn drivers_beyond_the_processors_are_filled_one_after_the_other() {
        let hashes: Vec<usize> = (0..120).collect();
        let on_two = |len: usize| spread(10, 2, &hashes[..len], usize::MAX, LONG).0;
        assert_eq!(on_two(4), [2, 2, 0, 0, 0, 0, 0, 0, 0, 0]);
        let mut ten = on_two(10);
        ten.sort_unstable();
        assert_eq!(ten, [0, 0, 0, 0, 0, 0, 0, 0, 5, 5]);
        let mut forty = on_two(40);
        forty.sort_unstable();
        assert_eq!(forty, [0, 0, 0, 0, 0, 0, 4, 12, 12, 12]);
        assert_eq!(on_two(120), [12; 10]);
        let mut two_on_one = spread(2, 1, &hashes[..10], usize::MAX, LONG).0;
        two_on_one.sort_unstable();
        assert_eq!(two_on_one, [0, 10]);
    }

    #[test]
    fn the_mean_follows_what_ends_and_the_silence_after_it() {
        let mut lifetimes = Lifetimes::default();
        assert_eq!(lifetimes.at(Stamp(5)), Nanos(u64::MAX));
        lifetimes.ended(Nanos::from_us(300), Stamp(1_000));
        let after_one = placement(Load::MAX, Load::NONE, lifetimes.at(Stamp(1_000)));
        assert_eq!(after_one, Placement::HandOver);
        lifetimes.ended(LONG, Stamp(1_000));
        assert!(lifetimes.at(Stamp(1_000)) > FIRST);
        for _ in 0..200 {
            lifetimes.ended(Nanos::from_ms(1), Stamp(2_000));
        }
        let mean = lifetimes.at(Stamp(2_000));
        assert!(mean < Nanos::from_us(1_400), "{mean}");
        let later = Stamp(2_000).plus(Nanos::from_ms(50));
        assert_eq!(lifetimes.at(later), Nanos::from_ms(50));
        for _ in 0..200 {
            lifetimes.ended(Nanos::from_secs(1), later);
        }
        let mean = lifetimes.at(later);
        assert!(mean > Nanos::from_ms(990), "{mean}");
    }

    /// What the drivers of a process have after connections that the kernel gave to `hashes` in turn, of
    /// which every `leaving`th lets one leave that came long before; and how many were moved.
    fn spread(
        drivers: usize,
        processors: usize,
        hashes: &[usize],
        leaving: usize,
        lifetime: Nanos,
    ) -> (Vec<u32>, usize) {
        let mut open = vec![0; drivers];
        let mut holders = std::collections::VecDeque::new();
        let mut moved = 0;
        for (number, hash) in hashes.iter().enumerate() {
            let mine = hash % drivers;
            let others = (0..drivers).filter(|other| *other != mine);
            let all = Drivers {
                len: drivers,
                processors,
            };
            let load = |driver: usize| Load::new(open[driver], driver, all);
            let least = others.min_by_key(|other| load(*other));
            let target = match least {
                Some(least)
                    if placement(load(mine), load(least), lifetime) == Placement::HandOver =>
                {
                    moved += 1;
                    least
                }
                _ => mine,
            };
            open[target] += 1;
            holders.push_back(target);
            if number % leaving == leaving - 1
                && let Some(holder) = holders.pop_front()
            {
                open[holder] -= 1;
            }
        }
        (open, moved)
    }

    proptest! {
        #[test]
        fn sixteen_on_four_drivers_are_four_each(
            hashes in prop::collection::vec(0usize..1 << 20, 16),
            processors in 1usize..8,
        ) {
            let (open, _) = spread(4, processors, &hashes, usize::MAX, LONG);
            prop_assert_eq!(open, vec![4; 4]);
        }

        #[test]
        fn no_driver_is_much_busier_than_another(
            drivers in 2usize..12,
            hashes in prop::collection::vec(0usize..1 << 20, 1..3_000),
        ) {
            let (open, _) = spread(drivers, drivers, &hashes, usize::MAX, LONG);
            let least = open.iter().min().copied().unwrap_or(0);
            let most = open.iter().max().copied().unwrap_or(0);
            let slack = if least < EXACT_LEN { 0 } else { least / SLACK_SHARE };
            prop_assert!(most <= least + slack + 1, "{:?}", open);
        }

        #[test]
        fn short_ones_are_never_moved(
            hashes in prop::collection::vec(0usize..1 << 20, 1..500),
            leaving in 1usize..4,
        ) {
            let (_, moved) = spread(4, 4, &hashes, leaving, Nanos::from_ms(3));
            prop_assert_eq!(moved, 0);
        }
    }

    #[test]
    fn the_noise_of_the_hash_moves_few_of_many() {
        // A fixed linear congruential sequence in place of the kernel's hash.
        let mut state = 1_u64;
        let mut next = || {
            state = state
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1);
            (state >> 33) as usize
        };
        let hashes: Vec<usize> = (0..8_000).map(|_| next()).collect();
        let (_, moved) = spread(8, 8, &hashes, usize::MAX, LONG);
        assert!(moved < 400, "{moved} of 8000");
    }
}
