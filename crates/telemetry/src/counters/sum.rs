//! What all processes have counted, added up straight from their counters: no process gets a snapshot of its own.
//!
//! A scrape reads thousands of distributions, each of up to 9 KB. They are read once, into the places where their sums
//! are; a place is found by its number, and by name only where processes of two configurations differ.

use std::collections::HashMap;
use std::collections::hash_map::Entry;

use super::{
    DriverSnapshot, DriverStats, EventLoopStats, LogSnapshot, LogStats, PoolSnapshot, PoolStats,
    RouteCounters, RouteSnapshot, SpoolStats, StatsSnapshot, UpstreamSnapshot, UpstreamStats,
};

/// The name of all routes together that have no label of their own.
pub const OTHER_ROUTES: &str = "other";

/// Sums over processes, of which some may have ended.
#[derive(Debug, Default)]
pub struct StatsSum {
    total: StatsSnapshot,
    /// Where a route is, by its name; known once a process has other routes than those before it.
    routes: Option<HashMap<String, usize>>,
    /// Routes that are not among the total's are added to [`OTHER_ROUTES`].
    is_closed: bool,
}

impl StatsSum {
    /// Of nothing until now; each route gets a place by its name.
    pub fn new() -> StatsSum {
        StatsSum::default()
    }

    /// Of nothing until now; these routes get a place each, in this order, and all others get one together.
    pub fn of_routes<'a>(names: impl IntoIterator<Item = &'a str>) -> StatsSum {
        let routes = names.into_iter().map(RouteSnapshot::named);
        StatsSum {
            total: StatsSnapshot {
                routes: routes.collect(),
                ..StatsSnapshot::default()
            },
            is_closed: true,
            ..StatsSum::default()
        }
    }

    /// Adds what others have counted: drivers of the same number, pools and routes of the same name.
    pub fn add(&mut self, other: &StatsSnapshot) {
        for driver in &other.drivers {
            self.driver(driver.driver).add(driver);
        }
        for (index, pool) in other.pools.iter().enumerate() {
            self.pool(index, &pool.name).figures.add(&pool.figures);
        }
        self.total.event_loop.add(&other.event_loop);
        for (index, route) in other.routes.iter().enumerate() {
            self.route(index, &route.route).add(route);
        }
        for (index, server) in other.upstreams.iter().enumerate() {
            let name = (&*server.upstream, &*server.server);
            self.upstream(index, name).add(server);
        }
        for log in &other.logs {
            self.log(&log.log).figures.add(&log.figures);
        }
        self.total.spool.add(&other.spool);
    }

    /// Adds what the driver with this number of a process has counted.
    pub fn add_driver(&mut self, number: usize, counters: &DriverStats) {
        self.driver(number).add(&counters.snapshot(number));
    }

    /// Adds what the pool with this number and name of a process has counted.
    pub fn add_pool(&mut self, index: usize, name: &str, counters: &PoolStats) {
        self.pool(index, name).figures.add(&counters.numbers());
    }

    /// Adds what the event loop of a process has counted.
    pub fn add_event_loop(&mut self, counters: &EventLoopStats) {
        self.total.event_loop.add(&counters.numbers());
    }

    /// Adds what the route with this number and name of a process has counted.
    pub fn add_route(&mut self, index: usize, name: &str, counters: RouteCounters<'_>) {
        self.route(index, name).add_counted(counters);
    }

    /// Adds what a process has counted of the server with this number, and these names of its group and itself.
    pub fn add_upstream(&mut self, index: usize, name: (&str, &str), counters: &UpstreamStats) {
        self.upstream(index, name).add_counted(counters);
    }

    /// Adds what a process has counted of its log with this name.
    pub fn add_log(&mut self, name: &str, counters: &LogStats) {
        self.log(name).figures.add(&counters.numbers());
    }

    /// Adds what a process has counted of its spool folder.
    pub fn add_spool(&mut self, counters: &SpoolStats) {
        self.total.spool.add(&counters.numbers());
    }

    /// All together.
    pub fn finish(mut self) -> StatsSnapshot {
        let routes = self.total.routes.iter_mut();
        routes.for_each(RouteSnapshot::sum_series);
        self.total
    }

    fn driver(&mut self, number: usize) -> &mut DriverSnapshot {
        let new = || DriverSnapshot {
            driver: number,
            ..DriverSnapshot::default()
        };
        let drivers = &mut self.total.drivers;
        place(drivers, number, |driver| driver.driver == number, new)
    }

    fn pool(&mut self, index: usize, name: &str) -> &mut PoolSnapshot {
        let new = || PoolSnapshot {
            name: name.to_owned(),
            ..PoolSnapshot::default()
        };
        place(&mut self.total.pools, index, |pool| pool.name == name, new)
    }

    fn upstream(&mut self, index: usize, (group, server): (&str, &str)) -> &mut UpstreamSnapshot {
        let new = || UpstreamSnapshot {
            upstream: group.to_owned(),
            server: server.to_owned(),
            ..UpstreamSnapshot::default()
        };
        let is_it = |one: &UpstreamSnapshot| one.upstream == group && one.server == server;
        place(&mut self.total.upstreams, index, is_it, new)
    }

    fn log(&mut self, name: &str) -> &mut LogSnapshot {
        let new = || LogSnapshot {
            log: name.to_owned(),
            ..LogSnapshot::default()
        };
        place(&mut self.total.logs, 0, |log| log.log == name, new)
    }

    fn route(&mut self, index: usize, name: &str) -> &mut RouteSnapshot {
        let index = self.route_place(index, name);
        &mut self.total.routes[index]
    }

    fn route_place(&mut self, index: usize, name: &str) -> usize {
        let routes = &mut self.total.routes;
        // Processes of one configuration have the same routes at the same places.
        if routes.get(index).is_some_and(|route| route.route == name) {
            return index;
        }
        // The first process of all finds no place, and makes them one after the other.
        let known = self.routes.get_or_insert_with(|| {
            let names = routes.iter().enumerate();
            names
                .map(|(place, route)| (route.route.clone(), place))
                .collect()
        });
        if let Some(place) = known.get(name) {
            return *place;
        }
        let name = match self.is_closed {
            true => OTHER_ROUTES,
            false => name,
        };
        match known.entry(name.to_owned()) {
            Entry::Occupied(known) => *known.get(),
            Entry::Vacant(free) => {
                routes.push(RouteSnapshot::named(name));
                *free.insert(routes.len() - 1)
            }
        }
    }
}

impl From<StatsSnapshot> for StatsSum {
    /// Of these; each route gets a place by its name.
    fn from(total: StatsSnapshot) -> StatsSum {
        StatsSum {
            total,
            ..StatsSum::default()
        }
    }
}

/// The one that is meant: most likely at `index`, else anywhere, else a new one behind all.
fn place<T>(
    all: &mut Vec<T>,
    index: usize,
    is_it: impl Fn(&T) -> bool,
    new: impl FnOnce() -> T,
) -> &mut T {
    let found = match all.get(index).is_some_and(&is_it) {
        true => Some(index),
        false => all.iter().position(is_it),
    };
    let index = found.unwrap_or_else(|| {
        all.push(new());
        all.len() - 1
    });
    &mut all[index]
}

#[cfg(test)]
mod tests;
