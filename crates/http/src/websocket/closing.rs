//! The closing handshake of one connection, RFC 6455 section 7.
//!
//! Takes the frames that are sent and that arrive, gives what may be sent and what the end is reported as. It must not
//! know deadlines: the caller ends a connection whose peer does not answer a close frame.

use super::frame::Opcode;

/// Reported where a close frame had no code, RFC 6455 section 7.4.1.
const NO_CODE: u16 = 1005;
/// Reported where the connection ended without a close frame of the peer.
const ABNORMAL: u16 = 1006;

/// How far the closing handshake is.
///
/// ```text
///        ┌──Close sent────► CloseSent ──────Close received──┐
/// Open ──┤                                                  ▼
///        └──Close received► CloseReceived ──Close sent────► Closed
/// ```
///
/// | state | may be sent |
/// |---|---|
/// | Open | messages, pings, pongs, a close frame |
/// | CloseSent | pongs: a ping that comes before the peer's close frame is answered (section 5.5.2) |
/// | CloseReceived | a close frame |
/// | Closed | nothing; the server closes the TCP connection, the client waits for that (section 7.1.1) |
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Closing {
    /// Neither end has sent a close frame.
    #[default]
    Open,
    /// This end has.
    CloseSent,
    /// The peer has, with this code.
    CloseReceived {
        /// `None`: without a code.
        code: Option<u16>,
    },
    /// Both ends have; the peer with this code.
    Closed {
        /// `None`: without a code.
        code: Option<u16>,
    },
}

/// A frame on its way.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ClosingEvent {
    /// This end sends a frame.
    Sent(Opcode),
    /// A close frame of the peer has arrived, with this code.
    Received(Option<u16>),
}

/// A frame that must not be sent any more; from the peer, a second close frame.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ForbiddenFrame;

impl Closing {
    /// The state behind this event.
    ///
    /// # Errors
    /// When the frame is not allowed in this state, which remains.
    pub fn step(self, event: ClosingEvent) -> Result<Closing, ForbiddenFrame> {
        use ClosingEvent::{Received, Sent};
        match (self, event) {
            (Closing::Open, Sent(Opcode::Close)) => Ok(Closing::CloseSent),
            (Closing::Open, Sent(_)) | (Closing::CloseSent, Sent(Opcode::Pong)) => Ok(self),
            (Closing::CloseReceived { code }, Sent(Opcode::Close)) => Ok(Closing::Closed { code }),
            (_, Sent(_)) => Err(ForbiddenFrame),
            (Closing::Open, Received(code)) => Ok(Closing::CloseReceived { code }),
            (Closing::CloseSent, Received(code)) => Ok(Closing::Closed { code }),
            (_, Received(_)) => Err(ForbiddenFrame),
        }
    }

    /// Whether a frame may be sent.
    pub fn may_send(self, opcode: Opcode) -> bool {
        self.step(ClosingEvent::Sent(opcode)).is_ok()
    }

    /// The code that answers the peer's close frame: the same one (RFC 6455 section 5.5.1).
    pub fn answer(self) -> Option<u16> {
        match self {
            Closing::CloseReceived { code } => code,
            _ => None,
        }
    }

    /// What the end of the connection is reported as, if it comes now: the peer's code, 1005 for a close frame without
    /// one, 1006 without a close frame.
    pub fn reported_code(self) -> u16 {
        match self {
            Closing::Open | Closing::CloseSent => ABNORMAL,
            Closing::CloseReceived { code } | Closing::Closed { code } => code.unwrap_or(NO_CODE),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const CODE: Option<u16> = Some(1001);
    const STATES: [Closing; 4] = [
        Closing::Open,
        Closing::CloseSent,
        Closing::CloseReceived { code: CODE },
        Closing::Closed { code: CODE },
    ];

    #[test]
    fn walks_every_edge_and_no_forbidden_one() {
        use ClosingEvent::{Received, Sent};
        use Opcode::{Binary, Close, Continuation, Ping, Pong, Text};
        let [open, sent, received, closed] = STATES;
        let check = |event: ClosingEvent, expect: [Option<Closing>; 4]| {
            for (state, expect) in STATES.into_iter().zip(expect) {
                assert_eq!(state.step(event).ok(), expect, "{state:?} {event:?}");
                if let Sent(opcode) = event {
                    assert_eq!(state.may_send(opcode), expect.is_some());
                }
            }
        };
        for opcode in [Continuation, Text, Binary, Ping] {
            check(Sent(opcode), [Some(open), None, None, None]);
        }
        check(Sent(Pong), [Some(open), Some(sent), None, None]);
        check(Sent(Close), [Some(sent), None, Some(closed), None]);
        check(Received(CODE), [Some(received), Some(closed), None, None]);
    }

    #[test]
    fn reports_the_code_of_the_peer_and_answers_it() {
        let empty = Closing::CloseReceived { code: None };
        for (state, reported, answer) in [
            (Closing::Open, 1006, None),
            (Closing::CloseSent, 1006, None),
            (Closing::CloseReceived { code: CODE }, 1001, CODE),
            (Closing::Closed { code: CODE }, 1001, None),
            (empty, 1005, None),
            (Closing::Closed { code: None }, 1005, None),
        ] {
            assert_eq!((state.reported_code(), state.answer()), (reported, answer));
        }
    }
}
