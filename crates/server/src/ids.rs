//! Ids of exchanges: numbers that never come twice in a process, and whose word for an id counts.
//!
//! Takes addresses of accepted connections and heads, gives ids. Each driver counts for itself; nothing is
//! shared between them but what never changes.

use std::cell::Cell;
use std::hash::{BuildHasher, RandomState};
use std::net::IpAddr;
use std::time::{SystemTime, UNIX_EPOCH};

use wire::HeadView;

use crate::config::meant::RequestIds;
use crate::exchange::Id;
use crate::networks::Networks;

/// Bits of a number that count; those above them are the driver's index. At a million exchanges a second
/// they last 285 years.
const COUNT_BITS: u32 = 53;

/// What all drivers know of ids.
pub(crate) struct Ids {
    header: Option<String>,
    trust: Networks,
    seed: u64,
}

/// Whether the ids that a connection's client gives count.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Trust {
    /// They do.
    Taken,
    /// Ids are made.
    Refused,
}

/// The numbers of one driver.
pub(crate) struct Numbers {
    next: Cell<u64>,
}

impl Ids {
    pub(crate) fn new(config: &RequestIds) -> Self {
        Self {
            header: config.header.clone(),
            trust: Networks::new(&config.trust),
            seed: seed(),
        }
    }

    /// What the made ids of this process are mixed with.
    pub(crate) fn seed(&self) -> u64 {
        self.seed
    }

    /// Whether the ids of a client count; one on a unix socket has no address.
    pub(crate) fn trust(&self, peer: Option<IpAddr>) -> Trust {
        let is_trusted = self.header.is_some() && peer.is_none_or(|peer| self.trust.has(peer));
        match is_trusted {
            true => Trust::Taken,
            false => Trust::Refused,
        }
    }

    /// The id of the exchange with this number; `head` is `None` when it never became one.
    pub(crate) fn id(&self, number: u64, trust: Trust, head: Option<HeadView<'_>>) -> Id {
        let id = Id::made(self.seed, number);
        match (trust, head, &self.header) {
            (Trust::Taken, Some(head), Some(header)) => id.or_given(head, header),
            _ => id,
        }
    }
}

impl Numbers {
    /// The numbers of the driver with this index, at most 2,047.
    pub(crate) fn of_driver(index: u16) -> Self {
        Self {
            next: Cell::new(u64::from(index) << COUNT_BITS),
        }
    }

    pub(crate) fn next(&self) -> u64 {
        let number = self.next.get();
        self.next.set(number + 1);
        number
    }
}

/// Differs from process to process and from start to start: of the kernel's random bytes, which the keys of
/// the hash are, and of the time.
fn seed() -> u64 {
    let now = SystemTime::now().duration_since(UNIX_EPOCH);
    let now_ns = now.map_or(0, |now| now.as_nanos());
    RandomState::new().hash_one((std::process::id(), now_ns))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ids(trust: &[(&str, u8)]) -> Ids {
        let network = |(ip, prefix): &(&str, u8)| (ip.parse().unwrap(), *prefix);
        Ids::new(&RequestIds {
            header: Some("x-request-id".to_owned()),
            trust: trust.iter().map(network).collect(),
        })
    }

    #[test]
    fn trusts_the_networks_it_is_told_and_unix_sockets() {
        let check = |trust: &[(&str, u8)], peer: &str, expect: Trust| {
            let found = ids(trust).trust(Some(peer.parse().unwrap()));
            assert_eq!(found, expect, "{trust:?} {peer}");
        };
        use Trust::{Refused, Taken};
        check(&[], "127.0.0.1", Refused);
        check(&[("127.0.0.1", 32)], "127.0.0.1", Taken);
        check(&[("127.0.0.1", 32)], "127.0.0.2", Refused);
        check(&[("10.1.2.3", 8)], "10.200.0.1", Taken);
        check(&[("10.1.2.3", 8)], "11.0.0.1", Refused);
        check(&[("10.0.0.0", 8)], "::ffff:10.9.9.9", Taken);
        check(&[("::ffff:10.0.0.0", 104)], "10.9.9.9", Taken);
        check(&[("0.0.0.0", 0)], "203.0.113.9", Taken);
        check(&[("0.0.0.0", 0)], "2001:db8::1", Refused);
        check(&[("2001:db8::", 32), ("::1", 128)], "2001:db8:9::1", Taken);
        check(&[("2001:db8::", 32), ("::1", 128)], "::1", Taken);
        check(&[("2001:db8::", 32), ("::1", 128)], "2001:db9::1", Refused);
        check(&[("::", 0)], "2001:db8::1", Taken);
        assert_eq!(ids(&[]).trust(None), Taken);
        assert_eq!(Ids::new(&RequestIds::default()).trust(None), Refused);
    }

    #[test]
    fn drivers_never_give_the_same_number() {
        let drivers = [0, 1, 1_023].map(Numbers::of_driver);
        let numbers = drivers
            .iter()
            .flat_map(|driver| (0..1_000).map(|_| driver.next()));
        let distinct: std::collections::HashSet<u64> = numbers.collect();
        assert_eq!(distinct.len(), 3_000);
    }

    #[test]
    fn every_start_has_a_seed_of_its_own() {
        assert_ne!(ids(&[]).seed(), ids(&[]).seed());
    }
}
