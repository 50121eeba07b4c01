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
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::{HeadIndex, HeadStep, Limits};

    /// Proxies in 10.0.0.0/8 are trusted.
    fn is_trusted(ip: IpAddr) -> bool {
        matches!(ip, IpAddr::V4(ip) if ip.octets()[0] == 10)
    }

    #[derive(Debug, PartialEq, Default)]
    struct Owned {
        client: Option<String>,
        is_https: Option<bool>,
        host: Option<String>,
        port: Option<u16>,
        prefix: Option<String>,
    }

    const ALL_X: ForwardedFields = ForwardedFields(0b1_1111);
    const RFC: ForwardedFields = ForwardedFields(0).with(ForwardedField::Rfc7239);

    fn read(fields_that_count: ForwardedFields, fields: &str) -> Owned {
        let (owned, _) = read_with_fault(fields_that_count, fields);
        owned
    }

    fn read_with_fault(
        fields_that_count: ForwardedFields,
        fields: &str,
    ) -> (Owned, Option<ForwardedFault>) {
        let head = format!("GET / HTTP/1.1\r\nHost: h\r\n{fields}\r\n");
        let mut index = HeadIndex::new();
        let step = index.parse(head.as_bytes(), &mut 0, &Limits::default());
        assert!(matches!(step, Ok(HeadStep::Complete)), "{fields:?}");
        let view = HeadView {
            bytes: head.as_bytes(),
            index: &index,
        };
        let lines = fields_that_count.in_head(view);
        let said = forwarded(lines, fields_that_count, is_trusted);
        let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).unwrap();
        let owned = Owned {
            client: said.client.map(|ip| match said.client_port {
                Some(port) => format!("{ip} {port}"),
                None => ip.to_string(),
            }),
            is_https: said.is_https,
            host: said.host.map(text),
            port: said.port,
            prefix: said.prefix.map(text),
        };
        (owned, said.fault)
    }

    #[track_caller]
    fn check_client(form: ForwardedFields, fields: &str, expect: Option<&str>) {
        assert_eq!(read(form, fields).client.as_deref(), expect, "{fields:?}");
    }

    #[test]
    fn the_client_is_the_rightmost_who_is_not_trusted() {
        let check = |value: &str, expect| {
            check_client(ALL_X, &format!("X-Forwarded-For: {value}\r\n"), expect);
        };
        check("192.0.2.1", Some("192.0.2.1"));
        check("192.0.2.1, 10.0.0.2", Some("192.0.2.1"));
        check("192.0.2.1, 10.0.0.2, 10.9.9.9", Some("192.0.2.1"));
        // A client may write what it likes on the left.
        check("203.0.113.9, 192.0.2.1", Some("192.0.2.1"));
        check("10.0.0.1, 192.0.2.1, 10.0.0.2", Some("192.0.2.1"));
        // All of them are proxies: a request of one of ours.
        check("10.0.0.1, 10.0.0.2", Some("10.0.0.1"));
        // What cannot be read ends the chain.
        check("192.0.2.1, unknown, 10.0.0.2", Some("10.0.0.2"));
        check("192.0.2.1, ", None);
        check("unknown", None);
        check("", None);
        check("192.0.2.1:4711", Some("192.0.2.1 4711"));
        check("2001:db8::1", Some("2001:db8::1"));
        check("[2001:db8::1]", Some("2001:db8::1"));
        check("::ffff:192.0.2.1", Some("192.0.2.1"));
        check("[2001:db8::1]:4711", Some("2001:db8::1 4711"));
        check("192.0.2.1:0", None);
        check("192.0.2.1:65536", None);
        check("192.0.2.1:+80", None);
        check("192.0.2.256", None);
        check("[192.0.2.1]", None);
        check("[2001:db8::1]x", None);
        check("\"192.0.2.1\"", None);
    }

    #[test]
    fn lines_of_one_field_are_one_list() {
        let fields = "X-Forwarded-For: 203.0.113.9\r\nx-forwarded-for: 192.0.2.1, 10.0.0.1\r\nX-FORWARDED-FOR: 10.0.0.2\r\n";
        check_client(ALL_X, fields, Some("192.0.2.1"));
        let many = "10.0.0.1, ".repeat(40);
        let fields = format!("X-Forwarded-For: 192.0.2.1, {many}10.0.0.1\r\n");
        check_client(ALL_X, &fields, None);
    }

    #[test]
    fn a_chain_that_ends_early_has_a_fault() {
        let long = vec!["10.0.0.1"; ENTRIES_MAX].join(", ");
        for (fields, form, expect) in [
            (format!("X-Forwarded-For: {long}"), ALL_X, None),
            (
                format!("X-Forwarded-For: 192.0.2.1, {long}"),
                ALL_X,
                Some(ForwardedFault::TooLong),
            ),
            (
                format!("Forwarded: for=192.0.2.1{}", ", for=10.0.0.1".repeat(32)),
                RFC,
                Some(ForwardedFault::TooLong),
            ),
            (
                "X-Forwarded-For: x".to_owned(),
                ALL_X,
                Some(ForwardedFault::Malformed),
            ),
            (
                "Forwarded: for".to_owned(),
                RFC,
                Some(ForwardedFault::Malformed),
            ),
            ("Forwarded: for=unknown".to_owned(), RFC, None),
        ] {
            let (_, fault) = read_with_fault(form, &format!("{fields}\r\n"));
            assert_eq!(fault, expect, "{fields}");
        }
    }

    #[test]
    fn only_the_fields_that_count_are_read() {
        let head = "X-Forwarded-For: 192.0.2.1\r\nX-Forwarded-Proto: https\r\nX-Forwarded-Host: evil\r\n\
                    X-Forwarded-Port: 9\r\nX-Forwarded-Prefix: /evil\r\nForwarded: for=192.0.2.9\r\n";
        let usual = ForwardedFields::default()
            .with(ForwardedField::For)
            .with(ForwardedField::Proto);
        let expect = Owned {
            client: Some("192.0.2.1".to_owned()),
            is_https: Some(true),
            ..Owned::default()
        };
        assert_eq!(read(usual, head), expect);
        assert_eq!(read(ForwardedFields::default(), head), Owned::default());
        for (index, (field, name)) in ForwardedField::NAMED.into_iter().enumerate() {
            assert_eq!(field as usize, index);
            assert_eq!(
                ForwardedField::named(name.to_ascii_uppercase().as_bytes()),
                Some(field)
            );
        }
        assert_eq!(ForwardedField::named(b"x-forwarded_for"), None);
    }

    #[test]
    fn the_rest_is_the_word_of_the_proxy_that_the_client_talked_to() {
        let check = |fields: &str, expect: Owned| {
            assert_eq!(read(ALL_X, fields), expect, "{fields:?}");
        };
        check(
            "X-Forwarded-Proto: https\r\nX-Forwarded-Host: shop.example:8443\r\nX-Forwarded-Port: 8443\r\n\
             X-Forwarded-Prefix: /shop/\r\n",
            Owned {
                client: None,
                is_https: Some(true),
                host: Some("shop.example:8443".to_owned()),
                port: Some(8443),
                prefix: Some("/shop".to_owned()),
            },
        );
        let two = "X-Forwarded-For: 192.0.2.1, 10.0.0.2\r\nX-Forwarded-Proto: ";
        let with = |is_https| Owned {
            client: Some("192.0.2.1".to_owned()),
            is_https,
            ..Owned::default()
        };
        check(&format!("{two}https, http\r\n"), with(Some(true)));
        check(&format!("{two}http, https, http\r\n"), with(Some(true)));
        check(&format!("{two}HTTPS\r\n"), with(Some(true)));
        check(&format!("{two}ws\r\n"), with(Some(false)));
        check(&format!("{two}ftp\r\n"), with(None));
        check(
            "X-Forwarded-Host: a b\r\nX-Forwarded-Port: 8e3\r\nX-Forwarded-Prefix: shop\r\n",
            Owned::default(),
        );
        for prefix in ["/", "//evil.example", "/a/../b", "/a%2fb", "/a?b", ""] {
            check(
                &format!("X-Forwarded-Prefix: {prefix}\r\n"),
                Owned::default(),
            );
        }
        // The other form says nothing here.
        check("Forwarded: for=192.0.2.1;proto=https\r\n", Owned::default());
    }

    #[test]
    fn reads_the_standard_form() {
        let check = |value: &str, client: Option<&str>, is_https, host: Option<&str>| {
            let expect = Owned {
                client: client.map(str::to_owned),
                is_https,
                host: host.map(str::to_owned),
                ..Owned::default()
            };
            let fields = format!("Forwarded: {value}\r\n");
            assert_eq!(read(RFC, &fields), expect, "{value}");
        };
        check("for=192.0.2.1", Some("192.0.2.1"), None, None);
        check(
            "For=\"[2001:db8::1]:4711\";PROTO=https;by=10.0.0.1;host=\"shop.example:443\"",
            Some("2001:db8::1 4711"),
            Some(true),
            Some("shop.example:443"),
        );
        check(
            "for=203.0.113.9;proto=http, for=192.0.2.1;proto=https, for=10.0.0.1;proto=http",
            Some("192.0.2.1"),
            Some(true),
            None,
        );
        check(
            "for=203.0.113.9, for=unknown;proto=https, for=10.0.0.1",
            Some("10.0.0.1"),
            Some(true),
            None,
        );
        check("for=_hidden", None, None, None);
        check("for=\"192.0.2.1:_x\"", Some("192.0.2.1"), None, None);
        check("for=\"a,b\";proto=https", None, Some(true), None);
        check("for=192.0.2.1;for=192.0.2.2", None, None, None);
        for faulty in [
            "for",
            "for=",
            "for=\"192.0.2.1",
            "for=192.0.2.1\"",
            "",
            ";",
            "for=\"\\192.0.2.1\"",
        ] {
            check(faulty, None, None, None);
        }
        check("for=192.0.2.1, for=", None, None, None);
    }

    proptest! {
        #[test]
        fn whoever_is_named_was_named_by_a_trusted_proxy(
            hops in prop::collection::vec((0..4u8, 0..2u8), 1..8), is_rfc in any::<bool>(),
        ) {
            let ips: Vec<IpAddr> = hops
                .iter()
                .map(|(last, net)| IpAddr::from([if *net == 0 { 10 } else { 192 }, 0, 2, *last]))
                .collect();
            let (form, name, prefix) = match is_rfc {
                true => (RFC, "Forwarded", "for="),
                false => (ALL_X, "X-Forwarded-For", ""),
            };
            let value: Vec<_> = ips.iter().map(|ip| format!("{prefix}{ip}")).collect();
            let expect = ips.iter().rev().find(|ip| !is_trusted(**ip)).unwrap_or(&ips[0]);
            check_client(form, &format!("{name}: {}\r\n", value.join(", ")), Some(&expect.to_string()));
        }

        #[test]
        fn garbage_never_panics(bytes in "[ -~]{0,80}", is_rfc in any::<bool>()) {
            let form = if is_rfc { RFC } else { ALL_X };
            let name = if is_rfc { "Forwarded" } else { "X-Forwarded-For" };
            read(form, &format!("{name}: {bytes}\r\nX-Forwarded-Prefix: {bytes}\r\nX-Forwarded-Host: {bytes}\r\n"));
        }
    }
}
