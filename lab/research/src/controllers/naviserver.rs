//! NaviServer: by the length of the queue, against two watermarks.
//!
//! naviserver: nsd/queue.c, `neededAdditionalConnectionThreads`: one thread at a time while more wait than
//! the low watermark (10 % of the queue), without waiting for the one before above the high one (80 %);
//! fewer than `minthreads` are always brought up. A thread that was idle for `threadtimeout` (2 min) leaves.

use queueing::{PoolSeen, PoolSettings};
use telemetry::{Nanos, Stamp};

use super::{Growth, IdleFor};

const LOW_PERCENT: usize = 10;
const HIGH_PERCENT: usize = 80;
const THREAD_TIMEOUT: Nanos = Nanos::from_secs(120);

/// NaviServer's rule.
#[derive(Clone, Debug)]
pub struct NaviServer {
    settings: PoolSettings,
    idle: IdleFor,
}

impl NaviServer {
    /// For a pool with these bounds; watermarks are of its `queue_len_max`.
    pub fn new(settings: &PoolSettings) -> NaviServer {
        NaviServer {
            settings: *settings,
            idle: IdleFor::new(THREAD_TIMEOUT),
        }
    }
}

impl Growth for NaviServer {
    fn wanted(&mut self, _: Stamp, seen: &PoolSeen) -> usize {
        let shape = &self.settings.shape;
        let threads = seen.running + seen.idle;
        let low = shape.queue_len_max * LOW_PERCENT / 100;
        let high = shape.queue_len_max * HIGH_PERCENT / 100;
        let more = match seen.waiting {
            waiting if waiting > high => waiting - high,
            waiting if waiting > low => 1,
            _ => 0,
        };
        let less = self.idle.look(seen.idle);
        let wanted = (threads + more).saturating_sub(less);
        wanted.clamp(shape.threads_min, shape.threads_max)
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::{settings, steps};
    use super::*;
    use queueing::SizeStep::{Grow, Keep, Shrink};

    #[test]
    fn grows_by_the_watermarks_and_shrinks_after_two_minutes() {
        let mut rule = NaviServer::new(&settings(5, 64));
        let looks = [(10, 5, 0), (11, 5, 0), (80, 6, 0), (95, 7, 0), (0, 4, 0)];
        assert_eq!(
            steps(&mut rule, &looks),
            [Keep, Grow(1), Grow(1), Grow(15), Grow(1)]
        );
        let found = steps(&mut rule, &[(0, 2, 18); 2_400]);
        assert_eq!(found.iter().filter(|step| **step != Keep).count(), 1);
        assert_eq!(found[2_394], Shrink(15));
    }
}
