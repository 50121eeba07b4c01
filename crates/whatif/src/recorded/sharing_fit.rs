//! Whether running requests slowed each other down, and by how much.
//!
//! Takes a recording, gives σ and κ of [`Sharing`] with intervals. Least squares on the logarithms of the run
//! times, route by route: with the right law, what a request would have needed alone does not depend on how
//! many ran beside it. How many did is weighed by the time that each number lasted, because a mean over the
//! run would say too much where it varies. The intervals come of resampled blocks of time, because requests
//! that follow each other are alike. That long ones saw more beside them is no proof, though: they must have
//! seen more than in any log of the same runs that were shuffled.

mod shuffled;

use std::collections::{BTreeMap, BTreeSet};

use super::work::{Event, walk};
use super::{Kept, LockFit, Recording};
use crate::Sharing;
use shuffled::shuffled;

/// How run times depend on how many are at work.
#[derive(Clone, PartialEq, Debug)]
pub struct SharingFit {
    /// The law; zero where run times do not depend on it.
    pub sharing: Sharing,
    /// Where σ lies with 90 %.
    pub sigma: (f64, f64),
    /// Where κ lies with 90 %.
    pub kappa: (f64, f64),
    /// How many have been at work at once, for at least half a percent of the time at work.
    pub running_seen: usize,
    /// How much longer runs last when so many are at work, and where that lies with 90 %.
    pub slowdown: f64,
    /// See `slowdown`.
    pub slowdown_interval: (f64, f64),
    /// Whether runs that do not depend on it would seem to last longer by as much: those of the log, shuffled.
    pub is_by_chance: bool,
    /// What was measured: one point for each number at work.
    pub curve: Vec<CurvePoint>,
    /// Requests that it is made of.
    pub sampled: usize,
}

/// How much longer requests lasted when so many were at work.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct CurvePoint {
    /// At work, the request itself included; a mean.
    pub running: f64,
    /// Geometric mean over requests, relative to the law's own time of a request that is alone.
    pub slowdown: f64,
    /// Requests.
    pub len: usize,
}

impl SharingFit {
    /// Whether run times depend on how many are at work, beyond doubt and by more than a tenth.
    pub fn depends(&self) -> bool {
        self.sharing != Sharing::default()
    }

    fn is_slower(&self) -> bool {
        self.slowdown >= 1.1 && self.slowdown_interval.0 > 1.03
    }

    /// From a recording; `None` when there are too few requests, or never two at once.
    /// With a lock, of what is left without it.
    pub fn of(recording: &Recording, lock: Option<&LockFit>, seed: u64) -> Option<SharingFit> {
        let kept = &recording.kept;
        let need_ns = |index: usize| match lock {
            Some(lock) => lock.need(index).run.0,
            None => kept[index].run_ns(),
        };
        let (samples, running_seen) = samples(kept, &need_ns)?;
        let points = Points { samples: &samples };
        let everything = [1.0; BLOCKS];
        let best = chosen(&points, &everything);
        let resampled = resampled(&points, best, seed);
        let interval =
            |of: &dyn Fn(Law) -> f64| interval_of(resampled.iter().map(|law| of(*law)).collect());
        let at_most = |law: Law| law.slowdown(running_seen as f64);
        let mut fit = SharingFit {
            sharing: Sharing::default(),
            sigma: interval(&|law| law.sigma),
            kappa: interval(&|law| law.kappa),
            running_seen,
            slowdown: at_most(best),
            slowdown_interval: interval(&at_most),
            is_by_chance: false,
            curve: points.curve(best),
            sampled: samples.len(),
        };
        if fit.is_slower() {
            fit.is_by_chance = is_by_chance(kept, &need_ns, best, running_seen, seed);
            if !fit.is_by_chance {
                (fit.sharing.sigma, fit.sharing.kappa) = (best.sigma, best.kappa);
            }
        }
        Some(fit)
    }
}

/// Whether a log of shuffled runs says as much.
fn is_by_chance(
    kept: &[Kept],
    need_ns: &dyn Fn(usize) -> u64,
    best: Law,
    running_seen: usize,
    seed: u64,
) -> bool {
    let first = kept.len().saturating_sub(EXCERPT_LEN_MAX) / 2;
    let excerpt = &kept[first..(first + EXCERPT_LEN_MAX).min(kept.len())];
    let pools = shuffled::pools(excerpt);
    let mut random = fastrand::Rng::with_seed(seed);
    let at_most = |law: Law| law.slowdown(running_seen as f64);
    (0..SHUFFLES).any(|_| {
        let (kept, from) = shuffled(excerpt, &pools, &mut random);
        let need_ns = |index: usize| need_ns(first + from[index]);
        let Some((samples, _)) = samples(&kept, &need_ns) else {
            return false;
        };
        let points = Points { samples: &samples };
        let law = refined(&points, &[1.0; BLOCKS], Terms::of(best), best);
        at_most(law) >= at_most(best)
    })
}

/// Requests that are looked at: evenly out of all.
const SAMPLES_LEN_MAX: usize = 6_000;
const SAMPLES_LEN_MIN: usize = 100;
/// Blocks of time that are resampled.
const BLOCKS: usize = 20;
const RESAMPLINGS: usize = 40;
/// Numbers at work that are told apart; beyond [`EXACT`] by eighths of magnitudes of two.
const LEVELS: usize = 64;
const EXACT: usize = 16;
/// A number of running requests that lasted for less of the time was not really seen.
const SEEN_SHARE: f64 = 0.005;
/// Logs of shuffled runs that must all say less: a log whose runs do not depend on what runs beside them exceeds
/// them once in as many.
const SHUFFLES: usize = 200;
/// Most requests of such a log: consecutive ones, out of the middle.
const EXCERPT_LEN_MAX: usize = 10_000;

const SIGMA_MAX: f64 = 2.0;
const KAPPA_MAX: f64 = 0.5;

#[derive(Clone, Copy, PartialEq, Debug, Default)]
struct Law {
    sigma: f64,
    kappa: f64,
}

impl Law {
    fn slowdown(self, running: f64) -> f64 {
        1.0 + self.sigma * (running - 1.0) + self.kappa * running * (running - 1.0)
    }
}

/// One request.
struct Sample {
    route: u16,
    block: usize,
    /// At work when it began, itself included.
    begun_with: usize,
    log_run: f64,
    /// Numbers at work and the shares of its run that they lasted.
    shares: Vec<(f64, f64)>,
}

fn level(running: usize) -> usize {
    if running <= EXACT {
        return running;
    }
    let eighths = ((running as f64 / EXACT as f64).log2() * 8.0) as usize;
    (EXACT + 1 + eighths).min(LEVELS - 1)
}

/// What is typical of a level.
fn running_of(level: usize) -> f64 {
    if level <= EXACT {
        return level as f64;
    }
    EXACT as f64 * ((level - EXACT) as f64 / 8.0 - 1.0 / 16.0).exp2()
}

/// Samples of all processes, and how many were seen at work at once.
fn samples(kept: &[Kept], need_ns: &dyn Fn(usize) -> u64) -> Option<(Vec<Sample>, usize)> {
    let ran = kept.iter().filter(|one| one.run_ns() > 0).count();
    if ran < SAMPLES_LEN_MIN {
        return None;
    }
    let first = kept.first().map_or(0, |one| one.at);
    let lasted = kept.iter().map(Kept::ended).max().unwrap_or(0) - first;
    let processes = kept.iter().map(|one| one.process).max().unwrap_or(0);
    let step = ran.div_ceil(SAMPLES_LEN_MAX);
    let mut found = Vec::new();
    let mut at_work = [0.0; LEVELS];
    for process in 0..=processes {
        let mut seen = 0;
        let mut lasted_at = [0.0f64; LEVELS];
        let mut open: BTreeMap<usize, (usize, [f64; LEVELS])> = BTreeMap::new();
        let (mut before, mut running) = (0, 0);
        walk(kept, |one| one.process == process, &mut |event| {
            lasted_at[level(running)] += (event.now - before) as f64;
            (before, running) = (event.now, event.running);
            let one = &kept[event.index];
            match event.event {
                Event::Begins if one.run_ns() > 0 => {
                    seen += 1;
                    if seen % step == 0 {
                        open.insert(event.index, (event.running, lasted_at));
                    }
                }
                Event::Begins => {}
                Event::Ends => {
                    if let Some((begun_with, begin)) = open.remove(&event.index) {
                        let at = (one.at - first) as f64 / lasted.max(1) as f64;
                        let block = (at * BLOCKS as f64) as usize;
                        found.push(Sample {
                            route: one.route,
                            block: block.min(BLOCKS - 1),
                            begun_with,
                            log_run: (need_ns(event.index).max(1) as f64).ln(),
                            shares: shares(one, &begin, &lasted_at),
                        });
                    }
                }
            }
        });
        for (sum, lasted) in at_work.iter_mut().zip(lasted_at).skip(1) {
            *sum += lasted;
        }
    }
    let seen = running_seen(&at_work);
    (found.len() >= SAMPLES_LEN_MIN && seen > 1).then_some((found, seen))
}

/// Numbers at work during a run, and the shares of it that they lasted.
fn shares(one: &Kept, begin: &[f64; LEVELS], end: &[f64; LEVELS]) -> Vec<(f64, f64)> {
    let run = one.run_ns() as f64;
    let spans = begin.iter().zip(end).enumerate();
    let shares = spans
        .filter(|(_, (begin, end))| end > begin)
        .map(|(level, (begin, end))| (running_of(level.max(1)), (end - begin) / run));
    shares.collect()
}

fn running_seen(at_work: &[f64; LEVELS]) -> usize {
    let all: f64 = at_work.iter().sum();
    let mut beyond = 0.0;
    for level in (1..LEVELS).rev() {
        beyond += at_work[level];
        if beyond >= SEEN_SHARE * all {
            return running_of(level).round() as usize;
        }
    }
    1
}

struct Points<'a> {
    samples: &'a [Sample],
}

impl Points<'_> {
    /// The logarithm of what a request would have needed alone.
    fn log_alone(sample: &Sample, law: Law) -> f64 {
        let speeds = sample
            .shares
            .iter()
            .map(|(running, share)| share / law.slowdown(*running));
        sample.log_run + speeds.sum::<f64>().max(1e-9).ln()
    }

    /// Means of the logarithms by route, and the sum of the squares about them.
    fn spread(&self, law: Law, weights: &[f64; BLOCKS]) -> (BTreeMap<u16, f64>, f64) {
        let mut sums: BTreeMap<u16, [f64; 3]> = BTreeMap::new();
        for sample in self.samples {
            let weight = weights[sample.block];
            if weight > 0.0 {
                let log = Self::log_alone(sample, law);
                let sums = sums.entry(sample.route).or_default();
                sums[0] += weight;
                sums[1] += weight * log;
                sums[2] += weight * log * log;
            }
        }
        let squares = sums
            .values()
            .map(|[len, sum, squares]| squares - sum * sum / len);
        let squares = squares.sum::<f64>().max(1e-12);
        let means = sums
            .into_iter()
            .map(|(route, [len, sum, _])| (route, sum / len));
        (means.collect(), squares)
    }

    fn cost(&self, law: Law, weights: &[f64; BLOCKS]) -> f64 {
        self.spread(law, weights).1
    }

    fn curve(&self, law: Law) -> Vec<CurvePoint> {
        let (means, _) = self.spread(law, &[1.0; BLOCKS]);
        // By the number at the begin: only short ones have few beside them all the time.
        let mut sums: BTreeMap<usize, (f64, f64, usize)> = BTreeMap::new();
        for sample in self.samples {
            let Some(mean) = means.get(&sample.route) else {
                continue;
            };
            let running: f64 = sample
                .shares
                .iter()
                .map(|(running, share)| running * share)
                .sum();
            let sums = sums.entry(level(sample.begun_with)).or_default();
            sums.0 += running;
            sums.1 += sample.log_run - mean;
            sums.2 += 1;
        }
        let enough = sums.into_values().filter(|(_, _, len)| *len >= 10);
        enough
            .map(|(running, log, len)| CurvePoint {
                running: running / len as f64,
                slowdown: (log / len as f64).exp(),
                len,
            })
            .collect()
    }
}

/// Which of the two a law may use.
#[derive(Clone, Copy)]
enum Terms {
    Sigma,
    Kappa,
    Both,
}

impl Terms {
    /// Those that a law has.
    fn of(law: Law) -> Terms {
        match (law.sigma > 0.0, law.kappa > 0.0) {
            (true, true) => Terms::Both,
            (false, true) => Terms::Kappa,
            _ => Terms::Sigma,
        }
    }

    fn within(self, law: Law) -> Law {
        let (sigma, kappa) = (
            law.sigma.clamp(0.0, SIGMA_MAX),
            law.kappa.clamp(0.0, KAPPA_MAX),
        );
        match self {
            Terms::Sigma => Law { sigma, kappa: 0.0 },
            Terms::Kappa => Law { sigma: 0.0, kappa },
            Terms::Both => Law { sigma, kappa },
        }
    }
}

/// The law with the fewest terms that says as much: by Schwarz's criterion.
fn chosen(points: &Points<'_>, weights: &[f64; BLOCKS]) -> Law {
    let len = points.samples.len() as f64;
    let judged = |terms: Terms, count: f64| {
        let law = fitted(points, weights, terms);
        (
            law,
            len * (points.cost(law, weights) / len).ln() + count * len.ln(),
        )
    };
    let laws = [
        judged(Terms::Sigma, 1.0),
        judged(Terms::Kappa, 1.0),
        judged(Terms::Both, 2.0),
    ];
    let best = laws
        .into_iter()
        .min_by(|one, other| one.1.total_cmp(&other.1));
    best.map_or(Law::default(), |(law, _)| law)
}

fn fitted(points: &Points<'_>, weights: &[f64; BLOCKS], terms: Terms) -> Law {
    let sigmas = [0.0, 0.02, 0.05, 0.1, 0.2, 0.4, 0.7, 1.0, 1.4];
    let kappas = [0.0, 0.001, 0.004, 0.015, 0.05, 0.15];
    let mut grid: Vec<Law> = Vec::new();
    for sigma in sigmas {
        for kappa in kappas {
            let law = terms.within(Law { sigma, kappa });
            if !grid.contains(&law) {
                grid.push(law);
            }
        }
    }
    let costs = grid.into_iter().map(|law| (law, points.cost(law, weights)));
    let best = costs.min_by(|one, other| one.1.total_cmp(&other.1));
    let (law, _) = best.expect("the grid is not empty");
    refined(points, weights, terms, law)
}

/// From there to the least cost around, by steps that are halved.
fn refined(points: &Points<'_>, weights: &[f64; BLOCKS], terms: Terms, from: Law) -> Law {
    let (mut law, mut cost) = (from, points.cost(from, weights));
    let mut step = 0.5;
    while step > 0.01 {
        let (sigma, kappa) = (step * law.sigma.max(0.02), step * law.kappa.max(0.002));
        let around = [(sigma, 0.0), (-sigma, 0.0), (0.0, kappa), (0.0, -kappa)];
        let around = around.map(|(sigma, kappa)| {
            terms.within(Law {
                sigma: law.sigma + sigma,
                kappa: law.kappa + kappa,
            })
        });
        let costs = around.map(|law| (law, points.cost(law, weights)));
        match costs
            .into_iter()
            .min_by(|one, other| one.1.total_cmp(&other.1))
        {
            Some((next, less)) if less < cost => (law, cost) = (next, less),
            _ => step /= 2.0,
        }
    }
    law
}

/// Laws of blocks that were drawn anew, with the terms that the best one has.
fn resampled(points: &Points<'_>, best: Law, seed: u64) -> Vec<Law> {
    let terms = Terms::of(best);
    let used: BTreeSet<usize> = points.samples.iter().map(|sample| sample.block).collect();
    let used: Vec<usize> = used.into_iter().collect();
    let mut random = fastrand::Rng::with_seed(seed);
    let mut once = || {
        let mut weights = [0.0; BLOCKS];
        for _ in &used {
            weights[used[random.usize(..used.len())]] += 1.0;
        }
        refined(points, &weights, terms, best)
    };
    (0..RESAMPLINGS).map(|_| once()).collect()
}

/// The interval that leaves out as many of the resampled values below as above, a tenth of all together.
fn interval_of(mut values: Vec<f64>) -> (f64, f64) {
    values.sort_by(f64::total_cmp);
    let at = |share: f64| values[((values.len() - 1) as f64 * share).round() as usize];
    (at(0.05), at(0.95))
}

#[cfg(test)]
mod tests {
    use super::super::Seen;
    use super::super::tests::{recording, seen};
    use super::*;

    /// What a server of endless threads under this law would log: requests that come by chance and slow each
    /// other down.
    fn logged(law: Law, len: usize, gap_us: f64) -> Vec<Seen> {
        let mut random = fastrand::Rng::with_seed(11);
        let mut at = 1.0;
        let mut waiting: Vec<(f64, f64)> = (0..len)
            .map(|_| {
                at -= gap_us * random.f64().max(1e-9).ln();
                (at, 4_000.0 + 2_000.0 * random.f64())
            })
            .collect();
        waiting.reverse();
        let mut running: Vec<(f64, f64)> = Vec::new();
        let (mut now, mut all) = (0.0f64, Vec::new());
        loop {
            let slow = law.slowdown(running.len().max(1) as f64);
            let next_end = running
                .iter()
                .map(|(_, left)| now + left * slow)
                .fold(f64::INFINITY, f64::min);
            let next_begin = waiting.last().map_or(f64::INFINITY, |(at, _)| *at);
            let then = next_end.min(next_begin);
            if then.is_infinite() {
                return all;
            }
            for (_, left) in &mut running {
                *left -= (then - now) / slow;
            }
            now = then;
            if next_begin <= next_end {
                running.extend(waiting.pop());
            } else {
                let done = running.iter().position(|(_, left)| *left < 1e-6);
                let (at, _) = running.swap_remove(done.expect("one has ended"));
                all.push(seen(at as u64, 0, (now - at) as u64));
            }
        }
    }

    fn fit(law: Law, gap_us: f64) -> SharingFit {
        SharingFit::of(&recording(&logged(law, 1_500, gap_us)), None, 1).unwrap()
    }

    #[test]
    fn constant_run_times_stay_constant() {
        let found = fit(Law::default(), 1_500.0);
        assert!(!found.depends(), "{found:?}");
        assert!(found.running_seen >= 6, "{found:?}");
    }

    #[test]
    fn work_under_one_lock_is_found() {
        let one_lock = Law {
            sigma: 1.0,
            kappa: 0.0,
        };
        let found = fit(one_lock, 8_000.0);
        assert!(
            found.depends() && (0.85..1.15).contains(&found.sharing.sigma),
            "{found:?}"
        );
        assert!(found.sharing.kappa < 0.03, "{found:?}");
        assert!(
            found.sigma.0 <= found.sharing.sigma && found.sharing.sigma <= found.sigma.1 + 0.05
        );
    }

    #[test]
    fn the_curve_is_what_was_measured() {
        let half = Law {
            sigma: 0.5,
            kappa: 0.0,
        };
        let found = fit(half, 4_000.0);
        for point in found.curve.iter().filter(|point| point.len > 100) {
            let expect = half.slowdown(point.running);
            let off = (point.slowdown / expect - 1.0).abs();
            assert!(off < 0.15, "{point:?} and not {expect}");
        }
        assert!(found.curve.len() >= 2, "{found:?}");
    }

    #[test]
    fn whoever_runs_alone_says_nothing() {
        let all: Vec<Seen> = (0..500)
            .map(|index| seen(1 + index * 10_000, 0, 1_000))
            .collect();
        assert_eq!(SharingFit::of(&recording(&all), None, 1), None);
        let few: Vec<Seen> = (0..20)
            .map(|index| seen(1 + index * 500, 0, 1_000))
            .collect();
        assert_eq!(SharingFit::of(&recording(&few), None, 1), None);
    }

    #[test]
    fn levels_and_numbers_belong_together() {
        for running in 1..400 {
            let back = running_of(level(running));
            assert!(
                (back / running as f64 - 1.0).abs() < 0.08,
                "{running}: {back}"
            );
        }
    }
}
