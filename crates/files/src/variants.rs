//! A file and its variants: what lies compressed beside it (`a.css` with `a.css.br`), each a file as it is served, and
//! the one of them that a client gets.
//!
//! A sibling that is older than its file does not hold the same content and is not served; that it is there is
//! remembered, so that a probe can tell whether anything has changed. Knows nothing of the cache.

use std::os::fd::AsFd;

use http::HeadView;

use crate::reply::Reply;
use config::typed::Coding;

use super::cached_file::{CachedFile, Content};
use super::encoding_preference::EncodingPreference;
use super::metadata::{FileMetadata, Storage};
use super::root_dir::{CacheProbe, RootDir};

/// A file and its siblings, as they are served.
#[derive(Clone, Debug)]
pub(super) struct Variants {
    pub(super) plain: CachedFile,
    /// Those that there are; nothing is allocated where there are none.
    pub(super) siblings: Box<[Sibling]>,
    pub(super) storage: Storage,
}

#[derive(Clone, Debug)]
pub(super) struct Sibling {
    pub(super) coding: Option<Coding>,
    pub(super) metadata: FileMetadata,
    /// `None`: it is out of date.
    pub(super) page: Option<CachedFile>,
}

/// What a probe of a file and its siblings tells.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ProbeResult {
    /// All is as it was.
    Unchanged,
    /// Something is not.
    Changed,
    /// Not even whether the file is still there. Only a lookup can tell, and local storage answers one soon.
    FileUnknown,
    /// Only a lookup can tell, which may take its time or is about siblings alone.
    Unknown,
}

impl ProbeResult {
    fn of(seen: CacheProbe, known: CacheProbe) -> ProbeResult {
        match seen {
            CacheProbe::Unknown => ProbeResult::Unknown,
            _ if seen == known => ProbeResult::Unchanged,
            _ => ProbeResult::Changed,
        }
    }
}

impl Variants {
    /// Whether a file that is sent from its descriptor was changed in place since it was looked at.
    #[inline]
    pub(super) fn has_changed(&self) -> bool {
        // What would be announced could not be sent.
        // Costs a system call for each descriptor, and waits for nothing.
        self.pages().any(|page| match &page.content {
            Content::Memory(_) => false,
            Content::Open { file, edition } => {
                FileMetadata::known(file.as_fd()).is_some_and(|now| now.edition() != *edition)
            }
        })
    }

    /// The reply to a GET or HEAD.
    #[inline]
    pub(super) fn reply(&self, head: HeadView<'_>, codings: &[Coding]) -> Reply {
        // Without siblings the field that chooses among them is not even looked for.
        if self.siblings.is_empty() {
            return self.plain.reply(head);
        }
        self.chosen(&EncodingPreference::read(head, codings))
            .reply(head)
    }

    /// The page to send to a client that wants codings in this order.
    fn chosen(&self, preference: &EncodingPreference) -> &CachedFile {
        preference
            .iter()
            .find_map(|wanted| {
                let sibling = self
                    .siblings
                    .iter()
                    .find(|one| one.coding == Some(wanted))?;
                sibling.page.as_ref()
            })
            .unwrap_or(&self.plain)
    }

    /// Whether a probe, which waits for nothing, is enough to see that all of it is still as it was at
    /// `path`: the file, its siblings, and that there are no others. `path` is given back as it was.
    pub(super) fn probe(
        &self,
        folder: &RootDir,
        path: &mut Vec<u8>,
        codings: &[Coding],
    ) -> ProbeResult {
        // The kernel may remember what another machine has changed since.
        if self.storage == Storage::Remote {
            return ProbeResult::Unknown;
        }
        let plain = match ProbeResult::of(folder.probe(path), CacheProbe::Seen(self.plain.metadata))
        {
            // Local storage answers a lookup soon, so nothing older is given meanwhile: the file may have been
            // deleted.
            ProbeResult::Unknown => ProbeResult::FileUnknown,
            plain => plain,
        };
        let bytes = path.len();
        sought(path, codings).iter().fold(plain, |probed, coding| {
            // One that differs decides: the lookup looks at all of them anyway.
            if probed != ProbeResult::Unchanged {
                return probed;
            }
            path.extend_from_slice(suffix(*coding));
            let seen = folder.probe(path);
            path.truncate(bytes);
            let known = self.siblings.iter().find(|one| one.coding == Some(*coding));
            ProbeResult::of(
                seen,
                known.map_or(CacheProbe::Absent, |one| CacheProbe::Seen(one.metadata)),
            )
        })
    }

    /// What tells whether two were made of the same files in the same state.
    pub(super) fn metadata(&self) -> impl Iterator<Item = (Option<Coding>, FileMetadata)> {
        let siblings = self.siblings.iter();
        std::iter::once((None, self.plain.metadata))
            .chain(siblings.map(|one| (one.coding, one.metadata)))
    }

    /// Bytes that it keeps in memory.
    pub(super) fn memory_bytes(&self) -> usize {
        let siblings = std::mem::size_of_val(&*self.siblings);
        siblings + self.pages().map(CachedFile::memory_bytes).sum::<usize>()
    }

    /// Descriptors that it keeps open.
    pub(super) fn open_len(&self) -> usize {
        self.pages()
            .filter(|page| matches!(page.content, Content::Open { .. }))
            .count()
    }

    /// Bytes of its content that it keeps in memory.
    pub(super) fn content_bytes(&self) -> usize {
        self.pages().map(|page| page.content.memory_bytes()).sum()
    }

    fn pages(&self) -> impl Iterator<Item = &CachedFile> {
        let siblings = self.siblings.iter().filter_map(|one| one.page.as_ref());
        std::iter::once(&self.plain).chain(siblings)
    }
}

/// What is looked for beside the file at `path`: nothing, when it is itself a compressed one.
pub(super) fn sought<'a>(path: &[u8], codings: &'a [Coding]) -> &'a [Coding] {
    let all = [Coding::Brotli, Coding::Zstd, Coding::Gzip];
    if all.iter().any(|coding| path.ends_with(suffix(*coding))) {
        &[]
    } else {
        codings
    }
}

pub(super) fn suffix(coding: Coding) -> &'static [u8] {
    match coding {
        Coding::Brotli => b".br",
        Coding::Zstd => b".zst",
        Coding::Gzip => b".gz",
    }
}
