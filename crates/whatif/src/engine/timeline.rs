//! What a simulation looked like, second by second, in bounded memory.
//!
//! Takes levels as they are and waits as they end, gives moments. It must not know whose they are.

use telemetry::{Nanos, Stamp};

use crate::Moment;

use super::START;

/// Moments kept at most.
const LEN_MAX: usize = 4_096;

/// Moments until now, and the one that is not over yet.
pub(super) struct Timeline {
    /// The present, with what has happened since the last moment.
    pub level: Moment,
    moments: Vec<Moment>,
    next: Stamp,
    every: Nanos,
}

impl Default for Timeline {
    fn default() -> Timeline {
        Timeline {
            level: Moment::default(),
            moments: Vec::new(),
            next: Stamp::NEVER,
            every: Nanos::from_secs(1),
        }
    }
}

impl Timeline {
    pub(super) fn begin(&mut self, now: Stamp) {
        self.next = now.plus(self.every);
    }

    /// A wait ended.
    pub(super) fn waited(&mut self, wait: Nanos) {
        self.level.wait_max = self.level.wait_max.max(wait);
    }

    /// Time passes; the levels are those until now.
    pub(super) fn advance(&mut self, now: Stamp) {
        while now >= self.next {
            self.keep(self.next);
            self.next = self.next.plus(self.every);
        }
    }

    /// All moments, and what is left of a second as the last.
    pub(super) fn finish(mut self, now: Stamp) -> Vec<Moment> {
        if now.plus(self.every) > self.next || self.moments.is_empty() {
            self.keep(now);
        }
        self.moments
    }

    #[cfg(test)]
    pub(super) fn places(&self) -> usize {
        self.moments.capacity()
    }

    fn keep(&mut self, at: Stamp) {
        self.moments.push(Moment {
            at: at.since(START),
            ..self.level
        });
        (self.level.wait_max, self.level.refused) = (Nanos::ZERO, 0);
        if self.moments.len() == LEN_MAX {
            self.thin_out();
        }
    }

    fn thin_out(&mut self) {
        assert_eq!(
            self.moments.len(),
            LEN_MAX,
            "moments are thinned out when there is no room"
        );
        for index in 0..LEN_MAX / 2 {
            // Levels are those at the end of both; the longest wait and the refusals are those of both.
            let (first, second) = (self.moments[2 * index], self.moments[2 * index + 1]);
            self.moments[index] = Moment {
                wait_max: first.wait_max.max(second.wait_max),
                refused: first.refused + second.refused,
                ..second
            };
        }
        self.moments.truncate(LEN_MAX / 2);
        self.every.0 *= 2;
    }
}
