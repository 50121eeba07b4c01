//! Requests as the simulator sees them, in the order of their arrival.

use queueing::Class;
use telemetry::Nanos;

/// One request.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Arrival {
    /// When it is complete and wants a thread, from the beginning of the simulation.
    pub at: Nanos,
    /// How long its handler runs when nothing else runs beside it.
    pub run: Nanos,
    /// What of `run` needs the lock of its process, if there is one: half of it first, half of it last.
    pub computing: Nanos,
    /// Number of its route, which a setting gives to a pool.
    pub route: u16,
    /// What it takes of an event loop, if its pool is on one: what is left of `run` it waits, and holds no loop.
    pub steps: LoopSteps,
    /// The process that it goes to; `None`: any, by chance.
    pub process: Option<u8>,
    /// How much it matters.
    pub class: Class,
}

/// What a request takes of an event loop.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct LoopSteps {
    /// How many steps its task takes; 0 counts as 1.
    pub len: u32,
    /// How long they take together.
    pub busy: Nanos,
    /// How long the longest takes.
    pub longest: Nanos,
    /// How long it lasts.
    pub lifetime: Lifetime,
    /// What it costs the loop to begin it, beside its steps; `None`: as much as most ([`crate::LoopPlan::begin`]).
    pub begin: Option<Nanos>,
    /// What a sleeping loop needs to look at its queue when this request comes; `None`: what others needed.
    pub wake: Option<Nanos>,
}

/// How long what a request has begun lasts.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Lifetime {
    /// As long as a response takes.
    #[default]
    Response,
    /// As long as its client likes: `text/event-stream`. It counts among the requests inside, but not for the times from
    /// arrival to end.
    EventStream,
    /// As long as both ends like. It counts among the requests inside until it is accepted.
    WebSocket,
}
