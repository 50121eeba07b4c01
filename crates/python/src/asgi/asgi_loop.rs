//! The event loop of an application: takes exchanges from the pools, makes tasks of them, and gives events to them.
//!
//! One reader callback (`look`) does all of it, bounded by a budget, so that the callbacks of the application are not
//! starved. Runs on the thread of the loop alone; no lock is held while Python code runs.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::{self, ThreadId};

use config::typed::{AsgiConfig, Level, WebSocketConfig};
use http::websocket::{Handshake, HandshakeFault, MessageKind};
use http::{HeadView, Version};
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyList};
use server::fault::Fault;
use server::pool::{FileLoader, LoopAssignment, LoopEvent, LoopTake, LoopWorker};
use server::response::Piece;
use server::websocket::{MessageSent, SendFault, WebSocketChannel};
use telemetry::{Nanos, Stamp};

use super::application::StartedApplications;
use super::awaitable::Sent;
use super::kept_messages::KeptMessages;
use super::loop_calls::LoopCalls;
use super::protocol::ProtocolKind;
use super::request_task::RequestTask;
use super::request_tasks::RequestTasks;
use super::selector;
use super::slow_look::SlowLook;
use super::step_meter::OverlongStep;
use super::step_watch::StepWatch;
use super::task_deadlines::TaskDeadlines;
use crate::trace;

/// Exchanges that begin in one look.
const BEGUN_LEN_MAX: usize = 32;
/// How long one look may take.
const LOOK_MAX: Nanos = Nanos(1_000_000);
/// How often the threads of the application are counted.
const THREADS_LOOK: Nanos = Nanos(1_000_000_000);
/// After such a time the loop looks again for room in a log, or whether it keeps up.
const LOOK_DELAY: Nanos = Nanos(10_000_000);

/// The server's side of an event loop.
#[pyclass(module = "milepost._milepost", name = "AsgiLoop", frozen)]
pub(super) struct AsgiLoop {
    pub(super) applications: StartedApplications,
    pub(super) loader: FileLoader,
    pub(super) websocket_config: WebSocketConfig,
    pub(super) config: AsgiConfig,
    worker: Mutex<LoopWorker>,
    pub(super) calls: LoopCalls,
    tasks: Arc<RequestTasks>,
    /// When tasks are to end that do not end by themselves.
    pub(super) deadlines: Py<TaskDeadlines>,
    /// The last step that has blocked the loop for long.
    overlong: Mutex<Option<OverlongStep>>,
    look: Mutex<LookState>,
    sent: Py<Sent>,
    /// What is known of the step that runs; `None` where long steps are not logged.
    pub(super) watch: Option<Arc<StepWatch>>,
    /// How Python calls the thread of the loop.
    thread: u64,
    thread_id: ThreadId,
    /// The request of which a step runs; 0: none does.
    stepping: AtomicU64,
    kept: KeptMessages,
}

#[derive(Default)]
struct LookState {
    /// The loop calls `look` again without a wake-up.
    is_due: bool,
    /// The loop calls `look_after_delay` after a while, without a wake-up.
    is_delayed: bool,
    /// The last look has left exchanges in their queues, because too many are inside.
    is_full: bool,
    /// No exchange will come any more.
    is_closed: bool,
    /// The loop looks whenever it selects.
    is_selecting: bool,
    /// When the threads of the application were counted last.
    counted_threads: Stamp,
}

/// What a look has found.
struct Looked {
    /// Something has become ready for the loop.
    has_acted: bool,
    /// Exchanges may be left that are to begin.
    has_more: bool,
}

impl Looked {
    const MORE: Looked = Looked {
        has_acted: true,
        has_more: true,
    };
}

impl AsgiLoop {
    pub(super) fn new(
        event_loop: &Bound<'_, PyAny>,
        applications: StartedApplications,
        config: AsgiConfig,
        worker: LoopWorker,
        watch: Option<Arc<StepWatch>>,
    ) -> PyResult<Self> {
        let py = event_loop.py();
        let calls = LoopCalls::new(event_loop)?;
        let tasks: Arc<RequestTasks> = Arc::default();
        let call_later = calls.call_later.clone_ref(py);
        let websocket_config = worker.websocket_config();
        let deadlines = TaskDeadlines::new(Arc::clone(&tasks), call_later, websocket_config);
        Ok(Self {
            applications,
            loader: worker.loader(),
            websocket_config,
            config,
            worker: Mutex::new(worker),
            calls,
            deadlines: Py::new(py, deadlines)?,
            tasks,
            overlong: Mutex::default(),
            look: Mutex::default(),
            sent: Py::new(py, Sent)?,
            watch,
            thread: py
                .import("threading")?
                .call_method0("get_ident")?
                .extract()?,
            thread_id: thread::current().id(),
            stepping: AtomicU64::new(0),
            kept: KeptMessages::default(),
        })
    }

    pub(super) fn worker(&self) -> MutexGuard<'_, LoopWorker> {
        locked(&self.worker)
    }

    pub(super) fn create_future<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        self.calls.create_future.bind(py).call0()
    }

    /// The result of a `send()` that need not wait.
    pub(super) fn sent<'py>(&self, py: Python<'py>) -> Bound<'py, PyAny> {
        self.sent.bind(py).clone().into_any()
    }

    /// The task of the request with this listed id.
    pub(super) fn task_of(&self, py: Python<'_>, id: &[u8]) -> Option<Py<RequestTask>> {
        let found = self.tasks.select(py, |task| task.has_id(id).then_some(()));
        found.into_iter().next().map(|(task, ())| task)
    }

    /// The loop.
    pub(super) fn loop_object<'py>(&self, py: Python<'py>) -> &Bound<'py, PyAny> {
        self.calls.event_loop.bind(py)
    }

    /// Whether this is the thread of the loop.
    pub(super) fn is_here(&self) -> bool {
        thread::current().id() == self.thread_id
    }

    /// How Python calls the thread of the loop.
    pub(super) fn thread(&self) -> u64 {
        self.thread
    }

    /// Whether the loop runs a step of this request.
    pub(super) fn is_stepping(&self, key: u64) -> bool {
        self.stepping.load(Ordering::Relaxed) == key
    }

    /// A step of this request begins.
    pub(super) fn begin_step(&self, key: u64) {
        self.stepping.store(key, Ordering::Relaxed);
    }

    pub(super) fn end_step(&self) {
        self.stepping.store(0, Ordering::Relaxed);
    }

    /// Sends a message of a WebSocket connection. Of what the steps of others send to one connection in a turn, all but
    /// the first message leave at its end, so that a broadcast of many is one send for each.
    pub(super) fn send<P: Piece>(
        &self,
        channel: &Arc<WebSocketChannel>,
        kind: MessageKind,
        payload: &P,
    ) -> Result<MessageSent, SendFault> {
        let stepping = self.stepping.load(Ordering::Relaxed);
        let is_others = stepping != 0 && stepping != channel.key();
        let turn = is_others.then(|| self.kept.turn());
        let sent = channel.send(kind, payload, turn)?;
        if sent == MessageSent::Kept {
            self.kept.keep(channel);
        }
        Ok(sent)
    }

    /// Has the messages leave that were kept, behind what is ready now.
    pub(super) fn flush_later(&self, this: &Bound<'_, Self>) -> PyResult<()> {
        // A selector of ours ends each turn itself.
        let is_selecting = locked(&self.look).is_selecting;
        if is_selecting || !self.kept.take_end_due() {
            return Ok(());
        }
        let py = this.py();
        let end_turn = this.getattr(intern!(py, "end_turn"))?;
        self.calls.call_soon.bind(py).call1((end_turn,)).map(drop)
    }

    /// Whether a step that took so long has blocked the loop.
    pub(super) fn is_overlong(&self, took: Nanos) -> bool {
        let watch = self.watch.as_deref();
        watch.is_some_and(|watch| watch.is_overlong(took))
    }

    pub(super) fn note_overlong(&self, step: OverlongStep) {
        self.worker().stats().slow_steps.add_from_any();
        *locked(&self.overlong) = Some(step);
    }

    /// The last step that has blocked the loop for long.
    pub(super) fn overlong(&self) -> Option<OverlongStep> {
        *locked(&self.overlong)
    }

    /// Logs what has blocked the loop since then: a step of a request, or another callback.
    pub(super) fn report_step(
        &self,
        py: Python<'_>,
        key: Option<u64>,
        since: Stamp,
        is_running: bool,
    ) {
        let task = key.and_then(|key| self.tasks.get(py, key));
        let name = task.and_then(|task| task.get().name());
        let place = match (is_running, key) {
            (true, _) => {
                super::place(py, self.thread).unwrap_or_else(|_| "an unknown place".to_owned())
            }
            (false, Some(_)) => "a call that held the interpreter".to_owned(),
            // It may have been many short ones.
            (false, None) => return,
        };
        let what = match key {
            Some(_) => "blocks the event loop",
            None => "a task or a callback blocks the event loop",
        };
        let ms = telemetry::now().since(since).0 / 1_000_000;
        let text = format!("{what}, for {ms} ms so far, in {place}");
        let output = self.worker().error_output();
        output.write(name.as_ref(), &text);
    }

    /// A task has ended.
    pub(super) fn leave(
        &self,
        this: &Bound<'_, Self>,
        key: u64,
        place: ProtocolKind,
    ) -> PyResult<()> {
        let ended = self.tasks.remove(key);
        match place {
            ProtocolKind::Http => self.worker().leave(),
            ProtocolKind::WebSocket => self.worker().leave_websocket(),
        }
        let look = locked(&self.look);
        let is_awaited = look.is_full || look.is_closed;
        drop(look);
        drop(ended);
        match is_awaited {
            true => self.look_again(this),
            false => Ok(()),
        }
    }

    /// Has the loop look once more, behind what is ready now.
    fn look_again(&self, this: &Bound<'_, Self>) -> PyResult<()> {
        let mut look = locked(&self.look);
        // One that has a selector of ours looks in each of its turns.
        if std::mem::replace(&mut look.is_due, true) || look.is_selecting {
            return Ok(());
        }
        drop(look);
        self.worker().await_look();
        let py = this.py();
        let look = this.getattr(intern!(py, "look"))?;
        self.calls.call_soon.bind(py).call1((look,)).map(drop)
    }

    /// Has the loop look again in a while: nobody says when a log has room, or when the loop keeps up. Whether it was
    /// not going to anyway.
    fn look_later(&self, this: &Bound<'_, Self>) -> PyResult<bool> {
        if std::mem::replace(&mut locked(&self.look).is_delayed, true) {
            return Ok(false);
        }
        self.worker().await_look_in(LOOK_DELAY);
        let py = this.py();
        let look = this.getattr(intern!(py, "look_after_delay"))?;
        let call_later = self.calls.call_later.bind(py);
        call_later.call1((LOOK_DELAY.as_secs_f64(), look))?;
        Ok(true)
    }

    /// Looks, and has the loop look again unless it may sleep.
    fn look_now(&self, this: &Bound<'_, Self>) -> PyResult<()> {
        let looked = self.look_once(this)?;
        let may_sleep = !looked.has_more && self.worker().sleep();
        match may_sleep {
            true => Ok(()),
            false => self.look_again(this),
        }
    }

    fn look_once(&self, this: &Bound<'_, Self>) -> PyResult<Looked> {
        {
            let mut look = locked(&self.look);
            (look.is_due, look.is_full, look.is_closed) = (false, false, false);
        }
        self.kept.begin_turn();
        let mut events = Vec::new();
        {
            let mut worker = self.worker();
            worker.begin_look();
            worker.take_events(&mut events);
        }
        let mut has_acted = !events.is_empty();
        for event in events {
            // One that fails must not keep the others from theirs.
            if let Err(error) = self.give(this, event) {
                error.write_unraisable(this.py(), None);
            }
        }
        let began = telemetry::now();
        // No request waits for these numbers, or fails with them.
        match self.count_threads(this, began) {
            Ok(has_counted) => has_acted |= has_counted,
            Err(error) => error.write_unraisable(this.py(), None),
        }
        for begun in 0.. {
            // A first step may take any time.
            let is_due = begun > 0 && (self.calls.is_eager || begun % 8 == 7);
            let is_over = is_due && telemetry::now().since(began) > LOOK_MAX;
            if begun == BEGUN_LEN_MAX || is_over {
                return Ok(Looked::MORE);
            }
            let taken = self.worker().take();
            match taken {
                LoopTake::Begin(exchange) => {
                    if self.calls.is_eager {
                        // It may take any time, and what comes meanwhile waits for the next look.
                        self.worker().await_look();
                    }
                    self.begin(this, exchange)?;
                    continue;
                }
                LoopTake::Nothing => {}
                LoopTake::Full => locked(&self.look).is_full = true,
                LoopTake::Behind => {
                    // One that leaves makes room, too.
                    locked(&self.look).is_full = true;
                    has_acted |= self.look_later(this)?;
                }
                LoopTake::LogFull => has_acted |= self.look_later(this)?,
                LoopTake::Closed => {
                    locked(&self.look).is_closed = true;
                    if self.worker().is_empty() {
                        self.calls.stop.bind(this.py()).call0()?;
                        has_acted = true;
                    }
                }
            }
            // More may have come while they began.
            return Ok(Looked {
                has_acted: has_acted || begun > 0,
                has_more: begun > 0,
            });
        }
        unreachable!("a look begins a bounded number of exchanges");
    }

    /// Has the threads counted that the application uses, now and then. Whether it was time for that.
    fn count_threads(&self, this: &Bound<'_, Self>, now: Stamp) -> PyResult<bool> {
        let py = this.py();
        {
            let mut look = locked(&self.look);
            if now.since(look.counted_threads) < THREADS_LOOK {
                return Ok(false);
            }
            look.counted_threads = now;
        }
        let count = self.calls.count_threads.bind(py);
        count.call1((&self.calls.event_loop, this))?;
        Ok(true)
    }

    /// Looks for the selector, where nobody would take an error.
    fn looked(&self, this: &Bound<'_, Self>) -> Looked {
        self.look_once(this).unwrap_or_else(|error| {
            error.write_unraisable(this.py(), None);
            Looked::MORE
        })
    }

    fn give(&self, this: &Bound<'_, Self>, event: LoopEvent) -> PyResult<()> {
        let py = this.py();
        let key = match &event {
            LoopEvent::ClientGone(key)
            | LoopEvent::Overdue(key)
            | LoopEvent::Room(key)
            | LoopEvent::Body(key, _)
            | LoopEvent::Opened(key, _)
            | LoopEvent::Span(key, _)
            | LoopEvent::Message(key)
            | LoopEvent::Cancel(key) => *key,
            LoopEvent::Drain => return TaskDeadlines::drain(self.deadlines.bind(py)),
            LoopEvent::CancelAll => {
                let all = self.tasks.select(py, |_| Some(()));
                return all.into_iter().try_for_each(|(task, ())| {
                    RequestTask::happened(task.bind(py), LoopEvent::CancelAll)
                });
            }
        };
        // One that has ended meanwhile needs no event.
        match self.tasks.get(py, key) {
            Some(task) => RequestTask::happened(task.bind(py), event),
            None => Ok(()),
        }
    }

    /// Lets an exchange go on to its application, unless it is a WebSocket handshake that is answered here.
    fn admit(&self, begun: LoopAssignment) -> Option<(ProtocolKind, LoopAssignment)> {
        let asked = asked(begun.assignment.exchange.head());
        let kind = match asked {
            Ok(None) => return Some((ProtocolKind::Http, begun)),
            Ok(Some(_)) => ProtocolKind::WebSocket,
            Err(fault) => {
                self.worker().refuse_handshake(begun, fault);
                return None;
            }
        };
        let admitted = self.worker().admit_websocket(begun);
        admitted.map(|admitted| (kind, admitted))
    }

    fn begin(&self, this: &Bound<'_, Self>, begun: LoopAssignment) -> PyResult<()> {
        let py = this.py();
        let Some((kind, begun)) = self.admit(begun) else {
            self.worker().leave();
            return Ok(());
        };
        let exchange = &begun.assignment.exchange;
        let handshake = match kind {
            ProtocolKind::Http => None,
            ProtocolKind::WebSocket => asked(exchange.head()).ok().flatten(),
        };
        let subprotocols = handshake.as_ref().map(Handshake::subprotocols);
        let (app, disconnect_cancel) = {
            let worker = self.worker();
            let delay = match kind {
                ProtocolKind::Http => worker.disconnect_cancel(&begun),
                ProtocolKind::WebSocket => None,
            };
            (worker.app_of(&begun), delay)
        };
        let application = self.applications.of(app);
        let scope = application.scopes().build(py, exchange, subprotocols);
        let scope = match scope {
            Ok(scope) => scope,
            Err(error) => {
                let text = trace::text(py, &error);
                let mut worker = self.worker();
                worker.finish(begun, Err(Fault::Bug(text)));
                worker.leave();
                return Ok(());
            }
        };
        let key = begun.key;
        let event_loop = this.clone().unbind();
        let task = RequestTask::new(
            event_loop,
            app,
            kind,
            begun,
            scope.unbind(),
            disconnect_cancel,
        );
        let request = Bound::new(py, task)?;
        self.tasks.insert(request.clone().unbind());
        match self.calls.create_task(&application.context, &request) {
            Ok(created) => {
                RequestTask::set_task(&request, &created)?;
                if kind == ProtocolKind::WebSocket {
                    TaskDeadlines::handshake_begun(self.deadlines.bind(py), key)?;
                }
            }
            Err(error) => {
                let text = trace::text(py, &error);
                if let Some(left) = request.get().give_up() {
                    self.worker().finish(left, Err(Fault::Bug(text)));
                }
                self.leave(this, key, ProtocolKind::Http)?;
            }
        }
        Ok(())
    }
}

#[pymethods]
impl AsgiLoop {
    /// The descriptor has become readable.
    fn wake(this: &Bound<'_, Self>) -> PyResult<()> {
        this.get().worker().clear_wakeup();
        this.get().look_now(this)
    }

    /// Begins exchanges that wait, and gives events to those that are inside.
    fn look(this: &Bound<'_, Self>) -> PyResult<()> {
        this.get().look_now(this)
    }

    /// Messages that were kept in this turn leave.
    fn end_turn(&self) {
        self.kept.end_turn();
    }

    /// The log may have room, or the loop keep up.
    fn look_after_delay(this: &Bound<'_, Self>) -> PyResult<()> {
        locked(&this.get().look).is_delayed = false;
        this.get().look_now(this)
    }

    /// Has requests logged that run for longer than `slow_request`, from now on.
    fn watch_slow(&self, py: Python<'_>) -> PyResult<()> {
        let (limit, output) = {
            let worker = self.worker();
            (worker.slow_request(), worker.error_output())
        };
        let Some(limit) = limit else {
            return Ok(());
        };
        let call_later = self.calls.call_later.clone_ref(py);
        let look = SlowLook::new(Arc::clone(&self.tasks), call_later, output, limit);
        SlowLook::look(&Bound::new(py, look)?)
    }

    /// Threads that the application uses, of anyio and of the executor: those at work or there, most, and what waits.
    fn threads_counted(&self, anyio: [u64; 3], executor: [u64; 3]) {
        let stats = self.worker().stats();
        let counters = [&stats.anyio_running, &stats.anyio_max, &stats.anyio_waiting];
        let of_executor = [
            &stats.executor_threads,
            &stats.executor_max,
            &stats.executor_waiting,
        ];
        let counters = counters.into_iter().chain(of_executor);
        for (counter, count) in counters.zip(anyio.into_iter().chain(executor)) {
            counter.set(count);
        }
    }

    /// The loop's selector has this epoll descriptor. From now on `select` is called for it, and nothing else has to
    /// look.
    fn begin_selecting(&self, epoll: i32) -> PyResult<()> {
        let worker = self.worker();
        selector::add_wakeup(epoll, worker.wakeup())?;
        drop(worker);
        locked(&self.look).is_selecting = true;
        Ok(())
    }

    /// Looks, waits until a descriptor is ready, and gives the keys of those that are, out of `keys`.
    fn select<'py>(
        this: &Bound<'py, Self>,
        epoll: i32,
        keys: &Bound<'py, PyDict>,
        timeout_secs: Option<f64>,
    ) -> PyResult<Bound<'py, PyList>> {
        let py = this.py();
        let own = this.get();
        own.end_turn();
        let looked = own.looked(this);
        let is_ready = looked.has_acted || timeout_secs.is_some_and(|secs| secs <= 0.0);
        // While it is awake nobody has to wake it.
        let may_wait = !is_ready && own.worker().sleep();
        let timeout_secs = if may_wait { timeout_secs } else { Some(0.0) };
        let ready = selector::wait(py, epoll, keys, timeout_secs)?;
        if may_wait {
            // What has come meanwhile begins in this turn of the loop.
            own.looked(this);
        }
        // Whatever becomes ready from here on waits for this turn of the loop.
        own.worker().await_look();
        Ok(ready)
    }

    /// The descriptor that wakes the loop.
    fn fileno(&self) -> i32 {
        use std::os::fd::AsRawFd;
        self.worker().wakeup().as_raw_fd()
    }

    /// Whether all that the loop was to do is done.
    fn has_ended(&self) -> bool {
        locked(&self.look).is_closed && self.worker().is_empty()
    }

    /// Seconds until the process is to have ended; `None` while nothing ends it.
    fn time_left(&self) -> Option<f64> {
        let left = self.worker().time_left();
        left.map(Nanos::as_secs_f64)
    }

    /// The loop cannot run any more: the process ends.
    fn fail(&self) {
        self.worker().fail();
    }

    /// Logs an error that the application has made outside of a request.
    fn log(&self, text: &str) {
        let output = self.worker().error_output();
        output.log(Level::Error, text);
    }
}

/// The WebSocket handshake of a request, if it is one.
fn asked(head: HeadView<'_>) -> Result<Option<Handshake<'_>>, HandshakeFault> {
    match head.index.version {
        Version::Http2 if head.index.is_websocket => Handshake::of_connect(head).map(Some),
        Version::Http2 => Ok(None),
        _ => Handshake::of_upgrade(head),
    }
}

/// No panic leaves one of these between two states.
pub(super) fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
