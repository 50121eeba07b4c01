//! What the server depends on, for the page: the machine, the servers of its upstreams, the disks of its logs and of its
//! spool folder, over the last minute.
//!
//! Takes samples, compares the latest with the oldest of the minute, gives lines and sentences. Pure.

use std::collections::VecDeque;

use ipc::{HostStatus, LiveSample, StallStatus};
use present::{bytes, counted, duration};
use serde::Serialize;
use telemetry::Nanos;
use telemetry::counters::{LogFigures, LogSnapshot, SpoolFigures, UpstreamSnapshot};

/// Samples of a minute, and the one before it.
const SAMPLES_LEN_MAX: usize = 61;
/// Servers in an event: those that have had the most requests.
const UPSTREAMS_LEN_MAX: usize = 64;
/// A stall that is older is no news.
const STALL_AGE_MAX_S: u64 = 300;

/// The samples of the last minute, newest last.
#[derive(Default)]
pub(crate) struct HealthWindow {
    samples: VecDeque<HealthSample>,
}

/// What is kept of a sample.
#[derive(Default)]
struct HealthSample {
    host: HostStatus,
    upstreams: Vec<UpstreamSnapshot>,
    logs: Vec<LogSnapshot>,
    spool: SpoolFigures,
}

/// What a page shows of it; shares are between 0 and 1, times are seconds, counts are those of the last minute.
#[derive(Debug, Default, PartialEq, Serialize)]
pub(crate) struct HealthLines<'a> {
    host: HostLine<'a>,
    upstreams: Vec<UpstreamLine<'a>>,
    /// Servers of upstreams that there are.
    upstreams_len: usize,
    disks: Vec<DiskLine>,
}

/// The machine; what the kernel does not say is absent.
#[derive(Debug, Default, PartialEq, Serialize)]
struct HostLine<'a> {
    /// Part of the last minute in which some programs waited.
    pressure_cpu: Option<f64>,
    pressure_memory: Option<f64>,
    pressure_io: Option<f64>,
    /// Part of the processor time that the hypervisor gave to other machines.
    stolen: Option<f64>,
    /// Part of the periods in which the quota of the control group was used up.
    throttled: Option<f64>,
    /// Connections that were dropped before a program of the machine accepted them.
    dropped: Option<u64>,
    last_stall: Option<&'a StallStatus>,
}

#[derive(Debug, PartialEq, Serialize)]
struct UpstreamLine<'a> {
    upstream: &'a str,
    server: &'a str,
    in_flight: u64,
    limit: u64,
    ejected: u64,
    requests: u64,
    failed: u64,
    /// Mean time until the last byte of a response.
    latency: Option<f64>,
}

#[derive(Debug, Default, PartialEq, Serialize)]
struct DiskLine {
    name: String,
    /// Lines of a log.
    lines: Option<u64>,
    /// Bytes written to the spool folder.
    written_bytes: Option<u64>,
    /// Bytes of lines that wait.
    waiting_bytes: Option<u64>,
    /// Tasks that wait for the spool folder.
    waiting: Option<u64>,
    /// Lines that were dropped.
    dropped: Option<u64>,
    /// Writes that failed, or after which lines were left.
    failed: u64,
    /// The longest write of the processes that run, since their start.
    slowest: f64,
    free_bytes: Option<u64>,
    size_bytes: Option<u64>,
    is_nearly_full: bool,
}

impl HealthWindow {
    pub(crate) fn observe(&mut self, sample: &LiveSample) {
        self.samples.push_back(HealthSample {
            host: sample.host.clone(),
            upstreams: sample.upstreams.clone(),
            logs: sample.logs.clone(),
            spool: sample.spool.clone(),
        });
        if self.samples.len() > SAMPLES_LEN_MAX {
            self.samples.pop_front();
        }
    }

    /// Nothing that was counted can be compared with what will be.
    pub(crate) fn forget(&mut self) {
        self.samples.clear();
    }

    /// Of the minute until the latest sample.
    pub(crate) fn lines(&self) -> HealthLines<'_> {
        let Some((before, now)) = self.samples.front().zip(self.samples.back()) else {
            return HealthLines::default();
        };
        let mut upstreams: Vec<UpstreamLine<'_>> = now
            .upstreams
            .iter()
            .map(|server| UpstreamLine::of(server, &before.upstreams))
            .collect();
        let upstreams_len = upstreams.len();
        // A stable sort: servers without requests stay in the order of the configuration.
        upstreams.sort_by_key(|server| std::cmp::Reverse(server.requests));
        upstreams.truncate(UPSTREAMS_LEN_MAX);
        let logs = now.logs.iter().map(|log| log_line(log, &before.logs));
        HealthLines {
            host: HostLine::of(&now.host, &before.host),
            upstreams,
            upstreams_len,
            disks: logs
                .chain([spool_line(&now.spool, &before.spool)])
                .collect(),
        }
    }

    /// What is worth a sentence, the most important first.
    pub(crate) fn sentences(&self) -> Vec<String> {
        let lines = self.lines();
        let mut found = Vec::new();
        if let Some(stall) = lines.host.last_stall
            && stall.age_s <= STALL_AGE_MAX_S
        {
            let age = duration(stall.age_s as f64);
            found.push(format!("{age} ago {}.", stall.text));
        }
        found.extend(ejected(&lines.upstreams));
        found.extend(lines.disks.iter().filter_map(DiskLine::sentence));
        found
    }
}

impl<'a> HostLine<'a> {
    fn of(now: &'a HostStatus, before: &HostStatus) -> HostLine<'a> {
        let pressure = |resource: &str| {
            let mut all = now.pressure.iter();
            let found = all.find(|one| one.resource == resource)?;
            Some(found.some_percent / 100.0)
        };
        let throttling = now.throttling.as_ref().zip(before.throttling.as_ref());
        let throttled = throttling.filter(|(now, _)| now.periods > 0);
        HostLine {
            pressure_cpu: pressure("cpu"),
            pressure_memory: pressure("memory"),
            pressure_io: pressure("io"),
            stolen: now.stolen_share(before),
            throttled: throttled.map(|(now, before)| {
                let periods = now.periods.saturating_sub(before.periods).max(1);
                let throttled = { now.throttled_periods }.saturating_sub(before.throttled_periods);
                throttled as f64 / periods as f64
            }),
            dropped: now.listen_drops.map(|_| now.dropped_connections(before)),
            last_stall: now.last_stall.as_ref(),
        }
    }
}

impl<'a> UpstreamLine<'a> {
    fn of(now: &'a UpstreamSnapshot, earlier: &[UpstreamSnapshot]) -> UpstreamLine<'a> {
        let nothing = UpstreamSnapshot::default();
        let mut all = earlier.iter();
        let before = all.find(|one| one.upstream == now.upstream && one.server == now.server);
        let before = before.unwrap_or(&nothing);
        let requests = now.answers().saturating_sub(before.answers());
        let took_ns = { now.figures.response_ns }.saturating_sub(before.figures.response_ns);
        UpstreamLine {
            upstream: &now.upstream,
            server: &now.server,
            in_flight: now.figures.in_flight,
            limit: now.figures.slots,
            ejected: now.figures.ejected,
            requests,
            failed: now.failures().saturating_sub(before.failures()),
            latency: (took_ns.checked_div(requests)).map(|ns| Nanos(ns).as_secs_f64()),
        }
    }
}

fn ejected(upstreams: &[UpstreamLine<'_>]) -> Option<String> {
    let first = upstreams.iter().find(|server| server.ejected > 0)?;
    let others = upstreams.iter().filter(|server| server.ejected > 0).count() as u64 - 1;
    let others = match others {
        0 => String::new(),
        len => format!(" The same is true of {}.", counted(len, "other server")),
    };
    Some(format!(
        "Server `{}` of upstream `{}` gets no requests for a while, because requests have failed there.{others}",
        first.server, first.upstream
    ))
}

fn log_line(log: &LogSnapshot, earlier: &[LogSnapshot]) -> DiskLine {
    let nothing = LogFigures::default();
    let before = earlier.iter().find(|one| one.log == log.log);
    let before = before.map_or(&nothing, |one| &one.figures);
    let now = &log.figures;
    DiskLine {
        name: format!("{} log", log.log),
        lines: Some(now.lines.saturating_sub(before.lines)),
        waiting_bytes: Some(now.waiting_bytes),
        dropped: Some(now.dropped.saturating_sub(before.dropped)),
        failed: now.incomplete.saturating_sub(before.incomplete),
        slowest: Nanos(now.slowest_write_ns).as_secs_f64(),
        ..DiskLine::default()
    }
}

fn spool_line(now: &SpoolFigures, before: &SpoolFigures) -> DiskLine {
    let is_known = now.size_bytes > 0;
    DiskLine {
        name: "spool folder".to_owned(),
        written_bytes: Some(now.written_bytes.saturating_sub(before.written_bytes)),
        waiting: Some(now.waiting),
        failed: now.failed.saturating_sub(before.failed),
        slowest: Nanos(now.slowest_write_ns).as_secs_f64(),
        free_bytes: is_known.then_some(now.free_bytes),
        size_bytes: is_known.then_some(now.size_bytes),
        is_nearly_full: now.is_nearly_full(),
        ..DiskLine::default()
    }
}

impl DiskLine {
    fn sentence(&self) -> Option<String> {
        let name = &self.name;
        if let Some(dropped) = self.dropped.filter(|dropped| *dropped > 0) {
            let lines = counted(dropped, "line");
            return Some(format!(
                "The {name} lost {lines} in the last minute: its disk or its reader is too slow."
            ));
        }
        if self.failed > 0 && self.dropped.is_none() {
            let writes = counted(self.failed, "write");
            return Some(format!(
                "{writes} to the {name} failed in the last minute: the error log says why."
            ));
        }
        let (free, size) = self.free_bytes.zip(self.size_bytes)?;
        self.is_nearly_full.then(|| {
            format!(
                "The {name} has {} of {} free: uploads that do not fit get 507.",
                bytes(free as f64),
                bytes(size as f64)
            )
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ipc::{GroupThrottling, PressureStatus};
    use telemetry::counters::{UpstreamFigures, UpstreamResultCounts};

    fn server(answered: u64, failed: u64, took_ms: u64) -> UpstreamSnapshot {
        UpstreamSnapshot {
            upstream: "api".to_owned(),
            server: "10.0.0.1:80".to_owned(),
            figures: UpstreamFigures {
                in_flight: 2,
                slots: 8,
                response_ns: Nanos::from_ms(took_ms).0,
                ejected: u64::from(failed > 3),
                ..UpstreamFigures::default()
            },
            results: UpstreamResultCounts {
                answered,
                connect: failed,
                full: 70,
                ..UpstreamResultCounts::default()
            },
        }
    }

    fn sample(server: UpstreamSnapshot, dropped: u64) -> LiveSample {
        LiveSample {
            upstreams: vec![server],
            logs: vec![LogSnapshot {
                log: "access".to_owned(),
                figures: LogFigures {
                    lines: 10 * dropped,
                    dropped,
                    ..LogFigures::default()
                },
            }],
            ..LiveSample::default()
        }
    }

    #[test]
    fn lines_are_of_the_last_minute() {
        let mut window = HealthWindow::default();
        assert_eq!(window.lines(), HealthLines::default());
        for second in 0..100_u64 {
            window.observe(&sample(server(second * 3, 0, second * 60), second / 50));
        }
        let lines = window.lines();
        let upstream = &lines.upstreams[0];
        assert_eq!((upstream.requests, upstream.failed), (180, 0));
        assert_eq!(upstream.latency, Some(0.02));
        assert_eq!((upstream.in_flight, upstream.limit), (2, 8));
        assert_eq!(lines.disks[0].lines, Some(10));
        window.forget();
        window.observe(&sample(server(9, 0, 9), 0));
        assert_eq!(window.lines().upstreams[0].requests, 0);
    }

    #[test]
    fn servers_that_get_nothing_and_lost_lines_have_sentences() {
        let mut window = HealthWindow::default();
        window.observe(&sample(server(0, 0, 0), 0));
        assert_eq!(window.sentences(), [""; 0]);
        let mut later = sample(server(0, 4, 0), 12);
        later.spool = SpoolFigures {
            free_bytes: 1 << 30,
            size_bytes: 100 << 30,
            ..SpoolFigures::default()
        };
        later.host.last_stall = Some(StallStatus {
            text: "the machine stood still for 1.5 s: programs waited 1.2 s for memory".to_owned(),
            age_s: 12,
        });
        window.observe(&later);
        let expect = [
            "12 s ago the machine stood still for 1.5 s: programs waited 1.2 s for memory.",
            "Server `10.0.0.1:80` of upstream `api` gets no requests for a while, because requests have failed there.",
            "The access log lost 12 lines in the last minute: its disk or its reader is too slow.",
            "The spool folder has 1 GB of 100 GB free: uploads that do not fit get 507.",
        ];
        assert_eq!(window.sentences(), expect);
    }

    #[test]
    fn the_machine_is_what_the_kernel_says() {
        let host = |periods, throttled_periods, drops| HostStatus {
            pressure: vec![PressureStatus {
                resource: "memory".to_owned(),
                some_percent: 12.5,
                ..PressureStatus::default()
            }],
            throttling: Some(GroupThrottling {
                periods,
                throttled_periods,
                throttled_us: 0,
            }),
            listen_drops: drops,
            ..HostStatus::default()
        };
        let (before, now) = (host(10, 1, Some(3)), host(30, 6, Some(5)));
        let line = HostLine::of(&now, &before);
        assert_eq!(
            (line.pressure_memory, line.pressure_io),
            (Some(0.125), None)
        );
        assert_eq!((line.throttled, line.dropped), (Some(0.25), Some(2)));
        let none = HostStatus::default();
        assert_eq!(HostLine::of(&none, &none), HostLine::default());
    }
}
