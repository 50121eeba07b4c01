//! Charts as SVG: distributions on a logarithmic axis of time, curves and stacks over the time of day.
//!
//! Takes numbers, gives text that stands alone: no script, no font, colours by the classes of the page.
//! Hovering tells the exact numbers. Drawn 520 wide and scaled by the browser, so that a phone shows the
//! same with labels that can still be read.

use std::fmt::Write as _;

use telemetry::{Snapshot, civil_from_unix};

use super::text::{percent, rate, short_seconds, thousands};

const WIDTH: f64 = 520.0;
const HEIGHT: f64 = 184.0;
const LEFT: f64 = 66.0;
const RIGHT: f64 = 10.0;
const TOP: f64 = 12.0;
const BOTTOM: f64 = 27.0;
/// Ticks on the axis of the time of day.
const TIME_TICKS_LEN_MAX: u64 = 5;

/// A range of durations in seconds on a logarithmic axis; both ends are above zero.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Durations {
    low: f64,
    high: f64,
}

impl Durations {
    /// What holds all of `values`, widened to decades; nothing is shorter than a microsecond.
    pub(super) fn holding(values: impl Iterator<Item = f64>) -> Durations {
        let values = values.filter(|value| *value >= 1e-6);
        let (low, high) = values.fold((f64::MAX, 1e-6f64), |(low, high), value| {
            (low.min(value), high.max(value))
        });
        let low = 10f64.powf((low.min(high).log10() + 1e-9).floor());
        let high = 10f64.powf((high.log10() - 1e-9).ceil());
        Durations {
            low,
            high: high.max(low * 10.0),
        }
    }

    /// From 0 at the low end to 1 at the high one.
    fn share(self, value: f64) -> f64 {
        ((value / self.low).ln() / (self.high / self.low).ln()).clamp(0.0, 1.0)
    }

    fn decades(self) -> impl Iterator<Item = f64> {
        let first = self.low.log10().round() as i32;
        let last = self.high.log10().round() as i32;
        (first..=last).map(|power| 10f64.powi(power))
    }
}

/// The steps of time that all curves share.
#[derive(Clone, Copy, Debug)]
pub(super) struct Hours {
    /// The first second, on the log's own clock.
    pub(super) first: u64,
    pub(super) step_secs: u64,
    pub(super) steps_len: u64,
}

impl Hours {
    fn x(self, step: f64) -> f64 {
        LEFT + step / self.steps_len.max(1) as f64 * (WIDTH - LEFT - RIGHT)
    }

    fn span_secs(self) -> u64 {
        self.step_secs * self.steps_len.max(1)
    }
}

/// A distribution: how many requests took about how long. Its height is the share for each doubling of the
/// duration, so that the shape does not depend on how wide a bar is.
pub(super) fn distribution(shape: &Snapshot, range: Durations) -> String {
    let bars = bars(shape);
    let highest = bars
        .iter()
        .map(Bar::height)
        .fold(f64::MIN_POSITIVE, f64::max);
    let mut svg = opened("distribution on a logarithmic axis of time");
    duration_ticks_below(range, &mut svg);
    let x = |value: f64| LEFT_BARE + range.share(value) * (WIDTH - LEFT_BARE - RIGHT);
    for bar in &bars {
        let (left, right) = (x(bar.low), x(bar.high));
        let height = bar.height() / highest * (HEIGHT - TOP - BOTTOM);
        let _ = write!(
            svg,
            "<rect class=bar x={left:.1} y={:.1} width={:.1} height={height:.1}><title>{} to {}: {} requests, {}</title></rect>",
            HEIGHT - BOTTOM - height,
            (right - left - 0.6).max(0.6),
            short_seconds(bar.low),
            short_seconds(bar.high),
            thousands(bar.len),
            percent(bar.len, shape.len()),
        );
    }
    for (class, q) in [("median", 0.5), ("p99", 0.99)] {
        let value = shape.quantile(q).0 as f64 / 1e9;
        if value >= 1e-6 {
            let at = x(value);
            let _ = write!(
                svg,
                "<line class={class} x1={at:.1} x2={at:.1} y1={TOP} y2={:.1}><title>{class} {}</title></line>",
                HEIGHT - BOTTOM,
                short_seconds(value),
            );
        }
    }
    svg.push_str("</svg>");
    svg
}

/// One curve: its class, and seconds by step; `None` where there was nothing.
pub(super) struct Curve {
    pub(super) class: &'static str,
    pub(super) values: Vec<Option<f64>>,
}

/// Curves of durations over time.
pub(super) fn curves(curves: &[Curve], hours: Hours, range: Durations) -> String {
    let mut svg = opened("durations over time");
    let y = |value: f64| HEIGHT - BOTTOM - range.share(value) * (HEIGHT - TOP - BOTTOM);
    for value in range.decades() {
        row(y(value), &short_seconds(value), &mut svg);
    }
    time_ticks(hours, &mut svg);
    for curve in curves {
        let _ = write!(
            svg,
            "<path class={} d=\"{}\"/>",
            curve.class,
            path(&curve.values, hours, y)
        );
    }
    for step in 0..hours.steps_len {
        let parts: Vec<String> = curves
            .iter()
            .filter_map(|curve| {
                let value = curve.values.get(step as usize).copied().flatten()?;
                Some(format!("{} {}", curve.class, short_seconds(value)))
            })
            .collect();
        if !parts.is_empty() {
            hover(hours, step, &parts.join(", "), &mut svg);
        }
    }
    svg.push_str("</svg>");
    svg
}

/// One layer of a stack: its class, its name, and counts by step.
pub(super) struct Layer {
    pub(super) class: String,
    pub(super) name: String,
    pub(super) counts: Vec<u64>,
}

/// Requests a second over time, in layers.
pub(super) fn stack(layers: &[Layer], hours: Hours) -> String {
    let per_second = |count: u64| count as f64 / hours.step_secs as f64;
    let whole = |step: u64| {
        layers
            .iter()
            .map(|layer| layer.counts[step as usize])
            .sum::<u64>()
    };
    let top = rounded_up(
        (0..hours.steps_len)
            .map(|step| per_second(whole(step)))
            .fold(0.0, f64::max),
    );
    let mut svg = opened("requests a second over time");
    let room = HEIGHT - TOP - BOTTOM;
    for part in 0..=4 {
        let value = top * f64::from(part) / 4.0;
        row(
            HEIGHT - BOTTOM - room * f64::from(part) / 4.0,
            &rate_label(value),
            &mut svg,
        );
    }
    time_ticks(hours, &mut svg);
    for step in 0..hours.steps_len {
        let (left, right) = (hours.x(step as f64), hours.x(step as f64 + 1.0));
        let gap = if right - left > 4.0 { 0.6 } else { 0.0 };
        let mut floor = HEIGHT - BOTTOM;
        for layer in layers
            .iter()
            .filter(|layer| layer.counts[step as usize] > 0)
        {
            let height = per_second(layer.counts[step as usize]) / top * room;
            floor -= height;
            let _ = write!(
                svg,
                "<rect class={} x={left:.1} y={floor:.1} width={:.1} height={height:.1} />",
                layer.class,
                right - left - gap,
            );
        }
        let parts: Vec<String> = layers
            .iter()
            .filter(|layer| layer.counts[step as usize] > 0)
            .map(|layer| format!("{} {}", layer.name, thousands(layer.counts[step as usize])))
            .collect();
        if !parts.is_empty() {
            let text = format!(
                "{} a second: {}",
                rate(per_second(whole(step))),
                parts.join(", ")
            );
            hover(hours, step, &text, &mut svg);
        }
    }
    svg.push_str("</svg>");
    svg
}

/// Where there are no labels on the left.
const LEFT_BARE: f64 = 14.0;

/// Durations from `low` to `high`, in seconds.
struct Bar {
    low: f64,
    high: f64,
    len: u64,
}

impl Bar {
    fn height(&self) -> f64 {
        self.len as f64 / (self.high / self.low).log2()
    }
}

/// Whole microseconds up to 4, every second one up to 8, then four bars for each doubling: logs have whole
/// microseconds, and a narrower bar would stay empty.
fn bars(shape: &Snapshot) -> Vec<Bar> {
    let small = [1.0, 2.0, 3.0, 4.0, 6.0];
    let edges = small
        .into_iter()
        .chain((0..140).map(|quarter| 8.0 * 2f64.powf(f64::from(quarter) / 4.0)));
    let edges: Vec<f64> = edges.map(|us| us * 1e-6).collect();
    let mut bars: Vec<Bar> = edges
        .windows(2)
        .map(|pair| Bar {
            low: pair[0],
            high: pair[1],
            len: 0,
        })
        .collect();
    for (middle, len) in shape.buckets() {
        let value = middle.0 as f64 / 1e9;
        // The middle of a bucket may be a little below the whole microsecond that was counted.
        let place = edges.partition_point(|edge| *edge <= value * 1.016);
        if let Some(bar) = place.checked_sub(1).and_then(|place| bars.get_mut(place)) {
            bar.len += len;
        }
    }
    bars.retain(|bar| bar.len > 0);
    bars
}

fn opened(label: &str) -> String {
    format!("<svg viewBox=\"0 0 {WIDTH} {HEIGHT}\" role=img aria-label=\"{label}\">")
}

fn row(y: f64, label: &str, svg: &mut String) {
    let _ = write!(
        svg,
        "<line class=grid x1={LEFT} x2={:.0} y1={y:.1} y2={y:.1} /><text x={:.0} y={:.1} text-anchor=end>{label}</text>",
        WIDTH - RIGHT,
        LEFT - 6.0,
        y + 4.0,
    );
}

fn duration_ticks_below(range: Durations, svg: &mut String) {
    let floor = HEIGHT - BOTTOM;
    for value in range.decades() {
        let x = LEFT_BARE + range.share(value) * (WIDTH - LEFT_BARE - RIGHT);
        let anchor = match range.share(value) {
            share if share < 0.02 => "start",
            share if share > 0.98 => "end",
            _ => "middle",
        };
        let _ = write!(
            svg,
            "<line class=grid x1={x:.1} x2={x:.1} y1={TOP} y2={floor} /><text x={x:.1} y={:.0} text-anchor={anchor}>{}</text>",
            floor + 20.0,
            short_seconds(value),
        );
    }
    let _ = write!(
        svg,
        "<line class=axis x1={LEFT_BARE} x2={:.0} y1={floor} y2={floor} />",
        WIDTH - RIGHT
    );
}

fn time_ticks(hours: Hours, svg: &mut String) {
    let floor = HEIGHT - BOTTOM;
    let step_secs = tick_secs(hours.span_secs());
    let mut at = hours.first.next_multiple_of(step_secs);
    while at <= hours.first + hours.span_secs() {
        let x = hours.x((at - hours.first) as f64 / hours.step_secs as f64);
        // A label at the very edge would be cut.
        let anchor = if x > WIDTH - 30.0 { "end" } else { "middle" };
        let _ = write!(
            svg,
            "<line class=grid x1={x:.1} x2={x:.1} y1={TOP} y2={floor} /><text x={x:.1} y={:.0} text-anchor={anchor}>{}</text>",
            floor + 20.0,
            time_label(at, step_secs),
        );
        at += step_secs;
    }
    let _ = write!(
        svg,
        "<line class=axis x1={LEFT} x2={:.0} y1={floor} y2={floor} />",
        WIDTH - RIGHT
    );
}

fn tick_secs(span_secs: u64) -> u64 {
    const STEPS: [u64; 22] = [
        1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1_800, 3_600, 7_200, 10_800, 21_600, 43_200,
        86_400, 172_800, 604_800, 2_592_000, 31_536_000,
    ];
    let fits = |step: &u64| span_secs / step <= TIME_TICKS_LEN_MAX;
    STEPS
        .into_iter()
        .find(fits)
        .unwrap_or(span_secs.div_ceil(TIME_TICKS_LEN_MAX))
}

fn time_label(second: u64, step_secs: u64) -> String {
    let [year, month, day, hour, minute, second] = civil_from_unix(second);
    match step_secs {
        step if step >= 2_592_000 => format!("{year:04}-{month:02}"),
        step if step >= 86_400 => format!("{month:02}-{day:02}"),
        step if step >= 60 => format!("{hour:02}:{minute:02}"),
        _ => format!("{hour:02}:{minute:02}:{second:02}"),
    }
}

/// An unseen area over the whole height that tells what is below it.
fn hover(hours: Hours, step: u64, text: &str, svg: &mut String) {
    let begin = hours.first + step * hours.step_secs;
    let [year, month, day, hour, minute, second] = civil_from_unix(begin);
    let _ = write!(
        svg,
        "<rect x={:.1} y={TOP} width={:.1} height={:.0} fill=none pointer-events=all><title>{year:04}-{month:02}-{day:02} {hour:02}:{minute:02}:{second:02}, {} s: {text}</title></rect>",
        hours.x(step as f64),
        hours.x(1.0) - hours.x(0.0),
        HEIGHT - TOP - BOTTOM,
        hours.step_secs,
    );
}

fn path(values: &[Option<f64>], hours: Hours, y: impl Fn(f64) -> f64) -> String {
    let mut path = String::new();
    let mut pen = 'M';
    for (step, value) in values.iter().enumerate() {
        let Some(value) = value else {
            pen = 'M';
            continue;
        };
        let (left, at) = (hours.x(step as f64), y(*value));
        if pen == 'M' {
            // A step alone is seen too.
            let _ = write!(path, "M{left:.1} {at:.1}H{:.1}", hours.x(step as f64 + 1.0));
        } else {
            let _ = write!(path, "L{:.1} {at:.1}", hours.x(step as f64 + 0.5));
        }
        pen = 'L';
    }
    path
}

/// The next of 1, 2, 4, 8 times a power of ten: a quarter of each is a short number.
fn rounded_up(value: f64) -> f64 {
    let unit = 10f64.powf(value.max(1e-6).log10().floor());
    let fits = |times: &f64| times * unit >= value;
    [1.0, 2.0, 4.0, 8.0].into_iter().find(fits).unwrap_or(10.0) * unit
}

fn rate_label(value: f64) -> String {
    if value == 0.0 || value >= 10.0 {
        return match value {
            value if value >= 10_000.0 => format!("{}k", value / 1_000.0),
            value => format!("{value}"),
        };
    }
    let text = format!("{value:.3}");
    text.trim_end_matches('0').trim_end_matches('.').to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;
    use telemetry::Nanos;

    #[test]
    fn ranges_are_whole_decades() {
        let check = |values: &[f64], low: f64, high: f64| {
            let range = Durations::holding(values.iter().copied());
            assert!(
                (range.low / low - 1.0).abs() < 1e-6 && (range.high / high - 1.0).abs() < 1e-6,
                "{range:?}"
            );
        };
        check(&[0.000_02, 3.0], 1e-5, 10.0);
        check(&[0.001, 0.01], 0.001, 0.01);
        check(&[0.002], 0.001, 0.01);
        check(&[], 1e-6, 1e-5);
        check(&[0.0], 1e-6, 1e-5);
    }

    #[test]
    fn every_duration_is_in_one_bar() {
        let mut shape = Snapshot::default();
        for us in 1..2_000u64 {
            shape.record(Nanos(us * 1_000));
        }
        let bars = bars(&shape);
        assert_eq!(bars.iter().map(|bar| bar.len).sum::<u64>(), 1_999);
        // One request for each microsecond: bars of whole microseconds have as many.
        assert_eq!(
            bars.iter().take(4).map(|bar| bar.len).collect::<Vec<_>>(),
            [1, 1, 1, 2]
        );
    }

    #[test]
    fn ticks_are_few_and_round() {
        for span_secs in [
            1,
            59,
            3_600,
            18_000,
            86_400,
            700_000,
            40_000_000,
            4_000_000_000,
        ] {
            let step = tick_secs(span_secs);
            assert!(span_secs / step <= TIME_TICKS_LEN_MAX, "{span_secs}");
        }
        assert_eq!(time_label(971_186_136, 3_600), "13:55");
        assert_eq!(rounded_up(1_300.0), 2_000.0);
        assert_eq!(rounded_up(8.1), 10.0);
        assert_eq!(rate_label(12_500.0), "12.5k");
        assert_eq!(rate_label(0.25), "0.25");
    }
}
