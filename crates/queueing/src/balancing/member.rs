//! One server of a group as this process knows it: its health, its latency, and how many requests it may have.
//!
//! Takes what happened to it, gives its limit and what it is compared by. It must not know other members or how many
//! requests it has: those are counted by all processes of the machine together.

use telemetry::{Nanos, Stamp};

use super::health::Health;
use super::latency::Latency;
use super::latency_by_load::LatencyByLoad;
use super::round_trip::RoundTrip;
use super::rules::name_hash;
use super::slot_search::{self, Lowering, SlotSearch};
use super::{GroupSettings, LoadReport, MemberSettings};

/// A refusal lowers the limit for as long as it asks for, between these bounds.
const REFUSED_MIN: Nanos = Nanos::from_ms(100);
const REFUSED_MAX: Nanos = Nanos::from_secs(10);

/// The limit while a server refuses more.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct SlotCap {
    slots: u32,
    until: Stamp,
}

/// A server of a group.
#[derive(Clone, Debug)]
pub struct Member {
    pub(super) settings: MemberSettings,
    /// Its place among the settings.
    pub(super) position: usize,
    /// It has left the group and gets nothing more.
    pub(super) drains: bool,
    pub(super) health: Health,
    pub(super) latency: Latency,
    pub(super) by_load: LatencyByLoad,
    pub(super) search: SlotSearch,
    report: Option<LoadReport>,
    round_trip: RoundTrip,
    cap: Option<SlotCap>,
    /// Since when its limit grows from 1.
    pub(super) started: Option<Stamp>,
    /// Requests of this process that it has.
    own: u32,
    /// When this process last sent something to it while it had nothing from here, or got something from it.
    heard: Stamp,
    /// The credit of a turn (smooth weighted round robin).
    pub(super) credit: i64,
    /// Of its name.
    pub(super) name_hash: u64,
}

impl Member {
    pub(super) fn new(settings: MemberSettings, position: usize, slots_max: u32) -> Member {
        let name_hash = name_hash(&settings.name);
        Member {
            settings,
            position,
            drains: false,
            health: Health::new(),
            latency: Latency::default(),
            by_load: LatencyByLoad::new(),
            search: SlotSearch::new(slots_max),
            report: None,
            round_trip: RoundTrip::default(),
            cap: None,
            started: None,
            own: 0,
            heard: Stamp::ZERO,
            credit: 0,
            name_hash,
        }
    }

    /// Its name, as the settings have it.
    pub fn name(&self) -> &str {
        &self.settings.name
    }

    /// Whether it has left the group and only finishes what it has.
    pub fn drains(&self) -> bool {
        self.drains
    }

    /// The mean latency of what it served; `None` while too little was.
    pub fn latency(&self) -> Option<Nanos> {
        self.latency.mean_ns().map(|ns| Nanos(ns as u64))
    }

    /// Failures since the last success.
    pub fn failures(&self) -> u32 {
        self.health.failures()
    }

    /// Its latest load report.
    pub fn report(&self) -> Option<LoadReport> {
        self.report
    }

    pub(super) fn weight(&self) -> u32 {
        self.settings.weight.max(1)
    }

    /// Requests that it may have at `now`, at least 1; `is_ramped` where it begins slowly.
    pub(super) fn limit(&self, now: Stamp, rules: &GroupSettings, ramp: Ramp) -> u32 {
        let mut limit = self.slots(rules);
        if let (Some(started), Ramp::Applies) = (self.started, ramp) {
            let passed = now.since(started).0;
            let share =
                u128::from(limit - 1) * u128::from(passed) / u128::from(rules.slow_start.0.max(1));
            let ramped = u32::try_from(share + 1).unwrap_or(u32::MAX);
            limit = limit.min(ramped);
        }
        if let Some(cap) = self.cap.filter(|cap| now < cap.until) {
            limit = limit.min(cap.slots);
        }
        limit.max(1)
    }

    /// Its slots when nothing is in the way, at least 1.
    fn slots(&self, rules: &GroupSettings) -> u32 {
        let slots = match (self.settings.slots, self.report) {
            (Some(slots), _) => slots,
            (None, Some(load)) if load.threads > 0 => {
                load.threads.saturating_add(self.ahead(load.threads, rules))
            }
            (None, _) => self.search.limit(),
        };
        slots.clamp(1, rules.slots_max.max(1))
    }

    /// What its requests are a part of when members are compared: `limit`, or where that is still being looked for the
    /// same for all, or a server that is tried with more slots would get more although it can do no more.
    pub(super) fn capacity(&self, limit: u32) -> u32 {
        match self.is_searched() {
            true => slot_search::FIRST,
            false => limit,
        }
    }

    /// Requests beyond its threads that keep it busy while a response travels here and the next request there.
    fn ahead(&self, threads: u32, rules: &GroupSettings) -> u32 {
        let Some(latency) = self.latency.mean_ns() else {
            return 0;
        };
        // Many times the threads is a queue of its own.
        let most = f64::from(threads) * 4.0;
        let way = self.round_trip.least().unwrap_or_default();
        // What is left is the time at the server, in which as many more can be done as there are threads.
        let there = latency - way.0 as f64;
        let way = way.max(rules.round_trip);
        let ahead = f64::from(threads) * way.0 as f64 / there.max(1.0);
        ahead.round().min(most) as u32
    }

    /// Whether its slots are found by the search.
    fn is_searched(&self) -> bool {
        self.settings.slots.is_none() && self.report.is_none_or(|report| report.threads == 0)
    }

    /// Whether its limit grows from 1 at `now`.
    pub(super) fn is_starting(&self, now: Stamp, rules: &GroupSettings) -> bool {
        self.started
            .is_some_and(|started| now < started.plus(rules.slow_start))
    }

    /// How many times slower than is typical it is; see [`Latency::slowness`].
    pub(super) fn slowness(&self, now: Stamp, typical_ns: f64, in_flight: u32) -> f64 {
        let silence = match self.own.min(in_flight) {
            0 => Nanos::ZERO,
            _ => now.since(self.heard),
        };
        self.latency.slowness(now, typical_ns, silence)
    }

    /// It got a request; it has `in_flight` now, and `waiting` more find no slot.
    pub(super) fn taken(&mut self, now: Stamp, in_flight: u32, waiting: u32) {
        if self.own == 0 || in_flight <= 1 {
            self.heard = now;
        }
        // No more than all have: an end that nobody told is forgotten when the server has nothing any more.
        self.own = (self.own + 1).min(in_flight);
        if self.is_searched() {
            self.search.taken(now, in_flight, waiting);
        }
    }

    /// A request of this process ended, in whatever way.
    pub(super) fn released(&mut self, now: Stamp) {
        self.own = self.own.saturating_sub(1);
        self.heard = now;
    }

    /// It served one; with it, it had `in_flight`.
    pub(super) fn served(
        &mut self,
        now: Stamp,
        in_flight: u32,
        latency: Nanos,
        status: u16,
        lowering: Lowering,
    ) {
        // An error that comes at once is not speed: it would attract all requests.
        if status < 500 || latency.0 as f64 > self.latency.rank_ns() {
            self.by_load.observe(in_flight, latency.0 as f64);
            self.latency.observe(now, latency);
        }
        if self.is_searched() {
            self.search.completed(now, in_flight, lowering);
        }
    }

    /// It refused one because it is full; with it, it had `in_flight`.
    pub(super) fn refused(&mut self, now: Stamp, in_flight: u32, retry_after: Nanos) {
        let until = now.plus(Nanos(retry_after.0.clamp(REFUSED_MIN.0, REFUSED_MAX.0)));
        let before = self.cap.filter(|cap| now < cap.until).map(|cap| cap.slots);
        let slots = (in_flight.saturating_sub(1))
            .min(before.unwrap_or(u32::MAX))
            .max(1);
        self.cap = Some(SlotCap { slots, until });
        self.search.disturbed();
    }

    /// It told its load.
    pub(super) fn reported(&mut self, load: LoadReport) {
        self.report = Some(load);
        if let Some(way) = load.round_trip {
            self.round_trip.observe(way);
        }
    }

    /// When its limit or its being eligible next changes by time alone, after `now`.
    pub(super) fn next_change(&self, now: Stamp, rules: &GroupSettings) -> Stamp {
        let limit = u64::from(self.slots(rules));
        let ramp = self.started.filter(|_| self.is_starting(now, rules));
        let ramp = ramp.filter(|_| limit > 1).map(|started| {
            let passed = u128::from(now.since(started).0);
            let span = u128::from(rules.slow_start.0.max(1));
            let steps = u128::from(limit - 1);
            let step = passed * steps / span + 1;
            let at = (step * span).div_ceil(steps);
            started.plus(Nanos(u64::try_from(at).unwrap_or(u64::MAX)))
        });
        // From then on it is warm, and others begin slowly beside it.
        let warm = self.started.map(|started| started.plus(rules.slow_start));
        let trial = (!self.health.is_good(now)).then(|| self.health.trial_at());
        [
            ramp,
            warm,
            trial,
            self.cap.map(|cap| cap.until),
            self.health.returns_at(),
        ]
        .into_iter()
        .flatten()
        .filter(|stamp| *stamp > now)
        .min()
        .unwrap_or(Stamp::NEVER)
    }
}

/// Whether a member that has just come back begins slowly.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Ramp {
    /// Others that have run for a while take the rest.
    Applies,
    /// There are none.
    Ignored,
}
