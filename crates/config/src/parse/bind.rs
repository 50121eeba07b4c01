//! Addresses to listen on, as written: `host:port`, `[v6]:port`, `:port`, `port`, `unix:path`, `systemd`.
//!
//! Takes one text and gives its parts; names are resolved later, by whoever may. Pure.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::path::PathBuf;

use super::{Hint, hinted};

/// One address, not yet resolved.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum BindName {
    /// An address in digits.
    Ip(IpAddr, u16),
    /// A host's name.
    Host(String, u16),
    /// A unix socket's path.
    Unix(PathBuf),
    /// Sockets of the service manager, all of them or those of that name.
    Inherited(Option<String>),
}

/// The kernel's `sun_path` holds 108 bytes with the closing zero.
pub(crate) const UNIX_PATH_BYTES_MAX: usize = 107;

/// What systemd takes for `FileDescriptorName`.
const SOCKET_NAME_BYTES_MAX: usize = 255;

/// Reads one address.
///
/// # Errors
/// What was probably meant, where that can be said.
pub(crate) fn parse(text: &str) -> Result<BindName, Hint> {
    if let Some(path) = text.strip_prefix("unix:") {
        return unix(path);
    }
    if text == "systemd" {
        return Ok(BindName::Inherited(None));
    }
    if let Some(name) = text.strip_prefix("systemd:") {
        return inherited(name);
    }
    if text.starts_with("fd://") {
        return hinted("sockets of the service manager are `systemd`, or `systemd:NAME`");
    }
    if let Some((scheme, rest)) = text.split_once("://") {
        let rest = rest.trim_end_matches('/');
        return hinted(format!("leave out `{scheme}://`: `{rest}`"));
    }
    if let Ok(port) = text.parse() {
        return Ok(BindName::Ip(Ipv4Addr::LOCALHOST.into(), port));
    }
    let Some((host, port)) = text.rsplit_once(':') else {
        return hinted(format!("add a port: `{text}:8000`"));
    };
    if host.contains(':') && !host.starts_with('[') {
        return hinted(format!(
            "IPv6 addresses stand in brackets: `[{text}]:8000` or `[{host}]:{port}`"
        ));
    }
    let port = port
        .parse()
        .map_err(|_| Some("ports are numbers from 0 to 65535".to_owned()))?;
    named(host, port)
}

fn unix(path: &str) -> Result<BindName, Hint> {
    match path.len() {
        0 => hinted("name the socket: `unix:/run/milepost.sock`"),
        1..=UNIX_PATH_BYTES_MAX => Ok(BindName::Unix(PathBuf::from(path))),
        _ => hinted(format!(
            "the kernel takes at most {UNIX_PATH_BYTES_MAX} bytes of path"
        )),
    }
}

fn inherited(name: &str) -> Result<BindName, Hint> {
    if name.is_empty() {
        return hinted("name the socket (FileDescriptorName), or write `systemd` for all");
    }
    // LISTEN_FDNAMES separates names by colons.
    let is_good = |b: u8| (b.is_ascii_graphic() || b == b' ') && b != b':';
    if name.len() > SOCKET_NAME_BYTES_MAX || !name.bytes().all(is_good) {
        return hinted(format!(
            "a socket's name has at most {SOCKET_NAME_BYTES_MAX} bytes, and no colon"
        ));
    }
    Ok(BindName::Inherited(Some(name.to_owned())))
}

fn named(host: &str, port: u16) -> Result<BindName, Hint> {
    if host.is_empty() || host == "*" {
        return Ok(BindName::Ip(Ipv4Addr::UNSPECIFIED.into(), port));
    }
    if let Some(inner) = host
        .strip_prefix('[')
        .and_then(|rest| rest.strip_suffix(']'))
    {
        let v6: Option<Ipv6Addr> = inner.parse().ok();
        return v6.map(|ip| BindName::Ip(ip.into(), port)).ok_or(None);
    }
    if let Ok(ip) = host.parse::<Ipv4Addr>() {
        return Ok(BindName::Ip(ip.into(), port));
    }
    let is_name = |b: u8| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'.' | b'_');
    // A name of digits and dots alone is an address with a slip in it: no resolver should guess at it.
    let has_letter = host.bytes().any(|b| b.is_ascii_alphabetic());
    if has_letter && host.bytes().all(is_name) {
        Ok(BindName::Host(host.to_owned(), port))
    } else {
        Err(None)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(text: &str, expect: &str) {
        let found = match parse(text) {
            Ok(BindName::Ip(ip, port)) => format!("ip {ip} {port}"),
            Ok(BindName::Host(host, port)) => format!("host {host} {port}"),
            Ok(BindName::Unix(path)) => format!("unix {}", path.display()),
            Ok(BindName::Inherited(name)) => format!("inherited {name:?}"),
            Err(hint) => format!("bad {}", hint.unwrap_or_default()),
        };
        assert!(found.starts_with(expect), "{text}: {found}");
    }

    #[test]
    fn reads_every_form() {
        check("8000", "ip 127.0.0.1 8000");
        check(":8000", "ip 0.0.0.0 8000");
        check("*:80", "ip 0.0.0.0 80");
        check("0.0.0.0:8000", "ip 0.0.0.0 8000");
        check("127.0.0.1:0", "ip 127.0.0.1 0");
        check("[::1]:8000", "ip ::1 8000");
        check("[::]:8000", "ip :: 8000");
        check("localhost:8000", "host localhost 8000");
        check("a-b.example:80", "host a-b.example 80");
        check("unix:/run/x.sock", "unix /run/x.sock");
        check("unix:x.sock", "unix x.sock");
        check("systemd", "inherited None");
        check("systemd:web", "inherited Some(\"web\")");
        check("systemd-host:80", "host systemd-host 80");
    }

    #[test]
    fn refuses_the_rest_with_a_hint_where_there_is_one() {
        check("", "bad add a port");
        check("localhost", "bad add a port");
        check("::1", "bad IPv6 addresses stand in brackets");
        check("::1:8000", "bad IPv6 addresses stand in brackets");
        check(
            "http://127.0.0.1:8000/",
            "bad leave out `http://`: `127.0.0.1:8000`",
        );
        check("localhost:http", "bad ports are numbers");
        check("127.0.0.1:65536", "bad ports are numbers");
        check("unix:", "bad name the socket");
        check(
            &format!("unix:/{}", "x".repeat(107)),
            "bad the kernel takes at most 107",
        );
        check("systemd:", "bad name the socket (FileDescriptorName)");
        check("systemd:a:b", "bad a socket's name has at most 255 bytes");
        check(
            &format!("systemd:{}", "x".repeat(256)),
            "bad a socket's name has at most 255",
        );
        check("fd://3", "bad sockets of the service manager are `systemd`");
        check("[::g]:80", "bad ");
        check("127.0.0:80", "bad ");
        check("a b:80", "bad ");
    }
}
