//! One stream of HTTP/2 to an upstream: a request that goes out, and the parts of its response as they come.
//!
//! Which fields a request has, and what is no response, is decided once, for the text of HTTP/1.1: a head is given here
//! as `UpstreamRequest` has written it, and the head of a response leaves as the text that `UpstreamResponse` judges. Fields
//! about a connection of HTTP/1.1 stay out; the `h2` crate refuses them in responses (RFC 9113 section 8.2.2).

use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use h2::client::ResponseFuture;
use h2::{RecvStream, SendStream};
use http::upstream::{RequestFault, UpstreamHeadStep, UpstreamResponse};
use http::{Asked, FieldLines, InvalidField, Limits};
use http_types::header::{CONTENT_LENGTH, HeaderMap, HeaderName, HeaderValue};
use http_types::uri::{Authority, PathAndQuery};
use http_types::{Method, Request, StatusCode, Uri};

use super::fault::UpstreamFault;
use super::http2::{StreamPlace, fault_of};

/// A request that was sent, but for its body, and its response. Dropped before its end, it is reset.
pub(super) struct Http2Stream {
    /// `None` once the request has ended.
    body: Option<SendStream<Bytes>>,
    response: StreamResponse,
    is_head: bool,
    place: StreamPlace,
}

enum StreamResponse {
    Head(ResponseFuture),
    Body(RecvStream),
    Ended,
}

/// What comes of a response, in this order.
pub(super) enum ResponsePart {
    /// The head of an interim response, as the text of HTTP/1.1.
    Interim(Vec<u8>),
    /// The final head, likewise.
    Head(Vec<u8>),
    /// Some of the body; `Http2Stream::release` makes room for as much again.
    Data(Bytes),
    /// Fields behind the body, where there are any; nothing follows.
    End(FieldLines),
}

impl Http2Stream {
    /// Sends the head of a request, given as the text of HTTP/1.1; `scheme` is that of the connection.
    ///
    /// # Errors
    /// It cannot be sent on this connection, and was not.
    pub(super) fn open(
        place: StreamPlace,
        head: &[u8],
        scheme: &str,
        has_body: bool,
    ) -> Result<Self, UpstreamFault> {
        let request = request_of(head, scheme)?;
        let is_head = request.method() == Method::HEAD;
        let opened = place.send().send_request(request, !has_body);
        let (response, body) = opened.map_err(|error| match fault_of(&error) {
            // The crate has sent nothing.
            UpstreamFault::Http2Violation => UpstreamFault::Closed,
            fault => fault,
        })?;
        Ok(Self {
            body: has_body.then_some(body),
            response: StreamResponse::Head(response),
            is_head,
            place,
        })
    }

    /// What the rest of the body is sent by; `None`: there is none.
    pub(super) fn body(&mut self) -> Option<&mut SendStream<Bytes>> {
        self.body.as_mut()
    }

    /// The next part of the response. Not behind its end.
    pub(super) fn poll_part(
        &mut self,
        context: &mut Context<'_>,
    ) -> Poll<Result<ResponsePart, UpstreamFault>> {
        let fault = |error| fault_of(&error);
        match &mut self.response {
            StreamResponse::Head(response) => {
                if let Poll::Ready(Some(interim)) = response.poll_informational(context) {
                    let interim = interim.map_err(fault)?;
                    let head = head_text(interim.status(), interim.headers(), Length::Unknown);
                    return Poll::Ready(head.map(ResponsePart::Interim));
                }
                let response = ready!(Pin::new(response).poll(context)).map_err(fault)?;
                let (parts, received) = response.into_parts();
                let is_whole = received.is_end_stream() && !self.is_head;
                let length = match is_whole && parts.status != StatusCode::NOT_MODIFIED {
                    true => Length::Zero,
                    false => Length::Unknown,
                };
                self.response = StreamResponse::Body(received);
                let head = head_text(parts.status, &parts.headers, length);
                Poll::Ready(head.map(ResponsePart::Head))
            }
            StreamResponse::Body(received) => {
                if let Some(data) = ready!(received.poll_data(context)) {
                    return Poll::Ready(data.map(ResponsePart::Data).map_err(fault));
                }
                let trailers = ready!(received.poll_trailers(context)).map_err(fault)?;
                self.response = StreamResponse::Ended;
                Poll::Ready(Ok(ResponsePart::End(trailer_lines(trailers.as_ref()))))
            }
            StreamResponse::Ended => Poll::Ready(Ok(ResponsePart::End(FieldLines::new()))),
        }
    }

    /// Waits for the final head, as the text of HTTP/1.1. Before any part of the response.
    ///
    /// # Errors
    /// There is none.
    pub(super) async fn final_head(&mut self) -> Result<Vec<u8>, UpstreamFault> {
        loop {
            match poll_fn(|context| self.poll_part(context)).await? {
                ResponsePart::Head(head) => return Ok(head),
                ResponsePart::Interim(_) | ResponsePart::Data(_) | ResponsePart::End(_) => {}
            }
        }
    }

    /// Lets the server send as many bytes more.
    pub(super) fn release(&mut self, bytes: usize) {
        if let StreamResponse::Body(received) = &mut self.response {
            // An error means that the stream has ended.
            let _ = received.flow_control().release_capacity(bytes);
        }
    }

    /// A try has failed so: where the connection may be to blame, it gets no further streams.
    pub(super) fn retire_after(&self, fault: UpstreamFault) {
        match fault {
            // A server that is silent may be gone, and what breaks the rules of one stream may break those of all.
            UpstreamFault::Silent | UpstreamFault::Closed | UpstreamFault::Http2Violation => {
                self.place.retire();
            }
            _ => {}
        }
    }
}

/// The request whose head this server has written as text.
fn request_of(head: &[u8], scheme: &str) -> Result<Request<()>, UpstreamFault> {
    let unwritable = UpstreamFault::Unwritable;
    let mut lines = head.split(|&byte| byte == b'\n').map(|line| {
        let line = line.strip_suffix(b"\r");
        line.unwrap_or_default()
    });
    let mut words = lines.next().unwrap_or_default().split(|&byte| byte == b' ');
    let (method, target) = (words.next(), words.next());
    let method = method.and_then(|method| Method::from_bytes(method).ok());
    let mut request = Request::new(());
    *request.method_mut() = method.ok_or(unwritable(RequestFault::Target))?;
    let mut authority = &b""[..];
    let fields = lines.take_while(|line| !line.is_empty());
    for line in fields {
        let colon = line.iter().position(|&byte| byte == b':');
        let (name, value) = line.split_at(colon.unwrap_or(line.len()));
        let value = value.get(2..).unwrap_or_default();
        if name.eq_ignore_ascii_case(b"host") {
            authority = value;
        } else if !http::is_connection_field(name) {
            let field = |_| unwritable(RequestFault::Field(InvalidField::Value));
            let value = HeaderValue::from_bytes(value).map_err(field)?;
            let name = HeaderName::from_bytes(name)
                .map_err(|_| unwritable(RequestFault::Field(InvalidField::Name)))?;
            request.headers_mut().append(name, value);
        }
    }
    let uri = uri_of(scheme, authority, target.unwrap_or_default());
    *request.uri_mut() = uri.map_err(unwritable)?;
    Ok(request)
}

/// What a request is for. Its target is as sent where the crate takes it so; else it is escaped, which means the same.
fn uri_of(scheme: &str, authority: &[u8], target: &[u8]) -> Result<Uri, RequestFault> {
    let authority = Authority::try_from(authority).map_err(|_| RequestFault::Host)?;
    let target = PathAndQuery::try_from(target)
        .or_else(|_| PathAndQuery::try_from(escaped(target)))
        .map_err(|_| RequestFault::Target)?;
    let uri = Uri::builder().scheme(scheme).authority(authority);
    let uri = uri.path_and_query(target).build();
    uri.map_err(|_| RequestFault::Target)
}

/// A target of visible ASCII without the bytes that RFC 3986 section 3.3 and 3.4 have in no path and no query.
fn escaped(target: &[u8]) -> Vec<u8> {
    const PLAIN: &[u8] = b"-._~!$&'()*+,;=:@/?%";
    let mut escaped = Vec::with_capacity(target.len() + 16);
    for byte in target {
        match byte.is_ascii_alphanumeric() || PLAIN.contains(byte) {
            true => escaped.push(*byte),
            false => escaped.extend_from_slice(format!("%{byte:02X}").as_bytes()),
        }
    }
    escaped
}

/// What is known of the length of a body whose head says nothing of it.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Length {
    Unknown,
    /// The head has ended the stream.
    Zero,
}

/// A head as the text of HTTP/1.1.
fn head_text(
    status: StatusCode,
    fields: &HeaderMap,
    length: Length,
) -> Result<Vec<u8>, UpstreamFault> {
    let is_untold = length == Length::Zero && !fields.contains_key(CONTENT_LENGTH);
    let zero = is_untold.then_some((&b"content-length"[..], &b"0"[..]));
    let fields = fields.iter();
    let fields = fields.map(|(name, value)| (name.as_str().as_bytes(), value.as_bytes()));
    let text = UpstreamResponse::text(status.as_u16(), fields.chain(zero));
    text.map_err(UpstreamFault::Malformed)
}

/// Judges a final head that came whole; gives what it says, and the fields for the client.
///
/// # Errors
/// It is no response.
pub(super) fn final_response(
    head: &[u8],
    asked: Asked,
    limits: &Limits,
) -> Result<(UpstreamResponse, FieldLines), UpstreamFault> {
    let mut fields = FieldLines::new();
    match UpstreamResponse::parse(head, &mut 0, asked, limits, &mut fields) {
        Ok(UpstreamHeadStep::Complete(response)) => Ok((response, fields)),
        // The text ends with an empty line.
        Ok(UpstreamHeadStep::Partial) => Err(UpstreamFault::Http2Violation),
        Err(fault) => Err(UpstreamFault::Malformed(fault)),
    }
}

/// The trailer fields that are meant for the client; those that may stand in a head alone are left out (RFC 9110
/// section 6.5.1).
fn trailer_lines(trailers: Option<&HeaderMap>) -> FieldLines {
    let mut lines = FieldLines::new();
    for (name, value) in trailers.into_iter().flatten() {
        let name = name.as_str().as_bytes();
        if http::is_trailer_name(name) && !http::is_connection_field(name) {
            // What cannot be a field is no loss.
            let _ = lines.try_push(name, value.as_bytes());
        }
    }
    lines
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn escapes_what_a_target_of_http2_cannot_have() {
        let check = |target: &str, expect: &str| {
            let uri = uri_of("http", b"h:81", target.as_bytes());
            assert_eq!(uri.unwrap().path_and_query().unwrap(), expect, "{target}");
        };
        check("/a|b/[c]?d=[e]&f=%g|'", "/a|b/[c]?d=[e]&f=%g|'");
        check("/a`b", "/a%60b");
        check("/?x=^`<>\"{}\\", "/?x=%5E%60%3C%3E%22%7B%7D%5C");
        check("/%zz?a?b/<", "/%zz?a?b/%3C");
        check("*", "*");
        // All that a request over HTTP/1.1 may have.
        for byte in (0x21..=0x7e_u8).filter(|byte| *byte != b'#') {
            let target = [b"/a".as_slice(), &[byte], b"?a", &[byte]].concat();
            assert!(uri_of("http", b"h", &target).is_ok(), "{byte:#x}");
        }
    }

    #[test]
    fn says_what_cannot_be_asked_for() {
        let long = [b"/".as_slice(), &[b'a'; 70_000]].concat();
        assert_eq!(uri_of("http", b"h", &long), Err(RequestFault::Target));
        assert_eq!(uri_of("http", b"a%20b", b"/"), Err(RequestFault::Host));
        assert!(uri_of("http", b"[::1]:81", b"/").is_ok());
    }
}
