//! Whether the descriptors suffice, and how many tables are needed for them.
//!
//! Pure: takes the plan and what the host allows, gives the threads and whose tables they use.

use super::host::Host;
use crate::engine::Fault;
use crate::outcome::{Remark, Weight};
use crate::plan::{Plan, Tables};

/// Of each table this is left for everything but connections: files, loops, timers.
const KEPT_LEN: u64 = 64;

/// Chooses threads and tables, so that each table holds its connections.
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
    // Each has a share of the connections, and so has the thread of the misbehaving clients.
    let table_len = host.nofile.saturating_sub(KEPT_LEN);
    let asked = plan.machine.threads as u64;
    let threads = connections.div_ceil(table_len.max(1)).max(asked);
    // More threads than these are no remedy: each one has distributions of some megabytes.
    if table_len == 0 || bad_clients > table_len || threads > asked.max(256) {
        return Err(too_few(all, host));
    }
    plan.machine.threads = threads as usize;
    plan.machine.tables = Tables::Own;
    assert!(
        connections.div_ceil(threads) <= table_len,
        "each thread's table holds its share of the connections"
    );
    let (nofile, ceiling) = (host.nofile, ceiling(all, host));
    let text = format!(
        "{threads} threads ({asked} were asked for), each with a table of descriptors of its own: one table may \
         hold {nofile}, and {all} are needed; `ulimit -n {all}` (as root) before the run makes one table \
         enough{ceiling}"
    );
    Ok(vec![Remark::new(Weight::Note, "descriptors", text)])
}

/// Whether a server that is watched can have the connections open; `limits` are those of its processes.
pub(super) fn server_remark(plan: &Plan, limits: &[u64]) -> Option<Remark> {
    let bad_clients: usize = plan.bad_clients.iter().map(|group| group.len).sum();
    let all = (plan.connections.len + bad_clients) as u64;
    let most: u64 = limits.iter().sum();
    // A limit that could not be read is no reason for a remark.
    (!limits.is_empty() && all + KEPT_LEN / 2 > most).then(|| {
        let text = format!(
            "the server may open {most} descriptors in all its processes, fewer than {all} connections need: start \
             it with `ulimit -n {}`",
            all + KEPT_LEN
        );
        Remark::new(Weight::Doubtful, "server-descriptors", text)
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
    // Above it not even root can raise the limit of a process.
    if all > host.nr_open {
        format!(" after `sysctl -w fs.nr_open={all}`")
    } else {
        String::new()
    }
}
