//! URLs taken apart: `http://host:port/path?query`, `https://...`.
//!
//! Takes a text, gives its parts or why it is none, with a remedy. Pure; resolves no name.

use crate::engine::Fault;

/// A URL's parts.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Url {
    pub(super) has_tls: bool,
    /// Without brackets; an address's zone (`fe80::1%eth0`) is part of it.
    pub(super) name: String,
    pub(super) port: u16,
    /// As the `Host` field has it.
    pub(super) host: String,
    /// Path and query, at least `/`.
    pub(super) path: String,
}

const EXAMPLE: &str = "write `http://127.0.0.1:8000/path`";

/// Takes a URL apart.
pub(super) fn parse(text: &str) -> Result<Url, Fault> {
    let wrong = |cause: &str, hint: &str| Fault::with_hint(format!("`{text}`: {cause}"), hint);
    let printable = |byte: u8| (0x21..0x7f).contains(&byte);
    if !text.bytes().all(printable) {
        let cause = "a URL holds no space, control or letter beyond ASCII";
        return Err(wrong(cause, "percent-encode it: `%20` is a space"));
    }
    let Some((scheme, rest)) = text.split_once("://") else {
        let hint = format!("did you mean `http://{text}`?");
        return Err(wrong("a URL begins with `http://` or `https://`", &hint));
    };
    let (rest, _fragment) = rest.split_once('#').unwrap_or((rest, ""));
    let at = rest.find(['/', '?']).unwrap_or(rest.len());
    let (authority, path) = rest.split_at(at);
    // As part of the URL they would stand in results and their files.
    if authority.contains('@') {
        let hint = "send them as a header: `-H 'Authorization: Basic ...'`";
        return Err(wrong("user and password in a URL are not sent", hint));
    }
    let has_tls = match scheme.to_ascii_lowercase().as_str() {
        "http" => false,
        "https" => true,
        _ => {
            let cause = format!("`{scheme}` is not spoken here");
            let hint = "http and https are; `--unix PATH` names a unix socket";
            return Err(wrong(&cause, hint));
        }
    };
    let (name, port, host) =
        host(authority, if has_tls { 443 } else { 80 }).map_err(|cause| wrong(&cause, EXAMPLE))?;
    // RFC 9112 section 3.2.1: an empty path is sent as `/`.
    let slash = if path.starts_with('/') { "" } else { "/" };
    Ok(Url {
        has_tls,
        name,
        port,
        host,
        path: format!("{slash}{path}"),
    })
}

/// The name to connect to, its port, and both as the `Host` field has them.
fn host(authority: &str, default_port: u16) -> Result<(String, u16, String), String> {
    let (name, literal, port) = if let Some(rest) = authority.strip_prefix('[') {
        let (address, port) = rest.split_once(']').ok_or("`]` is missing")?;
        let (plain, zone) = address.split_once('%').unwrap_or((address, ""));
        if plain.parse::<std::net::Ipv6Addr>().is_err() {
            return Err(format!("`{plain}` is no IPv6 address"));
        }
        // RFC 6874: the zone follows `%25`; a bare `%` is what people write. Section 1: it is left out of the
        // `Host` field, because it means nothing to anybody else.
        let name = match zone.strip_prefix("25").unwrap_or(zone) {
            "" => plain.to_owned(),
            zone => format!("{plain}%{zone}"),
        };
        (name, format!("[{plain}]"), port)
    } else {
        let at = authority.find(':').unwrap_or(authority.len());
        let (name, port) = authority.split_at(at);
        if port.matches(':').count() > 1 {
            return Err("an IPv6 address stands in brackets: `http://[::1]:8000/`".to_owned());
        }
        let fits = |byte: u8| byte.is_ascii_alphanumeric() || b".-_".contains(&byte);
        if name.is_empty() || !name.bytes().all(fits) {
            return Err(format!("`{name}` is no host"));
        }
        (name.to_owned(), name.to_owned(), port)
    };
    let port = match (port, port.strip_prefix(':')) {
        ("" | ":", _) => default_port,
        (_, Some(digits)) => super::values::count(digits, 1, u16::MAX.into())
            .map_err(|_| format!("expected a port from 1 to 65535, found `{digits}`"))?
            as u16,
        (_, None) => return Err(format!("`{port}` behind the address is no port")),
    };
    // RFC 9110 section 7.2: the default port is left out.
    let host = if port == default_port {
        literal
    } else {
        format!("{literal}:{port}")
    };
    Ok((name, port, host))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tests::check_cases;

    fn said(text: &str) -> String {
        match parse(text) {
            Ok(Url {
                has_tls,
                name,
                port,
                host,
                path,
            }) => {
                let tls = if has_tls { "TLS " } else { "" };
                format!("{tls}{name} {port}, {host} {path}")
            }
            Err(fault) => {
                let cause = fault.text.replace(&format!("`{text}`: "), "");
                format!("{cause} > {}", fault.hint.unwrap_or_default())
            }
        }
    }

    #[test]
    fn takes_urls_apart_or_says_why_they_are_none() {
        let cases = "
http://localhost
    localhost 80, localhost /
HTTP://a.b:80/
    a.b 80, a.b /
https://a:8443/x?y=/z#f
    TLS a 8443, a:8443 /x?y=/z
http://a?y
    a 80, a /?y
http://a:/y
    a 80, a /y
http://127.0.0.1:8000/a//b
    127.0.0.1 8000, 127.0.0.1:8000 /a//b
http://[::1]/
    ::1 80, [::1] /
https://[2001:db8::1]:443/
    TLS 2001:db8::1 443, [2001:db8::1] /
http://[fe80::1%25eth0]:81/
    fe80::1%eth0 81, [fe80::1]:81 /
http://[fe80::1%lo]/
    fe80::1%lo 80, [fe80::1] /
localhost:8000/
    a URL begins with `http://` or `https://` > did you mean `http://localhost:8000/`?
ftp://a/
    `ftp` is not spoken here > http and https are; `--unix PATH` names a unix socket
http://
    `` is no host > write `http://127.0.0.1:8000/path`
http:///a
    `` is no host > write `http://127.0.0.1:8000/path`
http://a b/
    a URL holds no space, control or letter beyond ASCII > percent-encode it: `%20` is a space
http://a/é
    a URL holds no space, control or letter beyond ASCII > percent-encode it: `%20` is a space
http://u:p@a/
    user and password in a URL are not sent > send them as a header: `-H 'Authorization: Basic ...'`
http://a:0/
    expected a port from 1 to 65535, found `0` > write `http://127.0.0.1:8000/path`
http://a:65536/
    expected a port from 1 to 65535, found `65536` > write `http://127.0.0.1:8000/path`
http://a:b/
    expected a port from 1 to 65535, found `b` > write `http://127.0.0.1:8000/path`
http://::1/
    an IPv6 address stands in brackets: `http://[::1]:8000/` > write `http://127.0.0.1:8000/path`
http://[::1/
    `]` is missing > write `http://127.0.0.1:8000/path`
http://[::g]/
    `::g` is no IPv6 address > write `http://127.0.0.1:8000/path`
http://[::1]8/
    `8` behind the address is no port > write `http://127.0.0.1:8000/path`
http://a%20b/
    `a%20b` is no host > write `http://127.0.0.1:8000/path`
http+unix://run/
    `http+unix` is not spoken here > http and https are; `--unix PATH` names a unix socket
";
        check_cases(cases, said);
    }
}
