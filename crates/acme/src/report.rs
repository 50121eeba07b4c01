//! What the main loop says: how each name stands, and lines for the log.

use std::time::{Duration, SystemTime};

use serde::{Deserialize, Serialize};

use crate::challenges::ChallengeTable;

/// The same failure of a name is said again after this.
const REPEATED_AFTER: Duration = Duration::from_secs(3_600);

/// One thing that is said.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Report {
    /// How all names stand, in the order of the plan; said at each change.
    States(Vec<NameState>),
    /// Which challenges are to be answered from now on, those of other machines included; said at each change.
    Challenges(ChallengeTable),
    /// A line for the log.
    Line(String),
}

/// How one name stands.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct NameState {
    /// The name.
    pub name: String,
    /// Whose certificates it gets: the authority's host, or `local`.
    pub authority: String,
    /// Who issued the certificate that it has: its issuer's common name.
    pub issuer: Option<String>,
    /// Until when that holds, in seconds since 1970.
    pub not_after_unix_s: Option<u64>,
    /// When it is renewed or tried again, in seconds since 1970; `None`: not before the next start.
    pub next_try_unix_s: Option<u64>,
    /// Failed tries in a row.
    pub failures: u32,
    /// Why the last one failed.
    pub last_error: Option<String>,
}

/// What was said of one name's failures.
#[derive(Debug, Default)]
pub(crate) struct SaidFailure {
    last: Option<(String, SystemTime)>,
}

impl SaidFailure {
    /// Whether a failure is worth a line: not when the same was said a short while ago.
    pub(crate) fn is_news(&mut self, cause: &str, now: SystemTime) -> bool {
        if let Some((said, at)) = &self.last
            && said == cause
            && now
                .duration_since(*at)
                .is_ok_and(|age| age < REPEATED_AFTER)
        {
            return false;
        }
        self.last = Some((cause.to_owned(), now));
        true
    }

    /// The next failure is a new one.
    pub(crate) fn forget(&mut self) {
        self.last = None;
    }
}

/// "in 5 minutes": the two largest units would say more than anybody needs.
pub(crate) fn distance(from: SystemTime, to: SystemTime) -> String {
    let secs = to.duration_since(from).unwrap_or(Duration::ZERO).as_secs();
    let (number, unit) = match secs {
        0..90 => (secs, "second"),
        90..5_400 => ((secs + 30) / 60, "minute"),
        5_400..172_800 => ((secs + 1_800) / 3_600, "hour"),
        _ => ((secs + 43_200) / 86_400, "day"),
    };
    let plural = if number == 1 { "" } else { "s" };
    format!("{number} {unit}{plural}")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(secs: u64) -> SystemTime {
        SystemTime::UNIX_EPOCH + Duration::from_secs(secs)
    }

    #[test]
    fn says_the_same_failure_once_an_hour() {
        let mut said = SaidFailure::default();
        assert!(said.is_news("refused", at(0)));
        assert!(!said.is_news("refused", at(3_599)));
        assert!(said.is_news("timed out", at(3_599)));
        assert!(said.is_news("refused", at(3_600)));
        assert!(said.is_news("refused", at(7_200)));
        said.forget();
        assert!(said.is_news("refused", at(7_201)));
    }

    #[test]
    fn says_distances_in_one_unit() {
        let check = |secs, expect: &str| assert_eq!(distance(at(0), at(secs)), expect);
        check(1, "1 second");
        check(60, "60 seconds");
        check(120, "2 minutes");
        check(21_600, "6 hours");
        check(86_400 * 89 + 50_000, "90 days");
        assert_eq!(distance(at(9), at(3)), "0 seconds");
    }
}
