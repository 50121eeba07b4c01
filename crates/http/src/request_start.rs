//! Request starts: the moment that `X-Request-Start` (or `X-Queue-Start`) names.
//!
//! Proxies write it when they get a request. Takes a head, gives nanoseconds since 1970 UTC. Whether whoever sent
//! the head is to be believed it cannot know.

use crate::HeadView;

/// When the request began, nanoseconds since 1970 UTC, as the nearest proxy says: in the last `X-Request-Start`, or
/// the last `X-Queue-Start` where there is none, and there behind the last comma. A value that cannot be read is
/// none.
pub fn request_start_ns(head: HeadView<'_>) -> Option<u64> {
    unix_ns(value(head)?)
}

fn value(head: HeadView<'_>) -> Option<&[u8]> {
    let (mut request, mut queue) = (None, None);
    for (name, value) in head.headers() {
        match name.len() {
            15 if name.eq_ignore_ascii_case(b"x-request-start") => request = Some(value),
            13 if name.eq_ignore_ascii_case(b"x-queue-start") => queue = Some(value),
            _ => {}
        }
    }
    // Proxies that append to a field instead of adding one of their own.
    request.or(queue)?.rsplit(|&byte| byte == b',').next()
}

/// `t=1700000000.123` or without `t=`. What its unit is, the number of digits before the point tells: it has
/// had ten of them in seconds since 2001 and will until 2286, as have thirteen in milliseconds, sixteen in
/// microseconds and nineteen in nanoseconds.
fn unix_ns(value: &[u8]) -> Option<u64> {
    let value = value.trim_ascii();
    let value = value.strip_prefix(b"t=").unwrap_or(value);
    let (whole, places) = match memchr::memchr(b'.', value) {
        Some(at) => (&value[..at], &value[at + 1..]),
        None => (value, &b""[..]),
    };
    let mut unit_ns = match whole.len() {
        10 => 1_000_000_000,
        13 => 1_000_000,
        16 => 1_000,
        19 => 1,
        _ => return None,
    };
    let mut total_ns = whole
        .iter()
        .try_fold(0u64, |sum, &byte| Some(sum * 10 + digit(byte)?))?
        .checked_mul(unit_ns)?;
    for &byte in places {
        unit_ns /= 10;
        total_ns = total_ns.checked_add(digit(byte)? * unit_ns)?;
    }
    Some(total_ns)
}

fn digit(byte: u8) -> Option<u64> {
    char::from(byte).to_digit(10).map(u64::from)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::{HeadIndex, HeadStep, Limits};

    const NOW_NS: u64 = 1_700_000_000_123_456_789;

    #[track_caller]
    fn check(value: &str, expect: Option<u64>) {
        assert_eq!(unix_ns(value.as_bytes()), expect, "{value}");
    }

    #[test]
    fn knows_the_unit_by_the_digits() {
        check("t=1700000000.123", Some(1_700_000_000_123_000_000));
        check("1700000000.123", Some(1_700_000_000_123_000_000));
        check("1700000000", Some(1_700_000_000_000_000_000));
        check("t=1700000000123", Some(1_700_000_000_123_000_000));
        check("1700000000123", Some(1_700_000_000_123_000_000));
        check("1700000000123.4567", Some(1_700_000_000_123_456_700));
        check("t=1700000000123456", Some(1_700_000_000_123_456_000));
        check("1700000000123456", Some(1_700_000_000_123_456_000));
        check("1700000000123456789", Some(NOW_NS));
        check("1700000000.1234567891234", Some(NOW_NS));
        check(" t=1700000000123 ", Some(1_700_000_000_123_000_000));
        check("1700000000.", Some(1_700_000_000_000_000_000));
    }

    #[test]
    fn reads_nothing_else() {
        let words = "
            t= . t=.5 now 170000000 17000000001 170000000012345678 17000000001234567890 -1700000000
            +1700000000 1700000000,5 1700000000.5s 1700000000.1.2 T=1700000000 t=t=1700000000 1.7e9
            0x65538000ff
        ";
        for text in words.split_whitespace().chain(["", "17000 00000"]) {
            check(text, None);
        }
    }

    fn told(fields: &str) -> Option<u64> {
        let head = format!("GET / HTTP/1.1\r\nHost: h\r\n{fields}\r\n");
        let mut index = HeadIndex::new();
        let step = index.parse(head.as_bytes(), &mut 0, &Limits::default());
        assert!(matches!(step, Ok(HeadStep::Complete)), "{fields:?}");
        request_start_ns(HeadView {
            bytes: head.as_bytes(),
            index: &index,
        })
    }

    #[test]
    fn the_nearest_proxy_has_the_last_word() {
        let check = |fields: &str, expect_secs: Option<u64>| {
            let found = told(fields);
            assert_eq!(
                found,
                expect_secs.map(|secs| secs * 1_000_000_000),
                "{fields:?}"
            );
        };
        check("", None);
        check("x-request-start: 1700000001\r\n", Some(1_700_000_001));
        check("X-Queue-Start: 1700000002\r\n", Some(1_700_000_002));
        check(
            "X-Request-Start: 1700000001\r\nX-Queue-Start: 1700000002\r\n",
            Some(1_700_000_001),
        );
        check(
            "X-Request-Start: 1700000001\r\nX-REQUEST-START: 1700000003\r\n",
            Some(1_700_000_003),
        );
        check(
            "X-Request-Start: t=1700000001, t=1700000003\r\n",
            Some(1_700_000_003),
        );
        // It said something, but nothing that can be read; what came from further away is no better.
        check(
            "X-Request-Start: soon\r\nX-Queue-Start: 1700000002\r\n",
            None,
        );
        check("X-Request-Started: 1700000001\r\n", None);
    }

    proptest! {
        #[test]
        fn garbage_never_panics(bytes in prop::collection::vec(prop::sample::select(&b"t=.,0123456789 \xff"[..]), 0..40)) {
            let _ = unix_ns(&bytes);
        }

        #[test]
        fn what_a_proxy_writes_comes_back(ns in 1_000_000_000_000_000_000..9_999_999_999_999_999_999u64) {
            let (secs, rest) = (ns / 1_000_000_000, ns % 1_000_000_000);
            let check = |text: String, expect_ns: u64| {
                assert_eq!(unix_ns(text.as_bytes()), Some(expect_ns), "{text}");
            };
            check(format!("t={secs}.{rest:09}"), ns);
            check(format!("{ns}"), ns);
            check(format!("t={}", ns / 1_000), ns / 1_000 * 1_000);
            check(format!("{}", ns / 1_000_000), ns / 1_000_000 * 1_000_000);
            check(format!("{secs}.{:03}", rest / 1_000_000), ns / 1_000_000 * 1_000_000);
        }
    }
}
