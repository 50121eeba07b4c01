//! Which addresses a load may be sent to without being told that they are one's own.
//!
//! Takes an address, gives a verdict. Pure.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// Networks that are nobody else's: loopback, private and link-local ones, those shared behind a provider's
/// translation, and those set aside for documentation and tests.
const V4: [(Ipv4Addr, u32); 10] = [
    (Ipv4Addr::new(127, 0, 0, 0), 8),
    // RFC 1918
    (Ipv4Addr::new(10, 0, 0, 0), 8),
    (Ipv4Addr::new(172, 16, 0, 0), 12),
    (Ipv4Addr::new(192, 168, 0, 0), 16),
    // RFC 3927
    (Ipv4Addr::new(169, 254, 0, 0), 16),
    // RFC 6598
    (Ipv4Addr::new(100, 64, 0, 0), 10),
    // RFC 5737
    (Ipv4Addr::new(192, 0, 2, 0), 24),
    (Ipv4Addr::new(198, 51, 100, 0), 24),
    (Ipv4Addr::new(203, 0, 113, 0), 24),
    // RFC 2544
    (Ipv4Addr::new(198, 18, 0, 0), 15),
];

/// The same of IPv6: loopback, RFC 4291 link-local, RFC 4193, RFC 3849.
const V6: [(Ipv6Addr, u32); 4] = [
    (Ipv6Addr::LOCALHOST, 128),
    (Ipv6Addr::new(0xfe80, 0, 0, 0, 0, 0, 0, 0), 10),
    (Ipv6Addr::new(0xfc00, 0, 0, 0, 0, 0, 0, 0), 7),
    (Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, 0), 32),
];

/// Whether it is loopback, private, or set aside for tests.
pub(super) fn is_safe(address: IpAddr) -> bool {
    // An IPv4 address in the clothes of IPv6 leads where the IPv4 address does.
    match address.to_canonical() {
        IpAddr::V4(address) => V4
            .iter()
            .any(|(net, bits)| (address.to_bits() ^ net.to_bits()) >> (32 - bits) == 0),
        IpAddr::V6(address) => V6
            .iter()
            .any(|(net, bits)| (address.to_bits() ^ net.to_bits()) >> (128 - bits) == 0),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(addresses: &[&str], expect: bool) {
        for text in addresses {
            assert_eq!(is_safe(text.parse().unwrap()), expect, "{text}");
        }
    }

    #[test]
    fn allows_every_range_to_its_ends() {
        check(
            &[
                "127.0.0.1",
                "127.255.255.255",
                "10.0.0.0",
                "10.255.255.255",
                "172.16.0.0",
                "172.31.255.255",
                "192.168.0.0",
                "192.168.255.255",
                "169.254.0.1",
                "169.254.255.255",
                "100.64.0.0",
                "100.127.255.255",
                "192.0.2.0",
                "192.0.2.255",
                "198.51.100.0",
                "198.51.100.255",
                "203.0.113.0",
                "203.0.113.255",
                "198.18.0.0",
                "198.19.255.255",
                "::1",
                "fe80::1",
                "febf:ffff::1",
                "fc00::1",
                "fdff:ffff::1",
                "2001:db8::1",
                "2001:db8:ffff::1",
                "::ffff:127.0.0.1",
                "::ffff:192.168.1.1",
            ],
            true,
        );
    }

    #[test]
    fn refuses_what_lies_beside_every_range() {
        check(
            &[
                "126.255.255.255",
                "128.0.0.0",
                "9.255.255.255",
                "11.0.0.0",
                "172.15.255.255",
                "172.32.0.0",
                "192.167.255.255",
                "192.169.0.0",
                "169.253.255.255",
                "169.255.0.0",
                "100.63.255.255",
                "100.128.0.0",
                "192.0.1.255",
                "192.0.3.0",
                "198.51.99.255",
                "198.51.101.0",
                "203.0.112.255",
                "203.0.114.0",
                "198.17.255.255",
                "198.20.0.0",
                "::",
                "::2",
                "fe7f:ffff::1",
                "fec0::1",
                "fbff:ffff::1",
                "fe00::1",
                "2001:db7:ffff::1",
                "2001:db9::1",
                "8.8.8.8",
                "2606:4700::1111",
                "::ffff:8.8.8.8",
                "::127.0.0.1",
                "64:ff9b::7f00:1",
                "0.0.0.0",
                "255.255.255.255",
            ],
            false,
        );
    }
}
