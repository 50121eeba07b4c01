//! The last minute and the last quarter of an hour, from samples of what the server has counted: each second is the
//! difference of two samples. The columns of the heat map are the seconds of the history, under their numbers, so that each
//! request is in one of them, whenever a page was opened. Pure: the time comes with each sample.

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::rc::Rc;
use std::time::Duration;

use ipc::{LiveHeat, LiveSample};
use serde::Serialize;
use telemetry::PerPhase;
use telemetry::history::{HEAT_BOUNDS, HeldMark, HeldSecond, MarkKind};

use super::health::HealthWindow;
use super::spread::Spread;

/// Seconds that the figures of a minute are summed up over.
const SECONDS_LEN_MAX: usize = 60;
/// Columns of the heat map: a quarter of an hour.
const COLUMNS_LEN_MAX: usize = 900;
/// Marks on the time line; the oldest goes first.
const MARKS_LEN_MAX: usize = 100;
/// What samples have shown until now.
#[derive(Default)]
pub(crate) struct LiveWindow {
    /// Newest last.
    seconds: VecDeque<Activity>,
    /// The sum of `seconds`.
    minute: Activity,
    columns: VecDeque<HeatColumn>,
    /// The number of the history's second that comes next.
    next_second: u64,
    health: HealthWindow,
    marks: VecDeque<TimeMark>,
    /// What the latest sample has counted.
    before: Option<Counted>,
}

/// What has happened in a while.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Activity {
    pub(crate) span: Duration,
    pub(crate) phases: PerPhase<Spread>,
    pub(crate) routes: HashMap<Rc<str>, RouteActivity>,
    pub(crate) pools: BTreeMap<String, Refusals>,
    pub(crate) slow_steps: u64,
    /// Processes that ended without being told.
    pub(crate) crashes: u64,
}

/// What has happened on one route.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct RouteActivity {
    pub(crate) total: Spread,
    /// Ended with 5xx.
    pub(crate) failed: u64,
}

/// Requests that a pool has refused.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub(crate) struct Refusals {
    /// The queue was full.
    pub(crate) refused: u64,
    /// The pool was overloaded.
    pub(crate) shed: u64,
    /// No thread was free in time.
    pub(crate) expired: u64,
}

/// A second of the heat map: when, in seconds since 1970, and how many requests took how long.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(crate) struct HeatColumn(u64, Vec<u64>);

/// Something that happened to the server.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(crate) struct TimeMark {
    /// In seconds since 1970.
    pub(crate) at: u64,
    pub(crate) kind: MarkKind,
}

/// What one sample has counted.
#[derive(Default)]
struct Counted {
    started_unix_s: u64,
    generation: u64,
    recycled: u64,
    all: Activity,
}

impl LiveWindow {
    /// Takes a sample. `at_s`: now, in seconds since 1970; `span`: since the sample before.
    pub(crate) fn observe(&mut self, sample: &LiveSample, at_s: u64, span: Duration) {
        for second in sample.heat.iter().flatten() {
            self.add_second(second);
        }
        let counted = Counted::of(sample);
        let before = self.before.replace(counted);
        let counted = self.before.as_ref().expect("it was just put there");
        // Without one before, nothing is known of a second.
        let Some(before) = before else {
            self.health.observe(sample);
            return;
        };
        if before.started_unix_s != counted.started_unix_s {
            self.mark(at_s, MarkKind::Start);
            self.forget_minute();
            self.health.observe(sample);
            return;
        }
        self.health.observe(sample);
        let second = counted.all.since(&before.all, span);
        let happened = [
            (before.generation < counted.generation, MarkKind::Reload),
            (second.crashes > 0, MarkKind::Crash),
            (before.recycled < counted.recycled, MarkKind::Recycling),
        ];
        for (_, kind) in happened.into_iter().filter(|(is_new, _)| *is_new) {
            self.mark(at_s, kind);
        }
        // Without a history: what happened between two samples.
        if sample.heat.is_none() {
            let counts = second.phases.total.counts_between(HEAT_BOUNDS);
            self.add_column(at_s, counts);
        }
        self.minute.add(&second);
        if let Some(oldest) = push_bounded(&mut self.seconds, second, SECONDS_LEN_MAX) {
            self.minute.take_away(&oldest);
        }
    }

    /// No sample has come for a while: the next one begins a new minute.
    pub(crate) fn pause(&mut self) {
        self.before = None;
        self.forget_minute();
    }

    /// Takes what has happened while nobody looked, oldest first, and the number of the second that comes next.
    pub(crate) fn restore(&mut self, seconds: &[HeldSecond], next_second: u64, marks: &[HeldMark]) {
        self.columns.clear();
        self.next_second = next_second;
        for second in seconds {
            self.add_column(second.at_s, second.heat.to_vec());
        }
        self.marks.clear();
        for mark in marks {
            self.mark(mark.at_s, mark.kind);
        }
    }

    /// Whether seconds lie between what is known and this sample: it came too late, or the history began anew.
    pub(crate) fn misses_seconds(&self, sample: &LiveSample) -> bool {
        let seconds = sample.heat.as_deref().unwrap_or_default();
        let [oldest, .., newest] = seconds else {
            return false;
        };
        // One second alone is that of a history that has just begun.
        oldest.number > self.next_second || newest.number + 1 < self.next_second
    }

    pub(crate) fn health(&self) -> &HealthWindow {
        &self.health
    }

    pub(crate) fn minute(&self) -> &Activity {
        &self.minute
    }

    /// Oldest first.
    pub(crate) fn columns(&self) -> &VecDeque<HeatColumn> {
        &self.columns
    }

    /// Oldest first.
    pub(crate) fn marks(&self) -> &VecDeque<TimeMark> {
        &self.marks
    }

    /// Takes a second of the history, unless it is there already.
    fn add_second(&mut self, second: &LiveHeat) {
        if second.number >= self.next_second {
            self.next_second = second.number + 1;
            self.add_column(second.at_s, second.counts.to_vec());
        }
    }

    /// Two seconds of the history may end in the same second of the clock: one is cut short by a reload.
    fn add_column(&mut self, at_s: u64, counts: Vec<u64>) {
        match self.columns.back_mut() {
            Some(HeatColumn(last_s, sums)) if *last_s == at_s => {
                for (sum, more) in sums.iter_mut().zip(counts) {
                    *sum = sum.saturating_add(more);
                }
            }
            _ => {
                push_bounded(&mut self.columns, HeatColumn(at_s, counts), COLUMNS_LEN_MAX);
            }
        }
    }

    fn forget_minute(&mut self) {
        self.seconds.clear();
        self.minute = Activity::default();
        self.health.forget();
    }

    fn mark(&mut self, at: u64, kind: MarkKind) {
        push_bounded(&mut self.marks, TimeMark { at, kind }, MARKS_LEN_MAX);
    }
}

/// Puts it at the end; gives the oldest where there are too many.
fn push_bounded<T>(all: &mut VecDeque<T>, one: T, len_max: usize) -> Option<T> {
    all.push_back(one);
    match all.len() > len_max {
        true => all.pop_front(),
        false => None,
    }
}

impl Counted {
    fn of(sample: &LiveSample) -> Counted {
        let routes = sample.routes.iter().map(|route| {
            let total = Spread::of(route.buckets.iter().copied(), route.sum_ns);
            let failed = route.failed;
            (
                Rc::from(route.route.as_str()),
                RouteActivity { total, failed },
            )
        });
        let pools = sample.pools.iter().map(|pool| {
            let refusals = Refusals {
                refused: pool.figures.refused,
                shed: pool.figures.shed,
                expired: pool.figures.expired,
            };
            (pool.name.clone(), refusals)
        });
        Counted {
            started_unix_s: sample.started_unix_s,
            generation: sample.generation,
            recycled: sample.recycled,
            all: Activity {
                span: Duration::ZERO,
                phases: sample
                    .phases
                    .map(|phase| Spread::of(phase.0.counts(), phase.0.sum().0)),
                routes: routes.collect(),
                pools: pools.collect(),
                slow_steps: sample.event_loop.slow_steps,
                crashes: sample.crashes,
            },
        }
    }
}

impl Activity {
    /// What has happened since `earlier`, which has counted the same things.
    fn since(&self, earlier: &Activity, span: Duration) -> Activity {
        let none = RouteActivity::default();
        let routes = self.routes.iter().filter_map(|(name, route)| {
            let before = earlier.routes.get(name).unwrap_or(&none);
            // Most routes of many have no request in a second.
            if route == before {
                return None;
            }
            let failed = route.failed.saturating_sub(before.failed);
            let total = route.total.minus(&before.total);
            Some((Rc::clone(name), RouteActivity { total, failed }))
        });
        let pools = self.pools.iter().map(|(name, pool)| {
            let before = earlier.pools.get(name).copied().unwrap_or_default();
            (name.clone(), pool.minus(before))
        });
        let mut phases = self.phases.clone();
        for (phase, before) in phases.each_mut().into_iter().zip(earlier.phases.each()) {
            *phase = phase.minus(before);
        }
        Activity {
            span,
            phases,
            routes: routes.collect(),
            pools: pools.collect(),
            slow_steps: self.slow_steps.saturating_sub(earlier.slow_steps),
            crashes: self.crashes.saturating_sub(earlier.crashes),
        }
    }

    fn add(&mut self, other: &Activity) {
        self.span += other.span;
        for (phase, more) in self.phases.each_mut().into_iter().zip(other.phases.each()) {
            phase.add(more);
        }
        for (name, more) in &other.routes {
            let route = self.routes.entry(Rc::clone(name)).or_default();
            route.total.add(&more.total);
            route.failed = route.failed.saturating_add(more.failed);
        }
        for (name, more) in &other.pools {
            let pool = self.pools.entry(name.clone()).or_default();
            *pool = pool.plus(*more);
        }
        self.slow_steps = self.slow_steps.saturating_add(other.slow_steps);
        self.crashes = self.crashes.saturating_add(other.crashes);
    }

    /// The opposite of `add`.
    fn take_away(&mut self, other: &Activity) {
        self.span = self.span.saturating_sub(other.span);
        for (phase, less) in self.phases.each_mut().into_iter().zip(other.phases.each()) {
            phase.take_away(less);
        }
        for (name, less) in &other.routes {
            if let Some(route) = self.routes.get_mut(name) {
                route.total.take_away(&less.total);
                route.failed = route.failed.saturating_sub(less.failed);
                // Names of routes that have had nothing for a minute would pile up over reloads.
                if *route == RouteActivity::default() {
                    self.routes.remove(name);
                }
            }
        }
        for (name, less) in &other.pools {
            if let Some(pool) = self.pools.get_mut(name) {
                *pool = pool.minus(*less);
            }
        }
        self.slow_steps = self.slow_steps.saturating_sub(other.slow_steps);
        self.crashes = self.crashes.saturating_sub(other.crashes);
    }
}

impl Refusals {
    pub(crate) fn all(self) -> u64 {
        [self.refused, self.shed, self.expired]
            .into_iter()
            .fold(0, u64::saturating_add)
    }

    fn plus(self, other: Refusals) -> Refusals {
        Refusals {
            refused: self.refused.saturating_add(other.refused),
            shed: self.shed.saturating_add(other.shed),
            expired: self.expired.saturating_add(other.expired),
        }
    }

    fn minus(self, other: Refusals) -> Refusals {
        Refusals {
            refused: self.refused.saturating_sub(other.refused),
            shed: self.shed.saturating_sub(other.shed),
            expired: self.expired.saturating_sub(other.expired),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ipc::LiveRoute;
    use telemetry::counters::Distribution;
    use telemetry::history::HEAT_CELLS;
    use telemetry::{Nanos, Snapshot};

    const SECOND: Duration = Duration::from_secs(1);

    /// A server that has answered requests of each route, which took so many milliseconds.
    fn sample(routes: &[(&str, &[u64])]) -> LiveSample {
        let mut all = Snapshot::default();
        let routes = routes.iter().map(|(name, spans_ms)| {
            let mut total = Snapshot::default();
            spans_ms
                .iter()
                .for_each(|span| total.record(Nanos::from_ms(*span)));
            all.merge(&total);
            LiveRoute {
                route: (*name).to_owned(),
                failed: spans_ms.iter().filter(|span| **span >= 500).count() as u64,
                sum_ns: total.sum().0,
                buckets: total.counts().collect(),
            }
        });
        let routes = routes.collect();
        LiveSample {
            generation: 1,
            phases: PerPhase {
                total: Distribution(all),
                ..PerPhase::default()
            },
            routes,
            ..LiveSample::default()
        }
    }

    #[test]
    fn a_minute_is_what_has_come_and_nothing_that_was_before() {
        let mut window = LiveWindow::default();
        window.observe(&sample(&[("a", &[900; 50])]), 0, SECOND);
        assert_eq!(window.minute().phases.total.len, 0);
        let spans = [[900; 50].as_slice(), &[2, 2, 600]].concat();
        let later = sample(&[("a", &spans), ("b", &[30])]);
        window.observe(&later, 1, SECOND);
        let minute = window.minute();
        assert_eq!(minute.phases.total.len, 4);
        assert_eq!(
            (minute.routes["a"].total.len, minute.routes["a"].failed),
            (3, 1)
        );
        assert_eq!(minute.routes["b"].total.sum_ns, 30_000_000);
        // Each of them in one cell: 2 ms twice, 30 ms, 600 ms.
        let HeatColumn(at, counts) = &window.columns()[0];
        assert_eq!((*at, counts.iter().sum::<u64>()), (1, 4));
        assert_eq!((counts[4] + counts[5], counts[8], counts[12]), (2, 1, 1));
        // A minute later all of it is over, and so are the names.
        for at in 2..=61 {
            window.observe(&later, at, SECOND);
        }
        assert_eq!(
            *window.minute(),
            Activity {
                span: SECOND * 60,
                ..Activity::default()
            }
        );
    }

    #[test]
    fn marks_are_what_happened_between_two_samples() {
        let mut window = LiveWindow::default();
        let mut now = sample(&[]);
        window.observe(&now, 1, SECOND);
        now.generation = 2;
        window.observe(&now, 2, SECOND);
        now.crashes = 3;
        window.observe(&now, 3, SECOND);
        now.recycled = 1;
        window.observe(&now, 4, SECOND);
        now.started_unix_s = 99;
        window.observe(&now, 5, SECOND);
        let marks: Vec<_> = window
            .marks()
            .iter()
            .map(|mark| (mark.at, mark.kind))
            .collect();
        let expect = [
            (2, MarkKind::Reload),
            (3, MarkKind::Crash),
            (4, MarkKind::Recycling),
            (5, MarkKind::Start),
        ];
        assert_eq!(marks, expect);
    }

    #[test]
    fn what_happened_before_is_there_and_goes_on_in_the_same_second() {
        let mut window = LiveWindow::default();
        let second = |at_s| HeldSecond {
            at_s,
            heat: [2; 18],
            ..HeldSecond::default()
        };
        let mark = HeldMark {
            at_s: 5,
            kind: MarkKind::Upgrade,
        };
        // A reload has cut a second short: two of them end in the same second of the clock.
        window.restore(&[second(8), second(9), second(9)], 3, &[mark]);
        window.observe(&sample(&[]), 9, SECOND);
        window.observe(&sample(&[("a", &[1])]), 9, SECOND);
        window.observe(&sample(&[("a", &[1, 1])]), 10, SECOND);
        let sums: Vec<(u64, u64)> = window
            .columns()
            .iter()
            .map(|HeatColumn(at, counts)| (*at, counts.iter().sum()))
            .collect();
        assert_eq!(sums, [(8, 36), (9, 73), (10, 1)]);
        assert_eq!(window.marks().len(), 1);
    }

    /// A sample with these seconds of the history: number, end, and requests.
    fn with_heat(seconds: &[(u64, u64, u64)]) -> LiveSample {
        let second = |&(number, at_s, len): &(u64, u64, u64)| {
            let mut counts = [0; HEAT_CELLS];
            counts[3] = len;
            LiveHeat {
                number,
                at_s,
                counts,
            }
        };
        LiveSample {
            heat: Some(seconds.iter().map(second).collect()),
            ..sample(&[("a", &[1; 40])])
        }
    }

    #[test]
    fn each_second_of_the_history_is_one_column_whenever_the_page_began() {
        let mut window = LiveWindow::default();
        let restored = HeldSecond {
            at_s: 100,
            heat: with_heat(&[(0, 0, 5)]).heat.unwrap()[0].counts,
            ..HeldSecond::default()
        };
        window.restore(&[restored], 11, &[]);
        // The first sample comes before the next second is over, and knows the one that was restored.
        let samples: [&[_]; 4] = [
            &[(9, 99, 1), (10, 100, 5)],
            &[(10, 100, 5), (11, 101, 7)],
            // None was new, then two were.
            &[(10, 100, 5), (11, 101, 7)],
            &[(11, 101, 7), (12, 102, 2), (13, 103, 3)],
        ];
        for (at_s, seconds) in (100..).zip(samples) {
            let sample = with_heat(seconds);
            assert!(!window.misses_seconds(&sample));
            window.observe(&sample, at_s, SECOND);
        }
        let sums: Vec<(u64, u64)> = { window.columns().iter() }
            .map(|HeatColumn(at, counts)| (*at, counts.iter().sum()))
            .collect();
        assert_eq!(sums, [(100, 5), (101, 7), (102, 2), (103, 3)]);
        assert!(window.misses_seconds(&with_heat(&[(15, 105, 0), (16, 106, 0)])));
        assert!(window.misses_seconds(&with_heat(&[(0, 105, 0), (1, 106, 0)])));
        assert!(!window.misses_seconds(&with_heat(&[(14, 105, 0), (15, 106, 0)])));
    }

    #[test]
    fn what_is_kept_is_bounded() {
        let mut window = LiveWindow::default();
        for at in 0..2_000 {
            let now = LiveSample {
                crashes: at,
                ..sample(&[("a", &[1])])
            };
            window.observe(&now, at, SECOND);
        }
        let lens = [
            window.seconds.len(),
            window.columns.len(),
            window.marks.len(),
        ];
        assert_eq!(lens, [SECONDS_LEN_MAX, COLUMNS_LEN_MAX, MARKS_LEN_MAX]);
        assert_eq!(window.minute().span, SECOND * 60);
        window.pause();
        window.observe(&sample(&[("a", &[1; 9])]), 9_000, SECOND);
        assert_eq!(*window.minute(), Activity::default());
    }
}
