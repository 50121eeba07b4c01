//! Clients: the header that names their ids, their networks, and what one of them, one route or
//! one connection may take from the others.

use std::net::IpAddr;

use ipnet::IpNet;
use serde::Deserialize;

use super::headers::is_passed_on;
use super::value::{self, Unit};
use super::{Hint, hinted, is_token, or_off, url_of};
use crate::options_table::NO_BOUND;
use crate::tables::{Structure, keys};
use crate::typed::Rate;

/// What a rate is.
pub(crate) const RATE: &str = "bytes a second (as `500K`, `10M`), or `off`";

/// Headers that are about one connection or about where a message ends (RFC 9110 section 7.6.1, RFC 9112
/// sections 6 and 9): an id in one of them would break the message.
const FRAMING: &str = "connection content-length expect host keep-alive proxy-connection te trailer \
    transfer-encoding upgrade http2-settings";
/// Headers that mean something else to everybody, or hold what must not be in a log.
const TAKEN: &str = "accept authorization cache-control cookie date etag location proxy-authenticate \
    proxy-authorization range server set-cookie vary www-authenticate";
/// An IPv4 address within IPv6 has these bits in front (RFC 4291 section 2.5.5.2).
const MAPPED_BITS: u8 = 96;

keys! {
    route_url: one(url_of) -> String, "a URL path (as `/static`), `/` for the application";
    route_rate: one(rate) -> Rate, RATE;
}

/// `[[rate_route]]`
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct RouteRateTable {
    /// As a mount's; empty for the application as well.
    #[serde(deserialize_with = "route_url")]
    pub url: String,
    #[serde(deserialize_with = "route_rate")]
    pub rate: Rate,
}

impl Structure for RouteRateTable {}

/// A number of connections; `None`: no bound.
pub(crate) fn count_or_off(text: &str) -> Result<Option<usize>, Hint> {
    let count = or_off(text, Unit::Count, 1..=10_000_000, NO_BOUND)?;
    Ok(count.map(|count| count as usize))
}

/// A bandwidth limit.
pub(crate) fn rate(text: &str) -> Result<Rate, Hint> {
    match (text.trim(), value::per_second(text)) {
        ("off", _) => Ok(Rate::Unlimited),
        (_, Some(0)) | ("unlimited" | "none" | "no" | "false" | "-1", None) => {
            hinted("write `off` for no limit")
        }
        (_, Some(bytes)) => Ok(Rate::BytesPerSec(bytes)),
        _ => Err(value::rate_hint(text)),
    }
}

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
    // Names of fields have no case (RFC 9110 section 5.1); requests are compared in lower case.
    let name = text.to_ascii_lowercase();
    let is_one_of = |names: &str| names.split(' ').any(|one| one == name);
    let why = if is_one_of(FRAMING) {
        "tells how a message is sent"
    } else if is_one_of(TAKEN) || name.starts_with("content-") {
        "means something else"
    } else {
        is_passed_on(text)?;
        return Ok(Some(name));
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
    assert!(bits <= bits_max, "a prefix of {bits} bits for `{ip}`");
    // Bits behind the prefix are a slip: either the network was meant or the one address, and both are said.
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
        "all" => "everybody is `*`",
        "localhost" => "write `127.0.0.1` and `::1`",
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
