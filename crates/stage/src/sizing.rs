//! How many threads a pool should have.
//!
//! Takes what a pool looks like at a moment, gives one step. The corridor that owns the threads asks
//! every tick (100 ms) and after it started or lost a thread, and performs the step; a
//! thread that is to go finishes what it runs. It must not count the threads itself.

use measure::{Nanos, Stamp};

/// What a pool looks like at a moment.
///
/// Both latencies are there because neither is enough: when all threads hang nothing is taken from
/// the queue and only the oldest wait grows, and in a burst the oldest waits long while the least
/// wait of those taken says that the queue had run empty between.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct PoolSeen {
    /// Exchanges in the queue.
    pub waiting: usize,
    /// How long the first of them has been there; zero when none is.
    pub oldest_wait: Nanos,
    /// The least wait of those that left the queue since the last observation; `None` when none did.
    pub dequeued_wait_min: Option<Nanos>,
    /// Threads that run a handler.
    pub running: usize,
    /// Threads that wait for work. `running + idle` is the size of the pool.
    pub idle: usize,
    /// Exchanges completed since the pool began.
    pub completed: u64,
}

/// What to do about the size of a pool.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum SizeStep {
    /// It is right.
    Keep,
    /// Start so many threads more; at least 1.
    Grow(usize),
    /// Let so many threads go, those idle longest first; at least 1, never the last thread.
    Shrink(usize),
}

/// A policy of sizing, with what it remembers.
#[derive(Clone, Debug)]
pub enum Sizer {
    /// As many threads as it says, at least one: lost ones are replaced.
    Fixed {
        /// Threads that the pool should have.
        threads: usize,
    },
}

impl Sizer {
    /// Looks at the pool at `_now`, which must not go back from call to call.
    ///
    /// A fixed pool needs no time; a policy that grows by latency counts its windows by it.
    pub fn observe(&mut self, _now: Stamp, seen: &PoolSeen) -> SizeStep {
        match self {
            Sizer::Fixed { threads } => step(seen.running + seen.idle, (*threads).max(1)),
        }
    }
}

fn step(threads: usize, wanted: usize) -> SizeStep {
    if threads < wanted {
        SizeStep::Grow(wanted - threads)
    } else if threads > wanted {
        SizeStep::Shrink(threads - wanted)
    } else {
        SizeStep::Keep
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn check(threads: usize, running: usize, idle: usize, expect: SizeStep) {
        let seen = PoolSeen {
            running,
            idle,
            ..PoolSeen::default()
        };
        let found = Sizer::Fixed { threads }.observe(Stamp(1), &seen);
        assert_eq!(
            found, expect,
            "{threads} wanted, {running} running, {idle} idle"
        );
    }

    #[test]
    fn fixed_goes_to_its_size_and_stays() {
        check(4, 0, 0, SizeStep::Grow(4));
        check(4, 2, 1, SizeStep::Grow(1));
        check(4, 4, 0, SizeStep::Keep);
        check(4, 0, 4, SizeStep::Keep);
        check(4, 3, 3, SizeStep::Shrink(2));
        check(0, 0, 0, SizeStep::Grow(1));
        check(0, 1, 0, SizeStep::Keep);
    }

    proptest! {
        #[test]
        fn one_step_is_enough(threads in 0usize..100, running in 0usize..100, idle in 0usize..100) {
            let mut sizer = Sizer::Fixed { threads };
            let mut seen = PoolSeen { running, idle, waiting: 7, ..PoolSeen::default() };
            let size = match sizer.observe(Stamp(1), &seen) {
                SizeStep::Keep => running + idle,
                SizeStep::Grow(more) => running + idle + more,
                SizeStep::Shrink(fewer) => running + idle - fewer,
            };
            seen = PoolSeen { running: size, idle: 0, ..seen };
            prop_assert!(size >= 1);
            prop_assert_eq!(sizer.observe(Stamp(2), &seen), SizeStep::Keep);
        }
    }
}
