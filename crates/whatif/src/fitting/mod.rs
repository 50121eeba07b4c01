//! Laws fitted to a log: when requests come and how long they run, in a few numbers that can be changed.
//!
//! Takes what a recording asks of a server, gives laws that make requests of its kind ([`fit`]), and puts them
//! beside what they were fitted to ([`Beside`]), because the best of all laws may be a bad one. What a law
//! leaves out is lost: that one request follows from another, that slow ones come together, pauses of the whole
//! server. It must not know how laws are written down, and simulates no server.
//!
//! ```text
//! Workload ─► rates (how many) ─► coming (how spread) ─┐
//!        └──► runs (how long, all or by route) ────────┴─► Laws ─► Beside (as good as what?)
//! ```

mod beside;
mod coming;
mod dispersion;
mod rates;
mod runs;

use std::collections::BTreeMap;

use measure::Nanos;

pub use beside::{Beside, DispersionPair, PercentilePair};

use crate::recorded::Workload;
use crate::{Coming, Laws, Route, Service};
use runs::Run;

/// With fewer requests nobody can tell one law from another.
pub const REQUESTS_LEN_MIN: usize = 100;
/// A law of run times that is farther from the log does not fit,
const DISTANCE_MAX: f64 = 0.05;
/// unless chance does it: this over the root of the number of requests it exceeds once in a thousand logs
/// (Kolmogorov).
const DISTANCE_BY_CHANCE: f64 = 1.95;
/// Run times that are looked at; of more requests every second, third and so on.
const RUNS_LEN_MAX: usize = 1_000_000;
/// Routes that get a law of their own; the others have one together.
const ROUTES_LEN_MAX: usize = 7;
/// Routes on their own have to bring the distance down to this share of it.
const APART_SHARE: f64 = 0.7;

/// How exact the moments of a log are.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Moments {
    /// To the microsecond or so.
    Exact,
    /// To the second: within it they are a guess, and nobody knows what gaps there were.
    Seconds,
}

/// What is asked for.
#[derive(Clone, Copy, Debug)]
pub struct Fitting<'a> {
    /// How exact the moments of the log are.
    pub moments: Moments,
    /// A number for each route of the log: routes with different ones never share a law. Routes beyond its end
    /// have 0.
    pub apart: &'a [usize],
    /// The law of run times, when it is known.
    pub run: Option<Service>,
}

/// Laws, and where they come from.
#[derive(Clone, PartialEq, Debug)]
pub struct Fitted {
    /// They last as long as the log.
    pub laws: Laws,
    /// As many as `laws` has routes.
    pub routes: Vec<FittedRoute>,
}

/// Where a route of laws comes from.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct FittedRoute {
    /// A route of the log whose law it is; there may be others.
    pub log_route: u16,
    /// Requests of the log that have this law.
    pub requests: u64,
    /// The largest difference between the shares of requests that are shorter than some time, of law and log;
    /// of constants, the share of requests that are more than 2 % off. `None` when the law was given.
    pub distance: Option<f64>,
}

impl FittedRoute {
    /// The largest distance of a law that fits.
    pub fn distance_max(&self) -> f64 {
        distance_max(self.requests)
    }
}

fn distance_max(requests: u64) -> f64 {
    DISTANCE_MAX.max(DISTANCE_BY_CHANCE / (requests as f64).sqrt())
}

/// Laws of a workload; `None` when it has fewer than [`REQUESTS_LEN_MIN`] requests, or all at one moment.
pub fn fit(workload: &Workload, fitting: &Fitting<'_>) -> Option<Fitted> {
    let at: Vec<u64> = workload.arrivals().map(|arrival| arrival.at.0).collect();
    let lasts = lasts(&at)?;
    let rates = rates::steps(&at, lasts);
    let coming = match fitting.moments {
        Moments::Exact => coming::coming(&at, &rates),
        Moments::Seconds => Coming::Poisson,
    };
    let groups = groups(workload, fitting.apart);
    let laws = groups.iter().flat_map(|group| match fitting.run {
        Some(service) => vec![group.given(service)],
        None => group.fitted(),
    });
    let (routes, from) = laws.unzip();
    Some(Fitted {
        laws: Laws {
            rates,
            coming,
            routes,
        },
        routes: from,
    })
}

/// As long as their gaps and one more, so that the rate is what it was between them.
fn lasts(at: &[u64]) -> Option<Nanos> {
    let span = at.last().filter(|last| **last > 0)?;
    let lasts = *span as f64 * at.len() as f64 / (at.len() - 1) as f64;
    (at.len() >= REQUESTS_LEN_MIN).then_some(Nanos(lasts as u64))
}

/// Requests that may share a law: run times by route of the log, nanoseconds.
#[derive(Debug, Default)]
struct Group {
    by_route: BTreeMap<u16, Vec<f64>>,
    /// What of these was computing, summed up.
    computing: BTreeMap<u16, f64>,
    /// One of so many requests is in it.
    thinned: usize,
}

fn groups(workload: &Workload, apart: &[usize]) -> Vec<Group> {
    let thinned = workload.len().div_ceil(RUNS_LEN_MAX).max(1);
    let mut groups: BTreeMap<usize, Group> = BTreeMap::new();
    for arrival in workload.arrivals().step_by(thinned) {
        let place = apart.get(usize::from(arrival.route)).copied().unwrap_or(0);
        let group = groups.entry(place).or_default();
        group.thinned = thinned;
        let runs = group.by_route.entry(arrival.route).or_default();
        runs.push(arrival.run.0 as f64);
        *group.computing.entry(arrival.route).or_default() += arrival.computing.0 as f64;
    }
    groups.into_values().collect()
}

impl Group {
    fn given(&self, service: Service) -> (Route, FittedRoute) {
        let len = self.by_route.values().map(Vec::len).sum();
        self.route(&self.all(), len, service, None)
    }

    /// One law for all, unless it does not fit and routes on their own are much nearer.
    fn fitted(&self) -> Vec<(Route, FittedRoute)> {
        let mut all: Vec<f64> = self.by_route.values().flatten().copied().collect();
        let whole = runs::run(&mut all);
        if whole.distance > distance_max(all.len() as u64) && self.by_route.len() > 1 {
            let parts = self.parts();
            let far = |(_, len, run): &(Vec<u16>, usize, Run)| *len as f64 * run.distance;
            let distance = parts.iter().map(far).sum::<f64>() / all.len() as f64;
            if distance <= APART_SHARE * whole.distance {
                let law = |(routes, len, run): &(Vec<u16>, usize, Run)| {
                    self.route(routes, *len, run.service, Some(run.distance))
                };
                return parts.iter().map(law).collect();
            }
        }
        vec![self.route(&self.all(), all.len(), whole.service, Some(whole.distance))]
    }

    /// A law for each of the busiest routes, and one for the others: with their routes, the busiest first, and how
    /// many requests there are of them.
    fn parts(&self) -> Vec<(Vec<u16>, usize, Run)> {
        let mut routes: Vec<(u16, &Vec<f64>)> = self
            .by_route
            .iter()
            .map(|(route, runs)| (*route, runs))
            .collect();
        routes.sort_by_key(|(_, runs)| std::cmp::Reverse(runs.len()));
        let is_own = |(place, (_, runs)): &(usize, &(u16, &Vec<f64>))| {
            *place < ROUTES_LEN_MAX && runs.len() >= REQUESTS_LEN_MIN
        };
        let own_len = routes.iter().enumerate().take_while(is_own).count();
        let (own, rest) = routes.split_at(own_len);
        let mut parts: Vec<(Vec<u16>, usize, Run)> = own
            .iter()
            .map(|(route, runs)| (vec![*route], runs.len(), runs::run(&mut runs.to_vec())))
            .collect();
        if !rest.is_empty() {
            let routes = rest.iter().map(|(route, _)| *route).collect();
            let mut runs: Vec<f64> = rest.iter().flat_map(|(_, runs)| *runs).copied().collect();
            parts.push((routes, runs.len(), runs::run(&mut runs)));
        }
        parts
    }

    /// All routes, the busiest first.
    fn all(&self) -> Vec<u16> {
        let mut routes: Vec<u16> = self.by_route.keys().copied().collect();
        routes.sort_by_key(|route| std::cmp::Reverse(self.by_route[route].len()));
        routes
    }

    /// The share of their runs that was computing.
    fn computing(&self, routes: &[u16]) -> f64 {
        let sum = |of: &dyn Fn(&u16) -> f64| routes.iter().map(of).sum::<f64>();
        let ran = sum(&|route| self.by_route[route].iter().sum());
        let computed = sum(&|route| self.computing[route]);
        if ran > 0.0 {
            (computed / ran).min(1.0)
        } else {
            0.0
        }
    }

    fn route(
        &self,
        routes: &[u16],
        len: usize,
        service: Service,
        distance: Option<f64>,
    ) -> (Route, FittedRoute) {
        let requests = (len * self.thinned) as u64;
        let route = Route {
            weight: requests as f64,
            computing: self.computing(routes),
            ..Route::only(service)
        };
        let from = FittedRoute {
            log_route: routes.first().copied().unwrap_or(0),
            requests,
            distance,
        };
        (route, from)
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use crate::recorded::{Recorder, Seen};
    use crate::{Rate, Sharing};

    /// The log of a server with threads for everybody: times to the microsecond.
    pub(crate) fn logged(laws: &Laws, seed: u64) -> Workload {
        let mut recorder = Recorder::default();
        recorder.begin();
        for arrival in laws.arrivals(seed) {
            let seen = Seen {
                began_unix_ns: 1_795_262_400_000_000_000 + arrival.at.0 / 1_000 * 1_000,
                queue: Some(Nanos::ZERO),
                run: Some(Nanos(arrival.run.0 / 1_000 * 1_000)),
                route: arrival.route,
                ..Seen::default()
            };
            recorder.push(&seen).unwrap();
        }
        Workload::of(&recorder.finish(), None, Sharing::default(), &[], 1)
    }

    pub(crate) const EXACT: Fitting<'static> = Fitting {
        moments: Moments::Exact,
        apart: &[],
        run: None,
    };

    pub(crate) fn laws(coming: Coming, services: &[(f64, Service)]) -> Laws {
        let route = |&(weight, service)| Route {
            weight,
            ..Route::only(service)
        };
        Laws {
            rates: vec![Rate::steady(200.0, Nanos::from_secs(100))],
            coming,
            routes: services.iter().map(route).collect(),
        }
    }

    const EXPONENTIAL: Service = Service::Exponential {
        mean: Nanos::from_ms(10),
    };
    const TAIL: Service = Service::Pareto {
        least: Nanos::from_ms(2),
        most: Nanos::from_secs(20),
        tail: 1.3,
    };

    #[test]
    fn a_log_gives_the_law_back_that_made_it() {
        let bursts = Coming::Bursts {
            len_mean: 6.0,
            gap: Nanos::from_us(700),
        };
        for seed in 1..=4 {
            for (coming, service) in [
                (Coming::Even, EXPONENTIAL),
                (Coming::Poisson, TAIL),
                (bursts, EXPONENTIAL),
            ] {
                let made = laws(coming, &[(1.0, service)]);
                let found = fit(&logged(&made, seed), &EXACT).unwrap();
                let kind = std::mem::discriminant::<Coming>;
                assert_eq!(kind(&found.laws.coming), kind(&coming), "{seed}: {found:?}");
                let kind = std::mem::discriminant::<Service>;
                let route = &found.laws.routes[0].service;
                assert_eq!(kind(route), kind(&service), "{seed}: {found:?}");
                assert_eq!(found.laws.rates.len(), 1, "{seed}: {found:?}");
                let rate = found.laws.rates[0].from_per_second;
                assert!((rate / 200.0 - 1.0).abs() < 0.15, "{seed}: {found:?}");
                let from = found.routes[0];
                assert!(
                    from.distance.unwrap() < from.distance_max(),
                    "{seed}: {found:?}"
                );
            }
        }
    }

    #[test]
    fn routes_have_laws_of_their_own_where_one_does_not_fit() {
        let two = [
            (3.0, EXPONENTIAL),
            (1.0, Service::Constant(Nanos::from_ms(400))),
        ];
        let found = fit(&logged(&laws(Coming::Poisson, &two), 1), &EXACT).unwrap();
        let [fast, slow] = &found.laws.routes[..] else {
            panic!("{found:?}");
        };
        assert!(
            (fast.weight / slow.weight / 3.0 - 1.0).abs() < 0.1,
            "{found:?}"
        );
        assert_eq!(slow.service.mean().0 / 1_000, 400_000);
        assert_eq!(
            found.routes.iter().map(|route| route.log_route).max(),
            Some(1)
        );
        // Two routes with the same law need one only.
        let same = [(3.0, EXPONENTIAL), (1.0, EXPONENTIAL)];
        let found = fit(&logged(&laws(Coming::Poisson, &same), 1), &EXACT).unwrap();
        assert_eq!(found.laws.routes.len(), 1);
    }

    #[test]
    fn routes_of_different_pools_never_share_a_law() {
        let same = [(3.0, EXPONENTIAL), (1.0, EXPONENTIAL)];
        let apart = Fitting {
            apart: &[0, 7],
            ..EXACT
        };
        let found = fit(&logged(&laws(Coming::Poisson, &same), 1), &apart).unwrap();
        assert_eq!(found.routes.len(), 2);
        assert_eq!(
            (found.routes[0].log_route, found.routes[1].log_route),
            (0, 1)
        );
    }

    #[test]
    fn run_times_that_are_known_are_not_fitted() {
        let made = laws(Coming::Poisson, &[(1.0, EXPONENTIAL)]);
        let given = Fitting {
            run: Some(TAIL),
            ..EXACT
        };
        let found = fit(&logged(&made, 1), &given).unwrap();
        assert_eq!(found.laws.routes[0].service, TAIL);
        assert_eq!(found.routes[0].distance, None);
    }

    #[test]
    fn within_seconds_there_are_no_bursts() {
        let bursts = Coming::Bursts {
            len_mean: 6.0,
            gap: Nanos::from_us(700),
        };
        let seconds = Fitting {
            moments: Moments::Seconds,
            ..EXACT
        };
        let made = logged(&laws(bursts, &[(1.0, EXPONENTIAL)]), 1);
        assert_eq!(fit(&made, &seconds).unwrap().laws.coming, Coming::Poisson);
    }

    #[test]
    fn few_requests_may_be_farther_from_their_law() {
        let mut made = laws(Coming::Poisson, &[(1.0, EXPONENTIAL)]);
        made.rates = vec![Rate::steady(20.0, Nanos::from_secs(8))];
        for seed in 1..=20 {
            let from = fit(&logged(&made, seed), &EXACT).unwrap().routes[0];
            assert!(
                from.distance.unwrap() < from.distance_max(),
                "{seed}: {from:?}"
            );
        }
    }

    #[test]
    fn a_handful_says_nothing() {
        let mut made = laws(Coming::Even, &[(1.0, EXPONENTIAL)]);
        made.rates = vec![Rate::steady(99.0, Nanos::from_secs(1))];
        assert_eq!(fit(&logged(&made, 1), &EXACT), None);
    }
}
