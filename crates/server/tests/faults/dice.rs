//! Chance that can be repeated.

/// Numbers that go by a seed (SplitMix64).
pub(super) struct Dice(u64);

impl Dice {
    pub(super) fn new(seed: u64) -> Self {
        Self(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15))
    }

    /// One of `0..end`.
    pub(super) fn below(&mut self, end: usize) -> usize {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        ((mixed ^ (mixed >> 31)) % end as u64) as usize
    }
}

/// Runs `test` with each seed, or with the one that the environment names alone; names a seed that failed.
pub(super) fn with_seeds(seeds: u64, test: impl Fn(u64)) {
    let wanted = std::env::var("MILEPOST_FAULTS_SEED");
    let wanted = wanted.map(|seed| seed.parse().expect("MILEPOST_FAULTS_SEED is a number"));
    for seed in wanted.map_or(0..seeds, |seed: u64| seed..seed + 1) {
        let named = Named(seed);
        test(seed);
        drop(named);
    }
}

struct Named(u64);

impl Drop for Named {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!(
                "failed; to repeat it alone: MILEPOST_FAULTS_SEED={}",
                self.0
            );
        }
    }
}
