//! Words of a scenario's text that are more than text: spans of time, units, what becomes of repetitions.
//!
//! Each is read from TOML with a fault of its own, so that the fault has a line.

use measure::Nanos;
use serde::Deserialize;

use crate::experiment::original::{self, Original};
use crate::experiment::paper::Over;

/// A span of time: `500ms`, `2s`, `1m`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(try_from = "String")]
pub(super) struct Span(pub(super) Nanos);

impl TryFrom<String> for Span {
    type Error = String;

    fn try_from(text: String) -> Result<Span, String> {
        let fault = || format!("`{text}` is no span of time: write `500ms`, `2s` or `1m`");
        let unit_at = text
            .find(|letter: char| letter.is_ascii_alphabetic())
            .ok_or_else(fault)?;
        let (number, unit) = text.split_at(unit_at);
        let number: f64 = number.parse().map_err(|_| fault())?;
        let seconds = match unit {
            "ms" => 1e-3,
            "s" => 1.0,
            "m" => 60.0,
            "h" => 3_600.0,
            _ => return Err(fault()),
        };
        // A day is more than any measurement, and far from what the number can hold.
        let seconds = number * seconds;
        if !(0.0..=86_400.0).contains(&seconds) {
            return Err(fault());
        }
        Ok(Span(Nanos((seconds * 1e9).round() as u64)))
    }
}

/// The unit of a column.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(try_from = "String")]
pub(super) struct Unit {
    pub(super) factor: f64,
    pub(super) suffix: String,
}

impl Unit {
    /// The number as it is.
    pub(super) const PLAIN: Unit = Unit {
        factor: 1.0,
        suffix: String::new(),
    };
}

impl TryFrom<String> for Unit {
    type Error = String;

    fn try_from(text: String) -> Result<Unit, String> {
        let (factor, suffix) = match text.as_str() {
            "s" => (1.0, ""),
            "ms" => (1e3, ""),
            "us" => (1e6, ""),
            "KB" => (1e-3, ""),
            "MB" => (1e-6, ""),
            "percent" => (100.0, " %"),
            _ => {
                return Err(format!(
                    "`{text}` is no unit: there are s, ms, us, KB, MB and percent"
                ));
            }
        };
        Ok(Unit {
            factor,
            suffix: suffix.to_owned(),
        })
    }
}

/// What becomes of several repetitions.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum OverWord {
    Median,
    Mean,
    Min,
    Max,
    Sum,
    Spread,
}

impl From<OverWord> for Over {
    fn from(word: OverWord) -> Over {
        match word {
            OverWord::Median => Over::Median,
            OverWord::Mean => Over::Mean,
            OverWord::Min => Over::Min,
            OverWord::Max => Over::Max,
            OverWord::Sum => Over::Sum,
            OverWord::Spread => Over::Spread,
        }
    }
}

/// A published table by its name.
#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(try_from = "String")]
pub(super) struct OriginalWord(pub(super) &'static Original);

impl TryFrom<String> for OriginalWord {
    type Error = String;

    fn try_from(text: String) -> Result<OriginalWord, String> {
        original::original(&text).map(OriginalWord).ok_or_else(|| {
            let names: Vec<_> = original::ORIGINALS.iter().map(|each| each.name).collect();
            format!("`{text}` is no original: there are {}", names.join(", "))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_spans_of_time() {
        for (text, expect) in [
            ("500ms", Some(Nanos::from_ms(500))),
            ("2s", Some(Nanos::from_secs(2))),
            ("1.5m", Some(Nanos::from_secs(90))),
            ("0s", Some(Nanos::ZERO)),
            ("25h", None),
            ("-1s", None),
            ("2", None),
            ("s", None),
            ("2 weeks", None),
            ("nans", None),
        ] {
            let span = Span::try_from(text.to_owned()).map(|span| span.0);
            assert_eq!(span.as_ref().ok().copied(), expect, "{text}: {span:?}");
        }
    }
}
