//! The controllers of other servers, for comparison with our own.
//!
//! Each takes what a pool looks like once a tick and gives the number of threads. Each is a model of the
//! decisions, made from the sources that its file names, and not the original program: a program that decides
//! at every request decides here once a tick. None sheds load, except where its file says so.

mod frankenphp;
mod gradient2;
mod granian;
mod naviserver;
mod prefork;

use queueing::{
    Admission, Class, Decision, PoolSeen, PoolSettings, PoolState, SizeStep, TICK, Waiting,
};
use telemetry::{Nanos, Stamp};
use whatif::Policy;

pub use frankenphp::FrankenPhp;
pub use gradient2::Gradient2;
pub use granian::Granian;
pub use naviserver::NaviServer;
pub use prefork::Prefork;

/// A pool of constant size, which accepts a request while its queue has room.
#[derive(Clone, Copy, Debug, Default)]
pub struct Fixed;

impl Growth for Fixed {
    fn wanted(&mut self, _: Stamp, seen: &PoolSeen) -> usize {
        seen.running + seen.idle
    }
}

/// A rule for the size of a pool that accepts a request while its queue has room.
trait Growth {
    /// How many threads there are to be, once a tick.
    fn wanted(&mut self, now: Stamp, seen: &PoolSeen) -> usize;
}

/// A policy that grows by a rule. A macro, because `Policy` belongs to another crate.
macro_rules! policy_of {
    ($($rule:ty),*) => {$(
        impl Policy for $rule {
            fn tick(&mut self, now: Stamp, seen: &PoolSeen) -> Decision {
                decision(step_to(seen.running + seen.idle, self.wanted(now, seen)))
            }

            fn admit(
                &self,
                waiting: Waiting,
                _: Class,
                settings: &PoolSettings,
                _: &PoolState,
            ) -> Admission {
                while_there_is_room(waiting.len, settings.shape.queue_len_max)
            }
        }
    )*};
}

policy_of!(Fixed, FrankenPhp, NaviServer, Prefork);

/// A step, and no pressure: these rules know none.
fn decision(step: SizeStep) -> Decision {
    Decision {
        step,
        state: PoolState::default(),
    }
}

fn while_there_is_room(waiting: usize, len_max: usize) -> Admission {
    match waiting < len_max {
        true => Admission::Enqueue,
        false => Admission::Refuse {
            retry_after_secs: 1,
        },
    }
}

/// The step from a size to another.
fn step_to(threads: usize, wanted: usize) -> SizeStep {
    match wanted.checked_sub(threads) {
        Some(0) => SizeStep::Keep,
        Some(more) => SizeStep::Grow(more),
        None => SizeStep::Shrink(threads - wanted),
    }
}

/// How many threads have been idle for a time: where the one idle last is taken first, as many as were idle
/// at every look in it.
#[derive(Clone, Debug)]
struct IdleFor {
    ticks: u64,
    idle_min: usize,
    window: u64,
}

impl IdleFor {
    fn new(span: Nanos) -> IdleFor {
        IdleFor {
            ticks: 0,
            idle_min: usize::MAX,
            window: (span.0 / TICK.0).max(1),
        }
    }

    /// Looks once; at the end of each span, how many were idle all through it, else 0.
    fn look(&mut self, idle: usize) -> usize {
        self.idle_min = self.idle_min.min(idle);
        self.ticks += 1;
        if self.ticks < self.window {
            return 0;
        }
        self.ticks = 0;
        std::mem::replace(&mut self.idle_min, usize::MAX)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use queueing::{PoolShape, WaitsSeen};

    pub(super) fn settings(threads_min: usize, threads_max: usize) -> PoolSettings {
        PoolSettings {
            shape: PoolShape {
                threads_min,
                threads_max,
                queue_len_max: 100,
            },
            queue_target: Nanos::from_ms(50),
            queue_timeout: Nanos::from_secs(1),
            overload_timeout: Some(Nanos::from_ms(100)),
            reserve_threads: 0,
            reserve_len: 0,
        }
    }

    /// What a rule does at each of some looks: (waiting, running, idle).
    pub(super) fn steps(rule: &mut dyn Policy, looks: &[(usize, usize, usize)]) -> Vec<SizeStep> {
        let look = |(tick, &(waiting, running, idle)): (usize, &(usize, usize, usize))| {
            let seen = PoolSeen {
                waiting,
                oldest_wait: Nanos::from_ms(20 * u64::from(waiting > 0)),
                running,
                idle,
                waits: WaitsSeen {
                    run_median: Some(Nanos::from_ms(20)),
                    ..WaitsSeen::default()
                },
                ..PoolSeen::default()
            };
            let now = Stamp(1).plus(Nanos(TICK.0 * tick as u64));
            rule.tick(now, &seen).step
        };
        looks.iter().enumerate().map(look).collect()
    }

    #[test]
    fn a_fixed_pool_keeps_its_size_and_refuses_only_beyond_its_places() {
        assert_eq!(steps(&mut Fixed, &[(99, 8, 0)]), [SizeStep::Keep]);
        let settings = settings(8, 8);
        let admit = |len| {
            let waiting = Waiting { len, ahead: len };
            Fixed.admit(waiting, Class::Normal, &settings, &PoolState::default())
        };
        assert_eq!(admit(99), Admission::Enqueue);
        assert_ne!(admit(100), Admission::Enqueue);
    }

    #[test]
    fn only_who_was_idle_at_every_look_was_idle_all_the_time() {
        let mut idle = IdleFor::new(Nanos::from_ms(300));
        let found: Vec<usize> = [5, 2, 4, 7, 7, 9].iter().map(|n| idle.look(*n)).collect();
        assert_eq!(found, [0, 0, 2, 0, 0, 7]);
    }
}
