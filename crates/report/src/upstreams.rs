//! What each upstream server did: how many requests went to it, how often they had to be sent again, how long its first
//! byte took, and how long requests waited in its own queue.
//!
//! Takes lines, gives counts and distributions by server, and which server is slower than the others. Its size has a
//! bound. Opens nothing and prints nothing.

use std::collections::HashMap;

use telemetry::Line;

use crate::spread::Spread;

/// Most servers, 200 KB each. Later ones count together: a log may be of many generations.
const SERVERS_LEN_MAX: usize = 100;
/// Bytes kept of a name.
const NAME_BYTES_MAX: usize = 256;
/// Fewer requests do not tell how fast a server is.
const LEN_MIN: u64 = 20;
/// A server stands out whose median is so many times that of the next.
const SLOWER: f64 = 2.0;
/// A smaller difference is none that a client would notice.
const SLOWER_SECS: f64 = 0.005;

/// The requests that went to one server; those that were sent to several count for the last.
#[derive(Clone, Debug, Default)]
pub struct UpstreamServer {
    /// Its name in the log.
    pub name: String,
    /// Requests.
    pub len: u64,
    /// How often these were sent, to other servers too.
    pub attempts_len: u64,
    /// Requests that were sent more than once.
    pub retried_len: u64,
    /// Requests for which a connection was there.
    pub reused_len: u64,
    /// Requests without a byte of a response.
    pub silent_len: u64,
    /// How long new connections took.
    pub connect: Spread,
    /// How long the first byte of the response took.
    pub ttfb: Spread,
    /// How long requests waited in the server's own queue, where it says so.
    pub queue: Spread,
    /// How long they ran there, likewise.
    pub run: Spread,
}

/// A server whose responses begin later than those of all others.
#[derive(Clone, Copy, Debug)]
pub(crate) struct SlowServer<'s> {
    pub(crate) server: &'s UpstreamServer,
    /// The median of the slowest of the others, in seconds.
    pub(crate) next_secs: f64,
}

/// Takes lines.
#[derive(Clone, Debug, Default)]
pub(crate) struct UpstreamCollector {
    servers: Vec<UpstreamServer>,
    places: HashMap<Vec<u8>, usize>,
}

impl UpstreamCollector {
    #[inline]
    pub(crate) fn take(&mut self, line: &Line<'_>) {
        if line.is_proxied() {
            self.server(line).add(line);
        }
    }

    /// Those with the most requests first.
    pub(crate) fn servers(&self) -> Vec<&UpstreamServer> {
        let mut servers: Vec<_> = self.servers.iter().collect();
        servers.sort_by_key(|server| std::cmp::Reverse(server.len));
        servers
    }

    /// The server that is slower than all others, where one is.
    pub(crate) fn slow(&self) -> Option<SlowServer<'_>> {
        let is_known = |server: &&UpstreamServer| server.ttfb.len() >= LEN_MIN;
        let median = |server: &UpstreamServer| server.ttfb.quantile_secs(0.5);
        let mut known: Vec<_> = self.servers.iter().filter(is_known).collect();
        known.sort_by(|one, two| median(two).total_cmp(&median(one)));
        let [server, next, ..] = known[..] else {
            return None;
        };
        let (secs, next_secs) = (median(server), median(next));
        let stands_out = secs >= SLOWER * next_secs && secs - next_secs >= SLOWER_SECS;
        stands_out.then_some(SlowServer { server, next_secs })
    }

    fn server(&mut self, line: &Line<'_>) -> &mut UpstreamServer {
        let name = line.plain(line.upstream.server);
        let name = &name[..name.len().min(NAME_BYTES_MAX)];
        let place = match self.places.get(name) {
            Some(place) => *place,
            None => self.open(name),
        };
        &mut self.servers[place]
    }

    #[cold]
    fn open(&mut self, name: &[u8]) -> usize {
        let name = match self.servers.len() < SERVERS_LEN_MAX {
            true => name,
            false => b"others",
        };
        let last = self.servers.len();
        let place = *self.places.entry(name.to_vec()).or_insert(last);
        if place == last {
            self.servers.push(UpstreamServer {
                name: String::from_utf8_lossy(name).into_owned(),
                ..UpstreamServer::default()
            });
        }
        place
    }
}

impl UpstreamServer {
    fn add(&mut self, line: &Line<'_>) {
        let own = &line.upstream;
        let attempts = own.attempts.unwrap_or(1);
        self.len += 1;
        self.attempts_len += u64::from(attempts);
        self.retried_len += u64::from(attempts > 1);
        self.reused_len += u64::from(own.reused == Some(true));
        self.silent_len += u64::from(own.ttfb.is_none());
        let connect = own.connect.filter(|_| own.reused == Some(false));
        for (spread, span) in [
            (&mut self.connect, connect),
            (&mut self.ttfb, own.ttfb),
            (&mut self.queue, own.queue),
            (&mut self.run, own.run),
        ] {
            if let Some(span) = span {
                spread.add(span);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use telemetry::{KnownUpstream, Nanos};

    fn sent(server: &str, ttfb_ms: Option<u64>) -> Line<'_> {
        Line {
            upstream: KnownUpstream {
                server: server.as_bytes(),
                attempts: Some(1),
                reused: Some(true),
                connect: Some(Nanos::ZERO),
                ttfb: ttfb_ms.map(Nanos::from_ms),
                queue: ttfb_ms.map(|ms| Nanos::from_ms(ms / 2)),
                run: None,
            },
            ..Line::default()
        }
    }

    #[test]
    fn counts_for_the_server_that_was_tried_last() {
        let mut collector = UpstreamCollector::default();
        collector.take(&Line::default());
        collector.take(&sent("a:1", Some(10)));
        collector.take(&sent("b:2", None));
        let mut again = sent("a:1", Some(30));
        again.upstream.attempts = Some(3);
        again.upstream.reused = Some(false);
        again.upstream.connect = Some(Nanos::from_ms(2));
        collector.take(&again);
        let servers = collector.servers();
        let rows: Vec<_> = servers
            .iter()
            .map(|one| {
                (
                    &*one.name,
                    one.len,
                    one.attempts_len,
                    one.retried_len,
                    one.reused_len,
                )
            })
            .collect();
        assert_eq!(rows, [("a:1", 2, 4, 1, 1), ("b:2", 1, 1, 0, 1)]);
        assert_eq!([servers[0].silent_len, servers[1].silent_len], [0, 1]);
        // A connection that was there took no time to open.
        let lens = [
            &servers[0].connect,
            &servers[0].ttfb,
            &servers[0].queue,
            &servers[0].run,
        ];
        assert_eq!(lens.map(Spread::len), [1, 2, 2, 0]);
    }

    /// Requests of each server, with their times to the first byte.
    fn collected(servers: &[(&str, u64, u64)]) -> UpstreamCollector {
        let mut collector = UpstreamCollector::default();
        for (name, len, ms) in servers {
            for _ in 0..*len {
                collector.take(&sent(name, Some(*ms)));
            }
        }
        collector
    }

    #[test]
    fn one_server_stands_out_where_it_alone_is_slow() {
        for (servers, expect) in [
            (
                &[("a", 50, 10), ("b", 50, 11), ("c", 20, 120)][..],
                Some("c"),
            ),
            // Two that are slow, a difference that matters to nobody, too few requests, and one alone.
            (&[("a", 50, 10), ("b", 50, 110), ("c", 50, 120)], None),
            (&[("a", 50, 1), ("b", 50, 4)], None),
            (&[("a", 50, 10), ("c", 19, 120)], None),
            (&[("c", 50, 120)], None),
            (&[], None),
        ] {
            let collector = collected(servers);
            let slow = collector.slow().map(|slow| &*slow.server.name);
            assert_eq!(slow, expect, "{servers:?}");
        }
    }

    #[test]
    fn its_size_has_a_bound() {
        let mut collector = UpstreamCollector::default();
        for number in 0..SERVERS_LEN_MAX + 9 {
            collector.take(&sent(&number.to_string(), Some(1)));
        }
        let servers = collector.servers();
        assert_eq!(servers.len(), SERVERS_LEN_MAX + 1);
        assert_eq!((&*servers[0].name, servers[0].len), ("others", 9));
    }
}
