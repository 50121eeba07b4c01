//! `milepost.serve`: the server started by a program, with keyword arguments in place of flags.
//!
//! Takes Python's values, gives the exit code or the exception. Serving processes are started as
//! `python -m milepost serve ...`, never by the program anew: what it has done before stays done once.

use std::ffi::OsString;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};

use cli::{Failure, Keyword, KeywordArguments, KeywordValue};
use pyo3::create_exception;
use pyo3::exceptions::{PyRuntimeError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::{PyBool, PyDict, PyFloat, PyInt, PyList, PyString, PyTuple};

use crate::host::{self, Host};

create_exception!(
    milepost,
    SettingsError,
    PyValueError,
    "Settings that `milepost.serve` does not take: all faults, as the command prints them."
);

/// One command runs in a process at a time.
static IS_RUNNING: AtomicBool = AtomicBool::new(false);

/// Says for its lifetime that a command runs.
pub(crate) struct Running(());

impl Running {
    /// None where one runs already.
    pub(crate) fn begin() -> Option<Running> {
        let was_running = IS_RUNNING.swap(true, Ordering::AcqRel);
        (!was_running).then_some(Running(()))
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        IS_RUNNING.store(false, Ordering::Release);
    }
}

/// Serve `app` with these settings until the server is stopped, and give its exit code. `options` are those of the
/// interpreter for the processes that it starts.
///
/// # Errors
/// `SettingsError` for settings; `RuntimeError` within a process that serves.
#[pyfunction]
pub(crate) fn serve(
    py: Python<'_>,
    app: Option<String>,
    settings: &Bound<'_, PyDict>,
    options: Vec<OsString>,
) -> PyResult<i32> {
    let Some(_running) = Running::begin() else {
        return Err(PyRuntimeError::new_err(
            "milepost.serve() was called in a process that serves already\n\
             hint: a module that is imported must not serve: put the call under \
             `if __name__ == \"__main__\":`",
        ));
    };
    let keywords = keywords(settings)?;
    host::fill_standard_streams();
    let arguments = KeywordArguments::new(app, &keywords);
    let host = Host::here().started_by(options, &arguments.words);
    // The supervisor runs no Python: other threads of the program go on meanwhile.
    py.detach(|| cli::serve_arguments(&arguments, Some(&host)))
        .map_err(|faults| {
            let text: String = faults.iter().map(Failure::text).collect();
            SettingsError::new_err(text.trim_end().to_owned())
        })
}

/// All that have a value: `None` is how a program leaves one out.
fn keywords(settings: &Bound<'_, PyDict>) -> PyResult<Vec<Keyword>> {
    let given = settings.iter().filter(|(_, value)| !value.is_none());
    given
        .map(|(name, value)| {
            let name = name.extract()?;
            let value = keyword_value(&value);
            let value = value.unwrap_or_else(|odd| KeywordValue::Other(kind(&odd)));
            Ok(Keyword { name, value })
        })
        .collect()
}

/// # Errors
/// The object, of the value or in it, that no flag takes.
fn keyword_value<'py>(value: &Bound<'py, PyAny>) -> Result<KeywordValue, Bound<'py, PyAny>> {
    if let Ok(pairs) = value.cast::<PyDict>() {
        let mut found = Vec::new();
        for (name, value) in pairs.iter() {
            let name = plain(&name)?;
            let values = many(&value).unwrap_or_else(|| Ok(vec![plain(&value)?]))?;
            found.extend(values.into_iter().map(|value| (name.clone(), value)));
        }
        return Ok(KeywordValue::Pairs(found));
    }
    match many(value) {
        Some(texts) => texts.map(KeywordValue::Many),
        None => plain(value).map(KeywordValue::One),
    }
}

/// The texts of a list or a tuple; nothing for other objects.
fn many<'py>(value: &Bound<'py, PyAny>) -> Option<Result<Vec<String>, Bound<'py, PyAny>>> {
    let values = match (value.cast::<PyList>(), value.cast::<PyTuple>()) {
        (Ok(list), _) => list.iter().collect::<Vec<_>>(),
        (_, Ok(tuple)) => tuple.iter().collect(),
        _ => return None,
    };
    Some(values.iter().map(plain).collect())
}

/// A text, a number, a switch or a path as its flag takes it.
fn plain<'py>(value: &Bound<'py, PyAny>) -> Result<String, Bound<'py, PyAny>> {
    let text = if let Ok(switch) = value.cast::<PyBool>() {
        Some(switch.is_true().to_string())
    } else if value.is_instance_of::<PyInt>() || value.is_instance_of::<PyFloat>() {
        value.str().ok().map(|text| text.to_string())
    } else if value.is_instance_of::<PyString>() {
        value.extract().ok()
    } else {
        let path = value.extract::<PathBuf>().ok();
        path.and_then(|path| path.into_os_string().into_string().ok())
    };
    text.ok_or_else(|| value.clone())
}

fn kind(value: &Bound<'_, PyAny>) -> String {
    let name = value.get_type().name();
    name.map_or_else(|_| "object".to_owned(), |name| name.to_string())
}
