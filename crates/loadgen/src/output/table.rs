//! A run for people, on a terminal or in a mail.
//!
//! Takes an outcome, gives lines of at most 100 columns: what was asked first, what has to be known about
//! the numbers last. What is bad has its word in front; colour only adds to it.

use super::columns::{HEADS, WIDTH_MAX, broken, durations, labelled, laid_out};
use super::rows::closing;
use super::text::{
    NONE, bytes, counted, harmless, number, percent, share, short_seconds, thousands,
};
use crate::distribution::Summary;
use crate::outcome::{AskedLeg, Counts, Failures, Outcome, ServerUse, ThreadUse, Weight};

/// Characters of a text from outside.
const TEXT_CHARS_MAX: usize = 600;
/// Kinds of requests and threads that are told one by one.
const NAMED_LEN_MAX: usize = 8;

/// Whether a terminal shows colours.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Tone {
    /// Text alone.
    Plain,
    /// With SGR sequences of ECMA-48 round lines that matter.
    Colour,
}

/// How a line is meant.
#[derive(Clone, Copy)]
enum LineStyle {
    Plain,
    Strong,
    Soft,
    Bad,
    Doubtful,
}

/// Lines and how they are meant.
struct Sheet {
    lines: Vec<(LineStyle, String)>,
}

/// Everything that a run has found.
pub fn table(outcome: &Outcome, tone: Tone) -> String {
    let mut sheet = Sheet { lines: Vec::new() };
    asked(outcome, &mut sheet);
    counts(outcome, &mut sheet);
    sheet.put(LineStyle::Plain, [String::new()]);
    if timed(outcome).next().is_some() {
        times(outcome, &mut sheet);
        sheet.put(LineStyle::Plain, [String::new()]);
    }
    in_flight(outcome, &mut sheet);
    generator(outcome, &mut sheet);
    if let Some(server) = &outcome.server {
        sheet.put(
            LineStyle::Plain,
            labelled("server", &server_text(outcome, server)),
        );
    }
    environment(outcome, &mut sheet);
    remarks(outcome, &mut sheet);
    sheet.text(tone)
}

impl Sheet {
    fn put(&mut self, style: LineStyle, lines: impl IntoIterator<Item = String>) {
        self.lines
            .extend(lines.into_iter().map(|line| (style, line)));
    }

    fn text(&self, tone: Tone) -> String {
        let mut out = String::new();
        for (style, line) in &self.lines {
            match (tone, sequence(*style)) {
                (Tone::Colour, Some(sequence)) if !line.is_empty() => {
                    out.push_str(&format!("\x1b[{sequence}m{line}\x1b[0m"));
                }
                _ => out.push_str(line),
            }
            out.push('\n');
        }
        out
    }
}

fn sequence(style: LineStyle) -> Option<&'static str> {
    match style {
        LineStyle::Plain => None,
        LineStyle::Strong => Some("1"),
        LineStyle::Soft => Some("2"),
        LineStyle::Bad => Some("1;31"),
        LineStyle::Doubtful => Some("33"),
    }
}

/// What was asked for, in one line: `closed load, 64 connections, 1 in flight, kept, epoll, 1 thread`.
pub(super) fn model(outcome: &Outcome) -> String {
    let asked = &outcome.asked;
    let mut parts = Vec::new();
    match (asked.load.split_once(", "), asked.rate) {
        (Some((kind, arrivals)), Some(rate)) => {
            let rate = match &asked.rate_legs[..] {
                [] => format!("{}/s {arrivals}", number(rate)),
                legs => format!(
                    "{}, {arrivals}",
                    over_time(legs, |rate| number(rate) + "/s")
                ),
            };
            parts.push(format!("{kind} load, {rate}"));
        }
        (Some((kind, arrivals)), None) => parts.push(format!("{kind} load, {arrivals}")),
        (None, _) => parts.push(format!("{} load", asked.load)),
    }
    if outcome.times.late.is_some() {
        parts.push("latency from the intended start".to_owned());
    }
    if outcome.times.unread.is_some() {
        parts.push("kernel timestamps".to_owned());
    }
    parts.push(match &asked.connections_legs[..] {
        [] => counted(asked.connections as u64, "connection"),
        legs => over_time(legs, |len| counted(len as u64, "connection")),
    });
    parts.push(format!("{} in flight", thousands(asked.in_flight as u64)));
    parts.push(match asked.requests_each {
        None => "kept".to_owned(),
        Some(each) => format!(
            "{} each, closed by {}",
            counted(each, "request"),
            closing(asked.closing)
        ),
    });
    parts.push(counted(asked.threads as u64, "thread"));
    harmless(&parts.join(", "), TEXT_CHARS_MAX)
}

/// Steps and ramps in words: `10.0/s to 60.0/s over 2 s, then 60.0/s for 5 s`.
fn over_time(legs: &[AskedLeg], named: impl Fn(f64) -> String) -> String {
    let said = |leg: &AskedLeg| {
        let (from, lasts) = (named(leg.from), short_seconds(leg.lasts_s));
        match leg.from == leg.to {
            true => format!("{from} for {lasts}"),
            false => format!("{from} to {} over {lasts}", named(leg.to)),
        }
    };
    let mut parts: Vec<String> = legs.iter().take(NAMED_LEN_MAX).map(said).collect();
    let more = legs.len().saturating_sub(NAMED_LEN_MAX);
    if more > 0 {
        parts.push(counted(more as u64, "more step"));
    }
    parts.join(", then ")
}

fn asked(outcome: &Outcome, sheet: &mut Sheet) {
    sheet.put(LineStyle::Strong, broken(&model(outcome), WIDTH_MAX));
    let asked = &outcome.asked;
    let named = |text: &str| harmless(text, TEXT_CHARS_MAX);
    if !asked.label.is_empty() {
        sheet.put(LineStyle::Plain, labelled("label", &named(&asked.label)));
    }
    sheet.put(LineStyle::Plain, labelled("target", &named(&asked.url)));
    let kinds = asked.requests.iter().take(NAMED_LEN_MAX);
    let mut kinds: Vec<String> = kinds.map(|name| harmless(name, 60)).collect();
    if asked.requests.len() > NAMED_LEN_MAX {
        let more = asked.requests.len() - NAMED_LEN_MAX;
        kinds.push(format!("{} more", thousands(more as u64)));
    }
    if !kinds.is_empty() {
        sheet.put(LineStyle::Plain, labelled("requests", &kinds.join(" · ")));
    }
}

fn counts(outcome: &Outcome, sheet: &mut Sheet) {
    let counts = &outcome.counts;
    let seconds = if outcome.seconds > 0.0 {
        outcome.seconds
    } else {
        f64::NAN
    };
    let flow = |moved: u64| format!("{}/s", bytes(moved as f64 / seconds));
    let throughput = format!(
        "{} requests/s · {} read · {} sent",
        number(outcome.per_second()),
        flow(counts.read_bytes),
        flow(counts.sent_bytes)
    );
    sheet.put(LineStyle::Strong, labelled("throughput", &throughput));
    sheet.put(
        LineStyle::Plain,
        labelled("counts", &counts_text(counts, outcome.seconds)),
    );
    let statuses: Vec<String> = counts
        .statuses
        .iter()
        .map(|(status, len)| format!("{status} {}", thousands(*len)))
        .collect();
    if !statuses.is_empty() {
        sheet.put(
            LineStyle::Plain,
            labelled("statuses", &statuses.join(" · ")),
        );
    }
    let failed = counts.failures.sum();
    if failed > 0 {
        sheet.put(LineStyle::Bad, labelled("FAILED", &failures_text(counts)));
    }
}

fn counts_text(counts: &Counts, seconds: f64) -> String {
    let mut parts = vec![
        answered(counts, seconds),
        format!("{} made", counted(counts.connections, "connection")),
    ];
    for (len, words) in [
        (counts.disturbed, "disturbed by a stall of the generator"),
        (counts.unsent, "due and not sent"),
        (counts.unfinished, "unfinished at the end"),
        (counts.ended_idle, "ended while idle and opened again"),
        (counts.left_open, "left open by the server"),
        (counts.resumed, "TLS sessions resumed"),
    ] {
        if len > 0 {
            parts.push(format!("{} {words}", thousands(len)));
        }
    }
    parts.join(" · ")
}

/// How many were answered; of a load by the clock that was behind, how many in time.
pub(super) fn answered(counts: &Counts, seconds: f64) -> String {
    let (all, within) = (counts.answered, counts.within());
    let seconds = number(seconds);
    if all == within {
        return format!("{} answered in {seconds} s", thousands(all));
    }
    format!(
        "{} answered, {} within the {seconds} s",
        thousands(all),
        thousands(within)
    )
}

fn failures_text(counts: &Counts) -> String {
    let failed = counts.failures.sum();
    let ended = failed.saturating_add(counts.answered);
    let parts: Vec<String> = classes(&counts.failures)
        .map(|(name, len)| format!("{name} {}", thousands(len)))
        .collect();
    format!(
        "{} of {} ({}): {}",
        thousands(failed),
        thousands(ended),
        percent(failed, ended),
        parts.join(" · ")
    )
}

/// Classes of failures that there are.
pub(super) fn classes(failures: &Failures) -> impl Iterator<Item = (&'static str, u64)> {
    let all = [
        ("connect", failures.connect),
        ("reset", failures.reset),
        ("timeout", failures.timeout),
        ("short", failures.short),
        ("wrong status", failures.status),
        ("wrong body", failures.body),
        ("local", failures.local),
    ];
    all.into_iter().filter(|(_, len)| *len > 0)
}

/// What was timed, by the names of its rows; when nothing was answered, without those that have no value.
pub(super) fn timed(outcome: &Outcome) -> impl Iterator<Item = (&'static str, &Summary)> {
    let times = &outcome.times;
    let all = [
        ("latency", Some(&times.latency)),
        ("connect", Some(&times.connect)),
        ("first byte", Some(&times.first_byte)),
        ("last byte", Some(&times.last_byte)),
        ("cycle", Some(&times.cycle)),
        ("late", times.late.as_ref()),
        ("unread", times.unread.as_ref()),
    ];
    let has_answers = outcome.counts.answered > 0;
    all.into_iter()
        .filter_map(|(name, summary)| Some((name, summary?)))
        .filter(move |(_, summary)| has_answers || summary.count > 0)
}

fn times(outcome: &Outcome, sheet: &mut Sheet) {
    let head = ["", ""].into_iter().chain(HEADS).map(str::to_owned);
    let mut rows = vec![head.collect::<Vec<_>>()];
    for (name, summary) in timed(outcome) {
        let (unit, cells) = durations(summary);
        rows.push(
            [name.to_owned(), unit.to_owned()]
                .into_iter()
                .chain(cells)
                .collect(),
        );
    }
    for (line, row) in laid_out(&rows).into_iter().zip(&rows) {
        let style = match row[0].as_str() {
            "" => LineStyle::Soft,
            "latency" => LineStyle::Strong,
            _ => LineStyle::Plain,
        };
        sheet.put(style, [line]);
    }
    let is_rare = |summary: &Summary| {
        let far = [summary.p99_us, summary.p99_9_us, summary.p99_99_us];
        summary.count > 0 && far.contains(&None)
    };
    if timed(outcome).any(|(_, summary)| is_rare(summary)) {
        let text = format!("{NONE} fewer than ten values lie beyond it");
        sheet.put(LineStyle::Soft, [text]);
    }
}

/// In flight by Little's law, of a closed load, and what is in flight; `None`: it cannot be said.
pub(super) fn little(outcome: &Outcome) -> Option<(f64, u64)> {
    let (asked, cycle) = (&outcome.asked, &outcome.times.cycle);
    let is_known = asked.load == "closed" && cycle.count > 0 && outcome.seconds > 0.0;
    let slots = (asked.connections as u64).saturating_mul(asked.in_flight as u64);
    // Failures take their time as well: all that ended, not only what was answered.
    is_known.then(|| {
        (
            cycle.count as f64 / outcome.seconds * cycle.mean_us / 1e6,
            slots,
        )
    })
}

fn in_flight(outcome: &Outcome, sheet: &mut Sheet) {
    if let Some((found, slots)) = little(outcome) {
        let text = format!(
            "in flight by Little's law: {} of {}",
            number(found),
            thousands(slots)
        );
        sheet.put(LineStyle::Plain, broken(&text, WIDTH_MAX));
    }
}

fn generator(outcome: &Outcome, sheet: &mut Sheet) {
    let generator = &outcome.generator;
    let mut parts = vec![
        per_request(outcome, generator.cpu_us_per_request),
        threads_text(&generator.threads),
        format!(
            "memory {} (early {})",
            bytes(generator.resident_bytes as f64),
            bytes(generator.resident_early_bytes as f64)
        ),
    ];
    if generator.stalled_s > 0.0 {
        parts.push(format!(
            "stood still for {}",
            short_seconds(generator.stalled_s)
        ));
    }
    if generator.foreign_cpu_share > 0.0 {
        parts.push(format!(
            "others took {} of all processors",
            share(generator.foreign_cpu_share)
        ));
    }
    parts.retain(|part| !part.is_empty());
    sheet.put(LineStyle::Plain, labelled("generator", &parts.join(" · ")));
}

/// Processor time for a request, if there was one.
pub(super) fn per_request(outcome: &Outcome, us: f64) -> String {
    let ended = outcome
        .counts
        .answered
        .saturating_add(outcome.counts.failures.sum());
    let us = if ended == 0 {
        NONE.to_owned()
    } else {
        number(us)
    };
    format!("{us} µs/request")
}

/// The use of each thread, or of the busiest and the least busy of many; and how long they waited.
pub(super) fn threads_text(threads: &[ThreadUse]) -> String {
    if threads.is_empty() {
        return String::new();
    }
    let shares = || threads.iter().map(|thread| thread.cpu_share);
    let used = if threads.len() <= NAMED_LEN_MAX {
        shares().map(share).collect::<Vec<_>>().join(", ")
    } else {
        let least = shares().fold(f64::INFINITY, f64::min);
        let most = shares().fold(0.0, f64::max);
        format!("{} to {}", share(least), share(most))
    };
    let waited = threads.iter().map(|thread| thread.waited_s).sum::<f64>();
    let switches = threads.iter().map(|thread| thread.involuntary_switches);
    let switches = switches.fold(0u64, u64::saturating_add);
    format!(
        "{} at {used} of a processor · waited {} · pushed off {}",
        counted(threads.len() as u64, "thread"),
        short_seconds(waited),
        counted(switches, "time"),
    )
}

/// The server's side in words.
pub(super) fn server_text(outcome: &Outcome, server: &ServerUse) -> String {
    format!(
        "{} · {} of a processor · memory {} · {} switches/request · {} process{}",
        per_request(outcome, server.cpu_us_per_request),
        share(server.cpu_share),
        bytes(server.resident_bytes as f64),
        number(server.switches_per_request),
        thousands(server.processes as u64),
        if server.processes == 1 { "" } else { "es" },
    )
}

fn environment(outcome: &Outcome, sheet: &mut Sheet) {
    let grown: Vec<String> = outcome
        .kernel
        .iter()
        .map(|(name, by)| format!("{} +{}", harmless(name, 60), thousands(*by)))
        .collect();
    if !grown.is_empty() {
        sheet.put(LineStyle::Plain, labelled("kernel", &grown.join(" · ")));
    }
    for line in bad_clients(outcome) {
        sheet.put(LineStyle::Plain, labelled("bad clients", &line));
    }
}

/// What misbehaving clients did, a line for each group.
pub(super) fn bad_clients(outcome: &Outcome) -> impl Iterator<Item = String> {
    outcome.bad_clients.iter().map(|count| {
        let mut text = format!(
            "{}: {} open at the end · {} made · {} ended by the server",
            harmless(&count.name, 60),
            thousands(count.open as u64),
            thousands(count.made),
            thousands(count.ended)
        );
        if let Some(lived) = count.lived.as_ref().filter(|lived| lived.count > 0) {
            let (median, longest) = (lived.p50_us / 1e6, lived.max_us / 1e6);
            text += &format!(
                " after {} (median), {} (longest)",
                short_seconds(median),
                short_seconds(longest)
            );
        }
        text + &format!(" · {} read", bytes(count.read_bytes as f64))
    })
}

/// The word in front of a remark.
pub(super) fn weight_word(weight: Weight) -> &'static str {
    match weight {
        Weight::Invalid => "INVALID",
        Weight::Doubtful => "DOUBTFUL",
        Weight::Note => "note",
    }
}

fn remarks(outcome: &Outcome, sheet: &mut Sheet) {
    if !outcome.remarks.is_empty() {
        sheet.put(LineStyle::Plain, [String::new()]);
    }
    for remark in &outcome.remarks {
        let style = match remark.weight {
            Weight::Invalid => LineStyle::Bad,
            Weight::Doubtful => LineStyle::Doubtful,
            Weight::Note => LineStyle::Plain,
        };
        let text = format!(
            "{}: {}",
            harmless(&remark.word, 40),
            harmless(&remark.text, TEXT_CHARS_MAX)
        );
        sheet.put(style, labelled(weight_word(remark.weight), &text));
    }
}
