//! What the kernel counts of the machine and of this server's control group, as plain values: the supervisor reads it, the
//! status shows it, the page and `milepost top` compare two readings.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

/// What the kernel counts of the machine and of the server's control group. What it does not say is absent.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct HostStatus {
    /// How long programs of the machine waited: for `cpu`, `memory` and `io`.
    pub pressure: Vec<PressureStatus>,
    /// Processor time that the hypervisor gave to other machines, milliseconds.
    pub stolen_ms: Option<u64>,
    /// Time of all processors together, whatever they did in it, milliseconds.
    pub processors_ms: Option<u64>,
    /// Connections that found a full accept queue, of the network namespace.
    pub listen_overflows: Option<u64>,
    /// Connections that were dropped before they were accepted, of the same.
    pub listen_drops: Option<u64>,
    /// The processor quota of the control group.
    pub throttling: Option<GroupThrottling>,
    /// The memory of the control group.
    pub memory: Option<GroupMemory>,
    /// When the machine stood still last, as far as this supervisor has seen it.
    pub last_stall: Option<StallStatus>,
}

/// How long programs have waited for something (PSI).
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct PressureStatus {
    /// `cpu`, `memory` or `io`.
    pub resource: String,
    /// Time in which some programs waited, since the machine started.
    pub some_us: u64,
    /// Time in which all programs waited that could have run.
    pub full_us: Option<u64>,
    /// The part of the last minute in which some waited, percent.
    pub some_percent: f64,
}

/// The processor quota of a control group.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct GroupThrottling {
    /// Periods in which it wanted to run.
    pub periods: u64,
    /// Of these, periods in which the quota was used up.
    pub throttled_periods: u64,
    /// How long it had to wait in these.
    pub throttled_us: u64,
}

/// The memory of a control group.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct GroupMemory {
    /// What it has.
    pub bytes: u64,
    /// The most that it may have; none without a limit.
    pub bytes_max: Option<u64>,
    /// `high`, `max`, `oom` and `oom_kill`, how often.
    pub events: BTreeMap<String, u64>,
}

/// The machine stood still: nothing of the server could run.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct StallStatus {
    /// For how long and why, in a sentence without a full stop.
    pub text: String,
    /// Seconds since then.
    pub age_s: u64,
}

impl HostStatus {
    /// Of the processor time since `earlier`, the part that the hypervisor gave to other machines, 0 to 1; `None`
    /// where the kernel does not say or none has passed.
    pub fn stolen_share(&self, earlier: &HostStatus) -> Option<f64> {
        let grown = |now: Option<u64>, before: Option<u64>| Some(now?.saturating_sub(before?));
        let stolen = grown(self.stolen_ms, earlier.stolen_ms)?;
        let all = grown(self.processors_ms, earlier.processors_ms)?;
        (all > 0).then(|| stolen as f64 / all as f64)
    }

    /// How long the control group had to wait for its quota since `earlier`, in microseconds; 0 where it has none.
    pub fn throttled_us(&self, earlier: &HostStatus) -> u64 {
        let us = |host: &HostStatus| host.throttling.as_ref().map_or(0, |one| one.throttled_us);
        us(self).saturating_sub(us(earlier))
    }

    /// How long some programs have waited for this resource since `earlier`, in microseconds.
    pub fn waited_us(&self, earlier: &HostStatus, resource: &str) -> u64 {
        let us = |host: &HostStatus| {
            let mut all = host.pressure.iter();
            all.find(|one| one.resource == resource)
                .map_or(0, |one| one.some_us)
        };
        us(self).saturating_sub(us(earlier))
    }

    /// Connections that were dropped before they were accepted since `earlier`; 0 where the kernel does not say.
    pub fn dropped_connections(&self, earlier: &HostStatus) -> u64 {
        let dropped = self.listen_drops.zip(earlier.listen_drops);
        dropped.map_or(0, |(now, before)| now.saturating_sub(before))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn growth_is_of_what_both_have_counted() {
        let at = |stolen_ms, processors_ms, drops| HostStatus {
            stolen_ms,
            processors_ms,
            listen_drops: drops,
            ..HostStatus::default()
        };
        let (before, now) = (
            at(Some(10), Some(1_000), Some(7)),
            at(Some(60), Some(1_200), Some(9)),
        );
        assert_eq!(now.stolen_share(&before), Some(0.25));
        assert_eq!(now.dropped_connections(&before), 2);
        assert_eq!(now.stolen_share(&now), None, "no time has passed");
        assert_eq!(now.stolen_share(&at(None, Some(1), None)), None);
        // Counters of a machine that was started anew are smaller.
        assert_eq!(before.dropped_connections(&now), 0);
        assert_eq!(now.throttled_us(&before), 0);
        assert_eq!(now.waited_us(&before, "cpu"), 0);
    }
}
