//! Importing an application: `module:attribute` becomes a callable, or a message that says what is wrong
//! and what to do about it.
//!
//! Takes names from the configuration; runs the application's module. A traceback is given only when that
//! module raised.

use std::fmt::Display;
use std::path::Path;

use cli::AppFault;
use pyo3::exceptions::{PyModuleNotFoundError, PySystemExit, PyValueError};
use pyo3::prelude::*;
use pyo3::types::{IntoPyDict, PyDict, PyList, PyModule, PyTuple, PyType};
use server::config::typed::App;

use crate::wsgi::type_name;
use crate::{modules, trace};

/// Names tried when only a module is given.
const DEFAULT_ATTRIBUTES: [&str; 2] = ["application", "app"];
/// Names in a hint.
const NAMES_LEN_MAX: usize = 6;

/// Why `what` cannot be served.
pub(crate) fn fault(what: &str, cause: impl Display) -> AppFault {
    AppFault {
        message: format!("`{what}`: {cause}"),
        ..AppFault::default()
    }
}

/// The same, with what to do about it.
fn fault_with_hint(what: &str, cause: impl Display, hint: impl Into<String>) -> AppFault {
    AppFault {
        hint: Some(hint.into()),
        ..fault(what, cause)
    }
}

/// Imports the module and gives the application in it.
pub(crate) fn load<'py>(py: Python<'py>, app: &App) -> Result<Bound<'py, PyAny>, AppFault> {
    let what = if app.attribute.is_empty() {
        app.module.clone()
    } else {
        format!("{}:{}", app.module, app.attribute)
    };
    let folder = std::path::absolute(&app.app_dir).unwrap_or_else(|_| app.app_dir.clone());
    put_first_on_path(py, &folder).map_err(|error| fault(&what, error))?;
    let module = py
        .import(app.module.as_str())
        .map_err(|error| import_failed(py, &what, &app.module, &folder, &error))?;
    let mut application = attribute(&module, app, &what)?;
    if app.factory {
        application = call_factory(&application, &what)?;
    }
    check_application(&module, &application, &what, app)?;
    Ok(application)
}

fn put_first_on_path(py: Python<'_>, folder: &Path) -> PyResult<()> {
    let path = py.import("sys")?.getattr("path")?.cast_into::<PyList>()?;
    let is_first = path
        .get_item(0)
        .is_ok_and(|first| first.eq(folder.as_os_str()).unwrap_or(false));
    if is_first {
        Ok(())
    } else {
        path.insert(0, folder.as_os_str())
    }
}

fn import_failed(
    py: Python<'_>,
    what: &str,
    module: &str,
    folder: &Path,
    error: &PyErr,
) -> AppFault {
    let missing = missing_module(py, error);
    let is_own = |missing: &String| missing == module || module.starts_with(&format!("{missing}."));
    if let Some(missing) = missing.as_ref().filter(|missing| is_own(missing)) {
        let folder_name = folder.display();
        let cause = format!("no module `{missing}` in {folder_name} or on sys.path");
        return fault_with_hint(what, cause, other_modules(module, folder));
    }
    let hint = match missing {
        Some(missing) => {
            let sys = py.import("sys");
            let python = sys.and_then(|sys| sys.getattr("executable")?.extract::<String>());
            let python = python.unwrap_or_else(|_| "this Python".into());
            Some(format!("`{missing}` is not installed for {python}"))
        }
        None if error.is_instance_of::<PySystemExit>(py) => Some(
            "the module ends the program when it is imported; put that under `if __name__ == \"__main__\":`".into(),
        ),
        None => None,
    };
    let cause = format!("importing `{module}` failed: {}", first_line(error));
    AppFault {
        hint,
        detail: Some(traceback(py, error)),
        ..fault(what, cause)
    }
}

/// The name in a `ModuleNotFoundError`.
fn missing_module(py: Python<'_>, error: &PyErr) -> Option<String> {
    if !error.is_instance_of::<PyModuleNotFoundError>(py) {
        return None;
    }
    error.value(py).getattr("name").ok()?.extract().ok()
}

fn first_line(error: &PyErr) -> String {
    let text = error.to_string();
    let line = text.lines().next().unwrap_or_default();
    line.trim_end().to_owned()
}

/// The traceback without the frames of the import machinery at its outer end.
fn traceback(py: Python<'_>, error: &PyErr) -> String {
    let mut trace = error.traceback(py).map(Bound::into_any);
    while let Some(frame) = &trace {
        if !is_machinery(frame).unwrap_or(false) {
            break;
        }
        trace = frame.getattr("tb_next").ok().filter(|next| !next.is_none());
    }
    trace::text_from(py, error, trace.as_ref())
}

fn is_machinery(trace: &Bound<'_, PyAny>) -> PyResult<bool> {
    let code = trace.getattr("tb_frame")?.getattr("f_code")?;
    let name: String = code.getattr("co_filename")?.extract()?;
    Ok(name.contains("importlib"))
}

fn other_modules(module: &str, folder: &Path) -> String {
    if let Some(stem) = module.strip_suffix(".py") {
        return format!("leave out the ending: `{}`", stem.replace('/', "."));
    }
    if module.contains('/') {
        return format!("write folders with dots: `{}`", module.replace('/', "."));
    }
    let held = match modules_in(folder).join("`, `") {
        names if names.is_empty() => "no Python module".to_owned(),
        names => format!("`{names}`"),
    };
    let folder = folder.display();
    format!("{folder} holds {held}; `--app-dir` names another folder")
}

/// Modules and packages in a folder, those with common names for applications first.
fn modules_in(folder: &Path) -> Vec<String> {
    let entries = std::fs::read_dir(folder).into_iter().flatten().flatten();
    let mut names: Vec<String> = entries
        .filter_map(|entry| module_name(&entry.path()))
        .collect();
    let is_usual = |name: &str| ["app", "main", "wsgi", "application", "server"].contains(&name);
    names.sort_by_key(|name| (!is_usual(name), name.clone()));
    names.truncate(NAMES_LEN_MAX);
    names
}

fn module_name(path: &Path) -> Option<String> {
    let is_package = path.join("__init__.py").is_file();
    let is_module = path.extension().is_some_and(|ending| ending == "py");
    let name = path.file_stem()?.to_str()?.to_owned();
    let is_name = !name.starts_with('_')
        && name
            .chars()
            .all(|letter| letter.is_alphanumeric() || letter == '_');
    ((is_package || is_module) && is_name).then_some(name)
}

fn attribute<'py>(
    module: &Bound<'py, PyModule>,
    app: &App,
    what: &str,
) -> Result<Bound<'py, PyAny>, AppFault> {
    let missing = |cause| fault_with_hint(what, cause, candidates(module, &app.module));
    if app.attribute.is_empty() {
        let mut defaults = DEFAULT_ATTRIBUTES
            .iter()
            .filter_map(|name| module.getattr(*name).ok());
        return defaults.next().ok_or_else(|| {
            let names = DEFAULT_ATTRIBUTES.join("` nor `");
            missing(format!("the module has neither `{names}`"))
        });
    }
    let mut found = module.clone().into_any();
    let mut walked = app.module.clone();
    for name in app.attribute.split('.') {
        found = found.getattr(name).map_err(|_| {
            let place = place(module);
            missing(format!("`{walked}` has no attribute `{name}`{place}"))
        })?;
        walked = format!("{walked}.{name}");
    }
    Ok(found)
}

/// Where the module came from: another than meant may have been found first.
fn place(module: &Bound<'_, PyModule>) -> String {
    let file = module
        .getattr("__file__")
        .and_then(|file| file.extract::<String>());
    file.map_or_else(|_| String::new(), |file| format!(" ({file})"))
}

/// Names in the module that look like applications or factories of them.
fn candidates(module: &Bound<'_, PyModule>, module_name: &str) -> String {
    let names = applications_in(module).unwrap_or_default();
    let suggest = |name: &String| format!("`{module_name}:{name}`");
    let names: Vec<String> = names.iter().take(NAMES_LEN_MAX).map(suggest).collect();
    match names.is_empty() {
        true => "nothing in the module looks like a WSGI application".to_owned(),
        false => format!("did you mean {}?", names.join(" or ")),
    }
}

fn applications_in(module: &Bound<'_, PyModule>) -> PyResult<Vec<String>> {
    let names = PyDict::new(module.py());
    names.set_item("module", module)?;
    let script = c"
import inspect
def look(name, value):
    if name.startswith('_') or isinstance(value, type) or not callable(value):
        return None
    if not inspect.isfunction(value):
        return None if inspect.isroutine(value) or inspect.ismodule(value) else name
    if value.__module__ != module.__name__:
        return None
    parameters = inspect.signature(value, follow_wrapped=False).parameters.values()
    needed = [p for p in parameters
              if p.default is p.empty and p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)]
    makes = 'create' in name or 'make' in name
    takes_any = any(p.kind == p.VAR_POSITIONAL for p in parameters)
    if len(needed) == 2 or takes_any and len(needed) < 2 and not makes:
        return name
    return name + '()' if not needed and ('app' in name or makes) else None
found = [hit for name, value in vars(module).items() if (hit := look(name, value))]
found.sort(key=lambda name: 'app' not in name)
";
    modules::run_script(&names, script)
}

fn call_factory<'py>(
    factory: &Bound<'py, PyAny>,
    what: &str,
) -> Result<Bound<'py, PyAny>, AppFault> {
    if !factory.is_callable() {
        let cause = format!("{} is not callable, so it is no factory", kind(factory));
        let hint = "leave out the parentheses or `--factory`";
        return Err(fault_with_hint(what, cause, hint));
    }
    if let Some(cause) = mismatch(factory, &[]) {
        let cause = format!("the factory cannot be called without arguments: {cause}");
        let hint = "if it is the application itself, leave out the parentheses or `--factory`";
        return Err(fault_with_hint(what, cause, hint));
    }
    factory.call0().map_err(|error| AppFault {
        detail: Some(trace::text(factory.py(), &error)),
        ..fault(what, format!("the factory failed: {}", first_line(&error)))
    })
}

fn check_application(
    module: &Bound<'_, PyModule>,
    application: &Bound<'_, PyAny>,
    what: &str,
    app: &App,
) -> Result<(), AppFault> {
    if !application.is_callable() {
        let kind = kind(application);
        let hint = match application.is_none() && app.factory {
            true => "the factory returned None; it must return the application".to_owned(),
            false => candidates(module, &app.module),
        };
        let cause = format!("{kind} is not callable, so it is no WSGI application");
        return Err(fault_with_hint(what, cause, hint));
    }
    if is_asgi(application).unwrap_or(false) {
        let cause = "this is an ASGI application; this version serves WSGI";
        let hint = "wrap it with a2wsgi's `ASGIMiddleware`, or serve it elsewhere for now";
        return Err(fault_with_hint(what, cause, hint));
    }
    let Some(cause) = mismatch(application, &["environ", "start_response"]) else {
        return Ok(());
    };
    let is_factory = !app.factory && mismatch(application, &[]).is_none();
    let cause = format!("it cannot be called with environ and start_response: {cause}");
    Err(AppFault {
        hint: is_factory.then(|| format!("if it makes the application: `{what}()`")),
        ..fault(what, cause)
    })
}

fn kind(object: &Bound<'_, PyAny>) -> String {
    format!("an object of type `{}`", type_name(object))
}

/// An async callable, or one that wants `scope, receive, send`.
fn is_asgi(application: &Bound<'_, PyAny>) -> PyResult<bool> {
    let inspect = application.py().import("inspect")?;
    let is_async = |object: &Bound<'_, PyAny>| -> PyResult<bool> {
        let found = inspect.call_method1("iscoroutinefunction", (object,));
        found?.extract()
    };
    if application.is_instance_of::<PyType>() {
        return is_async(application);
    }
    let call = application.getattr_opt("__call__")?;
    Ok(is_async(application)? || call.map_or(Ok(false), |call| is_async(&call))?)
}

/// Why a Python function cannot be called with these arguments. Callables without a signature are trusted.
fn mismatch(callable: &Bound<'_, PyAny>, arguments: &[&str]) -> Option<String> {
    let py = callable.py();
    let inspect = py.import("inspect").ok()?;
    // What is called is the outermost function, whatever `__wrapped__` says: a decorator may take the two
    // and hand on something else, as werkzeug's `Request.application` does.
    let options = [("follow_wrapped", false)].into_py_dict(py).ok()?;
    let signature = inspect
        .call_method("signature", (callable,), Some(&options))
        .ok()?;
    let arguments = PyTuple::new(py, arguments).ok()?;
    match signature.call_method1("bind", arguments) {
        Err(error) if !error.is_instance_of::<PyValueError>(py) => {
            Some(error.value(py).to_string())
        }
        _ => None,
    }
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
    use std::path::PathBuf;

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
            root_path: String::new(),
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
        for name in [
            "t_good:app",
            "t_good",
            "t_good:s.app",
            "t_good:create_app()",
            "t_class:app",
            "t_class",
            // What is called is the decorator's function, whatever the one within takes.
            "t_wrapped:app",
            "t_wrapped",
        ] {
            assert_eq!(wrong(name), None, "{name}");
        }
    }

    #[test]
    fn says_what_is_wrong_and_what_to_do() {
        let check = |name: &str, message: &str, hint: &str| {
            let found = wrong(name).unwrap_or_default();
            assert!(
                found.0.contains(message) && found.1.contains(hint),
                "{name}: {found:#?}"
            );
            assert_eq!(found.2, "", "{name}");
        };
        check(
            "t_none:app",
            "no module `t_none` in /",
            "`t_asgi`, `t_class`",
        );
        check("t_none.sub:app", "no module `t_none` in /", "holds");
        check("t_good.py", "no module", "`t_good`");
        check("src/t_good:app", "no module", "`src.t_good`");
        check(
            "t_good:ap",
            "`t_good` has no attribute `ap` (/",
            "`t_good:app` or `t_good:create_app()`",
        );
        check(
            "t_good:s.ap",
            "`t_good.s` has no attribute `ap`",
            "did you mean",
        );
        check("t_raises_not:app", "no module `t_raises_not`", "holds");
        check("t_asgi:app", "ASGI", "a2wsgi");
        check("t_asgi:a", "ASGI", "a2wsgi");
        check(
            "t_good:number",
            "type `int` is not callable",
            "did you mean `t_good:app`",
        );
        check(
            "t_wrapped:ap",
            "no attribute `ap`",
            "did you mean `t_wrapped:app` or `t_wrapped:odd`?",
        );
        check("t_good:number()", "no factory", "leave out");
        check(
            "t_good:create_app",
            "cannot be called with environ",
            "`t_good:create_app()`",
        );
        check("t_good:needs()", "without arguments", "leave out");
        check("t_good:none()", "not callable", "returned None");
    }

    #[test]
    fn gives_the_traceback_of_the_module_and_of_nothing_else() {
        let check = |name: &str, message: &str, hint: &str, detail: &str| {
            let found = wrong(name).unwrap_or_default();
            assert!(
                found.0.contains(message) && found.1.contains(hint),
                "{name}: {found:#?}"
            );
            assert!(
                found.2.contains(detail) && !found.2.contains("importlib"),
                "{name}: {found:#?}"
            );
            assert!(!found.0.contains('\n'), "{found:#?}");
        };
        check(
            "t_needs:app",
            "No module named 't_absent_thing'",
            "`t_absent_thing` is not installed for",
            "in <module>",
        );
        check(
            "t_raises:app",
            "importing `t_raises` failed: RuntimeError: told",
            "",
            "in inner",
        );
        check("t_exits:app", "SystemExit", "__main__", "sys.exit(4)");
        check("t_syntax:app", "SyntaxError", "", "def (:");
        check(
            "t_good:broken()",
            "the factory failed: ZeroDivisionError",
            "",
            "in broken",
        );
    }
}
