//! A tally for programs: one JSON object.
//!
//! Takes a tally, gives RFC 8259 text. Durations are seconds, times are nanoseconds since 1970; a phase that
//! no line told of is `null`.

use std::fmt::Write as _;

use measure::json_text;

use super::table::{ROWS, class_counts, form_name};
use super::waiting;
use crate::at_queue::{AtQueue, Count};
use crate::slowest::Slow;
use crate::spread::{Spread, secs};
use crate::tally::{Group, Grouped, PHASES, Tally};

/// Names of the rows as keys.
const KEYS: [&str; ROWS.len()] = [
    "avg", "stdev", "min", "max", "median", "p90", "p95", "p99", "p99_9",
];

/// The whole report.
pub fn json(tally: &Tally) -> String {
    let (misread_len, misread) = tally.misread();
    let mut out = String::from("{");
    field(&mut out, "lines", tally.lines_len());
    field(&mut out, "not_understood", misread_len);
    if let Some(misread) = misread {
        let _ = write!(
            out,
            "\"first_not_understood\":{{\"file\":{},\"line\":{}}},",
            string(misread.name.as_bytes()),
            misread.line
        );
    }
    list(
        &mut out,
        "cut_off",
        tally
            .cut_off_inputs()
            .iter()
            .map(|name| string(name.as_bytes())),
    );
    let forms = tally
        .forms()
        .map(|(form, len)| format!("\"{}\":{len}", form_name(form)));
    object(&mut out, "forms", forms);
    if let Some((first, last, offset)) = tally.time() {
        let _ = write!(
            out,
            "\"first_ns\":{first},\"last_ns\":{last},\"utc_offset_secs\":{offset},"
        );
    }
    if let Some(per_second) = tally.per_second() {
        field(&mut out, "requests_per_second", per_second);
    }
    object(
        &mut out,
        "statuses",
        tally
            .statuses()
            .map(|(code, len)| format!("\"{code}\":{len}")),
    );
    let (endings, known_len) = tally.endings();
    field(&mut out, "endings_known", known_len);
    let endings = endings
        .iter()
        .map(|(end, len)| format!("{}:{len}", string(end.as_bytes())));
    object(&mut out, "endings", endings);
    let _ = write!(
        out,
        "\"quantile_error\":0.016,\"all\":{}",
        group(tally.all())
    );
    if let Some(Grouped { by, named, others }) = tally.groups() {
        let _ = write!(out, ",\"by\":\"{}\",\"groups\":[", by.name());
        let named = named.iter().map(|(name, one)| {
            format!(
                "{{\"name\":{},\"counts\":{}}}",
                string(name.as_bytes()),
                group(one)
            )
        });
        out.push_str(&named.collect::<Vec<_>>().join(","));
        let _ = write!(
            out,
            "],\"others\":{}",
            others.map_or_else(|| "null".to_owned(), group)
        );
    }
    let slowest = tally
        .slowest()
        .iter()
        .map(slow)
        .collect::<Vec<_>>()
        .join(",");
    let waiting = waiting::json(&tally.waiting());
    let _ = writeln!(out, ",\"waiting\":{waiting},\"slowest\":[{slowest}]}}");
    out
}

fn group(group: &Group) -> String {
    let mut out = String::from("{");
    field(&mut out, "requests", group.len);
    field(&mut out, "body_bytes", group.body_bytes);
    field(&mut out, "not_complete", group.incomplete_len);
    object(
        &mut out,
        "classes",
        class_counts(group).map(|(name, len)| format!("\"{name}\":{len}")),
    );
    let phases = PHASES.iter().zip(&group.phases);
    let phases = phases.chain([(&"cpu", &group.cpu)]);
    let phases = phases.map(|(name, spread)| format!("\"{name}\":{}", distribution(spread)));
    object(&mut out, "seconds", phases);
    let _ = write!(out, "\"at_queue\":{}}}", at_queue(&group.at_queue));
    out
}

fn at_queue(found: &AtQueue) -> String {
    let count = |count: Count, unit: f64| match count.len {
        0 => "null".to_owned(),
        len => format!(
            "{{\"count\":{len},\"avg\":{},\"max\":{}}}",
            number(count.mean() * unit),
            number(count.max as f64 * unit)
        ),
    };
    format!(
        "{{\"known\":{},\"from_queue\":{},\"waiting\":{},\"threads\":{},\"idle\":{},\"before\":{}}}",
        found.known_len,
        found.from_queue_len,
        count(found.waiting, 1.0),
        count(found.threads, 1.0),
        count(found.idle, 1.0),
        count(found.before_ns, 1e-9)
    )
}

fn distribution(spread: &Spread) -> String {
    if spread.is_empty() {
        return "null".to_owned();
    }
    let rows = KEYS
        .iter()
        .zip(ROWS)
        .map(|(key, (_, of))| format!("\"{key}\":{}", number(of(spread))));
    format!(
        "{{\"count\":{},{}}}",
        spread.len(),
        rows.collect::<Vec<_>>().join(",")
    )
}

fn slow(slow: &Slow) -> String {
    let mut out = String::from("{");
    let spans = &slow.spans;
    for (key, span) in [
        ("total", Some(slow.total)),
        ("receive", spans.receive),
        ("queue", spans.queue),
        ("run", spans.run),
        ("send", spans.send),
        ("gil", spans.gil),
        ("cpu", spans.cpu),
        ("before", slow.queued.before),
    ] {
        if let Some(span) = span {
            field(&mut out, key, number(secs(span)));
        }
    }
    for (key, count) in [
        ("waiting", slow.queued.waiting),
        ("threads", slow.queued.threads),
        ("idle", slow.queued.idle),
    ] {
        if let Some(count) = count {
            field(&mut out, key, count);
        }
    }
    if let Some(from_queue) = slow.queued.from_queue {
        field(&mut out, "from_queue", from_queue);
    }
    if let Some((words, span)) = slow.waited_for() {
        field(&mut out, "waited_for", string(words.as_bytes()));
        field(&mut out, "waited", number(secs(span)));
    }
    if let Some(wall_ns) = slow.wall_ns {
        field(&mut out, "wall_ns", wall_ns);
    }
    field(&mut out, "status", slow.status.unwrap_or(0));
    for (key, text) in [
        ("peer", &slow.peer),
        ("method", &slow.method),
        ("target", &slow.target),
        ("route", &slow.route),
        ("pool", &slow.pool),
        ("end", &slow.end),
    ] {
        field(&mut out, key, string(text));
    }
    let _ = write!(out, "\"id\":{}}}", string(&slow.id));
    out
}

pub(super) fn field(out: &mut String, key: &str, value: impl std::fmt::Display) {
    let _ = write!(out, "\"{key}\":{value},");
}

fn object(out: &mut String, key: &str, pairs: impl Iterator<Item = String>) {
    let _ = write!(
        out,
        "\"{key}\":{{{}}},",
        pairs.collect::<Vec<_>>().join(",")
    );
}

fn list(out: &mut String, key: &str, items: impl Iterator<Item = String>) {
    let _ = write!(out, "\"{key}\":[{}],", items.collect::<Vec<_>>().join(","));
}

pub(super) fn string(text: &[u8]) -> String {
    format!("\"{}\"", String::from_utf8_lossy(&json_text(text)))
}

/// Nanoseconds are enough, and f64's `Display` has no exponent.
pub(super) fn number(value: f64) -> String {
    let text = format!("{value:.9}");
    let text = text.trim_end_matches('0').trim_end_matches('.');
    if text.is_empty() {
        "0".to_owned()
    } else {
        text.to_owned()
    }
}
