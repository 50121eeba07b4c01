//! How long handlers ran of late: the median, which one slow client does not move.
//!
//! Takes run times one by one, keeps the last few. It must not know whose they were.

use measure::Nanos;

/// Run times that are remembered: enough for a median, few enough to sort ten times a second.
pub(crate) const KEPT_LEN: usize = 63;

/// The last run times of a pool.
#[derive(Clone, Debug)]
pub(crate) struct Runs {
    kept: [Nanos; KEPT_LEN],
    len: usize,
    next: usize,
}

impl Runs {
    pub(crate) const fn new() -> Runs {
        Runs {
            kept: [Nanos::ZERO; KEPT_LEN],
            len: 0,
            next: 0,
        }
    }

    pub(crate) fn add(&mut self, run: Nanos) {
        self.kept[self.next] = run;
        self.next = (self.next + 1) % KEPT_LEN;
        self.len = (self.len + 1).min(KEPT_LEN);
    }

    /// The median of what is remembered (of an even number the upper one); `None` when nothing is.
    pub(crate) fn median(&self) -> Option<Nanos> {
        let mut sorted = self.kept;
        let sorted = &mut sorted[..self.len];
        if sorted.is_empty() {
            return None;
        }
        let (_, median, _) = sorted.select_nth_unstable(self.len / 2);
        Some(*median)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(runs_ms: &[u64], expect_ms: Option<u64>) {
        let mut runs = Runs::new();
        for &ms in runs_ms {
            runs.add(Nanos::from_ms(ms));
        }
        assert_eq!(runs.median(), expect_ms.map(Nanos::from_ms), "{runs_ms:?}");
    }

    #[test]
    fn one_slow_client_does_not_move_the_median() {
        check(&[], None);
        check(&[7], Some(7));
        check(&[1, 2, 30_000], Some(2));
        check(&[3, 1, 2, 20_000, 2], Some(2));
    }

    #[test]
    fn old_run_times_are_forgotten() {
        let mut runs = vec![1_000; 100];
        runs.extend([5; KEPT_LEN]);
        check(&runs, Some(5));
    }
}
