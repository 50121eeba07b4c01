//! The thread of the misbehaving clients: its start, its end, its processors and its descriptors.
//!
//! Takes the plan, gives counts when it is stopped.

use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::AtomicUsize;
use std::sync::mpsc;
use std::thread::{self, JoinHandle};

use nix::sched::{CloneFlags, unshare};
use rustix::event::{EventfdFlags, eventfd};

use super::client::AdversaryCounts;
use super::event_loop::AdversaryLoop;
use crate::engine::Fault;
use crate::machine;
use crate::outcome::BadClientCounts;
use crate::plan::{Misbehaviour, Plan, Scheme, Tables};

/// The misbehaving clients of a plan at work.
///
/// It opens its connections over time, 2,000 a second; what is ended is opened again 100 ms later, or when its
/// turn comes. Where threads have descriptors of their own, so has this one.
#[derive(Debug)]
pub(crate) struct AdversaryThread {
    stop: Arc<OwnedFd>,
    open: Arc<AtomicUsize>,
    /// `None`: it has been stopped.
    thread: Option<JoinHandle<AdversaryCounts>>,
}

impl AdversaryThread {
    /// Begins; without misbehaving clients nothing is started.
    ///
    /// # Errors
    /// When the target cannot be spoken to like this, or there is no descriptor or thread.
    pub(crate) fn start(plan: &Plan) -> Result<AdversaryThread, Fault> {
        check_scheme(plan)?;
        let flags = EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK;
        let stop = eventfd(0, flags).map_err(|error| cannot(&error))?;
        let mut adversaries = AdversaryThread {
            stop: Arc::new(stop),
            open: Arc::new(AtomicUsize::new(0)),
            thread: None,
        };
        if plan.bad_clients.is_empty() {
            return Ok(adversaries);
        }
        let (said, heard) = mpsc::sync_channel(1);
        let (plan, stop, open) = (
            plan.clone(),
            Arc::clone(&adversaries.stop),
            Arc::clone(&adversaries.open),
        );
        let named = thread::Builder::new().name("adversaries".to_owned());
        let thread = named.spawn(move || attend(&plan, &stop, &open, &said));
        adversaries.thread = Some(thread.map_err(|error| cannot(&error))?);
        match heard.recv() {
            Ok(Ok(())) => Ok(adversaries),
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
    pub(crate) fn stop(mut self) -> Vec<BadClientCounts> {
        match self.end() {
            None => Vec::new(),
            Some(Ok(counted)) => counted.groups,
            Some(Err(panic)) => std::panic::resume_unwind(panic),
        }
    }

    /// Ends the thread; `None`: there is none.
    fn end(&mut self) -> Option<thread::Result<AdversaryCounts>> {
        let thread = self.thread.take()?;
        rustix::io::write(&*self.stop, &1_u64.to_ne_bytes()).expect("a counter of one has room");
        Some(thread.join())
    }
}

impl Drop for AdversaryThread {
    fn drop(&mut self) {
        // Nobody is left to be told of a panic of that thread.
        let _ = self.end();
    }
}

/// The thread's life.
fn attend(
    plan: &Plan,
    stop: &Arc<OwnedFd>,
    open: &Arc<AtomicUsize>,
    said: &mpsc::SyncSender<Result<(), Fault>>,
) -> AdversaryCounts {
    let settled = settle(plan).and_then(|()| AdversaryLoop::new(plan, stop, open));
    match settled {
        Ok(round) => {
            // Whoever asked for it waits for this.
            let _ = said.send(Ok(()));
            round.run()
        }
        Err(fault) => {
            let _ = said.send(Err(fault));
            AdversaryCounts::default()
        }
    }
}

/// Where the thread runs and whose descriptors it uses.
fn settle(plan: &Plan) -> Result<(), Fault> {
    let cpus = &plan.machine.cpus;
    if !cpus.is_empty() {
        machine::run_on(cpus).map_err(|error| cannot(&error.desc()))?;
    }
    if plan.machine.tables == Tables::Own {
        // Other threads must not take copies of these connections: they would stay open there.
        unshare(CloneFlags::CLONE_FILES).map_err(|error| cannot(&error))?;
    }
    Ok(())
}

fn check_scheme(plan: &Plan) -> Result<(), Fault> {
    let speaks = |group: &crate::plan::BadClients| group.misbehaviour != Misbehaviour::Idle;
    if matches!(plan.target.scheme, Scheme::Https(_)) && plan.bad_clients.iter().any(speaks) {
        return Err(Fault::with_hint(
            "misbehaving clients speak no TLS",
            "give them an `http:` target, or let them be idle (`--bad-clients N:idle`)",
        ));
    }
    Ok(())
}

pub(super) fn cannot(error: &dyn std::fmt::Display) -> Fault {
    Fault::new(format!("misbehaving clients cannot be started: {error}"))
}
