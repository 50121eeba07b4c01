//! Which of several members with a free slot gets a request, by each rule.
//!
//! Takes what the members look like at a moment, gives the place of one of them. It must not know health, limits or
//! tiers: all that it is given may be chosen.

use std::cmp::Ordering;

use super::Rule;

/// Groups of up to so many are looked through, of more so many random members: two would do (the power of two
/// choices), and all is better where it is cheap.
const LOOKED_THROUGH_MAX: usize = 16;
/// No member has more than this part of the mean with `hash` (Mirrokni, Thorup and Zadimoghaddam's 1 + ε).
const BOUND: f64 = 1.25;
/// What a member costs by `peak-ewma` before anything is known of it and while it has requests: more than any that
/// is known, so that it gets one request at a time.
const UNKNOWN_NS: f64 = 1e12;

/// A member with a free slot.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(super) struct Candidate {
    pub(super) index: usize,
    pub(super) position: usize,
    /// Requests that it has, and how many it may have.
    pub(super) in_flight: u32,
    pub(super) limit: u32,
    /// How many it can run, as far as that is known.
    pub(super) capacity: u32,
    pub(super) weight: u32,
    pub(super) mean_ns: f64,
    /// The mean with as many requests as it has.
    pub(super) loaded_ns: f64,
    pub(super) peak_ns: Option<f64>,
    /// 1 and the failures since the last success: each makes a member cost more.
    pub(super) failures: f64,
    /// How many times slower than is typical it is, at least 1.
    pub(super) slowness: f64,
    /// Its requests of late are so many that it is hot (`prequal`).
    pub(super) is_hot: bool,
    pub(super) credit: i64,
    pub(super) name_hash: u64,
}

impl Candidate {
    /// Requests per weight if it gets this one; failures make each one cost more, or a server that fails at once
    /// would attract all.
    fn share(&self) -> f64 {
        f64::from(self.in_flight + 1) * self.failures / f64::from(self.weight)
    }

    /// The same as part of its slots; one that is clearly slow counts as so much fuller.
    fn fill(&self) -> f64 {
        self.share() * self.slowness / f64::from(self.capacity)
    }

    fn peak_cost(&self) -> f64 {
        match self.peak_ns {
            Some(ns) => ns * self.share(),
            None => UNKNOWN_NS * f64::from(self.in_flight),
        }
    }
}

/// The place in `candidates` of the one to have a request. There is at least one.
pub(super) fn pick(
    rule: Rule,
    candidates: &mut [Candidate],
    key: u64,
    rng: &mut fastrand::Rng,
) -> usize {
    match rule {
        Rule::Queue | Rule::Sticky => least(candidates, rng, |a, b| {
            let by_fill = a.fill().total_cmp(&b.fill());
            by_fill.then(a.mean_ns.total_cmp(&b.mean_ns))
        }),
        Rule::LeastConnections => {
            let len = candidates.len();
            least_of_first(candidates, len, rng, by_share)
        }
        Rule::TwoChoices => {
            let two = candidates.len().min(2);
            shuffle_first(candidates, two, rng);
            least_of_first(candidates, two, rng, by_share)
        }
        Rule::PeakEwma => least(candidates, rng, |a, b| {
            a.peak_cost().total_cmp(&b.peak_cost())
        }),
        Rule::Prequal => least(candidates, rng, hot_cold),
        Rule::RoundRobin => most(candidates, |candidate| {
            (candidate.credit + i64::from(candidate.weight)) as f64
        }),
        Rule::Random => most(candidates, |candidate| {
            // The greatest of u^(1/w) is a draw by weight (Efraimidis and Spirakis).
            rng.f64().max(f64::MIN_POSITIVE).ln() / f64::from(candidate.weight)
        }),
        Rule::First => most(candidates, |candidate| -(candidate.position as f64)),
        Rule::Hash => hashed(candidates, key),
    }
}

fn by_share(a: &Candidate, b: &Candidate) -> Ordering {
    a.share().total_cmp(&b.share())
}

/// Prequal's hot-cold lexicographic rule: of those that are not hot the one with the least latency, and if all are
/// hot the one with the fewest requests.
fn hot_cold(a: &Candidate, b: &Candidate) -> Ordering {
    let latency = |candidate: &Candidate| candidate.loaded_ns * candidate.failures;
    match (a.is_hot, b.is_hot) {
        (false, true) => Ordering::Less,
        (true, false) => Ordering::Greater,
        (false, false) => latency(a).total_cmp(&latency(b)),
        (true, true) => by_share(a, b),
    }
}

/// The least of all, or of some random ones where there are many.
fn least(
    candidates: &mut [Candidate],
    rng: &mut fastrand::Rng,
    compare: impl Fn(&Candidate, &Candidate) -> Ordering,
) -> usize {
    let len = candidates.len().min(LOOKED_THROUGH_MAX);
    if candidates.len() > len {
        shuffle_first(candidates, len, rng);
    }
    least_of_first(candidates, len, rng, compare)
}

/// Makes the first `len` a random selection.
fn shuffle_first(candidates: &mut [Candidate], len: usize, rng: &mut fastrand::Rng) {
    for place in 0..len {
        candidates.swap(place, rng.usize(place..candidates.len()));
    }
}

/// The least of the first `len`, a random one of those that are equal: several processes that all take the first
/// would make a herd.
fn least_of_first(
    candidates: &[Candidate],
    len: usize,
    rng: &mut fastrand::Rng,
    compare: impl Fn(&Candidate, &Candidate) -> Ordering,
) -> usize {
    let (mut best, mut equal) = (0, 1);
    for place in 1..len {
        match compare(&candidates[place], &candidates[best]) {
            Ordering::Less => (best, equal) = (place, 1),
            Ordering::Equal => {
                equal += 1;
                if rng.usize(0..equal) == 0 {
                    best = place;
                }
            }
            Ordering::Greater => {}
        }
    }
    best
}

/// The first of those with the greatest score.
fn most(candidates: &[Candidate], mut score: impl FnMut(&Candidate) -> f64) -> usize {
    let mut best = (0, f64::NEG_INFINITY);
    for (place, candidate) in candidates.iter().enumerate() {
        let score = score(candidate);
        if score > best.1 {
            best = (place, score);
        }
    }
    best.0
}

/// Weighted rendezvous hashing: the highest score of a key has it while that member's load is within the bound.
fn hashed(candidates: &[Candidate], key: u64) -> usize {
    let load: f64 = candidates.iter().map(|one| f64::from(one.in_flight)).sum();
    let weight: f64 = candidates.iter().map(|one| f64::from(one.weight)).sum();
    most(candidates, |candidate| {
        let share = f64::from(candidate.weight) / weight;
        let bound = (BOUND * (load + 1.0) * share).ceil();
        // Odd, so neither 0 nor 1: the logarithm is finite and negative.
        let odd = (mixed(candidate.name_hash ^ key) >> 11) | 1;
        let unit = odd as f64 / (1_u64 << 53) as f64;
        let score = f64::from(candidate.weight) / -unit.ln();
        match f64::from(candidate.in_flight) < bound {
            true => score,
            // Behind all within the bound, in the same order.
            false => -1.0 / score,
        }
    })
}

/// A hash of a name.
pub(super) fn name_hash(name: &str) -> u64 {
    // FNV-1a, spread by the finaliser below: the same in all processes and all builds.
    let fold = |hash: u64, byte: u8| (hash ^ u64::from(byte)).wrapping_mul(0x100_0000_01b3);
    mixed(name.bytes().fold(0xcbf2_9ce4_8422_2325, fold))
}

/// The finaliser of SplitMix64.
fn mixed(mut bits: u64) -> u64 {
    bits = (bits ^ (bits >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    bits = (bits ^ (bits >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    bits ^ (bits >> 31)
}
