//! Netflix' Gradient2: by how much run times rise above their long average.
//!
//! Netflix/concurrency-limits: limit/Gradient2Limit.java: with each window the gradient is
//! `tolerance (1.5) × long average / run time`, within 0.5 and 1, the new limit `limit × gradient + 4`,
//! smoothed by 0.2; the long average is exponential over 600 windows and falls by 5 % where it is more than
//! twice the run time; the limit stays where less than half of it is used. There it limits requests at once
//! and refuses the others; here the limit is the number of threads, and as many may wait. A window is a tick
//! in place of a second, the run time the median of the last ones.

use queueing::{Admission, Class, Decision, PoolSeen, PoolSettings, PoolState, Waiting};
use telemetry::Stamp;
use whatif::Policy;

use super::{decision, step_to, while_there_is_room};

const TOLERANCE: f64 = 1.5;
const GRADIENT_MIN: f64 = 0.5;
const QUEUE_LEN: f64 = 4.0;
const SMOOTHING: f64 = 0.2;
const LONG_WINDOWS: f64 = 600.0;
const LONG_RATIO_MAX: f64 = 2.0;
const LONG_DECAY: f64 = 0.95;

/// Gradient2 as a rule for threads.
#[derive(Clone, Debug)]
pub struct Gradient2 {
    settings: PoolSettings,
    limit: f64,
    long_secs: Option<f64>,
}

impl Gradient2 {
    /// For a pool with these bounds.
    pub fn new(settings: &PoolSettings) -> Gradient2 {
        Gradient2 {
            settings: *settings,
            limit: settings.shape.threads_min as f64,
            long_secs: None,
        }
    }

    fn update(&mut self, run_secs: f64, at_work: usize) {
        let long = self.long_secs.unwrap_or(run_secs);
        let mut long = long + (run_secs - long) * 2.0 / (LONG_WINDOWS + 1.0);
        if long > LONG_RATIO_MAX * run_secs {
            long *= LONG_DECAY;
        }
        self.long_secs = Some(long);
        if (at_work as f64) < self.limit / 2.0 {
            return;
        }
        let gradient = (TOLERANCE * long / run_secs).clamp(GRADIENT_MIN, 1.0);
        let next = self.limit * gradient + QUEUE_LEN;
        let shape = &self.settings.shape;
        let smooth = self.limit + (next - self.limit) * SMOOTHING;
        self.limit = smooth.clamp(shape.threads_min as f64, shape.threads_max as f64);
    }
}

impl Policy for Gradient2 {
    fn tick(&mut self, _: Stamp, seen: &PoolSeen) -> Decision {
        if let Some(run) = seen.waits.run_median
            && run.0 > 0
        {
            self.update(run.as_secs_f64(), seen.running + seen.waiting);
        }
        decision(step_to(seen.running + seen.idle, self.limit as usize))
    }

    fn admit(&self, waiting: Waiting, _: Class, _: &PoolSettings, _: &PoolState) -> Admission {
        while_there_is_room(waiting.len, self.limit as usize)
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::{settings, steps};
    use super::*;
    use queueing::SizeStep;

    #[test]
    fn grows_while_run_times_stay_and_it_is_used() {
        let mut rule = Gradient2::new(&settings(2, 64));
        assert_eq!(steps(&mut rule, &[(0, 0, 2); 20]), [SizeStep::Keep; 20]);
        steps(&mut rule, &[(60, 64, 0); 100]);
        assert_eq!(rule.limit, 64.0);
        rule.update(0.2, 64);
        assert!(rule.limit < 64.0, "{}", rule.limit);
    }
}
