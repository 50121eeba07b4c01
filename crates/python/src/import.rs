//! Importing an application or the function of a hook: `module:attribute` becomes a callable, or a message that says what is wrong
//! and what to do about it.
//!
//! Takes names from the configuration; runs the application's module. What there is to find out about Python objects
//! is written in Python (`import.py`), and asked here.

use std::ffi::CStr;
use std::fmt::Display;
use std::path::PathBuf;

use cli::Failure;
use config::typed::{App, Hook, Interface};
use pyo3::prelude::*;
use pyo3::types::{PyModule, PyString};

use crate::trace;

const SOURCE: &CStr =
    match CStr::from_bytes_with_nul(concat!(include_str!("import.py"), "\0").as_bytes()) {
        Ok(source) => source,
        Err(_) => panic!("a source has no zero byte"),
    };

/// Why `what` cannot be served.
pub(crate) fn fault(what: &str, cause: impl Display) -> Failure {
    Failure {
        message: format!("`{what}`: {cause}"),
        ..Failure::default()
    }
}

/// Imports the module and gives the application in it, with its interface: the one that is asked for, or the one that it
/// was found to have.
pub(crate) fn load<'py>(
    py: Python<'py>,
    app: &App,
) -> Result<(Bound<'py, PyAny>, Interface), Failure> {
    let what = app.name();
    let folder = folder(app);
    let asked = (
        &app.module,
        &app.attribute,
        app.factory,
        folder.as_os_str(),
        &app.env,
        match app.interface {
            Interface::Auto => "auto",
            Interface::Asgi => "asgi",
            Interface::Asgi2 => "asgi2",
            Interface::Wsgi => "wsgi",
        },
    );
    let loaded = functions(py).and_then(|import| {
        let loaded = import.getattr("load")?.call1(asked)?;
        let (application, found): (Bound<'py, PyAny>, String) = loaded.extract()?;
        let interface = match found.as_str() {
            "asgi" => Interface::Asgi,
            "asgi2" => Interface::Asgi2,
            _ => Interface::Wsgi,
        };
        Ok((application, interface))
    });
    loaded.map_err(|error| failure(py, &what, &error))
}

/// Imports the function of a hook.
pub(crate) fn find_hook(py: Python<'_>, app: &App, hook: &Hook) -> Result<(), Failure> {
    ask_of_hook(py, "find_hook", app, hook)
}

/// Imports the function of a hook and calls it.
pub(crate) fn call_hook(py: Python<'_>, app: &App, hook: &Hook) -> Result<(), Failure> {
    ask_of_hook(py, "call_hook", app, hook)
}

fn ask_of_hook(py: Python<'_>, name: &str, app: &App, hook: &Hook) -> Result<(), Failure> {
    let folder = folder(app);
    let asked = (&hook.module, &hook.function, folder.as_os_str());
    let done = functions(py).and_then(|import| import.getattr(name)?.call1(asked));
    done.map(drop).map_err(|error| {
        let found = failure(py, &hook.target(), &error);
        let message = format!("`{}`: {}", hook.key(), found.message);
        Failure { message, ..found }
    })
}

fn folder(app: &App) -> PathBuf {
    std::path::absolute(&app.app_dir).unwrap_or_else(|_| app.app_dir.clone())
}

fn functions(py: Python<'_>) -> PyResult<Bound<'_, PyModule>> {
    PyModule::from_code(py, SOURCE, c"milepost/import.py", c"milepost._import")
}

fn failure(py: Python<'_>, what: &str, error: &PyErr) -> Failure {
    told(py, error).map_or_else(
        // An error of ours, or a signal.
        || Failure {
            detail: Some(trace::text(py, error)),
            ..fault(what, error)
        },
        |(cause, hint, detail)| Failure {
            hint,
            detail,
            ..fault(what, cause)
        },
    )
}

/// Cause, hint and traceback of a `Fault` of import.py; texts that are no UTF-8 as far as they are.
pub(crate) fn told(
    py: Python<'_>,
    error: &PyErr,
) -> Option<(String, Option<String>, Option<String>)> {
    let value = error.value(py);
    let text = |name: &str| -> Option<String> {
        let text = value.getattr(name).ok().filter(|text| !text.is_none())?;
        Some(text.cast::<PyString>().ok()?.to_string_lossy().into_owned())
    };
    Some((text("cause")?, text("hint"), text("detail")))
}

/// The turn of a test that changes sys.path, which is one for all tests of this program. Taken before the
/// interpreter is: whoever imports lets others run in between.
#[cfg(test)]
pub(crate) fn turn_on_the_path() -> std::sync::MutexGuard<'static, ()> {
    static TURN: std::sync::Mutex<()> = std::sync::Mutex::new(());
    TURN.lock()
        .unwrap_or_else(std::sync::PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Message, hint and traceback for `module:attribute` in a folder with some modules; `None`: it loads.
    fn wrong(name: &str) -> Option<(String, String, String)> {
        let _turn = turn_on_the_path();
        let folder = tempfile::tempdir().unwrap();
        let write =
            |name: &str, text: &str| std::fs::write(folder.path().join(name), text).unwrap();
        write(
            "t_good.py",
            "class S: pass\ns = S()\ndef app(environ, start_response): pass\ns.app = app\nnumber = 3\nnothing = None\ndef create_app(): return app\ndef none(): pass\ndef broken(): 1/0\ndef needs(x): pass\n",
        );
        write(
            "t_class.py",
            "class app:\n    def __init__(self, environ, start_response): pass\n    def __iter__(self): return iter([])\n",
        );
        write(
            "t_asgi.py",
            "async def app(scope, receive, send): pass\nclass A:\n    async def __call__(self, scope, receive, send): pass\na = A()\n",
        );
        write(
            "t_wrapped.py",
            "import functools\ndef adapt(f):\n    @functools.wraps(f)\n    def application(*args): return f(args[0])(*args[-2:])\n    return application\n@adapt\ndef app(request): pass\n@adapt\ndef odd(request): pass\n",
        );
        write("t_needs.py", "import t_absent_thing\n");
        write(
            "t_raises.py",
            "def inner(): raise RuntimeError('told\\nyou')\ninner()\n",
        );
        write("t_exits.py", "import sys; sys.exit(4)\n");
        write("t_syntax.py", "def (:\n");
        let (module, rest) = name.split_once(':').unwrap_or((name, ""));
        let app = App {
            module: module.into(),
            attribute: rest.trim_end_matches("()").into(),
            factory: rest.ends_with("()"),
            app_dir: PathBuf::from(folder.path()),
            ..App::default()
        };
        Python::initialize();
        Python::attach(|py| {
            let wrong = load(py, &app).err();
            let modules = py.import("sys").unwrap().getattr("modules").unwrap();
            drop(modules.call_method1("pop", (module, py.None())));
            let path = py.import("sys").unwrap().getattr("path").unwrap();
            path.call_method1("pop", (0,)).unwrap();
            py.import("importlib")
                .unwrap()
                .call_method0("invalidate_caches")
                .unwrap();
            wrong.map(|wrong| {
                (
                    wrong.message,
                    wrong.hint.unwrap_or_default(),
                    wrong.detail.unwrap_or_default(),
                )
            })
        })
    }

    #[test]
    fn loads_what_can_be_served() {
        // What is called of `t_wrapped` is the decorator's function, whatever the one within takes.
        let names = "t_good:app t_good t_good:s.app t_good:create_app() t_class:app t_class t_wrapped:app t_wrapped";
        for name in names.split(' ') {
            assert_eq!(wrong(name), None, "{name}");
        }
    }

    /// A name, and what is in its message, hint and traceback; where there is nothing, there is no traceback.
    const WRONG: &str = "
        t_none:app | no module `t_none` in / | `t_asgi`, `t_class` |
        t_none.sub:app | no module `t_none` in / | holds |
        t_good.py | no module | `t_good` |
        src/t_good:app | no module | `src.t_good` |
        t_good.app | no module `t_good.app` in / | did you mean `t_good:app`? |
        t_good:ap | `t_good` has no attribute `ap` (/ | `t_good:app` or `t_good:create_app()` |
        t_good:s.ap | `t_good.s` has no attribute `ap` | did you mean |
        t_raises_not:app | no module `t_raises_not` | holds |
        t_good:number | type `int` is not callable | did you mean `t_good:app` |
        t_wrapped:ap | no attribute `ap` | did you mean `t_wrapped:app` or `t_wrapped:odd`? |
        t_good:number() | no factory | leave out |
        t_good:create_app | cannot be called with environ | `t_good:create_app()` |
        t_good:needs() | without arguments | leave out |
        t_good:none() | not callable | returned None |
        t_needs:app | No module named 't_absent_thing' | `t_absent_thing` is not installed for | in <module>
        t_raises:app | importing `t_raises` failed: RuntimeError: told | | in inner
        t_exits:app | SystemExit | __main__ | sys.exit(4)
        t_syntax:app | SyntaxError | | def (:
        t_good:broken() | the factory failed: ZeroDivisionError | | in broken
    ";

    #[test]
    fn says_what_is_wrong_and_gives_the_traceback_of_the_module_alone() {
        for row in WRONG.trim().lines() {
            let columns: Vec<&str> = row.split('|').map(str::trim).collect();
            let [name, message, hint, detail] = columns[..] else {
                panic!("{row}");
            };
            let found = wrong(name).unwrap_or_default();
            let is_told = found.0.contains(message) && found.1.contains(hint);
            assert!(is_told && !found.0.contains('\n'), "{name}: {found:#?}");
            assert_eq!(found.2.is_empty(), detail.is_empty(), "{name}: {found:#?}");
            let is_ours = found.2.contains(detail) && !found.2.contains("importlib");
            assert!(is_ours, "{name}: {found:#?}");
        }
    }
}
