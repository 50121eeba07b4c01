//! What the selector of asyncio waits with: an epoll descriptor of Python, to which the loop's own wake-up is added.
//!
//! Its descriptors are added and removed by Python (`event_loop.py`), which knows their keys.

use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{AsRawFd, BorrowedFd};

use pyo3::intern;
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyList};
use rustix::event::Timespec;
use rustix::event::epoll::{self, EventFlags};
use rustix::io::Errno;

/// Descriptors that one wait gives at most; those that are left are given by the next one.
const READY_LEN_MAX: usize = 256;
/// `selectors.EVENT_READ` and `selectors.EVENT_WRITE`.
const READ: u32 = 1;
const WRITE: u32 = 2;

/// Has `wakeup` end waits. Each write is an edge: nothing has to be read from it.
pub(super) fn add_wakeup(epoll: i32, wakeup: BorrowedFd<'_>) -> io::Result<()> {
    let number = u32::try_from(wakeup.as_raw_fd()).expect("a descriptor is no negative number");
    let flags = EventFlags::IN | EventFlags::ET;
    let data = epoll::EventData::new_u64(u64::from(number));
    epoll::add(borrowed(epoll), wakeup, data, flags)?;
    Ok(())
}

/// Waits until descriptors are ready, and gives their keys out of `keys` with what they are ready for. Without a time it
/// waits for as long as it takes.
pub(super) fn wait<'py>(
    py: Python<'py>,
    epoll: i32,
    keys: &Bound<'py, PyDict>,
    timeout_secs: Option<f64>,
) -> PyResult<Bound<'py, PyList>> {
    let timeout = timeout_secs.map(timespec);
    let waited = match timeout_secs {
        Some(0.0) => wait_detached(epoll, timeout),
        _ => py.detach(|| wait_detached(epoll, timeout)),
    };
    let found = match waited {
        Ok(found) => found,
        // The handler of the signal runs in the loop.
        Err(Errno::INTR) => Vec::new(),
        Err(error) => return Err(io::Error::from(error).into()),
    };
    let ready = PyList::empty(py);
    for (fd, flags) in found {
        // The wake-up of the loop has no key.
        let Some(key) = keys.get_item(fd)? else {
            continue;
        };
        let mut kinds = 0;
        if flags.intersects(!EventFlags::OUT) {
            kinds |= READ;
        }
        if flags.intersects(!EventFlags::IN) {
            kinds |= WRITE;
        }
        let wanted: u32 = key.getattr(intern!(py, "events"))?.extract()?;
        ready.append((key, kinds & wanted))?;
    }
    Ok(ready)
}

fn wait_detached(epoll: i32, timeout: Option<Timespec>) -> Result<Vec<(u32, EventFlags)>, Errno> {
    let mut buffer = [MaybeUninit::<epoll::Event>::uninit(); READY_LEN_MAX];
    let (ready, _) = epoll::wait(borrowed(epoll), &mut buffer[..], timeout.as_ref())?;
    // Python sets the lower half of the data alone.
    let known = |event: &mut epoll::Event| (event.data.u64() as u32, event.flags);
    Ok(ready.iter_mut().map(known).collect())
}

/// Rounded up: a wait that ends too early would be followed by another one.
fn timespec(secs: f64) -> Timespec {
    let ns = (secs * 1e9).ceil().clamp(0.0, 1e18) as i64;
    Timespec {
        tv_sec: ns / 1_000_000_000,
        tv_nsec: ns % 1_000_000_000,
    }
}

fn borrowed<'fd>(epoll: i32) -> BorrowedFd<'fd> {
    // SAFETY: the selector that calls has the descriptor, and closes it only when its loop has ended.
    unsafe { BorrowedFd::borrow_raw(epoll) }
}
