//! A group of servers as one process knows it.
//!
//! Takes requests that want a slot and what became of them, gives servers; see the module above. It must not know how a
//! rule compares two servers or how one server's limit comes about.

use telemetry::{Nanos, Stamp};

use super::census::{Census, Tier};
use super::fast_ones::FastOnes;
use super::health::HealthRules;
use super::hot_loads::HotLoads;
use super::rules::{Candidate, pick};
use super::slot_search::Lowering;
use super::{
    Ask, CheckResult, Choice, GroupSettings, LoadReport, Member, MemberSettings, Outcome, Rule,
    SlotCounters,
};

/// How often what is typical of the members is found out again.
const TYPICAL_EVERY: Nanos = Nanos::from_ms(20);

/// A group of servers as one process knows it.
#[derive(Clone, Debug)]
pub struct Group {
    settings: GroupSettings,
    members: Vec<Option<Member>>,
    /// The lower median of the members' mean latencies.
    typical_ns: f64,
    typical_at: Stamp,
    hot: HotLoads,
    /// Those with a free slot, of one choice; kept for its memory.
    candidates: Vec<Candidate>,
}

impl Group {
    /// A group that has just begun: its members have all their slots at once.
    pub fn new(settings: GroupSettings, members: Vec<MemberSettings>) -> Group {
        let mut group = Group {
            settings,
            members: Vec::new(),
            typical_ns: 0.0,
            typical_at: Stamp::ZERO,
            hot: HotLoads::new(),
            candidates: Vec::new(),
        };
        for (position, member) in members.into_iter().enumerate() {
            group.admit(member, position, None);
        }
        group
    }

    /// Members by index, those that only finish what they have included.
    pub fn members(&self) -> impl Iterator<Item = (usize, &Member)> {
        let numbered = self.members.iter().enumerate();
        numbered.filter_map(|(index, member)| Some((index, member.as_ref()?)))
    }

    /// From now on the group has these members. Those of the same name keep their index and all that is known of
    /// them, and new ones begin slowly. What is gone gets nothing more, and its index is free once it has no request.
    pub fn set_members(
        &mut self,
        now: Stamp,
        members: Vec<MemberSettings>,
        counters: &impl SlotCounters,
    ) {
        for (index, place) in self.members.iter_mut().enumerate() {
            let Some(member) = place else { continue };
            member.drains = true;
            let is_named = members
                .iter()
                .any(|settings| settings.name == member.name());
            if !is_named && counters.in_flight(index) == 0 {
                *place = None;
            }
        }
        for (position, settings) in members.into_iter().enumerate() {
            let mut known = self.members.iter_mut().flatten();
            match known.find(|member| member.name() == settings.name) {
                Some(member) => {
                    (member.settings, member.position) = (settings, position);
                    member.drains = false;
                }
                None => self.admit(settings, position, Some(now)),
            }
        }
    }

    /// Takes in a member; a name that is there already is passed over.
    fn admit(&mut self, settings: MemberSettings, position: usize, started: Option<Stamp>) {
        let mut known = self.members.iter().flatten();
        if known.any(|member| member.name() == settings.name) {
            return;
        }
        let mut member = Member::new(settings, position, self.settings.slots_max);
        member.started = started;
        match self.members.iter_mut().find(|place| place.is_none()) {
            Some(place) => *place = Some(member),
            None => self.members.push(Some(member)),
        }
    }

    /// Takes a slot for a request where one is free.
    pub fn choose(
        &mut self,
        ask: &Ask<'_>,
        counters: &impl SlotCounters,
        rng: &mut fastrand::Rng,
    ) -> Choice {
        let census = self.census(ask.now);
        let mut answer = Choice::Nobody;
        for tier in census.tiers() {
            match self.choose_of(tier, &census, ask, counters, rng) {
                Choice::Taken(index) => return Choice::Taken(index),
                Choice::Wait => answer = Choice::Wait,
                Choice::Nobody => {}
            }
        }
        answer
    }

    fn choose_of(
        &mut self,
        tier: Tier,
        census: &Census,
        ask: &Ask<'_>,
        counters: &impl SlotCounters,
        rng: &mut fastrand::Rng,
    ) -> Choice {
        let bound = match self.settings.rule {
            Rule::Sticky => ask.sticky,
            _ => None,
        };
        let mut fast = FastOnes::default();
        let mut candidates = std::mem::take(&mut self.candidates);
        candidates.clear();
        let mut any = false;
        let mut any_bound = false;
        let hot_bound = self.hot_bound();
        for (index, member) in self.members() {
            if ask.excluded.contains(&index) || !tier.has(member, ask.now) {
                continue;
            }
            let candidate = self.candidate(index, member, census, ask.now, counters, hot_bound);
            if tier == Tier::Trials && candidate.in_flight > 0 {
                continue;
            }
            any = true;
            fast.note(&candidate);
            let is_bound = bound == Some(member.name());
            let has_slot = candidate.in_flight < candidate.limit;
            if is_bound {
                candidates.clear();
                any_bound = true;
            }
            if has_slot && (is_bound || !any_bound) {
                candidates.push(candidate);
            }
        }
        // Any of them: those that are chosen would tell what is chosen, and not what there is.
        if let (Rule::Prequal, Some(any)) = (self.settings.rule, rng.choice(&candidates)) {
            self.hot.observe(any.in_flight);
        }
        let taken = self.take_one(&mut candidates, &fast, ask, counters, rng);
        self.candidates = candidates;
        match taken {
            Some(index) => Choice::Taken(index),
            // A trial that is not possible is no reason to wait.
            None if any && tier != Tier::Trials => Choice::Wait,
            None => Choice::Nobody,
        }
    }

    /// Picks, takes, and picks again where another process was faster.
    fn take_one(
        &mut self,
        candidates: &mut Vec<Candidate>,
        fast: &FastOnes,
        ask: &Ask<'_>,
        counters: &impl SlotCounters,
        rng: &mut fastrand::Rng,
    ) -> Option<usize> {
        // A request without a key has one of its own.
        let key = ask.key_hash.unwrap_or_else(|| rng.u64(..));
        let rule = self.settings.rule;
        while !candidates.is_empty() {
            let place = pick(rule, candidates, key, rng);
            let picked = candidates[place];
            if matches!(rule, Rule::Queue | Rule::Sticky) && fast.is_worth_a_wait(&picked, ask) {
                return None;
            }
            if counters.try_take(picked.index, picked.limit) {
                if rule == Rule::RoundRobin {
                    self.turn(candidates, picked.index);
                }
                let member = self.members[picked.index].as_mut()?;
                member.taken(ask.now, picked.in_flight + 1, ask.waiting);
                return Some(picked.index);
            }
            candidates.swap_remove(place);
        }
        None
    }

    /// All that could have had the turn get credit for it, and the one that had it pays (smooth weighted round robin).
    fn turn(&mut self, candidates: &[Candidate], picked: usize) {
        let mut sum = 0;
        for candidate in candidates {
            if let Some(member) = &mut self.members[candidate.index] {
                member.credit += i64::from(candidate.weight);
                sum += i64::from(candidate.weight);
            }
        }
        if let Some(member) = &mut self.members[picked] {
            member.credit -= sum;
        }
    }

    fn candidate(
        &self,
        index: usize,
        member: &Member,
        census: &Census,
        now: Stamp,
        counters: &impl SlotCounters,
        hot_bound: u32,
    ) -> Candidate {
        let limit = member.limit(now, &self.settings, census.ramp());
        let in_flight = counters.in_flight(index);
        let slowness = member.slowness(now, self.typical_ns, in_flight);
        Candidate {
            index,
            position: member.position,
            in_flight,
            limit,
            capacity: member.capacity(limit),
            weight: member.weight(),
            mean_ns: member.latency.rank_ns(),
            loaded_ns: member.by_load.at(in_flight),
            peak_ns: member.latency.peak_ns(),
            failures: f64::from(1 + member.failures()),
            slowness,
            is_hot: in_flight > hot_bound,
            credit: member.credit,
            name_hash: member.name_hash,
        }
    }

    fn hot_bound(&self) -> u32 {
        match self.settings.rule {
            Rule::Prequal => self.hot.bound(),
            _ => u32::MAX,
        }
    }

    fn census(&self, now: Stamp) -> Census {
        let members = self.members().map(|(_, member)| member);
        Census::of(members, now, &self.settings)
    }

    /// An exchange with a server ended at `now`, while that one had `in_flight` requests with it: call this before the
    /// slot is given back.
    pub fn ended(&mut self, index: usize, now: Stamp, in_flight: u32, outcome: Outcome) {
        let lowering = self.lowering(index);
        let Some(member) = self.member_mut(index) else {
            return;
        };
        member.released(now);
        match outcome {
            Outcome::Served {
                status: 502..=504, ..
            }
            | Outcome::Failed(_) => {
                member.search.disturbed();
                self.failed(index, now);
            }
            Outcome::Served { latency, status } => {
                let began = Stamp(now.0.saturating_sub(latency.0));
                if member.health.succeeded(now, began) {
                    member.started = Some(now);
                }
                member.served(now, in_flight, latency, status, lowering);
                self.update_typical(now);
            }
            Outcome::Full { retry_after } => member.refused(now, in_flight, retry_after),
            Outcome::Abandoned => {}
        }
    }

    /// Fewer slots than a server can use are less that the group can do: one is tried at a time.
    fn lowering(&self, index: usize) -> Lowering {
        let mut others = self.members().filter(|(other, _)| *other != index);
        match others.any(|(_, member)| member.search.is_lowered()) {
            true => Lowering::NotNow,
            false => Lowering::Allowed,
        }
    }

    /// A server failed: it is ejected if that is the last of too many, and enough others are left.
    fn failed(&mut self, index: usize, now: Stamp) {
        let rules = self.health_rules();
        let others = self
            .members()
            .filter(|(other, member)| *other != index && !member.drains);
        let (mut len, mut out, mut good) = (1, 0, 0);
        for (_, member) in others {
            len += 1;
            out += usize::from(member.health.is_out(now));
            good += usize::from(member.health.is_good(now));
        }
        let may_eject = 2 * (out + 1) <= len && good > 0;
        let Some(member) = self.member_mut(index) else {
            return;
        };
        let is_due = member.health.failed(now, rules) && rules.eject_after > 0;
        match (is_due, may_eject) {
            (true, true) => member.health.eject(now, rules),
            (true, false) => member.health.suspect(now, rules),
            (false, _) => return,
        }
        member.started = member.health.returns_at();
    }

    /// A server told its load: its slots follow its threads.
    ///
    /// What it has from others is not counted. That was tried in simulation, as a bound and as a part of what servers are
    /// compared by: it is old when it arrives, and makes several proxies avoid and then meet each other.
    pub fn reported(&mut self, index: usize, load: LoadReport) {
        if let Some(member) = self.member_mut(index) {
            member.reported(load);
        }
    }

    /// An active check of a server ended.
    pub fn checked(&mut self, index: usize, now: Stamp, result: CheckResult) {
        let rules = self.health_rules();
        if let Some(member) = self.member_mut(index)
            && member.health.checked(now, result, rules)
        {
            member.started = Some(now);
        }
    }

    /// Whether requests go to a server at `now` as a rule.
    pub fn is_used(&self, index: usize, now: Stamp) -> bool {
        let tier = self.census(now).main_tier();
        let member = self.members.get(index).and_then(Option::as_ref);
        member.is_some_and(|member| tier.has(member, now))
    }

    /// Whether a request that was at these servers may have another one, at once or after a wait.
    pub fn has_other(&self, now: Stamp, excluded: &[usize]) -> bool {
        let census = self.census(now);
        // A trial may be possible at this moment alone.
        let mut tiers = census.tiers().filter(|tier| *tier != Tier::Trials);
        tiers.any(|tier| {
            let mut members = self.members();
            members.any(|(index, member)| tier.has(member, now) && !excluded.contains(&index))
        })
    }

    /// Slots of all servers in use that no request has.
    pub fn free_slots(&self, now: Stamp, counters: &impl SlotCounters) -> u32 {
        self.sum(now, |index, limit| {
            limit.saturating_sub(counters.in_flight(index))
        })
    }

    /// Gives each server that has not left the group, its slots at `now`, which are 0 where it is not in use, and
    /// whether it is ejected.
    pub fn each_slots(&self, now: Stamp, mut give: impl FnMut(usize, u32, bool)) {
        let census = self.census(now);
        let tier = census.main_tier();
        for (index, member) in self.members().filter(|(_, member)| !member.drains()) {
            let slots = match tier.has(member, now) {
                true => member.limit(now, &self.settings, census.ramp()),
                false => 0,
            };
            give(index, slots, member.health.is_out(now));
        }
    }

    /// Slots of all servers in use.
    pub fn total_slots(&self, now: Stamp) -> u32 {
        self.sum(now, |_, limit| limit)
    }

    /// The slots of one server at `now`; 0 where it is not in use.
    pub fn slots(&self, index: usize, now: Stamp) -> u32 {
        self.sum(now, |other, limit| if other == index { limit } else { 0 })
    }

    fn sum(&self, now: Stamp, slots: impl Fn(usize, u32) -> u32) -> u32 {
        let census = self.census(now);
        let tier = census.main_tier();
        let used = self.members().filter(|(_, member)| tier.has(member, now));
        used.fold(0, |sum, (index, member)| {
            let limit = member.limit(now, &self.settings, census.ramp());
            sum.saturating_add(slots(index, limit))
        })
    }

    /// The next moment after `now` at which a limit or an ejection changes by time alone; [`Stamp::NEVER`]: none does.
    pub fn next_change(&self, now: Stamp) -> Stamp {
        let changes = self
            .members()
            .map(|(_, member)| member.next_change(now, &self.settings));
        changes.min().unwrap_or(Stamp::NEVER)
    }

    fn member_mut(&mut self, index: usize) -> Option<&mut Member> {
        self.members.get_mut(index)?.as_mut()
    }

    fn health_rules(&self) -> HealthRules {
        HealthRules {
            eject_after: self.settings.eject_after,
            eject_time: self.settings.eject_time,
            check_rise: self.settings.check_rise,
            check_fall: self.settings.check_fall,
        }
    }

    /// Of two members with different latencies the faster one is typical: slow is compared with what is possible.
    fn update_typical(&mut self, now: Stamp) {
        if now.since(self.typical_at) < TYPICAL_EVERY && self.typical_ns > 0.0 {
            return;
        }
        self.typical_at = now;
        let used = self.members().filter(|(_, member)| !member.drains);
        let mut means: Vec<f64> = used
            .filter_map(|(_, member)| member.latency.mean_ns())
            .collect();
        if let Some(middle) = means.len().checked_sub(1).map(|last| last / 2) {
            self.typical_ns = *means.select_nth_unstable_by(middle, f64::total_cmp).1;
        }
    }
}
