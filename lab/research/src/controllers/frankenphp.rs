//! FrankenPHP: when a request has waited for 5 ms and the processors are not busy.
//!
//! php/frankenphp: scaling.go: one thread more when a request stalled for 5 ms (`minStallTime`) and the
//! processors were less than 80 % busy (`maxCpuUsageForScaling`) in a probe of 120 ms (`cpuProbeTime`); every
//! 5 s (`downScaleCheckTime`) at most 10 threads leave that were idle for 5 s (`maxIdleTime`). Its
//! `max_wait_time` is left out. How busy the processors are is a model: a share of one for each thread at work.

use queueing::{PoolSeen, PoolSettings};
use telemetry::{Nanos, Stamp};

use super::{Growth, IdleFor};

const STALLED: Nanos = Nanos::from_ms(5);
const CPU_SHARE_MAX: f64 = 0.8;
const PROBE: Nanos = Nanos::from_ms(120);
const IDLE: Nanos = Nanos::from_secs(5);
const LEAVING_LEN_MAX: usize = 10;
/// Of a processor's time, by a thread at work.
const CPU_OF_THREAD: f64 = 0.3;
const PROCESSORS: f64 = 8.0;

/// FrankenPHP's rule.
#[derive(Clone, Debug)]
pub struct FrankenPhp {
    settings: PoolSettings,
    idle: IdleFor,
    probed: Stamp,
}

impl FrankenPhp {
    /// For a pool with these bounds, on eight processors.
    pub fn new(settings: &PoolSettings) -> FrankenPhp {
        FrankenPhp {
            settings: *settings,
            idle: IdleFor::new(IDLE),
            probed: Stamp::ZERO,
        }
    }
}

impl Growth for FrankenPhp {
    fn wanted(&mut self, now: Stamp, seen: &PoolSeen) -> usize {
        let shape = &self.settings.shape;
        let threads = seen.running + seen.idle;
        let less = self.idle.look(seen.idle).min(LEAVING_LEN_MAX);
        let cpu_share = seen.running as f64 * CPU_OF_THREAD / PROCESSORS;
        let is_stalled = seen.oldest_wait >= STALLED && now.since(self.probed) >= PROBE;
        let more = match is_stalled && cpu_share < CPU_SHARE_MAX {
            true => {
                self.probed = now;
                1
            }
            false => 0,
        };
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
    fn grows_one_at_a_time_until_the_processors_are_busy() {
        let mut rule = FrankenPhp::new(&settings(8, 64));
        let looks = [
            (3, 8, 0),
            (3, 9, 0),
            (3, 9, 0),
            (3, 21, 0),
            (3, 21, 0),
            (3, 22, 0),
        ];
        let found = steps(&mut rule, &looks);
        assert_eq!(found, [Keep, Keep, Grow(1), Keep, Grow(1), Keep]);
        let found = steps(&mut rule, &[(0, 2, 20); 100]);
        assert!(found.contains(&Shrink(10)), "{found:?}");
    }
}
