//! Answers that wait for their time: one thread and a heap, so that thousands of requests can be
//! late at once. Takes what is to be done and when; must not do anything long itself.

use std::cmp::Ordering;
use std::collections::BinaryHeap;
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

type Answer = Box<dyn FnOnce() + Send>;

/// The waiting answers. Its thread lives as long as the process.
pub(crate) struct Later {
    shared: Arc<Shared>,
}

/// Until when a disk takes nothing, if it stalls.
#[derive(Clone, Default)]
pub(crate) struct Stall {
    until: Arc<Mutex<Option<Instant>>>,
}

impl Stall {
    /// Begins a stall of this length.
    pub(crate) fn begin(&self, length: Duration) {
        *self.lock() = Some(Instant::now() + length);
    }

    /// How late an answer is that would be late by `delay` on a disk that does not stall.
    pub(crate) fn delay(&self, delay: Duration) -> Duration {
        let left = self
            .lock()
            .map(|until| until.saturating_duration_since(Instant::now()));
        delay.max(left.unwrap_or_default())
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Option<Instant>> {
        self.until.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[derive(Default)]
struct Shared {
    waiting: Mutex<BinaryHeap<Waiting>>,
    changed: Condvar,
}

struct Waiting {
    due: Instant,
    answer: Answer,
}

impl Later {
    /// Starts the thread.
    pub(crate) fn start() -> Self {
        let shared = Arc::new(Shared::default());
        let thread_shared = Arc::clone(&shared);
        thread::spawn(move || thread_shared.run());
        Self { shared }
    }

    /// Gives `answer` after `delay`; at once, and on the caller's thread, when there is none.
    pub(crate) fn answer(&self, delay: Duration, answer: impl FnOnce() + Send + 'static) {
        if delay.is_zero() {
            return answer();
        }
        let due = Instant::now() + delay;
        self.shared.lock().push(Waiting {
            due,
            answer: Box::new(answer),
        });
        self.shared.changed.notify_one();
    }
}

impl Shared {
    fn run(&self) {
        let mut waiting = self.lock();
        loop {
            let now = Instant::now();
            waiting = match waiting.peek().map(|first| first.due) {
                None => self
                    .changed
                    .wait(waiting)
                    .unwrap_or_else(PoisonError::into_inner),
                Some(due) if due > now => {
                    let woken = self.changed.wait_timeout(waiting, due - now);
                    woken.unwrap_or_else(PoisonError::into_inner).0
                }
                Some(_) => {
                    let first = waiting.pop().expect("it was just looked at");
                    drop(waiting);
                    (first.answer)();
                    self.lock()
                }
            };
        }
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, BinaryHeap<Waiting>> {
        // An answer runs without the lock, so that a panic cannot leave the heap half changed.
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

// The heap gives its greatest first: the one that is due first is the greatest.
impl Ord for Waiting {
    fn cmp(&self, other: &Self) -> Ordering {
        other.due.cmp(&self.due)
    }
}

impl PartialOrd for Waiting {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for Waiting {
    fn eq(&self, other: &Self) -> bool {
        self.due == other.due
    }
}

impl Eq for Waiting {}
