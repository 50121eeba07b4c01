//! Watching code while it is being written: says when to start anew, for development.
//!
//! Takes folders and files, gives the file that changed, once for everything that changed together.
//! `eyes` is told of changes by the kernel (inotify); where that cannot be, `picture` is taken once a second
//! and compared with the one before. What counts as code is in `scope`. Reads no content and no clock.
//!
//! ```text
//!        a change                quiet for 50 ms, or 2 s of unrest
//! CALM ───────────► UNREST(path) ───────────────────────────────────► CALM, `path` is given
//!                    │      ▲
//!                    └──────┘ another change
//! ```

mod eyes;
mod picture;
mod scope;
#[cfg(test)]
mod tests;

use std::io;
use std::os::fd::BorrowedFd;
use std::path::{Path, PathBuf};

use measure::{Nanos, Stamp};
use rustix::io::Errno;

use eyes::Eyes;
use picture::Picture;
use scope::Scope;

/// Editors write a file in several steps, and version control many files.
const QUIET: Nanos = Nanos::from_ms(50);
/// Something that never rests must not hide a change for ever.
const UNREST_MAX: Nanos = Nanos::from_secs(2);
/// Time between two looks, where nothing tells of changes.
const LOOK_INTERVAL: Nanos = Nanos::from_secs(1);
/// Folders that are watched; those nearest to the named ones come first.
const FOLDERS_LEN_MAX: usize = 10_000;

/// Folders and files that are watched.
#[derive(Debug)]
pub(crate) struct Watch {
    scope: Scope,
    means: Means,
    unrest: Option<Unrest>,
    /// When to look next at what cannot tell of itself.
    next_look: Stamp,
    /// What its owner ought to know and has not been told.
    notice: Option<String>,
}

/// How much is watched at most.
#[derive(Clone, Copy, Debug)]
struct Bounds {
    /// Folders, of our own accord.
    folders_len: usize,
    /// Watches, beside what the kernel allows.
    watches_len: usize,
}

impl Default for Bounds {
    fn default() -> Self {
        Self {
            folders_len: FOLDERS_LEN_MAX,
            watches_len: usize::MAX,
        }
    }
}

/// How changes become known.
#[derive(Debug)]
enum Means {
    /// By the kernel.
    Told(Eyes),
    /// By looking.
    Looking(Picture),
}

/// A change that has not been given yet.
#[derive(Debug)]
struct Unrest {
    path: PathBuf,
    first: Stamp,
    last: Stamp,
}

impl Watch {
    /// Watches `dirs` with all folders below them for code, and each of `files` whatever it is. What does not
    /// exist yet may come; that is a change as well.
    ///
    /// Hidden folders, `__pycache__`, `node_modules`, `site-packages` and virtual environments below `dirs` are
    /// left out, and no symbolic link below them is followed.
    pub(crate) fn new(dirs: &[PathBuf], files: &[PathBuf], now: Stamp) -> Watch {
        Watch::within(Bounds::default(), dirs, files, now)
    }

    fn within(bounds: Bounds, dirs: &[PathBuf], files: &[PathBuf], now: Stamp) -> Watch {
        let mut scope = Scope::default();
        scope.add(dirs, files);
        let mut watch = Watch {
            means: Means::Looking(Picture::default()),
            scope,
            unrest: None,
            next_look: now.plus(LOOK_INTERVAL),
            notice: None,
        };
        watch.begin(bounds);
        watch
    }

    /// Watches more. What lies there already is no change.
    pub(crate) fn extend(&mut self, dirs: &[PathBuf], files: &[PathBuf], now: Stamp) {
        // The next look will be compared with how things are now.
        self.next_look = now;
        self.note_changes(now);
        if !self.scope.add(dirs, files) {
            return;
        }
        match &mut self.means {
            Means::Told(eyes) => match eyes.open(&self.scope) {
                Ok(()) => self.tell_of_excess(),
                Err(error) => self.fall_back(&error),
            },
            Means::Looking(picture) => *picture = Picture::take(&self.scope),
        }
    }

    /// What to wait for until it is readable, beside `deadline`. None where the kernel does not tell.
    pub(crate) fn fd(&self) -> Option<BorrowedFd<'_>> {
        match &self.means {
            Means::Told(eyes) => Some(eyes.fd()),
            Means::Looking(_) => None,
        }
    }

    /// When to call `changed` although nothing is readable.
    pub(crate) fn deadline(&self) -> Stamp {
        let looks = match &self.means {
            Means::Told(eyes) => eyes.misses_a_place(),
            Means::Looking(_) => true,
        };
        let look = if looks { self.next_look } else { Stamp::NEVER };
        let rest = self.unrest.as_ref().map_or(Stamp::NEVER, Unrest::end);
        look.min(rest)
    }

    /// The first file of those that have changed, once there is rest. To be called when `fd` is readable and
    /// at `deadline`.
    pub(crate) fn changed(&mut self, now: Stamp) -> Option<PathBuf> {
        self.note_changes(now);
        let unrest = self.unrest.take_if(|unrest| unrest.end() <= now)?;
        Some(unrest.path)
    }

    /// One line that its owner ought to be told, once: why changes are not noticed at once, or not everywhere.
    pub(crate) fn notice(&mut self) -> Option<String> {
        self.notice.take()
    }

    fn begin(&mut self, bounds: Bounds) {
        let remote = self.scope.places().find(|place| is_remote(place));
        if let Some(place) = remote.map(Path::display) {
            let cause = format!("`{place}` is on a file system that others write to");
            self.look_from_now_on(&cause);
            return;
        }
        match Eyes::new(&self.scope, bounds) {
            Ok(eyes) => {
                self.means = Means::Told(eyes);
                self.tell_of_excess();
            }
            Err(error) => self.fall_back(&error),
        }
    }

    fn note_changes(&mut self, now: Stamp) {
        let looks = now >= self.next_look;
        let found = match &mut self.means {
            Means::Told(eyes) => eyes.read(&self.scope).and_then(|told| {
                let came = if looks { eyes.seek(&self.scope)? } else { None };
                Ok(told.or(came))
            }),
            Means::Looking(picture) if looks => Ok(picture.renew(&self.scope)),
            Means::Looking(_) => return,
        };
        let found = found.unwrap_or_else(|error| {
            self.fall_back(&error);
            // What the kernel would have told until now is not known.
            self.scope.places().next().map(Path::to_owned)
        });
        if let Some(path) = found {
            let unrest = self.unrest.get_or_insert(Unrest {
                path,
                first: now,
                last: now,
            });
            unrest.last = now;
        }
        if looks {
            // While files change, the next look tells whether that is over.
            self.next_look = now.plus(match (&self.means, &self.unrest) {
                (Means::Looking(_), Some(_)) => QUIET,
                _ => LOOK_INTERVAL,
            });
        }
    }

    fn tell_of_excess(&mut self) {
        if let Means::Told(eyes) = &self.means
            && let Some(folders_len_max) = eyes.excess()
        {
            self.notice = Some(format!(
                "there are more than {folders_len_max} folders to watch: changes in the deepest ones are \
                 not noticed"
            ));
        }
    }

    fn fall_back(&mut self, error: &io::Error) {
        self.look_from_now_on(&cause(error));
    }

    fn look_from_now_on(&mut self, cause: &str) {
        self.means = Means::Looking(Picture::take(&self.scope));
        self.notice = Some(format!("{cause}: code is looked at once a second instead"));
    }
}

impl Unrest {
    fn end(&self) -> Stamp {
        self.last.plus(QUIET).min(self.first.plus(UNREST_MAX))
    }
}

/// Why the kernel does not tell: inotify(7) and inotify_add_watch(2).
fn cause(error: &io::Error) -> String {
    match Errno::from_io_error(error) {
        Some(Errno::NOSPC) => {
            "no more folders can be watched (`sysctl fs.inotify.max_user_watches`)".to_owned()
        }
        Some(Errno::MFILE) => {
            "no more watchers can be made (`sysctl fs.inotify.max_user_instances`)".to_owned()
        }
        _ => format!("the system does not tell of changes: {error}"),
    }
}

/// Whether another machine, or the host of this one, may write there: inotify tells only of what this
/// kernel writes.
fn is_remote(place: &Path) -> bool {
    rustix::fs::statfs(place).is_ok_and(|found| is_remote_kind(found.f_type))
}

/// By statfs(2): NFS, SMB, CIFS, 9P, FUSE (and virtiofs), VirtualBox's and VMware's shared folders.
fn is_remote_kind(kind: impl TryInto<u64>) -> bool {
    const KINDS: [u64; 7] = [
        0x6969,
        0xfe53_4d42,
        0xff53_4d42,
        0x0102_1997,
        0x6573_5546,
        0x786f_4256,
        0xbacb_acbc,
    ];
    // A word of the kernel that Rust takes for signed, of 32 bits where the machine's are.
    kind.try_into()
        .is_ok_and(|kind: u64| KINDS.contains(&(kind & 0xffff_ffff)))
}
