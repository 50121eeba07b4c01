//! Whether the machine stood still, and what explains it.
//!
//! The supervisor has next to nothing to do: when it wakes much later than it wanted to, no process of the server ran
//! meanwhile either. What the kernel counts of quotas, of time given to others and of waits tells why. Must not touch the
//! supervisor's state.

use std::fs;
use std::path::Path;
use std::time::{Duration, Instant};

use os::host::{control_groups, named_number, some_pressure, stolen_ticks};

/// Waking up so late is worth a line.
const LATE: Duration = Duration::from_secs(1);
/// The kernel is asked again after so long, so that the difference is about the stall.
const SAMPLE_EVERY: Duration = Duration::from_secs(1);
/// A cause explains a stall when it lasted for this part of it.
const EXPLAINED_PART: f64 = 0.5;

/// Looks for stalls.
#[derive(Debug, Default)]
pub(super) struct StallWatch {
    before: Option<(Instant, HostSample)>,
}

/// What the kernel has counted until now. What it does not say is 0.
#[derive(Clone, Debug, Default, PartialEq)]
struct HostSample {
    /// Microseconds in which the quota of a control group was used up.
    throttled_us: u64,
    stolen_ticks: u64,
    all_ticks: u64,
    /// Microseconds in which somebody waited: for memory, for storage, for a processor.
    waited_us: [u64; 3],
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
        let sample = HostSample::read(Path::new("/"));
        let before = self.before.replace((now, sample.clone()));
        // What was counted long before says nothing of this stall.
        let recent = took + 2 * SAMPLE_EVERY;
        let is_recent = |at: &Instant| now.duration_since(*at) <= recent;
        let (_, before) = before.filter(|(at, _)| late >= LATE && is_recent(at))?;
        let secs = late.as_secs_f64();
        let cause = sample.since(&before).cause(late);
        Some(format!("the machine stood still for {secs:.1} s: {cause}"))
    }
}

impl HostSample {
    fn read(root: &Path) -> Self {
        let text = |path: &str| fs::read_to_string(root.join(path)).unwrap_or_default();
        let waited = |what: &str| {
            let total = some_pressure(&text(&format!("proc/pressure/{what}")), "total");
            total.map_or(0, |total| total as u64)
        };
        let groups = control_groups(root);
        let throttled = groups.iter().map(|group| {
            let stat = fs::read_to_string(group.join("cpu.stat")).unwrap_or_default();
            named_number(&stat, "throttled_usec").unwrap_or(0)
        });
        let (stolen_ticks, all_ticks) = stolen_ticks(&text("proc/stat")).unwrap_or_default();
        Self {
            throttled_us: throttled.max().unwrap_or(0),
            stolen_ticks,
            all_ticks,
            waited_us: ["memory", "io", "cpu"].map(waited),
        }
    }

    fn since(&self, before: &Self) -> Self {
        let mut waited_us = self.waited_us;
        for (now, then) in waited_us.iter_mut().zip(before.waited_us) {
            *now = now.saturating_sub(then);
        }
        Self {
            throttled_us: self.throttled_us.saturating_sub(before.throttled_us),
            stolen_ticks: self.stolen_ticks.saturating_sub(before.stolen_ticks),
            all_ticks: self.all_ticks.saturating_sub(before.all_ticks),
            waited_us,
        }
    }

    /// What explains a stall, of what was counted meanwhile: the narrowest cause first, because whoever is throttled or
    /// waits for memory waits for a processor too.
    fn cause(&self, stall: Duration) -> String {
        let least = stall.mul_f64(EXPLAINED_PART);
        let lasted = |us: u64| Some(Duration::from_micros(us)).filter(|lasted| *lasted >= least);
        let secs = |lasted: Duration| format!("{:.1} s", lasted.as_secs_f64());
        let [memory, storage, processor] = self.waited_us.map(lasted);
        if let Some(lasted) = lasted(self.throttled_us) {
            return format!(
                "the processor quota of its control group was used up for {}; give it more processors (cpu.max)",
                secs(lasted)
            );
        }
        let stolen = self.stolen_ticks as f64 / self.all_ticks.max(1) as f64;
        if stolen >= EXPLAINED_PART {
            return format!(
                "the hypervisor gave {:.0} % of the processor time to others",
                stolen * 100.0
            );
        }
        if let Some(lasted) = memory {
            return format!("programs waited {} for memory", secs(lasted));
        }
        if let Some(lasted) = storage {
            return format!("programs waited {} for storage", secs(lasted));
        }
        if let Some(lasted) = processor {
            return format!("programs waited {} for a processor", secs(lasted));
        }
        "the kernel counted no cause; the supervisor may have been stopped (SIGSTOP)".to_owned()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_narrowest_cause_explains_a_stall() {
        let check = |sample: HostSample, expect: &str| {
            let cause = sample.cause(Duration::from_secs(2));
            assert!(cause.contains(expect), "{cause}");
        };
        let waited = |memory, storage, processor| HostSample {
            waited_us: [memory, storage, processor],
            ..HostSample::default()
        };
        check(HostSample::default(), "no cause");
        check(waited(999_999, 999_999, 999_999), "no cause");
        check(waited(0, 0, 1_500_000), "1.5 s for a processor");
        check(waited(0, 1_000_000, 1_500_000), "1.0 s for storage");
        check(waited(1_200_000, 2_000_000, 2_000_000), "1.2 s for memory");
        let stolen = |stolen_ticks| HostSample {
            stolen_ticks,
            all_ticks: 400,
            waited_us: [0, 0, 2_000_000],
            ..HostSample::default()
        };
        check(stolen(300), "gave 75 %");
        check(stolen(100), "for a processor");
        let throttled = HostSample {
            throttled_us: 1_800_000,
            ..stolen(300)
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
        let said = watch.woke(secs(1), ms(2_500), begin + secs(3));
        // After an hour without a look, what the kernel has counted is about that hour.
        assert_eq!(watch.woke(secs(1), ms(2_500), begin + secs(3_600)), None);
        let said = said.expect("a sentence");
        assert!(
            said.starts_with("the machine stood still for 1.5 s: "),
            "{said}"
        );
    }

    #[test]
    fn a_sample_is_read_and_grows() {
        let root = tempfile::tempdir().unwrap();
        let write = |name: &str, text: &str| {
            let path = root.path().join(name);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        };
        assert_eq!(HostSample::read(root.path()), HostSample::default());
        write("proc/self/cgroup", "0::/a\n");
        write(
            "sys/fs/cgroup/a/cpu.stat",
            "nr_periods 1\nthrottled_usec 5\n",
        );
        write("sys/fs/cgroup/cpu.stat", "throttled_usec 3\n");
        write("proc/stat", "cpu  1 1 1 1 1 1 1 9\n");
        write("proc/pressure/io", "some avg10=0.00 total=40\n");
        let before = HostSample::read(root.path());
        assert_eq!(
            before,
            HostSample {
                throttled_us: 5,
                stolen_ticks: 9,
                all_ticks: 16,
                waited_us: [0, 40, 0],
            }
        );
        write("proc/pressure/io", "some avg10=0.00 total=90\n");
        assert_eq!(
            HostSample::read(root.path()).since(&before).waited_us,
            [0, 50, 0]
        );
    }
}
