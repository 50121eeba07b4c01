//! Evaluating a Python file: its variables, as `milepost convert` wants them.
//!
//! Takes the path of a file that the user has named, runs it, gives JSON. What to do with the variables is the
//! command's business.

use std::ffi::CStr;
use std::path::Path;

use cli::Failure;
use pyo3::prelude::*;
use pyo3::types::PyModule;

use crate::{import, trace};

const SOURCE: &CStr =
    match CStr::from_bytes_with_nul(concat!(include_str!("evaluate.py"), "\0").as_bytes()) {
        Ok(source) => source,
        Err(_) => panic!("a source has no zero byte"),
    };

/// The variables of the file: an object of texts, arrays of texts, `true` for callables, `null` for the rest.
pub(crate) fn variables(py: Python<'_>, file: &Path) -> Result<String, Failure> {
    let what = file.display().to_string();
    let found = PyModule::from_code(py, SOURCE, c"milepost/evaluate.py", c"milepost._evaluate")
        .and_then(|module| module.getattr("variables")?.call1((what.as_str(),)))
        .and_then(|found| found.extract::<String>());
    found.map_err(|error| match import::told(py, &error) {
        Some((cause, hint, detail)) => Failure {
            hint,
            detail,
            ..import::fault(&what, cause)
        },
        None => Failure {
            detail: Some(trace::text(py, &error)),
            ..import::fault(&what, &error)
        },
    })
}
