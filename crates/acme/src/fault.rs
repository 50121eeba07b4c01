//! Why a certificate could not be had, sorted by who can do something about it. Texts are for the log.

use std::error::Error;
use std::fmt;
use std::io;

/// Why one try failed.
#[derive(Debug)]
pub(crate) enum IssueFault {
    /// The authority cannot be reached, or its HTTPS is not right: the network's or the authority's.
    Unreachable(String),
    /// The authority refuses: account, limits, names.
    Refused(String),
    /// The authority could not see the answer to its challenge: DNS, ports, proxies of this site.
    Challenge(String),
    /// The authority's answer cannot be used.
    Answer(String),
    /// The storage folder cannot be used.
    Storage(io::Error),
    /// Another process has taken the lock, because this one did not touch it in time.
    LockLost,
    /// A process has ended amid an order.
    Interrupted,
}

impl IssueFault {
    /// What to do about it, where that is known.
    pub(crate) fn hint(&self) -> Option<&'static str> {
        match self {
            IssueFault::Challenge(_) => Some(
                "the name must lead to this server, and ports 80 and 443 must be open to the internet",
            ),
            IssueFault::Unreachable(text) if text.contains("certificate") => {
                Some("`acme_ca` names a file with the roots of a private certificate authority")
            }
            _ => None,
        }
    }
}

impl fmt::Display for IssueFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            IssueFault::Unreachable(text) => write!(f, "the authority cannot be reached: {text}"),
            IssueFault::Refused(text) => write!(f, "the authority refuses: {text}"),
            IssueFault::Challenge(text) => write!(f, "the challenge failed: {text}"),
            IssueFault::Answer(text) => write!(f, "the authority's answer cannot be used: {text}"),
            IssueFault::Storage(error) => write!(f, "the storage folder cannot be used: {error}"),
            IssueFault::LockLost => {
                f.write_str("another process took over, because this one had stood still")
            }
            IssueFault::Interrupted => f.write_str(
                "the process that had placed an order ended before the order was decided",
            ),
        }
    }
}

impl From<io::Error> for IssueFault {
    fn from(error: io::Error) -> Self {
        IssueFault::Storage(error)
    }
}

impl From<rcgen::Error> for IssueFault {
    /// Keys and requests are made here, of names that were checked.
    fn from(error: rcgen::Error) -> Self {
        IssueFault::Answer(format!("no request can be made for it: {error}"))
    }
}

impl From<instant_acme::Error> for IssueFault {
    fn from(error: instant_acme::Error) -> Self {
        match error {
            instant_acme::Error::Api(problem) => {
                let kind = problem.r#type.as_deref().unwrap_or_default();
                let kind = kind.rsplit(':').next().unwrap_or_default();
                let detail = problem.detail.clone().unwrap_or_default();
                IssueFault::Refused(short(&format!("{detail} ({kind})")))
            }
            instant_acme::Error::Timeout(_) => {
                IssueFault::Answer("the order was not decided in time".to_owned())
            }
            instant_acme::Error::Other(error) => {
                IssueFault::Unreachable(short(&with_sources(&*error)))
            }
            instant_acme::Error::Json(error) => {
                IssueFault::Answer(format!("no JSON of ACME: {error}"))
            }
            other => IssueFault::Answer(short(&other.to_string())),
        }
    }
}

/// An error with those that it came from, as one line.
pub(crate) fn with_sources(error: &(dyn Error + 'static)) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(error) = source {
        let more = error.to_string();
        // Many errors repeat their source.
        if !text.contains(&more) {
            text.push_str(": ");
            text.push_str(&more);
        }
        source = error.source();
    }
    text
}

/// What others wrote, as one line of the log: without control characters and without end.
pub(crate) fn short(text: &str) -> String {
    const CHARS_MAX: usize = 300;
    let text = text.split_whitespace().collect::<Vec<_>>().join(" ");
    let mut line: String = text
        .chars()
        .filter(|char| !char.is_control())
        .take(CHARS_MAX)
        .collect();
    if line.chars().count() == CHARS_MAX {
        line.push('…');
    }
    line
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_problem_of_the_authority_is_one_short_line() {
        assert_eq!(short("no\nsuch\tname"), "no such name");
        assert_eq!(short("a\u{1b}[31mb"), "a[31mb");
        assert_eq!(short(&"x".repeat(1000)).chars().count(), 301);
    }

    #[test]
    fn causes_are_named_once() {
        let inner = io::Error::other("refused");
        let outer = io::Error::other(inner);
        assert_eq!(with_sources(&outer), "refused");
    }
}
