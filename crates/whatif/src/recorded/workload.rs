//! What a recording asks of a server: when threads were wanted, and for how long each when nothing else ran
//! beside it.
//!
//! Takes a recording and what was learnt of it, gives arrivals. The time that other requests and pauses added to a run
//! is subtracted, because the simulation adds it again. A refused request gets the run of another request of its
//! route.

use std::collections::BTreeMap;
use std::num::NonZeroU32;

use telemetry::{Nanos, nearest_rank};

use super::loop_costs::{begins, own_wakes};
use super::stalls::Moving;
use super::work::{Event, walk};
use super::{Kept, KeptSteps, LockFit, Recording};
use crate::engine::Need;
use crate::{Arrival, Pause, Service, Sharing};

/// Of the waits of a route: most requests of a loop that keeps up wait as long as these.
const SHORT_WAIT: f64 = 0.1;
/// Runs of a route that are kept for those of it that were refused.
const KNOWN_LEN_MAX: usize = 256;

/// What a recording asks of a server.
#[derive(Clone, Debug)]
pub struct Workload {
    pub(super) kept: Vec<Kept>,
    /// Of each kept one; empty where none ran on an event loop.
    pub(super) steps: Vec<KeptSteps>,
    pub(super) pauses: Vec<Pause>,
}

impl Workload {
    /// Of a recording whose runs were slowed down by a lock, `sharing` and `pauses`. The same seed gives the same
    /// one.
    pub fn of(
        recording: &Recording,
        lock: Option<&LockFit>,
        sharing: Sharing,
        pauses: &[Pause],
        seed: u64,
    ) -> Workload {
        let mut kept = recording.kept.clone();
        for process in 0..recording.processes() {
            alone(&recording.kept, process, sharing, pauses, &mut kept);
        }
        for (index, (one, was)) in kept.iter_mut().zip(&recording.kept).enumerate() {
            match lock {
                Some(lock) if was.has_run() => unlocked(one, was, lock.need(index), sharing),
                _ => one.cpu_s = -1.0,
            }
        }
        // Last: those that were refused get a run that is free of other requests' influence already.
        lend_runs(&mut kept, &mut [], seed);
        Workload {
            kept,
            steps: Vec::new(),
            pauses: pauses.to_vec(),
        }
    }

    /// Of a recording of requests that ran on event loops, with what they waited for the loop still in their runs. The same
    /// seed gives the same one.
    pub fn of_loop(recording: &Recording, seed: u64) -> Workload {
        let (mut kept, mut steps) = (recording.kept.clone(), recording.steps.clone());
        for one in &mut kept {
            one.cpu_s = -1.0;
        }
        for (own, begin) in steps.iter_mut().zip(begins(recording)) {
            own.begin_ns = begin;
        }
        for (index, wake) in own_wakes(recording) {
            steps[index].wake_ns = u32::try_from(wake).ok().and_then(NonZeroU32::new);
        }
        lend_runs(&mut kept, &mut steps, seed);
        Workload {
            kept,
            steps,
            pauses: Vec::new(),
        }
    }

    /// The requests of both, in the order in which they came.
    pub fn merged(self, other: Workload) -> Workload {
        let pauses = [self.pauses.clone(), other.pauses.clone()].concat();
        let mut both: Vec<(Kept, KeptSteps)> = [self, other]
            .into_iter()
            .flat_map(|mut own| {
                own.steps.resize(own.kept.len(), KeptSteps::default());
                own.kept.into_iter().zip(own.steps)
            })
            .collect();
        both.sort_by_key(|(one, _)| one.at);
        let (kept, steps) = both.into_iter().unzip();
        Workload {
            kept,
            steps,
            pauses,
        }
    }

    /// Whether any request ran on an event loop.
    pub fn has_loop(&self) -> bool {
        !self.steps.is_empty()
    }

    /// The runs of those that ran on an event loop.
    pub(crate) fn loop_runs(&self) -> Vec<Option<Nanos>> {
        let both = self.kept.iter().zip(&self.steps);
        both.map(|(one, steps)| (steps.len > 0).then(|| Nanos(one.run_ns())))
            .collect()
    }

    /// Gives each request of an event loop that waited longer than most of its route the short wait of these: what is
    /// between may have been the loop.
    pub(crate) fn shorten_loop_runs(&mut self) {
        let mut waits: BTreeMap<u16, Vec<f32>> = BTreeMap::new();
        let both = || self.kept.iter().zip(&self.steps);
        for (one, steps) in both().filter(|(_, steps)| steps.len > 0) {
            waits
                .entry(one.route)
                .or_default()
                .push(one.run_s - steps.busy_s);
        }
        let short: BTreeMap<u16, f32> = waits
            .into_iter()
            .map(|(route, mut waits)| {
                waits.sort_unstable_by(f32::total_cmp);
                let rank = nearest_rank(SHORT_WAIT, waits.len() as u64) as usize;
                (route, waits[rank - 1].max(0.0))
            })
            .collect();
        for (one, steps) in self.kept.iter_mut().zip(&self.steps) {
            if let Some(short) = short.get(&one.route).filter(|_| steps.len > 0) {
                one.run_s = one.run_s.min(steps.busy_s + short);
            }
        }
    }

    /// What a simulation of this workload made of the runs beyond what they need is taken out of those that were measured.
    pub(crate) fn set_loop_runs(
        &mut self,
        measured: &[Option<Nanos>],
        simulated: &[Option<Nanos>],
    ) {
        let both = self.kept.iter_mut().zip(&self.steps);
        for ((one, steps), (measured, simulated)) in both.zip(measured.iter().zip(simulated)) {
            let (Some(measured), Some(simulated)) = (measured, simulated) else {
                continue;
            };
            let added = simulated.0.saturating_sub(one.run_ns());
            let own = Nanos(measured.0.saturating_sub(added)).as_secs_f64() as f32;
            one.run_s = own.max(steps.busy_s);
        }
    }

    /// What requests of these routes did in the steps of their tasks is done by threads: it is waited for, and the loop has
    /// no more than `rest` of each step.
    pub fn move_to_threads(&mut self, routes: &dyn Fn(u16) -> bool, rest: Nanos) {
        let rest_s = rest.as_secs_f64() as f32;
        let both = self.kept.iter().zip(&mut self.steps);
        for (_, steps) in both.filter(|(one, steps)| routes(one.route) && steps.len > 0) {
            // Before it waits for the thread, and behind that.
            steps.len = steps.len.saturating_add(1);
            steps.busy_s = steps.busy_s.min(rest_s * steps.len as f32);
            steps.longest_s = steps.longest_s.min(rest_s);
        }
    }

    /// Gives every request a run by a law, whatever the log says. The same seed gives the same ones.
    pub fn set_runs(&mut self, law: &Service, seed: u64) {
        let mut random = fastrand::Rng::with_seed(seed);
        for one in &mut self.kept {
            one.run_s = law.sample(&mut random).as_secs_f64() as f32;
            one.cpu_s = -1.0;
        }
    }

    /// Times in which the whole server stands still.
    pub fn pauses(&self) -> &[Pause] {
        &self.pauses
    }

    /// Requests.
    pub fn len(&self) -> usize {
        self.kept.len()
    }

    /// There is none.
    pub fn is_empty(&self) -> bool {
        self.kept.is_empty()
    }

    /// One after another.
    pub fn arrivals(&self) -> impl Iterator<Item = Arrival> + '_ {
        self.kept.iter().enumerate().map(|(index, one)| Arrival {
            at: Nanos(one.at),
            run: Nanos(one.run_ns()),
            computing: Nanos(one.cpu_ns()),
            steps: self
                .steps
                .get(index)
                .map(KeptSteps::steps)
                .unwrap_or_default(),
            route: one.route,
            ..Arrival::default()
        })
    }

    /// The same, each to the process that it went to in the log.
    pub(crate) fn arrivals_as_recorded(&self) -> impl Iterator<Item = Arrival> + '_ {
        let processes = self.kept.iter().map(|one| one.process);
        self.arrivals()
            .zip(processes)
            .map(|(arrival, process)| Arrival {
                process: Some(process),
                ..arrival
            })
    }
}

/// Puts into `out` what each request of a process would have needed alone.
fn alone(kept: &[Kept], process: usize, sharing: Sharing, pauses: &[Pause], out: &mut [Kept]) {
    let mut open: BTreeMap<usize, f64> = BTreeMap::new();
    let moving = Moving::new(pauses);
    // Nanoseconds that a request would have advanced by.
    let mut advanced = 0.0;
    let (mut before, mut running) = (0, 0);
    walk(
        kept,
        |one| usize::from(one.process) == process,
        &mut |step| {
            let now = moving.at(step.now);
            advanced += (now - before) as f64 * sharing.speed(running);
            (before, running) = (now, step.running);
            match step.event {
                Event::Begins => {
                    open.insert(step.index, advanced);
                }
                Event::Ends => {
                    if let Some(begin) = open.remove(&step.index) {
                        out[step.index].run_s = ((advanced - begin) / 1e9) as f32;
                    }
                }
            }
        },
    );
}

/// Puts together what a request needs with the lock and without it; others slow down only the latter.
fn unlocked(one: &mut Kept, was: &Kept, need: Need, sharing: Sharing) {
    let share = match sharing == Sharing::default() || was.run_ns() == 0 {
        true => 1.0,
        false => one.run_ns() as f64 / was.run_ns() as f64,
    };
    let computing = need.computing.as_secs_f64();
    let free = (need.run.as_secs_f64() - computing) * share;
    one.run_s = (computing + free) as f32;
    one.cpu_s = computing as f32;
}

/// Gives those that have no run one of their route, else one of any, with its steps where requests have some.
fn lend_runs(kept: &mut [Kept], steps: &mut [KeptSteps], seed: u64) {
    let mut known: BTreeMap<u16, Vec<usize>> = BTreeMap::new();
    let mut any = Vec::new();
    for (index, one) in kept.iter().enumerate().filter(|(_, one)| one.has_run()) {
        let known = known.entry(one.route).or_default();
        if known.len() < KNOWN_LEN_MAX {
            known.push(index);
        }
        if any.len() < KNOWN_LEN_MAX {
            any.push(index);
        }
    }
    let mut random = fastrand::Rng::with_seed(seed);
    let mut lent_to = Vec::new();
    for index in 0..kept.len() {
        if kept[index].has_run() {
            continue;
        }
        // A refused request would have run like its neighbours: without a run it would be free, and a setting that
        // admits more would look better than it is.
        let known = known.get(&kept[index].route).unwrap_or(&any);
        let lender = match known.len() {
            0 => None,
            len => Some(known[random.usize(..len)]),
        };
        let lent = lender.map_or((0.0, -1.0), |lender| {
            (kept[lender].run_s, kept[lender].cpu_s)
        });
        lent_to.push((index, lender, lent));
    }
    // Behind the search: who has borrowed a run must not lend it.
    for (index, lender, lent) in lent_to {
        (kept[index].run_s, kept[index].cpu_s) = lent;
        if let Some(lender) = lender
            && !steps.is_empty()
        {
            steps[index] = steps[lender];
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::Seen;
    use super::super::tests::{recording, seen};
    use super::*;
    use crate::LoopSteps;

    const ONE_LOCK: Sharing = Sharing {
        sigma: 1.0,
        kappa: 0.0,
    };

    fn runs_us(all: &[Seen], sharing: Sharing, pauses: &[Pause]) -> Vec<u64> {
        let workload = Workload::of(&recording(all), None, sharing, pauses, 1);
        let runs = workload.arrivals().map(|one| (one.run.0 + 500) / 1_000);
        runs.collect()
    }

    #[test]
    fn what_others_added_is_taken_out() {
        let all = [seen(1, 0, 1_000), seen(501, 0, 1_000)];
        assert_eq!(runs_us(&all, Sharing::default(), &[]), [1_000, 1_000]);
        assert_eq!(runs_us(&all, ONE_LOCK, &[]), [750, 750]);
    }

    #[test]
    fn who_runs_in_another_process_does_not_matter() {
        let other = Seen {
            process: 1,
            ..seen(501, 0, 1_000)
        };
        let all = [seen(1, 0, 1_000), other];
        assert_eq!(runs_us(&all, ONE_LOCK, &[]), [1_000, 1_000]);
    }

    #[test]
    fn pauses_are_taken_out() {
        let pause = |at_us, us| Pause {
            at: Nanos::from_us(at_us),
            lasts: Nanos::from_us(us),
        };
        // From the first arrival on.
        let all = [seen(1, 0, 1_000), seen(501, 0, 1_000), seen(2_001, 0, 100)];
        let check = |pauses: &[Pause], expect: [u64; 3]| {
            assert_eq!(runs_us(&all, Sharing::default(), pauses), expect);
        };
        check(&[pause(200, 400)], [600, 900, 100]);
        check(&[pause(200, 100), pause(900, 300)], [800, 700, 100]);
        check(&[pause(3_000, 300)], [1_000, 1_000, 100]);
    }

    #[test]
    fn refused_ones_get_a_run_of_their_route() {
        let refused = |at_us, route| Seen {
            route,
            queue: None,
            run: None,
            ..seen(at_us, 0, 0)
        };
        let slow = Seen {
            route: 1,
            ..seen(2, 0, 7_000)
        };
        let all = [seen(1, 0, 20), slow, refused(3, 1), refused(4, 0)];
        assert_eq!(
            runs_us(&all, Sharing::default(), &[]),
            [20, 7_000, 7_000, 20]
        );
        assert_eq!(runs_us(&[refused(1, 0)], Sharing::default(), &[]), [0]);
    }

    /// A request of an event loop: its steps take half of its run.
    fn stepped(at_us: u64, run_us: u64, route: u16) -> Seen {
        Seen {
            steps: Some(LoopSteps {
                len: 2,
                busy: Nanos::from_us(run_us / 2),
                longest: Nanos::from_us(run_us / 4),
                ..LoopSteps::default()
            }),
            pool: 1,
            route,
            ..seen(at_us, 0, run_us)
        }
    }

    #[test]
    fn requests_of_loops_and_of_threads_are_parted_and_merged() {
        let all = [
            seen(1, 0, 100),
            stepped(2, 400, 0),
            seen(3, 0, 100),
            stepped(4, 800, 0),
        ];
        let whole = recording(&all);
        assert!(whole.has_loop() && whole.is_on_loop(1) && !whole.is_on_loop(0));
        let (on_threads, on_loop) = whole.parted();
        assert_eq!((on_threads.len(), on_loop.len()), (2, 2));
        assert!(!on_threads.has_loop());
        let threads = Workload::of(&on_threads, None, Sharing::default(), &[], 1);
        let both = threads.merged(Workload::of_loop(&on_loop, 1));
        let found: Vec<(u64, u32)> = both
            .arrivals()
            .map(|one| (one.at.0 / 1_000, one.steps.len))
            .collect();
        assert_eq!(found, [(0, 0), (1, 2), (2, 0), (3, 2)]);
    }

    #[test]
    fn steps_in_threads_are_waited_for() {
        let (_, on_loop) = recording(&[stepped(1, 8_000, 3), stepped(2, 8_000, 4)]).parted();
        let mut workload = Workload::of_loop(&on_loop, 1);
        workload.move_to_threads(&|route| route == 3, Nanos::from_us(100));
        let found: Vec<(u64, u32, u64, u64)> = workload
            .arrivals()
            .map(|one| (one.run, one.steps))
            .map(|(run, steps)| (run.0, steps.len, steps.busy.0, steps.longest.0))
            .map(|(run, len, busy, longest)| (run / 1_000, len, busy / 1_000, longest / 1_000))
            .collect();
        assert_eq!(found, [(8_000, 3, 300, 100), (8_000, 2, 4_000, 2_000)]);
    }

    #[test]
    fn a_refused_request_of_a_loop_gets_steps_as_well() {
        let refused = Seen {
            queue: None,
            run: None,
            steps: None,
            ..stepped(2, 0, 0)
        };
        let (_, on_loop) = recording(&[stepped(1, 8_000, 0), refused]).parted();
        let found: Vec<LoopSteps> = Workload::of_loop(&on_loop, 1)
            .arrivals()
            .map(|one| one.steps)
            .collect();
        assert_eq!(found[0], found[1]);
        assert_eq!(found[0].len, 2);
    }
}
