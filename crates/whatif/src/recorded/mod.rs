//! Requests of a log, made ready for simulation: their arrivals and their needs.
//!
//! Takes requests one after another, gives a [`Recording`] and what can be learnt from it: the cost of handing a
//! request to a thread, the times in which the whole server stood still, and how running requests slowed each
//! other down. Keeps 24 bytes a request. It must not know how a log is written, and simulates nothing.
//!
//! ```text
//! Seen ─► Recorder ─► Recording ─► work (which ran when) ─► costs, stalls, lock_fit, sharing_fit ─► Workload ─► arrivals
//! ```

mod costs;
mod lock_fit;
mod loop_costs;
mod scaled;
mod sharing_fit;
mod slots;
mod spread;
mod stalls;
mod work;
mod workload;

use std::collections::BTreeMap;
use std::num::NonZeroU32;

use telemetry::Nanos;

use crate::{Lifetime, LoopSteps, Spans};

pub use costs::Costs;
pub use lock_fit::LockFit;
pub use loop_costs::LoopCosts;
pub use sharing_fit::{CurvePoint, SharingFit};
pub use stalls::stalls;
pub use workload::Workload;

/// Most requests of a recording: 2.4 GB.
pub const REQUESTS_LEN_MAX: usize = 100_000_000;
/// Most routes; the caller numbers them below this.
pub const ROUTES_LEN_MAX: usize = 4_096;

/// Threads that a pool may have; where a log says more, that is no number of threads.
const THREADS_MAX: u32 = 4_096;

/// One request of a log.
#[derive(Clone, Copy, PartialEq, Debug, Default)]
pub struct Seen {
    /// When it began, nanoseconds since 1970 UTC.
    pub began_unix_ns: u64,
    /// From then until it wanted a thread.
    pub receive: Nanos,
    /// How long it waited for one; `None` when it was refused, or the log does not say.
    pub queue: Option<Nanos>,
    /// How long it ran on one, likewise.
    pub run: Option<Nanos>,
    /// What of `run` was processor time; `None` when the log does not say.
    pub cpu: Option<Nanos>,
    /// What of `run` was waiting for the interpreter before its handler began, likewise.
    pub gil: Option<Nanos>,
    /// What it took of an event loop; `None` when a thread ran it.
    pub steps: Option<LoopSteps>,
    /// From then until it was logged.
    pub rest: Nanos,
    /// Number of its route.
    pub route: u16,
    /// Number of its pool.
    pub pool: u8,
    /// Number of its process's name; processes that took each other's place count as one.
    pub process: u16,
    /// What it found when it came to its pool; `None` when the log does not say.
    pub found: Option<Found>,
}

/// What a request found when it came to its pool.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Found {
    /// Threads that there were.
    pub threads: u32,
    /// No thread was idle.
    pub from_queue: bool,
}

/// One request as it is kept: 24 bytes, and there may be a hundred million.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(crate) struct Kept {
    /// When it wanted a thread: nanoseconds since the recording's first one.
    pub(crate) at: u64,
    /// Seconds; negative: not known.
    queue_s: f32,
    /// Seconds; negative: not known.
    run_s: f32,
    /// Seconds; negative: not known.
    cpu_s: f32,
    pub(crate) route: u16,
    pub(crate) process: u8,
    /// The pool's number and, above it, where the thread came from.
    pool_and_origin: u8,
}

/// What a request has taken of an event loop, as it is kept; nothing of one that a thread ran.
#[derive(Clone, Copy, PartialEq, Debug, Default)]
pub(crate) struct KeptSteps {
    busy_s: f32,
    longest_s: f32,
    len: u32,
    lifetime: Lifetime,
    /// What it cost the loop to begin it, where that is known: nanoseconds, in four bytes.
    begin_ns: Option<NonZeroU32>,
    /// What the sleeping loop that it found needed, likewise.
    wake_ns: Option<NonZeroU32>,
}

impl KeptSteps {
    fn of(steps: &LoopSteps) -> KeptSteps {
        let seconds = |span: Nanos| Nanos(span.0.min(SPAN_NS_MAX)).as_secs_f64() as f32;
        KeptSteps {
            busy_s: seconds(steps.busy),
            longest_s: seconds(steps.longest),
            len: steps.len,
            lifetime: steps.lifetime,
            begin_ns: None,
            wake_ns: None,
        }
    }

    fn steps(&self) -> LoopSteps {
        let nanos = |seconds: f32| Nanos((f64::from(seconds) * 1e9).round() as u64);
        LoopSteps {
            len: self.len,
            busy: nanos(self.busy_s),
            longest: nanos(self.longest_s),
            lifetime: self.lifetime,
            begin: self.begin_ns.map(|ns| Nanos(u64::from(ns.get()))),
            wake: self.wake_ns.map(|ns| Nanos(u64::from(ns.get()))),
        }
    }
}

/// Longer waits and runs are taken for this one: ten days.
const SPAN_NS_MAX: u64 = 864_000_000_000_000;
const POOL_BITS: u8 = 0b0011_1111;
const FROM_IDLE: u8 = 0b0100_0000;
const FROM_QUEUE: u8 = 0b1000_0000;
/// Pools beyond are taken for the last one.
pub const POOLS_LEN_MAX: usize = 64;

impl Kept {
    fn of(seen: &Seen) -> Kept {
        let seconds = |span: Option<Nanos>| {
            // Millions of requests are held in memory, so a span is four bytes; a negative one is not known.
            let known = span.map(|span| Nanos(span.0.min(SPAN_NS_MAX)));
            known.map_or(-1.0, |span| span.as_secs_f64() as f32)
        };
        let origin = match seen.found {
            Some(found) if found.from_queue => FROM_QUEUE,
            Some(_) => FROM_IDLE,
            None => 0,
        };
        Kept {
            at: seen.began_unix_ns.saturating_add(seen.receive.0),
            queue_s: seconds(seen.queue),
            run_s: seconds(seen.run),
            cpu_s: seconds(seen.cpu),
            route: seen.route,
            // Known when all are there.
            process: 0,
            pool_and_origin: seen.pool.min(POOL_BITS) | origin,
        }
    }

    /// Whether a thread ran it, and for how long is known.
    pub(crate) fn has_run(&self) -> bool {
        self.run_s >= 0.0
    }

    pub(crate) fn pool(&self) -> u8 {
        self.pool_and_origin & POOL_BITS
    }

    /// Nanoseconds; 0 where nothing is known.
    fn queue_ns(&self) -> u64 {
        (f64::from(self.queue_s).max(0.0) * 1e9).round() as u64
    }

    /// Likewise.
    pub(crate) fn run_ns(&self) -> u64 {
        (f64::from(self.run_s).max(0.0) * 1e9).round() as u64
    }

    /// Likewise.
    fn cpu_ns(&self) -> u64 {
        (f64::from(self.cpu_s).max(0.0) * 1e9).round() as u64
    }

    fn began(&self) -> u64 {
        self.at.saturating_add(self.queue_ns())
    }

    fn ended(&self) -> u64 {
        self.began().saturating_add(self.run_ns())
    }
}

/// For each request the index of another one: those of a route that have run, dealt out anew among themselves; all
/// others keep their own.
pub(crate) fn shuffled_by_route(kept: &[Kept], random: &mut fastrand::Rng) -> Vec<usize> {
    let mut routes: BTreeMap<u16, Vec<usize>> = BTreeMap::new();
    for (index, one) in kept.iter().enumerate().filter(|(_, one)| one.has_run()) {
        routes.entry(one.route).or_default().push(index);
    }
    let mut from: Vec<usize> = (0..kept.len()).collect();
    for places in routes.into_values() {
        let mut drawn = places.clone();
        random.shuffle(&mut drawn);
        for (place, drawn) in places.into_iter().zip(drawn) {
            from[place] = drawn;
        }
    }
    from
}

/// There are more requests than a recording takes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Full;

/// Takes requests, in the order of their log.
#[derive(Debug, Default)]
pub struct Recorder {
    kept: Vec<Kept>,
    /// Of each kept one, the number of its process's name.
    processes: Vec<u16>,
    /// Of each kept one, seconds from its end on a thread until it was logged; only while all times are whole
    /// seconds.
    rests_s: Vec<f32>,
    has_fractions: bool,
    /// Where each input began among the kept ones.
    inputs: Vec<usize>,
    refused: u64,
    has_lock: bool,
    /// By pool.
    threads: BTreeMap<u8, (u32, u32)>,
    /// Of each kept one; empty as long as none ran on an event loop.
    steps: Vec<KeptSteps>,
    loop_pools: LoopPools,
    has_rounded: bool,
}

/// Which pools are on an event loop, a bit for each.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
struct LoopPools(u64);

impl LoopPools {
    fn has(self, pool: usize) -> bool {
        pool < POOLS_LEN_MAX && self.0 >> pool & 1 == 1
    }
}

impl Recorder {
    /// Another input begins: its times need not go on where the last one's ended.
    pub fn begin(&mut self) {
        self.inputs.push(self.kept.len());
    }

    /// Durations are rounded to a share of themselves: those of a server's live record.
    pub fn has_rounded(&mut self) {
        self.has_rounded = true;
    }

    /// Takes one more.
    ///
    /// # Errors
    /// There are [`REQUESTS_LEN_MAX`] already.
    pub fn push(&mut self, seen: &Seen) -> Result<(), Full> {
        if self.kept.len() >= REQUESTS_LEN_MAX {
            return Err(Full);
        }
        // One time with a fraction proves that all have one. Until then the time between end and line is kept,
        // because the begins may have to be spread over their seconds.
        if !seen.began_unix_ns.is_multiple_of(1_000_000_000) {
            self.has_fractions = true;
            self.rests_s = Vec::new();
        }
        if !self.has_fractions {
            self.rests_s.push(seen.rest.as_secs_f64() as f32);
        }
        let kept = Kept::of(seen);
        if let Some(steps) = &seen.steps {
            self.loop_pools.0 |= 1 << kept.pool();
            self.steps.resize(self.kept.len(), KeptSteps::default());
            self.steps.push(KeptSteps::of(steps));
        }
        if let Some(found) = seen.found.filter(|found| found.threads <= THREADS_MAX) {
            // The least and the most, because the log of a controlled pool tells of every size that it had.
            let first = (found.threads, found.threads);
            let (least, most) = self.threads.entry(kept.pool()).or_insert(first);
            (*least, *most) = (found.threads.min(*least), found.threads.max(*most));
        }
        self.refused += u64::from(!kept.has_run());
        self.has_lock |= seen.gil.is_some_and(|gil| gil > Nanos::ZERO);
        self.kept.push(kept);
        self.processes.push(seen.process);
        Ok(())
    }

    /// All that was taken, in the order in which threads were wanted.
    pub fn finish(mut self) -> Recording {
        if !self.has_fractions {
            self.inputs.push(self.kept.len());
            // Each input by itself: where one ends and the next begins, time may jump back.
            for bounds in self.inputs.windows(2) {
                let range = bounds[0]..bounds[1];
                spread::spread(&mut self.kept[range.clone()], &self.rests_s[range]);
            }
        }
        slots::assign(&mut self.kept, &self.processes);
        if self.steps.is_empty() {
            self.kept.sort_unstable_by_key(|kept| kept.at);
        } else {
            self.steps.resize(self.kept.len(), KeptSteps::default());
            let both = self.kept.into_iter().zip(self.steps);
            let mut both: Vec<(Kept, KeptSteps)> = both.collect();
            both.sort_unstable_by_key(|(kept, _)| kept.at);
            (self.kept, self.steps) = both.into_iter().unzip();
        }
        // Relative times are small, so that sums of them cannot overflow whatever a log says of the year.
        let first = self.kept.first().map_or(0, |kept| kept.at);
        for kept in &mut self.kept {
            kept.at -= first;
        }
        let steps = &self.steps;
        // How long a client keeps a connection says nothing of how long requests take.
        let is_response = |index: usize| {
            let own = steps.get(index);
            own.is_none_or(|own| own.lifetime == Lifetime::Response)
        };
        let ran = || {
            let kept = self.kept.iter().enumerate();
            kept.filter(|(_, one)| one.has_run())
        };
        let responses = ran().filter(|(index, _)| is_response(*index));
        Recording {
            queue: ran().map(|(_, one)| one.queue_ns()).collect(),
            total: responses
                .map(|(_, one)| one.queue_ns() + one.run_ns())
                .collect(),
            kept: self.kept,
            steps: self.steps,
            loop_pools: self.loop_pools,
            is_by_second: !self.has_fractions,
            has_rounded: self.has_rounded,
            refused: self.refused,
            has_lock: self.has_lock,
            threads: self.threads,
        }
    }
}

/// Requests of a log, in the order in which they wanted threads.
#[derive(Clone, Debug)]
pub struct Recording {
    pub(crate) kept: Vec<Kept>,
    /// Of each kept one; empty where none ran on an event loop.
    pub(crate) steps: Vec<KeptSteps>,
    loop_pools: LoopPools,
    is_by_second: bool,
    /// Durations are rounded to a share of themselves.
    has_rounded: bool,
    refused: u64,
    /// A request has waited for an interpreter, be it for a microsecond.
    has_lock: bool,
    queue: Spans,
    total: Spans,
    /// By pool.
    threads: BTreeMap<u8, (u32, u32)>,
}

impl Recording {
    /// Requests, refused ones included.
    pub fn len(&self) -> usize {
        self.kept.len()
    }

    /// There is none.
    pub fn is_empty(&self) -> bool {
        self.kept.is_empty()
    }

    /// Requests without a run: refused ones.
    pub fn refused(&self) -> u64 {
        self.refused
    }

    /// Whether the log's times were whole seconds, so that arrivals within a second are a guess.
    pub fn is_by_second(&self) -> bool {
        self.is_by_second
    }

    /// From the first arrival to the last end.
    pub fn lasted(&self) -> Nanos {
        Nanos(self.kept.iter().map(Kept::ended).max().unwrap_or(0))
    }

    /// The longest time between two arrivals.
    pub fn silence(&self) -> Nanos {
        let pairs = self.kept.windows(2).map(|pair| pair[1].at - pair[0].at);
        Nanos(pairs.max().unwrap_or(0))
    }

    /// Whether the log says of any request how long it waited for a thread.
    pub fn knows_waits(&self) -> bool {
        self.kept.iter().any(|kept| kept.queue_s >= 0.0)
    }

    /// Of each route of a pool that has run: its number, its requests and the sum of their runs.
    pub fn runs_by_route(&self, pool: usize) -> Vec<(u16, u64, Nanos)> {
        let mut routes: BTreeMap<u16, (u64, u64)> = BTreeMap::new();
        let of_pool = |one: &&Kept| one.has_run() && usize::from(one.pool()) == pool;
        for one in self.kept.iter().filter(of_pool) {
            let (len, sum_ns) = routes.entry(one.route).or_default();
            *len += 1;
            *sum_ns = sum_ns.saturating_add(one.run_ns());
        }
        let runs = routes.into_iter();
        runs.map(|(route, (len, sum_ns))| (route, len, Nanos(sum_ns)))
            .collect()
    }

    /// Waits for a thread, nanoseconds.
    pub fn queue(&self) -> &Spans {
        &self.queue
    }

    /// Waits and runs together, likewise.
    pub fn total(&self) -> &Spans {
        &self.total
    }

    /// Processes that there were at the same time; at least 1.
    pub fn processes(&self) -> usize {
        let last = self.kept.iter().map(|kept| kept.process).max();
        usize::from(last.unwrap_or(0)) + 1
    }

    /// The least and the most threads that the log says a pool had; `None` when it does not say.
    pub fn threads_found(&self, pool: usize) -> Option<(usize, usize)> {
        let (least, most) = *self.threads.get(&u8::try_from(pool).ok()?)?;
        Some((least.max(1) as usize, most.max(1) as usize))
    }

    /// The greatest number of requests of a pool that were at work at once, in one process; at least 1.
    pub fn running_max(&self, pool: usize) -> usize {
        let of_process = |process: usize| {
            let is_of = |kept: &Kept| {
                usize::from(kept.process) == process && usize::from(kept.pool()) == pool
            };
            work::running_max(&self.kept, is_of)
        };
        (0..self.processes())
            .map(of_process)
            .max()
            .unwrap_or(1)
            .max(1)
    }

    /// Whether any request ran on an event loop.
    pub fn has_loop(&self) -> bool {
        !self.steps.is_empty()
    }

    /// Of each route with steps that held an event loop for at least `least`: its number, such requests, and the sum of
    /// their longest steps.
    pub fn long_steps_by_route(&self, least: Nanos) -> Vec<(u16, u64, Nanos)> {
        let mut routes: BTreeMap<u16, (u64, u64)> = BTreeMap::new();
        for (one, steps) in self.kept.iter().zip(&self.steps) {
            let longest = steps.steps().longest;
            if longest >= least && one.has_run() {
                let (len, sum_ns) = routes.entry(one.route).or_default();
                *len += 1;
                *sum_ns = sum_ns.saturating_add(longest.0);
            }
        }
        let found = routes.into_iter();
        found
            .map(|(route, (len, sum_ns))| (route, len, Nanos(sum_ns)))
            .collect()
    }

    /// Whether the requests of a pool run on an event loop.
    pub fn is_on_loop(&self, pool: usize) -> bool {
        self.loop_pools.has(pool)
    }

    /// The requests of pools of threads, and those of pools on an event loop, on the same clock.
    pub fn parted(&self) -> (Recording, Recording) {
        let part = |is_loop: bool| {
            let kept = self.kept.iter().enumerate();
            let own = kept
                .filter(|(_, one)| self.is_on_loop(usize::from(one.pool())) == is_loop)
                .map(|(index, one)| {
                    let steps = self.steps.get(index).copied();
                    (*one, steps.unwrap_or_default())
                });
            let (kept, steps): (Vec<Kept>, Vec<KeptSteps>) = own.unzip();
            Recording {
                kept,
                steps: if is_loop { steps } else { Vec::new() },
                ..self.like_this()
            }
        };
        (part(false), part(true))
    }

    /// Without its requests.
    fn like_this(&self) -> Recording {
        Recording {
            kept: Vec::new(),
            steps: Vec::new(),
            queue: self.queue.clone(),
            total: self.total.clone(),
            threads: self.threads.clone(),
            ..*self
        }
    }

    /// The greatest number of requests that were inside the event loop of a process at once, accepted WebSocket
    /// connections apart; at least 1.
    pub fn inside_max(&self) -> usize {
        let (_, on_loop) = self.parted();
        let both = on_loop.kept.iter().zip(&on_loop.steps);
        let counting = both.filter(|(_, steps)| steps.lifetime != Lifetime::WebSocket);
        let counting: Vec<Kept> = counting.map(|(one, _)| *one).collect();
        let of_process = |process: usize| {
            work::running_max(&counting, |one| usize::from(one.process) == process)
        };
        let all = (0..self.processes()).map(of_process);
        all.max().unwrap_or(1).max(1)
    }

    /// Pearson's correlation of waits and runs: over 0.2 both have risen together, as they do when the whole
    /// server stands still. `None` when one of them never varied.
    pub fn correlation(&self) -> Option<f64> {
        let ran = || self.kept.iter().filter(|kept| kept.has_run());
        let len = ran().count() as f64;
        let mean = |of: &dyn Fn(&Kept) -> f64| ran().map(of).sum::<f64>() / len;
        let queue = |kept: &Kept| f64::from(kept.queue_s).max(0.0);
        let run = |kept: &Kept| f64::from(kept.run_s);
        let (queue_mean, run_mean) = (mean(&queue), mean(&run));
        let mut sums = [0.0; 3];
        for kept in ran() {
            let (one, other) = (queue(kept) - queue_mean, run(kept) - run_mean);
            sums[0] += one * other;
            sums[1] += one * one;
            sums[2] += other * other;
        }
        // Where one never varied this divides by zero, and the result is no number.
        let found = sums[0] / (sums[1] * sums[2]).sqrt();
        found.is_finite().then_some(found)
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    pub(crate) const DAY_NS: u64 = 1_795_262_400_000_000_000;

    /// A request at a microsecond, with its wait and its run in microseconds.
    pub(crate) fn seen(at_us: u64, queue_us: u64, run_us: u64) -> Seen {
        Seen {
            began_unix_ns: DAY_NS + at_us * 1_000,
            queue: Some(Nanos::from_us(queue_us)),
            run: Some(Nanos::from_us(run_us)),
            ..Seen::default()
        }
    }

    pub(crate) fn recording(all: &[Seen]) -> Recording {
        recorder(all).finish()
    }

    pub(crate) fn rounded_recording(all: &[Seen]) -> Recording {
        let mut recorder = recorder(all);
        recorder.has_rounded();
        recorder.finish()
    }

    fn recorder(all: &[Seen]) -> Recorder {
        let mut recorder = Recorder::default();
        recorder.begin();
        for one in all {
            recorder.push(one).unwrap();
        }
        recorder
    }

    #[test]
    fn a_request_takes_32_bytes() {
        assert_eq!(size_of::<Kept>(), 24);
    }

    #[test]
    fn puts_requests_into_the_order_of_their_arrivals() {
        let accepted = Seen {
            receive: Nanos::from_us(500),
            ..seen(100, 0, 10)
        };
        let found = recording(&[seen(700, 1, 2), accepted, seen(400, 3, 4)]);
        let times: Vec<u64> = found.kept.iter().map(|kept| kept.at).collect();
        assert_eq!(times, [0, 200_000, 300_000]);
        assert_eq!(found.lasted(), Nanos::from_us(303));
        assert!(!found.is_by_second());
    }

    #[test]
    fn keeps_times_of_an_hour_and_of_a_microsecond() {
        let found = recording(&[seen(1, 1, 3_600_000_000)]);
        assert_eq!(found.kept[0].queue_ns(), 1_000);
        assert_eq!(found.kept[0].run_ns(), 3_600_000_000_000);
    }

    #[test]
    fn takes_no_time_for_longer_than_ten_days() {
        let found = recording(&[seen(0, 0, 1_000_000_000_000_000)]);
        assert_eq!(found.lasted(), Nanos(SPAN_NS_MAX));
    }

    #[test]
    fn knows_the_longest_time_without_an_arrival() {
        assert_eq!(recording(&[]).silence(), Nanos::ZERO);
        assert_eq!(recording(&[seen(5, 0, 9)]).silence(), Nanos::ZERO);
        let found = recording(&[seen(900, 0, 1), seen(100, 0, 5), seen(300, 0, 1)]);
        assert_eq!(found.silence(), Nanos::from_us(600));
    }

    #[test]
    fn refused_ones_count_and_have_no_times() {
        let refused = Seen {
            queue: None,
            run: None,
            ..seen(5, 0, 0)
        };
        let found = recording(&[refused, seen(1, 0, 9)]);
        assert_eq!(
            (found.len(), found.refused(), found.total().len()),
            (2, 1, 1)
        );
    }

    #[test]
    fn finds_out_how_many_ran_at_once_in_a_process() {
        let other = Seen {
            process: 1,
            ..seen(10_000, 0, 100_000)
        };
        let pooled = Seen {
            pool: 1,
            ..seen(10_000, 0, 100_000)
        };
        let found = recording(&[
            seen(1, 0, 50_000),
            seen(10_000, 40_000, 50_000),
            seen(20_000, 0, 10_000),
            other,
            pooled,
        ]);
        assert_eq!(found.running_max(0), 2);
        assert_eq!(found.running_max(1), 1);
        assert_eq!(found.processes(), 2);
    }

    #[test]
    fn remembers_how_many_threads_were_found() {
        let with = |threads| Seen {
            found: Some(Found {
                threads,
                from_queue: false,
            }),
            ..seen(1, 0, 1)
        };
        assert_eq!(recording(&[seen(1, 0, 1)]).threads_found(0), None);
        let found = recording(&[with(4), with(2), with(8)]);
        assert_eq!(found.threads_found(0), Some((2, 8)));
        assert_eq!(found.threads_found(1), None);
        // Each would be given its memory.
        assert_eq!(recording(&[with(u32::MAX)]).threads_found(0), None);
    }

    #[test]
    fn correlates_waits_with_runs() {
        let check = |pairs: &[(u64, u64)], expect: Option<f64>| {
            let all: Vec<Seen> = pairs
                .iter()
                .map(|(queue, run)| seen(1, *queue, *run))
                .collect();
            let found = recording(&all).correlation();
            match (found, expect) {
                (Some(found), Some(expect)) => assert!((found - expect).abs() < 1e-6, "{found}"),
                _ => assert_eq!(found, expect),
            }
        };
        check(&[(1_000, 2_000), (2_000, 4_000), (3_000, 6_000)], Some(1.0));
        check(
            &[(1_000, 3_000), (2_000, 2_000), (3_000, 1_000)],
            Some(-1.0),
        );
        check(&[(1_000, 1_000), (1_000, 2_000)], None);
        check(&[], None);
    }
}
