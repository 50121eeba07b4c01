//! The reference page of `milepost bench`, in Markdown: docs/reference/bench.md is its committed output.
//!
//! Takes the table of keys and gives text.

use std::fmt::Write as _;

use loadgen::written::{self, Form, Group, Key};

use super::flags;

const HEAD: &str = "\
<!-- Written by `milepost reference bench` (`make docs`); change the tables in crates/loadgen/src/written/keys/rows.rs and crates/cli/src/benching/flags.rs instead. -->
# `milepost bench`

`milepost bench [FLAGS] URL` makes a load, measures it and says what was found. Each key below is a flag (`--connect-rate 5000`); those of a load are also keys of TOML (`connect_rate = 5000`) where a load is written in a scenario. Numbers and booleans may stand there without quotes; a key that may be repeated takes a list. All faults are said at once.

Times are seconds, or take `ns`, `us`, `ms`, `s`, `m`, `h`, `d`. Sizes are bytes, or take `K`, `M`, `G` (powers of 1024).

Standard output has the table, standard error the progress (on a terminal only) and what there is to say. Where `-` stands for a file of results, standard output has that, and standard error the table. The first Ctrl-C ends the run and shows what was measured until then, the second one ends the program.

| exit code | |
|---|---|
| 0 | done, and every assertion holds |
| 1 | an assertion does not hold, or a search has found no rate |
| 2 | it could not be done: wrong flags, too few ports or descriptors, or not a single request was answered |
";

const TAIL: &str = r#"
## A mix of requests
`--requests-file mix.toml` has a `[[request]]` table for each kind of request. Which kind leaves next is drawn by weight.

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
| `target` | path and query; it has to be given |
| `method` | `GET`, or `POST` with a body, unless it is given |
| `weight` | how often it is drawn beside the others, a whole number; 1 unless it is given, 0: never |
| `headers` | a list of `Name: value`; those of `--header` are added where the table has none of the name |
| `body`, `body_file`, `body_size` | one of them at most |
| `expect_status`, `expect_length`, `expect_body` | what its reply has to be; a table with one of them is judged by its own alone |

Faults are said with file and line.

## Replaying a log
`--replay FILE` sends the requests of an access log to the target at the log's own pace, or `--replay-speed` times as fast: any form that `milepost report` reads, plain or compressed by gzip or zstd; templates need `--replay-format`. A request is due when it began, as far as the log says that: milepost's and NaviServer's do, others have the time of the answer. Lines that are no requests, and requests that cannot be sent (CONNECT, or no path), are left out and counted on standard error. The log's headers and bodies are unknown: `--header` and `--body` stand for them.

## Searching
`--search 'p99 < 20ms'` makes one run after another, each of `--duration`: the rate is doubled until the condition does not hold, then the gap is halved. Every try is shown, and the knee at the end. Where the generator was the limit the search ends, and says so.

## Examples
"#;

/// The whole page.
pub(crate) fn page() -> String {
    let mut page = HEAD.to_owned();
    for group in Group::ALL {
        // Writing to a String cannot fail.
        let _ = writeln!(page, "\n## {}", group.title());
        for key in flags::rows().filter(|key| key.group == group) {
            entry(&mut page, key);
        }
    }
    page.push_str(TAIL);
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
    let is_of_load = written::keys().iter().any(|other| other.name == key.name);
    if is_of_load {
        let form = match key.form {
            Form::Repeated => ", one value or a list",
            Form::Switch => ", `true` or `false`",
            Form::Once | Form::Argument => "",
        };
        let _ = writeln!(page, "- TOML: `{}`{form}", key.name);
    }
    if !key.alias.is_empty() {
        let _ = writeln!(page, "- other name: `{}`", key.alias);
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
        Form::Argument => format!("`{placeholder}`, the command's argument"),
        Form::Once => format!("{short}`{said} {placeholder}`"),
        Form::Repeated => format!("{short}`{said} {placeholder}`, repeatable"),
        Form::Switch => format!("{short}`{said}`"),
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
