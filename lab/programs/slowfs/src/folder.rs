//! The file system: files of one folder tree by descriptor, as the kernel asks for them.
//!
//! Takes the kernel's requests, does each at once on the folder behind, and leaves the answer to
//! `later`. What was read once stays in the kernel's memory, as with any disk: names, attributes
//! and pages are handed over for an hour, and an open file is not tracked here.

use std::collections::HashMap;
use std::ffi::OsStr;
use std::fs::{self, File, Metadata, OpenOptions};
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use fuser::{
    BsdFileFlags, Errno, FileAttr, FileHandle, FileType, Filesystem, FopenFlags, Generation,
    INodeNo, InitFlags, KernelConfig, LockOwner, OpenAccMode, OpenFlags, RenameFlags, ReplyAttr,
    ReplyCreate, ReplyData, ReplyDirectory, ReplyEmpty, ReplyEntry, ReplyOpen, ReplyWrite, Request,
    TimeOrNow, WriteFlags,
};

use crate::later::{Later, Stall};

const TTL: Duration = Duration::from_secs(3600);
/// What one request may carry: the window of the kernel's readahead.
const REQUEST_BYTES_MAX: u32 = 128 * 1024;
/// Reads ahead that may be under way at once; with the kernel's 12 they would wait for each other.
const BACKGROUND_MAX: u16 = 128;

/// How late answers are; whatever changes the folder waits for the end of a stall as well.
pub(crate) struct Delays {
    pub(crate) read: Duration,
    pub(crate) write: Duration,
    pub(crate) stall: Stall,
    pub(crate) opens: Opens,
}

/// Who opens files.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Opens {
    /// The kernel, without asking: no open can be late.
    ByTheKernel,
    /// The kernel asks each time.
    Asked,
}

/// The file system over one folder.
pub(crate) struct Folder {
    nodes: Mutex<HashMap<u64, Node>>,
    delays: Delays,
    later: Later,
}

/// A file that the kernel knows, open until it has forgotten all its `lookups`.
struct Node {
    file: Arc<File>,
    lookups: u64,
}

impl Folder {
    /// Opens the folder; fails when it is none.
    pub(crate) fn open(path: &Path, delays: Delays) -> io::Result<Self> {
        let root = Node {
            file: Arc::new(File::open(path)?),
            lookups: 1,
        };
        Ok(Self {
            nodes: Mutex::new(HashMap::from([(INodeNo::ROOT.0, root)])),
            delays,
            later: Later::start(),
        })
    }

    /// The open file of a number that the kernel was given.
    fn file(&self, ino: INodeNo) -> Result<Arc<File>, Errno> {
        let nodes = self.nodes();
        let node = nodes.get(&ino.0).ok_or(Errno::ESTALE)?;
        Ok(Arc::clone(&node.file))
    }

    fn path(&self, parent: INodeNo, name: &OsStr) -> Result<PathBuf, Errno> {
        Ok(path_of(&*self.file(parent)?).join(name))
    }

    /// Makes `file` known to the kernel under its own number, which keeps a file that is looked up
    /// twice one file.
    fn introduce(&self, file: File) -> io::Result<FileAttr> {
        let attributes = attributes(&file.metadata()?);
        let mut nodes = self.nodes();
        let node = nodes.entry(attributes.ino.0).or_insert_with(|| Node {
            file: Arc::new(file),
            lookups: 0,
        });
        node.lookups += 1;
        Ok(attributes)
    }

    fn find(&self, parent: INodeNo, name: &OsStr) -> Result<FileAttr, Errno> {
        let path = self.path(parent, name)?;
        let behind = fs::symlink_metadata(&path)?;
        if behind.is_symlink() {
            return Err(Errno::ELOOP); // followed here, it could lead out of the folder
        }
        let mut options = OpenOptions::new();
        options.read(true).write(!behind.is_dir());
        Ok(self.introduce(options.open(&path)?)?)
    }

    fn make(&self, parent: INodeNo, name: &OsStr, mode: u32) -> Result<FileAttr, Errno> {
        let mut options = OpenOptions::new();
        options.read(true).write(true).create_new(true).mode(mode);
        Ok(self.introduce(options.open(self.path(parent, name)?)?)?)
    }

    fn change(
        &self,
        ino: INodeNo,
        mode: Option<u32>,
        size: Option<u64>,
    ) -> Result<FileAttr, Errno> {
        let file = self.file(ino)?;
        if let Some(mode) = mode {
            file.set_permissions(fs::Permissions::from_mode(mode))?;
        }
        if let Some(size) = size {
            file.set_len(size)?;
        }
        Ok(attributes(&file.metadata()?))
    }

    /// Renames, and says so when something is in the way that must not be replaced.
    fn rename_as(&self, from: &Path, to: &Path, flags: RenameFlags) -> Result<(), Errno> {
        if flags.is_empty() {
            return Ok(fs::rename(from, to)?);
        }
        if flags != RenameFlags::RENAME_NOREPLACE {
            return Err(Errno::EINVAL);
        }
        // A link fails where a file is; the second name is gone at once.
        fs::hard_link(from, to)?;
        Ok(fs::remove_file(from)?)
    }

    /// Answers what changed the folder, when the disk has taken it.
    fn answer_change(&self, changed: Result<(), Errno>, reply: ReplyEmpty) {
        let delay = self.delays.stall.delay(Duration::ZERO);
        self.later.answer(delay, move || match changed {
            Ok(()) => reply.ok(),
            Err(cause) => reply.error(cause),
        });
    }

    fn nodes(&self) -> MutexGuard<'_, HashMap<u64, Node>> {
        self.nodes.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[allow(clippy::too_many_arguments)]
impl Filesystem for Folder {
    fn init(&mut self, _req: &Request, config: &mut KernelConfig) -> io::Result<()> {
        let refused = |nearest| io::Error::other(format!("the kernel takes {nearest} at most"));
        config.set_max_write(REQUEST_BYTES_MAX).map_err(refused)?;
        // Or lookups in one folder would wait for each other in the kernel, as on no disk.
        let parallel = config.add_capabilities(InitFlags::FUSE_PARALLEL_DIROPS);
        parallel.map_err(|_| io::Error::other("the kernel cannot look up in parallel"))?;
        let background = config.set_max_background(BACKGROUND_MAX);
        background
            .map(|_| ())
            .map_err(|nearest| refused(nearest.into()))
    }

    fn lookup(&self, _req: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEntry) {
        let found = self.find(parent, name);
        self.later.answer(self.delays.read, move || match found {
            Ok(attributes) => reply.entry(&TTL, &attributes, Generation(0)),
            // Node 0 says "there is none" and is kept, as the kernel keeps it for a disk.
            Err(cause) if i32::from(cause) == i32::from(Errno::ENOENT) => {
                reply.entry(&TTL, &NO_ATTRIBUTES, Generation(0));
            }
            Err(cause) => reply.error(cause),
        });
    }

    fn forget(&self, _req: &Request, ino: INodeNo, count: u64) {
        let mut nodes = self.nodes();
        let Some(node) = nodes.get_mut(&ino.0) else {
            return;
        };
        node.lookups = node.lookups.saturating_sub(count);
        if node.lookups == 0 {
            nodes.remove(&ino.0);
        }
    }

    fn getattr(&self, _req: &Request, ino: INodeNo, _fh: Option<FileHandle>, reply: ReplyAttr) {
        answer_attributes(self.change(ino, None, None), reply);
    }

    fn setattr(
        &self,
        _req: &Request,
        ino: INodeNo,
        mode: Option<u32>,
        _uid: Option<u32>,
        _gid: Option<u32>,
        size: Option<u64>,
        _atime: Option<TimeOrNow>,
        _mtime: Option<TimeOrNow>,
        _ctime: Option<SystemTime>,
        _fh: Option<FileHandle>,
        _crtime: Option<SystemTime>,
        _chgtime: Option<SystemTime>,
        _bkuptime: Option<SystemTime>,
        _flags: Option<BsdFileFlags>,
        reply: ReplyAttr,
    ) {
        let changed = self.change(ino, mode, size);
        let delay = self.delays.stall.delay(Duration::ZERO);
        self.later
            .answer(delay, move || answer_attributes(changed, reply));
    }

    fn open(&self, _req: &Request, _ino: INodeNo, flags: OpenFlags, reply: ReplyOpen) {
        if self.delays.opens == Opens::ByTheKernel {
            // From now on the kernel opens files by itself and keeps their pages.
            return reply.error(Errno::ENOSYS);
        }
        let delay = match flags.acc_mode() {
            OpenAccMode::O_RDONLY => Duration::ZERO,
            OpenAccMode::O_WRONLY | OpenAccMode::O_RDWR => self.delays.stall.delay(Duration::ZERO),
        };
        self.later.answer(delay, move || {
            reply.opened(FileHandle(0), FopenFlags::FOPEN_KEEP_CACHE);
        });
    }

    fn create(
        &self,
        _req: &Request,
        parent: INodeNo,
        name: &OsStr,
        mode: u32,
        umask: u32,
        _flags: i32,
        reply: ReplyCreate,
    ) {
        let made = self.make(parent, name, mode & !umask & 0o7777);
        let delay = self.delays.stall.delay(Duration::ZERO);
        self.later.answer(delay, move || match made {
            Ok(attributes) => {
                let keep = FopenFlags::FOPEN_KEEP_CACHE;
                reply.created(&TTL, &attributes, Generation(0), FileHandle(0), keep);
            }
            Err(cause) => reply.error(cause),
        });
    }

    fn unlink(&self, _req: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEmpty) {
        let removed = self
            .path(parent, name)
            .and_then(|path| Ok(fs::remove_file(path)?));
        self.answer_change(removed, reply);
    }

    fn rename(
        &self,
        _req: &Request,
        parent: INodeNo,
        name: &OsStr,
        newparent: INodeNo,
        newname: &OsStr,
        flags: RenameFlags,
        reply: ReplyEmpty,
    ) {
        let renamed = self.path(parent, name).and_then(|from| {
            let to = self.path(newparent, newname)?;
            self.rename_as(&from, &to, flags)
        });
        self.answer_change(renamed, reply);
    }

    fn fsync(
        &self,
        _req: &Request,
        ino: INodeNo,
        _fh: FileHandle,
        _datasync: bool,
        reply: ReplyEmpty,
    ) {
        let synced = self.file(ino).and_then(|file| Ok(file.sync_data()?));
        self.answer_change(synced, reply);
    }

    fn read(
        &self,
        _req: &Request,
        ino: INodeNo,
        _fh: FileHandle,
        offset: u64,
        size: u32,
        _flags: OpenFlags,
        _lock_owner: Option<LockOwner>,
        reply: ReplyData,
    ) {
        let read = self
            .file(ino)
            .and_then(|file| Ok(read_span(&file, offset, size)?));
        self.later.answer(self.delays.read, move || match read {
            Ok(data) => reply.data(&data),
            Err(cause) => reply.error(cause),
        });
    }

    fn write(
        &self,
        _req: &Request,
        ino: INodeNo,
        _fh: FileHandle,
        offset: u64,
        data: &[u8],
        _write_flags: WriteFlags,
        _flags: OpenFlags,
        _lock_owner: Option<LockOwner>,
        reply: ReplyWrite,
    ) {
        let written = self
            .file(ino)
            .and_then(|file| Ok(file.write_all_at(data, offset)?));
        let bytes = u32::try_from(data.len()).expect("at most REQUEST_BYTES_MAX");
        let delay = self.delays.stall.delay(self.delays.write);
        self.later.answer(delay, move || match written {
            Ok(()) => reply.written(bytes),
            Err(cause) => reply.error(cause),
        });
    }

    fn readdir(
        &self,
        _req: &Request,
        ino: INodeNo,
        _fh: FileHandle,
        offset: u64,
        mut reply: ReplyDirectory,
    ) {
        let listed = self.file(ino).and_then(|file| Ok(list(&file)?));
        let entries = match listed {
            Ok(entries) => entries,
            Err(cause) => return reply.error(cause),
        };
        for (at, (number, kind, name)) in entries.iter().enumerate() {
            let next = at as u64 + 1;
            if next > offset && reply.add(INodeNo(*number), next, *kind, name) {
                break;
            }
        }
        reply.ok();
    }
}

const NO_ATTRIBUTES: FileAttr = FileAttr {
    ino: INodeNo(0),
    size: 0,
    blocks: 0,
    atime: UNIX_EPOCH,
    mtime: UNIX_EPOCH,
    ctime: UNIX_EPOCH,
    crtime: UNIX_EPOCH,
    kind: FileType::RegularFile,
    perm: 0,
    nlink: 0,
    uid: 0,
    gid: 0,
    rdev: 0,
    blksize: 0,
    flags: 0,
};

/// The folder behind, by descriptor: names in it stay right when it is renamed.
fn path_of(folder: &File) -> PathBuf {
    PathBuf::from(format!("/proc/self/fd/{}", folder.as_raw_fd()))
}

fn answer_attributes(found: Result<FileAttr, Errno>, reply: ReplyAttr) {
    match found {
        Ok(attributes) => reply.attr(&TTL, &attributes),
        Err(cause) => reply.error(cause),
    }
}

fn attributes(behind: &Metadata) -> FileAttr {
    FileAttr {
        ino: INodeNo(behind.ino()),
        size: behind.size(),
        blocks: behind.blocks(),
        atime: behind.accessed().unwrap_or(UNIX_EPOCH),
        mtime: behind.modified().unwrap_or(UNIX_EPOCH),
        ctime: behind.modified().unwrap_or(UNIX_EPOCH),
        kind: kind_of(behind.file_type()),
        perm: (behind.mode() & 0o7777) as u16,
        nlink: u32::try_from(behind.nlink()).unwrap_or(u32::MAX),
        uid: behind.uid(),
        gid: behind.gid(),
        blksize: 4096,
        ..NO_ATTRIBUTES
    }
}

fn kind_of(kind: fs::FileType) -> FileType {
    FileType::from_std(kind).unwrap_or(FileType::RegularFile)
}

fn read_span(file: &File, offset: u64, size: u32) -> io::Result<Vec<u8>> {
    let mut data = vec![0; size as usize];
    let mut filled = 0;
    while filled < data.len() {
        match file.read_at(&mut data[filled..], offset + filled as u64) {
            Ok(0) => break,
            Ok(bytes) => filled += bytes,
            Err(cause) if cause.kind() == io::ErrorKind::Interrupted => {}
            Err(cause) => return Err(cause),
        }
    }
    data.truncate(filled);
    Ok(data)
}

fn list(folder: &File) -> io::Result<Vec<(u64, FileType, std::ffi::OsString)>> {
    let mut entries = Vec::new();
    for entry in fs::read_dir(path_of(folder))? {
        let entry = entry?;
        let kind = kind_of(entry.file_type()?);
        entries.push((entry.metadata()?.ino(), kind, entry.file_name()));
    }
    // The kernel comes back with a place in the list: the order must be the same then.
    entries.sort_by(|one, other| one.2.cmp(&other.2));
    Ok(entries)
}
