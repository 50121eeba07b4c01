//! The ring of the kernel behind a safe door: steps go in, completions come out, and what the kernel reads or
//! writes lives as long as it may do so. The one file of this crate with `unsafe`.
//!
//! Takes steps by places (each place is a slot of the ring's own table of files: no descriptors are used) and
//! gives completions. It knows no HTTP and nothing of what is counted.
//!
//! Received bytes lie in buffers that belong to the kernel until a completion names one: then there is one
//! [`Filled`] for it, and the buffer is the kernel's again when that is given back. Requests and addresses are
//! never changed, so that the kernel and we may both read them. Dropping the queue first takes back
//! everything that is under way; if the kernel does not confirm that, the memory is never freed.

use std::alloc::{Layout, alloc_zeroed, dealloc, handle_alloc_error};
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::{AtomicU16, Ordering};

use io_uring::types::{BufRingEntry, CancelBuilder, DestinationSlot, Fixed, SubmitArgs, Timespec};
use io_uring::{IoUring, cqueue, opcode, squeue};
use measure::Nanos;
use rustix::io::Errno;
use rustix::net::SendFlags;
use socket2::{Domain, SockAddr, Type};

/// Steps that wait for the next entering of the kernel.
const STEPS_LEN: u32 = 1024;
/// Completions that the ring holds; the kernel keeps what is beyond in a list.
const COMPLETIONS_LEN: u32 = 16 * 1024;
/// Buffers for received bytes; a power of two.
const BUFFERS_LEN: u16 = 256;
/// Bytes of each.
const BUFFER_BYTES: usize = 32 * 1024;
/// The one group of buffers.
const GROUP: u16 = 0;
/// `MSG_WAITALL`: a send goes on until all is sent. rustix names it only for receiving.
const WAIT_ALL: i32 = 0x100;
/// `IORING_RECVSEND_POLL_FIRST`: nothing can be there yet, so do not look.
const POLL_FIRST: u16 = 1;

/// One thing for the kernel to do with the socket of a place.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Step {
    /// Make a socket. Told of only if it fails.
    Socket,
    /// Connect to the target.
    Connect,
    /// Connect to nowhere: the connection is reset, the socket may be connected again. Told of if it fails.
    Disconnect,
    /// Take back what is under way of this kind. Never told of, but what is taken back is.
    Cancel(Kind),
    /// Close it. Never told of.
    Close,
    /// Send all of the request with this number. Told of only if it fails.
    Send(u32),
    /// The same, always told of.
    SendTold(u32),
    /// Receive once.
    Receive,
    /// Receive until the end.
    ReceiveAll,
}

/// What a completion belongs to.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Kind {
    Connect,
    Send,
    Receive,
    /// Nobody waits for it.
    Other,
}

/// Who wants a step.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Tag {
    pub(super) place: u32,
    /// The lower 24 bits come back.
    pub(super) generation: u32,
}

/// The end of a step, or a part of one that goes on.
#[derive(Debug)]
pub(super) struct Completion {
    pub(super) kind: Kind,
    pub(super) tag: Tag,
    pub(super) result: Result<u32, Errno>,
    /// The buffer with received bytes, to be given back.
    pub(super) filled: Option<Filled>,
    /// The step goes on.
    pub(super) goes_on: bool,
}

/// A buffer that is ours until it is given back. It cannot be made or copied elsewhere.
#[derive(Debug)]
pub(super) struct Filled {
    number: u16,
    len: usize,
}

/// The ring and what it uses.
pub(super) struct Queue {
    // Closed before its memory goes: fields are dropped in this order.
    ring: IoUring,
    /// `None` only while it is dropped.
    memory: Option<Box<Memory>>,
    domain: Domain,
    /// What has come and was not taken yet.
    completions: Vec<Completion>,
    /// The kernel does not take steps any more.
    broken: Option<io::Error>,
}

/// What the kernel reads and writes by itself.
struct Memory {
    buffers: Pages,
    /// The ring in which buffers are given to the kernel.
    ring: Pages,
    tail: u16,
    requests: Vec<Arc<[u8]>>,
    remote: SockAddr,
    /// All zero is `AF_UNSPEC`: the kernel looks at the family alone.
    nowhere: [u64; 2],
}

impl Queue {
    /// For sockets of `places_len` places that connect to `remote` and send `requests`.
    ///
    /// # Errors
    /// The kernel has no io_uring, does not allow it, or is older than 6.1.
    pub(super) fn new(
        places_len: usize,
        remote: SockAddr,
        requests: Vec<Arc<[u8]>>,
    ) -> io::Result<Queue> {
        // One thread submits, and what has come is looked at when it asks: no interrupts of its work.
        let ring = IoUring::builder()
            .setup_single_issuer()
            .setup_defer_taskrun()
            .setup_submit_all()
            .setup_cqsize(COMPLETIONS_LEN)
            .dontfork()
            .build(STEPS_LEN)?;
        let places_len = u32::try_from(places_len).map_err(|_| Errno::MFILE)?;
        ring.submitter().register_files_sparse(places_len)?;
        let domain = remote.domain();
        let memory = Memory::new(remote, requests);
        let (address, entries) = (memory.ring.start.as_ptr() as u64, BUFFERS_LEN);
        // SAFETY: the pages hold so many entries, and they live until the ring is closed (see `drop`).
        unsafe {
            ring.submitter()
                .register_buf_ring_with_flags(address, entries, GROUP, 0)
        }?;
        let mut queue = Queue {
            ring,
            memory: Some(Box::new(memory)),
            domain,
            completions: Vec::with_capacity(STEPS_LEN as usize),
            broken: None,
        };
        for number in 0..BUFFERS_LEN {
            queue.give_back(Filled { number, len: 0 });
        }
        Ok(queue)
    }

    /// Steps of one place: each is begun when the one before has succeeded, the others fail with it.
    pub(super) fn push(&mut self, tag: Tag, steps: &[Step]) {
        // A chain does not reach over two submissions.
        if !self.make_room(steps.len()) {
            return;
        }
        for (number, step) in steps.iter().enumerate() {
            let mut entry = self.entry(tag, *step);
            if number + 1 < steps.len() {
                entry = entry.flags(squeue::Flags::IO_LINK);
            }
            // SAFETY: all that an entry points to is in `memory`, which outlives what is under way.
            let pushed = unsafe { self.ring.submission().push(&entry) };
            pushed.expect("room was made for the whole chain");
        }
    }

    /// Puts a socket in the place's slot; whatever was there is closed when nothing uses it any more.
    pub(super) fn install(&mut self, place: u32, socket: &OwnedFd) -> io::Result<()> {
        // Steps pushed before are meant for the socket before.
        self.submit()?;
        self.ring
            .submitter()
            .register_files_update(place, &[socket.as_raw_fd()])?;
        Ok(())
    }

    /// Hands over what was pushed, waits for a completion but no longer than `pause`, and gives what has come.
    ///
    /// # Errors
    /// The kernel does not take steps any more.
    pub(super) fn wait(&mut self, pause: Nanos, come: &mut Vec<Completion>) -> io::Result<()> {
        if let Some(error) = self.broken.take() {
            return Err(error);
        }
        let pause = if self.completions.is_empty() {
            pause
        } else {
            Nanos::ZERO
        };
        let pause = Timespec::new()
            .sec(pause.0 / 1_000_000_000)
            .nsec((pause.0 % 1_000_000_000) as u32);
        let entered = self
            .ring
            .submitter()
            .submit_with_args(1, &SubmitArgs::new().timespec(&pause));
        match entered {
            Ok(_) => {}
            Err(error) if is_passing(&error) => {}
            Err(error) => return Err(error),
        }
        self.collect();
        come.append(&mut self.completions);
        Ok(())
    }

    /// The bytes in a buffer.
    pub(super) fn bytes(&self, filled: &Filled) -> &[u8] {
        let Some(memory) = &self.memory else {
            return &[];
        };
        let offset = usize::from(filled.number) * BUFFER_BYTES;
        // SAFETY: the number of a buffer is below `BUFFERS_LEN`, so that this is inside of the pages.
        let start = unsafe { memory.buffers.start.as_ptr().add(offset) };
        // SAFETY: the bytes are initialised (zeroed first, then written by the kernel), and the buffer is not
        // the kernel's while its only `Filled` is borrowed.
        unsafe { std::slice::from_raw_parts(start, filled.len.min(BUFFER_BYTES)) }
    }

    /// Gives a buffer to the kernel.
    #[expect(
        clippy::needless_pass_by_value,
        reason = "nobody may read a buffer that is the kernel's again"
    )]
    pub(super) fn give_back(&mut self, filled: Filled) {
        let Some(memory) = &mut self.memory else {
            return;
        };
        let offset = usize::from(filled.number) * BUFFER_BYTES;
        let address = memory.buffers.start.as_ptr() as u64 + offset as u64;
        let first = memory.ring.start.as_ptr().cast::<BufRingEntry>();
        // SAFETY: masked, the number of an entry is below `BUFFERS_LEN`; so many are in the pages.
        let entry = unsafe { first.add(usize::from(memory.tail % BUFFERS_LEN)) };
        // SAFETY: the entry is aligned, zeroed at least, and the kernel only reads it, before the tail.
        let entry = unsafe { &mut *entry };
        entry.set_addr(address);
        entry.set_len(BUFFER_BYTES as u32);
        entry.set_bid(filled.number);
        memory.tail = memory.tail.wrapping_add(1);
        // SAFETY: this is the address of the ring's first entry, in zeroed and aligned pages.
        let tail = unsafe { BufRingEntry::tail(first) };
        // SAFETY: the tail is an aligned u16 that is only ever accessed atomically, by the kernel and here.
        let tail = unsafe { AtomicU16::from_ptr(tail.cast_mut()) };
        // What was written above is there before the kernel sees the tail.
        tail.store(memory.tail, Ordering::Release);
    }

    fn entry(&self, tag: Tag, step: Step) -> squeue::Entry {
        let memory = self
            .memory
            .as_deref()
            .expect("there until the queue is dropped");
        let socket = Fixed(tag.place);
        let quiet = squeue::Flags::SKIP_SUCCESS;
        let remote = (memory.remote.as_ptr().cast(), memory.remote.len());
        let nowhere = (
            memory.nowhere.as_ptr().cast(),
            size_of_val(&memory.nowhere) as u32,
        );
        let send = |number: u32| {
            let bytes = &memory.requests[number as usize];
            opcode::Send::new(socket, bytes.as_ptr(), bytes.len() as u32)
                .flags(WAIT_ALL | SendFlags::NOSIGNAL.bits() as i32)
                .build()
        };
        let (entry, kind) = match step {
            Step::Socket => (self.socket(tag.place).flags(quiet), Kind::Connect),
            Step::Connect => (
                opcode::Connect::new(socket, remote.0, remote.1).build(),
                Kind::Connect,
            ),
            Step::Disconnect => (
                opcode::Connect::new(socket, nowhere.0, nowhere.1)
                    .build()
                    .flags(quiet),
                Kind::Other,
            ),
            Step::Cancel(kind) => {
                // By its word it is found at once; by its socket the kernel would look at everybody's.
                let one = CancelBuilder::user_data(word(kind, tag));
                (
                    opcode::AsyncCancel2::new(one).build().flags(quiet),
                    Kind::Other,
                )
            }
            Step::Close => (opcode::Close::new(socket).build().flags(quiet), Kind::Other),
            Step::Send(number) => (send(number).flags(quiet), Kind::Send),
            Step::SendTold(number) => (send(number), Kind::Send),
            Step::Receive => (receive(socket), Kind::Receive),
            Step::ReceiveAll => (opcode::RecvMulti::new(socket, GROUP).build(), Kind::Receive),
        };
        entry.user_data(word(kind, tag))
    }

    fn socket(&self, place: u32) -> squeue::Entry {
        let slot = DestinationSlot::try_from_slot_target(place).ok();
        opcode::Socket::new(self.domain.into(), Type::STREAM.into(), 0)
            .file_index(slot)
            .build()
    }

    /// Whether there is room for so many steps.
    fn make_room(&mut self, len: usize) -> bool {
        while self.broken.is_none() {
            let steps = self.ring.submission();
            if steps.capacity() - steps.len() >= len {
                return true;
            }
            drop(steps);
            if let Err(error) = self.submit() {
                self.broken = Some(error);
            }
        }
        false
    }

    fn submit(&mut self) -> io::Result<()> {
        match self.ring.submit() {
            Ok(_) => Ok(()),
            Err(error) if is_passing(&error) => {
                // It may want room for completions.
                self.collect();
                Ok(())
            }
            Err(error) => Err(error),
        }
    }

    fn collect(&mut self) {
        self.completions
            .extend(self.ring.completion().map(|entry| completion(&entry)));
    }
}

impl Drop for Queue {
    fn drop(&mut self) {
        // What was pushed only refers to memory once the kernel has it; it is handed over to be taken back.
        let mut rest = Vec::new();
        let _ = self.wait(Nanos::ZERO, &mut rest);
        let second = Timespec::new().sec(1);
        let taken_back = self
            .ring
            .submitter()
            .register_sync_cancel(Some(second), CancelBuilder::any());
        let _ = self.wait(Nanos::ZERO, &mut rest);
        let is_quiet = match taken_back {
            Ok(()) => true,
            Err(error) => Errno::from_io_error(&error) == Some(Errno::NOENT),
        };
        if !is_quiet {
            // The kernel may still write there: a leak is the lesser evil.
            std::mem::forget(self.memory.take());
        }
    }
}

impl Memory {
    fn new(remote: SockAddr, requests: Vec<Arc<[u8]>>) -> Memory {
        Memory {
            buffers: Pages::new(usize::from(BUFFERS_LEN) * BUFFER_BYTES),
            ring: Pages::new(usize::from(BUFFERS_LEN) * size_of::<BufRingEntry>()),
            tail: 0,
            requests,
            remote,
            nowhere: [0; 2],
        }
    }
}

/// Zeroed memory at the beginning of a page. No reference to it is kept, since the kernel writes there.
struct Pages {
    start: NonNull<u8>,
    layout: Layout,
}

impl Pages {
    fn new(bytes: usize) -> Pages {
        let layout =
            Layout::from_size_align(bytes, 4096).expect("a few megabytes, aligned to a page");
        // SAFETY: the callers' sizes are not zero.
        let start = unsafe { alloc_zeroed(layout) };
        match NonNull::new(start) {
            Some(start) => Pages { start, layout },
            None => handle_alloc_error(layout),
        }
    }
}

impl Drop for Pages {
    fn drop(&mut self) {
        // SAFETY: it was allocated with this layout, and nothing else frees it.
        unsafe { dealloc(self.start.as_ptr(), self.layout) };
    }
}

fn receive(socket: Fixed) -> squeue::Entry {
    opcode::Recv::new(socket, std::ptr::null_mut(), 0)
        .ioprio(POLL_FIRST)
        .buf_group(GROUP)
        .build()
        .flags(squeue::Flags::BUFFER_SELECT)
}

/// What passes by itself: the time is over, a signal came, or completions have to be taken first.
fn is_passing(error: &io::Error) -> bool {
    let passing = [Errno::TIME, Errno::INTR, Errno::BUSY, Errno::AGAIN];
    Errno::from_io_error(error).is_some_and(|error| passing.contains(&error))
}

/// Kind, generation and place in one word.
fn word(kind: Kind, tag: Tag) -> u64 {
    let generation = tag.generation & GENERATIONS;
    u64::from(kind as u8) << 56 | u64::from(generation) << 32 | u64::from(tag.place)
}

/// The bits of a generation that come back.
pub(super) const GENERATIONS: u32 = 0xff_ffff;

fn completion(entry: &cqueue::Entry) -> Completion {
    let word = entry.user_data();
    let kind = match (word >> 56) as u8 {
        kind if kind == Kind::Connect as u8 => Kind::Connect,
        kind if kind == Kind::Send as u8 => Kind::Send,
        kind if kind == Kind::Receive as u8 => Kind::Receive,
        _ => Kind::Other,
    };
    let tag = Tag {
        place: word as u32,
        generation: (word >> 32) as u32 & GENERATIONS,
    };
    let result = match u32::try_from(entry.result()) {
        Ok(result) => Ok(result),
        Err(_) => Err(Errno::from_raw_os_error(-entry.result())),
    };
    let len = result.unwrap_or(0) as usize;
    let number = cqueue::buffer_select(entry.flags());
    Completion {
        kind,
        tag,
        result,
        filled: number.map(|number| Filled { number, len }),
        goes_on: cqueue::more(entry.flags()),
    }
}

#[cfg(test)]
mod tests;
