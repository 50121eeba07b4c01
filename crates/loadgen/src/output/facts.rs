//! What was asked of a run and what was found, in words: the lines of the table and the rows of the page.
//!
//! Takes an outcome, gives labels and texts.

use std::collections::BTreeMap;

use present::{bytes, counted, duration, harmless, number, percent, share, thousands};

use crate::outcome::{
    AskedLeg, BadClientCounts, Counts, Generator, Outcome, ServerUse, ThreadUse, Weight,
};
use crate::plan::Protocol;

/// Characters of a text from outside.
pub(super) const TEXT_CHARS_MAX: usize = 600;
/// Kinds of requests and threads that are named one by one.
const NAMED_LEN_MAX: usize = 8;
/// The label of what failed.
pub(super) const FAILED: &str = "FAILED";

/// A label and what stands beside it.
pub(super) type Fact = (&'static str, String);

/// What was asked for, in one line: `closed load, 64 connections, 1 in flight, kept, 1 thread`.
pub(super) fn model(outcome: &Outcome) -> String {
    let asked = &outcome.asked;
    let mut parts = Vec::new();
    match (asked.load.split_once(", "), asked.rate) {
        (Some((kind, arrivals)), Some(rate)) => {
            let per_second = |rate| number(rate) + "/s";
            let rate = match &asked.rate_legs[..] {
                [] => format!("{} {arrivals}", per_second(rate)),
                legs => format!("{}, {arrivals}", over_time(legs, per_second)),
            };
            parts.push(format!("{kind} load, {rate}"));
        }
        (Some((kind, arrivals)), None) => parts.push(format!("{kind} load, {arrivals}")),
        (None, _) => parts.push(format!("{} load", asked.load)),
    }
    // Without it the same load looks quicker than its clients found it: coordinated omission.
    if outcome.times.late.is_some() {
        parts.push("latency from the intended start".to_owned());
    }
    if outcome.times.unread.is_some() {
        parts.push("kernel timestamps".to_owned());
    }
    parts.push(counted(asked.connections as u64, "connection"));
    parts.push(match asked.protocol {
        Protocol::Http1 => format!("{} in flight", thousands(asked.in_flight as u64)),
        Protocol::WebSocket => {
            let len = counted(asked.in_flight as u64, "message");
            format!("WebSocket with {len} in flight")
        }
        Protocol::Http2 => format!(
            "HTTP/2 with {} each",
            counted(asked.in_flight as u64, "stream")
        ),
    });
    parts.push(match asked.requests_each {
        None => "kept".to_owned(),
        Some(each) => {
            let each = counted(each, "request");
            let closing = format!("{:?}", asked.closing).to_lowercase();
            format!("{each} each, closed by {closing}")
        }
    });
    parts.push(counted(asked.threads as u64, "thread"));
    harmless(parts.join(", "), TEXT_CHARS_MAX)
}

/// Steps and ramps in words: `10/s to 60/s over 2 s, then 60/s for 5 s`.
fn over_time(legs: &[AskedLeg], named: impl Fn(f64) -> String) -> String {
    let said = |leg: &AskedLeg| {
        let (from, lasts) = (named(leg.from), duration(leg.lasts_s));
        match leg.from == leg.to {
            true => format!("{from} for {lasts}"),
            false => format!("{from} to {} over {lasts}", named(leg.to)),
        }
    };
    let mut parts: Vec<String> = legs.iter().take(NAMED_LEN_MAX).map(said).collect();
    // A ramp may be given in hundreds of steps.
    let more = legs.len().saturating_sub(NAMED_LEN_MAX);
    if more > 0 {
        parts.push(counted(more as u64, "more step"));
    }
    parts.join(", then ")
}

/// Label, target and kinds of requests.
pub(super) fn asked(outcome: &Outcome) -> Vec<Fact> {
    let asked = &outcome.asked;
    // A recording has thousands of kinds.
    let kinds = asked.requests.iter().take(NAMED_LEN_MAX);
    let mut kinds: Vec<String> = kinds.map(|name| harmless(name, 60)).collect();
    let more = asked.requests.len().saturating_sub(NAMED_LEN_MAX);
    if more > 0 {
        kinds.push(format!("{} more", thousands(more as u64)));
    }
    known([
        ("label", harmless(&asked.label, TEXT_CHARS_MAX)),
        ("target", harmless(&asked.url, TEXT_CHARS_MAX)),
        ("requests", joined(kinds)),
    ])
}

/// How much was answered, and what failed.
pub(super) fn found(outcome: &Outcome) -> Vec<Fact> {
    let counts = &outcome.counts;
    // Nothing a second is not zero a second: a run without any time has no rate.
    let seconds = Some(outcome.seconds).filter(|seconds| *seconds > 0.0);
    let flow = |moved: u64| bytes(moved as f64 / seconds.unwrap_or(f64::NAN)) + "/s";
    let [read, sent] = [counts.read_bytes, counts.sent_bytes].map(flow);
    let rate = number(outcome.per_second());
    let statuses = counts.statuses.iter();
    let statuses = statuses.map(|(status, len)| format!("{status} {}", thousands(*len)));
    known([
        (
            "throughput",
            format!("{rate} requests/s · {read} read · {sent} sent"),
        ),
        ("counts", counts_text(counts, outcome.seconds)),
        ("statuses", joined(statuses)),
        (FAILED, failures_text(counts)),
        ("resets", codes_text(&counts.resets)),
        ("GOAWAY", codes_text(&counts.goaways)),
    ])
}

/// What generator, server, kernel and misbehaving clients did meanwhile.
pub(super) fn sides(outcome: &Outcome) -> Vec<Fact> {
    let server = outcome.server.as_ref();
    let server = server.map(|server| server_text(outcome, server));
    let kernel = outcome.kernel.iter();
    let kernel = kernel.map(|(name, by)| format!("{} +{}", harmless(name, 60), thousands(*by)));
    let what = match outcome.in_flight_max() {
        1 => "connections",
        _ => "requests in flight",
    };
    let busy = little(outcome)
        .map(|(found, slots)| format!("{} of {} {what} (mean)", number(found), thousands(slots)));
    let mut facts = vec![
        ("busy", busy.unwrap_or_default()),
        ("generator", generator_text(outcome, &outcome.generator)),
        ("server", server.unwrap_or_default()),
        ("kernel", joined(kernel)),
    ];
    let clients = outcome.bad_clients.iter();
    facts.extend(clients.map(|count| ("bad clients", bad_clients_text(count))));
    known(facts)
}

fn known(facts: impl IntoIterator<Item = Fact>) -> Vec<Fact> {
    // A fact without a text is one that there is not: its label alone would be a riddle.
    let facts = facts.into_iter();
    facts.filter(|(_, text)| !text.is_empty()).collect()
}

fn joined(parts: impl IntoIterator<Item = String>) -> String {
    let parts = parts.into_iter().filter(|part| !part.is_empty());
    parts.collect::<Vec<_>>().join(" · ")
}

fn counts_text(counts: &Counts, seconds: f64) -> String {
    let connections = format!("{} made", counted(counts.connections, "connection"));
    let rest = [
        (counts.disturbed, "disturbed by a stall of the generator"),
        (counts.unsent, "due and not sent"),
        (counts.unfinished, "unfinished at the end"),
        (counts.ended_idle, "ended while idle and opened again"),
        (counts.left_open, "left open by the server"),
        (counts.resumed, "TLS sessions resumed"),
        (counts.resent, "sent again after a GOAWAY"),
    ];
    // Only what happened: six zeros would hide the one number that is none.
    let rest = rest.into_iter().filter(|(len, _)| *len > 0);
    let rest = rest.map(|(len, words)| format!("{} {words}", thousands(len)));
    let first = [answered(counts, seconds), connections];
    joined(first.into_iter().chain(rest))
}

/// How many were answered, and how many of them in time.
fn answered(counts: &Counts, seconds: f64) -> String {
    let (all, within) = (counts.answered, counts.within());
    let (answered, seconds) = (thousands(all), number(seconds));
    // A load by the clock may have answered some requests after its end: they count, but not for the rate.
    match all == within {
        true => format!("{answered} answered in {seconds} s"),
        false => format!(
            "{answered} answered, {} within the {seconds} s",
            thousands(within)
        ),
    }
}

/// Empty: nothing failed.
fn failures_text(counts: &Counts) -> String {
    let failed = counts.failures.sum();
    if failed == 0 {
        return String::new();
    }
    let ended = failed.saturating_add(counts.answered);
    let share = percent(failed, ended);
    let seen = counts.failures.named().filter(|(_, len)| *len > 0);
    let seen = joined(seen.map(|(name, len)| format!("{name} {}", thousands(len))));
    let (failed, ended) = (thousands(failed), thousands(ended));
    format!("{failed} of {ended} ({share}): {seen}")
}

/// How many by each code of HTTP/2: `REFUSED_STREAM 12`.
fn codes_text(codes: &BTreeMap<String, u64>) -> String {
    let codes = codes.iter().take(NAMED_LEN_MAX);
    joined(codes.map(|(code, len)| format!("{} {}", harmless(code, 60), thousands(*len))))
}

/// In flight by Little's law, of a closed load, and what is in flight; `None`: it cannot be said.
fn little(outcome: &Outcome) -> Option<(f64, u64)> {
    let (asked, cycle) = (&outcome.asked, &outcome.times.cycle);
    let is_known = asked.load == "closed" && cycle.count > 0 && outcome.seconds > 0.0;
    let slots = (asked.connections as u64).saturating_mul(outcome.in_flight_max());
    // Failures take their time as well: all that ended, not only what was answered.
    let ended_per_second = cycle.count as f64 / outcome.seconds;
    is_known.then(|| (ended_per_second * cycle.mean_us / 1e6, slots))
}

fn generator_text(outcome: &Outcome, generator: &Generator) -> String {
    let stalled = (generator.stalled_s > 0.0)
        .then(|| format!("stood still for {}", duration(generator.stalled_s)));
    let others = generator.foreign_cpu_share;
    let foreign =
        (others > 0.0).then(|| format!("others took {} of all processors", share(others)));
    let memory = [generator.resident_bytes, generator.resident_early_bytes];
    let [late, early] = memory.map(|len| bytes(len as f64));
    let memory = format!("memory {late} (at the start {early})");
    let parts = [
        per_request(outcome, generator.cpu_us_per_request),
        threads_text(&generator.threads),
        memory,
    ];
    joined(parts.into_iter().chain(stalled).chain(foreign))
}

/// Processor time for a request.
fn per_request(outcome: &Outcome, us: f64) -> String {
    let counts = &outcome.counts;
    // Without any request there is no time for one, whatever the processes used.
    let is_none = counts.answered == 0 && counts.failures.sum() == 0;
    format!("{} µs/request", number(if is_none { f64::NAN } else { us }))
}

/// The use of the threads, and how long they waited.
fn threads_text(threads: &[ThreadUse]) -> String {
    if threads.is_empty() {
        return String::new();
    }
    let shares = || threads.iter().map(|thread| thread.cpu_share);
    // Of many the busiest and the least busy: one thread that is at its limit is what the rest waits for.
    let used = if threads.len() <= NAMED_LEN_MAX {
        shares().map(share).collect::<Vec<_>>().join(", ")
    } else {
        let least = shares().fold(f64::INFINITY, f64::min);
        let most = shares().fold(0.0, f64::max);
        format!("{} to {}", share(least), share(most))
    };
    let waited = threads.iter().map(|thread| thread.waited_s).sum::<f64>();
    let switches = threads.iter().map(|thread| thread.involuntary_switches);
    // Stored numbers may be anything: a sum of them must not end the program.
    let switches = switches.fold(0u64, u64::saturating_add);
    format!(
        "{} at {used} of a processor · waited {} · preempted {}",
        counted(threads.len() as u64, "thread"),
        duration(waited),
        counted(switches, "time"),
    )
}

fn server_text(outcome: &Outcome, server: &ServerUse) -> String {
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

/// What a group of misbehaving clients did.
fn bad_clients_text(count: &BadClientCounts) -> String {
    let lived = count.lived.as_ref().filter(|lived| lived.count > 0);
    // Only groups whose connections were ended say how long they lived.
    let lived = lived.map(|lived| {
        let [median, longest] = [lived.p50_us, lived.max_us].map(|us| duration(us / 1e6));
        format!(" after {median} (median), {longest} (longest)")
    });
    format!(
        "{}: {} open at the end · {} made · {} ended by the server{} · {} read",
        harmless(&count.name, 60),
        thousands(count.open as u64),
        thousands(count.made),
        thousands(count.ended),
        lived.unwrap_or_default(),
        bytes(count.read_bytes as f64)
    )
}

/// The word in front of a remark.
pub(super) fn weight_word(weight: Weight) -> &'static str {
    match weight {
        Weight::Invalid => "INVALID",
        Weight::Doubtful => "DOUBTFUL",
        Weight::Note => "note",
    }
}
