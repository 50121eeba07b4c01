//! Text in lines of a limited width: labelled, broken at words; and the table of durations.
//!
//! Takes text and numbers, gives lines that are at most [`WIDTH_MAX`] columns of a terminal wide.

use super::text::{NONE, digits, width};
use crate::distribution::Summary;

/// Columns of a terminal that no line exceeds.
pub(super) const WIDTH_MAX: usize = 100;
/// Where the text of a labelled line begins.
const INDENT: usize = 14;

/// `label         text`, with further lines below the text.
pub(super) fn labelled(label: &str, text: &str) -> Vec<String> {
    let lines = broken(text, WIDTH_MAX - INDENT);
    let heads = std::iter::once(label).chain(std::iter::repeat(""));
    let whole = heads.zip(lines).map(|(head, line)| {
        let missing = INDENT.saturating_sub(width(head)).max(1);
        format!("{head}{}{line}", " ".repeat(missing))
    });
    whole.collect()
}

/// Text in lines of at most 100 columns, joined; those after the first are indented.
pub fn wrapped(text: &str) -> String {
    const INDENTED: &str = "    ";
    broken(text, WIDTH_MAX - INDENTED.len()).join(&format!("\n{INDENTED}"))
}

/// Text in lines of at most `width_max`; at least one line. A word that is longer is cut.
pub(super) fn broken(text: &str, width_max: usize) -> Vec<String> {
    let mut lines = Vec::new();
    let mut line = String::new();
    for word in words(text) {
        if !line.is_empty() && width(&line) + 1 + width(&word) <= width_max {
            line.push(' ');
            line.push_str(&word);
            continue;
        }
        if !line.is_empty() {
            lines.push(std::mem::take(&mut line));
        }
        for character in word.chars() {
            if width(&line) + width(character.encode_utf8(&mut [0; 4])) > width_max {
                lines.push(std::mem::take(&mut line));
            }
            line.push(character);
        }
    }
    if !line.is_empty() || lines.is_empty() {
        lines.push(line);
    }
    lines
}

/// Words, and numbers with their units as one.
fn words(text: &str) -> Vec<String> {
    let mut words: Vec<String> = Vec::new();
    for word in text.split(' ') {
        let is_unit = matches!(
            word,
            "ns" | "µs" | "ms" | "s" | "%" | "B" | "KB" | "MB" | "GB" | "TB"
        );
        match words.last_mut() {
            Some(last) if is_unit && last.ends_with(|end: char| end.is_ascii_digit()) => {
                last.push(' ');
                last.push_str(word);
            }
            _ => words.push(word.to_owned()),
        }
    }
    words
}

/// The heads of the table of durations.
pub(super) const HEADS: [&str; 10] = [
    "mean", "stdev", "min", "p50", "p75", "p90", "p99", "p99.9", "p99.99", "max",
];

/// The row of a summary: its unit, and its numbers in the order of [`HEADS`].
pub(super) fn durations(summary: &Summary) -> (&'static str, [String; 10]) {
    if summary.count == 0 {
        return ("", HEADS.map(|_| NONE.to_owned()));
    }
    let (unit, scale) = unit(summary.p50_us, summary.max_us);
    let values = [
        // One value has no spread.
        Some(summary.mean_us),
        (summary.count > 1).then_some(summary.stdev_us),
        Some(summary.min_us),
        Some(summary.p50_us),
        Some(summary.p75_us),
        Some(summary.p90_us),
        summary.p99_us,
        summary.p99_9_us,
        summary.p99_99_us,
        Some(summary.max_us),
    ];
    let cell = |value: Option<f64>| value.map_or_else(|| NONE.to_owned(), |us| digits(us / scale));
    (unit, values.map(cell))
}

/// The unit for a whole row, and its microseconds: the median has a digit before its point, unless the longest
/// would need more than six.
fn unit(median_us: f64, max_us: f64) -> (&'static str, f64) {
    let units = [("µs", 1.0), ("ms", 1e3), ("s", 1e6)];
    let fits = |(_, scale): &(&str, f64)| max_us / scale < 999_999.5;
    let least = units.iter().position(fits).unwrap_or(units.len() - 1);
    let liked = units
        .iter()
        .rposition(|(_, scale)| median_us / scale >= 1.0);
    units[least.max(liked.unwrap_or(0))]
}

/// Rows below a head, each column as wide as its widest; the first column stands left.
pub(super) fn laid_out(rows: &[Vec<String>]) -> Vec<String> {
    let columns_len = rows.iter().map(Vec::len).max().unwrap_or(0);
    let cell = |row: &Vec<String>, column: usize| row.get(column).map_or(0, |text| width(text));
    let widths: Vec<usize> = (0..columns_len)
        .map(|column| rows.iter().map(|row| cell(row, column)).max().unwrap_or(0))
        .collect();
    // One space where two would be too wide.
    let gap = if widths.iter().sum::<usize>() + 2 * columns_len.saturating_sub(1) > WIDTH_MAX {
        " "
    } else {
        "  "
    };
    let line = |row: &Vec<String>| {
        let cells = row
            .iter()
            .zip(&widths)
            .enumerate()
            .map(|(column, (text, wide))| {
                let missing = " ".repeat(wide - width(text));
                if column == 0 {
                    format!("{text}{missing}")
                } else {
                    format!("{missing}{text}")
                }
            });
        cells.collect::<Vec<_>>().join(gap).trim_end().to_owned()
    };
    rows.iter().map(line).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn breaks_at_words_and_cuts_what_is_too_long() {
        assert_eq!(broken("", 5), [""]);
        assert_eq!(broken("ab cd ef", 5), ["ab cd", "ef"]);
        assert_eq!(broken("a bcdefghijk l", 5), ["a", "bcdef", "ghijk", "l"]);
        assert_eq!(broken("took 12 ms or", 7), ["took", "12 ms", "or"]);
        assert_eq!(broken("日本語", 4), ["日本", "語"]);
        assert_eq!(labelled("counts", "1"), ["counts        1"]);
    }

    #[test]
    fn a_row_has_the_unit_that_its_median_needs() {
        let check = |median_us: f64, max_us: f64, expect: &str| {
            assert_eq!(unit(median_us, max_us).0, expect, "{median_us} {max_us}");
        };
        check(0.2, 900.0, "µs");
        check(950.0, 8_000.0, "µs");
        check(1_000.0, 8_000.0, "ms");
        check(50.0, 3_000_000.0, "ms");
        check(2_500_000.0, 7_000_000.0, "s");
        check(0.0, 0.0, "µs");
        check(f64::NAN, f64::NAN, "s");
    }
}
