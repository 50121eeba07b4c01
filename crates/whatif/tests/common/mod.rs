//! Settings and policies that several tests share.

#![allow(dead_code, reason = "each test uses some of them")]

use queueing::{
    Admission, Class, Decision, PoolSeen, PoolSettings, PoolShape, PoolState, Pressure, SizeStep,
    Waiting,
};
use telemetry::Nanos;
use telemetry::Stamp;
use whatif::{Policy, PoolPlan, Setting, Sharing};

/// Never changes anything and takes everybody for whom there is a place: what theory speaks of.
pub(crate) struct Still;

impl Policy for Still {
    fn tick(&mut self, _: Stamp, _: &PoolSeen) -> Decision {
        Decision {
            step: SizeStep::Keep,
            state: PoolState {
                pressure: Pressure::Calm,
                ..PoolState::default()
            },
        }
    }

    fn admit(
        &self,
        waiting: Waiting,
        _: Class,
        settings: &PoolSettings,
        _: &PoolState,
    ) -> Admission {
        match waiting.len < settings.shape.queue_len_max {
            true => Admission::Enqueue,
            false => Admission::Refuse {
                retry_after_secs: 1,
            },
        }
    }
}

/// Does one step after another, once a tick, and nothing after the last.
pub(crate) struct Steps(std::vec::IntoIter<SizeStep>);

impl Steps {
    pub(crate) fn plan(steps: &[SizeStep]) -> Box<dyn Fn() -> Box<dyn Policy>> {
        let steps = steps.to_vec();
        Box::new(move || Box::new(Steps(steps.clone().into_iter())))
    }
}

impl Policy for Steps {
    fn tick(&mut self, now: Stamp, seen: &PoolSeen) -> Decision {
        Decision {
            step: self.0.next().unwrap_or(SizeStep::Keep),
            ..Still.tick(now, seen)
        }
    }
}

/// Finds one pressure after another, once a tick, and the last for ever.
pub(crate) struct Pressures(Vec<Pressure>);

impl Pressures {
    /// The last first.
    pub(crate) fn plan(pressures: &[Pressure]) -> Box<dyn Fn() -> Box<dyn Policy>> {
        let pressures = pressures.to_vec();
        Box::new(move || Box::new(Pressures(pressures.clone())))
    }
}

impl Policy for Pressures {
    fn tick(&mut self, now: Stamp, seen: &PoolSeen) -> Decision {
        let mut decision = Still.tick(now, seen);
        decision.state.pressure = self.0[self.0.len() - 1];
        decision.state.overload_timeout = Nanos::from_ms(100);
        self.0.truncate(self.0.len().max(2) - 1);
        decision
    }
}

/// Does anything, by chance: a policy may be as bad as it likes, and nothing gets lost.
pub(crate) struct Wild(fastrand::Rng);

impl Wild {
    pub(crate) fn plan(seed: u64) -> Box<dyn Fn() -> Box<dyn Policy>> {
        Box::new(move || Box::new(Wild(fastrand::Rng::with_seed(seed))))
    }
}

impl Policy for Wild {
    fn tick(&mut self, _: Stamp, _: &PoolSeen) -> Decision {
        let step = match self.0.u8(..8) {
            0 => SizeStep::Grow(self.0.usize(1..5)),
            1 => SizeStep::Shrink(self.0.usize(1..5)),
            _ => SizeStep::Keep,
        };
        let pressure = match self.0.u8(..4) {
            0 => Pressure::Saturated,
            1 => Pressure::Overloaded,
            _ => Pressure::Calm,
        };
        let completed_per_second = self.0.bool().then(|| self.0.f64() * 100.0);
        Decision {
            step,
            state: PoolState {
                pressure,
                completed_per_second,
                overload_timeout: Nanos::from_ms(100),
            },
        }
    }
}

/// A pool of so many threads, whoever waits how long.
pub(crate) fn fixed(threads: usize, queue_len_max: usize) -> PoolPlan {
    let settings = PoolSettings {
        shape: PoolShape {
            threads_min: threads,
            threads_max: threads,
            queue_len_max,
        },
        queue_target: Nanos::from_ms(5),
        queue_timeout: Nanos::from_secs(100_000),
        overload_timeout: None,
        reserve_threads: 0,
        reserve_len: 0,
    };
    PoolPlan {
        runs_on: whatif::RunsOn::Threads,
        settings,
        threads,
        policy: Box::new(|| Box::new(Still)),
    }
}

/// A server of one process with one pool, in which nothing takes time but the requests.
pub(crate) fn alone(pool: PoolPlan) -> Setting {
    Setting {
        processes: 1,
        pools: vec![pool],
        pool_of_route: Vec::new(),
        wakes: Vec::new(),
        fetch: Nanos::ZERO,
        thread_start: Nanos::ZERO,
        event_loop: whatif::LoopPlan::default(),
        loop_wakes: Vec::new(),
        sharing: Sharing::default(),
        lock: None,
        pauses: Vec::new(),
        patience: Nanos::from_secs(1),
    }
}
