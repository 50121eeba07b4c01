//! Texts in columns: each as wide as its widest text, two spaces between them.

/// A column by its head.
#[derive(Clone, Copy, Debug)]
pub(super) enum Column {
    /// For names.
    Left(&'static str),
    /// For numbers.
    Right(&'static str),
}

impl Column {
    fn head(self) -> &'static str {
        match self {
            Column::Left(head) | Column::Right(head) => head,
        }
    }
}

/// The rows under their heads; nothing when there are no rows. Each row has a text for each column.
pub(super) fn columns(heads: &[Column], rows: Vec<Vec<String>>) -> String {
    if rows.is_empty() {
        return String::new();
    }
    let first: Vec<String> = heads.iter().map(|head| head.head().to_owned()).collect();
    let rows: Vec<Vec<String>> = [first].into_iter().chain(rows).collect();
    let width = |index: usize| {
        let widths = rows.iter().map(|row| row[index].chars().count());
        widths.max().unwrap_or_default()
    };
    let widths: Vec<usize> = (0..heads.len()).map(width).collect();
    let mut text = String::new();
    for row in &rows {
        let cells = row.iter().zip(heads).zip(&widths);
        let cells: Vec<String> = cells
            .map(|((cell, head), width)| match head {
                Column::Left(_) => format!("{cell:<width$}"),
                Column::Right(_) => format!("{cell:>width$}"),
            })
            .collect();
        text.push_str(cells.join("  ").trim_end());
        text.push('\n');
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn aligns_names_left_and_numbers_right() {
        let heads = [
            Column::Left("NAME"),
            Column::Right("N"),
            Column::Left("STATE"),
        ];
        let row = |name: &str, n: &str, state: &str| [name, n, state].map(str::to_owned).to_vec();
        let rows = vec![row("a", "1,234", "ok"), row("longer", "5", "waiting")];
        let expect = "NAME        N  STATE\na       1,234  ok\nlonger      5  waiting\n";
        assert_eq!(columns(&heads, rows), expect);
        assert_eq!(columns(&heads, Vec::new()), "");
    }
}
