//! Networks: sets of client addresses, as prefixes.
//!
//! Takes addresses with the number of their leading bits, says whether an address has those bits. An IPv4
//! address counts in its IPv4-mapped form (RFC 4291 section 2.5.5.2) too, however its socket writes it. Pure.

use std::net::{IpAddr, Ipv6Addr};

/// Addresses with any of some prefixes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Networks(Vec<Network>);

/// Addresses with the same leading bits, an IPv4 one in its IPv4-mapped form.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Network {
    bits: u128,
    mask: u128,
}

impl Networks {
    /// Each an address and how many of its leading bits count; more than it has are all.
    pub(crate) fn new(networks: &[(IpAddr, u8)]) -> Self {
        let networks = networks.iter();
        Self(
            networks
                .map(|(ip, prefix)| Network::new(*ip, *prefix))
                .collect(),
        )
    }

    /// Whether there is no network at all: then no address is in one.
    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Whether the address is in one of them.
    pub(crate) fn has(&self, ip: IpAddr) -> bool {
        self.0.iter().any(|network| network.has(ip))
    }

    /// Leading bits of the widest one, in IPv6's count; 0 without any.
    pub(crate) fn bits_min(&self) -> u32 {
        let bits = self.0.iter().map(|network| network.mask.leading_ones());
        bits.min().unwrap_or(0)
    }
}

impl Network {
    fn new(ip: IpAddr, prefix: u8) -> Self {
        let prefix = match ip {
            IpAddr::V4(_) => 96 + u32::from(prefix.min(32)),
            IpAddr::V6(_) => u32::from(prefix.min(128)),
        };
        let mask = u128::MAX.checked_shl(128 - prefix).unwrap_or(0);
        let bits = bits(ip) & mask;
        Self { bits, mask }
    }

    fn has(&self, ip: IpAddr) -> bool {
        bits(ip) & self.mask == self.bits
    }
}

fn bits(ip: IpAddr) -> u128 {
    let mapped: Ipv6Addr = match ip {
        IpAddr::V4(ip) => ip.to_ipv6_mapped(),
        IpAddr::V6(ip) => ip,
    };
    mapped.to_bits()
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
