//! Numbers in few bits: a fraction of `FRACTION` bits and a power of two, as floating-point numbers without a sign.
//!
//! Pure arithmetic. Numbers below `2 << FRACTION` are exact, all others are within half a step: 2^-(FRACTION + 1) of
//! themselves.

/// The code of a number. It grows with the number.
pub(super) const fn packed<const FRACTION: u32>(value: u64) -> u64 {
    let one = 1 << FRACTION;
    if value < one {
        return value;
    }
    let shift = value.ilog2() - FRACTION;
    let half = if shift == 0 {
        0
    } else {
        value >> (shift - 1) & 1
    };
    // A fraction that is rounded up to two raises the power, because the power stands above it.
    ((shift as u64 + 1) << FRACTION) + (value >> shift) - one + half
}

/// The number of a code.
pub(super) const fn unpacked<const FRACTION: u32>(code: u64) -> u64 {
    let one = 1 << FRACTION;
    if code < one {
        return code;
    }
    let shift = (code >> FRACTION) - 1;
    let value = one + (code & (one - 1));
    // Only the greatest numbers are rounded up to more than there is.
    if shift >= 64 - FRACTION as u64 {
        return u64::MAX;
    }
    value << shift
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn comes_back_within_half_a_step(value: u64, shift in 0u32..64) {
            let value = value >> shift;
            let back = unpacked::<10>(packed::<10>(value));
            prop_assert!(packed::<10>(value) <= u64::from(u16::MAX));
            prop_assert!(value.abs_diff(back) <= value >> 11, "{value} {back}");
            let back = unpacked::<4>(packed::<4>(value));
            prop_assert!(value.abs_diff(back) <= value >> 5, "{value} {back}");
        }

        #[test]
        fn keeps_the_order(one: u64, two: u64, shift in 0u32..64) {
            let (one, two) = (one >> shift, two >> shift);
            let (less, more) = (one.min(two), one.max(two));
            prop_assert!(packed::<10>(less) <= packed::<10>(more));
        }
    }

    #[test]
    fn small_numbers_are_exact() {
        for value in 0..2_048 {
            assert_eq!(unpacked::<10>(packed::<10>(value)), value);
        }
        for value in 0..32 {
            assert_eq!(unpacked::<4>(packed::<4>(value)), value);
        }
        assert_eq!(unpacked::<10>(packed::<10>(u64::MAX)), u64::MAX);
    }
}
