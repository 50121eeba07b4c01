//! What trusted proxies say of the client of a request: `X-Forwarded-*`, and `Forwarded` of RFC 7239.
//!
//! Takes the lines of a head that count and a test for addresses of trusted proxies; gives the client's address, the
//! scheme, host, port and path prefix that it used. Each proxy adds its entry on the right, and a client may have sent
//! anything on the left. So entries count from the right: as long as an entry names a trusted proxy, the entry before
//! it was written by that proxy. The first that names another address is the client; entries left of it are hearsay.
//!
//! Must not be asked where the peer of the connection is no trusted proxy.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use crate::HeadView;
use crate::fields::is_host;

/// Entries that are read; a longer chain is a loop between proxies, or an attack.
const ENTRIES_MAX: usize = 32;

/// A field by which a proxy describes the client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ForwardedField {
    /// `X-Forwarded-For`: addresses.
    For,
    /// `X-Forwarded-Proto`: the scheme.
    Proto,
    /// `X-Forwarded-Host`.
    Host,
    /// `X-Forwarded-Port`.
    Port,
    /// `X-Forwarded-Prefix`: the path that the proxy has removed.
    Prefix,
    /// `Forwarded: for=…;proto=…;host=…`, RFC 7239.
    Rfc7239,
}

impl ForwardedField {
    /// All of them, with their names in lower case.
    pub const NAMED: [(ForwardedField, &str); 6] = [
        (ForwardedField::For, "x-forwarded-for"),
        (ForwardedField::Proto, "x-forwarded-proto"),
        (ForwardedField::Host, "x-forwarded-host"),
        (ForwardedField::Port, "x-forwarded-port"),
        (ForwardedField::Prefix, "x-forwarded-prefix"),
        (ForwardedField::Rfc7239, "forwarded"),
    ];

    /// The field with this name, in any case.
    pub fn named(name: &[u8]) -> Option<ForwardedField> {
        // Most names differ in their first letter, and each field is looked at in each head.
        if !matches!(name.first(), Some(b'x' | b'X' | b'f' | b'F')) {
            return None;
        }
        let is_named =
            |known: &str| name.len() == known.len() && name.eq_ignore_ascii_case(known.as_bytes());
        let mut named = Self::NAMED.into_iter();
        named
            .find(|(_, known)| is_named(known))
            .map(|(field, _)| field)
    }
}

/// The fields that count. A proxy passes on whatever it does not write, so a field counts only where proxies are
/// known to write it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ForwardedFields(u8);

impl ForwardedFields {
    /// These and `field`.
    #[must_use]
    pub const fn with(self, field: ForwardedField) -> Self {
        Self(self.0 | 1 << field as u8)
    }

    /// Whether `field` counts.
    pub const fn has(self, field: ForwardedField) -> bool {
        self.0 & 1 << field as u8 != 0
    }

    /// Whether no field counts.
    pub const fn is_empty(self) -> bool {
        self.0 == 0
    }

    /// The fields of `head` that count, with their values; the last line comes first.
    pub fn in_head<'h>(
        self,
        head: HeadView<'h>,
    ) -> impl Iterator<Item = (ForwardedField, &'h [u8])> + Clone {
        head.headers().rev().filter_map(move |(name, value)| {
            let field = ForwardedField::named(name).filter(|field| self.has(*field))?;
            Some((field, value))
        })
    }
}

/// What proxies said. `None`: nothing, or nothing that can be read.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Forwarded<'h> {
    /// The client's address; where all entries name trusted proxies, the farthest of them.
    pub client: Option<IpAddr>,
    /// The client's port, which few proxies write.
    pub client_port: Option<u16>,
    /// Whether the client used `https` (or `wss`).
    pub is_https: Option<bool>,
    /// The host that the client asked for, with a port where it named one.
    pub host: Option<&'h [u8]>,
    /// The port that the client connected to.
    pub port: Option<u16>,
    /// The path below which the proxy serves this server, with a leading slash and none at its end.
    pub prefix: Option<&'h [u8]>,
    /// Why the chain of addresses ends before its client.
    pub fault: Option<ForwardedFault>,
}

/// Why a chain of addresses cannot be followed to the client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ForwardedFault {
    /// An entry is no address, and what is left of it is not believed.
    Malformed,
    /// The chain has more than 32 entries; none of them is believed.
    TooLong,
}

impl ForwardedFault {
    /// In words, for the error log.
    pub fn text(self) -> &'static str {
        match self {
            ForwardedFault::Malformed => "an entry of the chain of addresses cannot be read",
            ForwardedFault::TooLong => "the chain of addresses has more than 32 entries",
        }
    }
}

/// What the proxies in front say in these lines, which are those that [`ForwardedFields::in_head`] gives; `is_trusted`
/// says whether an address is that of a trusted proxy. `Forwarded` counts alone, where it counts.
pub fn forwarded<'h>(
    lines: impl Iterator<Item = (ForwardedField, &'h [u8])> + Clone,
    fields: ForwardedFields,
    is_trusted: impl Fn(IpAddr) -> bool,
) -> Forwarded<'h> {
    let mut said = match fields.has(ForwardedField::Rfc7239) {
        true => rfc7239(lines, is_trusted),
        false => x_forwarded(&lines, is_trusted),
    };
    if said.fault == Some(ForwardedFault::TooLong) {
        (said.client, said.client_port) = (None, None);
    }
    said
}

fn x_forwarded<'h>(
    lines: &(impl Iterator<Item = (ForwardedField, &'h [u8])> + Clone),
    is_trusted: impl Fn(IpAddr) -> bool,
) -> Forwarded<'h> {
    // The entries of a list field from the right, over all of its lines.
    let entries = |wanted| {
        let lines = lines.clone().filter(move |(field, _)| *field == wanted);
        let values = lines.flat_map(|(_, value)| value.rsplit(|&byte| byte == b','));
        values.map(<[u8]>::trim_ascii)
    };
    let mut said = Forwarded::default();
    let mut hops = 0;
    for entry in entries(ForwardedField::For) {
        if hops == ENTRIES_MAX {
            said.fault = Some(ForwardedFault::TooLong);
            break;
        }
        let Some((ip, port)) = node(entry) else {
            said.fault = Some(ForwardedFault::Malformed);
            break;
        };
        hops += 1;
        (said.client, said.client_port) = (Some(ip), port);
        if !is_trusted(ip) {
            break;
        }
    }
    // The entry of the proxy that the client talked to: as many entries from the right as the client's address is.
    // Most proxies write a single value instead, which is the leftmost then.
    let of_client = |field| entries(field).take(hops.max(1)).last();
    said.is_https = of_client(ForwardedField::Proto).and_then(is_https);
    said.host = of_client(ForwardedField::Host).filter(|host| is_host(host));
    said.port = of_client(ForwardedField::Port).and_then(port_number);
    said.prefix = of_client(ForwardedField::Prefix).and_then(prefix);
    said
}

fn rfc7239<'h>(
    lines: impl Iterator<Item = (ForwardedField, &'h [u8])>,
    is_trusted: impl Fn(IpAddr) -> bool,
) -> Forwarded<'h> {
    let mut said = Forwarded::default();
    let elements = lines
        .filter(|(field, _)| *field == ForwardedField::Rfc7239)
        .flat_map(|(_, value)| elements(value).into_iter().rev());
    for (hops, element) in elements.enumerate() {
        if hops == ENTRIES_MAX {
            said.fault = Some(ForwardedFault::TooLong);
            break;
        }
        // An element that cannot be read was written by a proxy that is not understood: nothing left of it counts.
        let Some(element) = Element::read(element) else {
            said.fault = Some(ForwardedFault::Malformed);
            break;
        };
        said.is_https = element.proto.and_then(is_https).or(said.is_https);
        said.host = element.host.filter(|host| is_host(host)).or(said.host);
        let Some((ip, port)) = element.node.and_then(node) else {
            // `for=unknown` and hidden names are no faults (RFC 7239 section 6).
            break;
        };
        (said.client, said.client_port) = (Some(ip), port);
        if !is_trusted(ip) {
            break;
        }
    }
    said
}

/// The elements of one line, from the left. A comma within quotes is no separator.
fn elements(value: &[u8]) -> Vec<&[u8]> {
    split_unquoted(value, b',').collect()
}

/// The pieces of `value` between separators that do not stand in a quoted string.
fn split_unquoted(value: &[u8], separator: u8) -> impl Iterator<Item = &[u8]> {
    let mut is_quoted = false;
    let mut is_escaped = false;
    value.split(move |&byte| {
        match byte {
            _ if is_escaped => is_escaped = false,
            b'\\' if is_quoted => is_escaped = true,
            b'"' => is_quoted = !is_quoted,
            _ => return byte == separator && !is_quoted,
        }
        false
    })
}

/// The pairs of one element that count here.
#[derive(Default)]
struct Element<'h> {
    node: Option<&'h [u8]>,
    proto: Option<&'h [u8]>,
    host: Option<&'h [u8]>,
}

impl<'h> Element<'h> {
    /// `None` where a pair has no form, or a name comes twice (RFC 7239 section 4).
    fn read(text: &'h [u8]) -> Option<Element<'h>> {
        let mut element = Element::default();
        for pair in split_unquoted(text, b';') {
            let at = memchr::memchr(b'=', pair)?;
            let (name, value) = (
                pair[..at].trim_ascii(),
                unquoted(pair[at + 1..].trim_ascii())?,
            );
            let place = match name {
                _ if name.eq_ignore_ascii_case(b"for") => &mut element.node,
                _ if name.eq_ignore_ascii_case(b"proto") => &mut element.proto,
                _ if name.eq_ignore_ascii_case(b"host") => &mut element.host,
                _ => continue,
            };
            if place.replace(value).is_some() {
                return None;
            }
        }
        Some(element)
    }
}

/// A token as it is, or what a quoted string holds. No value that counts here needs an escape.
fn unquoted(value: &[u8]) -> Option<&[u8]> {
    match value {
        [b'"', inner @ .., b'"'] if !inner.iter().any(|byte| matches!(byte, b'"' | b'\\')) => {
            Some(inner)
        }
        [] => None,
        _ if value.contains(&b'"') => None,
        _ => Some(value),
    }
}

/// An address with or without a port: `192.0.2.1`, `192.0.2.1:80`, `2001:db8::1`, `[2001:db8::1]`,
/// `[2001:db8::1]:80`. `None` for `unknown`, for hidden names (`_gazonk`) and for anything else.
fn node(text: &[u8]) -> Option<(IpAddr, Option<u16>)> {
    let text = std::str::from_utf8(text).ok()?;
    if let Some(rest) = text.strip_prefix('[') {
        let (ip, rest) = rest.split_once(']')?;
        let port = match rest.strip_prefix(':') {
            Some(port) => node_port(port)?,
            None if rest.is_empty() => None,
            None => return None,
        };
        let ip = IpAddr::V6(ip.parse::<Ipv6Addr>().ok()?);
        return Some((ip.to_canonical(), port));
    }
    if let Ok(ip) = text.parse::<IpAddr>() {
        return Some((ip.to_canonical(), None));
    }
    let (ip, port) = text.split_once(':')?;
    Some((IpAddr::V4(ip.parse::<Ipv4Addr>().ok()?), node_port(port)?))
}

/// A port, or the hidden name of one, which is no number. The outer `None`: neither.
fn node_port(text: &str) -> Option<Option<u16>> {
    if text.starts_with('_') {
        return Some(None);
    }
    port_number(text.as_bytes()).map(Some)
}

fn port_number(text: &[u8]) -> Option<u16> {
    let is_number = !text.is_empty() && text.len() <= 5 && text.iter().all(u8::is_ascii_digit);
    let number = std::str::from_utf8(text).ok().filter(|_| is_number)?;
    number.parse().ok().filter(|&port| port > 0)
}

fn is_https(scheme: &[u8]) -> Option<bool> {
    const SECURE: [&[u8]; 2] = [b"https", b"wss"];
    const PLAIN: [&[u8]; 2] = [b"http", b"ws"];
    let is_one = |names: [&[u8]; 2]| names.iter().any(|name| scheme.eq_ignore_ascii_case(name));
    is_one(SECURE)
        .then_some(true)
        .or(is_one(PLAIN).then_some(false))
}

/// `/shop` of `/shop` and `/shop/`. `None`: it is the root, no path, or one with `..` or an escape, which an
/// application would put into addresses unread.
fn prefix(path: &[u8]) -> Option<&[u8]> {
    let path = path.strip_suffix(b"/").unwrap_or(path);
    let is_plain = |byte: &u8| byte.is_ascii_alphanumeric() || b"-._~/".contains(byte);
    let is_path = path.first() == Some(&b'/')
        && path.iter().all(is_plain)
        && !path.windows(2).any(|pair| pair == b"//" || pair == b"..");
    is_path.then_some(path)
}

#[cfg(test)]
mod tests;
