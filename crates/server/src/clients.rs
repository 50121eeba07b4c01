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
