//! Pools of other sizes: what `scale --pool` does.
//!
//! Each process of the generation that serves gets the new size, and those that start later get it when they are
//! ready. The client has its answer when all processes have confirmed. A generation that is made for another number
//! of drivers keeps the sizes; that of a reload has those of the configuration again.

use super::Supervisor;
use super::answers::AwaitedChange;
use super::commands::counted;
use super::control::ClientId;
use super::generation::Generation;
use config::failure::Failure;
use config::nearest;
use config::typed::{Config, PoolConfig, PoolRuns};
use ipc::SupervisorCommand;

impl Supervisor<'_> {
    /// Another size, fewest and most, for a pool of each process that serves.
    pub(super) fn reshape(&mut self, client: ClientId, name: &str, threads: (usize, usize)) {
        let serving = self.plan.serving();
        let Some(serving) = serving.and_then(|id| self.generations.get_mut(&id)) else {
            let failure = Failure::new("scale: the server has not begun to serve yet");
            return self.refuse(Some(client), failure);
        };
        let pool = match chosen(&serving.config, name, threads) {
            Ok(pool) => pool,
            Err(failure) => return self.refuse(Some(client), failure),
        };
        let app = serving.config.pools[pool].runs.app();
        let of_serving = self
            .processes
            .iter()
            .filter(|one| one.generation == serving.id);
        let mut event_loops = of_serving.filter_map(|one| one.event_loops.get(app?));
        if event_loops.any(Option::is_some) {
            let failure = Failure::new(format!(
                "scale: pool `{name}` has no threads: an event loop runs its requests"
            ));
            let hint = "`--processes N` uses more processors; `asgi_concurrency` bounds the requests inside";
            return self.refuse(Some(client), failure.with_hint(hint));
        }
        serving.reshape(pool, threads.0, threads.1);
        let number = self.answers.next_number();
        let (id, order) = (
            serving.id,
            SupervisorCommand::reshape(&serving.config.pools[pool], number),
        );
        self.resize_next(name, threads);
        let change = AwaitedChange::Size {
            client,
            pool: name.to_owned(),
            threads,
        };
        self.ask(id, number, &order, change);
    }

    /// The next generation gets the same size where it keeps those of the one that serves.
    fn resize_next(&mut self, pool: &str, threads: (usize, usize)) {
        if !self.plan.next_keeps_sizes() {
            return;
        }
        let next = self.plan.next();
        let Some(next) = next.and_then(|id| self.generations.get_mut(&id)) else {
            return;
        };
        let Ok(index) = chosen(&next.config, pool, threads) else {
            return;
        };
        next.reshape(index, threads.0, threads.1);
        // Its processes that can serve already were told the sizes before this one.
        let command = SupervisorCommand::reshape(&next.config.pools[index], 0);
        let id = next.id;
        self.tell_serving_of(id, &command);
    }

    /// To a process that knows only what is written: the sizes that pools have by now.
    pub(super) fn tell_pool_sizes(&mut self, serial: u64, generation: u64) {
        let generation = self.generations.get(&generation);
        let mut processes = self.processes.iter_mut();
        if let Some(process) = processes.find(|one| one.serial == serial) {
            for pool in generation.into_iter().flat_map(Generation::reshaped) {
                process.tell(SupervisorCommand::reshape(pool, 0), Vec::new());
            }
        }
    }
}

impl Generation {
    /// Its pools have the sizes that `scale --pool` gave those of another generation, as far as they are there and
    /// can have them.
    pub(super) fn keep_sizes(&mut self, other: &Generation) {
        for pool in other.reshaped() {
            let threads = (pool.threads_min, pool.threads_max);
            // A pool that the new configuration does not have, or that it makes too small, is left as it is written.
            if let Ok(index) = chosen(&self.config, &pool.name, threads) {
                self.reshape(index, threads.0, threads.1);
            }
        }
    }

    /// What has become of the sizes that `scale --pool` gave pools of the generation before; nothing, where it gave
    /// none.
    pub(super) fn sizes_after(&self, old: &Generation) -> String {
        let told = old.reshaped().filter_map(|was| {
            let mut pools = self.config.pools.iter();
            let is = pools.find(|pool| pool.name == was.name)?;
            let threads = (is.threads_min, is.threads_max);
            let how = match self.reshaped().any(|pool| pool.name == was.name) {
                true => "keeps",
                false => "returns to its configured",
            };
            Some(format!("; pool `{}` {how} {}", is.name, said(threads)))
        });
        told.collect()
    }
}

/// The index of the pool that is named.
///
/// # Errors
/// There is no such pool, it has no threads, or it cannot have this size.
fn chosen(config: &Config, name: &str, (_, threads_max): (usize, usize)) -> Result<usize, Failure> {
    if config.apps.is_empty() {
        return Err(Failure::new("scale: no pools: no application is served"));
    }
    let index = config.pools.iter().position(|pool| pool.name == name);
    let index = index.ok_or_else(|| unknown(&config.pools, name))?;
    if let PoolRuns::Upstream(_) = config.pools[index].runs {
        let text =
            format!("scale: pool `{name}` is the queue of an upstream, which has no threads");
        let hint = "the key `slots` of `[[upstream]]` bounds the requests at each server";
        return Err(Failure::new(text).with_hint(hint));
    }
    let reserve = config.pools[index].reserve_threads;
    if reserve > 0 && reserve >= threads_max {
        let text = format!(
            "scale: pool `{name}` keeps {} for health checks",
            counted(reserve, "thread", "threads")
        );
        let hint = format!("at least {} threads", reserve + 1);
        return Err(Failure::new(text).with_hint(hint));
    }
    Ok(index)
}

fn unknown(pools: &[PoolConfig], name: &str) -> Failure {
    let pools = || pools.iter().filter(|pool| pool.runs.app().is_some());
    let names = || pools().map(|pool| pool.name.as_str());
    let hint = match nearest(name, names()) {
        Some(near) => format!("did you mean `{near}`?"),
        None => {
            let names: Vec<String> = names().map(|name| format!("`{name}`")).collect();
            format!("the pools are {}", names.join(", "))
        }
    };
    Failure::new(format!("scale: no pool `{name}`")).with_hint(hint)
}

/// `1 to 8 threads`
pub(super) fn said((threads_min, threads_max): (usize, usize)) -> String {
    match threads_min == threads_max {
        true => counted(threads_max, "thread", "threads"),
        false => format!("{threads_min} to {threads_max} threads"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use config::typed::App;

    fn config() -> Config {
        let reports = PoolConfig {
            name: "reports".to_owned(),
            reserve_threads: 2,
            ..PoolConfig::default()
        };
        let api = PoolConfig {
            name: "api".to_owned(),
            runs: PoolRuns::Upstream(0),
            ..PoolConfig::default()
        };
        Config {
            apps: vec![App::default()],
            pools: vec![PoolConfig::default(), reports, api],
            ..Config::default()
        }
    }

    fn check(config: &Config, name: &str, threads_max: usize, expect: Result<usize, &str>) {
        let found = chosen(config, name, (1, threads_max)).map_err(|failure| match failure.hint {
            Some(hint) => format!("{} > {hint}", failure.message),
            None => failure.message,
        });
        assert_eq!(found, expect.map_err(str::to_owned), "{name} {threads_max}");
    }

    #[test]
    fn finds_pools_by_name_and_refuses_what_they_cannot_be() {
        let config = config();
        check(&config, "default", 1, Ok(0));
        check(&config, "reports", 3, Ok(1));
        check(
            &config,
            "api",
            3,
            Err(
                "scale: pool `api` is the queue of an upstream, which has no threads > the key `slots` of `[[upstream]]` bounds the requests at each server",
            ),
        );
        check(
            &config,
            "reports",
            2,
            Err("scale: pool `reports` keeps 2 threads for health checks > at least 3 threads"),
        );
        check(
            &config,
            "report",
            3,
            Err("scale: no pool `report` > did you mean `reports`?"),
        );
        check(
            &config,
            "x",
            3,
            Err("scale: no pool `x` > the pools are `default`, `reports`"),
        );
        let files_only = Config {
            apps: Vec::new(),
            ..config
        };
        check(
            &files_only,
            "default",
            3,
            Err("scale: no pools: no application is served"),
        );
    }

    #[test]
    fn says_sizes_in_words() {
        assert_eq!(said((1, 1)), "1 thread");
        assert_eq!(said((4, 4)), "4 threads");
        assert_eq!(said((1, 8)), "1 to 8 threads");
    }
}
