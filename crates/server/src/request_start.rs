//! Request starts: what a proxy in front says about when it got a request.
//!
//! Takes a head and both ends of its connection, gives the moment that `X-Request-Start` (or `X-Queue-Start`)
//! names there, which `wire` reads, if its client is believed; and works out how long the request had waited by
//! then. Pure: the wall clock is an argument.
//!
//! Without this a server at its limit measures short queues, while requests grow old in the proxy's. Anybody
//! could claim to be ten minutes old, and thereby have everything look overloaded: hence trusted clients
//! alone, and of several values the last, which the nearest proxy wrote.

use std::net::IpAddr;

use http::HeadView;
use telemetry::Nanos;

use crate::exchange::Ends;
use crate::networks::Networks;

/// Longer waits are clocks that disagree.
const WAIT_SECS_MAX: u64 = 600;

/// Whose word counts.
pub(crate) struct RequestStarts {
    from: Networks,
}

impl RequestStarts {
    /// `from`: believed clients; `None` without any.
    pub(crate) fn new(from: &[(IpAddr, u8)]) -> Option<Self> {
        let networks = Networks::new(from);
        (!from.is_empty()).then_some(Self { from: networks })
    }

    /// When the request began, nanoseconds since 1970 UTC, as a believed client says. A value that cannot be
    /// read counts as none.
    pub(crate) fn start_ns(&self, head: HeadView<'_>, ends: &Ends) -> Option<u64> {
        let started_ns = http::request_start_ns(head)?;
        let is_believed = match ends.peer_host.as_str() {
            // No address, and no access but through the file.
            "unix:" => true,
            host => host.parse().is_ok_and(|ip| self.from.has(ip)),
        };
        is_believed.then_some(started_ns)
    }
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

    /// What is told by a client at `peer` that sends `fields`, where `from` are believed.
    fn told(from: &[(&str, u8)], peer: &str, fields: &str) -> Option<u64> {
        let from: Vec<_> = from
            .iter()
            .map(|(ip, bits)| (ip.parse().unwrap(), *bits))
            .collect();
        let head = head(&format!("GET / HTTP/1.1\r\nHost: h\r\n{fields}\r\n"));
        RequestStarts::new(&from)?.start_ns(head.view(), &ends(peer))
    }

    #[test]
    fn believes_only_whom_it_is_told_to() {
        let field = "X-Request-Start: t=1700000000.5\r\n";
        let some = Some(1_700_000_000_500_000_000);
        let check = |from: &[(&str, u8)], peer: &str, expect| {
            assert_eq!(told(from, peer, field), expect, "{from:?} {peer}");
        };
        let (near, net) = (("127.0.0.1", 32), ("10.0.0.0", 8));
        check(&[near], "127.0.0.2", None);
        check(&[near, net], "10.9.9.9", some);
        check(&[near], "unix:", some);
        check(&[], "unix:", None);
        check(&[], "127.0.0.1", None);
        check(&[("0.0.0.0", 0)], "localhost", None);
    }
}
