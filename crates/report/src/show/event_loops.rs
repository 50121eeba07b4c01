//! What event loops did, in each of the forms.
//!
//! Takes what is known of them, gives their parts of the table, of the JSON and of the page; nothing without an event loop.

use std::fmt::Write as _;

use present::{Page, Table, counted, percent, thousands};
use serde_json::{Value, json};

use super::json::number;
use super::ms;
use crate::event_loops::{EventLoops, LoopPage, OpenPath};
use crate::spread::secs;

/// Rows of a table; `--json` has all.
const ROWS_LEN_MAX: usize = 5;
const NAME_CHARS_MAX: usize = 40;

/// The parts of the table.
pub(super) fn table(found: &EventLoops, out: &mut String) {
    if found.len > 0 {
        let _ = writeln!(out, "\n{}", summary(found));
    }
    if !found.pages.is_empty() {
        let pages = pages_table(found, ROWS_LEN_MAX).to_text();
        let _ = write!(out, "\n{PAGES_TITLE}\n{pages}");
        more(found.pages.len(), out);
    }
    if !found.connections.is_empty() {
        let connections = connections_table(found, ROWS_LEN_MAX).to_text();
        let _ = write!(out, "\n{CONNECTIONS_TITLE}\n{connections}");
        more(found.connections.len(), out);
        let _ = write!(
            out,
            "{}",
            codes(found).map_or(String::new(), |text| text + "\n")
        );
    }
}

const PAGES_TITLE: &str = "paths with steps of 10 ms and more on the event loop, in ms";
const CONNECTIONS_TITLE: &str =
    "connections that stay open, which are not among the requests above, in seconds";

/// Nothing is left out silently.
fn more(len: usize, out: &mut String) {
    let more_len = len.saturating_sub(ROWS_LEN_MAX);
    if more_len > 0 {
        let _ = writeln!(out, "and {more_len} more: `--json` has all");
    }
}

fn summary(found: &EventLoops) -> String {
    let part = percent(
        (found.loop_ns / 1_000) as u64,
        (found.queue_ns / 1_000) as u64,
    );
    format!(
        "{} ran on an event loop; {part} of their queue time was in the loop, the rest in the queue before it",
        counted(found.len, "request")
    )
}

fn pages_table(found: &EventLoops, len_max: usize) -> Table {
    let shown = || found.pages.iter().take(len_max);
    let span_ms = |span| ms(secs(span));
    let steps = |page: &LoopPage| match page.len {
        0 => String::new(),
        len => present::number(page.steps_len as f64 / len as f64),
    };
    let blocked_ms = |page: &LoopPage| match page.blocked_len {
        0 => String::new(),
        _ => span_ms(page.blocked_max),
    };
    let mut table = Table::default();
    table
        .text(
            "path",
            NAME_CHARS_MAX,
            shown().map(|page| page.name.as_str()),
        )
        .numbers("requests", shown().map(|page| thousands(page.len)))
        .numbers("steps", shown().map(steps))
        .numbers("long step", shown().map(|page| span_ms(page.long_mean())))
        .numbers("longest", shown().map(|page| span_ms(page.longest)))
        .numbers(
            "requests blocked",
            shown().map(|page| thousands(page.blocked_len)),
        )
        .numbers("waited up to", shown().map(blocked_ms));
    table
}

fn connections_table(found: &EventLoops, len_max: usize) -> Table {
    let shown = || found.connections.iter().take(len_max);
    let open = |span| present::digits(secs(span), 3, 3);
    let messages = |path: &OpenPath, side: usize| match path.kind {
        crate::OpenKind::WebSocket => thousands(path.messages[side]),
        crate::OpenKind::EventStream => String::new(),
    };
    let mut table = Table::default();
    table
        .text(
            "path",
            NAME_CHARS_MAX,
            shown().map(|path| path.name.as_str()),
        )
        .text("kind", NAME_CHARS_MAX, shown().map(|path| path.kind.text()))
        .numbers("connections", shown().map(|path| thousands(path.len)))
        .numbers("open", shown().map(|path| open(path.open_mean())))
        .numbers("longest", shown().map(|path| open(path.open_max)))
        .numbers("messages in", shown().map(|path| messages(path, 0)))
        .numbers("out", shown().map(|path| messages(path, 1)));
    table
}

fn codes(found: &EventLoops) -> Option<String> {
    let codes = found.close_codes.iter();
    let codes: Vec<String> = codes
        .map(|(code, len)| format!("{code} {}", thousands(*len)))
        .collect();
    (!codes.is_empty()).then(|| format!("close codes of WebSockets: {}", codes.join(" · ")))
}

/// The value of `event_loops`.
pub(super) fn json(found: &EventLoops) -> Value {
    let seconds = |ns: u128| number(ns as f64 / 1e9);
    let pages = found.pages.iter().map(|page| {
        json!({
            "name": page.name,
            "requests": page.len,
            "steps": page.steps_len,
            "long_steps": page.long_len,
            "long_step": number(secs(page.long_mean())),
            "longest": number(secs(page.longest)),
            "blocked": page.blocked_len,
            "blocked_seconds": seconds(page.blocked_ns),
            "blocked_max": number(secs(page.blocked_max)),
        })
    });
    let connections = found.connections.iter().map(|path| {
        json!({
            "name": path.name,
            "kind": path.kind.text(),
            "connections": path.len,
            "open_mean": number(secs(path.open_mean())),
            "open_max": number(secs(path.open_max)),
            "messages_in": path.messages[0],
            "messages_out": path.messages[1],
        })
    });
    let codes = found.close_codes.iter();
    let codes = codes.map(|(code, len)| (code.to_string(), Value::from(*len)));
    json!({
        "requests": found.len,
        "queue_seconds": seconds(found.queue_ns),
        "loop_seconds": seconds(found.loop_ns),
        "pages": pages.collect::<Vec<_>>(),
        "connections": connections.collect::<Vec<_>>(),
        "close_codes": codes.collect::<serde_json::Map<_, _>>(),
    })
}

/// The parts of the page.
pub(super) fn page(found: &EventLoops, page: &mut Page) {
    if found.len > 0 {
        page.heading("Event loop")
            .paragraph(&format!("{}.", summary(found)));
    }
    if !found.pages.is_empty() {
        page.paragraph(&format!("{}:", present::sentence(PAGES_TITLE)))
            .table(&pages_table(found, usize::MAX));
    }
    if !found.connections.is_empty() {
        page.heading("WebSockets and event streams")
            .paragraph(&format!("{}:", present::sentence(CONNECTIONS_TITLE)))
            .table(&connections_table(found, usize::MAX));
        if let Some(codes) = codes(found) {
            page.paragraph(&format!("{}.", present::sentence(&codes)));
        }
    }
}
