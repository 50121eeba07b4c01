//! Folders of files: what is known is answered on the driver that received the request, and what is not
//! is looked up on a thread that may wait for a disk.
//!
//! Takes a head, the part of its path behind a mount's URL prefix, and `now`; gives a complete [`Reply`]
//! whose body is either bytes that are already in memory or a span of an open file, or a [`Lookup`] to be
//! done elsewhere. One [`Files`] belongs to one driver: it holds no lock and is never shared. It must not
//! touch a socket, the clock, or anything outside its folders.
//!
//! ```text
//! rest ─► cache ──fresh──────────────────────────────────────────────► variants ─► Reply
//!           │ absent, or no lookup asked for within `revalidate`              ▲ ▲
//!           └─► path (decode, hide) ─► probe (the kernel's memory) ──equal─┘ │
//!                                        │ unknown or different               │
//!                                        └─► Lookup ═[opener]═► LookupResult ─settle──┘─► cache
//! ```
//!
//! A fresh hit costs one hash lookup and two reference counts. Everything else resolves the path anew, so
//! that a file renamed into place is seen: by a probe, which only asks what the kernel has in memory
//! and waits for nothing, or by a lookup, which opens and reads. A page that is due for revalidation is
//! served before one of the two has confirmed it only where a probe cannot tell, for `stale_max`, and
//! with a lookup on its way.

#![forbid(unsafe_code)]

mod reply;

mod cache;
mod cache_segment;
mod cached_file;
mod variants;

mod conditional;
mod encoding_preference;
mod multipart;
mod ranges;

mod error_replies;
mod path;

mod lookup;
mod mounts;

mod metadata;
mod root_dir;

mod accept;
mod fallback;
mod listing;

mod cache_control;
pub mod media_type;

#[cfg(test)]
mod tests;

pub use accept::names_html;
pub use cache::{EvictedFiles, FileAnswer, Files};
pub use lookup::{Lookup, LookupKey, LookupResult};
pub use reply::{Edition, Part, Reply, ReplyBody, status_text, text_fields};
