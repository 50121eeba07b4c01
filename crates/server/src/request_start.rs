//! Request starts: what a proxy in front says about when it got a request.
//!
//! Takes a head and both ends of its connection, gives the moment that `X-Request-Start` (or `X-Queue-Start`)
//! names there, if its peer is a trusted proxy; and works out how long the request had waited by
//! then. Pure: the wall clock is an argument.
//!
//! Without this a server at its limit measures short queues, while requests grow old in the proxy's. Anybody
//! could claim to be ten minutes old, and thereby have everything look overloaded: hence trusted proxies
//! alone, and of several values the last, which the nearest proxy wrote.

use http::HeadView;
use telemetry::Nanos;

use crate::exchange::Ends;

/// Longer waits are clocks that disagree.
const WAIT_SECS_MAX: u64 = 600;

/// When the request began, nanoseconds since 1970 UTC, as a trusted proxy says. A value that cannot be read counts as
/// none.
pub(crate) fn start_ns(head: HeadView<'_>, ends: &Ends) -> Option<u64> {
    ends.is_trusted.then(|| http::request_start_ns(head))?
}

/// How long a request had waited when it arrived; both moments are nanoseconds since 1970 UTC. A start that
/// lies ahead, or more than ten minutes back, is no start: zero.
pub(crate) fn before(started_ns: u64, arrived_ns: u64) -> Nanos {
    match arrived_ns.checked_sub(started_ns) {
        Some(wait_ns) if wait_ns <= WAIT_SECS_MAX * 1_000_000_000 => Nanos(wait_ns),
        _ => Nanos::ZERO,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tests::{ends, head};

    const NOW_NS: u64 = 1_700_000_000_123_456_789;

    #[test]
    fn a_wait_is_neither_negative_nor_endless() {
        let check = |started_ns: u64, expect_ns: u64| {
            assert_eq!(before(started_ns, NOW_NS), Nanos(expect_ns), "{started_ns}");
        };
        check(NOW_NS, 0);
        check(NOW_NS + 1, 0);
        check(u64::MAX, 0);
        check(NOW_NS - 1, 1);
        check(NOW_NS - 2_500_000_000, 2_500_000_000);
        check(NOW_NS - 600_000_000_000, 600_000_000_000);
        check(NOW_NS - 600_000_000_001, 0);
        check(0, 0);
        assert_eq!(before(5, 0), Nanos::ZERO);
    }

    #[test]
    fn only_a_trusted_proxy_is_believed() {
        let head = head("GET / HTTP/1.1\r\nHost: h\r\nX-Request-Start: t=1700000000.5\r\n\r\n");
        let mut ends = ends("127.0.0.1");
        assert_eq!(start_ns(head.view(), &ends), None);
        ends.is_trusted = true;
        assert_eq!(
            start_ns(head.view(), &ends),
            Some(1_700_000_000_500_000_000)
        );
    }
}
