//! Do pools hold together? Names that there are, once each; bounds that fit each other; rules that can
//! have an effect.

use telemetry::Nanos;

use super::Check;
use crate::builder::{Draft, Placed};
use crate::fault::Origin;
use crate::parse::did_you_mean;
use crate::parse::pools::PoolTable;
use crate::parse::value::duration_text;
use crate::typed::{Config, ForwardAuth, PoolConfig, PoolRule, PoolRuns, SlowPool};

/// Each has threads and counters of its own in every process.
const POOLS_MAX: usize = 64;

/// Where the first of some bounds was written: settings have places of their own, a table has one.
type OriginOf<'o> = &'o dyn Fn(&[&str]) -> Origin;

impl Check<'_> {
    /// All pools, the one that is always there first, and which requests they take.
    pub(super) fn pools(&mut self, draft: &Draft, config: &mut Config) {
        let first = self.first_pool(draft);
        config.pools = vec![first];
        for entry in &draft.pools {
            self.pool_name(entry, &config.pools);
            let first = &config.pools[0];
            let inherited = inherited_reserve(&entry.value.name, draft, first);
            let pool = filled(&entry.value, first, inherited);
            self.pool_bounds(&pool, &|_| entry.origin.clone());
            config.pools.push(pool);
        }
        self.upstreams(draft, config);
        config.routes = self.routes(draft, config);
        if config.pools.len() > POOLS_MAX {
            let text = format!(
                "{} pools and upstreams: more than {POOLS_MAX}",
                config.pools.len()
            );
            self.statement(&draft.origin("pool"), text, "let rules share them");
        }
        // Whether that is right is known once the application is loaded: an event loop has no threads.
        let has_threads = |pool: &Placed<PoolTable>| pool.value.threads.is_some();
        config.asgi.has_threads =
            draft.is_written("threads") || draft.pools.iter().any(has_threads);
        // Rules name pools by their index, and stay with it: no pool is added or moved from here on.
        config.pool_rules = self.pool_rules(draft, &config.pools);
        let is_known = |rule: &PoolRule| rule.pool < config.pools.len();
        assert!(
            config.pool_rules.iter().all(is_known),
            "a rule without its pool"
        );
        let (apps_len, upstreams_len) = (config.apps.len().max(1), config.upstreams.len());
        let is_there = |pool: &PoolConfig| match pool.runs {
            PoolRuns::App(app) => app < apps_len,
            PoolRuns::Upstream(upstream) => upstream < upstreams_len,
        };
        assert!(
            config.pools.iter().all(is_there),
            "a pool without what answers its requests"
        );
        config.slow_pool = self.slow_pool(draft, &config.pools);
        self.idle_pools(config);
    }

    fn first_pool(&mut self, draft: &Draft) -> PoolConfig {
        let mut pool = draft.pool.clone();
        (pool.threads_min, pool.threads_max) = draft.threads;
        (pool.reserve_threads, pool.reserve_len) = draft.health_reserve;
        self.pool_bounds(&pool, &|keys| draft.first_origin(keys));
        pool
    }

    fn pool_name(&mut self, entry: &Placed<PoolTable>, pools: &[PoolConfig]) {
        let name = entry.value.name.as_str();
        match pools.iter().position(|pool| pool.name == name) {
            None => {}
            Some(0) => {
                let text = format!("the pool `{name}` is there always");
                let hint = "its bounds are settings of their own, as `threads` and `queue_timeout`";
                self.statement(&entry.origin, text, hint);
            }
            Some(_) => {
                let text = format!("there are two pools `{name}`");
                self.statement(&entry.origin, text, "give each pool its own name");
            }
        }
    }

    pub(super) fn pool_bounds(&mut self, pool: &PoolConfig, origin_of: OriginOf<'_>) {
        let spans = [
            (
                "overload_timeout",
                pool.overload_timeout.unwrap_or(Nanos::ZERO),
                "under overload requests wait for a shorter time, or for the same",
            ),
            (
                "queue_target",
                pool.queue_target,
                "nobody waits for so long: raise the second or lower the first",
            ),
        ];
        let longest = pool.queue_timeout;
        for (key, span, hint) in spans.into_iter().filter(|(_, span, _)| *span > longest) {
            let (span, longest) = (duration_text(span), duration_text(longest));
            let text = format!("{key} ({span}) is longer than queue_timeout ({longest})");
            self.statement(&origin_of(&[key, "queue_timeout"]), text, hint);
        }
        self.pool_reserve(pool, origin_of);
    }

    /// Without a reserve of threads there is nothing left for those that are no questions about health.
    fn pool_reserve(&mut self, pool: &PoolConfig, origin_of: OriginOf<'_>) {
        if pool.reserve_threads >= pool.threads_max && pool.reserve_threads > 0 {
            let text = format!(
                "health_reserve takes {} of {} threads",
                pool.reserve_threads, pool.threads_max
            );
            let hint = match pool.threads_max {
                1 => "more threads, or no reserve".to_owned(),
                threads => format!("at most {} threads, or more threads", threads - 1),
            };
            let origin = origin_of(&["health_reserve", "threads"]);
            self.statement(&origin, text, hint);
        }
        if pool.reserve_len >= pool.queue_len_max {
            let text = format!(
                "health_reserve takes {} of {} places in the queue",
                pool.reserve_len, pool.queue_len_max
            );
            let origin = origin_of(&["health_reserve", "queue_len_max"]);
            self.statement(&origin, text, "fewer places, or a longer queue");
        }
    }

    fn pool_rules(&mut self, draft: &Draft, pools: &[PoolConfig]) -> Vec<PoolRule> {
        let mut rules: Vec<PoolRule> = Vec::new();
        for Placed { value, origin } in &draft.pool_rules {
            // A rule of an unknown pool stays in the list, so that the rules behind it are held against it too.
            let pool = self.pool_index(&value.pool, origin, pools);
            let rule = PoolRule {
                methods: value.method.clone(),
                path: value.path.clone(),
                host: value.host.clone(),
                header: value.header.clone(),
                from: value.from.clone(),
                pool: pool.unwrap_or(0),
                class: value.class.unwrap_or_default(),
            };
            // Rules count within the application or the upstream of their pool.
            let runs = |rule: &PoolRule| pools[rule.pool].runs;
            let is_before =
                |other: &PoolRule| runs(other) == runs(&rule) && fit_alike(other, &rule);
            if rules.iter().any(is_before) {
                let text = "a rule that never counts: one before it takes the same requests";
                self.statement(origin, text, "leave out one of them");
            }
            rules.push(rule);
        }
        rules
    }

    fn slow_pool(&mut self, draft: &Draft, pools: &[PoolConfig]) -> Option<SlowPool> {
        let name = draft.slow_pool.as_str();
        if name.is_empty() {
            if draft.is_written("slow_after") {
                self.vain("slow_after", "slow_pool is off");
            }
            return None;
        }
        let origin = draft.origin("slow_pool");
        let pool = self.pool_index(name, &origin, pools)?;
        // Pool 0 is where requests go without a rule: slow ones would move from it to itself.
        if pool == 0 {
            let text = format!("slow_pool is `{name}`, where all others are");
            let hint = "slow requests leave the others alone in a pool of their own: `[[pool]]`, `name = \"slow\"`";
            self.statement(&origin, text, hint);
        }
        let what = match pools[pool].runs {
            PoolRuns::App(0) => "",
            PoolRuns::App(_) => "which runs the application of a route",
            PoolRuns::Upstream(_) => "an upstream",
        };
        if !what.is_empty() {
            let text = format!("slow_pool is `{name}`, {what}");
            let hint = "slow requests stay in their application: name a pool that no route names";
            self.statement(&origin, text, hint);
        }
        let after = draft.slow_after;
        Some(SlowPool { pool, after })
    }

    pub(super) fn pool_index(
        &mut self,
        name: &str,
        origin: &Origin,
        pools: &[PoolConfig],
    ) -> Option<usize> {
        let index = pools.iter().position(|pool| pool.name == name);
        if index.is_none() {
            let near = did_you_mean(name, pools.iter().map(|pool| pool.name.as_str()));
            let hint = near.unwrap_or_else(|| format!("make it: `[[pool]]`, `name = \"{name}\"`"));
            self.statement(origin, format!("no pool `{name}`"), hint);
        }
        index
    }

    /// Threads that nobody gives work to are worth a word.
    fn idle_pools(&mut self, config: &Config) {
        // The first pool takes what no rule gives to another: it is never idle.
        let slow = config.slow_pool.map(|slow| slow.pool);
        for (index, pool) in config.pools.iter().enumerate().skip(1) {
            let asks = |auth: &ForwardAuth| PoolRuns::Upstream(auth.upstream) == pool.runs;
            let mut auths = config
                .routes
                .iter()
                .filter_map(|route| route.settings.forward_auth.as_ref());
            let is_used = slow == Some(index)
                || auths.any(asks)
                || pool.runs.app().is_some()
                    && config.pool_rules.iter().any(|rule| rule.pool == index)
                || config
                    .routes
                    .iter()
                    .any(|route| route.pool() == Some(index));
            if !is_used {
                let name = &pool.name;
                self.note(match pool.runs {
                    PoolRuns::App(_) => {
                        format!(
                            "pool `{name}` gets no requests: no pool_rule and no route names it"
                        )
                    }
                    PoolRuns::Upstream(_) => {
                        format!("upstream `{name}` gets no requests: no route names it")
                    }
                });
            }
        }
        let has_health = |index: usize| {
            let mut rules = config.pool_rules.iter();
            rules.any(|rule| rule.pool == index && rule.class == queueing::Class::Health)
        };
        for (index, pool) in config.pools.iter().enumerate() {
            if pool.reserve_threads + pool.reserve_len > 0 && !has_health(index) {
                self.note(format!(
                    "the reserve of pool `{}` stays empty: no pool_rule gives it requests with class=health",
                    pool.name
                ));
            }
        }
    }
}

/// Threads and places for health checks of a pool that names none: those of the first one where a rule gives
/// it such, else none. Nobody else could ever have them.
fn inherited_reserve(name: &str, draft: &Draft, first: &PoolConfig) -> (usize, usize) {
    let mut rules = draft.pool_rules.iter().map(|placed| &placed.value);
    let has_health =
        rules.any(|rule| rule.pool == name && rule.class == Some(queueing::Class::Health));
    match has_health {
        true => (first.reserve_threads, first.reserve_len),
        false => (0, 0),
    }
}

/// The entry's own bounds, and for the rest those of the first pool.
pub(super) fn filled(entry: &PoolTable, first: &PoolConfig, reserve: (usize, usize)) -> PoolConfig {
    assert!(
        first.threads_max > 0 && first.queue_len_max > 0,
        "a pool of nothing"
    );
    let (threads_min, threads_max) = entry
        .threads
        .unwrap_or((first.threads_min, first.threads_max));
    let queue_timeout = entry.queue_timeout.unwrap_or(first.queue_timeout);
    let queue_len_max = entry.queue_len_max.unwrap_or(first.queue_len_max);
    // What is only inherited gives way to what was written.
    let inherited = (
        reserve.0.min(threads_max - 1),
        reserve.1.min(queue_len_max - 1),
    );
    let (reserve_threads, reserve_len) = entry.health_reserve.unwrap_or(inherited);
    PoolConfig {
        name: entry.name.clone(),
        runs: PoolRuns::default(),
        threads_min,
        threads_max,
        queue_len_max,
        queue_target: entry
            .queue_target
            .unwrap_or(first.queue_target.min(queue_timeout)),
        queue_timeout,
        overload_timeout: entry.overload_timeout.unwrap_or(
            first
                .overload_timeout
                .map(|timeout| timeout.min(queue_timeout)),
        ),
        reserve_threads,
        reserve_len,
        request_timeout: entry.request_timeout.unwrap_or(first.request_timeout),
        disconnect_cancel: entry.disconnect_cancel.unwrap_or(first.disconnect_cancel),
    }
}

/// Whether two rules take the same requests, whatever becomes of them.
fn fit_alike(one: &PoolRule, other: &PoolRule) -> bool {
    let without_effect = |rule: &PoolRule| PoolRule {
        pool: 0,
        class: queueing::Class::Normal,
        ..rule.clone()
    };
    without_effect(one) == without_effect(other)
}
