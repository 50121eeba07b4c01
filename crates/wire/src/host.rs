//! Hosts with an optional port, as they stand in Host and in an absolute target.
//!
//! Takes bytes, gives yes or no. Which host this server answers for is the router's question.

use crate::bytes::is_host_name;

/// Whether `bytes` is `uri-host [ ":" port ]`, RFC 9110 section 7.2 and RFC 3986 section 3.2.2. Without
/// user information, because of RFC 9110 section 4.2.4; a port has at most 16 bits; an empty host is not
/// valid here.
pub(crate) fn is_host(bytes: &[u8]) -> bool {
    if let Some(rest) = bytes.strip_prefix(b"[") {
        let Some(close) = memchr::memchr(b']', rest) else {
            return false;
        };
        let (literal, after) = (&rest[..close], &rest[close + 1..]);
        return (is_ipv6(literal) || is_ip_future(literal))
            && (after.is_empty() || is_colon_and_port(after));
    }
    let name_end = memchr::memchr(b':', bytes).unwrap_or(bytes.len());
    let (name, after) = bytes.split_at(name_end);
    is_name(name) && (after.is_empty() || is_colon_and_port(after))
}

/// `reg-name`, which includes IPv4 addresses. RFC 1035 section 3.1: no label of it is empty but the root's,
/// behind the last dot, and a name consists of more than that one.
fn is_name(name: &[u8]) -> bool {
    let mut rest = name;
    let mut label_is_empty = true;
    while let [first, tail @ ..] = rest {
        rest = match (first, tail) {
            (b'.', _) if label_is_empty => return false,
            (b, tail) if is_host_name(*b) => tail,
            (b'%', [a, b, tail @ ..]) if a.is_ascii_hexdigit() && b.is_ascii_hexdigit() => tail,
            _ => return false,
        };
        label_is_empty = *first == b'.';
    }
    !name.is_empty()
}

/// The standard library's reader is exactly the grammar of RFC 3986 section 3.2.2 without zones.
fn is_ipv6(literal: &[u8]) -> bool {
    std::str::from_utf8(literal).is_ok_and(|text| text.parse::<std::net::Ipv6Addr>().is_ok())
}

/// `IPvFuture`, RFC 3986 section 3.2.2.
fn is_ip_future(literal: &[u8]) -> bool {
    let [b'v' | b'V', rest @ ..] = literal else {
        return false;
    };
    let mut halves = rest.splitn(2, |&b| b == b'.');
    let version = halves.next().unwrap_or_default();
    let address = halves.next().unwrap_or_default();
    !version.is_empty()
        && version.iter().all(u8::is_ascii_hexdigit)
        && !address.is_empty()
        && address.iter().all(|&b| b == b':' || is_host_name(b))
}

/// The grammar allows an empty port and any number of digits; more than 16 bits is never a port.
fn is_colon_and_port(bytes: &[u8]) -> bool {
    let [b':', digits @ ..] = bytes else {
        return false;
    };
    let mut port = 0u32;
    digits.iter().all(|b| {
        port = port
            .saturating_mul(10)
            .saturating_add(u32::from(b.wrapping_sub(b'0')));
        b.is_ascii_digit() && port <= 65_535
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn accepts_hosts_and_refuses_what_only_looks_like_one() {
        for host in [
            "a",
            "a.example",
            "a.example:8080",
            "a:",
            "127.0.0.1:80",
            "[::1]",
            "[::1]:443",
            "a_b",
            "xn--bcher-kva.example",
            "a%2db",
            "[::ffff:1.2.3.4]",
            "a:65535",
            "a:00080",
            "[::1]:",
            "a.",
            "a.example.:80",
            "[v1.a:b]",
            "[VfF.~!$&'()*+,;=-._:]:443",
        ] {
            assert!(is_host(host.as_bytes()), "{host}");
        }
        for host in [
            "",
            ":80",
            "a b",
            "a/b",
            "a@b",
            "u:p@b",
            "a:b",
            "a:80:80",
            "[::1",
            "[::1]x",
            "[]",
            "[::1%25eth0]",
            "a:65536",
            "a:99999999999999999999",
            "a%2",
            "a%zz",
            "a\\b",
            "a#b",
            "a?b",
            "\u{e9}",
            "a\"",
            "a<",
            "[a]",
            "a\t",
            "a]",
            ".",
            ".:80",
            "..",
            ".a",
            "a..b",
            "a..",
            "[v1.]",
            "[v.a]",
            "[v1a]",
            "[vg.a]",
            "[1.a]",
            "[v1.a/b]",
            "[v1.a%20]",
            "[v1.a]b",
            "a:-1",
            "a:+1",
        ] {
            assert!(!is_host(host.as_bytes()), "{host}");
        }
    }
}
