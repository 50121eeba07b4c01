//! How requests are spread over time: evenly, by chance, or in bursts.
//!
//! Takes moments of arrivals and their rates, gives the law that does it. Evenness is told by the gaps. Bursts
//! are told by how the index of dispersion grows with the window: of pages with `len` requests in the mean,
//! geometrically distributed, at a distance of `gap`, a request has its `k`-th successor with the chance
//! `q^k`, `q = 1 - 1 / len`, so that in windows of `w` it is
//!
//! ```text
//! 1 + 2 / w · Σ q^k (w - k gap)  over all k with k gap < w
//! ```
//!
//! (Cox and Isham, Point Processes, 1980, chapter 3). That holds where pages overlap, too, and no gap between
//! two requests is one within a page any more.

use telemetry::Nanos;
use whatif::{ArrivalProcess, Rate};

use super::dispersion::{Spread, around_rates};

/// The squared coefficient of variation of gaps: below it is a clock that trembles. 1 is chance.
const EVEN_CV2_MAX: f64 = 0.25;
const WINDOW_MIN: Nanos = Nanos::from_us(20);
/// The longest window is there so many times.
const WINDOWS_LEN_MIN: u64 = 50;
const GAP_MIN_NS: f64 = 1_000.0;
const MORE_MIN: f64 = 0.02;
const MORE_MAX: f64 = 5_000.0;
/// Pages with fewer requests beyond their first in the mean are chance.
const MORE_LEAST: f64 = 0.05;
/// Pages that are tried differ by this factor,
const STEP: f64 = 1.2;
/// and those around the best ones at last by this.
const STEP_LEAST: f64 = 1.000_5;
/// No log is so exact that the law would have to be nearer.
const ERROR_LEAST: f64 = 0.03;
/// By how much the squares of errors have to shrink. By chance they do by less than half of it.
const GAIN_MIN: f64 = 60.0;

/// The law of arrivals at these moments; `at` is sorted.
pub(super) fn process(at: &[u64], rates: &[Rate]) -> ArrivalProcess {
    if gaps_cv2(at, rates) < EVEN_CV2_MAX {
        return ArrivalProcess::Even;
    }
    let points = points(at, rates);
    let pages = Pages::fitted(&points, rates);
    let by_chance: f64 = points.iter().map(|point| point.square(1.0)).sum();
    match by_chance - pages.squares(&points) > GAIN_MIN && pages.more >= MORE_LEAST {
        true => ArrivalProcess::Bursts {
            len_mean: 1.0 + pages.more,
            gap: Nanos(pages.gap_ns as u64),
        },
        false => ArrivalProcess::Poisson,
    }
}

/// Of gaps as long as the rate lets expect them.
fn gaps_cv2(at: &[u64], rates: &[Rate]) -> f64 {
    let (mut len, mut sum, mut squares) = (0.0, 0.0, 0.0);
    let (mut step, mut end) = (0, rates[0].lasts.0);
    for pair in at.windows(2) {
        while pair[0] >= end && step + 1 < rates.len() {
            step += 1;
            end += rates[step].lasts.0;
        }
        let gap = (pair[1] - pair[0]) as f64 / 1e9 * rates[step].per_second;
        (len, sum, squares) = (len + 1.0, sum + gap, squares + gap * gap);
    }
    let mean: f64 = sum / len;
    squares / len / (mean * mean) - 1.0
}

/// What was measured in windows of one length.
struct Point {
    window_ns: f64,
    index_log: f64,
    /// One over the variance of that logarithm.
    weight: f64,
}

impl Point {
    fn of(spread: Spread, requests: f64) -> Option<Point> {
        let index = spread.index.filter(|index| *index > 0.0)?;
        // Of chance it is 2 / windows + 1 / requests; whole pages come or do not.
        let error = 2.0 / spread.windows_len as f64 + 4.0 * index.max(1.0) / requests;
        Some(Point {
            window_ns: spread.window.0 as f64,
            index_log: index.ln(),
            weight: 1.0 / (error + ERROR_LEAST * ERROR_LEAST),
        })
    }

    fn square(&self, index: f64) -> f64 {
        (self.index_log - index.ln()).powi(2) * self.weight
    }
}

fn points(at: &[u64], rates: &[Rate]) -> Vec<Point> {
    let lasts: u64 = rates.iter().map(|rate| rate.lasts.0).sum();
    let mut window = WINDOW_MIN;
    let mut points = Vec::new();
    while window.0 <= lasts / WINDOWS_LEN_MIN {
        let spread = around_rates(at, window, rates);
        points.extend(Point::of(spread, at.len() as f64));
        window = Nanos(window.0 * 3 / 2);
    }
    points
}

/// Pages: requests beyond the first in the mean, and how far apart.
#[derive(Clone, Copy, PartialEq, Debug)]
struct Pages {
    more: f64,
    gap_ns: f64,
}

impl Pages {
    /// The ones that fit best: over a coarse grid, then around its best place, closer and closer.
    fn fitted(points: &[Point], rates: &[Rate]) -> Pages {
        let lasts: u64 = rates.iter().map(|rate| rate.lasts.0).sum();
        let gap_max_ns = (lasts as f64 / 200.0).max(10.0 * GAP_MIN_NS);
        let mut best = Pages {
            more: MORE_MIN,
            gap_ns: GAP_MIN_NS,
        };
        let mut best_squares = best.squares(points);
        let mut is_better = |pages: &Pages| {
            let squares = pages.squares(points);
            let is_better = squares < best_squares;
            if is_better {
                best_squares = squares;
            }
            is_better
        };
        for gap_ns in powers(GAP_MIN_NS, gap_max_ns, STEP) {
            let grid = powers(MORE_MIN, MORE_MAX, STEP).map(|more| Pages { more, gap_ns });
            best = grid.filter(&mut is_better).last().unwrap_or(best);
        }
        let mut step = STEP;
        while step > STEP_LEAST {
            let near = best.near(step, gap_max_ns).into_iter();
            match near.filter(&mut is_better).last() {
                Some(better) => best = better,
                None => step = step.sqrt(),
            }
        }
        best
    }

    /// Those that differ in one or both by a factor.
    fn near(self, step: f64, gap_max_ns: f64) -> Vec<Pages> {
        let factors = [1.0 / step, 1.0, step];
        let pairs = factors
            .iter()
            .flat_map(|one| factors.map(|other| (*one, other)));
        let near = pairs.map(|(more, gap)| Pages {
            more: (self.more * more).clamp(MORE_MIN, MORE_MAX),
            gap_ns: (self.gap_ns * gap).clamp(GAP_MIN_NS, gap_max_ns),
        });
        near.collect()
    }

    fn squares(self, points: &[Point]) -> f64 {
        points
            .iter()
            .map(|point| point.square(self.index(point.window_ns)))
            .sum()
    }

    /// The index of dispersion in windows of one length.
    fn index(self, window_ns: f64) -> f64 {
        let q = self.more / (1.0 + self.more);
        let last = (window_ns / self.gap_ns).floor();
        let rest = q.powf(last);
        let sum = q * (1.0 - rest) / (1.0 - q);
        let sum_k = q * (1.0 - (last + 1.0) * rest + last * rest * q) / (1.0 - q).powi(2);
        1.0 + 2.0 * (sum - self.gap_ns / window_ns * sum_k)
    }
}

fn powers(least: f64, most: f64, step: f64) -> impl Iterator<Item = f64> {
    std::iter::successors(Some(least), move |value| Some(value * step))
        .take_while(move |value| *value <= most)
}

#[cfg(test)]
mod tests {
    use super::*;
    use whatif::{Laws, Route, Service};

    fn made(rates: &[Rate], process: ArrivalProcess, seed: u64) -> Vec<u64> {
        let laws = Laws {
            rates: rates.to_vec(),
            process,
            routes: vec![Route::only(Service::Constant(Nanos::from_ms(1)))],
        };
        laws.arrivals(seed).map(|arrival| arrival.at.0).collect()
    }

    /// With the rate that there was.
    fn found(rate: f64, secs: u64, kind: ArrivalProcess, seed: u64) -> ArrivalProcess {
        let lasts = Nanos::from_secs(secs);
        let at = made(&[Rate::steady(rate, lasts)], kind, seed);
        let rate = at.len() as f64 / secs as f64;
        process(&at, &[Rate::steady(rate, lasts)])
    }

    fn steps() -> Vec<Rate> {
        [(120.0, 60), (300.0, 60), (80.0, 60)]
            .map(|(rate, secs)| Rate::steady(rate, Nanos::from_secs(secs)))
            .to_vec()
    }

    #[test]
    fn clocks_and_chance_are_what_they_are() {
        for seed in 1..=20 {
            for kind in [ArrivalProcess::Even, ArrivalProcess::Poisson] {
                let found = process(&made(&steps(), kind, seed), &steps());
                assert_eq!(found, kind, "{seed}");
            }
        }
    }

    #[test]
    fn a_clock_that_trembles_is_a_clock() {
        let mut random = fastrand::Rng::with_seed(1);
        let at: Vec<u64> = (0..5_000)
            .map(|index| index * 1_000_000 + random.u64(..300_000))
            .collect();
        let rates = [Rate::steady(1_000.0, Nanos::from_secs(5))];
        assert_eq!(process(&at, &rates), ArrivalProcess::Even);
    }

    #[test]
    fn bursts_are_found_with_their_length_and_their_gap() {
        // The last ones overlap: five pages are open at once in the mean.
        for (len, gap_us, rate, secs) in [
            (3.0, 500, 150.0, 400),
            (10.0, 1_000, 150.0, 400),
            (30.0, 5_000, 200.0, 300),
            (10.0, 1_000, 5_000.0, 40),
        ] {
            for seed in 1..=5 {
                let kind = ArrivalProcess::Bursts {
                    len_mean: len,
                    gap: Nanos::from_us(gap_us),
                };
                let found = found(rate, secs, kind, seed);
                let ArrivalProcess::Bursts { len_mean, gap } = found else {
                    panic!("{kind:?} {seed}: {found:?}");
                };
                let off = [len_mean / len, gap.0 as f64 / (gap_us * 1_000) as f64];
                assert!(
                    off.iter().all(|off| (off - 1.0).abs() < 0.2),
                    "{kind:?} {seed}: {found:?}"
                );
            }
        }
    }

    #[test]
    fn few_requests_by_chance_are_no_bursts() {
        for seed in 1..=40 {
            let found = found(20.0, 10, ArrivalProcess::Poisson, seed);
            assert_eq!(found, ArrivalProcess::Poisson, "{seed}");
        }
    }

    #[test]
    fn the_index_grows_from_chance_to_all_of_a_page() {
        let pages = Pages {
            more: 9.0,
            gap_ns: 1e6,
        };
        assert_eq!(pages.index(0.9e6), 1.0);
        // One successor at half a window: 1 + 2 × 0.9 / 2.
        assert!((pages.index(1.999_999e6) - 1.9).abs() < 1e-5);
        assert!((pages.index(1e12) - 19.0).abs() < 0.01);
    }
}
