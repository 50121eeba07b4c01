//! A number that changes over the time of a run: steps and ramps.
//!
//! Takes legs, gives the number at a time and the time by which so many things have happened at that rate.

use telemetry::Nanos;

/// A piece of a profile: from one number straight to another one.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Leg {
    /// At its beginning.
    pub from: f64,
    /// At its end.
    pub to: f64,
    /// How long it takes; more than nothing.
    pub lasts: Nanos,
}

/// A number over time. After its last leg the number stays what it was at the end.
#[derive(Clone, PartialEq, Debug)]
pub struct Profile {
    legs: Vec<Leg>,
    rest: f64,
}

impl Profile {
    /// The same number all the time.
    pub fn constant(number: f64) -> Profile {
        Profile {
            legs: Vec::new(),
            rest: number,
        }
    }

    /// One leg after another; at least one.
    pub fn of(legs: Vec<Leg>) -> Profile {
        assert!(
            legs.iter().all(|leg| leg.lasts > Nanos::ZERO),
            "no leg is without a length: its slope would be none"
        );
        let rest = legs.last().map_or(0.0, |leg| leg.to);
        Profile { legs, rest }
    }

    /// The legs.
    pub fn legs(&self) -> &[Leg] {
        &self.legs
    }

    /// The number after `passed`.
    pub fn at(&self, passed: Nanos) -> f64 {
        let mut left = passed.0;
        for leg in &self.legs {
            if left < leg.lasts.0 {
                return leg.from + (leg.to - leg.from) * (left as f64 / leg.lasts.0 as f64);
            }
            left -= leg.lasts.0;
        }
        self.rest
    }

    /// The greatest number of all.
    pub fn most(&self) -> f64 {
        // A straight leg is greatest at one of its ends.
        let ends = self.legs.iter().flat_map(|leg| [leg.from, leg.to]);
        ends.fold(self.rest, f64::max)
    }

    /// How long all legs take.
    pub fn lasts(&self) -> Nanos {
        Nanos(self.legs.iter().map(|leg| leg.lasts.0).sum())
    }

    /// When `count` things have happened, if the number is their rate a second; `None`: never.
    pub fn reached(&self, count: f64) -> Option<Nanos> {
        let mut left = count;
        let mut passed = 0.0;
        for leg in &self.legs {
            let seconds = leg.lasts.as_secs_f64();
            let here = (leg.from + leg.to) / 2.0 * seconds;
            // A leg in which nothing happens is passed over, whatever is left.
            if left <= here && here > 0.0 {
                return Some(nanos(passed + within(leg, seconds, left)));
            }
            left -= here;
            passed += seconds;
        }
        // Behind the legs the number stays, and at 0 nothing happens any more.
        (self.rest > 0.0).then(|| nanos(passed + left / self.rest))
    }
}

/// After how many seconds of a leg `count` things have happened.
fn within(leg: &Leg, seconds: f64, count: f64) -> f64 {
    let slope = (leg.to - leg.from) / seconds;
    // The root of from·t + slope·t²/2 = count, in the form that loses no digits when the slope is small or the
    // discriminant near zero.
    let root = (leg.from * leg.from + 2.0 * slope * count).max(0.0).sqrt();
    let divisor = leg.from + root;
    if divisor > 0.0 {
        (2.0 * count / divisor).min(seconds)
    } else {
        0.0
    }
}

fn nanos(seconds: f64) -> Nanos {
    Nanos((seconds * 1e9).round() as u64)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn leg(from: f64, to: f64, seconds: u64) -> Leg {
        Leg {
            from,
            to,
            lasts: Nanos::from_secs(seconds),
        }
    }

    #[test]
    fn gives_the_number_at_each_time() {
        let profile = Profile::of(vec![leg(100.0, 200.0, 10), leg(50.0, 50.0, 5)]);
        for (seconds, expect) in [(0, 100.0), (5, 150.0), (10, 50.0), (14, 50.0), (99, 50.0)] {
            assert!(
                (profile.at(Nanos::from_secs(seconds)) - expect).abs() < 1e-9,
                "{seconds}"
            );
        }
        assert!((profile.most() - 200.0).abs() < 1e-9);
    }

    #[test]
    fn counts_what_happens_along_a_ramp() {
        let profile = Profile::of(vec![leg(0.0, 100.0, 10), leg(100.0, 0.0, 10)]);
        for (count, expect) in [(0.0, 0.0), (500.0, 10.0), (125.0, 5.0), (1000.0, 20.0)] {
            let reached = profile
                .reached(count)
                .expect("within the legs")
                .as_secs_f64();
            assert!((reached - expect).abs() < 1e-6, "{count}: {reached}");
        }
        assert_eq!(profile.reached(1000.1), None);
        assert_eq!(
            Profile::constant(2000.0).reached(4000.0),
            Some(Nanos::from_secs(2))
        );
    }
}
