//! Networks: sets of client addresses, as prefixes.
//!
//! Takes addresses with the number of their leading bits, says whether an address has those bits. An IPv4
//! address counts in its IPv4-mapped form (RFC 4291 section 2.5.5.2) too, however its socket writes it. Pure.

use std::net::{IpAddr, Ipv6Addr};

use ipnet::Ipv6Net;

/// Addresses with any of some prefixes, IPv4 ones in their IPv4-mapped form.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Networks(Vec<Ipv6Net>);

impl Networks {
    /// Each an address and how many of its leading bits count; more than it has are all.
    pub(crate) fn new(networks: &[(IpAddr, u8)]) -> Self {
        Self(
            networks
                .iter()
                .map(|(ip, bits)| network(*ip, *bits))
                .collect(),
        )
    }

    /// Whether there is no network at all: then no address is in one.
    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Whether the address is in one of them.
    pub(crate) fn has(&self, ip: IpAddr) -> bool {
        let ip = mapped(ip);
        self.0.iter().any(|network| network.contains(&ip))
    }

    /// Leading bits of the widest one, in IPv6's count; 0 without any.
    pub(crate) fn bits_min(&self) -> u32 {
        let bits = self.0.iter().map(|network| network.prefix_len());
        bits.min().unwrap_or(0).into()
    }
}

fn network(ip: IpAddr, bits: u8) -> Ipv6Net {
    let bits = match ip {
        IpAddr::V4(_) => 96 + bits.min(32),
        IpAddr::V6(_) => bits.min(128),
    };
    Ipv6Net::new(mapped(ip), bits).expect("no more than 128 bits are left")
}

fn mapped(ip: IpAddr) -> Ipv6Addr {
    match ip {
        IpAddr::V4(ip) => ip.to_ipv6_mapped(),
        IpAddr::V6(ip) => ip,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn networks(texts: &[(&str, u8)]) -> Networks {
        let parsed: Vec<(IpAddr, u8)> = texts
            .iter()
            .map(|(ip, bits)| (ip.parse().unwrap(), *bits))
            .collect();
        Networks::new(&parsed)
    }

    #[test]
    fn has_the_addresses_with_a_prefix_of_its_own() {
        let check = |texts: &[(&str, u8)], peer: &str, expect: bool| {
            let found = networks(texts).has(peer.parse().unwrap());
            assert_eq!(found, expect, "{texts:?} {peer}");
        };
        check(&[], "127.0.0.1", false);
        check(&[("127.0.0.1", 32)], "127.0.0.1", true);
        check(&[("127.0.0.1", 32)], "127.0.0.2", false);
        check(&[("10.1.2.3", 8)], "10.200.0.1", true);
        check(&[("10.1.2.3", 8)], "11.0.0.1", false);
        check(&[("10.0.0.0", 8)], "::ffff:10.9.9.9", true);
        check(&[("::ffff:10.0.0.0", 104)], "10.9.9.9", true);
        check(&[("0.0.0.0", 0)], "203.0.113.9", true);
        check(&[("0.0.0.0", 0)], "2001:db8::1", false);
        check(&[("2001:db8::", 32), ("::1", 128)], "::1", true);
        check(&[("2001:db8::", 32), ("::1", 128)], "2001:db9::1", false);
        check(&[("::", 0)], "2001:db8::1", true);
    }

    #[test]
    fn knows_its_widest_prefix() {
        assert_eq!(networks(&[]).bits_min(), 0);
        assert_eq!(networks(&[("10.0.0.0", 8)]).bits_min(), 104);
        assert_eq!(networks(&[("10.0.0.0", 8), ("fd00::", 8)]).bits_min(), 8);
    }
}
