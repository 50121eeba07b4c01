//! Byte ranges: what a `Range` field selects of a content of known length. RFC 9110 sections 14.1 and 14.2.
//!
//! Takes the field's value and the length, gives extents; pure. Whether the field counts at all (method,
//! `If-Range`) is the caller's affair.

use os::invariant;

/// Ranges in one field. Real clients send a handful; more of them cost us more than the whole file does.
const RANGES_LEN_MAX: usize = 32;

/// A stretch of a content, never empty.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Extent {
    /// First byte.
    pub(super) first: u64,
    /// Last byte, included.
    pub(super) last: u64,
}

/// What is to be sent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Selection {
    /// Everything: the field is invalid or absurd, and RFC 9110 section 14.2 lets us ignore it.
    Whole,
    /// These extents: at least one, apart from each other, in the order in which they were asked for.
    Parts(Vec<Extent>),
    /// Nothing that was asked for exists: 416.
    Unsatisfiable,
}

impl Extent {
    /// Length in bytes.
    pub(super) fn bytes(self) -> u64 {
        invariant!(
            self.first <= self.last,
            "a range from {} to {}",
            self.first,
            self.last
        );
        self.last - self.first + 1
    }

    /// The value of `Content-Range` in a content of `complete_bytes`: RFC 9110 section 14.4.
    pub(super) fn within(self, complete_bytes: u64) -> String {
        format!("bytes {}-{}/{complete_bytes}", self.first, self.last)
    }
}

/// Reads `value` for a content of `complete_bytes`.
pub(super) fn select(value: &[u8], complete_bytes: u64) -> Selection {
    let Some(list) = strip_unit(value) else {
        return Selection::Whole;
    };
    let mut extents = Vec::new();
    let mut specs_len = 0;
    // RFC 9110 section 5.6.1.2: empty elements of a list are read and not counted.
    for spec in list
        .split(|byte| *byte == b',')
        .map(<[u8]>::trim_ascii)
        .filter(|spec| !spec.is_empty())
    {
        specs_len += 1;
        match read_spec(spec, complete_bytes) {
            Some(extent) if specs_len <= RANGES_LEN_MAX => extents.extend(extent),
            _ => return Selection::Whole,
        }
    }
    match (specs_len, extents.is_empty()) {
        (0, _) => Selection::Whole,
        (_, true) => Selection::Unsatisfiable,
        (_, false) => Selection::Parts(coalesce(extents)),
    }
}

/// RFC 9110 section 14.1: names of units are case-insensitive.
fn strip_unit(value: &[u8]) -> Option<&[u8]> {
    let (unit, list) = value.split_at_checked(b"bytes=".len())?;
    // An unknown unit is ignored (14.2).
    unit.eq_ignore_ascii_case(b"bytes=").then_some(list)
}

/// What `first-last`, `first-` or `-suffix` select, which may be nothing; `None`: the whole field is to be ignored.
fn read_spec(spec: &[u8], complete_bytes: u64) -> Option<Option<Extent>> {
    let dash = memchr::memchr(b'-', spec)?;
    match (&spec[..dash], &spec[dash + 1..]) {
        (b"", suffix) => match number(suffix)? {
            0 => Some(None),
            // A suffix of an empty content is satisfiable by section 14.1.2, but `Content-Range` cannot say it.
            _ if complete_bytes == 0 => None,
            bytes => Some(clip(
                complete_bytes.saturating_sub(bytes),
                u64::MAX,
                complete_bytes,
            )),
        },
        (first, b"") => Some(clip(number(first)?, u64::MAX, complete_bytes)),
        (first, last) => {
            let (first, last) = (number(first)?, number(last)?);
            (first <= last).then(|| clip(first, last, complete_bytes))
        }
    }
}

/// What of a range is in the content.
fn clip(first: u64, last: u64, complete_bytes: u64) -> Option<Extent> {
    (first < complete_bytes).then(|| Extent {
        first,
        last: last.min(complete_bytes - 1),
    })
}

/// Digits alone.
fn number(digits: &[u8]) -> Option<u64> {
    if digits.is_empty() || !digits.iter().all(u8::is_ascii_digit) {
        return None;
    }
    // What is beyond 64 bits is as good as the largest number.
    let add = |sum: u64, digit: &u8| {
        sum.saturating_mul(10)
            .saturating_add(u64::from(digit - b'0'))
    };
    Some(digits.iter().fold(0, add))
}

/// Joins what overlaps or touches, so that no byte is sent twice.
fn coalesce(extents: Vec<Extent>) -> Vec<Extent> {
    let mut sorted: Vec<(Extent, usize)> = extents.into_iter().zip(0..).collect();
    sorted.sort_unstable_by_key(|(extent, _)| extent.first);
    sorted.dedup_by(|(next, next_place), (kept, place)| {
        // `last` is below the content's length, so adding one cannot overflow.
        let is_joined = next.first <= kept.last + 1;
        if is_joined {
            kept.last = kept.last.max(next.last);
            *place = (*place).min(*next_place);
        }
        is_joined
    });
    // RFC 9110 section 15.3.7.2 wants the parts in the order asked for, apart from those that were joined: a joined
    // one takes its earliest place.
    sorted.sort_unstable_by_key(|(_, place)| *place);
    sorted.into_iter().map(|(extent, _)| extent).collect()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn check(value: &str, complete_bytes: u64, expect: &[(u64, u64)]) {
        let extents = expect
            .iter()
            .map(|(first, last)| Extent {
                first: *first,
                last: *last,
            })
            .collect();
        assert_eq!(
            select(value.as_bytes(), complete_bytes),
            Selection::Parts(extents),
            "{value}"
        );
    }

    /// What else is one range is asked in tests/test_files.py and test_bad_input.py.
    #[test]
    fn selects_one_range() {
        check("bytes=0-99", 100, &[(0, 99)]);
        check("bytes=-500", 1, &[(0, 0)]);
        check("BYTES=1-2", 100, &[(1, 2)]);
        check("bytes=007-8", 100, &[(7, 8)]);
    }

    #[test]
    fn keeps_the_order_of_ranges_that_are_apart() {
        check("bytes=0-1,4-5", 100, &[(0, 1), (4, 5)]);
        check("bytes=50-59,0-9", 100, &[(50, 59), (0, 9)]);
        check("bytes= 0-1 ,\t,4-5 , -1", 100, &[(0, 1), (4, 5), (99, 99)]);
    }

    #[test]
    fn joins_ranges_that_overlap_or_touch() {
        check("bytes=0-5,3-9", 100, &[(0, 9)]);
        check("bytes=0-5,6-9", 100, &[(0, 9)]);
        check("bytes=6-9,0-5", 100, &[(0, 9)]);
        check("bytes=0-99,5-6,-1", 100, &[(0, 99)]);
        check("bytes=50-59,0-9,55-70,8-20", 100, &[(50, 70), (0, 20)]);
        check("bytes=90-,80-89,0-1", 100, &[(80, 99), (0, 1)]);
    }

    #[test]
    fn drops_ranges_beyond_the_end() {
        check("bytes=0-1,100-,200-300,-0", 100, &[(0, 1)]);
        for value in [
            "bytes=100-",
            "bytes=100-200",
            "bytes=-0",
            "bytes=99999999999999999999-",
            "bytes=100-,-0",
        ] {
            assert_eq!(
                select(value.as_bytes(), 100),
                Selection::Unsatisfiable,
                "{value}"
            );
        }
        for value in ["bytes=0-", "bytes=0-0", "bytes=-0"] {
            assert_eq!(
                select(value.as_bytes(), 0),
                Selection::Unsatisfiable,
                "{value}"
            );
        }
    }

    #[test]
    fn ignores_what_it_cannot_read() {
        for value in [
            "",
            "bytes=,",
            "bytes=-",
            "bytes=1",
            "bytes=0-1,x",
            "bytes=+1-2",
            "bytes=1--2",
            "bytes 0-1",
            "bytes =0-1",
            "bytes=1 -2",
            "bytes=0-1;4-5",
            "bytes=\u{ff11}-2",
        ] {
            assert_eq!(select(value.as_bytes(), 100), Selection::Whole, "{value}");
        }
        assert_eq!(select(b"bytes=-5", 0), Selection::Whole);
    }

    #[test]
    fn gives_the_whole_for_too_many_ranges() {
        let list = |len: u64| {
            (0..len)
                .map(|n| format!("{}-{}", n * 3, n * 3))
                .collect::<Vec<_>>()
                .join(",")
        };
        let select = |len| select(format!("bytes={}", list(len)).as_bytes(), 1000);
        assert!(matches!(select(32), Selection::Parts(extents) if extents.len() == 32));
        assert_eq!(select(33), Selection::Whole);
    }

    /// The bytes that `value` names, by counting them one by one.
    fn named(specs: &[(u64, u64)], complete_bytes: u64) -> Vec<bool> {
        (0..complete_bytes)
            .map(|byte| specs.iter().any(|(a, b)| (*a..=*b).contains(&byte)))
            .collect()
    }

    proptest! {
        #[test]
        fn never_panics_and_stays_within(value in "(bytes=)?[-0-9, xb=]{0,40}", complete_bytes in any::<u64>()) {
            if let Selection::Parts(extents) = select(value.as_bytes(), complete_bytes) {
                prop_assert!(!extents.is_empty() && extents.len() <= RANGES_LEN_MAX);
                for extent in &extents {
                    prop_assert!(extent.first <= extent.last && extent.last < complete_bytes);
                }
            }
        }

        #[test]
        fn survives_any_bytes(value in proptest::collection::vec(any::<u8>(), 0..60), complete_bytes in any::<u64>()) {
            select(&value, complete_bytes);
        }

        #[test]
        fn selects_each_named_byte_once(
            specs in proptest::collection::vec((0u64..60, 0u64..20), 1..=RANGES_LEN_MAX),
            complete_bytes in 0u64..70,
        ) {
            let specs: Vec<_> = specs.into_iter().map(|(first, more)| (first, first + more)).collect();
            let list: Vec<_> = specs.iter().map(|(first, last)| format!("{first}-{last}")).collect();
            let mut expect = named(&specs, complete_bytes);
            match select(format!("bytes={}", list.join(", ")).as_bytes(), complete_bytes) {
                Selection::Whole => prop_assert!(false, "the field is valid"),
                Selection::Unsatisfiable => prop_assert!(!expect.contains(&true)),
                Selection::Parts(extents) => {
                    for extent in &extents {
                        for byte in extent.first..=extent.last {
                            prop_assert!(std::mem::replace(&mut expect[byte as usize], false));
                        }
                        // Neighbours would have been joined.
                        prop_assert!(!extents.iter().any(|other| other.last + 1 == extent.first));
                    }
                    prop_assert!(!expect.contains(&true));
                }
            }
        }
    }
}
