//! Setters of request ids and of clients that are believed: the header that names ids, networks.
//!
//! Each takes one text and puts its meaning into the draft, or gives a hint. Pure.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use super::super::super::builder::Draft;
use super::super::super::reading::SettingText;
use super::super::super::value;
use super::{Set, is_token};

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

pub(in super::super) fn request_id_header(draft: &mut Draft, text: &str) -> Set {
    if text == "off" {
        draft.config.request_ids.header = None;
        return Ok(());
    }
    if let Some((name, _)) = text.split_once(':') {
        return Err(Some(format!("the name alone: `{}`", name.trim())));
    }
    if !is_token(text) {
        return Err(None);
    }
    let name = text.to_ascii_lowercase();
    if FRAMING.contains(&name.as_str()) {
        return Err(Some(format!(
            "`{name}` tells how a message is sent: use one of its own, as `X-Request-Id`"
        )));
    }
    if TAKEN.contains(&name.as_str()) || name.starts_with("content-") {
        return Err(Some(format!(
            "`{name}` means something else: use one of its own, as `X-Request-Id`"
        )));
    }
    draft.config.request_ids.header = Some(name);
    Ok(())
}

pub(in super::super) fn add_trust(draft: &mut Draft, text: &SettingText) -> Set {
    draft
        .config
        .request_ids
        .trust
        .push(client_network(&text.text)?);
    Ok(())
}

pub(in super::super) fn add_request_start_from(draft: &mut Draft, text: &SettingText) -> Set {
    draft
        .config
        .request_start_from
        .push(client_network(&text.text)?);
    Ok(())
}

/// `ADDRESS` or `ADDRESS/BITS`, without bits behind the prefix.
pub(super) fn client_network(written: &str) -> Result<(IpAddr, u8), Option<String>> {
    let (address, bits) = match written.split_once('/') {
        Some((address, bits)) => (address, Some(bits)),
        None => (written, None),
    };
    let ip: IpAddr = match address.parse() {
        Ok(ip) => ip,
        Err(_) => return Err(no_address(address)),
    };
    let bits_max = if ip.is_ipv4() { 32 } else { 128 };
    let bits = match bits {
        None => bits_max,
        Some(bits) => {
            let bits = value::count(bits).filter(|bits| *bits <= u64::from(bits_max));
            let hint = || Some(format!("a prefix length from 0 to {bits_max}"));
            bits.ok_or_else(hint)? as u8
        }
    };
    let network = network(ip, bits);
    if network != ip {
        return Err(Some(format!(
            "the network is `{network}/{bits}`, this address alone `{ip}`"
        )));
    }
    Ok(unmapped(ip, bits))
}

fn no_address(text: &str) -> Option<String> {
    match text {
        "*" | "all" => Some("everybody is `0.0.0.0/0` and `::/0`".to_owned()),
        "localhost" => Some("write `127.0.0.1` and `::1`".to_owned()),
        _ if text.starts_with("unix") => {
            Some("clients on unix sockets are trusted: leave it out".to_owned())
        }
        _ if text.starts_with('[') => Some("without brackets and without a port".to_owned()),
        _ => None,
    }
}

/// The address with all bits behind its prefix 0.
fn network(ip: IpAddr, bits: u8) -> IpAddr {
    match ip {
        IpAddr::V4(ip) => {
            let mask = u32::MAX.checked_shl(32 - u32::from(bits)).unwrap_or(0);
            IpAddr::V4(Ipv4Addr::from(u32::from(ip) & mask))
        }
        IpAddr::V6(ip) => {
            let mask = u128::MAX.checked_shl(128 - u32::from(bits)).unwrap_or(0);
            IpAddr::V6(Ipv6Addr::from(u128::from(ip) & mask))
        }
    }
}

/// Peers count as IPv4 however their socket writes them.
fn unmapped(ip: IpAddr, bits: u8) -> (IpAddr, u8) {
    match (ip.to_canonical(), bits.checked_sub(MAPPED_BITS)) {
        (IpAddr::V4(v4), Some(rest)) if ip.is_ipv6() => (v4.into(), rest),
        _ => (ip, bits),
    }
}
