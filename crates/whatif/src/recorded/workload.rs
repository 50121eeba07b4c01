//! What a recording asks of a server: when threads were wanted, and for how long each when nothing else ran
//! beside it.
//!
//! Takes a recording and what was learnt of it, gives arrivals. The time that other requests and pauses added to a run
//! is subtracted, because the simulation adds it again. A refused request gets the run of another request of its
//! route.

use std::collections::BTreeMap;

use telemetry::Nanos;

use super::stalls::Moving;
use super::work::{Event, walk};
use super::{Kept, LockFit, Recording};
use crate::engine::Need;
use crate::{Arrival, Pause, Service, Sharing};

/// Runs of a route that are kept for those of it that were refused.
const KNOWN_LEN_MAX: usize = 256;

/// What a recording asks of a server.
#[derive(Clone, Debug)]
pub struct Workload {
    pub(super) kept: Vec<Kept>,
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
        lend_runs(&mut kept, seed);
        Workload {
            kept,
            pauses: pauses.to_vec(),
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
        self.kept.iter().map(|one| Arrival {
            at: Nanos(one.at),
            run: Nanos(one.run_ns()),
            computing: Nanos(one.cpu_ns()),
            route: one.route,
            ..Arrival::default()
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

/// Gives those that have no run one of their route, else one of any.
fn lend_runs(kept: &mut [Kept], seed: u64) {
    let mut known: BTreeMap<u16, Vec<(f32, f32)>> = BTreeMap::new();
    let mut any = Vec::new();
    for one in kept.iter().filter(|one| one.has_run()) {
        let known = known.entry(one.route).or_default();
        if known.len() < KNOWN_LEN_MAX {
            known.push((one.run_s, one.cpu_s));
        }
        if any.len() < KNOWN_LEN_MAX {
            any.push((one.run_s, one.cpu_s));
        }
    }
    let mut random = fastrand::Rng::with_seed(seed);
    for one in kept.iter_mut().filter(|one| !one.has_run()) {
        // A refused request would have run like its neighbours: without a run it would be free, and a setting that
        // admits more would look better than it is.
        let known = known.get(&one.route).unwrap_or(&any);
        (one.run_s, one.cpu_s) = match known.len() {
            0 => (0.0, -1.0),
            len => known[random.usize(..len)],
        };
    }
}

#[cfg(test)]
mod tests {
    use super::super::Seen;
    use super::super::tests::{recording, seen};
    use super::*;

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
}
