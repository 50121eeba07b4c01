//! Addresses to listen on, as written: `host:port`, `[v6]:port`, `:port`, `port`, `unix:path`, `systemd`.
//!
//! Takes one text and gives its parts; names are resolved later, by whoever may. Pure.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::path::PathBuf;

use super::{Hint, hinted, processes};

/// One address, not yet resolved.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum BindName {
    /// An address in digits.
    Ip(IpAddr, u16),
    /// A host's name.
    Host(String, u16),
    /// A unix socket.
    Unix(UnixName),
    /// Sockets of the service manager, all of them or those of that name.
    Inherited(Option<String>),
}

/// An address with what stands behind it, and its text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct BindText {
    pub name: BindName,
    /// `tls=on` or `tls=off`; `None`: neither.
    pub tls: Option<bool>,
    pub text: String,
}

/// A unix socket's path, with what was written behind it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct UnixName {
    pub path: PathBuf,
    pub mode: Option<u32>,
    pub group: Option<String>,
}

/// The port of an address without one.
const PORT: u16 = 8000;

/// The kernel's `sun_path` holds 108 bytes with the closing zero.
pub(crate) const UNIX_PATH_BYTES_MAX: usize = 107;

/// What systemd takes for `FileDescriptorName`.
const SOCKET_NAME_BYTES_MAX: usize = 255;

/// Reads one address, with or without `tls=on` or `tls=off` as its last word.
///
/// # Errors
/// What was probably meant, where that can be said.
pub(crate) fn parse_text(text: &str) -> Result<BindText, Hint> {
    let (address, tls) = match text.rsplit_once(" tls=") {
        Some((address, "on")) => (address, Some(true)),
        Some((address, "off")) => (address, Some(false)),
        Some((address, _)) => {
            let address = address.trim_end();
            return hinted(format!("`{address} tls=on` or `{address} tls=off`"));
        }
        None => (text, None),
    };
    Ok(BindText {
        name: parse(address.trim_end())?,
        tls,
        text: text.to_owned(),
    })
}

/// Reads one address.
///
/// # Errors
/// What was probably meant, where that can be said.
fn parse(text: &str) -> Result<BindName, Hint> {
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
    if !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit()) {
        return hinted("a port is a number from 1 to 65535");
    }
    // As gunicorn has it.
    if let Ok(ip) = text.parse::<Ipv4Addr>() {
        return Ok(BindName::Ip(ip.into(), PORT));
    }
    let Some((host, port)) = text.rsplit_once(':') else {
        return hinted(format!("add a port: `{text}:8000`"));
    };
    if host.contains(':') && !host.starts_with('[') {
        return hinted(format!(
            "IPv6 addresses stand in brackets: `[{text}]:8000` or `[{host}]:{port}`"
        ));
    }
    if port.starts_with('$') {
        return hinted(format!(
            "`{port}` was not expanded, because no shell reads this line: write the number, or `sh -c`; PORT itself is read without a flag"
        ));
    }
    let port = port
        .parse()
        .map_err(|_| Some("ports are numbers from 0 to 65535".to_owned()))?;
    named(host, port)
}

/// `PATH mode=0660 group=www-data`
fn unix(text: &str) -> Result<BindName, Hint> {
    let mut words = text.split(' ');
    let path = words.next().unwrap_or_default();
    match path.len() {
        0 => return hinted("name the socket: `unix:/run/milepost.sock`"),
        1..=UNIX_PATH_BYTES_MAX => {}
        _ => {
            return hinted(format!(
                "the kernel takes at most {UNIX_PATH_BYTES_MAX} bytes of path"
            ));
        }
    }
    let mut name = UnixName {
        path: PathBuf::from(path),
        ..UnixName::default()
    };
    for word in words.filter(|word| !word.is_empty()) {
        match word.split_once('=') {
            Some(("mode", mode)) => {
                let hint = || {
                    Some(format!(
                        "a mode is an octal number, as `mode=0660`, not `{mode}`"
                    ))
                };
                name.mode = Some(processes::mode(mode).ok_or_else(hint)?);
            }
            Some(("group", group)) if !group.is_empty() => name.group = Some(group.to_owned()),
            _ => {
                return hinted(format!(
                    "a path has no spaces, and behind it stand `mode=0660` and `group=NAME`, not `{word}`"
                ));
            }
        }
    }
    // A tab or a line end would be a part of the file's name.
    match path.contains(char::is_whitespace) {
        true => hinted("a path has no spaces"),
        false => Ok(BindName::Unix(name)),
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
            Ok(BindName::Unix(name)) => format!(
                "unix {} {:o} {}",
                name.path.display(),
                name.mode.unwrap_or(0o777),
                name.group.unwrap_or_default()
            ),
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
        check("0.0.0.0", "ip 0.0.0.0 8000");
        check("0.0.0.0:8000", "ip 0.0.0.0 8000");
        check("127.0.0.1:0", "ip 127.0.0.1 0");
        check("[::1]:8000", "ip ::1 8000");
        check("[::]:8000", "ip :: 8000");
        check("localhost:8000", "host localhost 8000");
        check("a-b.example:80", "host a-b.example 80");
        check("unix:/run/x.sock", "unix /run/x.sock");
        check("unix:x.sock", "unix x.sock");
        check(
            "unix:/run/x mode=0660 group=www-data",
            "unix /run/x 660 www-data",
        );
        check("unix:/run/x  group=33 mode=0o600", "unix /run/x 600 33");
        check("systemd", "inherited None");
        check("systemd:web", "inherited Some(\"web\")");
        check("systemd-host:80", "host systemd-host 80");
    }

    #[test]
    fn reads_whether_an_address_speaks_tls() {
        let check = |text: &str, name: &str, tls| {
            let found = parse_text(text).unwrap();
            assert_eq!(found.name, parse(name).unwrap(), "{text}");
            assert_eq!((found.tls, found.text.as_str()), (tls, text));
        };
        check("0.0.0.0:443", "0.0.0.0:443", None);
        check("0.0.0.0:443 tls=on", "0.0.0.0:443", Some(true));
        check(":80  tls=off", ":80", Some(false));
        check("unix:/a mode=0660 tls=on", "unix:/a mode=0660", Some(true));
        check("systemd:a b tls=on", "systemd:a b", Some(true));
        let hint = parse_text(":443 tls=yes").unwrap_err().unwrap();
        assert_eq!(hint, "`:443 tls=on` or `:443 tls=off`");
    }

    #[test]
    fn refuses_the_rest_with_a_hint_where_there_is_one() {
        check("", "bad add a port");
        check("localhost", "bad add a port");
        check("99999", "bad a port is a number from 1 to 65535");
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
        check(
            "unix:/a b.sock",
            "bad a path has no spaces, and behind it stand",
        );
        check("unix:/a mode=rw", "bad a mode is an octal number");
        check("unix:/a mode=1777", "bad a mode is an octal number");
        check(
            "unix:/a group=",
            "bad a path has no spaces, and behind it stand",
        );
        check("unix:/a\tb", "bad a path has no spaces");
        check("0.0.0.0:$PORT", "bad `$PORT` was not expanded");
        check("fd://3", "bad sockets of the service manager are `systemd`");
        check("[::g]:80", "bad ");
        check("127.0.0:80", "bad ");
        check("a b:80", "bad ");
    }
}
