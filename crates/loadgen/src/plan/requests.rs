//! What is asked for: requests as bytes, made once before the run.

use std::fmt::Write as _;
use std::sync::Arc;

use http::Asked;

use super::Expect;

/// A request as it goes over the wire.
#[derive(Clone, Debug)]
pub struct Request {
    /// For people: `GET /path`.
    pub name: String,
    /// Of the sum of all kinds' weights; 0 is never chosen by weight, only by a recording.
    pub weight: u32,
    /// What shows whether a reply has no body.
    pub method: Asked,
    /// Head and body; the connection is kept.
    pub bytes: Arc<[u8]>,
    /// Head and body; the connection ends with it.
    pub last_bytes: Arc<[u8]>,
    /// What its reply has to be; `None`: as the plan says.
    pub expect: Option<Expect>,
}

/// A request before it is bytes.
#[derive(Clone, Copy, Debug)]
pub struct RequestParts<'a> {
    /// The method's name, a token.
    pub method: &'a str,
    /// Path and query, without spaces or controls.
    pub target: &'a str,
    /// The `Host` field; one in `fields` takes its place.
    pub host: &'a str,
    /// Further fields, checked by [`RequestParts::fault`].
    pub fields: &'a [(String, String)],
    /// The body; `None`: there is none, and no length is said.
    pub body: Option<&'a [u8]>,
}

impl RequestParts<'_> {
    /// What cannot be sent as it is; `None`: it can.
    pub fn fault(&self) -> Option<String> {
        let is_token = |text: &str| {
            let fits =
                |byte: u8| byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&byte);
            !text.is_empty() && text.bytes().all(fits)
        };
        if !is_token(self.method) {
            return Some(format!("`{}` is no method", self.method));
        }
        if !self.target.starts_with('/') && self.target != "*"
            || self.target.bytes().any(|byte| byte <= b' ' || byte == 0x7f)
        {
            return Some(format!("`{}` is no request target", self.target));
        }
        for (name, value) in self.fields {
            if !is_token(name) {
                return Some(format!("`{name}` is no header name"));
            }
            let is_control = |byte: u8| byte < b' ' && byte != b'\t' || byte == 0x7f;
            if value.bytes().any(is_control) {
                return Some(format!("the value of `{name}` holds a control character"));
            }
            let framing = "content-length transfer-encoding connection expect";
            if framing
                .split(' ')
                .any(|word| name.eq_ignore_ascii_case(word))
            {
                return Some(format!("`{name}` is made by the generator itself"));
            }
        }
        None
    }

    /// A handshake of WebSocket, without what makes it one.
    pub fn upgrade(&self) -> Arc<[u8]> {
        let mut bytes = self.bytes("");
        bytes.truncate(bytes.len() - b"\r\n".len());
        bytes.into()
    }

    /// The request as bytes, of this weight.
    pub fn request(&self, weight: u32) -> Request {
        Request {
            name: format!("{} {}", self.method, self.target),
            weight,
            // Methods are case-sensitive, RFC 9110 section 9.1.
            method: match self.method {
                "HEAD" => Asked::Head,
                _ => Asked::Other,
            },
            bytes: self.bytes("").into(),
            last_bytes: self.bytes("Connection: close\r\n").into(),
            expect: None,
        }
    }

    fn bytes(&self, connection: &str) -> Vec<u8> {
        let mut text = format!("{} {} HTTP/1.1\r\n", self.method, self.target);
        let is_host = |(name, _): &(String, String)| name.eq_ignore_ascii_case("host");
        if !self.fields.iter().any(is_host) {
            let _ = write!(text, "Host: {}\r\n", self.host);
        }
        for (name, value) in self.fields {
            let _ = write!(text, "{name}: {value}\r\n");
        }
        // RFC 9110 section 8.6: a request that has no content, and whose method wants none, says no length.
        if let Some(body) = self.body {
            let _ = write!(text, "Content-Length: {}\r\n", body.len());
        }
        text.push_str(connection);
        text.push_str("\r\n");
        let mut bytes = text.into_bytes();
        bytes.extend_from_slice(self.body.unwrap_or_default());
        bytes
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parts<'a>(method: &'a str, target: &'a str) -> RequestParts<'a> {
        RequestParts {
            method,
            target,
            host: "h.test:80",
            fields: &[],
            body: None,
        }
    }

    fn fields(all: &[(&str, &str)]) -> Vec<(String, String)> {
        let owned = |(name, value): &(&str, &str)| ((*name).to_owned(), (*value).to_owned());
        all.iter().map(owned).collect()
    }

    /// The bytes before and behind the place where the last request says that it is the last one.
    fn check_bytes(parts: &RequestParts<'_>, before: &[u8], behind: &[u8]) {
        assert_eq!(parts.fault(), None);
        let request = parts.request(3);
        assert_eq!(request.bytes[..], [before, behind].concat());
        let last = [before, b"Connection: close\r\n", behind].concat();
        assert_eq!(request.last_bytes[..], last);
        assert_eq!(request.weight, 3);
    }

    #[test]
    fn writes_a_request_without_body_and_length() {
        let plain = parts("GET", "/a?b=c%20d");
        let before = b"GET /a?b=c%20d HTTP/1.1\r\nHost: h.test:80\r\n";
        check_bytes(&plain, before, b"\r\n");
        assert_eq!(plain.request(1).name, "GET /a?b=c%20d");
    }

    #[test]
    fn writes_fields_in_their_order_and_bodies_as_they_are() {
        let fields = fields(&[("Accept", "*/*"), ("X-\u{7e}", "\u{e9}\t x"), ("Empty", "")]);
        let body = b"\0\r\n\r\n\xff";
        let post = RequestParts {
            fields: &fields,
            body: Some(body),
            ..parts("POST", "/")
        };
        let before = "POST / HTTP/1.1\r\nHost: h.test:80\r\nAccept: */*\r\nX-~: \u{e9}\t x\r\n\
                      Empty: \r\nContent-Length: 6\r\n";
        assert_eq!(body.len(), 6);
        check_bytes(&post, before.as_bytes(), &[b"\r\n", &body[..]].concat());
    }

    #[test]
    fn says_the_length_of_an_empty_body() {
        let put = RequestParts {
            body: Some(b""),
            ..parts("PUT", "/")
        };
        let before = b"PUT / HTTP/1.1\r\nHost: h.test:80\r\nContent-Length: 0\r\n";
        check_bytes(&put, before, b"\r\n");
    }

    #[test]
    fn lets_a_given_host_take_the_targets_place() {
        let fields = fields(&[("hOsT", "other.test")]);
        let get = RequestParts {
            fields: &fields,
            ..parts("GET", "/")
        };
        check_bytes(&get, b"GET / HTTP/1.1\r\nhOsT: other.test\r\n", b"\r\n");
    }

    #[test]
    fn tells_head_from_what_only_looks_like_it() {
        for (method, expect) in [
            ("HEAD", Asked::Head),
            ("head", Asked::Other),
            ("HEADER", Asked::Other),
            ("GET", Asked::Other),
        ] {
            assert_eq!(parts(method, "/").request(1).method, expect, "{method}");
        }
    }

    #[test]
    fn refuses_what_would_be_another_request() {
        for method in ["", "GE T", "GET\r\n", "G:T", "G\u{c9}T"] {
            let expect = format!("`{method}` is no method");
            assert_eq!(parts(method, "/").fault(), Some(expect));
        }
        let targets = "|a|http://h.test/|/a b|/\r\nX: y|/\t|/\u{7f}|**";
        for target in targets.split('|') {
            let expect = format!("`{target}` is no request target");
            assert_eq!(parts("GET", target).fault(), Some(expect));
        }
        assert_eq!(parts("OPTIONS", "*").fault(), None);
    }

    #[test]
    fn refuses_fields_that_would_be_others() {
        let check = |name: &str, value: &str, expect: String| {
            let fields = fields(&[("Fine", "x"), (name, value)]);
            let get = RequestParts {
                fields: &fields,
                ..parts("GET", "/")
            };
            assert_eq!(get.fault(), Some(expect));
        };
        for name in ["", "a b", "a:", "a\r\nb", "\u{e9}"] {
            check(name, "x", format!("`{name}` is no header name"));
        }
        for value in ["a\r\nb: c", "a\nb", "\0", "\u{7f}", "\u{1b}[0m"] {
            let expect = "the value of `X` holds a control character";
            check("X", value, expect.to_owned());
        }
        for name in "Content-Length transfer-encoding CONNECTION Expect".split(' ') {
            let expect = format!("`{name}` is made by the generator itself");
            check(name, "1", expect);
        }
    }
}
