//! The cache of a driver's files, and the answers from it: files with their variants, by the raw path that clients
//! ask for.
//!
//! Takes a request, gives a reply or the lookup that it needs; takes variants and gives them, opens nothing. The key
//! is the mount and the path as sent, so that a hit decodes and allocates nothing; two spellings of one path are
//! two entries, each inside the same bounds. Keys are hashed with the standard library's seeded SipHash, because
//! clients choose them. Entries are in two segments: small files with their bytes, and files with an open
//! descriptor. Each is bounded in number, and both together in memory.

use std::sync::Arc;

use http::{HeadView, Method};
use os::invariant;
use telemetry::{Nanos, Stamp};

use crate::reply::Reply;
use config::failure::StartFault;
use config::typed::{Config, FileCache};

use super::cache_segment::{AskedFile, CacheEntry, CacheSegment, EntrySize, LookupTimes};
use super::encoding_preference::EncodingPreference;
use super::error_replies::{redirect_to_folder, refuse, refuse_by_accept, to_head};
use super::fallback::{FallbackChoice, FallbackPage};
use super::lookup::{Lookup, LookupKey, LookupOutcome, LookupResult};
use super::mounts::{Mounts, RequestedPath};
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
    /// The number of the last lookup, where each request gets one that began after it. `None`: requests may share one,
    /// because what is known may be somewhat old anyhow.
    tickets: Option<u64>,
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

/// The cache of one driver.
pub(super) struct Cache {
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

impl Files {
    /// Opens every folder and keeps it open: a folder that is renamed later is still the one served.
    ///
    /// # Errors
    /// The first folder that is missing, is not a folder, or may not be searched.
    pub fn open(config: &Config) -> Result<Files, StartFault> {
        let cache = &config.file_cache;
        Ok(Files {
            mounts: Arc::new(Mounts::open(config)?),
            cache: Cache::new(cache),
            path: Vec::new(),
            tickets: (cache.revalidate == Nanos::ZERO).then_some(0),
        })
    }

    /// Answers one request from what is known, or says what has to be looked at; never waits for
    /// storage. `mount` is the index of its mount in `Config::mounts`, `rest` the raw
    /// (percent-encoded) path behind the mount's URL prefix: empty or `/css/a.css`.
    ///
    /// The reply to a HEAD has the lines of the GET and no body; a 304 has no `Content-Length`.
    ///
    /// # Panics
    /// When there is no such mount.
    pub fn ask(&mut self, mount: usize, head: HeadView<'_>, rest: &[u8], now: Stamp) -> FileAnswer {
        match head.index.method {
            Method::Get | Method::Head => {}
            // RFC 9110 section 9.1: a method that the server does not know is not one that the file forbids.
            Method::Other => return FileAnswer::Ready(refuse(head, 501)),
            _ => return FileAnswer::Ready(refuse(head, 405)),
        }
        if let Some(variants) = self.cache.fresh(AskedFile { mount, rest }, now)
            && !variants.has_changed()
        {
            return FileAnswer::Ready(variants.reply(head, &self.mounts.codings));
        }
        self.resolve(mount, head, rest, now)
    }

    /// The reply to a request that waited for a lookup. `looked` is the result of its lookup, or of one with an
    /// equal key; `head` is the request's own.
    pub fn reply(&self, looked: &LookupResult, head: HeadView<'_>) -> Reply {
        match &looked.outcome {
            LookupOutcome::Variants(variants) => variants.reply(head, &self.mounts.codings),
            LookupOutcome::Single(page) => page.reply(head),
            // A listing is made for a GET, whoever asked for the lookup.
            LookupOutcome::Listing(listing) => to_head(head, listing.clone()),
            LookupOutcome::Folder => redirect_to_folder(head),
            // Another client would get the fallback where this one gets nothing.
            LookupOutcome::Error(LookupError::Absent)
                if looked.key.fallback.page == FallbackPage::Unfit =>
            {
                refuse_by_accept(head)
            }
            LookupOutcome::Error(error) => refuse(head, error.status()),
        }
    }

    /// Keeps what a lookup found, for the next requests; once for each lookup.
    pub fn learn(&mut self, looked: LookupResult, now: Stamp) {
        let LookupResult {
            key,
            asked,
            outcome,
        } = looked;
        let when = LookupTimes { asked, done: now };
        match outcome {
            LookupOutcome::Variants(variants) => {
                self.cache.keep(key.asked(), variants, when);
            }
            _ => self.cache.forget(key.asked(), when),
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
            PathTarget::Top => return FileAnswer::Ready(redirect_to_folder(head)),
            PathTarget::Nowhere => return FileAnswer::Ready(refuse(head, 404)),
            PathTarget::File => {}
            PathTarget::Folder => {
                folder_bytes = Some(self.path.len());
                self.mounts.list[mount].push_index(&mut self.path);
            }
        }
        let mounts = &self.mounts;
        let stale_max = self.cache.stale_max;
        let mut held = self.cache.entry(AskedFile { mount, rest });
        let probed = held.as_ref().map(|entry| {
            let folder = &mounts.list[mount].folder;
            (entry.variants).probe(folder, &mut self.path, &mounts.codings)
        });
        let mut known = None;
        if let Some(entry) = held.as_mut().filter(|entry| entry.is_confirmable(now)) {
            if probed == Some(ProbeResult::Unchanged) {
                let variants = entry.confirm(now);
                return FileAnswer::Ready(variants.reply(head, &mounts.codings));
            }
            known = Some(Arc::clone(&entry.variants));
        }
        let path = RequestedPath::new(&self.path, folder_bytes);
        let key = LookupKey {
            mount,
            rest: rest.into(),
            preference: EncodingPreference::read(head, &mounts.codings),
            fallback: FallbackChoice::of(head, mounts, mount, &path),
            ticket: self.tickets.as_mut().map_or(0, |last| {
                *last += 1;
                *last
            }),
        };
        // With what is known: a lookup that finds the same metadata reads nothing.
        let lookup = Box::new(Lookup {
            key,
            mounts: Arc::clone(mounts),
            path,
            known,
            asked: now,
        });
        // What is known may be given while its storage is asked again: only where a probe cannot tell.
        if probed == Some(ProbeResult::Unknown)
            && let Some(entry) = held
            && now.since(entry.checked) < stale_max
        {
            // Before the answer: the requests behind this one must not ask for lookups of their own.
            entry.refreshing_since = now;
            if !entry.variants.has_changed() {
                return FileAnswer::Stale(entry.variants.reply(head, &mounts.codings), lookup);
            }
        }
        FileAnswer::Lookup(lookup)
    }
}

impl EvictedFiles {
    /// Descriptors that dropping it closes.
    pub fn open_len(&self) -> usize {
        self.0.iter().map(|variants| variants.open_len()).sum()
    }
}

impl Cache {
    /// An empty cache. Zero `bytes_max` keeps no content.
    pub(super) fn new(config: &FileCache) -> Cache {
        Cache {
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

    /// What is known, if it was looked at within `revalidate`, or is `stale` and a lookup was asked for in that time.
    #[inline]
    pub(super) fn fresh(&mut self, asked: AskedFile<'_>, now: Stamp) -> Option<&Arc<Variants>> {
        let (revalidate, stale_max) = (self.revalidate, self.stale_max);
        let entry = self.entry(asked)?;
        let age = now.since(entry.checked);
        // One lookup for all that ask meanwhile: one for each request would be a queue without a bound before storage
        // that hangs.
        let is_refreshing = || age < stale_max && now.since(entry.refreshing_since) < revalidate;
        if age >= revalidate && !is_refreshing() {
            return None;
        }
        // It spares the entry once, when the hand of the clock comes by.
        entry.is_asked = true;
        Some(&entry.variants)
    }

    /// What is known, however old.
    #[inline]
    pub(super) fn entry(&mut self, asked: AskedFile<'_>) -> Option<&mut CacheEntry> {
        // Small files first: they are most of what is asked for, and a second hash costs only the large ones.
        match self.memory.entries.get_mut(&asked) {
            None => self.open.entries.get_mut(&asked),
            entry => entry,
        }
    }

    /// Remembers what a lookup found, in place of what was known.
    pub(super) fn keep(
        &mut self,
        asked: AskedFile<'_>,
        variants: Arc<Variants>,
        when: LookupTimes,
    ) {
        let is_settled = match self.entry(asked) {
            // Another lookup, asked for later, was done first: what this one saw is older than what is known.
            Some(known) if known.checked > when.asked => return,
            // The lookup has confirmed what was known.
            Some(known) if Arc::ptr_eq(&known.variants, &variants) => {
                known.confirm(when.asked);
                return;
            }
            known => known.is_some_and(|known| known.settles(&variants, when)),
        };
        // Removed first: it may be in the other segment, and its bytes must not count against its successor.
        self.remove(asked);
        let size = EntrySize::of(&variants, asked.rest);
        if !self.make_room(size) {
            return;
        }
        let read_at = (variants.content_bytes() > 0 && !is_settled).then_some(when.done);
        let entry = CacheEntry {
            variants,
            size,
            checked: when.asked,
            refreshing_since: when.asked,
            read_at,
            is_asked: false,
        };
        // Counted from here on: `make_room` has freed what it takes.
        self.segment(size).insert(asked.to_key(), entry);
    }

    /// Evicts others until an entry of `size` fits; false when it never will.
    fn make_room(&mut self, size: EntrySize) -> bool {
        let Some(rest_bytes_max) = self.bytes_max.checked_sub(size.bytes) else {
            return false;
        };
        while self.segment(size).len + size.len > self.segment(size).len_max {
            self.evict(size.is_open);
        }
        // This ends: an entry of the segment that is not empty goes in each round, and with both empty nothing is
        // held.
        while self.memory.bytes + self.open.bytes > rest_bytes_max {
            self.evict(self.memory.entries.is_empty());
        }
        let held = self.memory.bytes + self.open.bytes;
        invariant!(
            held + size.bytes <= self.bytes_max,
            "a cache of {} bytes holds {held} and takes {} more",
            self.bytes_max,
            size.bytes
        );
        true
    }

    fn evict(&mut self, is_open: bool) {
        if is_open {
            let slot = self.open.eviction_candidate();
            self.close(slot);
        } else {
            let slot = self.memory.eviction_candidate();
            self.memory.remove(slot);
        }
    }

    /// Drops what is known, unless a later lookup knew better.
    pub(super) fn forget(&mut self, asked: AskedFile<'_>, when: LookupTimes) {
        // A file that was put back after this lookup began is known from a later one, and stays.
        let known = self.entry(asked);
        if known.is_some_and(|known| known.checked <= when.asked) {
            self.remove(asked);
        }
    }

    fn remove(&mut self, asked: AskedFile<'_>) {
        if let Some(slot) = self.memory.entries.get_index_of(&asked) {
            self.memory.remove(slot);
        } else if let Some(slot) = self.open.entries.get_index_of(&asked) {
            self.close(slot);
        }
    }

    fn close(&mut self, slot: usize) {
        let evicted = self.open.remove(slot);
        self.evicted.extend(evicted.map(|entry| entry.variants));
    }

    fn segment(&mut self, size: EntrySize) -> &mut CacheSegment {
        match size.is_open {
            true => &mut self.open,
            false => &mut self.memory,
        }
    }

    /// Evicts large files without requests for a while, a few at a time.
    pub(super) fn close_idle(&mut self, now: Stamp) {
        for _ in 0..IDLE_SWEEP_LEN.min(self.open.entries.len()) {
            if self.idle_hand >= self.open.entries.len() {
                self.idle_hand = 0;
            }
            // Not stepped over after a removal: the last entry has moved to this place.
            match self.open.entries.get_index(self.idle_hand) {
                Some((_, entry)) if now.since(entry.checked) >= OPEN_IDLE => {
                    self.close(self.idle_hand);
                }
                _ => self.idle_hand += 1,
            }
        }
    }

    /// What left the segment of open files since the last call: closing them is not for a driver.
    pub(super) fn take_evicted(&mut self) -> Vec<Arc<Variants>> {
        std::mem::take(&mut self.evicted)
    }
}

#[cfg(test)]
mod tests;
