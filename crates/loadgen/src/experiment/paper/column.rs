//! Columns of a table: what stands in them, and how several repetitions become one cell.
//!
//! Takes findings of one server at one point, gives texts. Decides nothing about rows.

use super::value::Value;
use crate::experiment::Finding;

/// What stands where nothing can be said.
pub(super) const NOTHING: &str = "–";

/// A column.
#[derive(Clone, Debug, PartialEq)]
pub struct Column {
    /// Above it.
    pub head: String,
    /// What its cells show.
    pub shows: Shows,
}

/// What a cell shows.
#[derive(Clone, Debug, PartialEq)]
pub enum Shows {
    /// A text, in which `{server}`, `{point}` and `{row}` are replaced.
    Text(String),
    /// A number.
    Number(Figure),
    /// `yes` when a value is more than this, else `no`.
    Whether {
        /// Name of the value; `{row}` is replaced.
        value: String,
        /// The bound.
        above: f64,
    },
}

/// A number and its form.
#[derive(Clone, Debug, PartialEq)]
pub struct Figure {
    /// Name of the value; `{row}` is replaced.
    pub value: String,
    /// What it is multiplied by for its unit, as `1000` for ms.
    pub factor: f64,
    /// Behind the point.
    pub digits: usize,
    /// Behind the number, as ` %`.
    pub suffix: String,
    /// Of several repetitions.
    pub over: Over,
    /// The change against this server in the same repetition takes the place of the number.
    pub against: Option<String>,
}

/// Of several repetitions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Over {
    /// The one in the middle.
    Median,
    /// The average.
    Mean,
    /// The least.
    Min,
    /// The greatest.
    Max,
    /// All together.
    Sum,
    /// The average and, in brackets, the least and the greatest.
    Spread,
}

/// The findings of one row.
#[derive(Clone, Copy)]
pub(super) struct Place<'a> {
    pub(super) findings: &'a [Finding],
    pub(super) server: &'a str,
    pub(super) point: &'a str,
    pub(super) row: &'a str,
}

impl Place<'_> {
    /// `{server}`, `{point}` and `{row}` replaced.
    pub(super) fn filled(&self, text: &str) -> String {
        text.replace("{server}", self.server)
            .replace("{point}", self.point)
            .replace("{row}", self.row)
    }

    /// The values of a server in the order of the repetitions.
    fn values(&self, name: &str, server: &str) -> Vec<(usize, f64)> {
        let Ok(value) = Value::parse(&self.filled(name)) else {
            return Vec::new();
        };
        let here = self.findings.iter();
        here.filter(|finding| finding.server == server && finding.point == self.point)
            .filter_map(|finding| Some((finding.repetition, value.of(finding)?)))
            .collect()
    }
}

impl Column {
    /// The cell of a row.
    pub(super) fn cell(&self, place: &Place<'_>) -> String {
        match &self.shows {
            Shows::Text(text) => place.filled(text),
            Shows::Whether { value, above } => {
                let numbers = numbers(&place.values(value, place.server));
                median(&numbers)
                    .map_or(NOTHING, |number| if number > *above { "yes" } else { "no" })
                    .to_owned()
            }
            Shows::Number(figure) => figure.cell(place),
        }
    }

    /// Whether it has anything to say of a row; texts have not.
    pub(super) fn speaks(&self, place: &Place<'_>) -> bool {
        !matches!(self.shows, Shows::Text(_)) && self.cell(place) != NOTHING
    }
}

impl Figure {
    /// The cell of a row.
    pub(super) fn cell(&self, place: &Place<'_>) -> String {
        let own = place.values(&self.value, place.server);
        if let Some(other) = &self.against {
            return changed(&own, &place.values(&self.value, other));
        }
        let numbers = numbers(&own);
        let text = |number: f64| {
            format!(
                "{}{}",
                grouped(number * self.factor, self.digits),
                self.suffix
            )
        };
        let (Some(least), Some(most)) = (least(&numbers), most(&numbers)) else {
            return NOTHING.to_owned();
        };
        let sum: f64 = numbers.iter().sum();
        let mean = sum / numbers.len() as f64;
        match self.over {
            Over::Median => median(&numbers).map_or_else(|| NOTHING.to_owned(), text),
            Over::Mean => text(mean),
            Over::Min => text(least),
            Over::Max => text(most),
            Over::Sum => text(sum),
            Over::Spread => format!("{} ({} – {})", text(mean), text(least), text(most)),
        }
    }
}

/// The median of the changes within each repetition: what drifts over the time of an experiment is in both.
fn changed(own: &[(usize, f64)], others: &[(usize, f64)]) -> String {
    let pairs: Vec<f64> = own
        .iter()
        .filter_map(|(repetition, number)| {
            let (_, other) = others.iter().find(|(each, _)| each == repetition)?;
            (*other != 0.0).then(|| number / other)
        })
        .collect();
    median(&pairs).map_or_else(
        || NOTHING.to_owned(),
        // Not `-0 %`.
        |ratio| format!("{:+.0} %", ((ratio - 1.0) * 100.0).round() + 0.0),
    )
}

fn numbers(values: &[(usize, f64)]) -> Vec<f64> {
    values.iter().map(|(_, number)| *number).collect()
}

fn least(numbers: &[f64]) -> Option<f64> {
    numbers.iter().copied().reduce(f64::min)
}

fn most(numbers: &[f64]) -> Option<f64> {
    numbers.iter().copied().reduce(f64::max)
}

fn median(numbers: &[f64]) -> Option<f64> {
    let mut sorted = numbers.to_vec();
    sorted.sort_by(f64::total_cmp);
    let middle = sorted.len() / 2;
    match sorted.len() {
        0 => None,
        len if len % 2 == 1 => Some(sorted[middle]),
        _ => Some((sorted[middle - 1] + sorted[middle]) / 2.0),
    }
}

/// With commas between thousands: `61,866`.
fn grouped(number: f64, digits: usize) -> String {
    let plain = format!("{number:.digits$}");
    let (sign, plain) = plain
        .strip_prefix('-')
        .map_or(("", plain.as_str()), |rest| ("-", rest));
    let (whole, rest) = plain.split_at(plain.find('.').unwrap_or(plain.len()));
    let mut text = String::from(sign);
    for (place, digit) in whole.chars().enumerate() {
        if place > 0 && (whole.len() - place) % 3 == 0 {
            text.push(',');
        }
        text.push(digit);
    }
    text + rest
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn groups_thousands() {
        for (number, digits, expect) in [
            (0.0, 0, "0"),
            (999.4, 0, "999"),
            (999.5, 0, "1,000"),
            (61_866.0, 0, "61,866"),
            (1_234_567.891, 2, "1,234,567.89"),
            (-1_234.5, 1, "-1,234.5"),
            (0.000_11, 6, "0.000110"),
        ] {
            assert_eq!(grouped(number, digits), expect);
        }
    }

    #[test]
    fn compares_within_each_repetition() {
        // The second repetition was half as quick for both.
        let own = [(1, 122.0), (2, 61.0), (3, 130.0)];
        let others = [(1, 100.0), (2, 50.0)];
        assert_eq!(changed(&own, &others), "+22 %");
        assert_eq!(changed(&others, &others), "+0 %");
        assert_eq!(changed(&own, &[]), NOTHING);
        assert_eq!(changed(&own, &[(1, 0.0)]), NOTHING);
    }

    #[test]
    fn takes_the_number_in_the_middle() {
        assert_eq!(median(&[]), None);
        assert_eq!(median(&[3.0, 1.0, 2.0]), Some(2.0));
        assert_eq!(median(&[4.0, 1.0, 2.0, 3.0]), Some(2.5));
    }
}
