//! What each kind of misbehaving client sends, and what it looks at.
//!
//! Pure: takes the plan's words, gives bytes and masks.

use std::sync::Arc;

use rustix::event::epoll::EventFlags;
use telemetry::Nanos;

use crate::plan::{BadClients, Misbehaviour, Request};

/// Receive buffers of those that read slowly or not at all, if nothing else is asked for; the kernel doubles it.
const SMALL_BUFFER_BYTES: usize = 4096;
/// A head field that goes on for ever, after the head's beginning.
const ENDLESS: &[u8] = b"X-Trickle: and so on\r\n";

/// What the clients of one group do.
#[derive(Clone, Debug)]
pub(super) struct Behaviour {
    pub(super) misbehaviour: Misbehaviour,
    pub(super) receive_buffer_bytes: Option<usize>,
    /// What is sent when a connection is open; empty: nothing, or not at once.
    pub(super) opening: Arc<[u8]>,
    /// The head without its end, of those that never come to it.
    head: Arc<[u8]>,
}

impl Behaviour {
    pub(super) fn of(clients: &BadClients, request: &Request) -> Behaviour {
        let opening: Arc<[u8]> = match clients.misbehaviour {
            Misbehaviour::Idle | Misbehaviour::Trickles { .. } => Arc::default(),
            // The connection ends with the reply, and the next one makes the next request.
            Misbehaviour::ReadsAt { .. } => Arc::clone(&request.last_bytes),
            _ => Arc::clone(&request.bytes),
        };
        let small = matches!(
            clients.misbehaviour,
            Misbehaviour::NeverReads | Misbehaviour::ReadsAt { .. }
        );
        Behaviour {
            misbehaviour: clients.misbehaviour,
            receive_buffer_bytes: clients
                .receive_buffer_bytes
                .or(small.then_some(SMALL_BUFFER_BYTES)),
            opening,
            head: head_without_end(&request.bytes).into(),
        }
    }

    /// What is looked at, each change once. Never that data has come, for those that do not read it.
    pub(super) fn interest(&self) -> EventFlags {
        let always = EventFlags::OUT | EventFlags::ET;
        match self.misbehaviour {
            // Data may come before an end: reading finds both.
            Misbehaviour::ReadsAt { .. } => always,
            Misbehaviour::NeverReads | Misbehaviour::Resets { .. } => always | EventFlags::RDHUP,
            Misbehaviour::Idle | Misbehaviour::Trickles { .. } | Misbehaviour::HalfCloses => {
                always | EventFlags::RDHUP | EventFlags::IN
            }
        }
    }

    /// The byte number `index` of a head that never ends.
    pub(super) fn trickle(&self, index: usize) -> u8 {
        let beyond = || ENDLESS[(index - self.head.len()) % ENDLESS.len()];
        self.head.get(index).copied().unwrap_or_else(beyond)
    }

    /// Its deadlines may come so much later without anybody noticing.
    pub(super) fn slack(&self) -> Nanos {
        let pause = match self.misbehaviour {
            Misbehaviour::Trickles { pause } => pause,
            Misbehaviour::Resets { after } => after,
            _ => Nanos::from_ms(100),
        };
        Nanos((pause.0 / 10).clamp(1_000_000, 10_000_000))
    }

    /// In words.
    pub(super) fn name(&self) -> String {
        let said = |span: Nanos| format!("{} s", span.as_secs_f64());
        match self.misbehaviour {
            Misbehaviour::NeverReads => "never reads".to_owned(),
            Misbehaviour::ReadsAt { bytes_per_s } => format!("reads {bytes_per_s} bytes a second"),
            Misbehaviour::Trickles { pause } => format!("sends a byte every {}", said(pause)),
            Misbehaviour::Idle => "idle".to_owned(),
            Misbehaviour::HalfCloses => "half-closes".to_owned(),
            Misbehaviour::Resets { after } => format!("resets after {}", said(after)),
        }
    }
}

/// A request up to where its head would end: the empty line, RFC 9112 section 2.1, is missing.
fn head_without_end(request: &[u8]) -> &[u8] {
    let end = request.windows(4).position(|four| four == b"\r\n\r\n");
    end.map_or(request, |end| &request[..end + 2])
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plan::RequestParts;

    fn request(body: Option<&[u8]>) -> Request {
        let parts = RequestParts {
            method: "POST",
            target: "/x",
            host: "h",
            fields: &[],
            body,
        };
        parts.request(1)
    }

    fn behaviour(misbehaviour: Misbehaviour) -> Behaviour {
        let clients = BadClients {
            len: 1,
            misbehaviour,
            receive_buffer_bytes: None,
        };
        Behaviour::of(&clients, &request(Some(b"abc\r\n\r\n")))
    }

    #[test]
    fn trickles_a_head_that_never_ends() {
        let behaviour = behaviour(Misbehaviour::Trickles {
            pause: Nanos::from_ms(10),
        });
        let bytes: Vec<u8> = (0..500).map(|index| behaviour.trickle(index)).collect();
        let head = "POST /x HTTP/1.1\r\nHost: h\r\nContent-Length: 7\r\nX-Trickle: and so on\r\nX-Trickle: ";
        let text = String::from_utf8(bytes).expect("ASCII");
        assert!(text.starts_with(head), "{text}");
        assert!(!text.contains("\r\n\r\n"), "{text}");
    }

    #[test]
    fn looks_at_arriving_data_only_where_it_is_read() {
        let ms = Nanos::from_ms;
        let cases = [
            (Misbehaviour::NeverReads, false),
            (Misbehaviour::ReadsAt { bytes_per_s: 1 }, false),
            (Misbehaviour::Resets { after: ms(5) }, false),
            (Misbehaviour::Idle, true),
            (Misbehaviour::HalfCloses, true),
            (Misbehaviour::Trickles { pause: ms(5) }, true),
        ];
        for (misbehaviour, expect) in cases {
            let interest = behaviour(misbehaviour).interest();
            assert_eq!(
                interest.contains(EventFlags::IN),
                expect,
                "{misbehaviour:?}"
            );
        }
    }

    #[test]
    fn has_small_buffers_where_nothing_is_read_unless_the_plan_says_otherwise() {
        for (misbehaviour, receive_buffer_bytes, expect) in [
            (Misbehaviour::NeverReads, None, Some(4096)),
            (Misbehaviour::Idle, None, None),
            (Misbehaviour::NeverReads, Some(99_999), Some(99_999)),
        ] {
            let clients = BadClients {
                len: 1,
                misbehaviour,
                receive_buffer_bytes,
            };
            let behaviour = Behaviour::of(&clients, &request(None));
            assert_eq!(behaviour.receive_buffer_bytes, expect);
        }
    }
}
