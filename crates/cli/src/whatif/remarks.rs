//! What a reader has to know before trusting the predictions.
//!
//! Takes the facts of a log and the answers, gives sentences. A sentence about more threads is made from the
//! answers themselves, so that it cannot contradict the table.

use whatif::prediction::Answer;

use super::log_facts::{CORRELATION_MAX, Present};

/// Waits below this do not matter.
const WAIT_MIN_MS: f64 = 1.0;
/// More threads shorten the waits if p95 or p99 falls to this share or less.
const SHORTER_SHARE: f64 = 0.5;

/// Remarks on the facts of a log, with the answers that stand in the table.
pub(super) fn of(present: &Present, answers: &[&Answer]) -> Vec<String> {
    let mut remarks = Vec::new();
    let Some(log) = &present.log else {
        return remarks;
    };
    if let Some(correlation) = log.correlation.filter(|found| *found > CORRELATION_MAX) {
        remarks.push(slow_together(correlation, effect(present, answers)));
    }
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
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Effect {
    Shorter,
    None,
    /// The table has no row with more threads.
    Unknown,
}

/// Compares the present with rows that have more threads and nothing else different.
fn effect(present: &Present, answers: &[&Answer]) -> Effect {
    let Some(calibration) = &present.calibration else {
        return Effect::Unknown;
    };
    let (now, waits) = (&present.variant, &calibration.simulated.queue);
    let threads_max = |answer: &Answer| answer.threads.rsplit(':').next()?.parse::<usize>().ok();
    let has_more = |answer: &&&Answer| {
        (answer.rate, answer.processes) == (now.rate, now.processes)
            && threads_max(answer) > Some(now.pools[0].threads.max)
    };
    let mut more = answers.iter().filter(has_more).peekable();
    if more.peek().is_none() {
        return Effect::Unknown;
    }
    let falls = |now_ms: f64, ms: f64| now_ms >= WAIT_MIN_MS && ms <= SHORTER_SHARE * now_ms;
    let is_shorter = |answer: &&Answer| {
        falls(waits.p95_ms, answer.queue.p95_ms) || falls(waits.p99_ms, answer.queue.p99_ms)
    };
    match more.any(is_shorter) {
        true => Effect::Shorter,
        false => Effect::None,
    }
}

fn slow_together(correlation: f64, effect: Effect) -> String {
    let (cause, found) = (
        "one cause that slows all requests down at once (garbage collection, a disk, a lock)",
        format!("long waits and long runs came together (correlation {correlation:.2})"),
    );
    match effect {
        Effect::Shorter => format!(
            "{found}: more threads shorten the waits in the table, which takes the run times as they were; \
             they will not help against {cause}"
        ),
        Effect::None => format!(
            "{found}: look for {cause}, because more threads hardly shorten the waits in the table"
        ),
        Effect::Unknown => {
            format!("{found}: look for {cause} first, because more threads may not help against it")
        }
    }
}
