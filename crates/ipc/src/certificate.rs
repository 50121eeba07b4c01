//! How a certificate stands: for people who look at a server, by its control socket or by its status page.

use std::fmt;

use serde::{Deserialize, Serialize};

/// Seconds of a day.
const DAY_SECS: i64 = 86_400;

/// One certificate. Members may be added; missing ones are empty.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct CertificateStatus {
    /// Names of servers that it is shown for.
    pub names: Vec<String>,
    /// Who has issued it.
    pub issuer: String,
    /// Seconds since 1970 of its last moment.
    pub ends_unix_s: u64,
    /// The same for people: `2026-12-04 12:00 UTC`.
    pub ends: String,
    /// Whole days until then; below zero once it has ended.
    pub days_left: i64,
    /// The server obtains and renews it by itself.
    pub is_automatic: bool,
    /// What is wrong with its file, or why its last renewal failed.
    pub last_fault: Option<String>,
}

impl CertificateStatus {
    /// The same at a moment, in seconds since 1970.
    #[must_use]
    pub fn at(self, now: u64) -> Self {
        let seconds = |of: u64| i64::try_from(of).unwrap_or(i64::MAX);
        let left = seconds(self.ends_unix_s).saturating_sub(seconds(now));
        Self {
            days_left: left.div_euclid(DAY_SECS),
            ..self
        }
    }
}

impl fmt::Display for CertificateStatus {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names = match self.names.is_empty() {
            true => "(no name)".to_owned(),
            false => self.names.join(", "),
        };
        write!(f, "{names}, by {}, until {}", self.issuer, self.ends)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_whole_days() {
        let ends = 1_000 * 86_400;
        let check = |now: u64, expect| {
            let status = CertificateStatus {
                ends_unix_s: ends,
                ..CertificateStatus::default()
            };
            assert_eq!(status.at(now).days_left, expect);
        };
        check(ends - 86_400, 1);
        check(ends - 86_399, 0);
        check(ends, 0);
        check(ends + 1, -1);
        check(ends + 86_401, -2);
    }
}
