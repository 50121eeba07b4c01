//! The reference page of `milepost bench`, in Markdown: docs/reference/bench.md is its committed output.
//!
//! Takes the table of keys and gives text.

use std::fmt::Write as _;

use loadgen::spec::{FlagForm, FlagGroup, Key};

use super::flags;

const HEAD: &str = "\
<!-- Written by `milepost reference bench` (`make docs`); change the tables in crates/loadgen/src/spec/keys/rows.rs and crates/cli/src/bench/flags.rs instead. -->
# `milepost bench`

`milepost bench [FLAGS] URL` loads an HTTP server and measures what it does. All faults of the flags are reported at once.

Times are seconds, or take `ns`, `us`, `ms`, `s`, `m`, `h`, `d`. Sizes are bytes, or take `K`, `M`, `G` (powers of 1024).

The table goes to standard output; progress (on a terminal only) and messages go to standard error. With `-` as a file of results, the results go to standard output and the table to standard error. The first Ctrl-C ends the run and shows its results so far, the second one ends the program.

| exit code | |
|---|---|
| 0 | done, and every assertion holds |
| 1 | an assertion does not hold, or a search has found no rate |
| 2 | the run was impossible (wrong flags, too few ports or descriptors), or not a single request was answered |
";

const TAIL: &str = r#"
## A mix of requests
`--requests-file mix.toml` has a `[[request]]` table for each kind of request. The next kind is drawn by weight.

```toml
[[request]]
target = "/"
weight = 9

[[request]]
method = "POST"
target = "/orders"
weight = 1
headers = ["Content-Type: application/json"]
body_file = "order.json"
expect_status = 201
```

| key | |
|---|---|
| `target` | path and query; required |
| `method` | default `GET`, with a body `POST` |
| `weight` | a whole number, how often the kind is drawn in proportion to the others; default 1, 0: never |
| `headers` | a list of `Name: value`; a field of `--header` is added if the table has none of its name |
| `body`, `body_file`, `body_size` | at most one of them |
| `expect_status`, `expect_length`, `expect_body` | expectations of the reply; a table with one of them replaces those of the flags |

Faults are reported with file and line.

## Replaying a log
`--replay FILE` sends the requests of an access log to the target at the log's own pace, or `--replay-speed` times as fast: any form that `milepost report` reads, plain or compressed by gzip or zstd; templates need `--replay-format`. A request is due at the time of its beginning, which the logs of Milepost and NaviServer have, and otherwise at the time of its answer. Lines without a request, and requests that cannot be sent (CONNECT, or no path), are left out and counted on standard error. A log has neither headers nor bodies: `--header` and `--body` take their place.

## Searching
`--search 'p99 < 20ms'` makes one run after another, each of `--duration`: the rate is doubled until the condition fails, then the gap is halved. The output has every try, and at the end the highest rate that the server can keep. A search ends when the generator is the limit, and says so.

## Examples
"#;

/// The whole page.
pub(crate) fn page() -> String {
    let mut page = HEAD.to_owned();
    for group in FlagGroup::ALL.iter().copied() {
        // Writing to a String cannot fail.
        let _ = writeln!(page, "\n## {}", group.title());
        for key in flags::rows().filter(|key| key.group == group) {
            entry(&mut page, key);
        }
    }
    page.push_str(TAIL);
    // The first line is a heading and the last ones are about exit codes, which have a table here.
    let examples = super::EXAMPLES
        .lines()
        .skip(1)
        .take_while(|line| !line.is_empty());
    page.push_str("```sh\n");
    for line in examples {
        let _ = writeln!(page, "{}", line.trim_start());
    }
    page.push_str("```\n");
    page
}

fn entry(page: &mut String, key: &Key) {
    let doc = match key.doc {
        "" => String::new(),
        doc => format!(" {doc}"),
    };
    let _ = writeln!(page, "\n### `{}`\n{}.{doc}\n", key.name, key.help);
    let _ = writeln!(page, "- flag: {}", flag(key));
    if !key.alias.is_empty() {
        let _ = writeln!(page, "- other name: `--{}`", key.alias.replace('_', "-"));
    }
    if !key.default.is_empty() {
        let _ = writeln!(page, "- default: `{}`", key.default);
    }
    if !key.example.is_empty() {
        let _ = writeln!(page, "- example: `{}`", key.example);
    }
}

fn flag(key: &Key) -> String {
    let short = key
        .short
        .map(|letter| format!("`-{letter}`, "))
        .unwrap_or_default();
    let (said, placeholder) = (key.said(), key.placeholder);
    match key.form {
        FlagForm::Argument => format!("`{placeholder}`, the command's argument"),
        FlagForm::Once => format!("{short}`{said} {placeholder}`"),
        FlagForm::Repeated => format!("{short}`{said} {placeholder}`, repeatable"),
        FlagForm::Switch => format!("{short}`{said}`"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn is_the_committed_page() {
        let file = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/reference/bench.md");
        let committed = std::fs::read_to_string(file).unwrap();
        assert!(
            committed == page(),
            "docs/reference/bench.md is old: run `make docs`"
        );
    }

    #[test]
    fn has_every_key_once() {
        let page = page();
        for key in flags::rows() {
            let heading = format!("### `{}`\n", key.name);
            assert_eq!(page.matches(&heading).count(), 1, "{}", key.name);
        }
    }
}
