//! When a certificate is renewed: a random moment of the window that its authority suggests, otherwise after two
//! thirds of its life. Pure: `now` and the chance are arguments.
//!
//! ```text
//!  not_before                       2/3            19/20  not_after
//!  ├──────────────────────────────────┼───────────────┼──────┤
//!             waits                   │  without ARI  │ due whatever ARI says
//! ```

use std::time::{Duration, SystemTime};

use os::invariant;

/// Of a life, the part after which a certificate without a suggested window is renewed, as numerator and denominator.
const USUAL: (u32, u32) = (2, 3);
/// Of a life, the part after which it is renewed although the suggested window is later: an authority whose window
/// is wrong must not let the certificate end.
const LATEST: (u32, u32) = (19, 20);

/// From when until when a certificate holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Validity {
    pub(crate) not_before: SystemTime,
    pub(crate) not_after: SystemTime,
}

/// When its authority wants it to be renewed (RFC 9773 section 4.2).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct RenewalWindow {
    pub(crate) start: SystemTime,
    pub(crate) end: SystemTime,
}

impl Validity {
    /// The moment of renewal; `chance`, from 0 to 1, chooses it within the window.
    pub(crate) fn renewal(&self, window: Option<RenewalWindow>, chance: f64) -> SystemTime {
        invariant!((0.0..=1.0).contains(&chance), "a chance of {chance}");
        let latest = self.after(LATEST);
        match window {
            Some(window) => window.moment(chance).min(latest),
            None => self.after(USUAL),
        }
    }

    /// Whether it can be served.
    pub(crate) fn holds(&self, now: SystemTime) -> bool {
        self.not_before <= now && now < self.not_after
    }

    fn after(&self, (part, parts): (u32, u32)) -> SystemTime {
        // A certificate from outside may end before it begins: then it is due at once.
        let life = self
            .not_after
            .duration_since(self.not_before)
            .unwrap_or(Duration::ZERO);
        let span = life / parts * part;
        self.not_before + span
    }
}

impl RenewalWindow {
    /// RFC 9773 section 4.2: a uniformly random moment, so that certificates of one mass revocation do not all come
    /// at once.
    fn moment(&self, chance: f64) -> SystemTime {
        let span = self
            .end
            .duration_since(self.start)
            .unwrap_or(Duration::ZERO);
        self.start + span.mul_f64(chance)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const DAY: u64 = 86_400;

    fn at(days: u64) -> SystemTime {
        SystemTime::UNIX_EPOCH + Duration::from_secs(days * DAY)
    }

    const LIFE: Validity = Validity {
        not_before: SystemTime::UNIX_EPOCH,
        not_after: SystemTime::UNIX_EPOCH,
    };

    fn days_90() -> Validity {
        Validity {
            not_after: at(90),
            ..LIFE
        }
    }

    fn window(start: u64, end: u64) -> Option<RenewalWindow> {
        Some(RenewalWindow {
            start: at(start),
            end: at(end),
        })
    }

    #[test]
    fn renews_after_two_thirds_where_nothing_is_suggested() {
        assert_eq!(days_90().renewal(None, 0.5), at(60));
        let short = Validity {
            not_after: at(6),
            ..LIFE
        };
        assert_eq!(short.renewal(None, 0.0), at(4));
    }

    #[test]
    fn chooses_a_moment_of_the_suggested_window() {
        assert_eq!(days_90().renewal(window(50, 60), 0.0), at(50));
        assert_eq!(days_90().renewal(window(50, 60), 0.5), at(55));
        assert_eq!(days_90().renewal(window(50, 60), 1.0), at(60));
    }

    #[test]
    fn the_last_twentieth_overrides_the_window() {
        let latest = SystemTime::UNIX_EPOCH + Duration::from_secs(90 * DAY / 20 * 19);
        assert_eq!(days_90().renewal(window(88, 89), 0.0), latest);
        assert_eq!(days_90().renewal(window(1000, 2000), 1.0), latest);
    }

    #[test]
    fn a_window_in_the_past_is_due_at_once() {
        assert!(days_90().renewal(window(1, 2), 1.0) < at(3));
    }

    #[test]
    fn dates_that_contradict_each_other_are_due_at_once() {
        let reversed = Validity {
            not_before: at(9),
            not_after: at(1),
        };
        assert_eq!(reversed.renewal(None, 0.3), at(9));
        assert!(!reversed.holds(at(5)));
        assert_eq!(days_90().renewal(window(60, 50), 0.7), at(60));
    }
}
