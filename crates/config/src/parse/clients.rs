//! Request ids and clients that are believed: the header that names ids, networks.

use std::net::IpAddr;

use ipnet::IpNet;

use super::{Hint, hinted, is_token, value};

/// Headers that are about one connection or about where a message ends (RFC 9110 section 7.6.1, RFC 9112
/// sections 6 and 9): an id in one of them would break the message.
const FRAMING: [&str; 11] = [
    "connection",
    "content-length",
    "expect",
    "host",
    "keep-alive",
    "proxy-connection",
    "te",
    "trailer",
    "transfer-encoding",
    "upgrade",
    "http2-settings",
];
/// Headers that mean something else to everybody, or hold what must not be in a log.
const TAKEN: [&str; 14] = [
    "accept",
    "authorization",
    "cache-control",
    "cookie",
    "date",
    "etag",
    "location",
    "proxy-authenticate",
    "proxy-authorization",
    "range",
    "server",
    "set-cookie",
    "vary",
    "www-authenticate",
];
/// An IPv4 address within IPv6 has these bits in front (RFC 4291 section 2.5.5.2).
const MAPPED_BITS: u8 = 96;

/// The header that ids are taken from, in lower case.
pub(crate) fn request_id_header(text: &str) -> Result<Option<String>, Hint> {
    if text == "off" {
        return Ok(None);
    }
    if let Some((name, _)) = text.split_once(':') {
        return hinted(format!("the name alone: `{}`", name.trim()));
    }
    if !is_token(text) {
        return Err(None);
    }
    let name = text.to_ascii_lowercase();
    let why = match name.as_str() {
        framing if FRAMING.contains(&framing) => "tells how a message is sent",
        taken if TAKEN.contains(&taken) || taken.starts_with("content-") => "means something else",
        _ => return Ok(Some(name)),
    };
    hinted(format!(
        "`{name}` {why}: use one of its own, as `X-Request-Id`"
    ))
}

/// `ADDRESS` or `ADDRESS/BITS`, without bits behind the prefix.
pub(crate) fn client_network(written: &str) -> Result<(IpAddr, u8), Hint> {
    let (address, bits) = match written.split_once('/') {
        Some((address, bits)) => (address, Some(bits)),
        None => (written, None),
    };
    let ip: IpAddr = address.parse().map_err(|_| no_address(address))?;
    let bits_max = if ip.is_ipv4() { 32 } else { 128 };
    let bits = match bits {
        None => bits_max,
        Some(bits) => {
            let bits = value::count(bits).filter(|bits| *bits <= u64::from(bits_max));
            let hint = || Some(format!("a prefix length from 0 to {bits_max}"));
            bits.ok_or_else(hint)? as u8
        }
    };
    let network = IpNet::new_assert(ip, bits).network();
    if network != ip {
        return hinted(format!(
            "the network is `{network}/{bits}`, this address alone `{ip}`"
        ));
    }
    Ok(unmapped(ip, bits))
}

fn no_address(text: &str) -> Hint {
    let hint = match text {
        "*" | "all" => "everybody is `0.0.0.0/0` and `::/0`",
        "localhost" => "write `127.0.0.1` and `::1`",
        _ if text.starts_with("unix") => "clients on unix sockets are trusted: leave it out",
        _ if text.starts_with('[') => "without brackets and without a port",
        _ => return None,
    };
    Some(hint.to_owned())
}

/// Peers count as IPv4 however their socket writes them.
fn unmapped(ip: IpAddr, bits: u8) -> (IpAddr, u8) {
    match (ip.to_canonical(), bits.checked_sub(MAPPED_BITS)) {
        (IpAddr::V4(v4), Some(rest)) if ip.is_ipv6() => (v4.into(), rest),
        _ => (ip, bits),
    }
}
