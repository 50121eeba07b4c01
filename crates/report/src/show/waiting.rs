//! Which requests made others wait, in each of the forms.
//!
//! Takes what is known of the waiting, gives its part of the table, of the JSON and of the page; nothing if no
//! request waited.

use std::fmt::Write as _;

use present::{Page, Table, column_share, counted, escaped, harmless, thousands};
use serde_json::{Value, json};

use super::json::{number, string};
use super::{ms, time};
use crate::spread::secs;
use crate::waiting::{Holder, Missing, Request, RouteWaiting, WAIT_MIN, Wait, WaitRunner, Waiting};

/// Routes in the table; `--json` has all.
const ROUTES_LEN_MAX: usize = 10;
const REQUEST_CHARS_MAX: usize = 50;
const NAME_CHARS_MAX: usize = 40;
/// A request, and what its end did.
const WIDE: usize = REQUEST_CHARS_MAX + 24;

/// The part of the table.
pub(super) fn table(waiting: &Waiting, out: &mut String) {
    if let Some(missing) = waiting.missing {
        let _ = writeln!(out, "\n{}", unknown(missing));
        return;
    }
    // A pool with idle threads holds nobody up: a heading over nothing would look like a fault.
    if waiting.waited_len == 0 {
        return;
    }
    let _ = writeln!(out, "\n{}", summary(waiting));
    for text in waiting.sentence().into_iter().chain(notes(waiting)) {
        let _ = writeln!(out, "{text}");
    }
    routes(waiting, out);
    longest(waiting, out);
}

fn unknown(missing: Missing) -> &'static str {
    match missing {
        Missing::Workers => {
            "the log does not tell which runs held the threads: the lines do not name them (`worker=`)"
        }
        Missing::Microseconds => {
            "the log does not tell which runs held the threads: arrivals are in whole seconds (no `at=`)"
        }
    }
}

/// What requests waited for.
fn awaited(waiting: &Waiting) -> &'static str {
    match waiting.runner() {
        WaitRunner::Worker => "a thread",
        WaitRunner::EventLoop => "the event loop",
        WaitRunner::Both => "a thread or an event loop",
    }
}

fn summary(waiting: &Waiting) -> String {
    format!(
        "{} waited for {} longer than {} ms, {} ms together",
        counted(waiting.waited_len, "request"),
        awaited(waiting),
        WAIT_MIN.0 / 1_000_000,
        ms(waiting.waited_ns as f64 / 1e9)
    )
}

/// Doubts about the numbers.
fn notes(waiting: &Waiting) -> Vec<String> {
    let mut notes = Vec::new();
    // Clocks and the six digits of a log leave a few microseconds a request.
    // More than that was spent otherwise: a stopped process, or runs that the log does not contain.
    if waiting.unexplained_ns > 0.01 * waiting.waited_ns as f64 {
        notes.push(format!(
            "{} ms of that passed while no run in the log held {}",
            ms(waiting.unexplained_ns / 1e9),
            awaited(waiting)
        ));
    }
    // Lines are read in the order in which runs ended, and a wait is worked out once.
    if waiting.late_len > 0 {
        notes.push(format!(
            "{} runs were logged too late: their waits are attributed to other runs",
            thousands(waiting.late_len)
        ));
    }
    if waiting.unnamed_len > 0 {
        notes.push(format!(
            "{} more requests waited, but their lines do not name their threads (`worker=`)",
            thousands(waiting.unnamed_len)
        ));
    }
    notes
}

/// Routes that caused any waiting.
fn causing(waiting: &Waiting) -> impl Iterator<Item = &RouteWaiting> + Clone {
    let causing = waiting.routes.iter();
    // Shares of a wait are fractions: less than a microsecond was nobody's cause.
    causing.filter(|route| route.caused_ns >= 1_000.0)
}

/// The first routes, by the waiting that they caused.
fn routes_table(waiting: &Waiting, len_max: usize) -> Table {
    let shown = || causing(waiting).take(len_max);
    let part = |route: &RouteWaiting| {
        let part = route.caused_ns / (waiting.waited_ns as f64).max(1.0);
        column_share(part.min(1.0))
    };
    let ms = |ns: f64| ms(ns / 1e9);
    let mut table = Table::default();
    table
        .text(
            "runs of",
            NAME_CHARS_MAX,
            shown().map(|route| route.name.as_str()),
        )
        .numbers("waiting caused", shown().map(|route| ms(route.caused_ns)))
        .numbers("share", shown().map(part))
        .numbers(
            "requests delayed",
            shown().map(|route| thousands(route.delayed_len)),
        )
        .numbers("runs", shown().map(|route| thousands(route.runs_len)))
        .numbers("run time", shown().map(|route| ms(route.run_ns as f64)));
    table
}

fn routes(waiting: &Waiting, out: &mut String) {
    let _ = write!(
        out,
        "\npaths whose requests made others wait, in ms\n{}",
        routes_table(waiting, ROUTES_LEN_MAX).to_text()
    );
    // Nothing is left out silently.
    let more_len = causing(waiting).count().saturating_sub(ROUTES_LEN_MAX);
    if more_len > 0 {
        let _ = writeln!(out, "and {more_len} more: `--json` has all");
    }
}

/// A wait and, below it, the runs that it waited for.
fn longest(waiting: &Waiting, out: &mut String) {
    let mut rows: Vec<[String; 4]> = Vec::new();
    for wait in &waiting.longest {
        let queue = ms(secs(wait.queue));
        rows.push([queue, String::new(), id(&wait.request), name(&wait.request)]);
        // Below the wait and one column to the right, so that its parts are seen to add up.
        for holder in &wait.holders {
            let share = ms(holder.share_ns / 1e9);
            let name = format!("{}{}", name(&holder.request), freed(holder));
            rows.push([String::new(), share, id(&holder.request), name]);
        }
        if wait.others_len > 0 {
            let others = counted(wait.others_len, "other");
            let share = ms(wait.others_ns / 1e9);
            rows.push([String::new(), share, String::new(), others]);
        }
    }
    if rows.is_empty() {
        return;
    }
    let cells = |column: usize| rows.iter().map(move |row| row[column].clone());
    let mut table = Table::default();
    table
        .numbers("waited", cells(0))
        .numbers("for", cells(1))
        .text("id", REQUEST_CHARS_MAX, cells(2))
        .text("request", WIDE, cells(3));
    let _ = write!(
        out,
        "\nlongest waits for {}, and the runs {} meanwhile, in ms\n{}",
        awaited(waiting),
        holding(waiting),
        table.to_text()
    );
}

/// What the runs did that others waited for.
fn holding(waiting: &Waiting) -> &'static str {
    match waiting.runner() {
        WaitRunner::Worker => "that held the threads",
        WaitRunner::EventLoop => "that were inside it",
        WaitRunner::Both => "that held them or were inside",
    }
}

fn freed(holder: &Holder) -> &'static str {
    match (holder.freed_worker, holder.blocked_loop) {
        (true, _) => "  (freed the thread)",
        (false, true) => "  (blocked the loop)",
        (false, false) => "",
    }
}

fn id(request: &Request) -> String {
    harmless(&request.id, REQUEST_CHARS_MAX)
}

fn name(request: &Request) -> String {
    let name = [&request.method[..], &request.target[..]].join(&b' ');
    harmless(name.trim_ascii(), REQUEST_CHARS_MAX)
}

/// The value of `waiting`.
pub(super) fn json(waiting: &Waiting) -> Value {
    if let Some(missing) = waiting.missing {
        let missing = match missing {
            Missing::Workers => "workers",
            Missing::Microseconds => "microseconds",
        };
        return json!({ "missing": missing });
    }
    json!({
        "requests": waiting.waited_len,
        "for_event_loop": waiting.loop_len,
        "seconds": number(waiting.waited_ns as f64 / 1e9),
        "unexplained": number(waiting.unexplained_ns / 1e9),
        "late_runs": waiting.late_len,
        "without_worker": waiting.unnamed_len,
        "sentence": waiting.sentence(),
        "routes": waiting.routes.iter().map(json_route).collect::<Vec<_>>(),
        "longest": waiting.longest.iter().map(json_wait).collect::<Vec<_>>(),
    })
}

fn json_route(route: &RouteWaiting) -> Value {
    json!({
        "name": route.name,
        "caused": number(route.caused_ns / 1e9),
        "delayed": route.delayed_len,
        "runs": route.runs_len,
        "run": number(route.run_ns as f64 / 1e9),
    })
}

fn json_request(request: &Request) -> Value {
    json!({
        "id": string(&request.id),
        "method": string(&request.method),
        "target": string(&request.target),
    })
}

fn json_wait(wait: &Wait) -> Value {
    let holders = wait.holders.iter().map(|holder| {
        let mut value = json_request(&holder.request);
        value["share"] = number(holder.share_ns / 1e9);
        value["freed_worker"] = holder.freed_worker.into();
        value["blocked_loop"] = holder.blocked_loop.into();
        value
    });
    let mut value = json_request(&wait.request);
    value["queue"] = number(secs(wait.queue));
    value["queued_ns"] = wait.queued_ns.into();
    value["waited_for"] = holders.collect();
    value["others"] = wait.others_len.into();
    value["others_share"] = number(wait.others_ns / 1e9);
    value
}

/// The part of the page.
pub(super) fn page(waiting: &Waiting, page: &mut Page) {
    const TITLE: &str = "Which requests made others wait";
    if let Some(missing) = waiting.missing {
        page.heading(TITLE)
            .paragraph(&format!("{}.", unknown(missing)));
        return;
    }
    if waiting.waited_len == 0 {
        return;
    }
    page.heading(TITLE)
        .paragraph(&format!("{}.", summary(waiting)));
    for text in waiting.sentence().into_iter().chain(notes(waiting)) {
        page.paragraph(&format!("{text}."));
    }
    page.table(&routes_table(waiting, usize::MAX));
    if !waiting.longest.is_empty() {
        page.html("<h3>The longest waits</h3>\n")
            .table(&page_longest(waiting));
    }
}

fn page_longest(waiting: &Waiting) -> Table {
    let longest = || waiting.longest.iter();
    let holders = |wait: &Wait| {
        let holders = wait.holders.iter().map(|holder| {
            let (share, request) = (ms(holder.share_ns / 1e9), &holder.request);
            let text = format!(
                "{share} ms for {} {}{}",
                name(request),
                id(request),
                freed(holder)
            );
            escaped(text, 2 * WIDE)
        });
        let others = (wait.others_len > 0).then(|| {
            let share = ms(wait.others_ns / 1e9);
            format!("{share} ms for {}", counted(wait.others_len, "other"))
        });
        let lines = holders.chain(others).collect::<Vec<_>>().join("<br>");
        // Long paths are broken, or the table would be wider than the page.
        format!("<div class=t>{lines}</div>")
    };
    let when = |wait: &Wait| time(wait.queued_ns, wait.utc_offset_secs);
    let mut table = Table::default();
    table
        .numbers("ms", longest().map(|wait| ms(secs(wait.queue))))
        .text("when", NAME_CHARS_MAX, longest().map(when))
        .text("request", WIDE, longest().map(|wait| name(&wait.request)))
        .text(
            "id",
            NAME_CHARS_MAX,
            longest().map(|wait| id(&wait.request)),
        )
        .markup("the runs that it waited for", longest().map(holders));
    table
}
