//! A reply as a value: status, header lines, and a body made of buffers and file spans.
//!
//! Given by inline handlers and refusals, taken by delivery. Knows no socket.

use std::fs::File;
use std::sync::Arc;

use bytes::Bytes;

/// A complete reply.
#[derive(Clone, Debug)]
pub struct Reply {
    /// Status code.
    pub status: u16,
    /// Finished header lines, each `Name: value\r\n`, with `Content-Length` and without `Date`, `Server`,
    /// `Connection` and the empty line.
    pub lines: Bytes,
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
        /// What the file was when its length was announced; `None` for a file of our own, which nobody
        /// else can change.
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
    /// A status and its reason, as text.
    pub fn plain(status: u16) -> Reply {
        let body = format!("{status} {}\n", wire::reason(status));
        let lines = format!(
            "Content-Type: text/plain; charset=utf-8\r\nContent-Length: {}\r\n",
            body.len()
        );
        Reply {
            status,
            lines: Bytes::from(lines),
            body: ReplyBody::One(Part::Memory(Bytes::from(body))),
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
