//! Request ids of our own making: the number of an exchange, mixed so that it tells nobody how many
//! requests came before and looks like no other process's.

const HEX: &[u8; 16] = b"0123456789abcdef";

/// The id of exchange `id` of the process whose seed is `seed`: 16 hexadecimal digits.
///
/// Different numbers of one process never share an id: every step of the mix can be undone. It is no
/// secret: who knows the seed and an id knows the number.
pub fn made_id(seed: u64, id: u64) -> [u8; 16] {
    let mixed = mix(id ^ seed).to_be_bytes();
    let mut text = [0; 16];
    for (pair, byte) in text.chunks_exact_mut(2).zip(mixed) {
        pair[0] = HEX[usize::from(byte >> 4)];
        pair[1] = HEX[usize::from(byte & 15)];
    }
    text
}

/// The finaliser of splitmix64 (Steele, Lea, Flood, "Fast splittable pseudorandom number generators",
/// 2014, with Stafford's variant 13 of the constants).
const fn mix(value: u64) -> u64 {
    let value = (value ^ (value >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let value = (value ^ (value >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    value ^ (value >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// Undoes `mix`: the inverses of the two odd factors modulo 2^64, and of the shifts.
    fn unmix(value: u64) -> u64 {
        let value = value ^ (value >> 31) ^ (value >> 62);
        let value = value.wrapping_mul(0x3196_42b2_d24d_8ec3);
        let value = value ^ (value >> 27) ^ (value >> 54);
        let value = value.wrapping_mul(0x96de_1b17_3f11_9089);
        value ^ (value >> 30) ^ (value >> 60)
    }

    #[test]
    fn agrees_with_splitmix64() {
        // The first outputs of splitmix64 for the state 0: its counter goes up by the golden gamma.
        let gamma: u64 = 0x9e37_79b9_7f4a_7c15;
        assert_eq!(&made_id(0, gamma), b"e220a8397b1dcdaf");
        assert_eq!(&made_id(0, gamma.wrapping_mul(2)), b"6e789e6aa1b965f4");
        assert_eq!(made_id(gamma, 0), made_id(0, gamma));
        assert_ne!(made_id(1, 7), made_id(2, 7));
    }

    proptest! {
        #[test]
        fn no_two_numbers_share_an_id(seed in any::<u64>(), id in any::<u64>()) {
            let text = made_id(seed, id);
            let text = std::str::from_utf8(&text).unwrap();
            let mixed = u64::from_str_radix(text, 16).unwrap();
            prop_assert_eq!(unmix(mixed) ^ seed, id);
        }
    }
}
