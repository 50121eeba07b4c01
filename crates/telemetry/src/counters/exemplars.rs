//! Exemplars: of each bucket of a series the trace of a request that was counted in it a short time ago.
//!
//! Only requests whose spans are recorded have one, so that who follows it finds them. They lie in memory that processes
//! share, as all counters do. Writers never wait: a place that another thread writes at this moment is left to it.

use std::sync::atomic::{AtomicU64, Ordering, fence};

use serde::{Deserialize, Serialize};

use crate::{Nanos, TraceContext};

/// A place is written again after this time, so that all threads together write it once a second.
const AGE_MIN_MS: u64 = 1_000;
/// How often a reader tries again when a place changes under it.
const TRIES: usize = 3;

/// The trace of one request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Exemplar {
    /// Number of its bucket among those of the series.
    pub(super) bucket: usize,
    /// The id of its trace, as two numbers.
    trace: [u64; 2],
    span: u64,
    /// Its duration, in nanoseconds.
    value_ns: u64,
    /// Its end, in milliseconds since 1970.
    unix_ms: u64,
}

/// Where the exemplar of one bucket is, in memory.
#[derive(Default)]
#[repr(C, align(64))]
pub(super) struct ExemplarPlace {
    /// Odd while a thread writes; 0: there is none.
    version: AtomicU64,
    numbers: [AtomicU64; 5],
}

impl Exemplar {
    /// Of a request in this trace, which took so long and has ended at this time; its bucket is found when it is counted.
    pub fn new(trace: &TraceContext, took: Nanos, unix_ms: u64) -> Exemplar {
        let (trace, span) = trace.numbers();
        Exemplar {
            bucket: 0,
            trace,
            span,
            value_ns: took.0,
            unix_ms,
        }
    }

    /// The id of the trace, 32 hexadecimal digits.
    pub(super) fn trace_id(&self) -> String {
        let [high, low] = self.trace;
        format!("{high:016x}{low:016x}")
    }

    /// The id of the span, 16 hexadecimal digits.
    pub(super) fn span_id(&self) -> String {
        format!("{:016x}", self.span)
    }

    pub(super) fn value(&self) -> Nanos {
        Nanos(self.value_ns)
    }

    pub(super) fn unix_ms(&self) -> u64 {
        self.unix_ms
    }
}

impl ExemplarPlace {
    /// Writes it, unless the one that is there is new, or another thread writes.
    pub(super) fn write(&self, exemplar: &Exemplar) {
        let [.., at] = &self.numbers;
        let version = self.version.load(Ordering::Relaxed);
        let is_new =
            version > 0 && exemplar.unix_ms.abs_diff(at.load(Ordering::Relaxed)) < AGE_MIN_MS;
        if is_new || !version.is_multiple_of(2) {
            return;
        }
        let (order, other) = (Ordering::Acquire, Ordering::Relaxed);
        let begun = self
            .version
            .compare_exchange(version, version + 1, order, other);
        if begun.is_err() {
            return;
        }
        // Whoever reads one of the numbers sees the odd version behind it.
        fence(Ordering::Release);
        let [high, low] = exemplar.trace;
        let numbers = [
            high,
            low,
            exemplar.span,
            exemplar.value_ns,
            exemplar.unix_ms,
        ];
        for (place, number) in self.numbers.iter().zip(numbers) {
            place.store(number, Ordering::Relaxed);
        }
        self.version
            .store(version.wrapping_add(2), Ordering::Release);
    }

    /// What is there, as that of this bucket; `None` also where a thread writes, or a process has died while it wrote.
    pub(super) fn read(&self, bucket: usize) -> Option<Exemplar> {
        for _ in 0..TRIES {
            let version = self.version.load(Ordering::Acquire);
            if version == 0 {
                return None;
            }
            let numbers = self.numbers.each_ref();
            let [high, low, span, value_ns, unix_ms] =
                numbers.map(|number| number.load(Ordering::Relaxed));
            fence(Ordering::Acquire);
            if version.is_multiple_of(2) && self.version.load(Ordering::Relaxed) == version {
                return Some(Exemplar {
                    bucket,
                    trace: [high, low],
                    span,
                    value_ns,
                    unix_ms,
                });
            }
        }
        None
    }
}

/// Keeps the newest one of each bucket. They are in the order of their buckets.
pub(super) fn keep_newest(kept: &mut Vec<Exemplar>, other: Exemplar) {
    match kept.binary_search_by_key(&other.bucket, |one| one.bucket) {
        Ok(place) if kept[place].unix_ms < other.unix_ms => kept[place] = other,
        Ok(_) => {}
        Err(place) => kept.insert(place, other),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// All numbers of it are the same.
    fn made(number: u64) -> Exemplar {
        Exemplar {
            bucket: 3,
            trace: [number; 2],
            span: number,
            value_ns: number,
            unix_ms: number,
        }
    }

    #[test]
    fn a_place_is_written_once_a_second() {
        let place = ExemplarPlace::default();
        assert_eq!(place.read(3), None);
        for (number, expect) in [
            (5_000, 5_000),
            (5_999, 5_000),
            (6_000, 6_000),
            (1_000, 1_000),
        ] {
            place.write(&made(number));
            assert_eq!(place.read(3), Some(made(expect)));
        }
    }

    #[test]
    fn a_place_whose_writer_has_died_is_left_alone() {
        let place = ExemplarPlace::default();
        place.write(&made(1));
        place.version.fetch_add(1, Ordering::Relaxed);
        assert_eq!(place.read(3), None);
        place.write(&made(9_000));
        assert_eq!(place.read(3), None);
    }

    #[test]
    fn a_reader_never_sees_parts_of_two() {
        let place = ExemplarPlace::default();
        std::thread::scope(|scope| {
            for thread in 1..=2_u64 {
                let place = &place;
                scope.spawn(move || {
                    for round in 1..=50_000 {
                        place.write(&made((2 * round + thread) * AGE_MIN_MS));
                    }
                });
            }
            let mut seen = 0;
            while seen < 10_000 {
                if let Some(found) = place.read(3) {
                    assert_eq!(found, made(found.span));
                    seen += 1;
                }
            }
        });
    }

    #[test]
    fn the_newest_of_a_bucket_is_kept() {
        let mut kept = Vec::new();
        for (bucket, number) in [(2, 5), (0, 1), (2, 4), (1, 3), (2, 6)] {
            let one = Exemplar {
                bucket,
                ..made(number)
            };
            keep_newest(&mut kept, one);
        }
        let found: Vec<_> = kept.iter().map(|one| (one.bucket, one.span)).collect();
        assert_eq!(found, [(0, 1), (1, 3), (2, 6)]);
    }
}
