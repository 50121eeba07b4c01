//! Independent simulations, on all cores.
//!
//! Takes their number and a function for each, gives the results in order, whichever core was done first. Starts
//! threads for as long as it lasts; the threads share what they read.

use std::num::NonZero;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

use super::{Answer, Basis, Requests, Variant, answer};

/// Simulates variants whose rate is what `requests` are, as many at once as there are cores, and gives their
/// answers in their order. One more than [`answer`] takes for itself is taken for each core, requests are not.
pub fn answers(basis: &Basis, requests: &Requests, variants: &[Variant]) -> Vec<Answer> {
    on_all_cores(variants.len(), &|index| {
        answer(basis, requests, &variants[index])
    })
}

/// What `work` gives for 0, 1 and so on, in this order.
///
/// # Panics
/// `work` does.
pub fn on_all_cores<T: Send>(len: usize, work: &(dyn Fn(usize) -> T + Sync)) -> Vec<T> {
    let cores = thread::available_parallelism().map_or(1, NonZero::get);
    on_cores(cores, len, work)
}

fn on_cores<T: Send>(cores: usize, len: usize, work: &(dyn Fn(usize) -> T + Sync)) -> Vec<T> {
    if cores.min(len) < 2 {
        return (0..len).map(work).collect();
    }
    let next = AtomicUsize::new(0);
    let until_none_is_left = || {
        let mut done = Vec::new();
        loop {
            // Only the number itself is shared; the results are handed over by the joins.
            let index = next.fetch_add(1, Ordering::Relaxed);
            if index >= len {
                return done;
            }
            done.push((index, work(index)));
        }
    };
    let mut all: Vec<(usize, T)> = thread::scope(|scope| {
        let cores: Vec<_> = (0..cores.min(len))
            .map(|_| scope.spawn(until_none_is_left))
            .collect();
        let done = cores.into_iter().map(|core| match core.join() {
            Ok(done) => done,
            Err(panic) => std::panic::resume_unwind(panic),
        });
        done.flatten().collect()
    });
    assert_eq!(all.len(), len, "each number is worked on once");
    all.sort_unstable_by_key(|(index, _)| *index);
    all.into_iter().map(|(_, result)| result).collect()
}

#[cfg(test)]
mod tests {
    use std::sync::Barrier;

    use super::super::tests::{basis, fixed};
    use super::*;

    #[test]
    fn results_come_in_the_order_of_the_questions() {
        for (cores, len) in [(1, 5), (2, 1), (3, 100), (8, 3), (4, 0)] {
            let found = on_cores(cores, len, &|index| index * index);
            let expect: Vec<usize> = (0..len).map(|index| index * index).collect();
            assert_eq!(found, expect, "{cores} {len}");
        }
    }

    #[test]
    fn as_many_are_at_work_as_there_are_cores() {
        // No thread gets past it before all four are there.
        let barrier = Barrier::new(4);
        let leaders = on_cores(4, 4, &|_| barrier.wait().is_leader());
        assert_eq!(leaders.iter().filter(|is_leader| **is_leader).count(), 1);
    }

    #[test]
    fn many_at_once_answer_as_one_after_another_does() {
        let basis = basis();
        let variants: Vec<Variant> = (1..=6).map(fixed).collect();
        let alone = variants
            .iter()
            .map(|variant| answer(&basis, &basis.requests, variant));
        let alone: Vec<Answer> = alone.collect();
        let found = on_cores(3, variants.len(), &|index| {
            answer(&basis, &basis.requests, &variants[index])
        });
        assert_eq!(found, alone);
        assert_eq!(answers(&basis, &basis.requests, &variants), alone);
    }
}
