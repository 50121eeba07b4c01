//! Any bytes as what proxies say of a request's start: no panic, and the moment that another reader finds.

#![no_main]

use libfuzzer_sys::fuzz_target;
use http::{HeadIndex, HeadStep, HeadView, Limits, request_start_ns};

fuzz_target!(|input: &[u8]| {
    // With line ends of its own the input has further fields, and may have all of them.
    let fields = [b"X-Request-Start: ", input].concat();
    for fields in [&fields, input] {
        let head = [b"GET / HTTP/1.1\r\nHost: h\r\n", fields, b"\r\n\r\n"].concat();
        let mut index = HeadIndex::new();
        let step = index.parse(&head, &mut 0, &Limits::default());
        if !matches!(step, Ok(HeadStep::Complete)) {
            continue;
        }
        let view = HeadView {
            bytes: &head,
            index: &index,
        };
        assert_eq!(request_start_ns(view), expected_ns(view));
    }
});

/// By another way: all fields in a list, whole numbers of 128 bits, and fractions as text.
fn expected_ns(view: HeadView<'_>) -> Option<u64> {
    let named = |wanted: &str| {
        let fields: Vec<(&[u8], &[u8])> = view.headers().collect();
        let mut all = fields.into_iter().rev();
        all.find(|(name, _)| name.to_ascii_lowercase() == wanted.as_bytes())
            .map(|(_, value)| value)
    };
    let value = named("x-request-start").or_else(|| named("x-queue-start"))?;
    let text: String = value.iter().map(|byte| char::from(*byte)).collect();
    let last = text.split(',').next_back()?;
    let last = last.trim_matches(|c: char| c.is_ascii_whitespace());
    let last = last.strip_prefix("t=").unwrap_or(last);
    let (whole, places) = last.split_once('.').unwrap_or((last, ""));
    let is_number = |text: &str| text.bytes().all(|byte| byte.is_ascii_digit());
    let digits = whole.chars().count();
    if ![10, 13, 16, 19].contains(&digits) || !is_number(whole) || !is_number(places) {
        return None;
    }
    // As many digits of the fraction as there are nanoseconds, filled up with zeros.
    let fraction: String = places
        .chars()
        .chain("0000000000".chars())
        .take(19 - digits)
        .collect();
    u64::try_from(format!("{whole}{fraction}").parse::<u128>().ok()?).ok()
}
