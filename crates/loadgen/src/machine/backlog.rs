//! Whether the kernel's queues of new connections hold as many as come at once.
//!
//! Pure. Only for servers on this host, whose settings are ours to see; what overflowed is counted in any case.

use super::host::Host;
use super::{is_local, note};
use crate::outcome::Remark;
use crate::plan::{Address, Plan};

/// What a queue that overflows looks like.
pub(super) const PEAKS: &str = "what is dropped comes again after 1, 3 and 7 s, and peaks there are the \
                                backlog's, not the server's";

/// What has to be known about the queues, for this plan.
pub(super) fn remarks(plan: &Plan, host: &Host) -> Vec<Remark> {
    let at_once = at_once(plan);
    let mut all = Vec::new();
    if !is_local(plan) {
        return all;
    }
    if at_once > host.somaxconn {
        all.push(note(
            "backlog",
            format!(
                "{at_once} connections may come at once, and no server's queue holds more than {} \
                 (`net.core.somaxconn`): {PEAKS}; `sysctl -w net.core.somaxconn={at_once}` before the server \
                 starts, if it asks for as many, or `--connect-rate`",
                host.somaxconn
            ),
        ));
    }
    // The kernel keeps a quarter free for clients that it knows.
    let syns = host.syn_backlog.map(|most| most - most / 4);
    if let (Address::Ip(_), Some(most)) =
        (&plan.target.address, syns.filter(|most| at_once > *most))
    {
        all.push(note(
            "syn-backlog",
            format!(
                "{at_once} connections may come at once, and without SYN cookies the kernel remembers {most} \
                 handshakes: {PEAKS}; `sysctl -w net.ipv4.tcp_max_syn_backlog={}`",
                at_once * 2
            ),
        ));
    }
    all
}

/// Connections that may be begun together: all of them, unless their opening has a rate and they are kept.
fn at_once(plan: &Plan) -> u64 {
    let connections = &plan.connections;
    match (connections.opened_per_s, connections.requests_each) {
        // A server that does not accept for a second is the one that the queue is for.
        (Some(rate), None) => connections.len.min(rate.max(0.0) as usize) as u64,
        _ => connections.len as u64,
    }
}
