//! Whether a request waits for a server that is fast although a slow one is free.
//!
//! Takes the members of a choice, gives yes or no. It must not know rules.

use super::Ask;
use super::rules::Candidate;

/// The members of a tier that are not slow: what a wait for one of them costs.
#[derive(Clone, Copy, PartialEq, Debug, Default)]
pub(super) struct FastOnes {
    len: u32,
    /// Requests that they complete, per nanosecond: by Little's law those in flight over their latency.
    per_ns: f64,
    mean_ns: f64,
}

impl FastOnes {
    pub(super) fn note(&mut self, candidate: &Candidate) {
        if candidate.slowness > 1.0 || candidate.mean_ns <= 0.0 {
            return;
        }
        self.len += 1;
        self.per_ns += f64::from(candidate.in_flight) / candidate.mean_ns;
        self.mean_ns += (candidate.mean_ns - self.mean_ns) / f64::from(self.len);
    }

    /// Whether a request that could go to a slow server now is served sooner if it waits for a fast one: the slow
    /// one is for when the queue is long (Lin and Kumar's threshold).
    pub(super) fn is_worth_a_wait(&self, slow: &Candidate, ask: &Ask<'_>) -> bool {
        if slow.slowness <= 1.0 || self.per_ns <= 0.0 {
            return false;
        }
        let wait_ns = f64::from(ask.waiting + 1) / self.per_ns;
        // Half of what this request would gain: all behind it are served sooner when it goes.
        2.0 * wait_ns < (slow.slowness - 1.0) * self.mean_ns
    }
}
