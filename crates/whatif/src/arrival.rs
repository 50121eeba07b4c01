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
    /// How much it matters.
    pub class: Class,
}
