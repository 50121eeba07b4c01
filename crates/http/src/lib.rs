//! HTTP/1.1, the server's role, that of a proxy toward upstreams and as much of a client's as a load generator needs, and
//! WebSocket in both roles, as pure machines: bytes in, values out.
//!
//! Takes slices of whatever has arrived and gives heads ([`HeadIndex`]), decoded bodies
//! ([`BodyDecoder`]), framing decisions ([`plan_reply`]) and encoded reply heads ([`end_head`]).
//! It must not touch sockets, files, the clock or threads, and it knows no other crate of ours.
//!
//! The way of one exchange through this crate:
//!
//! ```text
//! bytes ─► HeadIndex::parse ─► BodyDecoder::decode ─► (handler) ─► plan_reply ─► write_status_line, fields, end_head
//!              │ Refusal           │ Refusal                                     └─► chunk_prefix, data, CHUNK_SUFFIX … LAST_CHUNK
//! ```
//!
//! Two promises hold for every machine here and are tested at every split point: the way in which the
//! bytes were cut into slices changes neither result nor refusal, and work is linear in the bytes.

#![forbid(unsafe_code)]

mod limits;
mod refusal;

mod fields;
mod head;
mod scan;

mod decoded;

mod coding;

mod body;
mod reply_head;
mod response;

pub mod date;
pub mod target;

mod basic_auth;
mod forwarded;
mod proxy_protocol;
mod request_start;

pub mod upstream;

pub mod websocket;

pub use basic_auth::BasicCredentials;
pub use body::{BodyDecoder, Decoded};
pub use coding::{AcceptEncoding, quality};
pub use decoded::{
    BodyState, FIELD_OVERHEAD_BYTES, check_trailers, is_connection_field, is_trailer_name,
};
pub use fields::{Marks, is_field_value, is_grpc};
pub use forwarded::{Forwarded, ForwardedFault, ForwardedField, ForwardedFields, forwarded};
pub use head::{
    BodyFraming, HeadIndex, HeadStep, HeadView, HeaderSpan, Method, RequestHead, Scheme, Span,
    Version,
};
pub use limits::Limits;
pub use proxy_protocol::{
    PROXY_HEADER_BYTES_MAX, ProxiedEnds, ProxyHeader, ProxyHeaderFault, proxy_header,
    write_proxy_header,
};
pub use refusal::{Cause, Refusal};
pub use reply_head::{Asked, NoReply, ReplyBody, ReplyHead, ReplyHeadStep};
pub use request_start::request_start_ns;
pub use response::{
    CHUNK_SUFFIX, CHUNK_SUFFIX_AND_LAST, CONTINUE_100, ChunkPrefix, FieldLines, Fields,
    InvalidField, LAST_CHUNK, ReplyFacts, ReplyFraming, ReplyPlan, SharedFields, chunk_prefix,
    end_head, plan_reply, reason, switching_protocols, write_status_line, write_status_line_with,
};
