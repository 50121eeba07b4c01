//! Pools of other sizes: what `scale --pool` does.
//!
//! Every process of the generation that serves is told, those that come later when they are ready. Who asked has
//! the answer when all that were told have confirmed it. A generation that is made for other numbers of drivers has
//! the same sizes; the one of a reload has what is written again.

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use super::Supervisor;
use super::commands::{Sizes, counted};
use super::control::ClientId;
use super::generation::Generation;
use super::process::State;
use super::reloading::Reloading;
use crate::channel::{Order, Role};
use crate::config::meant::{Config, Pool};
use crate::config::nearest;
use crate::fault::Failure;

/// A process that takes longer to confirm is named in the answer. Its own threads do not hold it up.
const CONFIRMED_WITHIN: Duration = Duration::from_secs(5);

/// A size that not all processes have confirmed yet.
pub(super) struct Reshaping {
    client: ClientId,
    /// In the orders, and in what confirms them.
    number: u64,
    pool: String,
    threads: (usize, usize),
    /// Processes that have not confirmed, by serial.
    awaited: BTreeSet<u64>,
    confirmed: usize,
    /// Later ones have later deadlines.
    pub(super) deadline: Instant,
}

impl Supervisor<'_> {
    /// Another size, fewest and most, for a pool of each process that serves.
    pub(super) fn reshape(&mut self, client: ClientId, name: &str, threads: (usize, usize)) {
        let Some(serving) = &mut self.serving else {
            let failure = Failure::new("scale: the server has not begun to serve yet");
            return self.refuse(Some(client), failure);
        };
        let pool = match chosen(&serving.config, name, threads) {
            Ok(pool) => pool,
            Err(failure) => return self.refuse(Some(client), failure),
        };
        serving.reshape(pool, threads.0, threads.1);
        self.reshapes_made += 1;
        let number = self.reshapes_made;
        let (id, order) = (
            serving.id,
            Order::reshape(&serving.config.pools[pool], number),
        );
        let keeps = |reloading: &Reloading| reloading.wish.sizes == Sizes::Kept;
        if let Some(coming) = &mut self.coming
            && self.reloading.as_ref().is_some_and(keeps)
        {
            // Those of its processes that can serve already have been told what was to be kept before.
            coming.keep_sizes(serving);
            let (id, orders) = (coming.id, coming.shape_orders());
            let its = |process: &&mut super::Process| process.generation == id;
            for process in self.processes.iter_mut().filter(its) {
                if process.is_serving() {
                    orders
                        .iter()
                        .for_each(|order| process.tell(order.clone(), Vec::new()));
                }
            }
        }
        let mut awaited = BTreeSet::new();
        for process in &mut self.processes {
            let is_its = process.generation == id && process.role == Role::Serving;
            if is_its && process.state == State::Ready {
                process.tell(order.clone(), Vec::new());
                awaited.insert(process.serial);
            }
        }
        self.reshaping.push(Reshaping {
            client,
            number,
            pool: name.to_owned(),
            threads,
            awaited,
            confirmed: 0,
            deadline: Instant::now() + CONFIRMED_WITHIN,
        });
    }

    /// A process has confirmed a size.
    pub(super) fn reshaped(&mut self, serial: u64, number: u64) {
        let mut all = self.reshaping.iter_mut();
        if let Some(one) = all.find(|one| one.number == number)
            && one.awaited.remove(&serial)
        {
            one.confirmed += 1;
        }
    }

    /// Those who asked are told when all processes have confirmed that are still there to do so, or when their
    /// time is up.
    pub(super) fn answer_reshaping(&mut self, now: Instant) {
        let mut left = Vec::new();
        for mut one in std::mem::take(&mut self.reshaping) {
            let is_awaited = |serial: &u64| {
                let mut all = self.processes.iter();
                all.any(|process| process.serial == *serial && process.is_serving())
            };
            one.awaited.retain(is_awaited);
            if one.awaited.is_empty() {
                self.accomplished(Some(one.client), one.text());
            } else if one.deadline <= now {
                let names = self.processes.iter();
                let names = names.filter(|process| one.awaited.contains(&process.serial));
                let names: Vec<String> = names.map(super::Process::name).collect();
                self.refuse(Some(one.client), one.unconfirmed(&names));
            } else {
                left.push(one);
            }
        }
        self.reshaping = left;
    }

    /// Nobody waits for confirmations any longer.
    pub(super) fn end_reshaping(&mut self, why: &str) {
        for one in std::mem::take(&mut self.reshaping) {
            self.refuse(Some(one.client), Failure::new(format!("scale: {why}")));
        }
    }

    /// To a process that knows only what is written: the sizes that pools have by now.
    pub(super) fn tell_shapes(&mut self, serial: u64, generation: u64) {
        let orders = self.generation(generation).map(Generation::shape_orders);
        if let Some(process) = self.by_serial(serial) {
            for order in orders.unwrap_or_default() {
                process.tell(order, Vec::new());
            }
        }
    }
}

impl Reshaping {
    /// What has become of it; processes that start later are told then.
    fn text(&self) -> String {
        format!(
            "pool `{}` has {} in {}",
            self.pool,
            said(self.threads),
            counted(self.confirmed, "process", "processes")
        )
    }

    /// That these processes have not answered.
    fn unconfirmed(&self, names: &[String]) -> Failure {
        let text = format!(
            "scale: {} not confirmed within {} s that pool `{}` has {}: {}",
            counted(names.len(), "process has", "processes have"),
            CONFIRMED_WITHIN.as_secs(),
            self.pool,
            said(self.threads),
            names.join(", ")
        );
        Failure::new(text).with_hint("`milepost status` shows what each has")
    }
}

impl Generation {
    /// Its pools have the sizes that `scale --pool` gave those of another generation, as far as they are there and
    /// can have them.
    pub(super) fn keep_sizes(&mut self, other: &Generation) {
        for pool in other.reshaped() {
            let threads = (pool.threads_min, pool.threads_max);
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
                false => "has as written",
            };
            Some(format!("; pool `{}` {how} {}", is.name, said(threads)))
        });
        told.collect()
    }
}

/// The index of the pool that is named.
///
/// # Errors
/// There is no such pool, or it cannot have this size.
fn chosen(config: &Config, name: &str, (_, threads_max): (usize, usize)) -> Result<usize, Failure> {
    if config.app.is_none() {
        return Err(Failure::new("scale: no pools: no application is served"));
    }
    let index = config.pools.iter().position(|pool| pool.name == name);
    let index = index.ok_or_else(|| unknown(&config.pools, name))?;
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

fn unknown(pools: &[Pool], name: &str) -> Failure {
    let names = || pools.iter().map(|pool| pool.name.as_str());
    let hint = match nearest(name, names()) {
        Some(near) => format!("did you mean `{near}`?"),
        None => {
            let names: Vec<String> = names().map(|name| format!("`{name}`")).collect();
            format!("the pools are {}", names.join(", "))
        }
    };
    Failure::new(format!("scale: no pool `{name}`")).with_hint(hint)
}

fn said((threads_min, threads_max): (usize, usize)) -> String {
    match threads_min == threads_max {
        true => counted(threads_max, "thread", "threads"),
        false => format!("{threads_min} to {threads_max} threads"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::meant::App;

    fn config() -> Config {
        let reports = Pool {
            name: "reports".to_owned(),
            reserve_threads: 2,
            ..Pool::default()
        };
        Config {
            app: Some(App {
                module: "shop".to_owned(),
                attribute: "app".to_owned(),
                factory: false,
                app_dir: "/".into(),
                root_path: String::new(),
            }),
            pools: vec![Pool::default(), reports],
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
            app: None,
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
