//! Lines of a template, read back.
//!
//! Takes the template's text, gives a pattern: literals and fields in turn. Reading goes from left to
//! right without trying again: a field whose shape is known ends where its shape does, every other ends at
//! the literal that follows it, or at the quote that closes it. Two fields without a shape that touch each
//! other cannot be told apart, and are refused when the pattern is made.

use std::fmt;

use memchr::memmem;

use super::cursor::{count, number, quoted, request, seconds, status};
use super::date::DateReader;
use super::{Line, LineForm, known, measured};
use crate::{Field, Part, Place, Template};

/// A template as something to read by.
#[derive(Clone, Debug)]
pub struct Pattern {
    parts: Vec<Part>,
}

/// Why a template cannot be read by.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PatternFault {
    /// Two fields with nothing between them: nobody can say where the first ends.
    Touching(Field, Field),
    /// It has no field.
    NoField,
}

impl fmt::Display for PatternFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            PatternFault::Touching(one, two) => write!(
                f,
                "nothing between `{{{}}}` and `{{{}}}` says where the first ends",
                one.name(),
                two.name()
            ),
            PatternFault::NoField => f.write_str("there is no field in the template"),
        }
    }
}

impl std::error::Error for PatternFault {}

impl Pattern {
    /// What lines of `template` are read by.
    ///
    /// # Errors
    /// When they cannot be taken apart again.
    pub fn of(template: &Template) -> Result<Pattern, PatternFault> {
        let parts = template.parts();
        if !parts.iter().any(|part| matches!(part, Part::Field(..))) {
            return Err(PatternFault::NoField);
        }
        for pair in parts.windows(2) {
            if let [Part::Field(one, _), Part::Field(two, _)] = *pair
                && !matches!(shape(one), Some(Shape::Bracketed | Shape::Iso))
            {
                return Err(PatternFault::Touching(one, two));
            }
        }
        Ok(Pattern {
            parts: parts.to_vec(),
        })
    }

    pub(super) fn line<'a>(&self, bytes: &'a [u8], date: &mut DateReader) -> Option<Line<'a>> {
        let mut line = Line {
            form: LineForm::Template,
            ..Line::default()
        };
        let mut rest = bytes;
        for (index, part) in self.parts.iter().enumerate() {
            match part {
                Part::Text(text) => rest = rest.strip_prefix(text.as_bytes())?,
                Part::Field(field, place) => {
                    let value;
                    (value, rest) = rest.split_at(self.value_bytes(*field, *place, index, rest)?);
                    take(&mut line, *field, value, date)?;
                }
            }
        }
        if !rest.is_empty() {
            return None;
        }
        line.complete_total();
        Some(line)
    }

    #[inline]
    fn value_bytes(&self, field: Field, place: Place, index: usize, rest: &[u8]) -> Option<usize> {
        if let Some(shape) = shape(field) {
            return shape.bytes(rest);
        }
        match (self.parts.get(index + 1), place) {
            (None, _) => Some(rest.len()),
            (Some(Part::Text(text)), Place::Quoted) if text.starts_with('"') => {
                quoted(rest).map(|(value, _)| value.len())
            }
            (Some(Part::Text(text)), _) => memmem::find(rest, text.as_bytes()),
            // Refused when the pattern was made.
            (Some(Part::Field(..)), _) => None,
        }
    }
}

/// What the value of a field looks like, where that says where it ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Shape {
    /// `[10/Oct/2000:13:55:36 +0000]`
    Bracketed,
    /// `2000-10-10T13:55:36.000123+00:00`
    Iso,
    /// Digits, or `-`.
    Number,
    /// Digits and a point, or `-`.
    Seconds,
}

fn shape(field: Field) -> Option<Shape> {
    Some(match field {
        Field::Time => Shape::Bracketed,
        Field::TimeIso => Shape::Iso,
        Field::Status
        | Field::Bytes
        | Field::Sent
        | Field::RequestBytes
        | Field::Driver
        | Field::Waiting
        | Field::Threads
        | Field::Idle => Shape::Number,
        Field::At
        | Field::Receive
        | Field::Queue
        | Field::Run
        | Field::Send
        | Field::Total
        | Field::Gil
        | Field::Cpu
        | Field::Before => Shape::Seconds,
        _ => return None,
    })
}

impl Shape {
    /// Bytes of the value at the start of `text`.
    fn bytes(self, text: &[u8]) -> Option<usize> {
        let leading = |is_part: fn(&u8) -> bool| {
            let end = text
                .iter()
                .position(|byte| !is_part(byte))
                .unwrap_or(text.len());
            match (end, text.first()) {
                (0, Some(b'-')) => Some(1),
                (0, _) => None,
                _ => Some(end),
            }
        };
        match self {
            Shape::Bracketed => memchr::memchr(b']', text).map(|at| at + 1),
            Shape::Iso => {
                let zone = text
                    .get(19..)?
                    .iter()
                    .position(|byte| matches!(byte, b'+' | b'-' | b'Z'))?;
                let zone_bytes = if text[19 + zone] == b'Z' { 1 } else { 6 };
                let bytes = 19 + zone + zone_bytes;
                (bytes <= text.len()).then_some(bytes)
            }
            Shape::Number => leading(u8::is_ascii_digit),
            Shape::Seconds => leading(|byte| byte.is_ascii_digit() || *byte == b'.'),
        }
    }
}

#[inline]
fn take<'a>(
    line: &mut Line<'a>,
    field: Field,
    value: &'a [u8],
    date: &mut DateReader,
) -> Option<()> {
    let value = known(value);
    let (spans, queued) = (&mut line.spans, &mut line.queued);
    let number = |text: &[u8]| {
        if text.is_empty() {
            Some(None)
        } else {
            number(text).map(Some)
        }
    };
    let count = |text: &[u8]| {
        if text.is_empty() {
            Some(None)
        } else {
            count(text).map(Some)
        }
    };
    let seconds = |text: &[u8]| {
        if text.is_empty() {
            Some(None)
        } else {
            seconds(text).map(Some)
        }
    };
    match field {
        Field::Peer => line.peer = value,
        Field::User => line.user = value,
        Field::Time | Field::TimeIso | Field::At => return take_time(line, field, value, date),
        Field::Request => {
            [line.method, line.target, line.version, line.request_line] = request(value);
        }
        Field::Method => line.method = value,
        Field::Target => line.target = value,
        // The path alone, where nothing better is there.
        Field::Path if line.target.is_empty() => line.target = value,
        Field::Path | Field::Query => {}
        Field::Protocol => line.version = value,
        Field::Status => {
            line.status = if value.is_empty() {
                None
            } else {
                status(value)?
            }
        }
        Field::Bytes => line.body_bytes = number(value)?,
        Field::Sent => line.sent_bytes = number(value)?,
        Field::RequestBytes => line.request_bytes = number(value)?,
        Field::Host => line.host = value,
        Field::Referer => line.referer = value,
        Field::Agent => line.user_agent = value,
        Field::Route => line.route = value,
        Field::Pool => line.pool = value,
        Field::Driver => line.driver = number(value)?,
        Field::Process => line.process = value,
        Field::Worker => line.worker = Some(value),
        Field::Id => line.id = value,
        Field::Receive => spans.receive = seconds(value)?,
        Field::Queue => spans.queue = seconds(value)?,
        Field::Run => spans.run = seconds(value)?,
        Field::Send => spans.send = seconds(value)?,
        Field::Total => spans.total = seconds(value)?,
        Field::Gil => spans.gil = seconds(value)?,
        Field::Cpu => spans.cpu = measured(seconds(value)?),
        Field::Before => queued.before = seconds(value)?,
        Field::Waiting => queued.waiting = count(value)?,
        Field::Threads => queued.threads = count(value)?,
        Field::Idle => queued.idle = count(value)?,
        Field::Queued => {
            queued.from_queue = match value {
                b"yes" => Some(true),
                b"no" => Some(false),
                b"" => None,
                _ => return None,
            }
        }
        Field::End => line.end = value,
        Field::Cause => line.cause = value,
    }
    Some(())
}

fn take_time(line: &mut Line<'_>, field: Field, value: &[u8], date: &mut DateReader) -> Option<()> {
    if value.is_empty() {
        return Some(());
    }
    match field {
        Field::Time => {
            let (moment, rest) = date.bracketed(value.strip_prefix(b"[")?)?;
            // A finer time may have come before.
            line.wall_ns = line.wall_ns.or(Some(moment.wall_ns));
            line.utc_offset_secs = moment.utc_offset_secs;
            rest.is_empty().then_some(())
        }
        Field::TimeIso => {
            let moment = date.rfc3339(value)?;
            line.wall_ns = Some(moment.wall_ns);
            line.utc_offset_secs = moment.utc_offset_secs;
            Some(())
        }
        _ => {
            line.wall_ns = Some(seconds(value)?.0);
            Some(())
        }
    }
}
