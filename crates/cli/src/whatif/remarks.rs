//! What a reader has to know before trusting the predictions.
//!
//! Takes the facts of a log and the answers, gives sentences. A sentence about more threads is made from the
//! answers themselves, so that it cannot contradict the table.

use whatif::prediction::{Answer, Variant};

use super::log_facts::{CORRELATION_MAX, Present};
use super::table::ms;

/// Waits below this do not matter.
const WAIT_MIN_MS: f64 = 1.0;
/// More threads shorten the waits if p95 or p99 falls to this share or less.
const SHORTER_SHARE: f64 = 0.9;

/// Remarks on the facts of a log, with the answers that stand in the table.
pub(super) fn of(present: &Present, answers: &[&Answer]) -> Vec<String> {
    let mut remarks = Vec::new();
    let Some(log) = &present.log else {
        return remarks;
    };
    if let Some(correlation) = log.correlation.filter(|found| *found > CORRELATION_MAX) {
        let simulated = present.calibration.as_ref().map(|found| &found.simulated);
        let effect = simulated.map_or(Effect::Unknown, |simulated| {
            effect(&present.variant, simulated, answers)
        });
        remarks.push(slow_together(correlation, &effect));
    }
    // Whoever invents the run times has nothing to compare them with.
    if !log.has_runs {
        remarks.push(
            "`--run` made up the run times, so no simulated value could be compared with the log"
                .to_owned(),
        );
    }
    remarks
}

/// Run times that depend on the number of running requests; the table has a line of its own for it.
pub(super) fn dependence(present: &Present) -> Option<String> {
    let fit = present.log.as_ref()?.fit.as_ref()?;
    fit.depends().then(|| {
        format!(
            "run times depend on the number of running requests: {:.2} times as long with {} (σ {:.3}, κ \
             {:.4}); the simulation uses the fitted curve",
            fit.slowdown, fit.running_seen, fit.sharing.sigma, fit.sharing.kappa
        )
    })
}

/// What more threads do to the waits in the table.
#[derive(Clone, PartialEq, Debug)]
enum Effect {
    /// The p95 of the queue times, or where that hardly changes their p99, in milliseconds.
    Shorter {
        percentile: &'static str,
        from_ms: f64,
        to_ms: f64,
        threads: String,
    },
    None,
    /// The table has no row with more threads to compare with another one.
    Unknown,
}

/// Compares rows that differ in their threads only. The row with today's threads is what others are compared with;
/// where it is not in the table, that is the simulated log, if its controller was as in the row.
fn effect(now: &Variant, simulated: &Answer, answers: &[&Answer]) -> Effect {
    let threads_max = |answer: &Answer| answer.threads.rsplit(':').next()?.parse::<usize>().ok();
    let is_alike = |one: &Answer, other: &Answer| {
        (one.rate, one.processes, one.control) == (other.rate, other.processes, other.control)
    };
    let today = now.pools[0].threads.to_string();
    let mut effect = Effect::Unknown;
    for more in answers {
        let has_more = threads_max(more) > Some(now.pools[0].threads.max);
        // At another rate the waits are others anyway, and say nothing about threads.
        if !has_more || (more.rate, more.processes) != (now.rate, now.processes) {
            continue;
        }
        let mut rows = answers.iter().copied().chain([simulated]);
        let Some(base) = rows.find(|one| one.threads == today && is_alike(one, more)) else {
            continue;
        };
        let pairs = [
            ("p95", base.queue.p95_ms, more.queue.p95_ms),
            ("p99", base.queue.p99_ms, more.queue.p99_ms),
        ];
        let shorter = |(_, from_ms, to_ms): &&(&str, f64, f64)| {
            *from_ms >= WAIT_MIN_MS && *to_ms <= SHORTER_SHARE * from_ms
        };
        let best_ms = match &effect {
            Effect::Shorter { to_ms, .. } => *to_ms,
            _ => f64::INFINITY,
        };
        match pairs.iter().find(shorter) {
            Some(&(percentile, from_ms, to_ms)) if to_ms < best_ms => {
                effect = Effect::Shorter {
                    percentile,
                    from_ms,
                    to_ms,
                    threads: more.threads.clone(),
                };
            }
            Some(_) => {}
            // One row that helps outweighs all that do not: they may have too few threads more, or too many.
            None if effect == Effect::Unknown => effect = Effect::None,
            None => {}
        }
    }
    effect
}

fn slow_together(correlation: f64, effect: &Effect) -> String {
    let (cause, found) = (
        "one cause that slows all requests down at once (garbage collection, a disk, a lock)",
        format!("long waits and long runs came together (correlation {correlation:.2})"),
    );
    match effect {
        Effect::Shorter {
            percentile,
            from_ms,
            to_ms,
            threads,
        } => format!(
            "{found}: more threads shorten the waits in the table ({percentile} from {} to {} ms with {threads}), \
             which takes the run times as they were; they will not help against {cause}",
            ms(*from_ms),
            ms(*to_ms)
        ),
        Effect::None => format!(
            "{found}: look for {cause}, because more threads hardly shorten the waits in the table"
        ),
        Effect::Unknown => {
            format!("{found}: look for {cause} first, because more threads may not help against it")
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use whatif::prediction::{ControlMode, PoolVariant, Threads, Times};

    use super::*;

    fn row(threads: usize, control: bool, p95_ms: f64, p99_ms: f64) -> Answer {
        let queue = Times {
            p95_ms,
            p99_ms,
            ..Times::default()
        };
        Answer {
            threads: threads.to_string(),
            concurrency: None,
            processes: 1,
            rate: 1.0,
            control: if control { "on" } else { "off" },
            queue,
            total: queue,
            arrived: 1,
            refused: 0,
            busy: 0.5,
            threads_mean: threads as f64,
            threads_max: threads,
            is_beyond: false,
            pools: Vec::new(),
            timeline: Vec::new(),
        }
    }

    fn now(threads: usize) -> Variant {
        Variant {
            pools: vec![PoolVariant::of_threads("default", Threads::fixed(threads))],
            processes: 1,
            concurrency: ::whatif::Concurrency::default(),
            rate: 1.0,
            control: ControlMode::Off,
        }
    }

    proptest! {
        #[test]
        fn the_note_never_contradicts_the_table(
            simulated in (0.0..100.0f64, 0.0..100.0f64),
            rows in prop::collection::vec((1..6usize, any::<bool>(), 0.0..100.0f64, 0.0..100.0f64), 0..8),
        ) {
            let rows: Vec<Answer> = rows.into_iter().map(|(n, on, p95, p99)| row(n, on, p95, p99)).collect();
            let table: Vec<&Answer> = rows.iter().collect();
            let simulated = row(3, false, simulated.0, simulated.1);
            let effect = effect(&now(3), &simulated, &table);
            let note = slow_together(0.5, &effect);
            let base = |more: &Answer| {
                let mut rows = rows.iter().chain([&simulated]);
                rows.find(|one| one.threads == "3" && one.control == more.control)
            };
            let more: Vec<(&Answer, &Answer)> = rows
                .iter()
                .filter(|one| one.threads_max > 3)
                .filter_map(|one| Some((one, base(one)?)))
                .collect();
            let falls = |from: f64, to: f64| from >= 1.0 && to <= 0.9 * from;
            let is_cured = |&&(more, base): &&(&Answer, &Answer)| {
                falls(base.queue.p95_ms, more.queue.p95_ms) || falls(base.queue.p99_ms, more.queue.p99_ms)
            };
            let cure = more.iter().find(is_cured);
            prop_assert_eq!(note.contains("more threads shorten the waits"), cure.is_some(), "{}", note);
            prop_assert_eq!(note.contains("hardly shorten"), cure.is_none() && !more.is_empty(), "{}", note);
            if let Effect::Shorter { to_ms, threads, .. } = effect {
                let stands_there = |(more, _): &(&Answer, &Answer)| {
                    more.threads == threads && [more.queue.p95_ms, more.queue.p99_ms].contains(&to_ms)
                };
                prop_assert!(more.iter().any(stands_there));
            }
        }
    }
}
