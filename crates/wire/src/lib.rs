//! HTTP/1.1, the server's role and as much of the client's as a load generator needs, as pure machines: bytes in, values out.
//!
//! Takes slices of whatever has arrived and gives heads ([`HeadIndex`]), decoded bodies
//! ([`BodyDecoder`]), framing decisions ([`plan_reply`]) and encoded reply heads ([`end_head`]).
//! It must not touch sockets, files, the clock or threads, and it knows no other crate of the house.
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
mod request_line;
mod scan;

mod coding;

mod body;
mod chunk_extension;

mod chunk;
mod field_lines;
mod reply;
mod reply_head;
mod status;

pub mod date;
pub mod target;

mod bytes;
mod host;

mod request_start;

pub use self::bytes::is_field_value;
pub use body::{BodyDecoder, Decoded};
pub use chunk::{CHUNK_SUFFIX, CHUNK_SUFFIX_AND_LAST, ChunkPrefix, LAST_CHUNK, chunk_prefix};
pub use coding::{AcceptEncoding, quality};
pub use field_lines::{FieldLines, FieldsRef, InvalidField, SharedFields};
pub use head::{
    BodyFraming, HeadIndex, HeadStep, HeadView, HeaderSpan, Marks, Method, RequestHead, Scheme,
    Span, Version,
};
pub use limits::Limits;
pub use refusal::{Cause, Refusal};
pub use reply::{ReplyFacts, ReplyFraming, ReplyPlan, end_head, plan_reply, write_content_length};
pub use reply_head::{Asked, NoReply, ReplyBody, ReplyHead, ReplyHeadStep};
pub use request_start::request_start_ns;
pub use status::{CONTINUE_100, reason, write_status_line, write_status_line_with};
