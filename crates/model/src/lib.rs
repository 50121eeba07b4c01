//! Every interleaving of the server's hand-over code, checked by loom.
//!
//! Compiles `server/src/handover.rs` as it is against loom's primitives. It is a crate of its own because
//! tokio, which the server needs, is another thing under `--cfg loom`.
//!
//! `RUSTFLAGS="--cfg loom" cargo test -p milepost-model --release`
#![forbid(unsafe_code)]
#![cfg(loom)]
#![allow(dead_code)]

#[path = "../../server/src/handover.rs"]
mod handover;

mod sync {
    //! Loom's primitives under the names that `handover` uses.
    use std::task::Waker;

    pub(crate) use loom::sync::atomic::{AtomicU8, AtomicUsize, Ordering};
    pub(crate) use loom::sync::{Arc, Condvar, Mutex, MutexGuard};

    pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
        mutex.lock().expect("no thread panics in the model")
    }

    pub(crate) fn wait<'a, T>(condvar: &Condvar, guard: MutexGuard<'a, T>) -> MutexGuard<'a, T> {
        condvar.wait(guard).expect("no thread panics in the model")
    }

    /// Time does not pass here: whoever rests must be called.
    pub(crate) fn wait_timeout<'a, T>(
        condvar: &Condvar,
        guard: MutexGuard<'a, T>,
        _longest: std::time::Duration,
    ) -> MutexGuard<'a, T> {
        wait(condvar, guard)
    }

    /// The contract of `atomic_waker::AtomicWaker`: a wake after a register is never lost.
    pub(crate) struct WakerCell(Mutex<Option<Waker>>);

    impl WakerCell {
        pub(crate) fn new() -> Self {
            Self(Mutex::new(None))
        }
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

    use super::handover::{Chair, Onward, Queue, Returned, Seized, Turnstile, Wish};

    /// All interleavings with at most three preemptions a run: bugs of this kind need two, and without
    /// a bound two sleepers and a producer take hours.
    fn check(run: impl Fn() + Sync + Send + 'static) {
        let mut model = loom::model::Builder::new();
        model.preemption_bound = Some(3);
        model.check(run);
    }

    fn taker(queue: &Arc<Queue<u32>>) -> thread::JoinHandle<Vec<u32>> {
        let queue = Arc::clone(queue);
        thread::spawn(move || {
            let chair = Arc::new(Chair::default());
            let mut taken = Vec::new();
            while let Some(item) = queue.take_now().or_else(|| queue.take(&chair)) {
                taken.push(item);
            }
            taken
        })
    }

    #[test]
    fn queue_gives_each_item_to_one_thread_and_loses_no_wake_up() {
        check(|| {
            let queue = Arc::new(Queue::new(8));
            let (one, two) = (taker(&queue), taker(&queue));
            assert!(queue.admit());
            queue.push(&mut vec![1]);
            assert!(queue.admit());
            queue.push(&mut vec![2]);
            queue.close();
            let mut all = one.join().expect("one");
            all.extend(two.join().expect("two"));
            all.sort_unstable();
            assert_eq!(all, [1, 2]);
            assert_eq!(queue.len(), 0);
        });
    }

    #[test]
    fn queue_wakes_a_sleeper_for_each_item_of_two_producers() {
        check(|| {
            let queue = Arc::new(Queue::new(8));
            let sleeper = taker(&queue);
            let other = Arc::clone(&queue);
            let producer = thread::spawn(move || {
                assert!(other.admit());
                other.push(&mut vec![1]);
            });
            assert!(queue.admit());
            queue.push(&mut vec![2]);
            producer.join().expect("producer");
            queue.close();
            let mut all = sleeper.join().expect("sleeper");
            all.sort_unstable();
            assert_eq!(all, [1, 2]);
        });
    }

    #[test]
    fn a_resting_producer_is_called_when_the_queue_is_short() {
        check(|| {
            let queue = Arc::new(Queue::new(8));
            let sleeper = taker(&queue);
            (0..4).for_each(|_| assert!(queue.admit()));
            queue.push(&mut vec![1, 2, 3, 4]);
            queue.rest(std::time::Duration::MAX);
            queue.close();
            assert_eq!(sleeper.join().expect("sleeper"), [1, 2, 3, 4]);
        });
    }

    #[test]
    fn queue_admits_no_more_than_its_bound() {
        check(|| {
            let queue: Arc<Queue<u32>> = Arc::new(Queue::new(1));
            let other = Arc::clone(&queue);
            let rival = thread::spawn(move || other.admit());
            let here = queue.admit();
            let there = rival.join().expect("rival");
            assert!(!(here && there));
        });
    }

    fn come_back(wish: Wish, given: Option<Onward>, expect: Returned) {
        check(move || {
            let turnstile = Arc::new(Turnstile::new());
            let pool = Arc::clone(&turnstile);
            let mut thread = None;
            let seen = block_on(poll_fn(|context| {
                if thread.is_none() {
                    turnstile.lend(wish, context);
                    let pool = Arc::clone(&pool);
                    thread = Some(thread::spawn(move || give(&pool, given)));
                }
                turnstile.poll_return(context)
            }));
            assert_eq!(seen, expect);
            let given = thread.expect("spawned").join().expect("pool");
            assert_eq!(given, Ok(()));
        });
    }

    /// What a pool thread does at the end; `None`: the socket was full.
    fn give(turnstile: &Turnstile, given: Option<Onward>) -> Result<(), Seized> {
        match given {
            Some(onward) => turnstile.end().map(|()| turnstile.give_back(onward)),
            None => turnstile.start_flow(),
        }
    }

    #[test]
    fn driver_that_asks_late_is_woken() {
        come_back(Wish::Silent, Some(Onward::Keep), Returned::Keep);
    }

    #[test]
    fn driver_that_asked_beforehand_is_woken() {
        come_back(Wish::Woken, Some(Onward::Keep), Returned::Keep);
        come_back(Wish::Silent, Some(Onward::Close), Returned::Close);
        come_back(Wish::Silent, None, Returned::Flow);
    }

    #[test]
    fn exactly_one_side_ends_an_exchange_that_is_seized() {
        for given in [Some(Onward::Keep), Some(Onward::Close), None] {
            check(move || {
                let turnstile = Arc::new(Turnstile::new());
                block_on(poll_fn(|context| {
                    turnstile.lend(Wish::Silent, context);
                    Poll::Ready(())
                }));
                let pool = Arc::clone(&turnstile);
                let thread = thread::spawn(move || give(&pool, given));
                let seized = turnstile.seize();
                let given = thread.join().expect("pool");
                assert_eq!(seized, given == Err(Seized));
            });
        }
    }

    #[test]
    fn a_further_piece_of_a_flow_wakes_the_driver() {
        check(|| {
            let turnstile = Arc::new(Turnstile::new());
            let pieces = Arc::new(AtomicUsize::new(0));
            let (pool, sent) = (Arc::clone(&turnstile), Arc::clone(&pieces));
            let mut thread = None;
            block_on(poll_fn(|context| {
                if thread.is_none() {
                    turnstile.lend(Wish::Silent, context);
                    let (pool, sent) = (Arc::clone(&pool), Arc::clone(&sent));
                    thread = Some(thread::spawn(move || {
                        sent.store(1, Ordering::Release);
                        pool.start_flow().expect("nobody seizes");
                        sent.store(2, Ordering::Release);
                        pool.wake();
                    }));
                }
                turnstile.watch(context);
                match pieces.load(Ordering::Acquire) {
                    2 => Poll::Ready(()),
                    _ => Poll::Pending,
                }
            }));
            thread.expect("spawned").join().expect("pool");
        });
    }
}
