//! Fields: between the header maps of the `h2` crate and what the rest of the server has.
//!
//! Takes a request as the crate has decoded it, gives its head, judged; takes the head of a response, gives it as
//! the crate encodes it. Knows no stream.

use http::{BodyState, HeadIndex, Limits, SharedFields};
use http_types::header::{HeaderMap, HeaderName, HeaderValue};
use http_types::{Request, Response, StatusCode};

use super::priority::Priority;
use crate::response::ResponseHead;

/// Judges a request; on success `block` is its head, into which `index` points. A fragment of `:path` is not judged: the
/// `http` crate has left it out, and what of the target is left is what all others see.
pub(super) fn judge<T>(
    request: &Request<T>,
    body: BodyState,
    limits: &Limits,
    index: &mut HeadIndex,
    block: &mut Vec<u8>,
) -> Result<(), http::Refusal> {
    let uri = request.uri();
    // The crate drops a scheme without an authority, having checked that it is there.
    let scheme = uri.scheme_str().unwrap_or("http");
    let method = request.method().as_str();
    let path = uri.path_and_query().map_or("", |path| path.as_str());
    let protocol = request.extensions().get::<h2::ext::Protocol>();
    let is_connect = method == "CONNECT" && protocol.is_none();
    let pseudo = [
        (":method", Some(method)),
        (":scheme", Some(scheme).filter(|_| !is_connect)),
        (":authority", uri.authority().map(|it| it.as_str())),
        (":path", Some(path).filter(|_| !is_connect)),
        (":protocol", protocol.map(h2::ext::Protocol::as_str)),
    ];
    let fields = || {
        let pseudo = pseudo
            .iter()
            .filter_map(|(name, value)| value.map(|value| (name.as_bytes(), value.as_bytes())));
        pseudo.chain(pairs(request.headers()))
    };
    index.parse_decoded(fields, body, limits, block)
}

/// The line by which the log names a request that is refused: of method and target alone.
pub(super) fn request_line<T>(request: &Request<T>) -> Vec<u8> {
    let path = request
        .uri()
        .path_and_query()
        .map_or("*", |path| path.as_str());
    format!("{} {path} HTTP/2.0", request.method()).into_bytes()
}

/// What the request says of its priority.
pub(super) fn priority<T>(request: &Request<T>) -> Priority {
    let field = request.headers().get("priority");
    field.map_or_else(Priority::default, |field| Priority::read(field.as_bytes()))
}

/// Names and values, in the crate's order.
pub(super) fn pairs(map: &HeaderMap) -> impl Iterator<Item = (&[u8], &[u8])> {
    map.iter()
        .map(|(name, value)| (name.as_str().as_bytes(), value.as_bytes()))
}

/// The head of a response; what is about an HTTP/1 connection stays out (RFC 9113 section 8.2.2).
pub(super) fn response(head: &ResponseHead) -> Response<()> {
    let mut response = Response::new(());
    let status = StatusCode::from_u16(head.status);
    *response.status_mut() = status.expect("a status has three digits");
    append(response.headers_mut(), &head.fields);
    response
}

fn append(map: &mut HeaderMap, fields: &SharedFields) {
    map.reserve(FIELDS_LEN_EXPECTED);
    for (name, value) in fields.iter_shared() {
        if http::is_connection_field(name) {
            continue;
        }
        // Lines of a response are made of valid names and values only.
        let value = HeaderValue::from_maybe_shared(value);
        if let (Ok(name), Ok(value)) = (HeaderName::from_bytes(name), value) {
            // Beyond 32,768 fields; no client takes so many.
            let _ = map.try_append(name, value);
        }
    }
}

/// Fields behind a body.
pub(super) fn trailers(fields: &SharedFields) -> HeaderMap {
    let mut map = HeaderMap::new();
    append(&mut map, fields);
    map
}

/// Fields of most responses.
const FIELDS_LEN_EXPECTED: usize = 12;

/// An interim response (RFC 9110 section 15.2).
pub(super) fn interim(status: StatusCode) -> Response<()> {
    let mut response = Response::new(());
    *response.status_mut() = status;
    response
}

/// An interim response with fields.
pub(super) fn interim_with(status: StatusCode, fields: &SharedFields) -> Response<()> {
    let mut response = interim(status);
    append(response.headers_mut(), fields);
    response
}

/// Whether a head says that no byte of a body follows it.
pub(super) fn is_bodiless(head: &ResponseHead, is_head: bool) -> bool {
    let is_empty = head.fields.get(b"content-length") == Some(b"0") && !head.has_trailers;
    is_head || matches!(head.status, 204 | 304) || is_empty
}
