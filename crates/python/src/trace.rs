//! Python exceptions as text for the error log.
//!
//! Takes an exception, gives its traceback; keeps no reference to it, so that no frame outlives its
//! exchange here.

use pyo3::prelude::*;
use server::exchange::Exchange;
use server::fault::Fault;

/// An application's exception as a fault.
#[cold]
pub(crate) fn fault(py: Python<'_>, error: &PyErr) -> Fault {
    Fault::App(text(py, error))
}

/// The traceback as Python would print it.
#[cold]
pub(crate) fn text(py: Python<'_>, error: &PyErr) -> String {
    format(py, error)
        .unwrap_or_else(|_| error.to_string())
        .trim_end()
        .to_owned()
}

fn format(py: Python<'_>, error: &PyErr) -> PyResult<String> {
    let lines = py
        .import("traceback")?
        .call_method1("format_exception", (error.value(py),))?;
    let lines: Vec<String> = lines.extract()?;
    Ok(lines.concat())
}

/// Tells the error log about an exchange whose reply is good nevertheless.
#[cold]
pub(crate) fn report(exchange: &Exchange, text: &str) {
    let head = exchange.head();
    let method = String::from_utf8_lossy(head.method());
    let target = String::from_utf8_lossy(head.target());
    let text = format!("{method} {target}: application: {text}").replace('\n', "\n    ");
    eprintln!("milepost: {text}");
}
