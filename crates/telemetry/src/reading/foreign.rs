//! A field of another server's line: which one it is, and in which unit.
//!
//! Takes a value as it was written, puts it into a line. Knows no form: where a value stands is the form's business.

use super::cursor::{number, seconds};
use super::date::DateReader;
use super::fields::put;
use super::{Line, known};
use crate::{Field, Nanos};

/// A place of a form, and what stands in it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct ForeignField {
    /// `None`: it says nothing here.
    pub(super) field: Option<Field>,
    pub(super) unit: Unit,
}

/// What a value is counted in.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Unit {
    /// As Milepost writes it: durations in seconds.
    Own,
    /// Whole milliseconds.
    Millis,
    /// Whole microseconds.
    Micros,
    /// Whole nanoseconds.
    Nanos,
    /// Seconds since 1970 of the end: the arrival is a total before it.
    End,
    /// `Mon Nov 23 12:00:01 2026`, without an offset.
    Ctime,
}

impl ForeignField {
    pub(super) const fn of(field: Field) -> ForeignField {
        ForeignField::new(field, Unit::Own)
    }

    pub(super) const fn new(field: Field, unit: Unit) -> ForeignField {
        let field = Some(field);
        ForeignField { field, unit }
    }

    /// What says nothing.
    pub(super) const SKIPPED: ForeignField = ForeignField {
        field: None,
        unit: Unit::Own,
    };

    /// `total`, `total:ms`, `-`.
    pub(super) fn named(name: &str) -> Option<ForeignField> {
        if name == "-" {
            return Some(ForeignField::SKIPPED);
        }
        let (name, unit) = name.split_once(':').unwrap_or((name, "s"));
        let field = Field::named(name)?;
        let unit = match unit {
            "s" => Unit::Own,
            "ms" if is_span(field) => Unit::Millis,
            "us" if is_span(field) => Unit::Micros,
            "ctime" if field == Field::Time => Unit::Ctime,
            _ => return None,
        };
        Some(ForeignField::new(field, unit))
    }

    /// As it stands in a template.
    pub(super) fn name(&self) -> String {
        self.field.map_or("-", Field::name).to_owned()
    }

    /// Puts the value into the line; `None`: it is no such value.
    #[inline]
    pub(super) fn put<'a>(
        &self,
        line: &mut Line<'a>,
        value: &'a [u8],
        date: &mut DateReader,
    ) -> Option<()> {
        let Some(field) = self.field else {
            return Some(());
        };
        let unit_ns = match self.unit {
            Unit::Own if is_span(field) => return put_span(line, field, times(value)?),
            Unit::Own => return put(line, field, value, date),
            Unit::Ctime => return self.put_time(line, value, date),
            Unit::End => {
                line.wall_ns = Some(seconds(value)?.0);
                return Some(());
            }
            Unit::Millis => 1_000_000,
            Unit::Micros => 1_000,
            Unit::Nanos => 1,
        };
        let value = known(value);
        let span = match value {
            // A dash is a phase that was not reached, not one of zero length.
            b"" => None,
            _ => Some(Nanos(number(value)?.checked_mul(unit_ns)?)),
        };
        put_span(line, field, span)
    }

    /// A time without its brackets.
    pub(super) fn put_time(
        &self,
        line: &mut Line<'_>,
        value: &[u8],
        date: &mut DateReader,
    ) -> Option<()> {
        let moment = match self.unit {
            Unit::Ctime => date.ctime(value)?,
            _ => date.unbracketed(value)?,
        };
        // A time with fractions may have been read before, and is the better one.
        line.wall_ns = line.wall_ns.or(Some(moment.wall_ns));
        line.utc_offset_secs = moment.utc_offset_secs;
        Some(())
    }
}

fn is_span(field: Field) -> bool {
    matches!(
        field,
        Field::Receive | Field::Queue | Field::Run | Field::Send | Field::Total
    )
}

fn put_span(line: &mut Line<'_>, field: Field, span: Option<Nanos>) -> Option<()> {
    let spans = &mut line.spans;
    match field {
        Field::Receive => spans.receive = span,
        Field::Queue => spans.queue = span,
        Field::Run => spans.run = span,
        Field::Send => spans.send = span,
        Field::Total => spans.total = span,
        _ => return None,
    }
    Some(())
}

/// Seconds; of several upstreams, as nginx lists them (`0.003, 0.010 : 0.100`), their sum. `-` is none.
fn times(value: &[u8]) -> Option<Option<Nanos>> {
    if let Some(one) = seconds(value) {
        return Some(Some(one));
    }
    let mut sum = None;
    for part in value.split(|byte| matches!(byte, b',' | b':' | b' ')) {
        match known(part) {
            // An upstream that could not be reached has a dash among the times of the others.
            b"" => {}
            part => {
                let before: Nanos = sum.unwrap_or_default();
                sum = Some(Nanos(before.0.checked_add(seconds(part)?.0)?));
            }
        }
    }
    Some(sum)
}
