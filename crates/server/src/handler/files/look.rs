//! A look: everything about a request for a file that may wait for a disk.
//!
//! Made by a driver that does not know the answer, done on a thread that may wait, and brought back to
//! the driver, which settles it. It must not touch a request's head or the cache: what it depends on is
//! in its key, so that equal looks can share one.

use std::sync::Arc;

use measure::Stamp;

use super::cache::Looking;
use super::folder::{Found, Miss};
use super::kind;
use super::page::{Page, Stay};
use super::site::Site;

/// A look that has not been done. `Send`, and independent of the driver that made it.
pub struct Look {
    key: LookKey,
    site: Arc<Site>,
    /// Decoded and beneath the folder, with the name of the index file.
    path: Vec<u8>,
    asked: Stamp,
}

/// What a look depends on: looks of one driver with equal keys see the same, and one is enough for all
/// that wait at the same time.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct LookKey {
    pub(super) mount: usize,
    /// As in [`super::Files::ask`].
    pub(super) rest: Arc<[u8]>,
    /// Different for each look where requests want a look of their own, else 0.
    pub(super) ticket: u64,
}

/// What a look found. A clone shares its bytes: there is one for each request that waited.
#[derive(Clone, Debug)]
pub struct Looked {
    key: LookKey,
    asked: Stamp,
    sight: Sight,
}

/// What there is for a path.
#[derive(Clone, Debug)]
pub(super) enum Sight {
    /// A file, and whether it is to be remembered.
    Page(Page, Stay),
    /// A folder that was asked for without its slash.
    Folder,
    /// Nothing to be served.
    Miss(Miss),
}

impl Look {
    pub(super) fn new(key: LookKey, site: &Arc<Site>, path: &[u8], asked: Stamp) -> Look {
        Look {
            key,
            site: Arc::clone(site),
            path: path.to_vec(),
            asked,
        }
    }

    /// What it depends on.
    pub fn key(&self) -> &LookKey {
        &self.key
    }

    /// Whether one of the two is enough for the requests of both.
    pub fn same_as(&self, other: &Look) -> bool {
        self.key == other.key
    }

    /// Opens, looks and reads; waits for the storage as long as that takes.
    #[must_use]
    pub fn look(self) -> Looked {
        let sight = self.see().unwrap_or_else(Sight::Miss);
        Looked {
            key: self.key,
            asked: self.asked,
            sight,
        }
    }

    fn see(&self) -> Result<Sight, Miss> {
        match self.site.mounts[self.key.mount].folder.find(&self.path)? {
            // A folder where the index file should be: another slash would lead nowhere.
            Found::Folder if self.key.rest.ends_with(b"/") => Err(Miss::Absent),
            Found::Folder => Ok(Sight::Folder),
            Found::File(file, facts) => {
                let stay = self.site.stay(facts.bytes);
                let storage = self.site.devices.storage_of(&file, &facts);
                let kind = kind::of_path(&self.path);
                let page =
                    Page::load(file, facts, storage, kind, stay).map_err(|_| Miss::Broken)?;
                Ok(Sight::Page(page, stay))
            }
        }
    }
}

impl Looked {
    /// The key of its look.
    pub fn key(&self) -> &LookKey {
        &self.key
    }

    pub(super) fn take(self) -> (LookKey, Sight) {
        (self.key, self.sight)
    }

    /// From when it was asked for to `done`.
    pub(super) fn span(&self, done: Stamp) -> Looking {
        Looking {
            asked: self.asked,
            done,
        }
    }
}
