//! URLs taken apart: `http://host:port/path?query`, `https://...`.
//!
//! Takes a text, gives its parts or why it is none, with a remedy. Pure; resolves no name.

use crate::engine::Fault;

/// A URL's parts.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Url {
    pub(super) has_tls: bool,
    pub(super) host: UrlHost,
    /// Path and query, at least `/`.
    pub(super) path: String,
}

/// Where it leads.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct UrlHost {
    /// Without brackets; an address's zone (`fe80::1%eth0`) is part of it.
    pub(super) name: String,
    pub(super) port: u16,
    /// As the `Host` field has it.
    pub(super) field: String,
}

const EXAMPLE: &str = "write `http://127.0.0.1:8000/path`";

/// Takes a URL apart.
pub(super) fn parse(text: &str) -> Result<Url, Fault> {
    let wrong = |cause: &str, hint: &str| Fault::with_hint(format!("`{text}`: {cause}"), hint);
    let printable = |byte: u8| (0x21..0x7f).contains(&byte);
    if !text.bytes().all(printable) {
        let hint = "percent-encode it: `%20` is a space";
        return Err(wrong(
            "a URL holds no space, control or letter beyond ASCII",
            hint,
        ));
    }
    let Some((scheme, rest)) = text.split_once("://") else {
        let hint = format!("did you mean `http://{text}`?");
        return Err(wrong("a URL begins with `http://` or `https://`", &hint));
    };
    let (rest, _fragment) = rest.split_once('#').unwrap_or((rest, ""));
    let at = rest.find(['/', '?']).unwrap_or(rest.len());
    let (authority, path) = rest.split_at(at);
    let path = match path.as_bytes().first() {
        Some(b'/') => path.to_owned(),
        // RFC 9112 section 3.2.1: an empty path is sent as `/`.
        _ => format!("/{path}"),
    };
    if authority.contains('@') {
        let hint = "send them as a header: `-H 'Authorization: Basic ...'`";
        return Err(wrong("user and password in a URL are not sent", hint));
    }
    let (has_tls, host) = match scheme.to_ascii_lowercase().as_str() {
        "http" => (false, host(authority, 80)),
        "https" => (true, host(authority, 443)),
        _ => {
            let cause = format!("`{scheme}` is not spoken here");
            return Err(wrong(
                &cause,
                "http and https are; `--unix PATH` names a unix socket",
            ));
        }
    };
    let host = host.map_err(|cause| wrong(&cause, EXAMPLE))?;
    Ok(Url {
        has_tls,
        host,
        path,
    })
}

fn host(authority: &str, default_port: u16) -> Result<UrlHost, String> {
    let (name, zone, port) = match authority.strip_prefix('[') {
        Some(rest) => {
            let (address, port) = rest.split_once(']').ok_or("`]` is missing")?;
            let (plain, zone) = address.split_once('%').unwrap_or((address, ""));
            if plain.parse::<std::net::Ipv6Addr>().is_err() {
                return Err(format!("`{plain}` is no IPv6 address"));
            }
            // RFC 6874: the zone follows `%25`; a bare `%` is what people write.
            (plain, zone.strip_prefix("25").unwrap_or(zone), port)
        }
        None => {
            let at = authority.find(':').unwrap_or(authority.len());
            let (name, port) = authority.split_at(at);
            if port.matches(':').count() > 1 {
                return Err("an IPv6 address stands in brackets: `http://[::1]:8000/`".to_owned());
            }
            (name, "", port)
        }
    };
    let fits = |byte: u8| byte.is_ascii_alphanumeric() || b".-_:".contains(&byte);
    if name.is_empty() || !name.bytes().all(fits) {
        return Err(format!("`{name}` is no host"));
    }
    let port = match port.strip_prefix(':') {
        None if port.is_empty() => default_port,
        Some("") => default_port,
        Some(digits) => port_number(digits)?,
        None => return Err(format!("`{port}` behind the address is no port")),
    };
    let literal = if name.contains(':') {
        format!("[{name}]")
    } else {
        name.to_owned()
    };
    // RFC 9110 section 7.2: the default port is left out. RFC 6874 section 1: so is a zone, which means
    // nothing to anybody else.
    let field = if port == default_port {
        literal
    } else {
        format!("{literal}:{port}")
    };
    let name = if zone.is_empty() {
        name.to_owned()
    } else {
        format!("{name}%{zone}")
    };
    Ok(UrlHost { name, port, field })
}

fn port_number(text: &str) -> Result<u16, String> {
    let number = super::values::digits(text).and_then(|number| u16::try_from(number).ok());
    let number = number.filter(|number| *number > 0);
    number.ok_or_else(|| format!("expected a port from 1 to 65535, found `{text}`"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(text: &str, has_tls: bool, name: &str, port: u16, field: &str, path: &str) {
        let host = UrlHost {
            name: name.to_owned(),
            port,
            field: field.to_owned(),
        };
        let expect = Url {
            has_tls,
            host,
            path: path.to_owned(),
        };
        assert_eq!(parse(text), Ok(expect), "{text}");
    }

    #[test]
    fn takes_urls_apart() {
        check("http://localhost", false, "localhost", 80, "localhost", "/");
        check("HTTP://a.b:80/", false, "a.b", 80, "a.b", "/");
        check(
            "https://a:8443/x?y=/z#f",
            true,
            "a",
            8443,
            "a:8443",
            "/x?y=/z",
        );
        check("http://a?y", false, "a", 80, "a", "/?y");
        check("http://a:/y", false, "a", 80, "a", "/y");
        check(
            "http://127.0.0.1:8000/a//b",
            false,
            "127.0.0.1",
            8000,
            "127.0.0.1:8000",
            "/a//b",
        );
        check("http://[::1]/", false, "::1", 80, "[::1]", "/");
        check(
            "https://[2001:db8::1]:443/",
            true,
            "2001:db8::1",
            443,
            "[2001:db8::1]",
            "/",
        );
        check(
            "http://[fe80::1%25eth0]:81/",
            false,
            "fe80::1%eth0",
            81,
            "[fe80::1]:81",
            "/",
        );
        check(
            "http://[fe80::1%lo]/",
            false,
            "fe80::1%lo",
            80,
            "[fe80::1]",
            "/",
        );
    }

    #[test]
    fn says_why_a_url_is_none() {
        for (text, expect) in [
            (
                "localhost:8000/",
                "a URL begins with `http://` or `https://` > did you mean `http://localhost:8000/`?",
            ),
            (
                "ftp://a/",
                "`ftp` is not spoken here > http and https are; `--unix PATH` names a unix socket",
            ),
            (
                "http://",
                "`` is no host > write `http://127.0.0.1:8000/path`",
            ),
            (
                "http:///a",
                "`` is no host > write `http://127.0.0.1:8000/path`",
            ),
            (
                "http://a b/",
                "a URL holds no space, control or letter beyond ASCII > percent-encode it: `%20` is a space",
            ),
            (
                "http://a/é",
                "a URL holds no space, control or letter beyond ASCII > percent-encode it: `%20` is a space",
            ),
            (
                "http://u:p@a/",
                "user and password in a URL are not sent > send them as a header: `-H 'Authorization: Basic ...'`",
            ),
            (
                "http://a:0/",
                "expected a port from 1 to 65535, found `0` > write `http://127.0.0.1:8000/path`",
            ),
            (
                "http://a:65536/",
                "expected a port from 1 to 65535, found `65536` > write `http://127.0.0.1:8000/path`",
            ),
            (
                "http://a:b/",
                "expected a port from 1 to 65535, found `b` > write `http://127.0.0.1:8000/path`",
            ),
            (
                "http://::1/",
                "an IPv6 address stands in brackets: `http://[::1]:8000/` > write `http://127.0.0.1:8000/path`",
            ),
            (
                "http://[::1/",
                "`]` is missing > write `http://127.0.0.1:8000/path`",
            ),
            (
                "http://[::g]/",
                "`::g` is no IPv6 address > write `http://127.0.0.1:8000/path`",
            ),
            (
                "http://[::1]8/",
                "`8` behind the address is no port > write `http://127.0.0.1:8000/path`",
            ),
            (
                "http://a%20b/",
                "`a%20b` is no host > write `http://127.0.0.1:8000/path`",
            ),
            (
                "http+unix://run/",
                "`http+unix` is not spoken here > http and https are; `--unix PATH` names a unix socket",
            ),
        ] {
            let fault = parse(text).unwrap_err();
            let said = format!("{} > {}", fault.text, fault.hint.unwrap_or_default());
            assert_eq!(said, format!("`{text}`: {expect}"));
        }
    }
}
