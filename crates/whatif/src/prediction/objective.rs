//! How few threads hold an objective.
//!
//! Takes objectives and a variant, gives the smallest number of threads of its first pool with which they all
//! hold. Where more threads never wait longer, it halves what is left; where those that run at once slow each
//! other down, more threads can be worse, so it tries one number after another.

use super::{Answer, Basis, Requests, Threads, Times, Variant, answer};
use crate::Sharing;

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

/// Looks for the fewest threads, up to `threads_max`, of the first pool.
pub fn smallest(
    basis: &Basis,
    requests: &Requests,
    variant: &Variant,
    objectives: &[Objective],
    threads_max: usize,
) -> Search {
    let mut tried = Vec::new();
    let mut holds = |threads: usize| {
        let mut variant = variant.clone();
        variant.pools[0].threads = Threads::fixed(threads);
        let answer = answer(basis, requests, &variant);
        let holds = objectives.iter().all(|objective| objective.holds(&answer));
        tried.push((threads, answer));
        holds
    };
    let found = if basis.sharing == Sharing::default() {
        halved(&mut holds, threads_max)
    } else {
        (1..=threads_max).find(|threads| holds(*threads))
    };
    tried.sort_by_key(|(threads, _)| *threads);
    Search {
        found: found.and_then(|found| {
            let hit = tried.iter().find(|(threads, _)| *threads == found);
            hit.map(|(_, answer)| answer.clone())
        }),
        tried: tried.into_iter().map(|(_, answer)| answer).collect(),
    }
}

/// Doubles until it holds, then halves what is between.
fn halved(holds: &mut dyn FnMut(usize) -> bool, threads_max: usize) -> Option<usize> {
    let (mut fails, mut try_next) = (0, 1);
    while !holds(try_next) {
        if try_next == threads_max {
            return None;
        }
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
    Some(try_next)
}

#[cfg(test)]
mod tests {
    use super::super::tests::{basis, fixed};
    use super::*;

    fn objective(below: f64) -> Objective {
        Objective {
            text: String::new(),
            metric: Metric::Queue(|times| times.p99_ms),
            below,
        }
    }

    #[test]
    fn finds_the_smallest_of_all_that_hold() {
        for wanted in 1..=40 {
            let mut holds = |threads| threads >= wanted;
            assert_eq!(halved(&mut holds, 40), Some(wanted));
            assert_eq!(halved(&mut holds, wanted), Some(wanted));
            if wanted > 1 {
                assert_eq!(halved(&mut holds, wanted - 1), None);
            }
        }
    }

    #[test]
    fn three_threads_do_what_two_do_not() {
        let found = |basis: &Basis, below| {
            let search = smallest(basis, &basis.requests, &fixed(1), &[objective(below)], 8);
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
        let search = smallest(&basis, &basis.requests, &fixed(1), &both, 8);
        assert_eq!(search.found.unwrap().threads, "2");
    }
}
