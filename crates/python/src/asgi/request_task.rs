//! One request inside the loop: the coroutine that its task runs, and the application's `receive` and `send`.
//!
//! The task's coroutine is an object of ours around that of the application, so that each step can be seen and no
//! exception reaches the loop. What the events mean is the protocol's (`http_request`). Everything happens on the
//! thread of the loop; the locks are for Python, which may share the object, and are never held while Python code runs.

use std::sync::{Mutex, MutexGuard, PoisonError};

use pyo3::exceptions::asyncio::CancelledError;
use pyo3::exceptions::{
    PyGeneratorExit, PyRuntimeError, PyStopIteration, PyTypeError, PyValueError,
};
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyString};
use pyo3::{ffi, intern};
use server::exchange::ExchangeName;
use server::pool::{LoopAssignment, LoopEvent};
use telemetry::counters::listed_id;
use telemetry::{Nanos, Stamp};

use super::ClientDisconnected;
use super::asgi_loop::AsgiLoop;
use super::awaitable::{Awaited, Step, StepInput, Wait};
use super::http_request::{Sending, TaskEnd};
use super::loop_calls::CreatedTask;
use super::loop_task::{LoopTask, Owed, TaskPlace, cancels};
use super::protocol::{Protocol, ProtocolKind, Unended};
use super::request_waits::{RequestWaits, Waiters, is_done, wake};
use super::step_meter::{OverlongStep, StepMeter};
use super::task_deadlines::TaskDeadlines;
use super::websocket_connection::NotTaken;
use crate::wsgi::type_name;
use crate::{fork, trace};

/// A request with its response, and the coroutine of its task.
#[pyclass(module = "milepost._milepost", name = "RequestTask", frozen)]
pub(super) struct RequestTask {
    key: u64,
    /// Index of its application.
    app: usize,
    kind: ProtocolKind,
    event_loop: Py<AsgiLoop>,
    state: Mutex<TaskState>,
}

struct TaskState {
    program: Program,
    task: Option<LoopTask>,
    protocol: Protocol,
    meter: StepMeter,
    /// Number of the exchange.
    number: u64,
    /// The task was cancelled by the server.
    is_cancelled: bool,
    is_overdue: bool,
    /// The log has said that it is slow.
    is_slow: bool,
    /// When the task is to be cancelled after its client has gone, until it has.
    disconnect_cancel: Option<Nanos>,
    /// The timer of that, from then on.
    cancel_timer: Option<Py<PyAny>>,
    waits: RequestWaits,
}

/// The application's part of the task.
enum Program {
    /// To be called with this scope.
    New(Py<PyDict>),
    /// What gives its steps.
    Running(Py<PyAny>),
    /// In the middle of a step.
    Stepping,
    Ended,
}

impl RequestTask {
    pub(super) fn new(
        event_loop: Py<AsgiLoop>,
        app: usize,
        kind: ProtocolKind,
        begun: LoopAssignment,
        scope: Py<PyDict>,
        disconnect_cancel: Option<Nanos>,
    ) -> Self {
        Self {
            key: begun.key,
            app,
            kind,
            event_loop,
            state: Mutex::new(TaskState {
                program: Program::New(scope),
                task: None,
                number: begun.assignment.exchange.record.id.number(),
                protocol: Protocol::new(kind, begun),
                meter: StepMeter::default(),
                is_cancelled: false,
                is_overdue: false,
                is_slow: false,
                disconnect_cancel,
                cancel_timer: None,
                waits: RequestWaits::default(),
            }),
        }
    }

    /// That of its exchange.
    pub(super) fn key(&self) -> u64 {
        self.key
    }

    fn state(&self) -> MutexGuard<'_, TaskState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The task that runs this. One that has begun and ended while it was made is not kept: the two would hold each
    /// other.
    pub(super) fn set_task(this: &Bound<'_, Self>, created: &CreatedTask<'_>) -> PyResult<()> {
        let mut state = this.get().state();
        let is_new = matches!(state.program, Program::New(_));
        if !matches!(state.program, Program::Ended) {
            state.task = Some(created.loop_task());
        }
        drop(state);
        let task = &created.task;
        if !created.has_factory || !is_new || runs(task, this) {
            return Ok(());
        }
        // The factory of the application has put a coroutine of its own around this. If that ends before it awaits this,
        // as by a cancellation, nobody else would say so, and the request would never end.
        let py = this.py();
        let ended = this.getattr(intern!(py, "task_ended"))?;
        let add = intern!(py, "add_done_callback");
        task.call_method1(add, (ended,)).map(drop)
    }

    /// Takes the exchange out, where no task could be made for it.
    pub(super) fn give_up(&self) -> Option<LoopAssignment> {
        let mut state = self.state();
        state.program = Program::Ended;
        state.protocol.give_up()
    }

    /// The next event of the client; `None`: there is none yet.
    pub(super) fn next_event<'py>(this: &Bound<'py, Self>) -> PyResult<Option<Bound<'py, PyDict>>> {
        let loader = &this.get().event_loop.get().loader;
        let received = this.get().state().protocol.receive(this.py(), loader)?;
        // Behind the lock: a new dictionary may set the collector of garbage off.
        received.map(|event| event.to_dict(this.py())).transpose()
    }

    /// Whether more may be sent.
    pub(super) fn has_room(&self) -> bool {
        self.state().protocol.has_room()
    }

    /// A future that ends when what is awaited may be there; `before` is what the same call has waited for.
    pub(super) fn wait<'py>(
        this: &Bound<'py, Self>,
        awaited: Awaited,
        before: Option<&Py<PyAny>>,
    ) -> PyResult<Bound<'py, PyAny>> {
        let (py, own) = (this.py(), this.get());
        let parked = own.state().waits.parked(py);
        let future = match parked {
            Some(future) => future.into_bound(py),
            None => own.event_loop.get().create_future(py)?,
        };
        let replaced = own.state().waits.begin(awaited, &future, before);
        // Behind the lock.
        drop(replaced);
        Ok(future)
    }

    /// The wait for this is over.
    pub(super) fn forget_wait(&self, awaited: Awaited, future: &Py<PyAny>) {
        let forgotten = self.state().waits.forget(awaited, future);
        drop(forgotten);
    }

    /// Sends an event; what its `send()` has to wait for, if anything.
    pub(super) fn send_event(
        this: &Bound<'_, Self>,
        event: &Bound<'_, PyDict>,
    ) -> PyResult<Option<Awaited>> {
        let py = this.py();
        let own = this.get();
        let kind = event.get_item(intern!(py, "type"))?;
        let kind = kind.as_ref().and_then(|kind| kind.cast::<PyString>().ok());
        let Some(kind) = kind else {
            return Err(PyValueError::new_err(
                "an event must have a `type` that is a str",
            ));
        };
        let kind = kind.to_cow()?;
        let send = own.kind.read(&kind, event)?;
        let mut state = own.state();
        let Some(send) = send else {
            let text = state.protocol.unknown(&kind);
            drop(state);
            return Err(PyValueError::new_err(text));
        };
        let is_overdue = state.is_overdue;
        if send.may_end_exchange() {
            state.note_steps();
        }
        let sending = state.protocol.send(send, is_overdue, own.event_loop.get());
        let sending = sending.map_err(|not_taken| match not_taken {
            NotTaken::Wrong(text) => PyRuntimeError::new_err(text),
            NotTaken::Ended => {
                ClientDisconnected::new_err("the connection of the client has ended")
            }
        });
        let event_loop = own.event_loop.bind(py);
        let sending = sending?;
        match sending {
            Sending::Taken => {
                drop(state);
                if own.kind == ProtocolKind::WebSocket {
                    event_loop.get().flush_later(event_loop)?;
                }
                Ok(None)
            }
            Sending::Waits | Sending::Dropped | Sending::DroppedForLong => {
                let cancels = sending == Sending::DroppedForLong && !state.is_cancelled;
                drop(state);
                if cancels {
                    own.cancel_dropped(py)?;
                }
                event_loop.get().flush_later(event_loop)?;
                Ok(Some(match sending {
                    Sending::Waits => Awaited::Room,
                    _ => Awaited::Turn,
                }))
            }
            Sending::TakenForReceiver => {
                let receivers = state.waits.take_receivers();
                drop(state);
                receivers.wake(py)?;
                Ok(None)
            }
        }
    }

    /// Something has happened to the exchange.
    pub(super) fn happened(this: &Bound<'_, Self>, event: LoopEvent) -> PyResult<()> {
        let py = this.py();
        let own = this.get();
        let mut state = own.state();
        let waiting = match event {
            LoopEvent::ClientGone(_) => {
                let request = state.protocol.request();
                request.client_gone();
                request.read_on(&own.event_loop.get().loader);
                let waiting = state.take_receivers().and(state.waits.take_senders());
                // Its driver may say so more than once.
                let delay = state.disconnect_cancel.take();
                drop(state);
                if let Some(delay) = delay {
                    let deadlines = own.event_loop.get().deadlines.bind(py);
                    let timer = TaskDeadlines::cancel_later(deadlines, own.key, delay)?;
                    own.state().cancel_timer = Some(timer.unbind());
                }
                return Self::go_on(this, waiting);
            }
            LoopEvent::Room(_) if state.protocol.request().is_reading() => {
                let request = state.protocol.request();
                request.read_on(&own.event_loop.get().loader);
                return Ok(());
            }
            LoopEvent::Room(_) => state.waits.take_senders(),
            LoopEvent::Span(_, read) => {
                let is_overdue = state.is_overdue;
                let request = state.protocol.request();
                request.span_read(read, is_overdue, own.event_loop.get());
                if request.is_reading() {
                    return Ok(());
                }
                let receivers = state.waits.take_receivers();
                receivers.and(state.waits.take_senders())
            }
            LoopEvent::Body(_, read) => {
                state.protocol.put_body(read);
                state.waits.take_receivers()
            }
            LoopEvent::Opened(_, opened) => {
                state.protocol.send_opened(opened, own.event_loop.get());
                let receivers = state.waits.take_receivers();
                receivers.and(state.waits.take_senders())
            }
            LoopEvent::Overdue(_) => {
                state.is_overdue = true;
                state.protocol.request().client_gone();
                drop(state);
                return own.cancel(py);
            }
            LoopEvent::Message(_) => state.waits.take_receivers(),
            // It is for all of them.
            LoopEvent::Drain => return Ok(()),
            LoopEvent::CancelAll | LoopEvent::Cancel(_) => {
                drop(state);
                return own.cancel(py);
            }
        };
        drop(state);
        Self::go_on(this, waiting)
    }

    /// What waits for these goes on: at once where that is the application itself, and nothing else goes on with it.
    fn go_on(this: &Bound<'_, Self>, waiting: Waiters) -> PyResult<()> {
        let py = this.py();
        let future = match waiting.only() {
            Ok(future) => future,
            Err(all) => return all.wake(py),
        };
        let is_own = this.get().state().waits.task_place.waits_for(&future);
        // One that was cancelled has its task woken already.
        if is_own && !is_done(future.bind(py))? && Self::step_at_once(this)? {
            return Ok(());
        }
        wake(py, Some(future))
    }

    /// Has the application take a step in the place of its task; whether it did.
    fn step_at_once(this: &Bound<'_, Self>) -> PyResult<bool> {
        let (py, own) = (this.py(), this.get());
        let task = own.state().task.as_ref().map(|task| task.clone_ref(py));
        let Some(task) = task else {
            return Ok(false);
        };
        let calls = &own.event_loop.get().calls;
        let Some(ran) = task.run_step(py, calls, || Self::step(this, StepInput::Next)) else {
            return Ok(false);
        };
        let (owed, failed) = match ran {
            Ok(Some(on)) => (Owed::Waits(on), Ok(())),
            Ok(None) => (Owed::End, Ok(())),
            Err(error) => (Owed::End, Err(error)),
        };
        let woken_by = own.state().waits.task_place.step_ended(owed);
        wake(py, woken_by)?;
        failed.map(|()| true)
    }

    /// A step of the task.
    fn task_step(this: &Bound<'_, Self>, input: StepInput) -> PyResult<Option<Py<PyAny>>> {
        let (py, own) = (this.py(), this.get());
        let place = std::mem::take(&mut own.state().waits.task_place);
        let on = match (place, input) {
            (TaskPlace::Due(Owed::End), _) => None,
            (TaskPlace::Due(Owed::Waits(on)), StepInput::Next) => Some(on),
            (TaskPlace::Due(Owed::Waits(on)), StepInput::Throw(error)) => {
                match cancels(&error, on.bind(py))? {
                    true => Some(on),
                    false => Self::step(this, StepInput::Throw(error))?,
                }
            }
            (TaskPlace::Own | TaskPlace::Parked(_), input) => Self::step(this, input)?,
        };
        if let Some(on) = &on {
            own.state().waits.task_waits_for(py, on);
        }
        Ok(on)
    }

    /// Whether the response is complete.
    pub(super) fn is_answered(&self) -> bool {
        self.state().protocol.request().is_answered()
    }

    /// What the end of the process has to end.
    pub(super) fn unended(&self) -> Option<Unended> {
        self.state().protocol.unended()
    }

    /// The process ends: the application hears that its client is gone. Whether there was something to end.
    pub(super) fn drain(&self, py: Python<'_>) -> PyResult<bool> {
        let mut state = self.state();
        if !state.protocol.drain(self.event_loop.get()) {
            return Ok(false);
        }
        let waiting = state.take_receivers().and(state.waits.take_senders());
        drop(state);
        waiting.wake(py)?;
        Ok(true)
    }

    /// The application streams on to a client that has been gone for long.
    fn cancel_dropped(&self, py: Python<'_>) -> PyResult<()> {
        let output = self.event_loop.get().worker().error_output();
        let text = "the application goes on with a response whose client is long gone: its task is cancelled";
        output.write(self.name().as_ref(), text);
        self.cancel(py)
    }

    pub(super) fn cancel(&self, py: Python<'_>) -> PyResult<()> {
        let mut state = self.state();
        state.is_cancelled = true;
        let task = state.task.as_ref().map(|task| task.task.clone_ref(py));
        drop(state);
        match task {
            Some(task) => task.call_method0(py, intern!(py, "cancel")).map(drop),
            None => Ok(()),
        }
    }

    /// One step of the application, in the context of the task; `None` at its end.
    fn step(this: &Bound<'_, Self>, input: StepInput) -> PyResult<Option<Py<PyAny>>> {
        let py = this.py();
        let own = this.get();
        let began = telemetry::now();
        let steps = match own.begin_step(began, &input)? {
            Program::New(scope) => match input {
                StepInput::Next => own.call(this, scope.bind(py)),
                StepInput::Throw(error) => return own.end(this, Err(error)),
            },
            Program::Running(steps) => Ok(steps.into_bound(py)),
            Program::Stepping | Program::Ended => unreachable!("no step begins from there"),
        };
        let watch = own.event_loop.get().watch.as_deref();
        own.event_loop.get().begin_step(own.key);
        if let Some(watch) = watch {
            watch.begin(own.key, began);
        }
        let ran = steps.and_then(|steps| Ok((input.run(&steps)?, steps)));
        let now = telemetry::now();
        own.event_loop.get().end_step();
        if let Some(watch) = watch {
            watch.end(now);
        }
        own.end_step(began, now);
        let (result, steps) = match ran {
            Ok((step, steps)) => (Ok(step), Some(steps)),
            Err(error) => (Err(error), None),
        };
        if server::fork::is_child() {
            // Only the process that took the request answers it.
            fork::leave(py, result.err());
        }
        match (result, steps) {
            (Ok(Step::Waits(on)), Some(steps)) => {
                own.state().program = Program::Running(steps.unbind());
                Ok(Some(on.unbind()))
            }
            (Ok(_), _) => own.end(this, Ok(())),
            (Err(error), _) => own.end(this, Err(error)),
        }
    }

    /// Takes the program for a step that begins at `began`.
    fn begin_step(&self, began: Stamp, input: &StepInput) -> PyResult<Program> {
        let mut state = self.state();
        match &state.program {
            Program::New(_) => {
                state.begin(began, self.event_loop.get().overlong());
                // With an exception it ends before the application runs.
                if matches!(input, StepInput::Next) {
                    state.meter.begin(began);
                }
            }
            Program::Running(_) => state.meter.begin(began),
            Program::Stepping | Program::Ended => {
                return Err(PyRuntimeError::new_err(
                    "cannot reuse already awaited coroutine",
                ));
            }
        }
        Ok(std::mem::replace(&mut state.program, Program::Stepping))
    }

    fn end_step(&self, began: Stamp, now: Stamp) {
        let mut state = self.state();
        let took = state.meter.end(now);
        let number = state.number;
        drop(state);
        let event_loop = self.event_loop.get();
        if event_loop.is_overlong(took) {
            event_loop.note_overlong(OverlongStep {
                number,
                began,
                ended: now,
            });
        }
    }

    /// What the log says of a request whose application has run for longer than `limit`: its name, and the facts. Once; not
    /// of a response without an end, and not of work behind a response.
    pub(super) fn slow(&self, now: Stamp, limit: Nanos) -> Option<(ExchangeName, String)> {
        let mut state = self.state();
        if state.is_slow || !matches!(state.program, Program::Running(_)) {
            return None;
        }
        if state.protocol.unended() == Some(Unended::Stream) {
            return None;
        }
        let facts = state.meter.facts(now);
        let own = state.protocol.request().assignment()?;
        let exchange = &own.assignment.exchange;
        let (phases, name) = (exchange.record.phases, ExchangeName::of(exchange));
        let age = now.since(phases.started);
        if age < limit {
            return None;
        }
        state.is_slow = true;
        let secs = |span: Nanos| format!("{:.3} s", span.as_secs_f64());
        let facts = format!(
            "running for {} (receive {}, queue {}, busy {} in {} steps) on the event loop",
            secs(age),
            secs(phases.queued.since(phases.arrived)),
            secs(phases.started.since(phases.queued)),
            secs(facts.busy),
            facts.steps
        );
        Some((name, facts))
    }

    /// Whether the table of running requests has it under this id.
    pub(super) fn has_id(&self, id: &[u8]) -> bool {
        self.name().is_some_and(|name| listed_id(&name.id()) == id)
    }

    /// The task of the loop.
    pub(super) fn loop_task(&self, py: Python<'_>) -> Option<Py<PyAny>> {
        let state = self.state();
        state.task.as_ref().map(|task| task.task.clone_ref(py))
    }

    /// What the exchange is called in the log.
    pub(super) fn name(&self) -> Option<ExchangeName> {
        self.state().protocol.name()
    }

    /// An attribute of the application's coroutine, between its steps.
    fn of_program(
        &self,
        py: Python<'_>,
        name: &Bound<'_, PyString>,
    ) -> PyResult<Option<Py<PyAny>>> {
        match self.program(py) {
            Some(steps) => Ok(steps.bind(py).getattr_opt(name)?.map(Bound::unbind)),
            None => Ok(None),
        }
    }

    /// The application's coroutine, between its steps.
    pub(super) fn program(&self, py: Python<'_>) -> Option<Py<PyAny>> {
        match &self.state().program {
            Program::Running(steps) => Some(steps.clone_ref(py)),
            _ => None,
        }
    }

    /// Calls the application, and gives what has its steps.
    fn call<'py>(
        &self,
        this: &Bound<'py, Self>,
        scope: &Bound<'py, PyDict>,
    ) -> PyResult<Bound<'py, PyAny>> {
        let py = this.py();
        let event_loop = self.event_loop.get();
        let receive = this.getattr(intern!(py, "receive"))?;
        let send = this.getattr(intern!(py, "respond"))?;
        let application = event_loop.applications.of(self.app);
        let is_double = application.is_double;
        let application = application.callable.bind(py);
        let given = match is_double {
            false => application.call1((scope, receive, send))?,
            true => application.call1((scope,))?.call1((receive, send))?,
        };
        // SAFETY: a live object.
        if unsafe { ffi::PyCoro_CheckExact(given.as_ptr()) } != 0 {
            return Ok(given);
        }
        match given.getattr_opt(intern!(py, "__await__"))? {
            Some(iterate) => iterate.call0(),
            None => Err(PyTypeError::new_err(format!(
                "the application returned {}; an ASGI application returns an awaitable",
                type_name(&given)
            ))),
        }
    }

    /// The application has ended, with its exception if it raised one. None reaches the loop.
    fn end(&self, this: &Bound<'_, Self>, result: PyResult<()>) -> PyResult<Option<Py<PyAny>>> {
        let py = this.py();
        let text = self.fault_text(py, result.as_ref().err());
        drop(result);
        let event_loop = self.event_loop.get();
        let mut state = self.state();
        state.program = Program::Ended;
        let task = state.task.take();
        let receivers = state.waits.take_receivers();
        let waiting = receivers.and(state.waits.take_senders());
        let cancel_timer = state.cancel_timer.take();
        state.note_steps();
        let end = TaskEnd {
            fault: text,
            is_cancelled: state.is_cancelled,
            is_overdue: state.is_overdue,
        };
        let place = state.protocol.end(end, event_loop);
        drop(state);
        drop(task);
        if let Some(timer) = cancel_timer {
            // Left alone it would stay in the loop for its whole time, which may be a day.
            timer.call_method0(py, intern!(py, "cancel"))?;
        }
        waiting.wake(py)?;
        event_loop.leave(self.event_loop.bind(py), self.key, place)?;
        Ok(None)
    }

    /// What the log is to say of the end; `None` where nothing is wrong with the application.
    fn fault_text(&self, py: Python<'_>, error: Option<&PyErr>) -> Option<String> {
        let error = error?;
        let mut state = self.state();
        let is_asked = state.protocol.request().is_gone() || state.is_cancelled;
        drop(state);
        match error.is_instance_of::<CancelledError>(py) {
            true if is_asked => None,
            true => Some("the task of the request was cancelled".to_owned()),
            // The server has raised it itself: the client is gone.
            false if error.is_instance_of::<ClientDisconnected>(py) => None,
            false => Some(trace::text(py, error)),
        }
    }
}

impl TaskState {
    /// The first step begins; `overlong` is the last that has blocked the loop.
    fn begin(&mut self, now: Stamp, overlong: Option<OverlongStep>) {
        if let Some((taken, queued)) = self.protocol.request().begin(now) {
            let blocked_by = overlong.filter(|step| step.has_blocked(queued, now));
            let number = blocked_by.map(|step| step.number);
            self.meter.start(taken, now, number);
        }
    }

    /// The record has the steps until now: its exchange may leave with what follows. One that has left needs no look at the
    /// clock.
    fn note_steps(&mut self) {
        if !self.protocol.has_record() {
            return;
        }
        let facts = self.meter.facts(telemetry::now());
        self.protocol.note(facts);
    }

    /// The `receive()` that wait, if there is an event for them.
    fn take_receivers(&mut self) -> Waiters {
        match self.protocol.has_event() {
            true => self.waits.take_receivers(),
            false => Waiters::default(),
        }
    }
}

#[pymethods]
impl RequestTask {
    /// `receive()` of the application.
    fn receive(this: Bound<'_, Self>) -> Wait {
        Wait::new(this.unbind(), Awaited::Event)
    }

    /// `send(event)` of the application.
    fn respond<'py>(
        this: &Bound<'py, Self>,
        event: &Bound<'py, PyAny>,
    ) -> PyResult<Bound<'py, PyAny>> {
        let py = this.py();
        let Ok(event) = event.cast::<PyDict>() else {
            return Err(PyTypeError::new_err(format!(
                "an event must be a dict, not {}",
                type_name(event)
            )));
        };
        let event_loop = this.get().event_loop.get();
        let request = || this.clone().unbind();
        let wait = match event_loop.is_here() {
            true => match Self::send_event(this, event)? {
                Some(awaited) => Wait::new(request(), awaited),
                None => return Ok(event_loop.sent(py)),
            },
            false => Wait::unsent(request(), event.clone().unbind()),
        };
        Ok(Bound::new(py, wait)?.into_any())
    }

    /// A task that runs this in another coroutine has ended.
    fn task_ended(this: &Bound<'_, Self>, task: &Bound<'_, PyAny>) -> PyResult<()> {
        if !matches!(this.get().state().program, Program::New(_)) {
            return Ok(());
        }
        let is_cancelled = task.call_method0(intern!(this.py(), "cancelled"))?;
        let error = match is_cancelled.is_truthy()? {
            true => CancelledError::new_err(()),
            false => PyRuntimeError::new_err(
                "the task factory of the application made a task that does not run the request",
            ),
        };
        Self::step(this, StepInput::Throw(error)).map(drop)
    }

    /// The frame of the application, for tools that show tasks; `None` while it runs.
    #[getter]
    fn cr_frame(&self, py: Python<'_>) -> PyResult<Option<Py<PyAny>>> {
        self.of_program(py, intern!(py, "cr_frame"))
    }

    #[getter]
    fn cr_code(&self, py: Python<'_>) -> PyResult<Option<Py<PyAny>>> {
        self.of_program(py, intern!(py, "cr_code"))
    }

    #[getter]
    fn cr_await(&self, py: Python<'_>) -> PyResult<Option<Py<PyAny>>> {
        self.of_program(py, intern!(py, "cr_await"))
    }

    #[getter]
    fn cr_running(&self) -> bool {
        matches!(self.state().program, Program::Stepping)
    }

    /// What `inspect.getcoroutinestate` asks for from Python 3.11 on.
    #[getter]
    fn cr_suspended(&self) -> bool {
        matches!(self.state().program, Program::Running(_))
    }

    #[getter]
    fn __name__(&self, py: Python<'_>) -> PyResult<Option<Py<PyAny>>> {
        self.of_program(py, intern!(py, "__name__"))
    }

    #[getter]
    fn __qualname__(&self, py: Python<'_>) -> PyResult<Option<Py<PyAny>>> {
        self.of_program(py, intern!(py, "__qualname__"))
    }

    fn __await__(this: Bound<'_, Self>) -> Bound<'_, Self> {
        this
    }

    fn __iter__(this: Bound<'_, Self>) -> Bound<'_, Self> {
        this
    }

    fn __next__(this: &Bound<'_, Self>) -> PyResult<Option<Py<PyAny>>> {
        Self::task_step(this, StepInput::Next)
    }

    fn send(this: &Bound<'_, Self>, value: &Bound<'_, PyAny>) -> PyResult<Py<PyAny>> {
        let _ = value;
        Self::task_step(this, StepInput::Next)?.ok_or_else(|| PyStopIteration::new_err(()))
    }

    #[pyo3(signature = (kind, value=None, traceback=None))]
    fn throw(
        this: &Bound<'_, Self>,
        kind: Bound<'_, PyAny>,
        value: Option<Bound<'_, PyAny>>,
        traceback: Option<Bound<'_, PyAny>>,
    ) -> PyResult<Py<PyAny>> {
        let error = super::awaitable::thrown(kind, value, traceback);
        Self::task_step(this, StepInput::Throw(error))?.ok_or_else(|| PyStopIteration::new_err(()))
    }

    fn close(this: &Bound<'_, Self>) -> PyResult<()> {
        let exit = PyGeneratorExit::new_err(());
        let is_over = matches!(this.get().state().program, Program::Ended);
        match is_over {
            true => Ok(()),
            false => Self::step(this, StepInput::Throw(exit)).map(drop),
        }
    }
}

/// Whether this is the coroutine of the task itself.
fn runs(task: &Bound<'_, PyAny>, request: &Bound<'_, RequestTask>) -> bool {
    let coroutine = task.call_method0(intern!(task.py(), "get_coro"));
    coroutine.is_ok_and(|coroutine| coroutine.is(request))
}
