//! What is called of the event loop: its methods, kept, and how it makes a task.

use pyo3::prelude::*;
use pyo3::types::{PyBool, PyTuple};
use pyo3::{ffi, intern};

use super::loop_task::LoopTask;
use super::request_task::RequestTask;

/// The loop and its methods.
pub(super) struct LoopCalls {
    pub(super) event_loop: Py<PyAny>,
    /// A function of ours.
    pub(super) count_threads: Py<PyAny>,
    pub(super) create_future: Py<PyAny>,
    pub(super) call_soon: Py<PyAny>,
    pub(super) call_later: Py<PyAny>,
    pub(super) stop: Py<PyAny>,
    /// What makes a task the current one of the loop, as asyncio itself does for each step, and ends that.
    pub(super) enter_task: Py<PyAny>,
    pub(super) leave_task: Py<PyAny>,
    /// A task takes its first step while it is made (from Python 3.12 on): one that never waits needs no turn of the loop.
    pub(super) is_eager: bool,
    create_task: Py<PyAny>,
    get_task_factory: Py<PyAny>,
    /// What the loop makes itself, unless the application has given it a factory.
    task_type: Py<PyAny>,
    /// Names of the keyword arguments of a task; `None` where it takes no context (Python 3.10).
    task_names: Option<Py<PyTuple>>,
    /// The name of each task: one by number would be formatted for each request.
    task_name: Py<PyAny>,
}

impl LoopCalls {
    pub(super) fn new(event_loop: &Bound<'_, PyAny>) -> PyResult<Self> {
        let py = event_loop.py();
        let method = |name: &str| event_loop.getattr(name).map(Bound::unbind);
        let names: &[&str] = match py.version_info() {
            version if version >= (3, 12) => &["loop", "context", "name", "eager_start"],
            version if version >= (3, 11) => &["loop", "context", "name"],
            _ => &[],
        };
        let task_names = match names {
            [] => None,
            names => Some(PyTuple::new(py, names)?.unbind()),
        };
        let tasks = py.import("asyncio.tasks")?;
        Ok(Self {
            event_loop: event_loop.clone().unbind(),
            count_threads: super::functions(py)?.getattr("count_threads")?.unbind(),
            create_future: method("create_future")?,
            call_soon: method("call_soon")?,
            call_later: method("call_later")?,
            stop: method("stop")?,
            enter_task: tasks.getattr("_enter_task")?.unbind(),
            leave_task: tasks.getattr("_leave_task")?.unbind(),
            is_eager: names.contains(&"eager_start"),
            create_task: method("create_task")?,
            get_task_factory: method("get_task_factory")?,
            task_type: py.import("asyncio")?.getattr("Task")?.unbind(),
            task_names,
            task_name: intern!(py, "request").clone().into_any().unbind(),
        })
    }

    /// A task in a copy of the context, so that no request sees what another one has set.
    pub(super) fn create_task<'py>(
        &self,
        context: &Py<PyAny>,
        request: &Bound<'py, RequestTask>,
    ) -> PyResult<CreatedTask<'py>> {
        let py = request.py();
        // SAFETY: a live context.
        let context = unsafe { ffi::PyContext_Copy(context.as_ptr()) };
        // SAFETY: an owned reference, or null with an exception.
        let context = unsafe { Bound::from_owned_ptr_or_err(py, context) }?;
        let has_factory = !self.get_task_factory.bind(py).call0()?.is_none();
        let names = self.task_names.as_ref().filter(|_| !has_factory);
        let Some(names) = names else {
            let task = context.call_method1("run", (&self.create_task, request))?;
            return Ok(CreatedTask {
                task,
                context: None,
                has_factory,
            });
        };
        let arguments = [
            request.as_ptr(),
            self.event_loop.as_ptr(),
            context.as_ptr(),
            self.task_name.as_ptr(),
            // Has no name where it is not meant.
            PyBool::new(py, true).as_ptr(),
        ];
        // SAFETY: attached; one positional argument and one for each name.
        let task = unsafe {
            ffi::PyObject_Vectorcall(
                self.task_type.as_ptr(),
                arguments.as_ptr(),
                1,
                names.as_ptr(),
            )
        };
        // SAFETY: an owned reference, or null with an exception.
        let task = unsafe { Bound::from_owned_ptr_or_err(py, task) }?;
        Ok(CreatedTask {
            task,
            context: Some(context),
            has_factory: false,
        })
    }
}

/// A task for a request.
pub(super) struct CreatedTask<'py> {
    pub(super) task: Bound<'py, PyAny>,
    /// That of its steps, where others than the loop can run one.
    context: Option<Bound<'py, PyAny>>,
    /// A factory of the application has made it, which may have put a coroutine of its own around the request.
    pub(super) has_factory: bool,
}

impl CreatedTask<'_> {
    pub(super) fn loop_task(&self) -> LoopTask {
        LoopTask {
            task: self.task.clone().unbind(),
            context: self.context.clone().map(Bound::unbind),
        }
    }
}
