//! The bandwidth limits of responses.
//!
//! Takes the configured rates and a response's route, gives a handle to the bucket that counts its bytes; the
//! arithmetic is `stage`'s, waiting is the sender's. Reads no clock, and holds its lock only for that arithmetic.
//!
//! The narrowest scope that is set decides alone: the response's own rate, the connection's, the route's, the
//! pool's. `off` counts as set: it lifts the limits of the wider scopes.

use std::sync::{Arc, Mutex};

use queueing::Bucket;
use telemetry::Stamp;

use crate::service::Router;
use crate::sync::{invariant, lock};
use config::typed::{self, Rate};

/// The bandwidth limits of a process.
pub(crate) struct Bandwidth {
    /// Nothing is configured: only a response with a rate of its own has a limit.
    pub(crate) is_empty: bool,
    connection: Option<Rate>,
    /// By the route's index: what is configured for the route, or for the pool behind it.
    routes: Vec<Option<RouteLimit>>,
}

/// What is set for a scope that responses share.
enum RouteLimit {
    Unlimited,
    Limited(Arc<Mutex<Bucket>>),
}

/// A handle to the bucket that counts a response's bytes.
pub(crate) enum BandwidthLimit {
    /// The response's alone.
    Reply(Bucket),
    /// Its connection's.
    Connection(Bucket),
    /// Its route's or pool's.
    Shared(Arc<Mutex<Bucket>>),
}

impl Bandwidth {
    /// `route_names`: the routes by their index, as `Config::route_names` gives them. A prefix is that of a
    /// mount, or the root for the application where no mount has it; another one limits nothing. Of two
    /// rates of one route the later counts.
    pub(crate) fn new(rates: &typed::Rates, route_names: &[String]) -> Self {
        let mut routes: Vec<Option<RouteLimit>> = route_names.iter().map(|_| None).collect();
        for (prefix, rate) in &rates.routes {
            if let Some(index) = route_of(prefix, route_names) {
                routes[index] = Some(RouteLimit::new(*rate));
            }
        }
        // Behind the application's route there is the pool, and behind no other.
        if let Some(app) = routes.get_mut(usize::from(Router::APP)) {
            *app = app.take().or_else(|| rates.pool.map(RouteLimit::new));
        }
        Self {
            is_empty: rates.connection.is_none() && routes.iter().all(Option::is_none),
            connection: rates.connection,
            routes,
        }
    }

    /// Whether responses of `route` that have no rate of their own are under a limit.
    pub(crate) fn is_limited(&self, route: u16) -> bool {
        match self.connection {
            Some(rate) => rate != Rate::Unlimited,
            None => matches!(self.scope(route), Some(RouteLimit::Limited(_))),
        }
    }

    /// The limit of a response of `route`; `None` for no limit. `own` is the rate that the application has set for it.
    /// `last` is the limit of the connection's response before: a connection's bucket is used again as it is, or a
    /// client would get as many bursts as it sends requests.
    pub(crate) fn limit(
        &self,
        last: Option<BandwidthLimit>,
        route: u16,
        own: Option<Rate>,
    ) -> Option<BandwidthLimit> {
        Some(match (own, self.connection) {
            (Some(rate), _) => BandwidthLimit::Reply(bucket(rate)?),
            (None, Some(rate)) => match last {
                Some(limit @ BandwidthLimit::Connection(_)) => limit,
                _ => BandwidthLimit::Connection(bucket(rate)?),
            },
            (None, None) => match self.scope(route)? {
                RouteLimit::Unlimited => return None,
                RouteLimit::Limited(shared) => BandwidthLimit::Shared(Arc::clone(shared)),
            },
        })
    }

    fn scope(&self, route: u16) -> Option<&RouteLimit> {
        self.routes.get(usize::from(route))?.as_ref()
    }
}

impl RouteLimit {
    fn new(rate: Rate) -> Self {
        match bucket(rate) {
            None => Self::Unlimited,
            Some(bucket) => Self::Limited(Arc::new(Mutex::new(bucket))),
        }
    }
}

impl BandwidthLimit {
    /// Reserves the next piece of `bytes` (at least 1): the time from which on it may be sent (`now`: at once), and its
    /// bytes, at least 1. A reservation counts, sent or not, unless it is given back.
    pub(crate) fn reserve(&mut self, bytes: u64, now: Stamp) -> (Stamp, u64) {
        // A bucket grants 1 byte at least: a sender without any would take a byte of the others in each turn.
        invariant!(bytes > 0, "a sender without bytes reserves bandwidth");
        match self {
            BandwidthLimit::Reply(bucket) | BandwidthLimit::Connection(bucket) => {
                bucket.turn(bytes, now)
            }
            BandwidthLimit::Shared(shared) => lock(shared).turn(bytes, now),
        }
    }

    /// Gives back a reservation of `bytes` that will not be sent.
    pub(crate) fn give_back(&mut self, bytes: u64) {
        match self {
            BandwidthLimit::Reply(bucket) | BandwidthLimit::Connection(bucket) => {
                bucket.give_back(bytes);
            }
            BandwidthLimit::Shared(shared) => lock(shared).give_back(bytes),
        }
    }
}

/// A full bucket for a rate, if it is a limit.
fn bucket(rate: Rate) -> Option<Bucket> {
    match rate {
        Rate::Unlimited => None,
        Rate::BytesPerSec(rate) => Some(Bucket::new(rate, Bucket::burst_for(rate))),
    }
}

/// The index of the route that has `prefix`; the root is the application's unless a mount has it.
fn route_of(prefix: &str, route_names: &[String]) -> Option<usize> {
    let name = match prefix.trim_end_matches('/') {
        "" => "/",
        prefix => prefix,
    };
    let first = usize::from(Router::FILES);
    let mounts = route_names.get(first..).unwrap_or_default();
    match mounts.iter().position(|mount| mount == name) {
        Some(mount) => Some(first + mount),
        None => (name == "/").then_some(usize::from(Router::APP)),
    }
}

#[cfg(test)]
mod tests {
    use std::thread;

    use telemetry::Nanos;

    use super::*;

    const NOW: Stamp = Stamp(1_000_000_000);
    const STATUS: u16 = 1;
    const APP: u16 = Router::APP;
    const STATIC: u16 = Router::FILES;
    const OTHER: u16 = Router::FILES + 1;

    fn names(mounts: &[&str]) -> Vec<String> {
        let mount = |url: &&str| typed::StaticMount {
            url: (*url).to_owned(),
            dir: "/".into(),
            index: "index.html".to_owned(),
            fallback: None,
        };
        let config = typed::Config {
            statics: mounts.iter().map(mount).collect(),
            ..typed::Config::default()
        };
        config.route_names()
    }

    fn kb(kb: u64) -> Option<Rate> {
        Some(Rate::BytesPerSec(kb << 10))
    }

    fn rates(connection: Option<Rate>, routes: &[(&str, Rate)], pool: Option<Rate>) -> Bandwidth {
        let routes = routes.iter().map(|&(prefix, rate)| (prefix.into(), rate));
        let meant = typed::Rates {
            connection,
            routes: routes.collect(),
            pool,
        };
        Bandwidth::new(&meant, &names(&["/static", "/other"]))
    }

    const OFF: Option<Rate> = Some(Rate::Unlimited);

    #[test]
    fn the_pool_is_behind_the_application_alone() {
        let rates = rates(None, &[], kb(10));
        for route in [Router::NONE, STATUS, Router::RULES, STATIC, OTHER] {
            assert!(rates.limit(None, route, None).is_none() && !rates.is_limited(route));
        }
        assert!(rates.limit(None, APP, None).is_some());
        assert!(rates.limit(None, 99, None).is_none(), "no route");
    }

    #[test]
    fn a_connections_limit_is_about_every_reply() {
        let rates = rates(kb(10), &[], None);
        for route in [Router::NONE, STATUS, APP, STATIC, OTHER] {
            assert!(rates.limit(None, route, None).is_some() && rates.is_limited(route));
        }
    }

    #[test]
    fn a_route_is_named_by_its_prefix() {
        let check = |prefix: &str, mounts: &[&str], expect: Option<u16>| {
            let meant = typed::Rates {
                routes: vec![(prefix.into(), Rate::BytesPerSec(1))],
                ..typed::Rates::default()
            };
            let names = names(mounts);
            let rates = Bandwidth::new(&meant, &names);
            let limited = |route: &u16| rates.is_limited(*route);
            let found: Vec<u16> = (0..names.len() as u16).filter(limited).collect();
            assert_eq!(found, Vec::from_iter(expect), "{prefix} of {mounts:?}");
        };
        check("/static", &["/static", "/other"], Some(STATIC));
        check("/static/", &["/static", "/other"], Some(STATIC));
        check("/other", &["/static", "/other"], Some(OTHER));
        check("", &["/static", "/other"], Some(APP));
        check("/", &["/static", "/other"], Some(APP));
        check("", &["/static", ""], Some(OTHER));
        check("/", &["/static", ""], Some(OTHER));
        check("/stat", &["/static"], None);
        check("app", &["/static"], None);
        check("none", &[], None);
    }

    #[test]
    fn replies_of_a_route_share_its_bucket() {
        let rates = rates(None, &[("/static", Rate::BytesPerSec(1 << 20))], None);
        let mut one = rates.limit(None, STATIC, None).expect("it is set");
        let mut other = rates.limit(None, STATIC, None).expect("it is set");
        while one.reserve(u64::MAX, NOW).0 == NOW {}
        let (from, bytes) = other.reserve(u64::MAX, NOW);
        assert!(from > NOW);
        let (next, _) = one.reserve(u64::MAX, NOW);
        assert_eq!(next.since(from), Nanos((bytes * 1_000_000_000) >> 20));
    }

    #[test]
    fn a_connections_bucket_goes_on_with_its_next_reply() {
        let rates = rates(kb(10), &[], None);
        let used = |own| {
            let mut limit = rates.limit(None, STATIC, own).expect("it is set");
            while limit.reserve(u64::MAX, NOW).0 == NOW {}
            Some(limit)
        };
        let first =
            |limit: Option<BandwidthLimit>| limit.expect("it is set").reserve(u64::MAX, NOW).0;
        assert!(first(rates.limit(used(None), APP, None)) > NOW);
        // A reply's own bucket is not its connection's.
        assert_eq!(first(rates.limit(used(kb(5)), APP, None)), NOW);
        assert_eq!(first(rates.limit(used(kb(5)), APP, kb(5))), NOW);
        assert_eq!(first(rates.limit(used(None), APP, kb(5))), NOW);
        assert!(rates.limit(used(None), APP, OFF).is_none());
    }

    #[test]
    fn a_small_reply_takes_no_more_than_it_needs() {
        let rates = rates(None, &[], Some(Rate::BytesPerSec(1_000)));
        let mut limit = rates.limit(None, APP, None).expect("it is set");
        for _ in 0..(16 << 10) / 100 {
            assert_eq!(limit.reserve(100, NOW), (NOW, 100));
        }
        assert_eq!(limit.reserve(100, NOW), (NOW, 84));
        // The burst is used up; a turn is the twentieth part of a second.
        let later = NOW.plus(Nanos::from_ms(50));
        assert_eq!(limit.reserve(100, NOW), (later, 50));
    }

    #[test]
    fn threads_that_share_a_limit_get_no_more_than_it_gives() {
        let rates = rates(None, &[], Some(Rate::BytesPerSec(1_000_000)));
        let until = NOW.plus(Nanos::from_secs(10));
        let granted = || {
            let mut limit = rates.limit(None, APP, None).expect("it is set");
            let (mut now, mut sum) = (NOW, 0);
            while now < until {
                let (from, bytes) = limit.reserve(u64::MAX, now);
                sum += if from < until { bytes } else { 0 };
                now = from;
            }
            sum
        };
        let sum: u64 = thread::scope(|scope| {
            let threads: Vec<_> = (0..4).map(|_| scope.spawn(granted)).collect();
            let sums = threads.into_iter().map(|thread| thread.join());
            sums.map(|sum| sum.expect("it has no reason to panic"))
                .sum()
        });
        assert!(sum <= 10_000_000 + Bucket::burst_for(1_000_000), "{sum}");
        assert!(sum >= 9_900_000, "{sum}");
    }

    #[test]
    #[should_panic(expected = "a sender without bytes reserves bandwidth")]
    fn nothing_is_reserved_for_nothing() {
        let rates = rates(kb(10), &[], None);
        let limit = rates.limit(None, STATIC, None);
        limit.expect("it is set").reserve(0, NOW);
    }
}
