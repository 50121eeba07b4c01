//! Crews: named threads that do what may wait for a disk, so that no driver does. Spoolers write request
//! bodies, openers look files up, writers send spans of files.
//!
//! A driver hands over an errand and goes on with other connections until the answer comes. A connection
//! has at most one errand out and something to discard, and a cached file one look that nobody waits for
//! in each `file_cache_revalidate`: they bound the queue. Errands are taken in their order; one that says
//! that it is not finished goes behind those that wait.

use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use measure::{Nanos, Stamp};
use stage::{Class, Entry, PoolSettings, PoolShape};
use tokio::sync::oneshot;

use crate::queue::{Chair, Queue};

/// Whether an errand is finished.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Going {
    /// There is more to do; others have their turn first.
    On,
    /// The answer was given.
    Done,
}

type Errand = Box<dyn FnMut() -> Going + Send>;

/// The drivers' end of a crew; its threads end when the last clone is gone.
#[derive(Clone)]
pub(crate) struct Crew(Arc<Office>);

struct Office {
    queue: Arc<Queue<Errand>>,
    threads: usize,
}

impl Crew {
    /// Starts `threads` threads named `name-0`, `name-1` ….
    pub(crate) fn start(name: &str, threads: usize) -> io::Result<Self> {
        let crew = Self(Arc::new(Office {
            queue: Arc::new(Queue::new(&patient(threads))),
            threads,
        }));
        crew.0.queue.grow(threads, Stamp::ZERO);
        for index in 0..threads {
            let queue = Arc::clone(&crew.0.queue);
            std::thread::Builder::new()
                .name(format!("{name}-{index}"))
                .spawn(move || work(&queue))?;
        }
        Ok(crew)
    }

    /// Whether there is nobody: the caller does the work itself.
    pub(crate) fn is_empty(&self) -> bool {
        self.0.threads == 0
    }

    /// Errands that wait for a thread.
    pub(crate) fn waiting_len(&self) -> usize {
        self.0.queue.len()
    }

    /// Lets go of something whose end may wait for a disk: closing the last descriptor of a file that has no
    /// name frees its space.
    pub(crate) fn discard(&self, thing: impl Send + 'static) {
        if self.is_empty() {
            return;
        }
        let mut thing = Some(thing);
        self.send(Box::new(move || {
            drop(thing.take());
            Going::Done
        }));
    }

    /// Has `errand` done; on the spot where there is no thread.
    ///
    /// # Errors
    /// When the errand panicked.
    pub(crate) async fn run<T, F>(&self, errand: F) -> io::Result<T>
    where
        T: Send + 'static,
        F: FnOnce() -> T + Send + 'static,
    {
        let mut errand = Some(errand);
        self.run_on(move || errand.take().map(|errand| errand()))
            .await
    }

    /// As `run`, for an errand in steps: `None` means that it goes on, behind those that wait.
    pub(crate) async fn run_on<T, F>(&self, mut step: F) -> io::Result<T>
    where
        T: Send + 'static,
        F: FnMut() -> Option<T> + Send + 'static,
    {
        if self.is_empty() {
            loop {
                match step() {
                    Some(answer) => return Ok(answer),
                    None => tokio::task::yield_now().await,
                }
            }
        }
        let (sender, answer) = oneshot::channel();
        let mut sender = Some(sender);
        self.send(Box::new(move || {
            let Some(answer) = step() else {
                return Going::On;
            };
            // The connection may be gone; then nobody wants the answer.
            let _ = sender.take().map(|sender| sender.send(answer));
            Going::Done
        }));
        answer
            .await
            .map_err(|_| io::Error::other("the errand panicked"))
    }

    fn send(&self, errand: Errand) {
        enqueue(&self.0.queue, errand);
    }
}

impl Drop for Office {
    fn drop(&mut self) {
        self.queue.close(&patient(self.threads));
    }
}

/// Errands wait as long as it takes, all alike.
fn patient(threads: usize) -> PoolSettings {
    let ever = Nanos(u64::MAX);
    PoolSettings {
        shape: PoolShape {
            threads_min: threads,
            threads_max: threads,
            queue_len_max: usize::MAX,
        },
        queue_target: ever,
        queue_timeout: ever,
        overload_timeout: ever,
        reserve_threads: 0,
        reserve_len: 0,
    }
}

fn enqueue(queue: &Queue<Errand>, errand: Errand) {
    let Ok(()) = queue.admit(|_, _| Ok::<(), std::convert::Infallible>(()));
    let entry = Entry {
        item: errand,
        class: Class::Normal,
        queued: Stamp::ZERO,
        before: Nanos::ZERO,
    };
    queue.push(&mut vec![entry], |_, _| {});
}

fn work(queue: &Queue<Errand>) {
    // sendfile to a client that is gone must not end the process.
    crate::sys::block_sigpipe();
    queue.come();
    let chair = Arc::<Chair>::default();
    while let Some(taken) = queue.take(&chair, &mut None, || Stamp::ZERO) {
        let mut errand = taken.item;
        // A panic costs this errand, whose connection hears of it by the missing answer.
        while let Ok(Going::On) = catch_unwind(AssertUnwindSafe(&mut errand)) {
            if queue.len() > 0 {
                enqueue(queue, errand);
                break;
            }
        }
    }
}
