//! Sums by place and by name.

use super::*;
use crate::counters::{KnownMethod, RequestLabels, RouteDurations, RouteStats};
use crate::{Ending, Nanos, Spans};

struct Counted {
    stats: RouteStats,
    durations: Box<RouteDurations>,
}

impl Counted {
    fn counters(&self) -> RouteCounters<'_> {
        RouteCounters {
            stats: &self.stats,
            durations: &self.durations,
        }
    }
}

fn route(exchanges: u64) -> Counted {
    let route = Counted {
        stats: RouteStats::default(),
        durations: Box::default(),
    };
    for ms in 1..=exchanges {
        let spans = Spans {
            run: Nanos::from_ms(ms),
            total: Nanos::from_ms(ms),
            ..Spans::default()
        };
        let labels = RequestLabels {
            method: KnownMethod::Get,
            is_https: false,
            status: 200,
        };
        let counters = route.counters();
        counters.record(&spans, labels, Ending::Complete, 10);
    }
    route
}

fn named(counted: &StatsSnapshot) -> Vec<(&str, u64, u64)> {
    let routes = counted.routes.iter();
    routes
        .map(|route| {
            let total = &route.seconds.total.0;
            (&*route.route, route.figures.exchanges(), total.len())
        })
        .collect()
}

#[test]
fn routes_are_found_by_name_where_their_places_differ() {
    let mut sum = StatsSum::new();
    for (index, (name, exchanges)) in [("none", 1), ("app", 2), ("/old", 3)]
        .into_iter()
        .enumerate()
    {
        sum.add_route(index, name, route(exchanges).counters());
    }
    for (index, (name, exchanges)) in [("none", 4), ("/new", 5), ("app", 6)]
        .into_iter()
        .enumerate()
    {
        sum.add_route(index, name, route(exchanges).counters());
    }
    let counted = sum.finish();
    let expect = [
        ("none", 5, 5),
        ("app", 8, 8),
        ("/old", 3, 3),
        ("/new", 5, 5),
    ];
    assert_eq!(named(&counted), expect);
    assert_eq!(counted.routes[1].seconds.run.0.max(), Nanos::from_ms(6));
}

#[test]
fn routes_without_a_label_are_counted_together() {
    let names = ["none", "app"];
    let of_all = |routes: &[(&str, u64)], sum: &mut StatsSum| {
        for (index, (name, exchanges)) in routes.iter().enumerate() {
            sum.add_route(index, name, route(*exchanges).counters());
        }
    };
    let mut sum = StatsSum::of_routes(names);
    of_all(&[("none", 1), ("app", 2), ("/a", 3), ("/b", 4)], &mut sum);
    of_all(&[("/b", 5), ("none", 6), ("app", 7)], &mut sum);
    // Those that have ended are added as a snapshot.
    let mut ended = StatsSum::new();
    of_all(&[("/a", 8), ("app", 9)], &mut ended);
    sum.add(&ended.finish());
    let expect = [("none", 7, 7), ("app", 18, 18), (OTHER_ROUTES, 20, 20)];
    assert_eq!(named(&sum.finish()), expect);
    // Where each has a label there is no other.
    let mut sum = StatsSum::of_routes(names);
    of_all(&[("none", 1), ("app", 2)], &mut sum);
    assert_eq!(named(&sum.finish()), [("none", 1, 1), ("app", 2, 2)]);
}

#[test]
fn a_sum_is_that_of_the_snapshots() {
    let processes = [route(3), route(40)];
    let mut sum = StatsSum::new();
    let mut snapshots = StatsSnapshot::default();
    for counters in &processes {
        sum.add_route(0, "app", counters.counters());
        let mut one = StatsSum::new();
        one.add_route(0, "app", counters.counters());
        snapshots.add(&one.finish());
    }
    assert_eq!(sum.finish(), snapshots);
}
