//! How few threads hold an objective.
//!
//! Takes objectives and a variant, gives the smallest number of threads of its first pool with which they all
//! hold. Where more threads never wait longer, it halves what is left; where those that run at once slow each
//! other down or wait for a lock, more threads can be worse, so it tries one number after another.

use super::{Answer, Basis, Requests, Threads, Times, Variant, answer};
use crate::Sharing;

/// So many threads are tried one after another where they wait for a lock.
const LOCKED_LEN_MAX: usize = 32;

/// What has to hold.
#[derive(Clone, Debug)]
pub struct Objective {
    /// As it was asked for.
    pub text: String,
    /// What is looked at.
    pub metric: Metric,
    /// It has to be below: milliseconds, or a share.
    pub below: f64,
}

/// What an objective looks at.
#[derive(Clone, Copy, Debug)]
pub enum Metric {
    /// A percentile of the waits.
    Queue(fn(&Times) -> f64),
    /// A percentile from arrival to end.
    Total(fn(&Times) -> f64),
    /// The share of requests that were refused.
    Refused,
}

impl Objective {
    /// The value of an answer.
    pub fn value(&self, answer: &Answer) -> f64 {
        match self.metric {
            Metric::Queue(of) => of(&answer.queue),
            Metric::Total(of) => of(&answer.total),
            Metric::Refused => answer.refused_share(),
        }
    }

    /// Whether it holds.
    pub fn holds(&self, answer: &Answer) -> bool {
        self.value(answer) < self.below
    }
}

/// What a search has found.
#[derive(Clone, PartialEq, Debug)]
pub struct Search {
    /// The smallest that holds all objectives; `None`: none of those that were tried does.
    pub found: Option<Answer>,
    /// All that were tried, fewest threads first.
    pub tried: Vec<Answer>,
}

/// Looks for the fewest threads, up to `threads_max`, of the first pool. `known` are answers for this variant with
/// other threads: what is found is never more than the fewest of them that hold the objectives.
pub fn smallest(
    basis: &Basis,
    requests: &Requests,
    variant: &Variant,
    objectives: &[Objective],
    threads_max: usize,
    known: &[&Answer],
) -> Search {
    let holds_all = |answer: &Answer| objectives.iter().all(|objective| objective.holds(answer));
    let mut tried: Vec<(usize, Answer)> = known
        .iter()
        // An answer for a range of threads (`2:8`) is none for one number.
        .filter_map(|answer| Some((answer.threads.parse().ok()?, (*answer).clone())))
        .collect();
    let mut holds = |threads: usize| {
        if let Some((_, answer)) = tried.iter().find(|(known, _)| *known == threads) {
            return holds_all(answer);
        }
        let mut variant = variant.clone();
        variant.pools[0].threads = Threads::fixed(threads);
        let answer = answer(basis, requests, &variant);
        let holds = holds_all(&answer);
        tried.push((threads, answer));
        holds
    };
    // Where threads slow each other down, the numbers that hold may lie between two that do not.
    let each_max = match (basis.sharing == Sharing::default(), basis.lock) {
        (false, _) => threads_max,
        (true, Some(_)) => LOCKED_LEN_MAX.min(threads_max),
        (true, None) => 0,
    };
    match (1..=each_max).find(|threads| holds(*threads)) {
        Some(_) => {}
        None => halved(&mut holds, each_max, threads_max),
    }
    tried.sort_by_key(|(threads, _)| *threads);
    let tried: Vec<Answer> = tried.into_iter().map(|(_, answer)| answer).collect();
    Search {
        found: tried.iter().find(|answer| holds_all(answer)).cloned(),
        tried,
    }
}

/// Doubles from `fails` on until it holds, then halves what is between.
fn halved(holds: &mut dyn FnMut(usize) -> bool, mut fails: usize, threads_max: usize) {
    assert!(threads_max > 0, "a pool has a thread");
    // Doubling first: the answer is mostly far below the most that is allowed.
    let mut try_next = (2 * fails).max(1).min(threads_max);
    while fails < threads_max && !holds(try_next) {
        fails = try_next;
        try_next = (2 * try_next).min(threads_max);
    }
    while try_next - fails > 1 {
        let middle = fails + (try_next - fails) / 2;
        if holds(middle) {
            try_next = middle;
        } else {
            fails = middle;
        }
    }
}

#[cfg(test)]
mod tests {
    use telemetry::Nanos;

    use super::super::tests::{basis, fixed};
    use super::*;
    use crate::{ArrivalProcess, Laws, Lock, Rate, Route, Service};

    fn objective(below: f64) -> Objective {
        Objective {
            text: String::new(),
            metric: Metric::Queue(|times| times.p99_ms),
            below,
        }
    }

    #[test]
    fn finds_the_smallest_of_all_that_hold() {
        for wanted in 1..=41 {
            for (fails, threads_max) in [(0, 40), (wanted / 2, 40), (0, wanted)] {
                let mut least = None;
                let mut holds = |threads: usize| {
                    assert!((1..=threads_max).contains(&threads));
                    let holds = threads >= wanted;
                    least = least.into_iter().chain(holds.then_some(threads)).min();
                    holds
                };
                halved(&mut holds, fails.min(wanted - 1), threads_max);
                assert_eq!(least, (wanted <= threads_max).then_some(wanted));
            }
        }
    }

    #[test]
    fn three_threads_do_what_two_do_not() {
        let found = |basis: &Basis, below| {
            let objectives = [objective(below)];
            let search = smallest(basis, &basis.requests, &fixed(1), &objectives, 8, &[]);
            (
                search.found.map(|answer| answer.threads),
                search.tried.len(),
            )
        };
        assert_eq!(found(&basis(), 20.0).0, Some("3".to_owned()));
        assert_eq!(found(&basis(), 1_000.0).0, Some("2".to_owned()));
        assert_eq!(found(&basis(), 0.0), (None, 4));
        // Under one lock no number of threads is enough, and each is tried.
        let mut locked = basis();
        locked.sharing.sigma = 1.0;
        assert_eq!(found(&locked, 20.0), (None, 8));
    }

    #[test]
    fn all_objectives_have_to_hold() {
        let basis = basis();
        let refused = Objective {
            text: String::new(),
            metric: Metric::Refused,
            below: 0.001,
        };
        let both = [objective(1_000.0), refused];
        let search = smallest(&basis, &basis.requests, &fixed(1), &both, 8, &[]);
        assert_eq!(search.found.unwrap().threads, "2");
    }

    #[test]
    fn what_is_found_is_never_more_than_the_fewest_that_are_known_to_hold() {
        // Of one process 80 % computing: two threads are quicker than one, and eight slower than three.
        let route = Route {
            computing: 0.8,
            ..Route::only(Service::Exponential {
                mean: Nanos::from_ms(10),
            })
        };
        let laws = Laws {
            rates: vec![Rate::steady(105.0, Nanos::from_secs(40))],
            process: ArrivalProcess::Poisson,
            routes: vec![route],
        };
        let requests = Requests::Made(laws);
        let mut basis = basis();
        basis.lock = Some(Lock::default());
        let rows: Vec<Answer> = (1..=12)
            .map(|threads| answer(&basis, &requests, &fixed(threads)))
            .collect();
        let rows: Vec<&Answer> = rows.iter().collect();
        for row in &rows {
            let total = Objective {
                metric: Metric::Total(|times| times.p95_ms),
                ..objective(row.total.p95_ms + 0.001)
            };
            let fewest = rows.iter().find(|row| total.holds(row)).unwrap();
            let found = |known: &[&Answer]| {
                let all = std::slice::from_ref(&total);
                let search = smallest(&basis, &requests, &fixed(1), all, 64, known);
                search.found.map(|answer| answer.threads)
            };
            assert_eq!(found(&[]), Some(fewest.threads.clone()));
            assert_eq!(found(&[row]), Some(fewest.threads.clone()));
        }
    }
}
