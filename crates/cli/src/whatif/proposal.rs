//! What to do: the fewest threads beyond which waits get no shorter, and a pool of its own for the route that holds the
//! threads of others.
//!
//! Takes what is known of the present, simulates some variants, gives a [`Proposal`] and its sentences. Each part may be
//! absent: no advice is better than a wrong one.

use ::whatif::RunsOn;
use present::{counted, duration, share};
use whatif::prediction::{
    Answer, ControlMode, Metric, Objective, PoolVariant, Threads, Times, Variant, answers, smallest,
};

use super::log_facts::{HeavyRoute, LogFacts, Present, ThreadsFrom};

/// Requests for a p99, and for a p95, of which ten are beyond it.
const P99_LEN_MIN: u64 = 1_000;
const P95_LEN_MIN: u64 = 200;
/// A shorter wait needs no cure.
pub(super) const WAIT_MIN_MS: f64 = 5.0;
/// Waits that differ by less are the same: a tenth, and a millisecond or this part of what requests wait today.
pub(super) const SAME_TIMES: f64 = 1.1;
pub(super) const SAME_MS: f64 = 1.0;
const SAME_PART: f64 = 0.02;
pub(super) const SAME_REFUSED: f64 = 0.001;
/// Times today's threads that are tried.
const TRIED: [usize; 4] = [1, 2, 4, 8];
/// Threads of a pool that is proposed.
const APART_THREADS_MAX: usize = 4;
/// What a pool of its own must make of the waits of the others.
const APART_TIMES: f64 = 0.5;
/// What the route itself may wait in its own pool: a second, or some of its runs.
const APART_WAIT_MAX_MS: f64 = 1_000.0;
const APART_WAIT_RUNS: f64 = 4.0;

/// What is proposed.
#[derive(Debug)]
pub(super) struct Proposal {
    /// What is looked at; `None`: too few requests.
    percentile: Option<Percentile>,
    choice: Choice,
    apart: Option<Apart>,
}

/// Which percentile of the waits tells.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Percentile {
    P99,
    P95,
}

impl Percentile {
    pub(super) fn of_len(requests_len: u64) -> Option<Percentile> {
        match requests_len {
            P99_LEN_MIN.. => Some(Percentile::P99),
            P95_LEN_MIN.. => Some(Percentile::P95),
            _ => None,
        }
    }

    pub(super) fn value(self) -> fn(&Times) -> f64 {
        match self {
            Percentile::P99 => |times| times.p99_ms,
            Percentile::P95 => |times| times.p95_ms,
        }
    }

    /// The waits of the percentile and, where it is the 99th, of the 95th: `256 ms and 8 ms`.
    pub(super) fn waits(self, queue: &Times) -> String {
        match self {
            Percentile::P99 => format!("{} and {}", wait(queue.p99_ms), wait(queue.p95_ms)),
            Percentile::P95 => wait(queue.p95_ms),
        }
    }
}

/// What another number of threads brings.
#[derive(Clone, Debug, PartialEq)]
enum Choice {
    /// With these, waits are shorter, and more would not make them shorter still.
    More(Box<Answer>),
    /// Waits are as short as they get.
    Enough,
    /// The same with fewer.
    Fewer(String),
}

/// A pool of its own for a route.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Apart {
    pub(super) path: String,
    /// Threads of the route's pool, and of the pool that it leaves.
    pub(super) threads: usize,
    pub(super) others_threads: usize,
    answer: Answer,
}

/// Simulates what may be proposed, and gives it with all rows for the table.
pub(super) fn proposal(
    present: &mut Present,
    threads_max: Option<usize>,
) -> Option<(Proposal, Vec<Answer>)> {
    let log = present.log.as_ref().filter(|log| log.has_runs)?;
    let percentile = Percentile::of_len(log.requests - log.refused);
    let value = percentile.unwrap_or(Percentile::P95).value();
    let basis = &present.basis;
    let today = present.variant.pools[0].threads;
    let with = |threads: Threads| {
        let mut variant = present.variant.clone();
        variant.pools[0].threads = threads;
        // As the server is that will run it, whoever wrote the log.
        variant.control = ControlMode::On;
        variant
    };
    let most = threads_max.unwrap_or(usize::MAX).max(today.max);
    let counts = TRIED.map(|times| (times * today.max).min(most));
    let mut variants: Vec<Variant> = counts.map(|count| with(Threads::fixed(count))).into();
    variants.dedup();
    variants.insert(0, with(today));
    let mut rows = answers(basis, &basis.requests, &variants);
    let now = rows.remove(0);
    let objectives = plateau(&rows, value(&now.queue), value);
    let known: Vec<&Answer> = rows.iter().collect();
    let last = counts[TRIED.len() - 1];
    let search = smallest(
        basis,
        &basis.requests,
        &variants[1],
        &objectives,
        last,
        &known,
    );
    let mut rows = search.tried;
    let mut choice = choice(&now, search.found, today, value);
    if let (Choice::More(found), true) = (&mut choice, today.min < today.max) {
        // A pool that grows: with its least threads as they are.
        let max = found.threads.parse().unwrap_or(today.max);
        let variant = with(Threads {
            min: today.min,
            max,
        });
        let found_elastic = answers(basis, &basis.requests, &[variant]);
        **found = found_elastic.into_iter().next()?;
        rows.push((**found).clone());
    }
    if today.min < today.max {
        rows.insert(0, now.clone());
    }
    let heavy = log.heavy.clone();
    let is_wanted = percentile.is_some() && value(&now.queue) >= WAIT_MIN_MS;
    let apart = heavy
        .filter(|_| is_wanted)
        .and_then(|heavy| apart(present, &heavy, &now, value));
    // What is beyond the answer by far says nothing more.
    let far = 2 * choice.threads_max().max(today.max);
    rows.retain(|row| row.threads_max <= far);
    rows.extend(apart.iter().map(|apart| apart.answer.clone()));
    Some((
        Proposal {
            percentile,
            choice,
            apart,
        },
        rows,
    ))
}

/// Waits that are as good as the best of the answers, and no more refusals.
fn plateau(rows: &[Answer], now_ms: f64, value: fn(&Times) -> f64) -> [Objective; 2] {
    let least = |of: &dyn Fn(&Answer) -> f64| rows.iter().map(of).fold(f64::INFINITY, f64::min);
    let objective = |metric, below| Objective {
        text: String::new(),
        metric,
        below,
    };
    let best_ms = least(&|row| value(&row.queue));
    let refused = least(&Answer::refused_share);
    [
        objective(
            Metric::Queue(value),
            SAME_TIMES * best_ms + SAME_MS.max(SAME_PART * now_ms),
        ),
        objective(Metric::Refused, refused + SAME_REFUSED),
    ]
}

fn choice(now: &Answer, found: Option<Answer>, today: Threads, value: fn(&Times) -> f64) -> Choice {
    let count = |answer: &Answer| answer.threads.parse::<usize>().unwrap_or(today.max);
    let suffers = value(&now.queue) >= WAIT_MIN_MS || now.refused_share() > SAME_REFUSED;
    match found {
        Some(found) if count(&found) > today.max && suffers && !found.is_beyond => {
            Choice::More(Box::new(found))
        }
        Some(found) if count(&found) < today.max => Choice::Fewer(found.threads),
        _ => Choice::Enough,
    }
}

/// The smallest pool for the route with which the others hardly wait.
fn apart(
    present: &mut Present,
    heavy: &HeavyRoute,
    now: &Answer,
    value: fn(&Times) -> f64,
) -> Option<Apart> {
    let threads = present.variant.pools[0].threads.max;
    let own_pool = present.variant.pools.len();
    let variants: Vec<Variant> = (1..threads.min(APART_THREADS_MAX + 1))
        // Out of the threads that there are: a proposal of more of them would not show what the pool itself does.
        .map(|own| {
            let mut variant = present.variant.clone();
            variant.control = ControlMode::On;
            variant.pools[0].threads = Threads::fixed(threads - own);
            let name = pool_name(&heavy.path);
            variant
                .pools
                .push(PoolVariant::of_threads(&name, Threads::fixed(own)));
            variant
        })
        .collect();
    let route = usize::from(heavy.number);
    // For these simulations only, because the requests are too many to be copied for each.
    let before = std::mem::replace(present.basis.pool_of_route.get_mut(route)?, own_pool);
    let found = answers(&present.basis, &present.basis.requests, &variants);
    present.basis.pool_of_route[route] = before;
    let is_good = |answer: &&Answer| {
        let (others, own) = (&answer.pools[0].queue, &answer.pools[own_pool].queue);
        let own_max_ms = APART_WAIT_MAX_MS.max(APART_WAIT_RUNS * heavy.mean_ms);
        value(others) <= APART_TIMES * value(&now.queue)
            && own.p95_ms <= own_max_ms
            && answer.refused_share() <= now.refused_share() + SAME_REFUSED
    };
    let (own, mut answer) = (1..).zip(found).find(|(_, answer)| is_good(&answer))?;
    answer.threads = format!("{} + {own}", threads - own);
    Some(Apart {
        path: heavy.path.clone(),
        threads: own,
        others_threads: threads - own,
        answer,
    })
}

/// The first word of a path, as a name: `report` of `/report/*`.
fn pool_name(path: &str) -> String {
    let is_part = |letter: char| letter.is_ascii_alphanumeric() || letter == '_' || letter == '-';
    let words = path
        .split('/')
        .filter(|word| !word.is_empty() && word.chars().all(is_part));
    words.into_iter().next().unwrap_or("slow").to_owned()
}

impl Apart {
    /// The tables of a configuration.
    pub(super) fn toml(&self) -> String {
        let name = match pool_name(&self.path).as_str() {
            "default" => "slow".to_owned(),
            name => name.to_owned(),
        };
        let (threads, others, path) = (self.threads, self.others_threads, &self.path);
        format!(
            "threads = {others}\n[[pool]]\nname = \"{name}\"\nthreads = {threads}\n[[pool_rule]]\npool = \"{name}\"\npath = {path:?}\n"
        )
    }
}

impl Proposal {
    /// The number of threads to try, as `--threads` takes it.
    pub(super) fn threads(&self) -> Option<&str> {
        match &self.choice {
            Choice::More(found) if self.percentile.is_some() => Some(&found.threads),
            _ => None,
        }
    }

    pub(super) fn apart(&self) -> Option<&Apart> {
        self.apart.as_ref()
    }

    /// What other threads would do.
    pub(super) fn sentences(&self, log: &LogFacts) -> Vec<String> {
        let Some(percentile) = self.percentile else {
            return vec![format!(
                "{} are too few to say what other threads would do. The table is a rough estimate.",
                counted(log.requests, "request")
            )];
        };
        match &self.choice {
            Choice::More(found) => vec![
                format!(
                    "With {} threads: {}{}. More than that: no gain.",
                    found.threads,
                    percentile.waits(&found.queue),
                    refused(found.refused_share())
                ),
                format!("Try: `--threads {}`", found.threads),
            ],
            Choice::Enough => vec!["More threads: no gain.".to_owned()],
            Choice::Fewer(threads) if log.has_waits => vec![format!(
                "More threads: no gain. For the load of this log, {threads} would do."
            )],
            // Of a log without waits today's threads are not known.
            Choice::Fewer(threads) => vec![
                format!("With {threads} threads no request would wait much longer than with more."),
                format!("Try: `--threads {threads}`"),
            ],
        }
    }

    /// What a pool of its own would do.
    pub(super) fn apart_sentence(&self) -> Option<String> {
        Some(self.apart.as_ref()?.sentence(self.percentile?))
    }
}

impl Choice {
    fn threads_max(&self) -> usize {
        match self {
            Choice::More(found) => found.threads_max,
            _ => 0,
        }
    }
}

impl Apart {
    fn sentence(&self, percentile: Percentile) -> String {
        let [others, own] = [0, self.answer.pools.len() - 1].map(|pool| &self.answer.pools[pool]);
        format!(
            "Or: a pool of its own for {}, which holds the threads that others wait for: {} of the {} threads. \
             The others: {}; {} itself: {}.",
            self.path,
            self.threads,
            self.threads + self.others_threads,
            percentile.waits(&others.queue),
            self.path,
            percentile.waits(&own.queue),
        )
    }
}

/// How it is now: `Now: 4 threads. 1 request in 100 waits 256 ms or longer for a thread, 1 in 20 waits 8 ms.`
pub(super) fn now(log: &LogFacts, variant: &Variant) -> String {
    let threads = variant.pools[0].threads;
    if !log.has_waits {
        return format!(
            "Now: unknown. The log does not say how many threads there were, nor how long requests waited for one; up \
             to {threads} ran at once."
        );
    }
    let is_on_loop = variant.pools[0].runs_on == RunsOn::EventLoop;
    let mut what = match (is_on_loop, threads.max) {
        (true, _) => "an event loop".to_owned(),
        (false, 1) => "1 thread".to_owned(),
        (false, _) => format!("{threads} threads"),
    };
    if variant.processes > 1 {
        what += &format!(" in each of {} processes", variant.processes);
    }
    if is_on_loop {
        what += &format!(", with up to {} requests inside", variant.concurrency.max);
    } else if log.threads_from == ThreadsFrom::Estimate {
        what += " (the most requests that ran at once: the log does not say)";
    }
    let thing = match is_on_loop {
        true => "the loop",
        false => "a thread",
    };
    let waits = match Percentile::of_len(log.requests - log.refused) {
        Some(Percentile::P99) => format!(
            "1 request in 100 waits {} or longer for {thing}, 1 in 20 waits {}",
            wait(log.queue.p99_ms),
            wait(log.queue.p95_ms)
        ),
        Some(Percentile::P95) => format!(
            "1 request in 20 waits {} or longer for {thing}",
            wait(log.queue.p95_ms)
        ),
        None => format!("The longest wait for {thing} is {}", wait(log.queue.max_ms)),
    };
    let refused = refused(log.refused as f64 / log.requests.max(1) as f64);
    format!("Now: {what}. {waits}{refused}.")
}

/// Whether the simulation repeats the log, in a sentence.
pub(super) fn checked(present: &Present) -> Option<String> {
    let calibration = present.calibration.as_ref()?;
    let error = calibration.errors.last()?;
    let (simulated, measured) = (wait(error.simulated_ms), wait(error.measured_ms));
    let what = format!(
        "p{} of the wait is {measured} in the log and {simulated} in the simulation",
        error.percentile
    );
    Some(match calibration.holds {
        true => format!("Checked: {what}."),
        false => format!("TOO FAR OFF: {what}; do not rely on the rest."),
    })
}

fn refused(part: f64) -> String {
    match part > SAME_REFUSED {
        true => format!("; {} are refused", share(part)),
        false => String::new(),
    }
}

fn wait(ms: f64) -> String {
    duration(ms / 1e3)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn answer(threads: usize, p99_ms: f64, refused: u64) -> Answer {
        let queue = Times {
            p95_ms: p99_ms / 10.0,
            p99_ms,
            ..Times::default()
        };
        Answer {
            threads: threads.to_string(),
            concurrency: None,
            processes: 1,
            rate: 1.0,
            control: "on",
            queue,
            total: queue,
            arrived: 1_000,
            refused,
            busy: 0.5,
            threads_mean: threads as f64,
            threads_max: threads,
            is_beyond: false,
            pools: Vec::new(),
            timeline: Vec::new(),
        }
    }

    /// The choice with four threads today, by the p99 of some numbers of threads.
    fn chosen(rows: &[(usize, f64)]) -> Choice {
        let rows: Vec<Answer> = rows
            .iter()
            .map(|(threads, ms)| answer(*threads, *ms, 0))
            .collect();
        let value = Percentile::P99.value();
        let now = rows.iter().find(|row| row.threads == "4").unwrap().clone();
        let objectives = plateau(&rows, value(&now.queue), value);
        let holds = |row: &&Answer| objectives.iter().all(|objective| objective.holds(row));
        let found = rows.iter().find(holds).cloned();
        choice(&now, found, Threads::fixed(4), value)
    }

    #[test]
    fn proposes_the_fewest_threads_behind_which_nothing_gets_better() {
        let more = |choice: Choice| match choice {
            Choice::More(found) => found.threads,
            other => panic!("{other:?}"),
        };
        assert_eq!(
            more(chosen(&[
                (2, 900.0),
                (4, 256.0),
                (5, 80.0),
                (6, 3.7),
                (8, 3.5)
            ])),
            "6"
        );
        assert_eq!(
            chosen(&[(2, 900.0), (4, 256.0), (8, 255.0)]),
            Choice::Enough
        );
        assert_eq!(chosen(&[(2, 9.0), (4, 4.9), (8, 0.1)]), Choice::Enough);
        assert_eq!(
            chosen(&[(2, 0.2), (4, 0.1), (8, 0.1)]),
            Choice::Fewer("2".to_owned())
        );
        // More make it worse.
        assert_eq!(chosen(&[(2, 90.0), (4, 10.0), (8, 40.0)]), Choice::Enough);
    }

    #[test]
    fn proposes_nothing_that_the_log_knows_nothing_of() {
        let now = answer(4, 256.0, 0);
        let beyond = Answer {
            is_beyond: true,
            ..answer(6, 1.0, 0)
        };
        let value = Percentile::P99.value();
        assert_eq!(
            choice(&now, Some(beyond), Threads::fixed(4), value),
            Choice::Enough
        );
        assert_eq!(choice(&now, None, Threads::fixed(4), value), Choice::Enough);
        assert_eq!(Percentile::of_len(199), None);
        assert_eq!(Percentile::of_len(999), Some(Percentile::P95));
    }

    #[test]
    fn refusals_count_as_waits_do() {
        let (now, more) = (answer(4, 1.0, 50), answer(6, 1.0, 0));
        let value = Percentile::P99.value();
        let [_, refusals] = plateau(&[now.clone(), more.clone()], 1.0, value);
        assert!(!refusals.holds(&now) && refusals.holds(&more));
        assert!(matches!(
            choice(&now, Some(more), Threads::fixed(4), value),
            Choice::More(_)
        ));
    }

    #[test]
    fn a_pool_of_its_own_is_a_configuration() {
        let apart = |path: &str| Apart {
            path: path.to_owned(),
            threads: 1,
            others_threads: 3,
            answer: answer(3, 1.0, 0),
        };
        let expect = "threads = 3\n[[pool]]\nname = \"report\"\nthreads = 1\n\
                      [[pool_rule]]\npool = \"report\"\npath = \"/report/*\"\n";
        assert_eq!(apart("/report/*").toml(), expect);
        assert!(apart("/*/default").toml().contains("name = \"slow\""));
        assert!(apart("/").toml().contains("name = \"slow\""));
    }
}
