//! The queue of a pool: items that wait for threads, idle threads that wait for items, and the number of threads.
//! Pools of workers and blocking pools use it.
//!
//! Takes opaque items, gives them on in the order of `queueing`. Touches no socket, reads no clock, knows no Python.
//! Built only on `sync` and arithmetic, so that `crates/loom-tests` can check every interleaving of it.

use std::sync::PoisonError;
use std::time::Duration;

use queueing::{Class, Entry, Line, PoolSeen, PoolSettings, PoolState};
use telemetry::{Nanos, Queued, Stamp};

use crate::sync::{Arc, AtomicUsize, Condvar, Mutex, MutexGuard, Ordering, invariant};

/// Items in front of threads; the thread that became idle last is woken first.
///
/// One lock guards waiting items and idle threads, so that a thread that goes to sleep and an item that comes cannot
/// miss each other. Changed settings and a thread that exits wake the threads that may take an item now.
pub(crate) struct Queue<T> {
    state: Mutex<QueueState<T>>,
    /// Notified when the queue has become short while a producer rests.
    short: Condvar,
    /// Items admitted and neither taken nor given up, those in a driver's outbox included.
    admitted: AtomicUsize,
    /// Threads that sleep or were woken and have not looked yet: an admitted item may have one of them at once.
    free: AtomicUsize,
}

/// Counts its thread as free while it exists.
struct Free<'a>(&'a AtomicUsize);

struct QueueState<T> {
    line: Line<T>,
    /// Sleeping threads. The last one has the warmest caches and is woken first; the first one exits first.
    idle: Vec<Arc<Parker>>,
    /// Threads from the decision to start them until they have ended.
    alive: usize,
    /// Of these, threads that have not begun to run yet.
    starting: usize,
    /// Of these, threads that were told to exit, or found the queue closed and empty.
    exiting: usize,
    /// Busy threads of which as many exit when they ask next.
    surplus: usize,
    /// Idle threads that only health checks may have.
    reserve: usize,
    /// Producers that rest until the queue is short.
    resting: usize,
    closed: bool,
}

/// An item that a thread has taken.
pub(crate) struct Dequeued<T> {
    pub(crate) item: T,
    /// Time at which it was taken; never before it was queued.
    pub(crate) now: Stamp,
    pub(crate) reason: DequeueReason,
}

/// Why an item left the queue.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum DequeueReason {
    /// A thread may run it.
    Run,
    /// It has waited too long and is to be refused.
    Expired,
}

/// How many threads there are.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Size {
    /// Threads that are not about to exit.
    pub(crate) threads: usize,
    /// Of these, idle ones.
    pub(crate) idle: usize,
}

/// With so few items waiting, resting producers are woken: they need a moment to return with more.
const SHORT_LEN: usize = 2;

/// Where one thread sleeps.
#[derive(Default)]
pub(crate) struct Parker {
    wake: Mutex<Option<Wake>>,
    woken: Condvar,
    /// Of a thread that sleeps elsewhere: what wakes it.
    signal: Option<Box<dyn Fn() + Send + Sync>>,
}

/// What a thread finds that does not sleep in the queue.
pub(crate) enum Polled<T> {
    Taken(Dequeued<T>),
    /// Nothing; the parker is signalled when there may be something.
    Nothing,
    /// Nothing, and there will be no more: the queue is closed.
    Closed,
}

/// Why a sleeping thread is woken.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Wake {
    /// There may be an item to take.
    Take,
    /// The thread exits.
    Exit,
}

impl<T> Queue<T> {
    /// An empty queue without threads.
    pub(crate) fn new(settings: &PoolSettings) -> Self {
        let state = QueueState {
            line: Line::new(settings),
            idle: Vec::new(),
            alive: 0,
            starting: 0,
            exiting: 0,
            surplus: 0,
            reserve: settings.reserve_threads,
            resting: 0,
            closed: false,
        };
        Self {
            state: Mutex::new(state),
            short: Condvar::new(),
            admitted: AtomicUsize::new(0),
            free: AtomicUsize::new(0),
        }
    }

    /// Reserves a place for one item if `admits` accepts it, given the items admitted before and the free threads. An
    /// admitted item must be pushed.
    pub(crate) fn admit<R>(
        &self,
        admits: impl FnOnce(usize, usize) -> Result<(), R>,
    ) -> Result<(), R> {
        let before = self.admitted.fetch_add(1, Ordering::Relaxed);
        // Relaxed: an estimate for the policy. Who gets which thread is decided under the lock, in `push`.
        let free = self.free.load(Ordering::Relaxed);
        // Counted before it is admitted: two producers that came at once would else take the same last place.
        admits(before, free).inspect_err(|_| {
            self.admitted.fetch_sub(1, Ordering::Relaxed);
        })
    }

    /// Items admitted and not yet taken.
    pub(crate) fn len(&self) -> usize {
        self.admitted.load(Ordering::Relaxed)
    }

    /// Appends admitted items, reports by `note` what each found, and wakes as many sleeping threads as there are
    /// items: one lock and at most one wake-up per sleeping thread, however many items. Returns the number of items
    /// for which no thread was woken.
    pub(crate) fn push(
        &self,
        items: &mut Vec<Entry<T>>,
        mut note: impl FnMut(&mut T, Queued),
    ) -> usize {
        // A single item wakes one thread at most, without an allocation.
        let (mut first, mut woken) = (None, Vec::new());
        let mut left = 0;
        {
            let mut state = self.lock();
            // One allocation at most: other threads wait for this lock.
            woken.reserve(items.len().min(state.idle.len()).saturating_sub(1));
            for mut entry in items.drain(..) {
                let wakes = state.may_wake(entry.class);
                // Threads and places in queues are far fewer than these hold.
                let met = Queued {
                    before: entry.before,
                    waiting: state.line.len() as u32,
                    threads: state.threads() as u32,
                    idle: state.idle.len() as u32,
                    from_queue: !wakes,
                };
                note(&mut entry.item, met);
                state.line.push(entry);
                match wakes {
                    true if first.is_none() => first = state.idle.pop(),
                    true => woken.extend(state.idle.pop()),
                    false => left += 1,
                }
            }
        }
        // After the lock, which a woken thread takes first thing: it would only wait for it. Nothing is missed in between:
        // the threads are off the idle list, and a parker keeps a wake-up until its thread parks.
        wake_all(first.as_slice());
        wake_all(&woken);
        left
    }

    /// Takes the next item without waiting, unless this thread is to exit. `ran` is how long the thread has run an
    /// item since it asked last.
    pub(crate) fn take_now(
        &self,
        ran: &mut Option<Nanos>,
        clock: impl Fn() -> Stamp,
    ) -> Option<Dequeued<T>> {
        if self.len() == 0 {
            return None;
        }
        let now = clock();
        let (taken, is_short) = {
            let mut state = self.lock();
            state.ran(ran);
            // Its caller turns to `take` next, where this thread exits.
            if state.surplus > 0 {
                return None;
            }
            state.next(now)?
        };
        self.left(is_short);
        Some(taken)
    }

    fn left(&self, is_short: bool) {
        let before = self.admitted.fetch_sub(1, Ordering::Relaxed);
        invariant!(before > 0, "an item leaves a queue that has admitted none");
        if is_short {
            self.short.notify_all();
        }
    }

    /// Producer: rests until the queue is short, at most for `longest`.
    pub(crate) fn rest(&self, longest: Duration) {
        let mut state = self.lock();
        if state.line.len() > SHORT_LEN {
            state.resting += 1;
            // The result does not matter: who notifies has reset the count, and after a timeout a count that is too
            // high costs one needless notification.
            drop(self.short.wait_timeout(state, longest));
        }
    }

    /// Takes the next item, sleeping in `parker` until there is one. `None` when this thread is to exit, or once the
    /// queue is closed and empty. Reads the clock once for an item, before the lock.
    pub(crate) fn take(
        &self,
        parker: &Arc<Parker>,
        ran: &mut Option<Nanos>,
        clock: impl Fn() -> Stamp,
    ) -> Option<Dequeued<T>> {
        // Dropped after `left`: an item that arrives in between is admitted rather than refused.
        let mut free = None;
        loop {
            let early = (self.len() > 0).then(&clock);
            {
                let mut state = self.lock();
                state.ran(ran);
                if state.surplus > 0 {
                    // `threads` stays as it is: it fell when the surplus rose, and must not fall twice.
                    state.surplus -= 1;
                    state.exiting += 1;
                    // `push` may have woken this thread for an item, which it leaves: without another
                    // wake-up the item would wait while a thread sleeps.
                    let woken = state.wakeable();
                    drop(state);
                    wake_all(&woken);
                    return None;
                }
                if !state.line.is_empty()
                    && let Some((taken, is_short)) = state.next(early.unwrap_or_else(&clock))
                {
                    drop(state);
                    self.left(is_short);
                    return Some(taken);
                }
                if state.closed {
                    state.exiting += 1;
                    return None;
                }
                // Under the lock that `push` takes: an item is either seen above, or finds this thread idle.
                state.idle.push(Arc::clone(parker));
                free.get_or_insert_with(|| Free::new(&self.free));
            }
            if parker.park() == Wake::Exit {
                return None;
            }
        }
    }

    /// Takes the next item for a thread that sleeps elsewhere, `only` of this class and those before it where that is said.
    /// Without one, the signal of `parker` is called once, when there may be one.
    pub(crate) fn poll(
        &self,
        parker: &Arc<Parker>,
        only: Option<Class>,
        ran: &mut Option<Nanos>,
        clock: impl Fn() -> Stamp,
    ) -> Polled<T> {
        let early = (self.len() > 0).then(&clock);
        let mut state = self.lock();
        state.ran(ran);
        // The classes before it come first, too.
        let has_one = match only {
            None => !state.line.is_empty(),
            Some(class) => state.line.waiting(class).ahead > 0,
        };
        if has_one && let Some((taken, is_short)) = state.next(early.unwrap_or_else(&clock)) {
            drop(state);
            self.left(is_short);
            return Polled::Taken(taken);
        }
        if state.closed && (only.is_none() || state.line.is_empty()) {
            return Polled::Closed;
        }
        // Under the lock that `push` takes: an item is either seen above, or finds this parker.
        if !state.idle.iter().any(|idle| Arc::ptr_eq(idle, parker)) {
            state.idle.push(Arc::clone(parker));
        }
        Polled::Nothing
    }

    /// So many items more can be taken at once, beside those of sleeping threads.
    pub(crate) fn set_free(&self, free: usize) {
        self.free.store(free, Ordering::Relaxed);
    }

    /// Takes an item that has waited too long at `now`, if there is one.
    pub(crate) fn take_expired(&self, now: Stamp) -> Option<T> {
        let (entry, is_short) = {
            let mut state = self.lock();
            let entry = state.line.take_expired(now)?;
            (entry, state.is_short())
        };
        self.left(is_short);
        Some(entry.item)
    }

    /// When the next item will have waited too long; NEVER when none waits.
    pub(crate) fn next_expiry(&self) -> Stamp {
        self.lock().line.next_expiry()
    }

    /// What the controller sees of the queue; it knows the rest from elsewhere.
    pub(crate) fn snapshot(&self, now: Stamp) -> PoolSeen {
        let mut state = self.lock();
        let threads = state.threads();
        // Starting threads count as idle: counted as busy, they would make the controller start more each tick.
        let idle = (state.idle.len() + state.starting).min(threads);
        PoolSeen {
            waiting: state.line.len(),
            arrived: state.line.joined(),
            oldest_wait: state.line.oldest_wait(now),
            waits: state.line.look(now),
            running: threads - idle,
            idle,
            ..PoolSeen::default()
        }
    }

    /// Sets the order of items and how long they may wait.
    pub(crate) fn set_state(&self, state: PoolState) {
        self.lock().line.set_state(state);
    }

    /// Sets other bounds.
    pub(crate) fn reshape(&self, settings: &PoolSettings) {
        let woken = {
            let mut state = self.lock();
            state.line.reshape(settings);
            state.reserve = settings.reserve_threads;
            state.wakeable()
        };
        wake_all(&woken);
    }

    /// Grows by `more` threads. Returns how many the caller has to start: threads that were to exit stay in place of
    /// the others. None starts once the queue is closed.
    pub(crate) fn grow(&self, more: usize, now: Stamp) -> usize {
        let mut state = self.lock();
        if state.closed {
            return 0;
        }
        let stay = more.min(state.surplus);
        state.surplus -= stay;
        state.alive += more - stay;
        state.starting += more - stay;
        state.line.resized(now);
        more - stay
    }

    /// Shrinks by `fewer` threads, never to none: threads that have slept longest exit at once, busy ones after what
    /// they run. Returns how many exit.
    pub(crate) fn shrink(&self, fewer: usize, now: Stamp) -> usize {
        let (exiting, fewer, woken) = {
            let mut state = self.lock();
            let fewer = fewer.min(state.threads().saturating_sub(1));
            let asleep = fewer.min(state.idle.len());
            let exiting: Vec<_> = state.idle.drain(..asleep).collect();
            state.exiting += asleep;
            state.surplus += fewer - asleep;
            state.line.resized(now);
            (exiting, fewer, state.wakeable())
        };
        exiting.iter().for_each(|parker| parker.unpark(Wake::Exit));
        wake_all(&woken);
        fewer
    }

    /// Thread: it has started to run.
    pub(crate) fn thread_started(&self) {
        one_less(&mut self.lock().starting, "starting");
    }

    /// A thread could not be started.
    pub(crate) fn thread_not_started(&self) {
        let woken = {
            let mut state = self.lock();
            one_less(&mut state.starting, "starting");
            state.lose()
        };
        wake_all(&woken);
    }

    /// Thread: it has ended after `take` returned `None`.
    pub(crate) fn thread_exited(&self) {
        let mut state = self.lock();
        one_less(&mut state.exiting, "exiting");
        one_less(&mut state.alive, "alive");
    }

    /// Counts out a thread that has ended without being told to, or is given up.
    pub(crate) fn thread_lost(&self) {
        let woken = self.lock().lose();
        wake_all(&woken);
    }

    /// Threads that exist, exiting ones included.
    pub(crate) fn alive(&self) -> usize {
        self.lock().alive
    }

    /// How long the item that came first has waited; zero when none waits.
    pub(crate) fn oldest_wait(&self, now: Stamp) -> Nanos {
        self.lock().line.oldest_wait(now)
    }

    /// Threads that are not about to exit, and idle ones of them.
    pub(crate) fn size(&self) -> Size {
        let state = self.lock();
        Size {
            threads: state.threads(),
            idle: state.idle.len(),
        }
    }

    /// Ends the threads once the queue is empty. Health checks have no reserve any more.
    pub(crate) fn close(&self, settings: &PoolSettings) {
        let idle = {
            let mut state = self.lock();
            state.closed = true;
            // All of them exit anyway, and until then each one shortens what waits.
            state.surplus = 0;
            state.reserve = 0;
            state.line.reshape(&PoolSettings {
                reserve_threads: 0,
                ..*settings
            });
            std::mem::take(&mut state.idle)
        };
        wake_all(&idle);
    }

    /// A panic while the lock was held elsewhere does not spread: every critical section leaves the state consistent
    /// at each step.
    fn lock(&self) -> MutexGuard<'_, QueueState<T>> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Wakes threads to take items.
fn wake_all(woken: &[Arc<Parker>]) {
    woken.iter().for_each(|parker| parker.unpark(Wake::Take));
}

impl<T> QueueState<T> {
    /// Threads that are not about to exit.
    fn threads(&self) -> usize {
        self.alive.saturating_sub(self.exiting + self.surplus)
    }

    /// Idle threads that only health checks may have; never all threads.
    fn kept(&self) -> usize {
        self.reserve.min(self.threads().saturating_sub(1))
    }

    fn may_wake(&self, class: Class) -> bool {
        match class {
            Class::Health => !self.idle.is_empty(),
            _ => self.idle.len() > self.kept(),
        }
    }

    /// The next item, and whether resting producers are to be woken. Where no item may run, one may have waited too
    /// long.
    fn next(&mut self, now: Stamp) -> Option<(Dequeued<T>, bool)> {
        let threads = self.threads();
        // Threads that were woken and have not looked yet count as running: they may find nothing left, and then look
        // again whether the reserve is whole.
        let running = threads.saturating_sub(self.idle.len() + 1);
        let (entry, reason) = match self.line.take(now, running, threads) {
            Some(entry) => (entry, DequeueReason::Run),
            None => (self.line.take_expired(now)?, DequeueReason::Expired),
        };
        let taken = Dequeued {
            item: entry.item,
            // The clock was read before the lock was taken, and the item may have been queued meanwhile.
            now: now.max(entry.queued),
            reason,
        };
        Some((taken, self.is_short()))
    }

    fn is_short(&mut self) -> bool {
        let is_short = self.resting > 0 && self.line.len() <= SHORT_LEN;
        if is_short {
            self.resting = 0;
        }
        is_short
    }

    fn ran(&mut self, ran: &mut Option<Nanos>) {
        if let Some(run) = ran.take() {
            self.line.ran(run);
        }
    }

    /// Takes from the idle list as many threads as may take an item now.
    fn wakeable(&mut self) -> Vec<Arc<Parker>> {
        let free = self.idle.len().saturating_sub(self.kept());
        let wanted = free.min(self.line.len());
        self.idle.split_off(self.idle.len() - wanted)
    }

    /// Counts out one thread; if one was to exit anyway, it was this one.
    fn lose(&mut self) -> Vec<Arc<Parker>> {
        one_less(&mut self.alive, "alive");
        self.surplus = self.surplus.saturating_sub(1);
        self.wakeable()
    }
}

/// Takes one thread from a count: below 0 it would wrap, and a pool would believe in threads without end.
fn one_less(threads: &mut usize, which: &str) {
    invariant!(
        *threads > 0,
        "a thread leaves those that are {which}, and there is none"
    );
    *threads -= 1;
}

impl<'a> Free<'a> {
    fn new(threads: &'a AtomicUsize) -> Self {
        threads.fetch_add(1, Ordering::Relaxed);
        Self(threads)
    }
}

impl Drop for Free<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

impl Parker {
    /// Of a thread that sleeps elsewhere, and is woken by `signal`.
    pub(crate) fn signalling(signal: impl Fn() + Send + Sync + 'static) -> Self {
        Self {
            signal: Some(Box::new(signal)),
            ..Self::default()
        }
    }

    fn park(&self) -> Wake {
        let mut wake = self.lock();
        loop {
            if let Some(reason) = wake.take() {
                return reason;
            }
            let waited = self.woken.wait(wake);
            wake = waited.unwrap_or_else(PoisonError::into_inner);
        }
    }

    fn unpark(&self, wake: Wake) {
        // Stored before the notification: a thread that has not gone to sleep yet finds it and does not.
        *self.lock() = Some(wake);
        match &self.signal {
            Some(signal) => signal(),
            None => self.woken.notify_one(),
        }
    }

    fn lock(&self) -> MutexGuard<'_, Option<Wake>> {
        self.wake.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use queueing::PoolShape;

    use super::*;

    fn queue(threads: usize) -> Queue<u32> {
        let queue = Queue::new(&PoolSettings {
            shape: PoolShape {
                threads_min: 1,
                threads_max: 8,
                queue_len_max: 8,
            },
            queue_target: Nanos::from_ms(5),
            queue_timeout: Nanos::from_secs(30),
            overload_timeout: None,
            reserve_threads: 0,
            reserve_len: 0,
        });
        assert_eq!(queue.grow(threads, Stamp(1)), threads);
        (0..threads).for_each(|_| queue.thread_started());
        queue
    }

    fn push(queue: &Queue<u32>, item: u32, queued: Stamp) {
        push_as(Class::Normal, queue, item, queued);
    }

    fn push_as(class: Class, queue: &Queue<u32>, item: u32, queued: Stamp) {
        let entry = Entry {
            item,
            class,
            queued,
            before: Nanos::ZERO,
        };
        queue.push(&mut vec![entry], |_, _| {});
    }

    #[test]
    #[should_panic(expected = "an item leaves a queue that has admitted none")]
    fn an_item_that_was_not_admitted_is_not_taken() {
        let queue = queue(1);
        push(&queue, 1, Stamp(9));
        queue.take(&Arc::default(), &mut None, || Stamp(10));
    }

    #[test]
    #[should_panic(expected = "a thread leaves those that are exiting, and there is none")]
    fn only_a_thread_that_was_told_to_exit_has_exited() {
        queue(1).thread_exited();
    }

    #[test]
    #[should_panic(expected = "a thread leaves those that are starting, and there is none")]
    fn a_thread_starts_once() {
        queue(1).thread_started();
    }

    /// A thread may read the clock, and find an item of after that by the time that it has the lock.
    #[test]
    fn no_item_is_taken_before_it_was_queued() {
        let queue = queue(1);
        for number in 0..2 {
            assert_eq!(queue.admit(|_, _| Ok::<(), ()>(())), Ok(()));
            push(&queue, number, Stamp(9));
        }
        let taken = queue.take_now(&mut None, || Stamp(5)).unwrap();
        assert_eq!((taken.item, taken.now), (0, Stamp(9)));
        let taken = queue.take(&Arc::default(), &mut None, || Stamp(5)).unwrap();
        assert_eq!((taken.item, taken.now), (1, Stamp(9)));
    }

    #[test]
    fn a_thread_that_wants_nothing_else_takes_questions_about_health() {
        let queue = queue(1);
        let parker = Arc::new(Parker::signalling(|| {}));
        let poll = |only| match queue.poll(&parker, only, &mut None, || Stamp(10)) {
            Polled::Taken(taken) => Some(taken.item),
            Polled::Nothing => None,
            Polled::Closed => panic!("it is open, or has an item"),
        };
        for number in 0..2 {
            assert_eq!(queue.admit(|_, _| Ok::<(), ()>(())), Ok(()));
            push(&queue, number, Stamp(9));
        }
        assert_eq!(poll(Some(Class::Health)), None);
        assert_eq!(queue.admit(|_, _| Ok::<(), ()>(())), Ok(()));
        push_as(Class::Health, &queue, 7, Stamp(9));
        assert_eq!(poll(Some(Class::Health)), Some(7));
        assert_eq!(poll(Some(Class::Health)), None);
        // Its end comes when all are taken.
        queue.lock().closed = true;
        assert_eq!(poll(Some(Class::Health)), None);
        assert_eq!((poll(None), poll(None)), (Some(0), Some(1)));
        let last = queue.poll(&parker, Some(Class::Health), &mut None, || Stamp(10));
        assert!(matches!(last, Polled::Closed));
    }

    #[test]
    fn a_thread_that_sleeps_elsewhere_is_signalled_once() {
        let signals = Arc::new(AtomicUsize::new(0));
        let counted = Arc::clone(&signals);
        let parker = Arc::new(Parker::signalling(move || {
            counted.fetch_add(1, Ordering::Relaxed);
        }));
        let queue = queue(1);
        let poll = || queue.poll(&parker, None, &mut None, || Stamp(10));
        // Asked twice it is there once.
        assert!(matches!(poll(), Polled::Nothing));
        assert!(matches!(poll(), Polled::Nothing));
        for number in 0..3 {
            assert_eq!(queue.admit(|_, _| Ok::<(), ()>(())), Ok(()));
            push(&queue, number, Stamp(9));
        }
        assert_eq!(signals.load(Ordering::Relaxed), 1);
        for number in 0..3 {
            let Polled::Taken(taken) = poll() else {
                panic!("there are items");
            };
            assert_eq!(taken.item, number);
        }
        assert!(matches!(poll(), Polled::Nothing));
        queue.close(&PoolSettings {
            shape: PoolShape {
                threads_min: 1,
                threads_max: 1,
                queue_len_max: 1,
            },
            queue_target: Nanos::ZERO,
            queue_timeout: Nanos::from_secs(1),
            overload_timeout: None,
            reserve_threads: 0,
            reserve_len: 0,
        });
        assert_eq!(signals.load(Ordering::Relaxed), 2);
        assert!(matches!(poll(), Polled::Closed));
        queue.thread_lost();
        assert_eq!(queue.alive(), 0);
    }
}
