//! The target of a load: a URL, what is said about its connections, and whether it may be loaded.
//!
//! Takes texts and a way to resolve names, gives [`Target`] or faults.

use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;

use ipnet::IpNet;

use super::Files;
use super::reader::SpecReader;
use super::url::{self, Url, UrlHost};
use crate::engine::Fault;
use crate::plan::{Address, Scheme, Target, Tls, TlsTrust};

/// The target; `None`: a fault was said.
pub(super) fn target(reading: &mut SpecReader<'_>, files: &dyn Files) -> Option<Target> {
    let (text, url) = parsed(reading)?;
    let unix = reading.text("unix");
    if unix == Some("") {
        reading.wrong("unix", "a path");
        return None;
    }
    let unix = unix.map(PathBuf::from);
    let UrlHost { name, port, .. } = &url.host;
    let address = match unix {
        Some(path) => Address::Unix(path),
        None => {
            let is_owned = reading.is_given("i_own_this_target");
            let found = address(name, *port, is_owned, files);
            Address::Ip(reading.noted(found)?)
        }
    };
    let scheme = scheme(reading, &url)?;
    Some(Target {
        url: text,
        scheme,
        address,
        host: url.host.field,
        path: url.path,
    })
}

fn parsed(reading: &mut SpecReader<'_>) -> Option<(String, Url)> {
    let Some(text) = reading.text("url") else {
        reading.fault(
            "`URL`: is missing",
            "`milepost bench http://127.0.0.1:8000/`",
        );
        return None;
    };
    let url = reading.noted(url::parse(text))?;
    Some((text.to_owned(), url))
}

/// Where a name leads to, if all that it leads to may be loaded.
fn address(name: &str, port: u16, is_owned: bool, files: &dyn Files) -> Result<SocketAddr, Fault> {
    let found = files.resolve(name, port).map_err(|error| {
        let text = format!("`{name}`: no address is known: {error}");
        Fault::with_hint(
            text,
            "see /etc/hosts and /etc/resolv.conf, or write the address",
        )
    })?;
    let is_any = |address: &&SocketAddr| address.ip().to_canonical().is_unspecified();
    if let Some(any) = found.iter().find(is_any) {
        let hint = "ask 127.0.0.1 or [::1]";
        let text = format!(
            "`{}`: is where servers listen, and nowhere to connect to",
            any.ip()
        );
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
                let text = format!(
                    "`{}`: only an https target speaks TLS",
                    SpecReader::said(name)
                );
                reading.fault(text, "begin the URL with `https://`, or leave it out");
            }
        }
        return Some(Scheme::Http);
    }
    let is_insecure = reading.is_given("insecure");
    let trust = match (reading.text("cacert"), is_insecure) {
        (Some(_), true) => {
            let hint = "leave `--insecure` out to have the certificate checked";
            reading.fault("`--cacert` and `--insecure`: exclude each other", hint);
            return None;
        }
        (Some(file), false) => TlsTrust::Authority(PathBuf::from(file)),
        (None, true) => TlsTrust::Anybody,
        (None, false) => {
            let hint = "`--cacert FILE` with the authority's certificate (the system's: \
                        /etc/ssl/certs/ca-certificates.crt), or `--insecure`";
            reading.fault("https: it is not said whose certificates are trusted", hint);
            return None;
        }
    };
    let server_name = match reading.text("server_name") {
        Some(name) => name.to_owned(),
        None => url
            .host
            .name
            .split('%')
            .next()
            .unwrap_or_default()
            .to_owned(),
    };
    Some(Scheme::Https(Tls {
        server_name,
        trust,
        resumes: !reading.is_given("no_resumption"),
    }))
}

/// Local addresses: `127.0.0.2-127.0.0.9,127.0.1.1`.
pub(super) fn sources(reading: &mut SpecReader<'_>, target: Option<&Target>) -> Vec<IpAddr> {
    let Some(text) = reading.text("source") else {
        return Vec::new();
    };
    let Some(sources) = ranges(text) else {
        let expected =
            format!("addresses as `127.0.0.2-127.0.0.9,127.0.1.1`, at most {SOURCES_LEN_MAX}");
        reading.wrong("source", &expected);
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

/// More local addresses help nobody: each has some 28,000 ports.
const SOURCES_LEN_MAX: u128 = 65_536;

fn ranges(text: &str) -> Option<Vec<IpAddr>> {
    let mut sources = Vec::new();
    for part in text.split(',') {
        let (from, to) = part
            .trim()
            .split_once('-')
            .unwrap_or((part.trim(), part.trim()));
        let (from, to): (IpAddr, IpAddr) = (from.parse().ok()?, to.parse().ok()?);
        let (first, last) = match (from, to) {
            (IpAddr::V4(from), IpAddr::V4(to)) => {
                (u128::from(from.to_bits()), u128::from(to.to_bits()))
            }
            (IpAddr::V6(from), IpAddr::V6(to)) => (from.to_bits(), to.to_bits()),
            _ => return None,
        };
        let more = last.checked_sub(first)?;
        if sources.len() as u128 + more >= SOURCES_LEN_MAX {
            return None;
        }
        sources.extend((first..=last).map(|bits| match from {
            IpAddr::V4(_) => IpAddr::V4((bits as u32).into()),
            IpAddr::V6(_) => IpAddr::V6(bits.into()),
        }));
    }
    Some(sources)
}

#[cfg(test)]
mod tests;
