//! The curves of runs: percentiles, and second by second.
//!
//! Takes outcomes, gives lines for charts. Durations become seconds. Nothing here knows of HTML.

use present::{BAD, Line, Look};

use crate::distribution::{BEYOND_LEN, Summary};
use crate::outcome::{Outcome, Second};

/// Points of a percentile curve.
const POINTS_LEN: usize = 160;

/// The percentile curve of a summary, and its end where fewer than ten values lie beyond each point.
pub(super) fn percentiles(name: &str, index: usize, summary: &Summary) -> Vec<Line> {
    let points = quantiles(summary);
    // The curve goes on as dots, where a single slow request moves it.
    let sure_len = points
        .iter()
        .take_while(|(_, _, beyond)| *beyond >= BEYOND_LEN)
        .count();
    let plain = |points: &[(f64, f64, f64)]| points.iter().map(|(x, y, _)| (*x, *y)).collect();
    // The uncertain end begins where the certain part ends.
    let rest = points
        .get(sure_len.saturating_sub(1)..)
        .filter(|_| sure_len < points.len());
    let whole = line(name, index, run_look(index), plain(&points[..sure_len]));
    let rest = rest.map(|rest| line(name, index, Look::Dotted, plain(rest)));
    [Some(whole), rest].into_iter().flatten().collect()
}

/// Quantile, seconds, and how many values lie beyond.
fn quantiles(summary: &Summary) -> Vec<(f64, f64, f64)> {
    let Some(histogram) = summary
        .histogram()
        .filter(|histogram| !histogram.is_empty())
    else {
        return Vec::new();
    };
    // Magnitudes of what lies beyond: from 50 % to 0.001 %.
    let (first, last) = (std::f64::consts::LOG10_2, 5.0);
    let len = histogram.len() as f64;
    let max_ns = Some(summary.max_us * 1e3).filter(|ns| *ns > 0.0);
    let max_ns = max_ns.unwrap_or(f64::INFINITY);
    // One pass over the histogram: 160 searches from its beginning took longer than the rest of the page.
    let mut recorded = histogram.iter_recorded();
    let (mut seen, mut ns) = (0u64, 0.0);
    let points = (0..=POINTS_LEN).map_while(|index| {
        let share = index as f64 / POINTS_LEN as f64;
        let beyond = 10f64.powf(-(first + (last - first) * share));
        // As `value_at_quantile`, which would begin anew for each.
        let wanted = ((1.0 - beyond) * len).ceil() as u64;
        while seen < wanted {
            let value = recorded.next()?;
            seen += value.count_since_last_iteration();
            ns = value.value_iterated_to() as f64;
        }
        assert!(
            seen <= histogram.len(),
            "no value of a histogram is counted twice"
        );
        // The end of a bucket may lie beyond all values.
        Some((1.0 - beyond, ns.min(max_ns) / 1e9, beyond * len))
    });
    // Beyond the last value there is nothing to draw.
    points
        .take_while(|(_, _, beyond)| *beyond >= 1.0 - 1e-9)
        .collect()
}

/// Right replies a second, and failures where there are any.
pub(super) fn rates(name: &str, index: usize, runs_len: usize, outcome: &Outcome) -> Vec<Line> {
    let per_second = |count: fn(&Second) -> f64| means(&outcome.series, count);
    let answered = per_second(|at| at.answered as f64);
    let mut lines = vec![line(name, index, run_look(index), answered)];
    if outcome.series.iter().any(|at| at.failed > 0) {
        let (colour, name) = match runs_len {
            1 => (BAD, "failed".to_owned()),
            _ => (index, format!("{name}, failed")),
        };
        let failed = per_second(|at| at.failed as f64);
        lines.push(line(&name, colour, Look::Dashed, failed));
    }
    lines
}

/// The mean over each step.
fn means(series: &[Second], of: fn(&Second) -> f64) -> Vec<(f64, f64)> {
    let mean = |step: &[Second]| step.iter().map(of).sum::<f64>() / step.len() as f64;
    // A mean, not a sum: the axis is in requests a second however long a step is.
    let steps = steps(series).into_iter();
    steps.map(|step| (begin(step), mean(step))).collect()
}

/// A latency of each second, in seconds; nothing where no request ended.
pub(super) fn latencies(
    name: &str,
    colour: usize,
    look: Look,
    outcome: &Outcome,
    of: fn(&Second) -> f64,
) -> Line {
    // Of several seconds the greatest, because a mean of percentiles is a percentile of nothing.
    let greatest = |step: &[Second]| step.iter().map(of).fold(f64::NAN, f64::max) / 1e6;
    let steps = steps(&outcome.series);
    let points = steps.iter().map(|step| (begin(step), greatest(step)));
    line(name, colour, look, points.collect())
}

/// How the lines of a run are drawn.
pub(super) fn run_look(index: usize) -> Look {
    // There are eight colours; further runs differ by their dashes.
    match (index / 8) % 2 {
        0 => Look::Solid,
        _ => Look::Dashed,
    }
}

fn steps(series: &[Second]) -> Vec<&[Second]> {
    // Hours have more seconds than a chart has pixels.
    let step_len = series.len().div_ceil(300).max(1);
    series.chunks(step_len).collect()
}

fn begin(step: &[Second]) -> f64 {
    step.first().map_or(0.0, |second| second.at_s as f64)
}

fn line(name: &str, colour: usize, look: Look, points: Vec<(f64, f64)>) -> Line {
    Line {
        name: name.to_owned(),
        points,
        colour: Some(colour),
        look,
        ..Line::default()
    }
}

#[cfg(test)]
mod tests {
    use super::super::sample;
    use super::*;

    #[test]
    fn a_percentile_curve_ends_at_the_last_value() {
        let run = sample::closed();
        let traces = percentiles("a", 3, &run.times.latency);
        let [whole, rest] = &traces[..] else {
            panic!("{traces:?}")
        };
        assert_eq!(
            (whole.colour, whole.look, rest.look),
            (Some(3), Look::Solid, Look::Dotted)
        );
        assert_eq!(whole.points.last(), rest.points.first());
        // 20,000 values: ten lie beyond 99.95 %, one beyond 99.995 %.
        let ends = [whole, rest].map(|trace| trace.points.last().unwrap().0);
        assert!((0.999..=0.999_5).contains(&ends[0]), "{ends:?}");
        assert!((0.999_94..=0.999_95).contains(&ends[1]), "{ends:?}");
        let all = whole.points.iter().chain(&rest.points);
        let values: Vec<f64> = all.map(|(_, value)| *value).collect();
        assert!(values.is_sorted(), "{values:?}");
        assert!((values[0] - run.times.latency.p50_us / 1e6).abs() < 1e-6);
    }

    #[test]
    fn long_runs_are_drawn_in_steps() {
        let mut run = sample::closed();
        let second = run.series[5];
        run.series = (0..1_000).map(|at_s| Second { at_s, ..second }).collect();
        run.series[4].max_us = 9e6;
        let rate = &rates("a", 0, 1, &run)[0].points;
        assert_eq!(rate.len(), 250);
        assert!(
            rate.iter()
                .all(|(_, value)| *value == second.answered as f64)
        );
        let longest = latencies("a", 0, Look::Solid, &run, |at| at.max_us);
        assert_eq!(longest.points[1], (4.0, 9.0));
    }
}
