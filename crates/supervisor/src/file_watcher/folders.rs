//! Folders that are watched through `notify` (inotify), one watch for each: says that something has changed, not what.
//!
//! `notify` could watch a tree by itself, but only all of it: environments, `node_modules` and version control would
//! use up the watches that the kernel allows a user. So the folders that a snapshot enters are watched, each anew with
//! each snapshot: a watch is of an inode, and another folder may have the name by now.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::sync::Arc;

use nix::sys::signal::{SigSet, SigmaskHow};
use notify::event::{AccessKind, AccessMode, CreateKind, ModifyKind};
use notify::{Error, ErrorKind, Event, EventKind, RecommendedWatcher, RecursiveMode, Watcher};
use rustix::event::EventfdFlags;
use rustix::io::Errno;

/// The kernel's watches.
#[derive(Debug)]
pub(super) struct FolderWatcher {
    notify: RecommendedWatcher,
    /// Readable when something was reported.
    wake: Arc<OwnedFd>,
}

impl FolderWatcher {
    /// # Errors
    /// The kernel has no inotify, or no more of it for this user.
    pub(super) fn new() -> Result<Self, Error> {
        let flags = EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK;
        let wake = rustix::event::eventfd(0, flags).map_err(|errno| Error::io(errno.into()))?;
        let wake = Arc::new(wake);
        let notify = start_notify(Arc::clone(&wake))?;
        Ok(FolderWatcher { notify, wake })
    }

    /// Watches a folder; gives whether it is one that can be read.
    ///
    /// # Errors
    /// The kernel watches no more folders for this user.
    pub(super) fn watch(&mut self, dir: &Path) -> Result<bool, Error> {
        match self.notify.watch(dir, RecursiveMode::NonRecursive) {
            Err(error) if is_of_folder(&error) => Ok(false),
            watched => watched.map(|()| true),
        }
    }

    /// Readable when something has changed.
    pub(super) fn fd(&self) -> BorrowedFd<'_> {
        self.wake.as_fd()
    }

    /// Whether something has changed since the last call.
    pub(super) fn take_report(&self) -> bool {
        rustix::io::read(&self.wake, &mut [0; 8]).is_ok()
    }
}

/// The thread of `notify` handles no signals: they are the supervisor's.
fn start_notify(wake: Arc<OwnedFd>) -> Result<RecommendedWatcher, Error> {
    let before = SigSet::all().thread_swap_mask(SigmaskHow::SIG_BLOCK);
    let started = notify::recommended_watcher(move |report: Result<Event, Error>| {
        // After an error reports may be missing: anything may have changed.
        if report.map_or(true, |event| matters(&event)) {
            // It fails only when the counter is full, and then the supervisor is woken anyway.
            let _ = rustix::io::write(&wake, &1_u64.to_ne_bytes());
        }
    });
    // The mask of this thread is put back; that of the new one stays as it was inherited.
    if let Ok(before) = before {
        let _ = before.thread_set_mask();
    }
    started
}

/// A file that is being written does not matter before it is closed.
fn matters(event: &Event) -> bool {
    match event.kind {
        // A new file is reported again when it is closed. A link is never closed.
        EventKind::Create(CreateKind::File) => event.paths.iter().any(|path| is_link(path)),
        EventKind::Create(_) | EventKind::Remove(_) => true,
        // Before it is closed it is half a file, which is no code.
        EventKind::Access(kind) => kind == AccessKind::Close(AccessMode::Write),
        EventKind::Modify(kind) => matches!(kind, ModifyKind::Name(_)),
        _ => event.need_rescan(),
    }
}

/// A symbolic link, or another name of a file.
fn is_link(path: &Path) -> bool {
    path.symlink_metadata()
        .is_ok_and(|found| found.is_symlink() || found.nlink() > 1)
}

/// The folder is gone, is none, or may not be read.
fn is_of_folder(error: &Error) -> bool {
    // That is no reason to watch the others less.
    match &error.kind {
        ErrorKind::PathNotFound => true,
        ErrorKind::Io(error) => matches!(
            Errno::from_io_error(error),
            Some(Errno::NOENT | Errno::NOTDIR | Errno::ACCESS | Errno::LOOP | Errno::NAMETOOLONG)
        ),
        _ => false,
    }
}
