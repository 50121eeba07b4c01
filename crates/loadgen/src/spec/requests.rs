//! What is asked for, and what a reply has to be.
//!
//! Takes texts and files, gives kinds of requests as bytes, and for a recording when each is due.

use std::sync::Arc;

use http::Asked;
use http::websocket::{MessageKind, apply_mask, write_message_header};

use super::reader::SpecReader;
use super::values::{self, ExpectedText};
use super::{Files, mix};
use crate::engine::{Fault, SWITCHING_PROTOCOLS};
use crate::plan::{Arrival, Expect, ExpectBody, Request, RequestParts, Target};

/// Largest body; each is held twice, with and without the last request's head.
const BODY_BYTES_MAX: u64 = 256 << 20;
/// Longest reply that can be expected.
const LENGTH_BYTES_MAX: u64 = 1 << 40;
/// Greatest weight of one kind of request.
const WEIGHT_MAX: u64 = 1_000_000;

/// What a request has a body from, at most one of them.
const BODIES: [&str; 3] = ["body", "body_file", "body_size"];
/// Of a message, unless something else is said.
const MESSAGE_BYTES: u64 = 64;

/// What is expected of a reply.
const EXPECTATIONS: [&str; 3] = ["expect_status", "expect_length", "expect_body"];

/// What is sent.
pub(super) struct Requests {
    /// `None` beside a noted fault.
    pub(super) kinds: Option<Vec<Request>>,
    /// Of a recording, when they are due.
    pub(super) arrivals: Option<Arc<[Arrival]>>,
    /// Of WebSocket, what its handshakes begin with.
    pub(super) upgrade: Option<Arc<[u8]>>,
}

/// Kinds of requests.
pub(super) fn requests(
    reading: &mut SpecReader<'_>,
    target: Option<&Target>,
    files: &dyn Files,
) -> Requests {
    let (host, path) = target.map_or(("", "/"), |target| (&target.host, &target.path));
    let (fields, body) = (fields(reading), body(reading, files));
    together(reading);
    if reading.is_given("websocket") {
        let common = RequestParts {
            method: "GET",
            target: path,
            host,
            fields: &fields,
            body: None,
        };
        return messages(reading, &common, body);
    }
    // Faults of other keys do not matter here: what is asked for is looked at all the same.
    let before = reading.faults.len();
    let common = RequestParts {
        method: method(reading, body.is_some()),
        target: path,
        host,
        fields: &fields,
        body: body.as_deref(),
    };
    let (kinds, arrivals) = if let Some(path) = reading.text("requests_file") {
        (mix(reading, path, &common, files), None)
    } else if let Some(path) = reading.text("replay") {
        replayed(reading, path, &common, files)
    } else {
        (reading.noted(one(&common, 1)).into_iter().collect(), None)
    };
    Requests {
        kinds: (reading.faults.len() == before).then_some(kinds),
        arrivals,
        upgrade: None,
    }
}

/// The messages of WebSocket, of which there is one kind.
fn messages(
    reading: &mut SpecReader<'_>,
    handshake: &RequestParts<'_>,
    body: Option<Vec<u8>>,
) -> Requests {
    let is_text = reading.text("body").is_some();
    let payload = body.unwrap_or_else(|| made_body(MESSAGE_BYTES));
    let fault = handshake
        .fault()
        .map(|text| Fault::new(format!("request: {text}")));
    let upgrade = handshake.upgrade();
    let bytes: Arc<[u8]> = masked(&payload, is_text).into();
    let kind = Request {
        name: format!("message of {} bytes", payload.len()),
        weight: 1,
        method: Asked::Other,
        last_bytes: Arc::clone(&bytes),
        bytes,
        expect: None,
    };
    Requests {
        kinds: reading.noted(fault.map_or(Ok(vec![kind]), Err)),
        arrivals: None,
        upgrade: Some(upgrade),
    }
}

/// A message as a client sends it.
fn masked(payload: &[u8], is_text: bool) -> Vec<u8> {
    let kind = match is_text {
        true => MessageKind::Text,
        false => MessageKind::Binary,
    };
    let key = fastrand::u32(..).to_ne_bytes();
    let mut bytes = Vec::new();
    write_message_header(kind, payload.len(), Some(key), &mut bytes);
    let header_bytes = bytes.len();
    bytes.extend_from_slice(payload);
    apply_mask(&mut bytes[header_bytes..], key);
    bytes
}

/// The kind of request that a table of a mix describes. `common`: what all requests have.
pub(super) fn table(
    reading: &mut SpecReader<'_>,
    common: &RequestParts<'_>,
    files: &dyn Files,
) -> Result<Request, Fault> {
    let weight = reading.count("weight", 0, WEIGHT_MAX).unwrap_or(1);
    let (mut own, body) = (fields(reading), body(reading, files));
    let has_own = EXPECTATIONS.iter().any(|name| reading.is_given(name));
    let expect = has_own.then(|| expect(reading));
    // A field of the table takes the place of one that all requests have.
    let is_own = |name: &str| own.iter().any(|(own, _)| name.eq_ignore_ascii_case(own));
    let shared = common.fields.iter().filter(|(name, _)| !is_own(name));
    let fields: Vec<_> = shared.cloned().collect();
    own.splice(..0, fields);
    let parts = RequestParts {
        method: method(reading, body.is_some()),
        // Without one the caller has noted a fault.
        target: reading.text("target").unwrap_or("/"),
        fields: &own,
        body: body.as_deref(),
        ..*common
    };
    Ok(Request {
        expect,
        ..one(&parts, weight as u32)?
    })
}

/// What a reply has to be.
pub(super) fn expect(reading: &mut SpecReader<'_>) -> Expect {
    let statuses = reading.value("expect_status", values::statuses);
    let body = reading.value("expect_body", expect_body);
    let switched = reading
        .is_given("websocket")
        .then(|| vec![SWITCHING_PROTOCOLS]);
    Expect {
        statuses: statuses.or(switched).unwrap_or_default(),
        body_bytes: reading.value("expect_length", |text| {
            values::bytes(text, LENGTH_BYTES_MAX)
        }),
        body: body.unwrap_or_default(),
    }
}

/// `any`, `same`, `sha256:HEX`
fn expect_body(text: &str) -> Result<ExpectBody, ExpectedText> {
    let sum = |digits: &str| {
        let is_hex = digits.len() == 64 && digits.bytes().all(|byte| byte.is_ascii_hexdigit());
        let pair = |at: usize| u8::from_str_radix(&digits[at * 2..at * 2 + 2], 16);
        let byte = |at| pair(at).expect("all of them are hexadecimal digits");
        is_hex.then(|| ExpectBody::Sha256(std::array::from_fn(byte)))
    };
    let found = match text {
        "any" => Some(ExpectBody::Any),
        "same" => Some(ExpectBody::SameAsFirst),
        _ => text.strip_prefix("sha256:").and_then(sum),
    };
    found.ok_or_else(|| "same, any, or sha256: and 64 hexadecimal digits".to_owned())
}

/// One kind of request, or why it cannot be sent.
fn one(parts: &RequestParts<'_>, weight: u32) -> Result<Request, Fault> {
    // RFC 9110 section 9.3.6: after its reply the connection is no HTTP any more.
    if parts.method == "CONNECT" {
        let hint = "it makes a tunnel of the connection";
        return Err(Fault::with_hint("request: CONNECT is not sent", hint));
    }
    match parts.fault() {
        Some(text) => Err(Fault::new(format!("request: {text}"))),
        None => Ok(parts.request(weight)),
    }
}

fn method<'w>(reading: &SpecReader<'w>, has_body: bool) -> &'w str {
    let default = if has_body { "POST" } else { "GET" };
    reading.text("method").unwrap_or(default)
}

/// `Name: value`
fn field(text: &str) -> Result<(String, String), ExpectedText> {
    let pair = text.split_once(':');
    let pair = pair.map(|(name, value)| (name.to_owned(), value.trim().to_owned()));
    pair.filter(|(name, _)| !name.is_empty() && name.trim() == name)
        .ok_or_else(|| "a header as `Name: value`".to_owned())
}

fn fields(reading: &mut SpecReader<'_>) -> Vec<(String, String)> {
    let texts = reading.texts("header").iter();
    texts
        .filter_map(|text| reading.element("header", text, field))
        .collect()
}

fn body(reading: &mut SpecReader<'_>, files: &dyn Files) -> Option<Vec<u8>> {
    reading.one_of(&BODIES, "a request has one body: keep one of them");
    let size = reading.value("body_size", |text| values::bytes(text, BODY_BYTES_MAX));
    if let Some(text) = reading.text("body") {
        return Some(text.as_bytes().to_vec());
    }
    let path = reading.text("body_file");
    path.and_then(|path| reading.file("body_file", path, files))
        .or(size.map(made_body))
}

fn made_body(bytes: u64) -> Vec<u8> {
    // Letters and digits: no byte of it needs an escape anywhere.
    let letters = b"abcdefghijklmnopqrstuvwxyz0123456789";
    let mut body = letters.repeat(bytes as usize / letters.len() + 1);
    body.truncate(bytes as usize);
    body
}

fn together(reading: &mut SpecReader<'_>) {
    // What says what is asked for excludes each other.
    let remedy = "each says what is asked for: keep one of them";
    reading.one_of(&["requests_file", "replay"], remedy);
    reading.one_of(
        &["method", "requests_file"],
        "write the methods into the file",
    );
    reading.one_of(&["method", "replay"], "a recording has its own methods");
    for name in BODIES {
        reading.one_of(&[name, "requests_file"], "write the bodies into the file");
    }
    let remedy = "`--replay FILE` names a recording";
    reading.needs(&["replay_speed", "replay_methods"], "replay", remedy);
}

fn mix(
    reading: &mut SpecReader<'_>,
    path: &str,
    common: &RequestParts<'_>,
    files: &dyn Files,
) -> Vec<Request> {
    let bytes = reading.file("requests_file", path, files);
    let made = bytes.map(|bytes| mix::kinds(path, &bytes, common, files));
    made.unwrap_or(Ok(Vec::new())).unwrap_or_else(|faults| {
        reading.faults.extend(faults);
        Vec::new()
    })
}

fn replayed(
    reading: &mut SpecReader<'_>,
    path: &str,
    common: &RequestParts<'_>,
    files: &dyn Files,
) -> (Vec<Request>, Option<Arc<[Arrival]>>) {
    let speed = reading.value("replay_speed", |text| values::positive(text, 1e6));
    let known = [("safe", false), ("all", true)];
    let takes_all = reading.choice("replay_methods", &known);
    let made = || {
        let recording = files.recording(path.as_ref())?;
        match recording.unsafe_methods() {
            Some(fault) if takes_all != Some(true) => return Err(fault),
            _ => {}
        }
        let kinds = recording.kinds().iter().map(|(method, target)| {
            // A log has no bodies, and methods that are safe are sent without one.
            let body = (!is_safe(method)).then(|| common.body.unwrap_or_default());
            let parts = RequestParts {
                method,
                target,
                body,
                ..*common
            };
            one(&parts, 0)
        });
        let kinds = kinds.collect::<Result<Vec<Request>, Fault>>()?;
        Ok((kinds, recording.arrivals(speed.unwrap_or(1.0))))
    };
    let (kinds, arrivals) = reading.noted(made()).unzip();
    (kinds.unwrap_or_default(), arrivals)
}

/// Methods that ask for nothing to be changed.
pub(super) fn is_safe(method: &str) -> bool {
    // RFC 9110 section 9.2.1, but for TRACE, which most servers refuse.
    ["GET", "HEAD", "OPTIONS"].contains(&method)
}
