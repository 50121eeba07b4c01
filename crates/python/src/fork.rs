//! Sharing what is imported: freezing the collector and forking, for a template process.
//!
//! Takes the interpreter, gives a second process. The fork is Python's own, so that the hooks of the
//! interpreter and of libraries run (`os.register_at_fork`: `random` takes a new seed, locks of `threading`
//! and `logging` are made anew). It is refused beside other threads: in the child they would be gone, with
//! the locks that they hold.

use std::fs;
use std::io;
use std::thread;
use std::time::Duration;

use cli::Forked;
use pyo3::exceptions::PyOSError;
use pyo3::prelude::*;

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

/// The system's own error keeps its number: EAGAIN and ENOMEM may pass.
fn fault(py: Python<'_>, error: &PyErr) -> io::Error {
    let number = match error.is_instance_of::<PyOSError>(py) {
        true => error.value(py).getattr("errno"),
        false => Err(PyOSError::new_err("")),
    };
    match number.and_then(|number| number.extract()) {
        Ok(number) => io::Error::from_raw_os_error(number),
        Err(_) => io::Error::other(trace::text(py, error)),
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
    let names = || -> PyResult<Vec<String>> {
        let threading = py.import("threading")?;
        let current = threading.call_method0("current_thread")?;
        let mut names = Vec::new();
        for thread in threading.call_method0("enumerate")?.try_iter()? {
            let thread = thread?;
            if !thread.is(&current) {
                names.push(thread.getattr("name")?.extract()?);
            }
        }
        Ok(names)
    };
    names().unwrap_or_default()
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

    #[test]
    fn refuses_to_fork_beside_threads() {
        Python::initialize();
        Python::attach(|py| {
            // The harness of these tests has threads of its own.
            let error = fork(py).unwrap_err().to_string();
            assert!(
                error.starts_with("the application starts threads"),
                "{error}"
            );
        });
    }
}
