//! Python exceptions as text for the error log.
//!
//! Takes an exception, gives its traceback; keeps no reference to it, so that no frame outlives its
//! exchange here.

use pyo3::exceptions::PyBaseException;
use pyo3::prelude::*;
use server::exchange::Exchange;
use server::fault::Fault;

use crate::raw;

/// An application's exception as a fault.
#[cold]
pub(crate) fn fault(py: Python<'_>, error: &PyErr) -> Fault {
    Fault::App(text(py, error))
}

/// The traceback as Python would print it.
#[cold]
pub(crate) fn text(py: Python<'_>, error: &PyErr) -> String {
    text_from(
        error.value(py),
        error.traceback(py).map(Bound::into_any).as_ref(),
        error,
    )
}

/// The same from another frame than the outermost.
#[cold]
pub(crate) fn text_from(
    value: &Bound<'_, PyBaseException>,
    from: Option<&Bound<'_, PyAny>>,
    error: &PyErr,
) -> String {
    format(value, from)
        .unwrap_or_else(|_| error.to_string())
        .trim_end()
        .to_owned()
}

fn format(value: &Bound<'_, PyBaseException>, from: Option<&Bound<'_, PyAny>>) -> PyResult<String> {
    let arguments = (value.get_type(), value, from);
    let lines = value
        .py()
        .import("traceback")?
        .call_method1("format_exception", arguments)?;
    let lines: Vec<String> = lines.extract()?;
    Ok(lines.concat())
}

/// Tells the error log about an exchange whose reply is good nevertheless.
#[cold]
pub(crate) fn report(py: Python<'_>, exchange: &Exchange, text: &str) {
    let head = exchange.head();
    let method = String::from_utf8_lossy(head.method());
    let target = String::from_utf8_lossy(head.target());
    let text = format!("{method} {target}: application: {text}").replace('\n', "\n    ");
    raw::detached(py, || eprintln!("milepost: {text}"));
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
