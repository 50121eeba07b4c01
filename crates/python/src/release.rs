//! `bytes` objects of the application that wait for slow clients, by reference, and their release.
//!
//! An object that several responses share is charged once. It is let go of on whatever thread sends its last
//! byte, which is not attached to the interpreter and must not wait for it: `mp-release` does that, attached for
//! a batch at a time.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::sync::{Arc, Condvar, LazyLock, Mutex, MutexGuard, PoisonError, Weak};
use std::thread;
use std::time::Duration;

use bytes::Bytes;
use pyo3::prelude::*;
use pyo3::pybacked::PyBackedBytes;
use server::response::{Charge, ReplyMemory};

use crate::visit;

/// How long the first object of a batch waits for others.
const BATCH_TIME: Duration = Duration::from_millis(50);
/// Bytes of released objects that wait for no others.
const BATCH_BYTES_MAX: usize = 16 << 20;

/// An object that responses wait with.
struct Kept {
    address: usize,
    /// `None` once it is dropped.
    data: Option<PyBackedBytes>,
    _charge: Charge,
}

/// By address: objects that responses wait with. Bounded by `reply_memory_max` and what workers hand over.
static KEPT: LazyLock<Mutex<HashMap<usize, Weak<Kept>>>> = LazyLock::new(Mutex::default);

/// Objects that nothing waits with any more.
static RELEASED: Mutex<Released> = Mutex::new(Released {
    objects: Vec::new(),
    bytes: 0,
    has_thread: false,
});
/// Notified when the first object comes, and when there are many bytes.
static RELEASED_SOME: Condvar = Condvar::new();

struct Released {
    objects: Vec<PyBackedBytes>,
    bytes: usize,
    has_thread: bool,
}

/// Keeps an object for a response that waits: it is charged to `memory`, and only when no other response waits with
/// it already. `None` where none does and there is no reference to it.
pub(crate) fn keep(
    address: usize,
    reference: impl FnOnce() -> Option<PyBackedBytes>,
    memory: &Arc<ReplyMemory>,
) -> Option<Bytes> {
    // One lock from the look to the entry: two responses that keep the same object at once are charged once.
    let mut kept = locked(&KEPT);
    // A dead entry is that of an object that was let go of, perhaps another one at this address.
    if let Some(known) = kept.get(&address).and_then(Weak::upgrade) {
        return Some(Bytes::from_owner(Shared(known)));
    }
    let data = reference()?;
    let new = Arc::new(Kept {
        address,
        _charge: memory.charge(data.len()),
        data: Some(data),
    });
    kept.insert(address, Arc::downgrade(&new));
    Some(Bytes::from_owner(Shared(new)))
}

/// One response's share of an object.
struct Shared(Arc<Kept>);

impl AsRef<[u8]> for Shared {
    fn as_ref(&self) -> &[u8] {
        self.0.data.as_deref().unwrap_or_default()
    }
}

impl Drop for Kept {
    fn drop(&mut self) {
        // The same object may have been kept anew meanwhile.
        if let Entry::Occupied(known) = locked(&KEPT).entry(self.address)
            && known.get().strong_count() == 0
        {
            known.remove();
        }
        if let Some(data) = self.data.take() {
            release(data);
        }
    }
}

/// Starts the thread, once a process: not before a worker begins, because a template forks without threads.
pub(crate) fn start() {
    let mut released = locked(&RELEASED);
    if !released.has_thread {
        // Without a thread the objects wait until a later worker can start one.
        released.has_thread = thread::Builder::new()
            .name("mp-release".to_owned())
            .spawn(release_all)
            .is_ok();
    }
}

/// Leaves an object to the thread that may attach.
fn release(object: PyBackedBytes) {
    let mut released = locked(&RELEASED);
    released.bytes += object.len();
    released.objects.push(object);
    if released.objects.len() == 1 || released.bytes > BATCH_BYTES_MAX {
        RELEASED_SOME.notify_one();
    }
}

/// The thread: attaches once for all objects that have come in `BATCH_TIME`.
fn release_all() {
    loop {
        let released = locked(&RELEASED);
        let released = RELEASED_SOME.wait_while(released, |released| released.objects.is_empty());
        let released = released.unwrap_or_else(PoisonError::into_inner);
        let waited = RELEASED_SOME.wait_timeout_while(released, BATCH_TIME, |released| {
            released.bytes <= BATCH_BYTES_MAX
        });
        let (mut released, _) = waited.unwrap_or_else(PoisonError::into_inner);
        let batch = std::mem::take(&mut released.objects);
        assert!(!batch.is_empty(), "mp-release attaches for nothing");
        released.bytes = 0;
        // Before the thread attaches: a driver that leaves an object must not wait for the GIL by this lock.
        drop(released);
        let _visit = visit::begin();
        Python::attach(|_| drop(batch));
    }
}

/// No panic leaves one of these between two states.
fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
