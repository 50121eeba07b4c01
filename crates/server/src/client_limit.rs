//! The limit of what one client has open: `client_connections_max`.
//!
//! Takes addresses of accepted connections, and of clients that a trusted proxy names with each of their requests;
//! gives a permit for each, or the fact that the client has as many as it may have. A client is a network prefix, because an attacker with one IPv6 address has 2^64 of them. Knows no
//! sockets; connections on unix sockets have no address and are not counted.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::net::IpAddr;
use std::sync::{Arc, Mutex};

use ipnet::IpNet;

use crate::sync::{lock, violated};

/// Connections of all clients of a process. Without a limit it keeps no table and costs a branch.
pub(crate) struct ClientLimit {
    table: Option<Arc<Counts>>,
    prefix_v4: u8,
    prefix_v6: u8,
}

/// Permission for one connection, or for one request of a client behind a proxy; released when it is dropped, on any
/// thread.
#[derive(Debug)]
pub struct Permit {
    taken: Option<(Arc<Counts>, IpNet)>,
}

/// Refusal of a connection: its client has as many open as it may have.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct LimitExceeded {
    /// The client as text: `192.0.2.7/32`, `2001:db8::/64`.
    pub(crate) key: String,
    /// Connections that it has open.
    pub(crate) count: usize,
}

#[derive(Debug)]
struct Counts {
    count_max: usize,
    /// Connections by client; no entry is 0.
    counts: Mutex<HashMap<IpNet, usize>>,
}

impl ClientLimit {
    /// `count_max`: connections of one client, `None` for no cap. The prefixes are the leading bits that
    /// tell clients apart, at most 32 and 128.
    pub(crate) fn new(count_max: Option<usize>, prefix_v4: u8, prefix_v6: u8) -> Self {
        let table = |count_max| {
            let counts = Mutex::default();
            Arc::new(Counts { count_max, counts })
        };
        Self {
            table: count_max.map(table),
            prefix_v4: prefix_v4.min(32),
            prefix_v6: prefix_v6.min(128),
        }
    }

    /// Whether there is a limit.
    pub(crate) fn is_on(&self) -> bool {
        self.table.is_some()
    }

    /// A permit for one more connection from `ip`. An IPv4-mapped address counts as the IPv4 one.
    pub(crate) fn acquire(&self, ip: IpAddr) -> Result<Permit, LimitExceeded> {
        let Some(table) = &self.table else {
            return Ok(Permit { taken: None });
        };
        let key = self.key(ip);
        table.acquire(key).map_err(|count| LimitExceeded {
            key: key.to_string(),
            count,
        })?;
        let taken = Some((Arc::clone(table), key));
        Ok(Permit { taken })
    }

    /// The client's network. Those of the two families never meet: `to_canonical` leaves no IPv4-mapped address.
    fn key(&self, ip: IpAddr) -> IpNet {
        let ip = ip.to_canonical();
        let prefix = match ip {
            IpAddr::V4(_) => self.prefix_v4,
            IpAddr::V6(_) => self.prefix_v6,
        };
        let network = IpNet::new(ip, prefix).expect("`new` has cut the prefixes to their families");
        network.trunc()
    }
}

impl Counts {
    /// Counts one more connection, or returns their number when the limit is reached.
    fn acquire(&self, key: IpNet) -> Result<(), usize> {
        let mut counts = lock(&self.counts);
        // Under one lock: two connections of a client that come at once must not both take its last place.
        let count = counts.get(&key).copied().unwrap_or(0);
        if count >= self.count_max {
            return Err(count);
        }
        counts.insert(key, count + 1);
        Ok(())
    }

    fn release(&self, key: IpNet) {
        let mut counts = lock(&self.counts);
        let Entry::Occupied(mut entry) = counts.entry(key) else {
            violated(format_args!(
                "a permit of a client comes back that was not given"
            ));
        };
        *entry.get_mut() -= 1;
        // An entry of 0 would stay forever: clients choose their addresses, and the table would grow with them.
        if *entry.get() == 0 {
            entry.remove();
        }
    }
}

impl Drop for Permit {
    fn drop(&mut self) {
        if let Some((table, key)) = self.taken.take() {
            table.release(key);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::thread;

    use super::*;

    fn ip(text: &str) -> IpAddr {
        text.parse().expect("the test's own address")
    }

    fn open(limit: &ClientLimit) -> Vec<usize> {
        let table = limit.table.as_ref().expect("there is a cap");
        lock(&table.counts).values().copied().collect()
    }

    /// Whether two addresses are one client, and how it is written.
    fn check(prefix: (u8, u8), one: &str, other: &str, same: bool, key: &str) {
        let limit = ClientLimit::new(Some(1), prefix.0, prefix.1);
        let _permit = limit.acquire(ip(one)).expect("it is the first");
        let exceeded = limit.acquire(ip(one)).expect_err("the cap is 1");
        assert_eq!(exceeded.key, key);
        assert_eq!(exceeded.count, 1);
        let found = limit.acquire(ip(other)).is_err();
        assert_eq!(found, same, "{one} and {other} of {prefix:?}");
    }

    #[test]
    fn a_client_is_an_ipv4_network() {
        let check = |prefix, one, other, same, key| check((prefix, 64), one, other, same, key);
        check(0, "1.2.3.4", "250.6.7.8", true, "0.0.0.0/0");
        check(1, "1.2.3.4", "127.255.0.1", true, "0.0.0.0/1");
        check(1, "1.2.3.4", "128.0.0.1", false, "0.0.0.0/1");
        check(24, "192.0.2.7", "192.0.2.200", true, "192.0.2.0/24");
        check(24, "192.0.2.7", "192.0.3.7", false, "192.0.2.0/24");
        check(31, "192.0.2.6", "192.0.2.7", true, "192.0.2.6/31");
        check(31, "192.0.2.6", "192.0.2.5", false, "192.0.2.6/31");
        check(32, "192.0.2.7", "192.0.2.7", true, "192.0.2.7/32");
        check(32, "192.0.2.7", "192.0.2.6", false, "192.0.2.7/32");
        check(32, "192.0.2.7", "::ffff:192.0.2.7", true, "192.0.2.7/32");
        check(
            32,
            "::ffff:192.0.2.7",
            "::ffff:192.0.2.8",
            false,
            "192.0.2.7/32",
        );
        check(255, "192.0.2.7", "192.0.2.6", false, "192.0.2.7/32");
    }

    #[test]
    fn a_client_is_an_ipv6_network() {
        let check = |prefix, one, other, same, key| check((32, prefix), one, other, same, key);
        check(0, "2001:db8::1", "fe80::1", true, "::/0");
        check(1, "2001:db8::1", "7fff::1", true, "::/1");
        check(1, "2001:db8::1", "8000::1", false, "::/1");
        check(31, "2001:db8::1", "2001:db9::1", true, "2001:db8::/31");
        check(32, "2001:db8::1", "2001:db8:9::", true, "2001:db8::/32");
        check(32, "2001:db8::1", "2001:db9::1", false, "2001:db8::/32");
        check(
            48,
            "2001:db8:5::1",
            "2001:db8:5:6::",
            true,
            "2001:db8:5::/48",
        );
        check(
            48,
            "2001:db8:5::1",
            "2001:db8:6::1",
            false,
            "2001:db8:5::/48",
        );
        check(
            64,
            "2001:db8::1",
            "2001:db8::9:9:9:9",
            true,
            "2001:db8::/64",
        );
        check(64, "2001:db8::1", "2001:db8:0:1::1", false, "2001:db8::/64");
        check(127, "2001:db8::6", "2001:db8::7", true, "2001:db8::6/127");
        check(127, "2001:db8::6", "2001:db8::5", false, "2001:db8::6/127");
        check(128, "2001:db8::6", "2001:db8::6", true, "2001:db8::6/128");
        check(128, "2001:db8::6", "2001:db8::7", false, "2001:db8::6/128");
        check(255, "2001:db8::6", "2001:db8::7", false, "2001:db8::6/128");
    }

    #[test]
    fn families_are_apart_whatever_their_prefixes() {
        for prefix_v6 in 0..=128 {
            for v6 in ["::", "::1", "::fffe:0:0", "::ffff:0:0:0", "ffff::"] {
                let limit = ClientLimit::new(Some(1), 0, prefix_v6);
                let _permit = limit.acquire(ip("1.2.3.4")).expect("it is the first");
                assert!(limit.acquire(ip(v6)).is_ok(), "{v6} of {prefix_v6}");
            }
        }
    }

    #[test]
    fn a_place_is_free_again_when_it_is_left() {
        let limit = ClientLimit::new(Some(2), 32, 64);
        let acquire = || limit.acquire(ip("192.0.2.7"));
        let one = acquire().expect("there are two");
        let other = acquire().expect("there are two");
        assert_eq!(acquire().expect_err("both are taken").count, 2);
        assert_eq!(open(&limit), [2]);
        drop(one);
        let third = acquire().expect("one is left");
        assert!(acquire().is_err());
        drop((other, third));
        assert!(open(&limit).is_empty());
    }

    #[test]
    fn a_refused_client_leaves_nothing_behind() {
        let limit = ClientLimit::new(Some(0), 32, 64);
        assert_eq!(limit.acquire(ip("::1")).expect_err("none may").count, 0);
        assert!(open(&limit).is_empty());
    }

    #[test]
    fn without_a_cap_nothing_is_counted() {
        let limit = ClientLimit::new(None, 32, 64);
        let acquire = |_| limit.acquire(ip("192.0.2.7")).expect("there is no cap");
        let permits: Vec<Permit> = (0..1_000).map(acquire).collect();
        assert!(permits.iter().all(|permit| permit.taken.is_none()));
    }

    #[test]
    fn threads_come_and_go_and_the_table_is_empty() {
        let limit = &ClientLimit::new(Some(5), 24, 64);
        let come_and_go = |thread: u8| {
            for turn in 0..2_000u16 {
                let ip = IpAddr::from([10, 0, turn as u8 % 4, thread]);
                let _permits: Vec<_> = (0..4).map(|_| limit.acquire(ip)).collect();
                let counts = open(limit);
                assert!(counts.len() <= 4 && counts.iter().all(|&count| (1..=5).contains(&count)));
            }
        };
        thread::scope(|scope| {
            for thread in 0..8 {
                scope.spawn(move || come_and_go(thread));
            }
        });
        assert!(open(limit).is_empty());
    }

    #[test]
    #[should_panic(expected = "a permit of a client comes back that was not given")]
    fn a_permit_comes_back_once() {
        let limit = ClientLimit::new(Some(1), 32, 64);
        let permit = limit.acquire(ip("192.0.2.7")).expect("it is the first");
        let (table, key) = permit.taken.clone().expect("there is a limit");
        drop(permit);
        table.release(key);
    }
}
