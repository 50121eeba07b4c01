//! What the standard library and well-kept crates do not give of Linux: a few system calls, memory that processes
//! share, unnamed files; and what happens when an invariant does not hold.
//!
//! Each function takes and gives types that cannot be misused, so that no other crate below the server needs `unsafe`.
//! Must not know what it is used for.

#![allow(unsafe_code)]

pub mod host;
mod invariant;
mod unnamed;

use std::cell::Cell;
use std::io;
use std::mem::{MaybeUninit, needs_drop, size_of};
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};
use std::sync::atomic::AtomicU32;

use memmap2::{Advice, MmapOptions, MmapRaw};
use nix::sys::signal::{SigSet, SigmaskHow, Signal};
use rustix::fs::{Mode, OFlags, SealFlags};

pub use invariant::{lock, violated};
pub use unnamed::unnamed_file;
/// More than what stands up to `FDSize` in /proc/self/status: eleven short lines.
const STATUS_BYTES: usize = 4_096;
/// How many descriptors are looked at where the kernel does not say how many there may be.
const DESCRIPTORS_GUESSED: RawFd = 65_536;

/// Asks the kernel to report a connection only once it has sent something, or after `secs` seconds.
pub fn set_defer_accept(listener: BorrowedFd<'_>, secs: u32) -> io::Result<()> {
    let value = libc::c_int::try_from(secs).unwrap_or(libc::c_int::MAX);
    set_option(listener, libc::IPPROTO_TCP, libc::TCP_DEFER_ACCEPT, &value)
}

/// The user and the process at the other end of a connected unix socket; the process is 0 where it is hidden
/// from this one, which rustix's type for it cannot say.
pub fn peer_credentials(socket: BorrowedFd<'_>) -> io::Result<(u32, u32)> {
    let mut peer = libc::ucred {
        pid: 0,
        uid: libc::uid_t::MAX,
        gid: libc::gid_t::MAX,
    };
    option(socket, libc::SOL_SOCKET, libc::SO_PEERCRED, &mut peer)?;
    Ok((peer.uid, u32::try_from(peer.pid).unwrap_or(0)))
}

/// Reads a socket option of numbers into a value that has them already.
fn option<T: Copy>(
    socket: BorrowedFd<'_>,
    level: libc::c_int,
    option: libc::c_int,
    value: &mut T,
) -> io::Result<()> {
    let mut bytes = size_of::<T>() as libc::socklen_t;
    let value = std::ptr::from_mut(value).cast();
    // SAFETY: the descriptor is open for the borrow; the kernel writes at most `bytes` bytes of whole
    // numbers into a value of that size, and their count into `bytes`, both alive.
    let result =
        unsafe { libc::getsockopt(socket.as_raw_fd(), level, option, value, &raw mut bytes) };
    succeeded(result)
}

fn set_option<T: Copy>(
    socket: BorrowedFd<'_>,
    level: libc::c_int,
    option: libc::c_int,
    value: &T,
) -> io::Result<()> {
    let bytes = size_of::<T>() as libc::socklen_t;
    let value = std::ptr::from_ref(value).cast();
    // SAFETY: the descriptor is open for the borrow, and the value is alive and of the size given.
    succeeded(unsafe { libc::setsockopt(socket.as_raw_fd(), level, option, value, bytes) })
}

/// What a system call says that gives 0 or leaves an error.
fn succeeded(result: libc::c_int) -> io::Result<()> {
    match result {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

/// Blocks SIGPIPE in the calling thread: sendfile has no flag against it, and an application may have
/// set it back to its deadly default.
pub fn block_sigpipe() {
    let _ = SigSet::from(Signal::SIGPIPE).thread_block();
}

/// Gives SIGTERM and SIGINT their default action back: they end the process.
pub fn restore_signals() {
    for signal in [libc::SIGTERM, libc::SIGINT] {
        // SAFETY: a default action needs no handler that could be unsafe.
        unsafe { libc::signal(signal, libc::SIG_DFL) };
    }
}

/// What a signal does in this process.
pub struct SignalAction {
    signal: libc::c_int,
    action: libc::sigaction,
    /// The handler that has taken its place.
    replaced_by: libc::sighandler_t,
}

impl SignalAction {
    /// What it does now.
    pub fn of(signal: libc::c_int) -> Self {
        let action = signal_action(signal);
        Self {
            signal,
            action,
            replaced_by: action.sa_sigaction,
        }
    }

    /// Another handler has taken its place by now.
    pub fn is_replaced(&mut self) {
        self.replaced_by = signal_action(self.signal).sa_sigaction;
    }

    /// Takes its place back, unless somebody else has taken it. Made to be called in a forked child.
    pub fn restore(&self) {
        if signal_action(self.signal).sa_sigaction != self.replaced_by {
            return;
        }
        // SAFETY: the action was this signal's in this very program, so its handler is still there.
        unsafe { libc::sigaction(self.signal, &raw const self.action, std::ptr::null_mut()) };
    }
}

fn signal_action(signal: libc::c_int) -> libc::sigaction {
    let mut action = MaybeUninit::<libc::sigaction>::zeroed();
    // SAFETY: the action is only asked for, and written to a place of its size.
    unsafe { libc::sigaction(signal, std::ptr::null(), action.as_mut_ptr()) };
    // SAFETY: zeros are an action too (the default one), where the kernel has refused to tell.
    unsafe { action.assume_init() }
}

thread_local! {
    /// The mask of a thread that is in the middle of a fork.
    static MASK: Cell<Option<SigSet>> = const { Cell::new(None) };
}

/// Holds back all signals of the calling thread.
pub fn hold_signals() {
    let before = SigSet::all().thread_swap_mask(SigmaskHow::SIG_SETMASK);
    MASK.set(before.ok());
}

/// Gives the calling thread the signals back that `hold_signals` holds; in a forked child too.
pub fn release_signals() {
    if let Some(mask) = MASK.take() {
        let _ = mask.thread_set_mask();
    }
}

/// Has every fork of this process call these, those of extension modules in C included: `prepare` before it,
/// `parent` and `child` after it, all in the thread that forks. They cannot be taken back.
///
/// In a child nothing may be called but what is safe in a signal handler.
pub fn at_fork(
    prepare: extern "C" fn(),
    parent: extern "C" fn(),
    child: extern "C" fn(),
) -> io::Result<()> {
    // Their type is that of the declaration, which calls them `unsafe`.
    let hook = |hook: extern "C" fn()| Some(hook as unsafe extern "C" fn());
    // SAFETY: functions of this module stay where they are: neither Python nor anybody else unloads it.
    let failed = unsafe { libc::pthread_atfork(hook(prepare), hook(parent), hook(child)) };
    match failed {
        0 => Ok(()),
        number => Err(io::Error::from_raw_os_error(number)),
    }
}

/// A number in memory that the kernel wipes in every process that is forked from this one.
pub fn wiped_on_fork() -> io::Result<&'static AtomicU32> {
    let page = Box::leak(Box::new(Mapping::private(rustix::param::page_size(), 0)?));
    // Kernels before 4.14 do not know it: there only children that run the hooks are told apart.
    // SAFETY: the pages are the mapping's own, and stay as they are in this process.
    let _ = unsafe {
        let advice = rustix::mm::Advice::LinuxWipeOnFork;
        rustix::mm::madvise(page.0.as_mut_ptr().cast(), page.0.len(), advice)
    };
    let first = page.place(0, 1).and_then(<[AtomicU32]>::first);
    first.ok_or_else(|| io::ErrorKind::OutOfMemory.into())
}

/// Closes every descriptor of a forked child that `is_ours` says. Allocates nothing.
pub fn close_all_of(is_ours: impl Fn(BorrowedFd<'_>) -> bool) {
    // The standard streams are never the server's. Each number is tried: the kernel makes an entry of
    // /proc/self/fd in ten times the time that this takes (116 ms against 10 for 8,000 connections).
    for number in libc::STDERR_FILENO + 1..descriptors_end() {
        // SAFETY: the call asks for a flag of a number, whatever it stands for.
        if unsafe { libc::fcntl(number, libc::F_GETFD) } < 0 {
            continue;
        }
        // SAFETY: it is open, and a child has no other thread that could close it.
        if is_ours(unsafe { BorrowedFd::borrow_raw(number) }) {
            // SAFETY: its owner was a thread of the parent: no code of the child uses it or closes it again.
            unsafe { libc::close(number) };
        }
    }
}

/// No descriptor of this process has this number or a higher one. Allocates nothing.
fn descriptors_end() -> RawFd {
    // Without /proc the lowest ones, where most are.
    table_len().unwrap_or(DESCRIPTORS_GUESSED)
}

/// How many descriptors the kernel's table for this process has room for, by /proc. A fork makes it as small as
/// the highest open number allows.
fn table_len() -> Option<RawFd> {
    let flags = OFlags::RDONLY | OFlags::CLOEXEC;
    let file = rustix::fs::open(c"/proc/self/status", flags, Mode::empty()).ok()?;
    let mut space = [0_u8; STATUS_BYTES];
    let bytes = rustix::io::read(&file, &mut space).ok()?;
    let name = b"\nFDSize:";
    let at = memchr::memmem::find(&space[..bytes], name)? + name.len();
    let number = space[at..bytes].split(|byte| *byte == b'\n').next()?;
    std::str::from_utf8(number).ok()?.trim().parse().ok()
}

/// Leaves without a word: nothing of what the process has registered for its end runs.
pub fn leave_now(code: i32) -> ! {
    // SAFETY: the call takes a number and does not come back.
    unsafe { libc::_exit(code) }
}

/// Bytes that a socket's client has not acknowledged (TCP), or not read (unix), with the kernel's overhead
/// for the latter; 0 when the kernel does not say.
pub fn unacknowledged(socket: BorrowedFd<'_>) -> u64 {
    let mut bytes: libc::c_int = 0;
    // SAFETY: the socket's descriptor is open for the borrow, and TIOCOUTQ writes one int to a live int.
    let result = unsafe { libc::ioctl(socket.as_raw_fd(), libc::TIOCOUTQ, &raw mut bytes) };
    if result == 0 {
        u64::try_from(bytes).unwrap_or(0)
    } else {
        0
    }
}

/// Gives the calling thread the least claim there is on processors and disks.
pub fn yield_to_all() {
    /// IOPRIO_WHO_PROCESS and the class IOPRIO_CLASS_IDLE at its place, linux/ioprio.h.
    const PROCESS: libc::c_int = 1;
    const IDLE: libc::c_int = 3 << 13;
    // On Linux a priority is a thread's, and 0 the calling one. Where it is refused, it stays.
    let _ = rustix::process::setpriority_process(None, 19);
    // SAFETY: the call takes three numbers and touches no memory; 0 is the calling thread.
    unsafe { libc::syscall(libc::SYS_ioprio_set, PROCESS, 0, IDLE) };
}

/// Mapped memory that begins as zeros, and that other processes may write at any time. What is placed there is
/// borrowed from it; what a process needs until its end is borrowed from a mapping that is leaked.
pub struct Mapping(MmapRaw);

/// What may lie in mapped memory.
///
/// # Safety
/// A type of fixed layout (`repr(C)`) made of nothing but atomics, for which every pattern of bits is valid,
/// and which needs no drop.
pub unsafe trait Placeable: Sync {}

// SAFETY: fixed layout, one atomic number.
unsafe impl Placeable for AtomicU32 {}

impl Mapping {
    /// Memory of this process alone. Its first `ready` bytes are there at once, so that no request waits for them later;
    /// of the others a page takes memory once it is written.
    pub fn private(bytes: usize, ready: usize) -> io::Result<Mapping> {
        let mapping = Mapping(MmapOptions::new().len(bytes).map_anon()?.into());
        mapping.make_ready(ready);
        Ok(mapping)
    }

    /// A part of a file of memory (memfd), beginning at a page; with `ready` as for [`Mapping::private`].
    ///
    /// # Errors
    /// Beside the kernel's: `InvalidInput` for a file that could become shorter, which would end every process
    /// that reads behind its end, `UnexpectedEof` for one that ends before the part does.
    pub fn shared(
        file: BorrowedFd<'_>,
        offset: u64,
        bytes: usize,
        ready: usize,
    ) -> io::Result<Mapping> {
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
        let mut options = MmapOptions::new();
        let mapping = Mapping(options.offset(offset).len(bytes).map_raw(&file)?);
        mapping.make_ready(ready);
        Ok(mapping)
    }

    fn make_ready(&self, bytes: usize) {
        let bytes = bytes.min(self.0.len());
        // Linux before 5.14 does not know how: there, the first to write a page waits for it.
        let _ = self.0.advise_range(Advice::PopulateWrite, 0, bytes);
    }

    /// The `len` things that lie `offset` bytes from its start. `None`: they do not fit, or not there.
    pub fn place<T: Placeable>(&self, offset: usize, len: usize) -> Option<&[T]> {
        const { assert!(!needs_drop::<T>()) };
        let end = len.checked_mul(size_of::<T>())?.checked_add(offset)?;
        if end > self.0.len() {
            return None;
        }
        // SAFETY: the offset is not behind the mapping's end.
        let first = unsafe { self.0.as_mut_ptr().add(offset) }.cast::<T>();
        if !first.is_aligned() {
            return None;
        }
        // SAFETY: they lie within the mapping, which the borrow keeps; any bits are valid, and all is atomics.
        Some(unsafe { std::slice::from_raw_parts(first, len) })
    }
}

/// Makes a classic BPF program choose the socket of a new connection among those that share the address by
/// SO_REUSEPORT, by their place in the order in which they began to listen. Where it gives none, the hash
/// chooses.
pub fn set_reuseport_program(
    listener: BorrowedFd<'_>,
    program: &[libc::sock_filter],
) -> io::Result<()> {
    let len = libc::c_ushort::try_from(program.len()).map_err(io::Error::other)?;
    let program = libc::sock_fprog {
        len,
        // The kernel only reads it.
        filter: program.as_ptr().cast_mut(),
    };
    let option = libc::SO_ATTACH_REUSEPORT_CBPF;
    set_option(listener, libc::SOL_SOCKET, option, &program)
}

/// Leaves the choice to the hash again.
pub fn remove_reuseport_program(listener: BorrowedFd<'_>) -> io::Result<()> {
    let unused: libc::c_int = 0;
    let option = libc::SO_DETACH_REUSEPORT_BPF;
    set_option(listener, libc::SOL_SOCKET, option, &unused)
}

/// Connections that wait in a TCP listener's accept queue, and how many may.
pub fn accept_queue(listener: BorrowedFd<'_>) -> io::Result<(u32, u32)> {
    /// Numbers of `struct tcp_info`: 8 bytes of flags, then `tcpi_rto`, `ato`, `snd_mss`, `rcv_mss`, and
    /// these two, which for a listener say this (tcp(7), `tcp_get_info`).
    const UNACKED: usize = 6;
    const SACKED: usize = 7;
    let mut info = [0_u32; 8];
    option(listener, libc::IPPROTO_TCP, libc::TCP_INFO, &mut info)?;
    Ok((info[UNACKED], info[SACKED]))
}

/// Takes over an open descriptor that is known by its number only: one that the service manager or an
/// earlier program of this process has left. It is closed for programs started from here on.
///
/// # Errors
/// Nothing is open under the number, or it belongs to the standard streams.
pub fn adopt_fd(number: RawFd) -> io::Result<OwnedFd> {
    if number <= libc::STDERR_FILENO {
        return Err(io::ErrorKind::InvalidInput.into());
    }
    // SAFETY: fcntl with F_SETFD takes numbers only, and refuses one under which nothing is open.
    succeeded(unsafe { libc::fcntl(number, libc::F_SETFD, libc::FD_CLOEXEC) })?;
    // SAFETY: it is open, and by contract it was left to this process to own: each number is taken once.
    Ok(unsafe { OwnedFd::from_raw_fd(number) })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_only_what_fits() {
        let page = Mapping::private(4_096, 4_096).unwrap();
        let bytes = size_of::<AtomicU32>();
        let check = |offset: usize, len: usize, expect: Option<usize>| {
            let placed = page.place::<AtomicU32>(offset, len);
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
        check(2, 1, None);
        check(4_096 + bytes, 0, None);
        check(bytes, usize::MAX / bytes, None);
        check(0, usize::MAX, None);
    }

    #[test]
    fn knows_an_end_of_the_descriptors() {
        let file = std::fs::File::open("/dev/null").unwrap();
        assert!(table_len().is_some_and(|len| len > file.as_raw_fd()));
    }
}
