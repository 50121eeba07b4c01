//! Misbehaving clients beside the measured ones, all on one thread.
//!
//! Takes the plan's company, gives counts. [`Party`] is the thread, `round` its loop, `manner` says what each kind
//! of client does. Its connections are counted nowhere else, and it must cost little: nobody is woken for
//! what its clients do not look at, and deadlines that are close together are one.

mod guest;
mod manner;
mod round;

use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::AtomicUsize;
use std::sync::mpsc;
use std::thread::{self, JoinHandle};

use measure::Nanos;
use nix::sched::{CloneFlags, unshare};
use rustix::event::{EventfdFlags, eventfd};
use rustix::thread::{CpuSet, sched_setaffinity};

use crate::engine::Fault;
use crate::outcome::CompanyCount;
use crate::plan::{Misbehaviour, Plan, Scheme, Tables};
use guest::Counted;
use round::Round;

/// Connections are opened no faster, all groups together.
const CONNECTIONS_PER_S: u64 = 2_000;
/// So long after its end a connection is opened again.
const REOPENED_AFTER: Nanos = Nanos::from_ms(100);

/// How many connections a second are made at most by `len` clients that are ended at once each time.
pub(crate) fn reopened_per_s(len: usize) -> f64 {
    (len as f64 / REOPENED_AFTER.as_secs_f64()).min(CONNECTIONS_PER_S as f64)
}

/// The misbehaving clients of a plan at work.
///
/// It opens its connections over time, 2,000 a second; what is ended is opened again 100 ms later, or when its
/// turn comes. Where threads have descriptors of their own, so has this one.
#[derive(Debug)]
pub(crate) struct Party {
    stop: Arc<OwnedFd>,
    open: Arc<AtomicUsize>,
    /// `None`: it has been stopped.
    thread: Option<JoinHandle<Counted>>,
}

impl Party {
    /// Begins; without company nothing is started.
    ///
    /// # Errors
    /// When the target cannot be spoken to like this, or there is no descriptor or thread.
    pub(crate) fn start(plan: &Plan) -> Result<Party, Fault> {
        check_scheme(plan)?;
        let flags = EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK;
        let stop = eventfd(0, flags).map_err(|error| cannot(&error))?;
        let mut party = Party {
            stop: Arc::new(stop),
            open: Arc::new(AtomicUsize::new(0)),
            thread: None,
        };
        if plan.company.is_empty() {
            return Ok(party);
        }
        let (said, heard) = mpsc::sync_channel(1);
        let (plan, stop, open) = (
            plan.clone(),
            Arc::clone(&party.stop),
            Arc::clone(&party.open),
        );
        let named = thread::Builder::new().name("company".to_owned());
        let thread = named.spawn(move || attend(&plan, &stop, &open, &said));
        party.thread = Some(thread.map_err(|error| cannot(&error))?);
        match heard.recv() {
            Ok(Ok(())) => Ok(party),
            Ok(Err(fault)) => Err(fault),
            Err(_) => Err(cannot(&"its thread ended")),
        }
    }

    /// How many of its connections are open now.
    #[cfg(test)]
    pub(crate) fn open_len(&self) -> usize {
        self.open.load(std::sync::atomic::Ordering::Relaxed)
    }

    /// Resets all connections and says what happened, group by group in the plan's order.
    pub(crate) fn stop(mut self) -> Vec<CompanyCount> {
        self.end().groups
    }

    fn end(&mut self) -> Counted {
        let Some(thread) = self.thread.take() else {
            return Counted::default();
        };
        rustix::io::write(&*self.stop, &1_u64.to_ne_bytes()).expect("a counter of one has room");
        match thread.join() {
            Ok(counted) => counted,
            Err(panic) => std::panic::resume_unwind(panic),
        }
    }
}

impl Drop for Party {
    fn drop(&mut self) {
        // Nobody is left to be told of a panic of that thread.
        if let Some(thread) = self.thread.take() {
            let _ = rustix::io::write(&*self.stop, &1_u64.to_ne_bytes());
            let _ = thread.join();
        }
    }
}

/// The thread's life.
fn attend(
    plan: &Plan,
    stop: &Arc<OwnedFd>,
    open: &Arc<AtomicUsize>,
    said: &mpsc::SyncSender<Result<(), Fault>>,
) -> Counted {
    let settled = settle(plan).and_then(|()| Round::new(plan, stop, open));
    match settled {
        Ok(round) => {
            // Whoever asked for it waits for this.
            let _ = said.send(Ok(()));
            round.run()
        }
        Err(fault) => {
            let _ = said.send(Err(fault));
            Counted::default()
        }
    }
}

/// Where the thread runs and whose descriptors it uses.
fn settle(plan: &Plan) -> Result<(), Fault> {
    if !plan.machine.cpus.is_empty() {
        let mut cpus = CpuSet::new();
        for cpu in plan
            .machine
            .cpus
            .iter()
            .filter(|cpu| **cpu < CpuSet::MAX_CPU)
        {
            cpus.set(*cpu);
        }
        sched_setaffinity(None, &cpus).map_err(|error| cannot(&error))?;
    }
    if plan.machine.tables == Tables::Own {
        // Other threads must not take copies of these connections: they would stay open there.
        unshare(CloneFlags::CLONE_FILES).map_err(|error| cannot(&error))?;
    }
    Ok(())
}

fn check_scheme(plan: &Plan) -> Result<(), Fault> {
    let speaks = |group: &crate::plan::Company| group.misbehaviour != Misbehaviour::Idle;
    if matches!(plan.target.scheme, Scheme::Https(_)) && plan.company.iter().any(speaks) {
        return Err(Fault::with_hint(
            "misbehaving clients speak no TLS",
            "give them an `http:` target, or let them be idle (`--company N:idle`)",
        ));
    }
    Ok(())
}

fn cannot(error: &dyn std::fmt::Display) -> Fault {
    Fault::new(format!("misbehaving clients cannot be started: {error}"))
}

#[cfg(test)]
mod tests;
