//! Slow routes: which of them have a pool of their own by now, by how long they usually run.
//!
//! Takes the run times of requests, by method and path, and says to which pool the next of their like goes.
//! A bounded table: a client that asks for many paths makes it forget, and what is forgotten goes where the rules
//! say. Reads no clock, logs nothing; one lock for each part of the table.

use std::hash::{BuildHasher, Hasher, RandomState};
use std::sync::Mutex;

use telemetry::{Nanos, folded_segment, push_folded};

use crate::sync::lock;
use config::typed::Config;

/// Parts of the table, each with a lock.
const SHARDS_LEN: usize = 16;
/// Routes of one part; of the whole table 1,024.
const ROUTES_LEN_MAX: usize = 1024 / SHARDS_LEN;
/// Runs that a route is judged by.
const RUNS_LEN: usize = 16;

/// The routes of one process that are watched for slowness.
#[derive(Debug)]
pub(crate) struct Slow {
    /// Index and name of the pool that takes the slow ones.
    pool: u16,
    pool_name: String,
    after: Nanos,
    hasher: RandomState,
    shards: [Mutex<Shard>; SHARDS_LEN],
}

/// A route that has changed its pool.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct RouteMove {
    /// It goes to the pool of the slow ones now, else back to where the rules say.
    pub(crate) is_slow: bool,
    /// For the error log.
    pub(crate) text: String,
}

#[derive(Debug, Default)]
struct Shard {
    routes: Vec<Route>,
    /// Counts what is seen, so that the least recently seen is known.
    seen: u64,
}

#[derive(Debug)]
struct Route {
    key: u64,
    name: Box<str>,
    /// The last of them, by turns; what has not been counts as quick.
    runs: [Nanos; RUNS_LEN],
    next: usize,
    is_slow: bool,
    seen: u64,
}

impl Slow {
    /// Nothing where it is not wished.
    pub(crate) fn new(config: &Config) -> Option<Self> {
        let wish = config.slow_pool?;
        Some(Self {
            pool: u16::try_from(wish.pool).expect("the number of pools is checked"),
            pool_name: config.pools[wish.pool].name.clone(),
            after: wish.after,
            hasher: RandomState::new(),
            shards: Default::default(),
        })
    }

    /// Index of the pool that takes the slow ones.
    pub(crate) fn pool(&self) -> u16 {
        self.pool
    }

    /// Whether requests of this method and path go to the pool of the slow ones. For those only that the
    /// rules leave to the first pool: who wrote a rule has decided.
    pub(crate) fn has(&self, method: &[u8], path: &[u8]) -> bool {
        let key = self.key(method, path);
        let mut shard = lock(self.shard(key));
        shard.find(key).is_some_and(|route| route.is_slow)
    }

    /// Notes a run; gives the turn that it brings about. `pool` is where it ran: runs in pools of rules say
    /// nothing about the first one.
    pub(crate) fn ran(
        &self,
        method: &[u8],
        path: &[u8],
        pool: u16,
        run: Nanos,
    ) -> Option<RouteMove> {
        if pool != 0 && pool != self.pool {
            return None;
        }
        let key = self.key(method, path);
        let mut shard = lock(self.shard(key));
        if pool == 0 && shard.find(key).is_none() {
            shard.add(key, name(method, path));
        }
        // What ran among the slow ones and is not known was sent there by a rule, or is forgotten.
        let route = shard.find(key)?;
        route.runs[route.next] = run;
        route.next = (route.next + 1) % RUNS_LEN;
        let median = route.turn(self.after)?;
        route.is_slow = !route.is_slow;
        let is_slow = route.is_slow;
        let name = route.name.clone();
        drop(shard);
        let text = self.text(is_slow, &name, median);
        Some(RouteMove { is_slow, text })
    }

    fn text(&self, is_slow: bool, name: &str, median: Nanos) -> String {
        let (median, after) = (median.as_secs_f64(), self.after.as_secs_f64());
        let pool = &self.pool_name;
        let usual = format!("its usual run is {median:.3} s");
        match is_slow {
            true => format!(
                "slow route: {name} goes to pool `{pool}` from now on: {usual}, slow_after is {after:.3} s"
            ),
            false => format!(
                "slow route: {name} leaves pool `{pool}`: {usual}, less than half of slow_after ({after:.3} s)"
            ),
        }
    }

    /// Mixed with what no client knows: no client can choose paths that take each other's place.
    fn key(&self, method: &[u8], path: &[u8]) -> u64 {
        let mut hasher = self.hasher.build_hasher();
        hasher.write(method);
        for segment in path.split(|byte| *byte == b'/') {
            hasher.write_u8(b'/');
            hasher.write(folded_segment(segment));
        }
        hasher.finish()
    }

    fn shard(&self, key: u64) -> &Mutex<Shard> {
        &self.shards[key as usize % SHARDS_LEN]
    }
}

impl Shard {
    fn find(&mut self, key: u64) -> Option<&mut Route> {
        self.seen += 1;
        let route = self.routes.iter_mut().find(|route| route.key == key)?;
        route.seen = self.seen;
        Some(route)
    }

    /// Takes the place of the one that was not seen for longest, if there is no other.
    fn add(&mut self, key: u64, name: Box<str>) {
        let route = Route {
            key,
            name,
            runs: [Nanos(0); RUNS_LEN],
            next: 0,
            is_slow: false,
            seen: self.seen,
        };
        if self.routes.len() < ROUTES_LEN_MAX {
            return self.routes.push(route);
        }
        let oldest = self.routes.iter_mut().min_by_key(|route| route.seen);
        *oldest.expect("a full part has routes") = route;
    }
}

impl Route {
    /// Its usual run, if it is to change its pool. Of the two in the middle the lower one
    /// is long only when most are, and the upper one short only when most are: between them things stay as they
    /// are.
    fn turn(&self, after: Nanos) -> Option<Nanos> {
        let mut runs = self.runs;
        let (below, upper, _) = runs.select_nth_unstable(RUNS_LEN / 2);
        let lower = below.iter().copied().max().unwrap_or_default();
        match self.is_slow {
            false if lower > after => Some(lower),
            true if *upper < Nanos(after.0 / 2) => Some(*upper),
            _ => None,
        }
    }
}

fn name(method: &[u8], path: &[u8]) -> Box<str> {
    let mut name = Vec::new();
    push_folded(method, path, &mut name);
    String::from_utf8_lossy(&name).into()
}

#[cfg(test)]
mod tests {
    use super::*;
    use config::typed::{PoolConfig, SlowPool};

    const AFTER: Nanos = Nanos::from_ms(100);

    fn slow() -> Slow {
        let pool = |name: &str| PoolConfig {
            name: name.to_owned(),
            ..PoolConfig::default()
        };
        let config = Config {
            pools: vec![pool("default"), pool("reports"), pool("slow")],
            slow_pool: Some(SlowPool {
                pool: 2,
                after: AFTER,
            }),
            ..Config::default()
        };
        Slow::new(&config).unwrap()
    }

    /// Runs of so many milliseconds, where the table sends them; which turns they bring about.
    fn run(slow: &Slow, path: &str, runs_ms: &[u64]) -> Vec<(usize, bool)> {
        let turns = runs_ms.iter().enumerate().filter_map(|(index, ms)| {
            let pool = match slow.has(b"GET", path.as_bytes()) {
                true => slow.pool(),
                false => 0,
            };
            let turn = slow.ran(b"GET", path.as_bytes(), pool, Nanos::from_ms(*ms))?;
            Some((index, turn.is_slow))
        });
        turns.collect()
    }

    #[test]
    fn is_not_there_unless_wished() {
        assert!(Slow::new(&Config::default()).is_none());
    }

    #[test]
    fn sends_a_route_away_once_most_of_its_runs_are_slow() {
        let slow = slow();
        assert_eq!(run(&slow, "/a", &[101; 8]), []);
        assert!(!slow.has(b"GET", b"/a"));
        assert_eq!(run(&slow, "/a", &[101; 20]), [(0, true)]);
        assert!(slow.has(b"GET", b"/a"));
        assert!(!slow.has(b"POST", b"/a"));
        assert!(!slow.has(b"GET", b"/b"));
    }

    #[test]
    fn leaves_a_route_that_is_slow_now_and_then_where_it_is() {
        let slow = slow();
        for _ in 0..10 {
            assert_eq!(run(&slow, "/a", &[500, 1]), []);
        }
        assert_eq!(run(&slow, "/b", &[100; 50]), []);
    }

    #[test]
    fn takes_a_route_back_once_it_is_quick_by_half() {
        let slow = slow();
        run(&slow, "/a", &[200; 16]);
        assert_eq!(run(&slow, "/a", &[50; 32]), []);
        assert!(slow.has(b"GET", b"/a"));
        assert_eq!(run(&slow, "/a", &[49; 16]), [(8, false)]);
        assert!(!slow.has(b"GET", b"/a"));
    }

    #[test]
    fn a_route_of_which_every_other_run_is_slow_does_not_come_and_go() {
        let slow = slow();
        assert_eq!(run(&slow, "/a", &[200; 16]).len(), 1);
        assert_eq!(run(&slow, "/a", &[200, 49].repeat(50)), []);
        let slow = self::slow();
        assert_eq!(run(&slow, "/a", &[200, 49].repeat(50)), []);
    }

    #[test]
    fn says_each_turn_once_and_what_it_is_about() {
        let slow = slow();
        let path = b"/reports/2024/0123456789abcdef";
        let ran = |ms| {
            let pool = if slow.has(b"GET", path) { 2 } else { 0 };
            slow.ran(b"GET", path, pool, Nanos::from_ms(ms))
        };
        let turns: Vec<RouteMove> = [150; 30].into_iter().filter_map(ran).collect();
        assert_eq!(turns.len(), 1);
        assert_eq!(
            turns[0].text,
            "slow route: GET /reports/*/* goes to pool `slow` from now on: its usual run is 0.150 s, \
             slow_after is 0.100 s"
        );
        let turns: Vec<RouteMove> = [10; 30].into_iter().filter_map(ran).collect();
        assert_eq!(turns.len(), 1);
        assert_eq!(
            turns[0].text,
            "slow route: GET /reports/*/* leaves pool `slow`: its usual run is 0.010 s, less than half of \
             slow_after (0.100 s)"
        );
    }

    #[test]
    fn does_not_look_at_runs_in_pools_of_rules() {
        let slow = slow();
        for _ in 0..30 {
            let in_reports = slow.ran(b"GET", b"/a", 1, Nanos::from_secs(1));
            let in_slow = slow.ran(b"GET", b"/a", 2, Nanos::from_secs(1));
            assert_eq!((in_reports, in_slow), (None, None));
        }
        assert!(!slow.has(b"GET", b"/a"));
    }

    #[test]
    fn takes_paths_for_one_that_differ_in_numbers_only() {
        let slow = slow();
        run(&slow, "/users/1", &[200; 5]);
        assert_eq!(run(&slow, "/users/22", &[200; 5]), [(3, true)]);
    }

    #[test]
    fn forgets_what_was_not_seen_for_longest_and_never_grows_beyond_its_bound() {
        let slow = slow();
        run(&slow, "/kept", &[200; 16]);
        run(&slow, "/forgotten", &[200; 16]);
        for number in 0..20_000 {
            run(&slow, &format!("/x{number}"), &[1]);
            assert!(slow.has(b"GET", b"/kept"), "{number}");
        }
        assert!(!slow.has(b"GET", b"/forgotten"));
        let routes_len: usize = slow
            .shards
            .iter()
            .map(|shard| lock(shard).routes.len())
            .sum();
        assert_eq!(routes_len, 1024);
    }
}
