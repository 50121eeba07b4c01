//! Laws fitted to requests: the arrival process and the run times, in a few numbers.
//!
//! Takes requests, gives laws that make requests of the same kind ([`fit`]), and compares the two
//! ([`Closeness`]), because the best of all laws may be a bad one. A law does not contain dependencies between
//! requests, clusters of slow requests, or pauses of the whole server. It simulates no server.
//!
//! ```text
//! requests ─► rates (how many) ─► arrivals (which process) ─┐
//!        └──► run_times (all together or by route) ─────────┴─► Laws ─► Closeness
//! ```

mod arrivals;
mod closeness;
mod dispersion;
mod rates;
mod run_times;

use std::collections::BTreeMap;

use telemetry::Nanos;
use whatif::{Arrival, Laws, Route};

pub use closeness::{Closeness, DispersionPair, PercentilePair};

use run_times::Run;

/// With fewer requests one law cannot be told from another.
pub const REQUESTS_LEN_MIN: usize = 100;
/// A law of run times that is farther from the requests does not fit,
const DISTANCE_MAX: f64 = 0.05;
/// unless chance explains it: by chance one in a thousand exceeds this over the root of the number of requests
/// (Kolmogorov).
const DISTANCE_BY_CHANCE: f64 = 1.95;
/// Routes that get a law of their own; the others share one.
const ROUTES_LEN_MAX: usize = 7;
/// Laws by route have to bring the distance down to this share of it.
const BY_ROUTE_SHARE: f64 = 0.7;

/// Laws, and how well they fit.
#[derive(Clone, PartialEq, Debug)]
pub struct Fitted {
    /// They last as long as the requests.
    pub laws: Laws,
    /// As many as `laws` has routes.
    pub routes: Vec<FittedRoute>,
}

/// How well a route of laws fits.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct FittedRoute {
    /// Requests that have this law.
    pub requests: u64,
    /// The largest difference between the shares of requests that are shorter than some time, of law and
    /// requests; of constants, the share of requests that are more than 2 % off.
    pub distance: f64,
}

impl FittedRoute {
    /// The largest distance of a law that fits.
    pub fn distance_max(&self) -> f64 {
        distance_max(self.requests as usize)
    }
}

fn distance_max(requests: usize) -> f64 {
    DISTANCE_MAX.max(DISTANCE_BY_CHANCE / (requests as f64).sqrt())
}

/// Laws of requests in the order of their arrival; `None` for fewer than [`REQUESTS_LEN_MIN`], or for requests
/// that all arrive at once.
pub fn fit(requests: &[Arrival]) -> Option<Fitted> {
    let at: Vec<u64> = requests.iter().map(|arrival| arrival.at.0).collect();
    let lasts = lasts(&at)?;
    let rates = rates::steps(&at, lasts);
    let process = arrivals::process(&at, &rates);
    let (routes, fits) = by_route(requests).into_iter().unzip();
    Some(Fitted {
        laws: Laws {
            rates,
            process,
            routes,
        },
        routes: fits,
    })
}

/// The time of all gaps and one more, so that the rate is the rate between the requests.
fn lasts(at: &[u64]) -> Option<Nanos> {
    let span = at.last().filter(|last| **last > 0)?;
    let lasts = *span as f64 * at.len() as f64 / (at.len() - 1) as f64;
    (at.len() >= REQUESTS_LEN_MIN).then_some(Nanos(lasts as u64))
}

/// One law for all requests, unless it does not fit and laws by route are much nearer.
fn by_route(requests: &[Arrival]) -> Vec<(Route, FittedRoute)> {
    let mut groups: BTreeMap<u16, Vec<f64>> = BTreeMap::new();
    for arrival in requests {
        let runs = groups.entry(arrival.route).or_default();
        runs.push(arrival.run.0 as f64);
    }
    let whole = route(groups.values().flatten().copied().collect());
    if whole.1.distance > whole.1.distance_max() && groups.len() > 1 {
        let parts = parts(groups);
        let far = parts
            .iter()
            .map(|(_, fit)| fit.requests as f64 * fit.distance);
        if far.sum::<f64>() / requests.len() as f64 <= BY_ROUTE_SHARE * whole.1.distance {
            return parts;
        }
    }
    vec![whole]
}

/// A law for each of the busiest routes, the busiest first, and one for the others.
fn parts(groups: BTreeMap<u16, Vec<f64>>) -> Vec<(Route, FittedRoute)> {
    let mut groups: Vec<Vec<f64>> = groups.into_values().collect();
    groups.sort_by_key(|runs| std::cmp::Reverse(runs.len()));
    let is_own = |runs: &&Vec<f64>| runs.len() >= REQUESTS_LEN_MIN;
    let own_len = groups
        .iter()
        .take(ROUTES_LEN_MAX)
        .take_while(is_own)
        .count();
    let others: Vec<f64> = groups.split_off(own_len).concat();
    groups.extend((!others.is_empty()).then_some(others));
    groups.into_iter().map(route).collect()
}

/// One law for these run times.
fn route(mut runs_ns: Vec<f64>) -> (Route, FittedRoute) {
    let requests = runs_ns.len() as u64;
    let Run { service, distance } = run_times::run(&mut runs_ns);
    let route = Route {
        weight: requests as f64,
        ..Route::only(service)
    };
    (route, FittedRoute { requests, distance })
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use whatif::{ArrivalProcess, Rate, Service};

    /// The requests of these laws as a log has them: times to the microsecond.
    pub(crate) fn logged(laws: &Laws, seed: u64) -> Vec<Arrival> {
        let rounded = |span: Nanos| Nanos(span.0 / 1_000 * 1_000);
        let requests = laws.arrivals(seed).map(|arrival| Arrival {
            at: rounded(arrival.at),
            run: rounded(arrival.run),
            ..arrival
        });
        requests.collect()
    }

    pub(crate) fn laws(process: ArrivalProcess, services: &[(f64, Service)]) -> Laws {
        let route = |&(weight, service)| Route {
            weight,
            ..Route::only(service)
        };
        Laws {
            rates: vec![Rate::steady(200.0, Nanos::from_secs(100))],
            process,
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
    fn requests_give_back_the_law_that_made_them() {
        let bursts = ArrivalProcess::Bursts {
            len_mean: 6.0,
            gap: Nanos::from_us(700),
        };
        for seed in 1..=4 {
            for (process, service) in [
                (ArrivalProcess::Even, EXPONENTIAL),
                (ArrivalProcess::Poisson, TAIL),
                (bursts, EXPONENTIAL),
            ] {
                let made = laws(process, &[(1.0, service)]);
                let found = fit(&logged(&made, seed)).unwrap();
                let kind = std::mem::discriminant::<ArrivalProcess>;
                assert_eq!(
                    kind(&found.laws.process),
                    kind(&process),
                    "{seed}: {found:?}"
                );
                let kind = std::mem::discriminant::<Service>;
                let route = &found.laws.routes[0].service;
                assert_eq!(kind(route), kind(&service), "{seed}: {found:?}");
                assert_eq!(found.laws.rates.len(), 1, "{seed}: {found:?}");
                let rate = found.laws.rates[0].per_second;
                assert!((rate / 200.0 - 1.0).abs() < 0.15, "{seed}: {found:?}");
                let from = found.routes[0];
                assert!(from.distance < from.distance_max(), "{seed}: {found:?}");
            }
        }
    }

    #[test]
    fn routes_have_laws_of_their_own_where_one_does_not_fit() {
        let two = [
            (3.0, EXPONENTIAL),
            (1.0, Service::Constant(Nanos::from_ms(400))),
        ];
        let found = fit(&logged(&laws(ArrivalProcess::Poisson, &two), 1)).unwrap();
        let [fast, slow] = &found.laws.routes[..] else {
            panic!("{found:?}");
        };
        assert!(
            (fast.weight / slow.weight / 3.0 - 1.0).abs() < 0.1,
            "{found:?}"
        );
        assert_eq!(slow.service.mean().0 / 1_000, 400_000);
        // Two routes with the same law need one only.
        let same = [(3.0, EXPONENTIAL), (1.0, EXPONENTIAL)];
        let found = fit(&logged(&laws(ArrivalProcess::Poisson, &same), 1)).unwrap();
        assert_eq!(found.laws.routes.len(), 1);
    }

    #[test]
    fn few_requests_may_be_farther_from_their_law() {
        let mut made = laws(ArrivalProcess::Poisson, &[(1.0, EXPONENTIAL)]);
        made.rates = vec![Rate::steady(20.0, Nanos::from_secs(8))];
        for seed in 1..=20 {
            let from = fit(&logged(&made, seed)).unwrap().routes[0];
            assert!(from.distance < from.distance_max(), "{seed}: {from:?}");
        }
    }

    #[test]
    fn a_handful_of_requests_has_no_law() {
        let mut made = laws(ArrivalProcess::Even, &[(1.0, EXPONENTIAL)]);
        made.rates = vec![Rate::steady(99.0, Nanos::from_secs(1))];
        assert_eq!(fit(&logged(&made, 1)), None);
    }
}
