//! Upstream facts: what a record has of an exchange that another server has answered. Holds values and their bytes,
//! decides nothing.

use crate::Nanos;

/// What is known of an exchange that was sent to an upstream; `attempts` of 0 says that it was not, and then nothing else
/// means anything.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct UpstreamFacts {
    /// Index of the server that was tried last; its name is given to the writer of the log.
    pub server: u16,
    /// How often the request was sent, or was to be sent: 1 without a retry.
    pub attempts: u8,
    /// The last attempt used a connection that was there.
    pub reused: bool,
    /// Status of the server's last response; 0 when none came.
    pub status: u16,
    /// How long the last attempt waited for its connection, with its TLS handshake; zero where one was there.
    pub connect: Nanos,
    /// From the begin of the last attempt to the first byte of its response; zero where none came.
    pub ttfb: Nanos,
    /// Phases of the upstream, where it told them.
    pub own: Option<UpstreamPhases>,
}

/// What an upstream tells of its own way with a request.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct UpstreamPhases {
    /// How long it waited there for a thread.
    pub queue: Nanos,
    /// How long it ran there.
    pub run: Nanos,
}

/// Bytes of the facts beside `attempts`, in a record that has any.
pub(crate) const UPSTREAM_BYTES: usize = 4 * 8 + 2 + 2 + 1;

const REUSED: u8 = 1;
const OWN: u8 = 2;

impl UpstreamFacts {
    /// Whether the exchange was sent to an upstream, or was to be.
    pub const fn is_known(&self) -> bool {
        self.attempts > 0
    }

    /// All but `attempts`.
    pub(crate) fn to_bytes(self) -> [u8; UPSTREAM_BYTES] {
        let own = self.own.unwrap_or_default();
        let mut bytes = [0; UPSTREAM_BYTES];
        let times = [self.connect, self.ttfb, own.queue, own.run];
        for (place, time) in bytes.chunks_exact_mut(8).zip(times) {
            place.copy_from_slice(&time.0.to_le_bytes());
        }
        let flags = (u8::from(self.reused) * REUSED) | (u8::from(self.own.is_some()) * OWN);
        let [server, status] = [self.server, self.status].map(u16::to_le_bytes);
        bytes[4 * 8..].copy_from_slice(&[server[0], server[1], status[0], status[1], flags]);
        bytes
    }

    /// What `to_bytes` has written.
    pub(crate) fn from_bytes(attempts: u8, bytes: &[u8; UPSTREAM_BYTES]) -> UpstreamFacts {
        let [.., server, server_high, status, status_high, flags] = *bytes;
        let mut times = bytes.chunks_exact(8).map(|time| {
            Nanos(
                time.iter()
                    .rev()
                    .fold(0, |number, byte| number << 8 | u64::from(*byte)),
            )
        });
        let mut time = || times.next().unwrap_or_default();
        let (connect, ttfb) = (time(), time());
        let own = UpstreamPhases {
            queue: time(),
            run: time(),
        };
        UpstreamFacts {
            server: u16::from_le_bytes([server, server_high]),
            attempts,
            reused: flags & REUSED != 0,
            status: u16::from_le_bytes([status, status_high]),
            connect,
            ttfb,
            own: (flags & OWN != 0).then_some(own),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn is_small_and_comes_back_from_its_bytes() {
        // It is copied with its exchange.
        assert!(size_of::<UpstreamFacts>() <= 48);
        let facts = UpstreamFacts {
            server: 0x1234,
            attempts: 3,
            reused: false,
            status: 0x5678,
            connect: Nanos(0x0102_0304_0506_0708),
            ttfb: Nanos(u64::MAX),
            own: Some(UpstreamPhases {
                queue: Nanos(1 << 40),
                run: Nanos(0),
            }),
        };
        for reused in [false, true] {
            for own in [None, facts.own] {
                let facts = UpstreamFacts {
                    reused,
                    own,
                    ..facts
                };
                assert_eq!(UpstreamFacts::from_bytes(3, &facts.to_bytes()), facts);
            }
        }
    }
}
