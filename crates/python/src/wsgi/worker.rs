//! One pool thread: its loop and its turns at the interpreter, what its exchanges use again and again, and the way of
//! one exchange through the application.
//!
//! A thread attaches to the interpreter once and detaches only where it would wait, so that a request costs no release
//! of the GIL while others are waiting. Whatever the application does, `close()` is called, the response writer is
//! given back, and nothing of the exchange stays here.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::thread;

use http::Version;
use pyo3::exceptions::PyConnectionResetError;
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::types::PyDict;
use server::exchange::{Body, Exchange, ExchangeName};
use server::fault::Fault;
use server::pool::{Assignment, Worker, panic_text};
use server::response::{ResponseWriter, Taken};
use telemetry::{Nanos, Stamp};

use super::environ::Environs;
use super::error_stream::ErrorStream;
use super::file_wrapper::FileWrapper;
use super::start_response::{Call, Caller};
use super::thread_registry::{self, PoolThread, RequestTimeout};
use super::{Wsgi, response};
use crate::body::Input;
use crate::phases::Phases;
use crate::{downstream, release, trace};

/// Exchanges in a row before siblings are let in.
const BURST_LEN_MAX: u32 = 16;
/// Time after which siblings are let in.
const BURST_MAX: Nanos = Nanos(1_000_000);
/// Longest wait for a sibling to come in; it has been woken but may have no processor.
const HOLD_MAX: Nanos = Nanos(100_000);

/// The life of one worker.
pub(super) fn run(wsgi: &Wsgi, py: Python<'_>, worker: &mut Worker) -> PyResult<()> {
    set_thread_name(py);
    release::start();
    downstream::enter(worker.pool_index());
    if worker.is_watched() {
        // Who looks later is told what is missing.
        let _ = thread_registry::formatter(py);
    }
    let registration = wsgi.gil.threads.enter(py)?;
    let mut state = RequestState::new(py, wsgi, Arc::clone(&registration.thread), worker)?;
    let turns = &wsgi.gil.turns;
    let mut burst = Burst::default();
    loop {
        let assignment = match worker.next_now() {
            Some(assignment) => assignment,
            None => {
                let Some((mut assignment, waited)) = turns.wait(py, || worker.next_wait()) else {
                    state.caller.discard();
                    return Ok(());
                };
                assignment.exchange.record.phases.gil = waited;
                burst = Burst::default();
                assignment
            }
        };
        let (assignment, result) = state.answer(py, assignment, worker);
        worker.finish(assignment, result);
        turns.yield_when_due(py, &mut burst);
    }
}

/// Sets the name of the thread to the one that the operating system knows, for agents and stack dumps. Threads that
/// requests start are to be waited for at the end unless they say otherwise, as those of the main thread are:
/// they inherit it, and a thread that `threading` has not started is a daemon. What has replaced `threading` may
/// refuse.
fn set_thread_name(py: Python<'_>) {
    let thread = thread::current();
    let introduced = py.import("threading").and_then(|threading| {
        let known = threading.call_method0("current_thread")?;
        known.setattr("name", thread.name().unwrap_or("mp-pool"))?;
        known.setattr("_daemonic", false)
    });
    drop(introduced);
}

/// Everything that the requests of one pool thread use again.
struct RequestState<'py> {
    application: Bound<'py, PyAny>,
    environs: Environs<'py>,
    caller: Caller<'py>,
    input: Bound<'py, Input>,
    /// `input` may have a body.
    has_input: bool,
    errors: Bound<'py, ErrorStream>,
    phases: Bound<'py, Phases>,
    /// Where this thread can be found and interrupted.
    thread: Arc<PoolThread>,
}

impl<'py> RequestState<'py> {
    fn new(
        py: Python<'py>,
        wsgi: &Wsgi,
        thread: Arc<PoolThread>,
        worker: &Worker,
    ) -> PyResult<Self> {
        let input = Bound::new(py, Input::default())?;
        let phases = Bound::new(py, Phases::default())?;
        let own = PyDict::new(py);
        own.set_item(intern!(py, "wsgi.input"), &input)?;
        let errors = Bound::new(py, ErrorStream::new(worker.error_output()))?;
        own.set_item(intern!(py, "wsgi.errors"), &errors)?;
        own.set_item(
            intern!(py, "wsgi.file_wrapper"),
            py.get_type::<FileWrapper>(),
        )?;
        own.set_item(intern!(py, "wsgi.multithread"), wsgi.facts.multithread)?;
        own.set_item(intern!(py, "wsgi.multiprocess"), wsgi.facts.multiprocess)?;
        own.set_item(intern!(py, "milepost.phases"), &phases)?;
        own.set_item(intern!(py, "milepost.worker"), worker.name())?;
        Ok(Self {
            application: wsgi.application.bind(py).clone(),
            environs: Environs::new(&own, &wsgi.script_name, worker.request_id_header())?,
            caller: Caller::new(py)?,
            input,
            has_input: false,
            errors,
            phases,
            thread,
        })
    }

    /// Runs one exchange through the application. Whatever that does, the writer comes back.
    fn answer(
        &mut self,
        py: Python<'py>,
        assignment: Assignment,
        worker: &Worker,
    ) -> (Assignment, Result<(), Fault>) {
        let Assignment {
            mut exchange,
            writer,
            place,
        } = assignment;
        self.borrow_call(py)
            .begin(writer, exchange.head().is_head());
        // A panic of ours must not take the writer with it: without it the stream would have no end.
        let run = AssertUnwindSafe(|| self.call(py, &mut exchange, worker));
        let result =
            catch_unwind(run).unwrap_or_else(|panic| Err(Fault::Bug(panic_text(panic.as_ref()))));
        self.errors.get().end();
        let writer = self.take_writer(py);
        self.clear_environ(py);
        let ended = Assignment {
            exchange,
            writer,
            place,
        };
        (ended, result)
    }

    /// On a free-threaded interpreter another thread may be inside start_response() right now.
    fn borrow_call(&self, py: Python<'py>) -> PyRefMut<'_, Call> {
        loop {
            match self.caller.call.try_borrow_mut() {
                Ok(call) => return call,
                Err(_) => py.detach(thread::yield_now),
            }
        }
    }

    fn begin(&mut self, exchange: &mut Exchange, worker: &Worker) -> PyResult<Bound<'py, PyDict>> {
        let environ = self.environs.build(exchange)?;
        if exchange.head().index.version == Version::Http2 {
            // Made for each such request: one that was kept would be a reference more to all that is used again.
            let early_hints = self
                .caller
                .call
                .getattr(intern!(environ.py(), "early_hints"))?;
            environ.set_item(intern!(environ.py(), "wsgi.early_hints"), early_hints)?;
        }
        let body = std::mem::take(&mut exchange.body);
        if self.has_input || !matches!(body, Body::Empty) {
            self.has_input = true;
            *self.input.try_borrow_mut()? = Input::new(body);
        }
        self.errors.get().begin(ExchangeName::of(exchange));
        let record = &exchange.record;
        *self.phases.try_borrow_mut()? = Phases {
            stamps: record.phases,
            found: record.queued,
            meter: worker.meter(),
        };
        Ok(environ)
    }

    fn call(
        &mut self,
        py: Python<'py>,
        exchange: &mut Exchange,
        worker: &Worker,
    ) -> Result<(), Fault> {
        let environ = self.begin(exchange, worker);
        let environ = environ.map_err(|error| Fault::App(trace::text(py, &error)))?;
        let inside = self.thread.begin(py, exchange.record.phases.started);
        let arguments = (environ, &self.caller.start_response);
        // A child that the application has forked comes back here too, and must not answer.
        let returned = response::unless_child(py, self.application.call1(arguments));
        let answered = returned.and_then(|result| response::send(&self.caller.call, &result));
        // Before anything of ours that runs Python: an exception that comes late must not meet it.
        let is_interrupted = inside.leave();
        let taken = self.caller.call.borrow().taken;
        if taken == Taken::Overrun {
            let text = "the body was longer than its Content-Length; the rest was dropped";
            worker.note(exchange, text);
        }
        // Text before all is cleared: a traceback holds what the application was given, which would then count
        // as kept.
        match answered {
            Ok(None) => Ok(()),
            // What else an interrupted call may have raised is news.
            Ok(Some(error)) | Err(error)
                if is_interrupted && error.is_instance_of::<RequestTimeout>(py) =>
            {
                Err(Fault::Overdue)
            }
            Ok(Some(error)) => {
                let text = format!("application: {}", trace::text(py, &error));
                worker.note(exchange, &text);
                Ok(())
            }
            // write() raises when the client is gone; that is no fault of the application.
            Err(error)
                if taken == Taken::Gone && error.is_instance_of::<PyConnectionResetError>(py) =>
            {
                Ok(())
            }
            Err(error) => Err(Fault::App(trace::text(py, &error))),
        }
    }

    /// Takes the writer back; what the application has kept of the rest is left to it and replaced.
    fn take_writer(&mut self, py: Python<'py>) -> ResponseWriter {
        let writer = self.borrow_call(py).end();
        // Looked at after `end`: from then on nothing that the application keeps can reach the writer.
        if !self.caller.is_ours_alone()
            && let Ok(caller) = Caller::new(py)
        {
            std::mem::replace(&mut self.caller, caller).discard();
        }
        writer
    }

    fn clear_environ(&mut self, py: Python<'py>) {
        // Ours, and those of the templates. One more is an application that keeps them, and must not see the next
        // request's body in its old environ.
        let held = 1 + self.environs.references_len().cast_signed();
        if self.input.get_refcnt() == held && self.phases.get_refcnt() == held {
            if self.has_input
                && let Ok(mut input) = self.input.try_borrow_mut()
            {
                *input = Input::default();
                self.has_input = false;
            }
            return;
        }
        // Without memory for new ones the old ones go on; the application then sees them change.
        let input = Bound::new(py, Input::default());
        let phases = Bound::new(py, Phases::default());
        if let (Ok(input), Ok(phases)) = (input, phases)
            && self
                .environs
                .replace(input.as_any(), phases.as_any())
                .is_ok()
        {
            (self.input, self.phases) = (input, phases);
            self.has_input = false;
        }
    }
}

/// How the pool threads of an application take turns at the interpreter.
///
/// A thread that finds work waiting goes on without letting go of the GIL. So that its siblings, which may
/// hold an exchange already, do not wait for the interpreter's switch interval (5 ms), it lets them in
/// after a burst, and only when one of them is waiting.
#[derive(Default)]
pub(super) struct Turns {
    /// False for an interpreter without a GIL: nobody has to be let in there.
    pub(super) is_on: bool,
    /// Threads that are waiting to attach.
    pub(super) attaching: AtomicUsize,
    /// Times that a thread has attached.
    attached: AtomicU64,
    /// Nanoseconds that all threads have waited to attach before their exchanges.
    pub(super) waited_ns: AtomicU64,
}

/// Exchanges that a thread has run since it last attached.
#[derive(Default)]
struct Burst {
    len: u32,
    began: Option<Stamp>,
}

impl Turns {
    pub(super) fn new(is_on: bool) -> Self {
        Self {
            is_on,
            ..Self::default()
        }
    }

    /// Waits for an exchange by `next`, detached. Gives it with the time that it then took to attach again.
    fn wait<T: Send>(
        &self,
        py: Python<'_>,
        next: impl FnOnce() -> Option<T> + Send,
    ) -> Option<(T, Nanos)> {
        let (next, since) = py.detach(|| {
            let next = next();
            // Before the thread waits for the GIL: a sibling that looks in between yields for nothing, one that looked
            // too early would not yield at all.
            self.attaching.fetch_add(1, Ordering::Relaxed);
            (next, telemetry::now())
        });
        self.count_attached();
        let next = next?;
        if !self.is_on {
            return Some((next, Nanos::ZERO));
        }
        let waited = telemetry::now().since(since);
        self.waited_ns.fetch_add(waited.0, Ordering::Relaxed);
        Some((next, waited))
    }

    /// One more exchange is done: yields the GIL to siblings when it is time to.
    fn yield_when_due(&self, py: Python<'_>, burst: &mut Burst) {
        if self.is_on && self.is_due(burst) {
            py.detach(|| self.wait_for_sibling());
            self.count_attached();
            *burst = Burst::default();
        }
    }

    fn is_due(&self, burst: &mut Burst) -> bool {
        burst.len += 1;
        if self.attaching.load(Ordering::Relaxed) == 0 {
            return false;
        }
        // The clock is read only from when somebody waits.
        let now = telemetry::now();
        let began = *burst.began.get_or_insert(now);
        burst.len >= BURST_LEN_MAX || now.since(began) >= BURST_MAX
    }

    /// Detached: waits until a sibling is attached. Releasing alone would not do: the thread that releases the
    /// GIL is the first to find it free.
    fn wait_for_sibling(&self) {
        let before = self.attached.load(Ordering::Relaxed);
        let began = telemetry::now();
        while self.attached.load(Ordering::Relaxed) == before
            && telemetry::now().since(began) < HOLD_MAX
        {
            thread::yield_now();
        }
        self.attaching.fetch_add(1, Ordering::Relaxed);
    }

    fn count_attached(&self) {
        // Below 0 it would wrap, and every thread would yield after each exchange for ever.
        let before = self.attaching.fetch_sub(1, Ordering::Relaxed);
        assert!(before > 0, "more threads have attached than waited for it");
        self.attached.fetch_add(1, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_thread_alone_never_lets_go() {
        let turns = Turns::default();
        let mut burst = Burst::default();
        assert!((0..1000).all(|_| !turns.is_due(&mut burst)));
    }

    #[test]
    fn siblings_come_in_after_a_burst() {
        let turns = Turns::default();
        turns.attaching.store(1, Ordering::Relaxed);
        let mut burst = Burst::default();
        let due = (1..=BURST_LEN_MAX).find(|_| turns.is_due(&mut burst));
        assert!(due.is_some());
        turns.count_attached();
        assert!(!turns.is_due(&mut Burst::default()));
    }
}
