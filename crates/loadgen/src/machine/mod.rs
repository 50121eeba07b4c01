//! The machine that a load is made on: what it allows, and what it was doing meanwhile.
//!
//! Takes a plan and makes it fit before the run ([`prepare`]), reads the kernel's counters and the processor time
//! of threads, server and everybody else around it, and says afterwards what that means for the numbers
//! ([`judge`]). It reads `/proc` and raises the own soft limit of descriptors; it must not change the host.
//!
//! ```text
//! prepare ─► descriptors, ports ◄─ host        pure, from values
//! meters  ─► kernel, server, uses ◄─ proc
//! judge   ─► remarks                                    pure, from the outcome
//! ```

mod descriptors;
mod host;
mod kernel;
mod ports;
mod proc;
mod server;
mod uses;
mod validity;

use nix::errno::Errno;
use nix::sched::{CpuSet, sched_setaffinity};
use nix::unistd::Pid;

use crate::engine::Fault;
use crate::outcome::Remark;
use crate::plan::Plan;

pub use kernel::KernelCounters;
pub use server::ServerMeter;
pub use uses::{HostMeter, ThreadMeter, own_cpu_s, resident_bytes};
pub use validity::judge;

/// Makes a plan fit this machine: threads, tables of descriptors, and local addresses where there are too few
/// ports. Gives what has to be known, the worst first, with the commands that change it.
///
/// # Errors
/// When the load cannot be made here; the hint has the remedy.
pub fn prepare(plan: &mut Plan) -> Result<Vec<Remark>, Fault> {
    let host = host::Host::read();
    // The kernel says the same of a foreign address as of one without a free port: they differ only here.
    if let Some(address) = host::foreign(&plan.connections.sources) {
        return Err(Fault::with_hint(
            format!("{address} is no address of this host: no connection can come from it"),
            "`--source` wants addresses that `ip address` shows, or, for a target on loopback, any of 127.0.0.0/8",
        ));
    }
    let mut remarks = fit(plan, &host)?;
    let limits = server::descriptor_limits(&plan.machine.server_pids);
    // A remark and no fault: a server that has too few descriptors may be what is to be measured.
    remarks.extend(descriptors::server_remark(plan, &limits));
    remarks.sort_by_key(|remark| remark.weight);
    Ok(remarks)
}

/// [`prepare`] for a host with these values.
fn fit(plan: &mut Plan, host: &host::Host) -> Result<Vec<Remark>, Fault> {
    // Threads first: they are a bound of the rate.
    let mut remarks = descriptors::choose(plan, host)?;
    remarks.extend(ports::choose(plan, host)?);
    Ok(remarks)
}

/// Keeps this thread on these processors.
///
/// # Errors
/// One of them is none that this thread may use.
pub fn run_on(cpus: &[usize]) -> Result<(), Errno> {
    let mut set = CpuSet::new();
    for cpu in cpus {
        set.set(*cpu)?;
    }
    sched_setaffinity(Pid::from_raw(0), &set)
}

#[cfg(test)]
pub(crate) mod tests;
