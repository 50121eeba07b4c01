//! Two kinds of forks: the template's, which share what is imported, and those of an application in a request.
//!
//! Takes the interpreter, gives a second process. The template's fork is Python's own, so that the hooks of the
//! interpreter and of libraries run (`os.register_at_fork`: `random` takes a new seed, locks of `threading`
//! and `logging` are made anew). It is refused beside other threads: in the child they would be gone, with
//! the locks that they hold.
//!
//! An application forks beside the threads of the server. The server's own hooks have taken its sockets and
//! signals out of the child by then (`server::fork`); here the child ends where it comes back from the application.

use std::fs;
use std::io;
use std::thread;
use std::time::Duration;

use cli::Forked;
use pyo3::exceptions::{PyOSError, PySystemExit};
use pyo3::prelude::*;
use pyo3::types::{IntoPyDict, PyCFunction, PyDict, PyTuple};
use server::fork;

use crate::trace;

/// How often the threads are counted before a fork is refused, and the time in between: a thread that was
/// joined is known to the kernel for a moment longer.
const LOOKS_LEN: usize = 20;
const LOOK_PAUSE: Duration = Duration::from_millis(5);
/// Threads in a message.
const NAMES_LEN_MAX: usize = 5;

/// Collects what is garbage, so that no child finds and writes it, and takes all that is left out of the
/// collector's sight: a collection writes into every object that it looks at, and so copies its page.
pub(crate) fn freeze(py: Python<'_>) {
    let frozen = py.import("gc").and_then(|gc| {
        gc.call_method0("collect")?;
        gc.call_method0("freeze")
    });
    // Callbacks of the application run here (`gc.callbacks`, finalizers); what they raise Python reports by
    // itself. An interpreter without `freeze` shares less.
    drop(frozen);
}

/// Forks; see `AppHost::fork`.
pub(crate) fn fork(py: Python<'_>) -> io::Result<Forked> {
    check_alone(py)?;
    flush(py);
    let pid: i32 = py
        .import("os")
        .and_then(|os| os.call_method0("fork")?.extract())
        .map_err(|error| fault(py, &error))?;
    match u32::try_from(pid) {
        Ok(0) => Ok(Forked::Child),
        Ok(pid) => Ok(Forked::Parent(pid)),
        Err(_) => Err(io::Error::other("os.fork gave no process id")),
    }
}

/// Has the children of requests find in `threading` what Python's own code expects there.
///
/// # Errors
/// Python refuses the hook.
pub(crate) fn prepare_children(py: Python<'_>) -> PyResult<()> {
    let hook = |arguments: &Bound<'_, PyTuple>, _: Option<&Bound<'_, PyDict>>| {
        let py = arguments.py();
        // What has replaced `threading` may refuse.
        drop(fork::is_child().then(|| make_main_thread(py)));
    };
    let hook = PyCFunction::new_closure(py, None, None, hook)?;
    let named = [("after_in_child", hook)].into_py_dict(py)?;
    let os = py.import("os")?;
    os.call_method("register_at_fork", (), Some(&named))
        .map(drop)
}

/// The thread that forks is the main thread in a child. In some versions of Python (3.11.7 is one) a thread that
/// `threading` has not started then lacks the lock that a main thread releases at its end: `threading._shutdown`
/// fails without it, and so does every `multiprocessing.Process` that comes to its end.
fn make_main_thread(py: Python<'_>) -> PyResult<()> {
    let main = py.import("threading")?.call_method0("main_thread")?;
    if main
        .getattr_opt("_tstate_lock")?
        .is_some_and(|lock| lock.is_none())
    {
        main.call_method0("_set_tstate_lock")?;
    }
    Ok(())
}

/// Ends a child that a request has forked, where it comes back from the application: it leaves as if that code had
/// been all of its program. That is, it ends with 0, with what
/// `sys.exit` says, or with 1 and a traceback; threads that it has started are waited for, `atexit` runs, and
/// what waits in buffers is written.
///
/// The steps are those of a child of `multiprocessing`. `Py_Exit` is not fit for it: from 3.13 on it continues in
/// the first thread of the parent, which a child does not have. Nothing of Rust is unwound: what lies on the stack
/// belongs to the request, which is the parent's.
#[cold]
pub(crate) fn leave(py: Python<'_>, error: Option<PyErr>) -> ! {
    let code = error.map_or(0, |error| exit_code(py, &error));
    // Before `threading` and `atexit`, which would wait for the parent's other children, or terminate them.
    let_siblings_go(py);
    for (module, step) in [("threading", "_shutdown"), ("atexit", "_run_exitfuncs")] {
        let done = py
            .import(module)
            .and_then(|module| module.call_method0(step));
        if let Err(error) = done {
            error.write_unraisable(py, None);
        }
    }
    flush(py);
    fork::leave(code)
}

/// What a program exits with that ends by this exception; says why where a program does.
fn exit_code(py: Python<'_>, error: &PyErr) -> i32 {
    if !error.is_instance_of::<PySystemExit>(py) {
        error.print(py);
        return 1;
    }
    let code = error.value(py).getattr("code");
    let Some(code) = code.ok().filter(|code| !code.is_none()) else {
        return 0;
    };
    code.extract().unwrap_or_else(|_| {
        let stderr = py.import("sys").and_then(|sys| sys.getattr("stderr"));
        // A stream that is closed or gone takes no text.
        drop(stderr.and_then(|stderr| stderr.call_method1("write", (format!("{code}\n"),))));
        1
    })
}

/// Has the interpreter's end wait for no process that the application has started by `multiprocessing`: those that
/// are no daemons would be joined, however long they run. They go on; daemons are terminated as ever.
pub(crate) fn let_children_go(py: Python<'_>) {
    forget_processes(py, |process| Ok(!process.getattr("daemon")?.is_truthy()?));
}

/// A child has those of its parent in its list too, and would terminate them at its end.
fn let_siblings_go(py: Python<'_>) {
    let own = std::process::id();
    forget_processes(py, |process| {
        Ok(process.getattr("_parent_pid")?.extract::<u32>()? != own)
    });
}

/// Takes processes out of the list that `multiprocessing` ends or joins at the interpreter's end.
fn forget_processes(py: Python<'_>, is_chosen: impl Fn(&Bound<'_, PyAny>) -> PyResult<bool>) {
    let forget = || -> PyResult<()> {
        let modules = py.import("sys")?.getattr("modules")?;
        let module = modules.call_method1("get", ("multiprocessing.process",))?;
        if module.is_none() {
            return Ok(());
        }
        let listed = module.getattr("_children")?;
        let processes: Vec<_> = listed.try_iter()?.collect::<PyResult<_>>()?;
        for process in processes {
            if is_chosen(&process)? {
                listed.call_method1("discard", (process,))?;
            }
        }
        Ok(())
    };
    // One that is made otherwise does what it does in every program; a stop is bounded all the same.
    drop(forget());
}

/// The system's own error keeps its number: EAGAIN and ENOMEM may pass.
fn fault(py: Python<'_>, error: &PyErr) -> io::Error {
    let number = error.value(py).getattr("errno");
    match number.and_then(|number| number.extract()) {
        Ok(number) if error.is_instance_of::<PyOSError>(py) => io::Error::from_raw_os_error(number),
        _ => io::Error::other(trace::text(py, error)),
    }
}

/// What waits in Python's buffers would else be written once by each process.
fn flush(py: Python<'_>) {
    for name in ["stdout", "stderr"] {
        // A stream that is closed or gone has nothing that waits.
        let flushed = py
            .import("sys")
            .and_then(|sys| sys.getattr(name)?.call_method0("flush"));
        drop(flushed);
    }
}

fn check_alone(py: Python<'_>) -> io::Result<()> {
    let mut names = other_threads()?;
    for _ in 1..LOOKS_LEN {
        if names.is_empty() {
            return Ok(());
        }
        // A thread on its way out may need the interpreter once more.
        py.detach(|| thread::sleep(LOOK_PAUSE));
        names = other_threads()?;
    }
    match names.is_empty() {
        true => Ok(()),
        false => Err(io::Error::other(refusal(&known_to_python(py), &names))),
    }
}

/// Names that the kernel has for the threads beside this one.
fn other_threads() -> io::Result<Vec<String>> {
    // The first thread has the number of its process.
    let own = fs::read_link("/proc/thread-self")?;
    let mut names = Vec::new();
    for entry in fs::read_dir("/proc/self/task")? {
        let entry = entry?;
        if Some(entry.file_name().as_os_str()) == own.file_name() {
            continue;
        }
        // One that has ended since has no name any more, and does not count.
        if let Ok(name) = fs::read_to_string(entry.path().join("comm")) {
            names.push(name.trim_end().to_owned());
        }
    }
    Ok(names)
}

/// Names of the threads that were started by `threading`, without this one.
fn known_to_python(py: Python<'_>) -> Vec<String> {
    let script = c"[thread.name for thread in enumerate() if thread is not current_thread()]";
    let names = py
        .import("threading")
        .and_then(|threading| py.eval(script, Some(&threading.dict()), None)?.extract());
    names.unwrap_or_default()
}

/// `python`: names of threads of `threading`; `all`: the kernel's names for these and others.
fn refusal(python: &[String], all: &[String]) -> String {
    let foreign = all.len().saturating_sub(python.len());
    let mut parts: Vec<String> = python
        .iter()
        .take(NAMES_LEN_MAX)
        .map(|name| format!("`{name}`"))
        .collect();
    if python.len() > NAMES_LEN_MAX {
        parts.push(format!("{} more", python.len() - NAMES_LEN_MAX));
    }
    if foreign > 0 {
        let first = all.first().map_or("", String::as_str);
        let whose = match python {
            [] => format!("of an extension module (the first is called `{first}`)"),
            _ => "of extension modules".to_owned(),
        };
        parts.push(format!("{foreign} {whose}"));
    }
    format!(
        "the application starts threads when it is imported: {}",
        parts.join(", ")
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn says_whose_threads_are_in_the_way() {
        let check = |python: &[&str], all: &[&str], expect: &str| {
            let owned =
                |names: &[&str]| names.iter().map(|name| (*name).into()).collect::<Vec<_>>();
            let text = refusal(&owned(python), &owned(all));
            let start = "the application starts threads when it is imported: ";
            assert_eq!(text.strip_prefix(start), Some(expect));
        };
        check(&["sentry"], &["python"], "`sentry`");
        check(&["a", "b"], &["python", "python"], "`a`, `b`");
        check(
            &[],
            &["blas", "blas", "blas"],
            "3 of an extension module (the first is called `blas`)",
        );
        check(&["a"], &["x", "y"], "`a`, 1 of extension modules");
        let many = ["a", "b", "c", "d", "e", "f", "g"];
        check(&many, &many, "`a`, `b`, `c`, `d`, `e`, 2 more");
    }
}
