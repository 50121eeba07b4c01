//! Apache prefork: between so many and so many idle servers.
//!
//! apache/httpd: server/mpm/prefork/prefork.c, `perform_idle_server_maintenance`: once a second; with fewer
//! than `MinSpareServers` (5) idle it starts 1, and twice as many in each second that follows at once, up to
//! 32 (`MAX_SPAWN_RATE`); with more than `MaxSpareServers` (10) idle one leaves.

use queueing::{PoolSeen, PoolSettings};
use telemetry::{Nanos, Stamp};

use super::Growth;

const SPARE_MIN: usize = 5;
const SPARE_MAX: usize = 10;
const SPAWN_LEN_MAX: usize = 32;
const MAINTENANCE: Nanos = Nanos::from_secs(1);

/// Apache prefork's rule.
#[derive(Clone, Debug)]
pub struct Prefork {
    settings: PoolSettings,
    maintained: Stamp,
    spawn_len: usize,
}

impl Prefork {
    /// For a pool with these bounds.
    pub fn new(settings: &PoolSettings) -> Prefork {
        Prefork {
            settings: *settings,
            maintained: Stamp::ZERO,
            spawn_len: 1,
        }
    }
}

impl Growth for Prefork {
    fn wanted(&mut self, now: Stamp, seen: &PoolSeen) -> usize {
        let shape = &self.settings.shape;
        let threads = seen.running + seen.idle;
        let mut wanted = threads;
        if now.since(self.maintained) >= MAINTENANCE {
            self.maintained = now;
            match seen.idle {
                0..SPARE_MIN => {
                    wanted += self.spawn_len;
                    self.spawn_len = (2 * self.spawn_len).min(SPAWN_LEN_MAX);
                }
                SPARE_MIN..=SPARE_MAX => self.spawn_len = 1,
                _ => {
                    wanted -= 1;
                    self.spawn_len = 1;
                }
            }
        }
        wanted.clamp(shape.threads_min, shape.threads_max)
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::{settings, steps};
    use super::*;
    use queueing::SizeStep::{self, Grow, Keep, Shrink};

    #[test]
    fn doubles_what_it_starts_in_each_second_and_lets_one_go() {
        let mut rule = Prefork::new(&settings(5, 256));
        let looks: Vec<_> = std::iter::repeat_n((9, 5, 0), 51)
            .chain(std::iter::repeat_n((0, 2, 7), 10))
            .chain(std::iter::repeat_n((0, 2, 30), 10))
            .collect();
        let found = steps(&mut rule, &looks);
        let done: Vec<SizeStep> = found.into_iter().filter(|step| *step != Keep).collect();
        assert_eq!(
            done,
            [Grow(1), Grow(2), Grow(4), Grow(8), Grow(16), Shrink(1)]
        );
    }
}
