//! What the log says of requests that run for longer than `slow_request`: once for each, with where it waits.
//!
//! A callback of the loop, which looks again after a while, for as long as the loop runs. The loop is in no step then: all
//! tasks wait.

use std::sync::Arc;
use std::time::Duration;

use config::typed::Level;
use pyo3::intern;
use pyo3::prelude::*;
use server::pool::ErrorOutput;
use telemetry::Nanos;

use super::request_tasks::RequestTasks;

/// How often the loop looks for slow requests, at most and at least.
const DELAY_MIN: Duration = Duration::from_millis(20);
const DELAY_MAX: Duration = Duration::from_secs(1);

/// Looks for slow requests.
#[pyclass(module = "milepost._milepost", name = "SlowLook", frozen)]
pub(super) struct SlowLook {
    tasks: Arc<RequestTasks>,
    /// Of the loop.
    call_later: Py<PyAny>,
    output: ErrorOutput,
    /// A request that has run for longer is slow.
    limit: Nanos,
}

impl SlowLook {
    pub(super) fn new(
        tasks: Arc<RequestTasks>,
        call_later: Py<PyAny>,
        output: ErrorOutput,
        limit: Nanos,
    ) -> Self {
        Self {
            tasks,
            call_later,
            output,
            limit,
        }
    }

    /// Logs the requests that have become slow since the last look.
    fn log_slow(&self, py: Python<'_>) {
        let now = telemetry::now();
        for (task, (name, facts)) in self.tasks.select(py, |task| task.slow(now, self.limit)) {
            let place = match super::awaits(task.bind(py)) {
                Ok(frames) if !frames.is_empty() => {
                    format!(
                        "Stack of its awaits (most recent call last):\n{}",
                        frames.trim_end()
                    )
                }
                _ => "no stack".to_owned(),
            };
            let text = format!("{name}: slow: {facts}; {place}");
            self.output.log(Level::Warning, &text);
        }
    }
}

#[pymethods]
impl SlowLook {
    /// Looks, and has the loop look again.
    pub(super) fn look(this: &Bound<'_, Self>) -> PyResult<()> {
        let (own, py) = (this.get(), this.py());
        own.log_slow(py);
        let look = this.getattr(intern!(py, "look"))?;
        let call_later = own.call_later.bind(py);
        let delay = delay(own.limit);
        call_later.call1((delay.as_secs_f64(), look)).map(drop)
    }
}

/// So late may a line come: a quarter of the time, at most a second.
fn delay(limit: Nanos) -> Duration {
    Duration::from_nanos(limit.0 / 4).clamp(DELAY_MIN, DELAY_MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_comes_within_a_quarter_of_the_time_and_a_second() {
        let check = |limit_ms, expect_ms| {
            let found = delay(Nanos::from_ms(limit_ms));
            assert_eq!(found, Duration::from_millis(expect_ms), "{limit_ms}");
        };
        check(1, 20);
        check(80, 20);
        check(400, 100);
        check(4_000, 1_000);
        check(60_000, 1_000);
    }
}
