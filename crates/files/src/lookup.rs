//! A lookup: all work on a request for a file that may wait for a disk.
//!
//! Made by a driver whose cache does not know the file, run on a thread that may wait, and given back to
//! the driver, which answers from its result. Knows neither the request's head nor the cache: what it depends on is
//! in its key, so that equal lookups can share one.

use std::fmt;
use std::io;
use std::sync::Arc;

use telemetry::Stamp;

use config::typed::Coding;

use super::cache_segment::AskedFile;
use super::cached_file::{CachedFile, Label, Retention, UnreadFile};
use super::encoding_preference::EncodingPreference;
use super::fallback::{FallbackChoice, FallbackPage};
use super::listing::{self, ENTRIES_LEN_MAX};
use super::metadata::{Devices, FileMetadata};
use super::mounts::{Mount, Mounts, RequestedPath};
use super::reply::Reply;
use super::root_dir::{LookupError, OpenedPath, RootDir};
use super::variants::{Sibling, Variants, sought, suffix};

/// A lookup that has not run yet. `Send`, and independent of the driver that made it.
pub struct Lookup {
    pub(super) key: LookupKey,
    pub(super) mounts: Arc<Mounts>,
    pub(super) path: RequestedPath,
    /// What the cache knows, still true if the files have the same metadata.
    pub(super) known: Option<Arc<Variants>>,
    pub(super) asked: Stamp,
}

/// What a lookup depends on: lookups of one driver with equal keys have the same result, and one is enough for all
/// that wait at the same time.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct LookupKey {
    pub(super) mount: usize,
    /// As in [`super::Files::ask`].
    pub(super) rest: Arc<[u8]>,
    pub(super) preference: EncodingPreference,
    pub(super) fallback: FallbackChoice,
    /// Different for each lookup where requests want a lookup of their own, else 0.
    pub(super) ticket: u64,
}

/// What a lookup found. A clone shares its bytes: there is one for each request that waited.
#[derive(Clone, Debug)]
pub struct LookupResult {
    pub(super) key: LookupKey,
    /// When it was asked for: what it saw is at most so old.
    pub(super) asked: Stamp,
    pub(super) outcome: LookupOutcome,
}

/// What there is for a path.
#[derive(Clone, Debug)]
pub(super) enum LookupOutcome {
    /// A file, to be remembered with its siblings.
    Variants(Arc<Variants>),
    /// The one page that was wanted, not to be remembered.
    Single(Arc<CachedFile>),
    /// The files of a folder.
    Listing(Reply),
    /// A folder that was asked for without its slash.
    Folder,
    /// Nothing to be served.
    Error(LookupError),
}

impl LookupKey {
    pub(super) fn asked(&self) -> AskedFile<'_> {
        let (mount, rest) = (self.mount, &*self.rest);
        AskedFile { mount, rest }
    }
}

impl Lookup {
    /// What it depends on.
    pub fn key(&self) -> &LookupKey {
        &self.key
    }

    /// Opens, looks and reads; waits for the storage as long as that takes.
    #[must_use]
    pub fn run(self) -> LookupResult {
        // A failure is an answer too, for all that wait for the same.
        let outcome = self.find().unwrap_or_else(LookupOutcome::Error);
        LookupResult {
            key: self.key,
            asked: self.asked,
            outcome,
        }
    }

    fn find(&self) -> Result<LookupOutcome, LookupError> {
        let mount = self.mount();
        let path = &*self.path.file;
        match mount.folder.find(path) {
            Ok(OpenedPath::File(plain)) => {
                let unread = UnreadFiles::find(&mount.folder, path, plain, &self.mounts.codings);
                match &self.known {
                    // Opened again and not read again: what is in memory is still the content.
                    Some(known) if known.metadata().eq(unread.metadata()) => {
                        Ok(LookupOutcome::Variants(Arc::clone(known)))
                    }
                    _ => self.read(unread).map_err(|_| LookupError::Broken),
                }
            }
            Ok(OpenedPath::Folder) if self.path.folder().is_none() => Ok(LookupOutcome::Folder),
            // A folder where the index file should be: another slash would lead nowhere.
            Ok(OpenedPath::Folder) | Err(LookupError::Absent) => self.find_fallback(),
            Err(error) => Err(error),
        }
    }

    fn read(&self, unread: UnreadFiles) -> io::Result<LookupOutcome> {
        let mounts = &*self.mounts;
        let retention = |bytes| mounts.retention(bytes);
        let label = mounts.label(&self.path, self.key.mount, unread.vary());
        // Nothing of such a family is kept, so only the page that this client gets is read.
        if unread.is_passing(retention) {
            return self.read_chosen(unread, &label);
        }
        let variants = unread.load(&label, &mounts.devices, retention)?;
        Ok(LookupOutcome::Variants(Arc::new(variants)))
    }

    /// There is no file: the listing or the fallback page in its place.
    fn find_fallback(&self) -> Result<LookupOutcome, LookupError> {
        let FallbackChoice { listing, page } = self.key.fallback;
        if let (Some(form), Some(path)) = (listing, self.path.folder()) {
            let mount = self.mount();
            match mount.folder.list(path, ENTRIES_LEN_MAX) {
                Ok(entries) => {
                    let listing = listing::render(entries, &mount.url, path, form);
                    return Ok(LookupOutcome::Listing(listing));
                }
                Err(LookupError::Absent) => {}
                Err(error) => return Err(error),
            }
        }
        match page {
            FallbackPage::None | FallbackPage::Unfit => Err(LookupError::Absent),
            FallbackPage::ByPath | FallbackPage::ByAccept => self.read_fallback(),
        }
    }

    /// Not remembered: under each path it would be another entry.
    fn read_fallback(&self) -> Result<LookupOutcome, LookupError> {
        let mount = self.mount();
        let path = mount.fallback.as_deref().ok_or(LookupError::Absent)?;
        let OpenedPath::File(plain) = mount.folder.find(path)? else {
            return Err(LookupError::Absent);
        };
        let unread = UnreadFiles::find(&mount.folder, path, plain, &self.mounts.codings);
        let vary = self.key.fallback.page.vary(unread.vary());
        let asked = RequestedPath::new(path, None);
        let label = self.mounts.label(&asked, self.key.mount, vary);
        self.read_chosen(unread, &label)
            .map_err(|_| LookupError::Broken)
    }

    fn read_chosen(&self, unread: UnreadFiles, label: &Label<'_>) -> io::Result<LookupOutcome> {
        let retention = |bytes| self.mounts.retention(bytes);
        let page = unread.load_chosen(label, &self.key.preference, retention)?;
        Ok(LookupOutcome::Single(Arc::new(page)))
    }

    fn mount(&self) -> &Mount {
        &self.mounts.list[self.key.mount]
    }
}

impl fmt::Debug for Lookup {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Lookup").field(&self.key).finish()
    }
}

impl LookupResult {
    /// The key of its lookup.
    pub fn key(&self) -> &LookupKey {
        &self.key
    }
}

/// Files that were found and not yet read.
pub(super) struct UnreadFiles {
    plain: UnreadFile,
    siblings: Vec<UnreadFile>,
}

impl UnreadFiles {
    /// Looks for the siblings of `plain`, which was found at `path`.
    pub(super) fn find(
        folder: &RootDir,
        path: &[u8],
        plain: UnreadFile,
        codings: &[Coding],
    ) -> UnreadFiles {
        let mut siblings = Vec::new();
        for coding in sought(path, codings) {
            let beside = [path, suffix(*coding)].concat();
            // One that cannot be opened is as good as none.
            if let Ok(OpenedPath::File(found)) = folder.find(&beside) {
                siblings.push(UnreadFile {
                    coding: Some(*coding),
                    ..found
                });
            }
        }
        UnreadFiles { plain, siblings }
    }

    /// The metadata of all, to compare with those of known variants.
    pub(super) fn metadata(&self) -> impl Iterator<Item = (Option<Coding>, FileMetadata)> {
        let files = std::iter::once(&self.plain).chain(&self.siblings);
        files.map(|one| (one.coding, one.metadata))
    }

    /// Siblings that are not out of date.
    fn current(&self) -> impl Iterator<Item = &UnreadFile> {
        let siblings = self.siblings.iter();
        siblings.filter(|one| !one.metadata.is_older_than(&self.plain.metadata))
    }

    /// What the choice among them depends on: the value of `Vary`.
    pub(super) fn vary(&self) -> Option<&'static str> {
        self.current().next().map(|_| "Accept-Encoding")
    }

    /// Whether one of them is too large to be kept in memory, and too small to be sent from its descriptor.
    pub(super) fn is_passing(&self, retention: impl Fn(u64) -> Retention) -> bool {
        let mut served = std::iter::once(&self.plain).chain(self.current());
        served.any(|one| retention(one.metadata.bytes) == Retention::Passing)
    }

    /// Reads only what `preference` wants.
    ///
    /// # Errors
    /// It cannot be read.
    pub(super) fn load_chosen(
        mut self,
        label: &Label<'_>,
        preference: &EncodingPreference,
        retention: impl Fn(u64) -> Retention,
    ) -> io::Result<CachedFile> {
        let oldest = self.plain.metadata;
        // A sibling that is older than its file holds other content.
        (self.siblings).retain(|one| !one.metadata.is_older_than(&oldest));
        let place = preference.iter().find_map(|wanted| {
            let mut siblings = self.siblings.iter();
            siblings.position(|one| one.coding == Some(wanted))
        });
        let chosen = match place {
            Some(place) => self.siblings.swap_remove(place),
            None => self.plain,
        };
        let retention = retention(chosen.metadata.bytes);
        CachedFile::load(chosen, retention, label)
    }

    /// Reads all of them.
    ///
    /// # Errors
    /// The plain file cannot be read, or a sibling of it.
    pub(super) fn load(
        self,
        label: &Label<'_>,
        devices: &Devices,
        retention: impl Fn(u64) -> Retention,
    ) -> io::Result<Variants> {
        let load = |one: UnreadFile| {
            let retention = retention(one.metadata.bytes);
            CachedFile::load(one, retention, label)
        };
        let mut storage = devices.storage_of(&self.plain.file, &self.plain.metadata);
        let plain = load(self.plain)?;
        let mut siblings = Vec::with_capacity(self.siblings.len());
        for one in self.siblings {
            storage = storage.max(devices.storage_of(&one.file, &one.metadata));
            let is_current = !one.metadata.is_older_than(&plain.metadata);
            siblings.push(Sibling {
                coding: one.coding,
                metadata: one.metadata,
                page: if is_current { Some(load(one)?) } else { None },
            });
        }
        Ok(Variants {
            plain,
            siblings: siblings.into_boxed_slice(),
            storage,
        })
    }
}
