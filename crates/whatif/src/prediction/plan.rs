//! Variants of a server, and the settings that they are simulated by.

use std::fmt;

use queueing::{
    Admission, Class, Control, Decision, PoolSeen, PoolSettings, PoolShape, PoolState, SizeStep,
    Waiting,
};
use telemetry::{Nanos, Stamp};

use super::{Basis, Reserve};
use crate::{Concurrency, LoopPlan, Pause, Policy, PoolPlan, RunsOn, Setting};

/// One variant of a server.
#[derive(Clone, PartialEq, Debug)]
pub struct Variant {
    /// Its pools, of each process; at least one.
    pub pools: Vec<PoolVariant>,
    /// Its processes; at least 1.
    pub processes: usize,
    /// How many requests may be inside the event loop of each process, if pools are on one.
    pub concurrency: Concurrency,
    /// Times the rate of the present.
    pub rate: f64,
    /// Whether the controller runs.
    pub control: ControlMode,
}

/// A pool of a variant.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct PoolVariant {
    /// Its name.
    pub name: String,
    /// Its threads; of a pool on an event loop 1.
    pub threads: Threads,
    /// What runs its requests.
    pub runs_on: RunsOn,
}

impl PoolVariant {
    /// A pool of threads.
    pub fn of_threads(name: &str, threads: Threads) -> PoolVariant {
        PoolVariant {
            name: name.to_owned(),
            threads,
            runs_on: RunsOn::Threads,
        }
    }
}

/// Threads of a pool.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Threads {
    /// Always; at least 1.
    pub min: usize,
    /// At most; at least `min`.
    pub max: usize,
}

impl Threads {
    /// Always as many.
    pub const fn fixed(threads: usize) -> Threads {
        Threads {
            min: threads,
            max: threads,
        }
    }
}

/// `4`, or `2:20`.
impl fmt::Display for Threads {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.min == self.max {
            true => write!(f, "{}", self.max),
            false => write!(f, "{}:{}", self.min, self.max),
        }
    }
}

/// Whether the controller runs.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum ControlMode {
    /// Yes: it sizes elastic pools and refuses requests under overload.
    #[default]
    On,
    /// No: a pool has all its threads, and a request waits as long as it takes.
    Off,
}

impl ControlMode {
    /// `on` or `off`.
    pub fn text(self) -> &'static str {
        match self {
            ControlMode::On => "on",
            ControlMode::Off => "off",
        }
    }
}

/// What a new thread needs until it can begin.
const THREAD_START: Nanos = Nanos::from_ms(1);
/// A reply after this time is worth nothing.
const PATIENCE: Nanos = Nanos::from_secs(1);
/// Longer than any wait.
const FOR_EVER: Nanos = Nanos::from_secs(100 * 365 * 86_400);

pub(super) fn setting(basis: &Basis, variant: &Variant, pauses: &[Pause]) -> Setting {
    assert!(variant.processes > 0, "a server has a process");
    Setting {
        processes: variant.processes,
        pools: variant
            .pools
            .iter()
            .enumerate()
            .map(|(index, pool)| {
                // Others have none, as on a server that has no rules for them; an event loop has no threads to keep.
                let reserve = if index == 0 && pool.runs_on == RunsOn::Threads {
                    basis.reserve
                } else {
                    Reserve::default()
                };
                plan(basis, pool, reserve, variant.control)
            })
            .collect(),
        pool_of_route: basis.pool_of_route.clone(),
        wakes: basis.costs.wakes.clone(),
        fetch: basis.costs.fetch,
        thread_start: THREAD_START,
        event_loop: LoopPlan {
            concurrency: variant.concurrency,
            begin: basis.loop_costs.begin,
        },
        loop_wakes: basis.loop_costs.wakes.clone(),
        sharing: basis.sharing,
        lock: basis.lock,
        pauses: pauses.to_vec(),
        patience: PATIENCE,
    }
}

fn plan(basis: &Basis, pool: &PoolVariant, reserve: Reserve, control: ControlMode) -> PoolPlan {
    let (threads_min, queue_len_max, timeout, reserve) = match control {
        ControlMode::On => (
            pool.threads.min,
            basis.queue_len_max,
            basis.queue_timeout,
            reserve,
        ),
        // Without control nothing is refused either: the comparison is with a server that only queues.
        ControlMode::Off => (pool.threads.max, usize::MAX, FOR_EVER, Reserve::default()),
    };
    let range = 1..=pool.threads.max;
    assert!(
        range.contains(&pool.threads.min),
        "a pool has a thread, and its bounds are in order"
    );
    let settings = PoolSettings {
        shape: PoolShape {
            threads_min,
            threads_max: pool.threads.max,
            queue_len_max,
        },
        queue_target: basis.queue_target,
        queue_timeout: timeout,
        overload_timeout: basis.overload_timeout,
        reserve_threads: reserve.threads,
        reserve_len: reserve.len,
    };
    PoolPlan {
        runs_on: pool.runs_on,
        settings,
        threads: threads_min,
        policy: Box::new(move || -> Box<dyn Policy> {
            match control {
                ControlMode::On => Box::new(Control::new(&settings)),
                ControlMode::Off => Box::new(NoControl),
            }
        }),
    }
}

/// Leaves a pool as it is and refuses no request.
struct NoControl;

impl Policy for NoControl {
    fn tick(&mut self, _: Stamp, _: &PoolSeen) -> Decision {
        Decision {
            step: SizeStep::Keep,
            state: PoolState::default(),
        }
    }

    fn admit(&self, _: Waiting, _: Class, _: &PoolSettings, _: &PoolState) -> Admission {
        Admission::Enqueue
    }
}
