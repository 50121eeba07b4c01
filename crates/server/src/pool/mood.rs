//! The mood of a pool where drivers read it: one number, without a lock.

use std::sync::atomic::{AtomicU64, Ordering};

use stage::{Mood, Pressure};

/// The last mood that the steward has found. In the upper half the pressure, in the lower the rate as an
/// `f32`, where no number means that nothing is known.
pub(super) struct MoodCell(AtomicU64);

impl MoodCell {
    pub(super) fn new() -> Self {
        Self(AtomicU64::new(pack(Mood::default())))
    }

    pub(super) fn load(&self) -> Mood {
        unpack(self.0.load(Ordering::Relaxed))
    }

    pub(super) fn store(&self, mood: Mood) {
        self.0.store(pack(mood), Ordering::Relaxed);
    }
}

fn pack(mood: Mood) -> u64 {
    let pressure: u64 = match mood.pressure {
        Pressure::Calm => 0,
        Pressure::Saturated => 1,
        Pressure::Overloaded => 2,
    };
    // A rate is a matter of two or three digits.
    let rate = mood
        .completed_per_second
        .map_or(f32::NAN, |rate| rate as f32);
    pressure << 32 | u64::from(rate.to_bits())
}

fn unpack(packed: u64) -> Mood {
    let rate = f32::from_bits(packed as u32);
    Mood {
        pressure: match packed >> 32 {
            0 => Pressure::Calm,
            1 => Pressure::Saturated,
            _ => Pressure::Overloaded,
        },
        completed_per_second: (!rate.is_nan()).then_some(f64::from(rate)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mood_is_read_as_it_was_written() {
        let rates = [None, Some(0.0), Some(0.25), Some(80_000.0), Some(1e30)];
        for pressure in [Pressure::Calm, Pressure::Saturated, Pressure::Overloaded] {
            for completed_per_second in rates {
                let cell = MoodCell::new();
                assert_eq!(cell.load(), Mood::default());
                let mood = Mood {
                    pressure,
                    completed_per_second,
                };
                cell.store(mood);
                let found = cell.load();
                assert_eq!(found.pressure, pressure);
                let parts = found.completed_per_second.zip(completed_per_second);
                assert_eq!(found.completed_per_second.is_some(), parts.is_some());
                assert!(parts.is_none_or(
                    |(found, meant)| (found / meant - 1.0).abs() < 1e-6 || found == meant
                ));
            }
        }
    }
}
