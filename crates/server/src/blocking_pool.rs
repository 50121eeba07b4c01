//! Blocking pools: named threads that do what may wait for a disk, so that no driver and no worker does. Body-spool
//! threads write request bodies and the responses of slow clients to files, file-open threads look files up,
//! sendfile threads send spans of files. The threads that resolve names wait for the network alone.
//!
//! A driver hands over a task and serves other connections until the answer comes. A connection has at most one
//! task out and something to discard, a cached file has one lookup in each `file_cache_revalidate`, the memory of
//! responses has a fixed number of tasks for each thread, and a name is resolved once at a time: they bound the queue. Tasks are taken in
//! their order; one that is not finished moves behind those that wait.

use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use queueing::{Class, Entry, PoolSettings, PoolShape};
use telemetry::{Nanos, Stamp};
use tokio::sync::oneshot;

use crate::queue::{Parker, Queue};

/// Whether a task is finished.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum TaskState {
    /// There is more to do; others have their turn first.
    More,
    /// The answer was given.
    Done,
}

pub(crate) type Task = Box<dyn FnMut() -> TaskState + Send>;

/// The drivers' end of a blocking pool; its threads end when the last clone is gone.
#[derive(Clone)]
pub(crate) struct BlockingPool(Arc<Inner>);

struct Inner {
    queue: Arc<Queue<Task>>,
    threads: usize,
}

impl BlockingPool {
    /// Starts `threads` threads named `name-0`, `name-1` ….
    pub(crate) fn start(name: &str, threads: usize) -> io::Result<Self> {
        let pool = Self(Arc::new(Inner {
            queue: Arc::new(Queue::new(&patient(threads))),
            threads,
        }));
        // Counted before they exist: a task that comes at once is admitted, and waits for the first to start.
        pool.0.queue.grow(threads, Stamp::ZERO);
        for index in 0..threads {
            let queue = Arc::clone(&pool.0.queue);
            std::thread::Builder::new()
                .name(format!("{name}-{index}"))
                .spawn(move || work(&queue))?;
        }
        Ok(pool)
    }

    /// Whether it has no threads: the caller does the work itself.
    pub(crate) fn is_empty(&self) -> bool {
        self.0.threads == 0
    }

    /// Tasks that wait for a thread.
    pub(crate) fn waiting_len(&self) -> usize {
        self.0.queue.len()
    }

    /// Lets go of something whose end may wait for a disk: closing the last descriptor of a file that has no
    /// name frees its space.
    pub(crate) fn discard(&self, thing: impl Send + 'static) {
        if self.is_empty() {
            return;
        }
        // In an option, because a task may be called again; this one is called once.
        let mut thing = Some(thing);
        self.send(Box::new(move || {
            drop(thing.take());
            TaskState::Done
        }));
    }

    /// Has `task` done; on the spot where there is no thread.
    ///
    /// # Errors
    /// When the task panicked.
    pub(crate) async fn run<T, F>(&self, task: F) -> io::Result<T>
    where
        T: Send + 'static,
        F: FnOnce() -> T + Send + 'static,
    {
        let mut task = Some(task);
        self.run_on(move || task.take().map(|task| task())).await
    }

    /// As `run`, for a task in steps: `None` means that it goes on, behind those that wait.
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
                return TaskState::More;
            };
            // The connection, and with it the receiver, may be gone.
            let _ = sender.take().map(|sender| sender.send(answer));
            TaskState::Done
        }));
        answer
            .await
            .map_err(|_| io::Error::other("the task panicked"))
    }

    /// Has `task` done, without waiting for it where there is a thread.
    pub(crate) fn submit(&self, task: impl FnOnce() + Send + 'static) {
        if self.is_empty() {
            return task();
        }
        let mut task = Some(task);
        self.send(Box::new(move || {
            if let Some(task) = task.take() {
                task();
            }
            TaskState::Done
        }));
    }

    /// Threads of this pool.
    pub(crate) fn threads(&self) -> usize {
        self.0.threads
    }

    /// Has `task` done by one of the threads, of which there must be one, without waiting for it.
    pub(crate) fn send(&self, task: Task) {
        enqueue(&self.0.queue, task);
    }
}

impl std::fmt::Debug for BlockingPool {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("BlockingPool")
            .field(&self.0.threads)
            .finish()
    }
}

impl Drop for Inner {
    fn drop(&mut self) {
        // No clone is left that could send; tasks that wait are still done, because a file may depend on one.
        self.queue.close(&patient(self.threads));
    }
}

/// Tasks wait as long as it takes, all alike.
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
        overload_timeout: None,
        reserve_threads: 0,
        reserve_len: 0,
    }
}

fn enqueue(queue: &Queue<Task>, task: Task) {
    let Ok(()) = queue.admit(|_, _| Ok::<(), std::convert::Infallible>(()));
    let entry = Entry {
        item: task,
        class: Class::Normal,
        queued: Stamp::ZERO,
        before: Nanos::ZERO,
    };
    queue.push(&mut vec![entry], |_, _| {});
}

fn work(queue: &Queue<Task>) {
    // sendfile to a client that is gone must not end the process.
    os::block_sigpipe();
    queue.thread_started();
    let parker = Arc::<Parker>::default();
    while let Some(taken) = queue.take(&parker, &mut None, || Stamp::ZERO) {
        let mut task = taken.item;
        // A panic costs this task, whose connection hears of it by the missing answer.
        while let Ok(TaskState::More) = catch_unwind(AssertUnwindSafe(&mut task)) {
            // Only behind others: alone it goes on without the queue's lock.
            if queue.len() > 0 {
                enqueue(queue, task);
                break;
            }
        }
    }
}
