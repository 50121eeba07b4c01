//! WebSocket (RFC 6455) with permessage-deflate (RFC 7692), in both roles, as pure machines.
//!
//! Takes request and response heads, slices of the bytes that have arrived and messages to be sent; gives handshakes,
//! messages, encoded frames and close codes. It must not touch sockets, the clock or random numbers: nonces and masks
//! come from the caller, and so do deadlines of pings and of the closing handshake.
//!
//! ```text
//! head ─► Handshake::of_upgrade ─► push_fields ─► 101        nonce ─► ClientHandshake ─► push_fields ─► check
//!
//! bytes ─► MessageDecoder (FrameDecoder, inflating, limit, UTF-8) ─► Event
//! message ─► MessageEncoder (deflating) ─► bytes              Closing: what may be sent, what the end is reported as
//! ```

mod frame;

mod decoder;
mod message;

mod deflate;
mod encoder;

mod closing;

mod extension;
mod handshake;

mod client_handshake;

pub use client_handshake::{AgreedSession, ClientHandshake, HandshakeReplyFault};
pub use closing::{Closing, ClosingEvent, ForbiddenFrame};
pub use decoder::{Compression, DataPart, FrameDecoder, FramePart, FrameStep};
pub use encoder::{
    COMPRESSED_BYTES_MIN, InvalidCloseCode, MessageEncoder, write_close, write_control,
    write_message_header,
};
pub use extension::{
    DeflateAgreement, DeflateContext, DeflateOptions, DeflateSide, WINDOW_BITS_DEFAULT,
};
pub use frame::{FrameHeader, Opcode, PayloadForm, apply_mask};
pub use handshake::{Handshake, HandshakeFault, HandshakeKey, SubprotocolNotOffered};
pub use message::{CloseFrame, Event, MessageDecoder, Received};

/// Largest payload of a control frame, RFC 6455 section 5.5.
pub const CONTROL_BYTES_MAX: usize = 125;

/// Which end of the connection this is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Role {
    /// The end that accepted: frames of its peer are masked, its own are not (RFC 6455 section 5.1).
    Server,
    /// The end that asked: its own frames are masked, frames of its peer are not.
    Client,
}

/// What a message holds.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum MessageKind {
    /// UTF-8.
    Text,
    /// Any bytes.
    Binary,
}

macro_rules! faults {
    ($($name:ident $code:literal $text:literal,)*) => {
        /// The rule of RFC 6455 or RFC 7692 that a peer has broken, one variant per rule. It ends the connection.
        #[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
        pub enum WebSocketFault {
            $(#[doc = concat!($text, " (", stringify!($code), ")")] $name,)*
        }

        impl WebSocketFault {
            /// Every fault, in the order of this table.
            pub const ALL: &'static [WebSocketFault] = &[$(WebSocketFault::$name,)*];

            /// Status code of the close frame that answers it, RFC 6455 section 7.4.1: 1002, 1007 or 1009.
            pub fn close_code(self) -> u16 {
                match self { $(WebSocketFault::$name => $code,)* }
            }

            /// What is wrong, for a log; never for the peer.
            pub fn text(self) -> &'static str {
                match self { $(WebSocketFault::$name => $text,)* }
            }
        }
    };
}

faults! {
    ReservedBit 1002 "a reserved bit is set that nothing negotiated gives a meaning",
    OpcodeUnknown 1002 "the opcode is a reserved one",
    ControlFragmented 1002 "a control frame is fragmented",
    ControlTooLong 1002 "a control frame has more than 125 bytes",
    ContinuationUnexpected 1002 "a continuation frame continues no message",
    ContinuationMissing 1002 "a message begins within another one",
    MaskMissing 1002 "a frame from a client is not masked",
    MaskForbidden 1002 "a frame from a server is masked",
    LengthNotMinimal 1002 "a length is written in more bytes than it needs",
    LengthTooLarge 1002 "a length has its highest bit set",
    CloseLength 1002 "a close frame has a payload of one byte",
    CloseCode 1002 "a close frame has a status code that must not be sent",
    CloseReasonEncoding 1007 "the reason of a close frame is not UTF-8",
    TextEncoding 1007 "a text message is not UTF-8",
    DeflateData 1007 "a compressed message is not valid DEFLATE data",
    MessageTooLarge 1009 "a message is larger than allowed",
}

impl std::fmt::Display for WebSocketFault {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} ({})", self.text(), self.close_code())
    }
}

impl std::error::Error for WebSocketFault {}

/// Whether a close frame may carry this status code: a registered one (RFC 6455 section 7.4), or one of libraries and
/// applications. 1004 to 1006 and 1015 never appear on the wire.
pub fn is_close_code(code: u16) -> bool {
    matches!(code, 1000..=1003 | 1007..=1014 | 3000..=4999)
}

#[cfg(test)]
mod tests;
