//! Which members of a group have their turn: the good ones, those behind them, or all.
//!
//! Takes members and the present, gives tiers in order. It must not know slots or requests.

use telemetry::Stamp;

use super::member::Ramp;
use super::{GroupSettings, Member};

/// Whose turn it is, the first that has any: a member that is not good is tried behind those that are.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Tier {
    /// Those that are good and no backups.
    Primaries,
    /// While there are none of these.
    Backups,
    /// While fewer than half are good and those have no free slot: what health says may be wrong, and one request a
    /// second finds out.
    Trials,
    /// While none at all is good: health says nothing then.
    Anyone,
}

/// How many members are in which state.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(super) struct Census {
    primaries: usize,
    good_primaries: usize,
    good_backups: usize,
    /// Good ones that have run for a while.
    warm: usize,
}

impl Census {
    /// Of these members at `now`.
    pub(super) fn of<'a>(
        members: impl Iterator<Item = &'a Member>,
        now: Stamp,
        rules: &GroupSettings,
    ) -> Census {
        let mut census = Census::default();
        for member in members.filter(|member| !member.drains) {
            let is_good = member.health.is_good(now);
            let is_backup = member.settings.backup;
            census.primaries += usize::from(!is_backup);
            census.good_primaries += usize::from(is_good && !is_backup);
            census.good_backups += usize::from(is_good && is_backup);
            let is_warm = is_good && !member.is_starting(now, rules);
            census.warm += usize::from(is_warm && !is_backup);
        }
        census
    }

    pub(super) fn ramp(&self) -> Ramp {
        match self.warm {
            0 => Ramp::Ignored,
            _ => Ramp::Applies,
        }
    }

    /// The tiers to look through, in order.
    pub(super) fn tiers(&self) -> impl Iterator<Item = Tier> {
        let when = |is_so: bool, tier| is_so.then_some(tier);
        let no_primary = self.good_primaries == 0;
        [
            Some(Tier::Primaries),
            when(no_primary, Tier::Backups),
            when(2 * self.good_primaries < self.primaries, Tier::Trials),
            when(no_primary && self.good_backups == 0, Tier::Anyone),
        ]
        .into_iter()
        .flatten()
    }

    /// The tier that requests go to as a rule.
    pub(super) fn main_tier(&self) -> Tier {
        match (self.good_primaries, self.good_backups) {
            (0, 0) => Tier::Anyone,
            (0, _) => Tier::Backups,
            _ => Tier::Primaries,
        }
    }
}

impl Tier {
    /// Whether a member is of it at `now`.
    pub(super) fn has(self, member: &Member, now: Stamp) -> bool {
        let is_good = member.health.is_good(now);
        !member.drains
            && match self {
                Tier::Primaries => is_good && !member.settings.backup,
                Tier::Backups => is_good && member.settings.backup,
                Tier::Trials => {
                    !is_good && !member.settings.backup && now >= member.health.trial_at()
                }
                Tier::Anyone => true,
            }
    }
}
