//! Auth facts: what a record has of the question whether its request may pass, to the server of `forward_auth`. Holds
//! values and their bytes, decides nothing.

use crate::{Nanos, Stamp};

/// What is known of the question; `took_us` of 0 says that there was none, and then nothing else means anything.
///
/// Times are whole microseconds, at most 71 minutes.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct AuthFacts {
    /// Index of the server that was asked, plus one; 0 where none had a free place.
    server: u16,
    /// Status of its response; 0 where there was none.
    pub status: u16,
    /// Why there was none.
    pub failure: AuthFailure,
    /// From the arrival of the request to the question.
    began_us: u32,
    /// From the question to the response, waiting for a free place included; at least 1.
    took_us: u32,
}

/// Why the server of `forward_auth` has given no response.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub enum AuthFailure {
    /// It has given one.
    #[default]
    None,
    /// It could not be asked: none works, none was free, or the question cannot be written.
    NotAsked,
    /// No connection, or no TLS.
    Connect,
    /// Nothing came in time.
    Timeout,
    /// The connection ended before the response did.
    Closed,
    /// What came is no response.
    Malformed,
}

/// Bytes of the facts in a record that has any.
pub(crate) const AUTH_BYTES: usize = 2 + 2 + 1 + 4 + 4;

impl AuthFailure {
    const ALL: [AuthFailure; 6] = [
        AuthFailure::None,
        AuthFailure::NotAsked,
        AuthFailure::Connect,
        AuthFailure::Timeout,
        AuthFailure::Closed,
        AuthFailure::Malformed,
    ];

    /// The value of `error.type` in a span.
    pub const fn text(self) -> &'static str {
        match self {
            AuthFailure::None => "",
            AuthFailure::NotAsked => "not_asked",
            AuthFailure::Connect => "connect",
            AuthFailure::Timeout => "timeout",
            AuthFailure::Closed => "closed",
            AuthFailure::Malformed => "malformed",
        }
    }
}

impl AuthFacts {
    /// Nobody was asked.
    pub const NONE: AuthFacts = AuthFacts {
        server: 0,
        status: 0,
        failure: AuthFailure::None,
        began_us: 0,
        took_us: 0,
    };

    /// Of a question that began and ended then, about a request that arrived before. `server`: its index among the names
    /// of all servers.
    pub fn new(
        arrived: Stamp,
        (began, ended): (Stamp, Stamp),
        server: Option<u16>,
        status: u16,
        failure: AuthFailure,
    ) -> AuthFacts {
        let us = |time: Nanos| u32::try_from(time.0 / 1_000).unwrap_or(u32::MAX);
        AuthFacts {
            server: server.map_or(0, |server| server.saturating_add(1)),
            status,
            failure,
            began_us: us(began.since(arrived)),
            took_us: us(ended.since(began)).max(1),
        }
    }

    /// Whether the server was asked, or was to be.
    pub const fn is_known(&self) -> bool {
        self.took_us > 0
    }

    /// Index of the server that was asked.
    pub fn server(&self) -> Option<u16> {
        self.server.checked_sub(1)
    }

    /// From the arrival of the request to the question.
    pub fn began(&self) -> Nanos {
        Nanos(u64::from(self.began_us) * 1_000)
    }

    /// How long the question took.
    pub fn took(&self) -> Nanos {
        Nanos(u64::from(self.took_us) * 1_000)
    }

    pub(crate) fn to_bytes(self) -> [u8; AUTH_BYTES] {
        let mut bytes = [0; AUTH_BYTES];
        bytes[..2].copy_from_slice(&self.server.to_le_bytes());
        bytes[2..4].copy_from_slice(&self.status.to_le_bytes());
        bytes[4] = self.failure as u8;
        bytes[5..9].copy_from_slice(&self.began_us.to_le_bytes());
        bytes[9..].copy_from_slice(&self.took_us.to_le_bytes());
        bytes
    }

    /// What `to_bytes` has written; nothing is no question.
    pub(crate) fn from_bytes(bytes: &[u8]) -> Option<AuthFacts> {
        if bytes.is_empty() {
            return Some(AuthFacts::default());
        }
        let (server, rest) = bytes.split_first_chunk()?;
        let (status, rest) = rest.split_first_chunk()?;
        let (failure, rest) = rest.split_first()?;
        let (began_us, rest) = rest.split_first_chunk()?;
        let took_us = <[u8; 4]>::try_from(rest).ok()?;
        Some(AuthFacts {
            server: u16::from_le_bytes(*server),
            status: u16::from_le_bytes(*status),
            failure: *AuthFailure::ALL.get(usize::from(*failure))?,
            began_us: u32::from_le_bytes(*began_us),
            took_us: u32::from_le_bytes(took_us),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn is_small_and_comes_back_from_its_bytes() {
        // It is copied with its exchange.
        assert!(size_of::<AuthFacts>() <= 16);
        for (number, failure) in (0_u16..).zip(AuthFailure::ALL) {
            assert_eq!(failure as u16, number);
            let times = (Stamp(1_234_000), Stamp(u64::MAX));
            let facts = AuthFacts::new(Stamp(0), times, Some(7), 401, failure);
            assert_eq!(AuthFacts::from_bytes(&facts.to_bytes()), Some(facts));
            assert_eq!(facts.server(), Some(7));
            assert_eq!(facts.began(), Nanos(1_234_000));
            // What is longer than can be told is the longest time that can.
            assert_eq!(facts.took(), Nanos(u64::from(u32::MAX) * 1_000));
        }
        let none = AuthFacts::default();
        assert_eq!(AuthFacts::from_bytes(b""), Some(none));
        assert!(!none.is_known() && none.server().is_none());
        let mut bytes = none.to_bytes();
        bytes[4] = 6;
        assert_eq!(AuthFacts::from_bytes(&bytes), None);
        assert_eq!(AuthFacts::from_bytes(&bytes[1..]), None);
    }

    #[test]
    fn a_question_that_took_no_time_is_one() {
        let at = Stamp(5_000);
        let facts = AuthFacts::new(at, (at, at), None, 0, AuthFailure::NotAsked);
        assert!(facts.is_known());
        assert_eq!((facts.server(), facts.took()), (None, Nanos(1_000)));
    }
}
