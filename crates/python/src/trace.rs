//! Python exceptions as text for the error log.
//!
//! Takes an exception, gives its traceback; keeps no reference to it, so that no frame outlives its
//! exchange here.

use pyo3::prelude::*;
use pyo3::types::PyString;

/// The traceback as Python would print it.
#[cold]
pub(crate) fn text(py: Python<'_>, error: &PyErr) -> String {
    let from = error.traceback(py).map(Bound::into_any);
    text_from(py, error, from.as_ref())
}

/// The same from another frame than the outermost.
#[cold]
pub(crate) fn text_from(py: Python<'_>, error: &PyErr, from: Option<&Bound<'_, PyAny>>) -> String {
    let format = || -> PyResult<String> {
        let arguments = (error.get_type(py), error.value(py), from);
        let module = py.import("traceback")?;
        let lines = module.call_method1("format_exception", arguments)?;
        let mut text = String::new();
        for line in lines.try_iter()? {
            // Names of files and messages may hold lone surrogates, which are no UTF-8.
            text.push_str(&line?.cast::<PyString>()?.to_string_lossy());
        }
        Ok(text)
    };
    let text = format().unwrap_or_else(|_| error.to_string());
    text.trim_end().to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_the_frames_and_what_came_before() {
        Python::initialize();
        Python::attach(|py| {
            let script = c"
def inner(): raise KeyError('first')
try: inner()
except KeyError: raise ValueError('second')
";
            let text = text(py, &py.run(script, None, None).unwrap_err());
            for part in [
                "in inner",
                "KeyError: 'first'",
                "During handling",
                "ValueError: second",
            ] {
                assert!(text.contains(part), "{text}");
            }
        });
    }
}
