//! A reply as a value: a status, finished fields, and a body of buffers and spans of files. It knows no socket.

use std::fs::File;
use std::sync::Arc;

use bytes::Bytes;
use http::{FieldLines, SharedFields};

/// A complete reply.
#[derive(Clone, Debug)]
pub struct Reply {
    /// Status code.
    pub status: u16,
    /// Its fields, with `Content-Length` and without `Date`, `Server` and `Connection`.
    pub fields: SharedFields,
    /// Body.
    pub body: ReplyBody,
}

/// Body of a complete reply.
#[derive(Clone, Debug, Default)]
pub enum ReplyBody {
    /// Nothing.
    #[default]
    Empty,
    /// One part, the usual case: no list is allocated.
    One(Part),
    /// Parts in order, such as those of a multipart range reply.
    Many(Vec<Part>),
}

/// A piece of a body that is sent without being copied.
#[derive(Clone, Debug)]
pub enum Part {
    /// Bytes in memory.
    Memory(Bytes),
    /// `bytes` bytes of a file from `offset`.
    File {
        /// The file; its cursor is not used.
        file: Arc<File>,
        /// First byte.
        offset: u64,
        /// Number of bytes.
        bytes: u64,
        /// What the file was when its length was announced; `None` for a file of our own, which no other process
        /// can change.
        edition: Option<Edition>,
    },
}

/// What tells that a file was changed in place: looked at again before each of its spans is sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Edition {
    /// Length of the file.
    pub bytes: u64,
    /// Modification time, seconds since 1970.
    pub modified_unix_secs: i64,
    /// Modification time, nanoseconds behind the second.
    pub modified_nanos: i64,
}

impl Reply {
    /// A status and its reason as text, with the seconds after which to try again, if a try makes sense.
    pub fn refusal(status: u16, retry_after_secs: Option<u32>) -> Reply {
        Reply::refusal_with(status, |fields| {
            if let Some(secs) = retry_after_secs {
                fields.push_decimal(b"Retry-After", u64::from(secs));
            }
        })
    }

    /// A status and its reason as text, with the fields that `add` appends.
    pub fn refusal_with(status: u16, add: impl FnOnce(&mut FieldLines)) -> Reply {
        let text = status_text(status);
        let mut fields = text_fields(text.len());
        add(&mut fields);
        Reply {
            status,
            fields: fields.freeze(),
            body: ReplyBody::One(Part::Memory(Bytes::from(text))),
        }
    }
}

impl Part {
    /// Length in bytes.
    pub fn bytes(&self) -> u64 {
        match self {
            Part::Memory(data) => data.len() as u64,
            Part::File { bytes, .. } => *bytes,
        }
    }
}

impl ReplyBody {
    /// Length in bytes.
    pub fn bytes(&self) -> u64 {
        match self {
            ReplyBody::Empty => 0,
            ReplyBody::One(part) => part.bytes(),
            ReplyBody::Many(parts) => parts.iter().map(Part::bytes).sum(),
        }
    }
}

/// The line of text that stands for a status.
pub fn status_text(status: u16) -> String {
    format!("{status} {}\n", http::reason(status))
}

/// The fields of plain text of `bytes` bytes.
pub fn text_fields(bytes: usize) -> FieldLines {
    let mut fields = FieldLines::with_capacity(128);
    fields.push(b"Content-Type", b"text/plain; charset=utf-8");
    fields.push_decimal(b"Content-Length", bytes as u64);
    fields
}
