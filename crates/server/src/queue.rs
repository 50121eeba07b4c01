//! The place where items wait for threads: a pool's queue with the threads that sleep at it, and how these
//! come and go. Crews use it for their errands.
//!
//! Takes opaque items, gives them on in the order of `stage`; touches no socket, reads no clock but the one
//! it is given, knows no Python. Built only on `sync` and arithmetic, so that `crates/model` can check every
//! interleaving of it with loom.

use std::sync::PoisonError;
use std::time::Duration;

use measure::{Nanos, Queued, Stamp};
use stage::{Class, Entry, Line, Mood, PoolSeen, PoolSettings};

use crate::sync::{Arc, AtomicUsize, Condvar, Mutex, MutexGuard, Ordering, invariant};

/// A line of items in front of threads that come and go, and idle last in first out.
///
/// Waiting items and idle threads are kept under one lock: "nobody may be taken, so I sleep" and "there
/// is an item, so I wake somebody" cannot miss each other. What changes who may be taken (a thread that
/// goes, other settings) calls those who may take now.
pub(crate) struct Queue<T> {
    state: Mutex<QueueState<T>>,
    /// Rung when the queue has become short while a producer rests.
    short: Condvar,
    /// Items admitted and neither taken nor given up, those that still wait in a driver's outbox included.
    admitted: AtomicUsize,
    /// Threads that sleep, and those that were called and have not asked yet. Whoever is admitted may have one of
    /// them, and waits for nobody.
    free: AtomicUsize,
}

/// A thread that has nothing to do, as long as this is kept.
struct Free<'a>(&'a AtomicUsize);

struct QueueState<T> {
    line: Line<T>,
    /// Sleeping threads; the one that went to sleep last has the warmest caches and is called first, the
    /// one at the bottom goes first.
    idle: Vec<Arc<Chair>>,
    /// Threads that exist, from the decision to start them until they have ended.
    alive: usize,
    /// Of these, those that have not come yet.
    coming: usize,
    /// Of these, those that were told to go, or that found the queue closed and empty.
    going: usize,
    /// Threads at work of which as many are to go when they ask next.
    surplus: usize,
    /// Idle threads that are kept for questions about health.
    reserve: usize,
    /// Producers that rest until the queue is short.
    resting: usize,
    closed: bool,
}

/// What a thread has got.
pub(crate) struct Taken<T> {
    pub(crate) item: T,
    /// When it was taken; never before it came.
    pub(crate) now: Stamp,
    pub(crate) turn: Turn,
}

/// What is to be done with an item.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Turn {
    /// It is its turn.
    Run,
    /// It has waited too long, and is to be told so.
    Expired,
}

/// How many threads there are.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Size {
    /// Threads that are there to stay.
    pub(crate) threads: usize,
    /// Of these, those that sleep.
    pub(crate) idle: usize,
}

/// With so few items waiting, a resting producer is called: it needs a moment to come back with more.
const SHORT_LEN: usize = 2;

/// Where one pool thread sleeps.
#[derive(Default)]
pub(crate) struct Chair {
    called: Mutex<Option<Call>>,
    bell: Condvar,
}

/// What a sleeping thread is called for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Call {
    /// There may be something to take.
    Look,
    /// It is to go.
    Go,
}

impl<T> Queue<T> {
    /// An empty queue without threads.
    pub(crate) fn new(settings: &PoolSettings) -> Self {
        let state = QueueState {
            line: Line::new(settings),
            idle: Vec::new(),
            alive: 0,
            coming: 0,
            going: 0,
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

    /// Reserves a place for one item if `admits` it beside those that are admitted already, with so many threads
    /// that have nothing to do. A reserved item must be pushed.
    pub(crate) fn admit<R>(
        &self,
        admits: impl FnOnce(usize, usize) -> Result<(), R>,
    ) -> Result<(), R> {
        let before = self.admitted.fetch_add(1, Ordering::Relaxed);
        let free = self.free.load(Ordering::Relaxed);
        admits(before, free).inspect_err(|_| {
            self.admitted.fetch_sub(1, Ordering::Relaxed);
        })
    }

    /// Items admitted and not yet taken.
    pub(crate) fn len(&self) -> usize {
        self.admitted.load(Ordering::Relaxed)
    }

    /// Appends admitted items, each told by `note` what it met, and wakes as many sleeping threads as there
    /// are items for: one lock and at most one wake-up per sleeping thread, however many items. Gives the
    /// number of items for which nobody was called.
    pub(crate) fn push(
        &self,
        items: &mut Vec<Entry<T>>,
        mut note: impl FnMut(&mut T, Queued),
    ) -> usize {
        // A request on its own calls one thread at most, and takes no allocation for that.
        let (mut first, mut called) = (None, Vec::new());
        let mut left = 0;
        {
            let mut state = self.lock();
            called.reserve(items.len().min(state.idle.len()).saturating_sub(1));
            for mut entry in items.drain(..) {
                let is_called = state.may_be_called(entry.class);
                // Threads and places in queues are far fewer than these hold.
                let met = Queued {
                    before: entry.before,
                    waiting: state.line.len() as u32,
                    threads: state.threads() as u32,
                    idle: state.idle.len() as u32,
                    from_queue: !is_called,
                };
                note(&mut entry.item, met);
                state.line.push(entry);
                match is_called {
                    true if first.is_none() => first = state.idle.pop(),
                    true => called.extend(state.idle.pop()),
                    false => left += 1,
                }
            }
        }
        look(first.as_slice());
        look(&called);
        left
    }

    /// Takes what is next without waiting, if this thread is not to go. `ran` is how long it ran something
    /// since it asked last.
    pub(crate) fn take_now(
        &self,
        ran: &mut Option<Nanos>,
        clock: impl Fn() -> Stamp,
    ) -> Option<Taken<T>> {
        if self.len() == 0 {
            return None;
        }
        let now = clock();
        let (taken, is_short) = {
            let mut state = self.lock();
            state.ran(ran);
            if state.surplus > 0 {
                return None;
            }
            state.next(now)?
        };
        self.gone(is_short);
        Some(taken)
    }

    fn gone(&self, is_short: bool) {
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
            // Called or not: whoever calls has reset the count; a count that is too high costs one call.
            drop(self.short.wait_timeout(state, longest));
        }
    }

    /// Takes what is next, sleeping in `chair` until there is something. `None` when this thread is to go,
    /// or once the queue is closed and empty. The clock is read once for what is taken, before the lock.
    pub(crate) fn take(
        &self,
        chair: &Arc<Chair>,
        ran: &mut Option<Nanos>,
        clock: impl Fn() -> Stamp,
    ) -> Option<Taken<T>> {
        // It ends behind `gone`: somebody who comes in between is admitted rather than refused.
        let mut free = None;
        loop {
            let early = (self.len() > 0).then(&clock);
            {
                let mut state = self.lock();
                state.ran(ran);
                if state.surplus > 0 {
                    state.surplus -= 1;
                    state.going += 1;
                    let called = state.callable();
                    drop(state);
                    look(&called);
                    return None;
                }
                if !state.line.is_empty()
                    && let Some((taken, is_short)) = state.next(early.unwrap_or_else(&clock))
                {
                    drop(state);
                    self.gone(is_short);
                    return Some(taken);
                }
                if state.closed {
                    state.going += 1;
                    return None;
                }
                state.idle.push(Arc::clone(chair));
                free.get_or_insert_with(|| Free::new(&self.free));
            }
            if chair.sleep() == Call::Go {
                return None;
            }
        }
    }

    /// Somebody who has waited too long at `now`, if there is one.
    pub(crate) fn take_expired(&self, now: Stamp) -> Option<T> {
        let (entry, is_short) = {
            let mut state = self.lock();
            let entry = state.line.take_expired(now)?;
            (entry, state.is_short())
        };
        self.gone(is_short);
        Some(entry.item)
    }

    /// When somebody will have waited too long; NEVER when nobody waits.
    pub(crate) fn next_expiry(&self) -> Stamp {
        self.lock().line.next_expiry()
    }

    /// What the controller is to know, but for what it is told by others.
    pub(crate) fn look(&self, now: Stamp) -> PoolSeen {
        let mut state = self.lock();
        let threads = state.threads();
        let idle = (state.idle.len() + state.coming).min(threads);
        PoolSeen {
            waiting: state.line.len(),
            oldest_wait: state.line.oldest_wait(now),
            waits: state.line.look(now),
            running: threads - idle,
            idle,
            ..PoolSeen::default()
        }
    }

    /// The order and the patience by which items are taken from now on.
    pub(crate) fn set_mood(&self, mood: Mood) {
        self.lock().line.set_mood(mood);
    }

    /// Other bounds from now on.
    pub(crate) fn reshape(&self, settings: &PoolSettings) {
        let called = {
            let mut state = self.lock();
            state.line.reshape(settings);
            state.reserve = settings.reserve_threads;
            state.callable()
        };
        look(&called);
    }

    /// `more` threads are to be there. Gives the number of those that the caller has to start: others that
    /// were to go stay instead. Nobody starts when the queue is closed.
    pub(crate) fn grow(&self, more: usize, now: Stamp) -> usize {
        let mut state = self.lock();
        if state.closed {
            return 0;
        }
        let stay = more.min(state.surplus);
        state.surplus -= stay;
        state.alive += more - stay;
        state.coming += more - stay;
        state.line.resized(now);
        more - stay
    }

    /// `fewer` threads are to be there, but never none: those that have slept longest go at once, others
    /// once they have finished what they run. Gives the number of those that go.
    pub(crate) fn shrink(&self, fewer: usize, now: Stamp) -> usize {
        let (going, fewer, called) = {
            let mut state = self.lock();
            let fewer = fewer.min(state.threads().saturating_sub(1));
            let asleep = fewer.min(state.idle.len());
            let going: Vec<_> = state.idle.drain(..asleep).collect();
            state.going += asleep;
            state.surplus += fewer - asleep;
            state.line.resized(now);
            (going, fewer, state.callable())
        };
        going.iter().for_each(|chair| chair.call(Call::Go));
        look(&called);
        fewer
    }

    /// Thread: it has come.
    pub(crate) fn come(&self) {
        one_less(&mut self.lock().coming, "coming");
    }

    /// A thread that was to be started has not been.
    pub(crate) fn not_come(&self) {
        let called = {
            let mut state = self.lock();
            one_less(&mut state.coming, "coming");
            state.lose()
        };
        look(&called);
    }

    /// Thread: it has ended after `take` gave nothing.
    pub(crate) fn went(&self) {
        let mut state = self.lock();
        one_less(&mut state.going, "going");
        one_less(&mut state.alive, "alive");
    }

    /// Thread: it has ended although nobody told it to.
    pub(crate) fn lost(&self) {
        let called = self.lock().lose();
        look(&called);
    }

    /// Threads that exist, those that are about to end included.
    pub(crate) fn alive(&self) -> usize {
        self.lock().alive
    }

    /// Threads that are there to stay.
    pub(crate) fn size(&self) -> Size {
        let state = self.lock();
        Size {
            threads: state.threads(),
            idle: state.idle.len(),
        }
    }

    /// Lets the threads end once the queue is empty. Nobody is kept for questions about health any more.
    pub(crate) fn close(&self, settings: &PoolSettings) {
        let idle = {
            let mut state = self.lock();
            state.closed = true;
            // All of them go anyway, and as long as there is work more hands are better.
            state.surplus = 0;
            state.reserve = 0;
            state.line.reshape(&PoolSettings {
                reserve_threads: 0,
                ..*settings
            });
            std::mem::take(&mut state.idle)
        };
        look(&idle);
    }

    /// A panic while the lock was held elsewhere does not spread: every critical section leaves the state consistent
    /// at each step.
    fn lock(&self) -> MutexGuard<'_, QueueState<T>> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Has them look whether there is something to take.
fn look(called: &[Arc<Chair>]) {
    called.iter().for_each(|chair| chair.call(Call::Look));
}

impl<T> QueueState<T> {
    /// Threads that are there to stay.
    fn threads(&self) -> usize {
        self.alive.saturating_sub(self.going + self.surplus)
    }

    /// Idle threads that only questions about health may have; never all threads.
    fn kept(&self) -> usize {
        self.reserve.min(self.threads().saturating_sub(1))
    }

    fn may_be_called(&self, class: Class) -> bool {
        match class {
            Class::Health => !self.idle.is_empty(),
            _ => self.idle.len() > self.kept(),
        }
    }

    /// What is next, and whether resting producers are to be called. Where nobody may run, somebody may have
    /// waited too long.
    fn next(&mut self, now: Stamp) -> Option<(Taken<T>, bool)> {
        let threads = self.threads();
        // Called ones that have not looked yet count as running: they may find nothing left, and then they
        // look again whether the reserve is whole.
        let running = threads.saturating_sub(self.idle.len() + 1);
        let (entry, turn) = match self.line.take(now, running, threads) {
            Some(entry) => (entry, Turn::Run),
            None => (self.line.take_expired(now)?, Turn::Expired),
        };
        let taken = Taken {
            item: entry.item,
            // The clock was read before the lock was there, and the item may have come meanwhile.
            now: now.max(entry.queued),
            turn,
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

    /// Sleeping threads that may take something now.
    fn callable(&mut self) -> Vec<Arc<Chair>> {
        let free = self.idle.len().saturating_sub(self.kept());
        let wanted = free.min(self.line.len());
        self.idle.split_off(self.idle.len() - wanted)
    }

    /// One thread fewer; if one was to go anyway, it was this one.
    fn lose(&mut self) -> Vec<Arc<Chair>> {
        one_less(&mut self.alive, "alive");
        self.surplus = self.surplus.saturating_sub(1);
        self.callable()
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

impl Chair {
    fn sleep(&self) -> Call {
        let mut called = self.lock();
        loop {
            if let Some(call) = called.take() {
                return call;
            }
            let waited = self.bell.wait(called);
            called = waited.unwrap_or_else(PoisonError::into_inner);
        }
    }

    fn call(&self, call: Call) {
        *self.lock() = Some(call);
        self.bell.notify_one();
    }

    fn lock(&self) -> MutexGuard<'_, Option<Call>> {
        self.called.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use stage::PoolShape;

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
            overload_timeout: Nanos::from_secs(10),
            reserve_threads: 0,
            reserve_len: 0,
        });
        assert_eq!(queue.grow(threads, Stamp(1)), threads);
        (0..threads).for_each(|_| queue.come());
        queue
    }

    fn push(queue: &Queue<u32>, item: u32, queued: Stamp) {
        let entry = Entry {
            item,
            class: Class::Normal,
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
    #[should_panic(expected = "a thread leaves those that are going, and there is none")]
    fn a_thread_that_was_not_told_to_go_has_not_gone() {
        queue(1).went();
    }

    #[test]
    #[should_panic(expected = "a thread leaves those that are coming, and there is none")]
    fn a_thread_comes_once() {
        queue(1).come();
    }

    /// A thread may read the clock, and find what came after that by the time that it has the lock.
    #[test]
    fn nobody_is_taken_before_they_came() {
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
}
