//! A request as HTTP/2 has it, made of one of HTTP/1.1: fields in lower case, the target in pseudo-fields.
//!
//! Takes the bytes that the plan has, gives the head that the `h2` crate takes, and the body. Pure.

use std::sync::Arc;

use bytes::Bytes;
use http_types::header::{HeaderName, HeaderValue, TE};
use http_types::uri::{Authority, PathAndQuery, Scheme};
use http_types::{HeaderMap, Method, Request, Uri, Version};

/// Fields of one connection, which HTTP/2 does not have (RFC 9113 section 8.2.2). Others of them are no part of a plan.
const CONNECTION_FIELDS: [&str; 3] = ["keep-alive", "proxy-connection", "upgrade"];

/// A request as it is given to the `h2` crate, any number of times.
#[derive(Clone, Debug)]
pub(crate) struct Http2Request {
    pub(crate) head: Request<()>,
    pub(crate) body: Bytes,
}

impl Http2Request {
    /// Of the bytes of a request of HTTP/1.1, as [`RequestParts`](crate::plan::RequestParts) makes them.
    ///
    /// # Errors
    /// What of it HTTP/2 does not have.
    pub(crate) fn of(bytes: &Arc<[u8]>, has_tls: bool) -> Result<Http2Request, String> {
        let end = bytes.windows(4).position(|four| four == b"\r\n\r\n");
        let end = end.expect("a plan has whole heads");
        let mut lines = bytes[..end].split(|byte| *byte == b'\n').map(without_cr);
        let line = lines.next().unwrap_or_default();
        let mut words = line.splitn(3, |byte| *byte == b' ');
        let mut word = || words.next().unwrap_or_default();
        let (method, target) = (word(), word());
        let (host, headers) = headers(lines)?;
        let scheme = if has_tls { Scheme::HTTPS } else { Scheme::HTTP };
        let mut head = Request::new(());
        *head.version_mut() = Version::HTTP_2;
        *head.method_mut() = Method::from_bytes(method)
            .map_err(|_| format!("`{}` is no method of HTTP/2", text(method)))?;
        *head.uri_mut() = uri(scheme, host, target)?;
        *head.headers_mut() = headers;
        Ok(Http2Request {
            head,
            body: Bytes::from_owner(Arc::clone(bytes)).slice(end + 4..),
        })
    }
}

fn without_cr(line: &[u8]) -> &[u8] {
    line.strip_suffix(b"\r").unwrap_or(line)
}

/// The host, and the other fields.
fn headers<'b>(lines: impl Iterator<Item = &'b [u8]>) -> Result<(&'b [u8], HeaderMap), String> {
    let mut host: &[u8] = b"";
    let mut headers = HeaderMap::new();
    for line in lines {
        let at = line.iter().position(|byte| *byte == b':');
        let (name, value) = line.split_at(at.expect("a plan has fields with a name"));
        let value = value[1..].trim_ascii();
        let known = HeaderName::from_bytes(name)
            .map_err(|_| format!("`{}` is no header name of HTTP/2", text(name)))?;
        if known == "host" {
            host = value;
            continue;
        }
        let is_trailers = known != TE || value == b"trailers";
        if CONNECTION_FIELDS.contains(&known.as_str()) || !is_trailers {
            return Err(format!(
                "HTTP/2 has no header `{}: {}`",
                text(name),
                text(value)
            ));
        }
        let value = HeaderValue::from_bytes(value)
            .map_err(|_| format!("the value of `{}` is none of HTTP/2", text(name)))?;
        headers.append(known, value);
    }
    Ok((host, headers))
}

fn uri(scheme: Scheme, host: &[u8], target: &[u8]) -> Result<Uri, String> {
    let authority = Authority::try_from(host)
        .map_err(|_| format!("`{}` is no authority of HTTP/2", text(host)))?;
    // What the crate would leave out is not asked for behind the caller's back.
    let path = PathAndQuery::try_from(target)
        .ok()
        .filter(|path| path.as_str().as_bytes() == target)
        .ok_or_else(|| {
            let target = text(target);
            format!("`{target}` has characters that a path of HTTP/2 must have percent-encoded")
        })?;
    let mut parts = http_types::uri::Parts::default();
    (parts.scheme, parts.authority) = (Some(scheme), Some(authority));
    parts.path_and_query = Some(path);
    Uri::from_parts(parts).map_err(|error| format!("`{}`: {error}", text(target)))
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plan::RequestParts;

    fn made(method: &str, target: &str, fields: &[(&str, &str)]) -> Result<String, String> {
        let owned = |(name, value): &(&str, &str)| ((*name).to_owned(), (*value).to_owned());
        let fields: Vec<_> = fields.iter().map(owned).collect();
        let parts = RequestParts {
            method,
            target,
            host: "h.test:80",
            fields: &fields,
            body: (method == "POST").then_some(b"a\r\n\r\nb"),
        };
        assert_eq!(parts.fault(), None);
        let made = Http2Request::of(&parts.request(1).bytes, true)?;
        let fields = made.head.headers().iter();
        let fields = fields.map(|(name, value)| format!(" {name}={}", text(value.as_bytes())));
        let (fields, body) = (fields.collect::<String>(), text(&made.body));
        Ok(format!(
            "{} {}{fields} {body:?}",
            made.head.method(),
            made.head.uri()
        ))
    }

    #[test]
    fn takes_everything_over_but_what_is_of_the_connection() {
        let get = made(
            "GET",
            "/a?b=c%20d",
            &[("X-A", "1"), ("x-a", " 2"), ("TE", "trailers")],
        );
        let expect = "GET https://h.test:80/a?b=c%20d x-a=1 x-a=2 te=trailers \"\"";
        assert_eq!(get.as_deref(), Ok(expect));
        let post = made("POST", "/", &[("Host", "other.test")]);
        let expect = "POST https://other.test/ content-length=6 \"a\\r\\n\\r\\nb\"";
        assert_eq!(post.as_deref(), Ok(expect));
        let options = made("OPTIONS", "*", &[]);
        assert!(options.is_ok(), "{options:?}");
    }

    #[test]
    fn refuses_what_http2_does_not_have() {
        let check = |target: &str, field: (&str, &str), expect: &str| {
            assert_eq!(made("GET", target, &[field]), Err(expect.to_owned()));
        };
        check("/", ("Upgrade", "x"), "HTTP/2 has no header `Upgrade: x`");
        check("/", ("TE", "gzip"), "HTTP/2 has no header `TE: gzip`");
        check("/", ("Host", "a b"), "`a b` is no authority of HTTP/2");
        for target in ["/<", "/a#b"] {
            let expect = "has characters that a path of HTTP/2 must have percent-encoded";
            check(target, ("A", "b"), &format!("`{target}` {expect}"));
        }
    }
}
