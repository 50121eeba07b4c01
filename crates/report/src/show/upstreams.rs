//! What upstream servers did, in each of the forms.
//!
//! Takes what is known of them, gives their parts of the table, of the JSON and of the page; nothing without an upstream.

use std::fmt::Write as _;

use present::{Page, Table, percent, thousands};
use serde_json::{Value, json};

use super::json::{distribution, number};
use super::ms;
use crate::spread::Spread;
use crate::upstreams::UpstreamServer;

/// Rows of the table; `--json` has all.
const ROWS_LEN_MAX: usize = 10;
const NAME_CHARS_MAX: usize = 30;
const TITLE: &str =
    "upstream servers; times in ms: to the first byte, and in the server's own queue";

/// The part of the table.
pub(super) fn table(servers: &[&UpstreamServer], out: &mut String) {
    if servers.is_empty() {
        return;
    }
    let _ = write!(
        out,
        "\n{TITLE}\n{}",
        servers_table(servers, ROWS_LEN_MAX).to_text()
    );
    let more_len = servers.len().saturating_sub(ROWS_LEN_MAX);
    // Nothing is left out silently.
    if more_len > 0 {
        let _ = writeln!(out, "and {more_len} more: `--json` has all");
    }
}

fn servers_table(servers: &[&UpstreamServer], len_max: usize) -> Table {
    let shown = || servers.iter().take(len_max);
    // What no line contains is left empty.
    let quantile = |spread: &Spread, q| match spread.is_empty() {
        true => String::new(),
        false => ms(spread.quantile_secs(q)),
    };
    let mut table = Table::default();
    table
        .text(
            "server",
            NAME_CHARS_MAX,
            shown().map(|one| one.name.as_str()),
        )
        .numbers("requests", shown().map(|one| thousands(one.len)))
        .numbers("attempts", shown().map(|one| thousands(one.attempts_len)))
        .numbers(
            "reused",
            shown().map(|one| percent(one.reused_len, one.len)),
        )
        .numbers("no response", shown().map(|one| thousands(one.silent_len)))
        .numbers("median", shown().map(|one| quantile(&one.ttfb, 0.5)))
        .numbers("p99", shown().map(|one| quantile(&one.ttfb, 0.99)))
        .numbers("queue median", shown().map(|one| quantile(&one.queue, 0.5)))
        .numbers("p99", shown().map(|one| quantile(&one.queue, 0.99)));
    table
}

/// The value of `upstreams`.
pub(super) fn json(servers: &[&UpstreamServer]) -> Value {
    let servers = servers.iter().map(|server| {
        json!({
            "name": server.name,
            "requests": server.len,
            "attempts": server.attempts_len,
            "retried": server.retried_len,
            "reused": server.reused_len,
            "reused_share": number(server.reused_len as f64 / server.len as f64),
            "no_response": server.silent_len,
            "connect": distribution(&server.connect),
            "ttfb": distribution(&server.ttfb),
            "queue": distribution(&server.queue),
            "run": distribution(&server.run),
        })
    });
    servers.collect()
}

/// The part of the page.
pub(super) fn page(servers: &[&UpstreamServer], page: &mut Page) {
    if !servers.is_empty() {
        page.heading("Upstream servers")
            .paragraph(&format!("{}:", present::sentence(TITLE)))
            .table(&servers_table(servers, usize::MAX));
    }
}
