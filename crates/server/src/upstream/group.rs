//! An upstream group: its servers, and how many exchanges each has.
//!
//! All drivers of a process share it. It decides which server answers an exchange, by the arithmetic of
//! `queueing::balancing`, and counts the exchanges that servers have: an `UpstreamSlot` is a place at one of them. What
//! becomes of an exchange is told to it with the slot.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard};

use config::failure::StartFault;
use config::typed::{
    Balance, ServerAddress, UPSTREAM_SERVERS_MAX, Upstream, UpstreamProtocol, UpstreamServer,
};
use ipc::stats::{Placed, SharedSlots};
use queueing::balancing::{
    Ask, CheckResult, Choice, FailureKind, Group, GroupSettings, LoadReport, MemberSettings,
    Outcome, RetryBudget, Rule,
};
use telemetry::counters::{UpstreamResult, UpstreamStats};
use telemetry::{Nanos, Stamp};

use super::connect::Connector;
use super::counters::{Counters, MEMBERS_MAX, hash_of};
use super::resolver::ResolvedServers;
use crate::exchange::Exchange;
use crate::sync::{invariant, lock};
use crate::tunnel::TunnelPlaces;

/// One group of upstreams, as a process knows it.
pub(crate) struct UpstreamGroup {
    pub(super) settings: Upstream,
    /// Number of its first server among the names in the log.
    first_name: u16,
    in_flight: Counters,
    pub(super) tunnels: Arc<TunnelPlaces>,
    pub(super) connector: Connector,
    /// As of the last look.
    slots_total: AtomicUsize,
    /// By server.
    counters: &'static [Placed<UpstreamStats>],
    /// Members have lower numbers.
    members_len: AtomicUsize,
    state: Mutex<GroupState>,
    /// Where the servers were found last.
    pub(super) resolved: Mutex<ResolvedServers>,
}

struct GroupState {
    group: Group,
    /// By member.
    endpoints: Vec<Option<Arc<Endpoint>>>,
    budget: RetryBudget,
    rng: fastrand::Rng,
}

/// Where a member is.
#[derive(Debug)]
pub(super) struct Endpoint {
    /// The server of the configuration that it belongs to.
    pub(super) server: usize,
    pub(super) at: EndpointAddress,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum EndpointAddress {
    Tcp(SocketAddr),
    Unix(PathBuf),
}

/// A place of one exchange at a member; given back when it is dropped.
pub(crate) struct UpstreamSlot {
    group: Arc<UpstreamGroup>,
    member: usize,
    column: usize,
    pub(super) endpoint: Arc<Endpoint>,
    /// When it was taken.
    pub(super) taken: Stamp,
}

/// What a request is to be placed by.
#[derive(Clone, Debug, Default)]
pub(super) struct PlacingKey {
    pub(super) hash: Option<u64>,
    /// The name of the member that its client had before.
    pub(super) sticky: Option<String>,
}

/// Why there is no slot.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum NoSlot {
    /// Each member has as many exchanges as it may have.
    Busy,
    /// There is no member that could be asked.
    Nobody,
}

impl UpstreamGroup {
    /// The group with these settings, whose first server has this number among the names in the log and among the
    /// `counters` of the process. `slots` are those of all processes of the host.
    ///
    /// # Errors
    /// Its certificates cannot be used.
    pub(crate) fn open(
        settings: &Upstream,
        first_name: u16,
        slots: &Arc<SharedSlots>,
        counters: &'static [Placed<UpstreamStats>],
    ) -> Result<Arc<Self>, StartFault> {
        let first = usize::from(first_name);
        let counters = &counters[first..first + settings.servers.len()];
        let group = Group::new(group_settings(settings), Vec::new());
        Ok(Arc::new(Self {
            first_name,
            in_flight: Counters::new(&settings.name, slots),
            tunnels: TunnelPlaces::new(settings.tunnels_max),
            slots_total: AtomicUsize::new(0),
            members_len: AtomicUsize::new(0),
            state: Mutex::new(GroupState {
                group,
                endpoints: Vec::new(),
                budget: RetryBudget::new((settings.retry_budget * 100.0) as u32),
                rng: fastrand::Rng::new(),
            }),
            resolved: Mutex::default(),
            connector: Connector::open(settings, counters)?,
            counters,
            settings: settings.clone(),
        }))
    }

    fn state(&self) -> MutexGuard<'_, GroupState> {
        lock(&self.state)
    }

    /// From now on these are the addresses of the servers, by server. Those that are gone get no new exchange. Gives what
    /// an operator should know of it.
    pub(super) fn set_addresses(
        &self,
        addresses: &[Vec<EndpointAddress>],
        now: Stamp,
    ) -> Vec<String> {
        let mut state = self.state();
        let state = &mut *state;
        // Those that are gone keep their places until they have ended what they have.
        let members = state.group.members();
        let busy_len = members
            .filter(|(index, _)| self.in_flight.in_flight(*index) > 0)
            .count();
        let len_max = UPSTREAM_SERVERS_MAX.min(MEMBERS_MAX - busy_len);
        let mut endpoints = named_endpoints(addresses, len_max);
        let members = endpoints.iter().map(|(name, endpoint)| {
            let server = &self.settings.servers[endpoint.server];
            member_settings(name, server)
        });
        let members = members.collect();
        // A group that is new has no member that would have to begin slowly.
        match state.endpoints.is_empty() {
            true => state.group = Group::new(group_settings(&self.settings), members),
            false => state
                .group
                .set_members(now, members, &self.in_flight.at(now)),
        }
        // First, so that those that are new find what is free now.
        self.forget_gone(&state.group);
        let mut by_member: Vec<Option<Arc<Endpoint>>> = Vec::new();
        for (index, member) in state.group.members() {
            invariant!(
                index < MEMBERS_MAX,
                "an upstream group has too many members"
            );
            self.in_flight
                .name(index, &slots_name(&self.settings, member.name()));
            let known = state.endpoints.get(index).cloned().flatten();
            let is_kept = |endpoint: &Arc<Endpoint>| endpoint.name() == member.name();
            let endpoint = known.filter(is_kept).or_else(|| {
                let named = |(name, _): &(String, _)| name == member.name();
                let place = endpoints.iter().position(named)?;
                Some(endpoints.swap_remove(place).1)
            });
            by_member.resize(index, None);
            by_member.push(endpoint);
        }
        self.members_len.store(by_member.len(), Ordering::Relaxed);
        state.endpoints = by_member;
        let all_len: usize = addresses.iter().map(Vec::len).sum();
        self.notes_of_members(&state.group, all_len.saturating_sub(len_max))
    }

    /// Gives up the counts of members that there are no more.
    fn forget_gone(&self, group: &Group) {
        let mut is_there = [false; MEMBERS_MAX];
        for (index, _) in group.members() {
            is_there[index] = true;
        }
        let before = &is_there[..self.members_len.load(Ordering::Relaxed)];
        for (index, _) in before.iter().enumerate().filter(|(_, is)| !**is) {
            self.in_flight.forget(index);
        }
    }

    /// What is worth a line of the log about the members that there are now.
    fn notes_of_members(&self, group: &Group, left_out: usize) -> Vec<String> {
        let name = &self.settings.name;
        let mut notes = Vec::new();
        if left_out > 0 {
            notes.push(format!(
                "upstream {name}: {left_out} addresses get no requests: a group has at most {UPSTREAM_SERVERS_MAX}"
            ));
        }
        let members = group.members();
        let alone = members.filter(|(index, _)| self.in_flight.is_alone(*index));
        let alone_len = alone.count();
        if alone_len > 0 {
            let max = SharedSlots::NAMES_MAX;
            notes.push(format!(
                "upstream {name}: each process counts the requests of {alone_len} servers alone, so that these may get more than `slots`: processes count those of at most {max} servers together"
            ));
        }
        notes
    }

    /// Whether a request has to be known before its server is chosen.
    pub(super) fn is_keyed(&self) -> bool {
        matches!(
            self.settings.balance,
            Balance::Hash(_) | Balance::Sticky { .. }
        )
    }

    /// A place at the member that is to answer next, none of which was tried. `waiting`: requests that wait beside it.
    pub(super) fn take_slot(
        self: &Arc<Self>,
        now: Stamp,
        tried: &[usize],
        key: &PlacingKey,
        waiting: usize,
    ) -> Result<UpstreamSlot, NoSlot> {
        self.in_flight.set_waiting(waiting);
        let mut state = self.state();
        let GroupState {
            group,
            endpoints,
            budget,
            rng,
        } = &mut *state;
        let ask = Ask {
            now,
            excluded: tried,
            key_hash: key.hash,
            sticky: key.sticky.as_deref(),
            waiting: u32::try_from(waiting).unwrap_or(u32::MAX),
        };
        match group.choose(&ask, &self.in_flight.at(now), rng) {
            Choice::Wait => Err(NoSlot::Busy),
            Choice::Nobody => Err(NoSlot::Nobody),
            Choice::Taken(member) => {
                let endpoint = endpoints.get(member).cloned().flatten();
                let endpoint = endpoint.expect("each member has an address");
                let column = self.in_flight.column(member);
                let counters = self.counters(&endpoint);
                match tried.is_empty() {
                    true => budget.note_request(now),
                    false => counters.retries.add_from_any(),
                }
                counters.in_flight.add_from_any();
                drop(state);
                Ok(UpstreamSlot {
                    group: Arc::clone(self),
                    member,
                    column,
                    endpoint,
                    taken: now,
                })
            }
        }
    }

    /// Whether one more request of this second may be a retry.
    pub(super) fn take_retry(&self, now: Stamp) -> bool {
        self.state().budget.try_take(now)
    }

    /// Whether an exchange that was at these members may have another one, at once or after a wait.
    pub(super) fn has_other(&self, now: Stamp, tried: &[usize]) -> bool {
        self.state().group.has_other(now, tried)
    }

    /// A check of the member at this address ended.
    pub(super) fn checked(&self, endpoint: &Arc<Endpoint>, now: Stamp, result: CheckResult) {
        let mut state = self.state();
        if let Some(member) = state.member_at(endpoint) {
            state.group.checked(member, now, result);
        }
    }

    /// Whether the member at this address gets requests as a rule.
    pub(super) fn is_used(&self, endpoint: &Arc<Endpoint>, now: Stamp) -> bool {
        let state = self.state();
        let member = state.member_at(endpoint);
        member.is_some_and(|member| state.group.is_used(member, now))
    }

    /// The addresses that are to be checked.
    pub(super) fn endpoints(&self) -> Vec<Arc<Endpoint>> {
        let state = self.state();
        let members = state.group.members().filter(|(_, member)| !member.drains());
        members
            .filter_map(|(index, _)| state.endpoints.get(index).cloned().flatten())
            .collect()
    }

    /// The member that a client is bound to by this mark.
    pub(super) fn name_of_mark(&self, mark: &[u8]) -> Option<String> {
        let endpoints = self.endpoints();
        let mut names = endpoints.iter().map(|endpoint| endpoint.name());
        names.find(|name| mark_of(name).as_bytes() == mark)
    }

    /// Whether a slot is free.
    pub(super) fn has_free(&self, now: Stamp) -> bool {
        self.state().group.free_slots(now, &self.in_flight.at(now)) > 0
    }

    /// All slots and those that are free, as far as is known without a lock.
    pub(crate) fn slots(&self) -> (usize, usize) {
        let total = self.slots_total.load(Ordering::Relaxed);
        (total, total.saturating_sub(self.in_flight()))
    }

    /// Finds out how many slots there are now.
    pub(crate) fn count_slots(&self, now: Stamp) {
        let mut servers = vec![(0, 0); self.counters.len()];
        let mut total = 0;
        let state = self.state();
        state.group.each_slots(now, |member, slots, is_ejected| {
            total += slots as usize;
            if let Some(endpoint) = state.endpoints.get(member).and_then(Option::as_ref) {
                let (limit, ejected) = &mut servers[endpoint.server];
                *limit += u64::from(slots);
                *ejected += u64::from(is_ejected);
            }
        });
        drop(state);
        self.slots_total.store(total, Ordering::Relaxed);
        for (counters, (limit, ejected)) in self.counters.iter().zip(servers) {
            counters.slots.set(limit);
            counters.ejected.set(ejected);
        }
    }

    /// The counters of the server that is there.
    pub(super) fn counters(&self, endpoint: &Endpoint) -> &UpstreamStats {
        &self.counters[endpoint.server]
    }

    /// Whether long bodies of requests are passed on while they arrive.
    pub(crate) fn streams_requests(&self) -> bool {
        self.settings.streams_requests
    }

    /// Whether an exchange is a call of gRPC. A server of HTTP/1.1 takes none: with such a server the type of the body, which
    /// any client can write, must not let a silent client keep its slot.
    pub(crate) fn takes_call(&self, exchange: &Exchange) -> bool {
        self.settings.protocol == UpstreamProtocol::Http2 && exchange.is_grpc()
    }

    /// For how long nothing may move in a tunnel, or in a call of gRPC.
    pub(crate) fn tunnel_idle(&self) -> Nanos {
        self.settings.tunnel_idle
    }

    /// Exchanges that the members have together.
    pub(crate) fn in_flight(&self) -> usize {
        let members = 0..self.members_len.load(Ordering::Relaxed);
        let counts = members.map(|member| self.in_flight.in_flight(member) as usize);
        counts.sum()
    }

    /// Nothing waits in this process.
    pub(super) fn none_waits(&self) {
        self.in_flight.set_waiting(0);
    }
}

impl GroupState {
    fn member_at(&self, endpoint: &Arc<Endpoint>) -> Option<usize> {
        let is_it = |known: &Option<Arc<Endpoint>>| {
            let known = known.as_ref();
            known.is_some_and(|known| Arc::ptr_eq(known, endpoint))
        };
        self.endpoints.iter().position(is_it)
    }
}

impl UpstreamSlot {
    /// Index of its member among those that a request has tried.
    pub(super) fn member(&self) -> usize {
        self.member
    }

    /// Number of its server among the names in the log.
    pub(super) fn name(&self) -> u16 {
        // The number of servers is checked.
        self.group.first_name + self.endpoint.server as u16
    }

    /// What became of the exchange there.
    pub(super) fn ended(&self, now: Stamp, outcome: Outcome) {
        let counters = self.group.counters(&self.endpoint);
        counters.ended(result_of(outcome));
        if let Outcome::Served { latency, .. } = outcome {
            counters.answered_in(latency);
        }
        let in_flight = self.group.in_flight.in_flight(self.member);
        let mut state = self.group.state();
        state.group.ended(self.member, now, in_flight, outcome);
    }

    /// What the server says about its load.
    pub(super) fn reported(&self, report: LoadReport) {
        self.group.state().group.reported(self.member, report);
    }
}

impl Drop for UpstreamSlot {
    fn drop(&mut self) {
        self.group.in_flight.give_back(self.member, self.column);
        (self.group.counters(&self.endpoint).in_flight).take_from_any();
    }
}

impl Endpoint {
    /// What the group knows it by.
    pub(super) fn name(&self) -> String {
        match &self.at {
            EndpointAddress::Tcp(address) => address.to_string(),
            EndpointAddress::Unix(path) => format!("unix:{}", path.display()),
        }
    }

    /// What binds a client to it: a name that tells nothing of its address.
    pub(super) fn mark(&self) -> String {
        mark_of(&self.name())
    }
}

impl EndpointAddress {
    /// That of a server that needs no resolving.
    pub(super) fn known(address: &ServerAddress) -> Option<Self> {
        match address {
            ServerAddress::Unix(path) => Some(EndpointAddress::Unix(path.clone())),
            ServerAddress::Tcp { host, port } => {
                let ip = host.parse().ok()?;
                Some(EndpointAddress::Tcp(SocketAddr::new(ip, *port)))
            }
        }
    }
}

fn result_of(outcome: Outcome) -> UpstreamResult {
    match outcome {
        Outcome::Served { status, .. } if status >= 500 => UpstreamResult::ServerError,
        Outcome::Served { .. } => UpstreamResult::Answered,
        Outcome::Full { .. } => UpstreamResult::Full,
        Outcome::Failed(FailureKind::Connect) => UpstreamResult::Connect,
        Outcome::Failed(FailureKind::Timeout) => UpstreamResult::Timeout,
        Outcome::Failed(FailureKind::Closed) => UpstreamResult::Closed,
        Outcome::Failed(FailureKind::Malformed) => UpstreamResult::Malformed,
        Outcome::Abandoned => UpstreamResult::Abandoned,
    }
}

/// At most so many addresses, with the names of those that have them.
fn named_endpoints(
    addresses: &[Vec<EndpointAddress>],
    len_max: usize,
) -> Vec<(String, Arc<Endpoint>)> {
    let by_server = addresses.iter().enumerate();
    let endpoints = by_server.flat_map(|(server, addresses)| {
        let of_server = move |at: &EndpointAddress| Endpoint {
            server,
            at: at.clone(),
        };
        addresses.iter().map(of_server)
    });
    let named = endpoints.map(|endpoint| (endpoint.name(), Arc::new(endpoint)));
    named.take(len_max).collect()
}

fn mark_of(name: &str) -> String {
    format!("{:016x}", hash_of(name))
}

/// What the slots of a member are counted under: two groups with the same server do not share its slots.
fn slots_name(group: &Upstream, member: &str) -> String {
    format!("{} {member}", group.name)
}

fn member_settings(name: &str, server: &UpstreamServer) -> MemberSettings {
    MemberSettings {
        name: name.to_owned(),
        weight: server.weight,
        slots: server.slots,
        backup: server.is_backup,
    }
}

fn group_settings(settings: &Upstream) -> GroupSettings {
    let check = settings.check.as_ref();
    let usual = GroupSettings::default();
    GroupSettings {
        rule: match &settings.balance {
            Balance::Queue => Rule::Queue,
            Balance::LeastConnections => Rule::LeastConnections,
            Balance::TwoChoices => Rule::TwoChoices,
            Balance::PeakEwma => Rule::PeakEwma,
            Balance::Prequal => Rule::Prequal,
            Balance::RoundRobin => Rule::RoundRobin,
            Balance::Random => Rule::Random,
            Balance::First => Rule::First,
            Balance::Hash(_) => Rule::Hash,
            Balance::Sticky { .. } => Rule::Sticky,
        },
        slots_max: settings.slots_max,
        round_trip: usual.round_trip,
        slow_start: settings.slow_start,
        eject_after: settings.eject_after.unwrap_or(0),
        eject_time: settings.eject_time,
        check_rise: check.map_or(usual.check_rise, |check| check.rise),
        check_fall: check.map_or(usual.check_fall, |check| check.fall),
    }
}

#[cfg(test)]
pub(super) mod tests;
