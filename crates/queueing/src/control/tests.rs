//! The controller on a small virtual pool: what it got wrong while it was made, and that it no longer does.

use std::collections::VecDeque;

use super::*;
use crate::{Admission, Class, Entry, Line, admit};

/// A pool of virtual threads, moved on by milliseconds.
struct VirtualPool {
    control: Control,
    settings: PoolSettings,
    line: Line<Job>,
    state: PoolState,
    now: Stamp,
    threads: usize,
    running: Vec<Job>,
    arrived: u64,
    completed: u64,
    /// With this many at work each of them advances at this part of its speed.
    speed: fn(usize) -> f64,
    gil_share: Option<f64>,
    outcome: Outcome,
}

#[derive(Clone, Copy, Debug)]
struct Job {
    left_ms: f64,
    begun: Stamp,
}

#[derive(Clone, Debug, Default)]
struct Outcome {
    arrived: usize,
    refused: usize,
    expired: usize,
    good: usize,
    thread_ms: u64,
    ms: u64,
    started: usize,
    waits: Vec<Nanos>,
}

/// What one millisecond brings: run times of those that arrive in it, and whether the world stands still.
#[derive(Clone, Debug, Default)]
struct Workload {
    arrivals: VecDeque<(u64, f64)>,
    pauses: Vec<(u64, u64)>,
}

/// A fixed linear congruential sequence.
struct Chance(u64);

impl Chance {
    fn unit(&mut self) -> f64 {
        let step = self.0.wrapping_mul(6_364_136_223_846_793_005);
        self.0 = step.wrapping_add(1_442_695_040_888_963_407);
        ((self.0 >> 11) as f64 + 0.5) / (1_u64 << 53) as f64
    }

    fn exponential(&mut self, mean: f64) -> f64 {
        -mean * self.unit().ln()
    }
}

impl Workload {
    /// Poisson arrivals between two moments, of exponential run times.
    fn poisson(
        mut self,
        chance: &mut Chance,
        span_ms: (u64, u64),
        per_second: f64,
        run_ms: f64,
    ) -> Workload {
        let mut at = span_ms.0 as f64;
        loop {
            at += chance.exponential(1_000.0 / per_second);
            if at >= span_ms.1 as f64 {
                return self;
            }
            self.arrivals
                .push_back((at as u64, chance.exponential(run_ms)));
        }
    }
}

fn settings(threads_min: usize, threads_max: usize) -> PoolSettings {
    PoolSettings {
        shape: PoolShape {
            threads_min,
            threads_max,
            queue_len_max: 100_000,
        },
        queue_target: Nanos::from_ms(50),
        queue_timeout: Nanos::from_secs(1),
        overload_timeout: Some(Nanos::from_ms(100)),
        reserve_threads: 0,
        reserve_len: 0,
    }
}

fn alone(_running: usize) -> f64 {
    1.0
}

/// One lock round nearly everything.
fn gil(running: usize) -> f64 {
    usl(running, 0.95, 0.001)
}

/// A database that more connections slow down; 10 are the best.
fn downstream(running: usize) -> f64 {
    usl(running, 0.02, 0.01)
}

fn usl(running: usize, sigma: f64, kappa: f64) -> f64 {
    let n = running as f64;
    1.0 / (1.0 + sigma * (n - 1.0) + kappa * n * (n - 1.0))
}

impl VirtualPool {
    fn new(settings: PoolSettings, threads: usize, speed: fn(usize) -> f64) -> VirtualPool {
        VirtualPool {
            control: Control::new(&settings),
            settings,
            line: Line::new(&settings),
            state: PoolState::default(),
            now: Stamp::ZERO,
            threads,
            running: Vec::new(),
            arrived: 0,
            completed: 0,
            speed,
            gil_share: None,
            outcome: Outcome::default(),
        }
    }

    /// Lives through a load until a moment.
    fn live(&mut self, load: &mut Workload, until_ms: u64) {
        while self.now < Stamp::ZERO.plus(Nanos::from_ms(until_ms)) {
            let ms = self.now.0 / 1_000_000;
            let stands = load
                .pauses
                .iter()
                .any(|&(from, to)| (from..to).contains(&ms));
            while load.arrivals.front().is_some_and(|(at, _)| *at <= ms) {
                let (_, run_ms) = load.arrivals.pop_front().unwrap();
                self.arrive(run_ms);
            }
            if !stands {
                self.advance();
            }
            self.fill(stands);
            if self.now.0.is_multiple_of(TICK.0) {
                self.tick();
            }
            self.outcome.thread_ms += self.threads as u64;
            self.outcome.ms += 1;
            self.now = self.now.plus(Nanos::from_ms(1));
        }
    }

    fn arrive(&mut self, run_ms: f64) {
        self.outcome.arrived += 1;
        self.arrived += 1;
        match admit(
            self.line.waiting(Class::Normal),
            Class::Normal,
            &self.settings,
            &self.state,
        ) {
            Admission::Refuse { .. } => self.outcome.refused += 1,
            Admission::Enqueue => self.line.push(Entry {
                item: Job {
                    left_ms: run_ms,
                    begun: self.now,
                },
                class: Class::Normal,
                queued: self.now,
                before: Nanos::ZERO,
            }),
        }
    }

    /// A millisecond of work.
    fn advance(&mut self) {
        let done_ms = (self.speed)(self.running.len());
        for job in &mut self.running {
            job.left_ms -= done_ms;
        }
        let (now, line, outcome) = (self.now, &mut self.line, &mut self.outcome);
        let before = self.running.len();
        self.running.retain(|job| {
            if job.left_ms > 0.0 {
                return true;
            }
            line.ran(Nanos(now.since(job.begun).0));
            outcome.good += 1;
            false
        });
        self.completed += (before - self.running.len()) as u64;
    }

    /// Gives work to idle threads, refuses who waited too long.
    fn fill(&mut self, stands: bool) {
        while !stands && self.running.len() < self.threads {
            let Some(entry) = self.line.take(self.now, self.running.len(), self.threads) else {
                break;
            };
            self.outcome.waits.push(entry.wait(self.now));
            let begun = self.now;
            self.running.push(Job {
                begun,
                ..entry.item
            });
        }
        while self.line.take_expired(self.now).is_some() {
            self.outcome.expired += 1;
        }
    }

    fn tick(&mut self) {
        let seen = PoolSeen {
            waiting: self.line.len(),
            oldest_wait: self.line.oldest_wait(self.now),
            waits: self.line.look(self.now),
            running: self.running.len().min(self.threads),
            idle: self.threads.saturating_sub(self.running.len()),
            arrived: self.arrived,
            completed: self.completed,
            refused: (self.outcome.refused + self.outcome.expired) as u64,
            gil_share: self.gil_share,
            downstream_full: false,
        };
        let decision = self.control.tick(self.now, &seen);
        match decision.step {
            SizeStep::Keep => {}
            SizeStep::Grow(more) => {
                self.threads += more;
                self.outcome.started += more;
                self.line.resized(self.now);
            }
            SizeStep::Shrink(less) => {
                self.threads -= less;
                self.line.resized(self.now);
            }
        }
        self.state = decision.state;
        self.line.set_state(decision.state);
    }
}

impl Outcome {
    fn threads(&self) -> f64 {
        self.thread_ms as f64 / self.ms as f64
    }

    fn good_share(&self) -> f64 {
        self.good as f64 / self.arrived as f64
    }

    fn p95_ms(&self) -> f64 {
        let mut sorted = self.waits.clone();
        sorted.sort_unstable();
        sorted[sorted.len() * 95 / 100].0 as f64 / 1e6
    }
}

/// Pages of about 15 requests at once, 150 requests a second.
fn bursts(chance: &mut Chance, ms: u64) -> Workload {
    let mut load = Workload::default();
    let mut at = 0.0;
    while at < ms as f64 {
        let len = 1 + chance.exponential(14.0) as u64;
        let arrivals = (0..len).map(|_| (at as u64, chance.exponential(35.0)));
        load.arrivals.extend(arrivals);
        at += chance.exponential(100.0);
    }
    load
}

#[test]
fn waits_from_before_a_growth_do_not_make_the_next() {
    let mut load = bursts(&mut Chance(1), 200_000);
    let mut world = VirtualPool::new(settings(2, 64), 2, alone);
    world.live(&mut load, 200_000);
    let outcome = &world.outcome;
    assert!(outcome.threads() < 34.0, "{} threads", outcome.threads());
    assert!(outcome.started < 70, "{} started", outcome.started);
    assert!(outcome.good_share() > 0.99, "{}", outcome.good_share());
    assert!(outcome.p95_ms() < 50.0, "{} ms", outcome.p95_ms());
}

#[test]
fn growth_counts_as_a_gain_only_against_a_saturated_rate() {
    let capacity = 10.0 * downstream(10) / 0.030;
    let chance = &mut Chance(2);
    let mut load = Workload::default()
        .poisson(chance, (0, 30_000), 0.5 * capacity, 30.0)
        .poisson(chance, (30_000, 90_000), 1.45 * capacity, 30.0);
    let mut world = VirtualPool::new(settings(2, 64), 2, downstream);
    world.live(&mut load, 30_000);
    world.outcome = Outcome::default();
    world.live(&mut load, 90_000);
    let outcome = &world.outcome;
    assert!(outcome.threads() < 20.0, "{} threads", outcome.threads());
    assert!(outcome.good_share() > 0.55, "{}", outcome.good_share());
}

#[test]
fn when_all_threads_hang_the_ages_of_those_who_wait_make_it_grow() {
    let mut load = Workload::default();
    load.arrivals.extend((0..4).map(|at| (at, 60_000.0)));
    load = load.poisson(&mut Chance(3), (100, 20_000), 20.0, 10.0);
    let mut world = VirtualPool::new(settings(2, 64), 4, alone);
    world.live(&mut load, 20_000);
    let outcome = &world.outcome;
    assert!(world.threads > 4 && world.threads < 10, "{}", world.threads);
    assert!(outcome.good_share() > 0.95, "{}", outcome.good_share());
    assert!(outcome.p95_ms() < 50.0, "{} ms", outcome.p95_ms());
}

#[test]
fn a_server_that_stood_still_does_not_grow_for_it() {
    let mut load = Workload::default().poisson(&mut Chance(4), (0, 40_000), 100.0, 20.0);
    load.pauses = vec![(20_000, 23_500)];
    let mut world = VirtualPool::new(settings(2, 64), 4, alone);
    world.live(&mut load, 20_000);
    let threads_before = world.threads;
    world.live(&mut load, 24_400);
    assert!(world.threads <= threads_before + 4, "{}", world.threads);
    world.live(&mut load, 40_000);
    assert!(world.threads <= 2 * threads_before, "{}", world.threads);
}

#[test]
fn a_pool_that_thrashes_is_led_out_of_it() {
    let capacity = 10.0 * downstream(10) / 0.030;
    let mut load = Workload::default().poisson(&mut Chance(5), (0, 90_000), 0.8 * capacity, 30.0);
    let mut fixed = VirtualPool::new(settings(64, 64), 64, downstream);
    fixed.live(&mut load.clone(), 90_000);
    let mut world = VirtualPool::new(settings(2, 64), 64, downstream);
    world.live(&mut load, 60_000);
    world.outcome = Outcome::default();
    world.live(&mut load, 90_000);
    let (found, stuck) = (world.outcome.good_share(), fixed.outcome.good_share());
    assert!(stuck < 0.6, "{stuck}: there is nothing to be led out of");
    assert!(world.threads <= 20, "{} threads", world.threads);
    assert!(found > 0.97, "{found} beside {stuck}");
}

#[test]
fn a_cold_pool_that_is_crowded_has_its_size_within_a_second() {
    let mut load = Workload::default().poisson(&mut Chance(9), (0, 3_000), 1_000.0, 20.0);
    let mut world = VirtualPool::new(settings(2, 64), 2, alone);
    // 20 of them are at work once nobody waits any more.
    world.live(&mut load, 900);
    assert!(world.threads >= 30, "{} threads", world.threads);
    world.live(&mut load, 3_000);
    let outcome = &world.outcome;
    assert_eq!((outcome.refused, outcome.expired), (0, 0));
    assert!(outcome.p95_ms() < 300.0, "{} ms", outcome.p95_ms());
}

#[test]
fn a_crowded_pool_whose_threads_wait_for_each_other_grows_slowly() {
    let mut load = Workload::default().poisson(&mut Chance(9), (0, 3_000), 1_000.0, 20.0);
    let mut world = VirtualPool::new(settings(2, 64), 2, gil);
    world.gil_share = Some(0.5);
    world.live(&mut load, 900);
    assert!(world.threads <= 12, "{} threads", world.threads);
}

#[test]
fn threads_are_doubled_at_most_and_leave_when_they_are_idle() {
    let mut load = Workload::default().poisson(&mut Chance(6), (0, 10_000), 2_000.0, 20.0);
    let mut world = VirtualPool::new(settings(2, 64), 2, alone);
    let mut before = 2;
    for tick in 1..=100 {
        world.live(&mut load, 100 * tick);
        assert!(world.threads <= 2 * before, "{before} to {}", world.threads);
        before = world.threads;
    }
    assert!(world.threads > 32, "{}", world.threads);
    world.live(&mut load, 120_000);
    assert_eq!(world.threads, 2);
}

#[test]
fn direct_signals_stop_growth_at_once() {
    let mut load = Workload::default().poisson(&mut Chance(7), (0, 60_000), 150.0, 10.0);
    let mut world = VirtualPool::new(settings(2, 32), 4, gil);
    world.gil_share = Some(0.95);
    for tick in 1..=600 {
        world.live(&mut load, 100 * tick);
        assert!(world.threads <= 4, "{}", world.threads);
    }
}

#[test]
fn a_fixed_pool_only_gets_back_what_it_lost() {
    let mut load = Workload::default().poisson(&mut Chance(8), (0, 30_000), 1_000.0, 20.0);
    let mut world = VirtualPool::new(settings(8, 8), 8, alone);
    world.live(&mut load, 10_000);
    assert_eq!((world.threads, world.outcome.started), (8, 0));
    assert_eq!(world.state.pressure, Pressure::Overloaded);
    world.threads = 5;
    world.live(&mut load, 10_200);
    assert_eq!((world.threads, world.outcome.started), (8, 3));
}

/// The size of a pool after a minute in which as many threads run, nobody waits, and four are kept for questions
/// about health.
fn size_beside_a_reserve(threads: usize, running: usize) -> usize {
    let mut control = Control::new(&PoolSettings {
        reserve_threads: 4,
        ..settings(2, 16)
    });
    let mut threads = threads;
    for tick in 1..=600 {
        let seen = PoolSeen {
            running,
            idle: threads - running,
            completed: tick,
            ..PoolSeen::default()
        };
        match control
            .tick(Stamp(1).plus(Nanos(tick * TICK.0)), &seen)
            .step
        {
            SizeStep::Keep => {}
            SizeStep::Grow(more) => threads += more,
            SizeStep::Shrink(fewer) => threads -= fewer,
        }
    }
    threads
}

#[test]
fn threads_that_are_kept_for_health_are_not_to_spare() {
    // All that the others may have run, or all but one.
    assert_eq!(size_beside_a_reserve(8, 4), 8);
    assert_eq!(size_beside_a_reserve(8, 3), 8);
    // One that is to spare goes; one that serves everybody stays.
    assert_eq!(size_beside_a_reserve(8, 2), 7);
    // Nobody comes.
    assert_eq!(size_beside_a_reserve(8, 0), 2);
    assert_eq!(size_beside_a_reserve(5, 0), 2);
}

#[test]
fn other_bounds_hold_from_the_next_look_on() {
    let mut world = VirtualPool::new(settings(2, 64), 2, alone);
    let mut load = Workload::default();
    world.live(&mut load, 1_000);
    assert_eq!(world.threads, 2);
    world.control.reshape(&settings(8, 64));
    world.live(&mut load, 1_200);
    assert_eq!(world.threads, 8);
    world.control.reshape(&settings(1, 3));
    world.live(&mut load, 1_400);
    assert_eq!(world.threads, 3);
}

#[test]
fn what_little_comes_to_an_idle_pool_is_not_taken_for_its_pace() {
    let mut control = Control::new(&settings(2, 2));
    let mut look = |tick: u64, waiting, completed| {
        let seen = PoolSeen {
            waiting,
            running: 2,
            completed,
            ..PoolSeen::default()
        };
        let now = Stamp(1).plus(Nanos(tick * TICK.0));
        let state = control.tick(now, &seen).state;
        (
            state.completed_per_second,
            crate::retry_after_secs(9, &state),
        )
    };
    // A request a minute, and then ten at once of 200 ms.
    assert!((0..600).all(|tick| look(tick, 0, tick / 600) == (None, 1)));
    assert_eq!(look(600, 9, 1), (None, 1));
    assert_eq!(look(602, 7, 3), (Some(10.0), 1));
}

/// Four threads as they are where nothing is said.
fn unsaid() -> PoolSettings {
    PoolSettings {
        queue_target: Nanos::from_ms(5),
        queue_timeout: Nanos::from_secs(30),
        overload_timeout: None,
        ..settings(4, 4)
    }
}

/// A pool with default settings after two seconds of short runs.
fn default_pool(run_ms: f64) -> VirtualPool {
    let mut load = Workload::default();
    let gap_ms = (2.0 * run_ms / 4.0).ceil() as usize;
    load.arrivals
        .extend((0..2_000).step_by(gap_ms).map(|at| (at, run_ms)));
    let mut world = VirtualPool::new(unsaid(), 4, alone);
    world.live(&mut load, 2_000);
    world.outcome.waits.clear();
    world
}

#[test]
fn work_of_five_seconds_that_arrives_within_half_a_second_loses_nothing() {
    for run_ms in [5, 20, 100, 500, 1_000] {
        let mut world = default_pool(run_ms as f64);
        let requests = 4 * 5_000 / run_ms;
        let mut load = Workload::default();
        let moments = (0..requests).map(|number| 2_000 + 500 * number / requests);
        load.arrivals.extend(moments.map(|at| (at, run_ms as f64)));
        world.live(&mut load, 15_000);
        let outcome = &world.outcome;
        assert_eq!((outcome.refused, outcome.expired), (0, 0), "{run_ms} ms");
        assert_eq!(outcome.waits.len() as u64, requests, "{run_ms} ms");
    }
}

#[test]
fn clients_that_wait_for_their_replies_lose_nothing_and_take_turns() {
    for (clients, run_ms, known_ms) in [
        (8, 2_000.0, 20.0),
        (8, 2_000.0, 1_000.0),
        (60, 100.0, 20.0),
        (60, 100.0, 100.0),
        (1_000, 10.0, 10.0),
    ] {
        let mut world = default_pool(known_ms);
        let mut load = Workload::default();
        load.arrivals.extend((0..clients).map(|_| (2_000, run_ms)));
        let mut completed = world.completed;
        for ms in 2_001..60_000 {
            world.live(&mut load, ms);
            let again = std::mem::replace(&mut completed, world.completed);
            let again = world.completed - again;
            load.arrivals.extend((0..again).map(|_| (ms, run_ms)));
        }
        let outcome = &world.outcome;
        let case = format!("{clients} clients, {run_ms} ms");
        assert_eq!((outcome.refused, outcome.expired), (0, 0), "{case}");
        let turn_ms = (clients as f64 / 4.0 + 1.0) * run_ms;
        let longest = outcome.waits.iter().max().map(|wait| wait.0 as f64 / 1e6);
        assert!(longest <= Some(1.2 * turn_ms), "{longest:?} ms, {case}");
    }
}
