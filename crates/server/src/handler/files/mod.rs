//! Folders of files: what is known is answered on the driver that received the request, and what is not
//! is looked up on a thread that may wait for a disk.
//!
//! Takes a head, the part of its path behind a mount's URL prefix, and `now`; gives a complete [`Reply`]
//! whose body is either bytes that are already in memory or a span of an open file, or a [`Look`] to be
//! done elsewhere. One [`Files`] belongs to one driver: it holds no lock and is never shared. It must not
//! touch a socket, the clock, or anything outside its folders.
//!
//! ```text
//! rest ─► cache ──fresh─────────────────────────────────────────────────► answer ─► Reply
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

mod answer;
mod plain;

mod cache;
mod path;

mod look;
mod site;

mod facts;
mod folder;
mod page;

mod family;
mod ranking;

mod accept;
mod instead;
mod listing;

mod cache_control;
pub(crate) mod kind;

mod conditional;
mod ranges;

mod multipart;

#[cfg(test)]
mod tests;

pub(crate) use accept::names_html;

use std::fmt;
use std::io;
use std::path::PathBuf;
use std::sync::Arc;

use measure::{Nanos, Stamp};
use wire::{HeadView, Method};

use crate::config::meant::Config;
use crate::reply::Reply;

use self::cache::Cache;
use self::family::{Family, Glimpse};
use self::folder::Miss;
use self::instead::Instead;
use self::look::Sight;
use self::path::Place;
use self::plain::Plain;
use self::ranking::Ranking;
use self::site::{Asked, Site};

pub use self::look::{Look, LookKey, Looked};

/// The folders of one driver and what it remembers of their files.
pub struct Files {
    site: Arc<Site>,
    cache: Cache,
    /// The decoded path of the request at hand; kept for its allocation.
    path: Vec<u8>,
    tickets: Tickets,
}

/// What a driver gets for a request at once.
pub enum Given {
    /// The reply.
    Ready(Reply),
    /// The reply, from what was known a moment ago: the storage is to be looked at for the next requests, and
    /// this one does not wait for it.
    Stale(Reply, Box<Look>),
    /// Only the storage knows: to be looked at on a thread that may wait, and settled then.
    Look(Box<Look>),
}

/// A folder that cannot be served.
#[derive(Debug)]
pub struct FolderFault {
    /// URL prefix of its mount.
    pub url: String,
    /// The folder as configured.
    pub dir: PathBuf,
    /// What the system said.
    pub cause: io::Error,
}

/// Open files that are not remembered any more. Dropping it closes them, which may wait: the last descriptor
/// of a deleted file frees its space, and a remote file system asks its server.
#[must_use = "to be dropped where a disk may be waited for"]
pub struct Gone(Vec<Arc<Family>>);

/// Whether requests may share a look.
#[derive(Clone, Copy, Debug)]
enum Tickets {
    /// They may: what is known may be somewhat old anyhow.
    Shared,
    /// Each gets a look that began after it: the number of the last one.
    Own(u64),
}

impl Files {
    /// Opens every folder and keeps it open: a folder that is renamed later is still the one served.
    ///
    /// # Errors
    /// The first folder that is missing, is not a folder, or may not be searched.
    pub fn open(config: &Config) -> Result<Files, FolderFault> {
        let cache = &config.file_cache;
        Ok(Files {
            site: Arc::new(Site::open(config)?),
            cache: Cache::new(config.statics.len(), cache),
            path: Vec::new(),
            tickets: match cache.revalidate {
                Nanos::ZERO => Tickets::Own(0),
                _ => Tickets::Shared,
            },
        })
    }

    /// Answers one request from what is known, or says what has to be looked at; never waits for
    /// storage. `mount` is the index of its mount in `Config::statics`, `rest` the raw
    /// (percent-encoded) path behind the mount's URL prefix: empty or `/css/a.css`.
    ///
    /// The reply to a HEAD has the lines of the GET and no body; a 304 has no `Content-Length`.
    ///
    /// # Panics
    /// When there is no such mount.
    pub fn ask(&mut self, mount: usize, head: HeadView<'_>, rest: &[u8], now: Stamp) -> Given {
        match head.index.method {
            Method::Get | Method::Head => {}
            Method::Other => return Given::Ready(Plain::NotImplemented.reply(head)),
            _ => return Given::Ready(Plain::MethodNotAllowed.reply(head)),
        }
        if let Some(family) = self.cache.fresh(mount, rest, now)
            && !family.has_moved_on()
        {
            return Given::Ready(give(&self.site, family, head));
        }
        self.ask_anew(mount, head, rest, now)
    }

    /// The reply to a request that waited for a look. `looked` is what its look found, or one with an
    /// equal key; `head` is the request's own.
    pub fn reply(&self, looked: &Looked, head: HeadView<'_>) -> Reply {
        match looked.sight() {
            Sight::Family(family) => give(&self.site, family, head),
            Sight::Page(page) => answer::give(page, head),
            Sight::Listing(listing) => listing.clone().reply(head),
            Sight::Folder => plain::redirect_to_folder(head),
            Sight::Miss(Miss::Absent) if looked.depends_on_accept() => {
                Plain::NotFoundByAccept.reply(head)
            }
            Sight::Miss(miss) => Plain::from(*miss).reply(head),
        }
    }

    /// Keeps what a look found, for the next requests; once for each look.
    pub fn learn(&mut self, looked: Looked, now: Stamp) {
        let when = looked.span(now);
        let (key, sight) = looked.take();
        match sight {
            Sight::Family(family) => self.cache.keep(key.mount, &key.rest, family, when),
            _ => self.cache.forget(key.mount, &key.rest, when),
        }
    }

    /// What is to be dropped on a thread that may wait for a disk; to be asked for after each look, and now
    /// and then.
    pub fn take_gone(&mut self) -> Option<Gone> {
        let gone = self.cache.take_gone();
        (!gone.is_empty()).then_some(Gone(gone))
    }

    /// Lets large files go that nobody asked for in a while; to be called now and then.
    pub fn close_idle(&mut self, now: Stamp) {
        self.cache.close_idle(now);
    }

    fn ask_anew(&mut self, mount: usize, head: HeadView<'_>, rest: &[u8], now: Stamp) -> Given {
        let mut folder_bytes = None;
        match path::beneath(rest, &mut self.path) {
            Place::Top => return Given::Ready(plain::redirect_to_folder(head)),
            Place::Nowhere => return Given::Ready(Plain::NotFound.reply(head)),
            Place::File => {}
            Place::Folder => {
                folder_bytes = Some(self.path.len());
                self.site.mounts[mount].push_index(&mut self.path);
            }
        }
        let known = self.cache.doubted(mount, rest, now).map(Arc::clone);
        let glimpse = self.glance(mount, rest);
        if known.is_some()
            && glimpse == Some(Glimpse::Unchanged)
            && let Some(family) = self.cache.confirm(mount, rest, now)
        {
            return Given::Ready(give(&self.site, family, head));
        }
        let path = Asked::new(&self.path, folder_bytes);
        let key = LookKey {
            mount,
            rest: rest.into(),
            ranking: Ranking::read(head, &self.site.codings),
            instead: Instead::of(head, &self.site, mount, &path),
            ticket: self.tickets.next(),
        };
        let look = Box::new(Look::new(key, &self.site, path, known, now));
        if glimpse == Some(Glimpse::Unsure)
            && let Some(family) = self.cache.stale(mount, rest, now)
            && !family.has_moved_on()
        {
            return Given::Stale(give(&self.site, family, head), look);
        }
        Given::Look(look)
    }

    /// What can be seen of what is known without waiting for anything.
    fn glance(&mut self, mount: usize, rest: &[u8]) -> Option<Glimpse> {
        let folder = &self.site.mounts[mount].folder;
        let known = self.cache.held(mount, rest)?;
        Some(known.glance(folder, &mut self.path, &self.site.codings))
    }
}

/// The reply from what is known: without siblings the field is not even looked for.
#[inline]
fn give(site: &Site, family: &Family, head: HeadView<'_>) -> Reply {
    match family.only() {
        Some(page) => answer::give(page, head),
        None => answer::give(family.chosen(&Ranking::read(head, &site.codings)), head),
    }
}

impl Gone {
    /// Descriptors that dropping it closes.
    pub fn open_len(&self) -> usize {
        self.0.iter().map(|family| family.open_len()).sum()
    }
}

impl Tickets {
    fn next(&mut self) -> u64 {
        match self {
            Tickets::Shared => 0,
            Tickets::Own(last) => {
                *last += 1;
                *last
            }
        }
    }
}

impl fmt::Display for FolderFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "static folder `{}` of `{}/`: {}",
            self.dir.display(),
            self.url,
            self.cause
        )
    }
}

impl std::error::Error for FolderFault {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        Some(&self.cause)
    }
}
