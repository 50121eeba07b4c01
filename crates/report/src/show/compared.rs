//! Two logs side by side, in each of the forms.
//!
//! Takes two tallies, gives the same verdict and table for a terminal, a browser and a program.

use present::{NONE, Page, Table, harmless, sentence, thousands};
use serde_json::{Value, json};

use super::ms;
use super::page::sentences;
use crate::compared::{PagePair, pairs, verdict};
use crate::tally::{Group, Tally};

const NAME_CHARS_MAX: usize = 40;
/// Pages on a terminal.
const PAGES_LEN_MAX: usize = 20;

/// A pair of columns: its head, and its cells.
type Column = (&'static str, fn(&Group) -> String);

const COLUMNS: [Column; 5] = [
    ("requests", |group| thousands(group.len)),
    ("median, ms", |group| quantile(group, 4, 0.5)),
    ("p99, ms", |group| quantile(group, 4, 0.99)),
    ("p99 queue, ms", |group| quantile(group, 1, 0.99)),
    ("5xx", |group| thousands(group.classes[5])),
];

/// The comparison for a terminal; the names of the logs are the caller's.
pub fn compared_table(before: &Tally, after: &Tally, names: [&str; 2]) -> String {
    let mut out = String::new();
    for text in verdict(before, after) {
        for line in present::broken(&harmless(sentence(&text), usize::MAX), present::WIDTH_MAX) {
            out += &line;
            out.push('\n');
        }
    }
    let [old, new] = names.map(|name| harmless(name, NAME_CHARS_MAX));
    out += &format!(
        "\nbefore: {old}, after: {new}\n{}",
        table(before, after, PAGES_LEN_MAX).to_text()
    );
    let more_len = pairs(before, after).len().saturating_sub(PAGES_LEN_MAX);
    // Nothing is left out silently.
    if more_len > 0 {
        out += &format!("and {more_len} more: `--html` and `--json` have all\n");
    }
    out
}

/// The comparison as a page.
pub fn compared_page(before: &Tally, after: &Tally, names: [&str; 2]) -> String {
    let [old, new] = names;
    let mut page = Page::new(&format!("{old} and {new}"));
    page.verdict(&sentences(&verdict(before, after)));
    page.heading("Pages")
        .paragraph(&format!("Before: {old}. After: {new}."))
        .table(&table(before, after, usize::MAX));
    page.finish()
}

/// The comparison as one JSON object.
pub fn compared_json(before: &Tally, after: &Tally) -> String {
    // Each as `report --json` has it.
    let side =
        |tally: &Tally| serde_json::from_str::<Value>(&super::json(tally)).unwrap_or_default();
    let value = json!({
        "verdict": verdict(before, after),
        "before": side(before),
        "after": side(after),
    });
    format!("{value}\n")
}

fn table(before: &Tally, after: &Tally, len_max: usize) -> Table {
    let all = PagePair {
        name: "all".to_owned(),
        before: Some(before.all()),
        after: Some(after.all()),
    };
    let rows: Vec<PagePair<'_>> = std::iter::once(all)
        .chain(pairs(before, after).into_iter().take(len_max))
        .collect();
    let mut table = Table::default();
    table.text(
        "path",
        NAME_CHARS_MAX,
        rows.iter().map(|row| row.name.clone()),
    );
    for (head, of) in COLUMNS {
        let cell = |group: Option<&Group>| group.map_or_else(|| NONE.to_owned(), of);
        let olds: Vec<String> = rows.iter().map(|row| cell(row.before)).collect();
        let news: Vec<String> = rows.iter().map(|row| cell(row.after)).collect();
        table
            .numbers("before", olds)
            .numbers("after", news)
            .group(head, 2);
    }
    table
}

fn quantile(group: &Group, phase: usize, q: f64) -> String {
    let spread = &group.phases[phase];
    match spread.is_empty() {
        true => NONE.to_owned(),
        false => ms(spread.quantile_secs(q)),
    }
}
