//! Requests as a log has recorded them: when, and which.
//!
//! Takes one request after another in the order of the log, gives kinds and arrivals in the order of time.
//! A kind is a method and a target; each is kept once.

use std::sync::Arc;

use indexmap::{IndexMap, IndexSet};
use present::thousands;
use telemetry::Nanos;

use super::requests::is_safe;
use crate::engine::Fault;
use crate::plan::Arrival;

/// Most different requests: each is held as bytes, twice.
const KINDS_LEN_MAX: usize = 1_000_000;
/// Most requests: 16 bytes each.
const ARRIVALS_LEN_MAX: usize = 100_000_000;

/// Requests as they were recorded.
#[derive(Clone, Debug, Default)]
pub struct Recording {
    /// Methods and targets, in the order in which they were first met.
    kinds: IndexSet<(String, String)>,
    /// Since 1970, in the order of the log.
    arrivals: Vec<Arrival>,
}

impl Recording {
    /// Takes the next request of the log. `unix` is when it began, since 1970; requests of the same time
    /// stay in their order.
    ///
    /// # Errors
    /// It would hold more than it may; the recording is as it was. The text says of what there are too many.
    pub fn push(&mut self, unix: Nanos, method: &str, target: &str) -> Result<(), String> {
        self.push_within(unix, method, target, (KINDS_LEN_MAX, ARRIVALS_LEN_MAX))
    }

    fn push_within(
        &mut self,
        unix: Nanos,
        method: &str,
        target: &str,
        (kinds_len_max, arrivals_len_max): (usize, usize),
    ) -> Result<(), String> {
        if self.arrivals.len() >= arrivals_len_max {
            return Err(format!("{} requests", thousands(arrivals_len_max as u64)));
        }
        let name = (method.to_owned(), target.to_owned());
        // A request that has come before takes no more memory for its kind.
        if self.kinds.len() >= kinds_len_max && !self.kinds.contains(&name) {
            let len_max = thousands(kinds_len_max as u64);
            return Err(format!("{len_max} different requests"));
        }
        let (kind, _) = self.kinds.insert_full(name);
        self.arrivals.push(Arrival {
            offset: unix,
            kind: kind as u32,
        });
        Ok(())
    }

    /// How many requests.
    pub fn len(&self) -> usize {
        self.arrivals.len()
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.arrivals.is_empty()
    }

    /// Most hours in a row without a request, between others.
    pub fn silence_hours(&mut self) -> u64 {
        // A clock that was set makes a recording that sends nothing for years.
        self.arrivals.sort_by_key(|arrival| arrival.offset);
        let arrivals = self.arrivals.iter();
        let hours = arrivals.map(|arrival| arrival.offset.0 / HOUR_NS);
        let pairs = hours.clone().zip(hours.skip(1));
        let silences = pairs.map(|(one, next)| (next - one).saturating_sub(1));
        silences.max().unwrap_or(0)
    }

    /// Methods and targets, in the order in which they were first met.
    pub(super) fn kinds(&self) -> &IndexSet<(String, String)> {
        &self.kinds
    }

    /// Why not all of it is sent without being asked; `None`: it may be.
    pub(super) fn unsafe_methods(&self) -> Option<Fault> {
        let mut counts: IndexMap<&str, usize> = IndexMap::new();
        for arrival in &self.arrivals {
            let (method, _) = &self.kinds[arrival.kind as usize];
            if !is_safe(method) {
                *counts.entry(method).or_default() += 1;
            }
        }
        // A log of attacks has any number of made-up methods.
        let counts = counts.iter().take(8);
        let said = counts.map(|(method, count)| format!("{count} {method}"));
        let said = said.collect::<Vec<_>>().join(", ");
        let text = format!("`--replay`: requests that may change something: {said}");
        let hint = "`--replay-methods all` sends them with the body of `--body`, or an empty one";
        (!said.is_empty()).then(|| Fault::with_hint(text, hint))
    }

    /// When each is due, `speed` times as fast as it was recorded, the first one at once.
    pub(super) fn arrivals(mut self, speed: f64) -> Arc<[Arrival]> {
        self.arrivals.sort_by_key(|arrival| arrival.offset);
        spread(&mut self.arrivals);
        assert!(
            self.arrivals.is_sorted_by_key(|arrival| arrival.offset),
            "requests of a second stay within it"
        );
        let first = self.arrivals.first().map_or(0, |arrival| arrival.offset.0);
        for arrival in &mut self.arrivals {
            let since = (arrival.offset.0 - first) as f64;
            arrival.offset = Nanos((since / speed).round() as u64);
        }
        self.arrivals.into()
    }
}

const SECOND_NS: u64 = 1_000_000_000;
const HOUR_NS: u64 = 3_600 * SECOND_NS;

fn spread(arrivals: &mut [Arrival]) {
    // Where a log has whole seconds only, those of a second are spread over it: clients do not wait for a clock to
    // strike.
    let is_whole = |arrival: &Arrival| arrival.offset.0.is_multiple_of(SECOND_NS);
    if !arrivals.iter().all(is_whole) {
        return;
    }
    for same in arrivals.chunk_by_mut(|one, other| one.offset == other.offset) {
        let len = same.len() as u64;
        for (at, arrival) in same.iter_mut().enumerate() {
            // Below a second, and far below 2^64: at most 10^8 requests.
            arrival.offset.0 += at as u64 * SECOND_NS / len;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn recording(requests: &[(u64, &str, &str)]) -> Recording {
        let mut recording = Recording::default();
        for (ms, method, target) in requests {
            recording.push(Nanos::from_ms(*ms), method, target).unwrap();
        }
        recording
    }

    fn due(recording: Recording, speed: f64) -> Vec<(u64, u32)> {
        let arrivals = recording.arrivals(speed);
        arrivals
            .iter()
            .map(|arrival| (arrival.offset.0 / 1_000_000, arrival.kind))
            .collect()
    }

    #[test]
    fn keeps_each_kind_once_and_orders_by_time() {
        let log = [
            (1500, "GET", "/a"),
            (1001, "GET", "/b"),
            (1500, "HEAD", "/a"),
            (2000, "GET", "/a"),
        ];
        let recording = recording(&log);
        assert_eq!(recording.kinds().len(), 3);
        assert_eq!(
            due(recording.clone(), 1.0),
            [(0, 1), (499, 0), (499, 2), (999, 0)]
        );
        assert_eq!(due(recording, 10.0), [(0, 1), (49, 0), (49, 2), (99, 0)]);
    }

    #[test]
    fn spreads_whole_seconds() {
        let log = [
            (2000, "GET", "/a"),
            (1000, "GET", "/b"),
            (1000, "GET", "/a"),
            (4000, "GET", "/a"),
        ];
        assert_eq!(
            due(recording(&log), 1.0),
            [(0, 1), (500, 0), (1000, 0), (3000, 0)]
        );
        assert_eq!(
            due(recording(&log), 0.5),
            [(0, 1), (1000, 0), (2000, 0), (6000, 0)]
        );
    }

    #[test]
    fn names_methods_that_may_change_something() {
        let log = [
            (0, "POST", "/a"),
            (1, "GET", "/"),
            (2, "DELETE", "/a"),
            (3, "POST", "/b"),
        ];
        let fault = recording(&log).unsafe_methods().unwrap();
        assert_eq!(
            fault.text,
            "`--replay`: requests that may change something: 2 POST, 1 DELETE"
        );
        let safe = [(0, "GET", "/"), (1, "HEAD", "/"), (2, "OPTIONS", "*")];
        assert_eq!(recording(&safe).unsafe_methods(), None);
    }

    #[test]
    fn holds_no_more_than_it_may() {
        let mut recording = Recording::default();
        let mut push = |target| recording.push_within(Nanos::ZERO, "GET", target, (2, 4));
        assert_eq!((push("/0"), push("/1")), (Ok(()), Ok(())));
        assert_eq!(push("/new"), Err("2 different requests".to_owned()));
        assert_eq!((push("/1"), push("/0")), (Ok(()), Ok(())));
        assert_eq!(push("/0"), Err("4 requests".to_owned()));
        assert_eq!(recording.len(), 4);
    }
}
