//! Misbehaving clients beside the measured ones, all on one thread.
//!
//! Takes the plan's misbehaving clients, gives counts. `thread` starts and ends the thread, `event_loop` serves its
//! connections, `behaviour` says what each kind of client does. The connections are counted nowhere else, and they must
//! cost little: an event that its clients do not look at does not wake the thread, and deadlines that are close together are one.

mod behaviour;
mod client;
mod event_loop;
mod thread;

use telemetry::Nanos;

pub(crate) use thread::AdversaryThread;

/// Connections are opened no faster, all groups together.
const CONNECTIONS_PER_S: u64 = 2_000;
/// A connection that has ended is opened again after this.
const REOPENED_AFTER: Nanos = Nanos::from_ms(100);

/// The most connections a second that `len` clients make if each is ended at once.
pub(crate) fn reopened_per_s(len: usize) -> f64 {
    (len as f64 / REOPENED_AFTER.as_secs_f64()).min(CONNECTIONS_PER_S as f64)
}

#[cfg(test)]
mod tests;
