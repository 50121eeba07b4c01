//! Whether a pool's queue takes one more exchange.
//!
//! Takes what is waiting, the pool's bounds and how fast it drains. A full queue refuses at once: a
//! client that is told when to come back costs less than one that waits for a timeout. It must not
//! know the exchange.

use crate::DrainRate;

/// The bounds of a pool.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct PoolShape {
    /// Threads that are always there; at least 1.
    pub threads_min: usize,
    /// Threads that there may be at most; at least `threads_min`.
    pub threads_max: usize,
    /// Exchanges that may wait for a thread. With 0 nothing is ever admitted to the queue.
    pub queue_len_max: usize,
}

/// What happens to an exchange that wants to enter the queue.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Admission {
    /// It joins the end of the queue.
    Enqueue,
    /// It is answered with 503 (RFC 9110 section 15.6.4).
    Refuse {
        /// The value of Retry-After (RFC 9110 section 10.2.3): 1 to 60.
        retry_after_secs: u32,
    },
}

/// A longer promise than this says nothing about a queue, and the client might as well leave.
const RETRY_AFTER_SECS_MAX: f64 = 60.0;

/// Decides on one exchange while `waiting` others are in the queue.
///
/// Retry-After is the time in which what waits now will have been taken: `waiting / drain rate`. A
/// pool of which nothing is known says 1, one that stands still says 60.
pub fn admit(waiting: usize, shape: &PoolShape, drain: &DrainRate) -> Admission {
    if waiting < shape.queue_len_max {
        return Admission::Enqueue;
    }
    Admission::Refuse {
        retry_after_secs: retry_after_secs(waiting, drain),
    }
}

fn retry_after_secs(waiting: usize, drain: &DrainRate) -> u32 {
    let Some(per_second) = drain.per_second() else {
        return 1;
    };
    // 0 / 0 is not a number, and `clamp` would keep it: an empty queue is a second away.
    let secs = waiting.max(1) as f64 / per_second;
    secs.ceil().clamp(1.0, RETRY_AFTER_SECS_MAX) as u32
}

#[cfg(test)]
mod tests {
    use super::*;
    use measure::{Nanos, Stamp};
    use proptest::prelude::*;

    fn shape(queue_len_max: usize) -> PoolShape {
        PoolShape {
            threads_min: 1,
            threads_max: 8,
            queue_len_max,
        }
    }

    fn draining(per_second: u64) -> DrainRate {
        let mut drain = DrainRate::new();
        drain.observe(Stamp(1), 0);
        drain.observe(Stamp(1).plus(Nanos::from_secs(1)), per_second);
        drain
    }

    #[test]
    fn admits_until_the_queue_is_full() {
        let check = |waiting, queue_len_max, enqueues| {
            let found = admit(waiting, &shape(queue_len_max), &draining(10));
            assert_eq!(
                found == Admission::Enqueue,
                enqueues,
                "{waiting} of {queue_len_max}"
            );
        };
        check(0, 1, true);
        check(1, 1, false);
        check(99, 100, true);
        check(100, 100, false);
        check(101, 100, false);
        check(0, 0, false);
    }

    #[test]
    fn tells_refused_clients_when_the_queue_will_have_drained() {
        let check = |waiting, drain: DrainRate, retry_after_secs| {
            let found = admit(waiting, &shape(0), &drain);
            assert_eq!(
                found,
                Admission::Refuse { retry_after_secs },
                "{waiting} at {drain:?}"
            );
        };
        check(100, draining(1_000), 1);
        check(100, draining(50), 2);
        check(101, draining(50), 3);
        check(100, draining(1), 60);
        check(100, draining(0), 60);
        check(0, draining(0), 60);
        check(0, draining(50), 1);
        check(100, DrainRate::new(), 1);
    }

    proptest! {
        #[test]
        fn retry_after_stays_in_its_bounds(waiting in any::<usize>(), rate in any::<u32>()) {
            match admit(waiting, &shape(0), &draining(u64::from(rate))) {
                Admission::Refuse { retry_after_secs } => {
                    prop_assert!((1..=60).contains(&retry_after_secs));
                }
                Admission::Enqueue => prop_assert!(false, "a queue without room admitted"),
            }
        }
    }
}
