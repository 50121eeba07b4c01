//! What the numbers are worth: remarks about a finished run.
//!
//! Pure: takes the outcome and what it does not hold, gives sentences with remedies.

use telemetry::Nanos;

use crate::distribution::has_enough_beyond;
use crate::outcome::{Outcome, Remark, ThreadUse, Weight};
use crate::plan::Timestamps;

const LIMITED: &str = "generator-limited";
/// A thread that waits for a processor a greater share of the time adds that to latencies.
const WAITED_SHARE: f64 = 0.05;

/// What has to be known about a finished run, the worst first. `stalled` is how long the thread stood still that
/// did so longest, `processors` are those of the host. Remarks that the outcome has already are not looked at.
pub fn judge(outcome: &Outcome, stalled: Nanos, processors: usize) -> Vec<Remark> {
    let limited = limited_remark(outcome);
    let is_limit = limited
        .as_ref()
        .is_some_and(|remark| remark.word == LIMITED);
    let found = [
        stalled_remark(outcome, stalled),
        late_remark(outcome),
        limited,
        // Of a thread that is never idle that is said with it.
        waited_remark(outcome).filter(|_| !is_limit),
        local_remark(outcome),
        connections_remark(outcome),
        censored_remark(outcome),
        unfinished_remark(outcome),
        foreign_remark(outcome, processors),
        left_open_remark(outcome),
        streams_remark(outcome),
        backlog_remark(outcome),
        time_wait_remark(outcome),
    ];
    let mut remarks: Vec<Remark> = found.into_iter().flatten().collect();
    remarks.sort_by_key(|remark| remark.weight);
    remarks
}

fn stalled_remark(outcome: &Outcome, stalled: Nanos) -> Option<Remark> {
    let share = stalled.as_secs_f64() / outcome.seconds;
    // A generator that stood still for a greater share of the time has measured itself.
    (share > 0.01).then(|| {
        let text = format!(
            "the generator stood still for {:.2} s ({}), and {} requests that were under way then are in no \
             distribution: give it a processor of its own (`--cpus`), and stop what else runs here",
            stalled.as_secs_f64(),
            percent(share),
            outcome.counts.disturbed
        );
        Remark::new(Weight::Invalid, "stalled", text)
    })
}

fn late_remark(outcome: &Outcome) -> Option<Remark> {
    let (late, latency) = (outcome.times.late.as_ref()?, &outcome.times.latency);
    // A short run has its lateness as well, and less that it could be measured by.
    let usual = [
        (99.0, late.p99_us, latency.p99_us),
        (95.0, Some(late.p95_us), Some(latency.p95_us)),
        (90.0, Some(late.p90_us), Some(latency.p90_us)),
    ];
    let is_said = |percent_of| has_enough_beyond(percent_of, latency.count as f64);
    let (percent_of, late_us, latency_us) =
        usual.into_iter().find_map(|(percent_of, late, latency)| {
            is_said(percent_of).then_some((percent_of, late?, latency?))
        })?;
    let (weight, word) = match percent_of {
        99.0 => (Weight::Invalid, "late"),
        _ => (Weight::Doubtful, "lateness"),
    };
    // A generator that is late by a greater share of the latency has measured itself as well.
    (late_us > latency_us * 0.1).then(|| {
        let text = format!(
            "requests left up to {:.3} ms after their time ({percent_of} % of them sooner), {} of the latency at \
             {percent_of} %: use more threads or connections, a lower rate, `--spin 60us`, or a processor of its \
             own (`--cpus`)",
            late_us / 1e3,
            percent(late_us / latency_us)
        );
        Remark::new(weight, word, text)
    })
}

fn connections_remark(outcome: &Outcome) -> Option<Remark> {
    let (asked, times) = (&outcome.asked, &outcome.times);
    times.late.as_ref()?;
    let slots = asked.connections as f64 * outcome.in_flight_max() as f64;
    let busy_s = times.last_byte.count as f64 * times.last_byte.mean_us / 1e6;
    let busy = busy_s / (slots * outcome.seconds);
    // A rate for which there are too few connections waits for them, and not for the server: connections that
    // are busy most of the time, on average, are all busy now and then.
    let awaited_us = times.latency.mean_us - times.last_byte.mean_us;
    let is_awaited = awaited_us > 0.1 * times.latency.mean_us;
    (busy.is_finite() && busy > 0.8 && is_awaited).then(|| {
        let text = format!(
            "nearly all connections were busy all the time, and requests that were due waited {:.3} ms for a free \
             one on average, which is in the latency: use more (`--connections`) to see whether the server is the \
             limit",
            awaited_us / 1e3
        );
        Remark::new(Weight::Doubtful, "connections", text)
    })
}

fn streams_remark(outcome: &Outcome) -> Option<Remark> {
    let (asked, allowed) = (outcome.asked.in_flight as u64, outcome.counts.streams_max?);
    (allowed < asked).then(|| {
        let text = format!(
            "the server allows {allowed} streams on a connection at once, so that not all {asked} were used: more \
             connections (`--connections`) have more requests in flight"
        );
        Remark::new(Weight::Note, "streams", text)
    })
}

fn censored_remark(outcome: &Outcome) -> Option<Remark> {
    let counts = &outcome.counts;
    // Quantiles are of what was answered. Refusals may be quick; what is counted here is not.
    let is_by_due = outcome.times.late.is_some();
    let unfinished = if is_by_due { counts.unfinished } else { 0 };
    let slow = counts.failures.timeout + counts.unsent + unfinished;
    let ended = counts.answered + counts.failures.sum();
    let share = slow as f64 / (ended + counts.unsent + unfinished) as f64;
    // They would be the slowest: a greater share of them is beyond what p99 says.
    (share > 0.01 && counts.answered > 0).then(|| {
        let text = format!(
            "{slow} requests ({}) timed out, were never sent or had no reply at the end: they would be the slowest, \
             and are in no percentile",
            percent(share)
        );
        Remark::new(Weight::Doubtful, "censored", text)
    })
}

fn unfinished_remark(outcome: &Outcome) -> Option<Remark> {
    let (counts, latency) = (&outcome.counts, &outcome.times.latency);
    let longest_us = counts.unfinished_longest_us;
    // A closed load that waits for a server which has stopped counts nothing meanwhile. It is worth a word when
    // it has taken a share of the time.
    let is_long = longest_us > latency.max_us && longest_us / 1e6 > 0.05 * outcome.seconds;
    let is_closed = outcome.asked.load == "closed";
    (is_closed && counts.answered > 0 && is_long).then(|| {
        let text = format!(
            "{} requests had no reply at the end, the oldest after {:.2} s, longer than any that was answered: they \
             are in no percentile; a rate (`--rate`) is not stopped by a server that stands still",
            counts.unfinished,
            longest_us / 1e6
        );
        Remark::new(Weight::Doubtful, "unfinished", text)
    })
}

fn limited_remark(outcome: &Outcome) -> Option<Remark> {
    // In less time a thread may well be busy all the time, and its share is measured by few ticks.
    if outcome.seconds < 0.1 {
        return None;
    }
    let waited_share = |thread: &ThreadUse| thread.waited_s / elapsed_s(outcome, thread);
    let (number, share) = worst(outcome, |thread| thread.cpu_share + waited_share(thread))?;
    let thread = &outcome.generator.threads[number];
    let took = match waited_share(thread) {
        waited if waited > WAITED_SHARE => format!(
            "took {} of a processor and waited {} of the time for one",
            percent(thread.cpu_share),
            percent(waited)
        ),
        _ => format!("took {} of a processor", percent(thread.cpu_share)),
    };
    // A thread that takes a processor, or waits for one, nearly all the time is the limit of a closed load. The
    // rate of other ones is given, and lateness shows whether it was kept.
    let is_limit = share > 0.9 && outcome.asked.load == "closed";
    let remedy = "more threads (`--threads`) on more processors";
    match (is_limit, outcome.asked.timestamps) {
        (true, Timestamps::Read) => {
            let text = format!(
                "the generator was the limit, not the server: its thread {number} {took}; {remedy}; \
                 `--timestamps kernel` keeps its own queue out of the latency"
            );
            Some(Remark::new(Weight::Invalid, LIMITED, text))
        }
        (true, Timestamps::Kernel) => {
            let text = format!(
                "the generator was the limit, not the server: its thread {number} {took}. What it left unread is \
                 in no latency, but the server could have answered more: {remedy}"
            );
            Some(Remark::new(Weight::Doubtful, LIMITED, text))
        }
        // From here on replies wait for the generator now and then.
        (false, Timestamps::Read) if share > 0.75 => {
            let text = format!(
                "the generator's thread {number} {took}, so that replies may have waited for it: {remedy}; \
                 `--timestamps kernel` keeps that out of the latency"
            );
            Some(Remark::new(Weight::Doubtful, "generator-busy", text))
        }
        (false, _) => None,
    }
}

fn waited_remark(outcome: &Outcome) -> Option<Remark> {
    let (number, share) = worst(outcome, |thread| {
        thread.waited_s / elapsed_s(outcome, thread)
    })?;
    (share > WAITED_SHARE).then(|| {
        let text = format!(
            "the generator's thread {number} waited {} of the time for a processor that others used: give it \
             one of its own (`--cpus`), and the server the others",
            percent(share)
        );
        Remark::new(Weight::Doubtful, "waited", text)
    })
}

fn worst(outcome: &Outcome, share: impl Fn(&ThreadUse) -> f64) -> Option<(usize, f64)> {
    let shares = outcome.generator.threads.iter().map(share).enumerate();
    shares.max_by(|(_, one), (_, other)| one.total_cmp(other))
}

fn elapsed_s(outcome: &Outcome, thread: &ThreadUse) -> f64 {
    // A thread is measured during the warm-up too, which the outcome's time leaves out.
    if thread.cpu_share > 0.0 {
        thread.cpu_s / thread.cpu_share
    } else {
        outcome.seconds
    }
}

fn local_remark(outcome: &Outcome) -> Option<Remark> {
    let local = outcome.counts.failures.local;
    (local > 0).then(|| {
        let text = format!(
            "{local} requests failed on this side, for want of ports, descriptors or memory: more local \
             addresses (`--source A-B`), `--close rst`, or a greater `ulimit -n`"
        );
        Remark::new(Weight::Invalid, "local", text)
    })
}

fn foreign_remark(outcome: &Outcome, processors: usize) -> Option<Remark> {
    // Only where the server is watched: otherwise it is among the others.
    outcome.server.as_ref()?;
    let of_one = outcome.generator.foreign_cpu_share * processors as f64;
    (of_one > 0.08).then(|| {
        let text = format!(
            "others took {} of a processor meanwhile: stop what else runs here, and repeat",
            percent(of_one)
        );
        Remark::new(Weight::Doubtful, "foreign", text)
    })
}

fn left_open_remark(outcome: &Outcome) -> Option<Remark> {
    let open = outcome.counts.left_open;
    (open > 0).then(|| {
        let text = format!(
            "the server left {open} connections open whose last request said `Connection: close`; we ended \
             them after a second, and their ports are kept for a minute"
        );
        Remark::new(Weight::Note, "left-open", text)
    })
}

fn backlog_remark(outcome: &Outcome) -> Option<Remark> {
    let grown = |name: &str| outcome.kernel.get(name).copied().unwrap_or(0);
    let overflows = grown("TcpExt.ListenOverflows").max(grown("TcpExt.ListenDrops"));
    let full = grown("TcpExt.TCPReqQFullDrop") + grown("TcpExt.TCPReqQFullDoCookies");
    let again = grown("TcpExt.TCPSynRetrans");
    (overflows + full > 0).then(|| {
        let text = format!(
            "a queue of new connections on this host was full {} times, and {again} connections were asked for \
             again: what is dropped comes again after 1, 3 and 7 s, and peaks there are the backlog's, not the \
             server's; raise the server's backlog and `sysctl -w net.core.somaxconn=N`, or open fewer at once \
             (`--connect-rate`)",
            overflows + full
        );
        Remark::new(Weight::Note, "backlog", text)
    })
}

fn time_wait_remark(outcome: &Outcome) -> Option<Remark> {
    let times = outcome.kernel.get("TcpExt.TCPTimeWaitOverflow")?;
    let text = format!(
        "{times} connections were ended without TIME_WAIT because the kernel's table of them was full: \
         `sysctl -w net.ipv4.tcp_max_tw_buckets=N`, or `--close rst`"
    );
    Some(Remark::new(Weight::Note, "time-wait", text))
}

fn percent(share: f64) -> String {
    format!("{:.1} %", share * 100.0)
}
