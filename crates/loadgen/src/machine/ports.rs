//! Whether the local ports suffice, and which local addresses are used.
//!
//! Pure: takes the plan and what the host allows. A connection has a port of its local address for as long as it
//! is open, and in TIME_WAIT for up to a minute more when we end it properly: so needed are
//! connections + rate × time. Linux looks at every second port first, so that connecting becomes slow once half
//! of the ports of an address are taken; and past all of them it fails.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};

use telemetry::Nanos;

use super::host::{Host, TIME_WAIT};
use crate::engine::Fault;
use crate::outcome::{Remark, Weight};
use crate::plan::{Address, Begin, Closing, Length, Load, Misbehaviour, Plan};

/// Local addresses that are chosen at most.
const SOURCES_MAX: u64 = 4_096;

/// How many ports are needed at once.
#[derive(Clone, PartialEq, Debug)]
struct PortNeed {
    /// Connections that are open, with those of misbehaving clients.
    open: u64,
    /// Ports in TIME_WAIT.
    waiting: u64,
    /// Connections a second that we end properly.
    per_s: f64,
    /// Whether that is as much as threads can do, because the plan does not say it.
    is_assumed: bool,
    /// What makes fewer addresses suffice, the best first.
    remedies: String,
}

/// Chooses local addresses where the target is on loopback and none were given.
///
/// # Errors
/// When there are fewer ports than are needed, with the remedies.
pub(super) fn choose(plan: &mut Plan, host: &Host) -> Result<Vec<Remark>, Fault> {
    let Address::Ip(target) = plan.target.address else {
        return Ok(Vec::new());
    };
    let need = PortNeed::of(plan, target, host);
    let all = need.open + need.waiting;
    let given = plan.connections.sources.len() as u64;
    // Half of them: connect() looks at the ports of one parity first, and at the others one by one when those are taken.
    if all <= host.ports / 2 * given.max(1) {
        return Ok(Vec::new());
    }
    let wanted = all.div_ceil((host.ports / 2).max(1));
    if given == 0 && target.ip().is_ipv4() && target.ip().is_loopback() && wanted <= SOURCES_MAX {
        // 127.0.0.1, 127.0.0.2 and so on: every address of 127.0.0.0/8 is this host's.
        let first = u32::from(Ipv4Addr::LOCALHOST);
        let all = (first..first + wanted as u32).map(Ipv4Addr::from);
        plan.connections.sources = all.map(IpAddr::V4).collect();
        return Ok(vec![chosen_remark(&need, &plan.connections.sources, host)]);
    }
    let (has, from) = (host.ports * given.max(1), addresses(given.max(1)));
    if all > has {
        let mut hint = format!("give {wanted} addresses of this host by `--source A-B`, or ");
        if target.ip().is_loopback() && target.is_ipv6() {
            hint.push_str("reach the server over 127.0.0.1, where addresses abound, or ");
        }
        let needed = need.said();
        let text = format!("{needed} local ports are needed, and {from} has {has}");
        return Err(Fault::with_hint(text, hint + &need.remedies));
    }
    let (needed, remedies) = (need.said(), need.remedies);
    let text = format!(
        "{needed} of the {has} ports of {from} are needed: past half of them the kernel takes long to find a free \
         one, which is in the time to connect; {remedies}"
    );
    Ok(vec![Remark::new(Weight::Doubtful, "ports", text)])
}

impl PortNeed {
    fn of(plan: &Plan, target: SocketAddr, host: &Host) -> PortNeed {
        let bad_clients: usize = plan.bad_clients.iter().map(|group| group.len).sum();
        let waits = match target.ip().to_canonical().is_loopback() {
            true => host.loopback_time_wait,
            false => host.time_wait,
        };
        // The side that closes first keeps the port in TIME_WAIT; after a reset neither does.
        let (per_s, is_assumed) = match plan.connections.closing {
            Closing::Fin => ended_per_s(plan),
            Closing::Rst | Closing::Server => (0.0, false),
        };
        let ours = waiting_of(plan, per_s, waits);
        let bad_clients_per_s = half_closed_per_s(plan);
        let waiting = ours + bad_clients_per_s * waits.as_secs_f64();
        // The kernel keeps no more of them, and ends further connections without TIME_WAIT.
        let waiting = (waiting.ceil() as u64).min(host.time_wait_max);
        PortNeed {
            open: (plan.connections.len + bad_clients) as u64,
            waiting,
            per_s: per_s + bad_clients_per_s,
            is_assumed,
            remedies: remedies(waiting, waits, host),
        }
    }

    fn said(&self) -> String {
        let assumed = match self.is_assumed {
            true => ", which is assumed because a closed load has no rate of its own",
            false => "",
        };
        let all = self.open + self.waiting;
        if self.waiting == 0 {
            return format!("{all} (one for each connection)");
        }
        format!(
            "{all} ({} connections and {} in TIME_WAIT, at {:.0} connections a second{assumed})",
            self.open, self.waiting, self.per_s
        )
    }
}

/// What makes fewer addresses suffice, the best first.
fn remedies(waiting: u64, waits: Nanos, host: &Host) -> String {
    let is_slow = waiting > 0 && waits == TIME_WAIT;
    let all = [
        (waiting > 0, "`--close rst`"),
        (is_slow, "`sysctl -w net.ipv4.tcp_tw_reuse=1`"),
        (
            host.ports < 60_000,
            "`sysctl -w net.ipv4.ip_local_port_range='1024 65535'`",
        ),
    ];
    let fitting = all.iter().filter(|(fits, _)| *fits).map(|(_, text)| *text);
    match fitting.collect::<Vec<_>>().as_slice() {
        [] => "fewer connections (`--connections`)".to_owned(),
        texts => texts.join(", or "),
    }
}

/// Connections a second that end because they have had their requests, and whether that is assumed.
fn ended_per_s(plan: &Plan) -> (f64, bool) {
    let Some(each) = plan.connections.requests_each else {
        return (0.0, false);
    };
    let each = each.get() as f64;
    match &plan.load {
        Load::Closed => {
            // What a thread makes as quickly as it can: 23,000 connections a second were measured, and twice as
            // many requests on kept ones.
            let thread = 25_000_f64.min(50_000.0 / each);
            (thread * plan.machine.threads as f64, true)
        }
        Load::Open { rate, .. } => (rate.most() / each, false),
        Load::Recorded { arrivals } => {
            let last = arrivals.last();
            let lasts_s = last.map_or(0.0, |last| last.offset.as_secs_f64());
            (arrivals.len() as f64 / each / lasts_s.max(1.0), false)
        }
        // None is opened again.
        Load::Burst => (0.0, false),
    }
}

/// How many of the plan's own connections are in TIME_WAIT at most.
fn waiting_of(plan: &Plan, per_s: f64, waits: Nanos) -> f64 {
    // No more than end while one waits, and no more than end at all.
    if per_s == 0.0 {
        return 0.0;
    }
    let each = plan.connections.requests_each;
    let each = each.map_or(1.0, |each| each.get() as f64);
    let within = match &plan.load {
        Load::Recorded { arrivals } => {
            let offsets = arrivals.iter().map(|arrival| arrival.offset);
            most_within(offsets, waits) as f64 / each
        }
        _ => per_s * waits.as_secs_f64().min(lasts_s(&plan.length)),
    };
    match (plan.length.requests, plan.length.begin) {
        (Some(requests), Begin::AtOnce) => within.min(requests as f64 / each),
        _ => within,
    }
}

/// How long a run takes at most; endless where that is not known.
fn lasts_s(length: &Length) -> f64 {
    let before = match length.begin {
        Begin::AtOnce => Some(0.0),
        Begin::After(pause) => Some(pause.as_secs_f64()),
        Begin::AllOpen => None,
    };
    let duration = length.duration.map(Nanos::as_secs_f64);
    let lasts = duration
        .zip(before)
        .map(|(duration, before)| duration + before);
    lasts.unwrap_or(f64::INFINITY)
}

/// The greatest number of times within any window of this length; they come in order.
fn most_within(times: impl Iterator<Item = Nanos> + Clone, window: Nanos) -> usize {
    // The window ends with each of them in turn, and begins with the earliest that it still holds.
    let mut earliest = times.clone().peekable();
    let (mut inside, mut most) = (0_usize, 0);
    for time in times {
        inside += 1;
        let is_before = |first: &Nanos| first.0 + window.0 < time.0;
        while earliest.next_if(is_before).is_some() {
            inside -= 1;
        }
        most = most.max(inside);
    }
    most
}

/// Connections a second of misbehaving clients that end with us as the first.
fn half_closed_per_s(plan: &Plan) -> f64 {
    let halves = plan.bad_clients.iter();
    let halves = halves.filter(|group| group.misbehaviour == Misbehaviour::HalfCloses);
    crate::adversaries::reopened_per_s(halves.map(|group| group.len).sum())
}

fn chosen_remark(need: &PortNeed, sources: &[IpAddr], host: &Host) -> Remark {
    let (len, last) = (sources.len(), sources[sources.len() - 1]);
    let text = format!(
        "connections come from {len} local addresses in turn, 127.0.0.1 to {last}, each used for less than half of \
         its {} ports: needed are {}; fewer addresses suffice with {}",
        host.ports,
        need.said(),
        need.remedies
    );
    Remark::new(Weight::Note, "sources", text)
}

fn addresses(len: u64) -> String {
    match len {
        1 => "one local address".to_owned(),
        _ => format!("{len} local addresses"),
    }
}
