//! Responses: a response as a value, and how one leaves, from a head and pieces of a body to bytes on the way to a
//! client.
//!
//! `Reply` is what inline handlers and refusals give; it knows no socket. `writer` is what every backend answers
//! through; `head` writes its head, `sink` is where its bytes go; `parts` what a client has not taken yet, `memory`
//! what of it waits in memory, and how that moves to a file; `content_encoding` decides whether a body is compressed,
//! and `compressor` does it.

mod compressor;
mod content_encoding;
mod head;
mod memory;
mod parts;
mod sink;
mod writer;

use bytes::Bytes;
use http::{FieldLines, SharedFields};

pub use head::Declared;
pub(crate) use memory::SpillFile;
pub use memory::{Charge, ReplyMemory};
pub(crate) use parts::{Parts, Progress, send_file};
pub(crate) use sink::{Destination, Encoding, ResponseHead, Rest};
pub use sink::{Edition, Part, Piece, ReplyBody};
pub(crate) use writer::ResponseEnd;
pub use writer::{Amount, ResponseWriter, Taken};

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
    pub(crate) fn refusal_with(status: u16, add: impl FnOnce(&mut FieldLines)) -> Reply {
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

/// The line of text that stands for a status.
pub(crate) fn status_text(status: u16) -> String {
    format!("{status} {}\n", http::reason(status))
}

/// The fields of plain text of `bytes` bytes.
pub(crate) fn text_fields(bytes: usize) -> FieldLines {
    let mut fields = FieldLines::with_capacity(128);
    fields.push(b"Content-Type", b"text/plain; charset=utf-8");
    fields.push_decimal(b"Content-Length", bytes as u64);
    fields
}
