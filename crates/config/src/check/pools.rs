//! Do pools hold together? Names that there are, once each; bounds that fit each other; rules that can
//! have an effect.

use super::super::builder::{Draft, Placed};
use super::super::fault::Origin;
use super::super::nearest;
use super::super::options_table::PoolTable;
use super::super::typed::{Config, PoolConfig, PoolRule, SlowPool};
use super::super::value::duration_text;
use super::Check;

/// Each has threads and counters of its own in every process.
const POOLS_MAX: usize = 64;

/// Where a pool's bounds were written: in settings of their own, or all in one entry.
enum PoolSource<'w> {
    Settings(&'w Draft),
    Entry(&'w Placed<PoolTable>),
}

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
            self.pool_bounds(&pool, &PoolSource::Entry(entry));
            config.pools.push(pool);
        }
        if config.pools.len() > POOLS_MAX {
            let text = format!("{} pools: more than {POOLS_MAX}", config.pools.len());
            self.statement(draft.origin("pool"), text, "let rules share them");
        }
        config.pool_rules = self.pool_rules(draft, &config.pools);
        config.slow_pool = self.slow_pool(draft, &config.pools);
        self.idle_pools(config);
    }

    fn first_pool(&mut self, draft: &Draft) -> PoolConfig {
        let mut pool = draft.config.pools[0].clone();
        let is_written = |key: &str| draft.origin(key) != Origin::Whole;
        if !is_written("overload_timeout") {
            pool.overload_timeout = pool.overload_timeout.min(pool.queue_timeout);
        }
        self.pool_bounds(&pool, &PoolSource::Settings(draft));
        pool
    }

    fn pool_name(&mut self, entry: &Placed<PoolTable>, pools: &[PoolConfig]) {
        let name = entry.value.name.as_str();
        if !pools.iter().any(|pool| pool.name == name) {
            return;
        }
        let (text, hint) = match name == pools[0].name {
            true => (
                format!("the pool `{name}` is there always"),
                "its bounds are settings of their own, as `threads` and `queue_timeout`",
            ),
            false => (
                format!("there are two pools `{name}`"),
                "give each pool its own name",
            ),
        };
        self.statement(entry.origin.clone(), text, hint);
    }

    fn pool_bounds(&mut self, pool: &PoolConfig, written: &PoolSource<'_>) {
        if pool.overload_timeout > pool.queue_timeout {
            let text = format!(
                "overload_timeout ({}) is longer than queue_timeout ({})",
                duration_text(pool.overload_timeout),
                duration_text(pool.queue_timeout)
            );
            let hint = "under overload requests wait for a shorter time, or for the same";
            let origin = written.origin(&["overload_timeout", "queue_timeout"]);
            self.statement(origin, text, hint);
        }
        if pool.queue_target > pool.queue_timeout {
            let text = format!(
                "queue_target ({}) is longer than queue_timeout ({})",
                duration_text(pool.queue_target),
                duration_text(pool.queue_timeout)
            );
            let hint = "nobody waits for so long: raise the second or lower the first";
            let origin = written.origin(&["queue_target", "queue_timeout"]);
            self.statement(origin, text, hint);
        }
        self.pool_reserve(pool, written);
    }

    /// Without a reserve of threads there is nothing left for those that are no questions about health.
    fn pool_reserve(&mut self, pool: &PoolConfig, written: &PoolSource<'_>) {
        if pool.reserve_threads >= pool.threads_max && pool.reserve_threads > 0 {
            let text = format!(
                "health_reserve takes {} of {} threads",
                pool.reserve_threads, pool.threads_max
            );
            let hint = match pool.threads_max {
                1 => "more threads, or no reserve".to_owned(),
                threads => format!("at most {} threads, or more threads", threads - 1),
            };
            self.statement(written.origin(&["health_reserve", "threads"]), text, &hint);
        }
        if pool.reserve_len >= pool.queue_len_max {
            let text = format!(
                "health_reserve takes {} of {} places in the queue",
                pool.reserve_len, pool.queue_len_max
            );
            let origin = written.origin(&["health_reserve", "queue_len_max"]);
            self.statement(origin, text, "fewer places, or a longer queue");
        }
    }

    fn pool_rules(&mut self, draft: &Draft, pools: &[PoolConfig]) -> Vec<PoolRule> {
        let mut rules: Vec<PoolRule> = Vec::new();
        for Placed { value, origin } in &draft.pool_rules {
            let pool = self.pool_index(&value.pool, origin, pools);
            let mut rule = value.rule.clone();
            rule.pool = pool.unwrap_or(0);
            if rules.iter().any(|other| fit_alike(other, &rule)) {
                let text = "a rule that never counts: one before it takes the same requests";
                self.statement(origin.clone(), text, "leave out one of them");
            }
            rules.push(rule);
        }
        rules
    }

    fn slow_pool(&mut self, draft: &Draft, pools: &[PoolConfig]) -> Option<SlowPool> {
        let name = draft.slow_pool.as_str();
        if name.is_empty() {
            if draft.origin("slow_after") != Origin::Whole {
                let text = "slow_after has no effect: slow_pool is off";
                self.notes.push(text.to_owned());
            }
            return None;
        }
        let origin = draft.origin("slow_pool");
        let pool = self.pool_index(name, &origin, pools)?;
        if pool == 0 {
            let text = format!("slow_pool is `{name}`, where all others are");
            let hint = "slow requests leave the others alone in a pool of their own: `[[pool]]`, `name = \"slow\"`";
            self.statement(origin, text, hint);
        }
        let after = draft.slow_after;
        Some(SlowPool { pool, after })
    }

    fn pool_index(&mut self, name: &str, origin: &Origin, pools: &[PoolConfig]) -> Option<usize> {
        let index = pools.iter().position(|pool| pool.name == name);
        if index.is_none() {
            let names = || pools.iter().map(|pool| pool.name.as_str());
            let hint = match nearest(name, names()) {
                Some(near) => format!("did you mean `{near}`?"),
                None => format!("make it: `[[pool]]`, `name = \"{name}\"`"),
            };
            self.statement(origin.clone(), format!("no pool `{name}`"), &hint);
        }
        index
    }

    /// Threads that nobody gives work to are worth a word.
    fn idle_pools(&mut self, config: &Config) {
        let slow = config.slow_pool.map(|slow| slow.pool);
        for (index, pool) in config.pools.iter().enumerate().skip(1) {
            let is_used =
                slow == Some(index) || config.pool_rules.iter().any(|rule| rule.pool == index);
            if !is_used {
                self.notes.push(format!(
                    "pool `{}` gets no requests: no pool_rule names it",
                    pool.name
                ));
            }
        }
        let has_health = |index: usize| {
            let mut rules = config.pool_rules.iter();
            rules.any(|rule| rule.pool == index && rule.class == queueing::Class::Health)
        };
        for (index, pool) in config.pools.iter().enumerate() {
            if pool.reserve_threads + pool.reserve_len > 0 && !has_health(index) {
                self.notes.push(format!(
                    "the reserve of pool `{}` stays empty: no pool_rule gives it requests with class=health",
                    pool.name
                ));
            }
        }
    }
}

impl PoolSource<'_> {
    /// The first of `keys` that was written is the one to blame.
    fn origin(&self, keys: &[&str]) -> Origin {
        match self {
            PoolSource::Entry(entry) => entry.origin.clone(),
            PoolSource::Settings(draft) => {
                let origins = keys.iter().map(|key| draft.origin(key));
                let mut written = origins.filter(|at| *at != Origin::Whole);
                written.next().unwrap_or_default()
            }
        }
    }
}

/// Threads and places for health checks of a pool that names none: those of the first one where a rule gives
/// it such, else none. Nobody else could ever have them.
fn inherited_reserve(name: &str, draft: &Draft, first: &PoolConfig) -> (usize, usize) {
    let mut rules = draft.pool_rules.iter().map(|placed| &placed.value);
    let has_health =
        rules.any(|rule| rule.pool == name && rule.rule.class == queueing::Class::Health);
    match has_health {
        true => (first.reserve_threads, first.reserve_len),
        false => (0, 0),
    }
}

/// The entry's own bounds, and for the rest those of the first pool.
fn filled(entry: &PoolTable, first: &PoolConfig, reserve: (usize, usize)) -> PoolConfig {
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
        threads_min,
        threads_max,
        queue_len_max,
        queue_target: entry
            .queue_target
            .unwrap_or(first.queue_target.min(queue_timeout)),
        queue_timeout,
        overload_timeout: entry
            .overload_timeout
            .unwrap_or(first.overload_timeout.min(queue_timeout)),
        reserve_threads,
        reserve_len,
        request_timeout: entry.request_timeout.unwrap_or(first.request_timeout),
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
