//! One simulation: what falls due, in the order of time, and what follows from it.
//!
//! Takes arrivals, moves the time, passes events to pools and processes. Keeps one place for each
//! waiting request and each thread and nothing for those that are over, so that memory does not grow
//! with the number of arrivals.

use queueing::TICK;
use telemetry::{Nanos, Stamp};

use crate::{Arrival, Lifetime, Outcome, PoolOutcome, PoolPlan, RunsOn, Setting};

use super::event_loop::{EventLoop, LoopEvent};
use super::events::{Delay, Due, Pauses, Ready, Timers};
use super::pool::{Job, Pool, Work};
use super::process::{Need, Process, Step};
use super::shared::Runner;
use super::timeline::Timeline;
use super::{Ending, START, Trace, stamp};

/// A simulation on its way.
pub(super) struct Simulation<'s, T> {
    setting: &'s Setting,
    trace: T,
    random: fastrand::Rng,
    now: Stamp,
    started: Stamp,
    arrived: u64,
    /// Requests that wait or run.
    inside: usize,
    /// One process after another, each with all pools of the setting.
    pools: Vec<Pool>,
    processes: Vec<Process>,
    /// One for each process, if pools are on one.
    loops: Vec<EventLoop>,
    timers: Timers,
    pauses: Pauses,
    /// The next multiple of [`TICK`], unless all pools rest.
    tick: Stamp,
    /// When a request may have waited too long; not later than the truth.
    expiry: Stamp,
    outcomes: Vec<PoolOutcome>,
    timeline: Timeline,
}

impl<'s, T: FnMut(&Trace)> Simulation<'s, T> {
    pub(super) fn new(setting: &'s Setting, seed: u64, trace: T) -> Self {
        assert!(!setting.pools.is_empty(), "a setting has a pool");
        let processes = setting.processes.max(1);
        let pools = (0..processes)
            .flat_map(|_| &setting.pools)
            .map(Pool::new)
            .collect();
        let is_on_loop = |plan: &PoolPlan| plan.runs_on == RunsOn::EventLoop;
        let loops_len = match setting.pools.iter().any(is_on_loop) {
            true => processes,
            false => 0,
        };
        let event_loop = |_| EventLoop::new(setting.event_loop);
        Simulation {
            setting,
            loops: (0..loops_len).map(event_loop).collect(),
            trace,
            random: fastrand::Rng::with_seed(seed),
            now: Stamp::ZERO,
            started: Stamp::ZERO,
            arrived: 0,
            inside: 0,
            pools,
            processes: vec![Process::new(setting.sharing, setting.lock); processes],
            timers: Timers::default(),
            pauses: Pauses::new(&setting.pauses),
            tick: Stamp::NEVER,
            expiry: Stamp::NEVER,
            outcomes: setting.pools.iter().map(|_| PoolOutcome::new()).collect(),
            timeline: Timeline::default(),
        }
    }

    /// Runs all arrivals, until the last has ended.
    pub(super) fn run(&mut self, arrivals: &mut dyn Iterator<Item = Arrival>) {
        let mut next = arrivals.next();
        if let Some(first) = next {
            self.begin(stamp(first.at));
        }
        loop {
            let (at, due) = self.soonest();
            match next {
                // What ends at the very moment of an arrival ends before it.
                Some(arrival) if stamp(arrival.at) < at => {
                    self.advance(stamp(arrival.at));
                    self.arrive(&arrival);
                    next = arrivals.next();
                }
                None if self.inside == 0 => break,
                _ => {
                    assert!(at < Stamp::NEVER, "requests wait and nothing will happen");
                    self.advance(at);
                    self.fall_due(due);
                }
            }
        }
    }

    fn begin(&mut self, now: Stamp) {
        (self.now, self.started) = (now, now);
        self.tick = next_tick(now);
        for pool in &mut self.pools {
            pool.begin(now);
            self.timeline.level.threads += pool.threads();
        }
        for process in &mut self.processes {
            process.resume(now);
        }
        self.timeline.begin(now);
        self.pauses.begin(now);
    }

    /// What comes next, arrivals apart.
    fn soonest(&self) -> (Stamp, Due) {
        let pause = (self.pauses.next(), Due::Pause);
        // While the server stands still only the end of the pause and arrivals can happen.
        if self.pauses.are_on() {
            return pause;
        }
        let mut soonest = (Stamp::NEVER, Due::Tick);
        let mut offer = |at: Stamp, due: Due| {
            if at < soonest.0 {
                soonest = (at, due);
            }
        };
        for (index, process) in self.processes.iter().enumerate() {
            offer(process.next(), Due::Step(index));
        }
        for (index, event_loop) in self.loops.iter().enumerate() {
            offer(event_loop.next(), Due::Loop(index));
        }
        offer(self.pauses.real(self.timers.next()), Due::Ready);
        offer(self.expiry, Due::Expiry);
        offer(self.tick, Due::Tick);
        offer(pause.0, Due::Pause);
        soonest
    }

    fn fall_due(&mut self, due: Due) {
        match due {
            Due::Step(process) => self.step(process),
            Due::Loop(process) => self.step_loop(process),
            Due::Ready => {
                let ready = self.timers.pop().expect("a timer is due");
                self.ready(ready);
            }
            Due::Expiry => self.expire(),
            Due::Tick => self.tick(),
            Due::Pause => self.pause(),
        }
    }

    fn advance(&mut self, now: Stamp) {
        // What was due in a pause is late.
        self.now = now.max(self.now);
        self.timeline.advance(self.now);
    }

    fn arrive(&mut self, arrival: &Arrival) {
        let number = self.arrived;
        self.arrived += 1;
        let (index, plan) = self.pool_for(arrival);
        self.outcomes[plan].arrived += 1;
        let pool = &mut self.pools[index];
        let process = index / self.setting.pools.len();
        let is_on_loop = pool.runs_on() == RunsOn::EventLoop;
        let free_len = match is_on_loop {
            true => self.loops[process].free_len(self.now),
            false => 0,
        };
        // A pool at rest is not looked at; the first request begins the looks again, on the same multiples.
        if pool.rouse(self.now) && self.tick == Stamp::NEVER {
            self.tick = next_tick(self.now);
        }
        if !pool.admits(arrival.class, free_len) {
            self.refuse(index, number, self.now, Ending::Refused);
            return;
        }
        let begins = !is_on_loop && pool.may_begin(arrival.class);
        let job = Job {
            number,
            need: Need {
                run: arrival.run,
                computing: arrival.computing,
            },
            steps: arrival.steps,
            from_queue: !begins,
        };
        pool.push(self.now, arrival.class, job);
        self.expiry = self.expiry.min(pool.expiry());
        self.inside += 1;
        self.timeline.level.waiting += 1;
        if is_on_loop {
            self.call_loop(process, arrival.steps.wake);
        } else if begins {
            let thread = pool.wake().expect("a thread is idle");
            let wake = self.wake();
            self.after(wake, Delay::Wake, index, thread);
        }
    }

    /// The index among all pools, and that among those of the setting.
    fn pool_for(&mut self, arrival: &Arrival) -> (usize, usize) {
        let process = match (self.processes.len(), arrival.process) {
            (1, _) => 0,
            (len, Some(process)) => usize::from(process).min(len - 1),
            (len, None) => self.random.usize(..len),
        };
        let plans = self.setting.pools.len();
        let plan = self.setting.pool_of_route.get(usize::from(arrival.route));
        let plan = plan.map_or(0, |&plan| plan.min(plans - 1));
        (process * plans + plan, plan)
    }

    /// What an idle thread needs this time.
    fn wake(&mut self) -> Nanos {
        drawn(&self.setting.wakes, &mut self.random)
    }

    /// A thread can begin after the delay.
    fn after(&mut self, delay: Nanos, why: Delay, pool: usize, thread: u32) {
        let ready = Ready {
            pool,
            thread,
            delay: why,
        };
        // In a pause even what takes no time has to wait for its end.
        if delay == Nanos::ZERO && !self.pauses.are_on() {
            self.ready(ready);
        } else {
            let at = self.pauses.own(self.now).plus(delay);
            self.timers.push(at, ready);
        }
    }

    fn ready(&mut self, ready: Ready) {
        let pool = &mut self.pools[ready.pool];
        if ready.delay == Delay::Wake {
            pool.woken();
        }
        self.take(ready.pool, ready.thread);
    }

    fn take(&mut self, index: usize, thread: u32) {
        let pool = &mut self.pools[index];
        // Before it takes work: a pool that is to shrink would never do so while requests wait.
        if pool.leaves(self.now, thread) {
            self.timeline.level.threads -= 1;
            return;
        }
        let Some(work) = pool.take(self.now, thread) else {
            return;
        };
        let plans = self.setting.pools.len();
        // The pools of a plan are one row of the outcome, whatever process they are in.
        let wait = self.now.since(work.queued);
        self.outcomes[index % plans].queue.record(wait.0);
        self.timeline.waited(wait);
        self.timeline.level.waiting -= 1;
        self.timeline.level.running += 1;
        let runner = Runner {
            pool: (index % plans) as u32,
            thread,
        };
        self.processes[index / plans].start(self.now, work.job.need, runner);
    }

    fn step(&mut self, process: usize) {
        let Step::Part(runner, part) = self.processes[process].step(self.now) else {
            return;
        };
        let index = process * self.setting.pools.len() + runner.pool as usize;
        let need = self.pools[index].need(runner.thread);
        if !self.processes[process].go_on(self.now, need, runner, part) {
            self.end(process, runner);
        }
    }

    fn step_loop(&mut self, process: usize) {
        let plans = self.setting.pools.len();
        match self.loops[process].step(self.now) {
            LoopEvent::Moved => {}
            LoopEvent::Looks => self.look(process),
            LoopEvent::Began { work, pool } => {
                let wait = self.now.since(work.queued);
                let outcome = &mut self.outcomes[pool as usize];
                outcome.queue.record(wait.0);
                self.timeline.waited(wait);
            }
            LoopEvent::Stepped { pool, took } => {
                self.pools[process * plans + pool as usize].stepped(took);
                self.call_if_any_waits(process);
            }
            LoopEvent::Ended {
                work,
                pool,
                lifetime,
                took,
            } => {
                self.pools[process * plans + pool as usize].stepped(took);
                self.end_on_loop(process, pool, &work, lifetime);
                self.call_if_any_waits(process);
            }
        }
    }

    /// The event loop of a process takes what may begin, one pool after another.
    fn look(&mut self, process: usize) {
        let plans = self.setting.pools.len();
        let first = process * plans;
        let mut plan = 0;
        let mut empty_len = 0;
        while empty_len < plans {
            let waiting_len = self.waits(process);
            if !self.loops[process].may_begin(self.now, waiting_len) {
                break;
            }
            let pool = &mut self.pools[first + plan];
            let taken = match pool.runs_on() {
                RunsOn::EventLoop => pool.take_for_loop(self.now),
                RunsOn::Threads => None,
            };
            match taken {
                // What is left there has waited too long, or nothing is.
                None => empty_len += 1,
                Some(work) => {
                    empty_len = 0;
                    self.timeline.level.waiting -= 1;
                    self.timeline.level.running += 1;
                    let place = self.random.f64();
                    self.loops[process].begin(work, plan as u32, place);
                }
            }
            plan = (plan + 1) % plans;
        }
    }

    /// Requests that wait for the event loop of a process.
    fn waits(&self, process: usize) -> usize {
        let plans = self.setting.pools.len();
        let own = &self.pools[process * plans..(process + 1) * plans];
        let own = own
            .iter()
            .filter(|pool| pool.runs_on() == RunsOn::EventLoop);
        own.map(Pool::waiting).sum()
    }

    /// There may be room inside the event loop now.
    fn call_if_any_waits(&mut self, process: usize) {
        if self.waits(process) > 0 && self.loops[process].free_len(self.now) > 0 {
            self.call_loop(process, None);
        }
    }

    /// Calls a loop, which needs `wake` if it sleeps; without that it needs what one of the log has needed.
    fn call_loop(&mut self, process: usize, wake: Option<Nanos>) {
        let drawn = || drawn(&self.setting.loop_wakes, &mut self.random);
        let wake = wake.unwrap_or_else(drawn);
        self.loops[process].call(self.now, wake);
    }

    fn end_on_loop(&mut self, process: usize, pool: u32, work: &Work, lifetime: Lifetime) {
        let index = process * self.setting.pools.len() + pool as usize;
        let run = self.now.since(work.started);
        let counted = (lifetime != Lifetime::WebSocket).then_some(run);
        self.pools[index].end_on_loop(self.now, counted);
        self.count_end(process, Runner { pool, thread: 0 }, work, lifetime, 0);
    }

    fn end(&mut self, process: usize, runner: Runner) {
        let thread = runner.thread;
        let index = process * self.setting.pools.len() + runner.pool as usize;
        let work = self.pools[index].end(self.now, thread);
        let idle_others = self.pools[index].idle_len();
        self.count_end(process, runner, &work, Lifetime::Response, idle_others);
        // A thread without anything to fetch is idle at once: the cost of the next wake is paid by the next request.
        if self.pools[index].waiting() > 0 {
            self.after(self.setting.fetch, Delay::Fetch, index, thread);
        } else {
            self.take(index, thread);
        }
    }

    /// A request that has run is over: what the answer and the trace have of it.
    fn count_end(
        &mut self,
        process: usize,
        Runner { pool: plan, thread }: Runner,
        work: &Work,
        lifetime: Lifetime,
        idle_others: usize,
    ) {
        let plan = plan as usize;
        let total = self.now.since(work.queued);
        assert!(self.inside > 0, "a request ends that never came");
        let outcome = &mut self.outcomes[plan];
        if lifetime == Lifetime::Response {
            outcome.total.record(total.0);
        }
        outcome.good += u64::from(total <= self.setting.patience);
        self.inside -= 1;
        self.timeline.level.running -= 1;
        (self.trace)(&Trace {
            number: work.job.number,
            process,
            pool: plan,
            ending: Ending::Ran,
            arrived: work.queued.since(START),
            started: work.started.since(START),
            ended: self.now.since(START),
            thread: thread as usize,
            from_queue: work.job.from_queue,
            waiting_at_end: self.pools[process * self.setting.pools.len() + plan].waiting(),
            idle_others_at_end: idle_others,
        });
    }

    fn refuse(&mut self, index: usize, number: u64, arrived: Stamp, ending: Ending) {
        let plans = self.setting.pools.len();
        self.pools[index].count_refusal();
        let (pool, outcome) = (&self.pools[index], &mut self.outcomes[index % plans]);
        match ending {
            Ending::Refused => outcome.refused += 1,
            _ => outcome.expired += 1,
        }
        self.timeline.level.refused += 1;
        (self.trace)(&Trace {
            number,
            process: index / plans,
            pool: index % plans,
            ending,
            arrived: arrived.since(START),
            started: self.now.since(START),
            ended: self.now.since(START),
            thread: 0,
            from_queue: ending == Ending::Expired,
            waiting_at_end: pool.waiting(),
            idle_others_at_end: pool.idle_len(),
        });
    }

    fn expire(&mut self) {
        self.expiry = Stamp::NEVER;
        for index in 0..self.pools.len() {
            while let Some((job, queued)) = self.pools[index].expire(self.now) {
                self.inside -= 1;
                self.timeline.level.waiting -= 1;
                self.refuse(index, job.number, queued, Ending::Expired);
            }
            self.expiry = self.expiry.min(self.pools[index].expiry());
        }
    }

    fn tick(&mut self) {
        self.tick = Stamp::NEVER;
        self.expiry = Stamp::NEVER;
        let mut fresh = Vec::new();
        for index in 0..self.pools.len() {
            let pool = &mut self.pools[index];
            if !pool.is_resting() {
                let before = pool.threads();
                let share = self.processes[index / self.setting.pools.len()].lock_share(self.now);
                pool.tick(self.now, share, &mut fresh);
                self.timeline.level.threads -= before;
                self.timeline.level.threads += pool.threads();
            }
            for thread in fresh.drain(..) {
                self.after(self.setting.thread_start, Delay::Start, index, thread);
            }
            // Where all pools rest no tick is due: the time to the next arrival is passed in one step.
            if !self.pools[index].is_resting() {
                self.tick = next_tick(self.now);
            }
            self.expiry = self.expiry.min(self.pools[index].expiry());
        }
    }

    fn pause(&mut self) {
        let stands_still = self.pauses.turn(self.now);
        for process in &mut self.processes {
            if stands_still {
                process.stop(self.now);
            } else {
                process.resume(self.now);
            }
        }
        for event_loop in &mut self.loops {
            match stands_still {
                true => event_loop.stop(self.now),
                false => event_loop.resume(self.now),
            }
        }
    }

    /// What came out.
    pub(super) fn finish(mut self) -> Outcome {
        let plans = self.setting.pools.len();
        let ends = |pool: &PoolOutcome| pool.ran() + pool.refused + pool.expired;
        let ended: u64 = self.outcomes.iter().map(ends).sum();
        assert_eq!(self.arrived, ended, "each request ends, and once");
        for (index, pool) in self.pools.iter_mut().enumerate() {
            pool.report(self.now, &mut self.outcomes[index % plans]);
        }
        Outcome {
            pools: self.outcomes,
            lasted: self.now.since(self.started),
            timeline: self.timeline.finish(self.now),
        }
    }
}

/// One of them by chance, each as likely as the others; nothing of none.
fn drawn(spans: &[Nanos], random: &mut fastrand::Rng) -> Nanos {
    match spans {
        [] => Nanos::ZERO,
        [always] => *always,
        several => several[random.usize(..several.len())],
    }
}

/// The next multiple of [`TICK`].
fn next_tick(now: Stamp) -> Stamp {
    Stamp((now.0 / TICK.0 + 1) * TICK.0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{ArrivalProcess, Laws, PoolPlan, Rate, Route, Service, Sharing};
    use queueing::{Control, Decision, PoolSeen, PoolSettings, PoolShape, PoolState, SizeStep};

    const THREADS_MAX: usize = 16;
    const QUEUE_LEN_MAX: usize = 50;

    /// Everything that takes memory while the simulation runs, in places.
    fn places<T: FnMut(&Trace)>(course: &Simulation<'_, T>) -> usize {
        let pools: usize = course.pools.iter().map(Pool::places).sum();
        let processes: usize = course.processes.iter().map(Process::places).sum();
        let loops: usize = course.loops.iter().map(EventLoop::places).sum();
        pools + processes + loops + course.timers.places() + course.timeline.places()
    }

    fn settings() -> PoolSettings {
        PoolSettings {
            shape: PoolShape {
                threads_min: 1,
                threads_max: THREADS_MAX,
                queue_len_max: QUEUE_LEN_MAX,
            },
            queue_target: Nanos::from_ms(5),
            queue_timeout: Nanos::from_secs(1),
            overload_timeout: Some(Nanos::from_ms(100)),
            reserve_threads: 1,
            reserve_len: 4,
        }
    }

    fn setting(policy: Box<dyn Fn() -> Box<dyn super::super::Policy>>) -> Setting {
        Setting {
            processes: 1,
            pools: vec![PoolPlan {
                runs_on: RunsOn::Threads,
                settings: settings(),
                threads: 4,
                policy,
            }],
            pool_of_route: Vec::new(),
            wakes: vec![Nanos::from_us(50)],
            fetch: Nanos::from_us(5),
            thread_start: Nanos::from_ms(30),
            event_loop: crate::LoopPlan::default(),
            loop_wakes: Vec::new(),
            sharing: Sharing {
                sigma: 0.01,
                kappa: 0.001,
            },
            lock: None,
            pauses: Vec::new(),
            patience: Nanos::from_secs(1),
        }
    }

    /// Half of the time more than 16 threads can do, half of the time less than one.
    fn laws() -> Laws {
        let rate = |per_second, secs| Rate::steady(per_second, Nanos::from_secs(secs));
        let rates = (0..400).flat_map(|_| [rate(2_000.0, 1), rate(20.0, 60)]);
        Laws {
            rates: rates.collect(),
            process: ArrivalProcess::Poisson,
            routes: vec![Route::only(Service::Exponential {
                mean: Nanos::from_ms(10),
            })],
        }
    }

    #[test]
    fn memory_does_not_grow_with_the_number_of_arrivals() {
        let setting = setting(Box::new(|| Box::new(Control::new(&settings()))));
        let after = |requests| {
            let mut course = Simulation::new(&setting, 1, |_: &Trace| {});
            course.run(&mut laws().arrivals(1).take(requests));
            (places(&course), course.finish())
        };
        let (few_places, few) = after(20_000);
        let (places, many) = after(250_000);
        assert!(few.timeline.len() < 1_000 && many.lasted > Nanos::from_secs(4_096));
        assert!(
            places <= 2 * (QUEUE_LEN_MAX + 8 * THREADS_MAX) + 4_096,
            "{places}"
        );
        assert!(few_places <= places, "{few_places}");
        let refused: u64 = many.timeline.iter().map(|moment| moment.refused).sum();
        let pool = &many.pools[0];
        assert_eq!(refused, pool.refused + pool.expired);
        assert!(refused > 0 && pool.expired > 0);
        let apart = |pair: &[crate::Moment]| pair[1].at.0 - pair[0].at.0 == 2_000_000_000;
        let but_last = &many.timeline[..many.timeline.len() - 1];
        assert!(but_last.windows(2).all(apart));
        assert_eq!(pool.arrived, 250_000);
        assert_eq!(pool.ran() + pool.refused + pool.expired, 250_000);
    }

    #[test]
    fn a_week_at_rest_is_not_looked_at_ten_times_a_second() {
        struct Counts(std::rc::Rc<std::cell::Cell<u64>>);
        impl super::super::Policy for Counts {
            fn tick(&mut self, _: Stamp, _: &PoolSeen) -> Decision {
                self.0.set(self.0.get() + 1);
                Decision {
                    step: SizeStep::Keep,
                    state: PoolState::default(),
                }
            }
        }
        let looks = std::rc::Rc::new(std::cell::Cell::new(0));
        let counter = std::rc::Rc::clone(&looks);
        let setting = setting(Box::new(move || {
            Box::new(Counts(std::rc::Rc::clone(&counter)))
        }));
        let day = Nanos::from_secs(86_400);
        let mut arrivals = (0..8).map(|index| Arrival {
            at: Nanos(index * day.0),
            run: Nanos::from_ms(5),
            ..Arrival::default()
        });
        let mut course = Simulation::new(&setting, 1, |_: &Trace| {});
        course.run(&mut arrivals);
        // Four threads where one would do: it is looked at for a while, in case they are to go.
        assert_eq!(looks.get(), 7 * 4_001);
        assert!(course.finish().timeline.len() <= 4_096);
    }
}
