//! When a name whose certificate could not be had is tried again. Pure: `now` is an argument.
//!
//! The record is kept in the storage folder, so that neither a restart nor a second machine begins anew: an authority
//! counts failed orders whoever places them.

use std::time::{Duration, SystemTime};

use serde::{Deserialize, Serialize};

/// Waits in minutes after the first failed try, the second, and so on; the last one repeats.
const WAITS_MIN: [u64; 25] = [
    1, 2, 2, 5, 10, 10, 10, 20, 20, 20, 20, 30, 30, 30, 30, 30, 30, 60, 60, 60, 120, 120, 180, 180,
    360,
];
/// A name that could not be had for so long is no longer tried: nobody has mended it.
const GIVE_UP_AFTER: Duration = Duration::from_secs(30 * 86_400);
/// A start tries again after this at the latest, because what was wrong may just have been mended.
const RESUMED_WAIT: Duration = Duration::from_secs(60);
/// Clocks of machines that share a storage folder differ by less; a record from further ahead says nothing.
const SKEW_MAX: Duration = Duration::from_secs(3_600);

/// Failed tries of one name in a row.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct RetryRecord {
    /// How many.
    pub(crate) failures: u32,
    /// When the first of them was.
    first: SystemTime,
    /// When the last of them was.
    last: SystemTime,
    /// Why the last one failed.
    pub(crate) cause: String,
    /// A further one was begun, and its end is not known. Without a holder of the name's lock, it failed.
    #[serde(default)]
    pub(crate) is_under_way: bool,
}

impl RetryRecord {
    /// The record after one more failure.
    pub(crate) fn failed(before: Option<&RetryRecord>, now: SystemTime, cause: String) -> Self {
        let (failures, first) = before.map_or((0, now), |record| (record.failures, record.first));
        Self {
            failures: failures.saturating_add(1),
            first,
            last: now,
            cause,
            is_under_way: false,
        }
    }

    /// The record while one more try is under way.
    pub(crate) fn begun(before: Option<&RetryRecord>, now: SystemTime) -> Self {
        let none = || RetryRecord {
            failures: 0,
            first: now,
            last: now,
            cause: String::new(),
            is_under_way: true,
        };
        let under_way = |record: &RetryRecord| RetryRecord {
            is_under_way: true,
            ..record.clone()
        };
        before.map_or_else(none, under_way)
    }

    /// When the next try is due; `None`: never, until the next start. `started` is when this process started.
    pub(crate) fn next(&self, started: SystemTime, now: SystemTime) -> Option<SystemTime> {
        // The lock says whether it still is.
        if self.is_under_way || self.last > now + SKEW_MAX {
            return Some(now);
        }
        let usual = self.last + self.wait();
        if self.last < started {
            return Some(usual.min(started.max(self.last + RESUMED_WAIT)));
        }
        let age = self
            .last
            .duration_since(self.first)
            .unwrap_or(Duration::ZERO);
        (age < GIVE_UP_AFTER).then_some(usual)
    }

    fn wait(&self) -> Duration {
        let index = usize::try_from(self.failures.saturating_sub(1)).unwrap_or(usize::MAX);
        let minutes = WAITS_MIN[index.min(WAITS_MIN.len() - 1)];
        Duration::from_secs(minutes * 60)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(minutes: u64) -> SystemTime {
        SystemTime::UNIX_EPOCH + Duration::from_secs((1_000_000 + minutes) * 60)
    }

    /// A record of so many failures, the last of them at minute `last`.
    fn record(failures: u32, first: u64, last: u64) -> RetryRecord {
        RetryRecord {
            failures,
            first: at(first),
            last: at(last),
            cause: "refused".to_owned(),
            is_under_way: false,
        }
    }

    #[test]
    fn a_try_without_an_end_counts_as_a_failure() {
        let check = |before: Option<RetryRecord>, failures, wait: u64| {
            let begun = RetryRecord::begun(before.as_ref(), at(100));
            // Whoever has the lock looks after it.
            assert_eq!(begun.next(at(0), at(101)), Some(at(101)));
            let ended = RetryRecord::failed(Some(&begun), at(101), "ended".to_owned());
            assert_eq!((ended.failures, ended.is_under_way), (failures, false));
            assert_eq!(ended.next(at(0), at(101)), Some(at(101 + wait)));
        };
        check(None, 1, 1);
        check(Some(record(3, 0, 50)), 4, 5);
    }

    #[test]
    fn waits_longer_after_each_failure() {
        let mut now = 0;
        let mut record = None;
        let mut waits = Vec::new();
        for _ in 0..27 {
            let failed = RetryRecord::failed(record.as_ref(), at(now), "refused".to_owned());
            let next = failed.next(at(0), at(now)).unwrap();
            let wait = next.duration_since(at(now)).unwrap().as_secs() / 60;
            waits.push(wait);
            now += wait;
            record = Some(failed);
        }
        assert_eq!(waits[..8], [1, 2, 2, 5, 10, 10, 10, 20]);
        assert_eq!(waits[24..], [360, 360, 360]);
        assert!(waits.is_sorted());
        assert_eq!(record.unwrap().first, at(0));
    }

    #[test]
    fn gives_up_after_thirty_days() {
        let month = 30 * 24 * 60;
        assert!(record(200, 0, month - 1).next(at(0), at(month)).is_some());
        assert_eq!(record(200, 0, month).next(at(0), at(month)), None);
    }

    #[test]
    fn a_start_tries_again_soon_but_never_at_once_after_a_failure() {
        // The usual wait is ten minutes, from minute 100 on.
        let check = |started, expect| {
            let next = record(5, 0, 100).next(at(started), at(started));
            assert_eq!(next, Some(at(expect)), "started at {started}");
        };
        check(105, 105);
        check(200, 110);
        let crashed = record(5, 0, 100);
        let second = at(100) + Duration::from_secs(1);
        assert_eq!(crashed.next(second, second), Some(at(101)));
    }

    #[test]
    fn a_start_takes_up_what_was_given_up() {
        let month = 30 * 24 * 60;
        let next = record(200, 0, month).next(at(month + 5), at(month + 5));
        assert_eq!(next, Some(at(month + 5)));
    }

    #[test]
    fn a_record_from_the_future_is_no_reason_to_wait() {
        let next = record(9, 0, 1_000_000).next(at(0), at(1));
        assert_eq!(next, Some(at(1)));
    }
}
