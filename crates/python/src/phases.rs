//! `environ["milepost.phases"]`: what has passed of an exchange when its application looks.
//!
//! Takes the stamps of an exchange; works out nothing until it is asked. Stamps are on the clock of
//! `time.monotonic()`, durations are in seconds.

use measure::{Phases as Stamps, Stamp};
use pyo3::exceptions::PyKeyError;
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;

const NAMES: [&str; 6] = ["arrived", "queued", "started", "accept", "queue", "gil"];

/// The phases that have passed: a read-only mapping whose keys are attributes too.
///
/// `arrived`, `queued` and `started` are moments on the clock of `time.monotonic()`; `accept`, `queue` and
/// `gil` are seconds.
#[pyclass(module = "milepost._milepost", name = "Phases", mapping)]
#[derive(Default)]
pub(crate) struct Phases {
    stamps: Stamps,
}

impl Phases {
    /// Shows another exchange.
    pub(crate) fn reset(&mut self, stamps: Stamps) {
        self.stamps = stamps;
    }

    fn seconds(&self) -> [(&'static str, f64); 3] {
        [
            ("accept", self.accept()),
            ("queue", self.queue()),
            ("gil", self.gil()),
        ]
    }
}

#[pymethods]
impl Phases {
    /// When the exchange arrived.
    #[getter]
    fn arrived(&self, py: Python<'_>) -> PyResult<f64> {
        moment(py, self.stamps.arrived)
    }

    /// When the request was complete and began to wait for a thread.
    #[getter]
    fn queued(&self, py: Python<'_>) -> PyResult<f64> {
        moment(py, self.stamps.queued)
    }

    /// When a thread took it.
    #[getter]
    fn started(&self, py: Python<'_>) -> PyResult<f64> {
        moment(py, self.stamps.started)
    }

    /// Seconds until the request was complete.
    #[getter]
    fn accept(&self) -> f64 {
        self.stamps.queued.since(self.stamps.arrived).as_secs_f64()
    }

    /// Seconds that it waited for a thread.
    #[getter]
    fn queue(&self) -> f64 {
        self.stamps.started.since(self.stamps.queued).as_secs_f64()
    }

    /// Seconds that its thread waited for the interpreter.
    #[getter]
    fn gil(&self) -> f64 {
        self.stamps.gil.as_secs_f64()
    }

    /// Seconds since the exchange arrived.
    fn age(&self) -> f64 {
        measure::now().since(self.stamps.arrived).as_secs_f64()
    }

    /// Names of the phases.
    fn keys(&self) -> [&'static str; 6] {
        NAMES
    }

    fn __getitem__(&self, py: Python<'_>, name: &str) -> PyResult<f64> {
        match name {
            "arrived" => self.arrived(py),
            "queued" => self.queued(py),
            "started" => self.started(py),
            "accept" => Ok(self.accept()),
            "queue" => Ok(self.queue()),
            "gil" => Ok(self.gil()),
            _ => Err(PyKeyError::new_err(name.to_owned())),
        }
    }

    fn __contains__(&self, name: &Bound<'_, PyAny>) -> bool {
        name.extract::<String>()
            .is_ok_and(|name| NAMES.contains(&name.as_str()))
    }

    fn __iter__<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        Ok(NAMES.into_pyobject(py)?.try_iter()?.into_any())
    }

    fn __len__(&self) -> usize {
        NAMES.len()
    }

    fn __repr__(&self) -> String {
        let spans = self
            .seconds()
            .map(|(name, seconds)| format!("{name}={seconds:.6}"));
        format!("<milepost.Phases {}>", spans.join(" "))
    }
}

/// A stamp on the clock of `time.monotonic()`; 0.0 for one that has not passed.
fn moment(py: Python<'_>, stamp: Stamp) -> PyResult<f64> {
    if stamp == Stamp::ZERO {
        return Ok(0.0);
    }
    // Both clocks are CLOCK_MONOTONIC; only their zeros differ, and always by the same.
    static ZERO: PyOnceLock<f64> = PyOnceLock::new();
    let zero = ZERO.get_or_try_init(py, || -> PyResult<f64> {
        let monotonic: f64 = py.import("time")?.call_method0("monotonic")?.extract()?;
        Ok(monotonic - seconds(measure::now()))
    })?;
    Ok(zero + seconds(stamp))
}

fn seconds(stamp: Stamp) -> f64 {
    stamp.since(Stamp::ZERO).as_secs_f64()
}

#[cfg(test)]
mod tests {
    use measure::Nanos;

    use super::*;

    #[test]
    fn reads_as_a_mapping_and_by_attributes() {
        let now = measure::now();
        let stamps = Stamps {
            arrived: now,
            queued: now.plus(Nanos(1_500_000)),
            started: now.plus(Nanos(4_000_000)),
            gil: Nanos(250_000),
            ..Stamps::default()
        };
        Python::initialize();
        Python::attach(|py| {
            let names = pyo3::types::PyDict::new(py);
            names
                .set_item("p", Bound::new(py, Phases { stamps }).unwrap())
                .unwrap();
            let script = c"
import time
assert (p.accept, p['queue'], p.gil) == (0.0015, 0.0025, 0.00025), dict(p)
assert sorted(p) == sorted(p.keys()) == sorted(dict(p)) and len(p) == 6
assert 'queue' in p and 'run' not in p and 3 not in p
assert -1 < time.monotonic() - p.arrived < 60 and p.age() >= 0
assert abs(p.queued - p.arrived - p.accept) < 1e-9, p.queued - p.arrived
assert repr(p) == '<milepost.Phases accept=0.001500 queue=0.002500 gil=0.000250>', repr(p)
try: p['run']
except KeyError: pass
else: raise AssertionError
";
            py.run(script, Some(&names), None).unwrap();
        });
    }
}
