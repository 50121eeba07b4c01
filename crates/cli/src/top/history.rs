//! The last two minutes of a server: what happened between one sample and the next.
//!
//! Takes samples with the moments at which they came, gives rates and percentiles. Holds what is shown and no more: its
//! size is bounded by the routes that had requests within the last minute. Reads no clock.

use std::collections::VecDeque;

use telemetry::{Nanos, PerPhase, Snapshot, Stamp, nearest_rank};

use super::sample::{DurationCounts, RouteCounts, Sample};

/// Intervals that are kept: as many columns as a sparkline may have.
const INTERVALS_MAX: usize = 120;
/// Routes are shown by what they did within this time.
pub(super) const ROUTES_SPAN: Nanos = Nanos::from_secs(60);

/// What was seen of one server.
#[derive(Default)]
pub(super) struct History {
    /// The latest sample and the one before it.
    latest: Option<(Stamp, Box<Sample>)>,
    previous: Option<Box<Sample>>,
    /// The latest last.
    intervals: VecDeque<Interval>,
    /// Names of routes: an interval has their numbers.
    routes: Vec<String>,
}

/// Whether a sample belongs to the ones before it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Continuity {
    /// It is the first one.
    First,
    /// It is the next one of the same server.
    Continued,
    /// It is of a server that was started since then: nothing can be compared with it.
    Restarted,
}

/// What happened between two samples.
pub(super) struct Interval {
    /// How long it was.
    pub(super) span: Nanos,
    /// Requests received.
    pub(super) requests: u64,
    /// Exchanges that ended with a 5xx or without a reply.
    pub(super) failed: u64,
    /// Bytes of responses.
    pub(super) sent_bytes: u64,
    /// How long each phase of the exchanges that ended took.
    pub(super) phases: PerPhase<PhaseFigures>,
    /// Of routes with exchanges that ended; empty once it lies too far back.
    routes: Vec<RouteInterval>,
}

/// How long a phase took.
#[derive(Clone, Copy, Default, PartialEq, Debug)]
pub(super) struct PhaseFigures {
    pub(super) p50: Nanos,
    pub(super) p99: Nanos,
    pub(super) sum: Nanos,
}

struct RouteInterval {
    /// Number of its name.
    route: usize,
    failed: u64,
    sum_ns: u64,
    /// Of total times. Few exchanges of one route end within a second.
    buckets: Vec<(u16, u32)>,
}

/// What one route did within the last minute.
#[derive(Clone, PartialEq, Debug)]
pub(super) struct RouteFigures {
    pub(super) name: String,
    pub(super) exchanges: u64,
    pub(super) failed: u64,
    pub(super) p50: Nanos,
    pub(super) p95: Nanos,
    pub(super) p99: Nanos,
    /// All total times together.
    pub(super) sum: Nanos,
}

impl History {
    /// Adds what came at `at`.
    pub(super) fn push(&mut self, sample: Box<Sample>, at: Stamp) -> Continuity {
        let continuity = match &self.latest {
            None => Continuity::First,
            Some((_, latest)) if latest.is_continued_by(&sample) => Continuity::Continued,
            Some(_) => Continuity::Restarted,
        };
        if continuity == Continuity::Restarted {
            *self = History::default();
        }
        if let Some((since, latest)) = self.latest.take() {
            let interval = self.interval(&latest, &sample, at.since(since));
            self.intervals.push_back(interval);
            self.previous = Some(latest);
        }
        self.latest = Some((at, sample));
        self.forget();
        continuity
    }

    pub(super) fn latest(&self) -> Option<&Sample> {
        self.latest.as_ref().map(|(_, sample)| &**sample)
    }

    /// The one before the latest.
    pub(super) fn previous(&self) -> Option<&Sample> {
        self.previous.as_deref()
    }

    /// The latest last.
    pub(super) fn intervals(&self) -> impl DoubleEndedIterator<Item = &Interval> {
        self.intervals.iter()
    }

    /// Routes that had exchanges within the last minute, and how long it was: less in the beginning.
    pub(super) fn routes(&self) -> (Vec<RouteFigures>, Nanos) {
        let mut all = vec![(0, DurationCounts::default()); self.routes.len()];
        let mut span = Nanos::ZERO;
        for interval in self.intervals.iter().rev() {
            if span >= ROUTES_SPAN {
                break;
            }
            span = Nanos(span.0.saturating_add(interval.span.0));
            for one in &interval.routes {
                let (failed, totals) = &mut all[one.route];
                *failed += one.failed;
                totals.sum_ns = totals.sum_ns.saturating_add(one.sum_ns);
                let buckets = one.buckets.iter();
                let buckets = buckets.map(|&(bucket, count)| (bucket, u64::from(count)));
                totals.buckets.extend(buckets);
            }
        }
        let figures = self.routes.iter().zip(all);
        let figures = figures.filter(|(_, (_, totals))| !totals.buckets.is_empty());
        let figures = figures.map(|(name, (failed, totals))| {
            let durations = Durations::of(&totals.buckets);
            RouteFigures {
                name: name.clone(),
                exchanges: durations.len,
                failed,
                p50: durations.quantile(0.5),
                p95: durations.quantile(0.95),
                p99: durations.quantile(0.99),
                sum: Nanos(totals.sum_ns),
            }
        });
        (figures.collect(), span)
    }

    fn interval(&mut self, earlier: &Sample, later: &Sample, span: Nanos) -> Interval {
        let nothing = RouteCounts::default();
        let mut phases: PerPhase<DurationCounts> = PerPhase::default();
        let (mut failed, mut sent_bytes) = (0, 0);
        let mut routes = Vec::new();
        for (index, route) in later.counters.routes.iter().enumerate() {
            let before = same_route(&earlier.counters.routes, index, &route.route);
            let before = before.unwrap_or(&nothing);
            sent_bytes += route.sent_bytes.saturating_sub(before.sent_bytes);
            let ended_badly = |one: &RouteCounts| one.none.saturating_add(one.server_error);
            let failed_here = ended_badly(route).saturating_sub(ended_badly(before));
            failed += failed_here;
            let total = route.seconds.total.since(&before.seconds.total);
            if total.buckets.is_empty() {
                continue;
            }
            let of_route = route.seconds.each().into_iter().zip(before.seconds.each());
            for (all, (after, before)) in phases.each_mut().into_iter().zip(of_route) {
                let more = after.since(before);
                all.sum_ns = all.sum_ns.saturating_add(more.sum_ns);
                all.buckets.extend(more.buckets);
            }
            let few =
                |(bucket, count): (u16, u64)| (bucket, u32::try_from(count).unwrap_or(u32::MAX));
            routes.push(RouteInterval {
                route: self.number_of(index, &route.route),
                failed: failed_here,
                sum_ns: total.sum_ns,
                buckets: total.buckets.into_iter().map(few).collect(),
            });
        }
        Interval {
            span,
            requests: later
                .totals
                .received
                .saturating_sub(earlier.totals.received),
            failed,
            sent_bytes,
            phases: phases.map(PhaseFigures::of),
            routes,
        }
    }

    /// The number of a route's name, which mostly is the route's place in the sample.
    fn number_of(&mut self, index: usize, name: &str) -> usize {
        if self.routes.get(index).is_some_and(|known| known == name) {
            return index;
        }
        match self.routes.iter().position(|known| known == name) {
            Some(found) => found,
            None => {
                self.routes.push(name.to_owned());
                self.routes.len() - 1
            }
        }
    }

    /// Gives up what is too old to be shown.
    fn forget(&mut self) {
        let surplus = self.intervals.len().saturating_sub(INTERVALS_MAX);
        self.intervals.drain(..surplus);
        let mut span = Nanos::ZERO;
        for interval in self.intervals.iter_mut().rev() {
            if span >= ROUTES_SPAN {
                interval.routes = Vec::new();
            }
            span = Nanos(span.0.saturating_add(interval.span.0));
        }
    }
}

impl Interval {
    /// So many in this interval are so many in a second.
    pub(super) fn per_second(&self, count: u64) -> f64 {
        per_second(count, self.span)
    }
}

impl PhaseFigures {
    fn of(counts: &DurationCounts) -> PhaseFigures {
        let durations = Durations::of(&counts.buckets);
        PhaseFigures {
            p50: durations.quantile(0.5),
            p99: durations.quantile(0.99),
            sum: Nanos(counts.sum_ns),
        }
    }
}

/// Durations of an interval. The exact extremes are not known: counters have those of all times only.
struct Durations {
    /// Each with its count, the shortest first.
    buckets: Vec<(Nanos, u64)>,
    len: u64,
}

impl Durations {
    /// From numbers of buckets in any order, with their counts. None where one of them is not known here: a server of
    /// another version may have other buckets.
    fn of(buckets: &[(u16, u64)]) -> Durations {
        let widest = Nanos(u64::MAX);
        let snapshot = Snapshot::from_counts(buckets, Nanos::ZERO, Nanos::ZERO, widest);
        let buckets: Vec<_> = snapshot.unwrap_or_default().buckets().collect();
        let len = buckets.iter().map(|(_, count)| *count);
        Durations {
            len: len.fold(0, u64::saturating_add),
            buckets,
        }
    }

    /// By nearest rank; zero without durations.
    fn quantile(&self, share: f64) -> Nanos {
        let rank = nearest_rank(share, self.len);
        let mut passed = 0_u64;
        let reaches = |(_, count): &&(Nanos, u64)| {
            passed = passed.saturating_add(*count);
            passed >= rank
        };
        let found = self.buckets.iter().find(reaches);
        found.map_or(Nanos::ZERO, |(middle, _)| *middle)
    }
}

/// So many within a time are so many in a second.
pub(super) fn per_second(count: u64, span: Nanos) -> f64 {
    match span.0 {
        0 => 0.0,
        _ => count as f64 / span.as_secs_f64(),
    }
}

/// The route of this name, which mostly is at the same place.
fn same_route<'a>(routes: &'a [RouteCounts], index: usize, name: &str) -> Option<&'a RouteCounts> {
    let at_its_place = routes.get(index).filter(|route| route.route == name);
    at_its_place.or_else(|| routes.iter().find(|route| route.route == name))
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use telemetry::Histogram;

    /// A server whose routes have had exchanges of so many milliseconds each.
    pub(in super::super) fn sample(routes: &[(&str, &[u64])]) -> Box<Sample> {
        let mut sample = Sample {
            pid: 7,
            ..Sample::default()
        };
        for (name, ms) in routes {
            let durations = Histogram::new();
            ms.iter()
                .for_each(|ms| durations.record(Nanos::from_ms(*ms)));
            let snapshot = durations.snapshot();
            let counts = DurationCounts {
                sum_ns: snapshot.sum().0,
                buckets: snapshot.counts().collect(),
            };
            sample.totals.received += ms.len() as u64;
            sample.counters.routes.push(RouteCounts {
                route: (*name).to_owned(),
                sent_bytes: 100 * ms.len() as u64,
                server_error: u64::from(ms.contains(&503)),
                seconds: PerPhase {
                    run: counts.clone(),
                    total: counts,
                    ..PerPhase::default()
                },
                ..RouteCounts::default()
            });
        }
        Box::new(sample)
    }

    fn at(secs: u64) -> Stamp {
        Stamp(1).plus(Nanos::from_secs(secs))
    }

    fn is_about(span: Nanos, ms: u64) -> bool {
        span.0.abs_diff(ms * 1_000_000) <= ms * 16_000
    }

    #[test]
    fn shows_what_happened_between_samples_not_what_was_there_before() {
        let mut history = History::default();
        let before = sample(&[("/a", &[900, 900, 900])]);
        assert_eq!(history.push(before, at(0)), Continuity::First);
        assert_eq!(history.intervals().count(), 0);
        let after = sample(&[("/new", &[503]), ("/a", &[900, 900, 900, 10, 20])]);
        assert_eq!(history.push(after, at(2)), Continuity::Continued);
        let interval = history.intervals().next().unwrap();
        assert_eq!(
            (interval.requests, interval.failed, interval.sent_bytes),
            (3, 1, 300)
        );
        assert_eq!(interval.per_second(interval.requests), 1.5);
        assert!(
            is_about(interval.phases.run.p50, 20),
            "{:?}",
            interval.phases.run
        );
        assert!(is_about(interval.phases.total.p99, 503));
        assert_eq!(interval.phases.queue, PhaseFigures::default());
        let (mut routes, span) = history.routes();
        routes.sort_by(|one, other| one.name.cmp(&other.name));
        assert_eq!(span, Nanos::from_secs(2));
        let [a, new] = &routes[..] else {
            panic!("{routes:?}")
        };
        assert_eq!((a.name.as_str(), a.exchanges, a.failed), ("/a", 2, 0));
        assert!(is_about(a.p50, 10) && is_about(a.p95, 20) && is_about(a.sum, 30));
        assert_eq!(
            (new.name.as_str(), new.exchanges, new.failed),
            ("/new", 1, 1)
        );
    }

    #[test]
    fn begins_anew_with_a_server_that_was_started_anew() {
        let mut history = History::default();
        history.push(sample(&[("/a", &[1, 2])]), at(0));
        history.push(sample(&[("/a", &[1, 2, 3])]), at(1));
        assert_eq!(
            history.push(sample(&[("/a", &[1])]), at(2)),
            Continuity::Restarted
        );
        assert_eq!(
            (history.intervals().count(), history.routes().0.len()),
            (0, 0)
        );
        assert!(history.previous().is_none());
        let mut other = sample(&[("/a", &[1, 2, 3])]);
        other.pid = 8;
        assert_eq!(history.push(other, at(3)), Continuity::Restarted);
    }

    #[test]
    fn forgets_routes_after_a_minute_and_all_after_two() {
        let mut history = History::default();
        history.push(sample(&[]), at(0));
        history.push(sample(&[("/early", &[5])]), at(1));
        let ms = vec![5; 200];
        for second in 2..=200_usize {
            history.push(
                sample(&[("/early", &[5]), ("/late", &ms[..second])]),
                at(second as u64),
            );
            assert_eq!(
                history.routes().0.len(),
                if second <= 60 { 2 } else { 1 },
                "{second}"
            );
        }
        assert_eq!(history.intervals().count(), INTERVALS_MAX);
        let (routes, span) = history.routes();
        assert_eq!((routes[0].exchanges, span), (60, Nanos::from_secs(60)));
        let kept = history.intervals().filter(|one| !one.routes.is_empty());
        assert_eq!(kept.count(), 60);
    }

    #[test]
    fn knows_no_durations_in_buckets_of_another_version() {
        assert_eq!(Durations::of(&[(u16::MAX, 1)]).quantile(0.5), Nanos::ZERO);
    }
}
