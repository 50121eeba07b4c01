//! Responses: a response as a value, and how one leaves, from a head and pieces of a body to bytes on the way to a
//! client.
//!
//! `Reply` (of `files`) is what inline handlers and refusals give; it knows no socket. `writer` is what every backend answers
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

pub use head::Declared;
pub(crate) use memory::SpillFile;
pub use memory::{Charge, ReplyMemory};
pub(crate) use parts::{Gathered, Parts, Progress, load_file, send_file};
pub use sink::Piece;
pub(crate) use sink::{Destination, Encoding, ResponseHead, Rest};
pub(crate) use writer::ResponseEnd;
pub use writer::{Amount, ResponseWriter, Taken};
