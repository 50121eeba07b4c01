//! A look: everything about a request for a file that may wait for a disk.
//!
//! Made by a driver that does not know the answer, done on a thread that may wait, and brought back to
//! the driver, which settles it. It must not touch a request's head or the cache: what it depends on is
//! in its key, so that equal looks can share one.

use std::fmt;
use std::fs::File;
use std::io;
use std::sync::Arc;

use measure::Stamp;

use crate::config::meant::Coding;

use super::facts::{Devices, Facts};
use super::folder::{Folder, Found, Miss};
use super::instead::{Fallback, Instead};
use super::listing::{ENTRIES_LEN_MAX, Listing};
use super::ranking::Ranking;
use super::shelf::Looking;
use super::site::{Asked, Mount, Site};
use super::variants::{Family, FamilyFacts, Label, Page, Sibling, Stay, sought, suffix};

/// A look that has not been done. `Send`, and independent of the driver that made it.
pub struct Look {
    key: LookKey,
    site: Arc<Site>,
    path: Asked,
    /// What is true if the files still have its facts.
    known: Option<Arc<Family>>,
    asked: Stamp,
}

/// What a look depends on: looks of one driver with equal keys see the same, and one is enough for all
/// that wait at the same time.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct LookKey {
    pub(super) mount: usize,
    /// As in [`super::Files::ask`].
    pub(super) rest: Arc<[u8]>,
    pub(super) ranking: Ranking,
    pub(super) instead: Instead,
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
    /// A file, to be remembered with its siblings.
    Family(Arc<Family>),
    /// The one page that was wanted, not to be remembered.
    Page(Arc<Page>),
    /// The files of a folder.
    Listing(Listing),
    /// A folder that was asked for without its slash.
    Folder,
    /// Nothing to be served.
    Miss(Miss),
}

impl Look {
    pub(super) fn new(
        key: LookKey,
        site: &Arc<Site>,
        path: Asked,
        known: Option<Arc<Family>>,
        asked: Stamp,
    ) -> Look {
        Look {
            key,
            site: Arc::clone(site),
            path,
            known,
            asked,
        }
    }

    /// What it depends on.
    pub fn key(&self) -> &LookKey {
        &self.key
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
        let mount = self.mount();
        let path = self.path.file();
        match mount.folder.find(path) {
            Ok(Found::File(file, facts)) => {
                let kin = Kin::find(&mount.folder, path, (file, facts), &self.site.codings);
                match &self.known {
                    Some(known) if known.facts() == kin.facts() => {
                        Ok(Sight::Family(Arc::clone(known)))
                    }
                    _ => self.read(kin).map_err(|_| Miss::Broken),
                }
            }
            Ok(Found::Folder) if self.path.folder().is_none() => Ok(Sight::Folder),
            // A folder where the index file should be: another slash would lead nowhere.
            Ok(Found::Folder) | Err(Miss::Absent) => self.see_instead(),
            Err(miss) => Err(miss),
        }
    }

    fn read(&self, kin: Kin) -> io::Result<Sight> {
        let site = &*self.site;
        let stay = |bytes| site.stay(bytes);
        let label = site.label(&self.path, self.key.mount, kin.vary());
        if kin.is_passing(stay) {
            let page = kin.load_chosen(&label, &self.key.ranking, stay)?;
            return Ok(Sight::Page(Arc::new(page)));
        }
        let family = kin.load(&label, &site.devices, stay)?;
        Ok(Sight::Family(Arc::new(family)))
    }

    /// There is no file: what the request gets instead.
    fn see_instead(&self) -> Result<Sight, Miss> {
        let Instead { listing, fallback } = self.key.instead;
        if let (Some(form), Some(path)) = (listing, self.path.folder()) {
            let mount = self.mount();
            match mount.folder.list(path, ENTRIES_LEN_MAX) {
                Ok(entries) => {
                    let listing = Listing::render(entries, mount.url(), path, form);
                    return Ok(Sight::Listing(listing));
                }
                Err(Miss::Absent) => {}
                Err(miss) => return Err(miss),
            }
        }
        match fallback {
            Fallback::None | Fallback::Unfit => Err(Miss::Absent),
            Fallback::ByPath | Fallback::ByAccept => self.see_fallback(),
        }
    }

    /// Not remembered: under each path it would be another entry.
    fn see_fallback(&self) -> Result<Sight, Miss> {
        let mount = self.mount();
        let path = mount.fallback().ok_or(Miss::Absent)?;
        let Found::File(file, facts) = mount.folder.find(path)? else {
            return Err(Miss::Absent);
        };
        let kin = Kin::find(&mount.folder, path, (file, facts), &self.site.codings);
        let vary = self.key.instead.fallback.vary(kin.vary());
        let asked = Asked::new(path, None);
        let label = self.site.label(&asked, self.key.mount, vary);
        let page = kin.load_chosen(&label, &self.key.ranking, |bytes| self.site.stay(bytes));
        Ok(Sight::Page(Arc::new(page.map_err(|_| Miss::Broken)?)))
    }

    fn mount(&self) -> &Mount {
        &self.site.mounts[self.key.mount]
    }
}

impl fmt::Debug for Look {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Look").field(&self.key).finish()
    }
}

impl Looked {
    /// The key of its look.
    pub fn key(&self) -> &LookKey {
        &self.key
    }

    /// Whether another client would get the fallback where this one gets nothing.
    pub(super) fn depends_on_accept(&self) -> bool {
        self.key.instead.fallback == Fallback::Unfit
    }

    pub(super) fn sight(&self) -> &Sight {
        &self.sight
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

/// Files that were found and not yet read.
pub(super) struct Kin {
    plain: (File, Facts),
    siblings: Vec<(Coding, File, Facts)>,
}

impl Kin {
    /// Looks for the siblings of `plain`, which was found at `path`. One that cannot be opened is as good
    /// as none.
    pub(super) fn find(
        folder: &Folder,
        path: &[u8],
        plain: (File, Facts),
        codings: &[Coding],
    ) -> Kin {
        let mut siblings = Vec::new();
        let mut beside = path.to_vec();
        for coding in sought(path, codings) {
            beside.extend_from_slice(suffix(*coding));
            if let Ok(Found::File(file, facts)) = folder.find(&beside) {
                siblings.push((*coding, file, facts));
            }
            beside.truncate(path.len());
        }
        Kin { plain, siblings }
    }

    /// What tells whether these files are those of a family that is known.
    pub(super) fn facts(&self) -> FamilyFacts {
        let siblings = self.siblings.iter();
        FamilyFacts {
            plain: self.plain.1,
            siblings: siblings
                .map(|(coding, _, facts)| (*coding, *facts))
                .collect(),
        }
    }

    /// What the choice among them depends on: the value of `Vary`.
    pub(super) fn vary(&self) -> Option<&'static str> {
        let plain = &self.plain.1;
        let mut siblings = self.siblings.iter();
        let has_choice = siblings.any(|(_, _, facts)| !facts.is_older_than(plain));
        has_choice.then_some("Accept-Encoding")
    }

    /// Whether one of them is too large to be kept in memory, and too small to be sent from its descriptor.
    pub(super) fn is_passing(&self, stay: impl Fn(u64) -> Stay) -> bool {
        let mut siblings = self.siblings.iter().map(|(_, _, facts)| facts);
        let is_passing = |facts: &Facts| stay(facts.bytes) == Stay::Passing;
        is_passing(&self.plain.1)
            || siblings.any(|facts| !facts.is_older_than(&self.plain.1) && is_passing(facts))
    }

    /// Reads only what `ranking` wants.
    ///
    /// # Errors
    /// It cannot be read.
    pub(super) fn load_chosen(
        self,
        label: &Label<'_>,
        ranking: &Ranking,
        stay: impl Fn(u64) -> Stay,
    ) -> io::Result<Page> {
        let (plain, plain_facts) = self.plain;
        let mut current = self.siblings;
        current.retain(|(_, _, facts)| !facts.is_older_than(&plain_facts));
        let place = ranking
            .iter()
            .find_map(|wanted| current.iter().position(|(coding, _, _)| *coding == wanted));
        match place {
            Some(place) => {
                let (coding, file, facts) = current.swap_remove(place);
                Page::load(file, facts, stay(facts.bytes), &label.with(coding))
            }
            None => Page::load(plain, plain_facts, stay(plain_facts.bytes), label),
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
        stay: impl Fn(u64) -> Stay,
    ) -> io::Result<Family> {
        let (file, facts) = self.plain;
        let mut storage = devices.storage_of(&file, &facts);
        let plain = Page::load(file, facts, stay(facts.bytes), label)?;
        let mut siblings = Vec::with_capacity(self.siblings.len());
        for (coding, file, facts) in self.siblings {
            storage = storage.worse(devices.storage_of(&file, &facts));
            let page = if facts.is_older_than(&plain.facts) {
                None
            } else {
                let stay = stay(facts.bytes);
                Some(Page::load(file, facts, stay, &label.with(coding))?)
            };
            siblings.push(Sibling {
                coding,
                facts,
                page,
            });
        }
        Ok(Family {
            plain,
            siblings: siblings.into_boxed_slice(),
            storage,
        })
    }
}
