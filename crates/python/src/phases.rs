//! `environ["milepost.phases"]`: what has passed of an exchange when its application looks.
//!
//! Takes the stamps of an exchange, what it found at its queue and the meter of its thread; works out nothing
//! until it is asked.
//! Stamps are on the clock of `time.monotonic()`, durations are in seconds.

use pyo3::exceptions::PyKeyError;
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use server::pool::Meter;
use telemetry::{Nanos, Phases as Stamps, Queued, Stamp};

const NAMES: [&str; 11] = [
    "arrived",
    "queued",
    "started",
    "receive",
    "queue",
    "gil",
    "before",
    "waiting",
    "threads",
    "idle",
    "from_queue",
];

/// The phases that have passed: a read-only mapping whose keys are attributes too.
///
/// `arrived`, `queued` and `started` are moments on the clock of `time.monotonic()`; `receive`, `queue` and
/// `gil` are seconds, and so is `before`: how long the request had waited before it came to this server, as
/// a trusted proxy says. The others are as they were when it came to its pool's queue: how many requests
/// were `waiting`, how many `threads` the pool had, how many of them were `idle`; `from_queue` is whether it
/// had to wait for one.
#[pyclass(module = "milepost._milepost", name = "Phases", mapping)]
#[derive(Default)]
pub(crate) struct Phases {
    pub(crate) stamps: Stamps,
    pub(crate) found: Queued,
    /// Of the thread that runs it, from there on.
    pub(crate) meter: Option<Meter>,
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
    fn receive(&self) -> f64 {
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

    /// Seconds that it had waited before it came to this server; 0.0 when no trusted proxy says so.
    #[getter]
    fn before(&self) -> f64 {
        self.found.before.as_secs_f64()
    }

    /// How many requests waited in its pool's queue when it came.
    #[getter]
    fn waiting(&self) -> u32 {
        self.found.waiting
    }

    /// How many threads the pool had then.
    #[getter]
    fn threads(&self) -> u32 {
        self.found.threads
    }

    /// How many of them had nothing to do.
    #[getter]
    fn idle(&self) -> u32 {
        self.found.idle
    }

    /// Whether it had to wait for a thread.
    #[getter(from_queue)]
    fn is_from_queue(&self) -> bool {
        self.found.from_queue
    }

    /// Seconds since the exchange arrived.
    fn age(&self) -> f64 {
        telemetry::now().since(self.stamps.arrived).as_secs_f64()
    }

    /// Seconds of processor time that its thread has used for it; to be asked while it runs.
    fn cpu(&self) -> f64 {
        let used = self.meter.and_then(|meter| meter.used());
        used.map_or(0.0, Nanos::as_secs_f64)
    }

    /// Names of all that it has.
    fn keys(&self) -> [&'static str; NAMES.len()] {
        NAMES
    }

    fn __getitem__<'py>(this: &Bound<'py, Self>, name: &str) -> PyResult<Bound<'py, PyAny>> {
        match NAMES.contains(&name) {
            true => this.getattr(name),
            false => Err(PyKeyError::new_err(name.to_owned())),
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
        let (receive, queue, gil) = (self.receive(), self.queue(), self.gil());
        let (waiting, threads, idle) = (self.waiting(), self.threads(), self.idle());
        format!(
            "<milepost.Phases receive={receive:.6} queue={queue:.6} gil={gil:.6} \
             waiting={waiting} threads={threads} idle={idle}>"
        )
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
        Ok(monotonic - seconds(telemetry::now()))
    })?;
    Ok(zero + seconds(stamp))
}

fn seconds(stamp: Stamp) -> f64 {
    stamp.since(Stamp::ZERO).as_secs_f64()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_as_a_mapping_and_by_attributes() {
        let now = telemetry::now();
        let stamps = Stamps {
            arrived: now,
            queued: now.plus(Nanos(1_500_000)),
            started: now.plus(Nanos(4_000_000)),
            gil: Nanos(250_000),
            ..Stamps::default()
        };
        let found = Queued {
            before: Nanos(500_000_000),
            waiting: 3,
            threads: 2,
            idle: 0,
            from_queue: true,
        };
        let phases = Phases {
            stamps,
            found,
            meter: Some(Meter::start()),
        };
        Python::initialize();
        Python::attach(|py| {
            let names = pyo3::types::PyDict::new(py);
            names
                .set_item("p", Bound::new(py, phases).unwrap())
                .unwrap();
            let script = c"
import time
assert (p.receive, p['queue'], p.gil) == (0.0015, 0.0025, 0.00025), dict(p)
assert sorted(p) == sorted(p.keys()) == sorted(dict(p)) and len(p) == 11
assert 'queue' in p and 'run' not in p and 3 not in p
assert -1 < time.monotonic() - p.arrived < 60 and p.age() >= 0
before, end = p.cpu(), time.thread_time() + 0.02
while time.thread_time() < end: pass
time.sleep(0.02)
assert before + 0.02 <= p.cpu() < p.age(), (before, p.cpu(), p.age())
assert abs(p.queued - p.arrived - p.receive) < 1e-9, p.queued - p.arrived
assert (p.before, p['waiting'], p.threads, p['idle'], p.from_queue) == (0.5, 3, 2, 0, True), dict(p)
assert dict(p) == {name: getattr(p, name) for name in p}
assert type(p['waiting']) is type(p.idle) is int and p['from_queue'] is p.from_queue is True
assert repr(p) == '<milepost.Phases receive=0.001500 queue=0.002500 gil=0.000250 waiting=3 threads=2 idle=0>', repr(p)
try: p['run']
except KeyError: pass
else: raise AssertionError
";
            py.run(script, Some(&names), None).unwrap();
        });
    }
}
