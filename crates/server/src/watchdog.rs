//! The watchdog: knows what each worker runs since when, and decides what is due about it.
//!
//! Workers write their own slot at the begin and the end of an exchange. A scan finds exchanges that have become
//! slow, exchanges past their pool's `request_timeout`, and workers that did not return after their interruption.
//! Decides and remembers; logs, interrupts and starts nothing itself: that is `server::watchdog_thread`'s.

mod wakeup;

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};

use http::RequestHead;
use telemetry::{Nanos, Phases, Stamp};

use crate::exchange::stream::StreamShared;
use crate::exchange::{self, Exchange, Id};
use crate::pool::Meter;
use crate::run_guard::RunGuard;
use crate::sync::{invariant, lock};
use config::typed::Config;

pub(crate) use wakeup::Wakeup;

/// An interrupted worker that has not returned after this time is given up.
pub(crate) const PATIENCE: Nanos = Nanos::from_secs(5);
/// Interval between scans of an exchange past its timeout that its driver has not answered yet.
const RECHECK: Nanos = Nanos::from_ms(50);

/// The slots of all workers of the process, and the limits that they are scanned for.
pub(crate) struct Watchdog {
    slow: Option<Nanos>,
    /// `request_timeout` by pool.
    timeouts: Vec<Option<Nanos>>,
    slots: Mutex<Vec<WatchedSlot>>,
    wakeup: Arc<Wakeup>,
}

/// What one worker shows to the watchdog: the exchange that it runs.
pub(crate) struct WorkerSlot {
    pool: u16,
    /// What the kernel calls the thread.
    thread: Thread,
    /// What the worker is called in messages.
    name: String,
    /// Begin of the exchange that it runs; 0 between two exchanges.
    began: AtomicU64,
    /// The exchange that it runs, and whether the worker is given up.
    guard: RunGuard<Running>,
    wakeup: Arc<Wakeup>,
}

/// What the kernel calls a thread of this process.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Thread(pub i32);

#[derive(Clone)]
struct Running {
    began: Stamp,
    id: Id,
    head: Arc<RequestHead>,
    phases: Phases,
    stream: Arc<StreamShared>,
    meter: Meter,
}

impl Thread {
    /// The calling one.
    pub fn current() -> Thread {
        Thread(rustix::thread::gettid().as_raw_nonzero().get())
    }
}

/// A slot, and what was done about its exchanges.
struct WatchedSlot {
    slot: Arc<WorkerSlot>,
    /// Begin of the exchange that was reported as slow last.
    reported: Stamp,
    /// Begin of the exchange that was stopped last.
    stopped: Stamp,
    /// Time of that stop.
    stopped_at: Stamp,
}

/// What is due about an exchange.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Action {
    /// Log that it is slow.
    Report,
    /// Interrupt it; its client has its answer.
    Stop,
    /// Replace its worker, which did not return after the interruption.
    GiveUp,
}

/// An exchange about which something is due.
pub(crate) struct Due {
    pub(crate) action: Action,
    pub(crate) slot: Arc<WorkerSlot>,
    /// Begin of the exchange.
    pub(crate) began: Stamp,
    pub(crate) phases: Phases,
    /// Its processor time so far.
    pub(crate) meter: Meter,
    id: Id,
    head: Arc<RequestHead>,
}

/// Result of a scan.
pub(crate) struct Scan {
    pub(crate) due: Vec<Due>,
    /// Time of the next scan; NEVER when nothing runs: the wake-up is armed then.
    pub(crate) next: Stamp,
}

impl Watchdog {
    /// `None` when the configuration sets no limit.
    pub(crate) fn new(config: &Config) -> Option<Arc<Self>> {
        let timeouts: Vec<_> = config.pools.iter().map(|one| one.request_timeout).collect();
        let is_any = config.slow_request.is_some() || timeouts.iter().any(Option::is_some);
        is_any.then(|| Arc::new(Self::with(config.slow_request, timeouts)))
    }

    fn with(slow: Option<Nanos>, timeouts: Vec<Option<Nanos>>) -> Self {
        Self {
            slow,
            timeouts,
            slots: Mutex::default(),
            wakeup: Arc::default(),
        }
    }

    /// Worker: takes a slot, until `leave`.
    pub(crate) fn enter(&self, pool: u16, thread: Thread, name: &str) -> Arc<WorkerSlot> {
        let slot = Arc::new(WorkerSlot {
            pool,
            thread,
            name: name.to_owned(),
            began: AtomicU64::new(0),
            guard: RunGuard::new(),
            wakeup: Arc::clone(&self.wakeup),
        });
        self.slots().push(WatchedSlot {
            slot: Arc::clone(&slot),
            reported: Stamp::ZERO,
            stopped: Stamp::ZERO,
            stopped_at: Stamp::ZERO,
        });
        slot
    }

    /// Worker: gives its slot back.
    pub(crate) fn leave(&self, slot: &Arc<WorkerSlot>) {
        let mut slots = self.slots();
        let found = slots
            .iter()
            .position(|watched| Arc::ptr_eq(&watched.slot, slot));
        invariant!(
            found.is_some(),
            "a worker gives back a slot that it does not have"
        );
        found.map(|index| slots.swap_remove(index));
    }

    /// Workers of a pool that were given up and have not ended.
    pub(crate) fn given_up(&self, pool: u16) -> usize {
        let slots = self.slots();
        let of_pool = slots.iter().filter(|watched| watched.slot.pool == pool);
        of_pool.filter(|watched| watched.slot.is_given_up()).count()
    }

    /// Workers of all pools that were given up and have not ended.
    pub(crate) fn given_up_len(&self) -> usize {
        let slots = self.slots();
        slots
            .iter()
            .filter(|watched| watched.slot.is_given_up())
            .count()
    }

    /// Wakes the thread that scans.
    pub(crate) fn wakeup(&self) -> &Wakeup {
        &self.wakeup
    }

    /// Earliest time at which something can be due of an exchange that begins at `now` or later.
    pub(crate) fn due_after(&self, now: Stamp) -> Stamp {
        let limits = self.timeouts.iter().copied().chain([self.slow]);
        now.plus(limits.flatten().min().unwrap_or(Nanos(u64::MAX)))
    }

    /// Finds what is due at `now`. Allocates only for what is due.
    pub(crate) fn scan(&self, now: Stamp) -> Scan {
        let mut slots = self.slots();
        if self.is_idle(&slots) {
            return Scan {
                due: Vec::new(),
                next: Stamp::NEVER,
            };
        }
        let mut scan = Scan {
            due: Vec::new(),
            next: self.due_after(now),
        };
        for watched in slots.iter_mut() {
            let timeout = self.timeouts.get(usize::from(watched.slot.pool));
            watched.scan(now, self.slow, timeout.copied().flatten(), &mut scan);
        }
        scan
    }

    /// Whether nothing runs; the wake-up is armed then.
    fn is_idle(&self, slots: &[WatchedSlot]) -> bool {
        let runs = |watched: &WatchedSlot| watched.slot.began() != Stamp::ZERO;
        if slots.iter().any(runs) {
            return false;
        }
        self.wakeup.arm();
        // Once more: a worker that began between the first look and `arm` has caused no wake-up.
        let is_idle = !slots.iter().any(runs);
        if !is_idle {
            self.wakeup.disarm();
        }
        is_idle
    }

    fn slots(&self) -> MutexGuard<'_, Vec<WatchedSlot>> {
        lock(&self.slots)
    }
}

impl WatchedSlot {
    fn scan(&mut self, now: Stamp, slow: Option<Nanos>, timeout: Option<Nanos>, scan: &mut Scan) {
        let began = self.slot.began();
        if began == Stamp::ZERO {
            return;
        }
        let age = now.since(began);
        if let Some(slow) = slow
            && self.reported != began
        {
            if age < slow {
                scan.scan_at(began.plus(slow));
            } else if let Some(run) = self.slot.running(began) {
                self.reported = began;
                scan.add(Action::Report, &self.slot, &run);
            }
        }
        if let Some(timeout) = timeout
            && self.stopped != began
        {
            let run = (age >= timeout).then(|| self.slot.running(began)).flatten();
            match run.filter(|run| run.stream.is_overdue()) {
                Some(run) => {
                    (self.stopped, self.stopped_at) = (began, now);
                    scan.add(Action::Stop, &self.slot, &run);
                }
                None => scan.scan_at(began.plus(timeout).max(now.plus(RECHECK))),
            }
        }
        if self.stopped == began && !self.slot.is_given_up() {
            let last = self.stopped_at.plus(PATIENCE);
            if now < last {
                scan.scan_at(last);
            } else if let Some(run) = self.slot.give_up(began) {
                scan.add(Action::GiveUp, &self.slot, &run);
            }
        }
    }
}

impl Scan {
    fn scan_at(&mut self, at: Stamp) {
        self.next = self.next.min(at);
    }

    fn add(&mut self, action: Action, slot: &Arc<WorkerSlot>, run: &Running) {
        self.due.push(Due {
            action,
            slot: Arc::clone(slot),
            began: run.began,
            phases: run.phases,
            meter: run.meter,
            id: run.id,
            head: Arc::clone(&run.head),
        });
    }
}

impl Due {
    /// Method, target and id, for people.
    pub(crate) fn name(&self) -> String {
        exchange::name(self.id, self.head.view())
    }
}

impl WorkerSlot {
    /// Worker: begins an exchange. Two reference counts, an uncontended lock, a store and a load.
    pub(crate) fn begin(&self, exchange: &Exchange, stream: &Arc<StreamShared>, meter: Meter) {
        let began = exchange.record.phases.started;
        let run = Running {
            began,
            id: exchange.record.id,
            head: Arc::clone(&exchange.head),
            phases: exchange.record.phases,
            stream: Arc::clone(stream),
            meter,
        };
        // The guard first: a scan that sees `began` must find the run behind it.
        self.guard.begin(run);
        self.began.store(began.0, Ordering::SeqCst);
        self.wakeup.wake();
    }

    /// Worker: ends its exchange. A scan must not delay the closing of its stream.
    pub(crate) fn end(&self) {
        self.began.store(0, Ordering::Release);
        self.guard.end();
    }

    /// Index of its pool.
    pub(crate) fn pool(&self) -> u16 {
        self.pool
    }

    /// Its thread.
    pub(crate) fn thread(&self) -> Thread {
        self.thread
    }

    /// What the worker is called in messages.
    pub(crate) fn name(&self) -> &str {
        &self.name
    }

    /// Whether its worker still runs the exchange that began then.
    pub(crate) fn runs(&self, began: Stamp) -> bool {
        self.began() == began
    }

    /// Whether its worker is given up.
    pub(crate) fn is_given_up(&self) -> bool {
        self.guard.is_given_up()
    }

    /// Of a worker that is given up: whether the caller is the one that reports the loss to the pool.
    pub(crate) fn claim_loss(&self) -> bool {
        self.guard.claim_loss()
    }

    fn began(&self) -> Stamp {
        Stamp(self.began.load(Ordering::SeqCst))
    }

    fn running(&self, began: Stamp) -> Option<Running> {
        self.guard.running(|run| run.began == began)
    }

    /// Gives the worker up if it still runs the exchange that began then.
    fn give_up(&self, began: Stamp) -> Option<Running> {
        self.guard.give_up(|run| run.began == began)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SLOW: Nanos = Nanos::from_secs(1);
    const TIMEOUT: Nanos = Nanos::from_secs(3);

    fn at(ms: u64) -> Stamp {
        Stamp::ZERO.plus(Nanos::from_ms(10_000 + ms))
    }

    fn stream() -> Arc<StreamShared> {
        Arc::new(StreamShared::default())
    }

    fn exchange(started: Stamp) -> Exchange {
        let mut exchange = crate::tests::exchange("GET /a?b HTTP/1.1\r\nHost: h\r\n\r\n");
        exchange.record.phases.started = started;
        exchange
    }

    fn watchdog(slow: Option<Nanos>, timeout: Option<Nanos>) -> (Watchdog, Arc<WorkerSlot>) {
        let watchdog = Watchdog::with(slow, vec![timeout]);
        let slot = watchdog.enter(0, Thread(7), "mp-pool-0");
        (watchdog, slot)
    }

    fn begin(slot: &WorkerSlot, exchange: &Exchange, stream: &Arc<StreamShared>) {
        slot.begin(exchange, stream, Meter::start());
    }

    fn actions(watchdog: &Watchdog, ms: u64) -> Vec<Action> {
        let due = watchdog.scan(at(ms)).due;
        due.into_iter().map(|due| due.action).collect()
    }

    #[test]
    fn a_slow_exchange_is_told_once_and_the_next_one_again() {
        let (watchdog, slot) = watchdog(Some(SLOW), None);
        for begun in [0, 5_000] {
            begin(&slot, &exchange(at(begun)), &stream());
            assert_eq!(actions(&watchdog, begun + 999), []);
            let due = watchdog.scan(at(begun + 1_000)).due;
            assert_eq!(due.len(), 1);
            assert_eq!(due[0].name(), "GET /a [id 0000000000000000]");
            assert!(due[0].slot.runs(at(begun)));
            assert_eq!(actions(&watchdog, begun + 4_000), []);
            slot.end();
            assert!(!due[0].slot.runs(at(begun)));
        }
        assert_eq!(actions(&watchdog, 9_000), []);
    }

    #[test]
    #[should_panic(expected = "a worker gives back a slot that it does not have")]
    fn a_slot_is_given_back_once() {
        let (watchdog, slot) = watchdog(Some(SLOW), None);
        watchdog.leave(&slot);
        watchdog.leave(&slot);
    }

    #[test]
    fn nothing_is_stopped_before_its_client_has_its_answer() {
        let (watchdog, slot) = watchdog(None, Some(TIMEOUT));
        let stream = stream();
        begin(&slot, &exchange(at(0)), &stream);
        assert_eq!(actions(&watchdog, 3_100), []);
        stream.set_overdue();
        assert_eq!(actions(&watchdog, 3_150), [Action::Stop]);
        assert_eq!(actions(&watchdog, 8_149), []);
        assert_eq!(watchdog.given_up_len(), 0);
        assert_eq!(actions(&watchdog, 8_150), [Action::GiveUp]);
        assert_eq!(actions(&watchdog, 90_000), []);
        assert_eq!((watchdog.given_up(0), watchdog.given_up(1)), (1, 0));
        assert!(slot.is_given_up());
        watchdog.leave(&slot);
        assert_eq!(watchdog.given_up_len(), 0);
    }

    #[test]
    fn a_thread_that_comes_back_is_not_given_up() {
        let (watchdog, slot) = watchdog(None, Some(TIMEOUT));
        let stream = stream();
        stream.set_overdue();
        begin(&slot, &exchange(at(0)), &stream);
        assert_eq!(actions(&watchdog, 3_000), [Action::Stop]);
        slot.end();
        begin(&slot, &exchange(at(7_000)), &self::stream());
        assert_eq!(actions(&watchdog, 9_000), []);
        assert!(!slot.is_given_up());
    }

    #[test]
    fn looks_again_when_something_can_be_due() {
        let (watchdog, slot) = watchdog(Some(SLOW), Some(TIMEOUT));
        assert_eq!(watchdog.due_after(at(0)), at(1_000));
        begin(&slot, &exchange(at(0)), &stream());
        assert_eq!(watchdog.scan(at(500)).next, at(1_000));
        assert_eq!(watchdog.scan(at(1_000)).next, at(2_000));
        assert_eq!(watchdog.scan(at(2_500)).next, at(3_000));
        // Its driver has not answered yet.
        assert_eq!(watchdog.scan(at(3_000)).next, at(3_000).plus(RECHECK));
    }

    #[test]
    fn sleeps_while_nothing_runs_and_is_woken_once() {
        let (watchdog, slot) = watchdog(Some(SLOW), None);
        assert_eq!(watchdog.scan(at(0)).next, Stamp::NEVER);
        assert!(watchdog.wakeup().is_armed());
        begin(&slot, &exchange(at(5_000)), &stream());
        assert!(!watchdog.wakeup().is_armed());
        assert_eq!(watchdog.scan(at(5_500)).next, at(6_000));
        slot.end();
        // Others begin and end between scans without a wake-up.
        begin(&slot, &exchange(at(5_600)), &stream());
        slot.end();
        assert!(!watchdog.wakeup().is_armed());
        assert_eq!(watchdog.scan(at(6_000)).next, Stamp::NEVER);
        assert!(watchdog.wakeup().is_armed());
    }
}
