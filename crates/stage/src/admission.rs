//! Whether a pool's queue takes one more exchange.
//!
//! Takes what is waiting, the pool's bounds and how fast it drains. A full queue refuses at once: a
//! client that is told when to come back costs less than one that waits for a timeout. It must not
//! know the exchange.

use measure::Nanos;

use crate::{Class, Mood, PoolSettings, Pressure};

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

/// What is in the queue when an exchange wants to enter it.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Waiting {
    /// Exchanges that wait.
    pub len: usize,
    /// Of these, those of its class and of better ones: the others do not go before it.
    pub ahead: usize,
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

/// Decides on one exchange of `class` while `waiting` others are in the queue.
///
/// Without pressure the queue's places decide, the last of which are for questions about health. Under
/// pressure those are refused at once that would wait in vain, because what goes before them does not drain in
/// time at the rate of late: in half the timeout while saturated, in the overload timeout while overloaded. As many
/// as the pool may have threads may always wait: a rate that was measured while all threads hung says
/// nothing about what comes, and they are refused in time if it does. Questions about health are refused
/// only by a full queue.
///
/// Retry-After is the time in which what waits now will have been taken: `waiting / drain rate`. A
/// pool of which nothing is known says 1, one that stands still says 60.
pub fn admit(waiting: Waiting, class: Class, settings: &PoolSettings, mood: &Mood) -> Admission {
    let has_place = waiting.len < places_len(class, settings);
    if has_place && waiting.ahead < drainable_len(class, settings, mood) {
        return Admission::Enqueue;
    }
    Admission::Refuse {
        retry_after_secs: retry_after_secs(waiting.len, mood),
    }
}

/// Places in the queue that a class may take; the reserve is never all of them.
fn places_len(class: Class, settings: &PoolSettings) -> usize {
    let places = settings.shape.queue_len_max;
    match class {
        Class::Health => places,
        Class::High | Class::Normal | Class::Low => {
            places - settings.reserve_len.min(places.saturating_sub(1))
        }
    }
}

/// How many may go before somebody who is to be served in time.
fn drainable_len(class: Class, settings: &PoolSettings, mood: &Mood) -> usize {
    let timeout = match mood.pressure {
        Pressure::Calm => return usize::MAX,
        Pressure::Saturated => Nanos(settings.queue_timeout.0 / 2),
        Pressure::Overloaded => settings.overload_timeout.min(settings.queue_timeout),
    };
    let Some(per_second) = mood.completed_per_second else {
        return usize::MAX;
    };
    let drained = (per_second * timeout.as_secs_f64()) as usize;
    let len = drained.max(settings.shape.threads_max);
    match (class, mood.pressure) {
        (Class::Health, _) => usize::MAX,
        // Never none: whoever is refused keeps the overload going, and the pool would stand idle in it.
        (Class::Low, Pressure::Overloaded) => len.div_ceil(2),
        _ => len,
    }
}

/// The value of Retry-After while so many wait: 1 to 60.
pub fn retry_after_secs(waiting: usize, mood: &Mood) -> u32 {
    let Some(per_second) = mood.completed_per_second else {
        return 1;
    };
    // 0 / 0 is not a number, and `clamp` would keep it: an empty queue is a second away.
    let secs = waiting.max(1) as f64 / per_second;
    secs.ceil().clamp(1.0, RETRY_AFTER_SECS_MAX) as u32
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn settings(queue_len_max: usize) -> PoolSettings {
        PoolSettings {
            shape: PoolShape {
                threads_min: 1,
                threads_max: 8,
                queue_len_max,
            },
            queue_target: Nanos::from_ms(5),
            queue_timeout: Nanos::from_secs(30),
            overload_timeout: Nanos::from_ms(500),
            reserve_threads: 0,
            reserve_len: 0,
        }
    }

    fn draining(per_second: u64) -> Mood {
        Mood {
            completed_per_second: Some(per_second as f64),
            ..Mood::default()
        }
    }

    /// So many wait, and all go before who comes.
    fn all(waiting: usize) -> Waiting {
        Waiting {
            len: waiting,
            ahead: waiting,
        }
    }

    #[test]
    fn admits_until_the_queue_is_full() {
        let check = |waiting, queue_len_max, enqueues| {
            let found = admit(
                all(waiting),
                Class::Normal,
                &settings(queue_len_max),
                &draining(10),
            );
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
        let check = |waiting, mood: Mood, retry_after_secs| {
            let found = admit(all(waiting), Class::Normal, &settings(0), &mood);
            assert_eq!(
                found,
                Admission::Refuse { retry_after_secs },
                "{waiting} at {mood:?}"
            );
        };
        check(100, draining(1_000), 1);
        check(100, draining(50), 2);
        check(101, draining(50), 3);
        check(100, draining(1), 60);
        check(100, draining(0), 60);
        check(0, draining(0), 60);
        check(0, draining(50), 1);
        check(100, Mood::default(), 1);
    }

    fn pressed(pressure: Pressure, per_second: f64) -> Mood {
        Mood {
            pressure,
            completed_per_second: Some(per_second),
        }
    }

    /// The number of those that may wait under a mood: all below are admitted, none from there on.
    fn check_len(class: Class, mood: Mood, reserve_len: usize, expect: usize) {
        let settings = PoolSettings {
            reserve_len,
            ..settings(1_000)
        };
        let admits = |waiting| admit(all(waiting), class, &settings, &mood) == Admission::Enqueue;
        let found = (0..=1_000).take_while(|waiting| admits(*waiting)).count();
        assert_eq!(found, expect, "{class:?} under {mood:?}");
        assert!((found..=2_000).all(|waiting| !admits(waiting)));
    }

    #[test]
    fn refuses_at_once_what_would_wait_in_vain() {
        use Class::{Health, High, Low, Normal};
        use Pressure::{Calm, Overloaded, Saturated};
        check_len(Normal, pressed(Calm, 1.0), 0, 1_000);
        check_len(Normal, pressed(Saturated, 20.0), 0, 300);
        check_len(Low, pressed(Saturated, 20.0), 0, 300);
        check_len(High, pressed(Overloaded, 100.0), 0, 50);
        check_len(Normal, pressed(Overloaded, 100.0), 0, 50);
        check_len(Low, pressed(Overloaded, 100.0), 0, 25);
        check_len(Health, pressed(Overloaded, 100.0), 0, 1_000);
        check_len(Normal, pressed(Overloaded, 1e9), 0, 1_000);
    }

    #[test]
    fn as_many_as_there_may_be_threads_may_wait_whatever_the_rate() {
        check_len(Class::Normal, pressed(Pressure::Overloaded, 0.0), 0, 8);
        check_len(Class::Normal, pressed(Pressure::Saturated, 0.0), 0, 8);
        check_len(Class::Low, pressed(Pressure::Overloaded, 0.0), 0, 4);
        let unknown = Mood {
            pressure: Pressure::Overloaded,
            completed_per_second: None,
        };
        check_len(Class::Normal, unknown, 0, 1_000);
    }

    #[test]
    fn who_goes_before_those_that_wait_is_not_refused_for_them() {
        let overloaded = pressed(Pressure::Overloaded, 100.0);
        let check = |len, ahead, expect| {
            let found = admit(
                Waiting { len, ahead },
                Class::High,
                &settings(100),
                &overloaded,
            );
            assert_eq!(found == Admission::Enqueue, expect, "{ahead} of {len}");
        };
        check(60, 60, false);
        check(60, 49, true);
        check(99, 0, true);
        check(100, 0, false);
    }

    /// What is refused keeps an overload going: a class that is refused whatever waits would never be served
    /// again by a pool that has nothing to do.
    #[test]
    fn whoever_comes_to_an_empty_queue_may_wait() {
        for class in Class::ALL {
            for pressure in [Pressure::Calm, Pressure::Saturated, Pressure::Overloaded] {
                let settings = PoolSettings {
                    shape: PoolShape {
                        threads_min: 1,
                        threads_max: 1,
                        queue_len_max: 1,
                    },
                    ..settings(1)
                };
                let found = admit(all(0), class, &settings, &pressed(pressure, 1.0));
                assert_eq!(found, Admission::Enqueue, "{class:?} under {pressure:?}");
            }
        }
    }

    #[test]
    fn the_last_places_are_for_health_and_never_all_of_them() {
        let calm = Mood::default();
        check_len(Class::Normal, calm, 10, 990);
        check_len(Class::High, calm, 10, 990);
        check_len(Class::Health, calm, 10, 1_000);
        check_len(Class::Normal, calm, 5_000, 1);
    }

    proptest! {
        #[test]
        fn retry_after_stays_in_its_bounds(waiting in any::<usize>(), rate in any::<u32>()) {
            match admit(all(waiting), Class::Normal, &settings(0), &draining(u64::from(rate))) {
                Admission::Refuse { retry_after_secs } => {
                    prop_assert!((1..=60).contains(&retry_after_secs));
                }
                Admission::Enqueue => prop_assert!(false, "a queue without room admitted"),
            }
        }
    }
}
