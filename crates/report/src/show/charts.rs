//! The charts of a tally: a distribution for each phase, and what happened when.
//!
//! Takes what a tally keeps, gives charts.

use present::{Axis, BAD, Bar, Chart, Line, Scale, duration, number, percent, thousands};
use telemetry::Snapshot;

use crate::filter::local_ns;
use crate::spread::{Spread, secs};
use crate::tally::{Group, PHASES, Tally};
use crate::timeline::{Step, Timeline};

/// The status classes from the bottom of the stack upwards: class, colour, name.
const CLASSES: [(usize, usize, &str); 6] = [
    (2, 2, "2xx"),
    (3, 0, "3xx"),
    (1, 3, "1xx"),
    (4, 1, "4xx"),
    (5, BAD, "5xx"),
    (0, 7, "none"),
];
/// Colours of the median and of p99.
const QUANTILES: [(&str, f64, usize); 2] = [("median", 0.5, 0), ("p99", 0.99, 3)];
/// The phases as charts: the wait for a thread and the run are the answer most often, what the client does is last.
const ORDER: [usize; PHASES.len()] = [1, 2, 4, 0, 3];
/// Nothing shorter has a place.
const SHORTEST_SECS: f64 = 1e-6;
/// Durations of a microsecond are counted with those of a little less.
const SHORTEST_NS: u64 = 980;

/// A chart for each phase that is known, all with the same axis.
pub(super) fn distributions(group: &Group) -> Vec<Chart> {
    let known = || {
        let phases = ORDER
            .into_iter()
            .map(|phase| (PHASES[phase], &group.phases[phase]));
        phases.filter(|(_, spread)| !spread.is_empty())
    };
    // By whole bars, so that the first and the last are seen in their full width.
    let ends = known().flat_map(|(_, spread)| {
        let bars = bars(spread.shape());
        let ends = bars.first().zip(bars.last());
        ends.map_or([SHORTEST_SECS; 2], |(first, last)| [first.left, last.right])
    });
    let ends = ends.fold((f64::MAX, SHORTEST_SECS), |(low, high), end| {
        (low.min(end), high.max(end))
    });
    known()
        .map(|(name, spread)| distribution(name, spread, ends))
        .collect()
}

/// How many requests took about how long. A bar's height is the share for each doubling of the duration, so that the
/// shape does not depend on how wide a bar is.
fn distribution(name: &str, spread: &Spread, ends: (f64, f64)) -> Chart {
    let mut scale = Scale::of(Axis::Durations, Axis::Bare);
    scale.x_ends = Some(ends);
    for (name, q, _) in QUANTILES {
        // What is nothing has no place on an axis of magnitudes.
        let value = spread.quantile_secs(q);
        if value >= SHORTEST_SECS {
            scale = scale.marked(value, name);
        }
    }
    let shape = spread.shape();
    // A log has whole microseconds: what it writes as 0 has no place on an axis of magnitudes, and is told beside it.
    let short = shape
        .buckets()
        .take_while(|(middle, _)| middle.0 < SHORTEST_NS);
    let short: u64 = short.map(|(_, len)| len).sum();
    let mut hint = format!("max {}", duration(spread.max_secs()));
    if short > 0 {
        hint += &format!(" · {} below 1 µs", percent(short, spread.len()));
    }
    let labels = ["duration", "requests"];
    Chart {
        hint,
        bars: bars(shape),
        empty_text: Some("all below 1 µs"),
        ..Chart::of(name, labels, scale, Vec::new())
    }
}

/// Whole microseconds up to 4, every second one up to 8, then four bars for each doubling: logs have whole
/// microseconds, and a narrower bar would stay empty.
fn bars(shape: &Snapshot) -> Vec<Bar> {
    let small = [1.0, 2.0, 3.0, 4.0, 6.0];
    let large = (0..140).map(|quarter| 8.0 * 2f64.powf(f64::from(quarter) / 4.0));
    let edges: Vec<f64> = small.into_iter().chain(large).map(|us| us * 1e-6).collect();
    // The last edge begins no bar: it is a thousand years away.
    let mut lens = vec![0u64; edges.len()];
    for (middle, len) in shape.buckets() {
        // The middle of a bucket may be a little below the whole microsecond that was counted.
        let place = edges.partition_point(|edge| *edge <= secs(middle) * 1.016);
        if let Some(counted) = place.checked_sub(1).and_then(|place| lens.get_mut(place)) {
            *counted += len;
        }
    }
    let counted = edges.windows(2).zip(lens).filter(|(_, len)| *len > 0);
    let bars = counted.map(|(pair, len)| Bar {
        left: pair[0],
        right: pair[1],
        low: 0.0,
        high: len as f64 / (pair[1] / pair[0]).log2(),
        colour: 0,
        text: format!(
            "{} to {}\n{} requests, {}",
            duration(pair[0]),
            duration(pair[1]),
            thousands(len),
            percent(len, shape.len())
        ),
    });
    bars.collect()
}

/// Requests a second by status, and the durations of each phase.
pub(super) fn over_time(tally: &Tally, timeline: &Timeline) -> Vec<Chart> {
    let steps: Vec<(u64, &Step)> = timeline.steps().collect();
    let (false, Some((_, _, offset))) = (steps.is_empty(), tally.time()) else {
        return Vec::new();
    };
    let width = timeline.width_secs();
    let begin =
        |second: u64| local_ns(second.saturating_mul(1_000_000_000), offset) / 1_000_000_000;
    let steps: Vec<(f64, &Step)> = steps
        .into_iter()
        .map(|(second, step)| (begin(second) as f64, step))
        .collect();
    let phases = ORDER.into_iter();
    let phases = phases.map(|phase| phase_over_time(PHASES[phase], phase, &steps, width));
    let phases = phases.filter(|chart| !chart.is_empty() || chart.empty_text.is_some());
    std::iter::once(stack(&steps, width))
        .chain(phases)
        .collect()
}

/// Requests a second, in layers.
fn stack(steps: &[(f64, &Step)], width_secs: u64) -> Chart {
    let layers = || {
        let is_used = |class: usize| steps.iter().any(|(_, step)| step.classes[class] > 0);
        CLASSES
            .into_iter()
            .filter(move |(class, _, _)| is_used(*class))
    };
    let per_second = |count: u64| count as f64 / width_secs as f64;
    let mut chart = Chart::of(
        "Requests a second",
        ["time of day", "requests/s"],
        Scale::of(Axis::Clock, Axis::Linear),
        Vec::new(),
    );
    chart.hint = "by status".to_owned();
    chart.keys = layers()
        .map(|(_, colour, name)| (colour, name.to_owned()))
        .collect();
    for (begin, step) in steps {
        assert_eq!(
            step.classes.iter().sum::<u64>(),
            step.len,
            "each request of a step has one class"
        );
        let found = || layers().filter(|(class, _, _)| step.classes[*class] > 0);
        let counts =
            found().map(|(class, _, name)| format!("\n{name} {}", thousands(step.classes[class])));
        let text = format!(
            "{}, {width_secs} s\n{} requests/s{}",
            present::date_time(*begin as u64),
            number(per_second(step.len)),
            counts.collect::<String>()
        );
        // Each class stands on what is below it; all of a step tell the same, wherever the pointer is.
        let mut below = 0;
        for (class, colour, _) in found() {
            // Added up as counts: as rates their rounding errors would leave gaps.
            let low = per_second(below);
            below += step.classes[class];
            chart.bars.push(Bar {
                left: *begin,
                right: begin + width_secs as f64,
                low,
                high: per_second(below),
                colour,
                text: text.clone(),
            });
        }
    }
    chart
}

/// Median and p99 of a phase, at the middle of each step.
fn phase_over_time(name: &str, phase: usize, steps: &[(f64, &Step)], width_secs: u64) -> Chart {
    let value = |step: &Step, q| {
        let shape = step.phases[phase].as_ref();
        shape.map(|shape| shape.quantile(q))
    };
    let p99s = || steps.iter().filter_map(|(_, step)| value(step, 0.99));
    // Of nothing but zeros a line would show a microsecond that nobody has measured.
    let is_short = p99s().next().is_some() && p99s().all(|p99| p99.0 < SHORTEST_NS);
    let lines = QUANTILES.map(|(name, q, colour)| {
        // At the middle of its step, as a bar of the requests beside it.
        let points = steps.iter().map(|(begin, step)| {
            let middle = begin + width_secs as f64 / 2.0;
            // Nothing has no place on an axis of magnitudes: it is drawn where the shortest is.
            (
                middle,
                value(step, q).map_or(f64::NAN, |value| secs(value).max(SHORTEST_SECS)),
            )
        });
        Line {
            name: name.to_owned(),
            points: points.collect(),
            colour: Some(colour),
            ..Line::default()
        }
    });
    let scale = Scale::of(Axis::Clock, Axis::Durations);
    let lines = if is_short { Vec::new() } else { lines.into() };
    Chart {
        empty_text: is_short.then_some("median and p99 below 1 µs"),
        ..Chart::of(name, ["time of day", "duration"], scale, lines)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use telemetry::Nanos;

    #[test]
    fn every_duration_is_in_one_bar() {
        let mut shape = Snapshot::default();
        for us in 1..2_000u64 {
            shape.record(Nanos(us * 1_000));
        }
        let bars = bars(&shape);
        let lens = bars
            .iter()
            .map(|bar| bar.high * (bar.right / bar.left).log2());
        assert!((lens.sum::<f64>() - 1_999.0).abs() < 1e-6);
        // One request for each microsecond: bars of whole microseconds have as many.
        assert!(
            bars[3].text.ends_with("\n2 requests, 0.1 %"),
            "{}",
            bars[3].text
        );
    }
}
