//! Python as the command line sees it: which one it is, how to load an application, how to let go of it.
//!
//! Implements `cli::AppHost`; prints only what concerns the interpreter itself.

use std::ffi::OsString;
use std::fs::OpenOptions;
use std::io::{self, Write};
use std::os::fd::{AsRawFd, IntoRawFd};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use cli::{AppFacts, AppHost, Failure, Forked};
use config::typed::{App, Hook, Interface};
use ipc::HANDOVER;
use pyo3::prelude::*;
use pyo3::types::PyDict;
use server::handler::Handler;

use crate::asgi::{Asgi, AsgiApplication};
use crate::wsgi::Wsgi;
use crate::{command, evaluate, fork, import, modules, visit};

/// The interpreter that has loaded this module.
pub struct Host {
    /// The working folder at the start: relative paths of the command line are meant from there, however
    /// often the configuration or the application changes it later.
    started_in: PathBuf,
    /// What starts the command, where that is not how this process was started.
    program: Option<Vec<OsString>>,
}

impl Host {
    /// The host of this process, which is still in the folder that it was started in.
    pub fn here() -> Host {
        // A folder that was deleted has no name any more; then nothing relative can be found anyway.
        let started_in = std::env::current_dir().unwrap_or_else(|_| PathBuf::from("/"));
        Host {
            started_in,
            program: None,
        }
    }

    /// The same, started anew as `python OPTIONS -m milepost WORDS`.
    pub(crate) fn started_by(self, options: Vec<OsString>, words: &[OsString]) -> Host {
        let own = self.command().into_iter().next();
        let start = ["-m".into(), "milepost".into()];
        let words = options.into_iter().chain(start).chain(words.to_vec());
        Host {
            program: Some(own.into_iter().chain(words).collect()),
            ..self
        }
    }
}

impl AppHost for Host {
    fn describe(&self) -> String {
        Python::attach(|py| describe(py).unwrap_or_else(|_| "Python".to_owned()))
    }

    fn load(&self, apps: &[App], facts: &[AppFacts]) -> Result<Vec<Arc<dyn Handler>>, Failure> {
        assert_eq!(apps.len(), facts.len(), "an application without its facts");
        Python::attach(|py| {
            forget_handover(py).map_err(|error| import::fault(HANDOVER, error))?;
            let loaded = apps.iter().map(|app| import::load(py, app));
            let loaded: Vec<_> = loaded.collect::<Result<_, _>>()?;
            fork::prepare_children(py)
                .map_err(|error| import::fault("os.register_at_fork", error))?;
            warn_of_gil(py);
            handlers(py, apps, loaded, facts)
        })
    }

    fn find_hook(&self, app: &App, hook: &Hook) -> Result<(), Failure> {
        Python::attach(|py| import::find_hook(py, app, hook))
    }

    fn call_hook(&self, app: &App, hook: &Hook) -> Result<(), Failure> {
        Python::attach(|py| {
            // A hook may come before the application, and start programs as well.
            forget_handover(py).map_err(|error| import::fault(HANDOVER, error))?;
            import::call_hook(py, app, hook)
        })
    }

    fn detached(&self, body: &mut (dyn FnMut() -> i32 + Send)) -> i32 {
        let body = || {
            let code = body();
            // Nothing is left but the interpreter's end.
            visit::end_all();
            code
        };
        Python::attach(|py| {
            let code = py.detach(body);
            fork::let_children_go(py);
            code
        })
    }

    fn command(&self) -> Vec<OsString> {
        let own = || Python::attach(|py| command::own(py, &self.started_in));
        self.program.clone().unwrap_or_else(own)
    }

    fn variables(&self, file: &Path) -> Result<String, Failure> {
        Python::attach(|py| evaluate::variables(py, file))
    }

    fn modules(&self) -> Vec<PathBuf> {
        Python::attach(|py| modules::files(py).unwrap_or_default())
    }

    fn freeze(&self) {
        Python::attach(fork::freeze);
    }

    fn fork(&self) -> io::Result<Forked> {
        Python::attach(fork::fork)
    }
}

/// What runs each application.
fn handlers<'py>(
    py: Python<'py>,
    apps: &[App],
    loaded: Vec<(Bound<'py, PyAny>, Interface)>,
    facts: &[AppFacts],
) -> Result<Vec<Arc<dyn Handler>>, Failure> {
    let with_loop = apps.iter().zip(&loaded).enumerate();
    let with_loop = with_loop.filter(|(_, (_, (_, interface)))| *interface != Interface::Wsgi);
    let with_loop: Vec<_> = with_loop
        .map(|(index, (app, (application, interface)))| AsgiApplication {
            index,
            name: app.name(),
            callable: application.clone().unbind(),
            is_double: *interface == Interface::Asgi2,
            root_path: app.root_path.clone(),
        })
        .collect();
    let asgi = match (with_loop.len(), facts.first()) {
        (0, _) | (_, None) => None,
        (len, Some(facts)) if len == apps.len() && facts.asgi.has_threads => {
            return Err(no_threads());
        }
        (_, Some(facts)) => Some(Arc::new(Asgi::new(py, with_loop, facts.asgi)?)),
    };
    let gil_is_on = gil_is_on(py).unwrap_or(true);
    let all = apps.iter().zip(loaded).zip(facts);
    let handlers = all.map(|((app, (application, interface)), facts)| match &asgi {
        Some(asgi) if interface != Interface::Wsgi => Arc::clone(asgi) as Arc<dyn Handler>,
        _ => Arc::new(Wsgi::new(
            application.unbind(),
            &app.root_path,
            *facts,
            gil_is_on,
        )),
    });
    Ok(handlers.collect())
}

/// The settings name threads, which an event loop does not have.
fn no_threads() -> Failure {
    let cause = "an ASGI application runs on one event loop, which has no threads";
    let hint = "leave out `threads`; `asgi_concurrency` bounds the requests inside, and `processes` uses more processors";
    Failure {
        hint: Some(hint.to_owned()),
        ..import::fault("threads", cause)
    }
}

/// What the supervisor has left in the environment is nothing to programs that the application starts.
fn forget_handover(py: Python<'_>) -> PyResult<()> {
    let environment = py.import("os")?.getattr("environ")?;
    environment.call_method1("pop", (HANDOVER, py.None()))?;
    Ok(())
}

/// Opens `/dev/null` as whatever is missing of stdin, stdout and stderr.
///
/// Else the next socket or log would become stderr and be given what the application's libraries write
/// there. Rust does the same when it starts a program, but not when Python loads a module.
pub(crate) fn fill_standard_streams() {
    // The lowest free descriptor is taken.
    let open = || OpenOptions::new().read(true).write(true).open("/dev/null");
    while let Ok(null) = open()
        && null.as_raw_fd() <= 2
    {
        // It stays open as long as the process.
        let _ = null.into_raw_fd();
    }
}

/// `CPython 3.11.7 (GIL)`, `CPython 3.13.5 free-threaded`
fn describe(py: Python<'_>) -> PyResult<String> {
    let version: String = py
        .import("platform")?
        .call_method0("python_version")?
        .extract()?;
    let kind = match (is_free_threaded_build(py)?, gil_is_on(py)?) {
        (false, _) => " (GIL)",
        (true, false) => " free-threaded",
        (true, true) => " free-threaded (GIL switched on)",
    };
    Ok(format!("CPython {version}{kind}"))
}

fn is_free_threaded_build(py: Python<'_>) -> PyResult<bool> {
    py.import("sysconfig")?
        .call_method1("get_config_var", ("Py_GIL_DISABLED",))?
        .is_truthy()
}

/// Whether threads take turns at the interpreter.
fn gil_is_on(py: Python<'_>) -> PyResult<bool> {
    match py.import("sys")?.getattr_opt("_is_gil_enabled")? {
        Some(is_enabled) => is_enabled.call0()?.extract(),
        None => Ok(true),
    }
}

/// A free-threaded interpreter switches its GIL on when it imports an extension module that does not say
/// that it can do without; then threads wait for each other after all.
fn warn_of_gil(py: Python<'_>) {
    if !is_free_threaded_build(py).unwrap_or(false) || !gil_is_on(py).unwrap_or(false) {
        return;
    }
    // stderr may be gone or full; that must not stop the start.
    let _ = writeln!(
        std::io::stderr(),
        "milepost: free-threaded Python: the GIL has been switched on: {}",
        culprit(py)
    );
}

fn culprit(py: Python<'_>) -> String {
    if std::env::var_os("PYTHON_GIL").is_some_and(|value| value == "1") {
        return "PYTHON_GIL=1 is set".to_owned();
    }
    let modules = foreign_extensions(py).unwrap_or_default();
    match modules.as_slice() {
        [] => "by `-X gil=1` or by an extension module that Python has named above".to_owned(),
        [one] => format!("the extension module `{one}` does not declare that it can do without"),
        many => format!(
            "one of the extension modules `{}` does not declare that it can do without",
            many.join("`, `")
        ),
    }
}

/// Extension modules from outside the standard library, without ours.
fn foreign_extensions(py: Python<'_>) -> PyResult<Vec<String>> {
    let script = c"
import sys, importlib.machinery as machinery
known = sys.stdlib_module_names
found = sorted(
    name for name, module in list(sys.modules.items())
    if isinstance(getattr(getattr(module, '__spec__', None), 'loader', None), machinery.ExtensionFileLoader)
    and name.partition('.')[0] not in known and not name.startswith('milepost.')
)
";
    modules::run_script(&PyDict::new(py), script)
}
