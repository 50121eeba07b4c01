//! Every interleaving of the server's hand-over code, checked by loom.
//!
//! Compiles `server/src/{exchange/ownership,queue,run_guard,loop_wakeup}.rs` as they are against loom's primitives. It is
//! a crate of its own because `cfg(loom)` is set for all of it (`build.rs`), and loom is no dependency of the server.
//!
//! `cargo test -p milepost-loom-tests`
#![forbid(unsafe_code)]
#![allow(dead_code)]

#[path = "../../server/src/loop_wakeup.rs"]
mod loop_wakeup;
#[path = "../../server/src/exchange/ownership.rs"]
mod ownership;
#[path = "../../server/src/queue.rs"]
mod queue;
#[path = "../../server/src/run_guard.rs"]
mod run_guard;

mod sync {
    //! Loom's primitives under the names that these modules use.
    use std::task::Waker;

    pub(crate) use loom::sync::atomic::{AtomicBool, AtomicU8, AtomicUsize, Ordering};
    pub(crate) use loom::sync::{Arc, Condvar, Mutex, MutexGuard};

    pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
        mutex.lock().expect("no thread panics in the model")
    }

    macro_rules! invariant {
        ($holds:expr, $($text:tt)+) => { assert!($holds, $($text)+) };
    }

    pub(crate) use invariant;

    pub(crate) fn violated(text: std::fmt::Arguments<'_>) -> ! {
        panic!("{text}");
    }

    /// The contract of `atomic_waker::AtomicWaker`: a wake after a register is never lost.
    #[derive(Default)]
    pub(crate) struct WakerCell(Mutex<Option<Waker>>);

    impl WakerCell {
        pub(crate) fn register(&self, waker: &Waker) {
            *lock(&self.0) = Some(waker.clone());
        }
        pub(crate) fn wake(&self) {
            let waker = lock(&self.0).take();
            if let Some(waker) = waker {
                waker.wake();
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::future::poll_fn;
    use std::task::Poll;

    use loom::future::block_on;
    use loom::sync::Arc;
    use loom::sync::atomic::{AtomicUsize, Ordering};
    use loom::thread;

    use queueing::{Class, Entry, PoolSettings, PoolShape};
    use telemetry::{Nanos, Stamp};

    use super::loop_wakeup::LoopWakeup;
    use super::ownership::{After, ResponseStarted, Returned, Revoked, WakePolicy, WriteOwnership};
    use super::queue::{DequeueReason, Parker, Polled, Queue};
    use super::run_guard::RunGuard;

    /// All interleavings with at most three preemptions a run: bugs of this kind need two, and without
    /// a bound two sleepers and a producer take hours.
    fn check(run: impl Fn() + Sync + Send + 'static) {
        check_within(3, run);
    }

    /// The same with another bound, where three threads ask each other often.
    fn check_within(preemptions: usize, run: impl Fn() + Sync + Send + 'static) {
        let mut model = loom::model::Builder::new();
        model.preemption_bound = Some(preemptions);
        model.check(run);
    }

    const NOW: Stamp = Stamp(1_000_000_000);

    /// A pool that keeps `reserve_threads` for questions about health.
    fn settings(reserve_threads: usize) -> PoolSettings {
        PoolSettings {
            shape: PoolShape {
                threads_min: 1,
                threads_max: 2,
                queue_len_max: 8,
            },
            queue_target: Nanos::from_ms(5),
            queue_timeout: Nanos::from_secs(30),
            overload_timeout: None,
            reserve_threads,
            reserve_len: 0,
        }
    }

    /// A queue with so many threads that are about to come.
    fn queue(threads: usize, reserve_threads: usize) -> Arc<Queue<u32>> {
        let queue = Queue::new(&settings(reserve_threads));
        assert_eq!(queue.grow(threads, NOW), threads);
        Arc::new(queue)
    }

    fn push_as(queue: &Queue<u32>, class: Class, items: &[u32]) {
        let entry = |item: &u32| Entry {
            item: *item,
            class,
            queued: NOW,
            before: Nanos::ZERO,
        };
        for _ in items {
            assert_eq!(queue.admit(|_, _| Ok::<(), ()>(())), Ok(()));
        }
        queue.push(&mut items.iter().map(entry).collect(), |_, _| {});
    }

    fn push(queue: &Queue<u32>, items: &[u32]) {
        push_as(queue, Class::Normal, items);
    }

    fn close(queue: &Queue<u32>) {
        queue.close(&settings(0));
    }

    /// A thread's life; gives what it took.
    fn live(queue: &Queue<u32>) -> Vec<u32> {
        queue.thread_started();
        let parker = Arc::new(Parker::default());
        let mut all = Vec::new();
        let clock = || NOW;
        let mut ran = None;
        loop {
            let taken = queue.take_now(&mut ran, clock);
            match taken.or_else(|| queue.take(&parker, &mut ran, clock)) {
                Some(taken) => {
                    assert_eq!(taken.reason, DequeueReason::Run);
                    all.push(taken.item);
                }
                None => break,
            }
        }
        queue.thread_exited();
        all
    }

    fn taker(queue: &Arc<Queue<u32>>) -> thread::JoinHandle<Vec<u32>> {
        let queue = Arc::clone(queue);
        thread::spawn(move || live(&queue))
    }

    #[test]
    fn queue_gives_each_item_to_one_thread_and_loses_no_wake_up() {
        check(|| {
            let queue = queue(2, 0);
            let (one, two) = (taker(&queue), taker(&queue));
            push(&queue, &[1]);
            push(&queue, &[2]);
            close(&queue);
            let mut all = one.join().expect("one");
            all.extend(two.join().expect("two"));
            all.sort_unstable();
            assert_eq!(all, [1, 2]);
            assert_eq!((queue.len(), queue.alive()), (0, 0));
            assert_eq!(queue.admit(|_, free| Err::<(), usize>(free)), Err(0));
        });
    }

    /// The life of an event loop over one queue, whose descriptor is a flag; gives what it took.
    fn live_as_loop(
        queue: &Queue<u32>,
        wakeup: &Arc<LoopWakeup>,
        fd: &Arc<Descriptor>,
    ) -> Vec<u32> {
        queue.thread_started();
        let (signal, written) = (Arc::clone(wakeup), Arc::clone(fd));
        let parker = Arc::new(Parker::signalling(move || {
            if signal.call() {
                written.write();
            }
        }));
        let mut all = Vec::new();
        loop {
            wakeup.begin_look();
            loop {
                match queue.poll(&parker, None, &mut None, || NOW) {
                    Polled::Taken(taken) => all.push(taken.item),
                    Polled::Nothing => break,
                    Polled::Closed => {
                        queue.thread_lost();
                        return all;
                    }
                }
            }
            if wakeup.sleep() {
                fd.read();
            }
        }
    }

    /// An eventfd: a count, and who waits for it.
    #[derive(Default)]
    struct Descriptor {
        written: loom::sync::Mutex<bool>,
        readable: loom::sync::Condvar,
    }

    impl Descriptor {
        fn write(&self) {
            *self.written.lock().expect("a lock") = true;
            self.readable.notify_one();
        }

        fn read(&self) {
            let mut written = self.written.lock().expect("a lock");
            while !*written {
                written = self.readable.wait(written).expect("a lock");
            }
            *written = false;
        }
    }

    #[test]
    fn an_event_loop_takes_each_item_and_loses_no_wake_up() {
        check(|| {
            let queue = queue(1, 0);
            let (wakeup, fd) = (Arc::new(LoopWakeup::new()), Arc::new(Descriptor::default()));
            let own = Arc::clone(&queue);
            let event_loop = thread::spawn(move || live_as_loop(&own, &wakeup, &fd));
            push(&queue, &[1]);
            push(&queue, &[2]);
            close(&queue);
            assert_eq!(event_loop.join().expect("the loop"), [1, 2]);
            assert_eq!((queue.len(), queue.alive()), (0, 0));
        });
    }

    #[test]
    fn queue_wakes_a_sleeper_for_each_item_of_two_producers() {
        check(|| {
            let queue = queue(1, 0);
            let sleeper = taker(&queue);
            let other = Arc::clone(&queue);
            let producer = thread::spawn(move || push(&other, &[1]));
            push(&queue, &[2]);
            producer.join().expect("producer");
            close(&queue);
            let mut all = sleeper.join().expect("sleeper");
            all.sort_unstable();
            assert_eq!(all, [1, 2]);
        });
    }

    /// Two threads, one of which is told to go while items come: nothing is lost, and it does go without
    /// the queue being closed.
    #[test]
    fn a_thread_that_goes_leaves_nothing_behind() {
        check(|| {
            let queue = queue(2, 0);
            let (one, two) = (taker(&queue), taker(&queue));
            push(&queue, &[1]);
            assert_eq!(queue.shrink(1, NOW), 1);
            push(&queue, &[2]);
            close(&queue);
            let mut all = one.join().expect("one");
            all.extend(two.join().expect("two"));
            all.sort_unstable();
            assert_eq!(all, [1, 2]);
            assert_eq!((queue.len(), queue.alive()), (0, 0));
        });
    }

    #[test]
    fn the_last_thread_is_never_told_to_go() {
        check(|| {
            let queue = queue(1, 0);
            let one = taker(&queue);
            assert_eq!(queue.shrink(3, NOW), 0);
            push(&queue, &[1]);
            close(&queue);
            assert_eq!(one.join().expect("one"), [1]);
        });
    }

    /// Nobody closes the queue before the one that is told to go has gone.
    #[test]
    fn who_is_told_to_go_hears_of_it() {
        check(|| {
            let queue = queue(2, 0);
            let (one, two) = (taker(&queue), taker(&queue));
            assert_eq!(queue.shrink(1, NOW), 1);
            assert_eq!(queue.size().threads, 1);
            while queue.alive() > 1 {
                thread::yield_now();
            }
            close(&queue);
            one.join().expect("one");
            two.join().expect("two");
            assert_eq!(queue.alive(), 0);
        });
    }

    /// It ends what it ran, and finds that it is to go, while somebody gives it up.
    #[test]
    fn a_thread_is_counted_out_once() {
        check(|| {
            let queue = queue(2, 0);
            (0..2).for_each(|_| queue.thread_started());
            let guard = Arc::new(RunGuard::new());
            guard.begin(7);
            assert_eq!(queue.shrink(1, NOW), 1);
            let thread = {
                let (queue, guard) = (Arc::clone(&queue), Arc::clone(&guard));
                thread::spawn(move || {
                    guard.end();
                    if !guard.is_given_up() {
                        let taken = queue.take(&Arc::new(Parker::default()), &mut None, || NOW);
                        assert!(taken.is_none());
                        queue.thread_exited();
                    }
                })
            };
            if guard.give_up(|run| *run == 7).is_some() {
                queue.thread_lost();
            }
            thread.join().expect("thread");
            assert_eq!((queue.alive(), queue.size().threads), (1, 1));
        });
    }

    /// It is given up and comes back while somebody has another take its place, or finds that none can.
    #[test]
    fn a_thread_that_is_given_up_is_counted_out_once() {
        for is_bearable in [true, false] {
            check(move || {
                let queue = queue(2, 0);
                (0..2).for_each(|_| queue.thread_started());
                let guard = Arc::new(RunGuard::new());
                guard.begin(7);
                assert_eq!(guard.give_up(|run| *run == 7), Some(7));
                let thread = {
                    let (queue, guard) = (Arc::clone(&queue), Arc::clone(&guard));
                    thread::spawn(move || {
                        guard.end();
                        if guard.is_given_up() && guard.claim_loss() {
                            queue.thread_lost();
                        }
                    })
                };
                if is_bearable && guard.claim_loss() {
                    queue.thread_lost();
                }
                thread.join().expect("thread");
                assert_eq!((queue.alive(), queue.size().threads), (1, 1));
            });
        }
    }

    #[test]
    fn who_was_to_go_stays_when_the_pool_grows_again() {
        check(|| {
            let queue = queue(1, 0);
            let one = taker(&queue);
            let started = queue.grow(1, NOW);
            assert_eq!(started, 1);
            queue.shrink(1, NOW);
            // Either the one that had slept has gone, or one that was to go may stay.
            let again = queue.grow(1, NOW);
            assert!(again <= 1);
            assert_eq!(queue.size().threads, 2);
            push(&queue, &[1, 2]);
            let others: Vec<_> = (0..started + again).map(|_| taker(&queue)).collect();
            close(&queue);
            let mut all = one.join().expect("one");
            for other in others {
                all.extend(other.join().expect("other"));
            }
            all.sort_unstable();
            assert_eq!((all, queue.alive()), (vec![1, 2], 0));
        });
    }

    /// One of two threads is kept: whatever happens, the others' items are taken by the other one, and a
    /// question about health by whoever is there.
    #[test]
    fn a_kept_thread_loses_nothing() {
        check_within(2, || {
            let queue = queue(2, 1);
            let (one, two) = (taker(&queue), taker(&queue));
            push(&queue, &[1]);
            push_as(&queue, Class::Health, &[2]);
            while queue.len() > 0 {
                thread::yield_now();
            }
            close(&queue);
            let mut all = one.join().expect("one");
            all.extend(two.join().expect("two"));
            all.sort_unstable();
            assert_eq!((all, queue.alive()), (vec![1, 2], 0));
        });
    }

    /// The thread that was not kept is lost: the other one is not kept any more.
    #[test]
    fn a_lost_thread_frees_the_kept_one() {
        check(|| {
            let queue = queue(2, 1);
            let one = taker(&queue);
            push(&queue, &[1]);
            queue.thread_not_started();
            while queue.len() > 0 {
                thread::yield_now();
            }
            close(&queue);
            assert_eq!(one.join().expect("one"), [1]);
            assert_eq!(queue.alive(), 0);
        });
    }

    /// The controller and a thread both look for those who have waited too long, and the queue is closed
    /// meanwhile: each is found once, and none is run.
    #[test]
    fn who_has_waited_too_long_is_found_once() {
        check(|| {
            let impatient = PoolSettings {
                queue_timeout: Nanos::ZERO,
                ..settings(0)
            };
            let queue = Arc::new(Queue::new(&impatient));
            assert_eq!(queue.grow(1, NOW), 1);
            let other = Arc::clone(&queue);
            let one = thread::spawn(move || {
                other.thread_started();
                let parker = Arc::new(Parker::default());
                let mut all = Vec::new();
                while let Some(taken) = other.take(&parker, &mut None, || NOW) {
                    assert_eq!(taken.reason, DequeueReason::Expired);
                    all.push(taken.item);
                }
                other.thread_exited();
                all
            });
            push(&queue, &[1, 2]);
            let mut all: Vec<_> = queue.take_expired(NOW).into_iter().collect();
            queue.close(&impatient);
            all.extend(one.join().expect("one"));
            all.sort_unstable();
            assert_eq!((all, queue.len(), queue.alive()), (vec![1, 2], 0, 0));
        });
    }

    #[test]
    fn nobody_is_started_for_a_closed_queue() {
        check(|| {
            let queue = queue(1, 0);
            let one = taker(&queue);
            let other = Arc::clone(&queue);
            let controller = thread::spawn(move || {
                let started = other.grow(1, NOW);
                assert!(started <= 1);
                (0..started).for_each(|_| drop(live(&other)));
            });
            close(&queue);
            one.join().expect("one");
            controller.join().expect("controller");
            assert_eq!(queue.alive(), 0);
        });
    }

    #[test]
    fn a_resting_producer_is_called_when_the_queue_is_short() {
        check(|| {
            let queue = queue(1, 0);
            let sleeper = taker(&queue);
            push(&queue, &[1, 2, 3, 4]);
            queue.rest(std::time::Duration::MAX);
            close(&queue);
            assert_eq!(sleeper.join().expect("sleeper"), [1, 2, 3, 4]);
        });
    }

    #[test]
    fn queue_admits_no_more_than_its_bound() {
        check(|| {
            let queue = queue(1, 0);
            let admit = |queue: &Queue<u32>| {
                let bound = |waiting, _| if waiting < 1 { Ok(()) } else { Err(()) };
                queue.admit(bound).is_ok()
            };
            let other = Arc::clone(&queue);
            let rival = thread::spawn(move || admit(&other));
            let here = admit(&queue);
            let there = rival.join().expect("rival");
            assert!(!(here && there));
        });
    }

    fn come_back(wish: WakePolicy, given: Option<After>, expect: Returned) {
        check(move || {
            let ownership = Arc::new(WriteOwnership::default());
            let pool = Arc::clone(&ownership);
            let mut thread = None;
            let seen = block_on(poll_fn(|context| {
                if thread.is_none() {
                    ownership.hand_off(wish, context);
                    let pool = Arc::clone(&pool);
                    thread = Some(thread::spawn(move || give(&pool, given)));
                }
                ownership.poll_return(WakePolicy::Return, context)
            }));
            assert_eq!(seen, expect);
            let given = thread.expect("spawned").join().expect("pool");
            assert_eq!(given, Ok(()));
        });
    }

    /// What a pool thread does at the end; `None`: the socket was full.
    fn give(ownership: &WriteOwnership, given: Option<After>) -> Result<(), Revoked> {
        match given {
            Some(onward) => ownership.end().map(|()| ownership.release(onward)),
            None => ownership.pass_to_driver(),
        }
    }

    #[test]
    fn driver_that_asks_late_is_woken() {
        come_back(
            WakePolicy::NextInput,
            Some(After::Keep),
            Returned::Out(After::Keep),
        );
    }

    #[test]
    fn driver_that_asked_beforehand_is_woken() {
        come_back(
            WakePolicy::Return,
            Some(After::Keep),
            Returned::Out(After::Keep),
        );
        come_back(
            WakePolicy::NextInput,
            Some(After::Close),
            Returned::Out(After::Close),
        );
        come_back(WakePolicy::NextInput, None, Returned::Queued);
    }

    #[test]
    fn exactly_one_side_ends_an_exchange_that_is_seized() {
        for given in [Some(After::Keep), Some(After::Close), None] {
            check(move || {
                let ownership = Arc::new(WriteOwnership::default());
                block_on(poll_fn(|context| {
                    ownership.hand_off(WakePolicy::NextInput, context);
                    Poll::Ready(())
                }));
                let pool = Arc::clone(&ownership);
                let thread = thread::spawn(move || give(&pool, given));
                let seized = ownership.revoke();
                let given = thread.join().expect("pool");
                assert_eq!(seized.is_some(), given == Err(Revoked));
            });
        }
    }

    /// What the driver answers in the application's place and what the pool thread sends never meet.
    #[test]
    fn only_one_side_speaks_to_the_client() {
        for wish in [WakePolicy::NextInput, WakePolicy::Return] {
            check(move || {
                let ownership = Arc::new(WriteOwnership::default());
                block_on(poll_fn(|context| {
                    ownership.hand_off(wish, context);
                    Poll::Ready(())
                }));
                let pool = Arc::clone(&ownership);
                let thread = thread::spawn(move || {
                    let spoken = pool.mark_started();
                    let ended = pool.end().map(|()| pool.release(After::Keep));
                    (spoken, ended)
                });
                let seized = ownership.revoke();
                let (spoken, ended) = thread.join().expect("pool");
                assert_eq!(seized == Some(ResponseStarted::No), spoken == Err(Revoked));
                assert_eq!(seized.is_some(), ended == Err(Revoked));
            });
        }
    }

    /// A driver that asks while the pool thread begins to mark_started is woken as well.
    #[test]
    fn a_driver_that_asks_is_woken_by_one_that_has_spoken() {
        check(|| {
            let ownership = Arc::new(WriteOwnership::default());
            let pool = Arc::clone(&ownership);
            let mut thread = None;
            let seen = block_on(poll_fn(|context| {
                if thread.is_none() {
                    ownership.hand_off(WakePolicy::NextInput, context);
                    let pool = Arc::clone(&pool);
                    thread = Some(thread::spawn(move || {
                        pool.mark_started().expect("nobody seizes");
                        give(&pool, Some(After::Keep)).expect("nobody seizes");
                    }));
                }
                ownership.poll_return(WakePolicy::Return, context)
            }));
            assert_eq!(seen, Returned::Out(After::Keep));
            thread.expect("spawned").join().expect("pool");
        });
    }

    /// The worker of the exchange before wakes the driver late, when that has handed off the next one.
    #[test]
    fn a_late_wake_up_for_one_exchange_hides_none_of_the_next() {
        for given in [Some(After::Close), None] {
            check(move || {
                let ownership = Arc::new(WriteOwnership::default());
                let (before, next) = (Arc::clone(&ownership), Arc::clone(&ownership));
                let late = thread::spawn(move || before.wake());
                let mut thread = None;
                block_on(poll_fn(|context| {
                    if thread.is_none() {
                        ownership.hand_off(WakePolicy::NextInput, context);
                        let next = Arc::clone(&next);
                        thread = Some(thread::spawn(move || give(&next, given)));
                    }
                    ownership
                        .poll_return(WakePolicy::NextInput, context)
                        .map(drop)
                }));
                late.join().expect("the worker before");
                let given = thread.expect("spawned").join().expect("pool");
                assert_eq!(given, Ok(()));
            });
        }
    }

    #[test]
    fn a_further_piece_of_a_flow_wakes_the_driver() {
        check(|| {
            let ownership = Arc::new(WriteOwnership::default());
            let pieces = Arc::new(AtomicUsize::new(0));
            let (pool, sent) = (Arc::clone(&ownership), Arc::clone(&pieces));
            let mut thread = None;
            block_on(poll_fn(|context| {
                if thread.is_none() {
                    ownership.hand_off(WakePolicy::NextInput, context);
                    let (pool, sent) = (Arc::clone(&pool), Arc::clone(&sent));
                    thread = Some(thread::spawn(move || {
                        sent.store(1, Ordering::Release);
                        pool.pass_to_driver().expect("nobody seizes");
                        sent.store(2, Ordering::Release);
                        pool.wake();
                    }));
                }
                ownership.watch(context);
                match pieces.load(Ordering::Acquire) {
                    2 => Poll::Ready(()),
                    _ => Poll::Pending,
                }
            }));
            thread.expect("spawned").join().expect("pool");
        });
    }
}
