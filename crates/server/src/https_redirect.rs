//! Redirects from plain HTTP to HTTPS: which requests, and to which URL. Pure.

use files::{Reply, ReplyBody};
use http::{FieldLines, HeadView};

use crate::exchange::Ends;
use config::typed::{Config, HttpsRedirect};

/// Certificate authorities ask over plain HTTP, and some do not follow a redirect (RFC 8555 section 8.3).
const ACME_CHALLENGES: &[u8] = b"/.well-known/acme-challenge/";
const HTTPS_PORT: u16 = 443;

/// Redirects requests that came over plain HTTP.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct HttpsRedirector {
    /// Of HTTPS, as clients see it.
    port: u16,
}

impl HttpsRedirector {
    /// `None` where they are served.
    pub(crate) fn new(config: &Config) -> Option<Self> {
        let port = match config.https_redirect {
            HttpsRedirect::Off => None,
            HttpsRedirect::On => config.tls.port(),
            HttpsRedirect::Port(port) => Some(port),
        };
        port.map(|port| Self { port })
    }

    /// The redirect of a request, if it came over plain HTTP and TCP: 308, which keeps the method (RFC 9110
    /// section 15.4.9).
    pub(crate) fn reply(self, head: HeadView<'_>, ends: &Ends) -> Option<Reply> {
        let (path, is_local) = (head.path(), ends.peer_host.starts_with("unix:"));
        let is_for_server = path == b"*";
        if ends.scheme == "https" || is_local || is_for_server || path.starts_with(ACME_CHALLENGES)
        {
            return None;
        }
        let mut fields = FieldLines::new();
        let url = self.url(head, ends);
        // A host that is no part of a field was refused with its head.
        if fields.try_push(b"Location", url.as_bytes()).is_err() {
            return Some(Reply::refusal(400, None));
        }
        fields.push_decimal(b"Content-Length", 0);
        Some(Reply {
            status: 308,
            fields: fields.freeze(),
            body: ReplyBody::Empty,
        })
    }

    fn url(self, head: HeadView<'_>, ends: &Ends) -> String {
        let local = match ends.local_host.contains(':') {
            true => format!("[{}]", ends.local_host),
            false => ends.local_host.to_string(),
        };
        let host = ends.host_name(head).unwrap_or(&local);
        let port = match self.port {
            HTTPS_PORT => String::new(),
            port => format!(":{port}"),
        };
        let path = String::from_utf8_lossy(head.path());
        let query = head.query().map(String::from_utf8_lossy);
        let query = query.map_or_else(String::new, |query| format!("?{query}"));
        format!("https://{host}{port}{path}{query}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tests::{ends, head};

    /// The URL that a request is redirected to; empty: it is served.
    #[track_caller]
    fn check(redirect: HttpsRedirect, ends: &Ends, text: &str, expect: &str) {
        let config = Config {
            https_redirect: redirect,
            ..Config::default()
        };
        let head = head(text);
        let reply = HttpsRedirector::new(&config).and_then(|https| https.reply(head.view(), ends));
        let location = reply.as_ref().map_or("", |reply| {
            assert_eq!(reply.status, 308);
            let location = reply.fields.iter().find(|(name, _)| *name == b"Location");
            std::str::from_utf8(location.unwrap().1).unwrap()
        });
        assert_eq!(location, expect, "{text}");
    }

    #[test]
    fn keeps_host_path_and_query_and_changes_the_port() {
        let client = ends("192.0.2.1");
        let get =
            |target: &str, host: &str| format!("GET {target} HTTP/1.1\r\nHost: {host}\r\n\r\n");
        let standard = HttpsRedirect::Port(443);
        for (target, host, expect) in [
            (
                "/a%20b?c=d",
                "shop.example",
                "https://shop.example/a%20b?c=d",
            ),
            ("/", "shop.example:80", "https://shop.example/"),
            ("/", "shop.example:8000", "https://shop.example/"),
            ("/", "[::1]:80", "https://[::1]/"),
            ("/", "[::1]", "https://[::1]/"),
            (
                "http://other.example/x?y",
                "other.example",
                "https://other.example/x?y",
            ),
            ("/.well-known/acme-challenge/token", "shop.example", ""),
            (
                "/.well-known/acme-challenge",
                "shop.example",
                "https://shop.example/.well-known/acme-challenge",
            ),
        ] {
            check(standard, &client, &get(target, host), expect);
        }
        let other = HttpsRedirect::Port(8443);
        check(
            other,
            &client,
            &get("/", "a.example:80"),
            "https://a.example:8443/",
        );
        let old = "GET /x HTTP/1.0\r\n\r\n";
        check(other, &client, old, "https://127.0.0.1:8443/x");
        check(other, &client, "OPTIONS * HTTP/1.1\r\nHost: a\r\n\r\n", "");
        check(HttpsRedirect::Off, &client, &get("/", "a.example"), "");
    }

    #[test]
    fn leaves_https_and_local_sockets_alone() {
        let get = "GET / HTTP/1.1\r\nHost: a.example\r\n\r\n";
        let redirect = HttpsRedirect::Port(443);
        check(redirect, &ends("unix:"), get, "");
        let secured = Ends {
            scheme: "https",
            ..ends("192.0.2.1")
        };
        check(redirect, &secured, get, "");
        let named = Ends {
            host: Some("outside.example:81".into()),
            ..ends("192.0.2.1")
        };
        check(redirect, &named, get, "https://outside.example/");
    }
}
