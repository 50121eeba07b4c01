//! The target of a load: a URL, what is said about its connections, and whether it may be loaded.
//!
//! Takes texts and a way to resolve names, gives [`Target`] or faults.

use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;

use ipnet::{IpAddrRange, IpNet, Ipv4AddrRange, Ipv6AddrRange};

use super::Files;
use super::reader::SpecReader;
use super::url::{self, Url};
use crate::engine::Fault;
use crate::plan::{Address, Scheme, Target, Tls, TlsTrust};

/// The target; `None`: a fault was said.
pub(super) fn target(reading: &mut SpecReader<'_>, files: &dyn Files) -> Option<Target> {
    let Some(text) = reading.text("url") else {
        let hint = "`milepost bench http://127.0.0.1:8000/`";
        reading.fault("`URL`: is missing", hint);
        return None;
    };
    let url = reading.noted(url::parse(text))?;
    let address = if reading.is_given("unix") {
        let path = |text: &str| Some(PathBuf::from(text)).filter(|_| !text.is_empty());
        let path = |text: &str| path(text).ok_or_else(|| "a path".to_owned());
        Address::Unix(reading.value("unix", path)?)
    } else {
        let is_owned = reading.is_given("i_own_this_target");
        let found = address(&url.name, url.port, is_owned, files);
        Address::Ip(reading.noted(found)?)
    };
    Some(Target {
        url: text.to_owned(),
        scheme: scheme(reading, &url)?,
        address,
        host: url.host,
        path: url.path,
    })
}

/// Where a name leads to, if all that it leads to may be loaded.
fn address(name: &str, port: u16, is_owned: bool, files: &dyn Files) -> Result<SocketAddr, Fault> {
    let found = files.resolve(name, port).map_err(|error| {
        let text = format!("`{name}`: no address is known: {error}");
        let hint = "see /etc/hosts and /etc/resolv.conf, or write the address";
        Fault::with_hint(text, hint)
    })?;
    let is_any = |address: &&SocketAddr| address.ip().to_canonical().is_unspecified();
    if let Some(any) = found.iter().find(is_any) {
        let hint = "ask 127.0.0.1 or [::1]";
        let any = any.ip();
        let text = format!("`{any}`: is where servers listen, and nowhere to connect to");
        return Err(Fault::with_hint(text, hint));
    }
    // All addresses and not only the one that is used: a name that leads elsewhere as well may do so next time.
    if !is_owned && let Some(other) = found.iter().find(|one| !is_safe(one.ip())) {
        return Err(foreign(name, other.ip()));
    }
    // What listens on `localhost` listens there at least.
    let first = found.iter().find(|one| one.is_ipv4()).or(found.first());
    first
        .copied()
        .ok_or_else(|| Fault::new(format!("`{name}`: no address is known")))
}

fn foreign(name: &str, ip: IpAddr) -> Fault {
    let leads = if name.parse() == Ok(ip) {
        "is".to_owned()
    } else {
        format!("leads to {ip}, which is")
    };
    Fault::with_hint(
        format!("`{name}`: {leads} neither loopback nor a private or test address"),
        "a load may take a server away from others: `--i-own-this-target` if it is yours",
    )
}

/// Networks that are nobody else's: loopback, private and link-local ones, those shared behind a provider's
/// translation, and those set aside for documentation and tests.
const SAFE: [&str; 14] = [
    "127.0.0.0/8",
    "::1/128",
    // RFC 1918
    "10.0.0.0/8",
    "172.16.0.0/12",
    "192.168.0.0/16",
    // RFC 3927, and RFC 4291 link-local
    "169.254.0.0/16",
    "fe80::/10",
    // RFC 6598
    "100.64.0.0/10",
    // RFC 4193
    "fc00::/7",
    // RFC 5737
    "192.0.2.0/24",
    "198.51.100.0/24",
    "203.0.113.0/24",
    // RFC 3849
    "2001:db8::/32",
    // RFC 2544
    "198.18.0.0/15",
];

/// Whether it is loopback, private, or set aside for tests.
fn is_safe(address: IpAddr) -> bool {
    // An IPv4 address in the clothes of IPv6 leads where the IPv4 address does.
    let address = address.to_canonical();
    let mut networks = SAFE.iter().map(|network| network.parse::<IpNet>());
    networks.any(|network| network.expect("the table has networks").contains(&address))
}

fn scheme(reading: &mut SpecReader<'_>, url: &Url) -> Option<Scheme> {
    if !url.has_tls {
        for name in ["cacert", "insecure", "no_resumption", "server_name"] {
            if reading.is_given(name) {
                let said = reading.said(name);
                let text = format!("`{said}`: only an https target speaks TLS");
                reading.fault(text, "begin the URL with `https://`, or leave it out");
            }
        }
        return Some(Scheme::Http);
    }
    let remedy = "leave `--insecure` out to have the certificate checked";
    reading.one_of(&["cacert", "insecure"], remedy);
    let trust = match reading.text("cacert") {
        Some(file) => TlsTrust::Authority(PathBuf::from(file)),
        None if reading.is_given("insecure") => TlsTrust::Anybody,
        // By default neither: who leaves the check out has to say so.
        None => {
            let hint = "`--cacert FILE` with the authority's certificate (the system's: \
                        /etc/ssl/certs/ca-certificates.crt), or `--insecure`";
            reading.fault("https: it is not said whose certificates are trusted", hint);
            return None;
        }
    };
    let without_zone = url.name.split('%').next().unwrap_or_default();
    let server_name = reading.text("server_name").unwrap_or(without_zone);
    Some(Scheme::Https(Tls {
        server_name: server_name.to_owned(),
        trust,
        resumes: !reading.is_given("no_resumption"),
    }))
}

/// Local addresses: `127.0.0.2-127.0.0.9,127.0.1.1`.
pub(super) fn sources(reading: &mut SpecReader<'_>, target: Option<&Target>) -> Vec<IpAddr> {
    let expected = "addresses as `127.0.0.2-127.0.0.9,127.0.1.1`, at most 65536";
    let understand = |text: &str| ranges(text).ok_or_else(|| expected.to_owned());
    let Some(sources) = reading.value("source", understand) else {
        return Vec::new();
    };
    let fits = |address: &SocketAddr| {
        let is_v4 = address.is_ipv4();
        sources.iter().all(|source| source.is_ipv4() == is_v4)
    };
    match target.map(|target| &target.address) {
        Some(Address::Unix(_)) => {
            let hint = "leave `--source` out";
            reading.fault("`--source`: a unix socket has no local addresses", hint);
        }
        Some(Address::Ip(address)) if !fits(address) => {
            let hint = "write the URL with an address of the same kind";
            let text = format!("`--source`: the target is {address}: not both IPv4 or both IPv6");
            reading.fault(text, hint);
        }
        _ => {}
    }
    sources
}

fn ranges(text: &str) -> Option<Vec<IpAddr>> {
    // More local addresses help nobody: each has some 28,000 ports.
    const SOURCES_LEN_MAX: usize = 65_536;
    let mut sources = Vec::new();
    for part in text.split(',') {
        let part = part.trim();
        let (from, to) = part.split_once('-').unwrap_or((part, part));
        let range: IpAddrRange = match (from.parse().ok()?, to.parse().ok()?) {
            (IpAddr::V4(from), IpAddr::V4(to)) if from <= to => Ipv4AddrRange::new(from, to).into(),
            (IpAddr::V6(from), IpAddr::V6(to)) if from <= to => Ipv6AddrRange::new(from, to).into(),
            _ => return None,
        };
        // One more than there may be shows that there are too many, however long the range is.
        sources.extend(range.take(SOURCES_LEN_MAX + 1 - sources.len()));
        if sources.len() > SOURCES_LEN_MAX {
            return None;
        }
    }
    Some(sources)
}

#[cfg(test)]
mod tests {
    use super::is_safe;

    #[test]
    fn allows_every_range_to_its_ends_and_nothing_beside_them() {
        let safe = "127.0.0.1 127.255.255.255 10.0.0.0 10.255.255.255 172.16.0.0 172.31.255.255 192.168.0.0 \
             192.168.255.255 169.254.0.1 169.254.255.255 100.64.0.0 100.127.255.255 192.0.2.0 192.0.2.255 \
             198.51.100.0 198.51.100.255 203.0.113.0 203.0.113.255 198.18.0.0 198.19.255.255 ::1 fe80::1 \
             febf:ffff::1 fc00::1 fdff:ffff::1 2001:db8::1 2001:db8:ffff::1 ::ffff:127.0.0.1 \
             ::ffff:192.168.1.1";
        let others = "126.255.255.255 128.0.0.0 9.255.255.255 11.0.0.0 172.15.255.255 172.32.0.0 192.167.255.255 \
             192.169.0.0 169.253.255.255 169.255.0.0 100.63.255.255 100.128.0.0 192.0.1.255 192.0.3.0 \
             198.51.99.255 198.51.101.0 203.0.112.255 203.0.114.0 198.17.255.255 198.20.0.0 :: ::2 \
             fe7f:ffff::1 fec0::1 fbff:ffff::1 fe00::1 2001:db7:ffff::1 2001:db9::1 8.8.8.8 2606:4700::1111 \
             ::ffff:8.8.8.8 ::127.0.0.1 64:ff9b::7f00:1 0.0.0.0 255.255.255.255";
        for (addresses, expect) in [(safe, true), (others, false)] {
            for text in addresses.split_ascii_whitespace() {
                assert_eq!(is_safe(text.parse().unwrap()), expect, "{text}");
            }
        }
    }
}
