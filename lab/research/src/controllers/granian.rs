//! Granian: whenever more wait than there are idle threads.
//!
//! emmett-framework/granian: src/blocking.rs, `BlockingRunner::run`: each request that is handed over starts
//! one thread more while the queue is longer than the number of idle threads, up to `blocking_threads`; the
//! first thread stays, the others leave when they were idle for `blocking_threads_idle_timeout` (30 s). The
//! queue has no end.

use queueing::{Admission, Class, Decision, PoolSeen, PoolSettings, PoolState, Waiting};
use telemetry::{Nanos, Stamp};
use whatif::Policy;

use super::{IdleFor, decision, step_to};

const IDLE: Nanos = Nanos::from_secs(30);

/// Granian's rule.
#[derive(Clone, Debug)]
pub struct Granian {
    settings: PoolSettings,
    idle: IdleFor,
}

impl Granian {
    /// For a pool with these bounds.
    pub fn new(settings: &PoolSettings) -> Granian {
        Granian {
            settings: *settings,
            idle: IdleFor::new(IDLE),
        }
    }
}

impl Policy for Granian {
    fn tick(&mut self, _: Stamp, seen: &PoolSeen) -> Decision {
        let shape = &self.settings.shape;
        let threads = seen.running + seen.idle;
        let less = self.idle.look(seen.idle);
        let more = seen.waiting.saturating_sub(seen.idle);
        let wanted = (threads + more).saturating_sub(less);
        let wanted = wanted.clamp(shape.threads_min, shape.threads_max);
        decision(step_to(threads, wanted))
    }

    fn admit(&self, _: Waiting, _: Class, _: &PoolSettings, _: &PoolState) -> Admission {
        Admission::Enqueue
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::{settings, steps};
    use super::*;
    use queueing::SizeStep::{Grow, Keep, Shrink};

    #[test]
    fn grows_with_the_length_of_the_queue() {
        let mut rule = Granian::new(&settings(1, 64));
        let looks = [(1, 1, 0), (3, 2, 0), (2, 3, 2), (200, 5, 0)];
        assert_eq!(steps(&mut rule, &looks), [Grow(1), Grow(3), Keep, Grow(59)]);
        let found = steps(&mut rule, &[(0, 4, 60); 600]);
        assert!(found.contains(&Shrink(60)), "{found:?}");
    }
}
