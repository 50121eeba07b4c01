//! Requests made by laws: when they come, what they are, how long they run.
//!
//! Takes rates, an arrival process and routes, gives arrivals one after another, the same for the same seed,
//! in memory that does not grow with their number. It must not know what becomes of them.

mod service;

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use queueing::Class;
use telemetry::Nanos;

use crate::Arrival;

pub use service::Service;

/// Laws of requests.
#[derive(Clone, PartialEq, Debug)]
pub struct Laws {
    /// Rates, one stretch of time after another; no request comes after the last.
    pub rates: Vec<Rate>,
    /// How requests are spread over time.
    pub process: ArrivalProcess,
    /// What they are; at least one. A route's number is its index.
    pub routes: Vec<Route>,
}

/// A stretch of time with one rate.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Rate {
    /// How long it lasts.
    pub lasts: Nanos,
    /// Requests a second; at least 0.
    pub per_second: f64,
}

impl Rate {
    /// So many requests a second.
    pub fn steady(per_second: f64, lasts: Nanos) -> Rate {
        Rate { lasts, per_second }
    }

    /// How many come in it, in the mean.
    pub fn sum(&self) -> f64 {
        self.per_second * self.lasts.as_secs_f64()
    }
}

/// How requests are spread over time.
#[derive(Clone, Copy, PartialEq, Debug)]
pub enum ArrivalProcess {
    /// All at the same distance.
    Even,
    /// Each by chance, whatever the others do.
    Poisson,
    /// Pages come by chance; each asks for several things.
    Bursts {
        /// Requests of a page in the mean, at least 1; their number is geometric.
        len_mean: f64,
        /// Time from one request of a page to its next.
        gap: Nanos,
    },
}

/// A kind of request.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Route {
    /// Its share is its weight over the sum of all weights; at least 0.
    pub weight: f64,
    /// How long it runs.
    pub service: Service,
    /// The share of each run that needs the lock of its process, if there is one: 0 to 1.
    pub computing: f64,
    /// How much it matters.
    pub class: Class,
}

impl Route {
    /// All requests alike.
    pub fn only(service: Service) -> Route {
        Route {
            weight: 1.0,
            service,
            computing: 0.0,
            class: Class::Normal,
        }
    }
}

impl Laws {
    /// Requests by these laws; the same for the same seed.
    pub fn arrivals(&self, seed: u64) -> LawArrivals {
        assert!(!self.routes.is_empty(), "requests are of some kind");
        let mut random = fastrand::Rng::with_seed(seed);
        let mut ahead = Ahead {
            rates: self.rates.clone().into(),
            begun_secs: 0.0,
            passed: 0.0,
        };
        let next_page = ahead.after(gap(self.process, &mut random));
        LawArrivals {
            process: self.process,
            routes: self.routes.clone(),
            weights: self.routes.iter().map(|route| route.weight).sum(),
            random,
            ahead,
            next_page,
            pages: BinaryHeap::new(),
        }
    }
}

/// Requests made by laws.
#[derive(Clone, Debug)]
pub struct LawArrivals {
    process: ArrivalProcess,
    routes: Vec<Route>,
    weights: f64,
    random: fastrand::Rng,
    ahead: Ahead,
    /// When the next page, or the next single request, comes.
    next_page: Option<Nanos>,
    /// Pages that are not complete: when their next request comes, and how many are left.
    pages: BinaryHeap<Reverse<(Nanos, u64)>>,
}

impl Iterator for LawArrivals {
    type Item = Arrival;

    fn next(&mut self) -> Option<Arrival> {
        // Arrivals are in the order of time, so the earlier one: the next request of an open page, or the next page.
        let at = match (self.pages.peek(), self.next_page) {
            (Some(&Reverse((at, _))), next) if next.is_none_or(|next| at <= next) => self.go_on(at),
            (_, Some(at)) => self.open(at),
            (_, None) => return None,
        };
        let index = self.route();
        let route = &self.routes[index];
        let run = route.service.sample(&mut self.random);
        Some(Arrival {
            at,
            run,
            computing: Nanos((run.0 as f64 * route.computing) as u64),
            route: index as u16,
            class: route.class,
            ..Arrival::default()
        })
    }
}

impl LawArrivals {
    /// The first request of a page, or a single one.
    fn open(&mut self, at: Nanos) -> Nanos {
        self.next_page = self.ahead.after(gap(self.process, &mut self.random));
        if let ArrivalProcess::Bursts { len_mean, gap } = self.process {
            let more = geometric(len_mean - 1.0, &mut self.random);
            if more > 0 {
                self.pages.push(Reverse((Nanos(at.0 + gap.0), more)));
            }
        }
        at
    }

    /// The next request of the page that is due at `at`.
    fn go_on(&mut self, at: Nanos) -> Nanos {
        let page = self.pages.pop();
        if let (Some(Reverse((_, left @ 2..))), ArrivalProcess::Bursts { gap, .. }) =
            (page, self.process)
        {
            self.pages.push(Reverse((Nanos(at.0 + gap.0), left - 1)));
        }
        at
    }

    fn route(&mut self) -> usize {
        if self.routes.len() == 1 {
            return 0;
        }
        let mut left = self.random.f64() * self.weights;
        for (index, route) in self.routes.iter().enumerate() {
            left -= route.weight;
            if left < 0.0 {
                return index;
            }
        }
        // Rounding may leave a little of the weights over.
        self.routes.len() - 1
    }
}

/// How many requests come in the mean until the next page or single request.
fn gap(process: ArrivalProcess, random: &mut fastrand::Rng) -> f64 {
    match process {
        ArrivalProcess::Even => 1.0,
        ArrivalProcess::Poisson => service::exponential(random),
        ArrivalProcess::Bursts { len_mean, .. } => len_mean.max(1.0) * service::exponential(random),
    }
}

/// A number with this mean, from 0.
fn geometric(mean: f64, random: &mut fastrand::Rng) -> u64 {
    if mean <= 0.0 {
        return 0;
    }
    (service::exponential(random) / (1.0 / mean).ln_1p()) as u64
}

/// Rates that are not over, and how much of the first is.
#[derive(Clone, Debug)]
struct Ahead {
    rates: std::collections::VecDeque<Rate>,
    begun_secs: f64,
    passed: f64,
}

impl Ahead {
    /// When so many more have come, in the mean: coming by chance at a changing rate is coming by chance at
    /// rate 1 on a clock that shows how many were to come until now.
    fn after(&mut self, count: f64) -> Option<Nanos> {
        self.passed += count;
        loop {
            let rate = self.rates.front()?;
            let sum = rate.sum();
            if self.passed < sum {
                let secs = self.begun_secs + self.passed / rate.per_second;
                return Some(Nanos((secs * 1e9) as u64));
            }
            // What was left of the stretch counts for the next one: a gap may span several.
            self.passed -= sum;
            self.begun_secs += rate.lasts.as_secs_f64();
            self.rates.pop_front();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SERVICE: Service = Service::Constant(Nanos::from_ms(1));

    fn laws(rates: &[(f64, u64)], process: ArrivalProcess) -> Laws {
        let rate = |&(per_second, secs)| Rate::steady(per_second, Nanos::from_secs(secs));
        Laws {
            rates: rates.iter().map(rate).collect(),
            process,
            routes: vec![Route::only(SERVICE)],
        }
    }

    /// How many come in each second.
    fn by_second(laws: &Laws, seed: u64) -> Vec<usize> {
        let secs: u64 = laws.rates.iter().map(|rate| rate.lasts.0).sum::<u64>() / 1_000_000_000;
        let mut counts = vec![0; secs as usize];
        for arrival in laws.arrivals(seed) {
            counts[(arrival.at.0 / 1_000_000_000) as usize] += 1;
        }
        counts
    }

    #[test]
    fn even_requests_follow_steps_exactly() {
        let check = |rates: &[(f64, u64)], expect: &[usize]| {
            assert_eq!(
                by_second(&laws(rates, ArrivalProcess::Even), 1),
                expect,
                "{rates:?}"
            );
        };
        // The first comes a whole distance after the begin, and none at the very end.
        check(&[(10.0, 3)], &[9, 10, 10]);
        check(&[(10.5, 2), (40.5, 2)], &[10, 10, 41, 40]);
        check(&[(5.5, 1), (0.0, 2), (7.0, 1)], &[5, 0, 0, 7]);
        check(&[(0.0, 2)], &[0, 0]);
    }

    #[test]
    fn requests_by_chance_vary_as_chance_does() {
        let laws = laws(&[(100.0, 2_000)], ArrivalProcess::Poisson);
        let counts = by_second(&laws, 3);
        let mean = counts.iter().sum::<usize>() as f64 / 2_000.0;
        let squares = counts.iter().map(|&count| (count as f64 - mean).powi(2));
        let variance = squares.sum::<f64>() / 2_000.0;
        assert!((mean - 100.0).abs() < 1.0, "{mean}");
        assert!((variance / mean - 1.0).abs() < 0.1, "{variance}");
    }

    #[test]
    fn pages_ask_for_several_things_at_a_distance() {
        let gap = Nanos::from_us(5);
        let process = ArrivalProcess::Bursts {
            len_mean: 15.0,
            gap,
        };
        let laws = laws(&[(30.0, 20_000)], process);
        let times: Vec<_> = laws.arrivals(5).map(|arrival| arrival.at.0).collect();
        assert!(times.is_sorted());
        let per_second = times.len() as f64 / 20_000.0;
        assert!((per_second / 30.0 - 1.0).abs() < 0.03, "{per_second}");
        // Two pages a second hardly ever overlap.
        let within = times.windows(2).filter(|pair| pair[1] - pair[0] == gap.0);
        let pages = times.len() - within.count();
        let len_mean = times.len() as f64 / pages as f64;
        assert!((len_mean / 15.0 - 1.0).abs() < 0.1, "{len_mean}");
    }

    #[test]
    fn routes_come_by_their_weights() {
        let route = |weight, class| Route {
            weight,
            service: SERVICE,
            computing: 0.0,
            class,
        };
        let mut laws = laws(&[(1_000.0, 50)], ArrivalProcess::Poisson);
        laws.routes = vec![
            route(1.0, Class::High),
            route(0.0, Class::Low),
            route(3.0, Class::Normal),
        ];
        let mut counts = [0; 3];
        for arrival in laws.arrivals(1) {
            assert_eq!(arrival.class, laws.routes[usize::from(arrival.route)].class);
            counts[usize::from(arrival.route)] += 1;
        }
        assert_eq!(counts[1], 0);
        let share = f64::from(counts[0]) / f64::from(counts[0] + counts[2]);
        assert!((share - 0.25).abs() < 0.01, "{share}");
    }
}
