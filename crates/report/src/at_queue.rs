//! What requests found when they came to their pool's queue.
//!
//! Takes what lines say of it, gives counts and means. Lines that do not say count nowhere: each fact knows
//! of how many it is.

use telemetry::KnownQueued;

/// Sums of one whole number a request.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Count {
    /// Requests of which it is known.
    pub len: u64,
    /// The greatest.
    pub max: u64,
    sum: u128,
}

impl Count {
    #[inline]
    fn add(&mut self, value: u64) {
        self.len += 1;
        self.max = self.max.max(value);
        self.sum += u128::from(value);
    }

    /// The arithmetic mean; 0 without any.
    pub fn mean(&self) -> f64 {
        match self.len {
            0 => 0.0,
            len => self.sum as f64 / len as f64,
        }
    }
}

/// What some requests found.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct AtQueue {
    /// Requests of which it is known whether they had to wait for a thread.
    pub known_len: u64,
    /// Those of them that had to.
    pub from_queue_len: u64,
    /// How many were in the queue already.
    pub waiting: Count,
    /// How many threads the pool had.
    pub threads: Count,
    /// How many of them had nothing to do.
    pub idle: Count,
    /// How long they had waited before they came to the server, in nanoseconds; only those that did.
    pub before_ns: Count,
}

impl AtQueue {
    #[inline]
    pub(crate) fn add(&mut self, queued: &KnownQueued) {
        // Each is counted by itself: older lines and other servers' know only some of them.
        if let Some(from_queue) = queued.from_queue {
            self.known_len += 1;
            self.from_queue_len += u64::from(from_queue);
        }
        for (count, value) in [
            (&mut self.waiting, queued.waiting),
            (&mut self.threads, queued.threads),
            (&mut self.idle, queued.idle),
        ] {
            if let Some(value) = value {
                count.add(u64::from(value));
            }
        }
        if let Some(before) = queued.before {
            self.before_ns.add(before.0);
        }
    }
}

#[cfg(test)]
mod tests {
    use telemetry::Nanos;

    use super::*;

    #[test]
    fn counts_only_what_is_known() {
        let mut found = AtQueue::default();
        found.add(&KnownQueued::default());
        assert_eq!(found, AtQueue::default());
        assert_eq!(found.threads.mean(), 0.0);
        for (waiting, from_queue) in [(0, false), (3, true), (4, true)] {
            found.add(&KnownQueued {
                before: from_queue.then_some(Nanos(u64::MAX)),
                waiting: Some(waiting),
                threads: Some(2),
                idle: None,
                from_queue: Some(from_queue),
            });
        }
        assert_eq!((found.known_len, found.from_queue_len), (3, 2));
        assert_eq!((found.waiting.len, found.waiting.max), (3, 4));
        assert_eq!(
            (found.waiting.mean(), found.threads.mean()),
            (7.0 / 3.0, 2.0)
        );
        assert_eq!((found.idle.len, found.before_ns.len), (0, 2));
        assert_eq!(found.before_ns.mean(), u64::MAX as f64);
    }
}
