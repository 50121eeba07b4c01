//! Quantities as people write and read them: `5ms`, `0.1%`, `2K`.
//!
//! Takes a text and what it is to be a quantity of, gives a number in that unit, and the other way round.

use crate::engine::Fault;

/// What a number is a number of. Numbers are kept in the unit that is named here.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Unit {
    /// Microseconds.
    Time,
    /// Things in a second.
    PerSecond,
    /// Bytes.
    Bytes,
    /// Bytes in a second.
    BytesPerSecond,
    /// 0 to 1.
    Share,
    /// A plain number.
    Count,
}

const TIMES: &[(&str, f64)] = &[
    ("ns", 1e-3),
    ("us", 1.0),
    ("µs", 1.0),
    ("μs", 1.0),
    ("ms", 1e3),
    ("s", 1e6),
];
const THOUSANDS: &[(&str, f64)] = &[("", 1.0), ("K", 1e3), ("k", 1e3), ("M", 1e6)];
/// Powers of 1024, as in all settings of sizes.
const SIZES: &[(&str, f64)] = &[
    ("", 1.0),
    ("B", 1.0),
    ("K", 1024.0),
    ("KB", 1024.0),
    ("M", 1_048_576.0),
    ("MB", 1_048_576.0),
    ("G", 1_073_741_824.0),
    ("GB", 1_073_741_824.0),
];
const SHARES: &[(&str, f64)] = &[("", 1.0), ("%", 0.01)];

impl Unit {
    /// The name of the unit that numbers are kept in, for programs.
    pub fn name(self) -> &'static str {
        match self {
            Unit::Time => "us",
            Unit::PerSecond => "1/s",
            Unit::Bytes => "bytes",
            Unit::BytesPerSecond => "bytes/s",
            Unit::Share => "share",
            Unit::Count => "count",
        }
    }

    /// The number that a text stands for.
    ///
    /// # Errors
    /// When it is no number, negative, without a unit that it needs, or with one that does not fit.
    pub fn read(self, text: &str) -> Result<f64, Fault> {
        let text = text.trim();
        // The first letter that is no digit begins the unit: `5ms`, `1.5 s`.
        let end = text
            .find(|letter: char| !letter.is_ascii_digit() && letter != '.')
            .unwrap_or(text.len());
        let (digits, unit) = text.split_at(end);
        let (noun, forms) = self.forms();
        let refused =
            |cause: &str| Fault::with_hint(format!("`{text}`: {cause}"), format!("write {forms}"));
        let Ok(number) = digits.parse::<f64>() else {
            return Err(refused("is no number"));
        };
        let unit = unit.trim();
        let factor = match self.factor(unit) {
            Some(factor) => factor,
            // Nothing is nothing in every unit.
            None if unit.is_empty() && number == 0.0 => 1.0,
            None if unit.is_empty() => return Err(refused("has no unit")),
            None => return Err(refused(&format!("`{unit}` is no unit of {noun}"))),
        };
        let value = number * factor;
        // `5` for 5 % would be 500 %, which always holds.
        if self == Unit::Share && value > 1.0 {
            return Err(refused("a share is at most 1, which is 100 %"));
        }
        Ok(value)
    }

    fn factor(self, unit: &str) -> Option<f64> {
        let (table, unit) = match self {
            Unit::Time => (TIMES, unit),
            Unit::PerSecond => (THOUSANDS, unit.strip_suffix("/s").unwrap_or(unit)),
            Unit::Bytes => (SIZES, unit),
            Unit::BytesPerSecond => (SIZES, unit.strip_suffix("/s").unwrap_or(unit)),
            Unit::Share => (SHARES, unit),
            Unit::Count => (THOUSANDS, unit),
        };
        let found = table.iter().find(|(name, _)| *name == unit.trim());
        found.map(|(_, factor)| *factor)
    }

    /// What a text of it is, and how it is written.
    fn forms(self) -> (&'static str, &'static str) {
        match self {
            Unit::Time => ("time", "a time as `5ms`; units are ns, us, ms and s"),
            Unit::PerSecond => ("a rate", "a rate a second as `2000`, `2K` or `1.5M`"),
            Unit::Bytes => ("bytes", "bytes as `4096`, `64K`, `10M` or `1G`"),
            Unit::BytesPerSecond => ("a rate", "bytes a second as `4096`, `64K`, `10M` or `1G`"),
            Unit::Share => ("a share", "a share as `0.1%` or `0.001`"),
            Unit::Count => ("a number", "a number as `12`, `2K` or `1M`"),
        }
    }

    /// For people: three digits that say something, with their unit.
    pub fn text(self, value: f64) -> String {
        match self {
            Unit::Time => present::duration(value / 1e6),
            Unit::PerSecond | Unit::Count => present::number(value),
            Unit::Bytes => present::bytes(value),
            Unit::BytesPerSecond => present::bytes(value) + "/s",
            Unit::Share => present::share(value),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_what_people_write() {
        for (unit, text, expect) in [
            (Unit::Time, "5ms", 5_000.0),
            (Unit::Time, "1.5 s", 1_500_000.0),
            (Unit::Time, "20µs", 20.0),
            (Unit::Time, "20us", 20.0),
            (Unit::Time, "500ns", 0.5),
            (Unit::Time, "0", 0.0),
            (Unit::PerSecond, "2000", 2_000.0),
            (Unit::PerSecond, "2K", 2_000.0),
            (Unit::PerSecond, "1.5M/s", 1_500_000.0),
            (Unit::Share, "0.1%", 0.001),
            (Unit::Share, "1 %", 0.01),
            (Unit::Share, "0.25", 0.25),
            (Unit::Bytes, "64K", 65_536.0),
            (Unit::Bytes, "1GB", 1_073_741_824.0),
            (Unit::Count, "12", 12.0),
        ] {
            let read = unit.read(text).expect(text);
            assert!(
                (read - expect).abs() < 1e-9 * expect.max(1.0),
                "{text}: {read}"
            );
        }
    }

    #[test]
    fn refuses_units_that_do_not_fit() {
        for (unit, text, expect) in [
            (Unit::Time, "5", "`5`: has no unit"),
            (Unit::Time, "5%", "`5%`: `%` is no unit of time"),
            (Unit::Time, "5m", "`5m`: `m` is no unit of time"),
            (Unit::Time, "", "``: is no number"),
            (Unit::Time, "-5ms", "`-5ms`: is no number"),
            (Unit::Time, "1.2.3ms", "`1.2.3ms`: is no number"),
            (Unit::PerSecond, "2ms", "`2ms`: `ms` is no unit of a rate"),
            (
                Unit::Share,
                "5",
                "`5`: a share is at most 1, which is 100 %",
            ),
            (Unit::Share, "5ms", "`5ms`: `ms` is no unit of a share"),
        ] {
            let fault = unit.read(text).expect_err(text);
            assert_eq!(fault.text, expect);
            assert!(fault.hint.is_some(), "{text}");
        }
    }
}
