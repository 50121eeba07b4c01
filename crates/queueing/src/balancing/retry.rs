//! Whether a failed request may be sent again, and how many of all may be.
//!
//! Takes how far a request came and what it is, gives yes or the reason why not. It must not know sockets.
//!
//! Three rules: (1) where nothing can have reached a server, any request goes to the next one; (2) where the
//! connection ended before a byte of the response, only what may be done twice does (RFC 9110 section 9.2.2), or what was
//! not written at all; (3) a response counts as a failure only by setting. A retry is more load on a group that is
//! already in trouble, so all of them together stay within a budget.

use telemetry::{Nanos, Stamp};

/// How far the last attempt came.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Progress {
    /// No connection, or no TLS on it: no byte of the request was sent.
    NotConnected,
    /// The connection ended before the first byte of a response, fresh or reused. `is_written`: some of the request
    /// may have reached the server.
    NoResponse {
        /// Whether any byte of the request was handed to the kernel.
        is_written: bool,
    },
    /// The time for a response is over; the server may still be at it.
    TimedOut,
    /// A response with this status, nothing of which was sent to the client.
    Answered {
        /// Its status.
        status: u16,
    },
    /// A byte of the response has been sent to the client.
    Delivering,
}

/// A request whose attempt failed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct RetryCase<'a> {
    /// How far it came.
    pub progress: Progress,
    /// Its method.
    pub method: &'a [u8],
    /// The client sent an `Idempotency-Key`: its server knows a second copy.
    pub has_key: bool,
    /// Its body, if any, can be sent again from the beginning.
    pub is_replayable: bool,
    /// Attempts that failed, this one included; at least 1.
    pub attempts: u32,
    /// Most attempts after the first.
    pub retries_max: u32,
    /// Statuses that count as failures, by setting.
    pub statuses: &'a [u16],
}

/// Why a request is not sent again.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum NoRetry {
    /// The client has a part of a response.
    Delivering,
    /// It was tried as often as the setting allows.
    Attempts,
    /// Its body is gone.
    Body,
    /// It might be done twice.
    NotIdempotent,
    /// A late response is no reason to ask for it twice.
    TimedOut,
    /// The response is one to be passed on.
    Status,
}

/// Whether the request may be sent to another server; the budget is asked last.
pub fn may_retry(case: &RetryCase<'_>) -> Result<(), NoRetry> {
    let may_repeat = case.has_key || is_idempotent(case.method);
    match case.progress {
        Progress::Delivering => return Err(NoRetry::Delivering),
        Progress::TimedOut => return Err(NoRetry::TimedOut),
        Progress::Answered { status } if !case.statuses.contains(&status) => {
            return Err(NoRetry::Status);
        }
        Progress::Answered { .. } | Progress::NoResponse { is_written: true } if !may_repeat => {
            return Err(NoRetry::NotIdempotent);
        }
        Progress::NotConnected | Progress::NoResponse { .. } | Progress::Answered { .. } => {}
    }
    if !case.is_replayable && case.progress != Progress::NotConnected {
        return Err(NoRetry::Body);
    }
    match case.attempts > case.retries_max {
        true => Err(NoRetry::Attempts),
        false => Ok(()),
    }
}

/// RFC 9110 section 9.2.2.
fn is_idempotent(method: &[u8]) -> bool {
    matches!(
        method,
        b"GET" | b"HEAD" | b"OPTIONS" | b"TRACE" | b"PUT" | b"DELETE"
    )
}

/// Seconds that a budget looks back.
const SECS: usize = 10;
/// Retries in that time that are always allowed: with few requests a share of them is none.
const RETRIES_MIN: u64 = 3;
const SECOND: Nanos = Nanos::from_secs(1);

/// How many retries there may be: a share of the requests of the last 10 s, and 3 in any case.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct RetryBudget {
    percent: u32,
    /// Requests and retries of the latest seconds, by second modulo their number.
    seconds: [(u32, u32); SECS],
    /// The latest second that is counted.
    second: u64,
}

impl RetryBudget {
    /// A budget of so many retries per 100 requests; 0 allows none at all.
    pub const fn new(percent: u32) -> RetryBudget {
        RetryBudget {
            percent,
            seconds: [(0, 0); SECS],
            second: 0,
        }
    }

    /// A request came at `now`.
    pub fn note_request(&mut self, now: Stamp) {
        let requests = &mut self.present(now).0;
        *requests = requests.saturating_add(1);
    }

    /// Takes a retry out of the budget at `now`; false where nothing is left.
    pub fn try_take(&mut self, now: Stamp) -> bool {
        self.present(now);
        let sum = |count: fn(&(u32, u32)) -> u32| -> u64 {
            self.seconds
                .iter()
                .map(|second| u64::from(count(second)))
                .sum()
        };
        let (requests, retries) = (sum(|second| second.0), sum(|second| second.1));
        let share = requests * u64::from(self.percent) / 100;
        if self.percent == 0 || retries >= share.max(RETRIES_MIN) {
            return false;
        }
        self.present(now).1 += 1;
        true
    }

    /// The counts of the second of `now`, with those before that are too old forgotten.
    fn present(&mut self, now: Stamp) -> &mut (u32, u32) {
        let second = now.0 / SECOND.0;
        let passed = second.saturating_sub(self.second).min(SECS as u64);
        for back in 0..passed {
            self.seconds[(second - back) as usize % SECS] = (0, 0);
        }
        self.second = self.second.max(second);
        &mut self.seconds[self.second as usize % SECS]
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const CASE: RetryCase<'static> = RetryCase {
        progress: Progress::NotConnected,
        method: b"POST",
        has_key: false,
        is_replayable: true,
        attempts: 1,
        retries_max: 2,
        statuses: &[503],
    };

    #[test]
    fn only_what_cannot_be_done_twice_is_sent_again() {
        let check = |progress, method: &'static [u8], expect| {
            let case = RetryCase {
                progress,
                method,
                ..CASE
            };
            assert_eq!(may_retry(&case), expect, "{case:?}");
        };
        let unwritten = Progress::NoResponse { is_written: false };
        let written = Progress::NoResponse { is_written: true };
        let answered = |status| Progress::Answered { status };
        for method in [b"POST".as_slice(), b"PATCH", b"get", b"LOCK"] {
            check(Progress::NotConnected, method, Ok(()));
            check(unwritten, method, Ok(()));
            check(written, method, Err(NoRetry::NotIdempotent));
            check(answered(503), method, Err(NoRetry::NotIdempotent));
            check(answered(502), method, Err(NoRetry::Status));
        }
        for method in [
            b"GET".as_slice(),
            b"HEAD",
            b"OPTIONS",
            b"TRACE",
            b"PUT",
            b"DELETE",
        ] {
            check(Progress::NotConnected, method, Ok(()));
            check(written, method, Ok(()));
            check(answered(503), method, Ok(()));
            check(answered(200), method, Err(NoRetry::Status));
            check(Progress::TimedOut, method, Err(NoRetry::TimedOut));
            check(Progress::Delivering, method, Err(NoRetry::Delivering));
        }
    }

    #[test]
    fn keys_bodies_and_attempts_count() {
        let written = RetryCase {
            progress: Progress::NoResponse { is_written: true },
            has_key: true,
            ..CASE
        };
        assert_eq!(may_retry(&written), Ok(()));
        let gone = RetryCase {
            is_replayable: false,
            ..written
        };
        assert_eq!(may_retry(&gone), Err(NoRetry::Body));
        // Of a request that was not sent nothing is gone.
        let unsent = RetryCase {
            is_replayable: false,
            ..CASE
        };
        assert_eq!(may_retry(&unsent), Ok(()));
        let check = |attempts, retries_max, expect| {
            let case = RetryCase {
                attempts,
                retries_max,
                ..CASE
            };
            assert_eq!(may_retry(&case), expect);
        };
        check(2, 2, Ok(()));
        check(3, 2, Err(NoRetry::Attempts));
        check(1, 0, Err(NoRetry::Attempts));
    }

    fn taken(budget: &mut RetryBudget, now: Stamp, tries: usize) -> usize {
        (0..tries).filter(|_| budget.try_take(now)).count()
    }

    #[test]
    fn a_budget_is_a_share_and_three_at_least() {
        let at = |secs| Stamp::ZERO.plus(Nanos::from_secs(secs));
        let mut budget = RetryBudget::new(10);
        assert_eq!(taken(&mut budget, at(1), 10), 3);
        assert_eq!(taken(&mut budget, at(10), 10), 0);
        assert_eq!(taken(&mut budget, at(11), 10), 3);
        for _ in 0..100 {
            budget.note_request(at(12));
        }
        assert_eq!(taken(&mut budget, at(12), 100), 7);
        assert_eq!(taken(&mut budget, at(21), 100), 3);
        assert_eq!(taken(&mut budget, at(1_000), 100), 3);
        assert_eq!(taken(&mut RetryBudget::new(0), at(1), 10), 0);
    }

    proptest! {
        #[test]
        fn no_window_has_more_than_its_share(
            steps in prop::collection::vec((0u64..3_000, 0usize..20, 0usize..6), 1..200),
            percent in 1u32..100,
        ) {
            let mut budget = RetryBudget::new(percent);
            let (mut now, mut events) = (Stamp::ZERO, Vec::new());
            for (ms, requests, tries) in steps {
                now = now.plus(Nanos::from_ms(ms));
                (0..requests).for_each(|_| budget.note_request(now));
                let retries = taken(&mut budget, now, tries);
                events.push((now.0 / SECOND.0, requests, retries));
                let last = now.0 / SECOND.0;
                let within = events.iter().filter(|event| event.0 + SECS as u64 > last);
                let (asked, again) = within.fold((0, 0), |sum, event| (sum.0 + event.1, sum.1 + event.2));
                // Requests may have left the window since, so only a window that ends with a retry is bound.
                let most = (asked * percent as usize / 100).max(RETRIES_MIN as usize);
                prop_assert!(retries == 0 || again <= most, "{again} of {asked}");
            }
        }
    }
}
