//! A family: a file with what lies compressed beside it (`a.css` with `a.css.br`), and which of them a
//! client gets.
//!
//! Takes files that were found, reads them, and gives pages. A sibling that is older than its file does not
//! hold the same content and is not served; that it is there is remembered, so that a glance can tell
//! whether anything has changed.

use std::fs::File;
use std::io;
use std::os::fd::AsFd;

use crate::config::meant::Coding;

use super::facts::{Devices, Facts, Storage};
use super::folder::{Folder, Found, Glance};
use super::page::{Content, Label, Page, Stay};
use super::ranking::Ranking;

/// A file and its siblings, as they are served.
#[derive(Clone, Debug)]
pub(super) struct Family {
    plain: Page,
    /// Those that there are; nothing is allocated where there are none.
    siblings: Box<[Sibling]>,
    storage: Storage,
}

#[derive(Clone, Debug)]
struct Sibling {
    coding: Coding,
    facts: Facts,
    /// `None`: it is out of date.
    page: Option<Page>,
}

/// Files that were found and not yet read.
pub(super) struct Kin {
    plain: (File, Facts),
    siblings: Vec<(Coding, File, Facts)>,
}

/// The facts of all files of a family.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct FamilyFacts {
    plain: Facts,
    siblings: Vec<(Coding, Facts)>,
}

/// What a glance at a family's files tells.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Glimpse {
    /// All is as it was.
    Unchanged,
    /// Something is not.
    Changed,
    /// Not even whether the file is still there. Only a look can tell, and local storage answers one soon.
    Blind,
    /// Only a look can tell, which may take its time or is about siblings alone.
    Unsure,
}

impl Glimpse {
    fn of(seen: Glance, known: Glance) -> Glimpse {
        match seen {
            Glance::Unsure => Glimpse::Unsure,
            _ if seen == known => Glimpse::Unchanged,
            _ => Glimpse::Changed,
        }
    }
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

impl Family {
    /// Whether a file that is sent from its descriptor was changed in place since it was looked at: what
    /// would be announced could not be sent. Costs a system call for each descriptor, and waits for nothing.
    #[inline]
    pub(super) fn has_moved_on(&self) -> bool {
        self.pages().any(|page| match &page.content {
            Content::Memory(_) => false,
            Content::Open { file, edition } => {
                Facts::known(file.as_fd()).is_some_and(|now| now.edition() != *edition)
            }
        })
    }

    /// The page to send if there is nothing to choose from.
    #[inline]
    pub(super) fn only(&self) -> Option<&Page> {
        self.siblings.is_empty().then_some(&self.plain)
    }

    /// The page to send to a client that wants codings in this order.
    pub(super) fn chosen(&self, ranking: &Ranking) -> &Page {
        ranking
            .iter()
            .find_map(|wanted| {
                let sibling = self.siblings.iter().find(|one| one.coding == wanted)?;
                sibling.page.as_ref()
            })
            .unwrap_or(&self.plain)
    }

    /// Whether a glance, which waits for nothing, is enough to see that all of it is still as it was at
    /// `path`: the file, its siblings, and that there are no others. `path` is given back as it was.
    pub(super) fn glance(
        &self,
        folder: &Folder,
        path: &mut Vec<u8>,
        codings: &[Coding],
    ) -> Glimpse {
        if self.storage == Storage::Remote {
            return Glimpse::Unsure;
        }
        let plain = match Glimpse::of(folder.glance(path), Glance::Seen(self.plain.facts)) {
            Glimpse::Unsure => Glimpse::Blind,
            plain => plain,
        };
        let bytes = path.len();
        sought(path, codings).iter().fold(plain, |glimpse, coding| {
            if glimpse != Glimpse::Unchanged {
                return glimpse;
            }
            path.extend_from_slice(suffix(*coding));
            let seen = folder.glance(path);
            path.truncate(bytes);
            let known = self.siblings.iter().find(|one| one.coding == *coding);
            Glimpse::of(
                seen,
                known.map_or(Glance::Absent, |one| Glance::Seen(one.facts)),
            )
        })
    }

    /// What tells whether both were made of the same files in the same state.
    pub(super) fn facts(&self) -> FamilyFacts {
        let siblings = self.siblings.iter().map(|one| (one.coding, one.facts));
        FamilyFacts {
            plain: self.plain.facts,
            siblings: siblings.collect(),
        }
    }

    /// Bytes that it keeps in memory.
    pub(super) fn memory_bytes(&self) -> usize {
        let siblings = std::mem::size_of_val(&*self.siblings);
        siblings + self.pages().map(Page::memory_bytes).sum::<usize>()
    }

    /// Descriptors that it keeps open.
    pub(super) fn open_len(&self) -> usize {
        self.pages()
            .filter(|page| matches!(page.content, Content::Open { .. }))
            .count()
    }

    /// Bytes of its content that it keeps in memory.
    pub(super) fn content_bytes(&self) -> usize {
        let bytes = |page: &Page| match &page.content {
            Content::Memory(data) => data.len(),
            Content::Open { .. } => 0,
        };
        self.pages().map(bytes).sum()
    }

    fn pages(&self) -> impl Iterator<Item = &Page> {
        let siblings = self.siblings.iter().filter_map(|one| one.page.as_ref());
        std::iter::once(&self.plain).chain(siblings)
    }
}

/// What is looked for beside the file at `path`: nothing, when it is itself a compressed one.
fn sought<'a>(path: &[u8], codings: &'a [Coding]) -> &'a [Coding] {
    let all = [Coding::Brotli, Coding::Zstd, Coding::Gzip];
    if all.iter().any(|coding| path.ends_with(suffix(*coding))) {
        &[]
    } else {
        codings
    }
}

fn suffix(coding: Coding) -> &'static [u8] {
    match coding {
        Coding::Brotli => b".br",
        Coding::Zstd => b".zst",
        Coding::Gzip => b".gz",
    }
}
