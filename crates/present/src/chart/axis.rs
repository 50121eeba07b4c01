//! Axes: from a number to a place between 0 and 1, and the numbers that are written beside them.

use telemetry::civil_from_unix;

use crate::number::{duration, number};
use crate::time::date_time;

/// Numbers are written at so many places at most.
const TICKS_LEN_MAX: usize = 7;
/// Times of day are long.
const CLOCK_TICKS_LEN_MAX: u64 = 5;
/// Seconds between two times of day that are written.
const CLOCK_STEPS: [u64; 22] = [
    1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1_800, 3_600, 7_200, 10_800, 21_600, 43_200,
    86_400, 172_800, 604_800, 2_592_000, 31_536_000,
];
/// The last percentile that has a place.
const LAST_QUANTILE: f64 = 0.999_99;

/// How an axis is divided.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Axis {
    /// Equally.
    #[default]
    Linear,
    /// Seconds, by magnitudes, written as durations; only what is above zero has a place.
    Durations,
    /// Quantiles from 0.5 to 0.99999, by the magnitude of what lies beyond them.
    Nines,
    /// Seconds since 1970, equally, written as times of day.
    Clock,
    /// Equally, and without numbers beside it: only the shape counts.
    Bare,
}

impl Axis {
    /// Whether a number has a place.
    pub(super) fn has(self, value: f64) -> bool {
        value.is_finite()
            && match self {
                Axis::Linear | Axis::Clock | Axis::Bare => true,
                Axis::Durations => value > 0.0,
                Axis::Nines => (0.5..=LAST_QUANTILE + 1e-12).contains(&value),
            }
    }

    /// As the axis writes it.
    pub(super) fn text(self, value: f64) -> String {
        match self {
            Axis::Linear | Axis::Bare => short(value),
            Axis::Durations => duration(value),
            Axis::Clock => date_time(value.max(0.0) as u64),
            Axis::Nines => {
                let text = format!("{:.3}", 100.0 * value);
                format!("{} %", text.trim_end_matches('0').trim_end_matches('.'))
            }
        }
    }

    /// With the digits that somebody wants who asks for one value.
    pub(super) fn exact(self, value: f64) -> String {
        match self {
            Axis::Linear | Axis::Bare => number(value),
            Axis::Durations | Axis::Nines | Axis::Clock => self.text(value),
        }
    }

    /// A number on which equal distances are equal on paper.
    fn flat(self, value: f64) -> f64 {
        match self {
            Axis::Linear | Axis::Clock | Axis::Bare => value,
            Axis::Durations => value.log10(),
            // Each nine more is as far as the one before; one itself would be infinitely far.
            Axis::Nines => -(1.0 - value).max(1e-9).log10(),
        }
    }
}

/// The part of an axis that is seen.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Range {
    axis: Axis,
    low: f64,
    high: f64,
}

impl Range {
    /// Of the axis to the right: just what holds all of `values`.
    pub(super) fn along(axis: Axis, values: impl Iterator<Item = f64>) -> Range {
        let (low, high) = ends(axis, values);
        match axis {
            // From the median to 99 % at least: a short run shows the same part of the curve as a long one.
            Axis::Nines => Range {
                axis,
                low: 0.5,
                high: high.max(0.99),
            },
            _ if low < high => Range { axis, low, high },
            _ => Range::around(axis, low),
        }
    }

    /// Of the axis upwards: from zero on a linear one, and to numbers that can be written.
    pub(super) fn upwards(axis: Axis, values: impl Iterator<Item = f64>) -> Range {
        let (low, high) = ends(axis, values);
        match axis {
            Axis::Linear | Axis::Clock | Axis::Bare => {
                let (low, high) = (low.min(0.0), high.max(0.0));
                // Nothing but zeros: an axis without any length has no places.
                if low >= high {
                    return Range {
                        axis,
                        low,
                        high: low + 1.0,
                    };
                }
                // Divided before they are subtracted: the widest range there is would overflow.
                let step = step(high / 4.0 - low / 4.0);
                let (low, high) = ((low / step).floor() * step, (high / step).ceil() * step);
                Range { axis, low, high }
            }
            Axis::Durations => {
                let (low, high) = (rounded(low, f64::floor), rounded(high, f64::ceil));
                if low < high {
                    Range { axis, low, high }
                } else {
                    Range::around(axis, low)
                }
            }
            Axis::Nines => Range::along(axis, [low, high].into_iter()),
        }
    }

    /// Where there is one number only.
    fn around(axis: Axis, value: f64) -> Range {
        let (low, high) = match axis {
            Axis::Clock => (value, value + 1.0),
            Axis::Linear | Axis::Bare => (
                value - 0.5 - value.abs() / 2.0,
                value + 0.5 + value.abs() / 2.0,
            ),
            // Half a magnitude each way: the value stands in the middle.
            _ => (value / 3.2, value * 3.2),
        };
        Range { axis, low, high }
    }

    /// From 0 at the low end to 1 at the high one; `None`: the number has no place.
    pub(super) fn place(&self, value: f64) -> Option<f64> {
        if !self.axis.has(value) {
            return None;
        }
        let (low, high) = (self.axis.flat(self.low), self.axis.flat(self.high));
        // Halved first, so that the widest range there is does not overflow.
        let share = (self.axis.flat(value) / 2.0 - low / 2.0) / (high / 2.0 - low / 2.0);
        share.is_finite().then(|| share.clamp(0.0, 1.0))
    }

    /// Places and texts that are written beside the axis, in their order.
    pub(super) fn ticks(&self) -> Vec<(f64, String)> {
        let values = match self.axis {
            Axis::Bare => Vec::new(),
            Axis::Clock => return self.clock_ticks(),
            Axis::Linear => self.linear_ticks(),
            Axis::Durations => self.log_ticks(),
            Axis::Nines => vec![0.5, 0.9, 0.99, 0.999, 0.999_9, 0.999_99],
        };
        // Sums of steps miss an end by a rounding error, and its number would be missing.
        let inside = values.into_iter().filter(|value| {
            *value >= self.low - self.low.abs() * 1e-9
                && *value <= self.high + self.high.abs() * 1e-9
        });
        inside
            .filter_map(|value| Some((self.place(value)?, self.axis.text(value))))
            .collect()
    }

    fn linear_ticks(&self) -> Vec<f64> {
        let step = step(self.high / 6.0 - self.low / 6.0);
        // Multiplied, not added up: errors of many additions would be seen in the texts.
        let first = (self.low / step).ceil();
        let tick = |index: usize| (first + index as f64) * step;
        (0..=2 * TICKS_LEN_MAX)
            .map(tick)
            .take_while(|value| *value <= self.high * (1.0 + 1e-9) + 1e-12)
            .collect()
    }

    /// Round times of day, with as much of date and time as tells them apart.
    fn clock_ticks(&self) -> Vec<(f64, String)> {
        // The first whole second of the range: one before it would stand at the edge, beside the next.
        let (first, last) = (self.low.max(0.0).ceil() as u64, self.high.max(0.0) as u64);
        let span = last.saturating_sub(first);
        let fits = |step: &u64| span / step <= CLOCK_TICKS_LEN_MAX;
        let step = CLOCK_STEPS.into_iter().find(fits);
        // A span beyond all steps is of a log with a wrong clock; five times are written nevertheless.
        let step = step.unwrap_or(span.div_ceil(CLOCK_TICKS_LEN_MAX).max(1));
        assert!(step > 0, "times of day are written in steps");
        let text = |at: u64| {
            let [year, month, day, hour, minute, second] = civil_from_unix(at);
            match step {
                2_592_000.. => format!("{year:04}-{month:02}"),
                86_400.. => format!("{month:02}-{day:02}"),
                60.. => format!("{hour:02}:{minute:02}"),
                _ => format!("{hour:02}:{minute:02}:{second:02}"),
            }
        };
        let ticks = (first.div_ceil(step)..=last / step).map(|index| index * step);
        ticks
            .filter_map(|at| Some((self.place(at as f64)?, text(at))))
            .collect()
    }

    fn log_ticks(&self) -> Vec<f64> {
        let (low, high) = (
            self.low.log10().floor() as i32,
            self.high.log10().ceil() as i32,
        );
        // Of up to two magnitudes the steps between are written as well.
        let steps: &[f64] = if (self.high / self.low).log10() < 2.01 {
            &[1.0, 2.0, 5.0]
        } else {
            &[1.0]
        };
        // So many magnitudes that not each has room for its text: every second, every third.
        let every = ((high - low) as usize).div_ceil(TICKS_LEN_MAX).max(1);
        let decades = (low..=high).step_by(every);
        decades
            .flat_map(|power| steps.iter().map(move |times| times * 10f64.powi(power)))
            .collect()
    }
}

fn ends(axis: Axis, values: impl Iterator<Item = f64>) -> (f64, f64) {
    let seen = values.filter(|value| axis.has(*value));
    let (low, high) = seen.fold((f64::INFINITY, f64::NEG_INFINITY), |(low, high), value| {
        (low.min(value), high.max(value))
    });
    // Without any value: a range that every axis has a place for.
    if low <= high { (low, high) } else { (1.0, 1.0) }
}

/// The next of 1, 2, 5 times a power of ten that is not less.
fn step(rough: f64) -> f64 {
    // The logarithm of nothing is infinite, and ten to the power of 308 is the last.
    let rough = rough.clamp(1e-290, 1e300);
    let unit = 10f64.powf(rough.log10().floor());
    // 0.1 + 0.2 is a little more than 0.3: without this tolerance the step would be the next larger one.
    let fits = |times: &f64| times * unit >= rough * (1.0 - 1e-9);
    [1.0, 2.0, 5.0].into_iter().find(fits).unwrap_or(10.0) * unit
}

/// To 1, 2 or 5 times a power of ten, downwards or upwards.
fn rounded(value: f64, towards: fn(f64) -> f64) -> f64 {
    let places = [0.0, 2f64.log10(), 5f64.log10(), 1.0];
    let whole = value.log10().floor();
    let rest = value.log10() - whole;
    let is_down = towards(0.5) == 0.0;
    let place = if is_down {
        places.into_iter().rev().find(|place| *place <= rest + 1e-9)
    } else {
        places.into_iter().find(|place| *place >= rest - 1e-9)
    };
    10f64
        .powf(whole + place.unwrap_or(0.0))
        .clamp(f64::MIN_POSITIVE, f64::MAX)
}

/// `0`, `0.25`, `12.5`, `500`, `1.5k`, `3.5M`.
fn short(value: f64) -> String {
    let (scaled, unit) = match value.abs() {
        size if size >= 1e12 => return format!("{value:.0e}"),
        size if size >= 1e9 => (value / 1e9, "G"),
        size if size >= 1e6 => (value / 1e6, "M"),
        size if size >= 1e3 => (value / 1e3, "k"),
        size if size > 0.0 && size < 0.01 => return format!("{value:.0e}"),
        _ => (value, ""),
    };
    number(scaled) + unit
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ticks(range: Range) -> Vec<String> {
        range.ticks().into_iter().map(|(_, text)| text).collect()
    }

    #[test]
    fn writes_few_round_numbers() {
        let check = |range: Range, expect: &[&str]| assert_eq!(ticks(range), expect, "{range:?}");
        check(
            Range::upwards(Axis::Linear, [0.0, 63_912.0].into_iter()),
            &["0", "20k", "40k", "60k", "80k"],
        );
        check(
            Range::along(Axis::Linear, [10.0, 250.0].into_iter()),
            &["50", "100", "150", "200", "250"],
        );
        check(
            Range::upwards(Axis::Durations, [0.000_9, 0.03].into_iter()),
            &["500 µs", "1 ms", "2 ms", "5 ms", "10 ms", "20 ms", "50 ms"],
        );
        check(
            Range::upwards(Axis::Durations, [0.000_02, 3.0].into_iter()),
            &["100 µs", "1 ms", "10 ms", "100 ms", "1 s"],
        );
        check(
            Range::along(Axis::Nines, [0.5, 0.999_9].into_iter()),
            &["50 %", "90 %", "99 %", "99.9 %", "99.99 %"],
        );
        check(
            Range::along(Axis::Linear, std::iter::empty()),
            &["0", "0.5", "1", "1.5", "2"],
        );
        check(
            Range::along(Axis::Clock, [971_186_136.0, 971_200_000.0].into_iter()),
            &["14:00", "15:00", "16:00", "17:00"],
        );
        check(
            Range::along(Axis::Clock, [971_186_138.0].into_iter()),
            &["13:55:38", "13:55:39"],
        );
        check(
            Range::along(Axis::Clock, [971_186_137.5, 971_186_140.5].into_iter()),
            &["13:55:38", "13:55:39", "13:55:40"],
        );
    }

    #[test]
    fn any_number_has_a_place_or_none() {
        let extremes = [
            0.0,
            -0.0,
            1e-300,
            1e300,
            -1e300,
            f64::MAX,
            f64::MIN,
            f64::MIN_POSITIVE,
            1.0,
            0.7,
            f64::NAN,
            f64::INFINITY,
        ];
        for axis in [Axis::Linear, Axis::Durations, Axis::Nines, Axis::Clock] {
            for (first, second) in extremes
                .iter()
                .flat_map(|a| extremes.iter().map(move |b| (*a, *b)))
            {
                for range in [
                    Range::along(axis, [first, second].into_iter()),
                    Range::upwards(axis, [first, second].into_iter()),
                ] {
                    assert!(range.ticks().len() <= 2 * TICKS_LEN_MAX + 1, "{range:?}");
                    for value in extremes {
                        let place = range.place(value).unwrap_or(0.0);
                        assert!((0.0..=1.0).contains(&place), "{range:?} {value}");
                    }
                }
            }
        }
    }
}
