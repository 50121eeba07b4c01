//! Who held whom, in each of the forms.
//!
//! Takes what is known of the waiting, gives its part of the table, of the JSON and of the page; nothing if no
//! request waited.

use std::fmt::Write as _;

use serde_json::{Value, json};

use super::json::{number, string};
use super::page::escaped;
use super::table::{Column, laid_out};
use super::text::{harmless, seconds, thousands, time};
use crate::spread::secs;
use crate::waiting::{Holder, Missing, Request, RouteWaiting, WAIT_MIN, Wait, Waiting};

/// Routes in the table; `--json` has all.
const ROUTES_LEN_MAX: usize = 10;
const REQUEST_CHARS_MAX: usize = 50;
const NAME_CHARS_MAX: usize = 40;

/// The part of the table.
pub(super) fn table(waiting: &Waiting, out: &mut String) {
    if let Some(missing) = waiting.missing {
        let _ = writeln!(out, "\n{}", unknown(missing));
        return;
    }
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
            "the log does not tell which runs held the workers: the lines do not name workers (`worker=`)"
        }
        Missing::Microseconds => {
            "the log does not tell which runs held the workers: arrivals are in whole seconds (no `at=`)"
        }
    }
}

fn summary(waiting: &Waiting) -> String {
    format!(
        "{} waited for a worker longer than {} ms, {} s together",
        match waiting.waited_len {
            1 => "1 request".to_owned(),
            len => format!("{} requests", thousands(len)),
        },
        WAIT_MIN.0 / 1_000_000,
        seconds(waiting.waited_ns as f64 / 1e9)
    )
}

/// Doubts about the numbers.
fn notes(waiting: &Waiting) -> Vec<String> {
    let mut notes = Vec::new();
    // Clocks and the six digits of a log leave a few microseconds a request.
    if waiting.unexplained_ns > 0.01 * waiting.waited_ns as f64 {
        notes.push(format!(
            "{} s of that passed while no run in the log held a worker",
            seconds(waiting.unexplained_ns / 1e9)
        ));
    }
    if waiting.late_len > 0 {
        notes.push(format!(
            "{} runs were logged too late: their waits are attributed to other runs",
            thousands(waiting.late_len)
        ));
    }
    if waiting.unnamed_len > 0 {
        notes.push(format!(
            "{} more requests waited, but their lines do not name workers (`worker=`)",
            thousands(waiting.unnamed_len)
        ));
    }
    notes
}

/// Routes that caused any waiting.
fn causing(waiting: &Waiting) -> impl Iterator<Item = &RouteWaiting> + Clone {
    let causing = waiting.routes.iter();
    causing.filter(|route| route.caused_ns >= 1_000.0)
}

/// What part of all waiting a route caused.
fn share(route: &RouteWaiting, waiting: &Waiting) -> String {
    let share = 100.0 * route.caused_ns / (waiting.waited_ns as f64).max(1.0);
    format!("{:.1} %", share.min(100.0))
}

fn routes(waiting: &Waiting, out: &mut String) {
    let shown = causing(waiting).take(ROUTES_LEN_MAX);
    let columns = [
        Column::left(
            "route",
            shown
                .clone()
                .map(|route| harmless(route.name.as_bytes(), NAME_CHARS_MAX)),
        ),
        Column::point(
            "waiting caused",
            shown.clone().map(|route| seconds(route.caused_ns / 1e9)),
        ),
        Column::right("share", shown.clone().map(|route| share(route, waiting))),
        Column::right(
            "requests delayed",
            shown.clone().map(|route| thousands(route.delayed_len)),
        ),
        Column::right("runs", shown.clone().map(|route| thousands(route.runs_len))),
        Column::point(
            "run time",
            shown.map(|route| seconds(route.run_ns as f64 / 1e9)),
        ),
    ];
    let _ = write!(
        out,
        "\nroutes by the waiting that their runs caused others, in seconds\n{}",
        laid_out(&columns)
    );
    let more_len = causing(waiting).count().saturating_sub(ROUTES_LEN_MAX);
    if more_len > 0 {
        let _ = writeln!(out, "and {more_len} more: `--json` has all");
    }
}

/// A wait and, below it, the runs that it waited for.
fn longest(waiting: &Waiting, out: &mut String) {
    let mut rows: Vec<[String; 4]> = Vec::new();
    for wait in &waiting.longest {
        let queue = seconds(secs(wait.queue));
        rows.push([queue, String::new(), id(&wait.request), name(&wait.request)]);
        for holder in &wait.holders {
            let share = seconds(holder.share_ns / 1e9);
            let name = format!("{}{}", name(&holder.request), freed(holder));
            rows.push([String::new(), share, id(&holder.request), name]);
        }
        if wait.others_len > 0 {
            let others = format!("{} others", thousands(wait.others_len));
            let share = seconds(wait.others_ns / 1e9);
            rows.push([String::new(), share, String::new(), others]);
        }
    }
    if rows.is_empty() {
        return;
    }
    let cells = |column: usize| rows.iter().map(move |row| row[column].clone());
    let columns = [
        Column::point("waited", cells(0)),
        Column::point("for", cells(1)),
        Column::left("id", cells(2)),
        Column::left("request", cells(3)),
    ];
    let _ = write!(
        out,
        "\nlongest waits for a worker, and the runs that held the workers meanwhile\n{}",
        laid_out(&columns)
    );
}

fn freed(holder: &Holder) -> &'static str {
    match holder.freed_worker {
        true => "  (freed the worker)",
        false => "",
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
pub(super) fn page(waiting: &Waiting, out: &mut String) {
    if let Some(missing) = waiting.missing {
        let _ = writeln!(
            out,
            "<h2>Who held whom</h2>\n<p>{}.</p>",
            escaped(unknown(missing).as_bytes())
        );
        return;
    }
    if waiting.waited_len == 0 {
        return;
    }
    let _ = writeln!(out, "<h2>Who held whom</h2>\n<p>{}.</p>", summary(waiting));
    for text in waiting.sentence().into_iter().chain(notes(waiting)) {
        let _ = writeln!(out, "<p>{}.</p>", escaped(text.as_bytes()));
    }
    out.push_str(
        "<div class=sheet><table><thead><tr><th>route</th><th class=n>waiting caused</th><th class=n>share</th>\
         <th class=n>requests delayed</th><th class=n>runs</th><th class=n>run time</th></tr></thead>",
    );
    for route in causing(waiting) {
        let cells = [
            seconds(route.caused_ns / 1e9),
            share(route, waiting),
            thousands(route.delayed_len),
            thousands(route.runs_len),
            seconds(route.run_ns as f64 / 1e9),
        ];
        let cells = cells
            .map(|cell| format!("<td class=n>{cell}</td>"))
            .concat();
        let name = escaped(route.name.as_bytes());
        let _ = write!(out, "<tr><td>{name}</td>{cells}</tr>");
    }
    out.push_str("</table></div>\n");
    page_longest(waiting, out);
}

fn page_longest(waiting: &Waiting, out: &mut String) {
    if waiting.longest.is_empty() {
        return;
    }
    out.push_str(
        "<h3>The longest waits</h3>\n<div class=sheet><table><thead><tr><th class=n>seconds</th><th>when</th>\
         <th>request</th><th>id</th><th>the runs that it waited for</th></tr></thead>",
    );
    for wait in &waiting.longest {
        let holders = wait.holders.iter().map(|holder| {
            format!(
                "{} for {} {}{}",
                seconds(holder.share_ns / 1e9),
                escaped(name(&holder.request).as_bytes()),
                escaped(&holder.request.id),
                freed(holder)
            )
        });
        let others = (wait.others_len > 0).then(|| {
            let share = seconds(wait.others_ns / 1e9);
            format!("{share} for {} others", thousands(wait.others_len))
        });
        let holders: Vec<_> = holders.chain(others).collect();
        let _ = write!(
            out,
            "<tr><td class=n>{}</td><td>{}</td><td class=t>{}</td><td>{}</td><td class=t>{}</td></tr>",
            seconds(secs(wait.queue)),
            time(wait.queued_ns, wait.utc_offset_secs),
            escaped(name(&wait.request).as_bytes()),
            escaped(&wait.request.id),
            holders.join("<br>")
        );
    }
    out.push_str("</table></div>\n");
}
