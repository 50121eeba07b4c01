//! The reference page of all settings, in Markdown (docs/reference/options.md is its committed output), and
//! the manual page of `serve`.
//!
//! Takes the table and gives text.

use std::fmt::Write as _;

use config::options_table::{FlagForm, Setting, SettingGroup};

use crate::command::{self, Purpose};

const HEAD: &str = "\
<!-- Written by `milepost reference` (`make docs`); change the table in crates/config/src/options_table/rows.rs instead. -->
# Settings

A setting can be written in several places. Each overrides the places before it:

1. the defaults below,
2. the variables `PORT` (the address `0.0.0.0:PORT`) and `WEB_CONCURRENCY` (`processes`),
3. the configuration file named by `--config` (TOML; the keys below, at the top of the file),
4. flags in the variable `GUNICORN_CMD_ARGS`,
5. environment variables (`MILEPOST_` and the key in capitals; lists separated by commas; an empty variable is not set),
6. flags.

Flags of gunicorn, uvicorn and uWSGI that have a counterpart are accepted: see [coming from gunicorn](../guide/coming-from-gunicorn.md).

Settings of several parts, such as `redirect` and `pool`, are arrays of tables and stand in the configuration file only. A source that names a list replaces it. Unknown keys, variables and flags are faults, and `milepost check` reports all of them at once.

Sizes are bytes, or take `K`, `M`, `G`, `T` (powers of 1024; also `KiB` and so on). Rates are sizes a second, with or without `/s`. Durations are seconds, or take `us`, `ms`, `s`, `m`, `h`, `d`.
Relative paths start at the working folder, after `chdir`; that of the configuration file before it.
";

const KEYWORDS_HEAD: &str = "\
\"\"\"The keyword arguments of `milepost.serve`: a name and a type for each setting.

Written by `milepost reference` (`make docs`); change crates/config/src/options_table/rows.rs instead.
\"\"\"

from collections.abc import Mapping, Sequence
from os import PathLike
from typing import Literal, TypeAlias, TypedDict

#: A text, or what is written as one.
Text: TypeAlias = str | int | PathLike[str]


class Settings(TypedDict, total=False):
    \"\"\"What `milepost.serve` takes; docs/reference/options.md explains each.\"\"\"

";

const METRICS_HEAD: &str = "\
<!-- Written by `milepost reference metrics` (`make docs`); change the tables in crates/telemetry/src/counters instead. -->
# Metrics

The [admin listener](../guide/metrics.md) shows these metrics at `/metrics`, for all processes together. Counters have
`_total` behind their name; they go on counting over reloads and ends of processes, and begin at 0 when the server starts.
Histograms have `_bucket`, `_sum` and `_count`. Times are in seconds.

| metric | kind | meaning |
|---|---|---|
";

/// The page of all metrics.
pub(crate) fn metrics() -> String {
    let mut page = METRICS_HEAD.to_owned();
    let text = supervisor::metric_families();
    let mut help = "";
    for line in text.lines() {
        if let Some(rest) = line.strip_prefix("# HELP ") {
            help = rest.split_once(' ').map_or("", |(_, help)| help);
        } else if let Some(rest) = line.strip_prefix("# TYPE ")
            && let Some((name, kind)) = rest.split_once(' ')
        {
            let help = help.replace('|', "\\|");
            page.push_str(&format!("| `{name}` | {kind} | {help} |\n"));
        }
    }
    page
}

/// The whole page.
pub(crate) fn page() -> String {
    let mut page = HEAD.to_owned();
    for group in SettingGroup::ALL.iter().copied() {
        page.push_str(&format!("\n## {}\n", group.title()));
        for setting in group.settings() {
            entry(&mut page, setting);
        }
    }
    page
}

/// The types of the keyword arguments of `milepost.serve`, as a module of Python
/// (python/milepost/_settings.py is its committed output).
pub(crate) fn keywords() -> String {
    let mut text = KEYWORDS_HEAD.to_owned();
    for setting in SettingGroup::ALL.iter().flat_map(|group| group.settings()) {
        let is_keyword = setting.form() != FlagForm::Argument;
        if let Some(kind) = setting.python_type().filter(|_| is_keyword) {
            // Writing to a String cannot fail.
            let _ = writeln!(
                text,
                "    {}: {kind}\n    \"\"\"{}.\"\"\"",
                setting.key, setting.help
            );
        }
    }
    text
}

/// The manual page of `milepost serve`, for `man -l`.
pub(crate) fn manual() -> String {
    let mut all = command::command(Purpose::Run);
    all.build();
    let serve = all.find_subcommand("serve");
    let serve = serve.expect("the command line has `serve`");
    let page = clap_mangen::Man::new(serve.clone().name("milepost-serve"));
    let mut text = Vec::new();
    // Writing to a vector cannot fail.
    let _ = page.render(&mut text);
    String::from_utf8_lossy(&text).into_owned()
}

fn entry(page: &mut String, setting: &Setting) {
    let doc = if setting.doc.is_empty() {
        String::new()
    } else {
        format!(" {}", setting.doc)
    };
    // Writing to a String cannot fail.
    let _ = writeln!(page, "\n### `{}`\n{}.{doc}\n", setting.key, setting.help);
    if let Some(example) = setting.example() {
        let _ = writeln!(page, "```toml\n{example}\n```\n");
    }
    table_keys(page, setting);
    if !setting.in_flags() {
        let _ = writeln!(page, "- TOML: {}", setting.toml_form());
        return;
    }
    let _ = writeln!(page, "- flag: {}", flags(setting));
    let _ = writeln!(page, "- environment: `{}`", setting.environment());
    if setting.in_toml() {
        let _ = writeln!(page, "- TOML: {}", setting.toml_form());
    }
    if !setting.aliases.is_empty() {
        let names: Vec<String> = setting
            .aliases
            .iter()
            .map(|alias| format!("`{alias}`"))
            .collect();
        let _ = writeln!(page, "- other names: {}", names.join(", "));
    }
    let _ = writeln!(page, "- value: {}", setting.expected());
    if !setting.default.is_empty() {
        let _ = writeln!(page, "- default: `{}`", setting.default);
    }
}

/// The keys of a table, one a row.
fn table_keys(page: &mut String, setting: &Setting) {
    if setting.table_keys.is_empty() {
        return;
    }
    page.push_str("| key | default | meaning |\n|---|---|---|\n");
    for key in setting.table_keys {
        let default = match key.default {
            "" => String::new(),
            default => format!("`{default}`"),
        };
        // Writing to a String cannot fail.
        let _ = writeln!(page, "| `{}` | {default} | {} |", key.name, key.meaning);
    }
    page.push('\n');
}

fn flags(setting: &Setting) -> String {
    let short = setting
        .short
        .map(|letter| format!("`-{letter}`, "))
        .unwrap_or_default();
    let (flag, placeholder) = (setting.flag(), setting.placeholder());
    match setting.form() {
        FlagForm::Argument => format!("`{placeholder}`, the command's argument"),
        FlagForm::Once => format!("{short}`{flag} {placeholder}`"),
        FlagForm::Repeated => format!("{short}`{flag} {placeholder}`, repeatable"),
        FlagForm::Switch => format!("`{flag}`, `{flag}=false`"),
    }
}

#[cfg(test)]
mod tests {
    use config::options_table::SETTINGS;

    use super::*;

    #[test]
    fn is_the_committed_page() {
        let file = concat!(
            env!("CARGO_MANIFEST_DIR"),
            "/../../docs/reference/options.md"
        );
        let committed = std::fs::read_to_string(file).unwrap();
        assert!(
            committed == page(),
            "docs/reference/options.md is old: run `make docs`"
        );
    }

    #[test]
    fn the_metrics_are_those_of_the_committed_page() {
        let file = concat!(
            env!("CARGO_MANIFEST_DIR"),
            "/../../docs/reference/metrics.md"
        );
        let committed = std::fs::read_to_string(file).unwrap();
        assert!(
            committed == metrics(),
            "docs/reference/metrics.md is old: run `make docs`"
        );
    }

    #[test]
    fn the_types_of_keyword_arguments_are_the_committed_ones() {
        let file = concat!(
            env!("CARGO_MANIFEST_DIR"),
            "/../../python/milepost/_settings.py"
        );
        let committed = std::fs::read_to_string(file).unwrap();
        assert!(
            committed == keywords(),
            "python/milepost/_settings.py is old: run `make docs`"
        );
    }

    #[test]
    fn has_every_setting_once() {
        let page = page();
        for setting in SETTINGS {
            assert_eq!(
                page.matches(&format!("### `{}`\n", setting.key)).count(),
                1,
                "{}",
                setting.key
            );
        }
    }
}
