//! The thread of the misbehaving clients: its start, its end, its processors and its descriptors.
//!
//! Takes the plan, gives counts when it is stopped.

use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::mpsc;
use std::thread::{self, JoinHandle};

use nix::sched::{CloneFlags, unshare};
use rustix::event::{EventfdFlags, eventfd};

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
    /// `None`: it has been stopped.
    thread: Option<JoinHandle<Vec<BadClientCounts>>>,
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
            thread: None,
        };
        if plan.bad_clients.is_empty() {
            return Ok(adversaries);
        }
        let (said, heard) = mpsc::sync_channel(1);
        let (plan, stop) = (plan.clone(), Arc::clone(&adversaries.stop));
        let named = thread::Builder::new().name("adversaries".to_owned());
        let thread = named.spawn(move || attend(&plan, &stop, &said));
        adversaries.thread = Some(thread.map_err(|error| cannot(&error))?);
        match heard.recv() {
            Ok(Ok(())) => Ok(adversaries),
            Ok(Err(fault)) => Err(fault),
            Err(_) => Err(cannot(&"its thread ended")),
        }
    }

    /// Resets all connections and says what happened, group by group in the plan's order.
    pub(crate) fn stop(mut self) -> Vec<BadClientCounts> {
        match self.end() {
            None => Vec::new(),
            Some(Ok(counts)) => counts,
            Some(Err(panic)) => std::panic::resume_unwind(panic),
        }
    }

    /// Ends the thread; `None`: there is none.
    fn end(&mut self) -> Option<thread::Result<Vec<BadClientCounts>>> {
        let thread = self.thread.take()?;
        let written = rustix::io::write(&*self.stop, &1_u64.to_ne_bytes());
        written.expect("a counter that is written once does not overflow");
        Some(thread.join())
    }
}

impl Drop for AdversaryThread {
    fn drop(&mut self) {
        // Nobody is left who could use the panic of that thread.
        let _ = self.end();
    }
}

/// The thread's life.
fn attend(
    plan: &Plan,
    stop: &OwnedFd,
    said: &mpsc::SyncSender<Result<(), Fault>>,
) -> Vec<BadClientCounts> {
    // The descriptors of the loop are opened after the thread has a table of its own: in the table of the process they
    // would stay open.
    let begun = settle(plan).and_then(|()| AdversaryLoop::new(plan, stop));
    let (result, begun) = match begun {
        Ok(begun) => (Ok(()), Some(begun)),
        Err(fault) => (Err(fault), None),
    };
    // The caller of `start` waits for this.
    let _ = said.send(result);
    begun.map(|begun| begun.run().0).unwrap_or_default()
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
    let mut groups = plan.bad_clients.iter();
    let speaks = groups.any(|group| group.misbehaviour != Misbehaviour::Idle);
    if speaks && matches!(plan.target.scheme, Scheme::Https(_)) {
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
