//! The onlooker: a thread that looks at, and interrupts, pool threads for whoever must not wait for the
//! interpreter.
//!
//! Takes errands, attaches for each, answers. Whoever asks waits a second at most: somebody may hold the
//! interpreter for as long as it wants.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{self, Receiver, Sender};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::Duration;

use measure::Stamp;
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::{PyDict, PyString};
use server::handler::Stack;

use super::roster::Line;
use crate::visit;

/// How long the interpreter is waited for.
const PATIENCE: Duration = Duration::from_secs(1);

/// The thread, started by the first errand.
#[derive(Default)]
pub(super) struct Onlooker {
    errands: Mutex<Option<Sender<Errand>>>,
    /// Errands that are not done.
    pending: Arc<AtomicUsize>,
}

enum Errand {
    Stack(Arc<Line>, Sender<String>),
    Interrupt(Arc<Line>, Stamp, Sender<bool>),
}

impl Onlooker {
    /// Where a thread is.
    pub(super) fn stack(&self, line: Arc<Line>) -> Stack {
        // Who waits already waits for all.
        if self.pending.load(Ordering::Relaxed) > 0 {
            return Stack::Held;
        }
        let (told, answer) = mpsc::channel();
        self.send(Errand::Stack(line, told));
        answer
            .recv_timeout(PATIENCE)
            .map_or(Stack::Held, Stack::Frames)
    }

    /// Interrupts a thread, if it is still at it by the time that this is possible. False when it could not be
    /// done yet.
    pub(super) fn interrupt(&self, line: Arc<Line>, began: Stamp) -> bool {
        let patience = match self.pending.load(Ordering::Relaxed) {
            0 => PATIENCE,
            _ => Duration::ZERO,
        };
        let (told, answer) = mpsc::channel();
        self.send(Errand::Interrupt(line, began, told));
        answer.recv_timeout(patience).is_ok()
    }

    /// Without a thread the errand is dropped, which its sender sees.
    fn send(&self, errand: Errand) {
        let mut errands = self.errands.lock().unwrap_or_else(PoisonError::into_inner);
        if errands.is_none() {
            *errands = start(Arc::clone(&self.pending)).ok();
        }
        let Some(sender) = errands.as_ref() else {
            return;
        };
        self.pending.fetch_add(1, Ordering::Relaxed);
        if sender.send(errand).is_err() {
            self.pending.fetch_sub(1, Ordering::Relaxed);
        }
    }
}

impl Errand {
    /// Whoever asked may have gone meanwhile. Who has its answer may ask again at once, and is not to find that one
    /// pending still.
    fn run(self, py: Python<'_>, pending: &AtomicUsize) {
        let done = || pending.fetch_sub(1, Ordering::Relaxed);
        let _ = match self {
            Errand::Stack(line, told) => {
                let stack = stack_of(py, line.ident());
                done();
                told.send(stack).ok()
            }
            Errand::Interrupt(line, began, told) => {
                let is_interrupted = line.interrupt(py, began);
                done();
                told.send(is_interrupted).ok()
            }
        };
    }
}

/// Ends with its sender.
fn start(pending: Arc<AtomicUsize>) -> std::io::Result<Sender<Errand>> {
    let (sender, errands): (_, Receiver<Errand>) = mpsc::channel();
    let work = move || {
        for errand in errands {
            let _visit = visit::begin();
            Python::attach(|py| errand.run(py, &pending));
        }
    };
    thread::Builder::new()
        .name("mp-stack".to_owned())
        .spawn(work)?;
    Ok(sender)
}

/// The frames of a thread, the outermost first, as Python prints them.
fn stack_of(py: Python<'_>, ident: u64) -> String {
    match format(py, ident) {
        Ok(Some(text)) => text,
        Ok(None) => "  no frame: it is not in Python".to_owned(),
        Err(error) => format!("  the frames could not be read: {error}"),
    }
}

/// Imports what is needed, before it is: when somebody has to be looked at the processors may be busy, and the
/// first look would be too late.
pub(super) fn prepare(py: Python<'_>) {
    // Whoever looks later is told what is missing.
    let _ = formatter(py);
}

fn formatter(py: Python<'_>) -> PyResult<&'static Py<PyAny>> {
    static FORMAT: PyOnceLock<Py<PyAny>> = PyOnceLock::new();
    FORMAT.get_or_try_init(py, || {
        let names = PyDict::new(py);
        // All frames are taken before the lines of their files are read: the thread goes on meanwhile.
        let script = c"
import sys, traceback
def stack(ident):
    frame = sys._current_frames().get(ident)
    if frame is None:
        return None
    frames = traceback.StackSummary.extract(traceback.walk_stack(frame), lookup_lines=False)
    del frame
    frames.reverse()
    return ''.join(frames.format())
";
        py.run(script, Some(&names), None)?;
        Ok(names.as_any().get_item("stack")?.unbind())
    })
}

fn format(py: Python<'_>, ident: u64) -> PyResult<Option<String>> {
    let text = formatter(py)?.bind(py).call1((ident,))?;
    // Names of files may hold lone surrogates, which are no UTF-8.
    let text = text.cast::<PyString>().ok();
    Ok(text.map(|text| text.to_string_lossy().into_owned()))
}

#[cfg(test)]
mod tests {
    use super::super::roster::Roster;
    use super::*;
    use crate::raw;

    /// One of these tests holds the interpreter for longer than the other waits for it.
    static TURN: Mutex<()> = Mutex::new(());

    #[test]
    fn shows_where_another_thread_is() {
        Python::initialize();
        Python::attach(|py| {
            let names = PyDict::new(py);
            let script = c"
import threading
inside, go, ident = threading.Event(), threading.Event(), []
def innermost():
    ident.append(threading.get_ident())
    inside.set()
    go.wait()
def outermost(): innermost()
thread = threading.Thread(target=outermost)
thread.start()
inside.wait()
";
            py.run(script, Some(&names), None).unwrap();
            let ident = names.get_item("ident").unwrap().unwrap();
            let ident = ident.get_item(0).unwrap().extract().unwrap();
            let text = stack_of(py, ident);
            py.run(c"go.set(); thread.join()", Some(&names), None)
                .unwrap();
            let at = |name: &str| text.find(name).unwrap_or_else(|| panic!("{name}: {text}"));
            assert!(at("in outermost") < at("in innermost"), "{text}");
            assert!(stack_of(py, ident).contains("no frame"));
        });
    }

    #[test]
    fn whoever_has_its_answer_is_not_waited_for() {
        let _turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
        Python::initialize();
        Python::attach(|py| {
            let roster = Roster::default();
            let listed = roster.enter(py).unwrap();
            let onlooker = Onlooker::default();
            raw::detached(py, || {
                for _ in 0..200 {
                    assert_ne!(onlooker.stack(Arc::clone(&listed.line)), Stack::Held);
                    assert!(onlooker.interrupt(Arc::clone(&listed.line), Stamp(1)));
                }
            });
        });
    }

    #[test]
    fn waits_no_longer_than_a_second_for_an_interpreter_that_somebody_holds() {
        let _turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
        Python::initialize();
        Python::attach(|py| {
            let roster = Roster::default();
            let listed = roster.enter(py).unwrap();
            let line = Arc::clone(&listed.line);
            let onlooker = Onlooker::default();
            // Attached all the while: with a GIL nobody else gets in, without one its frame is found.
            let is_free = onlooker.stack(Arc::clone(&line)) != Stack::Held;
            let gil = py.import("sys").unwrap().getattr_opt("_is_gil_enabled");
            let gil = gil
                .unwrap()
                .is_none_or(|is| is.call0().unwrap().extract().unwrap());
            if gil {
                assert!(!is_free);
                // Nobody waits a second time for what is waited for already.
                assert_eq!(onlooker.stack(line), Stack::Held);
            }
        });
    }
}
