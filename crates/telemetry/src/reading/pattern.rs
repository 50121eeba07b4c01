//! Lines of a template, read back.
//!
//! Takes the template's text, gives a pattern: literals and fields in turn. Reading goes from left to
//! right without trying again: a field whose shape is known ends where its shape does, every other ends at
//! the literal that follows it, or at the quote that closes it. Two fields without a shape that touch each
//! other cannot be told apart, and are refused when the pattern is made.

use std::fmt;

use memchr::memmem;

use super::cursor::quoted;
use super::date::DateReader;
use super::fields::{Shape, put, shape};
use super::{Line, LineForm};
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
        // Decided once, here: a line that is read by the pattern never has to try a second way.
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
                    put(&mut line, *field, value, date)?;
                }
            }
        }
        // Another form that begins like the template must not be taken for it.
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
            // A quote within the value is escaped, so that it does not end there.
            (Some(Part::Text(text)), Place::Quoted) if text.starts_with('"') => {
                quoted(rest).map(|(value, _)| value.len())
            }
            (Some(Part::Text(text)), _) => memmem::find(rest, text.as_bytes()),
            // Refused when the pattern was made.
            (Some(Part::Field(..)), _) => None,
        }
    }
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
