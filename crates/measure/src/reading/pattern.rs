//! Lines of a template, read back.
//!
//! Takes the template's text, gives a pattern: literals and fields in turn. Reading goes from left to
//! right without trying again: a field whose shape is known ends where its shape does, every other ends at
//! the literal that follows it, or at the quote that closes it. Two fields without a shape that touch each
//! other cannot be told apart, and are refused when the pattern is made.

use std::fmt;

use memchr::memmem;

use super::cursor::{number, quoted, request, seconds, status};
use super::date::DateReader;
use super::{Line, LineForm, known};

/// A template as something to read by.
#[derive(Clone, Debug)]
pub struct Pattern {
    pieces: Vec<Piece>,
}

/// Why a template cannot be read by.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PatternFault {
    /// There is no such field.
    UnknownField(String),
    /// `{` without `}`, or `}` alone; `{{` and `}}` are the characters.
    Brace,
    /// A control character.
    Control,
    /// Two fields with nothing between them: nobody can say where the first ends.
    Touching(String, String),
    /// It has no field.
    NoField,
}

impl fmt::Display for PatternFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            PatternFault::UnknownField(name) => write!(f, "there is no field `{{{name}}}`"),
            PatternFault::Brace => f.write_str(
                "a `{` without its `}`, or a `}` alone (`{{` and `}}` are the characters)",
            ),
            PatternFault::Control => f.write_str("a control character"),
            PatternFault::Touching(one, two) => {
                write!(f, "`{{{one}}}{{{two}}}`: nothing says where the first ends")
            }
            PatternFault::NoField => f.write_str("it has no `{field}`"),
        }
    }
}

impl std::error::Error for PatternFault {}

#[derive(Clone, Debug)]
enum Piece {
    Literal(Vec<u8>),
    /// A field, and whether it stands between quotes.
    Field(Field, Place),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Place {
    Bare,
    Quoted,
}

macro_rules! fields {
    ($($variant:ident $name:literal),* $(,)?) => {
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        enum Field { $($variant),* }

        impl Field {
            const ALL: &[(Field, &str)] = &[$((Field::$variant, $name)),*];
        }
    };
}

fields! {
    Peer "peer", User "user", Time "time", TimeIso "time_iso", Unix "unix", Request "request",
    Method "method", Target "target", Path "path", Query "query", Protocol "protocol", Status "status",
    Bytes "bytes", Sent "sent", RequestBytes "request_bytes", Host "host", Referer "referer",
    Agent "agent", Route "route", Pool "pool", Driver "driver", Process "process", Id "id",
    Accept "accept", Queue "queue", Run "run", Deliver "deliver", Total "total", Gil "gil", End "end",
    Cause "cause",
}

impl Field {
    fn named(name: &str) -> Option<Field> {
        Field::ALL
            .iter()
            .find(|(_, known)| *known == name)
            .map(|(field, _)| *field)
    }

    fn name(self) -> &'static str {
        Field::ALL
            .iter()
            .find(|(field, _)| *field == self)
            .map_or("", |(_, name)| name)
    }

    /// Bytes of the value at the start of `text`, for fields that end where their shape does.
    fn shape_bytes(self, text: &[u8]) -> Option<usize> {
        let digits = |extra: &[u8]| {
            let is_in = |byte: &u8| byte.is_ascii_digit() || extra.contains(byte);
            Some(
                text.iter()
                    .position(|byte| !is_in(byte))
                    .unwrap_or(text.len()),
            )
        };
        if text.first() == Some(&b'-') && !matches!(self, Field::Time | Field::TimeIso) {
            return Some(1);
        }
        match self {
            Field::Time => memchr::memchr(b']', text).map(|at| at + 1),
            Field::TimeIso => {
                let after = text.get(19..)?;
                let zone = after
                    .iter()
                    .position(|byte| matches!(byte, b'+' | b'-' | b'Z'))?;
                Some(19 + zone + if after[zone] == b'Z' { 1 } else { 6 })
            }
            Field::Status | Field::Bytes | Field::Sent | Field::RequestBytes | Field::Driver => {
                digits(b"")
            }
            Field::Unix
            | Field::Accept
            | Field::Queue
            | Field::Run
            | Field::Deliver
            | Field::Total
            | Field::Gil => digits(b"."),
            _ => None,
        }
    }

    fn has_shape(self) -> bool {
        // The smallest value of each shape.
        [&b"[]"[..], b"0000-00-00T00:00:00Z", b"0"]
            .iter()
            .any(|text| {
                self.shape_bytes(text)
                    .is_some_and(|bytes| bytes == text.len())
            })
    }
}

impl Pattern {
    /// Understands a template.
    ///
    /// # Errors
    /// When it is no template, or one whose lines cannot be taken apart again.
    pub fn parse(text: &str) -> Result<Pattern, PatternFault> {
        if text.chars().any(char::is_control) {
            return Err(PatternFault::Control);
        }
        let mut pieces: Vec<Piece> = Vec::new();
        let mut literal = Vec::new();
        let mut place = Place::Bare;
        let mut rest = text;
        while let Some(character) = rest.chars().next() {
            rest = &rest[character.len_utf8()..];
            match character {
                '{' | '}' if rest.starts_with(character) => {
                    rest = &rest[1..];
                    literal.push(character as u8);
                }
                '}' => return Err(PatternFault::Brace),
                '{' => {
                    let (name, more) = rest.split_once('}').ok_or(PatternFault::Brace)?;
                    let field = Field::named(name)
                        .ok_or_else(|| PatternFault::UnknownField(name.to_owned()))?;
                    push_literal(&mut pieces, &mut literal);
                    pieces.push(Piece::Field(field, place));
                    rest = more;
                }
                _ => {
                    if character == '"' {
                        place = if place == Place::Bare {
                            Place::Quoted
                        } else {
                            Place::Bare
                        };
                    }
                    literal.extend_from_slice(character.encode_utf8(&mut [0; 4]).as_bytes());
                }
            }
        }
        push_literal(&mut pieces, &mut literal);
        check(&pieces)?;
        Ok(Pattern { pieces })
    }

    pub(super) fn line<'a>(&self, bytes: &'a [u8], date: &mut DateReader) -> Option<Line<'a>> {
        let mut line = Line {
            form: LineForm::Template,
            ..Line::default()
        };
        let mut rest = bytes;
        for (index, piece) in self.pieces.iter().enumerate() {
            match piece {
                Piece::Literal(text) => rest = rest.strip_prefix(text.as_slice())?,
                Piece::Field(field, place) => {
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
        if let Some(bytes) = field.shape_bytes(rest) {
            return Some(bytes);
        }
        match (self.pieces.get(index + 1), place) {
            (None, _) => Some(rest.len()),
            (Some(Piece::Literal(text)), Place::Quoted) if text.starts_with(b"\"") => {
                quoted(rest).map(|(value, _)| value.len())
            }
            (Some(Piece::Literal(text)), _) => memmem::find(rest, text),
            // A field whose shape is known follows: checked when the pattern was made.
            (Some(Piece::Field(..)), _) => None,
        }
    }
}

fn push_literal(pieces: &mut Vec<Piece>, literal: &mut Vec<u8>) {
    if !literal.is_empty() {
        pieces.push(Piece::Literal(std::mem::take(literal)));
    }
}

fn check(pieces: &[Piece]) -> Result<(), PatternFault> {
    if !pieces.iter().any(|piece| matches!(piece, Piece::Field(..))) {
        return Err(PatternFault::NoField);
    }
    for pair in pieces.windows(2) {
        if let [Piece::Field(one, _), Piece::Field(two, _)] = pair
            && !one.has_shape()
        {
            return Err(PatternFault::Touching(
                one.name().to_owned(),
                two.name().to_owned(),
            ));
        }
    }
    Ok(())
}

#[inline]
fn take<'a>(
    line: &mut Line<'a>,
    field: Field,
    value: &'a [u8],
    date: &mut DateReader,
) -> Option<()> {
    let value = known(value);
    let spans = &mut line.spans;
    let number = |text: &[u8]| {
        if text.is_empty() {
            Some(None)
        } else {
            number(text).map(Some)
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
        Field::Time | Field::TimeIso | Field::Unix => return take_time(line, field, value, date),
        Field::Request => {
            [line.method, line.target, line.version, line.request_line] = request(value)
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
        Field::Id => line.id = value,
        Field::Accept => spans.accept = seconds(value)?,
        Field::Queue => spans.queue = seconds(value)?,
        Field::Run => spans.run = seconds(value)?,
        Field::Deliver => spans.deliver = seconds(value)?,
        Field::Total => spans.total = seconds(value)?,
        Field::Gil => spans.gil = seconds(value)?,
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
