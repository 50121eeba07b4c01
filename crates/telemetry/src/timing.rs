//! The phases as the value of a `Server-Timing` header (W3C Server Timing, section 3).
//!
//! Takes the stamps that have passed, appends to the head that is being written. Nothing that a
//! client sent gets into it.

use crate::phases::{Phases, WholeMicros};
use crate::text::digits;
use crate::{Spans, Stamp};

/// Appends `receive;dur=0.123, queue;dur=0.010, run;dur=4.000` in milliseconds with microseconds.
///
/// Only the phases that have passed are written, so `out` may stay as it was; `send` never is,
/// because the head goes out before it.
pub fn server_timing(phases: &Phases, out: &mut Vec<u8>) {
    let spans: Spans = phases.spans();
    let us = WholeMicros::of(&spans);
    let mut separator: &[u8] = b"";
    for (end, name, span_us) in [
        (phases.queued, &b"receive;dur="[..], us.receive),
        (phases.started, b"queue;dur=", us.queue),
        (phases.replied, b"run;dur=", us.run),
    ] {
        // A phase that has not passed yet has no length that would stay true.
        if end != Stamp::ZERO {
            out.extend_from_slice(separator);
            out.extend_from_slice(name);
            digits::push_thousandths(out, span_us);
            separator = b", ";
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(stamps_us: [u64; 5], expect: &str) {
        let [arrived, queued, started, replied, sent] =
            stamps_us.map(|us| Stamp(us * 1_000 + 999 * u64::from(us != 0)));
        let phases = Phases {
            arrived,
            queued,
            started,
            replied,
            sent,
            ..Phases::default()
        };
        let mut out = Vec::new();
        server_timing(&phases, &mut out);
        assert_eq!(String::from_utf8(out).unwrap(), expect);
    }

    #[test]
    fn writes_only_the_phases_that_have_passed() {
        check(
            [1, 124, 134, 4_134, 0],
            "receive;dur=0.123, queue;dur=0.010, run;dur=4.000",
        );
        check([1, 124, 134, 0, 0], "receive;dur=0.123, queue;dur=0.010");
        check([1, 0, 0, 0, 0], "");
        check([1, 0, 0, 12_345_679, 0], "run;dur=12345.678");
    }
}
