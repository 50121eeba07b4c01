//! A tally for programs: one JSON object.
//!
//! Takes a tally, gives RFC 8259 text. Durations are seconds, times are nanoseconds since 1970; a phase that no
//! line contains is `null`.

use serde_json::{Map, Value, json};

use super::columns::ROWS;
use super::table::{class_counts, form_name};
use super::{event_loops, upstreams, waiting};
use crate::at_queue::{AtQueue, Count};
use crate::slowest::Slow;
use crate::spread::{Spread, secs};
use crate::tally::{Group, Grouped, PHASES, Tally};
use crate::verdict::verdict;

/// Names of the rows as keys.
const KEYS: [&str; ROWS.len()] = [
    "avg", "stdev", "min", "max", "median", "p90", "p95", "p99", "p99_9",
];

/// The whole report.
pub fn json(tally: &Tally) -> String {
    let (misread_len, misread) = tally.misread();
    let (endings, known_len) = tally.endings();
    let forms = tally.forms().map(|(form, len)| (form_name(form), len));
    let statuses = tally.statuses().map(|(code, len)| (code.to_string(), len));
    let waiting = tally.waiting();
    let mut report = json!({
        "lines": tally.lines_len(),
        "not_understood": misread_len,
        "cut_off": tally.cut_off_inputs(),
        "forms": object(forms),
        "statuses": object(statuses),
        "endings_known": known_len,
        "endings": object(endings),
        "quantile_error": 0.016,
        "all": group(tally.all()),
        "verdict": verdict(tally, &waiting),
        "pages": named_groups(&tally.pages()),
        "waiting": waiting::json(&waiting),
        "slowest": tally.slowest().iter().map(slow).collect::<Vec<_>>(),
    });
    // Keys of what there is not are left out: a program asks for the key.
    if let Some(span) = tally.held() {
        report["live"] = json!({
            "asked_seconds": span.asked_secs,
            "held_seconds": span.held_secs,
            "since": span.since_us as f64 / 1e6,
        });
    }
    let event_loops = tally.event_loops();
    if event_loops.len > 0 || !event_loops.connections.is_empty() {
        report["event_loops"] = event_loops::json(&event_loops);
    }
    let servers = tally.upstreams();
    if !servers.is_empty() {
        report["upstreams"] = upstreams::json(&servers);
    }
    if let Some(misread) = misread {
        report["first_not_understood"] = json!({ "file": misread.name, "line": misread.line });
    }
    if let Some((first, last, offset)) = tally.time() {
        report["first_ns"] = first.into();
        report["last_ns"] = last.into();
        report["utc_offset_secs"] = offset.into();
    }
    if let Some(per_second) = tally.per_second() {
        report["requests_per_second"] = number(per_second);
    }
    if let Some(groups) = tally.groups() {
        report["by"] = groups.by.name().into();
        report["groups"] = named_groups(&groups);
        report["others"] = groups.others.map_or(Value::Null, group);
    }
    format!("{report}\n")
}

fn named_groups(groups: &Grouped<'_>) -> Value {
    let named = groups.named.iter();
    let named = named.map(|(name, one)| json!({ "name": name, "counts": group(one) }));
    named.collect()
}

fn group(group: &Group) -> Value {
    let phases = PHASES.iter().zip(&group.phases);
    // Processor time is no phase: it is a part of `run`, so it stands behind the five that add up.
    let phases = phases.chain([(&"cpu", &group.cpu)]);
    json!({
        "requests": group.len,
        "body_bytes": (group.body_len > 0).then_some(group.body_bytes),
        "not_complete": group.incomplete_len,
        "classes": object(class_counts(group)),
        "seconds": object(phases.map(|(name, spread)| (*name, distribution(spread)))),
        "at_queue": at_queue(&group.at_queue),
    })
}

fn at_queue(found: &AtQueue) -> Value {
    let count = |count: Count, unit: f64| match count.len {
        0 => Value::Null,
        len => json!({
            "count": len,
            "avg": number(count.mean() * unit),
            "max": number(count.max as f64 * unit),
        }),
    };
    json!({
        "known": found.known_len,
        "queued": found.from_queue_len,
        "waiting": count(found.waiting, 1.0),
        "threads": count(found.threads, 1.0),
        "idle": count(found.idle, 1.0),
        "before": count(found.before_ns, 1e-9),
    })
}

pub(super) fn distribution(spread: &Spread) -> Value {
    // `null`, not zeros: nobody has measured it.
    if spread.is_empty() {
        return Value::Null;
    }
    // The same rows as the table, under names that are keys.
    let rows = KEYS.iter().zip(ROWS);
    let rows = rows.map(|(key, (_, of))| (*key, number(of(spread))));
    object([("count", spread.len().into())].into_iter().chain(rows))
}

fn slow(slow: &Slow) -> Value {
    let (spans, queued) = (&slow.spans, &slow.queued);
    let span = |span: telemetry::Nanos| number(secs(span));
    let waited = slow.waited_for();
    let known = [
        ("receive", spans.receive.map(span)),
        ("queue", spans.queue.map(span)),
        ("run", spans.run.map(span)),
        ("send", spans.send.map(span)),
        ("gil", spans.gil.map(span)),
        ("cpu", spans.cpu.map(span)),
        ("busy", slow.busy.map(span)),
        ("upstream_queue", slow.upstream_queue.map(span)),
        ("before", queued.before.map(span)),
        ("waiting", queued.waiting.map(Value::from)),
        ("threads", queued.threads.map(Value::from)),
        ("idle", queued.idle.map(Value::from)),
        ("queued", queued.from_queue.map(Value::from)),
        ("waited_for", waited.map(|(words, _)| words.into())),
        ("waited", waited.map(|(_, waited)| span(waited))),
        ("wall_ns", slow.wall_ns.map(Value::from)),
    ];
    let texts = [
        ("client", &slow.client),
        ("method", &slow.method),
        ("target", &slow.target),
        ("route", &slow.route),
        ("pool", &slow.pool),
        ("end", &slow.end),
        ("id", &slow.id),
    ];
    let always = [
        ("total", span(slow.total)),
        // 0 is no reply, as in `statuses`.
        ("status", slow.status.unwrap_or(0).into()),
    ];
    let known = known
        .into_iter()
        .filter_map(|(key, value)| Some((key, value?)));
    let upstream = Some(string(&slow.upstream)).filter(|_| !slow.upstream.is_empty());
    let upstream = upstream.map(|name| ("upstream", name));
    let texts = texts.into_iter().map(|(key, text)| (key, string(text)));
    object(known.chain(always).chain(texts).chain(upstream))
}

fn object<K: Into<String>, V: Into<Value>>(pairs: impl IntoIterator<Item = (K, V)>) -> Value {
    let pairs = pairs.into_iter();
    let map: Map<String, Value> = pairs
        .map(|(key, value)| (key.into(), value.into()))
        .collect();
    map.into()
}

/// A log's bytes may be no text.
pub(super) fn string(text: &[u8]) -> Value {
    String::from_utf8_lossy(text).into()
}

/// Nanoseconds are exact enough.
pub(super) fn number(value: f64) -> Value {
    ((value * 1e9).round() / 1e9).into()
}
