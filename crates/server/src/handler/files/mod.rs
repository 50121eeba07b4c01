//! Folders of files: what is known is answered on the driver that received the request, and what is not
//! is looked up on a thread that may wait for a disk.
//!
//! Takes a head, the part of its path behind a mount's URL prefix, and `now`; gives a complete [`Reply`]
//! whose body is either bytes that are already in memory or a span of an open file, or a [`Look`] to be
//! done elsewhere. One [`Files`] belongs to one driver: it holds no lock and is never shared. It must not
//! touch a socket, the clock, or anything outside its folders.
//!
//! ```text
//! rest ─► cache ──fresh──────────────────────────────────────────────► variants ─► Reply
//!           │ absent, or no look asked for within `revalidate`              ▲ ▲
//!           └─► path (decode, hide) ─► glance (the kernel's memory) ──equal─┘ │
//!                                        │ unknown or different               │
//!                                        └─► Look ═[opener]═► Looked ─settle──┘─► cache
//! ```
//!
//! A fresh hit costs one hash lookup and two reference counts. Everything else resolves the path anew, so
//! that a file renamed into place is seen: by a glance, which only asks what the kernel knows by heart
//! and waits for nothing, or by a look, which opens and reads. A page that is due for revalidation is
//! served before one of the two has confirmed it only where a glance cannot tell, for `stale_max`, and
//! with a look on its way.

mod cache;
mod shelf;
mod variants;

mod conditional;
mod multipart;
mod ranges;
mod ranking;

mod path;
mod plain;

mod look;
mod site;

mod facts;
mod folder;

mod accept;
mod instead;
mod listing;

mod cache_control;
pub(crate) mod kind;

#[cfg(test)]
mod tests;

pub(crate) use accept::names_html;
pub use cache::{Files, Given, Gone};
pub use look::{Look, LookKey, Looked};
pub use site::FolderFault;
