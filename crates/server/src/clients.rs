//! How many connections each client has open: the cap of `client_connections_max`.
//!
//! Takes addresses of accepted connections, gives a place for each, or says that the client has had
//! its share. A client is a network prefix, because whoever has one IPv6 address has 2^64 of them. It
//! must not know sockets; connections on unix sockets have no address and are not counted.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::sync::{Arc, Mutex};

use crate::sync::lock;

/// The clients of a process. Without a cap it keeps no table and costs a branch.
pub(crate) struct Clients {
    table: Option<Arc<Table>>,
    prefix_v4: u8,
    prefix_v6: u8,
}

/// A connection's place; left when it is dropped, on whichever thread.
#[derive(Debug)]
pub(crate) struct Place {
    taken: Option<(Arc<Table>, Key)>,
}

/// A client that has as many connections open as it may.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Crowded {
    /// The client as text: `192.0.2.7/32`, `2001:db8::/64`.
    pub(crate) key: String,
    /// Connections that it has open.
    pub(crate) count: usize,
}

#[derive(Debug)]
struct Table {
    count_max: usize,
    /// Connections of each client; only clients that have one.
    counts: Mutex<HashMap<Key, usize>>,
}

/// A client's network, an IPv4 one in its IPv4-mapped form (RFC 4291 section 2.5.5.2), whose space no
/// IPv6 network of a client reaches into.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
struct Key(Ipv6Addr);

impl Clients {
    /// `count_max`: connections of one client, `None` for no cap. The prefixes are the leading bits that
    /// tell clients apart, at most 32 and 128.
    pub(crate) fn new(count_max: Option<usize>, prefix_v4: u8, prefix_v6: u8) -> Self {
        let table = |count_max| {
            let counts = Mutex::default();
            Arc::new(Table { count_max, counts })
        };
        Self {
            table: count_max.map(table),
            prefix_v4: prefix_v4.min(32),
            prefix_v6: prefix_v6.min(128),
        }
    }

    /// A place for one more connection from `ip`. An IPv4-mapped address is the IPv4 one.
    pub(crate) fn enter(&self, ip: IpAddr) -> Result<Place, Crowded> {
        let Some(table) = &self.table else {
            return Ok(Place { taken: None });
        };
        let key = self.key(ip);
        table.enter(key).map_err(|count| Crowded {
            key: self.text(key),
            count,
        })?;
        let taken = Some((Arc::clone(table), key));
        Ok(Place { taken })
    }

    fn key(&self, ip: IpAddr) -> Key {
        match ip.to_canonical() {
            IpAddr::V4(ip) => {
                let mask = u32::MAX.checked_shl(32 - u32::from(self.prefix_v4));
                let network = Ipv4Addr::from_bits(ip.to_bits() & mask.unwrap_or(0));
                Key(network.to_ipv6_mapped())
            }
            IpAddr::V6(ip) => {
                let mask = u128::MAX.checked_shl(128 - u32::from(self.prefix_v6));
                Key(Ipv6Addr::from_bits(ip.to_bits() & mask.unwrap_or(0)))
            }
        }
    }

    fn text(&self, Key(network): Key) -> String {
        match network.to_ipv4_mapped() {
            Some(network) => format!("{network}/{}", self.prefix_v4),
            None => format!("{network}/{}", self.prefix_v6),
        }
    }
}

impl Table {
    /// Counts one more connection, or gives how many there are when that is the most.
    fn enter(&self, key: Key) -> Result<(), usize> {
        let mut counts = lock(&self.counts);
        let count = counts.get(&key).copied().unwrap_or(0);
        if count >= self.count_max {
            return Err(count);
        }
        counts.insert(key, count + 1);
        Ok(())
    }

    fn leave(&self, key: Key) {
        let mut counts = lock(&self.counts);
        if let Entry::Occupied(mut entry) = counts.entry(key) {
            *entry.get_mut() -= 1;
            if *entry.get() == 0 {
                entry.remove();
            }
        }
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        if let Some((table, key)) = self.taken.take() {
            table.leave(key);
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

    fn open(clients: &Clients) -> Vec<usize> {
        let table = clients.table.as_ref().expect("there is a cap");
        lock(&table.counts).values().copied().collect()
    }

    /// Whether two addresses are one client, and how it is written.
    fn check(prefix: (u8, u8), one: &str, other: &str, same: bool, key: &str) {
        let clients = Clients::new(Some(1), prefix.0, prefix.1);
        let _place = clients.enter(ip(one)).expect("it is the first");
        let crowded = clients.enter(ip(one)).expect_err("the cap is 1");
        assert_eq!(crowded.key, key);
        assert_eq!(crowded.count, 1);
        let found = clients.enter(ip(other)).is_err();
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
    fn an_ipv4_mapped_address_is_the_ipv4_one() {
        let same = (32, 64);
        check(same, "192.0.2.7", "::ffff:192.0.2.7", true, "192.0.2.7/32");
        check(same, "::ffff:192.0.2.7", "192.0.2.7", true, "192.0.2.7/32");
        check(
            same,
            "::ffff:192.0.2.7",
            "::ffff:192.0.2.8",
            false,
            "192.0.2.7/32",
        );
    }

    #[test]
    fn families_are_apart_whatever_their_prefixes() {
        for prefix_v6 in 0..=128 {
            for v6 in ["::", "::1", "::fffe:0:0", "::ffff:0:0:0", "ffff::"] {
                let clients = Clients::new(Some(1), 0, prefix_v6);
                let _place = clients.enter(ip("1.2.3.4")).expect("it is the first");
                assert!(clients.enter(ip(v6)).is_ok(), "{v6} of {prefix_v6}");
            }
        }
    }

    #[test]
    fn a_place_is_free_again_when_it_is_left() {
        let clients = Clients::new(Some(2), 32, 64);
        let enter = || clients.enter(ip("192.0.2.7"));
        let one = enter().expect("there are two");
        let other = enter().expect("there are two");
        assert_eq!(enter().expect_err("both are taken").count, 2);
        assert_eq!(open(&clients), [2]);
        drop(one);
        let third = enter().expect("one is left");
        assert!(enter().is_err());
        drop((other, third));
        assert!(open(&clients).is_empty());
    }

    #[test]
    fn a_refused_client_leaves_nothing_behind() {
        let clients = Clients::new(Some(0), 32, 64);
        assert_eq!(clients.enter(ip("::1")).expect_err("none may").count, 0);
        assert!(open(&clients).is_empty());
    }

    #[test]
    fn without_a_cap_nothing_is_counted() {
        let clients = Clients::new(None, 32, 64);
        let enter = |_| clients.enter(ip("192.0.2.7")).expect("there is no cap");
        let places: Vec<Place> = (0..1_000).map(enter).collect();
        assert!(places.iter().all(|place| place.taken.is_none()));
    }

    #[test]
    fn threads_come_and_go_and_the_table_is_empty() {
        let clients = &Clients::new(Some(5), 24, 64);
        let come_and_go = |thread: u8| {
            for turn in 0..2_000u16 {
                let ip = IpAddr::from([10, 0, turn as u8 % 4, thread]);
                let _places: Vec<_> = (0..4).map(|_| clients.enter(ip)).collect();
                let counts = open(clients);
                assert!(counts.len() <= 4 && counts.iter().all(|&count| (1..=5).contains(&count)));
            }
        };
        thread::scope(|scope| {
            for thread in 0..8 {
                scope.spawn(move || come_and_go(thread));
            }
        });
        assert!(open(clients).is_empty());
    }
}
