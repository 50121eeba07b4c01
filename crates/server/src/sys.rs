//! The few system calls that no crate wraps safely. The only room of this crate with `unsafe`.

use std::ffi::c_void;
use std::io;
use std::mem::{needs_drop, size_of, size_of_val};
use std::ops::Deref;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};
use std::ptr::NonNull;
use std::sync::Arc;

use rustix::fs::SealFlags;
use rustix::mm::{MapFlags, ProtFlags};
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;

use crate::stats::{DriverStats, PoolStats, RouteStats};
use crate::transport::{PlainSocket, Transport};

/// Asks the kernel to report a connection only once it has sent something, or after `secs` seconds.
pub(crate) fn set_defer_accept(listener: BorrowedFd<'_>, secs: u32) -> io::Result<()> {
    let value = libc::c_int::try_from(secs).unwrap_or(libc::c_int::MAX);
    // SAFETY: the descriptor is open for the borrow, and the option value is a live int of the size given.
    let result = unsafe {
        libc::setsockopt(
            listener.as_raw_fd(),
            libc::IPPROTO_TCP,
            libc::TCP_DEFER_ACCEPT,
            (&raw const value).cast(),
            size_of::<libc::c_int>() as libc::socklen_t,
        )
    };
    if result == 0 {
        Ok(())
    } else {
        Err(io::Error::last_os_error())
    }
}

/// The user and the process at the other end of a connected unix socket; the process is 0 where it is hidden
/// from this one, which rustix's type for it cannot say.
pub(crate) fn peer_credentials(socket: BorrowedFd<'_>) -> io::Result<(u32, u32)> {
    let mut peer = libc::ucred {
        pid: 0,
        uid: libc::uid_t::MAX,
        gid: libc::gid_t::MAX,
    };
    let mut bytes = size_of::<libc::ucred>() as libc::socklen_t;
    // SAFETY: the descriptor is open for the borrow, and the option is written to a live value of the size given.
    let result = unsafe {
        libc::getsockopt(
            socket.as_raw_fd(),
            libc::SOL_SOCKET,
            libc::SO_PEERCRED,
            (&raw mut peer).cast(),
            &raw mut bytes,
        )
    };
    if result == 0 {
        Ok((peer.uid, u32::try_from(peer.pid).unwrap_or(0)))
    } else {
        Err(io::Error::last_os_error())
    }
}

/// Blocks SIGPIPE in the calling thread: sendfile has no flag against it, and an application may have
/// set it back to its deadly default.
pub(crate) fn block_sigpipe() {
    let mut set = std::mem::MaybeUninit::<libc::sigset_t>::uninit();
    // SAFETY: the pointer is to a set of our own; sigemptyset initialises it.
    unsafe { libc::sigemptyset(set.as_mut_ptr()) };
    // SAFETY: the set is initialised, SIGPIPE is a signal.
    unsafe { libc::sigaddset(set.as_mut_ptr(), libc::SIGPIPE) };
    // SAFETY: the set is initialised; the old mask is not asked for.
    unsafe { libc::pthread_sigmask(libc::SIG_BLOCK, set.as_ptr(), std::ptr::null_mut()) };
}

/// Gives SIGTERM and SIGINT their default action back: they end the process.
pub(crate) fn restore_signals() {
    for signal in [libc::SIGTERM, libc::SIGINT] {
        // SAFETY: a default action needs no handler that could be unsafe.
        unsafe { libc::signal(signal, libc::SIG_DFL) };
    }
}

/// Bytes that a socket's client has not acknowledged (TCP), or not read (unix), with the kernel's overhead
/// for the latter; 0 when the kernel does not say.
pub(crate) fn unacknowledged(socket: &PlainSocket) -> u64 {
    let mut bytes: libc::c_int = 0;
    // SAFETY: the socket's descriptor is open for the borrow, and TIOCOUTQ writes one int to a live int.
    let result = unsafe { libc::ioctl(socket.as_raw_fd(), libc::TIOCOUTQ, &raw mut bytes) };
    if result == 0 {
        u64::try_from(bytes).unwrap_or(0)
    } else {
        0
    }
}

/// Watches a listening socket with the current runtime.
pub(crate) fn watch_listener(listener: OwnedFd) -> io::Result<AsyncFd<OwnedFd>> {
    // SAFETY: an OwnedFd is open for as long as it lives, and it is always the same descriptor.
    let watched = unsafe { AsyncFd::register_with_interest(listener, Interest::READABLE) };
    watched.map_err(io::Error::from)
}

/// Watches a connection's socket with the current runtime.
pub(crate) fn watch_socket(socket: Arc<PlainSocket>) -> io::Result<Transport> {
    let interest = Interest::READABLE | Interest::WRITABLE;
    // SAFETY: a `PlainSocket` owns its descriptor, never changes it, and closes it only when the last clone is gone.
    let watched = unsafe { AsyncFd::register_with_interest(socket, interest) };
    watched.map(Transport::Plain).map_err(io::Error::from)
}

/// Gives the calling thread the least claim there is on processors and disks.
pub(crate) fn yield_to_all() {
    /// IOPRIO_WHO_PROCESS and the class IOPRIO_CLASS_IDLE at its place, linux/ioprio.h.
    const PROCESS: libc::c_int = 1;
    const IDLE: libc::c_int = 3 << 13;
    // On Linux a priority is a thread's, and 0 the calling one. Where it is refused, it stays.
    let _ = rustix::process::setpriority_process(None, 19);
    // SAFETY: the call takes three numbers and touches no memory; 0 is the calling thread.
    unsafe { libc::syscall(libc::SYS_ioprio_set, PROCESS, 0, IDLE) };
}

/// Mapped memory that begins as zeros, and that other processes may write at any time.
pub(crate) struct Mapping {
    first: NonNull<c_void>,
    bytes: usize,
}

// SAFETY: it only keeps the memory mapped; what is read and written there is `Sync` by `Placeable`.
unsafe impl Send for Mapping {}
// SAFETY: as above.
unsafe impl Sync for Mapping {}

/// What may lie in mapped memory.
///
/// # Safety
/// A type of fixed layout (`repr(C)`) made of nothing but atomics, for which every pattern of bits is valid,
/// and which needs no drop.
pub(crate) unsafe trait Placeable: Sync {}

// SAFETY: fixed layout, nothing but atomic numbers.
unsafe impl Placeable for DriverStats {}
// SAFETY: as above.
unsafe impl Placeable for PoolStats {}
// SAFETY: as above.
unsafe impl Placeable for RouteStats {}

/// Something that lies in mapped memory, which stays for as long as this does.
pub(crate) struct Placed<T: ?Sized> {
    first: NonNull<T>,
    mapping: Arc<Mapping>,
}

// SAFETY: it is used like an `Arc<T>` whose `T` is never moved out.
unsafe impl<T: ?Sized + Sync> Send for Placed<T> {}
// SAFETY: as above.
unsafe impl<T: ?Sized + Sync> Sync for Placed<T> {}

impl Mapping {
    /// Memory of this process alone.
    pub(crate) fn private(bytes: usize) -> io::Result<Arc<Mapping>> {
        let (protection, flags) = (ProtFlags::READ | ProtFlags::WRITE, MapFlags::PRIVATE);
        // SAFETY: the kernel chooses a place where nothing is.
        let first = unsafe {
            rustix::mm::mmap_anonymous(
                std::ptr::null_mut(),
                bytes,
                protection,
                flags | MapFlags::POPULATE,
            )
        };
        Mapping::at(first?, bytes)
    }

    /// A part of a file of memory (memfd), beginning at a page.
    ///
    /// # Errors
    /// Beside the kernel's: `InvalidInput` for a file that could become shorter, which would end every process
    /// that reads behind its end, `UnexpectedEof` for one that ends before the part does.
    pub(crate) fn shared(
        file: BorrowedFd<'_>,
        offset: u64,
        bytes: usize,
    ) -> io::Result<Arc<Mapping>> {
        let seals = rustix::fs::fcntl_get_seals(file)?;
        if !seals.contains(SealFlags::SHRINK) {
            return Err(io::ErrorKind::InvalidInput.into());
        }
        let file_bytes = u64::try_from(rustix::fs::fstat(file)?.st_size).unwrap_or(0);
        if offset
            .checked_add(bytes as u64)
            .is_none_or(|end| end > file_bytes)
        {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        let (protection, flags) = (ProtFlags::READ | ProtFlags::WRITE, MapFlags::SHARED);
        // SAFETY: the kernel chooses a place where nothing is, and the file cannot become shorter.
        let first = unsafe {
            rustix::mm::mmap(
                std::ptr::null_mut(),
                bytes,
                protection,
                // All pages now, so that no request waits for one later.
                flags | MapFlags::POPULATE,
                file,
                offset,
            )
        };
        Mapping::at(first?, bytes)
    }

    fn at(first: *mut c_void, bytes: usize) -> io::Result<Arc<Mapping>> {
        let first = NonNull::new(first).ok_or(io::ErrorKind::OutOfMemory)?;
        Ok(Arc::new(Mapping { first, bytes }))
    }

    /// The `len` things that lie `offset` bytes from its start. `None`: they do not fit, or not there.
    pub(crate) fn place<T: Placeable>(
        self: &Arc<Self>,
        offset: usize,
        len: usize,
    ) -> Option<Placed<[T]>> {
        const { assert!(!needs_drop::<T>()) };
        let end = len.checked_mul(size_of::<T>())?.checked_add(offset)?;
        if end > self.bytes {
            return None;
        }
        // SAFETY: the offset is not behind the mapping's end.
        let first = unsafe { self.first.cast::<u8>().add(offset) }.cast::<T>();
        first.is_aligned().then(|| Placed {
            first: NonNull::slice_from_raw_parts(first, len),
            mapping: Arc::clone(self),
        })
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: the place is this mapping's own; what lies there keeps the mapping, so nobody refers to it.
        let unmapped = unsafe { rustix::mm::munmap(self.first.as_ptr(), self.bytes) };
        debug_assert!(unmapped.is_ok(), "a mapping was not the kernel's");
    }
}

impl<T: Placeable> Placed<[T]> {
    /// One of them on its own.
    pub(crate) fn one(&self, index: usize) -> Option<Placed<T>> {
        Some(Placed {
            first: NonNull::from(self.get(index)?),
            mapping: Arc::clone(&self.mapping),
        })
    }
}

impl<T: ?Sized> Deref for Placed<T> {
    type Target = T;

    fn deref(&self) -> &T {
        // SAFETY: it was placed within the mapping and aligned; the mapping is kept, any bits are valid, and
        // all of it is atomics.
        unsafe { self.first.as_ref() }
    }
}

/// Makes a classic BPF program choose the socket of a new connection among those that share the address by
/// SO_REUSEPORT, by their place in the order in which they began to listen. Where it gives none, the hash
/// chooses.
pub(crate) fn set_reuseport_program(
    listener: BorrowedFd<'_>,
    program: &[libc::sock_filter],
) -> io::Result<()> {
    let len = libc::c_ushort::try_from(program.len()).map_err(io::Error::other)?;
    let program = libc::sock_fprog {
        len,
        // The kernel only reads it.
        filter: program.as_ptr().cast_mut(),
    };
    set_socket_option(listener, libc::SO_ATTACH_REUSEPORT_CBPF, &program)
}

/// Leaves the choice to the hash again.
pub(crate) fn remove_reuseport_program(listener: BorrowedFd<'_>) -> io::Result<()> {
    let unused: libc::c_int = 0;
    set_socket_option(listener, libc::SO_DETACH_REUSEPORT_BPF, &unused)
}

fn set_socket_option<T>(socket: BorrowedFd<'_>, option: libc::c_int, value: &T) -> io::Result<()> {
    // SAFETY: the descriptor is open for the borrow, and the value is alive and of the size given.
    let result = unsafe {
        libc::setsockopt(
            socket.as_raw_fd(),
            libc::SOL_SOCKET,
            option,
            std::ptr::from_ref(value).cast(),
            size_of::<T>() as libc::socklen_t,
        )
    };
    if result == 0 {
        Ok(())
    } else {
        Err(io::Error::last_os_error())
    }
}

/// Connections that wait in a TCP listener's accept queue, and how many may.
pub(crate) fn accept_queue(listener: BorrowedFd<'_>) -> io::Result<(u32, u32)> {
    /// Numbers of `struct tcp_info`: 8 bytes of flags, then `tcpi_rto`, `ato`, `snd_mss`, `rcv_mss`, and
    /// these two, which for a listener say this (tcp(7), `tcp_get_info`).
    const UNACKED: usize = 6;
    const SACKED: usize = 7;
    let mut info = [0_u32; 8];
    let mut bytes = size_of_val(&info) as libc::socklen_t;
    // SAFETY: the descriptor is open for the borrow; the kernel writes at most `bytes` bytes of whole
    // numbers into an array of numbers, and their count into `bytes`, both alive.
    let result = unsafe {
        libc::getsockopt(
            listener.as_raw_fd(),
            libc::IPPROTO_TCP,
            libc::TCP_INFO,
            (&raw mut info).cast(),
            &raw mut bytes,
        )
    };
    if result == 0 {
        Ok((info[UNACKED], info[SACKED]))
    } else {
        Err(io::Error::last_os_error())
    }
}

/// Takes over an open descriptor that is known by its number only: one that the service manager or an
/// earlier program of this process has left. It is closed for programs started from here on.
///
/// # Errors
/// Nothing is open under the number, or it belongs to the standard streams.
pub(crate) fn adopt_fd(number: RawFd) -> io::Result<OwnedFd> {
    if number <= libc::STDERR_FILENO {
        return Err(io::ErrorKind::InvalidInput.into());
    }
    // SAFETY: fcntl with F_SETFD takes numbers only, and refuses one under which nothing is open.
    if unsafe { libc::fcntl(number, libc::F_SETFD, libc::FD_CLOEXEC) } != 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: it is open, and by contract it was left to this process to own: each number is taken once.
    Ok(unsafe { OwnedFd::from_raw_fd(number) })
}

/// Whether a program that this process becomes has a descriptor too.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Inherited {
    Yes,
    No,
}

/// Says so for each of them.
pub(crate) fn set_inherited(all: &[RawFd], inherited: Inherited) -> io::Result<()> {
    let flags = match inherited {
        Inherited::Yes => 0,
        Inherited::No => libc::FD_CLOEXEC,
    };
    for raw in all {
        // SAFETY: the call changes a flag of a number, whatever it stands for.
        if unsafe { libc::fcntl(*raw, libc::F_SETFD, flags) } < 0 {
            return Err(io::Error::last_os_error());
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_only_what_fits() {
        let page = Mapping::private(4_096).unwrap();
        let bytes = size_of::<PoolStats>();
        let check = |offset: usize, len: usize, expect: Option<usize>| {
            let placed = page.place::<PoolStats>(offset, len);
            assert_eq!(
                placed.map(|placed| placed.len()),
                expect,
                "{len} at {offset}"
            );
        };
        let whole = 4_096 / bytes;
        check(0, whole, Some(whole));
        check(bytes, whole - 1, Some(whole - 1));
        check(4_096, 0, Some(0));
        check(bytes, whole, None);
        check(8, 1, None);
        check(4_096 + bytes, 0, None);
        check(bytes, usize::MAX / bytes, None);
        check(0, usize::MAX, None);
    }

    #[test]
    fn what_is_placed_keeps_the_memory() {
        let placed = Mapping::private(4_096).unwrap().place(0, 2).unwrap();
        let second: Placed<PoolStats> = placed.one(1).unwrap();
        assert!(placed.one(2).is_none());
        drop(placed);
        let running = &second.running;
        running.store(7, std::sync::atomic::Ordering::Relaxed);
        assert_eq!(running.load(std::sync::atomic::Ordering::Relaxed), 7);
    }
}
