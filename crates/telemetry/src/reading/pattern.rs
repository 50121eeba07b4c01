//! Lines of a template, read back.
//!
//! Takes the template's text, or the name of another server's format, gives a pattern: literals and fields in turn.
//! Reading goes from left to right without trying again: a field whose shape is known ends where its shape does, every
//! other ends at the literal that follows it, or at the quote that closes it. Two fields without a shape that touch each
//! other cannot be told apart, and are refused when the pattern is made.

use std::fmt;

use memchr::memmem;

use super::cursor::quoted;
use super::date::DateReader;
use super::foreign::ForeignField;
use super::named::{self, Named};
use super::{Line, LineForm};
use crate::text::{Shape, parts};
use crate::{Field, Part, Place, Template, TemplateFault};

/// The form of lines, as something to read by.
#[derive(Clone, Debug)]
pub struct Pattern {
    form: PatternForm,
    note: Option<&'static str>,
}

#[derive(Clone, Debug)]
enum PatternForm {
    Template(Vec<Part<ForeignField>>),
    Named(Named),
}

/// Why a text is no form to read by.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PatternFault {
    /// Two fields with nothing between them: nobody can say where the first ends.
    Touching(String, String),
    /// It has no field.
    NoField,
    /// It is no template.
    Template(TemplateFault),
    /// There is no format of this name; the names that there are.
    Unknown(String),
}

impl fmt::Display for PatternFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            PatternFault::Touching(one, two) => write!(
                f,
                "nothing between `{{{one}}}` and `{{{two}}}` says where the first ends"
            ),
            PatternFault::NoField => f.write_str("there is no field in the template"),
            PatternFault::Template(fault) => fault.fmt(f),
            PatternFault::Unknown(expected) => f.write_str(expected),
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
        let slots = template.parts().iter().map(|part| match part {
            Part::Text(text) => Part::Text(text.clone()),
            Part::Field(field, place) => Part::Field(ForeignField::of(*field), *place),
        });
        Pattern::of_parts(slots.collect(), None)
    }

    /// What `text` means: a template, in which a duration may have a unit (`{total:ms}`, `{run:us}`) and `{-}` stands
    /// for text that says nothing here, or the name of another server's format ([`Pattern::NAMES`]).
    ///
    /// # Errors
    /// It is neither, or its lines cannot be taken apart.
    pub fn parse(text: &str) -> Result<Pattern, PatternFault> {
        if !text.contains('{') || text.starts_with("apache:") {
            return match named::template(text) {
                Some((template, note)) => Pattern::of_text(template, Some(note)),
                None => {
                    let (named, note) = Named::parse(text).map_err(PatternFault::Unknown)?;
                    let form = PatternForm::Named(named);
                    Ok(Pattern {
                        form,
                        note: Some(note),
                    })
                }
            };
        }
        Pattern::of_text(text, None)
    }

    /// The names of other servers' formats, for help.
    pub const NAMES: &str = named::NAMES;

    /// Whether its lines say how long a request ran; without that, requests were answered by something else.
    pub fn knows_runs(&self) -> bool {
        let is_run = |slot: &ForeignField| slot.field == Some(Field::Run);
        match &self.form {
            PatternForm::Named(named) => named.slots().any(|slot| is_run(&slot)),
            PatternForm::Template(parts) => parts
                .iter()
                .any(|part| matches!(part, Part::Field(slot, _) if is_run(slot))),
        }
    }

    /// What the durations of a named format are, in a sentence without its end.
    pub fn note(&self) -> Option<&'static str> {
        self.note
    }

    fn of_text(text: &str, note: Option<&'static str>) -> Result<Pattern, PatternFault> {
        let parts = parts(text, ForeignField::named).map_err(PatternFault::Template)?;
        Pattern::of_parts(parts, note)
    }

    /// Decided once, here: a line that is read by the pattern never has to try a second way.
    fn of_parts(
        parts: Vec<Part<ForeignField>>,
        note: Option<&'static str>,
    ) -> Result<Pattern, PatternFault> {
        if !parts.iter().any(|part| matches!(part, Part::Field(..))) {
            return Err(PatternFault::NoField);
        }
        for pair in parts.windows(2) {
            if let [Part::Field(one, _), Part::Field(two, _)] = pair
                // A bracket or a date says itself where it ends; any other field needs text behind it.
                && !matches!(
                    one.field.and_then(Field::shape),
                    Some(Shape::Bracketed | Shape::Iso)
                )
            {
                return Err(PatternFault::Touching(one.name(), two.name()));
            }
        }
        let form = PatternForm::Template(parts);
        Ok(Pattern { form, note })
    }

    pub(super) fn line<'a>(&self, bytes: &'a [u8], date: &mut DateReader) -> Option<Line<'a>> {
        match &self.form {
            PatternForm::Template(parts) => filled(parts, bytes, date),
            PatternForm::Named(named) => named.line(bytes, date),
        }
    }
}

fn filled<'a>(
    parts: &[Part<ForeignField>],
    bytes: &'a [u8],
    date: &mut DateReader,
) -> Option<Line<'a>> {
    let mut line = Line {
        form: LineForm::Template,
        ..Line::default()
    };
    let mut rest = bytes;
    for (index, part) in parts.iter().enumerate() {
        match part {
            Part::Text(text) => rest = rest.strip_prefix(text.as_bytes())?,
            // `[{time}]`: the template has the brackets that the field has as well.
            Part::Field(slot, _)
                if slot.field == Some(Field::Time) && rest.first() != Some(&b'[') =>
            {
                let value;
                (value, rest) = rest.split_at(memchr::memchr(b']', rest)?);
                slot.put_time(&mut line, value, date)?;
            }
            Part::Field(slot, place) => {
                let bytes = value_bytes(slot, *place, parts.get(index + 1), rest)?;
                let value;
                (value, rest) = rest.split_at(bytes);
                slot.put(&mut line, value, date)?;
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
fn value_bytes(
    slot: &ForeignField,
    place: Place,
    next: Option<&Part<ForeignField>>,
    rest: &[u8],
) -> Option<usize> {
    if let Some(shape) = slot.field.and_then(Field::shape) {
        return shape.bytes(rest);
    }
    match (next, place) {
        (None, _) => Some(rest.len()),
        (Some(Part::Text(text)), Place::Quoted) if text.starts_with('"') => {
            quoted(rest).map(|(value, _)| value.len())
        }
        (Some(Part::Text(text)), _) => memmem::find(rest, text.as_bytes()),
        // Refused when the pattern was made.
        (Some(Part::Field(..)), _) => None,
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
                // Behind the seconds, because the date has dashes too; fractions may stand between.
                let zone_bytes = if text[19 + zone] == b'Z' { 1 } else { 6 };
                let bytes = 19 + zone + zone_bytes;
                (bytes <= text.len()).then_some(bytes)
            }
            Shape::Number => leading(u8::is_ascii_digit),
            Shape::Seconds => leading(|byte| byte.is_ascii_digit() || *byte == b'.'),
        }
    }
}
