//! Which server of a group gets a request, and how many it may have: an upstream group is a pool whose threads are
//! elsewhere.
//!
//! Takes what a process knows of its servers (what was sent and how it ended, what they report, what checks find) and
//! the counters of requests in flight, which all processes of a machine share; gives a server with a free slot, or that
//! there is none. It must not read a clock, know a connection or a request: a name is all it has of a server.
//!
//! Requests wait here and not at a server: a request that waits in the one queue gets the first slot that is
//! free anywhere, one that waits at a server waits for that server. So the number of slots decides more than the rule
//! that picks among free ones does.

mod census;
mod fast_ones;
mod group;
mod health;
mod hot_loads;
mod latency;
mod latency_by_load;
mod member;
mod retry;
mod round_trip;
mod rules;
mod slot_search;
#[cfg(test)]
mod tests;

use telemetry::{Nanos, Stamp};

pub use group::Group;
pub use health::CheckResult;
pub use member::Member;
pub use retry::{NoRetry, Progress, RetryBudget, RetryCase, may_retry};

/// How a group picks among its servers with a free slot.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Rule {
    /// The one with the least part of its slots in use; one that is clearly slower than the others only where a wait
    /// for those would last longer.
    #[default]
    Queue,
    /// The fewest requests in flight, by weight.
    LeastConnections,
    /// The same of two random ones.
    TwoChoices,
    /// The least product of requests in flight and a latency that jumps up and decays.
    PeakEwma,
    /// The least latency of those whose requests in flight are not unusually many.
    Prequal,
    /// In turns, by weight.
    RoundRobin,
    /// By weight, without looking.
    Random,
    /// The first in the order of the settings: as few servers as possible are busy.
    First,
    /// By a key, while that one's load is at most a quarter above the mean.
    Hash,
    /// The named one, which is waited for; as [`Rule::Queue`] where none is named or the named one is out.
    Sticky,
}

/// What was said about a group.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct GroupSettings {
    /// How a server is picked.
    pub rule: Rule,
    /// No server gets more requests at once; at least 1.
    pub slots_max: u32,
    /// The least that a request's way there and a response's way back are taken for: what a server does without while
    /// nothing waits at it.
    pub round_trip: Nanos,
    /// How long the slots of a server that has come back take to grow from 1 to all.
    pub slow_start: Nanos,
    /// Consecutive failures after which a server is ejected; 0: none is.
    pub eject_after: u32,
    /// How long it is ejected the first time; so many times longer each time.
    pub eject_time: Nanos,
    /// Consecutive active checks that pass until a server is used again, and that fail until it no longer is.
    pub check_rise: u32,
    /// See `check_rise`.
    pub check_fall: u32,
}

impl Default for GroupSettings {
    fn default() -> GroupSettings {
        GroupSettings {
            rule: Rule::Queue,
            slots_max: 256,
            round_trip: Nanos::from_us(200),
            slow_start: Nanos::from_secs(30),
            eject_after: 5,
            eject_time: Nanos::from_secs(30),
            check_rise: 2,
            check_fall: 3,
        }
    }
}

/// What was said about a server.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct MemberSettings {
    /// What it is known by: an address. No two of a group have the same.
    pub name: String,
    /// Its part beside the others; 0 is taken as 1.
    pub weight: u32,
    /// Requests that it may have at once; `None`: as many as it reports threads, or as many as are found to be of use.
    pub slots: Option<u32>,
    /// It is used only while no other is good.
    pub backup: bool,
}

/// Requests in flight, counted for all processes of the machine together.
///
/// An index is the one that [`Group::members`] gives. It is given to another server only after the count was 0.
pub trait SlotCounters {
    /// Requests that a server has.
    fn in_flight(&self, member: usize) -> u32;
    /// Adds one if there are fewer than `limit`, in one step.
    fn try_take(&self, member: usize, limit: u32) -> bool;
}

/// A request that wants a slot.
#[derive(Clone, Copy, Debug)]
pub struct Ask<'a> {
    /// The present.
    pub now: Stamp,
    /// Servers that it must not get, because it failed there.
    pub excluded: &'a [usize],
    /// A hash of what [`Rule::Hash`] goes by.
    pub key_hash: Option<u64>,
    /// The server that its client is bound to ([`Rule::Sticky`]).
    pub sticky: Option<&'a str>,
    /// Other requests that wait for a slot of the group.
    pub waiting: u32,
}

/// Where a request goes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Choice {
    /// To this server: a slot of it has been taken, which [`Group::ended`] has to hear of.
    Taken(usize),
    /// Nowhere yet: ask again when a slot is given back or [`Group::next_change`] has come.
    Wait,
    /// No server is left for it: there is none, or it has failed at all of them.
    Nobody,
}

/// How an exchange with a server ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Outcome {
    /// It answered; a 502, 503 or 504 counts as a failure of it, and a 500 as its application's.
    Served {
        /// From the slot to the last byte.
        latency: Nanos,
        /// The status.
        status: u16,
    },
    /// It refused because it is full (a 503 with Retry-After of a server that queues by itself): fewer at once for a
    /// while, and no failure.
    Full {
        /// What it asked for.
        retry_after: Nanos,
    },
    /// It failed.
    Failed(FailureKind),
    /// The client left, or a kept connection turned out to be closed before anything was written: this says nothing.
    Abandoned,
}

/// What went wrong at a server.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum FailureKind {
    /// No connection, or no TLS.
    Connect,
    /// Nothing came in time.
    Timeout,
    /// The connection ended before the response did.
    Closed,
    /// What came is no response.
    Malformed,
}

/// What a server says about its load with a response.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct LoadReport {
    /// Requests that run, the reported one included.
    pub running: u32,
    /// Requests that wait for a thread.
    pub waiting: u32,
    /// Its threads; 0 where it did not say.
    pub threads: u32,
    /// How long requests wait there.
    pub queue: Nanos,
    /// What this request and its response spent on their way, where the server told how long it had them.
    pub round_trip: Option<Nanos>,
}
