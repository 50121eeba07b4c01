//! Rules for what an application says in `start_response`, on bytes alone: the status, the header lines,
//! and which of them the server has to know about.
//!
//! Takes latin-1 bytes, gives finished `Name: value\r\n` lines or the rule that was broken. Touches no
//! interpreter.

use std::fmt;
use std::ops::Range;

use wire::{FieldLines, InvalidField};

/// A status as an application writes it, `404 Not Found`.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Status {
    pub(crate) code: u16,
    /// Where the reason phrase lies in the text; empty when there is none.
    pub(crate) reason: Range<usize>,
}

/// What a header line means to the server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Meaning {
    Nothing,
    ContentLength(u64),
    Date,
    Server,
    /// Bytes a second that this reply may have, 0 for no limit: meant for the server, not for the client.
    LimitRate(u64),
}

/// A rule that the application broke.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Broken {
    StatusForm,
    StatusInterim,
    StatusText,
    Name,
    Value,
    HopByHop,
    Length,
    Rate,
}

impl fmt::Display for Broken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Broken::StatusForm => {
                "status must be three digits, a space and a reason, like '200 OK'"
            }
            Broken::StatusInterim => "a 1xx status is no reply",
            Broken::StatusText => "status must not contain control characters",
            Broken::Name => "header name must be a token of RFC 9110 section 5.6.2",
            Broken::Value => "header value must not contain control characters",
            Broken::HopByHop => "hop-by-hop headers belong to the server (PEP 3333)",
            Broken::Length => "Content-Length must be a decimal number",
            Broken::Rate => "X-Accel-Limit-Rate must be a decimal number of bytes a second, or off",
        })
    }
}

/// Reads `NNN reason`; the space and the reason may be absent (RFC 9112 section 4 allows an empty reason).
pub(crate) fn status(text: &[u8]) -> Result<Status, Broken> {
    let [a @ b'0'..=b'9', b @ b'0'..=b'9', c @ b'0'..=b'9', rest @ ..] = text else {
        return Err(Broken::StatusForm);
    };
    if !rest.is_empty() && rest[0] != b' ' {
        return Err(Broken::StatusForm);
    }
    if !wire::is_field_value(rest) {
        return Err(Broken::StatusText);
    }
    let code = u16::from(a - b'0') * 100 + u16::from(b - b'0') * 10 + u16::from(c - b'0');
    match code {
        0..=99 => Err(Broken::StatusForm),
        // RFC 9110 section 15.2: the client would go on waiting for the final reply.
        100..=199 => Err(Broken::StatusInterim),
        _ => Ok(Status {
            code,
            reason: text.len().min(4)..text.len(),
        }),
    }
}

/// Appends one header line, after checking it; one that is meant for the server alone leaves no line.
pub(crate) fn append(out: &mut FieldLines, name: &[u8], value: &[u8]) -> Result<Meaning, Broken> {
    let meaning = meaning(name, value)?;
    if let Meaning::LimitRate(_) = meaning {
        return match wire::is_field_value(value) {
            true => Ok(meaning),
            false => Err(Broken::Value),
        };
    }
    out.try_push(name, value).map_err(|invalid| match invalid {
        InvalidField::Name => Broken::Name,
        InvalidField::Value => Broken::Value,
    })?;
    Ok(meaning)
}

fn meaning(name: &[u8], value: &[u8]) -> Result<Meaning, Broken> {
    let is = |known: &[u8]| name.eq_ignore_ascii_case(known);
    let hop_by_hop = match name.len() {
        2 => is(b"te"),
        4 if is(b"date") => return Ok(Meaning::Date),
        6 if is(b"server") => return Ok(Meaning::Server),
        7 => is(b"trailer") || is(b"upgrade"),
        8 => is(b"trailers"),
        10 => is(b"connection") || is(b"keep-alive"),
        14 if is(b"content-length") => return length(value).map(Meaning::ContentLength),
        16 => is(b"proxy-connection"),
        17 => is(b"transfer-encoding"),
        18 if is(b"x-accel-limit-rate") => return rate(value),
        18 => is(b"proxy-authenticate"),
        19 => is(b"proxy-authorization"),
        _ => false,
    };
    if hop_by_hop {
        Err(Broken::HopByHop)
    } else {
        Ok(Meaning::Nothing)
    }
}

fn rate(value: &[u8]) -> Result<Meaning, Broken> {
    if value.trim_ascii().eq_ignore_ascii_case(b"off") {
        return Ok(Meaning::LimitRate(0));
    }
    length(value)
        .map(Meaning::LimitRate)
        .map_err(|_| Broken::Rate)
}

fn length(value: &[u8]) -> Result<u64, Broken> {
    let digits = value.trim_ascii();
    if digits.is_empty() || digits.len() > 19 || !digits.iter().all(u8::is_ascii_digit) {
        return Err(Broken::Length);
    }
    Ok(digits
        .iter()
        .fold(0, |sum, digit| sum * 10 + u64::from(digit - b'0')))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_statuses_and_names_the_broken_rule() {
        let check = |text: &str, expect: Result<(u16, &str), Broken>| {
            let found = status(text.as_bytes()).map(|status| (status.code, &text[status.reason]));
            assert_eq!(found, expect, "{text:?}");
        };
        check("200 OK", Ok((200, "OK")));
        check("404 Not Found", Ok((404, "Not Found")));
        check("200 ", Ok((200, "")));
        check("204", Ok((204, "")));
        check("999 Odd", Ok((999, "Odd")));
        check("200OK", Err(Broken::StatusForm));
        check("20 OK", Err(Broken::StatusForm));
        check("", Err(Broken::StatusForm));
        check("OK", Err(Broken::StatusForm));
        check(" 200 OK", Err(Broken::StatusForm));
        check("000 Nil", Err(Broken::StatusForm));
        check("101 Switching Protocols", Err(Broken::StatusInterim));
        check("200 OK\r\nX: y", Err(Broken::StatusText));
        check("200 OK\n", Err(Broken::StatusText));
    }

    #[test]
    fn writes_header_lines_and_tells_what_they_mean() {
        let check = |name: &str, value: &str, expect: Result<Meaning, Broken>| {
            let mut out = FieldLines::new();
            assert_eq!(
                append(&mut out, name.as_bytes(), value.as_bytes()),
                expect,
                "{name}: {value}"
            );
            let line = format!("{name}: {value}\r\n");
            let expect = if expect.is_ok() { line.as_bytes() } else { b"" };
            assert_eq!(out.as_bytes(), expect);
        };
        check("Content-Type", "text/plain", Ok(Meaning::Nothing));
        check("X-Empty", "", Ok(Meaning::Nothing));
        check("X-Tab", "a\tb", Ok(Meaning::Nothing));
        check("content-LENGTH", "1234", Ok(Meaning::ContentLength(1234)));
        check("Date", "x", Ok(Meaning::Date));
        check("server", "x", Ok(Meaning::Server));
        check("Content-Length", "", Err(Broken::Length));
        check("Content-Length", "-1", Err(Broken::Length));
        check("Content-Length", "0x10", Err(Broken::Length));
        check(
            "Content-Length",
            "99999999999999999999",
            Err(Broken::Length),
        );
        check("X-Accel-Limit-Rate", "1k", Err(Broken::Rate));
        check("", "x", Err(Broken::Name));
        check("X Y", "x", Err(Broken::Name));
        check("X:", "x", Err(Broken::Name));
        check("X-A\r\nB", "x", Err(Broken::Name));
        check("X-A", "a\r\nX-B: c", Err(Broken::Value));
        check("X-A", "a\nb", Err(Broken::Value));
        check("X-A", "a\0b", Err(Broken::Value));
        check("X-A", "a\x7fb", Err(Broken::Value));
        let mut out = FieldLines::new();
        let limit = append(&mut out, b"x-accel-limit-rate", b"1000");
        assert_eq!(limit, Ok(Meaning::LimitRate(1000)));
        // As nginx has it.
        let limit = append(&mut out, b"X-Accel-Limit-Rate", b"off");
        assert_eq!(limit, Ok(Meaning::LimitRate(0)));
        assert!(out.is_empty());
        check("X-Accel-Limit-Rate", "1000\r\n", Err(Broken::Value));
        for name in [
            "Connection",
            "keep-alive",
            "Proxy-Authenticate",
            "Proxy-Authorization",
            "TE",
            "Trailer",
            "Trailers",
            "Transfer-Encoding",
            "Upgrade",
            "Proxy-Connection",
        ] {
            check(name, "x", Err(Broken::HopByHop));
        }
    }
}
