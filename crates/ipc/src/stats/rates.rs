//! When clients may ask again, for all processes of a host: a table of token buckets behind the slots in the file of all
//! counters.
//!
//! A bucket is one number, which whoever takes a token replaces at once: a process that ends in between leaves nothing
//! half done, and nothing here waits. Keys are chosen by clients, so their number has a bound: each has a few places that
//! it may be in, and a new one takes that of the bucket that is full first. Whoever floods the table with keys so gives
//! the oldest of them their burst again, and nothing else. Two processes that meet the same new key in one moment may put
//! it in two places, and give its burst twice.

use std::hash::{BuildHasher, Hasher, RandomState};
use std::io;
use std::os::fd::BorrowedFd;
use std::sync::atomic::{AtomicU64, Ordering};

use os::Mapping;

use super::segment::ALIGN_BYTES;
use super::slots::SLOTS_BYTES;

/// Places that a key may be in.
const WAYS: usize = 8;
const SETS: usize = 8192;
/// Of a bucket: the lower bits are the time at which it is full, in microseconds modulo 203 days; the upper ones, never 0,
/// tell its key from others of the set.
const TIME_BITS: u32 = 44;
const TIME_MASK: u64 = (1 << TIME_BITS) - 1;
/// No bucket takes longer to fill, which the configuration sees to: one that seems to was full long ago.
const AHEAD_MAX_US: u64 = config::typed::RATE_FILL_MAX.0 / 1_000;
/// The number of the seed, and then the buckets.
pub(super) const RATES_BYTES: u64 = ALIGN_BYTES + (SETS * WAYS * size_of::<RateWord>()) as u64;

/// One number of the table.
#[repr(transparent)]
pub(super) struct RateWord(AtomicU64);

/// The table as a process has it.
pub struct SharedRates {
    mapping: Mapping,
}

impl SharedRates {
    /// That of a process that has no others beside it.
    pub fn private() -> io::Result<SharedRates> {
        let bytes = bytes()?;
        let mapping = Mapping::private(bytes, bytes)?;
        Ok(SharedRates { mapping })
    }

    /// That in the file of all counters.
    ///
    /// # Errors
    /// The kernel's.
    pub fn shared(file: BorrowedFd<'_>) -> io::Result<SharedRates> {
        let bytes = bytes()?;
        let mapping = Mapping::shared(file, SLOTS_BYTES, bytes, bytes)?;
        Ok(SharedRates { mapping })
    }

    /// A number that is the same in all processes, and that no client knows: keys are hashed with it.
    pub fn seed(&self) -> u64 {
        let RateWord(seed) = &self.words(0, 1)[0];
        let own = RandomState::new().build_hasher().finish().max(1);
        match seed.compare_exchange(0, own, Ordering::AcqRel, Ordering::Acquire) {
            Ok(_) => own,
            Err(known) => known,
        }
    }

    /// Asks `take` for a token of this key's bucket, by the time at which that is full; stores the time that it gives.
    /// Times are microseconds of a clock that all processes share.
    ///
    /// # Errors
    /// What `take` has given; nothing has changed then.
    pub fn take<E>(
        &self,
        key: u64,
        now_us: u64,
        take: impl Fn(u64) -> Result<u64, E>,
    ) -> Result<(), E> {
        let set = (key % SETS as u64) as usize;
        let first = ALIGN_BYTES as usize + set * WAYS * size_of::<RateWord>();
        let tag = (key >> TIME_BITS).max(1);
        let set = self.words(first, WAYS);
        loop {
            let mut oldest = (u64::MAX, 0, 0);
            let mut own = None;
            for (place, RateWord(word)) in set.iter().enumerate() {
                let word = word.load(Ordering::Acquire);
                let ahead = ahead(word, now_us);
                if word >> TIME_BITS == tag {
                    own = Some((ahead, place, word));
                    break;
                }
                if ahead < oldest.0 {
                    oldest = (ahead, place, word);
                }
            }
            let (full_at_us, place, before) = match own {
                Some((ahead, place, word)) => (now_us.saturating_add(ahead), place, word),
                None => (now_us, oldest.1, oldest.2),
            };
            let after = (tag << TIME_BITS) | (take(full_at_us)? & TIME_MASK);
            let RateWord(word) = &set[place];
            // Another one has been faster: its token counts, too.
            if word
                .compare_exchange(before, after, Ordering::AcqRel, Ordering::Acquire)
                .is_ok()
            {
                return Ok(());
            }
        }
    }

    fn words(&self, first: usize, len: usize) -> &[RateWord] {
        let words = self.mapping.place(first, len);
        words.expect("the table lies within the mapping")
    }
}

/// How long after `now_us` a bucket is full; 0: it is.
fn ahead(word: u64, now_us: u64) -> u64 {
    let ahead = (word & TIME_MASK).wrapping_sub(now_us) & TIME_MASK;
    match word == 0 || ahead > AHEAD_MAX_US {
        true => 0,
        false => ahead,
    }
}

fn bytes() -> io::Result<usize> {
    usize::try_from(RATES_BYTES).map_err(|_| io::ErrorKind::OutOfMemory.into())
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicUsize;

    use super::super::CounterFile;
    use super::*;

    /// One token in each millisecond, three at once.
    fn token(now_us: u64) -> impl Fn(u64) -> Result<u64, u64> {
        move |full_at_us: u64| match full_at_us.saturating_sub(now_us + 2_000) {
            0 => Ok(full_at_us.max(now_us) + 1_000),
            wait => Err(wait),
        }
    }

    fn take(rates: &SharedRates, key: u64, now_us: u64) -> Result<(), u64> {
        rates.take(key, now_us, token(now_us))
    }

    #[test]
    fn processes_share_seed_and_buckets() {
        let file = CounterFile::new().unwrap();
        let [one, other] = [(); 2].map(|()| SharedRates::shared(file.file()).unwrap());
        assert_eq!(one.seed(), other.seed());
        assert_ne!(one.seed(), SharedRates::private().unwrap().seed());
        let key = 7 << 50 | 3;
        assert_eq!(take(&one, key, 5_000), Ok(()));
        assert_eq!(take(&other, key, 5_000), Ok(()));
        assert_eq!(take(&one, key, 5_000), Ok(()));
        assert_eq!(take(&other, key, 5_000), Err(1_000));
        assert_eq!(take(&one, key + 1, 5_000), Ok(()), "another set");
        assert_eq!(take(&one, key + (1 << 50), 5_000), Ok(()), "another tag");
        assert_eq!(take(&other, key, 6_000), Ok(()));
    }

    #[test]
    fn times_go_round() {
        let rates = SharedRates::private().unwrap();
        let end = TIME_MASK - 500;
        for _ in 0..3 {
            assert_eq!(take(&rates, 1 << 50, end), Ok(()));
        }
        assert_eq!(take(&rates, 1 << 50, end), Err(1_000));
        assert_eq!(take(&rates, 1 << 50, end + 1_000), Ok(()));
        assert_eq!(take(&rates, 1 << 50, end + 1_000), Err(1_000));
    }

    #[test]
    fn clients_of_one_set_are_told_apart_however_long_the_machine_runs() {
        const DAY_US: u64 = 86_400_000_000;
        for days in [0, 1, 40, 101, 102, 150, 203, 204, 310] {
            let rates = SharedRates::private().unwrap();
            let now_us = days * DAY_US + 1;
            let mut taken = [0; 2];
            for _ in 0..100 {
                for (client, taken) in taken.iter_mut().enumerate() {
                    let key = (client as u64 + 1) << TIME_BITS;
                    *taken += usize::from(take(&rates, key, now_us).is_ok());
                }
            }
            assert_eq!(taken, [3, 3], "after {days} days");
        }
    }

    #[test]
    fn more_keys_than_places_take_those_that_are_full_first() {
        let rates = SharedRates::private().unwrap();
        for tag in 1..=9 {
            for _ in 0..3 {
                assert_eq!(take(&rates, tag << TIME_BITS, tag * 10), Ok(()));
            }
        }
        assert_eq!(
            take(&rates, 1 << TIME_BITS, 100),
            Ok(()),
            "it was forgotten"
        );
        assert!(take(&rates, 9 << TIME_BITS, 100).is_err(), "it was not");
    }

    #[test]
    fn a_storm_takes_no_more_than_there_is() {
        let file = CounterFile::new().unwrap();
        let taken = AtomicUsize::new(0);
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    let rates = SharedRates::shared(file.file()).unwrap();
                    for step in 0..20_000_u64 {
                        // Four threads at the same times, ten steps each millisecond.
                        if take(&rates, 5 << 50, 1_000_000 + step * 100).is_ok() {
                            taken.fetch_add(1, Ordering::Relaxed);
                        }
                    }
                });
            }
        });
        // Threads that are behind give no token back: at most the burst and one for each millisecond.
        let taken = taken.into_inner();
        assert!((1_000..=2_003).contains(&taken), "{taken}");
    }
}
