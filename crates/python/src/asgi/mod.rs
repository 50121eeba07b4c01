//! ASGI on an event loop of the main thread: the loop, the lifespan of the application, and a task for each request.
//!
//! Takes exchanges from a `LoopWorker`. Knows no socket. What is done once for a process is written in Python
//! (`event_loop.py`), what is done for each request is not.

mod asgi_loop;
mod awaitable;
mod http_request;
mod protocol;
mod request_body;
mod request_task;
mod response;
mod response_state;
mod scope;
mod step_meter;
mod step_watch;
mod websocket_connection;

use std::ffi::CStr;
use std::io;
use std::sync::Arc;

use cli::{AppFacts, Failure};
use config::typed::{EventLoopKind, LifespanMode};
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::{PyDict, PyModule};
use server::handler::{EventLoop, Handler};
use server::pool::{LoopWorker, Worker};

use crate::{import, release};
use asgi_loop::AsgiLoop;
use awaitable::{Sent, Wait};
use request_task::RequestTask;
use scope::Scopes;
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

/// An ASGI application.
pub(crate) struct Asgi {
    application: Py<PyAny>,
    /// ASGI 2: it gives a callable.
    is_double: bool,
    script_name: String,
    facts: AppFacts,
    loop_name: &'static str,
}

impl Asgi {
    /// `root_path` is the URL path that the application is mounted at.
    ///
    /// # Errors
    /// The settings name threads, which an event loop does not have, or a loop that is not installed.
    pub(crate) fn new(
        application: &Bound<'_, PyAny>,
        is_double: bool,
        root_path: &str,
        facts: AppFacts,
    ) -> Result<Self, Failure> {
        if facts.asgi.has_threads {
            let cause = "an ASGI application runs on one event loop, which has no threads";
            let hint = "leave out `threads`; `asgi_concurrency` bounds the requests inside, and `processes` uses more \
                        processors";
            return Err(Failure {
                hint: Some(hint.to_owned()),
                ..import::fault("threads", cause)
            });
        }
        let found = functions(application.py())
            .and_then(|module| {
                module.call_method1(
                    "has_uvloop",
                    (facts.asgi.event_loop == EventLoopKind::Uvloop,),
                )
            })
            .and_then(|found| found.extract::<bool>());
        let has_uvloop = found.unwrap_or(false);
        let loop_name = match facts.asgi.event_loop {
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
            application: application.clone().unbind(),
            is_double,
            script_name: root_path.trim_end_matches('/').to_owned(),
            facts,
            loop_name,
        })
    }

    fn run_attached(
        &self,
        py: Python<'_>,
        worker: LoopWorker,
        serve: &mut dyn FnMut() -> io::Result<()>,
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
        let settings = &self.facts.asgi;
        let state = PyDict::new(py);
        let event_loop = module
            .call_method1("new_loop", (self.loop_name,))
            .map_err(failed)?;
        let lifespan = self.start(&module, &event_loop, &state).map_err(failed)?;
        let context = lifespan.getattr("context").map_err(failed)?;
        let state = (settings.lifespan != LifespanMode::Off).then(|| state.unbind());
        let scopes = Scopes::new(py, &self.script_name, worker.request_id_header(), state);
        let own = AsgiLoop::new(
            &event_loop,
            self.application.clone_ref(py),
            self.is_double,
            worker,
            context.unbind(),
            scopes.map_err(failed)?,
            settings
                .slow_step
                .map(|limit| Arc::new(StepWatch::new(limit))),
        );
        let own = Bound::new(py, own.map_err(failed)?).map_err(failed)?;
        let watch = own.get().watch.clone();
        if let Some(watch) = &watch {
            // Without a thread long steps are not logged.
            let _ = step_watch::start(own.clone().unbind(), Arc::clone(watch));
        }
        serve().map_err(|error| import::fault("the server's thread", error))?;
        // The server serves from here on: what fails is no failed start.
        let ran = module.call_method1("run", (&event_loop, &own, &lifespan));
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

    /// The lifespan of the application, which has been started.
    fn start<'py>(
        &self,
        module: &Bound<'py, PyModule>,
        event_loop: &Bound<'py, PyAny>,
        state: &Bound<'py, PyDict>,
    ) -> PyResult<Bound<'py, PyAny>> {
        let settings = &self.facts.asgi;
        let mode = match settings.lifespan {
            LifespanMode::Auto => "auto",
            LifespanMode::On => "on",
            LifespanMode::Off => "off",
        };
        let timeout_secs = settings.lifespan_timeout.as_secs_f64();
        let asked = (
            event_loop,
            &self.application,
            self.is_double,
            state,
            mode,
            timeout_secs,
        );
        module.call_method1("start", asked)
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

    fn concurrency(&self) -> usize {
        self.facts.asgi.concurrency
    }

    fn run(
        &self,
        worker: LoopWorker,
        serve: &mut dyn FnMut() -> io::Result<()>,
    ) -> Result<(), Failure> {
        Python::attach(|py| self.run_attached(py, worker, serve))
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
