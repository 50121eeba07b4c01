//! A lookup: all work on a request for a file that may wait for a disk.
//!
//! Made by a driver whose cache does not know the file, run on a thread that may wait, and given back to
//! the driver, which answers from its result. Knows neither the request's head nor the cache: what it depends on is
//! in its key, so that equal lookups can share one.

use std::fmt;
use std::fs::File;
use std::io;
use std::sync::Arc;

use telemetry::Stamp;

use config::typed::Coding;

use super::cache_segment::LookupTimes;
use super::cached_file::{CachedFile, Label, Retention};
use super::encoding_preference::EncodingPreference;
use super::fallback::{FallbackChoice, FallbackPage};
use super::listing::{ENTRIES_LEN_MAX, Listing};
use super::metadata::{Devices, FileMetadata};
use super::mounts::{Mount, Mounts, RequestedPath};
use super::root_dir::{LookupError, OpenedPath, RootDir};
use super::variants::{Sibling, Variants, VariantsMetadata, sought, suffix};

/// A lookup that has not run yet. `Send`, and independent of the driver that made it.
pub struct Lookup {
    key: LookupKey,
    mounts: Arc<Mounts>,
    path: RequestedPath,
    /// What the cache knows, still true if the files have the same metadata.
    known: Option<Arc<Variants>>,
    asked: Stamp,
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
    key: LookupKey,
    asked: Stamp,
    outcome: LookupOutcome,
}

/// What there is for a path.
#[derive(Clone, Debug)]
pub(super) enum LookupOutcome {
    /// A file, to be remembered with its siblings.
    Variants(Arc<Variants>),
    /// The one page that was wanted, not to be remembered.
    Single(Arc<CachedFile>),
    /// The files of a folder.
    Listing(Listing),
    /// A folder that was asked for without its slash.
    Folder,
    /// Nothing to be served.
    Error(LookupError),
}

impl Lookup {
    pub(super) fn new(
        key: LookupKey,
        mounts: &Arc<Mounts>,
        path: RequestedPath,
        known: Option<Arc<Variants>>,
        asked: Stamp,
    ) -> Lookup {
        Lookup {
            key,
            mounts: Arc::clone(mounts),
            path,
            known,
            asked,
        }
    }

    /// What it depends on.
    pub fn key(&self) -> &LookupKey {
        &self.key
    }

    /// Opens, looks and reads; waits for the storage as long as that takes.
    #[must_use]
    pub fn run(self) -> LookupResult {
        let outcome = self.find().unwrap_or_else(LookupOutcome::Error);
        LookupResult {
            key: self.key,
            asked: self.asked,
            outcome,
        }
    }

    fn find(&self) -> Result<LookupOutcome, LookupError> {
        let mount = self.mount();
        let path = self.path.file();
        match mount.folder.find(path) {
            Ok(OpenedPath::File(file, metadata)) => {
                let unread =
                    UnreadFiles::find(&mount.folder, path, (file, metadata), &self.mounts.codings);
                match &self.known {
                    Some(known) if known.metadata() == unread.metadata() => {
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
        if unread.is_passing(retention) {
            let page = unread.load_chosen(&label, &self.key.preference, retention)?;
            return Ok(LookupOutcome::Single(Arc::new(page)));
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
                    let listing = Listing::render(entries, mount.url(), path, form);
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
        let path = mount.fallback().ok_or(LookupError::Absent)?;
        let OpenedPath::File(file, metadata) = mount.folder.find(path)? else {
            return Err(LookupError::Absent);
        };
        let unread = UnreadFiles::find(&mount.folder, path, (file, metadata), &self.mounts.codings);
        let vary = self.key.fallback.page.vary(unread.vary());
        let asked = RequestedPath::new(path, None);
        let label = self.mounts.label(&asked, self.key.mount, vary);
        let page = unread.load_chosen(&label, &self.key.preference, |bytes| {
            self.mounts.retention(bytes)
        });
        Ok(LookupOutcome::Single(Arc::new(
            page.map_err(|_| LookupError::Broken)?,
        )))
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

    /// Whether another client would get the fallback where this one gets nothing.
    pub(super) fn depends_on_accept(&self) -> bool {
        self.key.fallback.page == FallbackPage::Unfit
    }

    pub(super) fn outcome(&self) -> &LookupOutcome {
        &self.outcome
    }

    pub(super) fn take(self) -> (LookupKey, LookupOutcome) {
        (self.key, self.outcome)
    }

    /// From when it was asked for to `done`.
    pub(super) fn span(&self, done: Stamp) -> LookupTimes {
        LookupTimes {
            asked: self.asked,
            done,
        }
    }
}

/// Files that were found and not yet read.
pub(super) struct UnreadFiles {
    plain: (File, FileMetadata),
    siblings: Vec<(Coding, File, FileMetadata)>,
}

impl UnreadFiles {
    /// Looks for the siblings of `plain`, which was found at `path`. One that cannot be opened is as good
    /// as none.
    pub(super) fn find(
        folder: &RootDir,
        path: &[u8],
        plain: (File, FileMetadata),
        codings: &[Coding],
    ) -> UnreadFiles {
        let mut siblings = Vec::new();
        let mut beside = path.to_vec();
        for coding in sought(path, codings) {
            beside.extend_from_slice(suffix(*coding));
            if let Ok(OpenedPath::File(file, metadata)) = folder.find(&beside) {
                siblings.push((*coding, file, metadata));
            }
            beside.truncate(path.len());
        }
        UnreadFiles { plain, siblings }
    }

    /// The metadata of all, to compare with those of known variants.
    pub(super) fn metadata(&self) -> VariantsMetadata {
        let siblings = self.siblings.iter();
        VariantsMetadata {
            plain: self.plain.1,
            siblings: siblings
                .map(|(coding, _, metadata)| (*coding, *metadata))
                .collect(),
        }
    }

    /// What the choice among them depends on: the value of `Vary`.
    pub(super) fn vary(&self) -> Option<&'static str> {
        let plain = &self.plain.1;
        let mut siblings = self.siblings.iter();
        let has_choice = siblings.any(|(_, _, metadata)| !metadata.is_older_than(plain));
        has_choice.then_some("Accept-Encoding")
    }

    /// Whether one of them is too large to be kept in memory, and too small to be sent from its descriptor.
    pub(super) fn is_passing(&self, retention: impl Fn(u64) -> Retention) -> bool {
        let mut siblings = self.siblings.iter().map(|(_, _, metadata)| metadata);
        let is_passing = |metadata: &FileMetadata| retention(metadata.bytes) == Retention::Passing;
        is_passing(&self.plain.1)
            || siblings
                .any(|metadata| !metadata.is_older_than(&self.plain.1) && is_passing(metadata))
    }

    /// Reads only what `preference` wants.
    ///
    /// # Errors
    /// It cannot be read.
    pub(super) fn load_chosen(
        self,
        label: &Label<'_>,
        preference: &EncodingPreference,
        retention: impl Fn(u64) -> Retention,
    ) -> io::Result<CachedFile> {
        let (plain, plain_metadata) = self.plain;
        let mut current = self.siblings;
        current.retain(|(_, _, metadata)| !metadata.is_older_than(&plain_metadata));
        let place = preference
            .iter()
            .find_map(|wanted| current.iter().position(|(coding, _, _)| *coding == wanted));
        match place {
            Some(place) => {
                let (coding, file, metadata) = current.swap_remove(place);
                CachedFile::load(
                    file,
                    metadata,
                    retention(metadata.bytes),
                    &label.with(coding),
                )
            }
            None => CachedFile::load(
                plain,
                plain_metadata,
                retention(plain_metadata.bytes),
                label,
            ),
        }
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
        let (file, metadata) = self.plain;
        let mut storage = devices.storage_of(&file, &metadata);
        let plain = CachedFile::load(file, metadata, retention(metadata.bytes), label)?;
        let mut siblings = Vec::with_capacity(self.siblings.len());
        for (coding, file, metadata) in self.siblings {
            storage = storage.worse(devices.storage_of(&file, &metadata));
            let page = if metadata.is_older_than(&plain.metadata) {
                None
            } else {
                let stays = retention(metadata.bytes);
                Some(CachedFile::load(
                    file,
                    metadata,
                    stays,
                    &label.with(coding),
                )?)
            };
            siblings.push(Sibling {
                coding,
                metadata,
                page,
            });
        }
        Ok(Variants {
            plain,
            siblings: siblings.into_boxed_slice(),
            storage,
        })
    }
}
