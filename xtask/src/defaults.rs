//! Defaults of settings in the guides.
//!
//! Takes the reference page of the settings (docs/reference/options.md) and a guide; gives the guide with the
//! column `default` of its marked tables written anew, or names what is wrong in it. Pure.

use std::collections::BTreeMap;

/// Stands in the line before a table whose defaults are written here.
const MARK: &str = "<!-- `make docs` writes the column `default` -->";
/// A longer default is a list: the reference has it.
const DEFAULT_LEN_MAX: usize = 40;

/// Settings and the text of their default; empty where the reference states none.
pub(crate) type Defaults = BTreeMap<String, String>;

/// All settings of the reference page.
pub(crate) fn read(reference: &str) -> Defaults {
    let mut defaults = Defaults::new();
    let mut key = "";
    for line in reference.lines() {
        if let Some(name) = line.strip_prefix("### `") {
            key = name.trim_end_matches('`');
            defaults.insert(key.to_owned(), String::new());
        } else if let Some(default) = line.strip_prefix("- default: ") {
            defaults.insert(key.to_owned(), default.trim_matches('`').to_owned());
        }
    }
    defaults
}

/// The page as it should be; `reference` is the way from it to the reference page.
///
/// # Errors
/// A table names a setting that does not exist, or has defaults without the mark.
pub(crate) fn write(page: &str, reference: &str, defaults: &Defaults) -> Result<String, String> {
    let mut written = String::with_capacity(page.len());
    let mut columns = None;
    let mut before = "";
    for (number, line) in page.lines().enumerate() {
        let cells = cells(line);
        if cells.is_empty() {
            columns = None;
        } else if columns.is_none() && !before.starts_with('|') {
            columns = columns_of(&cells);
            if columns.is_some() && before != MARK {
                return Err(format!("line {}: write `{MARK}` above", number + 1));
            }
        }
        let row = columns.filter(|_| cells.iter().any(|cell| cell.contains('`')));
        match row {
            None => written.push_str(line),
            Some(at) => {
                let row = row_of(&cells, at, reference, defaults);
                written.push_str(&row.map_err(|what| format!("line {}: {what}", number + 1))?);
            }
        }
        written.push('\n');
        before = line;
    }
    Ok(written)
}

/// Where a header has the columns `setting` and `default`.
fn columns_of(header: &[&str]) -> Option<(usize, usize)> {
    let find = |name| header.iter().position(|cell| *cell == name);
    Some((find("setting")?, find("default")?))
}

fn row_of(
    cells: &[&str],
    (setting, default): (usize, usize),
    reference: &str,
    defaults: &Defaults,
) -> Result<String, String> {
    let key = cells[setting].trim_matches('`');
    let value = defaults
        .get(key)
        .ok_or_else(|| format!("there is no setting `{key}`"))?;
    let link = format!("[a list]({reference}#{key})");
    let quoted = format!("`{value}`");
    let mut cells = cells.to_vec();
    match value.len() {
        // The table says in words what depends on the machine.
        0 => {}
        1..=DEFAULT_LEN_MAX => cells[default] = &quoted,
        _ => cells[default] = &link,
    }
    Ok(format!("| {} |", cells.join(" | ")))
}

/// The cells of a line of a table; none of any other line.
fn cells(line: &str) -> Vec<&str> {
    line.strip_prefix('|')
        .and_then(|line| line.strip_suffix('|'))
        .map(|line| line.split('|').map(str::trim).collect())
        .unwrap_or_default()
}

/// Numbers behind a setting, as "`send_timeout` (30 s)", that are not its default.
pub(crate) fn wrong_in_prose(page: &str, defaults: &Defaults) -> Vec<String> {
    let mut wrong = Vec::new();
    for (at, _) in page.match_indices("` (") {
        let name = page[..at].rsplit('`').next().unwrap_or_default();
        let key = name.trim_start_matches("--").replace('-', "_");
        let stated = page[at + 3..].split(')').next().unwrap_or_default();
        let (Some(default), Some(stated_default)) = (defaults.get(&key), as_written(stated)) else {
            continue;
        };
        if !default.is_empty() && stated_default != *default {
            wrong.push(format!("`{key}` is `{default}` and not ({stated})"));
        }
    }
    wrong
}

/// A quantity of prose in the form of the settings table: `2 min` is `2m`, `64 KB` is `64K`. None for other text.
fn as_written(stated: &str) -> Option<String> {
    let (number, unit) = stated.split_once(' ').unwrap_or((stated, ""));
    let unit = match unit {
        "KB" => "K",
        "MB" => "M",
        "GB" => "G",
        "min" => "m",
        "" | "bytes" | "bytes a second" => "",
        "ms" | "s" | "h" => unit,
        _ => return None,
    };
    let number = number.replace(',', "");
    let is_number = !number.is_empty() && number.bytes().all(|byte| byte.is_ascii_digit());
    is_number.then(|| format!("{number}{unit}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    const REFERENCE: &str =
        "## Limits\n\n### `body_max`\nA.\n\n- default: `256M`\n\n### `spool_dir`\nB.\n";

    fn check(page: &str, expect: Result<&str, &str>) {
        let written = write(page, "../r.md", &read(REFERENCE));
        assert_eq!(written.as_deref().map_err(String::as_str), expect, "{page}");
    }

    #[test]
    fn writes_the_defaults_of_marked_tables() {
        let table = |mark, default| {
            format!(
                "{mark}\n| setting | default |\n|---|---|\n| `body_max` | {default} |\n| `spool_dir` | `/tmp` |\n"
            )
        };
        check(&table(MARK, "`1`"), Ok(&table(MARK, "`256M`")));
        check(
            &table("", "`1`"),
            Err("line 2: write `<!-- `make docs` writes the column `default` -->` above"),
        );
        check(
            &format!("{MARK}\n| setting | default |\n|---|---|\n| `body` | `1` |\n"),
            Err("line 4: there is no setting `body`"),
        );
    }

    #[test]
    fn finds_other_numbers_in_prose() {
        let defaults = read(REFERENCE);
        let wrong = |page| wrong_in_prose(page, &defaults).len();
        assert_eq!(
            wrong(
                "`body_max` (256 MB), `--body-max` (256 MB), `body_max` (all), `body_max` (3 clients)"
            ),
            0
        );
        assert_eq!(wrong("`body_max` (64 KB)"), 1);
    }
}
