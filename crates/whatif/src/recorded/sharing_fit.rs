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
        let best = chosen(&samples);
        let resampled = resampled(&samples, best, seed);
        let interval =
            |of: &dyn Fn(&Sharing) -> f64| interval_of(resampled.iter().map(of).collect());
        let at_most = |law: &Sharing| law.slowdown(running_seen as f64);
        let mut fit = SharingFit {
            sharing: Sharing::default(),
            sigma: interval(&|law| law.sigma),
            kappa: interval(&|law| law.kappa),
            running_seen,
            slowdown: at_most(&best),
            slowdown_interval: interval(&at_most),
            is_by_chance: false,
            curve: curve(&samples, best),
            sampled: samples.len(),
        };
        // Shuffling is most of the work, and where runs do not seem slower there is nothing to refute.
        if fit.is_slower() {
            fit.is_by_chance = is_by_chance(kept, &need_ns, best, running_seen, seed);
            if !fit.is_by_chance {
                fit.sharing = best;
            }
        }
        Some(fit)
    }
}

/// Whether a log of shuffled runs says as much.
fn is_by_chance(
    kept: &[Kept],
    need_ns: &dyn Fn(usize) -> u64,
    best: Sharing,
    running_seen: usize,
    seed: u64,
) -> bool {
    // Consecutive ones, because how many run at once is what is tested.
    let first = kept.len().saturating_sub(EXCERPT_LEN_MAX) / 2;
    let excerpt = &kept[first..(first + EXCERPT_LEN_MAX).min(kept.len())];
    let pools = shuffled::pools(excerpt);
    let mut random = fastrand::Rng::with_seed(seed);
    let at_most = |law: Sharing| law.slowdown(running_seen as f64);
    (0..SHUFFLES).any(|_| {
        let (kept, from) = shuffled(excerpt, &pools, &mut random);
        let need_ns = |index: usize| need_ns(first + from[index]);
        let Some((samples, _)) = samples(&kept, &need_ns) else {
            return false;
        };
        // From the law that is doubted: the grid would have to be walked for each of the shuffled logs.
        let law = refined(&samples, &ALL_ALIKE, Terms::of(best), best);
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

/// Weights that leave out none.
const ALL_ALIKE: [f64; BLOCKS] = [1.0; BLOCKS];

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
        // One walk for all samples: the times at each number of running requests add up from the beginning, and what
        // lies between two moments is the difference of the sums, however many requests are open.
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
    // From above, until it is enough: a moment of very many at work must not decide how far the law is known.
    for level in (1..LEVELS).rev() {
        beyond += at_work[level];
        if beyond >= SEEN_SHARE * all {
            return running_of(level).round() as usize;
        }
    }
    1
}

/// The logarithm of what a request would have needed alone.
fn log_alone(sample: &Sample, law: Sharing) -> f64 {
    let speeds = sample
        .shares
        .iter()
        .map(|(running, share)| share / law.slowdown(*running));
    sample.log_run + speeds.sum::<f64>().max(1e-9).ln()
}

/// By route: the sum of the weights, of the logarithms and of their squares.
fn sums(samples: &[Sample], law: Sharing, weights: &[f64; BLOCKS]) -> BTreeMap<u16, [f64; 3]> {
    let mut sums: BTreeMap<u16, [f64; 3]> = BTreeMap::new();
    for sample in samples.iter().filter(|sample| weights[sample.block] > 0.0) {
        let weight = weights[sample.block];
        let log = log_alone(sample, law);
        let of_route = sums.entry(sample.route).or_default();
        of_route[0] += weight;
        of_route[1] += weight * log;
        of_route[2] += weight * log * log;
    }
    sums
}

/// The sum of the squares of the logarithms about the mean of their route.
fn cost(samples: &[Sample], law: Sharing, weights: &[f64; BLOCKS]) -> f64 {
    let sums = sums(samples, law, weights);
    let squares = sums
        .values()
        .map(|[len, sum, squares]| squares - sum * sum / len);
    squares.sum::<f64>().max(1e-12)
}

fn curve(samples: &[Sample], law: Sharing) -> Vec<CurvePoint> {
    let routes = sums(samples, law, &ALL_ALIKE);
    // By the number at the begin: only short ones have few beside them all the time.
    let mut sums: BTreeMap<usize, (f64, f64, usize)> = BTreeMap::new();
    for sample in samples {
        let [len, sum, _] = routes[&sample.route];
        let shares = sample.shares.iter();
        let at_level = sums.entry(level(sample.begun_with)).or_default();
        at_level.0 += shares.map(|(running, share)| running * share).sum::<f64>();
        at_level.1 += sample.log_run - sum / len;
        at_level.2 += 1;
    }
    let enough = sums.into_values().filter(|(_, _, len)| *len >= 10);
    let point = |(running, log, len): (f64, f64, usize)| CurvePoint {
        running: running / len as f64,
        slowdown: (log / len as f64).exp(),
        len,
    };
    enough.map(point).collect()
}

/// The most that a law may have of σ and of κ.
#[derive(Clone, Copy)]
struct Terms {
    sigma_max: f64,
    kappa_max: f64,
}

impl Terms {
    const SIGMA: Terms = Terms {
        sigma_max: 2.0,
        kappa_max: 0.0,
    };
    const KAPPA: Terms = Terms {
        sigma_max: 0.0,
        kappa_max: 0.5,
    };
    const BOTH: Terms = Terms {
        sigma_max: 2.0,
        kappa_max: 0.5,
    };

    /// Those that a law has.
    fn of(law: Sharing) -> Terms {
        match (law.sigma > 0.0, law.kappa > 0.0) {
            (true, true) => Terms::BOTH,
            (false, true) => Terms::KAPPA,
            _ => Terms::SIGMA,
        }
    }

    fn within(self, sigma: f64, kappa: f64) -> Sharing {
        Sharing {
            sigma: sigma.clamp(0.0, self.sigma_max),
            kappa: kappa.clamp(0.0, self.kappa_max),
        }
    }
}

/// The law with the fewest terms that says as much: by Schwarz's criterion.
fn chosen(samples: &[Sample]) -> Sharing {
    let len = samples.len() as f64;
    let judged = |(terms, count): (Terms, f64)| {
        let law = fitted(samples, terms);
        let spread = cost(samples, law, &ALL_ALIKE) / len;
        (law, len * spread.ln() + count * len.ln())
    };
    let laws = [(Terms::SIGMA, 1.0), (Terms::KAPPA, 1.0), (Terms::BOTH, 2.0)].map(judged);
    least(laws).map_or(Sharing::default(), |(law, _)| law)
}

/// The one of the least cost; of equals the first.
fn least(laws: impl IntoIterator<Item = (Sharing, f64)>) -> Option<(Sharing, f64)> {
    laws.into_iter()
        .min_by(|one, other| one.1.total_cmp(&other.1))
}

fn fitted(samples: &[Sample], terms: Terms) -> Sharing {
    let sigmas = [0.0, 0.02, 0.05, 0.1, 0.2, 0.4, 0.7, 1.0, 1.4];
    let kappas = [0.0, 0.001, 0.004, 0.015, 0.05, 0.15];
    let mut grid: Vec<Sharing> = Vec::new();
    for (sigma, kappa) in sigmas
        .into_iter()
        .flat_map(|sigma| kappas.map(|kappa| (sigma, kappa)))
    {
        // Terms that the law may not have are cut to zero, which makes most of the grid the same point.
        let law = terms.within(sigma, kappa);
        if !grid.contains(&law) {
            grid.push(law);
        }
    }
    let costs = grid
        .into_iter()
        .map(|law| (law, cost(samples, law, &ALL_ALIKE)));
    let (law, _) = least(costs).expect("the grid is not empty");
    refined(samples, &ALL_ALIKE, terms, law)
}

/// From there to the least cost around, by steps that are halved.
fn refined(samples: &[Sample], weights: &[f64; BLOCKS], terms: Terms, from: Sharing) -> Sharing {
    let (mut law, mut best) = (from, cost(samples, from, weights));
    let mut step = 0.5;
    while step > 0.01 {
        // A law that has nothing of a term yet must be able to leave zero.
        let (sigma, kappa) = (step * law.sigma.max(0.02), step * law.kappa.max(0.002));
        let around = [(sigma, 0.0), (-sigma, 0.0), (0.0, kappa), (0.0, -kappa)];
        let costs = around.map(|(sigma, kappa)| {
            let law = terms.within(law.sigma + sigma, law.kappa + kappa);
            (law, cost(samples, law, weights))
        });
        match least(costs) {
            Some((next, less)) if less < best => (law, best) = (next, less),
            _ => step /= 2.0,
        }
    }
    law
}

/// Laws of blocks that were drawn anew, with the terms that the best one has.
fn resampled(samples: &[Sample], best: Sharing, seed: u64) -> Vec<Sharing> {
    let terms = Terms::of(best);
    let used: BTreeSet<usize> = samples.iter().map(|sample| sample.block).collect();
    let used: Vec<usize> = used.into_iter().collect();
    let mut random = fastrand::Rng::with_seed(seed);
    let mut once = || {
        let mut weights = [0.0; BLOCKS];
        for _ in &used {
            // As many draws as there are blocks: some count twice, others not at all.
            weights[used[random.usize(..used.len())]] += 1.0;
        }
        refined(samples, &weights, terms, best)
    };
    (0..RESAMPLINGS).map(|_| once()).collect()
}

/// The interval that leaves out as many of the resampled values below as above, a tenth of all together.
fn interval_of(mut values: Vec<f64>) -> (f64, f64) {
    assert!(!values.is_empty(), "an interval is of some values");
    values.sort_by(f64::total_cmp);
    let at = |share: f64| values[((values.len() - 1) as f64 * share).round() as usize];
    (at(0.05), at(0.95))
}

#[cfg(test)]
mod tests {
    use super::super::Seen;
    use super::super::tests::{recording, seen};
    use super::shuffled::tests::{Server, only_sigma};
    use super::*;

    /// Of requests of 4 to 6 ms that come by chance, each on a thread of its own.
    fn fit(law: Sharing, gap_us: f64) -> SharingFit {
        let draw = |random: &mut fastrand::Rng| 4.0 + 2.0 * random.f64();
        let server = Server {
            threads: usize::MAX,
            gap_ms: gap_us / 1e3,
        };
        SharingFit::of(&server.logged(law, draw, 1_500, 11), None, 1).unwrap()
    }

    #[test]
    fn constant_run_times_stay_constant() {
        let found = fit(Sharing::default(), 1_500.0);
        assert!(!found.depends(), "{found:?}");
        assert!(found.running_seen >= 6, "{found:?}");
    }

    #[test]
    fn work_under_one_lock_is_found() {
        let found = fit(only_sigma(1.0), 8_000.0);
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
        let half = only_sigma(0.5);
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
