//! Responses: how a response leaves, from a head and pieces of a body to bytes on the way to a client.
//!
//! `writer` is what every backend answers through; `head` writes its head, `sink` is where its bytes go; `parts`
//! what a client has not taken yet, `memory` what of it waits in memory, `spill` how it moves to a file;
//! `content_encoding` decides whether a body is compressed, and `compressor` does it; `send_file` sends spans of
//! files.

mod compressor;
mod content_encoding;
mod head;
mod memory;
mod parts;
mod send_file;
mod sink;
mod spill;
mod writer;

pub use head::Declared;
pub(crate) use head::RequestFacts;
pub use memory::{Charge, ReplyMemory};
pub(crate) use parts::{Parts, Progress};
pub(crate) use send_file::send_file;
pub use sink::Piece;
pub(crate) use sink::{Destination, Encoding, ResponseHead, Rest};
pub(crate) use spill::SpillFile;
pub(crate) use writer::Ended;
pub use writer::{ResponseWriter, Taken};

pub(crate) use crate::reply::{Part, Reply as Response, ReplyBody as ResponseBody};
