//! The results of a run: counts and percentiles, of all requests and of each path, as one line of
//! JSON. Latencies are in microseconds. A failed request counts as if it had waited for a reply as
//! long as it may, an unsent one with the time that it waited for its turn: at least so long.

use std::time::Duration;

/// One request; `path` is its place in the list of paths.
pub struct Seen {
    pub path: usize,
    /// Its intended start, from that of the first.
    pub at: Duration,
    pub latency: Duration,
    pub lag: Duration,
    pub ending: Ending,
}

/// How a request ended.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Ending {
    Replied,
    Failed,
    /// Its connection waited for the replies before it until all was over.
    Unsent,
}

/// The line. Paths are written as they are: they must not need escaping.
pub fn line(paths: &[String], seen: &[Seen]) -> String {
    let by_path: Vec<String> = paths
        .iter()
        .enumerate()
        .map(|(place, path)| {
            format!(
                "\"{path}\": {{{}}}",
                numbers(seen.iter().filter(|one| one.path == place))
            )
        })
        .collect();
    let lag = percentiles("lag_", seen.iter().map(|one| one.lag));
    format!(
        "{{{}, {lag}, \"paths\": {{{}}}}}",
        numbers(seen.iter()),
        by_path.join(", ")
    )
}

fn numbers<'a>(seen: impl Iterator<Item = &'a Seen> + Clone) -> String {
    let requests = seen.clone().count();
    let count = |ending| seen.clone().filter(|one| one.ending == ending).count();
    let (failed, unsent) = (count(Ending::Failed), count(Ending::Unsent));
    let latencies = percentiles("", seen.clone().map(|one| one.latency));
    let counts = [
        ("requests", requests),
        ("failed", failed),
        ("unsent", unsent),
    ];
    let counts = counts.map(|(name, count)| format!("\"{name}\": {count}"));
    let worst = seen.max_by_key(|one| one.latency);
    let worst_at_s = worst.map_or(0.0, |one| one.at.as_secs_f64());
    format!(
        "{}, \"worst_at_s\": {worst_at_s:.3}, {latencies}",
        counts.join(", ")
    )
}

fn percentiles(prefix: &str, durations: impl Iterator<Item = Duration>) -> String {
    let mut sorted: Vec<Duration> = durations.collect();
    sorted.sort_unstable();
    let at = |share: f64| {
        let rank = (sorted.len() as f64 * share).ceil() as usize;
        let value = sorted
            .get(rank.saturating_sub(1))
            .copied()
            .unwrap_or_default();
        value.as_secs_f64() * 1e6
    };
    [("p50", 0.5), ("p99", 0.99), ("p999", 0.999), ("max", 1.0)]
        .map(|(name, share)| format!("\"{prefix}{name}_us\": {:.1}", at(share)))
        .join(", ")
}
