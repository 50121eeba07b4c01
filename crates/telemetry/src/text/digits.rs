//! Numbers as decimal text, without the formatting machinery.
//!
//! A line has a dozen numbers; `write!` costs 40 ns for one phase in seconds, this 5. It must not know
//! what the numbers mean.

/// "00" to "99", to halve the divisions.
const PAIRS: [[u8; 2]; 100] = pairs();

/// Appends the decimal digits of a number.
pub(crate) fn push_u64(out: &mut Vec<u8>, value: u64) {
    if value < 10 {
        return out.push(b'0' + value as u8);
    }
    // u64::MAX has 20 digits.
    let mut text = [0; 20];
    let mut at = text.len();
    let mut rest = value;
    while rest >= 10 {
        at -= 2;
        // Two digits at a time: half of the divisions.
        [text[at], text[at + 1]] = pair(rest % 100);
        rest /= 100;
    }
    if rest > 0 {
        at -= 1;
        text[at] = b'0' + rest as u8;
    }
    out.extend_from_slice(&text[at..]);
}

/// Appends microseconds as seconds: `0.000123`.
pub(crate) fn push_seconds(out: &mut Vec<u8>, us: u64) {
    // Most phases of a cached file.
    if us == 0 {
        return out.extend_from_slice(b"0.000000");
    }
    let secs = us / 1_000_000;
    if secs >= 10 {
        push_u64(out, secs / 10);
    }
    let (first, second, third) = micros(us % 1_000_000);
    // In one piece: a line has a dozen of them.
    out.extend_from_slice(&[
        b'0' + (secs % 10) as u8,
        b'.',
        first[0],
        first[1],
        second[0],
        second[1],
        third[0],
        third[1],
    ]);
}

/// Appends thousandths of a unit: 4000 as `4.000`.
pub(crate) fn push_thousandths(out: &mut Vec<u8>, thousandths: u64) {
    push_u64(out, thousandths / 1_000);
    let rest = thousandths % 1_000;
    let [tens, units] = pair(rest);
    out.extend_from_slice(&[b'.', b'0' + (rest / 100) as u8, tens, units]);
}

/// Appends a point and six digits; `us` is below one million.
pub(crate) fn push_micros(out: &mut Vec<u8>, us: u64) {
    let (first, second, third) = micros(us);
    out.extend_from_slice(&[
        b'.', first[0], first[1], second[0], second[1], third[0], third[1],
    ]);
}

/// The six digits of a number below one million.
#[inline]
fn micros(us: u64) -> ([u8; 2], [u8; 2], [u8; 2]) {
    (pair(us / 10_000), pair(us / 100), pair(us))
}

/// The 16 hexadecimal digits of a number, in lower case.
#[inline]
pub(crate) fn hex_digits(value: u64) -> [u8; 16] {
    let (high, low) = (hex_half((value >> 32) as u32), hex_half(value as u32));
    (u128::from(high) << 64 | u128::from(low)).to_be_bytes()
}

/// Eight digits at once: each in a byte of one word, the first in the highest.
#[inline]
fn hex_half(value: u32) -> u64 {
    let value = u64::from(value);
    let value = (value << 16 | value) & 0x0000_ffff_0000_ffff;
    let value = (value << 8 | value) & 0x00ff_00ff_00ff_00ff;
    let digits = (value << 4 | value) & 0x0f0f_0f0f_0f0f_0f0f;
    // One in each byte whose digit is a letter: 6 more than it has a fifth bit.
    let letters = ((digits + 0x0606_0606_0606_0606) >> 4) & 0x0101_0101_0101_0101;
    digits + 0x3030_3030_3030_3030 + letters * u64::from(b'a' - b'9' - 1)
}

/// Places bytes at the front of others, by a store: a copy of a slice is a call.
#[inline]
pub(crate) fn put<const LEN: usize>(place: &mut [u8], bytes: [u8; LEN]) {
    *place.first_chunk_mut().expect("there is room for them") = bytes;
}

/// The last two digits of a number.
#[inline]
pub(crate) fn pair(value: u64) -> [u8; 2] {
    PAIRS[(value % 100) as usize]
}

const fn pairs() -> [[u8; 2]; 100] {
    let mut table = [[0; 2]; 100];
    let mut value = 0;
    while value < 100 {
        table[value] = [b'0' + (value / 10) as u8, b'0' + (value % 10) as u8];
        value += 1;
    }
    table
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn text(push: impl Fn(&mut Vec<u8>)) -> String {
        let mut out = Vec::new();
        push(&mut out);
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn writes_every_length_of_number() {
        for exponent in 0..20 {
            let value = 10u64.pow(exponent);
            assert_eq!(text(|out| push_u64(out, value)), value.to_string());
            assert_eq!(
                text(|out| push_u64(out, value - 1)),
                (value - 1).to_string()
            );
        }
        assert_eq!(text(|out| push_u64(out, u64::MAX)), u64::MAX.to_string());
    }

    proptest! {
        #[test]
        fn hexadecimal_digits_are_those_of_the_standard_library(value: u64, shift in 0..64_u32) {
            let value = value >> shift;
            let expect = format!("{value:016x}");
            prop_assert_eq!(&hex_digits(value)[..], expect.as_bytes());
        }

        #[test]
        fn agrees_with_the_standard_library(value in any::<u64>(), shift in 0..64u32) {
            let value = value >> shift;
            prop_assert_eq!(text(|out| push_u64(out, value)), value.to_string());
            let seconds = format!("{}.{:06}", value / 1_000_000, value % 1_000_000);
            prop_assert_eq!(text(|out| push_seconds(out, value)), seconds);
            let ms = format!("{}.{:03}", value / 1_000, value % 1_000);
            prop_assert_eq!(text(|out| push_thousandths(out, value)), ms);
        }
    }
}
