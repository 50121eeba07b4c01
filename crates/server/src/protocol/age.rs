//! The age of connections: until when requests on one are answered without its end. Pure.

use telemetry::{Nanos, Stamp};

/// The share of an age that is drawn, on both sides together.
const JITTER_DIVISOR: u64 = 5;

/// Until when a connection that was accepted then stays open, 10 % sooner or later: clients that came together do not
/// all come back at once. `NEVER` without a limit.
pub(super) fn retirement(accepted: Stamp, age_max: Option<Nanos>) -> Stamp {
    let Some(Nanos(age)) = age_max else {
        return Stamp::NEVER;
    };
    let jitter = age / JITTER_DIVISOR;
    // Nanoseconds of an accept are as good as drawn, once their high bits depend on all of them (Fibonacci hashing).
    let draw = accepted.0.wrapping_mul(0x9e37_79b9_7f4a_7c15);
    let drawn = (u128::from(draw) * u128::from(jitter)) >> u64::BITS;
    accepted.plus(Nanos(age - jitter / 2 + drawn as u64))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ages_are_spread_evenly_around_their_maximum() {
        const AGE: u64 = 3_600_000_000_000;
        let mut tenths = [0; 10];
        for number in 0..10_000 {
            let accepted = Stamp(7_000_000_000 + number * 1_013);
            let age = retirement(accepted, Some(Nanos(AGE))).0 - accepted.0;
            let drawn = age.checked_sub(AGE / 10 * 9).unwrap();
            tenths[usize::try_from(drawn / (AGE / 50)).unwrap()] += 1;
        }
        assert!(
            tenths.iter().all(|len| (900..1_100).contains(len)),
            "{tenths:?}"
        );
        assert_eq!(retirement(Stamp(5), None), Stamp::NEVER);
    }
}
