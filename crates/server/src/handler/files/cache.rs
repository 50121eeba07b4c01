//! What a driver remembers of its files, and what it answers from it: families of pages by the raw path that they
//! were asked for with.
//!
//! Takes a request, gives a reply or the look that it needs; takes families and gives them, opens nothing. The key
//! is the mount and the path as sent, so that a hit decodes and allocates nothing; two spellings of one path are
//! two entries, each inside the same bounds. Keys are hashed with the standard library's seeded SipHash, because
//! clients choose them. Entries stand on two shelves: small families with their bytes, and those with an open
//! descriptor. Each is bounded in number, and both together in memory.

use std::collections::HashMap;
use std::sync::Arc;

use measure::{Nanos, Stamp};
use wire::{HeadView, Method};

use crate::config::meant::{Config, FileCache};
use crate::response::Reply;

use super::folder::Miss;
use super::instead::Instead;
use super::look::{Look, LookKey, Looked, Sight};
use super::path::{self, Place};
use super::plain::{self, Plain};
use super::ranking::Ranking;
use super::shelf::{Entry, Looking, SETTLE, Shelf, ShelfName, Trust};
use super::site::{Asked, FolderFault, Site};
use super::variants::{Family, Glimpse};

/// Small files per driver. Bounds the table, which grows in one step, to a few MiB.
const MEMORY_LEN_MAX: usize = 16_384;
/// Open descriptors per driver: well below the descriptors that a process has for its connections.
const OPEN_LEN_MAX: usize = 256;
/// A large file that nobody asks for is closed after this long, so that a deleted one gives its space back.
const OPEN_IDLE: Nanos = Nanos::from_secs(60);
/// Open files looked at for that in one go.
const IDLE_SWEEP_LEN: usize = 2;

/// The folders of one driver and what it remembers of their files.
pub struct Files {
    pub(super) site: Arc<Site>,
    pub(super) cache: Cache,
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

/// The cache of one driver.
pub(super) struct Cache {
    /// For each mount.
    places: Vec<HashMap<Arc<[u8]>, ShelfSlot>>,
    memory: Shelf,
    open: Shelf,
    /// Of both shelves.
    bytes_max: usize,
    revalidate: Nanos,
    stale_max: Nanos,
    idle_hand: usize,
    /// Families with descriptors that left the shelf of open files.
    gone: Vec<Arc<Family>>,
}

#[derive(Clone, Copy)]
struct ShelfSlot {
    shelf: ShelfName,
    slot: u32,
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
            return Given::Ready(family.reply(head, &self.site.codings));
        }
        self.ask_anew(mount, head, rest, now)
    }

    /// The reply to a request that waited for a look. `looked` is what its look found, or one with an
    /// equal key; `head` is the request's own.
    pub fn reply(&self, looked: &Looked, head: HeadView<'_>) -> Reply {
        match looked.sight() {
            Sight::Family(family) => family.reply(head, &self.site.codings),
            Sight::Page(page) => page.reply(head),
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
            return Given::Ready(family.reply(head, &self.site.codings));
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
            return Given::Stale(family.reply(head, &self.site.codings), look);
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

impl Cache {
    /// An empty cache for `mounts_len` mounts. Zero `bytes_max` keeps no content.
    pub(super) fn new(mounts_len: usize, config: &FileCache) -> Cache {
        Cache {
            places: (0..mounts_len).map(|_| HashMap::new()).collect(),
            memory: Shelf::new(MEMORY_LEN_MAX),
            open: Shelf::new(OPEN_LEN_MAX),
            bytes_max: config.bytes_max,
            revalidate: config.revalidate,
            // Who wants every request to be checked wants no old ones in between.
            stale_max: match config.revalidate {
                Nanos::ZERO => Nanos::ZERO,
                _ => config.stale_max,
            },
            idle_hand: 0,
            gone: Vec::new(),
        }
    }

    /// What is known for `rest`, if it was looked at within `revalidate`, or is `stale` and a look was asked
    /// for in that time: one for each request would be a queue without a bound before storage that hangs.
    #[inline]
    pub(super) fn fresh(&mut self, mount: usize, rest: &[u8], now: Stamp) -> Option<&Arc<Family>> {
        let (revalidate, stale_max) = (self.revalidate, self.stale_max);
        let entry = self.entry(mount, rest)?;
        let age = now.since(entry.checked);
        let is_pursued = || age < stale_max && now.since(entry.pursued) < revalidate;
        if age >= revalidate && !is_pursued() {
            return None;
        }
        entry.is_asked = true;
        Some(&entry.family)
    }

    /// What is known for `rest`, if equal facts would confirm it: what was read within the tick of its
    /// file's last change has to be read again.
    pub(super) fn doubted(
        &mut self,
        mount: usize,
        rest: &[u8],
        now: Stamp,
    ) -> Option<&Arc<Family>> {
        let entry = self.entry(mount, rest)?;
        match entry.trust {
            Trust::ReadAt(read) if now.since(read) >= SETTLE => None,
            _ => Some(&entry.family),
        }
    }

    /// What is known for `rest`, however old.
    pub(super) fn held(&mut self, mount: usize, rest: &[u8]) -> Option<&Arc<Family>> {
        Some(&self.entry(mount, rest)?.family)
    }

    /// What is known for `rest` and may be given while its storage is asked again, which the caller sees to.
    pub(super) fn stale(&mut self, mount: usize, rest: &[u8], now: Stamp) -> Option<&Arc<Family>> {
        let stale_max = self.stale_max;
        let entry = self.entry(mount, rest)?;
        if now.since(entry.checked) >= stale_max {
            return None;
        }
        entry.pursued = now;
        Some(&entry.family)
    }

    /// What is known for `rest`, whose files still had the same facts at `now`.
    pub(super) fn confirm(
        &mut self,
        mount: usize,
        rest: &[u8],
        now: Stamp,
    ) -> Option<&Arc<Family>> {
        let entry = self.entry(mount, rest)?;
        entry.checked = now;
        entry.is_asked = true;
        Some(&entry.family)
    }

    /// Remembers what a look found, in place of what was known for `rest`; a look that was overtaken by
    /// another is not remembered.
    pub(super) fn keep(&mut self, mount: usize, rest: &[u8], family: Arc<Family>, when: Looking) {
        let trust = match self.entry(mount, rest) {
            Some(known) if known.checked > when.asked => return,
            // The look found what it had been told.
            Some(known) if Arc::ptr_eq(&known.family, &family) => {
                self.confirm(mount, rest, when.asked);
                return;
            }
            known => Trust::of(&family, known.as_deref(), when),
        };
        self.drop_entry(mount, rest);
        let Some(name) = self.make_room(&family, rest) else {
            return;
        };
        let key: Arc<[u8]> = rest.into();
        let entry = Entry {
            mount,
            key: Arc::clone(&key),
            bytes: name.bytes_of(&family, rest),
            len: name.len_of(&family),
            family,
            checked: when.asked,
            pursued: when.asked,
            trust,
            is_asked: false,
        };
        let slot = self.shelf(name).push(entry);
        self.places[mount].insert(key, ShelfSlot { shelf: name, slot });
    }

    /// Lets others go until `family` fits; `None` when it never will.
    fn make_room(&mut self, family: &Family, rest: &[u8]) -> Option<ShelfName> {
        let name = ShelfName::of(family);
        let (bytes, len) = (name.bytes_of(family, rest), name.len_of(family));
        let rest_bytes_max = self.bytes_max.checked_sub(bytes)?;
        while self.shelf(name).len + len > self.shelf(name).len_max {
            self.evict(name);
        }
        while self.memory.bytes + self.open.bytes > rest_bytes_max {
            let name = if self.memory.entries.is_empty() {
                ShelfName::Open
            } else {
                ShelfName::Memory
            };
            self.evict(name);
        }
        Some(name)
    }

    fn evict(&mut self, name: ShelfName) {
        let slot = self.shelf(name).next_to_go();
        self.remove(name, slot);
    }

    /// Drops what is known for `rest`, unless a later look knew better.
    pub(super) fn forget(&mut self, mount: usize, rest: &[u8], when: Looking) {
        let known = self.entry(mount, rest);
        if known.is_some_and(|known| known.checked <= when.asked) {
            self.drop_entry(mount, rest);
        }
    }

    fn drop_entry(&mut self, mount: usize, rest: &[u8]) {
        if let Some(place) = self.places[mount].get(rest).copied() {
            self.remove(place.shelf, place.slot as usize);
        }
    }

    /// Lets large files go that nobody asked for in a while, a few at a time.
    pub(super) fn close_idle(&mut self, now: Stamp) {
        for _ in 0..IDLE_SWEEP_LEN.min(self.open.entries.len()) {
            if self.idle_hand >= self.open.entries.len() {
                self.idle_hand = 0;
            }
            match self.open.entries.get(self.idle_hand) {
                Some(entry) if now.since(entry.checked) >= OPEN_IDLE => {
                    self.remove(ShelfName::Open, self.idle_hand);
                }
                _ => self.idle_hand += 1,
            }
        }
    }

    /// What left the shelf of open files since the last call: closing them is not for a driver.
    pub(super) fn take_gone(&mut self) -> Vec<Arc<Family>> {
        std::mem::take(&mut self.gone)
    }

    #[inline]
    fn entry(&mut self, mount: usize, rest: &[u8]) -> Option<&mut Entry> {
        let place = *self.places[mount].get(rest)?;
        self.shelf(place.shelf).entries.get_mut(place.slot as usize)
    }

    #[inline]
    fn shelf(&mut self, name: ShelfName) -> &mut Shelf {
        match name {
            ShelfName::Memory => &mut self.memory,
            ShelfName::Open => &mut self.open,
        }
    }

    /// Removes the entry in `slot`; the last one of the shelf takes its place.
    fn remove(&mut self, name: ShelfName, slot: usize) {
        let shelf = self.shelf(name);
        let gone = shelf.entries.swap_remove(slot);
        shelf.bytes -= gone.bytes;
        shelf.len -= gone.len;
        let moved = shelf
            .entries
            .get(slot)
            .map(|entry| (entry.mount, Arc::clone(&entry.key)));
        self.places[gone.mount].remove(&gone.key);
        if name == ShelfName::Open {
            self.gone.push(gone.family);
        }
        if let Some((mount, key)) = moved {
            self.places[mount].insert(
                key,
                ShelfSlot {
                    shelf: name,
                    slot: slot as u32,
                },
            );
        }
    }
}

#[cfg(test)]
mod tests;
