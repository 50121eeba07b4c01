//! Whether the descriptors suffice, and how many tables are needed for them.
//!
//! Pure: takes the plan and what the host allows, gives the threads and whose tables they use.

use super::host::Host;
use crate::engine::Fault;
use crate::outcome::{Remark, Weight};
use crate::plan::{Plan, Tables};

/// Of each table this is left for everything but connections: files, loops, timers.
const KEPT_LEN: u64 = 64;
/// More threads than these are no remedy: each one has distributions of some megabytes.
const THREADS_MAX: u64 = 256;

/// Chooses threads and tables, so that each table holds its connections.
///
/// With tables of their own each thread has a share of the connections, and so has the thread of the misbehaving clients.
///
/// # Errors
/// When no number of threads helps, with the command that does.
pub(super) fn choose(plan: &mut Plan, host: &Host) -> Result<Vec<Remark>, Fault> {
    let connections = plan.connections.len as u64;
    let bad_clients: u64 = plan.bad_clients.iter().map(|group| group.len as u64).sum();
    let all = connections + bad_clients + KEPT_LEN;
    if all <= host.nofile {
        return Ok(Vec::new());
    }
    // The limit is of a table and not of a process: threads that do not share theirs may have as many each.
    let room = host.nofile.saturating_sub(KEPT_LEN);
    let threads = connections
        .div_ceil(room.max(1))
        .max(plan.machine.threads as u64);
    if room == 0 || bad_clients > room || threads > THREADS_MAX.max(plan.machine.threads as u64) {
        return Err(too_few(all, host));
    }
    let asked = std::mem::replace(&mut plan.machine.threads, threads as usize);
    plan.machine.tables = Tables::Own;
    assert!(
        connections.div_ceil(threads) <= room,
        "each thread's table holds its share of the connections"
    );
    Ok(vec![Remark::new(
        Weight::Note,
        "descriptors",
        format!(
            "{threads} threads ({asked} were asked for), each with a table of descriptors of its own: one \
             table may hold {}, and {all} are needed; `ulimit -n {all}` (as root) before the run makes one \
             table enough{}",
            host.nofile,
            ceiling(all, host)
        ),
    )])
}

/// Whether a server that is watched can have the connections open; `limits` are those of its processes.
pub(super) fn server_remark(plan: &Plan, limits: &[u64]) -> Option<Remark> {
    let bad_clients: usize = plan.bad_clients.iter().map(|group| group.len).sum();
    let all = (plan.connections.len + bad_clients) as u64;
    let most: u64 = limits.iter().sum();
    (!limits.is_empty() && all + KEPT_LEN / 2 > most).then(|| {
        Remark::new(
            Weight::Doubtful,
            "server-descriptors",
            format!(
                "the server may open {most} descriptors in all its processes, fewer than {all} connections \
                 need: start it with `ulimit -n {}`",
                all + KEPT_LEN
            ),
        )
    })
}

fn too_few(all: u64, host: &Host) -> Fault {
    Fault::with_hint(
        format!(
            "{all} descriptors are needed, and this process may have {} in a table",
            host.nofile
        ),
        format!(
            "`ulimit -n {all}` (as root) before the run, `LimitNOFILE={all}` in a service{}; or lower \
             `--connections` or `--bad-clients`",
            ceiling(all, host)
        ),
    )
}

fn ceiling(all: u64, host: &Host) -> String {
    if all > host.nr_open {
        format!(" after `sysctl -w fs.nr_open={all}`")
    } else {
        String::new()
    }
}
