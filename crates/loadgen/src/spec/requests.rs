//! What is asked for, and what a reply has to be.
//!
//! Takes texts and files, gives kinds of requests as bytes, and for a recording when each is due.

use std::sync::Arc;

use super::reader::SpecReader;
use super::values::{self, ExpectedText};
use super::{Files, mix};
use crate::engine::Fault;
use crate::plan::{Arrival, Expect, ExpectBody, Request, RequestParts, Target};

/// Largest body; each is held twice, with and without the last request's head.
pub(super) const BODY_BYTES_MAX: u64 = 256 << 20;
/// Longest reply that can be expected.
pub(super) const LENGTH_BYTES_MAX: u64 = 1 << 40;

/// What all requests have in common.
pub(super) struct CommonParts<'a> {
    pub(super) host: &'a str,
    pub(super) fields: Vec<(String, String)>,
}

/// Kinds of requests, and of a recording when they are due. `None` beside a noted fault.
pub(super) fn requests(
    reading: &mut SpecReader<'_>,
    target: Option<&Target>,
    files: &dyn Files,
) -> (Option<Vec<Request>>, Option<Arc<[Arrival]>>) {
    let (host, path) = target.map_or(("", "/"), |target| (&target.host, &target.path));
    let common = CommonParts {
        host,
        fields: fields(reading),
    };
    let body = body(reading, files);
    together(reading);
    let before = reading.faults.len();
    let replay = reading.text("replay");
    let (kinds, arrivals) = if let Some(path) = reading.text("requests_file") {
        (mix(reading, path, &common, files), None)
    } else if let Some(path) = replay {
        replayed(reading, path, &common, body.as_deref(), files)
    } else {
        let default = if body.is_some() { "POST" } else { "GET" };
        let method = reading.text("method").unwrap_or(default);
        let made = reading.noted(one(method, path, &common, body.as_deref(), 1));
        (made.into_iter().collect(), None)
    };
    let requests = (reading.faults.len() == before).then_some(kinds);
    (requests, arrivals)
}

/// What a reply has to be.
pub(super) fn expect(reading: &mut SpecReader<'_>) -> Expect {
    Expect {
        statuses: reading
            .value("expect_status", values::statuses)
            .unwrap_or_default(),
        body_bytes: reading.value("expect_length", |text| {
            values::bytes(text, LENGTH_BYTES_MAX)
        }),
        body: reading
            .value("expect_body", expect_body)
            .unwrap_or_default(),
    }
}

/// `any`, `same`, `sha256:HEX`
pub(super) fn expect_body(text: &str) -> Result<ExpectBody, ExpectedText> {
    let expected = || "same, any, or sha256: and 64 hexadecimal digits".to_owned();
    match text {
        "any" => return Ok(ExpectBody::Any),
        "same" => return Ok(ExpectBody::SameAsFirst),
        _ => {}
    }
    let digits = text.strip_prefix("sha256:").ok_or_else(expected)?;
    let is_hex = digits.len() == 64 && digits.bytes().all(|byte| byte.is_ascii_hexdigit());
    let mut sum = [0; 32];
    for (at, byte) in sum.iter_mut().enumerate().filter(|_| is_hex) {
        let pair = digits.get(at * 2..at * 2 + 2).ok_or_else(expected)?;
        *byte = u8::from_str_radix(pair, 16).map_err(|_| expected())?;
    }
    is_hex
        .then_some(ExpectBody::Sha256(sum))
        .ok_or_else(expected)
}

/// One kind of request, or why it cannot be sent.
pub(super) fn one(
    method: &str,
    target: &str,
    common: &CommonParts<'_>,
    body: Option<&[u8]>,
    weight: u32,
) -> Result<Request, Fault> {
    let parts = RequestParts {
        method,
        target,
        host: common.host,
        fields: &common.fields,
        body,
    };
    // RFC 9110 section 9.3.6: after its reply the connection is no HTTP any more.
    if method == "CONNECT" {
        let hint = "it makes a tunnel of the connection";
        return Err(Fault::with_hint("request: CONNECT is not sent", hint));
    }
    match parts.fault() {
        Some(text) => Err(Fault::new(format!("request: {text}"))),
        None => Ok(parts.request(weight)),
    }
}

/// `Name: value`
pub(super) fn field(text: &str) -> Result<(String, String), ExpectedText> {
    let pair = text.split_once(':');
    let pair = pair.map(|(name, value)| (name.to_owned(), value.trim().to_owned()));
    pair.filter(|(name, _)| !name.is_empty() && name.trim() == name)
        .ok_or_else(|| "a header as `Name: value`".to_owned())
}

fn fields(reading: &mut SpecReader<'_>) -> Vec<(String, String)> {
    let texts = reading.texts("header");
    texts
        .iter()
        .filter_map(|text| reading.element("header", text, field))
        .collect()
}

fn body(reading: &mut SpecReader<'_>, files: &dyn Files) -> Option<Vec<u8>> {
    let remedy = "a request has one body: keep one of them";
    reading.one_of(&["body", "body_file", "body_size"], remedy);
    let size = reading.value("body_size", |text| values::bytes(text, BODY_BYTES_MAX));
    if let Some(text) = reading.text("body") {
        return Some(text.as_bytes().to_vec());
    }
    let path = reading.text("body_file");
    path.and_then(|path| reading.file("body_file", path, files))
        .or(size.map(made_body))
}

/// Letters and digits over and over: no byte of it needs an escape anywhere.
pub(super) fn made_body(bytes: u64) -> Vec<u8> {
    let letters = b"abcdefghijklmnopqrstuvwxyz0123456789";
    letters
        .iter()
        .copied()
        .cycle()
        .take(bytes as usize)
        .collect()
}

/// What says what is asked for excludes each other.
fn together(reading: &mut SpecReader<'_>) {
    let remedy = "each says what is asked for: keep one of them";
    reading.one_of(&["requests_file", "replay"], remedy);
    reading.one_of(
        &["method", "requests_file"],
        "write the methods into the file",
    );
    reading.one_of(&["method", "replay"], "a recording has its own methods");
    for name in ["body", "body_file", "body_size"] {
        reading.one_of(&[name, "requests_file"], "write the bodies into the file");
    }
    let remedy = "`--replay FILE` names a recording";
    reading.needs(&["replay_speed", "replay_methods"], "replay", remedy);
}

fn mix(
    reading: &mut SpecReader<'_>,
    path: &str,
    common: &CommonParts<'_>,
    files: &dyn Files,
) -> Vec<Request> {
    let Some(bytes) = reading.file("requests_file", path, files) else {
        return Vec::new();
    };
    match mix::kinds(path, bytes, common, files) {
        Ok(kinds) => kinds,
        Err(faults) => {
            reading.faults.extend(faults);
            Vec::new()
        }
    }
}

fn replayed(
    reading: &mut SpecReader<'_>,
    path: &str,
    common: &CommonParts<'_>,
    body: Option<&[u8]>,
    files: &dyn Files,
) -> (Vec<Request>, Option<Arc<[Arrival]>>) {
    let speed = reading.value("replay_speed", |text| values::positive(text, 1e6));
    let known = [("safe", false), ("all", true)];
    let takes_all = reading.value("replay_methods", |text| values::choice(text, &known));
    let made = || {
        let recording = files.recording(path.as_ref())?;
        match recording.unsafe_methods() {
            Some(fault) if takes_all != Some(true) => return Err(fault),
            _ => {}
        }
        let kinds = recording.kinds().iter().map(|(method, target)| {
            let body = (!is_safe(method)).then(|| body.unwrap_or_default());
            one(method, target, common, body, 0)
        });
        let kinds = kinds.collect::<Result<Vec<Request>, Fault>>()?;
        Ok((kinds, recording.arrivals(speed.unwrap_or(1.0))))
    };
    let (kinds, arrivals) = reading.noted(made()).unzip();
    (kinds.unwrap_or_default(), arrivals)
}

/// Methods that ask for nothing to be changed, RFC 9110 section 9.2.1, and are sent without a body.
pub(super) fn is_safe(method: &str) -> bool {
    ["GET", "HEAD", "OPTIONS"].contains(&method)
}
