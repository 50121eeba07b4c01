//! What happens, told to a StatsD server once a second, by UDP: counts since the second before, and how things are. A zero
//! is told as well. Nothing waits for it: a datagram that cannot be sent is lost.

use std::fmt::Write;
use std::io;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket};

use config::failure::plain;
use config::typed::StatsdConfig;
use telemetry::Nanos;
use telemetry::counters::{RouteFigures, StatsSnapshot};
use telemetry::history::{HeldSecond, PoolSum};

use super::{Supervisor, say};

/// A datagram is to fit into one packet of most networks.
const DATAGRAM_BYTES_MAX: usize = 1_400;

/// The way to a StatsD server.
#[derive(Default)]
pub(super) struct Statsd {
    sender: Option<Sender>,
    /// What was counted when it was told last.
    before: Option<Counts>,
    /// That it cannot be reached was said.
    is_told: bool,
}

struct Sender {
    config: StatsdConfig,
    socket: UdpSocket,
}

/// What only grows.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Counts {
    /// Without a reply, then by the class of the status.
    requests: [u64; 6],
    crashes: u64,
}

/// What a second is told of, beside what is counted.
struct Moment<'m> {
    second: &'m HeldSecond,
    /// Their names, in the order of the second's pools.
    pools: &'m [String],
    workers: u64,
    connections: u64,
    backlog: u64,
}

impl Counts {
    const CLASSES: [&'static str; 6] = ["none", "1xx", "2xx", "3xx", "4xx", "5xx"];

    fn of(counted: &StatsSnapshot, crashes: u64) -> Counts {
        let mut counts = Counts {
            crashes,
            ..Counts::default()
        };
        for route in &counted.routes {
            let figures = classes(&route.figures);
            for (sum, more) in counts.requests.iter_mut().zip(figures) {
                *sum = sum.saturating_add(more);
            }
        }
        counts
    }
}

fn classes(figures: &RouteFigures) -> [u64; 6] {
    [
        figures.none,
        figures.informational,
        figures.successful,
        figures.redirection,
        figures.client_error,
        figures.server_error,
    ]
}

impl Statsd {
    /// Follows the configuration. A server that is new is told what happens from now on.
    fn keep(&mut self, wanted: &StatsdConfig) {
        if { self.sender.as_ref() }.is_some_and(|sender| sender.config == *wanted) {
            return;
        }
        self.sender = None;
        (self.before, self.is_told) = (None, false);
        let Some(address) = wanted.address else {
            return;
        };
        match connected(address) {
            Ok(socket) => {
                let config = wanted.clone();
                self.sender = Some(Sender { config, socket });
            }
            Err(error) => self.tell(&error, address),
        }
    }

    /// Once for each configuration: a server that comes and goes fills no log.
    fn tell(&mut self, error: &io::Error, address: SocketAddr) {
        if !std::mem::replace(&mut self.is_told, true) {
            say(&format!(
                "statsd: {address}: {}: metrics are lost until it is there",
                plain(error)
            ));
        }
    }

    fn send(&mut self, counts: Counts, moment: &Moment<'_>) {
        let before = self.before.replace(counts);
        let (Some(sender), Some(before)) = (&self.sender, before) else {
            return;
        };
        let address = sender.config.address;
        let texts = datagrams(&sender.config.prefix, &lines(&counts, &before, moment));
        let sent = { texts.iter() }.try_for_each(|text| sender.socket.send(text).map(drop));
        if let (Err(error), Some(address)) = (sent, address)
            && error.kind() != io::ErrorKind::WouldBlock
        {
            self.tell(&error, address);
        }
    }
}

fn connected(address: SocketAddr) -> io::Result<UdpSocket> {
    let socket = match address {
        SocketAddr::V4(_) => UdpSocket::bind((Ipv4Addr::UNSPECIFIED, 0)),
        SocketAddr::V6(_) => UdpSocket::bind((Ipv6Addr::UNSPECIFIED, 0)),
    }?;
    socket.set_nonblocking(true)?;
    socket.connect(address)?;
    Ok(socket)
}

/// All lines of a second, without the prefix.
fn lines(now: &Counts, before: &Counts, moment: &Moment<'_>) -> Vec<String> {
    let mut lines = Vec::new();
    let mut put = |name: &str, value: u64, kind: &str| lines.push(format!("{name}:{value}|{kind}"));
    let more = |now: u64, before: u64| now.saturating_sub(before);
    let classes = now.requests.iter().zip(before.requests);
    let classes: Vec<u64> = classes.map(|(now, before)| more(*now, before)).collect();
    put("requests", classes.iter().sum(), "c");
    for (name, count) in Counts::CLASSES.iter().zip(classes) {
        put(&format!("request.status.{name}"), count, "c");
    }
    put("crashes", more(now.crashes, before.crashes), "c");
    put("workers", moment.workers, "g");
    put("connections", moment.connections, "g");
    put("backlog", moment.backlog, "g");
    for (name, pool) in moment.pools.iter().zip(&moment.second.pools) {
        push_pool(&mut lines, &named(name), pool);
    }
    lines
}

fn push_pool(lines: &mut Vec<String>, name: &str, pool: &PoolSum) {
    let counts = [
        ("requests", pool.ended),
        ("failed", pool.failed),
        ("refused", pool.refused),
    ];
    let gauges = [
        ("running", pool.running),
        ("waiting", pool.waiting),
        ("threads", pool.threads),
    ];
    let spans = [
        ("duration.p50", pool.total[0]),
        ("duration.p99", pool.total[1]),
        ("queue.p50", pool.queue[0]),
        ("queue.p99", pool.queue[1]),
        ("run.p50", pool.run[0]),
        ("run.p99", pool.run[1]),
    ];
    let counts = counts.map(|(what, count)| format!("pool.{name}.{what}:{count}|c"));
    let gauges = gauges.map(|(what, value)| format!("pool.{name}.{what}:{value}|g"));
    let spans = spans.map(|(what, span)| format!("pool.{name}.{what}:{}|g", ms(span)));
    lines.extend(counts.into_iter().chain(gauges).chain(spans));
}

/// Milliseconds with microseconds.
fn ms(span: Nanos) -> String {
    format!("{}.{:03}", span.0 / 1_000_000, span.0 / 1_000 % 1_000)
}

/// A dot, a colon or a bar in a name would be another name.
fn named(name: &str) -> String {
    let fit = |letter: char| match letter.is_ascii_alphanumeric() || letter == '_' || letter == '-'
    {
        true => letter,
        false => '_',
    };
    name.chars().map(fit).collect()
}

/// As few datagrams as there may be; none ends within a line.
fn datagrams(prefix: &str, lines: &[String]) -> Vec<Vec<u8>> {
    let mut all: Vec<String> = Vec::new();
    for line in lines {
        let bytes = prefix.len() + 1 + line.len() + 1;
        match all.last_mut() {
            Some(last) if last.len() + bytes <= DATAGRAM_BYTES_MAX => last.push('\n'),
            _ => all.push(String::new()),
        }
        if let Some(last) = all.last_mut() {
            // Writing into memory does not fail.
            let _ = write!(last, "{prefix}.{line}");
        }
    }
    all.into_iter().map(String::into_bytes).collect()
}

impl Supervisor<'_> {
    /// Tells what has happened in a second that has ended.
    pub(super) fn tell_statsd(&mut self, second: &HeldSecond, pools: &[String]) {
        let Some(config) = self.serving().map(|serving| serving.config.statsd.clone()) else {
            return;
        };
        let mut statsd = std::mem::take(&mut self.statsd);
        statsd.keep(&config);
        if statsd.sender.is_some() {
            let counted = self.counted();
            let queues = self.sockets.addresses();
            let moment = Moment {
                second,
                pools,
                workers: self.ready_processes().count() as u64,
                connections: counted.all_drivers().open,
                backlog: queues.iter().filter_map(|one| one.accept_queue).sum(),
            };
            statsd.send(Counts::of(&counted, self.lifetime.crashes), &moment);
        }
        self.statsd = statsd;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn zeros_are_told_and_counts_are_those_of_the_second() {
        let counts = |requests, crashes| Counts { requests, crashes };
        let second = HeldSecond {
            pools: vec![PoolSum {
                ended: 3,
                waiting: 7,
                queue: [Nanos::ZERO, Nanos::from_us(1_250)],
                ..PoolSum::default()
            }],
            ..HeldSecond::default()
        };
        let moment = Moment {
            second: &second,
            pools: &["slow.reports".to_owned()],
            workers: 2,
            connections: 9,
            backlog: 0,
        };
        let before = counts([0, 0, 10, 0, 1, 0], 4);
        let lines = lines(&counts([0, 0, 12, 0, 1, 1], 4), &before, &moment);
        for line in [
            "requests:3|c",
            "request.status.2xx:2|c",
            "request.status.4xx:0|c",
            "request.status.5xx:1|c",
            "crashes:0|c",
            "workers:2|g",
            "backlog:0|g",
            "pool.slow_reports.requests:3|c",
            "pool.slow_reports.waiting:7|g",
            "pool.slow_reports.queue.p99:1.250|g",
        ] {
            assert!(lines.iter().any(|one| one == line), "{line} {lines:?}");
        }
    }

    #[test]
    fn datagrams_are_short_and_have_whole_lines() {
        let lines: Vec<String> = (0..500).map(|number| format!("a.b:{number}|c")).collect();
        let datagrams = datagrams("shop", &lines);
        let texts: Vec<String> = datagrams
            .iter()
            .map(|one| String::from_utf8(one.clone()).unwrap())
            .collect();
        assert!(texts.iter().all(|text| text.len() <= DATAGRAM_BYTES_MAX));
        let expect: Vec<String> = lines.iter().map(|line| format!("shop.{line}")).collect();
        let found: Vec<&str> = texts.iter().flat_map(|text| text.split('\n')).collect();
        assert_eq!(found, expect);
        assert!(texts.len() <= 8);
    }
}
