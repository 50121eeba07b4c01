//! What a simulated server is like.

use std::fmt;

use queueing::PoolSettings;
use telemetry::Nanos;

use crate::engine::Policy;

/// A simulated server.
#[derive(Debug)]
pub struct Setting {
    /// Processes, each with all of these pools; a request goes to one of them by chance.
    pub processes: usize,
    /// At least one.
    pub pools: Vec<PoolPlan>,
    /// Index of the pool of each route; routes beyond its end go to the first.
    pub pool_of_route: Vec<usize>,
    /// What idle threads need to begin: each of these is as likely as the others. Empty: nothing.
    pub wakes: Vec<Nanos>,
    /// What a thread needs from one request to the next.
    pub fetch: Nanos,
    /// What a new thread needs until it can begin.
    pub thread_start: Nanos,
    /// The event loop of each process, if pools are on one.
    pub event_loop: LoopPlan,
    /// What a sleeping event loop needs to look at its queues: each of these is as likely as the others. Empty: nothing.
    pub loop_wakes: Vec<Nanos>,
    /// How those that run at once slow each other down, within one process.
    pub sharing: Sharing,
    /// What only one request of a process can do at a time; `None`: there is no such thing.
    pub lock: Option<Lock>,
    /// Times in which the whole server stands still.
    pub pauses: Vec<Pause>,
    /// A reply after this time is worth nothing: for the goodput.
    pub patience: Nanos,
}

/// The event loop of a process.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct LoopPlan {
    /// How many requests may be inside.
    pub concurrency: Concurrency,
    /// What it costs the loop to begin a request, beside its steps.
    pub begin: Nanos,
}

/// How many requests may be inside an event loop.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Concurrency {
    /// While the loop does not keep up; at least 1.
    pub min: usize,
    /// While it does; at least `min`.
    pub max: usize,
}

/// As the server has it.
impl Default for Concurrency {
    fn default() -> Concurrency {
        Concurrency {
            min: 100,
            max: 1_000,
        }
    }
}

/// `8`, or `100:1000`.
impl fmt::Display for Concurrency {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.min == self.max {
            true => write!(f, "{}", self.max),
            false => write!(f, "{}:{}", self.min, self.max),
        }
    }
}

/// What runs the requests of a pool.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum RunsOn {
    /// Threads of its own, each of which one request holds from its begin to its end.
    #[default]
    Threads,
    /// The event loop of its process, for each step of a request. The pool has one thread.
    EventLoop,
}

/// A pool of a simulated server.
pub struct PoolPlan {
    /// What runs its requests.
    pub runs_on: RunsOn,
    /// Bounds and targets.
    pub settings: PoolSettings,
    /// Threads at the start.
    pub threads: usize,
    /// Makes the policy of each process: the number of threads, and which requests are refused.
    pub policy: Box<dyn Fn() -> Box<dyn Policy>>,
}

impl fmt::Debug for PoolPlan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PoolPlan")
            .field("settings", &self.settings)
            .field("threads", &self.threads)
            .finish_non_exhaustive()
    }
}

/// With `n` requests at work each advances at `1 / (1 + σ (n − 1) + κ n (n − 1))` of its own speed (the
/// universal scalability law).
#[derive(Clone, Copy, PartialEq, Debug, Default)]
pub struct Sharing {
    /// Contention: 1 for work under one lock.
    pub sigma: f64,
    /// Coherence: what makes more threads give less.
    pub kappa: f64,
}

impl Sharing {
    /// How fast each of `running` advances: 1 alone.
    pub fn speed(&self, running: usize) -> f64 {
        1.0 / self.slowdown(running.max(1) as f64)
    }

    /// How many times as long a run takes with so many at work, itself included, in the mean.
    pub(crate) fn slowdown(&self, running: f64) -> f64 {
        1.0 + self.sigma * (running - 1.0) + self.kappa * running * (running - 1.0)
    }
}

/// A lock that requests need for [`Arrival::computing`](crate::Arrival): the interpreter's.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Lock {
    /// After so long without a change of hands a waiting thread makes the holder give way.
    pub slice: Nanos,
    /// The part of its computing that a request does before what it does without the lock, 0 to 1.
    pub before: f64,
}

/// As CPython has it (`sys.setswitchinterval`).
impl Default for Lock {
    fn default() -> Lock {
        Lock {
            slice: Nanos::from_ms(5),
            before: 0.5,
        }
    }
}

/// A time in which nothing advances.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Pause {
    /// Its begin.
    pub at: Nanos,
    /// Its length.
    pub lasts: Nanos,
}
