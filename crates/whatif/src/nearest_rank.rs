//! Percentiles of sorted values.

/// The index of the percentile `share` (0 to 1) among `len` sorted values, at least one: the nearest rank, so
/// value number `ceil(share * len)`. The histograms of waits follow the same definition.
pub(crate) fn nearest_rank(share: f64, len: usize) -> usize {
    let rank = (share * len as f64).ceil() as usize;
    rank.clamp(1, len.max(1)) - 1
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_median_of_an_even_number_is_the_lower_one() {
        let check = |share, len, expect| assert_eq!(nearest_rank(share, len), expect);
        check(0.5, 1, 0);
        check(0.5, 2, 0);
        check(0.5, 3, 1);
        check(0.5, 4, 1);
        check(0.95, 20, 18);
        check(0.95, 40, 37);
        check(0.05, 40, 1);
        check(0.0, 4, 0);
        check(1.0, 4, 3);
    }
}
