//! JSON lines, read back.
//!
//! Takes one object (RFC 8259); keys may come in any order and unknown ones are passed over, whatever
//! their value. An object without a time and a status is another program's line. Whole numbers are digits;
//! seconds have a point as well, and where a program that passed the line on wrote them anew, an exponent.

use crate::Nanos;

use super::cursor;
use super::date::DateReader;
use super::{Line, LineForm, known, measured};

pub(super) fn line<'a>(bytes: &'a [u8], date: &mut DateReader) -> Option<Line<'a>> {
    let mut line = Line {
        form: LineForm::Json,
        ..Line::default()
    };
    let mut has_status = false;
    let mut rest = spaces(bytes.strip_prefix(b"{")?);
    while let [b'"', more @ ..] = rest {
        let (key, more) = string(more)?;
        let (value, more) = value(spaces(spaces(more).strip_prefix(b":")?))?;
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
    line.has_former_names |= line.end == b"drained";
    line.has_former_names &= line.spans.queue.is_some();
    line.complete_total();
    line.queued.leave_out_nothing();
    Some(line)
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
    match value {
        Value::Text(text) => {
            let place = match key {
                b"time" => {
                    let moment = date.rfc3339(text)?;
                    line.wall_ns = Some(moment.wall_ns);
                    line.utc_offset_secs = moment.utc_offset_secs;
                    return Some(());
                }
                b"worker" => {
                    line.worker = Some(known(text));
                    return Some(());
                }
                b"peer" => &mut line.peer,
                b"user" => &mut line.user,
                b"method" => &mut line.method,
                b"target" => &mut line.target,
                b"protocol" => &mut line.version,
                b"host" => &mut line.host,
                b"referer" => &mut line.referer,
                b"agent" => &mut line.user_agent,
                b"route" => &mut line.route,
                b"pool" => &mut line.pool,
                b"process" => &mut line.process,
                b"id" => &mut line.id,
                b"end" => &mut line.end,
                b"request_line" => &mut line.request_line,
                b"cause" => &mut line.cause,
                _ => return Some(()),
            };
            *place = text;
        }
        Value::Number(text) => {
            let spans = &mut line.spans;
            match key {
                b"status" => line.status = cursor::status(text)?,
                b"bytes" => line.body_bytes = Some(cursor::number(text)?),
                b"sent" => line.sent_bytes = Some(cursor::number(text)?),
                b"request_bytes" => line.request_bytes = Some(cursor::number(text)?),
                b"driver" => line.driver = Some(cursor::number(text)?),
                b"accept" => line.has_former_names = true,
                b"receive" => spans.receive = Some(seconds(text)?),
                b"queue" => spans.queue = Some(seconds(text)?),
                b"run" => spans.run = Some(seconds(text)?),
                b"send" => spans.send = Some(seconds(text)?),
                b"total" => spans.total = Some(seconds(text)?),
                b"gil" => spans.gil = Some(seconds(text)?),
                // A common word: another program's number may be no time.
                b"cpu" => spans.cpu = measured(seconds(text)),
                // Common words: another program's number may be no count.
                b"before" => line.queued.before = seconds(text),
                b"waiting" => line.queued.waiting = cursor::count(text),
                b"threads" => line.queued.threads = cursor::count(text),
                b"idle" => line.queued.idle = cursor::count(text),
                _ => {}
            }
        }
        Value::Truth(truth) => match key {
            b"queued" => line.queued.from_queue = Some(truth),
            b"from_queue" => line.has_former_names = true,
            _ => {}
        },
        Value::Other => {}
    }
    Some(())
}

#[inline]
fn seconds(text: &[u8]) -> Option<Nanos> {
    cursor::seconds(text).or_else(|| seconds_with_exponent(text))
}

/// As `5.7e-05`, to the nanosecond.
#[cold]
fn seconds_with_exponent(text: &[u8]) -> Option<Nanos> {
    if !text.iter().any(|byte| matches!(byte, b'e' | b'E')) {
        return None;
    }
    let secs: f64 = std::str::from_utf8(text).ok()?.parse().ok()?;
    let is_duration = (0.0..1e9).contains(&secs);
    is_duration.then(|| Nanos((secs * 1e9).round() as u64))
}

#[inline]
fn value(text: &[u8]) -> Option<(Value<'_>, &[u8])> {
    match text.first()? {
        b'"' => string(&text[1..]).map(|(value, rest)| (Value::Text(value), rest)),
        b'{' | b'[' => nested(text).map(|rest| (Value::Other, rest)),
        first => {
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

#[inline]
fn string(text: &[u8]) -> Option<(&[u8], &[u8])> {
    cursor::quoted(text)
}

/// What follows an object or array; its inside is only counted.
fn nested(text: &[u8]) -> Option<&[u8]> {
    let mut depth = 0usize;
    let mut rest = text;
    loop {
        let (&first, more) = rest.split_first()?;
        rest = more;
        match first {
            b'"' => rest = string(rest)?.1,
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
