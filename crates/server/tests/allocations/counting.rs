//! The system's allocator, counting what all threads ask of it but those that declare themselves clients.
//!
//! Takes nothing for its own: a flag of a thread without a destructor, and five atomics.
#![allow(unsafe_code)]

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

thread_local! {
    static IS_CLIENT: Cell<bool> = const { Cell::new(false) };
}

static IS_COUNTING: AtomicBool = AtomicBool::new(false);
static ALLOCATIONS: AtomicU64 = AtomicU64::new(0);
static BYTES: AtomicU64 = AtomicU64::new(0);
static FREED_BYTES: AtomicU64 = AtomicU64::new(0);
static LARGEST_BYTES: AtomicU64 = AtomicU64::new(0);

pub(super) struct Counting;

/// What was asked for. A block that is made longer counts as a new one of its new length.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Counted {
    pub(super) allocations: u64,
    pub(super) bytes: u64,
    /// Of blocks that were given back.
    pub(super) freed_bytes: u64,
    /// Of the largest block.
    pub(super) largest_bytes: u64,
}

/// What the calling thread allocates is not the server's.
pub(super) fn exclude_this_thread() {
    IS_CLIENT.set(true);
}

/// What the server's threads allocate while `work` runs, which the calling thread is excluded from.
pub(super) fn while_running(work: impl FnOnce()) -> Counted {
    exclude_this_thread();
    for counter in [&ALLOCATIONS, &BYTES, &FREED_BYTES, &LARGEST_BYTES] {
        counter.store(0, Ordering::SeqCst);
    }
    IS_COUNTING.store(true, Ordering::SeqCst);
    work();
    IS_COUNTING.store(false, Ordering::SeqCst);
    Counted {
        allocations: ALLOCATIONS.load(Ordering::SeqCst),
        bytes: BYTES.load(Ordering::SeqCst),
        freed_bytes: FREED_BYTES.load(Ordering::SeqCst),
        largest_bytes: LARGEST_BYTES.load(Ordering::SeqCst),
    }
}

fn is_counted() -> bool {
    // A thread that ends has no flag any more; such threads are none of a request.
    IS_COUNTING.load(Ordering::Relaxed) && !IS_CLIENT.try_with(Cell::get).unwrap_or(true)
}

fn count(bytes: usize) {
    if is_counted() {
        ALLOCATIONS.fetch_add(1, Ordering::Relaxed);
        BYTES.fetch_add(bytes as u64, Ordering::Relaxed);
        LARGEST_BYTES.fetch_max(bytes as u64, Ordering::Relaxed);
    }
}

fn count_freed(bytes: usize) {
    if is_counted() {
        FREED_BYTES.fetch_add(bytes as u64, Ordering::Relaxed);
    }
}

// SAFETY: every block is the system allocator's; counting allocates nothing and cannot unwind.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        count(layout.size());
        // SAFETY: the caller's contract is the system allocator's.
        unsafe { System.alloc(layout) }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        count(layout.size());
        // SAFETY: as above.
        unsafe { System.alloc_zeroed(layout) }
    }

    unsafe fn realloc(&self, block: *mut u8, layout: Layout, bytes: usize) -> *mut u8 {
        count(bytes);
        count_freed(layout.size());
        // SAFETY: `block` is the system allocator's, as all blocks are.
        unsafe { System.realloc(block, layout, bytes) }
    }

    unsafe fn dealloc(&self, block: *mut u8, layout: Layout) {
        count_freed(layout.size());
        // SAFETY: as above.
        unsafe { System.dealloc(block, layout) }
    }
}
