//! Whether the machine stood still, and what explains it.
//!
//! The supervisor has next to nothing to do: when it wakes much later than it wanted to, no process of the server ran
//! meanwhile either. What the kernel counts of quotas, of time given to others and of waits tells why; `host_counters` reads
//! it. Must not touch the supervisor's state.

use std::path::Path;
use std::time::{Duration, Instant};

use super::control::status::{HostStatus, StallStatus};
use super::host_counters;

/// Waking up so late is worth a line.
const LATE: Duration = Duration::from_secs(1);
/// The kernel is asked again after so long, so that the difference is about the stall.
const SAMPLE_EVERY: Duration = Duration::from_secs(1);
/// A cause explains a stall when it lasted for this part of it.
const EXPLAINED_PART: f64 = 0.5;

/// Looks for stalls.
#[derive(Debug, Default)]
pub(super) struct StallWatch {
    before: Option<(Instant, HostStatus)>,
    latest: Option<(Instant, String)>,
}

impl StallWatch {
    /// After a wait that was to last for `meant` and took `took`: the sentence about a stall, if it was one.
    pub(super) fn woke(&mut self, meant: Duration, took: Duration, now: Instant) -> Option<String> {
        let late = took.saturating_sub(meant);
        let is_due = self
            .before
            .as_ref()
            .is_none_or(|(at, _)| now.duration_since(*at) >= SAMPLE_EVERY);
        if late < LATE && !is_due {
            return None;
        }
        let host = host_counters::waits(Path::new("/"));
        let before = self.before.replace((now, host));
        let (_, host) = self.before.as_ref()?;
        // What was counted long before says nothing of this stall.
        let recent = took + 2 * SAMPLE_EVERY;
        let is_recent = |at: &Instant| now.duration_since(*at) <= recent;
        let (_, before) = before.filter(|(at, _)| late >= LATE && is_recent(at))?;
        let secs = late.as_secs_f64();
        let text = format!(
            "the machine stood still for {secs:.1} s: {}",
            cause(&before, host, late)
        );
        self.latest = Some((now, text.clone()));
        Some(text)
    }

    /// The latest stall.
    pub(super) fn latest(&self, now: Instant) -> Option<StallStatus> {
        let (at, text) = self.latest.as_ref()?;
        Some(StallStatus {
            text: text.clone(),
            age_s: now.saturating_duration_since(*at).as_secs(),
        })
    }
}

/// What explains a stall, of what was counted between two readings: the narrowest cause first, because whoever is
/// throttled or waits for memory waits for a processor too.
fn cause(before: &HostStatus, now: &HostStatus, stall: Duration) -> String {
    let least = stall.mul_f64(EXPLAINED_PART);
    let lasted = |us: u64| Some(Duration::from_micros(us)).filter(|lasted| *lasted >= least);
    let secs = |lasted: Duration| format!("{:.1} s", lasted.as_secs_f64());
    let waited = |resource: &str| lasted(now.waited_us(before, resource));
    if let Some(lasted) = lasted(now.throttled_us(before)) {
        return format!(
            "the processor quota of its control group was used up for {}; give it more processors (cpu.max)",
            secs(lasted)
        );
    }
    let stolen = now.stolen_share(before).unwrap_or(0.0);
    if stolen >= EXPLAINED_PART {
        return format!(
            "the hypervisor gave {:.0} % of the processor time to others",
            stolen * 100.0
        );
    }
    if let Some(lasted) = waited("memory") {
        return format!("programs waited {} for memory", secs(lasted));
    }
    if let Some(lasted) = waited("io") {
        return format!("programs waited {} for storage", secs(lasted));
    }
    if let Some(lasted) = waited("cpu") {
        return format!("programs waited {} for a processor", secs(lasted));
    }
    "the kernel counted no cause; the supervisor may have been stopped (SIGSTOP)".to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::control::status::{GroupThrottling, PressureStatus};

    #[test]
    fn the_narrowest_cause_explains_a_stall() {
        let waited = |memory: u64, storage: u64, processor: u64| {
            let waits = [("memory", memory), ("io", storage), ("cpu", processor)];
            let pressure = waits.map(|(resource, us)| PressureStatus {
                resource: resource.to_owned(),
                // Some waits were there before.
                some_us: 70 + us,
                ..PressureStatus::default()
            });
            HostStatus {
                pressure: pressure.to_vec(),
                stolen_ms: Some(50),
                processors_ms: Some(1_000),
                throttling: Some(GroupThrottling {
                    throttled_us: 30,
                    ..GroupThrottling::default()
                }),
                ..HostStatus::default()
            }
        };
        let before = waited(0, 0, 0);
        let check = |now: HostStatus, expect: &str| {
            let cause = cause(&before, &now, Duration::from_secs(2));
            assert!(cause.contains(expect), "{cause}");
        };
        check(HostStatus::default(), "no cause");
        check(waited(0, 0, 0), "no cause");
        check(waited(999_999, 999_999, 999_999), "no cause");
        check(waited(0, 0, 1_500_000), "1.5 s for a processor");
        check(waited(0, 1_000_000, 1_500_000), "1.0 s for storage");
        check(waited(1_200_000, 2_000_000, 2_000_000), "1.2 s for memory");
        let stolen = |stolen_ms: u64| HostStatus {
            stolen_ms: Some(50 + stolen_ms),
            processors_ms: Some(5_000),
            ..waited(0, 0, 2_000_000)
        };
        check(stolen(3_000), "gave 75 %");
        check(stolen(1_000), "for a processor");
        let throttled = HostStatus {
            throttling: Some(GroupThrottling {
                throttled_us: 1_800_030,
                ..GroupThrottling::default()
            }),
            ..stolen(3_000)
        };
        check(throttled, "used up for 1.8 s");
    }

    #[test]
    fn only_a_late_wake_up_is_a_stall() {
        let mut watch = StallWatch::default();
        let begin = Instant::now();
        let secs = Duration::from_secs;
        // Nothing is known yet that could explain it.
        assert_eq!(watch.woke(secs(1), secs(9), begin), None);
        let ms = Duration::from_millis;
        assert_eq!(watch.woke(secs(1), ms(1_999), begin + secs(1)), None);
        assert_eq!(watch.woke(secs(3), secs(1), begin + secs(2)), None);
        assert_eq!(watch.latest(begin + secs(2)), None);
        let said = watch.woke(secs(1), ms(2_500), begin + secs(3));
        // After an hour without a look, what the kernel has counted is about that hour.
        assert_eq!(watch.woke(secs(1), ms(2_500), begin + secs(3_600)), None);
        let said = said.expect("a sentence");
        assert!(
            said.starts_with("the machine stood still for 1.5 s: "),
            "{said}"
        );
        let latest = watch.latest(begin + secs(10)).expect("a stall");
        assert_eq!((latest.text, latest.age_s), (said, 7));
    }
}
