//! ASGI on an event loop of the main thread: the loop, the lifespans of its applications, and a task for each request.
//!
//! Takes exchanges from a `LoopWorker`. Knows no socket. What is done once for a process is written in Python
//! (`event_loop.py`), what is done for each request is not.

mod application;
mod asgi_loop;
mod awaitable;
mod file_span;
mod http_request;
mod kept_messages;
mod loop_calls;
mod loop_stack;
mod loop_task;
mod protocol;
mod request_body;
mod request_task;
mod request_tasks;
mod request_waits;
mod response;
mod response_state;
mod scope;
mod selector;
mod slow_look;
mod startup;
mod step_meter;
mod step_watch;
mod task_deadlines;
mod websocket_connection;

use std::ffi::CStr;
use std::io;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use cli::Failure;
use config::typed::{AsgiConfig, Concurrency, EventLoopKind, LifespanMode};
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::{PyDict, PyModule};
use server::handler::{EventLoop, Handler, LoopStack};
use server::pool::{LoopWorker, Worker};

use crate::stack_thread::StackThread;
use crate::{import, release};
pub(crate) use application::AsgiApplication;
use application::{StartedApplication, StartedApplications};
use asgi_loop::{AsgiLoop, locked};
use awaitable::{Sent, Wait};
use request_task::RequestTask;
use scope::Scopes;
use startup::StartupWatch;
use step_watch::StepWatch;

const SOURCE: &CStr =
    match CStr::from_bytes_with_nul(concat!(include_str!("event_loop.py"), "\0").as_bytes()) {
        Ok(source) => source,
        Err(_) => panic!("a source has no zero byte"),
    };

pyo3::create_exception!(
    milepost,
    ClientDisconnected,
    pyo3::exceptions::PyOSError,
    "What `send()` raises where the connection of the client has ended."
);

/// ASGI applications, which share an event loop.
pub(crate) struct Asgi {
    applications: Vec<AsgiApplication>,
    config: AsgiConfig,
    loop_name: &'static str,
    /// While it runs.
    running: Arc<Mutex<Option<Py<AsgiLoop>>>>,
    stack_thread: StackThread,
}

impl Asgi {
    /// # Errors
    /// The settings name a loop that is not installed.
    pub(crate) fn new(
        py: Python<'_>,
        applications: Vec<AsgiApplication>,
        config: AsgiConfig,
    ) -> Result<Self, Failure> {
        let found = functions(py)
            .and_then(|module| {
                module.call_method1("has_uvloop", (config.event_loop == EventLoopKind::Uvloop,))
            })
            .and_then(|found| found.extract::<bool>());
        let has_uvloop = found.unwrap_or(false);
        let loop_name = match config.event_loop {
            EventLoopKind::Uvloop if !has_uvloop => {
                let failure = import::fault("uvloop", "it is not installed for this Python");
                return Err(Failure {
                    hint: Some("`pip install uvloop`, or `--loop asyncio`".to_owned()),
                    ..failure
                });
            }
            EventLoopKind::Uvloop | EventLoopKind::Auto if has_uvloop => "uvloop",
            _ => "asyncio",
        };
        Ok(Self {
            applications,
            config,
            loop_name,
            running: Arc::default(),
            stack_thread: StackThread::default(),
        })
    }

    fn run_attached(
        &self,
        py: Python<'_>,
        worker: LoopWorker,
        serve: &mut dyn FnMut() -> io::Result<()>,
        give_up: &(dyn Fn(&Failure) + Sync),
    ) -> Result<(), Failure> {
        let failed = |error: PyErr| match import::told(py, &error) {
            Some((cause, hint, detail)) => Failure {
                hint,
                detail,
                ..import::fault("lifespan", cause)
            },
            None => Failure {
                detail: Some(crate::trace::text(py, &error)),
                ..import::fault("the event loop", error)
            },
        };
        release::start();
        let module = functions(py).map_err(failed)?;
        let settings = &self.config;
        let event_loop = module
            .call_method1("new_loop", (self.loop_name,))
            .map_err(failed)?;
        let states: Vec<_> = self.applications.iter().map(|_| PyDict::new(py)).collect();
        let lifespans = startup::during(py, self.config.lifespan_timeout, give_up, |watch| {
            self.start(&module, &event_loop, &states, watch)
        })
        .map_err(failed)?;
        let started = self.started(&lifespans, states, worker.request_id_header());
        let awaited = worker.awaited();
        let own = AsgiLoop::new(
            &event_loop,
            StartedApplications::new(started.map_err(failed)?),
            self.config,
            worker,
            settings
                .slow_step
                .map(|limit| Arc::new(StepWatch::new(limit, awaited))),
        );
        let own = Bound::new(py, own.map_err(failed)?).map_err(failed)?;
        own.get().worker().set_thread();
        let watch = own.get().watch.clone();
        if let Some(watch) = &watch {
            // Without a thread long steps are not logged.
            let _ = step_watch::start(own.clone().unbind(), Arc::clone(watch));
        }
        serve().map_err(|error| import::fault("the server's thread", error))?;
        // The server serves from here on: what fails is no failed start.
        *locked(&self.running) = Some(own.clone().unbind());
        let ran = module.call_method1("run", (&event_loop, &own, &lifespans));
        let running = locked(&self.running).take();
        drop(running);
        if let Err(error) = ran {
            error.print(py);
        }
        if let Some(watch) = watch {
            watch.close();
        }
        // Now: the application may keep something of a request, and with it the loop.
        own.get().worker().end();
        Ok(())
    }

    /// The lifespans of the applications, which have been started.
    fn start<'py>(
        &self,
        module: &Bound<'py, PyModule>,
        event_loop: &Bound<'py, PyAny>,
        states: &[Bound<'py, PyDict>],
        watch: &Bound<'py, StartupWatch>,
    ) -> PyResult<Vec<Bound<'py, PyAny>>> {
        let mode = match self.config.lifespan {
            LifespanMode::Auto => "auto",
            LifespanMode::On => "on",
            LifespanMode::Off => "off",
        };
        let is_alone = self.applications.len() == 1;
        let all = self.applications.iter().zip(states);
        let asked: Vec<_> = all
            .map(|(application, state)| {
                let name = match is_alone {
                    true => "the application".to_owned(),
                    false => format!("`{}`", application.name),
                };
                (name, &application.callable, application.is_double, state)
            })
            .collect();
        let timeout_secs = self.config.lifespan_timeout.as_secs_f64();
        let arguments = (event_loop, asked, mode, timeout_secs, watch);
        let started = module.call_method1("start", arguments)?;
        started.extract()
    }

    fn started(
        &self,
        lifespans: &[Bound<'_, PyAny>],
        states: Vec<Bound<'_, PyDict>>,
        request_id_header: Option<&str>,
    ) -> PyResult<Vec<StartedApplication>> {
        let has_state = self.config.lifespan != LifespanMode::Off;
        let all = self.applications.iter().zip(lifespans).zip(states);
        let started = all.map(|((application, lifespan), state)| {
            let py = lifespan.py();
            let context = lifespan.getattr("context")?.unbind();
            let state = has_state.then(|| state.unbind());
            let script_name = application.root_path.trim_end_matches('/');
            let spec = self.config.http_spec.name();
            let version = application.version();
            let scopes = Scopes::new(py, version, spec, script_name, request_id_header, state)?;
            Ok(StartedApplication::new(py, application, context, scopes))
        });
        started.collect()
    }
}

impl Handler for Asgi {
    fn event_loop(&self) -> Option<&dyn EventLoop> {
        Some(self)
    }

    fn work(&self, _: &mut Worker) {
        unreachable!("an application with an event loop has no worker");
    }
}

impl EventLoop for Asgi {
    fn name(&self) -> &str {
        self.loop_name
    }

    fn concurrency(&self) -> Concurrency {
        self.config.concurrency
    }

    fn run(
        &self,
        worker: LoopWorker,
        serve: &mut dyn FnMut() -> io::Result<()>,
        give_up: &(dyn Fn(&Failure) + Sync),
    ) -> Result<(), Failure> {
        Python::attach(|py| self.run_attached(py, worker, serve, give_up))
    }

    fn request_stack(&self, id: &[u8], wait_max: Duration) -> LoopStack {
        // Who waits already waits for all.
        if self.stack_thread.is_busy() {
            return LoopStack::Held;
        }
        let (running, id) = (Arc::clone(&self.running), id.to_vec());
        let found = self.stack_thread.ask(wait_max, move |py| {
            let own = locked(&running).as_ref().map(|own| own.clone_ref(py));
            own.map_or(LoopStack::Unknown, |own| {
                loop_stack::find(py, own.get(), &id)
            })
        });
        found.unwrap_or(LoopStack::Held)
    }
}

/// The functions of `event_loop.py`, which know what of ours is a coroutine.
fn functions(py: Python<'_>) -> PyResult<Bound<'_, PyModule>> {
    static MODULE: PyOnceLock<Py<PyModule>> = PyOnceLock::new();
    let module = MODULE.get_or_try_init(py, || {
        let name = c"milepost._event_loop";
        let module = PyModule::from_code(py, SOURCE, c"milepost/event_loop.py", name)?;
        let coroutine = py.import("collections.abc")?.getattr("Coroutine")?;
        for kind in [
            py.get_type::<RequestTask>(),
            py.get_type::<Sent>(),
            py.get_type::<Wait>(),
        ] {
            coroutine.call_method1("register", (kind,))?;
        }
        Ok::<_, PyErr>(module.unbind())
    })?;
    Ok(module.bind(py).clone())
}

/// Where a thread is in the application.
fn place(py: Python<'_>, thread: u64) -> PyResult<String> {
    functions(py)?.call_method1("place", (thread,))?.extract()
}

/// Where a thread is in the application, and its stack.
fn stack(py: Python<'_>, thread: u64) -> PyResult<(String, String)> {
    functions(py)?.call_method1("stack", (thread,))?.extract()
}

/// Where a task that waits stands.
fn awaits(task: &Bound<'_, RequestTask>) -> PyResult<String> {
    let py = task.py();
    let (of_loop, program) = (task.get().loop_task(py), task.get().program(py));
    functions(py)?
        .call_method1("awaits", (of_loop, program))?
        .extract()
}
