//! One table, for a terminal and for a page.
//!
//! Takes columns, gives lines or HTML. Texts from outside are made harmless; numbers stand right, and those of a column
//! have their points below each other in both forms.

use crate::NONE;
use crate::text::{WIDTH_MAX, coded, escaped, harmless, width};

/// Columns of a text in a page.
const PAGE_CHARS_MAX: usize = 200;
/// As wide as a digit, and as a point.
const FIGURE_SPACE: char = '\u{2007}';
const POINT_SPACE: char = '\u{2008}';

/// Columns of equal length, in their order.
#[derive(Clone, Debug, Default)]
pub struct Table {
    columns: Vec<Column>,
    /// What stands above the heads: each over so many columns.
    groups: Vec<(usize, String)>,
}

#[derive(Clone, Debug)]
struct Column {
    head: String,
    cells: Vec<String>,
    kind: Kind,
    /// Not on a terminal, where there is no room for it.
    is_page_alone: bool,
}

/// What stands in a column.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    /// Foreign text, cut here on a terminal.
    Text(usize),
    Number,
    /// Numbers of several units, whose points have nothing to do with each other.
    Measure,
    /// Finished HTML.
    Markup,
}

impl Table {
    /// A column of text from anywhere, cut at `columns_max` on a terminal.
    pub fn text<T: Into<String>>(
        &mut self,
        head: &str,
        columns_max: usize,
        cells: impl IntoIterator<Item = T>,
    ) -> &mut Table {
        let cells = cells.into_iter().map(Into::into);
        self.column(head, Kind::Text(columns_max), cells.collect())
    }

    /// A column of numbers, each as text.
    pub fn numbers(&mut self, head: &str, cells: impl IntoIterator<Item = String>) -> &mut Table {
        self.column(head, Kind::Number, cells.into_iter().collect())
    }

    /// A column of numbers of which each row has a unit of its own: their points are not put below each other.
    pub fn measures(&mut self, head: &str, cells: impl IntoIterator<Item = String>) -> &mut Table {
        self.column(head, Kind::Measure, cells.into_iter().collect())
    }

    /// A column of finished HTML, which is on the page alone.
    pub fn markup(&mut self, head: &str, cells: impl IntoIterator<Item = String>) -> &mut Table {
        self.column(head, Kind::Markup, cells.into_iter().collect())
            .on_page()
    }

    /// A head above the last `columns_len` columns, which are shown everywhere.
    pub fn group(&mut self, head: &str, columns_len: usize) -> &mut Table {
        let named: usize = self.groups.iter().map(|(len, _)| len).sum();
        let before = self.columns.len().checked_sub(named + columns_len);
        let before = before.expect("a group has columns of its own");
        // Columns without a group keep their place in the line above: an empty one stands over them.
        if before > 0 {
            self.groups.push((before, String::new()));
        }
        self.groups.push((columns_len, head.to_owned()));
        self
    }

    /// The last column is on the page alone.
    pub fn on_page(&mut self) -> &mut Table {
        if let Some(last) = self.columns.last_mut() {
            last.is_page_alone = true;
        }
        self
    }

    fn column(&mut self, head: &str, kind: Kind, cells: Vec<String>) -> &mut Table {
        if let Some(first) = self.columns.first() {
            assert_eq!(
                first.cells.len(),
                cells.len(),
                "columns of one table are equally long: {head}"
            );
        }
        self.columns.push(Column {
            head: head.to_owned(),
            cells,
            kind,
            is_page_alone: false,
        });
        self
    }

    /// Whether there is nothing below the heads.
    pub fn is_empty(&self) -> bool {
        self.columns.iter().all(|column| column.cells.is_empty())
    }

    /// Lines, the heads first; one space between columns where two would be too wide.
    pub fn lines(&self) -> Vec<String> {
        let shown = self.columns.iter().filter(|one| !one.is_page_alone);
        let columns: Vec<(Kind, Vec<String>)> = shown
            .map(|column| {
                let head = std::iter::once(column.head.clone());
                (column.kind, head.chain(column.on_lines()).collect())
            })
            .collect();
        let widths: Vec<usize> = columns
            .iter()
            .map(|(_, cells)| cells.iter().map(|cell| width(cell)).max().unwrap_or(0))
            .collect();
        // The rule of a hundred columns is for numbers: ten of them need the room of their gaps.
        let two = widths.iter().sum::<usize>() + 2 * widths.len().saturating_sub(1);
        let gap = if two > WIDTH_MAX && !self.has_text_after_first() {
            " "
        } else {
            "  "
        };
        let rows_len = columns.first().map_or(0, |(_, cells)| cells.len());
        let line = |row: usize| {
            let cells = columns.iter().zip(&widths).map(|((kind, cells), wide)| {
                let cell = &cells[row];
                // By the width on a terminal, which `format!` does not know: letters of East Asia take two columns.
                let missing = " ".repeat(wide - width(cell));
                match kind {
                    Kind::Number | Kind::Measure => format!("{missing}{cell}"),
                    _ => format!("{cell}{missing}"),
                }
            });
            cells.collect::<Vec<_>>().join(gap).trim_end().to_owned()
        };
        let above = (!self.groups.is_empty()).then(|| self.groups_line(&widths, gap.len()));
        above.into_iter().chain((0..rows_len).map(line)).collect()
    }

    /// The line above the heads, each of its words over its first column.
    fn groups_line(&self, widths: &[usize], gap: usize) -> String {
        let mut line = String::new();
        let mut rest = widths.iter();
        for (len, head) in &self.groups {
            // The last column of a group has a gap behind it as well, so the next group begins where its first column does.
            let wide: usize = rest.by_ref().take(*len).map(|wide| wide + gap).sum();
            line += head;
            line += &" ".repeat(wide.saturating_sub(width(head)));
        }
        line.trim_end().to_owned()
    }

    /// [`Table::lines`], each with its end.
    pub fn to_text(&self) -> String {
        self.lines().into_iter().map(|line| line + "\n").collect()
    }

    /// Texts side by side need two spaces between them, numbers do not.
    fn has_text_after_first(&self) -> bool {
        let mut texts = self.columns.iter().skip(1);
        texts.any(|column| matches!(column.kind, Kind::Text(columns_max) if columns_max > 2))
    }

    /// The table of a page, in a sheet of its own that scrolls where a screen is too narrow.
    pub fn to_html(&self) -> String {
        let mut out = String::from("<div class=sheet><table><thead><tr>");
        for (len, head) in &self.groups {
            out += &format!("<th colspan={len}>{}</th>", escaped(head, PAGE_CHARS_MAX));
        }
        if !self.groups.is_empty() {
            out.push_str("</tr><tr>");
        }
        for column in &self.columns {
            let class = column.class();
            out += &format!("<th{class}>{}</th>", escaped(&column.head, PAGE_CHARS_MAX));
        }
        out.push_str("</tr></thead><tbody>");
        let columns: Vec<(&str, Vec<String>)> = self
            .columns
            .iter()
            .map(|column| (column.class(), column.in_cells()))
            .collect();
        let rows_len = columns.first().map_or(0, |(_, cells)| cells.len());
        for row in 0..rows_len {
            out.push_str("<tr>");
            for (class, cells) in &columns {
                out += &format!("<td{class}>{}</td>", cells[row]);
            }
            out.push_str("</tr>");
        }
        out.push_str("</tbody></table></div>\n");
        out
    }
}

impl Column {
    /// As a terminal shows them.
    fn on_lines(&self) -> Vec<String> {
        match self.kind {
            Kind::Text(columns_max) => {
                let cells = self.cells.iter();
                cells.map(|cell| harmless(cell, columns_max)).collect()
            }
            Kind::Number => aligned(&self.cells, ' ', ' '),
            Kind::Measure | Kind::Markup => self.cells.clone(),
        }
    }

    /// As a page shows them.
    fn in_cells(&self) -> Vec<String> {
        let cells = match self.kind {
            Kind::Markup => return self.cells.clone(),
            // A page joins spaces, and its letters are of different widths: the filling is as wide as what is missing.
            Kind::Number => aligned(&self.cells, POINT_SPACE, FIGURE_SPACE),
            Kind::Text(_) | Kind::Measure => self.cells.clone(),
        };
        let cells = cells.iter();
        cells.map(|cell| escaped(cell, PAGE_CHARS_MAX)).collect()
    }

    fn class(&self) -> &'static str {
        match self.kind {
            Kind::Number | Kind::Measure => " class=n",
            // Long text is broken, short text is not.
            Kind::Text(columns_max) if columns_max >= 50 => " class=t",
            Kind::Text(_) | Kind::Markup => "",
        }
    }
}

/// Numbers with their points below each other: what a number lacks of the most places is filled on its right. A column
/// in which one has a unit behind it stays as it is.
fn aligned(cells: &[String], point: char, digit: char) -> Vec<String> {
    let is_number = |cell: &String| {
        cell == NONE
            || cell
                .chars()
                .all(|sign| sign.is_ascii_digit() || ",.-".contains(sign))
    };
    if !cells.iter().all(is_number) {
        return cells.to_vec();
    }
    // The point counts as a place, or whole numbers would stand one column too far to the right.
    let places = |cell: &str| cell.find('.').map_or(0, |at| cell.len() - at);
    let places_max = cells.iter().map(|cell| places(cell)).max().unwrap_or(0);
    let filled = |cell: &String| {
        let mut filled = cell.clone();
        let missing = places_max - places(cell);
        let has_point = cell.contains('.');
        for index in 0..missing {
            filled.push(if index == 0 && !has_point {
                point
            } else {
                digit
            });
        }
        filled
    };
    cells.iter().map(filled).collect()
}

/// Names and texts side by side, for a page. Empty texts are left out.
pub fn facts<'a>(facts: impl IntoIterator<Item = (&'a str, String)>) -> String {
    let rows = facts.into_iter().filter(|(_, text)| !text.is_empty());
    let rows = rows.map(|(name, text)| {
        let text = coded(&escaped(text, 3 * PAGE_CHARS_MAX));
        format!("<tr><th>{name}</th><td class=t>{text}</td></tr>")
    });
    let rows: String = rows.collect();
    format!("<div class=sheet><table class=facts>{rows}</table></div>\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn table() -> Table {
        let mut table = Table::default();
        let owned = |cells: [&str; 2]| cells.map(str::to_owned);
        table
            .text("route", 8, ["/a", "/very/long/<b>"])
            .numbers("runs", owned(["7", "1,234"]))
            .numbers("seconds", owned(["12", "0.25"]))
            .numbers("share", owned(["0 %", "33.3 %"]))
            .text("client", 9, ["x", ""])
            .on_page();
        table
    }

    #[test]
    fn is_the_same_on_a_terminal_and_on_a_page() {
        let expect = "\
route      runs  seconds   share
/a            7    12        0 %
/very/l…  1,234     0.25  33.3 %
";
        assert_eq!(table().to_text(), expect);
        let html = table().to_html();
        for part in [
            "<th>client</th>",
            "<td>/very/long/&lt;b&gt;</td><td class=n>1,234</td><td class=n>0.25</td>",
            "<td class=n>12\u{2008}\u{2007}\u{2007}</td><td class=n>0 %</td><td>x</td>",
        ] {
            assert!(html.contains(part), "{html}");
        }
    }
}
