//! A worker: a thread's share of the plan, what it shares with the others, and the ticking of time.
//!
//! Takes the plan, gives each loop the same answers: when the run begins to count, when it ends, whether the
//! generator stood still. What threads share are a few atomics that each looks at once a turn.

use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::mpsc::Sender;

use rustix::time::{ClockId, clock_gettime};
use telemetry::{Nanos, Stamp};

use super::http2::Http2Request;
use super::response::Expected;
use super::schedule::is_by_due;
use super::tally::{SecondShare, Tally, Window};
use crate::plan::{Begin, Load, Plan, Protocol, Request, Scheme};

/// A loop never sleeps longer: so often it looks at the time, at deadlines and at what the others say.
pub(crate) const TICK: Nanos = Nanos::from_ms(10);
/// A turn that comes so much too late means that the generator stood still.
const STALL: Nanos = Nanos::from_ms(20);

/// What all threads of a run share.
#[derive(Debug)]
pub(crate) struct RunShared {
    /// The beginning of the run.
    pub(crate) start: Stamp,
    /// What replies have to be, by kind.
    pub(crate) standards: Vec<Expected>,
    /// The requests of HTTP/2, by kind; empty where another protocol is spoken.
    pub(crate) http2_requests: Vec<Http2Request>,
    /// When counting begins; [`Stamp::NEVER`] until it is known.
    begin: AtomicU64,
    /// Connections that are open and have had a reply, or have failed to; of a burst those that are open.
    warm: AtomicUsize,
    /// Somebody wants the run to end.
    over: AtomicBool,
}

impl RunShared {
    /// For a run that begins at `start`.
    pub(crate) fn new(plan: &Plan, start: Stamp) -> RunShared {
        let begin = match plan.length.begin {
            Begin::AtOnce => start,
            Begin::After(pause) => start.plus(pause),
            Begin::AllOpen => Stamp::NEVER,
        };
        let kinds = plan.requests.iter();
        RunShared {
            start,
            standards: kinds.map(|kind| Expected::of(kind, &plan.expect)).collect(),
            http2_requests: http2_requests(plan),
            begin: AtomicU64::new(begin.0),
            warm: AtomicUsize::new(0),
            over: AtomicBool::new(false),
        }
    }

    /// When counting begins, as far as it is known.
    pub(crate) fn begin(&self) -> Stamp {
        Stamp(self.begin.load(Ordering::Relaxed))
    }

    /// Ends the run at the next turn of each thread.
    pub(crate) fn end(&self) {
        self.over.store(true, Ordering::Relaxed);
    }

    /// Whether each of the plan's connections is warm, or will not be because its thread has ended.
    pub(crate) fn are_all_warm(&self, plan: &Plan) -> bool {
        self.warm.load(Ordering::Relaxed) >= plan.connections.len
    }

    /// Whether the run is to end at once.
    pub(crate) fn is_over(&self) -> bool {
        self.over.load(Ordering::Relaxed)
    }
}

fn http2_requests(plan: &Plan) -> Vec<Http2Request> {
    if plan.connections.protocol != Protocol::Http2 {
        return Vec::new();
    }
    let has_tls = matches!(plan.target.scheme, Scheme::Https(_));
    let made = |kind: &Request| Http2Request::of(&kind.bytes, has_tls);
    let made = plan.requests.iter().map(made).collect::<Result<_, _>>();
    made.expect("a plan for HTTP/2 has requests that it can send")
}

/// One thread of a run.
pub(crate) struct Worker<'a> {
    pub(crate) plan: &'a Plan,
    pub(crate) shared: &'a RunShared,
    /// Its number, from 0 on.
    pub(crate) thread: usize,
    /// Its connections: as many of the plan's.
    pub(crate) connections_len: usize,
    /// Its share of the counted requests; `None`: no such bound.
    pub(crate) requests_max: Option<u64>,
    /// Where its seconds go.
    pub(crate) seconds: Sender<SecondShare>,
}

impl<'a> Worker<'a> {
    /// The worker of thread `thread`.
    pub(crate) fn of(
        plan: &'a Plan,
        shared: &'a RunShared,
        thread: usize,
        seconds: Sender<SecondShare>,
    ) -> Worker<'a> {
        let threads = plan.machine.threads;
        // What does not divide is given to the first threads, one each, so that the shares sum up to the whole.
        let share = |all: usize| all / threads + usize::from(thread < all % threads);
        assert!(thread < threads, "a thread's number is below their number");
        let requests = plan.length.requests;
        // A thread's part of a load that ends by itself need not be its share of the number: by that one thread would
        // stop early, and another one wait for what never comes.
        let bound = requests.filter(|all| !ends_by_itself(plan, *all));
        let connections_len = share(plan.connections.len);
        assert!(connections_len > 0, "no thread is without a connection");
        Worker {
            plan,
            shared,
            thread,
            connections_len,
            requests_max: bound.map(|all| share(all as usize) as u64),
            seconds,
        }
    }

    /// An empty tally for this worker.
    pub(crate) fn tally(&self) -> Tally {
        Tally::new(self.window(), is_by_due(&self.plan.load))
    }

    /// The counted time, as far as it is known.
    pub(crate) fn window(&self) -> Window {
        let begin = self.shared.begin();
        let lasts = self.plan.length.duration;
        let end = lasts.map_or(Stamp::NEVER, |lasts| begin.plus(lasts));
        Window { begin, end }
    }
}

/// What a thread's loop has done.
pub(crate) struct WorkerResult {
    /// What it counted.
    pub(crate) tally: Tally,
    /// How long it stood still, in sum.
    pub(crate) stalled: Nanos,
}

/// Whether a load ends without counting up to `requests`.
fn ends_by_itself(plan: &Plan, requests: u64) -> bool {
    match &plan.load {
        Load::Burst => true,
        Load::Recorded { arrivals } => {
            let begin = match plan.length.begin {
                Begin::After(pause) => pause,
                Begin::AtOnce | Begin::AllOpen => Nanos::ZERO,
            };
            let counted = arrivals.iter().filter(|arrival| arrival.offset >= begin);
            counted.count() as u64 <= requests
        }
        Load::Closed | Load::Open { .. } => false,
    }
}

/// What a loop keeps of time between its turns.
#[derive(Debug)]
pub(crate) struct Ticker {
    last_turn: Stamp,
    second: u64,
    warmed: usize,
    /// The thread's processor time, and when it was looked at.
    used: (Stamp, Nanos),
    /// How long the generator stood still, in sum.
    pub(crate) stalled: Nanos,
}

/// Processor time of this thread.
fn processor_time() -> Nanos {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    Nanos(time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64)
}

/// What a turn is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Turn {
    /// The run continues.
    Goes,
    /// Nothing new is to be sent: open loads wait for what is under way, closed ones end.
    Ends,
}

impl Ticker {
    /// At the beginning of the run.
    pub(crate) fn new(worker: &Worker<'_>) -> Ticker {
        Ticker {
            last_turn: worker.shared.start,
            second: 0,
            warmed: 0,
            used: (worker.shared.start, processor_time()),
            stalled: Nanos::ZERO,
        }
    }

    /// Begins a turn at `now`. `warm` are the connections of this thread that have had a reply or have failed
    /// to, never fewer than before.
    ///
    /// To be called at least every [`TICK`], and before the turn's sends.
    pub(crate) fn turn(
        &mut self,
        worker: &Worker<'_>,
        tally: &mut Tally,
        warm: usize,
        now: Stamp,
    ) -> Turn {
        // A stall first: what it spoils must be known before a second that it fell into is said.
        self.look_for_stall(tally, now);
        self.settle_begin(worker, tally, warm, now);
        let second = now.since(worker.shared.start).0 / 1_000_000_000;
        while self.second < second {
            // Whoever listens may have left; the run ends all the same.
            let _ = worker.seconds.send(tally.end_second(self.second));
            self.second += 1;
        }
        // A thread that has nothing to count still helps the others to get warm.
        let is_full = tally.window.begin != Stamp::NEVER
            && worker.requests_max.is_some_and(|most| tally.ended >= most);
        if is_full || now >= tally.window.end || worker.shared.over.load(Ordering::Relaxed) {
            Turn::Ends
        } else {
            Turn::Goes
        }
    }

    /// The last, unfinished second.
    pub(crate) fn finish(&mut self, worker: &Worker<'_>, tally: &mut Tally) {
        let _ = worker.seconds.send(tally.end_second(self.second));
        // The other threads must not wait for the connections of one that has ended.
        self.add_warm(worker, worker.connections_len);
    }

    /// So many of this thread's connections are warm by now.
    fn add_warm(&mut self, worker: &Worker<'_>, warm: usize) {
        let more = warm.saturating_sub(self.warmed);
        // All threads share this number: it is touched only when it changes.
        if more > 0 {
            worker.shared.warm.fetch_add(more, Ordering::Relaxed);
            self.warmed = warm;
        }
    }

    fn look_for_stall(&mut self, tally: &mut Tally, now: Stamp) {
        let passed = now.since(self.last_turn);
        self.last_turn = now;
        // The clock of processor time is a system call: it is read once a tick and when a turn came late.
        let is_late = passed.0 > TICK.0 + STALL.0;
        if !is_late && now.since(self.used.0) < TICK {
            return;
        }
        let used = processor_time();
        // A turn full of work is late by itself: what it worked is taken off.
        let worked = used.0.saturating_sub(self.used.1.0);
        let idle = passed.0.saturating_sub(worked);
        self.used = (now, used);
        if is_late && idle > TICK.0 + STALL.0 {
            let length = Nanos(idle - TICK.0);
            self.stalled.0 += length.0;
            tally.stood_still(length, now);
        }
    }

    /// Learns when counting begins, or says it.
    fn settle_begin(&mut self, worker: &Worker<'_>, tally: &mut Tally, warm: usize, now: Stamp) {
        self.add_warm(worker, warm);
        if tally.window.begin != Stamp::NEVER {
            return;
        }
        if worker.shared.are_all_warm(worker.plan) {
            // Where counting begins when all are warm, several threads may see that at once. The first one says when; the
            // others take its time below, so that all windows are the same. Nothing else hangs on this number: relaxed order is enough.
            let begin = &worker.shared.begin;
            let _ =
                begin.compare_exchange(Stamp::NEVER.0, now.0, Ordering::Relaxed, Ordering::Relaxed);
        }
        tally.window = worker.window();
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc::{Receiver, channel};

    use super::*;
    use crate::engine::response::Ended;
    use crate::engine::tally::Flight;
    use crate::plan::{Arrival, Arrivals, Length, Profile};
    use crate::tests::sample;

    const START: Stamp = Stamp(1_000_000_000);

    fn at_ms(ms: u64) -> Stamp {
        START.plus(Nanos::from_ms(ms))
    }

    fn plan(threads: usize, connections: usize, length: Length) -> Plan {
        let mut plan = sample();
        plan.machine.threads = threads;
        plan.connections.len = connections;
        plan.length = length;
        plan
    }

    fn lasts(begin: Begin, lasts_ms: u64) -> Length {
        Length {
            begin,
            duration: Some(Nanos::from_ms(lasts_ms)),
            requests: None,
        }
    }

    fn counts(requests: u64) -> Length {
        Length {
            begin: Begin::AtOnce,
            duration: None,
            requests: Some(requests),
        }
    }

    /// A worker and what it keeps of time, with the receiver of its seconds.
    struct WorkerTest<'a> {
        worker: Worker<'a>,
        tally: Tally,
        ticker: Ticker,
        seconds: Receiver<SecondShare>,
    }

    impl<'a> WorkerTest<'a> {
        fn of(plan: &'a Plan, shared: &'a RunShared, thread: usize) -> WorkerTest<'a> {
            let (sender, seconds) = channel();
            let worker = Worker::of(plan, shared, thread, sender);
            let tally = worker.tally();
            let ticker = Ticker::new(&worker);
            WorkerTest {
                worker,
                tally,
                ticker,
                seconds,
            }
        }

        fn turn(&mut self, warm: usize, ms: u64) -> Turn {
            let now = at_ms(ms);
            self.ticker.turn(&self.worker, &mut self.tally, warm, now)
        }

        /// The right reply to a request that was sent at `sent_ms`.
        fn answer(&mut self, sent_ms: u64, ms: u64) {
            let right = Ended {
                status: 200,
                keeps: true,
                wrong: None,
            };
            let flight = Flight {
                sent: at_ms(sent_ms),
                ..Flight::default()
            };
            self.tally.ended(&flight, right, at_ms(ms));
        }
    }

    #[test]
    fn shares_sum_up_to_the_plan() {
        for threads in 1..12 {
            for connections in [threads, threads + 1, 100, 30_001] {
                for requests in [0, 1, 7, 100, u64::from(u32::MAX) * 5 + 3] {
                    let plan = plan(threads, connections, counts(requests));
                    let shared = RunShared::new(&plan, START);
                    let workers: Vec<Worker<'_>> = (0..threads)
                        .map(|thread| Worker::of(&plan, &shared, thread, channel().0))
                        .collect();
                    let mut all = 0;
                    for worker in &workers {
                        assert!(worker.connections_len.abs_diff(connections / threads) <= 1);
                        all += worker.connections_len;
                    }
                    assert_eq!(all, connections);
                    let shares = workers.iter().filter_map(|worker| worker.requests_max);
                    assert_eq!(shares.sum::<u64>(), requests);
                }
            }
        }
    }

    #[test]
    fn leaves_no_request_of_a_burst_or_a_recording_to_another_thread() {
        let mut plan = plan(2, 5, counts(5));
        let bounds = |plan: &Plan| {
            let shared = RunShared::new(plan, START);
            [0, 1].map(|thread| Worker::of(plan, &shared, thread, channel().0).requests_max)
        };
        plan.load = Load::Burst;
        assert_eq!(bounds(&plan), [None, None]);
        let arrival = Arrival {
            offset: Nanos::ZERO,
            kind: 0,
        };
        // The first thread has three of five, and a half of them would be two.
        plan.load = Load::Recorded {
            arrivals: vec![arrival; 5].into(),
        };
        assert_eq!(bounds(&plan), [None, None]);
        plan.length.requests = Some(4);
        assert_eq!(bounds(&plan), [Some(2), Some(2)]);
    }

    #[test]
    fn waits_for_no_connection_of_a_thread_that_has_ended() {
        let plan = plan(2, 5, lasts(Begin::AllOpen, 100));
        let shared = RunShared::new(&plan, START);
        let [mut one, mut other] = [1, 0].map(|thread| WorkerTest::of(&plan, &shared, thread));
        one.turn(1, 0);
        one.ticker.finish(&one.worker, &mut one.tally);
        other.turn(2, 10);
        assert_eq!(shared.begin(), Stamp::NEVER);
        other.turn(3, 20);
        assert_eq!(shared.begin(), at_ms(20));
    }

    #[test]
    fn takes_no_turn_full_of_work_for_standing_still() {
        let plan = plan(1, 1, lasts(Begin::AllOpen, 60_000));
        let mut shared = RunShared::new(&plan, START);
        shared.start = telemetry::now();
        let mut tested = WorkerTest::of(&plan, &shared, 0);
        let begun = processor_time();
        while processor_time().0 - begun.0 < 100_000_000 {
            std::hint::spin_loop();
        }
        // As if no other thread had had the processor meanwhile.
        let worked = Nanos(processor_time().0 - begun.0);
        let now = shared.start.plus(worked);
        let WorkerTest {
            worker,
            tally,
            ticker,
            ..
        } = &mut tested;
        ticker.turn(worker, tally, 1, now);
        assert_eq!(ticker.stalled, Nanos::ZERO);
        ticker.turn(worker, tally, 1, now.plus(Nanos::from_ms(500)));
        assert!(
            ticker.stalled >= Nanos::from_ms(480),
            "{:?}",
            ticker.stalled
        );
    }

    #[test]
    fn begins_to_count_when_the_connections_of_all_threads_are_warm() {
        let plan = plan(2, 5, lasts(Begin::AllOpen, 100));
        let shared = RunShared::new(&plan, START);
        let [mut one, mut other] = [1, 0].map(|thread| WorkerTest::of(&plan, &shared, thread));
        let lens = [&one, &other].map(|tested| tested.worker.connections_len);
        assert_eq!(lens, [2, 3]);
        for (ms, warm) in [(0, 0), (10, 1), (20, 2), (30, 2)] {
            assert_eq!(one.turn(warm, ms), Turn::Goes);
            assert_eq!(other.turn(1, ms), Turn::Goes);
            assert_eq!(shared.begin(), Stamp::NEVER);
        }
        assert_eq!(other.turn(3, 40), Turn::Goes);
        assert_eq!(shared.begin(), at_ms(40));
        // The other thread learns of it, whatever its own time is.
        assert_eq!(one.turn(2, 50), Turn::Goes);
        let window = Window {
            begin: at_ms(40),
            end: at_ms(140),
        };
        assert_eq!((one.tally.window, other.tally.window), (window, window));
        for ms in (60..140).step_by(20) {
            assert_eq!(one.turn(2, ms), Turn::Goes);
        }
        assert_eq!(one.turn(2, 140), Turn::Ends);
        assert_eq!(one.ticker.stalled, Nanos::ZERO);
    }

    #[test]
    fn counts_after_a_warm_up() {
        let plan = plan(1, 1, lasts(Begin::After(Nanos::from_ms(20)), 30));
        let shared = RunShared::new(&plan, START);
        let mut tested = WorkerTest::of(&plan, &shared, 0);
        for ms in [0, 19, 49, 50] {
            let turn = tested.turn(1, ms);
            assert_eq!(turn == Turn::Ends, ms == 50);
            tested.answer(ms, ms);
        }
        assert_eq!(tested.tally.ended, 1, "19 is before the window, 50 behind");
    }

    #[test]
    fn ends_with_its_share_of_the_requests_or_when_somebody_says_so() {
        let plan = plan(2, 2, counts(3));
        let shared = RunShared::new(&plan, START);
        let [mut one, mut other] = [1, 0].map(|thread| WorkerTest::of(&plan, &shared, thread));
        let shares = [&one, &other].map(|tested| tested.worker.requests_max);
        assert_eq!(shares, [Some(1), Some(2)]);
        for tested in [&mut one, &mut other] {
            assert_eq!(tested.turn(0, 1), Turn::Goes);
            tested.answer(2, 2);
        }
        assert_eq!((one.turn(1, 3), other.turn(1, 3)), (Turn::Ends, Turn::Goes));
        shared.end();
        assert_eq!(other.turn(1, 4), Turn::Ends);
    }

    #[test]
    fn says_every_second_once() {
        let mut plan = plan(1, 1, lasts(Begin::AllOpen, 60_000));
        plan.load = Load::Open {
            arrivals: Arrivals::Constant,
            rate: Profile::constant(1.0),
        };
        let shared = RunShared::new(&plan, START);
        let mut tested = WorkerTest::of(&plan, &shared, 0);
        for ms in [0, 999, 1_000, 3_500, 3_600] {
            tested.turn(0, ms);
            tested.answer(ms, ms);
        }
        tested.ticker.finish(&tested.worker, &mut tested.tally);
        let said: Vec<u64> = tested.seconds.try_iter().map(|second| second.at).collect();
        assert_eq!(said, [0, 1, 2, 3]);
    }

    #[test]
    fn notices_that_it_stood_still() {
        let plan = plan(1, 1, lasts(Begin::AllOpen, 60_000));
        let shared = RunShared::new(&plan, START);
        let mut tested = WorkerTest::of(&plan, &shared, 0);
        for ms in [10, 20, 50] {
            tested.turn(1, ms);
        }
        assert_eq!(
            tested.ticker.stalled,
            Nanos::ZERO,
            "a turn may come a little late"
        );
        tested.turn(1, 150);
        // But for what this test works itself.
        let stalled = tested.ticker.stalled.0.div_ceil(1_000_000);
        assert_eq!(stalled, 90);
        // Sent at 140, read at 160: when it came is not known.
        tested.answer(140, 160);
        assert_eq!(
            (tested.tally.counts.disturbed, tested.tally.counts.answered),
            (1, 1)
        );
        assert!(tested.tally.last_byte.is_empty());
    }
}
