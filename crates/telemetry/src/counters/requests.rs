//! How long requests took, by their method, scheme and status: what OpenTelemetry's HTTP conventions call
//! `http.server.request.duration`.
//!
//! Clients choose methods, and applications statuses, so that the number of series must be bounded where they are
//! counted: a route has room for fifteen in each process, first come, first served, and one more for all others. Each is
//! counted in the buckets of the conventions, whose bounds are exact, and as a distribution.

use std::hint::black_box;
use std::sync::atomic::{AtomicU64, Ordering};

use serde::{Deserialize, Serialize};

use super::exemplars::{ExemplarPlace, keep_newest};
use super::{Distribution, Exemplar};
use crate::{Histogram, Nanos};

/// Series of a route in a process that have labels of their own.
const SERIES_LEN: usize = 15;
/// Bounds of buckets, and one bucket for what is above all of them.
const BUCKETS_LEN: usize = DURATION_BOUNDS.len() + 1;

/// Upper bounds of buckets by the conventions: in microseconds, and as text in seconds.
pub(super) const DURATION_BOUNDS: [(u64, &str); 14] = [
    (5_000, "0.005"),
    (10_000, "0.01"),
    (25_000, "0.025"),
    (50_000, "0.05"),
    (75_000, "0.075"),
    (100_000, "0.1"),
    (250_000, "0.25"),
    (500_000, "0.5"),
    (750_000, "0.75"),
    (1_000_000, "1"),
    (2_500_000, "2.5"),
    (5_000_000, "5"),
    (7_500_000, "7.5"),
    (10_000_000, "10"),
];

/// The methods that the conventions know; all others are one.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Serialize, Deserialize)]
#[serde(rename_all = "UPPERCASE")]
#[expect(missing_docs, reason = "their names say it")]
pub enum KnownMethod {
    Get,
    Head,
    Post,
    Put,
    Delete,
    Connect,
    Options,
    Trace,
    Patch,
    Query,
    /// Any other, and that of a request whose head is not known.
    #[serde(rename = "_OTHER")]
    Other,
}

/// What tells the series of a route apart.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Serialize, Deserialize)]
pub struct RequestLabels {
    /// Its method.
    pub method: KnownMethod,
    /// Its client sees HTTPS.
    pub is_https: bool,
    /// Status of its response; 0: there was none.
    pub status: u16,
}

/// Series of one route in one process, in memory.
#[derive(Default)]
#[repr(C)]
pub(super) struct RequestCounters {
    /// Labels of the series, as a number; 0: none has this place.
    keys: [AtomicU64; SERIES_LEN],
    /// Not 0: there are exemplars.
    has_exemplars: AtomicU64,
    /// The last one is that of all other labels.
    series: [SeriesCounters; SERIES_LEN + 1],
    /// Of each series, behind all that every scrape reads.
    durations: [Histogram; SERIES_LEN + 1],
    /// Of each bucket of each series; nothing reads them where traces are off.
    exemplars: [[ExemplarPlace; BUCKETS_LEN]; SERIES_LEN + 1],
}

#[derive(Default)]
#[repr(C, align(64))]
struct SeriesCounters {
    counts: [AtomicU64; BUCKETS_LEN],
}

/// One series of a route.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RequestSeries {
    /// `None`: requests of all labels for which there was no place.
    pub labels: Option<RequestLabels>,
    /// Requests in each bucket of the conventions, not in those before it.
    pub counts: [u64; BUCKETS_LEN],
    /// How long they took.
    pub durations: Distribution,
    /// In the order of their buckets.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(super) exemplars: Vec<Exemplar>,
}

impl KnownMethod {
    const ALL: [(KnownMethod, &str); 11] = [
        (KnownMethod::Get, "GET"),
        (KnownMethod::Head, "HEAD"),
        (KnownMethod::Post, "POST"),
        (KnownMethod::Put, "PUT"),
        (KnownMethod::Delete, "DELETE"),
        (KnownMethod::Connect, "CONNECT"),
        (KnownMethod::Options, "OPTIONS"),
        (KnownMethod::Trace, "TRACE"),
        (KnownMethod::Patch, "PATCH"),
        (KnownMethod::Query, "QUERY"),
        (KnownMethod::Other, "_OTHER"),
    ];

    /// That of a request line.
    pub fn of(method: &[u8]) -> KnownMethod {
        let mut all = KnownMethod::ALL.iter();
        let found = all.find(|(_, name)| name.as_bytes() == method);
        found.map_or(KnownMethod::Other, |(known, _)| *known)
    }

    /// As it stands in metrics.
    pub fn name(self) -> &'static str {
        KnownMethod::ALL[self as usize].1
    }
}

impl RequestLabels {
    /// As a number that is not 0.
    fn key(self) -> u64 {
        1 << 32
            | (self.method as u64) << 17
            | u64::from(self.is_https) << 16
            | u64::from(self.status)
    }

    /// Those of such a number; memory that others write may hold any.
    fn of_key(key: u64) -> RequestLabels {
        let method = KnownMethod::ALL.get((key as u32 >> 17) as usize);
        RequestLabels {
            method: method.map_or(KnownMethod::Other, |(known, _)| *known),
            is_https: key >> 16 & 1 == 1,
            status: key as u16,
        }
    }
}

impl RequestCounters {
    /// Counts a request, from any thread: a search among the few series that the route has, and three atomic additions.
    pub(super) fn record(&self, labels: RequestLabels, took: Nanos) {
        let place = self.place(labels.key());
        let series = &self.series[place];
        self.durations[place].record(took);
        series.counts[bucket_of(took)].fetch_add(1, Ordering::Relaxed);
    }

    /// Keeps the trace of a request that was recorded with these labels, as that of its bucket.
    pub(super) fn record_exemplar(&self, labels: RequestLabels, exemplar: Exemplar) {
        let place = self.place(labels.key());
        self.exemplars[place][bucket_of(exemplar.value())].write(&exemplar);
        self.has_exemplars.store(1, Ordering::Relaxed);
    }

    fn place(&self, key: u64) -> usize {
        for (place, known) in self.keys.iter().enumerate() {
            let mut found = known.load(Ordering::Relaxed);
            if found == 0 {
                // Of two threads that want the same place, one gets it, and the other sees whose it is.
                let claimed = known.compare_exchange(0, key, Ordering::Relaxed, Ordering::Relaxed);
                found = claimed.err().unwrap_or(key);
            }
            if found == key {
                return place;
            }
        }
        SERIES_LEN
    }

    /// Has the processor fetch what it needs to find the counts of the first series, which most routes have alone.
    pub(super) fn prefetch_heads(&self) {
        black_box(self.keys[0].load(Ordering::Relaxed));
        // Each has two cache lines of counts.
        for count in self.series[0].counts.iter().step_by(8) {
            black_box(count.load(Ordering::Relaxed));
        }
        self.durations[0].prefetch_heads();
    }

    /// Has the processor fetch the counts of the first series.
    pub(super) fn prefetch_counts(&self) {
        self.durations[0].prefetch_counts();
    }

    /// Adds all series to those of the same labels.
    pub(super) fn add_to(&self, sum: &mut Vec<RequestSeries>) {
        for (place, key) in self.keys.iter().enumerate() {
            let key = key.load(Ordering::Relaxed);
            // Places are taken in their order: a scrape of many routes does not read the memory of those behind.
            if key == 0 {
                return;
            }
            self.add_series_to(place, Some(RequestLabels::of_key(key)), sum);
        }
        self.add_series_to(SERIES_LEN, None, sum);
    }

    fn add_series_to(
        &self,
        place: usize,
        labels: Option<RequestLabels>,
        sum: &mut Vec<RequestSeries>,
    ) {
        let counts = self.series[place].counts.each_ref();
        let counts = counts.map(|count| count.load(Ordering::Relaxed));
        // A place that was taken a moment ago has none yet.
        if counts.iter().any(|count| *count > 0) {
            let series = series_of(sum, labels);
            series.add_counts(&counts);
            self.durations[place].add_to([&mut series.durations.0]);
            if self.has_exemplars.load(Ordering::Relaxed) != 0 {
                let places = self.exemplars[place].iter().enumerate().zip(&counts);
                // Only of buckets that have counts.
                for ((bucket, place), _) in places.filter(|(_, count)| **count > 0) {
                    let found = place.read(bucket);
                    found
                        .into_iter()
                        .for_each(|one| keep_newest(&mut series.exemplars, one));
                }
            }
        }
    }
}

/// The bucket of the conventions that a duration belongs to.
fn bucket_of(took: Nanos) -> usize {
    let us = took.0.div_ceil(1_000);
    // Most requests are in the first bucket.
    let bucket = DURATION_BOUNDS.iter().position(|(bound, _)| us <= *bound);
    bucket.unwrap_or(BUCKETS_LEN - 1)
}

/// Adds series to those of the same labels.
pub(super) fn add_series(sum: &mut Vec<RequestSeries>, others: &[RequestSeries]) {
    for other in others {
        let series = series_of(sum, other.labels);
        series.add_counts(&other.counts);
        series.durations.0.merge(&other.durations.0);
        for exemplar in &other.exemplars {
            keep_newest(&mut series.exemplars, *exemplar);
        }
    }
}

/// The series with these labels, which is begun where there is none. They are in the order of their labels.
fn series_of(sum: &mut Vec<RequestSeries>, labels: Option<RequestLabels>) -> &mut RequestSeries {
    let place = sum.binary_search_by_key(&labels, |series| series.labels);
    let place = place.unwrap_or_else(|place| {
        let series = RequestSeries {
            labels,
            counts: [0; BUCKETS_LEN],
            durations: Distribution::default(),
            exemplars: Vec::new(),
        };
        sum.insert(place, series);
        place
    });
    &mut sum[place]
}

impl RequestSeries {
    fn add_counts(&mut self, counts: &[u64; BUCKETS_LEN]) {
        for (ours, more) in self.counts.iter_mut().zip(counts) {
            *ours = ours.saturating_add(*more);
        }
    }

    /// The one of this bucket.
    pub(super) fn exemplar(&self, bucket: usize) -> Option<&Exemplar> {
        let place = (self.exemplars).binary_search_by_key(&bucket, |exemplar| exemplar.bucket);
        place.ok().map(|place| &self.exemplars[place])
    }

    /// Requests of the series.
    pub fn len(&self) -> u64 {
        self.counts.iter().copied().fold(0, u64::saturating_add)
    }

    /// Whether it has none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn labels(method: &[u8], status: u16) -> RequestLabels {
        RequestLabels {
            method: KnownMethod::of(method),
            is_https: status == 201,
            status,
        }
    }

    fn read(counters: &RequestCounters) -> Vec<RequestSeries> {
        let mut sum = Vec::new();
        counters.add_to(&mut sum);
        for series in &sum {
            assert_eq!(series.len(), series.durations.0.len());
        }
        sum
    }

    #[test]
    fn each_method_and_status_has_a_series() {
        let counters = RequestCounters::default();
        for (method, status, ms) in [
            (&b"GET"[..], 200, 1),
            (b"GET", 200, 5),
            (b"GET", 404, 6),
            (b"BREW", 418, 20_000),
            (b"get", 418, 20_000),
            (b"POST", 201, 1),
            (b"", 0, 1),
        ] {
            counters.record(labels(method, status), Nanos::from_ms(ms));
        }
        let found: Vec<_> = read(&counters)
            .iter()
            .map(|series| {
                let labels = series.labels.unwrap();
                let method = labels.method.name();
                (method, labels.is_https, labels.status, series.len())
            })
            .collect();
        let expect = [
            ("GET", false, 200, 2),
            ("GET", false, 404, 1),
            ("POST", true, 201, 1),
            ("_OTHER", false, 0, 1),
            ("_OTHER", false, 418, 2),
        ];
        assert_eq!(found, expect);
        let get = &read(&counters)[0];
        // A bound belongs to its bucket.
        assert_eq!(
            (get.counts[0], get.durations.0.sum()),
            (2, Nanos::from_ms(6))
        );
        assert_eq!(read(&counters)[4].counts[BUCKETS_LEN - 1], 2);
    }

    #[test]
    fn labels_without_a_place_are_counted_together() {
        let counters = RequestCounters::default();
        for status in 200..300 {
            counters.record(labels(b"GET", status), Nanos::from_ms(1));
            counters.record(labels(b"GET", 200), Nanos::from_ms(1));
        }
        let mut sum = read(&counters);
        assert_eq!(sum.len(), SERIES_LEN + 1);
        assert_eq!((sum[0].labels, sum[0].len()), (None, 85));
        assert_eq!(sum[1].len(), 101);
        let again = sum.clone();
        add_series(&mut sum, &again);
        assert_eq!((sum.len(), sum[1].len()), (SERIES_LEN + 1, 202));
    }

    #[test]
    fn threads_share_a_series() {
        let counters = RequestCounters::default();
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    for status in 200..220 {
                        for _ in 0..100 {
                            counters.record(labels(b"GET", status), Nanos(1));
                        }
                    }
                });
            }
        });
        let sum = read(&counters);
        assert_eq!(sum.len(), SERIES_LEN + 1);
        assert_eq!(sum.iter().map(RequestSeries::len).sum::<u64>(), 8_000);
        assert!(sum[1..].iter().all(|series| series.len() == 400));
    }

    #[test]
    fn keys_are_labels() {
        for (method, name) in KnownMethod::ALL {
            assert_eq!(method.name(), name);
            for (is_https, status) in [(false, 0), (true, 599), (true, u16::MAX)] {
                let labels = RequestLabels {
                    method,
                    is_https,
                    status,
                };
                assert_eq!(RequestLabels::of_key(labels.key()), labels);
            }
        }
        assert_eq!(RequestLabels::of_key(u64::MAX).method, KnownMethod::Other);
    }
}
