//! Folders of files, answered on the driver that received the request.
//!
//! Takes a head, the part of its path behind a mount's URL prefix, and `now`; gives a complete [`Reply`]
//! whose body is either bytes that are already in memory or a span of an open file. One [`Files`]
//! belongs to one driver: it holds no lock and is never shared. It must not touch a socket, the clock,
//! or anything outside its folders.
//!
//! ```text
//! rest ─► cache ──fresh──────────────────────────────────────► answer ─► Reply
//!           │ absent or not looked at for `revalidate`            ▲
//!           └─► path (decode, hide) ─► folder (openat2) ─► page ──┘─► cache
//! ```
//!
//! A fresh hit costs one hash lookup and two reference counts; everything else opens the file anew,
//! by its path, so that a file renamed into place is seen. Opening and reading block the driver: what
//! is read is at most `entry_bytes_max`, larger files leave as spans of an open file.

mod answer;
mod plain;

mod cache;
mod path;

mod folder;
mod page;

mod kind;

mod conditional;
mod ranges;

mod multipart;

#[cfg(test)]
mod tests;

use std::fmt;
use std::io;
use std::path::PathBuf;

use measure::Stamp;
use wire::{HeadView, Method};

use crate::config::meant::{FileCache, StaticMount};
use crate::reply::Reply;

use self::cache::Cache;
use self::folder::{Folder, Found, Miss};
use self::page::Page;
use self::path::Place;
use self::plain::Plain;

/// The folders of one driver and what it remembers of their files.
pub struct Files {
    folders: Vec<Folder>,
    cache: Cache,
    entry_bytes_max: u64,
    /// The decoded path of the request at hand; kept for its allocation.
    path: Vec<u8>,
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

impl Files {
    /// Opens every folder and keeps it open: a folder that is renamed later is still the one served.
    ///
    /// # Errors
    /// The first folder that is missing, is not a folder, or may not be searched.
    pub fn open(mounts: &[StaticMount], cache: &FileCache) -> Result<Files, FolderFault> {
        let open = |mount: &StaticMount| {
            Folder::open(&mount.dir, &mount.index).map_err(|cause| FolderFault {
                url: mount.url.clone(),
                dir: mount.dir.clone(),
                cause,
            })
        };
        Ok(Files {
            folders: mounts.iter().map(open).collect::<Result<_, _>>()?,
            cache: Cache::new(mounts.len(), cache.bytes_max, cache.revalidate),
            entry_bytes_max: cache.entry_bytes_max as u64,
            path: Vec::new(),
        })
    }

    /// Answers one request. `mount` is the index of its mount in the list given to [`Files::open`],
    /// `rest` the raw (percent-encoded) path behind the mount's URL prefix: empty or `/css/a.css`.
    ///
    /// The reply to a HEAD has the lines of the GET and no body; a 304 has no `Content-Length`.
    ///
    /// # Panics
    /// When there is no such mount.
    pub fn answer(&mut self, mount: usize, head: HeadView<'_>, rest: &[u8], now: Stamp) -> Reply {
        if !matches!(head.index.method, Method::Get | Method::Head) {
            return Plain::MethodNotAllowed.reply(head);
        }
        if let Some(page) = self.cache.fresh(mount, rest, now) {
            return answer::give(page, head);
        }
        self.answer_from_folder(mount, head, rest, now)
    }

    fn answer_from_folder(
        &mut self,
        mount: usize,
        head: HeadView<'_>,
        rest: &[u8],
        now: Stamp,
    ) -> Reply {
        self.cache.close_idle(now);
        match self.find(mount, rest) {
            Ok(Found::File(file, facts)) => {
                if let Some(page) = self.cache.confirm(mount, rest, &facts, now) {
                    return answer::give(page, head);
                }
                let kind = kind::of_path(&self.path);
                let Ok(page) = Page::load(file, facts, kind, self.entry_bytes_max) else {
                    self.cache.forget(mount, rest);
                    return Plain::InternalServerError.reply(head);
                };
                let reply = answer::give(&page, head);
                self.cache.keep(mount, rest, page, now);
                reply
            }
            Ok(Found::Folder) => {
                self.cache.forget(mount, rest);
                plain::redirect_to_folder(head)
            }
            Err(miss) => {
                self.cache.forget(mount, rest);
                Plain::from(miss).reply(head)
            }
        }
    }

    /// Looks the file up by its path, whatever the cache knows.
    fn find(&mut self, mount: usize, rest: &[u8]) -> Result<Found, Miss> {
        let folder = &self.folders[mount];
        match path::beneath(rest, folder.index(), &mut self.path) {
            Place::Top => Ok(Found::Folder),
            Place::Beneath => match folder.find(&self.path)? {
                // A folder where the index file should be: another slash would lead nowhere.
                Found::Folder if rest.ends_with(b"/") => Err(Miss::Absent),
                found => Ok(found),
            },
            Place::Nowhere => Err(Miss::Absent),
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
