//! Whether the simulation repeats what was measured.
//!
//! Takes the present and the waits of its log, gives the error of their percentiles. A simulation that does not
//! repeat the present must not predict anything else.

use serde::Serialize;
use telemetry::Nanos;

use super::{Answer, Basis, Times, Variant, answer};

/// The simulation of the present beside what was measured.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct Calibration {
    /// Waits in the log.
    pub measured: Times,
    /// Simulated ones.
    pub simulated: Answer,
    /// The error of p50, p95 and p99.
    pub errors: Vec<QuantileError>,
    /// Whether all of them are small enough.
    pub holds: bool,
}

/// How wrong a simulated percentile is.
#[derive(Clone, Copy, PartialEq, Debug, Serialize)]
pub struct QuantileError {
    /// 50, 95 or 99.
    pub percentile: u8,
    /// What was measured.
    pub measured_ms: f64,
    /// What came out.
    pub simulated_ms: f64,
    /// Whether it is small enough.
    pub holds: bool,
}

impl QuantileError {
    /// The difference, milliseconds; positive: the simulation waits longer.
    pub fn off_ms(&self) -> f64 {
        self.simulated_ms - self.measured_ms
    }

    /// The difference as a share of what was measured; `None` where that is nothing.
    pub fn off_share(&self) -> Option<f64> {
        (self.measured_ms > 0.0).then(|| self.off_ms() / self.measured_ms)
    }
}

/// The largest error that is taken: a share, or a time where that is more.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct ErrorMax {
    /// Of what was measured.
    pub share: f64,
    /// In any case.
    pub span: Nanos,
}

impl Default for ErrorMax {
    fn default() -> ErrorMax {
        ErrorMax {
            share: 0.2,
            span: Nanos::from_ms(2),
        }
    }
}

/// Simulates the present.
pub fn calibrate(
    basis: &Basis,
    present: &Variant,
    measured: Times,
    error_max: ErrorMax,
) -> Calibration {
    let simulated = answer(basis, &basis.requests, present);
    let found = simulated.queue;
    let errors: Vec<QuantileError> = [
        (50, measured.p50_ms, found.p50_ms),
        (95, measured.p95_ms, found.p95_ms),
        (99, measured.p99_ms, found.p99_ms),
    ]
    .into_iter()
    .map(|(percentile, measured_ms, simulated_ms)| {
        // A share alone would call a wait of 40 µs in place of 30 an error, where both are nothing.
        let most_ms = (error_max.share * measured_ms).max(error_max.span.as_secs_f64() * 1e3);
        QuantileError {
            percentile,
            measured_ms,
            simulated_ms,
            holds: (simulated_ms - measured_ms).abs() <= most_ms,
        }
    })
    .collect();
    Calibration {
        measured,
        holds: errors.iter().all(|error| error.holds),
        simulated,
        errors,
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::{basis, fixed, recording};
    use super::*;

    #[test]
    fn repeats_the_present_and_nothing_else() {
        let measured = Times::of(recording().queue());
        let check = |threads| calibrate(&basis(), &fixed(threads), measured, ErrorMax::default());
        let found = check(2);
        assert!(found.holds, "{found:?}");
        for error in &found.errors {
            assert!(error.off_share().unwrap().abs() < 0.01, "{error:?}");
        }
        assert!(!check(1).holds && !check(3).holds);
    }

    #[test]
    fn small_waits_may_be_off_by_more_than_their_share() {
        let mut measured = Times::of(recording().queue());
        let span = ErrorMax {
            share: 0.0,
            span: Nanos::from_ms(2),
        };
        assert!(calibrate(&basis(), &fixed(2), measured, span).holds);
        measured.p95_ms += 3.0;
        assert!(!calibrate(&basis(), &fixed(2), measured, span).holds);
    }
}
