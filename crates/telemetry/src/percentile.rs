//! Percentiles by nearest rank: the one definition of all reports.
//!
//! Takes a share and a number of values, gives a rank. It must not know where the values are kept.

/// The rank, from 1, of the percentile `share` (0 to 1) among `len` values in ascending order: `ceil(share * len)`.
/// The median of an even number is the lower one of the middle two. 1 where there are no values.
///
/// ```
/// assert_eq!(telemetry::nearest_rank(0.5, 4), 2);
/// assert_eq!(telemetry::nearest_rank(0.99, 10), 10);
/// ```
pub fn nearest_rank(share: f64, len: u64) -> u64 {
    if share >= 1.0 {
        return len.max(1);
    }
    // 0.035 is stored as a little more, and of 200 values the eighth would be taken for it.
    let rank = (share * len as f64 * (1.0 - 4.0 * f64::EPSILON)).ceil() as u64;
    // The share may be 0, and there may be no values: the first rank is asked for then.
    rank.clamp(1, len.max(1))
}

/// The share to ask a histogram for that rounds in its own way, so that it answers with the value of
/// [`nearest_rank`]: half a rank below. 0 without values.
pub fn share_of_rank(share: f64, len: u64) -> f64 {
    // In the middle between two ranks, no rounding of the histogram's own product can reach the next one.
    match len {
        0 => 0.0,
        _ => (nearest_rank(share, len) as f64 - 0.5) / len as f64,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranks_of_even_and_tiny_numbers_are_exact() {
        let check = |thousandths: u64, len, expect| {
            let share = thousandths as f64 / 1_000.0;
            assert_eq!(nearest_rank(share, len), expect, "{share} of {len}");
        };
        check(500, 0, 1);
        check(500, 1, 1);
        check(500, 2, 1);
        check(500, 3, 2);
        check(500, 4, 2);
        check(950, 20, 19);
        check(950, 40, 38);
        check(50, 40, 2);
        check(35, 200, 7);
        check(0, 4, 1);
        check(1_000, 4, 4);
        for len in 1..3_000 {
            for thousandths in 1..=1_000 {
                check(thousandths, len, (thousandths * len).div_ceil(1_000));
            }
        }
    }
}
