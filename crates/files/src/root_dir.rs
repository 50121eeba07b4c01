//! A folder that is open, and the one way to a file beneath it.
//!
//! Takes a decoded path, gives an open regular file with its metadata. No path leaves the folder: the kernel
//! resolves it beneath the folder's descriptor (`openat2`, RESOLVE_BENEATH), so neither `..`, nor an
//! absolute or outgoing symbolic link, nor a rename in the middle of the walk leads outside. Symbolic
//! links that stay inside are followed.
//!
//! Where the kernel has no `openat2` (before Linux 5.6, gVisor, sandboxes that forbid it) each component
//! is opened by itself and no symbolic link is followed at all: safe by the same rule, only stricter.

use std::fs::File;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::Path;

use rustix::fs::{AtFlags, Dir, FileType, Mode, OFlags, ResolveFlags};
use rustix::io::Errno;

use super::cached_file::UnreadFile;
use super::listing::{Entries, EntryKind, ListingEntry};
use super::metadata::FileMetadata;
use super::path;

/// RESOLVE_BENEATH cannot vouch for a `..` in a link while something is being renamed, and says EAGAIN.
const RENAME_TRIES: usize = 8;
/// Names that are read of one folder, those that are not listed among them.
const NAMES_LEN_MAX: usize = 100_000;
const BENEATH: ResolveFlags = ResolveFlags::BENEATH.union(ResolveFlags::NO_MAGICLINKS);

/// One folder, open for as long as the server runs.
pub(super) struct RootDir {
    root: OwnedFd,
    resolver: Resolver,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Resolver {
    /// `openat2`
    Kernel,
    /// `openat` of each component, following no link.
    Walk,
}

/// What a path names.
#[derive(Debug)]
pub(super) enum OpenedPath {
    /// A regular file, open for reading.
    File(UnreadFile),
    /// A folder.
    Folder,
}

/// What is known of a path without asking any storage.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum CacheProbe {
    /// It names something with this metadata.
    Seen(FileMetadata),
    /// It names nothing.
    Absent,
    /// Only a lookup can tell.
    Unknown,
}

/// Why a path gives no file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum LookupError {
    /// Nothing there that could be served.
    Absent,
    /// There, but the server may not read it.
    Forbidden,
    /// The system is out of descriptors or memory for the moment.
    Busy,
    /// The system failed.
    Broken,
}

impl RootDir {
    /// Opens `dir` and keeps it open.
    pub(super) fn open(dir: &Path) -> std::io::Result<RootDir> {
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let root = rustix::fs::open(dir, flags, Mode::empty())?;
        // Resolving `.` needs permission to search, which O_PATH alone did not ask for.
        let resolver = match open_beneath(root.as_fd(), b".", flags) {
            Ok(_) => Resolver::Kernel,
            Err(Errno::NOSYS | Errno::PERM) => {
                rustix::fs::openat(&root, ".", flags, Mode::empty())?;
                Resolver::Walk
            }
            Err(errno) => return Err(errno.into()),
        };
        Ok(RootDir { root, resolver })
    }

    /// Opens what `path` (decoded, relative, not empty) names, if it is a regular file.
    pub(super) fn find(&self, path: &[u8]) -> Result<OpenedPath, LookupError> {
        // O_NONBLOCK: opening a FIFO without a writer would wait for ever. O_NOCTTY: opening a
        // terminal must not make it ours.
        let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
        let file = File::from(self.open_path(path, flags)?);
        // Of the file that is open: the name may be another one's by now.
        let metadata = file.metadata().map_err(|_| LookupError::Broken)?;
        if metadata.is_file() {
            Ok(OpenedPath::File(UnreadFile {
                coding: None,
                file,
                metadata: FileMetadata::of(&metadata),
            }))
        } else if metadata.is_dir() {
            Ok(OpenedPath::Folder)
        } else {
            Err(LookupError::Absent)
        }
    }

    fn open_path(&self, path: &[u8], flags: OFlags) -> Result<OwnedFd, Errno> {
        match self.resolver {
            Resolver::Kernel => open_beneath(self.root.as_fd(), path, flags),
            Resolver::Walk => walk(self.root.as_fd(), path, flags),
        }
    }

    /// Reads the names beneath the folder at `path` (empty: this one), with what they name: regular files
    /// and folders that could be served by their own paths, at most `len_max` of them.
    pub(super) fn list(&self, path: &[u8], len_max: usize) -> Result<Entries, LookupError> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let here = if path.is_empty() { b"." } else { path };
        let mut names = Dir::new(self.open_path(here, flags)?)?;
        let mut list = Vec::new();
        // Bounded by names as well: a folder of hidden files would be read for ever.
        for _ in 0..NAMES_LEN_MAX {
            let Some(name) = names.read() else {
                return Ok(Entries {
                    list,
                    is_cut: false,
                });
            };
            let name = name?.file_name().to_bytes().to_vec();
            if path::is_hidden(&name, path.is_empty()) {
                continue;
            }
            let Some(entry) = self.entry(&names, path, name) else {
                continue;
            };
            // Only now: a folder of exactly so many names is not cut.
            if list.len() == len_max {
                break;
            }
            list.push(entry);
        }
        Ok(Entries { list, is_cut: true })
    }

    /// `None` for what cannot be served: a link that leads outside, a socket, what has just been removed.
    fn entry(&self, names: &Dir, path: &[u8], name: Vec<u8>) -> Option<ListingEntry> {
        let here = names.fd().ok()?;
        let mut stat = rustix::fs::statat(here, &*name, AtFlags::SYMLINK_NOFOLLOW).ok()?;
        if FileType::from_raw_mode(stat.st_mode) == FileType::Symlink {
            if self.resolver == Resolver::Walk {
                return None;
            }
            let whole = match path {
                b"" => name.clone(),
                _ => [path, b"/", &name].concat(),
            };
            let target = open_beneath(self.root.as_fd(), &whole, OFlags::PATH | OFlags::CLOEXEC);
            // What the link leads to, if that is inside: a listing shows nothing that its own path would not give.
            stat = rustix::fs::fstat(target.ok()?).ok()?;
        }
        let kind = match FileType::from_raw_mode(stat.st_mode) {
            FileType::RegularFile => EntryKind::File {
                bytes: u64::try_from(stat.st_size).unwrap_or(0),
            },
            FileType::Directory => EntryKind::Folder,
            _ => return None,
        };
        Some(ListingEntry {
            name,
            kind,
            modified_unix_secs: u64::try_from(stat.st_mtime).unwrap_or(0),
        })
    }

    /// Looks at what `path` names as far as the kernel knows it by heart: nothing is waited for.
    pub(super) fn probe(&self, path: &[u8]) -> CacheProbe {
        if self.resolver == Resolver::Walk {
            return CacheProbe::Unknown;
        }
        let flags = OFlags::PATH | OFlags::CLOEXEC;
        // RESOLVE_CACHED is EINVAL before Linux 5.12, and EAGAIN where the kernel would have to ask.
        let resolve = BENEATH | ResolveFlags::CACHED;
        match rustix::fs::openat2(&self.root, path, flags, Mode::empty(), resolve) {
            Ok(file) => {
                FileMetadata::known(file.as_fd()).map_or(CacheProbe::Unknown, CacheProbe::Seen)
            }
            Err(Errno::NOENT) => CacheProbe::Absent,
            Err(_) => CacheProbe::Unknown,
        }
    }
}

#[cfg(test)]
impl RootDir {
    /// As if the kernel had no `openat2`.
    pub(super) fn disable_probe(&mut self) {
        self.resolver = Resolver::Walk;
    }
}

impl LookupError {
    /// The status that a client gets.
    pub(super) fn status(self) -> u16 {
        match self {
            LookupError::Absent => 404,
            LookupError::Forbidden => 403,
            LookupError::Busy => 503,
            LookupError::Broken => 500,
        }
    }
}

impl From<Errno> for LookupError {
    fn from(errno: Errno) -> LookupError {
        match errno {
            // XDEV: the path would leave the folder. NXIO: a socket, or a device without its driver.
            Errno::NOENT | Errno::NOTDIR | Errno::LOOP | Errno::XDEV | Errno::NAMETOOLONG => {
                LookupError::Absent
            }
            Errno::NXIO | Errno::NODEV | Errno::INVAL => LookupError::Absent,
            Errno::ACCESS | Errno::PERM => LookupError::Forbidden,
            Errno::MFILE | Errno::NFILE | Errno::NOMEM | Errno::AGAIN => LookupError::Busy,
            _ => LookupError::Broken,
        }
    }
}

fn open_beneath(root: BorrowedFd<'_>, path: &[u8], flags: OFlags) -> Result<OwnedFd, Errno> {
    let mut tries = RENAME_TRIES;
    loop {
        tries -= 1;
        // A rename anywhere on the machine during the walk gives EAGAIN where a link has `..`; after some tries the
        // client is asked to come back.
        match rustix::fs::openat2(root, path, flags, Mode::empty(), BENEATH) {
            Err(Errno::AGAIN | Errno::INTR) if tries > 0 => {}
            result => return result,
        }
    }
}

fn walk(root: BorrowedFd<'_>, path: &[u8], flags: OFlags) -> Result<OwnedFd, Errno> {
    let step = OFlags::PATH | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let mut folder: Option<OwnedFd> = None;
    let mut components = path.split(|byte| *byte == b'/').peekable();
    while let Some(component) = components.next() {
        let here = folder.as_ref().map_or(root, AsFd::as_fd);
        if component.is_empty() || component == b".." {
            return Err(Errno::NOENT);
        }
        if components.peek().is_none() {
            // Each step starts at a descriptor, so a rename in the middle of the walk cannot lead it elsewhere.
            return rustix::fs::openat(here, component, flags | OFlags::NOFOLLOW, Mode::empty());
        }
        folder = Some(rustix::fs::openat(here, component, step, Mode::empty())?);
    }
    Err(Errno::NOENT)
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::symlink;
    use std::os::unix::net::UnixListener;

    use super::*;

    /// `inside/` is served; `secret` and `beside` lie outside of it.
    fn fixture() -> tempfile::TempDir {
        let dir = tempfile::tempdir().unwrap();
        let at = |name: &str| dir.path().join(name);
        fs::create_dir_all(at("inside/sub/deep")).unwrap();
        fs::create_dir(at("beside")).unwrap();
        let names = "secret beside/secret inside/a.txt inside/sub/b.txt inside/sub/deep/c.txt";
        for name in names.split(' ') {
            fs::write(at(name), name).unwrap();
        }
        symlink("sub/b.txt", at("inside/link-in")).unwrap();
        symlink("../a.txt", at("inside/sub/link-up")).unwrap();
        symlink("sub", at("inside/link-folder")).unwrap();
        symlink("../secret", at("inside/link-out")).unwrap();
        symlink("../beside", at("inside/link-folder-out")).unwrap();
        symlink(at("inside/a.txt"), at("inside/link-absolute")).unwrap();
        symlink("/etc/passwd", at("inside/link-passwd")).unwrap();
        symlink("/proc/self/root", at("inside/link-magic")).unwrap();
        symlink("loop", at("inside/loop")).unwrap();
        symlink("nothing", at("inside/link-nowhere")).unwrap();
        rustix::fs::mknodat(
            rustix::fs::CWD,
            at("inside/fifo"),
            rustix::fs::FileType::Fifo,
            Mode::RUSR,
            0,
        )
        .unwrap();
        drop(UnixListener::bind(at("inside/socket")).unwrap());
        dir
    }

    fn check(folder: &RootDir, path: &str, expect: Result<&str, LookupError>) {
        match (folder.find(path.as_bytes()), expect) {
            (Ok(OpenedPath::File(found)), Ok(text)) => {
                assert_eq!(std::io::read_to_string(found.file).unwrap(), text, "{path}");
            }
            (Ok(OpenedPath::Folder), Ok("folder")) => {}
            (Err(error), Err(expect)) => assert_eq!(error, expect, "{path}"),
            (found, expect) => panic!("{path}: {found:?}, expected {expect:?}"),
        }
    }

    fn check_common(folder: &RootDir) {
        check(folder, "a.txt", Ok("inside/a.txt"));
        check(folder, "sub/b.txt", Ok("inside/sub/b.txt"));
        check(folder, "sub/deep/c.txt", Ok("inside/sub/deep/c.txt"));
        check(folder, "sub", Ok("folder"));
        let long = "x".repeat(300);
        let deep = "d/".repeat(3000);
        let outside = "
            nothing a.txt/b ../secret sub/../../secret link-out link-folder-out/secret link-absolute
            link-passwd link-magic/etc/passwd loop link-nowhere fifo socket /etc/passwd
        ";
        for path in outside.split_whitespace().chain([&*long, &*deep]) {
            check(folder, path, Err(LookupError::Absent));
        }
    }

    #[test]
    fn kernel_resolves_beneath_the_folder() {
        let dir = fixture();
        let folder = RootDir::open(&dir.path().join("inside")).unwrap();
        assert_eq!(
            folder.resolver,
            Resolver::Kernel,
            "these tests need Linux 5.6"
        );
        check_common(&folder);
        check(&folder, "link-in", Ok("inside/sub/b.txt"));
        check(&folder, "sub/link-up", Ok("inside/a.txt"));
        check(&folder, "link-folder/b.txt", Ok("inside/sub/b.txt"));
    }

    #[test]
    fn walk_follows_no_link() {
        let dir = fixture();
        let mut folder = RootDir::open(&dir.path().join("inside")).unwrap();
        folder.resolver = Resolver::Walk;
        check_common(&folder);
        for path in "link-in sub/link-up link-folder/b.txt link-folder sub//b.txt".split(' ') {
            check(&folder, path, Err(LookupError::Absent));
        }
    }

    fn names(folder: &RootDir, path: &str, len_max: usize) -> Result<(String, bool), LookupError> {
        let Entries { list, is_cut } = folder.list(path.as_bytes(), len_max)?;
        let mut names: Vec<_> = list.into_iter().map(|entry| entry.name).collect();
        names.sort();
        Ok((String::from_utf8(names.join(&b' ')).unwrap(), is_cut))
    }

    #[test]
    fn lists_what_its_own_paths_would_find() {
        let dir = fixture();
        let mut folder = RootDir::open(&dir.path().join("inside")).unwrap();
        for (resolver, links, up) in [
            (Resolver::Kernel, "link-folder link-in ", "link-up"),
            (Resolver::Walk, "", ""),
        ] {
            folder.resolver = resolver;
            let listed = names(&folder, "", 100).unwrap();
            assert_eq!(listed, (format!("a.txt {links}sub"), false));
            let (list, _) = names(&folder, "sub", 100).unwrap();
            assert_eq!(list, format!("b.txt deep {up}").trim());
            for path in ["nothing", "a.txt", "link-folder-out", "..", "link-magic"] {
                assert_eq!(
                    names(&folder, path, 100),
                    Err(LookupError::Absent),
                    "{path}"
                );
            }
        }
    }

    #[test]
    fn lists_no_more_than_was_asked_for() {
        let dir = fixture();
        let folder = RootDir::open(&dir.path().join("inside/sub")).unwrap();
        for (len_max, len, extent) in [(1, 1, true), (2, 2, false), (0, 0, true)] {
            let entries = folder.list(b"", len_max).unwrap();
            assert_eq!(
                (entries.list.len(), entries.is_cut),
                (len, extent),
                "{len_max}"
            );
        }
    }

    #[test]
    fn a_glance_waits_for_nothing_and_leads_nowhere_else() {
        let dir = fixture();
        let mut folder = RootDir::open(&dir.path().join("inside")).unwrap();
        let Ok(OpenedPath::File(found)) = folder.find(b"sub/b.txt") else {
            panic!("it is there");
        };
        assert_eq!(folder.probe(b"sub/b.txt"), CacheProbe::Seen(found.metadata));
        // File systems differ in whether they remember that there is nothing.
        assert_eq!(folder.find(b"sub/nothing").err(), Some(LookupError::Absent));
        let nothing = folder.probe(b"sub/nothing");
        assert!(matches!(nothing, CacheProbe::Absent | CacheProbe::Unknown));
        for path in [&b"../secret"[..], b"link-out", b"link-passwd", b"a.txt/b"] {
            assert_eq!(folder.probe(path), CacheProbe::Unknown);
        }
        folder.resolver = Resolver::Walk;
        assert_eq!(folder.probe(b"sub/b.txt"), CacheProbe::Unknown);
    }

    #[test]
    fn stays_with_a_folder_that_was_renamed() {
        let dir = fixture();
        let folder = RootDir::open(&dir.path().join("inside")).unwrap();
        fs::rename(dir.path().join("inside"), dir.path().join("elsewhere")).unwrap();
        check(&folder, "a.txt", Ok("inside/a.txt"));
    }

    #[test]
    fn refuses_what_is_not_a_folder() {
        let dir = fixture();
        for (name, kind) in [
            ("missing", std::io::ErrorKind::NotFound),
            ("secret", std::io::ErrorKind::NotADirectory),
        ] {
            let error = RootDir::open(&dir.path().join(name)).err().unwrap();
            assert_eq!(error.kind(), kind, "{name}");
        }
    }

    #[test]
    fn sorts_what_the_system_says() {
        for (errno, error) in [
            (Errno::MFILE, LookupError::Busy),
            (Errno::NFILE, LookupError::Busy),
            (Errno::ACCESS, LookupError::Forbidden),
            (Errno::IO, LookupError::Broken),
        ] {
            assert_eq!(LookupError::from(errno), error);
        }
    }
}
