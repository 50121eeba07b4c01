//! The cache of a driver's files, and the answers from it: files with their variants, by the raw path that clients
//! ask for.
//!
//! Takes a request, gives a reply or the lookup that it needs; takes variants and gives them, opens nothing. The key
//! is the mount and the path as sent, so that a hit decodes and allocates nothing; two spellings of one path are
//! two entries, each inside the same bounds. Keys are hashed with the standard library's seeded SipHash, because
//! clients choose them. Entries are in two segments: small files with their bytes, and files with an open
//! descriptor. Each is bounded in number, and both together in memory.

use std::collections::HashMap;
use std::sync::Arc;

use http::{HeadView, Method};
use telemetry::{Nanos, Stamp};

use crate::reply::Reply;
use config::typed::{Config, FileCache};

use super::cache_segment::{CacheEntry, CacheSegment, LookupTimes, ReadState, SETTLE, SegmentKind};
use super::encoding_preference::EncodingPreference;
use super::error_replies::{self, ErrorReply};
use super::fallback::FallbackChoice;
use super::lookup::{Lookup, LookupKey, LookupOutcome, LookupResult};
use super::mounts::{FolderFault, Mounts, RequestedPath};
use super::path::{self, PathTarget};
use super::root_dir::LookupError;
use super::variants::{ProbeResult, Variants};

/// Small files per driver. Bounds the table, which grows in one step, to a few MiB.
const MEMORY_LEN_MAX: usize = 16_384;
/// Open descriptors per driver: well below the descriptors that a process has for its connections.
const OPEN_LEN_MAX: usize = 256;
/// A large file without requests is closed after this long, so that a deleted one gives its space back.
const OPEN_IDLE: Nanos = Nanos::from_secs(60);
/// Open files looked at for that in one go.
const IDLE_SWEEP_LEN: usize = 2;

/// The folders of one driver and what it remembers of their files.
pub struct Files {
    pub(super) mounts: Arc<Mounts>,
    pub(super) cache: Cache,
    /// The decoded path of the request at hand; kept for its allocation.
    path: Vec<u8>,
    tickets: Tickets,
}

/// Answer to a request for a file.
pub enum FileAnswer {
    /// The reply.
    Ready(Reply),
    /// The reply, from what was known a moment ago: the lookup is for the next requests, and
    /// this one does not wait for it.
    Stale(Reply, Box<Lookup>),
    /// Only the storage knows: to be looked up on a thread that may wait.
    Lookup(Box<Lookup>),
}

/// Open files that have left the cache. Dropping it closes them, which may wait: the last descriptor
/// of a deleted file frees its space, and a remote file system asks its server.
#[must_use = "to be dropped where a disk may be waited for"]
pub struct EvictedFiles(Vec<Arc<Variants>>);

/// Whether requests may share a lookup.
#[derive(Clone, Copy, Debug)]
enum Tickets {
    /// They may: what is known may be somewhat old anyhow.
    Shared,
    /// Each gets a lookup that began after it: the number of the last one.
    Own(u64),
}

/// The cache of one driver.
pub(super) struct Cache {
    /// For each mount.
    positions: Vec<HashMap<Arc<[u8]>, EntryPosition>>,
    memory: CacheSegment,
    open: CacheSegment,
    /// Of both segments.
    bytes_max: usize,
    revalidate: Nanos,
    stale_max: Nanos,
    idle_hand: usize,
    /// Files that left the segment of open files, to be closed elsewhere.
    evicted: Vec<Arc<Variants>>,
}

#[derive(Clone, Copy)]
struct EntryPosition {
    segment: SegmentKind,
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
            mounts: Arc::new(Mounts::open(config)?),
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
    pub fn ask(&mut self, mount: usize, head: HeadView<'_>, rest: &[u8], now: Stamp) -> FileAnswer {
        match head.index.method {
            Method::Get | Method::Head => {}
            Method::Other => return FileAnswer::Ready(ErrorReply::NotImplemented.reply(head)),
            _ => return FileAnswer::Ready(ErrorReply::MethodNotAllowed.reply(head)),
        }
        if let Some(variants) = self.cache.fresh(mount, rest, now)
            && !variants.has_changed()
        {
            return FileAnswer::Ready(variants.reply(head, &self.mounts.codings));
        }
        self.resolve(mount, head, rest, now)
    }

    /// The reply to a request that waited for a lookup. `looked` is the result of its lookup, or of one with an
    /// equal key; `head` is the request's own.
    pub fn reply(&self, looked: &LookupResult, head: HeadView<'_>) -> Reply {
        match looked.outcome() {
            LookupOutcome::Variants(variants) => variants.reply(head, &self.mounts.codings),
            LookupOutcome::Single(page) => page.reply(head),
            LookupOutcome::Listing(listing) => listing.clone().reply(head),
            LookupOutcome::Folder => error_replies::redirect_to_folder(head),
            LookupOutcome::Error(LookupError::Absent) if looked.depends_on_accept() => {
                ErrorReply::NotFoundByAccept.reply(head)
            }
            LookupOutcome::Error(error) => ErrorReply::from(*error).reply(head),
        }
    }

    /// Keeps what a lookup found, for the next requests; once for each lookup.
    pub fn learn(&mut self, looked: LookupResult, now: Stamp) {
        let when = looked.span(now);
        let (key, outcome) = looked.take();
        match outcome {
            LookupOutcome::Variants(variants) => {
                self.cache.keep(key.mount, &key.rest, variants, when);
            }
            _ => self.cache.forget(key.mount, &key.rest, when),
        }
    }

    /// Files to be dropped on a thread that may wait for a disk; to be called after each lookup, and now
    /// and then.
    pub fn take_evicted(&mut self) -> Option<EvictedFiles> {
        let evicted = self.cache.take_evicted();
        (!evicted.is_empty()).then_some(EvictedFiles(evicted))
    }

    /// Evicts large files without requests for a while; to be called now and then.
    pub fn close_idle(&mut self, now: Stamp) {
        self.cache.close_idle(now);
    }

    fn resolve(&mut self, mount: usize, head: HeadView<'_>, rest: &[u8], now: Stamp) -> FileAnswer {
        let mut folder_bytes = None;
        match path::beneath(rest, &mut self.path) {
            PathTarget::Top => return FileAnswer::Ready(error_replies::redirect_to_folder(head)),
            PathTarget::Nowhere => return FileAnswer::Ready(ErrorReply::NotFound.reply(head)),
            PathTarget::File => {}
            PathTarget::Folder => {
                folder_bytes = Some(self.path.len());
                self.mounts.list[mount].push_index(&mut self.path);
            }
        }
        let known = self.cache.unconfirmed(mount, rest, now).map(Arc::clone);
        let probed = self.probe(mount, rest);
        if known.is_some()
            && probed == Some(ProbeResult::Unchanged)
            && let Some(variants) = self.cache.confirm(mount, rest, now)
        {
            return FileAnswer::Ready(variants.reply(head, &self.mounts.codings));
        }
        let path = RequestedPath::new(&self.path, folder_bytes);
        let key = LookupKey {
            mount,
            rest: rest.into(),
            preference: EncodingPreference::read(head, &self.mounts.codings),
            fallback: FallbackChoice::of(head, &self.mounts, mount, &path),
            ticket: self.tickets.next(),
        };
        let lookup = Box::new(Lookup::new(key, &self.mounts, path, known, now));
        if probed == Some(ProbeResult::Unknown)
            && let Some(variants) = self.cache.stale(mount, rest, now)
            && !variants.has_changed()
        {
            return FileAnswer::Stale(variants.reply(head, &self.mounts.codings), lookup);
        }
        FileAnswer::Lookup(lookup)
    }

    /// What can be seen of what is known without waiting for anything.
    fn probe(&mut self, mount: usize, rest: &[u8]) -> Option<ProbeResult> {
        let folder = &self.mounts.list[mount].folder;
        let known = self.cache.held(mount, rest)?;
        Some(known.probe(folder, &mut self.path, &self.mounts.codings))
    }
}

impl EvictedFiles {
    /// Descriptors that dropping it closes.
    pub fn open_len(&self) -> usize {
        self.0.iter().map(|variants| variants.open_len()).sum()
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
            positions: (0..mounts_len).map(|_| HashMap::new()).collect(),
            memory: CacheSegment::new(MEMORY_LEN_MAX),
            open: CacheSegment::new(OPEN_LEN_MAX),
            bytes_max: config.bytes_max,
            revalidate: config.revalidate,
            // A zero `revalidate` asks for a check by every request: no older content in between.
            stale_max: match config.revalidate {
                Nanos::ZERO => Nanos::ZERO,
                _ => config.stale_max,
            },
            idle_hand: 0,
            evicted: Vec::new(),
        }
    }

    /// What is known for `rest`, if it was looked at within `revalidate`, or is `stale` and a lookup was asked
    /// for in that time: one for each request would be a queue without a bound before storage that hangs.
    #[inline]
    pub(super) fn fresh(
        &mut self,
        mount: usize,
        rest: &[u8],
        now: Stamp,
    ) -> Option<&Arc<Variants>> {
        let (revalidate, stale_max) = (self.revalidate, self.stale_max);
        let entry = self.entry(mount, rest)?;
        let age = now.since(entry.checked);
        let is_refreshing = || age < stale_max && now.since(entry.refreshing_since) < revalidate;
        if age >= revalidate && !is_refreshing() {
            return None;
        }
        entry.is_asked = true;
        Some(&entry.variants)
    }

    /// What is known for `rest`, if equal metadata would confirm it: what was read within the tick of its
    /// file's last change has to be read again.
    pub(super) fn unconfirmed(
        &mut self,
        mount: usize,
        rest: &[u8],
        now: Stamp,
    ) -> Option<&Arc<Variants>> {
        let entry = self.entry(mount, rest)?;
        match entry.trust {
            ReadState::ReadAt(read) if now.since(read) >= SETTLE => None,
            _ => Some(&entry.variants),
        }
    }

    /// What is known for `rest`, however old.
    pub(super) fn held(&mut self, mount: usize, rest: &[u8]) -> Option<&Arc<Variants>> {
        Some(&self.entry(mount, rest)?.variants)
    }

    /// What is known for `rest` and may be given while its storage is asked again, which the caller sees to.
    pub(super) fn stale(
        &mut self,
        mount: usize,
        rest: &[u8],
        now: Stamp,
    ) -> Option<&Arc<Variants>> {
        let stale_max = self.stale_max;
        let entry = self.entry(mount, rest)?;
        if now.since(entry.checked) >= stale_max {
            return None;
        }
        entry.refreshing_since = now;
        Some(&entry.variants)
    }

    /// What is known for `rest`, whose files still had the same metadata at `now`.
    pub(super) fn confirm(
        &mut self,
        mount: usize,
        rest: &[u8],
        now: Stamp,
    ) -> Option<&Arc<Variants>> {
        let entry = self.entry(mount, rest)?;
        entry.checked = now;
        entry.is_asked = true;
        Some(&entry.variants)
    }

    /// Remembers what a lookup found, in place of what was known for `rest`; a lookup that was overtaken by
    /// another is not remembered.
    pub(super) fn keep(
        &mut self,
        mount: usize,
        rest: &[u8],
        variants: Arc<Variants>,
        when: LookupTimes,
    ) {
        let trust = match self.entry(mount, rest) {
            Some(known) if known.checked > when.asked => return,
            // The lookup has confirmed what was known.
            Some(known) if Arc::ptr_eq(&known.variants, &variants) => {
                self.confirm(mount, rest, when.asked);
                return;
            }
            known => ReadState::of(&variants, known.as_deref(), when),
        };
        self.drop_entry(mount, rest);
        let Some(name) = self.make_room(&variants, rest) else {
            return;
        };
        let key: Arc<[u8]> = rest.into();
        let entry = CacheEntry {
            mount,
            key: Arc::clone(&key),
            bytes: name.bytes_of(&variants, rest),
            len: name.len_of(&variants),
            variants,
            checked: when.asked,
            refreshing_since: when.asked,
            trust,
            is_asked: false,
        };
        let slot = self.segment(name).push(entry);
        self.positions[mount].insert(
            key,
            EntryPosition {
                segment: name,
                slot,
            },
        );
    }

    /// Evicts others until `variants` fits; `None` when it never will.
    fn make_room(&mut self, variants: &Variants, rest: &[u8]) -> Option<SegmentKind> {
        let name = SegmentKind::of(variants);
        let (bytes, len) = (name.bytes_of(variants, rest), name.len_of(variants));
        let rest_bytes_max = self.bytes_max.checked_sub(bytes)?;
        while self.segment(name).len + len > self.segment(name).len_max {
            self.evict(name);
        }
        while self.memory.bytes + self.open.bytes > rest_bytes_max {
            let name = if self.memory.entries.is_empty() {
                SegmentKind::Open
            } else {
                SegmentKind::Memory
            };
            self.evict(name);
        }
        Some(name)
    }

    fn evict(&mut self, name: SegmentKind) {
        let slot = self.segment(name).eviction_candidate();
        self.remove(name, slot);
    }

    /// Drops what is known for `rest`, unless a later lookup knew better.
    pub(super) fn forget(&mut self, mount: usize, rest: &[u8], when: LookupTimes) {
        let known = self.entry(mount, rest);
        if known.is_some_and(|known| known.checked <= when.asked) {
            self.drop_entry(mount, rest);
        }
    }

    fn drop_entry(&mut self, mount: usize, rest: &[u8]) {
        if let Some(place) = self.positions[mount].get(rest).copied() {
            self.remove(place.segment, place.slot as usize);
        }
    }

    /// Evicts large files without requests for a while, a few at a time.
    pub(super) fn close_idle(&mut self, now: Stamp) {
        for _ in 0..IDLE_SWEEP_LEN.min(self.open.entries.len()) {
            if self.idle_hand >= self.open.entries.len() {
                self.idle_hand = 0;
            }
            match self.open.entries.get(self.idle_hand) {
                Some(entry) if now.since(entry.checked) >= OPEN_IDLE => {
                    self.remove(SegmentKind::Open, self.idle_hand);
                }
                _ => self.idle_hand += 1,
            }
        }
    }

    /// What left the segment of open files since the last call: closing them is not for a driver.
    pub(super) fn take_evicted(&mut self) -> Vec<Arc<Variants>> {
        std::mem::take(&mut self.evicted)
    }

    #[inline]
    fn entry(&mut self, mount: usize, rest: &[u8]) -> Option<&mut CacheEntry> {
        let place = *self.positions[mount].get(rest)?;
        self.segment(place.segment)
            .entries
            .get_mut(place.slot as usize)
    }

    #[inline]
    fn segment(&mut self, name: SegmentKind) -> &mut CacheSegment {
        match name {
            SegmentKind::Memory => &mut self.memory,
            SegmentKind::Open => &mut self.open,
        }
    }

    /// Removes the entry in `slot`; the last one of the segment takes its place.
    fn remove(&mut self, name: SegmentKind, slot: usize) {
        let segment = self.segment(name);
        let evicted = segment.entries.swap_remove(slot);
        segment.bytes -= evicted.bytes;
        segment.len -= evicted.len;
        let moved = segment
            .entries
            .get(slot)
            .map(|entry| (entry.mount, Arc::clone(&entry.key)));
        self.positions[evicted.mount].remove(&evicted.key);
        if name == SegmentKind::Open {
            self.evicted.push(evicted.variants);
        }
        if let Some((mount, key)) = moved {
            self.positions[mount].insert(
                key,
                EntryPosition {
                    segment: name,
                    slot: slot as u32,
                },
            );
        }
    }
}

#[cfg(test)]
mod tests;
