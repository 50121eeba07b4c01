//! The results: requests, the lost ones by class, and latencies, as one line of JSON. Latencies count
//! from the time at which a request was due; those of lost requests are not among them. Times of faults are
//! those of the machine's monotonic clock, so that each loss can be attributed to an operation on the server.

use std::collections::BTreeMap;
use std::time::Duration;

use crate::plan::Kind;

/// Lost requests that are listed one by one; beyond, they are counted only.
const FAULTS_LEN_MAX: usize = 20_000;
const STEPS_BITS: u32 = 7;
const STEPS: usize = 1 << STEPS_BITS;

/// How a request was lost, or what else happened to a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Class {
    /// No connection: the port is closed.
    ConnectRefused,
    /// No connection: reset while it was made.
    ConnectReset,
    /// No connection in time.
    ConnectTimeout,
    /// No connection, for another reason.
    ConnectOther,
    /// Due on a kept connection that the server had ended without a word.
    Stale,
    /// Sent, then reset before the first byte of a reply.
    Reset,
    /// Sent, then closed before the first byte of a reply.
    Closed,
    /// The connection ended within the reply.
    Short,
    /// Sent, not answered in time.
    Timeout,
    /// Answered with something else than the right reply.
    Wrong,
}

impl Class {
    fn name(self) -> &'static str {
        match self {
            Class::ConnectRefused => "connect_refused",
            Class::ConnectReset => "connect_reset",
            Class::ConnectTimeout => "connect_timeout",
            Class::ConnectOther => "connect_other",
            Class::Stale => "stale",
            Class::Reset => "reset",
            Class::Closed => "closed",
            Class::Short => "short",
            Class::Timeout => "timeout",
            Class::Wrong => "wrong",
        }
    }
}

/// One lost request. Times are seconds of the monotonic clock; `pid` is the process that answered on the
/// connection before, 0 where none did.
pub struct Fault {
    pub kind: Kind,
    pub class: Class,
    pub began_s: f64,
    pub ended_s: f64,
    pub pid: u32,
}

/// The results of one kind of callers.
#[derive(Default)]
pub struct Counts {
    pub answered: u64,
    pub connections: u64,
    /// Requests that were due, and found no free client until all was over.
    pub unsent: u64,
    /// Connections that did not end in order after their whole last reply.
    pub ended_badly: u64,
    pub lost: BTreeMap<Class, u64>,
    pub latencies: Latencies,
}

/// The results of all callers.
#[derive(Default)]
pub struct Results {
    pub short: Counts,
    pub keep: Counts,
    /// Replies of each process.
    pub pids: BTreeMap<u32, u64>,
    faults: Vec<Fault>,
}

impl Results {
    pub fn of(&mut self, kind: Kind) -> &mut Counts {
        match kind {
            Kind::Short => &mut self.short,
            Kind::Keep => &mut self.keep,
        }
    }

    pub fn lose(&mut self, fault: Fault) {
        *self.of(fault.kind).lost.entry(fault.class).or_default() += 1;
        if self.faults.len() < FAULTS_LEN_MAX {
            self.faults.push(fault);
        }
    }

    /// The line; with every fault only when all is over.
    pub fn line(&self, seconds: f64, with_faults: WithFaults) -> String {
        let pids = self
            .pids
            .iter()
            .map(|(pid, count)| format!("\"{pid}\": {count}"));
        let faults: Vec<String> = match with_faults {
            WithFaults::Yes => self.faults.iter().map(fault_line).collect(),
            WithFaults::No => Vec::new(),
        };
        format!(
            "{{\"seconds\": {seconds:.3}, \"short\": {}, \"keep\": {}, \"pids\": {{{}}}, \"faults\": [{}]}}",
            self.short.line(),
            self.keep.line(),
            pids.collect::<Vec<_>>().join(", "),
            faults.join(", ")
        )
    }
}

/// Whether each fault is listed.
#[derive(Clone, Copy)]
pub enum WithFaults {
    Yes,
    No,
}

impl Counts {
    fn line(&self) -> String {
        let lost: u64 = self.lost.values().sum();
        let classes = self
            .lost
            .iter()
            .map(|(class, count)| format!("\"{}\": {count}", class.name()));
        format!(
            "{{\"answered\": {}, \"lost\": {lost}, \"connections\": {}, \"unsent\": {}, \
             \"ended_badly\": {}, \"classes\": {{{}}}, {}}}",
            self.answered,
            self.connections,
            self.unsent,
            self.ended_badly,
            classes.collect::<Vec<_>>().join(", "),
            self.latencies.line()
        )
    }
}

fn fault_line(fault: &Fault) -> String {
    format!(
        "{{\"kind\": \"{}\", \"class\": \"{}\", \"began_s\": {:.6}, \"ended_s\": {:.6}, \"pid\": {}}}",
        fault.kind.name(),
        fault.class.name(),
        fault.began_s,
        fault.ended_s,
        fault.pid
    )
}

/// Microseconds in steps of less than a hundredth.
#[derive(Default)]
pub struct Latencies {
    counts: Vec<u64>,
    most_us: u64,
}

impl Latencies {
    pub fn add(&mut self, latency: Duration) {
        let us = u64::try_from(latency.as_micros()).unwrap_or(u64::MAX);
        let place = place_of(us);
        if place >= self.counts.len() {
            self.counts.resize(place + 1, 0);
        }
        self.counts[place] += 1;
        self.most_us = self.most_us.max(us);
    }

    fn percentile_us(&self, share: f64) -> u64 {
        let all: u64 = self.counts.iter().sum();
        let rank = ((all as f64 * share).ceil() as u64).max(1);
        let mut seen = 0;
        for (place, count) in self.counts.iter().enumerate() {
            seen += count;
            if seen >= rank {
                return greatest_us(place).min(self.most_us);
            }
        }
        0
    }

    fn line(&self) -> String {
        [
            ("p50", 0.5),
            ("p90", 0.9),
            ("p99", 0.99),
            ("p999", 0.999),
            ("max", 1.0),
        ]
        .map(|(name, share)| format!("\"{name}_us\": {}", self.percentile_us(share)))
        .join(", ")
    }
}

fn place_of(us: u64) -> usize {
    let exponent = (u64::BITS - us.leading_zeros()).saturating_sub(STEPS_BITS + 1);
    exponent as usize * STEPS + (us >> exponent) as usize
}

fn greatest_us(place: usize) -> u64 {
    let exponent = (place / STEPS).saturating_sub(1);
    let steps = (place - exponent * STEPS) as u64;
    ((steps + 1) << exponent) - 1
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_and_their_bounds_agree() {
        let mut last = 0;
        for us in (0..4096).chain((12..40).map(|bits| (1 << bits) - 1)) {
            let place = place_of(us);
            assert!(place >= last, "{us}");
            assert!(greatest_us(place) >= us, "{us}");
            assert!(
                greatest_us(place) <= us + us / 64,
                "{us} {}",
                greatest_us(place)
            );
            last = place;
        }
    }

    #[test]
    fn percentiles_are_those_of_the_values() {
        let mut latencies = Latencies::default();
        for us in 1..=1000 {
            latencies.add(Duration::from_micros(us));
        }
        let found = [0.5, 0.99, 1.0].map(|share| latencies.percentile_us(share));
        assert!((500..=508).contains(&found[0]), "{found:?}");
        assert!((990..=1000).contains(&found[1]), "{found:?}");
        assert_eq!(found[2], 1000);
        assert_eq!(Latencies::default().percentile_us(0.5), 0);
    }
}
