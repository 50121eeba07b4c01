//! Routes of a log by number, and the pools that they go to.
//!
//! Takes what lines say, gives numbers. A route is a folded path (`/orders/*`); it has one pool. Only so many have a
//! number of their own: later ones count together.

use std::collections::HashMap;

use report::path;
use telemetry::{Line, push_folded};
use whatif::prediction::Threads;
use whatif::recorded::{POOLS_LEN_MAX, ROUTES_LEN_MAX};

use super::flags::threads;

/// A pool of its own for some paths.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct PoolRule {
    pub(super) name: String,
    pub(super) threads: Threads,
    paths: Vec<String>,
}

impl PoolRule {
    /// `NAME=THREADS PATH...`; a `*` in a path stands for anything.
    pub(super) fn parse(text: &str) -> Result<PoolRule, String> {
        let wrong = || format!("expected a pool as 'slow=1:2 /reports/*', found `{text}`");
        let mut words = text.split_whitespace();
        let (name, count) = words
            .next()
            .and_then(|word| word.split_once('='))
            .ok_or_else(wrong)?;
        let paths: Vec<String> = words.map(str::to_owned).collect();
        let are_paths = paths.iter().all(|path| path.starts_with(['/', '*']));
        if name.is_empty() || paths.is_empty() || !are_paths {
            return Err(wrong());
        }
        Ok(PoolRule {
            name: name.to_owned(),
            threads: threads(count)?,
            paths,
        })
    }

    fn has(&self, path: &[u8]) -> bool {
        self.paths.iter().any(|glob| is_like(glob.as_bytes(), path))
    }
}

/// Whether a path is like a glob.
fn is_like(glob: &[u8], path: &[u8]) -> bool {
    let (mut at, mut from) = (0, 0);
    // The last star, and what it has eaten so far.
    let mut star: Option<(usize, usize)> = None;
    while from < path.len() {
        if glob.get(at) == Some(&b'*') {
            star = Some((at, from));
            at += 1;
        } else if glob.get(at) == Some(&path[from]) {
            (at, from) = (at + 1, from + 1);
        } else if let Some((star_at, eaten)) = star {
            (at, from) = (star_at + 1, eaten + 1);
            star = Some((star_at, eaten + 1));
        } else {
            return false;
        }
    }
    glob[at..].iter().all(|byte| *byte == b'*')
}

/// Numbers of routes and pools.
#[derive(Debug, Default)]
pub(super) struct Routes {
    rules: Vec<PoolRule>,
    /// Paths whose steps are to run in threads.
    in_threads: Vec<String>,
    /// Names of the log's pools.
    pools: Vec<Vec<u8>>,
    numbers: HashMap<Vec<u8>, u16>,
    routes: Vec<RouteSeen>,
    key: Vec<u8>,
}

/// A route's and a pool's number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Numbers {
    pub(super) route: u16,
    pub(super) pool: u8,
}

/// What is known of a route.
#[derive(Clone, Debug, Default)]
struct RouteSeen {
    /// Its folded path; empty where many count together.
    path: Vec<u8>,
    /// Its pool in the log.
    pool: u8,
    rule: Option<usize>,
    /// Its steps are to run in threads.
    in_threads: bool,
    /// The path of its first request, where that decides something.
    example: Vec<u8>,
    requests_len: u64,
}

/// Routes with a name; the others are one for each pool and rule.
const NAMED_LEN_MAX: usize = ROUTES_LEN_MAX / 2;

impl Routes {
    pub(super) fn new(rules: &[PoolRule], in_threads: &[String]) -> Routes {
        Routes {
            rules: rules.to_vec(),
            in_threads: in_threads.to_vec(),
            ..Routes::default()
        }
    }

    /// The numbers of a request.
    pub(super) fn numbers(&mut self, line: &Line<'_>) -> Numbers {
        let pool = self.pool(line.pool);
        let path = path(line);
        let rule = self.rules.iter().position(|rule| rule.has(&path));
        let is_like_path = |glob: &String| is_like(glob.as_bytes(), &path);
        let in_threads = self.in_threads.iter().any(is_like_path);
        self.key.clear();
        let rule_number = rule.map_or(u8::MAX, |rule| rule as u8);
        self.key.extend([pool, rule_number, u8::from(in_threads)]);
        let named_at = self.key.len();
        push_folded(b"", &path, &mut self.key);
        // A log with a path for each request would fill the memory: what comes late is known by pool and rule only.
        if !self.numbers.contains_key(&self.key) && self.numbers.len() >= NAMED_LEN_MAX {
            self.key.truncate(named_at);
        }
        let route = match self.numbers.get(&self.key) {
            Some(route) => *route,
            None => {
                let route = self.routes.len().min(ROUTES_LEN_MAX - 1) as u16;
                self.numbers.insert(self.key.clone(), route);
                if self.routes.len() < ROUTES_LEN_MAX {
                    self.routes.push(RouteSeen {
                        path: self.key[named_at..].to_vec(),
                        pool,
                        rule,
                        in_threads,
                        example: if in_threads {
                            path.to_vec()
                        } else {
                            Vec::new()
                        },
                        requests_len: 0,
                    });
                }
                route
            }
        };
        assert!(
            usize::from(pool) < POOLS_LEN_MAX,
            "pools beyond the last have its number"
        );
        self.routes[usize::from(route)].requests_len += 1;
        Numbers { route, pool }
    }

    fn pool(&mut self, name: &[u8]) -> u8 {
        let known = self.pools.iter().position(|known| known == name);
        let pool = known.unwrap_or_else(|| {
            if self.pools.len() < POOLS_LEN_MAX {
                self.pools.push(name.to_vec());
            }
            self.pools.len() - 1
        });
        pool as u8
    }

    /// Names of the log's pools, the one with the most requests first, each with its number in the log.
    pub(super) fn pools(&self) -> Vec<(String, usize)> {
        let mut pools: Vec<(String, usize)> = Vec::new();
        for (number, name) in self.pools.iter().enumerate() {
            let name = match name.is_empty() {
                true => "default".to_owned(),
                false => String::from_utf8_lossy(name).into_owned(),
            };
            pools.push((name, number));
        }
        let requests = |pool: usize| -> u64 {
            let of_pool = self
                .routes
                .iter()
                .filter(|route| usize::from(route.pool) == pool);
            of_pool.map(|route| route.requests_len).sum()
        };
        // The first one is the pool that `--threads` is about.
        pools.sort_by_key(|(_, number)| std::cmp::Reverse(requests(*number)));
        pools
    }

    /// The pool of each route among `pools`, as [`Routes::pools`] has them.
    pub(super) fn now(&self, pools: &[(String, usize)]) -> Vec<usize> {
        let place = |number: u8| {
            pools
                .iter()
                .position(|(_, pool)| *pool == usize::from(number))
        };
        self.routes
            .iter()
            .map(|route| place(route.pool).unwrap_or(0))
            .collect()
    }

    /// Whether the steps of a route are to run in threads.
    pub(super) fn is_in_threads(&self, route: u16) -> bool {
        let route = self.routes.get(usize::from(route));
        route.is_some_and(|route| route.in_threads)
    }

    /// Paths that were to run in threads, and that no request has.
    pub(super) fn idle_paths(&self) -> impl Iterator<Item = &str> {
        let is_idle = |glob: &&String| {
            let mut moved = self.routes.iter().filter(|route| route.in_threads);
            !moved.any(|route| is_like(glob.as_bytes(), &route.example))
        };
        self.in_threads.iter().filter(is_idle).map(String::as_str)
    }

    /// The folded path of a route; `None` where many count together, or it is no text.
    pub(super) fn path(&self, route: u16) -> Option<&str> {
        let route = self.routes.get(usize::from(route))?;
        let path = std::str::from_utf8(&route.path).ok()?;
        path.starts_with('/').then_some(path)
    }

    /// The same when the rules' pools come behind them.
    pub(super) fn separated(&self, pools: &[(String, usize)]) -> Vec<usize> {
        let now = self.now(pools).into_iter();
        now.zip(&self.routes)
            .map(|(now, route)| route.rule.map_or(now, |rule| pools.len() + rule))
            .collect()
    }

    /// Rules that no request was like.
    pub(super) fn idle_rules(&self) -> impl Iterator<Item = &str> {
        let is_idle = |index: usize| !self.routes.iter().any(|route| route.rule == Some(index));
        let idle = self
            .rules
            .iter()
            .enumerate()
            .filter(move |(index, _)| is_idle(*index));
        idle.map(|(_, rule)| rule.name.as_str())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line<'a>(target: &'a str, pool: &'a str) -> Line<'a> {
        Line {
            target: target.as_bytes(),
            pool: pool.as_bytes(),
            route: b"app",
            ..Line::default()
        }
    }

    #[test]
    fn a_star_stands_for_anything() {
        let check = |glob: &str, path: &str, expect| {
            assert_eq!(
                is_like(glob.as_bytes(), path.as_bytes()),
                expect,
                "{glob} {path}"
            );
        };
        check("/reports/*", "/reports/a/b", true);
        check("/reports/*", "/reports/", true);
        check("/reports/*", "/reports", false);
        check("/a", "/a", true);
        check("/a", "/ab", false);
        check("*.pdf", "/x/y.pdf", true);
        check("*.pdf", "/x/y.pdf2", false);
        check("/a*b*c", "/aXbXbYc", true);
        check("/a*b*c", "/aXbXbY", false);
        check("*", "", true);
    }

    #[test]
    fn pools_are_in_the_order_of_their_requests() {
        let rule = PoolRule::parse("slow=1:2 /reports/* /export").unwrap();
        let mut routes = Routes::new(&[rule], &[]);
        for (path, pool) in [
            ("/a", "x"),
            ("/a", "default"),
            ("/reports/1", "default"),
            ("/b", "default"),
        ] {
            routes.numbers(&line(path, pool));
        }
        let pools = routes.pools();
        assert_eq!(pools, [("default".to_owned(), 1), ("x".to_owned(), 0)]);
        assert_eq!(routes.now(&pools), [1, 0, 0, 0]);
        assert_eq!(routes.separated(&pools), [1, 0, 2, 0]);
        assert_eq!(routes.idle_rules().count(), 0);
        assert_eq!(routes.rules[0].threads, Threads { min: 1, max: 2 });
    }

    #[test]
    fn too_many_routes_are_one_for_each_pool() {
        let mut routes = Routes::new(&[PoolRule::parse("slow=1 *z").unwrap()], &[]);
        let letters = |index: usize| -> String {
            let letter = |digit: usize| char::from(b'a' + (digit % 25) as u8);
            [index / 625, index / 25, index]
                .map(letter)
                .iter()
                .collect()
        };
        let mut last = Vec::new();
        for index in 0..6_000 {
            let path = format!("/{}", letters(index));
            last = vec![
                routes.numbers(&line(&path, "p")),
                routes.numbers(&line(&format!("{path}z"), "p")),
            ];
        }
        assert_ne!(last[0].route, last[1].route);
        assert!(
            routes.routes.len() <= NAMED_LEN_MAX + 2,
            "{}",
            routes.routes.len()
        );
        let separated = routes.separated(&routes.pools());
        assert_eq!(separated[usize::from(last[1].route)], 1);
        assert_eq!(separated[usize::from(last[0].route)], 0);
    }

    #[test]
    fn paths_whose_steps_run_in_threads_are_routes_of_their_own() {
        let globs = [
            "/orders/7".to_owned(),
            "/report*".to_owned(),
            "/none".to_owned(),
        ];
        let mut routes = Routes::new(&[], &globs);
        let all = ["/orders/7", "/orders/8", "/reports/1", "/"];
        let found = all.map(|path| {
            let route = routes.numbers(&line(path, "p")).route;
            (
                routes.path(route).map(str::to_owned),
                routes.is_in_threads(route),
            )
        });
        let expect = [
            ("/orders/*", true),
            ("/orders/*", false),
            ("/reports/*", true),
            ("/", false),
        ];
        assert_eq!(
            found,
            expect.map(|(path, moves)| (Some(path.to_owned()), moves))
        );
        assert_eq!(routes.idle_paths().collect::<Vec<_>>(), ["/none"]);
    }

    #[test]
    fn says_what_a_pool_is() {
        for text in ["slow", "slow=1", "=1 /a", "slow=1 a", "slow=-1 /a"] {
            assert!(
                PoolRule::parse(text).unwrap_err().starts_with("expected a"),
                "{text}"
            );
        }
    }
}
