//! JSON lines, read back.
//!
//! Takes one object (RFC 8259); keys may come in any order and unknown ones are passed over, whatever
//! their value. An object without a time and a status is another program's line. Whole numbers are digits;
//! seconds have a point as well, and where a program that passed the line on wrote them anew, an exponent.

use super::cursor::quoted;
use super::date::DateReader;
use super::fields::put;
use super::foreign::{ForeignField, Unit};
use super::{Line, LineForm};
use crate::Field;
use crate::text::Shape;

pub(super) fn line<'a>(bytes: &'a [u8], date: &mut DateReader) -> Option<Line<'a>> {
    let mut line = Line {
        form: LineForm::Json,
        ..Line::default()
    };
    let mut has_status = false;
    let mut rest = spaces(bytes.strip_prefix(b"{")?);
    while let [b'"', more @ ..] = rest {
        let (key, more) = quoted(more)?;
        let (value, more) = value(spaces(spaces(more).strip_prefix(b":")?))?;
        // A log of errors has times as well: a status is what an access line cannot be without.
        has_status |= key == b"status";
        take(&mut line, key, value, date)?;
        rest = spaces(more);
        match rest {
            [b',', more @ ..] => rest = spaces(more),
            [b'}', ..] => break,
            _ => return None,
        }
    }
    let end = rest.strip_prefix(b"}")?;
    if !spaces(end).is_empty() || !has_status || line.wall_ns.is_none() {
        return None;
    }
    line.complete_total();
    line.queued.leave_out_nothing();
    line.leave_out_strays();
    Some(line)
}

/// A key of another server's object: the object that it is in (empty: the line itself), its name, and what it is.
pub(super) type ProxyKey = (&'static str, &'static str, ForeignField);

/// An object of another server, by its keys; a moment of its end is made one of arrival.
pub(super) fn proxy<'a>(
    bytes: &'a [u8],
    keys: &[ProxyKey],
    date: &mut DateReader,
) -> Option<Line<'a>> {
    let mut line = Line {
        form: LineForm::ProxyJson,
        ..Line::default()
    };
    let rest = proxy_object(&mut line, bytes, "", keys, date)?;
    let is_whole = spaces(rest).is_empty() && line.wall_ns.is_some() && line.spans.total.is_some();
    let total = line.spans.total.unwrap_or_default();
    if keys.iter().any(|(_, _, slot)| slot.unit == Unit::End) {
        // After all keys were read: the total may stand behind the time.
        line.wall_ns = line.wall_ns.map(|end| end.saturating_sub(total.0));
    }
    is_whole.then_some(line)
}

fn proxy_object<'a>(
    line: &mut Line<'a>,
    bytes: &'a [u8],
    within: &str,
    keys: &[ProxyKey],
    date: &mut DateReader,
) -> Option<&'a [u8]> {
    let mut rest = spaces(bytes.strip_prefix(b"{")?);
    while let [b'"', more @ ..] = rest {
        let (key, more) = quoted(more)?;
        let text = spaces(spaces(more).strip_prefix(b":")?);
        let (value, more) = value(text)?;
        let found = keys
            .iter()
            .find(|(place, name, _)| *place == within && name.as_bytes() == key);
        match (found, value) {
            (Some((_, _, slot)), Value::Text(text) | Value::Number(text)) => {
                slot.put(line, text, date)?;
            }
            // Objects lie within each other once.
            (None, Value::Other) if within.is_empty() && text.starts_with(b"{") => {
                let inner = std::str::from_utf8(key).unwrap_or_default();
                if keys.iter().any(|(place, ..)| *place == inner) {
                    proxy_object(line, text, inner, keys, date)?;
                }
            }
            _ => {}
        }
        rest = spaces(more);
        match rest {
            [b',', more @ ..] => rest = spaces(more),
            [b'}', ..] => break,
            _ => return None,
        }
    }
    rest.strip_prefix(b"}")
}

/// A value as its bytes: of a string those between the quotes.
#[derive(Clone, Copy)]
enum Value<'a> {
    Text(&'a [u8]),
    Number(&'a [u8]),
    Truth(bool),
    Other,
}

#[inline]
fn take<'a>(
    line: &mut Line<'a>,
    key: &[u8],
    value: Value<'a>,
    date: &mut DateReader,
) -> Option<()> {
    let Some(field) = Field::in_json(key) else {
        if let (b"request_line", Value::Text(text)) = (key, value) {
            line.request_line = text;
        }
        return Some(());
    };
    let is_number = matches!(field.shape(), Some(Shape::Number | Shape::Seconds));
    match value {
        Value::Text(text) if !is_number => put(line, field, text, date),
        // The first versions wrote the process as a text.
        Value::Number(text) if is_number || field == Field::Process => put(line, field, text, date),
        Value::Truth(yes)
            if matches!(field, Field::Queued | Field::EventStream | Field::Reused) =>
        {
            put(line, field, if yes { b"yes" } else { b"no" }, date)
        }
        // Another program's value under a name that is ours as well.
        _ => Some(()),
    }
}

#[inline]
fn value(text: &[u8]) -> Option<(Value<'_>, &[u8])> {
    match text.first()? {
        b'"' => quoted(&text[1..]).map(|(value, rest)| (Value::Text(value), rest)),
        b'{' | b'[' => nested(text).map(|rest| (Value::Other, rest)),
        first => {
            // A word without an end is a line that was cut.
            let end = text
                .iter()
                .position(|byte| matches!(byte, b',' | b'}' | b']' | b' ' | b'\t'))?;
            let (word, rest) = text.split_at(end);
            match first {
                b'0'..=b'9' | b'-' => Some((Value::Number(word), rest)),
                _ => match word {
                    b"true" => Some((Value::Truth(true), rest)),
                    b"false" => Some((Value::Truth(false), rest)),
                    b"null" => Some((Value::Other, rest)),
                    _ => None,
                },
            }
        }
    }
}

/// What follows an object or array; its inside is only counted.
fn nested(text: &[u8]) -> Option<&[u8]> {
    let mut depth = 0usize;
    let mut rest = text;
    loop {
        let (&first, more) = rest.split_first()?;
        rest = more;
        match first {
            // Brackets within a string close nothing.
            b'"' => rest = quoted(rest)?.1,
            b'{' | b'[' => depth += 1,
            b'}' | b']' => depth -= 1,
            _ => {}
        }
        if depth == 0 {
            return Some(rest);
        }
    }
}

#[inline]
fn spaces(text: &[u8]) -> &[u8] {
    match text.first() {
        Some(b' ' | b'\t') => text.trim_ascii_start(),
        _ => text,
    }
}
