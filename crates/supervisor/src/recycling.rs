//! When a process is replaced in good health: its bounds, each moved up by a share of its own, so that
//! processes that were started together do not end together. Pure.

use std::time::Duration;

use os::invariant;

use config::typed::Recycling;

/// The bounds of one process.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct Bounds {
    requests: Option<u64>,
    age: Option<Duration>,
    resident_bytes: Option<u64>,
}

/// What is known of one process.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Wear {
    pub(super) requests: u64,
    pub(super) age: Duration,
    pub(super) resident_bytes: u64,
}

impl Bounds {
    /// `chance` is from 0 to 1 and moves all bounds alike.
    pub(super) fn new(meant: &Recycling, chance: f64) -> Self {
        let share = 1.0 + meant.jitter * chance.clamp(0.0, 1.0);
        invariant!(share >= 1.0, "a bound is moved down, by {share}");
        let moved = |bound: u64| (bound as f64 * share) as u64;
        Self {
            requests: meant.requests_max.map(moved),
            age: meant.age_max.map(|age| Duration::from_nanos(moved(age.0))),
            resident_bytes: meant.resident_bytes_max.map(moved),
        }
    }

    /// Whether there are any.
    pub(super) fn is_any(&self) -> bool {
        self.requests.is_some() || self.age.is_some() || self.resident_bytes.is_some()
    }

    /// Why the process is to be replaced, if it is.
    pub(super) fn passed(&self, wear: &Wear) -> Option<String> {
        if self.requests.is_some_and(|bound| wear.requests >= bound) {
            return Some(format!("after {} requests", wear.requests));
        }
        if self
            .resident_bytes
            .is_some_and(|bound| wear.resident_bytes >= bound)
        {
            let mib = wear.resident_bytes >> 20;
            return Some(format!("at {mib} MiB of resident memory"));
        }
        let age = self.age.filter(|bound| wear.age >= *bound)?;
        Some(format!("after {:.1} s", age.as_secs_f64()))
    }
}

#[cfg(test)]
mod tests {
    use telemetry::Nanos;

    use super::*;

    fn meant() -> Recycling {
        Recycling {
            requests_max: Some(1000),
            age_max: Some(Nanos::from_secs(100)),
            resident_bytes_max: Some(1 << 30),
            jitter: 0.1,
        }
    }

    #[test]
    fn moves_bounds_up_by_at_most_the_jitter() {
        let least = Bounds::new(&meant(), 0.0);
        let most = Bounds::new(&meant(), 1.0);
        assert_eq!((least.requests, most.requests), (Some(1000), Some(1100)));
        assert_eq!(most.age, Some(Duration::from_secs(110)));
    }

    #[test]
    fn says_which_bound_was_passed() {
        let check = |meant: &Recycling, requests, resident_bytes, secs, expect: Option<&str>| {
            let age = Duration::from_secs(secs);
            let wear = Wear {
                requests,
                age,
                resident_bytes,
            };
            let passed = Bounds::new(meant, 0.0).passed(&wear);
            assert_eq!(passed.as_deref(), expect, "{wear:?}");
        };
        check(&meant(), 0, 0, 0, None);
        check(&meant(), 1000, 0, 0, Some("after 1000 requests"));
        check(
            &meant(),
            0,
            3 << 29,
            0,
            Some("at 1536 MiB of resident memory"),
        );
        check(&meant(), 0, 0, 100, Some("after 100.0 s"));
        check(&Recycling::default(), u64::MAX, u64::MAX, u64::MAX, None);
    }
}
