//! What a server depends on, for `top`: the machine, the servers of its upstreams, the disks of its logs and of its spool
//! folder.
//!
//! Takes the latest sample and the one before it, gives a line and listings. Knows no terminal and no clock.

use ipc::HostStatus;
use present::{NONE, bytes, duration, share, thousands};
use telemetry::Nanos;
use telemetry::counters::{LogSnapshot, SpoolFigures, UpstreamSnapshot};

use super::overview::{Comparison, Listing, ListingRow, rate};

/// From this share on, what the machine or its limits take away is marked.
const HOST_SHARE_MAX: f64 = 0.1;
/// A write that takes longer says that a disk does not keep up.
const SLOW_WRITE: Nanos = Nanos::from_ms(100);

/// What the kernel says of the machine.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct HostLine {
    /// Empty where the kernel says nothing.
    pub(super) text: String,
    pub(super) is_alarming: bool,
}

impl HostLine {
    /// Of the time between two samples.
    pub(super) fn of(comparison: &Comparison<'_>) -> HostLine {
        let Some(previous) = comparison.previous else {
            return HostLine::default();
        };
        let (now, before) = (&comparison.sample.host, &previous.host);
        let mut parts = Vec::new();
        let mut is_alarming = false;
        let pressures = pressures(now, before, comparison.span);
        if !pressures.is_empty() {
            // Memory and storage that hold programs up are trouble at once; a busy processor is not.
            is_alarming |= pressures
                .iter()
                .any(|(name, part)| *name != "cpu" && *part >= HOST_SHARE_MAX);
            let texts: Vec<String> = (pressures.iter())
                .map(|(name, part)| format!("{name} {}", whole_percent(*part)))
                .collect();
            parts.push(format!("pressure {}", texts.join(" ")));
        }
        if let Some(stolen) = now.stolen_share(before) {
            is_alarming |= stolen >= HOST_SHARE_MAX;
            parts.push(format!("steal {}", whole_percent(stolen)));
        }
        if let Some(throttled) = throttled_share(now, before) {
            is_alarming |= throttled >= HOST_SHARE_MAX;
            parts.push(format!("throttled {}", whole_percent(throttled)));
        }
        if now.listen_drops.is_some() {
            let drops = comparison.growth(now.dropped_connections(before), Some(0));
            let drops = drops.unwrap_or(0.0);
            is_alarming |= drops > 0.0;
            parts.push(format!("drops {}/s", rate(drops)));
        }
        HostLine {
            text: match parts.is_empty() {
                true => String::new(),
                false => format!("host  {}", parts.join("  ")),
            },
            is_alarming,
        }
    }
}

/// The part of the time in which some programs waited, by short names.
fn pressures(now: &HostStatus, before: &HostStatus, span: Nanos) -> Vec<(&'static str, f64)> {
    let names = [("cpu", "cpu"), ("memory", "mem"), ("io", "io")];
    let there = names
        .into_iter()
        .filter(|(resource, _)| now.pressure.iter().any(|one| one.resource == *resource));
    let span_us = (span.0 / 1_000).max(1) as f64;
    there
        .map(|(resource, name)| {
            let waited_us = now.waited_us(before, resource) as f64;
            // The two clocks are not read in the same moment.
            (name, (waited_us / span_us).min(1.0))
        })
        .collect()
}

/// The part of the periods in which the quota of the control group was used up; `None` where it has no quota.
fn throttled_share(now: &HostStatus, before: &HostStatus) -> Option<f64> {
    let (now, before) = (now.throttling.as_ref()?, before.throttling.as_ref()?);
    let periods = now.periods.saturating_sub(before.periods);
    let throttled = now
        .throttled_periods
        .saturating_sub(before.throttled_periods);
    (now.periods > 0).then(|| throttled as f64 / periods.max(1) as f64)
}

fn whole_percent(part: f64) -> String {
    format!("{:.0} %", 100.0 * part)
}

impl Comparison<'_> {
    pub(super) fn upstreams(&self) -> Listing {
        let servers = self.sample.counters.upstreams.iter();
        Listing {
            headings: vec![
                "UPSTREAM",
                "IN FLIGHT",
                "LIMIT",
                "REQ/S",
                "LATENCY",
                "FAILED/S",
                "EJECTED",
            ],
            sorted_by: 1,
            rows: servers.map(|server| self.upstream(server)).collect(),
            more: 0,
        }
    }

    fn upstream(&self, server: &UpstreamSnapshot) -> ListingRow {
        let before = self.previous.and_then(|previous| {
            let mut servers = previous.counters.upstreams.iter();
            servers.find(|one| one.upstream == server.upstream && one.server == server.server)
        });
        let grown = |of: fn(&UpstreamSnapshot) -> u64| self.growth(of(server), before.map(of));
        let answers = before.map(|one| server.answers().saturating_sub(one.answers()));
        let took_ns = before.map(|one| {
            let earlier = one.figures.response_ns;
            server.figures.response_ns.saturating_sub(earlier)
        });
        let mean = answers.zip(took_ns).filter(|(answers, _)| *answers > 0);
        let mean = mean.map(|(answers, took_ns)| Nanos(took_ns / answers).as_secs_f64());
        let failed = grown(UpstreamSnapshot::failures);
        let mut row = ListingRow::named(&format!("{} {}", server.upstream, server.server));
        row.count(server.figures.in_flight)
            .count(server.figures.slots)
            .maybe(grown(UpstreamSnapshot::answers), rate)
            .maybe(mean, duration)
            .maybe(failed, rate)
            .count(server.figures.ejected);
        row.is_alarming = server.figures.ejected > 0
            || server.figures.slots == 0
            || failed.is_some_and(|rate| rate > 0.0);
        row
    }

    /// The logs and the spool folder: what waits for their disks, and what was lost.
    pub(super) fn disks(&self) -> Listing {
        let logs = self.sample.counters.logs.iter();
        let mut rows: Vec<ListingRow> = logs.map(|log| self.log(log)).collect();
        // A server of another version may not count it.
        if self.sample.counters.spool != SpoolFigures::default() {
            rows.push(self.spool(&self.sample.counters.spool));
        }
        Listing {
            headings: vec![
                "LOG, FOLDER",
                "WRITTEN/S",
                "WAITING",
                "DROPPED",
                "FAILED",
                "WRITING",
                "SLOWEST",
                "FREE",
            ],
            sorted_by: 0,
            rows,
            more: 0,
        }
    }

    fn log(&self, log: &LogSnapshot) -> ListingRow {
        let before = self.previous.and_then(|previous| {
            let mut logs = previous.counters.logs.iter();
            logs.find(|one| one.log == log.log)
        });
        let (now, before) = (&log.figures, before.map(|before| &before.figures));
        let lines = self.growth(now.lines, before.map(|one| one.lines));
        let writes = Writes {
            write_ns: (now.write_ns, before.map(|one| one.write_ns)),
            slowest_ns: (now.slowest_write_ns, before.map(|one| one.slowest_write_ns)),
        };
        let mut row = ListingRow::named(&format!("{} log", log.log));
        row.maybe(lines, rate)
            .add(bytes(now.waiting_bytes as f64), now.waiting_bytes as f64)
            .count(now.dropped)
            .count(now.incomplete);
        self.add_writes(&mut row, &writes);
        row.maybe(None, bytes);
        let has_grown = |now: u64, before: Option<u64>| before.is_some_and(|before| now > before);
        row.is_alarming = writes.are_slow()
            || has_grown(now.dropped, before.map(|one| one.dropped))
            || has_grown(now.incomplete, before.map(|one| one.incomplete));
        row
    }

    fn spool(&self, now: &SpoolFigures) -> ListingRow {
        let before = self.previous.map(|previous| &previous.counters.spool);
        let written = self.growth(now.written_bytes, before.map(|one| one.written_bytes));
        let writes = Writes {
            write_ns: (now.write_ns, before.map(|one| one.write_ns)),
            slowest_ns: (now.slowest_write_ns, before.map(|one| one.slowest_write_ns)),
        };
        let free = (now.size_bytes > 0).then_some(now.free_bytes as f64);
        let waiting = match now.waiting {
            1 => "1 task".to_owned(),
            several => format!("{} tasks", thousands(several)),
        };
        let mut row = ListingRow::named("spool folder");
        row.maybe(written, bytes)
            .add(waiting, now.waiting as f64)
            // What cannot be stored is answered with 507, and never left out.
            .add(NONE.to_owned(), -1.0)
            .count(now.failed);
        self.add_writes(&mut row, &writes);
        row.maybe(free, bytes);
        row.is_alarming = writes.are_slow()
            || before.is_some_and(|before| now.failed > before.failed)
            || now.is_nearly_full();
        row
    }

    fn add_writes(&self, row: &mut ListingRow, writes: &Writes) {
        let (now, before) = writes.write_ns;
        let busy = self.growth(now, before).map(|ns| ns / 1e9);
        let slowest = Nanos(writes.slowest_ns.0).as_secs_f64();
        row.maybe(busy, share).add(duration(slowest), slowest);
    }
}

/// How long writes took: now, and in the sample before.
struct Writes {
    write_ns: (u64, Option<u64>),
    slowest_ns: (u64, Option<u64>),
}

impl Writes {
    /// Whether one that took long has ended since the sample before, or is under way.
    fn are_slow(&self) -> bool {
        let (now, before) = self.slowest_ns;
        now >= SLOW_WRITE.0 && before.is_some_and(|before| now > before)
    }
}

#[cfg(test)]
mod tests {
    use ipc::{GroupThrottling, PressureStatus};

    use super::super::sample::Sample;
    use super::*;

    fn host(io_us: u64, throttled_periods: u64, drops: u64) -> Sample {
        let pressure = |resource: &str, some_us| PressureStatus {
            resource: resource.to_owned(),
            some_us,
            ..PressureStatus::default()
        };
        Sample {
            host: HostStatus {
                pressure: vec![pressure("cpu", 1_000_000), pressure("io", io_us)],
                stolen_ms: Some(10),
                processors_ms: Some(4_000 + io_us),
                listen_drops: Some(drops),
                throttling: Some(GroupThrottling {
                    periods: 10 + 2 * throttled_periods,
                    throttled_periods,
                    ..GroupThrottling::default()
                }),
                ..HostStatus::default()
            },
            ..Sample::default()
        }
    }

    #[test]
    fn a_line_of_the_host_is_of_the_time_between_two_samples() {
        let check = |later: &Sample, expect: &str, is_alarming: bool| {
            let line = HostLine::of(&Comparison {
                sample: later,
                previous: Some(&host(500_000, 0, 3)),
                span: Nanos::from_secs(2),
            });
            assert_eq!(
                (line.text.as_str(), line.is_alarming),
                (expect, is_alarming)
            );
        };
        let calm = "host  pressure cpu 0 % io 5 %  steal 0 %  throttled 0 %  drops 0/s";
        check(&host(600_000, 0, 3), calm, false);
        let held_up = "host  pressure cpu 0 % io 50 %  steal 0 %  throttled 0 %  drops 0/s";
        check(&host(1_500_000, 0, 3), held_up, true);
        let limited = "host  pressure cpu 0 % io 5 %  steal 0 %  throttled 50 %  drops 1.0/s";
        check(&host(600_000, 4, 5), limited, true);
        // A kernel that says nothing.
        check(&Sample::default(), "", false);
    }

    #[test]
    fn a_slow_write_is_news_only_once() {
        let writes = |now_ms: u64, before_ms: Option<u64>| Writes {
            write_ns: (0, None),
            slowest_ns: (
                Nanos::from_ms(now_ms).0,
                before_ms.map(|ms| Nanos::from_ms(ms).0),
            ),
        };
        assert!(writes(400, Some(2)).are_slow());
        assert!(!writes(400, Some(400)).are_slow());
        assert!(!writes(99, Some(2)).are_slow());
        assert!(!writes(400, None).are_slow());
    }
}
